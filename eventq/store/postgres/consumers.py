"""Consumers in PostgreSQL: subscriptions, progress, and the state of their handlers.

One row has all of a consumer, so an ack is one statement: it looks at the fence, at the claims and
at the newest event, and changes the row or nothing.
"""

from __future__ import annotations

from eventq.errors import (
    ConsumerInUseError,
    FencedError,
    UnknownConsumerError,
)
from eventq.records.consumer import ORIGINAL, ConsumerState, Popped, Settings
from eventq.records.event import EventPage
from eventq.store import LEASED, SLACK_MS, WAITING
from eventq.store.ack_rules import Position, Progress
from eventq.store.names import check_short
from eventq.store.postgres.connection import DURABLE, MINE, NOW
from eventq.store.postgres.events import lines_of
from eventq.store.postgres.schema import IS_CURRENT
from eventq.store.rules import stall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.store.postgres.connection import Rows
    from eventq.store.postgres.database import Database

# ruff: noqa: S608 (the parts are constants)

_OF = f"{MINE} AND consumer = %(consumer)s"
# Subscriptions with all that `ConsumerState` says, and the event that stopped claims, if one did,
# which is looked up by its key. An ack or a replay ends that, whether it was applied or not.
_STATES = f"""
SELECT consumer, handler, filter, coalesce(acked, 0), updated_at, max_attempts, timeout, attempts,
    attempts_at, stalled, stalled_at, scanned_after, scanned_id, scanned_filter, kind, command,
    directory, batch, concurrency, ordered_by, on_failure, backoff_ms, backoff_most_ms, lease_ms,
    emit_dead, label, paused, coalesce(replay_from, frontier),
    CASE WHEN replay_from IS NULL AND blocked_at > coalesce(acked, 0) THEN blocked_at END,
    (
        SELECT u.attempts
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = c.consumer
            AND u.revived = 0
            AND u.event_id = c.blocked_at
    ),
    (
        SELECT u.code
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = c.consumer
            AND u.revived = 0
            AND u.event_id = c.blocked_at
    ),
    (
        SELECT u.error
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = c.consumer
            AND u.revived = 0
            AND u.event_id = c.blocked_at
    ),
    c.unfinished > 0
FROM eventq.consumers c
WHERE {MINE}
    AND position IS NOT NULL
    AND (%(consumer)s::text IS NULL OR consumer = %(consumer)s)
ORDER BY position
"""
_FORMER = f"""
SELECT consumer, coalesce(acked, 0), updated_at
FROM eventq.consumers
WHERE {MINE} AND position IS NULL AND (acked IS NOT NULL OR frontier IS NOT NULL)
ORDER BY consumer
"""
_FIELDS = (
    "handler", "filter", "max_attempts", "timeout", "kind", "command", "directory", "batch",
    "concurrency", "ordered_by", "on_failure", "backoff_ms", "backoff_most_ms", "lease_ms",
    "emit_dead", "label",
)  # fmt: skip
# A consumer that was unsubscribed has a row, with its progress.
_PUT = f"""
INSERT INTO eventq.consumers (
    bucket, thread_id, consumer, position, handler, filter, max_attempts, timeout, kind, command,
    directory, batch, concurrency, ordered_by, on_failure, backoff_ms, backoff_most_ms, lease_ms,
    emit_dead, label
)
VALUES (
    %(b)s, %(t)s, %(consumer)s,
    (SELECT coalesce(max(position), 0) + 1 FROM eventq.consumers WHERE {MINE}),
    %(handler)s, %(filter)s, %(max_attempts)s, %(timeout)s, %(kind)s, %(command)s, %(directory)s,
    %(batch)s, %(concurrency)s, %(ordered_by)s, %(on_failure)s, %(backoff_ms)s,
    %(backoff_most_ms)s, %(lease_ms)s, %(emit_dead)s, %(label)s
)
ON CONFLICT (bucket, thread_id, consumer) DO UPDATE SET
    position = excluded.position,
    handler = excluded.handler,
    filter = excluded.filter,
    max_attempts = excluded.max_attempts,
    timeout = excluded.timeout,
    kind = excluded.kind,
    command = excluded.command,
    directory = excluded.directory,
    batch = excluded.batch,
    concurrency = excluded.concurrency,
    ordered_by = excluded.ordered_by,
    on_failure = excluded.on_failure,
    backoff_ms = excluded.backoff_ms,
    backoff_most_ms = excluded.backoff_most_ms,
    lease_ms = excluded.lease_ms,
    emit_dead = excluded.emit_dead,
    label = excluded.label,
    paused = false,
    attempts = 0,
    attempts_at = 0,
    stalled = NULL,
    stalled_at = 0,
    scanned_after = 0,
    scanned_id = 0,
    scanned_filter = NULL,
    revision = consumers.revision + 1
WHERE consumers.position IS NULL
RETURNING 1
"""
_FROM_NOW = f"""
UPDATE eventq.consumers
SET
    acked = c.last_event,
    updated_at = %(stamp)s,
    replay_from = CASE
        WHEN c.last_event < coalesce(acked, 0)
            THEN least(coalesce(replay_from, c.last_event), c.last_event)
        ELSE replay_from
    END
FROM (SELECT last_event FROM eventq.counters WHERE {MINE}) AS c
WHERE {_OF} AND c.last_event > 0
"""
# All settings change together; what is known of runs begins anew, and the progress stays.
_CHANGE = f"""
UPDATE eventq.consumers
SET
    handler = %(handler)s,
    filter = %(filter)s,
    max_attempts = %(max_attempts)s,
    timeout = %(timeout)s,
    kind = %(kind)s,
    command = %(command)s,
    directory = %(directory)s,
    batch = %(batch)s,
    concurrency = %(concurrency)s,
    ordered_by = %(ordered_by)s,
    on_failure = %(on_failure)s,
    backoff_ms = %(backoff_ms)s,
    backoff_most_ms = %(backoff_most_ms)s,
    lease_ms = %(lease_ms)s,
    emit_dead = %(emit_dead)s,
    label = %(label)s,
    attempts = 0,
    attempts_at = 0,
    stalled = NULL,
    stalled_at = 0,
    scanned_after = 0,
    scanned_id = 0,
    scanned_filter = NULL,
    revision = consumers.revision + 1
WHERE {_OF} AND position IS NOT NULL
RETURNING 1
"""
_PAUSE = f"""
UPDATE eventq.consumers
SET paused = %(paused)s, revision = revision + 1
WHERE {_OF}
RETURNING 1
"""
_DELETE = f"""
UPDATE eventq.consumers
SET
    position = NULL,
    paused = false,
    attempts = 0,
    stalled = NULL,
    scanned_id = 0,
    revision = revision + 1
WHERE {_OF} AND position IS NOT NULL
RETURNING 1
"""
_END_LEASES = f"""
UPDATE eventq.unfinished
SET state = {WAITING}, due_at = 0, token = NULL
WHERE {_OF} AND state = {LEASED}
"""
# Whether a lease holds now. A replay since then has ended it, an ack those up to it.
_LEASED = f"""(
    expires_at IS NOT NULL
    AND replay_from IS NULL
    AND EXISTS (
        SELECT 1
        FROM eventq.unfinished u
        WHERE u.bucket = %(b)s
            AND u.thread_id = %(t)s
            AND u.consumer = %(consumer)s
            AND state = {LEASED}
            AND due_at > {NOW}
            AND due_at <= {NOW} + span_ms + {SLACK_MS}
            AND (revived = 1 OR event_id > coalesce(acked, 0))
    )
)"""
_POSITION = f"""
SELECT filter, (SELECT last_event FROM eventq.counters WHERE {MINE}), acked,
    CASE
        WHEN unfinished > 0 AND kind = 'each' THEN coalesce(acked, 0)
        WHEN stalled IS NOT NULL THEN stalled_at
    END, {_LEASED}, fence
FROM eventq.consumers
WHERE {_OF} AND position IS NOT NULL
"""
_STAMP = (
    f"to_char(timestamp 'epoch' + {NOW} * interval '1 ms', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
)
# An ack that goes on, and that nobody else has overtaken; or a replay, which goes back too.
_ACK = f"""
UPDATE eventq.consumers
SET acked = %(acked)s, updated_at = {_STAMP}, revision = revision + 1
WHERE {_OF}
    AND {IS_CURRENT}
    AND position IS NOT NULL
    AND (acked IS NULL OR acked < %(acked)s)
    AND (%(fence)s::bigint IS NULL OR fence <= %(fence)s)
    AND NOT {_LEASED}
RETURNING (SELECT awake_until > {NOW} FROM eventq.counters WHERE {MINE})
"""
# The same, but for a filter that has changed, and an id that there is not yet.
_ACK_KNOWN = _ACK.replace(
    "RETURNING",
    f"""    AND %(acked)s::bigint IS NOT NULL
    AND filter IS NOT DISTINCT FROM %(text)s::text
    AND %(acked)s <= (SELECT last_event FROM eventq.counters WHERE {MINE})
RETURNING""",
)
_AFTER = f"coalesce(%(acked)s::bigint, (SELECT acked FROM eventq.consumers WHERE {_OF}), 0)"
_MOST_FILTERS = 1_000
_GO_BACK = f"""
UPDATE eventq.consumers
SET
    acked = %(acked)s,
    updated_at = {_STAMP},
    revision = revision + 1,
    replay_from = CASE
        WHEN frontier IS NOT NULL AND %(acked)s < greatest(coalesce(acked, 0), finished)
            THEN least(coalesce(replay_from, %(acked)s), %(acked)s)
        ELSE replay_from
    END
WHERE {_OF}
    AND {IS_CURRENT}
    AND position IS NOT NULL
    AND (%(fence)s::bigint IS NULL OR fence <= %(fence)s)
RETURNING (SELECT awake_until > {NOW} FROM eventq.counters WHERE {MINE})
"""
_REPLAY = f"""
UPDATE eventq.consumers
SET revision = revision + 1, replay_from = least(coalesce(replay_from, %(acked)s), %(acked)s)
WHERE {_OF}
    AND {IS_CURRENT}
    AND frontier > %(acked)s
    AND (%(fence)s::bigint IS NULL OR fence <= %(fence)s)
RETURNING (SELECT awake_until > {NOW} FROM eventq.counters WHERE {MINE})
"""
_ADVANCE = f"""
UPDATE eventq.consumers
SET acked = %(acked)s, updated_at = {_STAMP}
WHERE {_OF} AND {IS_CURRENT} AND acked = %(before)s AND fence <= %(fence)s AND NOT {_LEASED}
RETURNING 1
"""
_RAISE_FENCE = f"""
INSERT INTO eventq.consumers (bucket, thread_id, consumer, fence)
VALUES (%(b)s, %(t)s, %(consumer)s, 1)
ON CONFLICT (bucket, thread_id, consumer) DO UPDATE SET fence = consumers.fence + 1
WHERE consumers.{IS_CURRENT}
RETURNING fence, {DURABLE}
"""
_SET_SCANNED = f"""
UPDATE eventq.consumers
SET scanned_after = %(after)s, scanned_id = %(upto)s, scanned_filter = %(text)s
WHERE {_OF} AND {IS_CURRENT} AND position IS NOT NULL
"""
_NOTE_RUN = f"""
UPDATE eventq.consumers
SET
    attempts = coalesce(%(attempts)s::bigint, attempts),
    attempts_at = CASE WHEN %(attempts)s::bigint IS NULL THEN attempts_at ELSE %(acked)s END,
    stalled = CASE WHEN %(stalled)s::text IS NULL THEN stalled ELSE nullif(%(stalled)s, '') END,
    stalled_at = CASE WHEN %(stalled)s::text IS NULL THEN stalled_at ELSE %(acked)s END,
    revision = revision + 1
WHERE {_OF} AND {IS_CURRENT} AND position IS NOT NULL
RETURNING (SELECT awake_until > {NOW} FROM eventq.counters WHERE {MINE})
"""
_ODD = f"""
SELECT c.consumer, c.acked, n.last_event
FROM eventq.consumers c, LATERAL (SELECT last_event FROM eventq.counters WHERE {MINE}) AS n
WHERE c.bucket = %(b)s
    AND c.thread_id = %(t)s
    AND (c.acked > n.last_event OR c.acked < 0)
"""
_WATERMARKS = f"""
SELECT consumer, scanned_after, scanned_id, scanned_filter
FROM eventq.consumers
WHERE {MINE} AND position IS NOT NULL AND scanned_id > 0
"""


