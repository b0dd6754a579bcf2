"""What is under way costs what is under way, however much is finished: the query plans and the work of runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records import NewRun, NewStep
from tests.plans.test_plans import Traced, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLES = {
    "runs", "run_attempts", "turns", "blobs", "blob_bytes", "blob_parts", "blob_refs", "contexts", "context_log",
    "turn_patches", "turn_keys", "pins", "event_blob_refs", "events",
}  # fmt: skip
FINISHED = 30_000
DAYS = 1_000
DAY = "2026-03-18"
DAY_MS = 1773792000000
FILL = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO contexts (context_id, head_id, base_id, created_at_ms, updated_at_ms) SELECT 1000 + i, ?2, ?2, 0, 0 FROM n
"""
RUNS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO runs (context_id, name, grouped, status, start_id, completed_at_ms)
SELECT 1000 + i, 'old', 'g' || (i % 3), iif(i % 7, 'completed', 'cancelled'), ?2, iif(i % 7, ?3 - 86400000 * (i % ?4), NULL)
FROM n
"""


ATTEMPT = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, 1, 0)"


@pytest.fixture(scope="module", params=["plain", "analysed"])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    """Give a traced thread with six runs under way among 30,000 that are finished, with and without ANALYZE."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_SYNCHRONOUS", "off")
        patch.setenv("EVENTQ_NOTIFIER", "none")
        path = eventq.init(tmp_path_factory.mktemp("plans") / "thread")
        with eventq.open(path) as thread, thread.write():
            main = thread.runs.start(NewRun("w", "p", group="g1", system={"a": "s"}), label="main")
            for number in range(200):
                main.step(
                    NewStep(
                        "ab"[number % 2],
                        number,
                        f"{number}",
                        compact="s" if number == 150 else None,
                    ),
                    key=f"k{number}",
                )
            main.attempt("c")
            for number in range(2):
                thread.runs.start(NewRun("w", f"{number}", group="g1"))
            head, root = main.info(), main.context.ancestor(0)
            for turn in main.context.replay(payload=False):
                for _ in range(5):
                    thread.database.run(ATTEMPT, (turn.turn_id,))
            thread.database.run(FILL, (FINISHED, head.head_turn_id))
            thread.database.run(RUNS, (FINISHED, root, DAY_MS, DAYS))
            for number in range(3):
                thread.runs.start(NewRun("w", f"{number}", group="g2")).suspend()
        made = opened(path, analysed=request.param == "analysed")
        assert [info.name for info in made.thread.runs.active()] == ["w"] * 6
        yield made
        made.close()


def bad(sql: str, step: str) -> bool:
    """Say whether a step reads a whole table or index, makes an index of its own, or sorts."""
    words = step.split()
    if "AUTOMATIC" in words or "TEMP B-TREE FOR ORDER" in step:
        return True
    if words[0] not in ("SCAN", "SEARCH") or (words[0] == "SEARCH" and "(" in step):
        return False
    if "FROM turn_keys ORDER BY number LIMIT 2)" in sql:
        return False  # it is the first two
    spoken = sql.replace("(", " ").replace(")", " ").replace(",", " ").split()
    called = {alias: table for table, alias in itertools.pairwise(spoken) if table in TABLES}
    return words[1] in TABLES or called.get(words[1]) in TABLES


def effort(traced: Traced, call: Callable[[], object]) -> int:
    """Give how many hundreds of instructions SQLite takes for a call."""
    ticks = [0]

    def tick() -> bool:
        ticks[0] += 1
        return False

    connection = traced.thread.database.connection
    connection.set_progress_handler(tick, 100)
    try:
        call()
    finally:
        connection.set_progress_handler(None)
    return ticks[0]


