"""What changed from one version of a text to the next, by lines."""

from __future__ import annotations

from difflib import Match, SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARED = 2_000  # lines of each version
AROUND = 3  # lines before and after a change
SHOWN = 1_000  # lines
RETURN = "␍"  # what a line ends with, perhaps only in one version
SECONDS = 0.1  # for which lines that are the same are looked for


class Line(Record):
    """A line of a comparison: `kind` is `same`, `old` or `new`, or `place` for what begins here."""

    kind: str
    text: str


def changes(old: str, new: str) -> tuple[list[Line], bool]:
    """Return what changed, with some lines around it, and whether that is all.

    There are no lines if all are the same: whether the last one ends is not looked at.
    """
    before, after = (text.removesuffix("\n").split("\n") if text else [] for text in (old, new))
    matcher = _Matcher(before[:COMPARED], after[:COMPARED])
    found = _lines(matcher)
    lines = [*islice(found, SHOWN)]
    is_whole = max(len(before), len(after)) <= COMPARED and not matcher.is_late
    return lines, is_whole and next(found, None) is None


class _Matcher(SequenceMatcher[str]):
    """One that ends in time: what was not looked at by then counts as changed."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        self.old, self.new = old, new
        self._deadline = clock.monotonic() + SECONDS
        self.is_late = False

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Return it, or one of no lines once the time is up."""
        if self.is_late or clock.monotonic() > self._deadline:
            self.is_late = True
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _lines(matcher: _Matcher) -> Iterator[Line]:
    old, new = matcher.old, matcher.new
    for group in matcher.get_grouped_opcodes(AROUND):
        first, last = group[0][3] + 1, group[-1][4]
        yield Line("place", f"lines {first} to {last}" if first < last else f"line {first}")
        for what, old_from, old_to, new_from, new_to in group:
            if what == "equal":
                yield from (Line("same", line) for line in new[new_from:new_to])
            else:
                for kind, lines in (("old", old[old_from:old_to]), ("new", new[new_from:new_to])):
                    yield from (Line(kind, line.replace("\r", RETURN)) for line in lines)
