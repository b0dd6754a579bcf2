"""Rollouts of Codex in a thread: their turns, branches and bytes, also as they grow."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import ConflictError, LogicError
from eventq.said import of
from eventq.sessions.reading import READERS
from tests.contract.test_session_branches import export, load, spell
from tests.sessions.support import (
    SESSION,
    back,
    codex_call,
    codex_output,
    event,
    fresh,
    meta,
    prompt,
    reply,
    rollout,
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
    lost = ["a", "A", "b", "shell", "done", "B"]
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


# --- forks ----------------------------------------------------------------------------------------

ID = "99999999-2222-4333-8444-555555555555"
NUMBERED = [
    one | {"ordinal": n}
    for n, one in enumerate([
        meta(session_id=SESSION, history_mode="paginated", thread_source="user"),
        event("task_started"), prompt("a"), event("token_count", thread_id=SESSION), reply("A"),
        event("task_complete"), event("task_started"), rollout("turn_context", cwd="/a", model="m"),
        prompt("b"), reply("B"), back(1), event("task_started"), prompt("c"), codex_call("one"),
        codex_call("two"), codex_output("two"), codex_output("one"), reply("C"), event("task_complete"),
    ])
]  # fmt: skip


def kinds(entries: list[Any]) -> list[str]:
    """Return what the lines of a file are."""
    found = [(of(one), one) for one in entries]
    return [
        what.text if what.role else str(one["payload"].get("type") or one["type"])
        for what, one in found
    ]


def fork(thread: eventq.Thread, out: Path, **more: Any) -> list[Any]:
    """Write a fork of the session `s`, and return its lines."""
    made = thread.sessions.fork("s", str(out), **more)
    lines = [json.loads(line) for line in Path(made.output).read_bytes().splitlines()]
    assert lines[0]["type"] == "session_meta"
    assert lines[0]["payload"]["id"] == made.session_id != SESSION
    assert all(isinstance(one["timestamp"], str) and "ordinal" not in one for one in lines)
    return lines


def test_a_fork_has_all_but_what_was_taken_back(thread: eventq.Thread, tmp_path: Path) -> None:
    """A head of its own that names the source, no numbers, and nothing of other turns."""
    load(thread, *NUMBERED)
    head, *rest = fork(thread, tmp_path)
    assert kinds(rest) == [
        "task_started", "a", "token_count", "A", "task_complete", "task_started", "c", "shell",
        "shell", "done", "done", "C", "task_complete",
    ]  # fmt: skip
    own = head["payload"]["id"]
    assert head["payload"]["forked_from_id"] == SESSION
    assert (head["payload"]["session_id"], rest[2]["payload"]["thread_id"]) == (own, own)
    assert "history_mode" not in head["payload"]
    assert export(thread) == spell(*NUMBERED)


def test_a_fork_at_any_turn(thread: eventq.Thread, tmp_path: Path) -> None:
    """Calls without a result are left out, and so is the other way round; also on a branch."""
    load(thread, *NUMBERED)
    turns = [one.turn_id for one in thread.contexts.get("s").replay()]
    found = [kinds(fork(thread, tmp_path, at=f"turn:{one}")[1:]) for one in turns]
    begun = ["task_started", "a", "token_count"]
    assert found[:2] == [begun, [*begun, "A", "task_complete"]]
    assert found[3] == found[4] == found[2] == [*begun, "A", "task_complete", "task_started", "c"]
    assert found[5][-2:] == ["shell", "done"]
    lost = next(one.name for one in thread.contexts if one.name != "s")
    made = thread.sessions.fork(str(lost), str(tmp_path), cwd="/b", title="T")
    lines = [json.loads(line) for line in Path(made.output).read_bytes().splitlines()]
    assert kinds(lines)[6:] == ["task_started", "turn_context", "b", "B", "thread_name_updated"]
    assert lines[0]["payload"]["cwd"] == lines[7]["payload"]["cwd"] == "/b"
    assert lines[-1]["payload"]["thread_name"] == "T"


def test_a_fork_has_the_events_of_its_turns(thread: eventq.Thread, tmp_path: Path) -> None:
    """What is shown of a prompt comes behind it, and goes with it when it is taken back."""
    load(thread, *TAKEN_BACK[:6], event("user_message", message="b"), *TAKEN_BACK[6:])
    turns = [one.turn_id for one in thread.contexts.get("s").replay()]
    begun = ["a", "user_message"]
    assert kinds(fork(thread, tmp_path, at=f"turn:{turns[0]}")[1:]) == begun
    assert kinds(fork(thread, tmp_path)[1:]) == [*begun, "A", "token_count", "c", "C"]


def test_the_name_of_a_fork_has_the_local_time(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool looks for it by the end of its name; another name is noted."""
    load(thread, *NUMBERED)
    monkeypatch.setenv("TZ", "UTC-14")
    time.tzset()
    try:
        new = fresh(time="2026-03-18T10:30:00.123Z")
        assert READERS["codex"].file_name(new) == f"rollout-2026-03-19T00-30-00-{new.id}.jsonl"
    finally:
        monkeypatch.undo()
        time.tzset()
    made = thread.sessions.fork("s", str(tmp_path))
    assert (Path(made.output).name[-41:-6], made.notes) == (made.session_id[1:], ())
    odd = thread.sessions.fork("s", str(tmp_path / f"{ID}.jsonl"))
    assert odd.session_id == ID
    assert "Codex looks for this session in a file of the name 'rollout-" in odd.notes[0]


