"""Artifacts: numbered outputs of tools, of any size, kept whole and read by bytes or by lines.

The bytes lie in chunks of 64 KiB, so a writer that dies leaves what it had stored; an artifact is whole once it is
sealed, with its size and its BLAKE3-256. Its status moves as TRANSITIONS says.
"""

from __future__ import annotations

import os
import re
from functools import partial

import zstandard
from blake3 import blake3

from eventq import system
from eventq.blobs import flat
from eventq.errors import (
    ConflictError,
    DamagedError,
    EventqError,
    InputError,
    LogicError,
    UnknownArtifactError,
    UsageError,
)
from eventq.event import check_positive
from eventq.records import ArtifactInfo
from eventq.storage.sqlite.outputs import OutputTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, BinaryIO

    from eventq.storage.sqlite.database import Database

    Names = list[str]
    Pieces = Callable[[], Iterable[bytes]]
    Taken = list[tuple[ArtifactInfo, bool]]

TRANSITIONS = {
    "open": {"written": "open", "sealed": "sealed", "gave up": "failed", "writer died": "partial"},
    "sealed": {},
    "failed": {},
    "partial": {},
}
CHUNK = 1 << 16  # bytes of a chunk
COMMIT_BYTES = 4 << 20  # that wait for a transaction at most
COMMIT_SECONDS = 1.0  # that they wait at most, while somebody writes or calls `tick`
LARGEST_ID = (1 << 62) - 1  # larger ones that come from elsewhere are given anew: there must be a next one
LISTED = 100  # names that an error lists
_TOOL = 64  # characters of a tool's name
_LEVEL = 1  # of zstd: log text at 500 MB/s, to less than a half
_FILE = re.compile(r"([0-9]{1,19})\.([^/]*?)(\.partial)?\.log", re.DOTALL)
_COUNTER = "artifact"


def tool_name(text: str) -> str:
    """Give a tool's name as it can stand in the name of a file: letters, digits, `_` and `-`, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:_TOOL].rstrip("_") or "tool"


class ArtifactWriter:
    """An artifact on its way in: `write`, then `seal` or `fail`; as a context manager it does the one or the other.

    What is written is on the disk after COMMIT_BYTES or COMMIT_SECONDS, and all of it when `seal` returns. Not for two
    threads at once.
    """

    def __init__(self, table: OutputTable, artifact_id: int, owner: str) -> None:
        """Write to an artifact that is open and this process's."""
        self.artifact_id = str(artifact_id)
        self._table = table
        self._number = artifact_id
        self._owner = owner
        self._compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self._hasher = blake3()
        self._tail = bytearray()  # of the last chunk, whether it is stored already or not
        self._ready: list[tuple[int, int, bytes]] = []  # position, newlines before, bytes as they are kept
        self._position = 0  # of the last chunk
        self._newlines = 0  # before it
        self._last = b"\n"  # byte of the chunk before it
        self._size = 0
        self._stored = 0  # of the size
        self._since = 0.0  # that something waits
        self._ended = False
        self._broken = ""  # why bytes that were given could not be stored

    def __enter__(self) -> ArtifactWriter:
        """Give the writer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, _: TracebackType | None) -> None:
        """Seal the artifact, or say why it is not whole."""
        if self._ended:
            return
        if kind is None:
            self.seal()
            return
        try:
            self.fail("it was interrupted" if issubclass(kind, KeyboardInterrupt) else str(why) or kind.__name__)
        except EventqError:
            pass  # the first error tells more; when this process has ended, the artifact is partial

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes. Raises what a transaction raises, after which `fail` is all that is left to do."""
        self._check_sound()
        view = as_bytes(data)
        self._hasher.update(view)
        if self._size == self._stored:
            self._since = system.monotonic()
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
        """Store what has waited for its time."""
        if self._size > self._stored and system.monotonic() - self._since >= COMMIT_SECONDS:
            self._commit()

    def _add_chunk(self, chunk: bytes) -> None:
        self._ready.append((self._position, self._newlines, self._compress(chunk)))
        self._position += 1
        self._newlines += chunk.count(b"\n")
        self._last = chunk[-1:]

    def _commit(self) -> None:
        self._broken = "the writing was interrupted"  # until it has worked: what is not stored would be a hole
        try:
            with self._table.database.write():
                self._store()
        except EventqError as error:
            self._broken = error.what
            raise
        self._broken = ""
        self._stored = self._whole()
        self._ready.clear()
        self._since = system.monotonic()

    def _store(self) -> None:
        """Store what waits, inside `write`; that it is stored is noted after the commit."""
        if not self._table.grow(self._number, self._owner, self._stored, self._whole(), self._lines()):
            raise self._gone()
        for position, newlines, stored in self._ready:
            self._table.set_chunk(self._number, position, newlines, stored)
        if self._tail:
            self._table.set_chunk(self._number, self._position, self._newlines, self._compress(bytes(self._tail)))

    def _whole(self) -> int:
        """Give the bytes that are in chunks or in the tail: in the middle of a write not yet all."""
        return self._position * CHUNK + len(self._tail)

    def _gone(self) -> ConflictError:
        return ConflictError(
            f"artifact {self._number} is not what was written: it was deleted, or a transaction around it undone",
            "write another one", self._number,
        )  # fmt: skip

    def _lines(self) -> int:
        """Give how many lines there are: one that has not ended is one."""
        last = self._tail[-1:] if self._tail else self._last
        return self._newlines + self._tail.count(b"\n") + (last != b"\n")

    def seal(self) -> ArtifactInfo:
        """Store what is left, durably, and have the artifact be whole. What fails may be tried again."""
        self._check_sound()
        return self._end("sealed", self._hasher.digest(), None)

    def fail(self, why: str) -> None:
        """Store what is left, unless there is a hole, and say why the artifact never will be whole.

        What fails may be tried again; until then, or until this process ends, the artifact is open.
        """
        self._check_open()
        self._end("failed", None, why.encode("utf-8", "backslashreplace").decode())

    def _end(self, status: str, digest: bytes | None, why: str | None) -> ArtifactInfo:
        with self._table.database.write():
            if not self._broken:
                self._store_or_leave(status)
            if not self._table.end(self._number, self._owner, status, digest, why, system.milliseconds()):
                raise self._gone()
            row = self._table.row(self._number)
        self._ended = True
        assert row is not None  # it was changed in the same transaction
        return _info(row)

    def _store_or_leave(self, status: str) -> None:
        """Store what waits; where what was before it is undone, one that fails does so without it."""
        try:
            with self._table.database.write():
                self._store()
        except ConflictError:
            if status == "sealed":
                raise

    def _check_sound(self) -> None:
        self._check_open()
        if self._broken:
            raise LogicError(f"artifact {self._number} has a hole: {self._broken}", "write another one")

    def _check_open(self) -> None:
        if self._ended:
            raise LogicError(f"artifact {self._number} has been ended", "allocate another one")


