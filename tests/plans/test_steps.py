"""The work of a call: how often it goes into the driver."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import eventq


def driver_calls(call: Callable[[], object]) -> int:
    """Count the driver calls of a call, on any connection."""
    found = 0

    def count(_: FrameType, event: str, function: Any) -> None:
        nonlocal found
        name = getattr(function, "__name__", "")
        if event == "c_call" and name in ("execute", "executemany", "pragma"):
            found += isinstance(getattr(function, "__self__", None), (apsw.Cursor, apsw.Connection))

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture
def warm(thread: eventq.Thread) -> eventq.Thread:
    """Return a thread in which everything has been done once."""
    thread.subscribe("w", "true")
    thread.subscribe("f", "true", filter="type = 'other'")
    for number in range(3):
        thread.push("self", "note", "x", key=f"k{number}")
        thread.push_many([("self", "note", "x")] * 3)
        for consumer in "wf":
            thread.pop(consumer, number + 1)
    return thread


def test_the_calls_into_the_driver(warm: eventq.Thread) -> None:
    """A push is one statement, a pop three, 250 keyed events four, beside BEGIN and COMMIT."""
    thread = warm
    thread.push("self", "note", "x")
    assert driver_calls(lambda: thread.push("self", "note", "x")) == 1
    assert driver_calls(lambda: thread.push("self", "note", "x", key="new")) <= 6
    thread.pop("w", 4)
    assert driver_calls(lambda: thread.pop("w", 5)) <= 3
    assert driver_calls(lambda: thread.pop("f", 5)) <= 4  # and one compiles the filter
    assert driver_calls(lambda: thread.ack("w", 6)) <= 2
    rows = [("self", "note", "x", None, f"b{number}") for number in range(1000)]
    assert driver_calls(lambda: thread.push_many(rows)) <= 2 + 4 * 4 + 2
