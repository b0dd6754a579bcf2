"""The pages of the log: events as they come, and one by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from eventq.errors import FilterError, UnknownEventError
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import blocks_of
from eventq.http.pages.wording import pretty
from eventq.records.event import Event
from eventq.records.source import sender_of
from eventq.said import read
from eventq.serving.event_pages import in_bounds, newest_events, next_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.said import Said
    from eventq.thread import Thread

    Values = dict[str, Any]

ROWS = 100  # events of the live view
SHOWN = 200  # characters of an event on a line


def live(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the newest events, or those around an id, with a filter and a text."""
    where, text, number = (ask.query.get(name, "") for name in ("filter", "text", "id"))
    values: Values = {
        "filter": where, "text": text, "id": number, "problem": "", "older": "", "stream": "",
        "events": [], "next": 0,
    }  # fmt: skip
    try:
        found = _events(thread, where, text, number)
    except FilterError as error:
        return "live.html", values | {"problem": f"{error.what} - {error.fix}\n{error.caret()}"}
    values |= {"events": found, "next": found[0]["id"] if found else thread.last_id()}
    if not number:
        asked = _where(where, text)
        api = f"/api/threads/{quote(ask.served.name, safe='')}/events/stream"
        values["stream"] = api + (f"?{urlencode({'filter': asked})}" if asked else "")
    if found and not where and not text and found[-1]["id"] > 1:
        values["older"] = f"?id={max(1, found[-1]['id'] - ROWS // 2)}"
    return "live.html", values


def event(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what one event says, what caused it, what came of it, and what stands around it."""
    number = whole_in(ask.names, "event")
    found = thread.database.events.get(number)
    if found is None:
        raise UnknownEventError(number)
    told = _told(found)
    lines, _, _ = next_lines(thread.database.events, None, max(0, number - 6), 11)
    around = [Event(**json.loads(one)) for one in lines]
    is_raw = told.text == found.content
    return "event.html", {
        "event": found, "sender": sender_of(found.source), "blocks": blocks_of(told),
        "payload": "" if is_raw else pretty(found.content),
        "causes": thread.causes_of(event=number), "effects": thread.caused_by(number),
        "around": [(one, _told(one).line(SHOWN)) for one in around],
    }  # fmt: skip


def _told(one: Event) -> Said:
    """Return what an event says."""
    return read(one.content.encode("utf-8", "replace"), one.type)


def _events(thread: Thread, where: str, text: str, number: str) -> Sequence[Values]:
    """Return events as objects, the newest first."""
    if where:
        thread.database.events.accept(where)  # so that a mistake is shown in what was written
    asked = _where(where, text)
    if number:
        after = max(0, whole_in({"id": number}, "id") - ROWS // 2 - 1)

        def look() -> Sequence[str]:
            return next_lines(thread.database.events, asked, after, ROWS)[0]

        found = [json.loads(one) for one in in_bounds(thread, asked, look)]
    else:
        found = [one._asdict() for one in newest_events(thread, asked, ROWS)]
    return found[::-1]


def _where(where: str, text: str) -> str | None:
    """Return the filter for what matches a filter and has a text."""
    quoted = text.replace("'", "''")
    parts = [f"({where})"] * bool(where) + [f"instr(content, '{quoted}') > 0"] * bool(text)
    return " AND ".join(parts) or None
