"""Which kind of thing each turn of a context is, for drawings: user, agent, tool, failed or other.

That takes reading what it says. So it is kept for as long as the thread is served, a block of turns
at a time, and a look reads no longer than it may: what was not reached is unknown, and comes with a
later look. Turns do not change; one that is erased keeps its kind until the server ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from eventq import said
from eventq.errors import EventqError
from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.memory.turns import Turns
    from eventq.records.turn import ContextInfo
    from eventq.said import Said
    from eventq.serving.served import ServedThread
    from eventq.store.turn_rows import TurnRow

BLOCK = 128  # turns that are read together
LONGEST = 256 << 10  # bytes of a payload that is read for this
BYTES = 2 << 20  # payloads that are held at once
MOST = 100_000  # blocks that are kept
USER, AGENT, TOOL, FAILED, OTHER, UNKNOWN = "user", "agent", "tool", "failed", "other", "unknown"
KINDS = (TOOL, FAILED, AGENT, USER, OTHER, UNKNOWN)  # a column shows them so, from the ground up
_CODES = {name: code for code, name in enumerate(KINDS)}
_ROLES = {"user": USER, "assistant": AGENT, "agent": AGENT, "tool": TOOL}


class _Known(Record):
    """What is known of a context: up to which head, and its blocks, each from a depth on."""

    head: int
    depth: int
    blocks: dict[int, tuple[int, bytes]]


class Reading:
    """How many seconds a look may spend on reading; what else it does is not counted."""

    def __init__(self, seconds: float) -> None:
        """Take how many there are."""
        self._left = seconds

    @property
    def is_over(self) -> bool:
        """Whether they are used up; the first block is always read."""
        return self._left <= 0

    def kinds(self, turns: Turns, info: ContextInfo, low: int, high: int) -> bytes:
        """Return the kinds of the turns of a context between two depths."""
        start = clock.monotonic()
        found = _read(turns, info, low, high)
        self._left -= clock.monotonic() - start
        return found


class Kinds:
    """The kinds of the turns of one thread, as far as they were read."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[int, _Known] = {}
        self._blocks = 0

    def blocks(
        self, turns: Turns, info: ContextInfo, first: int, last: int, reading: Reading
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the depth and the kinds, as places in `KINDS`, of blocks between two depths.

        What is not known yet is read until that is over; the rest is left out.
        """
        known = self._of(turns, info)
        for number in range(first // BLOCK, last // BLOCK + 1):
            low = max(first, number * BLOCK)
            high = min(info.head_depth, number * BLOCK + BLOCK - 1)
            begin, kinds = known.blocks.get(number, (0, b""))
            if not kinds or begin > low or begin + len(kinds) <= high:
                if reading.is_over:
                    continue
                begin, kinds = low, reading.kinds(turns, info, low, high)
                self._keep(known, number, (begin, kinds))
            yield low, kinds[low - begin : min(last, high) + 1 - begin]

    def _of(self, turns: Turns, info: ContextInfo) -> _Known:
        """Return what is known of a context; its head may have gone on, or elsewhere."""
        head, depth = info.head_turn_id, info.head_depth
        known = self._known.get(info.context_id)
        if known is None or known.head != head:
            is_on = known is not None and turns.ancestor(head, known.depth) == known.head
            made = _Known(head, depth, known.blocks if known is not None and is_on else {})
            known = self._known[info.context_id] = made
        return known

    def _keep(self, known: _Known, number: int, block: tuple[int, bytes]) -> None:
        self._blocks += 1
        if self._blocks > MOST:
            self._blocks = 0
            self._known.clear()
        known.blocks[number] = block


_OF: WeakKeyDictionary[ServedThread, Kinds] = WeakKeyDictionary()


def kinds_of(served: ServedThread) -> Kinds:
    """Return what is known of a thread that is served."""
    return _OF.setdefault(served, Kinds())


def _read(turns: Turns, info: ContextInfo, low: int, high: int) -> bytes:
    """Return the kinds of the turns of a context between two depths."""
    end = turns.ancestor(info.head_turn_id, high)
    rows = turns.rows(end, high - low + 1, None) if end else []
    short = [row for row in rows if row.size <= LONGEST]
    found: dict[int, str] = {}
    try:
        for turn in turns.payloads(short, payload=True, limit=BYTES):
            found[turn.turn_id] = _kind(said.read(turn.payload or b"", turn.type_id), turn.type_id)
    except EventqError:  # one that is damaged: the page of its context says so
        pass
    return bytes(_CODES[found.get(row.turn, _by_type(row))] for row in rows)


def _by_type(row: TurnRow) -> str:
    return _ROLES.get(row.type_id, OTHER)


def _kind(one: Said, type_id: str) -> str:
    """Return the kind of a turn by what it says."""
    results = [block for block in one.blocks if isinstance(block, said.Result)]
    if one.kind == "error" or any(block.failed for block in results):
        return FAILED
    if results and len(results) == len(one.blocks):
        return TOOL
    return _ROLES.get(one.role or type_id, OTHER)
