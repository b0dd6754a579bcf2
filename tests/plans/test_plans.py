"""Query plans of push, pop and dispatch: cost depends on what is new."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILTER = "type = 'note' AND source LIKE 'ext%'"


class Traced:
    """A thread whose statements are written down, those of its fenced connection too."""

    def __init__(self, path: str) -> None:
        self.statements: list[tuple[str, Any]] = []
        self.plain = apsw.Connection(os.path.join(path, "events.db"))
        apsw.connection_hooks.append(self._trace)
        self.thread = eventq.open(path)
        self.plain.create_scalar_function("eventq_large", lambda *_: 1)  # the fence's own

    def _trace(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._note

    def _note(self, _: apsw.Cursor, sql: str, bindings: Any) -> bool:
        self.statements.append((sql, bindings))
        return True

    def of(self, call: Callable[[], object]) -> list[tuple[str, str]]:
        """Return statement and plan step of everything that a call runs."""
        self.statements.clear()
        call()
        assert self.statements
        return [
            (sql, step) for sql, bindings in self.statements for step in self.plan(sql, bindings)
        ]

    def plan(self, sql: str, bindings: Any = None) -> list[str]:
        """Return the steps of a statement's plan."""
        if sql.split(maxsplit=1)[0] in (
            "BEGIN",
            "COMMIT",
            "EXPLAIN",  # of a filter as it was written: nothing runs
            "PRAGMA",
            "SAVEPOINT",
            "RELEASE",
            "ROLLBACK",
            "VACUUM",
        ):
            return []
        return [row[3] for row in self.plain.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]

    def close(self) -> None:
        apsw.connection_hooks.remove(self._trace)
        self.plain.close()
        self.thread.close()


def opened(path: str, *, analysed: bool) -> Traced:
    """Return a traced thread, with or without the results of ANALYZE."""
    made = Traced(path)
    if analysed:
        made.plain.execute("ANALYZE").fetchall()
        made.close()
        made = Traced(path)
    return made


@pytest.fixture(params=["fresh", "original"])
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    """Return a traced thread with events and consumers, fresh or with old indexes."""
    path = request.getfixturevalue({"fresh": "path", "original": "original"}[request.param])
    made = Traced(path)
    made.thread.push_many([("self", "note", "x"), ("external:a:b:c:d:e", "message", "y")] * 2_000)
    made.thread.push_many([("self", "note", "x", None, f"k{n}") for n in range(100)])
    made.thread.subscribe("all", "true")
    made.thread.subscribe("some", "true", filter=FILTER)
    made.thread.subscribe("behind", "true", filter="type = 'never'")
    if request.param == "original":
        made.plain.execute(
            "ANALYZE"
        ).fetchall()  # so that the planner has every reason to use the indexes
        made.close()
        made = Traced(path)
    yield made
    made.close()


def bad(step: str) -> bool:
    """Return whether a step scans events, uses another index than ids, or sorts."""
    if "TEMP B-TREE" in step:
        return True
    words = step.split()
    if words[0] not in ("SCAN", "SEARCH") or words[1] != "events":
        return False
    if step == "SEARCH events":  # to one end, for min() and max()
        return False
    return not step.startswith("SEARCH events USING INTEGER PRIMARY KEY (")


def notify(thread: eventq.Thread) -> None:
    """Push, and look who is due; no dispatch can be started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_NOTIFIER", "builtin")
        patch.setattr("eventq.system.processes.spawn", None)
        thread.push("self", "note", "x")


def calls(thread: eventq.Thread) -> dict[str, Callable[[], object]]:
    """Return what is run once a push, a pop or a dispatch."""
    store, consumers = thread.database, thread.consumers
    last = thread.last_id()
    return {
        "push": lambda: thread.push("self", "note", "x"),
        "push with a key": lambda: thread.push("self", "note", "x", key="new"),
        "push with a known key": lambda: thread.push("self", "note", "x", key="k3"),
        "push many": lambda: thread.push_many(
            [("self", "note", "x"), ("self", "note", "x", None, "other")]
        ),
        "pop": lambda: thread.pop("all", last - 3),
        "pop without an id": lambda: thread.pop("all"),
        "pop with a filter": lambda: thread.pop("some", last - 3),
        "pop that waits": lambda: thread.pop("some", last, wait=0.001),
        "ack": lambda: thread.ack("all", last),
        "ack that goes back": lambda: thread.ack("some", 5, replay=True),
        "notify": lambda: notify(thread),
        "dispatch": lambda: [consumers.due(state) for state in consumers.states()],
        "mirror": lambda: [
            list(store.events.blocks(last - 2, last)),
            list(store.events.blocks(0, last)),
        ],
        "peek": lambda: [list(thread.peek()), list(thread.peek(10, filter=FILTER))],
        "last": lambda: [thread.last(), thread.last(filter=FILTER), thread.last(filter="id < 0")],
        "lines": lambda: [thread.pop_lines(name, last - 9, limit=5) for name in ("all", "some")],
        "prune": lambda: thread.prune(before_id=9, force=True),
        "status": lambda: [thread.status(), thread.warnings()],
    }


def test_the_test_can_fail(traced: Traced) -> None:
    """A scan, a sort and the use of another index are recognised."""
    queries = ["SELECT * FROM events WHERE type = 'x'", "SELECT * FROM events ORDER BY content"]
    assert all(any(map(bad, traced.plan(sql))) for sql in queries)
    assert not any(
        map(bad, traced.plan("SELECT * FROM events WHERE id > 3 AND id <= 9 ORDER BY id"))
    )


@pytest.mark.parametrize("name", [
    "push", "push with a key", "push with a known key", "push many", "pop", "pop without an id",
    "pop with a filter",
    "pop that waits", "ack", "ack that goes back", "notify", "dispatch", "mirror", "peek", "last",
    "lines", "prune", "status",
])  # fmt: skip
def test_nothing_scans_the_events(traced: Traced, name: str) -> None:
    """Whatever a call runs reaches events by a range of ids, never scans them all, never sorts."""
    thread = traced.thread
    found = traced.of(calls(thread)[name])
    # Filters are tried on one event that is no row of the table.
    found = [(sql, step) for sql, step in found if ") AS events\nWHERE" not in sql]
    if name == "status":  # sorts consumers and contexts
        found = [(sql, step) for sql, step in found if "TEMP B-TREE" not in step]
    assert [(sql, step) for sql, step in found if bad(step)] == []


def test_every_call_is_looked_at(traced: Traced) -> None:
    """The list of names is the list of calls."""
    (mark,) = (m for m in test_nothing_scans_the_events.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert list(calls(traced.thread)) == mark.args[1]


def test_a_dispatch_looks_at_new_events_only(traced: Traced) -> None:
    """A consumer without matches is checked from its watermark: one event per push."""
    thread = traced.thread
    state = thread.consumers.known("behind")
    assert not thread.consumers.due(state)
    thread.push("self", "note", "x")
    traced.statements.clear()
    assert not thread.consumers.due(thread.consumers.known("behind"))
    ranges = [
        bindings[:2]
        for sql, bindings in traced.statements
        if "type = 'never'" in sql and bindings and len(bindings) > 1
    ]
    assert ranges == [(thread.last_id() - 1, thread.last_id())]


def test_a_push_runs_few_statements(traced: Traced) -> None:
    """A plain push is one statement, however many events and consumers there are."""
    traced.thread.push("self", "note", "the first push finds the end of the mirror")
    traced.statements.clear()
    traced.thread.push("self", "note", "x")
    assert len(traced.statements) == 1
