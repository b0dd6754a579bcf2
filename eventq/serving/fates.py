"""How events went with the consumers of a thread: finished, dead, held by a worker, or waiting.

Nobody keeps a note of what is finished: that is an event that its consumer has got past, and holds
nothing of. It was handled or acked, or its dead letter was dropped.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from time import thread_time
from typing import TYPE_CHECKING

from eventq.errors import FilterError
from eventq.record import Record
from eventq.serving.event_pages import in_bounds
from eventq.store import DEAD, HELD, LEASED, STALLED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.records.consumer import ConsumerState
    from eventq.records.event import Event
    from eventq.store.protocol import Events
    from eventq.store.queue_rows import Standing
    from eventq.thread import Thread

FATES = ("dead", "stalled", "held", "waits", "finished", "not for it", "unknown")  # the worst first
MATCH_SECONDS = 0.05  # of processor time, of all filters together; 100 consumers take less
_READ_AGAIN = 256 << 10  # characters of events
_ROWS = 20_000  # that queues may hold of the events of a page: 100, of 100 consumers
_WORDS = {DEAD: "dead", STALLED: "stalled", LEASED: "held", WAITING: "waits", HELD: "waits"}


class Fate(Record):
    """How an event went with a consumer: its `state`, one of `FATES`, and what its queue holds."""

    consumer: ConsumerState
    state: str
    row: Standing | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it waits for an earlier event of its group."""
        return self.row is not None and self.row.state == HELD


def fates(thread: Thread, event: Event) -> list[Fate]:
    """Return how an event went with each consumer, the worst first.

    A filter that cannot be run, or takes too long, leaves it unknown.
    """
    seen = _Seen(thread, [event])
    found = (Fate(one, *seen.look(one, event.id)) for one in seen.consumers)
    return sorted(found, key=lambda fate: FATES.index(fate.state))


def fate_counts(thread: Thread, events: Sequence[Event]) -> dict[int, list[tuple[str, int]]]:
    """Return with how many consumers each event went how, the worst first, by its id."""
    if not events:
        return {}
    seen = _Seen(thread, events)
    found = {}
    for event in events:
        counts = Counter(seen.look(one, event.id)[0] for one in seen.consumers)
        found[event.id] = [(state, counts[state]) for state in FATES[:5] if counts[state]]
    return found


class _Seen:
    """What consumers and their queues say of some events, at one moment."""

    def __init__(self, thread: Thread, events: Sequence[Event]) -> None:
        db = thread.database
        with db.read() as log:
            self.consumers = log.consumers.all()
            numbers = [one.id for one in events]
            held = log.claims.standings(numbers, _ROWS) if db.has_queues() else []
        self._rows: dict[tuple[str, int], Standing] = {}
        for row in sorted(held, key=lambda row: row.state != DEAD):  # what is tried again counts
            self._rows[row.consumer, row.event] = row
        filters = {one.filter for one in self.consumers if one.filter}
        self._matches = _matching(thread, filters, events)

    def look(self, one: ConsumerState, number: int) -> tuple[str, Standing | None]:
        """Return how an event went with a consumer, and what its queue holds of it."""
        row = self._rows.get((one.consumer, number))
        if row is not None:
            return _WORDS[row.state], row
        if one.filter:
            found = self._matches.get(one.filter)
            if found is None or number not in found:
                return "unknown" if found is None else "not for it", None
        return "finished" if number <= one.acked or number <= one.frontier else "waits", None


def _matched(stored: Events, where: str, events: Sequence[Event]) -> set[int]:
    """Return which of some events a filter matches.

    A range of small ones is read again, with a statement instead of one for each: five times as
    fast.
    """
    numbers = [one.id for one in events]
    after, last = min(numbers) - 1, max(numbers)
    if last - after > len(numbers) or sum(len(one.content) for one in events) > _READ_AGAIN:
        return stored.matching(where, [*events])
    found: set[int] = set()
    while after < last:
        page = stored.page(where, after, last, len(numbers))
        found.update(one.id for one in page.events)
        after = page.next
    return found


def _matching(
    thread: Thread, filters: Iterable[str], events: Sequence[Event]
) -> dict[str, set[int]]:
    """Return which events each filter matches, without those that cannot be run."""
    found: dict[str, set[int]] = {}
    deadline = thread_time() + MATCH_SECONDS
    of = thread.database.events

    def look() -> Iterator[tuple[str, set[int]]]:
        for where in filters:
            if thread_time() > deadline:
                return
            with suppress(FilterError):
                yield where, _matched(of, of.accept(where), events)

    with suppress(FilterError):
        in_bounds(thread, "the filters of consumers", lambda: found.update(look()))
    return found
