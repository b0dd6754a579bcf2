"""Live without a script: its lines, chips, stretches of time, what it finds, and its bounds."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import eventq
from eventq.http.pages import live_page
from eventq.records.event import NewEvent
from eventq.serving import event_pages, event_ranges
from eventq.serving.event_pages import newest_in
from eventq.serving.event_ranges import Stretch, around, last_before, spread, stretch
from eventq.system import clock as time
from tests.http.test_pages import EVIL, Text, client, seen
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx
    import pytest

    from tests.conftest import Clock
    from tests.http.conftest import Serve

__all__ = ["client"]
LIVE = "/t/thread/live"


def ids(page: Text) -> list[int]:
    """Return the events of a page, in its order."""
    found = [one for one in page.values("tr", "id") if one]
    return [int(one.removeprefix("e-")) for one in found]


def words(client: httpx.Client, at: str = LIVE) -> str:
    """Return the text of a page on one line."""
    found = client.get(at)
    assert found.status_code == 200, found.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found.text)).split())


def test_one_line_says_who_said_what(client: httpx.Client, thread: eventq.Thread) -> None:
    """By the rule of all views; the sender is shortened, with the whole source behind it."""
    said = {"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "git log"}},
    ]}  # fmt: skip
    thread.push("internal:dm:coder:main", "record", json.dumps(said), "toolcall")
    thread.push("self", "note", "")
    page = seen(client, LIVE)
    assert "record/toolcall coder agent Bash git log" in words(client)
    assert "internal:dm:coder:main" in page.values("td", "title")
    assert "(empty)" in page.text
    assert "/t/thread/events/1" in page.values("a", "href")


def test_the_newest_come_first_in_pages(client: httpx.Client, thread: eventq.Thread) -> None:
    """Those before them are a link away, with all that was chosen."""
    thread.push_many([("self", "odd" if n % 2 else "even", f"it is {n}") for n in range(300)])
    page = seen(client, LIVE)
    assert ids(page) == [*range(300, 200, -1)]
    assert "300 events in this hour" in words(client)
    older = next(link for link in page.values("a", "href") if link and "before=" in link)
    assert ids(seen(client, LIVE + older)) == [*range(200, 100, -1)]
    odd = seen(client, f"{LIVE}?type=odd")
    older = next(link for link in odd.values("a", "href") if link and "before=" in link)
    assert ids(seen(client, LIVE + older)) == [*range(100, 0, -2)]


def test_filter_text_and_a_mistake(client: httpx.Client, thread: eventq.Thread) -> None:
    """A mistake has its caret, and stays in what was written."""
    thread.push_many([("self", "odd" if n % 2 else "even", f"it is {n}") for n in range(99)])
    found = seen(client, f"{LIVE}?filter=type%3D'odd'&text=is+7")
    assert ids(found) == [80, 78, 76, 74, 72, 8]
    wrong = seen(client, f"{LIVE}?filter=type+%3D+odd&text=it")
    assert "type = odd\n         ^" in wrong.text
    assert "type = odd" in wrong.values("input", "value")
    assert ids(wrong) == []
    assert seen(client, f"{LIVE}?text='+OR+1").values("input", "value").count("' OR 1") == 1


def test_chips_count_what_the_other_choice_leaves(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Types of the chosen source, sources of the chosen type; the chosen one is marked."""
    thread.push_many([("a", "note", "x")] * 3 + [("b", "note", "x"), ("b", "task", "x")])
    assert "all note 4 task 1" in words(client)
    assert "all a 3 b 2" in words(client)
    at = f"{LIVE}?source=b&type=task"
    assert "all note 1 task 1" in words(client, at)
    assert "all b 1" in words(client, at)
    chosen = seen(client, at)
    marked = [tag["href"] for kind, tag in chosen.tags if kind == "a" and "aria-current" in tag]
    assert "?type=task&source=b" in marked
    assert ids(chosen) == [5]
    assert "none 0" in words(client, f"{LIVE}?source=b&type=none")


