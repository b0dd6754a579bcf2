"""Export and import: whole tables in pages, and how imported rows are recognised."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TypeVar

from eventq.errors import UnknownContextError, UnknownTurnError
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
from eventq.store.reach import ALL, FIRST, MANY, Ids, Reach, every, found, pages
from eventq.store.rules import link
from eventq.store.usage_rows import UsageCopy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.store.copy_rows import Restorable
    from eventq.store.engine import Engine

    Link = tuple[int, int | None, int | None]  # depth, jump, and depth of that
    Copied = TypeVar("Copied", bound="tuple[Any, ...]")  # a kind of record of `copied`


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
        their scopes, but for the thread's. Called inside `read`. Raises
        UnknownContextError.
        """
        return Selection(self._db, contexts)

    # --- what is there ----------------------------------------------------------------------------

    def alike(self, parent: int, digest: bytes, limit: int | None = None) -> list[TurnCopy]:
        """Return the turns of a parent, 0 for none, and a payload, oldest first."""
        sql = """
            SELECT t.turn_id, coalesce(t.parent_id, 0), t.depth, t.type_id, t.type_version,
                t.type_tag, t.encoding, t.flags, t.created_at_ms, t.canonical, b.hash, 0
            FROM blobs b
                CROSS JOIN turns t ON t.blob_id = b.blob_id
            WHERE b.hash = ?2 AND t.parent_id IS CAST(?1 AS INTEGER)
            ORDER BY t.turn_id
            LIMIT ?3
        """
        rows = self._run(sql, (parent or None, digest, 1 << 32 if limit is None else limit))
        return [*map(TurnCopy._make, rows)]

    def among(self, first: int, last: int, limit: int) -> list[TurnCopy]:
        """Return the turns from an id to another, in order."""
        sql = """
            SELECT t.turn_id, coalesce(t.parent_id, 0), t.depth, t.type_id, t.type_version,
                t.type_tag, t.encoding, t.flags, t.created_at_ms, t.canonical, b.hash, 0
            FROM turns t
                CROSS JOIN blobs b ON b.blob_id = t.blob_id
            WHERE t.turn_id >= ? AND t.turn_id <= ?
            ORDER BY t.turn_id
            LIMIT ?
        """
        return [*map(TurnCopy._make, self._run(sql, (first, last, limit)))]

    def beside(self, turn: int, kind: type[Copied]) -> list[Copied]:
        """Return the patches on a turn, or the attempts after it, in no order."""
        return [*map(_whole(kind), self._run(_BESIDE[kind], (turn,)))]

    def is_reached(self, turn: int) -> bool:
        """Return whether a context has a turn on its chain."""
        return bool(self._run(_REACHED, (turn,)))

    def sources(self) -> list[tuple[int, str]]:
        """Return the runs that report their changes from a source of their own, with that."""
        return self._run("SELECT context_id, source FROM runs WHERE source IS NOT NULL")

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
            for kind, some in groupby(records, type):
                if kind is TurnCopy:
                    self._add_turns([one for one in some if isinstance(one, TurnCopy)])
                else:
                    for record in some:
                        self._store(record)

    def _store(self, record: Restorable) -> None:
        match record:
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

    def _add_turns(self, turns: Sequence[TurnCopy]) -> None:
        """Store turns together: a server may be far away."""
        links: dict[int, Link] = {}
        rows = []
        for new in turns:
            links[new.turn] = place = link(new.parent, self._above(new.parent, links))
            rows.append(
                (new.turn, new.digest, new.parent or None, *place, new.type_id, new.type_version,
                 new.type_tag, new.encoding, new.canonical, new.flags, new.at)
            )  # fmt: skip
        if self._db.many(_ADD_TURN, rows) != len(rows):
            for new in turns:
                self._db.blobs.row_id(new.digest)  # which says what is missing
        last = max(links)
        if last > self._db.last_id("turns"):
            self._db.reserve("turns", last)

    def _above(self, parent: int, links: dict[int, Link]) -> Sequence[Any]:
        """Return what the link of a child follows from, see `link`; `links` are known ones."""
        if not parent:
            return ()
        depth, jump, jump_depth = self._link(parent, links)
        far = self._link(jump, links)[1:] if jump else (None, None)
        return depth, jump_depth, *far

    def _link(self, turn: int, links: dict[int, Link]) -> Link:
        if turn not in links:
            sql = "SELECT depth, jump_id, jump_depth FROM turns WHERE turn_id = ?"
            rows = self._run(sql, (turn,))
            if not rows:
                raise UnknownTurnError(turn)
            links[turn] = rows[0]
        return links[turn]

    def _add_context(self, new: ContextCopy) -> None:
        head, now = new.head or None, self._db.milliseconds()
        rest = (new.name, new.fork_of, new.scope)
        self._run(_ADD_CONTEXT, (new.context, head, new.flags, new.at, now, *rest))

    def _add_patch(self, new: PatchCopy) -> None:
        blob_id = None if new.digest is None else self._db.blobs.row_id(new.digest)
        self._run(_ADD_PATCH, (new.turn, blob_id, new.flags, new.at))

    def set_sources(self, rows: Sequence[tuple[int, str]]) -> None:
        """Let runs that have none report their changes from a source, inside `write`."""
        self._db.many("UPDATE runs SET source = ?2 WHERE context_id = ?1 AND source IS NULL", rows)

    def reserve(self, *, turn: int = 0, context: int = 0) -> None:
        """Reserve all ids of turns and contexts up to these."""
        last = self.last_ids()
        wanted = ("turns", turn, last.turn), ("contexts", context, last.context)
        for table, number, there in wanted:
            if number > there:
                self._db.reserve(table, number)


