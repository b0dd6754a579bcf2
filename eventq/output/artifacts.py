"""Artifacts: numbered outputs of tools, of any size, stored whole and read by bytes or by lines.

The bytes are stored in chunks of 64 KiB, so that those of a writer that dies are kept. An artifact
is complete once it is sealed, with its size and its BLAKE3-256. TRANSITIONS defines its status.
"""

from __future__ import annotations

import os
import re
from functools import partial

from blake3 import blake3

from eventq.errors import (
    ConflictError,
    DamagedError,
    EventqError,
    InputError,
    LogicError,
    UnknownArtifactError,
    UnknownOutcomeError,
    UsageError,
)
from eventq.memory.blobs import flat
from eventq.memory.streams import after_lines, pieces_from
from eventq.records.artifact import ArtifactInfo
from eventq.records.checks import check_positive
from eventq.store import opening
from eventq.store.output_rows import ArtifactRow
from eventq.store.rules import erased
from eventq.store.turn_rows import Ending, Growth, StreamPiece
from eventq.system import clock, disk, processes, zstd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Any, BinaryIO

    from eventq.store.engine import Engine
    from eventq.store.streams import Artifacts as Streams

    Buffer = bytes | bytearray | memoryview
    Names = list[str]
    Pieces = Callable[[], Iterable[bytes]]

TRANSITIONS = {
    "open": {"written": "open", "sealed": "sealed", "gave up": "failed", "writer died": "partial"},
    "sealed": {},
    "failed": {},
    "partial": {},
}
CHUNK = 1 << 16  # bytes of a chunk
COMMIT_BYTES = 4 << 20  # the maximum that waits for a transaction
COMMIT_SECONDS = 1.0  # the longest that it waits, while the caller writes or calls `tick`
LARGEST_ID = (1 << 62) - 1  # larger imported ids are replaced: there must always be a next one
LISTED = 100  # names that an error lists
_TOOL = 64  # characters of a tool's name
_LEVEL = 1  # of zstd: log text at 500 MB/s, to less than a half
_FILE = re.compile(r"([0-9]{1,19})\.([^/]*?)(\.partial)?\.log", re.DOTALL)
_PAGE = 1_000


