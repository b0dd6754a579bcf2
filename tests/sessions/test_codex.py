"""Rollouts of Codex: which lines are turns, what marks take back, and what they are called.

The kind of fault: a log that is read as a tree, or as mere lines. Its members tried here are marks
of one and of several turns, twice, of more than there are, at the end of the file, behind what the
tool itself said, and with numbers that are none; lines of events; bare items of early 2025; files
that only look like rollouts.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq.said import of
from eventq.sessions import tree
from eventq.sessions.links import BACK, BEGINS, CALLS, FOLLOWS, MESSAGE, META, RESULT, Link, Title
from eventq.sessions.reading import READERS, reader_of
from tests.sessions.support import (
    Entry,
    back,
    codex_call,
    codex_output,
    event,
    item,
    meta,
    prompt,
    reply,
    wrapper,
)

CODEX = READERS["codex"]


def paths(*entries: Entry) -> tuple[list[str], str]:
    """Return the texts on the way to all tips, and to the active one."""
    reader = reader_of(entries)
    assert reader is CODEX
    found = tree.build([*map(reader.link, entries)], last_is_leaf=reader.last_is_leaf)

    def texts(tip: int) -> str:
        return " ".join(str(of(entries[n]).text) for n in tree.path(found.places, tip))

    return [*map(texts, found.tips)], "" if found.active is None else texts(found.active)


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        (BEGINS, prompt("hello")),
        (META, wrapper("<environment_context>\n<cwd>/p</cwd></environment_context>")),
        (META, wrapper("# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>x</INSTRUCTIONS>")),
        (BEGINS, prompt("<skill>x</skill>", kinds=["user.text"])),
        (META, item("message", role="developer", content=[{"type": "input_text", "text": "<x>"}])),
        (0, item("message", role="developer", content=[{"type": "input_text", "text": "x"}])),
        (BEGINS, prompt("<skill> that is not closed")),
        (0, reply("well")),
        (0, item("reasoning", summary=[])),
        (CALLS, codex_call("c")),
        (RESULT, codex_output("c")),
        (CALLS, item("custom_tool_call", call_id="c", input="x")),
        (RESULT, item("custom_tool_call_output", call_id="c", output="x")),
        (0, {"timestamp": "t", "type": "compacted", "payload": {"message": "all of it"}}),
        (BEGINS, {"type": "message", "role": "user", "content": [{"type": "input_text"}]}),
        (CALLS, {"type": "function_call", "call_id": "c", "name": "n", "arguments": ""}),
    ],
)
def test_items_are_turns(kind: int, one: Entry) -> None:
    """Each follows the one before it, whatever it is, without an id of its own."""
    assert CODEX.link(one) == Link(None, None, MESSAGE | FOLLOWS | kind)


@pytest.mark.parametrize(
    "one",
    [
        meta(), event("token_count", info={}), event("user_message", message="x"),
        event("agent_message", message="x"), event("item_completed", item={"type": "AgentMessage"}),
        {"timestamp": "t", "type": "turn_context", "payload": {"cwd": "/"}},
        {"timestamp": "t", "type": "world_state", "payload": {"state": 1}},
        {"timestamp": "t", "type": "token_usage_record", "payload": {"usage": 1}},
        item("ghost_snapshot"), {"record_type": "state"}, {}, {"type": "response_item"},
        *(event("thread_rolled_back", num_turns=n) for n in (0, -1, 1.0, True, "1", None, 1 << 40)),
    ],
)  # fmt: skip
def test_anything_else_is_no_turn(one: Entry) -> None:
    """Events repeat items, settings stand beside them, and a mark may be damaged."""
    assert CODEX.link(one) is None


def test_a_mark_takes_turns_off_main() -> None:
    """They stay as a branch, each from a message of the user on."""
    assert CODEX.link(back(2)) == Link(None, "2", BACK)
    one = [
        meta(),
        prompt("a"),
        reply("A"),
        prompt("b"),
        codex_call("c"),
        codex_output("c"),
        reply("B"),
    ]
    lost = "a A b shell done B"
    assert paths(*one, back(1), prompt("c"), reply("C")) == ([lost, "a A c C"], "a A c C")
    assert paths(*one, back(1)) == (["a A", lost], "a A")
    assert paths(*one, back(2), prompt("c")) == ([lost, "c"], "c")
    assert paths(*one, back(2)) == ([lost], "")
    assert paths(*one, back(9), prompt("c")) == ([lost, "c"], "c")
    assert paths(*one, back(1), back(1), prompt("c"), back(3)) == ([lost, "c"], "")
    twice = [*one, back(1), prompt("c"), reply("C"), back(1), prompt("d")]
    assert paths(*twice) == ([lost, "a A c C", "a A d"], "a A d")
    assert paths(*one, back(1), prompt("c"), back(2), prompt("d"))[1] == "d"
    assert paths(meta(), back(1), prompt("a")) == (["a"], "a")
    assert paths(meta(), reply("A"), back(1), prompt("b")) == (["A b"], "A b")


def test_a_mark_takes_what_the_tool_said_before_a_turn() -> None:
    """That was seen in the tool: but not what it said before the first one."""
    env = "<environment_context>x</environment_context>"
    begun = [meta(), wrapper(env), prompt("a"), reply("A"), wrapper(env), prompt("b")]
    assert paths(*begun, back(1), prompt("c"))[1] == "a A c".replace("a", f"{env} a", 1)
    assert paths(*begun, back(2), prompt("c"))[1] == f"{env} c"


@given(st.lists(st.sampled_from("upawM12")))
def test_marks_are_as_a_simple_model_has_them(shape: str) -> None:
    """Main is what is left of a list that is cut at each mark."""
    made: list[Entry] = [meta()]
    kept: list[tuple[str, str]] = []
    for n, what in enumerate(shape):
        if what.isdigit():
            made.append(back(int(what)))
            begun = [at for at, (kind, _) in enumerate(kept) if kind in "up"]
            if begun:
                cut = begun[-min(int(what), len(begun))]
                while cut != begun[0] and kept[cut - 1][0] in "wM":
                    cut -= 1
                del kept[cut:]
        else:
            text = f"<skill>{n}</skill>" if what in "wM" else f"{n}"
            made.append(reply(text) if what == "a" else prompt(text))
            kept.append((what, text))
    assert paths(*made)[1] == " ".join(text for _, text in kept)


@pytest.mark.parametrize(
    ("title", "entry"),
    [
        (Title("hello there", -1), prompt("hello\n there")),
        (Title("hello", -1), event("user_message", message=" hello ")),
        (Title("named", 1), event("thread_name_updated", thread_name="named")),
        (Title("", 1), event("thread_name_updated")),
        (None, wrapper("<environment_context>x</environment_context>")),
        (None, event("user_message", message="  ")),
        (None, reply("well")),
        (None, meta()),
    ],
)
def test_a_title_is_a_name_or_what_was_said_first(title: Title | None, entry: Entry) -> None:
    """What the tool itself says in the name of the user is no title."""
    assert CODEX.title(entry) == title


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["message", "user"]),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
            ["type", "payload", "content", "role", "output", "num_turns", "summary", "text", "item"]
        ), inner), max_leaves=20,
    ),
    st.sampled_from(["response_item", "event_msg", "session_meta", "compacted", "message"]),
)  # fmt: skip
def test_nothing_makes_the_reader_fail(payload: Any, kind: str) -> None:
    """Whatever an entry holds."""
    entry = {"timestamp": "t", "type": kind, "payload": payload}
    for ask in (CODEX.link, CODEX.title, CODEX.is_record, CODEX.session_id):
        ask(entry)
