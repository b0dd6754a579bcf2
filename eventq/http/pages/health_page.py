"""How the thread is: what is wrong with the command that helps, sizes, and the last check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.log.notifier import quote
from eventq.serving.attention import troubles
from eventq.system import clock

if TYPE_CHECKING:
    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

LARGE_LOG = 256 << 20  # bytes of a log of changes that somebody keeps from being taken over
LISTED = 50


def health(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what is wrong and what to do about it, sizes, and what the last check found."""
    status, served = thread.status(), ask.served
    found = troubles(status, (), served.history.earlier(), clock.now())
    at = f"--thread {quote(status.path)}"
    checked = served.checked or {"faults": [], "warnings": []}
    return "health.html", {
        "status": status, "history": served.history, "followers": served.feed.followers,
        "checked": served.checked, "faults": checked["faults"][:LISTED],
        "warnings": checked["warnings"][:LISTED], "troubles": found[:LISTED],
        "more": max(0, len(found) - LISTED), "is_shared": thread.is_shared,
        "doctor": f"eventq doctor {at}", "checks": f"eventq check {at}",
        "has_large_log": status.wal_bytes > LARGE_LOG,
    }  # fmt: skip
