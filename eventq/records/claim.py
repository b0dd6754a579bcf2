"""Claims, and the events that failed for good."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.event import Event


class ClaimInfo(Record):
    """A claim that is out: which worker has which event, since when, and until when, in ms.

    One whose `deadline_ms` has passed is nobody's, and goes to the next worker that claims. So
    does one that is `lost`: `eventq work`, or what a push had started, is gone that took it here.
    """

    consumer_id: str
    event_id: int
    attempt: int
    worker: str
    token: str
    claimed_at_ms: int
    deadline_ms: int
    lost: bool = False


class WorkerStatus(Record):
    """A worker with claims: how many, since when, and when the first one ends, in ms."""

    worker: str
    claims: int
    claimed_at_ms: int
    deadline_ms: int


class DeadLetter(Record):
    """An event that failed for good.

    `event` is None if it was deleted since. `exit_code` is that of its handler, if it had one, and
    `error` what was said of the last attempt: of a handler, the end of what it printed.
    """

    consumer_id: str
    event_id: int
    event: Event | None
    attempts: int
    exit_code: int | None
    error: str | None
    died_at_ms: int
