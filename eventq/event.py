"""The records of the hot path, apart from the others because `push`, `pop` and `peek` need nothing else of them.

Below them, what names and numbers that are given may be.

Named tuples made by hand: importing `typing`, `collections` or `dataclasses` costs more than storing an event.
"""

from __future__ import annotations

from eventq.errors import InputError, UsageError

REF = "blob:blake3:"  # 64 lower-case hex digits follow
MAX_NAME = 1 << 16  # characters of a source, type, subtype, key or consumer id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NamedTuple

    class Event(NamedTuple):
        """One immutable entry of the log."""

        id: int
        created_at: str
        source: str
        type: str
        subtype: str | None
        content: str

    class Batch(NamedTuple):
        """What `push_many` stored."""

        count: int  # type: ignore[assignment]
        first_id: int | None
        last_id: int | None

    class NewEvent(NamedTuple):
        """An event that is to be stored."""

        source: str
        type: str
        content: str
        subtype: str | None = None
        key: str | None = None

    class Appended(NamedTuple):
        """What an append stored: the ids `first` to `last`, both 0 for none.

        `found` are the place in the list and the event id of each key that was used before.
        """

        first: int
        last: int
        created_at: str
        found: Sequence[tuple[int, int]]

    class Commit(NamedTuple):
        """What subscribers learn of a transaction that stored the events `first` to `last`.

        There is a part for each push and each batch: the first id, how many, the time, and the
        events, which are left out of all parts where they are large. `source` is the last one's.
        """

        first: int
        last: int
        source: str
        parts: Sequence[tuple[int, int, str, Sequence[NewEvent]]]

    class EventPage(NamedTuple):
        """Some matching events, and the id that the search has got to."""

        events: list[Event]
        next: int

    class LinePage(NamedTuple):
        """Some matching events as JSON, the id that the search has got to, and that of the last line (0: none)."""

        lines: list[str]
        next: int
        last_id: int

    class Bounds(NamedTuple):
        """The oldest stored event (0: none), the newest there ever was, and how many are stored."""

        first: int
        last: int
        stored: int

    class ConsumerState(NamedTuple):
        """What is known of one subscription.

        `attempts` counts runs without progress since the last ack, `stalled` says why no handler is
        started, and no event after `acked` up to `scanned` matches.
        """

        consumer: str
        handler: str
        filter: str | None
        acked: int
        updated_at: str | None
        max_attempts: int
        timeout: float | None
        attempts: int
        stalled: str | None
        scanned: int

    class Popped(NamedTuple):
        """What an ack left behind: the next page, and whether the consumer may be due although nothing is new.

        `page` is None for an ack alone. `woke` says that the ack ended a stall or asked for a replay.
        """

        page: EventPage | LinePage | None
        woke: bool

