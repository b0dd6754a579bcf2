"""The SQLite database of a thread: its connection, its transactions, and subscribers to commits.

The database uses WAL, with one writer at a time. The statements are in the modules of each area:
literal SQL with bound parameters.
"""

from __future__ import annotations

import os
from _thread import RLock

import apsw

from eventq.errors import (
    DamagedError,
    DiskError,
    EventqError,
    FilterError,
    LogicError,
    MomentLostError,
    NotAThreadError,
    ReadOnlyError,
    StoreError,
    way_back,
)
from eventq.store.engine import AREAS, Engine
from eventq.store.paths import FRESH
from eventq.store.rules import no_more_ids
from eventq.store.sqlite import migrate
from eventq.store.sqlite.bell import Bell
from eventq.store.sqlite.connecting import Busy, connect, connect_to_read, first_look
from eventq.store.sqlite.consumers import Consumers
from eventq.store.sqlite.events import Events
from eventq.store.sqlite.failures import is_lacking, translate
from eventq.store.sqlite.handles import BUSY_SECONDS, Handles, WriteLock
from eventq.system import clock, disk
from eventq.system.locks import within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.log.filters.sandbox import FilterSandbox
    from eventq.records.event import Commit, Event
    from eventq.records.info import Overview, Stats
    from eventq.records.rows import Rows, Values
    from eventq.store.protocol import Area
    from eventq.store.queue_rules import QueueStatements
    from eventq.store.sqlite.claims import Claims
    from eventq.store.sqlite.events import Restored
    from eventq.store.sqlite.readers import Reader
    from eventq.store.sqlite.readonly import Stamp
    from eventq.store.sqlite.recheck import Recheck
    from eventq.store.sqlite.watcher import Watcher
    from eventq.system.locks import ConsumerLock as Lease
    from eventq.system.locks import Hold, Leases

LONG_WAL = 800_000  # bytes: a longer one is cut at close, as whoever opens it next reads all of it
_TRIES = 1_000  # of a reader that a writer is in the way of, about two seconds
_LONG_TRY = 200  # tries that a ProtocolError counts for: SQLite has waited for seconds before it
_TRY_SECONDS = 0.001
_PATIENCE = 0.01  # seconds that a number of the database waits for another OS thread
_WAL = "events.db-wal"
_COUNT_SECONDS = 1.0  # between two looks at how many names the file has: no folder tells that
LOOK_SECONDS = 0.02  # between two looks of reads, each of which costs a pop 5 %
_TICK = 20_000_000  # ns: before Linux 6.13 two changes of a folder within one may have one time
# A transaction of a program that knows this schema: SQLite refuses it once a newer one is there.
_BEGIN = f"BEGIN IMMEDIATE; SELECT 1 FROM {migrate.CURRENT} WHERE 0"  # noqa: S608 (a constant)
# Claims are not of the memory, and a push can do without them as well.
_AREAS = {**AREAS, "claims": ("sqlite.claims", "Claims", "claims")}


