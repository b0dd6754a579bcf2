"""The handles of this process on one database, which the system takes for one.

SQLite keeps one set of locks and one shared memory for all connections of a process to a file. So
whatever concerns them has to be done to every handle at once:

- One that was opened to read makes the shared memory read-only for all: it makes way for a writer.
- Whoever closes a descriptor of the file, as another SQLite in this process does, or a copy of the
  folder, releases the locks of all (`fcntl` locks belong to the process). Another process may then
  take the WAL away, and nobody else sees what is committed after that. All handles close and open
  again: while one stays open, SQLite takes it that the process has the locks, and takes none.
- A child of a fork inherits the memory of the handles and none of their locks.

A handle that has made way opens again with its next use. All connections open inside the lock of
`Handles`, so none opens while the others close.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from _weakref import ref

import apsw

from eventq.errors import BusyError, LogicError, LostError, NotAThreadError, ReadOnlyError
from eventq.system import clock
from eventq.system.locks import ByteLock, descriptor_of, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.store.sqlite.database import Database

    Inodes = tuple[int, int, int]
    Row = tuple[Any, ...]

BUSY_SECONDS = 30.0
_MOMENT_SECONDS = 1.0  # that a handle which reads at one moment has, before others go on
_TURN_SECONDS = 0.01
# In the shared memory of a WAL (sqlite.org/walformat.html):
_WRITE_LOCK = 120  # the byte that a writer locks
_HEADER = 40  # bytes from the start
_VERSION = (3_007_000).to_bytes(4, sys.byteorder)  # how they begin
_FRAMES = slice(16, 40)  # how far the WAL goes, its check sum and salt
_NONE = bytes(4)  # how that begins for a WAL without any
_COMPARED = 1_000  # events of a WAL that is gone
_NEWEST = """
SELECT id, created_at, source, type, subtype, octet_length(content), substr(content, 1, 1000)
FROM events
ORDER BY id DESC
LIMIT ?
"""
_SAME = """
SELECT 1
FROM events
WHERE (id, created_at, source, type) = (?, ?, ?, ?)
    AND subtype IS ?
    AND octet_length(content) = ?
    AND substr(content, 1, 1000) = ?
