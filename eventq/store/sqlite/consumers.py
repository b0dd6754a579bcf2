"""Consumers in SQLite: subscriptions, progress, and the state of their handlers."""

from __future__ import annotations

import os

import apsw

from eventq.errors import (
    ConsumerInUseError,
    DamagedError,
    FencedError,
    FilterError,
    UnknownConsumerError,
)
from eventq.records.consumer import ORIGINAL, ConsumerState, Settings
from eventq.store import LEASED, SLACK_MS
from eventq.store.ack_rules import Position, Progress
from eventq.store.sqlite.migrate import IS_CURRENT
from eventq.store.sqlite.values import is_text, name_of
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.store.sqlite.database import Database

# ruff: noqa: S608 (the parts are constants)

# None for a consumer that was unsubscribed meanwhile.
_STATE_ROW = """
INSERT OR IGNORE INTO subscription_state (consumer_id)
SELECT consumer_id
FROM subscriptions
WHERE consumer_id = ?
"""
# Subscriptions as others may have stored them too: CAST makes a number of whatever stands in for
# one. Claims have stopped at an event until an ack or a replay, whether it was applied or not.
_TEXTS = ("s.consumer_id", "handler_cmd", "filter", "p.updated_at", "stalled", "scanned_filter")
_TEXT_PLACES = (0, 1, 2, 4, 9, 13)  # of these, in a row
_STATES_AS = """
SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
    CAST(coalesce(max_attempts, 5) AS INTEGER), CAST(timeout AS REAL),
    CAST(coalesce(t.attempts, 0) AS INTEGER), CAST(coalesce(attempts_at, 0) AS INTEGER), {4},
    CAST(coalesce(t.stalled_at, 0) AS INTEGER), CAST(coalesce(scanned_after, 0) AS INTEGER),
    CAST(coalesce(scanned_id, 0) AS INTEGER), {5}, kind, command, directory, batch, concurrency,
    ordered_by, on_failure, backoff_ms, backoff_most_ms, lease_ms, emit_dead, paused,
    coalesce(replay_from, frontier),
    iif(replay_from IS NULL AND q.stalled_at > coalesce(last_acked_id, 0), q.stalled_at, NULL),
    u.attempts, u.code, u.error, coalesce(q.unfinished, 0){more}
FROM subscriptions s
    LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
    LEFT JOIN subscription_state t ON t.consumer_id = s.consumer_id
    LEFT JOIN consumer_settings c ON c.consumer_id = s.consumer_id
    LEFT JOIN queues q ON q.consumer_id = s.consumer_id
    LEFT JOIN unfinished u ON u.queue_id = q.queue_id AND revived = 0 AND event_id = q.stalled_at
WHERE ?1 IS NULL OR s.consumer_id = ?1
ORDER BY s.rowid
"""
_STATES = _STATES_AS.format(*_TEXTS, more="")
# Of a thread of the original tool, opened to read.
_ORIGINAL_STATES_AS = """
SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3}, 5, NULL, 0, 0, {4}, 0, 0, 0,
    {5}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, 0{more}
FROM (
    SELECT rowid AS number, *, NULL AS stalled, NULL AS scanned_filter
    FROM subscriptions
) s
    LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
WHERE ?1 IS NULL OR s.consumer_id = ?1
ORDER BY number
"""
_ORIGINAL_STATES = _ORIGINAL_STATES_AS.format(*_TEXTS, more="")
# The pause stays: only `pause` and `resume` change it.
# All but the label, which only shared threads have.
_PUT_SETTINGS = """
INSERT INTO consumer_settings (
    consumer_id, kind, command, directory, batch, concurrency, ordered_by, on_failure, backoff_ms,
    backoff_most_ms, lease_ms, emit_dead, paused
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
ON CONFLICT DO UPDATE SET
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
    emit_dead = excluded.emit_dead
"""
_SET_PAUSED = """
INSERT INTO consumer_settings (
    consumer_id, kind, batch, concurrency, backoff_ms, backoff_most_ms, lease_ms, emit_dead, paused
)
VALUES (?1, 'loop', 1, 0, 500, 60000, 30000, 0, ?2)
ON CONFLICT DO UPDATE SET paused = excluded.paused
"""
# Whether a lease of the queue `n` holds now: ?2. A replay since then has ended it, an ack those of
# the events up to it.
_LEASED = f"""(
    expires_at IS NOT NULL
    AND replay_from IS NULL
    AND EXISTS (
        SELECT 1
        FROM unfinished u
        WHERE u.queue_id = n.queue_id
            AND state = {LEASED}
            AND due_at > ?2
            AND due_at <= ?2 + span_ms + {SLACK_MS}
            AND (
                revived = 1
                OR event_id > coalesce(
                    (SELECT last_acked_id FROM consumer_progress WHERE consumer_id = ?1),
                    0
                )
            )
    )
)"""
_POSITION = f"""
SELECT filter, seq, CAST(last_acked_id AS INTEGER),
    CASE
        WHEN unfinished > 0
            AND (SELECT kind FROM consumer_settings WHERE consumer_id = ?1) = 'each'
            THEN coalesce(CAST(last_acked_id AS INTEGER), 0)
        WHEN stalled IS NOT NULL THEN CAST(coalesce(t.stalled_at, 0) AS INTEGER)
    END,
    coalesce({_LEASED}, 0)
FROM subscriptions s
    LEFT JOIN sqlite_sequence q ON q.name = 'events'
    LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
    LEFT JOIN subscription_state t ON t.consumer_id = s.consumer_id
    LEFT JOIN queues n ON n.consumer_id = s.consumer_id
WHERE s.consumer_id = ?1
"""
_ORIGINAL_POSITION = """
SELECT filter, seq, CAST(last_acked_id AS INTEGER), NULL, 0
FROM subscriptions s
    LEFT JOIN sqlite_sequence q ON q.name = 'events'
    LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
WHERE s.consumer_id = ?1
"""
SET_ACKED = """
INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at)
VALUES (?, ?, ?)
ON CONFLICT (consumer_id) DO UPDATE SET
    last_acked_id = excluded.last_acked_id,
    updated_at = excluded.updated_at
"""
# Whether a newer supervisor than that of the caller runs a consumer; of NULL, none is newer.
_FENCED = "SELECT 1 FROM queues WHERE consumer_id = ?1 AND fence > ?2"
# A queue that has claimed nothing, so that a first claim begins after the progress of then.
_RAISE_FENCE = f"""
INSERT INTO queues (consumer_id, frontier, acked, fence)
SELECT ?, 0, 0, 1
WHERE {IS_CURRENT}
ON CONFLICT (consumer_id) DO UPDATE SET fence = fence + 1
RETURNING fence
"""
_GO_BACK = f"""
INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at)
SELECT ?1, ?3, ?4
WHERE {IS_CURRENT}
    AND NOT EXISTS (SELECT 1 FROM queues WHERE consumer_id = ?1 AND fence > ?2)
ON CONFLICT (consumer_id) DO UPDATE SET
    last_acked_id = excluded.last_acked_id,
    updated_at = excluded.updated_at
RETURNING 1
"""
# An ack that goes on, and that nobody else has overtaken.
_ACK = f"""
INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at)
SELECT ?1, ?3, ?4
WHERE {IS_CURRENT}
    AND NOT EXISTS (
        SELECT 1
        FROM queues n
        WHERE consumer_id = ?1 AND (fence > ?5 OR {_LEASED})
    )
ON CONFLICT (consumer_id) DO UPDATE SET
    last_acked_id = excluded.last_acked_id,
    updated_at = excluded.updated_at
WHERE CAST(last_acked_id AS INTEGER) < excluded.last_acked_id
RETURNING 1
"""
_REPLAY = """
UPDATE queues
SET replay_from = coalesce(min(replay_from, ?2), ?2)
WHERE consumer_id = ?1 AND frontier > ?2 AND (?3 IS NULL OR fence <= ?3)
"""
_SUBSCRIBE = """
INSERT OR IGNORE INTO subscriptions (consumer_id, handler_cmd, filter)
VALUES (?, ?, ?)
"""
_ADVANCE = f"""
UPDATE consumer_progress
SET last_acked_id = ?4, updated_at = ?5
WHERE consumer_id = ?1
    AND last_acked_id = ?3
    AND {IS_CURRENT}
    AND NOT EXISTS (
        SELECT 1
        FROM queues n
        WHERE consumer_id = ?1 AND (fence > ?6 OR {_LEASED})
    )
"""
_CLEAN_STATE = """
INSERT OR REPLACE INTO subscription_state (consumer_id, max_attempts, timeout)
VALUES (?, ?, ?)
"""
_REPLACE = "UPDATE subscriptions SET handler_cmd = ?2, filter = ?3 WHERE consumer_id = ?1"
_SET_SCANNED = f"""
UPDATE subscription_state
SET scanned_after = ?, scanned_id = ?, scanned_filter = ?
WHERE consumer_id = ? AND {IS_CURRENT}
"""
_NOTE_RUN = """
UPDATE subscription_state
SET
    attempts = coalesce(?1, attempts),
    attempts_at = iif(?1 IS NULL, attempts_at, ?3),
    stalled = iif(?2 IS NULL, stalled, nullif(?2, '')),
    stalled_at = iif(?2 IS NULL, stalled_at, ?3)
WHERE consumer_id = ?4
"""


