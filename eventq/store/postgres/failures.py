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
    cited,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Error

    from eventq.errors import EventqError
    from eventq.store.address import Address

    Make = Callable[[str, str], EventqError]

WAIT_SECONDS = 30  # for a lock, and for a server to come back
# The transaction was undone and may be tried again: serialization, deadlock; or the server is a
# standby by now, and has changed nothing.
AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ReadOnlySqlTransaction)
# The server refused what a statement was to store, maybe one row of several.
_REFUSED = (
    errors.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, errors.RaiseException,
)  # fmt: skip
# A transaction was too long, or nothing was done in it for too long.
_LIMITS = (errors.TransactionTimeout, errors.IdleInTransactionSessionTimeout)
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
    is_ours = isinstance(error, errors.ProgrammingError) or words.startswith(_IN_URL)
    if is_ours or "unrecognized configuration" in words:
        return UsageError(f"the URL {place} cannot be used: {said}", "correct it, or leave it out")
    for known, make in _UNREACHABLE:
        if any(word in words for word in known):
            return make(place, said)
    if isinstance(error, _STARTING):
        return _busy(place, said)
    fix = "check that it runs, and the host and port in the URL"
    found = StoreError(f"the server of {place} cannot be reached: {said}", fix)
    found.wire_code = 503  # clients of a server of eventq should try again, as it may be restarting
    return found


def makes_tables(database: str) -> str:
    """Return the command that makes the tables, or brings them up to date, as advice has it."""
    from shlex import quote

    return cited(f"eventq init --schema {quote(database)}")


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


def is_limit(error: Error) -> bool:
    """Return whether a limit of the server has ended a transaction: it would do so again."""
    return isinstance(error, _LIMITS)


def unknown(address: Address) -> UnknownOutcomeError:
    """Return the error for a change whose answer was lost."""
    return UnknownOutcomeError(address.database)


def _said(error: Error) -> str:
    """Return the first line of what the server or libpq said."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said.removeprefix("connection failed: ").removeprefix("connection is bad: ")


def _read_only(place: str, said: str) -> ReadOnlyError:
    return ReadOnlyError(
        f"the server of {place} is read-only: {said}",
        "end its read-only mode, or give the URL of the server that takes writes",
    )


def _canceled(place: str, said: str) -> StoreError:
    """Return the error for a statement that was ended; only its words tell why."""
    if "timeout" in said:
        return _limited(place, said)
    what = f"a call that used {place} was interrupted"
    if "user request" not in said:  # or the server speaks another language
        what = f"the server of {place} ended a statement: {said}"
    return StoreError(what, "nothing was stored; call again")


def _limited(place: str, said: str) -> StoreError:
    """Return the error for a limit of the server; only its words tell which."""
    name = next((name for words, name in _SETTINGS.items() if words in said), "statement_timeout")
    return StoreError(
        f"a time limit of the server of {place} ended a transaction: {said}",
        f"nothing was stored; do less at once, or raise the limit: ALTER ROLE … SET {name} = …",
    )


def _pooled(place: str, said: str) -> StoreError:
    return StoreError(
        f"a pooler in front of {place} hands out connections by the transaction: {said}",
        "add pooled=1 to the URL",
    )


def _busy(place: str, said: str) -> BusyError:
    return BusyError(f"the server of {place} takes no connection: {said}", "try again later")


def _login(fix: str) -> Make:
    return lambda place, said: ReadOnlyError(
        f"the server of {place} refused the login: {said}", fix
    )


def _insecure(what: str, fix: str) -> Make:
    return lambda place, said: StoreError(f"{what.format(place)}: {said}", fix)


_SETTINGS = {
    "idle-in-transaction timeout": "idle_in_transaction_session_timeout",
    "transaction timeout": "transaction_timeout",
}
_IN_URL = ("invalid ", "weak sslmode")
_UNTRUSTED = "the server of {} is not trusted"
# What libpq or a pooler says in words alone, in the order in which they are looked for.
_UNREACHABLE: list[tuple[tuple[str, ...], Make]] = [
    (("unsupported startup parameter",), _pooled),
    (
        ("root certificate", "root.crt"),
        _insecure(
            "the certificates that the server of {} is checked with cannot be read",
            "give the file of who signed the server's in the URL, sslrootcert=FILE, or"
            " sslrootcert=system for those that this machine trusts",
        ),
    ),
    (
        ("certificate file", "private key", "certificate present"),
        _insecure(
            "the certificate that this machine shows the server of {} cannot be read",
            "correct sslcert=FILE and sslkey=FILE in the URL; others may not read the key",
        ),
    ),
    (
        ("does not match host name", "no matching"),
        _insecure(_UNTRUSTED, "write the host in the URL as the server's certificate has it"),
    ),
    (
        ("does not support ssl",),
        _insecure(
            "the server of {} does not encrypt",
            "turn on ssl there, or write sslmode=disable into the URL if nobody is in between",
        ),
    ),
    (
        ("pg_hba",),
        _login("let an entry of its pg_hba.conf admit this user from here, or use another sslmode"),
    ),
    (
        ("password", "authentication"),
        _login("check the user, and its password in ~/.pgpass or PGPASSWORD"),
    ),
    (("session is read-only",), _read_only),
    (
        ("does not exist",),
        lambda place, said: StoreError(
            f"the server refused {place}: {said}", "check the names in the URL"
        ),
    ),
    (
        ("certificate", "ssl"),
        _insecure(_UNTRUSTED, "give sslrootcert=FILE, or another sslmode, in the URL"),
    ),
    (("too many", "starting up"), _busy),
]
_TRANSLATIONS: list[tuple[tuple[type[Exception], ...], Make]] = [
    ((errors.QueryCanceled,), _canceled),
    (_LIMITS, _limited),
    ((errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement), _pooled),
    (
        (errors.LockNotAvailable,),
        lambda place, _: BusyError(
            f"another writer held a thread of {place} for more than {WAIT_SECONDS} seconds, or than"
            " the server's lock_timeout",
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
            "let the owner of the schema grant it, by the statements of docs/guides/postgresql.md,"
            " or use another role",
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
            f"let their owner run {makes_tables(place[1:-1])}",
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
    (
        (errors.DataError,),  # of psycopg itself, for a name with a NUL
        lambda _, said: InputError(said, "leave it out; contents and payloads may have it"),
    ),
]
