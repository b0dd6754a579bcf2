"""The page of branches: lanes as wide as the page, columns and dots by kind, zooms, what is read."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.http.pages import branch_pages, lanes, turn_kinds
from eventq.records.turn import ContextInfo
from tests.http.test_pages import EVIL, Text, client, seen  # noqa: F401 (client: a fixture)
from tests.http.test_talk import started  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    import httpx

AT = "/t/thread/branches"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a look read for as long as it takes."""
    monkeypatch.setattr(branch_pages, "SECONDS", 60)


def fill(context: eventq.Context, count: int) -> None:
    """Append turns of a chat: user, agent, tool, and so on."""
    for number in range(count):
        role = ("user", "assistant", "tool")[number % 3]
        context.append(json.dumps({"role": role, "content": f"said {number}"}))


def hovers(page: Text) -> list[str]:
    """Return what columns and dots say."""
    return [line for line in page.text.splitlines() if line.startswith("place") and ":" in line]


def drawn(page: Text) -> dict[str, int]:
    """Return how many columns or dots of each kind are drawn."""
    found: dict[str, int] = {}
    for tag, one in page.tags:
        if tag == "path" and (one.get("class") or "").startswith("b-"):
            kind = str(one["class"])
            found[kind] = found.get(kind, 0) + str(one["d"]).count("M")
    return found


def is_unfinished(page: Text) -> bool:
    """Return whether the script fetches a page again at once."""
    return any("data-unfinished" in one for _, one in page.tags)


def test_a_dot_is_a_turn(client: httpx.Client, thread: eventq.Thread) -> None:
    """Of its kind, and says what it is; a fork begins where it leaves the other."""
    main = thread.contexts.create("main")
    fill(main, 5)
    call = [{"type": "tool_result", "tool_use_id": "x", "content": "no", "is_error": True}]
    fork = main.fork(at=2, name="other")
    fork.append(json.dumps({"role": "user", "content": call}))
    fork.append(b"\xff\x00 bytes")
    page = seen(client, AT)
    assert drawn(page) == {"b-user": 2, "b-agent": 2, "b-tool": 1, "b-failed": 1, "b-other": 1}
    assert "from place 1" in page.text
    assert hovers(page)[:2] == ["place 0: user", "place 1: agent"]
    assert hovers(page)[-2:] == ["place 2: failed", "place 3: other"]
    links = [one for tag, one in page.tags if tag == "a" and "tabindex" in one]
    assert {one["tabindex"] for one in links} == {"-1"}
    assert links[-1]["href"] == "/t/thread/contexts/2?depth=3"
    assert "a dot is a turn" in page.text
    assert not [name for _, found in page.tags for name in found if name == "style"]


