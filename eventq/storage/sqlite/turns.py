"""The SQL of turns, contexts, overlays, idempotency keys and open turns."""

from __future__ import annotations

from eventq.errors import DiskError, LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.storage.sqlite.database import Database

_COLUMNS = (
    "turn_id, coalesce(parent_id, 0), depth, type_id, type_version, encoding, flags, created_at_ms, canonical, blob_id"
)
# A turn as it is read: its own columns, then those of the newest overlay up to a seq, then those of the payload's blob.
_READ = (
    "SELECT c.turn_id, c.parent_id, c.depth, c.type_id, c.type_version, c.encoding, c.flags, c.created_at_ms,"
    " c.canonical, coalesce(p.seq, 0), b.blob_id, b.hash, b.raw_len, b.codec FROM chain c"
    " LEFT JOIN turn_patches p"
    " ON p.seq = (SELECT max(seq) FROM turn_patches q WHERE q.turn_id = c.turn_id AND q.seq <= ?2)"
    " LEFT JOIN blobs b ON b.blob_id = CASE WHEN p.seq IS NULL THEN c.blob_id ELSE p.blob_id END"
)
_CHAIN = (
    "WITH RECURSIVE chain (turn_id, parent_id, depth, type_id, type_version, encoding, flags, created_at_ms, canonical,"  # noqa: S608
    f" blob_id, left) AS (SELECT {_COLUMNS}, ?3 - 1 FROM turns WHERE turn_id = ?1 UNION ALL SELECT"
    " t.turn_id, coalesce(t.parent_id, 0), t.depth, t.type_id, t.type_version, t.encoding, t.flags, t.created_at_ms,"
    " t.canonical, t.blob_id, c.left - 1 FROM chain c CROSS JOIN turns t ON t.turn_id = c.parent_id WHERE c.left > 0) "
    + _READ
)
_OPEN = (
    "SELECT open_id, context_id, type_id, type_version, encoding, size, created_at_ms, updated_at_ms FROM open_turns"
)
_ANCESTOR = (
    "WITH RECURSIVE hop (turn_id, depth, parent_id, jump_id, jump_depth) AS ("
    "SELECT turn_id, depth, parent_id, jump_id, jump_depth FROM turns WHERE turn_id = ?1 UNION ALL"
    " SELECT t.turn_id, t.depth, t.parent_id, t.jump_id, t.jump_depth FROM hop h CROSS JOIN turns t"
    " ON t.turn_id = CASE WHEN h.jump_depth >= ?2 THEN h.jump_id ELSE h.parent_id END WHERE h.depth > ?2)"
    " SELECT turn_id FROM hop WHERE depth = ?2"
)
# Of a parent, and of where its jump goes: what the place of a child follows from.
_SPOT = "p.depth, p.jump_depth, j.jump_id, j.jump_depth"
_JUMP = "LEFT JOIN turns j ON j.turn_id = p.jump_id"
_CONTEXT = (
    "SELECT context_id, name, coalesce(head_id, 0), coalesce(depth, 0), coalesce(base_id, 0), fork_of, version,"
    " c.flags, c.created_at_ms, updated_at_ms FROM contexts c LEFT JOIN turns ON turn_id = head_id"
)


