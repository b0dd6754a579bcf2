"""The SQL of artifacts, of agents' outputs and of the names that other tools have for blobs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

_INFO = "SELECT artifact_id, tool, status, owner, size, lines, hash, error, created_at_ms, ended_at_ms FROM artifacts"
_OUTPUT = "SELECT output_id, version, hash, raw_len, created_at_ms FROM agent_outputs JOIN blobs USING (blob_id)"
_PAGE = 1_000


class OutputTable:
    """The tables of what was produced, in one store."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self.database = db
        self._run = db.run
        self._one = db.one

    def next(self, counter: str) -> int:
        """Give the next number of a counter, and count on."""
        sql = (
            "INSERT INTO counters (name, next) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET next = next + 1"
            " RETURNING next - 1"
        )
        return int(self._one(sql, (counter,)))

    def pass_by(self, counter: str, number: int) -> None:
        """Have a counter go on after a number that was taken."""
        sql = (
            "INSERT INTO counters (name, next) VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
            " SET next = max(next, excluded.next)"
        )
        self._run(sql, (counter, number + 1))

    def counters(self) -> dict[str, int]:
        """Give the next number of each counter."""
        return dict(self._run("SELECT name, next FROM counters"))

    # --- artifacts ------------------------------------------------------------------------------------------------

    def add(self, artifact_id: int, tool: str, owner: str, now: int) -> None:
        """Store the row of an artifact that is being written."""
        sql = "INSERT INTO artifacts (artifact_id, tool, status, owner, created_at_ms) VALUES (?, ?, 'open', ?, ?)"
        self._run(sql, (artifact_id, tool, owner, now))

    def row(self, artifact_id: int) -> tuple[Any, ...] | None:
        """Give the row of an artifact, or None.

        Columns: artifact_id, tool, status, owner, size, lines, hash, error, created_at_ms, ended_at_ms.
        """
        rows = self._run(f"{_INFO} WHERE artifact_id = ?", (artifact_id,))
        return rows[0] if rows else None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Give the rows of all artifacts, in the order of their numbers, page by page."""
        after = -1
        while rows := self._run(f"{_INFO} WHERE artifact_id > ? ORDER BY artifact_id LIMIT ?", (after, _PAGE)):
            yield from rows
            after = rows[-1][0]

    def sealed(self, limit: int) -> list[int]:
        """Give the numbers of the first `limit` artifacts that are whole."""
        sql = "SELECT artifact_id FROM artifacts WHERE status = 'sealed' ORDER BY artifact_id LIMIT ?"
        return [row[0] for row in self._run(sql, (limit,))]

    def count_sealed(self) -> int:
        """Give how many artifacts are whole."""
        return int(self._one("SELECT count(*) FROM artifacts WHERE status = 'sealed'"))

    def count(self) -> int:
        """Give how many artifacts there are."""
        return int(self._one("SELECT count(*) FROM artifacts"))

    def alike(self, tool: str, digest: bytes, size: int) -> list[tuple[Any, ...]]:
        """Give the rows of artifacts of a tool and size that have a hash, or none."""
        sql = f"{_INFO} WHERE tool = ? AND size = ? AND (hash = ? OR hash IS NULL) ORDER BY artifact_id"
        return self._run(sql, (tool, size, digest))

    def grow(self, artifact_id: int, owner: str, was: int, size: int, lines: int) -> bool:
        """Note how far an open artifact is; give False unless it is this owner's and had the size that it says."""
        sql = (
            "UPDATE artifacts SET size = ?, lines = ? WHERE artifact_id = ? AND status = 'open' AND owner = ?"
            " AND size = ?"
        )
        self._run(sql, (size, lines, artifact_id, owner, was))
        return bool(self.database.connection.changes())

    def end(self, artifact_id: int, owner: str, status: str, digest: bytes | None, error: str | None, now: int) -> bool:
        """Note that an open artifact is whole, or why it never will be; give False unless it is this owner's."""
        sql = (
            "UPDATE artifacts SET status = ?, hash = ?, error = ?, ended_at_ms = ?, owner = NULL"
            " WHERE artifact_id = ? AND status = 'open' AND owner = ?"
        )
        self._run(sql, (status, digest, error, now, artifact_id, owner))
        return bool(self.database.connection.changes())

    def set_times(self, artifact_id: int, created: int) -> None:
        """Give an imported artifact the time that it began at elsewhere."""
        self._run("UPDATE artifacts SET created_at_ms = ? WHERE artifact_id = ?", (created, artifact_id))

    def remove(self, artifact_id: int, now: int) -> None:
        """Delete an artifact, and note that its number was used."""
        self._run("DELETE FROM artifacts WHERE artifact_id = ?", (artifact_id,))
        self._run("INSERT INTO removed_artifacts (artifact_id, removed_at_ms) VALUES (?, ?)", (artifact_id, now))

    def is_unused(self, artifact_id: int) -> bool:
        """Say whether a number was never given."""
        sql = (
            "SELECT NOT EXISTS (SELECT 1 FROM artifacts WHERE artifact_id = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM removed_artifacts WHERE artifact_id = ?1)"
        )
        return bool(self._one(sql, (artifact_id,)))

    def is_empty(self) -> bool:
        """Say whether there is neither an artifact nor an output."""
        sql = (  # with what holds for every row, so that one is looked up, not a whole index begun
            "SELECT NOT EXISTS (SELECT 1 FROM artifacts WHERE artifact_id >= 0)"
            " AND NOT EXISTS (SELECT 1 FROM agent_outputs WHERE output_id >= '')"
        )
        return bool(self._one(sql))

    def set_chunk(self, artifact_id: int, position: int, newlines: int, stored: bytes) -> None:
        """Store a chunk, or more of the last one."""
        sql = (
            "INSERT INTO artifact_chunks (artifact_id, position, newlines, bytes) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (artifact_id, position) DO UPDATE SET bytes = excluded.bytes"
        )
        self._run(sql, (artifact_id, position, newlines, stored))

    def newlines(self, artifact_id: int) -> list[int]:
        """Give the newlines before each chunk of an artifact, as they are noted."""
        sql = "SELECT newlines FROM artifact_chunks WHERE artifact_id = ? ORDER BY position"
        return [row[0] for row in self._run(sql, (artifact_id,))]

    def chunk(self, artifact_id: int, position: int) -> bytes | None:
        """Give the stored bytes of a chunk, or None."""
        sql = "SELECT bytes FROM artifact_chunks WHERE artifact_id = ? AND position = ?"
        return self._one(sql, (artifact_id, position))  # type: ignore[no-any-return]

    def chunk_of_newline(self, artifact_id: int, number: int) -> tuple[int, int] | None:
        """Give the chunk that holds an artifact's `number`-th newline, or its last one, and the newlines before it."""
        sql = (
            "SELECT position, newlines FROM artifact_chunks WHERE artifact_id = ? AND newlines < ?"
            " ORDER BY newlines DESC, position DESC LIMIT 1"
        )
        rows = self._run(sql, (artifact_id, number))
        return rows[0] if rows else None

    # --- outputs of agents ----------------------------------------------------------------------------------------

    def add_output(self, output_id: str, digest: bytes, now: int) -> int:
        """Store a version of an output and return its number. Raises UnknownBlobError."""
        blob_id = self.database.blobs.row_id(digest)
        sql = (
            "INSERT INTO agent_outputs (output_id, version, blob_id, created_at_ms) SELECT ?1,"
            " 1 + coalesce(max(version), 0), ?2, ?3 FROM agent_outputs WHERE output_id = ?1 RETURNING version"
        )
        return int(self._one(sql, (output_id, blob_id, now)))

    def output(self, output_id: str, version: int) -> tuple[Any, ...] | None:
        """Give the row of a version of an output, or None: output_id, version, hash, raw_len, created_at_ms."""
        rows = self._run(f"{_OUTPUT} WHERE output_id = ? AND version = ?", (output_id, version))
        return rows[0] if rows else None

    def versions(self, output_id: str) -> list[tuple[Any, ...]]:
        """Give the rows of all versions of an output."""
        return self._run(f"{_OUTPUT} WHERE output_id = ? ORDER BY version", (output_id,))

    def outputs(self) -> Iterator[tuple[Any, ...]]:
        """Give the rows of all versions of all outputs, sorted, page by page."""
        after: tuple[Any, Any] = ("", 0)
        sql = f"{_OUTPUT} WHERE (output_id, version) > (?, ?) ORDER BY output_id, version LIMIT ?"
        while rows := self._run(sql, (*after, _PAGE)):
            yield from rows
            after = rows[-1][:2]

    def output_ids(self, limit: int) -> list[str]:
        """Give the first `limit` names of outputs, sorted."""
        sql = "SELECT DISTINCT output_id FROM agent_outputs ORDER BY 1 LIMIT ?"
        return [row[0] for row in self._run(sql, (limit,))]

    def count_outputs(self) -> int:
        """Give how many names of outputs there are."""
        return int(self._one("SELECT count(*) FROM agent_outputs WHERE version = 1"))

    # --- names of blobs -------------------------------------------------------------------------------------------

    def name_blob(self, sha256: bytes, digest: bytes) -> None:
        """Note the SHA-256 of a blob's bytes. Raises UnknownBlobError."""
        blob_id = self.database.blobs.row_id(digest)
        self._run("INSERT OR IGNORE INTO blob_names (sha256, blob_id) VALUES (?, ?)", (sha256, blob_id))

    def named(self, sha256: bytes) -> bytes | None:
        """Give the hash of the blob whose SHA-256 this is, or None."""
        sql = "SELECT hash FROM blob_names JOIN blobs USING (blob_id) WHERE sha256 = ?"
        return self._one(sql, (sha256,))  # type: ignore[no-any-return]

    def names(self) -> Iterator[tuple[bytes, bytes]]:
        """Give SHA-256 and hash of each blob that has both, sorted, page by page."""
        after = b""
        sql = "SELECT sha256, hash FROM blob_names JOIN blobs USING (blob_id) WHERE sha256 > ? ORDER BY 1 LIMIT ?"
        while rows := self._run(sql, (after, _PAGE)):
            yield from rows
            after = rows[-1][0]

    # --- faults ---------------------------------------------------------------------------------------------------

    def faults(self) -> Iterable[str]:
        """Say what is wrong with the rows, a sentence each, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


_FAULTS = (
    (
        "SELECT 'artifact ' || artifact_id || ' is not below the next number, ' || coalesce((SELECT next FROM counters"
        " WHERE name = 'artifact'), 0) FROM artifacts WHERE artifact_id >= coalesce((SELECT next FROM counters WHERE"
        " name = 'artifact'), 0) LIMIT 20"
    ),
    (  # What the table's own checks refuse: a reader's integrity check does not look at them.
        "SELECT 'artifact ' || artifact_id || ' is ' || status || ', and has a hash or an end of another status'"
        " FROM artifacts WHERE (status = 'open') <> (ended_at_ms IS NULL) OR (status = 'sealed') <> (hash IS NOT NULL)"
        " OR status NOT IN ('open', 'sealed', 'failed') LIMIT 20"
    ),
    (
        "SELECT 'artifact ' || artifact_id || ' has ' || size || ' bytes, and ' || held || ' chunks up to number '"
        " || last FROM (SELECT artifact_id, size, (SELECT count(*) FROM artifact_chunks c WHERE c.artifact_id ="
        " a.artifact_id) AS held, coalesce((SELECT max(position) FROM artifact_chunks c WHERE c.artifact_id ="
        " a.artifact_id), -1) AS last FROM artifacts a)"
        " WHERE held <> last + 1 OR held <> (size + 65535) / 65536 LIMIT 20"
    ),
    (
        "SELECT 'output ' || output_id || ' has versions up to ' || max(version) || ', and ' || count(*) || ' of them'"
        " FROM agent_outputs GROUP BY output_id HAVING max(version) <> count(*) LIMIT 20"
    ),
)
