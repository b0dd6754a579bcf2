"""The short-lived part of a dispatch: lock the due consumers, then start their supervisor."""

from __future__ import annotations

import os

from eventq.errors import EventqError, StoreError, cited
from eventq.log.notifier import DELAY, QUEUE_FD
from eventq.system import clock, disk, environment, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.log.consumers import Subscriptions
    from eventq.log.journal import Journal
    from eventq.records.consumer import ConsumerState
    from eventq.store.paths import Layout
    from eventq.store.protocol import Lease, Leases

_MOST_SECONDS = 60.0  # the longest a dispatch is deferred


def leave_queue(layout: Layout) -> None:
    """Free the queue slot for the next dispatch: from here on, this one may miss new events."""
    fd = environment.env_number(QUEUE_FD, -1)
    os.environ.pop(QUEUE_FD, None)
    for slot in (layout.queue, layout.deferred):
        try:
            # The number may belong to another file by now.
            if fd > 2 and os.path.samestat(os.fstat(fd), os.stat(slot)):
                os.close(fd)
        except OSError:
            pass


def wait_turn() -> float:
    """Wait for as long as this dispatch is deferred; return the seconds waited.

    The descriptors of the caller are closed first, as it may be waiting for the end of a pipe.
    """
    seconds = min(environment.env_seconds(DELAY, 0.0), _MOST_SECONDS)
    os.environ.pop(DELAY, None)
    fd = environment.env_number(QUEUE_FD, -1)
    if fd <= 2 or not seconds:
        return 0.0
    # The shell that started us ignores these, and handlers would inherit that.
    for number in (processes.signals.SIGINT, processes.signals.SIGQUIT):
        processes.signals.signal(number, processes.signals.SIG_DFL)
    _close_all({fd})
    clock.pause(seconds)
    return seconds


class Dispatch:
    """One scan of all consumers of a thread."""

    def __init__(self, subscriptions: Subscriptions, layout: Layout, journal: Journal) -> None:
        """Take the subscriptions, the paths and the journal of the thread."""
        self._subscriptions = subscriptions
        self._layout = layout
        self._journal = journal
        self.failure: EventqError | None = None  # of the first consumer that could not be checked

    def scan(self) -> dict[str, Lease]:
        """Lock the consumers that are or will be due, or have lost their supervisor.

        Returns the locks. Of those that will be, a worker may have left one that it never took.
        """
        locks: dict[str, Lease] = {}
        leases = self._subscriptions.leases()
        for state in self._subscriptions.states():
            try:
                wanted = self._subscriptions.is_waiting(state) or leases.is_lost(state.consumer)
                lock = self._lock(state, leases) if wanted else None
            except Exception as error:  # noqa: BLE001 (one consumer must not block the others)
                self._fail(state.consumer, error)
                continue
            if lock is not None:
                locks[state.consumer] = lock
        return locks

    def skipped(self) -> list[str]:
        """Return a sentence for each consumer that is paused or stalled, or in part, and log it."""
        found = []
        for consumer, why in self._subscriptions.halted():
            self._journal.info(f"dispatch: consumer={consumer} skipped: it {why}")
            found.append(f"consumer '{consumer}' was skipped: it {why}")
        for consumer, why in self._subscriptions.stopped_groups():
            self._journal.info(f"dispatch: consumer={consumer} {why}")
            found.append(f"consumer '{consumer}' {why}")
        return found

    def _fail(self, consumer: str, error: Exception) -> None:
        self._journal.error(f"dispatch: consumer={consumer} could not be checked ({error})")
        known = error if isinstance(error, EventqError) else None
        fix = known.fix if known else "see logs/thread.log, then dispatch again"
        if isinstance(error, PermissionError):
            fix = f"run {cited(disk.given_back(self._layout.database))}, then dispatch again"
        failure = StoreError(
            f"consumer '{consumer}' could not be checked: {known.what if known else error}", fix
        )
        self.failure = self.failure or failure

    def _lock(self, state: ConsumerState, leases: Leases) -> Lease | None:
        if leases.is_worked(state.consumer):
            self._journal.info(f"dispatch: consumer={state.consumer} skipped (a worker has it)")
            self._subscriptions.ring()
            return None
        lock = self._subscriptions.lease(state.consumer)
        if lock is None:
            self._journal.info(f"dispatch: consumer={state.consumer} skipped (lock held)")
        else:
            leases.forget_lost(state.consumer)
        return lock


def detach(keep: set[int]) -> None:
    """Detach from the caller: a new session, no streams, and no descriptors but `keep`.

    The directory and the environment stay the caller's.
    """
    # The process that pushed may block the signals that a supervisor waits for.
    processes.signals.pthread_sigmask(processes.signals.SIG_SETMASK, ())
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    _close_all(keep)


def _close_all(keep: set[int]) -> None:
    """Close all descriptors except the three streams and `keep`."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # it was the one that listed the folder


def start_supervisor(directory: str, locks: dict[str, Lease]) -> None:
    """Fork a supervisor and hand it the locks.

    The caller must have closed its database and run no second OS thread.
    """

    def supervise() -> None:
        detach({fd for lock in locks.values() for fd in lock.fds})
        from eventq.running.supervisor import supervise

        supervise(directory, locks)

    processes.fork(supervise)
    for lock in locks.values():
        lock.close()
