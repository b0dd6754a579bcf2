"""What the tables of a thread hold as text, for those who look for something in all of it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.postgres.database import Database

# ruff: noqa: S608 (the parts are names of tables and columns)

_ROOM = 4 << 20  # bytes that are read at once, unless one value has more
_AS_BYTES = {"content", "before", "after"}
# Each table, what finds a row of it, and what it holds as text; the content of events is the last.
_COLUMNS = """
SELECT c.relname,
    ARRAY(
        SELECT a.attname
        FROM pg_index i
            CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (number, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid
            AND i.indisprimary
            AND a.attname NOT IN ('bucket', 'thread_id')
        ORDER BY k.place
    )::text[],
    ARRAY(
        SELECT a.attname
        FROM pg_attribute a
        WHERE a.attrelid = c.oid
            AND NOT a.attisdropped
            AND (
                a.atttypid = 'text'::regtype
                OR c.relname = 'events' AND a.attname = 'content'
                OR c.relname = 'session_lines' AND a.attname IN ('before', 'after')
            )
        ORDER BY a.attnum
    )::text[]
FROM pg_class c
WHERE c.relnamespace = 'eventq'::regnamespace
    AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition
    AND EXISTS (
        SELECT 1
        FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = 'thread_id'
    )
ORDER BY c.relname
"""


def texts(db: Database) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
    """Yield a table, and rows of it: the name of each, and its texts; see `Engine.texts`."""
    for table, keys, columns in db.rows(_COLUMNS):
        if not columns or table == "threads":
            continue
        name = " || '/' || ".join(f"{key}::text" for key in keys) or "''"
        found = ", ".join(map(_spelled, columns))
        sql = f"""
            SELECT *
            FROM (
                SELECT convert_to({name}, 'UTF8'), {found}
                FROM eventq.{table}
                WHERE bucket = $1 AND thread_id = $2
                ORDER BY {", ".join(keys) or "1"}
                OFFSET $3
            ) rest
        """
        at = 0
        while page := db.filling(sql, [*db.key, at], _ROOM):
            at += len(page)
            yield table, page


def _spelled(column: str) -> str:
    """Return a column as bytes."""
    if column in _AS_BYTES:
        return f"coalesce({column}, '')"
    return f"convert_to(coalesce({column}, ''), 'UTF8')"
