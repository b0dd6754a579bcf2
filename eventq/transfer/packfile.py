"""Read and write the files of a pack, a folder that carries turns to another thread.

Everything is little-endian. `blobs.pack`, `turns.log`, `turns.meta` and `heads.tbl` are the truth;
`blobs.idx` and `turns.idx` are derived, never trusted, and made again by `rebuild_indexes`;
`eventq.transfer` reads the lines of `eventq.ndjson`. A pack may come from anywhere: a reader leaves
out what is damaged, passes a sentence about it to its `note`, and never allocates by a number that
it has not checked.

What one damaged place costs: `heads.tbl` is read on after it, as its records are independent.
`turns.log` and `turns.meta` end there, as a turn may need any of those before it. `blobs.pack` is
read on at the next place where the magic and a checksum hold. That is safe, as a blob is found by
its hash alone and `BlobRecord.raw` proves it: a record that was only part of another blob's bytes
is at worst a blob that nobody asks for.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import zlib
from dataclasses import dataclass, fields
from io import BytesIO

from eventq.errors import ClosedError, DamagedError, InputError, LogicError, StoreError, refused
from eventq.system import disk
from eventq.system.locks import lock_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, BinaryIO, NoReturn, Self

    Note = Callable[[str], object]
    Path = str | os.PathLike[str]

# In the order in which they are renamed into place: if there is a heads.tbl, all are there.
BLOBS, BLOBS_INDEX, TURNS, TURNS_INDEX, META, BESIDE, HEADS = FILES = (
    "blobs.pack",
    "blobs.idx",
    "turns.log",
    "turns.idx",
    "turns.meta",
    "eventq.ndjson",
    "heads.tbl",
)
LONGEST_LINE = 1 << 20  # bytes of a line of eventq.ndjson: twice the longest that makes sense
ARTIFACTS = "artifacts"  # the folder of a pack that holds them
UNFINISHED = ".eventq-export"  # the folder in which a pack is made; all in it is ours
_NAMES = "names"  # the file in it that lists what may have its name already, for after a kill
# The key of the last line of eventq.ndjson: the hashes of files whose records have no checksums.
SUMS = "sums"
PLAIN, ZSTD = 0, 1  # the codecs of a blob
LONGEST_TYPE = 1 << 18  # bytes of a type id: the 65,536 characters that a text may have
_MAGIC, _VERSION = 0x42534C42, 1
_BLOB = struct.Struct("<IHHII32s")
_BLOB_ENTRY = struct.Struct("<32sQIIHH")
_TURN = struct.Struct("<QQIIQ32sIQ")
_TURN_ENTRY = struct.Struct("<QQ")
_META_HEAD = struct.Struct("<QI")
_META_TAIL = struct.Struct("<IIII")
_HEAD = struct.Struct("<QQIIQ")
_CRC = struct.Struct("<I")
_MARK = struct.pack("<IH", _MAGIC, _VERSION)
_LEAST_BLOB = _BLOB.size + _CRC.size
_CHUNK = 1 << 20
_UNPROVEN = 4 << 20  # bytes of a blob that may be held before they are proven
_LENIENT = 64 << 20  # bytes that may be read for nothing, even of a short file
_WINDOW = 8 << 20  # the memory that a frame may ask for: RFC 8878 recommends no more
_FRAME_HEAD = 18  # bytes of a frame that hold the length that it claims
_BITS = {
    "codec": 16,  # of a blob; a turn's has 32
    "raw_len": 32,
    "turn_id": 64,
    "parent": 64,
    "depth": 32,
    "type_tag": 64,
    "flags": 32,
    "created_at_ms": 64,
    "type_version": 32,
    "encoding": 32,
    "compression": 32,
    "uncompressed_len": 32,
    "context_id": 64,
    "head_turn_id": 64,
    "head_depth": 32,
}


class _Blob:
    """What can be done with a record of a blob, wherever its stored bytes are."""

    __slots__ = ()

    hash: bytes
    codec: int
    raw_len: int

    @property
    def stored_len(self) -> int:
        """The number of the stored bytes."""
        raise NotImplementedError

    def stored_bytes(self) -> BytesIO | _Extent:
        """Return the stored bytes as a file to be read once."""
        raise NotImplementedError

    def open(self) -> Unfolded:
        """Return the bytes themselves as a file to be read once; nobody has checked them."""
        return Unfolded(self)

    def check(self) -> None:
        """Raise DamagedError unless the bytes are those that the hash names; memory is bounded."""
        for _ in self._parts_of_raw():
            pass

    def _parts_of_raw(self) -> Iterator[bytes]:
        """Yield the bytes in parts; raise DamagedError at the end if their hash is wrong."""
        from blake3 import blake3

        hasher = blake3()
        left = self.raw_len + 1  # one more, to see that there is no more
        file = self.open()
        while left and (part := file.read(min(left, _CHUNK))):
            hasher.update(part)
            left -= len(part)
            yield part
        if left != 1:
            self.fail(f"is not {self.raw_len} bytes long")
        if hasher.digest() != self.hash:
            self.fail("holds other bytes than its hash says")

    def raw(self) -> bytes:
        """Return the bytes themselves; raise DamagedError if their hash is wrong.

        More than a few MiB are held only once they are proven.
        """
        if self.raw_len > _UNPROVEN:
            self.check()
        parts = [*self._parts_of_raw()]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def entry(self, offset: int) -> bytes:
        """Return the bytes in `blobs.idx` of this record when it begins at `offset`."""
        return _BLOB_ENTRY.pack(self.hash, offset, self.raw_len, self.stored_len, self.codec, 0)

    def fail(self, what: str) -> NoReturn:
        """Raise DamagedError."""
        raise DamagedError(
            f"blob:blake3:{self.hash.hex()} {what}",
            "get the blob or the pack from its source again",
        )


class Unfolded:
    """The bytes of a blob, decompressed as they are read, or DamagedError."""

    def __init__(self, blob: _Blob) -> None:
        self._blob = blob
        self._file: Any = blob.stored_bytes()
        self._wrong: tuple[type[Exception], ...] = ()
        if blob.codec == ZSTD:
            self._unfold()
        elif blob.codec != PLAIN:
            blob.fail(f"has the unknown codec {blob.codec}")

    def _unfold(self) -> None:
        from zstandard import ZstdDecompressor, ZstdError, frame_content_size

        self._wrong = (ZstdError,)
        try:
            claimed = frame_content_size(self._file.read(_FRAME_HEAD))
        except ZstdError:
            claimed = -1  # reading it raises the error
        # The claim is not trusted, but it must agree.
        if claimed not in (-1, self._blob.raw_len):
            self._blob.fail(f"is not {self._blob.raw_len} bytes long")
        stored: Any = self._blob.stored_bytes()
        self._file = ZstdDecompressor(max_window_size=_WINDOW).stream_reader(stored)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`, nothing at the end."""
        try:
            return self._file.read(size)  # type: ignore[no-any-return]
        except self._wrong as error:
            self._blob.fail(f"cannot be decompressed: {error}")


