"""Consumers: subscribe, pop, ack, resume, and whether events wait for them."""

from __future__ import annotations

from eventq.errors import (
    ConsumerExistsError,
    FilterError,
    StoreError,
    UnknownConsumerError,
    UsageError,
)
from eventq.log.claims import milliseconds
from eventq.records.checks import check_name, check_natural, check_positive
from eventq.records.consumer import Settings
from eventq.store.queue_rows import QueueStatus
from eventq.system import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from eventq.log.journal import Journal
    from eventq.log.notifier import Notifier
    from eventq.records.consumer import ConsumerState, Subscription
    from eventq.records.event import EventPage, LinePage
    from eventq.store.protocol import Database, Hold, Lease, Leases, Watcher

_AROUND = 20  # characters of a long value that an error shows before the first that differs
_KINDS = {"loop": "a handler that pops", "each": "a handler of --each", "pull": "no handler"}
_MOST_COMMAND = (128 << 10) - 1  # bytes: what Linux takes as one argument, without its NUL
_WORTH_NOTING = 100  # ids that a watermark must save the next process to be worth a write


def settings_of(new: Subscription) -> Settings:
    """Return how a consumer is run; raise UsageError for what makes no sense."""
    _check_handler(new)
    check_positive(new.max_attempts, "max_attempts")
    if new.timeout is not None and (
        isinstance(new.timeout, bool) or not isinstance(new.timeout, (int, float))
    ):
        raise UsageError(
            f"timeout must be a number of seconds, not {new.timeout!r}",
            "give seconds, or leave it out",
        )
    if new.timeout is not None and not 0 < new.timeout < float("inf"):
        raise UsageError("timeout must be above zero", "leave it out for no time limit")
    base, most = (milliseconds(seconds, "backoff") for seconds in new.backoff)
    lease = milliseconds(new.lease, "lease")
    if base > most:
        what = f"backoff must not end below its start, as {new.backoff!r} does"
        raise UsageError(what, "give two durations, the shorter one first")
    if not lease:
        raise UsageError("a lease must be above zero", "give seconds, such as 30")
    if new.on_failure not in (None, "stall", "dead"):
        raise UsageError(f"on_failure is {new.on_failure!r:.50}", "give 'stall' or 'dead'")
    each = new.kind == "each"
    if not each and (new.batch != 1 or new.concurrency):
        raise UsageError("batch and concurrency are for a handler of each event", "add --each")
    if each and not new.concurrency and new.ordered_by is not None:
        raise UsageError(
            "the events of this consumer come in order already", "give a concurrency with it"
        )
    check_order(new.ordered_by)
    command = new.handler_cmd if each else None
    return Settings(
        new.kind, command, None if new.kind == "pull" else new.directory,
        check_positive(new.batch, "batch"), check_natural(new.concurrency, "concurrency"),
        new.ordered_by, new.on_failure, base, most, lease, new.emit_dead, new.label,
    )  # fmt: skip


def subscription_of(state: ConsumerState) -> Subscription:
    """Return the subscription of a consumer."""
    from eventq.records.consumer import Subscription

    kind, command, place, batch, many, by, failure, base, most, lease, emit, label = state.settings
    handler = {"pull": None, "each": command}.get(kind, state.handler)
    return Subscription(
        state.consumer, handler, state.filter, state.max_attempts, state.timeout, kind, batch,
        many, by, failure, (base / 1000, most / 1000), lease / 1000, emit, place, label,
    )  # fmt: skip


def _check_handler(new: Subscription) -> None:
    check_name(new.consumer_id, "consumer")
    handler = new.handler_cmd
    if new.kind == "pull":
        if handler is not None:
            raise UsageError("a pull consumer has no handler", "leave one of the two out")
    elif not handler or not handler.strip() or "\0" in handler:
        raise UsageError("the handler is empty", "give a shell command")
    elif (size := len(handler.encode(errors="replace"))) > _MOST_COMMAND:
        raise UsageError(
            f"the handler has {size} bytes, and a shell takes {_MOST_COMMAND}",
            "put the commands into a file, and give the path of that",
        )
    if new.directory is not None and "\0" in new.directory:
        raise UsageError("the directory has a NUL in its name", "give a directory that there is")
    if new.label is not None:
        check_name(new.label, "label")
        if new.kind == "pull":
            raise UsageError("a label is for a handler", "give one, or leave the label out")


def check_order(by: str | None) -> None:
    """Raise UsageError for what events cannot be ordered by."""
    if by is None or by in ("source", "type"):
        return
    if not isinstance(by, str) or not _is_path(by):
        raise UsageError(
            f"events cannot be ordered by '{by!s:.100}'",
            "give source, type, or the path of a value in the content, such as $.order.id",
        )


