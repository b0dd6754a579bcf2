"""The SQL of workflow runs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

_PAGE = 1_000
_HEAD = "coalesce('blob:blake3:' || lower(hex(hb.hash)), '')"
_START = "'blob:blake3:' || lower(hex(sb.hash))"
_JOINED = (
    "runs r CROSS JOIN contexts c USING (context_id)"
    " LEFT JOIN turns h ON h.turn_id = c.head_id LEFT JOIN blobs hb ON hb.blob_id = h.blob_id"
    " CROSS JOIN turns s ON s.turn_id = r.start_id CROSS JOIN blobs sb ON sb.blob_id = s.blob_id"
)
_RUN = (  # the fields of `RunInfo`
    "SELECT r.context_id, r.name, r.grouped, r.status, coalesce(h.turn_id, 0), coalesce(h.depth, 0),"  # noqa: S608
    f" {_HEAD}, {_START}, c.fork_of, c.updated_at_ms, r.completed_at_ms FROM {_JOINED}"
)
_INDEX = (
    f"SELECT r.context_id, json_object('threadId', CAST(r.context_id AS TEXT), 'head', {_HEAD}, 'start', {_START},"  # noqa: S608
    f" 'updatedAt', c.updated_at_ms) FROM {_JOINED}"
)
_HISTORY = (
    f"SELECT r.context_id, json_object('threadId', CAST(r.context_id AS TEXT), 'head', {_HEAD}, 'start', {_START},"  # noqa: S608
    f" 'completedAt', r.completed_at_ms) FROM {_JOINED}"
)
_ACTIVE = (
    " WHERE r.status IN ('active', 'suspended') AND r.context_id > ?1 AND (?2 IS NULL OR r.grouped = ?2)"
    " ORDER BY r.context_id LIMIT ?3"
)
_DAY = (
    " WHERE r.completed_on = ?4 AND r.context_id > ?1 AND (?2 IS NULL OR r.grouped = ?2) ORDER BY r.context_id LIMIT ?3"
)


class RunTable:
    """The tables of runs in one store."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self._db = db
        self._run = db.run

    def add(self, context_id: int, name: str, group: str, start: int) -> None:
        """Make a run of a context."""
        sql = "INSERT INTO runs (context_id, name, grouped, start_id) VALUES (?, ?, ?, ?)"
        self._run(sql, (context_id, name, group, start))

    def row(self, context_id: int) -> tuple[Any, ...] | None:
        """Give the row of a run as the fields of `RunInfo`, or None."""
        rows = self._run(f"{_RUN} WHERE r.context_id = ?", (context_id,))
        return rows[0] if rows else None

    def spot(self, context_id: int) -> tuple[str, int, int, int, bytes] | None:
        """Give status, head, the head's depth, the start turn and the hash of the head's node of a run, or None."""
        sql = (
            "SELECT status, coalesce(head_id, 0), coalesce(depth, 0), start_id, hash FROM runs"
            " JOIN contexts USING (context_id) LEFT JOIN turns ON turn_id = head_id LEFT JOIN blobs USING (blob_id)"
            " WHERE context_id = ?"
        )
        rows = self._run(sql, (context_id,))
        return rows[0] if rows else None

    def place(self, context_id: int) -> tuple[Any, ...] | None:
        """Give status, start turn, hash of the head's node and whether something was tried after it, of a run.

        Then what `TurnTable.spot_of_context` gives. None for what is no run.
        """
        sql = (
            "SELECT r.status, r.start_id, b.hash, EXISTS (SELECT 1 FROM run_attempts WHERE parent_id = c.head_id),"
            " coalesce(c.head_id, 0), c.version, 1, p.depth, p.jump_depth, j.jump_id, j.jump_depth FROM runs r"
            " CROSS JOIN contexts c USING (context_id) LEFT JOIN turns p ON p.turn_id = c.head_id"
            " LEFT JOIN blobs b ON b.blob_id = p.blob_id LEFT JOIN turns j ON j.turn_id = p.jump_id"
            " WHERE r.context_id = ?"
        )
        rows = self._run(sql, (context_id,))
        return rows[0] if rows else None

    def set_status(self, context_id: int, status: str, completed: int | None) -> None:
        """Note how far a run is."""
        sql = "UPDATE runs SET status = ?, completed_at_ms = ? WHERE context_id = ?"
        self._run(sql, (status, completed, context_id))

    def active(self, group: str | None, *, entries: bool = False) -> Iterator[Any]:
        """Give the rows of what is under way, by id; or id and JSON entry of each."""
        return self._pages((_INDEX if entries else _RUN) + _ACTIVE, group)

    def completed(self, day: str, group: str | None, *, entries: bool = False) -> Iterator[Any]:
        """Give the rows of what was completed on a day (UTC), by id; or id and JSON entry of each."""
        return self._pages((_HISTORY if entries else _RUN) + _DAY, group, day)

    def all(self, group: str | None) -> Iterator[Any]:
        """Give the rows of all runs, by id."""
        return self._pages(
            f"{_RUN} WHERE r.context_id > ?1 AND (?2 IS NULL OR r.grouped = ?2) ORDER BY r.context_id LIMIT ?3", group
        )

    def _pages(self, sql: str, group: str | None, *more: str) -> Iterator[Any]:
        after = 0
        while rows := self._run(sql, (after, group, _PAGE, *more)):
            yield from rows
            after = rows[-1][0]

    def add_attempt(self, parent: int, blob_id: int, now: int) -> None:
        """Keep a step that failed or was replaced, with the turn that it came after."""
        sql = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, ?, ?)"
        self._run(sql, (parent, blob_id, now))

    def attempts(self, parent: int) -> list[bytes]:
        """Give the hashes of what was tried after a turn, oldest first."""
        sql = (
            "SELECT hash FROM run_attempts INDEXED BY run_attempts_by_parent JOIN blobs USING (blob_id)"
            " WHERE parent_id = ? ORDER BY attempt_id"
        )
        return [row[0] for row in self._run(sql, (parent,))]

    def nodes(self, types: tuple[str, str]) -> Iterator[list[Any]]:
        """Give turn_id, parent (0 for none), blob_id, hash and flags of all turns of two types, by id, in pages."""
        sql = (
            "SELECT turn_id, coalesce(parent_id, 0), blob_id, hash, flags FROM turns JOIN blobs USING (blob_id)"
            " WHERE turn_id > ? AND type_id IN (?, ?) ORDER BY turn_id LIMIT ?"
        )
        after = 0
        while rows := self._run(sql, (after, *types, _PAGE)):
            yield rows
            after = rows[-1][0]

    def starts(self) -> set[int]:
        """Give the turns that runs start at."""
        return {row[0] for row in self._run("SELECT DISTINCT start_id FROM runs")}

    def all_attempts(self) -> Iterator[list[Any]]:
        """Give attempt_id, the turn that it came after, blob_id and hash of everything that was tried, in pages."""
        sql = (
            "SELECT attempt_id, parent_id, blob_id, hash FROM run_attempts JOIN blobs USING (blob_id)"
            " WHERE attempt_id > ? ORDER BY attempt_id LIMIT ?"
        )
        after = 0
        while rows := self._run(sql, (after, _PAGE)):
            yield rows
            after = rows[-1][0]

    def named(self, blob_ids: Iterable[int]) -> dict[int, set[str]]:
        """Give the refs of what each of some blobs names."""
        sql = (
            "SELECT r.blob_id, 'blob:blake3:' || lower(hex(hash)) FROM json_each(?) CROSS JOIN blob_refs r"
            " ON r.blob_id = value CROSS JOIN blobs b ON b.blob_id = r.ref_id"
        )
        found: dict[int, set[str]] = {}
        for blob_id, ref in self._run(sql, (str([*blob_ids]),)):
            found.setdefault(blob_id, set()).add(ref)
        return found

    def content(self, digest: bytes) -> set[str]:
        """Give the refs of what the blob of a hash names."""
        sql = (
            "SELECT 'blob:blake3:' || lower(hex(b.hash)) FROM blobs a CROSS JOIN blob_refs r ON r.blob_id = a.blob_id"
            " CROSS JOIN blobs b ON b.blob_id = r.ref_id WHERE a.hash = ?"
        )
        return {row[0] for row in self._run(sql, (digest,))}

    def last_op(self, context_id: int) -> str | None:
        """Give what the newest move of a run's head was."""
        sql = "SELECT op FROM context_log WHERE context_id = ? ORDER BY version DESC LIMIT 1"
        return self._db.one(sql, (context_id,))  # type: ignore[no-any-return]

    def faults(self) -> list[str]:
        """Say what is wrong with the rows of runs, a sentence each, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


_FAULTS = (
    (
        "SELECT 'run ' || context_id || ' is ' || status || ', and has ' || CASE WHEN completed_at_ms IS NULL THEN 'no'"
        " ELSE 'a' END || ' time of completion' FROM runs WHERE (status = 'completed') <> (completed_at_ms IS NOT NULL)"
        " OR status NOT IN ('active', 'suspended', 'completed', 'cancelled') LIMIT 20"
    ),
    (
        "SELECT 'run ' || context_id || ' is empty, though it was started' FROM runs JOIN contexts USING (context_id)"
        " WHERE head_id IS NULL LIMIT 20"
    ),
    (
        "SELECT 'run ' || context_id || ' starts at turn ' || start_id || ', which is no root' FROM runs"
        " JOIN turns ON turn_id = start_id WHERE depth <> 0 LIMIT 20"
    ),
)
