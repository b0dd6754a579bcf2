"""What goes on from the turns of a conversation beside it: other branches, and subagents."""

from __future__ import annotations

from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

from eventq.http.pages.talk import (
    LINE,
    Below,
    by_type,
    is_note,
    messages,
    named,
    results_after,
    said_of,
    tokens,
)
from eventq.memory.turns import View
from eventq.record import Record
from eventq.records.turn import ContextInfo
from eventq.said import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.records.session import Subagent
    from eventq.records.turn import Turn
    from eventq.store.session_rows import SessionRow
    from eventq.thread import Thread

    Values = dict[str, Any]

LATELY = 200  # contexts that changed last, among which branches are looked for
BRANCHES = 50  # of a session
WAYS = 20  # that go on from one turn
LOOKED = 100  # turns below one that are looked at for them
CHECKS = 1_000  # of branches, whether a turn is on them
AGENTS = 50  # subagents of a page
OPENED = 8  # of them, whose beginnings are on it
INSIDE = 20  # turns of each
_STARTS = ("spawn_agent", "collab_spawn_agent")  # tools of Codex
_HERE: dict[str, Any] = {"is_here": True, "turn": 0, "context": None, "left": None, "name": ""}
_FIRST = 5  # turns until somebody speaks
_FOLLOWING = 12  # turns that tell branches apart which begin alike
_ALIKE = 24  # characters of how these begin


class Branch(Record):
    """A context that shares turns with another one."""

    context: int
    name: str
    head: int
    depth: int


def branches_of(thread: Thread, info: ContextInfo, row: SessionRow | None) -> list[Branch]:
    """Return a context and its relatives: branches of its session, its forks and their source."""
    own = {one.context for one in _tips(thread, row)} | {info.context_id}
    family = own | ({info.fork_of} if info.fork_of else set())
    lately = map(ContextInfo._make, thread.database.memory.overview(LATELY).contexts)
    found = {one.context_id: one for one in lately if family & {one.context_id, one.fork_of}}
    for context in family - found.keys():
        if (one := thread.database.memory.contexts.get(context)) is not None:
            found[context] = one
    found[info.context_id] = info
    return [
        Branch(one.context_id, one.name or str(one.context_id), one.head_turn_id, one.head_depth)
        for one in sorted(found.values(), key=lambda one: one.context_id) if one.head_turn_id
    ]  # fmt: skip


def _tips(thread: Thread, row: SessionRow | None) -> list[Any]:
    """Return the newest tips of a session, but for those of subagents in its file."""
    tips = thread.database.memory.sessions.tips(row.name) if row else []
    return [one for one in tips if f"{row and row.name}/agent-" not in (one.name or "")][-BRANCHES:]


def below(
    thread: Thread, view: View, page: Sequence[Turn], branches: Sequence[Branch]
) -> dict[int, Below]:
    """Return what goes on from the turns of a page beside the way of a view."""
    turns = [one.turn_id for one in page]
    if not turns:
        return {}
    after = view.ancestor(page[-1].depth + 1)
    every = thread.sessions.views.subagents(turns, AGENTS)
    agents = [one for one in every if one.first not in (*turns, after)]  # a fork of one has its own
    made = {turn: Below([], []) for turn in turns}
    for number, one in enumerate(agents):
        opened = INSIDE if number < OPENED else 0
        made[one.below].agents.append(agent_of(thread, one, opened))
    way = {*turns, after, *(one.first for one in agents)}
    depths = {one.turn_id: one.depth for one in page}
    lengths = Lengths(thread, branches)
    for parent, found in view.turns.forks(turns).items():
        depth = depths[parent] + 1
        left = [turn for turn in found if turn not in way][:LOOKED]
        ways = (lengths.way(turn, depth) for turn in left)
        others = [*islice(filter(None, ways), WAYS)]
        if not others:
            continue
        here = view.ancestor(depth)
        if here:
            count = view.turns.depth(view.head_id()) + 1 - depth
            words = first_words(thread, view, depth)
            own = {"words": words, "count": count, "place": (view, depth)}
            made[parent].ways.append(_HERE | own)
        made[parent].ways.extend(others)
        tell_apart(thread, made[parent].ways)
    return made


class Lengths:
    """How far branches go on from turns, as long as that is not much work."""

    def __init__(self, thread: Thread, branches: Sequence[Branch]) -> None:
        """Look at nothing yet."""
        self._thread = thread
        self._turns = thread.contexts.turns
        self._branches = sorted(branches, key=lambda one: -one.depth)
        self._left = CHECKS

    def way(self, turn: int, depth: int) -> Values | None:
        """Return what a page shows of the branch that a turn at a depth begins.

        None for what no one says, and nothing goes on from.
        """
        made: Values = {
            "is_here": False, "turn": turn, "context": None, "count": 0, "left": None,
            "name": f"turn {turn}", "place": None,
        }  # fmt: skip
        for one in self._branches:
            if one.depth < depth or one.head < turn:
                continue
            self._left -= 1
            if self._left < 0:
                break
            if self._turns.ancestor(one.head, depth) == turn:
                view = View(self._turns, one.head)
                words = first_words(self._thread, view, depth)
                last = self._thread.contexts.turn(one.head, payload=False)
                left = said_of(self._thread, last).at or last.created_at_ms
                count = one.depth + 1 - depth
                return made | {
                    "context": one.context, "count": count, "words": words, "left": left,
                    "name": one.name, "place": (view, depth),
                }  # fmt: skip
        first = said_of(self._thread, self._thread.contexts.turn(turn, payload=False))
        return None if is_note(first) else made | {"words": first.line(LINE)}


