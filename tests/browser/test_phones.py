"""Pages on a phone: what belongs on a line stays on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import eventq
    from tests.browser.conftest import Tab

pytestmark = pytest.mark.browser
DAY = 86_400


@pytest.mark.parametrize("width", [360, 390])
def test_when_a_letter_died_is_on_one_line(tab: Tab, thread: eventq.Thread, width: int) -> None:
    """With its name, after minutes and after days."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push("self", "note", "x")
    thread.settle(dead=[one.token for one in thread.claim("w")], error="it broke")
    at = next(iter(thread.dead_letters("w"))).died_at_ms / 1000
    tab.page.set_viewport_size({"width": width, "height": 700})
    for later in (24 * 60, 12 * DAY):
        tab.page.clock.set_fixed_time((at + later) * 1000)
        died = tab.show("consumers/w").locator("[data-l=died]")
        lines = died.evaluate(
            "one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)"
        )
        assert 1 <= lines < 2
