"""Growing byte sequences: open turns and artifacts, in pieces."""

from __future__ import annotations

from eventq.records.turn import OpenInfo
from eventq.store.output_rows import ArtifactRow
from eventq.store.scopes import count_on, pass_by
from eventq.store.turn_rows import StreamPiece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.store.engine import Engine
    from eventq.store.turn_rows import Ending, Growth

JOINED_BYTES = 4096  # up to here deltas fill one row: a page is written for each anyway
COUNTER = "artifact"

_NO_LIMIT = (1 << 63) - 1


class _Streams:
    """Growing byte sequences: the operations that open turns and artifacts share.

    A stream is open until it ends. Its pieces are durable once `append` has returned outside of
    `write`. An open stream can be read by others, and one whose writer has died is still there.
    """

    def __init__(self, db: Engine) -> None:
        self._db = db
        self._run = db.run

    def _read(self, sql: str, number: int, position: int, room: int) -> list[StreamPiece]:
        """Return consecutive pieces until they hold `room` bytes."""
        pieces: list[StreamPiece] = []
        for row in self._db.some(sql, (number, position), room):
            if row[0] != position + len(pieces):
                break
            pieces.append(StreamPiece._make(row))
        return pieces


# One statement for the look and the change takes longer than two, whether it is an upsert, an
# UPDATE with a subquery or one that RETURNING answers.
_LAST = """
SELECT position, length(bytes)
FROM open_pieces
WHERE open_id = ?
ORDER BY position DESC
LIMIT 1
"""
_JOIN = """
UPDATE open_pieces
SET bytes = CAST(bytes || ? AS BLOB)
WHERE open_id = ? AND position = ?
"""
_ADD = "INSERT INTO open_pieces (open_id, position, bytes) VALUES (?, ?, ?)"


