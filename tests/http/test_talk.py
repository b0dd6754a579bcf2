"""The page of a conversation: subagents, facts, branches, forks, search, and what is odd."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

import eventq
from eventq.http.pages import talk_search
from tests.http.test_pages import EVIL, Text, client, messages, seen, send
from tests.http.test_told import stranger

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

__all__ = ["client"]  # a fixture
pytestmark = pytest.mark.engines("sqlite", "postgres")

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
    steps = [of_agent(f"g{n}", f"g{n - 1}", "assistant", f"step {n}.") for n in range(1, turns)]
    steps[-1]["message"] |= {"id": "m9", "usage": {"output_tokens": 1_500, "input_tokens": 20}}
    return [of_agent("g0", None, "user", TASK), *steps]


@pytest.fixture
def started(tmp_path: Path, thread: eventq.Thread) -> eventq.Thread:
    """Return a thread with a session and its subagent of 30 turns."""
    path = write(tmp_path / "s.jsonl", STARTED)
    write(tmp_path / "s" / "subagents" / "agent-0123456789abcdef0.jsonl", agent(30))
    thread.sessions.import_file(path)
    return thread


def test_a_subagent_stands_in_its_call(client: httpx.Client, started: eventq.Thread) -> None:
    """Its beginning is in the call that started it, with its name; the rest on its own page."""
    found = client.get(f"{AT}/s").text
    page = Text(found)
    inside = found.split('class="sub"')
    assert len(inside) == 2
    assert "Agent</b><code" in inside[0]
    assert "Another" not in inside[0].split("</summary>")[-1]
    text = words(Text(inside[1]))
    assert "subagent carol" in text
    assert "30 turns · 1.5 k out · 20 in · its own page" in text
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
    assert "Go on from here" not in text
    made = started.contexts.fork("s/agent-0123456789abcdef0")
    ids = seen(client, f"{AT}/{made.id}").values("li", "id")
    assert len(ids) == len({*ids})
    back = next(one for one in page.values("a", "href") if one and "?at=" in one)
    assert back == f"{AT}/s?at=2#t-2"
    assert "t-2" in seen(client, back).values("li", "id")


def test_a_response_is_one_message(client: httpx.Client, thread: eventq.Thread) -> None:
    """Its entries are one message, each with a place to link to; another one is another."""
    main = thread.contexts.create("main")
    thought = {"type": "thinking", "thinking": "", "signature": "x"}
    usage: dict[str, Any] = {"usage": {"output_tokens": 7, "input_tokens": 9}, "id": "m1"}
    main.append(json.dumps(entry("o", None, "assistant", [thought], message=usage)))
    blocks = ([{"type": "text", "text": "I look"}], [call("t1", "Read")], [call("t2", "Read")])
    for n, one in enumerate(blocks):
        usage["usage"]["output_tokens"] += n
        main.append(json.dumps(entry(f"a{n}", None, "assistant", one, message=usage)))
    main.append(json.dumps(entry("b", None, "assistant", "Well", message={"id": "m2"})))
    page = seen(client, f"{AT}/main")
    classes = [one for one in page.values("li", "class") if one and one.startswith("msg")]
    assert classes == ["msg assistant", "msg assistant same"]
    assert {"t-2", "t-3", "t-4", "t-5"} <= {*page.values("li", "id"), *page.values("span", "id")}
    assert words(page).count(" out · 9 in") == 1
    assert "10 out · 9 in" in words(page)


def test_the_call_of_a_subagent(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """Of several calls in one entry it is the one that was given the subagent's task."""
    two = [
        call("t1", "Task", prompt="Another", name="bob"),
        call("t2", "Task", prompt=TASK, name="eve"),
    ]
    side = {"isSidechain": True}
    path = write(
        tmp_path / "s.jsonl",
        [
            entry("u1", None, "user", "Go on"),
            entry("a1", "u1", "assistant", two),
            entry("g1", "a1", "user", TASK, **side),
            entry("g2", "g1", "assistant", "I looked.", **side),
            entry("r1", "a1", "user", [result("t1", "one"), result("t2", "two")]),
        ],
    )  # fmt: skip
    thread.sessions.import_file(path)
    page = seen(client, f"{AT}/s")
    assert "subagent eve" in words(page)
    assert "Subagentseve" in words(page)


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


