"""`eventq work`: a process in the foreground that runs the handlers of one or many threads.

It waits at one inotify instance for all threads in directories, at one connection for those of a
database in PostgreSQL, for its handlers, and for signals. Nothing is done for a thread that is idle
but to refresh its holds every few seconds, and to look whether anything has changed, in case
somebody could not ring the bell. For all threads of a database, one statement does either.
"""

from __future__ import annotations

import os
import select
import signal

from eventq.errors import (
    DamagedError,
    EventqError,
    NotAThreadError,
    PlatformError,
    StoreError,
    UsageError,
)
from eventq.running.supervisor import Waker, milliseconds_to
from eventq.running.thread_runner import ThreadRunner
from eventq.running.watchdog import Watchdog
from eventq.store.opening import (
    bells,
    share_connections,
    shared_threads,
    unshare_connections,
)
from eventq.store.paths import Layout, is_shared, is_url, resolve, resolve_folder, shown
from eventq.system import clock, processes
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from eventq.running.allowed import Allowed
    from eventq.running.shared_runner import News
    from eventq.store.address import Address

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
        allowed: Allowed | None = None,
        grace: float = GRACE_SECONDS,
        hands_over: bool = True,
        say: Callable[[str], object] = print,
    ) -> None:
        """Take threads, folders or databases with more, and consumers, none for all.

        Of a thread in PostgreSQL, only what is `allowed` is run. After a signal, handlers have
        `grace` seconds to end. What waits then is left to a dispatch if it `hands_over`. `say` gets
        a line for people. Raises UsageError for a thread in PostgreSQL of which nothing is allowed.
        """
        self._threads = [path if is_url(path) else resolve(path) for path in threads]
        for path in (*self._threads, *filter(is_url, folders)):
            if allowed is None and is_shared(path):
                raise UsageError(
                    f"the handlers of '{shown(path)}' are commands from a database that others"
                    " write to",
                    "say in a file which of them this machine runs, and add --allow FILE",
                )
        self._allowed = allowed
        self._folders = [resolve_folder(path) for path in folders if not is_url(path)]
        self._bases = [path for path in folders if is_url(path)]
        self._news: dict[str, News] = {}  # of databases, by their URLs
        self._consumers = frozenset(consumers)
        self._grace, self._hands_over, self._say = grace, hands_over, say
        self._bells = bells()
        self._runners: dict[str, ThreadRunner] = {}
        self._queue: dict[str, None] = {}  # threads that are to be looked at, in this order
        self._busy: dict[str, ThreadRunner] = {}
        self._idle: dict[str, ThreadRunner] = {}  # that are still open, the longest idle first
        self._known: dict[str, object] = {}  # all threads that were ever found
        self._given_up: set[str] = set()  # of which that was said
        self._passed: set[str] = set()  # those in PostgreSQL, of which nothing is allowed
        self._turn = 0  # counts seconds
        self._turn_at = self._find_at = clock.monotonic()
        self._ends_at = 0.0  # when handlers that still run are ended
        self._signals: list[int] = []
        self._first_error: EventqError | None = None
        self._watchdog: Watchdog | None = None
        self._poll: select.poll | None = None
        self._registered: set[int] = set()

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until SIGTERM, SIGINT or SIGHUP; return the signal, or 0 when no thread is left.

        Raises what opening a thread raises when there is none to begin with, and StoreError when
        the watchdog was killed and a thread is in PostgreSQL.
        """
        self._poll = poll = select.poll()
        before = {n: signal.signal(n, self._note) for n in processes.ends()}
        waker = Waker(poll)
        self._watchdog = Watchdog(self._say, hands_over=self._hands_over)
        ended = False
        share_connections()
        try:
            self._find()
            if not self._runners:
                places = ", ".join([*self._folders, *map(shown, self._bases)])
                self._say(f"no thread is there yet: looking below {places}")
            while not self._signals:
                self.advance()
                if why := self._why_to_end():
                    self._say(why)
                    break
                self._wait(waker)
            else:
                self._say("stopping")
            self.stop()
            while self.finish():
                self._wait(waker)
            self._end()
            ended = True
        finally:
            self._watchdog.close(farewell=ended)
            self._bells.close()
            for news in self._news.values():
                news.close()
            unshare_connections()
            waker.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        if not self._signals and self._first_error is not None:
            raise self._first_error
        return self._signals[0] if self._signals else 0

    def _why_to_end(self) -> str:
        """Return why to end without a signal, or nothing."""
        assert self._watchdog is not None
        if self._watchdog.has_ended and any(map(is_shared, self._runners)):
            # Nothing would end a handler at the end of its lease if this is stopped or killed too.
            self._first_error = self._first_error or StoreError(
                "the watchdog of this worker was killed", "start the worker again"
            )
            return "stopping: handlers of threads in PostgreSQL do not run without a watchdog"
        is_done = not (self._runners or self._folders or self._bases)
        return "no thread is left" if is_done else ""

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _wait(self, waker: Waker) -> None:
        """Wait until there is something to do."""
        assert self._poll is not None
        wanted = {self._bells.fileno(), *(one.fileno() for one in self._news.values())} - {-1}
        for fd in self._registered - wanted:
            self._poll.unregister(fd)
        for fd in wanted - self._registered:
            self._poll.register(fd, select.POLLIN)
        self._registered = wanted
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
        for news in self._news.values():
            rang |= news.take()
        self._queue.update(dict.fromkeys(rang & self._runners.keys()))
        now = clock.monotonic()
        if changed or now >= self._find_at:
            self._find()
        if now >= self._turn_at:
            self._refresh(now)
        for path in [*self._queue][:_MOST_LOOKS]:
            del self._queue[path]
            self._look(self._runners[path])
        for runner in [*self._busy.values()]:
            self._advance(runner)
        while len(self._idle) > _MOST_OPEN:
            self._idle.pop(next(iter(self._idle))).close()

    def _look(self, runner: ThreadRunner) -> None:
        """Look at a thread; one that is gone or damaged is given up."""
        self._idle.pop(runner.path, None)
        self._busy[runner.path] = runner
        is_only = runner.is_new and len(self._runners) == 1
        is_only &= not (self._folders or self._bases)
        try:
            runner.look()
            self._given_up.discard(runner.path)
        except (NotAThreadError, DamagedError, PlatformError) as error:
            self._lose(runner, error)
        except EventqError as error:
            if is_only and is_shared(runner.path):
                self._lose(runner, error)  # who has started us should see why
            else:
                runner.fail(error)
        except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
            runner.fail(error)

    def _advance(self, runner: ThreadRunner) -> None:
        try:
            if runner.advance():
                return
        except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
            runner.fail(error)
        del self._busy[runner.path]
        if runner.is_open:
            self._idle[runner.path] = runner

    def _refresh(self, now: float) -> None:
        """Refresh the holds of some threads, and look at what has changed unnoticed."""
        behind = int(min(now - self._turn_at, _REFRESH_SECONDS - 1))
        turns = {(self._turn + n) % _REFRESH_SECONDS for n in range(behind + 1)}
        self._turn += behind + 1
        self._turn_at = now + 1
        self._beat()
        for number, runner in enumerate([*self._runners.values()]):
            is_its_turn = number % _REFRESH_SECONDS in turns
            if is_its_turn:
                runner.refresh()
            if (
                (is_its_turn or runner.look_each_second)
                and now >= runner.retry_at
                and runner.has_changed()
            ):
                self._queue[runner.path] = None
        if 0 in turns:
            for news in self._news.values():
                news.refresh()

    def _beat(self) -> None:
        if self._watchdog is not None:
            self._watchdog.beat()

    # --- threads ----------------------------------------------------------------------------------

    def _find(self) -> None:
        """Begin to work for the threads that are new."""
        self._find_at = clock.monotonic() + _FIND_SECONDS
        for directory in (*self._threads, *self._below(), *self._listed()):
            if directory in self._runners:
                continue
            identity = _identity(directory)
            is_same = identity in (None, self._known.get(directory))
            if directory in self._known and is_same and not is_shared(directory):
                continue  # whether one in PostgreSQL has come back, only another look can tell
            self._known[directory] = identity
            self._runners[directory] = self._runner(directory)
            self._queue[directory] = None

    def _runner(self, path: str) -> ThreadRunner:
        """Return a runner for a thread, which is watched from now on."""
        if self._allowed is not None and is_shared(path):
            from eventq.running.shared_runner import SharedRunner

            return SharedRunner(
                path,
                self._consumers,
                self._say,
                allowed=self._allowed,
                guard=self._guard,
                news_of=self._news_of,
            )
        self._bells.add(path)
        if self._watchdog is not None:
            self._watchdog.add(path)
        return ThreadRunner(path, self._consumers, self._say)

    def _news_of(self, address: Address) -> News:
        """Return what is heard of the threads of a database."""
        from eventq.running.shared_runner import News

        key = f"{address.pooled} {address.conninfo}"
        if key not in self._news:
            self._news[key] = News(address, self._say)
        return self._news[key]

    def _listed(self) -> Iterator[str]:
        """Yield the threads of the databases; one that cannot be reached is looked at later."""
        for url in self._bases:
            try:
                yield from shared_threads(url, secret=True)
                self._given_up.discard(url)
            except EventqError as error:
                if not self._turn:  # who has started us should see why
                    raise
                if url not in self._given_up:
                    self._say(f"{error.what}: new threads are found later ({error.advice})")
                self._given_up.add(url)

    def _guard(self, handler: str, deadline: float | None) -> None:
        if self._watchdog is not None:
            self._watchdog.guard(handler, deadline)

    def _below(self) -> Iterator[str]:
        """Yield the threads below the folders, and watch where more may appear."""
        folders = [*self._folders]
        while folders:
            folder = folders.pop()
            self._bells.add_folder(folder)
            if os.path.exists(Layout(folder).database):
                yield folder
                continue
            if is_shared(folder):
                if self._allowed is not None:
                    yield folder
                else:
                    self._pass(folder)
                continue
            try:
                with os.scandir(folder) as found:
                    names = sorted(
                        entry.path for entry in found if entry.is_dir(follow_symlinks=False)
                    )
            except OSError:
                continue  # gone, or not for us
            folders += reversed(names)

    def _pass(self, folder: str) -> None:
        """Say once that a thread is passed over."""
        if folder not in self._passed:
            what = f"'{folder}', a thread in PostgreSQL, is passed over"
            self._say(f"{what}: nothing is allowed to run for it (add --allow FILE)")
        self._passed.add(folder)

    def _lose(self, runner: ThreadRunner, error: EventqError) -> None:
        """Report a thread that is gone or damaged, once, and go on with the others."""
        path = runner.path
        self._first_error = self._first_error or error
        if path not in self._given_up:
            self._say(f"{error.what}: it is given up until it changes ({error.advice})")
        self._given_up.add(path)
        runner.release()
        runner.close()
        if not is_shared(path):
            self._bells.remove(path)
            if self._watchdog is not None:
                self._watchdog.remove(path)
        for place in (self._runners, self._busy, self._idle, self._queue):
            place.pop(path, None)

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Start nothing more, and let pushes start handlers."""
        self._ends_at = clock.monotonic() + self._grace
        for runner in self._runners.values():
            runner.stop(self._ends_at, hands_over=self._hands_over)
        if running := sum(runner.running for runner in self._busy.values()):
            time, handlers = count(self._grace, "second"), count(running, "running handler")
            self._say(f"waits up to {time} for {handlers}")

    def finish(self) -> bool:
        """Look after what still runs; return whether anything is left. A second signal ends it.

        But no second SIGHUP: when a terminal closes, shell and kernel both send some.
        """
        now = clock.monotonic()
        if any(number != signal.SIGHUP for number in self._signals[1:]) and now < self._ends_at:
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
    """Return what changes when a thread in a directory comes back, or is repaired."""
    try:
        found = os.stat(Layout(directory).database)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
