"""Workflow runs: the statuses of contexts, and failed attempts."""

from __future__ import annotations

from eventq.errors import UnknownRunError
from eventq.records.run import RunChange, RunInfo
from eventq.store.rules import KEY_MS, RUNS_EMIT, event_of_run, status_conflict
from eventq.store.run_rows import RunState
from eventq.system.clock import stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from eventq.store.engine import Engine
    from eventq.store.run_rows import PreparedAttempt, PreparedRun, PreparedStep, RunChoice
    from eventq.store.turn_rows import TurnRow

# ruff: noqa: S608 (the parts are constants)

# The fields of `RunInfo`: of a run, its context, its head and its start, with their blobs.
_FIELDS = """
    r.context_id, r.name, r.grouped, r.status, coalesce(h.turn_id, 0), coalesce(h.depth, 0),
    coalesce('blob:blake3:' || lower(hex(hb.hash)), ''), 'blob:blake3:' || lower(hex(sb.hash)),
    c.fork_of, c.updated_at_ms, r.completed_at_ms, c.name
"""
_FROM = """
FROM runs r
    CROSS JOIN contexts c USING (context_id)
    LEFT JOIN turns h ON h.turn_id = c.head_id
    LEFT JOIN blobs hb ON hb.blob_id = h.blob_id
    CROSS JOIN turns s ON s.turn_id = r.start_id
    CROSS JOIN blobs sb ON sb.blob_id = s.blob_id
"""
_RUN = f"SELECT {_FIELDS}{_FROM}"
_GET = f"""
{_RUN}
WHERE r.context_id = ?
"""
# The pages of a choice; each has an index of its own.
_ALL = f"""
{_RUN}
WHERE r.context_id > ?1
    AND (CAST(?2 AS TEXT) IS NULL OR r.grouped = ?2)
    AND CAST(?4 AS TEXT) IS NULL
ORDER BY r.context_id
LIMIT ?3
"""
_ACTIVE = f"""
{_RUN}
WHERE r.status IN ('active', 'suspended')
    AND r.context_id > ?1
    AND (CAST(?2 AS TEXT) IS NULL OR r.grouped = ?2)
    AND CAST(?4 AS TEXT) IS NULL
ORDER BY r.context_id
LIMIT ?3
"""
_DAY = f"""
{_RUN}
WHERE r.completed_on = ?4
    AND r.context_id > ?1
    AND (CAST(?2 AS TEXT) IS NULL OR r.grouped = ?2)
ORDER BY r.context_id
LIMIT ?3
"""
# The newest first, with the time at which each began: those under way, those that ended.
_NEWEST_ACTIVE = f"""
SELECT {_FIELDS}, c.created_at_ms
{_FROM}
WHERE r.status IN ('active', 'suspended')
    AND r.context_id < ?1
ORDER BY r.context_id DESC
LIMIT ?2
"""
_NEWEST_ENDED = f"""
SELECT {_FIELDS}, c.created_at_ms
{_FROM}
WHERE r.status IN ('completed', 'cancelled')
    AND r.context_id < ?1
ORDER BY r.context_id DESC
LIMIT ?2
"""
# Of a run, with the turn that each leaves it at.
_FORKS = f"""
SELECT {_FIELDS}, coalesce(c.base_id, 0)
{_FROM}
WHERE r.context_id IN (
        SELECT context_id
        FROM contexts
        WHERE fork_of = ?1
        ORDER BY context_id DESC
        LIMIT ?2
    )
ORDER BY r.context_id DESC
"""
_AMONG = f"""
{_RUN}
WHERE r.context_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))
"""
_ENDED = f"""
{_RUN}
WHERE r.completed_on >= ?1 AND r.completed_at_ms >= ?2
ORDER BY r.completed_on DESC, r.context_id DESC
LIMIT ?3
"""
# Number and op of changes, with the run as it is; without its fields if it is gone.
_CHANGES = """
SELECT n.change_id, n.op, n.run_id, r.context_id, r.name, r.grouped, r.status,
    coalesce(h.turn_id, 0), coalesce(h.depth, 0),
    coalesce('blob:blake3:' || lower(hex(hb.hash)), ''), 'blob:blake3:' || lower(hex(sb.hash)),
    c.fork_of, c.updated_at_ms, r.completed_at_ms, c.name
FROM run_changes n
    LEFT JOIN runs r ON r.context_id = n.run_id
    LEFT JOIN contexts c ON c.context_id = r.context_id
    LEFT JOIN turns h ON h.turn_id = c.head_id
    LEFT JOIN blobs hb ON hb.blob_id = h.blob_id
    LEFT JOIN turns s ON s.turn_id = r.start_id
    LEFT JOIN blobs sb ON sb.blob_id = s.blob_id
WHERE n.change_id > ?1
    AND n.change_id <= ?2
    AND (CAST(?3 AS TEXT) IS NULL OR coalesce(r.grouped, n.grouped) = ?3)
ORDER BY n.change_id
LIMIT ?4
"""
# Who reports the changes of a run; NULL for nobody.
_SOURCE = f"coalesce(source, (SELECT value FROM settings WHERE name = '{RUNS_EMIT}'))"
_START = f"""
INSERT INTO runs (context_id, name, grouped, start_id, source)
VALUES (?, ?, ?, ?, ?)
RETURNING {_SOURCE}
"""
_FORK = f"""
INSERT INTO runs (context_id, name, grouped, start_id, source)
SELECT ?, name, grouped, start_id, source
FROM runs
WHERE context_id = ?
RETURNING {_SOURCE}
"""
# Ahead of a change: a `RunState`, who reports the change, and what `Turns.add` asks for.
_AHEAD = f"""
SELECT r.status, coalesce(c.head_id, 0), r.start_id, b.hash,
    (
        SELECT coalesce(max(attempt_id), 0)
        FROM run_attempts
        WHERE parent_id = c.head_id
    ),
    coalesce(k.turn_id, 0),
    {_SOURCE},
    c.version, p.depth, p.jump_depth, j.jump_id, j.jump_depth
FROM runs r
    CROSS JOIN contexts c USING (context_id)
    LEFT JOIN turns p ON p.turn_id = c.head_id
    LEFT JOIN blobs b ON b.blob_id = p.blob_id
    LEFT JOIN turns j ON j.turn_id = p.jump_id
    LEFT JOIN turn_keys k ON k.context_id = ?1 AND k.key = ?2 AND k.created_at_ms >= ?3
WHERE r.context_id = ?1
"""