def first_words(thread: Thread, view: View, depth: int) -> str:
    """Return what is said first on a branch from a depth on."""
    page = view.range(depth, _FIRST, payload=False)
    for turn in page:
        found = said_of(thread, turn)
        if found.role in ("user", "assistant"):
            return found.line(LINE)
    return said_of(thread, page[0]).line(LINE) if page else ""


def tell_apart(thread: Thread, ways: Sequence[Values]) -> None:
    """Add to branches that begin with the same words what follows on each, or which it is.

    The words are those from the depth on that its `place` has, with the view of it, if any.
    """
    for words, alike in _by_words(ways).items():
        said = [_following(thread, *one["place"]) if one["place"] else [] for one in alike]
        found: Sequence[str] = next(
            (each for each in zip_longest(*said, fillvalue="") if len({*each}) > 1), ()
        )
        for one, more in zip(alike, found, strict=False):
            one["words"] = f"{one_line(words, _ALIKE)} \u203a {more}" if more else words
    for words, alike in _by_words(ways).items():
        for one in alike:
            one["words"] = ": ".join(filter(None, (one["name"], words)))


def _by_words(ways: Sequence[Values]) -> dict[str, list[Values]]:
    """Return those of branches that have the same words as others, by these."""
    found: dict[str, list[Values]] = {}
    for one in ways:
        found.setdefault(one["words"], []).append(one)
    return {words: alike for words, alike in found.items() if len(alike) > 1}


def _following(thread: Thread, view: View, depth: int) -> list[str]:
    """Return what is said on a branch from a depth on, a line for each turn."""
    turns, head = thread.contexts.turns, view.head_id()
    count = min(_FOLLOWING, turns.depth(head) + 1 - depth)
    rows = turns.rows(turns.ancestor(head, depth + count - 1), count, None) if count > 0 else []
    spoken = (by_type(turn, one) for turn, one in turns.spoken(rows))
    return [one.line(LINE) for one in spoken if one.role in ("user", "assistant")]


def agent_of(thread: Thread, one: Subagent, most: int) -> Values:
    """Return a subagent, with so many of its first turns as messages."""
    turns = thread.contexts.turns
    view = View(turns, thread.contexts.get(one.context_id).head_id())
    begin = turns.depth(one.first)
    page = [*view.range(begin, most, payload=False)] if most else []
    page += results_after(thread, view, begin + most) if most else []
    task = task_of(thread, one)
    count = turns.depth(view.head_id()) + 1 - begin
    row = thread.database.memory.sessions.of_context(one.context_id) if most else None
    is_apart = row and (row.owner or one.session)  # not among the lines of another
    used = thread.usage(context=one.context_id) if is_apart else None
    return {
        "tokens": tokens(used.out, used.read) if used and used.responses else "",
        "context": one.context_id, "label": one.label, "task": task, "count": count,
        "talk": messages(thread, page, agent=named(None, one.label), is_subagent=True),
        "more": max(0, count - len(page)) if most else 0, "words": one_line(task, LINE),
    }  # fmt: skip


def add_named(thread: Thread, talk: Sequence[Values]) -> None:
    """Put subagents in sessions of their own into the calls of messages whose results name them."""
    calls = (block for one in talk for block in one.get("blocks", ()) if block["shape"] == "call")
    started = (call for call in calls if call["name"] in _STARTS and not call["agents"])
    for call in islice(started, OPENED):
        text = " ".join(block.get("text", "") for block in call["result"])
        for one in thread.sessions.views.named_in(text):
            call["agents"].append(agent_of(thread, one, INSIDE) | {"label": named(None, one.label)})


def task_of(thread: Thread, one: Subagent) -> str:
    """Return what was said to a subagent first."""
    return said_of(thread, thread.contexts.turn(one.first, payload=False)).text.strip()


def started_by(thread: Thread, one: Subagent) -> Values | None:
    """Return which call of which conversation has started a subagent, as far as that is known."""
    if one.session and not one.below:
        is_here = thread.database.memory.sessions.find(one.session) is not None
        return {"turn": 0, "context": one.session, "call": None, "is_here": is_here}
    if not one.below:
        return None
    row = thread.database.memory.sessions.of_turn(one.below)
    task = {"task": task_of(thread, one), "talk": []}
    turns = [thread.contexts.turn(one.below, payload=False)]
    talk = messages(thread, turns, below={one.below: Below([], [task])})
    blocks = (block for each in talk for block in each.get("blocks", ()))
    call = next((block for block in blocks if block.get("agents")), None)
    return {"turn": one.below, "context": row.name if row else "", "call": call, "is_here": True}
