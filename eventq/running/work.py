"""`eventq work`: a process in the foreground that runs the handlers of one or many threads.

It waits at one inotify instance for all threads, for its handlers, and for signals. Nothing is done
for a thread that is idle but to refresh its holds every few seconds, and to look at the times of
its files, in case somebody could not ring the bell.
"""

from __future__ import annotations

import os
import select
import signal

from eventq.errors import DamagedError, EventqError, LogicError, NotAThreadError, PlatformError
from eventq.log.notifier import check_handlers
from eventq.running.supervisor import Waker, milliseconds_to
from eventq.running.thread_runner import ThreadRunner
from eventq.running.watchdog import Watchdog
from eventq.storage.engines import bells
from eventq.storage.layout import Layout, resolve, resolve_folder
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

GRACE_SECONDS = 30.0  # for handlers to end after SIGTERM
_REFRESH_SECONDS = 5  # between two refreshes of a hold; each second it is the turn of some threads
_FIND_SECONDS = 30.0  # between two searches for threads, beside those that a change sets off
_POLL_SECONDS = 0.1  # between two looks at files that cannot be watched
_LATE_SECONDS = 15.0  # for handlers that were killed to be gone, and for a store that is busy
_MOST_LOOKS = 50  # threads that are looked at before handlers are looked after again
_MOST_OPEN = 32  # threads that stay open though they are idle


