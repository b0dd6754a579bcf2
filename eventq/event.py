"""The event, apart from the other records because `push`, `pop` and `peek` need nothing else of them."""

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

else:
    from _collections import _tuplegetter

    class Event(tuple):
        """One immutable entry of the log.

        A named tuple made by hand: importing `typing` or `collections` costs more than reading the event. `id` counts
        1, 2, 3 … and is never used again; `created_at` is UTC, ISO 8601 with milliseconds and a `Z`; `subtype` may be
        None; `content` is text that eventq never looks into.
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

        @classmethod
        def _make(cls, row):
            """Give the event of one row of six columns."""
            return tuple.__new__(cls, row)

        def _asdict(self):
            """Give a dictionary with the keys in the order of the columns."""
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return "Event(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True)) + ")"
