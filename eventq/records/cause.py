"""What caused an event or a turn, and what an event has caused."""

from __future__ import annotations

from eventq.record import Record

MOST_CAUSES = 100  # events of a batch that are noted with each thing that is written for it


class Cause(Record):
    """An event that caused something; `thread` is where it is, None for the same thread."""

    event_id: int
    thread: str | None = None


class Effects(Record):
    """What an event has caused: events and turns, by their ids, the oldest first.

    `is_all` is False where there are more of either.
    """

    events: tuple[int, ...]
    turns: tuple[int, ...]
    is_all: bool = True
