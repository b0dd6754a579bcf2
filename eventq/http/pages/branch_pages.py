"""The page of branches: contexts as lanes, sessions, and the runs under way."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.http.pages.lanes import ROW, STEP, WIDE, dots_of, lanes_of, line_of
from eventq.http.pages.page_request import whole_in
from eventq.records.turn import ContextInfo

if TYPE_CHECKING:
    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

LANES = 200  # contexts that are drawn
LISTED = 200


def branches(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Draw the contexts that changed last, as lanes that leave each other."""
    found = [ContextInfo._make(row) for row in thread.database.memory.overview(LANES).contexts]
    turns = thread.contexts.turns
    lanes = lanes_of(turns, found)
    deepest = max((one.end for one in lanes), default=0)
    first = whole_in(ask.query, "from", max(0, deepest - WIDE + 1))
    kinds, dots, left = dots_of(turns, lanes, first)
    return "branches.html", {
        "lanes": lanes, "kinds": kinds, "dots": dots, "left": left, "first": first,
        "before": max(0, first - WIDE) if first else None,
        "after": first + WIDE if deepest >= first + WIDE else None,
        "width": (min(deepest - first, WIDE) + 3) * STEP, "height": (len(lanes) + 1) * ROW,
        "lines": [line_of(one, first) for one in lanes], "step": STEP, "row": ROW, "wide": WIDE,
        "sessions": [*islice(thread.sessions.views.all(), LISTED)],
        "runs": [*islice(thread.runs.active(), LISTED)],
    }  # fmt: skip