else:
    from _collections import _tuplegetter

    class _Record(tuple):
        __slots__ = ()
        _fields = ()

        @classmethod
        def _make(cls, row):
            """Give the record of one row."""
            return tuple.__new__(cls, row)

        def _asdict(self):
            """Give a dictionary with the keys in the order of the fields."""
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **values):
            """Return a record with other values in some fields."""
            return self._make(
                values.get(name, value) for name, value in zip(self._fields, self, strict=True)
            )

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            pairs = zip(self._fields, self, strict=True)
            return (
                f"{type(self).__name__}("
                + ", ".join(f"{name}={value!r}" for name, value in pairs)
                + ")"
            )

    class Event(_Record):
        """One immutable entry of the log.

        `id` counts 1, 2, 3 … and is never used again; `created_at` is UTC, ISO 8601 with milliseconds and a `Z`;
        `subtype` may be None; `content` is text that eventq never looks into.
        """

        __slots__ = ()
        __match_args__ = _fields = ("id", "created_at", "source", "type", "subtype", "content")

        def __new__(cls, id, created_at, source, type, subtype, content):
            return tuple.__new__(cls, (id, created_at, source, type, subtype, content))

        id = _tuplegetter(0, "The number of the event, from 1.")
        created_at = _tuplegetter(1, "When it was stored, UTC, ISO 8601 with milliseconds.")
        source = _tuplegetter(2, "Who it comes from.")
        type = _tuplegetter(3, "What it is.")
        subtype = _tuplegetter(4, "What it is more exactly, or None.")
        content = _tuplegetter(5, "The payload.")

    class Batch(_Record):
        """What `push_many` stored: how many events, and the ids of the first and the last (None for no event)."""

        __slots__ = ()
        __match_args__ = _fields = ("count", "first_id", "last_id")

        def __new__(cls, count, first_id, last_id):
            return tuple.__new__(cls, (count, first_id, last_id))

        count = _tuplegetter(0, "How many events were stored.")
        first_id = _tuplegetter(1, "The id of the first, or None.")
        last_id = _tuplegetter(2, "The id of the last, or None.")

    class NewEvent(_Record):
        """An event that is to be stored; see `Event`.

        The same `key` again stands for the event that was stored with it first.
        """

        __slots__ = ()
        __match_args__ = _fields = ("source", "type", "content", "subtype", "key")

        def __new__(cls, source, type, content, subtype=None, key=None):
            return tuple.__new__(cls, (source, type, content, subtype, key))

        source = _tuplegetter(0, "Who it comes from.")
        type = _tuplegetter(1, "What it is.")
        content = _tuplegetter(2, "The payload.")
        subtype = _tuplegetter(3, "What it is more exactly, or None.")
        key = _tuplegetter(4, "The key under which it is stored once, or None.")

    def _record(name, fields):
        """Return a record class of fields that are given by position."""
        fields = tuple(fields.split())
        body = {field: _tuplegetter(place, "") for place, field in enumerate(fields)}
        body |= {"__slots__": (), "__new__": lambda cls, *values: tuple.__new__(cls, values)}
        return type(name, (_Record,), {**body, "_fields": fields, "__module__": __name__})

    Appended = _record("Appended", "first last created_at found")
    Commit = _record("Commit", "first last source parts")
    EventPage = _record("EventPage", "events next")
    LinePage = _record("LinePage", "lines next last_id")
    Bounds = _record("Bounds", "first last stored")
    ConsumerState = _record(
        "ConsumerState",
        "consumer handler filter acked updated_at max_attempts timeout attempts stalled scanned",
    )
    Popped = _record("Popped", "page woke")


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise InputError for a source, type, subtype, key or consumer id that cannot be one."""
    if not isinstance(value, str):
        raise InputError(
            f"{what} must be text, not {type(value).__name__}", f"give the {what} as a string"
        )
    if not value and not empty:
        raise InputError(f"{what} is empty", f"give a {what}")
    if len(value) > MAX_NAME:
        raise InputError(
            f"{what} is too long ({len(value)} characters, the limit is {MAX_NAME})",
            f"shorten the {what}",
        )
    if not value.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise InputError(f"{what} holds a control character", f"leave it out of the {what}")
    if not value.isascii():
        check_whole(value, what)


def check_whole(value: str, what: str) -> None:
    """Raise InputError for text that holds half a character: it cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} holds half a character (a lone surrogate)", "give whole Unicode characters"
        ) from error


def check_natural(value: int, name: str) -> int:
    """Give an id, a depth or a seq; raise UsageError for what cannot be one."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 0 to 2^63-1, not {value!r}",
            "give an id that was read",
        )
    return value


def check_positive(value: int, name: str) -> int:
    """Give a count; raise UsageError for what is none, or 0."""
    if type(value) is not int or not 1 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 1 to 2^63-1, not {value!r}", "give 1 or more"
        )
    return value


def refs_in(text: str) -> set[bytes]:
    """Give the hashes of the blobs that a text names anywhere."""
    found = set()
    at = text.find(REF)
    while at >= 0:
        digits = text[at + len(REF) : at + len(REF) + 64]
        if len(digits) == 64 and not digits.strip("0123456789abcdef"):
            found.add(bytes.fromhex(digits))
        at = text.find(REF, at + 1)
    return found