class OpenTurns(_Streams):
    """Open turns, which are still being written. Any caller that has the number can continue one.

    Their pieces are the bytes themselves. Ending one drops it: its payload is a blob by then.
    """

    def create(self, context: int, type_id: str, type_version: int, encoding: int) -> int | None:
        """Begin an open turn and return its number; None where there is no context, or a run's."""
        sql = """
            INSERT INTO open_turns (
                context_id, type_id, type_version, encoding, created_at_ms, updated_at_ms
            )
            VALUES (?1, ?2, ?3, ?4, ?5, ?5)
        """
        # Not in one statement with the other, which would count on where it inserts nothing.
        fits = """
            SELECT 1
            FROM contexts
            WHERE context_id = ?1
                AND NOT EXISTS (SELECT 1 FROM runs WHERE context_id = ?1)
        """
        bindings = (context, type_id, type_version, encoding, self._db.milliseconds())
        with self._db.write():
            found = self._run(fits, (context,))
            return self._db.insert(sql, bindings) if found else None

    def get(self, number: int) -> OpenInfo | None:
        """Return the state of an open turn, or None."""
        sql = """
            SELECT open_id, context_id, type_id, type_version, encoding, size, created_at_ms,
                updated_at_ms
            FROM open_turns
            WHERE open_id = ?
        """
        rows = self._run(sql, (number,))
        return OpenInfo(*rows[0]) if rows else None

    def page(self, after: int, limit: int, *, context: int | None = None) -> list[OpenInfo]:
        """Return the next open turns by number, of a context or all."""
        if context is None:
            sql = """
                SELECT open_id, context_id, type_id, type_version, encoding, size, created_at_ms,
                    updated_at_ms
                FROM open_turns
                WHERE open_id > ?
                ORDER BY open_id
                LIMIT ?
            """
            return [OpenInfo(*row) for row in self._run(sql, (after, limit))]
        sql = """
            SELECT open_id, context_id, type_id, type_version, encoding, size, created_at_ms,
                updated_at_ms
            FROM open_turns
            WHERE context_id = ? AND open_id > ?
            ORDER BY open_id
            LIMIT ?
        """
        return [OpenInfo(*row) for row in self._run(sql, (context, after, limit))]

    def append(
        self,
        number: int,
        growth: Growth,
        *,
        owner: str | None = None,  # noqa: ARG002 (an open turn has none)
        was: int | None = None,
        most: int | None = None,
    ) -> int | None:
        """Add pieces, small ones to the last one; return the size, or None for no such turn."""
        sql = """
            UPDATE open_turns
            SET size = size + ?1, updated_at_ms = ?2
            WHERE open_id = ?3 AND size = coalesce(?4, size) AND size + ?1 <= ?5
            RETURNING size
        """
        bindings = (growth.size, self._db.milliseconds(), number, was, most or _NO_LIMIT)
        with self._db.write():
            rows = self._run(sql, bindings)
            if rows and growth.pieces:
                self._put(number, growth.pieces)
        return rows[0][0] if rows else None

    def _put(self, number: int, pieces: tuple[StreamPiece, ...]) -> None:
        """Add pieces after the last one, or join a single one to it while that is small.

        To rewrite a piece of a MiB costs 1.9 ms a delta; a row for each delta makes 50,000 rows of
        a MiB to read.
        """
        position, held = (self._run(_LAST, (number,)) or [(-1, JOINED_BYTES)])[0]
        if len(pieces) == 1 and held + len(pieces[0].stored) <= JOINED_BYTES:
            self._run(_JOIN, (pieces[0].stored, number, position))
            return
        for place, piece in enumerate(pieces, position + 1):
            self._run(_ADD, (number, place, piece.stored))

    def read(self, number: int, position: int, room: int) -> list[StreamPiece]:
        """Return consecutive pieces from a position on until they hold `room` bytes."""
        sql = """
            SELECT position, 0, bytes
            FROM open_pieces
            WHERE open_id = ? AND position >= ?
            ORDER BY position
        """
        return self._read(sql, number, position, room)

    def find_line(self, number: int, newline: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the beginning: the lines of open turns are not counted."""
        return 0, 0

    def end(
        self,
        number: int,
        ending: Ending,  # noqa: ARG002 (however it ends, it is dropped)
        growth: Growth | None = None,  # noqa: ARG002 (so is what it would end with)
        *,
        owner: str | None = None,  # noqa: ARG002
        was: int | None = None,
    ) -> OpenInfo | None:
        """Drop an open turn and return what it was; None for no such turn, or another size."""
        sql = f"""
            DELETE FROM open_turns
            WHERE open_id = ?1 AND size = coalesce(?2, size) AND {self._db.schema_guard}
            RETURNING open_id, context_id, type_id, type_version, encoding, size, created_at_ms,
                updated_at_ms
        """  # noqa: S608 (a constant)
        rows = self._db.change(sql, (number, was))
        return OpenInfo(*rows[0]) if rows else None

    def faults(self) -> list[str]:
        """Return a sentence for each open turn whose size is not that of its pieces."""
        return [row[0] for row in self._run(_SIZE_FAULTS)]


_SIZE_FAULTS = """
SELECT 'open turn ' || open_id || ' has ' || size || ' bytes, and its pieces ' || held
FROM (
    SELECT open_id, size,
        (
            SELECT coalesce(sum(length(bytes)), 0)
            FROM open_pieces p
            WHERE p.open_id = o.open_id
        ) AS held
    FROM open_turns o
)
WHERE size <> held
LIMIT 20
"""


class Artifacts(_Streams):
    """Numbered outputs of tools; each is written by its owner only, and stays when it has ended.

    A piece that is appended at the last position replaces that one, which was not full. All are
    those of one scope, which is the thread's unless `of` was called.
    """

    def __init__(self, db: Engine, scope: int = 0) -> None:
        """Use the statements and transactions of an engine."""
        super().__init__(db)
        self._scope = scope

    def of(self, scope: int) -> Artifacts:
        """Return the artifacts of another scope."""
        return Artifacts(self._db, scope)

    def create(
        self, tool: str, owner: str, *, number: int | None = None, at: int | None = None
    ) -> int:
        """Begin an artifact and return its number: the next one, unless it is given.

        No number is given twice. `at` is the time that it began at, unless that is now.
        """
        sql = """
            INSERT INTO artifacts (scope_id, number, tool, status, owner, created_at_ms)
            VALUES (?, ?, ?, 'open', ?, ?)
        """
        with self._db.write():
            if number is None:
                number = count_on(self._db, self._scope, COUNTER)
            else:
                self.reserve(number)
            at = self._db.milliseconds() if at is None else at
            self._run(sql, (self._scope, number, tool, owner, at))
        return number

    def get(self, number: int) -> ArtifactRow | None:
        """Return the state of an artifact, or None."""
        sql = """
            SELECT number, tool, status, owner, size, lines, hash, error, created_at_ms,
                ended_at_ms
            FROM artifacts
            WHERE scope_id = ? AND number = ?
        """
        rows = self._rows(sql, (self._scope, number))
        return rows[0] if rows else None

    def _rows(self, sql: str, bindings: tuple[Any, ...]) -> list[ArtifactRow]:
        return [ArtifactRow._make(row) for row in self._run(sql, bindings)]

    def page(self, after: int, limit: int, *, status: str | None = None) -> list[ArtifactRow]:
        """Return the next artifacts by number, with a status or all; -1 begins."""
        sql = """
            SELECT number, tool, status, owner, size, lines, hash, error, created_at_ms,
                ended_at_ms
            FROM artifacts
            WHERE scope_id = ?1 AND number > ?2 AND status = coalesce(?4, status)
            ORDER BY number
            LIMIT ?3
        """
        return self._rows(sql, (self._scope, after, limit, status))

    def count(self, *, status: str | None = None) -> int:
        """Return the number of artifacts, with a status or all."""
        sql = """
            SELECT count(*)
            FROM artifacts
            WHERE scope_id = ?1 AND status = coalesce(?2, status)
        """
        if status is None:
            sql = "SELECT count(*) FROM artifacts WHERE scope_id = ?1"
            return int(self._db.one(sql, (self._scope,)))
        return int(self._db.one(sql, (self._scope, status)))

    def alike(self, tool: str, size: int, digest: bytes) -> list[ArtifactRow]:
        """Return the artifacts of a tool and size that have a digest, or none yet, by number."""
        sql = """
            SELECT number, tool, status, owner, size, lines, hash, error, created_at_ms,
                ended_at_ms
            FROM artifacts
            WHERE scope_id = ? AND tool = ? AND size = ? AND (hash = ? OR hash IS NULL)
            ORDER BY number
        """
        return self._rows(sql, (self._scope, tool, size, digest))

    def is_unused(self, number: int) -> bool:
        """Return whether a number was never given."""
        sql = """
            SELECT NOT EXISTS (SELECT 1 FROM artifacts WHERE scope_id = ?1 AND number = ?2)
                AND NOT EXISTS (
                    SELECT 1
                    FROM removed_artifacts
                    WHERE scope_id = ?1 AND number = ?2
                )
        """
        return bool(self._db.one(sql, (self._scope, number)))

    def reserve(self, number: int) -> None:
        """Reserve all numbers up to this one."""
        pass_by(self._db, self._scope, [(COUNTER, number)])

    def remove(self, number: int) -> bool:
        """Delete an artifact; its number is not given again. Return False when there is none."""
        sql = """
            DELETE FROM artifacts
            WHERE scope_id = ? AND number = ?
            RETURNING 1
        """
        used = """
            INSERT OR IGNORE INTO removed_artifacts (scope_id, number, removed_at_ms)
            VALUES (?, ?, ?)
        """
        with self._db.write():
            found = bool(self._run(sql, (self._scope, number)))
            if found:
                self._run(used, (self._scope, number, self._db.milliseconds()))
        return found

    def append(
        self,
        number: int,
        growth: Growth,
        *,
        owner: str | None = None,
        was: int | None = None,
        most: int | None = None,
    ) -> int | None:
        """Add chunks to an open artifact of an owner; return the size, or None for no such one."""
        sql = """
            UPDATE artifacts
            SET size = size + ?1, lines = ?2
            WHERE scope_id = ?7
                AND number = ?3
                AND status = 'open'
                AND owner IS ?4
                AND size = coalesce(?5, size)
                AND size + ?1 <= ?6
            RETURNING size, artifact_id
        """
        most = most or _NO_LIMIT
        bindings = (growth.size, growth.lines, number, owner, was, most, self._scope)
        with self._db.write():
            rows = self._run(sql, bindings)
            if rows:
                self._put(rows[0][1], growth)
        return rows[0][0] if rows else None

    def _put(self, row_id: int, growth: Growth) -> None:
        if growth.pieces:
            self._db.many(_PUT, ((row_id, *piece) for piece in growth.pieces))

    def _row_id(self, number: int) -> int | None:
        sql = "SELECT artifact_id FROM artifacts WHERE scope_id = ? AND number = ?"
        return self._db.one(sql, (self._scope, number))  # type: ignore[no-any-return]

    def read(self, number: int, position: int, room: int) -> list[StreamPiece]:
        """Return consecutive chunks from a position on until they hold `room` bytes."""
        sql = """
            SELECT position, newlines, bytes
            FROM artifact_chunks
            WHERE artifact_id = ? AND position >= ?
            ORDER BY position
        """
        row_id = self._row_id(number)
        return [] if row_id is None else self._read(sql, row_id, position, room)

    def find_line(self, number: int, newline: int) -> tuple[int, int]:
        """Return the chunk that holds the n-th newline, or the last one, and those before it."""
        sql = """
            SELECT position, newlines
            FROM artifact_chunks
            WHERE artifact_id = ? AND newlines < ?
            ORDER BY newlines DESC, position DESC
            LIMIT 1
        """
        rows = self._run(sql, (self._row_id(number), newline))
        return rows[0] if rows else (0, 0)

    def end(
        self,
        number: int,
        ending: Ending,
        growth: Growth | None = None,
        *,
        owner: str | None = None,
        was: int | None = None,
    ) -> ArtifactRow | None:
        """End an open artifact of an owner, after a last growth; return it, None for no such."""
        size, lines = (0, None) if growth is None else growth[:2]
        now = self._db.milliseconds()
        with self._db.write():
            bindings = (*ending, now, number, owner, was, size, lines, self._scope)
            rows = self._run(_END, bindings)
            if rows and growth is not None:
                self._put(rows[0][0], growth)
        return ArtifactRow._make(rows[0][1:]) if rows else None


_PUT = """
INSERT INTO artifact_chunks (artifact_id, position, newlines, bytes)
VALUES (?, ?, ?, ?)
ON CONFLICT (artifact_id, position) DO UPDATE SET bytes = excluded.bytes
"""
# Only its writer ends an artifact, as large as it has left it: owner and size are compared.
_END = """
UPDATE artifacts
SET
    status = ?1,
    hash = ?2,
    error = ?3,
    ended_at_ms = ?4,
    owner = NULL,
    size = size + ?8,
    lines = coalesce(?9, lines)
WHERE scope_id = ?10
    AND number = ?5
    AND status = 'open'
    AND owner IS ?6
    AND size = coalesce(?7, size)
RETURNING artifact_id, number, tool, status, owner, size, lines, hash, error, created_at_ms,
    ended_at_ms
"""
