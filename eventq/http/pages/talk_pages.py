"""The pages of what was said: a conversation, one turn, and what two contexts have apart."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import EXCERPT, TEXT, messages, named, results_after, said_of
from eventq.http.pages.talk_below import add_named, below, branches_of, started_by
from eventq.http.pages.talk_facts import facts
from eventq.http.pages.talk_search import Wanted, look
from eventq.memory.turns import View
from eventq.record import Record
from eventq.records.turn import ContextInfo, Page
from eventq.said import one_line
from eventq.said.media import IMAGES, of_bytes, type_of
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.http.pages.talk_below import Branch
    from eventq.memory.contexts import Context
    from eventq.records.session import Subagent
    from eventq.records.turn import Move, Turn
    from eventq.store.session_rows import SessionRow
    from eventq.thread import Thread

    Values = dict[str, Any]

LANES = 200  # contexts that a turn is looked for in
PAGE = 200  # turns of a page
BRANCHES = 5  # on which results are looked for
RESULTS = 100  # turns after one in which the results of its calls are looked for
SHOWN = 100_000  # characters of a payload by itself
LISTED = 200
MOVES = 10  # of a head
NOTED = 2_000  # lines of a session whose links are looked at for what is peculiar


class Part(Record):
    """The turns of a context that its page shows: of a subagent those below its start."""

    view: View
    begin: int  # depths
    end: int
    subagent: Subagent | None

    def window(self, query: Mapping[str, str]) -> tuple[int, int]:
        """Return the depths of a page: around a turn, before or after one, or the newest."""
        first = self.end - PAGE
        if query.get("at"):
            first = self._depth(query, "at") - PAGE // 2
        elif query.get("before"):
            end = max(self.begin + 1, min(self._depth(query, "before"), self.end))
            return max(self.begin, end - PAGE), end
        elif query.get("after"):
            first = self._depth(query, "after") + 1
        elif query.get("depth"):  # of the drawing of branches
            first = whole_in(query, "depth") - PAGE // 2
        first = max(self.begin, min(first, self.end - PAGE))
        return first, min(first + PAGE, self.end)

    def _depth(self, query: Mapping[str, str], name: str) -> int:
        """Return the depth of a turn. Raises UnknownTurnError, ConflictError, UsageError."""
        return self.view.turns.depth(self.view.at(whole_in(query, name)).head_id())


def context(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the turns of a context as a conversation.

    They are the newest, those before or around one, or what a search or a filter finds.
    """
    found = thread.contexts.get(ask.names["context"])
    info, part = found.info(), part_of(thread, found)
    session = session_of(thread, found, info)
    branches = branches_of(thread, info, session)
    started = started_by(thread, part.subagent) if part.subagent else None
    agent = session.tool if session else ""
    if part.subagent:
        agent = named(started and started["call"], part.subagent.label)
    wanted = Wanted.of(ask.query)
    shown = _found(thread, part, ask, wanted, agent) if wanted else (
        _page(thread, part, ask, branches, agent)
    )  # fmt: skip
    return "context.html", shown | {
        "facts": facts(
            thread, part.view, range(part.begin, part.end), session, branches, context=found.id,
            is_subagent=part.subagent is not None,
        ) if part.end else None,
        "resume": thread.sessions.views.resume(found, session, thread.path) if session else [],
        "notes": _notes(thread, session, info.head_turn_id), "raw": _raw(thread, session),
        "info": info, "session": session,
        "started": started, "agent": agent, "count": part.end - part.begin, "wanted": wanted,
        "others": [*islice(thread.contexts.list(), LISTED)],
        "moves": _moves(thread, found, info)[::-1],
    }  # fmt: skip


def _moves(thread: Thread, found: Context, info: ContextInfo) -> list[Move]:
    """Return the last moves of a head, the newest last."""
    if info.version < MOVES:
        return [*islice(found.history(), MOVES)]
    return thread.database.memory.contexts.history(found.id, info.version - MOVES, MOVES)


def _page(
    thread: Thread, part: Part, ask: Ask, branches: Sequence[Branch], agent: str
) -> Values:  # fmt: skip
    """Return a page of turns as messages, and how many are before and after these."""
    first, end = part.window(ask.query)
    page = part.view.range(first, end - first, payload=False) if first < end else Page(())
    root = page[0].turn_id if page and not page[0].depth else 0
    came = results_after(thread, part.view, end) if page else []
    talk = messages(
        thread, [*page, *came], agent=agent, below=below(thread, part.view, page, branches),
        is_subagent=part.subagent is not None,
    )  # fmt: skip
    add_named(thread, talk)
    return {
        "talk": talk,
        "earlier": first - part.begin, "later": part.end - end, "page": page, "size": PAGE,
        "first": part.view.ancestor(part.begin), "hits": [], "rest": 0,
        "continues": root and part.view.turns.continued(root),
    }  # fmt: skip


