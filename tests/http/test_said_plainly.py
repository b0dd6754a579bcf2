"""Words and states of pages: one word for one thing, and nothing that is not known."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http.pages import output_pages, talk_search, wording
from eventq.http.tokens import Token
from eventq.serving.principal import READING
from tests.http.test_event_view import words as of_event
from tests.http.test_odd_pages import damage
from tests.http.test_page_words import words
from tests.http.test_pages import Text, client, messages, seen  # noqa: F401 (client: a fixture)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import Serve

AT = "/t/thread"


def test_runs_have_one_word_on_every_page(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those under way, those that ended; a run that asks waits for you, one may be suspended."""
    runs = {name: thread.runs.start("solve", "x", label=name) for name in "abcd"}
    thread.ask("Go on?", run=runs["a"].id)
    runs["b"].suspend()
    runs["d"].cancel()
    assert "runs3 under way, 1 ended" in words(seen(client, f"{AT}/health"))
    for page in ("/", "/branches", "/runs"):
        shown = words(seen(client, AT + page))
        for word in ("waits for you", "suspended", "works"):
            assert word in shown, (page, word)
    monkeypatch.setattr(wording, "FRESH", 0)
    for page in ("/", "/branches", "/runs"):
        shown = words(seen(client, AT + page))
        assert "quiet" in shown, page
        assert "works" not in shown, page


ABSENT = ("events/99", "contexts/none", "turns/99", "runs/none", "consumers/none", "output/9",
          "published/none", "nope", "contexts/none/nope", "do/nope")  # fmt: skip


@pytest.mark.parametrize("at", ABSENT)
def test_what_is_not_there_leaves_the_bar(client: httpx.Client, at: str) -> None:
    """A page that there is not is still one of its thread, with its name and its views."""
    found = client.get(f"{AT}/{at}")
    page = Text(found.text)
    assert found.status_code in (404, 405)
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert {f"{AT}/", f"{AT}/live", f"{AT}/health"} <= {*page.values("a", "href")}
    assert "Back to thread" in page.text
    assert ": thread · eventq" in page.text
    assert ("page" in page.values("a", "aria-current")) == ("/" in at and "nope" not in at)


def test_threads_are_there_to_choose(serve: Serve, tmp_path: Path) -> None:
    """On the page of an error, too: also where a thread has gone, or none is of that name."""
    paths = [eventq.init(str(tmp_path / name)) for name in ("one", "two")]
    client = serve(*paths)
    for at in ("/t/one/events/9", "/t/none/", "/nope"):
        found = client.get(at, headers={"accept": BROWSER})
        assert found.status_code == 404
        assert {"/t/one/", "/t/two/"} <= {*Text(found.text).values("a", "href")}
    shutil.rmtree(paths[0])
    gone = Text(client.get("/t/one/live").text)
    assert {"/t/one/health", "/t/two/"} <= {*gone.values("a", "href")}
    assert "the thread is gone" in gone.text


def test_the_bar_is_for_those_who_may_read(serve: Serve, path: str) -> None:
    """Whoever may only do that sees it when refused; of whom nothing is known is told of none."""
    client = serve(path, tokens=[Token("looks", "t-read", READING)])
    client.headers["authorization"] = "Bearer t-read"
    for origin, bar in ((str(client.base_url).rstrip("/"), True), ("http://other.test", False)):
        found = client.post(f"{AT}/do/check", headers={"origin": origin})
        assert found.status_code == 403
        assert (f"{AT}/health" in Text(found.text).values("a", "href")) == bar


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        (BROWSER, True), ("*/*", False), ("application/json", False), ("", False),
        ("text/html;q=0.1, application/json", False), ("application/json;q=0.5,text/html", True),
        ("text/html;q=x", False), ("text/html;q=0", False),
    ],
)  # fmt: skip
def test_a_browser_is_answered_with_a_page(
    serve: Serve, path: str, accept: str, *, is_page: bool
) -> None:
    """Of what is nowhere; a program has its problem as JSON."""
    found = serve(path).get("/nope", headers={"accept": accept})
    assert found.status_code == 404
    kind = "text/html; charset=utf-8" if is_page else "application/problem+json"
    assert found.headers["content-type"] == kind
    assert ("there is no such page" in found.text) == is_page


