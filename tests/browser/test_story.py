"""The story of README.md, with the click that it asks for, and its picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.story import tell

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Until

pytestmark = pytest.mark.browser


def test_a_person_approves_in_the_browser(browser: Any, tmp_path: Path, until: Until) -> None:
    """The link of `eventq ui` leads to the question; one press of the button deploys."""

    def answer(link: str) -> None:
        page = browser.new_context().new_page()
        page.goto(link)
        page.get_by_text("May coder deploy?").wait_for()
        place = os.environ.get("EVENTQ_PICTURES")
        if place:
            page.set_viewport_size({"width": 900, "height": 510})
            page.screenshot(path=f"{place}/story.png")
        page.get_by_role("button", name="approve").click()
        page.get_by_text("Nobody needs you").wait_for()
        page.get_by_role("link", name="Consumers", exact=True).click()
        page.get_by_text("idle", exact=True).wait_for()
        page.context.close()

    _, printed = tell(tmp_path, answer, until)
    assert printed.count("\ndeployed {") == 1
