"""Contexts in SQLite: heads that move over turns, and the log of their moves."""

from __future__ import annotations

from eventq.errors import ConflictError, UnknownContextError, UnknownTurnError
from eventq.records.turn import ContextInfo, Move
from eventq.storage.rules import chain_conflict, head_conflict, name_conflict, run_conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.storage.sqlite.database import Database

# The fields of `ContextInfo`.
_CONTEXT = """
SELECT context_id, name, coalesce(head_id, 0), coalesce(depth, 0), coalesce(base_id, 0), fork_of,
    version, c.flags, c.created_at_ms, updated_at_ms
FROM contexts c
    LEFT JOIN turns ON turn_id = head_id
"""
_GET = f"""
{_CONTEXT}
WHERE context_id = ?
"""
_PAGE = f"""
{_CONTEXT}
WHERE context_id > ?
ORDER BY context_id
LIMIT ?
"""


class Contexts:
    """The tables of contexts in one database."""

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
        self._run = db.run
        self._one = db.one

    def create(self, name: str | None, base: int | None, fork_of: int | None) -> int:
        """Store a context, by default at the head of `fork_of`; return its id; see `base`."""
        with self._db.write():
            if fork_of is not None:
                base = self._on_chain(base, self._stands(fork_of)[0])
            elif base:
                self._check_turn(base)
            if name is not None and (owner := self.named(name)) is not None:
                raise name_conflict(name, owner)
            sql = """
                INSERT INTO contexts (
                    name, head_id, base_id, fork_of, created_at_ms, updated_at_ms, scope_id
                )
                VALUES (
                    ?1, ?2, ?2, ?3, ?4, ?4,
                    CASE
                        WHEN ?3 IS NULL THEN (SELECT scope_id FROM scopes WHERE name = ?1)
                        ELSE (
                            SELECT coalesce(scope_id, context_id)
                            FROM contexts
                            WHERE context_id = ?3
                        )
                    END
                )
            """
            bindings = (name, base or None, fork_of, self._db.milliseconds())
            return self._db.turns.insert("contexts", sql, bindings)

    def _on_chain(self, base: int | None, head: int) -> int:
        """Return the turn that a fork begins at: `base`, if the chain has it, or the head."""
        if not base:
            return head if base is None else 0
        link = self._db.turns.link(base)
        if link is None:
            raise UnknownTurnError(base)
        if self._db.turns.ancestor(head, link.depth) != base:
            raise chain_conflict(base, head)
        return base

    def _check_turn(self, turn_id: int) -> None:
        if self._db.turns.link(turn_id) is None:
            raise UnknownTurnError(turn_id)

    def _stands(self, context_id: int) -> tuple[int, int]:
        """Return head (0 for none) and version of a context. Raises UnknownContextError."""
        sql = "SELECT coalesce(head_id, 0), version FROM contexts WHERE context_id = ?"
        rows = self._run(sql, (context_id,))
        if not rows:
            raise UnknownContextError(context_id)
        head, version = rows[0]
        return head, version

    # --- reading ----------------------------------------------------------------------------------

    def get(self, context_id: int) -> ContextInfo | None:
        """Return a context, or None."""
        rows = self._run(_GET, (context_id,))
        return ContextInfo(*rows[0]) if rows else None

    def head(self, context_id: int) -> int | None:
        """Return the newest turn of a context, 0 for none; None when there is no context."""
        sql = "SELECT coalesce(head_id, 0) FROM contexts WHERE context_id = ?"
        return self._one(sql, (context_id,))  # type: ignore[no-any-return]

    def named(self, name: str) -> int | None:
        """Return the id of the context of a name, or None."""
        return self._one("SELECT context_id FROM contexts WHERE name = ?", (name,))  # type: ignore[no-any-return]

    def page(self, after: int, limit: int) -> list[ContextInfo]:
        """Return the next contexts by id."""
        return [ContextInfo(*row) for row in self._run(_PAGE, (after, limit))]

    def history(self, context_id: int, after: int, limit: int) -> list[Move]:
        """Return the next moves of a head, of a deleted context too."""
        sql = """
            SELECT version, op, coalesce(old_id, 0), coalesce(new_id, 0), at_ms
            FROM context_log
            WHERE context_id = ? AND version > ?
            ORDER BY version
            LIMIT ?
        """
        return [Move(*row) for row in self._run(sql, (context_id, after, limit))]

    # --- moving -----------------------------------------------------------------------------------

    def move(
        self, context_id: int, to: int, op: str, *, expected: int | None = None, run: bool = False
    ) -> ContextInfo:
        """Move a head and log it; see `storage.base`."""
        with self._db.write():
            head, version = self._stands(context_id)
            if not run and self._run("SELECT 1 FROM runs WHERE context_id = ?", (context_id,)):
                raise run_conflict(context_id)
            if expected is not None and expected != head:
                raise head_conflict(context_id, head, expected)
            if to and to != head:
                self._check_turn(to)
            now = self._db.milliseconds()
            sql = """
                UPDATE contexts
                SET head_id = ?, version = ?, updated_at_ms = ?
                WHERE context_id = ?
            """
            self._run(sql, (to or None, version + 1, now, context_id))
            self._log(context_id, Move(version + 1, op, head, to, now))
            info = self.get(context_id)
            assert info is not None
            return info

    def _log(self, context_id: int, move: Move) -> None:
        sql = """
            INSERT INTO context_log (context_id, version, op, old_id, new_id, at_ms)
            VALUES (?, ?, ?, ?, ?, ?)
        """
        old, new = move.old_turn_id or None, move.new_turn_id or None
        self._run(sql, (context_id, move.version, move.op, old, new, move.at_ms))

    def delete(self, context_id: int) -> None:
        """Delete a context; its turns and moves stay; see `storage.base`."""
        with self._db.write():
            info = self.get(context_id)
            if info is None:
                raise UnknownContextError(context_id)
            if opened := self._db.open_turns.page(0, -1, context=context_id):
                raise ConflictError(
                    f"context {context_id} has turns that are still open ({len(opened)})",
                    "seal or discard them first",
                    opened[0].open_id,
                )
            born = Move(0, "create", 0, info.base_turn_id, info.created_at_ms)
            self._log(context_id, born)
            end = Move(info.version + 1, "delete", info.head_turn_id, 0, self._db.milliseconds())
            self._log(context_id, end)
            self._run("DELETE FROM contexts WHERE context_id = ?", (context_id,))
            self._db.wake_on_commit()  # for a run's, which a trigger has noted
