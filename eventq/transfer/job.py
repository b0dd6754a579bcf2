"""The state of one import: its source, its target, its notes, and the ids that it assigns."""

from __future__ import annotations

from eventq.errors import DamagedError
from eventq.storage.rules import no_more_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from eventq.dag.contexts import Contexts
    from eventq.output.store import OutputStore
    from eventq.transfer.sources import Source

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
        self, contexts: Contexts, produced: OutputStore, source: Source, *, strict: bool
    ) -> None:
        """Import from a source into a thread."""
        self.database = produced.database
        self.turns = contexts.turns
        self.blobs = contexts.turns.blobs
        self.produced = produced
        self.source = source
        self.notes = Notes(strict=strict)
        source.note = self.notes.fault


def damaged(what: str) -> NoReturn:
    """Raise DamagedError for a source."""
    raise DamagedError(what, "run 'eventq check' on the source, or restore a backup")


class Ids:
    """The ids of new rows of a table: those of the source where they are free, else the next."""

    def __init__(self, table: str, last: int) -> None:
        """Go on after the last id that was given."""
        self._table = table
        self._last = last

    def take(self, wanted: int) -> int:
        """Return an id for a row that has one in the source. Raises LogicError after the last."""
        if self._last < wanted <= LARGEST_ID:
            self._last = wanted
        elif self._last < _LAST_ID:
            self._last += 1
        else:
            raise no_more_ids(self._table)
        return self._last
