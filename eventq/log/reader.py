"""Consume in a loop: each event is acked when the loop comes back for the next one.

The lease of the consumer is renewed for as long as the loop lasts, whatever its body does. A reader
that was stopped for longer than that has lost it, perhaps to another one: it looks before it yields
an event, and its acks carry its fence, which the next reader's exceeds.
"""

from __future__ import annotations

import os

from eventq.errors import ConsumerInUseError, EventqError, FencedError, LeaseLostError
from eventq.log.events import fresh
from eventq.store.blocks import Block
from eventq.store.causing import During
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.log.consumers import Subscriptions
    from eventq.records.event import Event
    from eventq.store.protocol import Database, Lease, Watcher

_PAGE = 1_000  # events that are read at once
_RETRY_SECONDS = 0.02  # between two tries to take the lease: nothing reports its end
_LOOK_SECONDS = 1.0  # between two looks at the lease: no lease ends sooner than that
_NEVER = float("inf")
_held: set[Lease] = set()  # by the readers of this process


class _Holding(Block):
    """A lease for as long as a block lasts; a child that is forked in it leaves it to its parent.

    An interrupt may come whenever it is taken or released: it is released all the same.
    """

    _lease: Lease | None = None

    def __init__(self, take: Callable[[], Lease]) -> None:
        """Prepare; `take` returns the lease."""
        self._take = take
        self._pid = os.getpid()

    def __enter__(self) -> Lease:
        """Take the lease."""
        self._lease = lease = self._take()
        _held.add(lease)
        return lease

    def leave(self, *_: object) -> None:
        """Release the lease."""
        self.undo()

    def undo(self, *_: object) -> None:
        """Release the lease, if that is left to do."""
        lease = self._lease
        if lease is not None and self._pid == os.getpid():
            lease.release()
            self._lease = None
            _held.discard(lease)
            lease.forget()
        self._guard = None


class Reader:
    """The only reader of a consumer, whose lease it has meanwhile."""

    def __init__(
        self,
        db: Database,
        subscriptions: Subscriptions,
        consumer: str,
        ack_every: int,
        tick: Callable[[], object] | None = None,
    ) -> None:
        """Take the database and the subscriptions of the thread; nothing is read yet.

        `tick` is called at least once a second while the reader waits; an exception that it raises
        ends the wait.
        """
        self._db = db
        self._subscriptions = subscriptions
        self._consumer = consumer
        self._ack_every = ack_every
        self._tick = tick
        self._lease: Lease | None = None
        self._fence = 0
        self._look_at = 0.0  # the lease, next
        self._acked = 0  # the progress as it is stored
        self._read = 0  # the last event that the loop is through with
        self._unacked = 0  # how many of these are not acked yet

    def events(self, wait: float | None, idle: float | None) -> Iterator[Event]:
        """Yield the events; wait for the lease, and up to `idle` seconds for the next event."""
        with _Holding(lambda: self._take(wait)) as lease:
            self._lease = lease
            stop: Callable[[], object] = bool  # does nothing
            try:
                stop = _keep(lease)
                lease.note()
                self._fence = self._subscriptions.raise_fence(self._consumer)
                self._begin()
                with self._db.watch() as watcher:
                    yield from self._follow(watcher, _NEVER if idle is None else idle)
            finally:
                if lease in _held:  # not in a child that the body has forked
                    stop()
                    self._flush()

    def _take(self, wait: float | None) -> Lease:
        deadline = _NEVER if wait is None else clock.monotonic() + wait
        while (lease := self._subscriptions.lease(self._consumer)) is None:
            if clock.monotonic() >= deadline:
                raise ConsumerInUseError(self._consumer, "another process reads as it")
            clock.pause(_RETRY_SECONDS)
            self._look_around()
        return lease

    def _begin(self) -> None:
        """Begin after the last acked event; a first ack of nothing makes the row of progress.

        Raises ConsumerInUseError while somebody has claims of this consumer, and LeaseLostError
        when another reader has begun since.
        """
        try:
            self._db.consumers.pop(self._consumer, 0, 0, fence=self._fence)
        except FencedError:
            raise self._lost() from None
        self._acked = self._read = self._subscriptions.known(self._consumer).acked

    def _follow(self, watcher: Watcher, idle: float) -> Iterator[Event]:
        deadline = clock.monotonic() + idle
        while True:
            seen = self._read
            yield from self._each()
            if self._read > seen:
                deadline = clock.monotonic() + idle
                continue
            self._flush()
            left = deadline - clock.monotonic()
            if left <= 0:
                return
            watcher.wait(min(left, SLOW_LOOK))
            self._look_around()

    def _check_lease(self) -> None:
        """Raise LeaseLostError if somebody else may read as this consumer by now."""
        now = clock.monotonic()
        if now < self._look_at:
            return
        if self._lease is not None and not self._lease.renew():
            raise self._lost()
        self._look_at = now + _LOOK_SECONDS

    def _lost(self) -> LeaseLostError:
        self._unacked = 0
        error = LeaseLostError(self._consumer, self._read)
        error.what = f"this reader of '{self._consumer}' was stopped for longer than its lease"
        error.fix = "drop what is not acked, and consume again: another reader may go on meanwhile"
        return error

    def _look_around(self) -> None:
        if self._tick is not None:
            self._tick()

    def _each(self) -> Iterator[Event]:
        """Yield the events that are stored now."""
        state = self._subscriptions.known(self._consumer)
        if state.paused:
            return
        text = self._db.events.accept(state.filter)
        after, last = self._read, self._db.events.last()
        while after < last:
            page = self._db.events.page(text, after, last, _PAGE)
            after = page.next
            for event in fresh(self._db, page.events):
                self._check_lease()
                with During(self._db.place, (event.id,)):
                    yield event
                self._read = event.id
                self._unacked += 1
                if self._unacked >= self._ack_every and not self._flush():
                    return

    def _flush(self) -> bool:
        """Ack what the loop is through with; return False when others have moved the progress."""
        if not self._unacked:
            return True
        self._unacked = 0
        if self._db.consumers.advance(self._consumer, self._acked, self._read, self._fence):
            self._acked = self._read
            return True
        self._begin()
        return False


def _leave_to_parent() -> None:
    """Close what a forked child has of its parent's leases, or they would last as long as it."""
    for lease in _held:
        for fd in lease.fds:
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def _keep(lease: Lease) -> Callable[[], object]:
    """Renew a lease in another OS thread for as long as needed; return what ends that."""
    if lease.renew_every is None:
        return bool
    from threading import Event, Thread

    over, seconds = Event(), lease.renew_every

    def renew() -> None:
        while not over.wait(seconds):
            try:
                lease.renew()
            except EventqError:
                pass  # the reader finds out

    thread = Thread(target=renew, name="eventq-lease", daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop
