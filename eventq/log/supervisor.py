"""The supervisor: a detached process that holds consumers' locks and runs their handlers.

Each consumer moves through the states of TRANSITIONS, below, from `look` to `gone`. The lock is
released only when nothing is due, and the supervisor looks once more after the release. So it
always sees an event that was committed before another process failed to take the lock.
"""

from __future__ import annotations

import os
import select
import signal

from eventq import system
from eventq.errors import DamagedError, NotAThreadError
from eventq.locks import FolderLock
from eventq.log.notifier import Notifier
from eventq.log.subscriptions import Subscriptions
from eventq.storage.engines import open_database
from eventq.workspace.journal import Journal
from eventq.workspace.layout import ROTATE_LINES, Layout, rotate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventq.event import ConsumerState
    from eventq.storage.base import Lease

TRANSITIONS = {
    "look": {
        "due": "running",
        "orphan": "orphan",
        "idle": "released",
        "stalled": "released",
        "failed": "gone",
    },
    "running": {"progress": "look", "no progress": "backoff", "gave up": "released"},
    "orphan": {"ended": "look"},
    "backoff": {"time": "look", "resumed": "look"},
    "released": {"due": "look", "idle": "gone", "taken": "gone"},
    "gone": {},
}
BACKOFF_SECONDS = 0.5  # after the first run without progress; doubled for each further one
BACKOFF_MOST = 60.0
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL for a handler that timed out
_TICK = 1.0  # seconds between polls for what sends no signal: a removed lock file, a `resume`
_ORPHAN_LOOK = 0.05  # seconds between polls of a process that is not our child
_LONG_LOG = 1 << 20  # bytes of a handler's log worth counting its lines


class Watched:
    """One consumer under supervision."""

    def __init__(self, consumer: str, lock: Lease) -> None:
        """Start with the lock held and no handler running."""
        self.consumer = consumer
        self.lock: Lease | None = lock
        self.state = "look"
        self.pid = 0
        self.acked = 0  # the acked id at the time the handler was started
        self.attempts = 0  # counted here too: a full disk must not make retries endless
        self.noted = 0  # how many of the attempts the store has recorded
        self.since = 0.0
        self.backs_off_until = 0.0
        self.wake_at: float | None = None  # when to act even if no child exits
        self.terminated = False
        # of the running handler, even if the subscription changes meanwhile
        self.timeout: float | None = None
        self.errors = 0  # consecutive errors of the store or the system
        self.paused_until = 0.0  # after such an error

    def move(self, event: str) -> None:
        """Follow one arrow of TRANSITIONS."""
        self.state = TRANSITIONS[self.state][event]

    def attempts_void(self, state: ConsumerState | None) -> bool:
        """Return whether an ack, a `resume` or a new subscription has reset the attempts."""
        return state is None or state.acked != self.acked or state.attempts < self.noted

    def reset_attempts(self) -> None:
        """Start counting attempts from zero."""
        self.attempts = self.noted = 0


def supervise(directory: str, locks: Mapping[str, Lease]) -> None:
    """Supervise the locked consumers until none is due."""
    layout = Layout(directory)
    journal = Journal(layout)
    db = open_database(directory)
    try:
        subscriptions = Subscriptions(db, journal, Notifier(db, layout, journal))
        Supervisor(layout, subscriptions, journal, locks).run()
    finally:
        db.close()
        journal.close()


