"""Remove what handlers printed of a text from the logs of a thread.

A log may be open in a handler that goes on writing, so bytes are replaced in place, by as many
others. Any part of at least 31 bytes is found, also as programs spell it: escaped as JSON or for
the journal, and in base64. So is a shorter text as a whole, and a shorter line of it, unless it is
so short that other texts have it too. What a handler said in other words is not found.

A log is looked at in steps of 16 bytes: a part of 31 has 16 of them that begin at a step, and all
16 bytes that follow each other in the text are known.
"""

from __future__ import annotations

import os
from binascii import b2a_base64

from eventq.log.journal import printable
from eventq.records.checks import ERASED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.storage.layout import Layout

_GRAM = 16
_PART = 2 * _GRAM - 1
_LEAST, _LEAST_LINE = 4, 8  # bytes of a text, and of a line of it, that are sought as a whole
BLOCK = 1 << 20  # bytes of a log that are in memory at once
_MARGIN = 64  # bytes before and after them, to see where a part begins and ends
_SEGMENT = 1 << 17  # characters of a text that are sought at once: a hundred bytes of memory each


def erase_in_logs(layout: Layout, text: str) -> None:
    """Replace the parts of a text in all logs, rotated ones too. Links are not followed."""
    for start in range(0, len(text), _SEGMENT) if any(_logs(layout)) else ():
        sought = Sought(text[max(0, start - 2 * _GRAM) : start + _SEGMENT])
        for path in _logs(layout):
            _erase(path, sought)


def _logs(layout: Layout) -> Iterator[str]:
    """Yield the logs that have anything in them, and the lines of the mirror that were lost."""
    for folder, _, names in (found for top in (layout.logs, layout.lost) for found in os.walk(top)):
        for name in sorted(names):
            path = f"{folder}/{name}"
            if not os.path.islink(path) and os.path.isfile(path) and os.path.getsize(path):
                yield path


class Sought:
    """A text that is sought in logs, in all its spellings."""

    def __init__(self, text: str) -> None:
        """Index the spellings of a text, and of its lines."""
        self._texts = spellings(text)
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
        short = {one for one in self._texts if _LEAST <= len(one) < _PART}
        for line in text.splitlines():
            found = spellings(line.strip())
            short |= {one for one in found if _LEAST_LINE <= len(one) < _PART}
        self._short = sorted(short, key=len, reverse=True)

    def among(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Yield where parts of the text are in some bytes: start and end."""
        known_to = 0  # up to here all is found
        for at in range(0, len(block) - _GRAM + 1, _GRAM):
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
        for one in self._short:
            found = block.find(one)
            while found >= 0:
                yield found, found + len(one)
                found = block.find(one, found + len(one))


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


def _erase(path: str, sought: Sought) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        changed, base = False, 0
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
