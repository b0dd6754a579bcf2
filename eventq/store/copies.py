"""Export and import: whole tables in pages, and how imported rows are recognised."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from eventq.errors import UnknownBlobError, UnknownContextError, UnknownTurnError
from eventq.records.checks import REF
from eventq.store.copy_rows import (
    AliasCopy,
    AttemptCopy,
    ContextCopy,
    ContextLabel,
    ErasedCopy,
    FileCopy,
    LastIds,
    LineCopy,
    OutputCopy,
    PatchCopy,
    PinCopy,
    RefCopy,
    RootCopy,
    RunCopy,
    SessionCopy,
    TipCopy,
    TurnCopy,
)
from eventq.store.output_rows import FileRow, ScopeRow
from eventq.store.rules import link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.store.copy_rows import Restorable
    from eventq.store.engine import Engine

    Copied = TypeVar("Copied", bound="tuple[Any, ...]")  # a kind of record of `copied`


PAGE = 1_000
_ONE = (-1 << 63,)  # the key before the first row, of those that are one number


class Copies:
    """The operations of exports and imports."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    # --- out --------------------------------------------------------------------------------------

    def select(self, contexts: Iterable[int | str] | None) -> Selection:
        """Select contexts, by id or name, and what is reachable from them; None selects everything.

        Contexts lead to their chains, to the starts of their runs, and to the blobs of both:
        payloads, patches, attempts, roots, and what these name; and to all that was produced in
        their scopes, but for the thread's. Called inside `read`, where one
        selection replaces the one before. Raises UnknownContextError.
        """
        chosen = Selection(self._db)
        if contexts is None:
            chosen.choose_all()
        else:
            chosen.choose(contexts)
        return chosen

    # --- what is there ----------------------------------------------------------------------------

    def alike(self, parent: int, digest: bytes, limit: int | None = None) -> list[TurnCopy]:
        """Return the turns of a parent, 0 for none, and a payload, oldest first."""
        sql = """
            SELECT turn_id, coalesce(parent_id, 0), depth, type_id, type_version, type_tag,
                encoding, flags, created_at_ms, canonical, ?2, 0
            FROM turns
            WHERE parent_id IS ?1
                AND blob_id = (SELECT blob_id FROM blobs WHERE hash = ?2)
            ORDER BY turn_id
            LIMIT ?3
        """
        rows = self._run(sql, (parent or None, digest, 1 << 32 if limit is None else limit))
        return [*map(TurnCopy._make, rows)]

    def beside(self, turn: int, kind: type[Copied]) -> list[Copied]:
        """Return the patches on a turn, or the attempts after it, in no order."""
        return [*map(_whole(kind), self._run(_BESIDE[kind], (turn,)))]

    def is_reached(self, turn: int) -> bool:
        """Return whether a context has a turn on its chain."""
        return bool(self._run(_REACHED, (turn,)))

    def last_ids(self) -> LastIds:
        """Return the ids of the newest turn and context there ever were, 0 for none."""
        return LastIds(self._db.last_id("turns"), self._db.last_id("contexts"))

    # --- in ---------------------------------------------------------------------------------------

    def restore(self, records: Sequence[Restorable]) -> None:
        """Store records in order under the ids that they have, as one change.

        What a record names is stored, or stands before it. Depths and sizes are not read: they
        follow from what a record names. A context begins at its head. A run that is there gets the
        new status. No event tells of anything. New ids are above all that were restored. Raises
        UnknownTurnError, UnknownBlobError.
        """
        with self._db.joined():
            for record in records:
                self._store(record)

    def _store(self, record: Restorable) -> None:
        match record:
            case TurnCopy():
                self._add_turn(record)
            case ContextCopy():
                self._add_context(record)
            case ContextLabel():
                self._run(_LABEL, record)
            case PatchCopy():
                self._add_patch(record)
            case AttemptCopy():
                blob_id = self._db.blobs.row_id(record.digest)
                self._run(_ADD_ATTEMPT, (record.parent, blob_id, record.at))
            case RunCopy():
                self._run(_SET_RUN, record)
                self._db.runs.note(record.context, "import")

    def _add_turn(self, new: TurnCopy) -> None:
        above = self._db.turns.spot(new.parent) if new.parent else ()
        if above is None:
            raise UnknownTurnError(new.parent)
        depth, jump, jump_depth = link(new.parent, above)
        changed = self._db.changed(
            _ADD_TURN,
            (new.digest, new.turn, new.parent or None, depth, jump, jump_depth, new.type_id,
             new.type_version, new.type_tag, new.encoding, new.canonical, new.flags, new.at),
        )  # fmt: skip
        if not changed:
            raise UnknownBlobError(REF + new.digest.hex())

    def _add_context(self, new: ContextCopy) -> None:
        head, now = new.head or None, self._db.milliseconds()
        rest = (new.name, new.fork_of, new.scope)
        self._run(_ADD_CONTEXT, (new.context, head, new.flags, new.at, now, *rest))

    def _add_patch(self, new: PatchCopy) -> None:
        blob_id = None if new.digest is None else self._db.blobs.row_id(new.digest)
        self._run(_ADD_PATCH, (new.turn, blob_id, new.flags, new.at))

    def reserve(self, *, turn: int = 0, context: int = 0) -> None:
        """Reserve all ids of turns and contexts up to these."""
        last = self.last_ids()
        wanted = ("turns", turn, last.turn), ("contexts", context, last.context)
        for table, number, there in wanted:
            if number > there:
                self._db.reserve(table, number)


