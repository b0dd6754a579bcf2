"""What only PostgreSQL's own words can say, in place of what the generator would write.

Each stands under the name of SQLite's statement: the module, and the constant or the method.
"""

from __future__ import annotations

from eventq.record import Record


class Override(Record):
    """PostgreSQL's text of a statement, and why it is by hand."""

    text: str
    why: str


def _of_the_log(text: str) -> Override:
    return Override(text, why="the log's tables are not SQLite's")


OVERRIDES = {
    "turns._FAULTS 10": Override("SELECT '' WHERE false", why="foreign keys are checked there"),
    "erasures._ERRORS": _of_the_log("""
        UPDATE eventq.unfinished
        SET error = $4
        WHERE bucket = $1 AND thread_id = $2 AND event_id = $3 AND error IS NOT NULL
    """),
    "erasures._ERRORS 2": _of_the_log("""
        UPDATE eventq.dead_letters
        SET error = $4
        WHERE bucket = $1 AND thread_id = $2 AND event_id = $3 AND error IS NOT NULL
    """),
    "erasures._GROUPS": _of_the_log("""
        SELECT DISTINCT consumer, group_value
        FROM eventq.unfinished u
        WHERE bucket = $1 AND thread_id = $2
            AND event_id = $3
            AND group_value IS NOT NULL
            AND NOT EXISTS (
                SELECT 1
                FROM eventq.unfinished o
                WHERE o.bucket = $1 AND o.thread_id = $2
                    AND o.consumer = u.consumer
                    AND o.group_value = u.group_value
                    AND NOT EXISTS (
                        SELECT 1
                        FROM eventq.erasures
                        WHERE bucket = $1 AND thread_id = $2
                            AND kind = 'event'
                            AND name = o.event_id::text
                    )
            )
    """),
    "erasures._RENAME": _of_the_log("""
        UPDATE eventq.unfinished
        SET group_value = $3
        WHERE bucket = $1 AND thread_id = $2 AND consumer = $4 AND group_value = $5
    """),
    "erasures.Erasures.event": _of_the_log("""
        SELECT consumer
        FROM eventq.unfinished
        WHERE bucket = $1 AND thread_id = $2 AND event_id = $3 AND state = 0 AND due_at > $4
    """),
}
