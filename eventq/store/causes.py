"""Causes: which events an event or a turn was written for, and what came of an event.

A place is that of `causing`: "" for the thread itself. A cause is an id as its writer stated it:
the event may have been pruned, and of another thread nobody knows whether it was there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.store.engine import Engine

    Place = tuple[str, int]  # where an event is, and its id
    Caused = tuple[int, str, int]  # the id of an effect, and place and id of an event

_ADD_EVENT = """
INSERT INTO event_causes (event_id, place, cause)
VALUES (?, ?, ?)
ON CONFLICT DO NOTHING
"""
_ADD_TURN = """
INSERT INTO turn_causes (turn_id, place, cause)
VALUES (?, ?, ?)
ON CONFLICT DO NOTHING
"""
_OF_EVENT = """
SELECT place, cause
FROM event_causes
WHERE event_id = ?
ORDER BY place, cause
LIMIT ?
"""
_OF_TURN = """
SELECT place, cause
FROM turn_causes
WHERE turn_id = ?
ORDER BY place, cause
LIMIT ?
"""
_EVENTS = """
SELECT event_id
FROM event_causes
WHERE place = ? AND cause = ? AND event_id > ? AND event_id <= ?
ORDER BY event_id
LIMIT ?
"""
_NEWEST_EVENTS = """
SELECT event_id
FROM event_causes
WHERE place = ? AND cause = ? AND event_id > ? AND event_id <= ?
ORDER BY event_id DESC
LIMIT ?
"""
_TURNS = """
SELECT turn_id
FROM turn_causes
WHERE place = ? AND cause = ? AND turn_id > ?
ORDER BY turn_id
LIMIT ?
"""
_OF_EVENTS = """
SELECT event_id, place, cause
FROM event_causes
WHERE event_id > ? AND event_id <= ?
ORDER BY event_id, place, cause
"""
_OF_TURNS = """
SELECT turn_id, place, cause
FROM turn_causes
WHERE (turn_id, place, cause) > (?, ?, ?)
ORDER BY turn_id, place, cause
LIMIT ?
"""


class Causes:
    """The causes of events and turns."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    def note_events(self, ids: range, causes: Sequence[Place]) -> None:
        """Note what caused new events, inside `write`; no event follows from a later one."""
        self._db.many(
            _ADD_EVENT,
            [(one, *at) for one in ids for at in causes if at[0] or at[1] < ids.start],
        )

    def note_turns(self, ids: Iterable[int], causes: Sequence[Place]) -> None:
        """Note what caused new turns, inside `write`, but for events that never were."""
        last = 0 if all(place for place, _ in causes) else self._db.events.last()
        known = [(place, one) for place, one in causes if place or one <= last]
        self._db.many(_ADD_TURN, [(turn, *at) for turn in ids for at in known])

    def restore(self, events: Sequence[Caused] = (), turns: Sequence[Caused] = ()) -> None:
        """Store the causes of events and turns of a copy, inside `write`."""
        for sql, rows in ((_ADD_EVENT, events), (_ADD_TURN, turns)):
            if rows:
                self._db.many(sql, rows)

    def forget(self, kind: str, number: int) -> None:
        """Forget what caused an event or a turn that is being erased, inside `write`."""
        if kind == "event":
            self._db.changed("DELETE FROM event_causes WHERE event_id = ?", (number,))
        elif kind == "turn":
            self._db.changed("DELETE FROM turn_causes WHERE turn_id = ?", (number,))

    # --- reading; of a thread without these tables there is nothing -----------------------------

    def of_event(self, number: int, limit: int) -> list[Place]:
        """Return what caused an event."""
        return self._run(_OF_EVENT, (number, limit)) if self._db.has_causes() else []

    def of_turn(self, number: int, limit: int) -> list[Place]:
        """Return what caused a turn."""
        return self._run(_OF_TURN, (number, limit)) if self._db.has_causes() else []

    def events(
        self, cause: Place, after: int, upto: int, limit: int, *, newest: bool = False
    ) -> list[int]:
        """Return the first, or the `newest`, ids of a range that an event has caused, in order."""
        if not self._db.has_causes():
            return []
        sql = _NEWEST_EVENTS if newest else _EVENTS
        return sorted(one for (one,) in self._run(sql, (*cause, after, upto, limit)))

    def turns(self, cause: Place, after: int, limit: int) -> list[int]:
        """Return the next turns that an event has caused, by id."""
        if not self._db.has_causes():
            return []
        return [one for (one,) in self._run(_TURNS, (*cause, after, limit))]

    def of_events(self, after: int, upto: int) -> list[Caused]:
        """Return what caused the events of a range."""
        return self._run(_OF_EVENTS, (after, upto)) if self._db.has_causes() else []

    def of_turns(self, after: Caused, limit: int) -> list[Caused]:
        """Return the next causes of turns; (0, "", 0) begins."""
        return self._run(_OF_TURNS, (*after, limit)) if self._db.has_causes() else []
