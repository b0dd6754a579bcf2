"""Blobs, turns and growing sequences as the domain and an engine exchange them.

A digest is the 32 bytes of a BLAKE3 hash; 0 means "no turn"; times are milliseconds since 1970.
"""

from __future__ import annotations

from eventq.errors import BusyError
from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.spent import Spent

# How the bytes of a blob are stored: as they are, as a zstd frame, as a list of parts. What was
# erased has none, or others in their place.
NONE, ZSTD, PARTS, GONE = range(4)


class BlobRow(Record):
    """A stored blob, without its bytes; `part` says that it is only a part of others."""

    digest: bytes
    size: int
    stored: int
    codec: int
    part: bool


class Piece(Record):
    """Bytes as they are stored, at most 1 MiB: cut, hashed and compressed by the domain."""

    digest: bytes
    size: int
    codec: int
    stored: bytes | bytearray | memoryview


class PreparedBlob(Record):
    """A blob that is one piece, or the list `parts`; `pieces` are those that are not stored yet.

    With neither it is a blob that was found stored, and verified. `refs` have to be stored; of the
    `mentions`, digests that its text names, those are refs that are stored.
    """

    digest: bytes
    size: int
    pieces: tuple[Piece, ...]
    parts: tuple[bytes, ...]
    refs: tuple[bytes, ...]
    mentions: tuple[bytes, ...] = ()


class Holder(Record):
    """What keeps a blob: a kind, a name, and the turn that it has to do with, 0 for none.

    The turn of an attempt is the one that it came after.
    """

    kind: str
    name: str
    turn: int


class TurnRow(Record):
    """A turn as it is read; `digest`, `size` and `codec` are None, 0 and 0 for a tombstone."""

    turn: int
    parent: int
    depth: int
    type_id: str
    type_version: int
    encoding: int
    flags: int
    at: int
    canonical: str | None
    patch: int
    digest: bytes | None
    size: int
    codec: int


class Link(Record):
    """The position of a turn in the graph; `parent` is 0 for a root."""

    parent: int
    depth: int


class PreparedTurn(Record):
    """A turn that can be appended: checked and hashed by the domain."""

    blob: PreparedBlob
    type_id: str
    type_version: int
    encoding: int
    flags: int
    canonical: str | None
    spent: Spent | None = None  # what the model took for it, if it says so


class AppendTo(Record):
    """Where a turn goes, under which conditions, and what changes with it.

    `key_digest` identifies the payload of the `key`. An event from `source` reports the turn.
    The open turn `seals`, if it is as long as the payload, becomes this one. It gets the `root`
    of a file tree, which is a stored blob unless it is a `foreign_root`.
    """

    parent: int | None = None
    expected_head: int | None = None
    key: str | None = None
    key_digest: bytes = b""
    source: str | None = None
    seals: int | None = None
    root: bytes | None = None
    foreign_root: bool = False


class StreamPiece(Record):
    """Some bytes of a stream, at most 1 MiB, as they are stored.

    `position` counts from 0; None lets the engine choose the next one, or join the bytes to the
    last piece while that is small. `newlines` counts those before it, where lines are counted.
    """

    position: int | None
    newlines: int
    stored: bytes | bytearray | memoryview


class Growth(Record):
    """What a stream grows by: `size` bytes, up to `lines` lines (0: not counted), in `pieces`."""

    size: int
    lines: int
    pieces: tuple[StreamPiece, ...]


class Ending(Record):
    """How a stream ends: `sealed` or `failed`; `discarded` for an open turn only."""

    status: str
    digest: bytes | None = None
    error: str | None = None


class GoneError(BusyError):
    """A collection deleted what was found or stored ahead of a transaction."""

    def __init__(self) -> None:
        super().__init__(
            "a collection deleted parts of what was being stored",
            "nothing was stored; give it again",
        )
