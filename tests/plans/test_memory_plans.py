"""A turn and a blob cost what they are, not what is stored: the query plans of all that is run for them."""

from __future__ import annotations

import io
import itertools
import random
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records import NewTurn
from tests.plans.test_plans import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

# Not open_turns: there are few, and they are read as a whole.
TABLES = {
    "turns", "blobs", "blob_bytes", "blob_parts", "blob_refs", "contexts", "context_log", "turn_patches", "turn_keys",
    "pins", "event_blob_refs", "open_pieces", "turn_roots",
}  # fmt: skip
NOISE = random.Random(31).randbytes(2_500_000)
TEXT = b"".join(b"%06d the quick brown fox\n" % n for n in range(10_000))
LAST_TURN = 320


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a thread with turns, forks, overlays, keys and blobs, for copying."""
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


def tables_of(traced: Traced, sql: str) -> dict[str, str]:
    """Give the tables that a statement calls by another name: `turns t`, `blobs b`."""
    words = sql.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return {alias: table for table, alias in itertools.pairwise(words) if table in TABLES}


def bad(traced: Traced, sql: str, step: str) -> bool:
    """Say whether a step reads a whole table or index of the memory, makes an index of its own, or sorts one."""
    words = step.split()
    if "AUTOMATIC" in words:
        return True
    if words[0] not in ("SCAN", "SEARCH") or (words[0] == "SEARCH" and "(" in step):
        return False
    if "FROM turn_keys ORDER BY number LIMIT 2)" in sql:
        return False  # it is the first two
    return words[1] in TABLES or tables_of(traced, sql).get(words[1]) in TABLES


def calls(thread: eventq.Thread) -> dict[str, Callable[[], object]]:
    """Give what a turn, a context and a blob are used by."""
    contexts, blobs = thread.contexts, thread.blobs
    main = contexts.get("main")
    leaf = blobs.put(b"leaf")
    large = blobs.put(NOISE)
    head = main.head_id()
    open_id = main.open_turns()[0].open_id
    return {
        "append": lambda: main.append(b"a new turn"),
        "append what is there": lambda: main.append(b"turn 7"),
        "append a text": lambda: main.append(TEXT[:100_000]),
        "append with all": lambda: main.append(
            NewTurn(b"new", refs=[leaf.ref]), key="new", expected_head=head, source="self"
        ),
        "append with a known key": lambda: main.append(b"turn 0", key="k0"),
        "append after another": lambda: main.append(b"after", parent=5),
        "last": lambda: [main.last(), main.last(payload=False), main.last(5, as_of=3)],
        "before": lambda: main.before(200, 64),
        "range": lambda: main.range(100, 64),
        "replay": lambda: list(main.replay()),
        "ancestor": lambda: [main.ancestor(depth) for depth in (0, 17, 250)],
        "has": lambda: main.has(17),
        "common ancestor": lambda: main.common_ancestor(contexts.get(5)),
        "diff": lambda: [main.diff(contexts.get(5)).ancestor],
        "turn": lambda: [contexts.turn(17), contexts.turn(17, as_of=0)],
        "children": lambda: contexts.children(11),
        "create": lambda: [contexts.create(), contexts.create("new", base=9)],
        "get": lambda: [contexts.get("main"), contexts.get(3), main.info()],
        "list": lambda: next(contexts.list(5)),
        "history": lambda: list(main.history()),
        "fork": lambda: [main.fork(), main.fork(at=17, name="fork")],
        "move": lambda: main.move(17, expected_head=head),
        "patch": lambda: [contexts.patch(17, b"patched"), contexts.tombstone(18)],
        "attach": lambda: [contexts.attach(turn, leaf.ref) for turn in (17, 21, head)],  # type: ignore[func-returns-value]
        "root": lambda: [contexts.root(turn) for turn in (5, 21, 200, head, LAST_TURN)],
        "delete": lambda: contexts.delete(7),
        "delta": lambda: contexts.open_turn(open_id).append_delta(b"more"),
        "put": lambda: blobs.put(b"new bytes", refs=[leaf.ref]),
        "put what is there": lambda: blobs.put(b"turn 7"),
        "put a text": lambda: blobs.put(TEXT[:90_000]),
        "put a file": lambda: blobs.put(io.BytesIO(NOISE + b"x")),
        "get a blob": lambda: [
            blobs.get(leaf.ref),
            blobs.get(large.ref),
            list(blobs.stream(large.ref)),
        ],
        "stat": lambda: [blobs.stat(leaf.ref), blobs.has(leaf.ref), blobs.refs(large.ref)],
        "holders": lambda: blobs.holders(leaf.ref),
        "pin": lambda: [thread.blobs.pin(leaf.ref, "you"), blobs.unpin(leaf.ref, "you")],  # type: ignore[func-returns-value]
        "verify one": lambda: blobs.verify(large.ref),
        "blobs by hash": lambda: next(iter(blobs)),
        "push of a ref": lambda: thread.push("self", "note", leaf.ref),
        "prune": lambda: thread.prune(before_id=3),
    }


NAMES = [
    "append", "append what is there", "append a text", "append with all", "append with a known key",
    "append after another", "last", "before", "range", "replay", "ancestor", "has", "common ancestor", "diff", "turn",
    "children", "create", "get", "list", "history", "fork", "move", "patch", "attach", "root", "delete", "delta", "put",
    "put what is there", "put a text", "put a file", "get a blob", "stat", "holders", "pin", "verify one",
    "blobs by hash", "push of a ref", "prune",
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
    assert [
        sql for sql in queries if not any(bad(traced, sql, step) for step in traced.plan(sql))
    ] == []
    good = "SELECT * FROM turns t JOIN blobs b ON b.blob_id = t.blob_id WHERE turn_id = 3"
    assert not any(bad(traced, good, step) for step in traced.plan(good))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_scans_the_memory(traced: Traced, name: str) -> None:
    """Row 32 and the targets: whatever is run for a turn, a context or a blob goes by an index or an id."""
    work = calls(traced.thread)[name]
    traced.statements.clear()
    work()
    ran = list(traced.statements)
    assert ran
    steps = [(sql, step) for sql, bindings in ran for step in traced.plan(sql, bindings)]
    assert [(sql, step) for sql, step in steps if bad(traced, sql, step)] == []


def test_every_call_is_looked_at(traced: Traced) -> None:
    """The list of names is the list of calls."""
    assert list(calls(traced.thread)) == NAMES


def test_nothing_sorts_what_is_stored(traced: Traced) -> None:
    """Pages of turns, contexts, moves and blobs come in the order of an index, none is sorted for them."""
    work = calls(traced.thread)
    for name in (
        "append",
        "last",
        "before",
        "range",
        "list",
        "history",
        "root",
        "put",
        "get a blob",
        "blobs by hash",
    ):
        assert [step for _, step in traced.of(work[name]) if "TEMP B-TREE" in step] == []


def test_a_seal(traced: Traced) -> None:
    """Sealing an open turn of one context looks at that one; open turns are few, and their table may be read."""
    opened = traced.thread.contexts.open_turn(1)
    traced.statements.clear()
    opened.seal()
    steps = [
        (sql, step) for sql, bindings in traced.statements for step in traced.plan(sql, bindings)
    ]
    assert [
        step for sql, step in steps if bad(traced, sql, step) and "open_turns" not in step
    ] == []


def test_a_collection_deletes_by_id(traced: Traced) -> None:
    """GC: what is deleted of turns and blobs is found by its id, whatever the search before it reads."""
    thread = traced.thread
    thread.contexts.get("main").move(3)
    traced.statements.clear()
    thread.gc(apply=True, grace=0)
    ran = [sql for sql, _ in traced.statements if sql.startswith("DELETE FROM")]
    for sql in (
        "CREATE TEMP TABLE dead_turns (turn_id INTEGER PRIMARY KEY)",
        "CREATE TEMP TABLE dead_blobs (blob_id INTEGER PRIMARY KEY, hash, raw_len, stored_len, codec, part)",
    ):
        traced.plain.execute(sql)
    plans = {sql.split()[2]: traced.plan(sql, (0,) * sql.count("?")) for sql in ran}
    assert set(plans) == {"turn_keys", "turns", "blobs"}
    assert plans["turns"][0] == "SEARCH turns USING INTEGER PRIMARY KEY (rowid=?)"
    assert plans["blobs"][0] == "SEARCH blobs USING INTEGER PRIMARY KEY (rowid=?)"


PAGES = {
    "patches": ("turn_patches", "chosen_turns"),
    "roots": ("turn_roots", "chosen_turns"),
    "refs": ("chosen_blobs", "blobs"),
    "runs": ("runs", "chosen_contexts"),
    "attempts": ("run_attempts", "chosen_turns"),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_go_on_where_the_last_ended(name: str, traced: Traced) -> None:
    """A pack: a page begins after the one before it, whatever is chosen, and nothing is sorted."""
    table = traced.thread.database.copies.select(None)
    for one in ("turns", "contexts", "blobs"):
        traced.plain.execute(f"CREATE TEMP TABLE chosen_{one} ({one[:-1]}_id INTEGER PRIMARY KEY)")
    steps = [
        step.replace(" p ", " turn_patches ").replace(" c ", " chosen_blobs ")
        for _, step in traced.of(lambda: list(getattr(table, name)()))
    ]
    first, second = PAGES[name]
    assert steps[:2] == [
        f"SEARCH {first} USING INTEGER PRIMARY KEY (rowid>?)",
        f"SEARCH {second} USING INTEGER PRIMARY KEY (rowid=?)",
    ]
    assert not any("SCAN" in step for step in steps)


def test_every_foreign_key_has_an_index(traced: Traced) -> None:
    """GC: for every row that goes, SQLite looks for rows that refer to it: each of these looks goes by an index."""
    tables = [
        row[0]
        for row in traced.plain.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
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
        ("append", 14),
        ("put", 12),
        ("last", 7),
        ("ancestor", 6),
        ("fork", 18),
        ("attach", 12),
        ("root", 10),
    ],
)
def test_few_statements_are_run(traced: Traced, name: str, most: int) -> None:
    """The number of statements of a call does not grow with what is stored."""
    work = calls(traced.thread)[name]
    traced.statements.clear()
    work()
    assert len(traced.statements) <= most


def test_an_ancestor_takes_few_steps(traced: Traced) -> None:
    """The way to any depth goes over jumps: its rows grow with the logarithm of the depth, not with the depth."""
    thread = traced.thread
    context = thread.contexts.create()
    with thread.write():
        turns = [context.append(b"x").turn_id for _ in range(3_000)]
    link = dict(
        thread.database.run(
            "SELECT turn_id, parent_id || ' ' || jump_id || ' ' || jump_depth FROM turns"
        )
    )
    for depth in (0, 1, 17, 1_500, 2_047, 2_998, 2_999):
        assert context.ancestor(depth) == turns[depth]
        at, steps = turns[-1], 0
        while at != turns[depth]:
            parent, jump, jump_depth = map(int, str(link[at]).split())
            at, steps = (jump if jump_depth >= depth else parent), steps + 1
        assert steps <= 34