class TurnTable:
    """The tables of turns and contexts in one store."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self.database = db
        self._run = db.run
        self._one = db.one

    # --- turns ----------------------------------------------------------------------------------------------------

    def link(self, turn_id: int) -> tuple[int, int | None, int] | None:
        """Give parent (0 for none), jump and depth of a turn, or None."""
        rows = self._run("SELECT coalesce(parent_id, 0), jump_id, depth FROM turns WHERE turn_id = ?", (turn_id,))
        return rows[0] if rows else None

    def spot(self, turn_id: int) -> tuple[Any, ...] | None:
        """Give what a child's place follows from: depth and jump's depth, the jump's jump and its depth; or None."""
        rows = self._run(f"SELECT {_SPOT} FROM turns p {_JUMP} WHERE p.turn_id = ?", (turn_id,))  # noqa: S608
        return rows[0] if rows else None

    def spot_of_context(self, context_id: int) -> tuple[Any, ...] | None:
        """Give head (0 for none) and version of a context, whether it is a run's, then what `spot` says of the head."""
        sql = (
            "SELECT coalesce(head_id, 0), version, EXISTS (SELECT 1 FROM runs r WHERE r.context_id = c.context_id),"  # noqa: S608
            f" {_SPOT} FROM contexts c LEFT JOIN turns p ON p.turn_id = head_id {_JUMP} WHERE context_id = ?"
        )
        rows = self._run(sql, (context_id,))
        return rows[0] if rows else None

    def add(self, *row: Any, turn_id: int | None = None) -> int:
        """Store a turn, given as its columns after the id, and give its id: the next one unless it is given."""
        sql = (
            "INSERT INTO turns (turn_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag,"
            " encoding, canonical, blob_id, flags, created_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return self._insert("turns", sql, (turn_id, *row))

    def _insert(self, table: str, sql: str, bindings: tuple[Any, ...]) -> int:
        """Store a row whose id counts on, and give the id."""
        try:
            self._run(sql, bindings)
        except DiskError as error:
            sql = "SELECT seq FROM sqlite_sequence WHERE name = ?"  # past the store: it knows that all is undone
            if self.database.connection.execute(sql, (table,)).fetchall() == [((1 << 63) - 1,)]:
                raise LogicError(
                    f"the store has given the last id that there is in {table}, 2^63-1", "export what is needed"
                ) from error  # SQLite says that it is full
            raise
        return self.database.connection.last_insert_rowid()

    def last_id(self) -> int:
        """Give the id of the newest turn there ever was, 0 when there was none."""
        return self._one("SELECT seq FROM sqlite_sequence WHERE name = 'turns'") or 0

    def chain(self, turn_id: int, count: int, upto: int) -> list[Any]:
        """Give a turn and those above it, `count` in all, newest first, with overlays up to a seq.

        Columns: turn_id, parent_id, depth, type_id, type_version, encoding, flags, created_at_ms, canonical, seq, then
        blob_id, hash, raw_len and codec of the payload, None each for a tombstone.
        """
        return self._run(_CHAIN, (turn_id, upto, count))

    def ancestor(self, turn_id: int, depth: int) -> int | None:
        """Give the turn at a depth at or above a turn, in a number of steps that grows with the logarithm."""
        return self._one(_ANCESTOR, (turn_id, depth))  # type: ignore[no-any-return]

    def flagged(self, turn_id: int, flag: int) -> tuple[int, int] | None:
        """Give id and depth of the nearest turn at or above one that has a flag, or None."""
        sql = (
            "WITH RECURSIVE up (turn_id, parent_id, depth, flags) AS ("
            "SELECT turn_id, parent_id, depth, flags FROM turns WHERE turn_id = ?1 UNION ALL"
            " SELECT t.turn_id, t.parent_id, t.depth, t.flags FROM up u CROSS JOIN turns t ON t.turn_id = u.parent_id"
            " WHERE u.flags & ?2 = 0) SELECT turn_id, depth FROM up WHERE flags & ?2 LIMIT 1"
        )
        rows = self._run(sql, (turn_id, flag))
        return rows[0] if rows else None

    def children(self, turn_id: int, limit: int) -> list[int]:
        """Give the ids of the first turns whose parent is this one."""
        sql = "SELECT turn_id FROM turns WHERE parent_id = ? ORDER BY turn_id LIMIT ?"
        return [row[0] for row in self._run(sql, (turn_id, limit))]

    # --- overlays -------------------------------------------------------------------------------------------------

    def add_patch(self, turn_id: int, blob_id: int | None, flags: int, now: int) -> int:
        """Store an overlay and give its seq."""
        sql = "INSERT INTO turn_patches (turn_id, blob_id, flags, created_at_ms) VALUES (?, ?, ?, ?)"
        return self._insert("turn_patches", sql, (turn_id, blob_id, flags, now))

    def last_seq(self) -> int:
        """Give the seq of the newest overlay there ever was, 0 when there was none."""
        return self._one("SELECT seq FROM sqlite_sequence WHERE name = 'turn_patches'") or 0

    # --- contexts -------------------------------------------------------------------------------------------------

    def add_context(self, name: str | None, base: int | None, fork_of: int | None, now: int) -> int:
        """Store a context whose head is `base`, and give its id."""
        sql = (
            "INSERT INTO contexts (name, head_id, base_id, fork_of, created_at_ms, updated_at_ms)"
            " VALUES (?1, ?2, ?2, ?3, ?4, ?4)"
        )
        return self._insert("contexts", sql, (name, base, fork_of, now))

    def context(self, context_id: int) -> tuple[Any, ...] | None:
        """Give the row of a context, as the fields of `ContextInfo`, or None."""
        rows = self._run(f"{_CONTEXT} WHERE context_id = ?", (context_id,))
        return rows[0] if rows else None

    def named(self, name: str) -> int | None:
        """Give the id of the context of a name, or None."""
        return self._one("SELECT context_id FROM contexts WHERE name = ?", (name,))  # type: ignore[no-any-return]

    def contexts(self, after: int, limit: int) -> list[Any]:
        """Give the rows of the next contexts, by id."""
        return self._run(f"{_CONTEXT} WHERE context_id > ? ORDER BY context_id LIMIT ?", (after, limit))

    def head(self, context_id: int) -> tuple[int, int] | None:
        """Give head (0 for none) and version of a context, or None."""
        rows = self._run("SELECT coalesce(head_id, 0), version FROM contexts WHERE context_id = ?", (context_id,))
        return rows[0] if rows else None

    def is_run(self, context_id: int) -> bool:
        """Say whether a context is that of a run."""
        return bool(self._run("SELECT 1 FROM runs WHERE context_id = ?", (context_id,)))

    def move(self, context_id: int, version: int, op: str, old: int, new: int, now: int) -> None:
        """Move a head and log it; `version` is the one that the context has after it."""
        sql = "UPDATE contexts SET head_id = ?, version = ?, updated_at_ms = ? WHERE context_id = ?"
        self._run(sql, (new or None, version, now, context_id))
        self.log(context_id, version, op, old, new, now)

    def log(self, context_id: int, version: int, op: str, old: int, new: int, now: int) -> None:
        """Log a move."""
        sql = "INSERT INTO context_log (context_id, version, op, old_id, new_id, at_ms) VALUES (?, ?, ?, ?, ?, ?)"
        self._run(sql, (context_id, version, op, old or None, new or None, now))

    def moves(self, context_id: int, after: int, limit: int) -> list[Any]:
        """Give version, op, old, new and time of the next moves of a context."""
        sql = (
            "SELECT version, op, coalesce(old_id, 0), coalesce(new_id, 0), at_ms FROM context_log"
            " WHERE context_id = ? AND version > ? ORDER BY version LIMIT ?"
        )
        return self._run(sql, (context_id, after, limit))

    def drop_context(self, context_id: int) -> None:
        """Delete the row of a context; its moves stay."""
        self._run("DELETE FROM contexts WHERE context_id = ?", (context_id,))

    # --- keys -----------------------------------------------------------------------------------------------------

    def key(self, context_id: int, key: str, since: int) -> tuple[int, bytes] | None:
        """Give turn and digest of an append with a key since a time, or None."""
        sql = "SELECT turn_id, digest FROM turn_keys WHERE context_id = ? AND key = ? AND created_at_ms >= ?"
        rows = self._run(sql, (context_id, key, since))
        return rows[0] if rows else None

    def set_key(self, context_id: int, key: str, turn_id: int, digest: bytes, now: int, since: int) -> None:
        """Note an append with a key, and forget two that have expired, if there are any."""
        self._run(
            "DELETE FROM turn_keys WHERE number IN (SELECT number FROM turn_keys ORDER BY number LIMIT 2)"
            " AND created_at_ms < ?",
            (since,),
        )
        sql = (
            "INSERT OR REPLACE INTO turn_keys (context_id, key, turn_id, digest, created_at_ms) VALUES (?, ?, ?, ?, ?)"
        )
        self._run(sql, (context_id, key, turn_id, digest, now))

    # --- open turns -----------------------------------------------------------------------------------------------

    def open(self, context_id: int, type_id: str, version: int, encoding: int, now: int) -> int:
        """Begin an open turn and give its id."""
        sql = (
            "INSERT INTO open_turns (context_id, type_id, type_version, encoding, created_at_ms, updated_at_ms)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?5)"
        )
        return self._insert("open_turns", sql, (context_id, type_id, version, encoding, now))

    def opened(self, context_id: int | None = None) -> list[Any]:
        """Give the rows of open turns, as the fields of `OpenInfo`: of a context, or all."""
        if context_id is None:
            return self._run(f"{_OPEN} ORDER BY open_id")
        return self._run(f"{_OPEN} WHERE context_id = ? ORDER BY open_id", (context_id,))

    def open_row(self, open_id: int) -> tuple[Any, ...] | None:
        """Give the row of an open turn, or None."""
        rows = self._run(f"{_OPEN} WHERE open_id = ?", (open_id,))
        return rows[0] if rows else None

    def add_delta(self, open_id: int, data: bytes | memoryview, now: int, piece_bytes: int) -> int | None:
        """Append bytes to an open turn, filling its last piece up first; give its size, or None when there is none."""
        sql = "UPDATE open_turns SET size = size + ?, updated_at_ms = ? WHERE open_id = ? RETURNING size"
        size = self._one(sql, (len(data), now, open_id))
        if size is None:
            return None
        sql = "SELECT position, length(bytes) FROM open_pieces WHERE open_id = ? ORDER BY position DESC LIMIT 1"
        position, held = (self._run(sql, (open_id,)) or [(-1, piece_bytes)])[0]
        if held + len(data) <= piece_bytes:
            sql = "UPDATE open_pieces SET bytes = CAST(bytes || ? AS BLOB) WHERE open_id = ? AND position = ?"
            self._run(sql, (data, open_id, position))
        else:
            sql = "INSERT INTO open_pieces (open_id, position, bytes) VALUES (?, ?, ?)"
            self._run(sql, (open_id, position + 1, data))
        return int(size)

    def piece(self, open_id: int, position: int) -> bytes | None:
        """Give a piece of an open turn, or None after the last."""
        sql = "SELECT bytes FROM open_pieces WHERE open_id = ? AND position = ?"
        return self._one(sql, (open_id, position))  # type: ignore[no-any-return]

    def close(self, open_id: int) -> bool:
        """Forget an open turn; give False when there is none."""
        self._run("DELETE FROM open_turns WHERE open_id = ?", (open_id,))
        return bool(self.database.connection.changes())

    # --- faults ---------------------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Say what is wrong with turns, contexts and what hangs on them, a sentence each, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


_FAULTS = (
    (
        "SELECT 'turn ' || t.turn_id || ' has depth ' || t.depth || ', and its parent ' || p.depth FROM turns t"
        " JOIN turns p ON p.turn_id = t.parent_id WHERE t.depth <> p.depth + 1 LIMIT 20"
    ),
    (  # The jump of a turn goes to its parent, or to where its parent's jump jumps, where both span the same.
        "SELECT 'turn ' || t.turn_id || ' jumps to ' || t.jump_id || ', not to ' || CASE WHEN p.depth - j.depth ="
        " j.depth - k.depth THEN k.turn_id ELSE p.turn_id END FROM turns t JOIN turns p ON p.turn_id = t.parent_id"
        " LEFT JOIN turns j ON j.turn_id = p.jump_id LEFT JOIN turns k ON k.turn_id = j.jump_id WHERE t.jump_id <> CASE"
        " WHEN p.depth - j.depth = j.depth - k.depth THEN k.turn_id ELSE p.turn_id END LIMIT 20"
    ),
    (
        "SELECT 'turn ' || t.turn_id || ' says that turn ' || t.jump_id || ' has depth ' || t.jump_depth FROM turns t"
        " LEFT JOIN turns j ON j.turn_id = t.jump_id WHERE t.jump_id IS NOT NULL AND t.jump_depth IS NOT j.depth"
        " LIMIT 20"
    ),
    "SELECT 'turn ' || turn_id || ' has an id below 1' FROM turns WHERE turn_id < 1 LIMIT 20",
    # What the table's own checks refuse: a reader's integrity check does not look at them.
    "SELECT 'turn ' || turn_id || ' is not later than its parent' FROM turns WHERE parent_id >= turn_id LIMIT 20",
    (
        "SELECT 'turn ' || turn_id || ' has depth ' || depth || ', and parent and jump of another' FROM turns"
        " WHERE (parent_id IS NULL) <> (depth = 0) OR (jump_id IS NULL) <> (depth = 0) OR (jump_depth IS NULL) <>"
        " (depth = 0) OR depth NOT BETWEEN 0 AND 4294967295 LIMIT 20"
    ),
    (
        "SELECT 'context ' || context_id || ' has version ' || version || ', and its newest move is ' || last FROM"
        " (SELECT context_id, version, coalesce((SELECT max(version) FROM context_log l"
        " WHERE l.context_id = c.context_id), 0) AS last FROM contexts c) WHERE version <> last LIMIT 20"
    ),
    (
        "SELECT 'context ' || c.context_id || ' stands at turn ' || coalesce(head_id, 0) || ', and its newest move went"
        " to ' || coalesce(new_id, 0) FROM contexts c JOIN context_log l ON l.context_id = c.context_id AND l.version ="
        " c.version WHERE coalesce(head_id, 0) <> coalesce(new_id, 0) LIMIT 20"
    ),
    (
        "SELECT 'open turn ' || open_id || ' has ' || size || ' bytes, and its pieces ' || held FROM (SELECT open_id,"
        " size, (SELECT coalesce(sum(length(bytes)), 0) FROM open_pieces p WHERE p.open_id = o.open_id) AS held"
        " FROM open_turns o) WHERE size <> held LIMIT 20"
    ),
    (
        "SELECT 'key ''' || key || ''' of context ' || context_id || ' names turn ' || turn_id || ', which is not"
        " stored' FROM turn_keys k WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.turn_id = k.turn_id) LIMIT 20"
    ),
    (
        "SELECT 'a row of ' || \"table\" || ' refers to a row of ' || parent || ' that is not there'"
        " FROM pragma_foreign_key_check LIMIT 20"
    ),
)
