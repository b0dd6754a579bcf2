"""Scopes: what artifacts and outputs are numbered in, their counters and their files."""

from __future__ import annotations

import json

from eventq.errors import UnknownBlobError
from eventq.records.checks import REF
from eventq.store.output_rows import FileRow, ScopeRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.store.engine import Engine


class Scopes:
    """What artifacts and outputs are numbered in: 0 is the thread, others begin with a context."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    def of_context(self, context: int) -> int | None:
        """Return the scope of a context; None when there is no such context."""
        sql = """
            SELECT coalesce(scope_id, context_id)
            FROM contexts
            WHERE context_id = ?
        """
        return self._db.one(sql, (context,))  # type: ignore[no-any-return]

    def get(self, scope: int) -> ScopeRow | None:
        """Return a scope that something was produced in, or None."""
        sql = """
            SELECT scope_id, name, created_at_ms
            FROM scopes
            WHERE scope_id = ?
        """
        rows = self._run(sql, (scope,))
        return ScopeRow(*rows[0]) if rows else None

    def named(self, name: str) -> int | None:
        """Return the scope of a name, or None."""
        return self._db.one("SELECT scope_id FROM scopes WHERE name = ?", (name,))  # type: ignore[no-any-return]

    def page(self, after: int, limit: int) -> list[ScopeRow]:
        """Return the next scopes by number, but for the thread's; 0 begins."""
        sql = """
            SELECT scope_id, name, created_at_ms
            FROM scopes
            WHERE scope_id > ?
            ORDER BY scope_id
            LIMIT ?
        """
        return [ScopeRow(*row) for row in self._run(sql, (after, limit))]

    def used(self, limit: int) -> list[str]:
        """Return the names of the newest sessions that have artifacts or outputs."""
        sql = """
            SELECT name
            FROM scopes s
            WHERE scope_id > 0
                AND name IS NOT NULL
                AND (
                    EXISTS (SELECT 1 FROM artifacts a WHERE a.scope_id = s.scope_id AND number >= 0)
                    OR EXISTS (
                        SELECT 1
                        FROM agent_outputs o
                        WHERE o.scope_id = s.scope_id AND output_id >= ''
                    )
                )
            ORDER BY scope_id DESC
            LIMIT ?
        """
        return [row[0] for row in self._run(sql, (limit,))]

    def born_at(self, times: Iterable[int]) -> list[ScopeRow]:
        """Return the scopes of some times, and the contexts of these that may begin one."""
        sql = """
            WITH times AS MATERIALIZED (
                SELECT CAST(value AS INTEGER) AS value
                FROM json_each(?1)
            )
            SELECT scope_id, name, created_at_ms
            FROM scopes
            WHERE created_at_ms IN (SELECT value FROM times)
            UNION
            SELECT context_id, name, created_at_ms
            FROM contexts
            WHERE created_at_ms IN (SELECT value FROM times)
                AND coalesce(scope_id, context_id) = context_id
                AND context_id NOT IN (SELECT scope_id FROM scopes)
        """
        return [ScopeRow(*row) for row in self._run(sql, (json.dumps([*times]),))]

    def add(self, row: ScopeRow) -> None:
        """Store a scope unless it is there; without its name where that is another one's."""
        sql = """
            INSERT INTO scopes (scope_id, name, created_at_ms)
            SELECT ?1, CASE WHEN ?2 IN (SELECT name FROM scopes) THEN NULL ELSE ?2 END, ?3
            ON CONFLICT (scope_id) DO NOTHING
        """
        with self._db.write():
            self._run(sql, row)

    def assign(self, context: int, scope: int | None) -> None:
        """Set the scope of a context; None for one of its own."""
        sql = """
            UPDATE contexts
            SET scope_id = ?1
            WHERE context_id = ?2 AND scope_id IS DISTINCT FROM ?1
        """
        self._db.change(sql, (scope, context))

    def separate(self, context: int) -> None:
        """Move a context of the thread's scope, and its forks, to a scope of their own."""
        sql = """
            WITH RECURSIVE own (id) AS (
                SELECT CAST(?1 AS INTEGER)
                UNION
                SELECT context_id
                FROM own
                    CROSS JOIN contexts ON fork_of = id
                WHERE scope_id = 0
            )
            UPDATE contexts
            SET scope_id = ?1
            WHERE context_id IN (SELECT id FROM own) AND scope_id = 0
        """
        self._db.change(sql, (context,))

    # --- files ------------------------------------------------------------------------------------

    def put_file(self, scope: int, file: FileRow) -> None:
        """Store what a file is, in place of what its path was, or one above or below it.

        No path is a file and a folder. Raises UnknownBlobError.
        """
        inside = """
            DELETE FROM files
            WHERE scope_id = ?1
                AND (
                    substr(?2, 1, length(path) + 1) = path || '/'
                    OR path > ?2 || '/' AND path < ?2 || '0'
                )
        """
        sql = """
            INSERT OR REPLACE INTO files (scope_id, path, number, output, version, blob_id)
            VALUES (?, ?, ?, ?, ?, ?)
        """
        path, number, output, version, digest = file
        with self._db.write():
            keep(self._db, scope)
            blob_id = None
            if digest is not None:
                rows = self._run("SELECT blob_id FROM blobs WHERE hash = ?", (digest,))
                if not rows:
                    raise UnknownBlobError(REF + digest.hex())
                blob_id = rows[0][0]
            self._run(inside, (scope, path))
            self._run(sql, (scope, path, number, output, version, blob_id))

    def file(self, scope: int, path: str) -> FileRow | None:
        """Return what a file is, or None."""
        sql = """
            SELECT path, number, output, version, hash
            FROM files
                LEFT JOIN blobs USING (blob_id)
            WHERE scope_id = ? AND path = ?
        """
        rows = self._run(sql, (scope, path))
        return FileRow(*rows[0]) if rows else None

    def files(self, scope: int, after: str, limit: int) -> list[FileRow]:
        """Return the next files of a scope, by path; "" begins."""
        sql = """
            SELECT path, number, output, version, hash
            FROM files
                LEFT JOIN blobs USING (blob_id)
            WHERE scope_id = ? AND path > ?
            ORDER BY path
            LIMIT ?
        """
        return [FileRow(*row) for row in self._run(sql, (scope, after, limit))]

    # --- faults -----------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return a sentence for each thing in a scope that is not there, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