class Consumers(Progress):
    """The tables of subscriptions and of consumers' progress."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db: Database = db
        self._run = db.run
        self._one = db.one

    def get(self, consumer: str) -> ConsumerState | None:
        """Return the state of one consumer, or None when it is not subscribed."""
        rows = self._rows(consumer)
        return _state_of(rows[0]) if rows else None

    def all(self) -> list[ConsumerState]:
        """Return the state of every consumer, oldest subscription first."""
        return [_state_of(row) for row in self._rows(None)]

    def _rows(self, consumer: str | None) -> list[Any]:
        """Return the rows of all subscriptions, or of one.

        Columns: consumer_id, handler_cmd, filter, last_acked_id, updated_at, max_attempts, timeout,
        attempts, attempts_at, stalled, stalled_at, scanned_after, scanned_id, scanned_filter, then
        those of consumer_settings.
        """
        is_original = self._db.is_original()
        try:
            rows = self._run(_ORIGINAL_STATES if is_original else _STATES, (consumer,))
            if all(_is_plain(row) for row in rows):
                return rows
        except DamagedError:
            pass  # text that is not UTF-8, or worse: then this fails too
        kinds = "".join(f", typeof({name})" for name in _TEXTS)
        blobs = (f"CAST({name} AS BLOB)" for name in _TEXTS)
        form = _ORIGINAL_STATES_AS if is_original else _STATES_AS
        sql = form.format(*blobs, more=kinds)
        return [_shown(row) for row in self._run(sql, (consumer,))]

    def former(self) -> list[tuple[str, int, str | None]]:
        """Return who is not subscribed any more, how far each has got, and when that was."""
        sql = """
            SELECT name, CAST(coalesce(last_acked_id, 0) AS INTEGER), CAST(updated_at AS TEXT)
            FROM (
                SELECT consumer_id AS name FROM consumer_progress
                UNION
                SELECT consumer_id FROM queues
            )
                LEFT JOIN consumer_progress p ON p.consumer_id = name
            WHERE name NOT IN (SELECT consumer_id FROM subscriptions)
            ORDER BY name
        """
        return self._run(sql)

    def version(self) -> object:
        """Return a value that differs once a consumer may have changed; outside of `write`."""
        db = self._db
        if db.pid != os.getpid():
            raise db.gone()
        with db.lock:
            try:
                number = db.connection.execute("PRAGMA data_version").fetchall()
                return db.changes, number
            except apsw.Error as error:
                raise db.explain(error) from error

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
        with self._db.joined():
            self._run(_SUBSCRIBE, (consumer, handler, filter))
            if not self._db.connection.changes():
                return False
            self._run(_CLEAN_STATE, (consumer, attempts, timeout))
            if settings is not None:
                self._run(_PUT_SETTINGS, (consumer, *settings[:-1]))
            if from_now and (last := self._db.events.last()):
                self._run(SET_ACKED, (consumer, last, clock.stamp(clock.now())))
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
        with self._db.joined():
            self._run(_REPLACE, (consumer, handler, filter))
            if not self._db.connection.changes():
                return False
            self._run(_CLEAN_STATE, (consumer, attempts, timeout))
            self._run(_PUT_SETTINGS, (consumer, *settings[:-1]))
            self._db.ring_on_commit()
        return True

    def delete(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; return False when there is none."""
        with self._db.joined():
            self._run("DELETE FROM subscriptions WHERE consumer_id = ?", (consumer,))
            gone = bool(self._db.connection.changes())
            self._run("DELETE FROM subscription_state WHERE consumer_id = ?", (consumer,))
            self._db.ring_on_commit()
        return gone

    def pause(self, consumer: str, *, paused: bool) -> None:
        """Let a consumer rest, or go on."""
        with self._db.joined():
            self._db.change(_SET_PAUSED, (consumer, paused))
            self._db.ring_on_commit()

    # --- progress ---------------------------------------------------------------------------------

    def set_acked(self, consumer: str, acked: int, *, replay: bool, fence: int | None) -> bool:
        """Record how far a consumer has got; return False where somebody else was faster."""
        stamp = clock.stamp(clock.now())
        if replay:
            return bool(self._db.change(_GO_BACK, (consumer, fence, acked, stamp), relaxed=True))
        values = (consumer, self._db.milliseconds(), acked, stamp, fence)
        return bool(self._db.change(_ACK, values, relaxed=True))

    def replay_claims(self, consumer: str, acked: int, fence: int | None) -> bool:
        """Let what claims did after the progress be done again; return whether there was anything.

        For a replay that goes further back, a trigger does so.
        """
        db = self._db
        with db.joined():
            self._run(_REPLAY, (consumer, acked, fence))
            woke = bool(db.connection.changes())
            if woke:
                db.ring_on_commit()
        return woke

    def raise_fence(self, consumer: str) -> int:
        """Return the fence of a new supervisor; see `store.protocol`.

        A power cut may undo it, but ends all handlers too.
        """
        number: int = self._db.change(_RAISE_FENCE, (consumer,), relaxed=True)[0][0]
        return number

    def advance(self, consumer: str, before: int, acked: int, fence: int) -> bool:
        """Ack events that were read; return False when the progress is not what it was before."""
        db = self._db
        db.check_process()
        with db.lock:
            stamp = clock.stamp(clock.now())
            values = (consumer, db.milliseconds(), before, acked, stamp, fence)
            db.change(_ADVANCE, values, relaxed=True)
            return bool(db.connection.changes())

    def position(
        self, consumer: str, fence: int | None = None, acked: int = 0, *, replay: bool = False
    ) -> Position:
        """Return where a consumer is; see `store.ack_rules`."""
        if fence is not None and self._run(_FENCED, (consumer, fence)):
            raise FencedError(consumer, acked)
        sql = _ORIGINAL_POSITION if self._db.is_original() else _POSITION
        try:
            rows = self._run(sql, (consumer, self._db.milliseconds()))
        except DamagedError:
            rows = [(b"",)]
        if not rows:
            raise UnknownConsumerError(consumer)
        if isinstance(rows[0][0], bytes):  # a filter that cannot be read is told by its type
            state = self._rows(consumer)[0]
            stalled_at = state[10] if state[9] else None
            return Position(state[2], self._db.events.last(), state[3], stalled_at)
        found = Position(*rows[0])
        if found.leased and not replay:
            raise ConsumerInUseError(consumer, "workers have claims of it")
        return found if found.last is not None else found._replace(last=self._db.events.last())

    # --- runs -------------------------------------------------------------------------------------

    def note_scanned(self, state: ConsumerState, upto: int) -> None:
        """Note that no event up to `upto` matches, unless time may change that."""
        text = state.filter or ""
        if text and not self._db.filtered(lambda sandbox: sandbox.timed(text)):
            after = max(state.acked, state.frontier)  # of what is before, some may be unfinished
            self._db.change(_SET_SCANNED, (after, upto, text, state.consumer), relaxed=True)

    def note_run(
        self, state: ConsumerState, *, attempts: int | None = None, stalled: str | None = None
    ) -> None:
        """Record attempts and a stall at the acked event; None keeps them, "" ends a stall."""
        with self._db.joined():
            self._run(_STATE_ROW, (state.consumer,))
            self._run(_NOTE_RUN, (attempts, stalled, state.acked, state.consumer))
            if stalled == "":
                self._db.ring_on_commit()

    # --- faults -----------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of consumers."""
        yield from self._row_faults()
        for data, kind, acked, last in self._run(_ODD_ACKS):
            name = name_of(data, kind)
            yield f"consumer '{name}' has acked {acked}, but the newest event is {last}"

    def _row_faults(self) -> Iterator[str]:
        for data, kind, handler, handler_kind in self._run(_CONSUMERS):
            name = name_of(data, kind)
            if not is_text(data, kind):
                yield f"consumer '{name}' has an id that is not text: delete its row"
            elif not data:
                yield "consumer '' has an empty id: delete its row"
            elif not is_text(handler, handler_kind):
                yield f"consumer '{name}' has a handler that is not text: unsubscribe it"
        for data, kind, acked_kind, stamp, stamp_kind in self._run(_PROGRESS):
            name = name_of(data, kind)
            if not is_text(data, kind):
                yield f"consumer '{name}' has progress, but no id that is text: delete its row"
            elif acked_kind != "integer":
                yield f"consumer '{name}' has acked what is no number: ack again"
            elif not is_text(stamp, stamp_kind):
                yield f"consumer '{name}' has a time of its last ack that is not text: ack again"

    def state_faults(self, last: int) -> Iterator[str]:
        """Yield a sentence for each odd state; `last` is the newest event."""
        odd = False
        for data, kind, what in self._run(_ODD_STATES):
            odd = True
            yield f"consumer '{name_of(data, kind)}' {what}"
        if odd:
            return  # a watermark that is no number is none
        for consumer, after, number, text in self._run(
            """
            SELECT consumer_id, scanned_after, scanned_id, scanned_filter
            FROM subscription_state
            WHERE scanned_id > 0
            """
        ):
            yield from self._watermark_fault(consumer, after, min(number, last), text)

    def _watermark_fault(
        self, consumer: str, after: int, number: int, text: str | None
    ) -> Iterator[str]:
        try:
            hit = self._db.events.first_match(text or "", after, number)
        except FilterError:
            return  # a filter that does not run any more stalls its consumer: nothing is skipped
        if hit is not None:
            yield f"consumer '{consumer}' would skip event {hit}: its watermark is {number}"


