"""A data directory as a CXDB server writes it, byte for byte; made from the layout, with none of the server's code.

Everything is little-endian, every file is only ever appended to, and a crc is the CRC-32 of what stands before it in
its record. What the server does at each request, in this order:

    PUT_BLOB      a blob that is not there: a record in `blobs/blobs.pack`, an entry in `blobs/blobs.idx`
    CTX_CREATE    a record in `turns/heads.tbl`: the head and depth of the base turn, or 0 and 0, and the time now
    APPEND_TURN   the payload as PUT_BLOB, raw; a record in `turns/turns.log` (type_tag 0, flags 0), an entry in
                  `turns/turns.idx`, one in `turns/turns.meta`, and a head with the time of the turn
    ATTACH_FS     a record in `fs/roots.idx`

A blob is stored as a zstd frame of level 1 that was made as a stream, so without its length, where that is shorter.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import zstandard
from blake3 import blake3

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    "blobs/blobs.pack", "blobs/blobs.idx", "turns/turns.log", "turns/turns.idx", "turns/turns.meta", "turns/heads.tbl",
    "fs/roots.idx",
)  # fmt: skip


def _sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


class CxdbDirectory:
    """A server's data, and what it would remember of it; `now` is its clock, in ms."""

    def __init__(self, folder: Path, now: int = 1_773_829_800_000) -> None:
        """Begin as a server does: every file is there, and empty."""
        self.folder = folder
        self.now = now
        self._turns: dict[int, int] = {0: -1}  # their depths
        self._heads: dict[int, int] = {}
        self._blobs: set[bytes] = set()
        for name in NAMES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()

    def _add(self, name: str, data: bytes) -> int:
        """Append to a file; return where."""
        with (self.folder / name).open("ab") as file:
            at = file.tell()
            file.write(data)
        return at

    def put(self, data: bytes) -> bytes:
        """Store a blob; return its hash."""
        digest = blake3(data).digest()
        if digest in self._blobs:
            return digest
        self._blobs.add(digest)
        stream = zstandard.ZstdCompressor(level=1).compressobj()
        folded = stream.compress(data) + stream.flush()
        codec, stored = (1, folded) if len(folded) < len(data) else (0, data)
        head = struct.pack("<IHHII32s", 0x42534C42, 1, codec, len(data), len(stored), digest)
        offset = self._add("blobs/blobs.pack", _sealed(head + stored))
        entry = struct.pack("<32sQIIHH", digest, offset, len(data), len(stored), codec, 0)
        self._add("blobs/blobs.idx", entry)
        return digest

    def create(self, base: int = 0) -> int:
        """Make a context; return its id."""
        self._heads[len(self._heads) + 1] = base
        self._head(len(self._heads), self.now)
        return len(self._heads)

    def _head(self, context_id: int, at: int) -> None:
        head = self._heads[context_id]
        record = struct.pack("<QQIIQ", context_id, head, max(0, self._turns[head]), 0, at)
        self._add("turns/heads.tbl", _sealed(record))

    def append(
        self, context_id: int, payload: bytes, parent: int = 0, type_id: str = "cxdb.ConversationItem",
        version: int = 3, encoding: int = 1, compression: int = 0,
    ) -> int:  # fmt: skip
        """Append a turn; return its id. `compression` is what the payload came in."""
        digest = self.put(payload)
        parent = parent or self._heads[context_id]
        turn_id = len(self._turns)
        self._turns[turn_id] = depth = self._turns[parent] + 1
        record = struct.pack(
            "<QQIIQ32sIQ", turn_id, parent, depth, encoding, 0, digest, 0, self.now
        )
        offset = self._add("turns/turns.log", _sealed(record))
        self._add("turns/turns.idx", struct.pack("<QQ", turn_id, offset))
        name = type_id.encode()
        meta = struct.pack("<QI", turn_id, len(name)) + name
        meta += struct.pack("<IIII", version, encoding, compression, len(payload))
        self._add("turns/turns.meta", meta)
        self._heads[context_id] = turn_id
        self._head(context_id, self.now)
        return turn_id

    def attach(self, turn_id: int, root: bytes) -> None:
        """Attach the root of a file tree to a turn."""
        self._add("fs/roots.idx", _sealed(struct.pack("<Q32s", turn_id, root)))
