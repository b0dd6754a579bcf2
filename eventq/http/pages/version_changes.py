"""What changed from one version of a text to the next, by lines.

`difflib` leaves out lines that are too frequent. So it takes 100 ms at most for `COMPARED` lines.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING

from eventq.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARED = 2_000  # lines of each version
AROUND = 3  # lines before and after a change
SHOWN = 1_000  # lines


class Line(Record):
    """A line of a comparison: `kind` is `same`, `old` or `new`, or `place` for what begins here."""

    kind: str
    text: str


def changes(old: str, new: str) -> tuple[list[Line], bool]:
    """Return what changed, with some lines around it, and whether that is all.

    There are no lines if both are the same.
    """
    before, after = old.split("\n"), new.split("\n")
    found = _lines(before[:COMPARED], after[:COMPARED])
    lines = [*islice(found, SHOWN)]
    is_all = max(len(before), len(after)) <= COMPARED and next(found, None) is None
    return lines, is_all


def _lines(old: list[str], new: list[str]) -> Iterator[Line]:
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(AROUND):
        first, last = group[0][3] + 1, group[-1][4]
        yield Line("place", f"lines {first} to {last}" if first < last else f"line {first}")
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (Line("same", line) for line in new[new_from:new_to])
            else:
                yield from (Line("old", line) for line in old[old_from:old_to])
                yield from (Line("new", line) for line in new[new_from:new_to])
