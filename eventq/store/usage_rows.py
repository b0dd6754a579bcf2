"""Tokens as the domain and an engine exchange them."""

from __future__ import annotations

from eventq.record import Record


class Figure(Record):
    """What a response took that a line of a session states, or stands beside.

    `response` is a number that its lines have in common, 0 for none. `agent` is 1 for a subagent
    within the file.
    """

    position: int  # of the entry that it counts for
    response: int
    agent: int
    at: int | None  # None: as its turn
    model: str
    out: int
    fresh: int
    cached: int


class Appended(Record):
    """A turn that was appended to a context, in the version that it has by that."""

    context: int
    version: int
    turn: int
    type_id: str
    at: int
    digest: bytes


class UsageCopy(Record):
    """What a response took, as it is stored: of a session, a context, or one that is gone."""

    turn: int
    response: int
    session: int | None
    context: int | None
    agent: int
    at: int
    model: str
    out: int
    fresh: int
    cached: int
