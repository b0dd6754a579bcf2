"""The fence of a handler: the number of its supervisor, which rises with each newer one.

A supervisor that was stopped or killed may leave a handler at work that nobody recognises. What
that one acks must not move the progress under the handler of a newer supervisor.
"""

from __future__ import annotations

import os

from eventq.system import environment
from eventq.system.locks import encode

VARIABLE = "EVENTQ_FENCE"


def text_of(number: int, consumer: str, thread: str) -> str:
    """Return the fence of a handler as it is in its environment.

    It names its consumer and thread itself: a handler may set the other variables for another one.
    """
    return f"{number} {encode(consumer)} {thread}"


def fence_of(thread: str, consumer: str) -> int | None:
    """Return the fence of this process, or None if it is no handler of this consumer."""
    number, _, rest = environment.env(VARIABLE).partition(" ")
    name, _, mine = rest.partition(" ")
    is_number = number.isascii() and number.isdigit() and len(number) < 19
    if not is_number or name != encode(consumer) or not _is_same(mine, thread):
        return None
    return int(number)


def _is_same(mine: str, thread: str) -> bool:
    """Return whether two directories or URLs are those of one thread."""
    try:
        return mine == thread or os.path.samefile(mine, thread)
    except OSError:
        return False
