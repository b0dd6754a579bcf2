"""Turns: append them, read chains, patches and roots."""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found]  # the package costs 1 ms
from _operator import itemgetter

from eventq.errors import UnknownContextError, UnknownTurnError
from eventq.store.blobs import ADD, ADD_BYTES, ADD_REFS
from eventq.store.rules import (
    KEY_MS,
    event_of,
    head_conflict,
    key_conflict,
    link,
    open_conflict,
    run_conflict,
)
from eventq.store.turn_rows import Ending, Link, TurnRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from eventq.store.engine import Engine
    from eventq.store.turn_rows import AppendTo, PreparedBlob, PreparedTurn

_LATEST = (1 << 63) - 1  # as the number of a patch: all there are
_MOST_TURNS = 1 << 32  # in a chain
_depth = itemgetter(2)
_row: Callable[[Any], TurnRow] = partial(tuple.__new__, TurnRow)  # `_make` costs 3 x

# Both begin what `_PATCHED` ends: a `TurnRow` has its own columns, the newest patch up to a number,
# and the payload's blob, last its id.
_CHAIN = """
WITH RECURSIVE chain (
    turn_id, parent_id, depth, type_id, type_version, encoding, flags, created_at_ms, canonical,
    blob_id, more
) AS (
    SELECT turn_id, coalesce(parent_id, 0), depth, type_id, type_version, encoding, flags,
        created_at_ms, canonical, blob_id, CAST(?3 AS INTEGER) - 1
    FROM turns
    WHERE turn_id = ?1
    UNION ALL
    SELECT t.turn_id, coalesce(t.parent_id, 0), t.depth, t.type_id, t.type_version, t.encoding,
        t.flags, t.created_at_ms, t.canonical, t.blob_id, c.more - 1
    FROM chain c
        CROSS JOIN turns t ON t.turn_id = c.parent_id
    WHERE c.more > 0
)"""
_NEWEST = """
WITH chain AS (
    SELECT turn_id, coalesce(parent_id, 0) AS parent_id, depth, type_id, type_version, encoding,
        flags, created_at_ms, canonical, blob_id
    FROM turns
    WHERE turn_id < ?1
    ORDER BY turn_id DESC
    LIMIT ?3
)"""
_PATCHED = """
SELECT c.turn_id, c.parent_id, c.depth, c.type_id, c.type_version, c.encoding, c.flags,
    c.created_at_ms, c.canonical, coalesce(p.seq, 0), b.hash, coalesce(b.raw_len, 0),
    coalesce(b.codec, 0), b.blob_id
FROM chain c
    LEFT JOIN turn_patches p ON p.seq = (
        SELECT max(seq)
        FROM turn_patches q
        WHERE q.turn_id = c.turn_id AND q.seq <= ?2
    )
    LEFT JOIN blobs b ON b.blob_id = CASE WHEN p.seq IS NULL THEN c.blob_id ELSE p.blob_id END
"""
# Up by jumps, which span as much as the chain above them allows, until they would go too far.
_ANCESTOR = """
WITH RECURSIVE hop (turn_id, depth, parent_id, jump_id, jump_depth) AS (
    SELECT turn_id, depth, parent_id, jump_id, jump_depth
    FROM turns
    WHERE turn_id = ?1
    UNION ALL
    SELECT t.turn_id, t.depth, t.parent_id, t.jump_id, t.jump_depth
    FROM hop h
        CROSS JOIN turns t ON t.turn_id = CASE
            WHEN h.jump_depth >= ?2 THEN h.jump_id
            ELSE h.parent_id
        END
    WHERE h.depth > ?2
)
SELECT turn_id
FROM hop
WHERE depth = ?2
"""
# What the link of a child follows from: its parent, and where the jump of that goes.
_SPOT = """
SELECT p.depth, p.jump_depth, j.jump_id, j.jump_depth
FROM turns p
    LEFT JOIN turns j ON j.turn_id = p.jump_id
WHERE p.turn_id = ?
"""
# Head, version, whether it is a run's, turn and digest of the key, what `_SPOT` gives of the head.
_STATE = """
SELECT coalesce(head_id, 0), version,
    EXISTS (SELECT 1 FROM runs r WHERE r.context_id = c.context_id),
    NULL, NULL, p.depth, p.jump_depth, j.jump_id, j.jump_depth
FROM contexts c
    LEFT JOIN turns p ON p.turn_id = head_id
    LEFT JOIN turns j ON j.turn_id = p.jump_id
WHERE c.context_id = ?
"""
_STATE_WITH_KEY = """
SELECT coalesce(head_id, 0), version,
    EXISTS (SELECT 1 FROM runs r WHERE r.context_id = c.context_id),
    k.turn_id, k.digest, p.depth, p.jump_depth, j.jump_id, j.jump_depth
FROM contexts c
    LEFT JOIN turns p ON p.turn_id = head_id
    LEFT JOIN turns j ON j.turn_id = p.jump_id
    LEFT JOIN turn_keys k ON k.context_id = c.context_id AND k.key = ?2 AND k.created_at_ms >= ?3
WHERE c.context_id = ?1
"""
_ADD = """
INSERT INTO turns (
    parent_id, depth, jump_id, jump_depth, type_id, type_version, encoding, canonical, blob_id,
    flags, created_at_ms
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_MOVE = "UPDATE contexts SET head_id = ?, version = ?, updated_at_ms = ? WHERE context_id = ?"
_LOG = """
INSERT INTO context_log (context_id, version, op, old_id, new_id, at_ms)
VALUES (?, ?, 'append', ?, ?, ?)
"""
# Two that have expired, if there are any.
_FORGET_KEYS = """
DELETE FROM turn_keys
WHERE number IN (SELECT number FROM turn_keys ORDER BY number LIMIT 2)
    AND created_at_ms < ?
