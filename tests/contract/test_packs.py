"""Packs, from a thread to a folder and in again: the exact bytes, what an import adds, and what damage costs."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq import LogicError, system
from eventq.blobs import Blobs
from eventq.dag import packfile
from eventq.errors import BusyError, DamagedBlobError, DiskError, NotAThreadError, ReadOnlyError
from eventq.records import NewTurn
from eventq.storage.sqlite.database import Database
from eventq.storage.sqlite.packs import PackTable
from eventq.transfer import packs, sources
from tests.contract.support import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import apsw

    from eventq.records import Imported
    from tests.conftest import Clock, Until

FILES = [
    "blobs.idx",
    "blobs.pack",
    "eventq.ndjson",
    "heads.tbl",
    "turns.idx",
    "turns.log",
    "turns.meta",
]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BORN = 1773829800123  # where the clock stands
PAST = 1 << 62  # ids from here on are given anew
KINDS = {"blob": "blobs.pack", "turn": "turns.log", "meta": "turns.meta", "head": "heads.tbl"}


# A pack as another program would write it.


def everything(thread: eventq.Thread) -> PackTable:
    """Give the tables that a pack holds, all of them chosen."""
    table = PackTable(thread.database)
    table.choose_all()
    return table


def sealed(body: bytes) -> bytes:
    """Give a record with its checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def digest(raw: bytes) -> bytes:
    """Give the hash of a payload."""
    return bytes(blake3(raw).digest())


def tag(type_id: str) -> int:
    """Give the number of a type."""
    return int(struct.unpack("<Q", blake3(type_id.encode()).digest()[:8])[0])


def blob(raw: bytes, *, zstd: bool = False) -> bytes:
    """Give a record of blobs.pack."""
    kept = zstandard.ZstdCompressor(level=1).compress(raw) if zstd else raw
    return sealed(
        struct.pack("<IHHII", 0x42534C42, 1, zstd, len(raw), len(kept)) + digest(raw) + kept
    )


def blob_entry(raw: bytes, offset: int, *, zstd: bool = False) -> bytes:
    """Give an entry of blobs.idx."""
    kept = len(blob(raw, zstd=zstd)) - 52
    return struct.pack("<32sQIIHH", digest(raw), offset, len(raw), kept, zstd, 0)


def turn(
    turn_id: int,
    parent: int,
    depth: int,
    raw: bytes,
    *,
    at: int = BORN,
    number: int | None = None,
    encoding: int = 0,
    flags: int = 0,
) -> bytes:
    """Give a record of turns.log."""
    number = tag("message") if number is None else number
    return sealed(
        struct.pack("<QQIIQ32sIQ", turn_id, parent, depth, encoding, number, digest(raw), flags, at)
    )


def meta(
    turn_id: int, type_id: str = "message", version: int = 1, encoding: int = 0, length: int = 0
) -> bytes:
    """Give a record of turns.meta."""
    text = type_id.encode()
    return (
        struct.pack("<QI", turn_id, len(text))
        + text
        + struct.pack("<IIII", version, encoding, 0, length)
    )


def head(context_id: int, turn_id: int, depth: int, *, at: int = BORN, flags: int = 0) -> bytes:
    """Give a record of heads.tbl."""
    return sealed(struct.pack("<QQIIQ", context_id, turn_id, depth, flags, at))


def write(folder: Path, **files: bytes) -> Path:
    """Write a pack of the files that are given: `blob`, `turn`, `meta`, `head`, `beside`."""
    folder.mkdir()
    for kind, data in files.items():
        (folder / {**KINDS, "beside": "eventq.ndjson"}[kind]).write_bytes(data)
    return folder


def small(folder: Path, count: int = 3, **files: bytes) -> Path:
    """Write a pack of a chain of turns with payloads `1`, `2`, …, in context 1, whole but for what is given."""
    whole = {
        "blob": b"".join(blob(b"%d" % n) for n in range(1, count + 1)),
        "turn": b"".join(turn(n, n - 1, n - 1, b"%d" % n) for n in range(1, count + 1)),
        "meta": b"".join(meta(n, length=1) for n in range(1, count + 1)),
        "head": head(1, count, count - 1),
        "beside": b"",
    }
    return write(folder, **{**whole, **files})


def sums(turns_meta: bytes, beside: bytes) -> bytes:
    """Give the last line of eventq.ndjson: the hashes of what has no checksums."""
    hashes = f'"turns.meta":"{digest(turns_meta).hex()}","eventq.ndjson":"{digest(beside).hex()}"'
    return f'{{"sums":{{{hashes}}}}}\n'.encode()


def contents(folder: Path | str) -> dict[str, bytes]:
    """Give every file of a folder."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


# Threads to export and import.


@dataclass
class Fresh:
    """Makes fresh threads; each of them must check out when the test is over."""

    folder: Path
    made: list[eventq.Thread] = field(default_factory=list)

    def __call__(self) -> eventq.Thread:
        self.made.append(eventq.open(eventq.init(self.folder / f"fresh-{len(self.made)}")))
        return self.made[-1]

    def close(self) -> None:
        for one in self.made:
            assert one.check() == []
            one.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """Give a maker of fresh threads."""
    made = Fresh(tmp_path)
    yield made
    made.close()


def heads(thread: eventq.Thread) -> dict[int, int]:
    """Give the head of every context."""
    return {one.context_id: one.head_turn_id for one in thread.contexts}


def payloads(thread: eventq.Thread, context: int | str) -> list[bytes | None]:
    """Give the payloads of a context."""
    return [one.payload for one in thread.contexts.get(context).replay()]


def turn_count(thread: eventq.Thread) -> int:
    """Give the number of all turns."""
    return int(thread.database.one("SELECT count(*) FROM turns"))


def state(thread: eventq.Thread) -> Any:
    """Give all that an import could change: turns, contexts with names and moves, overlays, roots, refs and pins."""
    table = everything(thread)
    return (
        list(table.turns()),
        list(thread.contexts),
        [list(thread.contexts.history(one.context_id)) for one in thread.contexts],
        list(table.patches()),
        list(table.roots()),
        list(table.refs()),
        thread.blobs.pins(),
        sorted((one.hash, one.size) for one in thread.blobs),
    )


def added(found: Imported) -> tuple[int, int, int, int]:
    """Give the four numbers of an import."""
    return found.blobs, found.turns, found.contexts, found.moved


def says(found: Imported, *words: str) -> bool:
    """Say whether one note holds all of the words."""
    return any(all(word in note for word in words) for note in found.notes)


def big(size: int, seed: int = 0) -> bytes:
    """Give text that compresses, and that no other seed shares."""
    line = b"".join(b"%d:%d;" % (seed, n * n * 7919 % 10007) for n in range(size // 8))
    return line[:size]


def fill(thread: eventq.Thread, tick: Callable[[], None]) -> None:
    """Store some of everything: turns 1 to 5 in `main`, 6 and 7 in `side`, forked at 3, 8 in `other`, and `empty`."""
    tick()
    contexts = thread.contexts
    main = contexts.create("main")
    for n in range(1, 6):
        tick()
        main.append(NewTurn(f"m{n}", type_id=f"chat/{n}", type_version=n, encoding=n, flags=n))
    tick()
    side = main.fork(at=3, name="side")
    tick()
    side.append(b"x" * 400)
    tick()
    side.append(
        NewTurn(
            {"b": 1, "a": [2]}, canonical="eventq-json-1", refs=[thread.blobs.put(b"named").hash]
        )
    )
    tick()
    other = contexts.create("other")
    tick()
    other.append("o1")
    tick()
    contexts.create("empty")
    tick()
    contexts.patch(2, NewTurn("m2 again", flags=3))
    tick()
    contexts.patch(2, "m2 once more")
    tick()
    contexts.tombstone(4)
    contexts.attach(2, digest(b"kept"))
    contexts.attach(7, digest(b"not here"))
    thread.blobs.pin(thread.blobs.put(b"kept").hash, "me")
    thread.blobs.pin(thread.blobs.put(b"kept").hash, "and you: é")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Give the files of the pack of a thread that holds some of everything."""
    folder = tmp_path_factory.mktemp("whole")
    at = [BORN / 1000]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_NOTIFIER", "none")
        patch.setattr(system, "now", lambda: at[0])

        def tick() -> None:
            at[0] += 1

        with eventq.open(eventq.init(folder / "thread")) as thread:
            fill(thread, tick)
            thread.export_pack(folder / "pack")
    return contents(folder / "pack")


@pytest.fixture
def pack(whole: dict[str, bytes], tmp_path: Path) -> Path:
    """Give a copy of that pack, to break."""
    folder = tmp_path / "pack"
    folder.mkdir()
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    return folder


def flip(file: Path, at: int) -> None:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


# The bytes.