class Work:
    """The loop over all threads."""

    def __init__(
        self,
        threads: Sequence[str],
        folders: Sequence[str] = (),
        consumers: Sequence[str] = (),
        *,
        grace: float = GRACE_SECONDS,
        hands_over: bool = True,
        say: Callable[[str], object] = print,
    ) -> None:
        """Take threads, folders with threads below, and consumers, none for all.

        After a signal, handlers have `grace` seconds to end. What waits then is left to a dispatch
        if it `hands_over`. `say` gets a line for people. Raises LogicError for a thread whose
        handlers nobody runs.
        """
        for path in threads:
            check_handlers(path)
        self._threads = [resolve(path) for path in threads]
        self._folders = [resolve_folder(path) for path in folders]
        self._consumers = frozenset(consumers)
        self._grace, self._hands_over, self._say = grace, hands_over, say
        self._bells = bells()
        self._runners: dict[str, ThreadRunner] = {}
        self._queue: dict[str, None] = {}  # threads that are to be looked at, in this order
        self._busy: dict[str, ThreadRunner] = {}
        self._idle: dict[str, ThreadRunner] = {}  # that are still open, the longest idle first
        self._known: dict[str, object] = {}  # all threads that were ever found
        self._passed: set[str] = set()  # those that are passed over
        self._turn = 0  # counts seconds
        self._turn_at = self._find_at = clock.monotonic()
        self._ends_at = 0.0  # when handlers that still run are ended
        self._signals: list[int] = []
        self._first_error: EventqError | None = None
        self._watchdog: Watchdog | None = None
        self._poll: select.poll | None = None
        self._registered = -1

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; return the signal, or 0 when no thread is left.

        Raises what opening a thread raises when there is none to begin with.
        """
        self._poll = poll = select.poll()
        before = {n: signal.signal(n, self._note) for n in (signal.SIGTERM, signal.SIGINT)}
        waker = Waker(poll)
        self._watchdog = Watchdog(self._say, hands_over=self._hands_over)
        ended = False
        try:
            self._find()
            if not self._runners:
                self._say(f"no thread is there yet: looking below {', '.join(self._folders)}")
            while not self._signals:
                self.advance()
                if not self._runners and not self._folders:
                    break
                self._wait(waker)
            self._say("stopping" if self._signals else "no thread is left")
            self.stop()
            while self.finish():
                self._wait(waker)
            self._end()
            ended = True
        finally:
            self._watchdog.close(farewell=ended)
            self._bells.close()
            waker.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        if not self._signals and self._first_error is not None:
            raise self._first_error
        return self._signals[0] if self._signals else 0

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _wait(self, waker: Waker) -> None:
        """Wait until there is something to do."""
        assert self._poll is not None
        watched = self._bells.fileno()
        if watched != self._registered:
            if self._registered >= 0:
                self._poll.unregister(self._registered)
            if watched >= 0:
                self._poll.register(watched, select.POLLIN)
            self._registered = watched
        self._poll.poll(milliseconds_to(self.wake_at()))
        waker.drain()

    def wake_at(self) -> float:
        """Return when to advance even if nothing wakes us."""
        now = clock.monotonic()
        if self._queue and not self._signals:
            return now
        times = [self._turn_at, *(runner.wake_at for runner in self._busy.values())]
        if self._bells.polls:
            times.append(now + _POLL_SECONDS)
        return min(times)

    def advance(self) -> None:
        """Do what can be done without waiting."""
        rang, changed = self._bells.take()
        self._queue.update(dict.fromkeys(rang & self._runners.keys()))
        now = clock.monotonic()
        if changed or now >= self._find_at:
            self._find()
        if now >= self._turn_at:
            self._refresh(now)
        for directory in [*self._queue][:_MOST_LOOKS]:
            del self._queue[directory]
            self._look(self._runners[directory])
        for runner in [*self._busy.values()]:
            self._advance(runner)
        while len(self._idle) > _MOST_OPEN:
            self._idle.pop(next(iter(self._idle))).close()

    def _look(self, runner: ThreadRunner) -> None:
        """Look at a thread; one that is gone or damaged is given up."""
        self._idle.pop(runner.directory, None)
        self._busy[runner.directory] = runner
        try:
            runner.look()
        except (NotAThreadError, DamagedError, PlatformError) as error:
            self._lose(runner, error)
        except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
            runner.fail(error)

    def _advance(self, runner: ThreadRunner) -> None:
        try:
            if runner.advance():
                return
        except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
            runner.fail(error)
        del self._busy[runner.directory]
        if runner.is_open:
            self._idle[runner.directory] = runner

    def _refresh(self, now: float) -> None:
        """Refresh the holds of some threads, and look at those that have changed unnoticed."""
        behind = int(min(now - self._turn_at, _REFRESH_SECONDS - 1))
        turns = {(self._turn + n) % _REFRESH_SECONDS for n in range(behind + 1)}
        self._turn += behind + 1
        self._turn_at = now + 1
        self._beat()
        for number, runner in enumerate([*self._runners.values()]):
            if number % _REFRESH_SECONDS in turns and runner.refresh() and now >= runner.retry_at:
                self._queue[runner.directory] = None

    def _beat(self) -> None:
        if self._watchdog is not None:
            self._watchdog.beat()

    # --- threads ----------------------------------------------------------------------------------

    def _find(self) -> None:
        """Begin to work for the threads that are new."""
        self._find_at = clock.monotonic() + _FIND_SECONDS
        for directory in (*self._threads, *self._below()):
            if directory in self._runners:
                continue
            identity = _identity(directory)
            if directory in self._known and identity in (None, self._known[directory]):
                continue
            self._known[directory] = identity
            self._bells.add(directory)  # before the first look
            if self._watchdog is not None:
                self._watchdog.add(directory)
            self._runners[directory] = ThreadRunner(directory, self._consumers, self._say)
            self._queue[directory] = None

    def _below(self) -> Iterator[str]:
        """Yield the threads below the folders, and watch where more may appear."""
        folders = [*self._folders]
        while folders:
            folder = folders.pop()
            self._bells.add_folder(folder)
            if os.path.exists(Layout(folder).database):
                yield folder
                continue
            if self._passes(folder):
                continue
            try:
                with os.scandir(folder) as found:
                    names = sorted(
                        entry.path for entry in found if entry.is_dir(follow_symlinks=False)
                    )
            except OSError:
                continue  # gone, or not for us
            folders += reversed(names)

    def _passes(self, folder: str) -> bool:
        """Return whether a folder is a thread whose handlers nobody runs, and say so once."""
        try:
            check_handlers(folder)
        except LogicError as error:
            if folder not in self._passed:
                self._say(f"{error.what}: it is passed over ({error.fix})")
            self._passed.add(folder)
            return True
        return False

    def _lose(self, runner: ThreadRunner, error: EventqError) -> None:
        """Report a thread that is gone or damaged, once, and go on with the others."""
        directory = runner.directory
        self._first_error = self._first_error or error
        self._say(f"{error.what}: it is given up until it changes ({error.advice})")
        runner.release()
        runner.close()
        self._bells.remove(directory)
        if self._watchdog is not None:
            self._watchdog.remove(directory)
        for place in (self._runners, self._busy, self._idle, self._queue):
            place.pop(directory, None)

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Start nothing more, and let pushes start handlers."""
        self._ends_at = clock.monotonic() + self._grace
        for runner in self._runners.values():
            runner.stop(self._ends_at, hands_over=self._hands_over)
        if running := sum(runner.running for runner in self._busy.values()):
            self._say(f"waits up to {self._grace:g} seconds for {running} running handlers")

    def finish(self) -> bool:
        """Look after what still runs; return whether anything is left. A second signal ends it."""
        now = clock.monotonic()
        if len(self._signals) > 1 and now < self._ends_at:
            self._ends_at = now
            for runner in self._busy.values():
                runner.stop(now, hands_over=self._hands_over)
        if now >= self._turn_at:
            self._turn_at = now + 1
            self._beat()
        self._bells.take()
        for runner in [*self._busy.values()]:
            self._advance(runner)
        return bool(self._busy) and now < self._ends_at + _LATE_SECONDS

    def _end(self) -> None:
        """Look at each thread for the last time."""
        for runner in self._runners.values():
            try:
                runner.look_again()
                runner.close()
            except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
                runner.fail(error)
        self._say("stopped")


def _identity(directory: str) -> object:
    """Return what changes when a thread that was lost comes back, or is repaired."""
    try:
        found = os.stat(Layout(directory).database)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
