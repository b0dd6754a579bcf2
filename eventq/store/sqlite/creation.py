"""Create the database of a new thread atomically."""

from __future__ import annotations

import os

import apsw

from eventq.errors import InputError
from eventq.store.paths import FRESH
from eventq.store.sqlite import migrate
from eventq.store.sqlite.failures import LONGEST, translate
from eventq.system import clock, disk

BUSY_MS = 30_000


def check_path(directory: str) -> None:
    """Raise InputError for a directory in which SQLite could make no database; make nothing."""
    real = os.path.realpath(directory)
    size, most = len(os.fsencode(real)), LONGEST - len(f"/{FRESH}")
    if size > most:
        what = f"the path of a thread is too long ({size} bytes; a thread may have {most})"
        raise InputError(what, "choose a shorter path")
    there = real
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    most = os.pathconf(there, "PC_NAME_MAX")
    for name in real[len(there) :].split("/"):
        if (size := len(os.fsencode(name))) > most:
            what = (
                f"a name in the path of a thread is too long ({size} bytes; the system takes"
                f" {most})"
            )
            raise InputError(what, "choose a shorter name")


def is_sound(path: str) -> bool:
    """Return whether a file is a whole database with a table of events, of any version.

    Raises BusyError, and others for a file that cannot be read.
    """
    if not os.path.isfile(path) or not os.path.getsize(path):
        return False
    try:
        connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(BUSY_MS)
        try:
            found = connection.execute("PRAGMA table_info(events)").fetchall()
            checked = connection.execute("PRAGMA quick_check(1)").fetchall()
            return bool(found) and checked == [("ok",)]
        finally:
            connection.close()
    except (apsw.NotADBError, apsw.CorruptError):
        return False
    except apsw.Error as error:
        raise translate(error, path) from error


def create(directory: str, path: str, mode: int) -> bool:
    """Make the database of a new thread at `path`; return False when there is one already.

    The caller holds the directory's lock, so what an init that crashed left behind may be removed.
    """
    fresh = os.path.join(directory, FRESH)
    for suffix in ("", "-journal", "-wal", "-shm"):
        if os.path.lexists(fresh + suffix):
            os.unlink(fresh + suffix)
    # One in an existing directory is for whom that belongs to, whoever makes it.
    os.close(disk.create(fresh, os.O_EXCL | os.O_WRONLY, directory, mode))
    try:
        _fill(fresh)
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


def _fill(fresh: str) -> None:
    """Make all tables in an empty file."""
    connection = apsw.Connection(fresh, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.pragma("page_size", 4096)
        connection.pragma("auto_vacuum", migrate.INCREMENTAL)
        migrate.apply(connection, clock.stamp(clock.now()))
        # `close` does it too, but hides a failure.
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