def tool_name(text: str) -> str:
    """Return a tool's name as part of a file's name: letters, digits, `_` and `-`, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:_TOOL].rstrip("_") or "tool"


class ArtifactWriter:
    """Writes an artifact: `write`, then `seal` or `fail`. A `with` block calls one of the two.

    Written bytes are durable after COMMIT_BYTES or COMMIT_SECONDS, and all of them when `seal`
    returns. Not safe for several OS threads.
    """

    def __init__(
        self, streams: Streams, artifact_id: int, owner: str, session: str | None = None
    ) -> None:
        """Write to an open artifact of this process."""
        self.artifact_id = str(artifact_id)
        self._session = session
        self._streams = streams
        self._number = artifact_id
        self._owner = owner
        self._compress = zstd.ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self._hasher = blake3()
        self._tail = bytearray()  # the last, incomplete chunk, whether it is stored or not
        self._ready: list[StreamPiece] = []  # full chunks that wait to be stored
        self._position = 0  # of the last chunk
        self._newlines = 0  # before the last chunk
        self._last = b"\n"  # the last byte before the last chunk
        self._size = 0
        self._stored = 0  # how much of the size is stored
        self._since = 0.0  # when the oldest waiting byte was written
        self._ended = False
        self._is_unsure = False  # nobody knows whether it was ended
        self._broken = ""  # why written bytes could not be stored

    def __enter__(self) -> ArtifactWriter:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Seal the artifact, or fail it with the error that ended the block."""
        if self._ended:
            return
        if kind is None:
            self.seal()
            return
        interrupted = issubclass(kind, KeyboardInterrupt)
        try:
            self.fail("it was interrupted" if interrupted else str(why) or kind.__name__)
        except EventqError:
            pass  # the first error matters more; the artifact is partial when this process ends

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes. After a storage error, the only valid call is `fail`."""
        self._check_sound()
        view = as_bytes(data)
        self._hasher.update(view)
        if self._size == self._stored:
            self._since = clock.monotonic()
        self._size += len(view)
        while len(self._tail) + len(view) >= CHUNK:
            room = CHUNK - len(self._tail)
            self._add_chunk(bytes(self._tail) + view[:room])
            self._tail.clear()
            view = view[room:]
            if len(self._ready) * CHUNK >= COMMIT_BYTES:
                self._commit()
        self._tail += view
        self.tick()

    def tick(self) -> None:
        """Store the bytes that have waited for COMMIT_SECONDS."""
        if self._size > self._stored and clock.monotonic() - self._since >= COMMIT_SECONDS:
            self._commit()

    def _add_chunk(self, chunk: bytes) -> None:
        self._ready.append(StreamPiece(self._position, self._newlines, self._compress(chunk)))
        self._position += 1
        self._newlines += chunk.count(b"\n")
        self._last = chunk[-1:]

    def _commit(self) -> None:
        """Store the waiting bytes. After a failure store nothing more: there would be a hole."""
        self._broken = "the write was interrupted"  # until it has succeeded
        try:
            growth = self._growth()
            size = self._streams.append(self._number, growth, owner=self._owner, was=self._stored)
            if size is None:
                raise self._gone()
        except EventqError as error:
            self._broken = error.what
            raise
        self._broken = ""
        self._stored = size
        self._ready.clear()
        self._since = clock.monotonic()

    def _growth(self) -> Growth:
        """Return the waiting pieces, including the incomplete last chunk.

        Its size counts chunks and tail, as during a write `_size` is ahead of both.
        """
        pieces = self._ready
        if self._tail:
            tail = self._compress(bytes(self._tail))
            pieces = [*pieces, StreamPiece(self._position, self._newlines, tail)]
        size = self._position * CHUNK + len(self._tail) - self._stored
        return Growth(size, self._lines(), tuple(pieces))

    def _gone(self) -> ConflictError:
        return ConflictError(
            f"artifact {self._number} is no longer the one that was written: it was deleted, or its"
            f" transaction was rolled back",
            "write another one",
            self._number,
        )

    def _lines(self) -> int:
        """Return the number of lines, including an unfinished one."""
        last = self._tail[-1:] if self._tail else self._last
        return self._newlines + self._tail.count(b"\n") + (last != b"\n")

    def seal(self) -> ArtifactInfo:
        """Store the rest durably and seal the artifact. May be retried if it fails."""
        self._check_sound()
        return self._end(Ending("sealed", self._hasher.digest()))

    def fail(self, why: str) -> None:
        """Store the rest unless there is a hole, and record why the artifact is incomplete.

        May be retried if it fails. Until then, or until this process ends, the artifact is open.
        """
        self._check_open()
        why = why.encode("utf-8", "backslashreplace").decode()
        self._end(Ending("failed", error=why))

    def _end(self, ending: Ending) -> ArtifactInfo:
        try:
            row = self._end_row(ending)
        except UnknownOutcomeError:
            self._is_unsure = True
            raise
        if row is None and self._is_unsure:  # it was stored the first time
            row = self._streams.get(self._number)
            if row is not None and (row.status, row.digest) != (ending.status, ending.digest):
                row = None
        if row is None:
            raise self._gone()
        self._ended = True
        return _info(row, self._session)

    def _end_row(self, ending: Ending) -> ArtifactRow | None:
        row = None
        if not self._broken:
            row = self._streams.end(
                self._number, ending, self._growth(), owner=self._owner, was=self._stored
            )
        if row is None and ending.status == "failed":  # the bytes before have a hole or are gone
            row = self._streams.end(self._number, ending, owner=self._owner)
        return row

    def _check_sound(self) -> None:
        self._check_open()
        if self._broken:
            raise LogicError(
                f"artifact {self._number} has a hole: {self._broken}", "write another one"
            )

    def _check_open(self) -> None:
        if self._ended:
            raise LogicError(f"artifact {self._number} has ended", "allocate another one")


class Artifact:
    """A readable artifact, in its state at the time it was opened."""

    def __init__(self, streams: Streams, info: ArtifactInfo) -> None:
        """Read the artifact that `info` describes."""
        self.info = info
        self._streams = streams
        self._number = int(info.artifact_id)
        self._decompress = zstd.ZstdDecompressor().decompress

    def read(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.stream())

    def stream(self) -> Iterator[bytes]:
        """Yield all bytes in verified pieces of 64 KiB, and verify the hash at the end."""
        return (piece for _, piece in self._whole())

    def _whole(self) -> Iterator[tuple[int, bytes]]:
        """Yield all of `_chunks`, and verify the hash at the end."""
        hasher = blake3()
        for newlines, piece in self._chunks(0):
            hasher.update(piece)
            yield newlines, piece
        if self.info.hash is not None and hasher.hexdigest() != self.info.hash:
            raise self._damaged("its bytes do not have its hash")

    def lines_from(self, offset: int) -> Iterator[bytes]:
        """Yield the bytes from line `offset` on, counted from 1, without reading those before."""
        if offset > max(self.info.lines, 1):
            return iter(())
        position, before = self._streams.find_line(self._number, offset - 1)
        pieces = (piece for _, piece in self._chunks(position))
        return after_lines(pieces, offset - 1 - before)

    def part(self, start: int, count: int) -> bytes:
        """Return at most so many bytes from one on, verified chunk by chunk; b"" at the end."""
        position, skip = divmod(start, CHUNK)
        found, size = [], -skip
        for _, piece in self._chunks(position):
            found.append(piece)
            size += len(piece)
            if size >= count:
                break
        return b"".join(found)[skip : skip + count]

    def _chunks(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Yield the stored number of newlines before each chunk, and its verified bytes."""
        chunks = pieces_from(self._streams, self._number, position)
        while (size := min(self.info.size - position * CHUNK, CHUNK)) > 0:
            chunk = next(chunks, None)
            if chunk is None:
                raise self._damaged(f"its chunk {position} is missing")
            yield chunk.newlines, self._unpacked(chunk.stored, position, size)
            position += 1

    def _unpacked(self, stored: Buffer, position: int, size: int) -> bytes:
        try:
            length = zstd.frame_content_size(stored)
            grown = self.info.hash is None and size <= length <= CHUNK
            if length != size and not grown:
                raise self._damaged(f"its chunk {position} has {length} bytes, not {size}")
            return self._decompress(stored)[:size]
        except (zstd.ZstdError, TypeError) as error:
            raise self._damaged(f"its chunk {position} cannot be decompressed ({error})") from error

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(f"artifact {self._number} is damaged: {why}", "restore a backup")

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each fault; this reads all bytes."""
        newlines, last, wrong = 0, b"\n", False
        try:
            for noted, piece in self._whole():
                wrong |= noted != newlines
                newlines += piece.count(b"\n")
                last = piece[-1:]
        except DamagedError as error:
            yield error.what
            return
        lines = newlines + (last != b"\n")
        name = f"artifact {self._number}"
        if wrong:
            yield f"{name} has a chunk with a wrong number of lines before it"
        if self.info.lines != lines:
            yield f"{name} should have {self.info.lines} lines, but has {lines}"


class Artifacts:
    """The artifacts of one scope: those of the thread, or of a session."""

    def __init__(self, db: Engine, scope: int = 0, session: str | None = None) -> None:
        """Use a scope of a database, and its name. Raises StoreError if that is too old."""
        self._db = db
        self.scope = scope
        self.session = session
        self._streams: Streams = db.artifacts.of(scope)

    # --- in ---------------------------------------------------------------------------------------

    def allocate(self, tool: str = "tool") -> ArtifactWriter:
        """Start an artifact under the next number, and return its writer."""
        return self._begin(None, _checked(tool), None)

    def _begin(self, number: int | None, tool: str, at: int | None) -> ArtifactWriter:
        self._db.check_writable()
        owner = _owner(is_shared=self._db.is_shared)
        number = self._streams.create(tool, owner, number=number, at=at)
        return ArtifactWriter(self._streams, number, owner, self.session)

    def put(
        self, data: bytes | bytearray | memoryview | BinaryIO, tool: str = "tool"
    ) -> ArtifactInfo:
        """Store bytes, or the content of a binary file, as a sealed artifact."""
        if not hasattr(data, "read"):
            view = as_bytes(data)
            with self._db.write(), self.allocate(tool) as writer:
                writer.write(view)
                return writer.seal()
        return self._fill(self.allocate(tool), iter(lambda: data.read(CHUNK), b""))

    def _fill(self, writer: ArtifactWriter, pieces: Iterable[bytes]) -> ArtifactInfo:
        with writer:
            for piece in pieces:
                if not isinstance(piece, bytes):
                    raise InputError(
                        f"the file returns {type(piece).__name__}, not bytes",
                        "open it in binary mode",
                    )
                writer.write(piece)
            return writer.seal()

    def remove(self, artifact_id: str | int) -> None:
        """Delete an artifact. Its number is never reused.

        Raises UnknownArtifactError, and ConflictError while it is being written.
        """
        info = self.get(artifact_id)
        number = int(info.artifact_id)
        if info.status == "open":
            raise ConflictError(
                f"artifact {artifact_id} is still being written",
                "wait until it is sealed, or end its writer",
                number,
            )
        if not self._streams.remove(number):
            raise UnknownArtifactError(str(artifact_id), self.available())

    # --- out --------------------------------------------------------------------------------------

    def get(self, artifact_id: str | int) -> ArtifactInfo:
        """Return the record of an artifact. Raises UnknownArtifactError."""
        number = _number(artifact_id)
        row = None if number is None else self._streams.get(number)
        if row is None:
            if past := self._db.erasures.get("artifact", f"{self.scope}/{number}"):
                raise erased(past)
            raise UnknownArtifactError(str(artifact_id), self.available())
        return self._info(row)

    def has(self, artifact_id: int) -> bool:
        """Return whether there is an artifact of a number."""
        return self._streams.get(artifact_id) is not None

    def _info(self, row: ArtifactRow) -> ArtifactInfo:
        return _info(row, self.session)

    def open(self, artifact_id: str | int) -> Artifact:
        """Open an artifact for reading, complete or not. Raises UnknownArtifactError."""
        return Artifact(self._streams, self.get(artifact_id))

    def list(self) -> list[ArtifactInfo]:
        """Return the records of all artifacts, ordered by number."""
        return list(iter(self))  # not `list(self)`, which counts them first

    def __iter__(self) -> Iterator[ArtifactInfo]:
        """Yield the records of all artifacts, ordered by number."""
        page = self.page(-1, _PAGE)
        while page:
            yield from page
            page = self.page(int(page[-1].artifact_id), _PAGE)

    def page(self, after: int, limit: int) -> Sequence[ArtifactInfo]:
        """Return the records of the next artifacts after a number."""
        return tuple(map(self._info, self._streams.page(after, limit)))

    def newest(self, limit: int) -> Sequence[ArtifactInfo]:
        """Return the newest artifacts by number, without reading those before them."""
        every = self.page(-1, limit + 1)
        if len(every) <= limit:
            return every
        low, high = -1, 1 << 62  # numbers above which there are more than a page, and at most one
        while high - low > 1:
            middle = (low + high) // 2
            if len(self.page(middle, limit + 1)) > limit:
                low = middle
            else:
                high = middle
        return self.page(high, limit)

    def __len__(self) -> int:
        """Return the number of artifacts."""
        return self._streams.count()

    def available(self) -> str:
        """Return the first 100 sealed artifacts' numbers for an error message, or `none`."""
        rows = self._streams.page(-1, LISTED, status="sealed")
        return listed([str(row.number) for row in rows], self._streams.count(status="sealed"))

    # --- folders ----------------------------------------------------------------------------------

    def export_folder(self, folder: str, ids: Iterable[str | int] | None = None) -> Names:
        """Export artifacts (default: all) to `{id}.{tool}.log` files in a folder; return the names.

        One that is not sealed becomes `{id}.{tool}.partial.log`. An existing file with the same
        content is left alone. Raises ConflictError for one with other content, OSError.
        """
        names = []
        for info in self if ids is None else map(self.get, ids):
            names.append(file_name(info))
            self.export(info.artifact_id, os.path.join(folder, names[-1]))
        return names

    def export(self, artifact_id: str | int, path: str) -> None:
        """Write an artifact to a file unless that has the same content; see `export_folder`."""
        info = self.get(artifact_id)
        save_or_compare(path, Artifact(self._streams, info).stream(), info.hash)
        unfinished = f"{path.removesuffix('.log')}.partial.log"
        if info.status == "sealed" and os.path.lexists(unfinished):
            os.unlink(unfinished)  # from an export before it was sealed

    def import_folder(self, folder: str) -> dict[str, ArtifactInfo]:
        """Store the `{id}.{tool}.log` files of a folder; return the artifacts by file name.

        Each keeps its number if that is free, else gets the next one. Artifacts that exist already
        are reused, so importing twice adds nothing. New numbers follow the highest one. Raises
        OSError.
        """
        names = [name for name in os.listdir(folder) if is_plain(os.path.join(folder, name))]
        found = [(int(match[1]), match) for name in names if (match := _FILE.fullmatch(name))]
        found.sort(key=lambda one: (one[0], one[1][0]))
        paths = [os.path.join(folder, match[0]) for _, match in found]
        inputs = [
            (incoming(match), partial(read_file, path))
            for (_, match), path in zip(found, paths, strict=True)
        ]
        taken: set[int] = set()
        made = [self.take(wanted, pieces, taken, anew=False) for wanted, pieces in inputs]
        placed = [one or self.take(*inputs[at], taken) for at, one in enumerate(made)]
        return {match[0]: one[0] for (_, match), one in zip(found, placed, strict=True) if one}

    def place(
        self, wanted: ArtifactInfo, pieces: Pieces, *, instead: bool
    ) -> tuple[ArtifactInfo, bool]:
        """Store an imported artifact under its own number; return it, and whether it is new.

        One that is there stays, if it is equal, or is replaced, if the new one comes `instead` of
        it; otherwise the new one gets another number.
        """
        digest, size = hash_of(pieces())
        equal = wanted._replace(hash=digest, size=size)
        own = int(wanted.artifact_id) if int(wanted.artifact_id) <= LARGEST_ID else None
        with self._db.write():
            row = None if own is None else self._streams.get(own)
            if row is not None and self._is_equal(row, equal):
                return self._info(row), False
            if row is not None and instead and row.status != "open" and own is not None:
                self._streams.remove(own)
            elif row is not None or (own is not None and not self._streams.is_unused(own)):
                own = None
            return self._store(own, wanted, pieces()), True

    def take(
        self, wanted: ArtifactInfo, pieces: Pieces, taken: set[int], *, anew: bool = True
    ) -> tuple[ArtifactInfo, bool] | None:
        """Store an imported artifact; unless `anew`, return None if it needs a new number.

        An equal artifact that exists already and is not in `taken` is reused, and added to `taken`.
        """
        digest, size = hash_of(pieces())
        if wanted.hash not in (None, digest):
            raise _changed(wanted)
        own = int(wanted.artifact_id) if int(wanted.artifact_id) <= LARGEST_ID else None
        with self._db.write():
            info = self._find(own, wanted._replace(hash=digest, size=size), taken)
            new = info is None
            if info is None:
                free = own is not None and self._streams.is_unused(own)
                if not free and not anew:
                    return None
                info = self._store(own if free else None, wanted, pieces())
            if own is not None:
                self._streams.reserve(own)
            if wanted.status == "sealed" and info.hash != digest:  # it changed between two reads
                raise _changed(wanted)
        taken.add(int(info.artifact_id))
        return info, new

    def _store(
        self, number: int | None, wanted: ArtifactInfo, pieces: Iterable[bytes]
    ) -> ArtifactInfo:
        at = wanted.created_at_ms or None
        with self._begin(number, tool_name(wanted.tool), at) as writer:
            for piece in pieces:
                writer.write(piece)
            if wanted.status != "sealed":
                writer.fail("it was incomplete when it was exported")
        return self.get(writer.artifact_id)

    def _find(
        self, number: int | None, wanted: ArtifactInfo, taken: set[int]
    ) -> ArtifactInfo | None:
        """Return an equal artifact that is not in `taken`, preferably the one with the number."""
        tool, digest = tool_name(wanted.tool), wanted.hash or ""
        mine = None if number is None else self._streams.get(number)
        alike = self._streams.alike(tool, wanted.size, bytes.fromhex(digest))
        for row in alike if mine is None else [mine, *alike]:
            if row.number not in taken and self._is_equal(row, wanted):
                return self._info(row)
        return None

    def _is_equal(self, row: ArtifactRow, wanted: ArtifactInfo) -> bool:
        """Return whether a stored artifact has tool, bytes and end of an imported one."""
        if (row.tool, row.size) != (tool_name(wanted.tool), wanted.size):
            return False
        info, digest = self._info(row), wanted.hash or ""
        return info.hash == digest if wanted.status == "sealed" else self._is_part(info, digest)

    def _is_part(self, info: ArtifactInfo, digest: str) -> bool:
        return info.hash is None and hash_of(Artifact(self._streams, info).stream())[0] == digest

    def is_same(self, wanted: ArtifactInfo, pieces: Pieces) -> bool:
        """Return whether the number belongs to an equal artifact, or was never assigned."""
        number = int(wanted.artifact_id)
        row = self._streams.get(number) if number <= LARGEST_ID else None
        if row is None:
            return number <= LARGEST_ID and self._streams.is_unused(number)
        info = self._info(row)
        if wanted.hash is not None:
            return (info.hash, info.tool) == (wanted.hash, wanted.tool)
        return info.tool == wanted.tool and self._is_part(info, hash_of(pieces())[0])

    # --- checking ---------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each fault of an artifact; this reads all bytes."""
        for info in self:
            yield from Artifact(self._streams, info).faults()


