"""Erasures: what was erased, and the changes of the rows that held it."""

from __future__ import annotations

import json

from eventq.errors import ConflictError
from eventq.records.checks import ERASED
from eventq.records.info import Erasure
from eventq.store import LEASED
from eventq.store.blobs import ADD, ADD_BYTES
from eventq.store.question_rules import erased_content
from eventq.store.turn_rows import GONE
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from eventq.store.copy_rows import ErasedCopy
    from eventq.store.engine import Engine

# ruff: noqa: S608 (the parts are constants)

# What was said of attempts at an event may be what the event said.
_ERRORS = (
    "UPDATE unfinished SET error = ?2 WHERE event_id = ?1 AND error IS NOT NULL",
    "UPDATE dead_letters SET error = ?2 WHERE event_id = ?1 AND error IS NOT NULL",
)
# What an event is ordered by may be a part of what it says; others that have the same keep it.
_GROUPS = """
SELECT DISTINCT queue_id, group_value
FROM unfinished u
WHERE event_id = ?1
    AND group_value IS NOT NULL
    AND NOT EXISTS (
        SELECT 1
        FROM unfinished o
            CROSS JOIN events ON id = o.event_id
        WHERE o.queue_id = u.queue_id
            AND o.group_value = u.group_value
            AND NOT EXISTS (
                SELECT 1
                FROM erasures
                WHERE kind = 'event' AND name = CAST(id AS TEXT)
            )
    )
"""
_RENAME = "UPDATE unfinished SET group_value = ? WHERE queue_id = ? AND group_value = ?"
# That was never put by itself, and that no other blob consists of.
_DROP_PART = """
DELETE FROM blobs
WHERE blob_id = ?1
    AND part = 1
    AND NOT EXISTS (SELECT 1 FROM blob_parts WHERE part_id = ?1)
"""
_REPORTS = "type = 'record' AND subtype = 'dead-letter'"
_PAGE = 500  # reports that are looked at together

# Where bytes are in pieces, by the number of what they belong to. Parts of long blobs are read with
# these; those of none, which an interrupted put has left, by themselves.
_PIECES = {
    "blob": """
        SELECT b.blob_id, 0, codec, bytes
        FROM blobs b
            CROSS JOIN blob_bytes USING (blob_id)
        WHERE b.blob_id > ?1
            AND ?2 = 0
            AND (part = 0 OR NOT EXISTS (SELECT 1 FROM blob_parts WHERE part_id = b.blob_id))
        ORDER BY 1
    """,
    "long blob": """
        SELECT p.blob_id, p.position, codec, bytes
        FROM blob_parts p
            CROSS JOIN blobs b ON b.blob_id = part_id
            CROSS JOIN blob_bytes y ON y.blob_id = part_id
        WHERE (p.blob_id, p.position) > (?1, ?2)
        ORDER BY 1, 2
    """,
    "artifact": """
        SELECT artifact_id, position, 1, bytes
        FROM artifact_chunks
        WHERE (artifact_id, position) > (?1, ?2)
        ORDER BY 1, 2
    """,
    "open turn": """
        SELECT open_id, position, 0, bytes
        FROM open_pieces
        WHERE (open_id, position) > (?1, ?2)
        ORDER BY 1, 2
    """,
}
_PLACES = {
    "blob": "SELECT lower(hex(hash)), hash FROM blobs WHERE blob_id = ?",
    "artifact": """
        SELECT scope_id || '/' || number || '/' || status, x''
        FROM artifacts
        WHERE artifact_id = ?
    """,
    "open turn": "SELECT open_id, x'' FROM open_turns WHERE open_id = ?",
}
_ROOM = 4 << 20  # bytes that are read at once, unless one value has more


