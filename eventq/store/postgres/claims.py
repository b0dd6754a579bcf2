"""Claims in PostgreSQL: who has which event, what is tried again, and what failed for good.

`eventq.store.queue_rules` has the rules of a change, `queues` its statements.
"""

from __future__ import annotations

from eventq.errors import NotAThreadError
from eventq.records.claim import WorkerStatus
from eventq.store import DEAD, HELD, LEASED, SLACK_MS, STALLED, WAITING, rules
from eventq.store.claim_rules import DAY_MS, Claiming
from eventq.store.names import short
from eventq.store.postgres.connection import BEGIN, DURABLE, MINE, NOW
from eventq.store.postgres.queues import LIVE, LOCK, NEXT_END, NOBODY, READ, UNFINISHED
from eventq.store.postgres.schema import IS_CURRENT
from eventq.store.queue_rows import (
    Claimed,
    ClaimRow,
    DeadRow,
    Minute,
    QueueStatus,
    Settled,
    Standing,
    Taken,
    Unfinished,
)
from eventq.store.queue_rules import Change, Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.store.postgres.connection import Link
    from eventq.store.postgres.database import Database
    from eventq.store.queue_rows import Verdict, Worker
    from eventq.store.transactions import Write

# ruff: noqa: S608 (the parts are constants)

