"""The records of the hot path, apart from the others because `push`, `pop` and `peek` need nothing else of them.

Named tuples made by hand: importing `typing`, `collections` or `dataclasses` costs more than storing an event.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
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

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            pairs = zip(self._fields, self, strict=True)
            return f"{type(self).__name__}(" + ", ".join(f"{name}={value!r}" for name, value in pairs) + ")"

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