class Erasures:
    """What was erased, when and why."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    def get(self, kind: str, name: str) -> Erasure | None:
        """Return an erasure, or None."""
        if not self._db.has_memory():
            return None
        sql = """
            SELECT kind, name, reason, at_ms, finished
            FROM erasures
            WHERE kind = ? AND name = ?
        """
        rows = self._run(sql, (kind, name))
        return _record(rows[0]) if rows else None

    def page(self, after: int, limit: int) -> list[tuple[int, Erasure]]:
        """Return the next erasures and their numbers, in the order in which they began."""
        if not self._db.has_memory():
            return []
        sql = """
            SELECT kind, name, reason, at_ms, finished, erasure_id
            FROM erasures
            WHERE erasure_id > ?
            ORDER BY erasure_id
            LIMIT ?
        """
        return [(row[5], _record(row[:5])) for row in self._run(sql, (after, limit))]

    def begin(self, kind: str, name: str, reason: str | None) -> int:
        """Note that something is being erased, inside `write`; return the erasure's number.

        One that is done again without a reason keeps the reason of before.
        """
        if kind in ("event", "turn"):
            self._db.causes.forget(kind, int(name))
        if kind == "turn":
            self._db.usage.forget(int(name))
        return self._begin(kind, name, reason, self._db.milliseconds())

    def _begin(self, kind: str, name: str, reason: str | None, at: int) -> int:
        sql = """
            INSERT INTO erasures (kind, name, reason, at_ms)
            VALUES (?, ?, ?, ?)
            ON CONFLICT (kind, name) DO UPDATE SET
                reason = coalesce(excluded.reason, erasures.reason),
                at_ms = excluded.at_ms,
                finished = 0
            RETURNING erasure_id
        """
        return int(self._run(sql, (kind, name, reason, at))[0][0])

    def of_blob(self, digest: bytes) -> Erasure | None:
        """Return the erasure that took the bytes of a blob, or None."""
        sql = """
            SELECT kind, name, reason, at_ms, finished
            FROM blobs b
                CROSS JOIN erased_blobs g ON g.blob_id = b.blob_id
                CROSS JOIN erasures e ON e.erasure_id = g.erasure_id
            WHERE hash = ?
        """
        rows = self._run(sql, (digest,))
        return _record(rows[0]) if rows else None

    def others(self, turn: int) -> list[bytes]:
        """Return the digests of what else says the same as a turn.

        That is each patch that is no tombstone, and each line of a session that became the turn,
        which that of a fork may spell otherwise.
        """
        sql = """
            SELECT hash
            FROM turn_patches
                CROSS JOIN blobs USING (blob_id)
            WHERE turn_id = ?1
            UNION
            SELECT hash
            FROM session_lines
                CROSS JOIN blobs USING (blob_id)
            WHERE turn_id = ?1
        """
        return [row[0] for row in self._run(sql, (turn,))]

    def blobs(self, number: int, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """Erase the bytes of blobs with an erasure, inside `write`.

        Each is a digest and what is shown in its place. Parts that no other blob has go too.
        """
        for digest, shown in gone:
            blob_id = self._db.blobs.row_id(digest)
            sql = "SELECT part_id FROM blob_parts WHERE blob_id = ?"
            parts = [row[0] for row in self._run(sql, (blob_id,))]
            self._run("DELETE FROM blob_parts WHERE blob_id = ?", (blob_id,))
            self._db.many(_DROP_PART, ((part,) for part in parts))
            self._empty(blob_id, shown)
            sql = "INSERT OR REPLACE INTO erased_blobs (blob_id, erasure_id) VALUES (?, ?)"
            self._run(sql, (blob_id, number))

    def _empty(self, blob_id: int, shown: bytes) -> None:
        sql = "UPDATE blobs SET codec = ?, stored_len = 0 WHERE blob_id = ?"
        self._run(sql, (GONE, blob_id))
        self._run("DELETE FROM blob_bytes WHERE blob_id = ?", (blob_id,))
        if shown:
            self._run(ADD_BYTES, (blob_id, shown))

    def keep(self, blob: ErasedCopy) -> bool:
        """Store a blob that was erased elsewhere; return False if its hash is here already."""
        with self._db.joined():
            now = self._db.milliseconds()
            blob_id = self._db.insert(ADD, (blob.digest, blob.size, 0, GONE, now))
            if blob_id is None:
                return False
            self._empty(blob_id, blob.shown)
            name = blob.digest.hex()
            number = self._begin("blob", name, blob.reason, blob.at)
            sql = "INSERT INTO erased_blobs (blob_id, erasure_id) VALUES (?, ?)"
            self._run(sql, (blob_id, number))
            self._run("UPDATE erasures SET finished = 1 WHERE erasure_id = ?", (number,))
            return True

    def finish(self, kind: str, name: str) -> None:
        """Note that nothing is left of what was erased."""
        with self._db.write():
            sql = "UPDATE erasures SET finished = 1 WHERE kind = ? AND name = ?"
            self._run(sql, (kind, name))

    def forget(self, kind: str, names: Iterable[str]) -> None:
        """Forget the erasures of some things of a kind."""
        with self._db.write():
            sql = "DELETE FROM erasures WHERE kind = ? AND name = ?"
            self._db.many(sql, [(kind, name) for name in names])

    def event(self, number: int, reason: str | None) -> list[int]:
        """Erase the content of an event; return the events whose content has changed.

        What was said of attempts at it goes too, also in the events that report its death. Raises
        ConflictError while a worker has leased it.
        """
        with self._db.write():
            leased = self._run(
                f"""
                SELECT consumer_id
                FROM unfinished
                    CROSS JOIN queues USING (queue_id)
                WHERE event_id = ? AND state = {LEASED} AND due_at > ?
                """,
                (number, self._db.milliseconds()),
            )
            if leased:
                raise ConflictError(
                    f"event {number} is leased by a worker of consumer '{leased[0][0]}'",
                    "erase it when that is done with it",
                    number,
                )
            self.begin("event", str(number), reason)
            event = self._db.events.get(number)
            if event is not None:
                shown = erased_content(event.type, event.content, event.subtype)
                self._db.events.rewrite(number, shown)
            self._run("DELETE FROM event_blob_refs WHERE event_id = ?", (number,))
            self._run("DELETE FROM open_questions WHERE event_id = ?", (number,))
            for queue, group in self._run(_GROUPS, (number,)):
                self._run(_RENAME, (f"{ERASED} {number}", queue, group))
            changed = [number, *self._erase_reports(number)]
            for one in changed:  # a report is an event as well, and attempts at it may say the same
                self.said(one)
            return changed

    def _erase_reports(self, number: int) -> Iterator[int]:
        """Erase what the reports of an event's death say of its attempts; yield their numbers."""
        events = self._db.events
        text, after, last = events.accept(_REPORTS), number, events.last()
        while after < last:
            found, after = events.page(text, after, last, _PAGE)
            for one in found:
                said = _report(one.content)
                if said.get("event_id") == number and said.get("error") is not None:
                    events.rewrite(one.id, writer()({**said, "error": ERASED}))
                    yield one.id

    def said(self, number: int) -> None:
        """Erase what was said of attempts at an event, and leave the event."""
        with self._db.write():
            for sql in _ERRORS:
                self._run(sql, (number, ERASED))

    def pieces(self) -> Iterator[tuple[str, list[tuple[int, int, int, bytes]]]]:
        """Yield what is stored in pieces, a few MiB at a time: the kind, and rows.

        A row is a number, the position of a piece, its codec and its bytes; pieces of one number
        follow one another. The kinds are `blob`, `long blob`, `artifact` and `open turn`.
        """
        if not self._db.has_memory():
            return
        for kind, sql in _PIECES.items():
            after = (0, 0) if kind == "blob" else (0, -1)
            while page := self._page(after, sql):
                after = page[-1][:2]
                yield kind, page

    def _page(self, after: tuple[int, ...], sql: str) -> list[tuple[Any, ...]]:
        """Return the next rows, until there is no room for more."""
        return self._db.some(sql, after, _ROOM)

    def place(self, kind: str, number: int) -> tuple[str, bytes] | None:
        """Return the name of what a number of `pieces` stands for, and its digest if it is a blob.

        That of an artifact is its scope, its number and its status. None if it is gone.
        """
        rows = self._run(_PLACES[kind.removeprefix("long ")], (number,))
        return (str(rows[0][0]), rows[0][1]) if rows else None


def _report(content: str) -> dict[str, Any]:
    """Return what a report says; nothing for one that is none."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _record(row: tuple[str, str, str | None, int, int]) -> Erasure:
    kind, name, reason, at_ms, finished = row
    return Erasure(kind, name, reason, at_ms, bool(finished))
