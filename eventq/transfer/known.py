"""What is here already of what an import brings, found again in work that is linear in both.

Of several that are alike each stands for one that comes, so twins stay two. To ask the store for each record how many
like it there are, or which of them are free, is quadratic where thousands are alike.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from eventq.transfer.sources import type_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from eventq.dag.packfile import TurnRecord
    from eventq.storage.sqlite.packs import PackTable

    Ids = OrderedDict[int, int]

_FEW = 16  # turns of one parent and payload: they are read again for each that comes; more are remembered
_NONE: Counter[Any] = Counter()


class KnownTurns:
    """The turns that are here, by what makes a turn what it is."""

    def __init__(self, table: PackTable, is_free: Callable[[int], bool]) -> None:
        """Read from a table; `is_free` tells whether a turn here stands for none that came yet."""
        self._table = table
        self._is_free = is_free
        self._groups: dict[tuple[int, bytes], dict[Any, Ids]] = {}

    def find(self, record: TurnRecord, parent: int, digest: bytes) -> int | None:
        """Return the turn here that a record stands for, that of its own id first, or None."""
        group = self._groups.get((parent, digest))
        if group is None:
            rows = self._table.alike(parent, digest, _FEW + 1)
            group = self._grouped(rows)
            if len(rows) > _FEW:
                group = self._groups[parent, digest] = self._grouped(
                    self._table.alike(parent, digest)
                )
        ids = group.get((record.codec, record.flags, record.created_at_ms, record.type_tag))
        if not ids:
            return None
        found = record.turn_id if record.turn_id in ids else next(iter(ids))
        del ids[found]
        return found

    def _grouped(self, rows: Iterable[Sequence[Any]]) -> dict[Any, Ids]:
        group: dict[Any, Ids] = {}
        for turn_id, type_id, tag, encoding, flags, at in rows:
            if self._is_free(turn_id):
                number = type_tag(type_id) if tag is None else tag & (1 << 64) - 1
                group.setdefault((encoding, flags, at, number), OrderedDict())[turn_id] = 0
        return group


class KnownContexts:
    """The contexts here that were born at certain times, and stand for none that came yet."""

    def __init__(self, table: PackTable, times: set[int]) -> None:
        """Read them from a table, once."""
        self._free: dict[int, tuple[int, int, str | None]] = {}  # head, time and name by id
        self._named: dict[tuple[int, str], int] = {}
        self._unnamed: dict[int, Ids] = {}  # id to head, by time
        self._at_head: dict[tuple[int, int], Ids] = {}
        for context_id, head, at, name in table.births():
            if at in times:
                self._add(context_id, head, at, name)

    def _add(self, context_id: int, head: int, at: int, name: str | None) -> None:
        self._free[context_id] = head, at, name
        if name is not None:
            self._named[at, name] = context_id
        else:
            self._unnamed.setdefault(at, OrderedDict())[context_id] = head
            self._at_head.setdefault((at, head), OrderedDict())[context_id] = head

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
        """Have one stand for a context that came, if it is among them."""
        head, at, name = self._free.pop(context_id, (0, 0, None))
        if name is not None:
            self._named.pop((at, name), None)
        elif at in self._unnamed:
            self._unnamed[at].pop(context_id, None)
            self._at_head.get((at, head), OrderedDict()).pop(context_id, None)


class KnownRows:
    """What follows a turn and may be there several times over: its overlays, or its attempts."""

    def __init__(self, rows: Callable[[int], list[Any]]) -> None:
        """Take what reads the rows of a turn."""
        self._rows = rows
        self._left: dict[int, Counter[Any]] = {}

    def take(self, turn_id: int, *row: object) -> bool:
        """Tell whether a row was here before; each is taken once. To be asked before any is stored."""
        left = self._left.get(turn_id)
        if left is None:
            rows = self._rows(turn_id)
            left = self._left[turn_id] = Counter(rows) if rows else _NONE
        if not left[row]:
            return False
        left[row] -= 1
        return True
