"""Statements of people, who may only read: one at a time, on a connection of their own.

The connection reads at one moment and is closed afterwards. An authorizer refuses whatever is not
reading: SQLite asks it as it compiles, so that nothing has happened yet. The clock is looked at
between SQLite's steps, so functions that are not linear are those of the filter sandbox. The views
for people are temporary, made on the connection: a thread that may only be read has them, and no
schema changes.
"""

from __future__ import annotations

import re

import apsw

from eventq.errors import DamagedError, InputError, LogicError, TooLargeError, UsageError
from eventq.log.filters.sandbox import MAX_PATTERN, SCALARS, RefusedError
from eventq.records.rows import Rows
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.errors import EventqError
    from eventq.records.rows import Value, Values
    from eventq.store.sqlite.database import Database

ROOM = 256 << 20  # bytes of all rows: what is bigger takes more memory than a program expects
MAX_VALUE = 128 << 20  # bytes of one value
_OF_A_VALUE = 60  # bytes that Python takes for one, beside its text
_HARMLESS = apsw.SQLITE_INNOCUOUS | apsw.SQLITE_DETERMINISTIC
_STEPS = 1_000  # of SQLite between two looks at the clock: far below a millisecond
_NOTHING = re.compile(r"(?:[ \t\n\f\r;]|--[^\n]*+|(?>/\*.*?(?:\*/|\Z)))*+", re.DOTALL)

# ruff: noqa: S608 (the parts are constants)

_READS = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE}
_CHECKS = {"foreign_key_check", "integrity_check", "quick_check"}
_LISTS = {
    "collation_list", "compile_options", "database_list", "foreign_key_list", "function_list",
    "index_info", "index_list", "index_xinfo", "module_list", "pragma_list", "table_info",
    "table_list", "table_xinfo",
}  # fmt: skip
_STATES = {  # to read them takes no value, which would change them
    "application_id", "auto_vacuum", "encoding", "freelist_count", "journal_mode", "page_count",
    "page_size", "schema_version", "user_version",
}  # fmt: skip


def _at(column: str) -> str:
    """Return the SQL for a time in milliseconds, spelled as that of events."""
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


