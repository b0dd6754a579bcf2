"""The page of a conversation: subagents, facts, branches, forks, search, and what is odd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.test_pages import Text, client, seen

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    import eventq

__all__ = ["client"]  # a fixture

AT = "/t/thread/contexts"


def entry(own: str, above: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return an entry of Claude Code."""
    told = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "uuid": own, "parentUuid": above, "type": kind, "sessionId": "s", "message": told,
        "timestamp": f"2026-01-01T00:00:{more.pop('second', 0):02}.000Z", **more,
    }  # fmt: skip


def call(own: str, name: str, /, **given: Any) -> dict[str, Any]:
    """Return the block of a tool call."""
    return {"type": "tool_use", "id": own, "name": name, "input": given}


def result(own: str, text: str, **more: Any) -> dict[str, Any]:
    """Return the block of a result."""
    return {"type": "tool_result", "tool_use_id": own, "content": text, **more}


def write(path: Path, entries: list[dict[str, Any]]) -> str:
    """Write a session file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in entries))
    return str(path)


def words(page: Text) -> str:
    """Return the text of a page, spaces as one."""
    return " ".join(page.text.split())


TASK = "Find <b>all</b> of it."
STARTED = [
    entry("u1", None, "user", "Go on"),
    entry("a1", "u1", "assistant", [call("t1", "Agent", prompt=TASK, name="carol")], message={"id": "m1"}),
    entry("a2", "a1", "assistant", [call("t2", "Agent", prompt="Another")], message={"id": "m1"}),
    entry("r1", "a1", "user", [result("t1", "found")], second=40),
    entry("r2", "a2", "user", [result("t2", "no", is_error=True)], second=50),
    entry("a3", "r2", "assistant", [{"type": "text", "text": "All done"}], message={"id": "m2"}),
]  # fmt: skip


def of_agent(own: str, above: str | None, kind: str, content: Any) -> dict[str, Any]:
    """Return an entry in the file of a subagent."""
    return entry(own, above, kind, content, isSidechain=True, agentId="0123456789abcdef0")


def agent(turns: int) -> list[dict[str, Any]]:
    """Return the entries of a subagent."""
    steps = (of_agent(f"g{n}", f"g{n - 1}", "assistant", f"step {n}.") for n in range(1, turns))
    return [of_agent("g0", None, "user", TASK), *steps]


@pytest.fixture
def started(tmp_path: Path, thread: eventq.Thread) -> eventq.Thread:
    """Return a thread with a session and its subagent of 30 turns."""
    path = write(tmp_path / "s.jsonl", STARTED)
    write(tmp_path / "s" / "subagents" / "agent-0123456789abcdef0.jsonl", agent(30))
    thread.sessions.import_file(path)
    return thread


@pytest.mark.usefixtures("started")
def test_a_subagent_stands_in_its_call(client: httpx.Client) -> None:
    """Its beginning is in the call that started it, with its name; the rest on its own page."""
    found = client.get(f"{AT}/s").text
    page = Text(found)
    inside = found.split('class="sub"')
    assert len(inside) == 2
    assert "Agent</b><code" in inside[0]
    assert "Another" not in inside[0].split("</summary>")[-1]
    text = words(Text(inside[1]))
    assert "subagent carol" in text
    assert "30 turns" in text
    assert "step 19." in text
    assert "step 20." not in text
    assert "10 turns more" in text
    assert "40 s · 1 line done" in words(page)
    assert "50 s · 1 line failed" in words(page)
    (own, *_) = [one for one in Text(inside[1]).values("a", "href") if one and "/contexts/" in one]
    page = seen(client, own or "")
    text = words(page)
    assert "Go on" not in text
    assert "step 29." in text
    assert "carol" in text
    assert "Its task" not in text
    assert TASK in text
    assert "Started by Agent" in text
    back = next(one for one in page.values("a", "href") if one and "?at=" in one)
    assert back == f"{AT}/s?at=2#t-2"
    assert "t-2" in seen(client, back).values("li", "id")


@pytest.mark.usefixtures("started")
def test_a_response_is_one_message(client: httpx.Client) -> None:
    """Its entries are one message, each with a place to link to."""
    page = seen(client, f"{AT}/s")
    classes = [one for one in page.values("li", "class") if one and one.startswith("msg")]
    assert classes[:3] == ["msg user", "msg assistant", "msg system"]
    assert {"t-2", "t-3"} <= {*page.values("li", "id"), *page.values("span", "id")}


def test_subagents_among_the_lines_of_a_session(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """One without a file of its own begins below its call, too, and is no other way."""
    side = {"isSidechain": True}
    path = write(
        tmp_path / "s.jsonl",
        [
            entry("u1", None, "user", "Go on"),
            entry("a1", "u1", "assistant", [call("t1", "Task", prompt=TASK)]),
            entry("g1", "a1", "user", TASK, **side),
            entry("g2", "g1", "assistant", "I looked.", **side),
            entry("r1", "a1", "user", [result("t1", "found")]),
            entry("a2", "r1", "assistant", "Thanks"),
        ],
    )
    thread.sessions.import_file(path)
    page = seen(client, f"{AT}/s")
    assert words(page).count("I looked.") == 1
    assert "branch" not in page.values("li", "class")
    own = next(one for one in page.values("a", "href") if one and one.startswith(f"{AT}/"))
    page = seen(client, own or "")
    assert "Go on" not in words(page).split("Started by")[1].split("turn 2")[1]
    assert "I looked." in page.text


def test_pages_of_a_conversation(client: httpx.Client, thread: eventq.Thread) -> None:
    """Around a turn, before and after one; the first and the newest."""
    main = thread.contexts.create("main")
    with thread.write():
        for n in range(500):
            main.append(f"number {n}.")
    page = seen(client, f"{AT}/main")
    assert "300 turns before these" in words(page)
    assert {"?before=301", "?at=1"} <= {*page.values("a", "href")}
    page = seen(client, f"{AT}/main?at=1")
    assert ("number 0." in page.text, "number 200." in page.text) == (True, False)
    assert "before these" not in page.text
    assert "300 turns after these" in words(page)
    page = seen(client, f"{AT}/main?after=200")
    assert ("number 199." in page.text, "number 200." in page.text) == (False, True)
    assert "100 turns after these" in words(page)
    page = seen(client, f"{AT}/main?at=250")
    assert all(text in page.text for text in ("number 149.", "number 249.", "number 348."))
    assert client.get(f"{AT}/main?at=999").status_code == 404
    other = thread.contexts.create("other").append("x")
    assert client.get(f"{AT}/main?at={other.turn_id}").status_code == 409


def test_what_a_call_was_given(client: httpx.Client, thread: eventq.Thread) -> None:
    """Its texts are lines, a change is old and new; one without a result says so."""
    given = {"path": "a.py", "old_string": "one\ntwo", "new_string": "<b>", "n": [1]}
    thread.contexts.create("main").append(json.dumps(entry("a", None, "assistant", [call("t", "Edit", **given)])))  # fmt: skip
    text = words(seen(client, f"{AT}/main"))
    assert "path: a.py n: [ 1 ] change: - one - two + <b>" in text
    assert "no result" in text
