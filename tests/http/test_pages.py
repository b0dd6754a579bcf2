"""The pages: what they show without a script, what forms do, and who may see and use them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http.pages import ansi, output_pages, wording
from eventq.http.pages.markdown import html
from eventq.system.environment import user_name
from tests.http.conftest import TOKEN
from tests.servers import fresh

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import Serve

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"`{{1234567*89}}"


class Text(HTMLParser):
    """The tags of a page, its texts, and its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, tag: str, name: str) -> list[str | None]:
        """Return an attribute of all tags of a kind that have it."""
        return [found[name] for kind, found in self.tags if kind == tag and name in found]


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a browser that came in through a link."""
    client = serve(path)
    del client.headers["authorization"]
    link = client.running.server.link()  # type: ignore[attr-defined]
    assert client.get(link).status_code == 303
    return client


def seen(client: httpx.Client, at: str) -> Text:
    """Return a page that is shown."""
    found = client.get(at)
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    return Text(found.text)


def messages(client: httpx.Client, at: str) -> str:
    """Return the text of the messages of a conversation, without what stands beside them."""
    found = client.get(at)
    assert found.status_code == 200, found.text
    return " ".join(Text(found.text.split('id="context"')[1]).text.split())


def send(
    client: httpx.Client, action: str, page: str = "/t/thread/", **form: Any
) -> httpx.Response:
    """Send the form of a page."""
    csrf = seen(client, page).values("input", "value")[0]
    headers = {"referer": str(client.base_url).rstrip("/") + page}
    return client.post(f"/t/thread/do/{action}", data={"csrf": csrf, **form}, headers=headers)


def test_calm_and_since_when(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whoever is not needed is told so."""
    assert "Nobody needs you: there is no event yet" in seen(client, "/t/thread/").text
    thread.push("self", "note", "x")
    page = seen(client, "/t/thread/")
    assert "Nobody needs you: the last event came" in page.text
    assert thread.last(1)[0].created_at in page.values("time", "datetime")


def test_who_needs_a_person(client: httpx.Client, thread: eventq.Thread) -> None:
    """Questions with their answers, dead letters; and what each context said last."""
    source = "internal:dm:coder:main"
    thread.ask("Deploy?", options=("yes", "no"), approval=True, source=source, run=7)
    asked = thread.ask("Which name?", options=("a",))
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push("self", "note", "x")
    thread.settle(dead=[one.token for one in thread.claim("w", 9)], error="broken")
    thread.contexts.create("main").append("said last")
    page = seen(client, "/t/thread/")
    assert "3 need you" in page.text
    for text in (
        "Deploy?",
        "Which name?",
        "3 events failed for good",
        "3 × broken",
        "coder",
        "in run 7",
        "said last",
    ):
        assert text in page.text
    assert {"yes", "no", "a"} <= {*page.values("button", "value")}
    done = send(client, "answer", id=asked.question_id, text="mine")
    assert (done.status_code, done.headers["location"]) == (303, "/t/thread/")
    assert thread.question(asked.question_id).answer == "mine"
    found = thread.question(asked.question_id)
    assert (found.answered_by, found.answered_via) == (user_name(), "page")
    send(client, "drop", consumer="w", letters=3, died_by=9**15)
    send(client, "answer", id=1, text="yes")
    assert "Nobody needs you" in seen(client, "/t/thread/").text