_VIEWS = f"""
CREATE TEMP VIEW v_turns AS
SELECT t.turn_id, t.parent_id, t.depth, t.type_id AS type, t.type_version AS version,
    payload(b.hash) AS payload, b.raw_len AS size, p.seq IS NOT NULL AS patched,
    {_at("t.created_at_ms")} AS created_at
FROM turns t
    LEFT JOIN turn_patches p ON p.seq = (
        SELECT max(seq) FROM turn_patches q WHERE q.turn_id = t.turn_id
    )
    LEFT JOIN blobs b ON b.blob_id = CASE WHEN p.seq IS NULL THEN t.blob_id ELSE p.blob_id END;

CREATE TEMP VIEW v_contexts AS
SELECT context_id, name, head_id, coalesce(depth + 1, 0) AS turns, fork_of, base_id,
    {_at("c.created_at_ms")} AS created_at, {_at("updated_at_ms")} AS updated_at
FROM contexts c
    LEFT JOIN turns ON turn_id = head_id;

CREATE TEMP VIEW v_runs AS
SELECT r.context_id AS run_id, r.name, c.name AS label, grouped AS "group", status,
    coalesce(depth, 0) AS depth, fork_of, {_at("c.created_at_ms")} AS created_at,
    {_at("updated_at_ms")} AS updated_at, {_at("completed_at_ms")} AS completed_at
FROM runs r
    CROSS JOIN contexts c USING (context_id)
    LEFT JOIN turns ON turn_id = head_id;

CREATE TEMP VIEW v_consumers AS
SELECT s.consumer_id, coalesce(kind, 'loop') AS kind,
    CASE kind WHEN 'pull' THEN NULL ELSE coalesce(command, handler_cmd) END AS handler, filter,
    coalesce(last_acked_id, 0) AS last_acked_id, coalesce(paused, 0) AS paused,
    coalesce(unfinished, 0) AS unfinished,
    (SELECT count(*) FROM dead_letters d WHERE d.queue_id = q.queue_id) AS dead, updated_at
FROM subscriptions s
    LEFT JOIN consumer_settings USING (consumer_id)
    LEFT JOIN consumer_progress USING (consumer_id)
    LEFT JOIN queues q USING (consumer_id);

CREATE TEMP VIEW v_claims AS
SELECT consumer_id, event_id,
    CASE state WHEN 0 THEN 'leased' WHEN 1 THEN 'retrying' WHEN 2 THEN 'waiting' ELSE 'stalled' END
        AS state,
    attempts, worker, {_at("due_at")} AS due_at, {_at("since")} AS since, group_value, code, error
FROM unfinished
    CROSS JOIN queues USING (queue_id);

CREATE TEMP VIEW v_dead_letters AS
SELECT consumer_id, event_id, attempts, code, error, {_at("died_at")} AS died_at, source, type,
    subtype, content
FROM dead_letters
    CROSS JOIN queues USING (queue_id)
    LEFT JOIN events ON id = event_id;

CREATE TEMP VIEW v_artifacts AS
SELECT 'artifact://' || number AS url, a.scope_id, coalesce(s.name, c.name) AS session, number,
    tool, status, size, lines, {_at("a.created_at_ms")} AS created_at,
    {_at("ended_at_ms")} AS ended_at
FROM artifacts a
    LEFT JOIN scopes s USING (scope_id)
    LEFT JOIN contexts c ON c.context_id = a.scope_id;

CREATE TEMP VIEW v_outputs AS
SELECT 'agent://' || output_id AS url, o.scope_id, coalesce(s.name, c.name) AS session, output_id,
    o.version, payload(hash) AS payload, raw_len AS size, {_at("o.created_at_ms")} AS created_at
FROM agent_outputs o
    CROSS JOIN blobs USING (blob_id)
    LEFT JOIN scopes s USING (scope_id)
    LEFT JOIN contexts c ON c.context_id = o.scope_id;
"""
# What anybody looks for first, then the views, then all other tables.
_TABLES = """
SELECT l.name, l.type,
    (SELECT group_concat(i.name, ', ') FROM pragma_table_info(l.name, l.schema) i) AS columns
FROM pragma_table_list l
WHERE substr(l.name, 1, 7) NOT IN ('sqlite_', 'schema_')
ORDER BY l.name NOT IN ('events', 'subscriptions', 'consumer_progress'), l.type = 'table', l.name
"""


def query(
    moment: Database,
    text: str,
    values: Values,
    limit: int | None,
    seconds: float,
    payload: Callable[[Any], str | bytes | None],
) -> Rows:
    """Run a statement at a moment that is used for nothing else; see `store.protocol`."""
    statement = _Statement(text or _TABLES, limit, seconds)
    scalar: Any = payload
    views = _VIEWS if moment.has_memory() else ""

    def run(connection: apsw.Connection) -> Rows:
        for name, (function, count) in SCALARS.items():
            connection.create_scalar_function(name, function, count, flags=_HARMLESS)
        connection.create_scalar_function("payload", scalar, 1, flags=_HARMLESS)
        connection.execute(views).fetchall()
        connection.pragma("query_only", 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN)
        connection.authorizer = _authorize
        return statement.run(connection, values, moment.path)

    return moment.steady(run)  # type: ignore[no-any-return]


def _authorize(
    action: int, first: str | None, second: str | None, _: str | None, __: str | None
) -> int:
    """Allow what reads: any table, any function but one, and pragmas that tell something."""
    if action in _READS or (action == apsw.SQLITE_FUNCTION and second != "load_extension"):
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_PRAGMA:
        is_state = first in _STATES and second is None
        return apsw.SQLITE_OK if is_state or first in _LISTS | _CHECKS else apsw.SQLITE_DENY
    return apsw.SQLITE_DENY


