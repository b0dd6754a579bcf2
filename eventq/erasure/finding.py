"""Find every place where a text stands in a thread: in its tables, its blobs and its other files.

It is a scan, in bounded memory. The text is found as it is, and as JSON, `repr` and the journal
escape it; JSON in JSON too, as an event may hold. Blobs and artifacts are decompressed, and read
across their pieces.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import chain

from eventq.errors import InputError
from eventq.log.journal import printable
from eventq.memory.blobs import PART_BYTES
from eventq.record import Record
from eventq.records.checks import REF
from eventq.store.turn_rows import ZSTD
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.store.engine import Engine
    from eventq.store.paths import Layout

LEAST = 6  # characters of a text: a shorter one stands everywhere
MOST = 1 << 16
_BLOCK = 1 << 20  # bytes of a file that are in memory at once
UNESCAPED = re.compile(r"[ !#-&(-\[\]-~]+")  # what no spelling escapes
_NAMED = 100  # holders of a kind that are looked at
_LIST = {"turn", "patch", "attempt after turn", "line", "output", "file", "pin"}
# How people call a row of a table; others are named by the table.
_ROWS = {
    ("events", "content"): "event",
    "dead_letters": "dead letter",
    "unfinished": "attempt at event",
}


class Place(Record):
    """A place where a text stands.

    `kind` is event, turn, patch, line, attempt after turn, output, file, pin, blob, artifact, open
    artifact, open turn, dead letter, attempt at event, row, or path. `name` is its id; that of an
    artifact is scope/number, of a row its table and key, of a path the one in the thread's folder.
    `blob` is the ref of the blob that has the text there.
    """

    kind: str
    name: str
    blob: str | None = None


class Left(Record):
    """A place where a text still stands, and why."""

    place: Place
    why: str


class Found:
    """The places of texts, in the order of the scan, each once; `bytes` counts what was read."""

    def __init__(self, database: Engine, layout: Layout, texts: Iterable[str]) -> None:
        """Take the texts. Raises InputError for one that is too short or too long."""
        self._database = database
        self._layout = layout
        self._sought: list[bytes] = []
        self._signs: list[bytes] = []  # without one of these, none of them is there
        for text in texts:
            check(text)
            ways = spelled(text)
            self._sought += ways
            sign = max(UNESCAPED.findall(text), key=len, default="")
            self._signs += [sign.encode()] if len(sign) >= LEAST else ways
        self._overlap = max(map(len, self._sought)) - 1
        self.bytes = 0

    def __iter__(self) -> Iterator[Place]:
        """Yield the places."""
        seen: set[tuple[str, str]] = set()  # a step has a node, and another one for its text
        for place in chain(self._rows(), self._pieces(), self._files()):
            if place[:2] not in seen:
                seen.add(place[:2])
                yield place

    def _has(self, data: bytes) -> bool:
        self.bytes += len(data)
        return any(one in data for one in self._signs) and any(one in data for one in self._sought)

    # --- tables -----------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Place]:
        for table, rows in self._database.texts():
            if self._has(b"\0".join(chain.from_iterable(rows))):
                for name, *values in rows:
                    yield from self._of_row(table, name.decode(), values)

    def _of_row(self, table: str, name: str, values: list[bytes]) -> Iterator[Place]:
        if table == "events" and self._has(values.pop()):  # its content is the last
            yield Place("event", name)
        if any(map(self._has, values)):
            kind = _ROWS.get(table)
            yield Place(kind, name) if kind else Place("row", f"{table} {name}".rstrip())

    # --- blobs, artifacts, open turns -------------------------------------------------------------

    def _pieces(self) -> Iterator[Place]:
        last: tuple[str, int] | None = None
        found = tail = b""
        unzip = _unzip()
        done = False
        for kind, rows in self._database.erasures.pieces():
            for number, _, codec, stored in rows:
                if (kind, number) != last:
                    last, tail, done = (kind, number), b"", False
                if done:
                    continue
                found = tail + (unzip(stored) if codec == ZSTD else stored)
                if self._has(found):
                    done = True
                    yield from self._named(kind, number)
                tail = found[-self._overlap :] if kind != "blob" else b""

    def _named(self, kind: str, number: int) -> Iterator[Place]:
        """Yield the places that a number of an engine stands for."""
        place = self._database.erasures.place(kind, number)
        if place is None:  # it was deleted meanwhile
            return
        name, digest = place
        if digest:
            yield from self._holders(digest)
        elif kind == "artifact":
            name, _, status = name.rpartition("/")
            yield Place("open artifact" if status == "open" else kind, name)
        else:
            yield Place(kind, name)

    def _holders(self, digest: bytes) -> Iterator[Place]:
        """Yield what holds a blob, and what holds the nodes that name it, which people call so."""
        ref = REF + digest.hex()
        holders = self._database.blobs.holders(digest, _NAMED)
        if not any(one.kind in _LIST for one in holders):
            nodes = [bytes.fromhex(one.name) for one in holders if one.kind == "blob"]
            holders = [one for node in nodes for one in self._database.blobs.holders(node, _NAMED)]
        places = [Place(one.kind, one.name, ref) for one in holders if one.kind in _LIST]
        yield from places or [Place("blob", ref, ref)]

    # --- files ------------------------------------------------------------------------------------

    def _files(self) -> Iterator[Place]:
        top = self._layout.directory
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = f"{folder}/{name}"
                if path.startswith(self._layout.database) or os.path.islink(path):
                    continue
                if os.path.isfile(path) and self._in_file(path):
                    yield Place("path", os.path.relpath(path, top))

    def _in_file(self, path: str) -> bool:
        tail = b""
        with (
            suppress(FileNotFoundError),
            open(path, "rb", buffering=0) as file,
        ):  # or it was rotated
            while block := file.read(_BLOCK):
                if self._has(tail + block):
                    return True
                tail = (tail + block)[-self._overlap :]
        return False


def check(text: str) -> None:
    """Raise InputError for a text that is not sought."""
    if not LEAST <= len(text) <= MOST:
        what = f"a text of {count(len(text), 'character')} is not sought"
        raise InputError(what, f"give {LEAST} to {MOST:,} characters")


def spelled(text: str) -> list[bytes]:
    """Return how a text may be spelled, the most likely first."""
    from json import dumps

    ways: list[Callable[[str], str]] = [
        lambda one: dumps(one)[1:-1],
        lambda one: dumps(one, ensure_ascii=False)[1:-1],
    ]
    found = dict.fromkeys([text])
    for _ in range(3):  # JSON in the JSON of an event, in a line of the mirror
        found.update(dict.fromkeys(way(one) for one in [*found] for way in ways))
    found[printable(text)] = None
    # A program chooses the quotes of a `repr` by what stands around the text.
    found.update(dict.fromkeys([repr(text)[1:-1], repr("'\"" + text)[4:-1]]))
    found[repr(text.encode())[2:-1]] = None
    return [one.encode() for one in found]


def _unzip() -> Callable[[bytes], bytes]:
    """Return a function that decompresses a frame; what is no frame is looked at as it is."""
    from eventq.system.zstd import ZstdDecompressor, ZstdError, frame_content_size

    unzip = ZstdDecompressor().decompress

    def run(stored: bytes) -> bytes:
        try:
            if 0 <= frame_content_size(stored) <= PART_BYTES:
                return unzip(stored)
        except ZstdError:  # damaged: `check` says so
            pass
        return stored

    return run
