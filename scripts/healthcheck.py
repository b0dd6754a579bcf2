"""Exit with 1 if a thread below a folder cannot be read, or if nobody runs its handlers.

A container that runs `eventq work` or a server calls it. A consumer that stalled or is paused is
for a person to look at: starting the container again would not help.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import eventq

if TYPE_CHECKING:
    from collections.abc import Iterator


def faults(folder: str) -> Iterator[str]:
    """Yield what is wrong, one sentence each."""
    for place in eventq.threads(folder):
        try:
            with eventq.open(place, read_only=True) as thread:
                for one in thread.status().consumers:
                    is_served = one.running or one.paused or one.stalled
                    if one.handler_cmd and one.pending and not is_served:
                        yield f"{place}: nobody runs the handler of consumer '{one.consumer_id}'"
        except eventq.EventqError as error:
            yield f"{place}: {error}"


if __name__ == "__main__":
    found = [*faults(sys.argv[1])]
    print("\n".join(found) or "ok")
    sys.exit(bool(found))