@dataclass(frozen=True, slots=True)
class BlobRecord(_Blob):
    """A blob as stored: its bytes under `codec` (0 none, 1 zstd), and the hash of the raw ones."""

    hash: bytes
    codec: int
    raw_len: int
    stored: bytes

    @property
    def stored_len(self) -> int:
        """The number of the stored bytes."""
        return len(self.stored)

    def stored_bytes(self) -> BytesIO:
        """Return the stored bytes as a file."""
        return BytesIO(self.stored)

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Return head, stored bytes and checksum, which `blobs.pack` holds one after another.

        Raises InputError for what a reader would refuse.
        """
        _need_hash(self, self.hash)
        if self.codec not in (PLAIN, ZSTD) or (
            self.codec == PLAIN and self.raw_len != len(self.stored)
        ):
            what = (
                f"a blob of codec {self.codec}, {self.raw_len} bytes raw and {len(self.stored)}"
                f" stored"
            )
            raise InputError(what, "give codec 0 with equal lengths, or codec 1, zstd")
        head = _packed(
            self, _BLOB, _MAGIC, _VERSION, self.codec, self.raw_len, len(self.stored), self.hash
        )
        return head, self.stored, _CRC.pack(zlib.crc32(self.stored, zlib.crc32(head)))


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn of `turns.log`; its payload is the blob of `payload_hash`."""

    turn_id: int
    parent: int
    depth: int
    codec: int
    type_tag: int
    payload_hash: bytes
    flags: int
    created_at_ms: int

    def pack(self) -> bytes:
        """Return the 80 bytes in `turns.log`; raise InputError for a number that does not fit."""
        _need_hash(self, self.payload_hash)
        ids = (self.turn_id, self.parent, self.depth, self.codec, self.type_tag)
        return _sealed(
            _packed(self, _TURN, *ids, self.payload_hash, self.flags, self.created_at_ms)
        )

    def entry(self, offset: int) -> bytes:
        """Return the bytes in `turns.idx` of this record when it begins at `offset`."""
        return _TURN_ENTRY.pack(self.turn_id, offset)