class Selection:
    """The objects to be copied. All are read in pages, in the snapshot of one `read`.

    What is chosen stands in temporary tables, and in a CROSS JOIN, never behind IN: with that each
    page could begin at the first row.
    """

    def __init__(self, db: Engine) -> None:
        """Begin with nothing chosen."""
        self._db = db
        self._run = db.run
        self._run(_CHOSEN)

    def choose_all(self) -> None:
        """Choose everything that there is."""
        self._run(_ALL)

    def choose(self, contexts: Iterable[int | str]) -> None:
        """Choose contexts, the turns and blobs that they lead to, and all of their scopes."""
        for which in contexts:
            sql = "INSERT OR IGNORE INTO chosen_contexts VALUES (?)"
            self._run(sql, (self._find_context(which),))
        self._run(_TURNS_OF_CONTEXTS)
        for sql in (*_OF_SESSIONS, _BLOBS_OF_TURNS, *_OF_SCOPES, _BLOBS_OF_SESSIONS):
            self._run(sql)

    def _find_context(self, which: int | str) -> int:
        """Return the id of a context by its id or name; a name is never a number."""
        sql = """
            SELECT context_id
            FROM contexts
            WHERE name = ?1
                OR context_id = CAST(?1 AS INTEGER) AND ?1 NOT GLOB '*[^0-9]*'
        """
        context_id: int | None = self._db.one(sql, (str(which),))
        if context_id is None:
            raise UnknownContextError(which)
        return context_id

    def add_artifact(self, scope: int, number: int) -> bool:
        """Select an artifact; return False if it was selected before, or is missing."""
        sql = """
            INSERT OR IGNORE INTO chosen_artifacts
            SELECT artifact_id
            FROM artifacts
            WHERE scope_id = ? AND number = ?
            RETURNING 1
        """
        return bool(self._run(sql, (scope, number)) and self._add_scope(scope))

    def _add_scope(self, scope: int) -> bool:
        if scope:
            self._run("INSERT OR IGNORE INTO chosen_scopes VALUES (?)", (scope,))
        return True

    def add_output(self, scope: int, output: str) -> list[bytes]:
        """Select all versions of an output; return the blobs that were not selected before.

        These are those of the versions and what they name, without parts; [] for no such output.
        """
        sql = """
            INSERT OR IGNORE INTO chosen_outputs
            SELECT DISTINCT scope_id, output_id
            FROM agent_outputs
            WHERE scope_id = ? AND output_id = ?
            RETURNING 1
        """
        if not self._run(sql, (scope, output)):
            return []
        self._add_scope(scope)
        blobs = _BLOBS_OF_OUTPUT
        new = [row[0] for row in self._run(blobs, (scope, output))]
        sql = """
            SELECT hash
            FROM json_each(?)
                JOIN blobs ON blob_id = value
            WHERE part = 0
        """
        return [row[0] for row in self._run(sql, (str(new),))]

    # --- what is chosen ---------------------------------------------------------------------------

    def blobs(self) -> Iterator[bytes]:
        """Yield the digest of every blob that is no part only, in the order they came."""
        sql = """
            SELECT blob_id, hash
            FROM chosen_blobs
                CROSS JOIN blobs USING (blob_id)
            WHERE blob_id > ? AND part = 0 AND codec < 3
            ORDER BY blob_id
            LIMIT ?
        """
        return (digest for _, digest in self._pages(sql))

    def turns(self, *, canonical: bool = False) -> Iterator[TurnCopy]:
        """Yield every turn, or those with a canonical rule, by id: no turn before its parent."""
        return map(_whole(TurnCopy), self._pages(_RULED_TURNS if canonical else _TURNS))

    def records(self, kind: type[Copied]) -> Iterator[Copied]:
        """Yield every record of a kind.

        Contexts and runs come by id, patches and attempts oldest first, roots by turn; pins,
        aliases, scopes, files and versions of outputs are sorted. A blob that names others
        comes once with each.
        """
        if kind is RefCopy:
            return self._refs()
        rows = self._pages(_RECORDS[kind], _KEYS.get(kind, _ONE))
        return map(_MAKERS.get(kind) or _whole(kind), rows)

    def _pages(self, sql: str, after: tuple[Any, ...] = _ONE) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement whose parameters are a key to go on after and a limit."""
        if not after:
            yield from self._run(sql)
        while after and (rows := self._run(sql, (*after, PAGE))):
            yield from rows
            after = rows[-1][: len(after)]

    def _refs(self) -> Iterator[Any]:
        """Yield every blob that names others, once with each of them."""
        holders = """
            SELECT blob_id, hash
            FROM chosen_blobs c
                CROSS JOIN blobs USING (blob_id)
            WHERE blob_id > ?
                AND EXISTS (SELECT 1 FROM blob_refs r WHERE r.blob_id = c.blob_id)
            ORDER BY blob_id
            LIMIT ?
        """
        named = """
            SELECT hash
            FROM blob_refs r
                JOIN blobs b ON b.blob_id = ref_id
            WHERE r.blob_id = ?
            ORDER BY 1
        """
        for blob_id, digest in self._pages(holders):
            yield from (RefCopy(digest, to) for (to,) in self._run(named, (blob_id,)))

    def artifacts(self) -> Iterator[tuple[int, int]]:
        """Yield scope and number of every artifact, in order."""
        sql = """
            SELECT scope_id, number
            FROM artifacts
                CROSS JOIN chosen_artifacts USING (artifact_id)
            WHERE (scope_id, number) > (?, ?)
            ORDER BY scope_id, number
            LIMIT ?
        """
        return self._pages(sql, (-1, 0))


def _whole(kind: type) -> Callable[[Any], Any]:
    """Return what makes a record of a whole row: `_make` takes three times as long."""
    return partial(tuple.__new__, kind)


_TURNS = """
SELECT turn_id, coalesce(parent_id, 0), depth, type_id, type_version, type_tag, encoding, flags,
    created_at_ms, canonical, hash, raw_len
