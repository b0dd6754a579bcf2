"""What a person does in a conversation: follow it, search it, and fork it with the keyboard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import eventq
    from tests.browser.conftest import Tab

pytestmark = pytest.mark.browser
_FETCHED = """() => { window.fetched = new Promise(done => {
  document.addEventListener("fresh", () => setTimeout(() => done(true)), { once: true });
}); }"""


def test_it_is_followed_and_an_open_call_stays(tab: Tab, thread: eventq.Thread) -> None:
    """What is said comes by itself; not while a call is open, whose lines somebody reads."""
    main = thread.contexts.create("main")
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    main.append(json.dumps({"role": "assistant", "content": [call]}))
    page = tab.show("contexts/main")
    main.append("said now")
    page.locator("#context").get_by_text("said now").wait_for()
    page.locator(".call > summary").click()
    page.evaluate(_FETCHED)
    main.append("said later")
    thread.push("self", "note", "x")
    page.evaluate("window.fetched")
    assert page.locator(".call[open]").count() == 1
    page.locator(".call > summary").click()
    thread.push("self", "note", "x")
    page.locator("#context").get_by_text("said later").wait_for()


def test_a_turn_is_in_view(tab: Tab, thread: eventq.Thread) -> None:
    """The links of the outline lead to their message, also on another page."""
    main = thread.contexts.create("main")
    with thread.write():
        for n in range(400):
            main.append(
                json.dumps({"role": "user" if n == 10 else "assistant", "content": f"{n}."})
            )
    page = tab.show("contexts/main")
    page.locator(".outline a").first.click()
    page.wait_for_url("**at=11#t-11")
    top = page.evaluate("document.getElementById('t-11').getBoundingClientRect().y")
    assert 0 <= top < page.viewport_size["height"]


def test_a_message_is_forked_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """The control beside it is seen when it has focus, and leads to the fork."""
    main = thread.contexts.create("main")
    main.append("the first")
    main.append("the second")
    page = tab.show("contexts/main")
    page.get_by_role("searchbox").focus()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.forkit')"):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).opacity") == "1"
    page.keyboard.press("Enter")
    page.get_by_text("Forked at turn 1.").wait_for()
    assert page.locator("#context").get_by_text("the second").count() == 0
    assert [one.head_turn_id for one in thread.contexts.list()] == [2, 1]


def test_a_search_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """A text and Enter show the lines with it, and the first one leads to its turn."""
    main = thread.contexts.create("main")
    for text in ("a needle here", "hay", "hay"):
        main.append(text)
    page = tab.show("contexts/main")
    page.get_by_role("searchbox").fill("needle")
    page.keyboard.press("Enter")
    page.locator("mark").wait_for()
    page.locator(".hits a").first.press("Enter")
    page.wait_for_url("**at=1#t-1")
