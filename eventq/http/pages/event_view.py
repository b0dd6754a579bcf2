"""The page of an event: what it says, what caused it, what came of it, what stands around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eventq.errors import UnknownEventError
from eventq.http.pages.live_page import told
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import blocks_of
from eventq.http.pages.wording import pretty
from eventq.records.event import Event
from eventq.records.source import sender_of
from eventq.serving.event_pages import next_lines

if TYPE_CHECKING:
    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

SHOWN = 200  # characters of an event on a line


def event(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what one event says, what caused it, what came of it, and what stands around it."""
    number = whole_in(ask.names, "event")
    found = thread.database.events.get(number)
    if found is None:
        raise UnknownEventError(number)
    says = told(found)
    lines, _, _ = next_lines(thread.database.events, None, max(0, number - 6), 11)
    around = [Event(**json.loads(one)) for one in lines]
    is_raw = says.text == found.content
    return "event.html", {
        "event": found, "sender": sender_of(found.source), "blocks": blocks_of(says),
        "payload": "" if is_raw else pretty(found.content),
        "causes": thread.causes_of(event=number), "effects": thread.caused_by(number),
        "around": [(one, told(one).line(SHOWN)) for one in around],
    }  # fmt: skip
