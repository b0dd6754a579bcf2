"""The settings of a thread."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.engine import Engine


class ThreadSettings:
    """The settings of a thread that were changed."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db

    def get(self, name: str) -> str | None:
        """Return the value of a setting; None for one that was not changed."""
        if not self._db.has_memory():
            return None
        return self._db.one("SELECT value FROM settings WHERE name = ?", (name,))  # type: ignore[no-any-return]

    def put(self, name: str, value: str | None) -> None:
        """Change a setting; None forgets its value."""
        if value is None:
            self._db.change("DELETE FROM settings WHERE name = ?", (name,))
        else:
            sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)"
            self._db.change(sql, (name, value))
