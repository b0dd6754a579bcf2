"""Consumers: subscribe, pop, ack, resume, and whether events wait for them."""

from __future__ import annotations

from eventq.errors import (
    ConsumerExistsError,
    FilterError,
    StoreError,
    UnknownConsumerError,
    UsageError,
)
from eventq.event import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.event import ConsumerState, EventPage, LinePage
    from eventq.log.notifier import Notifier
    from eventq.records import Subscription
    from eventq.storage.base import Database, Lease, Leases
    from eventq.workspace.journal import Journal

_WORTH_NOTING = 1_000  # ids that a watermark must save the next scan to be worth a write


class Subscriptions:
    """The consumers of one thread."""

    def __init__(self, db: Database, journal: Journal, notifier: Notifier) -> None:
        """Take the database, the journal and the notifier of the thread."""
        self._db = db
        self._journal = journal
        self._notifier = notifier

    def states(self) -> list[ConsumerState]:
        """Return the state of every subscription, oldest first."""
        return self._db.consumers.all()

    def state(self, consumer: str) -> ConsumerState | None:
        """Return the state of one subscription, or None."""
        return self._db.consumers.get(consumer)

    def known(self, consumer: str) -> ConsumerState:
        """Return the state of one subscription. Raises UnknownConsumerError."""
        check_name(consumer, "consumer")
        state = self.state(consumer)
        if state is None:
            raise UnknownConsumerError(consumer)
        return state

    def subscribe(
        self, new: Subscription, *, from_now: bool, warn: Callable[[str], object]
    ) -> None:
        """Check the filter, store the subscription, and start a dispatch if events wait for it.

        `warn` gets a sentence about a filter that is valid but probably a mistake. If `warn`
        raises, nothing is stored.
        """
        check_name(new.consumer_id, "consumer")
        if not new.handler_cmd.strip() or "\0" in new.handler_cmd:
            raise UsageError("the handler is empty", "give a shell command")
        if not 1 <= new.max_attempts < 1 << 63 or (
            new.timeout is not None and not 0 < new.timeout < float("inf")
        ):
            raise UsageError(
                "attempts and timeout must be above zero", "leave them out for the defaults"
            )
        where = new.filter
        db = self._db
        db.events.accept(where)
        # Imported here, as it takes 1 ms and no other command needs it.
        from eventq.filters.grammar import advice

        if wrong := advice(where):
            warn(wrong)
        with db.write():
            if not db.consumers.put(
                new.consumer_id,
                new.handler_cmd,
                where,
                new.max_attempts,
                new.timeout,
                from_now=from_now,
            ):
                raise ConsumerExistsError(new.consumer_id)
            db.on_commit(lambda: self._subscribed(new.consumer_id, where))

    def _subscribed(self, consumer: str, where: str | None) -> None:
        self._journal.info(f"subscribe: consumer={consumer} filter={where or '(none)'}")
        self._wake(consumer)

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription, but keep its progress for a later one."""
        check_name(consumer, "consumer")
        db = self._db
        with db.write():
            if not db.consumers.delete(consumer):
                raise UnknownConsumerError(consumer)
            db.on_commit(lambda: self._journal.info(f"unsubscribe: consumer={consumer}"))

    def pop(
        self, consumer: str, acked: int, limit: int, *, lines: bool = False
    ) -> EventPage | LinePage:
        """Ack up to an id; return the next matching events and the id scanned up to.

        Raises UnknownConsumerError, AckError, FilterError.
        """
        check_name(consumer, "consumer")
        popped = self._db.consumers.pop(consumer, acked, limit, lines=lines)
        if popped.woke:
            self._db.on_commit(lambda: self._wake(consumer))
        assert popped.page is not None  # it was asked for
        return popped.page

    def read_on(
        self, consumer: str, after: int, limit: int, *, lines: bool = False
    ) -> EventPage | LinePage:
        """Return the next matching events after an id without an ack."""
        return self._db.consumers.read_on(consumer, after, limit, lines=lines)

    def ack(self, consumer: str, acked: int) -> None:
        """Mark all events up to an id as done; a smaller id than before starts a replay."""
        check_name(consumer, "consumer")
        if self._db.consumers.pop(consumer, acked, 0).woke:
            self._db.on_commit(lambda: self._wake(consumer))

    def resume(self, consumer: str) -> None:
        """End a stall or a back-off, so that the handler runs again at once."""
        state = self.known(consumer)
        db = self._db
        with db.write():
            db.consumers.note_run(state, attempts=0, stalled="")
            db.on_commit(lambda: self._resumed(consumer))

    def _resumed(self, consumer: str) -> None:
        self._journal.info(f"resume: consumer={consumer}")
        self._notifier.wake_supervisor(consumer)
        self._wake(consumer)

    def stall(self, state: ConsumerState, reason: str) -> None:
        """Record that no handler is started until an ack or a `resume`, and why."""
        self._db.consumers.note_run(state, stalled=reason)
        self._journal.warn(
            f"dispatch: consumer={state.consumer} stalled: {reason}; fix it, then run 'eventq"
            f" resume'"
        )

    def note_attempts(self, state: ConsumerState, attempts: int) -> None:
        """Record how many consecutive runs made no progress past the acked id."""
        self._db.consumers.note_run(state, attempts=attempts)

    def _wake(self, consumer: str) -> None:
        """Start a dispatch if this consumer is due. Never raises: the change is committed."""
        try:
            state = self.state(consumer)
            if state is not None and self.due(state):
                self._notifier.wake_one()
        except FilterError:
            pass  # the next dispatch reports it
        except StoreError as error:
            self._journal.warn(f"wake: consumer={consumer} could not be checked ({error})")

    def due(self, state: ConsumerState) -> bool:
        """Return whether a matching event waits, and record up to which id there is none.

        Raises FilterError for a broken filter.
        """
        db = self._db
        start, upto = state.scanned, db.events.last()
        if start >= upto:
            return False
        where = db.events.accept(state.filter)
        hit = db.events.first_match(where, start, upto)
        clear = upto if hit is None else hit - 1
        if (
            where
            and db.writable
            and (hit is None or clear - start >= _WORTH_NOTING)
            and clear > start
        ):
            db.consumers.note_scanned(state, clear)
        return hit is not None

    def ready(self, state: ConsumerState) -> bool:
        """Return whether a consumer is due and not stalled; stall it if its filter is broken.

        Raises StoreError if the database cannot be read.
        """
        if state.stalled is not None:
            return False
        try:
            return self.due(state)
        except FilterError as error:
            self.stall(state, f"its filter is refused: {error.what}")
        return False

    def lease(self, consumer: str) -> Lease | None:
        """Take the right to supervise a consumer; return None while somebody else has it."""
        return self._db.lease(consumer)

    def leases(self) -> Leases:
        """Return who supervises which consumers."""
        return self._db.leases()

    def pending(self, state: ConsumerState) -> int | None:
        """Return how many events wait for a consumer, or None if its filter cannot be run."""
        db = self._db
        try:
            where = db.events.accept(state.filter)
            return db.events.count(where, state.scanned, db.events.last())
        except FilterError:
            return None
