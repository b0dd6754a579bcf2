"""Roots in files of older versions, and how many steps a search for a root takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.errors import ReadOnlyError, StoreError, UnknownTurnError
from eventq.records.turn import NewTurn
from tests.contract.test_roots import A, B, C
from tests.storage.older import aged

if TYPE_CHECKING:
    from pathlib import Path

    from eventq import Thread

pytestmark = pytest.mark.usefixtures("quick")


def opcodes(thread: Thread, turn_id: int) -> int:
    """Return about how many instructions SQLite runs to find the root of a turn."""
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


def test_a_long_way_takes_few_steps(opened: Thread) -> None:
    """The way up a long chain goes over jumps, also beside roots of other branches."""
    main, fork, attach = (
        opened.contexts.create("main"),
        opened.contexts.create(),
        opened.contexts.attach,
    )
    with opened.write():
        fork.append(b"x")
        others = [fork.append(b"x").turn_id for _ in range(2)]
        turns = [main.append(b"x").turn_id for _ in range(3_000)]
        others += [fork.append(b"x").turn_id for _ in range(200)]
        tip = main.append(b"x").turn_id
    walk = 3_000 * 15  # no step takes fewer
    assert opcodes(opened, tip) < 200
    with opened.write():
        for other in others:
            attach(other, A)
    assert opcodes(opened, tip) < walk / 10
    attach(turns[0], B)
    assert opcodes(opened, tip) < walk / 10
    assert opened.contexts.root(tip) == B
    attach(tip, C)
    assert opcodes(opened, tip) < 200
    with opened.write():
        for turn in turns:
            attach(turn, A)
    assert opcodes(opened, opened.contexts.create(base=turns[-1]).append(b"x").turn_id) < 200


@pytest.fixture
def old(path: str) -> str:
    """Return the path of a thread with a turn on a named blob and an unreachable one."""
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        main.append(NewTurn("one", refs=[thread.blobs.put(b"named").ref]))
        main.append("two")
        main.move(1)
    return path


@pytest.mark.parametrize("version", [3, 4])
def test_an_older_thread_that_is_only_read(old: str, version: int) -> None:
    """A thread without the table of roots is read and checked, and no turn of it has a root."""
    aged(old, version)
    with eventq.open(old, read_only=True) as reader:
        assert reader.check() == []
        assert [reader.contexts.root(1), reader.contexts.root(2)] == [None, None]
        assert [turn.payload for turn in reader.contexts.get("main").replay()] == [b"one"]
        assert reader.blobs.holders(blake3(b"one").digest()) == ["turn 1"]
        named = [f"blob:blake3:{blake3(data).hexdigest()}" for data in (b"one", b"named")]
        assert reader.reachable(["turn:1"]) == sorted(named)
        with pytest.raises(UnknownTurnError):
            reader.contexts.root(3)
        with pytest.raises(ReadOnlyError):
            reader.contexts.attach(1, A)
    with eventq.open(old) as thread:
        thread.contexts.attach(1, A)
        assert (thread.contexts.root(1), thread.check()) == (A, [])


def test_a_thread_of_before_is_collected_and_copied(old: str, tmp_path: Path) -> None:
    """A thread without roots that is only read has a dry run, packs and copies."""
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
    """What a thread without outputs cannot do while it is only read is refused."""
    aged(old, 3)
    with eventq.open(old, read_only=True) as reader:
        for call in (reader.gc, lambda: reader.export_pack(tmp_path / "pack")):
            with pytest.raises(StoreError, match="holds no artifacts or outputs - open it for"):
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
        found = reader.gc(grace=0)
        assert (found.turns, found.hashes) == (1, ())
