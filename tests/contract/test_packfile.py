"""The files of a pack, one by one: what is written, and what is read when they are damaged or hostile."""

from __future__ import annotations

import os
import resource
import struct
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from typing import TYPE_CHECKING, Any, cast

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq.errors import ClosedError, DiskError, InputError, LogicError
from eventq.system import disk
from eventq.transfer import packfile
from eventq.transfer.packfile import BlobRecord, HeadRecord, MetaRecord, PackWriter, TurnRecord
from tests.contract.pack_files import FILES, digest, kept_blob, sealed, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def blob(raw: bytes, codec: int = 0) -> BlobRecord:
    """Return the record of a blob."""
    stored = zstandard.ZstdCompressor().compress(raw) if codec else raw
    return BlobRecord(blake3(raw).digest(), codec, len(raw), stored)


def turns(count: int) -> list[TurnRecord]:
    """Return some turns, all different."""
    return [
        TurnRecord(n, n - 1, n, 0, 9, blake3(b"%d" % n).digest(), 0, 1773829800123 + n)
        for n in range(1, count + 1)
    ]


RECORDS: dict[str, list[Any]] = {
    "blobs.pack": [blob(b"one"), blob(b"two" * 40, 1), blob(b"")],
    "turns.log": turns(3),
    "turns.meta": [MetaRecord(n, f"chat/{n}é", n, 0, 1, 77) for n in (1, 2, 3)],
    "heads.tbl": [HeadRecord(n, 2 * n, n, 0, 99) for n in (1, 2, 3)],
}
_, TURN, META, HEAD = (some[0] for some in RECORDS.values())
KINDS = dict(zip(RECORDS, ("blob", "turn", "meta", "head"), strict=True))
READERS: dict[str, Callable[..., Iterator[Any]]] = {
    "blobs.pack": packfile.find_blobs,
    "turns.log": packfile.read_turns,
    "turns.meta": packfile.read_meta,
    "heads.tbl": packfile.read_heads,
}
every_file = pytest.mark.parametrize("name", RECORDS)


def packed(record: Any) -> bytes:
    """Return the bytes of a record."""
    return b"".join(record.parts()) if isinstance(record, BlobRecord) else bytes(record.pack())


def records_in(path: Path, note: Callable[[str], object]) -> Iterator[Any]:
    """Yield the records that a file holds, those of blobs with their bytes."""
    for found in READERS[path.name](path, note):
        one = found[1] if isinstance(found, tuple) else found
        if path.name == "blobs.pack":
            yield BlobRecord(one.hash, one.codec, one.raw_len, one.stored_bytes().read(1 << 30))
        else:
            yield one


def read(path: Path) -> tuple[list[Any], list[str]]:
    """Return what a reader finds in a file, and what it tells."""
    notes: list[str] = []
    return [*records_in(path, notes.append)], notes


def read_back(data: bytes | bytearray, path: Path) -> tuple[list[Any], list[str]]:
    """Return what a reader finds in a file of these bytes, and what it tells."""
    path.write_bytes(data)
    return read(path)


def lost(name: str, count: int, at: int, how: str, word: str = "byte") -> str:
    """Return the note of what a reader left out."""
    words = f"{word} after byte {at} was" if count == 1 else f"{word}s after byte {at} were"
    return f"{name}: {count} {words} {how}"


def write(folder: Path) -> None:
    """Write a pack of all these records."""
    with PackWriter(folder) as pack:
        for name, some in RECORDS.items():
            for record in some:
                getattr(pack, KINDS[name])(record)


