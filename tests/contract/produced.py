"""What tests of artifacts, outputs and URLs build and compare with."""

from __future__ import annotations

import os
import random

from eventq.output.artifacts import CHUNK

_CHANCE = random.Random(41)
NOISE = _CHANCE.randbytes(3 * CHUNK)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _CHANCE.randrange(10**9)) for n in range(9_000))
BLOCK = TEXT[: CHUNK - 1] + b"\n"
THREE = TEXT[: 2 * CHUNK + 1000]  # in three chunks


def line_count(data: bytes) -> int:
    """Return how many lines there are: one that has not ended is one."""
    return data.count(b"\n") + (data != b"" and data[-1:] != b"\n")


def from_line(data: bytes, offset: int) -> bytes:
    """Return the bytes from a line on, in the slow and simple way."""
    return b"\n".join(data.split(b"\n")[offset - 1 :])


def save(folder: str, **files: bytes) -> None:
    """Write files into a folder; `_` in a name stands for a dot."""
    for name, data in files.items():
        write_file(folder, name.lstrip("_").replace("_", "."), data)


def write_file(folder: str, name: str, data: bytes) -> None:
    """Write a file."""
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def files(folder: str) -> dict[str, bytes]:
    """Return all files of a folder."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


class Flood:
    """A file that gives so many blocks, and perhaps breaks then."""

    def __init__(self, blocks: int, error: Exception | None = None) -> None:
        self._left = blocks
        self._error = error
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, never more than is asked for."""
        assert size > 0
        if not self._rest and self._left:
            self._left -= 1
            self._rest = BLOCK
        if not self._rest and self._error is not None:
            raise self._error
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
