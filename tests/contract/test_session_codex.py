"""Rollouts of Codex in a thread: their turns, branches and bytes, also as they grow."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import ConflictError
from tests.contract.test_session_branches import export, load, spell
from tests.sessions.support import (
    SESSION,
    back,
    codex_call,
    codex_output,
    event,
    meta,
    prompt,
    reply,
)

if TYPE_CHECKING:
    import eventq

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]

TAKEN_BACK = [
    meta(), prompt("a"), event("user_message", message="a"), reply("A"), event("token_count", info={}),
    prompt("b"), codex_call("c"), codex_output("c"), reply("B"), back(1), prompt("c"), reply("C"),
]  # fmt: skip


def said(thread: eventq.Thread) -> dict[str, list[str | None]]:
    """Return the texts of the entries of each context."""
    views = thread.sessions.views
    return {
        one.name or "": [views.entry(turn.turn_id).text for turn in thread.contexts.get(one.context_id).replay()]
        for one in thread.contexts
    }  # fmt: skip


def test_what_was_taken_back_is_a_branch(thread: eventq.Thread) -> None:
    """However the file grew: each import shows what the whole file says so far."""
    lost = ["a", "A", "b", "shell {}", "done", "B"]
    for size in range(1, len(TAKEN_BACK) + 1):
        load(thread, *TAKEN_BACK[:size])
        if size in (4, 5):
            assert said(thread) == {"s": ["a", "A"]}
        if size == 10:
            assert said(thread) == {"s": ["a", "A"], "s/line-9": lost}
    assert said(thread) == {"s": ["a", "A", "c", "C"], "s/line-9": lost}
    assert export(thread) == spell(*TAKEN_BACK)
    assert thread.check() == []
    info = thread.sessions.views.info("s")
    assert (info.tool, info.branches, thread.sessions.views.title("s")) == ("codex", 2, "a")


def test_a_long_session_is_taken_back_again_and_again(thread: eventq.Thread) -> None:
    """A mark in what was added reaches turns before all that was looked at for it."""
    long = [meta(), *(one for n in range(6) for one in (prompt(f"{n}"), reply(f"r{n}")))]
    load(thread, *long)
    load(thread, *long, prompt("x"), reply("y"))
    load(thread, *long, prompt("x"), reply("y"), back(6), prompt("z"))
    assert said(thread)["s"] == ["0", "r0", "z"]
    load(thread, *long, prompt("x"), reply("y"), back(6), prompt("z"), back(9))
    assert said(thread)["s"] == []
    assert sorted(said(thread)) == ["s", "s/line-15", "s/line-17"]
    assert thread.check() == []


def test_a_session_has_the_id_in_the_first_line(thread: eventq.Thread) -> None:
    """Not that of another session, whose lines a fork has copied, and not that of the file."""
    folder = f"{thread.path}.files"
    os.makedirs(folder)
    path = os.path.join(folder, "rollout-2026-01-01T00-00-00-x.jsonl")
    with open(path, "wb") as file:
        file.write(spell(meta(), meta(id="other"), prompt("a")))
    made = thread.sessions.import_file(path)
    assert thread.contexts.get(made.context_id).info().name == SESSION


def test_the_first_words_are_a_title_without_an_event(thread: eventq.Thread) -> None:
    """What the tool says in the name of the user is none."""
    env: Any = prompt("<environment_context>x</environment_context>")
    load(thread, meta(), env, prompt("do it"), reply("done"), prompt("again"))
    assert thread.sessions.views.title("s") == "do it"
    load(
        thread,
        meta(),
        env,
        prompt("do it"),
        reply("done"),
        prompt("again"),
        event("thread_name_updated", thread_name="n"),
    )
    assert thread.sessions.views.title("s") == "n"


def test_a_file_that_was_read_as_lines_is_read_again(thread: eventq.Thread) -> None:
    """Its tool did not show before; a head that was moved is left alone."""
    first = {"timestamp": "t", "type": "event_msg", "payload": {"type": "user_message"}}
    load(thread, first)
    assert thread.sessions.views.info("s").tool == "plain"
    load(thread, first, prompt("a"), reply("A"))
    assert said(thread)["s"] == ["a", "A"]
    thread.contexts.get("s").append(json.dumps({"mine": 1}))
    with pytest.raises(ConflictError, match="has moved"):
        load(thread, first, prompt("a"), reply("A"), back(1))
