"""A turn and a blob cost what they are, not what is stored: the plans of all that is run."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.records.turn import NewTurn
from eventq.store.copy_rows import (
    AliasCopy,
    AttemptCopy,
    ContextCopy,
    ErasedCopy,
    FileCopy,
    LineCopy,
    OutputCopy,
    PatchCopy,
    PinCopy,
    RefCopy,
    RootCopy,
    RunCopy,
    SessionCopy,
    TipCopy,
)
from eventq.store.output_rows import ScopeRow
from tests.engines import sqlite
from tests.plans.support import scans
from tests.plans.test_plans import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.store.copies import Selection

# Not open_turns: there are few, and they are read as a whole.
TABLES = {
    "turns", "blobs", "blob_bytes", "blob_parts", "blob_refs", "contexts", "context_log",
    "turn_patches", "turn_keys", "pins", "event_blob_refs", "open_pieces", "turn_roots",
    "event_causes", "turn_causes", "usage", "usage_read",
}  # fmt: skip
NOISE = random.Random(31).randbytes(2_500_000)
TEXT = b"".join(b"%06d the quick brown fox\n" % n for n in range(10_000))
LAST_TURN = 320


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a thread with turns, forks, patches, keys and blobs, for copying."""
    path = eventq.init(tmp_path_factory.mktemp("full") / "thread")
    with eventq.open(path) as thread, thread.write():
        main = thread.contexts.create("main")
        for number in range(LAST_TURN - 20):
            main.append(b"turn %d" % number, key=f"k{number}" if number % 3 == 0 else None)
        for number in range(20):
            fork = main.fork(at=1 + number * 10)
            fork.append(b"fork %d" % number)
            thread.contexts.patch(1 + number, b"patch %d" % number)
            thread.contexts.attach(11 + number * 10, thread.blobs.put(b"tree %d" % number).hash)
            thread.blobs.pin(thread.blobs.put(b"pinned %d" % number).ref, "me")
            thread.push("self", "note", thread.blobs.put(b"pinned %d" % number).ref)
        leaf = thread.blobs.put(b"leaf")
        thread.blobs.put(NOISE, refs=[leaf.ref])
        thread.blobs.put(TEXT, refs=[leaf.ref])
        opened = main.open_turn()
        opened.append_delta(b"delta")
    return path


def bad(sql: str, step: str) -> bool:
    """Return whether a step reads a whole table or index of the memory, or makes an index."""
    return scans(TABLES, sql, step)


class Use:
    """What the calls are made on."""

    def __init__(self, thread: eventq.Thread) -> None:
        self.thread, self.contexts, self.blobs = thread, thread.contexts, thread.blobs
        self.main = self.contexts.get("main")
        self.head = self.main.head_id()
        self.leaf = self.blobs.put(b"leaf").ref
        self.large = self.blobs.put(NOISE).ref
        self.opened = self.main.open_turns()[0].open_id
        self.new = NewTurn(b"new", refs=[self.leaf])


def caused(use: Use) -> list[object]:
    """Write with a cause, and ask what came of it."""
    thread = use.thread
    with thread.during(1, 2):
        event, turn = thread.push("self", "note", "x"), use.main.append(b"caused")
    return [
        thread.caused_by(1), thread.causes_of(event=event.id), thread.causes_of(turn=turn.turn_id),
        [*thread.peek(cause=1)], thread.database.memory.causes.of_events(3, 9),
        thread.database.memory.causes.of_turns((5, "", 0), 9),
    ]  # fmt: skip


