"""The files of a pack: their exact bytes, and what is left of them when they are damaged or made by an enemy."""

from __future__ import annotations

import errno
import os
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq.dag import packfile
from eventq.dag.packfile import (
    BlobEntry,
    BlobRecord,
    HeadRecord,
    MetaRecord,
    PackWriter,
    TurnEntry,
    TurnRecord,
    index_faults,
    read_blobs,
    read_heads,
    read_index,
    read_meta,
    read_turns,
    rebuild_indexes,
)
from eventq.errors import ClosedError, DamagedError, DiskError, InputError, LogicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES = [
    "blobs.idx",
    "blobs.pack",
    "eventq.ndjson",
    "heads.tbl",
    "turns.idx",
    "turns.log",
    "turns.meta",
]
U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
HASH = st.binary(min_size=32, max_size=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def blob(raw: bytes, codec: int = 0) -> BlobRecord:
    """Give the record of a blob."""
    stored = zstandard.ZstdCompressor().compress(raw) if codec else raw
    return BlobRecord(blake3(raw).digest(), codec, len(raw), stored)


BLOBS = st.builds(blob, st.binary(max_size=200), st.sampled_from([0, 1]))
TURNS = st.builds(TurnRecord, U64, U64, U32, U32, U64, HASH, U32, U64)
METAS = st.builds(MetaRecord, U64, TEXT, U32, U32, U32, U32)
HEADS = st.builds(HeadRecord, U64, U64, U32, U32, U64)
TURN = TurnRecord(0x0102030405060708, 2, 3, 4, 5, bytes(range(32)), 6, 7)
META = MetaRecord(1, "é/1", 2, 3, 4, 5)
HEAD = HeadRecord(1, 0x0102030405060708, 3, 4, 5)


def turns(count: int) -> list[TurnRecord]:
    """Give some turns, all different."""
    return [
        TurnRecord(n, n - 1, n, 0, 9, blake3(b"%d" % n).digest(), 0, 1773829800123 + n)
        for n in range(1, count + 1)
    ]


class Notes(list[str]):
    """What a reader told; `taken` reads a file and gives the records of it alone."""

    def taken(self, read: Callable[..., Iterator[Any]], path: object) -> list[Any]:
        return [one[1] if isinstance(one, tuple) else one for one in read(path, self.append)]


READERS: list[tuple[str, Callable[..., Iterator[Any]], list[Any]]] = [
    ("blobs.pack", read_blobs, [blob(b"one"), blob(b"two" * 40, 1), blob(b"")]),
    ("turns.log", read_turns, turns(3)),
    ("turns.meta", read_meta, [MetaRecord(n, f"chat/{n}é", n, 0, 1, 77) for n in (1, 2, 3)]),
    ("heads.tbl", read_heads, [HeadRecord(n, 2 * n, n, 0, 99) for n in (1, 2, 3)]),
]
every_reader = pytest.mark.parametrize(
    ("name", "read", "records"), READERS, ids=[name for name, _, _ in READERS]
)


def write(folder: Any) -> None:
    """Write a pack with all the records of READERS."""
    with PackWriter(folder) as pack:
        for kind, (_, _, records) in zip(("blob", "turn", "meta", "head"), READERS, strict=True):
            for record in records:
                getattr(pack, kind)(record)


def contents(folder: Path) -> dict[str, bytes]:
    """Give every file of a folder."""
    return {one.name: one.read_bytes() for one in folder.iterdir()}


# The bytes.


def test_exact_bytes_of_a_blob() -> None:
    """A blob record is these bytes, in hex: magic, version, codec, two lengths, hash, bytes, checksum."""
    hash = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"  # noqa: A001 (BLAKE3 of abc)
    body = bytes.fromhex("424c5342010000000300000003000000" + hash + "616263")
    assert blob(b"abc").pack() == body + struct.pack("<I", zlib.crc32(body))
    assert blob(b"abc").pack()[-4:].hex() == "375dc906"
    assert blob(b"abc").entry(0x0102).hex() == hash + "0201000000000000030000000300000000000000"
    packed = blob(b"a" * 300, 1)
    body = (
        struct.pack("<IHHII", 0x42534C42, 1, 1, 300, len(packed.stored))
        + packed.hash
        + packed.stored
    )
    assert packed.pack() == body + struct.pack("<I", zlib.crc32(body))


def test_exact_bytes_of_a_turn() -> None:
    """A turn record is these 80 bytes, in hex."""
    body = bytes.fromhex(
        "0807060504030201"
        "0200000000000000"
        "03000000"
        "04000000"
        "0500000000000000"
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        "06000000"
        "0700000000000000"
    )
    assert TURN.pack() == body + struct.pack("<I", zlib.crc32(body))
    assert TURN.pack()[-4:].hex() == "b616c4ff"
    assert len(TURN.pack()) == 80
    assert TURN.entry(80).hex() == "08070605040302015000000000000000"


def test_exact_bytes_of_meta_and_heads() -> None:
    """A description is these bytes and a head these 36, in hex."""
    assert META.pack().hex() == "010000000000000004000000c3a92f3102000000030000000400000005000000"
    body = bytes.fromhex("0100000000000000080706050403020103000000040000000500000000000000")
    assert HEAD.pack() == body + struct.pack("<I", zlib.crc32(body))
    assert HEAD.pack()[-4:].hex() == "6b6551be"
    assert len(HEAD.pack()) == 36


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(BLOBS | TURNS | METAS | HEADS)
def test_records_there_and_back(record: Any) -> None:
    """A record that was packed is parsed as an equal one; one byte less or more is no record."""
    data = record.pack()
    assert type(record).parse(data) == record
    for bad in (data[:-1], data + b"\0", b""):
        with pytest.raises(DamagedError):
            type(record).parse(bad)


@pytest.mark.parametrize("kind", [BlobRecord, TurnRecord, HeadRecord])
def test_a_checksum_alone_makes_no_record(kind: Any) -> None:
    """Bytes under a right checksum are no record when their number, their magic or their version is another."""
    head = struct.pack("<IHHII", 0x42534C42, 1, 0, 3, 3) + bytes(32)
    for body in (
        *(
            bytes(n)
            for n in range(100)
            if n != (32 if kind is HeadRecord else 76 if kind is TurnRecord else -1)
        ),
        *(head[:n] for n in range(49)),
        head + b"ab",
        head + b"abcd",
        b"X" + head[1:] + b"abc",
        head[:4] + b"\2" + head[5:] + b"abc",
    ):
        if len(body) not in (32, 76) or kind is BlobRecord:
            with pytest.raises(DamagedError):
                kind.parse(body + struct.pack("<I", zlib.crc32(body)))
    for short in range(4):
        with pytest.raises(DamagedError):
            kind.parse(bytes(short))


def test_another_magic_in_a_file(tmp_path: Path) -> None:
    """A record with another magic is no record, however right its checksum is."""
    body = b"X" + blob(b"abc").pack()[1:-4]
    (tmp_path / "blobs.pack").write_bytes(body + struct.pack("<I", zlib.crc32(body)))
    notes = Notes()
    assert notes.taken(read_blobs, tmp_path / "blobs.pack") == []
    assert notes == ["blobs.pack: 55 bytes after byte 0 were dropped: the record there is damaged"]


@pytest.mark.parametrize("record", [blob(b"abc"), TURN, HEAD], ids=["blob", "turn", "head"])
def test_every_flipped_byte_is_seen(record: Any) -> None:
    """One flipped byte anywhere in a blob, a turn or a head makes it no record."""
    data = bytearray(record.pack())
    for at in range(len(data)):
        for bit in (1, 128):
            data[at] ^= bit
            with pytest.raises(DamagedError):
                type(record).parse(bytes(data))
            data[at] ^= bit


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (TurnRecord(1 << 64, 0, 0, 0, 0, bytes(32), 0, 0), "turn_id is a number of 65 bits"),
        (TurnRecord(0, -1, 0, 0, 0, bytes(32), 0, 0), "parent is"),
        (TurnRecord(0, 0, 1 << 32, 0, 0, bytes(32), 0, 0), "depth is"),
        (TurnRecord(0, 0, 0, 1 << 32, 0, bytes(32), 0, 0), "codec is"),
        (TurnRecord(0, 0, 0, 1 << 31, 0, bytes(32), -1, 0), "flags is"),
        (TurnRecord(0, 0, 0, 0, 1 << 64, bytes(32), 0, 0), "type_tag is"),
        (TurnRecord(0, 0, 0, 0, 0, bytes(31), 0, 0), "hash that is not 32 bytes"),
        (TurnRecord(0, 0, 0, 0, 0, bytes(33), 0, 0), "hash that is not 32 bytes"),
        (TurnRecord(0, 0, 0, 0, 0, bytes(32), 1 << 32, 0), "flags is"),
        (TurnRecord(0, 0, 0, 0, 0, bytes(32), 0, 1.5), "created_at_ms is float"),  # type: ignore[arg-type]
        (MetaRecord(1 << 64, "a", 0, 0, 0, 0), "turn_id is"),
        (MetaRecord(0, "a", 1 << 32, 0, 0, 0), "type_version is"),
        (MetaRecord(0, "a", 0, -1, 0, 0), "encoding is"),
        (MetaRecord(0, "a", 0, 0, 1 << 32, 0), "compression is"),
        (MetaRecord(0, "a", 0, 0, 0, 10**5000), "uncompressed_len is"),
        (MetaRecord(0, "\ud800", 0, 0, 0, 0), "half a character"),
        (MetaRecord(0, "a" * ((1 << 18) + 1), 0, 0, 0, 0), "a type id of 262145 bytes"),
        (HeadRecord(1 << 64, 0, 0, 0, 0), "context_id is"),
        (HeadRecord(0, 1 << 64, 0, 0, 0), "head_turn_id is"),
        (HeadRecord(0, 0, -1, 0, 0), "head_depth is"),
        (BlobRecord(bytes(32), 2, 3, b"abc"), "a blob of codec 2"),
        (BlobRecord(bytes(32), 0, 4, b"abc"), "4 bytes raw and 3 stored"),
        (BlobRecord(bytes(32), 1, 1 << 32, b"abc"), "raw_len is"),
        (BlobRecord(bytes(8), 0, 3, b"abc"), "hash that is not 32 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_does_not_fit_is_refused(record: Any, said: str) -> None:
    """A number, a hash or a text that its field cannot hold is refused by name, and never cut to fit."""
    with pytest.raises(InputError) as caught:
        record.pack()
    assert said in caught.value.what
    assert caught.value.fix


# A blob and its hash.


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_raw_gives_the_bytes(codec: int, size: int) -> None:
    """What was stored under either codec comes back as it was."""
    raw = os.urandom(size // 2) + bytes(size - size // 2)
    assert blob(raw, codec).raw() == raw


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (BlobRecord(bytes(32), 0, 3, b"abc"), "holds other bytes"),
        (BlobRecord(blake3(b"abc").digest(), 0, 4, b"abc"), "is not 4 bytes long"),
        (BlobRecord(blake3(b"abc").digest(), 0, 2, b"abc"), "is not 2 bytes long"),
        (BlobRecord(blake3(b"abc").digest(), 7, 3, b"abc"), "unknown codec 7"),
        (BlobRecord(blake3(b"abc").digest(), 1, 3, b"abc"), "cannot be decompressed"),
        (BlobRecord(blake3(b"abc").digest(), 1, 3, b""), "is not 3 bytes long"),
        (BlobRecord(blake3(b"abc").digest(), 1, 4, blob(b"abc", 1).stored), "is not 4 bytes long"),
        (BlobRecord(blake3(b"abc").digest(), 1, 2, blob(b"abc", 1).stored), "is not 2 bytes long"),
        (
            BlobRecord(blake3(b"abc").digest(), 1, 3, blob(b"abc", 1).stored[:-1]),
            "is not 3 bytes long",
        ),
        (
            BlobRecord(blake3(b"abc").digest(), 1, 3, blob(b"abc", 1).stored + b"junk"),
            "cannot be decompressed",
        ),
        (BlobRecord(blake3(b"abc").digest(), 1, 3, blob(b"abd", 1).stored), "holds other bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_raw_proves_the_hash(record: BlobRecord, said: str) -> None:
    """Bytes that are not those of the hash are an error that names the blob."""
    with pytest.raises(DamagedError) as caught:
        record.raw()
    assert said in caught.value.what
    assert caught.value.what.startswith(f"blob:blake3:{record.hash.hex()} ")


@pytest.mark.parametrize("claimed", [0, 5, 100_000])
@pytest.mark.parametrize("known", [True, False])
def test_a_bomb_is_not_unfolded(claimed: int, known: bool) -> None:
    """A few bytes that would unfold to 256 MiB never make more than they say, whatever their frame claims."""
    maker = zstandard.ZstdCompressor(write_content_size=known).compressobj(
        size=256 << 20 if known else -1
    )
    stored = b"".join(maker.compress(bytes(1 << 20)) for _ in range(256)) + maker.flush()
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError):
            BlobRecord(bytes(32), 1, claimed, stored).raw()
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# Writing.


def test_a_pack_there_and_back(tmp_path: Path) -> None:
    """What was written is read, all of it, in order, without a note; the indexes agree, and nothing else is left."""
    write(tmp_path / "pack")
    assert sorted(contents(tmp_path / "pack")) == FILES
    notes = Notes()
    for name, read, records in READERS:
        assert notes.taken(read, tmp_path / "pack" / name) == records
    assert notes == []
    assert index_faults(tmp_path / "pack") == []
    assert os.stat(tmp_path / "pack").st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "pack").iterdir()} == {0o600}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(BLOBS), st.lists(TURNS), st.lists(METAS), st.lists(HEADS))
