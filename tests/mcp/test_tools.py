"""The tools, as the official client calls them: what they return, and that it is bounded."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

import eventq
from eventq.mcp import searching, tools
from tests.contract.test_usage import CLAUDE, claude, load, said
from tests.mcp.conftest import MODES, PAIRS, call, on_http, on_object, refusal, run

if TYPE_CHECKING:
    from pathlib import Path

    from mcp import Client

    from tests.mcp.conftest import Connect

NAMES = [
    "push", "read", "wait", "search", "remember", "recall", "fork", "read_artifact", "ask_person",
    "status",
]  # fmt: skip
READS = ["read", "wait", "search", "recall", "read_artifact", "status"]
ROOM = 16 << 10


def size(found: Any) -> int:
    """Return the bytes of a result."""
    return len(json.dumps(found, ensure_ascii=False).encode())


async def every(client: Client, tool: str, name: str, **given: Any) -> list[Any]:
    """Return all items of a tool, page by page, as a model follows `next`; each is bounded."""
    items: list[Any] = []
    for _ in range(1_000):
        found = await call(client, tool, **given)
        assert size(found) <= ROOM
        items += found[name]
        if not found["more"]:
            return items
        given = found["next"]
    raise AssertionError("it never ends")


async def backwards(client: Client, where: str | None) -> list[int]:
    """Return the ids of all events that match, as a model pages back by `earlier`."""
    ids: list[int] = []
    given: dict[str, Any] = {"filter": where, "limit": 90}
    while True:
        found = await call(client, "read", **given)
        assert size(found) <= ROOM
        ids[:0] = [one["id"] for one in found["events"]]
        if "earlier" not in found:
            return ids
        given = found["earlier"]


@pytest.mark.parametrize(("way", "mode"), PAIRS)
def test_a_loop_of_an_agent(connect: Connect, way: str, mode: str) -> None:
    """Every tool works in every mode of the client, over every transport."""

    async def test() -> None:
        async with connect(way, mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
            start = await call(client, "wait", seconds=0)
            pushed = await call(client, "push", type="task", content="paint it", key="1")
            assert await call(client, "push", type="task", content="paint it", key="1") == pushed
            found = await call(client, "wait", **start["next"])
            assert [one["content"] for one in found["events"]] == ["paint it"]
            assert (await call(client, "read", after=0))["events"] == found["events"]
            await call(client, "remember", text="The sky is BLUE", context="facts")
            assert (await call(client, "fork", context="facts", name="other"))["turn"] == 1
            turns = (await call(client, "recall", context="other"))["turns"]
            assert [one["text"] for one in turns] == ["The sky is BLUE"]
            assert [
                one["turn"] for one in (await call(client, "search", text="blue"))["found"]
            ] == [1]
            asked = await call(client, "ask_person", question="ok?", seconds=0)
            assert (await call(client, "status"))["open_questions"] == 1
            assert (await call(client, "ask_person", id=asked["id"], seconds=0))["status"] == "open"
            assert "artifact" in await refusal(client, "read_artifact", url="artifact://7")

    run(test)


def test_descriptions_fit_into_a_prompt(connect: Connect) -> None:
    """The list of tools is short; each tool and each argument says what it is for."""

    async def test() -> None:
        async with connect() as client:
            found = (await client.list_tools()).tools
            assert size([one.model_dump(by_alias=True, exclude_none=True) for one in found]) < 9_000
            for tool in found:
                assert tool.description
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint is (tool.name in READS)
                assert all(one["description"] for one in tool.input_schema["properties"].values())

    run(test)


def test_a_caller_that_only_reads(path: str) -> None:
    """With `--read-only` nothing is offered that changes anything, and nothing does."""

    async def test() -> None:
        async with on_object(path, write=False) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == READS
            with pytest.raises(MCPError, match="there is no tool 'push' - there are read"):
                await client.call_tool("push", {"type": "note", "content": "x"})

    run(test)
    with eventq.open(path) as thread:
        assert thread.last_id() == 0


def test_reading_events(connect: Connect, thread: eventq.Thread) -> None:
    """`read` gives the newest events or those after one, with a filter, all of them by `next`."""
    thread.push_many(("self", "odd" if n % 2 else "even", f"{n}" * 50) for n in range(1, 501))

    async def test() -> None:
        async with connect() as client:
            found = await call(client, "read", limit=5)
            assert [one["id"] for one in found["events"]] == [*range(496, 501)]
            assert (found["next"], found["more"]) == ({"after": 500, "limit": 5}, False)
            ids = [one["id"] for one in await every(client, "read", "events", after=0, limit=100)]
            assert ids == [*range(1, 501)]
            where = "type = 'odd'"
            ids = [
                one["id"] for one in await every(client, "read", "events", after=0, filter=where)
            ]
            assert ids == [*range(1, 501, 2)]
            found = await call(client, "read", filter="id < 100", limit=2)
            assert [one["id"] for one in found["events"]] == [98, 99]
            assert found["next"] == {"after": 500, "filter": "id < 100", "limit": 2}
            for given in (
                None,
                "type = 'odd' OR id = 2",
                "(id > 7) OR (id < 5)",
                "(id = 3) OR (id < 9) AND id < 7",
            ):
                assert await backwards(client, given) == [
                    event.id for event in thread.peek(limit=None, filter=given)
                ]
            assert "^" in await refusal(client, "read", filter="typ = 'odd'")

    run(test)


@pytest.mark.parametrize("text", ["x" * 100_000, 'ä\n"' * 30_000, "\U0001f600" * 20_000])
def test_a_long_text_is_read_in_parts(connect: Connect, thread: eventq.Thread, text: str) -> None:
    """An event, a turn and a line that are longer than a result are read on by `rest` and `next`."""
    thread.push("self", "note", text)
    thread.contexts.create("memory").append(text)
    thread.artifacts.put(text.replace("\n", "").encode())

    async def whole(client: Client, tool: str, items: str, name: str, given: Any) -> str:
        shown = ""
        while given is not None:
            found = await call(client, tool, **given)
            assert size(found) <= ROOM
            item = found[items][0]
            shown += item[name]
            given = item.get("rest")
        return shown

    async def test() -> None:
        async with connect() as client:
            assert await whole(client, "read", "events", "content", {"after": 0}) == text
            assert await whole(client, "recall", "turns", "text", {}) == text
            given, shown = {"url": "artifact://0"}, ""
            while True:
                found = await call(client, "read_artifact", **given)
                assert size(found) <= ROOM
                shown += found["text"]
                if not found["more"]:
                    break
                given = found["next"]
            assert shown == text.replace("\n", "")

    run(test)


def test_long_texts_leave_room_for_others(connect: Connect, thread: eventq.Thread) -> None:
    """One long event does not hide those beside it: each of several is cut."""
    thread.push("self", "note", "x" * 100_000)
    thread.push("self", "note", "short")

    async def test() -> None:
        async with connect() as client:
            first, second = (await call(client, "read"))["events"]
            assert (len(first["content"]) < 10_000, first["length"]) == (True, 100_000)
            assert (second["content"], "rest" in second) == ("short", False)

    run(test)


def test_waiting(connect: Connect, thread: eventq.Thread) -> None:
    """`wait` ends with an event that matches, and misses none between two calls."""

    async def test() -> None:
        async with connect() as client:
            waits = asyncio.create_task(call(client, "wait", seconds=40, filter="type = 'task'"))
            while not (await call(client, "read"))["events"]:
                await asyncio.to_thread(thread.push, "self", "note", "x")
            while not waits.done():
                await asyncio.to_thread(thread.push, "self", "task", "x")
                await asyncio.wait((waits,), timeout=1)
            found = waits.result()
            assert found["events"][0]["type"] == "task"
            last = found["events"][-1]["id"]
            await asyncio.to_thread(thread.push, "self", "note", "after")
            found = await call(client, "wait", after=last, seconds=0, filter="content = 'after'")
            assert len(found["events"]) == 1

    run(test)


def test_a_call_that_is_cancelled_waits_no_longer(path: str) -> None:
    """A client that gives up a call leaves nothing behind, and goes on with others."""

    async def test() -> None:
        async with on_object(path) as client:
            waits = asyncio.create_task(call(client, "wait", seconds=300))
            await call(client, "status")
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await call(client, "status")

    run(test)


def test_searching(connect: Connect, thread: eventq.Thread) -> None:
    """`search` finds texts in events and turns, newest first, each once, by pages."""
    thread.push_many(("self", "note", f"needle {n}") for n in range(300))
    thread.push("self", "note", "Straße — ÜBER")
    branch = thread.contexts.create("memory")
    for n in range(300):
        branch.append(f"a NEEDLE here {n}")
    hidden = branch.append("a needle that is hidden")
    branch.tombstone(hidden.turn_id)
    patched = branch.append("hay")
    branch.patch(patched.turn_id, "a needle in its place")
    branch.fork(name="other").append("no hay")

    async def test() -> None:
        async with connect() as client:
            found = await every(client, "search", "found", text="Needle")
            assert [one["event"] for one in found if "event" in one] == [*range(300, 0, -1)]
            assert [one["turn"] for one in found if "turn" in one] == [302, *range(300, 0, -1)]
            assert (found[300]["context"], found[300]["depth"]) == ("other", 301)
            assert "needle 299" in found[0]["text"]
            (one,) = (await call(client, "search", text="straße — ÜBER"))["found"]
            assert one["event"] == 301
            assert (await call(client, "search", text="nowhere"))["found"] == []
            for text in ("%", "'", "' OR 1 --"):
                assert (await call(client, "search", text=text))["found"] == []
            assert "cursor" in await refusal(client, "search", text="x", cursor="events:-1")
            assert "1,000 bytes" in await refusal(client, "search", text="")

    run(test)


@pytest.mark.parametrize("text", ['say "no"', "C:\\new\\x", "one\ntwo", "\U0001f600 ä", "a/b\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_searching_what_json_escapes(
    connect: Connect, thread: eventq.Thread, text: str, *, ascii_only: bool
) -> None:
    """A text is found as it was said, also where JSON spells it with escapes."""
    content = json.dumps({"text": f"x {text} y"}, ensure_ascii=ascii_only)
    thread.push("self", "note", content)
    thread.push("self", "note", content.replace("/", "\\/"))
    thread.push("self", "note", f"plain {text}")
    thread.contexts.create("memory").append(content)

    async def test() -> None:
        async with connect() as client:
            found = (await call(client, "search", text=text))["found"]
            assert [one.get("event", 0) for one in found] == [3, 2, 1, 0]
            assert all(text in one["text"] for one in found)
            assert (await call(client, "search", text="\\u00e4 nowhere"))["found"] == []

    run(test)


def test_searching_what_is_no_event_or_turn(connect: Connect, thread: eventq.Thread) -> None:
    """`search` finds tasks, system texts, steps and summaries of runs, artifacts and outputs.

    Each says where `read_artifact` reads it, also what a session or a spelling of JSON holds.
    """
    run_ = thread.runs.start(eventq.NewRun("w", "the Needle task", {"coder": "a needle system"}))
    run_.step(eventq.NewStep("coder", {"m": "needle meta"}, "plain"))
    run_.step(eventq.NewStep("coder", None, 'a "needle" said'))
    run_.step(eventq.NewStep("coder", None, "more", compact="a needle summary"))
    thread.contexts.create("odd").append(eventq.NewTurn("a needle, no node", "eventq.state"))
    ref = "blob:blake3:" + "0" * 64
    for content in (ref, "junk", 1):
        payload = {
            "role": "a", "meta": None, "start": ref, "content": content, "ancestors": (),
            "compact": None, "timestamp": 1,
        }  # fmt: skip
        node = {"type": "state", "payload": payload, "refs": []}
        thread.contexts.create().append(eventq.NewTurn(json.dumps(node), "eventq.state"))
    thread.artifacts.put(b"one\ntwo\nthree needles, needle\n", tool="grep")
    thread.artifacts.put(b"hay\n")
    thread.artifacts.put(b'{"x":"\\u006eeedle\\n"}')
    branch = thread.contexts.create("work")
    thread.scope(branch.id).artifacts.put(b"needle of a session")
    thread.outputs.put("coder", "first")
    thread.outputs.put("coder", "needle out")
    thread.scope("work").outputs.put("coder", "hay\nneedle")

    async def test() -> None:
        async with connect() as client:
            for limit in (1, 100):
                found = await every(client, "search", "found", text="NEEDLE", limit=limit)
                turns = [one for one in found if "turn" in one]
                assert [one["depth"] for one in turns] == [0, 3, 2, 1, 0]
                assert ["url" in one for one in turns] == [False, True, True, False, True]
                assert 'a "needle" said' in turns[2]["text"]
                stored = [(one["url"], one["line"]) for one in found if "turn" not in one]
                assert stored[:3] == [
                    ("artifact://0", 3), ("artifact://2", 1), ("artifact://0?session=work", 1),
                ]  # fmt: skip
                assert [line for _, line in stored[3:]] == [1, 2]
                for one in (one for one in found if "url" in one):
                    rest = {"line": one["line"]} if "line" in one else {}
                    text = (await call(client, "read_artifact", url=one["url"], **rest))["text"]
                    assert "needle" in text.lower() or "\\u006eeedle" in text

    run(test)


def test_searching_what_failed(connect: Connect, thread: eventq.Thread) -> None:
    """`search` finds steps of runs that failed, before a step, after it and in its place.

    The kind is what a run keeps beside its turns: texts and meta of attempts.
    """
    run_ = thread.runs.start("flow", "task")
    run_.attempt(eventq.NewStep("coder", {"m": "meta needle"}, "first"))
    before = eventq.NewStep("coder", None, "needle before")
    run_.step(eventq.NewStep("coder", None, "worked", attempts=[before]))
    run_.step("coder", None, "replaced needle")
    run_.poke(None, "in its place")
    run_.attempt("coder", None, "last needle")

    async def test() -> None:
        async with connect() as client:
            found = await every(client, "search", "found", text="needle")
            # What was replaced is a turn as well, which no head leads to.
            assert [one["depth"] for one in found] == [2, 2, 1, 0]
            texts = [(await call(client, "read_artifact", url=one["url"]))["text"] for one in found]
            assert ["needle" in text for text in texts] == [True] * 4
            for text in ("meta needle", "needle before", "last needle"):
                assert len((await call(client, "search", text=text))["found"]) == 1, text

    run(test)


@pytest.mark.parametrize("escape", ["\\n", '\\"', "\\u0041", "\\u00e4", "\\\\", "\\x", "\\U0"])
def test_searching_what_is_full_of_escapes(thread: eventq.Thread, escape: str) -> None:
    """An escape costs no call: a piece of thousands takes as many as one of a few."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    thread.artifacts.put((f"{escape}k" * 40_000 + 'say \\"needle\\"').encode())
    given: Any = {"text": 'say "needle"', "cursor": None, "limit": 10}
    searching.found_in(thread, given, 16_384, 60)  # imports what it needs
    sys.setprofile(count)
    try:
        found = searching.found_in(thread, given, 16_384, 60)
    finally:
        sys.setprofile(None)
    assert [one["line"] for one in found["found"]] == [1]
    assert calls < 5_000


