"""Filters for events that are read from a server: SQLite tests them, as it does everywhere.

So a filter means the same in every engine. The parts of it that PostgreSQL understands in the same
way are pushed down, which spares the events that certainly do not match from being read.
"""

from __future__ import annotations

from _thread import RLock

import apsw

from eventq.errors import FilterError
from eventq.store.names import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.log.filters.sandbox import FilterSandbox
    from eventq.records.event import Event
    from eventq.store.postgres.pushdown import Pushed

_NO_CLOCK = "a filter of claims may not read the clock"
_KEPT = 1_000  # filters whose pushed part is remembered


class Filters:
    """The sandbox of a database, used by one OS thread at a time."""

    def __init__(self) -> None:
        """Prepare; the first filter opens a database in memory."""
        self._lock = RLock()
        self._made: FilterSandbox | None = None
        self._plain: apsw.Connection | None = None
        self._pushed: dict[str, Pushed] = {}

    def _sandbox(self) -> FilterSandbox:
        if self._made is None:
            from eventq.log.filters.sandbox import FilterSandbox

            self._made = FilterSandbox(lambda: apsw.Connection(":memory:"))
        return self._made

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run, "" for all. Raises FilterError."""
        if not text:
            return ""
        with self._lock:
            return self._sandbox().check(text)

    def accept_of_claims(self, text: str | None) -> str:
        """Return a filter as it is run; raise FilterError also for one that reads the clock."""
        accepted = self.accept(text)
        if accepted and self.is_timed(accepted):
            raise FilterError(_NO_CLOCK, accepted, 0, "compare with a fixed time")
        return accepted

    def is_timed(self, text: str) -> bool:
        """Return whether a filter may depend on the current time."""
        with self._lock:
            return self._sandbox().timed(text)

    def matching(self, text: str, events: Iterable[Event]) -> list[Event]:
        """Return those events that an accepted filter matches. Raises FilterError."""
        if not text:
            return [*events]
        with self._lock:
            matches = self._sandbox().matches
            return [event for event in events if matches(text, event)]

    def pushed(self, text: str) -> Pushed:
        """Return the part of a filter that the server can apply."""
        found = self._pushed.get(text)
        if found is None:
            from eventq.store.postgres.pushdown import push_down

            if len(self._pushed) >= _KEPT:
                self._pushed.clear()
            found = self._pushed[text] = push_down(text)
        return found

    def groups(self, events: Sequence[Event], by: str) -> list[str | None]:
        """Return what events are ordered by, short enough for an index; None is no group."""
        from eventq.log.filters.ordering import groups_of

        with self._lock:
            if self._plain is None:
                self._plain = apsw.Connection(":memory:")
            found = groups_of(events, by, self._plain)
        return [None if value is None else short(value) for value in found]

    def close(self) -> None:
        """Close the database in memory."""
        with self._lock:
            if self._made is not None:
                self._made.close()
            if self._plain is not None:
                self._plain.close()
