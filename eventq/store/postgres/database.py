"""The database of a thread in PostgreSQL: its connections, its transactions, and its errors.

A `write()` begins with a lock of the thread's row in `counters`, as a statement of its own: one
that locks and reads has a snapshot that is older than its lock. Only a push without a key may be
one statement. A notice is sent after the commit, as its own transaction would make every push wait,
and only while somebody waits for one.
"""

from __future__ import annotations

import json
import os
from _thread import RLock
from collections import deque

import psycopg
from psycopg.types.numeric import Int2

from eventq.errors import (
    BusyError,
    MomentLostError,
    NotAThreadError,
    StoreError,
    UnsupportedError,
)
from eventq.records.info import Stats
from eventq.store.engine import Engine
from eventq.store.postgres import failures, queues, schema
from eventq.store.postgres.claims import Claims
from eventq.store.postgres.connection import BEGIN, MINE, NOW, PLANNED, SET_PLANS, Link
from eventq.store.postgres.consumers import Consumers
from eventq.store.postgres.events import Events
from eventq.store.postgres.filters import Filters
from eventq.store.postgres.translated import translated
from eventq.store.rules import no_more_ids
from eventq.store.transactions import at_a_moment, is_owned
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn, TypeVar

    from eventq.errors import EventqError
    from eventq.records.event import Commit, Event, NewEvent
    from eventq.records.info import Overview
    from eventq.store.address import Address
    from eventq.store.postgres.connection import Rows, Then, Values
    from eventq.store.postgres.leases import Hold, Lease, Leases
    from eventq.store.postgres.translated import Translated
    from eventq.store.postgres.watcher import Watcher
    from eventq.store.protocol import Area
    from eventq.store.queue_rules import QueueStatements

    T = TypeVar("T")

# ruff: noqa: S608 (the parts are constants)

_MOST_LATER = 100  # statements that wait for the next trip
_MOST_EARS = 4  # connections that listen, and wait for the next waiter
_FORGOTTEN = "the connection was lost in the middle of a transaction: nothing of it is stored"

# To look at all of a million takes the better part of a second.
_SIZE = f"""
SELECT coalesce(avg(bytes), 0)
FROM (
    SELECT pg_column_size(e.*) AS bytes
    FROM eventq.events e
    WHERE {MINE}
    ORDER BY id DESC
    LIMIT 1000
) newest
"""
_LOCK = f"""
SELECT awake_until > extract(epoch FROM clock_timestamp()) * 1000, last_ids,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM eventq.counters
WHERE bucket = $1 AND thread_id = $2 AND {schema.IS_CURRENT}
FOR NO KEY UPDATE
"""
_KEEP_IDS = "UPDATE eventq.counters SET last_ids = $3 WHERE bucket = $1 AND thread_id = $2"
_LAST_IDS = f"SELECT last_ids FROM eventq.counters WHERE {MINE}"
_OF_A_QUEUE = "%(b)s"  # is in a statement of `queues`, and in none of the memory
_LAST = (1 << 63) - 1  # the highest id
_FEW, _MANY = 8, 1_000  # rows of the first page of `some`, and of another
_TIME = f"SELECT {NOW}"
_ALIVE = f"SELECT awake_until FROM eventq.counters WHERE {MINE}"


