"""Claims, verdicts and dead letters as the domain and an engine exchange them."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.records.event import Event


class Worker(Record):
    """Who claims: a name to be shown, and the process, so that others can see that it is lost."""

    name: str
    process: str | None = None


class Claimed(Record):
    """An event that a worker has leased, for the `attempt`-th time from 1.

    `revived` says that it was a dead letter; `orphan` names the process that its last worker left
    it with, if that worker was lost.
    """

    event: Event
    attempt: int
    revived: bool
    orphan: str | None


class Taken(Record):
    """What a claim got, until when, and for how long, in ms.

    The token is an earlier one with an earlier nonce.
    """

    claims: list[Claimed]
    token: bytes
    until: int
    span: int


class Verdict(Record):
    """What a worker says of some events that one claim leased: done, extend, retry or dead.

    `span` is the length of the new lease, or of the wait before the next attempt, in ms; None is as
    long as the lease was, or waits as the consumer's settings say. `counts` says whether a retry is
    a failed attempt, `code` is an exit code.
    """

    consumer: str
    token: bytes
    events: Sequence[int]
    revived: bool
    what: str
    span: int | None = None
    counts: bool = True
    code: int | None = None
    error: str | None = None


class Outcome(Record):
    """An attempt that did not finish its event, and `what` follows: retry, dead or stall.

    A retry comes after `wait` ms, or with None once its consumer is resumed. `most` is the
    consumer's number of attempts; one that was not counted has `counts` false. `code` is the exit
    code of a handler, negative for a signal, `error` what was said of the attempt, and `worker` who
    lost its lease.
    """

    consumer: str
    event: int | None
    attempt: int
    most: int
    what: str
    wait: int | None = 0
    counts: bool = True
    code: int | None = None
    error: str | None = None
    worker: str | None = None


class Settled(Record):
    """The leases that were lost, as token and event; whether others can claim more than before."""

    lost: set[tuple[bytes, int]]
    freed: bool


class ClaimRow(Record):
    """A lease as it is stored: who has which event since when and until when, in ms.

    `process` is the worker's, and that of the handler which it started.
    """

    consumer: str
    event: int
    attempt: int
    worker: str
    since: int
    until: int
    token: bytes
    revived: bool
    process: str | None


class Unfinished(Record):
    """An event that claims have left unfinished; one that was leased waits, as with no worker."""

    revived: int
    event: int
    state: int
    attempts: int
    uncounted: int
    due_at: int
    span: int
    group: str | None
    code: int | None
    error: str | None


class DeadRow(Record):
    """A dead letter, without its event; `at` is in ms."""

    consumer: str
    event: int
    attempts: int
    code: int | None
    error: str | None
    at: int


class Standing(Record):
    """What a consumer's queue holds of an event: its `state`, unfinished or DEAD; times are in ms.

    `at` is the end of the lease or of the wait, or when it died. A lease that has ended is a wait.
    """

    consumer: str
    event: int
    state: int
    attempts: int
    at: int
    worker: str | None
    code: int | None
    error: str | None


class Minute(Record):
    """How many attempts of a consumer ended how in a minute, counted since 1970.

    The `dead` ones, after which an event is a dead letter, are among those that `failed`.
    """

    consumer: str
    minute: int
    done: int
    failed: int
    dead: int


class QueueStatus(Record):
    """What a consumer's claims have left to do.

    In 24 hours attempts were `done` or have `failed`; of these some were the last: `buried`. Of
    the unfinished, the `parked` ones wait for an earlier event of their group. `first` is the first
    event that is not finished, and `code` the last exit code for it; `revived` is the first
    dead letter that is tried again. After a last attempt, `halted` events have stopped their groups
    or the queue, from `halted_at` on; `due_at` is when the next attempt is made, in ms.
    """

    unfinished: int = 0
    leased: int = 0
    parked: int = 0
    dead: int = 0
    first: int | None = None
    code: int | None = None
    done: int = 0
    failed: int = 0
    buried: int = 0
    revived: int | None = None
    halted: int = 0
    halted_at: int | None = None
    due_at: int | None = None
