"""The filter sandbox: a read-only connection that limits what a filter can read, call and cost.

A filter is an untrusted string. `grammar` has accepted and rewritten it. Here it is
compiled as one expression in parentheses, on a connection whose authorizer allows only the columns
of `events` and the listed functions.

These limits stop an expensive filter, from the inside out. Functions that are not linear in SQLite
are replaced by Python's, which are. LIKE patterns are checked before they run. A window of ids that
takes more than a second of processor time is retried in smaller windows, down to a single event,
which gets three seconds. So a slow filter on large events is merely slow, and one that never ends
is refused. The budget is processor time, not steps, so that a busy or sleeping machine does not
count.

SQLite checks the clock only between its steps, and on 64 MiB a single function takes a second. So
the statement stops before an event with a large value. That event is tested on its own with the
careful form of the filter, which checks the clock after each function. A push that tests the
filters of other programs (`could_match`) stops there too, and after a tenth of a second. Checking
the clock in each function of every event lost: small events cost twice as much.
"""

from __future__ import annotations

from time import thread_time

import apsw

from eventq.errors import FilterError
from eventq.log.filters.grammar import COLUMNS, FUNCTIONS, MOST_MADE, Fragment, check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Row = tuple[Any, ...]

WINDOW = 10_000  # ids per statement: 2 ms of small events
WINDOW_SECONDS = 1.0
EVENT_SECONDS = 3.0
STEPS = 500  # of SQLite between checks of the clock: some 30 events, and 5 % of the time
CLOCKED_STEPS = 60  # the same for filters with a jump before each column
MAX_VALUE = 400 << 20  # bytes: the JSON of a 64 MiB event of control characters, with some margin
MAX_MADE = MOST_MADE  # characters that replace() and hex() may return
LARGE = 1 << 16  # bytes of a column's value from which on the careful form is used
GROWN = 1 << 20  # characters of a function's result from which on each step checks the clock
MAX_TRIM = 64  # different characters that trim() may remove
MAX_PATTERN = 500  # bytes of a LIKE pattern that is a literal, and so was checked before
MAX_LOOSE_PATTERN = 64  # bytes of one that is computed
MAX_CACHED = 1_000

# CAST: other tools may have stored a BLOB; on text it has no effect.
# NOT INDEXED: an old thread has indexes on source and type, and the planner would sort to use them.
_ROWS = """SELECT id, CAST(created_at AS TEXT), CAST(source AS TEXT), CAST(type AS TEXT),
CAST(subtype AS TEXT), CAST(content AS TEXT) FROM events NOT INDEXED
WHERE id > ? AND id <= ? AND (
{}
) ORDER BY id LIMIT ?"""
_ROWS_DOWN = """SELECT id, CAST(created_at AS TEXT), CAST(source AS TEXT), CAST(type AS TEXT),
CAST(subtype AS TEXT), CAST(content AS TEXT) FROM events NOT INDEXED
WHERE id > ? AND id <= ? AND (
{}
) ORDER BY id DESC LIMIT ?"""
_LINES = """SELECT id, json_object('id', id, 'created_at', CAST(created_at AS TEXT),
'source', CAST(source AS TEXT), 'type', CAST(type AS TEXT),
'subtype', CAST(subtype AS TEXT), 'content', CAST(content AS TEXT)) FROM events NOT INDEXED
WHERE id > ? AND id <= ? AND (
{}
) ORDER BY id LIMIT ?"""
_LINES_DOWN = """SELECT id, json_object('id', id, 'created_at', CAST(created_at AS TEXT),
'source', CAST(source AS TEXT), 'type', CAST(type AS TEXT),
'subtype', CAST(subtype AS TEXT), 'content', CAST(content AS TEXT)) FROM events NOT INDEXED
WHERE id > ? AND id <= ? AND (
{}
) ORDER BY id DESC LIMIT ?"""
_IDS = """SELECT id FROM events NOT INDEXED
WHERE id > ? AND id <= ? AND (
{}
) ORDER BY id LIMIT ?"""
_PAGES = {
    (False, False): _ROWS,
    (True, False): _ROWS_DOWN,
    (False, True): _LINES,
    (True, True): _LINES_DOWN,
}
_NEXT = "SELECT id FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id LIMIT 1"
_NEXT_DOWN = "SELECT id FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1"

