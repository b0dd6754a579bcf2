"""Who is due: the short-lived part of a dispatch, which takes the locks and leaves a supervisor behind."""

from __future__ import annotations

import os

from eventq import system
from eventq.errors import EventqError, StoreError
from eventq.locks import ConsumerLock, lost
from eventq.log.notifier import DELAY, QUEUE_FD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.event import ConsumerState
    from eventq.log.subscriptions import Subscriptions
    from eventq.workspace.journal import Journal
    from eventq.workspace.layout import Layout

_MOST_SECONDS = 60.0  # that a dispatch is deferred


def leave_queue(layout: Layout) -> None:
    """Make room for the next dispatch to wait: from here on, this one may miss what is pushed."""
    fd = system.env_number(QUEUE_FD, -1)
    os.environ.pop(QUEUE_FD, None)
    for place in (layout.queue, layout.deferred):
        try:
            if fd > 2 and os.path.samestat(
                os.fstat(fd), os.stat(place)
            ):  # and nothing else that has that number
                os.close(fd)
        except OSError:
            pass


def wait_turn() -> float:
    """Wait as long as whoever started this dispatch wants it deferred; return the seconds, 0 for not at all.

    Meanwhile it keeps nothing open that is its caller's, who may wait for the end of a pipe.
    """
    seconds = min(system.env_seconds(DELAY, 0.0), _MOST_SECONDS)
    os.environ.pop(DELAY, None)
    fd = system.env_number(QUEUE_FD, -1)
    if fd <= 2 or not seconds:
        return 0.0
    import signal

    for number in (
        signal.SIGINT,
        signal.SIGQUIT,
    ):  # the shell that started us ignores them, and handlers would as well
        signal.signal(number, signal.SIG_DFL)
    _close_all({fd})
    system.pause(seconds)
    return seconds


class Dispatch:
    """One look at all consumers of a thread."""

    def __init__(self, subscriptions: Subscriptions, layout: Layout, journal: Journal) -> None:
        """Bring the parts together."""
        self._subscriptions = subscriptions
        self._layout = layout
        self._journal = journal
        self.failure: EventqError | None = None  # of the first consumer that could not be looked at

    def scan(self) -> dict[str, ConsumerLock]:
        """Lock the consumers that are due, or have lost their supervisor, and return the locks."""
        locks: dict[str, ConsumerLock] = {}
        for state in self._subscriptions.states():
            try:
                wanted = self._subscriptions.ready(state) or lost(
                    self._layout.consumer(state.consumer)
                )
                lock = self._lock(state) if wanted else None
            except Exception as error:  # noqa: BLE001 (one consumer's surprise must not keep the others waiting)
                self._fail(state.consumer, error)
                continue
            if lock is not None:
                locks[state.consumer] = lock
        return locks

    def _fail(self, consumer: str, error: Exception) -> None:
        self._journal.error(f"dispatch: consumer={consumer} could not be looked at ({error})")
        known = error if isinstance(error, EventqError) else None
        fix = known.fix if known else "see logs/thread.log, then dispatch again"
        failure = StoreError(
            f"consumer '{consumer}' could not be looked at: {known.what if known else error}", fix
        )
        self.failure = self.failure or failure

    def _lock(self, state: ConsumerState) -> ConsumerLock | None:
        lock = ConsumerLock.take(self._layout.consumer(state.consumer))
        if lock is None:
            self._journal.info(f"dispatch: consumer={state.consumer} skipped (lock held)")
        return lock


def detach(keep: set[int]) -> None:
    """Leave the caller's session, streams and other descriptors but for `keep`; its directory and environment stay."""
    import signal

    signal.pthread_sigmask(
        signal.SIG_SETMASK, ()
    )  # whoever pushed may have blocked what a supervisor waits for
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    _close_all(keep)


def _close_all(keep: set[int]) -> None:
    """Close all descriptors but the three streams and `keep`."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed them


def start_supervisor(directory: str, locks: dict[str, ConsumerLock]) -> None:
    """Fork the supervisor that holds the locks from now on; the caller has closed its store and has one thread."""

    def supervise() -> None:
        detach({fd for lock in locks.values() for fd in lock.fds})
        from eventq.log.supervisor import supervise

        supervise(directory, locks)

    system.fork(supervise)
    for lock in locks.values():
        lock.close()
