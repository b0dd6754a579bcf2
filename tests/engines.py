"""The engine beneath a thread, for tests of what only one engine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.store.sqlite.database import Database

if TYPE_CHECKING:
    from eventq.store import protocol


def sqlite(database: protocol.Database) -> Database:
    """Return a database as what it is: SQLite's."""
    assert isinstance(database, Database)
    return database