@dataclass(frozen=True, slots=True)
class MetaRecord:
    """What a payload is, of `turns.meta`.

    That has no checksums: a record is to be checked against the turn and its blob.
    """

    turn_id: int
    type_id: str
    type_version: int
    encoding: int
    compression: int
    uncompressed_len: int

    def pack(self) -> bytes:
        """Return the bytes in `turns.meta`; raise InputError for what a reader would refuse."""
        try:
            text = self.type_id.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"the type id {self.type_id!a} holds an unpaired surrogate", "leave it out"
            ) from None
        if len(text) > LONGEST_TYPE:
            raise InputError(
                f"a type id of {len(text)} bytes", f"give one of {LONGEST_TYPE} bytes at most"
            )
        numbers = (self.type_version, self.encoding, self.compression, self.uncompressed_len)
        return (
            _packed(self, _META_HEAD, self.turn_id, len(text))
            + text
            + _packed(self, _META_TAIL, *numbers)
        )


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """Where a context stands, of `heads.tbl`; of several records of one context the last counts."""

    context_id: int
    head_turn_id: int
    head_depth: int
    flags: int
    created_at_ms: int

    def pack(self) -> bytes:
        """Return the 36 bytes in `heads.tbl`; raise InputError for a number that does not fit."""
        ids = (self.context_id, self.head_turn_id, self.head_depth)
        return _sealed(_packed(self, _HEAD, *ids, self.flags, self.created_at_ms))


def _packed(record: object, layout: struct.Struct, *values: object) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error:
        pass
    for field in fields(record):  # type: ignore[arg-type]
        _check_bits(record, field.name)
    raise InputError(
        f"a {type(record).__name__} does not fit its layout", "give whole numbers of 0 and more"
    )


def _check_bits(record: object, name: str) -> None:
    """Raise InputError for a field whose number does not fit its place."""
    wide = name == "codec" and isinstance(record, TurnRecord)
    bits = 32 if wide else _BITS.get(name, 0)
    value = getattr(record, name)
    is_number = isinstance(value, int)
    if bits and not (is_number and 0 <= value < 1 << bits):
        shown = f"a number of {value.bit_length()} bits" if is_number else type(value).__name__
        raise InputError(f"{name} is {shown}", f"give a whole number of 0 to {(1 << bits) - 1}")


def _need_hash(record: object, hash: bytes) -> None:
    if not isinstance(hash, bytes) or len(hash) != 32:
        raise InputError(
            f"a {type(record).__name__} with a hash that is not 32 bytes",
            "give the BLAKE3-256 digest",
        )


def _sealed(data: bytes) -> bytes:
    return data + _CRC.pack(zlib.crc32(data))


def _holds(data: bytes | memoryview) -> bool:
    """Return whether the last four bytes are the checksum of those before them."""
    view = memoryview(data)
    return view[-_CRC.size :] == _CRC.pack(zlib.crc32(view[: -_CRC.size]))


def _lost(number: int, word: str, offset: int, how: str) -> str:
    """Return the sentence about what a reader left out, and why."""
    words, verb = (word, "was") if number == 1 else (f"{word}s", "were")
    return f"{number} {words} after byte {offset} {verb} {how}"


def _disk(path: Path, error: OSError) -> StoreError:
    return refused(error, f"'{os.fspath(path)}': {error.strerror or error}")


