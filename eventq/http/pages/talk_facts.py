"""The facts of a conversation beside it: who took part, what was asked, which tools were called.

Sums are those of its newest turns: to read all of 50,000 takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.http.pages.talk import (
    LINE,
    by_type,
    is_note,
    is_spoken,
    last_words,
    named,
    said_of,
    took,
)
from eventq.http.pages.talk_below import first_words, started_by, tell_apart
from eventq.memory.turns import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.http.pages.talk_below import Branch
    from eventq.memory.turns import Turns
    from eventq.records.turn import Turn
    from eventq.said import Said
    from eventq.sessions.glances import Glance
    from eventq.store.session_rows import SessionRow
    from eventq.thread import Thread

    Values = dict[str, Any]

COUNTED = 1_500  # turns
COUNTED_BYTES = 4 << 20  # of payloads
PROMPTS = 30  # the newest
TOOLS = 12
BRANCHES = 20
_STEP = 200  # turns that are read at once
_TOOLS = {
    "claude": "Claude Code", "codex": "Codex", "pi": "Pi", "omp": "Oh My Pi", "qwen": "Qwen Code",
    "gemini": "Gemini CLI", "copilot": "Copilot CLI",
}  # fmt: skip


class Counts:
    """What is counted in turns that are taken, the newest first."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self.turns = self.messages = self.calls = self.failed = self.notes = 0
        self.prompts: list[Values] = []
        self.models: dict[str, None] = {}
        self._tools: dict[str, list[int]] = {}
        self._came: dict[str, bool] = {}  # whether results failed whose calls are further up
        self._told = ""

    def take(self, turn: Turn, one: Said) -> None:
        """Count a turn."""
        self.turns += 1
        if one.model:
            self.models[one.model] = None
        if is_prompt(one):
            words = one.line(LINE)
            at = one.at or turn.created_at_ms
            self.prompts.append({"turn": turn.turn_id, "at": at, "words": words})
        is_said = one.role in ("user", "assistant") and not one.kind
        if (is_said or is_spoken(one)) and not (one.response and one.response == self._told):
            self.messages += 1
        self.notes += is_note(one)
        self._told = one.response or self._told
        for block in one.blocks:
            if isinstance(block, said.Result):
                self._came[block.call] = block.failed
                self.failed += block.failed
            elif isinstance(block, said.Call):
                self.calls += 1
                count = self._tools.setdefault(block.name, [0, 0])
                count[0] += 1
                count[1] += self._came.pop(block.id, False)

    def tools(self) -> list[Values]:
        """Return the tools that were called most, with calls and failures."""
        most = max((count for count, _ in self._tools.values()), default=1)
        found = sorted(self._tools.items(), key=lambda one: (-one[1][0], one[0]))
        return [
            {"name": name, "calls": calls, "failed": failed, "share": 100 * calls // most}
            for name, (calls, failed) in found
        ]  # fmt: skip


def is_prompt(one: Said) -> bool:
    """Return whether a person says something, to an agent or to its tool."""
    is_theirs = one.role == "user" and one.kind in ("", "command") and not one.name
    return is_theirs and any(isinstance(block, (said.Text, said.Media)) for block in one.blocks)


def counted(turns: Turns, head: int, depths: range) -> Counts:
    """Count the newest turns of a chain at some depths, as far as that takes no time."""
    counts = Counts()
    end, size = depths.stop, 0
    while head and end > depths.start and counts.turns < COUNTED and size < COUNTED_BYTES:
        step = min(_STEP, end - depths.start)
        rows = turns.rows(turns.ancestor(head, end - 1), step, None)
        for turn, one in reversed([*turns.spoken(rows)]):
            counts.take(turn, by_type(turn, one))
        size += sum(row.size for row in rows)
        end -= step
    return counts


def facts(
    thread: Thread, view: View, depths: range, session: SessionRow | None,
    branches: Sequence[Branch], *, context: int, is_subagent: bool,
) -> Values:  # fmt: skip
    """Return what stands at the side of a conversation, whose turns are those at some depths."""
    turns = thread.contexts.turns
    counts = counted(turns, view.head_id(), depths)
    ends = [*view.range(depths.start, 1, payload=False), *view.last(1, payload=False)]
    times = [said_of(thread, one).at or one.created_at_ms for one in ends]
    found: Glance | None = thread.sessions.views.glance(session) if session else None
    tools = counts.tools()
    is_apart = not is_subagent or bool(session and session.owner)  # not among another's lines
    prompts = [] if is_subagent else counts.prompts
    tool = _TOOLS.get(session.tool, session.tool) if session else ""
    return {
        "tool": f"{tool} {(found and found.version) or ''}".rstrip(), "glance": found,
        "took": took(times[0], times[-1]), "models": [*counts.models][:3], "times": times,
        "counts": counts, "lines": session,
        "is_whole": counts.turns >= len(depths), "prompts": prompts[:PROMPTS][::-1],
        "prompt_count": len(prompts), "tools": tools[:TOOLS], "tool_count": len(tools),
        "branches": listed(thread, view, branches, context),
        "usage": thread.usage(context=context) if is_apart else None,
        "subagents": subagents(thread, session) if session and not is_subagent else [],
    }  # fmt: skip


def listed(thread: Thread, view: View, branches: Sequence[Branch], own: int) -> list[Values]:
    """Return branches with what is said first where they leave this one, this one first."""
    turns, head = thread.contexts.turns, view.head_id()
    if len(branches) < 2:
        return []
    found = []
    for one in sorted(branches, key=lambda one: (one.context != own, -one.head))[:BRANCHES]:
        shared = 0 if one.context == own else turns.common(head, one.head)
        depth = turns.depth(shared) + 1 if shared else 0
        if one.context == own:
            words = last_words(thread, one.head)
        else:
            words = first_words(thread, View(turns, one.head), depth)
        last = thread.contexts.turn(one.head, payload=False)
        found.append({
            "context": one.context, "name": one.name, "is_here": one.context == own,
            "words": words, "count": one.depth + 1 - depth,
            "left": said_of(thread, last).at or last.created_at_ms,
            "turn": turns.ancestor(one.head, depth) if depth <= one.depth else one.head,
            "place": (View(turns, one.head), depth),
        })  # fmt: skip
    tell_apart(thread, [one for one in found if not one["is_here"]])
    return found


def subagents(thread: Thread, session: SessionRow) -> list[Values]:
    """Return the subagents of a session, with what each was to do."""
    found = []
    for context in _contexts_of(thread, session)[:BRANCHES]:
        one = thread.sessions.views.subagent(thread.contexts.get(context))
        if one is not None:
            started = started_by(thread, one)
            label = named(started and started["call"], one.label)
            words = last_words(thread, one.first)
            found.append({"context": context, "label": label, "words": words})
    return found


def _contexts_of(thread: Thread, session: SessionRow) -> list[int]:
    """Return the contexts of subagents: those of own files, and those among the session's lines."""
    store, contexts = thread.database.memory.sessions, thread.database.memory.contexts
    beside = (contexts.named(one.name) for one in store.beside(session.name))
    inside = (
        tip.context for tip in store.tips(session.name)
        if (tip.name or "").startswith(f"{session.name}/agent-")
    )  # fmt: skip
    return [*filter(None, beside), *inside]
