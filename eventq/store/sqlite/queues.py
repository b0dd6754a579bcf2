"""The queues of consumers in SQLite: the statements of their changes."""

from __future__ import annotations

from eventq.store import HELD, LEASED, SLACK_MS, STALLED, WAITING
from eventq.store.sqlite import consumers

# ruff: noqa: S608 (the parts are constants)

# The fields of `Queue`, also for a consumer that has no queue, or no subscription: always one row.
# In order, only the first event can be due, or a dead one that is tried again.
READ = f"""
SELECT coalesce(queue_id, 0), coalesce(frontier, p.last_acked_id, 0), coalesce(p.last_acked_id, 0),
    coalesce(q.acked, p.last_acked_id, 0), replay_from, coalesce(q.unfinished, 0), expires_at,
    coalesce(seen_at, 0), q.stalled_at, coalesce(counted_at, 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), s.consumer_id IS NOT NULL,
    filter, coalesce(paused, 0), ordered_by, coalesce(max_attempts, 5),
    coalesce(on_failure, iif(c.kind = 'each' AND concurrency = 0, 'stall', 'dead')),
    coalesce(emit_dead, 0), coalesce(backoff_ms, 500), coalesce(backoff_most_ms, 60000),
    (
        SELECT min(due_at)
        FROM unfinished u
        WHERE u.queue_id = q.queue_id
            AND state = {WAITING}
            AND (
                revived >= (coalesce(c.kind, '') = 'each' AND concurrency = 0)
                OR event_id = (
                    SELECT min(event_id)
                    FROM unfinished f
                    WHERE f.queue_id = q.queue_id AND revived = 0
                )
            )
    ),
    coalesce(lease_ms, 30000), coalesce(c.kind = 'each' AND concurrency = 0, 0)
FROM (SELECT ?1 AS name)
    LEFT JOIN subscriptions s ON s.consumer_id = name
    LEFT JOIN queues q ON q.consumer_id = name
    LEFT JOIN consumer_progress p ON p.consumer_id = name
    LEFT JOIN consumer_settings c ON c.consumer_id = name
    LEFT JOIN subscription_state t ON t.consumer_id = name
"""
BEGIN = """
INSERT INTO queues (consumer_id, frontier, acked)
VALUES (?1, ?2, ?2)
RETURNING queue_id
"""
# What a change came to. The progress is up to the first event that is not finished, and to the
# frontier if all are.
STORE = """
UPDATE queues
SET
    frontier = ?2,
    unfinished = ?3,
    expires_at = ?4,
    seen_at = ?5,
    stalled_at = ?6,
    counted_at = ?7,
    replay_from = NULL,
    acked = max(
        ?8,
        coalesce(
            (
                SELECT min(event_id) - 1
                FROM unfinished
                WHERE queue_id = ?1 AND revived = 0
            ),
            ?2
        )
    )
WHERE queue_id = ?1
RETURNING acked
"""
SET_ACKED = consumers.SET_ACKED
COUNT = """
INSERT INTO queue_counts (queue_id, minute, done, failed, dead)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    done = done + excluded.done,
    failed = failed + excluded.failed,
    dead = dead + excluded.dead
"""
SET_BACK = f"due_at > ?2 + span_ms + {SLACK_MS}"
ENDED = f"""
SELECT revived, event_id, attempts, group_value, uncounted, worker
FROM unfinished
WHERE queue_id = ?1 AND state = {LEASED} AND (due_at <= ?2 OR {SET_BACK})
"""
WAKE = f"UPDATE unfinished SET due_at = ?2 WHERE queue_id = ?1 AND state = {WAITING} AND {SET_BACK}"
NEXT_END = f"SELECT min(due_at) FROM unfinished WHERE queue_id = ? AND state = {LEASED}"
DUE = f"""
SELECT event_id, revived, handler, group_value
FROM unfinished
WHERE queue_id = ? AND state = {WAITING} AND due_at <= ? AND revived >= ?
ORDER BY due_at
LIMIT ?
"""
FIRST = f"""
SELECT event_id, revived, handler, group_value, state = {WAITING} AND due_at <= ?2
FROM unfinished
WHERE queue_id = ?1 AND revived = 0
ORDER BY event_id
LIMIT ?3
"""
LEASE = f"""
UPDATE unfinished
SET
    state = {LEASED},
    attempts = attempts + 1,
    due_at = ?,
    span_ms = ?,
    since = ?,
    token = ?,
    worker = ?,
    handler = ?
WHERE queue_id = ? AND revived = ? AND event_id = ?
RETURNING attempts
"""
ADD = f"""
INSERT INTO unfinished (
    queue_id, revived, event_id, state, attempts, due_at, span_ms, since, token, worker, handler
)
SELECT ?1, 0, value, {LEASED}, 1, ?3, ?4, ?5, ?6, ?7, ?8
FROM json_each(?2)
"""
ADD_ONE = """
INSERT INTO unfinished (
    queue_id, revived, event_id, state, attempts, due_at, span_ms, since, token, worker, handler,
    group_value
)
VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# One look at the index for each group, however many events of it wait.
HELD_GROUPS = """
SELECT DISTINCT value
FROM json_each(?2)
WHERE EXISTS (
    SELECT 1
    FROM unfinished
    WHERE queue_id = ?1 AND group_value = value
)
"""
# The first event of each of some groups, if it was behind another one.
FREE = f"""
UPDATE unfinished
SET state = {WAITING}, due_at = 0
WHERE queue_id = ?1
    AND revived = 0
    AND state = {HELD}
    AND event_id IN (
        SELECT (
            SELECT min(event_id)
            FROM unfinished
            WHERE queue_id = ?1 AND group_value = value
        )
        FROM json_each(?2)
    )
