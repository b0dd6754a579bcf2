"""The front door: a path becomes a `Thread`, and everything that can be done with it is one of its methods."""

from __future__ import annotations

import os

from eventq import system
from eventq.errors import (
    DiskError,
    EventqError,
    NotAThreadError,
    StoreError,
    ThreadExistsError,
    UsageError,
)
from eventq.event import Batch, Event, check_natural, check_positive
from eventq.locks import FolderLock
from eventq.log.events import EventLog, refuse_conflict
from eventq.log.notifier import Notifier
from eventq.log.subscriptions import Subscriptions
from eventq.storage.sqlite.database import Database
from eventq.workspace.journal import Journal
from eventq.workspace.layout import Layout, resolve
from eventq.workspace.mirror import Mirror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from eventq.blobs import Blobs
    from eventq.dag.contexts import Contexts
    from eventq.dag.runs import Runs
    from eventq.log.events import Given
    from eventq.output.agents import Outputs
    from eventq.output.artifacts import Artifacts
    from eventq.output.store import OutputStore
    from eventq.output.urls import Resource
    from eventq.records import Captured, Collected, Content, Imported, Subscription, ThreadInfo
    from eventq.storage.sqlite.database import Write
    from eventq.transfer.sessions import Sessions

Path = str | os.PathLike[str]


def open_thread(
    path: Path, *, create: bool = False, read_only: bool = False, strict_source: bool | None = None
) -> Thread:
    """Give the thread at `path`; with `create` it is made when there is none.

    `read_only` never creates or changes a file. `strict_source` refuses sources that are not addresses; None asks the
    environment. Raises NotAThreadError, DamagedError, ReadOnlyError.
    """
    if create and not exists(path):
        try:
            init(path)
        except ThreadExistsError:
            pass  # somebody was quicker
    return Thread(path, read_only=read_only, strict_source=strict_source)


def exists(path: Path) -> bool:
    """Say whether there is a thread at `path`."""
    return os.path.exists(Layout(resolve(_text(path))).database)


def init(path: Path, *, shared: bool = False) -> str:
    """Make a thread at `path`, for its owner only unless `shared`, and give its absolute path.

    Raises ThreadExistsError when there is one, and InputError for a path that is too long. What an `init` that crashed
    left behind is finished.
    """
    if not _text(path):
        raise UsageError("the path is empty", "give the directory of the new thread")
    layout = Layout(resolve(_text(path)))
    if exists(path) and os.path.isfile(layout.database) and os.path.getsize(layout.database):
        raise ThreadExistsError(layout.directory)
    if os.path.isdir(layout.database):
        raise ThreadExistsError(layout.directory)
    from eventq.storage.sqlite.creation import check_path

    check_path(layout.directory)
    try:
        _make(layout, shared=shared)
    except OSError as error:
        raise _refused(layout.directory, error) from error
    return layout.directory


def _make(layout: Layout, *, shared: bool) -> None:
    from eventq.storage.sqlite.creation import create

    folder, file = (0o777, 0o666) if shared else (0o700, 0o600)
    os.makedirs(os.path.dirname(layout.directory), exist_ok=True)
    try:
        os.mkdir(layout.directory, folder)
    except FileExistsError:
        pass  # it was there, or somebody else is making it; a file in its place is refused with the next step
    lock = FolderLock(layout.directory)
    try:
        with lock:
            for path in (layout.run, layout.logs, layout.handlers):
                if not os.path.isdir(path):
                    os.mkdir(path, folder)
            os.close(os.open(layout.mirror, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, file))
            if not create(layout.directory, layout.database, file):
                raise ThreadExistsError(layout.directory)
            for path in (layout.directory, os.path.dirname(layout.directory)):
                system.sync_folder(
                    path
                )  # or a power cut could take the whole thread, and what was pushed into it
    finally:
        lock.close()


def destroy(path: Path) -> None:
    """Delete the thread at `path`, with everything in its directory."""
    import shutil

    layout = Layout(resolve(_text(path)))
    if not exists(path):
        raise NotAThreadError(layout.directory)
    try:
        os.unlink(
            layout.database
        )  # first, so that whoever has it open sees at once that it is gone
        shutil.rmtree(os.path.realpath(layout.directory))
        if os.path.islink(layout.directory):
            os.unlink(layout.directory)
    except FileNotFoundError:
        pass  # somebody else deletes it too
    except OSError as error:
        raise _refused(layout.directory, error) from error


