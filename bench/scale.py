"""The same work on a small store and on a large one: its cost must be that of what is new, not of what is stored."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import apsw

import eventq
from bench.contestants import KIND, PAYLOAD, SOURCE, STAMP
from bench.machine import environment, time_process
from bench.machine import eventq as command
from bench.report import Row, Sample, alone, versus
from eventq.running.dispatch import Dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

SMALL = 1_000
_CONSUMERS = 100
_FILL = """
INSERT INTO events (created_at, source, type, content)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT ?, ?, ?, ? FROM n
"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure push, the look for who is due, and the whole `dispatch` command."""
    sizes = (SMALL, plan.size(5_000_000, 100_000))
    threads = {size: _build(plan, size) for size in sizes}
    rounds = plan.size(9, 2)
    count = plan.size(300, 50)
    what = f"at {sizes[1]:,} events, a consumer that never matches"
    os.environ["EVENTQ_NOTIFIER"] = "builtin"
    try:
        tasks: dict[str, Callable[[], float]] = {}
        for size, thread in threads.items():
            tasks[f"push {size}"] = lambda t=thread: _push(t, count)  # type: ignore[misc]
            tasks[f"look for who is due {size}"] = lambda t=thread: _look(t, count)  # type: ignore[misc]
            tasks[f"`eventq dispatch` {size}"] = lambda t=thread: _dispatch(t, plan.size(5, 2))  # type: ignore[misc]
        found = plan.take(tasks, rounds=rounds)
    finally:
        os.environ["EVENTQ_NOTIFIER"] = "none"
        for thread in threads.values():
            thread.close()
    for name in ("push", "look for who is due", "`eventq dispatch`"):
        small, large = (Sample(found[f"{name} {size}"], "ms") for size in sizes)
        yield versus(f"{name} {what}", large, small, most=1.2, note=f" (at {SMALL:,})")
    yield from _statuses(plan)


def _statuses(plan: Plan) -> Iterator[Row]:
    """Measure `Thread.status` of many consumers with filters, and none or all events waiting."""
    size = plan.size(1_000_000, 20_000)
    with busy_thread(plan, size) as thread:
        for name, acked in (("everything", 0), ("nothing", size)):
            for one in thread.status().consumers:
                thread.ack(one.consumer_id, acked)
            found = plan.take({"status": lambda: _status(thread, 20)}, rounds=plan.size(9, 2))
            what = f"status at {size:,} events and {_CONSUMERS} consumers, {name} waits"
            yield alone(what, Sample(found["status"], "ms"), most=8)


def busy_thread(plan: Plan, size: int, consumers: int = _CONSUMERS) -> eventq.Thread:
    """Make a thread of so many events and consumers, for half of which all of them wait."""
    thread = _build(plan, size)
    for number in range(consumers - 1):
        where = f"type = '{KIND}' AND id > {number}" if number % 2 else None
        thread.subscribe(f"c{number}", "true", filter=where)
    return thread


def _status(thread: eventq.Thread, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        assert len(thread.status().consumers) == _CONSUMERS
    return (time.perf_counter() - start) / count * 1_000


def _build(plan: Plan, size: int) -> eventq.Thread:
    """Make a thread of so many events with one SQL statement, and a subscription that matches none of them."""
    path = plan.place("thread")
    eventq.open(path, create=True).close()
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.pragma("journal_mode", "off")
    connection.pragma("synchronous", "off")
    connection.execute(_FILL, (size, STAMP, SOURCE, KIND, PAYLOAD))
    connection.pragma("journal_mode", "wal")
    connection.close()
    # The mirror as it is after a rotation, its old files removed: or the first push would write it
    # all.
    with open(os.path.join(path, "events.jsonl"), "w", encoding="utf-8") as file:
        file.write(
            f'{{"id":{size},"created_at":"{STAMP}","source":"{SOURCE}","type":"{KIND}","subtype":null,"content":"{PAYLOAD}"}}\n'
        )
    thread = eventq.open(path)
    thread.subscribe("never", "true", filter="type = 'never' AND content LIKE '%needle%'")
    return thread


def _push(thread: eventq.Thread, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        thread.push(SOURCE, KIND, PAYLOAD)
    return (time.perf_counter() - start) / count * 1_000


def _look(thread: eventq.Thread, count: int) -> float:
    dispatch = Dispatch(thread.consumers, thread.layout, thread.journal)
    start = time.perf_counter()
    for _ in range(count):
        assert not dispatch.scan()
    return (time.perf_counter() - start) / count * 1_000


def _dispatch(thread: eventq.Thread, count: int) -> float:
    argv = command("dispatch", "--thread", thread.path)
    return sum(time_process(argv, environ=environment()) for _ in range(count)) / count
