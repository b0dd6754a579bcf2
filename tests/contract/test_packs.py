"""Packs of whole threads: the exact bytes, what an import adds, and the cost of damage."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import eventq
from eventq import LogicError
from eventq.errors import BusyError, DiskError, NotAThreadError, ReadOnlyError
from eventq.memory.blobs import Blobs
from eventq.records.turn import NewTurn
from eventq.transfer.packfile import PackWriter
from eventq.transfer.sources import PackSource
from tests.contract import pack_files as made
from tests.contract.pack_files import (
    BORN,
    FILES,
    NOTHING,
    added,
    blob,
    digest,
    head,
    kept_blob,
    line,
    meta,
    says,
    small,
    sums,
    tag,
    tree,
    turn,
    write,
)
from tests.contract.support import chain
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Clock

    Fresh = Callable[[], eventq.Thread]

PAST = 1 << 62  # ids from here on are given anew
HASH, LOST = digest(b"1").hex(), "0" * 64
pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines("sqlite", soaked=["postgres"]),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]


def heads(thread: eventq.Thread) -> dict[int, int]:
    """Return the head of every context."""
    return {one.context_id: one.head_turn_id for one in thread.contexts}


def payloads(thread: eventq.Thread, context: int | str) -> list[bytes | None]:
    """Return the payloads of a context."""
    return [one.payload for one in thread.contexts.get(context).replay()]


def exported(thread: eventq.Thread) -> dict[str, bytes]:
    """Return the pack of a thread."""
    with tempfile.TemporaryDirectory() as folder:
        thread.export_pack(folder)
        return tree(folder)


def state(thread: eventq.Thread) -> Any:
    """Return all that an import could change: the pack, and the contexts with their moves."""
    infos = list(thread.contexts)
    return exported(thread), infos, [list(thread.contexts.history(one.context_id)) for one in infos]


# The bytes.


def fill(thread: eventq.Thread, clock: Clock) -> None:
    """Store turns 1 and 2 in `main`, 3 in `side`, forked at 1, 4 in `other`, and `empty`."""
    contexts = thread.contexts
    main = contexts.create("main")
    clock.move(1)
    main.append(NewTurn("one", type_id="chat/é", type_version=3, encoding=9, flags=0x80000001))
    clock.move(1)
    main.append(b"a" * 300)
    clock.move(1)
    side = main.fork(at=1, name="side")
    clock.move(1)
    side.append(NewTurn({"b": 1, "a": [2]}, canonical="eventq-json-1"))
    contexts.create("other").append(NewTurn("one", type_id=""))
    contexts.create("empty")
    contexts.patch(2, "two")
    contexts.tombstone(3, flags=5)
    contexts.attach(2, digest(b"three"))
    clock.move(1)
    thread.blobs.put(b"three", refs=[digest(b"one"), digest(b"two")])
    for owner in ("pin", "and you: é"):
        thread.blobs.pin(digest(b"three"), owner)


def whole() -> dict[str, bytes]:
    """Return the files of the pack of such a thread, made with struct alone."""
    canonical = b'{"a":[2],"b":1}'
    raws = b"one", b"a" * 300, canonical, b"two", b"three"
    records = [blob(raw, zstd=len(raw) == 300) for raw in raws]
    starts = [sum(map(len, records[:n])) for n in range(5)]
    metas = meta(1, "chat/é", 3, 9, 3) + meta(2, "message", 1, 0, 300)
    metas += meta(3, "message", 1, 0, 15) + meta(4, "", 1, 0, 3)
    one, two, three = (digest(raw).hex() for raw in (b"one", b"two", b"three"))
    beside = "\n".join(
        [
            '{"turn":3,"canonical":"eventq-json-1"}',
            '{"context":1,"name":"main","fork_of":null,"scope":1}',
            '{"context":2,"name":"side","fork_of":1,"scope":1}',
            '{"context":3,"name":"other","fork_of":null,"scope":3}',
            '{"context":4,"name":"empty","fork_of":null,"scope":4}',
            f'{{"patch":2,"blob":"{two}","flags":0,"created_at_ms":{BORN + 4000}}}',
            f'{{"patch":3,"blob":null,"flags":5,"created_at_ms":{BORN + 4000}}}',
            f'{{"root":2,"hash":"{three}"}}',
            *[f'{{"ref":"{ref}","blob":"{three}"}}' for ref in sorted((one, two))],
            *[f'{{"pin":"{owner}","blob":"{three}"}}' for owner in ("and you: é", "pin")],
            "",
        ]
    ).encode()
    return {
        "blobs.pack": b"".join(records),
        "blobs.idx": b"".join(
            made.blob_entry(raw, start, zstd=len(raw) == 300)
            for raw, start in zip(raws, starts, strict=True)
        ),
        "turns.log": turn(1, 0, 0, b"one", at=BORN + 1000, number=tag("chat/é"), encoding=9, flags=0x80000001)
        + turn(2, 1, 1, b"a" * 300, at=BORN + 2000)
        + turn(3, 1, 1, canonical, at=BORN + 4000)
        + turn(4, 0, 0, b"one", at=BORN + 4000, number=tag("")),
        "turns.idx": struct.pack("<8Q", 1, 0, 2, 80, 3, 160, 4, 240),
        "turns.meta": metas,
        "heads.tbl": head(1, 2, 1)
        + head(2, 3, 1, at=BORN + 3000)
        + head(3, 4, 0, at=BORN + 4000)
        + head(4, 0, 0, at=BORN + 4000),
        "eventq.ndjson": beside + sums(metas, beside),
    }  # fmt: skip


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Return that pack in a folder, to break."""
    folder = tmp_path / "pack"
    folder.mkdir()
    for name, data in whole().items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.engines(*ENGINES)