class Consumers(Progress):
    """The rows of consumers."""

    def __init__(self, db: Database) -> None:
        """Use the connections and transactions of a database."""
        self._db: Database = db
        self._filters: dict[str, str | None] = {}  # of consumers, as they were popped last

    def get(self, consumer: str) -> ConsumerState | None:
        """Return the state of one consumer, or None when it is not subscribed."""
        rows = self._states(consumer)
        return _state_of(rows[0]) if rows else None

    def _states(self, consumer: str | None) -> Rows:
        """Return the rows of one consumer or of all. Raises NotAThreadError."""
        rows = self._db.rows(_STATES, {"consumer": consumer})
        if not rows:
            self._db.alive()
        return rows

    def all(self) -> list[ConsumerState]:
        """Return the state of every consumer, oldest subscription first."""
        return [*map(_state_of, self._states(None))]

    def former(self) -> list[tuple[str, int, str | None]]:
        """Return who is not subscribed any more, how far each has got, and when that was."""
        return self._db.rows(_FORMER)

    def version(self) -> object:
        """Return a value that differs: nobody here looks at consumers after each push."""
        return object()

    def _change(self, sql: str, consumer: str, **values: Any) -> Rows:
        given = self._db.bound({"consumer": consumer, **values})
        return self._db.changing(lambda link: link.run(sql, given))

    def _repeat(self, sql: str, consumer: str, **values: Any) -> Rows:
        """Run a statement that may be run twice without harm."""
        given = self._db.bound({"consumer": consumer, **values})
        return self._db.changing(lambda link: link.run(sql, given), again=True)

    # --- subscribing ------------------------------------------------------------------------------

    def put(
        self,
        consumer: str,
        handler: str,
        filter: str | None,
        attempts: int,
        timeout: float | None,
        *,
        settings: Settings | None = None,
        from_now: bool = False,
    ) -> bool:
        """Store a subscription, with a clean state; return False when there is one of that name."""
        check_short(consumer, "consumer")
        row = (handler, filter, attempts, timeout, *(settings or ORIGINAL))
        values = dict(zip(_FIELDS, row, strict=True))
        with self._db.joined():
            if not self._change(_PUT, consumer, **values):
                return False
            if from_now:
                self._change(_FROM_NOW, consumer, stamp=self._db.stamp())
            self._db.ring_on_commit()
        return True

    def change(
        self,
        consumer: str,
        handler: str,
        filter: str | None,
        attempts: int,
        timeout: float | None,
        settings: Settings,
    ) -> bool:
        """Change a subscription, which keeps its progress and its pause; return False for none."""
        row = (handler, filter, attempts, timeout, *settings)
        with self._db.joined():
            if not self._change(_CHANGE, consumer, **dict(zip(_FIELDS, row, strict=True))):
                return False
            self._db.ring_on_commit()
        return True

    def delete(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; return False when there is none."""
        with self._db.joined():
            if not self._change(_DELETE, consumer):
                return False
            self._change(_END_LEASES, consumer)
            self._db.ring_on_commit()
        return True

    def pause(self, consumer: str, *, paused: bool) -> None:
        """Let a consumer rest, or go on."""
        with self._db.joined():
            self._change(_PAUSE, consumer, paused=paused)
            self._db.ring_on_commit()

    # --- progress ---------------------------------------------------------------------------------

    def pop(
        self,
        consumer: str,
        acked: int | None,
        limit: int,
        *,
        lines: bool = False,
        replay: bool = False,
        fence: int | None = None,
    ) -> Popped:
        """Ack up to an id, and return the next page, in one round trip if the server can filter."""
        if limit and not replay and not self._db.in_write():
            popped = self._pop_at_once(consumer, acked, limit, fence)
            if popped is not None:
                events, woke = popped
                return Popped(lines_of(events) if lines else events, woke)
        return super().pop(consumer, acked, limit, lines=lines, replay=replay, fence=fence)

    def _pop_at_once(
        self, consumer: str, acked: int | None, limit: int, fence: int | None
    ) -> tuple[EventPage, bool] | None:
        """Pop in one round trip, if the server can judge the filter as it was at the last pop.

        Returns the page, and whether the ack has ended a stall; None if nothing was done.
        """
        db = self._db
        if consumer not in self._filters or not db.writable:
            return None
        text = self._filters[consumer]
        values = {"consumer": consumer, "acked": acked, "fence": fence, "text": text}
        given = db.bound(values)
        read = db.events.ahead(text or "", _AFTER, values, limit)
        if read is None:
            return None
        steps = [(_POSITION, given), (_ACK_KNOWN, given), read]
        positions, acks, rows = db.changing(lambda link: link.relaxed(*steps), again=True)
        if not positions or positions[0][0] != text:
            self._filters.pop(consumer, None)
            return None
        found = Position(*positions[0])
        before = found.before or 0
        is_new = acked is not None and (found.before is None or acked > before)
        if found.leased or (fence is not None and found.fence > fence) or (is_new and not acks):
            return None  # the long way says why
        if acked is not None and acked < before:
            return None
        woke = bool(acks) and found.stalled_at == before
        if acks:
            db.is_awake = bool(acks[0][0])
        if woke:
            db.ring()
        page = db.events.page_of(rows, limit, found.last)
        return self.go_on(page, text or "", found.last, limit, lines=False), woke

    def set_acked(self, consumer: str, acked: int, *, replay: bool, fence: int | None) -> bool:
        """Record how far a consumer has got; return False where somebody else was faster."""
        sql = _GO_BACK if replay else _ACK
        given = self._db.bound({"consumer": consumer, "acked": acked, "fence": fence})
        if self._db.in_write():
            rows = self._db.changing(lambda link: link.run(sql, given))
        else:
            rows = self._db.changing(lambda link: link.relaxed((sql, given))[0], again=True)
        if rows:
            self._db.is_awake = bool(rows[0][0])
        return bool(rows)

    def replay_claims(self, consumer: str, acked: int, fence: int | None) -> bool:
        """Let what claims did after an ack be done again; return whether there was any."""
        rows = self._repeat(_REPLAY, consumer, acked=acked, fence=fence)
        if rows:
            self._db.is_awake = bool(rows[0][0])
            self._db.ring_on_commit()
        return bool(rows)

    def raise_fence(self, consumer: str) -> int:
        """Return the fence of a new supervisor; see `store.protocol`."""
        return int(self._repeat(_RAISE_FENCE, consumer)[0][0])

    def advance(self, consumer: str, before: int, acked: int, fence: int) -> bool:
        """Ack events that were read; return False when the progress is not what it was before."""
        words = {"consumer": consumer, "acked": acked, "before": before, "fence": fence}
        given = self._db.bound(words)
        if self._db.in_write():
            return bool(self._db.changing(lambda link: link.run(_ADVANCE, given)))
        return bool(self._db.changing(lambda link: link.relaxed((_ADVANCE, given))[0]))

    def position(
        self, consumer: str, fence: int | None = None, acked: int = 0, *, replay: bool = False
    ) -> Position:
        """Return where a consumer is; see `store.ack_rules`. Raises NotAThreadError, too."""
        rows = self._db.rows(_POSITION, {"consumer": consumer})
        if not rows:
            self._db.alive()
            raise UnknownConsumerError(consumer)
        found = Position(*rows[0])
        if fence is not None and found.fence > fence:
            raise FencedError(consumer, acked)
        if found.leased and not replay:
            raise ConsumerInUseError(consumer, "workers have claims of it")
        if len(self._filters) >= _MOST_FILTERS:
            self._filters.clear()
        self._filters[consumer] = found.filter
        return found

    # --- runs -------------------------------------------------------------------------------------

    def note_scanned(self, state: ConsumerState, upto: int) -> None:
        """Note that no event up to `upto` matches, unless time may change that."""
        text = state.filter or ""
        if text and not self._db.filters.is_timed(text):
            after = max(state.acked, state.frontier)  # of what is before, some may be unfinished
            self._repeat(_SET_SCANNED, state.consumer, after=after, upto=upto, text=text)

    def note_run(
        self, state: ConsumerState, *, attempts: int | None = None, stalled: str | None = None
    ) -> None:
        """Record attempts and a stall at the acked event; None keeps them, "" ends a stall."""
        values = {"attempts": attempts, "stalled": stalled, "acked": state.acked}
        rows = self._repeat(_NOTE_RUN, state.consumer, **values)
        if rows and stalled == "":
            self._db.is_awake = bool(rows[0][0])
            self._db.ring_on_commit()

    # --- faults -----------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of consumers."""
        for consumer, acked, last in self._db.rows(_ODD):
            yield f"consumer '{consumer}' has acked {acked}, but the newest event is {last}"
        last = self._db.events.last()
        for consumer, after, number, text in self._db.rows(_WATERMARKS):
            hit = self._db.events.first_match(text or "", after, min(number, last))
            if hit is not None:
                yield f"consumer '{consumer}' would skip event {hit}: its watermark is {number}"


def _state_of(row: tuple[Any, ...]) -> ConsumerState:
    """Return a row as a record: what was noted for another acked event does not count."""
    consumer, handler, text, acked, updated_at, most, timeout = row[:7]
    attempts, attempts_at, stalled, stalled_at, after, scanned, scanned_text = row[7:14]
    settings = Settings._make(row[14:26])
    paused, frontier, blocked_at, tried, code, error, unfinished = row[26:]
    # A handler that pops begins after the acked event, whatever claims have examined before.
    frontier = 0 if settings.kind == "loop" else frontier or 0
    fits = after <= max(acked, frontier) and scanned_text == (text or "")
    halt = stalled if stalled_at == acked else None
    return ConsumerState(
        consumer, handler, text, acked, updated_at, most, timeout,
        attempts if attempts_at == acked else 0,
        halt if blocked_at is None else stall(blocked_at, tried, code, error),
        max(acked, scanned) if fits else acked,
        settings,
        paused,
        frontier,
        unfinished,
    )  # fmt: skip
