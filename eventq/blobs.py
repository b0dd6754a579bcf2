"""Content-addressed bytes: put, get, verify, and what refers to what.

A blob is named by the BLAKE3-256 of exactly its bytes, and stored once. It is kept as zstd where that is smaller. Bytes
of 64 KiB and more that compress are cut where their content decides (see `eventq.chunking`), and so share what they
have in common with others; whatever is longer than a MiB is kept in parts, so it never has to be in memory whole.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import OrderedDict
from io import BytesIO

import zstandard
from blake3 import blake3

from eventq import system
from eventq.errors import BusyError, DamagedBlobError, InputError, TooLargeError, UnknownBlobError
from eventq.event import REF as PREFIX
from eventq.event import check_name
from eventq.records import Blob
from eventq.storage.sqlite.blobs import NONE, PARTS, ZSTD, BlobTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from eventq.storage.sqlite.database import Database

    Bytes = bytes | bytearray | memoryview
    Name = str | bytes
    Row = tuple[int, int, int, int, int]  # as `BlobTable.find` gives it
    Packed = tuple[bytes, Bytes, int, Bytes]

LARGEST = (1 << 32) - 1  # bytes of a blob: the interchange format has no room for more
CUT_BYTES = 64 << 10  # from here on what compresses is cut by its content
PART_BYTES = 1 << 20  # the largest part, and the most that is compressed ahead of a transaction
CACHE_BYTES = 8 << 20
_LEVEL = 1  # of zstd: 3 saves 3 % more and takes a quarter longer
_CODECS = ("none", "zstd", "parts")
_HEX = frozenset("0123456789abcdef")


def parse_ref(text: object) -> bytes | None:
    """Give the 32 bytes that a ref or a bare hash spells, None for anything else; only 64 lower-case digits do."""
    if not isinstance(text, str):
        return None
    digits = text.removeprefix(PREFIX)
    return bytes.fromhex(digits) if len(digits) == 64 and _HEX.issuperset(digits) else None


def digest_of(name: Name) -> bytes:
    """Give the 32 bytes that name a blob: a ref, 64 hex digits, or the bytes themselves; raise InputError."""
    digest = name if isinstance(name, bytes) and len(name) == 32 else parse_ref(name)
    if digest is None:
        raise InputError(f"{name!r} names no blob", f"give {PREFIX}<64 lower-case hex digits>, or the digits alone")
    return digest


class Zip:
    """Compression as it is stored."""

    def __init__(self) -> None:
        """Make both directions once: that costs more than ten kilobytes through them."""
        self._lock = allocate_lock()  # neither is for two threads at once
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def pack(self, raw: Bytes) -> tuple[int, Bytes]:
        """Give the codec and the bytes to keep: raw where compression does not make them fewer."""
        with self._lock:
            stored = self._compress(raw)
        return (ZSTD, stored) if len(stored) < len(raw) else (NONE, raw)

    def unpack(self, digest: bytes, raw_len: int, codec: int, stored: object) -> bytes:
        """Give the bytes of a blob that is not in parts; raise DamagedBlobError when they are not what they were."""
        ref = PREFIX + digest.hex()
        if not isinstance(stored, bytes):
            raise DamagedBlobError(ref, "its bytes are not there")
        if raw_len > PART_BYTES:
            raise DamagedBlobError(ref, f"it says that it has {raw_len} bytes in one piece")
        if codec == ZSTD:
            try:
                if zstandard.frame_content_size(stored) != raw_len:  # or a lie would have much memory taken
                    raise DamagedBlobError(ref)
                with self._lock:
                    stored = self._decompress(stored)
            except zstandard.ZstdError as error:
                raise DamagedBlobError(ref, f"its stored bytes cannot be decompressed ({error})") from error
        if len(stored) != raw_len or blake3(stored).digest() != digest:
            raise DamagedBlobError(ref)
        return stored


class Cache:
    """The bytes that were read last, checked, within a number of bytes."""

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, digest: bytes) -> bytes | None:
        """Give the bytes, if they are held."""
        found = self._found.get(digest)
        if found is not None:
            self._found.move_to_end(digest)
        return found

    def put(self, digest: bytes, data: bytes) -> None:
        """Hold the bytes, and let go of those that were asked for least lately; what is large is not held."""
        if len(data) > self._limit // 16 or digest in self._found:
            return
        self._found[digest] = data
        self._size += len(data)
        while self._size > self._limit:
            self._size -= len(self._found.popitem(last=False)[1])


class Prepared:
    """Bytes on their way in, hashed; what of them is new was compressed, or stored in parts, ahead of the transaction.

    `data` is None when they came as a stream; `packed` holds hash, raw bytes, codec and bytes to keep of each part or
    of the whole; `parts` the hashes of parts that are stored.
    """

    __slots__ = ("data", "digest", "packed", "parts", "size")

    def __init__(self, digest: bytes, size: int, data: bytes | memoryview | None = None) -> None:
        self.digest = digest
        self.size = size
        self.data = data
        self.packed: list[Packed] = []
        self.parts: list[bytes] = []


class Blobs:
    """The blobs of one thread."""

    def __init__(self, db: Database) -> None:
        """Use a store; nothing is read yet."""
        self._db = db
        self._table = BlobTable(db)
        self._zip = Zip()
        self._cache = Cache(system.env_number("EVENTQ_BLOB_CACHE", CACHE_BYTES))

    # --- putting --------------------------------------------------------------------------------------------------

    def put(
        self,
        data: Bytes | BinaryIO,
        *,
        refs: Iterable[Name] = (),
        expect_hash: Name | None = None,
        expect_size: int | None = None,
    ) -> Blob:
        """Store bytes, or all that a binary file gives, durably, and say by what name; equal bytes are stored once.

        `refs` are the blobs that these bytes name: they are kept as long as this one is. Bytes that are not those of
        `expect_hash` and `expect_size` are refused. Putting the bytes of a damaged blob again heals it. Until something
        refers to it, a blob is safe from a collection for the time of grace. Raises InputError, UnknownBlobError,
        TooLargeError.
        """
        self._db.check_writable()
        named = digests_of(refs)
        ready = self.prepare(data, expect_hash, expect_size)
        with self._db.write():
            blob_id, new = self.hold(ready)
            if not new:
                self._table.touch(blob_id, system.milliseconds())
            self.add_refs(blob_id, named)
            row = self._table.find(ready.digest)
        return _record(ready.digest, row, new=new)

    def prepare(
        self,
        data: object,
        expect_hash: Name | None = None,
        expect_size: int | None = None,
        *,
        what: str = "blob",
        new: bool = False,
    ) -> Prepared:
        """Hash bytes or a file, and compress or store in parts what is new: all that can be done ahead of `hold`.

        `new` says that it can hardly be there already, so that nobody looks.
        """
        wanted = None if expect_hash is None else digest_of(expect_hash)
        if hasattr(data, "read"):
            file: BinaryIO = data  # type: ignore[assignment]  # whatever else it has
            data = head = _read(file, PART_BYTES + 1)
            if len(head) > PART_BYTES:
                return self._prepare_stream(head, file, wanted, expect_size)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError(f"a {what} is bytes, not {type(data).__name__}", "encode it, or give a binary file")
        view = data if isinstance(data, bytes) else flat(data)
        ready = Prepared(_digest(view, wanted, expect_size), len(view), view)
        if new or self._table.find(ready.digest) is None:
            self._prepare_new(ready, view)
        return ready

    def _prepare_new(self, ready: Prepared, view: bytes | memoryview) -> None:
        cuts = _cuts(view)
        if cuts is None:
            ready.packed = [(ready.digest, view, *self._zip.pack(view))]
        elif len(view) <= PART_BYTES:
            ready.packed = [*self._pack(cuts)]
        else:
            ready.parts = self._stage(cuts)

    def _prepare_stream(
        self, head: bytes, file: BinaryIO, expect_hash: bytes | None, expect_size: int | None
    ) -> Prepared:
        """Store a stream in parts while it is read, each part a blob that waits to be named: memory stays bounded."""
        hasher = blake3()
        size = 0

        def blocks() -> Iterator[bytes]:
            nonlocal size
            block = head
            while block:
                hasher.update(block)
                size += len(block)
                _check_size(size, None if expect_size is None or size <= expect_size else expect_size)
                yield block
                block = _read(file, PART_BYTES)

        parts = self._stage(_cuts_of_stream(head, blocks()))
        _check_size(size, expect_size)
        ready = Prepared(_check_hash(hasher.digest(), expect_hash), size)
        ready.parts = parts
        return ready

    def _pack(self, cuts: Iterable[Bytes]) -> Iterator[Packed]:
        for cut in cuts:
            yield (blake3(cut).digest(), cut, *self._zip.pack(cut))

    def _stage(self, cuts: Iterable[Bytes]) -> list[bytes]:
        """Store parts, about a MiB a transaction, and give their hashes."""
        digests = []
        for group in _groups(cuts):
            packed = [*self._pack(group)]
            with self._db.write():
                for one in packed:
                    self._hold_part(*one)
            digests += [one[0] for one in packed]
        return digests

    def hold(self, ready: Prepared) -> tuple[int, bool]:
        """Store what was prepared, inside `write`, if it is not there whole; give its blob_id and whether it is new."""
        if len(ready.packed) == 1:  # what most are: one piece that was not there a moment ago
            blob_id = self._add(*ready.packed[0], part=False)
            if blob_id is not None:
                return blob_id, True
        row = self._table.find(ready.digest)
        if row is not None and self._is_whole(row, ready):
            if row[4]:
                self._table.touch(row[0], system.milliseconds())
            return row[0], bool(row[4])
        if not (ready.packed or ready.parts) and ready.data is not None:  # it was there, and is not or is damaged
            self._prepare_new(ready, ready.data)
        if len(ready.packed) == 1:
            return self._write(row, *ready.packed[0], part=False), row is None
        parts = [self._hold_part(*one) for one in ready.packed] or self._staged(ready)
        return self._write_list(row, ready, parts), row is None

    def _staged(self, ready: Prepared) -> list[int]:
        """Give the blob_ids of the parts that were stored ahead."""
        found = [self._table.find(digest) for digest in ready.parts]
        if None in found:  # collected without any grace
            if ready.data is None:
                raise BusyError("a collection deleted parts of the stream that was being stored", "give it again")
            return [self._hold_part(*one) for one in self._pack(_cuts(ready.data) or [ready.data])]
        return [row[0] for row in found if row]

    def _is_whole(self, row: Row, ready: Prepared) -> bool:
        """Say whether the stored bytes are sound: compared with what was given, or hashed after a stream."""
        blob_id, raw_len, _, codec, _ = row
        if raw_len != ready.size:
            return False
        try:
            if ready.data is None:
                _check_pieces(self._pieces(blob_id, ready.digest, raw_len, codec), ready.digest, raw_len)
                return True
            at = 0
            for piece in self._pieces(blob_id, ready.digest, raw_len, codec):
                if ready.data[at : at + len(piece)] != piece:
                    return False
                at += len(piece)
        except DamagedBlobError:
            return False
        return at == ready.size

    def _hold_part(self, digest: bytes, raw: Bytes, codec: int, stored: Bytes) -> int:
        row = self._table.find(digest)
        if row is not None and self._is_whole(row, Prepared(digest, len(raw), flat(raw))):
            self._table.renew(row[0], system.milliseconds())  # a collection must not take it before it is named
            return row[0]
        return self._write(row, digest, raw, codec, stored, part=True)

    def _write(self, row: Row | None, digest: bytes, raw: Bytes, codec: int, stored: Bytes, *, part: bool) -> int:
        """Store a blob that is one piece and is not there, or whose row is that of a damaged one."""
        if row is not None:
            self._table.mend(row[0], len(raw), len(stored), codec, part=part and bool(row[4]))
            self._table.set_bytes(row[0], stored)
            return row[0]
        blob_id = self._add(digest, raw, codec, stored, part=part)
        assert blob_id is not None  # it was looked for in the same transaction
        return blob_id

    def _add(self, digest: bytes, raw: Bytes, codec: int, stored: Bytes, *, part: bool) -> int | None:
        now = system.milliseconds()
        blob_id = self._table.add(digest, len(raw), len(stored), codec, part=part, now=now)
        if blob_id is not None:
            self._table.set_bytes(blob_id, stored)
        return blob_id

    def _write_list(self, row: Row | None, ready: Prepared, parts: list[int]) -> int:
        """Store a blob that is a list of parts."""
        stored_len = sum(self._table.stored_len(part) for part in parts)
        if row is not None:
            self._table.mend(row[0], ready.size, stored_len, PARTS, part=False)
        else:
            now = system.milliseconds()
            self._table.add(ready.digest, ready.size, stored_len, PARTS, part=False, now=now)
        blob_id = (row or self._known(ready.digest))[0]
        self._table.set_parts(blob_id, parts)
        return blob_id

    def add_refs(self, blob_id: int, named: list[bytes]) -> None:
        """Note what a blob refers to, inside `write`; raise UnknownBlobError for what is not stored."""
        if not named or self._table.add_refs(blob_id, named) == len(set(named)):
            return
        found = {row[1] for row in self._table.find_many(named)}
        for digest in named:
            if digest not in found:
                raise UnknownBlobError(PREFIX + digest.hex())

    # --- getting --------------------------------------------------------------------------------------------------

    def get(self, name: Name) -> bytes | None:
        """Give the bytes of a blob, or None when there is none of that name; DamagedBlobError rather than bad bytes."""
        digest = digest_of(name)
        row = self._visible(digest)
        return None if row is None else self.load([(row[0], digest, row[1], row[3])])[digest]

    def get_many(self, digests: list[bytes]) -> dict[bytes, bytes]:
        """Give the bytes of those of some blobs that are stored, by hash."""
        return self.load(self._table.find_many(digests))

    def stream(self, name: Name) -> Iterator[bytes]:
        """Give the bytes of a blob in pieces of at most a MiB; all of them are checked before the first is given.

        Raises UnknownBlobError, DamagedBlobError.
        """
        digest = digest_of(name)
        blob_id, raw_len, _, codec, _ = self._known(digest)
        if codec != PARTS:
            return iter([self.load([(blob_id, digest, raw_len, codec)])[digest]])
        parts = self._table.parts(blob_id)  # these very ones are given: a collection may be under way
        _check_pieces(self._parts(parts, digest), digest, raw_len)
        return self._parts(parts, digest)

    def load(self, wanted: Iterable[tuple[int, bytes, int, int]]) -> dict[bytes, bytes]:
        """Give the bytes of blobs given as blob_id, hash, raw_len and codec, by hash; each is checked once and held."""
        found: dict[bytes, bytes] = {}
        missing = {}
        with self._db.lock:
            for one in wanted:
                held = self._cache.get(one[1])
                if held is None:
                    missing[one[0]] = one
                else:
                    found[one[1]] = held
            stored = dict(self._table.bytes_of_many([one[0] for one in missing.values() if one[3] != PARTS]))
            for blob_id, digest, raw_len, codec in missing.values():
                if codec == PARTS:
                    found[digest] = self._join(blob_id, digest, raw_len)
                else:
                    found[digest] = self._zip.unpack(digest, raw_len, codec, stored.get(blob_id))
                self._cache.put(digest, found[digest])
        return found

    def kept(self, blob_id: int, digest: bytes, raw_len: int, codec: int) -> tuple[int, int, bytes]:
        """Give codec, raw_len and kept bytes of a blob as one piece, checked; one in parts is compressed whole."""
        if codec == PARTS:
            found, packed = self._zip.pack(self._join(blob_id, digest, raw_len))
            return found, raw_len, bytes(packed)
        stored = self._table.bytes_of(blob_id)
        self._zip.unpack(digest, raw_len, codec, stored)
        return codec, raw_len, stored or b""

    def id_and_size(self, digest: bytes) -> tuple[int, int]:
        """Return the row of a blob, and the number of its bytes. Raises UnknownBlobError."""
        return self._known(digest)[:2]

    def blob_id(self, digest: bytes) -> int:
        """Give the row of a blob. Raises UnknownBlobError."""
        return self._known(digest)[0]

    def pins(self) -> list[tuple[str, str]]:
        """Give owner and hash of every pin, sorted."""
        return [(name, digest.hex()) for name, digest in self._table.pins()]

    def _join(self, blob_id: int, digest: bytes, raw_len: int) -> bytes:
        whole = BytesIO()
        for piece in self._pieces(blob_id, digest, raw_len, PARTS):
            whole.write(piece)
        data = whole.getvalue()
        if len(data) != raw_len or blake3(data).digest() != digest:
            raise DamagedBlobError(PREFIX + digest.hex())
        return data

    def _pieces(self, blob_id: int, digest: bytes, raw_len: int, codec: int) -> Iterator[bytes]:
        """Give the bytes of a blob piece by piece, each checked against the hash of the piece."""
        if codec == PARTS:
            yield from self._parts(self._table.parts(blob_id), digest)
        else:
            yield self._zip.unpack(digest, raw_len, codec, self._table.bytes_of(blob_id))

    def _parts(self, parts: list[int], digest: bytes) -> Iterator[bytes]:
        for part_id in parts:
            row = self._table.row(part_id)
            if row is None or row[2] == PARTS:
                raise DamagedBlobError(PREFIX + digest.hex(), "one of its parts is not there")
            try:
                yield self._zip.unpack(*row, self._table.bytes_of(part_id))
            except DamagedBlobError as error:
                raise DamagedBlobError(PREFIX + digest.hex(), f"its part {error.what}") from error

    def _visible(self, digest: bytes) -> Row | None:
        row = self._table.find(digest)
        return None if row is None or row[4] else row

    def _known(self, digest: bytes) -> Row:
        row = self._visible(digest)
        if row is None:
            raise UnknownBlobError(PREFIX + digest.hex())
        return row

    def has(self, name: Name) -> bool:
        """Say whether there is a blob of that name."""
        return self._visible(digest_of(name)) is not None

    def stat(self, name: Name) -> Blob:
        """Give a blob's sizes without its bytes. Raises UnknownBlobError."""
        digest = digest_of(name)
        return _record(digest, self._known(digest))

    def __iter__(self) -> Iterator[Blob]:
        """Give all blobs in the order of their hashes; what is put meanwhile may or may not be among them."""
        after = b""
        while rows := self._table.page(after):
            for digest, *row in rows:
                yield _record(digest, tuple(row))
            after = rows[-1][0]

    def __len__(self) -> int:
        """Give the number of blobs."""
        return self._table.count()

    # --- what holds what ------------------------------------------------------------------------------------------

    def refs(self, name: Name) -> list[str]:
        """Give the refs of what a blob names, as it was told when the blob was put. Raises UnknownBlobError."""
        return [PREFIX + digest.hex() for digest in self._table.refs(self._known(digest_of(name))[0])]

    def holders(self, name: Name, limit: int = 100) -> list[str]:
        """Say what keeps a blob from being collected: `turn 5`, `patch 1`, `blob <hash>`, `event 3`, `pin NAME`.

        Or `output <id>`, or `root 5` for that of turn 5. At most `limit` of a kind; an empty list is what a collection
        deletes after the time of grace, and so is a turn that no context leads to. Raises UnknownBlobError.
        """
        rows = self._table.holders(self._known(digest_of(name))[0], limit)
        return [f"{kind} {what}" for kind, what in rows]

    def pin(self, name: Name, owner: str) -> None:
        """Keep a blob until it is unpinned by the same owner. Raises UnknownBlobError."""
        check_name(owner, "owner")
        with self._db.write():
            self._table.pin(owner, self._known(digest_of(name))[0], system.milliseconds())

    def unpin(self, name: Name, owner: str) -> bool:
        """Keep a blob no more for an owner; give False when it was not pinned by that one. Raises UnknownBlobError."""
        check_name(owner, "owner")
        with self._db.write():
            return self._table.unpin(owner, self._known(digest_of(name))[0])

    # --- looking for damage ---------------------------------------------------------------------------------------

    def verify(self, name: Name | None = None) -> list[str]:
        """Read a blob, or all of them, from the disk, and say of each damaged one what is wrong, in a sentence."""
        if name is None:
            return list(self.faults())
        digest = digest_of(name)
        blob_id, raw_len, _, codec, _ = self._known(digest)
        return [error.what for error in self._damage(blob_id, digest, raw_len, codec)]

    def faults(self) -> Iterator[str]:
        """Say of each damaged blob what is wrong, in a sentence."""
        yield from self._table.faults()
        for rows in self._table.pages_by_id():
            for blob_id, digest, raw_len, stored_len, codec, stored in rows:
                if codec == PARTS:
                    faults = [error.what for error in self._damage(blob_id, digest, raw_len, codec)]
                    kept = stored_len if faults else self._table.stored_len_of_parts(blob_id)
                else:
                    faults = [*self._damage_of_piece(digest, raw_len, codec, stored)]
                    kept = stored_len if faults else len(stored)
                yield from faults
                if kept != stored_len:
                    ref = PREFIX + digest.hex()
                    yield f"{ref} is damaged: it is kept in {kept} bytes, and its row says {stored_len}"

    def _damage_of_piece(self, digest: bytes, raw_len: int, codec: int, stored: object) -> Iterator[str]:
        try:
            self._zip.unpack(digest, raw_len, codec, stored)
        except DamagedBlobError as error:
            yield error.what

    def _damage(self, blob_id: int, digest: bytes, raw_len: int, codec: int) -> Iterator[DamagedBlobError]:
        try:
            _check_pieces(self._pieces(blob_id, digest, raw_len, codec), digest, raw_len)
        except DamagedBlobError as error:
            yield error


