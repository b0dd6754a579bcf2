"""The consumers of one database: subscriptions, how far each has got, and the state of its runs."""

from __future__ import annotations

import apsw

from eventq.errors import DamagedError, FilterError
from eventq.filters.grammar import Unreadable
from eventq.storage.sqlite.values import is_text, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

_STATE_ROW = (  # none for a consumer that was unsubscribed meanwhile
    "INSERT OR IGNORE INTO subscription_state (consumer_id) SELECT consumer_id FROM subscriptions WHERE consumer_id = ?"
)
# Subscriptions as others may have stored them too: CAST makes a number of whatever stands in for one.
_TEXTS = ("s.consumer_id", "handler_cmd", "filter", "p.updated_at", "stalled", "scanned_filter")
_TEXT_PLACES = (0, 1, 2, 4, 9, 13)  # of these, in a row
_STATES = """SELECT {0}, {1}, {2}, CAST(coalesce(last_acked_id, 0) AS INTEGER), {3},
CAST(coalesce(max_attempts, 5) AS INTEGER), CAST(timeout AS REAL), CAST(coalesce(attempts, 0) AS INTEGER),
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


class Consumers:
    """The tables of subscriptions and of consumers' progress."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
        self._run = db.run
        self._one = db.one

    def subscriptions(self, consumer: str | None = None) -> list[Any]:
        """Give the rows of all subscriptions, oldest first, or of one.

        Columns: consumer_id, handler_cmd, filter, last_acked_id, updated_at, max_attempts, timeout, attempts,
        attempts_at, stalled, stalled_at, scanned_after, scanned_id, scanned_filter.
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

    def has_subscriptions(self) -> bool:
        """Say whether there is any subscription."""
        self._db.check_process()
        with self._db.lock:
            try:
                return bool(self._db.cursor.execute("SELECT 1 FROM subscriptions LIMIT 1").fetchall())
            except apsw.Error as error:
                raise self._db.explain(error) from error

    def filter_of(self, consumer: str) -> str | bool | None:
        """Give the filter of a consumer, None for all events, and False when it is not subscribed."""
        try:
            rows = self._run("SELECT filter FROM subscriptions WHERE consumer_id = ?", (consumer,))
        except DamagedError:
            rows = [(b"",)]
        if rows and isinstance(rows[0][0], bytes):
            rows = [row[2:] for row in self.subscriptions(consumer)]
        return rows[0][0] if rows else False

    def add_subscription(
        self, consumer: str, handler: str, text: str | None, attempts: int, timeout: float | None
    ) -> bool:
        """Store a subscription, with a clean state; give False when there is one of that name."""
        sql = "INSERT OR IGNORE INTO subscriptions (consumer_id, handler_cmd, filter) VALUES (?, ?, ?)"
        self._run(sql, (consumer, handler, text))
        if not self._db.connection.changes():
            return False
        sql = "INSERT OR REPLACE INTO subscription_state (consumer_id, max_attempts, timeout) VALUES (?, ?, ?)"
        self._run(sql, (consumer, attempts, timeout))
        return True

    def drop_subscription(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; give False when there is none."""
        self._run("DELETE FROM subscriptions WHERE consumer_id = ?", (consumer,))
        gone = bool(self._db.connection.changes())
        self._run("DELETE FROM subscription_state WHERE consumer_id = ?", (consumer,))
        return gone

    def acked(self, consumer: str) -> int | None:
        """Give the last acked id of a consumer, None before its first ack."""
        sql = "SELECT CAST(last_acked_id AS INTEGER) FROM consumer_progress WHERE consumer_id = ?"
        return self._one(sql, (consumer,))  # type: ignore[no-any-return]

    def set_acked(self, consumer: str, number: int, stamp: str) -> None:
        """Note how far a consumer has got."""
        sql = (
            "INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at) VALUES (?, ?, ?)"
            " ON CONFLICT (consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id,"
            " updated_at = excluded.updated_at"
        )
        self._run(sql, (consumer, number, stamp))

    def set_watermark(self, consumer: str, after: int, number: int, text: str) -> None:
        """Note that no event with after < id <= number matches a consumer's filter; not if time may change that."""
        if self.timed(text):
            return
        sql = (
            "UPDATE subscription_state SET scanned_after = ?, scanned_id = ?, scanned_filter = ? WHERE consumer_id = ?"
        )
        self._run(sql, (after, number, text, consumer))

    def timed(self, text: str) -> bool:
        """Say whether a filter may look at the clock: what it does not match now it may match later."""
        return bool(text) and bool(self._db.steady(lambda: self._db.sandbox.timed(text)))

    def set_attempts(self, consumer: str, attempts: int, acked: int) -> None:
        """Note how many runs in a row made no progress past `acked`."""
        self._run(_STATE_ROW, (consumer,))
        sql = "UPDATE subscription_state SET attempts = ?, attempts_at = ? WHERE consumer_id = ?"
        self._run(sql, (attempts, acked, consumer))

    def set_stalled(self, consumer: str, reason: str | None, acked: int) -> None:
        """Note why no handler is started any more for what comes after `acked`; None ends a stall and its attempts."""
        self._run(_STATE_ROW, (consumer,))
        sql = "UPDATE subscription_state SET stalled = ?, stalled_at = ?, attempts = attempts * ? WHERE consumer_id = ?"
        self._run(sql, (reason, acked, reason is not None, consumer))

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of consumers."""
        yield from self._row_faults()
        for data, kind, acked, last in self._run(_ODD_ACKS):
            yield f"consumer '{name_of(data, kind)}' has acked {acked}, but the newest event is {last}"

    def _row_faults(self) -> Iterator[str]:
        for data, kind, handler, handler_kind in self._run(_CONSUMERS):
            if not is_text(data, kind):
                yield f"consumer '{name_of(data, kind)}' has an id that is not text: delete its row"
            elif not data:
                yield "consumer '' has an empty id: delete its row"
            elif not is_text(handler, handler_kind):
                yield f"consumer '{name_of(data, kind)}' has a handler that is not text: unsubscribe it"
        for data, kind, acked_kind, stamp, stamp_kind in self._run(_PROGRESS):
            if not is_text(data, kind):
                yield f"consumer '{name_of(data, kind)}' has progress, but no id that is text: delete its row"
            elif acked_kind != "integer":
                yield f"consumer '{name_of(data, kind)}' has acked what is no number: ack again"
            elif not is_text(stamp, stamp_kind):
                yield f"consumer '{name_of(data, kind)}' has a time of its last ack that is not text: ack again"

    def state_faults(self, last: int) -> Iterator[str]:
        """Yield a sentence for each odd state; `last` is the newest event."""
        odd = False
        for data, kind, what in self._run(_ODD_STATES):
            odd = True
            yield f"consumer '{name_of(data, kind)}' {what}"
        if odd:
            return  # a watermark that is no number is none
        for consumer, after, number, text in self._run(
            "SELECT consumer_id, scanned_after, scanned_id, scanned_filter FROM subscription_state WHERE scanned_id > 0"
        ):
            yield from self._watermark_fault(consumer, after, min(number, last), text)

    def _watermark_fault(self, consumer: str, after: int, number: int, text: str | None) -> Iterator[str]:
        try:
            hit = self._db.events.first_match(text or "", after, number)
        except FilterError:
            return  # a filter that does not run any more stalls its consumer: nothing is skipped
        if hit is not None:
            yield f"consumer '{consumer}' would skip event {hit}: its watermark is {number}"


_CONSUMERS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), CAST(handler_cmd AS BLOB), typeof(handler_cmd)
FROM subscriptions
"""
_PROGRESS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), typeof(last_acked_id), CAST(updated_at AS BLOB),
       typeof(updated_at) FROM consumer_progress
