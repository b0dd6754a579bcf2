"""Translate SQLite's errors to eventq's, each with a next step."""

from __future__ import annotations

import os

import apsw

from eventq.errors import (
    NO_DESCRIPTORS,
    READ_ONLY,
    BusyError,
    DamagedError,
    DiskError,
    InputError,
    ReadOnlyError,
    StoreError,
    no_descriptors,
    way_back,
)
from eventq.system.disk import is_read_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.errors import EventqError

_FILES = 4  # that SQLite opens at most for a database: itself, WAL, index and folder
LONGEST = 512 - len("-journal")  # bytes of a database's path that SQLite opens, links resolved


def translate(error: Exception, path: str, waited: float = 0.0) -> EventqError:
    """Return eventq's error for one of SQLite's.

    `path` is the database, `waited` the seconds after which a busy one was given up.
    """
    if isinstance(error, apsw.BusyError):
        return BusyError(
            f"another writer held '{path}' for more than {waited:g} seconds",
            "nothing was stored; try again",
        )
    for kind, make in _TRANSLATIONS:
        if isinstance(error, kind):
            return make(error, path)
    if is_lacking(error):
        return DamagedError(
            f"'{path}' lacks a table or a column ({error})",
            "restore a backup, or upgrade the program that changed it",
        )
    return StoreError(f"the database '{path}' refused: {error}", "run 'eventq check' on the thread")


def is_lacking(error: BaseException | None) -> bool:
    """Return whether a statement failed because the schema is not the one it was written for."""
    words = ("no such table", "no such column", "has no column named")
    return isinstance(error, apsw.SQLError) and any(word in str(error) for word in words)


_TRANSLATIONS: list[tuple[type[Exception], Callable[[Exception, str], EventqError]]] = [
    (apsw.LockedError, lambda _, p: BusyError(f"'{p}' is locked", "nothing was stored; try again")),
    (
        apsw.FullError,
        lambda _, p: DiskError(
            f"the disk of '{p}' is full", "nothing was stored; free some space, then try again"
        ),
    ),
    (
        apsw.IOError,
        lambda e, p: DiskError(
            f"the system could not read or write '{p}' ({e})", "check the disk, then try again"
        ),
    ),
    (
        apsw.ReadOnlyError,
        lambda _, p: _barred(p, f"'{p}' cannot be written"),
    ),
    (
        apsw.PermissionsError,
        lambda _, p: _barred(p, f"'{p}' may not be used"),
    ),
    (apsw.CantOpenError, lambda _, p: _unopened(p)),
    (
        apsw.InterruptError,
        lambda _, p: StoreError(
            f"a call that used '{p}' was interrupted", "nothing was stored; call again"
        ),
    ),
    (
        apsw.NotADBError,
        lambda _, p: DamagedError(
            f"'{p}' is not a database",
            way_back(p),
        ),
    ),
    (
        apsw.CorruptError,
        lambda _, p: DamagedError(
            f"'{p}' is damaged", f"{way_back(p)}; 'sqlite3 … .recover' may save more of it"
        ),
    ),
    (
        UnicodeEncodeError,
        lambda _, __: InputError(
            "the text holds an unpaired surrogate", "give whole Unicode characters"
        ),
    ),
    (
        UnicodeDecodeError,
        lambda _, p: DamagedError(
            f"'{p}' holds text that is not UTF-8", "run 'eventq check' on the thread"
        ),
    ),
    (
        apsw.TooBigError,
        lambda _, __: InputError("the value is too large for the database", "split it"),
    ),
]


def _unopened(path: str) -> EventqError:
    """Return the error for a file that SQLite could not open: it does not say why."""
    size = len(os.fsencode(os.path.realpath(path)))
    if size > LONGEST:
        what = f"the path of '{path}' is too long ({size} bytes; SQLite opens {LONGEST})"
        return InputError(what, "move the thread to a shorter path")
    if not _may_open(_FILES):
        return no_descriptors()
    return _barred(path, f"'{path}' cannot be opened")


def _barred(path: str, what: str) -> EventqError:
    """Return the error for a file that this process may not use as it has to."""
    permissions = "check the permissions of the file and its directory"
    return ReadOnlyError(what, READ_ONLY if is_read_only(path) else permissions)


def _may_open(count: int) -> bool:
    """Return whether this process may open so many files at once."""
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in NO_DESCRIPTORS
    finally:
        for fd in opened:
            os.close(fd)
    return True
