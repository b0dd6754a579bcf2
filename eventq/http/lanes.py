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
    start: int  # depth of its first turn
    end: int  # depth of its head
    from_y: int | None  # the row that it leaves, if that is drawn


def lanes_of(turns: Turns, found: Sequence[ContextInfo]) -> list[Lane]:
    """Return the lanes: forks stand below what they leave."""
    by_id = {one.context_id: one for one in found}
    children: dict[int | None, list[ContextInfo]] = {}
    for one in found:
        parent = one.fork_of if one.fork_of in by_id else None
        children.setdefault(parent, []).append(one)
    lanes: list[Lane] = []
    rows: dict[int, int] = {}
    waiting = [*reversed(children.get(None, []))]
    while waiting:
        one = waiting.pop()
        y = (len(lanes) + 1) * ROW
        start = turns.depth(one.base_turn_id) + 1 if one.base_turn_id and one.fork_of else 0
        rows[one.context_id] = y
        lanes.append(Lane(one, y, start, one.head_depth if one.head_turn_id else -1,
                          rows.get(one.fork_of or 0)))  # fmt: skip
        waiting += reversed(children.get(one.context_id, []))
    return lanes


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
        last = turns.ancestor(lane.info.head_turn_id, begin + count - 1) if count else 0
        for row in turns.rows(last, count, None) if last else ():
            x = (row.depth - first + 1) * STEP
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