def _found(thread: Thread, part: Part, ask: Ask, wanted: Wanted, agent: str) -> Values:
    """Return what a look finds, as messages or as lines."""
    end = part.window(ask.query)[1]
    seen = look(part.view.turns, part.view.head_id(), range(part.begin, end), wanted)
    is_subagent = part.subagent is not None
    talk = messages(thread, seen.turns, agent=agent, is_subagent=is_subagent)
    if wanted.only in ("said", "you"):
        for one in talk:
            blocks = one.get("blocks", [])
            one["blocks"] = [block for block in blocks if block["shape"] in ("text", "media")]
    more = {name: value for name, value in ask.query.items() if name in ("q", "only", "tool")}
    return {
        "talk": talk, "hits": seen.hits, "rest": seen.rest, "earlier": 0, "later": 0, "page": (),
        "more": urlencode(more), "continues": 0,
    }  # fmt: skip


def part_of(thread: Thread, found: Context) -> Part:
    """Return the turns of a context that are its own conversation."""
    view = View(found.turns, found.head_id())
    subagent = thread.sessions.views.subagent(found)
    begin = found.turns.depth(subagent.first) if subagent else 0
    head = view.head_id()
    return Part(view, begin, found.turns.depth(head) + 1 if head else 0, subagent)


def session_of(thread: Thread, found: Context, info: ContextInfo) -> SessionRow | None:
    """Return the session that a context is a branch of, or was forked from."""
    store = thread.database.memory.sessions
    if (row := store.of_context(found.id)) is not None:
        return row
    above = (info.base_turn_id, found.ancestor(0))
    return next(filter(None, (store.of_turn(turn) for turn in above if turn)), None)


def _notes(thread: Thread, session: SessionRow | None, head: int) -> list[str]:
    """Return what is peculiar about the lines of a session; of a long one that takes too long."""
    if session is None or not head or session.lines > NOTED:
        return []
    return thread.sessions.views.notes_of(session, head)


def _raw(thread: Thread, session: SessionRow | None) -> list[Values]:
    """Return the first lines of a session that are no entries, which no turn has."""
    if session is None or session.lines > NOTED:
        return []
    return [
        {"shape": "data", "what": f"line {number:,} is {why}", "argument": one_line(text, EXCERPT),
         "text": text[:TEXT]}
        for number, why, text in thread.sessions.views.raw_lines(session)
    ]  # fmt: skip


def turn(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one turn, where it stands, and what follows it."""
    found = thread.contexts.turn(whole_in(ask.names, "turn"), payload=False)
    is_image = not found.tombstone and type_of(thread.blobs.part(found.hash, 0, 12)) in IMAGES
    what, text = payload_of(thread, found)
    turns = thread.contexts.turns
    heads = [
        one for one in map(ContextInfo._make, thread.database.memory.overview(LANES).contexts)
        if one.head_turn_id and turns.is_above(found.turn_id, one.head_turn_id)
    ]  # fmt: skip
    ways = (_results(thread, found, one.head_turn_id) for one in heads[:BRANCHES])
    results = next(filter(None, ways), [])
    session = thread.database.memory.sessions.of_turn(found.turn_id)
    agent = session.tool if session else ""
    talk = messages(thread, [found, *results], text=SHOWN, agent=agent)[:1]
    is_told = bool(talk) and (talk[0]["beside"] or talk[0]["role"] or talk[0]["kind"])
    return "turn.html", {
        "turn": found, "talk": talk if is_told else [], "what": what, "text": text,
        "is_image": is_image, "contexts": heads,
        "children": thread.contexts.children(found.turn_id, PAGE),
        "causes": thread.causes_of(turn=found.turn_id),
    }  # fmt: skip


def _results(thread: Thread, turn: Turn, head: int) -> list[Turn]:
    """Return the turns right after one, on the way to a head, that only have results of calls."""
    after = View(thread.contexts.turns, head).range(turn.depth + 1, RESULTS, payload=False)
    return [one for one in after if said_of(thread, one).role == "tool"]


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
    sessions = [session_of(thread, one, one.info()) for one in pair]
    sides = [
        (one.info(), messages(thread, islice(side, PAGE), agent=row.tool if row else ""), len(side))
        for one, row, side in zip(pair, sessions, (found.mine, found.theirs), strict=True)
    ]
    return "diff.html", {"ancestor": found.ancestor, "sides": sides, "shown": PAGE}
