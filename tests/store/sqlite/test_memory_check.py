"""A check names each fault of turns, contexts and what hangs on them in one sentence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.records.turn import NewTurn
from tests.contract.support import found
from tests.crash.support import copy
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator

INSERT = (
    "INSERT INTO turns (turn_id, depth, type_id, type_version, encoding, blob_id, flags,"
    " created_at_ms) VALUES ({}, 0, 'x', 1, 0, 1, 0, 0)"
)
GONE = "a row of {} refers to a row of {} that is not there"


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a thread with everything, to copy.

    Turns 1 to 8 are one chain, of which 2 to 8 jump to 1, 2, 1, 4, 5, 4, 1; 9 and 10 branch off at
    4 and jump to 4 and 9; 11 and 12 are roots, 13 comes after 12. Context 1 stands at turn 8, 2
    (its fork) at 10, 3 is empty. Open turn 1 has 5,000 bytes.
    """
    path = eventq.init(tmp_path_factory.mktemp("everything") / "thread")
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for number in range(8):
            main.append(f"turn {number}", key="k" if number == 4 else None)
        fork = main.fork(at=4)
        fork.append(b"nine", source="self")
        fork.append(NewTurn(b"ten", refs=[thread.blobs.put(b"named").ref]))
        thread.contexts.create("empty")
        main.patch(2, b"patched")
        main.tombstone(3)
        thread.contexts.attach(2, thread.blobs.put(b"tree").ref)
        opened = main.open_turn()
        opened.append_delta(b"x" * 4000)
        opened.append_delta(b"y" * 1000)
        thread.blobs.pin(thread.blobs.put(b"pinned").ref, "me")
        thread.blobs.put(b"".join(b"%d," % number for number in range(50_000)))
        gone = thread.contexts.create("gone")
        gone.append(b"eleven")
        gone.delete()
        gone = thread.contexts.create("gone too")
        gone.append(b"twelve")
        gone.append(b"thirteen")
        gone.delete()
        assert thread.check() == []
    return path


@pytest.fixture
def broken(path: str, everything: str) -> Iterator[apsw.Connection]:
    """Return a connection to a copy of it, without foreign keys and checks."""
    copy(everything, path)
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.pragma("foreign_keys", 0)
    connection.pragma("ignore_check_constraints", 1)
    yield connection
    connection.close()


def plant(connection: apsw.Connection, sql: str) -> None:
    """Change what may not be changed."""
    sql_of = "SELECT sql FROM sqlite_master WHERE name = 'turns_are_immutable'"
    ((trigger,),) = connection.execute(sql_of).fetchall()
    connection.execute("DROP TRIGGER turns_are_immutable")
    connection.execute(sql)
    connection.execute(str(trigger))


