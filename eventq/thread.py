"""The public API: `open_thread` returns a `Thread`, whose methods are everything eventq can do."""

from __future__ import annotations

import os

from eventq.errors import (
    DiskError,
    EventqError,
    LogicError,
    NotAThreadError,
    PlatformError,
    StoreError,
    ThreadExistsError,
    UnknownContextError,
    UsageError,
    has_mirror,
    refused,
    way_back,
    without_user,
)
from eventq.log.events import EventLog, fresh, refuse_conflict
from eventq.log.journal import Journal
from eventq.records.checks import check_natural, check_positive
from eventq.records.event import Batch, Event
from eventq.store import opening
from eventq.store.paths import LINK, Layout, is_shared, is_url, resolve
from eventq.store.transactions import at_a_moment
from eventq.system import clock, disk, environment
from eventq.system.clock import SLOW_LOOK
from eventq.system.locks import alone_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any, Unpack

    from eventq.erasure.erasures import Erasures
    from eventq.log.claims import Claim, Claims
    from eventq.log.consumers import Subscriptions
    from eventq.log.dead_letters import DeadLetters
    from eventq.log.events import EventInput
    from eventq.log.mirror import Mirror
    from eventq.log.notifier import Notifier
    from eventq.log.questions import Questions
    from eventq.log.reader import Reader
    from eventq.memory.blobs import Blobs
    from eventq.memory.contexts import Contexts
    from eventq.memory.runs import Runs
    from eventq.memory.settings import Settings
    from eventq.output.artifacts import Artifacts
    from eventq.output.output_store import OutputStore
    from eventq.output.outputs import Outputs
    from eventq.output.urls import Resource
    from eventq.records.artifact import ArtifactInfo, Captured, Content
    from eventq.records.cause import Cause, Effects
    from eventq.records.claim import ClaimInfo, DeadLetter
    from eventq.records.consumer import Subscription, Terms
    from eventq.records.info import Overview, ThreadStatus
    from eventq.records.question import Question
    from eventq.records.rows import Rows, Values
    from eventq.records.spent import HourUsage, UsageSum
    from eventq.records.turn import Collected, ContextInfo, Imported
    from eventq.sessions.files import Sessions
    from eventq.store.causing import During
    from eventq.store.engine import Engine
    from eventq.store.protocol import Log
    from eventq.store.queue_rows import Outcome
    from eventq.store.shared_paths import SharedLayout

Path = str | os.PathLike[str]
_OWN, _SHARED = (0o700, 0o600), (0o777, 0o666)  # modes of folders and files
_ELSEWHERE = "move it away, or choose another directory"
_NAMED = 20  # texts that name a blob which is not stored, in the warnings
_SQL_CALL = 'call it as thread.sql("SELECT * FROM events WHERE id > ?", [5])'
_LISTED = 100  # contexts and artifacts in a status


def open_thread(
    path: Path,
    *,
    create: bool = False,
    read_only: bool = False,
    strict_source: bool | None = None,
    any_mount: bool = False,
) -> Thread:
    """Open the thread at `path`; with `create`, create it first if there is none.

    `read_only` never creates or changes a file. `strict_source` refuses sources that are not
    addresses (default: EVENTQ_STRICT_SOURCE). `any_mount` allows it a file system that `init`
    refuses, for good. Raises NotAThreadError, DamagedError, ReadOnlyError, and UsageError for an
    environment variable that is invalid.
    """
    if create and not exists(path):
        try:
            init(path, any_mount=any_mount)
        except ThreadExistsError:
            pass  # another process was quicker
    return Thread(path, read_only=read_only, strict_source=strict_source, any_mount=any_mount)


def exists(path: Path) -> bool:
    """Return whether there is a thread at `path`."""
    text = _text(path)
    if is_url(text):
        return opening.shared_exists(text)
    directory = resolve(text)
    return os.path.exists(Layout(directory).database) or os.path.exists(f"{directory}/{LINK}")


def init(path: Path, *, shared: bool = False, any_mount: bool = False) -> str:
    """Create a thread at `path` and return its absolute path.

    Only its owner can open it, unless `shared`. An `init` that crashed is completed. Raises
    ThreadExistsError if there is a thread already, InputError if the path is too long, UsageError
    for a URL of something else, and PlatformError on a file system that other machines, or the host
    of this one, may write: NFS, SMB, 9p, FUSE and others. With `any_mount` it is created there, for
    a file system that only this machine writes.
    """
    if is_url(_text(path)):
        return opening.init_shared(_text(path))
    if "://" in _text(path):
        what = f"'{without_user(_text(path))}' is no directory, and not the URL of a database"
        raise UsageError(what, "give the path of a directory, or postgresql://…")
    from eventq.system.mounts import check_local

    if not _text(path):
        raise UsageError("the path is empty", "give the directory of the new thread")
    layout = Layout(resolve(_text(path)))
    _refuse_a_thread(layout)
    opening.check_path(layout.directory)
    if not any_mount:
        check_local(layout.directory)
    try:
        _make(layout, shared=shared)
    except OSError as error:
        raise _refused(layout.directory, error) from error
    if any_mount:
        with Thread(layout.directory, any_mount=True) as thread:
            thread.check_place()
    return layout.directory


def _refuse_a_thread(layout: Layout) -> None:
    """Raise ThreadExistsError if there is a thread, or what can only be one."""
    if os.path.lexists(f"{layout.directory}/{LINK}") or os.path.isdir(layout.database):
        raise ThreadExistsError(layout.directory)
    if os.path.isfile(layout.database) and os.path.getsize(layout.database):
        raise ThreadExistsError(layout.directory)


def _refuse_others_files(layout: Layout) -> None:
    """Raise LogicError for files that a new thread would write to, and that are not its own.

    An init that crashed has left empty ones. Under the lock of the directory: whoever makes the
    thread at this moment has files of no thread there.
    """
    mirror, wal = layout.mirror, f"{layout.database}-wal"
    is_file = os.path.isfile(mirror) and not os.path.islink(mirror)
    if os.path.lexists(mirror) and not is_file:
        raise LogicError(f"'{mirror}' is no file", _ELSEWHERE)
    if has_mirror(layout.directory):
        from eventq.log.mirror_lines import last_of

        if not last_of(layout):
            raise LogicError(f"'{mirror}' is there already, and has no events in it", _ELSEWHERE)
        what = f"'{layout.directory}' has the events of a thread, whose events.db is gone or empty"
        raise LogicError(what, f"{way_back(layout.database)}; or {_ELSEWHERE}")
    if os.path.lexists(wal) and os.path.getsize(wal):
        what = f"'{wal}' is left of a database that is gone: a new one would take it for its own"
        raise LogicError(what, f"put that database back, or {_ELSEWHERE}")