FROM chosen_turns
    CROSS JOIN turns USING (turn_id)
    JOIN blobs USING (blob_id)
WHERE turn_id > ?
ORDER BY turn_id
LIMIT ?
"""
_RULED_TURNS = _TURNS.replace("WHERE", "WHERE canonical IS NOT NULL AND")
_ADD_TURN = """
INSERT INTO turns (
    turn_id, blob_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag,
    encoding, canonical, flags, created_at_ms
)
SELECT ?2, blob_id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
FROM blobs
WHERE hash = ?1 AND part = 0
"""
_ADD_CONTEXT = """
INSERT INTO contexts (
    context_id, head_id, base_id, flags, created_at_ms, updated_at_ms, name, fork_of, scope_id
)
VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
"""
_LABEL = """
UPDATE contexts
SET name = coalesce(?2, name), fork_of = coalesce(?3, fork_of)
WHERE context_id = ?1
"""
_ADD_PATCH = """
INSERT INTO turn_patches (turn_id, blob_id, flags, created_at_ms)
VALUES (?, ?, ?, ?)
"""
_ADD_ATTEMPT = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, ?, ?)"
_SET_RUN = """
INSERT INTO runs (context_id, name, grouped, status, start_id, completed_at_ms)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (context_id) DO UPDATE SET
    status = excluded.status,
    completed_at_ms = excluded.completed_at_ms
