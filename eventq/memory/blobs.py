"""Content-addressed bytes: put, get, verify, refs and pins.

A blob is named by the BLAKE3-256 of its bytes and stored once, compressed with zstd if that is
smaller. Compressible bytes of 64 KiB and more are cut where their content decides (see
`chunking`), so that similar blobs share parts. Blobs of more than a MiB are always stored in parts,
so that they need not be in memory whole.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import OrderedDict
from io import BytesIO
from itertools import islice

from blake3 import blake3

from eventq.errors import BusyError, DamagedBlobError, InputError, TooLargeError, UnknownBlobError
from eventq.records.checks import REF as PREFIX
from eventq.records.checks import SHA256, check_name, refs_in
from eventq.records.turn import Blob
from eventq.store.rules import erased_blob as erased
from eventq.store.turn_rows import GONE, NONE, PARTS, ZSTD, GoneError, Piece, PreparedBlob
from eventq.system import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType
    from typing import BinaryIO, Protocol

    from eventq.store.engine import Engine
    from eventq.store.turn_rows import BlobRow
    from eventq.system import zstd

    Bytes = bytes | bytearray | memoryview
    Name = str | bytes
    Links = tuple[tuple[bytes, ...], tuple[bytes, ...]]  # refs, and mentions

    class Stored(Protocol):
        """A row that names a blob's bytes: a `BlobRow`, or a `TurnRow` that is no tombstone."""

        @property
        def digest(self) -> bytes | None:
            """The hash of the bytes."""

        @property
        def size(self) -> int:
            """Their number."""

        @property
        def codec(self) -> int:
            """The way they are stored."""


LARGEST = (1 << 32) - 1  # bytes of a blob: the interchange format has no room for more
CUT_BYTES = 64 << 10  # from this size on, compressible bytes are cut by their content
PART_BYTES = 1 << 20  # the largest part, and the most that is compressed ahead of a transaction
CACHE_BYTES = 8 << 20
_SCAN_BYTES = 4 << 20  # of pieces that are in memory at once while all are verified
_PAGE = 500
_LEVEL = 1  # of zstd: 3 saves 3 % more and takes a quarter longer
_CODECS = ("none", "zstd", "parts", "erased")
_HEX = frozenset("0123456789abcdef")
_REF_BYTES = len(PREFIX) + 64
_MARK = PREFIX.encode()  # half as long to search for as `blob:`


def _grouped(digests: list[bytes], rows: dict[bytes, BlobRow]) -> Iterator[list[bytes]]:
    """Yield digests in groups of some 4 MiB of stored bytes. Raises UnknownBlobError."""
    group: list[bytes] = []
    size = 0
    for digest in digests:
        row = rows.get(digest)
        if row is None or row.part:
            raise UnknownBlobError(PREFIX + digest.hex())
        length = 0 if row.codec == PARTS else row.stored
        if group and size + length > _SCAN_BYTES:
            yield group
            group, size = [], 0
        group.append(digest)
        size += length
    yield group


def parse_ref(text: object) -> bytes | None:
    """Return the 32 bytes of a ref or a bare hash of 64 lower-case digits, None for others."""
    if not isinstance(text, str):
        return None
    digits = text.removeprefix(PREFIX)
    return bytes.fromhex(digits) if len(digits) == 64 and _HEX.issuperset(digits) else None


def digest_of(name: Name) -> bytes:
    """Return the digest of a ref, 64 hex digits, or 32 bytes. Raises InputError."""
    digest = name if isinstance(name, bytes) and len(name) == 32 else parse_ref(name)
    if digest is None:
        raise InputError(
            f"{name!r} names no blob",
            f"give {PREFIX}<64 lower-case hex digits>, or the digits alone",
        )
    return digest