LOOKS: dict[str, tuple[Callable[[eventq.Thread], list[object]], int, str]] = {
    "active": (lambda thread: [*thread.runs.active()], 6, "runs_active"),
    "active of a group": (lambda thread: [*thread.runs.active("g1")], 3, "runs_active"),
    "index entries": (lambda thread: [*thread.runs.index_entries()], 6, "runs_active"),
    "index entries of a group": (
        lambda thread: [*thread.runs.index_entries("g2")],
        3,
        "runs_active",
    ),
    "history": (lambda thread: [*thread.runs.history(DAY)], 26, "runs_by_day"),
    "history of a group": (lambda thread: [*thread.runs.history(DAY, "g0")], 9, "runs_by_day"),
    "history entries": (lambda thread: [*thread.runs.history_entries(DAY)], 26, "runs_by_day"),
    "a day without any": (lambda thread: [*thread.runs.history("2019-01-01")], 0, "runs_by_day"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_lists_use_their_indexes(traced: Traced, name: str) -> None:
    """What is under way, and a day, are found by their indexes among 30,000 runs that are finished."""
    look, count, index = LOOKS[name]
    found: list[object] = []
    steps = traced.of(lambda: found.extend(look(traced.thread)))
    assert len(found) == count
    assert [(sql, step) for sql, step in steps if bad(sql, step)] == []
    ways = {step for sql, step in steps if step.split()[1] in ("r", "runs")}
    assert {True} == {f"INDEX {index} (" in step and step.startswith("SEARCH") for step in ways}, (
        ways
    )
    assert effort(traced, lambda: look(traced.thread)) <= 10 + 2 * count


def test_all_runs_are_read_in_pages(traced: Traced) -> None:
    """The list of all runs goes by id, in pages, and sorts nothing."""
    steps = traced.of(lambda: list(itertools.islice(traced.thread.runs.list(), 1_500)))
    assert [(sql, step) for sql, step in steps if bad(sql, step)] == []
    assert effort(traced, lambda: next(traced.thread.runs.list())) < 1_000


CALLS: dict[str, Callable[[eventq.Thread], object]] = {
    "start": lambda thread: thread.runs.start("w", "new", system={"a": "new too"}, label="new", source="self"),
    "step": lambda thread: thread.runs.get("main").step("a", 1, "new"),
    "step with all": lambda thread: thread.runs.get("main").step(NewStep("a", 1, "new", refs=[thread.blobs.put(b"thing").ref], edge_prompt="e", agent="x", attempts=[NewStep("a")], compact="sum"), expected_head=thread.runs.get("main").info().head_turn_id, key="new", source="self"),
    "step with a known key": lambda thread: thread.runs.get("main").step("a", 0, "0", key="k0"),
    "attempt": lambda thread: thread.runs.get("main").attempt("a", 1, "failed"),
    "poke": lambda thread: thread.runs.get("main").poke(2, "replaced"),
    "compact": lambda thread: thread.runs.get("main").compact("sum"),
    "suspend and resume": lambda thread: [thread.runs.get("main").suspend(), thread.runs.get("main").resume()],
    "end": lambda thread: thread.runs.get("main").end(source="self"),
    "cancel": lambda thread: thread.runs.get("main").cancel(),
    "fork": lambda thread: [thread.runs.get("main").fork(), thread.runs.get("main").fork(17)],
    "fork by role": lambda thread: thread.runs.get("main").fork(role="b"),
    "get": lambda thread: [thread.runs.get("main").info(), thread.runs.get(1).prompt()],
    "replay": lambda thread: [*thread.runs.get("main").replay()],
    "chain": lambda thread: thread.runs.get("main").chain(),
    "messages": lambda thread: thread.runs.get("main").messages("a", "go"),
    "read": lambda thread: thread.runs.get("main").read(500),
}  # fmt: skip


class _UndoneError(Exception):
    """What undoes a change, so that the store stays as it was made."""


def undone(thread: eventq.Thread, call: Callable[[eventq.Thread], object]) -> None:
    """Run a call and undo it."""
    with pytest.raises(_UndoneError), thread.write():
        call(thread)
        raise _UndoneError


@pytest.mark.parametrize("name", CALLS)
def test_a_step_scans_nothing(traced: Traced, name: str) -> None:
    """Whatever is run for a step, a status, a fork or the messages goes by an index or an id."""
    traced.statements.clear()
    undone(traced.thread, CALLS[name])
    ran = [
        (sql, bindings)
        for sql, bindings in traced.statements
        if sql.split()[0] in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
    ]
    assert len(ran) > 2
    steps = [(sql, step) for sql, bindings in ran for step in traced.plan(sql, bindings)]
    assert [(sql, step) for sql, step in steps if bad(sql, step)] == []


@pytest.mark.parametrize(
    ("name", "most"), [("step", 25), ("attempt", 25), ("end", 30), ("fork", 45)]
)
def test_a_step_is_little_work(traced: Traced, name: str, most: int) -> None:
    """A step takes a few statements and little work, however many runs are finished."""
    traced.statements.clear()
    undone(traced.thread, CALLS[name])
    assert len(traced.statements) <= most + 4
    assert effort(traced, lambda: undone(traced.thread, CALLS[name])) < 200


def test_the_test_can_fail(traced: Traced) -> None:
    """A scan and a sort are recognised, by the table's name and by another."""
    queries = [
        "SELECT * FROM runs WHERE name = 'w'",
        "SELECT * FROM runs r WHERE r.status = 'completed'",
        "SELECT count(*) FROM run_attempts",
        "SELECT 1 FROM runs r JOIN contexts c ON c.version = r.start_id",
        "SELECT * FROM runs r WHERE r.context_id > 5 ORDER BY name",
    ]
    assert [sql for sql in queries if not any(bad(sql, step) for step in traced.plan(sql))] == []
    assert effort(traced, lambda: traced.thread.database.run("SELECT count(name) FROM runs")) > 500