_CONSUMERS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), CAST(handler_cmd AS BLOB),
    typeof(handler_cmd)
FROM subscriptions
"""
_PROGRESS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), typeof(last_acked_id),
    CAST(updated_at AS BLOB), typeof(updated_at)
FROM consumer_progress
"""
_ODD_ACKS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), last_acked_id, last
FROM consumer_progress, (
    SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last
)
WHERE typeof(last_acked_id) = 'integer' AND (last_acked_id > last OR last_acked_id < 0)
"""  # one statement: somebody may push meanwhile
# What other tools may have written into rows that only eventq reads.
_ODD_STATES = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id),
    'has a state that eventq does not write: subscribe it again'
FROM subscription_state
WHERE typeof(consumer_id) <> 'text'
    OR typeof(max_attempts) <> 'integer'
    OR typeof(timeout) NOT IN ('real', 'null')
    OR typeof(attempts) <> 'integer'
    OR typeof(attempts_at) <> 'integer'
    OR typeof(stalled) NOT IN ('text', 'null')
    OR typeof(stalled_at) <> 'integer'
    OR typeof(scanned_after) <> 'integer'
    OR typeof(scanned_id) <> 'integer'
    OR typeof(scanned_filter) = 'blob'
LIMIT 20
"""


def _is_plain(row: tuple[Any, ...]) -> bool:
    """Return whether a subscription's row is one that eventq may have written."""
    return (
        {type(row[0]), type(row[1])} == {str}
        and row[0] != ""
        and all(row[place].__class__ is str or row[place] is None for place in _TEXT_PLACES)
    )