def test_any_pack_there_and_back(
    tmp_path_factory: Any, blobs: list[Any], turns: list[Any], metas: list[Any], heads: list[Any]
) -> None:
    """Any records come back as they were, at the offsets that the indexes say."""
    folder = tmp_path_factory.mktemp("pack")
    with PackWriter(folder) as pack:
        for kind, records in (("head", heads), ("meta", metas), ("turn", turns), ("blob", blobs)):
            for record in records:
                getattr(pack, kind)(record)
    notes = Notes()
    found = list(read_blobs(folder / "blobs.pack", notes.append))
    assert [record for _, record in found] == blobs
    assert list(read_index(folder / "blobs.idx")) == [
        BlobEntry(one.hash, offset, one.raw_len, len(one.stored), one.codec, 0)
        for offset, one in found
    ]
    log = list(read_turns(folder / "turns.log", notes.append))
    assert log == [(80 * number, turn) for number, turn in enumerate(turns)]
    assert list(read_index(folder / "turns.idx")) == [
        TurnEntry(turn.turn_id, offset) for offset, turn in log
    ]
    assert notes.taken(read_meta, folder / "turns.meta") == metas
    assert notes.taken(read_heads, folder / "heads.tbl") == heads
    assert notes == []


def test_the_files_are_their_records(tmp_path: Path) -> None:
    """A file is the bytes of its records one after the other, without anything around them."""
    write(tmp_path)
    found = contents(tmp_path)
    for name, _, records in READERS:
        assert found[name] == b"".join(record.pack() for record in records)
    assert len(found["blobs.idx"]) == 3 * 52
    assert len(found["turns.idx"]) == 3 * 16
    assert found["turns.idx"] == struct.pack("<QQQQQQ", 1, 0, 2, 80, 3, 160)


