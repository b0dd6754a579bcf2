"""One connection to the server: statements, round trips of several, and what follows a loss.

A statement has named parameters, `%(name)s`. What must be one round trip is sent as a pipeline. The
connection is opened when it is needed first, and anew after it was lost; whoever uses it holds
`lock`. Where connections are shared, it is borrowed for a trip or a transaction.

After an error the connection itself is asked whether it is still there: a list of codes would never
be whole, as poolers have their own. If it is gone, nobody knows what the server did (`is_lost`).
"""

from __future__ import annotations

import logging
import os
from _thread import RLock, get_ident
from random import random

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper

from eventq.errors import EventqError, InputError, StoreError
from eventq.store.postgres import failures
from eventq.store.postgres.pool import Wire, pool_of
from eventq.system import clock, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from eventq.store.address import Address

    Values = Mapping[str, Any]
    Step = tuple[str, Values]
    Rows = list[tuple[Any, ...]]
    Then = Callable[[Rows], object]
    Later = tuple[str, Sequence[Any], Then | None]
    T = TypeVar("T")

# What every statement says of the thread, and the time of the server in ms unless one is given.
MINE = "bucket = %(b)s AND thread_id = %(t)s"
NOW = "coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_CONNECT_SECONDS = 10
_PREPARED = 500  # statements that a connection keeps: ours, and some with filters of consumers
_PAUSE_SECONDS = 0.05  # between two tries to reach a server; doubled for each further one
_PAUSE_AGAIN = 0.01  # before a statement is tried again; doubled likewise
_PAUSE_MOST = 1.0
# A peer that is gone without a word is noticed, and so is one that does not take what is sent.
_ALIVE: dict[str, Any] = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": failures.WAIT_SECONDS * 1000,
    "application_name": "eventq",
}
# Without a handler, Python writes to stderr what psycopg logs; a lost connection is our error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
# The transaction waits for the disk, whatever EVENTQ_SYNCHRONOUS or the role says.
DURABLE = """set_config('synchronous_commit', CASE current_setting('synchronous_commit')
WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"""
# At any other level, a statement that has waited for the lock of a thread fails.
_ISOLATION = r" -c default_transaction_isolation=read\ committed"
# Joins stand as they are to be done, see `scripts/sqlgen.py`; what is left to choose is the index.
# A plan for one thread's values would trust statistics that know nothing of it, or are of an hour
# ago.
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_memoize": "off",
}
SET_PLANS = "".join(f"SET LOCAL {name} = {value}; " for name, value in _PLANS.items())
# The same for a statement by itself, which is no block of a transaction.
PLANNED = "SELECT " + ", ".join(f"set_config('{k}', '{v}', true)" for k, v in _PLANS.items())
_PLANS_SECONDS = 10.0  # that plans last at most: tables grow
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"  # a pooler takes no options
_RELAXED = "SELECT set_config('synchronous_commit', 'off', true)"
# It is gone, or an interrupt has kept an answer from being read to its end.
_UNUSABLE = (TransactionStatus.UNKNOWN, TransactionStatus.ACTIVE)


class _Truth(psycopg.adapt.Dumper):
    """Binds a truth as a number, as in SQLite."""

    oid = 20
    format = Format.BINARY

    def dump(self, value: int) -> bytes:
        """Return the number in eight bytes; in a list, other numbers may be among truths."""
        return int(value).to_bytes(8, "big", signed=True)


