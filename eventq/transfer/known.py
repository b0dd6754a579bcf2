"""Recognise what the target of an import already has, in time linear in both threads.

If several rows are alike, each matches one incoming record, so twins remain two. Asking the
database about each record (how many rows are like it, which of them are free) lost: it is quadratic
when thousands are alike.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from typing import Generic, TypeVar

from eventq.transfer.sources import tag_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eventq.store.contexts import Contexts
    from eventq.store.copies import Copies
    from eventq.store.copy_rows import AttemptCopy, PatchCopy, TurnCopy
    from eventq.transfer.packfile import TurnRecord

    Ids = OrderedDict[int, None]
    Traits = tuple[int, int, int, int]  # encoding, flags, time and type

Row = TypeVar("Row", bound="PatchCopy | AttemptCopy")

_FEW = 16  # turns of one parent and payload are read for each that comes; more are remembered
_PAGE = 1_000


class SeenTurns:
    """The turns of the source that the target has, and their ids there."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen = array("Q")  # ids of the source, in order
        self._depths = array("I")
        self._renamed: dict[int, int] = {}  # those of them that have another id here
        self._anew: set[int] = set()  # these ids

    def add(self, record: TurnRecord, here: int) -> None:
        """Record a turn that the target has; ids are added in ascending order."""
        self._seen.append(record.turn_id)
        self._depths.append(record.depth)
        if here != record.turn_id:
            self._renamed[record.turn_id] = here
            self._anew.add(here)

    def _place(self, turn_id: int) -> int | None:
        at = bisect_left(self._seen, turn_id)
        return at if at < len(self._seen) and self._seen[at] == turn_id else None

    def here(self, turn_id: int) -> int | None:
        """Return the target's id for a turn of the source; 0 for 0, None for a missing one."""
        if turn_id == 0:
            return 0
        return None if self._place(turn_id) is None else self._renamed.get(turn_id, turn_id)

    def depth_below(self, turn_id: int) -> int:
        """Return the depth of a child of a turn that is here, or of a root for 0."""
        at = self._place(turn_id) if turn_id else None
        return 0 if at is None else self._depths[at] + 1

    def is_free(self, here: int) -> bool:
        """Return whether a turn of the target is not matched yet."""
        return here not in self._anew and self.here(here) != here


class KnownTurns:
    """The turns that the target had before, by their identifying fields."""

    def __init__(self, copies: Copies, seen: SeenTurns, last: int) -> None:
        """Read candidates from a database whose newest turn is `last`; `seen` are taken already."""
        self._copies = copies
        self._seen = seen
        self._last = last
        self._groups: dict[tuple[int, bytes], dict[Traits, Ids]] = {}
        self._own: dict[int, TurnCopy] = {}

    def look_at(self, records: Sequence[TurnRecord]) -> None:
        """Read what has the ids of the next records: mostly those are the same turns."""
        first, last = records[0].turn_id, min(records[-1].turn_id, self._last)
        found = self._copies.among(first, last, len(records)) if first <= last else []
        self._own = {turn.turn: turn for turn in found}

    def find(self, record: TurnRecord, parent: int) -> int | None:
        """Return the target's turn for a record, preferring its own id, or None.

        What follows a turn that came with this import is not asked for.
        """
        if parent > self._last:
            return None
        key = parent, record.payload_hash
        group = self._groups.get(key)
        own = self._own.get(record.turn_id)
        if own is not None and group is None and self._is(own, record, parent):
            return own.turn
        if group is None:
            alike = self._copies.alike(*key, _FEW + 1)
            if len(alike) > _FEW:
                group = self._groups[key] = self._grouped(self._copies.alike(*key))
            else:
                group = self._grouped(alike)
        ids = group.get((record.codec, record.flags, record.created_at_ms, record.type_tag))
        if not ids:
            return None
        found = record.turn_id if record.turn_id in ids else next(iter(ids))
        del ids[found]
        return found

    def _is(self, turn: TurnCopy, record: TurnRecord, parent: int) -> bool:
        """Return whether a turn is a record, and not matched yet."""
        wanted = record.codec, record.flags, record.created_at_ms, record.type_tag
        return (
            (turn.parent, turn.digest) == (parent, record.payload_hash)
            and _traits(turn) == wanted
            and self._seen.is_free(turn.turn)
        )

    def _grouped(self, turns: Iterable[TurnCopy]) -> dict[Traits, Ids]:
        group: dict[Traits, Ids] = {}
        for turn in turns:
            if self._seen.is_free(turn.turn):
                group.setdefault(_traits(turn), OrderedDict())[turn.turn] = None
        return group


def _traits(turn: TurnCopy) -> Traits:
    return turn.encoding, turn.flags, turn.at, tag_of(turn)


class KnownContexts:
    """The target's contexts with certain creation times that are not matched yet."""

    def __init__(self, contexts: Contexts, times: set[int]) -> None:
        """Read them from a database, once."""
        self._free: dict[int, tuple[int, int, str | None]] = {}  # head, time and name by id
        self._named: dict[tuple[int, str], int] = {}
        self._unnamed: dict[int, Ids] = {}  # by time
        self._at_head: dict[tuple[int, int], Ids] = {}
        after = 0
        while page := contexts.page(after, _PAGE):
            for one in page:
                if one.created_at_ms in times:
                    self._add(one.context_id, one.head_turn_id, one.created_at_ms, one.name)
            after = page[-1].context_id

    def _add(self, context_id: int, head: int, at: int, name: str | None) -> None:
        self._free[context_id] = head, at, name
        if name is not None:
            self._named[at, name] = context_id
        else:
            self._unnamed.setdefault(at, OrderedDict())[context_id] = None
            self._at_head.setdefault((at, head), OrderedDict())[context_id] = None

    def same(self, context_id: int, at: int, name: str | None) -> int | None:
        """Return this id if it is free and of this time and name."""
        return context_id if self._free.get(context_id, ())[1:] == (at, name) else None

    def named(self, at: int, name: str) -> int | None:
        """Return the free one of a time and name."""
        return self._named.get((at, name))

    def at_head(self, at: int, head: int) -> int | None:
        """Return the first free one of a time that has no name and stands at a turn."""
        return next(iter(self._at_head.get((at, head), ())), None)

    def only(self, at: int) -> int | None:
        """Return the only free one of a time that has no name; None when there are several."""
        ids = self._unnamed.get(at, ())
        return next(iter(ids)) if len(ids) == 1 else None

    def head(self, context_id: int) -> int:
        """Return the head of one."""
        return self._free[context_id][0]

    def take(self, context_id: int) -> None:
        """Match one with an incoming context, if it is among them."""
        head, at, name = self._free.pop(context_id, (0, 0, None))
        if name is not None:
            self._named.pop((at, name), None)
        elif at in self._unnamed:
            self._unnamed[at].pop(context_id, None)
            self._at_head.get((at, head), OrderedDict()).pop(context_id, None)


class KnownRows(Generic[Row]):
    """Rows of a turn that may occur several times: its patches, or its attempts."""

    def __init__(self, rows: Callable[[int], list[Row]]) -> None:
        """Take what reads the rows of a turn."""
        self._rows = rows
        self._left: dict[int, Counter[Row]] = {}
        self._none: Counter[Row] = Counter()  # of all turns without any

    def take(self, row: Row) -> bool:
        """Return whether a row was here, each once; asked before any of its turn is stored."""
        turn = row[0]
        left = self._left.get(turn)
        if left is None:
            rows = self._rows(turn)
            left = self._left[turn] = Counter(rows) if rows else self._none
        if not left[row]:
            return False
        left[row] -= 1
        return True
