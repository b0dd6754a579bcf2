"""One connection to the server: statements, round trips of several, and what follows a loss.

A statement has named parameters, `%(name)s`. What must be one round trip is sent as a pipeline. The
connection is opened when it is needed first, and anew after it was lost; whoever uses it holds
`lock`.
"""

from __future__ import annotations

import logging
import os
import select
from _thread import RLock

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from eventq.errors import EventqError
from eventq.storage.postgres import failures
from eventq.system import clock, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from eventq.storage.address import Address

    Values = Mapping[str, Any]
    Step = tuple[str, Values]
    Rows = list[tuple[Any, ...]]
    T = TypeVar("T")

# What every statement says of the thread, and the time of the server in ms unless one is given.
MINE = "bucket = %(b)s AND thread_id = %(t)s"
NOW = "coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_CONNECT_SECONDS = 10
_PAUSE_SECONDS = 0.05  # between two tries to reach a server; doubled for each further one
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
_RELAXED = "SELECT set_config('synchronous_commit', 'off', true)"


class Link:
    """A connection that one caller uses at a time, inside `with lock`."""

    def __init__(self, address: Address) -> None:
        """Prepare; nothing is opened yet."""
        self.address = address
        self.lock = RLock()
        self.trips = 0  # round trips since it was opened
        self._connection: psycopg.Connection[Any] | None = None
        self._poll = select.poll()
        self._is_telling = False  # a notice was sent whose answer is to be read
        self._heard_on = ""  # the channel that it listens on

    # --- the connection ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, which may be lost without our knowledge."""
        return self._connection is not None

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, idle or in a transaction; open one if there is none."""
        if self._connection is not None and self._is_telling:
            self._hear()
        if self._connection is None:
            self._connection = self._open()
            self._poll = select.poll()
            self._poll.register(self._connection.fileno(), select.POLLIN)
        return self._connection

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
        more["options"] = f"{given} -c lock_timeout={failures.WAIT_SECONDS}s{level}".strip()
        return psycopg.connect(place, autocommit=True, prepare_threshold=1, **more)

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        made, self._connection, self._is_telling = self._connection, None, False
        if made is not None:
            made.close()

    def __del__(self) -> None:
        """Close what nobody uses any more."""
        self.close()

    def interrupt(self) -> None:
        """End the statement that another OS thread runs, if there is one."""
        made = self._connection
        if made is not None:
            made.cancel_safe(timeout=_CONNECT_SECONDS)

    def check(self) -> None:
        """Open another connection if the server has closed this one while nothing was sent.

        What is sent on a connection that was lost before may have been done, or not. Nothing comes
        on an idle one but such a farewell, or news of a setting.
        """
        if self._connection is not None and self._is_telling:
            self._hear()
        if self._connection is not None and self._poll.poll(0):
            self.close()

    # --- statements -------------------------------------------------------------------------------

    def run(self, sql: str, values: Values) -> Rows:
        """Run one statement and return its rows. Raises psycopg.Error."""
        self.trips += 1
        return _rows_of(self.connection().execute(sql, values, binary=True))

    def together(self, steps: Sequence[Step]) -> list[Rows]:
        """Run statements in one round trip, as one transaction unless one is under way.

        Returns the rows of each. Raises psycopg.Error.
        """
        self.trips += 1
        made = self.connection()
        try:
            with made.pipeline():
                cursors = [made.execute(sql, values, binary=True) for sql, values in steps]
        finally:
            if made.pgconn.pipeline_status:  # an interrupt has kept it from being left
                self.close()
        return [*map(_rows_of, cursors)]

    def relaxed(self, *steps: Step) -> list[Rows]:
        """Run statements as one change that a power cut may undo; return the rows of each."""
        return self.together([(_RELAXED, {}), *steps])[1:]

    def copy(self, sql: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Store rows by a COPY in the binary format."""
        self.trips += 1
        with self.connection().cursor() as cursor, cursor.copy(sql) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def script(self, text: str) -> Rows:
        """Run several statements without values in one message; return the rows of the last."""
        self.trips += 1
        # After an interrupt psycopg may take it for one that can be prepared.
        cursor = self.connection().execute(text, prepare=False)
        while cursor.nextset():
            pass
        return _rows_of(cursor)

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
        made = self._connection
        if made is None:
            return False
        server = made.pgconn
        try:
            server.consume_input()
            while server.notifies() is not None:
                pass
        except psycopg.Error:
            self.close()
            return False
        return True

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way, failed or not."""
        made = self._connection
        return made is not None and made.pgconn.transaction_status != 0

    # --- notices ----------------------------------------------------------------------------------

    def tell(self, statement: bytes) -> None:
        """Send a statement whose answer is read later: nobody waits for a notice to be sent."""
        try:
            server = self.connection().pgconn
            server.send_query(statement)
            self._is_telling = True
            server.flush()
        except (psycopg.Error, EventqError):
            self.close()  # it was a hint

    def _hear(self) -> None:
        """Read the answer to a notice."""
        made = self._connection
        assert made is not None
        try:
            while made.pgconn.get_result() is not None:
                pass
            self._is_telling = False
        except psycopg.Error:
            self.close()
        if made.pgconn.status != 0:
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
