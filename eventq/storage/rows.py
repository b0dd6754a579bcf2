"""What crosses the seam between the domain and an engine, beside the public records.

A digest is the 32 bytes of a BLAKE3 hash; 0 stands for "no turn"; times are milliseconds since
1970. Named tuples of `collections`: importing `typing` or `dataclasses` costs a command more than
storing a turn does. What a push, a pop or a peek handles is in `eventq.event`.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class BlobRow(NamedTuple):
        """A stored blob, without its bytes; `part` says that it is only a part of others."""

        digest: bytes
        size: int
        stored: int
        codec: int
        part: bool

    class Piece(NamedTuple):
        """Bytes as they are kept, at most 1 MiB: cut, hashed and compressed by the domain."""

        digest: bytes
        size: int
        codec: int
        stored: bytes | bytearray | memoryview

    class PreparedBlob(NamedTuple):
        """A blob that is one piece, or the list `parts`, of which `pieces` brings those not yet stored."""

        digest: bytes
        size: int
        pieces: tuple[Piece, ...]
        parts: tuple[bytes, ...]
        refs: tuple[bytes, ...]

    class TurnRow(NamedTuple):
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

    class HeadState(NamedTuple):
        """Where a context stands: its head (0 for none), the head's depth, and the moves so far."""

        head: int
        depth: int
        version: int
        is_run: bool

else:
    BlobRow = namedtuple("BlobRow", "digest size stored codec part")
    Piece = namedtuple("Piece", "digest size codec stored")
    PreparedBlob = namedtuple("PreparedBlob", "digest size pieces parts refs")
    TurnRow = namedtuple(
        "TurnRow",
        "turn parent depth type_id type_version encoding flags at canonical patch digest size codec",
    )
    HeadState = namedtuple("HeadState", "head depth version is_run")
