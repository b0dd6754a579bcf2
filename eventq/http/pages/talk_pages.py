"""The pages of what was said: a conversation, one turn, and what two contexts have apart."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import messages
from eventq.memory.turns import View
from eventq.records.turn import ContextInfo
from eventq.said.media import IMAGES, of_bytes, type_of
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.http.pages.page_request import Ask
    from eventq.records.turn import Turn
    from eventq.thread import Thread

    Values = dict[str, Any]

LANES = 200  # contexts that a turn is looked for in
PAGE = 200  # turns of a page
EXCERPT = 300  # characters of a payload in a list
SHOWN = 100_000  # characters of a payload by itself
LISTED = 200
WAYS = 20  # that go on from one turn, and are listed


def context(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the turns of a context, the newest first, or those before one."""
    found = thread.contexts.get(ask.names["context"])
    view = View(found.turns, found.head_id())
    before = whole_in(ask.query, "before", 0)
    if ask.query.get("depth"):  # around a turn of the drawing
        first = max(0, whole_in(ask.query, "depth") - PAGE // 2)
        page = view.range(first, PAGE, payload=False)
        older = page[0].turn_id if page and first else None
    else:
        page = (
            view.before(before, PAGE, payload=False) if before else view.last(PAGE, payload=False)
        )
        older = page.next_cursor
    root = view.ancestor(0) if page and not page[0].depth else 0
    session = thread.database.memory.sessions.of_context(found.id)
    return "context.html", {
        "notes": thread.sessions.views.notes_of(session, found.head_id()) if session else [],
        "info": found.info(), "talk": messages(thread, page, others=_others(thread, view, page)),
        "older": older, "continues": root and found.turns.continued(root),
        "others": [*islice(thread.contexts.list(), LISTED)],
        "moves": [*islice(found.history(), LISTED)][-10:][::-1],
    }  # fmt: skip


def _others(thread: Thread, view: View, page: Iterable[Turn]) -> dict[int, list[Values]]:
    """Return the other ways that go on from turns: the first turn of each, and what it says."""
    turns = [*page]
    way = {one.turn_id for one in turns}
    if turns:
        way.add(view.ancestor(turns[-1].depth + 1))
    return {
        parent: [
            {"turn": below, "words": last_words(thread, below)} for below in found
            if below not in way
        ][:WAYS]
        for parent, found in view.turns.forks([one.turn_id for one in turns]).items()
    }  # fmt: skip


def last_words(thread: Thread, turn_id: int) -> str:
    """Return what a turn says on one line, or why that cannot be read; "" for none."""
    if not turn_id:
        return ""
    try:
        found = thread.contexts.turns.said(thread.contexts.turn(turn_id, payload=False))
    except EventqError as error:
        return str(error)
    return found.line(EXCERPT)


def turn(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one turn, where it stands, and what follows it."""
    found = thread.contexts.turn(whole_in(ask.names, "turn"), payload=False)
    is_image = not found.tombstone and type_of(thread.blobs.part(found.hash, 0, 12)) in IMAGES
    talk = messages(thread, [found], text=SHOWN)
    what, text = payload_of(thread, found)
    is_told = talk[0]["role"] or talk[0]["kind"] if talk else False
    heads = [
        one for one in map(ContextInfo._make, thread.database.memory.overview(LANES).contexts)
        if one.head_turn_id and thread.contexts.turns.is_above(found.turn_id, one.head_turn_id)
    ]  # fmt: skip
    return "turn.html", {
        "turn": found, "talk": talk if is_told else [], "what": what, "text": text,
        "is_image": is_image, "contexts": heads,
        "children": thread.contexts.children(found.turn_id, PAGE),
        "causes": thread.causes_of(turn=found.turn_id),
    }  # fmt: skip


def payload_of(thread: Thread, turn: Turn) -> tuple[str, str | None]:
    """Return what the payload of a turn is, and the beginning of its text, None for bytes."""
    if turn.tombstone:
        return "payload", "(erased)" if turn.hash else "(hidden)"
    start = thread.blobs.part(turn.hash, 0, 4 * SHOWN)
    text = _text(start, is_cut=turn.size > len(start))
    if text is None:
        return of_bytes(start, turn.size), of_bytes(start, turn.size)
    end = "…" if turn.size > len(start) or len(text) > SHOWN else ""
    return f"payload, {count(turn.size, 'byte')}", text[:SHOWN] + end


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text, None for what is none; the last character may be cut."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode() if is_cut and error.start >= len(data) - 3 else None


def diff(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what each of two contexts has after the last turn that they share."""
    pair = [thread.contexts.get(ask.query.get(name, "")) for name in ("a", "b")]
    found = pair[0].diff(pair[1], payload=False)
    sides = [
        (one.info(), messages(thread, islice(side, PAGE)), len(side))
        for one, side in zip(pair, (found.mine, found.theirs), strict=True)
    ]
    return "diff.html", {"ancestor": found.ancestor, "sides": sides, "shown": PAGE}
