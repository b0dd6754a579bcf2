"""Handlers: the processes that supervisors start, their logs, and how they end."""

from __future__ import annotations

import os
from errno import E2BIG

from eventq.errors import BusyError
from eventq.log import fences
from eventq.record import Record
from eventq.records.cause import MOST_CAUSES
from eventq.store.paths import ROTATE_LINES, rotate_log
from eventq.system import clock, disk, processes
from eventq.system.locks import alone_in
from eventq.system.processes import MARK, identity, mark_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventq.log.journal import Journal
    from eventq.records.event import Event
    from eventq.store.paths import Layout

_LONG_LOG = 1 << 20  # bytes of a log worth counting its lines
_GONE_SECONDS = 5.0  # for a process to end that may not become a handler
_MOST_TAIL = 4 << 10  # bytes of the output of a failed run that are kept
_MOST_VALUE = 4 << 10  # bytes of a value that goes into the environment
_VARIABLES = (
    "EVENTQ_EVENT_ID",
    "EVENTQ_EVENT_TYPE",
    "EVENTQ_EVENT_SOURCE",
    "EVENTQ_EVENT_SUBTYPE",
    "EVENTQ_EVENT_ATTEMPT",
)
_BATCH = "EVENTQ_EVENT_IDS"
# A handler may itself be run by one of an event. The token is for servers, and not for handlers.
_REMOVED = {*_VARIABLES, _BATCH, "EVENTQ_TOKEN"}
_MOVED = "; run 'eventq subscribe --replace' where it is to run now"


class Job(Record):
    """What a handler is started for.

    With `events`, they are its input, and it says with its exit code what became of them; without,
    it reads them itself. `fence` is the number of the supervisor. At the `deadline`, a time of
    `clock.monotonic`, it has to be dead.
    """

    consumer: str
    command: str
    directory: str | None
    acked: int
    events: Sequence[Event] = ()
    attempt: int = 0
    fence: int = 0
    deadline: float | None = None

    def variables(self) -> dict[str, str]:
        """Return the variables that tell a handler of its only event, or of those of a batch."""
        if len(self.events) != 1:
            ids = ",".join([str(event.id) for event in self.events[:MOST_CAUSES]])
            return {_BATCH: ids} if ids else {}
        event = self.events[0]
        values = (str(event.id), event.type, event.source, event.subtype, str(self.attempt))
        return {
            name: value
            for name, value in zip(_VARIABLES, values, strict=True)
            if value is not None and len(os.fsencode(value)) <= _MOST_VALUE
        }