class _Statement:
    """One statement, its bounds, and what is known of it once it is compiled."""

    def __init__(self, text: str, limit: int | None, seconds: float) -> None:
        self._text = text
        self._limit = limit
        self._seconds = seconds
        self._deadline = clock.monotonic() + seconds
        self._late = False
        self._columns: list[str] = []
        self._check_text()

    def _check_text(self) -> None:
        if "\0" in self._text:
            raise UsageError("the statement holds a NUL character", "leave it out, or bind a value")
        if _NOTHING.fullmatch(self._text):
            raise UsageError("there is no statement, only blanks or comments", _HOW)

    def run(self, connection: apsw.Connection, values: Values, path: str) -> Rows:
        """Return the rows; raise UsageError for a statement that SQLite refuses."""
        connection.set_progress_handler(self._is_late, _STEPS)
        cursor = connection.cursor()
        cursor.exec_trace = self._compiled
        try:
            return self._take(cursor.execute(self._text, values))
        except UnicodeEncodeError:
            raise
        except _MISTAKES as error:
            raise _refusal(error) from error
        except UnicodeDecodeError as error:
            raise DamagedError(
                f"the statement read text from '{path}' that is not UTF-8",
                "select it as bytes: CAST(column AS BLOB)",
            ) from error
        except Exception as error:
            if self._late:
                raise self._too_long() from error
            raise
        finally:
            cursor.close(force=True)

    def _compiled(self, cursor: apsw.Cursor, text: str, _: object) -> bool:
        """Note the columns before the first step; refuse a second statement behind this one."""
        if _NOTHING.fullmatch(text):
            return True  # what follows the statement
        if not _NOTHING.fullmatch(self._text, len(text)):
            raise UsageError("there is more than one statement", "run one after the other")
        names = [name for name, _ in cursor.get_description()]
        for name in names:
            again, number = name, 0
            while again in self._columns:
                number += 1
                again = f"{name}:{number}"
            self._columns.append(again)
        return True

    def _take(self, cursor: apsw.Cursor) -> Rows:
        rows: list[dict[str, Value]] = []
        columns, room = self._columns, ROOM
        for row in cursor:
            if len(rows) == self._limit:
                return Rows(rows, columns, more=True)
            room -= sum(_size(value) for value in row)
            if room < 0 and (rows or self._limit is None):
                if self._limit is None:
                    fix = "select fewer columns or rows, or give limit= and read in parts"
                    raise TooLargeError(None, ROOM, "result", fix)
                return Rows(rows, columns, more=True)
            rows.append(dict(zip(columns, row, strict=True)))
        return Rows(rows, columns, more=False)

    def _is_late(self) -> bool:
        self._late = clock.monotonic() > self._deadline
        return self._late

    def _too_long(self) -> EventqError:
        error = LogicError(
            f"the statement took longer than {self._seconds:g} s",
            "add a condition on a key such as id, or raise timeout",
        )
        error.command = error.fix.replace("timeout", "--timeout")  # type: ignore[attr-defined]
        return error


def _size(value: Any) -> int:
    return _OF_A_VALUE + (len(value) if isinstance(value, (str, bytes)) else 0)


_HOW = "give one SELECT; without any, 'eventq sql' lists the tables and views"
# Of whoever wrote the statement or its values, by what they may have got wrong.
_VALUES = (apsw.BindingsError, KeyError, OverflowError, TypeError)
_MISTAKES = (
    apsw.SQLError, apsw.AuthError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError,
    RefusedError, *_VALUES,
)  # fmt: skip


def _refusal(error: Exception) -> EventqError:
    """Return the error for what SQLite says of a statement, or apsw of its values."""
    if isinstance(error, _VALUES):
        if isinstance(error, KeyError):
            what = f"there is no value for :{error.args[0]}"
        else:
            what = f"the values do not fit the statement: {error}"
        fix = "give one value for each ?, in order, or a mapping for names such as :id"
        return InputError(what, fix)
    if isinstance(error, apsw.TooBigError):
        fix = f"a value has at most {MAX_VALUE >> 20} MiB: select a part of it with substr()"
        return InputError(f"SQLite refused the statement: {error}", fix)
    words = str(error).split("\n")[0]
    if isinstance(error, apsw.AuthError) or "not authorized" in words or "prohibited" in words:
        fix = "only reading is allowed: one SELECT, WITH, VALUES or EXPLAIN"
        return UsageError(f"SQLite refused the statement: {words}", fix)
    fix = "correct it; without a statement, 'eventq sql' lists the tables, views and columns"
    return UsageError(f"SQLite refused the statement: {words}", fix)
