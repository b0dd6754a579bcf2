"""Group commit: what several OS threads push at the same time is stored as one change.

Each push has a gate of its own. The first one leads: it takes the lock of the connection, then all
pushes that wait by now, and stores them at once. It names the first of those that have come
meanwhile as the next leader, and only then opens the other gates: nobody who waits is without a
leader. If all waited for the lock instead, each would have to take it in turn to learn its result,
and few would be back in time for the next change.

If a batch is refused because of what one of them has pushed, each is stored by itself; any other
error is everybody's. A leader that is interrupted leaves what it has taken with an unknown outcome;
the next one stores the rest.
"""

from __future__ import annotations

from _thread import RLock, allocate_lock

from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from eventq.records.event import Event, NewEvent

MOST = 250  # pushes of one change
MOST_CHARACTERS = 4 << 20  # of their contents, beside those of the first


class _Push:
    """A push that waits for its result, or to lead."""

    __slots__ = ("batch", "error", "event", "gate", "new")

    def __init__(self, new: NewEvent) -> None:
        self.new = new
        self.gate = allocate_lock()
        self.gate.acquire()
        self.event: Event | None = None
        self.error: BaseException | None = None
        self.batch: Sequence[_Push] = ()  # what it stores as the leader

    @property
    def is_over(self) -> bool:
        """Whether it has its result."""
        return self.event is not None or self.error is not None


class Gathering:
    """The pushes of a process to one thread that wait for the connection."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        store: Callable[[Sequence[NewEvent]], Sequence[Event]],
        is_of_one: Callable[[BaseException], bool],
        unknown: Callable[[], BaseException],
    ) -> None:
        """Let `store` store events as one change, with the lock of the connection held.

        `is_of_one` returns whether it may be one event for which it has refused all, and `unknown`
        the error for those of which nobody knows whether they were stored.
        """
        self._lock = lock
        self._store = store
        self._is_of_one = is_of_one
        self._unknown = unknown
        self._count = 0  # of pushes in the last change
        self._turn = RLock()  # of the next two; a handler of a signal may push as well
        self._waiting: list[_Push] = []
        self._leader: _Push | None = None  # there is one while anybody waits

    @property
    def waiting(self) -> int:
        """How many pushes wait to be sent."""
        return len(self._waiting)

    def push(self, new: NewEvent) -> Event:
        """Store an event, alone or with others, and return it."""
        mine = _Push(new)
        try:
            with self._turn:
                if self._leader is None:
                    self._leader = mine
                self._waiting.append(mine)
            if self._leader is not mine:
                mine.gate.acquire()
            if self._leader is mine:
                self._lead(mine)
        finally:
            if self._leader is mine or not mine.is_over:
                try:
                    self._leave(mine)
                except BaseException:  # an interrupt must not leave the others waiting
                    self._leave(mine)
                    raise
        if mine.error is not None:
            raise mine.error
        assert mine.event is not None
        return mine.event

    def _lead(self, mine: _Push) -> None:
        """Store what waits, as soon as the connection is free."""
        with self._lock:
            if self._count > 1:
                clock.pause(0)  # the others of the last change are about to push again
            with self._turn:
                self._count = count = self._fitting()
                mine.batch = self._waiting[:count]
                del self._waiting[:count]
            self._send(mine.batch)

    def _fitting(self) -> int:
        """Return how many of those that wait make one change."""
        size = 0
        for count, push in enumerate(self._waiting[:MOST]):
            size += len(push.new[2])
            if count and size > MOST_CHARACTERS:
                return count
        return min(len(self._waiting), MOST)

    def _send(self, batch: Sequence[_Push]) -> None:
        """Store pushes, and set their results."""
        try:
            events = self._store([push.new for push in batch])
        except Exception as error:  # noqa: BLE001 (each one raises it)
            if len(batch) > 1 and self._is_of_one(error):
                for push in batch:
                    self._send([push])
                return
            for push in batch:
                push.error = error
            return
        for push, event in zip(batch, events, strict=True):
            push.event = event

    def _leave(self, mine: _Push) -> None:
        """Wait no longer: name the next leader, then open the gates. May be called again."""
        with self._turn:
            if mine in self._waiting:  # it was interrupted before it was sent
                self._waiting.remove(mine)
            if self._leader is mine:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.gate.release()
        for push in mine.batch:
            if not push.is_over:
                push.error = self._unknown()
            if push.gate.locked():
                push.gate.release()
        mine.batch = ()  # it holds itself
