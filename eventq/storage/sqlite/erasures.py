"""Erasures in SQLite: what was erased, and the changes of the rows that held it."""

from __future__ import annotations

from eventq.errors import ConflictError
from eventq.event import ERASED
from eventq.records import Erasure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.storage.sqlite.database import Database

_ERASURE = "SELECT kind, name, reason, at_ms, finished FROM erasures"
# What was said of attempts at an event may be what the event said.
_ERRORS = (
    "UPDATE unfinished SET error = ?2 WHERE event_id = ?1 AND error IS NOT NULL",
    "UPDATE dead_letters SET error = ?2 WHERE event_id = ?1 AND error IS NOT NULL",
)
_REPORTS = """
UPDATE events SET content = json_set(content, '$.error', ?2)
WHERE id > ?1 AND type = 'record' AND subtype = 'dead-letter' AND json_valid(content)
    AND json_extract(content, '$.event_id') = ?1 AND json_extract(content, '$.error') IS NOT NULL
RETURNING id
"""


class Erasures:
    """The table of erasures, and what is erased, in one database."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
        self._run = db.run

    def get(self, kind: str, name: str) -> Erasure | None:
        """Return an erasure, or None."""
        if not self._db.has_erasures():
            return None
        rows = self._run(f"{_ERASURE} WHERE kind = ? AND name = ?", (kind, name))
        return _record(rows[0]) if rows else None

    def page(self, after: int, limit: int) -> list[tuple[int, Erasure]]:
        """Return the next erasures and their numbers, in the order in which they began."""
        if not self._db.has_erasures():
            return []
        sql = (
            "SELECT kind, name, reason, at_ms, finished, erasure_id FROM erasures"
            " WHERE erasure_id > ? ORDER BY erasure_id LIMIT ?"
        )
        return [(row[5], _record(row[:5])) for row in self._run(sql, (after, limit))]

    def begin(self, kind: str, name: str, reason: str | None) -> None:
        """Note that something is being erased, inside `write`."""
        sql = "INSERT OR REPLACE INTO erasures (kind, name, reason, at_ms) VALUES (?, ?, ?, ?)"
        self._run(sql, (kind, name, reason, self._db.milliseconds()))

    def finish(self, names: list[tuple[str, str]]) -> None:
        """Note that nothing is left of what was erased, by kind and name."""
        with self._db.write():
            sql = "UPDATE erasures SET finished = 1 WHERE kind = ? AND name = ?"
            self._db.many(sql, names)

    def forget(self, kind: str) -> None:
        """Forget the erasures of a kind."""
        self._db.change("DELETE FROM erasures WHERE kind = ?", (kind,))

    def event(self, number: int, reason: str | None) -> list[int]:
        """Erase the content of an event, and what was said of attempts at it; see `base`."""
        with self._db.write():
            leased = self._run(
                "SELECT consumer_id FROM unfinished JOIN queues USING (queue_id)"
                " WHERE event_id = ? AND state = 0 AND due_at > ?",
                (number, self._db.milliseconds()),
            )
            if leased:
                raise ConflictError(
                    f"event {number} is leased by a worker of consumer '{leased[0][0]}'",
                    "erase it when that is done with it",
                    number,
                )
            self.begin("event", str(number), reason)
            self._run("UPDATE events SET content = ? WHERE id = ?", (ERASED, number))
            self._run("DELETE FROM event_blob_refs WHERE event_id = ?", (number,))
            for sql in _ERRORS:
                self._run(sql, (number, ERASED))
            return [number, *(row[0] for row in self._run(_REPORTS, (number, ERASED)))]


def _record(row: tuple[str, str, str | None, int, int]) -> Erasure:
    kind, name, reason, at_ms, finished = row
    return Erasure(kind, name, reason, at_ms, bool(finished))
