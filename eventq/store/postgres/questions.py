"""Open questions in PostgreSQL as the events say: what a migration stores, what a check expects."""

from __future__ import annotations

from eventq.store.postgres.connection import MINE
from eventq.store.question_rules import differences, open_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from eventq.store.postgres.connection import Link, Rows

    Read = Callable[[str, dict[str, Any]], Rows]

# ruff: noqa: S608 (the parts are constants)

_ROWS = 500  # of a page
_THREADS = "SELECT bucket, thread_id FROM eventq.counters"
_NOTED = """
SELECT e.id, e.type, e.content, k.key, q.event_id
FROM eventq.events e
    LEFT JOIN eventq.event_keys k ON k.bucket = e.bucket
        AND k.thread_id = e.thread_id
        AND k.event_id = e.id
    LEFT JOIN eventq.open_questions q ON q.bucket = e.bucket
        AND q.thread_id = e.thread_id
        AND q.event_id = e.id
WHERE e.bucket = %(b)s
    AND e.thread_id = %(t)s
    AND e.id > %(after)s
    AND (e.type IN ('question', 'approval', 'answer') OR q.event_id IS NOT NULL)
ORDER BY e.id
LIMIT %(limit)s
"""
_LOST = """
SELECT event_id
FROM eventq.open_questions q
WHERE q.bucket = %(b)s
    AND q.thread_id = %(t)s
    AND NOT EXISTS (
        SELECT 1
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = q.event_id
    )
LIMIT 20
"""
_CLEAR = f"DELETE FROM eventq.open_questions WHERE {MINE}"
_STORE = """
INSERT INTO eventq.open_questions (bucket, thread_id, event_id)
SELECT %(b)s, %(t)s, id
FROM unnest(%(ids)s::bigint[]) AS g (id)
"""


def derive(link: Link) -> None:
    """Store the open questions of all threads, in place of those that are stored."""
    for bucket, thread in link.run(_THREADS, {}):
        keys = {"b": bucket, "t": thread}
        _, found = _read(lambda sql, values, keys=keys: link.run(sql, {**keys, **values}))  # type: ignore[misc]
        link.run(_CLEAR, keys)
        link.run(_STORE, {**keys, "ids": [*found]})


def faults(read: Read) -> Iterator[str]:
    """Yield a sentence for each question that is listed and not open, or open and not listed.

    `read` runs a statement on one thread, at one moment.
    """
    yield from differences(*_read(read))
    for (number,) in read(_LOST, {}):
        yield f"event {number} is listed as an open question, and is not stored"


def _read(read: Read) -> tuple[set[int], set[int]]:
    """Return the events that are listed as open questions, and those that are open ones."""
    listed = set()

    def rows() -> Iterator[tuple[int, str, str, str | None]]:
        after = 0
        while page := read(_NOTED, {"after": after, "limit": _ROWS}):
            for number, kind, content, key, entry in page:
                if entry is not None:
                    listed.add(number)
                yield number, kind, content.decode(errors="replace"), key
                after = number

    return listed, open_after(rows())
