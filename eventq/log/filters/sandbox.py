"""The filter sandbox: a read-only connection that limits what a filter can read, call and cost.

A filter is an untrusted string. `grammar` accepts it and `guards` completes it. Here it is compiled
as one expression in parentheses, first as it was written and then with its guards, on a connection
whose authorizer allows only the columns of `events` and the listed functions.

These limits stop an expensive filter, from the inside out. Functions that are not linear in SQLite
are replaced by Python's, which are. LIKE patterns are checked before they run. A window of ids that
takes more than a second of processor time is retried in smaller windows, down to a single event,
which gets three seconds. So a slow filter on large events is merely slow, and one that never ends
is refused. The budget is processor time, not steps, so that a busy or sleeping machine does not
count.

SQLite checks the clock only between its steps, and on 64 MiB a single function takes a second. So
the statement stops before an event with a large value. That event is tested on its own, and the
clock checked at each of the jumps in the filter. A push that tests the filters of other programs
(`tally`) stops there too, and after a tenth of a second. Checking the clock in each function
of every event lost: small events cost twice as much.
"""

from __future__ import annotations

from time import thread_time

import apsw

from eventq.errors import FilterError
from eventq.log.filters.grammar import COLUMNS, FUNCTIONS, Unreadable, Words, accept, is_timed
from eventq.log.filters.guards import Guarded
from eventq.records.event import Tally

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
MAX_MADE = 130 << 20  # characters that replace() and hex() may return: two for each byte of one
LARGE = 1 << 16  # bytes of a column's value from which on an event is tested on its own
GROWN = 1 << 20  # characters of a function's result after which the clock is checked
MAX_TRIM = 64  # different characters that trim() may remove
MAX_PATTERN = 500  # bytes of a LIKE pattern that is a literal, and so was checked before
MAX_LOOSE_PATTERN = 64  # bytes of one that is computed
MAX_WORK = 1 << 30  # bytes of a pattern that is computed times those of the value: a second or two
MAX_CACHED = 4_000  # filters, of 4 KiB each or so

# CAST: other tools may have stored a BLOB; on text it has no effect.
_TEXTS = [f"CAST({name} AS TEXT)" for name in COLUMNS[1:]]
ROW = f"id, {', '.join(_TEXTS)}"
_PAIRS = [f"'{name}', {text}" for name, text in zip(COLUMNS[1:], _TEXTS, strict=True)]
LINE = f"json_object('id', id, {', '.join(_PAIRS)})"
# NOT INDEXED: an old thread has indexes on source and type, and the planner would sort to use them.
RANGE = "FROM events NOT INDEXED WHERE id > ? AND id <= ?"
ORDER = {False: "ORDER BY id", True: "ORDER BY id DESC"}


def _statement(what: str, *, newest: bool = False) -> str:
    return f"SELECT {what} {RANGE} AND (\n{{}}\n) {ORDER[newest]} LIMIT ?"


_IDS = _statement("id")
_PAGES = {
    (newest, lines): _statement(f"id, {LINE}" if lines else ROW, newest=newest)
    for newest in ORDER
    for lines in (False, True)
}
_NEXT = {newest: f"SELECT id {RANGE} {order} LIMIT 1" for newest, order in ORDER.items()}

# One invented event: this compiles everything, reads no table, and finds errors that SQLite reports
# only at run time (a JSON path).
_PROBE = """SELECT 1 FROM (SELECT 1 AS id, '2026-01-01T00:00:00.000Z' AS created_at,
'self' AS source, 'record' AS type, 'note' AS subtype, '{ }' AS content) AS events
WHERE (
{}
)"""
_TRIAL = f"EXPLAIN {_PROBE}"  # compiles a filter as it was written, and runs nothing

# One event whose values are bound. Each is cast to the type of its column: without that, comparing
# it with another type would not give the same result as on the table.
_EVENT = """SELECT 1 FROM (SELECT CAST(? AS INTEGER) AS id,
CAST(? AS TEXT) AS created_at, CAST(? AS TEXT) AS source,
CAST(? AS TEXT) AS type, CAST(? AS TEXT) AS subtype, CAST(? AS TEXT) AS content) AS events
WHERE (
{}
)"""
_WITHOUT_TABLE = (_PROBE, _EVENT)

_OWN = {"eventq_large", "json_object", "->", "->>"}
_CALLABLE = FUNCTIONS | _OWN | {"current_date", "current_time", "current_timestamp"}

# A statement that needs no column but the id reads the column "" of no database.
_READABLE = {(column, "main") for column in COLUMNS} | {("", None), ("", "main")}


