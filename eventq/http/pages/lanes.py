"""Branches as a drawing: contexts are lanes that leave each other, and turns are dots on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.records.turn import ContextInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.memory.turns import Turns

DOTS = 20_000  # turns that are drawn
WIDE = 2_000  # depths that are drawn at once
STEP, ROW = 8, 22  # pixels from a turn to the next, from a lane to the next
_KINDS = 6  # types of turns with colours of their own


class Lane(Record):
    """A context as it is drawn: its row, where it leaves another's, and where it ends."""

    info: ContextInfo
    y: int
    shift: int  # turns above its root, in what that goes on from
    start: int  # its first turn, counted with those
    end: int  # its head
    from_y: int | None  # the row that it leaves, if that is drawn


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
            row = lanes[parent.context_id].y if parent and parent.context_id in lanes else None
            end = shift + (one.head_depth if one.head_turn_id else -1)
            lanes[own] = Lane(one, (len(lanes) + 1) * ROW, shift, begin, end, row)
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


def dots_of(turns: Turns, lanes: Sequence[Lane], first: int) -> tuple[list[str], list[str], int]:
    """Return the types with colours, a path of dots for each, and how many turns are not drawn."""
    paths: dict[str, list[str]] = {}
    left = DOTS
    missing = 0
    for lane in lanes:
        begin = max(first, lane.start)
        count = min(lane.end, first + WIDE - 1) - begin + 1
        if count <= 0:
            continue
        missing += max(0, count - left)
        count = min(count, left)
        left -= count
        depth = begin - lane.shift + count - 1
        last = turns.ancestor(lane.info.head_turn_id, depth) if count else 0
        for row in turns.rows(last, count, None) if last else ():
            x = (row.depth + lane.shift - first + 1) * STEP
            paths.setdefault(row.type_id, []).append(f"M{x} {lane.y}h0")
    ordered = sorted(paths, key=lambda kind: -len(paths[kind]))
    kinds = ordered[: _KINDS - 1]
    drawn = ["".join(paths[kind]) for kind in kinds]
    rest = "".join("".join(paths[kind]) for kind in ordered[_KINDS - 1 :])
    return ([*kinds, "others"], [*drawn, rest], missing) if rest else (kinds, drawn, missing)


def line_of(lane: Lane, first: int) -> str:
    """Return the path of a lane, from where it leaves another."""
    begin, end = max(first, lane.start), max(lane.end, lane.start)
    x, last = (begin - first + 1) * STEP, (min(end, first + WIDE - 1) - first + 1) * STEP
    if lane.from_y is not None and begin == lane.start and x > STEP:
        return f"M{x - STEP} {lane.from_y}L{x} {lane.y}H{max(x, last)}"
    return f"M{x} {lane.y}H{max(x, last)}"
