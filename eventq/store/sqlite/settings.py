"""The settings of a thread in SQLite."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.sqlite.database import Database


class ThreadSettings:
    """The table of settings in one database."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db

    def get(self, name: str) -> str | None:
        """Return the value of a setting; None for one that was not changed."""
        if self._db.is_original():
            return None
        return self._db.one("SELECT value FROM settings WHERE name = ?", (name,))  # type: ignore[no-any-return]

    def put(self, name: str, value: str | None) -> None:
        """Change a setting; None forgets its value."""
        if value is None:
            self._db.change("DELETE FROM settings WHERE name = ?", (name,))
        else:
            sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)"
            self._db.change(sql, (name, value))
