"""Search within a conversation, and filters: some of its turns, the newest first.

A look takes a bounded time. What is left is looked through from where it ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.http.pages.talk import by_type, is_spoken
from eventq.http.pages.talk_facts import is_prompt
from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eventq.memory.turns import Turns
    from eventq.records.turn import Turn
    from eventq.said import Said

    Values = dict[str, Any]

SEARCH_SECONDS = 1.0
FOUND = 200  # turns of a look, and at most as many more as are read at once
LINE = 240  # characters of a hit
_BEFORE = 60  # of them before the text
_STEP = 200  # turns that are read at once
_HELD = 10_000  # results whose calls are further up
_PLAIN = re.compile(r"[A-Za-z0-9_ -]+")  # stands in JSON as it is
ONLY = ("said", "tools", "failed", "you")


class Wanted(Record):
    """Which turns a person wants to see: those with a text, of one kind, or calls of a tool."""

    text: str
    only: str
    tool: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted | None:
        """Return what a query asks for, None for all turns."""
        text, only, tool = (query.get(name, "") for name in ("q", "only", "tool"))
        only = only if only in ONLY else "tools" if tool else ""
        return cls(text.strip(), only, tool) if text.strip() or only else None

    def likely(self) -> Callable[[bytes], bool] | None:
        """Return what tells payloads that may have the text from others; None where all may."""
        if not self.text or _PLAIN.fullmatch(self.text) is None:
            return None
        sought = self.text.lower().encode()
        return lambda payload: sought in payload.lower() or b"\\u00" in payload

    def calls(self, one: Said, came: Mapping[str, bool]) -> list[said.Call]:
        """Return the calls in a turn that are wanted, whose results may have failed."""
        every = (block for block in one.blocks if isinstance(block, said.Call))
        named = (block for block in every if self.tool in ("", block.name))
        return [block for block in named if self.only != "failed" or came.get(block.id)]

    @property
    def takes_calls(self) -> bool:
        """Whether it is calls that are wanted."""
        return not self.text and self.only in ("tools", "failed")

    def is_said(self, one: Said) -> bool:
        """Return whether a turn is wanted for what is said in it."""
        return is_prompt(one) if self.only == "you" else is_spoken(one)


class Look:
    """What a look found: `turns`, the oldest first, or `hits`, lines of those with a text.

    `rest` is the turn before which the next look begins, 0 for none.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Have found nothing yet."""
        self.turns: list[Turn] = []
        self.hits: list[Values] = []
        self.rest = 0
        self._wanted = wanted
        self._held: dict[str, Turn] = {}  # turns with results, by the ids of their calls
        self._came: dict[str, bool] = {}  # whether these failed

    @property
    def is_full(self) -> bool:
        """Whether it found as much as a page shows."""
        return len(self.turns) + len(self.hits) >= FOUND

    def take(self, turn: Turn, one: Said) -> None:
        """Look at the turn above those before."""
        if self._wanted.text:
            self.hits += _hit(turn, one, self._wanted.text)
        elif self._wanted.takes_calls:
            self._take_calls(turn, one)
        elif self._wanted.is_said(one):
            self.turns.append(turn)

    def _take_calls(self, turn: Turn, one: Said) -> None:
        """Take a turn with calls that are wanted, and those with their results."""
        if calls := self._wanted.calls(one, self._came):
            held = [self._held[call.id] for call in calls if call.id in self._held]
            results = {each.turn_id: each for each in held if each.turn_id != turn.turn_id}
            self.turns += [results[number] for number in sorted(results, reverse=True)]
            self.turns.append(turn)
        self.hold(turn, one)

    def hold(self, turn: Turn, one: Said) -> None:
        """Note the results in a turn, whose calls are further up."""
        for block in one.blocks:
            if isinstance(block, said.Result) and len(self._held) < _HELD:
                self._held[block.call], self._came[block.call] = turn, block.failed


def look(turns: Turns, head: int, depths: range, wanted: Wanted) -> Look:
    """Look through the turns of a chain at some depths for what is wanted, the last one first."""
    deadline = clock.monotonic() + SEARCH_SECONDS
    found, end, likely = Look(wanted), depths.stop, wanted.likely()
    if head and wanted.takes_calls:
        below = min(_STEP, turns.depth(head) + 1 - end)  # the look before was at these
        rows = turns.rows(turns.ancestor(head, end + below - 1), below, None) if below > 0 else []
        for turn, one in turns.spoken(rows):
            found.hold(turn, one)
    while head and end > depths.start and not found.rest:
        step = min(_STEP, end - depths.start)
        rows = turns.rows(turns.ancestor(head, end - 1), step, None)
        for turn, one in reversed([*turns.spoken(rows, likely)]):
            found.take(turn, by_type(turn, one))
        end -= step
        if end > depths.start and (found.is_full or clock.monotonic() > deadline):
            found.rest = rows[0].turn
    found.turns.reverse()
    return found


def _hit(turn: Turn, one: Said, text: str) -> list[Values]:
    """Return the line of a turn that has a text."""
    calls = (block.given for block in one.blocks if isinstance(block, said.Call))
    given = (value for each in calls if isinstance(each, dict) for value in each.values())
    whole = "\n".join([one.text, *(value for value in given if isinstance(value, str))])
    match = re.search(re.escape(text), whole, re.IGNORECASE)
    if match is None:
        return []
    start, end = match.span()
    before, after = whole[max(0, start - _BEFORE) : start], whole[end : end + LINE]
    return [{
        "turn": turn.turn_id, "at": one.at or turn.created_at_ms, "role": one.role,
        "kind": one.kind,
        "before": ("…" if start > _BEFORE else "") + before, "text": match[0], "after": after,
    }]  # fmt: skip
