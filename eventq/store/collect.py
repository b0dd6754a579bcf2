"""Garbage collection: find unreachable turns and blobs, and delete them."""

from __future__ import annotations

import json

from eventq.store.rules import KEY_MS
from eventq.store.turn_rows import BlobRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eventq.store.engine import Engine

# ruff: noqa: S608 (the parts are constants)

# ?1 is the end of the time of grace, ?2 that of the time that idempotency keys are honoured for, ?3
# a list of the digits of blobs that are spared.
# A session is kept while a context is the tip of a branch of it, or of a subagent of it, with all
# of these and the generations before.
_LIVE_SESSIONS = """
SELECT session_id
FROM sessions
WHERE updated_at_ms >= ?1
    OR coalesce(owner, name) IN (
        SELECT coalesce(owner, name)
        FROM session_tips
            JOIN sessions USING (session_id)
    )
"""
# What turns and blobs keep, whichever they are: the ancestors of turns; the payloads, patches,
# attempts and file-tree roots of these; and what blobs refer to and consist of. Each goes by an
# index, whatever SQLite knows of the sizes of tables: a few turns may be marked among millions.
_ABOVE = """
UNION
SELECT parent_id
FROM live_turns
    CROSS JOIN turns ON turn_id = id
WHERE parent_id IS NOT NULL
"""
_OF_TURNS = """
UNION
SELECT blob_id
FROM live_turns
    CROSS JOIN turns ON turn_id = id
UNION
SELECT blob_id
FROM live_turns
    CROSS JOIN turn_patches ON turn_id = id
WHERE blob_id IS NOT NULL
UNION
SELECT blob_id
FROM live_turns
    CROSS JOIN run_attempts ON parent_id = id
UNION
SELECT blob_id
FROM live_turns
    CROSS JOIN turn_roots ON turn_id = id
    CROSS JOIN blobs ON hash = root
"""
_OF_BLOBS = """
UNION
SELECT ref_id
FROM live_blobs
    CROSS JOIN blob_refs ON blob_id = id
UNION
SELECT part_id
FROM live_blobs
    CROSS JOIN blob_parts ON blob_id = id
"""
# What is reachable without a turn that is: heads, the starts of runs, what heads have left and keys
# have named lately, sessions, and what is new; then the ancestors of all these.
_LIVE_TURNS = f"""
live_turns (id) AS (
    SELECT head_id
    FROM contexts
    WHERE head_id IS NOT NULL
    UNION
    SELECT start_id
    FROM runs
    UNION
    SELECT old_id
    FROM context_log
    WHERE at_ms >= ?1 AND old_id IS NOT NULL
    UNION
    SELECT new_id
    FROM context_log
    WHERE at_ms >= ?1 AND new_id IS NOT NULL
    UNION
    SELECT turn_id
    FROM session_lines
    WHERE turn_id IS NOT NULL AND session_id IN ({_LIVE_SESSIONS})
    UNION
    SELECT turn_id
    FROM turn_keys
    WHERE created_at_ms >= ?2
    UNION
    SELECT turn_id
    FROM turns
    WHERE created_at_ms >= ?1
    {_ABOVE}
)
"""
# Pins, outputs, files, session lines, what events name, what is spared, and what is new; then what
# live turns and these blobs keep.
_LIVE_BLOBS = f"""
live_blobs (id) AS (
    SELECT blob_id
    FROM pins
    UNION
    SELECT blob_id
    FROM agent_outputs
    UNION
    SELECT blob_id
    FROM files
    WHERE blob_id IS NOT NULL
    UNION
    SELECT blob_id
    FROM session_lines
    WHERE session_id IN ({_LIVE_SESSIONS})
    UNION
    SELECT blob_id
    FROM event_blob_refs
        JOIN blobs USING (hash)
    UNION
    SELECT blob_id
    FROM json_each(?3)
        CROSS JOIN blobs ON hash = unhex(value)
    UNION
    SELECT blob_id
    FROM blobs
    WHERE touched_at_ms >= ?1
    {_OF_TURNS}
    {_OF_BLOBS}
)
"""
# ?1 is a list of turns, ?2 of the digits of digests.
_REACHABLE = f"""
WITH RECURSIVE live_turns (id) AS (
    SELECT CAST(value AS INTEGER)
    FROM json_each(?1)
    {_ABOVE}
),
live_blobs (id) AS (
    SELECT blob_id
    FROM json_each(?2)
        CROSS JOIN blobs ON hash = unhex(value)
    {_OF_TURNS}
    {_OF_BLOBS}
)
SELECT hash
FROM live_blobs
    CROSS JOIN blobs ON blob_id = id
WHERE part = 0
ORDER BY hash
"""
_DEAD_TURNS = f"""
WITH RECURSIVE {_LIVE_TURNS}
SELECT turn_id
FROM turns
WHERE turn_id NOT IN (SELECT id FROM live_turns)
"""
_DEAD_BLOBS = f"""
WITH RECURSIVE {_LIVE_TURNS},
{_LIVE_BLOBS}
SELECT blob_id, hash, raw_len, stored_len, codec, part
FROM blobs
WHERE blob_id NOT IN (SELECT id FROM live_blobs)
"""
_COUNT_DEAD_TURNS = f"SELECT count(*) FROM ({_DEAD_TURNS})"
_LIST_DEAD_BLOBS = f"""
SELECT hash, raw_len, stored_len, codec, part
FROM ({_DEAD_BLOBS})
ORDER BY hash
"""
# What is deleted is found once: a deletion may make more of the same dead.
_MAKE_DEAD_TURNS = "CREATE TEMP TABLE dead_turns (turn_id INTEGER PRIMARY KEY)"
_MAKE_DEAD_BLOBS = """
CREATE TEMP TABLE dead_blobs (
    blob_id INTEGER PRIMARY KEY,
    hash,
    raw_len,
    stored_len,
    codec,
    part
)
"""
_MARK_DEAD_TURNS = f"INSERT INTO dead_turns (turn_id) {_DEAD_TURNS}"
_MARK_DEAD_BLOBS = f"""
INSERT INTO dead_blobs (blob_id, hash, raw_len, stored_len, codec, part)
{_DEAD_BLOBS}
"""
_LIST_MARKED_BLOBS = """
SELECT hash, raw_len, stored_len, codec, part
FROM dead_blobs
ORDER BY hash
"""
_DELETE_SESSIONS = f"DELETE FROM sessions WHERE session_id NOT IN ({_LIVE_SESSIONS})"