CONTEXT = "UPDATE contexts SET {} WHERE context_id = 1"
TURN = "UPDATE turns SET {} WHERE turn_id = {}"
FAULTS = {
    "the depth of a turn at the tip": (
        TURN.format("depth = 7", 10),
        ["turn 10 has depth 7, and its parent 4"],
    ),
    "the depth of the first of a branch": (
        TURN.format("depth = 5, parent_id = 3, jump_id = 1, jump_depth = 0", 11),
        ["turn 11 has depth 5, and its parent 2"],
    ),
    "a jump to the parent, not over two equal ones": (
        TURN.format("jump_id = 7, jump_depth = 6", 8),
        ["turn 8 jumps to 7, not to 1"],
    ),
    "a jump that goes too far": (
        TURN.format("jump_id = 4, jump_depth = 3", 10),
        ["turn 10 jumps to 4, not to 9"],
    ),
    "a jump to another branch": (TURN.format("jump_id = 5", 10), ["turn 10 jumps to 5, not to 9"]),
    "a jump to the wrong depth": (
        TURN.format("jump_depth = jump_depth + 1", 8),
        ["turn 8 says that turn 1 has depth 1"],
    ),
    "a jump to nowhere": (
        TURN.format("jump_id = 99", 8),
        ["turn 8 jumps to 99, not to 1", "turn 8 says that turn 99 has depth 0"],
    ),
    "an id of 0": (INSERT.format(0), ["turn 0 has an id below 1"]),
    "a negative id": (INSERT.format(-7), ["turn -7 has an id below 1"]),
    "a parent that is not there": (
        "DELETE FROM turns WHERE turn_id = 12",
        ["turn 13 says that turn 12 has depth 0", GONE.format("turns", "turns")],
    ),
    "a payload that is not there": (
        TURN.format("blob_id = 999", 8),
        [GONE.format("turns", "blobs")],
    ),
    "a head that is not there": (
        CONTEXT.format("head_id = 99") + "; UPDATE context_log SET new_id = 99 WHERE new_id = 8",
        [GONE.format("contexts", "turns")],
    ),
    "a base that is not there": (
        "UPDATE contexts SET base_id = 99 WHERE context_id = 2",
        [GONE.format("contexts", "turns")],
    ),
    "an origin that is not there": (
        "UPDATE contexts SET fork_of = 99 WHERE context_id = 2",
        [GONE.format("contexts", "contexts")],
    ),
    "a patch of no turn": (
        "UPDATE turn_patches SET turn_id = 99 WHERE seq = 1",
        [GONE.format("turn_patches", "turns")],
    ),
    "a patch without its payload": (
        "UPDATE turn_patches SET blob_id = 999 WHERE seq = 1",
        [GONE.format("turn_patches", "blobs")],
    ),
    "a root of no turn": (
        "UPDATE turn_roots SET turn_id = 99",
        [GONE.format("turn_roots", "turns")],
    ),
    "an open turn of no context": (
        "UPDATE open_turns SET context_id = 99",
        [GONE.format("open_turns", "contexts")],
    ),
    "a piece of no open turn": (
        "INSERT INTO open_pieces VALUES (99, 0, x'00')",
        [GONE.format("open_pieces", "open_turns")],
    ),
    "a ref to nothing": ("UPDATE blob_refs SET ref_id = 999", [GONE.format("blob_refs", "blobs")]),
    "a pin of nothing": ("UPDATE pins SET blob_id = 999", [GONE.format("pins", "blobs")]),
    "a version ahead of its moves": (
        CONTEXT.format("version = 9"),
        ["context 1 has version 9, and its newest move is 8"],
    ),
    "a version behind its moves": (
        CONTEXT.format("version = 7, head_id = 7"),
        ["context 1 has version 7, and its newest move is 8"],
    ),
    "a lost history": (
        "DELETE FROM context_log WHERE context_id = 2",
        ["context 2 has version 2, and its newest move is 0"],
    ),
    "a head that no move went to": (
        CONTEXT.format("head_id = 5"),
        ["context 1 stands at turn 5, and its newest move went to 8"],
    ),
    "a head that is lost": (
        CONTEXT.format("head_id = NULL"),
        ["context 1 stands at turn 0, and its newest move went to 8"],
    ),
    "a move to nowhere": (
        "UPDATE context_log SET new_id = NULL WHERE context_id = 1 AND version = 8",
        ["context 1 stands at turn 8, and its newest move went to 0"],
    ),
    "an open turn with too few bytes": (
        "UPDATE open_turns SET size = 5001",
        ["open turn 1 has 5001 bytes, and its pieces 5000"],
    ),
    "an open turn that has lost a piece": (
        "DELETE FROM open_pieces WHERE position = 0",
        ["open turn 1 has 5000 bytes, and its pieces 1000"],
    ),
    "an open turn that has lost all": (
        "DELETE FROM open_pieces",
        ["open turn 1 has 5000 bytes, and its pieces 0"],
    ),
    "a key of no turn": (
        "UPDATE turn_keys SET turn_id = 99",
        ["key 'k' of context 1 names turn 99, which is not stored"],
    ),
}
BAD = "the database is damaged: CHECK constraint failed in turns"
UNCHECKED = {  # what only a CHECK forbids, and the turn at fault
    "a parent that is later": (
        f"{TURN.format('turn_id = 20', 9)}; {TURN.format('parent_id = 20, jump_id = 20', 10)}",
        10,
    ),
    "a root that says it is deep": (TURN.format("depth = 1, jump_id = 1, jump_depth = 0", 11), 11),
    "a root without a jump that says it is deep": (TURN.format("depth = 7", 11), 11),
    "a turn without a jump": (TURN.format("jump_id = NULL, jump_depth = NULL", 8), 8),
    "a root with a jump": (TURN.format("jump_id = 1, jump_depth = 0", 11), 11),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_said(path: str, broken: apsw.Connection, name: str) -> None:
    """A fault is one sentence, to a writer and to a reader, and nothing else is said."""
    sql, expected = FAULTS[name]
    plant(broken, sql)
    assert found(path) == expected
    assert found(path, read_only=True) == expected


@pytest.mark.parametrize("name", UNCHECKED)
def test_what_a_check_constraint_forbids_is_said(
    path: str, broken: apsw.Connection, name: str
) -> None:
    """A row that the schema forbids is said; also to a reader, whose SQLite checks no CHECK."""
    sql, turn = UNCHECKED[name]
    plant(broken, sql)
    said = found(path, read_only=True)
    begins = (f"turn {turn} is not later", f"turn {turn} has depth")
    assert any(text.startswith(begins) for text in said)
    assert found(path) == [BAD, *said]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_root_of_another_length_is_said(path: str, broken: apsw.Connection, size: int) -> None:
    """A root that is no hash is said, also to a reader."""
    plant(broken, f"UPDATE turn_roots SET root = zeroblob({size})")
    said = [f"the root of turn 2 has {size} bytes, not 32"]
    assert found(path, read_only=True) == said
    assert found(path) == [BAD.replace("turns", "turn_roots"), *said]


def test_a_sound_store_says_nothing(path: str, broken: apsw.Connection) -> None:
    """A sound thread with some of everything checks out; so does a collected one."""
    plant(broken, "SELECT 1")
    assert found(path) == []
    with eventq.open(path) as thread:
        thread.contexts.delete(2)
        thread.contexts.delete(3)
        thread.gc(apply=True, grace=0)
        assert thread.check() == []


def test_every_kind_of_fault_is_planted(path: str) -> None:
    """Each statement that looks for a fault has a fault above that it finds."""
    openings: list[str] = []
    with eventq.open(path) as thread:
        database = sqlite(thread.database)
        database.connection.exec_trace = lambda _, sql, __: not openings.append(sql.split("'")[1])  # type: ignore[func-returns-value]
        database.memory.turns.faults()
        database.connection.exec_trace = None
    assert len(openings) > 5
    said = [text for _, texts in FAULTS.values() for text in texts]
    said += [f"turn {turn} is not later" for _, turn in UNCHECKED.values()]
    for opening in openings:
        assert any(text.startswith(opening) for text in said)


def test_many_faults_are_not_all_said(path: str, broken: apsw.Connection) -> None:
    """At most 20 of a kind are said."""
    plant(
        broken,
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50)"
        " INSERT INTO turn_keys (context_id, key, turn_id, digest, created_at_ms)"
        " SELECT 1, n, 1000 + n, x'00', 0 FROM n",
    )
    assert found(path) == [
        f"key '{n}' of context 1 names turn {1000 + n}, which is not stored" for n in range(1, 21)
    ]


def test_a_lost_table_is_said(path: str, broken: apsw.Connection) -> None:
    """What is too broken to be looked at is said as well, and the blobs are still looked at."""
    broken.execute("DROP TABLE turn_keys")
    broken.execute("UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = 1")
    texts = found(path)
    assert len(texts) == 3
    assert "lacks its table 'turn_keys'" in texts[0]
    assert "blob:blake3:" in texts[2]