class Supervisor:
    """The loop over the consumers of one thread whose locks this process holds."""

    def __init__(
        self,
        layout: Layout,
        subscriptions: Subscriptions,
        journal: Journal,
        locks: Mapping[str, Lease],
    ) -> None:
        """Take over the locks."""
        self._layout = layout
        self._subscriptions = subscriptions
        self._journal = journal
        self._watched = [Watched(consumer, lock) for consumer, lock in locks.items()]
        self._backoff_base = self._first_backoff()

    def _first_backoff(self) -> float:
        """Return the first back-off; warn of an invalid one. An error would start no handler."""
        found = system.env_seconds("EVENTQ_BACKOFF", -1.0)
        if found >= 0:
            return found
        if text := system.env("EVENTQ_BACKOFF"):
            what = f"EVENTQ_BACKOFF is {text!r:.100}, which is no number of seconds"
            self._journal.warn(f"supervisor: {what}; {BACKOFF_SECONDS} is used")
        return BACKOFF_SECONDS

    def run(self) -> None:
        """Supervise consumers until none is due."""
        wake_in, wake_out = _pipe()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake_in, select.POLLIN)
        try:
            while self._watched:
                for watched in self._watched:
                    if watched.paused_until <= system.monotonic():
                        self._restore_lock_file(watched)
                        self._advance(watched)
                self._watched = [w for w in self._watched if w.state != "gone"]
                if self._watched:
                    poll.poll(self._milliseconds())
                    _drain(wake_in)
        finally:
            signal.set_wakeup_fd(-1)
            os.close(wake_in)
            os.close(wake_out)

    def _milliseconds(self) -> int:
        now = system.monotonic()
        times = [w.wake_at for w in self._watched if w.wake_at is not None]
        return max(0, int((min([*times, now + _TICK]) - now) * 1000) + 1)

    def _restore_lock_file(self, watched: Watched) -> None:
        """Recreate a lock file that a handler removed, unless the lock was released."""
        if watched.lock is not None and watched.state != "released":
            watched.lock.renew()

    def _advance(self, watched: Watched) -> None:
        """Move one consumer on as far as is possible without waiting."""
        steps = {
            "look": self._look,
            "running": self._running,
            "orphan": self._orphan,
            "backoff": self._backoff,
            "released": self._released,
        }
        before = ""
        while watched.state not in (before, "gone"):
            before = watched.state
            try:
                steps[before](watched)
                watched.errors = 0
            except (NotAThreadError, DamagedError) as error:
                self._journal.error(f"dispatch: consumer={watched.consumer} given up ({error})")
                self._drop(watched)
            except Exception as error:  # noqa: BLE001 (one consumer must not end it for all)
                self._try_later(watched, error)
                return

    def _try_later(self, watched: Watched, error: Exception) -> None:
        """Stay in the same state for a while: a busy or full store may recover."""
        delay = min(BACKOFF_SECONDS * 2 ** min(watched.errors, 30), BACKOFF_MOST)
        watched.errors += 1
        watched.wake_at = watched.paused_until = system.monotonic() + delay
        self._journal.error(
            f"dispatch: consumer={watched.consumer} failed, retried in {delay:g}s ({error})"
        )

    def _drop(self, watched: Watched) -> None:
        if watched.lock is not None:
            watched.lock.release()
            watched.lock.close()
            watched.lock = None
        watched.state = "gone"

    # --- one method per state ---------------------------------------------------------------------

    def _look(self, watched: Watched) -> None:
        """Start the handler if there is work, after any that outlived its supervisor has ended."""
        watched.wake_at = None
        if watched.lock is not None and not watched.pid and (orphan := watched.lock.orphan()):
            self._journal.info(
                f"dispatch: consumer={watched.consumer} waits for pid={orphan} of a lost supervisor"
            )
            state = self._subscriptions.state(watched.consumer)
            watched.timeout = state.timeout if state is not None else None
            watched.pid, watched.since, watched.terminated = orphan, system.monotonic(), False
            watched.move("orphan")
            return
        state = self._subscriptions.state(watched.consumer)
        if state is None or not self._subscriptions.ready(state):
            watched.move("idle")
            return
        self._start(watched, state)
        watched.move("due")

    def _running(self, watched: Watched) -> None:
        """Check whether the handler has ended or timed out."""
        if watched.pid:
            code = system.reap(watched.pid)
            if code is None:
                self._watch_time(watched)
                return
            if code < 0 or watched.terminated:
                system.kill_group(watched.pid, signal.SIGKILL)  # its children die with it
            self._note_exit(watched, code)
            watched.pid = 0
        watched.wake_at = None
        if watched.lock is not None:
            watched.lock.note()
        self._judge(watched)

    def _orphan(self, watched: Watched) -> None:
        """Wait for a handler that is not our child."""
        if watched.lock is not None and watched.lock.orphan() == watched.pid:
            self._watch_time(watched)
            soon = system.monotonic() + _ORPHAN_LOOK
            watched.wake_at = soon if watched.wake_at is None else min(soon, watched.wake_at)
            return
        watched.pid = 0
        watched.wake_at = None
        if watched.lock is not None:
            watched.lock.note()
        watched.move("ended")

    def _backoff(self, watched: Watched) -> None:
        """Wait before the next attempt, unless the attempts were reset meanwhile."""
        if watched.attempts_void(self._subscriptions.state(watched.consumer)):
            watched.reset_attempts()
            watched.move("resumed")
        elif system.monotonic() >= watched.backs_off_until:
            watched.move("time")
        else:
            watched.wake_at = watched.backs_off_until

    def _released(self, watched: Watched) -> None:
        """Release the lock, then look once more: a push that found it held relies on us."""
        lock = watched.lock
        if lock is not None:
            lock.release()
        state = self._subscriptions.state(watched.consumer)
        due = state is not None and self._subscriptions.ready(state)
        watched.lock = None
        if lock is not None:
            lock.close() if due else lock.forget()
        if due:
            watched.lock = self._subscriptions.lease(watched.consumer)
            watched.move("due" if watched.lock is not None else "taken")
        else:
            watched.move("idle")

    # --- handlers ---------------------------------------------------------------------------------

    def _start(self, watched: Watched, state: ConsumerState) -> None:
        """Start the handler once its pid is recorded.

        Otherwise a supervisor killed in between would leave a handler that nobody knows of.
        """
        if watched.attempts_void(state):
            watched.reset_attempts()
        log = self._open_log(watched.consumer)
        gate, opener = os.pipe()
        environ = {
            **os.environ,
            "EVENTQ_THREAD": self._layout.directory,
            "EVENTQ_CONSUMER": watched.consumer,
            "EVENTQ_LAST_ACKED_ID": str(state.acked),
        }
        try:
            pid = system.fork(lambda: _become_handler(gate, opener, log, state.handler, environ))
            watched.pid, watched.acked, watched.since, watched.terminated = (
                pid,
                state.acked,
                system.monotonic(),
                False,
            )
            watched.timeout = state.timeout
            watched.wake_at = watched.since + state.timeout if state.timeout else None
            if watched.lock is not None:
                watched.lock.note(pid)
            os.write(opener, b"!")
        finally:
            for fd in (gate, opener, log):
                os.close(fd)
        self._journal.info(
            f'dispatch: consumer={watched.consumer} spawned handler_cmd="{state.handler}" pid={pid}'
        )

    def _open_log(self, consumer: str) -> int:
        """Open the log of a handler, or /dev/null if it cannot be written: the handler must run."""
        try:
            return self._open_file(self._layout.handler_log(consumer))
        except OSError as error:
            self._journal.warn(f"dispatch: consumer={consumer} runs without a log ({error})")
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def _open_file(self, path: str) -> int:
        if not os.path.isdir(self._layout.handlers):
            self._layout.make_folder(self._layout.handlers)
        fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self._layout.file_mode()
        )
        if os.lseek(fd, 0, os.SEEK_END) < _LONG_LOG and not _many_lines(fd):
            return fd
        os.close(fd)
        lock = FolderLock(self._layout.handlers)
        with lock:
            rotate(path)
        lock.close()
        return self._open_file(path)

    def _watch_time(self, watched: Watched) -> None:
        """Send SIGTERM to a handler that timed out, then SIGKILL after the grace period."""
        timeout = watched.timeout
        if not timeout:
            watched.wake_at = None
            return
        now = system.monotonic()
        if now < watched.since + timeout:
            watched.wake_at = watched.since + timeout
        elif not watched.terminated:
            self._journal.warn(
                f"dispatch: consumer={watched.consumer} timed out after {timeout:g} seconds"
            )
            system.kill_group(watched.pid, signal.SIGTERM)
            watched.terminated = True
            watched.wake_at = watched.since + timeout + GRACE_SECONDS
        elif now >= watched.since + timeout + GRACE_SECONDS:
            system.kill_group(watched.pid, signal.SIGKILL)
            watched.wake_at = now + GRACE_SECONDS

    def _note_exit(self, watched: Watched, code: int) -> None:
        how = f"killed signal={-code}" if code < 0 else f"exited code={code}"
        seconds = system.monotonic() - watched.since
        self._journal.info(f"dispatch: consumer={watched.consumer} {how} seconds={seconds:.3f}")

    def _judge(self, watched: Watched) -> None:
        """Decide what follows a run: another look, a delayed retry, or a stall."""
        state = self._subscriptions.state(watched.consumer)
        if state is None or state.acked != watched.acked or not self._subscriptions.ready(state):
            watched.reset_attempts()
            if state is not None and state.attempts:
                self._subscriptions.note_attempts(state, 0)
            watched.move("progress")
            return
        if watched.attempts_void(state):
            watched.reset_attempts()
        watched.attempts = max(watched.attempts, state.attempts) + 1
        self._subscriptions.note_attempts(state, watched.attempts)
        watched.noted = watched.attempts
        if watched.attempts >= state.max_attempts:
            watched.move("gave up")
            self._subscriptions.stall(state, f"{watched.attempts} runs in a row made no progress")
            return
        delay = min(self._backoff_base * 2 ** min(watched.attempts - 1, 30), BACKOFF_MOST)
        watched.wake_at = watched.backs_off_until = system.monotonic() + delay
        attempt = f"{watched.attempts + 1}/{state.max_attempts}"
        self._journal.info(
            f"dispatch: consumer={watched.consumer} retry attempt={attempt} in={delay:g}s"
        )
        watched.move("no progress")


def _become_handler(
    gate: int, opener: int, log: int, command: str, environ: dict[str, str]
) -> None:
    """Turn this new process into the handler, once the gate opens."""
    os.close(opener)
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Python ignores two of them, and an ignored signal survives the exec.
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # The read returns nothing if the supervisor was killed before it recorded our pid.
    if os.read(gate, 1) == b"!":
        os.execve("/bin/sh", ["sh", "-c", command], environ)  # noqa: S606 (a shell command)


def _many_lines(fd: int) -> bool:
    size = os.lseek(fd, 0, os.SEEK_END)
    return size > ROTATE_LINES and os.pread(fd, size, 0).count(b"\n") > ROTATE_LINES


def _pipe() -> tuple[int, int]:
    if hasattr(os, "pipe2"):
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass
