"""One thread behind a server: the workers that do requests, and the feed of its new events."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from eventq.errors import BusyError, EventqError
from eventq.serving.attention import needed
from eventq.serving.history import SECONDS, History
from eventq.serving.hub import hub_of
from eventq.serving.plans import LARGE, QUICK, Plan
from eventq.serving.workers import Service
from eventq.store.opening import share_connections, unshare_connections
from eventq.store.paths import is_url, shown
from eventq.store.shared_paths import url_of
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK
from eventq.thread import open_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from eventq.records.info import ThreadStatus
    from eventq.serving.workers import Done, Job, Server
    from eventq.store.protocol import Watcher
    from eventq.thread import Thread

T = TypeVar("T")
LOOK = 0.05  # seconds between two looks for what is no event, while somebody watches
LOOKS = 32  # under way at once, of one request that concerns all threads of a database
LOOKS_HERE = 2  # the same, of threads in directories
KEPT_SECONDS = 600.0  # for which a thread of a database is looked at after the last request
WANTED_SECONDS = 60.0  # for which a feed goes on after it was asked for
_WAITING = 4_096  # requests of one thread that may wait for its workers


class Call:
    """A request in progress: a job of the workers, whose reply is a future of the loop."""

    def __init__(self, served: ServedThread, plan: Plan, size: int) -> None:
        self.plan = plan
        self.size = size
        self.server: Server = served
        self.future: asyncio.Future[Any] = served.loop.create_future()
        self._reply: Any = None

    def is_wanted(self) -> bool:
        """Return whether the caller still waits."""
        return not self.future.done()

    def answer(self, reply: Any) -> bytes:
        """Keep the reply for the loop."""
        self._reply = reply
        return b""

    def refusal(self, error: BaseException) -> bytes:
        """Keep the error for the loop."""
        self._reply = error
        return b""

    def settle(self, reply: bytes) -> bytes:
        """Return what is left to be sent."""
        return reply

    def send_now(self, reply: bytes) -> bytes:
        """Return what is left to be sent: the loop sends everything."""
        return reply

    def finish(self) -> None:
        """Give the reply to the caller; in the loop."""
        if self.future.done():
            return
        if isinstance(self._reply, BaseException):
            self.future.set_exception(self._reply)
        else:
            self.future.set_result(self._reply)


class ServedThread:
    """The workers and the feed of one thread."""

    def __init__(self, name: str, path: str, *, is_known: bool = False) -> None:
        """Take the name in URLs, and the path. Raises NotAThreadError, unless it `is_known`.

        One in a database is opened when it is asked for.
        """
        self.name = name
        self.is_url = is_url(path)
        url = url_of(path)
        self._is_shared = url is not None
        if self._is_shared:
            share_connections()
        try:
            self.path = shown(path)
            if not is_known:
                with open_thread(path) as thread:
                    self.path = thread.path
        except BaseException:
            self._unshare()
            raise
        self.loop = asyncio.get_running_loop()
        place = path if self.is_url else self.path  # only the first has the password
        self.service = Service(place)
        self._calls = 0
        self.feed = Feed(url or place, self.loop)
        self.history = History()
        self.checked: dict[str, Any] | None = None  # what the last check found
        self.needed = 0  # how many things needed a person when that was looked at last
        self.asked_at = 0.0  # of its own page, by the monotonic clock
        self._looks: asyncio.Task[None] | None = None
        if not self._is_shared:
            self._looks = self.loop.create_task(self._look())

    def _unshare(self) -> None:
        if self._is_shared:
            unshare_connections()

    async def _look(self) -> None:
        """Note the state of the thread once a minute; of one in a database, while it is used."""
        self.history = History()
        while not self._is_shared or clock.monotonic() < self.asked_at + KEPT_SECONDS:
            with suppress(EventqError):
                await self.glance(lambda thread: self._note(thread.status()), QUICK)
            await asyncio.sleep(SECONDS)

    def _note(self, status: ThreadStatus) -> None:
        self.history.add(status)
        self.needed = needed(status)

    async def do(
        self, run: Callable[[Thread], T], how: str, size: int = 0, *, alone: bool = False
    ) -> T:
        """Run a call in a worker, as `glance` does, and keep an eye on the thread from now on."""
        self.asked_at = clock.monotonic()
        if self._looks is None or self._looks.done():
            self._looks = self.loop.create_task(self._look())
        return await self.glance(run, how, size, alone=alone)

    async def glance(
        self, run: Callable[[Thread], T], how: str, size: int = 0, *, alone: bool = False
    ) -> T:
        """Run a call in a worker. Raises EventqError; BusyError when too many wait."""
        if self._calls >= _WAITING:
            raise BusyError(f"{self._calls} requests wait for '{self.name}'", "try again later")
        call = Call(self, Plan(how, run, alone or size >= LARGE), size)
        self._calls += 1
        try:
            self.service.submit(call)
            found: T = await call.future
            return found
        finally:
            self._calls -= 1

    def deliver(self, done: Done) -> None:
        """Take replies, in an OS thread of a worker."""
        calls = [job for job, _ in done]
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(_finish, calls)

    def close(self, seconds: float) -> None:
        """End the feed, and the workers once they have done what was asked."""
        if self._looks is not None:
            self.loop.call_soon_threadsafe(self._looks.cancel)
        self.feed.close()
        self.service.stop(seconds)
        self.feed.wait_closed()
        self._unshare()


async def for_each(
    look: Callable[[ServedThread], Awaitable[T]], threads: Iterable[ServedThread]
) -> list[T]:
    """Return what a call returns for each of many threads; a few are under way.

    Thousands at once would wait for the same few connections to a database, longer than they may.
    Those in directories contend for the interpreter: twenty at once take three times the CPU time.
    """
    free = {True: asyncio.Semaphore(LOOKS), False: asyncio.Semaphore(LOOKS_HERE)}

    async def one(served: ServedThread) -> T:
        async with free[served.is_url]:
            return await look(served)

    return await asyncio.gather(*map(one, threads))


def _finish(calls: list[Job]) -> None:
    for call in calls:
        assert isinstance(call, Call)  # none of another server
        call.finish()


class Feed:
    """The changes of a thread: an OS thread waits for them, and wakes all who follow.

    It begins when somebody asks. For the threads of a database there is one together, in a `Hub`.
    Nothing that was read is kept: it may be erased, and whoever comes next would still get it.
    """

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._changed = loop.create_future()
        self._ended = threading.Event()
        self.is_closed = False
        self.followers = 0  # of events
        self.watchers = 0  # of whatever changes
        self.polls = 0  # long polls that wait
        self._reads: dict[int, asyncio.Task[Any]] = {}  # in progress, by the id they begin after
        self._asked_at = 0.0
        self._watcher: Watcher | None = None  # at which the OS thread waits
        self._thread: threading.Thread | None = None
        self._hub = hub_of(path) if is_url(path) else None

    @property
    def changed(self) -> asyncio.Future[None]:
        """A future that is done once the thread may have changed since it was asked for."""
        self._asked_at = clock.monotonic()
        if self.is_closed:
            pass
        elif self._hub is not None:
            self._hub.add(self._path, self)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventq-feed", daemon=True)
            self._thread.start()
        return self._changed

    def is_wanted(self) -> bool:
        """Return whether somebody waits for changes, or may come back to."""
        is_used = self.followers or self.watchers or self.polls
        return bool(is_used) or clock.monotonic() < self._asked_at + WANTED_SECONDS

    def wake(self) -> None:
        """Wake all who wait; in any OS thread."""
        self._call(self._wake)

    async def shared(self, after: int, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what is read after an id; all who ask while it is being read get the same."""
        task = self._reads.get(after)
        if task is None:
            task = self._reads[after] = self._loop.create_task(read())
            task.add_done_callback(lambda done: self._forget(after, done))
        found: T = await asyncio.shield(task)  # one of them may go
        return found

    def _forget(self, after: int, done: asyncio.Task[Any]) -> None:
        del self._reads[after]
        if not done.cancelled():
            done.exception()  # all who waited for it may have gone

    def _wake(self) -> None:
        changed, self._changed = self._changed, self._loop.create_future()
        if not changed.done():
            changed.set_result(None)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with (
                    open_thread(self._path) as thread,
                    thread.database.watch() as watcher,
                ):
                    self._watcher = watcher
                    self._follow(thread, watcher)
            except (EventqError, OSError):  # it is gone, or busy: whoever asks is told so
                self._call(self._wake)
                self._ended.wait(SLOW_LOOK)

    def _follow(self, thread: Thread, watcher: Watcher) -> None:
        """Wake all after each change."""
        has_changed, version, last = True, thread.database.data_version(), 0
        while not self._ended.is_set():
            newest = thread.last_id()
            if has_changed or newest > last:
                self._call(self._wake)
            # A watcher hears of events and what consumers are due for, not of a turn or a claim.
            has_changed = newest < thread.last_id() or watcher.wait(
                LOOK if self.watchers else SLOW_LOOK / 2
            )
            before, version = version, thread.database.data_version()
            has_changed |= version != before
            last = newest

    def _call(self, call: Callable[..., None], *given: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *given)

    def close(self) -> None:
        """End: wake everybody a last time."""
        self.is_closed = True
        self._ended.set()
        if self._hub is not None:
            self._hub.remove(self)
        changed = self._changed
        if not changed.done():
            changed.set_result(None)

    def wait_closed(self) -> None:
        """Wait until the OS thread has ended, a second at most; not in the loop's."""
        if self._watcher is not None:
            self._watcher.nudge()
        if self._thread is not None:
            self._thread.join(SLOW_LOOK)
        if self._hub is not None:
            self._hub.wait_closed(SLOW_LOOK)