def test_bare_items_become_lines_of_today(thread: eventq.Thread, tmp_path: Path) -> None:
    """What early files have beside them is left out; thoughts go with the call they led to."""
    bare = [one["payload"] for one in (prompt("a"), codex_call("c"), codex_output("c"))]
    state: dict[str, Any] = {"record_type": "state"}
    thought = {"type": "reasoning", "summary": []}
    load(
        thread, {"id": "x", "timestamp": "t"}, state, *bare, thought, codex_call("open")["payload"]
    )
    head, *rest = fork(thread, tmp_path)
    assert [one["payload"] for one in rest] == bare
    assert {one["type"] for one in rest} == {"response_item"}
    assert (head["payload"]["cwd"], head["payload"]["source"]) == ("", "cli")


def test_a_subagent_is_forked_as_a_session(thread: eventq.Thread, tmp_path: Path) -> None:
    """One that a person goes on with, of no other session."""
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}
    load(
        thread,
        meta(source=source, parent_thread_id="p", agent_role="r", thread_source="subagent"),
        prompt("a"),
    )
    head = fork(thread, tmp_path)[0]["payload"]
    assert head["source"] == "cli"
    assert head.keys().isdisjoint({"parent_thread_id", "agent_role", "thread_source"})


@pytest.mark.parametrize(
    ("why", "entries"),
    [
        ("its beginning stands in the file of session p", [meta(history_base={"thread_id": "p", "end_byte_offset": 9}), prompt("b")]),
        ("the tool of this session is not known", [{"n": 1}]),
    ],
)  # fmt: skip
def test_what_cannot_be_resumed_is_no_fork(
    thread: eventq.Thread, tmp_path: Path, why: str, entries: list[Any]
) -> None:
    """It is refused with the reason, and nothing is written."""
    load(thread, *entries)
    with pytest.raises(LogicError, match=why) as caught:
        thread.sessions.fork("s", str(tmp_path))
    assert caught.value.fix == "read its entries with 'eventq session cat s'"
    assert list(tmp_path.glob("*.jsonl")) == []


def test_a_fork_is_imported_as_a_session_of_its_own(thread: eventq.Thread, tmp_path: Path) -> None:
    """And forked again; so is a context that was forked here."""
    load(thread, *NUMBERED)
    made = thread.sessions.fork("s", str(tmp_path))
    again = thread.sessions.import_file(made.output)
    assert thread.contexts.get(again.context_id).info().name == made.session_id
    assert said(thread)[made.session_id] == said(thread)["s"]
    thread.contexts.create("mine", base=thread.contexts.get("s").head_id())
    lines = [json.loads(line) for line in thread.sessions.lines("mine")]
    assert lines[0]["payload"]["forked_from_id"] == SESSION
    assert kinds(lines)[-2:] == ["C", "task_complete"]