class Runs:
    """Workflow runs: contexts with a status, whose turns are steps.

    Each change of a run is noted under a number of its own, which is higher than all before it. It
    stores an event in the same transaction, if the run has a source, or the setting `runs.emit`
    names one.
    """

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run
        self._one = db.one
        self._turns = db.turns

    # --- changes ----------------------------------------------------------------------------------

    def start(self, new: PreparedRun) -> int:
        """Store a run, its context, its texts and its first turn; return its id.

        Raises ConflictError for a label that is taken, UnknownBlobError, GoneError.
        """
        with self._db.write():
            now = self._db.milliseconds()
            for text in new.texts:
                self._db.blobs.keep(text, now)
            run_id = self._db.contexts.create(new.label, 0, None)
            state = (0, 0, False, None, None)
            start = self._turns.add(run_id, state, new.first, new.to, now)
            values = (run_id, new.name, new.group, start.turn, new.source)
            self._tell(run_id, "start", self._one(_START, values))
            return run_id

    def fork(self, run_id: int, at: int, label: str | None) -> int:
        """Store a run that goes on from a turn of another, and has its source; return its id.

        Raises ConflictError for a label that is taken, UnknownRunError.
        """
        with self._db.write():
            if not self.has(run_id):
                raise UnknownRunError(run_id)
            made = self._db.contexts.create(label, at, run_id)
            self._tell(made, "fork", self._one(_FORK, (made, run_id)))
            return made

    def step(self, run_id: int, new: PreparedStep) -> TurnRow | None:
        """Store a step: its blobs, its attempts, its turn and the run's status, as one change.

        None, and nothing is stored, when the run does not stand where `new.after` says. Raises
        ConflictError for a head that is not the expected one, UnknownRunError, UnknownBlobError,
        GoneError.
        """
        with self._db.write(at_once=False):
            found = self._ahead(run_id, new.to.key)
            if found[:6] != new.after:
                return None
            now = self._db.milliseconds()
            blobs = (*new.blobs, *new.attempts, new.turn.blob)
            *kept, turn = self._turns.keep_all(blobs, now)
            if new.replaces:
                found = self._take_back(run_id, found, now)
            for attempt in kept[len(new.blobs) :]:
                self._add_attempt(found[1], attempt, now)
            for spent in new.spent:
                self._db.usage.of_turn(run_id, found[1], spent, now)
            state = (found[1], found[7], True, None, None, *found[8:])
            made = self._turns.add(run_id, state, new.turn, new.to, now, turn)
            if new.becomes is not None:
                self._set_status(run_id, new.becomes, now)
            self._tell(run_id, new.op, found[6])
            return made

    def _add_attempt(self, parent: int, blob_id: int, now: int) -> None:
        sql = "INSERT INTO run_attempts (parent_id, blob_id, created_at_ms) VALUES (?, ?, ?)"
        self._db.later(sql, (parent, blob_id, now))

    def _take_back(self, run_id: int, found: tuple[Any, ...], now: int) -> tuple[Any, ...]:
        """Move the head above the last step, which becomes an attempt; return the state then."""
        sql = "SELECT coalesce(parent_id, 0), blob_id FROM turns WHERE turn_id = ?"
        above, blob_id = self._run(sql, (found[1],))[0]
        self._add_attempt(above, blob_id, now)
        self._db.usage.take_back(run_id, found[1], above)
        self._db.contexts.move(run_id, above, "move", run=True)
        return self._ahead(run_id, None)

    def attempt(self, run_id: int, new: PreparedAttempt) -> bool:
        """Store a failed step outside the chain; return False where `step` returns None."""
        with self._db.write(at_once=False):
            found = self._ahead(run_id, None)
            if found[:6] != new.after:
                return False
            now = self._db.milliseconds()
            *_, node = self._turns.keep_all((*new.blobs, new.node), now)
            self._add_attempt(new.after.head, node, now)
            if new.spent is not None:
                self._db.usage.of_turn(run_id, new.after.head, new.spent, now)
            self._tell(run_id, "attempt", found[6])
            return True

    def set_status(self, run_id: int, status: str, op: str) -> RunInfo:
        """Suspend or resume a run, and log it; return its new state.

        Raises ConflictError when it is not active, or is already; UnknownRunError.
        """
        with self._db.write():
            was, head, start, *_, source = self._ahead(run_id, None)[:7]
            if (was == "active") == (status == "active"):
                raise status_conflict(run_id, was, head)
            if status != "active" and not head:
                raise status_conflict(run_id, "", start)
            self._set_status(run_id, status, None)
            self._db.contexts.move(run_id, head, op, run=True)
            self._tell(run_id, op, source)
            info = self.get(run_id)
            assert info is not None
            return info

    def _set_status(self, run_id: int, status: str, now: int | None) -> None:
        sql = "UPDATE runs SET status = ?, completed_at_ms = ? WHERE context_id = ?"
        self._db.later(sql, (status, now if status == "completed" else None, run_id))

    def _tell(self, run_id: int, op: str, source: str | None) -> None:
        """Note a change, and store the event that reports it, if anybody does."""
        self.note(run_id, op)
        if source is not None and (info := self.get(run_id)) is not None:
            self._db.events.announce(source, event_of_run(op, info), "run")

    def note(self, run_id: int, op: str) -> None:
        """Note a change inside `write`; who follows runs is woken after the commit."""
        sql = "INSERT OR REPLACE INTO run_changes (run_id, op) VALUES (?, ?)"
        self._db.later(sql, (run_id, op))
        self._db.wake_on_commit()

    # --- reading ----------------------------------------------------------------------------------

    def _ahead(self, run_id: int, key: str | None) -> tuple[Any, ...]:
        """Return what `_AHEAD` selects. Raises UnknownRunError."""
        since = 0 if key is None else self._db.milliseconds() - KEY_MS
        rows = self._run(_AHEAD, (run_id, key, since))
        if not rows:
            raise UnknownRunError(run_id)
        row: tuple[Any, ...] = rows[0]
        return row

    def state(self, run_id: int, key: str | None = None) -> RunState:
        """Return the state of a run, and what was stored with a key; raise UnknownRunError."""
        return RunState(*self._ahead(run_id, key)[:6])

    def has(self, context_id: int) -> bool:
        """Return whether a context is that of a run."""
        return bool(self._run("SELECT 1 FROM runs WHERE context_id = ?", (context_id,)))

    def get(self, run_id: int) -> RunInfo | None:
        """Return a run, or None for a context that is none."""
        rows = self._run(_GET, (run_id,))
        return RunInfo(*rows[0]) if rows else None

    def page(self, after: int, limit: int, choice: RunChoice) -> list[RunInfo]:
        """Return the next runs of a choice by id."""
        bindings = (after, choice.group, limit, choice.day)
        return [RunInfo(*row) for row in self._run(_page_of(choice), bindings)]

    def newest(self, before: int, limit: int, *, active: bool) -> list[tuple[RunInfo, int]]:
        """Return the newest runs before an id, under way or ended, and when each began, in ms."""
        sql = _NEWEST_ACTIVE if active else _NEWEST_ENDED
        return [(RunInfo(*row[:-1]), row[-1]) for row in self._run(sql, (before, limit))]

    def forks(self, run_id: int, limit: int) -> list[tuple[RunInfo, int]]:
        """Return the newest forks of a run, each with the turn that it leaves it at."""
        return [(RunInfo(*row[:-1]), row[-1]) for row in self._run(_FORKS, (run_id, limit))]

    def among(self, contexts: Iterable[int]) -> list[RunInfo]:
        """Return the runs among some contexts."""
        listed = "[" + ",".join(map(str, contexts)) + "]"
        return [RunInfo(*row) for row in self._run(_AMONG, (listed,))]

    def ended(self, since_ms: int, limit: int) -> list[RunInfo]:
        """Return the runs that were completed since a time, those of the newest day first."""
        day = stamp(since_ms / 1000)[:10]
        return [RunInfo(*row) for row in self._run(_ENDED, (day, since_ms, limit))]

    def last_change(self) -> int:
        """Return the number of the newest change of a run, 0 for none."""
        return self._one("SELECT coalesce(max(change_id), 0) FROM run_changes")  # type: ignore[no-any-return]

    def changes(
        self, after: int, upto: int, limit: int, group: str | None
    ) -> list[tuple[int, RunChange]]:
        """Return number and run of the next changes after one and up to another, of a group or all.

        Each run is there at most once: with its last change, and as it is at this moment.
        """
        rows = self._run(_CHANGES, (after, upto, group, limit))
        return [(row[0], _change(row[1], row[2], row[3:])) for row in rows]

    def attempts(self, parent: int) -> list[bytes]:
        """Return the digests of the attempts after a turn, oldest first."""
        sql = """
            SELECT hash
            FROM run_attempts INDEXED BY run_attempts_by_parent
                CROSS JOIN blobs USING (blob_id)
            WHERE parent_id = ?
            ORDER BY attempt_id
        """
        return [row[0] for row in self._run(sql, (parent,))]

    def attempted(self, digest: bytes, limit: int) -> list[int]:
        """Return the first turns that an attempt of this digest comes after."""
        sql = """
            SELECT DISTINCT parent_id
            FROM blobs b
                CROSS JOIN run_attempts a INDEXED BY run_attempts_by_blob ON a.blob_id = b.blob_id
            WHERE b.hash = ?
            LIMIT ?
        """
        return [row[0] for row in self._run(sql, (digest, limit))]

    def started(self, start: int, limit: int) -> list[int]:
        """Return the first runs that start at a turn."""
        sql = """
            SELECT context_id
            FROM runs
            WHERE start_id = ?
            ORDER BY context_id
            LIMIT ?
        """
        return [row[0] for row in self._run(sql, (start, limit))]

    # --- looking for damage -----------------------------------------------------------------------

    def starts(self) -> set[int]:
        """Return the turns that runs start at."""
        return {row[0] for row in self._run("SELECT DISTINCT start_id FROM runs")}

    def all_attempts(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return number and digest of the next attempts of all runs."""
        sql = """
            SELECT attempt_id, hash
            FROM run_attempts
                CROSS JOIN blobs USING (blob_id)
            WHERE attempt_id > ?
            ORDER BY attempt_id
            LIMIT ?
        """
        return self._run(sql, (after, limit))

    def faults(self) -> list[str]:
        """Return a sentence for each fault of the rows of runs, at most 20 of a kind."""
        return [row[0] for sql in _FAULTS for row in self._run(sql)]


def _change(op: str, run_id: int, info: tuple[Any, ...]) -> RunChange:
    return RunChange(op, run_id, None if info[0] is None else RunInfo(*info))


def _page_of(choice: RunChoice) -> str:
    """Return the statement for a choice."""
    if choice.day is not None:
        return _DAY
    return _ACTIVE if choice.active else _ALL


_FAULTS = (
    """
    SELECT 'run ' || context_id || ' is ' || status || ', and has '
        || CASE WHEN completed_at_ms IS NULL THEN 'no' ELSE 'a' END || ' time of completion'
    FROM runs
    WHERE (status = 'completed') <> (completed_at_ms IS NOT NULL)
        OR status NOT IN ('active', 'suspended', 'completed', 'cancelled')
    LIMIT 20
    """,
    """
    SELECT 'run ' || context_id || ' is empty, though it was started'
    FROM contexts
        CROSS JOIN runs USING (context_id)
    WHERE head_id IS NULL
    LIMIT 20
    """,
    """
    SELECT 'run ' || context_id || ' starts at turn ' || start_id || ', which is no root'
    FROM runs
        CROSS JOIN turns ON turn_id = start_id
    WHERE depth <> 0
    LIMIT 20
    """,
)
