"""Live: the newest events of a stretch of time, one line each, by type, source, text and filter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eventq.errors import FilterError
from eventq.http.pages.page_request import whole_in
from eventq.records.source import sender_of
from eventq.said import read
from eventq.serving.event_pages import newest_in
from eventq.serving.event_ranges import COUNTED, around, spread, stretch
from eventq.serving.fates import fate_counts
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eventq.http.pages.page_request import Ask
    from eventq.records.event import Event
    from eventq.said import Said
    from eventq.serving.event_ranges import Stretch
    from eventq.thread import Thread

    Values = dict[str, Any]

ROWS = 100
SHOWN = 300  # characters of an event on its line
MOST_READ = 256 << 10  # characters of an event that are parsed for its line
ROOM = 4 << 20  # characters of all events of a page, unless one has more
CHIPS = 8  # of a kind, that are not folded
MOST_CHIPS = 100
TODAY = 20 * 3_600.0  # seconds for which the time of day alone tells when
TALLIED = 1_000  # events of all time that are counted where a stretch has none
TALLY_SECONDS = 0.02  # of processor time, for that
RANGES: Mapping[str, tuple[str, float | None, str]] = {
    "hour": ("1 hour", 3_600.0, "in this hour"),
    "day": ("24 hours", 86_400.0, "in these 24 hours"),
    "week": ("7 days", 7 * 86_400.0, "in these 7 days"),
    "all": ("all", None, "of all time"),
}
_CHOICES = ("range", "type", "source", "text", "filter")


def live(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the newest events of a stretch, or those around one."""
    log, query = thread.database.events, ask.query
    number = whole_in(query, "id") if query.get("id") else 0
    name, of = _chosen(thread, query, number)
    where = _where(query)
    values: Values = {
        "chosen": {one: query.get(one, "") for one in _CHOICES}, "range": name, "number": number,
        "ranges": [(key, one[0], _link(query, range=key)) for key, one in RANGES.items()],
        "words": RANGES[name][2] if name else f"around event {number}", "stretch": of,
        "spread": spread(log, of), "problem": "", "rows": [], "older": "", "reached": of.after,
        "elsewhere": None, "is_filtered": where is not None, "before": query.get("before", ""),
        "last": log.last(), "everything": _link(query, range="all"), "counted_most": COUNTED,
        "most": ROWS,
    }  # fmt: skip
    values |= _chips(log.kinds(max(of.after, of.upto - COUNTED), of.upto), query)
    upto = min(of.upto, whole_in(query, "before") - 1) if query.get("before") else of.upto
    try:
        if query.get("filter"):
            log.accept(query["filter"])  # so that a mistake is shown in what was written
        found = newest_in(thread, where, of.after, upto, ROWS, ROOM)
    except FilterError as error:
        return "live.html", values | {"problem": f"{error.what} - {error.fix}\n{error.caret()}"}
    if found.reached > of.after:
        values["older"] = _link(query, before=str(found.reached + 1))
    elif of.after and log.times([of.after]):  # what was pruned cannot be shown
        values["older"] = _link(query, range="all", before=str(of.after + 1))
    if not found.events and where is not None:
        values["elsewhere"] = log.tally(where, 0, log.last(), TALLIED, TALLY_SECONDS)
    values["rows"] = lines(thread, found.events[::-1])
    return "live.html", values | {"reached": found.reached}


def lines(thread: Thread, events: list[Event]) -> list[Values]:
    """Return events as lines of a page: who sent each, what it says, and how it went."""
    went, today = fate_counts(thread, events), clock.stamp(clock.now() - TODAY)
    return [
        {
            "event": one, "sender": sender_of(one.source),
            "words": told(one, MOST_READ).line(SHOWN),
            "fates": went[one.id], "is_today": one.created_at > today,
        }
        for one in events
    ]  # fmt: skip


def told(one: Event, most: int | None = None) -> Said:
    """Return what an event says; with `most`, of a longer one only what its beginning says."""
    is_whole = most is None or len(one.content) <= most
    content = one.content if is_whole else one.content[:most]
    return read(content.encode("utf-8", "replace"), one.type, whole=is_whole)


def _chosen(thread: Thread, query: Mapping[str, str], number: int) -> tuple[str, Stretch]:
    """Return the name and the events of a stretch; by default the last hour, if it has any."""
    log = thread.database.events
    if number:
        return "", around(log, number, ROWS // 2)
    name = query.get("range", "")
    if name not in RANGES:
        of = stretch(log, RANGES["hour"][1])
        return ("hour", of) if of.size else ("all", stretch(log, None))
    return name, stretch(log, RANGES[name][1])


def _chips(kinds: Iterable[tuple[str, str, int]], query: Mapping[str, str]) -> Values:
    """Return the types and sources with their counts, each of what the other choice leaves."""
    types: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for kind, source, count in kinds:
        if query.get("source") in (None, "", source):
            types[kind] += count
        if query.get("type") in (None, "", kind):
            sources[source] += count
    return {
        "types": _chips_of("type", types, query),
        "sources": _chips_of("source", sources, query),
    }


def _chips_of(name: str, counts: Counter[str], query: Mapping[str, str]) -> Values:
    """Return the chips of a choice: of all, of the most frequent, and those that are folded."""
    chosen = query.get(name, "")
    found = [one for one, _ in counts.most_common(MOST_CHIPS)]
    if chosen and chosen not in found[:CHIPS]:
        found = [chosen, *(one for one in found if one != chosen)]
    chips = [
        {
            "value": one, "count": counts[one], "link": _link(query, **{name: one}),
            "is_chosen": one == chosen, "sender": sender_of(one),
        }
        for one in found
    ]  # fmt: skip
    return {
        "all": _link(query, **{name: ""}), "is_all": not chosen, "shown": chips[:CHIPS],
        "folded": chips[CHIPS:], "more": max(0, len(counts) - CHIPS),
    }  # fmt: skip


def _link(query: Mapping[str, str], **changes: str) -> str:
    """Return a link to this page with other choices; it begins at the newest event."""
    given = {name: query.get(name, "") for name in _CHOICES} | changes
    return "?" + urlencode({name: value for name, value in given.items() if value})


def _where(query: Mapping[str, str]) -> str | None:
    """Return the filter for all that was chosen."""
    parts = [f"{name} = {_quoted(query[name])}" for name in ("type", "source") if query.get(name)]
    if query.get("text"):
        parts.append(f"instr(content, {_quoted(query['text'])}) > 0")
    if query.get("filter"):
        parts.append(f"(\n{query['filter']}\n)")
    return " AND ".join(parts) or None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
