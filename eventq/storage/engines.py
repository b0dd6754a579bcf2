"""Opening a database without knowing its engine."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.storage.sqlite.database import Database


def in_memory() -> Database:
    """Open a database that lives in memory, for as long as it is used, and that nobody shares."""
    from eventq.storage.sqlite.memory import MemoryDatabase

    return MemoryDatabase()
