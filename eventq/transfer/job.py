"""The state of one import: its source, its target, its notes, and the ids that it assigns."""

from __future__ import annotations

from eventq.errors import DamagedError
from eventq.store.rules import no_more_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from typing import NoReturn

    from eventq.memory.contexts import Contexts
    from eventq.output.output_store import OutputStore
    from eventq.transfer.sources import Line, Source

# Larger ids are given anew: the next one must fit as well, and ids elsewhere may be random.
LARGEST_ID = (1 << 62) - 1
_LAST_ID = (1 << 63) - 1


class Notes:
    """The notes of one import; a `strict` one leaves nothing out that is damaged."""

    def __init__(self, *, strict: bool) -> None:
        """Begin with none."""
        self.strict = strict
        self.all: list[str] = []

    def fault(self, what: str) -> None:
        """Record damage that was left out; raise DamagedError in a strict import."""
        if self.strict:
            damaged(what)
        self.all.append(what)

    def remark(self, what: str) -> None:
        """Record undamaged data that differs from the source."""
        self.all.append(what)


class Job:
    """The objects that the parts of an import share."""

    def __init__(
        self,
        contexts: Contexts,
        produced: OutputStore,
        source: Source,
        new: Counter[str],
        *,
        strict: bool,
    ) -> None:
        """Import from a source into a thread; `new` counts the blobs and artifacts that come."""
        self.database = produced.database
        self.turns = contexts.turns
        self.blobs = contexts.turns.blobs
        self.produced = produced
        self.source = source
        self.new = new
        self.notes = Notes(strict=strict)
        source.note = self.notes.fault


def damaged(what: str) -> NoReturn:
    """Raise DamagedError for a source."""
    raise DamagedError(what, "run 'eventq check' on the source, or restore a backup")


class Ids:
    """The ids of new rows of a table: those of the source where they are free, else the next."""

    def __init__(self, table: str, last: int, others: Mapping[int, int] | None = None) -> None:
        """Go on after the last id that was given.

        `others` are ids that are given already, but for the one that they had in the source.
        """
        self._table = table
        self._last = last
        self._others = others or {}

    def take(self, wanted: int) -> int:
        """Return an id for a row that has one in the source. Raises LogicError after the last."""
        if self._last < wanted <= LARGEST_ID:
            self._last = wanted
        elif self._last < _LAST_ID:
            self._last += 1
        else:
            raise no_more_ids(self._table)
        taken = self._others.get(self._last)
        return self._last if taken is None or taken == wanted else self.take(wanted)


def fits(line: Line, kinds: dict[str, type]) -> bool:
    """Return whether a line has values of these types under these keys."""
    return all(type(line.get(name)) is kind for name, kind in kinds.items())


def is_time(value: object) -> bool:
    """Return whether a value is a number of milliseconds that can be stored."""
    return type(value) is int and 0 <= value < 1 << 63


def scope_in(line: Line) -> int:
    """Return the scope that a line is of, 0 for the thread's, -1 for what is none."""
    scope = line.get("scope", 0)
    return scope if type(scope) is int and scope >= 0 else -1
