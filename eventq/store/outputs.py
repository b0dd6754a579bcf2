"""Agents' outputs, the counters of their numbers, and other names of blobs."""

from __future__ import annotations

from eventq.errors import UnknownBlobError
from eventq.records.artifact import OutputInfo
from eventq.records.checks import REF
from eventq.store.scopes import count_on, keep, pass_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eventq.store.engine import Engine

_OUTPUT = """
SELECT output_id, version, hash, raw_len, created_at_ms
FROM agent_outputs
    CROSS JOIN blobs USING (blob_id)
WHERE scope_id = ?
"""
_VERSIONS = f"""
{_OUTPUT}
    AND output_id = ?
ORDER BY version
"""
_VERSION = f"""
{_OUTPUT}
    AND output_id = ?
    AND version = ?
"""
_PAGE = f"""
{_OUTPUT}
    AND (output_id, version) > (?, ?)
ORDER BY output_id, version
LIMIT ?
"""
_OLDER = f"""
{_OUTPUT}
    AND output_id = ?
    AND version < ?
ORDER BY version DESC
LIMIT ?
"""
# From name to name: to read all versions for a list of names would take long where there are many.
_NEWEST = """
WITH RECURSIVE names (name, number) AS (
    SELECT min(output_id), CAST(1 AS INTEGER)
    FROM agent_outputs
    WHERE scope_id = ?1 AND output_id > ?2
    UNION ALL
    SELECT
        (
            SELECT min(output_id)
            FROM agent_outputs
            WHERE scope_id = ?1 AND output_id > name
        ),
        number + 1
    FROM names
    WHERE name IS NOT NULL AND number < ?3
)
SELECT output_id, version, hash, raw_len, created_at_ms
FROM names
    CROSS JOIN agent_outputs o ON o.scope_id = ?1 AND o.output_id = name AND o.version = (
        SELECT max(version)
        FROM agent_outputs
        WHERE scope_id = ?1 AND output_id = name
    )
    CROSS JOIN blobs USING (blob_id)
ORDER BY number
"""