def test_a_result_on_the_next_page(client: httpx.Client, thread: eventq.Thread) -> None:
    """A call at the end of a page has what came of it, and that is not said twice."""
    main = thread.contexts.create("main")
    with thread.write():
        for n in range(199):
            main.append(f"number {n}.")
        main.append(json.dumps(entry("a", None, "assistant", [call("t", "Bash", command="ls")])))
        main.append(json.dumps(entry("b", "a", "user", [result("t", "late result")])))
        for n in range(199):
            main.append(f"number {n}.")
    text = messages(client, f"{AT}/main?at=1")
    assert "1 line done" in text
    assert text.count("late result") == 1
    assert "resultlate result" in messages(client, f"{AT}/main")


def test_what_nobody_says(client: httpx.Client, thread: eventq.Thread) -> None:
    """It stands beside the conversation, on a line with what it is and what changed."""
    main = thread.contexts.create("main")
    main.append('{"type":"model_change","id":"a","parentId":null,"modelId":"m-7","provider":"p"}')
    main.append('{"type":"thinking_level_change","id":"b","parentId":"a","thinkingLevel":"high"}')
    page = seen(client, f"{AT}/main")
    assert "model change: p m-7 and 1 other note" in words(page)
    assert page.values("li", "class") == ["msg beside"]


def test_long_texts_of_tools_are_folded(client: httpx.Client, thread: eventq.Thread) -> None:
    """What a tool says for itself is a line to open; what an editor adds is left out."""
    main = thread.contexts.create("main")
    main.append(json.dumps(entry("a", None, "user", "word " * 500, isMeta=True)))
    added = "<ide_opened_file>The user opened a.py</ide_opened_file>\nDo it"
    main.append(json.dumps(entry("b", "a", "user", added)))
    text = words(seen(client, f"{AT}/main"))
    assert "Text, 2,500 characters" in text
    assert "Do it" in text
    assert "opened" not in text


def test_what_a_call_was_given(client: httpx.Client, thread: eventq.Thread) -> None:
    """Its texts are lines, a change is old and new; one without a result says so."""
    given = {"path": "a.py", "old_string": "one\ntwo", "new_string": "<b>", "n": [1]}
    thread.contexts.create("main").append(json.dumps(entry("a", None, "assistant", [call("t", "Edit", **given)])))  # fmt: skip
    text = words(seen(client, f"{AT}/main"))
    assert "path: a.py n: [ 1 ] change: - one - two + <b>" in text
    assert "no result" in text


def test_facts_beside_it(client: httpx.Client, thread: eventq.Thread, tmp_path: Path) -> None:
    """The tool, models, when; what a person said, as links; which tools, and what failed."""
    more = {"version": "2.1.9", "cwd": "/there", "gitBranch": "topic"}
    path = write(
        tmp_path / "s.jsonl",
        [
            entry("u1", None, "user", "First <i>words</i>", **more),
            entry("a1", "u1", "assistant", [call("t1", "Bash", command="ls")], message={"model": "m-9"}),
            entry("r1", "a1", "user", [result("t1", "no", is_error=True)]),
            entry("a2", "r1", "assistant", [call("t2", "Bash", command="ls -l")], message={"model": "m-9"}),
            entry("r2", "a2", "user", [result("t2", "yes")]),
            entry("a3", "r2", "assistant", [call("t3", "Read", path="a")]),
            entry("u2", "a3", "user", "Second words", second=59),
            {"type": "custom-title", "customTitle": "A <title>", "sessionId": "s"},
        ],
    )  # fmt: skip
    thread.sessions.import_file(path)
    page = seen(client, f"{AT}/s")
    aside = words(page).split("About this session")[1].split("Go on from here")[0]
    for text in (
        "Claude Code 2.1.9", "m-9", "/there, on topic", "for 59 s", "7, of 8 lines of its file",
        "5 messages", "You said, 2 times", "First <i>words</i>", "Tools, 3 calls, 1 failed",
        "Bash2 1 failed", "Read1",
    ):  # fmt: skip
        assert text in aside, text
    assert {"?at=1#t-1", "?at=7#t-7"} <= {*page.values("a", "href")}
    assert "A <title>" in words(page)
    text = words(page).split("Go on from here")[1]
    assert re.search(r"session fork s --out \S+/[0-9a-f-]{36}\.jsonl .*claude --resume", text)
    own = "01234567-89ab-4cde-8f01-23456789abcd"
    copy = write(tmp_path / "other" / f"{own}.jsonl", [entry("v1", None, "user", "x")])
    thread.sessions.import_file(copy, name="t")
    assert (
        words(seen(client, f"{AT}/t"))
        .split("Go on from here")[1]
        .startswith(f"claude --resume {own} ")
    )


