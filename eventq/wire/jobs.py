"""Jobs: requests in progress, the memory that they share, and the OS threads that run them.

Readers run in parallel. The single writer commits all waiting writes together.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue

from eventq.errors import EventqError, NotAThreadError, StoreError
from eventq.system import clock
from eventq.thread import open_thread
from eventq.wire import rpc
from eventq.wire.frames import encode_reply
from eventq.wire.rpc import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from eventq.thread import Thread
    from eventq.wire.frames import Reply, Request
    from eventq.wire.rpc import Plan

    class Owner(Protocol):
        """The connection that a job came over."""

        json_errors: bool
        keys: str
        gone: bool  # nobody waits for replies any more

        def reserve(self, job: Job, size: int) -> bool:
            """Hold memory for the reply to a job, or submit the job again once there is some."""

        def settle(self, job: Job, reply: bytes) -> bytes:
            """Replace a job's request by its reply in the memory budget; return what is sent."""

        def send_now(self, job: Job, reply: bytes) -> bytes:
            """Send what can be sent of a reply, and return the rest."""

        def done(self, job: Job, rest: bytes) -> None:
            """Accept the rest of a reply."""

        def go_on(self) -> None:
            """Start the requests that waited for the reply."""

    Done = list[tuple["Job", bytes]]
    Waiter = tuple[int, Callable[[], object]]  # bytes, and what is called once they are held

FRAME_BYTES = 64  # what a frame and its fields take beside what is counted, at most
GROUP = 512  # writes in one transaction, at most
GROUP_BYTES = 16 << 20


class MemoryBudget:
    """The memory held for all peers, in bytes; safe to use from any OS thread.

    What is longer than `small` is large. Large ones together get three quarters, so that small
    requests find memory whatever large ones and slow readers hold. Nothing is held on the word of a
    peer: what counts is what has arrived, what is read for a reply, and what waits to be sent.
    """

    def __init__(self, limit: int, small: int) -> None:
        self.limit = limit
        self.small = small
        self.most = limit * 3 // 4  # bytes that one large one gets when nothing else is held
        self.held = 0
        self._held_large = 0
        self._lock = allocate_lock()
        self._waiting: deque[Waiter] = deque()

    @property
    def ahead(self) -> int:
        """How many bytes may be read ahead of their use; below 0 for none.

        That leaves half: a request is done only when there is memory for the replies before it.
        """
        return self.limit // 2 - self.held

    def fits(self, size: int) -> bool:
        """Return whether so many more bytes fit."""
        if size > self.small:
            return self._held_large + size <= self.most and self.held + size <= self.limit
        if self.held + size <= self.limit:
            return True
        return self.held - self._held_large + size <= self.limit // 4

    def take(self, size: int, *, force: bool = False) -> bool:
        """Reserve so many bytes and return True, if they fit or `force` is set."""
        with self._lock:
            if not force and not self.fits(size):
                return False
            self.held += size
            if size > self.small:
                self._held_large += size
        return True

    def release(self, size: int) -> None:
        """Release bytes, as many as were reserved by one call."""
        with self._lock:
            self.held -= size
            if size > self.small:
                self._held_large -= size
            served = self._serve() if self._waiting else None
        if served:
            _call(served)

    def resize(self, before: int, now: int, *, also: int = 0) -> bool:
        """Hold `now` bytes instead of `before` and `also`, as they are there anyway.

        Returns whether they fit. Releasing first and taking again would hand what is in use to a
        reservation in between.
        """
        with self._lock:
            self._add(before, -1)
            self._add(also, -1)
            fits = self.fits(now)
            self._add(now, 1)
            served = self._serve()
        _call(served)
        return fits

    def reserve(self, size: int, then: Callable[[], object]) -> bool:
        """Reserve so many bytes now and return True, or reserve them later and call `then`.

        `then` is called in the OS thread that released memory. Reservations are served in order:
        many small replies would otherwise keep a long one waiting for ever.
        """
        with self._lock:
            if self._waiting or not self.fits(size):
                self._waiting.append((size, then))
                return False
            self._add(size, 1)
        return True

    def cancel(self, then: Callable[[], object]) -> bool:
        """Cancel a reservation; return False when it was served meanwhile, or never made."""
        with self._lock:
            left = [one for one in self._waiting if one[1] != then]
            found = len(left) < len(self._waiting)
            self._waiting = deque(left)
            served = self._serve()
        _call(served)
        return found

    def _serve(self) -> list[Waiter]:
        """Serve the waiting reservations that fit now, in order; return them."""
        served = []
        while self._waiting and self.fits(self._waiting[0][0]):
            served.append(self._waiting.popleft())
            self._add(served[-1][0], 1)
        return served

    def _add(self, size: int, sign: int) -> None:
        self.held += sign * size
        if size > self.small:
            self._held_large += sign * size


def _call(served: list[Waiter]) -> None:
    for _, then in served:  # without the lock: they may ask for more
        then()


class Waits(Exception):  # noqa: N818 (no error)
    """A job waits for memory: its connection submits it again, or answers it."""


