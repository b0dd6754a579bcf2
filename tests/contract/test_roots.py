"""Roots of file trees: a turn has its own or its nearest ancestor's, and keeps the blob of its own as long as it lives."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq import InputError, UsageError
from eventq.errors import ReadOnlyError, StoreError, UnknownTurnError
from eventq.records import NewTurn

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = (bytes(blake3(data).digest()) for data in (b"tree a", b"tree b", b"tree c"))
OUTPUT = [
    "removed_artifacts",
    "artifact_chunks",
    "artifacts",
    "counters",
    "agent_outputs",
    "blob_names",
]


pytestmark = pytest.mark.usefixtures("quick")


def roots(thread: eventq.Thread) -> dict[int, bytes]:
    """Give the roots that turns have of their own."""
    return dict(thread.database.run("SELECT turn_id, root FROM turn_roots"))


def opcodes(thread: eventq.Thread, turn_id: int) -> int:
    """Give about how many instructions SQLite runs to find the root of a turn."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 10
        return False

    connection = thread.database.connection
    connection.set_progress_handler(tick, 10)
    thread.contexts.root(turn_id)
    connection.set_progress_handler(None)
    return count


# --- whose root it is -------------------------------------------------------------------------------------------------


def test_a_turn_has_its_own_root_or_the_nearest_above(thread: eventq.Thread) -> None:
    """A root is handed down the chain to the next turn with one, along forks too; what is above has none of it."""
    main = thread.contexts.create("main")
    for number in range(6):
        main.append(f"turn {number}")
    fork = main.fork(at=3)
    for number in range(3):
        fork.append(f"fork {number}")
    root, attach = thread.contexts.root, thread.contexts.attach
    assert [root(turn) for turn in range(1, 10)] == [None] * 9
    attach(2, A)
    attach(5, B)
    attach(8, C)
    assert [root(turn) for turn in range(1, 10)] == [None, A, A, A, B, B, A, C, C]
    attach(3, C)
    assert [root(turn) for turn in range(1, 10)] == [None, A, C, C, B, B, C, C, C]


def test_a_root_is_replaced(thread: eventq.Thread) -> None:
    """The last root that a turn was given counts; the turn itself does not change."""
    main = thread.contexts.create()
    before = main.append("one")
    main.append("two")
    for root in (A, B, B, C):
        thread.contexts.attach(1, root)
        assert [thread.contexts.root(1), thread.contexts.root(2)] == [root, root]
    assert roots(thread) == {1: C}
    assert thread.contexts.turn(1, payload=False) == before


def test_add_keeps_what_is_there(thread: eventq.Thread) -> None:
    """`attach` with `only_new` gives a root to a turn without one of its own, whatever it inherits, and says what the turn has."""
    main = thread.contexts.create()
    main.append("one")
    main.append("two")
    given = [(1, A), (1, B), (2, B), (2, B)]
    assert [thread.database.turns.attach(*one, only_new=True) for one in given] == [A, A, B, B]
    assert roots(thread) == {1: A, 2: B}


@pytest.mark.parametrize("name", [A, A.hex(), f"blob:blake3:{A.hex()}"])
def test_how_a_root_is_given(thread: eventq.Thread, name: Any) -> None:
    """A root is 32 bytes, or a blob's name; it comes back as bytes, stored or not."""
    thread.contexts.create().append("one")
    thread.contexts.attach(1, name)
    assert thread.contexts.root(1) == A
    assert not thread.blobs.has(A)


@pytest.mark.parametrize(
    "name", [b"", A[:31], A + b"x", A.hex().upper(), A.hex()[:62], "", None, 7, bytearray(A)]
)
def test_what_is_no_root(thread: eventq.Thread, name: Any) -> None:
    """What is no hash is refused, and nothing is stored."""
    thread.contexts.create().append("one")
    with pytest.raises(InputError):
        thread.contexts.attach(1, name)
    assert roots(thread) == {}


