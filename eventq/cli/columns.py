"""Events as columns of a terminal: id, local time, source, type, and what each says."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

from eventq.cli import show
from eventq.log.events import fresh
from eventq.said import read
from eventq.system import clock
from eventq.system.environment import env

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.records.event import Event
    from eventq.store.protocol import Database

_COLOURS = ("2", "2", "36", "33", "")  # of each column, as SGR has them: faint, cyan, yellow
_MOST = (0.4, 0.25)  # of what id and time leave, for source and type; the content has the rest
_READ = 100_000  # characters of a content that are looked at
_SHOWN = 1_000  # of what it says, at most


class Columns:
    """Pages of events in columns, which grow with what comes."""

    def __init__(self) -> None:
        self._widths = [0] * 4
        self._coloured = not env("NO_COLOR") and env("TERM") not in ("", "dumb")

    def show(self, db: Database, page: Sequence[Event]) -> None:
        """Write a page; what was read more than a second ago is read again."""
        width = _width()
        for event in page:
            cells = map(cell_len, _cells(event)[:-1])
            self._widths = [*map(max, self._widths, cells)]
        left = max(0, width - sum(self._widths[:2]) - 4)
        most = [int(share * left) for share in _MOST]
        widths = [*self._widths[:2], *map(min, self._widths[2:], most)]
        for event in fresh(db, page):
            show.say(_line(event, widths, width, coloured=self._coloured))


def _line(event: Event, widths: list[int], left: int, *, coloured: bool) -> str:
    """Return an event as a line of at most `left` cells."""
    parts = []
    for text, size, colour in zip(_cells(event), (*widths, left), _COLOURS, strict=True):
        if left > 0 and size > 0:
            part = _fit(text, min(size, left))
            parts.append(f"\x1b[{colour}m{part}\x1b[0m" if colour and coloured else part)
            left -= size + 2
    return "  ".join(parts).rstrip()


def _cells(event: Event) -> list[str]:
    kind = event.type if event.subtype is None else f"{event.type}/{event.subtype}"
    content = event.content[:_READ].encode("utf-8", "replace")
    text = read(content, event.type, whole=len(event.content) <= _READ).line(_SHOWN)
    return [
        *map(show.readable, (f"#{event.id}", _local(event.created_at), event.source, kind, text))
    ]


def _local(stamp: str) -> str:
    """Return a time of the log in local time; of today without the date."""
    try:
        at = datetime.fromisoformat(stamp).astimezone()
    except (ValueError, OverflowError):  # of another tool
        return stamp
    today = datetime.fromtimestamp(clock.now(), UTC).astimezone().date()
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"


def _fit(text: str, size: int) -> str:
    """Return a text in exactly so many cells; a cut is marked."""
    if cell_len(text) <= size:
        return set_cell_size(text, size)
    return set_cell_size(text, size - 1) + "…"


def _width() -> int:
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:  # it is gone: the next write says so
        return 80