class Database(Engine):
    """One thread; safe to use from several OS threads, of one process."""

    identity: str = ""
    is_shared = True
    clock: Callable[[], int] | None = None  # in place of the server's

    if TYPE_CHECKING:
        events: Events
        consumers: Consumers
        claims: Claims

    def __init__(self, address: Address, *, write: bool = True) -> None:
        """Open the thread at an address; without `write`, nothing is ever changed.

        Raises NotAThreadError when there is none, StoreError when the server cannot be reached or
        its tables are older, DamagedError when they are newer.
        """
        self.link = Link(address)
        super().__init__(address.shown, write=write, lock=self.link.lock)
        self.address = address
        self.other = Link(address)  # for what is done beside a transaction
        self._ears: list[Link] = []  # connections that listen, and that nobody waits at
        self.is_closed = False
        self._rings = False
        self._untold: deque[Commit] = deque()
        self._telling = RLock()  # of who tells it
        self.is_awake = False  # somebody waited for notices when it was looked at last
        self.filters = Filters()
        try:
            found = self._found()
        except BaseException:
            self.link.close()
            raise
        self.keys: dict[str, Any] = {"b": found.bucket, "t": found.thread_id, "now": None}
        self.identity = found.identity
        self._parted = found.parted
        self.channel = f"eventq_{found.thread_id}"
        self._notify = _telling(self.channel)
        self._tell_of_memory = _telling(f"{self.channel}_memory")  # which wakes no worker
        self._in_memory = False  # whether the transaction under way has used the memory
        self.events = Events(self)
        self.consumers = Consumers(self)
        self.claims = Claims(self)
        self.on_first_write = None
        self.refuses_links = False
        self._is_to_begin = False  # the server knows nothing of the transaction yet
        self._patience: float | None = None  # seconds that it waits for other writers
        self._kept_ids = ""  # the last ids of the row that is locked, as JSON
        self._ids: dict[str, int] | None = None  # those, as this transaction has used them
        self._marked_ids: list[dict[str, int] | None] = []  # as savepoints found them
        self._began = (0, 0.0)  # the server's time when the row was locked, and ours

    def _found(self) -> schema.Found:
        try:
            return self.link.tried(lambda link: schema.find(link, self.address))
        except psycopg.Error as error:
            raise failures.translate(error, self.address) from error

    @property
    def memory(self) -> Database:
        """The same database: it has every area."""
        return self

    # --- the connection ---------------------------------------------------------------------------

    def check_process(self) -> None:
        """Refuse a forked process before it waits for a lock that nobody in it will release."""
        if self.is_closed or self.pid != os.getpid():
            raise self.gone()

    check_open = check_process

    def close(self) -> None:
        """Close the connections; do nothing the second time or after a fork."""
        if self.is_closed or self.forked:
            return
        with self.lock, self.other.lock:
            self.is_closed = True
            for link in (self.link, self.other, *self._ears):
                link.release()
            self.filters.close()

    def explain(self, error: psycopg.Error) -> EventqError:
        """Return eventq's error for one of PostgreSQL's, and report what it refused."""
        found = failures.translate(error, self.address)
        if self.on_refusal is not None and isinstance(found, StoreError):
            self.on_refusal(found)
        return found

    def alive(self, *, thorough: bool = False) -> int:  # noqa: ARG002 (the same as that of SQLite)
        """Return 0. Raises NotAThreadError when the thread was deleted."""
        if not self.rows(_ALIVE):
            raise NotAThreadError(self.address.shown)
        return 0

    def has_causes(self) -> bool:
        """Return True: there are tables of causes."""
        return True

    def has_usage(self) -> bool:
        """Return True: there are tables of usage."""
        return True

    def has_memory(self) -> bool:
        """Return True: there are turns and blobs."""
        return True

    def check_tables(self, what: str) -> None:
        """Do nothing: the tables are there."""

    def has_queues(self) -> bool:
        """Return True: there are claims."""
        return True

    # --- statements -------------------------------------------------------------------------------

    def bound(self, values: Values | None) -> Values:
        """Return values for a statement, with those that name the thread."""
        if self.clock is not None:
            return {**self.keys, **(values or {}), "now": self.clock()}
        return self.keys if values is None else {**self.keys, **values}

    def rows(self, sql: str, values: Values | None = None) -> Rows:
        """Run a statement that reads; it is tried again when the connection is lost."""
        given = self.bound(values)
        return self.reading(lambda link: link.run(sql, given))

    def value(self, sql: str, values: Values | None = None) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    def reading(self, call: Callable[[Link], T]) -> T:
        """Call a function that reads on a connection.

        During a transaction of another OS thread it is a second one, which sees what is committed.
        """
        self.check_process()
        if not self._take():
            return self.aside(call)
        try:
            if self._marks:
                return self._inside(call)
            self.link.clean()  # of what an interrupt has left
            return self._tried(self.link, call)
        finally:
            self.lock.release()

    def changing(self, call: Callable[[Link], T], *, again: bool = False) -> T:
        """Call a function that changes something, as one transaction or inside the one under way.

        It is tried again when the server has certainly undone it, and if `again` is true also when
        nobody knows: then it may be done twice without harm. Raises UnknownOutcomeError.
        """
        self.check_process()
        with self.lock:
            self.check_writable()
            if self._marks:
                return self._inside(call)
            self.link.clean()
            return self._tried(self.link, call, again=again, changes=True)

    def _tried(
        self, link: Link, call: Callable[[Link], T], *, again: bool = True, changes: bool = False
    ) -> T:
        try:
            return link.tried(call, again=again, changes=changes)
        except psycopg.Error as error:
            raise self.explain(error) from error

    def _inside(self, call: Callable[[Link], T]) -> T:
        """Call a function inside the transaction under way."""
        self.ready()
        if self._is_to_begin:
            return self._first(call)
        try:
            return call(self.link)
        except psycopg.Error as error:
            self._spoiled = self.depth
            if not self.link.is_lost or failures.is_limit(error):
                raise self.explain(error) from error
            if self.is_alone:
                raise MomentLostError("the moment was lost with the connection") from error
            raise BusyError(_FORGOTTEN, "do all of it again") from error
        except BaseException:
            if not self.link.goes_on:  # an interrupt, and the statement or all of it is undone
                self._spoiled = self.depth
            raise

    def _first(self, call: Callable[[Link], T]) -> T:
        """Call a function in the trip that begins the transaction; nothing was done before it."""

        def begun(link: Link) -> T:
            self._lock_row(link)
            return call(link)

        if self._patience is None:
            return self._tried(self.link, begun)
        try:
            return self.link.tried(begun)
        except psycopg.Error as error:  # that it could not begin is no refusal to note
            raise failures.translate(error, self.address) from error

    # --- transactions -----------------------------------------------------------------------------

    def reopened(self) -> Database:
        """Open the same thread once more, to read."""
        own = Database(self.address, write=False)
        own.clock = self.clock
        return own

    if TYPE_CHECKING:

        def read(self) -> AbstractContextManager[Database]:  # type: ignore[override]
            """See `Transactions.read`."""

    def _begin(self, *, relaxed: bool, patience: float | None) -> None:
        """Begin, with the first statement: the row is locked in one trip with it."""
        self.check_writable()
        self.link.clean()
        self.is_relaxed, self._is_to_begin, self._in_memory = relaxed, True, False
        self._patience = patience

    def _lock_row(self, link: Link) -> None:
        """Lock the row of the thread with the next trip."""
        link.later(BEGIN, ())
        if self.is_relaxed:
            link.later("SET LOCAL synchronous_commit = off", ())
        if self.address.pooled or self._patience is not None:
            seconds = failures.WAIT_SECONDS if self._patience is None else self._patience
            link.later(f"SET LOCAL lock_timeout = '{max(1, round(seconds * 1000))}ms'", ())
        if self.address.pooled:
            link.later(PLANNED, ())
        link.later(_LOCK, self.key, self._locked)

    def _locked(self, rows: Rows) -> None:
        """Note what the row of the thread says."""
        if not rows:
            raise NotAThreadError(self.address.shown)
        awake, ids, now = rows[0]
        self.is_awake = bool(awake)
        self._kept_ids, self._ids = ids or "{}", None
        self._began = int(now), clock.monotonic()
        self._is_to_begin = False

    def _have_begun(self) -> None:
        if self._is_to_begin:
            self._inside(Link.settle)

    def _set_savepoint(self, depth: int) -> None:
        self._inside(lambda link: link.script(f"SAVEPOINT s{depth}"))
        self._marked_ids[depth - 1 :] = [None if self._ids is None else {**self._ids}]

    def _release(self, depth: int) -> None:
        self._inside(lambda link: link.script(f"RELEASE s{depth}"))

    def _commit(self) -> None:
        self.check_process()
        if not (self._is_to_begin or self.link.goes_on):
            self._spoiled = self.depth  # the server would roll back, and call that a success
        self.ready()
        self._have_begun()
        try:
            self._keep_ids()
            self.link.script("COMMIT")
        except psycopg.Error as error:
            if self.link.is_lost:
                raise failures.unknown(self.address) from error
            raise self.explain(error) from error

    def _keep_ids(self) -> None:
        """Store the ids that the transaction has given, if it has, with its commit."""
        ids = "" if self._ids is None else json.dumps(self._ids)
        if ids not in ("", self._kept_ids):
            self.link.later(_KEEP_IDS, [*self.key, ids])

    def _note(self, commit: Commit | None) -> None:
        rings, self._rings = self._rings, False
        if commit is not None:
            self.note(commit)
        elif self.is_awake and (rings or self._in_memory):
            self.link.tell(self._notify if rings else self._tell_of_memory)

    def _tell(self, commit: Commit | None) -> None:  # noqa: ARG002 (it is among those noted)
        self.tell()

    def _undo_statements(self, depth: int) -> None:
        self._ids = self._marked_ids[depth - 1] if depth else None
        self.link.forget()
        if self._is_to_begin:
            self._is_to_begin = bool(depth)
            return
        if not self.link.in_transaction:  # it is lost with the connection
            self._spoiled = depth
            return
        try:
            inside = f"ROLLBACK TO s{depth}", f"RELEASE s{depth}"
            self.link.script(*(inside if depth else ("ROLLBACK",)))
        except psycopg.Error:
            self.link.close()
            self._spoiled = depth

    def _leave_behind(self) -> None:
        self._is_to_begin = False
        self.link.clean()

    def ready(self) -> None:
        """Refuse to go on in a transaction of which an earlier step failed."""
        if self._spoiled:
            raise StoreError(
                "an earlier step of the transaction failed: nothing of it is stored",
                "do all of it again",
            )

    def snapshot(self) -> None:
        """Read from a snapshot as of now, until the database is closed."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        look = f"""
            SELECT 1
            FROM eventq.counters
            WHERE bucket = {self.keys["b"]} AND thread_id = {self.keys["t"]}
        """  # only this begins the moment
        plans = SET_PLANS if self.address.pooled else ""
        self._tried(self.link, lambda link: link.script(f"{begin}; {plans}{look}"))
        self._hold_moment()

    # --- notices ----------------------------------------------------------------------------------

    def ring(self) -> None:
        """Send a notice to all who wait for this thread."""
        with self.lock:
            if not self._marks:
                self.link.tell(self._notify)

    def ring_on_commit(self) -> None:
        """Ring after the transaction under way, or now if there is none."""
        if self.in_write():
            self._rings = True
        else:
            self.ring()

    def note(self, commit: Commit) -> None:
        """Send a notice if somebody waits for one, and note a commit for `tell`.

        The lock is held since before the commit, so that commits are noted in the order of ids.
        """
        self._untold.append(commit)
        if self.is_awake:
            self.link.tell(self._notify)

    def tell(self) -> None:
        """Call all subscribers with each commit that was noted, in order, with no lock held.

        If another OS thread does so already, it goes on with those: nobody waits for the
        subscribers that another one calls.
        """
        while self._untold and not is_owned(self._telling):
            try:
                if not self._telling.acquire(blocking=False):
                    return
                while self._untold:
                    self.call_subscribers(self._untold.popleft())
            finally:
                if is_owned(self._telling):
                    self._telling.release()

    def aside(self, call: Callable[[Link], T]) -> T:
        """Call a function on a connection that takes no part in the transaction under way."""
        with self.other.lock:
            self.check_process()
            return self._tried(self.other, call)

    def take_ears(self) -> Link:
        """Return a connection for a waiter."""
        return self._ears.pop() if self._ears else Link(self.address, shared=False)

    def give_ears(self, link: Link) -> None:
        """Keep a waiter's connection for the next one."""
        if self.is_closed or len(self._ears) >= _MOST_EARS:
            link.close()
        else:
            self._ears.append(link)

    # --- others -----------------------------------------------------------------------------------

    def watch(self) -> Watcher:
        """Return a watcher for one waiter; what is committed from now on wakes it."""
        from eventq.store.postgres.watcher import Watcher

        return Watcher(self)

    def lease(self, consumer: str) -> Lease | None:
        """Take the lease of a consumer; return None while somebody else holds it."""
        from eventq.store.postgres.leases import Lease

        return Lease.take(self, consumer)

    def hold(self, consumer: str) -> Hold:
        """Note that this process works for a consumer."""
        from eventq.store.postgres.leases import Hold

        return Hold(self, consumer)

    def leases(self) -> Leases:
        """Return who holds which leases."""
        from eventq.store.postgres.leases import Leases

        return Leases(self)

    def interrupt(self) -> None:
        """End the statement that another OS thread runs, if there is one. Raises ClosedError."""
        self.check_process()
        self.link.interrupt()

    def data_version(self) -> None:
        """Return None: the server does not say."""

    def compact(self) -> None:
        """Do nothing: autovacuum returns the space of deleted rows."""

    def stats(self) -> Stats:
        """Return the bytes of the stored events, by the newest; the rest is the server's."""
        return Stats(round(self.value(_SIZE) * self.events.bounds().stored), 0, 0)

    def milliseconds(self) -> int:
        """Return the time of the server, in ms since 1970; in `write`, by the clock of this host.

        The server said it when the row of the thread was locked.
        """
        if self.clock is not None or not self.in_write():
            return int(self.value(_TIME))
        self._have_begun()
        began, here = self._began
        return began + int((clock.monotonic() - here) * 1000)

    def stamp(self, at: int | None = None) -> str:
        """Return a time of the server, in ms, as text; None is now."""
        at = self.milliseconds() if at is None else at
        return clock.stamp((at + 0.5) / 1000)  # in a float, a whole ms may be just below itself

    # --- changes of queues ------------------------------------------------------------------------

    @property
    def queue_statements(self) -> QueueStatements:
        """The statements of changes of queues."""
        return queues

    # --- statements of the memory, and of queues ------------------------------------------------

    def run(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement and return its rows; one that writes, inside `write`."""
        if _OF_A_QUEUE in sql:
            given = self.bound(_numbered(bindings))
            return self.changing(lambda link: link.run(sql, given))
        return self._execute(self.translated(sql), bindings)[0]

    @property
    def schema_guard(self) -> str:  # type: ignore[override]
        """What a statement says in place of the row that its `write` locks."""
        from eventq.store.postgres.statements import GUARD  # a push needs none of them

        return GUARD

    def translated(self, sql: str) -> Translated:
        """Return the translation of a statement of the memory."""
        self._in_memory = True
        return translated(sql, parted=self._parted)

    def _execute(self, found: Translated, bindings: tuple[Any, ...]) -> tuple[Rows, int]:
        values = self._values(found, bindings)
        done = self.reading(lambda link: link.numbered(found.text, values))
        name = found.table or found.given
        if name and done[0]:
            ids = self._counted()
            ids[name] = max(ids.get(name, 0), *(row[0] for row in done[0]))
        return done

    @property
    def key(self) -> list[Any]:
        """The key of the thread, $1 and $2 of a statement."""
        return [Int2(self.keys["b"]), self.keys["t"]]

    def _values(self, found: Translated, bindings: tuple[Any, ...]) -> list[Any]:
        """Return what a statement is bound to: the thread, perhaps the next id, and its own."""
        values = self.key
        if found.table:
            values.append(self._next(found.table))
        return [*values, *bindings][: found.values]

    def _next(self, table: str) -> int:
        last = self._counted().get(table, 0)
        if last >= _LAST:
            raise no_more_ids(table)
        return last + 1

    def _counted(self) -> dict[str, int]:
        """Return the last ids, inside `write`."""
        if self._ids is None:
            self._have_begun()
            self._ids = json.loads(self._kept_ids)
        return self._ids

    def one(self, sql: str, bindings: tuple[Any, ...] = ()) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.run(sql, bindings)
        return rows[0][0] if rows else None

    def change(
        self, sql: str, bindings: tuple[Any, ...] = (), *, relaxed: bool = False
    ) -> list[Any]:
        """Run one statement that writes, also outside of `write`, and return its rows."""
        if self.in_write():
            return self.run(sql, bindings)
        with self.write(relaxed=relaxed):
            return self.run(sql, bindings)

    def some(self, sql: str, bindings: tuple[Any, ...], room: int) -> list[tuple[Any, ...]]:
        """Return the first rows until their bytes fill `room`, at least one."""
        found = self.translated(sql)
        return self.filling(found.text, self._values(found, bindings), room)

    def filling(self, sql: str, values: Sequence[Any], room: int) -> list[tuple[Any, ...]]:
        """Return the first rows of PostgreSQL's text, as `some` does.

        They come in pages, so that no more is in memory: the first is small, as most have few rows.
        """
        size = _FEW
        rows: list[tuple[Any, ...]] = []
        text = f"{sql} LIMIT ${len(values) + 1} OFFSET ${len(values) + 2}"
        while size:
            given = [*values, size, len(rows)]
            page = self.reading(lambda link, given=given: link.numbered(text, given)[0])  # type: ignore[misc]
            rows += page
            sizes = [sum(len(one) for one in row if one.__class__ is bytes) for row in rows]
            left = room - sum(sizes)
            size = 0 if len(page) < size or left <= 0 else max(1, left // max(1, *sizes))
            size = min(size, _MANY)
        return rows

    def last_id(self, table: str) -> int:
        """Return the highest id that a row of a table ever had, 0 for none."""
        if self.in_write():
            return self._counted().get(table, 0)
        return int(json.loads(self.value(_LAST_IDS) or "{}").get(table, 0))

    def new_ids(self, table: str, count: int) -> range:
        """Return ids that no row of a table has, inside `write`."""
        from eventq.store.postgres.statements import COUNTED

        if table in COUNTED:
            first = self._next(table)
            self._counted()[table] = first + count - 1
        else:
            highest = f"SELECT max({table.removesuffix('s')}_id) FROM eventq.{table} WHERE {MINE}"
            first = int(self.value(highest) or 0) + 1
        if first + count > _LAST:
            raise no_more_ids(table)
        return range(first, first + count)

    def reserve(self, table: str, upto: int) -> None:
        """Give no new row of a table an id up to this one."""
        with self.joined():
            if table == "events":
                self.events.count_to(upto)
            else:
                self._counted()[table] = upto

    def restore(self, rows: Sequence[tuple[int, str, NewEvent]]) -> None:
        """Store events again, inside `write`; see `Engine.restore`."""
        self.events.restore(rows)
        self.ring_on_commit()

    def changed(self, sql: str, bindings: tuple[Any, ...] = ()) -> int:
        """Run one statement inside `write`; return how many rows it changed."""
        return self._execute(self.translated(sql), bindings)[1]

    def later(self, sql: str, bindings: tuple[Any, ...] = ()) -> None:
        """Run one statement inside `write`, at the latest with its commit."""
        self._send_later(self.translated(sql), bindings)

    def insert(self, sql: str, bindings: tuple[Any, ...] = ()) -> int | None:
        """Store one row inside `write`; return its id, None if a conflict kept it out."""
        found = self.translated(sql)
        if found.table and " CONFLICT" not in found.text:  # the id is known
            return self._send_later(found, bindings)
        rows = self._execute(found, bindings)[0]
        return rows[0][0] if rows else None

    def inserts(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> list[int | None]:
        """Store some rows in one trip, as `insert` does each; their ids are not counted."""
        found = self.translated(sql)
        made: list[Rows] = []
        for row in rows[:-1]:
            self._send_later(found, row, made.append)
        if rows:
            made.append(self._execute(found, rows[-1])[0])
        return [one[0][0] if one else None for one in made]

    def _send_later(
        self, found: Translated, bindings: tuple[Any, ...], then: Then | None = None
    ) -> int:
        """Run a statement by the next trip; return the id that it is given, or 0."""
        self.ready()
        self._have_begun()
        values = self._values(found, bindings)
        self.link.later(found.text, values, then)
        if self.link.waiting > _MOST_LATER:
            self._inside(Link.settle)
        if not found.table:
            return 0
        number: int = values[2]
        self._counted()[found.table] = number
        return number

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run a statement for each of some rows, together; return how many it changed."""
        if _OF_A_QUEUE in sql:
            steps = [(sql, self.bound(_numbered(row))) for row in rows]
            if steps:
                self.changing(lambda link: link.together(steps))
            return len(steps)
        found = self.translated(sql)
        values = [self._values(found, (*row,)) for row in rows]
        if found.table:
            first = self._next(found.table)
            for number, row in enumerate(values, first):
                row[2] = number
            self._counted()[found.table] = first + len(values) - 1
        if found.rows and len(values) > 1:
            lists = [*self.key, *map(list, zip(*(row[2:] for row in values), strict=True))]
            return self.reading(lambda link: link.numbered(found.rows, lists))[1]
        return self.reading(lambda link: link.each(found.text, values)) if values else 0

    def groups(self, events: Sequence[Event], by: str) -> list[str | None]:
        """Return what events are ordered by; None is no group."""
        return self.filters.groups(events, by)

    def wake_on_commit(self) -> None:
        """Ring after the transaction under way, or now if there is none."""
        self.ring_on_commit()

    def overview(self, limit: int) -> Overview:
        """Return what goes on in the memory; see `Engine.overview`."""
        from eventq.store.overview import overview

        return overview(self, limit)

    def query(self, *_: object) -> NoReturn:
        """Refuse it. Raises UnsupportedError."""
        raise UnsupportedError(
            "this thread is in PostgreSQL: 'sql' reads the SQLite file of a directory",
            "run psql on its database, where the tables are in the schema eventq",
        )

    def texts(self) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
        """Yield what tables hold as text; see `Engine.texts`."""
        from eventq.store.postgres.texts import texts

        return texts(self)

    def scrub(self) -> None:
        """Do nothing: what is left of deleted rows in its files is the server's."""

    def faults(self, area: Area = "log") -> Iterable[str]:
        """Return a sentence for each fault of the rows of an area."""
        if area == "log" or self.is_alone:
            return self._log_faults() if area == "log" else self.memory_faults(area)
        return at_a_moment(lambda: self._faults_now(area))

    def _faults_now(self, area: Area) -> list[str]:
        with self.read() as moment:
            return [*moment.memory_faults(area)]

    def _log_faults(self) -> Iterator[str]:
        yield from self.events.faults()
        yield from self.consumers.faults()
        yield from self.claims.faults()


def _telling(channel: str) -> bytes:
    """Return what sends a notice: a transaction of its own, which waits for no disk."""
    return f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {channel}; COMMIT".encode()


def _numbered(values: tuple[Any, ...]) -> dict[str, Any]:
    """Return values by their number from 1, truth as 1 or 0."""
    return {
        str(n): int(value) if value.__class__ is bool else value
        for n, value in enumerate(values, 1)
    }
