"""Select events by time, type and source: a range of ids to look at, and a filter for them.

Ids are in the order of the commits, and there is no index on times, which would halve the speed of
a push. So a search among ids finds where a time begins. Clocks are set back now and then: the
search is for a time that is `STEP` earlier, or later for the end, and the filter compares the time
of each event. The result is exact as long as no clock was set back by more than that.
"""

from __future__ import annotations

from eventq.errors import UsageError
from eventq.record import Record
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.records.event import Event
    from eventq.store.engine import Engine
    from eventq.store.protocol import Events

STEP = 600.0  # seconds that a clock may be set back
PAGE = 250  # events that are read at once
PROBES = 64  # times that are read at once: four statements for ten million events


class Selection(Record):
    """A filter, and the ids that it is for: those above `after`, up to `upto`."""

    filter: str | None
    after: int
    upto: int


def select(
    events: Events,
    *,
    filter: str | None,
    since: float | None,
    until: float | None,
    type: Sequence[str],
    source: Sequence[str],
) -> Selection:
    """Return the selection of the events that all of these match; none of them matches all.

    Times are seconds since 1970; `until` is the first moment that is too late. `type` and `source`
    are alternatives. Raises FilterError, and UsageError for times that no event can have.
    """
    if since is not None and since > clock.now():
        what = f"--since is yet to come: {clock.stamp(since)}"
        raise UsageError(what, "give an earlier time, a time of day with its date")
    if since is not None and until is not None and since >= until:
        raise UsageError("--until is not after --since", "give the earlier time to --since")
    events.accept(filter)  # by itself, so that an error shows it as it was written
    after, upto = 0, events.last()
    conditions = [f"({filter})"] if filter else []
    if since is not None:
        after = _edge(events, since - STEP, upto)[0]
        conditions.append(f"created_at >= '{clock.stamp(since)}'")
    if until is not None:
        upto = _edge(events, until + STEP, upto, last=True)[1] - 1
        conditions.append(f"created_at < '{clock.stamp(until)}'")
    conditions += [*_among("type", type), *_among("source", source)]
    return Selection(" AND ".join(conditions) or None, after, upto)


def caused(db: Engine, cause: int, where: Selection, limit: int) -> Iterator[list[Event]]:
    """Yield the first events of a selection that an event has caused, page by page.

    The filter is an accepted one.
    """
    after = where.after
    while limit > 0 and (ids := db.causes.events(("", cause), after, where.upto, PAGE)):
        there, after = db.events.among(ids)
        found = [there[one] for one in ids if one in there]
        if where.filter:
            matching = db.events.matching(where.filter, found)
            found = [one for one in found if one.id in matching]
        yield found[:limit]
        limit -= len(found)


def newest_caused(db: Engine, cause: int, where: Selection, count: int) -> list[Event]:
    """Return the newest events of a selection that an event has caused, oldest first."""
    found: list[Event] = []
    while len(found) < count:
        ids = db.causes.events(("", cause), where.after, where.upto, PAGE, newest=True)
        if not ids:
            break
        page = where._replace(after=ids[0] - 1)
        found = [one for some in caused(db, cause, page, PAGE) for one in some] + found
        where = where._replace(upto=ids[0] - 1)
    return found[-count:]


def _among(column: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the condition for a column that has one of some values; none for no values."""
    if names:
        quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        yield f"{column} IN ({quoted})"


def _edge(events: Events, seconds: float, upto: int, *, last: bool = False) -> tuple[int, int]:
    """Return two ids in a row, of which only the second has reached a time.

    Where the clock was set back, there are several such places: it is the first one of those that
    are seen, or with `last` the last one. An id that is not stored has not reached it.
    """
    at = clock.stamp(max(0.0, seconds))
    low, high = max(0, events.bounds().first - 1), upto + 1
    while high - low > 1:
        ids = range(low + 1, high, (high - low) // PROBES + 1)
        times = events.times(ids)
        new = [one for one in ids if times.get(one, "") >= at]
        if last:
            low = max((one for one in ids if one not in new), default=low)
            high = min((one for one in new if one > low), default=high)
        else:
            high = min(new, default=high)
            low = max((one for one in ids if one < high), default=low)
    return low, high
