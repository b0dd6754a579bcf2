"""`hook`: store what a coding agent reports, and keep the agent waiting for two seconds at most.

If another writer is in the way for longer, the event is left to a process that outlives the hook:
the same command, with the event on stdin, and its key in a variable. When an agent stops, another
such process imports its session file, whose path is in a variable, once the hook has ended.
"""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.cli.options import thread_option
from eventq.cli.table import Command, Option
from eventq.errors import BusyError, StoreError, UnknownOutcomeError
from eventq.log.events import limit_of_event
from eventq.store.paths import is_shared, is_url
from eventq.system import clock, environment
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.event import NewEvent

PATIENCE_SECONDS = 2.0  # that an agent waits
LATE_SECONDS = 3600.0  # after which an event is given up
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # between two tries
_KEY = "EVENTQ_HOOK_KEY"
_SESSION = "EVENTQ_HOOK_SESSION"
_STOPS = ("Stop", "SessionEnd")  # at which a session file has grown


def hook(*, thread: str, source: str) -> None:
    """Store the JSON object that a coding agent's hook sends.

    It is read from stdin and stored as one event; the command prints nothing and always exits
    0. If another writer is in the way for two seconds, the event is stored once that ends. When an
    agent stops, its session file is imported afterwards, unless 'hooks.sessions' is off.
    """
    if session := environment.take_env(_SESSION):
        _keep_session(thread, session)
        return
    key = environment.take_env(_KEY)
    given: bytes | bytearray = b""
    try:
        fd = show.stdin()
        given = show.read_all(lambda: show.read(fd), limit_of_event())
        event = _event(given, source)
    except Exception as error:  # noqa: BLE001 (whatever it is)
        with Thread(thread, patience=PATIENCE_SECONDS) as opened:
            _note(opened, error)
        return
    if key:
        _store_late(thread, event._replace(key=event.key or key), LATE_SECONDS)
        return
    if is_shared(thread):  # its server may keep us waiting in other ways
        _leave(thread, source, given, wait=True)
    else:
        try:
            _store(thread, event, PATIENCE_SECONDS)
        except BusyError:
            _leave(thread, source, given)
    if event.subtype in _STOPS:
        _leave_session(thread, event.content)


def _event(given: bytes | bytearray, source: str) -> NewEvent:
    from eventq.cli.batch import hook_event
    from eventq.records.event import NewEvent

    return NewEvent(*hook_event(given, source or "self"))


def _store(thread: str, event: NewEvent, patience: float | None = None) -> None:
    """Store an event; raise StoreError for what may pass, and note any other failure."""
    with Thread(thread, patience=patience) as opened:
        try:
            opened.push(*event)
        except Exception as error:
            if _may_pass(error):
                raise
            _note(opened, error)


def _note(thread: Thread, error: Exception) -> None:
    thread.journal.warn(f"hook: {error or type(error).__name__}")


def _may_pass(error: Exception) -> bool:
    """Return whether it may be stored later: others write, or the server is away."""
    return isinstance(error, (BusyError, UnknownOutcomeError)) or type(error) is StoreError


def _store_late(thread: str, event: NewEvent, seconds: float) -> None:
    """Try to store an event until it is; note it if it is given up."""
    deadline, pause = clock.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            _store(thread, event)
        except StoreError as error:
            if not _may_pass(error) or clock.monotonic() > deadline:
                with Thread(thread) as opened:
                    opened.journal.error(f"hook: an event is given up: {error}")
                return
        else:
            return
        clock.pause(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _leave(thread: str, source: str, given: bytes | bytearray, *, wait: bool = False) -> None:
    """Start a process that stores an event; if asked, wait for it as long as an agent waits."""
    from eventq.system import disk, processes

    key = f"hook:{os.urandom(16).hex()}"  # it may try again after an answer was lost
    # The URL may have a password, which others see among the words of a process.
    environ = {**os.environ, "EVENTQ_THREAD": thread, _KEY: key}
    try:
        with disk.unnamed_file(None if is_url(thread) else thread) as file:
            file.write(given)
            file.seek(0)
            words = processes.python("hook", "--source", source)
            pid = processes.spawn(words, stdin=file.fileno(), environ=environ)
    except OSError:  # no room, or no process: then the agent has to wait
        event = _event(given, source)
        _store_late(thread, event._replace(key=event.key or key), 0)
        return
    if wait:
        processes.wait(pid, PATIENCE_SECONDS)


def _leave_session(thread: str, content: str) -> None:
    """Start a process that imports the session file of an event once this one has ended."""
    import json

    from eventq.system import processes

    path = json.loads(content).get("transcript_path")
    if not isinstance(path, str) or not os.path.isfile(path):
        return
    environ = {**os.environ, "EVENTQ_THREAD": thread, _SESSION: os.path.abspath(path)}
    try:
        ends, _ = os.pipe()  # whose other end is closed when this process ends, and not before
        processes.spawn(processes.python("hook"), stdin=ends, environ=environ)
    except (OSError, ValueError) as error:
        with Thread(thread) as opened:
            _note(opened, error)


def _keep_session(thread: str, path: str) -> None:
    """Import a session file; note why it cannot be. Of several at once, one does the work."""
    from contextlib import suppress

    from eventq.store.rules import HOOKS_SESSIONS
    from eventq.system import disk, locks

    while show.read(show.stdin()):  # until the hook has ended
        pass
    with Thread(thread) as opened:
        try:
            if opened.settings.get(HOOKS_SESSIONS) == "on":
                with disk.open_regular(path) as file:
                    with suppress(OSError):  # where there are no locks, the work is done twice
                        locks.lock_whole(file.fileno(), wait=True)
                    opened.sessions.import_file(path)
        except Exception as error:  # noqa: BLE001 (nobody else sees it)
            opened.journal.warn(f"hook: session '{path}' was not imported: {error}")


COMMANDS = {
    "hook": Command(
        hook,
        [
            thread_option(kinds.place),
            Option("source ADDRESS", "The sender.", kinds.verbatim, default="self"),
        ],
        'echo \'{"hook_event_name": "Stop"}\' | eventq hook --thread ./inbox',
        silent=True,
    ),
}
