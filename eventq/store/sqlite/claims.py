"""Claims in SQLite: who has which event, what is tried again, and what failed for good.

`queues` has the rules of a change; this module begins and ends the transactions, and reads.
"""

from __future__ import annotations

from eventq.errors import FilterError
from eventq.records.claim import WorkerStatus
from eventq.store import DEAD, HELD, LEASED, STALLED, WAITING
from eventq.store.claim_rules import DAY_MS, Claiming
from eventq.store.queue_rows import (
    ClaimRow,
    DeadRow,
    Minute,
    QueueStatus,
    Standing,
    Taken,
    Unfinished,
)
from eventq.store.queue_rules import Change, Queue, as_list
from eventq.store.sqlite import queues
from eventq.store.sqlite.migrate import IS_CURRENT
from eventq.store.sqlite.queues import LIVE, NEXT_END

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.store.queue_rows import Verdict
    from eventq.store.sqlite.database import Database
    from eventq.store.transactions import Write

# ruff: noqa: S608 (the parts are constants)

_KNOWN_NONCE = "SELECT token FROM claim_nonces WHERE queue_id = ? AND nonce = ? AND at >= ?"
_KEEP_NONCE = "INSERT INTO claim_nonces (queue_id, nonce, token, at) VALUES (?, ?, ?, ?)"
_TRIM_NONCES = "DELETE FROM claim_nonces WHERE queue_id = ? AND at < ?"
_STILL_LEASED = f"""
SELECT event_id, attempts, revived, due_at, span_ms
FROM unfinished
WHERE queue_id = ?1 AND token = ?3 AND {LIVE}
ORDER BY event_id
"""
_NOTE = f"""
UPDATE unfinished
SET handler = ?1
WHERE queue_id = (SELECT queue_id FROM queues WHERE consumer_id = ?2)
    AND revived IN (0, 1)
    AND event_id IN (SELECT value FROM json_each(?3))
    AND token = ?4
    AND {IS_CURRENT}
"""
_OUT = f"""
SELECT consumer_id, event_id, attempts, worker, since, due_at, token, revived, handler
FROM unfinished
    JOIN queues USING (queue_id)
WHERE state = {LEASED}
    AND (?1 IS NULL OR consumer_id = ?1)
    AND (consumer_id, event_id) > (?2, ?3)
ORDER BY consumer_id, event_id
LIMIT ?4
"""
_DEAD = """
SELECT consumer_id, event_id, attempts, code, error, died_at
FROM dead_letters
    JOIN queues USING (queue_id)
WHERE (?1 IS NULL OR consumer_id = ?1)
    AND consumer_id >= ?2
    AND event_id > iif(consumer_id = ?2, ?3, -1)
    AND (?5 IS NULL OR event_id IN (SELECT value FROM json_each(?5)))
ORDER BY consumer_id, event_id
LIMIT ?4
"""
_DROP = """
DELETE FROM dead_letters
WHERE queue_id = (SELECT queue_id FROM queues WHERE consumer_id = ?)
    AND event_id IN (SELECT value FROM json_each(?))
RETURNING event_id
"""
# Without what an ack or a replay has ended that no claim has noticed yet.
_LEFT = """
FROM queues q
    LEFT JOIN consumer_progress p ON p.consumer_id = q.consumer_id
    LEFT JOIN unfinished u ON u.queue_id = q.queue_id
        AND event_id <= coalesce(replay_from, event_id)
        AND (revived = 1 OR event_id > coalesce(last_acked_id, 0))
"""
_STATUS = f"""
SELECT q.consumer_id, count(event_id), count(iif({LIVE} AND replay_from IS NULL, 1, NULL)),
    count(iif(state = {HELD}, 1, NULL)),
    (
        SELECT count(*)
        FROM dead_letters d
        WHERE d.queue_id = q.queue_id
    ),
    min(iif(revived = 0, event_id, NULL)),
    (
        SELECT code
        FROM unfinished f
        WHERE f.queue_id = q.queue_id
            AND revived = 0
            AND event_id > coalesce(last_acked_id, 0)
        ORDER BY event_id
        LIMIT 1
    ),
    (
        SELECT coalesce(sum(done), 0)
        FROM queue_counts c
        WHERE c.queue_id = q.queue_id AND minute > ?3
    ),
    (
        SELECT coalesce(sum(failed), 0)
        FROM queue_counts c
        WHERE c.queue_id = q.queue_id AND minute > ?3
    ),
    (
        SELECT coalesce(sum(dead), 0)
        FROM queue_counts c
        WHERE c.queue_id = q.queue_id AND minute > ?3
    ),
    min(iif(revived = 1, event_id, NULL)), count(iif(state = {STALLED}, 1, NULL)),
    min(iif(state = {STALLED}, event_id, NULL)), min(iif(state = {WAITING}, due_at, NULL))
{_LEFT}
WHERE ?1 IS NULL OR q.consumer_id = ?1
GROUP BY q.queue_id
"""
# Who holds leases now, how many, since when, and when the first of them ends.
_WORKERS = f"""
SELECT q.consumer_id, worker, count(*), min(since), min(due_at)
{_LEFT}
WHERE expires_at IS NOT NULL AND replay_from IS NULL AND {LIVE}
GROUP BY q.consumer_id, worker
ORDER BY q.consumer_id, worker
"""
_STANDINGS = f"""
SELECT q.consumer_id, event_id,
    CASE WHEN state = {LEASED} AND NOT ({LIVE} AND replay_from IS NULL) THEN {WAITING} ELSE state
    END,
    attempts, due_at, worker, code, error
FROM json_each(?1)
    CROSS JOIN queues q
    CROSS JOIN unfinished u ON u.queue_id = q.queue_id AND revived IN (0, 1) AND event_id = value
    LEFT JOIN consumer_progress p ON p.consumer_id = q.consumer_id
WHERE event_id <= coalesce(replay_from, event_id)
    AND (revived = 1 OR event_id > coalesce(last_acked_id, 0))
UNION ALL
SELECT consumer_id, event_id, {DEAD}, attempts, died_at, NULL, code, error
FROM json_each(?1)
    CROSS JOIN queues q
    CROSS JOIN dead_letters d ON d.queue_id = q.queue_id AND event_id = value
LIMIT ?3
"""
_MINUTES = """
SELECT consumer_id, minute, done, failed, dead
FROM queues q
    CROSS JOIN queue_counts c ON c.queue_id = q.queue_id AND minute > ?2
WHERE ?1 IS NULL OR consumer_id = ?1
ORDER BY consumer_id, minute
"""
# What attempts of all queues came to, by spans of so many minutes.
_TOTALS = """
SELECT minute / ?2, sum(done), sum(failed), sum(dead)
FROM queues q
    CROSS JOIN queue_counts c ON c.queue_id = q.queue_id AND minute > ?1
GROUP BY 1
"""
_DAY = 24 * 60


