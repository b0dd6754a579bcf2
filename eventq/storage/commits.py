"""What every engine does around a commit: collect its events and effects, then tell subscribers."""

from __future__ import annotations

from eventq.records.event import Commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventq.records.event import NewEvent
    from eventq.storage.queue_rows import Outcome

    Part = tuple[int, int, str, Sequence[NewEvent]]  # first id, count, time, events

KEPT_CHARACTERS = 4 << 20  # of events that subscribers get with a commit: more are read again


class Commits:
    """The subscribers of a database, and what the transaction under way will tell them."""

    def __init__(self) -> None:
        """Begin with no subscriber."""
        # Called with the name of a subscriber and its error.
        self.on_failure: Callable[[str, Exception], object] | None = None
        # Called with attempts that did not finish their events.
        self.on_outcomes: Callable[[Sequence[Outcome]], object] | None = None
        self._subscribers: list[tuple[str, Callable[[Commit], object]]] = []
        self._effects: list[Callable[[], None]] = []  # of the transaction under way
        self._parts: list[Part] = []  # the events that it has stored
        self._size = 0  # characters of these
        self._source = ""  # of the last of these

    def subscribe(self, name: str, subscriber: Callable[[Commit], object]) -> None:
        """Call `subscriber` with each transaction that stores events, once it has committed.

        It is called with no lock held. What it raises is reported to `on_failure`, as the events
        are stored whatever becomes of it; only NotAThreadError reaches the caller.
        """
        self._subscribers.append((name, subscriber))

    def report(self, outcomes: Sequence[Outcome]) -> None:
        """Report attempts that did not finish their events, if anybody wants to know."""
        if self.on_outcomes is not None:
            self.on_outcomes(outcomes)

    def note_part(self, part: Part, source: str, *, goes_on: bool = False) -> None:
        """Note events that the transaction under way has stored, with contents while they are few.

        A part that `goes_on` with a batch is made one with the part before it.
        """
        first, count, at, rows = part
        self._source = source
        self._size += sum([len(content) for _, _, content, _, _ in rows])
        if self._size > KEPT_CHARACTERS:
            rows = ()
            if self._parts and self._parts[-1][3]:
                self._parts = [(*one[:3], ()) for one in self._parts]
        if goes_on and self._parts and sum(self._parts[-1][:2]) == first:
            begun, before, at, kept = self._parts.pop()
            first, count, rows = begun, before + count, [*kept, *rows]
        self._parts.append((first, count, at, rows))


def commit_of(parts: list[Part], source: str) -> Commit:
    """Return what a transaction that stored some events has to tell."""
    first, count = parts[-1][:2]
    return Commit(parts[0][0], first + count - 1, source, parts)