def digests_of(refs: Iterable[Name]) -> list[bytes]:
    """Give the hashes that refs spell; raise InputError for what is none."""
    if isinstance(refs, (str, bytes)) or not hasattr(refs, "__iter__"):
        raise InputError("refs are several names", "give a list of refs")
    return [digest_of(ref) for ref in refs]


def _record(digest: bytes, row: Row | tuple[int, ...] | None, *, new: bool = False) -> Blob:
    assert row is not None
    return Blob(digest.hex(), row[1], row[2], _CODECS[row[3]], new)


def flat(data: Bytes) -> memoryview:
    """Give bytes of any shape as a flat row of bytes, without a copy where that can be."""
    view = memoryview(data)
    if not view.nbytes:  # a shape with a zero in it cannot be cast
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))


def _check_pieces(pieces: Iterable[bytes], digest: bytes, raw_len: int) -> None:
    """Raise DamagedBlobError unless pieces make up the bytes that they should."""
    hasher = blake3()
    size = 0
    for piece in pieces:
        hasher.update(piece)
        size += len(piece)
    if size != raw_len or hasher.digest() != digest:
        raise DamagedBlobError(PREFIX + digest.hex())


def _read(file: BinaryIO, size: int) -> bytes:
    """Give the next `size` bytes of a file, fewer only at its end; pipes give less at once."""
    blocks = []
    while size > 0:
        block = file.read(size)
        if not isinstance(block, bytes):
            raise InputError(f"the file gives {type(block).__name__}, not bytes", "open it in binary mode")
        if not block:
            break
        blocks.append(block)
        size -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _digest(view: bytes | memoryview, expect_hash: bytes | None, expect_size: int | None) -> bytes:
    _check_size(len(view), expect_size)
    return _check_hash(blake3(view).digest(), expect_hash)


