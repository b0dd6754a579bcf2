"""The first page: the morning line, who needs a person, what is at work, what was answered."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.errors import StoreError
from eventq.http.pages import now_page
from eventq.serving import attention
from eventq.store import opening
from tests.http.test_acts import bury, forms, send
from tests.http.test_pages import EVIL, Text, seen
from tests.servers import fresh

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Clock
    from tests.http.conftest import Serve

AT = "/t/thread/"
HOUR = 3600


def come_in(client: httpx.Client) -> httpx.Client:
    """Let a client be a browser that came in through a link."""
    del client.headers["authorization"]
    client.get(client.running.server.link())  # type: ignore[attr-defined]
    return client


@pytest.fixture
def client(clock: Clock, serve: Serve, path: str) -> httpx.Client:
    """Return a browser that came in through a link; the time stands still."""
    return come_in(serve(path))


def words(page: Text) -> str:
    """Return the text of a page on one line."""
    return " ".join(page.text.split())


# --- the morning line -------------------------------------------------------------------------------


def test_what_came_to_pass_since_the_last_look(
    client: httpx.Client, thread: eventq.Thread, clock: Clock
) -> None:
    """At first of 24 hours; of the next visit, since the end of the one before."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "note", f"{n}") for n in range(9)])
    thread.settle([one.token for one in thread.claim("w", 3)])
    for code in (0, 2):
        thread.runs.start("solve", "a task").end(code)
    main = thread.contexts.create("main")
    usage = {"input_tokens": 900, "output_tokens": 120, "cache_read_input_tokens": 8_000}
    main.append(json.dumps({"role": "assistant", "content": "x", "model": "m", "usage": usage}))
    shown = words(seen(client, AT))
    assert "1.0 k tokens and 8.0 k from caches" in shown
    assert "works main 1 turn x 1.0 k tokens" in shown
    shown = words(seen(client, AT))
    assert "3 done in the last 24 hours 0 failed 0 of them dead" in shown
    assert "2 runs completed 1 well, 1 gave up" in shown
    clock.move(60)
    assert "3 done in the last 24 hours" in words(seen(client, AT))  # the same visit
    clock.move(2 * HOUR)
    thread.settle(
        [one.token for one in thread.claim("w", 2)],
        dead=[one.token for one in thread.claim("w", 1)],
    )
    for _ in range(2):  # to load it again begins no other visit
        shown = words(seen(client, AT))
        assert re.search(
            r"2 done since you looked, \w+ 10:31 1 failed 1 of them dead 0 runs", shown
        )
        clock.move(60)
    clock.move(30 * HOUR)
    shown = words(seen(client, AT))
    assert "0 done in the last 24 hours" in shown
    assert "counts are kept for 24 hours" in shown


def test_who_notes_a_look(client: httpx.Client, thread: eventq.Thread) -> None:
    """A page that a person sees, and no page that is fetched again; no script reads the cookie."""
    thread.push("self", "note", "x")
    name = f"eventq-{client.base_url.port}-seen"
    found = client.get(AT, headers={"sec-fetch-dest": "empty"})
    assert "set-cookie" not in found.headers
    found = client.get(AT, headers={"sec-fetch-dest": "document"})
    assert found.headers["set-cookie"].startswith(f"{name}=0.1773829800; ")
    assert {"HttpOnly", "SameSite=Strict"} <= {*found.headers["set-cookie"].split("; ")}
    assert "set-cookie" not in client.get(f"{AT}live").headers


@pytest.mark.parametrize("value", ["", "x", "1", "1.", ".1", "9e9.1", "1.99999999999", "²." * 40])
def test_a_cookie_that_says_nothing(
    client: httpx.Client, thread: eventq.Thread, value: str
) -> None:
    """It is as none."""
    thread.push("self", "note", "x")
    name = f"eventq-{client.base_url.port}-seen"
    kept = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    headers = {b"cookie": f"{name}={value}; {kept}".encode()}
    assert "in the last 24 hours" in words(Text(client.get(AT, headers=headers).text))


# --- who needs a person -----------------------------------------------------------------------------