def test_exact_bytes(thread: eventq.Thread, clock: Clock, tmp_path: Path) -> None:
    """An export is these files, byte for byte, for its owner only."""
    fill(thread, clock)
    thread.export_pack(tmp_path / "pack")
    assert tree(tmp_path / "pack") == whole()
    assert tag("message").to_bytes(8, "little").hex() == "4bd766dabadb76f2"
    modes = [(tmp_path / "pack" / name).stat().st_mode & 0o777 for name in (".", *FILES)]
    assert modes == [0o700] + [0o600] * len(FILES)


def test_there_and_back(pack: Path, fresh: Fresh) -> None:
    """A pack is imported whole, once, and exported again with identical bytes; new ids follow."""
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.notes, added(found)) == ((), (5, 4, 4, 0))
    assert exported(thread) == tree(pack) == whole()
    contexts = thread.contexts
    assert [(one.context_id, one.name, one.fork_of) for one in contexts] == [
        (1, "main", None), (2, "side", 1), (3, "other", None), (4, "empty", None),
    ]  # fmt: skip
    assert (payloads(thread, 1), payloads(thread, 2)) == ([b"one", b"two"], [b"one", None])
    assert (contexts.turn(3).canonical, contexts.root(2)) == ("eventq-json-1", digest(b"three"))
    assert contexts.turn(2, as_of=0).payload == b"a" * 300
    assert [name for name, _ in thread.blobs.pins()] == ["and you: é", "pin"]
    before = state(thread)
    with eventq.open(thread.path, read_only=True) as reader:
        assert exported(reader) == whole()
        with pytest.raises(ReadOnlyError):
            reader.import_pack(pack)
    again = thread.import_pack(pack)
    assert (again.notes, added(again), state(thread)) == ((), NOTHING, before)
    new = contexts.create("new")
    assert (new.id, new.append("n").turn_id) == (5, 5)


def test_an_empty_store(fresh: Fresh, tmp_path: Path) -> None:
    """An empty thread exports files without records, which import as nothing."""
    fresh().export_pack(tmp_path / "pack")
    expected = {**dict.fromkeys(FILES, b""), "eventq.ndjson": sums(b"", b"")}
    assert tree(tmp_path / "pack") == expected
    found = fresh().import_pack(tmp_path / "pack")
    assert (added(found), found.notes) == (NOTHING, ())


