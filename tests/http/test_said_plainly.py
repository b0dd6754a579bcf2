"""Words and states of pages: one word for one thing, and nothing that is not known."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.http.pages import wording
from tests.http.test_page_words import words
from tests.http.test_pages import client, seen  # noqa: F401 (client: a fixture)

if TYPE_CHECKING:
    import httpx
    import pytest

    import eventq

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