"""
_BESIDE: dict[type, str] = {
    AttemptCopy: """
    SELECT parent_id, hash, created_at_ms
    FROM run_attempts
        JOIN blobs USING (blob_id)
    WHERE parent_id = ?
    """,
    PatchCopy: """
    SELECT turn_id, hash, flags, created_at_ms
    FROM turn_patches
        LEFT JOIN blobs USING (blob_id)
    WHERE turn_id = ?
    """,
}
# Down from a turn. Those that are asked about in one import have nothing below them in common.
_REACHED = """
WITH RECURSIVE down (id) AS (
    SELECT ?1
    UNION ALL
    SELECT turn_id
    FROM down
        CROSS JOIN turns ON parent_id = id
)
SELECT 1
FROM down
    CROSS JOIN contexts ON head_id = id
LIMIT 1
"""
_CHOSEN = """
DROP TABLE IF EXISTS temp.chosen_contexts;
DROP TABLE IF EXISTS temp.chosen_turns;
DROP TABLE IF EXISTS temp.chosen_blobs;
DROP TABLE IF EXISTS temp.chosen_artifacts;
DROP TABLE IF EXISTS temp.chosen_outputs;
DROP TABLE IF EXISTS temp.chosen_scopes;
DROP TABLE IF EXISTS temp.chosen_sessions;