@pytest.mark.parametrize("turn", [0, 2, 1 << 62])
def test_no_such_turn(thread: eventq.Thread, turn: int) -> None:
    """A turn that is not there has no root, and gets none."""
    thread.contexts.create().append("one")
    with pytest.raises(UnknownTurnError):
        thread.contexts.attach(turn, A)
    with pytest.raises(UnknownTurnError):
        thread.contexts.root(turn)
    assert roots(thread) == {}


@pytest.mark.parametrize("turn", [-1, "1", 1.0, True, None])
def test_what_is_no_turn(thread: eventq.Thread, turn: Any) -> None:
    """What is no id is refused."""
    thread.contexts.create().append("one")
    with pytest.raises(UsageError):
        thread.contexts.attach(turn, A)
    with pytest.raises(UsageError):
        thread.contexts.root(turn)
    assert roots(thread) == {}


def test_inside_a_block_that_is_undone(thread: eventq.Thread) -> None:
    """A root commits with what is around it, or not at all."""
    main = thread.contexts.create()
    main.append("one")
    thread.contexts.attach(1, A)
    with pytest.raises(ZeroDivisionError), thread.write():
        turn = main.append("two").turn_id
        thread.contexts.attach(turn, B)
        thread.contexts.attach(1, C)
        assert [thread.contexts.root(1), thread.contexts.root(turn)] == [C, B]
        raise ZeroDivisionError
    assert roots(thread) == {1: A}


@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_root_of_any_tree(thread: eventq.Thread, seed: int) -> None:
    """In trees of all shapes, with few roots and with many, the root of each turn is what a walk up finds."""
    chance = random.Random(seed)
    parents, given = [0], {}
    context = thread.contexts.create()
    bushy, often = chance.choice([0.02, 0.2, 0.7]), chance.choice([0.01, 0.1, 0.5])
    with thread.write():
        for turn in range(1, 400):
            parent = chance.randrange(1, turn) if turn > 1 and chance.random() < bushy else turn - 1
            parents.append(parent)
            assert context.append(b"x", parent=parent or None).turn_id == turn
        for turn in range(1, 400):
            if chance.random() < often:
                given[turn] = chance.randbytes(32)
                thread.contexts.attach(turn, given[turn])
    for turn in range(1, 400):
        at = turn
        while at and at not in given:
            at = parents[at]
        assert thread.contexts.root(turn) == given.get(at)


def test_a_long_way_takes_few_steps(thread: eventq.Thread) -> None:
    """The way up a long chain without roots, or to its first turn, goes over jumps, also beside some roots of others."""
    main, fork = thread.contexts.create("main"), thread.contexts.create()
    with thread.write():
        fork.append(b"x")
        others = [fork.append(b"x").turn_id for _ in range(2)]
        turns = [main.append(b"x").turn_id for _ in range(3_000)]
        others += [fork.append(b"x").turn_id for _ in range(200)]
        tip = main.append(b"x").turn_id
    walk = 3_000 * 15  # no step takes fewer
    assert opcodes(thread, tip) < 200
    with thread.write():
        for other in others:
            thread.contexts.attach(other, A)
    assert opcodes(thread, tip) < walk / 10
    thread.contexts.attach(turns[0], B)
    assert opcodes(thread, tip) < walk / 10
    assert thread.contexts.root(tip) == B
    thread.contexts.attach(tip, C)
    assert opcodes(thread, tip) < 200
    with thread.write():
        for turn in turns:
            thread.contexts.attach(turn, A)
    assert opcodes(thread, thread.contexts.create(base=turns[-1]).append(b"x").turn_id) < 200


# --- what a root keeps ------------------------------------------------------------------------------------------------