def as_bytes(data: object) -> memoryview:
    """Return a flat view of a bytes-like object. Raises InputError for anything else."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(
            f"an artifact is bytes, not {type(data).__name__}", "encode it, or give a binary file"
        )
    return flat(data)


def _changed(wanted: ArtifactInfo) -> DamagedError:
    what = f"the bytes of artifact {wanted.artifact_id} do not have its hash"
    return DamagedError(what, "import it again")


def in_memory() -> Artifacts:
    """Return artifacts that exist only in memory, without a thread.

    The caller can use their numbers, but URLs cannot name them.
    """
    return Artifacts(opening.in_memory())


def listed(names: list[str], count: int) -> str:
    """Return names for an error message: `none` for none, and how many more there are."""
    return (", ".join(names) or "none") + (
        f", and {count - len(names)} more" if count > len(names) else ""
    )


def _checked(tool: object) -> str:
    if not isinstance(tool, str):
        raise UsageError(
            f"the tool's name must be text, not {type(tool).__name__}",
            "give a string such as 'bash'",
        )
    return tool_name(tool)


def file_name(info: ArtifactInfo) -> str:
    """Return the name of the file that an artifact is exported to."""
    unfinished = "" if info.status == "sealed" else ".partial"
    return f"{info.artifact_id}.{info.tool}{unfinished}.log"


def file_parts(name: str) -> re.Match[str] | None:
    """Return number, tool and mark of the file of an artifact, None for any other name."""
    return _FILE.fullmatch(name)


def incoming(match: re.Match[str]) -> ArtifactInfo:
    """Return the artifact that the name of an exported file describes."""
    status = "failed" if match[3] else "sealed"
    return ArtifactInfo(match[1], match[2], status, 0, 0, None, None, 0, None)


def _number(artifact_id: object) -> int | None:
    """Return the number of an artifact's id, digits without leading zeros, or None."""
    text = str(artifact_id)
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    if text[0] == "0" and text != "0":
        return None
    return int(text) if int(text) < 1 << 63 else None


