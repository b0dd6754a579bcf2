"""The files of a pack: their exact bytes, and what is read when they are damaged or hostile."""

from __future__ import annotations

import errno
import os
import struct
import tracemalloc
import zlib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq.errors import ClosedError, DamagedError, DiskError, InputError, LogicError
from eventq.transfer import packfile
from eventq.transfer.packfile import (
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
from tests.contract.pack_files import FILES, flip, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
HASH = st.binary(min_size=32, max_size=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def blob(raw: bytes, codec: int = 0) -> BlobRecord:
    """Return the record of a blob."""
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
    """Return some turns, all different."""
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


@contextmanager
def bounded(most: int) -> Iterator[None]:
    """Fail when more memory is taken meanwhile than `most` MiB."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most << 20
    finally:
        tracemalloc.stop()


def read_back(data: bytes | bytearray, path: Path) -> tuple[list[Any], list[str]]:
    """Return what a reader finds in a file of these bytes, and what it tells."""
    path.write_bytes(data)
    notes = Notes()
    return notes.taken(
        dict(zip(NAMES, (one[1] for one in READERS), strict=True))[path.name], path
    ), notes


def lost(name: str, count: int, at: int, how: str, word: str = "byte") -> str:
    """Return the note of what a reader left out."""
    words = (
        f"1 {word} after byte {at} was" if count == 1 else f"{count} {word}s after byte {at} were"
    )
    return f"{name}: {words} {how}"


NAMES = [name for name, _, _ in READERS]


def write(folder: Any) -> None:
    """Write a pack with all the records of READERS."""
    with PackWriter(folder) as pack:
        for kind, (_, _, records) in zip(("blob", "turn", "meta", "head"), READERS, strict=True):
            for record in records:
                getattr(pack, kind)(record)


# The bytes.


def test_exact_bytes() -> None:
    """The records of a blob, a turn, a head, a description and both indexes have these bytes."""
    hashed = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"  # BLAKE3 of abc
    packed = blob(b"a" * 300, 1)
    sealed: dict[Any, str] = {
        blob(b"abc"): f"424c5342 0100 0000 03000000 03000000 {hashed} 616263 375dc906",
        TURN: f"0807060504030201 0200000000000000 03000000 04000000 0500000000000000 {bytes(range(32)).hex()}"
        " 06000000 0700000000000000 b616c4ff",
        HEAD: "0100000000000000 0807060504030201 03000000 04000000 0500000000000000 6b6551be",
        packed: f"424c5342 0100 0100 2c010000 {len(packed.stored):02x}000000 {packed.hash.hex()} {packed.stored.hex()}",
    }  # fmt: skip
    for record, spelled in sealed.items():
        found = record.pack()
        assert found[: -4 if record is packed else None] == bytes.fromhex(spelled)
        assert found[-4:] == struct.pack("<I", zlib.crc32(found[:-4]))
    assert META.pack().hex() == "010000000000000004000000c3a92f3102000000030000000400000005000000"
    entry = f"{hashed} 0201000000000000 03000000 03000000 0000 0000"
    assert blob(b"abc").entry(0x0102) == bytes.fromhex(entry)
    assert TURN.entry(80).hex() == "08070605040302015000000000000000"


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(BLOBS | TURNS | METAS | HEADS)
def test_records_there_and_back(record: Any) -> None:
    """A record that was packed is parsed as an equal one; one byte less or more is no record."""
    data = record.pack()
    assert type(record).parse(data) == record
    for bad in (data[:-1], data + b"\0", b""):
        with pytest.raises(DamagedError):
            type(record).parse(bad)


BLOB_HEAD = struct.pack("<IHHII", 0x42534C42, 1, 0, 3, 3) + bytes(32)
UNMARKED = b"X" + BLOB_HEAD[1:] + b"abc"
LATER = BLOB_HEAD[:4] + b"\2" + BLOB_HEAD[5:] + b"abc"


@pytest.mark.parametrize(("kind", "size"), [(BlobRecord, -1), (TurnRecord, 76), (HeadRecord, 32)])
def test_a_checksum_alone_makes_no_record(kind: Any, size: int) -> None:
    """A record with a right checksum but a wrong number, magic or version is rejected."""
    bodies = [BLOB_HEAD + b"ab", BLOB_HEAD + b"abcd", UNMARKED, LATER]
    bodies += [bytes(n) for n in range(100)] + [BLOB_HEAD[:n] for n in range(49)]
    for body in bodies:
        if len(body) != size:
            with pytest.raises(DamagedError):
                kind.parse(body + struct.pack("<I", zlib.crc32(body)))
    for short in range(4):
        with pytest.raises(DamagedError):
            kind.parse(bytes(short))


def test_another_magic_or_version_in_a_file(tmp_path: Path) -> None:
    """A record of another magic or version is rejected; a note names the version."""
    for body, why in ((UNMARKED, "is damaged"), (LATER, "is of version 2")):
        data = body + struct.pack("<I", zlib.crc32(body))
        found, notes = read_back(data, tmp_path / "blobs.pack")
        assert found == []
        assert notes == [lost("blobs.pack", 55, 0, f"dropped: the record there {why}")]


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


TOO_LARGE: dict[str, Any] = {"turn_id": 1 << 64, "parent": -1, "depth": 1 << 32, "codec": 1 << 32, "type_tag": 1 << 64, "flags": -1,
             "type_version": 1 << 32, "encoding": -1, "compression": 1 << 32, "uncompressed_len": 10**5000,
             "context_id": 1 << 64, "head_turn_id": 1 << 64, "head_depth": -1}  # fmt: skip
UNFIT: list[tuple[Any, str]] = [
    *((replace(cast("Any", record), **{name: value}), f"{name} is") for name, value in TOO_LARGE.items()
      for record in (TURN, META, HEAD) if hasattr(record, name)),
    (replace(TURN, flags=1 << 32), "flags is"), (replace(TURN, created_at_ms=cast("Any", 1.5)), "created_at_ms is float"),
    (replace(TURN, turn_id=1 << 64), "turn_id is a number of 65 bits"),
    (replace(TURN, payload_hash=bytes(31)), "hash that is not 32 bytes"),
    (replace(TURN, payload_hash=bytes(33)), "hash that is not 32 bytes"),
    (replace(META, type_id="\ud800"), "unpaired surrogate"),
    (replace(META, type_id="a" * ((1 << 18) + 1)), "a type id of 262145 bytes"),
    (BlobRecord(bytes(32), 2, 3, b"abc"), "a blob of codec 2"),
    (BlobRecord(bytes(32), 0, 4, b"abc"), "4 bytes raw and 3 stored"),
    (BlobRecord(bytes(32), 1, 1 << 32, b"abc"), "raw_len is"),
    (BlobRecord(bytes(8), 0, 3, b"abc"), "hash that is not 32 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "said"), UNFIT, ids=range(len(UNFIT)))
def test_what_does_not_fit_is_refused(record: Any, said: str) -> None:
    """A number, hash or text that does not fit its field is refused, never cut."""
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


ZSTD = blob(b"abc", 1).stored


@pytest.mark.parametrize(
    ("codec", "length", "stored", "said"),
    [
        (0, 3, b"abd", "holds other bytes"),
        (0, 4, b"abc", "is not 4 bytes long"),
        (0, 2, b"abc", "is not 2 bytes long"),
        (7, 3, b"abc", "unknown codec 7"),
        (1, 3, b"abc", "cannot be decompressed"),
        (1, 3, b"", "is not 3 bytes long"),
        (1, 4, ZSTD, "is not 4 bytes long"),
        (1, 2, ZSTD, "is not 2 bytes long"),
        (1, 3, ZSTD[:-1], "is not 3 bytes long"),
        (1, 3, ZSTD + b"junk", "cannot be decompressed"),
        (1, 3, blob(b"abd", 1).stored, "holds other bytes"),
    ],
)
def test_raw_proves_the_hash(codec: int, length: int, stored: bytes, said: str) -> None:
    """Bytes that are not those of the hash are an error that names the blob."""
    hashed = blake3(b"abc")
    with pytest.raises(DamagedError, match=f"blob:blake3:{hashed.hexdigest()} .*{said}"):
        BlobRecord(hashed.digest(), codec, length, stored).raw()


@pytest.mark.parametrize("claimed", [0, 5, 100_000])
@pytest.mark.parametrize("known", [True, False])
def test_a_bomb_is_not_unfolded(claimed: int, known: bool) -> None:
    """A small frame never expands beyond its declared size."""
    made = zstandard.ZstdCompressor(write_content_size=known)
    maker = made.compressobj(size=256 << 20 if known else -1)
    stored = b"".join(maker.compress(bytes(1 << 20)) for _ in range(256)) + maker.flush()
    with bounded(8), pytest.raises(DamagedError):
        BlobRecord(bytes(32), 1, claimed, stored).raw()


# Writing.


def test_a_pack_there_and_back(tmp_path: Path) -> None:
    """Everything written is read back in order, without a note."""
    folder = tmp_path / "pack"
    write(folder)
    found = tree(folder)
    assert sorted(found) == sorted(packfile.FILES) == FILES
    for name, _, records in READERS:
        assert found[name] == b"".join(record.pack() for record in records)
        assert read_back(found[name], folder / name) == (records, [])
    assert len(found["blobs.idx"]) == 3 * 52
    assert found["turns.idx"] == struct.pack("<6Q", 1, 0, 2, 80, 3, 160)
    assert index_faults(folder) == []
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}


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
    entries = [TurnEntry(turn.turn_id, offset) for offset, turn in log]
    assert list(read_index(folder / "turns.idx")) == entries
    assert notes.taken(read_meta, folder / "turns.meta") == metas
    assert notes.taken(read_heads, folder / "heads.tbl") == heads
    assert notes == []


@pytest.mark.parametrize("name", [*FILES, ".eventq-export"])
def test_a_pack_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """A folder that already has a file of a pack is refused and left unchanged."""
    (tmp_path / name).symlink_to("nowhere")
    said = f"holds a pack already: {name}" if name in FILES else "no folder of an export - remove"
    with pytest.raises(LogicError, match=said), PackWriter(tmp_path):
        pass
    assert os.listdir(tmp_path) == [name]
    (tmp_path / name).unlink()
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
        assert sorted(os.listdir(folder)) == [".eventq-export", *["mine"] * before]
        raise ZeroDivisionError
    assert folder.exists() == before
    assert not before or tree(folder) == {"mine": b"kept"}
    write(folder)


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    """A failed write is a DiskError and fails the pack for good."""
    pack = PackWriter(tmp_path / "pack")
    files = pack._target._files

    def fill() -> None:
        with pack:
            for place in ("/dev/full", os.devnull):
                files["blobs.pack"].close()
                files["blobs.pack"] = open(place, "wb", buffering=0)  # noqa: SIM115
                if place == "/dev/full":
                    with pytest.raises(DiskError):
                        pack.blob(blob(b"abc"))

    with pytest.raises(DiskError, match="No space left"):
        fill()
    assert os.listdir(tmp_path) == []


def test_the_order_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are synced before the first rename; blobs are renamed first, heads last."""
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
    end = ["folder", "heads.tbl", "folder", "folder", "folder"]
    assert done == ["file"] * 7 + tells + names + end


BAD_RECORDS = {
    "blob": BlobRecord(b"", 0, 0, b""),
    "turn": replace(TURN, turn_id=-1),
    "meta": replace(META, type_id="\ud800"),
    "head": replace(HEAD, context_id=-1),
}


def test_a_bad_record_spoils_nothing(tmp_path: Path) -> None:
    """A record that was refused is as if it had never been given; those around it are written."""
    good = [blob(b"one"), blob(b"two")]
    with PackWriter(tmp_path) as pack:
        for one in good:
            pack.blob(one)
            for kind, bad in BAD_RECORDS.items():
                with pytest.raises(InputError):
                    getattr(pack, kind)(bad)
    assert Notes().taken(read_blobs, tmp_path / "blobs.pack") == good
    assert index_faults(tmp_path) == []


def test_two_writers(tmp_path: Path) -> None:
    """A second writer of a folder is refused while the first one works."""
    with PackWriter(tmp_path) as pack:
        pack.blob(blob(b"one"))
        with pytest.raises(LogicError, match="somebody writes"):
            write(tmp_path)
        pack.blob(blob(b"two"))
    found = Notes().taken(read_blobs, tmp_path / "blobs.pack")
    assert found == [blob(b"one"), blob(b"two")]
    rebuild_indexes(tmp_path)


def test_what_a_killed_writer_left(tmp_path: Path) -> None:
    """A killed writer's hidden folder is removed; links in it are not followed."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    left = tmp_path / "pack" / ".eventq-export"
    left.mkdir(parents=True)
    (left / "blobs.pack").symlink_to(victim)
    (left / "turns.log").write_bytes(b"junk" * 1000)
    (tmp_path / "pack" / "blobs.pack.part").write_bytes(b"mine")
    write(tmp_path / "pack")
    assert victim.read_bytes() == b"kept"
    assert sorted(os.listdir(tmp_path / "pack")) == sorted([*FILES, "blobs.pack.part"])


BAD_NAMES = [
    b"5",
    b"true",
    b'"blobs.pack"',
    b'["blobs.pack"]',
    b'{"blobs.pack": null}',
    b"[" * 100_000,
    b'{"blobs',
]


@pytest.mark.parametrize("names", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_what_a_killed_writer_named_is_not_known(tmp_path: Path, names: bytes) -> None:
    """Where the hidden folder does not say which files it named, none is taken for one of them."""
    (tmp_path / ".eventq-export").mkdir()
    (tmp_path / ".eventq-export" / "names").write_bytes(names)
    write(tmp_path)
    assert sorted(os.listdir(tmp_path)) == FILES


def test_a_writer_outside_its_block(tmp_path: Path) -> None:
    """Before and after the block a writer is closed, and says so."""
    pack = PackWriter(tmp_path)
    for _ in range(2):
        for kind, record in (("blob", blob(b"")), ("turn", TURN), ("meta", META), ("head", HEAD)):
            with pytest.raises(ClosedError):
                getattr(pack, kind)(record)
        if not os.listdir(tmp_path):
            with pack:
                pass


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
    """A cut last record costs only itself, and one note counts the dropped bytes."""
    *first, last = (record.pack() for record in records)
    whole = b"".join(first)
    for cut in range(len(last)):
        found, notes = read_back(whole + last[:cut], tmp_path / name)
        assert found == records[:2]
        torn = lost(name, cut, len(whole), "dropped: the record there is torn")
        assert notes == [torn] * bool(cut)


@every_reader
def test_every_flipped_byte_of_a_record(
    tmp_path: Path, name: str, read: Any, records: list[Any]
) -> None:
    """A note locates a flipped byte: a turn ends its log, a head or blob is left out alone."""
    parts = [record.pack() for record in records]
    starts = [sum(map(len, parts[:n])) for n in range(4)]
    data = b"".join(parts)
    for at in range(len(data) if name != "turns.meta" else 0):
        found, notes = read_back(
            data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :], tmp_path / name
        )
        bad = max(n for n in range(3) if starts[n] <= at)
        start, size = starts[bad], len(parts[bad])
        if name == "turns.log":
            assert found == records[:bad]
            assert notes == [
                lost(name, 3 - bad, start, "dropped: the record there is damaged", "record")
            ]
            continue
        assert found == records[:bad] + records[bad + 1 :]
        if name == "heads.tbl":
            assert notes == [lost(name, 1, start, "skipped: damaged", "record")]
        else:
            how = "dropped" if bad == 2 else "skipped"
            assert notes[0].startswith(lost(name, size, start, f"{how}: the record there is "))
            assert notes[0].endswith("is damaged") or at - start in (*range(4, 6), *range(12, 16))
            assert len(notes) == 1


def test_several_bad_heads(tmp_path: Path) -> None:
    """Consecutive bad heads are one note, and a torn end is another."""
    all_bad = (0, 1, 4095, 4096, 4097, 5998, 5999)
    data = bytearray(b"".join(HeadRecord(n, n, n, 0, 0).pack() for n in range(6000)))
    for bad in all_bad:
        data[bad * 36] ^= 1
    found, notes = read_back(data + b"abc", tmp_path / "heads.tbl")
    assert [head.context_id for head in found] == [n for n in range(6000) if n not in all_bad]
    assert notes == [
        *(lost("heads.tbl", n, at * 36, "skipped: damaged", "record") for n, at in ((2, 0), (3, 4095), (2, 5998))),
        lost("heads.tbl", 3, 6000 * 36, "dropped: the record there is torn"),
    ]  # fmt: skip


def test_a_codec_to_come(tmp_path: Path) -> None:
    """A record of an unknown codec is read, as its checksum holds; only its bytes cannot be had."""
    body = struct.pack("<IHHII", 0x42534C42, 1, 9, 5, 3) + bytes(32) + b"abc"
    data = body + struct.pack("<I", zlib.crc32(body)) + blob(b"next").pack()
    found, notes = read_back(data, tmp_path / "blobs.pack")
    assert found == [BlobRecord(bytes(32), 9, 5, b"abc"), blob(b"next")]
    assert notes == []


MARK = BLOB_HEAD[:6]
LIE = struct.pack("<IHHII", 0x42534C42, 1, 0, 60, 60) + bytes(32)
JUNK = [
    b"x",
    MARK,
    LIE,
    MARK * 50,
    b"x" * 4090 + MARK,
    *(b"x" * n for n in range(4085, 4102)),
    b"y" * 3_000_000,
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_between_blobs(tmp_path: Path, junk: bytes) -> None:
    """After junk of any length, with false beginnings in it, the next sound blob is found."""
    blobs = [blob(b"one"), blob(b"two"), blob(b"three")]
    first, *rest = (one.pack() for one in blobs)
    found, (note,) = read_back(first + junk + b"".join(rest), tmp_path / "blobs.pack")
    assert found == blobs
    assert note.startswith(lost("blobs.pack", len(junk), 55, "skipped: the record there is "))


def test_a_pack_inside_a_damaged_blob(tmp_path: Path) -> None:
    """A damaged blob that holds a pack itself is left out as a whole, where its length is right."""
    outer = bytearray(blob(blob(b"inner").pack() * 3).pack())
    outer[20] ^= 1  # its hash
    found, notes = read_back(outer + blob(b"next").pack(), tmp_path / "blobs.pack")
    assert (found, len(notes)) == ([blob(b"next")], 1)


@pytest.mark.parametrize("at", [8, 12])
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 64 << 20, 1])
def test_blob_lengths_that_lie(tmp_path: Path, at: int, length: int) -> None:
    """A blob with false lengths is left out without allocating them."""
    body = bytearray(blob(b"abc").pack()[:-4])
    body[at : at + 4] = struct.pack("<I", length)
    data = bytes(body) + struct.pack("<I", zlib.crc32(body)) + blob(b"next").pack()
    with bounded(4):
        found, notes = read_back(data, tmp_path / "blobs.pack")
    assert found[-1] == blob(b"next")
    assert (len(found), len(notes)) == ((2, 0) if at == 8 else (1, 1))
    if at == 8:
        with pytest.raises(DamagedError):
            found[0].raw()


def test_a_file_of_holes_is_not_taken_into_memory(tmp_path: Path) -> None:
    """A file that costs nothing and says it holds a blob of 300 MiB gets none of that memory."""
    size = 300 << 20
    with open(tmp_path / "blobs.pack", "wb") as file:
        file.write(struct.pack("<IHHII", 0x42534C42, 1, 0, size, size) + bytes(32))
        file.truncate(size + 52)
    notes = Notes()
    with bounded(8):
        assert notes.taken(read_blobs, tmp_path / "blobs.pack") == []
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
    """Return a list that fills with how many bytes each read gave."""
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
    """A file full of false headers is given up early, even among sound blobs."""
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
    """If every other blob is damaged, the sound ones are read at little extra cost."""
    bad = b"\0" + blob(b"x").pack()[1:]
    got = counted(monkeypatch)
    data = (bad + blob(b"good").pack()) * 20_000
    found, notes = read_back(data, tmp_path / "blobs.pack")
    assert (len(found), len(notes)) == (20_000, 20_000)
    assert sum(got) < 20_000 * 8192


@pytest.mark.parametrize("length", [0xFFFFFFFF, (1 << 18) + 1])
def test_meta_lengths_that_lie(tmp_path: Path, length: int) -> None:
    """A type id that says it is longer than any may be ends the file there, and gets no memory."""
    first = META.pack()
    rest = first[:8] + struct.pack("<I", length) + first[12:] + bytes(1 << 20)
    note = lost("turns.meta", len(rest), 32, "dropped: the record there is damaged")
    assert read_back(first + rest, tmp_path / "turns.meta") == ([META], [note])


def test_every_flipped_byte_of_meta(tmp_path: Path) -> None:
    """A flipped byte of a description costs no earlier record and never the program."""
    second = MetaRecord(2, "x" * 30, 0, 0, 0, 0)
    file = tmp_path / "turns.meta"
    data = META.pack() + second.pack() + META.pack()
    for at in range(32, 32 + len(second.pack())):
        for bit in range(8):
            found, notes = read_back(
                data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], file
            )
            assert found[0] == META
            assert found[1:2] != [second]
            assert notes or len(found) >= 2
    note = lost("turns.meta", len(data) - 32, 32, "dropped: the record there is damaged")
    assert read_back(data[:44] + b"\xff" + data[45:], file) == ([META], [note])


def test_long_files(tmp_path: Path) -> None:
    """Files longer than one read are read completely, in bounded memory."""
    metas = [MetaRecord(n, "é" * (n * 7919 % 100_000), n, 0, 0, 0) for n in range(100)]
    log = turns(20_000)
    with PackWriter(tmp_path) as pack:
        for turn in log:
            pack.turn(turn)
        for meta in metas:
            pack.meta(meta)
    for name, read, records in (("turns.meta", read_meta, metas), ("turns.log", read_turns, log)):
        notes = Notes()
        assert notes.taken(read, tmp_path / name) == records
        assert notes == []
        with bounded(8):
            assert sum(1 for _ in read(tmp_path / name, print)) == len(records)


@every_reader
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_any_bytes_into_every_reader(
    tmp_path_factory: Any, name: str, read: Any, records: list[Any], data: Any
) -> None:
    """Arbitrary bytes around sound records raise nothing; all bytes are accounted for."""
    sound = st.sampled_from([record.pack() for record in records])
    file = b"".join(data.draw(st.lists(st.binary(max_size=120) | sound, max_size=6)))
    found, notes = read_back(file, tmp_path_factory.mktemp("pack") / name)
    known = [one for one in found if getattr(one, "codec", 0) < 2 or name != "blobs.pack"]
    taken = sum(len(record.pack()) for record in known)
    assert taken <= len(file)
    assert notes or taken == len(file)
    assert all(note.startswith(f"{name}: ") for note in notes)


NO_FILES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: None, "is missing"),
    (lambda path: path.mkdir(), "is not a file"),
    (os.mkfifo, "is not a file"),
    (lambda path: path.touch(), ""),
]


@every_reader
@pytest.mark.parametrize(("make", "said"), NO_FILES, ids=["nothing", "folder", "pipe", "empty"])
def test_a_file_that_is_not_there(
    tmp_path: Path, name: str, read: Any, records: list[Any], make: Any, said: str
) -> None:
    """A missing file, a folder and a pipe are read as empty, with a note."""
    make(tmp_path / name)
    notes = Notes()
    assert notes.taken(read, str(tmp_path / name)) == []
    assert notes == [f"{name}: {said}"] * bool(said)


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
    """A file that is truncated during a read ends there, without an error or a loop."""
    path = tmp_path / name
    path.write_bytes(b"".join(record.pack() for record in records) * 30_000)
    reader = read(path, Notes().append)
    next(reader)
    os.truncate(path, 1000)
    assert sum(1 for _ in reader) < 90_000


# The indexes.


@pytest.mark.parametrize("index", ["blobs.idx", "turns.idx"])
def test_a_lost_or_damaged_index(tmp_path: Path, index: str) -> None:
    """A missing or damaged index is detected, and rebuilt with identical bytes."""
    write(tmp_path)
    before = tree(tmp_path)
    sound = before[index]
    size = len(sound) // 3
    base = "blobs.pack" if index == "blobs.idx" else "turns.log"
    cases: list[tuple[bytes | None, int]] = [
        (None, 0), (b"", 0), (sound[:-1], 2), (sound[: 2 * size], 2), (sound + b"x", 3), (sound + sound[:size], 3),
        *((sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :], at // size) for at in range(3 * size)),
    ]  # fmt: skip
    for bad, number in cases:
        said = f"disagrees with {base} from entry {number} on, counted from 0"
        if bad is None:
            (tmp_path / index).unlink()
            said = "is missing"
        else:
            (tmp_path / index).write_bytes(bad)
        assert index_faults(tmp_path) == [f"{index}: {said}"]
        rebuild_indexes(tmp_path)
        assert tree(tmp_path) == before
        assert index_faults(tmp_path) == []


def test_indexes_of_a_damaged_pack(tmp_path: Path) -> None:
    """An index made again names the sound records only; until then it disagrees."""
    write(tmp_path)
    flip(tmp_path / "blobs.pack", 0)
    os.truncate(tmp_path / "turns.log", 239)
    assert index_faults(tmp_path) == [
        "blobs.idx: disagrees with blobs.pack from entry 0 on, counted from 0",
        "turns.idx: disagrees with turns.log from entry 2 on, counted from 0",
    ]
    rebuild_indexes(tmp_path)
    assert index_faults(tmp_path) == []
    first, _ = read_index(tmp_path / "blobs.idx")
    second = READERS[0][2][1]
    assert first == BlobEntry(second.hash, 55, 120, len(second.stored), 1, 0)
    assert list(read_index(tmp_path / "turns.idx")) == [TurnEntry(1, 0), TurnEntry(2, 80)]


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
    before = tree(tmp_path)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskError, match="Input/output error"):
        rebuild_indexes(tmp_path)
    assert tree(tmp_path) == before
