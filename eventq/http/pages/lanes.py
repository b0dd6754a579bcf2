"""Branches as a drawing: contexts are lanes that leave each other, as wide as the page.

Along a lane a column stands for so many turns, with colours by their kinds, or a dot for each turn
of a part. A place is where a turn stands in its lane, from 0 on; no id. Columns are as wide as the
page stretches them, heights are in pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.http.pages.turn_kinds import KINDS, UNKNOWN
from eventq.http.pages.wording import named
from eventq.record import Record
from eventq.records.turn import ContextInfo
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.memory.turns import Turns

COLUMNS = 160  # of a drawing of all turns
HIGH = 22  # pixels of a column that is full
ZOOMS = (40, 160)  # turns that are drawn as dots
WHOLE = 0.8  # of the contexts that the default zoom shows whole
MIDDLE = 0.5  # of a column
TICKS = 4  # parts of the axis


class Lane(Record):
    """A context as it is drawn: its row, where it leaves another's, and where it ends."""

    info: ContextInfo
    row: int
    shift: int  # turns above its root, in what that goes on from
    start: int  # its first turn, counted with those
    end: int  # its head
    above: int | None  # the row that it leaves, if that is drawn

    @property
    def turns(self) -> int:
        """How many turns of its own it has."""
        return max(0, self.end - self.start + 1)