def _refused(directory: str, error: OSError) -> EventqError:
    return DiskError(
        f"'{directory}': {error.strerror or error}", "check the path, its permissions and the disk"
    )


class Thread:
    """One thread, open; a context manager, safe to share between the threads of a process, not across a fork."""

    def __init__(
        self, path: Path, *, read_only: bool = False, strict_source: bool | None = None
    ) -> None:
        """Open the thread at `path`; see `eventq.open`."""
        self.layout = Layout(resolve(_text(path)))
        self.journal = Journal(self.layout)
        try:
            self.database = Database(self.layout.directory, write=not read_only)
        except StoreError as error:
            if not read_only and os.path.exists(
                self.layout.journal
            ):  # or it may be somebody else's directory
                self._note_refusal(error)
            raise
        if not read_only:
            self.database.on_refusal = self._note_refusal
        self.database.on_failure = self._log_and_continue
        self._mirror = Mirror(self.database, self.layout, self.journal)
        self.notifier = Notifier(self.database, self.layout, self.journal)
        for name, subscriber in (
            ("mirror", self._mirror.committed),
            ("journal", self.journal.committed),
            ("notifier", self.notifier.committed),
        ):
            self.database.subscribe(name, subscriber)
        self.log = EventLog(self.database, self.layout, self.journal, strict=strict_source)
        self.consumers = Subscriptions(self.database, self.journal, self.notifier)
        self._blobs: Blobs | None = None
        self._contexts: Contexts | None = None
        self._runs: Runs | None = None
        self._produced: OutputStore | None = None

    def _note_refusal(self, error: EventqError) -> None:
        self.journal.error(f"database: {error}")

    def _log_and_continue(self, what: str, error: Exception) -> None:
        """Log a failure that happened after the commit. Raising would make the caller push twice."""
        self.journal.warn(f"{what}: {error}; the event is stored")

    @property
    def path(self) -> str:
        """The absolute path of the directory: the thread's id."""
        return self.layout.directory

    def __repr__(self) -> str:
        """Name the thread."""
        return f"<eventq.Thread {self.path}>"

    def __enter__(self) -> Thread:
        """Give the thread."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the thread."""
        self.close()

    def close(self) -> None:
        """Close the files; closing twice is fine, using the thread afterwards raises ClosedError."""
        if self.database.forked:
            return  # they are the opener's
        self.database.close()
        self._mirror.close()
        self.journal.close()
        self.notifier.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self) -> Write:
        """Give a context manager that makes everything inside it one change: all of it is committed, or nothing.

        It joins an outer one. The mirror, the journal and the consumers learn of it only after the outermost commit.
        Calls from other threads wait until it ends. A filter that is used inside sees what was committed before.
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
        """Store an event, durably, and return it as stored.

        With a `key` that was used before, return the first event and store nothing; `key_strict` raises
        KeyConflictError when that one differs. Raises InputError, TooLargeError, BusyError, DiskError.
        """
        return self.log.push(source, type, content, subtype, key, key_strict=key_strict)

    def push_many(self, events: Iterable[Given], *, key_strict: bool = False) -> Batch:
        """Store events in one transaction, in bounded memory, and return how many and which ids.

        Each is a mapping with `source`, `type`, `content` and perhaps `subtype` and `key`, or a sequence in that
        order. One that is refused refuses all. Events whose key was used before are left out; with `key_strict` one
        that differs from the first event of its key raises KeyConflictError.
        """
        return self.log.push_many(events, kept=refuse_conflict if key_strict else None)

    # --- reading --------------------------------------------------------------------------------------------------

    def peek(
        self, last_event_id: int = 0, *, limit: int | None = 100, filter: str | None = None
    ) -> Iterator[Event]:
        """Give the events after an id that match, in order, lazily; `limit=None` gives all there are now."""
        check_natural(last_event_id, "last_event_id")
        if limit is not None:
            check_positive(limit, "limit")
        return self.log.peek(last_event_id, limit, filter)

    def last(self, count: int = 10, *, filter: str | None = None) -> list[Event]:
        """Give the newest `count` events that match, oldest first."""
        check_positive(count, "count")
        return self.log.newest(count, filter)

    def last_id(self) -> int:
        """Give the id of the newest event, 0 before the first."""
        return self.database.events.last()

    def latest(self, by: str = "source") -> dict[str, Event]:
        """Give the newest event of each source (or `by="type"`, of each type)."""
        events = self.database.events.latest(by)
        return {event.source if by == "source" else event.type: event for event in events}

    def follow(
        self, last_event_id: int | None = None, *, filter: str | None = None
    ) -> Iterator[Event]:
        """Give the events after an id that match, and wait for more, for ever.

        None begins with what is pushed from now on. Wakes within a millisecond of a push by any process. Close the
        iterator to stop.
        """
        return (event for page in self.follow_pages(last_event_id, filter) for event in page)

    def follow_pages(
        self,
        last_event_id: int | None,
        filter: str | None,
        *,
        tick: Callable[[], object] | None = None,
    ) -> Iterator[list[Event]]:
        """Return what `follow` returns, page by page; `tick` is called at least once a second."""
        after = (
            self.last_id()
            if last_event_id is None
            else check_natural(last_event_id, "last_event_id")
        )
        return self.log.follow(self.database.events.accept(filter), after, tick=tick)

    # --- consumers ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        consumer: str,
        handler: str,
        *,
        filter: str | None = None,
        from_now: bool = False,
        max_attempts: int = 5,
        timeout: float | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> Subscription:
        """Have `handler` run by `sh -c` whenever an event that matches waits for `consumer`; give the subscription.

        `from_now` skips what is stored already. A handler is ended after `timeout` seconds, and started no more after
        `max_attempts` runs without progress. `warn` gets a sentence about a filter that compares times in
        two spellings; without it, that is a Python warning. Raises ConsumerExistsError, FilterError,
        InputError.
        """
        from eventq.records import Subscription

        self.database.check_writable()
        if not isinstance(handler, str) or not isinstance(filter, (str, type(None))):
            raise UsageError(
                "handler and filter must be text",
                "give a shell command, and one SQL condition or none",
            )
        check_positive(max_attempts, "max_attempts")
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, (int, float))
        ):
            raise UsageError(
                f"timeout must be a number of seconds, not {timeout!r}",
                "give seconds, or leave it out",
            )
        new = Subscription(consumer, handler, filter, max_attempts, timeout)
        self.consumers.subscribe(new, from_now=from_now, warn=warn or _warn_of_filter)
        return new

    def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription; its progress is kept for a later one. Raises UnknownConsumerError."""
        self.consumers.unsubscribe(consumer)

    def subscriptions(self) -> list[Subscription]:
        """Give all subscriptions, oldest first."""
        from eventq.records import Subscription

        return [
            Subscription(s.consumer, s.handler, s.filter, s.max_attempts, s.timeout)
            for s in self.consumers.states()
        ]

    def pop(
        self, consumer: str, last_event_id: int, *, limit: int = 100, wait: float = 0
    ) -> list[Event]:
        """Ack everything up to an id and give the next events that match, at most `limit`.

        Waits up to `wait` seconds when there is none. Raises UnknownConsumerError, AckError, FilterError.
        """
        events: list[Event] = self._pop(consumer, last_event_id, limit, wait, lines=False).events
        return events

    def pop_lines(
        self, consumer: str, last_event_id: int, *, limit: int = 100, wait: float = 0
    ) -> list[str]:
        """Return what `pop` returns as lines of JSON."""
        lines: list[str] = self._pop(consumer, last_event_id, limit, wait, lines=True).lines
        return lines

    def _pop(self, consumer: str, acked: int, limit: int, wait: float, *, lines: bool) -> Any:
        check_natural(acked, "last_event_id")
        check_positive(limit, "limit")
        if wait <= 0:
            return self.consumers.pop(consumer, acked, limit, lines=lines)
        from eventq.workspace.watcher import SLOW_LOOK, Watcher

        deadline = system.monotonic() + wait
        with Watcher(self.database, self.layout) as watcher:
            page = self.consumers.pop(consumer, acked, limit, lines=lines)
            while not page[0] and (left := deadline - system.monotonic()) > 0:
                watcher.wait(min(left, SLOW_LOOK))
                page = self.consumers.read_on(consumer, page.next, limit, lines=lines)
        return page

    def ack(self, consumer: str, last_event_id: int) -> None:
        """State that everything up to an id is done; a smaller id than before asks for a replay.

        Raises AckError for an id beyond the newest event, UnknownConsumerError.
        """
        check_natural(last_event_id, "last_event_id")
        self.consumers.ack(consumer, last_event_id)

    def resume(self, consumer: str) -> None:
        """End the stall or back-off of a consumer: its handler runs again. Raises UnknownConsumerError."""
        self.database.check_writable()
        self.consumers.resume(consumer)

    def dispatch(self) -> None:
        """Start a detached dispatch: the handlers of all who are due are run, each once at a time."""
        self.database.check_writable()
        self.database.connection  # noqa: B018 (refuses use after close)
        self.notifier.start()

    # --- memory ---------------------------------------------------------------------------------------------------

    @property
    def blobs(self) -> Blobs:
        """The bytes that are kept by their hash: `put`, `get`, `stream`, `stat`, `has`, `verify`, `refs`, `pin`."""
        if self._blobs is None:
            from eventq.blobs import Blobs

            self.database.check_memory()
            self._blobs = Blobs(self.database)
        return self._blobs

    @property
    def contexts(self) -> Contexts:
        """What was said: contexts, which are branches of turns; `create`, `get`, `fork`, `list`, `turn`, `delete`."""
        if self._contexts is None:
            from eventq.dag.contexts import Contexts
            from eventq.dag.turns import Turns

            self._contexts = Contexts(Turns(self.database, self.blobs, self.log.check_source))
        return self._contexts

    @property
    def runs(self) -> Runs:
        """The workflow runs on contexts: `start`, `get`, `active`, `history`, `list`."""
        if self._runs is None:
            from eventq.dag.runs import Runs

            self._runs = Runs(self.contexts)
        return self._runs

    def gc(self, *, apply: bool = False, grace: float = 3600) -> Collected:
        """Find the turns and blobs that nothing leads to and, with `apply`, delete them and give their space back.

        What leads to them: heads, moves of heads and turns within `grace` seconds, keys of the last 24 hours; overlays,
        roots, events, pins, refs of other blobs, and puts within `grace` seconds. Raises DamagedError, and deletes
        nothing, when `check` finds a fault.
        """
        from eventq.dag.collect import collect

        self.database.check_memory()
        self.database.check_output()
        found = collect(self.database, self.check, apply=apply, grace=grace)
        if apply:
            self.journal.info(f"gc: turns={found.turns} blobs={found.blobs} bytes={found.stored}")
        return found

    # --- what was produced ----------------------------------------------------------------------------------------

    @property
    def produced(self) -> OutputStore:
        """Blobs, artifacts and outputs together: what URLs lead to."""
        if self._produced is None:
            from eventq.output.store import OutputStore

            self._produced = OutputStore(self.database, self.blobs)
        return self._produced

    @property
    def artifacts(self) -> Artifacts:
        """Numbered outputs of tools: `allocate`, `put`, `get`, `open`, `list`, `remove`, and folders of them."""
        return self.produced.artifacts

    @property
    def outputs(self) -> Outputs:
        """Named outputs of agents, in versions: `allocate`, `publish`, `put`, `get`, `read`, `list`, and folders."""
        return self.produced.outputs

    @property
    def sessions(self) -> Sessions:
        """The session files of coding agents, as contexts: `import_file`, `export`, `lines`."""
        from eventq.transfer.sessions import Sessions

        return Sessions(self.contexts, self.produced)

    def read(self, url: str, offset: int | None = None, limit: int | None = None) -> Content:
        """Give what `artifact://ID`, `agent://ID` or `blob:blake3:HASH` names; `limit` lines from line `offset` on.

        `agent://ID/path` and `agent://ID?q=.path` give a part of its JSON. Raises UsageError for what is no URL,
        LogicError for what is not there.
        """
        from eventq.output import urls

        return urls.read(url, self.produced, offset, limit)

    def open_url(self, url: str, offset: int | None = None, limit: int | None = None) -> Resource:
        """Give what `read` gives in pieces, so that it need not be in memory whole."""
        from eventq.output import urls

        return urls.open_url(url, self.produced, offset, limit)

    def capture(
        self,
        argv: Sequence[str],
        *,
        tool: str | None = None,
        show: Callable[[bytes], object] | None = None,
        **options: Any,
    ) -> tuple[int, Captured]:
        """Run a command; give its exit code (128 + n for signal n), and what is shown of its output.

        All of the output is kept as an artifact of `tool`, the command's name unless told, when that is not all. `show`
        gets what is certain of the view as it comes; `options` are those of `OutputSink`. Raises LogicError when the
        command cannot be started.
        """
        from eventq.output.capture import capture

        self.database.check_writable()
        return capture(self.artifacts, argv, tool=tool, show=show, **options)

    def externalize(self, entry: Any, *, full: bool = False) -> Any:
        """Give a session entry whose images are blobs and whose longest texts are cut; the entry is left as it is.

        With `full` everything that was cut is kept as a blob too, so that `rehydrate` gives the very same entry.
        """
        from eventq.output import entries

        with self.database.write():
            return entries.externalize(entry, lambda data: self.produced.put(data).ref, full=full)

    def rehydrate(self, entry: Any, *, warn: Callable[[str], object] | None = None) -> Any:
        """Give an externalized session entry with its blobs put back.

        `warn` gets a sentence about each ref that is malformed or whose blob is not here, which stays as it is; unless
        it is given, they are warnings of Python.
        """
        from eventq.output import entries

        return entries.rehydrate(entry, self.produced.get, warn or _warn)

    # --- other threads and programs -------------------------------------------------------------------------------

    def export_pack(self, folder: Path) -> None:
        """Write all blobs, turns, heads and artifacts to a folder that holds no pack yet, in the interchange format."""
        from eventq.transfer.packs import export_pack

        self.produced  # noqa: B018 (there must be tables)
        export_pack(self.database, _text(folder))

    def import_pack(self, folder: Path) -> Imported:
        """Store what is in a pack and not here yet, and say what was added and what dropped.

        Ids are kept where they are free; a turn that is here already is found again, so importing twice adds nothing.
        The data directory of a CXDB server (`blobs/`, `turns/`, `fs/`) is taken as it lies, too.
        """
        from eventq.transfer.packs import import_pack

        self.database.check_writable()
        return import_pack(self.contexts, self.produced, _text(folder))

    def copy_to(self, other: Thread, contexts: Iterable[int | str] | None = None) -> Imported:
        """Copy the memory to another thread, or what some contexts lead to: turns, blobs, artifacts, outputs.

        Every byte is checked; what is there already is found again, so copying twice adds nothing. Raises
        ConflictError, and copies nothing, when an artifact or output would be another one there.
        """
        from eventq.transfer.packs import copy

        other.database.check_writable()
        if isinstance(contexts, str):
            raise UsageError("contexts are several", f"give a list, such as [{contexts!r}]")
        if other.database.identity == self.database.identity:
            raise UsageError("the source and the destination are one thread", "give two")
        return copy(other.contexts, other.produced, self.database, contexts)

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def info(self) -> ThreadInfo:
        """Give the thread at a glance: counts, sizes, and where each consumer stands."""
        from eventq.log import status

        return status.info(self.database, self.layout, self.consumers)

    def check(self) -> list[str]:
        """Say each broken invariant in one sentence; an empty list for a sound thread."""
        from eventq.log import status

        faults = [*status.check(self.database, self.layout, self._mirror, self.consumers)]
        if self.database.has_memory():
            from eventq.dag.check import faults as memory_faults

            faults += memory_faults(self.runs)
        if self.database.has_output():
            faults += self.produced.faults()
        return faults

    def prune(
        self, *, keep_last: int | None = None, before_id: int | None = None, force: bool = False
    ) -> int:
        """Delete old events that every consumer has acked, or all of them with `force`; give their number.

        The space goes back to the system; ids are never used again.
        """
        self.database.check_writable()
        for name, value in (("keep_last", keep_last), ("before_id", before_id)):
            if value is not None:
                check_natural(value, name)
        return self.log.prune(keep_last, before_id, force=force)

    def rebuild_mirror(self) -> int:
        """Write `events.jsonl` anew from the database, and remove the rotated files; give the number of lines."""
        self.database.check_writable()
        self.database.connection  # noqa: B018 (refuses use after close)
        try:
            return self._mirror.rebuild()
        except OSError as error:
            raise _refused(self.path, error) from error


def _warn(what: str) -> None:
    import warnings

    warnings.warn(what, stacklevel=2)


def _warn_of_filter(what: str) -> None:
    import warnings

    warnings.warn(what, stacklevel=4)  # the line that calls Thread.subscribe


def _text(path: Path) -> str:
    """Give a path as text."""
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
