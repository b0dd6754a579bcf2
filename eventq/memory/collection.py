"""Garbage collection of unreachable turns and blobs, and what is reachable from given roots.

In a damaged store a collection is refused.
"""

from __future__ import annotations

from eventq.errors import (
    DamagedError,
    DiskError,
    InputError,
    UnknownBlobError,
    UnknownTurnError,
    UsageError,
)
from eventq.memory.nodes import START_TYPE, STATE_TYPE
from eventq.memory.turns import blob_or_turn
from eventq.records.checks import REF
from eventq.records.turn import Collected
from eventq.store.turn_rows import PARTS
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eventq.memory.blobs import Blobs, Name
    from eventq.store.engine import Engine
    from eventq.store.turn_rows import BlobRow


def collect(
    db: Engine, blobs: Blobs, check: Callable[[], list[str]], *, apply: bool, grace: float
) -> Collected:
    """Return the unreachable turns and blobs and, with `apply`, delete them.

    Nothing is deleted when `check` finds a fault. The check runs ahead of the transaction, so
    writers wait only for the search and the deletion. Afterwards the space is released.

    A text keeps what it names from when it is stored. Versions before did not note that, and a blob
    may be stored later than the text: so the texts are read here as well, and what they name is
    spared. To note it now would be a write, which a dry run is not.
    """
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace < 1 << 40:
        raise UsageError(
            f"grace must be a number of seconds, not {grace!r}", "give seconds, 0 for none"
        )
    if apply:
        db.check_writable()
    if faults := check():
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise DamagedError(
            f"nothing was deleted, as the thread does not check out: {faults[0]}{more}",
            "run 'eventq check', fix what it reports, then collect again",
        )
    spared = [*blobs.unnoted((START_TYPE, STATE_TYPE))]
    found = _result(*db.blobs.sweep(int(grace * 1000), spared, apply=apply), applied=apply)
    if not apply:
        return found
    if found.turns or found.blobs or db.stats().free:
        _release(db, found)
    return found


def reachable(db: Engine, turns: list[int], digests: list[bytes]) -> list[str]:
    """Return the refs of the blobs that some roots keep; see `Thread.reachable`."""
    found = db.blobs.reachable(turns, digests)
    stored = set(found)
    for digest in digests:
        if digest not in stored:
            raise UnknownBlobError(REF + digest.hex())
    for turn_id in turns:
        if db.turns.link(turn_id) is None:
            raise UnknownTurnError(turn_id)
    return [REF + digest.hex() for digest in found]


def parsed(roots: Iterable[Name]) -> tuple[list[int], list[bytes]]:
    """Return the turns and the digests that roots name. Raises InputError."""
    if isinstance(roots, (str, bytes)) or not hasattr(roots, "__iter__"):
        raise InputError("roots are several names", "give a list of refs")
    turns, digests = [], []
    for root in roots:
        named = blob_or_turn(root)
        if named is None:
            raise InputError(
                f"{root!r:.200} names no blob and no turn",
                f"give {REF}<64 lower-case hex digits>, the digits alone, or turn:ID",
            )
        if isinstance(named, int):
            turns.append(named)
        else:
            digests.append(named)
    return turns, digests


def _release(db: Engine, found: Collected) -> None:
    try:
        db.compact()
    except DiskError as error:
        raise DiskError(
            f"{count(found.turns, 'turn')} and {count(found.blobs, 'blob')} were deleted, but their"
            f" space could not be given back: {error.what}",
            "free some space, then collect again",
        ) from error


def _result(turns: int, rows: list[BlobRow], *, applied: bool) -> Collected:
    hashes = tuple([row.digest.hex() for row in rows if not row.part])
    size = sum(row.size for row in rows if not row.part)
    stored = sum(row.stored for row in rows if row.codec != PARTS)
    return Collected(applied, turns, len(hashes), size, stored, hashes)
