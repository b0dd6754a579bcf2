"""Waking whoever is due after a commit: through an external notifier, or with a dispatch started here.

The external one is called as `notifier task add --author … --task-id … --command …`, five seconds at most. Its
"already queued" may name a dispatch that has already looked, and any failure of it must not cost a wake-up, so both
start the built-in one too: that is idempotent. Nor is its "queued" trusted: its daemon may not run, may lose the task,
or may not find our command. So a built-in dispatch looks a little later, when the task should have been done.
"""

from __future__ import annotations

import os
import sys
from time import thread_time

from eventq import system
from eventq.errors import FilterError
from eventq.locks import guards, held, queue, wake_holder
from eventq.workspace.layout import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.event import Commit
    from eventq.storage.sqlite.database import Database
    from eventq.workspace.journal import Journal
    from eventq.workspace.layout import Layout

SECONDS = 5.0  # what the external notifier may take
LOOK_SECONDS = 0.1  # of processor time, what the filters of all consumers may take of one push
DEFERRED_SECONDS = 2.0  # after which we look whether a task that was queued has been done
_LOOK_AGAIN = 1.0
_QUEUED = 1  # its exit code for a task that is queued already
QUEUE_FD = "EVENTQ_DISPATCH_FD"  # tells a dispatch which descriptor holds its place in the queue
DELAY = "EVENTQ_DISPATCH_AFTER"  # tells it how many seconds to wait before it leaves that place and looks


class Notifier:
    """The wake-ups of one thread."""

    def __init__(self, db: Database, layout: Layout, journal: Journal) -> None:
        """Bring the parts together."""
        self._db = db
        self._layout = layout
        self._journal = journal
        self._children: list[int] = []
        self._chosen: str | None = None
        self._words: list[str] = []
        self._look_at = 0.0

    def committed(self, commit: Commit) -> None:
        """See to it that the consumers of new events are run."""
        chosen = system.environ.get("EVENTQ_NOTIFIER", "")
        if chosen == "none":
            return
        fresh = chosen == self._chosen and system.monotonic() < self._look_at
        argv = self._words if fresh else self._argv(chosen)
        if argv and not self._external(argv, commit.source):
            self.start()
        elif self._db.consumers.any() and self._could_be_due(commit.first, commit.last):
            self._defer() if argv else self.start()

    def _argv(self, chosen: str) -> list[str]:
        """Find the words of the external notifier, none for the built-in one: once a second, as that searches PATH."""
        self._words = [] if chosen == "builtin" else _command(chosen)
        self._chosen, self._look_at = chosen, system.monotonic() + _LOOK_AGAIN
        return self._words

    def wake_one(self) -> None:
        """See to it that a consumer which is known to be due is run.

        Nothing new has to be told to an external notifier.
        """
        if system.env("EVENTQ_NOTIFIER") != "none":
            self.start()

    def wake_supervisor(self, consumer: str) -> None:
        """Have the supervisor of a consumer look at what has changed, whatever it waits for."""
        wake_holder(self._layout.consumer(consumer))

    def start(self) -> None:
        """Start a detached dispatch, unless one is yet to begin."""
        self.close()
        child = self._spawn(self._layout.queue, [], {})
        if child is not None:
            self._children.append(child)

    def _defer(self) -> None:
        """Start a detached dispatch that waits before it looks, unless one is waiting already.

        It would be our zombie until we look again, which may take long: the shell that starts it ends at once.
        """
        environ = {DELAY: f"{DEFERRED_SECONDS:g}"}
        shell = self._spawn(self._layout.deferred, ["/bin/sh", "-c", '"$@" &', "sh"], environ)
        if shell is not None and system.wait(shell, SECONDS) is None:
            self._children.append(shell)

    def _spawn(self, place: str, before: list[str], environ: dict[str, str]) -> int | None:
        """Spawn a dispatch that holds a place in the queue; return None when the place is taken."""
        try:
            fd = queue(place, self._layout.database)
            if fd is None:
                return None
            try:
                words = system.python("dispatch", "--thread", self._layout.directory)
                environ = {**os.environ, QUEUE_FD: str(fd), **environ}
                return system.spawn([*before, *words], keep=[fd], environ=environ)
            finally:
                os.close(fd)
        except OSError as error:
            self._journal.warn(
                f"notifier: a dispatch could not be started ({error}); run 'eventq dispatch'"
            )
        return None

    def _could_be_due(self, first: int, last: int) -> bool:
        """Return whether a consumer that nobody supervises right now matches a new event, or lost its supervisor.

        One whose lock is held has a supervisor, which looks once more after it has let go.
        """
        there = guards(self._layout.guards)
        deadline = thread_time() + LOOK_SECONDS
        for state in self._db.consumers.all():
            after = max(first - 1, state.acked)
            new = state.stalled is None and self._matches(state.filter, after, last, deadline)
            if (new or (there and encode(state.consumer) in there)) and not held(
                self._layout.consumer(state.consumer)
            ):
                return True
        return False

    def _matches(self, text: str | None, after: int, last: int, deadline: float) -> bool:
        """Say whether a new event may match; when the time is up, the dispatch is left to find out."""
        if after >= last or not text:
            return after < last
        left = deadline - thread_time()
        try:
            return left <= 0 or self._db.events.could_match(text, after, last, left)
        except FilterError:
            return True  # the dispatch stalls that consumer, and says so

    def _external(self, argv: list[str], author: str) -> bool:
        """Queue a dispatch with the external notifier; give False when the built-in one is needed as well."""
        directory = self._layout.directory
        task = f"dispatch-{slug(directory)}"
        words = ["--author", author, "--task-id", task, "--command", dispatch_command(directory)]
        try:
            pid = system.spawn([*argv, "task", "add", *words])
        except (OSError, ValueError) as error:
            self._journal.warn(
                f"notifier: {argv[0]} could not be started ({error}); dispatching directly"
            )
            return False
        code = system.wait(pid, SECONDS)
        if code is None:
            system.kill_group(pid, 9)
            system.wait(pid, SECONDS)
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
        """Collect the children that have ended."""
        self._children = [pid for pid in self._children if system.reap(pid) is None]