"""
_ODD_ACKS = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), last_acked_id, last FROM consumer_progress,
       (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last)
WHERE typeof(last_acked_id) = 'integer' AND (last_acked_id > last OR last_acked_id < 0)
"""  # one statement: somebody may push meanwhile
_ODD_STATES = """
SELECT CAST(consumer_id AS BLOB), typeof(consumer_id), 'has a state that eventq does not write: subscribe it again'
FROM subscription_state WHERE typeof(consumer_id) <> 'text' OR typeof(max_attempts) <> 'integer'
   OR typeof(timeout) NOT IN ('real', 'null') OR typeof(attempts) <> 'integer' OR typeof(attempts_at) <> 'integer'
   OR typeof(stalled) NOT IN ('text', 'null') OR typeof(stalled_at) <> 'integer'
   OR typeof(scanned_after) <> 'integer' OR typeof(scanned_id) <> 'integer' OR typeof(scanned_filter) = 'blob' LIMIT 20
"""


def _is_plain(row: tuple[Any, ...]) -> bool:
    """Tell whether a subscription's row is one that eventq may have written."""
    return (
        {type(row[0]), type(row[1])} == {str}
        and row[0] != ""
        and all(row[place].__class__ is str or row[place] is None for place in _TEXT_PLACES)
    )


def _shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a subscription's row with texts that can be shown, given as bytes and followed by their types.

    A filter that is not text is refused when it is run. A consumer whose id is not text, or
    empty, is stalled, as nobody could pop for it.
    """
    values, kinds = list(row[: -len(_TEXTS)]), row[-len(_TEXTS) :]
    for place, kind in zip(_TEXT_PLACES, kinds, strict=True):
        values[place] = _text_of(values[place], kind)
    if type(values[0]) is not str:
        values[0], values[9], values[10] = name_of(row[0], kinds[0]), "its consumer id is not text", values[3]
    elif not values[0]:
        values[9], values[10] = "its consumer id is empty", values[3]
    values[1] = values[1] or ""
    return tuple(values)


def _text_of(data: bytes | None, kind: str) -> str | None:
    """Return a value as text: marked where it is none in the database, or not UTF-8."""
    if data is None:
        return None
    return data.decode() if is_text(data, kind) else Unreadable(data.decode(errors="replace"))
