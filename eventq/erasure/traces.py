"""Remove what handlers printed of some texts from the logs of a thread.

A log may be open in a handler that goes on writing, so bytes are replaced in place, by as many
others. Any part of at least 31 bytes is found, also as programs spell it: escaped as JSON or for
the journal, and in base64. So is a shorter text as a whole, and a shorter line of it, unless it is
so short that other texts have it too. What a handler said in other words is not found.

A log is looked at in steps of 16 bytes: a part of 31 has 16 of them that begin at a step, and all
16 bytes that follow each other in the texts are known. Short texts are looked for in steps of 4. So
a log is read once for many texts, and a step that tells nothing costs one look into a set of words.
"""

from __future__ import annotations

import os
import sys
from binascii import b2a_base64

from eventq.log.journal import printable
from eventq.records.checks import ERASED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.store.paths import Layout

_GRAM = 16
_PART = 2 * _GRAM - 1
_LEAST, _LEAST_LINE = 4, 8  # bytes of a text, and of a line of it, that are sought as a whole
_STEP = 4
BLOCK = 1 << 20  # bytes of a log that are in memory at once
_MARGIN = 64  # bytes before and after them, to see where a part begins and ends
AT_ONCE = 1 << 16  # characters that are sought at once: about a kilobyte of memory each


class Traces:
    """The logs of a thread, as they are looked at once and then again."""

    def __init__(self, layout: Layout) -> None:
        """Begin with nothing looked at."""
        self._layout = layout
        self._known: set[str] = set()
        self._ends: dict[tuple[int, int], int] = {}  # how far a file was looked at for all of them

    def erase(self, texts: Iterable[str]) -> None:
        """Replace the parts of texts in all logs, rotated ones too. Links are not followed.

        Where a text was erased before, only what was printed since is looked at.
        """
        texts = dict.fromkeys(texts)
        known = [text for text in texts if text in self._known]
        fresh = [text for text in texts if text not in self._known]
        self._look(known, dict(self._ends))
        self._look(fresh, {})
        self._known.update(fresh)

    def _look(self, texts: list[str], ends: dict[tuple[int, int], int]) -> None:
        for some in _groups(texts):
            sought: Sought | None = None
            for path in logs(self._layout):
                stat = os.stat(path, follow_symlinks=False)
                begin = ends.get(file := (stat.st_dev, stat.st_ino), 0)
                if begin == stat.st_size:
                    continue
                sought = sought or Sought(some)
                end = erase_in(path, sought, begin if begin < stat.st_size else 0)
                self._ends.setdefault(file, end)


def _groups(texts: list[str]) -> Iterator[list[str]]:
    """Yield texts, and the segments of long ones, in groups that are sought at once."""
    group: list[str] = []
    for text in texts:
        for start in range(0, len(text), AT_ONCE):
            group.append(text[max(0, start - 2 * _GRAM) : start + AT_ONCE])
            if sum(map(len, group)) >= AT_ONCE:
                yield group
                group = []
    if group:
        yield group


def logs(layout: Layout) -> Iterator[str]:
    """Yield the logs that have anything in them, and the lines of the mirror that were lost."""
    for folder, _, names in (found for top in (layout.logs, layout.lost) for found in os.walk(top)):
        for name in sorted(names):
            path = f"{folder}/{name}"
            if not os.path.islink(path) and os.path.isfile(path) and os.path.getsize(path):
                yield path


