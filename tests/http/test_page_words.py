"""Words of pages: commands that work, one and many, nothing said twice, names, sizes, times."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from html import unescape
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.http.pages import run_steps, talk
from eventq.records.run import NewRun, NewStep, Step
from tests.http.test_pages import Text, client, seen, send  # noqa: F401 (client: a fixture)

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.conftest import Clock
    from tests.http.conftest import Serve

HOME = "/t/thread"
COMMAND = r"eventq (?:subscribe|context|session|run|capture|output|push) [^<\n]*"


def words(page: Text) -> str:
    """Return the text of a page on one line."""
    return " ".join(page.text.split())


def buried(thread: eventq.Thread, number: int) -> None:
    """Let events of a consumer fail for good."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "note", f"{n}") for n in range(number)])
    thread.settle(dead=[one.token for one in thread.claim("w", number)], error="broken")


@pytest.mark.parametrize("view", ["live", "consumers", "branches", "runs", "output"])
def test_an_empty_page_has_commands_that_work(
    client: httpx.Client, thread: eventq.Thread, tmp_path: Path, view: str
) -> None:
    """As they stand there, but for what is in capitals."""
    file = tmp_path / "session.jsonl"
    file.write_text('{"type":"user","uuid":"a","parentUuid":null,"message":{"content":"hi"}}\n')
    given = {"NAME": "one", "COMMAND": "true", "FILE": str(file), "WORKFLOW": "w", "TASK": "t"}
    found = re.findall(COMMAND, client.get(f"{HOME}/{view}").text)
    assert found
    for one in map(unescape, found):
        assert thread.path in one
        _, *arguments = [given.get(word, word) for word in shlex.split(one)]
        done = subprocess.run([sys.executable, "-m", "eventq", *arguments], check=False)
        assert done.returncode == 0, one


def test_guests_are_not_told_where_a_thread_is(serve: Serve, path: str) -> None:
    """The commands of empty pages have a word in its place."""
    client = serve(path)
    del client.headers["authorization"]
    for view in ("live", "consumers", "branches", "runs", "output"):
        page = client.get(f"{HOME}/{view}").text
        assert path not in page
        assert "--thread THREAD " in page


def test_one_dead_letter_is_one(client: httpx.Client, thread: eventq.Thread) -> None:
    """Before it is dropped, and after that."""
    buried(thread, 1)
    for at in (f"{HOME}/", f"{HOME}/consumers/w", f"{HOME}/consumers/w/drop?event-1=on"):
        found = words(seen(client, at))
        what = "this event any more; why it failed is forgotten. The event stays in the log."
        assert f"w will not handle {what}" in found
    send(client, "drop", consumer="w", event=1)
    assert "1 dead letter of w dropped. The event stays in the log." in words(
        seen(client, HOME + "/")
    )


def test_many_dead_letters_are_many(client: httpx.Client, thread: eventq.Thread) -> None:
    """With their number."""
    buried(thread, 2)
    for at in (f"{HOME}/", f"{HOME}/consumers/w"):
        found = words(seen(client, at))
        what = "these 2 events any more; why they failed is forgotten. The events stay in the log."
        assert f"w will not handle {what}" in found


def test_where_a_consumer_stands_is_said_once(client: httpx.Client, thread: eventq.Thread) -> None:
    """With a link."""
    thread.subscribe("s", "false", max_attempts=1)
    thread.push("self", "note", "x")
    state = thread.database.consumers.get("s")
    assert state is not None
    thread.database.consumers.note_run(state, stalled="its handler exited with code 1 at event 1")
    page = seen(client, f"{HOME}/")
    assert "exited with code 1 at event 1 " in words(page)
    assert "(event 1)" not in page.text
    assert f"{HOME}/events/1" in page.values("a", "href")


def test_a_state_has_one_word(client: httpx.Client, thread: eventq.Thread, clock: Clock) -> None:
    """On the first page, in the list of consumers, and on the page of health; it is said once."""
    import apsw

    thread.subscribe("late")
    thread.push("self", "note", "x")
    thread.subscribe("wrong", filter="id > 0")
    with apsw.Connection(f"{thread.path}/events.db") as db:
        db.execute("UPDATE subscriptions SET filter = 'type = oops' WHERE filter IS NOT NULL")
    clock.move(600)
    for at in ("", "consumers", "health"):
        found = words(seen(client, f"{HOME}/{at}"))
        assert re.search(r"(behind late|late behind)", found), (at, found)
    assert words(seen(client, f"{HOME}/")).count("its filter cannot be run") == 1
    thread.subscribe("wrong", replace=True)