class Selection:
    """The objects to be copied: everything, or what some contexts lead to.

    They are read in the snapshot of one `read`, by pages of ids: of those in a table, or chosen.
    """

    def __init__(self, db: Engine, contexts: Iterable[int | str] | None) -> None:
        """Choose contexts and what they lead to, or everything. Raises UnknownContextError."""
        self._db, self._run = db, db.run
        self._is_all = contexts is None
        self._reach = reach = Reach(db, parts=False)
        self._ids = {name: Ids() for name in ("contexts", "scopes", "sessions")}
        self._ids |= {"turns": reach.turns, "blobs": reach.blobs}
        self._full = Ids()  # scopes all of which is chosen
        self._single: set[tuple[int, int | str]] = set()  # artifacts and outputs in other scopes
        if contexts is not None:
            self._choose(self._ids["contexts"].add(map(self._find_context, contexts)))

    def _choose(self, contexts: Sequence[int]) -> None:
        for ids, sql in ((self._full, _SCOPES), (self._ids["sessions"], _SESSIONS)):
            for rows in found(self._run, sql, contexts):
                ids.add([one for (one,) in rows])
        self._ids["scopes"].add(self._full)
        for rows in found(self._run, _STANDS, contexts):
            self._reach.add_turns([turn for (turn,) in rows])
        self._reach.add_sessions(self._ids["sessions"].spans())
        self._reach.add_scopes(self._full.spans())

    def _find_context(self, which: int | str) -> int:
        """Return the id of a context by its id or name; a name is never a number."""
        name, contexts = str(which), self._db.contexts
        context_id = contexts.named(name)
        if context_id is None and name.isascii() and name.isdigit():
            number = int(name.lstrip("0")[:20] or 0)
            if number < 1 << 63 and contexts.head(number) is not None:
                context_id = number
        if context_id is None:
            raise UnknownContextError(which)
        return context_id

    def add_artifact(self, scope: int, number: int) -> bool:
        """Select an artifact; return False if it was selected before, or is missing."""
        sql = "SELECT 1 FROM artifacts WHERE scope_id = ? AND number = ?"
        return not self._has(scope, number) and bool(self._add(sql, scope, number))

    def add_output(self, scope: int, output: str) -> list[bytes]:
        """Select all versions of an output; return the blobs that were not selected before.

        These are those of the versions and what they name, without parts; [] for no such output.
        """
        sql = "SELECT blob_id FROM agent_outputs WHERE scope_id = ? AND output_id = ?"
        if self._has(scope, output):
            return []
        new = self._reach.add_blobs([blob for (blob,) in self._add(sql, scope, output)])
        return self._reach.digests(new)

    def _add(self, sql: str, scope: int, name: int | str) -> list[Any]:
        """Select an artifact or output if a statement finds it; return what that finds."""
        rows = self._run(sql, (scope, name))
        if rows:
            self._single.add((scope, name))
            self._ids["scopes"].add([scope] if scope else ())
        return rows

    def _has(self, scope: int, name: int | str) -> bool:
        """Return whether an artifact or output is selected, if it is there."""
        return self._is_all or scope in self._full or (scope, name) in self._single

    # --- what is chosen ---------------------------------------------------------------------------

    def has_turn(self, turn: int) -> bool:
        """Return whether a turn that is there is chosen."""
        return self._is_all or turn in self._ids["turns"]

    def blobs(self) -> Iterator[bytes]:
        """Yield the digest of every blob that is no part only, in the order they came."""
        return (digest for _, digest in self._rows(*_BLOBS))

    def turns(self, *, canonical: bool = False) -> Iterator[TurnCopy]:
        """Yield every turn, or those with a canonical rule, by id: no turn before its parent."""
        return map(_whole(TurnCopy), self._rows(*(_RULED_TURNS if canonical else _TURNS)))

    def records(self, kind: type[Copied]) -> Iterator[Copied]:
        """Yield every record of a kind.

        Contexts and runs come by id, patches and attempts oldest first, roots by turn; pins,
        aliases, scopes, files and versions of outputs are sorted. A blob that names others
        comes once with each.
        """
        lists = {FileCopy: self._files, LineCopy: self._lines, OutputCopy: self._outputs}
        rows = lists[kind]() if kind in lists else self._rows(*_RECORDS[kind])
        if kind in (AliasCopy, PinCopy):
            rows = iter(sorted(rows))
        make = _whole(kind)
        return (make(row[1:]) for row in rows) if kind in _KEYED else map(make, rows)

    def _rows(self, sql: str, of: str, every: str, via: str = "") -> Iterator[Any]:
        """Yield the rows of a statement for the ids of `every`, or for those chosen, in order.

        It is for the rows that `via` finds for what is chosen, if that is not its own ids.
        """
        ids: Iterable[int] = self._ids[of]
        if self._is_all:
            # Not by DISTINCT: an engine may look at the whole table for each page.
            ids = (one for rows in pages(self._run, every, FIRST) for (one,) in dict.fromkeys(rows))
        elif via:
            ids = Ids()
            for rows in found(self._run, via, self._ids[of]):
                ids.add([one for (one,) in rows])
        for rows in found(self._run, sql, ids):
            yield from sorted(rows)

    def _between(self, sql: str, spans: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        """Yield the rows of a statement after a key and up to another, in order."""
        for after, upto in sorted(spans):
            for rows in pages(self._run, sql, after, *upto):
                yield from rows

    def _spans(self, ids: Ids) -> Iterable[tuple[int, int]]:
        return ALL if self._is_all else ids.spans()

    def artifacts(self) -> Iterator[tuple[int, int]]:
        """Yield scope and number of every artifact, in order."""
        spans = [((first, -1), (last, MANY)) for first, last in self._spans(self._full)]
        spans += [((at, one - 1), (at, one)) for at, one in self._single if isinstance(one, int)]
        return self._between(_ARTIFACTS, spans)

    def _outputs(self) -> Iterator[Any]:
        spans = [((first, "", 0), (last + 1, "")) for first, last in self._spans(self._full)]
        spans += [((at, one, 0), (at, one)) for at, one in self._single if isinstance(one, str)]
        return self._between(_OUTPUTS, spans)

    def _lines(self) -> Iterator[Any]:
        spans = self._spans(self._ids["sessions"])
        return self._between(_LINES, [((first, -1), (last,)) for first, last in spans])

    def _files(self) -> Iterator[Any]:
        """Yield the files of all scopes that come along: their artifacts, outputs or blobs do."""
        for scope, *file, blob_id in self._between(_FILES, [((-1, ""), ())]):
            _, number, output, *_ = file
            if self._is_all or (
                self._has(scope, output if number is None else number)
                if blob_id is None
                else blob_id in self._reach.blobs
            ):
                yield scope, FileRow(*file)


def _whole(kind: type) -> Callable[[Any], Any]:
    """Return what makes a record of a whole row: `_make` takes three times as long."""
    return partial(tuple.__new__, kind)


_ADD_TURN = """
INSERT INTO turns (
    turn_id, blob_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag,
    encoding, canonical, flags, created_at_ms
)
SELECT ?1, blob_id, CAST(?3 AS INTEGER), ?4, CAST(?5 AS INTEGER), CAST(?6 AS INTEGER), ?7, ?8,
    CAST(?9 AS INTEGER), ?10, CAST(?11 AS TEXT), ?12, ?13
FROM blobs
WHERE hash = ?2 AND part = 0
"""
_ADD_CONTEXT = """
INSERT INTO contexts (
    context_id, head_id, base_id, flags, created_at_ms, updated_at_ms, name, fork_of, scope_id
)
VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
"""
_LABEL = """
UPDATE contexts
SET name = coalesce(CAST(?2 AS TEXT), name),
    fork_of = coalesce(CAST(?3 AS INTEGER), fork_of)
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
        CROSS JOIN blobs USING (blob_id)
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
    SELECT CAST(?1 AS INTEGER)
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
# The heads of contexts, the turns that they began at, and the starts of runs: a head may have been
# moved above these, or to another chain.
_STANDS = """
SELECT c.head_id
FROM json_each(?1)
    CROSS JOIN contexts c ON c.context_id = CAST(value AS INTEGER)
UNION ALL
SELECT c.base_id
FROM json_each(?1)
    CROSS JOIN contexts c ON c.context_id = CAST(value AS INTEGER)
UNION ALL
SELECT r.start_id
FROM json_each(?1)
    CROSS JOIN runs r ON r.context_id = CAST(value AS INTEGER)
LIMIT ?2
"""
_SCOPES = """
SELECT s.scope_id
FROM json_each(?1)
    CROSS JOIN contexts c ON c.context_id = CAST(value AS INTEGER)
    CROSS JOIN scopes s ON s.scope_id = coalesce(c.scope_id, c.context_id)
LIMIT ?2
"""
# All branches of a session come along, and its generations and subagents.
_SESSIONS = """
SELECT session_id
FROM sessions
WHERE coalesce(owner, name) IN (
    SELECT coalesce(s.owner, s.name)
    FROM json_each(?1)
        CROSS JOIN session_tips t ON t.context_id = CAST(value AS INTEGER)
        CROSS JOIN sessions s ON s.session_id = t.session_id
)
LIMIT ?2
"""
_ARTIFACTS = """
SELECT scope_id, number
FROM artifacts
WHERE (scope_id, number) > (?1, ?2) AND (scope_id, number) <= (?3, ?4)
ORDER BY scope_id, number
LIMIT ?5
"""
_OUTPUTS = """
SELECT o.scope_id, o.output_id, o.version, b.hash, o.created_at_ms
FROM agent_outputs o
    CROSS JOIN blobs b ON b.blob_id = o.blob_id
WHERE (o.scope_id, o.output_id, o.version) > (?1, ?2, ?3)
    AND (o.scope_id, o.output_id) <= (?4, ?5)
ORDER BY o.scope_id, o.output_id, o.version
LIMIT ?6
"""
_LINES = """
SELECT l.session_id, l.position, b.hash, l.form, l.before, l.after, l.is_node, l.entry, l.parent,
    l.kind, l.response, l.agent, coalesce(l.turn_id, 0)
FROM session_lines l
    CROSS JOIN blobs b ON b.blob_id = l.blob_id
    CROSS JOIN sessions s ON s.session_id = l.session_id
WHERE (l.session_id, l.position) > (?1, ?2) AND l.session_id <= ?3 AND l.position < s.lines
ORDER BY l.session_id, l.position
LIMIT ?4
"""
# Those whose artifact or output is there.
_FILES = """
SELECT f.scope_id, f.path, f.number, f.output, f.version, b.hash, f.blob_id
FROM files f
    LEFT JOIN blobs b ON b.blob_id = f.blob_id
    LEFT JOIN artifacts a ON a.scope_id = f.scope_id AND a.number = f.number
    LEFT JOIN agent_outputs o
        ON o.scope_id = f.scope_id AND o.output_id = f.output AND o.version = f.version
WHERE (f.scope_id, f.path) > (?1, ?2)
    AND coalesce(f.blob_id, a.artifact_id, o.version) IS NOT NULL
ORDER BY f.scope_id, f.path
LIMIT ?3
"""
# How each kind of record is read: its rows for a list of ids, of which those are chosen, and all
# there are; and how they are found from those chosen, if they are others. Rows begin with the id.
_TURNS = (
    """
    SELECT t.turn_id, coalesce(t.parent_id, 0), t.depth, t.type_id, t.type_version, t.type_tag,
        t.encoding, t.flags, t.created_at_ms, t.canonical, b.hash, b.raw_len
    FROM json_each(?1)
        CROSS JOIN turns t ON t.turn_id = CAST(value AS INTEGER)
        CROSS JOIN blobs b ON b.blob_id = t.blob_id
    LIMIT ?2
    """,
    "turns",
    every("turn_id", "turns"),
)
_RULED_TURNS = (
    _TURNS[0].replace("LIMIT", "WHERE t.canonical IS NOT NULL\n    LIMIT"),
    "turns",
    every("turn_id", "turns", "canonical IS NOT NULL"),
)
_BLOBS = (
    """
    SELECT b.blob_id, b.hash
    FROM json_each(?1)
        CROSS JOIN blobs b ON b.blob_id = CAST(value AS INTEGER)
    WHERE b.part = 0 AND b.codec < 3
    LIMIT ?2
    """,
    "blobs",
    every("blob_id", "blobs"),
)
_RECORDS: dict[type, tuple[str, str, str] | tuple[str, str, str, str]] = {
    ContextCopy: (
        """
        SELECT c.context_id, coalesce(c.head_id, 0), coalesce(t.depth, 0), c.flags,
            c.created_at_ms, c.name, c.fork_of, coalesce(c.scope_id, c.context_id)
        FROM json_each(?1)
            CROSS JOIN contexts c ON c.context_id = CAST(value AS INTEGER)
            LEFT JOIN turns t ON t.turn_id = c.head_id
        LIMIT ?2
        """,
        "contexts",
        every("context_id", "contexts"),
    ),
    RunCopy: (
        """
        SELECT r.context_id, r.name, r.grouped, r.status, r.start_id, r.completed_at_ms
        FROM json_each(?1)
            CROSS JOIN runs r ON r.context_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "contexts",
        every("context_id", "runs"),
    ),
    TipCopy: (
        """
        SELECT t.context_id, t.session_id, t.turn_id
        FROM json_each(?1)
            CROSS JOIN session_tips t ON t.context_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "contexts",
        every("context_id", "session_tips"),
    ),
    RootCopy: (
        """
        SELECT r.turn_id, r.root
        FROM json_each(?1)
            CROSS JOIN turn_roots r ON r.turn_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "turns",
        every("turn_id", "turn_roots"),
    ),
    UsageCopy: (
        """
        SELECT u.turn_id, u.response, u.session_id, u.context_id, u.agent, u.at_ms, u.model, u.out,
            u.fresh, u.cached
        FROM json_each(?1)
            CROSS JOIN usage u ON u.turn_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "turns",
        every("turn_id", "usage"),
    ),
    PatchCopy: (
        """
        SELECT p.seq, p.turn_id, b.hash, p.flags, p.created_at_ms
        FROM json_each(?1)
            CROSS JOIN turn_patches p ON p.seq = CAST(value AS INTEGER)
            LEFT JOIN blobs b ON b.blob_id = p.blob_id
        LIMIT ?2
        """,
        "turns",
        every("seq", "turn_patches"),
        """
        SELECT p.seq
        FROM json_each(?1)
            CROSS JOIN turn_patches p ON p.turn_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
    ),
    AttemptCopy: (
        """
        SELECT a.attempt_id, a.parent_id, b.hash, a.created_at_ms
        FROM json_each(?1)
            CROSS JOIN run_attempts a ON a.attempt_id = CAST(value AS INTEGER)
            CROSS JOIN blobs b ON b.blob_id = a.blob_id
        LIMIT ?2
        """,
        "turns",
        every("attempt_id", "run_attempts"),
        """
        SELECT a.attempt_id
        FROM json_each(?1)
            CROSS JOIN run_attempts a ON a.parent_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
    ),
    RefCopy: (
        """
        SELECT r.blob_id, b.hash, n.hash
        FROM json_each(?1)
            CROSS JOIN blob_refs r ON r.blob_id = CAST(value AS INTEGER)
            CROSS JOIN blobs b ON b.blob_id = r.blob_id
            CROSS JOIN blobs n ON n.blob_id = r.ref_id
        LIMIT ?2
        """,
        "blobs",
        every("blob_id", "blob_refs"),
    ),
    ErasedCopy: (
        """
        SELECT b.blob_id, b.hash, b.raw_len, coalesce(y.bytes, x''), x.reason,
            coalesce(x.at_ms, 0)
        FROM json_each(?1)
            CROSS JOIN blobs b ON b.blob_id = CAST(value AS INTEGER)
            LEFT JOIN blob_bytes y ON y.blob_id = b.blob_id
            LEFT JOIN erased_blobs e ON e.blob_id = b.blob_id
            LEFT JOIN erasures x ON x.erasure_id = e.erasure_id
        WHERE b.codec = 3
        LIMIT ?2
        """,
        "blobs",
        every("blob_id", "blobs", "codec = 3"),
    ),
    PinCopy: (
        """
        SELECT p.name, b.hash
        FROM json_each(?1)
            CROSS JOIN pins p ON p.blob_id = CAST(value AS INTEGER)
            CROSS JOIN blobs b ON b.blob_id = p.blob_id
        LIMIT ?2
        """,
        "blobs",
        every("blob_id", "pins"),
    ),
    AliasCopy: (
        """
        SELECT b.hash, n.sha256
        FROM json_each(?1)
            CROSS JOIN blob_names n ON n.blob_id = CAST(value AS INTEGER)
            CROSS JOIN blobs b ON b.blob_id = n.blob_id
        WHERE b.codec < 3
        LIMIT ?2
        """,
        "blobs",
        every("blob_id", "blob_names"),
    ),
    ScopeRow: (
        """
        SELECT s.scope_id, s.name, s.created_at_ms
        FROM json_each(?1)
            CROSS JOIN scopes s ON s.scope_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "scopes",
        every("scope_id", "scopes"),
    ),
    SessionCopy: (
        """
        SELECT s.session_id, s.name, s.generation, s.tool, s.size, s.digest, s.owner, s.path,
            s.started_by
        FROM json_each(?1)
            CROSS JOIN sessions s ON s.session_id = CAST(value AS INTEGER)
        LIMIT ?2
        """,
        "sessions",
        every("session_id", "sessions"),
    ),
}
# Those whose rows begin with an id that is not of the record.
_KEYED = (AttemptCopy, ErasedCopy, PatchCopy, RefCopy)