def test_sums_of_a_long_conversation(client: httpx.Client, thread: eventq.Thread) -> None:
    """They are those of the newest turns, and say so; types of turns tell who speaks."""
    main = thread.contexts.create("main")
    with thread.write():
        for n in range(1_800):
            main.append(eventq.NewTurn(f"number {n}.", "user" if n % 10 else "assistant"))
    text = words(seen(client, f"{AT}/main"))
    assert "1,600 messages, of the last 1,600 turns" in text
    assert "You said, 1,440 times lately" in text
    assert text.count("number 1798.") == 2
    assert "number 1700." in text
    assert text.count("number 1760.") == 1


def forked() -> list[dict[str, Any]]:
    """Return a session with a branch that was left."""
    return [
        entry("u1", None, "user", "Hello"),
        entry("a1", "u1", "assistant", "What now?"),
        entry("u2", "a1", "user", "The <b>left</b> way"),
        entry("a2", "u2", "assistant", "As you like", second=30),
        entry("u3", "a1", "user", "The way taken"),
        entry("a3", "u3", "assistant", "Well"),
        entry("x1", "a1", "system", "a note"),
        entry("a4", "a3", "assistant", "Done"),
    ]


def test_where_branches_part(client: httpx.Client, thread: eventq.Thread, tmp_path: Path) -> None:
    """Each has its first words, its length, a link to it and one to compare; the own is marked."""
    thread.sessions.import_file(write(tmp_path / "s.jsonl", forked()))
    page = seen(client, f"{AT}/s")
    found = client.get(f"{AT}/s").text.split('class="branch"')
    assert len(found) == 2
    text = words(Text(found[1].split("</ul>")[0]))
    assert "2 branches go on from here this branch The way taken 3 turns" in text
    assert "The <b>left</b> way 2 turns · left 2026-01-01T00:00:30.000Z compare" in text
    other = next(one for one in thread.contexts.list() if one.name != "s").context_id
    links = {*page.values("a", "href")}
    assert {f"{AT}/{other}?at=3#t-3", f"/t/thread/diff?a=1&b={other}"} <= links
    aside = words(page).split("About this session")[1]
    assert "Branches, 2hereDoneleftThe <b>left</b> way" in aside
    page = seen(client, f"{AT}/{other}?at=3")
    assert "As you like" in page.text
    assert "this branch The <b>left</b> way 2 turns" in words(page)


def test_fork_from_a_message(client: httpx.Client, thread: eventq.Thread, tmp_path: Path) -> None:
    """A control beside each message; the page of the fork says the commands that go on."""
    path = write(tmp_path / "s.jsonl", forked())
    thread.sessions.import_file(path)
    page = seen(client, f"{AT}/s")
    assert {"1", "2", "5", "6"} <= {*page.values("button", "value")}
    assert page.values("button", "form") == ["fork"] * 5
    made = send(client, "fork", f"{AT}/s", context=1, turn=2)
    page = seen(client, made.headers["location"])
    assert "The way taken" not in words(page).split("About this")[0]
    assert "Forked at turn 2" in words(page)
    assert "What now?" in page.text
    text = words(page).split("Go on from here")[1]
    number = made.headers["location"].rpartition("/")[2]
    assert f"eventq session fork {number} --out {tmp_path}/" in text
    own = re.findall(r"claude --resume (\S+)", text)
    assert f"/{own[0]}.jsonl --thread {thread.path}" in text
    told = thread.sessions.fork(int(number), f"{tmp_path}/{own[0]}.jsonl")
    assert told.session_id == own[0]