class Database(Engine):
    """One connection to one `events.db`; safe to use from several threads, of one process."""

    areas = _AREAS
    schema_guard = migrate.IS_CURRENT

    if TYPE_CHECKING:
        events: Events
        consumers: Consumers
        claims: Claims

    def __init__(
        self,
        directory: str,
        *,
        write: bool = True,
        vfs: str | None = None,
        patience: float | None = None,
    ) -> None:
        """Open the database in `directory`; `write=False` never creates or changes a file.

        `patience` is how many seconds a change waits for other writers (default: BUSY_SECONDS).
        Raises NotAThreadError when there is none, DamagedError when the file is no store of eventq.
        """
        super().__init__(directory, write=write, lock=RLock())
        self.directory = directory
        self.path = os.path.join(directory, "events.db")
        self._reads_beside = write
        # Called before the first write after the files were opened.
        self.on_first_write: Callable[[], object] | None = None
        self.refuses_links = True
        self._is_first = True
        self.patience = BUSY_SECONDS if patience is None else patience
        # What the transaction under way wakes others with: `ring` if it can make anybody due.
        self._signal: Callable[[], None] | None = None
        self.bell = Bell(directory)
        self._level: int | None = None  # of `synchronous`, for changes that are not relaxed
        self.changes = 0  # how many there were on this connection, but for pushes of one event
        self._vfs = vfs
        self.inodes = self._look()
        self._folder_time = -1
        self._links, self._next_count = 1, 0.0  # names of the file, and when they are counted next
        self._next_look = 0.0  # when a read looks whether it reads the files at the path
        self.open_connection: apsw.Connection | None = None
        self._is_aside = False  # closed for others, and opened again with the next use
        self._wal = 0  # the inode of the WAL that SQLite has opened
        self._stamp: Stamp | None = None  # of the files, when they are read without locks
        self.events = Events(self)
        self.consumers = Consumers(self)
        self._filters: Reader | None = None
        self._reader: Reader | None = None  # for reads beside a transaction
        self.handles = Handles.join(self)
        try:
            self._start()
        except (apsw.Error, OSError, UnicodeEncodeError) as error:
            self.close()
            raise self.explain(error) from error
        except BaseException:  # an interrupt as well
            self.close()
            raise

    def _start(self) -> None:
        """Open the database, as a new handle of this process; bring it up to date."""
        with self.lock:  # others make no handle give way that is half open
            self.handles.prepare(self)
            self.reopen()
            self._look_again()
            if self.writable:
                self.handles.make_way(self)
                if self.version < migrate.SCHEMA:
                    migrate.apply(self.connection, clock.stamp(clock.now()), self.version)
                    self._look_again()  # a newer eventq may have migrated it too

    @property
    def memory(self) -> Database:
        """The same database: it has every area."""
        return self

    def restore(self, rows: Sequence[Restored]) -> None:
        """Store events again, inside `write`; see `store.protocol`."""
        self.events.restore(rows)
        self.ring_on_commit()

    # --- the connection ---------------------------------------------------------------------------

    def _look(self) -> tuple[int, int, int]:
        """Return device and inode of the directory, and the inode of the database."""
        try:
            folder = os.stat(self.directory)
            return folder.st_dev, folder.st_ino, os.stat(self.path).st_ino
        except PermissionError as error:
            raise ReadOnlyError(
                f"'{self.directory}' may not be read", "check its permissions"
            ) from error
        except (OSError, ValueError) as error:
            raise NotAThreadError(self.directory) from error

    def _open(self) -> apsw.Connection:
        if os.path.isdir(self.path):
            raise DamagedError(f"'{self.path}' is a directory", way_back(self.path))
        if os.stat(self.path).st_size == 0:
            raise DamagedError(f"'{self.path}' is empty", way_back(self.path))
        return self._choose()

    def _choose(self) -> apsw.Connection:
        if not self.writable:
            from eventq.store.sqlite.readonly import is_shared  # a push needs nothing of it

            stamp = self._stamp_now()
            self._stamp = None if is_shared(stamp) else stamp
        return self._connect(write=self.writable)

    def reopen(self) -> apsw.Connection:
        """Open the files at the path, and use them from now on."""
        self.open_connection = connection = self._open()
        self.cursor = connection.cursor()
        self._note_wal()
        self._is_first, self._is_aside, self.is_relaxed = True, False, False
        self._level = None
        self._write_lock = WriteLock(self.path)
        self.changes += 1  # the numbers of another connection say nothing of this one
        return connection

    def _note_wal(self) -> None:
        """Remember which WAL SQLite has opened: it does so when it first reads."""
        self._wal = disk.inode_in(self.directory, _WAL)

    def may_begin(self) -> bool:
        """Return whether a transaction could begin, as soon as nobody else is in one."""
        connection = self.connection
        connection.set_busy_handler(None)
        try:
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.ReadOnlyError:
            return False
        except apsw.BusyError:
            pass
        finally:
            connection.set_busy_handler(Busy(self.patience))
        return True

    @property
    def is_open(self) -> bool:
        """Whether a connection of the handle is open."""
        return self.open_connection is not None or any(one.is_open for one in self._readers())

    @property
    def is_moment(self) -> bool:
        """Whether the handle reads at one moment."""
        return self.is_alone

    def step_aside_now(self) -> None:
        """Do so, but for a reader that somebody is inside."""
        self.step_aside(wait=False)

    def step_aside(self, *, wait: bool = True) -> None:
        """Close what is open; the next use opens it again, unless it goes on with something.

        A reader that somebody is inside is waited for; without `wait` it stays open.
        """
        self._is_aside = True
        for reader in self._readers():
            if reader.is_open:  # or it may be about to open, and waits for who calls this
                reader.close(wait=wait)
        try:
            if self.open_connection is not None:
                self.open_connection.close()
        finally:  # not before: an interrupt would leave it open
            self.open_connection = None

    def _come_back(self) -> apsw.Connection:
        """Open again after stepping aside; raise ClosedError after `close` and after a fork."""
        if self.forked or not self._is_aside:
            raise self.gone()
        with self.lock:
            if self.is_alone:
                raise MomentLostError
            if self._marks:
                raise _undone()
            if self.open_connection is None:
                self.reopen()
                if self.writable:
                    self.handles.make_way(self)
            return self.connection

    def _connect(self, *, write: bool) -> apsw.Connection:
        with self.handles.lock:
            if write:
                return connect(self.path, vfs=self._vfs, patience=self.patience)
            return connect_to_read(self.path, self._stamp, vfs=self._vfs, patience=self.patience)

    def _stamp_now(self) -> Stamp:
        from eventq.store.sqlite.readonly import stamp_of

        return stamp_of(self.path)

    def steady(self, call: Callable[[apsw.Connection], Any]) -> Any:
        """Run a read on the connection, retrying when a writer interferes."""
        tries = 0
        self.check_process()
        if not self._take():
            return self._beside(call)
        try:
            while True:
                try:
                    if not self._marks and clock.monotonic() > self._next_look:
                        self.alive()
                    if not self.writable and self._is_stale():
                        self._reopen()
                    found = call(self.ready() if self.writable else self.connection)
                    if self._stamp is None or self._stamp == self._stamp_now():
                        return found
                except (apsw.ProtocolError, apsw.ReadOnlyError) as error:
                    # A writer makes the index of the WAL anew, or was killed between its header and
                    # its first frame.
                    tries += 1 if isinstance(error, apsw.ReadOnlyError) else _LONG_TRY
                    if (
                        self.writable
                        or tries > _TRIES
                        or getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY
                    ):
                        raise self.explain(error) from error
                    clock.pause(_TRY_SECONDS)
                    self._reopen()
                except (apsw.Error, UnicodeError) as error:
                    if self._stamp is None or self._stamp == self._stamp_now():
                        raise self.explain(error) from error
                except FilterError as error:
                    raise self.explain(error) from error.__cause__
                except OSError as error:
                    raise NotAThreadError(self.directory) from error
        finally:
            self.lock.release()

    def _is_stale(self) -> bool:
        """Return whether files that are read without rights must be reopened in another way."""
        if self._stamp is None and self._marks:
            return False  # a moment that is held by a lock
        stamp = self._stamp_now()
        if self._stamp is not None:
            return self._stamp != stamp
        from eventq.store.sqlite.readonly import has_wal

        return not has_wal(stamp)

    def _reopen(self) -> None:
        if self._marks:
            raise MomentLostError
        self.step_aside()
        self.reopen()

    def filtered(self, call: Callable[[Any], Any]) -> Any:
        """Run a filter in its sandbox, on a connection of its own: writers need not wait for it.

        In a transaction and at a moment it judges the rows that are seen there.
        """
        if self.is_alone or (self.depth and self.in_write()):
            return self.steady(
                lambda c: self._in_sandbox(lambda fence: call(self._recheck(c, fence)))
            )
        if not self.writable:
            return self.steady(lambda _: self._in_sandbox(call))
        self.check_open()
        self.alive()  # not with the lock of the reader: nothing is waited for inside that
        try:
            return self._in_sandbox(call)
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error
        except FilterError as error:
            raise self.explain(error) from error.__cause__

    def _in_sandbox(self, call: Callable[[FilterSandbox], Any]) -> Any:
        reader = self._filters or self.filters
        with reader.lock:
            self.check_open()
            return call(reader.sandbox)

    def _recheck(self, connection: apsw.Connection, sandbox: FilterSandbox) -> Recheck:
        from eventq.store.sqlite.recheck import Recheck

        return Recheck(connection, sandbox)

    @property
    def filters(self) -> Reader:
        """The connection that filters run on; the module takes 1 ms of a command without any."""
        if self._filters is None:
            self._filters = self._new_reader()
        return self._filters

    def _new_reader(self) -> Reader:
        from eventq.store.sqlite.readers import Reader

        return Reader(lambda: self._connect(write=False))

    @property
    def sandbox(self) -> FilterSandbox:
        """Where filters run."""
        return self.filters.sandbox

    def _readers(self) -> list[Reader]:
        return [one for one in (self._filters, self._reader) if one is not None]

    @property
    def connection(self) -> apsw.Connection:
        """The open connection; raises ClosedError after `close` and in a forked process."""
        if self.open_connection is None or self.pid != os.getpid():
            return self._come_back()
        return self.open_connection

    @property
    def identity(self) -> str:
        """What distinguishes this thread from a later one at its path, however either is opened."""
        return ":".join(map(str, self.inodes))

    def interrupt(self) -> None:
        """End the statement that another thread runs, if there is one. Raises ClosedError."""
        self.check_open()
        connection = self.open_connection
        try:
            if connection is not None:
                connection.interrupt()
        except apsw.ConnectionClosedError:
            pass  # it makes way for others: nothing runs there
        for reader in self._readers():
            reader.interrupt()

    def check_open(self) -> None:
        """Raise ClosedError after `close`, and in a forked process."""
        if self.forked or (self.open_connection is None and not self._is_aside):
            raise self.gone()

    def check_process(self) -> None:
        """Refuse a forked process before it waits for a lock that nobody in it will release."""
        if self.pid != os.getpid():
            raise self.gone()

    def close(self) -> None:
        """Close the connections and cut a long WAL; do nothing the second time or after a fork."""
        if self.forked:
            return
        with self.lock:
            if self.writable and self.open_connection is not None:
                self._cut_wal(self.open_connection)
            self.step_aside()
            self._is_aside = False
            self.bell.close()
            self.handles.remove(self)

    def _cut_wal(self, connection: apsw.Connection) -> None:
        try:
            if os.stat(self.path + "-wal").st_size > LONG_WAL:
                connection.set_busy_handler(None)  # do not wait for readers
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.Error, OSError):
            pass  # the WAL is as good as the database; the next one cuts it

    def explain(self, error: Exception) -> EventqError:
        """Return eventq's error for one of SQLite's, and report what SQLite refused."""
        outdated = self._is_outdated(error)
        if isinstance(error, EventqError) and not outdated:
            return error
        if outdated:
            found: EventqError = migrate.outdated(self.path)
        else:
            found = self._full(error) or translate(error, self.path, self.patience)
        # Other errors are about a text or a path that the caller passed.
        of_sqlite = isinstance(error, (apsw.Error, FilterError))
        if self.on_refusal is not None and of_sqlite and isinstance(found, StoreError):
            self.on_refusal(found)
        return found

    def _full(self, error: Exception) -> EventqError | None:
        """Return the error for a table without more ids, which SQLite takes for a full disk."""
        if self.open_connection is None or not isinstance(error, apsw.FullError):
            return None
        sql = "SELECT name FROM sqlite_sequence WHERE seq = ?"
        full = self.open_connection.execute(sql, ((1 << 63) - 1,)).fetchall()
        return no_more_ids(str(full[0][0])) if full else None

    def _is_outdated(self, error: Exception) -> bool:
        """Return whether a newer eventq has changed the schema since the database was opened."""
        cause = error.__cause__ if isinstance(error, FilterError) else error
        # A filter may read the table of events and nothing else: not what a view of that name
        # reads.
        if self.open_connection is None or not (
            is_lacking(cause) or isinstance(cause, apsw.AuthError)
        ):
            return False
        try:
            return int(self.open_connection.pragma("user_version")) > self.version
        except apsw.Error:
            return False  # the first error says more

    def alive(self, *, thorough: bool = False) -> int:
        """Return the time of change of the directory, in ns.

        It looks at all files about once a second, or if it is `thorough`. Raise NotAThreadError
        when the thread was deleted or replaced, and LostError when its WAL was, and what this
        process had stored went with it.
        """
        try:
            folder = os.stat(self.directory)
            time = folder.st_mtime_ns
            device, inode, database = self.inodes
            now = clock.monotonic()
            # Times are not enough: a copy may have those of its original.
            if folder.st_ino != inode or folder.st_dev != device:
                raise NotAThreadError(self.directory)
            if thorough or time != self._folder_time or now > self._next_count:
                found = os.stat(self.path)
                is_first, self._next_count = not self._next_count, now + _COUNT_SECONDS
                self._links = found.st_nlink + os.path.islink(self.path)
                if found.st_ino != database:
                    raise NotAThreadError(self.directory)
                is_inside = bool(self._marks)  # then its end looks
                if not is_inside and not (self.has_wal() if is_first else self.is_current()):
                    self.handles.renew(self)
                is_young = clock.now() * 1e9 - time < _TICK
                self._folder_time = -1 if is_inside or is_young else time
            self._next_look = now + LOOK_SECONDS
        except OSError as error:
            raise NotAThreadError(self.directory) from error
        return time

    def is_current(self) -> bool:
        """Return whether the files at the path are those that are open, as far as a look tells."""
        if not self.has_wal():
            return False
        if self.writable or self.open_connection is None or self._stamp is not None:
            return True  # whoever may write has them copied up by opening them
        from eventq.store.sqlite.readonly import is_left_behind

        return not is_left_behind(self.path)

    def has_wal(self) -> bool:
        """Return whether the WAL at the path is the one that is open, if any is.

        Its number is read from the folder: `stat` of a WAL makes each later commit write its time.
        """
        if self.open_connection is None or self._stamp is not None:
            return True  # it is read without one, or compared with each read
        found = disk.inode_in(self.directory, _WAL)
        if not self._wal:  # of the original tool, until it is migrated: the next read opens it
            self._wal = found
        return found == self._wal

    # --- transactions -----------------------------------------------------------------------------

    def watch(self) -> Watcher:
        """Return a watcher for one waiter; it begins to watch at once, before the first look."""
        from eventq.store.sqlite.watcher import Watcher  # a push needs none

        return Watcher(self)

    def lease(self, consumer: str) -> Lease | None:
        """Take the lease of a consumer; return None while somebody else holds it.

        Raises OSError when a lock file cannot be made.
        """
        from eventq.system.locks import ConsumerLock, files_of

        return ConsumerLock.take(files_of(self.directory, consumer))

    def hold(self, consumer: str) -> Hold:
        """Note that this process works for a consumer; see `store.protocol`."""
        from eventq.system.locks import Hold

        return Hold(self.directory, consumer)

    def leases(self) -> Leases:
        """Return the current holders of leases."""
        from eventq.system.locks import Leases

        return Leases(self.directory)

    def reopened(self) -> Database:
        """Open the same database once more."""
        return Database(self.directory, write=self.writable, vfs=self._vfs)

    def is_original(self) -> bool:
        """Return whether this is a thread of the original tool, opened to read: a log only."""
        return self.is_older_than(migrate.OWN)

    def is_older_than(self, schema: int) -> bool:
        """Return whether the database has not been migrated to a schema yet."""
        if self.version < schema:
            self._look_again()
        return self.version < schema

    def has_causes(self) -> bool:
        """Return whether there are tables of causes: they came later than the memory."""
        return not self.is_older_than(migrate.CAUSES)

    def has_usage(self) -> bool:
        """Return whether there are tables of usage: they came later than the memory."""
        return not self.is_older_than(migrate.USAGE)

    def has_memory(self) -> bool:
        """Return whether there are tables but those of the original tool; see `is_original`."""
        return not self.is_original()

    has_queues = has_memory

    def check_tables(self, what: str) -> None:
        """Raise StoreError when this is a thread of the original tool, which has only a log."""
        if self.is_original():
            raise StoreError(
                f"'{self.path}' was written by the original 'thread' tool, and holds no {what}",
                "open it for writing once: any push brings it up to date",
            )

    def _look_again(self) -> None:
        """Read the version anew: somebody may have brought the database up to date meanwhile."""
        self.version = int(self.steady(lambda c: migrate.version(c, self.path)))

    def _begin(self, *, relaxed: bool, patience: float | None) -> None:
        try:
            connection = self.prepare_write(relaxed=relaxed)
            if patience is None:
                connection.execute(_BEGIN)
            else:
                self._begin_soon(connection, patience)
        except apsw.Error as error:
            raise self.explain(error) from error
        self._write_lock.note()

    def _begin_soon(self, connection: apsw.Connection, patience: float) -> None:
        """Begin, or raise BusyError without a note: whoever waits less than others expects it."""
        connection.set_busy_handler(Busy(patience))
        try:
            connection.execute(_BEGIN)
        except apsw.BusyError as error:
            raise translate(error, self.path, patience) from error
        finally:
            connection.set_busy_handler(Busy(self.patience))

    def _set_savepoint(self, depth: int) -> None:
        try:
            self.ready().execute(f"SAVEPOINT s{depth}")
        except apsw.Error as error:
            raise self.explain(error) from error

    def _release(self, depth: int) -> None:
        try:
            self.ready().execute(f"RELEASE s{depth}")
        except apsw.Error as error:
            raise self.explain(error) from error

    def _commit(self) -> None:
        connection = self.ready()
        if not self._write_lock.is_sound():
            self.alive()  # another thread may be at the path, which says more
            raise self._write_lock.lost()
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            raise self.explain(error) from error

    def _note(self, commit: Commit | None) -> None:
        """Do nothing: subscribers are told in any order."""

    def _tell(self, commit: Commit | None) -> None:
        self.alive()
        signal, self._signal = self._signal, None
        if commit is not None:
            self.tell(commit)
        elif signal is not None:
            signal()

    def _undo_statements(self, depth: int) -> None:
        connection = self.open_connection
        if connection is None or self.forked or connection.get_autocommit():
            return
        try:
            connection.execute(f"ROLLBACK TO s{depth}; RELEASE s{depth}" if depth else "ROLLBACK")
        except apsw.SQLError:
            pass  # a savepoint that was released before an interrupt
        except apsw.Error:
            self._spoiled = depth  # the next use of the connection tries again

    def _leave_behind(self) -> None:
        """Roll back what nobody is in any more, so that other processes need not wait for it."""
        connection = self.open_connection
        try:
            if connection is not None and not connection.get_autocommit():
                connection.execute("ROLLBACK")
        except apsw.Error:
            pass  # the next use tries again

    def prepare_write(self, *, relaxed: bool = False) -> apsw.Connection:
        """Return the connection for a change of its own: a statement, or a transaction that begins.

        Raises ReadOnlyError, and NotAThreadError for a thread that was moved away: what is stored
        there, nobody looks at.
        """
        self.changes += 1
        return self.prepare_push(relaxed=relaxed)

    def prepare_push(self, *, relaxed: bool = False) -> apsw.Connection:
        """Do the same for one event, which changes no consumer."""
        if self.open_connection is None or not self.writable:
            self.check_writable()
            self.check_open()
        self.alive()
        connection = self.open_connection or self.connection
        if self._links > 1 and self.refuses_links:
            self._check_links()
        if self._is_first:
            self._begin_to_write()
            connection = self.connection
        if not connection.get_autocommit():  # left behind by an interrupt
            connection.execute("ROLLBACK")
        if relaxed is not self.is_relaxed:
            self._set_level(relaxed=relaxed)
        return connection

    def _check_links(self) -> None:
        """Raise LogicError for a file with several names: SQLite keeps a WAL for each of them."""
        if os.path.islink(self.path):
            raise LogicError(
                f"'{self.path}' is a symbolic link, and its WAL lies beside the file it leads to",
                "move that file here, or let the whole directory be a link",
            )
        count, fresh = os.stat(self.path).st_nlink, os.path.join(self.directory, FRESH)
        if os.path.exists(fresh) and os.path.samefile(fresh, self.path):
            count -= 1  # by an init that goes on
        if count > 1:
            raise LogicError(
                f"'{self.path}' has {count} hard links: what is written under one name is lost"
                " under another",
                "make a copy of it and delete all but one, then put the copy in their places",
            )
        self._links = count

    def _begin_to_write(self) -> None:
        self._is_first = False  # it writes as well
        try:
            if not self._wal:
                self._make_wal()
            if self.on_first_write is not None:
                self.on_first_write()
        except BaseException:
            self._is_first = True
            raise

    def _make_wal(self) -> None:
        """Let the database have a WAL again: a copy by VACUUM INTO, such as a backup, has none."""
        connection = self.connection
        if connection.pragma("journal_mode") == "wal":
            return
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            return  # somebody goes on reading: the first write of another process does it
        first_look(connection)  # SQLite makes the WAL now
        self._note_wal()

    def _set_level(self, *, relaxed: bool) -> None:
        """Set what a commit waits for; it stays until the next change needs another."""
        if self._level is None:
            self._level = int(self.connection.pragma("synchronous"))
        # An interrupt may come in between: then a commit waits longer than it need, never less.
        self.is_relaxed = True
        if self._level > 1:
            self.connection.pragma("synchronous", 1 if relaxed else self._level)
        self.is_relaxed = relaxed

    def ready(self) -> apsw.Connection:
        """Return the connection; refuse to go on in a transaction that SQLite has undone.

        One that an interrupt has left behind is undone.
        """
        connection = self.open_connection or self.connection
        if self._spoiled:
            raise DiskError(
                "an earlier step of the transaction failed: nothing of it is stored",
                "do all of it again",
            )
        if connection.get_autocommit():
            if self._marks:
                raise _undone()
        elif not self._marks:
            connection.execute("ROLLBACK")
        return connection

    def snapshot(self) -> None:
        """Read from a snapshot as of now, until the database is closed.

        A read raises MomentLostError when what is read without locks has changed.
        """

        def begin(connection: apsw.Connection) -> None:
            connection.execute("BEGIN")
            # Only now does SQLite begin it.
            connection.execute("SELECT 1 FROM sqlite_schema").fetchall()

        self.steady(begin)
        self._hold_moment()

    def tell(self, commit: Commit) -> None:
        """Wake who waits for events, then call all subscribers with a commit."""
        self.bell.ring_for_events()
        self.call_subscribers(commit)

    def ring(self) -> None:
        """Wake who waits for something to do."""
        self.bell.ring()

    def ring_on_commit(self) -> None:
        """Ring after the transaction under way, or now if there is none."""
        if self.in_write():
            self._signal = self.ring
        else:
            self.ring()

    def wake(self) -> None:
        """Wake who watches the bell."""
        self.bell.wake()

    def wake_on_commit(self) -> None:
        """Wake who watches after the transaction under way, or now if there is none."""
        if not self.in_write():
            self.wake()
        elif self._signal is None:
            self._signal = self.wake

    def change(
        self, sql: str, bindings: tuple[Any, ...] = (), *, relaxed: bool = False
    ) -> list[Any]:
        """Run one statement that writes, and return its rows.

        Outside of `write`, one that names the view of the schema is a change of its own, which
        spares BEGIN and COMMIT; inside, it needs no savepoint.
        """
        self.check_process()
        if migrate.CURRENT not in sql and not self.in_write():
            with self.write(relaxed=relaxed):
                return self.change(sql, bindings)
        with self.lock:
            try:
                connection = self.ready() if self._marks else self.prepare_write(relaxed=relaxed)
                found = connection.execute(sql, bindings).fetchall()
            except (apsw.Error, UnicodeError) as error:
                raise self.explain(error) from error
            if not self._marks:
                self.alive()
            return found

    def tend(self, sql: str) -> None:
        """Run a statement that changes no row, outside of `write`."""
        with self.lock:
            try:
                self.prepare_write().execute(sql).fetchall()  # or it would not run to its end
            except apsw.Error as error:
                raise self.explain(error) from error
            self.alive()

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run one statement for each of some rows, inside `write`; return how many it changed."""
        try:
            connection = self.ready()
            before = connection.total_changes()
            self.cursor.executemany(sql, rows)
            return connection.total_changes() - before
        except (apsw.Error, UnicodeEncodeError) as error:
            raise self.explain(error) from error

    def later(self, sql: str, bindings: tuple[Any, ...] = ()) -> None:
        """Run one statement inside `write`: a file is not far."""
        try:
            self.ready()
            self.cursor.execute(sql, bindings)
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error

    def changed(self, sql: str, bindings: tuple[Any, ...] = ()) -> int:
        """Run one statement inside `write`; return how many rows it changed."""
        try:
            connection = self.ready()
            self.cursor.execute(sql, bindings)
            return connection.changes()
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error

    def insert(self, sql: str, bindings: tuple[Any, ...] = ()) -> int | None:
        """Store one row inside `write`; return its id, None if a conflict kept it out."""
        try:
            connection = self.ready()
            self.cursor.execute(sql, bindings)
            return connection.last_insert_rowid() if connection.changes() else None
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error

    def some(self, sql: str, bindings: tuple[Any, ...], room: int) -> list[tuple[Any, ...]]:
        """Return the first rows until their bytes fill `room`, at least one."""

        def read(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = []
            left = room
            cursor = connection.execute(sql, bindings)
            try:
                for row in cursor:
                    rows.append(row)
                    left -= sum([len(one) for one in row if one.__class__ is bytes])
                    if left <= 0:
                        break
            finally:
                cursor.close(force=True)
            return rows

        return self.steady(read)  # type: ignore[no-any-return]

    def inserts(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> list[int | None]:
        """Store some rows, as `insert` does each."""
        return [self.insert(sql, row) for row in rows]

    def last_id(self, table: str) -> int:
        """Return the highest id that a row of a table ever had, 0 for none."""
        return self.one("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)) or 0

    def new_ids(self, table: str, count: int) -> range:
        """Return ids that no row of a table has, inside `write`."""
        sql = f"SELECT max({table.removesuffix('s')}_id) FROM {table}"  # noqa: S608 (a constant)
        last = max(self.last_id(table), self.one(sql) or 0)
        if last + count >= 1 << 63:
            raise no_more_ids(table)
        return range(last + 1, last + 1 + count)

    def reserve(self, table: str, upto: int) -> None:
        """Give no new row of a table an id up to this one."""
        with self.joined():
            self.run("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self.run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, upto))

    def run(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement and return all its rows: no open cursor holds back a checkpoint.

        A statement that changes anything belongs inside `write`.
        """
        if not self.writable:
            return self.steady(lambda c: c.execute(sql, bindings).fetchall())  # type: ignore[no-any-return]
        if self.pid != os.getpid():
            raise self.gone()
        if not self.depth and clock.monotonic() > self._next_look:
            self.alive()
        if not self._take():
            return self._beside(lambda c: c.execute(sql, bindings).fetchall())  # type: ignore[no-any-return]
        try:
            connection = self.open_connection
            if (
                connection is None
                or self._spoiled
                or connection.get_autocommit() is bool(self._marks)
            ):
                connection = self.ready()
            return connection.execute(sql, bindings).fetchall()
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error
        finally:
            self.lock.release()

    def _beside(self, call: Callable[[apsw.Connection], Any]) -> Any:
        """Run a read on a second connection, which sees only committed data."""
        if self._reader is None:
            self._reader = self._new_reader()
        self.alive()
        try:
            reader = self._reader
            with reader.lock:
                self.check_open()
                return call(reader.connection)
        except (apsw.Error, UnicodeError) as error:
            raise self.explain(error) from error

    def one(self, sql: str, bindings: tuple[Any, ...] = ()) -> Any:
        """Run one statement; return the first column of its first row, or None."""
        rows = self.run(sql, bindings)
        return rows[0][0] if rows else None

    def milliseconds(self) -> int:
        """Return the time of this engine, in milliseconds since 1970."""
        return max(0, int(clock.now() * 1000))  # a clock that was never set may be before that

    def stamp(self) -> str:
        """Return the time of this engine as text."""
        return clock.stamp(clock.now())

    @property
    def queue_statements(self) -> QueueStatements:
        """The statements of changes of queues."""
        from eventq.store.sqlite import queues

        return queues

    def groups(self, events: Sequence[Event], by: str) -> list[str | None]:
        """Return what events are ordered by; None is no group."""
        from eventq.log.filters.ordering import groups_of

        return groups_of(events, by, self.connection)

    def data_version(self) -> int | None:
        """Return a number that changes when another connection has committed.

        Each connection has numbers of its own: None while another OS thread keeps it in `write`.
        """
        found: list[int] = []
        within(self.lock, _PATIENCE, lambda: found.append(int(self.one("PRAGMA data_version"))))
        return found[0] if found else None

    def compact(self) -> None:
        """Return the space of deleted rows to the system."""
        from eventq.store.sqlite.care import compact

        compact(self)

    def scrub(self) -> None:
        """Leave nothing in the files of what was deleted. Raises BusyError while it is read."""
        from eventq.store.sqlite.care import scrub

        scrub(self)

    def stats(self) -> Stats:
        """Return the sizes of what is stored."""
        from eventq.store.sqlite.care import stats

        return stats(self)

    def overview(self, limit: int) -> Overview:
        """Return what goes on in the memory; see `store.protocol`."""
        from eventq.store.overview import overview

        return overview(self, limit)

    def query(
        self,
        text: str,
        values: Values,
        limit: int | None,
        seconds: float,
        payload: Callable[[Any], str | bytes | None],
    ) -> Rows:
        """Run a statement that somebody wrote, at a moment; see `store.protocol`."""
        from eventq.store.sqlite.queries import query

        return query(self, text, values, limit, seconds, payload)

    def faults(self, area: Area = "log") -> Iterable[str]:
        """Yield a sentence for each fault of the rows of an area; see `store.protocol`."""
        return self._log_faults() if area == "log" else self.memory_faults(area)

    def texts(self) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
        """Yield what tables hold as text; see `Engine.texts`."""
        from eventq.store.sqlite.texts import texts

        return texts(self)

    def _log_faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is broken in the file, the events or consumers."""
        for (text,) in self.run("PRAGMA integrity_check(20)"):
            if text != "ok":
                yield f"the database is damaged: {text}"
        self._look_again()  # what a newer eventq has made meanwhile is no fault: this says so
        yield from self.steady(lambda c: migrate.faults(c, self.version))
        yield from self.events.faults()
        yield from self.consumers.faults()
        yield from self.events.counter_faults()
        if not self.is_original():
            yield from self.events.key_faults()
            yield from self.events.question_faults()
            yield from self.consumers.state_faults(self.events.last())
            yield from self.claims.faults()


def _undone() -> DiskError:
    """Return the error for a transaction that goes on after SQLite has undone it."""
    return DiskError(
        "the transaction was undone, as the disk refused an earlier step of it or the WAL was taken"
        " away: nothing of it is stored",
        "see that there is space, then do all of it again",
    )
