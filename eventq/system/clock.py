"""The clock, and times as text. Tests replace `now` and `monotonic` here."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SLOW_LOOK = 1.0  # seconds between two looks when no watcher says that anything has changed
# The last second formatted and its text: strftime costs more than the rest of a timestamp.
_second: list[Any] = [-1, ""]
now = time.time  # seconds since 1970, UTC
monotonic = time.monotonic  # seconds that only grow, for deadlines


def pause(seconds: float) -> None:
    """Sleep, in the few places where there is no signal to wait for."""
    time.sleep(seconds)


def stamp(seconds: float) -> str:
    """Return a time as `2026-03-18T10:30:00.123Z`."""
    whole = int(seconds // 1)
    cached, text = _second
    if cached != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second[:] = (whole, text)
    return f"{text}.{int((seconds - whole) * 1000):03d}Z"


def file_stamp(seconds: float) -> str:
    """Return a time as in the name of a rotated file, `20260318-103000`."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))


def file_stamp_after(text: str) -> str:
    """Return the time in a rotated file's name plus a second, or "" if it is no time."""
    from calendar import timegm

    try:
        later = file_stamp(timegm(time.strptime(text, "%Y%m%d-%H%M%S")) + 1)
    except (ValueError, OverflowError):
        return ""
    return later if len(later) == len(text) else ""