def test_many_types_are_folded(client: httpx.Client, thread: eventq.Thread) -> None:
    """The most frequent are in view; of a chosen one that is rare, so is that."""
    thread.push_many([("self", f"t{n}", "x") for n in range(30) for _ in range(30 - n)])
    page = words(client)
    assert "all t0 30 t1 29" in page
    assert "22 more" in page
    assert "all t29 1 t0 30" in words(client, f"{LIVE}?type=t29")


def test_a_filter_without_hits_says_where_there_are(
    client: httpx.Client, thread: eventq.Thread, clock: Clock
) -> None:
    """With the number of what was looked at, and a link to all time."""
    thread.push_many([("self", "rare", "x")] * 12)
    clock.move(7_200)
    thread.push_many([("self", "note", "x")] * 371)
    page = seen(client, f"{LIVE}?type=rare")
    assert "None of 371 in this hour; all time: 12 ." in words(client, f"{LIVE}?type=rare")
    assert "?range=all&type=rare" in page.values("a", "href")
    assert ids(seen(client, f"{LIVE}?range=all&type=rare")) == [*range(12, 0, -1)]
    assert "all time: 0" in words(client, f"{LIVE}?type=never")
    assert "None of 383 of all time." in words(client, f"{LIVE}?range=all&type=never")


def test_stretches_of_time(client: httpx.Client, thread: eventq.Thread, clock: Clock) -> None:
    """The last hour unless nothing came then; a day, a week, all."""
    assert "No event yet." in words(client)
    thread.push("self", "note", "old")
    clock.move(2 * 86_400)
    assert ids(seen(client, LIVE)) == [1]
    assert "None in this hour." in words(client, f"{LIVE}?range=hour")
    thread.push("self", "note", "later")
    clock.move(7_200)
    thread.push("self", "note", "new")
    for name, found in (("", [3]), ("hour", [3]), ("day", [3, 2]), ("week", [3, 2, 1])):
        assert ids(seen(client, f"{LIVE}?range={name}")) == found
    assert ids(seen(client, f"{LIVE}?range=all")) == [3, 2, 1]
    assert ids(seen(client, f"{LIVE}?range=no%20such")) == [3]


def test_around_an_event(client: httpx.Client, thread: eventq.Thread) -> None:
    """Its line has the fragment of the link, and is marked; no number is refused."""
    thread.push_many([("self", "note", f"{n}") for n in range(300)])
    page = seen(client, f"{LIVE}?id=100")
    assert ids(page) == [*range(150, 50, -1)]
    assert [tag["id"] for kind, tag in page.tags if tag.get("class") == "found"] == ["e-100"]
    assert "?id=100#e-100" in page.values("a", "href")
    assert ids(seen(client, f"{LIVE}?id=999")) == []
    assert ids(seen(client, f"{LIVE}?id=1"))[-1] == 1
    assert "is no number" in client.get(f"{LIVE}?id=x").text
    assert "is no number" in client.get(f"{LIVE}?before=x").text


def test_states_at_consumers(client: httpx.Client, thread: eventq.Thread) -> None:
    """With how many an event went how, in words too; a filter that does not match counts none."""
    thread.push_many([("self", "note", "x")] * 4)
    for name in ("a", "b"):
        thread.subscribe(name, max_attempts=1, on_failure="dead")
    thread.subscribe("never", filter="type = 'never'")
    thread.settle(dead=[one.token for one in thread.claim("a", 1)])
    thread.settle([one.token for one in thread.claim("a", 1)])
    thread.claim("a", 1)
    titles = [one for one in seen(client, LIVE).values("span", "title") if one and one[0].isdigit()]
    assert titles == ["2 waits", "1 held", "1 waits", "1 waits", "1 finished", "1 dead", "1 waits"]


def test_events_of_any_size_and_name(client: httpx.Client, thread: eventq.Thread) -> None:
    """A line is a line; names and sources are cut by the sheet alone, and nothing is markup."""
    thread.push("s" * 300, "t" * 40, EVIL)
    thread.push("self", "note", json.dumps({"a": "x" * 1_000_000}))
    thread.push(EVIL, EVIL, "é" * 500_000)
    page = seen(client, LIVE)
    assert ids(page) == [3, 2, 1]
    assert len(client.get(LIVE).text) < 40_000
    assert "s" * 300 in page.values("td", "title")
    assert [src for src in page.values("script", "src") if src] == [
        "/static/page.js", "/static/live.js",
    ]  # fmt: skip
    assert page.values("img", "src") == []


