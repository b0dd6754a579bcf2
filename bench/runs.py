"""Workflow runs: steps, the messages of a long run, forks, and the list of what is under way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.report import Row, Sample, alone, percentile, versus
from bench.turn_stores import EventqTurns, Payloads
from eventq.records.run import NewStep
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan
    from eventq.memory.runs import Run

LONG = 1_000  # steps of a run whose messages are rebuilt
_CONTEXTS = """
INSERT INTO contexts (head_id, base_id, created_at_ms, updated_at_ms)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 2, 2, 1, 1 FROM n
"""
_RUNS = """
INSERT INTO runs (context_id, name, grouped, status, start_id, completed_at_ms)
SELECT context_id, 'w', '', ?, 1, ? FROM contexts WHERE context_id NOT IN (SELECT context_id FROM runs)
"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure everything."""
    yield from _step(plan)
    yield from _messages(plan)
    yield from _fork(plan)
    yield from _list(plan)


def _step(plan: Plan) -> Iterator[Row]:
    for synchronous in ("full", "normal"):
        store = EventqTurns(plan.place("steps"), synchronous)
        made = store.thread.runs.start("work", "a task")
        payloads = Payloads(7)
        count = plan.size(500, 50)

        def steps(made: Run = made, payloads: Payloads = payloads, count: int = count) -> float:
            texts = [payloads.next().decode() for _ in range(count)]
            return _p50(
                lambda: made.step(
                    NewStep("coder", {"ok": 1}, texts.pop(), edge_prompt="go on", agent="a")
                ),
                count,
            )

        found = plan.take(
            {"step": steps, "append": lambda s=store, n=count: percentile(s.times(n), 0.5)}  # type: ignore[misc]
        )
        what = f"a step with 10 KB of content, {synchronous.upper()}, p50, against a plain append"
        most = 1.5 if synchronous == "full" else 0
        yield versus(what, Sample(found["step"], "ms"), Sample(found["append"], "ms"), most=most)
        store.close()
    plan.clear()


def _p50(call: Callable[[], object], count: int) -> float:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1_000)
    return percentile(taken, 0.5)


def _filled(plan: Plan, steps: int) -> EventqTurns:
    """Make a run of so many steps, every tenth by the role that is asked for."""
    store = EventqTurns(plan.place("long"), "normal")
    made = store.thread.runs.start("work", "a task", system={"writer": "You write."})
    text = Payloads(8).next(600).decode()
    for start in range(0, steps, 1_000):
        with store.thread.write():
            for number in range(start, min(start + 1_000, steps)):
                role = "writer" if number % 10 == 0 else f"reader{number % 3}"
                made.step(
                    NewStep(role, {"n": number}, f"{number} {text}", edge_prompt="go on", agent="a")
                )
    return store


def _messages(plan: Plan) -> Iterator[Row]:
    taken = {}
    for steps in (LONG, plan.size(100 * LONG, 2 * LONG)):
        store = _filled(plan, steps)
        made = store.thread.runs.get(2)
        found = plan.take(
            {
                "all": lambda m=made: _p50(  # type: ignore[misc]
                    lambda: sum(1 for _ in m.iter_messages("writer", "now")), 1
                )
            }
        )
        taken[steps] = Sample(found["all"], "ms")
        store.close()
        plan.clear()
    short, long = taken
    yield alone(
        f"the messages of a run of {short:,} steps with {short // 10} visits", taken[short], most=50
    )
    times = long // short
    each = Sample([value / times for value in taken[long].values], "ms")
    yield versus(f"the same of {long:,} steps, a {times}th of it", each, taken[short], most=1.5)


def _fork(plan: Plan) -> Iterator[Row]:
    taken = {}
    for steps in (LONG, plan.size(100 * LONG, 2 * LONG)):
        store = _filled(plan, steps)
        made = store.thread.runs.get(2)
        before = sqlite(store.thread.database).one("SELECT count(*) FROM blobs")
        found = plan.take({"fork": lambda m=made, n=steps: _p50(lambda: m.fork(at=n // 2), 100)})  # type: ignore[misc]
        assert sqlite(store.thread.database).one("SELECT count(*) FROM blobs") == before
        taken[steps] = Sample(found["fork"], "ms")
        store.close()
        plan.clear()
    short, long = taken
    yield versus(
        f"fork of a run of {long:,} steps in its middle",
        taken[long],
        taken[short],
        most=2,
        note=f" (of {short:,})",
    )


def _list(plan: Plan) -> Iterator[Row]:
    store = EventqTurns(plan.place("list"), "normal")
    made = store.thread.runs.start("work", "a task")
    made.step("coder", None, "x")
    active, finished = 10_000, plan.size(1_000_000, 10_000)
    with store.thread.write():
        for count, status, at in (
            (active, "active", None),
            (finished, "completed", 1_767_323_045_678),
        ):
            sqlite(store.thread.database).run(_CONTEXTS, (count,))
            sqlite(store.thread.database).run(_RUNS, (status, at))
    runs = store.thread.runs
    found = plan.take({"list": lambda: _p50(lambda: sum(1 for _ in runs.active()), 5)})
    what = f"the list of {active:,} active runs beside {finished:,} finished ones"
    yield alone(what, Sample(found["list"], "ms"))
    store.close()
    plan.clear()
