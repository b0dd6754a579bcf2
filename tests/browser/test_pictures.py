"""Every page of a world that has something of everything: accessible, at each width, unharmed.

With EVENTQ_PICTURES=FOLDER it leaves a picture of each, those of docs/images.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from tests.browser.conftest import opened
from tests.browser.world import World
from tests.http.conftest import TOKEN, Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Until

pytestmark = pytest.mark.browser
EVIL = "<script>window.evil=1</script><img src=x onerror='window.evil=1'>[x](javascript:evil=1)"
PAGES = {
    "now-all": "/",
    "now": "/t/atelier/",
    "calm": "/t/nightly/",
    "empty": "/t/scratch/",
    "answers": "/t/atelier/answers",
    "live": "/t/atelier/live",
    "event": "/t/atelier/events/3355",
    "consumers": "/t/atelier/consumers",
    "consumer": "/t/atelier/consumers/mailer",
    "drop": "/t/atelier/consumers/mailer/drop?event-3317=on&event-3309=on",
    "stalled": "/t/atelier/consumers/deploy-bot",
    "runs": "/t/atelier/runs",
    "run": "/t/atelier/runs/release-2.14.3",
    "step": "/t/atelier/runs/release-2.14.3?step=2",
    "context": "/t/atelier/contexts/theme-port",
    "context-found": "/t/atelier/contexts/theme-port?q=theme",
    "context-tools": "/t/atelier/contexts/theme-port?only=tools",
    "context-failed": "/t/atelier/contexts/theme-port?only=failed",
    "agent": "/t/atelier/contexts/theme-port%2Fagent-a1b2c3d4e5f60718",
    "branches": "/t/atelier/branches",
    "columns": "/t/atelier/branches?zoom=0",
    "diff": "/t/atelier/diff?a=design-notes&b=tabs",
    "turn": "/t/atelier/turns/12",
    "output": "/t/atelier/output",
    "artifact": "/t/atelier/output/0",
    "artifact-failed": "/t/atelier/output/0?lines=failed",
    "image": "/t/atelier/output/1",
    "binary": "/t/atelier/output/2",
    "document": "/t/atelier/published/0-report",
    "document-later": "/t/atelier/published/0-report?version=2",
    "changes": "/t/atelier/published/0-report?version=2&as=changes",
    "json": "/t/atelier/published/1-counts_json",
    "health": "/t/atelier/health",
}
WIDTHS = (360, 390, 768, 1360, 1920)
HIGH = 850  # pixels of a picture
LIGHT = (  # of which docs/images has pictures
    "now-all", "live", "event", "consumers", "consumer", "drop", "branches", "context", "agent",
    "turn", "diff", "runs", "step", "output", "artifact", "document", "changes", "health", "empty",
    "answers",
)  # fmt: skip
DARK = ("now-all", "live", "consumer", "agent", "artifact")


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, until: Until
) -> Iterator[Any]:
    """Return a server of the world, whose last hour was looked at each minute."""
    place = tmp_path_factory.mktemp("world") / "world"
    if os.environ.get("EVENTQ_PICTURES"):  # they show where it is
        place = Path("/tmp/desk")
        shutil.rmtree(place, ignore_errors=True)
    with patch("eventq.system.environment.user_name", lambda: "dana"):  # who answers
        made = World(place, getattr(request, "param", ""))
    options = {"token": TOKEN, "write": True, "insecure": False}
    running = Running(made.paths, "127.0.0.1:0", options)
    atelier = running.server.threads["atelier"]
    until(lambda: atelier.history.waiting("mailer"), "it was looked at")
    for status in (made.seen[0], *made.seen):  # which drops the first look
        atelier.history.add(status)
    yield running
    running.stop()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(browser: Any, server: Any, name: str, theme: str) -> None:
    """In both themes, at each width, with all that folds shut and open."""
    with opened(browser, server, color_scheme=theme) as tab:
        tab.page.set_viewport_size({"width": 1360, "height": HIGH})
        assert tab.page.goto(tab.url + PAGES[name]).ok
        place = os.environ.get("EVENTQ_PICTURES")
        if place and name in (LIGHT if theme == "light" else DARK):
            tab.page.screenshot(path=f"{place}/{name}-{theme}.png")
        for _ in range(2):
            assert tab.faults() == []
            for width in WIDTHS:
                tab.page.set_viewport_size({"width": width, "height": HIGH})
                assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
            tab.page.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )


@pytest.mark.parametrize("server", [EVIL], indirect=True)
def test_hostile_texts_do_nothing(browser: Any, server: Any) -> None:
    """Whatever agents write is text: no page runs it, links to it, or asks another host."""
    asked: list[str] = []
    with opened(browser, server) as tab:
        tab.page.on("request", lambda one: asked.append(one.url))
        for path in PAGES.values():
            assert tab.page.goto(tab.url + path).ok, path
            tab.page.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )
            assert tab.page.evaluate("window.evil") is None, path
            assert tab.page.locator("[href^='javascript:' i], main script").count() == 0, path
        assert [one for one in asked if not one.startswith(tab.url)] == []