class _Source:
    """One file of a pack, read by offsets; what is missing or no file is empty, with a note."""

    def __init__(self, path: Path, note: Note) -> None:
        self.name = os.path.basename(os.fspath(path))
        self.size = 0
        self.path = path
        # Bytes that may yet be read for nothing: a file of false lengths would take hours.
        self.spare = 0
        self._file: BinaryIO | None = None
        self._note = note

    def __enter__(self) -> _Source:
        try:
            self._file = disk.open_regular(os.fspath(self.path), buffering=_CHUNK >> 2)
            self.size = os.fstat(self._file.fileno()).st_size
            self.spare = 4 * self.size + _LENIENT
        except FileNotFoundError:
            self.note("is missing")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise _disk(self.path, error) from None
            self.note("is not a file")
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def note(self, what: str) -> None:
        """Pass a sentence to the caller, after the name of the file."""
        self._note(f"{self.name}: {what}")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines as far as the file went when it was opened, each with its newline."""
        offset = 0
        while offset < self.size and (line := self._line(min(LONGEST_LINE, self.size - offset))):
            yield line
            offset += len(line)

    def _line(self, most: int) -> bytes:
        try:
            return self._file.readline(most) if self._file else b""
        except OSError as error:
            raise _disk(self.path, error) from None

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from an offset on: fewer than `length` where the file ends."""
        if not self._file:
            return b""
        try:
            if self._file.tell() != offset:
                self._file.seek(offset)
            return self._file.read(length)
        except OSError as error:
            raise _disk(self.path, error) from None


class FoundBlob(_Blob):
    """A sound record of a `blobs.pack`; its bytes stay in the file, which must be open."""

    __slots__ = ("_offset", "_source", "codec", "hash", "raw_len", "stored_len")

    def __init__(self, source: _Source, offset: int, head: tuple[Any, ...]) -> None:
        _, _, self.codec, self.raw_len, self.stored_len, self.hash = head  # type: ignore[misc]
        self._source = source
        self._offset = offset + _BLOB.size

    def stored_bytes(self) -> _Extent:
        """Return the stored bytes as a file."""
        return _Extent(self._source, self._offset, self.stored_len)