_OF = f"{MINE} AND consumer = %(consumer)s"
_KNOWN_NONCE = f"""
SELECT token
FROM eventq.claim_nonces
WHERE {_OF} AND nonce = %(nonce)s AND at >= %(since)s
"""
_KEEP_NONCE = """
INSERT INTO eventq.claim_nonces (bucket, thread_id, consumer, nonce, token, at)
VALUES (%(b)s, %(t)s, %(1)s, %(2)s, %(3)s, %(4)s)
"""
_TRIM_NONCES = f"DELETE FROM eventq.claim_nonces WHERE {MINE} AND consumer = %(1)s AND at < %(2)s"
_STILL_LEASED = f"""
SELECT event_id, attempts, revived, due_at, span_ms
FROM eventq.unfinished
WHERE {MINE} AND consumer = %(1)s AND token = %(3)s AND {LIVE}
ORDER BY event_id
"""
_NOTE = f"""
UPDATE eventq.unfinished
SET handler = %(process)s
WHERE {_OF}
    AND revived IN (0, 1)
    AND event_id = ANY(%(events)s)
    AND token = %(token)s
    AND EXISTS (SELECT 1 FROM eventq.consumers WHERE {_OF} AND {IS_CURRENT})
"""
_OUT = f"""
SELECT consumer, event_id, attempts, worker, since, due_at, token, revived, handler
FROM eventq.unfinished
WHERE {MINE}
    AND state = {LEASED}
    AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
    AND (consumer, event_id) > (%(name)s, %(event)s)
ORDER BY consumer, event_id
LIMIT %(limit)s
"""
_DEAD = f"""
SELECT consumer, event_id, attempts, code, error, died_at
FROM eventq.dead_letters
WHERE {MINE}
    AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
    AND (consumer, event_id) > (%(name)s, %(event)s)
    AND (%(events)s::bigint[] IS NULL OR event_id = ANY(%(events)s))
ORDER BY consumer, event_id
LIMIT %(limit)s
"""
_DROP = f"""
DELETE FROM eventq.dead_letters
WHERE {_OF} AND event_id = ANY(%(events)s)
RETURNING event_id
"""
# What claims have left, as `QueueStatus`: leases that hold, what is behind its group, the dead, the
# first event and its last code, the counts of the last minutes, and what stalled or waits. A replay
# that no claim has applied has already forgotten what is above it, an ack what is below.
_LEFT = """
FROM eventq.consumers q
    LEFT JOIN eventq.unfinished u ON u.bucket = q.bucket
        AND u.thread_id = q.thread_id
        AND u.consumer = q.consumer
        AND event_id <= coalesce(q.replay_from, event_id)
        AND (revived = 1 OR event_id > coalesce(q.acked, 0))
WHERE q.bucket = %(b)s AND q.thread_id = %(t)s
"""
_ITS = "x.bucket = %(b)s AND x.thread_id = %(t)s AND x.consumer = q.consumer"
_STATUS = f"""
SELECT q.consumer, count(event_id), count(event_id) FILTER (WHERE {LIVE} AND replay_from IS NULL),
    count(event_id) FILTER (WHERE state = {HELD}),
    (SELECT count(*) FROM eventq.dead_letters x WHERE {_ITS}),
    min(event_id) FILTER (WHERE revived = 0),
    (
        SELECT x.code
        FROM eventq.unfinished x
        WHERE {_ITS} AND x.revived = 0 AND x.event_id > coalesce(q.acked, 0)
        ORDER BY x.event_id
        LIMIT 1
    ),
    (
        SELECT coalesce(sum(done), 0)::bigint
        FROM eventq.queue_counts x
        WHERE {_ITS} AND minute > %(3)s
    ),
    (
        SELECT coalesce(sum(failed), 0)::bigint
        FROM eventq.queue_counts x
        WHERE {_ITS} AND minute > %(3)s
    ),
    (
        SELECT coalesce(sum(dead), 0)::bigint
        FROM eventq.queue_counts x
        WHERE {_ITS} AND minute > %(3)s
    ),
    min(event_id) FILTER (WHERE revived = 1), count(event_id) FILTER (WHERE state = {STALLED}),
    min(event_id) FILTER (WHERE state = {STALLED}), min(due_at) FILTER (WHERE state = {WAITING})
{_LEFT}
    AND (%(consumer)s::text IS NULL OR q.consumer = %(consumer)s)
    AND frontier IS NOT NULL
GROUP BY q.bucket, q.thread_id, q.consumer
"""
# Who holds leases now, how many, since when, and when the first of them ends.
_WORKERS = f"""
SELECT q.consumer, worker, count(*), min(since), min(due_at)
{_LEFT}
    AND expires_at IS NOT NULL
    AND replay_from IS NULL
    AND {LIVE}
GROUP BY q.consumer, worker
ORDER BY q.consumer, worker
"""
_STANDINGS = f"""
SELECT q.consumer, event_id,
    CASE WHEN state = {LEASED} AND NOT ({LIVE} AND replay_from IS NULL) THEN {WAITING} ELSE state
    END,
    u.attempts, due_at, worker, code, error
{_LEFT.replace("LEFT JOIN", "JOIN")}
    AND event_id = ANY(%(events)s::bigint[])
UNION ALL
SELECT consumer, event_id, {DEAD}, attempts, died_at, NULL, code, error
FROM eventq.dead_letters
WHERE {MINE} AND event_id = ANY(%(events)s::bigint[])
LIMIT %(limit)s
"""
_MINUTES = f"""
SELECT consumer, minute, done, failed, dead
FROM eventq.queue_counts
WHERE {MINE}
    AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
    AND minute > %(since)s
ORDER BY consumer, minute
"""
# What attempts of all queues came to, by spans of so many minutes.
_TOTALS = f"""
SELECT minute / %(span)s, sum(done), sum(failed), sum(dead)
FROM eventq.queue_counts
WHERE {MINE} AND minute > %(since)s
GROUP BY 1
"""
# Rows that contradict their queue: a wrong count, and events that are beyond the frontier, or
# finished, or leased to nobody, or held though nothing of their group is before them.
_ODD = f"""
SELECT c.consumer, 'counts ' || c.unfinished || ' unfinished events, but has ' || count(u.event_id)
FROM eventq.consumers c
    LEFT JOIN eventq.unfinished u ON u.bucket = %(b)s
        AND u.thread_id = %(t)s
        AND u.consumer = c.consumer
WHERE c.bucket = %(b)s AND c.thread_id = %(t)s
GROUP BY c.consumer, c.unfinished
HAVING c.unfinished <> count(u.event_id)
UNION ALL
SELECT c.consumer,
    CASE
        WHEN u.event_id > c.frontier
            THEN 'has not examined event ' || u.event_id || ', but started it'
        WHEN u.event_id <= c.finished AND u.revived = 0
            THEN 'counts event ' || u.event_id || ' as finished, but has not finished it'
        WHEN u.state = {LEASED} AND u.token IS NULL
            THEN 'has a lease of event ' || u.event_id || ' that nobody holds'
        WHEN u.state = {LEASED}
            THEN 'would miss the end of the lease of event ' || u.event_id
        ELSE 'would never claim event ' || u.event_id || ': it is the first of its group'
    END
FROM eventq.consumers c
    JOIN eventq.unfinished u ON u.bucket = %(b)s AND u.thread_id = %(t)s AND u.consumer = c.consumer
WHERE c.bucket = %(b)s
    AND c.thread_id = %(t)s
    AND (
        u.event_id > c.frontier
        OR (u.event_id <= c.finished AND u.revived = 0)
        OR (u.state = {LEASED} AND u.token IS NULL)
        OR (u.state = {LEASED} AND coalesce(c.expires_at > u.due_at, true))
        OR (
            u.state = {HELD}
            AND NOT EXISTS (
                SELECT 1
                FROM eventq.unfinished e
                WHERE e.bucket = %(b)s
                    AND e.thread_id = %(t)s
                    AND e.consumer = u.consumer
                    AND e.group_value = u.group_value
                    AND e.event_id < u.event_id
                    AND e.revived = 0
            )
        )
    )
LIMIT 20
"""
_FRONTIER = f"coalesce((SELECT frontier FROM eventq.consumers WHERE {_OF}), 0)"
_ADD = f"""
INSERT INTO eventq.unfinished (
    bucket, thread_id, consumer, revived, event_id, state, attempts, due_at, span_ms, since, token,
    worker, handler
)
SELECT %(b)s, %(t)s, %(consumer)s, 0, event, {LEASED}, 1, %(until)s, %(span)s, %(now)s, %(token)s,
    %(worker)s, %(process)s
FROM unnest(%(events)s::bigint[]) AS e (event)
"""
# The progress goes on to the first event that is not finished, or to the frontier.
_DONE_UPTO = f"""greatest(
    finished,
    coalesce(
        (
            SELECT min(event_id) - 1
            FROM eventq.unfinished
            WHERE {_OF} AND revived = 0
        ),
        %(frontier)s
    )
)"""
# What leasing new events changes of the consumer; the ack that goes with it moves the progress.
_MOVE = f"""
UPDATE eventq.consumers c
SET
    frontier = %(frontier)s,
    unfinished = unfinished + %(n)s,
    seen_at = greatest(seen_at, %(now)s),
    expires_at = CASE
        WHEN %(n)s = 0 THEN expires_at
        ELSE least(coalesce(expires_at, %(until)s), %(until)s)
    END,
    finished = {_DONE_UPTO},
    acked = CASE WHEN {_DONE_UPTO} = coalesce(acked, 0) THEN acked ELSE {_DONE_UPTO} END,
    updated_at = CASE WHEN {_DONE_UPTO} = coalesce(acked, 0) THEN updated_at ELSE %(stamp)s END
WHERE {_OF}
"""
# All of it, or nothing: what has an order, or an ack or replay that no claim has noticed, is for
# the long way. The statement's own deletions do not show in it.
_FINISH = f"""
WITH q AS MATERIALIZED (
    SELECT consumer, kind = 'each' AND concurrency = 0 AS in_order, {NOW} AS now
    FROM eventq.consumers
    WHERE {MINE}
        AND consumer = %(1)s
        AND frontier IS NOT NULL
        AND replay_from IS NULL
        AND coalesce(acked, 0) = finished
        AND counted_at = ({NOW}) / 60000
        AND {NOW} + {SLACK_MS} >= seen_at
        AND NOT EXISTS (
            SELECT 1
            FROM eventq.unfinished g
            WHERE g.bucket = %(b)s
                AND g.thread_id = %(t)s
                AND g.consumer = %(1)s
                AND g.revived = 0
                AND g.event_id = ANY(%(events)s::bigint[])
                AND g.group_value IS NOT NULL
        )
),
d AS (
    DELETE FROM eventq.unfinished u
    USING q, unnest(%(tokens)s::bytea[], %(events)s::bigint[]) AS g (token, event)
    WHERE u.bucket = %(b)s
        AND u.thread_id = %(t)s
        AND u.consumer = %(1)s
        AND u.revived = 0
        AND u.event_id = g.event
        AND u.token = g.token
        AND u.state = {LEASED}
        AND u.due_at > q.now
        AND u.due_at <= q.now + u.span_ms + {SLACK_MS}
    RETURNING u.event_id, u.token
),
n AS (
    INSERT INTO eventq.queue_counts (bucket, thread_id, consumer, minute, done, failed, dead)
    SELECT %(b)s, %(t)s, %(1)s, now / 60000, (SELECT count(*) FROM d), 0, 0
    FROM q
    ON CONFLICT (bucket, thread_id, consumer, minute) DO UPDATE SET
        done = queue_counts.done + excluded.done
),
f AS MATERIALIZED (
    SELECT coalesce(
        (
            SELECT min(event_id) - 1
            FROM eventq.unfinished
            WHERE {MINE}
                AND consumer = %(1)s
                AND revived = 0
                AND event_id NOT IN (SELECT event_id FROM d)
        ),
        (
            SELECT frontier
            FROM eventq.consumers
            WHERE {MINE} AND consumer = %(1)s
        )
    ) AS upto
)
UPDATE eventq.consumers c
SET
    unfinished = c.unfinished - (SELECT count(*) FROM d),
    expires_at = CASE WHEN c.unfinished = (SELECT count(*) FROM d) THEN NULL ELSE c.expires_at END,
    seen_at = greatest(c.seen_at, q.now),
    finished = greatest(c.finished, f.upto),
    acked = CASE
        WHEN greatest(c.finished, f.upto) = coalesce(c.acked, 0) THEN c.acked
        ELSE greatest(c.finished, f.upto)
    END,
    updated_at = CASE
        WHEN greatest(c.finished, f.upto) = coalesce(c.acked, 0) THEN c.updated_at
        ELSE to_char(timestamp 'epoch' + q.now * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    END,
    revision = c.revision + (q.in_order)::int
FROM q, f
WHERE c.bucket = %(b)s AND c.thread_id = %(t)s AND c.consumer = %(1)s
RETURNING ARRAY(SELECT token FROM d ORDER BY event_id),
    ARRAY(SELECT event_id FROM d ORDER BY event_id), q.in_order AND c.unfinished > 0,
    (SELECT awake_until > q.now FROM eventq.counters WHERE {MINE})
"""
_TIME = f"SELECT {NOW}, {DURABLE}"
_BE_DURABLE = f"SELECT {DURABLE}"
_MOST_FILTERS = 1_000
_DAY = 24 * 60