def test_a_root_holds_its_blob(thread: eventq.Thread) -> None:
    """`holders` names the turns whose own root a blob is, those that inherit it not."""
    blob = thread.blobs.put(b"tree a")
    main = thread.contexts.create()
    for number in range(4):
        main.append(f"turn {number}")
    for turn in (2, 4):
        thread.contexts.attach(turn, A)
    assert thread.blobs.holders(blob.ref) == ["root 2", "root 4"]
    assert thread.blobs.holders(blob.ref, 1) == ["root 2"]
    thread.contexts.attach(4, B)
    assert thread.blobs.holders(blob.ref) == ["root 2"]


# --- threads of before ------------------------------------------------------------------------------------------------


def aged(path: str, version: int) -> None:
    """Make a thread what an eventq of an older schema left."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    for table in ["turn_roots", *(OUTPUT if version == 3 else [])]:
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM migrations WHERE number > ?", (version,))
    connection.pragma("user_version", version)
    connection.close()


@pytest.fixture
def old(path: str) -> str:
    """Give the path of a thread with a turn on a named blob and one that nothing leads to, without roots or outputs."""
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        main.append(NewTurn("one", refs=[thread.blobs.put(b"named").ref]))
        main.append("two")
        main.move(1)
    return path


@pytest.mark.parametrize("version", [3, 4])
def test_an_older_thread_that_is_only_read(old: str, version: int) -> None:
    """A thread without the table of roots is read and checked as before, and no turn of it has a root."""
    aged(old, version)
    with eventq.open(old, read_only=True) as reader:
        assert reader.check() == []
        assert [reader.contexts.root(1), reader.contexts.root(2)] == [None, None]
        assert [turn.payload for turn in reader.contexts.get("main").replay()] == [b"one"]
        assert reader.blobs.holders(blake3(b"one").digest()) == ["turn 1"]
        with pytest.raises(UnknownTurnError):
            reader.contexts.root(3)
        with pytest.raises(ReadOnlyError):
            reader.contexts.attach(1, A)
    with eventq.open(old) as thread:
        thread.contexts.attach(1, A)
        assert (thread.contexts.root(1), thread.check()) == (A, [])


def test_a_thread_of_before_is_collected_and_copied(
    old: str, thread: eventq.Thread, tmp_path: Path
) -> None:
    """What works in a thread without roots that is only read: a collection's dry run, packs, and copies of all kinds."""
    aged(old, 4)
    with eventq.open(old, read_only=True) as reader:
        found = reader.gc(grace=0)
        assert (found.turns, found.hashes) == (1, (blake3(b"two").hexdigest(),))
        reader.export_pack(tmp_path / "pack")
        for number, chosen in enumerate((None, ["main"])):
            with eventq.open(eventq.init(tmp_path / f"copy {number}")) as copy:
                assert reader.copy_to(copy, chosen).turns == 2 - number
                assert copy.check() == []
    assert b"root" not in (tmp_path / "pack" / "eventq.ndjson").read_bytes()


def test_a_thread_of_version_3_says_what_to_do(old: str, tmp_path: Path) -> None:
    """What a thread without outputs could not do while it was only read, it cannot, and says so as before."""
    aged(old, 3)
    with eventq.open(old, read_only=True) as reader:
        for call in (reader.gc, lambda: reader.export_pack(tmp_path / "pack")):
            with pytest.raises(
                StoreError, match="holds no artifacts or outputs - open it for writing once"
            ):
                call()


def test_a_reader_sees_the_roots_of_a_thread_that_was_brought_up_to_date(old: str) -> None:
    """A reader that was there before the table of roots finds them as soon as there are some."""
    aged(old, 4)
    blob = blake3(b"two").hexdigest()
    with eventq.open(old, read_only=True) as reader:
        assert reader.contexts.root(1) is None
        assert reader.gc(grace=0).hashes == (blob,)
        with eventq.open(old) as writer:
            writer.contexts.attach(1, blob)
        assert reader.contexts.root(1) == bytes.fromhex(blob)
        assert reader.blobs.holders(blob) == ["turn 2", "root 1"]
        assert (reader.gc(grace=0).turns, reader.gc(grace=0).hashes) == (1, ())
