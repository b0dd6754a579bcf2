"""Consumers: subscribe, pop, ack, and what is still before them."""

from __future__ import annotations

from eventq import system
from eventq.errors import AckError, ConsumerExistsError, FilterError, StoreError, UnknownConsumerError, UsageError
from eventq.event import Event, check_name
from eventq.filters.grammar import advice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.log.journal import Journal
    from eventq.log.notifier import Notifier
    from eventq.records import Subscription
    from eventq.storage.sqlite.database import Database

_WORTH_NOTING = 1_000  # ids that a watermark must spare the next look to be worth a write


class State:
    """What the store knows of one subscription; the columns of `Database.subscriptions` by name."""

    __slots__ = (
        "acked", "attempts_at", "attempts_there", "consumer", "filter", "handler", "max_attempts", "scanned_after",
        "scanned_filter", "scanned_id", "stalled_at", "stalled_there", "timeout", "updated_at",
    )  # fmt: skip

    attempts_there: int
    stalled_there: str | None
    scanned_id: int
    acked: int

    def __init__(self, row: tuple[Any, ...]) -> None:
        """Take one row."""
        (
            self.consumer, self.handler, self.filter, self.acked, self.updated_at, self.max_attempts, self.timeout,
            self.attempts_there, self.attempts_at, self.stalled_there, self.stalled_at, self.scanned_after,
            self.scanned_id, self.scanned_filter,
        ) = row  # fmt: skip

    @property
    def attempts(self) -> int:
        """Runs in a row that made no progress: those noted for another acked id do not count."""
        return self.attempts_there if self.attempts_at == self.acked else 0

    @property
    def stalled(self) -> str | None:
        """Why no handler is started; a stall ends with an ack, whoever gives it."""
        return self.stalled_there if self.stalled_at == self.acked else None

    @property
    def scanned(self) -> int:
        """The id after which a look for work begins: nothing between the acked id and this one matches."""
        fits = self.scanned_after <= self.acked and self.scanned_filter == (self.filter or "")
        return max(self.acked, self.scanned_id) if fits else self.acked


