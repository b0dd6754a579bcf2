"""The pages of runs: steps on a time axis, what a model saw, tries, roles, lists by state."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import DamagedError
from eventq.http.pages import run_pages, run_steps
from eventq.http.pages.wording import amount, took
from eventq.records.run import NewRun, NewStep, Step
from tests.http.test_pages import EVIL, client, seen, send  # noqa: F401 (client: a fixture)
from tests.servers import fresh

if TYPE_CHECKING:
    import httpx

    from eventq.memory.runs import Run
    from tests.http.conftest import Serve

AT = "/t/thread/runs"


def started(thread: eventq.Thread) -> Run:
    """Start a run of two roles, with a try that failed, a compaction and tokens."""
    system = {"coder": "You write code.", "tester": "You test it."}
    run = thread.runs.start(NewRun("solve", "Mend the build", system=system), label="build")
    meta = {"usage": {"output_tokens": 2_200, "input_tokens": 900}, "model": "m-5", "ok": True}
    run.step(NewStep("coder", meta, "It is mended", edge_prompt="Write **it**", agent="alice"))
    run.attempt("tester", {"code": 504}, "The model did not answer")
    run.step(NewStep("tester", {"n": 1}, "All is green", edge_prompt="Test it"))
    run.compact("It was mended and tested.")
    run.step(NewStep("coder", {}, "Released", edge_prompt="Release it"))
    return run


def test_steps_are_rows(client: httpx.Client, thread: eventq.Thread) -> None:
    """With role, first words, tries and tokens; one role keeps its colour; none is open."""
    started(thread)
    page = seen(client, f"{AT}/build")
    for text in (
        "Mend the build", "coder", "tester", "It is mended", "All is green", "2 tries",
        "2.2 k out", "compaction", "what was said before became 25 bytes", "Released",
    ):  # fmt: skip
        assert text in page.text
    rows = [
        one for kind, one in page.tags if kind == "li" and str(one.get("id")).startswith("step")
    ]
    assert [one["class"] for one in rows] == ["step r1", "step r2", "step r0", "step r1"]
    bars = [one for kind, one in page.tags if kind == "rect"]
    assert sum(one.get("class") == "try" for one in bars) == 1
    assert "What the model saw" not in page.text
    assert "style" not in {name for _, found in page.tags for name in found}


def test_a_step_opens(client: httpx.Client, thread: eventq.Thread) -> None:
    """What was asked, what the model saw then, the failed tries, the answer, meta as pairs."""
    started(thread)
    page = seen(client, f"{AT}/build?step=2")
    for text in (
        "Try 1 failed: The model did not answer", "Test it", "What the model saw, 2 messages",
        "You test it.", "Output: It is mended", "All is green", "code", "504",
    ):  # fmt: skip
        assert text in page.text
    assert "Released" not in page.text.partition("What the model saw")[2].partition("Answered")[0]
    first = seen(client, f"{AT}/build?step=1")
    assert "alice" in first.text
    assert "2,200 out, 900 in" in first.text
    assert "2.2 k tokens out, 900 in" in first.text
    assert "2.2 k / 900" in seen(client, AT).text
    assert "It was mended and tested." in seen(client, f"{AT}/build?step=3").text
    after = seen(client, f"{AT}/build?step=4").text.partition("What the model saw")[2]
    assert "It was mended and tested." in after
    assert "Output: All is green" not in after


def test_messages_before_a_step_are_those_that_were_sent(thread: eventq.Thread) -> None:
    """Byte for byte what `messages` returned then, also after a compaction and more steps."""
    run = thread.runs.start(NewRun("w", "a task", system={"a": "A", "b": "B"}))
    sent = []
    for number, role in enumerate("abaabba"):
        if number == 4:
            run.compact("a summary")
        sent.append(run.messages(role, f"ask {number}"))
        run.step(role, {"n": number}, f"said {number}", edge_prompt=f"ask {number}")
    steps = [one for one in run.replay() if one.role in "ab"]
    assert [[*run.messages_before(one)] for one in steps] == sent


def test_many_messages_are_shown_in_part(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last; of a run that is too long, the first that could be built."""
    run = thread.runs.start("solve", "a task")
    for number in range(30):
        run.step("coder", None, f"said {number}", edge_prompt=f"ask {number}")
    page = seen(client, f"{AT}/1?step=30")
    assert "What the model saw, 60 messages" in page.text
    assert "44 messages between are not shown" in page.text
    monkeypatch.setattr(run_pages, "SECONDS", -1)
    page = seen(client, f"{AT}/1?step=30")
    assert "There are more: to build them all takes too long" in page.text