class Outputs:
    """The versions of agents' outputs, the counters of their numbers, and other names of blobs.

    All but the names of blobs are those of one scope, which is the thread's unless `of` was called.
    """

    def __init__(self, db: Engine, scope: int = 0) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run
        self._one = db.one
        self._scope = scope

    def of(self, scope: int) -> Outputs:
        """Return the outputs of another scope."""
        return Outputs(self._db, scope)

    def next_number(self, counter: str) -> int:
        """Return a counter's value, from 0, and increment it."""
        return count_on(self._db, self._scope, counter)

    def reserve(self, numbers: Sequence[tuple[str, int]]) -> None:
        """Reserve all numbers up to these."""
        pass_by(self._db, self._scope, numbers)

    def counters(self) -> dict[str, int]:
        """Return the next number of each counter."""
        sql = "SELECT name, next FROM counters WHERE scope_id = ?"
        return dict(self._ask(sql, (self._scope,)))

    def _ask(self, sql: str, bindings: tuple[Any, ...]) -> list[Any]:
        return self._run(sql, bindings)

    # --- versions ---------------------------------------------------------------------------------

    def add(self, output: str, digest: bytes, *, at: int | None = None) -> OutputInfo:
        """Store a blob as the next version of an output; return it. Raises UnknownBlobError."""
        sql = """
            INSERT INTO agent_outputs (scope_id, output_id, version, blob_id, created_at_ms)
            VALUES (
                ?1, ?2,
                1 + coalesce(
                    (
                        SELECT max(version)
                        FROM agent_outputs
                        WHERE scope_id = ?1 AND output_id = ?2
                    ),
                    0
                ),
                ?3, ?4
            )
            RETURNING version
        """
        found = self._run("SELECT blob_id, raw_len FROM blobs WHERE hash = ?", (digest,))
        if not found:
            raise UnknownBlobError(REF + digest.hex())
        blob_id, size = found[0]
        at = self._db.milliseconds() if at is None else at
        with self._db.joined():
            keep(self._db, self._scope)
            version = self._run(sql, (self._scope, output, blob_id, at))[0][0]
        return OutputInfo(output, version, digest.hex(), size, at)

    def remove(self, output: str) -> int:
        """Delete all versions of an output, and which files they were; return their number."""
        given = (self._scope, output)
        with self._db.joined():
            self._run("DELETE FROM files WHERE scope_id = ? AND output = ?", given)
            sql = "DELETE FROM agent_outputs WHERE scope_id = ? AND output_id = ?"
            return self._db.changed(sql, given)

    def versions(self, output: str, version: int | None = None) -> list[OutputInfo]:
        """Return all versions of an output, or one; [] for what is not there."""
        if version is None:
            return [*map(_info, self._ask(_VERSIONS, (self._scope, output)))]
        return [*map(_info, self._ask(_VERSION, (self._scope, output, version)))]

    def page(self, after: tuple[str, int], limit: int) -> list[OutputInfo]:
        """Return the next versions, by output and version; ("", 0) begins."""
        return [*map(_info, self._ask(_PAGE, (self._scope, *after, limit)))]

    def older(self, output: str, before: int, limit: int) -> list[OutputInfo]:
        """Return the versions of an output before one, the newest first."""
        return [*map(_info, self._ask(_OLDER, (self._scope, output, before, limit)))]

    def newest(self, after: str, limit: int) -> list[OutputInfo]:
        """Return the newest version of each of the next outputs, sorted by name; "" begins."""
        return [*map(_info, self._ask(_NEWEST, (self._scope, after, limit)))]

    def names(self, after: str, limit: int) -> list[str]:
        """Return the next names of outputs, sorted; "" begins."""
        sql = """
            SELECT DISTINCT output_id
            FROM agent_outputs
            WHERE scope_id = ? AND output_id > ?
            ORDER BY 1
            LIMIT ?
        """
        return [row[0] for row in self._ask(sql, (self._scope, after, limit))]

    def count(self) -> int:
        """Return the number of outputs, versions not counted."""
        sql = """
            SELECT count(*)
            FROM agent_outputs
            WHERE scope_id = ? AND version = 1
        """
        return int(self._one(sql, (self._scope,)))

    def has_any(self) -> bool:
        """Return whether there is an artifact or an output."""
        # With what holds for every row, so that one is looked up, not a whole index begun.
        sql = """
            SELECT EXISTS (SELECT 1 FROM artifacts WHERE scope_id = ?1 AND number >= 0)
                OR EXISTS (
                    SELECT 1
                    FROM agent_outputs
                    WHERE scope_id = ?1 AND output_id >= ''
                )
        """
        return bool(self._one(sql, (self._scope,)))

    # --- other names of blobs ---------------------------------------------------------------------

    def add_alias(self, sha256: bytes, digest: bytes) -> None:
        """Note the SHA-256 of a blob's bytes. Raises UnknownBlobError."""
        sql = """
            INSERT OR IGNORE INTO blob_names (sha256, blob_id)
            SELECT ?, blob_id
            FROM blobs
            WHERE hash = ?
            RETURNING 1
        """
        known = "SELECT 1 FROM blobs WHERE hash = ?"
        if not (self._db.change(sql, (sha256, digest)) or self._run(known, (digest,))):
            raise UnknownBlobError(REF + digest.hex())

    def find_alias(self, sha256: bytes) -> bytes | None:
        """Return the digest of the blob with a SHA-256, or None."""
        sql = """
            SELECT hash
            FROM blob_names
                CROSS JOIN blobs USING (blob_id)
            WHERE sha256 = ?
        """
        return self._one(sql, (sha256,))  # type: ignore[no-any-return]

    def aliases(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the next pairs of SHA-256 and digest, sorted; b"" begins."""
        sql = """
            SELECT sha256, hash
            FROM blob_names
                CROSS JOIN blobs USING (blob_id)
            WHERE sha256 > ?
            ORDER BY sha256
            LIMIT ?
        """
        return self._run(sql, (after, limit))

    # --- faults -----------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return a sentence for each broken row of artifacts and outputs, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


def _info(row: tuple[Any, ...]) -> OutputInfo:
    output, version, digest, size, created_at = row
    return OutputInfo(output, version, digest.hex(), size, created_at)


_FAULTS = (
    """
    SELECT 'artifact ' || number || ' is not below the next number, ' || next
        || CASE WHEN scope_id <> 0 THEN ', of scope ' || scope_id ELSE '' END
    FROM (
        SELECT scope_id, number,
            coalesce(
                (
                    SELECT next
                    FROM counters c
                    WHERE c.scope_id = a.scope_id AND name = 'artifact'
                ),
                0
            ) AS next
        FROM artifacts a
    )
    WHERE number >= next
    LIMIT 20
    """,
    # What the table's own checks refuse: a reader's integrity check does not look at them.
    """
    SELECT 'artifact ' || number || ' is ' || status
        || ', and has a hash or an end of another status'
    FROM artifacts
    WHERE (status = 'open') <> (ended_at_ms IS NULL)
        OR (status = 'sealed') <> (hash IS NOT NULL)
        OR status NOT IN ('open', 'sealed', 'failed')
    LIMIT 20
    """,
    """
    SELECT 'artifact ' || number || ' has ' || size || ' bytes, and ' || held
        || ' chunks up to number ' || last
    FROM (
        SELECT number, size,
            (
                SELECT count(*)
                FROM artifact_chunks c
                WHERE c.artifact_id = a.artifact_id
            ) AS held,
            coalesce(
                (
                    SELECT max(position)
                    FROM artifact_chunks c
                    WHERE c.artifact_id = a.artifact_id
                ),
                -1
            ) AS last
        FROM artifacts a
    )
    WHERE held <> last + 1 OR held <> (size + 65535) / 65536
    LIMIT 20
    """,
    """
    SELECT 'output ' || output_id || ' has versions up to ' || max(version) || ', and ' || count(*)
        || ' of them'
    FROM agent_outputs
    GROUP BY scope_id, output_id
    HAVING max(version) <> count(*)
    LIMIT 20
    """,
)
