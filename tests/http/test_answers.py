"""An answer comes through every door in one way: to an open question that takes it, and signed.

Members of the kind: the doors (the command line alone, in a batch, in a stream, under the name
`thread`; a hook; HTTP with the key in the body, in a header, in a list or in lines, and by the
question; MCP's `push`; lines of a mirror that are pushed again), what they answer (questions and
approvals, for anybody or a person; closed, erased, pruned, missing, none at all), and keys that
look like those of answers.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.http.tokens import Token
from eventq.mcp.mounting import Mount
from eventq.system.environment import user_name
from tests.doors.support import run
from tests.http.conftest import TOKEN
from tests.mcp.conftest import on_http

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from tests.http.conftest import Serve

    Door = Callable[[str, dict[str, Any]], bool]

ME = user_name()
CLI = ("push", "push --batch", "push --stream", "thread push --batch")
HTTP = ("body", "header", "quoted", "list", "lines")
WHO = {
    **dict.fromkeys(CLI, ("shell", ME)),
    **dict.fromkeys(HTTP, ("http", "token:default")),
    "mcp": ("mcp", "token:default"),
}
# Questions of each state, an event that is none, and one that is to come.
OPEN, FREE, GUARDED, CLOSED, ERASED, PRUNED, NOTE, MISSING = 3, 4, 5, 6, 7, 1, 2, 99
# What is answered, how, and whether that is taken: None if the door shows a person.
TARGETS = [
    (OPEN, "approve", True), (OPEN, "Approve", False), (OPEN, "approve ", False),
    (FREE, "whatever", True), (GUARDED, "deny", None), (GUARDED, "no", False),
    (CLOSED, "deny", True), (CLOSED, "approve", False), (ERASED, "x", False),
    (PRUNED, "x", False), (NOTE, "x", False), (MISSING, "x", False), (0, "x", False),
]  # fmt: skip


@pytest.fixture
def asked(thread: eventq.Thread) -> eventq.Thread:
    """Return a thread with a question of each state."""
    thread.ask("Long ago?")
    thread.push("self", "note", "x")
    thread.ask("Deploy?", approval=True)
    thread.ask("Which?", ["a", "b"])
    thread.ask("Delete?", approval=True, by_person=True)
    thread.ask("Closed?", approval=True)
    thread.ask("Erased?")
    thread.answer(CLOSED, "deny")
    thread.erasures.event(ERASED)
    thread.prune(before_id=2)
    return thread


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a client of a server that speaks MCP too."""
    return serve(path, mcp=Mount)


def sends(door: str, client: httpx.Client, path: str) -> Door:
    """Return what sends an event with a key by a door, and says whether it was taken."""

    def by_command(key: str, event: dict[str, Any]) -> bool:
        program, *words = door.split() if door.startswith("thread") else ["eventq", *door.split()]
        where = ("--thread", path)
        if door == "push":
            options = ("--source", "x", "--type", event["type"], "--key", key)
            return run("push", *options, "--content", event["content"], *where).code == 0
        line = json.dumps({**event, "source": "x", "key": key})
        return run(*words, *where, given=line + "\n", program=program).code == 0

    def by_http(key: str, event: dict[str, Any]) -> bool:
        headers, sent = {}, json.dumps({**event, "key": key})
        if door in ("header", "quoted"):
            headers["idempotency-key"] = f'"{key}"' if door == "quoted" else key
            sent = json.dumps(event)
        if door == "lines":
            headers["content-type"] = "application/x-ndjson"
        at = "/api/threads/thread/events"
        given = f"[{sent}]" if door == "list" else sent
        found = client.post(at, content=given, headers=headers)
        assert found.status_code < 500
        return found.status_code < 300

    def by_mcp(key: str, event: dict[str, Any]) -> bool:
        async def push() -> bool:
            async with on_http(f"{client.base_url}/mcp".replace("//mcp", "/mcp")) as found:
                return not (await found.call_tool("push", {**event, "key": key})).is_error

        return asyncio.run(asyncio.wait_for(push(), 50))

    return by_mcp if door == "mcp" else by_http if door in HTTP else by_command


@pytest.mark.parametrize("door", WHO)
def test_an_open_question_takes_its_answer(
    asked: eventq.Thread, client: httpx.Client, path: str, door: str
) -> None:
    """And nothing else does; who answers is what the door saw, not what was sent."""
    send = sends(door, client, path)
    good = {"question": OPEN, "text": "approve"}
    for more in ({"by": "ada"}, {"via": "page"}, {"by_person": True}, {"question": FREE}):
        content = json.dumps({**good, **more})
        assert not send(f"answer:{OPEN}", {"type": "answer", "content": content})
    for kind in ("note", "question", "Answer"):
        assert not send(f"answer:{OPEN}", {"type": kind, "content": json.dumps(good)})
    for number, text, takes in TARGETS:
        is_taken = WHO[door][1] == "token:default" if takes is None else takes
        content = json.dumps({"question": number, "text": text})
        last = asked.last_id()
        event = {"type": "answer", "content": content}
        assert send(f"answer:{number}", event) == is_taken, (number, text)
        if not is_taken:
            assert asked.last_id() == last
            continue
        found = asked.question(number)
        who = ("program", ME) if number == CLOSED else WHO[door]
        assert (found.answer, found.answered_via, found.answered_by) == (text, *who)
        assert asked.last_id() == last + (number != CLOSED)
    last = asked.last_id()
    assert send(f"answer:{OPEN}", {"type": "answer", "content": json.dumps(good)})
    other = {"type": "answer", "content": json.dumps({**good, "text": "deny"})}
    assert not send(f"answer:{OPEN}", other)
    assert asked.last_id() == last
    assert [one.question_id for one in asked.questions()] == [GUARDED] * (WHO[door][1] == ME)


