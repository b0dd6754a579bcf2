"""Consumers in SQLite: subscriptions, progress, and the state of their handlers."""

from __future__ import annotations

import os

import apsw

from eventq import system
from eventq.errors import AckError, DamagedError, FilterError, UnknownConsumerError
from eventq.event import ConsumerState, Popped
from eventq.storage.sqlite.values import is_text, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.event import EventPage, LinePage
    from eventq.storage.sqlite.database import Database

_STATE_ROW = (  # none for a consumer that was unsubscribed meanwhile
    "INSERT OR IGNORE INTO subscription_state (consumer_id) SELECT consumer_id FROM subscriptions"
    " WHERE consumer_id = ?"
)
# Subscriptions as others may have stored them too: CAST makes a number of whatever stands in for
# one.
_TEXTS = ("s.consumer_id", "handler_cmd", "filter", "p.updated_at", "stalled", "scanned_filter")
_TEXT_PLACES = (0, 1, 2, 4, 9, 13)  # of these, in a row
_STATES = """SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
CAST(coalesce(max_attempts, 5) AS INTEGER), CAST(timeout AS REAL),
CAST(coalesce(attempts, 0) AS INTEGER),
CAST(coalesce(attempts_at, 0) AS INTEGER), {4}, CAST(coalesce(stalled_at, 0) AS INTEGER),
CAST(coalesce(scanned_after, 0) AS INTEGER), CAST(coalesce(scanned_id, 0) AS INTEGER), {5}{more}
FROM subscriptions s LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
LEFT JOIN subscription_state t ON t.consumer_id = s.consumer_id
WHERE ?1 IS NULL OR s.consumer_id = ?1 ORDER BY s.rowid"""
_OLD_STATES = """SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
5, NULL, 0, 0, {4}, 0, 0, 0, {5}{more}
FROM (SELECT rowid AS number, *, NULL AS stalled, NULL AS scanned_filter FROM subscriptions) s
LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
WHERE ?1 IS NULL OR s.consumer_id = ?1 ORDER BY number"""
_POSITION = """SELECT filter, seq, CAST(last_acked_id AS INTEGER),
CASE WHEN stalled IS NOT NULL THEN CAST(coalesce(stalled_at, 0) AS INTEGER) END
FROM subscriptions s LEFT JOIN sqlite_sequence q ON q.name = 'events'
LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id
LEFT JOIN subscription_state t ON t.consumer_id = s.consumer_id WHERE s.consumer_id = ?"""
_OLD_POSITION = """SELECT filter, seq, CAST(last_acked_id AS INTEGER), NULL
FROM subscriptions s LEFT JOIN sqlite_sequence q ON q.name = 'events'
LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id WHERE s.consumer_id = ?"""
_SET_ACKED = (
    "INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at) VALUES (?, ?, ?)"
    " ON CONFLICT (consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id,"
    " updated_at = excluded.updated_at"
)
_SET_SCANNED = (
    "UPDATE subscription_state SET scanned_after = ?, scanned_id = ?, scanned_filter = ? WHERE"
    " consumer_id = ?"
)
_NOTE_RUN = """UPDATE subscription_state SET
attempts = coalesce(?1, attempts), attempts_at = iif(?1 IS NULL, attempts_at, ?3),
stalled = iif(?2 IS NULL, stalled, nullif(?2, '')), stalled_at = iif(?2 IS NULL, stalled_at, ?3)
WHERE consumer_id = ?4"""