def test_consumers_and_what_is_done_to_them(client: httpx.Client, thread: eventq.Thread) -> None:
    """Pause, go on, replay, try again one or all."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "note", f"{n}") for n in range(3)])
    at = "/t/thread/consumers/w"
    assert "w" in seen(client, "/t/thread/consumers").text
    assert send(client, "pause", at, consumer="w").headers["location"] == at
    assert "paused" in seen(client, at).text
    send(client, "resume", at, consumer="w")
    assert not thread.status().consumers[0].paused
    thread.settle(dead=[one.token for one in thread.claim("w", 9)], error="it broke")
    assert "it broke" in seen(client, at).text
    send(client, "retry", at, consumer="w", event=2)
    assert [one.event_id for one in thread.dead_letters("w")] == [1, 3]
    send(client, "retry", at, consumer="w", letters=2, died_by=9**15)
    assert [*thread.dead_letters("w")] == []
    thread.settle([one.token for one in thread.claim("w", 9)])
    send(client, "replay", at, consumer="w", id=2)
    assert [one.event.id for one in thread.claim("w", 9)] == [2, 3]
    assert client.get("/t/thread/consumers/none").status_code == 404


def test_charts_of_what_consumers_did(client: httpx.Client, thread: eventq.Thread) -> None:
    """With numbers, on both pages, once something was done in a minute."""
    thread.subscribe("w")
    history = client.running.server.threads["thread"].history  # type: ignore[attr-defined]
    for number in range(4):
        thread.push_many([("self", "note", "x")] * (number + 1))
        thread.settle(thread.claim("w", number + 1))
        history.add(thread.status())
    assert "none in the last" in seen(client, "/t/thread/consumers").text
    assert "Attempts: 10, at most" in client.get("/t/thread/consumers/w").text


def test_health(client: httpx.Client, thread: eventq.Thread) -> None:
    """Sizes, and a check that is made when it is asked for."""
    assert "not since the server started" in seen(client, "/t/thread/health").text
    send(client, "check", "/t/thread/health")
    assert "no fault" in seen(client, "/t/thread/health").text


def test_branches(client: httpx.Client, thread: eventq.Thread) -> None:
    """Lanes that leave each other, with a dot for each turn; runs under way, and sessions."""
    main = thread.contexts.create("main")
    for n in range(5):
        main.append(eventq.NewTurn(f"turn {n}", "user" if n % 2 else "tool"))
    fork = main.fork(at=2, name="other")
    fork.append("apart")
    thread.runs.start("solve", "a task", label="build").step("coder", content="a step")
    page = seen(client, "/t/thread/branches")
    assert len([one for one in page.values("li", "class") if one == "lane"]) == 3
    assert sum(str(d).count("h0") for d in page.values("path", "d")) == 5 + 1 + 2
    assert {"/t/thread/contexts/1", "/t/thread/contexts/2"} <= {*page.values("a", "href")}
    assert "coder" not in page.text
    assert "solve" in page.text
    context = messages(client, "/t/thread/contexts/other")
    assert "apart" in context
    assert context.index("turn 1") < context.index("apart")
    assert "turn 4" not in context
    assert "turn 2" in seen(client, "/t/thread/contexts/main?depth=2").text
    shown = seen(client, "/t/thread/turns/2")
    assert "turn 1" in shown.text
    assert {"/t/thread/turns/1", "/t/thread/turns/3"} <= {*shown.values("a", "href")}
    assert {"/t/thread/turns/6"} <= {*shown.values("a", "href")}
    between = seen(client, "/t/thread/diff?a=main&b=other")
    assert all(text in between.text for text in ("apart", "turn 4", "3 turns of its own"))
    assert "turn 0" not in between.text
    run = seen(client, "/t/thread/runs/build")
    assert all(text in run.text for text in ("a task", "a step", "coder", "works"))
    thread.runs.get("build").end(0, "done")
    every = seen(client, "/t/thread/runs")
    assert all(text in every.text for text in ("build", "solve", "done"))
    made = send(client, "fork", "/t/thread/turns/2", context=1, turn=2, name="here")
    assert made.headers["location"] == f"/t/thread/contexts/{thread.contexts.get('here').id}"
    assert thread.contexts.head("here") == 2


def test_many_branches_are_drawn_in_bounds(client: httpx.Client, thread: eventq.Thread) -> None:
    """What is too deep for dots stands beyond; what is too many is left out, and said."""
    with thread.write():
        main = thread.contexts.create("main")
        for n in range(2_500):
            main.append(f"{n}")
        for n in range(0, 2_500, 10):
            main.fork(at=n + 1, name=f"f{n}")
        main.move(2_500)
    page = seen(client, "/t/thread/branches")
    assert page.values("li", "class").count("lane") == 200
    assert "251 contexts; the 200 that changed last are drawn" in page.text
    assert "one column is 16 turns" in page.text
    assert "2,340 beyond ›" in seen(client, "/t/thread/branches?zoom=160").text


def test_what_is_missing_in_a_session(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path
) -> None:
    """The page of a session says which lines are damaged; that of another context has no notes."""
    lines = (
        b'{"type":"session","id":"s"}',
        b'{"type":"message","id":"<a>","parentId":"gone"}',
        b"[",
    )
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    thread.sessions.import_file(str(tmp_path / "s.jsonl"))
    page = seen(client, "/t/thread/contexts/s")
    assert "line 2 begins a branch: its parent is not in the file" in page.text
    assert "line 3 is kept as raw text: not JSON, and not ended yet" in page.text
    thread.contexts.create("main").append("x")
    assert "notes" not in seen(client, "/t/thread/contexts/main").values("ul", "id")


def test_long_contexts_and_turns(client: httpx.Client, thread: eventq.Thread) -> None:
    """They are read page by page, and cut; bytes and images are shown as such."""
    main = thread.contexts.create("main")
    for n in range(210):
        main.append(f"turn {n} " + "x" * 300 * n)
    page = seen(client, "/t/thread/contexts/main")
    assert "turn 209" in page.text
    assert "turn 9 " not in page.text
    assert "x" * 20_001 not in page.text
    assert "more characters" in page.text
    older = next(one for one in page.values("a", "href") if one and "before" in one)
    assert "turn 9 " in seen(client, f"/t/thread/contexts/main{older}").text
    image = main.append(b"\x89PNG\r\n\x1a\n" + bytes(10))
    other = main.append(b"\xff\xfe\xfd")
    (source,) = seen(client, f"/t/thread/turns/{image.turn_id}").values("img", "src")
    assert client.get(source or "").headers["content-type"] == "image/png"
    assert "binary, 3 bytes" in seen(client, f"/t/thread/turns/{other.turn_id}").text
    thread.erasures.turn(1)
    assert "(erased)" in seen(client, "/t/thread/turns/1").text
    main.append("é" * 70_000)
    assert "é" * 1_000 in seen(client, f"/t/thread/turns/{other.turn_id + 1}").text


def test_output(client: httpx.Client, thread: eventq.Thread) -> None:
    """Artifacts by lines and text, those of sessions too, and what was published."""
    thread.artifacts.put(b"".join(b"line %d\n" % n for n in range(2_000)), "make")
    thread.contexts.create("s")
    thread.scope("s").artifacts.put(b"the session's\n", "tool")
    thread.outputs.put("Scout", "found")
    page = seen(client, "/t/thread/output")
    for text in ("make", "2,000", "session s", "0-Scout"):
        assert text in page.text
    assert "/t/thread/output/0" in page.values("a", "href")
    of_session = seen(client, "/t/thread/output?context=s")
    assert "/t/thread/output/0?context=s" in of_session.values("a", "href")
    first = seen(client, "/t/thread/output/0")
    assert all(text in first.text for text in ("1line 0", "500line 499"))
    assert "line 500" not in first.text
    assert "?offset=501" in first.values("a", "href")
    assert "line 1999" in seen(client, "/t/thread/output/0?offset=1501").text
    assert "the session's" in seen(client, "/t/thread/output/0?context=s").text
    found = seen(client, "/t/thread/output/0?text=line+199")
    assert [one for one in found.values("a", "href") if one and "#L" in one] == [
        f"?offset={n + 1}#L{n + 1}" for n in (199, *range(1990, 2000))
    ]
    assert client.get("/t/thread/output/7").status_code == 404
    with thread.artifacts.allocate("slow") as writer:
        writer.write(b"half a line")
        assert "being written" in seen(client, "/t/thread/output/1").text


def test_lines_that_are_very_long(client: httpx.Client, thread: eventq.Thread) -> None:
    """They are cut, those after them are shown next, and a text in them is found."""
    long = b"x" * 3_000_000 + b"needle" + b"y" * 2_000_000
    thread.artifacts.put(b"one\n" + long + b"\ntwo\nneedle\n")
    page = seen(client, "/t/thread/output/0")
    assert "?offset=3" in page.values("a", "href")
    assert "two" in seen(client, "/t/thread/output/0?offset=3").text
    found = seen(client, "/t/thread/output/0?text=needle")
    links = [one for one in found.values("a", "href") if one and "#L" in one]
    assert links == ["?offset=2#L2", "?offset=4#L4"]


def test_the_newest_of_many_artifacts(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found without reading those before them, which are on the pages before."""
    monkeypatch.setattr(output_pages, "LISTED", 3)
    for n in range(8):
        thread.artifacts.put(b"%d" % n)
        newest = f"/t/thread/output/{n}"  # also when there is one more than a page holds
        assert newest in seen(client, "/t/thread/output").values("a", "href")
    thread.artifacts.remove(6)
    at, found = "/t/thread/output", []
    while at:
        page = seen(client, at)
        rows = [one for one in page.values("a", "href") if one and "/output/" in one]
        found.append([one.rpartition("/")[2] for one in rows])
        older = [one for one in page.values("a", "href") if one and one.startswith("?before")]
        at = f"/t/thread/output{older[0]}" if older else ""
    assert found == [["7", "5", "4"], ["3", "2", "1"], ["0"]]