ODD = ["\\", "\\\\", '"', "u", "U", "0041", "n", "\n", "x", "\u00e9", "\\u00E4", "\\ud83d\\ude00"]


def test_what_escapes_spell(thread: eventq.Thread) -> None:
    """What a text spells as JSON is found with the line of the text, whatever is beside it."""
    rng = random.Random(7)
    lines: dict[str, int] = {}
    with thread.write():
        for _ in range(500):
            odd = "".join(rng.choices(ODD, k=rng.randrange(12)))
            spelled = "\n" + odd.rstrip("\\") + '.line\\nneedle \\u00e4\\"\\t'
            lines[thread.artifacts.put(spelled.encode()).url] = spelled.count("\n") + 1
    given: Any = {"text": 'line\nneedle ä"\t', "cursor": None, "limit": 1_000}
    found = searching.found_in(thread, given, 1 << 20, 60)["found"]
    assert {one["url"]: one["line"] for one in found} == lines


def test_searching_in_pieces(
    connect: Connect, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is long is read in pieces, one a call if need be, and none hides what it cuts."""
    monkeypatch.setattr(searching, "PIECE", 10)
    for n in range(40):
        thread.artifacts.put(b"line\n" * (n // 5) + b"." * n + b"\\u00e4needle" + b"\n." * 9)
    thread.outputs.put("long", "x" * 100_000 + "äneedle")

    async def test() -> None:
        async with connect() as client:
            found = await every(client, "search", "found", text="äneedle")
            assert [one["line"] for one in found] == [n // 5 + 1 for n in range(40)] + [1]
            monkeypatch.setattr(searching, "PIECE", 30_000)
            monkeypatch.setattr(tools, "SECONDS", 0)
            again = await every(client, "search", "found", text="äneedle")
            assert [one["url"] for one in again] == [one["url"] for one in found]
            for cursor in ("artifacts:1", "outputs:0/0/0/x/", "artifacts:0/0/0/0", "other:1", ""):
                assert "cursor" in await refusal(client, "search", text="x", cursor=cursor)

    run(test)


def test_a_filter_that_matches_rarely(
    connect: Connect, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest matches are found window by window; where that takes long, `earlier` goes on."""
    monkeypatch.setattr(tools, "WINDOW", 7)
    thread.push_many(("self", "rare" if n in {3, 50, 51} else "note", "x") for n in range(1, 101))

    async def test() -> None:
        async with connect() as client:
            where = "type = 'rare'"
            found = await call(client, "read", filter=where, limit=2)
            assert [one["id"] for one in found["events"]] == [50, 51]
            assert (await call(client, "read", filter="type = 'none'"))["events"] == []
            monkeypatch.setattr(tools, "SECONDS", 0)
            assert await backwards(client, where) == [3, 50, 51]

    run(test)


def test_a_search_that_takes_long_goes_on(
    connect: Connect, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends after a while, and the next one goes on where it was."""
    monkeypatch.setattr(tools, "SECONDS", 0)
    thread.push_many(("self", "note", f"needle {n % 3}") for n in range(20))
    thread.contexts.create("memory").append("needle 1")

    async def test() -> None:
        async with connect() as client:
            found = await every(client, "search", "found", text="needle 1")
            assert [one["event"] for one in found[:-1]] == [*range(20, 0, -3)]
            assert found[-1]["turn"] == 1

    run(test)


def test_recalling(connect: Connect, thread: eventq.Thread) -> None:
    """`recall` gives the last turns, those before, those from a depth on, and as they were."""
    branch = thread.contexts.create("memory")
    turns = [branch.append(f"turn {n} " + "x" * 500).turn_id for n in range(100)]

    async def test() -> None:
        async with connect() as client:
            found = await call(client, "recall", last=3)
            assert [one["turn"] for one in found["turns"]] == turns[-3:]
            assert found["next"] == {"before": turns[-3], "last": 3}
            rising = await every(client, "recall", "turns", **{"from": 0, "last": 50})
            assert [one["turn"] for one in rising] == turns
            falling: list[int] = []
            given: dict[str, Any] = {"last": 50}
            while True:
                found = await call(client, "recall", **given)
                assert size(found) <= ROOM
                falling = [one["turn"] for one in found["turns"]] + falling
                if not found["more"]:
                    break
                given = found["next"]
            assert falling == turns
            as_of = found["as_of"]
            await asyncio.to_thread(branch.patch, turns[-1], "patched")
            await asyncio.to_thread(branch.tombstone, turns[-2])
            last = (await call(client, "recall", last=2))["turns"]
            assert [one["text"] for one in last] == ["(hidden)", "patched"]
            last = (await call(client, "recall", last=1, as_of=as_of))["turns"]
            assert last[0]["text"].startswith("turn 99")
            assert "`status` has" in await refusal(client, "recall", context="nobody")

    run(test)


def test_a_turn_that_is_no_text(connect: Connect, thread: eventq.Thread) -> None:
    """Bytes are named, not shown."""
    thread.contexts.create("memory").append(b"\xff\xfe" * 10)

    async def test() -> None:
        async with connect() as client:
            (one,) = (await call(client, "recall"))["turns"]
            assert one["text"] == "binary, 20 bytes"
            assert one["payload"].startswith("blob:blake3:")

    run(test)


def test_asking_a_person(connect: Connect, path: str) -> None:
    """The answer comes with the call that waits, or with a later one, also of another server."""

    async def test() -> None:
        async with connect() as client:
            asked = await call(
                client, "ask_person", question="Ship?", options=["yes", "no"], must_choose=True,
                seconds=0, key="k",
            )  # fmt: skip
            again = await call(client, "ask_person", question="Ship?", options=["yes", "no"],
                               must_choose=True, seconds=0, key="k")  # fmt: skip
            shown = {"id": 1, "status": "open", "next": {"id": 1, "seconds": 0}}
            assert asked == again == shown
            waits = asyncio.create_task(call(client, "ask_person", id=1, seconds=40))
            await call(client, "status")
            with eventq.open(path) as person:
                with pytest.raises(eventq.InputError):
                    person.answer(1, "maybe")
                person.answer(1, "yes", source="self")
            assert (await waits)["answer"] == "yes"
            await call(client, "ask_person", question="And now?", seconds=0, context="main")
        with eventq.open(path) as person:
            assert person.question(3).context == "main"
            person.answer(3, "go on", source="self")
        async with connect() as client:  # it was restarted
            found = await call(client, "ask_person", id=3)
            assert (found["status"], found["answer"]) == ("answered", "go on")
            assert "either" in await refusal(client, "ask_person")
            given = {"question": "Pay?", "options": ["yes"], "by_person": True, "seconds": 0}
            assert "must_choose" in await refusal(client, "ask_person", **given)
            asked = await call(client, "ask_person", **given, must_choose=True)
            assert asked["next"] == {"id": asked["id"], "seconds": 0}
            with eventq.open(path) as person:
                assert person.question(asked["id"]).by_person
            assert "`status` lists" in await refusal(client, "ask_person", id=99)

    run(test)


def test_reading_artifacts(connect: Connect, thread: eventq.Thread) -> None:
    """Lines of artifacts and outputs come by pages, whole ones as long as they fit."""
    lines = [f"line {n} " + "y" * (n % 100) for n in range(1, 2_001)]
    thread.artifacts.put("\n".join(lines).encode() + b"\n")
    thread.outputs.put("report", json.dumps({"a": {"b": [1, 2]}}))

    async def test() -> None:
        async with connect() as client:
            shown, given = "", {"url": "artifact://0"}
            while True:
                found = await call(client, "read_artifact", **given)
                assert size(found) <= ROOM
                assert found["text"].endswith("\n")
                shown += found["text"]
                if not found["more"]:
                    break
                given = found["next"]
            assert shown.splitlines() == lines
            found = await call(client, "read_artifact", url="artifact://0", line=10, lines=2)
            assert found["text"].splitlines() == lines[9:11]
            assert found["next"] == {"url": "artifact://0", "line": 12, "lines": 2}
            found = await call(client, "read_artifact", url="agent://0-report/a/b")
            assert json.loads(found["text"]) == [1, 2]
            assert "agent" in await refusal(client, "read_artifact", url="file:///etc/passwd")

    run(test)


@settings(max_examples=12, deadline=None)
@given(
    texts=st.lists(
        st.text("ab\n\x00ä😀", max_size=40).map(lambda text: text * 60), min_size=1, max_size=12
    ),
    limit=st.integers(1, 14),
)
def test_following_next_returns_everything_once(texts: list[str], limit: int) -> None:
    """Whatever the texts, `next`, `earlier` and `rest` lead to all of each, and to nothing twice.

    Each result fits, also the smallest that can be asked for.
    """
    room = 2_048

    async def whole(client: Client, tool: str, item: dict[str, Any], name: str) -> str:
        text: str = item[name]
        more = item.get("rest")
        while more:
            found = await call(client, tool, **more)
            assert size(found) <= room
            (item,) = found[{"read": "events", "recall": "turns"}[tool]]
            text, more = text + item[name], item.get("rest")
        return text

    async def test() -> None:
        async with on_object(path, room=room) as client:
            asked: Any
            for tool, items, name, start, key in (
                ("read", "events", "content", {"after": 0, "limit": limit}, "next"),
                ("read", "events", "content", {"limit": limit}, "earlier"),
                ("recall", "turns", "text", {"from": 0, "last": limit}, "next"),
                ("recall", "turns", "text", {"last": limit}, "next"),
            ):
                asked = {**start}
                shown: list[str] = []
                while True:
                    found = await call(client, tool, **asked)
                    assert size(found) <= room
                    some = [await whole(client, tool, one, name) for one in found[items]]
                    is_back = key == "earlier" or ("from" not in asked and tool == "recall")
                    shown = some + shown if is_back else shown + some
                    if not (found["more"] if key == "next" else "earlier" in found):
                        break
                    asked = found[key]
                assert shown == texts
            asked, text = {"url": "artifact://0"}, ""
            while True:
                found = await call(client, "read_artifact", **asked)
                assert size(found) <= room
                text += found["text"]
                if not found["more"]:
                    break
                asked = found["next"]
            assert text == "".join(texts)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "thread")
        eventq.init(path)
        with eventq.open(path) as thread:
            thread.push_many(("self", "note", text) for text in texts)
            branch = thread.contexts.create("memory")
            for text in texts:
                branch.append(text)
            thread.artifacts.put("".join(texts).encode())
        run(test)


def test_an_artifact_that_is_written(connect: Connect, thread: eventq.Thread) -> None:
    """What is not whole says so, and `next` reads on what comes later."""
    writer = thread.artifacts.allocate("make")

    async def test() -> None:
        async with connect() as client:
            given: dict[str, Any] = {"url": "artifact://0"}
            shown = ""
            for piece in (b"", b"one\ntw", b"o\n", b"three"):
                await asyncio.to_thread(writer.write, piece)
                await asyncio.to_thread(writer.tick)
                found = await call(client, "read_artifact", **given)
                shown += found["text"]
                assert (found["more"], "is open" in found["incomplete"]) == (False, True)
                given = found["next"]
            await asyncio.to_thread(writer.seal)
            found = await call(client, "read_artifact", **given)
            assert (shown + found["text"], "incomplete" in found) == ("one\ntwo\nthree", False)

    run(test)


def test_long_names_and_answers(connect: Connect, thread: eventq.Thread) -> None:
    """Types, names, answers and errors keep the bound as well; an answer is read on by `rest`."""
    thread.push("external:a:b:c:d:e:f" + "s" * 60_000, "t" * 60_000, "x", "u" * 60_000)
    thread.ask("What?")
    thread.answer(2, "a" * 50_000)

    async def test() -> None:
        async with connect() as client:
            given: Any
            for tool, given in (
                ("read", {}), ("search", {"text": "x"}), ("status", {}), ("ask_person", {"id": 2}),
            ):  # fmt: skip
                assert size(await call(client, tool, **given)) <= ROOM
            given, answer = {"id": 2}, ""
            while given:
                found = await call(client, "ask_person", **given)
                answer += found["answer"]
                given = found.get("rest", {})
            assert answer == "a" * 50_000
            for given in ({"context": "c" * 5_000}, {"context": "c" * 5_000, "before": 3}):
                assert len(await refusal(client, "recall", **given)) < 1_500

    run(test)


def test_the_status_has_tokens(connect: Connect, thread: eventq.Thread, tmp_path: Path) -> None:
    """Those of the last day, or of a context, a session with its subagents, or a run; bounded."""
    agent = claude(9, "r9", 2_000, isSidechain=True, agentId="x")
    load(thread, tmp_path, [*CLAUDE, agent])  # of another day
    thread.contexts.create("chat").append(said(5))
    run_id = thread.runs.start("w", "p", label="build").id
    for n in range(30):
        meta = {"usage": {"output_tokens": 30 - n}, "model": f"{n}-" + "\x1b" * 190}
        thread.runs.get(run_id).step("a", meta, f"{n}")

    async def test() -> None:
        async with connect() as client:
            found = await call(client, "status")
            assert size(found) <= ROOM
            used = found["usage"]
            assert (used["out"], used["responses"], used["is_all"]) == (470, 31, True)
            assert [one["out"] for one in used["models"][:2]] == [30, 29]
            assert len(used["models"]) < 9
            used = (await call(client, "status", context="s"))["usage"]
            assert (used["out"], used["subagents"]) == (46, {"out": 2_000})
            for name, out in (("chat", 5), ("build", 465), (str(run_id), 465)):
                assert (await call(client, "status", context=name))["usage"]["out"] == out
            assert "`status` has" in await refusal(client, "status", context="nobody")

    run(test)


def test_a_key_that_was_used_for_something_else(connect: Connect) -> None:
    """What would be lost is refused."""

    async def test() -> None:
        async with connect() as client:
            await call(client, "push", type="note", content="one", key="k")
            assert "key" in await refusal(client, "push", type="note", content="two", key="k")

    run(test)


def test_hostile_arguments(connect: Connect, path: str) -> None:
    """What is wrong, long, or made to break out is refused with a sentence, or stored as it is."""
    long = "z" * (10 << 20)
    controls = "".join(map(chr, range(32))) + "\x7f\u2028\u202e"

    async def test() -> None:
        async with connect() as client:
            made = await call(client, "push", type="note", content=long)
            (one,) = (await call(client, "read"))["events"]
            assert (one["id"], one["length"]) == (made["id"], len(long))
            await call(client, "remember", text=long)
            await call(client, "remember", text=controls)
            assert (await call(client, "recall", last=1))["turns"][0]["text"] == controls
            await call(client, "push", type="note", content=controls)
            assert (await call(client, "read", limit=1))["events"][0]["content"] == controls
            assert "1,000 bytes" in await refusal(client, "search", text=long)
            bomb = (
                "length(" + "replace(" * 8 + "hex(zeroblob(1000000))" + ", 'a', 'bb')" * 8 + ") > 0"
            )
            assert await refusal(client, "read", filter=bomb)
            assert await refusal(client, "read", filter="1=1; DROP TABLE events")
            assert await refusal(client, "read", filter="(" * 10_000)
            assert "no member" in await refusal(client, "read", nonsense=1)
            assert "limit" in await refusal(client, "read", limit="many")
            assert "limit" in await refusal(client, "read", limit=0)
            assert "after" in await refusal(client, "read", after=-1)
            assert "content" in await refusal(client, "push", type="note", content={"a": 1})
            assert "content" in await refusal(client, "push", type="note", content="\ud800")
            assert await refusal(client, "remember", text="x", context="../up\n")
            assert "letter" in await refusal(client, "remember", text="x", context="7")
            assert "options" in await refusal(client, "ask_person", question="?", must_choose=True)
            assert await refusal(client, "fork", context="memory", name="")
            assert (await call(client, "status"))["events"]["count"] == 2

    run(test)


def test_twenty_clients(path: str, serve: Any) -> None:
    """Twenty clients at once push to one thread and read it: each event is there once."""
    from tests.mcp.conftest import mounted

    url = mounted(serve, path)

    async def work(number: int) -> None:
        async with on_http(url, MODES[number % 3]) as client:
            for n in range(3):
                await call(client, "push", type="note", content=f"{number}:{n}")
                await call(client, "remember", text=f"{number}:{n}", context="shared")

    async def test() -> None:
        await asyncio.gather(*map(work, range(20)))

    run(test)
    wanted = {f"{number}:{n}" for number in range(20) for n in range(3)}
    with eventq.open(path) as thread:
        assert {event.content for event in thread.peek(limit=None)} == wanted
        assert thread.last_id() == 60
        turns = thread.contexts.get("shared").last(300)
        assert {(one.payload or b"").decode() for one in turns} == wanted
        assert thread.check() == []