class Zip:
    """Compresses pieces for the storage, and decompresses and verifies them."""

    def __init__(self) -> None:
        """Create each direction at its first use: it costs more than compressing 10 kB."""
        self._lock = allocate_lock()  # neither may be used by two threads at once
        self._compressor: zstd.ZstdCompressor | None = None
        self._decompressor: zstd.ZstdDecompressor | None = None
        self._zstd: ModuleType | None = None

    def pack(self, raw: Bytes) -> tuple[int, Bytes]:
        """Return the codec and the bytes to store: raw unless compression makes them fewer."""
        from eventq.system import (
            zstd,  # not above: a command that reads no compressed blob needs none
        )

        with self._lock:
            self._compressor = self._compressor or zstd.ZstdCompressor(level=_LEVEL)
            stored = self._compressor.compress(raw)
        return (ZSTD, stored) if len(stored) < len(raw) else (NONE, raw)

    def unpack(self, digest: bytes, piece: Piece | None) -> bytes:
        """Return the bytes of a piece; raise DamagedBlobError unless they match the hash."""
        if piece is None or not isinstance(piece.stored, bytes):
            raise _damaged(digest, "its bytes are missing")
        size, stored = piece.size, piece.stored
        if size > PART_BYTES:
            raise _damaged(digest, f"it claims to have {size} bytes in one piece")
        if piece.codec == ZSTD:
            stored = self._inflate(digest, size, stored)
        if len(stored) != size or blake3(stored).digest() != digest:
            raise DamagedBlobError(PREFIX + digest.hex())
        return stored

    def _inflate(self, digest: bytes, size: int, stored: bytes) -> bytes:
        zstd = self._zstd or self._load()  # an import statement costs half a microsecond a blob
        try:
            if zstd.frame_content_size(stored) == size:  # or a wrong size could take much memory
                with self._lock:
                    return self._decompressor.decompress(stored)  # type: ignore[union-attr]
        except zstd.ZstdError as error:
            what = f"its stored bytes cannot be decompressed ({error})"
            raise _damaged(digest, what) from error
        raise DamagedBlobError(PREFIX + digest.hex())

    def _load(self) -> ModuleType:
        from eventq.system import zstd

        with self._lock:
            self._decompressor = self._decompressor or zstd.ZstdDecompressor()
        self._zstd = zstd
        return zstd


def _damaged(digest: bytes, what: str) -> DamagedBlobError:
    return DamagedBlobError(PREFIX + digest.hex(), what)


class Cache:
    """Verified bytes of recently read blobs, up to a total size."""

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = allocate_lock()

    def take(self, rows: Iterable[Stored]) -> tuple[dict[bytes, bytes], dict[bytes, Stored]]:
        """Return the cached bytes, and the rows of the other blobs, both by digest.

        What was erased is neither.
        """
        found: dict[bytes, bytes] = {}
        missing: dict[bytes, Stored] = {}
        held = self._found
        with self._lock:
            for row in rows:
                digest = row.digest
                if digest is None:
                    continue
                if row.codec == GONE:  # by any process
                    self._size -= len(held.pop(digest, b""))
                    continue
                data = held.get(digest)
                if data is None:
                    missing[digest] = row
                else:
                    held.move_to_end(digest)
                    found[digest] = data
        return found, missing

    def add(self, found: dict[bytes, bytes], new: Iterable[bytes]) -> None:
        """Cache some bytes unless they are large, and evict the least recently used."""
        with self._lock:
            for digest in new:
                data = found[digest]
                if len(data) <= self._limit // 16 and digest not in self._found:
                    self._found[digest] = data
                    self._size += len(data)
            while self._size > self._limit:
                self._size -= len(self._found.popitem(last=False)[1])


class Prepared:
    """A blob to be stored: hashed, cut and compressed, or already stored in parts.

    `blob` is what the engine gets; `data` is None for a stream.
    """

    __slots__ = ("blob", "data")

    def __init__(self, blob: PreparedBlob, data: bytes | memoryview | None = None) -> None:
        self.blob = blob
        self.data = data