class Consumers:
    """The tables of subscriptions and of consumers' progress."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
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
        attempts, attempts_at, stalled, stalled_at, scanned_after, scanned_id, scanned_filter.
        """
        sql = _OLD_STATES if self._db.version == 0 else _STATES  # of the older tool, opened to read
        try:
            rows = self._run(sql.format(*_TEXTS, more=""), (consumer,))
            if all(_is_plain(row) for row in rows):
                return rows
        except DamagedError:
            pass  # text that is not UTF-8, or worse: then this fails too
        kinds = "".join(f", typeof({name})" for name in _TEXTS)
        blobs = (f"CAST({name} AS BLOB)" for name in _TEXTS)
        return [_shown(row) for row in self._run(sql.format(*blobs, more=kinds), (consumer,))]

    def any(self) -> bool:
        """Return whether there is any subscription."""
        db = self._db
        if db.pid != os.getpid():
            raise db.gone()
        with db.lock:
            try:
                return bool(db.cursor.execute("SELECT 1 FROM subscriptions LIMIT 1").fetchall())
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
        from_now: bool = False,
    ) -> bool:
        """Store a subscription, with a clean state; return False when there is one of that name."""
        with self._db.joined():
            sql = (
                "INSERT OR IGNORE INTO subscriptions (consumer_id, handler_cmd, filter) VALUES"
                " (?, ?, ?)"
            )
            self._run(sql, (consumer, handler, filter))
            if not self._db.connection.changes():
                return False
            sql = (
                "INSERT OR REPLACE INTO subscription_state (consumer_id, max_attempts, timeout)"
                " VALUES (?, ?, ?)"
            )
            self._run(sql, (consumer, attempts, timeout))
            if from_now and (last := self._db.events.last()):
                self._run(_SET_ACKED, (consumer, last, system.stamp(system.now())))
        return True

    def delete(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; return False when there is none."""
        with self._db.joined():
            self._run("DELETE FROM subscriptions WHERE consumer_id = ?", (consumer,))
            gone = bool(self._db.connection.changes())
            self._run("DELETE FROM subscription_state WHERE consumer_id = ?", (consumer,))
        return gone

    # --- progress ---------------------------------------------------------------------------------

    def pop(self, consumer: str, acked: int, limit: int, *, lines: bool = False) -> Popped:
        """Ack up to an id, and return the next page of matching events, as JSON with `lines`.

        The events are read first: a filter that fails leaves the ack where it was, and an ack that
        fails returns no events. A power cut may undo the ack: it only means a second delivery.
        Raises UnknownConsumerError, AckError, FilterError.
        """
        text, last, before, stalled_at = self._position(consumer)
        if acked > last and acked != before:
            raise AckError(acked, last)
        page = self._read(text, acked, last, limit, lines=lines) if limit else None
        return Popped(page, self._set_acked(consumer, acked, before, stalled_at))

    def read_on(
        self, consumer: str, after: int, limit: int, *, lines: bool = False
    ) -> EventPage | LinePage:
        """Return the next page of events without an ack. Raises UnknownConsumerError."""
        text, last, _, _ = self._position(consumer)
        return self._read(text, after, last, limit, lines=lines)

    def _read(
        self, text: str | None, after: int, upto: int, limit: int, *, lines: bool
    ) -> EventPage | LinePage:
        """Return the first events that match, all of `limit` if there are so many."""
        events = self._db.events
        accepted = events.accept(text)
        read = events.lines if lines else events.page
        page: Any = read(accepted, after, upto, limit)
        while page.next < upto and (left := limit - len(page[0])) > 0:
            more: Any = read(accepted, page.next, upto, left)
            page = (
                type(page)(page[0] + more[0], *more[1:])
                if more[0]
                else page._replace(next=more.next)
            )
        return page  # type: ignore[no-any-return]

    def _position(self, consumer: str) -> tuple[str | None, int, int | None, int | None]:
        """Return filter, newest event, last ack and where it stalled, if it did, of a consumer."""
        sql = _POSITION if self._db.version else _OLD_POSITION
        try:
            rows = self._run(sql, (consumer,))
            if rows and not isinstance(rows[0][0], bytes):
                text, last, before, stalled_at = rows[0]
                return text, self._db.events.last() if last is None else last, before, stalled_at
        except DamagedError:
            rows = [None]
        if not rows:
            raise UnknownConsumerError(consumer)
        state = self._rows(consumer)[0]  # a filter that cannot be read is told by its type
        return state[2], self._db.events.last(), state[3], state[10] if state[9] else None

    def _set_acked(
        self, consumer: str, acked: int, before: int | None, stalled_at: int | None
    ) -> bool:
        """Note how far a consumer has got; return whether it may be due although nothing is new."""
        if before == acked:
            return False
        self._db.change(_SET_ACKED, (consumer, acked, system.stamp(system.now())), relaxed=True)
        return acked < (before or 0) or stalled_at == (before or 0)

    # --- runs -------------------------------------------------------------------------------------

    def note_scanned(self, state: ConsumerState, upto: int) -> None:
        """Note that no event up to `upto` matches, unless time may change that."""
        text = state.filter or ""
        if text and not self._db.filtered(lambda sandbox: sandbox.timed(text)):
            self._db.change(_SET_SCANNED, (state.acked, upto, text, state.consumer), relaxed=True)

    def note_run(
        self, state: ConsumerState, *, attempts: int | None = None, stalled: str | None = None
    ) -> None:
        """Record attempts and a stall at the acked event; None keeps them, "" ends a stall."""
        with self._db.joined():
            self._run(_STATE_ROW, (state.consumer,))
            self._run(_NOTE_RUN, (attempts, stalled, state.acked, state.consumer))

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
            "SELECT consumer_id, scanned_after, scanned_id, scanned_filter FROM"
            " subscription_state WHERE scanned_id > 0"
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
       typeof(handler_cmd) FROM subscriptions
"""
_PROGRESS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), typeof(last_acked_id),
       CAST(updated_at AS BLOB), typeof(updated_at) FROM consumer_progress
"""
_ODD_ACKS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), last_acked_id, last FROM consumer_progress,
       (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last)
WHERE typeof(last_acked_id) = 'integer' AND (last_acked_id > last OR last_acked_id < 0)
"""  # one statement: somebody may push meanwhile
_ODD_STATES = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id),
       'has a state that eventq does not write: subscribe it again'
FROM subscription_state WHERE typeof(consumer_id) <> 'text' OR typeof(max_attempts) <> 'integer'
   OR typeof(timeout) NOT IN ('real', 'null') OR typeof(attempts) <> 'integer'
   OR typeof(attempts_at) <> 'integer' OR typeof(stalled) NOT IN ('text', 'null')
   OR typeof(stalled_at) <> 'integer'
   OR typeof(scanned_after) <> 'integer' OR typeof(scanned_id) <> 'integer'
   OR typeof(scanned_filter) = 'blob' LIMIT 20
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
    from eventq.filters.grammar import Unreadable

    return Unreadable(data.decode(errors="replace"))


def _state_of(row: tuple[Any, ...]) -> ConsumerState:
    """Return a row as a record: what was noted for another acked event does not count."""
    consumer, handler, text, acked, updated_at, most, timeout, *noted = row
    attempts, attempts_at, stalled, stalled_at, after, scanned, scanned_text = noted
    fits = after <= acked and scanned_text == (text or "")
    return ConsumerState(
        consumer, handler, text, acked, updated_at, most, timeout,
        attempts if attempts_at == acked else 0,
        stalled if stalled_at == acked else None,
        max(acked, scanned) if fits else acked,
    )  # fmt: skip
