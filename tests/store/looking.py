"""What the tests of the contract see of an engine's tables, whatever they are called there."""

from __future__ import annotations

from typing import Any

_IN_POSTGRES = {"stalled_at": "blocked_at", "count(*)": "count(frontier)"}
_WRITTEN = ("consumers", "unfinished", "dead_letters", "claim_nonces", "queue_counts", "counters")


def is_postgres(db: Any) -> bool:
    """Return whether this is a database in PostgreSQL."""
    return hasattr(db, "address")


def changing(db: Any) -> str:
    """Return the name of what changes something in one step, outside of a transaction too."""
    return "changing" if is_postgres(db) else "change"


def of(db: Any, column: str) -> Any:
    """Return a column of the queue's row, by its name in SQLite."""
    if not is_postgres(db):
        return db.one(f"SELECT {column} FROM queues WHERE consumer_id = 'w'")
    name = _IN_POSTGRES.get(column, column)
    mine = "bucket = %(b)s AND thread_id = %(t)s AND consumer = 'w'"
    return db.value(f"SELECT {name} FROM eventq.consumers WHERE {mine}")


def rows_of(db: Any, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of all rows of a table, sorted."""
    if not is_postgres(db):
        return sorted(db.run(f"SELECT {columns} FROM {table}"))
    mine = "bucket = %(b)s AND thread_id = %(t)s"
    return sorted(db.rows(f"SELECT {columns} FROM eventq.{table} WHERE {mine}"))


def written(db: Any) -> object:
    """Return what changes with each row that is written."""
    if not is_postgres(db):
        return db.connection.total_changes(), db.data_version()
    return [rows_of(db, table, "xmin::text, ctid::text") for table in _WRITTEN]


def page_module(db: Any) -> str:
    """Return the name of the module that bounds a page of events."""
    return str(type(db.events).__module__)