def _is_path(text: str) -> bool:
    """Return whether this is the path of a JSON value, as SQLite has them."""
    import re  # here, as nearly no command needs it

    name, index = r'\.(?:"[^"\0]*"|[^."\[\0][^.\[\0]*)', r"\[(?:[0-9]{1,9}|#(?:-[0-9]{1,9})?)\]"
    return re.fullmatch(rf"\$(?:{name}|{index})*", text) is not None


def _changes(state: ConsumerState, new: Subscription, settings: Settings) -> list[str]:
    """Return what another subscription would change; where it was made does not count.

    Nor does it whether a default was given or left out.
    """
    before = state.settings._replace(on_failure=state.settings.failure)
    settings = settings._replace(on_failure=settings.failure)
    state = state._replace(settings=before, filter=state.filter or None)
    fresh = state._replace(
        handler=new.handler_cmd or "", filter=new.filter or None, max_attempts=new.max_attempts,
        timeout=new.timeout, settings=settings._replace(directory=state.settings.directory),
    )  # fmt: skip
    old, given = subscription_of(state), subscription_of(fresh)
    found = []
    for name in old._fields:
        was, value = getattr(old, name), getattr(given, name)
        if was != value:
            word = name.removesuffix("_cmd").replace("_", " ")
            if name == "kind":
                found.append(f"{_KINDS[was]} -> {_KINDS[value]}")
            else:
                found.append(f"{word} {_shown(was, value)} -> {_shown(value, was)}")
    return found


