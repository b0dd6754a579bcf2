"""A stretch of the log: where it begins, what is in it, and how its events are spread in time.

Times rise with ids, so that a time is found by a few looks at ids, whatever is stored. After a step
of the clock it is found nearby.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from eventq.store.protocol import Events

COUNTED = 50_000  # events of a stretch, the newest, whose types and sources are counted
BARS = 60
_SAMPLES = 1_200  # events whose times are looked at, evenly over a stretch
_WAYS = 100  # into which what is left is divided at each look


class Stretch(Record):
    """Events with `after` < id <= `upto`, from one time to another, in seconds since 1970."""

    after: int
    upto: int
    start: float
    end: float

    @property
    def size(self) -> int:
        """How many events there are."""
        return self.upto - self.after


class Spread(Record):
    """How many events came in each of so many equal parts of a stretch of time.

    Unless it `is_exact`, only some events were looked at, which stand for those before them.
    """

    counts: list[int]
    is_exact: bool


def stretch(events: Events, seconds: float | None) -> Stretch:
    """Return the events of the last so many seconds, or with None all."""
    bounds, now = events.bounds(), clock.now()
    first = bounds.last - bounds.stored
    if seconds is None:
        start = _at(events.times([bounds.first]).get(bounds.first)) or now
        return Stretch(first, bounds.last, min(start, now), now)
    after = last_before(events, clock.stamp(now - seconds), first, bounds.last)
    return Stretch(after, bounds.last, now - seconds, now)


def around(events: Events, number: int, reach: int) -> Stretch:
    """Return the events around one."""
    bounds = events.bounds()
    after = max(bounds.last - bounds.stored, min(number - 1 - reach, bounds.last))
    upto = max(after, min(number + reach, bounds.last))
    found = events.times([after + 1, upto])
    now = clock.now()
    return Stretch(after, upto, _at(found.get(after + 1)) or now, _at(found.get(upto)) or now)


def last_before(events: Events, stamp: str, low: int, high: int) -> int:
    """Return the highest id above `low` of an event that came before a time, or `low`."""
    while low < high:
        step = max(1, (high - low) // _WAYS)
        numbers = [*range(low + step, high, step), high]
        times = events.times(numbers)
        before = [one for one in numbers if times.get(one, stamp) < stamp]
        low = max(before, default=low)
        high = min((one for one in numbers if one > low), default=low + 1) - 1
    return low


def spread(events: Events, of: Stretch) -> Spread:
    """Return how the events of a stretch are spread over its time."""
    counts = [0] * BARS
    step = max(1, -(-of.size // _SAMPLES))
    numbers = [*range(of.after + step, of.upto, step), of.upto] if of.size > 0 else []
    times = events.times(numbers) if numbers else {}
    each = max(of.end - of.start, 0.001) / BARS
    before = of.after
    for number in numbers:
        at = _at(times.get(number))
        if at is not None:
            counts[min(BARS - 1, max(0, int((at - of.start) / each)))] += number - before
        before = number
    return Spread(counts, step == 1)


def _at(stamp: str | None) -> float | None:
    """Return the time of an event in seconds since 1970, None for none."""
    with suppress(ValueError):
        return None if stamp is None else datetime.fromisoformat(stamp).timestamp()
    return None
