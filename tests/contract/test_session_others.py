"""Sessions of agents that are named as what they are, and from which no file is forked.

The kind of fault: a file that is taken for one of another tool. Tried are Copilot CLI with null
parents, given parents and both; Qwen Code, whose links are those of Claude Code; Gemini CLI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import LogicError
from tests.contract.test_session_branches import export, load, shown, spell

if TYPE_CHECKING:
    from pathlib import Path

    import eventq

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]


def event(own: str, parent: str | None, kind: str = "assistant.message", text: str = "x") -> Any:
    """Return an event of Copilot CLI."""
    return {"type": kind, "data": {"content": text}, "id": own, "parentId": parent}


START = {"type": "session.start", "data": {"sessionId": "c-1"}, "id": "a1", "parentId": None}
COPILOT = [
    START, event("a2", None, "user.message", "said 1"), event("a3", None), event("a4", None), event("a5", None),
]  # fmt: skip


def turn(own: str, parent: str | None, kind: str = "user", **more: Any) -> Any:
    """Return a record of Qwen Code."""
    made = {"uuid": own, "parentUuid": parent, "sessionId": "q", "type": kind}
    return made | {"message": {"role": kind, "parts": [{"text": f"say {own}"}]}} | more


QWEN = [
    turn("u1", None),
    turn("u2", "u1", "assistant"),
    turn("r", "u1", "system", systemPayload={"a": 1}),
]
GEMINI = [
    {"sessionId": "g-1", "projectHash": "h", "startTime": "t", "kind": "main"},
    {"id": "g1", "type": "user", "content": [{"text": "say hi"}]}, {"$set": {"lastUpdated": "t"}},
    {"id": "g2", "type": "gemini", "content": "hi"},
]  # fmt: skip


def test_events_without_parents_follow_each_other(thread: eventq.Thread) -> None:
    """All of Copilot CLI are one line of history; what names a parent hangs there."""
    load(thread, *COPILOT)
    assert shown(thread) == {"s": "a1 a2 a3 a4 a5"}
    load(thread, *COPILOT, event("b1", "a2"), event("b2", None))
    assert shown(thread) == {"s": "a1 a2 b1 b2", "s/a5": "a1 a2 a3 a4 a5"}
    assert thread.sessions.views.title("s") == "said 1"
    load(thread, START, event("x", "x"), event("x", "x"), event("y", None))
    assert shown(thread)["s"] == "a1 x x y"  # none of them is its own parent
    assert thread.check() == []


def test_a_rewind_takes_messages_back(thread: eventq.Thread) -> None:
    """Main goes on without that message and what followed; that stays as a branch, each time."""
    two: Any = GEMINI[-1]
    three, four, five, six = ({"id": f"g{n}", "type": "user", "content": "x"} for n in range(3, 7))

    def back(to: str) -> Any:
        return {"$rewindTo": to}

    lines = [*GEMINI, two | {"toolCalls": []}, three, four]
    steps: list[tuple[Any, dict[str, str]]] = [
        (four, {"s": "g1 g2 g3 g4"}),
        (back("g3"), {"s": "g1 g2", "s/g4": "g1 g2 g3 g4"}),
        (five, {"s": "g1 g2 g5", "s/g4": "g1 g2 g3 g4"}),
        (back("g2"), {"s": "g1", "s/g5": "g1 g2 g5", "s/g4": "g1 g2 g3 g4"}),
        (back("g3"), {"s": "", "s/g5": "g1 g2 g5", "s/g4": "g1 g2 g3 g4"}),
        (six, {"s": "g6", "s/g5": "g1 g2 g5", "s/g4": "g1 g2 g3 g4"}),
    ]
    whole = lines[:-1] + [entry for entry, _ in steps]
    for size, (_, wanted) in enumerate(steps, len(lines)):
        load(thread, *whole[:size])
        assert shown(thread) == wanted
    assert export(thread) == spell(*whole)
    assert thread.sessions.views.info("s").generation == 1
    thread.sessions.remove("s")
    load(thread, *whole)
    assert shown(thread) == wanted
    assert thread.check() == []


@pytest.mark.parametrize(
    ("tool", "entries", "main", "title"),
    [
        ("copilot", COPILOT, "a1 a2 a3 a4 a5", "said 1"),
        ("qwen", QWEN, "u1 r", "say u1"),
        ("gemini", GEMINI, "g1 g2", "say hi"),
    ],
)
def test_a_file_is_named_as_what_it_is(
    thread: eventq.Thread, tmp_path: Path, tool: str, entries: list[Any], main: str, title: str
) -> None:
    """Its main is known, its bytes come back, and a fork is refused with a next step."""
    load(thread, *entries)
    views = thread.sessions.views
    assert (views.info("s").tool, shown(thread)["s"], views.title("s")) == (tool, main, title)
    assert export(thread) == spell(*entries)
    with pytest.raises(LogicError, match="resumes from is not known here - read its entries with"):
        thread.sessions.fork("s", str(tmp_path))


@pytest.mark.parametrize(("name", "entries"), [("c-1", COPILOT), ("g-1", GEMINI)])
def test_a_session_has_its_own_id(
    thread: eventq.Thread, tmp_path: Path, name: str, entries: list[Any]
) -> None:
    """For all files of Copilot CLI have one name, in folders of their own."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(spell(*entries))
    thread.sessions.import_file(str(path))
    assert [*shown(thread)] == [name]