"""
_SET_KEY = """
INSERT OR REPLACE INTO turn_keys (context_id, key, turn_id, digest, created_at_ms)
VALUES (?, ?, ?, ?, ?)
"""
_NOTHING = (None, None, None, None)  # comes with an append
_ADD_ROOT = """
INSERT INTO turn_roots (turn_id, root)
VALUES (?, ?)
ON CONFLICT DO NOTHING
"""
# Up from a turn to the nearest one with a root. An ancestor's id is lower, so `last`, the highest
# id up to a turn's own that has a root, bounds what is to be found: where there is none the search
# ends, and where none is above the jump it jumps. It takes as many steps as the way is long, or
# some thirty for each root that other branches were given on the way, whichever is less. A plain
# walk takes a million steps where a million turns have no root; to ask of each root, newest first,
# whether it is above is slow in a thread whose other branches have many; and what a turn inherits
# cannot be kept with it, as a root given to an old turn changes that of all that follow.
_NEAREST = """
WITH RECURSIVE up (turn_id, parent_id, jump_id, last) AS (
    SELECT turn_id, parent_id, jump_id,
        (
            SELECT max(r.turn_id)
            FROM turn_roots r
            WHERE r.turn_id <= ?1
        )
    FROM turns
    WHERE turn_id = ?1
    UNION ALL
    SELECT t.turn_id, t.parent_id, t.jump_id,
        (
            SELECT max(r.turn_id)
            FROM turn_roots r
            WHERE r.turn_id <= t.turn_id
        )
    FROM up u
        CROSS JOIN turns t ON t.turn_id = CASE
            WHEN u.last <= u.jump_id THEN u.jump_id
            ELSE u.parent_id
        END
    WHERE u.last < u.turn_id
)
SELECT root
FROM up u
    CROSS JOIN turn_roots r ON r.turn_id = u.turn_id
