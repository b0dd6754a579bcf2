"""The fence of a handler: the number of its supervisor, which rises with each newer one.

A supervisor that was stopped or killed may leave a handler at work that nobody recognises. What
that one acks must not move the progress under the handler of a newer supervisor.
"""

from __future__ import annotations

import os

from eventq import system


def fence_of(directory: str, consumer: str) -> int | None:
    """Return the fence of this process, or None if it is no handler of this consumer."""
    number = system.env_number("EVENTQ_FENCE", -1)
    if number < 0 or system.env("EVENTQ_CONSUMER") != consumer:
        return None
    try:
        mine = os.path.samefile(system.env("EVENTQ_THREAD"), directory)
    except OSError:
        return None
    return number if mine else None
