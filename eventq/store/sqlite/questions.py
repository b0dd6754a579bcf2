"""Open questions in SQLite as the events say: what a migration stores, and what a check expects."""

from __future__ import annotations

from eventq.store.question_rules import differences, open_after
from eventq.store.sqlite.values import is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

_NOTED = """
SELECT id, type, CAST(content AS BLOB), CAST(concat(created_at, source, subtype) AS BLOB), key,
    q.event_id
FROM events
    LEFT JOIN event_keys k ON k.event_id = id
    LEFT JOIN open_questions q ON q.event_id = id
WHERE type IN ('question', 'approval', 'answer') OR q.event_id IS NOT NULL
ORDER BY id
"""
_LOST = """
SELECT event_id
FROM open_questions
WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id)
LIMIT 20
"""


def derive(connection: apsw.Connection) -> None:
    """Store the questions that are open, in place of those that are stored."""
    _, found = _read(connection)
    connection.execute("DELETE FROM open_questions")
    connection.executemany(
        "INSERT INTO open_questions (event_id) VALUES (?)", [(one,) for one in sorted(found)]
    )


def faults(connection: apsw.Connection) -> Iterator[str]:
    """Yield a sentence for each question that is listed and not open, or open and not listed."""
    yield from differences(*_read(connection))
    for (number,) in connection.execute(_LOST):
        yield f"event {number} is listed as an open question, and is not stored"


def _read(connection: apsw.Connection) -> tuple[set[int], set[int]]:
    """Return the events that are listed as open questions, and those that are open ones."""
    listed = set()

    def rows() -> Iterator[tuple[int, str, str, str | None]]:
        for number, kind, content, rest, key, entry in connection.execute(_NOTED):
            if entry is not None:
                listed.add(number)
            if is_utf8(content) and is_utf8(rest):  # other text could not be shown
                yield number, kind, content.decode(), key

    return listed, open_after(rows())
