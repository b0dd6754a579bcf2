"""Events as every door reads them: some at a time, and filters that end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import apsw

from eventq.errors import EventqError, FilterError, PositionError
from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.records.event import Event
    from eventq.store.protocol import Database, Events
    from eventq.thread import Thread

T = TypeVar("T")

ROOM = 16 << 20  # characters of a page, unless one event has more
FILTER_SECONDS = 0.25  # of one look with a filter
FILTER_BYTES = 64 << 20  # that SQLite takes meanwhile
SEARCH_SECONDS = 0.08  # of a search backwards, of which a page shows what it has found
_LOOK = 0.005  # seconds between two looks at both
_STEP = 50_000  # ids of one look, after which the clock is read
_FIRST_STEP = 2_000  # of the first look backwards with a filter: events may be large


def next_lines(
    found: Events, where: str | None, after: int, limit: int, *, room: int | None = None
) -> tuple[list[str], int, bool]:
    """Return the next matching lines, the id that was reached, and whether that is the newest.

    What takes long ends early, as does what has `room` characters: the caller goes on at the id.
    Raises PositionError.
    """
    accepted, upto = found.accept(where), found.last()
    if after > upto:
        raise PositionError(after, upto)
    deadline = clock.monotonic() + FILTER_SECONDS / 2
    room = ROOM if room is None else room
    lines: list[str] = []
    while True:
        page = found.lines(
            accepted, after, max(after, min(upto, after + _STEP)), limit - len(lines)
        )
        lines += page.lines
        room -= sum(map(len, page.lines))
        after = page.next
        if len(lines) >= limit or after >= upto or room <= 0 or clock.monotonic() > deadline:
            return lines, after, after >= upto


def newest_events(thread: Thread, where: str | None, count: int) -> list[Event]:
    """Return the newest matching events, oldest first; fewer of long ones."""

    def look() -> list[Event]:
        found = thread.database.events
        return found.newest(found.accept(where), found.last(), count, ROOM)

    return in_bounds(thread, where, look)


class Newest(Record):
    """The newest matching events of a range, oldest first; all above `reached` were looked at."""

    events: list[Event]
    reached: int


def newest_in(
    thread: Thread, where: str | None, after: int, upto: int, count: int, room: int = ROOM
) -> Newest:
    """Return the newest matching events with `after` < id <= `upto`, fewer of long ones.

    A search that takes long ends early. Raises FilterError.
    """
    found = thread.database.events
    deadline = clock.monotonic() + SEARCH_SECONDS
    chosen: list[Event] = []

    def look() -> int:
        accepted, at, step = found.accept(where), upto, _STEP if where is None else _FIRST_STEP
        while at > after:
            low, left = max(after, at - step), count - len(chosen)
            some = found.newest(accepted, at, left, room - _size(chosen), after=low)
            chosen[:0] = some
            if len(some) >= left or (some and _size(chosen) >= room):
                return some[0].id - 1
            if clock.monotonic() > deadline:
                return low
            at, step = low, min(step * 4, _STEP)
        return after

    return Newest(chosen, in_bounds(thread, where, look))


def _size(events: list[Event]) -> int:
    return sum(len(one.content) for one in events)


class _Guard(threading.Thread):
    """Interrupts a look with a filter that takes too long, or too much memory."""

    def __init__(self, database: Database) -> None:
        super().__init__(name="eventq-guard", daemon=True)
        self._database = database
        self._ended = threading.Event()
        self.why = ""

    def run(self) -> None:
        """Look again and again until `end`."""
        before, deadline = apsw.memory_used(), clock.monotonic() + FILTER_SECONDS
        while not self._ended.wait(_LOOK):
            if apsw.memory_used() - before > FILTER_BYTES:
                self.why = f"{FILTER_BYTES >> 20} MiB"
            elif clock.monotonic() > deadline:
                self.why = f"{FILTER_SECONDS:g}s"
            if self.why:
                self._database.interrupt()
                return

    def end(self) -> None:
        """End it: what comes next is not interrupted."""
        self._ended.set()
        self.join()


def in_bounds(thread: Thread, where: str | None, call: Callable[[], T]) -> T:
    """Return what a call that runs a filter returns. Raises FilterError when it takes too much."""
    if not where:
        return call()
    guard = _Guard(thread.database)
    guard.start()
    try:
        return call()
    except EventqError as error:
        guard.end()
        if guard.why and not isinstance(error, FilterError):
            what = f"the filter takes more than {guard.why}"
            raise FilterError(what, where, 0, "ask for fewer events, or make it simpler") from error
        raise
    finally:
        guard.end()
