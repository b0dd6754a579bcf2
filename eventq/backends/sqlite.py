"""The store on SQLite: one connection, WAL, one writer at a time, and all of the log's SQL.

Literal statements with bound parameters, grouped as the package is: events, subscriptions, upkeep.
"""

from __future__ import annotations

import os
from _thread import RLock

import apsw

from eventq import system
from eventq.backends import migrate
from eventq.backends.fence import Fence
from eventq.errors import (
    BusyError,
    ClosedError,
    DamagedError,
    DiskError,
    EventqError,
    FilterError,
    InputError,
    LogicError,
    NotAThreadError,
    ReadOnlyError,
    StoreError,
)
from eventq.event import Event
from eventq.filters import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any

BUSY_SECONDS = 30.0
LONG_WAL = 800_000  # bytes; whoever opens the store next reads a WAL from end to end, so a long one is cut at close
PAGE_BYTES = 4 << 20  # what one page of events may hold in memory, beside its first event
PAGE_ROWS = 1_000
_INCREMENTAL = 2  # SQLite's auto_vacuum; costs a push 4 % at NORMAL, nothing at FULL
_VACUUM_PAGES = 1_000
_WAL_HEADER = 32  # bytes; a WAL of no more holds nothing, and a read-only SQLite gets stuck on one of just these
_LONGEST = 512 - len("-journal")  # bytes of a database's path that SQLite opens, links resolved
_FRESH = "events.db.new"  # a database that is being made
_TRIES = 1_000  # of a reader that a writer is in the way of, about two seconds
_LONG_TRY = 200  # tries that a ProtocolError counts for: SQLite has waited for seconds before it
_TRY_SECONDS = 0.001

_INSERT = "INSERT INTO events (created_at, source, type, subtype, content) VALUES (?, ?, ?, ?, ?)"
_STATE_ROW = (  # none for a consumer that was unsubscribed meanwhile
    "INSERT OR IGNORE INTO subscription_state (consumer_id) SELECT consumer_id FROM subscriptions WHERE consumer_id = ?"
)
_LINE = (
    "json_object('id', id, 'created_at', CAST(created_at AS TEXT), 'source', CAST(source AS TEXT),"
    " 'type', CAST(type AS TEXT), 'subtype', CAST(subtype AS TEXT), 'content', CAST(content AS TEXT))"
)
# Other tools may have stored a BLOB; of text CAST makes nothing new.
_COLUMNS = (
    "CAST(created_at AS TEXT), CAST(source AS TEXT), CAST(type AS TEXT), CAST(subtype AS TEXT), CAST(content AS TEXT)"
)
_BYTES = _COLUMNS.replace("TEXT", "BLOB")
# Subscriptions as others may have stored them too: CAST makes a number of whatever stands in for one.
_TEXTS = ("s.consumer_id", "handler_cmd", "filter", "p.updated_at", "stalled", "scanned_filter")
_TEXT_PLACES = (0, 1, 2, 4, 9, 13)  # of these, in a row
_STATES = """SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
CAST(coalesce(max_attempts, 5) AS INTEGER), CAST(timeout AS REAL), CAST(coalesce(attempts, 0) AS INTEGER),
CAST(coalesce(attempts_at, 0) AS INTEGER), {4}, CAST(coalesce(stalled_at, 0) AS INTEGER),
CAST(coalesce(scanned_after, 0) AS INTEGER), CAST(coalesce(scanned_id, 0) AS INTEGER), {5}{more}
FROM subscriptions s LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
LEFT JOIN subscription_state t ON t.consumer_id = s.consumer_id
WHERE ?1 IS NULL OR s.consumer_id = ?1 ORDER BY s.rowid"""
_OLD_STATES = """SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
5, NULL, 0, 0, {4}, 0, 0, 0, {5}{more}
FROM (SELECT rowid AS number, *, NULL AS stalled, NULL AS scanned_filter FROM subscriptions) s
LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
WHERE ?1 IS NULL OR s.consumer_id = ?1 ORDER BY number"""


def translate(error: Exception, path: str) -> EventqError:
    """Give eventq's error for one of SQLite's; `path` is the database."""
    for kind, make in _TRANSLATIONS:
        if isinstance(error, kind):
            return make(error, path)
    if _lacks(error):
        return DamagedError(
            f"'{path}' lacks a table or a column ({error})", "restore a backup, or upgrade the program that changed it"
        )
    return StoreError(f"the database '{path}' refused: {error}", "run 'eventq check' on the thread")


def _lacks(error: BaseException | None) -> bool:
    """Tell whether a statement failed because the schema is not the one that it was written for."""
    words = ("no such table", "no such column", "has no column named")
    return isinstance(error, apsw.SQLError) and any(word in str(error) for word in words)


_TRANSLATIONS: list[tuple[type[Exception], Callable[[Exception, str], EventqError]]] = [
    (
        apsw.BusyError,
        lambda _, p: BusyError(
            f"another writer held '{p}' for more than {BUSY_SECONDS:g} seconds", "nothing was stored; try again"
        ),
    ),
    (apsw.LockedError, lambda _, p: BusyError(f"'{p}' is locked", "nothing was stored; try again")),
    (
        apsw.FullError,
        lambda _, p: DiskError(f"the disk of '{p}' is full", "nothing was stored; free some space, then try again"),
    ),
    (
        apsw.IOError,
        lambda e, p: DiskError(f"the system could not read or write '{p}' ({e})", "check the disk, then try again"),
    ),
    (
        apsw.ReadOnlyError,
        lambda _, p: ReadOnlyError(f"'{p}' cannot be written", "check the permissions of the file and its directory"),
    ),
    (
        apsw.PermissionsError,
        lambda _, p: ReadOnlyError(f"'{p}' may not be used", "check the permissions of the file and its directory"),
    ),
    (apsw.CantOpenError, lambda _, p: _unopened(p)),
    (
        apsw.NotADBError,
        lambda _, p: DamagedError(
            f"'{p}' is not a database", "move it away and run 'eventq init' on its directory, or restore a backup"
        ),
    ),
    (
        apsw.CorruptError,
        lambda _, p: DamagedError(f"'{p}' is damaged", "restore a backup, or recover it with 'sqlite3 … .recover'"),
    ),
    (
        UnicodeEncodeError,
        lambda _, __: InputError("the text holds half a character (a lone surrogate)", "give whole Unicode characters"),
    ),
    (
        UnicodeDecodeError,
        lambda _, p: DamagedError(f"'{p}' holds text that is not UTF-8", "run 'eventq check' on the thread"),
    ),
    (apsw.TooBigError, lambda _, __: InputError("the value is too large for the database", "split it")),
]


