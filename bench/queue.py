"""The work queue: claims and settles, many workers, `consume`, and from a push to its handler."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import apsw

import eventq
from bench.concurrent import race
from bench.contestants import KIND, PAGE, PAYLOAD, SOURCE, STAMP, Eventq, Raw, enter
from bench.machine import PYTHON
from bench.peers import PEERS, installed
from bench.report import Row, Sample, alone, percentile, versus
from bench.rounds import rate
from eventq.store.queue_rules import Queue
from eventq.store.sqlite import queues
from eventq.store.sqlite.connecting import Busy, configure
from eventq.store.sqlite.consumers import SET_ACKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contestants import Contestant
    from bench.rounds import Plan

PROCESSES = 8
_PATIENCE = 60.0  # seconds until an event must have been handled
_LEASE_MS = 30_000
_NEXT = """SELECT id, created_at, source, type, subtype, content FROM events NOT INDEXED
WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"""
_THREADS = 100


class Claims(Eventq):
    """eventq with a pull consumer."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the thread; subscribe when it is new."""
        super().__init__(directory, synchronous, "none")
        self.thread.subscribe("pool")

    def consume(self, count: int) -> None:
        for _ in range(count // PAGE):
            self.thread.settle(self.thread.claim("pool", PAGE))

    def push(self, count: int) -> None:
        """Claim one and settle one: what a worker process is told to do."""
        for _ in range(count):
            for claim in self.thread.claim("pool"):
                claim.done()


class RawClaims(Raw):
    """Bare apsw with the statements of a claim and a settle, on a thread that eventq made."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the store; make it when there is none."""
        if not os.path.exists(directory):
            with eventq.open(directory, create=True) as thread:
                thread.subscribe("pool")
        self.connection = apsw.Connection(os.path.join(directory, "events.db"))
        self.connection.set_busy_handler(Busy())
        configure(self.connection)
        self.connection.pragma("synchronous", synchronous)
        self._cursor = self.connection.cursor()

    def _claim(self, limit: int) -> list[int]:
        run = self.connection.execute
        run(queues.READ, ("pool",)).fetchall()
        run("BEGIN IMMEDIATE")
        queue = Queue._make(run(queues.READ, ("pool",)).fetchall()[0])
        number = queue.number or run(queues.BEGIN, ("pool", 0)).fetchall()[0][0]
        rows = run(_NEXT, (queue.frontier, queue.last, limit)).fetchall()
        ids = [int(str(row[0])) for row in rows]
        now = int(time.time() * 1000)
        lease = (now + _LEASE_MS, _LEASE_MS, now, b"x" * 16, "host:1", None)
        run(queues.ADD, (number, _list(ids), *lease))
        upto = ids[-1] if ids else queue.frontier
        row = (number, upto, queue.unfinished + len(ids), lease[0], now, None, 0, queue.acked)
        run(queues.STORE, row).fetchall()
        run("COMMIT")
        return ids

    def _settle(self, ids: list[int]) -> None:
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        queue = Queue._make(run(queues.READ, ("pool",)).fetchall()[0])
        now = int(time.time() * 1000)
        run(queues.DONE, (queue.number, now, 0, b"x" * 16, _list(ids))).fetchall()
        run(queues.COUNT, (queue.number, now // 60_000, len(ids), 0, 0))
        left = queue.unfinished - len(ids)
        row = (queue.number, queue.frontier, left, None, now, None, now // 60_000, queue.acked)
        ((acked,),) = run(queues.STORE, row).fetchall()
        run(SET_ACKED, ("pool", acked, STAMP))
        run("COMMIT")

    def consume(self, count: int) -> None:
        for _ in range(count // PAGE):
            self._settle(self._claim(PAGE))

    def push(self, count: int) -> None:
        """Claim one and settle one; the second commit is relaxed, as eventq's is."""
        for _ in range(count):
            if ids := self._claim(1):
                self.connection.pragma("synchronous", 1)
                self._settle(ids)
                self.connection.pragma("synchronous", 2)


def _list(ids: list[int]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


QUEUES: dict[str, type[Claims | RawClaims]] = {"claims": Claims, "rawclaims": RawClaims}


def run(plan: Plan) -> Iterator[Row]:
    """Measure in one process, then in many, then how soon handlers start."""
    yield from _in_one(plan)
    yield from _in_many(plan)
    yield from _loops(plan)
    yield from _bell(plan)
    yield from _soon(plan)
    yield from _under_work(plan)
    yield from _idle(plan)


def _in_one(plan: Plan) -> Iterator[Row]:
    faults = installed(plan.place)
    stores: dict[str, Contestant] = {
        "raw": RawClaims(plan.place("raw"), "normal"),
        "eventq": Claims(plan.place("eventq"), "normal"),
    }
    for name, fault in faults.items():
        if not fault:
            stores[name] = PEERS[name](plan.place(name), "normal")
    counts = {
        name: plan.size(20_000, 2_000) if name in ("raw", "eventq") else plan.size(1_000, 200)
        for name in stores
    }
    for name, store in stores.items():
        if name in ("raw", "eventq"):
            store.push_batches(counts[name] * (plan.rounds + 1) // 1_000 + 1)
        else:
            store.fill(counts[name] * (plan.rounds + 1))
    found = plan.take({name: rate(store.consume, counts[name]) for name, store in stores.items()})
    what = "claim of 100 and settle, events a second, NORMAL"
    samples = {name: Sample(values, "/s") for name, values in found.items()}
    yield alone(f"{what}: eventq", samples["eventq"], samples["raw"], least=150_000)
    peers = [name for name in samples if name in faults]
    for name in peers:
        yield versus(f"{what}: {name}, one by one", samples[name], samples["raw"])
    if peers:
        best = max(peers, key=lambda name: samples[name].median)
        text = f"{what}: eventq against the fastest peer"
        yield versus(text, samples["eventq"], samples[best], least=1, note=f" ({best})")
    for name, fault in faults.items():
        if fault:
            yield Row(f"{what}: {name}", fault)
    for store in stores.values():
        store.close()
    plan.clear()


def _in_many(plan: Plan) -> Iterator[Row]:
    """Eight worker processes on one consumer, each claims one and settles one."""
    seconds = plan.size(25, 10) / 10
    places = {name: plan.place(name) for name in ("rawclaims", "claims")}
    for name, directory in places.items():
        store = enter(name, directory, "full")
        store.push_batches(plan.size(200, 40))
        store.close()
    races = plan.take(
        {
            name: (lambda name=name, place=place: race(name, place, seconds, PROCESSES))  # type: ignore[misc]
            for name, place in places.items()
        }
    )
    mine, raw = (
        Sample([one.rate for one in races[name]], "/s") for name in ("claims", "rawclaims")
    )
    what = f"{PROCESSES} processes claim one and settle one, FULL"
    yield versus(what, mine, raw, least=0.8)
    shares = Sample([one.share * 100 for one in races["claims"]], "%")
    limit = Sample([one.share * 100 for one in races["rawclaims"]], "%")
    yield alone(f"{what}, the slowest process's share", shares, limit, least=70)
    plan.clear()


def _loops(plan: Plan) -> Iterator[Row]:
    """`thread.consume` with an ack for each event, and one for a hundred."""
    count = plan.size(20_000, 2_000)
    store = Eventq(plan.place("loop"), "normal", "none")
    store.push_batches(count * (plan.rounds + 1) // 1_000)

    def take(consumer: str, ack_every: int) -> Callable[[int], object]:
        def call(wanted: int) -> None:
            for number, _ in enumerate(
                store.thread.consume(consumer, ack_every=ack_every, idle=0), 1
            ):
                if number == wanted:
                    break

        return call

    tasks = {str(every): rate(take(f"c{every}", every), count) for every in (1, 100)}
    found = plan.take(tasks)
    for every, least in ((1, 50_000), (100, 500_000)):
        yield alone(
            f"`consume` with an ack every {every}, events a second, NORMAL",
            Sample(found[str(every)], "/s"),
            least=least,
        )
    store.close()
    plan.clear()


def _soon(plan: Plan) -> Iterator[Row]:
    """From a push to the first instruction of a handler, and to a worker's function."""
    with _Handled(plan.place("soon")) as handled:
        found = plan.take({"each": handled.once}, rounds=plan.size(40, 6))
    yield alone(
        "push to the handler of its event (--each), no worker running, p50",
        Sample(found["each"], "ms"),
        most=45,
    )
    yield from _function(plan)


class _Handled:
    """A thread whose handler writes to a pipe, which tells when its first instruction ran."""

    def __init__(self, path: str) -> None:
        """Subscribe, and let pushes start handlers until the end."""
        self._thread = eventq.open(path, create=True)
        pipe = os.path.join(path, "pipe")
        os.mkfifo(pipe)
        self._pipe = os.open(pipe, os.O_RDWR)
        self._thread.subscribe("each", f"echo >> {shlex.quote(pipe)}", each=True)

    def __enter__(self) -> _Handled:
        os.environ["EVENTQ_NOTIFIER"] = "builtin"
        return self

    def __exit__(self, *_: object) -> None:
        os.environ["EVENTQ_NOTIFIER"] = "none"
        os.close(self._pipe)
        self._thread.close()

    def once(self) -> float:
        """Push one event and return the ms to its handler, once nobody is left running."""
        wanted = self._thread.last_id() + 1
        start = time.perf_counter()
        self._thread.push(SOURCE, KIND, PAYLOAD)
        if not select.select([self._pipe], [], [], _PATIENCE)[0]:
            raise RuntimeError("the handler was not run")
        taken = (time.perf_counter() - start) * 1e3
        os.read(self._pipe, 100)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            (consumer,) = self._thread.status().consumers
            if consumer.last_acked_id == wanted and not consumer.running:
                return taken
            time.sleep(0.01)
        raise RuntimeError("the handler was not run")


def _bell(plan: Plan) -> Iterator[Row]:
    """What the bell costs a push: in memory, where a push is shortest."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        stores = {
            name: Eventq(os.path.join(folder, name), "normal", "none") for name in ("bell", "none")
        }
        stores["none"].thread.database.ring = lambda: None  # type: ignore[method-assign]
        count = plan.size(5_000, 500)
        found = plan.take({name: rate(one.push, count) for name, one in stores.items()})
        for one in stores.values():
            one.close()
        touched = os.path.join(folder, "touched")
        with open(touched, "wb"):
            times = [_timed(lambda: os.utime(touched)) for _ in range(1_000)]
    finally:
        shutil.rmtree(folder)
    what = "pushes a second with the bell, NORMAL, in memory, against without"
    samples = {name: Sample(values, "/s") for name, values in found.items()}
    yield versus(what, samples["bell"], samples["none"], least=0.85)
    pairs = zip(found["bell"], found["none"], strict=True)
    cost = Sample([1e6 / one - 1e6 / other for one, other in pairs], "µs")
    touch = Sample([percentile(times, 0.5) * 1e6], "µs")
    yield alone("what the bell adds to a push, against one utime", cost, touch)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _worker(*words: str) -> subprocess.Popen[str]:
    """Start `eventq work`, and wait until it works for its first consumer."""
    command = [PYTHON, "-m", "eventq", "work", *words]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    while "works for consumer" not in worker.stderr.readline():
        pass
    return worker


def _under_work(plan: Plan) -> Iterator[Row]:
    """From a push to the first instruction of a handler that a worker starts."""
    path = plan.place("working")
    with _Handled(path) as handled:
        worker = _worker("--thread", path)
        try:
            found = plan.take({"each": handled.once}, rounds=plan.size(40, 6))
        finally:
            worker.terminate()
            worker.communicate()
    what = "push to the handler of its event (--each), under `eventq work`, p50"
    yield alone(what, Sample(found["each"], "ms"), most=15)
    plan.clear()


def _idle(plan: Plan) -> Iterator[Row]:
    """What `eventq work` takes while nothing happens in its threads."""
    folder = plan.place("idle")
    for number in range(_THREADS):
        with eventq.open(os.path.join(folder, f"t{number}"), create=True) as thread:
            thread.subscribe("each", "true", each=True)
    worker = _worker("--all", folder)
    assert worker.stderr is not None
    for _ in range(_THREADS - 1):
        worker.stderr.readline()
    try:
        time.sleep(1)
        used, since = _used(worker.pid), time.monotonic()
        time.sleep(plan.size(60, 5))
        share = (_used(worker.pid) - used) / (time.monotonic() - since) * 100
        with open(f"/proc/{worker.pid}/status", encoding="ascii") as file:
            (line,) = (line for line in file if line.startswith("VmRSS"))
    finally:
        worker.terminate()
        worker.communicate()
    what = f"an idle `eventq work` over {_THREADS} threads"
    yield alone(f"{what}, share of a core", Sample([share], "%"), most=0.3)
    yield alone(f"{what}, memory", Sample([int(line.split()[1]) / 1024], "MB"), most=60)
    plan.clear()


def _used(pid: int) -> float:
    """Return the processor seconds of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_WORKER = """
import sys, time, eventq
worker = eventq.Worker(sys.argv[1])
@worker.consumer("function")
def note(event):
    print(time.time_ns() - int(event.content), flush=True)
worker.run()
"""


def _function(plan: Plan) -> Iterator[Row]:
    count = plan.size(300, 60)
    path = plan.place("function")
    with eventq.open(path, create=True) as thread:
        worker = subprocess.Popen([PYTHON, "-c", _WORKER, path], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None

        def one() -> float:
            thread.push(SOURCE, KIND, str(time.time_ns()))
            assert worker.stdout is not None
            taken = int(worker.stdout.readline()) / 1e6
            time.sleep(0.002)  # the worker waits again
            return taken

        try:
            one()
            found = plan.take({"function": lambda: percentile([one() for _ in range(count)], 0.5)})
        finally:
            worker.terminate()
            worker.wait()
    yield alone(
        "push to the function of a Python worker, FULL, p50",
        Sample(found["function"], "ms"),
        most=3,
    )