def test_nothing_becomes_markup(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whatever events, names, questions and errors say."""
    thread.push(EVIL, EVIL, EVIL)
    thread.ask(EVIL, options=(EVIL,))
    thread.contexts.create(EVIL).append(eventq.NewTurn(EVIL, EVIL))
    run = thread.runs.start(EVIL, EVIL, label=f"run {EVIL}")
    run.step(EVIL, meta={EVIL: EVIL}, content=EVIL)
    with thread.artifacts.allocate("tool") as writer:
        writer.write(EVIL.encode())
        writer.fail(EVIL)
    thread.outputs.put("Scout", EVIL)
    thread.subscribe("w", max_attempts=1, on_failure="dead", filter=f"type != '{EVIL[:8]}'")
    thread.settle(dead=[one.token for one in thread.claim("w", 9)], error=EVIL)
    evil = httpx.QueryParams({"filter": EVIL, "text": EVIL}), httpx.QueryParams({"text": EVIL})
    for at in (
        "", "live", f"live?{evil[0]}", f"live?{evil[1]}", "live?id=<script>", "consumers",
        "consumers/w", "consumers/<script>", "health", "<script>", "branches", "contexts/1",
        "turns/1", "diff?a=1&b=2", f"diff?{httpx.QueryParams({'a': EVIL, 'b': EVIL})}", "runs/2", "runs",
        "output", "output/0", f"output/0?{httpx.QueryParams({'text': EVIL})}",
    ):  # fmt: skip
        found = client.get(f"/t/thread/{at}")
        page = Text(found.text)
        assert all(src and src.startswith("/static/") for src in page.values("script", "src"))
        assert len([tag for tag, _ in page.tags if tag == "script"]) == len(
            page.values("script", "src")
        )
        assert not [tag for tag, _ in page.tags if tag == "img"]
        assert not [name for _, found in page.tags for name in found if name.startswith("on")]
        assert str(1_234_567 * 89) not in page.text
        policy = found.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy


def test_who_may_see_and_who_may_do(serve: Serve, path: str) -> None:
    """A link lets in once; a token too; on this machine all may look, and only they may act."""
    client = serve(path)
    del client.headers["authorization"]
    looks = seen(client, "/t/thread/")
    assert not looks.values("input", "name")
    assert client.post("/t/thread/do/check", data={"csrf": ""}).status_code == 401
    link = client.running.server.link()  # type: ignore[attr-defined]
    with httpx.Client(base_url=client.base_url) as other:
        let_in = other.get(link)
        cookie = let_in.headers["set-cookie"]
        assert re.fullmatch(
            r"eventq-\d+=[\w-]{40,}; Path=/; HttpOnly; SameSite=Lax; Max-Age=\d+", cookie
        )
        assert "Check now" in seen(other, "/t/thread/health").text
        assert other.post("/t/thread/do/check", data={"csrf": "x"}).status_code == 403
        event = {"content": "x"}
        refused = other.post("/api/threads/thread/events", json=event)
        assert (refused.status_code, "X-CSRF-Token" in refused.text) == (403, True)
        csrf = seen(other, "/t/thread/health").values("input", "value")[0]
        assert csrf
        pushed = other.post(
            "/api/threads/thread/events", json=event, headers={"x-csrf-token": csrf}
        )
        assert pushed.status_code == 201
        evil = {"origin": "https://evil.example"}
        assert (
            other.post("/t/thread/do/check", data={"csrf": csrf}, headers=evil).status_code == 403
        )
    assert client.get(link).status_code == 401
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    assert client.post("/login", data={"token": TOKEN}).status_code == 303
    assert "Check now" in seen(client, "/t/thread/health").text


def test_a_server_for_others_asks_for_its_token(serve: Serve, path: str) -> None:
    """Before anything is shown."""
    client = serve(path, listen="0.0.0.0:0", write=False)
    client.base_url = httpx.URL(str(client.base_url).replace("0.0.0.0", "127.0.0.1"))
    del client.headers["authorization"]
    for at in ("/", "/t/thread/", "/t/thread/live", "/changes"):
        found = client.get(at)
        assert (found.status_code, "Sign in" in found.text) == (401, True)
    assert client.get("/static/style.css").status_code == 200
    client.post("/login", data={"token": TOKEN})
    page = seen(client, "/t/thread/health")
    assert "Check now" not in page.text


def test_threads_together(serve: Serve, path: str, tmp_path: Path) -> None:
    """Whoever needs a person comes first; one that is gone is said."""
    other = eventq.init(tmp_path / "other")
    client = serve(path, other)
    with eventq.open(other) as thread:
        thread.ask("Now?")
    page = seen(client, "/")
    main = page.text[page.text.index("Threads") :]
    assert main.index("other") < main.index("thread")
    assert page.text.lstrip().startswith("(1) Now")
    assert {"/t/other/", "/t/thread/"} <= {*page.values("a", "href")}
    (tmp_path / "other").rename(tmp_path / "gone")
    page = seen(client, "/")
    assert "the thread is gone" in page.text
    assert str(tmp_path) not in page.text
    assert client.get("/t/other/").status_code == 404


def test_a_thread_in_postgresql(serve: Serve, postgres: str) -> None:
    """It has the pages of a thread in a directory."""
    url = fresh(postgres)
    client = serve(url)
    with eventq.open(url) as thread:
        thread.ask("Well?")
        thread.subscribe("w")
        thread.contexts.create("main").append("what was said")
    at = f"/t/{client.get('/api/threads').json()['threads'][0]['name']}"
    assert "Well?" in seen(client, f"{at}/").text
    for view in ("live", "consumers", "consumers/w", "health", "branches", "output"):
        seen(client, f"{at}/{view}")
    assert "what was said" in seen(client, f"{at}/turns/1").text


def test_a_page_hears_of_changes(client: httpx.Client, thread: eventq.Thread) -> None:
    """Also of those that push no event."""
    with client.stream("GET", "/changes?thread=thread") as found:
        lines = (one for one in found.iter_lines() if one)
        assert next(lines) == ": connected"
        thread.contexts.create("main")
        assert next(lines) == "data: changed"


@pytest.mark.parametrize("named", [False, True], ids=["url", "directory"])
def test_a_page_hears_of_changes_in_postgresql(
    serve: Serve, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Also of those of the memory; and when it listens, at once: a look is an hour away."""
    monkeypatch.setattr("eventq.serving.hub.SLOW_LOOK", 3600)
    url = fresh(postgres)
    (tmp_path / "thread.url").write_text(url)
    client = serve(str(tmp_path) if named else url)
    name = client.get("/api/threads").json()["threads"][0]["name"]
    with (
        eventq.open(url) as thread,
        client.stream("GET", f"/changes?thread={name}") as found,
    ):
        lines = (one for one in found.iter_lines() if one and one[0] != ":")
        thread.subscribe("w")
        assert next(lines) == "data: changed"
        context = thread.contexts.create("main")
        assert next(lines) == "data: changed"
        context.append("x")
        assert next(lines) == "data: changed"


def test_what_is_not_there(client: httpx.Client) -> None:
    """It is said on a page."""
    for at, status in (
        ("/t/none/", 404), ("/t/thread/none", 404), ("/static/none.js", 404),
        ("/static/..%2Fframe.py", 404), ("/open?key=x", 401),
    ):  # fmt: skip
        assert client.get(at).status_code == status
    assert client.post("/t/thread/live").status_code == 405
    assert client.head("/changes").status_code == 405
    assert client.head("/t/thread/").status_code == 200
    assert send(client, "none", "/t/thread/health").status_code == 404
    assert send(client, "resume", "/t/thread/health", consumer="none").status_code == 404


def test_forms_that_are_not_whole(client: httpx.Client, thread: eventq.Thread) -> None:
    """What is missing is said, and a Referer that is none leads to the first page."""
    thread.subscribe("w")
    for action in ("pause", "resume", "replay", "retry", "drop", "fork", "answer"):
        found = send(client, action, "/t/thread/health")
        assert (found.status_code, "<h1>Bad Request" in found.text) == (400, True)
    csrf = seen(client, "/t/thread/health").values("input", "value")[0]
    form = {"csrf": csrf, "consumer": "w"}
    for referer in ("http://[::1/x", "", "http://evil.example/t/thread/live", "http://"):
        found = client.post("/t/thread/do/pause", data=form, headers={"referer": referer})
        assert (found.status_code, found.headers["location"]) == (303, "/t/thread/")


def test_who_has_the_token_signs_in(serve: Serve, path: str) -> None:
    """Pages that only show something lead there; any token may be typed."""
    for token in (TOKEN, "\N{SNOWMAN} é"):
        client = serve(path, token=token)
        client.headers = httpx.Headers()
        assert "/login" in seen(client, "/t/thread/").values("a", "href")
        assert "token" in seen(client, "/login").values("input", "name")
        assert client.post("/login", data={"token": token}).status_code == 303
        page = seen(client, "/t/thread/health")
        assert "Check now" in page.text
        assert "/login" not in page.values("a", "href")
    reads = serve(path, token="", write=False)
    assert "/login" not in seen(reads, "/t/thread/").values("a", "href")


def test_a_look_at_a_link_does_not_use_it_up(serve: Serve, path: str) -> None:
    """Programs that show what a link leads to do so."""
    client = serve(path)
    link = client.running.server.link()  # type: ignore[attr-defined]
    assert client.head(link).status_code == 405
    assert client.get(link).status_code == 303


def test_replies_that_hold_a_secret_are_not_compressed(client: httpx.Client) -> None:
    """Their length would tell it."""
    found = client.get("/t/thread/health", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in found.headers
    assert client.get("/static/style.css").headers["content-encoding"] == "gzip"


def test_the_command(path: str, tmp_path: Path) -> None:
    """It prints a link that lets in one browser, and finds the threads of a folder, new ones too."""
    argv = [sys.executable, "-m", "eventq", "ui", "--all", str(tmp_path), "--no-browser"]
    with subprocess.Popen(
        [*argv, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        try:
            with httpx.Client(follow_redirects=True, timeout=60) as client:
                assert "Nobody needs you" in client.get(link).text
                assert httpx.get(link, timeout=60).status_code == 401
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_thread_that_cannot_be_read_hides_no_other(serve: Serve, tmp_path: Path) -> None:
    """It is left out, and so it is for `top`."""
    good = eventq.init(tmp_path / "good")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.db").write_bytes(b"no database" * 100)
    client = serve(place=str(tmp_path))
    assert [one["name"] for one in client.get("/api/threads").json()["threads"]] == ["good"]
    argv = [sys.executable, "-m", "eventq", "top", "--all", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "Nobody needs you" in done.stdout
    assert "left out" in done.stderr
    assert good


def test_pretty_is_bounded() -> None:
    """A page does not grow with an event."""
    shown = wording.pretty("x" * 10_000)
    assert len(shown) < 4_100
    assert "6,000 more characters" in shown
    assert wording.pretty("[1") == "[1"


SAID: list[Any] = [
    {"role": "user", "content": "Mend <b>it</b>"},
    {
        "role": "assistant", "model": "m-1", "id": "r", "usage": {"input_tokens": 1_500, "output_tokens": 20},
        "content": [
            {"type": "thinking", "thinking": "first look"},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "t2", "name": "Read", "input": {"file_path": "/a"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one\ntwo"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no"}]},
    {"role": "assistant", "model": "m-1", "content": "Mended."},
]  # fmt: skip


def test_a_conversation(client: httpx.Client, thread: eventq.Thread) -> None:
    """Who speaks, calls as a line with what came of them, tokens once, nothing twice."""
    main = thread.contexts.create("main")
    for one in SAID:
        main.append(json.dumps(one))
    main.append(b"{no json")
    page = seen(client, "/t/thread/contexts/main")
    classes = [one for one in page.values("li", "class") if one and one.startswith("msg")]
    assert classes == ["msg user", "msg assistant", "msg assistant same", "msg other"]
    words = messages(client, "/t/thread/contexts/main")
    for text in (
        "you",
        "Mend <b>it</b>",
        "Thinking, ",
        "Bashls2 lines done",
        "one two",
        "Read/a1 line failed",
        "20 out · 1.5 k in m-1",
        "Mended.",
        "{no json",
    ):
        assert words.count(text) == 1, text
    assert "tool_result" not in words
    long = {"type": "tool_result", "tool_use_id": "t9", "content": "w" * 3_000}
    made = main.append(json.dumps({"role": "user", "content": [long]}))
    assert "w" * 1_401 not in seen(client, "/t/thread/contexts/main").text
    assert seen(client, f"/t/thread/turns/{made.turn_id}").text.count("w" * 3_000) == 2
    turn = seen(client, "/t/thread/turns/2")
    assert "Bashls2 lines done" in " ".join(turn.text.split())
    assert '"tool_use"' in turn.text
    between = main.fork(at=1, name="other")
    between.append(json.dumps(SAID[4]))
    assert "Bashls2 lines done" in " ".join(
        seen(client, "/t/thread/diff?a=main&b=other").text.split()
    )


def test_an_act_is_noted_once(client: httpx.Client, thread: eventq.Thread) -> None:
    """On the page that it leads to; a page that is fetched again in the background leaves it."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "note", "x")] * 3)
    thread.settle(dead=[one.token for one in thread.claim("w", 3)], error="broken")
    page = seen(client, "/t/thread/consumers/w")
    assert "these 3 events" in page.text
    assert page.values("details", "class").count("sure") == 2
    send(client, "drop", "/t/thread/consumers/w", consumer="w", letters=3, died_by=9**15)
    behind = client.get("/t/thread/", headers={"sec-fetch-dest": "empty"})
    assert "dropped" not in behind.text
    assert (
        "3 dead letters of w dropped. The events stay in the log."
        in seen(client, "/t/thread/consumers/w").text
    )
    assert "dropped" not in seen(client, "/t/thread/consumers/w").text
    thread.ask("<i>Well?</i>")
    send(client, "answer", id=4, text="<script>x</script>" * 30)
    noted = client.get("/t/thread/").text
    assert "You answered event 4: &lt;script&gt;" in noted
    assert "<script>x" not in noted


@pytest.mark.parametrize(
    "text",
    [
        "<script>evil()</script>", "<img src=x onerror=evil()>", "[a](javascript:evil())",
        "![a](https://evil.example/a.png)", "[a](data:text/html,<script>evil()</script>)",
        "<https://ok.example>", "[a]: javascript:evil\n\n[a]", "```<script>\nevil\n```",
        '[a](https://ok.example/"onclick="evil())', "| <b>a</b> |\n|---|\n| <i>b</i> |",
        "# <svg onload=evil()>", "&lt;script&gt;", "[x](vbscript:evil)", "[x](//evil.example)",
    ],
)  # fmt: skip
def test_what_is_said_is_no_markup(text: str) -> None:
    """Nothing runs, and nothing is fetched from elsewhere; links lead to the web alone."""
    made = str(html(text))
    for tag in ("<script", "<img", "<svg", "<b>", "<i>"):
        assert tag not in made
    links = Text(made).values("a", "href")
    assert all(one and re.match("https?://", one) for one in links)
    assert not re.search(r"<[^>]*\son\w+=", made)


def test_markdown_is_shown_as_it_is_meant() -> None:
    """Lists, code, tables; what is too long stays text, and takes no time."""
    made = str(html("# A\n- b `c`\n\n```\n<d>\n```\n\n|e|\n|-|\n|f|\n\n**g**\nh"))
    for part in (
        "<h4>A</h4>",
        "<li>b <code>c</code></li>",
        "&lt;d&gt;",
        "<td>f</td>",
        "<strong>g</strong>\nh",
    ):
        assert part in made
    assert "<br" in str(html("a\nb", breaks=True))
    long = str(html("*" * 100_000 + "<b>"))
    assert long.startswith('<p class="said">***')
    assert "<b>" not in long
    for hostile in ("[" * 9_000, "> " * 4_500, "*a " * 3_000, "`" * 9_000, "- " * 4_500):
        html(hostile)


def test_colours_of_a_terminal(client: httpx.Client, thread: eventq.Thread) -> None:
    """They are classes; other codes are left out, and what is printed is no markup."""
    thread.artifacts.put(
        b"\x1b[1;31mFAILED\x1b[0m <b>x</b>\n10%\r100%\n\x1b]0;title\x07\x1b[2Kend\n", "make"
    )
    found = client.get("/t/thread/output/0").text
    assert '<span class="bold c1">FAILED</span> &lt;b&gt;x&lt;/b&gt;' in found
    assert "10%" not in found.replace("100%", "")
    assert "title" not in found.split("<ol")[1]
    assert "<code>end</code>" in found
    assert "\x1b" not in found
    assert list(ansi.lines(["\x1b[32ma", "b\x1b[0m", "c"])) == [
        '<span class="c2">a</span>', '<span class="c2">b</span>', "c",
    ]  # fmt: skip
    for hostile in ("\x1b[" * 50_000, "\x1b[" + "1;" * 40_000 + "m", "\x1b]" * 40_000):
        assert "<script" not in ansi.text(hostile + "<script>")


def test_an_event(client: httpx.Client, thread: eventq.Thread) -> None:
    """What it says, what caused it, what came of it, and its neighbours; an unknown one is none."""
    first = thread.push("external:webhook:shop:acme::", "order", '{"item": "<b>lamp</b>"}').id
    with thread.during(first):
        second = thread.push("self", "note", "I **sent** it").id
        turn = thread.contexts.create("main").append("noted")
    page = seen(client, f"/t/thread/events/{first}")
    assert "<b>lamp</b>" in page.text
    assert "acme" in page.text
    links = {*page.values("a", "href")}
    assert {f"/t/thread/events/{second}", f"/t/thread/turns/{turn.turn_id}"} <= links
    page = seen(client, f"/t/thread/events/{second}")
    assert "What led to it" in page.text
    assert f"/t/thread/events/{first}" in page.values("a", "href")
    assert "<strong>sent</strong>" in client.get(f"/t/thread/events/{second}").text
    assert f"/t/thread/events/{first}" in seen(client, f"/t/thread/turns/{turn.turn_id}").values(
        "a", "href"
    )
    assert client.get("/t/thread/events/99").status_code == 404
    assert "is no number" in client.get("/t/thread/events/x").text


def test_where_a_conversation_parts(client: httpx.Client, thread: eventq.Thread) -> None:
    """Each other way says how it begins, at the message that it leaves; the page's own is none."""
    main = thread.contexts.create("main")
    for n in range(205):
        main.append(f"main {n}")
    thread.contexts.fork("main", at=200, name="other").append("<i>another</i> way")
    thread.contexts.fork("main", at=3, name="early").append("an early way")
    words = messages(client, "/t/thread/contexts/main")
    assert words.count("<i>another</i> way") == 1
    assert "an early way" not in words
    older = messages(client, "/t/thread/contexts/main?before=6")
    assert older.count("an early way") == 1
    assert "main 4" in older
