"""The memory in PostgreSQL: appends and steps beside bare commits of the same rows, reads, long files.

The server is that of `bench.postgres`. A link of 1 ms each way is a proxy in a process of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import eventq
from bench.concurrent import race
from bench.machine import eventq as command
from bench.machine import watch_process
from bench.output import MB, chain, log_text
from bench.postgres import Server, started
from bench.report import Row, Sample, alone, versus
from bench.rounds import p50
from bench.turn_stores import EventqTurns, Payloads, TurnStore
from eventq.records.run import NewStep
from eventq.store.rules import link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan
    from eventq import Context

PROCESSES = 16
DELAY = 0.001  # seconds, each way
THREADS = 200  # others in the same tables, of `SHORT` turns each
SHORT = 1_000
_NOW = 1_767_323_045_678
_KEY = "bucket, thread_id"
# One statement that stores what an append does, with ids that were given.
_APPEND = f"""
WITH b AS (
    INSERT INTO eventq.blobs ({_KEY}, blob_id, hash, raw_len, stored_len, codec, touched_at_ms)
    VALUES (0, %(t)s, %(id)s, %(hash)s, 10240, %(size)s, 1, {_NOW})
), y AS (
    INSERT INTO eventq.blob_bytes ({_KEY}, blob_id, bytes)
    VALUES (0, %(t)s, %(id)s, %(stored)s)
), t AS (
    INSERT INTO eventq.turns ({_KEY}, turn_id, parent_id, depth, jump_id, jump_depth, type_id,
        type_version, encoding, blob_id, created_at_ms)
    VALUES (0, %(t)s, %(id)s, %(above)s, %(depth)s, %(above)s, %(jump)s, 'message', 1, 0, %(id)s,
        {_NOW})
), c AS (
    UPDATE eventq.contexts
    SET head_id = %(id)s, version = %(id)s, updated_at_ms = {_NOW}
    WHERE bucket = 0 AND thread_id = %(t)s AND context_id = 1
), n AS (
    UPDATE eventq.counters
    SET last_ids = %(ids)s
    WHERE bucket = 0 AND thread_id = %(t)s
)
INSERT INTO eventq.context_log ({_KEY}, context_id, version, op, old_id, new_id, at_ms)
VALUES (0, %(t)s, 1, %(id)s, 'append', %(above)s, %(id)s, {_NOW})
"""
_LOCK = "SELECT last_ids FROM eventq.counters WHERE bucket = 0 AND thread_id = %s FOR NO KEY UPDATE"
_TABLES = """
SELECT oid::regclass::text
FROM pg_class
WHERE relnamespace = 'eventq'::regnamespace AND relkind = 'r'
"""
_PROXY = """
import asyncio, sys
async def pipe(reader, writer):
    while data := await reader.read(1 << 20):
        asyncio.get_running_loop().call_later({delay}, writer.write, data)
    asyncio.get_running_loop().call_later({delay}, writer.close)
async def serve(reader, writer):
    inward, outward = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(pipe(reader, outward), pipe(inward, writer))
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class BareTurns(TurnStore):
    """The rows of an append in one statement, whose ids are known: a bare commit."""

    def __init__(self, url: str, _: str = "") -> None:
        """Connect, and take a number that no thread has."""
        super().__init__()
        import psycopg
        import zstandard

        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self.thread = random.SystemRandom().getrandbits(40)
        values = (self.thread,)
        self.connection.execute(
            f"INSERT INTO eventq.contexts ({_KEY}, context_id, created_at_ms, updated_at_ms)"
            " VALUES (0, %s, 1, 0, 0)",
            values,
        )
        self.connection.execute(f"INSERT INTO eventq.counters ({_KEY}) VALUES (0, %s)", values)
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self._last = 0

    def append(self, payload: bytes) -> None:
        from blake3 import blake3

        stored = self._compress(payload)
        above, self._last = self._last, self._last + 1
        self.connection.execute(
            _APPEND,
            {
                "t": self.thread, "id": self._last, "above": above or None, "depth": above,
                "jump": above - 1 if above else None, "hash": blake3(payload).digest(),
                "size": len(stored), "stored": stored, "ids": json.dumps({"turns": self._last}),
            },
            binary=True,
        )  # fmt: skip

    def close(self) -> None:
        self.connection.close()


class LockedTurns(BareTurns):
    """The same rows by processes that share a thread: under its lock, with the ids that it has."""

    def __init__(self, url: str, _: str = "") -> None:
        """Connect; `url` names the number of the thread behind a `#`."""
        place, _, number = url.partition("#")
        super().__init__(place)
        self.thread = int(number)

    def append(self, payload: bytes) -> None:
        with self.connection.transaction():
            ((ids,),) = self.connection.execute(_LOCK, (self.thread,)).fetchall()
            self._last = json.loads(ids or '{"turns": 0}')["turns"]
            super().append(payload)


STORES: dict[str, type[TurnStore]] = {"locked-turns": LockedTurns}