@pytest.mark.parametrize("name", FILES)
def test_a_pack_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """A folder that holds one file of a pack, even a dangling link, is refused and left as it is."""
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(LogicError, match=f"holds a pack already: {name}"), PackWriter(tmp_path):
        pass
    assert os.listdir(tmp_path) == [name]
    (tmp_path / name).unlink()
    (tmp_path / ".eventq-export").symlink_to(".")
    with (
        pytest.raises(LogicError, match="is no folder of an export - remove it"),
        PackWriter(tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == [".eventq-export"]
    (tmp_path / ".eventq-export").unlink()
    write(tmp_path)  # nobody keeps the lock


@pytest.mark.parametrize("before", [True, False])
def test_an_error_leaves_nothing(tmp_path: Path, before: bool) -> None:
    """After an error in the block no file is left, and no folder that was not there before."""
    folder = tmp_path / "pack"
    if before:
        folder.mkdir()
        (folder / "mine").write_bytes(b"kept")
    with pytest.raises(ZeroDivisionError), PackWriter(folder) as pack:
        pack.blob(blob(b"abc"))
        assert ".eventq-export" in os.listdir(folder)
        assert not set(FILES) & set(os.listdir(folder))
        raise ZeroDivisionError
    assert folder.exists() == before
    assert not before or contents(folder) == {"mine": b"kept"}
    write(folder)


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_disk_that_fails_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Whichever of the last steps fails, it is a DiskError, and nothing is left of the pack."""
    real, calls = getattr(os, call), []

    def fail(*words: Any) -> Any:
        calls.append(words)
        if len(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*words)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(DiskError, match="No space left"):
        write(tmp_path / "pack")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    """A write that failed is a DiskError, and the pack fails for good, even when that error is caught."""
    pack = PackWriter(tmp_path / "pack")

    def fill() -> None:
        with pack:
            pack.turn(TURN)
            pack._target._files["blobs.pack"].close()
            pack._target._files["blobs.pack"] = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
            with pytest.raises(DiskError):
                pack.blob(blob(b"abc"))
            pack._target._files["blobs.pack"].close()
            pack._target._files["blobs.pack"] = open(os.devnull, "wb")  # noqa: SIM115

    with pytest.raises(DiskError, match="No space left"):
        fill()
    assert os.listdir(tmp_path) == []


def test_the_order_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is synced before the first name is given, blobs are named first and heads last, with a sync in between."""
    done: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def rename(old: str, new: str) -> None:
        done.append(os.path.basename(new))
        real_rename(old, new)

    def sync(fd: int) -> None:
        done.append("folder" if os.path.isdir(f"/dev/fd/{fd}") else "file")
        real_sync(fd)

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "fsync", sync)
    write(tmp_path / "pack")
    names = ["blobs.pack", "blobs.idx", "turns.log", "turns.idx", "turns.meta", "eventq.ndjson"]
    tells = ["file", "folder"]  # what got its name, for whoever finds a part of it
    assert done == ["file"] * 7 + tells + names + [
        "folder",
        "heads.tbl",
        "folder",
        "folder",
        "folder",
    ]


def test_a_bad_record_spoils_nothing(tmp_path: Path) -> None:
    """A record that was refused is as if it had never been given; those around it are written."""
    with PackWriter(tmp_path) as pack:
        for good in (blob(b"one"), blob(b"two")):
            pack.blob(good)
            for add, bad in (
                (pack.blob, BlobRecord(b"", 0, 0, b"")),
                (pack.turn, TurnRecord(-1, 0, 0, 0, 0, bytes(32), 0, 0)),
                (pack.meta, MetaRecord(0, "\ud800", 0, 0, 0, 0)),
                (pack.head, HeadRecord(-1, 0, 0, 0, 0)),
            ):
                with pytest.raises(InputError):
                    add(bad)  # type: ignore[arg-type]
    assert [record for _, record in read_blobs(tmp_path / "blobs.pack", print)] == [
        blob(b"one"),
        blob(b"two"),
    ]
    assert index_faults(tmp_path) == []


def test_two_writers(tmp_path: Path) -> None:
    """While one writes into a folder another is refused, and does the first no harm; later it is free again."""
    with PackWriter(tmp_path) as pack:
        pack.blob(blob(b"one"))
        with pytest.raises(LogicError, match="somebody writes"):
            write(tmp_path)
        pack.blob(blob(b"two"))
    assert [record for _, record in read_blobs(tmp_path / "blobs.pack", print)] == [
        blob(b"one"),
        blob(b"two"),
    ]
    rebuild_indexes(tmp_path)


def test_what_a_killed_writer_left(tmp_path: Path) -> None:
    """What a killed writer left in its hidden folder goes; a link there is not followed, and nothing else is touched."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    left = tmp_path / "pack" / ".eventq-export"
    left.mkdir(parents=True)
    (left / "blobs.pack").symlink_to(victim)
    (left / "turns.log").write_bytes(b"junk" * 1000)
    (tmp_path / "pack" / "blobs.pack.part").write_bytes(b"mine")
    write(tmp_path / "pack")
    assert victim.read_bytes() == b"kept"
    assert sorted(contents(tmp_path / "pack")) == sorted([*FILES, "blobs.pack.part"])


@pytest.mark.parametrize(
    "names",
    [
        b"5",
        b"true",
        b'"blobs.pack"',
        b'["blobs.pack"]',
        b'{"blobs.pack": null}',
        b"[" * 100_000,
        b'{"blobs',
    ],
)
def test_what_a_killed_writer_named_is_not_known(tmp_path: Path, names: bytes) -> None:
    """Where the hidden folder does not say which files it named, none is taken for one of them."""
    (tmp_path / ".eventq-export").mkdir()
    (tmp_path / ".eventq-export" / "names").write_bytes(names)
    write(tmp_path)
    assert sorted(contents(tmp_path)) == sorted(FILES)


def test_a_writer_outside_its_block(tmp_path: Path) -> None:
    """Before and after the block a writer is closed, and says so."""
    pack = PackWriter(tmp_path)
    with pytest.raises(ClosedError):
        pack.turn(TURN)
    with pack:
        pass
    for add, record in (
        (pack.blob, blob(b"")),
        (pack.turn, TURN),
        (pack.meta, META),
        (pack.head, HEAD),
    ):
        with pytest.raises(ClosedError):
            add(record)  # type: ignore[arg-type]


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    """A folder that cannot be made, or is a file, is a DiskError."""
    (tmp_path / "file").write_bytes(b"")
    for bad in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / "no" / "where"):
        with pytest.raises(DiskError):
            write(bad)


# Damage.


@every_reader
def test_a_tail_torn_at_every_byte(
    tmp_path: Path, name: str, read: Any, records: list[Any]
) -> None:
    """Wherever the last record is cut, those before it are read, and one note says how many bytes were dropped."""
    parts = [record.pack() for record in records]
    keep = len(parts[0] + parts[1])
    for cut in range(len(parts[2])):
        (tmp_path / name).write_bytes(parts[0] + parts[1] + parts[2][:cut])
        notes = Notes()
        assert notes.taken(read, tmp_path / name) == records[:2]
        words = "1 byte after byte {} was" if cut == 1 else f"{cut} bytes after byte {{}} were"
        assert notes == (
            [f"{name}: {words.format(keep)} dropped: the record there is torn"] if cut else []
        )


def test_every_flipped_byte_of_a_turn(tmp_path: Path) -> None:
    """A turn with a flipped byte ends the log there, the first one too, and the note counts what was dropped."""
    records = turns(4)
    data = bytearray(b"".join(turn.pack() for turn in records))
    for at in range(len(data)):
        data[at] ^= 0x40
        (tmp_path / "turns.log").write_bytes(data)
        data[at] ^= 0x40
        notes = Notes()
        bad = at // 80
        assert notes.taken(read_turns, tmp_path / "turns.log") == records[:bad]
        words = (
            f"1 record after byte {bad * 80} was"
            if bad == 3
            else f"{4 - bad} records after byte {bad * 80} were"
        )
        assert notes == [f"turns.log: {words} dropped: the record there is damaged"]


def test_every_flipped_byte_of_a_head(tmp_path: Path) -> None:
    """A head with a flipped byte is left out with a note, and those after it are read."""
    records = READERS[3][2]
    data = bytearray(b"".join(head.pack() for head in records))
    for at in range(len(data)):
        data[at] ^= 0x40
        (tmp_path / "heads.tbl").write_bytes(data)
        data[at] ^= 0x40
        notes = Notes()
        bad = at // 36
        assert notes.taken(read_heads, tmp_path / "heads.tbl") == records[:bad] + records[bad + 1 :]
        assert notes == [f"heads.tbl: 1 record after byte {bad * 36} was skipped: damaged"]


def test_several_bad_heads(tmp_path: Path) -> None:
    """Bad heads in a row are one note, and a torn end is another: a file of junk is no flood of notes."""
    heads = [HeadRecord(n, n, n, 0, 0) for n in range(6000)]
    data = bytearray(b"".join(head.pack() for head in heads))
    for bad in (0, 1, 4095, 4096, 4097, 5998, 5999):
        data[bad * 36] ^= 1
    (tmp_path / "heads.tbl").write_bytes(data + b"abc")
    notes = Notes()
    assert [head.context_id for head in notes.taken(read_heads, tmp_path / "heads.tbl")] == [
        n for n in range(6000) if n not in (0, 1, 4095, 4096, 4097, 5998, 5999)
    ]
    assert notes == [
        "heads.tbl: 2 records after byte 0 were skipped: damaged",
        f"heads.tbl: 3 records after byte {4095 * 36} were skipped: damaged",
        f"heads.tbl: 2 records after byte {5998 * 36} were skipped: damaged",
        f"heads.tbl: 3 bytes after byte {6000 * 36} were dropped: the record there is torn",
    ]


def test_every_flipped_byte_of_a_blob(tmp_path: Path) -> None:
    """A blob with a flipped byte is left out, one note says which bytes, and those around it are read."""
    records = [blob(b"one"), blob(b"two" * 40, 1), blob(b""), blob(b"four" * 10)]
    parts = [record.pack() for record in records]
    starts = [sum(map(len, parts[:n])) for n in range(5)]
    for bad in range(4):
        for at in range(starts[bad], starts[bad + 1]):
            data = bytearray(b"".join(parts))
            data[at] ^= 0x40
            (tmp_path / "blobs.pack").write_bytes(data)
            notes = Notes()
            found = list(read_blobs(tmp_path / "blobs.pack", notes.append))
            assert found == [(starts[n], records[n]) for n in range(4) if n != bad]
            (note,) = notes
            how = "dropped" if bad == 3 else "skipped"
            assert note.startswith(
                f"blobs.pack: {len(parts[bad])} bytes after byte {starts[bad]} were {how}: the record "
            )
            reason = "is damaged" if at - starts[bad] not in (*range(4, 6), *range(12, 16)) else ""
            assert note.endswith(reason)


def test_a_version_to_come(tmp_path: Path) -> None:
    """A record of another version is no record, and the note says which version it is of."""
    body = struct.pack("<IHHII", 0x42534C42, 2, 0, 0, 0) + bytes(32)
    (tmp_path / "blobs.pack").write_bytes(body + struct.pack("<I", zlib.crc32(body)))
    notes = Notes()
    assert notes.taken(read_blobs, tmp_path / "blobs.pack") == []
    assert notes == [
        "blobs.pack: 52 bytes after byte 0 were dropped: the record there is of version 2"
    ]


def test_a_codec_to_come(tmp_path: Path) -> None:
    """A record of an unknown codec is read, as its checksum holds; only its bytes cannot be had."""
    body = struct.pack("<IHHII", 0x42534C42, 1, 9, 5, 3) + bytes(32) + b"abc"
    data = body + struct.pack("<I", zlib.crc32(body))
    (tmp_path / "blobs.pack").write_bytes(data + blob(b"next").pack())
    notes = Notes()
    strange, after = notes.taken(read_blobs, tmp_path / "blobs.pack")
    assert strange == BlobRecord(bytes(32), 9, 5, b"abc")
    assert after.raw() == b"next"
    assert notes == []
    with pytest.raises(DamagedError):
        strange.raw()


def test_junk_between_blobs(tmp_path: Path) -> None:
    """After junk of any length, with false beginnings in it, the next sound blob is found."""
    mark = struct.pack("<IH", 0x42534C42, 1)
    lie = struct.pack("<IHHII", 0x42534C42, 1, 0, 60, 60) + bytes(32)
    for junk in (
        b"x",
        mark,
        lie,
        mark * 50,
        b"x" * 4090 + mark,
        *(b"x" * n for n in range(4085, 4102)),
        b"y" * 3_000_000,
    ):
        (tmp_path / "blobs.pack").write_bytes(
            blob(b"one").pack() + junk + blob(b"two").pack() + blob(b"three").pack()
        )
        notes = Notes()
        assert notes.taken(read_blobs, tmp_path / "blobs.pack") == [
            blob(b"one"),
            blob(b"two"),
            blob(b"three"),
        ]
        assert len(notes) == 1
        word = (
            "1 byte after byte 55 was"
            if len(junk) == 1
            else f"{len(junk)} bytes after byte 55 were"
        )
        assert notes[0].startswith(f"blobs.pack: {word} skipped: the record there is ")


def test_a_pack_inside_a_damaged_blob(tmp_path: Path) -> None:
    """A damaged blob that holds a pack itself is left out as a whole, where its length is right."""
    outer = bytearray(blob(blob(b"inner").pack() * 3).pack())
    outer[20] ^= 1  # its hash
    (tmp_path / "blobs.pack").write_bytes(bytes(outer) + blob(b"next").pack())
    notes = Notes()
    assert notes.taken(read_blobs, tmp_path / "blobs.pack") == [blob(b"next")]
    assert len(notes) == 1


@pytest.mark.parametrize("at", [8, 12])
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 64 << 20, 1])
def test_blob_lengths_that_lie(tmp_path: Path, at: int, length: int) -> None:
    """A blob whose lengths lie is left out without the memory that it asks for; one with a right checksum is its own."""
    body = bytearray(blob(b"abc").pack()[:-4])
    body[at : at + 4] = struct.pack("<I", length)
    data = bytes(body) + struct.pack("<I", zlib.crc32(body))
    (tmp_path / "blobs.pack").write_bytes(data + blob(b"next").pack())
    notes = Notes()
    tracemalloc.start()
    try:
        found = notes.taken(read_blobs, tmp_path / "blobs.pack")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert found[-1] == blob(b"next")
    if at == 8:
        with pytest.raises(DamagedError):
            found[0].raw()
    else:
        assert len(found) == 1
        assert len(notes) == 1


def test_a_file_of_holes_is_not_taken_into_memory(tmp_path: Path) -> None:
    """A file that costs nothing and says it holds a blob of 300 MiB gets none of that memory."""
    size = 300 << 20
    with open(tmp_path / "blobs.pack", "wb") as file:
        file.write(struct.pack("<IHHII", 0x42534C42, 1, 0, size, size) + bytes(32))
        file.truncate(size + 52)
    notes = Notes()
    tracemalloc.start()
    try:
        assert notes.taken(read_blobs, tmp_path / "blobs.pack") == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert len(notes) == 1


def test_a_long_blob_is_read(tmp_path: Path) -> None:
    """A blob of more than 64 MiB whose checksum holds is read like any other."""
    raw = bytes(65 << 20)
    with PackWriter(tmp_path) as pack:
        pack.blob(blob(raw))
        pack.blob(blob(b"next"))
    long, after = Notes().taken(read_blobs, tmp_path / "blobs.pack")
    assert long.raw() == raw
    assert after == blob(b"next")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list that fills with how many bytes each read gave."""
    got: list[int] = []
    real = packfile._Source.read

    def read(source: Any, offset: int, length: int) -> bytes:
        data = real(source, offset, length)
        got.append(len(data))
        return data

    monkeypatch.setattr(packfile._Source, "read", read)
    return got


@pytest.mark.parametrize("sound", [0, 1])
def test_a_file_of_lies_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sound: int
) -> None:
    """A file full of headers that each claim the rest of it is given up before it has been read often, even among sound blobs."""
    count = 60_000
    each = 52 + 48
    with open(tmp_path / "blobs.pack", "wb") as file:
        for number in range(count):
            left = (count - number) * each - 52 - 52
            file.write(blob(b"").pack() if sound else bytes(52))
            file.write(struct.pack("<IHHII", 0x42534C42, 1, 0, 0, max(left, 0)) + bytes(32))
    got = counted(monkeypatch)
    notes = Notes()
    notes.taken(read_blobs, tmp_path / "blobs.pack")
    assert sum(got) < 10 * count * each + (70 << 20)  # without an end it would be some 180 GB
    assert notes