def _check_size(size: int, expected: int | None) -> None:
    if size > LARGEST:
        raise TooLargeError(size, LARGEST, "blob", "store it in several blobs")
    if expected is not None and size != expected:
        raise InputError(f"the payload has {size} bytes, not the {expected} that were declared", "send it again")


def _check_hash(digest: bytes, expected: bytes | None) -> bytes:
    if expected is not None and digest != expected:
        raise InputError(
            f"the payload's hash is {digest.hex()}, not the {expected.hex()} that was declared", "send it again"
        )
    return digest


def _cuts(view: bytes | memoryview) -> Iterable[Bytes] | None:
    """Give the parts that bytes are stored in, None for one piece."""
    if len(view) < CUT_BYTES:
        return None
    from eventq import chunking

    if chunking.pays(view[:PART_BYTES]):
        return chunking.cut(view)
    flat = memoryview(view)
    return None if len(view) <= PART_BYTES else (flat[n : n + PART_BYTES] for n in range(0, len(view), PART_BYTES))


def _cuts_of_stream(head: bytes, blocks: Iterable[bytes]) -> Iterator[Bytes]:
    """Give the parts that a stream is stored in; `head` is how it begins."""
    from eventq import chunking

    if not chunking.pays(head[:PART_BYTES]):
        yield from _even(blocks)
        return
    chunker = chunking.Chunker()
    for block in blocks:
        yield from chunker.feed(block)
    yield from chunker.end()


def _even(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Give the bytes of blocks of whatever size in parts of PART_BYTES, the last one shorter."""
    left = b""
    for block in blocks:
        left += block
        while len(left) >= PART_BYTES:
            yield left[:PART_BYTES]
            left = left[PART_BYTES:]
    if left:
        yield left


def _groups(cuts: Iterable[Bytes]) -> Iterator[list[Bytes]]:
    """Give parts in groups of about a MiB."""
    group: list[Bytes] = []
    size = 0
    for cut in cuts:
        group.append(cut)
        size += len(cut)
        if size >= PART_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