def _owner(*, is_shared: bool) -> str:
    """Return a unique id of a writer: a random number and its process, with its machine."""
    pid, place = os.getpid(), processes.namespace()
    if is_shared:  # the pid namespace outside of containers has the same number everywhere
        place = f"{place}@{processes.host()}@{processes.machine()}"
    return f"{os.urandom(6).hex()}:{pid}:{place}:{processes.birth(pid)}"


def _is_alive(owner: str | None) -> bool:
    """Return whether a writer's process runs.

    One in another container or on another machine is assumed to run.
    """
    _, pid, place, birth = [*(owner or "").split(":", 3), "", "", ""][:4]
    if not pid.isascii() or not pid.isdigit() or len(pid) > 9 or not birth:
        return False
    namespace, host, boot = [*place.split("@"), "", ""][:3]
    if host and host != processes.host():
        return True
    if boot and boot != processes.machine():  # it was started anew
        return False
    return namespace != processes.namespace() or processes.birth(int(pid)) == birth


def _info(row: ArtifactRow, session: str | None) -> ArtifactInfo:
    status = row.status
    if status == "open" and not _is_alive(row.owner):
        status = TRANSITIONS[status]["writer died"]
    return ArtifactInfo(
        str(row.number),
        row.tool,
        status,
        row.size,
        row.lines,
        None if row.digest is None else row.digest.hex(),
        row.error,
        row.created_at,
        row.ended_at,
        session,
    )


