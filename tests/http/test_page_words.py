"""Words of pages: commands that work, one and many, nothing said twice, names, sizes, times."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

from typing import TYPE_CHECKING

import eventq
from eventq.http.pages import run_steps
from eventq.records.run import NewRun, NewStep, Step
from tests.http.test_pages import Text, client, seen, send  # noqa: F401 (client: a fixture)

if TYPE_CHECKING:
    import httpx


HOME = "/t/thread"
COMMAND = r"eventq (?:subscribe|context|session|run|capture|output|push) [^<\n]*"


def words(page: Text) -> str:
    """Return the text of a page on one line."""
    return " ".join(page.text.split())


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


def test_ticks_of_a_short_run_differ() -> None:
    """They have tenths of a second where whole ones are the same."""
    taken = [Step(n, n, "", "a", None, "said", (), "", "", at, (), None, (), None, None)
             for n, at in ((1, 400), (2, 900))]  # fmt: skip
    rows = run_steps.rows_of(taken, 0, {"a": 1}, {})
    assert run_steps.ticks_of(rows, 0) == ["0", "0.3 s", "0.6 s", "0.9 s"]
