"""The data directory of a CXDB server, taken in as it lies."""

from __future__ import annotations

import shutil
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq import LogicError
from tests.contract.data_directory import NAMES, CxdbDirectory
from tests.contract.pack_files import added, flip, says, tree
from tests.doors.support import run

if TYPE_CHECKING:
    from pathlib import Path

LONG = b"again and again " * 500


@pytest.fixture
def server(tmp_path: Path) -> CxdbDirectory:
    """Return a server's data: turns 1 to 3, a branch, two roots of one turn, an unused blob."""
    made = CxdbDirectory(tmp_path / "data")
    first = made.create()
    made.now += 1
    made.append(first, b"one")
    made.append(first, LONG, type_id="my.Type", version=7, encoding=2, compression=1)
    made.now += 1
    fork = made.create(1)
    made.append(fork, b"aside")
    made.append(first, b"one")
    made.create()
    made.attach(2, made.put(b"a tree"))
    made.attach(2, made.put(b"another tree"))
    return made


def heads(thread: eventq.Thread) -> dict[int, int]:
    """Return the head of every context."""
    return {one.context_id: one.head_turn_id for one in thread.contexts}


def test_the_records_are_those_of_the_layout(tmp_path: Path) -> None:
    """What the directory is made of, written out once."""
    made = CxdbDirectory(tmp_path, now=5)
    made.append(made.create(), b"hi", type_id="t", version=3, encoding=1)
    digest = blake3(b"hi").digest()

    def sealed(data: str) -> bytes:
        body = bytes.fromhex(data)
        return body + zlib.crc32(body).to_bytes(4, "little")

    one, five, none = "0100000000000000", "0500000000000000", "00000000"
    blob = sealed(f"424c5342 0100 0000 02000000 02000000 {digest.hex()} 6869")
    turn = sealed(f"{one} {none}{none} {none} 01000000 {none}{none} {digest.hex()} {none} {five}")
    assert tree(tmp_path) == {
        "blobs/blobs.pack": blob,
        "blobs/blobs.idx": digest + bytes.fromhex(f"{none}{none} 02000000 02000000 0000 0000"),
        "turns/turns.log": turn,
        "turns/turns.idx": bytes.fromhex(f"{one} {none}{none}"),
        "turns/turns.meta": bytes.fromhex(f"{one} 01000000 74 03000000 01000000 00000000 02000000"),
        "turns/heads.tbl": sealed(f"{one} {none}{none} {none} {none} {five}")
        + sealed(f"{one} {one} {none} {none} {five}"),
        "fs/roots.idx": b"",
    }
    assert (len(blob), len(turn)) == (54, 80)
    assert set(tree(tmp_path)) == set(NAMES)


def test_a_data_directory_comes_whole(server: CxdbDirectory, thread: eventq.Thread) -> None:
    """All turns, types, times, contexts, roots and blobs are imported; the source stays."""
    before = tree(server.folder)
    found = thread.import_pack(server.folder)
    assert (added(found), found.notes) == ((5, 4, 3, 0), ())
    assert tree(server.folder) == before
    assert heads(thread) == {1: 4, 2: 3, 3: 0}
    turns = list(thread.contexts.get(1).replay())
    assert [(one.turn_id, one.parent_turn_id, one.depth, one.payload) for one in turns] == [
        (1, 0, 0, b"one"), (2, 1, 1, LONG), (4, 2, 2, b"one"),
    ]  # fmt: skip
    assert [(one.type_id, one.type_version, one.encoding) for one in turns] == [
        ("cxdb.ConversationItem", 3, 1), ("my.Type", 7, 2), ("cxdb.ConversationItem", 3, 1),
    ]  # fmt: skip
    assert [one.created_at_ms for one in turns] == [1773829800001, 1773829800001, 1773829800002]
    assert [thread.contexts.root(n) for n in (1, 2, 3, 4)] == [
        None, blake3(b"another tree").digest(), None, blake3(b"another tree").digest(),
    ]  # fmt: skip
    assert thread.blobs.get(blake3(b"a tree").digest()) == b"a tree"


def test_twice_adds_nothing_and_later_adds_what_is_new(
    server: CxdbDirectory, thread: eventq.Thread
) -> None:
    """A server that went on moves its contexts on here: none of them comes a second time."""
    thread.import_pack(server.folder)
    again = thread.import_pack(server.folder)
    assert (added(again), again.notes) == ((0, 0, 0, 0), ())
    server.now += 1000
    server.append(1, b"later")
    server.append(3, b"first words")
    server.append(server.create(4), b"a new one")
    more = thread.import_pack(server.folder)
    assert (added(more), more.notes) == ((3, 3, 1, 2), ())
    assert heads(thread) == {1: 5, 2: 3, 3: 6, 4: 7}


def test_into_a_thread_that_has_turns(server: CxdbDirectory, thread: eventq.Thread) -> None:
    """Taken ids are replaced; contexts and roots follow, and importing twice adds nothing."""
    thread.contexts.create("mine").append(b"mine")
    found = thread.import_pack(server.folder)
    assert (found.turns, found.contexts, found.notes) == (4, 3, ())
    tips = {head for head in heads(thread).values() if head}
    chains = [[turn.payload for turn in thread.contexts.at(tip).replay()] for tip in tips]
    assert sorted(chains) == [[b"mine"], [b"one", LONG, b"one"], [b"one", b"aside"]]
    again = thread.import_pack(server.folder)
    assert (again.turns, again.contexts, again.notes) == (0, 0, ())


