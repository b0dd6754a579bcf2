"""The SQL of roots: the file trees that turns carry, by hash, and hand down to what follows them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.storage.sqlite.database import Database

# Up from a turn to the nearest one with a root. An ancestor's id is lower, so `last`, the highest id up to a turn's own
# that has a root, bounds what is to be found: where there is none the search ends, and where none is above the jump it
# jumps. It takes as many steps as the way is long, or some thirty for each root that other branches were given on the
# way, whichever is less. A plain walk takes a million steps where a million turns have no root; to ask of each root,
# newest first, whether it is above is slow in a thread whose other branches have many; and what a turn inherits cannot
# be kept with it, as a root given to an old turn changes that of all that follow.
_NEAREST = (
    "WITH RECURSIVE up (turn_id, parent_id, jump_id, last) AS ("
    "SELECT turn_id, parent_id, jump_id, (SELECT max(r.turn_id) FROM turn_roots r WHERE r.turn_id <= ?1)"
    " FROM turns WHERE turn_id = ?1 UNION ALL"
    " SELECT t.turn_id, t.parent_id, t.jump_id, (SELECT max(r.turn_id) FROM turn_roots r WHERE r.turn_id <= t.turn_id)"
    " FROM up u CROSS JOIN turns t ON t.turn_id = CASE WHEN u.last <= u.jump_id THEN u.jump_id ELSE u.parent_id END"
    " WHERE u.last < u.turn_id)"
    " SELECT root FROM up u CROSS JOIN turn_roots r ON r.turn_id = u.turn_id"
)


class RootTable:
    """The table of roots in one store; empty in an older one that was opened to read."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self.database = db
        self._run = db.run
        self._one = db.one

    def set(self, turn_id: int, root: bytes) -> None:
        """Give a turn a root, in place of its own if it has one."""
        sql = (
            "INSERT INTO turn_roots (turn_id, root) VALUES (?, ?)"
            " ON CONFLICT (turn_id) DO UPDATE SET root = excluded.root"
        )
        self._run(sql, (turn_id, root))

    def add(self, turn_id: int, root: bytes) -> bytes:
        """Give a turn a root unless it has one of its own; give the one that it has then."""
        self._run("INSERT INTO turn_roots (turn_id, root) VALUES (?, ?) ON CONFLICT DO NOTHING", (turn_id, root))
        return self._one("SELECT root FROM turn_roots WHERE turn_id = ?", (turn_id,))  # type: ignore[no-any-return]

    def find(self, turn_id: int) -> bytes | None:
        """Give the root of a turn, or of its nearest ancestor that has one, or None."""
        return self._one(_NEAREST, (turn_id,)) if self.database.has_roots() else None

    def faults(self) -> Iterable[str]:
        """Say what is wrong with the rows, a sentence each, at most 20; a root of no turn is found with the turns."""
        return [row[0] for row in self._run(_FAULT)] if self.database.has_roots() else []


_FAULT = (  # What the table's own check refuses: a reader's integrity check does not look at it.
    "SELECT 'the root of turn ' || turn_id || ' has ' || length(root) || ' bytes, not 32' FROM turn_roots"
    " WHERE length(root) <> 32 LIMIT 20"
)
