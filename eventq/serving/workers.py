"""The OS threads that do the requests of a thread: a few readers, and one writer.

Readers run in parallel. The single writer commits all waiting writes together (group commit).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from eventq.errors import EventqError, NotAThreadError, StoreError, UsageError
from eventq.serving.plans import QUICK, WRITE
from eventq.system import clock
from eventq.thread import open_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from eventq.serving.plans import Plan
    from eventq.thread import Thread

    class Server(Protocol):
        """What jobs came to, and replies go to."""

        def deliver(self, done: Done) -> None:
            """Take what is left to be sent of replies, in an OS thread of a worker."""

    class Job(Protocol):
        """A request in progress, of any protocol."""

        plan: Plan
        size: int  # bytes of the request
        server: Server

        def is_wanted(self) -> bool:
            """Return whether anybody waits for the reply; a read is not done otherwise."""

        def answer(self, reply: Any) -> bytes:
            """Return the bytes of a reply."""

        def refusal(self, error: BaseException) -> bytes:
            """Return the bytes that report an error."""

        def settle(self, reply: bytes) -> bytes:
            """Replace the request by its reply in the memory budget; return what is sent."""

        def send_now(self, reply: bytes) -> bytes:
            """Send what can be sent of a reply, and return the rest."""

    Done = list[tuple[Job, bytes]]

READERS = 4
IDLE_SECONDS = 60.0  # after which an OS thread without a job ends
GROUP = 512  # writes in one transaction, at most
GROUP_BYTES = 16 << 20


class Waits(Exception):  # noqa: N818 (no error)
    """A job waits for memory: whoever submitted it does so again, or answers it."""


class Service:
    """The workers of one thread, for all servers of it.

    Reads go to several readers, each with its own connection to the database. What never takes
    long has a reader of its own, so that it does not wait for what does.
    """

    def __init__(self, path: str) -> None:
        """Start the workers of the thread at a path."""
        self._writer = Writer(path, 1, "eventq-writer")
        self._readers = Workers(path, READERS, "eventq-reader")
        self._quick = Workers(path, 1, "eventq-quick")

    def submit(self, job: Job) -> None:
        """Queue a job for the workers that its plan names."""
        workers = {QUICK: self._quick, WRITE: self._writer}.get(job.plan.how, self._readers)
        workers.submit(job)

    def stop(self, seconds: float) -> None:
        """Stop after the queued jobs; drop those that are not done within so many seconds."""
        end = clock.monotonic() + seconds
        for workers in (self._writer, self._readers, self._quick):
            workers.stop(end - clock.monotonic())


class Workers:
    """OS threads that take jobs from one queue, each with its own connection to the database.

    They begin when there is something to do, and end when there was nothing for a while.
    """

    def __init__(self, path: str, count: int, name: str) -> None:
        self._path = path
        self._count, self._name = count, name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._due = self._idle = 0  # jobs in the queue, and OS threads that wait for one
        self._open: list[Thread] = []
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job) -> None:
        """Queue a job."""
        with self._lock:
            self._due += 1
            self._jobs.put(job)
            is_short = self._due > self._idle and len(self._threads) < self._count
            if is_short and not self._is_stopped:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()

    def stop(self, seconds: float) -> None:
        """Stop after the queued jobs; drop those that are not done within so many seconds."""
        end = clock.monotonic() + seconds
        with self._lock:
            self._is_stopped, threads = True, [*self._threads]
        self._end(threads, end)
        if any(thread.is_alive() for thread in threads):
            while not self._jobs.empty():
                with suppress(Empty):
                    self._jobs.get_nowait()
            for thread in list(self._open):
                with suppress(EventqError):
                    thread.database.interrupt()
            # One that waits for a lock of another process ends with this process.
            self._end(threads, clock.monotonic() + 1)

    def _end(self, threads: list[threading.Thread], deadline: float) -> None:
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join(max(0, deadline - clock.monotonic()))

    def _run(self) -> None:
        thread: Thread | None = None
        try:
            while group := self.next_group():
                try:
                    if thread and self._is_stale(thread):
                        thread = None
                    thread = thread or self._opened()
                    done = self.do(thread, group)
                except BaseException as error:  # noqa: BLE001 (every peer must get its reply)
                    done = [(job, job.refusal(error)) for job in group]
                _deliver(done)
                del group, done  # a thread that waits holds no payloads
        finally:
            if thread:
                self._open.remove(thread)
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
        try:
            self._open.append(open_thread(self._path))
        except UsageError as error:  # it could be opened once: no words of a caller are wrong
            raise StoreError(error.what, error.fix) from error
        return self._open[-1]

    def next_group(self) -> list[Job]:
        """Return the jobs to do next, once there are any; none at the end."""
        job = self.next_job()
        return [job] if job else []

    def next_job(self) -> Job | None:
        """Wait for a job; return None at the end, also when there was none for a while."""
        with self._lock:
            self._idle += 1
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._due:
                        continue  # a job was queued since, for us
                    self._idle -= 1
                    self._threads.remove(threading.current_thread())
                    return None
            with self._lock:
                self._idle -= 1
                self._due -= job is not None
            return job

    def another_job(self) -> Job | None:
        """Return a job that is queued by now, None for the end. Raises Empty."""
        job = self._jobs.get_nowait()
        with self._lock:
            self._due -= job is not None
        return job

    def do(self, thread: Thread, group: list[Job]) -> Done:
        """Do some jobs and return their replies, but for jobs that wait for memory."""
        done = []
        for job in group:
            reply = _done(thread, job)
            if reply is not None:
                done.append((job, reply))
        return done


def _deliver(done: Done) -> None:
    """Settle replies, send a lone one, and hand the rest to the servers.

    Those of a group are sent faster by the event loop of a server, in one go.
    """
    rest = [(job, job.settle(reply)) for job, reply in done]
    if len(rest) == 1:
        rest = [(job, job.send_now(reply)) for job, reply in rest]
    for server in dict.fromkeys(job.server for job, _ in rest):
        server.deliver([one for one in rest if one[0].server is server])


def _done(thread: Thread, job: Job) -> bytes | None:
    """Do a job and return its reply; None when it waits for memory.

    A job that waits may be in the hands of another OS thread by then.
    """
    if job.plan.how != WRITE and not job.is_wanted():
        return b""
    try:
        return job.answer(job.plan.run(thread))
    except Waits:
        return None
    except Exception as error:  # noqa: BLE001 (a fault of ours is answered like any other)
        if not isinstance(error, EventqError):
            thread.journal.error(f"serve: {type(error).__name__}: {error}")
        return job.refusal(error)


class Writer(Workers):
    """The only writer: it commits all waiting writes together."""

    _kept: Job | None = None  # taken from the queue, and left for the next group

    def next_group(self) -> list[Job]:
        """Return the jobs of the next transaction; a large job gets one or more of its own."""
        job = self._kept or self.next_job()
        self._kept = None
        group: list[Job] = []
        size = 0
        while job and not (group and job.plan.large):
            group.append(job)
            size += job.size
            if len(group) >= GROUP or size >= GROUP_BYTES or job.plan.large:
                return group
            try:
                job = self.another_job()
            except Empty:
                return group
        if job is None and group:
            self._jobs.put(None)  # the end, once these are done
        self._kept = job
        return group

    def do(self, thread: Thread, group: list[Job]) -> Done:
        """Do some jobs in one transaction; each undoes itself alone."""
        if len(group) == 1:
            return super().do(thread, group)
        with thread.write():  # if the commit fails, all of them did
            return super().do(thread, group)