"""

_known: dict[Inodes, Handles] = {}
_inherited: dict[Inodes, Handles] = {}  # of the process that this one was forked from


def _begin_anew() -> None:
    """Leave nothing to wait for in the child of a fork."""
    _inherited.update(_known)
    _known.clear()


_turn = RLock()  # of who changes the table; nothing is waited for inside
os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release)
os.register_at_fork(after_in_child=_turn.release)
os.register_at_fork(after_in_child=_begin_anew)


class Handles:
    """The handles of this process on one database."""

    @staticmethod
    def join(handle: Database) -> Handles:
        """Return those of the database of a handle that is about to open, which is one of them."""
        with _turn:
            handles = _known.setdefault(handle.inodes, Handles())
            handles.add(handle)
            return handles

    def __init__(self) -> None:
        """Begin with none."""
        self.lock = RLock()  # of whoever opens a connection; taken after that of a handle
        self._refs: list[ref[Database]] = []
        self.is_inside = False  # a transaction was under way when the process was forked

    def add(self, handle: Database) -> None:
        """Note a handle, and forget those that are gone."""
        self._refs = [ref(one) for one in (*self._all(), handle)]

    def prepare(self, handle: Database) -> None:
        """See that the other handles are on the files at the path, before one opens them."""
        for one in self._all():
            try:
                if one is not handle:
                    one.alive()
            except NotAThreadError:
                pass  # as its next use says
        inherited = _inherited.pop(handle.inodes, None)
        if inherited is not None:
            inherited.leave_to_parent()
            self.is_inside = inherited.is_inside

    def remove(self, handle: Database) -> None:
        """Forget a handle that was closed."""
        with _turn:
            self._refs = [ref(one) for one in self._all() if one is not handle]
            if not self._refs and not self.is_inside and _known.get(handle.inodes) is self:
                del _known[handle.inodes]

    def _all(self) -> list[Database]:
        return [one for one in (known() for known in self._refs) if one is not None]

    def leave_to_parent(self) -> None:
        """Close what a fork has inherited, but for what was in use: its mutex stays locked.

        SQLite writes nothing then, as no connection of ours checkpoints when it closes.
        """
        for one in self._all():
            if not one.depth:
                within(one.lock, 0, one.step_aside_now)
            self.is_inside = self.is_inside or bool(one.depth and one.writable)

    def make_way(self, writer: Database) -> None:
        """Let a new handle write; raise ReadOnlyError if another one keeps the memory read-only."""
        if self.is_inside:
            raise LogicError(
                f"this process was forked while '{writer.path}' was in a transaction, whose lock it"
                " has inherited",
                "fork outside of write(), or start the child as a new program (spawn)",
            )
        if all(one.writable for one in self._all()) or writer.may_begin():
            return
        if not os.access(writer.path + "-shm", os.W_OK):
            return
        writer.step_aside()  # another writer that comes just now needs all closed
        with self.lock:
            writer.reopen()
            if writer.may_begin():
                return
            if not self._close(self._all(), _MOMENT_SECONDS, moments=False):
                raise ReadOnlyError(
                    f"this process reads '{writer.path}' at one moment, with a handle that may not"
                    " write",
                    "end that moment first, or open the thread for writing before it",
                )
            writer.reopen()

    def renew(self, handle: Database) -> None:
        """Let all handles go on with the files at the path: those that are open are others.

        Raises LostError if what this process has stored is not in them, and BusyError if a
        handle is in a transaction for too long.
        """
        with handle.lock:
            if handle.is_current():  # now that it is open whole
                return
            if not within(self.lock, 0, lambda: self._renew(handle)):
                handle.step_aside()  # whoever has it closes all handles, or opens one
                if not within(self.lock, BUSY_SECONDS, lambda: self._renew(handle)):
                    raise _held(handle.path)

    def _renew(self, handle: Database) -> None:
        """Close all handles and open one, unless somebody else has just done so."""
        if handle.is_current():
            return
        others = [one for one in self._all() if one is not handle]
        if not self._close(others, BUSY_SECONDS, moments=True):
            raise _held(handle.path)
        try:
            left = _Left(handle)  # what a transaction that ended just now has stored as well
            handle.step_aside()
            handle.reopen()
        except apsw.Error as error:  # it is still aside: the next use tries again
            raise handle.explain(error) from error
        left.check(handle)

    @staticmethod
    def _close(handles: list[Database], seconds: float, *, moments: bool) -> bool:
        """Close the connections of handles; return False if one is still in use after some time.

        Handles that read at one moment have a little time to end it; then, if `moments`, they lose
        it.
        """
        begun = clock.monotonic()
        while left := [one for one in handles if one.is_open]:
            waited = clock.monotonic() - begun
            if waited > seconds:
                return False
            for one in left:
                if not one.is_moment or (moments and waited > _MOMENT_SECONDS):
                    within(one.lock, _TURN_SECONDS, one.step_aside)
            clock.pause(_TURN_SECONDS / 10)
        return True


class WriteLock:
    """SQLite's lock of the transaction under way on one connection.

    Who opens events.db in this process and closes it releases the lock, and SQLite does not notice.
    """

    def __init__(self, path: str) -> None:
        """Prepare for the transactions of a connection that was just opened."""
        self._path = path
        self._memory = -1  # a descriptor of the shared memory, of this SQLite or another one
        self._lock = ByteLock(_WRITE_LOCK)
        self._header = b""

    def note(self) -> None:
        """Note how far the WAL goes, when a transaction has begun."""
        self._header = self._read()
        if not self._header.startswith(_VERSION):
            # The number is of no file yet, or of another one.
            self._memory = descriptor_of(self._path + "-shm")
            self._header = self._read()

    def is_sound(self) -> bool:
        """Return whether nobody else can have written in the middle of the transaction.

        A lock that was released is taken again, if nobody has used that. Another SQLite in this
        process may have written though it is held: the system takes both for one.
        """
        if not self._lock.is_held(self._memory):
            self._memory = descriptor_of(self._path + "-shm")  # that of the file at the path
            if not self._lock.take(self._memory):
                return False
        now = self._read()[_FRAMES]
        # A large transaction of our own begins the WAL anew before its end: then it has no frames.
        return now == self._header[_FRAMES] or now.startswith(_NONE)

    def lost(self) -> BusyError:
        """Return the error for a transaction in which somebody else may have written."""
        return BusyError(
            f"'{self._path}' was opened and closed in this process in the middle of a transaction,"
            " which released its lock, and the WAL has changed: the transaction was undone",
            "do all of it again, and read the file from another process",
        )

    def _read(self) -> bytes:
        """Return the start of the shared memory, nothing if it cannot be read."""
        try:
            return os.pread(self._memory, _HEADER, 0) if self._memory >= 0 else b""
        except OSError:
            return b""  # closed, or a pipe that got the number


class _Left:
    """What only a WAL holds that was taken away."""

    def __init__(self, handle: Database) -> None:
        """Look, with a connection that has the WAL open."""
        self._rows: list[Row] = []
        self._is_nothing = handle.has_wal()  # only the memory of it was left behind
        if self._is_nothing:
            return
        try:
            frames, copied = handle.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            self._is_nothing = frames == copied
            if not self._is_nothing:
                self._rows = handle.connection.execute(_NEWEST, (_COMPARED,)).fetchall()
        except apsw.Error:  # the database has changed under it
            self._is_nothing = False

    def check(self, handle: Database) -> None:
        """Raise LostError if the database at the path lacks it."""
        if self._is_nothing:
            return
        lost = []
        for row in self._rows:
            if handle.run(_SAME, row):
                break
            lost.append(row[0])
        what = (
            f"{_in_words(lost)}, which this process had stored, {_be(lost)} not in it"
            if lost
            else "what this process has stored last besides events may not be in it"
        )
        error = LostError(
            f"the WAL of '{handle.path}' was taken away while this process had it open: {what}",
            "the next write takes back those that events.jsonl has; then run 'eventq check'"
            if lost
            else "run 'eventq check', and do again what it misses",
        )
        if handle.on_refusal is not None:
            handle.on_refusal(error)
        raise error


def _in_words(numbers: list[int]) -> str:
    first, last = numbers[-1], numbers[0]
    which = f"event {first}" if first == last else f"events {first} to {last}"
    return f"{which} and maybe earlier ones" if len(numbers) == _COMPARED else which


def _be(numbers: list[int]) -> str:
    return "is" if len(numbers) == 1 else "are"


def _held(path: str) -> BusyError:
    return BusyError(
        f"the WAL of '{path}' was taken away, and another OS thread of this process goes on with a"
        " transaction that began before that",
        "end that, then do this again",
    )
