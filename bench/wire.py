"""A thread that is served over the loopback interface, beside the library and bare apsw in the same rounds."""

from __future__ import annotations

import os
import resource
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from blake3 import blake3

import eventq
from bench.report import Row, Sample, alone, percentile, versus
from bench.rounds import p50
from bench.served import Crowd, Line, Served, WireTurns
from bench.turn_stores import EventqTurns, Payloads, RawTurns
from eventq.wire.frames import BlobBytes, BlobPut, GetBlob, GetHead, GetLast, Head, Hello, PutBlob, Turns, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.rounds import Plan

CROWDS = (1, 2, 4, 8, 16, 64)  # connections at once
MANY = 16
AHEAD = 64  # requests on their way at once on one connection
STARTS = 3  # servers, one after the other
IDLE = 2_000  # connections that say nothing
BLOB = 1 << 20  # bytes
DISK = 700  # bare commits a second of the disk that the rates are asked of; a slower one has to give as much less
_SPARE_FILES = 200


def run(plan: Plan) -> Iterator[Row]:
    """Measure appends, then reads and what a round trip costs at least, blobs, and what idle connections cost."""
    for part in (_append, _append_normal, _read, _blobs, _idle):
        with ExitStack() as stack:
            yield from part(plan, stack)
        plan.clear()


# --- appends ------------------------------------------------------------------------------------------------------


def _append(plan: Plan, _: ExitStack) -> Iterator[Row]:
    found = _appends(plan, "full", CROWDS)
    yield from _single_rows("append a turn of 10 KB, one connection, FULL", found, most=1.5)
    yield from _crowd_rows("append turns of 10 KB, FULL", found)


def _append_normal(plan: Plan, _: ExitStack) -> Iterator[Row]:
    found = _appends(plan, "normal", ())
    what = "append a turn of 10 KB, one connection, NORMAL"
    yield from _single_rows(what, found)
    yield alone(f"{what}: appends", _rate(found["wire"]), f"{_rate(found['raw'])} (bare apsw)", least=1_500)


def _appends(plan: Plan, synchronous: str, crowds: Sequence[int]) -> dict[str, list[Sequence[float]]]:
    """Measure some servers one after the other: two starts of one program differ by more than their rounds do."""
    found: dict[str, list[Sequence[float]]] = {}
    for _ in range(plan.size(STARTS, 1)):
        with ExitStack() as stack:
            tasks = _tasks(plan, stack, synchronous, crowds)
            for name, rounds in plan.take(tasks, rounds=2).items():
                found.setdefault(name, []).extend(rounds)
        plan.clear()
    return found


def _tasks(
    plan: Plan, stack: ExitStack, synchronous: str, sizes: Sequence[int]
) -> dict[str, Callable[[], Sequence[float]]]:
    """Give what runs in a round: ms of each append of those that append one by one, turns a second of a crowd."""
    served = stack.enter_context(Served(plan.place("served"), synchronous))
    singles = _singles(plan, stack, served, synchronous)
    crowds = {str(size): stack.enter_context(closing(Crowd(served.address, size))) for size in sizes}
    if crowds:
        crowds["ahead"] = stack.enter_context(closing(Crowd(served.address, 1, AHEAD)))
    count, many = plan.size(400, 40), plan.size(800, 100)
    tasks: dict[str, Callable[[], Sequence[float]]] = {}
    for name, times in singles.items():
        tasks[name] = lambda times=times: times(count)  # type: ignore[misc]
    for name, crowd in crowds.items():
        tasks[name] = lambda crowd=crowd: [crowd.rate(many)]  # type: ignore[misc]
    return tasks