def _unopened(path: str) -> EventqError:
    """Return the error for a file that SQLite could not open: it does not say why."""
    size = len(os.fsencode(os.path.realpath(path)))
    if size > _LONGEST:
        what = f"the path of '{path}' is too long ({size} bytes; SQLite opens {_LONGEST})"
        return InputError(what, "move the thread to a shorter path")
    return ReadOnlyError(f"'{path}' cannot be opened", "check the permissions of the file and its directory")


def check_path(directory: str) -> None:
    """Raise InputError for a directory in which SQLite could make no database; nothing is made."""
    real = os.path.realpath(directory)
    size, most = len(os.fsencode(real)), _LONGEST - len(f"/{_FRESH}")
    if size > most:
        what = f"the path of a thread is too long ({size} bytes; a thread may have {most})"
        raise InputError(what, "choose a shorter path")
    there = real
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    most = os.pathconf(there, "PC_NAME_MAX")
    for name in real[len(there) :].split("/"):
        if (size := len(os.fsencode(name))) > most:
            what = f"a name in the path of a thread is too long ({size} bytes; the system takes {most})"
            raise InputError(what, "choose a shorter name")


_opening = RLock()  # what one thread does to SQLite as a whole, another must not meet
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)


def _look_as_root(connection: apsw.Connection, *, write: bool) -> None:
    """Look at a database for the first time, which opens its WAL and the shared memory.

    For root SQLite gives both to the owner of the database whenever it opens them. A writer may have made them, and
    needs that. For a reader it would change their time, and nothing else: it is kept from seeing that it is root.
    """
    with _opening:
        if write:
            _first_look(connection)
            return
        calls = apsw.VFS("eventq-reader", base="unix")
        user, number = calls.xGetSystemCall("geteuid"), calls.xGetSystemCall("getpagesize")
        if not user or not number:  # then SQLite was built without them, and changes no owners
            return
        try:
            calls.xSetSystemCall("geteuid", number)  # it never gives 0
            _first_look(connection)
        finally:
            calls.xSetSystemCall("geteuid", user)


def _first_look(connection: apsw.Connection) -> None:
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except apsw.Error:
        pass  # what is read next says it, and is tried again


class Busy:
    """A busy handler with short random waits: SQLite's own back-off starves whoever waits longest."""

    def __init__(self) -> None:
        """Start with no wait under way."""
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        """Wait a moment; give False when the time is up."""
        if tries == 0:
            self._until = system.monotonic() + BUSY_SECONDS
        elif system.monotonic() > self._until:
            return False
        system.pause(0.0002 + os.urandom(1)[0] * 0.0008 / 255)
        return True


