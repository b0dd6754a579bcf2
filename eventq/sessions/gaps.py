"""Where an entry hangs whose parent is not in the file, as Claude Code resumes from it.

The tool takes the entry that was written last before it, if that is at most `NEAREST` before: of
the same agent, wherever it stands in the file, and not below the entry itself. Of several of one
time it takes the first in the file. Without one the entry is a root, as one is that names no
parent. No document promises that: it was seen in version 2.1.197 of the tool, and may change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from eventq.sessions.links import PAST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.sessions.links import Link

NEAREST = 5_000  # milliseconds
_ABSENT = -2  # see `eventq.sessions.tree`
_STEPS = 16  # entries that are passed over for each one in the file, at most


def close(
    links: Sequence[Link | None], parents: list[int], order: Iterable[int], gaps: Sequence[int]
) -> None:
    """Give parents to roots, as far as it is known when entries were written.

    `order` has each node below its parent. No cycle comes of it.
    """
    forest = Forest(parents, order)
    near: dict[str | None, list[tuple[int, int]]] = defaultdict(list)  # the times of an agent
    for node, (link, parent) in enumerate(zip(links, parents, strict=True)):
        if parent == _ABSENT or not link or link.kind & PAST:
            continue
        if link.at is not None and link.agent != "":
            near[link.agent].append((link.at, -node))
    for times in near.values():
        times.sort()
    left = _STEPS * len(links)
    for gap in reversed(gaps):  # the later one hangs below the earlier one, not the reverse
        link = links[gap]
        if link is None or link.at is None:
            continue
        times = near[link.agent]
        for n in range(bisect_right(times, (link.at, 0)) - 1, -1, -1):
            time, node = times[n]
            left -= 1
            if left < 0 or time < link.at - NEAREST:
                break
            if forest.hang(gap, -node):
                parents[gap] = -node
                break


class Forest:
    """Which nodes are in one tree, while its roots get parents."""

    def __init__(self, parents: Sequence[int], order: Iterable[int]) -> None:
        """Begin with these parents; `order` has each node below its parent."""
        self._tops = list(range(len(parents)))
        for node in order:
            if parents[node] >= 0:
                self._tops[node] = self._tops[parents[node]]

    def hang(self, root: int, node: int) -> bool:
        """Hang a root below a node, unless that is below it; return whether it was done."""
        if (top := self._top(node)) == root:
            return False
        self._tops[root] = top
        return True

    def _top(self, node: int) -> int:
        """Return the root above a node; the way there is short the next time."""
        above = []
        while self._tops[node] != node:
            above.append(node)
            node = self._tops[node]
        for one in above:
            self._tops[one] = node
        return node
