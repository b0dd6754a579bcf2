"""Wake due consumers after a commit, through an external notifier or a dispatch in this process.

The external notifier is called as `notifier task add --author … --task-id … --command …` and
gets at most five seconds. "Already queued" may refer to a dispatch that has already looked, and
a failure of the notifier must not lose a wake-up. So in both cases the built-in dispatch starts
too, which is idempotent. "Queued" is not trusted either: the daemon may not run, may lose the
task, or may not find our command. So a built-in dispatch looks a little later, when the task
should be done.
"""

from __future__ import annotations

import os
import sys
from time import thread_time

from eventq.errors import FilterError, LogicError, UsageError, cited
from eventq.store.paths import is_shared, shown
from eventq.system import clock, disk, environment, processes
from eventq.system.locks import queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.log.journal import Journal
    from eventq.records.consumer import ConsumerState
    from eventq.records.event import Commit
    from eventq.store.paths import Layout
    from eventq.store.protocol import Database

SECONDS = 5.0  # the time limit of the external notifier
LOOK_SECONDS = 0.1  # processor time that the filters of all consumers may take in one push
DEFERRED_SECONDS = 2.0  # the delay before checking that a queued task was done
_LOOK_AGAIN = 1.0  # seconds for which the notifier's command is remembered
_QUEUED = 1  # the notifier's exit code for a task that is already queued
QUEUE_FD = "EVENTQ_DISPATCH_FD"  # the descriptor that holds a dispatch's slot in the queue
DELAY = "EVENTQ_DISPATCH_AFTER"  # seconds a dispatch waits before it frees its slot and looks


class Notifier:
    """The wake-ups of one thread."""

    def __init__(self, db: Database, layout: Layout, journal: Journal) -> None:
        """Take the database, the paths and the journal of the thread."""
        self._db = db
        self._layout = layout
        self._journal = journal
        self._chosen: str | None = None
        self._argv: list[str] = []
        self._argv_expires = 0.0
        self._seen: tuple[object, list[ConsumerState]] = (None, [])

    def check_label(self, label: str | None) -> None:
        """Raise UsageError for a label where it would choose nothing."""
        if label is not None:
            raise UsageError(
                "a label chooses among the machines that work for a thread in PostgreSQL",
                "leave it out: this thread belongs to one machine",
            )

    def command(self, label: str | None) -> str:  # noqa: ARG002 (machines have labels)
        """Return the command that runs handlers which wait."""
        return f"eventq dispatch --thread {quote(self._layout.thread)}"

    def committed(self, commit: Commit) -> None:
        """Wake the consumers of new events."""
        chosen = environment.environ.get("EVENTQ_NOTIFIER", "")
        if chosen == "none":
            return
        fresh = chosen == self._chosen and clock.monotonic() < self._argv_expires
        argv = self._argv if fresh else self._find(chosen)
        queued = bool(argv) and self._external(argv, commit.source)
        if self._could_be_due(commit.first, commit.last):
            self._defer() if queued else self.start()

    def _find(self, chosen: str) -> list[str]:
        """Return the external notifier's argv, or [] for the built-in one.

        It is remembered for a second, because finding it searches PATH.
        """
        self._argv = [] if chosen == "builtin" else _command(chosen)
        self._chosen, self._argv_expires = chosen, clock.monotonic() + _LOOK_AGAIN
        return self._argv

    def wake_one(self) -> None:
        """Wake a consumer that is known to be due.

        The external notifier is not called, as there is no new event.
        """
        if environment.env("EVENTQ_NOTIFIER") != "none":
            self.start()

    def wake_supervisor(self, consumer: str) -> None:
        """Make the supervisor of a consumer look at once, whatever it is waiting for."""
        self._db.leases().wake(consumer)

    def start(self) -> None:
        """Start a detached dispatch, unless one is about to begin."""
        self.close()
        child = self._spawn(self._layout.queue, [], {})
        if child is not None:
            processes.leave(child)

    def _defer(self) -> None:
        """Start a detached dispatch that waits before it looks, unless one is already waiting.

        A shell starts it and exits at once. As our own child, the dispatch would stay a zombie
        until our next wake-up, which may be long after.
        """
        environ = {DELAY: f"{DEFERRED_SECONDS:g}"}
        shell = self._spawn(self._layout.deferred, ["/bin/sh", "-c", '"$@" &', "sh"], environ)
        if shell is not None and processes.wait(shell, SECONDS) is None:
            processes.leave(shell)

    def _spawn(self, slot: str, before: list[str], environ: dict[str, str]) -> int | None:
        """Start a dispatch that holds a slot of the queue; return None if the slot is taken."""
        try:
            fd = queue(slot, self._layout.database)
            if fd is None:
                return None
            try:
                words = processes.python("dispatch", "--thread", self._layout.directory)
                path = processes.path_of_handlers()  # by what we were called, it does not know
                environ = {**os.environ, "PATH": path, QUEUE_FD: str(fd), **environ}
                return processes.spawn([*before, *words], keep=[fd], environ=environ)
            finally:
                os.close(fd)
        except OSError as error:
            self._journal.warn(
                f"notifier: a dispatch could not be started ({error}); run"
                f" '{processes.called()} dispatch'"
            )
        return None

    def _could_be_due(self, first: int, last: int) -> bool:
        """Return whether a handler without a supervisor may be due, or a supervisor was lost.

        A consumer whose lock is held has a supervisor, which looks once more after the release. So
        does a worker. For a handler that may not run yet, whatever lets it run wakes it.
        """
        version = self._db.consumers.version()
        if version != self._seen[0]:
            self._seen = version, self._db.consumers.all()
        if not (states := self._seen[1]):
            return False
        leases = self._db.leases()
        deadline = thread_time() + LOOK_SECONDS
        for state in states:
            after = max(first - 1, state.acked)
            new = state.may_run and self._matches(state.filter, after, last, deadline)
            consumer = state.consumer
            if (
                (new or leases.is_noted(consumer))
                and not leases.is_held(consumer)
                and not leases.is_worked(consumer)
            ):
                self._tell_foreign(consumer)
                return True
        return False

    def _tell_foreign(self, consumer: str) -> None:
        """Tell whoever pushes what no dispatch could: the journal may be somebody else's too."""
        if found := self._layout.foreign(consumer):
            self._journal.warn(what := disk.foreign(found[0], self._layout.database))
            disk.tell(f"Warning: the event is stored, and its handlers may not run: {what}")

    def _matches(self, where: str | None, after: int, last: int, deadline: float) -> bool:
        """Return whether a new event may match. After the deadline, leave it to the dispatch."""
        if after >= last or not where:
            return after < last
        left = deadline - thread_time()
        if left <= 0:
            return True
        try:
            found = self._db.events.tally(where, after, last, 1, left)
            return found.first is not None or not found.whole
        except FilterError:
            return True  # the dispatch stalls that consumer and records why

    def _external(self, argv: list[str], author: str) -> bool:
        """Queue a dispatch externally; return False if the built-in one must run too."""
        directory = self._layout.directory
        task = f"dispatch-{slug(directory)}"
        words = ["--author", author, "--task-id", task, "--command", dispatch_command(directory)]
        try:
            pid = processes.spawn([*argv, "task", "add", *words])
        except (OSError, ValueError) as error:
            self._journal.warn(
                f"notifier: {argv[0]} could not be started ({error}); dispatching directly"
            )
            return False
        code = processes.wait(pid, SECONDS)
        if code is None:
            processes.kill_group(pid, 9)
            processes.wait(pid, SECONDS)
            self._journal.warn(
                f"notifier: {argv[0]} took more than {SECONDS:g} seconds; dispatching directly"
            )
        elif code == 0:
            self._journal.info(f"notifier: {argv[0]} has queued {task}")
        elif code == _QUEUED:
            self._journal.info(
                f"notifier: {argv[0]} had queued {task} before; dispatching directly"
            )
        else:
            self._journal.warn(f"notifier: {argv[0]} failed with code {code}; dispatching directly")
        return code == 0

    def close(self) -> None:
        """Reap the children that have ended."""
        processes.reap_left()