CALLS: dict[str, Callable[[Use], object]] = {
    "causes": caused,
    "append": lambda use: use.main.append(b"a new turn"),
    "append what is there": lambda use: use.main.append(b"turn 7"),
    "append a text": lambda use: use.main.append(TEXT[:100_000]),
    "append with all": lambda use: use.main.append(
        use.new, key="new", expected_head=use.head, source="self"
    ),
    "append with a known key": lambda use: use.main.append(b"turn 0", key="k0"),
    "append after another": lambda use: use.main.append(b"after", parent=5),
    "last": lambda use: [use.main.last(), use.main.last(payload=False), use.main.last(5, as_of=3)],
    "before": lambda use: use.main.before(200, 64),
    "range": lambda use: use.main.range(100, 64),
    "replay": lambda use: list(use.main.replay()),
    "ancestor": lambda use: [use.main.ancestor(depth) for depth in (0, 17, 250)],
    "has": lambda use: use.main.has(17),
    "common ancestor": lambda use: use.main.common_ancestor(use.contexts.get(5)),
    "diff": lambda use: use.main.diff(use.contexts.get(5)).ancestor,
    "turn": lambda use: [use.contexts.turn(17), use.contexts.turn(17, as_of=0)],
    "children": lambda use: use.contexts.children(11),
    "create": lambda use: [use.contexts.create(), use.contexts.create("new", base=9)],
    "get": lambda use: [use.contexts.get("main"), use.contexts.get(3), use.main.info()],
    "list": lambda use: next(use.contexts.list(5)),
    "history": lambda use: list(use.main.history()),
    "fork": lambda use: [use.main.fork(), use.main.fork(at=17, name="fork")],
    "move": lambda use: use.main.move(17, expected_head=use.head),
    "patch": lambda use: [use.contexts.patch(17, b"patched"), use.contexts.tombstone(18)],
    "attach": lambda use: [*map(use.contexts.attach, (17, 21, use.head), [use.leaf] * 3)],
    "root": lambda use: [*map(use.contexts.root, (5, 21, 200, use.head, LAST_TURN))],
    "delete": lambda use: use.contexts.delete(7),
    "follow": lambda use: [
        use.main.append(b"followed"),
        use.thread.database.memory.contexts.appended(LAST_TURN, 100),
        use.thread.database.memory.contexts.born(3, 100),
    ],
    "delta": lambda use: use.contexts.open_turn(use.opened).append_delta(b"more"),
    "put": lambda use: use.blobs.put(b"new bytes", refs=[use.leaf]),
    "put what is there": lambda use: use.blobs.put(b"turn 7"),
    "put a text": lambda use: use.blobs.put(TEXT[:90_000]),
    "put a file": lambda use: use.blobs.put(io.BytesIO(NOISE + b"x")),
    "get a blob": lambda use: [
        use.blobs.get(use.leaf), use.blobs.get(use.large), list(use.blobs.stream(use.large)),
    ],
    "stat": lambda use: [
        use.blobs.stat(use.leaf), use.blobs.has(use.leaf), use.blobs.refs(use.large),
    ],
    "holders": lambda use: use.blobs.holders(use.leaf),
    "pin": lambda use: use.blobs.pin(use.leaf, "you"),
    "unpin": lambda use: use.blobs.unpin(use.leaf, "you"),
    "verify one": lambda use: use.blobs.verify(use.large),
    "blobs by hash": lambda use: next(iter(use.blobs)),
    "reachable": lambda use: use.thread.reachable(["turn:17", use.large]),
    "push of a ref": lambda use: use.thread.push("self", "note", use.leaf),
    "prune": lambda use: use.thread.prune(before_id=3),
}  # fmt: skip
SORTED = [
    "append", "last", "before", "range", "list", "history", "root", "put",
]  # fmt: skip


def test_the_test_can_fail(traced: Traced) -> None:
    """A scan is recognised, by the table's name and by another."""
    queries = [
        "SELECT * FROM turns WHERE depth = 3",
        "SELECT count(*) FROM blobs b WHERE raw_len > 3",
        "SELECT 1 FROM contexts c JOIN turns t ON t.depth = c.version",
        "SELECT max(at_ms) FROM context_log",
        "SELECT blob_id FROM turns ORDER BY blob_id",
        "SELECT turn_id FROM turn_roots r WHERE length(root) = 32",
    ]
    for sql in queries:
        assert any(bad(sql, step) for step in traced.plan(sql)), sql
    good = "SELECT * FROM turns t JOIN blobs b ON b.blob_id = t.blob_id WHERE turn_id = 3"
    assert not any(bad(good, step) for step in traced.plan(good))


@pytest.mark.parametrize("name", CALLS)
def test_nothing_scans_the_memory(traced: Traced, name: str) -> None:
    """Whatever is run for a turn, a context or a blob goes by an index or an id."""
    use = Use(traced.thread)
    assert [one for one in traced.of(lambda: CALLS[name](use)) if bad(*one)] == []


def test_nothing_sorts_what_is_stored(traced: Traced) -> None:
    """Pages of turns, contexts, moves and blobs come in the order of an index."""
    use = Use(traced.thread)
    for name in (*SORTED, "get a blob", "blobs by hash"):
        steps = traced.of(lambda name=name: CALLS[name](use))  # type: ignore[misc]
        assert [step for _, step in steps if "TEMP B-TREE" in step] == []


def test_a_seal(traced: Traced) -> None:
    """Sealing an open turn looks at that one; open turns are few, their table may be read."""
    opened = traced.thread.contexts.open_turn(1)
    steps = traced.of(opened.seal)
    assert [one for one in steps if bad(*one) and "open_turns" not in one[1]] == []


