"""Open connections of SQLite, with the settings that all of them have."""

from __future__ import annotations

import os
from _thread import RLock

import apsw

from eventq.store.sqlite.handles import BUSY_SECONDS
from eventq.system import clock, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.sqlite.readonly import Stamp

_opening = RLock()  # what one thread does to SQLite as a whole, another must not meet
os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release
)


def connect(path: str, *, vfs: str | None, patience: float) -> apsw.Connection:
    """Open a database to write; a change waits so many seconds for other writers."""
    connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    _prepare(connection, patience, write=True)
    if environment.env_choice("EVENTQ_SYNCHRONOUS", "full", "normal") == "normal":
        connection.pragma("synchronous", "normal")
    return connection


def connect_to_read(
    path: str, stamp: Stamp | None, *, vfs: str | None, patience: float
) -> apsw.Connection:
    """Open a database to read, without locks if its files have a stamp."""
    from eventq.store.sqlite.readonly import connect  # a push needs nothing of it

    connection = connect(path, stamp, vfs)
    _prepare(connection, patience, write=False)
    return connection


def _prepare(connection: apsw.Connection, patience: float, *, write: bool) -> None:
    if os.geteuid() == 0:
        _look_as_root(connection, write=write)
    else:
        first_look(connection)
    connection.set_busy_handler(Busy(patience))
    configure(connection)


def _look_as_root(connection: apsw.Connection, *, write: bool) -> None:
    """Read a database for the first time as root, which opens its WAL and the shared memory.

    SQLite then gives both to the owner of the database. A writer needs that: it may have made
    them. For a reader it would only change their times, so SQLite is told another user.
    """
    with _opening:
        if write:
            first_look(connection)
            return
        calls = apsw.VFS("eventq-reader", base="unix")
        user, number = calls.xGetSystemCall("geteuid"), calls.xGetSystemCall("getpagesize")
        if not user or not number:  # then SQLite was built without them, and changes no owners
            return
        try:
            calls.xSetSystemCall("geteuid", number)  # it never gives 0
            first_look(connection)
        finally:
            calls.xSetSystemCall("geteuid", user)


def first_look(connection: apsw.Connection) -> None:
    """Read something, which opens the WAL and the shared memory."""
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except apsw.Error:
        pass  # what is read next says it, and is tried again


class Busy:
    """A busy handler with short random waits: SQLite's back-off starves the longest waiter."""

    def __init__(self, seconds: float = BUSY_SECONDS) -> None:
        """Take how long to wait."""
        self._seconds = seconds
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        """Wait a moment; return False when the time is up."""
        if tries == 0:
            self._until = clock.monotonic() + self._seconds
        elif clock.monotonic() > self._until:
            return False
        clock.pause(0.0002 + os.urandom(1)[0] * 0.0008 / 255)
        return True


def configure(connection: apsw.Connection) -> None:
    """Enforce references, and plan each statement once, whatever it is bound to.

    Otherwise SQLite plans again whenever a value changes that might match the condition of a
    partial index, which takes longer than running the statement.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
