"""What the tables of a thread hold as text, for those who look for something in all of it."""

from __future__ import annotations

from eventq.store.postgres.connection import MINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.postgres.database import Database

# ruff: noqa: S608 (the parts are names of tables and columns)

_PAGE = 500  # rows
# Each table, what finds a row of it, and what it holds as text; the content of events is the last.
_COLUMNS = """
SELECT c.relname,
    ARRAY(
        SELECT a.attname
        FROM pg_index i
            CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (number, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.place > 2
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
        order = ", ".join(keys) or "1"
        name = " || '/' || ".join(f"{key}::text" for key in keys) or "''"
        spelled = [
            f"coalesce({one}, '')" if one in ("content", "before", "after")
            else f"convert_to(coalesce({one}, ''), 'UTF8')"
            for one in columns
        ]  # fmt: skip
        found = ", ".join(spelled)
        sql = f"""
            SELECT convert_to({name}, 'UTF8'), {found}
            FROM eventq.{table}
            WHERE {MINE}
            ORDER BY {order}
            LIMIT {_PAGE} OFFSET %(at)s
        """
        at = 0
        while page := db.rows(sql, {"at": at}):
            at += len(page)
            yield table, page