class Output:
    """What a handler writes to its log, wherever that is rotated to meanwhile."""

    def __init__(self, fd: int) -> None:
        """Take the log, which is closed with this; what is there by now was written by others."""
        self._fd = fd
        self._start = os.fstat(fd).st_size

    def tail(self) -> str:
        """Return the end of what was written, at most 4 KiB."""
        size = os.fstat(self._fd).st_size
        start = self._start if self._start <= size else 0  # the handler has truncated it
        at = max(start, size - _MOST_TAIL)
        try:
            return os.pread(self._fd, min(size - at, _MOST_TAIL), at).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Close the log."""
        os.close(self._fd)


class Handlers:
    """The starter of the handlers of one thread."""

    def __init__(
        self, layout: Layout, journal: Journal, guard: Callable[[str, float | None], object]
    ) -> None:
        """Take the paths and the journal of the thread; `guard` is as of a `Supervisor`."""
        self._layout = layout
        self._journal = journal
        self._guard = guard

    def start(self, job: Job, note: Callable[[int], object]) -> Output:
        """Start a handler once `note` has recorded its pid; return what it will write.

        Otherwise a supervisor killed in between would leave a handler that nobody knows of. When
        `note` raises, no handler is started. Raises BusyError if its deadline is over by then.
        """
        log = self._open_log(job.consumer)
        source = self._input(job)
        gate, opener = os.pipe()
        environ = {name: text for name, text in os.environ.items() if name not in _REMOVED}
        environ |= {
            "PATH": processes.path_of_handlers(),
            "EVENTQ_THREAD": self._layout.thread,
            **self._layout.environ,
            "EVENTQ_CONSUMER": job.consumer,
            "EVENTQ_LAST_ACKED_ID": str(job.acked),
            fences.VARIABLE: fences.text_of(job.fence, job.consumer, self._layout.thread),
            **job.variables(),
        }
        pid, mark = 0, b""
        output = Output(log)
        try:
            pid = processes.fork_leader(
                lambda: become_handler(job, (gate, opener, source, log), environ)
            )
            note(pid)
            name = identity(pid)
            self._guard(name, job.deadline)
            if job.deadline is not None and clock.monotonic() >= job.deadline:
                raise BusyError(  # we were frozen: another machine may run the next one by now
                    f"the lease of consumer '{job.consumer}' has ended",
                    "leave the consumer to the worker that has it now",
                )
            mark = mark_of(name).encode()
        finally:
            os.write(opener, mark)
            for fd in (gate, opener, source):
                os.close(fd)
            if not mark:
                output.close()
                if pid:
                    processes.wait(pid, _GONE_SECONDS)  # it ends at the gate
        return output

    def ended(self, consumer: str, events: str | None, code: int, seconds: float) -> None:
        """Log how a run has ended."""
        how = f"killed signal={-code}" if code < 0 else f"exited code={code}"
        which = f" {events}" if events else ""
        self._journal.info(f"dispatch: consumer={consumer}{which} {how} seconds={seconds:.3f}")

    def _input(self, job: Job) -> int:
        """Return what a handler reads as its standard input: its events, a line each."""
        if not job.events:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        from eventq.system.jsontext import writer

        write = writer()
        self._layout.make_folder(self._layout.run)
        # A name that nobody can have made: handlers write to this folder.
        path = f"{self._layout.run}/.input-{os.getpid()}-{os.urandom(8).hex()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.unlink(path)
            for event in job.events:
                disk.write_all(fd, (write(event._asdict()) + "\n").encode())
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        return fd

    # --- logs -------------------------------------------------------------------------------------

    def _open_log(self, consumer: str) -> int:
        """Open the log of a handler, or /dev/null if it cannot be written: the handler must run."""
        try:
            return self._open_file(self._layout.handler_log(consumer))
        except OSError as error:
            self._journal.warn(f"dispatch: consumer={consumer} runs without a log ({error})")
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def _open_file(self, path: str) -> int:
        self._layout.make_folder(self._layout.handlers)
        # A link would have the output appended to a file that is not the thread's.
        fd = self._layout.create(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        try:
            if os.lseek(fd, 0, os.SEEK_END) < _LONG_LOG and not _many_lines(fd):
                return fd
        except OSError:  # it is no file
            os.close(fd)
            raise
        os.close(fd)
        alone_in(self._layout.handlers, lambda: rotate_log(path))
        return self._open_file(path)


def become_handler(job: Job, fds: tuple[int, int, int, int], environ: dict[str, str]) -> None:
    """Turn this new process, the leader of its group, into the handler once the gate opens."""
    gate, opener, source, log = fds
    os.close(opener)
    os.dup2(source, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Python ignores two of them, and an ignored signal survives the exec.
    for number in (processes.signals.SIGCHLD, processes.signals.SIGPIPE, processes.signals.SIGXFSZ):
        processes.signals.signal(number, processes.signals.SIG_DFL)
    disk.restore_file_limit()
    # The read returns nothing if the supervisor was killed before it recorded our pid.
    if not (mark := os.read(gate, 200)):
        return
    environ[MARK] = mark.decode()
    what, more = "the handler's directory cannot be entered", _MOVED
    try:
        if job.directory is not None:
            os.chdir(job.directory)
        what, more = "the handler cannot be started", ""
        os.execve("/bin/sh", ["sh", "-c", job.command], environ)  # noqa: S606 (a shell command)
    except OSError as error:
        if error.errno == E2BIG:
            more = "; its command and the environment are too large together"
        os.write(2, f"eventq: {what}: {error}{more}\n".encode(errors="replace"))
        os._exit(1)


def _many_lines(fd: int) -> bool:
    size = os.lseek(fd, 0, os.SEEK_END)
    return size > ROTATE_LINES and os.pread(fd, size, 0).count(b"\n") > ROTATE_LINES