def recover(path: Path) -> int:
    """Make the log of a thread anew from its mirror, and return the number of events.

    For a thread whose events.db is missing, empty or damaged; what is left of that is moved to the
    folder `lost`. What only the database knew is gone: consumers and how far they had come, claims,
    dead letters, keys, turns, runs, artifacts, outputs and settings. Raises LogicError if events.db
    is sound, or the mirror has no event.
    """
    from eventq.log.witness import set_aside

    if is_shared(_text(path)):
        raise LogicError(
            "the log of a thread in PostgreSQL is not made from a mirror",
            "restore a backup of the database, or give a file with lines of events to push again",
        )
    layout = Layout(resolve(_text(path)))
    if not os.path.isdir(layout.directory):
        raise NotAThreadError(layout.directory)

    def begin_anew() -> None:
        if opening.is_sound(layout.database):
            raise LogicError(
                f"'{layout.database}' is sound: there is no log to make anew",
                "give a file with lines of events, to push those again",
            )
        _fill(layout, *(_SHARED if set_aside(layout) else _OWN))

    try:
        alone_in(layout.directory, begin_anew)
        with open_thread(layout.directory) as thread:
            thread._take_back()  # noqa: SLF001 (it is this module's own)
            return thread.database.events.bounds()[2]
    except OSError as error:
        raise _refused(layout.directory, error) from error


def _make(layout: Layout, *, shared: bool) -> None:
    folder, file = _SHARED if shared else _OWN
    os.makedirs(os.path.dirname(layout.directory), exist_ok=True)
    try:
        os.mkdir(layout.directory, folder)
    except FileExistsError:
        pass  # it exists or is just being created; the next step refuses a file in its place

    def make() -> None:
        _refuse_a_thread(layout)
        _refuse_others_files(layout)
        _fill(layout, folder, file)

    alone_in(layout.directory, make)


def _fill(layout: Layout, folder: int, file: int) -> None:
    """Make the files of a thread that are missing, under the lock of its directory."""
    for path in (layout.run, layout.logs, layout.handlers):
        disk.make_folder(path, layout.directory, folder)
    os.close(disk.create(layout.mirror, os.O_WRONLY, layout.directory, file))
    if not opening.create(layout.directory, layout.database, file):
        raise ThreadExistsError(layout.directory)
    # Without this a power cut could lose the whole thread with the events pushed since.
    for path in (layout.directory, os.path.dirname(layout.directory)):
        disk.sync_folder(path)


def destroy(path: Path) -> None:
    """Delete a thread in a database, and everything in it. Nothing brings it back.

    Raises NotAThreadError, and UsageError for a directory, of which nothing is deleted: it may hold
    what is not the thread's, so its owner deletes it.
    """
    text = _text(path)
    if is_url(text):
        opening.destroy_shared(text)
        return
    what = f"'{without_user(text)}' is not the URL of a thread in a database; nothing was deleted"
    raise UsageError(what, _how_to_delete(text))


def _how_to_delete(path: str) -> str:
    """Return how its owner deletes what is no URL; no command that deletes more than a thread."""
    layout = Layout(os.path.realpath(resolve(path)))  # `rm -r` of a link deletes only the link
    if path and os.path.isfile(layout.database):
        from shlex import quote

        own, others = layout.entries()
        if not others:
            return f"delete it with shutil.rmtree, or run: rm -r {quote(layout.directory)}"
        files = " ".join(quote(path) for path in own if path not in (layout.run, layout.logs))
        return (
            f"its directory has other entries ({len(others)}), so delete only what is the thread's,"
            f" and run and logs if nothing else is in them: rm -r {files}"
        )
    if path and os.path.isfile(f"{layout.directory}/{LINK}"):
        return f"its directory names a thread in a database: give the URL in {LINK}"
    return "give postgresql://user@host/database?thread=NAME"


def init_schema(url: str) -> int:
    """Make the tables of eventq in a database of PostgreSQL, or bring them up to date.

    Returns the number of the newest migration. Raises UsageError for what is no URL, ReadOnlyError
    for a role that may not, StoreError and others.
    """
    if not is_url(url):
        what = f"'{without_user(url)}' is no URL of a database"
        raise UsageError(what, "give postgresql://user@host/database")
    return opening.init_schema(url)


def threads(place: Path) -> Iterator[str]:
    """Return an iterator of the threads in a database, or below a folder, sorted."""
    if is_url(_text(place)):
        return iter(opening.shared_threads(_text(place)))
    root = resolve(_text(place))
    if not os.path.isdir(root):
        what = f"there is no folder '{without_user(root)}'"
        raise UsageError(what, "give one, or the URL of a database")
    return _below(root)


def openable(place: str) -> Iterator[str]:
    """Return what `threads` does, as it is opened: the URLs have the password of the place."""
    return iter(opening.shared_threads(place, secret=True)) if is_url(place) else threads(place)


def _below(folder: str) -> Iterator[str]:
    if os.path.exists(Layout(folder).database) or os.path.exists(f"{folder}/{LINK}"):
        yield folder
        return
    try:
        with os.scandir(folder) as found:
            names = sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # gone, or not for us
    for name in names:
        yield from _below(name)


def _refused(directory: str, error: OSError) -> EventqError:
    place = error.filename or directory
    return refused(error, f"'{place}': {error.strerror or error}")


if TYPE_CHECKING:
    from functools import cached_property as _made_once
else:

    class _made_once:  # noqa: N801 (a decorator; importing functools costs a push a millisecond)
        """An attribute that is made at its first use; from then on it costs no call."""

        def __init__(self, make: Callable[[Thread], object]) -> None:
            self._make = make
            self.__doc__ = make.__doc__

        def __get__(self, thread: Thread | None, _: type) -> object:
            if thread is None:
                return self
            return thread.__dict__.setdefault(self._make.__name__, self._make(thread))


