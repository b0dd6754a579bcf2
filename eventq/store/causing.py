"""Which events this process is at work on: they cause what it writes.

A worker or a reader says so for as long as its function or its loop has an event. Otherwise the
environment may: of a handler, or of whoever has claimed an event. A variable may hold anything, as
it is inherited by whatever a handler starts: what is no event is ignored, and nothing fails by it.

Nothing imports this until there is a cause, so a plain push does not pay for it.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import lru_cache

from eventq.errors import EventqError, UsageError
from eventq.record import Record
from eventq.records.cause import MOST_CAUSES
from eventq.store import transactions
from eventq.store.paths import is_shared, is_url, resolve
from eventq.system import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from eventq.store.causes import Place

MOST_PLACE = 1_000  # bytes: an index has room for no more
VARIABLES = ("EVENTQ_EVENT_ID", "EVENTQ_EVENT_IDS")  # one event, or those of a batch
_THREAD = "EVENTQ_THREAD"


class Stated(Record):
    """Events, and the path or the URL of the thread that they are in."""

    place: str
    events: tuple[int, ...]


class During:
    """A context manager: what is written meanwhile is caused by some events of a thread.

    This holds for this OS thread, or this task, and whatever thread is written to. It is used once.
    Loops over several readers may take turns, so the last one to begin need not end first.
    """

    def __init__(self, place: str, events: Iterable[int]) -> None:
        """Take the path or the URL of the thread, and the ids."""
        self.stated = Stated(place, tuple(events)[:MOST_CAUSES])
        self.has_begun = self.is_over = False
        self.before: During | None = None

    def __enter__(self) -> None:
        """Begin. Raises UsageError the second time."""
        if self.has_begun:
            what = "this context manager was used before"
            raise UsageError(what, "make another one with during()")
        self.has_begun = True
        near = self.before = _not_over(_during.get())
        _during.set(self)
        while near is not None:  # forget what is over: loops that take turns would pile it up
            near.before = _not_over(near.before)
            near = near.before

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """End; another OS thread may do that, for a generator that nobody has closed."""
        self.is_over = True
        if _during.get() is self:
            _during.set(_not_over(self.before))


_during: ContextVar[During | None] = ContextVar("eventq_causes", default=None)


def _not_over(found: During | None) -> During | None:
    """Return what was begun, or else the nearest around it that is not over."""
    while found is not None and found.is_over:
        found = found.before
    return found


def causes(place: str) -> Sequence[Place]:
    """Return what causes a write to the thread at `place`: where each event is, and its id."""
    nearest = _not_over(_during.get())
    if nearest is not None:
        stated: Stated | None = nearest.stated
    else:
        stated = _inherited(*map(environment.env, (*VARIABLES, _THREAD)))
    if stated is None:
        return ()
    there = place_of(stated.place)
    if there is None:
        return ()
    if there == place_of(place):
        there = ""
    return [(there, one) for one in stated.events]


def disown() -> None:
    """Forget what the environment says: a server is not at work on the event that started it."""
    for name in VARIABLES:
        environment.take_env(name)


@lru_cache(1)
def _inherited(one: str, batch: str, thread: str) -> Stated | None:
    """Return what the environment says, if it is sound."""
    texts = (one or batch).split(",")[:MOST_CAUSES]
    events = tuple(number for number in map(_number, texts) if number)
    return Stated(thread, events) if events and thread else None


def _number(text: str) -> int:
    """Return the id that a text is, 0 for one that no event has."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return found if found < 1 << 63 else 0


def place_of(path: str) -> str | None:
    """Return the one name that a thread has as a place: its real path, or its URL.

    None for what cannot be one, or is too long.
    """
    try:
        place = _place(path if is_url(path) else resolve(path))
        return place if len(place.encode()) <= MOST_PLACE else None
    except (EventqError, OSError, ValueError):
        return None


@lru_cache(100)
def _place(path: str) -> str:
    if not is_shared(path):
        return os.path.realpath(path)
    from eventq.store.address import parse
    from eventq.store.shared_paths import url_of

    address = parse(url_of(path) or path)
    return address.at(address.name)


transactions.find_causes = causes
