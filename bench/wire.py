"""A thread that is served over the loopback interface, beside the library and bare apsw in the same rounds.

What is asked of a disk of some speed is measured on one that is slowed down to it.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

from blake3 import blake3

from bench.disk import slow_disk
from bench.report import Row, Sample, alone, percentile, versus
from bench.rounds import p50
from bench.served import FLOOR, Crowd, Line, Served, WireTurns, serve_slowed
from bench.turn_stores import EventqTurns, RawTurns
from eventq.wire.frames import (
    BlobBytes,
    BlobPut,
    GetBlob,
    GetHead,
    GetLast,
    Head,
    Hello,
    PutBlob,
    Turns,
    Welcome,
    encode_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.rounds import Plan

    Task = Callable[[], Sequence[float]]
    Tasks = dict[str, Task]

CROWDS = (1, 2, 4, 8, 16, 64)  # connections at once
MANY = 16
AHEAD = 64  # requests on their way at once on one connection
STARTS = 3  # servers, one after the other
IDLE = 2_000  # connections that say nothing
BLOB = 1 << 20  # bytes
GREEDY = 200  # connections that ask for long replies and read none
ASKED = 2_000  # of them, each
FLOOD = 40  # seconds: those that do not read are dropped after 30, and others have their memory
DISK = 700  # bare commits a second of the disk that the rates are asked of
SLOWER = 0.9  # of these: what gives less cannot be made into such a disk
_SPARE_FILES = 200


def run(plan: Plan) -> Iterator[Row]:
    """Measure appends, reads and what a round trip costs at least, blobs, idle connections, and those that never read."""
    for part in (_append, _append_normal, _append_slowed, _read, _blobs, _idle, _flood):
        with ExitStack() as stack:
            yield from part(plan, stack)
        plan.clear()


# --- appends --------------------------------------------------------------------------------------


def _append(plan: Plan, _: ExitStack) -> Iterator[Row]:
    found = _appends(plan, _full)
    what = "append a turn of 10 KB, one connection, FULL"
    yield from _single_rows(what, found, most=1.5)
    yield from _floor_rows(what, found)
    yield from _crowd_rows("append turns of 10 KB, FULL", found)


def _append_normal(plan: Plan, _: ExitStack) -> Iterator[Row]:
    found = _appends(plan, _normal)
    what = "append a turn of 10 KB, one connection, NORMAL"
    yield from _single_rows(what, found)
    yield alone(
        f"{what}: appends", _rate(found["wire"]), f"{_rate(found['raw'])} (bare apsw)", least=1_500
    )


def _append_slowed(plan: Plan, _: ExitStack) -> Iterator[Row]:
    yield from _slowed_rows(f"a disk of {DISK} commits/s, FULL", _appends(plan, _slowed))


def _appends(
    plan: Plan, make: Callable[[Plan, ExitStack], Tasks]
) -> dict[str, list[Sequence[float]]]:
    """Measure some servers one after the other: two starts of one program differ by more than their rounds do."""
    found: dict[str, list[Sequence[float]]] = {}
    for _ in range(plan.size(STARTS, 1)):
        with ExitStack() as stack:
            for name, rounds in plan.take(make(plan, stack), rounds=2).items():
                found.setdefault(name, []).extend(rounds)
        plan.clear()
    return found


# What runs in a round: it gives the ms of each append of one who appends one by one, or turns a
# second of a crowd.


def _full(plan: Plan, stack: ExitStack) -> Tasks:
    served = stack.enter_context(Served(plan.place("served"), "full"))
    floor = stack.enter_context(Served(plan.place("floor"), "full", FLOOR))
    count = plan.size(400, 40)
    tasks = _singles(plan, stack, served, "full", count)
    lone = stack.enter_context(closing(WireTurns(floor.address)))
    tasks["floor"] = lambda: lone.times(count)
    return tasks | _crowds(stack, served, CROWDS, plan.size(800, 100), AHEAD)


def _normal(plan: Plan, stack: ExitStack) -> Tasks:
    served = stack.enter_context(Served(plan.place("served"), "normal"))
    count = plan.size(400, 40)
    return _singles(plan, stack, served, "normal", count)


def _slowed(plan: Plan, stack: ExitStack) -> Tasks:
    """Return the same on the disk that rates are asked of, made of the one that there is."""
    disk = stack.enter_context(slow_disk())
    with closing(RawTurns(plan.place("bare"), "full")) as bare:
        disk.slow_to(DISK, bare, plan.size(80, 20))  # about as many as fill a WAL
    served = stack.enter_context(Served(plan.place("served"), "full", serve_slowed(disk.sync)))
    tasks = _singles(plan, stack, served, "full", plan.size(200, 20))
    return tasks | _crowds(stack, served, (1, MANY), plan.size(400, 50))


def _singles(plan: Plan, stack: ExitStack, served: Served, synchronous: str, count: int) -> Tasks:
    raw = stack.enter_context(closing(RawTurns(plan.place("raw"), synchronous)))
    library = stack.enter_context(closing(EventqTurns(plan.place("library"), synchronous)))
    wire = stack.enter_context(closing(WireTurns(served.address)))
    return {
        "raw": lambda: raw.times(count),
        "library": lambda: library.times(count),
        "wire": lambda: wire.times(count),
    }


def _crowds(
    stack: ExitStack, served: Served, sizes: Sequence[int], count: int, ahead: int = 0
) -> Tasks:
    crowds = {
        str(size): stack.enter_context(closing(Crowd(served.address, size))) for size in sizes
    }
    if ahead:
        crowds["ahead"] = stack.enter_context(closing(Crowd(served.address, 1, ahead)))
    tasks: Tasks = {}
    for name, crowd in crowds.items():
        tasks[name] = lambda crowd=crowd: [crowd.rate(count)]  # type: ignore[misc]
    return tasks


def _share(rounds: Sequence[Sequence[float]], share: float = 0.5) -> Sample:
    return Sample([percentile(taken, share) for taken in rounds], "ms")


def _rate(rounds: Sequence[Sequence[float]]) -> Sample:
    """Return the appends a second of one who appends one turn after the other."""
    return Sample([len(taken) * 1_000 / sum(taken) for taken in rounds], "/s")


def _crowd(rounds: Sequence[Sequence[float]]) -> Sample:
    return Sample([rate for (rate,) in rounds], "/s")


def _single_rows(
    what: str, found: dict[str, list[Sequence[float]]], *, most: float = 0
) -> Iterator[Row]:
    wire, library, raw = (_share(found[name]) for name in ("wire", "library", "raw"))
    yield versus(
        f"{what}, p50, against the library", wire, library, most=most, note=" (`context.append`)"
    )
    yield versus(f"{what}, p50, against the same statements", wire, raw)
    yield alone(f"{what}, p99", _share(found["wire"], 0.99), _share(found["raw"], 0.99))


def _floor_rows(what: str, found: dict[str, list[Sequence[float]]]) -> Iterator[Row]:
    """Show what a round trip to another process costs at least, beside the target for ours."""
    wire, library, floor = (_share(found[name]) for name in ("wire", "library", "floor"))
    least = "a server of one thread and one connection"
    yield versus(f"{what}, p50, against {least}", wire, floor, note=" (the floor)")
    yield versus(
        f"{what}, p50, {least} against the library", floor, library, note=" (`context.append`)"
    )


def _crowd_rows(what: str, found: dict[str, list[Sequence[float]]]) -> Iterator[Row]:
    one = _crowd(found["1"])
    yield alone(
        f"{what}: one connection", one, f"{_rate(found['raw'])} (bare commits, one after the other)"
    )
    for name in (*map(str, CROWDS[1:]), "ahead"):
        who = (
            f"one connection with {AHEAD} on their way"
            if name == "ahead"
            else f"{name} connections"
        )
        yield versus(
            f"{what}: {who}, against one", _crowd(found[name]), one, note=" (one connection)"
        )


def _slowed_rows(what: str, found: dict[str, list[Sequence[float]]]) -> Iterator[Row]:
    """Judge what is asked of a disk that gives DISK bare commits a second; a slower one has to give as much less."""
    raw = _rate(found["raw"])
    bare = f"{raw} (bare commits, one after the other)"
    scale = raw.median / DISK if raw.median < SLOWER * DISK else 1
    one, many = _crowd(found["1"]), _crowd(found[str(MANY)])
    yield alone(f"{what}: bare commits, one after the other", raw)
    yield versus(
        f"{what}: append a turn of 10 KB, one connection, p50, against the library",
        _share(found["wire"]), _share(found["library"]), most=1.5, note=" (`context.append`)",
    )  # fmt: skip
    yield alone(
        f"{what}: append turns of 10 KB, one connection", one, bare, least=round(500 * scale)
    )
    yield alone(
        f"{what}: append turns of 10 KB, {MANY} connections", many, bare, least=round(1_500 * scale)
    )
    yield versus(
        f"{what}: append turns of 10 KB, {MANY} connections, against one",
        many,
        one,
        least=3,
        note=" (one connection)",
    )


# --- reads, and the least that a round trip costs -------------------------------------------------


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
            "last": p50(
                lambda: line.ask(GetLast(context_id, 64, include_payload=True), Turns), count
            ),
            "bare last": p50(
                lambda: line.ask(GetLast(context_id, 64, include_payload=False), Turns), count
            ),
            "library": p50(library.context.last, count),
        }
    )
    taken = {name: Sample(values, "ms") for name, values in found.items()}
    yield alone(
        "GET_LAST of 64 turns with payloads of 10 KB, p50",
        taken["last"],
        f"{taken['library']} (the library)",
        most=2,
    )
    yield alone("GET_LAST of 64 turns without payloads, p50", taken["bare last"])
    yield alone("GET_HEAD there and back, p50", taken["head"])
    yield alone("HELLO there and back, p50: no thread beside the loop is asked", taken["hello"])


# --- blobs ----------------------------------------------------------------------------------------


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
            "library": lambda: _there_and_back(
                lambda _, data: library.put(data), library.get, count
            ),
        }
    )
    for number, what in enumerate(("PUT_BLOB", "GET_BLOB")):
        wire, local = (
            Sample([both[number] for both in found[name]], "MB/s") for name in ("wire", "library")
        )
        yield versus(f"{what} of 1 MiB of random bytes", wire, local, note=" (the library)")


def _there_and_back(
    put: Callable[[bytes, bytes], object], get: Callable[[bytes], object], count: int
) -> tuple[float, float]:
    """Database blobs that are new, then read them; give both in MB/s."""
    blobs = [(blake3(data).digest(), data) for data in (os.urandom(BLOB) for _ in range(count))]
    start = time.perf_counter()
    for digest, data in blobs:
        put(digest, data)
    between = time.perf_counter()
    found = [get(digest) for digest, _ in blobs]
    end = time.perf_counter()
    assert found == [data for _, data in blobs]
    return count * BLOB / 1e6 / (between - start), count * BLOB / 1e6 / (end - between)


# --- connections that say nothing -----------------------------------------------------------------


def _idle(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    """Compare two servers, of which one has many connections open that have said hello and nothing since."""
    idle = plan.size(IDLE, 50)
    what = f"{idle:,} idle connections"
    servers = {
        name: stack.enter_context(Served(plan.place(name), "full")) for name in ("without", "with")
    }
    if not stack.enter_context(_files(idle + _SPARE_FILES)):
        yield Row(what, "not measurable here: too few open files are allowed")
        return
    singles = {
        name: stack.enter_context(closing(WireTurns(one.address))) for name, one in servers.items()
    }
    crowds = {
        name: stack.enter_context(closing(Crowd(one.address, MANY)))
        for name, one in servers.items()
    }
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
    yield versus(
        f"{what}: append a turn, one connection, FULL, p50",
        one,
        one_without,
        most=1.1,
        note=" (without)",
    )
    crowd, crowd_without = (Sample(found[f"many {name}"], "/s") for name in ("with", "without"))
    yield versus(
        f"{what}: append turns, {MANY} connections, FULL", crowd, crowd_without, note=" (without)"
    )


# --- connections that ask, and do not read --------------------------------------------------------


def _flood(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    """Ask for a head again and again while others have asked for much and read nothing."""
    greedy = plan.size(GREEDY, 20)
    served = stack.enter_context(Served(plan.place("served"), "normal"))
    wire = stack.enter_context(closing(WireTurns(served.address)))
    for _ in range(64):
        wire.append(os.urandom(1 << 16))
    if not stack.enter_context(_files(greedy + _SPARE_FILES)):
        yield Row(
            f"{greedy} greedy connections", "not measurable here: too few open files are allowed"
        )
        return
    before, _ = _heads(wire, served, plan.size(3, 1))
    lines = [stack.enter_context(closing(Line(served.address))) for _ in range(greedy)]
    asked = b"".join(
        encode_request(GetLast(wire.context_id, 64, include_payload=True), number)
        for number in range(ASKED)
    )
    for line in lines:
        line.socket.setblocking(False)
        with suppress(BlockingIOError):
            line.socket.send(asked)
    during, resident = _heads(wire, served, plan.size(FLOOD, 2))
    what = f"GET_HEAD beside {greedy} connections that ask {ASKED} times for 4 MiB and read nothing"
    for share in (0.5, 0.99, 1):
        alone_ms, beside_ms = (
            Sample([percentile(taken, share)], "ms") for taken in (before, during)
        )
        name = "max" if share == 1 else f"p{share * 100:.0f}"
        yield alone(
            f"{what}, {name}", beside_ms, f"{alone_ms} (without)", most=10 if share == 0.5 else 0
        )
    yield alone(f"{what}: largest resident size of the server", Sample([resident], "MB"), most=400)


def _heads(wire: WireTurns, served: Served, seconds: float) -> tuple[list[float], float]:
    """Ask for a head every few ms; give how many ms each took, and the largest size of the server meanwhile."""
    taken, largest = [], 0.0
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        wire.line.ask(GetHead(wire.context_id), Head)
        taken.append((time.perf_counter() - start) * 1_000)
        if len(taken) % 100 == 1:
            largest = max(largest, served.resident_mb())
        time.sleep(0.005)
    return taken, largest


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