def run(plan: Plan) -> Iterator[Row]:
    """Measure on a server of its own."""
    with started() as server:
        with server.connect() as connection:
            for (table,) in connection.execute(_TABLES).fetchall():
                connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield from _writes(plan, server, server.url, "", (2.5, 4))
        with _far(server) as url:
            yield from _writes(
                plan, server, url, f", a link of {DELAY * 1e3:g} ms each way", (3, 5)
            )
        yield from _together(plan, server)
        yield from _reads(plan, server)
        yield from _files(plan, server)


@contextmanager
def _far(server: Server) -> Iterator[str]:
    """Give the URL of the server behind a link that takes its time."""
    folder = server.url.partition("host=")[2]
    words = [sys.executable, "-c", _PROXY.format(delay=DELAY), f"{folder}/.s.PGSQL.5432"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        port = proxy.stdout.readline().strip()
        user = server.url.partition("?")[0].replace("@/", f"@127.0.0.1:{port}/")
        try:
            yield f"{user}?sslmode=disable&gssencmode=disable"
        finally:
            proxy.kill()


def _writes(
    plan: Plan, server: Server, url: str, where: str, most: tuple[float, float]
) -> Iterator[Row]:
    """An append, and a step of a run, beside a bare commit of an append's rows."""
    name = uuid4().hex
    eventq.init(f"{server.url}&thread={name}")
    turns, bare = EventqTurns(f"{url}&thread={name}", "full"), BareTurns(url)
    payloads = Payloads(3)
    run = turns.thread.runs.start("plan", "do it", system={"coder": "x"})

    def step() -> None:
        run.step(NewStep("coder", {"x": 1}, payloads.next().decode(errors="replace")))

    count, tasks = (
        plan.size(200, 30),
        {"append": lambda: turns.append(payloads.next()), "step": step},
    )
    found = plan.take({
        **{what: p50(task, count) for what, task in tasks.items()},
        "bare": p50(lambda: bare.append(payloads.next()), count),
    })  # fmt: skip
    raw = Sample(found["bare"], "ms")
    for what, task, limit in zip(tasks, tasks.values(), most, strict=True):
        mine, name = Sample(found[what], "ms"), f"{what} of 10 KB"
        yield versus(f"{name}, p50{where}", mine, raw, most=limit, note=" (one commit)")
        if where:
            database: Any = turns.thread.database
            before = database.link.trips
            task()
            trips = Sample([database.link.trips - before], "trips")
            yield alone(f"{name}, round trips", trips, most=3 if what == "append" else 5)
    turns.close()
    bare.close()


def _together(plan: Plan, server: Server) -> Iterator[Row]:
    """Many processes append to contexts of one thread."""
    seconds = plan.size(4, 1)
    shared = server.fresh()
    bare = BareTurns(server.url)
    places = {"eventq-turns": shared, "locked-turns": f"{server.url}#{bare.thread}"}
    found = plan.take({
        name: partial(race, name, place, seconds, PROCESSES) for name, place in places.items()
    })  # fmt: skip
    bare.close()
    mine, raw = (Sample([one.rate for one in found[name]], "/s") for name in places)
    what = f"{PROCESSES} processes append to contexts of one thread"
    yield versus(what, mine, raw, least=0.6, note=" (the same rows, under the same lock)")


def _reads(plan: Plan, server: Server) -> Iterator[Row]:
    """The last turns, and some from the middle, of a long chain among other threads."""
    size = plan.size(1_000_000, 20_000)
    with eventq.open(server.fresh()) as thread:
        contexts = {length: _grown(server, thread, length) for length in (SHORT, size)}
        _others(server)
        for statistics in ("never analysed", "analysed"):
            if statistics == "analysed":
                with server.connect() as connection:
                    connection.execute("ANALYZE")
            with eventq.open(thread.path) as reader:
                yield from _pages(plan, reader, contexts, statistics)


def _pages(
    plan: Plan, reader: eventq.Thread, contexts: dict[int, int], statistics: str
) -> Iterator[Row]:
    chance = random.Random(2)
    tasks: dict[str, Callable[[], float]] = {}
    for length, number in contexts.items():
        context = reader.contexts.get(number)
        tasks[f"last {length}"] = p50(lambda context=context: context.last(64), 50)  # type: ignore[misc]
        tasks[f"middle {length}"] = p50(partial(_middle, context, length, chance), 50)
    found = plan.take(tasks)
    small, large = contexts
    last = Sample(found[f"last {large}"], "ms")
    yield alone(f"the last 64 of {large:,} turns, p50, {statistics}", last, most=3)
    yield versus(
        f"64 turns from the middle of {large:,}, p50, {statistics}",
        Sample(found[f"middle {large}"], "ms"),
        Sample(found[f"middle {small}"], "ms"),
        most=2,
        note=f" (of {small:,})",
    )


def _middle(context: Context, length: int, chance: random.Random) -> None:
    context.range(length // 2 + chance.randrange(-200, 200))


def _grown(server: Server, thread: eventq.Thread, length: int) -> int:
    """Make a context whose turns share 64 payloads; return its id."""
    context = thread.contexts.create()
    payloads = Payloads(length)
    turns = [context.append(payloads.next()) for _ in range(64)]
    with server.connect() as connection:
        sql = """
            SELECT bucket, thread_id, turn_id, depth, jump_depth, jump_id
            FROM eventq.turns
            WHERE turn_id = %s AND (bucket, thread_id) IN (
                SELECT bucket, thread_id FROM eventq.threads WHERE name = %s
            )
        """
        name = thread.path.rpartition("thread=")[2]
        ((bucket, number, *_),) = connection.execute(sql, (turns[-1].turn_id, name)).fetchall()
        _extend(connection, bucket, number, context.id, length)
    return context.id


def _extend(connection: Any, bucket: int, thread: int, context: int, length: int) -> None:
    """Let a chain go on to a length, by a COPY of its turns."""
    where = "bucket = %s AND thread_id = %s"
    rows = connection.execute(
        f"""
        SELECT turn_id, depth, jump_id, jump_depth, blob_id
        FROM eventq.turns
        WHERE {where} AND turn_id >= (SELECT max(turn_id) - 63 FROM eventq.turns WHERE {where})
        ORDER BY turn_id
        """,
        (bucket, thread) * 2,
    ).fetchall()
    blobs = itertools.cycle(row[4] for row in rows)
    spots = {row[0]: row[1:4] for row in rows}
    last, columns = rows[-1][0], "turn_id, parent_id, depth, jump_id, jump_depth, type_id"
    sql = f"COPY eventq.turns ({_KEY}, {columns}, type_version, encoding, blob_id, created_at_ms)"
    connection.execute("SET session_replication_role = replica")
    with connection.cursor() as cursor, cursor.copy(f"{sql} FROM STDIN") as made:
        for turn in range(last + 1, last + 1 + length - len(rows)):
            depth, jump, jump_depth = spots[turn - 1]
            far = spots.get(jump, (0, None, 0)) if jump else (None, None, None)
            spot = link(turn - 1, (depth, jump_depth, *far[1:]))
            spots[turn] = spot
            made.write_row(
                (bucket, thread, turn, turn - 1, *spot, "message", 1, 0, next(blobs), _NOW)
            )
    last += length - len(rows)
    connection.execute(
        f"UPDATE eventq.contexts SET head_id = %s WHERE {where} AND context_id = %s",
        (last, bucket, thread, context),
    )
    ids = "jsonb_set(last_ids::jsonb, '{turns}', to_jsonb(%s))::text"
    connection.execute(
        f"UPDATE eventq.counters SET last_ids = {ids} WHERE {where}", (last, bucket, thread)
    )


def _others(server: Server) -> None:
    """Let other threads have turns in the same tables."""
    with server.connect() as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            f"""
            INSERT INTO eventq.turns ({_KEY}, turn_id, parent_id, depth, jump_id, jump_depth,
                type_id, type_version, encoding, blob_id, created_at_ms)
            SELECT 0, t, n, n - 1, n, n - 1, n - 1, 'message', 1, 0, n, 0
            FROM generate_series(1, {THREADS}) t, generate_series(2, {SHORT}) n
            """
        )
        connection.execute(
            f"""
            INSERT INTO eventq.blobs ({_KEY}, blob_id, hash, raw_len, stored_len, codec,
                touched_at_ms)
            SELECT 0, t, n, sha256(n::text::bytea), 1, 1, 0, 0
            FROM generate_series(1, {THREADS}) t, generate_series(2, {SHORT}) n
            """
        )


def _files(plan: Plan, server: Server) -> Iterator[Row]:
    """A capture of a long output, and the import of a long session, with their memory."""
    part = log_text(plan.size(64 << 20, 1 << 20))
    path = plan.place("log")
    with open(path, "wb") as file:
        file.writelines([part] * 16)
    session = plan.place("session.jsonl")
    with open(session, "wb") as file:
        file.writelines(chain(plan.size(100 * MB, 2 * MB)))
    for what, place, least, words in (
        ("`eventq capture` of", path, 60, ("capture", "--", "cat", path)),
        ("`eventq session import` of", session, 40, ("session", "import", session)),
    ):
        size = os.path.getsize(place)
        ended = [_watched(server, words) for _ in range(plan.size(3, 1))]
        rates = Sample([size / MB / taken for taken, _ in ended], "MB/s")
        yield alone(f"{what} {size / MB:,.0f} MB", rates, least=least)
        peaks = Sample([peak for _, peak in ended], "MB")
        yield alone(f"{what} {size / MB:,.0f} MB, largest resident size", peaks, most=100)
    plan.clear()


def _watched(server: Server, words: tuple[str, ...]) -> tuple[float, float]:
    """Run a command on a new thread; return its seconds and its largest resident size in MB."""
    name, *rest = words
    start = time.perf_counter()
    ended = watch_process(command(name, *_before(rest, server.fresh())))
    return time.perf_counter() - start, ended.peak_mb


def _before(words: list[str], url: str) -> list[str]:
    """Return the words of a command with its thread."""
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--thread", url, *words[at:]]
