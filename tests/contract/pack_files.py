"""Packs as another program would write them, without eventq's own code for the format."""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import zstandard
from blake3 import blake3

from eventq.transfer.packfile import rebuild_indexes

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.records.turn import Imported

FILES = [
    "blobs.idx", "blobs.pack", "eventq.ndjson", "heads.tbl", "turns.idx", "turns.log", "turns.meta",
]  # fmt: skip
NOTHING = (0, 0, 0, 0)  # what `added` returns where nothing came
BORN = 1773829800123  # where the clock of the tests stands
_PLACES = {
    "blob": "blobs.pack",
    "turn": "turns.log",
    "meta": "turns.meta",
    "head": "heads.tbl",
    "beside": "eventq.ndjson",
}


def sealed(body: bytes) -> bytes:
    """Return a record with its checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def digest(raw: bytes) -> bytes:
    """Return the hash of a payload."""
    return bytes(blake3(raw).digest())


def tag(type_id: str) -> int:
    """Return the number of a type."""
    return int(struct.unpack("<Q", digest(type_id.encode())[:8])[0])


def kept_blob(hashed: bytes, codec: int, raw_len: int, stored: bytes) -> bytes:
    """Return a record of blobs.pack, whether it is true or not."""
    head = struct.pack("<IHHII", 0x42534C42, 1, codec, raw_len, len(stored))
    return sealed(head + hashed + stored)


def blob(raw: bytes, *, zstd: bool = False) -> bytes:
    """Return a record of blobs.pack."""
    stored = zstandard.ZstdCompressor(level=1).compress(raw) if zstd else raw
    return kept_blob(digest(raw), zstd, len(raw), stored)


def blob_entry(raw: bytes, offset: int, *, zstd: bool = False) -> bytes:
    """Return an entry of blobs.idx."""
    kept = len(blob(raw, zstd=zstd)) - 52
    return struct.pack("<32sQIIHH", digest(raw), offset, len(raw), kept, zstd, 0)


def turn(
    turn_id: int, parent: int, depth: int, raw: bytes, *, at: int = BORN, number: int | None = None,
    encoding: int = 0, flags: int = 0,
) -> bytes:  # fmt: skip
    """Return a record of turns.log."""
    number = tag("message") if number is None else number
    own = turn_id, parent, depth, encoding, number
    return sealed(struct.pack("<QQIIQ32sIQ", *own, digest(raw), flags, at))


def meta(
    turn_id: int, type_id: str = "message", version: int = 1, encoding: int = 0, length: int = 0,
    compression: int = 0,
) -> bytes:  # fmt: skip
    """Return a record of turns.meta."""
    text = type_id.encode()
    head = struct.pack("<QI", turn_id, len(text))
    return head + text + struct.pack("<IIII", version, encoding, compression, length)


def head(context_id: int, turn_id: int, depth: int, *, at: int = BORN, flags: int = 0) -> bytes:
    """Return a record of heads.tbl."""
    return sealed(struct.pack("<QQIIQ", context_id, turn_id, depth, flags, at))


def line(**told: Any) -> bytes:
    """Return a line of eventq.ndjson."""
    return json.dumps(told).encode() + b"\n"


def sums(turns_meta: bytes, beside: bytes) -> bytes:
    """Return the last line of eventq.ndjson: the hashes of what has no checksums."""
    hashes = f'"turns.meta":"{digest(turns_meta).hex()}","eventq.ndjson":"{digest(beside).hex()}"'
    return f'{{"sums":{{{hashes}}}}}\n'.encode()


def write(folder: Path, **files: bytes) -> Path:
    """Write a pack of the files that are given: `blob`, `turn`, `meta`, `head`, `beside`."""
    folder.mkdir()
    for kind, data in files.items():
        (folder / _PLACES[kind]).write_bytes(data)
    return folder


def small(folder: Path, count: int = 3, **files: bytes) -> Path:
    """Write a pack of a chain of turns `1`, `2`, … in context 1, with these changes."""
    numbers = range(1, count + 1)
    whole = {
        "blob": b"".join(blob(b"%d" % n) for n in numbers),
        "turn": b"".join(turn(n, n - 1, n - 1, b"%d" % n) for n in numbers),
        "meta": b"".join(meta(n, length=1) for n in numbers),
        "head": head(1, count, count - 1) if count else b"",
        "beside": b"",
    }
    return write(folder, **{**whole, **files})


def pack(
    folder: Path, *lines: Any, count: int = 0, blobs: tuple[bytes, ...] = (), head: bytes = b"",
    files: dict[str, bytes] | None = None,
) -> Path:  # fmt: skip
    """Write a pack of a chain of turns, other blobs, lines, and files of artifacts, with indexes."""
    raws = [*(b"%d" % n for n in range(1, count + 1)), *blobs]
    beside = b"".join(one + b"\n" if isinstance(one, bytes) else line(**one) for one in lines)
    small(folder, count, blob=b"".join(map(blob, raws)), beside=beside, head=head)
    rebuild_indexes(folder)
    for name, data in (files or {}).items():
        path = folder / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def artifact(
    number: Any = 0, tool: Any = "bash", status: Any = "sealed", at: Any = BORN, **more: Any
) -> dict[str, Any]:
    """Return the line of an artifact."""
    return {"artifact": number, "tool": tool, "status": status, "created_at_ms": at, **more}


def output(name: Any, data: bytes, version: Any = 1, at: Any = BORN) -> dict[str, Any]:
    """Return the line of an output."""
    return {"output": name, "version": version, "blob": digest(data).hex(), "created_at_ms": at}


def tree(folder: Path | str) -> dict[str, bytes]:
    """Return every file below a folder; of a link, what it points to."""
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if os.path.islink(path):
                data = os.readlink(path).encode()
            else:
                with open(path, "rb") as file:
                    data = file.read()
            found[os.path.relpath(path, folder)] = data
    return found


def flip(file: Path, at: int, bit: int = 1) -> None:
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[at] ^= bit
    file.write_bytes(data)


def added(found: Imported) -> tuple[int, int, int, int]:
    """Return how many blobs, turns and contexts came, and how many heads moved."""
    return found.blobs, found.turns, found.contexts, found.moved


def says(found: Imported, *words: str) -> bool:
    """Tell whether one note holds all of the words."""
    return any(all(word in note for word in words) for note in found.notes)