class Artifact:
    """An artifact to be read, as far as it was when it was opened."""

    def __init__(self, table: OutputTable, info: ArtifactInfo) -> None:
        """Read what `info` says there is."""
        self.info = info
        self._table = table
        self._number = int(info.artifact_id)
        self._decompress = zstandard.ZstdDecompressor().decompress

    def read(self) -> bytes:
        """Give all bytes."""
        return b"".join(self.stream())

    def stream(self) -> Iterator[bytes]:
        """Give all bytes in pieces of 64 KiB, each checked; at the end they are compared with the artifact's hash."""
        hasher = blake3()
        for piece in self._pieces(0):
            hasher.update(piece)
            yield piece
        if self.info.hash is not None and hasher.hexdigest() != self.info.hash:
            raise self._damaged("its bytes do not have its hash")

    def lines_from(self, offset: int) -> Iterator[bytes]:
        """Give the bytes from line `offset` on, counted from 1, in pieces; nothing of those before is read."""
        if offset > max(self.info.lines, 1):
            return
        position, before = self._table.chunk_of_newline(self._number, offset - 1) or (0, 0)
        pieces = self._pieces(position)
        yield next(pieces, b"").split(b"\n", offset - 1 - before)[-1]
        yield from pieces

    def _pieces(self, position: int) -> Iterator[bytes]:
        while (size := min(self.info.size - position * CHUNK, CHUNK)) > 0:
            yield self._chunk(position, size)
            position += 1

    def _chunk(self, position: int, size: int) -> bytes:
        stored = self._table.chunk(self._number, position)
        if stored is None:
            raise self._damaged(f"its chunk {position} is not there")
        try:
            length = zstandard.frame_content_size(stored)
            if not size <= length <= CHUNK or (self.info.hash is not None and length != size):
                raise self._damaged(f"its chunk {position} has {length} bytes, not {size}")
            return self._decompress(stored)[:size]
        except (zstandard.ZstdError, TypeError) as error:
            raise self._damaged(f"its chunk {position} cannot be decompressed ({error})") from error

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(f"artifact {self._number} is damaged: {why}", "restore a backup")