# --- beginnings in other files --------------------------------------------------------------------

PARENT = [meta(id="p"), prompt("a"), reply("A"), prompt("b"), reply("B")]


def child(size: int) -> list[Any]:
    """Return a session that goes on from that many bytes of its parent."""
    base = {"thread_id": "p", "end_ordinal_exclusive": 3, "end_byte_offset": size}
    return [meta(history_base=base, history_mode="paginated"), prompt("c"), reply("C")]


@pytest.mark.parametrize("first", ["p", "s"])
def test_a_beginning_in_another_file_is_on_main(
    thread: eventq.Thread, tmp_path: Path, first: str
) -> None:
    """Whichever was imported first; both keep their bytes, and a fork has all of it."""
    cut = len(spell(*PARENT[:3]))
    if first == "s":
        made = load(thread, *child(cut))
        (note,) = made.notes
        assert note.endswith("session p: that is not here: import it, too")
        assert said(thread) == {"s": ["c", "C"]}
    notes = load(thread, *PARENT, name="p", folder="parents").notes
    if first == "s":
        assert notes == ("session 's' goes on from it, and hangs below it now",)
        assert said(thread) == {"p": ["a", "A", "b", "B"], "s": ["a", "A", "c", "C"]}
    for _ in range(2):
        assert load(thread, *child(cut)).notes == ()
        assert said(thread) == {"p": ["a", "A", "b", "B"], "s": ["a", "A", "c", "C"]}
    assert export(thread) == spell(*child(cut))
    assert export(thread, "p") == spell(*PARENT)
    assert thread.check() == []
    head, *rest = fork(thread, tmp_path)
    assert kinds(rest) == ["a", "A", "c", "C"]
    assert (head["payload"]["forked_from_id"], "history_base" in head["payload"]) == (
        SESSION,
        False,
    )
    found = thread.sessions.views.diff("s", "p")
    assert (found.shared.text, [one.text for one in found.mine]) == ("A", ["c", "C"])


def test_a_turn_whose_session_is_gone_is_read_as_what_it_is(thread: eventq.Thread) -> None:
    """The end of a fork keeps the turns that it goes on from."""
    load(thread, *PARENT, name="p", folder="parents")
    load(thread, *child(len(spell(*PARENT[:3]))))
    thread.contexts.get("p").delete()
    assert said(thread) == {"s": ["a", "A", "c", "C"]}
    first = next(iter(thread.contexts.get("s").replay()))
    assert thread.sessions.views.entry(first.turn_id).kind == "user"
    assert thread.check() == []


@pytest.mark.parametrize("size", [len(spell(*PARENT[:3])) - 1, 1 << 40])
def test_a_beginning_that_is_not_there(thread: eventq.Thread, tmp_path: Path, size: int) -> None:
    """A cut in the middle of a line, or behind the end, is of another file: noted, no fork."""
    load(thread, *PARENT, name="p", folder="parents")
    (note,) = load(thread, *child(size)).notes
    assert f"no line of that ends at byte {size:,}: it is another file" in note
    assert said(thread)["s"] == ["c", "C"]
    with pytest.raises(LogicError, match="its beginning stands in the file of session p"):
        thread.sessions.fork("s", str(tmp_path))


SPAWN = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "depth": 1}}}


@pytest.mark.parametrize(
    ("note", "head"),
    [
        ("this is a subagent of session 'p'", meta(source=SPAWN)),
        ("this is a subagent of session 'p'", meta(parent_thread_id="p")),
        ("this is a fork of session 'p', with a copy of its lines", meta(forked_from_id="p")),
    ],
)
def test_where_a_session_comes_from_is_noted(
    thread: eventq.Thread, note: str, head: dict[str, Any]
) -> None:
    """When it is imported, and whenever it is shown; the first head is its own."""
    entries = [head, meta(id="p"), prompt("a"), reply("A")]
    assert load(thread, *entries).notes == (note,)
    assert load(thread, *entries, prompt("b")).notes == ()
    assert thread.sessions.views.notes("s") == [note]
    assert said(thread) == {"s": ["a", "A", "b"]}