def _is_plain(queue: Queue, text: str | None, now: int, limit: int) -> bool:
    """Return whether a claim has nothing to do but to lease the next events."""
    return bool(
        queue.number
        and queue.subscribed
        and queue.filter == text
        and not queue.is_behind
        and not queue.paused
        and queue.stalled_at is None
        and queue.ordered_by is None
        and queue.unfinished + limit <= rules.MOST_UNFINISHED
        and not (queue.in_order and queue.unfinished)
        and not queue.is_set_back(now)
        and (queue.due_at is None or queue.due_at > now)
        and (queue.expires_at is None or queue.expires_at > now)
    )


class Claims(Claiming):
    """The queues of a thread's consumers."""

    still_leased = _STILL_LEASED

    def __init__(self, db: Database) -> None:
        """Use the connections and transactions of a database."""
        self._db: Database = db
        self._filters: dict[str, str | None] = {}  # of consumers, as they were claimed last

    def take(
        self,
        consumer: str,
        limit: int,
        span: int | None,
        worker: Worker,
        token: bytes,
        *,
        nonce: str | None = None,
    ) -> Taken:
        """Lease the next events to a worker; see `store.protocol`."""
        db = self._db
        nonce = None if nonce is None else short(nonce)
        if nonce is None and not db.in_write():
            taken = self._take_at_once(consumer, limit, span, worker, token)
            if taken is not None:
                return taken
        return super().take(consumer, limit, span, worker, token, nonce=nonce)

    def look(self, consumer: str) -> Queue:
        """Return what claims need to know of a consumer; raise NotAThreadError."""
        rows = self._db.rows(READ, {"1": consumer}) or self._db.rows(NOBODY)
        if not rows:
            raise NotAThreadError(self._db.address.shown)
        queue = Queue._make(rows[0])
        if len(self._filters) >= _MOST_FILTERS:
            self._filters.clear()
        self._filters[consumer] = queue.filter  # for `_take_at_once`
        return queue

    def lock(self, consumer: str) -> Queue:
        """Do the same inside a transaction, in which nobody else changes it."""
        self._db.run(LOCK, (consumer,))
        return self.look(consumer)

    def unfinished(self, consumer: str) -> list[Unfinished]:
        """Return the events that are not finished."""
        return [*map(Unfinished._make, self._db.rows(UNFINISHED, {"1": consumer}))]

    def next_end(self, queue: Queue) -> int | None:
        """Return when the first lease ends."""
        at: int | None = self._db.rows(NEXT_END, {"1": queue.number})[0][0]
        return at

    def known(self, number: str, nonce: str, since: int) -> list[tuple[bytes]]:
        """Return the token of a claim with a nonce, if there was one since a time."""
        given = {"consumer": number, "nonce": nonce, "since": since}
        return self._db.rows(_KNOWN_NONCE, given)

    def keep(self, change: Change, nonce: str | None, taken: Taken) -> None:
        """Let a claim be on disk before anybody works on it, and remember its nonce.

        A server that forgot it in a crash would lease the same events again.
        """
        self._db.changing(lambda link: link.run(_BE_DURABLE, {}))
        if nonce is not None:
            self._db.run(_TRIM_NONCES, (change.number, change.now - DAY_MS))  # it may be one
            self._db.run(_KEEP_NONCE, (change.number, nonce, taken.token, change.now))

    def _take_at_once(
        self, consumer: str, limit: int, span: int | None, worker: Worker, token: bytes
    ) -> Taken | None:
        """Lease the next events in two round trips, where there is nothing else to do.

        The first one locks the consumer and reads, the second one writes. Returns None, with
        nothing done, if an event waits for another attempt, a lease has ended, an ack or a replay
        came in between, events have an order, or the server cannot judge the filter.
        """
        db = self._db
        if consumer not in self._filters:
            return None
        text = self._filters[consumer]
        given = db.bound({"1": consumer, "consumer": consumer})
        ahead = db.events.ahead(text or "", _FRONTIER, given, limit)
        if ahead is None:
            return None
        look = [(LOCK, given), (READ, given), (_TIME, given)]
        steps = [(BEGIN, given), *look, ahead]

        def claim(link: Link) -> Taken | None:
            _, _, queues, ((now, _),), rows = link.together(steps)
            queue = Queue._make(queues[0]) if queues else None
            if queue is None or not _is_plain(queue, text, now, limit):
                link.script("ROLLBACK")
                return None
            page = db.events.page_of(rows, limit, queue.last)
            length = queue.lease if span is None else span
            if page.next > queue.frontier:
                values = {
                    **given, "events": [event.id for event in page.events], "until": now + length,
                    "span": length, "now": now, "token": token, "worker": worker.name,
                    "process": worker.process, "frontier": page.next, "n": len(page.events),
                    "stamp": db.stamp(now),
                }  # fmt: skip
                added = [(_ADD, values)] if page.events else []
                link.together([*added, (_MOVE, values), ("COMMIT", given)])
            else:
                link.script("ROLLBACK")
            claims = [Claimed(event, 1, False, None) for event in page.events]
            return Taken(claims, token, now + length, length) if claims else None

        return db.changing(claim)

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run; raise FilterError also for one that reads the clock."""
        return self._db.filters.accept_of_claims(text)

    def settle(self, verdicts: Sequence[Verdict]) -> Settled:
        """Apply verdicts of workers as one change; see `store.protocol`."""
        if not self._db.in_write():
            settled = self._settle_at_once(verdicts)
            if settled is not None:
                return settled
        return super().settle(verdicts)

    def settling(self, verdicts: Sequence[Verdict]) -> Write:  # noqa: ARG002 (all are durable)
        """Begin the transaction for verdicts, or go on in the one under way."""
        return self._db.joined()

    def _settle_at_once(self, verdicts: Sequence[Verdict]) -> Settled | None:
        """Finish events of one consumer in one round trip, where nothing else follows from it.

        Returns None, with nothing done, for other verdicts, for events with an order, and if an ack
        or a replay came in between. A crash of the server may undo it: then they are done again.
        """
        consumers = {verdict.consumer for verdict in verdicts}
        if len(consumers) != 1 or any(one.what != "done" or one.revived for one in verdicts):
            return None
        pairs = [(one.token, event) for one in verdicts for event in one.events]
        tokens, events = [token for token, _ in pairs], [event for _, event in pairs]
        (consumer,) = consumers
        given = self._db.bound({"1": consumer, "tokens": tokens, "events": events})
        steps = [(LOCK, given), (_FINISH, given)]
        _, rows = self._db.changing(lambda link: link.relaxed(*steps), again=False)
        if not rows:
            return None
        ((*had, freed, awake),) = rows
        self._db.is_awake = bool(awake)
        if freed:
            self._db.ring_on_commit()
        return Settled({*pairs} - {*zip(*had, strict=True)}, bool(freed))

    def drop(self, consumer: str, events: Iterable[int]) -> set[int]:
        """Delete dead letters; return those that were there."""
        given = self._db.bound({"consumer": consumer, "events": [*events]})
        with self._db.joined():
            rows = self._db.changing(lambda link: link.run(_DROP, given))
        return {event for (event,) in rows}

    def note(self, consumer: str, token: bytes, events: Sequence[int], process: str) -> None:
        """Record the process that works on some events of a claim."""
        given = self._db.bound({
            "consumer": consumer, "token": token, "events": [*events], "process": process,
        })  # fmt: skip
        self._db.changing(lambda link: link.run(_NOTE, given), again=True)

    def out(self, consumer: str | None, after: tuple[str, int], limit: int) -> list[ClaimRow]:
        """Return the next leases, by consumer and event; ("", 0) begins."""
        name, event = after
        values = {"consumer": consumer, "name": name, "event": event, "limit": limit}
        rows = self._db.rows(_OUT, values)
        return [ClaimRow._make((*row[:7], bool(row[7]), row[8])) for row in rows]

    def dead(
        self,
        consumer: str | None,
        after: tuple[str, int],
        limit: int,
        events: Iterable[int] | None = None,
    ) -> list[DeadRow]:
        """Return the next dead letters, perhaps only those of some events; ("", 0) begins."""
        name, event = after
        listed = None if events is None else [*events]
        values = {"consumer": consumer, "name": name, "event": event, "limit": limit}
        return [*map(DeadRow._make, self._db.rows(_DEAD, {**values, "events": listed}))]

    def statuses(self, consumer: str | None = None) -> dict[str, QueueStatus]:
        """Return what each queue has leased, has not finished, and has given up, by consumer."""
        now = self._db.milliseconds()
        values = {"consumer": consumer, "2": now, "3": now // 60_000 - _DAY}
        rows = self._db.rows(_STATUS, values)
        return {row[0]: QueueStatus._make(row[1:]) for row in rows}

    def standings(self, events: Iterable[int], limit: int) -> list[Standing]:
        """Return what queues hold of some events."""
        values = {"events": [*events], "2": self._db.milliseconds(), "limit": limit}
        return [*map(Standing._make, self._db.rows(_STANDINGS, values))]

    def minutes(self, consumer: str | None, since: int) -> list[Minute]:
        """Return what attempts came to in each minute after one."""
        values = {"consumer": consumer, "since": since}
        return [*map(Minute._make, self._db.rows(_MINUTES, values))]

    def totals(self, since: int, span: int) -> list[tuple[int, int, int, int]]:
        """Return what attempts of all queues came to after a minute, by spans of minutes."""
        rows = self._db.rows(_TOTALS, {"since": since, "span": span})
        return [(int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in rows]

    def workers(self) -> list[tuple[str, WorkerStatus]]:
        """Return who holds leases now, with the consumer of each."""
        rows = self._db.rows(_WORKERS, {"2": self._db.milliseconds()})
        return [(row[0], WorkerStatus._make(row[1:])) for row in rows]

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of queues."""
        for consumer, what in self._db.rows(_ODD):
            yield f"consumer '{consumer}' {what}"
