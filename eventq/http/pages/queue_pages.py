"""The pages of the queue: its consumers, one of them, and how the thread is."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.errors import UnknownConsumerError
from eventq.serving.attention import died_by, tail

if TYPE_CHECKING:
    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

LETTERS = 100  # that are shown


def consumers(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List the consumers."""
    shown = {"consumers": thread.status().consumers, "history": ask.served.history}
    return "consumers.html", shown


def consumer(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one consumer, the end of its log, and its dead letters."""
    name = ask.names["consumer"]
    one = next((one for one in thread.status().consumers if one.consumer_id == name), None)
    if one is None:
        raise UnknownConsumerError(name)
    letters = [*islice(thread.dead_letters(name), LETTERS)] if one.dead else []
    return "consumer.html", {
        "one": one, "history": ask.served.history, "output": tail(one.log) if one.log else "",
        "letters": letters, "died_by": died_by([row.died_at_ms for row in letters], one.dead),
    }  # fmt: skip


def health(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show sizes, and what the last check found."""
    return "health.html", {
        "status": thread.status(), "history": ask.served.history,
        "followers": ask.served.feed.followers, "checked": ask.served.checked,
    }  # fmt: skip
