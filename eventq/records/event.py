"""Events: as they are stored, read in pages, and told to subscribers."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


ASKING = frozenset(("question", "approval"))  # the types of questions; see `store.question_rules`
ANSWER = "answer"
ANSWER_KEY = f"{ANSWER}:"  # what the key of an answer begins with, before the id of its question
NOTED = ASKING | {ANSWER}  # the types of events that change what is asked


class Event(Record):
    """One immutable entry of the log.

    `id` counts 1, 2, 3 … and is never used again. `created_at` is UTC, ISO 8601 with milliseconds
    and a `Z`. `source` is the sender, `type` and `subtype` (may be None) classify the event.
    `content` is text that eventq never looks into.
    """

    id: int
    created_at: str
    source: str
    type: str
    subtype: str | None
    content: str


class Batch(Record):
    """What `push_many` stored: how many events, and the first and last id (None for no event)."""

    count: int  # type: ignore[assignment]
    first_id: int | None
    last_id: int | None


class NewEvent(Record):
    """An event that is to be stored; see `Event`.

    The same `key` again returns the event that was stored with it first.
    """

    source: str
    type: str
    content: str
    subtype: str | None = None
    key: str | None = None


def question_in(key: str | None) -> int | None:
    """Return the question that a key says an event answers, None for any other key.

    It is -1 for one that no event can have as its id.
    """
    if key is None or not key.startswith(ANSWER_KEY):
        return None
    digits = key[len(ANSWER_KEY) :]
    if not (digits.isascii() and digits.isdecimal()) or (digits[0] == "0" and digits != "0"):
        return None
    return int(digits) if len(digits) < 20 else -1


def may_answer(row: NewEvent) -> bool:
    """Return whether an event has the type or the key of an answer, so that it is to be checked."""
    return row[1] == ANSWER or (row[4] is not None and question_in(row[4]) is not None)


class Appended(Record):
    """What an append stored: the ids `first` to `last`, both 0 for none.

    `found` has the index in the list and the event id of each key that was used before.
    """

    first: int
    last: int
    created_at: str
    found: Sequence[tuple[int, int]]


class Commit(Record):
    """What subscribers get for a transaction that stored the events `first` to `last`.

    There is a part for each push and each batch: the first id, how many, the time, and the events
    as the five values of `NewEvent`, which are left out of all parts where they are large. `source`
    is the last one's.
    """

    first: int
    last: int
    source: str
    parts: Sequence[tuple[int, int, str, Sequence[NewEvent]]]


class EventPage(Record):
    """Some matching events, and the id that the search has reached."""

    events: list[Event]
    next: int


class LinePage(Record):
    """Some matching events as JSON, the id that the search has reached, the last line's id or 0."""

    lines: list[str]
    next: int
    last_id: int


class Bounds(Record):
    """The oldest stored event (0: none), the newest there ever was, and how many are stored."""

    first: int
    last: int
    stored: int


class Tally(Record):
    """How many events of a range match a filter, and the first one of them, None for none.

    Unless it is `whole`, the search ended early: so many there are at least.
    """

    first: int | None = None
    count: int = 0  # type: ignore[assignment]
    whole: bool = True
