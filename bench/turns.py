"""Turns, contexts and blobs: appends, reads at any depth, forks, equal and similar payloads, a collection."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from typing import TYPE_CHECKING

import eventq
from bench.concurrent import race
from bench.machine import eventq as command
from bench.machine import watch_process
from bench.report import Row, Sample, alone, percentile, versus
from bench.rounds import p50
from bench.turn_stores import STORES, EventqTurns, Payloads, RawTurns
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan
    from eventq import Context

PROCESSES = 16
SHORT = 1_000  # turns of the chain that a long one is compared with
_CHAIN = """
SELECT b.hash, bytes FROM (WITH RECURSIVE chain (turn_id, parent_id, blob_id, left) AS (
    SELECT turn_id, parent_id, blob_id, 63 FROM turns WHERE turn_id = ?
    UNION ALL SELECT t.turn_id, t.parent_id, t.blob_id, left - 1 FROM chain c JOIN turns t ON t.turn_id = c.parent_id
    WHERE left > 0) SELECT blob_id FROM chain) JOIN blobs b USING (blob_id) JOIN blob_bytes USING (blob_id)
"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure everything."""
    for synchronous in ("full", "normal"):
        yield from _append(plan, synchronous)
    yield from _last(plan)
    yield from _deep(plan)
    yield from _fork(plan)
    yield from _equal(plan)
    yield from _similar(plan)
    yield from _collect(plan)
    yield from _together(plan)


def _append(plan: Plan, synchronous: str) -> Iterator[Row]:
    stores = {name: make(plan.place(name), synchronous) for name, make in STORES.items()}
    count = plan.size(600, 60)
    found = plan.take(
        {name: lambda s=store: s.times(count) for name, store in stores.items()},  # type: ignore[misc]
        rounds=plan.size(9, 2),
    )
    p50, p99 = (
        {
            name: Sample([percentile(taken, share) for taken in rounds], "ms")
            for name, rounds in found.items()
        }
        for share in (0.5, 0.99)
    )
    what = f"append a turn of 10 KB, {synchronous.upper()}"
    mine, raw = "eventq-turns", "raw-turns"
    yield versus(
        f"{what}, p50, against the same statements",
        p50[mine],
        p50[raw],
        most=1.3 if synchronous == "full" else 0,
    )
    yield alone(f"{what}, p50", p50[mine], most=1 if synchronous == "full" else 0.4)
    yield versus(f"{what}, p50, against plain files", p50[mine], p50["file-turns"])
    yield alone(f"{what}, p99", p99[mine], p99[raw], most=10)
    for store in stores.values():
        store.close()
    plan.clear()


def _last(plan: Plan) -> Iterator[Row]:
    mine = EventqTurns(plan.place("mine"), "normal")
    raw = RawTurns(plan.place("raw"), "normal")
    for store in (mine, raw):
        store.push(plan.size(1_000, 100))
    cold = eventq.open(mine.thread.path, read_only=True)
    count = plan.size(200, 20)
    found = plan.take(
        {
            "warm": p50(mine.context.last, count),
            "cold": p50(lambda: _forgetful(cold, mine.context.id), count),
            "raw": p50(lambda: raw.execute(_CHAIN, (plan.size(1_000, 100),)).fetchall(), count),
        }
    )
    raw_ms = f"{Sample(found['raw'], 'ms')} (the rows alone, neither decompressed nor checked)"
    yield alone(
        "the last 64 turns with payloads, warm, p50", Sample(found["warm"], "ms"), raw_ms, most=1
    )
    yield alone(
        "the last 64 turns with payloads, read and checked anew, p50",
        Sample(found["cold"], "ms"),
        raw_ms,
    )
    cold.close()
    mine.close()
    raw.close()
    plan.clear()


def _forgetful(thread: eventq.Thread, context_id: int) -> None:
    """Read as somebody does who has just opened the thread."""
    from eventq.memory.blobs import Cache

    thread.blobs._cache = Cache(8 << 20)
    thread.contexts.get(context_id).last()


def _deep(plan: Plan) -> Iterator[Row]:
    """Chains of 10 KB turns would be of ten gigabytes: these share 64 payloads of that size."""
    size = plan.size(1_000_000, 20_000)
    store = EventqTurns(plan.place("deep"), "normal")
    payloads = Payloads(1)
    shared = [payloads.next() for _ in range(64)]
    contexts = {}
    for length in (SHORT, size):
        contexts[length] = context = store.thread.contexts.create()
        for start in range(0, length, 1_000):
            with store.thread.write():
                for number in range(start, min(start + 1_000, length)):
                    context.append(shared[number % 64])
    chance = random.Random(2)
    tasks: dict[str, Callable[[], float]] = {}
    for length, context in contexts.items():
        tasks[f"ancestor {length}"] = p50(
            partial(_ancestor, context, length, chance), plan.size(500, 50)
        )
        tasks[f"page {length}"] = p50(partial(_middle, context, length, chance), plan.size(100, 20))
    found = plan.take(tasks)
    for name, what in (
        ("ancestor", "the ancestor at any depth of a chain"),
        ("page", "64 turns from the middle of a chain"),
    ):
        small, large = (Sample(found[f"{name} {length}"], "ms") for length in contexts)
        yield versus(
            f"{what} of {size:,} turns, p50", large, small, most=2, note=f" (of {SHORT:,})"
        )
    store.close()
    plan.clear()


def _ancestor(context: Context, length: int, chance: random.Random) -> None:
    context.ancestor(chance.randrange(length))