class Claims(Claiming):
    """The queues of a thread's consumers."""

    still_leased = _STILL_LEASED

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db: Database = db

    def look(self, consumer: str) -> Queue:
        """Return what claims need to know of a consumer, subscribed or not."""
        return Queue._make(self._db.run(queues.READ, (consumer,))[0])

    def lock(self, consumer: str) -> Queue:
        """Do the same inside a transaction, which has the database to itself."""
        return self.look(consumer)

    def unfinished(self, consumer: str) -> list[Unfinished]:
        """Return the events that are not finished."""
        return [*map(Unfinished._make, self._db.run(queues.UNFINISHED, (consumer,)))]

    def next_end(self, queue: Queue) -> int | None:
        """Return when the first lease ends."""
        at: int | None = self._db.run(NEXT_END, (queue.number,))[0][0]
        return at

    def known(self, number: int, nonce: str, since: int) -> list[tuple[bytes]]:
        """Return the token of a claim with a nonce, if there was one since a time."""
        return self._db.run(_KNOWN_NONCE, (number, nonce, since))

    def keep(self, change: Change, nonce: str | None, taken: Taken) -> None:
        """Remember a claim's nonce."""
        if nonce is not None:
            self._db.run(_TRIM_NONCES, (change.number, change.now - DAY_MS))  # it may be one
            self._db.run(_KEEP_NONCE, (change.number, nonce, taken.token, change.now))

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run; raise FilterError also for one that reads the clock."""
        accepted = self._db.events.accept(text)
        if accepted and self._db.filtered(lambda sandbox: sandbox.timed(accepted)):
            raise FilterError(
                "a filter of claims may not read the clock",
                accepted,
                0,
                "compare with a fixed time",
            )
        return accepted

    def settling(self, verdicts: Sequence[Verdict]) -> Write:
        """Begin the transaction for verdicts; one that only costs work if it is lost is relaxed."""
        db = self._db
        relaxed = not db.in_write() and all(v.what in ("done", "extend") for v in verdicts)
        return db.write(relaxed=True) if relaxed else db.joined()

    def drop(self, consumer: str, events: Iterable[int]) -> set[int]:
        """Delete dead letters; return those that were there."""
        with self._db.joined():
            return {event for (event,) in self._db.run(_DROP, (consumer, as_list(events)))}

    def note(self, consumer: str, token: bytes, events: Sequence[int], process: str) -> None:
        """Record the process that works on some events of a claim."""
        self._db.change(_NOTE, (process, consumer, as_list(events), token), relaxed=True)

    def out(self, consumer: str | None, after: tuple[str, int], limit: int) -> list[ClaimRow]:
        """Return the next leases, by consumer and event; ("", 0) begins."""
        rows = self._db.run(_OUT, (consumer, *after, limit))
        return [ClaimRow._make((*row[:7], bool(row[7]), row[8])) for row in rows]

    def dead(
        self,
        consumer: str | None,
        after: tuple[str, int],
        limit: int,
        events: Iterable[int] | None = None,
    ) -> list[DeadRow]:
        """Return the next dead letters, perhaps only those of some events; ("", 0) begins."""
        listed = None if events is None else as_list(events)
        return [*map(DeadRow._make, self._db.run(_DEAD, (consumer, *after, limit, listed)))]

    def statuses(self, consumer: str | None = None) -> dict[str, QueueStatus]:
        """Return what each queue has leased, has not finished, and has given up, by consumer."""
        now = self._db.milliseconds()
        rows = self._db.run(_STATUS, (consumer, now, now // 60_000 - _DAY))
        return {row[0]: QueueStatus._make(row[1:]) for row in rows}

    def standings(self, events: Iterable[int], limit: int) -> list[Standing]:
        """Return what queues hold of some events."""
        rows = self._db.run(_STANDINGS, (as_list(events), self._db.milliseconds(), limit))
        return [*map(Standing._make, rows)]

    def minutes(self, consumer: str | None, since: int) -> list[Minute]:
        """Return what attempts came to in each minute after one."""
        return [*map(Minute._make, self._db.run(_MINUTES, (consumer, since)))]

    def totals(self, since: int, span: int) -> list[tuple[int, int, int, int]]:
        """Return what attempts of all queues came to after a minute, by spans of minutes."""
        return self._db.run(_TOTALS, (since, span))

    def workers(self) -> list[tuple[str, WorkerStatus]]:
        """Return who holds leases now, with the consumer of each."""
        rows = self._db.run(_WORKERS, (None, self._db.milliseconds()))
        return [(row[0], WorkerStatus._make(row[1:])) for row in rows]

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of queues."""
        for consumer, what in self._db.run(_ODD_QUEUES):
            yield f"consumer '{consumer}' {what}"


