"""Draw how contexts branch: their heads, the turns where they fork, and the roots."""

from __future__ import annotations

from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from eventq.memory.turns import Turns
    from eventq.records.turn import ContextInfo

    Children = dict[int, list[int]]


def draw(
    contexts: Iterable[ContextInfo],
    turns: Turns,
    line: Callable[[int, int, list[ContextInfo]], str],
) -> Iterator[str]:
    """Yield the lines of the drawing, one turn each, the branch of the oldest context first.

    `line` returns what to write of a turn, the drawn one above it, 0 for none, and the contexts
    that stand there. A root that goes on from another chain stands below its end. O(n log n) turns
    are looked up at worst for n contexts.
    """
    heads: dict[int, list[ContextInfo]] = {}
    for context in contexts:
        heads.setdefault(context.head_turn_id, []).append(context)
    empty = heads.pop(0, [])
    links = _links(heads, turns)
    roots, children = _branches([*dict.fromkeys((*heads, *links.values()))], turns)
    for root, above in links.items():
        roots.remove(root)
        children.setdefault(above, []).append(root)
    _by_age(
        roots,
        children,
        {turn: min(one.context_id for one in at) for turn, at in heads.items()},
    )
    for prefix, turn, above in _walk(roots, children, links):
        yield prefix + line(turn, above, heads.get(turn, []))
    if empty:
        yield line(0, 0, empty)


def _links(heads: Iterable[int], turns: Turns) -> dict[int, int]:
    """Return what the roots above turns go on from, and those above that; no circle comes."""
    links: dict[int, int] = {}
    for head in heads:
        way = [*turns.way(head).items()]
        for (root, _), (above, end) in pairwise(way):
            while above in links and above != root:
                above = turns.ancestor(links[above], 0)  # noqa: PLW2901
            if root not in links and above != root:
                links[root] = end
    return links


def by_turn(
    depth: Callable[[int], int], label: Callable[[ContextInfo], str]
) -> Callable[[int, int, list[ContextInfo]], str]:
    """Return what writes a turn as its id and depth, and the names of the contexts there."""

    def line(turn: int, _: int, heads: list[ContextInfo]) -> str:
        names = ", ".join(map(label, heads))
        at = depth(turn) if turn else 0
        where = f"turn {turn}{f' (depth {at})' if at else ''}" if turn else "(empty)"
        return f"{where}{'  ' if names else ''}{names}"

    return line


def _branches(heads: list[int], turns: Turns) -> tuple[list[int], Children]:
    """Return the roots, and the next drawn turns below each drawn turn.

    A bunch is the set of turns under one child of a drawn turn. All others of a bunch leave the
    chain of a pivot at some fork; those that leave at the same fork split into smaller bunches. A
    pivot in the middle roughly halves a bunch, whatever its shape.
    """
    roots: list[int] = []
    children: Children = {}
    bunches: list[tuple[int, list[int]]] = []
    for root, bunch in _grouped(heads, lambda turn: turns.ancestor(turn, 0)).items():
        roots.append(root)
        bunches += _bunches(root, 0, bunch, turns.ancestor)
    while bunches:
        above, bunch = bunches.pop()
        pivot = bunch[len(bunch) // 2]
        forks = _grouped(bunch, lambda turn, pivot=pivot: turns.common(pivot, turn))  # type: ignore[misc]
        for at, fork in sorted((turns.depth(fork), fork) for fork in forks):
            children.setdefault(above, []).append(fork)
            bunches += _bunches(fork, at, forks[fork], turns.ancestor)
            above = fork
    return roots, children


def _bunches(
    fork: int, depth: int, turns: list[int], ancestor: Callable[[int, int], int]
) -> Iterator[tuple[int, list[int]]]:
    """Yield a fork with each bunch of turns below it, one per child."""
    below = [turn for turn in turns if turn != fork]
    return (
        (fork, bunch) for bunch in _grouped(below, lambda turn: ancestor(turn, depth + 1)).values()
    )


def _grouped(turns: list[int], key: Callable[[int], int]) -> Children:
    found: Children = {}
    for turn in turns:
        found.setdefault(key(turn), []).append(turn)
    return found


def _by_age(roots: list[int], children: Children, age: dict[int, int]) -> None:
    """Sort roots and children by the oldest context at or below each, starting with the heads'."""
    order = list(roots)
    for turn in order:
        order += children.get(turn, ())
    for turn in reversed(order):
        below = [age[child] for child in children.get(turn, ())]
        age[turn] = min([*below, age[turn]] if turn in age else below)
    for turns in (roots, *children.values()):
        turns.sort(key=age.__getitem__)


def _walk(
    roots: list[int], children: Children, links: Container[int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the prefix of its line, every turn, and its parent; parents before children."""
    left = [("", "", root, 0) for root in reversed(roots)]
    while left:
        prefix, below, turn, above = left.pop()
        yield prefix, turn, above
        last = True
        for child in reversed(children.get(turn, ())):
            mark, more = ("└─ ", "   ") if last else ("├─ ", "│  ")
            mark = mark.replace("─", "┄") if child in links else mark
            left.append((below + mark, below + more, child, turn))
            last = False