class Thread:
    """An open thread, to be used as a context manager.

    It may be shared by the threads of a process, but not used across a fork.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        strict_source: bool | None = None,
        any_mount: bool = False,
        patience: float | None = None,
    ) -> None:
        """Open the thread at `path`; see `eventq.open`.

        `patience` is how many seconds a change of a thread in a directory waits for other writers
        (default: 30).
        """
        self._any_mount = any_mount
        self.layout, shared = _place_of(_text(path))
        self.journal = Journal(self.layout)
        self.is_shared = shared is not None
        try:
            if shared is None:
                self.database = opening.open_database(
                    self.layout.directory, write=not read_only, patience=patience
                )
            else:
                self.database = opening.open_shared(shared.address, write=not read_only)
        except StoreError as error:
            # Without a journal this may not be a thread's directory at all.
            if not read_only and os.path.exists(self.layout.journal):
                self._note_refusal(error)
            raise
        if not read_only:
            self.database.on_refusal = self._note_refusal
        if environment.env("EVENTQ_EVENT_ID") or environment.env("EVENTQ_EVENT_IDS"):
            from eventq.store import causing  # noqa: F401  (writes ask it from now on)
        self.database.on_failure = self._log_and_continue
        self.database.on_outcomes = self._report
        self.log = EventLog(
            self.database, self.journal, self.layout.directory, strict=strict_source
        )
        if not read_only and not self.is_shared:
            self._subscribe()
            self.database.memory.on_first_write = self._begin_to_write
            self.database.memory.refuses_links = not any_mount

    def _subscribe(self) -> None:
        """Let the mirror, the journal and the notifier see each commit."""
        for name, subscriber in (
            ("mirror", self._mirror.committed),
            ("journal", self.journal.committed),
            ("notifier", self.notifier.committed),
        ):
            self.database.subscribe(name, subscriber)

    def _begin_to_write(self) -> None:
        """Look where the thread is, and what only its mirror has."""
        self.check_place()
        self._take_back()

    def check_place(self) -> None:
        """Raise PlatformError on a file system that others may write, unless that is allowed."""
        from eventq.system.mounts import check_local

        try:
            check_local(self.path)
        except PlatformError:
            from eventq.store.rules import ANY_MOUNT

            if self._any_mount:
                self.settings.set(ANY_MOUNT, "true")
            elif self.settings.get(ANY_MOUNT) != "true":
                raise

    def _take_back(self) -> None:
        """Store again what only the mirror has, before the first write takes an id."""
        from eventq.log.mirror_lines import last_of

        try:
            ahead = last_of(self.layout)
        except OSError as error:
            self.journal.warn(f"mirror: events.jsonl could not be compared with the log ({error})")
            return
        if not ahead or ahead <= self.database.events.last():
            return
        from eventq.log.witness import give_back

        try:
            if give_back(self.database, self.layout, self.journal):
                self.notifier.wake_one()
        except OSError as error:  # what is stored now would take the ids of what was lost
            what = f"events.jsonl has events that the log has lost, and cannot be read ({error})"
            raise DiskError(what, "nothing was stored; see to that, then try again") from error

    # The next three are made when they are needed: what only reads starts without them.

    @_made_once
    def _mirror(self) -> Mirror:
        """The writer of `events.jsonl`."""
        from eventq.log.mirror import Mirror

        return Mirror(self.database, self.layout, self.journal)

    @_made_once
    def notifier(self) -> Notifier:
        """The starter of dispatches."""
        from eventq.log.notifier import Notifier, RemoteNotifier

        kind = RemoteNotifier if self.is_shared else Notifier
        return kind(self.database, self.layout, self.journal)

    @_made_once
    def consumers(self) -> Subscriptions:
        """The subscriptions of the thread."""
        from eventq.log.consumers import Subscriptions

        return Subscriptions(self.database, self.journal, self.notifier)

    def _note_refusal(self, error: EventqError) -> None:
        self.journal.error(f"database: {error}")

    def _report(self, outcomes: Sequence[Outcome]) -> None:
        from eventq.log.outcomes import report

        report(self.journal, outcomes)

    def _log_and_continue(self, what: str, error: Exception) -> None:
        """Log a failure after the commit. Raising would make the caller push the event twice."""
        self.journal.warn(f"{what}: {error}; the event is stored")

    @property
    def path(self) -> str:
        """What the thread is known by: its directory, or its URL without a password."""
        return self.layout.thread

    def __repr__(self) -> str:
        """Return the class and the path."""
        return f"<eventq.Thread {self.path}>"

    def __enter__(self) -> Thread:
        """Return the thread."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the thread."""
        self.close()

    def close(self) -> None:
        """Close the thread's files. Using the thread afterwards raises ClosedError."""
        if self.database.forked:
            return  # the files belong to the process that opened them
        self.database.close()
        for part in ("_mirror", "journal", "notifier"):
            if part in self.__dict__:  # made already
                getattr(self, part).close()

    # --- writing ----------------------------------------------------------------------------------

    def write(self) -> AbstractContextManager[object]:
        """Return a context manager that commits everything done inside it, or nothing.

        Nested blocks join the outermost one. The mirror, the journal and the consumers are updated
        only after the outermost commit. Until then, writes of other OS threads wait, and their
        reads see what was committed before.
        """
        self.database.check_writable()
        return self.database.write()

    def push(
        self,
        source: str,
        type: str,
        content: str,
        subtype: str | None = None,
        key: str | None = None,
        *,
        key_strict: bool = False,
    ) -> Event:
        """Store an event durably and return it as stored.

        If `key` was used before, store nothing and return the first event with it; with
        `key_strict`, raise KeyConflictError if that event differs. Raises InputError,
        TooLargeError, BusyError, DiskError.
        """
        return self.log.push(source, type, content, subtype, key, key_strict=key_strict)

    def push_many(self, events: Iterable[EventInput], *, key_strict: bool = False) -> Batch:
        """Store events in one transaction, in bounded memory, and return their count and ids.

        An iterator is read to its end first, so that a slow one keeps nobody else from writing;
        inside `write`, which keeps others waiting anyway, it is read as its events are stored.

        Each is a mapping with `source`, `type`, `content` and optionally `subtype` and `key`, or a
        sequence in that order. If one is refused, none is stored. Events whose key was used before
        are skipped; with `key_strict`, one that differs from the first event with its key raises
        KeyConflictError.
        """
        return self.log.push_many(events, on_conflict=refuse_conflict if key_strict else None)

    # --- reading ----------------------------------------------------------------------------------

    def peek(
        self,
        last_event_id: int = 0,
        *,
        limit: int | None = 100,
        filter: str | None = None,
        cause: int | None = None,
    ) -> Iterator[Event]:
        """Yield the matching events after an id, in order; with `cause` those that it has caused.

        With `limit=None`, all that are stored now. Raises PositionError for an id above the newest
        that ever was.
        """
        check_natural(last_event_id, "last_event_id")
        self.log.check_position(last_event_id)
        if limit is not None:
            check_positive(limit, "limit")
        if cause is None:
            return self.log.peek(last_event_id, limit, filter)
        from eventq.log.selection import Selection, caused

        check_natural(cause, "cause")
        accepted = self.database.events.accept(filter)
        chosen = Selection(accepted, last_event_id, self.last_id())
        pages = caused(self.database.memory, cause, chosen, 1 << 62 if limit is None else limit)
        return (event for page in pages for event in fresh(self.database, page))

    def caused_by(self, event_id: int, *, thread: Path | None = None, limit: int = 100) -> Effects:
        """Return the events and turns here that an event has caused, at most `limit` of each.

        Whoever works on an event causes what it writes meanwhile: its handler, the function of a
        worker, the loop of `consume`, and what says so by `during` or by EVENTQ_EVENT_ID. `thread`
        is the path or URL of the thread that the event is in (default: this one).
        """
        from eventq.records.cause import Effects

        cause = self._cause(event_id, thread)
        check_positive(limit, "limit")
        found = self.database.memory.causes
        events = found.events(cause, 0, self.last_id(), limit + 1)
        turns = found.turns(cause, 0, limit + 1)
        is_all = max(len(events), len(turns)) <= limit
        return Effects(tuple(events[:limit]), tuple(turns[:limit]), is_all)

    def causes_of(self, *, event: int | None = None, turn: int | None = None) -> list[Cause]:
        """Return the events that caused an event or a turn, of a batch the first 100.

        There are none where nobody knows. They may have been pruned, and those in other threads are
        as their writer stated them. Raises UsageError unless one of the two is given.
        """
        from eventq.records.cause import MOST_CAUSES, Cause

        causes = self.database.memory.causes
        if (event is None) == (turn is None):
            raise UsageError("causes are those of an event or of a turn", "give one of the two")
        if event is not None:
            found = causes.of_event(check_natural(event, "event"), MOST_CAUSES)
        else:
            found = causes.of_turn(check_natural(turn or 0, "turn"), MOST_CAUSES)
        return [Cause(one, place or None) for place, one in found]

    def during(self, *events: int) -> During:
        """Return a context manager: what is written in it is caused by these events of this thread.

        It is for who has events in another way than those that `caused_by` names, and holds for
        this OS thread, or this task, and whatever thread is written to. Of more than 100 events,
        the first ones count.
        """
        from eventq.store.causing import During

        return During(self.database.place, [check_positive(one, "event") for one in events])

    def _cause(self, event_id: int, thread: Path | None) -> tuple[str, int]:
        """Return place and id of an event, of this thread or of another one."""
        check_natural(event_id, "event_id")
        if thread is None:
            return "", event_id
        from eventq.store.causing import place_of

        place = place_of(_text(thread))
        if place is None:
            raise UsageError("the thread of the cause is no path and no URL", "give one")
        return ("" if place == place_of(self.database.place) else place), event_id

    def last(self, count: int = 10, *, filter: str | None = None) -> list[Event]:
        """Return the newest `count` matching events, oldest first."""
        check_positive(count, "count")
        return self.log.newest(count, filter)

    def last_id(self) -> int:
        """Return the id of the newest event, or 0 before the first."""
        return self.database.events.last()

    def latest(self, by: str = "source") -> dict[str, Event]:
        """Return the newest event of each source, or with `by="type"` of each type."""
        events = self.database.events.latest(by)
        return {event.source if by == "source" else event.type: event for event in events}

    def follow(
        self, last_event_id: int | None = None, *, filter: str | None = None
    ) -> Iterator[Event]:
        """Yield the matching events after an id, and wait for more, forever.

        None starts with the next event pushed. A push by any process is seen within a millisecond.
        Close the iterator to stop. Raises PositionError for an id above the newest that ever was,
        also later, when the log was replaced by an older one.
        """
        pages = self.follow_pages(last_event_id, filter)
        return (event for page in pages for event in fresh(self.database, page))

    def follow_pages(
        self,
        last_event_id: int | None,
        filter: str | None,
        *,
        tick: Callable[[], object] | None = None,
    ) -> Iterator[list[Event]]:
        """Yield the events of `follow` as pages, and call `tick` at least once a second."""
        after = (
            self.last_id()
            if last_event_id is None
            else check_natural(last_event_id, "last_event_id")
        )
        self.log.check_position(after)
        return self.log.follow(self.database.events.accept(filter), after, tick=tick)

    # --- consumers --------------------------------------------------------------------------------

    def subscribe(
        self,
        consumer: str,
        handler: str | None = None,
        *,
        each: bool = False,
        filter: str | None = None,
        replace: bool = False,
        warn: Callable[[str], object] | None = None,
        **more: Unpack[Terms],
    ) -> Subscription:
        """Subscribe `consumer` and return the subscription.

        `sh -c` runs `handler`, in the current directory, while a matching event waits for the
        consumer; of a thread in PostgreSQL `eventq work` does, in its own. With `each` it runs once
        for each event, which it gets on its standard input; its exit code says what became of it.
        Without a handler nothing runs: the consumer is for `claim`, `consume` and `pop`.
        `from_now=True` skips the events that are stored already, and `more` are other fields of
        `Subscription`, such as `timeout` and `max_attempts`.

        To subscribe again with equal values changes nothing; `replace` changes the values and keeps
        the progress. `warn` gets a sentence about a filter that compares times in two spellings
        (default: a Python warning). Raises ConsumerExistsError, FilterError and InputError.
        """
        from eventq.records.consumer import Subscription

        self.database.check_writable()
        if not isinstance(handler, (str, type(None))) or not isinstance(filter, (str, type(None))):
            raise UsageError(
                "handler and filter must be text",
                "give a shell command, and one SQL condition or none",
            )
        if each and handler is None:
            raise UsageError("there is no handler to run for each event", "give a shell command")
        kind = "pull" if handler is None else "each" if each else "loop"
        if kind != "pull" and not self.is_shared:  # else it is run on another machine
            more.setdefault("directory", os.getcwd())
        rest: dict[str, Any] = {**more}
        from_now = rest.pop("from_now", False)
        new = Subscription(consumer, handler, filter, kind=kind, **rest)
        warn = warn or _warn_of_filter
        self.consumers.subscribe(new, from_now=from_now, replace=replace, warn=warn)
        return new

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription, but keep its progress for a later one.

        Raises UnknownConsumerError.
        """
        self.consumers.unsubscribe(consumer)

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions, oldest first."""
        from eventq.log.consumers import subscription_of

        return [*map(subscription_of, self.consumers.states())]

    def pop(
        self,
        consumer: str,
        last_event_id: int | None = None,
        *,
        limit: int = 100,
        wait: float = 0,
        replay: bool = False,
    ) -> list[Event]:
        """Ack all events up to an id and return the next matching ones, at most `limit`.

        Without an id nothing is acked: the events after the last acked one are returned. If there
        is none, wait up to `wait` seconds. An id below the last acked one raises AlreadyAckedError,
        unless `replay` asks to go back to it, which ends all claims of the consumer. Raises
        UnknownConsumerError, AckError, FilterError, ConsumerInUseError while a claim is out, and
        FencedError in a handler of this consumer if a newer supervisor runs it.
        """
        page = self._pop(consumer, last_event_id, limit, wait, lines=False, replay=replay)
        events: list[Event] = page.events
        return events

    def pop_lines(
        self,
        consumer: str,
        last_event_id: int | None = None,
        *,
        limit: int = 100,
        wait: float = 0,
        replay: bool = False,
    ) -> list[str]:
        """Return the events of `pop` as lines of JSON."""
        page = self._pop(consumer, last_event_id, limit, wait, lines=True, replay=replay)
        lines: list[str] = page.lines
        return lines

    def _pop(
        self,
        consumer: str,
        acked: int | None,
        limit: int,
        wait: float,
        *,
        lines: bool,
        replay: bool,
    ) -> Any:
        if acked is not None:
            check_natural(acked, "last_event_id")
        check_positive(limit, "limit")
        how: Any = {"lines": lines, "replay": replay, "fence": self._fence(consumer)}
        consumers = self.consumers
        if wait <= 0:
            return consumers.pop(consumer, acked, limit, **how)
        deadline = clock.monotonic() + wait
        with self.database.watch() as watcher:
            page = consumers.pop(consumer, acked, limit, **how)
            while not page[0] and (left := deadline - clock.monotonic()) > 0:
                watcher.wait(min(left, SLOW_LOOK))
                page = consumers.read_on(consumer, page.next, limit, **how)
        return page

    def ack(self, consumer: str, last_event_id: int, *, replay: bool = False) -> None:
        """Mark all events up to an id as done.

        A smaller id than before changes nothing, unless `replay` asks to go back to it, which ends
        all claims of the consumer. Raises UnknownConsumerError, AckError for an id beyond the
        newest event, ConsumerInUseError while a claim is out, and FencedError in a handler of this
        consumer if a newer supervisor runs it.
        """
        check_natural(last_event_id, "last_event_id")
        self.consumers.ack(consumer, last_event_id, replay=replay, fence=self._fence(consumer))

    def _fence(self, consumer: str) -> int | None:
        """Return the fence of this process, if it is a handler of this consumer."""
        if not environment.env("EVENTQ_FENCE"):
            return None
        from eventq.log.fences import fence_of

        return fence_of(self.layout.thread, consumer)

    def consume(
        self,
        consumer: str,
        *,
        filter: str | None = None,
        ack_every: int = 1,
        wait: float | None = None,
        idle: float | None = None,
        from_now: bool = False,
    ) -> Iterator[Event]:
        """Yield the events of `consumer` one by one, and wait for more, forever.

        An event is acked when the loop comes back for the next one, or with `ack_every` so many
        together; after a `break` or an exception the current one is not acked, and comes again. A
        consumer that is not subscribed is, with this filter. Only one caller reads as a consumer:
        another one waits up to `wait` seconds (None: forever), then gets ConsumerInUseError. `idle`
        ends the loop when no event has come for so many seconds; 0 takes only what is there. No
        transaction is open between two events. Raises FilterError, ConsumerExistsError for another
        filter than that of the subscription, and LeaseLostError in a process that was stopped until
        another caller had begun.
        """
        reader = self.reader(consumer, filter=filter, ack_every=ack_every, from_now=from_now)
        return reader.events(wait, idle)

    def reader(
        self,
        consumer: str,
        *,
        filter: str | None = None,
        ack_every: int = 1,
        from_now: bool = False,
        tick: Callable[[], object] | None = None,
    ) -> Reader:
        """Return what `consume` reads with; it calls `tick` at least once a second as it waits."""
        from eventq.log.reader import Reader

        check_positive(ack_every, "ack_every")
        self.database.check_writable()
        known = self.consumers.state(consumer)
        if known is None or (filter is not None and filter != known.filter):
            self.subscribe(consumer, filter=filter, from_now=from_now)
        return Reader(self.database, self.consumers, consumer, ack_every, tick)

    def pause(self, consumer: str) -> None:
        """Start no handler of a consumer, and lease none of its events, until `resume`.

        What runs may finish; `pop` and `ack` work as ever. Raises UnknownConsumerError.
        """
        self.database.check_writable()
        self.consumers.pause(consumer)

    def resume(self, consumer: str) -> None:
        """End the pause, stall or back-off of a consumer, so that its handler runs again.

        Raises UnknownConsumerError.
        """
        self.database.check_writable()
        self.consumers.resume(consumer)

    def dispatch(self) -> None:
        """Start a detached dispatch, which runs the handlers of all consumers that are due."""
        self.database.check_writable()
        self.database.check_open()
        self.notifier.start()

    # --- questions --------------------------------------------------------------------------------

    @_made_once
    def _questions(self) -> Questions:
        """The questions of the thread."""
        from eventq.log.questions import Questions

        return Questions(self.database, self.log)

    def ask(  # noqa: PLR0913 (each is a part of a question)
        self,
        text: str,
        options: Sequence[str] = (),
        *,
        approval: bool = False,
        by_person: bool = False,
        source: str = "self",
        key: str | None = None,
        context: str | None = None,
        run: int | None = None,
        wait: float | None = 0,
    ) -> Question:
        """Ask a person or a program something, and wait up to `wait` seconds for the answer.

        None waits forever; without an answer the question stays open, and `question` looks again.
        With `options`, these are proposed; an `approval` takes nothing but one of them (default:
        approve, deny); one that is `by_person` is answered at a page or a terminal, or with a token
        that has the right `answer`, and in no other way. `context`, a name or an id, and `run` say
        where it is asked, for whoever answers. The same `key` again asks nothing new: it returns
        the question that was asked first. Raises InputError, KeyConflictError.
        """
        asked = self._questions.ask(
            text, options, source, key, approval=approval, by_person=by_person, context=context,
            run=run,
        )  # fmt: skip
        return self._questions.wait(asked.question_id, wait)

    def question(self, question_id: int, *, wait: float | None = 0) -> Question:
        """Return a question, once it is answered or after `wait` seconds (None: forever).

        Raises UnknownQuestionError.
        """
        return self._questions.wait(question_id, wait)

    def questions(self) -> list[Question]:
        """Return the questions that nobody has answered, the oldest 1,000."""
        return self._questions.open()

    def answer(
        self, question_id: int, text: str, *, source: str = "self", note: str | None = None
    ) -> Question:
        """Answer a question and return it; the same answer again changes nothing.

        `note` is said beside the answer, which whoever asked gets as it is without one. `source` is
        the sender of the event; `answered_by` is the user of this process. Raises
        UnknownQuestionError, AnsweredError for another answer, InputError for an approval that does
        not have this option, and LogicError for one that is for a person to answer.
        """
        return self._questions.answer(question_id, text, source, note)

    # --- claims -----------------------------------------------------------------------------------

    @_made_once
    def _claims(self) -> Claims:
        """The claims of consumers."""
        from eventq.log.claims import Claims

        return Claims(self.database, self.journal)

    def claim(
        self,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float | None = 0,
        nonce: str | None = None,
        *,
        worker: str | None = None,
    ) -> list[Claim]:
        """Lease the next events of `consumer` to this worker, at most `limit`, and return them.

        Each is this worker's alone for `lease` seconds (None: as long as the subscription says,
        which is 30 unless it was told otherwise); what is neither settled nor extended by then goes
        to another one. If there is none, wait up to `wait` seconds (None: forever). A
        claim repeated with its `nonce` returns the same claims. `worker` is the name shown by
        `claims ls` (default: host and process). Raises UnknownConsumerError, FilterError.
        """
        return self._claims.claim(consumer, limit, lease, wait, nonce, worker)

    def settle(
        self,
        done: Iterable[Claim | str] = (),
        *,
        retry: Iterable[Claim | str] = (),
        dead: Iterable[Claim | str] = (),
        delay: float | None = None,
        error: str | None = None,
        count: bool = True,
    ) -> list[Claim | str]:
        """Settle many claims, or their tokens, as one change; return those that were lost.

        Those of `done` are finished, those of `retry` tried again after `delay` seconds (None: the
        back-off), and those of `dead` given up; `error` says why. With `count`, a retry follows a
        failed attempt.
        """
        return self._claims.settle(done, retry, dead, delay=delay, error=error, count=count)

    def extend(
        self, claims: Iterable[Claim | str], seconds: float | None = None
    ) -> list[Claim | str]:
        """Let the leases of many claims end `seconds` from now; return those that were lost.

        None is as long as each was before.
        """
        return self._claims.extend(claims, seconds)

    def claims(self, consumer: str | None = None) -> Iterator[ClaimInfo]:
        """Return an iterator of the claims that are out, of one consumer or all."""
        return self._claims.out(consumer)

    # --- dead letters -----------------------------------------------------------------------------

    @_made_once
    def _dead(self) -> DeadLetters:
        """The dead letters of consumers."""
        from eventq.log.dead_letters import DeadLetters

        return DeadLetters(self.database, self.consumers, self.journal)

    def dead_letters(
        self, consumer: str | None = None, events: Iterable[int] | None = None
    ) -> Iterator[DeadLetter]:
        """Return an iterator of the events that failed for good, perhaps only some.

        Without a consumer, those of all.
        """
        return self._dead.find(consumer, events)

    def retry_dead(
        self,
        events: Iterable[int] | None,
        consumer: str | None = None,
        *,
        died_by_ms: int | None = None,
    ) -> int:
        """Let dead letters be tried again at once, with new attempts; return how many.

        `events` are their ids, or None for all, perhaps only those that `died_by_ms`, in ms since
        1970. A retried event is outside the order of its consumer, whose progress does not go
        back. Raises UnknownDeadLetterError for an id that is none, and LogicError for an event that
        was deleted; then nothing is changed.
        """
        self.database.check_writable()
        return self._dead.retry(consumer, events, died_by_ms)

    def drop_dead(
        self,
        events: Iterable[int] | None,
        consumer: str | None = None,
        *,
        died_by_ms: int | None = None,
    ) -> int:
        """Forget dead letters, but not their events; return how many.

        `events` are their ids, or None for all, perhaps only those that `died_by_ms`. Raises
        UnknownDeadLetterError.
        """
        self.database.check_writable()
        return self._dead.drop(consumer, events, died_by_ms)

    # --- memory -----------------------------------------------------------------------------------

    @_made_once
    def blobs(self) -> Blobs:
        """Bytes stored by their hash.

        Methods: `put`, `get`, `stream`, `stat`, `has`, `verify`, `refs`, `pin`.
        """
        from eventq.memory.blobs import Blobs

        return Blobs(self.database.memory)

    @_made_once
    def contexts(self) -> Contexts:
        """Conversations: contexts, which are branches of turns.

        Methods: `create`, `get`, `fork`, `list`, `turn`, `delete`.
        """
        from eventq.memory.contexts import Contexts
        from eventq.memory.turns import Turns

        return Contexts(Turns(self.database.memory, self.blobs, self.log.check_source))

    @_made_once
    def runs(self) -> Runs:
        """Workflow runs: `start`, `get`, `active`, `history`, `list`, `watch`, `delete`."""
        from eventq.memory.runs import Runs

        return Runs(self.contexts)

    @_made_once
    def erasures(self) -> Erasures:
        """What was erased: `event`, `turn`, `artifact`, `blob`, and iteration."""
        from eventq.erasure.erasures import Erasures

        return Erasures(
            self.database.memory,
            lambda: self.contexts.turns,
            self.layout,
            self.journal,
            lambda: None if self.is_shared else self._mirror,
        )

    @_made_once
    def settings(self) -> Settings:
        """The settings of the thread: `get`, `set`, and iteration."""
        from eventq.memory.settings import Settings

        return Settings(self.database.memory, self.log.check_source)

    def gc(self, *, apply: bool = False, grace: float = 3600) -> Collected:
        """Find unreachable turns and blobs; with `apply`, delete them and free their space.

        Turns are reachable from heads, from keys of the last 24 hours, and from what was appended
        or moved within the last `grace` seconds. Blobs are reachable from turns, patches, roots,
        events, pins and other blobs, and for `grace` seconds after a put. Raises DamagedError, and
        deletes nothing, if `check` finds a fault.
        """
        from eventq.memory.collection import collect

        self.produced  # noqa: B018 (it refuses a thread without tables of artifacts)
        found = at_a_moment(
            lambda: collect(
                self.database.memory, self.blobs, self._damage, apply=apply, grace=grace
            )
        )
        if apply:
            self.journal.info(f"gc: turns={found.turns} blobs={found.blobs} bytes={found.stored}")
        return found

    def reachable(self, roots: Iterable[str | bytes]) -> list[str]:
        """Return the refs of all blobs that some roots keep, sorted, as `gc` would mark them.

        A root is a blob (its ref, its hash), which keeps what it refers to and so on, or a turn
        (`turn:ID`), which keeps the payloads, patches, file trees and attempts of itself and of its
        ancestors. Blobs that are roots are included. Nothing is written. Raises UnknownBlobError,
        UnknownTurnError, InputError.
        """
        from eventq.memory.collection import parsed, reachable

        named = parsed(roots)
        return at_a_moment(lambda: reachable(self.database.memory, *named))

    # --- outputs ----------------------------------------------------------------------------------

    @_made_once
    def produced(self) -> OutputStore:
        """Blobs, artifacts and outputs together: all that URLs can name."""
        from eventq.output.output_store import OutputStore

        return OutputStore(self.database.memory, self.blobs)

    def scope(self, context: int | str | None) -> OutputStore:
        """Return the `artifacts` and `outputs` of a context: those of its session.

        They are numbered from 0 in a root context and its forks, and stay when these are deleted:
        then the name of the session still leads to them. Those of None are the thread's, which
        contexts from packs without scopes share. Raises UnknownContextError.
        """
        if context is None:
            return self.produced
        try:
            return self.produced.of_context(self.contexts.get(context).id)
        except UnknownContextError:
            return self.produced.of_session(str(context))

    @property
    def artifacts(self) -> Artifacts:
        """Numbered outputs of tools, and folders of them; see `scope` for those of a session.

        Methods: `allocate`, `put`, `get`, `open`, `list`, `remove`.
        """
        return self.produced.artifacts

    @property
    def outputs(self) -> Outputs:
        """Named, versioned outputs of agents, and folders of them.

        Methods: `allocate`, `publish`, `put`, `get`, `read`, `list`.
        """
        return self.produced.outputs

    @property
    def sessions(self) -> Sessions:
        """Session files of coding agents: `import_file`, `lines`, `fork`, `views` and more."""
        from eventq.sessions.files import Sessions

        return Sessions(self.contexts, self.produced, self.layout.directory)

    def usage(
        self,
        *,
        context: int | str | None = None,
        run: int | str | None = None,
        since: int = 0,
        until: int | None = None,
    ) -> UsageSum:
        """Return the tokens that models took: in a context, in a run, or in the whole thread.

        Each response counts once, in the session, context or run that it was written to first: what
        a fork shares with its source counts there. A branch of a session has the sum of all of the
        session, and that of its subagents beside it. `since` and `until` are the times of responses
        in milliseconds since 1970. What an older version has stored is counted first, some of it in
        each call that may write at once; until then `is_all` is False. Raises UnknownContextError,
        UnknownRunError.
        """
        from eventq.sessions import sums

        database, times = self.database.memory, _between(since, until)
        if context is not None and run is not None:
            raise UsageError("tokens are those of a context or of a run", "give one of the two")
        if run is not None:
            found = self.runs.get(run).id
        elif context is not None:
            found = self.contexts.get(context).id
        else:
            return sums.of_thread(database, self.blobs, *times)
        return sums.of_context(database, self.blobs, found, *times)

    def usage_of_runs(self, runs: Sequence[int]) -> dict[int, UsageSum]:
        """Return the tokens that models took in each of some runs, by id."""
        from eventq.sessions import sums

        return sums.of_runs(self.database.memory, self.blobs, [*runs])

    def usage_of_sessions(self, names: Sequence[str]) -> dict[str, UsageSum]:
        """Return the tokens that models took in each of some sessions, by its name."""
        from eventq.sessions import sums

        return sums.of_sessions(self.database.memory, self.blobs, [*names])

    def usage_by_hour(self, since: int, until: int | None = None) -> list[HourUsage]:
        """Return the tokens that models took in each hour (UTC) that has any, oldest first.

        The times are those of `usage`.
        """
        from eventq.sessions import sums

        return sums.by_hour(self.database.memory, *_between(since, until))

    def read(
        self,
        url: str,
        offset: int | None = None,
        limit: int | None = None,
        *,
        context: int | str | None = None,
    ) -> Content:
        """Read `artifact://ID`, `agent://ID` or `blob:blake3:HASH`, from line `offset` on.

        `limit` is a number of lines. `agent://ID/path` and `agent://ID?q=.path` read a part of its
        JSON. Numbers and names are those of the thread, or of the `context` that the URL is cited
        in; `?session=NAME` names a session wherever it is read. Raises UsageError for an invalid
        URL, LogicError if there is nothing at it, UnknownContextError.
        """
        from eventq.output import urls

        return urls.read(url, self.scope(context), offset, limit)

    def open_url(
        self,
        url: str,
        offset: int | None = None,
        limit: int | None = None,
        *,
        context: int | str | None = None,
    ) -> Resource:
        """Open what `read` returns as an iterator of pieces, in bounded memory."""
        from eventq.output import urls

        return urls.open_url(url, self.scope(context), offset, limit)

    def capture(
        self,
        argv: Sequence[str],
        *,
        tool: str | None = None,
        show: Callable[[bytes], object] | None = None,
        context: int | str | None = None,
        **options: Any,
    ) -> tuple[int, Captured]:
        """Run a command; return its exit code (128 + n for signal n) and a view of its output.

        If the view is not the whole output, that is stored as an artifact of `tool` (default: the
        command's name), numbered in the session of a `context`. `show` gets the final part of the
        view as it grows. `options` are those of `OutputSink`. Raises LogicError if the command
        cannot be started.
        """
        from eventq.output.capture import capture

        self.database.check_writable()
        artifacts = self.scope(context).artifacts
        return capture(artifacts, argv, tool=tool, show=show, **options)

    def externalize(self, entry: Any, *, full: bool = False) -> Any:
        """Return a copy of a session entry with its images stored as blobs and long texts cut.

        With `full`, texts are stored as blobs too, so that `rehydrate` returns an equal entry. What
        is stored with the entry as text, such as its JSON as a turn, keeps its blobs.
        """
        from eventq.output import entries

        with self.database.write():
            return entries.externalize(entry, lambda data: self.produced.put(data).ref, full=full)

    def refs(self, entry: Any) -> list[str]:
        """Return the refs of the blobs that an entry names, sorted, whether they are stored or not.

        Give them to a `NewTurn` whose payload does not have them as text: a compressed one.
        """
        from eventq.output import entries

        return entries.refs(entry)

    def rehydrate(self, entry: Any, *, warn: Callable[[str], object] | None = None) -> Any:
        """Return an externalized session entry with its blobs put back.

        A ref that is malformed or whose blob is missing stays as it is. `warn` gets a sentence
        about each of them (default: a Python warning).
        """
        from eventq.output import entries

        return entries.rehydrate(entry, self.produced.get, warn or _warn)

    # --- other threads and programs ---------------------------------------------------------------

    def export_pack(self, folder: Path) -> None:
        """Export all blobs, turns, heads and artifacts to a folder that holds no pack yet."""
        from eventq.sessions.counting import uncounted
        from eventq.transfer.packs import check_outside, export_pack

        check_outside(_text(folder), self.layout.directory)
        at_a_moment(lambda: export_pack(self.database.memory, _text(folder), uncounted))

    def import_pack(self, folder: Path) -> Imported:
        """Import what a pack holds and this thread lacks; return what was added and dropped.

        Ids are kept where they are free. Turns that exist already are reused, so importing twice
        adds nothing. `folder` may also be the data directory of a CXDB server (`blobs/`, `turns/`,
        `fs/`).
        """
        from eventq.transfer.packs import import_pack

        self.database.check_writable()
        return import_pack(self.contexts, self.produced, _text(folder))

    def copy_to(
        self, other: Thread, contexts: Iterable[int | str] | None = None, *, log: bool = False
    ) -> Imported:
        """Copy turns, blobs, artifacts and outputs to another thread.

        With `contexts`, copy only those contexts and what they refer to. Every byte is verified.
        What the other thread has already is reused, so copying twice adds nothing. Raises
        ConflictError, and copies nothing, if an artifact or output there has the same id but
        differs.

        With `log`, copy the events, the consumers and their progress as well, and start no handler.
        Raises ConflictError, and copies nothing, unless the log there is empty or the beginning of
        this one.
        """
        from collections import Counter

        from eventq.sessions.counting import uncounted
        from eventq.transfer.packs import copy
        from eventq.transfer.sources import ThreadSource

        other.database.check_writable()
        if isinstance(contexts, str):
            raise UsageError("contexts must be a list", f"give a list, such as [{contexts!r}]")
        if other.database.identity == self.database.identity:
            raise UsageError(
                "the source and the destination are the same thread",
                "give two different threads",
            )
        if log and contexts is not None:
            raise UsageError(
                "some contexts cannot be copied with the log, which is about all of them",
                "leave one of the two out",
            )

        def choose(moment: Engine) -> ThreadSource:
            return ThreadSource(moment, uncounted, chosen)

        new, chosen = Counter[str](), None if contexts is None else [*contexts]
        to, source, shared = (other.contexts, other.produced), self.database.memory, other.is_shared
        found = at_a_moment(lambda: copy(*to, source, choose, new, log=log, shared=shared))
        if log and not shared:
            other.database.on_commit(other._mirror.settle)
        return found

    # --- maintenance ------------------------------------------------------------------------------

    def status(self) -> ThreadStatus:
        """Return what the thread holds and what goes on in it, of one moment, in milliseconds.

        Inside `write`, what its transaction sees.
        """
        db = self.database
        if db.in_write():
            return self._status(db, db.memory if db.has_memory() else None)
        return at_a_moment(self._status_now)

    def _status_now(self) -> ThreadStatus:
        db = self.database
        if db.has_memory():
            with db.memory.read() as moment:
                return self._status(moment, moment)
        with db.read() as log:
            return self._status(log, None)

    def _status(self, log: Log, memory: Engine | None) -> ThreadStatus:
        """Return the status of a log, and of a memory if there is one."""
        from eventq.log.status import consumers, size_of
        from eventq.records.info import ThreadStatus

        bounds, sizes, asked = (
            log.events.bounds(),
            self.database.stats(),
            log.events.question_count(),
        )
        seen = None if memory is None else memory.overview(_LISTED)
        return ThreadStatus(
            path=self.layout.thread,
            event_count=bounds.stored,
            last_id=bounds.last,
            last_at=log.events.times([bounds.last]).get(bounds.last),
            db_bytes=sizes.database,
            wal_bytes=sizes.wal,
            mirror_bytes=size_of(self.layout.mirror),
            consumers=consumers(self.database, log, self.layout, self.consumers),
            questions=_questions_of(log) if asked else (),
            question_count=asked,
            contexts=_contexts_of(seen) if seen and seen.contexts else (),
            context_count=seen.context_count if seen else 0,
            runs=seen.runs if seen else {},
            artifacts=_artifacts_of(seen) if seen and seen.artifacts else (),
        )

    def sql(
        self, text: str = "", values: Values = (), *, limit: int | None = None, timeout: float = 30
    ) -> Rows:
        """Run one SELECT on the tables and views of the thread; return its rows as dictionaries.

        `values` are bound to `?` in order, or to names such as `:id` from a mapping. Without a
        statement, list the tables and views with their columns. `payload(hash)` is what a blob
        holds: text, or bytes that are not UTF-8. The statement sees what was committed when it
        began, also inside `write`. With a `limit`, at most so many rows are returned, and `more`
        of the result says whether there are others.

        Raises UsageError for what SQLite refuses or what would do more than read, InputError for
        values, LogicError after `timeout` seconds, TooLargeError for a result above 256 MiB without
        a limit, and UnsupportedError for a thread in PostgreSQL.
        """
        if not isinstance(text, str) or isinstance(values, (str, bytes)):
            raise UsageError("a statement is text, and its values are several", _SQL_CALL)
        if limit is not None:
            check_positive(limit, "limit")
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            raise UsageError(f"timeout must be seconds, not {timeout!r}", "give more than 0")
        self.database.check_open()
        return at_a_moment(lambda: self._sql_now(text, values, limit, timeout))

    def _sql_now(self, text: str, values: Values, limit: int | None, timeout: float) -> Rows:
        from eventq.memory.payloads import payload_of

        with self.database.memory.read() as moment:
            return moment.query(text, values, limit, timeout, payload_of(moment))

    def warnings(self) -> list[str]:
        """Return one sentence for each thing that somebody should look at, and that is no fault.

        A consumer that is stalled or paused or that nobody serves, what was taken back from the
        mirror within a week, and up to 20 texts of turns, runs and outputs that name a blob which
        is not stored. All texts are read.
        """
        from eventq.log import status, witness

        found = [*status.warnings(self.database, self.layout, self.consumers)]
        if not self.is_shared:
            found += witness.warnings(self.database, self.layout)
        if self.database.has_memory():
            from itertools import islice

            from eventq.memory.nodes import START_TYPE, STATE_TYPE

            found += islice(self.blobs.dangling((START_TYPE, STATE_TYPE)), _NAMED)
        return found

    def check(self) -> list[str]:
        """Check all invariants; return one sentence per broken one, [] for a sound thread."""
        faults = self._faults(None if self.is_shared else self._mirror)
        return [*faults, *self.erasures.faults()]

    def _damage(self) -> list[str]:
        """Return the faults that keep a collection from being made: an erasure under way is none.

        Until it is finished the mirror may differ from the log.
        """
        faults = self._faults(None if self.is_shared else self._mirror)
        return self._faults(None) if faults and any(self.erasures.faults()) else faults

    def _faults(self, mirror: Mirror | None) -> list[str]:
        from eventq.log import status

        faults = [*status.check(self.database, self.layout, mirror, self.consumers)]
        if self.database.has_memory():
            from eventq.memory.faults import faults as memory_faults

            faults += [*memory_faults(self.runs), *self.produced.faults()]
        return faults

    def prune(
        self, *, keep_last: int | None = None, before_id: int | None = None, force: bool = False
    ) -> int:
        """Delete old events that every consumer has acked, and return how many.

        With `force`, delete them even if not acked. Nothing of them is left in the thread's files:
        their lines are removed from the mirror, and the database is written anew, for which it
        needs the space of what remains; writers wait meanwhile. Ids are never reused.
        """
        self.database.check_writable()
        if self.is_shared:
            return self.log.prune(keep_last, before_id, force=force)[0]
        return self.erasures.prune(lambda: self.log.prune(keep_last, before_id, force=force))

    def prunable(
        self, *, keep_last: int | None = None, before_id: int | None = None, force: bool = False
    ) -> range:
        """Return the ids that `prune` would delete now; raise what it would raise."""
        return self.log.prunable(keep_last, before_id, force=force)

    def recover(self, file: Path) -> Batch:
        """Push the events again that the lines of a file say, each once; return what was stored.

        For lines of `events.jsonl` that were moved to the folder `lost`, as they did not agree with
        the log. They get new ids and times. Raises InputError for a line that is no event.
        """
        from eventq.log.witness import events_of

        return self.push_many(events_of(_text(file)))

    def rebuild_mirror(self) -> int:
        """Rewrite `events.jsonl` from the database, delete the rotated files, return the lines."""
        self.database.check_writable()
        self.database.check_open()
        if self.is_shared:
            raise LogicError(
                "a shared thread has no mirror of its own",
                "read it with 'eventq peek' or 'eventq tail'",
            )
        try:
            self._take_back()
            return self._mirror.rebuild()
        except OSError as error:
            raise _refused(self.path, error) from error


