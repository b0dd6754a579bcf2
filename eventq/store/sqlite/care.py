"""The care of a database's files: space that is given back, and what was deleted made gone."""

from __future__ import annotations

import os

import apsw

from eventq.errors import BusyError
from eventq.records.info import Stats
from eventq.store.sqlite import migrate
from eventq.store.sqlite.connecting import Busy
from eventq.store.sqlite.handles import BUSY_SECONDS
from eventq.system import clock, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.sqlite.database import Database

_VACUUM_PAGES = 1_000
_NEXT_TRY = 0.01  # seconds between two tries to empty the WAL
_READ_LOCKS = (123, 127)  # bytes of the shared memory: sqlite.org/walformat.html


def compact(db: Database) -> None:
    """Return the space of deleted rows to the system, some pages a transaction.

    Inside `write` nothing is done.
    """
    if db.in_write():
        return
    _let_shrink(db)
    while _free_bytes(db):
        db.tend(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
    db.tend("PRAGMA wal_checkpoint(TRUNCATE)")


def _let_shrink(db: Database) -> bool:
    """Let a database of the original tool give space back; return whether it was written anew."""
    if db.one("PRAGMA auto_vacuum") == migrate.INCREMENTAL:
        return False
    db.tend(f"PRAGMA auto_vacuum = {migrate.INCREMENTAL}")
    db.tend("VACUUM")
    return True


def scrub(db: Database) -> None:
    """Leave nothing in the files of what was deleted; wait for readers that still see it.

    What SQLite deletes stays in free pages, and in gaps of others: `secure_delete` misses those of
    rows that were moved. So the whole database is written anew, and the WAL is cut to nothing. Each
    try of that ends at once: SQLite would keep writers waiting until the readers are gone. Raises
    BusyError if one goes on.
    """
    if not _let_shrink(db):
        db.tend("VACUUM")
    deadline = clock.monotonic() + BUSY_SECONDS
    while not _cut_now(db):
        if clock.monotonic() > deadline:
            raise _held(db.path)
        clock.pause(_NEXT_TRY)


def _cut_now(db: Database) -> bool:
    with db.lock:
        connection = db.prepare_write()
        connection.set_busy_handler(None)
        try:
            ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return not busy
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise db.explain(error) from error
        finally:
            connection.set_busy_handler(Busy(db.patience))


def _held(path: str) -> BusyError:
    """Return the error for a WAL that others still read, with their names."""
    pids = processes.lockers(f"{path}-shm", *_READ_LOCKS)
    found = [processes.described(pid) for pid in pids]
    who = ", ".join(found) or "another process"
    return BusyError(
        f"{who} still reads what was deleted, so it is still in '{path}-wal'",
        "end that, or wait for it, then do this again",
    )


def stats(db: Database) -> Stats:
    """Return the sizes of the database, of its WAL, and of the space that deleted rows left."""
    return Stats(_size(db.path), _size(f"{db.path}-wal"), _free_bytes(db))


def _free_bytes(db: Database) -> int:
    return int(db.one("PRAGMA freelist_count")) * int(db.one("PRAGMA page_size"))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