class Subscriptions:
    """The consumers of one thread."""

    def __init__(self, db: Database, journal: Journal, notifier: Notifier) -> None:
        """Bring the parts together."""
        self._db = db
        self._journal = journal
        self._notifier = notifier

    def states(self) -> list[State]:
        """Give the state of every subscription, oldest first."""
        return [State(row) for row in self._db.consumers.subscriptions()]

    def state(self, consumer: str) -> State | None:
        """Give the state of one subscription, or None."""
        rows = self._db.consumers.subscriptions(consumer)
        return State(rows[0]) if rows else None

    def known(self, consumer: str) -> State:
        """Give the state of one subscription; raise UnknownConsumerError when there is none."""
        check_name(consumer, "consumer")
        state = self.state(consumer)
        if state is None:
            raise UnknownConsumerError(consumer)
        return state

    def subscribe(self, new: Subscription, *, from_now: bool, warn: Callable[[str], object]) -> None:
        """Store a subscription; the filter is tried first. With work waiting for it a dispatch is started.

        `warn` gets a sentence about a filter that is accepted and hardly meant; what it raises is raised
        before anything is stored.
        """
        check_name(new.consumer_id, "consumer")
        if not new.handler_cmd.strip() or "\0" in new.handler_cmd:
            raise UsageError("the handler is empty", "give a shell command")
        if not 1 <= new.max_attempts < 1 << 63 or (new.timeout is not None and not 0 < new.timeout < float("inf")):
            raise UsageError("attempts and timeout must be above zero", "leave them out for the defaults")
        text = new.filter
        db = self._db
        db.events.check_filter(text)
        if wrong := advice(text):
            warn(wrong)
        with db.write():
            if not db.consumers.add_subscription(new.consumer_id, new.handler_cmd, text, new.max_attempts, new.timeout):
                raise ConsumerExistsError(new.consumer_id)
            if from_now and (last := db.events.last_id()):
                db.consumers.set_acked(new.consumer_id, last, system.stamp(system.now()))
            db.after(lambda: self._subscribed(new.consumer_id, text))

    def _subscribed(self, consumer: str, text: str | None) -> None:
        self._journal.info(f"subscribe: consumer={consumer} filter={text or '(none)'}")
        self._wake(consumer)

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription; its progress stays for a later one."""
        check_name(consumer, "consumer")
        db = self._db
        with db.write():
            if not db.consumers.drop_subscription(consumer):
                raise UnknownConsumerError(consumer)
            db.after(lambda: self._journal.info(f"unsubscribe: consumer={consumer}"))

    def pop(self, consumer: str, acked: int, limit: int, *, lines: bool = False) -> tuple[list[Any], int]:
        """Ack up to an id and give the next matching rows, and the id that the search has got to.

        The rows are read first: a filter that fails leaves the ack where it was, and an ack that fails gives no rows.
        The filter is looked up by itself, as a pop needs nothing else of a subscription.
        """
        text = self._filter(consumer)
        upto = self._db.events.last_id()
        self._check_ack(consumer, acked, upto)
        rows, at = self._matching(text, acked, upto, limit, lines=lines)
        self._ack(consumer, acked)
        return rows, at

    def read_on(self, consumer: str, after: int, limit: int, *, lines: bool = False) -> tuple[list[Any], int]:
        """Give the next matching rows after an id without an ack, and the id that the search has got to."""
        return self._matching(self._filter(consumer), after, self._db.events.last_id(), limit, lines=lines)

    def _filter(self, consumer: str) -> str | None:
        """Give the filter of a consumer, None for all events; raise UnknownConsumerError when it is not subscribed."""
        check_name(consumer, "consumer")
        found = self._db.consumers.filter_of(consumer)
        if isinstance(found, bool):
            raise UnknownConsumerError(consumer)
        return found  # as it is: one that cannot be read is told by its type

    def _matching(self, text: str | None, after: int, upto: int, limit: int, *, lines: bool) -> tuple[list[Any], int]:
        accepted = self._db.events.check_filter(text)
        found: list[Any] = []
        while after < upto and len(found) < limit:
            rows, after = self._db.events.page(accepted, after, upto, limit - len(found), lines=lines)
            found += rows
        return found, after

    def ack(self, consumer: str, acked: int) -> None:
        """State that everything up to an id is done; a smaller id than before asks for a replay."""
        self._filter(consumer)
        self._check_ack(consumer, acked, self._db.events.last_id())
        self._ack(consumer, acked)

    def _check_ack(self, consumer: str, acked: int, last: int) -> None:
        if acked > last and acked != self._db.consumers.acked(consumer):
            raise AckError(acked, last)

    def _ack(self, consumer: str, acked: int) -> None:
        db = self._db
        before = db.consumers.acked(consumer)
        if before == acked:
            return
        db.check_writable()
        with db.relaxed():
            db.consumers.set_acked(consumer, acked, system.stamp(system.now()))
        if acked < (before or 0) or self._stalled_before(consumer, before or 0):
            db.after(lambda: self._wake(consumer))

    def _stalled_before(self, consumer: str, before: int) -> bool:
        """Say whether an ack has just ended a stall: then nobody else would start the handler for what is left."""
        state = self.state(consumer)
        return state is not None and state.stalled_there is not None and state.stalled_at == before

    def resume(self, consumer: str) -> None:
        """End a stall or a back-off: the handler is run again at once."""
        self.known(consumer)
        db = self._db
        with db.write():
            db.consumers.set_stalled(consumer, None, 0)
            db.after(lambda: self._resumed(consumer))

    def _resumed(self, consumer: str) -> None:
        self._journal.info(f"resume: consumer={consumer}")
        self._notifier.wake_supervisor(consumer)
        self._wake(consumer)

    def stall(self, state: State, reason: str) -> None:
        """Note that no handler is to be started until an ack or `resume`, and why."""
        with self._db.write():
            self._db.consumers.set_stalled(state.consumer, reason, state.acked)
        self._journal.warn(f"dispatch: consumer={state.consumer} stalled: {reason}; mend it, then run 'eventq resume'")

    def note_attempts(self, state: State, attempts: int) -> None:
        """Note how many runs in a row made no progress past the acked id."""
        with self._db.write():
            self._db.consumers.set_attempts(state.consumer, attempts, state.acked)

    def _wake(self, consumer: str) -> None:
        """Start a dispatch when this consumer has work. What led here is stored: nothing raises any more."""
        try:
            state = self.state(consumer)
            if state is not None and self.due(state):
                self._notifier.wake_one()
        except FilterError:
            pass  # the dispatch that meets the filter says so
        except StoreError as error:
            self._journal.warn(f"wake: consumer={consumer} could not be looked at ({error})")

    def due(self, state: State) -> bool:
        """Say whether an event that matches is waiting, noting how far there is none.

        Raises FilterError for a broken filter.
        """
        db = self._db
        start, upto = state.scanned, db.events.last_id()
        if start >= upto:
            return False
        text = db.events.check_filter(state.filter)
        hit = db.events.first_match(text, start, upto)
        clear = upto if hit is None else hit - 1
        if text and db.writable and (hit is None or clear - start >= _WORTH_NOTING) and clear > start:
            with db.relaxed():
                db.consumers.set_watermark(state.consumer, state.acked, clear, state.filter or "")
        return hit is not None

    def pending(self, state: State) -> int | None:
        """Give the number of events that wait for a consumer, None when its filter cannot be run."""
        db = self._db
        try:
            text = db.events.check_filter(state.filter)
            return db.events.count_matches(text, state.scanned, db.events.last_id())
        except FilterError:
            return None

    def events(self, rows: list[Any]) -> list[Event]:
        """Give rows as events."""
        return [Event._make(row) for row in rows]