"""


class Turns:
    """The graph of turns, their patches and roots."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run
        self._one = db.one
        self._blobs = db.blobs

    # --- appending --------------------------------------------------------------------------------

    def append(self, context_id: int, new: PreparedTurn, to: AppendTo) -> TurnRow:
        """Store a turn after the head, or after `to.parent`, and move the head to it; return it.

        Blob, turn, head, move, key, the end of the open turn that it seals and the event that tells
        of it are one change. With a key that was used before, return the first turn and store only
        refs. Raises ConflictError, UnknownContextError, UnknownTurnError, UnknownBlobError,
        GoneError.
        """
        with self._db.write(at_once=False):
            state = self._state(context_id, to.key)
            now = self._db.milliseconds()
            if state[2]:
                raise run_conflict(context_id)
            if state[3] is not None:
                return self._first(state[3], state[4], new, to)
            return self.add(context_id, state, new, to, now)

    def _state(self, context_id: int, key: str | None) -> tuple[Any, ...]:
        """Return head, version, whether it is a run's, turn and digest of the key, and `_SPOT`."""
        if key is None:
            rows = self._run(_STATE, (context_id,))
        else:
            since = self._db.milliseconds() - KEY_MS
            rows = self._run(_STATE_WITH_KEY, (context_id, key, since))
        if not rows:
            raise UnknownContextError(context_id)
        return rows[0]

    def _first(self, turn_id: int, digest: bytes, new: PreparedTurn, to: AppendTo) -> TurnRow:
        """Return the turn that was appended with a key before; a retry may know more refs."""
        if digest != to.key_digest:
            raise key_conflict(to.key or "", turn_id)
        if new.blob.refs:
            self._blobs.add_refs(new.blob.digest, new.blob.refs)
        if new.blob.mentions:
            self._blobs.add_mentions(self._blobs.row_id(new.blob.digest), new.blob.mentions)
        if to.seals is not None:
            self._seal(to.seals, new.blob.size)
        if to.root is not None:
            self._add_root(turn_id, to)
        return self.chain(turn_id, 1, 0)[0]

    def add(
        self,
        context_id: int,
        state: Sequence[Any],
        new: PreparedTurn,
        to: AppendTo,
        now: int,
        kept: int = 0,
    ) -> TurnRow:
        """Store a turn inside `write`, whose blob has the row id `kept`, or 0 if it is to be kept.

        `state` is what `_state` returns.
        """
        head, version = state[:2]
        above = state[5:]
        if to.expected_head is not None and to.expected_head != head:
            raise head_conflict(context_id, head, to.expected_head)
        parent = to.parent or head
        if parent != head:
            above = self._above(parent)
        depth, jump, jump_depth = link(parent, above)
        blob, type_id, type_version, encoding, flags, canonical, spent = new
        blob_id = kept or self.keep(blob, now)
        turn_id = self._db.insert(
            _ADD,
            (parent or None, depth, jump, jump_depth, type_id, type_version, encoding, canonical,
             blob_id, flags, now),
        )  # fmt: skip
        assert turn_id is not None
        self._db.later(_MOVE, (turn_id, version + 1, now, context_id))
        self._db.later(_LOG, (context_id, version + 1, head or None, turn_id, now))
        if causes := self._db.stated_causes():
            self._db.causes.note_turns((turn_id,), causes)
        if spent is not None:
            self._db.usage.of_turn(context_id, turn_id, spent, now)
        made = TurnRow(
            turn_id, parent, depth, type_id, type_version, encoding, flags, now, canonical, 0,
            blob.digest, blob.size, 0,
        )  # fmt: skip
        also = (to.key, to.seals, to.source, to.root)
        if also != _NOTHING:
            self._also(context_id, made, to)
        return made

    def _also(self, context_id: int, made: TurnRow, to: AppendTo) -> None:
        """Do what comes with an append: note its key, end what it seals, store its event."""
        if to.key is not None:
            self._db.later(_FORGET_KEYS, (made.at - KEY_MS,))
            self._db.later(_SET_KEY, (context_id, to.key, made.turn, to.key_digest, made.at))
        if to.seals is not None:
            self._seal(to.seals, made.size)
        if to.source is not None:
            content = event_of(context_id, made)
            self._db.events.announce(to.source, content, "turn")
        if to.root is not None:
            self._add_root(made.turn, to)

    def _add_root(self, turn_id: int, to: AppendTo) -> None:
        """Store the root of a turn that has none of its own; it may be the turn's payload."""
        if to.root is not None and not to.foreign_root:
            self._blobs.check_refs((to.root,))
        self._db.later(_ADD_ROOT, (turn_id, to.root))

    def keep(self, blob: PreparedBlob, now: int) -> int:
        """Store a blob inside `write`; return its row id. Most are one piece, and new."""
        if len(blob.pieces) != 1 or blob.parts:
            return self._blobs.keep(blob, now)[0]
        digest, size, codec, stored = blob.pieces[0]
        return self._kept(blob, self._db.insert(ADD, (digest, size, len(stored), codec, now)), now)

    def keep_all(self, blobs: Sequence[PreparedBlob], now: int) -> list[int]:
        """Store blobs as `keep` does each; what are one piece, in one trip."""
        rows = [
            (digest, size, len(stored), codec, now)
            for blob in blobs
            if len(blob.pieces) == 1 and not blob.parts
            for digest, size, codec, stored in blob.pieces
        ]
        made = iter(self._db.inserts(ADD, rows))
        return [
            self._kept(blob, None if blob.parts or len(blob.pieces) != 1 else next(made), now)
            for blob in blobs
        ]

    def _kept(self, blob: PreparedBlob, blob_id: int | None, now: int) -> int:
        """Store the rest of a blob; if it has no row id yet, all of it."""
        if blob_id is None:
            return self._blobs.keep(blob, now)[0]
        self._db.later(ADD_BYTES, (blob_id, blob.pieces[0].stored))
        if blob.refs:
            refs = '["' + '","'.join([ref.hex() for ref in blob.refs]) + '"]'
            if self._db.changed(ADD_REFS, (blob_id, refs)) != len(set(blob.refs)):
                self._blobs.check_refs(blob.refs)
        if blob.mentions:
            self._blobs.add_mentions(blob_id, blob.mentions)
        return blob_id

    def _above(self, parent: int) -> Sequence[Any]:
        spot = self.spot(parent)
        if spot is None:
            raise UnknownTurnError(parent)
        return spot

    def _seal(self, open_id: int, size: int) -> None:
        """End the open turn that became a turn, of so many bytes."""
        streams = self._db.open_turns
        if streams.end(open_id, Ending("sealed"), was=size) is None:
            raise open_conflict(open_id, growing=streams.get(open_id) is not None)

    # --- reading ----------------------------------------------------------------------------------

    def chain(self, turn_id: int, count: int, as_of: int | None) -> list[TurnRow]:
        """Return a turn and those above it, newest first, patched up to `as_of` (None: all)."""
        upto = _LATEST if as_of is None else as_of
        rows = self._rows(_CHAIN + _PATCHED, (turn_id, upto, min(count, _MOST_TURNS)))
        rows.sort(key=_depth, reverse=True)  # in SQL it would sort what comes sorted in SQLite
        return rows

    def newest(self, before: int, limit: int) -> list[TurnRow]:
        """Return the turns before an id, of whatever context, newest first, with all patches."""
        sql = _NEWEST + _PATCHED + "ORDER BY c.turn_id DESC\n"
        return self._rows(sql, (before, _LATEST, limit))

    def _rows(self, sql: str, bindings: tuple[int, int, int]) -> list[TurnRow]:
        rows = self._run(sql, bindings)
        self._blobs.remember({row[10]: row[13] for row in rows})
        return [_row(row[:13]) for row in rows]

    def page(self, after: int, limit: int, types: Sequence[str]) -> list[TurnRow]:
        """Return the next turns of some types by id, without patches."""
        sql = """
            SELECT turn_id, coalesce(parent_id, 0), depth, type_id, type_version, encoding, flags,
                created_at_ms, canonical, 0, hash, raw_len, codec
            FROM turns
                CROSS JOIN blobs USING (blob_id)
            WHERE turn_id > ? AND type_id IN (SELECT value FROM json_each(?))
            ORDER BY turn_id
            LIMIT ?
        """
        import json

        return [TurnRow(*row) for row in self._run(sql, (after, json.dumps([*types]), limit))]

    def link(self, turn_id: int) -> Link | None:
        """Return the link of a turn to its ancestors, or None."""
        sql = "SELECT coalesce(parent_id, 0), depth FROM turns WHERE turn_id = ?"
        rows = self._run(sql, (turn_id,))
        return Link(*rows[0]) if rows else None

    def continued(self, turn_id: int) -> int:
        """Return the turn that a root goes on from as the file of its session states, or 0."""
        sql = """
            SELECT above.turn_id
            FROM session_lines own
                CROSS JOIN session_lines above ON above.session_id = own.session_id
                    AND above.entry = own.parent
            WHERE own.turn_id = ? AND own.kind & 1024 <> 0 AND above.turn_id IS NOT NULL
            ORDER BY own.session_id, above.position DESC
            LIMIT 1
        """
        return self._one(sql, (turn_id,)) or 0

    def spot(self, turn_id: int) -> tuple[Any, ...] | None:
        """Return what the link of a child follows from, see `link`, or None."""
        rows = self._run(_SPOT, (turn_id,))
        return rows[0] if rows else None

    def last_id(self) -> int:
        """Return the id of the newest turn there ever was, 0 when there was none."""
        return self._db.last_id("turns")

    def ancestor(self, turn_id: int, depth: int) -> int:
        """Return the turn at a depth at or above another, 0 when there is none."""
        return self._one(_ANCESTOR, (turn_id, depth)) or 0

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two turns, 0 for none; raise UnknownTurnError."""
        depth = min(self._check(one).depth, self._check(other).depth)
        one, other = self.ancestor(one, depth), self.ancestor(other, depth)
        while one != other:  # at one depth both jump to one depth
            parent, jump = self._jump(one)
            parent2, jump2 = self._jump(other)
            if not parent or not parent2:
                return 0
            one, other = (jump, jump2) if jump != jump2 else (parent, parent2)
        return one

    def _jump(self, turn_id: int) -> tuple[int, int]:
        sql = "SELECT coalesce(parent_id, 0), coalesce(jump_id, 0) FROM turns WHERE turn_id = ?"
        rows = self._run(sql, (turn_id,))
        return rows[0] if rows else (0, 0)

    def nearest(self, turn_id: int, flag: int) -> tuple[int, int] | None:
        """Return id and depth of the nearest turn at or above another with a flag, or None."""
        sql = """
            WITH RECURSIVE up (turn_id, parent_id, depth, flags) AS (
                SELECT turn_id, parent_id, depth, flags
                FROM turns
                WHERE turn_id = ?1
                UNION ALL
                SELECT t.turn_id, t.parent_id, t.depth, t.flags
                FROM up u
                    CROSS JOIN turns t ON t.turn_id = u.parent_id
                WHERE u.flags & ?2 = 0
            )
            SELECT turn_id, depth
            FROM up
            WHERE flags & ?2 <> 0
            LIMIT 1
        """
        rows = self._run(sql, (turn_id, flag))
        return rows[0] if rows else None

    def children(self, turn_id: int, limit: int) -> list[int]:
        """Return the first turns whose parent is this one."""
        sql = """
            SELECT turn_id
            FROM turns
            WHERE parent_id = ?
            ORDER BY turn_id
            LIMIT ?
        """
        return [row[0] for row in self._run(sql, (turn_id, limit))]

    def forks(self, turns: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """Return the turns right below some turns that have several, each after its parent."""
        import json

        sql = """
            SELECT parent_id, turn_id
            FROM json_each(?1)
                CROSS JOIN turns t ON t.parent_id = CAST(value AS INTEGER)
            WHERE (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM turns o
                    WHERE o.parent_id = t.parent_id
                    LIMIT 2
                ) two
            ) = 2
            ORDER BY parent_id, turn_id
            LIMIT ?2
        """
        return self._run(sql, (json.dumps([*turns]), limit))

    def depths(self, digest: bytes) -> list[tuple[int, int]]:
        """Return the depths at which turns have this payload, unpatched, and the first turn."""
        sql = """
            SELECT depth, min(turn_id)
            FROM blobs b
                CROSS JOIN turns t INDEXED BY turns_by_blob ON t.blob_id = b.blob_id
            WHERE b.hash = ?
            GROUP BY depth
        """
        return self._run(sql, (digest,))

    # --- patches and roots ------------------------------------------------------------------------

    def patch(self, turn_id: int, blob: PreparedBlob | None, flags: int) -> int:
        """Replace a turn's payload, or hide it for None; return the patch's number.

        Raises UnknownTurnError, UnknownBlobError, GoneError.
        """
        with self._db.write():
            self._check(turn_id)
            now = self._db.milliseconds()
            blob_id = None if blob is None else self._blobs.keep(blob, now)[0]
            sql = """
                INSERT INTO turn_patches (turn_id, blob_id, flags, created_at_ms)
                VALUES (?, ?, ?, ?)
            """
            made = self._db.insert(sql, (turn_id, blob_id, flags, now))
            assert made is not None
            return made

    def _check(self, turn_id: int) -> Link:
        link = self.link(turn_id)
        if link is None:
            raise UnknownTurnError(turn_id)
        return link

    def last_patch(self) -> int:
        """Return the number of the newest patch there ever was, 0 when there was none."""
        return self._db.last_id("turn_patches")

    def attach(self, turn_id: int, root: bytes, *, only_new: bool = False) -> bytes:
        """Set the root of a turn's file tree; with `only_new` a turn keeps one that it has.

        Return the root that it has then. Raises UnknownTurnError.
        """
        with self._db.write():
            self._check(turn_id)
            if only_new:
                self._run(_ADD_ROOT, (turn_id, root))
                root = self._one("SELECT root FROM turn_roots WHERE turn_id = ?", (turn_id,))
            else:
                sql = """
                    INSERT INTO turn_roots (turn_id, root)
                    VALUES (?, ?)
                    ON CONFLICT (turn_id) DO UPDATE SET root = excluded.root
                """
                self._run(sql, (turn_id, root))
            return root

    def root(self, turn_id: int) -> bytes | None:
        """Return the root of a turn or of its nearest ancestor with one; raise UnknownTurnError."""
        self._check(turn_id)
        root: bytes | None = self._one(_NEAREST, (turn_id,))
        return root

    # --- faults -----------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return a sentence for each fault of turns and contexts, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]

    def root_faults(self) -> list[str]:
        """Return a sentence for each bad root, at most 20; a root of no turn is found above."""
        return [row[0] for row in self._run(_ROOT_FAULT)]


_FAULTS = (
    """
    SELECT 'turn ' || t.turn_id || ' has depth ' || t.depth || ', and its parent ' || p.depth
    FROM turns t
        CROSS JOIN turns p ON p.turn_id = t.parent_id
    WHERE t.depth <> p.depth + 1
    LIMIT 20
    """,
    # The jump of a turn goes to its parent, or to where its parent's jump jumps, where both span
    # the same.
    """
    SELECT 'turn ' || t.turn_id || ' jumps to ' || t.jump_id || ', not to '
        || CASE WHEN p.depth - j.depth = j.depth - k.depth THEN k.turn_id ELSE p.turn_id END
    FROM turns t
        CROSS JOIN turns p ON p.turn_id = t.parent_id
        LEFT JOIN turns j ON j.turn_id = p.jump_id
        LEFT JOIN turns k ON k.turn_id = j.jump_id
    WHERE t.jump_id <> CASE
        WHEN p.depth - j.depth = j.depth - k.depth THEN k.turn_id
        ELSE p.turn_id
    END
    LIMIT 20
    """,
    """
    SELECT 'turn ' || t.turn_id || ' says that turn ' || t.jump_id || ' has depth ' || t.jump_depth
    FROM turns t
        LEFT JOIN turns j ON j.turn_id = t.jump_id
    WHERE t.jump_id IS NOT NULL AND t.jump_depth IS NOT j.depth
    LIMIT 20
    """,
    """
    SELECT 'turn ' || turn_id || ' has an id below 1'
    FROM turns
    WHERE turn_id < 1
    LIMIT 20
    """,
    # What the table's own checks refuse: a reader's integrity check does not look at them.
    """
    SELECT 'turn ' || turn_id || ' is not later than its parent'
    FROM turns
    WHERE parent_id >= turn_id
    LIMIT 20
    """,
    """
    SELECT 'turn ' || turn_id || ' has depth ' || depth || ', and parent and jump of another'
    FROM turns
    WHERE (parent_id IS NULL) <> (depth = 0)
        OR (jump_id IS NULL) <> (depth = 0)
        OR (jump_depth IS NULL) <> (depth = 0)
        OR depth NOT BETWEEN 0 AND 4294967295
    LIMIT 20
    """,
    """
    SELECT 'context ' || context_id || ' has version ' || version || ', and its newest move is '
        || last
    FROM (
        SELECT context_id, version,
            coalesce(
                (
                    SELECT max(version)
                    FROM context_log l
                    WHERE l.context_id = c.context_id
                ),
                0
            ) AS last
        FROM contexts c
    )
    WHERE version <> last
    LIMIT 20
    """,
    """
    SELECT 'context ' || c.context_id || ' stands at turn ' || coalesce(head_id, 0)
        || ', and its newest move went to ' || coalesce(new_id, 0)
    FROM contexts c
        CROSS JOIN context_log l ON l.context_id = c.context_id AND l.version = c.version
    WHERE coalesce(head_id, 0) <> coalesce(new_id, 0)
    LIMIT 20
    """,
    """
    SELECT 'key ''' || key || ''' of context ' || context_id || ' names turn ' || turn_id
        || ', which is not stored'
    FROM turn_keys k
    WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.turn_id = k.turn_id)
    LIMIT 20
    """,
    """
    SELECT 'a row of ' || "table" || ' refers to a row of ' || parent || ' that is not there'
    FROM pragma_foreign_key_check
    LIMIT 20
    """,
)
# What the table's own check refuses: a reader's integrity check does not look at it.
_ROOT_FAULT = """
SELECT 'the root of turn ' || turn_id || ' has ' || length(root) || ' bytes, not 32'
FROM turn_roots
WHERE length(root) <> 32
LIMIT 20
"""