def keep(db: Engine, scope: int) -> None:
    """Store the row of a scope, inside `write`, unless it is there or the thread's own."""
    if scope and not db.run("SELECT 1 FROM scopes WHERE scope_id = ?", (scope,)):
        db.run(_BEGIN, (scope, db.milliseconds()))


def count_on(db: Engine, scope: int, counter: str) -> int:
    """Return the value of a counter of a scope, and increment it."""
    sql = """
        INSERT INTO counters (scope_id, name, next)
        VALUES (?, ?, 1)
        ON CONFLICT (scope_id, name) DO UPDATE SET next = counters.next + 1
        RETURNING counters.next - 1
    """
    with db.joined():
        keep(db, scope)
        return int(db.run(sql, (scope, counter))[0][0])


def pass_by(db: Engine, scope: int, numbers: Sequence[tuple[str, int]]) -> None:
    """Reserve all numbers of a scope up to these."""
    sql = """
        INSERT INTO counters (scope_id, name, next)
        VALUES (?, ?, ?)
        ON CONFLICT (scope_id, name) DO UPDATE SET next = max(counters.next, excluded.next)
    """
    with db.joined():
        keep(db, scope)
        db.many(sql, [(scope, name, number + 1) for name, number in numbers])


# A name that another scope has got meanwhile is not this one's.
_BEGIN = """
INSERT INTO scopes (scope_id, name, created_at_ms)
SELECT ?1, name, coalesce(created_at_ms, ?2)
FROM (SELECT 1)
    LEFT JOIN (
        SELECT created_at_ms,
            CASE WHEN name IN (SELECT name FROM scopes) THEN NULL ELSE name END AS name
        FROM contexts
        WHERE context_id = ?1
    )
"""
_FAULTS = (
    """
    SELECT DISTINCT 'scope ' || scope_id || ' has artifacts, but no row'
    FROM artifacts
    WHERE scope_id <> 0 AND scope_id NOT IN (SELECT scope_id FROM scopes)
    LIMIT 20
    """,
    """
    SELECT DISTINCT 'scope ' || scope_id || ' has outputs, but no row'
    FROM agent_outputs
    WHERE scope_id <> 0 AND scope_id NOT IN (SELECT scope_id FROM scopes)
    LIMIT 20
    """,
    """
    SELECT 'the file ' || path || ' of scope ' || scope_id || ' is artifact ' || number
        || ', which is not there'
    FROM files f
    WHERE number IS NOT NULL
        AND NOT EXISTS (
            SELECT 1
            FROM artifacts a
            WHERE a.scope_id = f.scope_id AND a.number = f.number
        )
        AND NOT EXISTS (
            SELECT 1
            FROM removed_artifacts r
            WHERE r.scope_id = f.scope_id AND r.number = f.number
        )
    LIMIT 20
    """,
    """
    SELECT 'the file ' || path || ' of scope ' || scope_id || ' is version ' || version
        || ' of output ' || output || ', which is not there'
    FROM files f
    WHERE output IS NOT NULL
        AND NOT EXISTS (
            SELECT 1
            FROM agent_outputs o
            WHERE o.scope_id = f.scope_id
                AND o.output_id = f.output
                AND o.version = f.version
        )
    LIMIT 20
    """,
)
