"""What the tables of a thread hold as text, for those who look for something in all of it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.sqlite.database import Database

# ruff: noqa: S608 (the parts are names of tables and columns)

_ROOM = 4 << 20  # bytes that are read at once, unless one value has more
_NAMES = {"dead_letters": "event_id", "unfinished": "event_id"}  # by what a row is found


def texts(db: Database) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
    """Yield a table, and rows of it: the name of each, and its texts; see `Engine.texts`."""
    sql = """
        SELECT name, wr
        FROM pragma_table_list
        WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'
    """
    for table, no_rowid in db.run(sql):
        sql = "SELECT name, type, pk FROM pragma_table_info(?)"
        columns = db.run(sql, (table,))
        keys = [f"{name}" for name, kind, pk in columns if pk and kind == "INTEGER"]
        name = _NAMES.get(table) or (" || '/' || ".join(keys) if keys else "''")
        values = [f"CAST({one} AS BLOB)" for one, kind, _ in columns if kind == "TEXT"]
        if table == "session_lines":
            values += ["before", "after"]
        if not values:
            continue
        found = ", ".join(f"coalesce({one}, x'')" for one in values)
        head = f"SELECT CAST({name if no_rowid else 'rowid'} AS BLOB), {found} FROM {table}"
        tail = "LIMIT -1 OFFSET ?" if no_rowid else "WHERE rowid > ? ORDER BY rowid"
        at = 0
        while page := db.some(f"{head} {tail}", (at,), _ROOM):
            at = at + len(page) if no_rowid else int(page[-1][0])
            yield table, page