def test_every_other_blob_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every other blob is damaged the sound ones are all read, for little more than their bytes."""
    bad = b"\0" + blob(b"x").pack()[1:]
    (tmp_path / "blobs.pack").write_bytes((bad + blob(b"good").pack()) * 20_000)
    got = counted(monkeypatch)
    notes = Notes()
    assert len(notes.taken(read_blobs, tmp_path / "blobs.pack")) == 20_000
    assert len(notes) == 20_000
    assert sum(got) < 20_000 * 8192


@pytest.mark.parametrize("length", [0xFFFFFFFF, (1 << 18) + 1])
def test_meta_lengths_that_lie(tmp_path: Path, length: int) -> None:
    """A type id that says it is longer than any may be ends the file there, and gets no memory."""
    data = bytearray(META.pack())
    data[8:12] = struct.pack("<I", length)
    (tmp_path / "turns.meta").write_bytes(META.pack() + data + bytes(1 << 20))
    notes = Notes()
    assert notes.taken(read_meta, tmp_path / "turns.meta") == [META]
    lost = len(data) + (1 << 20)
    assert notes == [
        f"turns.meta: {lost} bytes after byte 32 were dropped: the record there is damaged"
    ]


def test_every_flipped_byte_of_meta(tmp_path: Path) -> None:
    """A flipped byte of a description, which has no checksum, costs no record before it and never the program."""
    records = [META, MetaRecord(2, "x" * 30, 0, 0, 0, 0), META]
    data = bytearray(b"".join(record.pack() for record in records))
    for at in range(32, 32 + len(records[1].pack())):
        for bit in range(8):
            data[at] ^= 1 << bit
            (tmp_path / "turns.meta").write_bytes(data)
            data[at] ^= 1 << bit
            notes = Notes()
            found = notes.taken(read_meta, tmp_path / "turns.meta")
            assert found[0] == META
            assert found[1:2] != [records[1]]
            assert notes or len(found) >= 2
    bad = bytearray(data)
    bad[32 + 12] = 0xFF
    (tmp_path / "turns.meta").write_bytes(bad)
    notes = Notes()
    assert notes.taken(read_meta, tmp_path / "turns.meta") == [META]
    assert notes == [
        f"turns.meta: {len(data) - 32} bytes after byte 32 were dropped: the record there is damaged"
    ]


def test_long_files(tmp_path: Path) -> None:
    """Files longer than what is read at once are read to the end, in memory that does not grow with them."""
    metas = [MetaRecord(n, "é" * (n * 7919 % 100_000), n, 0, 0, 0) for n in range(100)]
    log = turns(20_000)
    with PackWriter(tmp_path) as pack:
        for turn in log:
            pack.turn(turn)
        for meta in metas:
            pack.meta(meta)
    notes = Notes()
    assert notes.taken(read_meta, tmp_path / "turns.meta") == metas
    assert notes.taken(read_turns, tmp_path / "turns.log") == log
    assert notes == []
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_meta(tmp_path / "turns.meta", print)) == 100
        assert sum(1 for _ in read_turns(tmp_path / "turns.log", print)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@every_reader
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_any_bytes_into_every_reader(
    tmp_path_factory: Any, name: str, read: Any, records: list[Any], data: Any
) -> None:
    """Any bytes, before, between and after sound records, raise nothing; each record is sound and all bytes are told of."""
    pieces = st.lists(
        st.binary(max_size=120) | st.sampled_from([record.pack() for record in records]), max_size=6
    )
    file = b"".join(data.draw(pieces))
    path = tmp_path_factory.mktemp("pack") / name
    path.write_bytes(file)
    notes = Notes()
    found = notes.taken(read, path)
    taken = sum(
        len(record.pack())
        for record in found
        if getattr(record, "codec", 0) < 2 or name != "blobs.pack"
    )
    assert taken <= len(file)
    assert notes or taken == len(file)
    assert all(note.startswith(f"{name}: ") for note in notes)


@every_reader
def test_a_file_that_is_not_there(tmp_path: Path, name: str, read: Any, records: list[Any]) -> None:
    """A missing file, a folder and a pipe are read as empty, with a note; an empty file needs none."""
    path = tmp_path / name
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: None, "is missing"),
        (path.mkdir, "is not a file"),
        (lambda: os.mkfifo(path), "is not a file"),
    ]
    for make, said in cases:
        make()
        notes = Notes()
        assert notes.taken(read, str(path)) == []
        assert notes == [f"{name}: {said}"]
        if path.is_dir():
            path.rmdir()
    path.unlink()
    path.write_bytes(b"")
    notes = Notes()
    assert notes.taken(read, path) == []
    assert notes == []


@every_reader
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, read: Any, records: list[Any]
) -> None:
    """What the system refuses to open is a DiskError that names the file."""
    (tmp_path / name).symlink_to(name)
    with pytest.raises(DiskError, match=name):
        list(read(tmp_path / name, print))


@every_reader
def test_a_file_that_shrinks(tmp_path: Path, name: str, read: Any, records: list[Any]) -> None:
    """A file that is cut while it is read ends there, without an error and without going round for ever."""
    path = tmp_path / name
    path.write_bytes(b"".join(record.pack() for record in records) * 30_000)
    reader = read(path, Notes().append)
    next(reader)
    os.truncate(path, 1000)
    assert sum(1 for _ in reader) < 90_000


# The indexes.


@pytest.mark.parametrize("index", ["blobs.idx", "turns.idx"])
def test_a_lost_or_damaged_index(tmp_path: Path, index: str) -> None:
    """An index that is lost, cut, too long or damaged anywhere is found, and made again byte by byte as it was."""
    write(tmp_path)
    before = contents(tmp_path)
    size = len(before[index]) // 3
    for bad, number in [
        (None, None),
        (b"", 0),
        (before[index][:-1], 2),
        (before[index][: 2 * size], 2),
        (before[index] + b"x", 3),
        (before[index] + before[index][:size], 3),
        *(
            (
                before[index][:at] + bytes([before[index][at] ^ 1]) + before[index][at + 1 :],
                at // size,
            )
            for at in range(3 * size)
        ),
    ]:
        if bad is None:
            (tmp_path / index).unlink()
        else:
            (tmp_path / index).write_bytes(bad)
        base = "blobs.pack" if index == "blobs.idx" else "turns.log"
        said = (
            "is missing"
            if bad is None
            else f"disagrees with {base} from entry {number} on, counted from 0"
        )
        assert index_faults(tmp_path) == [f"{index}: {said}"]
        rebuild_indexes(tmp_path)
        assert contents(tmp_path) == before
        assert index_faults(tmp_path) == []


def test_indexes_of_a_damaged_pack(tmp_path: Path) -> None:
    """An index made again names the sound records only; until then it disagrees."""
    write(tmp_path)
    data = bytearray((tmp_path / "blobs.pack").read_bytes())
    data[0] ^= 1
    (tmp_path / "blobs.pack").write_bytes(data)
    (tmp_path / "turns.log").write_bytes((tmp_path / "turns.log").read_bytes()[:-1])
    assert index_faults(tmp_path) == [
        "blobs.idx: disagrees with blobs.pack from entry 0 on, counted from 0",
        "turns.idx: disagrees with turns.log from entry 2 on, counted from 0",
    ]
    rebuild_indexes(tmp_path)
    assert index_faults(tmp_path) == []
    first = next(read_index(tmp_path / "blobs.idx"))
    assert isinstance(first, BlobEntry)
    assert (first.pack_offset, first.hash) == (55, READERS[0][2][1].hash)
    assert [
        entry.turn_id
        for entry in read_index(tmp_path / "turns.idx")
        if isinstance(entry, TurnEntry)
    ] == [1, 2]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=300), st.sampled_from(["blobs.idx", "turns.idx"]))
def test_any_bytes_as_an_index(tmp_path_factory: Any, data: bytes, name: str) -> None:
    """Any bytes are read as entries, of which nothing is believed, and a lost index as none."""
    folder = tmp_path_factory.mktemp("pack")
    assert list(read_index(folder / name)) == []
    (folder / name).write_bytes(data)
    assert len(list(read_index(folder / name))) == len(data) // (52 if name == "blobs.idx" else 16)


def test_a_folder_without_a_pack(tmp_path: Path) -> None:
    """Nothing is made in a folder that holds no pack."""
    with pytest.raises(LogicError, match=r"holds no blobs\.pack and turns\.log"):
        rebuild_indexes(tmp_path)
    assert os.listdir(tmp_path) == []
    assert index_faults(tmp_path) == ["blobs.idx: is missing", "turns.idx: is missing"]


def test_a_rebuild_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that fails leaves the pack and what stood as its indexes."""
    write(tmp_path)
    (tmp_path / "blobs.idx").write_bytes(b"old")
    before = contents(tmp_path)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskError, match="Input/output error"):
        rebuild_indexes(tmp_path)
    assert contents(tmp_path) == before


def test_names_and_sizes() -> None:
    """The files and the sizes of their records are what the format says."""
    assert sorted(packfile.FILES) == FILES
    assert packfile.FILES[0] == "blobs.pack"
    assert packfile.FILES[-1] == "heads.tbl"
    sizes = (
        packfile._BLOB,
        packfile._BLOB_ENTRY,
        packfile._TURN,
        packfile._TURN_ENTRY,
        packfile._HEAD,
    )
    assert [layout.size for layout in sizes] == [48, 52, 76, 16, 32]