class Sought:
    """Texts that are sought in logs, in all their spellings."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index the spellings of some texts, and of their lines."""
        texts = [*texts]
        self._texts = set[bytes]().union(*map(spellings, texts))
        self._places: dict[bytes, tuple[bytes, int]] = {}  # where 16 bytes are in which spelling
        self._again: set[bytes] = set()  # all 31 bytes around 16 that are in several places
        repeated: set[bytes] = set()
        for spelled in self._texts:
            for at in range(len(spelled) - _GRAM + 1):
                gram = spelled[at : at + _GRAM]
                if self._places.setdefault(gram, (spelled, at)) != (spelled, at):
                    repeated.add(gram)
        for spelled in self._texts if repeated else ():
            self._again.update(_around(spelled, repeated))
        self._heads = {_word(gram[:8]) for gram in self._places}
        short = {one for one in self._texts if _LEAST <= len(one) < _PART}
        for line in {line.strip() for text in texts for line in text.splitlines()}:
            short |= {one for one in spellings(line) if _LEAST_LINE <= len(one) < _PART}
        self._short = {one for one in short if len(one) >= 2 * _STEP - 1}
        self._shortest = short - self._short
        self._shapes: dict[int, set[tuple[int, int]]] = {}  # of a word: how far in, and the length
        for one in self._short:
            for into in range(_STEP):
                shapes = self._shapes.setdefault(_word(one[into : into + _STEP]), set())
                shapes.add((into, len(one)))

    def among(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Yield where parts of the texts are in some bytes: start and end."""
        known_to = 0  # up to here all is found
        heads = self._heads
        words = memoryview(block)[: len(block) // _GRAM * _GRAM].cast("Q")[::2]
        for at in [n * _GRAM for n, word in enumerate(words) if word in heads]:
            if at + _PART <= known_to:
                continue
            known = self._places.get(block[at : at + _GRAM])
            if known is not None:
                start, end = _grown(block, at, *known)
                if end - start >= min(_PART, len(known[0])):
                    known_to = end
                    yield start, end
                for first in range(max(0, at + _GRAM - _PART), at + 1) if self._again else ():
                    if block[first : first + _PART] in self._again:
                        yield first, first + _PART
        yield from self._short_among(block)

    def _short_among(self, block: bytes) -> Iterator[tuple[int, int]]:
        shapes = self._shapes
        words = memoryview(block)[: len(block) // _STEP * _STEP].cast("I") if shapes else ()
        for at in [n * _STEP for n, word in enumerate(words) if word in shapes]:
            for into, size in shapes[_word(block[at : at + _STEP])]:
                start = at - into
                if start >= 0 and block[start : start + size] in self._short:
                    yield start, start + size
        for one in self._shortest:
            found = block.find(one)
            while found >= 0:
                yield found, found + len(one)
                found = block.find(one, found + len(one))


def _word(some: bytes) -> int:
    """Return bytes as the number that a machine reads there."""
    return int.from_bytes(some, sys.byteorder)


def _around(spelled: bytes, grams: set[bytes]) -> Iterator[bytes]:
    """Yield the parts of a spelling that any of some 16 bytes are in."""
    done = 0
    for at in range(len(spelled) - _GRAM + 1):
        if spelled[at : at + _GRAM] in grams:
            end = min(at, len(spelled) - _PART) + 1
            for first in range(max(done, at + _GRAM - _PART), end):
                yield spelled[first : first + _PART]
            done = end


def _grown(block: bytes, at: int, spelled: bytes, there: int) -> tuple[int, int]:
    """Return how far a block and a spelling are the same around a place of 16 bytes."""
    before = 0
    while before < min(at, there) and block[at - before - 1] == spelled[there - before - 1]:
        before += 1
    after, most = _GRAM, min(len(block) - at, len(spelled) - there)
    while after < most and block[at + after] == spelled[there + after]:
        after += 1
    return at - before, at + after


def spellings(text: str) -> set[bytes]:
    """Return how programs may spell a text.

    Base64 has three spellings, after 0, 1 and 2 other bytes; only the characters that are the
    text's alone are among those returned.
    """
    from json import dumps

    raw = text.encode()
    found = {raw, dumps(text)[1:-1].encode(), dumps(text, ensure_ascii=False)[1:-1].encode()}
    found.add(printable(text).encode())
    # A program chooses the quotes of a `repr` by what stands around the text.
    found |= {
        repr(text)[1:-1].encode(),
        repr("'\"" + text)[4:-1].encode(),
        repr(raw)[2:-1].encode(),
    }
    for before in range(3):
        encoded = b2a_base64(b"\0" * before + raw, newline=False)
        found.add(encoded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6])
    return found


def erase_in(path: str, sought: Sought, begin: int) -> int:
    """Replace what is sought from a place on in a file; return how far that was looked at."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        changed, base = False, begin
        found: list[tuple[int, int]] = []
        while True:
            start = max(0, base - _MARGIN)
            block = os.pread(fd, base - start + BLOCK + _MARGIN, start)
            base += BLOCK
            is_last = start + len(block) <= base
            found += [(start + first, start + end) for first, end in sought.among(block)]
            found = _merged(found)
            # What may go on in the next block is written only when that has been read.
            ready = [one for one in found if is_last or one[1] <= base - _MARGIN]
            del found[: len(ready)]
            for first, end in ready:
                os.pwrite(fd, _filler(end - first), first)
                changed = True
            if is_last:
                break
        if changed:
            os.fsync(fd)
        return start + len(block)
    finally:
        os.close(fd)


def _merged(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _filler(size: int) -> bytes:
    """Return `[erased]` in as many bytes as are needed, or as many `*`."""
    mark = ERASED.encode()
    return mark.ljust(size) if size >= len(mark) else b"*" * size