CREATE TEMP TABLE chosen_contexts (context_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE chosen_turns (turn_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE chosen_blobs (blob_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE chosen_artifacts (artifact_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE chosen_outputs (
    scope_id INTEGER,
    output_id TEXT,
    PRIMARY KEY (scope_id, output_id)
);
CREATE TEMP TABLE chosen_scopes (scope_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE chosen_sessions (session_id INTEGER PRIMARY KEY);
"""
_ALL = """
INSERT INTO chosen_contexts SELECT context_id FROM contexts;
INSERT INTO chosen_turns SELECT turn_id FROM turns;
INSERT INTO chosen_blobs SELECT blob_id FROM blobs;
INSERT INTO chosen_artifacts SELECT artifact_id FROM artifacts;
INSERT INTO chosen_outputs SELECT DISTINCT scope_id, output_id FROM agent_outputs;
INSERT INTO chosen_scopes SELECT scope_id FROM scopes;
INSERT INTO chosen_sessions SELECT session_id FROM sessions;
"""
# The chains of heads, of the turns that contexts began at, and of the starts of runs: a head may
# have been moved above these, or to another chain.
_TURNS_OF_CONTEXTS = """
WITH RECURSIVE found (id) AS (
    SELECT head_id
    FROM chosen_contexts
        CROSS JOIN contexts USING (context_id)
    WHERE head_id IS NOT NULL
    UNION
    SELECT base_id
    FROM chosen_contexts
        CROSS JOIN contexts USING (context_id)
    WHERE base_id IS NOT NULL
    UNION
    SELECT start_id
    FROM chosen_contexts
        CROSS JOIN runs USING (context_id)
    UNION
    SELECT parent_id
    FROM found
        CROSS JOIN turns ON turn_id = id
    WHERE parent_id IS NOT NULL
)
INSERT INTO chosen_turns
SELECT id
FROM found
"""
# Payloads, patches, attempts and roots of turns, and what these blobs name, however far that goes.
_BLOBS_OF_TURNS = """
WITH RECURSIVE found (id) AS (
    SELECT blob_id
    FROM chosen_turns
        CROSS JOIN turns USING (turn_id)
    UNION
    SELECT blob_id
    FROM turn_patches
    WHERE blob_id IS NOT NULL AND turn_id IN chosen_turns
    UNION
    SELECT blob_id
    FROM run_attempts
    WHERE parent_id IN chosen_turns
    UNION
    SELECT blob_id
    FROM turn_roots
        JOIN blobs ON hash = root
    WHERE turn_id IN chosen_turns
    UNION
    SELECT ref_id
    FROM found
        CROSS JOIN blob_refs ON blob_id = id
)
INSERT INTO chosen_blobs
SELECT id
FROM found
"""
# All versions of an output, and what they name; RETURNING tells those that were not chosen before.
_BLOBS_OF_OUTPUT = """
WITH RECURSIVE found (id) AS (
    SELECT blob_id
    FROM agent_outputs
    WHERE scope_id = ? AND output_id = ?
    UNION
    SELECT ref_id
    FROM found
        CROSS JOIN blob_refs ON blob_id = id
)
INSERT OR IGNORE INTO chosen_blobs
SELECT id
FROM found
RETURNING blob_id
"""
_OF_SCOPES = (
    """
    INSERT INTO chosen_scopes
    SELECT scope_id
    FROM scopes
    WHERE scope_id IN (
        SELECT coalesce(scope_id, context_id)
        FROM chosen_contexts
            CROSS JOIN contexts USING (context_id)
    )
    """,
    """
    INSERT INTO chosen_artifacts
    SELECT artifact_id
    FROM chosen_scopes
        CROSS JOIN artifacts USING (scope_id)
    """,
    """
    INSERT INTO chosen_outputs
    SELECT DISTINCT scope_id, output_id
    FROM chosen_scopes
        CROSS JOIN agent_outputs USING (scope_id)
    """,
    """
    WITH RECURSIVE found (id) AS (
        SELECT blob_id
        FROM chosen_scopes
            CROSS JOIN agent_outputs USING (scope_id)
        UNION
        SELECT blob_id
        FROM chosen_scopes
            CROSS JOIN files USING (scope_id)
        WHERE blob_id IS NOT NULL
        UNION
        SELECT ref_id
        FROM found
            CROSS JOIN blob_refs ON blob_id = id
    )
    INSERT OR IGNORE INTO chosen_blobs
    SELECT id
    FROM found
    """,
)
# The turns of all branches of a session come along, and its generations.
_OF_SESSIONS = (
    """
    INSERT INTO chosen_sessions
    SELECT session_id
    FROM sessions
    WHERE coalesce(owner, name) IN (
        SELECT coalesce(owner, name)
        FROM chosen_contexts
            CROSS JOIN session_tips USING (context_id)
            CROSS JOIN sessions USING (session_id)
    )
    """,
    """
    WITH RECURSIVE found (id) AS (
        SELECT turn_id
        FROM chosen_sessions
            CROSS JOIN session_lines USING (session_id)
        WHERE turn_id IS NOT NULL
        UNION
        SELECT parent_id
        FROM found
            CROSS JOIN turns ON turn_id = id
        WHERE parent_id IS NOT NULL
    )
    INSERT OR IGNORE INTO chosen_turns
    SELECT id
    FROM found
    """,
)
_BLOBS_OF_SESSIONS = """
WITH RECURSIVE found (id) AS (
    SELECT blob_id
    FROM chosen_sessions
        CROSS JOIN session_lines USING (session_id)
    UNION
    SELECT ref_id
    FROM found
        CROSS JOIN blob_refs ON blob_id = id
)
INSERT OR IGNORE INTO chosen_blobs
SELECT id
FROM found
"""
# A file comes along if what it is does: its artifact, its output, or its blob.
_FILES = """
SELECT scope_id, path, number, output, version, hash
FROM files f
    LEFT JOIN blobs USING (blob_id)
WHERE (scope_id, path) > (?, ?)
    AND CASE
        WHEN number IS NOT NULL
            THEN EXISTS (
                SELECT 1
                FROM artifacts a
                    CROSS JOIN chosen_artifacts USING (artifact_id)
                WHERE a.scope_id = f.scope_id AND a.number = f.number
            )
        WHEN output IS NOT NULL
            THEN EXISTS (
                SELECT 1
                FROM chosen_outputs o
                WHERE o.scope_id = f.scope_id AND o.output_id = f.output
            )
        ELSE f.blob_id IN chosen_blobs
    END
ORDER BY scope_id, path
LIMIT ?
"""
# How each kind of record is read. The key of a page is the first columns of the last row before it.
_RECORDS: dict[type, str] = {
    ContextCopy: """
        SELECT context_id, coalesce(head_id, 0), coalesce(depth, 0), c.flags, c.created_at_ms,
            name, fork_of, coalesce(c.scope_id, context_id)
        FROM chosen_contexts
            CROSS JOIN contexts c USING (context_id)
            LEFT JOIN turns ON turn_id = head_id
        WHERE context_id > ?
        ORDER BY context_id
        LIMIT ?
    """,
    ErasedCopy: """
        SELECT blob_id, hash, raw_len, coalesce(bytes, x''), reason, coalesce(at_ms, 0)
        FROM chosen_blobs
            CROSS JOIN blobs USING (blob_id)
            LEFT JOIN blob_bytes USING (blob_id)
            LEFT JOIN erased_blobs USING (blob_id)
            LEFT JOIN erasures USING (erasure_id)
        WHERE blob_id > ? AND codec = 3
        ORDER BY blob_id
        LIMIT ?
    """,
    PatchCopy: """
        SELECT seq, turn_id, hash, p.flags, p.created_at_ms
        FROM turn_patches p
            CROSS JOIN chosen_turns USING (turn_id)
            LEFT JOIN blobs USING (blob_id)
        WHERE seq > ?
        ORDER BY seq
        LIMIT ?
    """,
    RootCopy: """
        SELECT turn_id, root
        FROM turn_roots
            CROSS JOIN chosen_turns USING (turn_id)
        WHERE turn_id > ?
        ORDER BY turn_id
        LIMIT ?
    """,
    RunCopy: """
        SELECT context_id, name, grouped, status, start_id, completed_at_ms
        FROM runs
            CROSS JOIN chosen_contexts USING (context_id)
        WHERE context_id > ?
        ORDER BY context_id
        LIMIT ?
    """,
    AttemptCopy: """
        SELECT attempt_id, parent_id, hash, created_at_ms
        FROM run_attempts
            CROSS JOIN chosen_turns ON turn_id = parent_id
            CROSS JOIN blobs USING (blob_id)
        WHERE attempt_id > ?
        ORDER BY attempt_id
        LIMIT ?
    """,
    PinCopy: """
        SELECT name, hash
        FROM pins
            JOIN blobs USING (blob_id)
        WHERE blob_id IN chosen_blobs
        ORDER BY 1, 2
    """,
    AliasCopy: """
        SELECT hash, sha256
        FROM blob_names
            JOIN blobs USING (blob_id)
        WHERE blob_id IN chosen_blobs AND codec < 3
        ORDER BY 1, 2
    """,
    OutputCopy: """
        SELECT scope_id, output_id, version, hash, created_at_ms
        FROM agent_outputs
            CROSS JOIN chosen_outputs USING (scope_id, output_id)
            CROSS JOIN blobs USING (blob_id)
        WHERE (scope_id, output_id, version) > (?, ?, ?)
        ORDER BY scope_id, output_id, version
        LIMIT ?
    """,
    ScopeRow: """
        SELECT scope_id, name, created_at_ms
        FROM chosen_scopes
            CROSS JOIN scopes USING (scope_id)
        WHERE scope_id > ?
        ORDER BY scope_id
        LIMIT ?
    """,
    SessionCopy: """
        SELECT session_id, name, generation, tool, size, digest, owner, path, started_by
        FROM chosen_sessions
            CROSS JOIN sessions USING (session_id)
        WHERE session_id > ?
        ORDER BY session_id
        LIMIT ?
    """,
    LineCopy: """
        SELECT session_id, position, hash, form, before, after, is_node, entry, parent, kind,
            response, agent, coalesce(turn_id, 0)
        FROM session_lines
            CROSS JOIN blobs USING (blob_id)
        WHERE (session_id, position) > (?, ?)
            AND session_id IN (SELECT session_id FROM chosen_sessions)
            AND position < (
                SELECT lines
                FROM sessions s
                WHERE s.session_id = session_lines.session_id
            )
        ORDER BY session_id, position
        LIMIT ?
    """,
    TipCopy: """
        SELECT context_id, session_id, turn_id
        FROM session_tips
            CROSS JOIN chosen_contexts USING (context_id)
        WHERE context_id > ?
        ORDER BY context_id
        LIMIT ?
    """,
    FileCopy: _FILES,
}
# The key before the first row, where that is not one number; with () there is one page.
_KEYS: dict[type, tuple[int | str, ...]] = {
    AliasCopy: (),
    FileCopy: (-1, ""),
    LineCopy: (-1, 0),
    OutputCopy: (-1, "", 0),
    PinCopy: (),
}
# What makes a record of a row, where that is not the row itself.
_MAKERS: dict[type, Callable[[Any], Any]] = {
    AttemptCopy: lambda row: AttemptCopy(*row[1:]),
    ErasedCopy: lambda row: ErasedCopy(*row[1:]),
    FileCopy: lambda row: FileCopy(row[0], FileRow(*row[1:])),
    PatchCopy: lambda row: PatchCopy(*row[1:]),
}