def test_the_longest_wait_comes_first(
    serve: Serve, path: str, thread: eventq.Thread, tmp_path: Path, clock: Clock
) -> None:
    """Among all threads: questions by age, then what stands still, then dead letters."""
    other = eventq.init(tmp_path / "other")
    client = come_in(serve(path, other))
    with eventq.open(other) as second:
        second.ask("the first?")
        clock.move(60)
        thread.ask("the second?")
        clock.move(60)
        second.ask("the third?")
        second.subscribe("mailer", max_attempts=1, on_failure="dead")
        bury(second, 4)
    page = seen(client, "/")
    shown = words(page)
    order = [shown.index(f"the {one}?") for one in ("first", "second", "third")]
    assert [*order, shown.index("4 events failed for good")] == sorted(
        [*order, shown.index("4 events failed for good")]
    )
    assert "4 need you in 2 of 2 threads" in shown
    assert {"/t/other/do/answer", "/t/thread/do/answer", "/t/other/do/drop"} <= {
        *page.values("form", "action")
    }
    assert "(4) Now" in client.get("/").text
    form = forms(page)["drop"]
    headers = {"referer": f"{str(client.base_url).rstrip('/')}/"}
    done = client.post("/t/other/do/drop", data=form, headers=headers)
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert "4 dead letters of mailer dropped" in seen(client, "/").text


def test_a_question_of_a_run_names_it(client: httpx.Client, thread: eventq.Thread) -> None:
    """And says whether the run waits for the answer."""
    run = thread.runs.start("release", "a task", label="v2")
    thread.ask("Deploy?", approval=True, run=run.id)
    assert re.search("in run v2 · event", words(seen(client, AT)))
    run.step("deployer", content="ready")
    run.suspend()
    assert "in run v2, which waits" in words(seen(client, AT))
    thread.ask("Another?", run=10**6)
    assert "in run 1000000" in words(seen(client, AT))