class Scale(Record):
    """The part of all turns that is drawn: from one on, so many columns of so many turns each."""

    first: int
    columns: int
    each: int

    @property
    def end(self) -> int:
        """The first turn beyond."""
        return self.first + self.columns * self.each

    def column(self, at: int) -> int:
        """Return the column of a turn."""
        return (at - self.first) // self.each

    def share(self, column: float) -> str:
        """Return where a column is, in percent of the width."""
        return f"{100 * column / self.columns:.2f}%"

    def ticks(self) -> list[int]:
        """Return the turns at the ticks of the axis."""
        return [self.first + (self.end - self.first) * n // TICKS for n in range(TICKS + 1)]


def lanes_of(turns: Turns, found: Sequence[ContextInfo]) -> list[Lane]:
    """Return the lanes: what leaves another stands below that."""
    by_id = {one.context_id: one for one in found}
    ways = {own: turns.way(one.head_turn_id) for own, one in by_id.items()}
    above = _left(turns, by_id, ways)
    children: dict[int | None, list[int]] = {}
    for own, left in above.items():
        children.setdefault(left, []).append(own)
    lanes: dict[int, Lane] = {}
    for start in (*children.get(None, []), *by_id):  # of a circle, any is the first
        waiting = [start]
        while waiting:
            if (own := waiting.pop()) in lanes:
                continue
            one, parent = by_id[own], by_id.get(above[own] or 0)
            shift = sum(turns.depth(end) + 1 for end in [*ways[own].values()][1:])
            base = one.base_turn_id if one.fork_of else 0
            if not base and parent and parent.head_turn_id and one.head_turn_id:
                base = turns.shared(one.head_turn_id, parent.head_turn_id)
            is_own = base and turns.ancestor(base, 0) in [*ways[own]][:1]
            begin = shift + (turns.depth(base) + 1 if is_own else 0)
            left_row = (
                lanes[parent.context_id].row if parent and parent.context_id in lanes else None
            )
            end = shift + (one.head_depth if one.head_turn_id else -1)
            lanes[own] = Lane(one, len(lanes), shift, begin, end, left_row)
            waiting += reversed(children.get(own, []))
    return [*lanes.values()]


def _left(
    turns: Turns, by_id: dict[int, ContextInfo], ways: dict[int, dict[int, int]]
) -> dict[int, int | None]:
    """Return what each context leaves: the one that it is a fork of, or the oldest of its root.

    Of that, it is one with the turn that the root goes on from.
    """
    of_root: dict[int, list[int]] = {}
    for own in sorted(by_id):
        for root in [*ways[own]][:1]:
            of_root.setdefault(root, []).append(own)

    def left(own: int, fork_of: int | None) -> int | None:
        if fork_of in by_id:
            return fork_of
        for root, end in ways[own].items():
            others = of_root.get(root, [own])
            if others[0] != own and own in others:
                return others[0]
            if own not in others:
                with_end = (o for o in others if turns.is_above(end, by_id[o].head_turn_id))
                return next(with_end, others[0])
        return None

    return {own: left(own, one.fork_of) for own, one in by_id.items()}


def zoom_of(lanes: Sequence[Lane]) -> int:
    """Return the finest zoom that shows most contexts whole, 0 for that of all turns."""
    for zoom in ZOOMS:
        if sum(one.end < zoom for one in lanes) >= WHOLE * len(lanes):
            return zoom
    return 0


def scale_of(lanes: Sequence[Lane], zoom: int, first: int) -> Scale:
    """Return what is drawn: so many turns from one on, or all of them for a zoom of 0."""
    if zoom:
        return Scale(first, zoom, 1)
    every = max((one.end for one in lanes), default=0) + 1
    return Scale(0, COLUMNS, max(1, -(-every // COLUMNS)))


class Column(Record):
    """So many turns of a lane: how many of each kind, in the order of `KINDS`."""

    number: int
    first: int  # place
    last: int
    kinds: tuple[int, ...]

    @property
    def words(self) -> str:
        """What it is, in words."""
        said = [f"{n:,} {KINDS[kind]}" for kind, n in enumerate(self.kinds) if n]
        if self.first == self.last:
            return f"place {self.first:,}: {KINDS[next(k for k, n in enumerate(self.kinds) if n)]}"
        return f"places {self.first:,} to {self.last:,}: {', '.join(said)}"


def columns_of(lane: Lane, scale: Scale, blocks: Iterable[tuple[int, bytes]]) -> list[Column]:
    """Return the columns of a lane; `blocks` are a depth and the kinds from there on.

    Turns that no block has are unknown.
    """
    first, last = max(lane.start, scale.first), min(lane.end, scale.end - 1)
    if first > last:
        return []
    low = scale.column(first)
    sums = [[0] * len(KINDS) for _ in range(low, scale.column(last) + 1)]
    for depth, kinds in blocks:
        begin, at = depth + lane.shift, 0
        while at < len(kinds):
            column = scale.column(begin + at)
            end = scale.first + (column + 1) * scale.each - begin
            for kind in range(len(KINDS) - 1):
                sums[column - low][kind] += kinds.count(kind, at, end)
            at = end
    made = []
    for n, counts in enumerate(sums, low):
        begin = scale.first + n * scale.each
        left, right = max(first, begin), min(last, begin + scale.each - 1)
        counts[KINDS.index(UNKNOWN)] = right - left + 1 - sum(counts)
        made.append(Column(n, left, right, tuple(counts)))
    return made


def bars_of(columns: Sequence[Column], each: int) -> dict[str, str]:
    """Return the paths of columns by kind: how high one is says how many turns it has."""
    paths: dict[str, list[str]] = {}
    for one in columns:
        low = float(HIGH)
        for kind, number in enumerate(one.kinds):
            if number:
                high = HIGH * number / each
                path = f"M{one.number}.05 {low:.3g}v{-high:.3g}h.9v{high:.3g}z"
                paths.setdefault(KINDS[kind], []).append(path)
                low -= high
    return {kind: "".join(path) for kind, path in paths.items()}


def dots_of(columns: Sequence[Column]) -> dict[str, str]:
    """Return the paths of dots by kind, one for each turn."""
    paths: dict[str, list[str]] = {}
    for one in columns:
        kind = next(kind for kind, number in enumerate(one.kinds) if number)
        paths.setdefault(KINDS[kind], []).append(f"M{one.number + MIDDLE} {HIGH // 2}h0")
    return {kind: "".join(path) for kind, path in paths.items()}


class Ways(Record):
    """Lines in the row of a lane: where others leave it, where it comes from, those that pass."""

    out: list[str]
    into: str | None
    past: str


def ways_of(lanes: Sequence[Lane], scale: Scale) -> list[Ways]:
    """Return the lines between lanes, by row; places are in percent, those that pass a path."""
    out: list[dict[str, None]] = [{} for _ in lanes]
    into: list[str | None] = [None for _ in lanes]
    past: list[set[int]] = [set() for _ in lanes]
    for lane in lanes:
        column = scale.column(max(0, lane.start - 1))
        if lane.above is None or not 0 <= column < scale.columns:
            continue
        into[lane.row] = scale.share(column + MIDDLE)
        out[lane.above][scale.share(column + MIDDLE)] = None
        for row in range(lane.above + 1, lane.row):
            past[row].add(column)
    return [
        Ways([*one], other, "".join(f"M{n + MIDDLE} 0v100" for n in sorted(through)))
        for one, other, through in zip(out, into, past, strict=True)
    ]


def beyond(lane: Lane, scale: Scale) -> tuple[int, int]:
    """Return how many turns of a lane stand before what is drawn, and after it."""
    before = max(0, min(lane.end + 1, scale.first) - lane.start)
    return before, max(0, lane.end + 1 - max(lane.start, scale.end))


def told(lane: Lane) -> str:
    """Return what a lane is, in words."""
    return f"{named(lane.info)}: {count(lane.turns, 'turn')}"