LOOK_ALIKE = ("answer:03", "answer: 3", "answer:+3", "answer:3.0", "answer:3e0", "answer:0x3",
              "answer:3_0", "answer:-3", "answer::3", "Answer:3", "ANSWER:3", "answer", "answer:",
              "answer:x3", "a nswer:3", "'answer:3'")  # fmt: skip
WIDE = ("answer:\uff13", "answer:\u0663", "answer:3\u200b", "\u200banswer:3", "answer\uff1a3")


@pytest.mark.parametrize("door", WHO)
def test_a_key_that_looks_like_one_answers_nothing(
    asked: eventq.Thread, client: httpx.Client, path: str, door: str
) -> None:
    """It is a key like others; an event that says how it came has to be the answer."""
    send = sends(door, client, path)
    content = json.dumps({"question": OPEN, "text": "approve"})
    signed = json.dumps({"question": OPEN, "text": "approve", "via": "page", "by": ME})
    is_header = door in ("header", "quoted")
    keys = (*LOOK_ALIKE, *(() if is_header else WIDE))
    for key in keys if door in HTTP else keys[::4]:  # a command takes its time, and so does MCP
        assert not send(key, {"type": "answer", "content": signed}), key
        assert send(key, {"type": "answer", "content": content}), key
        assert asked.question(OPEN).answer is None, key
    if not is_header:  # where blanks around a value are none of it
        for key in ("answer:3 ", " answer:3", "answer:3\t"):
            send(key, {"type": "answer", "content": content})
            assert asked.question(OPEN).answer is None, key
    assert asked.answer(OPEN, "deny").answer == "deny"


def test_members_that_stand_there_twice(asked: eventq.Thread, client: httpx.Client) -> None:
    """What is stored is what was looked at, whichever of two it is."""
    at = "/api/threads/thread/events"
    for text, status in (
        ('{"question":3,"text":"deny","text":"no"}', 422),
        ('{"question":3,"text":"no","text":"deny"}', 201),
    ):
        event = json.dumps({"type": "answer", "key": f"answer:{OPEN}", "content": text})
        found = client.post(at, content=event)
        assert found.status_code == status
        assert (asked.question(OPEN).answer == "deny") == (status == 201)
    assert json.loads(found.json()["content"], object_pairs_hook=list)[:2] == [
        ("question", OPEN), ("text", "deny"),
    ]  # fmt: skip
    twice = f'{{"type":"answer","content":"{{}}","key":"answer:{FREE}","key":"x"}}'
    client.post(at, content=twice)
    assert asked.question(FREE).answer is None


def test_what_reports_or_repeats_answers_nothing(asked: eventq.Thread, path: str) -> None:
    """A hook, and lines that are pushed again: they were said of another log."""
    for name, use in (("answer", "3"), ("x", "answer:3")):
        hook = {"hook_event_name": name, "tool_use_id": use, "question": OPEN, "text": "approve"}
        run("hook", "--thread", path, given=json.dumps(hook))
    signed = {"question": OPEN, "text": "approve", "via": "page", "by": ME, "by_person": True}
    lines = [
        {"id": 90 + n, "created_at": "2026-01-01T00:00:00.000Z", "source": "self",
         "type": "answer", "subtype": subtype, "content": json.dumps(content)}
        for n, (subtype, content) in enumerate([
            (None, signed), ("recovered", signed), (None, {"question": OPEN, "text": "approve"}),
            (None, {**signed, "question": GUARDED}),
        ])
    ]  # fmt: skip
    with open(f"{path}/lines.jsonl", "w", encoding="utf-8") as file:
        file.write("".join(json.dumps(one) + "\n" for one in lines))
    done = run("mirror recover", "--thread", path, f"{path}/lines.jsonl")
    assert done.code == 0, done.err
    assert [*asked.peek()][-1].subtype == "recovered"
    assert {one.question_id for one in asked.questions()} == {OPEN, FREE, GUARDED}


def test_the_next_caller_of_a_worker_is_nobody_else(
    serve: Serve, path: str, asked: eventq.Thread, tmp_path: Path
) -> None:
    """Threads of workers are kept: the name of a caller is not."""
    tokens = [Token("ada", "t-ada", frozenset({"answer"})),
              Token("bot", "t-bot", frozenset({"push"}))]  # fmt: skip
    client = serve(path, tokens=tokens)
    event = {"type": "answer", "key": f"answer:{OPEN}",
             "content": json.dumps({"question": OPEN, "text": "deny"})}  # fmt: skip
    at = "/api/threads/thread"
    for _ in range(5):
        shown = {"authorization": "Bearer t-ada"}
        assert client.post(f"{at}/questions/{GUARDED}/answer", json={"text": "deny"},
                           headers=shown).status_code == 200  # fmt: skip
        for headers in ({"authorization": "Bearer t-bot"}, {"authorization": f"Bearer {TOKEN}"}):
            found = client.post(f"{at}/events", json=event, headers=headers)
            assert found.status_code == (
                403 if "bot" in headers["authorization"] else found.status_code
            )
    assert asked.question(GUARDED).answered_by == "token:ada"
    assert asked.question(OPEN).answered_by == "token:default"
