"""Garbage collection: find unreachable turns and blobs, and delete them."""

from __future__ import annotations

from array import array
from contextlib import nullcontext
from json import dumps

from eventq.store.reach import ALL, FIRST, PAGE, Ids, Reach, every, pages
from eventq.store.rules import KEY_MS
from eventq.store.turn_rows import BlobRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from eventq.store.engine import Engine

# A session is kept while a context is the tip of a branch of it, or of a subagent of it, with all
# of these and the generations before.
_LIVE_SESSIONS = """
SELECT session_id
FROM sessions
WHERE session_id > ?1
    AND (
        updated_at_ms >= ?2
        OR coalesce(owner, name) IN (
            SELECT coalesce(s.owner, s.name)
            FROM session_tips t
                CROSS JOIN sessions s ON s.session_id = t.session_id
        )
    )
ORDER BY session_id
LIMIT ?3
"""
# What keeps turns, but for sessions: heads, the starts of runs; of some time on, what is new and
# what heads have left; and what keys name that are still honoured. A row is a key and then turns,
# unless the key is one.
_HEADS = every("head_id", "contexts")
_STARTS = every("start_id", "runs")
_NEW_TURNS = every("turn_id", "turns", "created_at_ms >= ?")
_MOVES = """
SELECT context_id, version, old_id, new_id
FROM context_log
WHERE (context_id, version) > (?, ?) AND at_ms >= ?
ORDER BY context_id, version
LIMIT ?
"""
_KEYS = """
SELECT number, turn_id
FROM turn_keys
WHERE number > ? AND created_at_ms >= ?
ORDER BY number
LIMIT ?
"""
# What keeps blobs, but for turns, sessions and scopes: pins, events, and what is new.
_PINNED = every("blob_id", "pins")
_NEW_BLOBS = every("blob_id", "blobs", "touched_at_ms >= ?")
_OF_EVENTS = """
SELECT e.hash, b.blob_id
FROM event_blob_refs e
    CROSS JOIN blobs b ON b.hash = e.hash
WHERE e.hash > ?
ORDER BY e.hash
LIMIT ?
"""
_OF_DIGESTS = """
SELECT b.blob_id
FROM json_each(?)
    CROSS JOIN blobs b ON b.hash = unhex(value)
"""
_BLOBS = """
SELECT blob_id, hash, raw_len, stored_len, codec, part
FROM blobs
WHERE blob_id > ?
ORDER BY blob_id
LIMIT ?
"""
# In this order, as no row may refer to one that is gone.
_DELETIONS = (
    "DELETE FROM sessions WHERE session_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
    "DELETE FROM turns WHERE turn_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
    "DELETE FROM blob_refs WHERE blob_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
    "DELETE FROM blob_parts WHERE blob_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
    "DELETE FROM blobs WHERE blob_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
)


def sweep(db: Engine, grace: int, spared: str, *, apply: bool) -> tuple[int, list[BlobRow]]:
    """Return how many turns are dead, and the dead blobs by digest; delete them with `apply`.

    `spared` is a list of digests, as JSON. What is deleted is found once: a deletion may make more
    of the same dead.
    """
    now = db.milliseconds()
    # Without a grace period, what was stored just now goes too.
    times = now - grace + (grace == 0), now - KEY_MS
    if apply:
        with db.write():
            sessions, turns, blobs, rows = _dead(db, *times, spared)
            db.changed("DELETE FROM turn_keys WHERE created_at_ms < ?", times[1:])
            for sql, ids in zip(_DELETIONS, (sessions, turns, blobs, blobs, blobs), strict=True):
                _delete(db, sql, ids)
    else:
        with _moment(db) as seen:
            _, turns, _, rows = _dead(seen, *times, spared)
    return len(turns), sorted(rows, key=lambda row: row.digest)


def reachable(db: Engine, turns: Sequence[int], digests: Sequence[bytes]) -> list[bytes]:
    """Return the digests of what turns and blobs keep, sorted; parts are left out."""
    with _moment(db) as seen:
        reach = Reach(seen, parts=True)
        reach.add_turns(turns)
        named = dumps([digest.hex() for digest in digests])
        reach.add_blobs([blob for (blob,) in seen.run(_OF_DIGESTS, (named,))])
        return sorted(reach.digests(reach.blobs))


def _moment(db: Engine) -> AbstractContextManager[Engine]:
    """Return what reads at one moment, or the transaction under way."""
    return nullcontext(db) if db.in_write() else db.read()


def _dead(
    db: Engine, since: int, keys: int, spared: str
) -> tuple[array[int], array[int], array[int], list[BlobRow]]:
    """Return the ids of dead sessions, turns and blobs, and the rows of the blobs."""
    reach, sessions = Reach(db, parts=True), Ids()
    for rows in pages(db.run, _LIVE_SESSIONS, FIRST, since):
        sessions.add([one for (one,) in rows])
    reach.add_sessions(sessions.spans())
    reach.add_scopes(ALL)
    for add, sql, key, given in (
        (reach.add_turns, _HEADS, FIRST, ()),
        (reach.add_turns, _STARTS, FIRST, ()),
        (reach.add_turns, _NEW_TURNS, FIRST, (since,)),
        (reach.add_turns, _MOVES, (*FIRST, 0), (since,)),
        (reach.add_turns, _KEYS, FIRST, (keys,)),
        (reach.add_blobs, _PINNED, FIRST, ()),
        (reach.add_blobs, _OF_EVENTS, (b"",), ()),
        (reach.add_blobs, _NEW_BLOBS, FIRST, (since,)),
    ):
        for rows in pages(db.run, sql, key, *given):
            add([one for row in rows for one in row[len(key) :] or row])
    reach.add_blobs([blob for (blob,) in db.run(_OF_DIGESTS, (spared,))])
    blobs, dead = array("q"), []
    for rows in pages(db.run, _BLOBS, FIRST):
        for blob, *rest in rows:
            if blob not in reach.blobs:
                blobs.append(blob)
                dead.append(BlobRow(*rest))
    return (
        _others(db, every("session_id", "sessions"), sessions),
        _others(db, every("turn_id", "turns"), reach.turns),
        blobs,
        dead,
    )


def _others(db: Engine, sql: str, live: Ids) -> array[int]:
    """Return the ids of a table that are not among some, in order."""
    some = pages(db.run, sql, FIRST)
    return array("q", [one for rows in some for (one,) in rows if one not in live])


def _delete(db: Engine, sql: str, ids: array[int]) -> None:
    """Delete rows by their ids, the last ones first: a turn refers to an earlier one."""
    for end in range(len(ids), 0, -PAGE):
        db.changed(sql, (str(ids[max(0, end - PAGE) : end].tolist()),))