class Write:
    """One `with store.write()`: begins at once, joins an outer one, rolls back on anything."""

    def __init__(self, store: Store) -> None:
        """Prepare a transaction of `store`; nothing begins yet."""
        self._store = store
        self._level = 0  # of this one among those under way, from 1

    def __enter__(self) -> Write:
        """Begin, or set a savepoint inside the transaction under way."""
        self._store.begin()
        self._level = self._store.depth
        return self

    def __del__(self) -> None:
        """Undo what an interrupt has kept from being left: one may strike between any two calls."""
        if self._level:
            self._store.abandon(self._level)

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Commit, or undo what was done since the matching `__enter__`."""
        self._level = 0  # from here on the store leaves it, whatever happens
        if kind is None:
            self._store.commit()
        else:
            self._store.rollback()


class Store:
    """One connection to one `events.db`; safe to use from several threads, of one process."""

    def __init__(self, directory: str, *, write: bool = True, vfs: str | None = None) -> None:
        """Open the database in `directory`; `write=False` never creates or changes a file.

        Raises NotAThreadError when there is none, DamagedError when the file is no store of eventq.
        """
        self.directory = directory
        self.path = os.path.join(directory, "events.db")
        self.writable = write
        self.on_refusal: Callable[[EventqError], object] | None = None  # called with what SQLite refuses
        self.lock = RLock()
        self._after: list[Callable[[], None]] = []
        self._marks: list[int] = []  # of each transaction under way: how many effects there were when it began
        self._vfs = vfs
        self._pid = os.getpid()
        self.inodes = self._look()
        self._folder_time = -1
        self._connection: apsw.Connection | None = None
        self.version = migrate.SCHEMA
        self._stamp: tuple[int, ...] | None = None  # of the files, when they are read without locks
        self.fence = Fence(lambda: self._connect(write=False))
        try:
            self._connection = self._open()
            self._cursor = self._connection.cursor()
            self.version = int(self._steady(lambda: migrate.version(self.connection, self.path)))
            if write and self.version < migrate.SCHEMA:
                migrate.apply(self.connection, system.stamp(system.now()), self.version)
                self._look_again()  # a newer eventq may have migrated it too
        except (apsw.Error, OSError, UnicodeEncodeError) as error:
            self.close()
            raise self._explain(error) from error
        except EventqError:
            self.close()
            raise

    # --- the connection -------------------------------------------------------------------------------------------

    def _look(self) -> tuple[int, int, int]:
        """Give what tells this thread from another at its path: device and inode of the directory, database's inode."""
        try:
            folder = os.stat(self.directory)
            return folder.st_dev, folder.st_ino, os.stat(self.path).st_ino
        except PermissionError as error:
            raise ReadOnlyError(f"'{self.directory}' may not be read", "check its permissions") from error
        except (OSError, ValueError) as error:
            raise NotAThreadError(self.directory) from error

    def _open(self) -> apsw.Connection:
        if os.path.isdir(self.path):
            raise DamagedError(f"'{self.path}' is a directory", "move it away and run 'eventq init' again")
        if os.stat(self.path).st_size == 0:
            raise DamagedError(f"'{self.path}' is empty", "run 'eventq init' on its directory to make it anew")
        return self._choose()

    def _choose(self) -> apsw.Connection:
        stamp = self._stamp_now()
        shared = stamp[2] > _WAL_HEADER and stamp[4]
        self._stamp = None if self.writable or shared else stamp
        return self._connect(write=self.writable)

    def _connect(self, *, write: bool) -> apsw.Connection:
        if write:
            connection = apsw.Connection(self.path, apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        else:
            connection = self._connect_to_read()
        if os.geteuid() == 0:
            _look_as_root(connection, write=write)
        connection.set_busy_handler(Busy())
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        if write and system.env("EVENTQ_SYNCHRONOUS").lower() == "normal":
            connection.pragma("synchronous", "normal")
        return connection

    def _connect_to_read(self) -> apsw.Connection:
        """Open without a right to change anything: through the WAL if there is one, else as an immutable file.

        A read-only user cannot make the shared memory that a WAL needs. Without a WAL the file holds everything; a WAL
        without shared memory (a copy, a restored backup) is nobody's, and is read without locks. The stamp of the
        files, looked at before and after each reading, says whether somebody has begun to write.
        """
        quoted = "file:" + "".join(c if (c.isalnum() and c.isascii()) or c in "/._-~" else _quote(c) for c in self.path)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        if self._stamp is not None and self._stamp[2] > _WAL_HEADER:
            connection = apsw.Connection(f"{quoted}?mode=ro", flags, vfs=self._vfs or "unix-none")
            connection.pragma("locking_mode", "exclusive")  # the index of the WAL is made in this process
            return connection
        how = "mode=ro&readonly_shm=1" if self._stamp is None else "immutable=1"
        return apsw.Connection(f"{quoted}?{how}", flags, vfs=self._vfs)

    def _stamp_now(self) -> tuple[int, ...]:
        """Give time and size of the database, size and time of its WAL, and whether that has shared memory."""
        found = os.stat(self.path)
        try:
            wal = os.stat(self.path + "-wal")
        except OSError:
            return found.st_mtime_ns, found.st_size, 0, 0, False
        return found.st_mtime_ns, found.st_size, wal.st_size, wal.st_mtime_ns, os.path.exists(self.path + "-shm")

    def _steady(self, call: Callable[[], Any]) -> Any:
        """Run a reading, again if a writer was in the way or changed what was read; translate SQLite's errors."""
        tries = 0
        self._check_process()
        with self.lock:
            while True:
                try:
                    if not self.writable and self._is_stale():
                        self._reopen()
                    self.connection  # noqa: B018 (refuses use after close)
                    found = call()
                    if self._stamp is None or self._stamp == self._stamp_now():
                        return found
                except (apsw.ProtocolError, apsw.ReadOnlyError) as error:
                    # A writer makes the index of the WAL anew, or was killed between its header and its first frame.
                    tries += 1 if isinstance(error, apsw.ReadOnlyError) else _LONG_TRY
                    if self.writable or tries > _TRIES or getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY:
                        raise self._explain(error) from error
                    system.pause(_TRY_SECONDS)
                    self._reopen()
                except (apsw.Error, UnicodeError) as error:
                    if self._stamp is None or self._stamp == self._stamp_now():
                        raise self._explain(error) from error
                except FilterError as error:
                    raise self._explain(error) from error.__cause__
                except OSError as error:
                    raise NotAThreadError(self.directory) from error

    def _is_stale(self) -> bool:
        """Say whether the files that are read without rights want another way of reading than they did."""
        if self._stamp is None and self._marks:
            return False  # a moment that is held by a lock
        stamp = self._stamp_now()
        return self._stamp != stamp if self._stamp is not None else stamp[2] <= _WAL_HEADER

    def _reopen(self) -> None:
        if self._marks:
            raise LogicError("another program took the database over meanwhile", "do it again")
        self.fence.close()
        self.connection.close()
        self._connection = self._choose()
        self._cursor = self._connection.cursor()

    @property
    def connection(self) -> apsw.Connection:
        """The open connection; raises ClosedError after `close` and in a forked process."""
        if self._connection is None or self._pid != os.getpid():
            raise self._gone()
        return self._connection

    def _check_process(self) -> None:
        """Refuse a forked process before it waits for a lock that nobody in it will ever release."""
        if self._pid != os.getpid():
            raise self._gone()

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that opened the store."""
        return self._pid != os.getpid()

    def _gone(self) -> ClosedError:
        if self.forked:
            return ClosedError("the thread was opened before this process was forked", "open it again after the fork")
        return ClosedError("the thread is closed", "open it again with eventq.open")

    def close(self) -> None:
        """Close the connection, cutting a WAL that has grown long; a second call and one after a fork do nothing."""
        connection = self._connection
        if connection is None or self._pid != os.getpid():
            return
        with self.lock:
            self._connection = None
            self.fence.close()
            if self.writable:
                self._cut_wal(connection)
            connection.close()

    def _cut_wal(self, connection: apsw.Connection) -> None:
        try:
            if os.stat(self.path + "-wal").st_size > LONG_WAL:
                connection.set_busy_handler(None)  # a reader that is in the way is no reason to wait
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.Error, OSError):
            pass  # the WAL is as good as the database; the next one cuts it

    def _explain(self, error: Exception) -> EventqError:
        outdated = self._is_outdated(error)
        if isinstance(error, EventqError) and not outdated:
            return error
        found = migrate.outdated(self.path) if outdated else translate(error, self.path)
        of_sqlite = isinstance(error, (apsw.Error, FilterError))  # and not of the text or the path it was given
        if self.on_refusal is not None and of_sqlite and isinstance(found, StoreError):
            self.on_refusal(found)
        return found

    def _is_outdated(self, error: Exception) -> bool:
        """Tell whether a statement failed because a newer eventq has changed the schema since the store was opened."""
        cause = error.__cause__ if isinstance(error, FilterError) else error
        # A filter may read the table of events and nothing else: not what a view of that name reads.
        if self._connection is None or not (_lacks(cause) or isinstance(cause, apsw.AuthError)):
            return False
        try:
            return int(self._connection.pragma("user_version")) > self.version
        except apsw.Error:
            return False  # the first error says more

    def alive(self) -> int:
        """Give the time of change of the directory, in ns.

        Raise NotAThreadError when the thread was deleted or replaced.
        """
        try:
            folder = os.stat(self.directory)
            time = folder.st_mtime_ns
            device, inode, database = self.inodes
            if folder.st_ino != inode or folder.st_dev != device:  # a copy may have the times of what it was made of
                raise NotAThreadError(self.directory)
            if time != self._folder_time:
                if os.stat(self.path).st_ino != database:
                    raise NotAThreadError(self.directory)
                self._folder_time = time
        except OSError as error:
            raise NotAThreadError(self.directory) from error
        return time

    # --- transactions ---------------------------------------------------------------------------------------------

    def write(self) -> Write:
        """Give the context manager of one change."""
        return Write(self)

    def check_writable(self) -> None:
        """Raise ReadOnlyError when the store was opened to read."""
        if not self.writable:
            raise ReadOnlyError(f"'{self.path}' was opened to read", "open the thread for writing")

    def has_memory(self) -> bool:
        """Say whether there are tables of turns and blobs: not in an older thread that was opened to read."""
        return self.version >= 3

    def has_output(self) -> bool:
        """Say whether there are tables of artifacts and outputs: not in an older thread that was opened to read."""
        return self.version >= 4

    def has_roots(self) -> bool:
        """Say whether there is a table of turns' roots: not in an older thread that was opened to read."""
        if self.version < 5:
            self._look_again()
        return self.version >= 5

    def check_memory(self) -> None:
        """Raise StoreError when there are no tables of turns and blobs."""
        self._check_tables(self.has_memory, "turns or blobs")

    def check_output(self) -> None:
        """Raise StoreError when there are no tables of artifacts and outputs."""
        self._check_tables(self.has_output, "artifacts or outputs")

    def _check_tables(self, has: Callable[[], bool], what: str) -> None:
        if not has():
            self._look_again()
        if not has():
            raise StoreError(
                f"'{self.path}' was written by an older eventq, and holds no {what}",
                "open it for writing once: any push brings it up to date",
            )

    def _look_again(self) -> None:
        """Read the version anew: somebody may have brought the database up to date meanwhile."""
        self.version = int(self._steady(lambda: migrate.version(self.connection, self.path)))

    @property
    def depth(self) -> int:
        """How many transactions are under way, each inside the one before."""
        return len(self._marks)

    def begin(self) -> None:
        """Begin a transaction, or a savepoint inside one."""
        self.check_writable()
        self._check_process()
        self.lock.acquire()
        depth = len(self._marks)
        try:
            self._ready(self.connection)
            if not depth:
                self.alive()  # or it would be stored in what was moved away, where nobody looks
            self.connection.execute(f"SAVEPOINT s{depth}" if depth else "BEGIN IMMEDIATE")
            self._marks.append(len(self._after))
        except BaseException as error:
            del self._marks[depth:]
            self.lock.release()
            if isinstance(error, apsw.Error):
                raise self._explain(error) from error
            raise

    def _ready(self, connection: apsw.Connection) -> None:
        """Refuse to go on in a transaction that SQLite has undone; undo one that an interrupt has left behind."""
        if connection.get_autocommit():
            if self._marks:
                raise DiskError(
                    "the transaction was undone, as the disk refused an earlier step of it: nothing of it is stored",
                    "free some space, then do all of it again",
                )
        elif not self._marks:
            connection.execute("ROLLBACK")

    def snapshot(self) -> None:
        """Have all that is read from now on be as it is at this moment, until the store is closed.

        A reading raises LogicError when the moment is lost: what was read without locks is being changed.
        """

        def begin() -> None:
            self.connection.execute("BEGIN")
            self.connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # only now does SQLite begin it

        self._steady(begin)
        self._marks.append(0)

    def abandon(self, level: int) -> None:
        """Undo the transactions from a level on, which nobody will leave any more."""
        if self._pid != os.getpid() or not self.lock._is_owned():  # type: ignore[attr-defined]  # of another thread
            return
        try:
            while len(self._marks) >= level:
                self.rollback()
        except (apsw.Error, EventqError):
            pass  # closed

    def commit(self) -> None:
        """End the innermost transaction; the outermost one commits, then runs what waits for that."""
        effects: list[Callable[[], None]] = []
        try:
            self._ready(self.connection)
            if self.depth > 1:
                self.connection.execute(f"RELEASE s{self.depth - 1}")
            else:
                self.connection.execute("COMMIT")
                effects, self._after = self._after, []
        except (apsw.Error, EventqError) as error:
            self._undo()
            raise self._explain(error) from error
        finally:
            self._leave()
        if self.depth == 0:
            self.alive()
        for effect in reversed(dict.fromkeys(reversed(effects))):
            effect()

    def rollback(self) -> None:
        """Undo the innermost transaction."""
        try:
            self._undo()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._marks.pop()
        self.lock.release()

    def _undo(self) -> None:
        connection = self._connection
        del self._after[self._marks[-1] :]
        if connection is None or self._pid != os.getpid() or connection.get_autocommit():
            return
        if self.depth > 1:
            connection.execute(f"ROLLBACK TO s{self.depth - 1}; RELEASE s{self.depth - 1}")
        else:
            connection.execute("ROLLBACK")

    def after(self, effect: Callable[[], None]) -> None:
        """Run `effect` once the transaction under way has committed, or now when there is none.

        One that is given several times runs once, at its last place.
        """
        self._check_process()
        with self.lock:  # a depth that another thread made is not ours
            if self.depth:
                self._after.append(effect)
                return
        effect()

    def run(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement and give all its rows: no cursor stays open to hold back a checkpoint."""
        if not self.writable:
            return self._steady(lambda: self.connection.execute(sql, bindings).fetchall())  # type: ignore[no-any-return]
        if self._pid != os.getpid():
            raise self._gone()
        with self.lock:
            try:
                if self._connection is None:
                    raise self._gone()
                self._ready(self._connection)
                return self._connection.execute(sql, bindings).fetchall()
            except (apsw.Error, UnicodeError) as error:
                raise self._explain(error) from error

    def one(self, sql: str, bindings: tuple[Any, ...] = ()) -> Any:
        """Run one statement and give the first column of its first row, or None."""
        rows = self.run(sql, bindings)
        return rows[0][0] if rows else None

    # --- events ---------------------------------------------------------------------------------------------------

    def insert(self, created_at: str, source: str, kind: str, subtype: str | None, content: str) -> int:
        """Store one event and give its id: one statement, which is its own transaction outside of `write`."""
        if self._pid != os.getpid():
            raise self._gone()
        with self.lock:
            connection = self._connection
            if connection is None:
                raise self._gone()
            self._ready(connection)
            if not self._marks:
                self.alive()  # see `begin`
            try:
                self._cursor.execute(_INSERT, (created_at, source, kind, subtype, content))
            except (apsw.Error, UnicodeEncodeError) as error:
                raise self._explain(error) from error
            return connection.last_insert_rowid()

    def insert_many(self, rows: Iterable[tuple[str, str, str, str | None, str]]) -> None:
        """Store events inside `write`."""
        self._ready(self.connection)
        try:
            self._cursor.executemany(_INSERT, rows)
        except (apsw.Error, UnicodeEncodeError) as error:
            raise self._explain(error) from error

    def last_id(self) -> int:
        """Give the id of the newest event there ever was, 0 when there was none."""
        found = self.one("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        if found is None:  # none yet, or the row is lost, or the table is: then this says so
            found = self.one("SELECT max(id) FROM events")
        return found or 0

    def count(self) -> int:
        """Give the number of stored events."""
        return int(self.one("SELECT count(*) FROM events"))

    def first_id(self) -> int:
        """Give the id of the oldest stored event, 0 when there is none."""
        return self.one("SELECT min(id) FROM events") or 0

    def event(self, number: int) -> Event | None:
        """Give one event, or None."""
        try:
            rows = self.run(f"SELECT id, {_COLUMNS} FROM events WHERE id = ?", (number,))  # noqa: S608
        except DamagedError:  # like its line in the mirror: a push goes on after it
            rows = self.run(f"SELECT id, {_BYTES} FROM events WHERE id = ?", (number,))  # noqa: S608
            rows = [[v.decode(errors="replace") if isinstance(v, bytes) else v for v in row] for row in rows]
        return Event._make(rows[0]) if rows else None

    def after_id(self, after: int) -> int | None:
        """Give the lowest id above `after`, or None."""
        return self.one("SELECT id FROM events WHERE id > ? ORDER BY id LIMIT 1", (after,))  # type: ignore[no-any-return]

    def id_from_end(self, count: int) -> int:
        """Give the id of the `count`-th newest event, or of the oldest when there are fewer; 0 for none at all."""
        sql = "SELECT min(id) FROM (SELECT id FROM events ORDER BY id DESC LIMIT ?)"
        return self.one(sql, (count,)) or 0

    def page(self, text: str, after: int, upto: int, limit: int, *, lines: bool = False) -> tuple[list[Any], int]:
        """Give matching rows with after < id <= upto, in order, and the id that the search has got to.

        A row has the six columns, or `(id, line)` with `lines`; at most `limit`, and fewer when they are large.
        """
        if text:
            found: tuple[list[Any], int] = self._steady(
                lambda: self.fence.page(text, after, upto, limit, lines=lines, max_bytes=PAGE_BYTES)
            )
            return found
        sql = (
            f"SELECT id, {_LINE} FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608
            if lines
            else f"SELECT id, {_COLUMNS} FROM events NOT INDEXED"  # noqa: S608
            " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        )
        bindings = (after, upto, min(limit, PAGE_ROWS))
        rows, whole = self._steady(lambda: _gather(self.connection.execute(sql, bindings)))
        done = whole and len(rows) < min(limit, PAGE_ROWS)
        return rows, upto if done else rows[-1][0]

    def newest(self, text: str, upto: int, limit: int) -> list[Any]:
        """Give the newest `limit` matching rows with id <= upto, oldest first."""
        found: list[Any] = []
        while upto > 0 and len(found) < limit:
            rows, upto = self._newest_page(text, upto, limit - len(found))
            found += rows
        found.reverse()
        return found

    def _newest_page(self, text: str, upto: int, limit: int) -> tuple[list[Any], int]:
        if text:
            rows, low = self._steady(lambda: self.fence.page(text, 0, upto, limit, newest=True, max_bytes=PAGE_BYTES))
            return rows, low
        sql = f"SELECT id, {_COLUMNS} FROM events NOT INDEXED WHERE id <= ? ORDER BY id DESC LIMIT ?"  # noqa: S608
        bindings = (upto, min(limit, PAGE_ROWS))
        rows, whole = self._steady(lambda: _gather(self.connection.execute(sql, bindings)))
        return rows, 0 if whole and len(rows) < bindings[1] else rows[-1][0] - 1

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Give the lowest id with after < id <= upto that a filter matches, or None."""
        if text:
            return self._steady(lambda: self.fence.first(text, after, upto))  # type: ignore[no-any-return]
        first = self.after_id(after)
        return first if first is not None and first <= upto else None

    def could_match(self, text: str, after: int, upto: int, seconds: float) -> bool:
        """Say whether an event with after < id <= upto may match a filter, as far as so much processor time tells.

        `text` need not be accepted before. Raises FilterError for a filter that is refused.
        """
        return bool(self._steady(lambda: self.fence.could_match(text, after, upto, seconds)))

    def count_matches(self, text: str, after: int, upto: int) -> int:
        """Count the events with after < id <= upto that a filter matches."""
        if not text:
            return int(self.one("SELECT count(*) FROM events WHERE id > ? AND id <= ?", (after, upto)))
        return int(self._steady(lambda: self.fence.count(text, after, upto)))

    def check_filter(self, text: str | None) -> str:
        """Give the filter as it is run, "" for all; raise FilterError when it is refused."""
        return self._steady(lambda: self.fence.check(text)) if text else ""

    def lines(self, after: int, upto: int) -> Iterator[bytes]:
        """Give the events with after < id <= upto as NDJSON in blocks of bounded size; U+FFFD for bad UTF-8."""
        for block in self._blocks(after, upto):
            yield block if _is_utf8(block) else block.decode(errors="replace").encode()

    def _blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Give the events with after < id <= upto as NDJSON of whatever bytes are stored."""
        step = PAGE_ROWS
        sql = f"SELECT CAST(group_concat({_LINE}, char(10)) AS BLOB) FROM (SELECT * FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id)"  # noqa: S608, E501
        while after < upto:
            to = min(after + step, upto)
            size = self.one(
                "SELECT total(octet_length(content)) FROM events NOT INDEXED WHERE id > ? AND id <= ?", (after, to)
            )
            if size > PAGE_BYTES and to - after > 1:
                step = max(1, (to - after) // 2)
                continue
            text = self.one(sql, (after, to))
            if text is not None:
                yield text + b"\n"
            else:  # what other tools stored may leave gaps of any length
                following = self.after_id(to)
                to = upto if following is None else max(to, min(following - 1, upto))
            after, step = to, min(step * 2, PAGE_ROWS)

    def key(self, key: str) -> int | None:
        """Give the id of the event that was pushed with a key, or None; a key whose event is gone is free again."""
        sql = "SELECT event_id FROM event_keys JOIN events ON events.id = event_id WHERE key = ?"
        return self.one(sql, (key,))  # type: ignore[no-any-return]

    def set_key(self, key: str, number: int) -> None:
        """Note that an event was pushed with a key."""
        self.run("INSERT OR REPLACE INTO event_keys (key, event_id) VALUES (?, ?)", (key, number))

    def add_event_refs(self, number: int, digests: Iterable[bytes]) -> None:
        """Note the blobs that an event names: they are kept for as long as it is."""
        for digest in digests:
            self.run("INSERT OR IGNORE INTO event_blob_refs (event_id, hash) VALUES (?, ?)", (number, digest))

    def latest(self, column: str) -> list[Any]:
        """Give the newest event for each value of a column, in the order of their ids."""
        if column == "source":
            sql = f"SELECT max(id), {_COLUMNS} FROM events GROUP BY source ORDER BY 1"  # noqa: S608
        elif column == "type":
            sql = f"SELECT max(id), {_COLUMNS} FROM events GROUP BY type ORDER BY 1"  # noqa: S608
        else:
            raise InputError(f"cannot group by '{column}'", "use 'source' or 'type'")
        return self.run(sql)

    def data_version(self) -> int:
        """Give a number that changes when another process has committed."""
        return int(self.one("PRAGMA data_version"))

    # --- subscriptions --------------------------------------------------------------------------------------------

    def subscriptions(self, consumer: str | None = None) -> list[Any]:
        """Give the rows of all subscriptions, oldest first, or of one.

        Columns: consumer_id, handler_cmd, filter, last_acked_id, updated_at, max_attempts, timeout, attempts,
        attempts_at, stalled, stalled_at, scanned_after, scanned_id, scanned_filter.
        """
        sql = _OLD_STATES if self.version == 0 else _STATES  # of the older tool, opened to read
        try:
            rows = self.run(sql.format(*_TEXTS, more=""), (consumer,))
            if all(_is_plain(row) for row in rows):
                return rows
        except DamagedError:
            pass  # text that is not UTF-8, or worse: then this fails too
        kinds = "".join(f", typeof({name})" for name in _TEXTS)
        blobs = (f"CAST({name} AS BLOB)" for name in _TEXTS)
        return [_shown(row) for row in self.run(sql.format(*blobs, more=kinds), (consumer,))]

    def has_subscriptions(self) -> bool:
        """Say whether there is any subscription."""
        self._check_process()
        with self.lock:
            try:
                return bool(self._cursor.execute("SELECT 1 FROM subscriptions LIMIT 1").fetchall())
            except apsw.Error as error:
                raise self._explain(error) from error

    def filter_of(self, consumer: str) -> str | bool | None:
        """Give the filter of a consumer, None for all events, and False when it is not subscribed."""
        try:
            rows = self.run("SELECT filter FROM subscriptions WHERE consumer_id = ?", (consumer,))
        except DamagedError:
            rows = [(b"",)]
        if rows and isinstance(rows[0][0], bytes):
            rows = [row[2:] for row in self.subscriptions(consumer)]
        return rows[0][0] if rows else False

    def add_subscription(
        self, consumer: str, handler: str, text: str | None, attempts: int, timeout: float | None
    ) -> bool:
        """Store a subscription, with a clean state; give False when there is one of that name."""
        sql = "INSERT OR IGNORE INTO subscriptions (consumer_id, handler_cmd, filter) VALUES (?, ?, ?)"
        self.run(sql, (consumer, handler, text))
        if not self.connection.changes():
            return False
        sql = "INSERT OR REPLACE INTO subscription_state (consumer_id, max_attempts, timeout) VALUES (?, ?, ?)"
        self.run(sql, (consumer, attempts, timeout))
        return True

    def drop_subscription(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; give False when there is none."""
        self.run("DELETE FROM subscriptions WHERE consumer_id = ?", (consumer,))
        gone = bool(self.connection.changes())
        self.run("DELETE FROM subscription_state WHERE consumer_id = ?", (consumer,))
        return gone

    def acked(self, consumer: str) -> int | None:
        """Give the last acked id of a consumer, None before its first ack."""
        sql = "SELECT CAST(last_acked_id AS INTEGER) FROM consumer_progress WHERE consumer_id = ?"
        return self.one(sql, (consumer,))  # type: ignore[no-any-return]

    def set_acked(self, consumer: str, number: int, stamp: str) -> None:
        """Note how far a consumer has got."""
        sql = (
            "INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at) VALUES (?, ?, ?)"
            " ON CONFLICT (consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id,"
            " updated_at = excluded.updated_at"
        )
        self.run(sql, (consumer, number, stamp))

    def relaxed(self) -> Relaxed:
        """Give a block whose commits need not be on the disk at once.

        An ack that is lost only means a second delivery.
        """
        return Relaxed(self)

    def set_watermark(self, consumer: str, after: int, number: int, text: str) -> None:
        """Note that no event with after < id <= number matches a consumer's filter; not if time may change that."""
        if self.timed(text):
            return
        sql = (
            "UPDATE subscription_state SET scanned_after = ?, scanned_id = ?, scanned_filter = ? WHERE consumer_id = ?"
        )
        self.run(sql, (after, number, text, consumer))

    def timed(self, text: str) -> bool:
        """Say whether a filter may look at the clock: what it does not match now it may match later."""
        return bool(text) and bool(self._steady(lambda: self.fence.timed(text)))

    def set_attempts(self, consumer: str, attempts: int, acked: int) -> None:
        """Note how many runs in a row made no progress past `acked`."""
        self.run(_STATE_ROW, (consumer,))
        sql = "UPDATE subscription_state SET attempts = ?, attempts_at = ? WHERE consumer_id = ?"
        self.run(sql, (attempts, acked, consumer))

    def set_stalled(self, consumer: str, reason: str | None, acked: int) -> None:
        """Note why no handler is started any more for what comes after `acked`; None ends a stall and its attempts."""
        self.run(_STATE_ROW, (consumer,))
        sql = "UPDATE subscription_state SET stalled = ?, stalled_at = ?, attempts = attempts * ? WHERE consumer_id = ?"
        self.run(sql, (reason, acked, reason is not None, consumer))

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def prune(self, before: int) -> int:
        """Delete the events below an id, with their keys, inside `write`; give their number."""
        self.run("DELETE FROM event_keys WHERE event_id < ?", (before,))
        self.run("DELETE FROM event_blob_refs WHERE event_id < ?", (before,))
        self.run("DELETE FROM events WHERE id < ?", (before,))
        return self.connection.changes()

    def free_pages(self) -> int:
        """Give the number of pages that hold nothing any more."""
        return int(self.one("PRAGMA freelist_count"))

    def vacuum(self) -> None:
        """Give the space of deleted rows back to the system, some pages a transaction."""
        if self.one("PRAGMA auto_vacuum") != _INCREMENTAL:  # made by an older program: one long way round
            self.run(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
            self.run("VACUUM")
        while self.free_pages():
            self.run(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def faults(self) -> Iterator[str]:
        """Say what is broken inside the database, a sentence each."""
        for (text,) in self.run("PRAGMA integrity_check(20)"):
            if text != "ok":
                yield f"the database is damaged: {text}"
        self._look_again()  # what a newer eventq has made meanwhile is no fault: this says so
        yield from self._steady(lambda: migrate.faults(self.connection, self.version))
        for number, what in self.run(_ODD_EVENTS):
            yield f"event {number} {what}"
        yield from self._text_faults()
        yield from self._consumer_faults()
        for data, kind, acked, last in self.run(_ODD_ACKS):
            yield f"consumer '{_name(data, kind)}' has acked {acked}, but the newest event is {last}"
        yield from self._counter_faults()
        if self.version:
            yield from self._state_faults(self.last_id())

    def _consumer_faults(self) -> Iterator[str]:
        for data, kind, handler, handler_kind in self.run(_CONSUMERS):
            if not _is_text(data, kind):
                yield f"consumer '{_name(data, kind)}' has an id that is not text: delete its row"
            elif not data:
                yield "consumer '' has an empty id: delete its row"
            elif not _is_text(handler, handler_kind):
                yield f"consumer '{_name(data, kind)}' has a handler that is not text: unsubscribe it"
        for data, kind, acked_kind, stamp, stamp_kind in self.run(_PROGRESS):
            if not _is_text(data, kind):
                yield f"consumer '{_name(data, kind)}' has progress, but no id that is text: delete its row"
            elif acked_kind != "integer":
                yield f"consumer '{_name(data, kind)}' has acked what is no number: ack again"
            elif not _is_text(stamp, stamp_kind):
                yield f"consumer '{_name(data, kind)}' has a time of its last ack that is not text: ack again"

    def _counter_faults(self) -> Iterator[str]:
        for last, newest in self.run(_ODD_COUNTER):
            yield f"the newest event is {newest}, but the counter of ids is at {last}"

    def _text_faults(self) -> Iterator[str]:
        found = (
            line
            for block in self._blocks(0, self.last_id())
            if not _is_utf8(block)
            for line in block.splitlines()
            if not _is_utf8(line)
        )
        for line, _ in zip(found, range(20), strict=False):
            yield f"event {line[6 : line.index(b',')].decode()} holds text that is not UTF-8"

    def _state_faults(self, last: int) -> Iterator[str]:
        for data, kind, number in self.run(
            "SELECT CAST(key AS BLOB), typeof(key), CAST(event_id AS TEXT) FROM event_keys"
            " WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id) LIMIT 20"
        ):
            yield f"key '{_name(data, kind)}' names event {number}, which is not stored"
        odd = False
        for data, kind, what in self.run(_ODD_STATES):
            odd = True
            yield f"consumer '{_name(data, kind)}' {what}"
        if odd:
            return  # a watermark that is no number is none
        for consumer, after, number, text in self.run(
            "SELECT consumer_id, scanned_after, scanned_id, scanned_filter FROM subscription_state WHERE scanned_id > 0"
        ):
            yield from self._watermark_fault(consumer, after, min(number, last), text)

    def _watermark_fault(self, consumer: str, after: int, number: int, text: str | None) -> Iterator[str]:
        try:
            hit = self.first_match(text or "", after, number)
        except FilterError:
            return  # a filter that does not run any more stalls its consumer: nothing is skipped
        if hit is not None:
            yield f"consumer '{consumer}' would skip event {hit}: its watermark is {number}"


_ODD_EVENTS = """
SELECT id, CASE WHEN id < 1 THEN 'has an id below 1'
                WHEN typeof(content) <> 'text' THEN 'has content that is not text'
                WHEN typeof(source) <> 'text' OR source = '' THEN 'has no source'
                WHEN typeof(type) <> 'text' OR type = '' THEN 'has no type'
                ELSE 'has no time' END
FROM events WHERE id < 1 OR typeof(content) <> 'text' OR typeof(source) <> 'text' OR source = ''
   OR typeof(type) <> 'text' OR type = '' OR typeof(created_at) <> 'text' LIMIT 20
"""


_CONSUMERS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), CAST(handler_cmd AS BLOB), typeof(handler_cmd)
FROM subscriptions
"""
_PROGRESS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), typeof(last_acked_id), CAST(updated_at AS BLOB),
       typeof(updated_at) FROM consumer_progress
"""
_ODD_ACKS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), last_acked_id, last FROM consumer_progress,
       (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last)
WHERE typeof(last_acked_id) = 'integer' AND (last_acked_id > last OR last_acked_id < 0)
"""  # one statement: somebody may push meanwhile
_ODD_COUNTER = """
SELECT CAST(last AS TEXT), newest
FROM (SELECT max(id) AS newest, (SELECT seq FROM sqlite_sequence WHERE name = 'events') AS last FROM events)
WHERE newest IS NOT NULL AND (typeof(last) <> 'integer' OR last < newest)
"""
_ODD_STATES = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), 'has a state that eventq does not write: subscribe it again'
FROM subscription_state WHERE typeof(consumer_id) <> 'text' OR typeof(max_attempts) <> 'integer'
   OR typeof(timeout) NOT IN ('real', 'null') OR typeof(attempts) <> 'integer' OR typeof(attempts_at) <> 'integer'
   OR typeof(stalled) NOT IN ('text', 'null') OR typeof(stalled_at) <> 'integer'
   OR typeof(scanned_after) <> 'integer' OR typeof(scanned_id) <> 'integer' OR typeof(scanned_filter) = 'blob' LIMIT 20
"""


class Relaxed:
    """A block at `synchronous=NORMAL`, unless a transaction is under way that needs more."""

    def __init__(self, store: Store) -> None:
        """Prepare; nothing changes yet."""
        self._store = store
        self._was = 0

    def __enter__(self) -> None:
        """Relax, remembering what was set."""
        store = self._store
        store._check_process()
        store.lock.acquire()
        try:
            if store.depth == 0:
                store.alive()  # see `begin`
                self._was = int(store.connection.pragma("synchronous"))
                if self._was > 1:
                    store.connection.pragma("synchronous", 1)
        except BaseException:
            store.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        """Put back what was set."""
        store = self._store
        if self._was > 1 and store.depth == 0:
            store.connection.pragma("synchronous", self._was)
        store.lock.release()


def _quote(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


def _gather(cursor: apsw.Cursor) -> tuple[list[Any], bool]:
    """Fetch rows until they hold PAGE_BYTES; give them and whether that was all."""
    rows = []
    size = 0
    try:
        for row in cursor:
            rows.append(row)
            size += len(row[-1])
            if size > PAGE_BYTES:
                return rows, False
    finally:
        cursor.close(force=True)
    return rows, True


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_plain(row: tuple[Any, ...]) -> bool:
    """Tell whether a subscription's row is one that eventq may have written."""
    return (
        {type(row[0]), type(row[1])} == {str}
        and row[0] != ""
        and all(row[place].__class__ is str or row[place] is None for place in _TEXT_PLACES)
    )


def _shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a subscription's row with texts that can be shown, given as bytes and followed by their types.

    A filter that is not text is refused when it is run. A consumer whose id is not text, or
    empty, is stalled, as nobody could pop for it.
    """
    values, kinds = list(row[: -len(_TEXTS)]), row[-len(_TEXTS) :]
    for place, kind in zip(_TEXT_PLACES, kinds, strict=True):
        values[place] = _text_of(values[place], kind)
    if type(values[0]) is not str:
        values[0], values[9], values[10] = _name(row[0], kinds[0]), "its consumer id is not text", values[3]
    elif not values[0]:
        values[9], values[10] = "its consumer id is empty", values[3]
    values[1] = values[1] or ""
    return tuple(values)


def _text_of(data: bytes | None, kind: str) -> str | None:
    """Return a value as text: marked where it is none in the database, or not UTF-8."""
    if data is None:
        return None
    return data.decode() if _is_text(data, kind) else Unreadable(data.decode(errors="replace"))


def _is_text(data: bytes | None, kind: str) -> bool:
    return data is not None and kind == "text" and _is_utf8(data)


def _name(data: bytes | None, kind: str) -> str:
    """Return a name for a sentence: as a literal of SQL where it is not text."""
    if data is None:
        return "NULL"
    return data.decode() if _is_text(data, kind) else f"x'{data.hex()}'"


def create(directory: str, path: str, mode: int) -> bool:
    """Make the database of a new thread at `path`, whole or not at all; give False when there is one already.

    The caller holds the directory's lock, so what an init that crashed left behind may be removed.
    """
    fresh = os.path.join(directory, _FRESH)
    for suffix in ("", "-journal", "-wal", "-shm"):
        if os.path.lexists(fresh + suffix):
            os.unlink(fresh + suffix)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        connection = apsw.Connection(fresh, apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("page_size", 4096)
            connection.pragma("auto_vacuum", _INCREMENTAL)
            migrate.apply(connection, system.stamp(system.now()))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # `close` does it too, but hides a failure
        finally:
            connection.close()
        if os.path.exists(path) and os.path.getsize(path) == 0:
            os.unlink(path)  # an init of another kind died before its first byte
        os.link(fresh, path)
    except FileExistsError:
        return False
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        os.unlink(fresh)
    return True