def _shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a subscription's row with texts that can be shown, from bytes and their types.

    A filter that is not text is refused when it is run. A consumer whose id is not text, or
    empty, is stalled, as nobody could pop for it.
    """
    values, kinds = list(row[: -len(_TEXTS)]), row[-len(_TEXTS) :]
    for place, kind in zip(_TEXT_PLACES, kinds, strict=True):
        values[place] = _text_of(values[place], kind)
    if type(values[0]) is not str:
        values[0], values[9], values[10] = (
            name_of(row[0], kinds[0]),
            "its consumer id is not text",
            values[3],
        )
    elif not values[0]:
        values[9], values[10] = "its consumer id is empty", values[3]
    values[1] = values[1] or ""
    return tuple(values)


def _text_of(data: bytes | None, kind: str) -> str | None:
    """Return a value as text: marked where it is none in the database, or not UTF-8."""
    if data is None:
        return None
    if is_text(data, kind):
        return data.decode()
    from eventq.log.filters.grammar import Unreadable

    return Unreadable(data.decode(errors="replace"))


def _state_of(row: tuple[Any, ...]) -> ConsumerState:
    """Return a row as a record: what was noted for another acked event does not count."""
    consumer, handler, text, acked, updated_at, most, timeout = row[:7]
    attempts, attempts_at, stalled, stalled_at, after, scanned, scanned_text = row[7:14]
    settings = ORIGINAL if row[14] is None else Settings._make((*row[14:24], bool(row[24]), None))
    # A handler that pops begins after the acked event, whatever claims have examined before.
    frontier = 0 if settings.kind == "loop" else row[26] or 0
    fits = after <= max(acked, frontier) and scanned_text == (text or "")
    return ConsumerState(
        consumer, handler, text, acked, updated_at, most, timeout,
        attempts if attempts_at == acked else 0,
        (stalled if stalled_at == acked else None) if row[27] is None else _halt(*row[27:31]),
        max(acked, scanned) if fits else acked,
        settings,
        bool(row[25]),
        frontier,
        bool(row[31]),
    )  # fmt: skip


def _halt(event: int, attempts: int | None, code: int | None, error: str | None) -> str:
    """Return why claims have stopped at an event."""
    from eventq.store.rules import stall  # a push needs none of that module

    return stall(event, attempts, code, error)
