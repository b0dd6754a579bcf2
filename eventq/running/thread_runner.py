"""One thread under `eventq work`: what is held for its consumers, and who supervises them.

The thread is open only while there is something to do for it, or was a moment ago. Its holds are
kept all the time: while one is fresh, pushes start nothing for the consumer. It is taken before the
first look for events, and after its release there is another look.
"""

from __future__ import annotations

from eventq.errors import DamagedError, EventqError, NotAThreadError
from eventq.running.supervisor import Supervisor
from eventq.store.opening import trace
from eventq.store.paths import shown
from eventq.system import clock
from eventq.system.counts import some
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eventq.records.consumer import ConsumerState
    from eventq.store.protocol import Hold, Leases

_RETRY_SECONDS = 1.0  # after the first error; doubled for each further one
_RETRY_MOST = 60.0
_MOST_COMPLAINTS = 1_000  # that are remembered, as each is reported once


class ThreadRunner:
    """A thread with the consumers that this process works for."""

    look_each_second = False  # or nobody would notice what has changed
    heir = "a dispatch"  # who takes over what waits at the end

    def __init__(self, path: str, names: Collection[str], say: Callable[[str], object]) -> None:
        """Take the names of the consumers, none for all; `say` gets a line for people."""
        self.path = path
        self.is_new = True
        self.retry_at = 0.0  # after an error
        self._names = names
        self._tell = say
        self._holds: dict[str, Hold] = {}
        self._thread: Thread | None = None
        self._supervisor: Supervisor | None = None
        self._trace: object = None  # at the time of the last look
        self._errors = 0
        self._complaints: set[str] = set()
        self._hands_over = False

    # --- what it is doing -------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the thread is open."""
        return self._thread is not None

    @property
    def wake_at(self) -> float:
        """When to advance even if nothing wakes us; for a runner that is busy."""
        return self._supervisor.wake_at if self._supervisor is not None else clock.monotonic()

    @property
    def running(self) -> int:
        """The number of handlers that run."""
        return self._supervisor.running if self._supervisor is not None else 0

    def say(self, what: str) -> None:
        """Write a line about the thread."""
        self._tell(f"{shown(self.path)}: {what}")

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the consumers that are due. Raises NotAThreadError, DamagedError and others."""
        thread, supervisor = self._open()
        thread.database.alive()
        self._trace = self._traced()
        found = thread.consumers.states()
        states = [state for state in found if self._is_ours(state)]
        self._hold({state.consumer for state in states})
        if self.is_new and not states:
            self._miss([state.consumer for state in found])
        self.is_new = False
        leases = thread.consumers.leases()
        for hold in self._holds.values():
            leases.leave_out(hold.name)
        newest = thread.last_id()
        for state in states:
            if supervisor.has(state.consumer):
                continue
            try:
                self._take(state, leases, newest)
            except (NotAThreadError, DamagedError):
                raise
            except (EventqError, OSError) as error:
                self._complain(f"consumer '{state.consumer}' could not be checked: {error}")
        self._errors = 0

    def _open(self) -> tuple[Thread, Supervisor]:
        if self._thread is None or self._supervisor is None:
            self._thread = thread = self._connect()
            thread.journal.listener = self.say
            self._supervisor = self._supervise(thread)
        return self._thread, self._supervisor

    def _connect(self) -> Thread:
        thread = Thread(self.path)
        if self.is_new:
            thread.check_place()
        return thread

    def _supervise(self, thread: Thread) -> Supervisor:
        return Supervisor(thread.layout, thread.consumers, thread.journal, {})

    def _traced(self) -> object:
        """Return what changes with the thread, whether it is open or not."""
        return trace(self.path)

    def _is_ours(self, state: ConsumerState) -> bool:
        named = not self._names or state.consumer in self._names
        return named and state.settings.kind != "pull"

    def _hold(self, consumers: set[str]) -> None:
        """Hold these consumers and no others."""
        assert self._thread is not None
        for consumer in self._holds.keys() - consumers:
            self._holds.pop(consumer).release()
            self.say(f"no longer works for consumer '{consumer}'")
        for consumer in sorted(consumers - self._holds.keys()):
            try:
                self._holds[consumer] = self._thread.consumers.hold(consumer)
            except OSError as error:
                # Then pushes start handlers too: the lease of the consumer decides who runs them.
                self._complain(f"consumer '{consumer}' is shared with pushes: {error}")
                continue
            self.say(f"works for consumer '{consumer}'")

    def _miss(self, others: list[str]) -> None:
        """Say that there is no consumer yet to work for, and which others there are."""
        named = " or ".join(f"'{name}'" for name in sorted(self._names))
        there = some([f"'{name}'" for name in others])
        beside = f"; it has {there}" if others else ""
        self.say(f"has no consumer {named or 'to work for'} yet{beside}")

    def _take(self, state: ConsumerState, leases: Leases, newest: int) -> None:
        """Supervise a consumer that is due, or whose supervisor or worker was lost."""
        thread, supervisor = self._open()
        consumer = state.consumer
        if not (thread.consumers.is_waiting(state, newest) or leases.is_lost(consumer)):
            return
        lock = thread.consumers.lease(consumer)
        if lock is not None:  # else its holder looks once more after the release
            leases.forget_lost(consumer)
            supervisor.adopt(consumer, lock)

    def advance(self) -> bool:
        """Do what can be done without waiting; return whether anything is left to supervise."""
        return self._supervisor is not None and self._supervisor.advance()

    def has_changed(self) -> bool:
        """Return whether anything has changed since the last look."""
        return self._trace != self._traced()

    def refresh(self) -> None:
        """Refresh the holds."""
        for consumer, hold in self._holds.items():
            try:
                hold.renew()
            except OSError as error:
                self._complain(f"the hold of consumer '{consumer}' is not refreshed: {error}")

    # --- trouble ----------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Report an error that may pass, and try again later."""
        delay = min(_RETRY_SECONDS * 2**self._errors, _RETRY_MOST)
        self._errors = min(self._errors + 1, 10)
        self.retry_at = clock.monotonic() + delay
        self._trace = None
        self._complain(str(error))

    def _complain(self, what: str) -> None:
        """Report something once."""
        if len(self._complaints) > _MOST_COMPLAINTS:
            self._complaints.clear()
        if what not in self._complaints:
            self._complaints.add(what)
            self.say(what)

    # --- the end ----------------------------------------------------------------------------------

    def stop(self, ends_at: float, *, hands_over: bool) -> None:
        """Start nothing more; end at `ends_at` what still runs then."""
        self._hands_over = hands_over
        self.release()
        if self._supervisor is not None:
            self._supervisor.stop(ends_at, self._hand_over)

    def release(self) -> None:
        """Let pushes start handlers again."""
        while self._holds:
            self._holds.popitem()[1].release()

    def look_again(self) -> None:
        """Hand over what waits, after the release: a push that found us here relies on it."""
        thread, supervisor = self._open()
        for state in thread.consumers.states():
            left = self._is_ours(state) and not supervisor.has(state.consumer)
            if left and thread.consumers.is_waiting(state):
                self._hand_over()
                return

    def _hand_over(self) -> None:
        """Leave what waits to a dispatch, or to the next push or worker."""
        if self._hands_over:
            self._complain(f"events still wait: {self.heir} takes over")
            self._open()[0].notifier.wake_one()
        else:
            self._complain("events still wait")

    def close(self) -> None:
        """Close the thread; nothing is supervised any more."""
        if self._thread is not None:
            self._thread.close()
        self._thread = self._supervisor = None
