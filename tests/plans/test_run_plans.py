"""What is under way costs what is under way, however much is finished: plans and work of runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records.run import NewRun, NewStep
from tests.engines import sqlite
from tests.plans.support import instructions, scans, steps_of
from tests.plans.test_plans import Traced, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.memory.runs import Run

TABLES = {
    "runs", "run_attempts", "turns", "blobs", "blob_bytes", "blob_parts", "blob_refs", "contexts",
    "context_log", "turn_patches", "turn_keys", "pins", "event_blob_refs", "events", "settings",
    "run_changes",
}  # fmt: skip
FINISHED = 30_000
DAYS = 1_000
DAY = "2026-03-18"
DAY_MS = 1773792000000
FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO contexts (context_id, head_id, base_id, created_at_ms, updated_at_ms)
SELECT 1000 + i, ?2, ?2, 0, 0 FROM n
"""
RUNS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO runs (context_id, name, grouped, status, start_id, completed_at_ms)
SELECT 1000 + i, 'old', 'g' || (i % 3), iif(i % 7, 'completed', 'cancelled'), ?2,
    iif(i % 7, ?3 - 86400000 * (i % ?4), NULL)
FROM n
"""


CHANGED = (
    "INSERT INTO run_changes (run_id, op) SELECT context_id, 'end' FROM runs WHERE true"
    " ON CONFLICT DO NOTHING"
)
ATTEMPT = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, 1, 0)"


@pytest.fixture(scope="module", params=["plain", "analysed"])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    """Return a traced thread with six runs under way among 30,000 that are finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_SYNCHRONOUS", "normal")
        patch.setenv("EVENTQ_NOTIFIER", "none")
        path = eventq.init(tmp_path_factory.mktemp("plans") / "thread")
        with eventq.open(path) as thread, thread.write():
            main = thread.runs.start(NewRun("w", "p", group="g1", system={"a": "s"}), label="main")
            for number in range(200):
                compact = "s" if number == 150 else None
                new = NewStep("ab"[number % 2], number, f"{number}", compact=compact)
                main.step(new, key=f"k{number}")
            main.attempt("c")
            for number in range(2):
                thread.runs.start(NewRun("w", f"{number}", group="g1"))
            head, root = main.info(), main.context.ancestor(0)
            for turn in main.context.replay(payload=False):
                for _ in range(5):
                    sqlite(thread.database).run(ATTEMPT, (turn.turn_id,))
            sqlite(thread.database).run(FILL, (FINISHED, head.head_turn_id))
            sqlite(thread.database).run(RUNS, (FINISHED, root, DAY_MS, DAYS))
            sqlite(thread.database).run(CHANGED)
            for number in range(3):
                thread.runs.start(NewRun("w", f"{number}", group="g2")).suspend()
        made = opened(path, analysed=request.param == "analysed")
        assert [info.name for info in made.thread.runs.active()] == ["w"] * 6
        yield made
        made.close()


def bad(sql: str, step: str) -> bool:
    """Return whether a step reads a whole table or index, makes an index of its own, or sorts."""
    return "TEMP B-TREE FOR ORDER" in step or scans(TABLES, sql, step)


def effort(traced: Traced, call: Callable[[], object]) -> int:
    """Return how many hundreds of instructions SQLite takes for a call."""
    return instructions(traced.thread, call, 100)


LOOKS: dict[str, tuple[Callable[[eventq.Thread], list[object]], int, str]] = {
    "active": (lambda thread: [*thread.runs.active()], 6, "runs_active"),
    "active of a group": (lambda thread: [*thread.runs.active("g1")], 3, "runs_active"),
    "history": (lambda thread: [*thread.runs.history(DAY)], 26, "runs_by_day"),
    "history of a group": (lambda thread: [*thread.runs.history(DAY, "g0")], 9, "runs_by_day"),
    "a day without any": (lambda thread: [*thread.runs.history("2019-01-01")], 0, "runs_by_day"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_lists_use_their_indexes(traced: Traced, name: str) -> None:
    """What is under way, and a day, are found by their indexes among 30,000 finished runs."""
    look, count, index = LOOKS[name]
    found: list[object] = []
    steps = traced.of(lambda: found.extend(look(traced.thread)))
    assert len(found) == count
    assert [one for one in steps if bad(*one)] == []
    ways = {step for sql, step in steps if step.split()[1] in ("r", "runs")}
    for way in ways:
        assert way.startswith("SEARCH")
        assert f"INDEX {index} (" in way
    assert ways
    assert effort(traced, lambda: look(traced.thread)) <= 10 + 2 * count


@pytest.mark.parametrize("active", [True, False])
def test_the_newest_are_found_from_the_end(traced: Traced, active: bool) -> None:
    """A page of those under way or ended costs that page, among 30,000, and sorts nothing."""
    found: list[object] = []
    steps = traced.of(lambda: found.extend(traced.thread.runs.newest(0, 6, active=active)))
    assert len(found) == 6
    assert [one for one in steps if bad(*one)] == []
    assert effort(traced, lambda: traced.thread.runs.newest(0, 6, active=active)) <= 20


def test_forks_are_found_by_their_run(traced: Traced) -> None:
    """Among 30,000 runs that are none, by an index."""
    engine = traced.thread.runs.engine
    steps = traced.of(lambda: engine.forks(1, 20))
    assert [one for one in steps if scans(TABLES, *one)] == []
    assert effort(traced, lambda: engine.forks(1, 20)) <= 10


@pytest.mark.parametrize(("group", "count"), [(None, 5), ("g2", 4)])
def test_changes_are_found_by_number(traced: Traced, group: str | None, count: int) -> None:
    """A look at what has changed costs what has, of all groups or of one."""
    engine = traced.thread.runs.engine
    upto = engine.last_change()
    found: list[object] = []
    steps = traced.of(lambda: found.extend(engine.changes(upto - 8, upto, 9, group)))
    assert len(found) == count
    assert [one for one in steps if bad(*one)] == []
    assert effort(traced, lambda: engine.changes(upto - 8, engine.last_change(), 9, group)) <= 20


def test_all_runs_are_read_in_pages(traced: Traced) -> None:
    """The list of all runs goes by id, in pages, and sorts nothing."""
    steps = traced.of(lambda: list(itertools.islice(traced.thread.runs.list(), 1_500)))
    assert [one for one in steps if bad(*one)] == []
    assert effort(traced, lambda: next(traced.thread.runs.list())) < 1_000


WHOLE = NewStep("a", 1, "new", edge_prompt="e", agent="x", attempts=[NewStep("a")], compact="sum")


def reported(thread: eventq.Thread, run: Run) -> object:
    """Take a step that an event reports."""
    thread.settings.set("runs.emit", "on")
    return run.step("a", 1, "new")


CALLS: dict[str, Callable[[eventq.Thread, Run], object]] = {
    "start": lambda thread, _: thread.runs.start(
        "w", "new", system={"a": "new too"}, label="new", source="self"
    ),
    "step": lambda _, run: run.step("a", 1, "new"),
    "step with all": lambda thread, run: run.step(
        WHOLE._replace(refs=[thread.blobs.put(b"thing").ref]),
        expected_head=run.info().head_turn_id,
        key="new",
    ),
    "step with a known key": lambda _, run: run.step("a", 0, "0", key="k0"),
    "attempt": lambda _, run: run.attempt("a", 1, "failed"),
    "poke": lambda _, run: run.poke(2, "replaced"),
    "compact": lambda _, run: run.compact("sum"),
    "suspend and resume": lambda _, run: [run.suspend(), run.resume()],
    "end": lambda _, run: run.end(),
    "cancel": lambda _, run: run.cancel(),
    "step that is reported": reported,
    "fork": lambda _, run: [run.fork(), run.fork(17)],
    "fork by hash": lambda _, run: [run.fork(hash_of(run, 17)), run.fork(f"turn:{TURN}")],
    "delete": lambda thread, _: thread.runs.delete("main"),
    "fork by role": lambda _, run: run.fork(role="b"),
    "get": lambda thread, run: [run.info(), thread.runs.get(1).prompt()],
    "replay": lambda _, run: [*run.replay()],
    "chain": lambda _, run: run.chain(),
    "messages": lambda _, run: run.messages("a", "go"),
    "read": lambda _, run: run.read(500),
}


TURN = 18  # of step 17


def hash_of(run: Run, number: int) -> str:
    """Return the ref of a step."""
    return run.context.range(number, 1, payload=False).turns[0].ref


class _UndoneError(Exception):
    """What undoes a change, so that the store stays as it was made."""


def undone(thread: eventq.Thread, name: str) -> None:
    """Run a call and undo it."""
    with pytest.raises(_UndoneError), thread.write():
        CALLS[name](thread, thread.runs.get("main"))
        raise _UndoneError


@pytest.mark.parametrize("name", CALLS)
def test_a_step_scans_nothing(traced: Traced, name: str) -> None:
    """Whatever is run for a step, a status, a fork or the messages goes by an index or an id."""
    traced.statements.clear()
    undone(traced.thread, name)
    words = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
    ran = [one for one in traced.statements if one[0].split()[0] in words]
    assert len(ran) > 2
    assert [one for one in steps_of(traced, ran) if bad(*one)] == []


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("step", 25),
        ("attempt", 25),
        ("end", 30),
        ("fork", 45),
        ("fork by hash", 45),
        ("step that is reported", 30),
    ],
)
def test_a_step_is_little_work(traced: Traced, name: str, most: int) -> None:
    """A step takes a few statements and little work, however many runs are finished."""
    traced.statements.clear()
    undone(traced.thread, name)
    assert len(traced.statements) <= most + 4
    assert effort(traced, lambda: undone(traced.thread, name)) < 200


def test_what_is_reachable_costs_what_it_is(traced: Traced) -> None:
    """What a step reaches is found by indexes, and takes as much work as there is of it."""
    thread = traced.thread
    steps = traced.of(lambda: thread.reachable([f"turn:{TURN}"]))
    assert [one for one in steps if scans(TABLES, *one)] == []

    def reach(at: int) -> None:
        with thread.write():  # so that it is read on the connection whose work is counted
            thread.reachable([f"turn:{at}"])

    works = [effort(traced, lambda at=at: reach(at)) for at in (18, 180)]  # type: ignore[misc]
    assert works[0] < works[1] / 5 < 400


def test_the_test_can_fail(traced: Traced) -> None:
    """A scan and a sort are recognised, by the table's name and by another."""
    queries = [
        "SELECT * FROM runs WHERE name = 'w'",
        "SELECT * FROM runs r WHERE r.status = 'completed'",
        "SELECT count(*) FROM run_attempts",
        "SELECT 1 FROM runs r JOIN contexts c ON c.version = r.start_id",
        "SELECT * FROM runs r WHERE r.context_id > 5 ORDER BY name",
    ]
    for sql in queries:
        assert any(bad(sql, step) for step in traced.plan(sql)), sql
    assert (
        effort(traced, lambda: sqlite(traced.thread.database).run("SELECT count(name) FROM runs"))
        > 500
    )