def test_the_default_zoom_shows_most_contexts_whole(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """The finest that holds four fifths of them."""
    for number in range(4):
        fill(thread.contexts.create(f"short {number}"), 3)
    fill(thread.contexts.create("long"), 50)
    page = seen(client, AT)
    current = [one for tag, one in page.tags if tag == "a" and one.get("aria-current") == "true"]
    assert [one["href"] for one in current] == ["?zoom=40"]
    assert "10 beyond ›" in page.text
    assert "?zoom=40&from=40" in page.values("a", "href")
    page = seen(client, f"{AT}?zoom=40&from=40")
    assert "‹ 40 before" in page.text
    assert hovers(page)[0] == "place 40: agent"
    fill(thread.contexts.create("long too"), 50)
    current = [
        one for tag, one in seen(client, AT).tags
        if tag == "a" and one.get("aria-current") == "true"
    ]  # fmt: skip
    assert [one["href"] for one in current] == ["?zoom=160"]


def test_all_turns_are_columns(client: httpx.Client, thread: eventq.Thread) -> None:
    """At most 160 of equal counts, each as high as it has turns."""
    with thread.write():
        fill(thread.contexts.create("long"), 400)
    page = seen(client, f"{AT}?zoom=0")
    assert len(hovers(page)) == 134
    assert hovers(page)[0] == "places 0 to 2: 1 tool, 1 agent, 1 user"
    assert hovers(page)[-1] == "place 399: user"
    assert "one column is 3 turns" in page.text
    assert drawn(page) == {"b-tool": 133, "b-agent": 133, "b-user": 134}


def test_what_was_not_read_yet_is_said(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads for so long; how many turns there are is drawn at once; the rest comes later."""
    with thread.write():
        fill(thread.contexts.create("long"), 300)
    monkeypatch.setattr(branch_pages, "SECONDS", -1)
    monkeypatch.setattr(branch_pages, "SECONDS_AGAIN", 60)
    page = seen(client, f"{AT}?zoom=0")
    assert drawn(page) == {"b-unknown": 150}
    assert "not read yet" in page.text
    assert is_unfinished(page)
    assert hovers(page)[0] == "places 0 to 1: 2 unknown"
    again = {"sec-fetch-dest": "empty"}  # of the script of a page that is shown
    assert "b-unknown" not in drawn(Text(client.get(f"{AT}?zoom=0", headers=again).text))
    page = seen(client, f"{AT}?zoom=0")
    assert "not read yet" not in page.text
    assert not is_unfinished(page)
    assert sum(drawn(page).values()) == 300


def test_what_is_known_follows_the_head(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it goes elsewhere, and when all that is known is let go."""
    main = thread.contexts.create("main")
    fill(main, 3)
    assert drawn(seen(client, AT)) == {"b-user": 1, "b-agent": 1, "b-tool": 1}
    fill(main, 2)
    assert drawn(seen(client, AT)) == {"b-user": 2, "b-agent": 2, "b-tool": 1}
    main.move(2)
    main.append(json.dumps({"role": "assistant", "content": "another way"}))
    assert drawn(seen(client, AT)) == {"b-user": 1, "b-agent": 2}
    monkeypatch.setattr(turn_kinds, "MOST", 0)
    fill(main, 1)
    assert drawn(seen(client, AT)) == {"b-user": 2, "b-agent": 2}


@pytest.mark.usefixtures("started")
def test_a_subagent_has_a_colour_of_its_own(client: httpx.Client) -> None:
    """In its lane, beside that of its session; both say which tool they are of."""
    page = seen(client, f"{AT}?zoom=160")
    found = drawn(page)
    assert found["b-subagent"] == 29
    assert found["b-agent"] == 3
    assert "subagent" in page.text
    assert "claude ·" in page.text


def test_few_columns_say_what_they_are_where_there_are_many(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page stays small; labels and numbers are there."""
    monkeypatch.setattr(branch_pages, "HOVERS", 4)
    for name in ("one", "two"):
        fill(thread.contexts.create(name), 3)
    page = seen(client, AT)
    assert len(hovers(page)) == 3
    assert sum(drawn(page).values()) == 6


def test_names_are_looked_for(client: httpx.Client, thread: eventq.Thread) -> None:
    """Among those that are drawn; empty contexts are there, too, and no context says what to do."""
    assert "Nothing was said yet" in seen(client, AT).text
    thread.contexts.create("empty one")
    fill(thread.contexts.create("Other"), 2)
    page = seen(client, f"{AT}?name=OTHER&zoom=160")
    assert "empty one" not in page.text
    assert "?zoom=40&name=OTHER" in page.values("a", "href")
    assert "No context that changed lately" in seen(client, f"{AT}?name=none").text
    assert "empty one: 0 turns" in seen(client, AT).text


def test_lanes_do_not_become_markup(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whatever names, types and texts say; long labels are whole."""
    name = f"{EVIL} {'x' * 120}"
    context = thread.contexts.create(name)
    context.append(eventq.NewTurn(EVIL, EVIL))
    context.append(json.dumps({"role": EVIL, "content": EVIL}))
    for query in ("", "?zoom=0", f"?name={'x' * 9}", "?zoom=99&from=5", "?from=99999999999"):
        page = seen(client, f"{AT}{query}")
        assert name in page.text
        assert not [tag for tag, _ in page.tags if tag == "img"]
        assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert client.get(f"{AT}?zoom=x").status_code == 400


def test_lines_between_lanes() -> None:
    """From the lane that is left, through those between, to the one that leaves."""
    info = ContextInfo(1, "x", 0, 0, 0, None, 0, 0, 0, 0)
    rows = [
        lanes.Lane(info, 0, 0, 0, 9, None), lanes.Lane(info, 1, 0, 3, 4, 0),
        lanes.Lane(info, 2, 0, 6, 7, 0), lanes.Lane(info, 3, 0, 50, 60, 0),
    ]  # fmt: skip
    found = lanes.ways_of(rows, lanes.scale_of(rows, 40, 0))
    assert [one.out for one in found] == [["6.25%", "13.75%"], [], [], []]
    assert [one.into for one in found] == [None, "6.25%", "13.75%", None]
    assert [one.past for one in found] == ["", "M5.5 0v100", "", ""]