def test_more_than_a_page_holds(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first are shown, and all are counted."""
    monkeypatch.setattr(now_page, "NEEDS", 3)
    with thread.write():
        for n in range(200):
            thread.ask(f"question {n}?")
    page = seen(client, AT)
    assert page.values("li", "class").count("need") == 3
    assert "These are the first 3 of 200." in page.text
    assert "(200) Now" in client.get(AT).text


def test_questions_of_any_size(client: httpx.Client, thread: eventq.Thread) -> None:
    """Long ones are folded, many options are a list, and nothing in them is markup."""
    long = "First line\n" + f"{EVIL} " * 500
    thread.ask(long, options=[f"option {n} {EVIL}" for n in range(40)])
    thread.ask("Short?", options=("yes", EVIL), approval=True)
    text = client.get(AT).text
    page = Text(text)
    assert "<script>" not in text
    assert "All of it, 2 lines" not in text
    assert "All of it, " in page.text
    assert page.values("option", "value") == [f"option {n} {EVIL}" for n in range(40)]
    send(client, "answer", forms(page)["answer"] | {"id": "1", "text": f"option 7 {EVIL}"})
    assert thread.question(1).answer == f"option 7 {EVIL}"


def test_an_event_is_skipped_where_it_stands(client: httpx.Client, thread: eventq.Thread) -> None:
    """The event that the page names, and no other."""
    thread.subscribe("w", "false", max_attempts=1)
    thread.push_many([("self", "note", f"{n}") for n in range(3)])
    (state,) = thread.consumers.states()
    thread.consumers.stall(state, "it broke")
    page = seen(client, AT)
    assert "Skip event 1" in page.text
    form = forms(page)["skip"]
    assert send(client, "skip", form | {"event": "2"}).status_code == 409
    assert send(client, "skip", form).status_code == 303
    (found,) = thread.status().consumers
    assert (found.last_acked_id, found.waiting_id, found.stalled) == (1, 2, None)
    assert "w skips event 1 and goes on" in seen(client, AT).text
    assert send(client, "skip", form).status_code == 409


def test_more_dead_letters_than_are_read(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """They are counted, and can be dropped, without a word on what they died of."""
    monkeypatch.setattr(attention, "ALL_LETTERS", 2)
    thread.push_many([("self", "order", f"{n}") for n in range(2)])
    for name in ("first", "second"):
        thread.subscribe(name, max_attempts=1, on_failure="dead")
        thread.settle(dead=[one.token for one in thread.claim(name, 2)], error=f"of {name}")
    clock.move(1)
    page = seen(client, AT)
    assert "2 × of first" in page.text
    assert "of second" not in page.text
    assert page.text.count("2 dead") == 6  # each as a need, as trouble, and as what is dropped
    csrf = forms(page)["drop"]["csrf"]
    fields = page.values("input", "value")
    died_by = next(one for one in fields if one and one == str(int(clock.at * 1000)))
    form = {"csrf": csrf, "consumer": "second", "letters": "2", "died_by": died_by}
    assert send(client, "drop", form).status_code == 303
    assert [one.consumer_id for one in thread.dead_letters()] == ["first", "first"]


def test_who_may_only_read_has_no_controls(serve: Serve, path: str, thread: eventq.Thread) -> None:
    """And is told how to come in; where a thread lies and why things failed is not said."""
    thread.ask("Deploy?", approval=True)
    thread.subscribe("mailer", max_attempts=1, on_failure="dead")
    bury(thread, 2)
    guest = serve(path)
    guest.headers = httpx.Headers()
    page = seen(guest, AT)
    assert page.values("form", "action") == []
    assert "Sign in to answer" in words(page)
    assert "/login" in page.values("a", "href")
    assert "refused" not in page.text
    assert path not in page.text


# --- what is at work, threads, answers --------------------------------------------------------------


def test_what_is_at_work(client: httpx.Client, thread: eventq.Thread, clock: Clock) -> None:
    """The newest first, with what was said last; a run that has ended is at work no more."""
    quiet = thread.contexts.create("quiet")
    quiet.append(eventq.NewTurn("long ago", "user"))
    clock.move(HOUR)
    main = thread.contexts.create("main")
    main.append('{"role": "assistant", "content": "I look."}')
    main.append('{"role": "tool", "content": ""}')
    thread.runs.start("solve", "a task", label="waits").step("coder", content="which?")
    thread.runs.get("waits").suspend()
    thread.runs.start("solve", "a task", label="over").end(0)
    page = seen(client, AT)
    shown = words(page)
    assert "works main 2 turns I look." in shown
    assert "suspended waits run of solve · 2 turns which?" in shown
    assert "quiet quiet 1 turn long ago" in shown
    assert shown.index("works main") < shown.index("quiet quiet")
    assert "over" not in page.values("a", "href")
    assert f"{AT}contexts/1" in page.values("a", "href")


def test_a_thread_of_sessions_alone(client: httpx.Client, thread: eventq.Thread) -> None:
    """It has no event, and work that is shown and counted."""
    usage = {"input_tokens": 30, "output_tokens": 12}
    main = thread.contexts.create("main")
    main.append(json.dumps({"role": "assistant", "content": "hello", "usage": usage}))
    shown = words(seen(client, AT))
    assert "42 tokens" in shown
    assert "Nobody needs you: there is no event yet." in shown
    assert "eventq push" not in shown


def test_a_broken_thread_beside_good_ones(
    serve: Serve, path: str, thread: eventq.Thread, tmp_path: Path
) -> None:
    """It is said, with what helps, and the others are shown."""
    thread.ask("Well?")
    other = eventq.init(tmp_path / "other")
    client = come_in(serve(path, other))
    (tmp_path / "other" / "events.db").write_bytes(b"no database" * 1000)
    shown = words(seen(client, "/"))
    assert "other cannot be read" in shown
    assert "eventq doctor" in shown
    assert "1 needs you in 1 of 2 threads" in shown


def test_what_was_answered(client: httpx.Client, thread: eventq.Thread, clock: Clock) -> None:
    """The newest first, by whom; all of it on a page of its own, piece by piece."""
    for n in range(7):
        asked = thread.ask(f"question {n} {EVIL}?", source="internal:dm:coder:main")
        clock.move(1)
        thread.answer(asked.question_id, f"answer {n} {EVIL}")
    page = seen(client, AT)
    assert f"answer 6 {EVIL}"[:40] in page.text
    assert "answer 1 " not in page.text
    assert f"{AT}answers" in page.values("a", "href")
    listed = seen(client, f"{AT}answers")
    assert [f"answer {n} " in listed.text for n in range(7)] == [True] * 7
    assert listed.text.index("answer 6 ") < listed.text.index("answer 0 ")
    assert "coder" in listed.text
    assert "<script>" not in client.get(f"{AT}answers").text
    assert "answer 6 " not in seen(client, f"{AT}answers?before=14").text
    assert "Nothing was answered yet" in seen(client, f"{AT}answers?before=1").text


def test_now_on_postgresql(serve: Serve, postgres: str, clock: Clock) -> None:
    """Everything of the page, read from there."""
    path = fresh(postgres)
    client = come_in(serve(path))
    with eventq.open(path) as thread:
        thread.subscribe("mailer", max_attempts=1, on_failure="dead")
        bury(thread, 3)
        thread.ask("Deploy?", approval=True)
        thread.answer(thread.ask("Which?").question_id, "this one")
        thread.contexts.create("main").append("said last")
        thread.runs.start("solve", "a task", label="build").end(0)
        at = client.get("/").headers["location"]
        shown = words(seen(client, at))
        for text in ("3 × refused", "Deploy?", "this one", "said last", "1 run completed 1 well"):
            assert text in shown
        form: dict[str, Any] = forms(seen(client, at))["drop"]
        assert client.post(f"{at}do/drop", data=form).status_code == 303
        assert [*thread.dead_letters()] == []


def test_many_threads_of_a_database(
    serve: Serve, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need a person are looked at; the others are counted, and opened when asked for."""
    monkeypatch.setattr("eventq.http.pages.frame.TOGETHER", 2)
    monkeypatch.setattr("eventq.http.pages.frame.LISTED", 3)
    paths = [fresh(postgres) for _ in range(6)]
    for path in paths:
        with eventq.open(path) as thread:
            thread.push("self", "note", "x")
    with eventq.open(paths[4]) as thread:
        thread.ask("Well, number 4?")
    with eventq.open(paths[5]) as thread:
        thread.subscribe("mailer", max_attempts=1, on_failure="dead")
        bury(thread, 1)
    assert {paths[4], paths[5]} <= opening.needing(postgres)
    assert paths[0] not in opening.needing(postgres)
    client = come_in(serve(*paths))
    threads = client.running.server.threads  # type: ignore[attr-defined]
    by_path = {one.path: one for one in threads.values()}
    by_path[paths[4]].needed = by_path[paths[5]].needed = 1  # as a look at the database says
    page = seen(client, "/")
    shown = words(page)
    assert "Well, number 4?" in shown
    assert "2 need you in 2 of 6 threads" in shown
    assert "4 more, not looked at here" in shown
    assert "The first 3 of 4." in shown
    assert "3 more: each opens at" in shown
    at = f"/t/{by_path[paths[0]].name}/"
    assert "the last event came" in words(seen(client, at))


def test_a_database_says_who_needs_a_person(serve: Serve, postgres: str) -> None:
    """Before any of its threads is opened."""
    calm, needy = fresh(postgres), fresh(postgres)
    with eventq.open(needy) as thread:
        thread.ask("Well?")
    with eventq.open(calm) as thread:
        thread.answer(thread.ask("Well?").question_id, "yes")
    threads = serve(place=postgres).running.server.threads  # type: ignore[attr-defined]
    found = {one.path: one.needed for one in threads.values()}
    assert (found[calm], found[needy]) == (0, 1)


def test_a_database_that_does_not_say(
    serve: Serve, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads are served all the same."""

    def refuse(_: str) -> set[str]:
        raise StoreError("permission denied", "grant it")

    path = fresh(postgres)
    monkeypatch.setattr("eventq.http.site.needing", refuse)
    threads = serve(place=postgres).running.server.threads  # type: ignore[attr-defined]
    assert path in {one.path for one in threads.values()}