RETURNING 1
"""
FREE_ALL = f"""
UPDATE unfinished
SET state = {WAITING}, due_at = 0
WHERE queue_id = ?1
    AND revived = 0
    AND state = {HELD}
    AND event_id IN (
        SELECT min(event_id)
        FROM unfinished
        WHERE queue_id = ?1 AND group_value IS NOT NULL
        GROUP BY group_value
    )
"""
FINISH = "DELETE FROM unfinished WHERE queue_id = ? AND revived = 0 AND event_id <= ?"
FORGET = "DELETE FROM unfinished WHERE queue_id = ? AND event_id > ?"
END_ALL = f"""
UPDATE unfinished
SET state = {WAITING}, due_at = 0, token = NULL
WHERE queue_id = ? AND state = {LEASED}
"""
SIZE = f"""
SELECT count(*), min(iif(state = {STALLED} AND group_value IS NULL, event_id, NULL))
FROM unfinished
WHERE queue_id = ?
"""
ROWS = "SELECT event_id, state FROM unfinished WHERE queue_id = ? AND revived = 0"
REGROUP = f"""
UPDATE unfinished
SET state = ?1, group_value = ?2, due_at = iif(state = {HELD} AND ?1 = {WAITING}, 0, due_at)
WHERE queue_id = ?3 AND revived = 0 AND event_id = ?4
"""
IS_BEHIND = """
SELECT 1
FROM unfinished
WHERE queue_id = ? AND group_value = ? AND event_id < ? AND revived = 0
LIMIT 1
"""

# One that stopped its queue may be behind its group: its order may be newer than its lease.
RESUME = f"""
UPDATE unfinished AS u
SET
    attempts = 0,
    uncounted = 0,
    due_at = 0,
    state = iif(
        u.revived = 0
        AND EXISTS (
            SELECT 1
            FROM unfinished e
            WHERE e.queue_id = u.queue_id
                AND e.revived = 0
                AND e.group_value = u.group_value
                AND e.event_id < u.event_id
        ),
        {HELD},
        {WAITING}
    )
WHERE queue_id = ? AND state IN ({WAITING}, {STALLED})
"""

# A lease that holds. One that has ended is nobody's, even if nobody else has the event yet.
LIVE = f"state = {LEASED} AND due_at > ?2 AND NOT {SET_BACK}"
MINE = f"queue_id = ?1 AND revived = ?3 AND token = ?4 AND {LIVE}"
DONE = f"""
DELETE FROM unfinished
WHERE {MINE} AND event_id IN (SELECT value FROM json_each(?5))
RETURNING event_id, group_value
"""
EXTEND = f"""
UPDATE unfinished
SET due_at = ?2 + coalesce(?6, span_ms), span_ms = coalesce(?6, span_ms)
WHERE {MINE} AND event_id IN (SELECT value FROM json_each(?5))
RETURNING event_id, due_at
"""
FIND = f"""
SELECT attempts, group_value, uncounted
FROM unfinished
WHERE {MINE} AND event_id = ?5
"""
PUT_BACK = """
UPDATE unfinished
SET
    state = ?1,
    attempts = ?2,
    due_at = ?3,
    span_ms = ?4,
    token = NULL,
    code = iif(?6 IS NULL, coalesce(?5, code), ?5),
    error = coalesce(?6, error),
    uncounted = ?7
WHERE queue_id = ?8 AND revived = ?9 AND event_id = ?10
"""
# The fields of `Unfinished`, and a queue as it is, for copies.
PUT = """
INSERT INTO unfinished (
    queue_id, revived, event_id, state, attempts, uncounted, due_at, span_ms, group_value, code,
    error, since
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
PUT_QUEUE = """
UPDATE queues
SET
    frontier = ?2,
    acked = ?3,
    replay_from = ?4,
    unfinished = ?5,
    expires_at = NULL,
    seen_at = ?6,
    stalled_at = ?7
WHERE queue_id = ?1
"""
UNFINISHED = f"""
SELECT revived, event_id, iif(state = {LEASED}, {WAITING}, state), attempts, uncounted,
    iif(state = {LEASED}, 0, due_at), span_ms, group_value, code, error
FROM unfinished
WHERE queue_id = (SELECT queue_id FROM queues WHERE consumer_id = ?1)
ORDER BY revived, event_id
"""
TRIM_COUNTS = "DELETE FROM queue_counts WHERE queue_id = ? AND minute < ?"
DROP = "DELETE FROM unfinished WHERE queue_id = ? AND revived = ? AND event_id = ?"
# One that will be tried anyway, as a replay went back before it, needs no row of its own.
REVIVE = f"""
INSERT INTO unfinished (
    queue_id, revived, event_id, state, attempts, due_at, span_ms, since, code, error
)
SELECT queue_id, 1, event_id, {WAITING}, 0, 0, 0, 0, code, error
FROM dead_letters d
WHERE queue_id = ?1
    AND event_id IN (SELECT value FROM json_each(?2))
    AND event_id <= ?3
    AND EXISTS (SELECT 1 FROM events e WHERE e.id = d.event_id)
    AND NOT EXISTS (
        SELECT 1
        FROM unfinished u
        WHERE u.queue_id = ?1 AND u.event_id = d.event_id
    )
RETURNING 1
"""
RISE = """
DELETE FROM dead_letters
WHERE queue_id = ?1
    AND event_id IN (SELECT value FROM json_each(?2))
    AND EXISTS (SELECT 1 FROM events e WHERE e.id = dead_letters.event_id)
RETURNING event_id
"""
BURY = """
INSERT OR REPLACE INTO dead_letters (queue_id, event_id, attempts, code, error, died_at)
VALUES (?, ?, ?, ?, ?, ?)
"""