@contextmanager
def bounded(most: int) -> Iterator[None]:
    """Fail when more memory is taken meanwhile than `most` MiB."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most << 20
    finally:
        tracemalloc.stop()


# Writing.


TOO_LARGE: dict[str, Any] = {
    "turn_id": 1 << 64, "parent": -1, "depth": 1 << 32, "codec": 1 << 32, "type_tag": 1 << 64, "flags": -1,
    "type_version": 1 << 32, "encoding": -1, "compression": 1 << 32, "uncompressed_len": 10**5000,
    "context_id": 1 << 64, "head_turn_id": 1 << 64, "head_depth": -1,
}  # fmt: skip
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


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A number, hash or text that does not fit its field is refused, never cut, and spoils nothing."""
    types = {BlobRecord: "blob", TurnRecord: "turn", MetaRecord: "meta", HeadRecord: "head"}
    with PackWriter(tmp_path) as pack:
        for record, said in UNFIT:
            with pytest.raises(InputError) as caught:
                getattr(pack, types[type(record)])(record)
            assert said in caught.value.what
            assert caught.value.fix
            pack.blob(blob(b"good"))
    assert read(tmp_path / "blobs.pack") == ([blob(b"good")] * len(UNFIT), [])
    assert not any(read(tmp_path / name)[0] for name in RECORDS if name != "blobs.pack")
    assert packfile.index_faults(tmp_path) == []


@pytest.mark.parametrize("name", [*FILES, "artifacts", ".eventq-export"])
def test_a_pack_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """A folder that already has a file of a pack is refused and left unchanged."""
    (tmp_path / name).symlink_to("nowhere")
    said = {"artifacts": "artifacts' is there", ".eventq-export": "no folder of an export - remove"}
    with pytest.raises(LogicError, match=said.get(name, f"holds a pack already: {name}")):
        write(tmp_path)
    assert os.listdir(tmp_path) == [name]
    (tmp_path / name).unlink()
    write(tmp_path)  # nobody keeps the lock


def test_a_full_disk_in_the_middle(tmp_path: Path) -> None:
    """A failed write is a DiskError, and fails the pack for good even if there is room later."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(DiskError, match="too large"), PackWriter(tmp_path / "pack") as pack:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, most[1]))
        try:
            with pytest.raises(DiskError, match="too large"):
                pack.blob(blob(bytes(2 << 20)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
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


def test_two_writers(tmp_path: Path) -> None:
    """A second writer of a folder is refused while the first one works."""
    with PackWriter(tmp_path) as pack:
        pack.blob(blob(b"one"))
        with pytest.raises(LogicError, match="somebody writes"):
            write(tmp_path)
        pack.blob(blob(b"two"))
    assert read(tmp_path / "blobs.pack") == ([blob(b"one"), blob(b"two")], [])


LEFT_NAMES = [
    b"5", b"true", b'"blobs.pack"', b'["blobs.pack"]', b'{"blobs.pack": null}', b"[" * 100_000, b'{"blobs',
]  # fmt: skip


@pytest.mark.parametrize("names", LEFT_NAMES, ids=range(len(LEFT_NAMES)))
def test_what_a_killed_writer_left(tmp_path: Path, names: bytes) -> None:
    """A killed writer's hidden folder is removed, whatever it holds; no link in it is followed."""
    victim, left = tmp_path / "victim", tmp_path / "pack" / ".eventq-export"
    victim.write_bytes(b"kept")
    left.mkdir(parents=True)
    (left / "blobs.pack").symlink_to(victim)
    (left / "turns.log").write_bytes(b"junk" * 1000)
    (left / "names").write_bytes(names)
    (tmp_path / "pack" / "blobs.pack.part").write_bytes(b"mine")
    write(tmp_path / "pack")
    assert victim.read_bytes() == b"kept"
    assert sorted(os.listdir(tmp_path / "pack")) == sorted([*FILES, "blobs.pack.part"])


def test_a_writer_outside_its_block(tmp_path: Path) -> None:
    """Before and after the block a writer is closed, and says so."""
    pack = PackWriter(tmp_path)
    for _ in range(2):
        for name, records in RECORDS.items():
            with pytest.raises(ClosedError):
                getattr(pack, KINDS[name])(records[0])
        if not os.listdir(tmp_path):
            with pack:
                pass


# Damage.


@every_file
def test_a_tail_torn_at_every_byte(tmp_path: Path, name: str) -> None:
    """A cut last record costs only itself, and one note counts the dropped bytes."""
    *first, last = map(packed, RECORDS[name])
    whole = b"".join(first)
    for cut in range(len(last)):
        found, notes = read_back(whole + last[:cut], tmp_path / name)
        assert found == RECORDS[name][:2]
        torn = lost(name, cut, len(whole), "dropped: the record there is torn")
        assert notes == [torn] * bool(cut)


