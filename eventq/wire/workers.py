"""Jobs and the threads that do them: readers side by side, and a writer that commits together what waits together."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from eventq import system
from eventq.errors import EventqError, NotAThreadError, StoreError
from eventq.thread import open_thread
from eventq.wire import calls
from eventq.wire.calls import WRITE
from eventq.wire.frames import encode_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from eventq.thread import Thread
    from eventq.wire.calls import Plan
    from eventq.wire.frames import Reply, Request

    class Owner(Protocol):
        """The connection that a job came over."""

        json_errors: bool
        keys: bool

        @property
        def gone(self) -> bool:
            """Whether nobody waits for replies any more."""

        def reserve(self, job: Job, size: int) -> bool:
            """Hold memory for the reply to a job, or have the job submitted anew as soon as there is some."""

        def settle(self, job: Job, reply: bytes) -> bytes:
            """Let go of what a job that was done holds, and give its reply, or another where that finds no room."""

        def send_now(self, job: Job, reply: bytes) -> bytes:
            """Send what can be sent of a reply, and give the rest."""

        def done(self, job: Job, rest: bytes) -> None:
            """Take what was not sent of it."""

        def go_on(self) -> None:
            """Begin what waited for it."""

    Done = list[tuple["Job", bytes]]

FRAME_BYTES = 64  # what a frame and its fields take beside what is counted, at most
GROUP = 512  # writes in one transaction, at most
GROUP_BYTES = 16 << 20


class Waits(Exception):  # noqa: N818 (no error)
    """A job waits for memory: it is submitted anew, or answered, by its connection."""


class Job:
    """One request on its way: what it came as, what it comes to, and what it holds."""

    __slots__ = (
        "alone", "held", "json_errors", "keys", "owner", "reply", "req_id", "request", "reserved", "size", "type",
        "work",
    )  # fmt: skip

    def __init__(self, owner: Owner, type: int, req_id: int, size: int) -> None:
        self.owner = owner
        self.type = type
        self.req_id = req_id
        self.size = size
        self.held = 0  # bytes, of the request and then of the reply
        self.reserved = 0  # bytes, for a reply that is being read
        self.json_errors = owner.json_errors  # a HELLO that comes later changes nothing for it
        self.keys = owner.keys
        self.request: Request | None = None
        self.work: Plan | None = None
        self.reply: bytes | None = None  # when there is nothing to be done
        self.alone = False  # nothing else of its connection runs

    def need(self, size: int) -> None:
        """Hold memory for a reply of so many bytes before they are read. Raises Waits, BusyError."""
        if not self.owner.reserve(self, size + FRAME_BYTES):
            raise Waits

    def answer(self, reply: Reply) -> bytes:
        """Give the frame of its reply; one that is too long becomes an error."""
        try:
            return encode_reply(reply, self.req_id, self.type)
        except EventqError as error:
            return self.refusal(error)

    def refusal(self, error: BaseException) -> bytes:
        """Give the frame that says what went wrong."""
        if not isinstance(error, EventqError):
            error = StoreError(
                f"the server failed: {type(error).__name__}: {error}",
                "see its journal, logs/thread.log",
            )
        return encode_reply(calls.failure(error, as_json=self.json_errors), self.req_id)


class Workers:
    """Threads that take jobs from one queue, each with its own connection to the database."""

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
        """Have a job done, after those before it."""
        self._jobs.put(job)

    def stop(self, seconds: float) -> None:
        """End the threads after what they were given; what takes longer than so many seconds is not done any more."""
        end = system.monotonic() + seconds
        self._end(end)
        if any(thread.is_alive() for thread in self._threads):
            while not self._jobs.empty():
                with suppress(Empty):
                    self._jobs.get_nowait()
            for thread in list(self._open):
                with suppress(EventqError):
                    thread.database.interrupt()
            self._end(
                system.monotonic() + 1
            )  # who waits for a lock of another process goes with this one

    def _end(self, deadline: float) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0, deadline - system.monotonic()))

    def _run(self) -> None:
        thread: Thread | None = None
        try:
            while group := self._next():
                try:
                    if thread and self._is_stale(thread):
                        thread = None
                    thread = thread or self._opened()
                    done = self._do(thread, group)
                except BaseException as error:  # noqa: BLE001 (whatever it is: who asked must hear of it)
                    done = [(job, job.refusal(error)) for job in group]
                if done:
                    self._deliver(
                        _sent([(job, job.owner.settle(job, reply)) for job, reply in done])
                    )
                del group, done  # a thread that waits holds no payloads
        finally:
            if thread:
                thread.close()

    def _is_stale(self, thread: Thread) -> bool:
        """Say whether the directory is another one than it was, or gone; then the thread is closed."""
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
        done = [(job, _done(thread, job)) for job in group]
        return [(job, reply) for job, reply in done if reply is not None]


def _sent(done: Done) -> Done:
    """Send a lone reply, and give what is left of it; those of a group are sent faster by the loop, in one go."""
    return (
        [(job, job.owner.send_now(job, reply)) for job, reply in done] if len(done) == 1 else done
    )


def _done(thread: Thread, job: Job) -> bytes | None:
    """Do a job; give the frame of its reply, None when it waits for memory: it may be somebody else's by then."""
    assert job.work is not None
    if job.owner.gone and job.work.how != WRITE:
        return b""
    try:
        return job.answer(job.work.run(thread))
    except Waits:
        return None
    except Exception as error:  # noqa: BLE001 (a fault of ours is answered like one of theirs)
        if not isinstance(error, EventqError):
            thread.journal.error(f"serve: {type(error).__name__}: {error}")
        return job.refusal(error)


class Writer(Workers):
    """The one that writes: what waits at the same time is committed together."""

    def __init__(self, path: str, deliver: Callable[[Done], None]) -> None:
        self._kept: Job | None = None
        super().__init__(path, 1, deliver, "eventq-writer")

    def _next(self) -> list[Job]:
        """Give the jobs of the next transaction; a large one has one of its own, or several."""
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
        with (
            thread.write()
        ):  # each of them undoes itself alone; if the commit fails, all of them did
            return super()._do(thread, group)
