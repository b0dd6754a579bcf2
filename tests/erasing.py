"""What the tests of erasures share: texts that compress badly, and the search for what is left."""

from __future__ import annotations

import base64
import json
import os
import random
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
_PIECE = 24  # bytes of a part that is sought: a page may hold any part of a text


def secret(seed: int, size: int = 400) -> str:
    """Return a text with quotes, lines and signs beyond ASCII that hardly compresses."""
    chance = random.Random(seed)
    text = base64.b85encode(chance.randbytes(size)).decode()
    return f'"{text[: size // 2]}"\n☃ {text[size // 2 :]}'


def remains(folder: str, text: str | bytes, *, whole: bool = False) -> list[str]:
    """Return where a folder's files hold a part of a text, in which spelling.

    The files are searched as they are, and each zstd frame in them decompressed. `whole` looks for
    the spelling of the whole text only.
    """
    raw = text.encode() if isinstance(text, str) else text
    found = []
    spelled = {name: [*_parts(data, whole=whole)] for name, data in _spellings(raw)}
    for path in _files(folder):
        with open(path, "rb") as file:
            data = file.read()
        for kind, content in (("", data), *(("in zstd ", one) for one in _unzipped(data))):
            found += [
                f"{os.path.relpath(path, folder)}: {kind}{name}"
                for name, parts in spelled.items()
                if any(part in content for part in parts)
            ]
    return found


def _files(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                yield path


def _spellings(raw: bytes) -> Iterator[tuple[str, bytes]]:
    yield "plain", raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        pass
    else:
        yield "JSON", json.dumps(text, ensure_ascii=False)[1:-1].encode()
        yield "ASCII JSON", json.dumps(text)[1:-1].encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)
        yield f"base64 {before}", encoded[4 if before else 0 : len(encoded) // 4 * 4 - 4]
    stored = zstandard.ZstdCompressor(level=1).compress(raw)
    if len(stored) > 2 * _PIECE:
        yield "zstd", stored[_PIECE:]  # past a head that others have too


def _parts(data: bytes, *, whole: bool) -> Iterator[bytes]:
    if whole or len(data) <= _PIECE:
        yield data
        return
    for start in range(0, len(data) - _PIECE, max(97, len(data) // 200)):
        yield data[start : start + _PIECE]


def _unzipped(data: bytes) -> Iterator[bytes]:
    at = data.find(_FRAME)
    while at >= 0:
        try:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
        except zstandard.ZstdError:
            pass
        at = data.find(_FRAME, at + 1)
