"""The engine beneath a thread, for tests of what only one engine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.store.postgres.connection import MINE
from eventq.store.postgres.database import Database as Shared
from eventq.store.sqlite.database import Database

if TYPE_CHECKING:
    from eventq.store import protocol


def sqlite(database: protocol.Database) -> Database:
    """Return a database as what it is: SQLite's."""
    assert isinstance(database, Database)
    return database


def rows_in(database: protocol.Database, table: str) -> int:
    """Return how many rows a table of the memory has in a thread of any engine."""
    if isinstance(database, Database):
        return int(database.one(f"SELECT count(*) FROM {table}"))
    assert isinstance(database, Shared)
    return int(database.value(f"SELECT count(*) FROM eventq.{table} WHERE {MINE}"))