@pytest.mark.parametrize("name", ["blobs.pack", "turns.log", "heads.tbl"])
def test_every_flipped_byte_of_a_record(tmp_path: Path, name: str) -> None:
    """A note locates a flipped byte: a turn ends its log, a head or blob is left out alone."""
    records, parts = RECORDS[name], [*map(packed, RECORDS[name])]
    ends_there = name == "turns.log"
    at = 0
    for bad, part in enumerate(parts):
        start, end = at, at + len(part)
        how = "dropped: " if ends_there or (name, bad) == ("blobs.pack", 2) else "skipped: "
        count, word = (len(part), "byte") if name == "blobs.pack" else (1, "record")
        said = lost(name, 3 - bad if ends_there else count, start, how, word)
        for at in range(start, end):
            data = bytearray(b"".join(parts))
            data[at] ^= 0x40
            found, (note,) = read_back(data, tmp_path / name)
            assert found == records[:bad] + records[3 if ends_there else bad + 1 :]
            assert note.startswith(said)
        at = end


def test_several_bad_heads(tmp_path: Path) -> None:
    """Consecutive bad heads are one note, and a torn end is another."""
    all_bad = (0, 1, 4095, 4096, 4097, 5998, 5999)
    data = bytearray(b"".join(HeadRecord(n, n, n, 0, 0).pack() for n in range(6000)))
    for bad in all_bad:
        data[bad * 36] ^= 1
    found, notes = read_back(data + b"abc", tmp_path / "heads.tbl")
    assert [head.context_id for head in found] == [n for n in range(6000) if n not in all_bad]
    runs = (2, 0), (3, 4095), (2, 5998)
    assert notes == [
        *(lost("heads.tbl", n, at * 36, "skipped: damaged", "record") for n, at in runs),
        lost("heads.tbl", 3, 6000 * 36, "dropped: the record there is torn"),
    ]


@every_file
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_any_bytes_into_every_reader(tmp_path_factory: Any, name: str, data: Any) -> None:
    """Arbitrary bytes around sound records raise nothing; all bytes are accounted for."""
    sound = st.sampled_from([*map(packed, RECORDS[name])])
    file = b"".join(data.draw(st.lists(st.binary(max_size=120) | sound, max_size=6)))
    found, notes = read_back(file, tmp_path_factory.mktemp("pack") / name)
    taken = sum(len(packed(one)) for one in found)
    assert taken <= len(file)
    assert notes or taken == len(file)
    assert all(note.startswith(f"{name}: ") for note in notes)


@every_file
def test_a_file_that_shrinks(tmp_path: Path, name: str) -> None:
    """A file that is truncated during a read ends there, without an error or a loop."""
    path = tmp_path / name
    path.write_bytes(b"".join(map(packed, RECORDS[name])) * 30_000)
    reader = records_in(path, str)
    next(reader)
    os.truncate(path, 1000)
    assert sum(1 for _ in reader) < 90_000


def test_long_files(tmp_path: Path) -> None:
    """Files longer than one read are read completely, in bounded memory."""
    metas = [MetaRecord(n, "é" * (n * 7919 % 100_000), n, 0, 0, 0) for n in range(100)]
    for name, records in (("turns.log", turns(20_000)), ("turns.meta", metas)):
        assert read_back(b"".join(map(packed, records)), tmp_path / name) == (records, [])
        with bounded(8):
            assert sum(1 for _ in records_in(tmp_path / name, print)) == len(records)


@pytest.mark.parametrize("text", [b"\xff" * 4, struct.pack("<I", (1 << 18) + 1), b"\4\0\0\0\xff"])
def test_a_type_that_cannot_be(tmp_path: Path, text: bytes) -> None:
    """A type id that is too long, or no text, ends the descriptions there."""
    first = packed(RECORDS["turns.meta"][0])
    rest = first[:8] + text + first[8 + len(text) :] + bytes(1 << 20)
    note = lost("turns.meta", len(rest), len(first), "dropped: the record there is damaged")
    assert read_back(first + rest, tmp_path / "turns.meta") == (RECORDS["turns.meta"][:1], [note])


# Damage among blobs, which are read on at the next sound one.


