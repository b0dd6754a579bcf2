"""Consumers: their subscriptions, and the state of each."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.records.claim import WorkerStatus
    from eventq.records.event import EventPage, LinePage

    class Terms(TypedDict, total=False):
        """What `Thread.subscribe` takes beside its own parameters; see `Subscription`."""

        from_now: bool
        max_attempts: int
        timeout: float | None
        batch: int
        concurrency: int
        ordered_by: str | None
        on_failure: str | None
        backoff: tuple[float, float]
        lease: float
        emit_dead: bool
        directory: str | None
        label: str | None


class Settings(Record):
    """How a consumer is run; times are in ms.

    A `loop` handler pops and acks by itself, `each` runs `command` for up to `batch` events, `pull`
    runs nothing. With `concurrency` 0 events come in order, otherwise so many are claimed at once,
    and those alike in `ordered_by` come in order. After the last attempt the consumer stalls or the
    event is dead (`on_failure`; None: stall in order, dead with claims). Of a shared thread,
    workers with the `label` run it; without one, those without labels.
    """

    kind: str = "loop"
    command: str | None = None
    directory: str | None = None
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str | None = None
    backoff: int = 1_000
    backoff_most: int = 300_000
    lease: int = 30_000
    emit_dead: bool = False
    label: str | None = None

    @property
    def failure(self) -> str:
        """What follows the last attempt: the consumer stalls, or the event is dead."""
        return self.on_failure or ("stall" if self.kind == "loop" or self.in_order else "dead")

    @property
    def in_order(self) -> bool:
        """Whether no event is claimed while one before it is unfinished."""
        return self.kind == "each" and not self.concurrency


# A subscription without settings: the tool that `thread` replaces made it.
ORIGINAL = Settings(backoff=500, backoff_most=60_000)


class ConsumerState(Record):
    """A subscription and the state of its consumer.

    `attempts` counts runs without progress since the last ack, `stalled` says why no handler is
    started, and no event after `acked` and `frontier` up to `scanned` matches. Claims have examined
    all events up to `frontier`, which is 0 for a handler that pops, and may have left some of them
    `unfinished`.
    """

    consumer: str
    handler: str
    filter: str | None
    acked: int
    updated_at: str | None
    max_attempts: int
    timeout: float | None
    attempts: int
    stalled: str | None
    scanned: int
    settings: Settings = ORIGINAL
    paused: bool = False
    frontier: int = 0
    unfinished: bool = False

    @property
    def may_run(self) -> bool:
        """Whether its handler may be started: it has one, and is neither stalled nor paused."""
        return self.stalled is None and not self.paused and self.settings.kind != "pull"


class Popped(Record):
    """The result of an ack: the next page, and whether the consumer may be due without new events.

    `page` is None for an ack alone. `woke` says that the ack ended a stall or asked for a replay.
    """

    page: EventPage | LinePage | None
    woke: bool


class Subscription(Record):
    """A consumer's subscription.

    `handler_cmd` runs while matching events are not acked; with `kind` "each", once for each event
    (`batch`: for so many); of "pull", it is None, and nothing runs. With `concurrency` 0 events
    come in order; else so many handlers run at once, and events alike in `ordered_by` in order.
    After `max_attempts` the consumer stalls or the event is dead, as `on_failure` says. `backoff`
    are the least and the most seconds before another attempt, `lease` those of a claim. Of a thread
    in PostgreSQL, workers with the `label` run the handler; without one, those without labels.
    """

    consumer_id: str
    handler_cmd: str | None
    filter: str | None
    max_attempts: int = 21
    timeout: float | None = None
    kind: str = "loop"
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str | None = None
    backoff: tuple[float, float] = (1.0, 300.0)
    lease: float = 30.0
    emit_dead: bool = False
    directory: str | None = None
    label: str | None = None


class ConsumerStatus(Record):
    """A subscription and the state of its consumer.

    `handler_cmd` is None for one that runs nothing. `pending` counts matching events that are not
    finished (None when the filter cannot be run), and with `pending_is_least` there may be more:
    the count ended early, at 1,000 that a filter matches, or after its time. `attempts` counts runs
    without progress since the last ack; `stalled` says why no handler is started any more, or is
    None. `waiting_id` is the first event that is not finished, `lag` its age in seconds, and
    `exit_code` the last one of a handler for it alone. `done`, `failed` and `buried` count attempts
    of the last 24 hours, and `dead` dead letters. `log` is the file with what handlers print.

    `batch`, `concurrency`, `ordered_by`, `on_failure` ("stall" or "dead"), `backoff`, `lease` and
    `label` are those of the subscription. `waits_for` says what has to happen next, and `advice` is
    the command to run for that, or None where nobody has to do anything. `worked` says whether a
    worker looks after the consumer: `eventq work`, or a `Worker`; `workers` hold claims now.

    Of the pending events, claims have looked at the `unfinished` ones: `leased` are claimed now,
    `parked` wait for an earlier event of their group, `halted` have stopped their group or the
    consumer after their last attempt, and the others wait for another attempt. Nobody has looked at
    the `unexamined` ones (None as for `pending`), which follow them. A handler that pops counts all
    of them as unexamined, whatever was claimed.
    """

    consumer_id: str
    handler_cmd: str | None
    filter: str | None
    last_acked_id: int
    updated_at: str | None
    pending: int | None
    running: bool
    attempts: int
    stalled: str | None
    max_attempts: int
    timeout: float | None
    kind: str = "loop"
    paused: bool = False
    waiting_id: int | None = None
    lag: float | None = None
    exit_code: int | None = None
    unfinished: int = 0
    leased: int = 0
    parked: int = 0
    unexamined: int | None = None
    dead: int = 0
    done: int = 0
    failed: int = 0
    buried: int = 0
    log: str | None = None
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str = "stall"
    backoff: tuple[float, float] = (1.0, 300.0)
    lease: float = 30.0
    waits_for: str | None = None
    advice: str | None = None
    halted: int = 0
    worked: bool = False
    label: str | None = None
    pending_is_least: bool = False
    workers: tuple[WorkerStatus, ...] = ()