def test_exact_bytes_of_a_store(thread: eventq.Thread, clock: Clock, tmp_path: Path) -> None:
    """An export is these files, byte for byte, made here with struct alone."""
    long = b"a" * 300
    main = thread.contexts.create("main")
    clock.move(1)
    main.append(NewTurn("one", type_id="chat/é", type_version=3, encoding=9, flags=0x80000001))
    clock.move(1)
    main.append(long)
    clock.move(1)
    fork = main.fork(at=1)
    clock.move(1)
    fork.append(NewTurn("one", type_id=""))
    thread.contexts.create(None)
    thread.contexts.patch(2, "two")
    thread.contexts.tombstone(3, flags=5)
    thread.contexts.attach(2, digest(b"three"))
    clock.move(1)
    thread.blobs.put(b"three", refs=[digest(b"one"), digest(b"two")])
    thread.blobs.pin(digest(b"three"), "pin")
    thread.export_pack(tmp_path / "pack")
    found = contents(tmp_path / "pack")
    assert sorted(found) == FILES
    raws = [(b"one", False), (long, True), (b"two", False), (b"three", False)]
    offsets, at = [], 0
    for raw, zstd in raws:
        offsets.append(at)
        at += len(blob(raw, zstd=zstd))
    assert found["blobs.pack"] == b"".join(blob(raw, zstd=zstd) for raw, zstd in raws)
    assert found["blobs.idx"] == b"".join(
        blob_entry(raw, offset, zstd=zstd)
        for (raw, zstd), offset in zip(raws, offsets, strict=True)
    )
    assert found["turns.log"] == (
        turn(1, 0, 0, b"one", at=BORN + 1000, number=tag("chat/é"), encoding=9, flags=0x80000001)
        + turn(2, 1, 1, long, at=BORN + 2000)
        + turn(3, 1, 1, b"one", at=BORN + 4000, number=tag(""))
    )
    assert found["turns.idx"] == struct.pack("<6Q", 1, 0, 2, 80, 3, 160)
    assert found["turns.meta"] == (
        meta(1, "chat/é", 3, 9, 3) + meta(2, "message", 1, 0, 300) + meta(3, "", 1, 0, 3)
    )
    assert found["heads.tbl"] == (
        head(1, 2, 1) + head(2, 3, 1, at=BORN + 3000) + head(3, 0, 0, at=BORN + 4000)
    )
    one, two, three = (digest(raw).hex() for raw in (b"one", b"two", b"three"))
    refs = sorted((one, two))
    *lines, last = found["eventq.ndjson"].splitlines(keepends=True)
    assert last == sums(found["turns.meta"], b"".join(lines))
    assert b"".join(lines).decode().splitlines() == [
        '{"context":1,"name":"main","fork_of":null}',
        '{"context":2,"name":null,"fork_of":1}',
        f'{{"patch":2,"blob":"{two}","flags":0,"created_at_ms":{BORN + 4000}}}',
        f'{{"patch":3,"blob":null,"flags":5,"created_at_ms":{BORN + 4000}}}',
        f'{{"root":2,"hash":"{three}"}}',
        *[f'{{"ref":"{ref}","blob":"{three}"}}' for ref in refs],
        f'{{"pin":"pin","blob":"{three}"}}',
    ]
    assert (tmp_path / "pack").stat().st_mode & 0o777 == 0o700
    assert {(tmp_path / "pack" / name).stat().st_mode & 0o777 for name in FILES} == {0o600}


def test_type_tag_in_hex(thread: eventq.Thread, tmp_path: Path) -> None:
    """The tag of `message` is these eight bytes."""
    thread.contexts.create().append("x")
    thread.export_pack(tmp_path / "pack")
    assert (tmp_path / "pack" / "turns.log").read_bytes()[24:32] == blake3(b"message").digest()[:8]
    assert (tmp_path / "pack" / "turns.log").read_bytes()[24:32].hex() == "4bd766dabadb76f2"


def test_an_empty_store(fresh: Fresh, tmp_path: Path) -> None:
    """A thread that holds nothing exports empty files but for their hashes, and they import as nothing."""
    fresh().export_pack(tmp_path / "pack")
    assert contents(tmp_path / "pack") == {
        **dict.fromkeys(FILES, b""),
        "eventq.ndjson": sums(b"", b""),
    }
    found = fresh().import_pack(tmp_path / "pack")
    assert added(found) == (0, 0, 0, 0)
    assert found.notes == ()


# There and back.


def test_a_pack_of_another_program(fresh: Fresh, tmp_path: Path) -> None:
    """A pack without the files of eventq, with any u64 as context id and any tag, is read right and written again."""
    largest = (1 << 64) - 1
    ids = [largest, 0x9E3779B97F4A7C15, 7]
    log = (
        turn(1, 0, 0, b"root", at=1, number=largest, encoding=(1 << 32) - 1, flags=(1 << 32) - 1)
        + turn(5, 1, 1, b"a" * 500, at=2, number=0)
        + turn(6, 1, 1, b"", at=3, number=1 << 63)
        + turn(900, 6, 2, b"root", at=(1 << 63) - 1, number=(1 << 63) - 1)
    )
    folder = write(
        tmp_path / "theirs",
        blob=blob(b"root") + blob(b"a" * 500, zstd=True) + blob(b""),
        turn=log,
        head=head(ids[0], 5, 1, at=5) + head(ids[1], 1, 0, at=6, flags=9) + head(ids[1], 900, 2, at=6, flags=9)
        + head(ids[2], 0, 0, at=7),
    )  # fmt: skip
    thread = fresh()
    found = thread.import_pack(folder)
    assert added(found) == (3, 4, 3, 0)
    assert says(found, "blobs.idx: is missing", "made anew")
    assert says(found, "turns.idx: is missing", "made anew")
    assert says(found, "turns.meta: is missing")
    assert len(found.notes) == 3
    first, second, third = thread.contexts
    assert (first.head_turn_id, second.head_turn_id, third.head_turn_id) == (5, 900, 0)
    assert (first.head_depth, second.flags, third.created_at_ms) == (1, 9, 7)
    assert payloads(thread, first.context_id) == [b"root", b"a" * 500]
    assert payloads(thread, second.context_id) == [b"root", b"", b"root"]
    last = thread.contexts.turn(900)
    assert (last.parent_turn_id, last.depth, last.type_id, last.created_at_ms) == (
        6,
        2,
        "",
        (1 << 63) - 1,
    )
    assert thread.contexts.turn(1).encoding == thread.contexts.turn(1).flags == (1 << 32) - 1
    thread.export_pack(tmp_path / "ours")
    assert (tmp_path / "ours" / "turns.log").read_bytes() == log
    assert (folder / "turns.idx").read_bytes() == struct.pack("<8Q", 1, 0, 5, 80, 6, 160, 900, 240)
    assert contents(folder)["blobs.idx"] == contents(tmp_path / "ours")["blobs.idx"]
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)
    assert added(thread.import_pack(tmp_path / "ours")) == (0, 0, 0, 0)


def test_there_and_back(whole: dict[str, bytes], pack: Path, fresh: Fresh, tmp_path: Path) -> None:
    """A pack that was imported into a fresh thread is exported again as the same bytes, in every file."""
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts, found.moved) == ((), 8, 4, 0)
    thread.export_pack(tmp_path / "again")
    assert contents(tmp_path / "again") == whole
    assert contents(pack) == whole
    assert (
        thread.database.one("SELECT count(type_tag) FROM turns") == 0
    )  # they follow from the types
    contexts = thread.contexts
    assert [(one.context_id, one.name, one.fork_of) for one in contexts] == [
        (1, "main", None), (2, "side", 1), (3, "other", None), (4, "empty", None),
    ]  # fmt: skip
    assert payloads(thread, "main") == [b"m1", b"m2 once more", b"m3", None, b"m5"]
    assert payloads(thread, "side") == [
        b"m1",
        b"m2 once more",
        b"m3",
        b"x" * 400,
        b'{"a":[2],"b":1}',
    ]
    assert contexts.turn(7).canonical == "eventq-json-1"
    assert contexts.turn(2, as_of=0).payload == b"m2"
    assert thread.blobs.refs(contexts.turn(7).hash) == [f"blob:blake3:{digest(b'named').hex()}"]
    assert [name for name, _ in thread.blobs.pins()] == ["and you: é", "me"]
    assert [contexts.root(turn) for turn in (1, 2, 6, 7)] == [
        None,
        *[digest(b"kept")] * 2,
        digest(b"not here"),
    ]