def check_dispatch(path: str) -> None:
    """Raise LogicError for a thread in PostgreSQL, whose handlers no dispatch starts."""
    if is_shared(path):
        raise LogicError(
            f"nothing is dispatched for '{shown(path)}', a thread in PostgreSQL",
            f"run {cited(work_command(shown(path)))} on the machines that may run its handlers",
        )


def work_command(thread: str, label: str | None = None) -> str:
    """Return the command that runs the handlers of a thread in PostgreSQL."""
    more = "" if label is None else f" --label {quote(label)}"
    return f"eventq work --thread {quote(thread)} --allow FILE{more}"


class RemoteNotifier(Notifier):
    """The wake-ups of a thread that machines share: notices, which its workers hear."""

    def committed(self, commit: Commit) -> None:
        """Do nothing: the push has sent a notice."""

    def wake_one(self) -> None:
        """Send a notice: a consumer is due."""
        self._db.ring()

    def start(self) -> None:
        """Raise LogicError: there is nothing to start."""
        check_dispatch(self._layout.thread)

    def check_label(self, label: str | None) -> None:
        """Accept any label: workers have some."""

    def command(self, label: str | None) -> str:
        """Return the command that works for the thread; somebody may have to allow its handlers."""
        return work_command(self._layout.thread, label)


def _command(chosen: str) -> list[str]:
    """Return the argv of the external notifier, or [] if none is chosen and none is installed."""
    if not chosen:
        return [found] if (found := processes.which("notifier")) else []
    if " " in chosen and not os.path.exists(chosen):
        import shlex

        try:
            return shlex.split(chosen)
        except ValueError:
            return [chosen]
    return [chosen]


def slug(path: str) -> str:
    """Return the name of a thread in a task id.

    Each UTF-16 unit that is not an ASCII letter or digit becomes `-`, so that a task that was
    queued by an earlier version keeps its name. Long names end in a hash.
    """
    text = "".join(c if c.isascii() and c.isalnum() else "-" * (1 + (c > "\uffff")) for c in path)
    if len(text) <= 40:
        return text
    from hashlib import sha1

    digest = sha1(os.fsencode(path)).hexdigest()  # noqa: S324 (a name, not a secret)
    return f"{text[:32]}-{digest[:6]}"


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SAFE = frozenset(f"{_LETTERS}{_LETTERS.upper()}0123456789@%+=:,./-_")


def quote(word: str) -> str:
    """Quote a word for a POSIX shell (`shlex` is slow to import)."""
    return word if word and _SAFE.issuperset(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def dispatch_command(directory: str) -> str:
    """Return the shell command that dispatches a thread, as the notifier's shell will find it."""
    return f"{_program()} dispatch --thread {quote(directory)}"


def _program() -> str:
    try:
        here = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    except FileNotFoundError:  # the current directory is gone
        here = ""
    if os.path.basename(here) not in ("eventq", "thread") or not os.access(here, os.X_OK):
        here = os.path.join(os.path.dirname(sys.executable), "eventq")
        if not os.access(here, os.X_OK):
            return " ".join(quote(word) for word in processes.python())
    name = os.path.basename(here)
    found = processes.which(name)
    return name if found and os.path.samefile(found, here) else quote(here)
