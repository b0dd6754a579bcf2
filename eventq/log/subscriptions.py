"""Consumers: subscribe, pop, ack, and what is still before them."""

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
    from eventq.storage.sqlite.database import Database
    from eventq.workspace.journal import Journal

_WORTH_NOTING = 1_000  # ids that a watermark must spare the next look to be worth a write


class Subscriptions:
    """The consumers of one thread."""

    def __init__(self, db: Database, journal: Journal, notifier: Notifier) -> None:
        """Bring the parts together."""
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
        """Give the state of one subscription; raise UnknownConsumerError when there is none."""
        check_name(consumer, "consumer")
        state = self.state(consumer)
        if state is None:
            raise UnknownConsumerError(consumer)
        return state

    def subscribe(
        self, new: Subscription, *, from_now: bool, warn: Callable[[str], object]
    ) -> None:
        """Store a subscription; the filter is tried first. With work waiting for it a dispatch is started.

        `warn` gets a sentence about a filter that is accepted and hardly meant; what it raises is raised
        before anything is stored.
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
        text = new.filter
        db = self._db
        db.events.accept(text)
        from eventq.filters.grammar import (
            advice,
        )  # 1 ms, of each command, for what `subscribe` alone needs

        if wrong := advice(text):
            warn(wrong)
        with db.write():
            if not db.consumers.put(
                new.consumer_id, new.handler_cmd, text, new.max_attempts, new.timeout
            ):
                raise ConsumerExistsError(new.consumer_id)
            if from_now and (last := db.events.last()):
                db.consumers.start_at(new.consumer_id, last)
            db.on_commit(lambda: self._subscribed(new.consumer_id, text))

    def _subscribed(self, consumer: str, text: str | None) -> None:
        self._journal.info(f"subscribe: consumer={consumer} filter={text or '(none)'}")
        self._wake(consumer)

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription; its progress stays for a later one."""
        check_name(consumer, "consumer")
        db = self._db
        with db.write():
            if not db.consumers.delete(consumer):
                raise UnknownConsumerError(consumer)
            db.on_commit(lambda: self._journal.info(f"unsubscribe: consumer={consumer}"))

    def pop(
        self, consumer: str, acked: int, limit: int, *, lines: bool = False
    ) -> EventPage | LinePage:
        """Ack up to an id and return the next matching events, and the id that the search has got to.

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
        """State that everything up to an id is done; a smaller id than before asks for a replay."""
        check_name(consumer, "consumer")
        if self._db.consumers.ack(consumer, acked).woke:
            self._db.on_commit(lambda: self._wake(consumer))

    def resume(self, consumer: str) -> None:
        """End a stall or a back-off: the handler is run again at once."""
        self.known(consumer)
        db = self._db
        with db.write():
            db.consumers.end_stall(consumer)
            db.on_commit(lambda: self._resumed(consumer))

    def _resumed(self, consumer: str) -> None:
        self._journal.info(f"resume: consumer={consumer}")
        self._notifier.wake_supervisor(consumer)
        self._wake(consumer)

    def stall(self, state: ConsumerState, reason: str) -> None:
        """Note that no handler is to be started until an ack or `resume`, and why."""
        self._db.consumers.stall(state, reason)
        self._journal.warn(
            f"dispatch: consumer={state.consumer} stalled: {reason}; mend it, then run 'eventq"
            f" resume'"
        )

    def note_attempts(self, state: ConsumerState, attempts: int) -> None:
        """Note how many runs in a row made no progress past the acked id."""
        self._db.consumers.note_attempts(state, attempts)

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

    def due(self, state: ConsumerState) -> bool:
        """Say whether an event that matches is waiting, noting how far there is none.

        Raises FilterError for a broken filter.
        """
        db = self._db
        start, upto = state.scanned, db.events.last()
        if start >= upto:
            return False
        text = db.events.accept(state.filter)
        hit = db.events.first_match(text, start, upto)
        clear = upto if hit is None else hit - 1
        if (
            text
            and db.writable
            and (hit is None or clear - start >= _WORTH_NOTING)
            and clear > start
        ):
            db.consumers.note_scanned(state, clear)
        return hit is not None

    def ready(self, state: ConsumerState) -> bool:
        """Return whether a consumer is due and not stalled; one with a broken filter is stalled here.

        Raises StoreError when that cannot be found out.
        """
        if state.stalled is not None:
            return False
        try:
            return self.due(state)
        except FilterError as error:
            self.stall(state, f"its filter is refused: {error.what}")
        return False

    def pending(self, state: ConsumerState) -> int | None:
        """Give the number of events that wait for a consumer, None when its filter cannot be run."""
        db = self._db
        try:
            text = db.events.accept(state.filter)
            return db.events.count(text, state.scanned, db.events.last())
        except FilterError:
            return None