def test_large_payloads_there_and_back(fresh: Fresh, tmp_path: Path) -> None:
    """Payloads that are kept in parts leave as one blob each, and come back in parts, bytes and pack the same."""
    first, second = fresh(), fresh()
    data = [big(300_000), big(300_000)[:200_000] + b"!" + big(300_000)[200_000:], big(3 << 20, 1)]
    context = first.contexts.create("big")
    for one in data:
        context.append(one)
    context.append(os.urandom(2 << 20))
    assert [first.blobs.stat(digest(one)).codec for one in data] == ["parts"] * 3
    first.export_pack(tmp_path / "one")
    found = second.import_pack(tmp_path / "one")
    assert added(found) == (4, 4, 1, 0)
    assert payloads(second, "big")[:3] == data
    assert [second.blobs.stat(digest(one)).codec for one in data] == ["parts"] * 3
    second.export_pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_contexts_of_one_moment(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Contexts that were made in the same millisecond stay apart."""
    first, second = fresh(), fresh()
    main = first.contexts.create("main")
    first.contexts.create("empty")
    main.fork(name="fork")
    main.append("1")
    main.fork(name="behind")
    main.append("2")
    first.export_pack(tmp_path / "one")
    found = second.import_pack(tmp_path / "one")
    assert added(found) == (2, 2, 4, 0)
    assert heads(second) == heads(first)
    second.export_pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert added(second.import_pack(tmp_path / "one")) == (0, 0, 0, 0)
    assert added(first.import_pack(tmp_path / "one")) == (0, 0, 0, 0)


def test_twins_there_and_back(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Turns that are the same in all but the id stay as many as they were."""
    first, second = fresh(), fresh()
    for name in "abc":
        context = first.contexts.create(name)
        clock.move(1)
        context.fork(name=f"{name}2")
    for name in "abc":
        first.contexts.get(name).append("hello")
    for name in "abc":
        first.contexts.get(name).append(f"more {name}")
    first.export_pack(tmp_path / "one")
    clock.move(1)
    assert added(first.import_pack(tmp_path / "one")) == (0, 0, 0, 0)
    found = second.import_pack(tmp_path / "one")
    assert found.turns == 6
    assert added(second.import_pack(tmp_path / "one")) == (0, 0, 0, 0)
    second.export_pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_twins_under_other_ids(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Twins come into a thread that has turns of its own, each once, however often they are imported."""
    log = b"".join(turn(n, 0, 0, b"same", at=5) for n in (1, 2, 3)) + turn(4, 2, 1, b"next", at=5)
    table = head(1, 1, 0, at=1) + head(2, 4, 1, at=2) + head(3, 3, 0, at=3)
    folder = write(tmp_path / "pack", blob=blob(b"same") + blob(b"next"), turn=log, head=table)
    thread = fresh()
    thread.contexts.create("mine").append("own")
    assert thread.import_pack(folder).turns == 4
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)
    thread.export_pack(tmp_path / "out")
    parents = [
        one[1]
        for one in struct.iter_unpack("<QQ64x", (tmp_path / "out" / "turns.log").read_bytes())
    ]
    assert parents == [0, 0, 0, 0, 3]


def test_overlays_that_go_back(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Of overlays of one millisecond, A, B and A again, the last one shows after an import too."""
    first, second = fresh(), fresh()
    first.contexts.create("main").append("0")
    for one in "ABA":
        first.contexts.patch(1, one)
    first.export_pack(tmp_path / "one")
    second.import_pack(tmp_path / "one")
    assert payloads(second, "main") == payloads(first, "main") == [b"A"]
    second.import_pack(tmp_path / "one")
    second.export_pack(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


# Again, and into a thread that holds something.


def test_twice(pack: Path, fresh: Fresh) -> None:
    """Importing a pack again adds nothing and changes nothing."""
    thread = fresh()
    thread.import_pack(pack)
    before = state(thread)
    found = thread.import_pack(pack)
    assert found == type(found)(0, 0, 0, 0, ())
    assert state(thread) == before


def test_names_stay(fresh: Fresh, tmp_path: Path) -> None:
    """A context that is here keeps its lineage, whatever a pack says later; another name is another context."""
    thread = fresh()
    table = head(1, 3, 2, at=1) + head(2, 3, 2, at=2)
    told = b'{"context":1,"name":"main","fork_of":null}\n{"context":2,"name":"side","fork_of":1}\n'
    thread.import_pack(small(tmp_path / "one", 3, head=table, beside=told))
    before = state(thread)
    again = b'{"context":1,"name":"main","fork_of":2}\n{"context":2,"name":"side","fork_of":null}\n'
    thread.import_pack(small(tmp_path / "two", 3, head=table, beside=again))
    assert state(thread) == before
    other = b'{"context":1,"name":"other"}\n{"context":2,"name":"side"}\n'
    assert thread.import_pack(small(tmp_path / "three", 3, head=table, beside=other)).contexts == 1
    assert [info.name for info in thread.contexts] == ["main", "side", "other"]


def test_contexts_of_one_moment_are_told_apart(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """What was born in one millisecond is told apart by its name; each head goes on by itself, here and there."""
    first, second = fresh(), fresh()
    second.contexts.create("own").append("own")
    main = first.contexts.create("main")
    main.append("0")
    with first.write():
        for name in "xyz":
            main.fork(name=name)
    first.export_pack(tmp_path / "one")
    second.import_pack(tmp_path / "one")
    second.contexts.get("x").append("x here")
    for name in "xyz":
        first.contexts.get(name).append(f"{name} there")
    first.export_pack(tmp_path / "two")
    found = second.import_pack(tmp_path / "two")
    assert [turn.payload for turn in second.contexts.get("x").last()] == [b"0", b"x here"]
    for name in "yz":
        assert [turn.payload for turn in second.contexts.get(name).last()] == [
            b"0",
            f"{name} there".encode(),
        ]
    assert (found.contexts, found.moved, len(found.notes)) == (0, 2, 1)


def test_a_collection_beside_an_import(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a collection deletes between the blobs and the turns of an import is an error, never fewer turns."""
    first, second = fresh(), fresh()
    first.contexts.create("main").append("1")
    first.export_pack(tmp_path / "pack")
    monkeypatch.setattr(
        packs._Import,
        "_names_of_contexts",
        lambda self: second.database.run("DELETE FROM blobs") or {},
    )
    with pytest.raises(BusyError, match="a collection deleted"):
        second.import_pack(tmp_path / "pack")
    monkeypatch.undo()
    assert second.import_pack(tmp_path / "pack").turns == 1


def test_a_thread_that_was_replaced_is_not_exported(tmp_path: Path) -> None:
    """A handle on a thread that was deleted does not export the one that somebody made in its place."""
    path = eventq.init(tmp_path / "replaced")
    with eventq.open(path) as gone:
        eventq.destroy(path)
        eventq.init(path)
        with pytest.raises(NotAThreadError):
            gone.export_pack(tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_branches_of_deleted_contexts(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A branch whose context was deleted comes without one while heads.tbl is sound."""
    first, second = fresh(), fresh()
    main = first.contexts.create("main")
    main.append("1")
    clock.move(1)
    fork = main.fork()
    fork.append("2")
    fork.delete()
    first.export_pack(tmp_path / "pack")
    found = second.import_pack(tmp_path / "pack")
    assert (found.notes, added(found)) == ((), (2, 2, 1, 0))
    assert heads(second) == {1: 1}
    assert second.contexts.turn(2).payload == b"2"


def test_where_it_came_from(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A thread that imports its own export stays as it is."""
    thread = fresh()
    fill(thread, lambda: clock.move(1))
    thread.export_pack(tmp_path / "pack")
    before = state(thread)
    found = thread.import_pack(tmp_path / "pack")
    assert found == type(found)(0, 0, 0, 0, ())
    assert state(thread) == before


def test_ids_anew(pack: Path, fresh: Fresh, whole: dict[str, bytes]) -> None:
    """In a thread with turns and contexts of its own what comes gets higher ids, once; what was there stays."""
    thread, plain = fresh(), fresh()
    mine = thread.contexts.create("mine")
    for n in range(3):
        mine.append(f"own {n}")
    plain.import_pack(pack)
    before = chain(thread, "mine")
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 8, 4)
    assert chain(thread, "mine") == before
    for name in ("main", "side", "other", "empty"):
        assert chain(thread, name) == chain(plain, name)
    assert [one.head_turn_id for one in thread.contexts] == [3, 8, 10, 11, 0]
    assert list(everything(thread).roots()) == [(5, digest(b"kept")), (10, digest(b"not here"))]
    assert [one.fork_of for one in thread.contexts] == [None, None, 2, None, None]
    after = state(thread)
    again = thread.import_pack(pack)
    assert added(again) == (0, 0, 0, 0)
    assert state(thread) == after
    assert mine.append("next").turn_id == 12


def test_a_root_that_is_another_here(fresh: Fresh, tmp_path: Path) -> None:
    """A turn that was given another root here keeps it, and a note says so; one that has none gets that of the pack."""
    lines = [f'{{"root":{turn},"hash":"{LOST}"}}' for turn in (1, 2)]
    folder = small(tmp_path / "pack", 3, beside="\n".join(lines).encode())
    thread, plain = fresh(), fresh()
    thread.import_pack(small(tmp_path / "bare", 3))
    thread.contexts.attach(1, HASH)
    note = f"turn 1 keeps the root that it has here, {HASH}, not {LOST}"
    for _ in range(2):
        assert [said for said in thread.import_pack(folder).notes if "root" in said] == [note]
        assert [thread.contexts.root(turn) for turn in (1, 2, 3)] == [
            digest(b"1"),
            bytes(32),
            bytes(32),
        ]
    for _ in range(2):
        assert not says(plain.import_pack(folder), "root")
        assert list(everything(plain).roots()) == [(1, bytes(32)), (2, bytes(32))]


def test_a_newer_export(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A newer export after an older one adds what is new and moves the heads on; an older one changes nothing."""
    first, second, third = fresh(), fresh(), fresh()
    third.contexts.create("own").append("own")
    fill(first, lambda: clock.move(1))
    first.export_pack(tmp_path / "old")
    second.import_pack(tmp_path / "old")
    third.import_pack(tmp_path / "old")
    clock.move(1)
    first.contexts.get("main").append("m6")
    first.contexts.get("empty").append("e1")
    first.contexts.get("other").fork(name="late")
    first.contexts.patch(1, "m1 again")
    first.export_pack(tmp_path / "new")
    clock.move(1)
    found = second.import_pack(tmp_path / "new")
    assert (found.notes, added(found)) == ((), (3, 2, 1, 2))
    assert heads(second) == heads(first)
    last = list(second.contexts.history("main"))[-1]
    assert (last.version, last.op, last.old_turn_id, last.new_turn_id) == (1, "import", 5, 9)
    assert last.at_ms == system.milliseconds()
    assert added(third.import_pack(tmp_path / "new")) == (3, 2, 1, 2)
    for thread in (second, third):
        for name in ("main", "side", "other", "empty", "late"):
            assert chain(thread, name) == chain(first, name)
        before = state(thread)
        for name in ("old", "new"):
            again = thread.import_pack(tmp_path / name)
            assert (again.notes, added(again)) == ((), (0, 0, 0, 0))
        assert state(thread) == before


def test_another_way(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A context that went another way here stays where it is, and a note says where the pack's stands."""
    first, second = fresh(), fresh()
    main = first.contexts.create("main")
    main.append("1")
    first.export_pack(tmp_path / "old")
    second.import_pack(tmp_path / "old")
    second.contexts.get("main").append("here")
    clock.move(1)
    main.append("there")
    first.export_pack(tmp_path / "new")
    for turns in (1, 0):
        found = second.import_pack(tmp_path / "new")
        assert (found.turns, found.contexts, found.moved) == (turns, 0, 0)
        assert says(found, "context 1 ", "stays at turn 2", "turn 3")
        assert heads(second) == {1: 2}
    assert second.contexts.turn(3).payload == b"there"


def test_another_way_under_another_id(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A context that was given another id and went another way here stays too, and is not made again."""
    first, second = fresh(), fresh()
    second.contexts.create("own").append("own")
    clock.move(1)
    main = first.contexts.create("main")
    main.append("1")
    first.export_pack(tmp_path / "old")
    second.import_pack(tmp_path / "old")
    second.contexts.get("main").append("here")
    clock.move(1)
    main.append("there")
    first.export_pack(tmp_path / "new")
    found = second.import_pack(tmp_path / "new")
    assert found.contexts == 0
    assert says(found, "context 2 ", "stays at turn 3")


def test_descriptions_later(fresh: Fresh, tmp_path: Path) -> None:
    """A pack without descriptions and then the same with them are the same turns."""
    thread = fresh()
    thread.import_pack(
        write(tmp_path / "bare", blob=blob(b"1"), turn=turn(1, 0, 0, b"1"), head=head(1, 1, 0))
    )
    found = thread.import_pack(small(tmp_path / "whole", 1))
    assert added(found) == (0, 0, 0, 0)


@pytest.mark.parametrize("other", ["encoding", "flags", "at", "number", "payload", "parent"])
def test_what_makes_a_turn(other: str, fresh: Fresh, tmp_path: Path) -> None:
    """A turn that differs in one of parent, payload, type, time, encoding and flags is another turn."""
    thread = fresh()
    log = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"2")
    thread.import_pack(small(tmp_path / "one", 2, turn=log))
    if other == "payload":
        log = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"1")
    elif other == "parent":
        log = turn(1, 0, 0, b"1") + turn(2, 0, 0, b"2")
    else:
        log = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"2", **{other: 5})
    found = thread.import_pack(small(tmp_path / "two", 2, turn=log, head=head(1, 2, 1, at=77)))
    assert (found.turns, found.contexts) == (1, 1)
    assert thread.contexts.turn(3).turn_id == 3
    assert heads(thread) == {1: 2, 2: 3}


def test_a_damaged_blob_is_healed(
    pack: Path, thread: eventq.Thread, raw: apsw.Connection, tmp_path: Path
) -> None:
    """An import puts bytes right that were damaged here."""
    thread.import_pack(pack)
    raw.execute("UPDATE blob_bytes SET bytes = 'zz' WHERE blob_id = 1")
    with eventq.open(thread.path) as again:
        assert again.check() != []
        assert added(again.import_pack(pack)) == (0, 0, 0, 0)
        assert again.check() == []


# Ids.


def test_appends_after_an_import(pack: Path, fresh: Fresh) -> None:
    """After an import the next turn and the next context get the ids after the highest that came."""
    thread = fresh()
    thread.import_pack(pack)
    assert thread.contexts.create("new").id == 5
    assert thread.contexts.get("new").append("n").turn_id == 9
    assert payloads(thread, "new") == [b"n"]


def test_ids_after_a_collection(pack: Path, fresh: Fresh, clock: Clock) -> None:
    """What was imported and collected leaves its ids unused, for appends and for the same pack again."""
    thread = fresh()
    thread.import_pack(pack)
    clock.move(90_000)
    for one in list(thread.contexts):
        thread.contexts.delete(one.context_id)
    clock.move(90_000)
    assert thread.gc(apply=True, grace=0).turns == 8
    assert turn_count(thread) == 0
    mine = thread.contexts.create("mine")
    assert (mine.id, mine.append("x").turn_id) == (5, 9)
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 8, 4)
    assert heads(thread) == {5: 9, 6: 14, 7: 16, 8: 17, 9: 0}
    assert payloads(thread, "main") == [b"m1", b"m2 once more", b"m3", None, b"m5"]
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)


def test_the_largest_ids(fresh: Fresh, tmp_path: Path) -> None:
    """Ids up to 2^62-1 are kept, larger ones given anew, so that there is always a next one."""
    ids = [PAST - 1, PAST, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    parents = [0, *ids]
    log = b"".join(turn(one, parents[n], n, b"%d" % (n + 1)) for n, one in enumerate(ids))
    table = b"".join(head(one, one, n, at=n) for n, one in enumerate(ids))
    folder = small(
        tmp_path / "pack", 5, turn=log, head=table, meta=b"".join(meta(one) for one in ids)
    )
    thread = fresh()
    assert added(thread.import_pack(folder)) == (5, 5, 5, 0)
    assert [one.turn_id for one in thread.contexts.at(PAST + 3).replay()] == [
        PAST - 1 + n for n in range(5)
    ]
    assert heads(thread) == {PAST - 1 + n: PAST - 1 + n for n in range(5)}
    assert payloads(thread, PAST + 3) == [b"1", b"2", b"3", b"4", b"5"]
    assert {one.type_id for one in thread.contexts.at(PAST + 3).replay()} == {"message"}
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)
    assert thread.contexts.get(PAST + 3).append("next").turn_id == PAST + 4
    assert thread.contexts.create().id == PAST + 4


def test_an_append_after_a_torn_log(fresh: Fresh, tmp_path: Path) -> None:
    """After a torn tail an append stores its turn after what was kept, and both read right."""
    folder = small(tmp_path / "pack", 5)
    os.truncate(folder / "turns.log", 3 * 80 + 79)
    thread = fresh()
    thread.import_pack(folder)
    new = thread.contexts.get(1).append("new")
    assert new.turn_id > 3
    assert payloads(thread, 1) == [b"1", b"2", b"3", b"new"]
    thread.import_pack(small(tmp_path / "sound", 5))
    assert payloads(thread, 1) == [b"1", b"2", b"3", b"new"]
    assert thread.contexts.turn(new.turn_id).payload == b"new"


@pytest.mark.parametrize("lost", ["the record", "the payload"])
def test_ids_of_what_was_left_out(lost: str, fresh: Fresh, tmp_path: Path) -> None:
    """The id of a turn that the pack names and that was left out is not given to a new turn."""
    folder = small(tmp_path / "pack", 5)
    if lost == "the record":
        os.truncate(folder / "turns.log", 4 * 80 + 79)
    else:
        os.truncate(folder / "blobs.pack", 5 * len(blob(b"1")) - 1)
    thread = fresh()
    assert thread.import_pack(folder).turns == 4
    assert thread.contexts.get(1).append("new").turn_id > 5


# Damage.


def test_a_torn_log(pack: Path, fresh: Fresh) -> None:
    """Of a torn turns.log what stands before the tear is kept, and the heads that it proves; a whole pack mends it."""
    flip(pack / "turns.log", 4 * 80 + 40)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (4, 2)
    assert says(found, "turns.log", "4 records after byte 320", "dropped", "damaged")
    for context, at in ((1, 5), (2, 7), (3, 8)):
        assert says(
            found, "heads.tbl", f"head of context {context}, turn {at}, is not in turns.log"
        )
    assert says(found, "heads.tbl: no head is left for turn 4")
    assert says(found, "turns.idx: disagrees with turns.log from entry 4")
    assert heads(thread) == {4: 0, 5: 4}
    assert payloads(thread, 5) == [b"m1", b"m2 once more", b"m3", None]
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)


def test_the_only_context_lost(fresh: Fresh, tmp_path: Path) -> None:
    """A head beyond the log leaves its context where the log ends, with its id, name, time and flags."""
    folder = small(
        tmp_path / "pack",
        3,
        head=head(44, 99, 98, at=123, flags=6),
        beside=b'{"context":44,"name":"mine"}\n',
    )
    thread = fresh()
    found = thread.import_pack(folder)
    assert says(found, "heads.tbl", "context 44, turn 99, is not in turns.log")
    assert says(found, "heads.tbl", "no head is left for turn 3: context 44 stands at it")
    (info,) = thread.contexts
    assert (info.context_id, info.head_turn_id, info.created_at_ms, info.flags, info.name) == (
        44,
        3,
        123,
        6,
        "mine",
    )
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)


def test_the_head_before(fresh: Fresh, tmp_path: Path) -> None:
    """Where the last head of a context is not in the log, or is damaged, the one before it counts."""
    for name, last in (("beyond", head(1, 99, 98)), ("flipped", head(1, 3, 2)[:-1] + b"\0")):
        folder = small(tmp_path / name, 3, head=head(1, 1, 0) + head(1, 2, 1) + last)
        thread = fresh()
        found = thread.import_pack(folder)
        assert heads(thread)[1] == 2
        assert any(note.startswith("heads.tbl: ") for note in found.notes)
        assert 3 in heads(thread).values()  # the branch that no head is left for
        assert added(thread.import_pack(folder)) == (0, 0, 0, 0)


def test_the_last_head_counts(fresh: Fresh, tmp_path: Path) -> None:
    """Of several sound records of a context the last counts, also when it is further up."""
    folder = small(tmp_path / "pack", 3, head=head(1, 3, 2) + head(2, 3, 2, at=5) + head(1, 2, 1))
    thread = fresh()
    assert thread.import_pack(folder).contexts == 2
    assert heads(thread) == {1: 2, 2: 3}


@pytest.mark.parametrize("at", range(36))
def test_a_flipped_byte_in_a_head(at: int, pack: Path, fresh: Fresh) -> None:
    """A head with one byte changed is left out and said; its branch gets a context of its own, the others stay."""
    flip(pack / "heads.tbl", at)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts, found.moved) == (8, 4, 0)
    assert says(found, "heads.tbl: 1 record after byte 0 was skipped: damaged")
    assert says(found, "heads.tbl: no head is left for turn 5: context 5 stands at it")
    assert heads(thread) == {2: 7, 3: 8, 4: 0, 5: 5}
    assert [one.name for one in thread.contexts] == ["side", "other", "empty", None]
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)


@pytest.mark.parametrize("how", ["lost", "empty"])
def test_heads_lost(how: str, pack: Path, fresh: Fresh) -> None:
    """Without heads.tbl, or with an empty one, every branch gets a context of its own, once."""
    if how == "lost":
        (pack / "heads.tbl").unlink()
    else:
        (pack / "heads.tbl").write_bytes(b"")
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (8, 3)
    assert sorted(heads(thread).values()) == [5, 7, 8]
    for tip in (5, 7, 8):
        assert says(found, f"heads.tbl: no head is left for turn {tip}")
    assert how == "empty" or says(found, "heads.tbl: is missing")
    assert payloads(thread, min(heads(thread))) == [b"m1", b"m2 once more", b"m3", None, b"m5"]
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)
    thread.contexts.get(min(heads(thread))).append("on")
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)


def test_a_damaged_head_of_a_context_that_is_here(pack: Path, fresh: Fresh) -> None:
    """A branch that a context here stands on needs no other one when the pack's head is damaged."""
    thread = fresh()
    thread.import_pack(pack)
    flip(pack / "heads.tbl", 0)
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)
    assert heads(thread) == {1: 5, 2: 7, 3: 8, 4: 0}


@pytest.mark.parametrize("time", [1 << 63, (1 << 64) - 1])
def test_a_head_of_no_time(time: int, fresh: Fresh, tmp_path: Path) -> None:
    """A head whose time does not fit is left out; its branch is kept."""
    folder = small(tmp_path / "pack", 3, head=head(1, 3, 2, at=time))
    thread = fresh()
    found = thread.import_pack(folder)
    assert any(note.startswith("heads.tbl: ") for note in found.notes)
    assert list(heads(thread).values()) == [3]
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)


def test_why_a_head_of_no_time_is_left_out(fresh: Fresh, tmp_path: Path) -> None:
    """The note of a head whose time does not fit does not say that its turn is missing."""
    found = fresh().import_pack(small(tmp_path / "pack", 3, head=head(1, 3, 2, at=1 << 63)))
    assert not says(found, "is not in turns.log")


@pytest.mark.parametrize("name", ["blobs.idx", "turns.idx"])
@pytest.mark.parametrize("how", ["lost", "empty", "torn", "flipped", "longer", "a folder"])
def test_indexes(name: str, how: str, whole: dict[str, bytes], pack: Path, fresh: Fresh) -> None:
    """An index that is lost or damaged costs nothing: it is said, and made anew as it was."""
    data = whole[name]
    (pack / name).unlink()
    if how == "a folder":
        (pack / name).mkdir()
    elif how != "lost":
        new = {
            "empty": b"",
            "torn": data[:-3],
            "flipped": data[:40] + b"\xff" + data[41:],
            "longer": data + b"\0",
        }
        (pack / name).write_bytes(new[how])
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (8, 4)
    assert len(found.notes) == 1
    assert says(
        found, f"{name}: {'is missing' if how in ('lost', 'a folder') else 'disagrees with'}"
    )
    if how == "a folder":
        assert says(found, "was not made anew")
    else:
        assert says(found, "both indexes were made anew")
        assert contents(pack) == whole
        assert thread.import_pack(pack).notes == ()


@pytest.mark.parametrize("how", ["read-only", "in the way"])
def test_indexes_that_cannot_be_written(
    how: str, pack: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost index in a folder that cannot be written is said, and costs nothing."""
    (pack / "turns.idx").unlink()
    thread = fresh()
    real = os.open

    def refuse(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT and os.fspath(path).startswith(str(pack)):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more)

    if how == "in the way":
        (pack / "turns.idx.part").mkdir()
    else:
        monkeypatch.setattr(os, "open", refuse)
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts, len(found.notes)) == (8, 4, 1)
    assert says(found, "turns.idx: is missing", "was not made anew")


def test_blob_tail_lost(fresh: Fresh, tmp_path: Path) -> None:
    """A turn whose payload stood in the lost tail of blobs.pack is left out with what follows it; the blobs stay."""
    folder = small(
        tmp_path / "pack", 4, beside=b'{"patch":3,"blob":null,"flags":0,"created_at_ms":1}\n'
    )
    os.truncate(folder / "blobs.pack", 3 * len(blob(b"1")) - 1)
    thread = fresh()
    found = thread.import_pack(folder)
    assert added(found) == (2, 2, 1, 0)
    assert says(found, "blobs.pack", "dropped: the record there is torn")
    assert says(found, "turns.log: turn 3 was left out", digest(b"3").hex())
    assert says(found, "turns.log: turn 4 was left out: its parent, turn 3, is not there")
    assert says(found, "heads.tbl", "turn 4")
    assert says(found, "eventq.ndjson: ")
    assert heads(thread) == {1: 2}
    whole = thread.import_pack(small(tmp_path / "whole", 4))
    assert (whole.turns, whole.contexts, whole.moved) == (2, 0, 1)
    assert payloads(thread, 1) == [b"1", b"2", b"3", b"4"]


def test_first_blob_bad(pack: Path, fresh: Fresh) -> None:
    """The first record of blobs.pack bad costs the turns that need it, and no other."""
    flip(pack / "blobs.pack", 20)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (1, 2)
    assert says(found, "blobs.pack", "after byte 0", "damaged")
    assert says(found, "turns.log: turn 1 was left out", digest(b"m1").hex())
    assert says(found, "turns.log: turn 7 was left out: its parent, turn 6")
    assert {one.name: one.head_turn_id for one in thread.contexts} == {"other": 8, "empty": 0}
    assert thread.blobs.has(digest(b"x" * 400))


@pytest.mark.parametrize("what", ["hash", "length", "zstd"])
def test_a_blob_that_is_not_its_hash(what: str, fresh: Fresh, tmp_path: Path) -> None:
    """A blob whose checksum holds and whose bytes are not those of its hash is left out, and so is its turn."""
    codec, raw_len, stored = {
        "hash": (0, 1, b"?"),
        "length": (0, 2, b"1"),
        "zstd": (1, 1, b"no frame"),
    }[what]
    bad = sealed(
        struct.pack("<IHHII", 0x42534C42, 1, codec, raw_len, len(stored)) + digest(b"1") + stored
    )
    folder = write(
        tmp_path / "pack",
        blob=bad + blob(b"2"),
        turn=turn(1, 0, 0, b"1") + turn(2, 0, 0, b"2"),
        head=head(1, 2, 0),
    )
    thread = fresh()
    found = thread.import_pack(folder)
    assert added(found) == (1, 1, 1, 0)
    assert says(found, "blobs.pack: the record at byte 0 was left out", digest(b"1").hex())
    assert says(found, "turns.log: turn 1 was left out")
    assert heads(thread) == {1: 2}


def test_first_turn_bad(pack: Path, fresh: Fresh) -> None:
    """The first record of turns.log bad costs all turns; blobs and empty contexts stay."""
    flip(pack / "turns.log", 0)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (0, 1)
    assert found.blobs == 12
    assert says(found, "turns.log: 8 records after byte 0 were dropped")
    assert [one.name for one in thread.contexts] == ["empty"]
    assert len(thread.blobs.pins()) == 2


def test_first_description_bad(
    pack: Path, fresh: Fresh, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """The first record of turns.meta bad costs the names of types, and no turn; the numbers of the types stay."""
    data = bytearray(whole["turns.meta"])
    data[8:12] = b"\xff\xff\xff\xff"
    (pack / "turns.meta").write_bytes(data)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (8, 4)
    assert says(found, "turns.meta", "after byte 0", "dropped")
    assert thread.contexts.turn(1).type_id == ""
    thread.export_pack(tmp_path / "again")
    assert (tmp_path / "again" / "turns.log").read_bytes() == whole["turns.log"]


CHAIN = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"2")
BAD_TURNS = {
    "no parent": (turn(7, 6, 2, b"3"), "its parent, turn 6, is not there"),
    "its own parent": (turn(7, 7, 2, b"3"), "its parent, turn 7, is not there"),
    "a later parent": (turn(7, 8, 2, b"3"), "its parent, turn 8, is not there"),
    "no payload": (turn(7, 2, 2, b"lost"), digest(b"lost").hex()),
    "depth of its parent": (turn(7, 2, 1, b"3"), "its depth, 1, does not follow"),
    "a depth too many": (turn(7, 2, 3, b"3"), "its depth, 3, does not follow"),
    "the largest depth": (
        turn(7, 2, (1 << 32) - 1, b"3"),
        "its depth, 4294967295, does not follow",
    ),
    "a root with a depth": (turn(7, 0, 1, b"3"), "its depth, 1, does not follow"),
    "no time": (turn(7, 2, 2, b"3", at=1 << 63), f"its time, {1 << 63}, is none"),
    "the last time": (turn(7, 2, 2, b"3", at=(1 << 64) - 1), f"its time, {(1 << 64) - 1}, is none"),
}


@pytest.mark.parametrize("kind", BAD_TURNS)
def test_a_turn_that_cannot_be(kind: str, fresh: Fresh, tmp_path: Path) -> None:
    """A turn that has no place here is left out and named, and so is what follows it; the others stay."""
    record, why = BAD_TURNS[kind]
    log = CHAIN + record + turn(9, 7, 3, b"3") + turn(10, 2, 2, b"4")
    folder = small(
        tmp_path / "pack", 4, turn=log, head=head(1, 9, 3) + head(2, 10, 2, at=5), meta=b""
    )
    thread = fresh()
    found = thread.import_pack(folder)
    assert says(found, "turns.log: turn 7 was left out: ", why)
    assert says(found, "turns.log: turn 9 was left out: its parent, turn 7, is not there")
    assert says(found, "heads.tbl: the head of context 1, turn 9, is not in turns.log")
    assert (found.turns, found.contexts) == (3, 1)
    assert payloads(thread, 2) == [b"1", b"2", b"4"]
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)


@pytest.mark.parametrize(("turn_id", "told"), [(2, 2), (1, 1), (0, 0)])
def test_ids_that_go_back(turn_id: int, told: int, fresh: Fresh, tmp_path: Path) -> None:
    """A turn whose id is not above the one before it is left out; the one that came first stays."""
    log = CHAIN + turn(turn_id, 0, 0, b"3") + turn(5, 2, 2, b"4")
    thread = fresh()
    found = thread.import_pack(small(tmp_path / "pack", 4, turn=log, head=head(1, 5, 2), meta=b""))
    assert says(
        found, f"turns.log: turn {told} was left out: its id is not above the one before it"
    )
    assert found.turns == 3
    assert payloads(thread, 1) == [b"1", b"2", b"4"]


def test_descriptions_that_disagree(fresh: Fresh, tmp_path: Path) -> None:
    """What turns.log says counts where turns.meta says otherwise; a name with another tag is kept beside the tag."""
    told = meta(1, "other", 5, 77, 99) + meta(2) + meta(2, "twice") + meta(50, "nobody's")
    log = turn(1, 0, 0, b"1", encoding=3) + turn(2, 1, 1, b"2") + turn(3, 2, 2, b"3")
    folder = small(tmp_path / "pack", 3, meta=told, turn=log)
    thread = fresh()
    assert thread.import_pack(folder).turns == 3
    first, second, third = thread.contexts.get(1).replay()
    assert (first.type_id, first.type_version, first.encoding, first.size) == ("other", 5, 3, 1)
    assert (second.type_id, third.type_id, third.type_version) == ("message", "", 0)
    thread.export_pack(tmp_path / "out")
    assert (tmp_path / "out" / "turns.log").read_bytes() == log


HASH = digest(b"1").hex()
LOST = "0" * 64
JUNK: dict[str, bytes] = {
    "no JSON": b"junk",
    "null bytes": b"\0\0\0\0",
    "a list": b'[{"context":1,"name":"x"}]',
    "a number": b"7",
    "half a line": b'{"context":1,"na',
    "not UTF-8": b'{"context":1,"name":"\xff"}',
    "deep": b"[" * 50_000,
    "deep in an object": b'{"context":' * 5_000,
    "a huge number": b'{"context":' + b"9" * 4_000 + b"}",
    "a number too long": b'{"context":' + b"9" * 9_000 + b"}",
    "nothing known": b'{"a":1}',
    "no context": b'{"context":77,"name":"x"}',
    "a context by text": b'{"context":"1","name":"x"}',
    "a negative context": b'{"context":-1,"name":"x"}',
    "fork of a list": b'{"context":1,"fork_of":[1]}',
    "patch of no turn": b'{"patch":9,"blob":null,"flags":0,"created_at_ms":1}',
    "patch of true": b'{"patch":true,"blob":null,"flags":0,"created_at_ms":1}',
    "patch of turn 0": b'{"patch":0,"blob":null,"flags":0,"created_at_ms":1}',
    "patch of a negative turn": b'{"patch":-1,"blob":null,"flags":0,"created_at_ms":1}',
    "patch of a huge turn": b'{"patch":%s,"blob":null,"flags":0,"created_at_ms":1}' % (b"9" * 99),
    "patch with no blob": b'{"patch":1,"flags":0,"created_at_ms":1}',
    "patch with an unknown blob": b'{"patch":1,"blob":"%s","flags":0,"created_at_ms":1}'
    % LOST.encode(),
    "patch with a short blob": b'{"patch":1,"blob":"00","flags":0,"created_at_ms":1}',
    "patch with no hash": b'{"patch":1,"blob":"zz","flags":0,"created_at_ms":1}',
    "patch with half a character": b'{"patch":1,"blob":"\\ud800","flags":0,"created_at_ms":1}',
    "patch with a number": b'{"patch":1,"blob":5,"flags":0,"created_at_ms":1}',
    "patch with huge flags": b'{"patch":1,"blob":null,"flags":%s,"created_at_ms":1}' % (b"9" * 30),
    "patch with flags of 33 bits": b'{"patch":1,"blob":null,"flags":4294967296,"created_at_ms":1}',
    "patch with negative flags": b'{"patch":1,"blob":null,"flags":-1,"created_at_ms":1}',
    "patch at a huge time": b'{"patch":1,"blob":null,"flags":0,"created_at_ms":9223372036854775808}',
    "patch at no time": b'{"patch":1,"blob":null,"flags":0,"created_at_ms":null}',
    "root of no turn": f'{{"root":9,"hash":"{HASH}"}}'.encode(),
    "root of turn 0": f'{{"root":0,"hash":"{HASH}"}}'.encode(),
    "root of a negative turn": f'{{"root":-1,"hash":"{HASH}"}}'.encode(),
    "root of a huge turn": f'{{"root":{"9" * 99},"hash":"{HASH}"}}'.encode(),
    "root of true": f'{{"root":true,"hash":"{HASH}"}}'.encode(),
    "root of a turn by text": f'{{"root":"1","hash":"{HASH}"}}'.encode(),
    "root without a hash": b'{"root":1}',
    "root that is null": b'{"root":1,"hash":null}',
    "root that is short": b'{"root":1,"hash":"00"}',
    "root that is no hash": f'{{"root":1,"hash":"{"z" * 64}"}}'.encode(),
    "root in capitals": f'{{"root":1,"hash":"{HASH.upper()}"}}'.encode(),
    "root with half a character": b'{"root":1,"hash":"\\ud800"}',
    "ref to an unknown blob": f'{{"ref":"{LOST}","blob":"{HASH}"}}'.encode(),
    "ref of an unknown blob": f'{{"ref":"{HASH}","blob":"{LOST}"}}'.encode(),
    "ref that is none": f'{{"ref":"é","blob":"{HASH}"}}'.encode(),
    "pin of an unknown blob": f'{{"pin":"x","blob":"{LOST}"}}'.encode(),
    "pin of no hash": b'{"pin":"x","blob":"zz"}',
    "pin of half a character": b'{"pin":"x","blob":"\\ud800"}',
    "pin without a name": f'{{"pin":"","blob":"{HASH}"}}'.encode(),
    "pin by half a character": f'{{"pin":"\\ud800","blob":"{HASH}"}}'.encode(),
    "pin by a control character": f'{{"pin":"a\\u0000","blob":"{HASH}"}}'.encode(),
    "pin by a number": f'{{"pin":5,"blob":"{HASH}"}}'.encode(),
    "attempt that is no node": f'{{"attempt":1,"blob":"{HASH}","created_at_ms":5}}'.encode(),
    "run of a turn that is no start": b'{"run":1,"name":"n","group":"","status":"active","start":1}',
    "name that is a list": b'{"context":1,"name":["x"]}',
    "name that is a number": b'{"context":1,"name":5}',
    "name that is true": b'{"context":1,"name":true}',
    "name that reads as a number": b'{"context":1,"name":"5"}',
    "name that is empty": b'{"context":1,"name":""}',
    "name that is too long": b'{"context":1,"name":"%s"}' % (b"n" * 201),
    "name with a null byte": b'{"context":1,"name":"a\\u0000b"}',
    "name with half a character": b'{"context":1,"name":"\\ud800"}',
    "name that is taken": b'{"context":1,"name":"taken"}',
    "rule of a list": b'{"turn":1,"canonical":[]}',
    "rule of no turn": b'{"turn":99,"canonical":"x"}',
    "rule with half a character": b'{"turn":1,"canonical":"\\ud800"}',
    "rule with a null byte": b'{"turn":1,"canonical":"\\u0000"}',
}


@pytest.mark.parametrize("kind", JUNK)
def test_junk_beside(kind: str, fresh: Fresh, tmp_path: Path) -> None:
    """A bad line of eventq.ndjson is left out; turns, heads and the lines after it come in."""
    line = JUNK[kind]
    good = f'{{"pin":"good","blob":"{HASH}"}}\n{{"patch":2,"blob":"{HASH}","flags":1,"created_at_ms":5}}\n'
    folder = small(
        tmp_path / "pack",
        3,
        beside=line + b"\n" + good.encode(),
        head=head(1, 3, 2, at=1) + head(2, 2, 1, at=2),
    )
    thread = fresh()
    taken = thread.contexts.create("taken") if kind == "name that is taken" else None
    found = thread.import_pack(folder)
    assert (found.blobs, found.turns, found.contexts) == (3, 3, 2)
    assert thread.blobs.pins() == [("good", HASH)]
    assert [list(row)[1:4] for row in everything(thread).patches()] == [[2, digest(b"1"), 1]]
    assert list(everything(thread).refs()) == []
    assert list(everything(thread).roots()) == []
    assert [one.name for one in thread.contexts] == (
        ["taken", None, None] if taken else [None, None]
    )
    assert thread.contexts.turn(1).canonical is None
    assert list(thread.runs) == []
    assert thread.check() == []
    assert added(thread.import_pack(folder)) == (0, 0, 0, 0)
    thread.export_pack(tmp_path / "out")


@pytest.mark.parametrize("kind", JUNK)
def test_junk_beside_is_said(kind: str, fresh: Fresh, tmp_path: Path) -> None:
    """A line of eventq.ndjson that was left out is told of."""
    line = JUNK[kind]
    folder = small(tmp_path / "pack", 3, beside=line + b"\n")
    thread = fresh()
    expected = "eventq.ndjson: "
    if kind == "name that is taken":  # which is no fault of the line
        thread.contexts.create("taken")
        expected = "context 2 has no name here: 'taken' is another one's"
    assert says(thread.import_pack(folder), expected)


def test_beside_is_no_file(fresh: Fresh, tmp_path: Path) -> None:
    """A folder in the place of eventq.ndjson is said, or refused by an error of ours; no other error escapes."""
    folder = small(tmp_path / "pack", 3)
    (folder / "eventq.ndjson").unlink()
    (folder / "eventq.ndjson").mkdir()
    thread = fresh()
    try:
        told = list(thread.import_pack(folder).notes)
    except DiskError as error:
        told = [error.what]
    assert any("eventq.ndjson" in one for one in told)


@pytest.mark.parametrize("name", ["blobs.pack", "turns.log", "turns.meta", "heads.tbl"])
def test_a_file_that_is_a_folder(name: str, fresh: Fresh, tmp_path: Path) -> None:
    """A folder in the place of a file is said, and what the other files prove comes in."""
    folder = small(tmp_path / "pack", 3)
    (folder / name).unlink()
    (folder / name).mkdir()
    found = fresh().import_pack(folder)
    assert says(found, f"{name}: is not a file")
    assert found.turns == (0 if name in ("blobs.pack", "turns.log") else 3)


@pytest.mark.parametrize("name", ["blobs.pack", "turns.log", "turns.meta", "heads.tbl"])
def test_a_file_that_is_missing(
    name: str, whole: dict[str, bytes], pack: Path, fresh: Fresh
) -> None:
    """A file that is missing is said, and what the others prove comes in; the whole pack brings the rest."""
    (pack / name).unlink()
    thread = fresh()
    found = thread.import_pack(pack)
    assert says(found, f"{name}: is missing")
    assert added(found)[:2] == {"blobs.pack": (0, 0), "turns.log": (12, 0)}.get(name, (12, 8))
    (pack / name).write_bytes(whole[name])
    assert thread.import_pack(pack).notes == ()
    assert turn_count(thread) == 8
    assert added(thread.import_pack(pack)) == (0, 0, 0, 0)


def test_a_head_that_is_mended_further_on(fresh: Fresh, tmp_path: Path) -> None:
    """A head beyond the log costs nothing when a later record of its context is sound."""
    found = fresh().import_pack(small(tmp_path / "pack", 3, head=head(1, 99, 98) + head(1, 3, 2)))
    assert found.contexts == 1
    assert not says(found, "heads.tbl")


# Export.


@pytest.mark.parametrize("name", FILES)
def test_a_folder_with_a_pack(name: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """A folder that holds any file of a pack is refused, and stays as it is."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / name).write_bytes(b"mine")
    (tmp_path / "pack" / "notes.txt").write_bytes(b"my notes")
    with pytest.raises(LogicError, match=name):
        thread.export_pack(tmp_path / "pack")
    assert contents(tmp_path / "pack") == {name: b"mine", "notes.txt": b"my notes"}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("after", [0, 1, 5, 6])
def test_a_disk_that_refuses(
    call: str,
    after: int,
    there: bool,
    thread: eventq.Thread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An export that the disk refuses at any step leaves nothing behind, and the next one succeeds."""
    thread.contexts.create("main").append("x")
    folder = tmp_path / "pack"
    if there:
        folder.mkdir()
        (folder / "notes.txt").write_bytes(b"my notes")
    real, calls = getattr(os, call), []

    def refuse(*given: Any, **more: Any) -> Any:
        calls.append(given)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(DiskError, match="No space left on device"):
            thread.export_pack(folder)
    assert contents(folder) == {"notes.txt": b"my notes"} if there else not folder.exists()
    thread.export_pack(folder)
    assert sorted({*contents(folder)} - {"notes.txt"}) == FILES


@pytest.mark.parametrize("kind", ["one piece", "a part"])
def test_a_damaged_blob_refuses_the_export(
    kind: str, path: str, raw: apsw.Connection, tmp_path: Path
) -> None:
    """An export of a damaged blob is refused by an error that names it, and leaves nothing."""
    data = b"bytes" if kind == "one piece" else big(200_000)
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        context.append("sound")
        context.append(data)
        raw.execute(
            "UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT max(blob_id) FROM blob_bytes)"
        )
        with pytest.raises(DamagedBlobError, match=digest(data).hex()):
            thread.export_pack(tmp_path / "pack")
        assert not (tmp_path / "pack").exists()


def test_one_moment(thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while an export runs is not in it, between any two of its tables."""
    context = thread.contexts.create("main")
    context.append("before")
    with eventq.open(thread.path) as other:
        for name in ("blobs", "turns", "contexts", "patches", "refs"):
            real = getattr(PackTable, name)

            def late(
                self: PackTable, real: Callable[..., Any] = real, name: str = name
            ) -> Iterator[Any]:
                there = real(self)
                yield from there
                late = other.contexts.get("main").append(f"late {name}")
                other.contexts.patch(1, f"over {name}")
                other.contexts.get("main").fork()
                other.blobs.pin(late.hash, name)

            monkeypatch.setattr(PackTable, name, late)
        thread.export_pack(tmp_path / "pack")
    found = contents(tmp_path / "pack")
    assert found["blobs.pack"] == blob(b"before")
    assert (len(found["turns.log"]), len(found["heads.tbl"])) == (80, 36)
    line = b'{"context":1,"name":"main","fork_of":null}\n'
    assert found["eventq.ndjson"] == line + sums(meta(1, length=6), line)
    assert len(payloads(thread, "main")) == 8  # turns and contexts are read twice


WRITER = """
import sys
import eventq
with eventq.open(sys.argv[1]) as thread:
    n = 0
    print("ready", flush=True)
    while True:
        context = thread.contexts.create()
        for _ in range(3):
            n += 1
            context.append(f"payload {n} " * 20)
"""


def test_export_during_writes(path: str, fresh: Fresh, tmp_path: Path, until: Until) -> None:
    """An export during the writes of another process holds the payload of every turn and the turn of every head."""
    env = {**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, env=env)
    try:
        assert writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        sizes: list[int] = []
        with eventq.open(path, read_only=True) as thread:
            for n in range(4):
                until(
                    lambda: turn_count(thread) > (sizes[-1] if sizes else 0), "the writer goes on"
                )
                folder = tmp_path / f"pack-{n}"
                thread.export_pack(folder)
                hashes = {
                    one.hash for _, one in packfile.read_blobs(folder / "blobs.pack", pytest.fail)
                }
                turns = {
                    one.turn_id: one
                    for _, one in packfile.read_turns(folder / "turns.log", pytest.fail)
                }
                tops = {
                    one.head_turn_id
                    for one in packfile.read_heads(folder / "heads.tbl", pytest.fail)
                }
                assert {one.payload_hash for one in turns.values()} == hashes
                assert tops <= {0, *turns}
                assert {one.parent for one in turns.values()} <= {0, *turns}
                assert sorted(turns) == list(range(1, len(turns) + 1))
                sizes.append(len(turns))
    finally:
        writer.kill()
        writer.wait()
        if writer.stdout:
            writer.stdout.close()
    found = fresh().import_pack(tmp_path / "pack-3")
    assert (found.turns, found.notes) == (sizes[-1], ())
    assert sizes == sorted(set(sizes))


def test_read_only(
    pack: Path, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that was opened to read exports, by a connection that only reads, and does not import."""
    thread = fresh()
    thread.import_pack(pack)

    def look(directory: str, *, write: bool) -> Any:
        assert not write
        return Database(directory, write=write)

    monkeypatch.setattr(sources, "Database", look)
    with eventq.open(thread.path, read_only=True) as reader:
        reader.export_pack(tmp_path / "out")
        with pytest.raises(ReadOnlyError):
            reader.import_pack(pack)
    assert contents(tmp_path / "out") == contents(pack)


def test_read_only_beside_the_first_writer(
    pack: Path, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that reads without locks says so when somebody begins to write, and leaves nothing behind."""
    thread = fresh()
    thread.import_pack(pack)
    path = str(tmp_path / "restored")
    shutil.copytree(
        thread.path, path, ignore=shutil.ignore_patterns("*-shm")
    )  # and so nobody has it open
    metas = sources.ThreadSource.metas

    def write(source: sources.ThreadSource) -> Any:
        with eventq.open(path) as writer:
            writer.contexts.create().append("new")
            yield from metas(source)

    monkeypatch.setattr(sources.ThreadSource, "metas", write)
    with eventq.open(path, read_only=True) as reader:
        with pytest.raises(LogicError, match=r"took the database over meanwhile.*do it again"):
            reader.export_pack(tmp_path / "out")
        assert not (tmp_path / "out").exists()
        monkeypatch.undo()
        reader.export_pack(tmp_path / "out")


def test_into_its_own_folder(fresh: Fresh, clock: Clock) -> None:
    """An export into the folder of the thread itself, or into one of its own, is refused."""
    thread = fresh()
    fill(thread, lambda: clock.move(1))
    before = state(thread)
    for folder in (thread.path, os.path.join(thread.path, "run"), os.path.join(thread.path, "new")):
        with pytest.raises(LogicError, match="is inside the thread"):
            thread.export_pack(folder)
    assert (thread.check(), state(thread)) == ([], before)


def test_inside_a_transaction(fresh: Fresh, tmp_path: Path) -> None:
    """An export inside `write` holds what was committed; an import inside one goes with it."""
    thread, other = fresh(), fresh()
    thread.contexts.create("main").append("1")
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.contexts.get("main").append("2")
        thread.export_pack(tmp_path / "pack")
        raise ZeroDivisionError
    assert (tmp_path / "pack" / "turns.log").stat().st_size == 80
    with pytest.raises(ZeroDivisionError), other.write():
        assert other.import_pack(tmp_path / "pack").turns == 1
        raise ZeroDivisionError
    assert (turn_count(other), heads(other), len(other.blobs)) == (0, {}, 0)
    with other.write():
        other.import_pack(tmp_path / "pack")
    assert payloads(other, "main") == [b"1"]


@pytest.mark.parametrize("where", ["missing/pack", "file", "file/pack", "a" * 300])
def test_nowhere_to_export(where: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """A folder that cannot be made is an error that names it, and nothing is left."""
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(DiskError, match=where):
        thread.export_pack(tmp_path / where)
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("kind", ["missing", "a file", "empty", "only heads", "a pipe", "a loop"])
def test_no_pack(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """What is no pack is refused by an error that names it, and nothing is stored."""
    folder = tmp_path / "pack"
    if kind == "a file":
        folder.write_bytes(b"mine")
    elif kind != "missing":
        folder.mkdir()
    if kind == "only heads":
        (folder / "heads.tbl").write_bytes(head(1, 0, 0))
    elif kind == "a pipe":
        os.mkfifo(folder / "turns.log")
    elif kind == "a loop":
        (folder / "turns.log").symlink_to("turns.log")
    with pytest.raises(LogicError, match=rf"'{folder}' holds no pack"):
        thread.import_pack(folder)
    assert heads(thread) == {}


@pytest.mark.parametrize(
    "name",
    [
        "blobs.pack",
        "turns.log",
        "turns.meta",
        "heads.tbl",
        "eventq.ndjson",
    ],
)
def test_a_file_that_cannot_be_read(
    name: str, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the system refuses to read is an error that names it, and no turn is stored."""
    folder = small(tmp_path / "pack", 3)
    fresh().import_pack(folder)  # makes the indexes
    (folder / name).unlink()
    (folder / name).symlink_to(name)  # a loop: refused to root as well
    thread = fresh()
    with pytest.raises(DiskError, match=name):
        thread.import_pack(folder)
    assert (turn_count(thread), heads(thread)) == (0, {})


# Crashes.


class Stop(BaseException):
    """What no code of ours catches."""


@pytest.mark.parametrize(
    ("owner", "name", "nth"),
    [
        (PackTable, "add_turn", 1),
        (PackTable, "add_turn", 8),
        (PackTable, "add_context", 1),
        (PackTable, "add_context", 4),
        (PackTable, "name", 2),
        (PackTable, "add_patch", 3),
        (packs._Import, "_import_blobs", 1),
        (packs._Import, "_import_extra", 1),
    ],
)
def test_an_import_that_stops(
    owner: type, name: str, nth: int, pack: Path, fresh: Fresh, whole: dict[str, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An import that is stopped anywhere leaves no turn and no head; the next one brings all."""
    thread = fresh()
    real, calls = getattr(owner, name), []

    def stop(*given: Any, **more: Any) -> Any:
        calls.append(1)
        found = real(*given, **more)
        if len(calls) == nth:
            raise Stop
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(Stop):
            thread.import_pack(pack)
    assert (turn_count(thread), heads(thread), thread.blobs.pins()) == (0, {}, [])
    assert thread.check() == []
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 8, 4)
    thread.export_pack(tmp_path / "again")
    assert contents(tmp_path / "again") == whole


@pytest.mark.parametrize("name", ["add_patch", "name"])
def test_a_disk_that_fails_an_import(
    name: str, pack: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that the disk refuses at the last step is an error, and leaves no turn and no head."""
    thread = fresh()

    def refuse(*_: object) -> None:
        raise DiskError("the disk is full", "free some space")

    monkeypatch.setattr(PackTable, name, refuse)
    with pytest.raises(DiskError, match="the disk is full"):
        thread.import_pack(pack)
    assert (turn_count(thread), heads(thread)) == (0, {})


def test_blobs_come_some_at_once(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is stopped among its blobs has kept those before, but for some MiB."""
    raws = [os.urandom(3 << 20) for _ in range(3)]
    folder = small(tmp_path / "pack", 3, blob=b"".join(blob(raw) for raw in raws))
    thread = fresh()
    real, calls = Blobs.put, []

    def stop(self: Blobs, data: bytes) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise Stop
        return real(self, data)

    monkeypatch.setattr(Blobs, "put", stop)
    with pytest.raises(Stop):
        thread.import_pack(folder)
    assert [thread.blobs.has(digest(raw)) for raw in raws] == [True, True, False]


KILLED = """
import os, signal, sys
import eventq
from eventq.storage.sqlite.packs import PackTable
owner, name, left = PackTable, sys.argv[3], [int(sys.argv[4])]
real = getattr(owner, name)
def die(*given, **more):
    found = real(*given, **more)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
setattr(owner, name, die)
with eventq.open(sys.argv[1]) as thread:
    thread.import_pack(sys.argv[2])
"""


@pytest.mark.parametrize(("name", "nth"), [("add_turn", 4), ("add_patch", 3)])
def test_a_killed_import(
    name: str, nth: int, pack: Path, path: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """An import whose process is killed leaves no turn and no head; the next one brings all."""
    words = [sys.executable, "-c", KILLED, path, str(pack), name, str(nth)]
    env = {**os.environ, "PYTHONPATH": ROOT}
    assert subprocess.run(words, env=env, timeout=120, check=False).returncode == -signal.SIGKILL
    with eventq.open(path) as thread:
        assert (turn_count(thread), heads(thread)) == (0, {})
        assert len(thread.blobs) == 12
        assert thread.check() == []
        found = thread.import_pack(pack)
        assert (found.notes, added(found)) == ((), (0, 8, 4, 0))
        thread.export_pack(tmp_path / "again")
        assert thread.check() == []
    assert contents(tmp_path / "again") == whole


def test_two_imports_at_once(
    pack: Path, path: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Two processes that import the same pack at the same time bring everything once."""
    code = (
        "import sys, eventq\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    sys.stdin.read(1)\n"
        "    found = thread.import_pack(sys.argv[2])\n"
        "print(found.blobs, found.turns, found.contexts, found.moved)\n"
    )
    env = {**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, str(pack)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        for _ in range(2)
    ]
    for one in both:
        assert one.stdin
        one.stdin.write(b"g")
        one.stdin.flush()
    told = [[int(word) for word in one.communicate(timeout=120)[0].split()] for one in both]
    assert [sum(pair) for pair in zip(*told, strict=True)] == [12, 8, 4, 0]
    with eventq.open(path) as thread:
        assert thread.check() == []
        thread.export_pack(tmp_path / "again")
    again = contents(tmp_path / "again")
    assert again["turns.log"] == whole["turns.log"]
    assert again["heads.tbl"] == whole["heads.tbl"]


# Size.


def test_many_equal_payloads(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find a turn again takes as many steps among many turns of its payload, and among many roots, as among few."""
    looked: list[tuple[Any, ...]] = []
    real = PackTable.alike

    def look(self: PackTable, *given: Any) -> list[Any]:
        looked.append(given)
        return real(self, *given)

    monkeypatch.setattr(PackTable, "alike", look)
    steps = []
    for count in (200, 2_000):
        log = b"".join(turn(n, n - 1, n - 1, b"ok") for n in range(1, count + 1))
        log += b"".join(turn(count + n, 0, 0, b"%d" % n) for n in range(1, count + 1))
        blobs = blob(b"ok") + b"".join(blob(b"%d" % n) for n in range(1, count + 1))
        thread = fresh()
        thread.import_pack(
            write(tmp_path / f"pack-{count}", blob=blobs, turn=log, head=head(1, count, count - 1))
        )
        asked = [looked[0], looked[-1]]
        looked.clear()
        found = [0]

        def tick(found: list[int] = found) -> bool:
            found[0] += 1
            return False

        thread.database.connection.set_progress_handler(tick, 1)
        for given in asked:
            real(PackTable(thread.database), *given)
        thread.database.connection.set_progress_handler(None)
        steps.append(found[0])
    assert steps[1] < 2 * steps[0]