# What eventq never writes: each statement of a queue leaves all of it true.
_ODD_QUEUES = f"""
SELECT consumer_id, 'counts ' || unfinished || ' unfinished events, but has ' || count(event_id)
FROM queues q
    LEFT JOIN unfinished u USING (queue_id)
GROUP BY queue_id
HAVING q.unfinished <> count(event_id)
UNION ALL
SELECT consumer_id, 'has not examined event ' || event_id || ', but started it'
FROM queues
    JOIN unfinished USING (queue_id)
WHERE event_id > frontier
UNION ALL
SELECT consumer_id, 'counts event ' || event_id || ' as finished, but has not finished it'
FROM queues
    JOIN unfinished USING (queue_id)
WHERE event_id <= acked AND revived = 0
UNION ALL
SELECT consumer_id, 'would never claim event ' || event_id || ': it is the first of its group'
FROM queues
    JOIN unfinished u USING (queue_id)
WHERE state = {HELD}
    AND NOT EXISTS (
        SELECT 1
        FROM unfinished e
        WHERE e.queue_id = u.queue_id
            AND e.group_value = u.group_value
            AND e.event_id < u.event_id
            AND e.revived = 0
    )
UNION ALL
SELECT consumer_id, 'has a lease of event ' || event_id || ' that nobody holds'
FROM queues
    JOIN unfinished USING (queue_id)
WHERE state = {LEASED} AND token IS NULL
UNION ALL
SELECT consumer_id, 'would miss the end of the lease of event ' || event_id
FROM queues
    JOIN unfinished USING (queue_id)
WHERE state = {LEASED} AND (expires_at IS NULL OR expires_at > due_at)
LIMIT 20
"""