class Artifacts:
    """The artifacts of one thread."""

    def __init__(self, db: Database) -> None:
        """Use a store; nothing is read yet."""
        self._db = db
        self.table = OutputTable(db)

    # --- in -------------------------------------------------------------------------------------------------------

    def allocate(self, tool: str = "tool") -> ArtifactWriter:
        """Begin an artifact under the next number, which is nobody else's, and give what writes it."""
        return self._begin(None, _checked(tool))

    def _begin(self, number: int | None, tool: str) -> ArtifactWriter:
        self._db.check_writable()
        owner = _owner()
        with self._db.write():
            if number is None:
                number = self.table.next(_COUNTER)
            else:
                self.table.pass_by(_COUNTER, number)
            self.table.add(number, tool, owner, system.milliseconds())
        return ArtifactWriter(self.table, number, owner)

    def put(self, data: bytes | bytearray | memoryview | BinaryIO, tool: str = "tool") -> ArtifactInfo:
        """Keep bytes, or all that a binary file gives, as an artifact; give it sealed."""
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
                    raise InputError(f"the file gives {type(piece).__name__}, not bytes", "open it in binary mode")
                writer.write(piece)
            return writer.seal()

    def remove(self, artifact_id: str | int) -> None:
        """Delete an artifact; its number is never used again. Raises UnknownArtifactError, ConflictError."""
        with self._db.write():
            info = self.get(artifact_id)
            if info.status == "open":
                raise ConflictError(
                    f"artifact {artifact_id} is still being written", "wait for its end, or end its writer",
                    int(info.artifact_id),
                )  # fmt: skip
            self.table.remove(int(info.artifact_id), system.milliseconds())

    # --- out ------------------------------------------------------------------------------------------------------

    def get(self, artifact_id: str | int) -> ArtifactInfo:
        """Say how far an artifact is. Raises UnknownArtifactError."""
        number = _number(artifact_id)
        row = None if number is None else self.table.row(number)
        if row is None:
            raise UnknownArtifactError(str(artifact_id), self.available())
        return _info(row)

    def open(self, artifact_id: str | int) -> Artifact:
        """Give an artifact to be read, whole or as far as it is. Raises UnknownArtifactError."""
        return Artifact(self.table, self.get(artifact_id))

    def list(self) -> list[ArtifactInfo]:
        """Say how far each artifact is, in the order of their numbers."""
        return list(self)

    def __iter__(self) -> Iterator[ArtifactInfo]:
        """Say how far each artifact is, one by one."""
        return map(_info, self.table.rows())

    def __len__(self) -> int:
        """Give the number of artifacts."""
        return self.table.count()

    def available(self) -> str:
        """Give the numbers of what is whole, as an error lists them: the first 100, `none` for none."""
        return listed([str(number) for number in self.table.sealed(LISTED)], self.table.count_sealed())

    # --- folders --------------------------------------------------------------------------------------------------

    def export_folder(self, folder: str, ids: Iterable[str | int] | None = None) -> Names:
        """Write artifacts, all unless told, to a folder as `{id}.{tool}.log` files, and give their names.

        One that is not whole is written as `{id}.{tool}.partial.log`. A file that is there already and the same is left
        alone; raises ConflictError for one that is not, OSError.
        """
        names = []
        for info in self if ids is None else map(self.get, ids):
            stem = os.path.join(folder, f"{info.artifact_id}.{info.tool}")
            whole = info.status == "sealed"
            path = f"{stem}.log" if whole else f"{stem}.partial.log"
            save_or_compare(path, Artifact(self.table, info).stream(), info.hash)
            if whole and os.path.lexists(f"{stem}.partial.log"):
                os.unlink(f"{stem}.partial.log")  # of an export when it was not
            names.append(os.path.basename(path))
        return names

    def import_folder(self, folder: str) -> dict[str, ArtifactInfo]:
        """Keep the `{id}.{tool}.log` files of a folder as artifacts; give them by the names of the files.

        Each gets its own number where that is free, else the next one; what is there already is found again, so
        importing twice adds nothing. Numbers go on after the highest one. Raises OSError.
        """
        names = [name for name in os.listdir(folder) if is_plain(os.path.join(folder, name))]
        found = [(int(match[1]), match) for name in names if (match := _FILE.fullmatch(name))]
        found.sort(key=lambda one: (one[0], one[1][0]))
        told = [
            ArtifactInfo(match[1], match[2], "failed" if match[3] else "sealed", 0, 0, None, None, 0, None)
            for _, match in found
        ]
        paths = [os.path.join(folder, match[0]) for _, match in found]
        made = self.take_all((one, partial(_read, path)) for one, path in zip(told, paths, strict=True))
        return {match[0]: info for (_, match), (info, _) in zip(found, made, strict=True)}

    def take_all(self, incoming: Iterable[tuple[ArtifactInfo, Pieces]]) -> Taken:
        """Keep artifacts from elsewhere, each as one change; give what each is here, and whether it is new.

        Each gets its own number where nobody has or had that, else one after all of them. One that is here already is
        found again. Hashes and times are compared and kept where they are told. Raises DamagedError.
        """
        taken: set[int] = set()
        given = list(incoming)
        made = [self.take(told, pieces, taken, anew=False) for told, pieces in given]
        return [one or self.take(*given[at], taken, anew=True) for at, one in enumerate(made)]  # type: ignore[misc]

    def take(
        self, told: ArtifactInfo, pieces: Pieces, taken: set[int], *, anew: bool = True
    ) -> tuple[ArtifactInfo, bool] | None:
        """Keep one artifact from elsewhere; unless `anew`, give None when that would need another number.

        One that is here and not in `taken` is found again, and then is in `taken`.
        """
        tool, whole = tool_name(told.tool), told.status == "sealed"
        own = int(told.artifact_id) if int(told.artifact_id) <= LARGEST_ID else None
        digest, size = hash_of(pieces())
        if told.hash not in (None, digest):
            raise _changed(told)
        with self._db.write():
            info = self._find(own, tool, digest, size, taken, whole=whole)
            new = info is None
            if info is None:
                free = own is not None and self.table.is_unused(own)
                if not free and not anew:
                    return None
                info = self._keep(own if free else None, tool, pieces(), whole=whole, created=told.created_at_ms)
            if own is not None:
                self.table.pass_by(_COUNTER, own)
            if whole and info.hash != digest:  # the bytes changed between two readings
                raise _changed(told)
        taken.add(int(info.artifact_id))
        return info, new

    def _keep(
        self, number: int | None, tool: str, pieces: Iterable[bytes], *, whole: bool, created: int
    ) -> ArtifactInfo:
        with self._begin(number, tool) as writer:
            for piece in pieces:
                writer.write(piece)
            if not whole:
                writer.fail("it was incomplete when it was exported")
        if created:
            self.table.set_times(int(writer.artifact_id), created)
        return self.get(writer.artifact_id)

    def _find(
        self, number: int | None, tool: str, digest: str, size: int, taken: set[int], *, whole: bool
    ) -> ArtifactInfo | None:
        """Give the artifact that is the same: of this number, or of any that was not found before."""
        mine = None if number is None else self.table.row(number)
        for row in [mine, *self.table.alike(tool, bytes.fromhex(digest), size)]:
            if row is None or row[0] in taken or (row[1], row[4]) != (tool, size):
                continue
            info = _info(row)
            if info.hash == digest if whole else self._is_part(info, digest):
                return info
        return None

    def _is_part(self, info: ArtifactInfo, digest: str) -> bool:
        return info.hash is None and hash_of(Artifact(self.table, info).stream())[0] == digest

    def is_same(self, told: ArtifactInfo, pieces: Callable[[], Iterable[bytes]]) -> bool:
        """Say whether the artifact of a number is the one that is told of, or its number was never given."""
        number = int(told.artifact_id)
        row = self.table.row(number) if number <= LARGEST_ID else None
        if row is None:
            return number <= LARGEST_ID and self.table.is_unused(number)
        info = _info(row)
        if told.hash is not None:
            return (info.hash, info.tool) == (told.hash, told.tool)
        return info.tool == told.tool and self._is_part(info, hash_of(pieces())[0])

    # --- looking for damage ---------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Say of each damaged artifact what is wrong, in a sentence; all bytes are read."""
        for info in self:
            newlines, last = 0, b"\n"
            noted = iter(self.table.newlines(int(info.artifact_id)))
            wrong = False
            try:
                for piece in Artifact(self.table, info).stream():
                    wrong |= next(noted, None) != newlines
                    newlines += piece.count(b"\n")
                    last = piece[-1:]
            except DamagedError as error:
                yield error.what
                continue
            lines = newlines + (last != b"\n")
            if wrong:
                yield f"artifact {info.artifact_id} says of a chunk that another number of lines comes before it"
            if info.lines != lines:
                yield f"artifact {info.artifact_id} says that it has {info.lines} lines, and has {lines}"


def as_bytes(data: object) -> memoryview:
    """Give bytes of any shape as a flat row of bytes; raise InputError for what is none."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(f"an artifact is bytes, not {type(data).__name__}", "encode it, or give a binary file")
    return flat(data)


def _changed(told: ArtifactInfo) -> DamagedError:
    return DamagedError(f"the bytes of artifact {told.artifact_id} do not have its hash", "import it again")


def in_memory() -> Artifacts:
    """Give artifacts that are kept in memory only, for as long as they are used: for somebody without a thread.

    Their numbers work for the caller; no URL leads to them.
    """
    from eventq.storage.sqlite.memory import MemoryDatabase

    return Artifacts(MemoryDatabase())


def listed(names: list[str], count: int) -> str:
    """Give names as an error lists them: `none` for none, and how many more there are."""
    return (", ".join(names) or "none") + (f", and {count - len(names)} more" if count > len(names) else "")


def _checked(tool: object) -> str:
    if not isinstance(tool, str):
        raise UsageError(f"the tool's name must be text, not {type(tool).__name__}", "give a string such as 'bash'")
    return tool_name(tool)


def _number(artifact_id: object) -> int | None:
    """Give the number that an artifact's id spells, None for what spells none: digits, no zero in front."""
    text = str(artifact_id)
    if not text.isascii() or not text.isdigit() or len(text) > 19 or (text[0] == "0" and text != "0"):
        return None
    return int(text) if int(text) < 1 << 63 else None