def _place_of(text: str) -> tuple[Layout, SharedLayout | None]:
    """Return the files of a thread; twice, if it is in a database that others share."""
    if not is_shared(text):
        return Layout(resolve(text)), None
    from eventq.store.shared_paths import SharedLayout, url_of

    shared = SharedLayout(url_of(text) or text, None if is_url(text) else resolve(text))
    return shared, shared


# What most threads have none of is imported for those that have.


def _questions_of(log: Log) -> tuple[Question, ...]:
    from eventq.log.questions import listed

    return tuple(listed(log))


def _contexts_of(seen: Overview) -> tuple[ContextInfo, ...]:
    from eventq.records.turn import ContextInfo

    return tuple(map(ContextInfo._make, seen.contexts))


def _artifacts_of(seen: Overview) -> tuple[ArtifactInfo, ...]:
    from eventq.output.artifacts import being_written

    return tuple(being_written(seen.artifacts))


def _warn(what: str) -> None:
    import warnings

    warnings.warn(what, stacklevel=2)


def _warn_of_filter(what: str) -> None:
    import warnings

    warnings.warn(what, stacklevel=4)  # the line that calls Thread.subscribe


def _text(path: Path) -> str:
    """Return a path as a string."""
    try:
        text: object = os.fspath(path)
    except TypeError:
        text = path
    if not isinstance(text, str):
        raise UsageError(
            f"the path must be text, not {type(text).__name__}",
            "give it as a string or a pathlib.Path",
        )
    return text


def _between(since: int, until: int | None) -> tuple[int, int]:
    """Return two times, the second after all that there are by default."""
    last = (1 << 63) - 1 if until is None else check_natural(until, "until")
    return check_natural(since, "since"), last
