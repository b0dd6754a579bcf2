"""What is peculiar about a session's file, in short sentences with the numbers of lines.

That are links that lead nowhere, entries that were found on lines that are not one JSON object, and
lines that are kept as raw text. All of it follows from what is stored of the lines.
"""

from __future__ import annotations

from typing import NamedTuple

from eventq.sessions import lines, tree
from eventq.sessions.links import MORE, ODD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eventq.sessions.links import Link
    from eventq.sessions.tree import Tree
    from eventq.store.session_rows import LineLink

_NAMED = 3  # lines whose numbers a sentence has
_GONE = "its parent is not in the file"


class Noted(NamedTuple):
    """Some rows of a session, and the tree of their entries."""

    number: int  # of the line that the first one is of, or a part of
    rows: Sequence[LineLink]
    links: Sequence[Link | None]
    tree: Tree

    def numbers(self) -> Iterator[int]:
        """Yield the number of the line of each row."""
        number = self.number
        for row in self.rows:
            yield number
            number += not row.kind & MORE


def of_gaps(some: Noted, wanted: Callable[[LineLink], bool]) -> list[str]:
    """Return the notes on entries that name a parent which is not there.

    Those of a subagent that begins in the file are left out: it hangs under what started it.
    """
    numbers = [*some.numbers()]
    known = {link.id: n for n, link in enumerate(some.links) if link}
    below: dict[int, int] = {}
    roots = []
    why = ""
    for n in tree.lost(some.links, some.tree):
        if wanted(some.rows[n]) and (link := some.links[n]):
            if (parent := some.tree.parents[n]) >= 0:
                below[numbers[n]] = numbers[parent]
            elif some.tree.names[n] is None:
                roots.append(numbers[n])
            way = tree.path(some.tree.parents, known.get(link.parent, tree.ROOT))
            why = "its parent is below it" if n in way else _GONE
    return [*_closed(below, why), *_open(roots, why)]


def of_entries(some: Noted, wanted: Callable[[LineLink], bool]) -> list[str]:
    """Return the note on entries that were found on lines which are not one JSON object."""
    entries: dict[int, int] = {}
    odd: set[int] = set()
    chosen: set[int] = set()
    for number, row in zip(some.numbers(), some.rows, strict=True):
        entries[number] = entries.get(number, 0) + (row.form != lines.RAW)
        if row.kind & (MORE | ODD):
            odd.add(number)
        if wanted(row):
            chosen.add(number)
    return found({n: count for n, count in entries.items() if count and n in odd & chosen})


def found(counts: dict[int, int]) -> list[str]:
    """Return the note on lines that are not one object; how many entries each has, by number."""
    if not counts:
        return []
    first, count = next(iter(counts)), sum(counts.values())
    if len(counts) == 1:
        what = "the entry in it was" if count == 1 else f"the {count:,} entries in it were"
        return [f"line {first:,} is not one JSON object: {what} found"]
    what = f"{len(counts):,} lines, the first is line {first:,}, are not one JSON object each"
    return [f"{what}: the {count:,} entries in them were found"]


def raw(why: str, numbers: Sequence[int]) -> str:
    """Return the note on lines that are no entries for one reason."""
    if len(numbers) == 1:
        return f"line {numbers[0]:,} is kept as raw text: {why}"
    first = numbers[0]
    return f"{len(numbers):,} lines, the first is line {first:,}, are kept as raw text: {why}"


def _closed(below: dict[int, int], why: str) -> Iterator[str]:
    if len(below) == 1:
        ((line, above),) = below.items()
        yield f"line {line:,} hangs below line {above:,}, the entry written last before it: {why}"
    elif below:
        what = f"{_listed(below)} hang below the entries written last before them"
        yield f"{what}: their parents are missing"


def _open(roots: Sequence[int], why: str) -> Iterator[str]:
    if len(roots) == 1:
        yield f"line {roots[0]:,} begins a branch: {why}"
    elif roots:
        yield f"{_listed(roots)} begin branches: their parents are missing"


def _listed(given: Iterable[int]) -> str:
    numbers = [f"{n:,}" for n in given]
    left = len(numbers) - _NAMED
    *some, last = [*numbers[:_NAMED], f"{left:,} more"] if left > 0 else numbers
    return f"lines {', '.join(some)} and {last}"
