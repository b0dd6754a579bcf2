"""The SQL of export and import: whole tables in pages, and what an imported row is recognised by."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

_PAGE = 1_000


class PackTable:
    """What a pack holds, in one store."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self._db = db
        self._run = db.run

    def _pages(self, sql: str) -> Iterator[Any]:
        """Give the rows of a statement that takes a key to go on after and a limit; the key is the first column.

        What is chosen stands in a CROSS JOIN, never behind IN: with that each page could begin at the first row.
        """
        after: Any = -1 << 63
        while rows := self._run(sql, (after, _PAGE)):
            yield from rows
            after = rows[-1][0]

    # --- what is chosen -------------------------------------------------------------------------------------------

    def choose_none(self) -> None:
        """Begin with nothing chosen; what `choose` adds is seen by this connection only."""
        for sql in _CHOSEN:
            self._run(sql)

    def choose_all(self) -> None:
        """Choose everything that there is."""
        self.choose_none()
        for sql in _ALL:
            self._run(sql)

    def find_context(self, which: int | str) -> int | None:
        """Give the id of a context by its id or name, or None; a name is never a number."""
        sql = (
            "SELECT context_id FROM contexts WHERE name = ?1"
            " OR context_id = CAST(?1 AS INTEGER) AND ?1 NOT GLOB '*[^0-9]*'"
        )
        return self._db.one(sql, (str(which),))  # type: ignore[no-any-return]

    def choose(self, context_id: int) -> None:
        """Choose a context."""
        self._run("INSERT OR IGNORE INTO chosen_contexts VALUES (?)", (context_id,))

    def choose_what_they_lead_to(self) -> None:
        """Choose the turns and blobs that the chosen contexts lead to."""
        self._run(_TURNS_OF_CONTEXTS)
        self._run(_BLOBS_OF_TURNS if self._db.has_roots() else _BLOBS_OF_TURNS_WITHOUT_ROOTS)

    def choose_artifact(self, number: int) -> bool:
        """Choose an artifact; give False when it was chosen, or there is none."""
        sql = (
            "INSERT OR IGNORE INTO chosen_artifacts SELECT artifact_id FROM artifacts WHERE"
            " artifact_id = ?"
        )
        self._run(sql, (number,))
        return bool(self._db.connection.changes())

    def choose_output(self, output_id: str) -> list[bytes]:
        """Choose an output; give the hashes of its blobs, and of those that they name, that were not chosen."""
        sql = (
            "INSERT OR IGNORE INTO chosen_outputs SELECT DISTINCT output_id FROM agent_outputs"
            " WHERE output_id = ?"
        )
        self._run(sql, (output_id,))
        if not self._db.connection.changes():
            return []
        new = [row[0] for row in self._run(_BLOBS_OF_OUTPUT, (output_id,))]
        sql = "SELECT hash FROM json_each(?) JOIN blobs ON blob_id = value WHERE part = 0"
        return [row[0] for row in self._run(sql, (str(new),))]

    # --- out ------------------------------------------------------------------------------------------------------

    def blobs(self) -> Iterator[tuple[int, bytes]]:
        """Yield a number, and the hash of every blob that is no part only, in the order they came."""
        return self._pages(
            "SELECT blob_id, hash FROM chosen_blobs CROSS JOIN blobs USING (blob_id)"
            " WHERE blob_id > ? AND part = 0 ORDER BY blob_id LIMIT ?"
        )

    def turns(self) -> Iterator[Any]:
        """Give every turn, in the order they came.

        Columns: turn_id, parent, depth, type_id, type_version, type_tag, encoding, canonical, hash, raw_len, flags,
        created_at_ms.
        """
        return self._pages(
            "SELECT turn_id, coalesce(parent_id, 0), depth, type_id, type_version, type_tag,"
            " encoding, canonical, hash,"
            " raw_len, flags, created_at_ms FROM chosen_turns CROSS JOIN turns USING (turn_id)"
            " JOIN blobs USING (blob_id) WHERE turn_id > ? ORDER BY turn_id LIMIT ?"
        )

    def rules(self) -> Iterator[tuple[int, str]]:
        """Give turn_id and canonical rule of every turn that has one."""
        return self._pages(
            "SELECT turn_id, canonical FROM chosen_turns CROSS JOIN turns USING (turn_id)"
            " WHERE turn_id > ? AND canonical IS NOT NULL ORDER BY turn_id LIMIT ?"
        )

    def contexts(self) -> Iterator[Any]:
        """Give context_id, head, its depth, flags, time, name and fork_of of every context."""
        return self._pages(
            "SELECT context_id, coalesce(head_id, 0), coalesce(depth, 0), c.flags,"
            " c.created_at_ms, name, fork_of"
            " FROM chosen_contexts CROSS JOIN contexts c USING (context_id) LEFT JOIN turns ON"
            " turn_id = head_id"
            " WHERE context_id > ? ORDER BY context_id LIMIT ?"
        )

    def patches(self) -> Iterator[Any]:
        """Give seq, turn_id, hash (None for a tombstone), flags and time of every overlay."""
        return self._pages(
            "SELECT seq, turn_id, hash, p.flags, p.created_at_ms FROM turn_patches p"
            " CROSS JOIN chosen_turns USING (turn_id) LEFT JOIN blobs USING (blob_id)"
            " WHERE seq > ? ORDER BY seq LIMIT ?"
        )

    def roots(self) -> Iterator[tuple[int, bytes]]:
        """Give turn_id and root of every turn that has one of its own."""
        sql = (
            "SELECT turn_id, root FROM turn_roots CROSS JOIN chosen_turns USING (turn_id)"
            " WHERE turn_id > ? ORDER BY turn_id LIMIT ?"
        )
        return self._pages(sql) if self._db.has_roots() else iter(())

    def refs(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Give a number, and the hashes of a blob and of one that it names."""
        for blob_id, digest in self._pages(
            "SELECT blob_id, hash FROM chosen_blobs c CROSS JOIN blobs USING (blob_id) WHERE"
            " blob_id > ?"
            " AND EXISTS (SELECT 1 FROM blob_refs r WHERE r.blob_id = c.blob_id) ORDER BY blob_id"
            " LIMIT ?"
        ):
            sql = (
                "SELECT hash FROM blob_refs r JOIN blobs b ON b.blob_id = ref_id WHERE r.blob_id"
                " = ? ORDER BY 1"
            )
            yield from ((blob_id, digest, to) for (to,) in self._run(sql, (blob_id,)))

    def runs(self) -> Iterator[Any]:
        """Give context_id, name, group, status, start turn and time of completion of every run."""
        return self._pages(
            "SELECT context_id, name, grouped, status, start_id, completed_at_ms FROM runs"
            " CROSS JOIN chosen_contexts USING (context_id) WHERE context_id > ? ORDER BY"
            " context_id LIMIT ?"
        )

    def attempts(self) -> Iterator[Any]:
        """Give a number, the turn that it came after, hash and time of every attempt at a step."""
        return self._pages(
            "SELECT attempt_id, parent_id, hash, created_at_ms FROM run_attempts"
            " CROSS JOIN chosen_turns ON turn_id = parent_id CROSS JOIN blobs USING (blob_id)"
            " WHERE attempt_id > ? ORDER BY attempt_id LIMIT ?"
        )

    def pins(self) -> list[tuple[str, bytes]]:
        """Give name and hash of every pin, sorted."""
        return self._run(
            "SELECT name, hash FROM pins JOIN blobs USING (blob_id) WHERE blob_id IN chosen_blobs"
            " ORDER BY 1, 2"
        )

    def names(self) -> list[tuple[bytes, bytes]]:
        """Give hash and SHA-256 of every blob that has both, sorted."""
        sql = (
            "SELECT hash, sha256 FROM blob_names JOIN blobs USING (blob_id) WHERE blob_id IN"
            " chosen_blobs ORDER BY 1, 2"
        )
        return self._run(sql)

    def outputs(self) -> list[tuple[str, int, bytes, int]]:
        """Give id, version, hash and time of every version of every output, sorted."""
        sql = (
            "SELECT output_id, version, hash, created_at_ms FROM agent_outputs JOIN blobs USING"
            " (blob_id)"
            " WHERE output_id IN chosen_outputs ORDER BY 1, 2"
        )
        return self._run(sql)

    def artifacts(self) -> list[int]:
        """Give the numbers of the artifacts, sorted."""
        return [row[0] for row in self._run("SELECT artifact_id FROM chosen_artifacts ORDER BY 1")]

    # --- in -------------------------------------------------------------------------------------------------------

    def alike(self, parent: int, digest: bytes, limit: int = -1) -> list[Any]:
        """Return the turns of a parent and a payload, in order: one of them could be an imported one.

        Columns: turn_id, type_id, type_tag, encoding, flags, created_at_ms.
        """
        sql = (
            "SELECT turn_id, type_id, type_tag, encoding, flags, created_at_ms FROM turns"
            " WHERE parent_id IS ? AND blob_id = (SELECT blob_id FROM blobs WHERE hash = ?)"
            " ORDER BY turn_id LIMIT ?"
        )
        return self._run(sql, (parent or None, digest, limit))

    def add_turn(self, turn_id: int | None, digest: bytes, row: tuple[Any, ...]) -> int:
        """Store a turn and return its id: the next one unless it is given.

        `row` is parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag, encoding,
        canonical, flags, created_at_ms.
        """
        sql = (
            "INSERT INTO turns (turn_id, blob_id, parent_id, depth, jump_id, jump_depth, type_id,"
            " type_version, type_tag, encoding, canonical, flags, created_at_ms)"
            " VALUES (?, (SELECT blob_id FROM blobs WHERE hash = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?,"
            " ?, ?)"
        )
        return self._db.turns.insert("turns", sql, (turn_id, digest, *row))

    def is_reached(self, turn_id: int) -> bool:
        """Tell whether a context stands at a turn, or at one that follows it."""
        return bool(self._run(_REACHED, (turn_id,)))

    def last_context(self) -> int:
        """Give the id of the newest context there ever was, 0 when there was none."""
        return self._db.one("SELECT seq FROM sqlite_sequence WHERE name = 'contexts'") or 0

    def births(self) -> Iterator[tuple[int, int, int, str | None]]:
        """Yield context_id, head, time and name of every context of the db, chosen or not."""
        return self._pages(
            "SELECT context_id, coalesce(head_id, 0), created_at_ms, name FROM contexts"
            " WHERE context_id > ? ORDER BY context_id LIMIT ?"
        )

    def add_context(self, context_id: int | None, head: int, flags: int, at: int, now: int) -> int:
        """Store a context that stands at a head, and give its id: the next one unless it is given."""
        sql = (
            "INSERT INTO contexts (context_id, head_id, base_id, flags, created_at_ms,"
            " updated_at_ms)"
            " VALUES (?1, ?2, ?2, ?3, ?4, ?5)"
        )
        self._run(sql, (context_id, head or None, flags, at, now))
        return self._db.connection.last_insert_rowid()

    def name(self, context_id: int, name: str) -> None:
        """Give an imported context its name."""
        self._run("UPDATE contexts SET name = ? WHERE context_id = ?", (name, context_id))

    def descend(self, context_id: int, fork_of: int) -> None:
        """Note what an imported context was forked from."""
        self._run("UPDATE contexts SET fork_of = ? WHERE context_id = ?", (fork_of, context_id))

    def overlays(self, turn_id: int) -> list[tuple[bytes | None, int, int]]:
        """Return digest (None for a tombstone), flags and time of the patches on a turn."""
        sql = (
            "SELECT hash, flags, created_at_ms FROM turn_patches LEFT JOIN blobs USING (blob_id)"
            " WHERE turn_id = ?"
        )
        return self._run(sql, (turn_id,))

    def add_patch(self, turn_id: int, digest: bytes | None, flags: int, at: int) -> None:
        """Store a patch."""
        blob_id = None if digest is None else self._db.blobs.row_id(digest)
        sql = (
            "INSERT INTO turn_patches (turn_id, blob_id, flags, created_at_ms) VALUES (?, ?, ?, ?)"
        )
        self._run(sql, (turn_id, blob_id, flags, at))

    def set_run(
        self, context_id: int, name: str, group: str, status: str, start: int, completed: int | None
    ) -> None:
        """Make a run of an imported context, or have it go on."""
        sql = (
            "INSERT INTO runs (context_id, name, grouped, status, start_id, completed_at_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (context_id) DO UPDATE SET status = excluded.status,"
            " completed_at_ms = excluded.completed_at_ms"
        )
        self._run(sql, (context_id, name, group, status, start, completed))

    def attempts_after(self, parent: int) -> list[tuple[bytes, int]]:
        """Return digest and time of the attempts after a turn."""
        sql = (
            "SELECT hash, created_at_ms FROM run_attempts JOIN blobs USING (blob_id) WHERE"
            " parent_id = ?"
        )
        return self._run(sql, (parent,))

    def add_attempt(self, parent: int, digest: bytes, at: int) -> None:
        """Store an attempt."""
        blob_id = self._db.blobs.row_id(digest)
        sql = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, ?, ?)"
        self._run(sql, (parent, blob_id, at))

    def raise_last_turn(self, turn_id: int) -> None:
        """Have the next turn get an id above this one."""
        self._run("DELETE FROM sqlite_sequence WHERE name = 'turns'")
        self._run("INSERT INTO sqlite_sequence (name, seq) VALUES ('turns', ?)", (turn_id,))


# Down from a turn. Those that are asked about in one import have nothing below them in common.
_REACHED = (
    "WITH RECURSIVE down (id) AS (SELECT ?1 UNION ALL SELECT turn_id FROM down CROSS JOIN turns"
    " ON parent_id = id)"
    " SELECT 1 FROM down CROSS JOIN contexts ON head_id = id LIMIT 1"
)
_CHOSEN = (
    "DROP TABLE IF EXISTS temp.chosen_contexts",
    "DROP TABLE IF EXISTS temp.chosen_turns",
    "DROP TABLE IF EXISTS temp.chosen_blobs",
    "DROP TABLE IF EXISTS temp.chosen_artifacts",
    "DROP TABLE IF EXISTS temp.chosen_outputs",
    "CREATE TEMP TABLE chosen_contexts (context_id INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE chosen_turns (turn_id INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE chosen_blobs (blob_id INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE chosen_artifacts (artifact_id INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE chosen_outputs (output_id TEXT PRIMARY KEY)",
)
_ALL = (
    "INSERT INTO chosen_contexts SELECT context_id FROM contexts",
    "INSERT INTO chosen_turns SELECT turn_id FROM turns",
    "INSERT INTO chosen_blobs SELECT blob_id FROM blobs",
    "INSERT INTO chosen_artifacts SELECT artifact_id FROM artifacts",
    "INSERT INTO chosen_outputs SELECT DISTINCT output_id FROM agent_outputs",
)
_TURNS_OF_CONTEXTS = """
WITH RECURSIVE found (id) AS (
    SELECT head_id FROM chosen_contexts CROSS JOIN contexts USING (context_id) WHERE head_id IS NOT NULL
    UNION SELECT base_id FROM chosen_contexts CROSS JOIN contexts USING (context_id) WHERE base_id IS NOT NULL
    UNION SELECT start_id FROM chosen_contexts CROSS JOIN runs USING (context_id)
    UNION SELECT parent_id FROM found CROSS JOIN turns ON turn_id = id WHERE parent_id IS NOT NULL
)
INSERT INTO chosen_turns SELECT id FROM found"""
_OF_ROOTS = (
    "UNION SELECT blob_id FROM turn_roots JOIN blobs ON hash = root WHERE turn_id IN chosen_turns"
)
_BLOBS_OF_TURNS = f"""
WITH RECURSIVE found (id) AS (
    SELECT blob_id FROM chosen_turns CROSS JOIN turns USING (turn_id)
    UNION SELECT blob_id FROM turn_patches WHERE blob_id IS NOT NULL AND turn_id IN chosen_turns
    UNION SELECT blob_id FROM run_attempts WHERE parent_id IN chosen_turns
    {_OF_ROOTS}
    UNION SELECT ref_id FROM found CROSS JOIN blob_refs ON blob_id = id
)
INSERT INTO chosen_blobs SELECT id FROM found"""  # noqa: S608
_BLOBS_OF_TURNS_WITHOUT_ROOTS = _BLOBS_OF_TURNS.replace(
    _OF_ROOTS, ""
)  # of an older thread, opened to read
_BLOBS_OF_OUTPUT = """
WITH RECURSIVE found (id) AS (
    SELECT blob_id FROM agent_outputs WHERE output_id = ?
    UNION SELECT ref_id FROM found CROSS JOIN blob_refs ON blob_id = id
)
INSERT OR IGNORE INTO chosen_blobs SELECT id FROM found RETURNING blob_id"""
