"""Pages of what is odd: damaged payloads, headings without an end, threads that go meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import apsw

import eventq
from eventq.errors import DiskError, NotAThreadError
from eventq.http.pages import frame, now_page, output_kinds
from tests.http.test_pages import client, seen, send
from tests.http.test_told import SECRET, stranger

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

    from eventq.thread import Thread
    from tests.http.conftest import Serve

__all__ = ["client"]  # a fixture

AT = "/t/thread/contexts/main"


def test_a_heading_of_any_length() -> None:
    """It is read once: what tried each of its signs would take an hour."""
    (part,) = output_kinds.document("# Title " + "# " * 500_000 + "end")
    assert part.title.startswith("Title # #")
    headings = ("# a b", "## a # b #  ", "# #", "#\t", "### a\t#")
    assert [one.title for one in output_kinds.document("\n".join(headings))] == [
        "a b", "a # b", "", "", "a",
    ]  # fmt: skip


def test_a_turn_of_a_tool_with_nothing_to_show(client: httpx.Client, thread: eventq.Thread) -> None:
    """It may be the first one of a page."""
    main = thread.contexts.create("main")
    main.append(json.dumps({"role": "tool", "content": [{"type": "thinking", "thinking": ""}]}))
    main.append("said after it")
    assert "said after it" in seen(client, AT).text


def test_there_is_nothing_before_the_first_turn(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """So that one is shown, and a link to what comes after it."""
    main = thread.contexts.create("main")
    for n in range(3):
        main.append(f"turn number {n}")
    page = seen(client, f"{AT}?before={main.ancestor(0)}")
    assert ("turn number 0" in page.text, "turn number 1" in page.text) == (True, False)
    assert f"?after={main.ancestor(0)}" in page.values("a", "href")


def damage(path: str, text: str) -> None:
    """Break the payload with a text."""
    connection = apsw.Connection(f"{path}/events.db")
    connection.execute(
        "UPDATE blob_bytes SET bytes = zeroblob(9) WHERE instr(CAST(bytes AS TEXT), ?)", (text,)
    )
    assert connection.changes() == 1
    connection.close()


def test_one_damaged_turn_among_others(client: httpx.Client, path: str) -> None:
    """The page says which, and shows the others; so does a search."""
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for n in range(4):
            main.append(json.dumps({"role": "user", "content": f"number-{n} was said"}))
    damage(path, "number-2")
    for query in ("", "?q=was+said", "?only=said"):
        page = seen(client, f"{AT}{query}")
        assert [f"number-{n} " in page.text for n in range(4)] == [True, True, False, True], query
    assert "0 messages with calls" in seen(client, f"{AT}?only=tools").text
    assert "is damaged: its stored bytes do not have its hash" in seen(client, AT).text


def test_why_a_turn_cannot_be_read_names_no_file(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on its page, nor among the last words."""
    thread.contexts.create("main").append("x")

    def fail(*_: object, **__: object) -> None:
        raise DiskError(f"'{SECRET}' is full", "free some space")

    monkeypatch.setattr("eventq.memory.turns.Turns.said", fail)
    with stranger(client) as other:
        for at in ("/t/thread/", AT, f"{AT}?q=x", "/t/thread/diff?a=main&b=main"):
            found = other.get(at)
            assert (found.status_code, "secret" in found.text) == (200, False), at
        assert "the store cannot be read here" in seen(other, AT).text
        assert "the store cannot be read here" in seen(other, "/t/thread/").text


def test_a_replay_goes_back_only(client: httpx.Client, thread: eventq.Thread) -> None:
    """Forward it would be an ack of events that nobody has handled."""
    thread.subscribe("w")
    thread.push_many([("self", "note", f"{n}") for n in range(5)])
    thread.settle([one.token for one in thread.claim("w", 2)])
    at = "/t/thread/consumers/w"
    refused = send(client, "replay", at, consumer="w", id=5)
    assert refused.status_code == 409
    assert "w has not come to event 5 yet: it acked up to 2" in refused.text
    assert "give an event up to 3" in refused.text
    assert thread.status().consumers[0].last_acked_id == 2
    assert send(client, "replay", at, consumer="w", id=2).status_code == 303
    assert [one.event.id for one in thread.claim("w", 9)] == [2, 3, 4, 5]
    assert send(client, "replay", "/t/thread/health", consumer="none", id=1).status_code == 404


def test_an_answer_of_several_lines(client: httpx.Client, thread: eventq.Thread) -> None:
    """Forms send each line break as two characters; the option has one."""
    asked = thread.ask("Which?", options=("one\ntwo", "three"), approval=True)
    done = send(client, "answer", id=asked.question_id, text="one\r\ntwo")
    assert done.status_code == 303
    assert thread.question(asked.question_id).answer == "one\ntwo"


def test_a_thread_that_goes_between_two_looks(
    serve: Serve, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of all threads says so, and shows the others."""
    other = eventq.init(tmp_path / "other")
    for one in (path, other):
        with eventq.open(one) as thread:
            thread.ask(f"question of {thread.path}?")
            thread.contexts.create("main").append(f"words of {thread.path}")

    def read(thread: Thread, wanted: now_page.Wanted) -> now_page.Details:
        if thread.path == other:
            raise NotAThreadError(other)
        return now_page.details(thread, wanted)

    monkeypatch.setattr(frame, "details", read)
    client = serve(path, other)
    page = seen(client, "/")
    assert "cannot be read" in page.text
    assert (f"words of {path}" in page.text, f"words of {other}" in page.text) == (True, False)
    assert (f"question of {path}" in page.text, f"question of {other}" in page.text) == (
        True,
        False,
    )
    assert client.get("/t/other/").status_code == 404


def test_the_last_moves_of_a_head(client: httpx.Client, thread: eventq.Thread) -> None:
    """Of a short context all are listed, of a long one the last ones."""
    main = thread.contexts.create("main")
    main.append("x")
    text = " ".join(seen(client, AT).text.split())
    assert text.index("append to turn 1,") < text.index("create,")
    with thread.write():
        for n in range(250):
            main.append(f"{n}")
    text = seen(client, AT).text
    assert text.index("append to turn 251,") < text.index("append to turn 242,")
    assert "append to turn 241," not in text


def test_an_output_of_many_versions(client: httpx.Client, thread: eventq.Thread) -> None:
    """Those around the one that is shown are listed, and how many there are is no lie."""
    made = thread.outputs.put("notes", "0")
    for n in range(1, 160):
        thread.outputs.publish(made.output_id, f"{n}")
    at = f"/t/thread/published/{made.output_id}"
    assert "version 150 of 160," in seen(client, f"{at}?version=150").text
    assert "version 2 of 160," in seen(client, f"{at}?version=2").text
    shown = seen(client, f"{at}?version=150").values("a", "href")
    assert (f"{at}?version=160" in shown, f"{at}?version=20" in shown) == (True, False)


def test_a_port_that_is_none(client: httpx.Client, thread: eventq.Thread) -> None:
    """A digit that no cookie may have is no part of its name."""
    thread.push("self", "note", "x")
    shown = client.get("/t/thread/", headers={b"host": "127.0.0.1:\u00b2".encode("latin-1")})
    assert shown.status_code == 200
    assert "eventq-seen=" in shown.headers["set-cookie"]