def test_what_was_erased_is_left_out(client: httpx.Client, thread: eventq.Thread) -> None:
    """The pages stay, with what stands in its place; what a model saw may be lost with a step."""
    run = started(thread)
    steps = [*run.replay()]
    thread.erasures.turn(steps[1].turn_id)
    page = seen(client, f"{AT}/build?step=4")
    assert "All is green" not in page.text
    assert "Released" in page.text
    seen(client, f"{AT}/build?step=2")
    thread.erasures.turn(steps[0].turn_id)
    assert "It is mended" not in seen(client, f"{AT}/build?step=1").text
    thread.erasures.turn(run.context.ancestor(0))
    for at in (f"{AT}/build?step=4", AT):
        assert "Mend the build" not in seen(client, at).text


def test_what_a_model_saw_may_be_damaged(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is shown nevertheless, and says why that is not."""
    started(thread)

    def fail(*_: object) -> None:
        raise DamagedError("step 1 of run 1: missing blob", "restore a backup")

    monkeypatch.setattr("eventq.memory.runs.Run.messages_before", fail)
    page = seen(client, f"{AT}/build?step=2")
    assert "It cannot be built: step 1 of run 1: missing blob" in page.text
    assert "All is green" in page.text


def test_many_tries_are_shown_in_part(client: httpx.Client, thread: eventq.Thread) -> None:
    """The last ten, with their numbers; all are counted."""
    run = thread.runs.start("solve", "a task")
    for number in range(1, 15):
        run.attempt("coder", None, f"went wrong {number}")
    run.step("coder", None, "said")
    page = seen(client, f"{AT}/1?step=1")
    assert "15 tries" in page.text
    assert "Try 5 failed: went wrong 5" in page.text
    assert "Try 14 failed: went wrong 14" in page.text
    assert "went wrong 4" not in page.text


def test_long_runs_have_pages(client: httpx.Client, thread: eventq.Thread) -> None:
    """The last steps come first; a step is on its page; colours are those of the first steps."""
    run = thread.runs.start("solve", "a task")
    run.step("planner", None, "planned")
    for number in range(2, 151):
        run.step("coder", None, f"said-{number}-")
    page = seen(client, f"{AT}/1")
    assert "said-150-" in page.text
    assert "said-50-" not in page.text
    assert "51 to 150 of 150" in page.text
    assert "?from=1" in page.values("a", "href")
    rows = [one for kind, one in page.tags if kind == "li" and one.get("id") == "step-150"]
    assert rows[0]["class"] == "step r2"
    page = seen(client, f"{AT}/1?step=50")
    assert "said-50-" in page.text
    assert "said-150-" not in page.text
    assert "?from=101" in page.values("a", "href")


def test_beside_the_steps(client: httpx.Client, thread: eventq.Thread) -> None:
    """What each role took, what was asked of people, what came of it, forks, causes."""
    caused = thread.push("self", "task", "x").id
    with thread.during(caused):
        run = started(thread)
    thread.answer(thread.ask("Which name?", run=run.id).question_id, "north")
    thread.ask("Of another run?", run=99)
    asked = thread.ask("Release?", approval=True, run=run.id)
    run.fork(2, label="again").step("tester", None, "tested")
    thread.scope(run.id).outputs.put("notes", "# Notes")
    thread.scope(run.id).artifacts.put(b"a line\n", "make")
    page = seen(client, f"{AT}/build")
    for text in (
        "waits for you",
        "Release?",
        "Which name? north, after",
        "0-notes",
        "of make",
        "from step 2, 3 steps",
    ):
        assert text in page.text
    assert "Of another run?" not in page.text
    links = {*page.values("a", "href")}
    assert {
        f"/t/thread/events/{asked.question_id}", f"/t/thread/events/{caused}",
        "/t/thread/published/0-notes?context=build", "/t/thread/output/0?context=build",
        f"{AT}/2",
    } <= links  # fmt: skip
    assert f"{AT}/{run.id}" in seen(client, f"{AT}/again").values("a", "href")


def test_runs_are_listed_by_state(client: httpx.Client, thread: eventq.Thread) -> None:
    """Those that wait for a person, those under way, then those that ended, with exit codes."""
    names = ("waits", "works", "paused", "done", "failed", "stopped")
    runs = {name: thread.runs.start("solve", f"task of {name}", label=name) for name in names}
    for one in runs.values():
        one.step("coder", None, "said")
    thread.ask("Go on?", run=runs["waits"].id)
    runs["paused"].suspend()
    runs["done"].end(0)
    runs["failed"].end(3)
    runs["stopped"].cancel()
    page = seen(client, AT)
    order = [href for href in page.values("a", "href") if (href or "").startswith(f"{AT}/")]
    assert order == [f"{AT}/{n}" for n in (1, 3, 2, 6, 5, 4)]
    for text in ("waits for you", "works", "suspended", "done", "gave up, exit code 3",
                 "cancelled", "task of done", "3 under way, 3 ended", "coder"):  # fmt: skip
        assert text in page.text
    ended = seen(client, f"{AT}?state=ended")
    assert "task of works" not in ended.text
    assert "task of done" in ended.text
    active = seen(client, f"{AT}?state=active")
    assert "task of waits" in active.text
    assert "task of done" not in active.text
    assert "None of 6 runs is here" in seen(client, f"{AT}?state=ended&before=1").text


def test_many_runs_have_pages(client: httpx.Client, thread: eventq.Thread) -> None:
    """Fifty of a kind at once; each comes once."""
    with thread.write():
        for number in range(60):
            thread.runs.start("solve", f"task-{number}-").end(0)
    page = seen(client, AT)
    assert page.text.count("task-") == 50
    (more,) = [one for one in page.values("a", "href") if "before" in (one or "")]
    assert more == "?state=ended&before=11"
    rest = seen(client, f"{AT}{more}")
    assert rest.text.count("task-") == 10
    assert "task-9-" in rest.text


def test_a_run_is_forked_and_ended(client: httpx.Client, thread: eventq.Thread) -> None:
    """After a step that is open; what it ends stays."""
    run = started(thread)
    done = send(client, "fork-run", f"{AT}/1?step=1", run=1, step=1, label="other")
    assert done.headers["location"] == f"{AT}/2"
    assert thread.runs.get("other").info().depth == 1
    send(client, "end-run", f"{AT}/1", run=1)
    assert run.info().status == "cancelled"
    assert "cancelled" in seen(client, f"{AT}/1").text
    assert "End run" not in seen(client, f"{AT}/1").text


def test_who_may_only_read_gets_no_control(serve: Serve, path: str, thread: eventq.Thread) -> None:
    """Neither to fork nor to end."""
    started(thread)
    guest = serve(path)
    del guest.headers["authorization"]
    page = seen(guest, f"{AT}/build?step=1")
    assert "It is mended" in page.text
    assert not page.values("form", "action")


def test_nothing_becomes_markup(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whatever names, roles, tasks, tries, summaries and meta say; very long names, too."""
    run = thread.runs.start(NewRun(EVIL, EVIL, system={EVIL: EVIL}), label=f"run {EVIL}")
    run.attempt(EVIL, {EVIL: EVIL}, EVIL)
    meta = {EVIL: [EVIL], "usage": EVIL, "model": EVIL, "duration_ms": EVIL}
    run.step(NewStep(EVIL, meta, f"[x](javascript:alert(1)) {EVIL}", edge_prompt=EVIL, agent=EVIL))
    run.compact(EVIL)
    run.step(EVIL * 20, {"duration_ms": 1e300}, "![x](https://evil.example/x.png)")
    for at in ("", "/1", "/1?step=1", "/1?step=2", "/1?step=3", "/1?step=9", "/1?from=9"):
        page = seen(client, f"{AT}{at}")
        assert not [tag for tag, _ in page.tags if tag == "img"]
        assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
        assert not [href for href in page.values("a", "href") if "script" in (href or "")]
        assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert client.get(f"{AT}/1?step=x").status_code == 400


def test_pages_of_a_thread_in_postgresql(serve: Serve, postgres: str) -> None:
    """They are those of a thread in a directory."""
    url = fresh(postgres)
    client = serve(url)
    with eventq.open(url) as thread:
        run = started(thread)
        thread.runs.start("solve", "another task").end(3)
        run.fork(2, label="again")
        thread.scope(run.id).outputs.put("notes", "# Notes")
        thread.scope(run.id).artifacts.put(b"it FAILED\n", "make")
    at = f"/t/{client.get('/api/threads').json()['threads'][0]['name']}"
    every = seen(client, f"{at}/runs").text
    for text in ("Mend the build", "gave up, exit code 3", "2.2 k / 900"):
        assert text in every
    assert "What the model saw, 2 messages" in seen(client, f"{at}/runs/build?step=2").text
    assert "from step 2, 2 steps" in seen(client, f"{at}/runs/build").text
    for zoom in (0, 40):
        page = seen(client, f"{at}/branches?zoom={zoom}")
        assert {"b-agent", "b-user"} <= {*page.values("path", "class")}
    assert "failed" in seen(client, f"{at}/output/0?context=build").values("li", "class")
    assert "0-notes" in seen(client, f"{at}/output?context=build").text
    assert "Notes" in seen(client, f"{at}/published/0-notes?context=build").text


def step(number: int, at: int, meta: object = None) -> Step:
    """Return a step that was taken at a time."""
    return Step(number, number, "", "a", meta, "said", (), "", "", at, (), None, (), None, None)


def test_bars_overlap_only_if_meta_says_so() -> None:
    """A step began when the one before it was taken, or as long before as its meta says."""
    steps = [step(1, 2_000), step(2, 3_000, {"duration_ms": 2_000}), step(3, 5_000)]
    rows = run_steps.rows_of(steps, 1_000, {"a": 1}, {})
    assert [(one.began, one.took) for one in rows] == [
        (1_000, 1_000), (1_000, 2_000), (3_000, 2_000)
    ]  # fmt: skip
    assert [one.bars for one in rows] == [
        (("0.0", "250.0", False),), (("0.0", "500.0", False),), (("500.0", "500.0", False),)
    ]  # fmt: skip
    assert run_steps.ticks_of(rows, 1_000) == ["0", "0:01", "0:03", "0:04"]


def test_times_and_amounts_in_words() -> None:
    """The two largest units; tokens in thousands and millions."""
    times = [0, 900, 41_000, 802_000, 3_600_000, 6_660_000, 90_000_000]
    assert [*map(took, times)] == [
        "0 ms", "1 s", "41 s", "13 min 22 s", "1 h", "1 h 51 min", "1 d 1 h"
    ]  # fmt: skip
    assert [*map(amount, [7, 2_200, 33_000, 999_600])] == ["7", "2.2 k", "33 k", "1.00 M"]