def test_a_step_with_a_summary_shows_its_answer(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """And the summary; a step that is nothing but a summary shows it once."""
    run = thread.runs.start(NewRun("solve", "Mend the build"), label="build")
    run.step(NewStep("coder", content="Here it is", compact="All was said"))
    run.compact("Said and done")
    found = words(seen(client, f"{HOME}/runs/build?from=1&step=1"))
    assert "The summaryAll was said" in found
    assert "AnsweredHere it is" in found
    found = words(seen(client, f"{HOME}/runs/build?from=1&step=2"))
    assert "The summarySaid and done" in found
    assert "Answered" not in found


def test_a_step_without_a_text_is_names_and_values(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """An end says its summary; how it ended stands beside it."""
    run = thread.runs.start(NewRun("solve", "Mend the build"), label="build")
    run.step(NewStep("coder", {"files": 2, "mood": "good"}))
    run.step(NewStep("coder", "plain"))
    run.end(3, "it is too hard")
    found = words(seen(client, f"{HOME}/runs/build"))
    for text in ("files 2 · mood good", "plain", "it is too hard", "gave up, exit code 3"):
        assert text in found
    assert "{" not in found


def test_a_fork_took_what_came_after_it(
    client: httpx.Client, thread: eventq.Thread, clock: Clock
) -> None:
    """On its page as in the list, whenever the steps before it were taken."""
    run = thread.runs.start(NewRun("solve", "Mend the build"), label="build")
    run.step(NewStep("coder", content="a"))
    clock.move(300)
    fork = run.fork(1, label="other")
    clock.move(7)
    fork.step(NewStep("coder", content="b"))
    assert "works 7 s · 2 steps" in words(seen(client, f"{HOME}/runs/other"))
    assert "coder7 s" in words(seen(client, f"{HOME}/runs"))


def test_what_is_written_is_a_link(client: httpx.Client, thread: eventq.Thread) -> None:
    """On the first page, to its lines."""
    with thread.artifacts.allocate("make") as writer:
        writer.write(b"one\n")
        assert f"{HOME}/output/0" in seen(client, f"{HOME}/").values("a", "href")


def test_a_context_without_a_name(client: httpx.Client, thread: eventq.Thread) -> None:
    """Is called so wherever it is named; branches of long names are told apart."""
    first = thread.contexts.create()
    first.append("x")
    long = "a-session-of-a-file-with-a-very-long-name-that-is-cut-where-it-is-shown/b"
    for n in (1, 2):
        thread.contexts.fork(first.id, name=f"{long}{n}")
    page = seen(client, f"{HOME}/branches")
    assert f"context {first.id}: 1 turn" in words(page)
    for n in (1, 2):
        assert page.text.count(f"{long}{n}") >= 3  # in its lane, and in both choices
    found = words(seen(client, f"{HOME}/turns/1"))
    assert f"context {first.id}" in found
    found = words(seen(client, f"{HOME}/contexts/{first.id}"))
    assert f"Context {first.id}" in found
    assert "said 0 messages" not in found
    assert "turn 0" not in found


def test_a_size_is_said_in_one_way(client: httpx.Client, thread: eventq.Thread) -> None:
    """In the list and on the page, and once."""
    for data in (b"x\0\1", b"line\n" * 300):
        thread.artifacts.put(data, "make")
    assert "text 1.5 kB" in words(seen(client, f"{HOME}/output"))
    assert "300 lines, 1.5 kB" in words(seen(client, f"{HOME}/output/1"))
    assert "not text. 3 bytes, blake3" in words(seen(client, f"{HOME}/output/0"))


def test_a_note_stands_beside_an_answer(client: httpx.Client, thread: eventq.Thread) -> None:
    """In the list of answers, and on the page of the question."""
    asked = thread.ask("Deploy?", options=("yes", "no"), approval=True)
    send(client, "answer", id=asked.question_id, text="yes", note="but <after> noon")
    assert "but <after> noon" in words(seen(client, f"{HOME}/answers"))
    found = words(seen(client, f"{HOME}/events/{asked.question_id}"))
    assert "notebut <after> noon" in found


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.5, ""), (7.7, "7.7 s"), (239, "3 min 59 s"), (660, "11 min"), (7_200, "2 h"),
     (7_320, "2 h 2 min"), (200_000, "2 days")],
)  # fmt: skip
def test_how_long_a_thing_took(seconds: float, said: str) -> None:
    """Without what is zero."""
    assert talk.took(1, 1 + int(seconds * 1_000)) == said


def test_ticks_of_a_short_run_differ() -> None:
    """They have tenths of a second where whole ones are the same."""
    taken = [Step(n, n, "", "a", None, "said", (), "", "", at, (), None, (), None, None)
             for n, at in ((1, 400), (2, 900))]  # fmt: skip
    rows = run_steps.rows_of(taken, 0, {"a": 1}, {})
    assert run_steps.ticks_of(rows, 0) == ["0", "0.3 s", "0.6 s", "0.9 s"]


def test_a_page_that_is_not_there_asks_nobody_to_come_in(client: httpx.Client) -> None:
    """It would be missed by everybody, also by who is in."""
    found = client.get(f"{HOME}/events/99")
    assert (found.status_code, "/login" in found.text) == (404, False)