class Link:
    """A connection that one caller uses at a time, inside `with lock`."""

    def __init__(self, address: Address, *, shared: bool = True) -> None:
        """Prepare; nothing is opened yet. One that listens cannot be `shared` with others."""
        self.address = address
        self.lock = RLock()
        self.listens = False  # what comes on it by itself are notices
        self.trips = 0  # round trips since it was opened
        self.is_lost = False  # the last one ended without an answer that can be trusted
        self._raw: list[psycopg.RawCursor[Any]] = []
        self._wire: Wire | None = None
        self._pool = pool_of(address) if shared else None
        self._heard_on = ""  # the channel that it listens on
        self._later: list[Later] = []  # what goes with the next trip

    # --- the connection ---------------------------------------------------------------------------

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, idle or in a transaction; open one if there is none."""
        while True:
            wire = self._wire
            if wire is None:
                wire = self._borrow()
            if wire.is_telling:
                self._hear(wire)
            if self._wire is not None:
                return wire.connection

    def _borrow(self) -> Wire:
        """Take a connection from the pool, if there is one that is sound, or open one."""
        wire = None if self._pool is None else self._pool.take()
        try:
            if wire is None:
                wire = Wire(self._open())
        finally:
            if wire is None and self._pool is not None:
                self._pool.give(None, get_ident())
        self._wire = wire
        return wire

    def _return(self) -> None:
        """Give a borrowed connection back when nothing is under way on it."""
        wire = self._wire
        if self._pool is not None and wire is not None and not self.in_transaction:
            self._wire = None
            self._pool.give(wire, wire.borrower)

    def _open(self) -> psycopg.Connection[Any]:
        """Connect; wait for a server that starts or fails over. Raises StoreError and others."""
        deadline, pause = clock.monotonic() + failures.WAIT_SECONDS, _PAUSE_SECONDS
        while True:
            try:
                return self._connect()
            except psycopg.Error as error:
                if not self._may_pass(error) or clock.monotonic() + pause > deadline:
                    raise failures.unreachable(error, self.address) from error
            clock.pause(pause)
            pause = min(pause * 2, _PAUSE_MOST)

    def _may_pass(self, error: psycopg.Error) -> bool:
        """Return whether waiting may help: a standby may take over, a primary stays read-only."""
        if not failures.is_read_only(error):
            return is_passing(error)
        try:
            self._connect(target_session_attrs="primary").close()
        except psycopg.Error:
            return True
        return False

    def _connect(self, **target: Any) -> psycopg.Connection[Any]:
        place, more = self.address.conninfo, {**_ALIVE, **target, "client_encoding": "UTF8"}
        if self.address.pooled:
            return psycopg.connect(place, autocommit=True, prepare_threshold=None, **more)
        given = conninfo_to_dict(place).get("options") or os.environ.get("PGOPTIONS", "")
        relaxed = environment.env_choice("EVENTQ_SYNCHRONOUS", "full", "normal") == "normal"
        level = " -c synchronous_commit=off" * relaxed
        wait = f" -c lock_timeout={failures.WAIT_SECONDS}s"
        plans = "".join(f" -c {name}={value}" for name, value in _PLANS.items())
        more["options"] = f"{given}{_ISOLATION}{plans}{wait}{level}".strip()
        made = psycopg.connect(place, autocommit=True, prepare_threshold=1, **more)
        made.prepared_max = _PREPARED
        return made

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        self.forget()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.connection.close()
            if self._pool is not None:
                self._pool.give(None, wire.borrower)

    def release(self) -> None:
        """Give a shared connection back with nothing under way on it; close one's own."""
        if self._pool is not None:
            self.clean()
        self.close()

    def __del__(self) -> None:
        """Close what nobody uses any more."""
        self.close()

    def interrupt(self) -> None:
        """End the statement that another OS thread runs, if there is one."""
        wire = self._wire
        if wire is not None:
            wire.connection.cancel_safe(timeout=_CONNECT_SECONDS)

    # --- statements -------------------------------------------------------------------------------

    def run(self, sql: str, values: Values) -> Rows:
        """Run one statement and return its rows. Raises psycopg.Error."""
        return self.trip(lambda made: _rows_of(made.execute(sql, values, binary=True)))

    def later(self, sql: str, values: Sequence[Any], then: Then | None = None) -> None:
        """Send such a statement with the next trip, whose error is that of either.

        `then` is called with its rows. An error of the server keeps it from running what follows.
        """
        self._later.append((sql, values, then))

    @property
    def waiting(self) -> int:
        """How many statements wait for the next trip."""
        return len(self._later)

    def forget(self) -> None:
        """Send nothing of what was to be sent with the next trip."""
        self._later = []

    def settle(self) -> None:
        """Send what was to be sent with the next trip."""
        if self._later:
            sql, values, then = self._later.pop()
            rows, _ = self._piped(sql, values)
            if then is not None:
                then(rows)

    def numbered(self, sql: str, values: Sequence[Any]) -> tuple[Rows, int]:
        """Run one statement with numbered parameters; return its rows, and how many it changed.

        Behind a pooler, what is no part of a transaction has its settings sent with it.
        """
        if self.address.pooled and not self._later and not self.in_transaction:
            self.later(PLANNED, ())
        if self._later:
            return self._piped(sql, values)

        def send(made: psycopg.Connection[Any]) -> tuple[Rows, int]:
            cursor = self._numbered(made)
            cursor.execute(sql, values, binary=True)
            return _rows_of(cursor), cursor.rowcount

        return self.trip(send)

    def _piped(self, sql: str, values: Sequence[Any]) -> tuple[Rows, int]:
        """Run a statement after those that were to be sent with it, in one trip."""
        queued, self._later = self._later, []

        def send(made: psycopg.Connection[Any]) -> tuple[Rows, int]:
            with made.pipeline():
                for at, (text, given, _) in enumerate([*queued, (sql, values, None)]):
                    self._numbered(made, at).execute(text, given, binary=True)
            for cursor, (_, _, then) in zip(self._raw, queued, strict=False):
                if then is not None:
                    then(_rows_of(cursor))
            last = self._raw[len(queued)]
            return _rows_of(last), last.rowcount

        try:
            return self.trip(send)
        except psycopg.Error:
            if not self.in_transaction:  # psycopg takes for prepared what the server has skipped;
                self.close()  # else it forgets all of that with the rollback
            raise
        except BaseException:  # nobody knows what of it was done
            self.close()
            raise

    def each(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run such a statement for each of some rows, together; return how many were changed."""

        def send(made: psycopg.Connection[Any]) -> int:
            cursor = self._numbered(made)
            cursor.executemany(sql, rows)
            return cursor.rowcount

        return self.trip(send)

    def _numbered(self, made: psycopg.Connection[Any], at: int = 0) -> psycopg.RawCursor[Any]:
        """Return the connection's cursors for those, which bind each value by its type alone."""
        if self._raw and self._raw[0].connection is not made:
            self._raw = []
        while len(self._raw) <= at:
            cursor = psycopg.RawCursor(made)
            for kind, dumper in (
                (int, Int8BinaryDumper),
                (bool, _Truth),
                (bytes, BytesBinaryDumper),
                (list, ListBinaryDumper),
            ):
                cursor.adapters.register_dumper(kind, dumper)
            self._raw.append(cursor)
        return self._raw[at]

    def together(self, steps: Sequence[Step]) -> list[Rows]:
        """Run statements in one round trip, as one transaction unless one is under way.

        Returns the rows of each. Raises psycopg.Error; then the connection is closed, and with it a
        transaction under way: psycopg takes statements for prepared that the server skipped.
        """

        def send(made: psycopg.Connection[Any]) -> list[Rows]:
            with made.pipeline():
                cursors = [made.execute(sql, values, binary=True) for sql, values in steps]
            return [*map(_rows_of, cursors)]

        try:
            return self.trip(send)
        except BaseException:
            self.close()
            raise

    def relaxed(self, *steps: Step) -> list[Rows]:
        """Run statements as one change that a power cut may undo; return the rows of each."""
        return self.together([(_RELAXED, {}), *steps])[1:]

    def copy(self, sql: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Store rows by a COPY in the binary format."""

        def send(made: psycopg.Connection[Any]) -> None:
            with made.cursor() as cursor, cursor.copy(sql) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)

        self.trip(send)

    def script(self, *texts: str) -> Rows:
        """Run statements without values in one trip; return the rows of the last."""
        if self._later:
            for text in texts[:-1]:
                self.later(text, ())
            return self._piped(texts[-1], ())[0]

        def send(made: psycopg.Connection[Any]) -> Rows:
            # After an interrupt psycopg may take it for one that can be prepared.
            cursor = made.execute("; ".join(texts), prepare=False)
            while cursor.nextset():
                pass
            return _rows_of(cursor)

        return self.trip(send)

    def trip(self, send: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Make one round trip; afterwards there is no connection that cannot be used again."""
        self.settle()  # a trip that takes nothing along
        self.trips += 1
        self.is_lost = False
        made = self._current()
        try:
            self._plan_anew(made)
            found = send(made)
            if self._wire is not None:
                self._wire.is_new = False
        except BaseException as error:
            state = made.pgconn.transaction_status
            if isinstance(error, psycopg.Error):
                self.is_lost = state == TransactionStatus.UNKNOWN or failures.is_farewell(error)
            if self.is_lost or state in _UNUSABLE:
                self.close()
            self._return()
            if isinstance(error, UnicodeEncodeError):
                what = "the text holds an unpaired surrogate"
                raise InputError(what, "give whole Unicode characters") from error
            raise
        self._return()
        return found

    def _plan_anew(self, made: psycopg.Connection[Any]) -> None:
        """Forget plans of some age. If that fails, the connection is lost, as is noticed next."""
        wire, now = self._wire, clock.monotonic()
        if wire is None or self.address.pooled or now < wire.planned_at + wire.plans_last:
            return
        if made.pgconn.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            wire.planned_at, wire.plans_last = now, min(wire.plans_last * 2, _PLANS_SECONDS)
            made.pgconn.exec_(b"DISCARD PLANS")

    def _current(self) -> psycopg.Connection[Any]:
        """Return the connection; another one if the server has ended it while nothing was sent.

        What is sent on a connection that was lost before may have been done, or not. Nothing comes
        on an idle one but such a farewell, or news of a setting.
        """
        while True:
            made, wire = self.connection(), self._wire
            if wire is None or self.listens or wire.is_new or self.in_transaction:
                return made
            if not wire.poll.poll(0):
                return made
            self.close()

    def tried(self, call: Callable[[Link], T], *, again: bool = True, changes: bool = False) -> T:
        """Call a function that makes round trips, outside a transaction; it may begin and end one.

        It is called again when the server has certainly undone it, and if `again` is true also when
        the connection was lost. Raises psycopg.Error, with no transaction left behind; and
        UnknownOutcomeError for what `changes` something, if that may be stored.
        """
        deadline, pause = clock.monotonic() + failures.WAIT_SECONDS, _PAUSE_AGAIN
        in_doubt = False
        while True:
            try:
                return call(self)
            except psycopg.Error as error:
                lost = self.is_lost
                if failures.is_read_only(error):  # after a failover another server may take it
                    self.close()
                self.clean()
                in_doubt |= lost and changes
                goes_on = again if lost else isinstance(error, failures.AGAIN)
                if not goes_on or clock.monotonic() > deadline:
                    if in_doubt:
                        raise failures.unknown(self.address) from error
                    raise
            except BaseException as error:  # ours, or an interrupt, between two round trips
                self.clean()
                if in_doubt and isinstance(error, StoreError):  # there is no server any more
                    raise failures.unknown(self.address) from error
                raise
            clock.pause(pause * random())  # noqa: S311 (two that collide wait for different times)
            pause = min(pause * 2, _PAUSE_MOST)

    def clean(self) -> None:
        """Leave no transaction behind."""
        self.forget()
        if self.in_transaction:
            try:
                self.script("ROLLBACK")
            except psycopg.Error:
                self.close()

    # --- listening --------------------------------------------------------------------------------

    def listen(self, channel: str) -> None:
        """Listen, unless it does already, and forget what was heard before."""
        if not self.heard() or self._heard_on != channel:
            self.close()
            self.script(f"LISTEN {channel}")
            self._heard_on = channel
            self.heard()

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self.connection().fileno()

    def heard(self) -> bool:
        """Read all notices that have come; return False when the connection is lost."""
        return self.notices() is not None

    def notices(self) -> set[str] | None:
        """Return the channels of all notices that have come; None when the connection is lost."""
        wire, found = self._wire, set()
        if wire is None:
            return None
        server = wire.connection.pgconn
        try:
            server.consume_input()
            while (notice := server.notifies()) is not None:
                found.add(notice.relname.decode())
        except psycopg.Error:
            self.close()
            return None
        return found

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way, failed or not."""
        wire = self._wire
        if wire is None or wire.is_telling:  # a notice is sent outside of one
            return False
        return wire.connection.pgconn.transaction_status != TransactionStatus.IDLE

    @property
    def goes_on(self) -> bool:
        """Whether the transaction under way is there, and nothing in it has failed."""
        wire, goes_on = self._wire, TransactionStatus.INTRANS
        return wire is not None and wire.connection.pgconn.transaction_status == goes_on

    # --- notices ----------------------------------------------------------------------------------

    def tell(self, statement: bytes) -> None:
        """Send a statement whose answer is read later: nobody waits for a notice to be sent."""
        try:
            server = self.connection().pgconn
            server.send_query(statement)
            assert self._wire is not None
            self._wire.is_telling = True
            server.flush()
        except (psycopg.Error, EventqError):
            self.close()  # it was a hint
        self._return()

    def _hear(self, wire: Wire) -> None:
        """Read the answer to a notice; close the connection after an error."""
        server, is_sound = wire.connection.pgconn, True
        try:
            while True:
                while server.is_busy():  # in `get_result`, no other OS thread could run
                    wire.poll.poll()
                    server.consume_input()
                result = server.get_result()
                if result is None:
                    break
                is_sound &= result.status == ExecStatus.COMMAND_OK
            wire.is_telling = False
        except psycopg.Error:
            is_sound = False
        if not is_sound:
            self.close()


def _rows_of(cursor: psycopg.Cursor[Any]) -> Rows:
    """Return the rows of a statement, none for one that has no columns."""
    result = cursor.pgresult  # its `description` is made anew at each look
    return cursor.fetchall() if result is not None and result.nfields else []


def is_passing(error: psycopg.Error) -> bool:
    """Return whether a server that cannot be reached may be there a little later."""
    if error.sqlstate is not None:
        return isinstance(error, (errors.CannotConnectNow, errors.TooManyConnections))
    words = str(error).lower()
    return any(word in words for word in _PASSING)


_PASSING = ("starting up", "shutting down", "recovery", "too many clients")