def test_a_thread_that_was_replaced_is_not_exported(tmp_path: Path) -> None:
    """A handle on a deleted thread does not export the one that replaced it."""
    path = eventq.init(tmp_path / "replaced")
    with eventq.open(path) as gone:
        shutil.rmtree(path)
        eventq.init(path)
        with pytest.raises(NotAThreadError):
            gone.export_pack(tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_a_pack_of_another_program(fresh: Fresh, tmp_path: Path) -> None:
    """A foreign pack, with any u64 as context id and any tag, is read and written again."""
    largest, most, late = (1 << 64) - 1, (1 << 32) - 1, (1 << 63) - 1
    ids = [largest, 0x9E3779B97F4A7C15, 7]
    log = (
        turn(1, 0, 0, b"root", at=1, number=largest, encoding=most, flags=most)
        + turn(5, 1, 1, b"a" * 500, at=2, number=0)
        + turn(6, 1, 1, b"", at=3, number=1 << 63)
        + turn(900, 6, 2, b"root", at=late, number=late)
    )
    table = head(ids[0], 5, 1, at=5) + head(ids[1], 1, 0, at=6, flags=9)
    table += head(ids[1], 900, 2, at=6, flags=9) + head(ids[2], 0, 0, at=7)
    blobs = blob(b"root") + blob(b"a" * 500, zstd=True) + blob(b"")
    folder = write(tmp_path / "theirs", blob=blobs, turn=log, head=table)
    thread = fresh()
    found = thread.import_pack(folder)
    assert (added(found), len(found.notes)) == ((3, 4, 3, 0), 3)
    for name in ("blobs.idx", "turns.idx", "turns.meta"):
        assert says(found, f"{name}: is missing", "" if name == "turns.meta" else "made anew")
    first, second, third = thread.contexts
    assert (first.head_turn_id, second.head_turn_id, third.head_turn_id) == (5, 900, 0)
    assert (first.head_depth, second.flags, third.created_at_ms) == (1, 9, 7)
    assert payloads(thread, first.context_id) == [b"root", b"a" * 500]
    assert payloads(thread, second.context_id) == [b"root", b"", b"root"]
    last = thread.contexts.turn(900)
    assert (last.parent_turn_id, last.depth, last.type_id, last.created_at_ms) == (6, 2, "", late)
    assert thread.contexts.turn(1).encoding == thread.contexts.turn(1).flags == most
    ours = exported(thread)
    assert (ours["turns.log"], ours["blobs.idx"]) == (log, tree(folder)["blobs.idx"])
    assert tree(folder)["turns.idx"] == struct.pack("<8Q", 1, 0, 5, 80, 6, 160, 900, 240)
    assert added(thread.import_pack(folder)) == NOTHING


def test_large_payloads_there_and_back(fresh: Fresh, tmp_path: Path) -> None:
    """Payloads in parts are exported as one blob each, and imported in parts again."""
    first, second = fresh(), fresh()
    text = b"".join(b"%d;" % (n * n * 7919 % 10007) for n in range(80_000))
    data = [text, text[:200_000] + b"!" + text[200_000:], os.urandom(3 << 20)]
    context = first.contexts.create("big")
    for one in data:
        context.append(one)
    first.export_pack(tmp_path / "one")
    assert added(second.import_pack(tmp_path / "one")) == (3, 3, 1, 0)
    assert payloads(second, "big") == data
    for thread in (first, second):
        assert [thread.blobs.stat(digest(one)).codec for one in data[:2]] == ["parts"] * 2
    assert exported(second) == tree(tmp_path / "one")


# What is alike, and into a thread that holds something.


def contexts_of_one_moment(thread: eventq.Thread, clock: Clock) -> None:
    """Make contexts in one millisecond, with and without turns."""
    main = thread.contexts.create("main")
    thread.contexts.create("empty")
    main.fork(name="fork")
    main.append("1")
    main.fork(name="behind")
    main.append("2")


def twins(thread: eventq.Thread, clock: Clock) -> None:
    """Append turns that are the same in all but the id."""
    for name in "abc":
        context = thread.contexts.create(name)
        clock.move(1)
        context.fork(name=f"{name}2")
    for text in ("hello", "more {}"):
        for name in "abc":
            thread.contexts.get(name).append(text.format(name))


def patches_that_go_back(thread: eventq.Thread, clock: Clock) -> None:
    """Patch a turn to A, to B and to A again in one millisecond."""
    thread.contexts.create("main").append("0")
    for one in "ABA":
        thread.contexts.patch(1, one)


@pytest.mark.parametrize("own", [0, 3])
@pytest.mark.parametrize("build", [fill, contexts_of_one_moment, twins, patches_that_go_back])
def test_what_is_alike_stays_apart(
    build: Callable[..., None], own: int, fresh: Fresh, clock: Clock, tmp_path: Path
) -> None:
    """All rows are imported, once, in order and with what they name, under their ids or higher ones."""
    first, second = fresh(), fresh()
    if own:
        mine = second.contexts.create("mine")
        for number in range(own):
            mine.append(f"own {number}")
    build(first, clock)
    first.export_pack(tmp_path / "pack")
    sound = tree(tmp_path / "pack")
    clock.move(1)
    found = second.import_pack(tmp_path / "pack")
    assert (found.turns, found.contexts) == (len(sound["turns.log"]) // 80, len(heads(first)))
    for thread in (first, second):
        before = state(thread)
        assert added(thread.import_pack(tmp_path / "pack")) == NOTHING
        assert state(thread) == before
        assert own or exported(thread) == sound
    for info in first.contexts:
        assert info.name
        there = second.contexts.get(info.name).info()
        assert chain(second, info.name) == chain(first, info.name)
        assert there.fork_of == (info.fork_of and info.fork_of + bool(own))
        head = there.head_turn_id
        assert (head and second.contexts.root(head)) == (
            info.head_turn_id and first.contexts.root(info.head_turn_id)
        )
    lines = [len(one["eventq.ndjson"].splitlines()) for one in (exported(second), sound)]
    assert lines[0] - lines[1] == bool(own)  # the context that was here


CHILD = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"3")
FAN = turn(1, 0, 0, b"1") + turn(3, 1, 1, b"3") + turn(4, 1, 1, b"4") + turn(5, 1, 1, b"5")


def named(*names: str, forks: tuple[int | None, ...] = (None, None, None)) -> bytes:
    """Return the names of contexts."""
    told = enumerate(zip(names, forks, strict=False), 1)
    return b"".join(line(context=n, name=name, fork_of=fork) for n, (name, fork) in told)


def at_once(*turns: int) -> bytes:
    """Return the heads of contexts of one moment."""
    return b"".join(head(n, one, int(one > 1)) for n, one in enumerate(turns, 1))


# Packs that are imported one after another: how each differs from a chain of five turns, how many turns and contexts
# come and how many heads move, and what is said; then the contexts, with their last payloads.
STORIES: dict[str, tuple[list[tuple[dict[str, bytes], tuple[int, int, int], str]], list[Any]]] = {
    "another root": ([
        ({"beside": line(root=1, hash=HASH), "head": head(1, 5, 4)}, (5, 1, 0), ""),
        ({"beside": line(root=1, hash=LOST), "head": head(1, 5, 4)}, (0, 0, 0), f"that it has here, {HASH}, not {LOST}"),
    ], [(None, b"5")]),
    "newer": ([
        ({"head": head(1, 2, 1) + head(2, 0, 0, at=2)}, (5, 2, 0), ""),
        ({"head": head(1, 3, 2) + head(2, 1, 0, at=2) + head(3, 3, 2, at=3)}, (0, 1, 2), ""),
        ({"head": head(1, 2, 1) + head(2, 0, 0, at=2)}, (0, 0, 0), ""),
    ], [(None, b"3"), (None, b"1"), (None, b"3")]),
    "another way": ([
        ({"head": head(1, 2, 1)}, (5, 1, 0), ""),
        ({"turn": CHILD, "head": head(1, 2, 1)}, (1, 0, 0), "went another way here: it stays at turn"),
    ], [(None, b"2")]),
    "names and lineage": ([
        ({"head": at_once(3, 3), "beside": named("main", "side", forks=(None, 1))}, (5, 2, 0), ""),
        ({"head": at_once(3, 3), "beside": named("main", "side", forks=(2, None))}, (0, 0, 0), ""),
        ({"head": at_once(3, 3), "beside": named("other", "side")}, (0, 1, 0), ""),
    ], [("main", b"3"), ("side", b"3"), ("other", b"3")]),
    "names of one moment": ([
        ({"head": at_once(1, 1, 1), "beside": named("x", "y", "z")}, (5, 3, 0), ""),
        ({"head": at_once(2, 1, 1), "beside": named("x", "y", "z")}, (0, 0, 1), ""),
        ({"turn": FAN, "head": at_once(3, 4, 5), "beside": named("x", "y", "z")}, (3, 0, 2), "went another way"),
    ], [("x", b"2"), ("y", b"4"), ("z", b"5")]),
}  # fmt: skip


for name, value in [("encoding", 5), ("flags", 5), ("at", 5), ("number", 5), ("raw", b"1")]:
    second: Any = {"turn_id": 2, "parent": 1, "depth": 1, "raw": b"2", name: value}
    changed = {"turn": turn(1, 0, 0, b"1") + turn(**second), "head": head(1, 2, 1, at=77)}
    end = [(None, b"2"), (None, second["raw"])]
    STORIES[f"another {name}"] = (
        [({"head": head(1, 2, 1)}, (5, 1, 0), ""), (changed, (1, 1, 0), "")],
        end,
    )


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", STORIES)
def test_packs_one_after_another(kind: str, own: bool, fresh: Fresh, tmp_path: Path) -> None:
    """Heads advance, but never go back or another way; what differs in anything is another one."""
    thread = fresh()
    if own:
        thread.contexts.create("own").append("own")
    steps, expected = STORIES[kind]
    for number, (changes, counts, said) in enumerate(steps):
        before = state(thread)
        folder = small(tmp_path / f"pack-{number}", 5, **{"meta": b"", **changes})
        found = thread.import_pack(folder)
        assert added(found)[1:] == counts
        notes = [note for note in found.notes if note.startswith(("context", "turn "))]
        assert [said in note for note in notes] == [True] * bool(said)
        if counts == (0, 0, 0):
            assert state(thread) == before
        if counts[2]:
            moves = [thread.contexts.history(one.context_id) for one in thread.contexts]
            assert "import" in {move.op for some in moves for move in some}
        assert added(thread.import_pack(folder)) == NOTHING
    ends = [(one.name, payloads(thread, one.context_id)[-1]) for one in thread.contexts]
    assert ends[own:] == expected


def test_a_collection_beside_an_import(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection during an import causes an error, never missing turns."""
    thread = fresh()
    folder = small(tmp_path / "pack")
    real = PackSource.lines
    calls: list[int] = []

    def collect(source: PackSource) -> Any:
        calls.append(0)
        if len(calls) == 2:  # the blobs have come
            with eventq.open(thread.path) as other:
                calls[-1] = other.gc(apply=True, grace=0).blobs
        return real(source)

    monkeypatch.setattr(PackSource, "lines", collect)
    with pytest.raises(BusyError, match="a collection deleted"):
        thread.import_pack(folder)
    assert calls[1] == 3
    assert thread.import_pack(folder).turns == 3


# Ids.


def test_ids_after_a_collection(pack: Path, fresh: Fresh, clock: Clock) -> None:
    """Collected imports leave their ids unused, also for the same pack again."""
    thread = fresh()
    thread.import_pack(pack)
    clock.move(90_000)
    for one in list(thread.contexts):
        thread.contexts.delete(one.context_id)
    clock.move(90_000)
    assert thread.gc(apply=True, grace=0).turns == 4
    mine = thread.contexts.create("mine")
    assert (mine.id, mine.append("x").turn_id) == (5, 5)
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 4, 4)
    assert heads(thread) == {5: 5, 6: 7, 7: 8, 8: 9, 9: 0}
    assert payloads(thread, "main") == [b"one", b"two"]
    assert added(thread.import_pack(pack)) == NOTHING


def test_the_largest_ids(fresh: Fresh, tmp_path: Path) -> None:
    """Ids up to 2^62-1 are kept, larger ones given anew, so that there is always a next one."""
    ids = [PAST - 1, PAST, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    log = b"".join(turn(one, [0, *ids][n], n, b"%d" % (n + 1)) for n, one in enumerate(ids))
    table = b"".join(head(one, one, n, at=n) for n, one in enumerate(ids))
    metas = b"".join(meta(one) for one in ids)
    folder = small(tmp_path / "pack", 5, turn=log, head=table, meta=metas)
    thread = fresh()
    assert added(thread.import_pack(folder)) == (5, 5, 5, 0)
    turns = list(thread.contexts.at(PAST + 3).replay())
    assert [one.turn_id for one in turns] == [PAST - 1 + n for n in range(5)]
    assert [one.payload for one in turns] == [b"1", b"2", b"3", b"4", b"5"]
    assert {one.type_id for one in turns} == {"message"}
    assert heads(thread) == {PAST - 1 + n: PAST - 1 + n for n in range(5)}
    assert added(thread.import_pack(folder)) == NOTHING
    assert thread.contexts.get(PAST + 3).append("next").turn_id == PAST + 4
    assert thread.contexts.create().id == PAST + 4


# Damage.


def log_of(count: int) -> bytes:
    """Return a chain of turns."""
    return b"".join(turn(n, n - 1, n - 1, b"%d" % n) for n in range(1, count + 1))


def blobs_with(bad: bytes) -> dict[str, bytes]:
    """Return blobs, the third of which is this one."""
    return {"blob": blob(b"1") + blob(b"2") + bad + blob(b"4")}


MINE = (BORN, 0, "mine")
HALF = head(1, 1, 0) + head(1, 2, 1)
THIRD = [
    "turn 3 was left out: missing blob ", "turn 4 was left out: its parent, turn 3, is not there",
    "the head of context 1, turn 4, is not in turns.log: the context was left out", "no head is left for turn 2: context 1 stands at it",
]  # fmt: skip
AT_FOUR = "no head is left for turn 4: context"
WRONG = f"the record at byte {len(blob(b'1') + blob(b'2'))} was left out: blob:blake3:{digest(b'3').hex()} "
TAIL = ["dropped: the record there is torn"]
# How a pack differs from a chain of four turns in context 1; how many blobs and turns come of it, and which contexts,
# each with its head; and what is said.
DAMAGED: dict[str, tuple[dict[str, bytes], tuple[int, int], list[tuple[Any, ...]], list[str]]] = {
    "a torn blob": (blobs_with(blob(b"3")[:-1]), (3, 2), [(1, 2, *MINE)], ["skipped: the record there is damaged", *THIRD]),
    "a lost blob": (blobs_with(b""), (3, 2), [(1, 2, *MINE)], THIRD),
    "torn blobs": ({"blob": blobs_with(blob(b"3"))["blob"][:-1]}, (3, 3), [(1, 3, *MINE)], [
        *TAIL, "turn 4 was left out: missing blob ", THIRD[2], "no head is left for turn 3: context 1 stands at it",
    ]),
    "a torn log": ({"turn": log_of(4)[:-1]}, (4, 3), [(1, 3, *MINE)], [
        *TAIL, THIRD[2], "no head is left for turn 3: context 1 stands at it",
    ]),
    "the last head counts": ({"head": head(1, 3, 2) + head(2, 99, 98) + head(2, 4, 3, at=5) + head(1, 2, 1)}, (4, 4),
        [(1, 2, *MINE), (2, 4, 5, 0, None)], []),
    "a head beyond the log": ({"head": HALF + head(1, 99, 98)}, (4, 4), [(1, 2, *MINE), (2, 4, BORN, 0, None)], [
        "turn 99, is not in turns.log: the context stands where it stood before", f"{AT_FOUR} 2 stands at it",
    ]),
    "a damaged head": ({"head": HALF + head(1, 3, 2)[:-1] + b"\0"}, (4, 4), [(1, 2, *MINE), (2, 4, BORN, 0, None)], [
        "heads.tbl: 1 record after byte 72 was skipped: damaged", f"{AT_FOUR} 2 stands at it",
    ]),
    "the only head beyond the log": ({"head": head(1, 99, 98, at=123, flags=6)}, (4, 4), [(1, 4, 123, 6, "mine")], [
        "turn 99, is not in turns.log: the context was left out", f"{AT_FOUR} 1 stands at it",
    ]),
    "two heads beyond the log": ({"head": head(1, 98, 97) + head(2, 99, 98)}, (4, 4), [(1, 4, BORN, 0, None)], [
        "context 1, turn 98, is not in", "context 2, turn 99, is not in", f"{AT_FOUR} 1 stands at it",
    ]),
    "a head of no time": ({"head": head(1, 4, 3, at=1 << 63)}, (4, 4), [(1, 4, BORN, 0, None)], [
        "context 1, turn 4, has no time: the context was left out", f"{AT_FOUR} 1 stands at it",
    ]),
    "no head": ({"head": b""}, (4, 4), [(1, 4, BORN, 0, None)], [f"{AT_FOUR} 1 stands at it"]),
    "another depth": ({"head": head(1, 4, 7)}, (4, 4), [(1, 4, *MINE)], ["1 head says another depth than the turn has"]),
}  # fmt: skip
FRAME = zstandard.ZstdCompressor().compress(b"3")
BAD_BLOBS = [  # the codec, the length and the bytes of each, and what is said of it
    (0, 1, b"?", "holds other bytes than its hash says"), (1, 1, zstandard.ZstdCompressor().compress(b"?"), "holds other bytes"),
    *((0, n, b"3", f"is not {n} bytes long") for n in (0, 2, (1 << 32) - 1)), (7, 1, b"3", "has the unknown codec 7"),
    *((1, n, FRAME, f"is not {n} bytes long") for n in (0, 2)), (1, 1, b"", "is not 1 bytes long"),
    (1, 1, FRAME[:-1], "is not 1 bytes long"), (1, 1, b"?", "cannot be decompressed"), (1, 1, FRAME + b"junk", "cannot be decompressed"),
]  # fmt: skip
for number, (codec, length, stored, why) in enumerate(BAD_BLOBS):
    changed = blobs_with(kept_blob(digest(b"3"), codec, length, stored))
    DAMAGED[f"bad blob {number}"] = changed, (3, 2), [(1, 2, *MINE)], [WRONG + why, *THIRD]
LAST = (1 << 64) - 1
BAD_TURNS = [  # what is said of each
    *((turn(7, at, 2, b"3"), f"turn 7 was left out: its parent, turn {at}, is not there") for at in (6, 7, 8)),
    (turn(7, 2, 2, b"lost"), digest(b"lost").hex()),
    *((turn(7, 2, n, b"3"), f"its depth, {n}, does not follow") for n in (1, 3, (1 << 32) - 1)),
    (turn(7, 0, 1, b"3"), "its depth, 1, does not follow"),
    *((turn(7, 2, 2, b"3", at=n), f"its time, {n}, is none") for n in (1 << 63, LAST)),
    *((turn(n, 0, 0, b"3"), f"turn {n} was left out: its id is not above the one before it") for n in (2, 1, 0)),
]  # fmt: skip
NINE = [
    "turn 9 was left out: its parent, turn 7, is not there",
    "the head of context 1, turn 9, is not in",
]
for bad, why in BAD_TURNS:
    log = log_of(2) + bad + turn(9, 7, 3, b"3") + turn(10, 2, 2, b"4")
    changed = {"turn": log, "head": head(1, 9, 3) + head(2, 10, 2, at=5), "meta": b""}
    DAMAGED[why] = changed, (4, 3), [(2, 10, 5, 0, None)], [why, *NINE]


UNSAID = ".idx", "eventq.ndjson", "turns.meta: of the descriptions"


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_damage_costs(kind: str, fresh: Fresh, tmp_path: Path) -> None:
    """What needs a damaged record is left out, and said; it comes later, and its id is not reused."""
    changes, counts, contexts, said = DAMAGED[kind]
    folder = small(tmp_path / "pack", 4, **{"beside": line(context=1, name="mine"), **changes})
    thread = fresh()
    found = thread.import_pack(folder)
    notes = [one for one in found.notes if not any(name in one for name in UNSAID)]
    assert [words in note for words, note in zip(said, notes, strict=True)] == [True] * len(said)
    assert added(found) == (*counts, len(contexts), 0)
    assert [
        (one.context_id, one.head_turn_id, one.created_at_ms, one.flags, one.name)
        for one in thread.contexts
    ] == contexts
    again = thread.import_pack(folder)
    assert (added(again), says(again, "idx")) == (NOTHING, False)
    assert thread.contexts.get(contexts[-1][0]).append("on").turn_id > 4
    later = thread.import_pack(small(tmp_path / "sound", 4))
    assert found.blobs + later.blobs == 4
    assert found.turns + later.turns >= 4


def test_heads_lost(pack: Path, fresh: Fresh) -> None:
    """Without heads.tbl every branch that no context here stands on gets one, once."""
    thread, other = fresh(), fresh()
    other.import_pack(pack)
    (pack / "heads.tbl").unlink()
    found = thread.import_pack(pack)
    assert sorted(heads(thread).values()) == [2, 3, 4]
    assert all(says(found, f"heads.tbl: no head is left for turn {tip}") for tip in (2, 3, 4))
    assert added(thread.import_pack(pack)) == added(other.import_pack(pack)) == NOTHING


@pytest.mark.parametrize("name", ["blobs.idx", "turns.idx"])
@pytest.mark.parametrize("how", ["lost", "damaged", "a folder", "in the way", "unsynced"])
def test_indexes(
    name: str, how: str, pack: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost or damaged index costs nothing: it is said, and made anew where that is possible."""
    (pack / name).unlink()
    if how == "damaged":
        (pack / name).write_bytes(b"no index")
    elif how in ("a folder", "in the way"):
        (pack / (name if how == "a folder" else f"{name}.part")).mkdir()
    before = tree(pack)

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    thread = fresh()
    with monkeypatch.context() as patch:
        if how == "unsynced":
            patch.setattr(os, "fsync", refuse)
        found = thread.import_pack(pack)
    assert (found.turns, found.contexts, len(found.notes)) == (4, 4, 1)
    assert says(found, f"{name}: {'disagrees with' if how == 'damaged' else 'is missing'}")
    if how in ("lost", "damaged"):
        assert says(found, "both indexes were made anew")
        assert (tree(pack), thread.import_pack(pack).notes) == (whole(), ())
    else:
        assert says(found, "was not made anew")
        assert tree(pack) == before


@pytest.mark.parametrize("name", [name for name in FILES if "idx" not in name])
@pytest.mark.parametrize("how", ["missing", "a folder", "a pipe", "a loop"])
def test_a_file_that_is_none(name: str, how: str, fresh: Fresh, tmp_path: Path) -> None:
    """A file that is none is said, and what the others prove comes; one that is refused is an error."""
    folder = small(tmp_path / "pack")
    (folder / name).unlink()
    make: dict[str, Callable[[Path], object]] = {"a folder": os.mkdir, "a pipe": os.mkfifo}
    make.get(how, str)(folder / name)
    thread = fresh()
    if how == "a loop":  # refused to root as well
        (folder / name).symlink_to(name)
        with pytest.raises(DiskError, match=name):
            thread.import_pack(folder)
        assert (exported(thread)["turns.log"], heads(thread)) == (b"", {})
        return
    found = thread.import_pack(folder)
    if how != "missing" or name != "eventq.ndjson":  # other programs write none
        assert says(found, f"{name}: is {'missing' if how == 'missing' else 'not a file'}")
    lost = {"blobs.pack": (0, 0), "turns.log": (3, 0)}
    assert added(found)[:2] == lost.get(name, (3, 3))
    assert says(found, "was not made anew") == (name in lost)
    sound = small(tmp_path / "sound")
    assert added(thread.import_pack(sound))[:2] == tuple(3 - n for n in added(found)[:2])
    assert added(thread.import_pack(sound)) == NOTHING


NO_PACKS: dict[str, Callable[[Path], object]] = {
    "missing": lambda folder: None,
    "a file": lambda folder: folder.write_bytes(b"mine"),
    "empty": write,
    "only heads": lambda folder: write(folder, head=head(1, 0, 0)),
    "a pipe": lambda folder: os.mkfifo(write(folder) / "turns.log"),
    "a loop": lambda folder: os.symlink("turns.log", write(folder) / "turns.log"),
}


@pytest.mark.parametrize("kind", NO_PACKS)
def test_no_pack(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """What is no pack is refused by an error that names it, and nothing is stored."""
    NO_PACKS[kind](tmp_path / "pack")
    with pytest.raises(LogicError, match=rf"'{tmp_path / 'pack'}' holds no pack"):
        thread.import_pack(tmp_path / "pack")
    assert heads(thread) == {}


# Export.


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_a_disk_that_refuses(
    call: str, there: bool, thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that fails at any step leaves nothing behind, and can be repeated."""
    thread.contexts.create("main").append("x")
    thread.artifacts.put(b"an artifact", "bash")
    mine = {"notes.txt": b"my notes"} if there else {}
    real = getattr(os, call)
    left = [0]

    def refuse(*given: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given, **more)

    for number in count(1):
        folder = tmp_path / f"pack {number}"
        if there:
            folder.mkdir()
            (folder / "notes.txt").write_bytes(b"my notes")
        left[0] = number
        monkeypatch.setattr(os, call, refuse)
        try:
            thread.export_pack(folder)
            refused = False
        except DiskError as error:
            refused = "No space left on device" in error.what
        monkeypatch.setattr(os, call, real)
        if refused:
            assert (folder.exists(), tree(folder)) == (there, mine)
            thread.export_pack(folder)
        assert {*tree(folder)} == {*FILES, "artifacts/0.bash.log", *mine}
        if left[0] > 0:
            break
    assert number > {"fsync": 10, "rename": 7, "mkdir": 2}[call]


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        *((where, DiskError, where) for where in ("missing/pack", "file", "file/pack", "a" * 300)),
        *((f"thread/{name}", LogicError, "is inside the thread")
          for name in (".", "run", "new", "../thread/logs/x")),
    ],
)  # fmt: skip
def test_nowhere_to_export(
    where: str, error: type[Exception], said: str, thread: eventq.Thread, tmp_path: Path
) -> None:
    """A folder that cannot be made, or is in the thread's own, is refused, and nothing is left."""
    (tmp_path / "file").write_bytes(b"mine")
    before = tree(tmp_path).keys()
    with pytest.raises(error, match=said):
        thread.export_pack(f"{tmp_path}/{where}")
    assert (tree(tmp_path).keys(), (tmp_path / "missing").exists()) == (before, False)


def test_one_moment(thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while an export runs is not in it, between any two of its tables."""
    thread.contexts.create("main").append("before")
    disturbed = []
    with eventq.open(thread.path) as other:
        for name in ("blob", "turn", "meta", "head", "beside"):
            real = getattr(PackWriter, name)

            def late(pack: Any, record: Any, real: Any = real, name: str = name) -> Any:
                disturbed.append(name)
                late = other.contexts.get("main").append(f"late {name}")
                other.contexts.patch(1, f"over {name}")
                other.contexts.get("main").fork()
                other.blobs.pin(late.hash, name)
                return real(pack, record)

            monkeypatch.setattr(PackWriter, name, late)
        thread.export_pack(tmp_path / "pack")
    assert disturbed == ["blob", "turn", "meta", "head", "beside"]  # each once
    found = tree(tmp_path / "pack")
    assert found["blobs.pack"] == blob(b"before")
    assert (len(found["turns.log"]), len(found["heads.tbl"])) == (80, 36)
    told = b'{"context":1,"name":"main","fork_of":null,"scope":1}\n'
    assert found["eventq.ndjson"] == told + sums(meta(1, length=6), told)
    assert len(payloads(thread, "main")) == 6


# Transactions, and several processes.


def test_inside_a_transaction(fresh: Fresh, tmp_path: Path) -> None:
    """An export inside `write` holds what was committed; an import inside one goes with it."""
    thread, other = fresh(), fresh()
    thread.contexts.create("main").append("1")
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.contexts.get("main").append("2")
        thread.export_pack(tmp_path / "pack")
        raise ZeroDivisionError
    assert (tmp_path / "pack" / "turns.log").stat().st_size == 80
    before = state(other)
    with pytest.raises(ZeroDivisionError), other.write():
        assert other.import_pack(tmp_path / "pack").turns == 1
        raise ZeroDivisionError
    assert state(other) == before
    with other.write():
        other.import_pack(tmp_path / "pack")
    assert payloads(other, "main") == [b"1"]


def test_blobs_come_some_at_once(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is stopped among its blobs has kept those before, but for some MiB."""
    raws = [os.urandom(3 << 20) for _ in range(3)]
    folder = small(tmp_path / "pack", blob=b"".join(blob(raw) for raw in raws))
    thread = fresh()
    real, calls = Blobs.put_many, []

    def stop(self: Blobs, some: list[bytes]) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, some)

    monkeypatch.setattr(Blobs, "put_many", stop)
    with pytest.raises(KeyboardInterrupt):
        thread.import_pack(folder)
    assert [thread.blobs.has(digest(raw)) for raw in raws] == [True, True, False]


def test_two_imports_at_once(pack: Path, path: str) -> None:
    """Two that import the same pack at the same time bring everything once."""

    def imported(_: int) -> tuple[int, ...]:
        with eventq.open(path) as thread:
            return added(thread.import_pack(pack))

    with ThreadPoolExecutor(2) as pool:
        both = [*pool.map(imported, range(2))]
    assert [sum(pair) for pair in zip(*both, strict=True)] == [5, 4, 4, 0]
    with eventq.open(path) as thread:
        assert thread.check() == []
        again = exported(thread)
    assert [again[name] for name in FILES[3:6]] == [whole()[name] for name in FILES[3:6]]