class Blobs:
    """The blobs of one thread."""

    def __init__(self, db: Engine) -> None:
        """Use a database; nothing is read yet."""
        self._db = db
        self._engine = db.blobs
        self._zip = Zip()
        self._cache = Cache(environment.env_bytes("EVENTQ_BLOB_CACHE", CACHE_BYTES))

    # --- putting ----------------------------------------------------------------------------------

    def put(
        self,
        data: Bytes | BinaryIO,
        *,
        refs: Iterable[Name] = (),
        expect_hash: Name | None = None,
        expect_size: int | None = None,
        mentions: bool = False,
    ) -> Blob:
        """Store bytes, or all that a binary file gives, durably; equal bytes are stored once.

        `refs` are the blobs that these bytes name: they are kept as long as this one is. With
        `mentions` so are the stored ones whose refs the bytes contain as text. Bytes that are not
        those of `expect_hash` and `expect_size` are refused. Putting the bytes of a damaged blob
        again heals it. Until something refers to it, a blob is safe from a collection for the grace
        period. Raises InputError, UnknownBlobError, TooLargeError.
        """
        self._db.check_writable()
        ready = self.prepare(data, refs, expect_hash, expect_size, mentions=mentions)
        row, new = self.store(ready)
        return _record(row, new=new)

    def put_many(self, some: Iterable[bytes]) -> int:
        """Store bytes that name nothing, as `put` does; return how many were new."""
        short, new = [], 0
        for data in some:
            ready = self.prepare(data, mentions=False)
            if ready.blob.pieces and not ready.blob.parts:
                short.append(ready.blob)
            else:
                new += self.store(ready)[1]
        return new + (self._engine.put_many(short) if short else 0)

    def prepare(
        self,
        data: object,
        refs: Iterable[Name] = (),
        expect_hash: Name | None = None,
        expect_size: int | None = None,
        *,
        what: str = "blob",
        mentions: bool = True,
    ) -> Prepared:
        """Hash, cut and compress bytes or a file, ahead of a transaction.

        A long blob is stored in parts already, unless it is stored whole. With `mentions` it keeps
        the blobs that its text names, too, where they are stored.
        """
        named = () if refs == () else tuple(digests_of(refs))
        wanted = None if expect_hash is None else digest_of(expect_hash)
        if hasattr(data, "read"):
            file: BinaryIO = data  # type: ignore[assignment]  # whatever else it has
            data = head = read_block(file, PART_BYTES + 1)
            if len(head) > PART_BYTES:
                stream = _Stream(head, file, wanted, expect_size, _Mentions() if mentions else None)
                return self._prepare_stream(stream, named)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError(
                f"a {what} is bytes, not {type(data).__name__}", "encode it, or give a binary file"
            )
        view = data if isinstance(data, bytes) else flat(data)
        if len(view) < CUT_BYTES:
            view = bytes(view)  # a copy of a buffer, as only bytes can be searched
        said = mentions and (len(view) >= CUT_BYTES or _MARK in view)  # mostly it names none
        links = named, mentions_in(view) if said else ()
        if wanted is None and expect_size is None and len(view) < CUT_BYTES:
            digest = blake3(view).digest()
        else:
            digest = _digest(view, wanted, expect_size)
        if len(view) < CUT_BYTES:
            piece = Piece(digest, len(view), *self._zip.pack(view))
            return Prepared(PreparedBlob(digest, len(view), (piece,), (), *links), view)
        if self._is_whole(digest, view):
            return Prepared(PreparedBlob(digest, len(view), (), (), *links), view)
        return Prepared(self._prepare_long(digest, view, links), view)

    def _prepare_long(self, digest: bytes, view: bytes | memoryview, links: Links) -> PreparedBlob:
        cuts = _cuts(view)
        if cuts is None:
            piece = Piece(digest, len(view), *self._zip.pack(view))
            return PreparedBlob(digest, len(view), (piece,), (), *links)
        if len(view) <= PART_BYTES:
            pieces = tuple(self._pack(cuts))
            if len(pieces) == 1:
                return PreparedBlob(digest, len(view), pieces, (), *links)
            parts = tuple([piece.digest for piece in pieces])
            return PreparedBlob(digest, len(view), pieces, parts, *links)
        return PreparedBlob(digest, len(view), (), self._stage(cuts), *links)

    def _prepare_stream(self, stream: _Stream, named: tuple[bytes, ...]) -> Prepared:
        """Store a stream in parts while it is read, in bounded memory."""
        parts = self._stage(_cuts_of_stream(stream.head, stream.blocks()))
        said = stream.said.found() if stream.said else ()
        return Prepared(PreparedBlob(stream.digest(), stream.size, (), parts, named, said))

    def _pack(self, cuts: Iterable[Bytes]) -> Iterator[Piece]:
        for cut in cuts:
            yield Piece(blake3(cut).digest(), len(cut), *self._zip.pack(cut))

    def _stage(self, cuts: Iterable[Bytes]) -> tuple[bytes, ...]:
        """Store parts, about a MiB a transaction, and return their digests."""
        digests: list[bytes] = []
        for group in _groups(cuts):
            pieces = list(self._pack(group))
            self._engine.put_parts(pieces)
            digests += [piece.digest for piece in pieces]
        return tuple(digests)

    def store(self, ready: Prepared) -> tuple[BlobRow, bool]:
        """Insert a prepared blob; return its row, and whether it was new."""
        try:
            return self._engine.put(ready.blob)
        except GoneError as gone:
            return self._engine.put(self.again(ready, gone))

    def again(self, ready: Prepared, gone: GoneError) -> PreparedBlob:
        """Prepare a blob again after a collection deleted parts of it.

        Raises BusyError for a stream, which can be read only once.
        """
        if ready.data is None:
            what = "a collection deleted parts of the stream that was being stored"
            raise BusyError(what, "give it again") from gone
        links = ready.blob.refs, ready.blob.mentions
        ready.blob = self._prepare_long(ready.blob.digest, ready.data, links)
        return ready.blob

    def _is_whole(self, digest: bytes, view: bytes | memoryview) -> bool:
        """Return whether these bytes are stored intact; the stored bytes are compared."""
        row = self._engine.find([digest]).get(digest)
        if row is None or row.part or row.size != len(view) or row.codec == GONE:
            return False
        at = 0
        try:
            for piece in self._pieces(row):
                if view[at : at + len(piece)] != piece:
                    return False
                at += len(piece)
        except DamagedBlobError:
            return False
        return at == row.size

    def add_refs(self, name: Name, refs: Iterable[Name]) -> None:
        """Record that a blob names others. Raises UnknownBlobError for what is not stored."""
        self._engine.add_refs(digest_of(name), digests_of(refs))

    # --- getting ----------------------------------------------------------------------------------

    def get(self, name: Name) -> bytes | None:
        """Return the bytes of a blob, or None. Raises DamagedBlobError, ErasedError."""
        digest = digest_of(name)
        row = self._engine.row(digest)
        if row is None:
            return None
        self._check_there(row)
        return self.load([row])[digest]

    def _check_there(self, row: BlobRow) -> None:
        """Raise ErasedError for a blob that was erased."""
        if row.codec == GONE:
            raise erased(row.digest, self._db.erasures.of_blob(row.digest))

    def shown(self, name: Name) -> bytes | None:
        """Return the bytes of a blob, what is shown in place of erased ones, or None."""
        digest = digest_of(name)
        return self.shown_many([digest]).get(digest)

    def shown_many(self, digests: list[bytes]) -> dict[bytes, bytes]:
        """Return the bytes of the given blobs that are stored, by digest.

        Of those that were erased, return what is shown in their place.
        """
        rows = self._engine.find(digests) if digests else {}
        return self._shown([row for row in rows.values() if not row.part])

    def shown_by_size(
        self, digests: list[bytes], limit: int
    ) -> Iterator[tuple[int, dict[bytes, bytes]]]:
        """Yield what `shown_many` returns in parts of some `limit` bytes, in the order given.

        Each comes with how many of the digests it is for; together they are for all.
        """
        rows = self._engine.find(digests) if digests else {}
        part: dict[bytes, BlobRow] = {}
        count = size = 0
        for digest in digests:
            count += 1
            row = rows.get(digest)
            if row is not None and not row.part and digest not in part:
                part[digest] = row
                size += row.size
            if size >= limit:
                yield count, self._shown([*part.values()])
                part, count, size = {}, 0, 0
        if count:
            yield count, self._shown([*part.values()])

    def _shown(self, there: list[BlobRow]) -> dict[bytes, bytes]:
        found = self.load(there)
        gone = [row.digest for row in there if row.codec == GONE]
        pieces = self._engine.read(gone) if gone else {}
        return {**found, **{digest: bytes(piece.stored or b"") for digest, piece in pieces.items()}}

    def stream(self, name: Name) -> Iterator[bytes]:
        """Yield the bytes of a blob in pieces of at most a MiB, all verified before the first.

        Raises UnknownBlobError, DamagedBlobError, ErasedError.
        """
        row = self._known(digest_of(name))
        self._check_there(row)
        if row.codec != PARTS:
            return iter([self.load([row])[row.digest]])
        parts = self._engine.parts(row.digest)  # for both reads: it may be healed meanwhile
        _check_pieces(self._parts(parts, row), row)
        return self._parts(parts, row)

    def part(self, name: Name, start: int, count: int) -> bytes:
        """Return at most so many bytes of a blob from one on, b"" at the end.

        Only the pieces they stand in are read and verified. Raises as `stream`.
        """
        row = self._known(digest_of(name))
        self._check_there(row)
        if row.codec != PARTS:
            return self.load([row])[row.digest][start : start + count]
        parts = self._engine.parts(row.digest)
        rows = self._engine.find(parts)
        at, skip = 0, 0
        some: list[bytes] = []
        for digest in parts:
            size = rows[digest].size if digest in rows else 0  # one that is missing is reported
            if at < start + count and at + size > start:
                skip = skip if some else start - at
                some.append(digest)
            at += size
        return b"".join(self._parts(some, row))[skip : skip + count]

    def load(self, rows: Iterable[Stored]) -> dict[bytes, bytes]:
        """Return the bytes of blobs by digest, verified and cached; erased ones are left out."""
        found, missing = self._cache.take(rows)
        if missing:
            wanted = [digest for digest, row in missing.items() if row.codec != PARTS]
            pieces = self._engine.read(wanted) if wanted else {}
            for digest, row in missing.items():
                in_parts = row.codec == PARTS
                found[digest] = (
                    self._join(row) if in_parts else self._zip.unpack(digest, pieces.get(digest))
                )
            self._cache.add(found, missing)
        return found

    def kept(self, digests: Iterable[bytes]) -> Iterator[Piece]:
        """Yield blobs as verified pieces, in order; one in parts is compressed whole.

        Several are read at once. Raises UnknownBlobError, DamagedBlobError.
        """
        every = iter(digests)
        while group := list(islice(every, _PAGE)):
            rows = self._engine.find(group)
            for digests_read in _grouped(group, rows):
                pieces = self._engine.read(digests_read)
                for digest in digests_read:
                    row = rows[digest]
                    if row.codec == PARTS:
                        yield Piece(digest, row.size, *self._zip.pack(self._join(row)))
                        continue
                    piece = pieces.get(digest)
                    self._zip.unpack(digest, piece)
                    assert piece is not None
                    yield piece

    def size_of(self, digest: bytes) -> int:
        """Return the number of bytes of a blob. Raises UnknownBlobError."""
        return self._known(digest).size

    def pins(self) -> list[tuple[str, str]]:
        """Return owner and hash of every pin, sorted."""
        return [(name, digest.hex()) for name, digest in self._engine.pins()]

    def _join(self, row: Stored) -> bytes:
        whole = BytesIO()
        for piece in self._pieces(row):
            whole.write(piece)
        data = whole.getvalue()
        if len(data) != row.size or blake3(data).digest() != row.digest:
            raise DamagedBlobError(_ref(row))
        return data

    def _pieces(self, row: Stored) -> Iterator[bytes]:
        """Yield the bytes of a blob piece by piece, each verified against its own hash."""
        digest = row.digest or b""
        if row.codec == PARTS:
            yield from self._parts(self._engine.parts(digest), row)
        else:
            yield self._zip.unpack(digest, self._engine.read([digest]).get(digest))

    def _parts(self, parts: list[bytes], row: Stored) -> Iterator[bytes]:
        """Yield the bytes of parts; about 4 MiB are read at once."""
        count = max(1, min(64, (4 << 20) * len(parts) // (row.size or 1)))
        for start in range(0, len(parts), count):
            some = parts[start : start + count]
            pieces = self._engine.read(some)
            for digest in some:
                piece = pieces.get(digest)
                if piece is None or piece.codec == PARTS:
                    raise DamagedBlobError(_ref(row), "one of its parts is missing")
                try:
                    yield self._zip.unpack(digest, piece)
                except DamagedBlobError as error:
                    raise DamagedBlobError(_ref(row), f"its part {error.what}") from error

    def _known(self, digest: bytes) -> BlobRow:
        row = self._engine.row(digest)
        if row is None:
            raise UnknownBlobError(PREFIX + digest.hex())
        return row

    def has(self, name: Name) -> bool:
        """Return whether a blob is stored."""
        return self._engine.row(digest_of(name)) is not None

    def stat(self, name: Name) -> Blob:
        """Return a blob's sizes without its bytes. Raises UnknownBlobError."""
        return _record(self._known(digest_of(name)))

    def __iter__(self) -> Iterator[Blob]:
        """Yield all blobs by hash; those put meanwhile may or may not be among them."""
        after = b""
        while rows := self._engine.page(after, _PAGE):
            yield from map(_record, rows)
            after = rows[-1].digest

    def __len__(self) -> int:
        """Return the number of blobs."""
        return self._engine.count()

    # --- what holds what --------------------------------------------------------------------------

    def refs(self, name: Name) -> list[str]:
        """Return the refs that were stored with a blob. Raises UnknownBlobError."""
        digest = self._known(digest_of(name)).digest
        return [PREFIX + ref.hex() for ref in self._engine.refs([digest])[digest]]

    def holders(self, name: Name, limit: int = 100) -> list[str]:
        """Return what keeps a blob from collection: `turn 5`, `patch 1`, `blob <hash>`, `pin NAME`.

        Also `event 3`, `output <id>`, `root 5` for that of turn 5, `attempt after turn 5`, or
        `line <session>:7`; at most `limit` of a kind. A blob without any is collected after the
        grace period, and so is a turn that is not reachable from a context. Raises
        UnknownBlobError.
        """
        return [f"{one.kind} {one.name}" for one in self._engine.holders(digest_of(name), limit)]

    def unnoted(self, types: Sequence[str]) -> Iterator[bytes]:
        """Yield the stored blobs that a text names without a ref that says so; read all texts.

        Those are what `texts` of the engine finds. Raises DamagedBlobError.
        """
        for digest, said in self._texts(types, (PREFIX, SHA256)):
            yield from self._engine.unnoted(digest, said)

    def dangling(self, types: Sequence[str]) -> Iterator[str]:
        """Yield a sentence for each text that names a blob which is not stored; read all texts.

        It may have been collected, or never stored here: a text may say anything.
        """
        for digest, said in self._texts(types, (PREFIX,)):
            for ref in said:
                if self._engine.row(ref) is None:
                    holder = next(iter(self._engine.holders(digest, 1)), None)
                    what = f"{holder.kind} {holder.name}" if holder else f"blob {digest.hex()}"
                    yield f"{what} names {PREFIX}{ref.hex()}, which is not stored"

    def _texts(
        self, types: Sequence[str], prefixes: tuple[str, ...]
    ) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
        """Yield each text that names blobs, and their digests."""
        cursor: object = None
        while True:
            rows, cursor = self._engine.texts(cursor, _PAGE, types)
            by_digest = {row.digest: row for row in rows}
            for group in _grouped([*by_digest], by_digest):
                pieces = self._engine.read(group)
                for digest in group:
                    if said := self._mentions(by_digest[digest], pieces.get(digest), prefixes):
                        yield digest, said
            if cursor is None:
                return

    def _mentions(
        self, row: BlobRow, piece: Piece | None, prefixes: tuple[str, ...]
    ) -> tuple[bytes, ...]:
        try:
            whole = None if row.codec == PARTS else self._zip.unpack(row.digest, piece)
            return _mentions_of(self._pieces(row) if whole is None else (whole,), prefixes)
        except DamagedBlobError:
            found = self._engine.row(row.digest)
            if found is None or found.codec == GONE:  # somebody has collected or erased it
                return ()
            raise

    def pin(self, name: Name, owner: str) -> None:
        """Keep a blob until it is unpinned by the same owner. Raises UnknownBlobError."""
        check_name(owner, "owner")
        self._engine.pin(owner, digest_of(name), keep=True)

    def unpin(self, name: Name, owner: str) -> bool:
        """Remove an owner's pin; return False when there was none. Raises UnknownBlobError."""
        check_name(owner, "owner")
        return self._engine.pin(owner, digest_of(name), keep=False)

    # --- looking for damage -----------------------------------------------------------------------

    def verify(self, name: Name | None = None) -> list[str]:
        """Read a blob, or all, from the disk; return a sentence for each damaged one."""
        if name is None:
            return list(self.faults())
        return list(self._damage(self._known(digest_of(name))))

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each damaged blob."""
        yield from self._db.faults("blobs")
        cursor: object = None
        while True:
            rows, cursor = self._engine.scan(cursor, _SCAN_BYTES)
            for row, stored in rows:
                yield from self._faults_of(row, stored)
            if cursor is None:
                return

    def _faults_of(self, row: BlobRow, stored: bytes | None) -> Iterator[str]:
        if row.codec == GONE:
            return
        if row.codec == PARTS:
            faults = list(self._damage(row))
            kept = row.stored if faults else self._kept_in_parts(row)
        else:
            faults = list(self._damage_of_piece(row, stored))
            kept = row.stored if faults else len(stored or b"")
        yield from faults
        if kept != row.stored:
            what = f"it is kept in {kept} bytes, and its row says {row.stored}"
            yield f"{_ref(row)} is damaged: {what}"

    def _kept_in_parts(self, row: BlobRow) -> int:
        parts = self._engine.parts(row.digest)
        rows = self._engine.find(parts)
        return sum(rows[part].stored for part in parts if part in rows)

    def _damage_of_piece(self, row: BlobRow, stored: bytes | None) -> Iterator[str]:
        piece = None if stored is None else Piece(row.digest, row.size, row.codec, stored)
        try:
            self._zip.unpack(row.digest, piece)
        except DamagedBlobError as error:
            yield error.what

    def _damage(self, row: BlobRow) -> Iterator[str]:
        if row.codec == GONE:
            return
        try:
            _check_pieces(self._pieces(row), row)
        except DamagedBlobError as error:
            yield error.what


class _Stream:
    """A binary file that is read once, and hashed, measured and searched meanwhile."""

    def __init__(
        self,
        head: bytes,
        file: BinaryIO,
        wanted: bytes | None,
        expected: int | None,
        said: _Mentions | None,
    ) -> None:
        self.head = head
        self.said = said
        self.size = 0
        self._file = file
        self._wanted = wanted
        self._expected = expected
        self._hasher = blake3()

    def blocks(self) -> Iterator[bytes]:
        """Yield all of it; raise InputError as soon as it is longer than expected."""
        block = self.head
        while block:
            self._hasher.update(block)
            self.size += len(block)
            wrong = self._expected is not None and self.size > self._expected
            check_size(self.size, self._expected if wrong else None)
            if self.said:
                self.said.feed(block)
            yield block
            block = read_block(self._file, PART_BYTES)

    def digest(self) -> bytes:
        """Return the hash of all of it; raise InputError unless it is the expected one."""
        check_size(self.size, self._expected)
        return check_hash(self._hasher.digest(), self._wanted)


class _Mentions:
    """The blobs that bytes name as text with some prefixes, wherever the bytes are cut."""

    def __init__(self, prefixes: tuple[str, ...] = (PREFIX,)) -> None:
        """Begin with none."""
        self._prefixes = prefixes
        self._found: set[bytes] = set()
        self._left = b""

    def feed(self, block: Bytes) -> None:
        """Search the next bytes."""
        data = self._left + block
        for prefix in self._prefixes:
            if prefix.encode() in data:
                self._found |= refs_in(data.decode("latin-1"), prefix)  # ASCII stays what it is
        self._left = data[1 - _REF_BYTES :]

    def found(self) -> tuple[bytes, ...]:
        """Return their hashes, sorted."""
        return tuple(sorted(self._found))


def mentions_in(data: bytes | memoryview) -> tuple[bytes, ...]:
    """Return the digests of the blobs that bytes name as text, sorted; copy no long text."""
    return _mentions_of(data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES))


def _mentions_of(
    blocks: Iterable[Bytes], prefixes: tuple[str, ...] = (PREFIX,)
) -> tuple[bytes, ...]:
    said = _Mentions(prefixes)
    for block in blocks:
        said.feed(block)
    return said.found()


def digests_of(refs: Iterable[Name]) -> list[bytes]:
    """Return the digests of refs; raise InputError for an invalid one."""
    if isinstance(refs, (str, bytes)) or not hasattr(refs, "__iter__"):
        raise InputError("refs are several names", "give a list of refs")
    return [digest_of(ref) for ref in refs]


def _record(row: BlobRow, *, new: bool = False) -> Blob:
    return Blob(row.digest.hex(), row.size, row.stored, _CODECS[row.codec], new)


def _ref(row: Stored) -> str:
    return PREFIX + (row.digest or b"").hex()


def flat(data: Bytes) -> memoryview:
    """Return a buffer of any shape as flat bytes, without a copy if possible."""
    view = memoryview(data)
    if not view.nbytes:  # a shape with a zero in it cannot be cast
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))


def _check_pieces(pieces: Iterable[bytes], row: Stored) -> None:
    """Raise DamagedBlobError unless pieces have the size and hash of their blob."""
    hasher = blake3()
    size = 0
    for piece in pieces:
        hasher.update(piece)
        size += len(piece)
    if size != row.size or hasher.digest() != row.digest:
        raise DamagedBlobError(_ref(row))


def read_block(file: BinaryIO, size: int) -> bytes:
    """Return the next `size` bytes of a file, fewer only at its end; pipes return less at once."""
    blocks = []
    while size > 0:
        block = file.read(size)
        if not isinstance(block, bytes):
            raise InputError(
                f"the file gives {type(block).__name__}, not bytes", "open it in binary mode"
            )
        if not block:
            break
        blocks.append(block)
        size -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _digest(view: bytes | memoryview, expect_hash: bytes | None, expect_size: int | None) -> bytes:
    check_size(len(view), expect_size)
    return check_hash(blake3(view).digest(), expect_hash)


def check_size(size: int, expected: int | None) -> None:
    """Raise TooLargeError for more bytes than a blob may have, InputError for another number."""
    if size > LARGEST:
        raise TooLargeError(size, LARGEST, "blob", "store it in several blobs")
    if expected is not None and size != expected:
        raise InputError(
            f"the payload has {size} bytes, not the {expected} that were declared", "send it again"
        )


def check_hash(digest: bytes, expected: bytes | None) -> bytes:
    """Return a digest; raise InputError when it is not the expected one."""
    if expected is not None and digest != expected:
        raise InputError(
            f"the payload's hash is {digest.hex()}, not the {expected.hex()} that was declared",
            "send it again",
        )
    return digest


def _cuts(view: bytes | memoryview) -> Iterable[Bytes] | None:
    """Return the parts that bytes are stored in, None for one piece."""
    if len(view) < CUT_BYTES:
        return None
    from eventq.memory import chunking

    if chunking.pays(view[:PART_BYTES]):
        return chunking.cut(view)
    flat = memoryview(view)
    return (
        None
        if len(view) <= PART_BYTES
        else (flat[n : n + PART_BYTES] for n in range(0, len(view), PART_BYTES))
    )


def _cuts_of_stream(head: bytes, blocks: Iterable[bytes]) -> Iterator[Bytes]:
    """Yield the parts that a stream is stored in; `head` is its beginning."""
    from eventq.memory import chunking

    if not chunking.pays(head[:PART_BYTES]):
        yield from _even(blocks)
        return
    chunker = chunking.Chunker()
    for block in blocks:
        yield from chunker.feed(block)
    yield from chunker.end()


def _even(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of blocks in parts of PART_BYTES; the last one may be shorter."""
    left = b""
    for block in blocks:
        left += block
        while len(left) >= PART_BYTES:
            yield left[:PART_BYTES]
            left = left[PART_BYTES:]
    if left:
        yield left


def _groups(cuts: Iterable[Bytes]) -> Iterator[list[Bytes]]:
    """Yield parts in groups of about a MiB."""
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