def test_a_search_ends_early_and_goes_on(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, with a link that goes on where it ended."""
    thread.push_many([("self", "rare", "x")] + [("self", "note", "x")] * 9_000)
    monkeypatch.setattr(event_pages, "SEARCH_SECONDS", -1.0)
    page = seen(client, f"{LIVE}?type=rare")
    said = "None of the newest 2,000 events in this hour; no others were looked at yet."
    assert said in words(client, f"{LIVE}?type=rare")
    further = next(link for link in page.values("a", "href") if link and "before=" in link)
    assert further == "?type=rare&before=7002"
    monkeypatch.setattr(event_pages, "SEARCH_SECONDS", 60.0)
    assert ids(seen(client, LIVE + further)) == [1]


def test_what_is_counted_is_bounded(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many events the types and sources of the newest are counted, and the page says so."""
    thread.push_many([("self", "old", "x")] * 50 + [("self", "new", "x")] * 50)
    monkeypatch.setattr(live_page, "COUNTED", 60)
    assert "all new 50 old 10" in words(client)
    assert "types and sources of the newest 60" in words(client)


def test_guests_are_not_told_where_the_thread_is(serve: Serve, path: str) -> None:
    """Nor how to push to it."""
    client = serve(path, write=False)
    del client.headers["authorization"]
    page = client.get(LIVE)
    assert page.status_code == 200
    assert path not in page.text


def test_ranges_of_a_log(postgres: str, clock: Clock, path: str) -> None:
    """A time is found by looks at ids, on each engine; bars have what came in their time."""
    for place in (path, fresh(postgres)):
        with eventq.open(place) as thread:
            check_ranges(thread, clock)


def check_ranges(thread: eventq.Thread, now: Clock) -> None:
    """Try stretches of a thread in which an event came each minute."""
    log = thread.database.events
    assert stretch(log, None)[:2] == (0, 0)
    assert stretch(log, 60.0)[:2] == (0, 0)
    assert spread(log, stretch(log, 60.0)).counts == [0] * event_ranges.BARS
    rows = [(n, time.stamp(now.at - 60.0 * (300 - n)), f"{n}") for n in range(1, 301)]
    restore(thread, rows)
    for minutes in (1, 7, 60, 299, 1_000):
        of = stretch(log, minutes * 60.0 - 1)
        assert (of.after, of.upto) == (max(0, 300 - minutes), 300)
    hour = spread(log, stretch(log, 3_600.0 - 1))
    assert (sum(hour.counts), max(hour.counts), hour.is_exact) == (60, 1, True)
    assert last_before(log, time.stamp(0), 0, 300) == 0
    assert last_before(log, rows[99][1], 0, 300) == 99  # not the one of that very moment
    assert last_before(log, "9", 0, 300) == 300
    assert around(log, 250, 10)[:2] == (239, 260)
    assert around(log, 1, 10)[:2] == (0, 11)
    assert around(log, 999, 10)[:2] == (300, 300)
    assert newest_in(thread, "id < 9", 0, 300, 3).events[0].id == 6
    assert newest_in(thread, None, 290, 300, 99).reached == 290


def restore(thread: eventq.Thread, rows: Sequence[tuple[int, str, str]]) -> None:
    """Store events with their times."""
    events: Any = thread.database.events
    with thread.write():
        events.restore([(number, at, NewEvent("self", "note", one)) for number, at, one in rows])


def test_a_spread_of_many_is_of_samples(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stands for those before it, and all of them are accounted for."""
    thread.push_many([("self", "note", "x")] * 5_000)
    now = time.now()
    found = spread(thread.database.events, Stretch(0, 5_000, now - 60, now))
    assert (sum(found.counts), found.is_exact) == (5_000, False)