class FilterSandbox:
    """A second, read-only connection for filters, opened on first use. One caller at a time."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._db: apsw.Connection | None = None
        self._filters: dict[str, Filter] = {}
        self._registered: set[str] = set()
        self._deadline = float("inf")
        self._late = False
        self._hurried = False
        self._steps = 0

    def check(self, where: str | None) -> str:
        """Return the filter to be stored, or raise `FilterError` with the position of the fault.

        No event is read.
        """
        found = self._filter(where or "")
        if found.text and not found.is_tried:
            try:
                self._fetch(found, _PROBE, (), _Rows(1), WINDOW_SECONDS)
            except _TooLongError:
                _too_much(found)
            found.is_tried = True
        return found.text

    def matches(self, where: str, event: Row) -> bool:
        """Return whether an accepted filter matches one event, given as six values."""
        found, rows = self._filter(where), _Rows(1)
        size = max(len(value) for value in event[1:] if value is not None)
        try:
            self._fetch(found, _EVENT, event, rows, EVENT_SECONDS, large=size * (size > LARGE))
        except _TooLongError:
            _too_much(found, f" on event {event[0]}")
        return bool(rows.found)

    def tally(self, where: str, after: int, upto: int, most: int, seconds: float | None) -> Tally:
        """Return how many events with `after` < id <= `upto` match, or the first ones of them.

        The search ends after `most` matches; with `seconds` also after so much processor time, but
        not before the first STEPS, and before an event of many bytes. Raises FilterError for a
        broken filter.
        """
        found, ids, rows = self._filter(where), _Range(after, upto, newest=False), _Rows(most)
        if seconds is None:
            rows.found, at = self._scan(found, _IDS, ids, most, most)
            return _tally(rows, whole=at >= upto)
        deadline = thread_time() + seconds
        self._hurried = True
        try:
            while ids.remain() and rows.room > 0:
                values, left = (*ids.window(), rows.room), deadline - thread_time()
                self._fetch(found, _IDS, values, rows, left)
                ids.advance()
                if left <= 0:
                    break
        except (_TooLongError, _LargeError):
            return _tally(rows, whole=False)
        finally:
            self._hurried = False
        return _tally(rows, whole=rows.room > 0 and not ids.remain())

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
            self._filter(where),
            _PAGES[newest, lines],
            _Range(after, upto, newest=newest),
            limit,
            max_bytes,
        )

    def first(self, where: str, after: int, upto: int) -> int | None:
        """Return the lowest id of a matching event with `after` < id <= `upto`, or None."""
        rows, _ = self._scan(self._filter(where), _IDS, _Range(after, upto, newest=False), 1, 1)
        return int(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        connection, self._db = self._db, None
        if connection is not None:
            connection.close()
        self._steps = 0
        self._registered.clear()

    def timed(self, where: str) -> bool:
        """Return whether a filter may depend on the current time."""
        return self._filter(where).timed

    def _filter(self, where: str) -> Filter:
        """Return the accepted filter, from a cache if possible."""
        if isinstance(where, Unreadable) or not isinstance(where, str):
            raise FilterError("the filter is not text", "", 0, "give one SQL condition as text")
        found = self._filters.get(where)
        if found is None:
            if len(self._filters) >= MAX_CACHED:
                self._filters.clear()
            found = self._filters[where] = Filter(where, self._try)
        return found

    def _try(self, text: str) -> None:
        """Let SQLite compile a filter as it was written; raise FilterError with its place."""
        try:
            self._open().execute(_TRIAL.replace("{}", text)).close()
        except _FAULTS as error:
            at = getattr(error, "error_offset", -1) - len(_TRIAL.partition("{}")[0])
            if at > 0:  # bytes
                at = len(text.encode()[:at].decode(errors="ignore"))
            # No cause: this reads no table, so that no other schema of the thread is at fault.
            raise _refusal(error, text, at) from None

    def _open(self) -> apsw.Connection:
        if self._db is None:
            self._db = db = self._connect()
            db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
            db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            db.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
            db.authorizer = _authorize
            db.create_scalar_function("eventq_large", _stop_before)
        return self._db

    def _is_late(self) -> bool:
        self._late = thread_time() > self._deadline
        return self._late

    def _scan(
        self, wanted: Filter, sql: str, ids: _Range, limit: int, room: int
    ) -> tuple[list[Row], int]:
        """Collect rows window by window; no transaction stays open in between."""
        rows = _Rows(room)
        large = 0
        while ids.remain() and len(rows.found) < limit:
            before = len(rows.found)
            try:
                seconds = WINDOW_SECONDS if ids.width > 1 else EVENT_SECONDS
                values = (*ids.window(), limit - before)
                self._fetch(wanted, sql, values, rows, seconds, large=large)
            except _TooLongError:
                if ids.width == 1:
                    _too_much(wanted, f" on event {ids.window()[1]}")
                rows.cut(before)
                ids.shrink()
                continue
            except _LargeError as error:
                ids.jump(error.number)  # the rows before it are kept
                ids.width, large = 1, error.size
                continue
            if rows.room <= 0 or len(rows.found) >= limit:
                ids.jump(int(rows.found[-1][0]))
                ids.at += 1
                break
            large = 0
            ids.advance()
            if len(rows.found) == before and ids.remain():
                # A pruned range is not scanned window by window.
                rest = ids.turned(ids.at, ids.end)
                row = self._open().execute(_NEXT[ids.newest], rest).fetchone()
                ids.jump(row[0] if row else None)
        return rows.found, ids.rest()

    def _fetch(
        self, wanted: Filter, sql: str, values: Row, rows: _Rows, seconds: float, *, large: int = 0
    ) -> None:
        """Run one statement to its end, or until `rows` is full.

        It stops before an event with a large value, unless it is for this one, of `large` bytes.
        """
        db = self._open()
        made = wanted.made
        self._prepare(db, made, large)
        gate = "" if large or sql in _WITHOUT_TABLE else _gate(made)
        self._deadline = thread_time() + seconds
        try:
            rows.take(db.execute(sql.replace("{}", gate + made.sql), values))
        except apsw.InterruptError:
            if self._late:
                raise _TooLongError from None
            raise
        except _FAULTS as error:
            if str(error).startswith("no such table"):
                raise
            if large and "pattern too complex" in str(error):
                raise _TooLongError from error
            raise _refusal(error, wanted.text, -1) from error
        finally:
            self._deadline, self._late = float("inf"), False

    def _prepare(self, db: apsw.Connection, made: Guarded, large: int) -> None:
        """Set how often the clock is checked and the longest pattern; register Python functions."""
        steps = 1 if large else CLOCKED_STEPS if made.clocked else STEPS
        if steps != self._steps:
            db.set_progress_handler(self._is_late, steps)
            self._steps = steps
        longest = min(MAX_LOOSE_PATTERN, MAX_WORK // max(large, 1)) if made.loose else MAX_PATTERN
        db.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, longest)
        for name in made.calls & SCALARS.keys() - self._registered:
            function, count = SCALARS[name]
            db.create_scalar_function(name, self._watched(function), count, deterministic=True)
            self._registered.add(name)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            made = function(*values)
            if made.__class__ is str and len(made) > GROWN and (self._hurried or self._is_late()):
                raise _TooLongError
            return made

        return call


class Filter:
    """A filter that is a condition: its `text`, "" for all events, and the form that is run.

    It is `timed` if it may depend on the current time, so that an event which does not match now
    may match later.
    """

    __slots__ = ("is_tried", "made", "text", "timed")

    def __init__(self, text: str, attempt: Callable[[str], None]) -> None:
        """Accept a filter, or raise FilterError; `attempt` is how SQLite compiles it by itself."""
        self.text = text if text.strip(" \t\n\f\r") else ""
        words = Words(self.text or "1")
        accept(words)
        attempt(words.text)
        self.is_tried = False  # on an event that has nothing but NULL
        self.timed = is_timed(words)
        self.made = Guarded(words)


def _gate(made: Guarded) -> str:
    """Return a condition that stops the statement before an event with a large value.

    SQLite tests conditions joined by AND in their order, except for subqueries, which come last.
    """
    if not made.columns:
        return ""
    sizes = [f"octet_length({name})" for name in made.columns]
    large = " OR ".join(f"{size}>{LARGE}" for size in sizes)
    return f"CASE WHEN {large} THEN eventq_large(id,{','.join(sizes)}) ELSE 1 END) AND (\n"


def _stop_before(*values: Any) -> Any:
    raise _LargeError(values[0], max(size or 0 for size in values[1:]))


class _TooLongError(Exception):
    """A statement used up its time."""


class _LargeError(Exception):
    """A statement reached an event with a large value."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__(number)
        self.number = number
        self.size = max(size, 1)