class Job:
    """One request in progress: its frame, its plan, and the memory that it holds."""

    __slots__ = (
        "alone", "held", "json_errors", "keys", "owner", "reply", "req_id", "request", "reserved",
        "size", "type", "work",
    )  # fmt: skip

    def __init__(self, owner: Owner, type: int, req_id: int, size: int) -> None:
        self.owner = owner
        self.type = type
        self.req_id = req_id
        self.size = size
        self.held = 0  # bytes, of the request and then of the reply
        self.reserved = 0  # bytes, for a reply that is being read
        self.json_errors = owner.json_errors  # a later HELLO changes nothing for this job
        self.keys = owner.keys
        self.request: Request | None = None
        self.work: Plan | None = None
        self.reply: bytes | None = None  # when there is nothing to do
        self.alone = False  # no other job of its connection is under way

    def need(self, size: int) -> None:
        """Hold memory for a reply of so many bytes before it is read. Raises Waits, BusyError."""
        if not self.owner.reserve(self, size + FRAME_BYTES):
            raise Waits

    def answer(self, reply: Reply) -> bytes:
        """Return the frame of its reply; one that is too long becomes an error."""
        try:
            return encode_reply(reply, self.req_id, self.type)
        except EventqError as error:
            return self.refusal(error)

    def refusal(self, error: BaseException) -> bytes:
        """Return the frame that reports an error."""
        if not isinstance(error, EventqError):
            what = f"the server failed: {type(error).__name__}: {error}"
            error = StoreError(what, "see its journal, logs/thread.log")
        return encode_reply(rpc.failure(error, as_json=self.json_errors), self.req_id)


class Workers:
    """OS threads that take jobs from one queue, each with its own connection to the database."""

    def __init__(self, path: str, count: int, deliver: Callable[[Done], None], name: str) -> None:
        self._path = path
        self._deliver = deliver
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._open: list[Thread] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{n}", daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def stop(self, seconds: float) -> None:
        """Stop after the queued jobs; drop those that are not done within so many seconds."""
        end = clock.monotonic() + seconds
        self._end(end)
        if any(thread.is_alive() for thread in self._threads):
            while not self._jobs.empty():
                with suppress(Empty):
                    self._jobs.get_nowait()
            for thread in list(self._open):
                with suppress(EventqError):
                    thread.database.interrupt()
            # One that waits for a lock of another process ends with this process.
            self._end(clock.monotonic() + 1)

    def _end(self, deadline: float) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0, deadline - clock.monotonic()))

    def _run(self) -> None:
        thread: Thread | None = None
        try:
            while group := self._next():
                try:
                    if thread and self._is_stale(thread):
                        thread = None
                    thread = thread or self._opened()
                    done = self._do(thread, group)
                except BaseException as error:  # noqa: BLE001 (every peer must get its reply)
                    done = [(job, job.refusal(error)) for job in group]
                if done:
                    self._deliver(_sent(done))
                del group, done  # a thread that waits holds no payloads
        finally:
            if thread:
                thread.close()

    def _is_stale(self, thread: Thread) -> bool:
        """Return whether the directory was replaced or is gone; then the thread is closed."""
        try:
            thread.database.alive()
            return False
        except NotAThreadError:
            self._open.remove(thread)
            thread.close()
            return True

    def _opened(self) -> Thread:
        self._open.append(open_thread(self._path))
        return self._open[-1]

    def _next(self) -> list[Job]:
        job = self._jobs.get()
        return [job] if job else []

    def _do(self, thread: Thread, group: list[Job]) -> Done:
        done = []
        for job in group:
            reply = _done(thread, job)
            if reply is not None:
                done.append((job, reply))
        return done


def _sent(done: Done) -> Done:
    """Settle replies, and send a lone one; return what is left of each.

    Those of a group are sent faster by the event loop, in one go.
    """
    if len(done) > 1:
        return [(job, job.owner.settle(job, reply)) for job, reply in done]
    job, reply = done[0]
    return [(job, job.owner.send_now(job, job.owner.settle(job, reply)))]


def _done(thread: Thread, job: Job) -> bytes | None:
    """Do a job and return the frame of its reply; None when it waits for memory.

    A job that waits may be in the hands of another OS thread by then.
    """
    assert job.work is not None
    if job.work.how != WRITE and job.owner.gone:
        return b""
    try:
        return job.answer(job.work.run(thread))
    except Waits:
        return None
    except Exception as error:  # noqa: BLE001 (a fault of ours is answered like any other)
        if not isinstance(error, EventqError):
            thread.journal.error(f"serve: {type(error).__name__}: {error}")
        return job.refusal(error)


class Writer(Workers):
    """The only writer: it commits all waiting writes together."""

    def __init__(self, path: str, deliver: Callable[[Done], None]) -> None:
        self._kept: Job | None = None
        super().__init__(path, 1, deliver, "eventq-writer")

    def _next(self) -> list[Job]:
        """Return the jobs of the next transaction; a large job gets one or more of its own."""
        job = self._kept or self._jobs.get()
        self._kept = None
        group: list[Job] = []
        size = 0
        while job and not (group and job.work and job.work.large):
            group.append(job)
            size += job.size
            if len(group) >= GROUP or size >= GROUP_BYTES or (job.work and job.work.large):
                return group
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return group
        if job is None and group:
            self._jobs.put(None)  # the end, once these are done
        self._kept = job
        return group

    def _do(self, thread: Thread, group: list[Job]) -> Done:
        if len(group) == 1:
            return super()._do(thread, group)
        with thread.write():  # each undoes itself alone; if the commit fails, all of them did
            return super()._do(thread, group)