def test_a_collection_deletes_by_id(traced: Traced) -> None:
    """What a collection deletes is found by its id, whatever the search before it reads."""
    thread = traced.thread
    thread.contexts.get("main").move(3)
    traced.statements.clear()
    thread.gc(apply=True, grace=0)
    plans = {sql.split()[2]: traced.plan(sql, given) for sql, given in traced.statements
             if sql.startswith("DELETE FROM")}  # fmt: skip
    by_id = {"turns", "blob_refs", "blob_parts", "blobs"}
    assert {*plans} == {"turn_keys", *by_id}
    for table in by_id:
        key = "PRIMARY KEY (blob_id=?)" if "_" in table else "INTEGER PRIMARY KEY (rowid=?)"
        assert plans[table][0] == f"SEARCH {table} USING {key}"


KINDS = (
    AliasCopy, AttemptCopy, ContextCopy, ErasedCopy, FileCopy, LineCopy, OutputCopy, PatchCopy,
    PinCopy, RefCopy, RootCopy, RunCopy, ScopeRow, SessionCopy, TipCopy,
)  # fmt: skip


def records(kind: Any) -> Callable[[Selection], object]:
    """Return what reads the records of a kind."""
    return lambda chosen: [*chosen.records(kind)]


READS: dict[str, Callable[[Selection], object]] = {
    **{kind.__name__: records(kind) for kind in KINDS},
    "blobs": lambda chosen: [*chosen.blobs()],
    "turns": lambda chosen: [*chosen.turns()],
    "rules": lambda chosen: [*chosen.turns(canonical=True)],
    "artifacts": lambda chosen: [*chosen.artifacts()],
}
PRODUCED = {
    "artifacts", "agent_outputs", "files", "session_lines", "scopes", "runs", "run_attempts",
    "session_tips", "blob_names", "erased_blobs",
}  # fmt: skip


@pytest.mark.parametrize("contexts", [None, ["main", 3]], ids=["all", "some"])
@pytest.mark.parametrize("name", READS)
def test_a_copy_reads_what_it_copies(
    name: str, contexts: list[int | str] | None, traced: Traced
) -> None:
    """A page of a copy begins after the one before it or goes by ids, and nothing is sorted."""
    chosen = traced.thread.database.memory.copies.select(contexts)
    traced.statements.clear()
    READS[name](chosen)  # what is not chosen need not be asked for
    ran = dict(traced.statements)
    steps = [(sql, step) for sql, given in ran.items() for step in traced.plan(sql, given)]
    assert steps or contexts
    assert [one for one in steps if scans(TABLES | PRODUCED, *one)] == []
    assert [one for one in steps if "TEMP B-TREE" in one[1]] == []


@pytest.mark.parametrize("contexts", [["main"], ["main", 3, 4, 5]])
def test_a_choice_reads_what_it_chooses(contexts: list[int | str], traced: Traced) -> None:
    """What contexts lead to is found by indexes; sessions are few, their table may be read."""
    copies = traced.thread.database.memory.copies
    steps = traced.of(lambda: copies.select(contexts))
    assert [one for one in steps if scans(TABLES | PRODUCED, *one)] == []


def test_every_foreign_key_has_an_index(traced: Traced) -> None:
    """SQLite looks for rows that refer to one that goes: each look goes by an index."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    tables = [row[0] for row in traced.plain.execute(sql)]
    looks = [
        (str(table), str(row[3]))
        for table in tables
        for row in traced.plain.execute(f"PRAGMA foreign_key_list({table})")
        if row[2] in ("turns", "blobs", "contexts", "open_turns")
    ]
    assert len(looks) > 10
    for table, column in looks:
        (step,) = traced.plan(f"SELECT 1 FROM {table} WHERE {column} = ?", (1,))
        assert step.startswith(f"SEARCH {table} USING "), (table, column)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("append", 14), ("put", 12), ("last", 7), ("ancestor", 6), ("fork", 18), ("attach", 15),
        ("root", 10),
    ],
)  # fmt: skip
def test_few_statements_are_run(traced: Traced, name: str, most: int) -> None:
    """The number of statements of a call does not grow with what is stored."""
    use = Use(traced.thread)
    traced.statements.clear()
    CALLS[name](use)
    assert len(traced.statements) <= most


def test_an_ancestor_takes_few_steps(traced: Traced) -> None:
    """The way to any depth goes over jumps: its rows grow with the logarithm of the depth."""
    thread = traced.thread
    context = thread.contexts.create()
    with thread.write():
        turns = [context.append(b"x").turn_id for _ in range(3_000)]
    sql = "SELECT turn_id, parent_id || ' ' || jump_id || ' ' || jump_depth FROM turns"
    link = dict(sqlite(thread.database).run(sql))
    for depth in (0, 1, 17, 1_500, 2_047, 2_998, 2_999):
        assert context.ancestor(depth) == turns[depth]
        at, steps = turns[-1], 0
        while at != turns[depth]:
            parent, jump, jump_depth = map(int, str(link[at]).split())
            at, steps = (jump if jump_depth >= depth else parent), steps + 1
        assert steps <= 34
