"""Contexts: heads that move over turns, and the log of their moves."""

from __future__ import annotations

from eventq.errors import ConflictError, UnknownContextError, UnknownTurnError
from eventq.records.turn import ContextInfo, Move
from eventq.store.rules import chain_conflict, head_conflict, name_conflict, run_conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.engine import Engine

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
# Contexts by id; a deleted one as its log has it, with the head that it had last.
_BORN = f"""
{_CONTEXT}
WHERE context_id > ?1
UNION ALL
SELECT context_id, NULL,
    coalesce(
        (
            SELECT old_id
            FROM context_log e
            WHERE e.context_id = l.context_id
            ORDER BY version DESC
            LIMIT 1
        ),
        0
    ),
    0, coalesce(new_id, 0), NULL, 0, 0, at_ms, at_ms
FROM context_log l
WHERE context_id > ?1 AND version = 0
ORDER BY context_id
LIMIT ?2
"""  # noqa: S608 (a constant)
# The appends since a turn, from each head that is newer down its log: those of a context rise.
_APPENDS_OF_HEADS = """
WITH RECURSIVE moves (context_id, version, op, new_id) AS (
    SELECT context_id, version + 1, CAST(NULL AS TEXT), CAST(NULL AS INTEGER)
    FROM contexts
    WHERE head_id > ?1
    UNION ALL
    SELECT l.context_id, l.version, l.op, l.new_id
    FROM moves m
        CROSS JOIN context_log l ON l.context_id = m.context_id AND l.version = m.version - 1
    WHERE m.op IS NOT 'append' OR m.new_id > ?1
)
SELECT new_id, context_id
FROM moves
WHERE op = 'append' AND new_id BETWEEN CAST(?1 AS INTEGER) + 1 AND ?2
"""
# Also those that no head leads to: of deleted contexts, and of heads that went back. It reads the
# whole log; an index on its turns would cost each append more than these few looks.
_APPENDS = """
SELECT new_id, context_id
FROM context_log
WHERE op = 'append' AND new_id BETWEEN CAST(?1 AS INTEGER) + 1 AND ?2
"""
# The turns that heads came to without an append, which an import has stored.
_CAME = """
WITH RECURSIVE up (context_id, base_id, turn_id, parent_id, jump_id) AS (
    SELECT context_id, coalesce(base_id, 0), turn_id, parent_id, jump_id
    FROM contexts
        CROSS JOIN turns ON turn_id = head_id
    WHERE head_id > ?1
    UNION ALL
    SELECT u.context_id, u.base_id, t.turn_id, t.parent_id, t.jump_id
    FROM up u
        CROSS JOIN turns t ON t.turn_id = CASE
            WHEN u.turn_id > ?2 AND u.jump_id > ?2 THEN u.jump_id
            ELSE u.parent_id
        END
    WHERE u.turn_id > ?1 AND u.turn_id > u.base_id
)
SELECT turn_id, min(context_id)
FROM up
WHERE turn_id BETWEEN CAST(?1 AS INTEGER) + 1 AND ?2 AND turn_id > base_id
GROUP BY turn_id
"""


class Contexts:
    """Heads that move over turns."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run
        self._one = db.one

    def create(self, name: str | None, base: int | None, fork_of: int | None) -> int:
        """Store a context at a turn, 0 for none; return its id.

        A fork begins at a turn of the other's chain, or with None at its head. Raises ConflictError
        for a name that is taken and a turn that is not on the chain, UnknownTurnError,
        UnknownContextError.
        """
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
                        WHEN CAST(?3 AS INTEGER) IS NULL
                            THEN (SELECT scope_id FROM scopes WHERE name = ?1)
                        ELSE (
                            SELECT coalesce(scope_id, context_id)
                            FROM contexts
                            WHERE context_id = ?3
                        )
                    END
                )
            """
            bindings = (name, base or None, fork_of, self._db.milliseconds())
            made = self._db.insert(sql, bindings)
            assert made is not None
            return made

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

    def born(self, after: int, limit: int) -> list[ContextInfo]:
        """Return the next contexts by id, deleted ones too, with the head that they had last.

        A deleted context has neither name nor origin any more.
        """
        return [ContextInfo(*row) for row in self._run(_BORN, (after, limit))]

    def appended(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Return the next turns by id, and the context that each came to, 0 for none.

        That is the context it was appended to, deleted or not; else the first one whose head came
        to it, as that of an import does.
        """
        sql = "SELECT turn_id FROM turns WHERE turn_id > ? ORDER BY turn_id LIMIT ?"
        turns = [row[0] for row in self._run(sql, (after, limit))]
        came: dict[int, int] = {}
        # From the heads where they are near; else each page would begin at them again.
        for statement in (_APPENDS_OF_HEADS, _APPENDS, _CAME)[len(turns) == limit :]:
            if len(came) < len(turns):
                came = dict(self._run(statement, (after, turns[-1]))) | came
        return [(turn, came.get(turn, 0)) for turn in turns]

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
        """Move a head and log it; return the new state of the context.

        The head of a run moves only with `run`. Raises ConflictError, with the actual head where
        it is not the `expected` one, UnknownContextError, UnknownTurnError.
        """
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
            self._db.later(sql, (to or None, version + 1, now, context_id))
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
        self._db.later(sql, (context_id, move.version, move.op, old, new, move.at_ms))

    def delete(self, context_id: int) -> None:
        """Delete a context; its turns stay, and its moves are kept.

        Raises ConflictError while turns of it are open, UnknownContextError.
        """
        with self._db.write():
            info = self.get(context_id)
            if info is None:
                raise UnknownContextError(context_id)
            if opened := self._db.open_turns.page(0, 1 << 32, context=context_id):
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
