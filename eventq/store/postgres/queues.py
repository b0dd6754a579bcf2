"""The queues of consumers in PostgreSQL: the statements of their changes.

Their values are numbered, as in SQLite; the first one is the consumer. A change that may bury an
event, or free the next one of a group, has locked the thread. Others lock the consumer's row only.
"""

from __future__ import annotations

from eventq.store import HELD, LEASED, SLACK_MS, STALLED, WAITING
from eventq.store.postgres.connection import MINE
from eventq.store.postgres.schema import IS_CURRENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

# ruff: noqa: S608 (the parts are constants)

_OF = f"{MINE} AND consumer = %(1)s"
_LISTED = "(SELECT value::bigint FROM json_array_elements_text(%({})s::json) AS l (value))"
_GROUPS = "json_array_elements_text(%(2)s::json) AS g (value)"
FIELDS = f"""coalesce(frontier, acked, 0), coalesce(acked, 0),
    CASE WHEN frontier IS NULL THEN coalesce(acked, 0) ELSE finished END, replay_from, unfinished,
    expires_at, seen_at, blocked_at, counted_at,
    (SELECT last_event FROM eventq.counters WHERE {MINE}),
    position IS NOT NULL, filter, paused::int, ordered_by, max_attempts,
    coalesce(
        on_failure,
        CASE WHEN kind = 'each' AND concurrency = 0 THEN 'stall' ELSE 'dead' END
    ),
    emit_dead::int, backoff_ms, backoff_most_ms,
    (
        SELECT min(due_at)
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = c.consumer
            AND state = {WAITING}
            AND (
                NOT (kind = 'each' AND concurrency = 0)
                OR revived = 1
                OR event_id = (
                    SELECT min(event_id)
                    FROM eventq.unfinished f
                    WHERE f.bucket = %(b)s
                        AND f.thread_id = %(t)s
                        AND f.consumer = c.consumer
                        AND revived = 0
                )
            )
    ),
    lease_ms, (kind = 'each' AND concurrency = 0)::int"""
READ = f"""
SELECT CASE WHEN frontier IS NULL THEN '' ELSE consumer END, {FIELDS}
FROM eventq.consumers c
WHERE {_OF}
"""
LOCK = f"SELECT 1 FROM eventq.consumers WHERE {_OF} AND {IS_CURRENT} FOR NO KEY UPDATE"
NOBODY = """
SELECT '', 0, 0, 0, NULL, 0, NULL, 0, NULL, 0, last_event, false, NULL, 0, NULL, 5, 'dead', 0, 1000,
    600000, NULL, 30000, 0
FROM eventq.counters
WHERE bucket = %(b)s AND thread_id = %(t)s
"""