def _owner() -> str:
    """Give what tells a writer from all others on this machine: a number of its own, and its process."""
    return f"{os.urandom(6).hex()}:{os.getpid()}:{system.namespace()}:{system.birth(os.getpid())}"


def _is_alive(owner: str | None) -> bool:
    """Say whether a writer's process runs; one of another container cannot be seen, and is taken to run."""
    _, pid, namespace, birth = [*(owner or "").split(":", 3), "", "", ""][:4]
    if not pid.isascii() or not pid.isdigit() or len(pid) > 9 or not birth:
        return False
    return namespace != system.namespace() or system.birth(int(pid)) == birth


def _info(row: tuple[Any, ...]) -> ArtifactInfo:
    number, tool, status, owner, size, lines, digest, error, created, ended = row
    if status == "open" and not _is_alive(owner):
        status = TRANSITIONS[status]["writer died"]
    return ArtifactInfo(str(number), tool, status, size, lines, digest and digest.hex(), error, created, ended)


def save_or_compare(path: str, pieces: Iterable[bytes], digest: str | None) -> None:
    """Write a file; leave one alone that is there and has a hash already. Raises ConflictError for any other one.

    Without a hash a file that is there is written anew: it grows.
    """
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ConflictError(f"'{path}' is there already, and is no file", "give another folder", 0)
    if digest is None or not os.path.exists(path):
        system.save(path, pieces)
    elif hash_of(_read(path, follow=True))[0] != digest:
        raise ConflictError(f"'{path}' is there already, and is another", "give another folder", 0)


def is_plain(path: str) -> bool:
    """Say whether a path is a file of its own: a link in a folder from elsewhere may lead anywhere."""
    return os.path.isfile(path) and not os.path.islink(path)


def _read(path: str, *, follow: bool = False) -> Iterator[bytes]:
    with system.open_regular(path, follow=follow) as file:
        yield from iter(lambda: file.read(CHUNK), b"")


def hash_of(pieces: Iterable[bytes]) -> tuple[str, int]:
    """Give the hash and the size of what comes in pieces."""
    hasher = blake3()
    size = 0
    for piece in pieces:
        hasher.update(piece)
        size += len(piece)
    return hasher.hexdigest(), size


def check_lines(offset: int | None, limit: int | None) -> None:
    """Raise UsageError for lines that cannot be asked for."""
    if offset is not None:
        check_positive(offset, "offset")
    if limit is not None:
        check_positive(limit, "limit")
