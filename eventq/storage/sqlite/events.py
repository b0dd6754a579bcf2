"""The events of one database: what is stored, read, searched and pruned."""

from __future__ import annotations

import os

import apsw

from eventq.errors import DamagedError, InputError
from eventq.event import Event
from eventq.storage.sqlite.values import is_utf8, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

PAGE_BYTES = 4 << 20  # what one page of events may hold in memory, beside its first event
PAGE_ROWS = 1_000

_INSERT = "INSERT INTO events (created_at, source, type, subtype, content) VALUES (?, ?, ?, ?, ?)"
_LINE = (
    "json_object('id', id, 'created_at', CAST(created_at AS TEXT), 'source', CAST(source AS TEXT),"
    " 'type', CAST(type AS TEXT), 'subtype', CAST(subtype AS TEXT), 'content', CAST(content AS TEXT))"
)
# Other tools may have stored a BLOB; of text CAST makes nothing new.
_COLUMNS = (
    "CAST(created_at AS TEXT), CAST(source AS TEXT), CAST(type AS TEXT), CAST(subtype AS TEXT), CAST(content AS TEXT)"
)
_BYTES = _COLUMNS.replace("TEXT", "BLOB")


class Events:
    """The table of events, and the keys and refs of its rows."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
        self._run = db.run
        self._one = db.one

    def insert(self, created_at: str, source: str, kind: str, subtype: str | None, content: str) -> int:
        """Store one event and give its id: one statement, which is its own transaction outside of `write`."""
        if self._db.pid != os.getpid():
            raise self._db.gone()
        with self._db.lock:
            connection = self._db.open_connection
            if connection is None:
                raise self._db.gone()
            self._db.ready(connection)
            if not self._db.depth:
                self._db.alive()  # see `begin`
            try:
                self._db.cursor.execute(_INSERT, (created_at, source, kind, subtype, content))
            except (apsw.Error, UnicodeEncodeError) as error:
                raise self._db.explain(error) from error
            return connection.last_insert_rowid()

    def insert_many(self, rows: Iterable[tuple[str, str, str, str | None, str]]) -> None:
        """Store events inside `write`."""
        self._db.ready(self._db.connection)
        try:
            self._db.cursor.executemany(_INSERT, rows)
        except (apsw.Error, UnicodeEncodeError) as error:
            raise self._db.explain(error) from error

    def last_id(self) -> int:
        """Give the id of the newest event there ever was, 0 when there was none."""
        found = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        if found is None:  # none yet, or the row is lost, or the table is: then this says so
            found = self._one("SELECT max(id) FROM events")
        return found or 0

    def count(self) -> int:
        """Give the number of stored events."""
        return int(self._one("SELECT count(*) FROM events"))

    def first_id(self) -> int:
        """Give the id of the oldest stored event, 0 when there is none."""
        return self._one("SELECT min(id) FROM events") or 0

    def event(self, number: int) -> Event | None:
        """Give one event, or None."""
        try:
            rows = self._run(f"SELECT id, {_COLUMNS} FROM events WHERE id = ?", (number,))  # noqa: S608
        except DamagedError:  # like its line in the mirror: a push goes on after it
            rows = self._run(f"SELECT id, {_BYTES} FROM events WHERE id = ?", (number,))  # noqa: S608
            rows = [[v.decode(errors="replace") if isinstance(v, bytes) else v for v in row] for row in rows]
        return Event._make(rows[0]) if rows else None

    def after_id(self, after: int) -> int | None:
        """Give the lowest id above `after`, or None."""
        return self._one("SELECT id FROM events WHERE id > ? ORDER BY id LIMIT 1", (after,))  # type: ignore[no-any-return]

    def id_from_end(self, count: int) -> int:
        """Give the id of the `count`-th newest event, or of the oldest when there are fewer; 0 for none at all."""
        sql = "SELECT min(id) FROM (SELECT id FROM events ORDER BY id DESC LIMIT ?)"
        return self._one(sql, (count,)) or 0

    def page(self, text: str, after: int, upto: int, limit: int, *, lines: bool = False) -> tuple[list[Any], int]:
        """Give matching rows with after < id <= upto, in order, and the id that the search has got to.

        A row has the six columns, or `(id, line)` with `lines`; at most `limit`, and fewer when they are large.
        """
        if text:
            found: tuple[list[Any], int] = self._db.steady(
                lambda: self._db.sandbox.page(text, after, upto, limit, lines=lines, max_bytes=PAGE_BYTES)
            )
            return found
        sql = (
            f"SELECT id, {_LINE} FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608
            if lines
            else f"SELECT id, {_COLUMNS} FROM events NOT INDEXED"  # noqa: S608
            " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        )
        bindings = (after, upto, min(limit, PAGE_ROWS))
        rows, whole = self._db.steady(lambda: _gather(self._db.connection.execute(sql, bindings)))
        done = whole and len(rows) < min(limit, PAGE_ROWS)
        return rows, upto if done else rows[-1][0]

    def newest(self, text: str, upto: int, limit: int) -> list[Any]:
        """Give the newest `limit` matching rows with id <= upto, oldest first."""
        found: list[Any] = []
        while upto > 0 and len(found) < limit:
            rows, upto = self._newest_page(text, upto, limit - len(found))
            found += rows
        found.reverse()
        return found

    def _newest_page(self, text: str, upto: int, limit: int) -> tuple[list[Any], int]:
        if text:
            rows, low = self._db.steady(
                lambda: self._db.sandbox.page(text, 0, upto, limit, newest=True, max_bytes=PAGE_BYTES)
            )
            return rows, low
        sql = f"SELECT id, {_COLUMNS} FROM events NOT INDEXED WHERE id <= ? ORDER BY id DESC LIMIT ?"  # noqa: S608
        bindings = (upto, min(limit, PAGE_ROWS))
        rows, whole = self._db.steady(lambda: _gather(self._db.connection.execute(sql, bindings)))
        return rows, 0 if whole and len(rows) < bindings[1] else rows[-1][0] - 1

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Give the lowest id with after < id <= upto that a filter matches, or None."""
        if text:
            return self._db.steady(lambda: self._db.sandbox.first(text, after, upto))  # type: ignore[no-any-return]
        first = self.after_id(after)
        return first if first is not None and first <= upto else None

    def could_match(self, text: str, after: int, upto: int, seconds: float) -> bool:
        """Say whether an event with after < id <= upto may match a filter, as far as so much processor time tells.

        `text` need not be accepted before. Raises FilterError for a filter that is refused.
        """
        return bool(self._db.steady(lambda: self._db.sandbox.could_match(text, after, upto, seconds)))

    def count_matches(self, text: str, after: int, upto: int) -> int:
        """Count the events with after < id <= upto that a filter matches."""
        if not text:
            return int(self._one("SELECT count(*) FROM events WHERE id > ? AND id <= ?", (after, upto)))
        return int(self._db.steady(lambda: self._db.sandbox.count(text, after, upto)))

    def check_filter(self, text: str | None) -> str:
        """Give the filter as it is run, "" for all; raise FilterError when it is refused."""
        return self._db.steady(lambda: self._db.sandbox.check(text)) if text else ""

    def lines(self, after: int, upto: int) -> Iterator[bytes]:
        """Give the events with after < id <= upto as NDJSON in blocks of bounded size; U+FFFD for bad UTF-8."""
        for block in self._blocks(after, upto):
            yield block if is_utf8(block) else block.decode(errors="replace").encode()

    def _blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Give the events with after < id <= upto as NDJSON of whatever bytes are stored."""
        step = PAGE_ROWS
        sql = f"SELECT CAST(group_concat({_LINE}, char(10)) AS BLOB) FROM (SELECT * FROM events NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id)"  # noqa: S608, E501
        while after < upto:
            to = min(after + step, upto)
            size = self._one(
                "SELECT total(octet_length(content)) FROM events NOT INDEXED WHERE id > ? AND id <= ?", (after, to)
            )
            if size > PAGE_BYTES and to - after > 1:
                step = max(1, (to - after) // 2)
                continue
            text = self._one(sql, (after, to))
            if text is not None:
                yield text + b"\n"
            else:  # what other tools stored may leave gaps of any length
                following = self.after_id(to)
                to = upto if following is None else max(to, min(following - 1, upto))
            after, step = to, min(step * 2, PAGE_ROWS)

    def key(self, key: str) -> int | None:
        """Give the id of the event that was pushed with a key, or None; a key whose event is gone is free again."""
        sql = "SELECT event_id FROM event_keys JOIN events ON events.id = event_id WHERE key = ?"
        return self._one(sql, (key,))  # type: ignore[no-any-return]

    def set_key(self, key: str, number: int) -> None:
        """Note that an event was pushed with a key."""
        self._run("INSERT OR REPLACE INTO event_keys (key, event_id) VALUES (?, ?)", (key, number))

    def add_event_refs(self, number: int, digests: Iterable[bytes]) -> None:
        """Note the blobs that an event names: they are kept for as long as it is."""
        for digest in digests:
            self._run("INSERT OR IGNORE INTO event_blob_refs (event_id, hash) VALUES (?, ?)", (number, digest))

    def latest(self, column: str) -> list[Any]:
        """Give the newest event for each value of a column, in the order of their ids."""
        if column == "source":
            sql = f"SELECT max(id), {_COLUMNS} FROM events GROUP BY source ORDER BY 1"  # noqa: S608
        elif column == "type":
            sql = f"SELECT max(id), {_COLUMNS} FROM events GROUP BY type ORDER BY 1"  # noqa: S608
        else:
            raise InputError(f"cannot group by '{column}'", "use 'source' or 'type'")
        return self._run(sql)

    def prune(self, before: int) -> int:
        """Delete the events below an id, with their keys, inside `write`; give their number."""
        self._run("DELETE FROM event_keys WHERE event_id < ?", (before,))
        self._run("DELETE FROM event_blob_refs WHERE event_id < ?", (before,))
        self._run("DELETE FROM events WHERE id < ?", (before,))
        return self._db.connection.changes()

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of events."""
        for number, what in self._run(_ODD_EVENTS):
            yield f"event {number} {what}"
        yield from self._text_faults()

    def counter_faults(self) -> Iterator[str]:
        """Yield a sentence when the counter of ids is behind the newest event."""
        for last, newest in self._run(_ODD_COUNTER):
            yield f"the newest event is {newest}, but the counter of ids is at {last}"

    def _text_faults(self) -> Iterator[str]:
        found = (
            line
            for block in self._blocks(0, self.last_id())
            if not is_utf8(block)
            for line in block.splitlines()
            if not is_utf8(line)
        )
        for line, _ in zip(found, range(20), strict=False):
            yield f"event {line[6 : line.index(b',')].decode()} holds text that is not UTF-8"

    def key_faults(self) -> Iterator[str]:
        """Yield a sentence for each key that names no event."""
        for data, kind, number in self._run(_ODD_KEYS):
            yield f"key '{name_of(data, kind)}' names event {number}, which is not stored"