def test_fork_the_newest_by_name(client: httpx.Client, thread: eventq.Thread) -> None:
    """A fold at the title names it; an empty name is none."""
    turn = thread.contexts.create("main").append("x").turn_id
    page = seen(client, f"{AT}/main")
    assert "goes on from the newest message" in words(page)
    assert str(turn) in page.values("input", "value")
    send(client, "fork", f"{AT}/main", context=1, turn=turn, name="mine")
    send(client, "fork", f"{AT}/main", context=1, turn=turn, name="")
    assert [one.name for one in thread.contexts.list()] == ["main", "mine", None]


def test_no_control_without_rights(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """Who comes without a token cannot fork, and is told no place on the machine."""
    first = entry("u1", None, "user", "Hello", cwd="/home/secret")
    thread.sessions.import_file(write(tmp_path / "s.jsonl", [first]))
    told = client.get(f"{AT}/s").text
    with stranger(client) as other:
        found = other.get(f"{AT}/s")
    assert found.status_code == 200
    for text in ("forkit", "/home/secret", "session fork", str(tmp_path)):
        assert (text in told, text in found.text) == (True, False), text


def test_search_within(client: httpx.Client, thread: eventq.Thread) -> None:
    """Hits are lines that lead to their turn; letters of either case, also in what calls are given."""
    main = thread.contexts.create("main")
    main.append(json.dumps(entry("a", None, "user", "Where is the <b>Lamp</b>?\nHere é.")))
    main.append(json.dumps(entry("b", "a", "assistant", [call("t", "Find", x="y", what="lamp")])))
    main.append(json.dumps(entry("c", "b", "user", [result("t", "on the table")])))
    page = seen(client, f"{AT}/main?q=LAMP")
    text = words(page).split("Newest")[-1]
    assert "2 turns with “LAMP”" in text
    assert "Where is the <b>Lamp</b>? Here é." in text
    assert {"?at=1#t-1", "?at=2#t-2"} <= {*page.values("a", "href")}
    assert page.values("mark", "class") == []
    main.append('{"role": "user", "content": "a \\u0042lue one"}')
    for sought, number in (
        ("Blue", 1),
        ("é", 1),
        ("<b>", 1),
        ("table", 1),
        ("no such", 0),
        ("Find", 1),
    ):
        text = words(seen(client, f"{AT}/main?{urlencode({'q': sought})}"))
        assert f"{number} turn{'s' * (number != 1)} with “{sought}”" in text
    found = client.get(f"{AT}/main?{urlencode({'q': EVIL})}").text
    assert "<script>alert" not in found
    assert EVIL in Text(found).values("input", "value")


def test_a_look_ends(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not look at in time is looked at from there; nothing is found twice."""
    main = thread.contexts.create("main")
    with thread.write():
        for n in range(500):
            main.append(eventq.NewTurn(f"number {n}", "user"))
    monkeypatch.setattr(talk_search, "SEARCH_SECONDS", -1)
    at, hits = "?q=number", []
    for most in (200, 200, 100):
        page = Text(client.get(f"{AT}/main{at}").text.split('id="context"')[1])
        found = [one for one in page.values("a", "href") if one and one.startswith("?at=")]
        hits += found
        assert f"{most} turns with “number”" in words(page)
        at = next((one for one in page.values("a", "href") if one and "before=" in one), "")
    assert at == ""
    assert len({*hits}) == 500


def test_filters(client: httpx.Client, thread: eventq.Thread, tmp_path: Path) -> None:
    """What was said, calls, those that failed, those of a tool, what a person said."""
    path = write(
        tmp_path / "s.jsonl",
        [
            entry("u1", None, "user", "My words"),
            entry("a1", "u1", "assistant", [{"type": "text", "text": "Its words"}, call("t1", "Bash", command="ls 1")]),
            entry("r1", "a1", "user", [result("t1", "broken", is_error=True)]),
            entry("a2", "r1", "assistant", [call("t2", "Bash", command="ls 2")]),
            entry("r2", "a2", "user", [result("t2", "fine")]),
            entry("a3", "r2", "assistant", [call("t3", "Read", path="a.py")]),
        ],
    )  # fmt: skip
    thread.sessions.import_file(path)
    every = ("My words", "Its words", "ls 1", "broken", "ls 2", "fine", "a.py")
    for query, shown in {
        "only=said": ("My words", "Its words"),
        "only=you": ("My words",),
        "only=tools": ("Its words", "ls 1", "broken", "ls 2", "fine", "a.py"),
        "only=failed": ("Its words", "ls 1", "broken"),
        "tool=Read": ("a.py",),
        "only=failed&tool=Read": (),
        "only=other": every,
    }.items():
        text = messages(client, f"{AT}/s?{query}")
        assert [one for one in every if one in text] == [*shown], query
    page = seen(client, f"{AT}/s")
    assert "all 6what was saidtools 3failed 1JSON" in words(page)
    assert "?tool=Bash" in page.values("a", "href")
    (json_at,) = [one for one in page.values("a", "href") if one and one.startswith("/api/")]
    assert len(client.get(json_at).json()["turns"]) == 6


def test_lines_that_are_no_entries(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """Each is a row to open; what no one says is folded by its kind, an erased turn says so."""
    path = tmp_path / "s.jsonl"
    write(path, [entry("u1", None, "user", "Hello")])
    with path.open("a") as file:
        file.write("<i>no json\n")
        file.write(json.dumps({**entry("x1", "u1", "odd-kind", ""), "content": "strange"}) + "\n")
    write(tmp_path / "end", [entry("u2", "x1", "user", "secret words")])
    path.write_text(path.read_text() + (tmp_path / "end").read_text())
    thread.sessions.import_file(str(path))
    page = seen(client, f"{AT}/s")
    text = words(page)
    assert "line 2 is not JSON<i>no json" in text
    assert "odd kind" in text
    assert "secret words" in text
    thread.erasures.turn(3)
    text = words(seen(client, f"{AT}/s"))
    assert "secret words" not in text
    assert "erased" in text
    thread.contexts.tombstone(1)
    text = words(seen(client, f"{AT}/s"))
    assert "hidden" in text


def test_a_turn_has_the_results_of_its_calls(client: httpx.Client, started: eventq.Thread) -> None:
    """They are looked for in the turns right after it; and it leads to its place."""
    assert started
    page = seen(client, "/t/thread/turns/2")
    assert "40 s · 1 line done" in words(page)
    assert "found" in page.text
    assert f"{AT}/1?at=2#t-2" in page.values("a", "href")


def test_subagents_in_sessions_of_their_own(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """One of Codex names the session that started it; there it stands in the call that names it."""
    above, own = (f"0199{n}000-0000-7000-8000-000000000000" for n in (1, 2))

    def lines(*payloads: dict[str, Any]) -> list[dict[str, Any]]:
        first, *items = payloads
        kinds = ("session_meta", *["response_item"] * len(items))
        return [
            {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": one}
            for kind, one in zip(kinds, (first, *items), strict=True)
        ]

    spawn = {"parent_thread_id": above, "agent_nickname": "Averroes"}
    meta = {"id": own, "cwd": "/x", "source": {"subagent": {"thread_spawn": spawn}}}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TASK}]}
    write(tmp_path / "own.jsonl", lines(meta, said))
    thread.sessions.import_file(str(tmp_path / "own.jsonl"))
    assert f"Started in {above}, which is not here" in words(seen(client, f"{AT}/{own}"))
    called = {"type": "function_call", "name": "spawn_agent", "call_id": "c", "arguments": "{}"}
    came = {"type": "function_call_output", "call_id": "c", "output": f'{{"agent_id":"{own}"}}'}
    write(tmp_path / "above.jsonl", lines({"id": above, "cwd": "/x"}, called, came))
    thread.sessions.import_file(str(tmp_path / "above.jsonl"))
    page = seen(client, f"{AT}/{own}")
    assert f"{AT}/{above}?q={own}" in page.values("a", "href")
    assert "Averroes" in words(page)
    assert "You said" not in words(page)
    text = messages(client, f"{AT}/{above}")
    assert "subagent Averroes" in text
    assert TASK in text
