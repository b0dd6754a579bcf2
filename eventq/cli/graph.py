"""How contexts branch, as a drawing: their heads, the turns where they part, and the roots."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.records import ContextInfo

    Children = dict[int, list[int]]


def draw(
    contexts: Iterable[ContextInfo],
    common: Callable[[int, int], int],
    depth: Callable[[int], int],
    ancestor: Callable[[int, int], int],
    label: Callable[[ContextInfo], str],
) -> Iterator[str]:
    """Yield the lines of the drawing, a turn each, the branch of the oldest context first.

    `common` gives the last turn that two turns share, `ancestor` the turn at a depth at or above
    another, `label` what a context is called. Each is asked about as often as there are contexts,
    times the logarithm of that at worst.
    """
    heads: dict[int, list[ContextInfo]] = {}
    for context in contexts:
        heads.setdefault(context.head_turn_id, []).append(context)
    empty = heads.pop(0, [])
    roots, children = _branches(list(heads), common, depth, ancestor)
    _by_age(
        roots,
        children,
        {turn: min(one.context_id for one in there) for turn, there in heads.items()},
    )
    for prefix, turn in _walk(roots, children):
        at = depth(turn)
        names = ", ".join(map(label, heads.get(turn, ())))
        yield f"{prefix}turn {turn}{f' (depth {at})' if at else ''}{'  ' if names else ''}{names}"
    if empty:
        yield f"(empty)  {', '.join(map(label, empty))}"


def _branches(
    heads: list[int],
    common: Callable[[int, int], int],
    depth: Callable[[int], int],
    ancestor: Callable[[int, int], int],
) -> tuple[list[int], Children]:
    """Return the roots, and the next drawn turns below each drawn turn.

    Turns that begin below one turn with one and the same child are a bunch. The chain of one of
    them has the places where all others of its bunch leave it; what leaves at one place falls into
    smaller bunches. Taking the one in the middle halves them, more or less, whatever their shape.
    """
    roots: list[int] = []
    children: Children = {}
    bunches: list[tuple[int, list[int]]] = []
    for root, bunch in _grouped(heads, lambda turn: ancestor(turn, 0)).items():
        roots.append(root)
        bunches += _bunches(root, 0, bunch, ancestor)
    while bunches:
        above, bunch = bunches.pop()
        pivot = bunch[len(bunch) // 2]
        places = _grouped(bunch, lambda turn, pivot=pivot: common(pivot, turn))  # type: ignore[misc]
        for at, place in sorted((depth(place), place) for place in places):
            children.setdefault(above, []).append(place)
            bunches += _bunches(place, at, places[place], ancestor)
            above = place
    return roots, children


def _bunches(
    place: int, depth: int, turns: list[int], ancestor: Callable[[int, int], int]
) -> Iterator[tuple[int, list[int]]]:
    """Yield a place with each bunch of turns below it, by the child that they are under."""
    below = [turn for turn in turns if turn != place]
    return (
        (place, bunch) for bunch in _grouped(below, lambda turn: ancestor(turn, depth + 1)).values()
    )


def _grouped(turns: list[int], key: Callable[[int], int]) -> Children:
    found: Children = {}
    for turn in turns:
        found.setdefault(key(turn), []).append(turn)
    return found


def _by_age(roots: list[int], children: Children, age: dict[int, int]) -> None:
    """Sort roots and children by the oldest context at or below each; `age` has that of heads."""
    order = list(roots)
    for turn in order:
        order += children.get(turn, ())
    for turn in reversed(order):
        below = [age[child] for child in children.get(turn, ())]
        age[turn] = min([*below, age[turn]] if turn in age else below)
    for turns in (roots, *children.values()):
        turns.sort(key=age.__getitem__)


def _walk(roots: list[int], children: Children) -> Iterator[tuple[str, int]]:
    """Yield every turn with what is drawn before it, each above its children."""
    left = [("", "", root) for root in reversed(roots)]
    while left:
        prefix, below, turn = left.pop()
        yield prefix, turn
        last = True
        for child in reversed(children.get(turn, ())):
            left.append(
                (f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}", child)
            )
            last = False
