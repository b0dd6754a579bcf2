"""The page of branches: contexts as lanes, sessions, and the runs under way."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.http.pages import lanes as drawing
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.run_pages import asked_in
from eventq.http.pages.turn_kinds import AGENT, KINDS, UNKNOWN, Reading, kinds_of
from eventq.records.turn import ContextInfo

if TYPE_CHECKING:
    from eventq.http.pages.lanes import Lane, Scale
    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

LANES = 200  # contexts that are drawn
SESSIONS = 50
RUNS = 10
SECONDS = 0.02  # for which turns are read to know their kinds
SECONDS_AGAIN = 0.2  # the same, of a page that is on a screen already
SUBAGENT = "subagent"  # whose lanes have a colour of their own
HOVERS = 2_000  # columns that say what they are


def branches(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Draw the contexts that changed last, as lanes that leave each other."""
    overview = thread.database.memory.overview(LANES)
    text = ask.query.get("name", "")
    found = [
        one for one in map(ContextInfo._make, overview.contexts)
        if text.lower() in (one.name or str(one.context_id)).lower()
    ]  # fmt: skip
    lanes = drawing.lanes_of(thread.contexts.turns, found)
    zoom = whole_in(ask.query, "zoom", drawing.zoom_of(lanes))
    zoom = zoom if zoom in drawing.ZOOMS else 0
    scale = drawing.scale_of(lanes, zoom, whole_in(ask.query, "from", 0) if zoom else 0)
    sessions = [*islice(thread.sessions.views.all(), SESSIONS + 1)]
    reading = Reading(SECONDS_AGAIN if ask.again else SECONDS)
    rows = _rows(thread, ask, lanes, scale, reading, is_dots=bool(zoom))
    for row in rows if sessions else ():
        _note_session(thread, row)
    seen = {kind for row in rows for kind in row["paths"]}
    active = [info for info, _ in thread.runs.newest(limit=RUNS, active=True)]
    return "branches.html", {
        "rows": rows, "scale": scale, "zoom": zoom, "zooms": drawing.ZOOMS, "text": text,
        "kinds": [kind for kind in (*KINDS[:-1], SUBAGENT, UNKNOWN) if kind in seen],
        "goes_on": reading.is_over and UNKNOWN in seen,
        "high": drawing.HIGH, "count": overview.context_count, "most": LANES,
        "sessions": sessions[:SESSIONS], "more_sessions": len(sessions) > SESSIONS,
        "runs": active, "asked": asked_in(thread) if active else {},
        "run_count": sum(overview.runs.values()),
    }  # fmt: skip


def _rows(
    thread: Thread, ask: Ask, lanes: list[Lane], scale: Scale, reading: Reading, *, is_dots: bool
) -> list[Values]:
    """Return lanes as rows of the page."""
    known = kinds_of(ask.served)
    hovers = HOVERS
    rows = []
    for lane, ways in zip(lanes, drawing.ways_of(lanes, scale), strict=True):
        first = max(lane.start, scale.first) - lane.shift
        last = min(lane.end, scale.end - 1) - lane.shift
        blocks = known.blocks(thread.contexts.turns, lane.info, first, last, reading)
        columns = drawing.columns_of(lane, scale, blocks if first <= last else ())
        paths = drawing.dots_of(columns) if is_dots else drawing.bars_of(columns, scale.each)
        hovers -= len(columns)
        before, after = drawing.beyond(lane, scale)
        rows.append({
            "lane": lane, "ways": ways, "paths": paths, "told": drawing.told(lane),
            "columns": columns if hovers >= 0 else [], "before": before, "after": after,
            "tool": "", "shown": (columns[0].number, columns[-1].number) if columns else None,
        })  # fmt: skip
    return rows


def _note_session(thread: Thread, row: Values) -> None:
    """Note the tool of a session in the row of its context; an agent of another's is a subagent."""
    found = thread.database.memory.sessions.of_context(row["lane"].info.context_id)
    row["tool"] = found.tool if found is not None else ""
    if found is not None and found.owner is not None and AGENT in row["paths"]:
        row["paths"][SUBAGENT] = row["paths"].pop(AGENT)