class _Extent:
    """A part of a file, as a file to be read once."""

    def __init__(self, source: _Source, offset: int, length: int) -> None:
        self._source = source
        self._offset = offset
        self._left = length

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`."""
        data = self._source.read(self._offset, min(size, self._left))
        self._offset += len(data)
        self._left -= len(data)
        return data


def find_blobs(path: Path, note: Note) -> Iterator[tuple[int, FoundBlob]]:
    """Yield offset and record of every sound blob of a `blobs.pack`; `note` what was left out.

    A record is sound when its checksum holds; `raw` checks whether its bytes are those of its hash.
    Memory is bounded: each record is to be used before the next.
    """
    with _Source(path, note) as source:
        offset = 0
        while offset < source.size:
            found = _blob_at(source, offset)
            if isinstance(found, FoundBlob):
                yield offset, found
                offset += _LEAST_BLOB + found.stored_len
                continue
            later = _next_blob(source, offset)
            done = "dropped" if later == source.size else "skipped"
            source.note(_lost(later - offset, "byte", offset, f"{done}: the record there {found}"))
            offset = later


def _blob_at(source: _Source, offset: int) -> FoundBlob | str:
    """Return the record at an offset, or what is wrong with it."""
    head = source.read(offset, _BLOB.size)
    if len(head) < _BLOB.size or offset + _LEAST_BLOB > source.size:
        return "is torn"
    fields_of = _BLOB.unpack(head)
    found = FoundBlob(source, offset, fields_of)
    if fields_of[0] != _MAGIC:
        return "is damaged"
    if fields_of[1] != _VERSION:
        return f"is of version {fields_of[1]}"
    if offset + _LEAST_BLOB + found.stored_len > source.size:
        return "is torn"
    if _holds_up(source, offset, found.stored_len):
        return found
    source.spare -= found.stored_len
    return "is damaged"


def _holds_up(source: _Source, offset: int, stored_len: int) -> bool:
    """Return whether the checksum of a record holds, in bounded memory."""
    end = offset + _BLOB.size + stored_len
    crc = 0
    while offset < end:
        part = source.read(offset, min(_CHUNK, end - offset))
        if not part:
            return False
        crc = zlib.crc32(part, crc)
        offset += len(part)
    return source.read(end, _CRC.size) == _CRC.pack(crc)


def _next_blob(source: _Source, offset: int) -> int:
    """Return where the next sound record after the bad one at `offset` begins, or the file ends.

    The end that the bad one claims is tried first: it may hold whole records of another pack.
    """
    head = source.read(offset, _BLOB.size)
    if len(head) == _BLOB.size and head.startswith(_MARK):
        end: int = offset + _LEAST_BLOB + _BLOB.unpack(head)[4]
        if isinstance(_blob_at(source, end), FoundBlob):
            return end
    for start in _marks(source, offset + 1):
        if source.spare < 0:
            break
        if isinstance(_blob_at(source, start), FoundBlob):
            return start
    return source.size


def _marks(source: _Source, offset: int) -> Iterator[int]:
    """Yield every offset from `offset` on where the magic of a blob stands."""
    # Where each second record is bad, a full chunk for each would take hours.
    while chunk := source.read(offset, 4096):
        at = chunk.find(_MARK)
        while at >= 0:
            yield offset + at
            at = chunk.find(_MARK, at + 1)
        if offset + len(chunk) >= source.size:
            return
        offset += max(1, len(chunk) - len(_MARK) + 1)


def read_turns(path: Path, note: Note) -> Iterator[tuple[int, TurnRecord]]:
    """Yield offset and record of every turn of a `turns.log` up to the first bad one.

    `note` gets a sentence about what was dropped.
    """
    size = _TURN.size + _CRC.size
    with _Source(path, note) as source:
        for offset, data in _slices(source, size):
            if not _holds(data):
                count = (source.size - offset) // size
                source.note(_lost(count, "record", offset, "dropped: the record there is damaged"))
                break
            yield offset, TurnRecord(*_TURN.unpack_from(data))
        _note_torn(source, size)


def read_sealed(path: Path, note: Note, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of every record, up to the first bad one, of a file whose records are alike.

    Each has a layout, and its CRC after it. `note` gets a sentence about what was dropped.
    """
    size = layout.size + _CRC.size
    with _Source(path, note) as source:
        end = source.size // size * size
        for offset, data in _slices(source, size):
            if not _holds(data):
                end = offset
                break
            yield layout.unpack_from(data)
        if end < source.size:
            how = "dropped: the record there is damaged"
            source.note(_lost(source.size - end, "byte", end, how))


def read_heads(path: Path, note: Note) -> Iterator[HeadRecord]:
    """Yield every sound record of a `heads.tbl`, in order; `note` how many are damaged, and where.

    The last sound record of a context counts.
    """
    size = _HEAD.size + _CRC.size
    with _Source(path, note) as source:
        bad = 0
        for offset, data in _slices(source, size):
            if not _holds(data):
                bad += 1
                continue
            _note_skipped(source, offset, bad, size)
            bad = 0
            yield HeadRecord(*_HEAD.unpack_from(data))
        _note_skipped(source, source.size // size * size, bad, size)
        _note_torn(source, size)


def _slices(source: _Source, size: int) -> Iterator[tuple[int, memoryview]]:
    """Yield offset and bytes of each whole record of a file whose records are all of one size."""
    offset = 0
    while offset + size <= source.size:
        chunk = memoryview(source.read(offset, size * 4096))
        for at in range(0, len(chunk) - size + 1, size):
            yield offset + at, chunk[at : at + size]
        if len(chunk) < size:  # cut while it is read
            source.size = offset + len(chunk)
        offset += len(chunk) // size * size


def _note_skipped(source: _Source, end: int, bad: int, size: int) -> None:
    if bad:
        source.note(_lost(bad, "record", end - bad * size, "skipped: damaged"))


def _note_torn(source: _Source, size: int) -> None:
    torn = source.size % size
    if torn:
        source.note(_lost(torn, "byte", source.size - torn, "dropped: the record there is torn"))


def read_meta(path: Path, note: Note) -> Iterator[MetaRecord]:
    """Yield every record of a `turns.meta` up to the first bad one; `note` what was dropped."""
    with _Source(path, note) as source:
        base, chunk, at = 0, b"", 0
        while base + at < source.size:
            found = _meta_at(chunk, at)
            if found == "is torn" and base + len(chunk) < source.size:
                base, at = base + at, 0
                chunk = source.read(base, _CHUNK)
                found = _meta_at(chunk, at)
            if isinstance(found, str):
                offset = base + at
                source.note(
                    _lost(
                        source.size - offset, "byte", offset, f"dropped: the record there {found}"
                    )
                )
                return
            yield found[0]
            at = found[1]


def _meta_at(data: bytes, at: int) -> tuple[MetaRecord, int] | str:
    """Return the record at an offset and where it ends, or what is wrong with it."""
    if len(data) - at < _META_HEAD.size:
        return "is torn"
    turn_id, length = _META_HEAD.unpack_from(data, at)
    text = at + _META_HEAD.size
    end = text + length + _META_TAIL.size
    if length > LONGEST_TYPE:
        return "is damaged"
    if end > len(data):
        return "is torn"
    try:
        type_id = data[text : text + length].decode()
    except UnicodeDecodeError:
        return "is damaged"
    return MetaRecord(turn_id, type_id, *_META_TAIL.unpack_from(data, text + length)), end


def read_lines(path: Path, note: Note) -> Iterator[bytes]:
    """Yield the lines of an `eventq.ndjson`, a long one in pieces of LONGEST_LINE."""
    with _Source(path, note) as source:
        yield from source.lines()


def unproven(folder: Path) -> dict[str, bool]:
    """Return which of `turns.meta` and `eventq.ndjson`, which have no checksums, are not proven.

    True for a file that is not what was exported, False where the writer left no hashes. The loss
    of the last line with its end is not noticed.
    """
    from blake3 import blake3

    hasher, before, sums = blake3(), "", None
    path = os.path.join(folder, BESIDE)
    with _Source(path, _silent) as source:
        for line in source.lines():
            before, sums = hasher.hexdigest(), _sums(line)
            hasher.update(line)
    if not isinstance(sums, dict):
        return {META: False, BESIDE: False}
    found = {META: _hash_of(os.path.join(folder, META)), BESIDE: before}
    return {name: True for name, digest in found.items() if sums.get(name) != digest}


def _sums(line: bytes) -> object:
    """Return the hashes in a line, None when it is another line."""
    if not line.startswith(b'{"sums":') or not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)[SUMS]
    except (ValueError, RecursionError):
        return None


def _hash_of(path: str) -> str:
    from blake3 import blake3

    hasher = blake3()
    with _Source(path, _silent) as source:
        offset = 0
        while part := source.read(offset, min(_CHUNK, source.size - offset)):
            hasher.update(part)
            offset += len(part)
    return hasher.hexdigest()


def _silent(_: str) -> None:
    pass


def index_faults(folder: Path) -> list[str]:
    """Return a sentence for each of the two indexes of a pack that is wrong."""
    found = []
    for index, base in ((BLOBS_INDEX, BLOBS), (TURNS_INDEX, TURNS)):
        if not os.path.isfile(os.path.join(folder, index)):
            found.append(f"{index}: is missing")
        elif (number := _first_difference(folder, index)) is not None:
            found.append(f"{index}: disagrees with {base} from entry {number} on, counted from 0")
    return found


def _first_difference(folder: Path, index: str) -> int | None:
    """Return the number of the first wrong entry of an index, or None."""
    number = offset = 0
    with _Source(os.path.join(folder, index), _silent) as source:
        for entry in _entries(folder, index):
            if source.read(offset, len(entry)) != entry:
                return number
            number, offset = number + 1, offset + len(entry)
        return None if offset == source.size else number


def _entries(folder: Path, index: str) -> Iterator[bytes]:
    """Yield the entries that belong into an index, made from the file that it indexes."""
    if index == BLOBS_INDEX:
        for offset, blob in find_blobs(os.path.join(folder, BLOBS), _silent):
            yield blob.entry(offset)
    else:
        for offset, turn in read_turns(os.path.join(folder, TURNS), _silent):
            yield turn.entry(offset)


def rebuild_indexes(folder: Path) -> None:
    """Rebuild both indexes of a pack, each in the order of the file that it indexes.

    Raises LogicError for a folder that holds no pack, or that somebody writes; DiskError.
    """
    if not all(os.path.isfile(os.path.join(folder, name)) for name in (BLOBS, TURNS)):
        raise LogicError(
            f"'{os.fspath(folder)}' holds no {BLOBS} and {TURNS}", "give the folder of a pack"
        )
    with _Target(folder) as target:
        for index in (BLOBS_INDEX, TURNS_INDEX):
            target.begin(index)
            for entry in _entries(folder, index):
                target.write(index, entry)


class PackWriter:
    """Writes a pack: `with PackWriter(folder) as pack:`, then records in any order.

    The folder is made when there is none. Its files get their names at the end of the block, when
    all is on the disk; after an error none is left. What a killed writer left is removed. Raises
    LogicError for a folder that holds a pack, or that somebody writes; DiskError.
    """

    def __init__(self, folder: Path) -> None:
        from blake3 import blake3

        self._target = _FreshTarget(folder)
        self._offsets = {BLOBS: 0, TURNS: 0}
        self._sums = {META: blake3(), BESIDE: blake3()}

    def __enter__(self) -> PackWriter:
        self._target.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None and self._target.is_open():
            sums = {name: found.hexdigest() for name, found in self._sums.items()}
            self._target.write(
                BESIDE, json.dumps({SUMS: sums}, separators=(",", ":")).encode() + b"\n"
            )
        self._target.__exit__(kind, error, None)

    def blob(self, record: BlobRecord) -> None:
        """Add a blob; raise InputError for what a reader would refuse."""
        self._add(BLOBS, BLOBS_INDEX, record.entry, record.parts())

    def turn(self, record: TurnRecord) -> None:
        """Add a turn; raise InputError for a number that does not fit."""
        self._add(TURNS, TURNS_INDEX, record.entry, (record.pack(),))

    def meta(self, record: MetaRecord) -> None:
        """Add what a payload is; raise InputError for what a reader would refuse."""
        self._summed(META, record.pack())

    def head(self, record: HeadRecord) -> None:
        """Add where a context stands; raise InputError for a number that does not fit."""
        self._target.write(HEADS, record.pack())

    def beside(self, line: bytes) -> None:
        """Add a line to `eventq.ndjson`, for what the other files have no room for."""
        self._summed(BESIDE, line)

    def _summed(self, name: str, data: bytes) -> None:
        self._target.write(name, data)
        self._sums[name].update(data)

    def artifact(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file of the folder `artifacts`."""
        self._target.save(name, pieces)

    def _add(
        self, name: str, index: str, entry: Callable[[int], bytes], parts: tuple[bytes, ...]
    ) -> None:
        offset = self._offsets[name]
        for part in parts:
            self._target.write(name, part)
            self._offsets[name] += len(part)
        self._target.write(index, entry(offset))


class _Target:
    """Files of one folder, written under its lock and other names; all get theirs at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._files: dict[str, BinaryIO] = {}
        self._failed: StoreError | None = None
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            self._take()
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError):
                raise _disk(self._folder, error) from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as error:
            raise _disk(self._folder, error) from None
        finally:
            self._abandon()

    def _take(self) -> None:
        """Open and lock the folder; two writers would rename over each other's files."""
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lock_whole(self._fd, wait=False)
        except BlockingIOError:
            raise LogicError(
                f"somebody writes into '{self._folder}' already", "wait, or take another folder"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _draft(self, name: str) -> str:
        """Return where a file is until it gets its name."""
        return self._path(name) + ".part"

    def begin(self, name: str) -> None:
        """Begin a file; what a writer that was killed left under its other name goes."""
        try:
            _remove_file(self._draft(name))
            fd = os.open(
                self._draft(name),
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        except OSError as error:
            raise _disk(self._path(name), error) from None
        file = open(fd, "wb", buffering=_CHUNK >> 2)  # noqa: SIM115 (closed by _abandon)
        self._files[name] = file

    def is_open(self) -> bool:
        """Return whether what is written may still be whole."""
        return bool(self._files) and self._failed is None

    def write(self, name: str, data: bytes) -> None:
        """Write to a file that was begun; raise DiskError when the system takes no more."""
        if name not in self._files:
            raise ClosedError(
                "the pack is not being written", "write inside the 'with' block of its PackWriter"
            )
        try:
            self._files[name].write(data)
        except OSError as error:
            # For good: the state of the buffer is unknown.
            self._failed = _disk(self._path(name), error)
            raise self._failed from None

    def _finish(self) -> None:
        """Sync all files, then rename them in the order of FILES, the last one after a sync."""
        if self._failed:
            raise self._failed
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self._name_all()

    def _name_all(self) -> None:
        for name in self._files:
            self._name(name)
        os.fsync(self._fd)

    def _name(self, name: str) -> None:
        os.rename(self._draft(name), self._path(name))

    def _abandon(self) -> None:
        """Close everything; after an error, remove what was written."""
        for file in self._files.values():
            try:
                file.close()
            except OSError:
                pass
        self._clean()
        self._files.clear()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _clean(self) -> None:
        for name in self._files:
            _remove(os.unlink, self._draft(name))


class _FreshTarget(_Target):
    """A whole pack, in a folder that holds none yet, or what a killed writer left of one.

    It is made in a hidden folder inside: that is on the same disk, and the folder may hold files of
    others. The hidden folder, which is eventq's alone, also lists which files got their names.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._made = False
        self._owned = False  # the hidden folder is this one's
        self._named: list[str] = []

    def _take(self) -> None:
        if not os.path.isdir(self._folder):
            os.mkdir(self._folder, 0o700)
            self._made = True
        super()._take()
        self._remove_unfinished()
        for name in FILES:
            if os.path.lexists(self._path(name)):
                raise LogicError(
                    f"'{self._folder}' holds a pack already: {name}", "choose a folder without one"
                )
        if os.path.lexists(self._path(ARTIFACTS)):
            raise LogicError(
                f"'{self._path(ARTIFACTS)}' is there already", "choose a folder without one"
            )
        os.mkdir(self._path(UNFINISHED), 0o700)
        self._owned = True
        for name in FILES:
            self.begin(name)

    def _draft(self, name: str) -> str:
        return os.path.join(self._folder, UNFINISHED, name)

    def _remove_unfinished(self) -> None:
        """Remove what a killed writer left: what it had named, if unchanged, then the others."""
        if not os.path.lexists(self._path(UNFINISHED)):
            return
        if os.path.islink(self._path(UNFINISHED)) or not os.path.isdir(self._path(UNFINISHED)):
            raise LogicError(f"'{self._path(UNFINISHED)}' is no folder of an export", "remove it")
        for name, known in _named_by(self._draft(_NAMES)).items():
            if _identity(self._path(name)) == known:
                _remove_tree(self._path(name))
        _remove_tree(self._path(UNFINISHED))

    def save(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file of the folder of artifacts."""
        folder = self._draft(ARTIFACTS)
        try:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
            disk.save(os.path.join(folder, name), pieces)
        except OSError as error:
            raise _disk(self._path(ARTIFACTS), error) from None

    def _name_all(self) -> None:
        *first, last = self._files
        if os.path.isdir(self._draft(ARTIFACTS)):
            first.append(ARTIFACTS)
        known = {name: _identity(self._draft(name)) for name in (*first, last)}
        disk.save(self._draft(_NAMES), [json.dumps(known).encode()])
        for name in first:
            self._name(name)
        os.fsync(self._fd)
        self._name(last)
        os.fsync(self._fd)
        os.unlink(self._draft(_NAMES))  # from here on it is a pack like any other
        os.rmdir(self._path(UNFINISHED))
        self._owned = False
        os.fsync(self._fd)
        if self._made:
            disk.sync_folder(os.path.dirname(os.path.abspath(self._folder)))
        self._named.clear()

    def _name(self, name: str) -> None:
        if os.path.lexists(self._path(name)):
            raise LogicError(
                f"somebody else put '{self._path(name)}' there meanwhile", "choose another folder"
            )
        self._named.append(name)
        super()._name(name)

    def _clean(self) -> None:
        for name in self._named:
            _remove(_remove_tree, self._path(name))
        if self._owned:
            _remove(_remove_tree, self._path(UNFINISHED))
        if self._made:
            _remove(os.rmdir, self._folder)  # refused once a pack is in it


def _identity(path: str) -> list[int] | None:
    """Return what identifies a file, or a folder of files, in its present state."""
    try:
        found = os.lstat(path)
        names = os.listdir(path) if stat.S_ISDIR(found.st_mode) else ()
        inside = [os.lstat(os.path.join(path, name)) for name in names]
    except FileNotFoundError:
        return None
    return [found.st_ino, max(one.st_mtime_ns for one in (found, *inside))]


def _named_by(path: str) -> dict[str, object]:
    """Return the files that a killed writer was about to name; none where it was not that far."""
    try:
        with disk.open_regular(path, follow=False) as file:
            known = json.loads(file.read(LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return {}
    known = known if isinstance(known, dict) else {}
    return {name: known[name] for name in (*FILES, ARTIFACTS) if isinstance(known.get(name), list)}


def is_unfinished(folder: Path) -> bool:
    """Return whether a writer is not done, or was killed before all files had their names."""
    return os.path.lexists(os.path.join(folder, UNFINISHED, _NAMES))


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """Remove a file, or a folder with all in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.unlink(path)


def _remove(how: Callable[[str], None], path: str) -> None:
    try:
        how(path)
    except OSError:
        pass