def sweep(db: Engine, grace: int, spared: str, *, apply: bool) -> tuple[int, list[BlobRow]]:
    """Return how many turns are dead, and the dead blobs by digest; delete them with `apply`.

    `spared` is a list of digests, as JSON.
    """
    now = db.milliseconds()
    # Without a grace period, what was stored just now goes too.
    times = now - grace + (grace == 0), now - KEY_MS
    if apply:
        with db.write():
            turns, rows = _delete(db, *times, spared)
    else:
        turns, rows = _find(db, *times, spared)
    return turns, [BlobRow(*row) for row in rows]


def reachable(db: Engine, turns: Sequence[int], digests: Sequence[bytes]) -> list[bytes]:
    """Return the digests of what turns and blobs keep, sorted; parts are left out."""
    named = json.dumps([*turns]), json.dumps([digest.hex() for digest in digests])
    return [row[0] for row in db.run(_REACHABLE, named)]


def _find(db: Engine, grace: int, keys: int, spared: str) -> tuple[int, list[Any]]:
    turns = db.one(_COUNT_DEAD_TURNS, (grace, keys))
    return turns, db.run(_LIST_DEAD_BLOBS, (grace, keys, spared))


def _delete(db: Engine, grace: int, keys: int, spared: str) -> tuple[int, list[Any]]:
    _drop(db)
    try:
        db.run(_MAKE_DEAD_TURNS)
        db.run(_MAKE_DEAD_BLOBS)
        db.run(_MARK_DEAD_TURNS, (grace, keys))
        db.run(_MARK_DEAD_BLOBS, (grace, keys, spared))
        rows = db.run(_LIST_MARKED_BLOBS)
        turns = db.one("SELECT count(*) FROM dead_turns")
        db.run(_DELETE_SESSIONS, (grace,))
        db.run("DELETE FROM turn_keys WHERE created_at_ms < ? OR turn_id IN dead_turns", (keys,))
        db.run("DELETE FROM turns WHERE turn_id IN dead_turns")
        db.run("DELETE FROM blobs WHERE blob_id IN (SELECT blob_id FROM dead_blobs)")
        return turns, rows
    finally:
        _drop(db)


def _drop(db: Engine) -> None:
    db.run("DROP TABLE IF EXISTS temp.dead_turns")
    db.run("DROP TABLE IF EXISTS temp.dead_blobs")