def _command(chosen: str) -> list[str]:
    """Give the words of the external notifier; none when there is no such command by default."""
    if not chosen:
        return [found] if (found := system.which("notifier")) else []
    if " " in chosen and not os.path.exists(chosen):
        import shlex

        try:
            return shlex.split(chosen)
        except ValueError:
            return [chosen]
    return [chosen]


def slug(path: str) -> str:
    """Give the name of a thread in a task id.

    Each UTF-16 unit that is not an ASCII letter or digit becomes `-`: so names that are queued already were made. Long
    ones end in a hash.
    """
    text = "".join(c if c.isascii() and c.isalnum() else "-" * (1 + (c > "\uffff")) for c in path)
    if len(text) <= 40:
        return text
    from hashlib import sha1

    return f"{text[:32]}-{sha1(os.fsencode(path)).hexdigest()[:6]}"  # noqa: S324 (a name, not a secret)


def quote(word: str) -> str:
    """Quote a word for a POSIX shell (`shlex` is slow to import)."""
    safe = word and all(c.isascii() and (c.isalnum() or c in "@%+=:,./-_") for c in word)
    return word if safe else "'" + word.replace("'", "'\"'\"'") + "'"


def dispatch_command(directory: str) -> str:
    """Give the shell command that dispatches a thread, with a program that the notifier's shell will find."""
    return f"{_program()} dispatch --thread {quote(directory)}"


def _program() -> str:
    try:
        here = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    except FileNotFoundError:  # the current directory is gone
        here = ""
    if os.path.basename(here) not in ("eventq", "thread") or not os.access(here, os.X_OK):
        here = os.path.join(os.path.dirname(sys.executable), "eventq")
        if not os.access(here, os.X_OK):
            return " ".join(quote(word) for word in system.python())
    name = os.path.basename(here)
    found = system.which(name)
    return name if found and os.path.samefile(found, here) else quote(here)
