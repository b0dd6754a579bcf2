"""Open a database without permission to change anything, not even its shared memory.

A read-only user cannot create the shared memory that a WAL needs. Without a WAL, the file holds
everything, and is read as immutable. A WAL without shared memory (a copy, a restored backup) has no
writer, and is read without locks. The files' stamps, compared before and after each read, reveal
whether a writer has started.
"""

from __future__ import annotations

import os

import apsw

from eventq.system.locks import descriptor_of

_HEADER = 48  # bytes of the shared memory that each commit changes: sqlite.org/walformat.html
_STATEMENTS = 4_000  # that stay prepared: a worker runs one for each consumer's filter
_WAL_HEADER = 32  # bytes: a WAL of no more holds nothing, and a read-only SQLite gets stuck on it

TYPE_CHECKING = False
if TYPE_CHECKING:
    Stamp = tuple[int, int, int, int, bool]


def stamp_of(path: str) -> Stamp:
    """Return time and size of a database, size and time of its WAL, and whether that is shared."""
    found = os.stat(path)
    try:
        wal = os.stat(path + "-wal")
    except OSError:
        return found.st_mtime_ns, found.st_size, 0, 0, False
    shared = os.path.exists(path + "-shm")
    return found.st_mtime_ns, found.st_size, wal.st_size, wal.st_mtime_ns, shared


def has_wal(stamp: Stamp) -> bool:
    """Return whether a WAL holds anything."""
    return stamp[2] > _WAL_HEADER


def is_shared(stamp: Stamp) -> bool:
    """Return whether a WAL holds anything, and is read with its locks."""
    return has_wal(stamp) and stamp[4]


def connect(path: str, stamp: Stamp | None, vfs: str | None) -> apsw.Connection:
    """Open a database to read: with the locks of its WAL, or without where a stamp is given."""
    quoted = "file:" + "".join(
        c if (c.isalnum() and c.isascii()) or c in "/._-~" else _quote(c) for c in path
    )
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    if stamp is not None and has_wal(stamp):
        connection = apsw.Connection(f"{quoted}?mode=ro", flags, vfs=vfs or "unix-none")
        # The index of the WAL is made in this process.
        connection.pragma("locking_mode", "exclusive")
        return connection
    how = "mode=ro&readonly_shm=1" if stamp is None else "immutable=1"
    return apsw.Connection(f"{quoted}?{how}", flags, vfs=vfs, statementcachesize=_STATEMENTS)


def is_left_behind(path: str) -> bool:
    """Return whether the shared memory of a database is not that of its file any more.

    overlayfs copies a file of a lower layer when somebody first opens it to write. Descriptors
    lead to the copy, by the same inode; memory that was mapped before stays with the lower file,
    where nobody writes. False where that cannot be seen, as on other systems than Linux.
    """
    name = os.path.realpath(path) + "-shm"
    ends = b" %b\n" % os.fsencode(name), b" %b (deleted)\n" % os.fsencode(name)
    try:
        shared = descriptor_of(name)
        with open("/proc/self/maps", "rb") as maps:
            begins = (one for one in maps if one.endswith(ends))
            begin = next(one for one in begins if one.split()[2] == b"00000000")  # the first part
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            place = int(begin.split(b"-")[0], 16)
            before = os.pread(memory.fileno(), _HEADER, place)
            found = os.pread(shared, _HEADER, 0)
            return found != before == os.pread(memory.fileno(), _HEADER, place)
    except (OSError, StopIteration):
        return False  # not mapped, or not any more


def _quote(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))