@pytest.mark.parametrize("name", NAMES)
def test_a_torn_tail_is_left_out(name: str, server: CxdbDirectory, thread: eventq.Thread) -> None:
    """After a torn record, everything before it is imported, and the loss is reported."""
    file = server.folder / name
    file.write_bytes(file.read_bytes()[:-3])
    found = thread.import_pack(server.folder)
    assert bool(found.notes) == (not name.endswith(("blobs.idx", "turns.idx")))
    assert thread.contexts.get(2).head_id() == 3


@pytest.mark.parametrize("name", [*NAMES, "fs", "registry"])
def test_a_file_may_be_missing(name: str, server: CxdbDirectory, thread: eventq.Thread) -> None:
    """Indexes are not needed, older servers have no `fs`, and none of it stops an import."""
    where = server.folder / name
    if where.is_dir():
        shutil.rmtree(where)
    elif where.is_file():
        where.unlink()
    found = thread.import_pack(server.folder)
    needed = {"blobs/blobs.pack", "turns/turns.log", "turns/turns.meta", "turns/heads.tbl"}
    assert bool(found.notes) == (name in needed)


def test_roots_of_another_life_are_left_out(server: CxdbDirectory, thread: eventq.Thread) -> None:
    """Roots of turns or blobs that a server has deleted are not imported."""
    roots = (server.folder / "fs/roots.idx").read_bytes()
    shutil.rmtree(server.folder)
    later = CxdbDirectory(server.folder)
    context = later.create()
    for text in (b"a", b"b"):
        later.append(context, text)
    (server.folder / "fs/roots.idx").write_bytes(roots)
    later.attach(1, later.put(b"new tree"))
    later.attach(77, later.put(b"new tree"))
    found = thread.import_pack(server.folder)
    note = "roots.idx: 2 roots were left out: their turns, or their blobs, are not there"
    assert found.notes == (note,)
    assert [thread.contexts.root(n) for n in (1, 2)] == [blake3(b"new tree").digest()] * 2


def test_damaged_roots_end_where_the_server_ends_them(
    server: CxdbDirectory, thread: eventq.Thread
) -> None:
    """The first bad record ends the file, as it does for the server; it is said, once."""
    flip(server.folder / "fs/roots.idx", 44 + 10)
    found = thread.import_pack(server.folder)
    note = "roots.idx: 44 bytes after byte 44 were dropped: the record there is damaged"
    assert found.notes == (note,)
    assert thread.contexts.root(2) == blake3(b"a tree").digest()


def test_damage_in_the_turns_is_said(server: CxdbDirectory, thread: eventq.Thread) -> None:
    """A flipped bit in a payload's hash costs that turn and those after it, and their heads."""
    flip(server.folder / "turns/turns.log", 2 * 80 + 40)
    found = thread.import_pack(server.folder)
    assert found.turns == 2
    assert says(found, "turns.log: 2 records after byte 160 were dropped", "damaged")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (0, "missing of turns in turns.log"),
        (38, "of another encoding than in turns.log"),
        (42, "of an unknown compression"),
        (46, "of another length than the payload has"),
    ],
)
def test_damage_in_the_descriptions_is_said(
    at: int, said: str, server: CxdbDirectory, thread: eventq.Thread
) -> None:
    """A damaged description is reported, although the server writes no tags to prove the types."""
    flip(server.folder / "turns/turns.meta", at, 6)
    found = thread.import_pack(server.folder)
    note = f"turns.meta: of the descriptions of turns 1 is {said}, that of turn 1 first"
    assert note in found.notes
    types = [turn.type_id for turn in thread.contexts.get(1).replay()]
    assert types[1:] == ["my.Type", "cxdb.ConversationItem"]


def test_the_command_takes_one(server: CxdbDirectory, path: str) -> None:
    """`pack import` is given the folder itself."""
    done = run("pack import", str(server.folder), "--thread", path)
    assert (done.code, done.out) == (0, "Imported 5 blobs, 4 turns and 3 contexts; 0 heads moved\n")


def test_what_is_none_is_refused(tmp_path: Path, thread: eventq.Thread) -> None:
    """An empty folder, or one with empty subfolders, is not a pack."""
    (tmp_path / "data/turns").mkdir(parents=True)
    (tmp_path / "data/blobs").mkdir()
    why = "holds no pack - give a folder that 'eventq pack export' wrote, or a CXDB"
    with pytest.raises(LogicError, match=why):
        thread.import_pack(tmp_path / "data")
    thread.contexts.create().append(b"x")
    thread.export_pack(tmp_path / "pack")
    (tmp_path / "pack/turns").mkdir()
    (tmp_path / "pack/turns/turns.log").write_bytes(struct.pack("<Q", 1))
    found = thread.import_pack(tmp_path / "pack")
    assert (found.turns, found.notes) == (0, ())
