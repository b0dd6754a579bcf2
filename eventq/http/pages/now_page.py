"""The first view: who needs a person, who is stuck, and what is at work."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.http.pages.page_request import path_of
from eventq.http.pages.talk import last_words
from eventq.serving.attention import first_dead, needs, troubles
from eventq.system import clock

if TYPE_CHECKING:
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Values = dict[str, Any]

CLAIMS = 1_000  # that are looked at
CARDS = 12
MOST_NEEDS = 100  # of a thread


def now(thread: Thread, served: ServedThread) -> Values:
    """Return what the first view shows of one thread."""
    status = thread.status()
    claims = [*islice(thread.claims(), CLAIMS)] if any(c.leased for c in status.consumers) else []
    found = needs(status, first_dead(thread, status))
    served.needed = len(found)
    return {
        "name": served.name, "at": path_of(served), "status": status, "problem": "",
        "needs": found[:MOST_NEEDS], "has_more": len(found) > MOST_NEEDS,
        "troubles": troubles(status, claims, served.history.earlier(), clock.now()),
        "cards": [
            {"info": one, "words": last_words(thread, one.head_turn_id)}
            for one in status.contexts[:CARDS]
        ],
    }  # fmt: skip
