"""Translate PostgreSQL's errors to eventq's, each with a next step. None shows a password."""

from __future__ import annotations

from psycopg import errors

from eventq.errors import (
    BusyError,
    DamagedError,
    DiskError,
    InputError,
    ReadOnlyError,
    StoreError,
    UnknownOutcomeError,
    UsageError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Error

    from eventq.errors import EventqError
    from eventq.store.address import Address

WAIT_SECONDS = 30  # for a lock, and for a server to come back
# The transaction was undone and may be tried again: serialization, deadlock; or the server is a
# standby by now, and has changed nothing.
AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ReadOnlySqlTransaction)
# The server refused what a statement was to store, maybe one row of several.
_REFUSED = (
    errors.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, errors.RaiseException,
)  # fmt: skip
_STARTING = (errors.CannotConnectNow, errors.TooManyConnections)
_LACKING = (errors.UndefinedTable, errors.InvalidSchemaName)
_CONNECTION = "08"  # the class of errors about connections, maybe one behind a pooler


def translate(error: Error, address: Address) -> EventqError:
    """Return eventq's error for one that the server has sent, or libpq."""
    place = f"'{address.database}'"
    for kinds, make in _TRANSLATIONS:
        if isinstance(error, kinds):
            return make(place, _said(error))
    return StoreError(f"the server of {place} refused: {_said(error)}", "see the server's log")


def unreachable(error: Error, address: Address) -> EventqError:
    """Return the error for a connection that could not be made."""
    said, place = _said(error), f"'{address.database}'"
    if error.sqlstate is not None and not isinstance(error, _STARTING):
        return translate(error, address)
    words = said.lower()
    if "password" in words or "authentication" in words or "pg_hba" in words:
        fix = "check the user, and its password in ~/.pgpass or PGPASSWORD"
        return ReadOnlyError(f"the server of {place} refused the login: {said}", fix)
    is_ours = isinstance(error, errors.ProgrammingError) or words.startswith("invalid ")
    if is_ours or "unrecognized configuration" in words:
        fix = "correct it, or leave it out"
        return UsageError(f"the URL {place} cannot be used: {said}", fix)
    if "session is read-only" in words:
        return _read_only(place, said)
    if "does not exist" in words:
        return StoreError(f"the server refused {place}: {said}", "check the names in the URL")
    if "certificate" in words or "ssl" in words:
        fix = "give sslrootcert=FILE, or another sslmode, in the URL"
        return StoreError(f"the server of {place} is not trusted: {said}", fix)
    if isinstance(error, _STARTING) or "too many" in words or "starting up" in words:
        return BusyError(f"the server of {place} takes no connection: {said}", "try again later")
    fix = "check that it runs, and the host and port in the URL"
    return StoreError(f"the server of {place} cannot be reached: {said}", fix)


def is_farewell(error: Error) -> bool:
    """Return whether a server or pooler said that it ends the connection, or libpq that it did."""
    if error.sqlstate is None:
        return isinstance(error, errors.OperationalError)
    severity = error.diag.severity_nonlocalized or error.diag.severity  # the latter of a pooler
    return severity in ("FATAL", "PANIC") or error.sqlstate.startswith(_CONNECTION)


def is_of_one(error: BaseException) -> bool:
    """Return whether it may be one of several rows for which the server has refused them all."""
    return isinstance(error.__cause__, _REFUSED)


def is_read_only(error: Error) -> bool:
    """Return whether the server takes no writes: a standby, or one in read-only mode."""
    is_refusal = isinstance(error, errors.ReadOnlySqlTransaction)
    return is_refusal or (error.sqlstate is None and "session is read-only" in str(error))


def _read_only(place: str, said: str) -> ReadOnlyError:
    return ReadOnlyError(
        f"the server of {place} is read-only: {said}",
        "end its read-only mode, or give the URL of the server that takes writes",
    )


def unknown(address: Address) -> UnknownOutcomeError:
    """Return the error for a change whose answer was lost."""
    return UnknownOutcomeError(address.database)


def _said(error: Error) -> str:
    """Return the first line of what the server or libpq said."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said.removeprefix("connection failed: ").removeprefix("connection is bad: ")


_TRANSLATIONS: list[tuple[tuple[type[Exception], ...], Callable[[str, str], EventqError]]] = [
    (
        (errors.QueryCanceled,),
        lambda place, _: StoreError(
            f"a call that used {place} was interrupted", "nothing was stored; call again"
        ),
    ),
    (
        (errors.LockNotAvailable,),
        lambda place, _: BusyError(
            f"another writer held a thread of {place} for more than {WAIT_SECONDS} seconds",
            "nothing was stored; try again",
        ),
    ),
    (
        AGAIN[:2],
        lambda place, said: BusyError(
            f"another writer was in the way at {place}: {said}", "nothing was stored; try again"
        ),
    ),
    (
        (errors.DiskFull, errors.IoError, errors.OutOfMemory),
        lambda place, said: DiskError(
            f"the server of {place} could not store it: {said}",
            "nothing was stored; free some space there, then try again",
        ),
    ),
    ((errors.ReadOnlySqlTransaction,), _read_only),
    (
        (errors.InsufficientPrivilege,),
        lambda place, said: ReadOnlyError(
            f"the role may not do this at {place}: {said}",
            "let the owner of the schema grant it, or use another role",
        ),
    ),
    (
        (errors.UndefinedColumn,),
        lambda place, _: DamagedError(
            f"the tables in {place} were changed by another version of eventq",
            "open the thread again, with a program of that version",
        ),
    ),
    (
        _LACKING,
        lambda place, _: StoreError(
            f"there are no tables of eventq in {place}",
            f"let their owner run 'eventq init --schema {place.strip(chr(39))}'",
        ),
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        lambda place, said: DamagedError(
            f"the server of {place} reports damage: {said}", "restore a backup"
        ),
    ),
    (
        (errors.ProgramLimitExceeded, errors.CharacterNotInRepertoire, errors.DataException),
        lambda _, said: InputError(f"the server cannot store this: {said}", "split or shorten it"),
    ),
]
