"""The last hour of a thread, a look a minute: what is compared with, and drawn."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eventq.records.info import ThreadStatus

MINUTES = 60
SECONDS = 60.0  # between two looks
BACK = 300.0  # seconds


class Look(Record):
    """What was seen at a time: the last id, and of each consumer its lag, what waits, its ack."""

    at: float
    last_id: int
    lags: Mapping[str, float]
    pending: Mapping[str, int]
    acked: Mapping[str, int]


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
            )
        )

    def earlier(self) -> Mapping[str, float]:
        """Return the lags of five minutes ago, {} if nobody looked then."""
        then = clock.monotonic() - BACK
        for look in reversed(self._looks):
            if look.at <= then:
                return look.lags
        return {}

    def waiting(self, consumer: str) -> Sequence[int]:
        """Return how many events waited for a consumer, a number a minute."""
        return [look.pending.get(consumer, 0) for look in self._looks]

    def finished(self, consumer: str) -> Sequence[int]:
        """Return how far a consumer's ack moved, in each minute."""
        marks = [look.acked[consumer] for look in self._looks if consumer in look.acked]
        return [max(0, after - before) for before, after in pairwise(marks)]

    def pushed(self) -> Sequence[int]:
        """Return how many events came in each minute."""
        marks = [look.last_id for look in self._looks]
        return [max(0, after - before) for before, after in pairwise(marks)]