def being_written(rows: Iterable[tuple[Any, ...]]) -> Iterator[ArtifactInfo]:
    """Yield the artifacts of an overview, which are written now or were left by their writers."""
    for scope, name, *row in rows:
        yield _info(ArtifactRow._make(row), (name or str(scope)) if scope else None)


def save_or_compare(path: str, pieces: Iterable[bytes], digest: str | None) -> None:
    """Write a file unless one with the digest exists. Raises ConflictError for any other file.

    Without a digest an existing file is replaced, as the artifact is still growing.
    """
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ConflictError(f"'{path}' exists, but is not a file", "give another folder", 0)
    if digest is None or not os.path.exists(path):
        disk.save(path, pieces)
    elif hash_of(read_file(path, follow=True))[0] != digest:
        raise ConflictError(f"'{path}' exists with other content", "give another folder", 0)


def is_plain(path: str) -> bool:
    """Return whether a path is a regular file and no link, which could point anywhere."""
    return os.path.isfile(path) and not os.path.islink(path)


def read_file(path: str, *, follow: bool = False) -> Iterator[bytes]:
    """Yield the bytes of a plain file; raise OSError for anything else."""
    with disk.open_regular(path, follow=follow) as file:
        yield from iter(lambda: file.read(CHUNK), b"")


def hash_of(pieces: Iterable[bytes]) -> tuple[str, int]:
    """Return the hash and the size of bytes in pieces."""
    hasher = blake3()
    size = 0
    for piece in pieces:
        hasher.update(piece)
        size += len(piece)
    return hasher.hexdigest(), size


def check_lines(offset: int | None, limit: int | None) -> None:
    """Raise UsageError unless offset and limit count from 1."""
    if offset is not None:
        check_positive(offset, "offset")
    if limit is not None:
        check_positive(limit, "limit")