def test_a_codec_to_come(tmp_path: Path) -> None:
    """A record of an unknown codec is read, as its checksum holds; only its bytes cannot be had."""
    data = kept_blob(bytes(32), 9, 5, b"abc") + packed(blob(b"next"))
    expected = [BlobRecord(bytes(32), 9, 5, b"abc"), blob(b"next")]
    assert read_back(data, tmp_path / "blobs.pack") == (expected, [])


def odd(magic: int = 0x42534C42, version: int = 1, stored: int = 3) -> bytes:
    """Return what could be the record of a blob, with its checksum."""
    return sealed(struct.pack("<IHHII", magic, version, 0, 3, stored) + digest(b"abc") + b"abc")


MARK = odd()[:6]
OUTER = packed(blob(packed(blob(b"inner")) * 3))
JUNK = {
    "a byte": b"x", "a mark": MARK, "a head": odd(stored=60)[:48], "marks": MARK * 50, "megabytes": b"y" * 3_000_000,
    "a mark over two reads": b"x" * 4090 + MARK, **{f"{n} bytes": b"x" * n for n in range(4085, 4102)},
    "another magic": odd(magic=0x42534C43), "version 2": odd(version=2), "a pack": OUTER[:20] + b"x" + OUTER[21:],
    **{f"a length of {n}": odd(stored=n) for n in (0xFFFFFFFF, 0x7FFFFFFF, 64 << 20, 1)},
}  # fmt: skip


@pytest.mark.parametrize("kind", JUNK)
def test_junk_between_blobs(tmp_path: Path, kind: str) -> None:
    """After junk of any length, with false heads or blobs in it, the next sound blob is found."""
    blobs = [blob(b"one"), blob(b"two"), blob(b"three")]
    first, *rest = map(packed, blobs)
    with bounded(8):
        found, (note,) = read_back(first + JUNK[kind] + b"".join(rest), tmp_path / "blobs.pack")
    assert found == blobs
    assert note.startswith(lost("blobs.pack", len(JUNK[kind]), 55, "skipped: the record there is "))
    assert note.endswith(kind if "version" in kind else ("damaged", "torn"))


class Counting(FileIO):
    """A file that counts the bytes that are read from all of its kind."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        data = super().read(size) or b""
        Counting.count += len(data)
        return data


def lies(among: bytes, count: int = 60_000) -> bytes:
    """Return heads of blobs that reach to the end of a file, and something else before each."""
    left = ((count - number) * 100 - 104 for number in range(count))
    heads = (struct.pack("<IHHII", 0x42534C42, 1, 0, 0, max(n, 0)) + bytes(32) for n in left)
    return b"".join(among + head for head in heads)


BAD_AND_GOOD = b"\0" + packed(blob(b"x"))[1:] + packed(blob(b"good"))
CROWDED: dict[str, tuple[Callable[[], bytes], int]] = {  # what there is, and how many come at least
    "false heads": (lambda: lies(bytes(52)), 0),
    "false heads among sound blobs": (lambda: lies(packed(blob(b""))), 0),
    "every other blob damaged": (lambda: BAD_AND_GOOD * 20_000, 20_000),
}


@pytest.mark.parametrize("kind", CROWDED)
def test_much_damage_costs_little(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file full of false or damaged blobs is read, or given up, in linear time."""
    make, sound = CROWDED[kind]
    monkeypatch.setattr(disk, "open_regular", lambda path, **_: Counting(path))
    monkeypatch.setattr(Counting, "count", 0)
    data = make()
    found, notes = read_back(data, tmp_path / "blobs.pack")
    assert notes
    assert len(found) >= sound
    assert Counting.count < 10 * len(data) + (160 << 20)  # without an end: some 180 GB


# The indexes.


@pytest.mark.parametrize("index", ["blobs.idx", "turns.idx"])
def test_a_lost_or_damaged_index(tmp_path: Path, index: str) -> None:
    """A missing or damaged index is detected, and rebuilt with identical bytes."""
    write(tmp_path)
    assert packfile.index_faults(tmp_path) == []
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
        assert packfile.index_faults(tmp_path) == [f"{index}: {said}"]
        packfile.rebuild_indexes(tmp_path)
        assert tree(tmp_path) == before
        assert packfile.index_faults(tmp_path) == []