def test_there_is_no_page_of_the_interface_for_programs(serve: Serve, path: str) -> None:
    """Whatever a program says that it takes, such as one of Java: an error is JSON there."""
    client = serve(path)
    for at in ("/api/nope", "/api", "/api/threads/thread/nope", "/api/threads/none"):
        found = client.get(at, headers={"accept": BROWSER})
        assert found.status_code == 404
        assert found.headers["content-type"] == "application/problem+json"


def of_chat(role: str, text: str) -> str:
    """Return a message of a chat."""
    return json.dumps({"role": role, "content": text})


def test_branches_that_begin_alike_are_told_apart(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """By what follows where they differ; by their names where nothing does; once only if alike."""
    main = thread.contexts.create("main")
    main.append(of_chat("user", "Hello"))
    for name, answer in (("main", "First answer"), ("b", "Second answer"), ("c", "Same"),
                         ("d", "Same"), ("e", "")):  # fmt: skip
        one = main if name == "main" else main.fork(at=1, name=name)
        one.append(of_chat("user", "Mend the build, please, as it is" if name != "e" else "No"))
        one.append(of_chat("assistant", answer))
    text = client.get(f"{AT}/contexts/main").text
    parted = words(Text(text.split('class="branch"')[1].split("</ul>")[0]))
    start = "Mend the build, please,… \u203a "
    for shown in (f"this branch {start}First answer 2 turns", f"{start}Second answer 2 turns",
                  f"c: {start}Same 2 turns", f"d: {start}Same 2 turns", "No 2 turns"):  # fmt: skip
        assert shown in parted
    beside = words(Text(text.split("<h2>Branches")[1]))
    for shown in (f"{start}Second answer", f"c: {start}Same", f"d: {start}Same"):
        assert shown in beside


def test_a_dropped_letter_is_not_said_to_be_done(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Nobody keeps whether an event was handled or dropped, so neither is claimed."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push("self", "note", "x")
    thread.settle(dead=[one.token for one in thread.claim("w")], error="no")
    thread.drop_dead([1], "w")
    page = of_event(client, 1)
    assert "Who reads it 1 finished" in page
    assert "w finished" in page
    assert (
        "Finished: handled, acked, or dropped as a dead letter; which of these is not recorded."
        in page
    )
    assert "1 finished" in seen(client, f"{AT}/live").values("span", "title")


def test_what_is_said_in_plain_turns_and_in_steps(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Is found by the filter and counted; what a tool or nobody says is not."""
    main = thread.contexts.create("main")
    for text, type_id in (("Plain words", ""), ("A note", "note"), ("Printed", "tool")):
        main.append(eventq.NewTurn(text, type_id))
    main.append('{"size": 1}')
    run = thread.runs.start("solve", "a task")
    run.step("coder", content="It is mended")
    run.step("tester", {"n": 1})
    text = messages(client, f"{AT}/contexts/main?only=said")
    assert "Plain words" in text
    assert "A note" in text
    assert "Printed" not in text
    assert "size" not in text
    assert "2 messages" in words(seen(client, f"{AT}/contexts/main"))
    at = f"{AT}/contexts/{run.id}"
    text = messages(client, f"{at}?only=said")
    assert "It is mended" in text
    assert "tester" not in text
    assert "1 turn with “mended”" in words(seen(client, f"{at}?q=mended"))
    run.end(0, "It is over")
    text = messages(client, at)
    assert " endstep" in text
    assert "__end__" not in text


def test_calls_whose_results_were_in_the_look_before(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Are found with them: a look goes up, and a result stands below its call."""
    main = thread.contexts.create("main")
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make all"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "broken", "is_error": True}
    with thread.write():
        main.append(json.dumps({"role": "assistant", "content": [call]}))
        main.append(json.dumps({"role": "user", "content": [result]}))
        for number in range(talk_search.FOUND - 1):
            main.append(of_chat("user", f"{number}"))
    monkeypatch.setattr(talk_search, "SEARCH_SECONDS", -1)
    for only in ("failed", "tools"):
        at = f"{AT}/contexts/main?only={only}"
        assert "make all" not in messages(client, at)
        found = messages(client, f"{at}&before=2")
        assert "make all" in found
        assert "broken" in found


def test_a_guest_reads_a_sentence_of_what_is_damaged(client: httpx.Client, path: str) -> None:
    """On the page of a turn; not what programmers are told of the class of its error."""
    with eventq.open(path) as thread:
        thread.contexts.create("main").append(of_chat("user", "number-2"))
    damage(path, "number-2")
    with httpx.Client(base_url=client.base_url, verify=False) as guest:
        found = guest.get(f"{AT}/turns/1")
    assert found.status_code == 500
    assert "what is stored here is damaged, and cannot be shown" in found.text


def test_the_newest_of_many_versions(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is the one that lists lead to; an output lists some, the newest first, and leads to others."""
    monkeypatch.setattr(output_pages, "LISTED", 3)
    run = thread.runs.start("solve", "x")
    for outputs in (thread.outputs, thread.scope(run.id).outputs):
        for name in "ab":
            one = outputs.put(name, "1").output_id
            for number in range(2, 30):
                outputs.publish(one, f"{number}")
    found = {*seen(client, f"{AT}/output").values("a", "href")}
    assert {f"{AT}/published/{one}?version=29" for one in ("0-a", "1-b")} <= found
    links = [one or "" for one in seen(client, f"{AT}/runs/{run.id}").values("a", "href")]
    assert [one for one in links if "published" in one] == [
        f"{AT}/published/{one}?context={run.id}&version=29" for one in ("0-a", "1-b")
    ]
    at, listed = f"{AT}/published/0-a?version=29", []
    while at:
        page = seen(client, at)
        links = [one or "" for one in page.values("a", "href")]
        listed += [one for one in links if "published/0-a" in one and "29" not in one]
        assert "version 29 of 29" in page.text
        at = next((f"{AT}/published/0-a{one}" for one in links if "before=" in one), "")
    assert listed == [
        *(f"{AT}/published/0-a?version={n}" for n in range(28, 1, -1)), f"{AT}/published/0-a"
    ]  # fmt: skip
    first = seen(client, f"{AT}/published/0-a")
    assert "The newest, version 29" in first.text
    assert f"{AT}/published/0-a?version=29" in first.values("a", "href")
    assert seen(client, f"{AT}/published/0-a?before=0").text


def test_steps_are_read_as_memory_allows(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some MiB of contents at once, on the page of a run and elsewhere; each step has its own."""
    run = thread.runs.start("solve", "x")
    texts = [f"{number % 5} {'long ' * 300_000}" for number in range(6)]  # one stands there twice
    for text in texts:
        if text is texts[-1]:
            for number in range(6):
                run.attempt("coder", {}, f"try {number} {text}")
        run.step("coder", content=text, edge_prompt="go on")
    sizes, load = [0], type(thread.blobs).load

    def noting(blobs: Any, rows: Any) -> Any:
        rows = [*rows]
        sizes.append(sum(row.size for row in rows))
        return load(blobs, rows)

    monkeypatch.setattr(type(thread.blobs), "load", noting)
    assert all(f"{text[:9]}" in seen(client, f"{AT}/runs/{run.id}").text for text in texts)
    assert "What the model saw" in seen(client, f"{AT}/runs/{run.id}?step=6").text
    assert [step.content for step in run.replay()] == texts
    assert run.read(2_000_000).steps == 1
    assert max(sizes) < 7_000_000
