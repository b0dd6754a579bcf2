"""Garbage collection in SQLite: find unreachable turns and blobs, and delete them."""

from __future__ import annotations

from eventq.storage.rows import BlobRow
from eventq.storage.rules import KEY_MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.storage.sqlite.database import Database

# ?1 is the end of the time of grace, ?2 that of the time that idempotency keys are honoured for.
_LIVE_TURNS = """
live_turns (id) AS (
    SELECT head_id FROM contexts WHERE head_id IS NOT NULL
    UNION SELECT start_id FROM runs
    UNION SELECT old_id FROM context_log WHERE at_ms >= ?1 AND old_id IS NOT NULL
    UNION SELECT new_id FROM context_log WHERE at_ms >= ?1 AND new_id IS NOT NULL
    UNION SELECT turn_id FROM turn_keys WHERE created_at_ms >= ?2
    UNION SELECT turn_id FROM turns WHERE created_at_ms >= ?1
    UNION SELECT parent_id FROM live_turns JOIN turns ON turn_id = id WHERE parent_id IS NOT NULL
)"""
_OF_ROOTS = (
    "UNION SELECT blob_id FROM turn_roots JOIN blobs ON hash = root WHERE turn_id IN live_turns"
)
_OF_FILES = "UNION SELECT blob_id FROM files WHERE blob_id IS NOT NULL"
_LIVE_BLOBS = f"""
live_blobs (id) AS (
    SELECT blob_id FROM turns WHERE turn_id IN live_turns
    UNION SELECT blob_id FROM turn_patches WHERE blob_id IS NOT NULL AND turn_id IN live_turns
    UNION SELECT blob_id FROM run_attempts WHERE parent_id IN live_turns
    {_OF_ROOTS}
    UNION SELECT blob_id FROM pins
    UNION SELECT blob_id FROM agent_outputs
    {_OF_FILES}
    UNION SELECT blob_id FROM event_blob_refs JOIN blobs USING (hash)
    UNION SELECT blob_id FROM blobs WHERE touched_at_ms >= ?1
    UNION SELECT ref_id FROM live_blobs JOIN blob_refs ON blob_id = id
    UNION SELECT part_id FROM live_blobs JOIN blob_parts ON blob_id = id
)"""  # noqa: S608
_DEAD_TURNS = (
    f"WITH RECURSIVE {_LIVE_TURNS} SELECT turn_id FROM turns WHERE turn_id NOT IN live_turns"  # noqa: S608
)
_DEAD_BLOBS = (
    f"WITH RECURSIVE {_LIVE_TURNS}, {_LIVE_BLOBS}"  # noqa: S608
    " SELECT blob_id, hash, raw_len, stored_len, codec, part FROM blobs WHERE blob_id NOT IN"
    " live_blobs"
)
# Of an older thread, opened to read.
_DEAD_BLOBS_WITHOUT_FILES = _DEAD_BLOBS.replace(_OF_FILES, "")
_DEAD_BLOBS_WITHOUT_ROOTS = _DEAD_BLOBS_WITHOUT_FILES.replace(_OF_ROOTS, "")
_BLOBS = "SELECT hash, raw_len, stored_len, codec, part FROM "


def sweep(db: Database, grace: int, *, apply: bool) -> tuple[int, list[BlobRow]]:
    """Return how many turns are dead, and the dead blobs by digest; delete them with `apply`."""
    now = db.milliseconds()
    # Without a grace period, what was stored just now goes too.
    times = now - grace + (grace == 0), now - KEY_MS
    if apply:
        with db.write():
            turns, rows = _delete(db, *times)
    else:
        turns, rows = _find(db, *times)
    return turns, [BlobRow(*row) for row in rows]


def _find(db: Database, grace: int, keys: int) -> tuple[int, list[Any]]:
    turns = db.one(f"SELECT count(*) FROM ({_DEAD_TURNS})", (grace, keys))  # noqa: S608
    blobs = _DEAD_BLOBS if db.has_scopes() else _DEAD_BLOBS_WITHOUT_FILES
    blobs = blobs if db.has_roots() else _DEAD_BLOBS_WITHOUT_ROOTS
    return turns, db.run(f"{_BLOBS} ({blobs}) ORDER BY 1", (grace, keys))


def _delete(db: Database, grace: int, keys: int) -> tuple[int, list[Any]]:
    _drop(db)
    try:
        db.run("CREATE TEMP TABLE dead_turns (turn_id INTEGER PRIMARY KEY)")
        db.run(
            "CREATE TEMP TABLE dead_blobs (blob_id INTEGER PRIMARY KEY, hash, raw_len,"
            " stored_len, codec, part)"
        )
        db.run(f"INSERT INTO dead_turns {_DEAD_TURNS}", (grace, keys))
        db.run(f"INSERT INTO dead_blobs {_DEAD_BLOBS}", (grace, keys))
        rows = db.run(f"{_BLOBS} dead_blobs ORDER BY 1")
        turns = db.one("SELECT count(*) FROM dead_turns")
        db.run("DELETE FROM turn_keys WHERE created_at_ms < ? OR turn_id IN dead_turns", (keys,))
        db.run("DELETE FROM turns WHERE turn_id IN dead_turns")
        db.run("DELETE FROM blobs WHERE blob_id IN (SELECT blob_id FROM dead_blobs)")
        return turns, rows
    finally:
        _drop(db)


def _drop(db: Database) -> None:
    db.run("DROP TABLE IF EXISTS temp.dead_turns")
    db.run("DROP TABLE IF EXISTS temp.dead_blobs")