_ODD_EVENTS = """
SELECT id, CASE WHEN id < 1 THEN 'has an id below 1'
                WHEN typeof(content) <> 'text' THEN 'has content that is not text'
                WHEN typeof(source) <> 'text' OR source = '' THEN 'has no source'
                WHEN typeof(type) <> 'text' OR type = '' THEN 'has no type'
                ELSE 'has no time' END
FROM events WHERE id < 1 OR typeof(content) <> 'text' OR typeof(source) <> 'text' OR source = ''
   OR typeof(type) <> 'text' OR type = '' OR typeof(created_at) <> 'text' LIMIT 20
"""
_ODD_COUNTER = """
SELECT CAST(last AS TEXT), newest
FROM (SELECT max(id) AS newest, (SELECT seq FROM sqlite_sequence WHERE name = 'events') AS last FROM events)
WHERE newest IS NOT NULL AND (typeof(last) <> 'integer' OR last < newest)
"""
_ODD_KEYS = """
SELECT CAST(key AS BLOB), typeof(key), CAST(event_id AS TEXT) FROM event_keys
WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id) LIMIT 20
"""


def _gather(cursor: apsw.Cursor) -> tuple[list[Any], bool]:
    """Fetch rows until they hold PAGE_BYTES; give them and whether that was all."""
    rows = []
    size = 0
    try:
        for row in cursor:
            rows.append(row)
            size += len(row[-1])
            if size > PAGE_BYTES:
                return rows, False
    finally:
        cursor.close(force=True)
    return rows, True