def _middle(context: Context, length: int, chance: random.Random) -> None:
    context.range(length // 2 + chance.randrange(-200, 200))


def _fork(plan: Plan) -> Iterator[Row]:
    store = EventqTurns(plan.place("fork"), "full")
    raw = RawTurns(plan.place("raw"), "full")
    store.push(plan.size(1_000, 100))
    counts = {
        table: _count(store, table) for table in ("contexts", "context_log", "blobs", "turns")
    }
    count = plan.size(200, 20)
    insert = "INSERT INTO contexts (created_at_ms, updated_at_ms) VALUES (1, 1)"
    found = plan.take(
        {"fork": p50(store.context.fork, count), "raw": p50(lambda: raw.execute(insert), count)}
    )
    yield versus(
        "fork, FULL, p50, against a commit of one row",
        Sample(found["fork"], "ms"),
        Sample(found["raw"], "ms"),
    )
    made = _count(store, "contexts") - counts.pop("contexts")
    others = sum(_count(store, table) - before for table, before in counts.items())
    forks = count * (plan.rounds + 1)
    yield alone("rows that a fork stores", Sample([(made + others) / forks], "rows"), most=1)
    store.close()
    raw.close()
    plan.clear()


def _count(store: EventqTurns, table: str) -> int:
    return int(sqlite(store.thread.database).one(f"SELECT count(*) FROM {table}"))


def _equal(plan: Plan) -> Iterator[Row]:
    store = EventqTurns(plan.place("equal"), "normal")
    payload = Payloads(3).next()
    for _ in range(1_000):
        store.append(payload)
    times = (
        sqlite(store.thread.database).one("SELECT sum(length(bytes)) FROM blob_bytes")
        / store.thread.blobs.stat(next(iter(store.thread.blobs)).hash).stored
    )
    yield alone(
        "1,000 appends of one payload: times that its bytes are stored",
        Sample([times], "x"),
        most=1,
    )
    store.close()
    plan.clear()


def _similar(plan: Plan) -> Iterator[Row]:
    """Forty outputs of a tool, each longer than the one before; against the same compressed one by one."""
    import zstandard

    compress = zstandard.ZstdCompressor(level=1).compress
    lines = b"".join(
        b"2026-03-18T10:%02d:%02d step %d: %s\n" % (n // 60 % 60, n % 60, n, Payloads(n).next(60))
        for n in range(3_600)
    )
    outputs = [lines[: 100_000 + 5_000 * n] for n in range(40)]
    noise = [os.urandom(200_000) for _ in range(10)]
    for name, payloads, most in (
        ("outputs of a growing log", outputs, 0.5),
        ("payloads of random bytes", noise, 1.01),
    ):
        store = EventqTurns(plan.place("similar"), "normal")
        start = time.perf_counter()
        for payload in payloads:
            store.append(payload)
        taken = (time.perf_counter() - start) / len(payloads) * 1_000
        kept = sqlite(store.thread.database).one("SELECT sum(length(bytes)) FROM blob_bytes")
        alone_kept = sum(min(len(payload), len(compress(payload))) for payload in payloads)
        what = f"{len(payloads)} {name}, 100 to 300 KB each"
        yield versus(
            f"{what}: kept",
            Sample([kept / 1e6], "MB"),
            Sample([alone_kept / 1e6], "MB"),
            most=most,
            note=" (one by one)",
        )
        yield Row(f"{what}: an append, NORMAL", Sample([taken], "ms"))
        store.close()
    plan.clear()


def _collect(plan: Plan) -> Iterator[Row]:
    count = plan.size(100_000, 2_000)
    taken, peak, shrunk = [], [], []
    for _ in range(plan.size(3, 1)):
        store = EventqTurns(plan.place("gc"), "normal")
        payloads = Payloads(5)
        for start in range(0, count, 500):
            with store.thread.write():
                for number in range(start, start + 500):
                    if number % 2:
                        store.append(payloads.next())
                    else:
                        store.thread.blobs.put(payloads.next())
        path = store.thread.path
        store.close()
        before = os.path.getsize(os.path.join(path, "events.db"))
        ended = watch_process(command("gc", "--thread", path, "--apply", "--grace", "0"))
        taken.append(ended.seconds)
        peak.append(ended.peak_mb)
        shrunk.append(os.path.getsize(os.path.join(path, "events.db")) / before * 100)
        plan.clear()
    what = f"`eventq gc --apply` of {count:,} blobs of 10 KB, half of them dead"
    yield alone(what, Sample(taken, "s"), most=5)
    yield alone(f"{what}: largest resident size", Sample(peak, "MB"), most=150)
    yield alone(f"{what}: size of the database afterwards", Sample(shrunk, "%"), most=65)


def _together(plan: Plan) -> Iterator[Row]:
    seconds = plan.size(25, 10) / 10
    names = ("raw-turns", "eventq-turns")
    places = {name: plan.place(name) for name in names}
    for name, place in places.items():
        STORES[name](place, "full").close()
    races = plan.take(
        {name: lambda n=name: race(n, places[n], seconds, PROCESSES) for name in names}  # type: ignore[misc]
    )
    raw, mine = (races[name] for name in names)
    what = f"{PROCESSES} processes append to {PROCESSES} contexts, FULL"
    yield versus(
        what, Sample([r.rate for r in mine], "/s"), Sample([r.rate for r in raw], "/s"), least=0.7
    )
    p99, limit = (Sample([one.p99 for one in races], "ms") for races in (mine, raw))
    yield versus(f"{what}, p99 of the worst-off process", p99, limit)
    yield alone(
        f"{what}, appends that failed", Sample([sum(one.failed for one in mine)], ""), most=0.1
    )