def _shown(value: object, other: object) -> str:
    """Return a value for an error; of a long text the part where it differs from another one."""
    if isinstance(value, tuple):
        return "..".join(f"{seconds:.15g}" for seconds in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return f"{value:.15g}"
    text = str(other)
    differing = (at for at, (a, b) in enumerate(zip(value, text, strict=False)) if a != b)
    start = max(0, next(differing, min(len(value), len(text))) - _AROUND)
    part = value[start : start + 3 * _AROUND]
    end = start + len(part) < len(value)
    return f"{'…' * bool(start)}{part!r}{'…' * end}"


class Subscriptions:
    """The consumers of one thread."""

    def __init__(self, db: Database, journal: Journal, notifier: Notifier) -> None:
        """Take the database, the journal and the notifier of the thread."""
        self._db = db
        self._journal = journal
        self._notifier = notifier
        # Of each consumer: a filter and a place, up to which id nothing matches, and what is run.
        self._clear: dict[str, tuple[tuple[str | None, int] | None, int, str]] = {}

    @property
    def database(self) -> Database:
        """The database of the thread, for those who run its handlers."""
        return self._db

    def next_due(self, consumer: str) -> int | None:
        """Return the ms until an event may be due that was claimed before, or None for never."""
        return self._db.claims.next_due(consumer)

    def watch(self) -> Watcher:
        """Return a watcher of the log."""
        return self._db.watch()

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
        self,
        new: Subscription,
        *,
        from_now: bool,
        replace: bool,
        warn: Callable[[str], object],
    ) -> bool:
        """Check the filter, store the subscription, and start a dispatch if events wait for it.

        Return False, and store nothing, when there is an equal one; `replace` changes one that
        differs. `warn` gets a sentence about a filter that is valid but probably a mistake. If
        `warn` raises, nothing is stored.
        """
        settings = settings_of(new)
        self._notifier.check_label(settings.label)
        handler = ":" if settings.kind != "loop" else (new.handler_cmd or "")
        terms = (handler, new.filter, new.max_attempts, new.timeout)
        db = self._db
        accept = db.claims.accept if settings.kind == "each" else db.events.accept
        accept(new.filter)
        # Imported here, as it takes 1 ms and no other command needs it.
        from eventq.log.filters.advice import advice

        if wrong := advice(new.filter):
            warn(wrong)
        consumer = new.consumer_id
        with db.write():
            state = db.consumers.get(consumer)
            if state is None:
                db.consumers.put(consumer, *terms, settings=settings, from_now=from_now)
            else:
                changes = _changes(state, new, settings)
                if not changes:
                    return False
                if not replace:
                    raise ConsumerExistsError(consumer, ", ".join(changes))
                db.consumers.change(consumer, *terms, settings)
                db.claims.resume(consumer)
            db.claims.refilter(consumer)
            db.on_commit(lambda: self._subscribed(consumer, new.filter))
        return True

    def _subscribed(self, consumer: str, where: str | None) -> None:
        self._journal.info(f"subscribe: consumer={consumer} filter={where or '(none)'}")
        self.wake(consumer)

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription, but keep its progress for a later one."""
        check_name(consumer, "consumer")
        db = self._db
        with db.write():
            if not db.consumers.delete(consumer):
                raise UnknownConsumerError(consumer)
            db.on_commit(lambda: self._journal.info(f"unsubscribe: consumer={consumer}"))

    def pop(
        self,
        consumer: str,
        acked: int | None,
        limit: int,
        *,
        lines: bool = False,
        replay: bool = False,
        fence: int | None = None,
    ) -> EventPage | LinePage:
        """Ack up to an id, if any; return the next matching events and the id scanned up to.

        Raises UnknownConsumerError, FencedError, ConsumerInUseError, AckError, AlreadyAckedError,
        FilterError.
        """
        check_name(consumer, "consumer")
        how: Any = {"lines": lines, "replay": replay, "fence": fence}
        popped = self._db.consumers.pop(consumer, acked, limit, **how)
        if popped.woke:
            self._db.on_commit(lambda: self.wake(consumer))
        assert popped.page is not None  # it was asked for
        return popped.page

    def read_on(
        self,
        consumer: str,
        after: int,
        limit: int,
        *,
        lines: bool = False,
        replay: bool = False,
        fence: int | None = None,
    ) -> EventPage | LinePage:
        """Return the next matching events after an id without an ack."""
        how: Any = {"lines": lines, "replay": replay, "fence": fence}
        return self._db.consumers.read_on(consumer, after, limit, **how)

    def ack(
        self, consumer: str, acked: int, *, replay: bool = False, fence: int | None = None
    ) -> None:
        """Mark all events up to an id as done; `replay` goes back to a smaller one than before."""
        check_name(consumer, "consumer")
        if self._db.consumers.pop(consumer, acked, 0, replay=replay, fence=fence).woke:
            self._db.on_commit(lambda: self.wake(consumer))

    def raise_fence(self, consumer: str) -> int:
        """Return the fence of a new supervisor: acks of handlers with a smaller one are refused."""
        return self._db.consumers.raise_fence(consumer)

    def resume(self, consumer: str) -> None:
        """End a pause, a stall or a back-off, so that the handler runs again at once."""
        state = self.known(consumer)
        db = self._db
        with db.write():
            db.consumers.note_run(state, attempts=0, stalled="")
            if state.paused:
                db.consumers.pause(consumer, paused=False)
            db.claims.resume(consumer)
            db.on_commit(lambda: self._resumed(consumer))

    def _resumed(self, consumer: str) -> None:
        self._journal.info(f"resume: consumer={consumer}")
        self._notifier.wake_supervisor(consumer)
        self.wake(consumer)

    def restart(self) -> None:
        """Resume the stalled consumers that are not run for each event, as the original tool does.

        There, each push and each dispatch starts a handler again that has failed.
        """
        for state in self.states():
            if state.stalled is not None and state.settings.kind == "loop" and not state.paused:
                self.resume(state.consumer)

    def pause(self, consumer: str) -> None:
        """Start no handler and lease no event until a `resume`; what runs may finish."""
        self.known(consumer)
        with self._db.write():
            self._db.consumers.pause(consumer, paused=True)
            self._db.on_commit(lambda: self._journal.info(f"pause: consumer={consumer}"))

    def stall(self, state: ConsumerState, reason: str, fix: str = "fix it") -> None:
        """Record that no handler is started until an ack or a `resume`, why, and what helps."""
        self._db.consumers.note_run(state, stalled=reason)
        what = f"stall: consumer={state.consumer} is stalled: {reason}"
        self._journal.warn(f"{what}; {fix}, then: {self.resuming(state.consumer)}")

    def resuming(self, consumer: str) -> str:
        """Return the command that lets a consumer go on."""
        from eventq.log.notifier import quote

        place = f"--thread {quote(self._journal.thread)} --consumer {quote(consumer)}"
        return f"{processes.called()} resume {place}"

    def first_waiting(self, state: ConsumerState) -> int | None:
        """Return the first event that waits for a consumer; None for none, or a broken filter."""
        db = self._db
        try:
            where = db.events.accept(state.filter)
        except FilterError:
            return None
        first = self._waiting(state).first
        if first is not None:
            return first
        return db.events.first_match(where, max(state.scanned, state.frontier), db.events.last())

    def _waiting(self, state: ConsumerState) -> QueueStatus:
        """Return what claims have left of the events before the frontier."""
        if state.settings.kind == "loop" or not self._db.has_queues():
            return QueueStatus()
        return self._db.claims.statuses(state.consumer).get(state.consumer, QueueStatus())

    def command(self, state: ConsumerState) -> str:
        """Return the command that runs the handler of a consumer, if nobody does."""
        return self._notifier.command(state.settings.label)

    def halted(self) -> Iterator[tuple[str, str]]:
        """Yield each consumer that is paused or stalled, why, and what helps."""
        for state in self.states():
            run = f"run: {self.resuming(state.consumer)}"
            if state.stalled is not None:
                yield state.consumer, f"is stalled: {state.stalled}; fix it, then {run}"
            elif state.paused:
                yield state.consumer, f"is paused; {run}"

    def stopped_groups(self) -> Iterator[tuple[str, str]]:
        """Yield each consumer with a stopped group, at which event it is, and what helps."""
        for state in self.states():
            settings = state.settings
            may_stop = settings.ordered_by is not None and settings.failure == "stall"
            event = self._waiting(state).halted_at if may_stop else None
            if event is not None and state.stalled is None:
                fix = f"fix it, then run: {self.resuming(state.consumer)}"
                yield state.consumer, f"has stopped the group of event {event}; {fix}"

    def note_attempts(self, state: ConsumerState, attempts: int) -> None:
        """Record how many consecutive runs made no progress past the acked id."""
        self._db.consumers.note_run(state, attempts=attempts)

    def wake(self, consumer: str) -> None:
        """Start a dispatch that would find work here. Never raises: the change is committed."""
        try:
            state = self.state(consumer)
            if state is None or not self.is_waiting(state):
                return
            if not self.leases().is_worked(consumer):
                self._notifier.wake_one()
        except StoreError as error:
            self._journal.warn(f"wake: consumer={consumer} could not be checked ({error})")

    def due(self, state: ConsumerState) -> bool:
        """Return whether a matching event waits, and record up to which id there is none.

        Raises FilterError for a broken filter.
        """
        each = state.settings.kind == "each"
        return (each and self.next_due(state.consumer) == 0) or self._has_new(state)

    def _has_new(self, state: ConsumerState, newest: int | None = None) -> bool:
        """Return whether an event matches that was never looked at, up to the newest one."""
        db, each = self._db, state.settings.kind == "each"
        start = noted = max(state.scanned, state.frontier)
        upto = db.events.last() if newest is None else newest
        place = state.filter, max(state.acked, state.frontier)
        known, clear, where = self._clear.get(state.consumer, (None, 0, ""))
        if known == place and start < clear <= upto:
            start = clear
        if start >= upto:
            return False
        if known != place:
            where = (db.claims if each else db.events).accept(state.filter)
        hit = db.events.first_match(where, start, upto)
        clear = upto if hit is None else hit - 1
        if where and each:  # such a filter may not read the clock
            self._clear[state.consumer] = place, clear, where
        if where and db.writable and clear - noted >= _WORTH_NOTING:
            db.consumers.note_scanned(state, clear)
        return hit is not None

    def ready(self, state: ConsumerState) -> bool:
        """Return whether a handler is due and may run; stall it if its filter is broken.

        Raises StoreError if the database cannot be read.
        """
        return state.may_run and self._passes(state, self.due)

    def _passes(self, state: ConsumerState, test: Callable[[ConsumerState], bool]) -> bool:
        """Return what a test says; stall the consumer if its filter is broken."""
        try:
            return test(state)
        except FilterError as error:
            self.stall(state, f"its filter is refused: {error.what}")
        return False

    def is_waiting(self, state: ConsumerState, newest: int | None = None) -> bool:
        """Return whether a consumer is due, or an event of it waits for another attempt.

        Who asks for many consumers gives the id of the newest event, found once.
        """
        if not state.may_run:
            return False
        is_each = state.settings.kind == "each" and state.unfinished
        if is_each and self.next_due(state.consumer) is not None:
            return True
        return self._passes(state, lambda state: self._has_new(state, newest))

    def lease(self, consumer: str) -> Lease | None:
        """Take the right to supervise a consumer; return None while somebody else has it."""
        return self._db.lease(consumer)

    def leases(self) -> Leases:
        """Return who supervises which consumers."""
        return self._db.leases()

    def hold(self, consumer: str) -> Hold:
        """Note that this process works for a consumer: then pushes start nothing for it."""
        return self._db.hold(consumer)

    def ring(self) -> None:
        """Wake who waits for something to do."""
        self._db.ring()
