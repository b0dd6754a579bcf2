"""The page of an event: what it says, how it went with consumers, its causes and effects."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError, UnknownEventError
from eventq.http.pages.live_page import MOST_READ, told
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import blocks_of
from eventq.http.pages.wording import json_words, pretty
from eventq.records.event import ASKING, Event, question_in
from eventq.records.source import sender_of
from eventq.said import Data
from eventq.serving.attention import telling
from eventq.serving.event_pages import next_lines
from eventq.serving.fates import FATES, fates
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.records.cause import Cause, Effects
    from eventq.serving.fates import Fate
    from eventq.thread import Thread

    Values = dict[str, Any]

LINE = 200  # characters of a neighbour, a cause or an effect
LONGEST = 20_000  # characters of JSON that are shown
NEIGHBOURS = 4  # on each side
MOST = 200  # consumers that are listed
MOST_EFFECTS = 20  # of a kind


def event(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show an event, how it went, what caused it and what came of it, and what is around it."""
    number = whole_in(ask.names, "event")
    log = thread.database.events
    found = log.get(number)
    if found is None:
        raise UnknownEventError(number)
    says = told(found)
    is_json = bool(says.blocks) and all(isinstance(one, Data) for one in says.blocks)
    went = fates(thread, found)
    others = [one for one in went if one.state == "not for it"]
    key = log.keys(number - 1, number).get(number)
    bounds = log.bounds()
    return "event.html", {
        "event": found, "sender": sender_of(found.source), "size": len(found.content.encode()),
        "words": json_words(pretty(found.content, LONGEST)) if is_json else [],
        "blocks": [] if is_json else blocks_of(says),
        "payload": "" if is_json or says.text == found.content else pretty(found.content),
        "went": [_went(one) for one in went if one.state != "not for it"][:MOST],
        "others": [one.consumer.filter for one in others], "most": MOST,
        "summary": _summary(went), "key": key, "question": _question(thread, found, key),
        "causes": _causes(thread, thread.causes_of(event=number)),
        **_effects(thread, thread.caused_by(number, limit=MOST_EFFECTS)),
        "around": _around(thread, number), "before": number - 1 if number > 1 else 0,
        "after": number + 1 if number < bounds.last else 0,
    }  # fmt: skip


def _went(fate: Fate) -> Values:
    """Return how an event went with a consumer, in words; `at` is when, in seconds, or None."""
    row, one = fate.row, fate.consumer
    how, at = "", row.at / 1000 if row is not None else None
    if fate.is_behind:
        how, at = "behind an earlier event of its group", None
    elif fate.state == "held" and row is not None:
        how = f"{row.worker or 'a worker'} has it, attempt {row.attempts}; its claim ends"
    elif row is not None:
        how = count(row.attempts, "attempt") + ("" if row.code is None else f", exit {row.code}")
        is_next = fate.state == "waits" and row.at / 1000 <= clock.now()
        how += ", again" if fate.state == "waits" and not is_next else ","
        if is_next or fate.state == "stalled":
            how, at = how.removesuffix(","), None
    elif fate.state == "waits":
        how = "stalled" if one.stalled is not None else "paused" if one.paused else ""
        how += f"{', ' if how else ''}acked up to event {one.acked}"
    elif fate.state == "unknown":
        how = "its filter cannot be run, or takes too long"
    return {
        "consumer": one.consumer, "state": fate.state, "how": how, "at": at,
        "error": telling(row.error) if row is not None and row.error else "",
    }  # fmt: skip


def _summary(went: Sequence[Fate]) -> str:
    """Return with how many consumers an event went how, in words."""
    states = [one.state for one in went]
    return ", ".join(f"{states.count(one):,} {one}" for one in FATES if one in states)


def _question(thread: Thread, found: Event, key: str | None) -> Values | None:
    """Return the question that an event asks or answers, and which of both."""
    number = found.id if found.type in ASKING else question_in(key)
    if not number or number < 0:
        return None
    with suppress(EventqError):
        return {"asks": number == found.id, **thread.question(number)._asdict()}
    return None


def _causes(thread: Thread, causes: Sequence[Cause]) -> list[Values]:
    """Return what caused an event, with what it says where it is of this thread."""
    here = [one.event_id for one in causes if one.thread is None]
    says = _lines(thread, here)
    return [
        {"event": one.event_id, "thread": one.thread, "words": says.get(one.event_id, ("", ""))}
        for one in causes
    ]


def _effects(thread: Thread, effects: Effects) -> Values:
    """Return the events and turns that an event has caused, with what they say."""
    says, turns = _lines(thread, effects.events), thread.contexts.turns if effects.turns else None
    made = []
    for number in effects.turns:
        with suppress(EventqError):  # hidden, erased or damaged: the link says more
            made.append((number, turns.said(turns.turn(number)).line(LINE) if turns else ""))
            continue
        made.append((number, ""))
    return {
        "events": [(one, *says.get(one, ("event", ""))) for one in effects.events],
        "turns": made, "is_all": effects.is_all,
    }  # fmt: skip


def _lines(thread: Thread, numbers: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return type and words of events, as many as a page may hold."""
    found = thread.database.events.among(numbers)[0] if numbers else {}
    return {one.id: (one.type, told(one, MOST_READ).line(LINE)) for one in found.values()}


def _around(thread: Thread, number: int) -> list[tuple[int, str]]:
    """Return the neighbours of an event with what they say, the newest first."""
    log = thread.database.events
    lines = next_lines(log, None, max(0, number - NEIGHBOURS - 1), 2 * NEIGHBOURS + 1)[0]
    found = (Event(**json.loads(one)) for one in lines)
    return [(one.id, told(one, MOST_READ).line(LINE)) for one in found][::-1]