BEGIN = """
INSERT INTO eventq.consumers (bucket, thread_id, consumer, frontier, finished)
VALUES (%(b)s, %(t)s, %(1)s, %(2)s, %(2)s)
ON CONFLICT (bucket, thread_id, consumer) DO UPDATE SET
    frontier = excluded.frontier,
    finished = excluded.finished
RETURNING consumer
"""
# What a change came to. The progress is up to the first event that is not finished, and to the
# frontier if all are.
STORE = f"""
UPDATE eventq.consumers
SET
    frontier = %(2)s,
    unfinished = %(3)s,
    expires_at = %(4)s,
    seen_at = %(5)s,
    blocked_at = %(6)s,
    counted_at = %(7)s,
    replay_from = NULL,
    finished = greatest(
        %(8)s,
        coalesce(
            (
                SELECT min(event_id) - 1
                FROM eventq.unfinished
                WHERE {_OF} AND revived = 0
            ),
            %(2)s
        )
    ),
    revision = revision + 1
WHERE {_OF}
RETURNING finished
"""
SET_ACKED = f"UPDATE eventq.consumers SET acked = %(2)s, updated_at = %(3)s WHERE {_OF}"
COUNT = """
INSERT INTO eventq.queue_counts (bucket, thread_id, consumer, minute, done, failed, dead)
VALUES (%(b)s, %(t)s, %(1)s, %(2)s, %(3)s, %(4)s, %(5)s)
ON CONFLICT (bucket, thread_id, consumer, minute) DO UPDATE SET
    done = queue_counts.done + excluded.done,
    failed = queue_counts.failed + excluded.failed,
    dead = queue_counts.dead + excluded.dead
"""
TRIM_COUNTS = f"DELETE FROM eventq.queue_counts WHERE {_OF} AND minute < %(2)s"
SET_BACK = f"due_at > %(2)s + span_ms + {SLACK_MS}"
ENDED = f"""
SELECT revived, event_id, attempts, group_value, uncounted, worker
FROM eventq.unfinished
WHERE {_OF} AND state = {LEASED} AND (due_at <= %(2)s OR {SET_BACK})
ORDER BY revived, event_id
"""
WAKE = f"""
UPDATE eventq.unfinished
SET due_at = %(2)s
WHERE {_OF} AND state = {WAITING} AND {SET_BACK}
"""
NEXT_END = f"SELECT min(due_at) FROM eventq.unfinished WHERE {_OF} AND state = {LEASED}"
DUE = f"""
SELECT event_id, revived, handler, group_value
FROM eventq.unfinished
WHERE {_OF} AND state = {WAITING} AND due_at <= %(2)s AND revived >= %(3)s
ORDER BY due_at, revived, event_id
LIMIT %(4)s
"""
FIRST = f"""
SELECT event_id, revived, handler, group_value, state = {WAITING} AND due_at <= %(2)s
FROM eventq.unfinished
WHERE {_OF} AND revived = 0
ORDER BY event_id
LIMIT %(3)s
"""
LEASE = f"""
UPDATE eventq.unfinished
SET
    state = {LEASED},
    attempts = attempts + 1,
    due_at = %(1)s,
    span_ms = %(2)s,
    since = %(3)s,
    token = %(4)s,
    worker = %(5)s,
    handler = %(6)s
WHERE {MINE} AND consumer = %(7)s AND revived = %(8)s AND event_id = %(9)s
RETURNING attempts
"""
ADD = f"""
INSERT INTO eventq.unfinished (
    bucket, thread_id, consumer, revived, event_id, state, attempts, due_at, span_ms, since, token,
    worker, handler
)
SELECT %(b)s, %(t)s, %(1)s, 0, value, {LEASED}, 1, %(3)s, %(4)s, %(5)s, %(6)s, %(7)s, %(8)s
FROM {_LISTED.format(2)} AS v (value)
"""
ADD_ONE = """
INSERT INTO eventq.unfinished (
    bucket, thread_id, consumer, revived, event_id, state, attempts, due_at, span_ms, since, token,
    worker, handler, group_value
)
VALUES (
    %(b)s, %(t)s, %(1)s, 0, %(2)s, %(3)s, %(4)s, %(5)s, %(6)s, %(7)s, %(8)s, %(9)s, %(10)s, %(11)s
)
"""
HELD_GROUPS = f"""
SELECT DISTINCT value
FROM {_GROUPS}
WHERE EXISTS (
    SELECT 1
    FROM eventq.unfinished
    WHERE {_OF} AND group_value = value
)
"""
# The first event of each of some groups, if it was behind another one.
FREE = f"""
UPDATE eventq.unfinished u
SET state = {WAITING}, due_at = 0
WHERE {_OF}
    AND revived = 0
    AND state = {HELD}
    AND event_id IN (
        SELECT (
            SELECT min(event_id)
            FROM eventq.unfinished
            WHERE {_OF} AND group_value = value
        )
        FROM {_GROUPS}
    )
RETURNING 1
"""
FREE_ALL = f"""
UPDATE eventq.unfinished
SET state = {WAITING}, due_at = 0
WHERE {_OF}
    AND revived = 0
    AND state = {HELD}
    AND event_id IN (
        SELECT min(event_id)
        FROM eventq.unfinished
        WHERE {_OF} AND group_value IS NOT NULL
        GROUP BY group_value
    )
"""
FINISH = f"DELETE FROM eventq.unfinished WHERE {_OF} AND revived = 0 AND event_id <= %(2)s"
FORGET = f"DELETE FROM eventq.unfinished WHERE {_OF} AND event_id > %(2)s"
END_ALL = f"""
UPDATE eventq.unfinished
SET state = {WAITING}, due_at = 0, token = NULL
WHERE {_OF} AND state = {LEASED}
"""
SIZE = f"""
SELECT count(*), min(event_id) FILTER (WHERE state = {STALLED} AND group_value IS NULL)
FROM eventq.unfinished
WHERE {_OF}
"""
ROWS = f"""
SELECT event_id, state
FROM eventq.unfinished
WHERE {_OF} AND revived = 0
ORDER BY event_id
"""
REGROUP = f"""
UPDATE eventq.unfinished
SET
    state = %(1)s,
    group_value = %(2)s,
    due_at = CASE WHEN state = {HELD} AND %(1)s = {WAITING} THEN 0 ELSE due_at END
WHERE {MINE} AND consumer = %(3)s AND revived = 0 AND event_id = %(4)s
"""
IS_BEHIND = f"""
SELECT 1
FROM eventq.unfinished
WHERE {_OF} AND group_value = %(2)s AND event_id < %(3)s AND revived = 0
LIMIT 1
"""
# One that stopped its queue may be behind its group: its order may be newer than its lease.
RESUME = f"""
UPDATE eventq.unfinished u
SET
    attempts = 0,
    uncounted = 0,
    due_at = 0,
    state = CASE
        WHEN u.revived = 0
            AND EXISTS (
                SELECT 1
                FROM eventq.unfinished e
                WHERE e.bucket = %(b)s
                    AND e.thread_id = %(t)s
                    AND e.consumer = %(1)s
                    AND e.revived = 0
                    AND e.group_value = u.group_value
                    AND e.event_id < u.event_id
            )
            THEN {HELD}
        ELSE {WAITING}
    END
WHERE u.bucket = %(b)s
    AND u.thread_id = %(t)s
    AND u.consumer = %(1)s
    AND u.state IN ({WAITING}, {STALLED})
"""
LIVE = f"state = {LEASED} AND due_at > %(2)s AND NOT {SET_BACK}"
_HELD = f"{_OF} AND revived = %(3)s AND token = %(4)s AND {LIVE}"
DONE = f"""
DELETE FROM eventq.unfinished
WHERE {_HELD} AND event_id IN {_LISTED.format(5)}
RETURNING event_id, group_value
"""
EXTEND = f"""
UPDATE eventq.unfinished
SET due_at = %(2)s + coalesce(%(6)s::bigint, span_ms), span_ms = coalesce(%(6)s::bigint, span_ms)
WHERE {_HELD} AND event_id IN {_LISTED.format(5)}
RETURNING event_id, due_at
"""
FIND = f"""
SELECT attempts, group_value, uncounted
FROM eventq.unfinished
WHERE {_HELD} AND event_id = %(5)s
"""
PUT_BACK = f"""
UPDATE eventq.unfinished
SET
    state = %(1)s,
    attempts = %(2)s,
    due_at = %(3)s,
    span_ms = %(4)s,
    token = NULL,
    code = CASE WHEN %(6)s::text IS NULL THEN coalesce(%(5)s::bigint, code) ELSE %(5)s::bigint END,
    error = coalesce(%(6)s::text, error),
    uncounted = %(7)s
WHERE {MINE} AND consumer = %(8)s AND revived = %(9)s AND event_id = %(10)s
"""
# The fields of `Unfinished`, and a queue as it is, for copies.
PUT = """
INSERT INTO eventq.unfinished (
    bucket, thread_id, consumer, revived, event_id, state, attempts, uncounted, due_at, span_ms,
    group_value, code, error
)
VALUES (
    %(b)s, %(t)s, %(1)s, %(2)s, %(3)s, %(4)s, %(5)s, %(6)s, %(7)s, %(8)s, %(9)s, %(10)s, %(11)s
)
"""
PUT_QUEUE = f"""
UPDATE eventq.consumers
SET
    frontier = %(2)s,
    finished = %(3)s,
    replay_from = %(4)s,
    unfinished = %(5)s,
    expires_at = NULL,
    seen_at = %(6)s,
    blocked_at = %(7)s,
    revision = revision + 1
WHERE {_OF}
"""
UNFINISHED = f"""
SELECT revived, event_id, CASE WHEN state = {LEASED} THEN {WAITING} ELSE state END, attempts,
    uncounted, CASE WHEN state = {LEASED} THEN 0 ELSE due_at END, span_ms, group_value, code, error
FROM eventq.unfinished
WHERE {_OF}
ORDER BY revived, event_id
"""
DROP = f"DELETE FROM eventq.unfinished WHERE {_OF} AND revived = %(2)s AND event_id = %(3)s"
# One that will be tried anyway, as a replay went back before it, needs no row of its own.
REVIVE = f"""
INSERT INTO eventq.unfinished (
    bucket, thread_id, consumer, revived, event_id, state, attempts, due_at, span_ms, code, error
)
SELECT d.bucket, d.thread_id, d.consumer, 1, d.event_id, {WAITING}, 0, 0, 0, d.code, d.error
FROM eventq.dead_letters d
WHERE {_OF}
    AND d.event_id IN {_LISTED.format(2)}
    AND d.event_id <= %(3)s
    AND EXISTS (
        SELECT 1
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = d.event_id
    )
    AND NOT EXISTS (
        SELECT 1
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = %(1)s
            AND u.event_id = d.event_id
    )
RETURNING 1
"""
RISE = f"""
DELETE FROM eventq.dead_letters d
WHERE {_OF}
    AND event_id IN {_LISTED.format(2)}
    AND EXISTS (
        SELECT 1
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = d.event_id
    )
RETURNING event_id
"""
BURY = """
INSERT INTO eventq.dead_letters (
    bucket, thread_id, consumer, event_id, attempts, code, error, died_at
)
VALUES (%(b)s, %(t)s, %(1)s, %(2)s, %(3)s, %(4)s, %(5)s, %(6)s)
ON CONFLICT (bucket, thread_id, consumer, event_id) DO UPDATE SET
    attempts = excluded.attempts,
    code = excluded.code,
    error = excluded.error,
    died_at = excluded.died_at
"""