def _singles(
    plan: Plan, stack: ExitStack, served: Served, synchronous: str
) -> dict[str, Callable[[int], Sequence[float]]]:
    """Give who appends one turn after the other, by name: each says how long its appends took, in ms."""
    raw = stack.enter_context(closing(RawTurns(plan.place("raw"), synchronous)))
    library = stack.enter_context(closing(EventqTurns(plan.place("library"), synchronous)))
    wire = stack.enter_context(closing(WireTurns(served.address)))
    context = stack.enter_context(eventq.connect(served.url)).contexts.create()
    payloads = Payloads(9)

    def client(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            payload = payloads.next()
            start = time.perf_counter()
            context.append(payload)
            taken.append((time.perf_counter() - start) * 1_000)
        return taken

    return {"raw": raw.times, "library": library.times, "wire": wire.times, "client": client}


def _share(rounds: Sequence[Sequence[float]], share: float = 0.5) -> Sample:
    return Sample([percentile(taken, share) for taken in rounds], "ms")


def _rate(rounds: Sequence[Sequence[float]]) -> Sample:
    """Give the appends a second of one who appends one turn after the other."""
    return Sample([len(taken) * 1_000 / sum(taken) for taken in rounds], "/s")


def _single_rows(what: str, found: dict[str, list[Sequence[float]]], *, most: float = 0) -> Iterator[Row]:
    wire, library, raw, client = (_share(found[name]) for name in ("wire", "library", "raw", "client"))
    yield versus(f"{what}, p50, against the library", wire, library, most=most, note=" (`context.append`)")
    yield versus(f"{what}, p50, against the same statements", wire, raw)
    yield versus(f"{what}, p50, through `eventq.connect`", client, library, note=" (`context.append`)")
    yield alone(f"{what}, p99", _share(found["wire"], 0.99), _share(found["raw"], 0.99))


def _crowd_rows(what: str, found: dict[str, list[Sequence[float]]]) -> Iterator[Row]:
    """Judge what many connections give; a rate is asked for of a disk that gives DISK bare commits a second."""
    raw = _rate(found["raw"])
    bare = f"{raw} (bare commits, one after the other)"
    scale = min(1, raw.median / DISK)
    names = [*map(str, CROWDS), "ahead"]
    rates = {name: Sample([taken[0] for taken in found[name]], "/s") for name in names}
    one, many = rates["1"], rates[str(MANY)]
    yield alone(f"{what}: one connection", one, bare, least=round(500 * scale))
    yield alone(f"{what}: {MANY} connections", many, bare, least=round(1_500 * scale))
    yield versus(f"{what}: {MANY} connections, against one", many, one, least=3, note=" (one connection)")
    for name, rate in rates.items():
        if name not in {"1", str(MANY)}:
            who = f"one connection with {AHEAD} on their way" if name == "ahead" else f"{name} connections"
            yield versus(f"{what}: {who}, against one", rate, one, note=" (one connection)")


# --- reads, and the least that a round trip costs -----------------------------------------------------------------


def _read(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    served = stack.enter_context(Served(plan.place("served"), "normal"))
    wire = stack.enter_context(closing(WireTurns(served.address)))
    library = stack.enter_context(closing(EventqTurns(plan.place("library"), "normal")))
    for store in (wire, library):
        store.push(100)
    line, context_id = wire.line, wire.context_id
    count = plan.size(100, 20)
    found = plan.take(
        {
            "head": p50(lambda: line.ask(GetHead(context_id), Head), 5 * count),
            "hello": p50(lambda: line.ask(Hello(), Welcome), 5 * count),
            "last": p50(lambda: line.ask(GetLast(context_id, 64, include_payload=True), Turns), count),
            "bare last": p50(lambda: line.ask(GetLast(context_id, 64, include_payload=False), Turns), count),
            "library": p50(library.context.last, count),
        }
    )
    taken = {name: Sample(values, "ms") for name, values in found.items()}
    yield alone(
        "GET_LAST of 64 turns with payloads of 10 KB, p50", taken["last"], f"{taken['library']} (the library)", most=2
    )
    yield alone("GET_LAST of 64 turns without payloads, p50", taken["bare last"])
    yield alone("GET_HEAD there and back, p50", taken["head"])
    yield alone("HELLO there and back, p50: no thread beside the loop is asked", taken["hello"])


# --- blobs --------------------------------------------------------------------------------------------------------


def _blobs(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    served = stack.enter_context(Served(plan.place("served"), "full"))
    line = stack.enter_context(closing(Line(served.address)))
    library = stack.enter_context(closing(EventqTurns(plan.place("library"), "full"))).thread.blobs
    count = plan.size(24, 4)

    def put(digest: bytes, data: bytes) -> None:
        line.ask(PutBlob(digest, data), BlobPut)

    def get(digest: bytes) -> object:
        return line.ask(GetBlob(digest), BlobBytes).data

    found = plan.take(
        {
            "wire": lambda: _there_and_back(put, get, count),
            "library": lambda: _there_and_back(lambda _, data: library.put(data), library.get, count),
        }
    )
    for number, what in enumerate(("PUT_BLOB", "GET_BLOB")):
        wire, local = (Sample([both[number] for both in found[name]], "MB/s") for name in ("wire", "library"))
        yield versus(f"{what} of 1 MiB of random bytes", wire, local, note=" (the library)")


def _there_and_back(
    put: Callable[[bytes, bytes], object], get: Callable[[bytes], object], count: int
) -> tuple[float, float]:
    """Store blobs that are new, then read them; give both in MB/s."""
    blobs = [(blake3(data).digest(), data) for data in (os.urandom(BLOB) for _ in range(count))]
    start = time.perf_counter()
    for digest, data in blobs:
        put(digest, data)
    between = time.perf_counter()
    found = [get(digest) for digest, _ in blobs]
    end = time.perf_counter()
    assert found == [data for _, data in blobs]
    return count * BLOB / 1e6 / (between - start), count * BLOB / 1e6 / (end - between)


# --- connections that say nothing ---------------------------------------------------------------------------------


def _idle(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    """Compare two servers, of which one has many connections open that have said hello and nothing since."""
    idle = plan.size(IDLE, 50)
    what = f"{idle:,} idle connections"
    servers = {name: stack.enter_context(Served(plan.place(name), "full")) for name in ("without", "with")}
    if not stack.enter_context(_files(idle + _SPARE_FILES)):
        yield Row(what, "not measurable here: too few open files are allowed")
        return
    singles = {name: stack.enter_context(closing(WireTurns(one.address))) for name, one in servers.items()}
    crowds = {name: stack.enter_context(closing(Crowd(one.address, MANY))) for name, one in servers.items()}
    for _ in range(idle):
        stack.enter_context(closing(Line(servers["with"].address)))
    count, many = plan.size(400, 40), plan.size(1_000, 100)
    tasks: dict[str, Callable[[], float]] = {}
    for name in servers:
        tasks[f"one {name}"] = lambda store=singles[name]: percentile(store.times(count), 0.5)  # type: ignore[misc]
        tasks[f"many {name}"] = lambda crowd=crowds[name]: crowd.rate(many)  # type: ignore[misc]
    found = plan.take(tasks)
    resident = {name: Sample([one.resident_mb()], "MB") for name, one in servers.items()}
    yield alone(
        f"{what}: resident size of the server after appends",
        resident["with"],
        f"{resident['without']} (without)",
        most=100,
    )
    one, one_without = (Sample(found[f"one {name}"], "ms") for name in ("with", "without"))
    yield versus(f"{what}: append a turn, one connection, FULL, p50", one, one_without, most=1.1, note=" (without)")
    crowd, crowd_without = (Sample(found[f"many {name}"], "/s") for name in ("with", "without"))
    yield versus(f"{what}: append turns, {MANY} connections, FULL", crowd, crowd_without, note=" (without)")


@contextmanager
def _files(count: int) -> Iterator[bool]:
    """Allow this process so many open files for as long; give False where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= count
    if enough and soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield enough
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