class RefusedError(Exception):
    """A function's result would exceed a limit."""


# What SQLite and our functions say of a filter; other errors are of the store.
_FAULTS = (apsw.SQLError, apsw.AuthError, apsw.TooBigError, apsw.MismatchError, RefusedError)


class _Range:
    """The ids that are still to be scanned, from one end, in windows.

    They are `at` < id <= `end`; newest first, these are the bounds of negated ids.
    """

    def __init__(self, after: int, upto: int, *, newest: bool) -> None:
        self.newest = newest
        self.at, self.end = self.turned(after, upto)
        self.width = WINDOW

    def turned(self, after: int, upto: int) -> tuple[int, int]:
        return (-upto - 1, -after - 1) if self.newest else (after, upto)

    def remain(self) -> bool:
        return self.at < self.end

    def window(self) -> tuple[int, int]:
        return self.turned(self.at, min(self.end, self.at + self.width))

    def advance(self) -> None:
        """Move on to the next window, and widen it if this one was narrowed."""
        self.at = min(self.end, self.at + self.width)
        self.width = min(WINDOW, self.width * 2)

    def shrink(self) -> None:
        self.width = max(1, min(self.width, self.end - self.at) // 100)

    def jump(self, found: int | None) -> None:
        """Continue at an id, or end the range for None."""
        self.at = self.end if found is None else (-found if self.newest else found) - 1

    def rest(self) -> int:
        """Return the id to continue after, or, newest first, the last of what remains."""
        return -self.at - 1 if self.newest else self.at


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
        add, room = self.found.append, self.room
        try:
            for row in cursor:
                add(row)
                room -= 1 if type(row[-1]) is int else _size(row)  # ids are counted by the thousand
                if room <= 0:
                    break
        finally:
            self.room = room
            cursor.close(force=True)  # an open read transaction would block checkpoints

    def cut(self, count: int) -> None:
        """Drop all rows after the first `count`: they will be found again."""
        self.room += sum(_size(row) for row in self.found[count:])
        del self.found[count:]


def _tally(rows: _Rows, *, whole: bool) -> Tally:
    return Tally(rows.found[0][0] if rows.found else None, len(rows.found), whole)


def _size(row: Row) -> int:
    return len(row[-1]) if isinstance(row[-1], (str, bytes)) else 1


def _too_much(wanted: Filter, where: str = "") -> NoReturn:
    fix = "use fewer and simpler functions, or shorter patterns"
    raise FilterError(f"the filter takes too long{where}", wanted.text, 0, fix)


def _refusal(error: Exception, text: str, at: int) -> FilterError:
    """Return the error for what SQLite says of a filter; `at` is -1 if it does not say where."""
    what = str(error).split("\n")[0]
    name = what.rpartition(": ")[2]
    if at < 0:  # such as errors at run time, which may quote what they mean
        quoted = what[what.find("'") :]
        at = max(text.find(quoted if quoted.endswith("'") else name), 0)
    if "function: " in what:
        return FilterError(f"'{name}' is not a function a filter may use", text, at, _nearest(name))
    if isinstance(error, apsw.TooBigError):
        what = "it makes values that are too large"
    if at >= len(text):
        what = "it ends too early"
    return FilterError(f"the filter does not work: {what}", text, at)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    if name.upper() in ("MATCH", "REGEXP"):  # operators, which SQLite calls by their functions
        return "search with LIKE, GLOB or instr(content, 'text')"
    close = get_close_matches(name.lower(), sorted(FUNCTIONS), 1)
    return f"did you mean {close[0]}()?" if close else f"use one of {', '.join(sorted(FUNCTIONS))}"


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
        raise RefusedError("the result of replace() is too large")
    return text.replace(old, new)


def _hex(value: Any) -> str:
    data = value if isinstance(value, bytes) else _text(value).encode()
    if len(data) * 2 > MAX_MADE:
        raise RefusedError("the result of hex() is too large")
    return data.hex().upper()


def _trimmer(strip: Callable[[str, str], str]) -> Callable[[Any, Any], str]:
    def trim(value: Any, chars: Any) -> str:
        text = "".join(set(_text(chars)))
        if len(text) > MAX_TRIM:
            raise RefusedError(f"trim() removes at most {MAX_TRIM} different characters")
        return strip(_text(value), text) if text else _text(value)

    return trim


def _of_values(function: Callable[..., Any], null: str | None = None) -> Callable[..., Any]:
    """Return a function that is called for values only: the result of NULL is `null`."""
    return lambda *values: null if None in values else function(*values)


# Name to function and number of arguments. trim() with one argument remains SQLite's.
SCALARS: dict[str, tuple[Callable[..., Any], int]] = {
    "hex": (_of_values(_hex, ""), 1),
    "instr": (_of_values(_instr), 2),
    "ltrim": (_of_values(_trimmer(str.lstrip)), 2),
    "replace": (_of_values(_replace), 3),
    "rtrim": (_of_values(_trimmer(str.rstrip)), 2),
    "trim": (_of_values(_trimmer(str.strip)), 2),
}
