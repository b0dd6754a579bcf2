"""The last hour of a thread, a look a minute: what is compared with, and drawn."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus

MINUTES = 60
SECONDS = 60.0  # between two looks
BACK = 300.0  # seconds
WINDOW = 600.0  # seconds over which rates are taken


class Look(Record):
    """What was seen at a time: the last id, and of each consumer its lag, what waits, its ack.

    For consumers among the `least` more events may have waited.
    """

    at: float
    last_id: int
    lags: Mapping[str, float]
    pending: Mapping[str, int]
    acked: Mapping[str, int]
    least: frozenset[str]


class History:
    """The looks of the last hour."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=MINUTES + 1)

    def add(self, status: ThreadStatus) -> None:
        """Note a status."""
        consumers = status.consumers
        self._looks.append(
            Look(
                clock.monotonic(),
                status.last_id,
                {one.consumer_id: one.lag or 0.0 for one in consumers},
                {one.consumer_id: one.pending or 0 for one in consumers},
                {one.consumer_id: one.last_acked_id for one in consumers},
                frozenset(one.consumer_id for one in consumers if one.pending_is_least),
            )
        )

    def _seen(self) -> list[Look]:
        """Return the looks at one moment: others are added while pages read them."""
        return list(self._looks)

    def earlier(self) -> Mapping[str, float]:
        """Return the lags of five minutes ago, {} if nobody looked then."""
        then = clock.monotonic() - BACK
        for look in reversed(self._seen()):
            if look.at <= then:
                return look.lags
        return {}

    def window(self) -> float:
        """Return the seconds over which rates are taken: ten minutes, or less after a start."""
        return clock.monotonic() - self._then().at if self._looks else 0.0

    def _then(self) -> Look:
        """Return the look with which rates begin."""
        start, seen = clock.monotonic() - WINDOW, self._seen()
        return next((look for look in seen if look.at >= start), seen[-1])

    def rates(
        self, one: ConsumerStatus, last_id: int, done: int
    ) -> tuple[float | None, float | None]:
        """Return how many events came for a consumer, and how many it has done, a minute.

        `done` counts the attempts of its claims in the window. None is what is not known: in the
        first minute, and where nobody counts what a filter matches.
        """
        minutes = self.window() / 60
        if minutes < 1 or one.consumer_id not in (then := self._then()).acked:
            return None, None
        if one.kind == "loop":  # it acks ids, of which a filter leaves out some
            done = one.last_acked_id - then.acked[one.consumer_id]
        is_known = one.kind != "loop" or not one.filter
        if not one.filter:
            came: int | None = last_id - then.last_id
        elif one.pending is None or one.pending_is_least or one.consumer_id in then.least:
            came = None
        else:
            came = one.pending - then.pending[one.consumer_id] + done if is_known else None
        return (
            None if came is None else max(0, came) / minutes,
            max(0, done) / minutes if is_known else None,
        )

    def ages(self, consumer: str) -> Sequence[int]:
        """Return for how many seconds the oldest event had waited, a number a minute."""
        return [int(look.lags.get(consumer, 0)) for look in self._seen()]

    def waiting(self, consumer: str) -> Sequence[int]:
        """Return how many events waited for a consumer, a number a minute."""
        return [look.pending.get(consumer, 0) for look in self._seen()]

    def finished(self, consumer: str) -> Sequence[int]:
        """Return how far a consumer's ack moved, in each minute."""
        marks = [look.acked[consumer] for look in self._seen() if consumer in look.acked]
        return [max(0, after - before) for before, after in pairwise(marks)]

    def pushed(self) -> Sequence[int]:
        """Return how many events came in each minute."""
        marks = [look.last_id for look in self._seen()]
        return [max(0, after - before) for before, after in pairwise(marks)]
