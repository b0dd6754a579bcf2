"""Plans: what a request asks of a thread, and how it may be run beside others."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.thread import Thread

    Need = Callable[[int], None]

QUICK, READ, WRITE = "quick", "read", "write"
LARGE = 1 << 20  # bytes of a request from which on its write shares no transaction with others


class Plan(Record):
    """How to handle a request: QUICK, READ or WRITE, and the function that returns the reply.

    What is QUICK never takes long. A write is all or nothing by itself; it may share a transaction
    with others unless it brings LARGE bytes.
    """

    how: str
    run: Callable[[Thread], Any]
    large: bool = False


class Sized(Record):
    """A long result that is not read yet: its size in bytes, and what reads it."""

    size: int
    read: Callable[[], Any]


def read_once_it_fits(found: Any, need: Need) -> Any:
    """Read what is Sized once there is memory for it; return anything else. Raises as `need`."""
    if not isinstance(found, Sized):
        return found
    need(found.size)
    return found.read()


def need_nothing(_: int) -> None:
    """Reserve no memory, as there is enough for everything."""
