"""Pages of what is odd: damaged payloads, headings without an end, threads that go meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import eventq
from eventq.http.pages import output_kinds
from tests.http.test_pages import client, seen

if TYPE_CHECKING:
    import httpx


__all__ = ["client"]  # a fixture

AT = "/t/thread/contexts/main"


def test_a_heading_of_any_length() -> None:
    """It is read once: what tried each of its signs would take an hour."""
    (part,) = output_kinds.document("# Title " + "# " * 500_000 + "end")
    assert part.title.startswith("Title # #")
    headings = ("# a b", "## a # b #  ", "# #", "#\t", "### a\t#")
    assert [one.title for one in output_kinds.document("\n".join(headings))] == [
        "a b", "a # b", "", "", "a",
    ]  # fmt: skip


def test_a_turn_of_a_tool_with_nothing_to_show(client: httpx.Client, thread: eventq.Thread) -> None:
    """It may be the first one of a page."""
    main = thread.contexts.create("main")
    main.append(json.dumps({"role": "tool", "content": [{"type": "thinking", "thinking": ""}]}))
    main.append("said after it")
    assert "said after it" in seen(client, AT).text


def test_there_is_nothing_before_the_first_turn(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """So that one is shown, and a link to what comes after it."""
    main = thread.contexts.create("main")
    for n in range(3):
        main.append(f"turn number {n}")
    page = seen(client, f"{AT}?before={main.ancestor(0)}")
    assert ("turn number 0" in page.text, "turn number 1" in page.text) == (True, False)
    assert f"?after={main.ancestor(0)}" in page.values("a", "href")