# One invented event: this compiles everything, reads no table, and finds errors that SQLite reports
# only at run time (a JSON path).
_PROBE = """SELECT 1 FROM (SELECT 1 AS id, '2026-01-01T00:00:00.000Z' AS created_at,
'self' AS source, 'record' AS type, 'note' AS subtype, '{ }' AS content)
WHERE (
{}
)"""

# One event whose values are bound. Each is cast to the type of its column: without that, comparing
# it with another type would not give the same result as on the table.
_EVENT = """SELECT 1 FROM (SELECT CAST(? AS INTEGER) AS id,
CAST(? AS TEXT) AS created_at, CAST(? AS TEXT) AS source,
CAST(? AS TEXT) AS type, CAST(? AS TEXT) AS subtype, CAST(? AS TEXT) AS content)
WHERE (
{}
)"""
_WITHOUT_TABLE = (_PROBE, _EVENT)

_OWN = {"eventq_heavy", "eventq_large"}
_CALLABLE = (
    FUNCTIONS
    | _OWN
    | {"->", "->>", "json_object", "current_date", "current_time", "current_timestamp"}
)


# A statement that needs no column but the id reads the column "" of no database.
_READABLE = {(column, "main") for column in COLUMNS} | {("", None), ("", "main")}


class FilterSandbox:
    """A second, read-only connection for filters, opened on first use. One caller at a time."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._db: apsw.Connection | None = None
        self._fragments: dict[str, Fragment] = {}
        self._registered: set[str] = set()
        self._deadline = float("inf")
        self._late = False
        self._careful = False
        self._steps = 0

    def check(self, where: str | None) -> str:
        """Return the filter to be stored, or raise `FilterError` with the position of the fault.

        No event is read.
        """
        fragment = self._fragment(where or "")
        if fragment.text:
            try:
                self._probe(fragment)
            except _TooLongError:
                _too_much(fragment)
        return fragment.text

    def _probe(self, fragment: Fragment) -> None:
        try:
            self._fetch(fragment, _PROBE, (), _Rows(1), WINDOW_SECONDS, careful=False)
        except _GrewError:
            self._fetch(fragment, _PROBE, (), _Rows(1), WINDOW_SECONDS, careful=True)

    def matches(self, where: str, event: Row) -> bool:
        """Return whether an accepted filter matches one event, given as six values."""
        fragment, rows = self._fragment(where), _Rows(1)
        careful = any(len(value) > LARGE for value in event[1:] if value)
        try:
            try:
                self._fetch(fragment, _EVENT, event, rows, EVENT_SECONDS, careful=careful)
            except _GrewError:
                self._fetch(fragment, _EVENT, event, rows, EVENT_SECONDS, careful=True)
        except _TooLongError:
            _too_much(fragment, f" on event {event[0]}")
        return bool(rows.found)

    def could_match(self, where: str, after: int, upto: int, seconds: float) -> bool:
        """Return whether an event with `after` < id <= `upto` may match.

        Returns True if the answer takes more than `seconds` of processor time. Raises FilterError
        for a broken filter.
        """
        fragment, ids = self._fragment(where), _Range(after, upto, newest=False)
        deadline = thread_time() + seconds
        while fragment.text and ids.remain():
            rows = _Rows(1)
            try:
                left = deadline - thread_time()
                self._fetch(fragment, _IDS, (*ids.window(), 1), rows, left, careful=False)
            except (_TooLongError, _GrewError, _LargeError):
                return True
            if rows.found:
                return True
            ids.advance()
        return not fragment.text

    def page(
        self,
        where: str,
        after: int,
        upto: int,
        limit: int,
        *,
        newest: bool = False,
        lines: bool = False,
        max_bytes: int = 4 << 20,
    ) -> tuple[list[Row], int]:
        """Return the matching events with `after` < id <= `upto`, and the id to continue at.

        Ids ascend, and the next page starts after the second value. With `newest` they descend,
        and the next page ends at it. A page ends after `limit` rows, or when its rows hold
        `max_bytes` (counted in characters). A row is (id, created_at, source, type, subtype,
        content), or with `lines` (id, the event's JSON).
        """
        return self._scan(
            self._fragment(where),
            _PAGES[newest, lines],
            _Range(after, upto, newest=newest),
            limit,
            max_bytes,
        )

    def first(self, where: str, after: int, upto: int) -> int | None:
        """Return the lowest id of a matching event with `after` < id <= `upto`, or None."""
        rows, _ = self._scan(self._fragment(where), _IDS, _Range(after, upto, newest=False), 1, 1)
        return int(rows[0][0]) if rows else None

    def count(self, where: str, after: int, upto: int) -> int:
        """Return the number of matching events with `after` < id <= `upto`."""
        fragment, count = self._fragment(where), 0
        while after < upto:
            rows, after = self._scan(
                fragment, _IDS, _Range(after, upto, newest=False), WINDOW, WINDOW
            )
            count += len(rows)
        return count

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._db is not None:
            self._db.close()
        self._db = None
        self._steps = 0
        self._registered.clear()

    def timed(self, where: str) -> bool:
        """Return whether a filter may depend on the current time."""
        return self._fragment(where).timed

    def _fragment(self, where: str) -> Fragment:
        """Return the accepted filter, from a cache if possible."""
        check_text(where)
        found = self._fragments.get(where)
        if found is None:
            if len(self._fragments) >= MAX_CACHED:
                self._fragments.clear()
            found = self._fragments[where] = Fragment(where)
        return found

    def _open(self) -> apsw.Connection:
        if self._db is None:
            self._db = db = self._connect()
            db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
            db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            db.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
            db.authorizer = _authorize
            db.create_scalar_function("eventq_large", _stop_before, 1)
            db.create_scalar_function("eventq_heavy", _refuse_heavy, 0)
        return self._db

    def _is_late(self) -> bool:
        self._late = thread_time() > self._deadline
        return self._late

    def _scan(
        self, fragment: Fragment, sql: str, ids: _Range, limit: int, room: int
    ) -> tuple[list[Row], int]:
        """Collect rows window by window; no transaction stays open in between."""
        rows = _Rows(room)
        careful = False
        while ids.remain() and len(rows.found) < limit:
            before = len(rows.found)
            try:
                seconds = WINDOW_SECONDS if ids.width > 1 else EVENT_SECONDS
                values = (*ids.window(), limit - before)
                self._fetch(fragment, sql, values, rows, seconds, careful=careful)
            except _TooLongError:
                if ids.width == 1:
                    _too_much(fragment, f" on event {ids.window()[1]}")
                rows.cut(before)
                ids.shrink()
                continue
            except _GrewError:
                rows.cut(before)
                careful = True
                continue
            except _LargeError as error:
                ids.single_out(error.number)  # the rows before it are kept
                careful = True
                continue
            if rows.room <= 0 or len(rows.found) >= limit:
                return rows.found, ids.edge(int(rows.found[-1][0]))
            careful = False
            ids.advance()
            if len(rows.found) == before:
                self._skip(ids)
        return rows.found, ids.rest()

    def _skip(self, ids: _Range) -> None:
        """Skip ids without events, so that a pruned range is not scanned window by window."""
        if ids.remain():
            row = (
                self._open()
                .execute(_NEXT_DOWN if ids.newest else _NEXT, (ids.after, ids.upto))
                .fetchone()
            )
            ids.jump(row[0] if row else None)

    def _fetch(
        self,
        fragment: Fragment,
        sql: str,
        values: Row,
        rows: _Rows,
        seconds: float,
        *,
        careful: bool,
    ) -> None:
        """Run one statement to its end, or until `rows` is full."""
        db = self._open()
        self._prepare(db, fragment, careful=careful)
        head, _, tail = sql.partition("{}")
        if not careful and sql not in _WITHOUT_TABLE:
            head += _gate(fragment)
        self._deadline = thread_time() + seconds
        try:
            rows.take(
                db.execute(f"{head}{fragment.careful if careful else fragment.sql}{tail}", values)
            )
        except apsw.InterruptError:
            if self._late:
                raise _TooLongError from None
            raise
        except (
            apsw.SQLError,
            apsw.AuthError,
            apsw.TooBigError,
            apsw.MismatchError,
            _RefusedError,
        ) as error:
            _translate(error, fragment, len(head.encode()), careful=careful)
        finally:
            self._deadline, self._late = float("inf"), False

    def _prepare(self, db: apsw.Connection, fragment: Fragment, *, careful: bool) -> None:
        """Set how often the clock is checked and the longest pattern; register Python functions."""
        steps = 1 if careful else CLOCKED_STEPS if fragment.clocked else STEPS
        if steps != self._steps:
            db.set_progress_handler(self._is_late, steps)
            self._steps = steps
        self._careful = careful
        db.limit(
            apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH,
            MAX_LOOSE_PATTERN if fragment.loose else MAX_PATTERN,
        )
        for name in fragment.calls & _SCALARS.keys() - self._registered:
            function, count = _SCALARS[name]
            db.create_scalar_function(name, self._watched(function), count, deterministic=True)
            self._registered.add(name)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            if None in values:
                return "" if function is _hex else None
            made = function(*values)
            if made.__class__ is str and len(made) > GROWN and not self._careful:
                raise _GrewError
            return made

        return call


def _gate(fragment: Fragment) -> str:
    """Return a condition that stops the statement before an event with a large value.

    SQLite tests conditions joined by AND in their order, except for subqueries, which come last.
    """
    if not fragment.columns:
        return ""
    large = " OR ".join(f"octet_length({name})>{LARGE}" for name in fragment.columns)
    return f"CASE WHEN {large} THEN eventq_large(id) ELSE 1 END) AND (\n"


def _stop_before(*numbers: Any) -> Any:
    raise _LargeError(numbers[0])


def _refuse_heavy(*_: Any) -> Any:
    raise _TooLongError


class _TooLongError(Exception):
    """A statement used up its time."""


class _GrewError(Exception):
    """A function returned a large value in a statement that seldom checks the clock."""


class _LargeError(Exception):
    """A statement reached an event with a large value."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _RefusedError(Exception):
    """A function's result would exceed a limit."""


class _Range:
    """The ids that are still to be scanned, from one end, in windows."""

    def __init__(self, after: int, upto: int, *, newest: bool) -> None:
        self.after, self.upto, self.newest = after, upto, newest
        self.width = WINDOW

    def remain(self) -> bool:
        return self.after < self.upto

    def window(self) -> tuple[int, int]:
        if self.newest:
            return max(self.after, self.upto - self.width), self.upto
        return self.after, min(self.upto, self.after + self.width)

    def advance(self) -> None:
        """Move on to the next window, and widen it if this one was narrowed."""
        low, high = self.window()
        self.after, self.upto = (self.after, low) if self.newest else (high, self.upto)
        self.width = min(WINDOW, self.width * 2)

    def shrink(self) -> None:
        self.width = max(1, min(self.width, self.upto - self.after) // 100)

    def single_out(self, number: int) -> None:
        """Continue with this single event of the window."""
        self.after, self.upto = (self.after, number) if self.newest else (number - 1, self.upto)
        self.width = 1

    def jump(self, found: int | None) -> None:
        """Continue at an existing id, or end the range for None."""
        if self.newest:
            self.upto = self.after if found is None else found
        else:
            self.after = self.upto if found is None else found - 1

    def edge(self, last: int) -> int:
        """Return the id to continue at after a row."""
        return last - 1 if self.newest else last

    def rest(self) -> int:
        """Return the id to continue at after the last window."""
        return self.upto if self.newest else self.after


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, _: str | None
) -> int:
    """Allow the statement, the columns of events, and the listed functions; deny all else."""
    if action == apsw.SQLITE_SELECT:
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_READ and first == "events" and (second, database) in _READABLE:
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_FUNCTION and (second or "").lower() in _CALLABLE:
        return apsw.SQLITE_OK
    return apsw.SQLITE_DENY


class _Rows:
    """The rows found so far, and the room left for more."""

    def __init__(self, room: int) -> None:
        self.found: list[Row] = []
        self.room = room

    def take(self, cursor: apsw.Cursor) -> None:
        """Add the rows that fit, at least one, and reset the statement."""
        try:
            for row in cursor:
                self.found.append(row)
                self.room -= _size(row)
                if self.room <= 0:
                    break
        finally:
            cursor.close(force=True)  # an open read transaction would block checkpoints

    def cut(self, count: int) -> None:
        """Drop all rows after the first `count`: they will be found again."""
        self.room += sum(_size(row) for row in self.found[count:])
        del self.found[count:]


def _size(row: Row) -> int:
    return len(row[-1]) if isinstance(row[-1], (str, bytes)) else 1


def _too_much(fragment: Fragment, where: str = "") -> NoReturn:
    what = f"the filter takes too long{where}"
    raise FilterError(
        what, fragment.text, 0, "use fewer and simpler functions, or shorter patterns"
    )


def _translate(error: Exception, fragment: Fragment, before: int, *, careful: bool) -> NoReturn:
    """Raise an error of SQLite as a `FilterError`, unless it is about a missing table."""
    message = str(error)
    if message.startswith("no such table"):
        raise error
    offset = getattr(error, "error_offset", -1)
    at = _quoted(fragment.text, message)
    if offset >= before:
        at = fragment.place(offset - before, careful=careful)
    if isinstance(error, apsw.TooBigError):
        message = "it makes values that are too large"
    if at >= len(fragment.text):
        message = "it ends too early"
    raise FilterError(f"the filter does not work: {message}", fragment.text, at) from error


def _quoted(text: str, message: str) -> int:
    """Return the position of what a message quotes: errors at run time have no offset."""
    quoted = message[message.find("'") :]
    return max(text.find(quoted), 0) if quoted.endswith("'") else 0


# --- Python's versions of functions that are not linear in SQLite, or whose results grow ---


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _instr(text: Any, part: Any) -> int:
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return _text(text).find(_text(part)) + 1


def _replace(value: Any, old: Any, new: Any) -> str:
    text, old, new = _text(value), _text(old), _text(new)
    if not old:
        return text
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > MAX_MADE:
        raise _RefusedError("the result of replace() is too large")
    return text.replace(old, new)


def _hex(value: Any) -> str:
    data = value if isinstance(value, bytes) else _text(value).encode()
    if len(data) * 2 > MAX_MADE:
        raise _RefusedError("the result of hex() is too large")
    return data.hex().upper()


def _trimmer(strip: Callable[[str, str], str]) -> Callable[[Any, Any], str]:
    def trim(value: Any, chars: Any) -> str:
        text = "".join(set(_text(chars)))
        if len(text) > MAX_TRIM:
            raise _RefusedError(f"trim() removes at most {MAX_TRIM} different characters")
        return strip(_text(value), text) if text else _text(value)

    return trim


# Name to function and number of arguments. trim() with one argument remains SQLite's.
_SCALARS: dict[str, tuple[Callable[..., Any], int]] = {
    "hex": (_hex, 1),
    "instr": (_instr, 2),
    "ltrim": (_trimmer(str.lstrip), 2),
    "replace": (_replace, 3),
    "rtrim": (_trimmer(str.rstrip), 2),
    "trim": (_trimmer(str.strip), 2),
}
