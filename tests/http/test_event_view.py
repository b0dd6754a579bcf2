"""The page of an event: its content, how it went with consumers, its causes, effects, neighbours."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING

from eventq.http.pages.wording import json_words, pretty
from eventq.serving import fates as looking
from eventq.serving.fates import fate_counts, fates
from tests.http.test_pages import EVIL, client, seen, send
from tests.servers import fresh

if TYPE_CHECKING:
    import httpx
    import pytest

    import eventq
    from tests.conftest import Clock
    from tests.http.conftest import Serve

__all__ = ["client"]


def words(client: httpx.Client, number: int) -> str:
    """Return the text of an event's page on one line."""
    found = client.get(f"/t/thread/events/{number}")
    assert found.status_code == 200, found.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found.text)).split())


def went(thread: eventq.Thread, number: int) -> list[tuple[str, str]]:
    """Return how an event went, by consumer."""
    event = thread.database.events.get(number)
    assert event is not None
    return [(one.consumer.consumer, one.state) for one in fates(thread, event)]


def test_json_is_shown_with_quiet_keys(client: httpx.Client, thread: eventq.Thread) -> None:
    """With indents; keys inside of texts are none, and markup is text."""
    said = {"order": 1, "note": '"a": <b>\n"c": 2', "lines": [{"sku": EVIL}], "": None}
    thread.push("self", "order", json.dumps(said))
    found = client.get("/t/thread/events/1").text
    assert '<span class="quiet">&#34;order&#34;:</span> 1' in found
    assert len(re.findall('<span class="quiet">&#34;', found)) == 5
    assert "<b>" not in found
    for text in ("{}", "[", '{\n  "a\\"b": {\n    "c": 1\n  }\n}', '"' * 9_000, '  "a' * 9_000, ""):
        pieces = json_words(text)
        assert "".join(piece for _, piece in pieces) == text
    assert [key for is_key, key in json_words('{\n  "a\\"b": "c:"\n}') if is_key] == ['"a\\"b":']


def test_a_large_event_is_cut(client: httpx.Client, thread: eventq.Thread) -> None:
    """The page says how much is left out, and leads to all of it."""
    thread.push("self", "order", json.dumps({"a": "x" * 1_000_000}))
    page = client.get("/t/thread/events/1")
    assert len(page.text) < 60_000
    assert "more characters" in page.text
    assert "/api/threads/thread/events/1" in seen(client, "/t/thread/events/1").values("a", "href")
    assert len(pretty("[" + "1," * 9_000 + "1]", 20_000)) < 20_100


def test_how_it_went_with_each_consumer(
    client: httpx.Client, thread: eventq.Thread, clock: Clock
) -> None:
    """Dead with its reason, held by whom, waiting, finished; who does not want it is counted."""
    for name, filters in (("a", None), ("b", None), ("c", None), ("d", None), ("e", "id < 0")):
        thread.subscribe(name, filter=filters, max_attempts=1, on_failure="dead")
    thread.subscribe("f", filter="type = 'order'")
    thread.push("self", "note", "x")
    error = 'Traceback (most recent call last):\n  File "a"\nOSError: no disk 7'
    thread.settle(dead=[one.token for one in thread.claim("a")], error=error)
    thread.claim("b", lease=60, worker="refunds-2")
    thread.settle(thread.claim("c"))
    thread.pause("d")
    assert went(thread, 1) == [
        ("a", "dead"), ("b", "held"), ("d", "waits"), ("c", "finished"), ("e", "not for it"),
        ("f", "not for it"),
    ]  # fmt: skip
    page = words(client, 1)
    assert "Who reads it 1 dead, 1 held, 1 waits, 1 finished, 2 not for it" in page
    dead = re.search(r"a dead 1 attempt, 2026-03-18T10:30:00\.12.Z (.*) b held", page)
    assert dead is not None
    assert dead[1] == "OSError: no disk 7 Retry"
    assert "b held refunds-2 has it, attempt 1; its claim ends 2026-03-18T10:31:00.12" in page
    assert "d waits paused, acked up to event 0" in page
    assert "2 consumers not for it their filters do not match: id < 0 and 1 more" in page
    send(client, "retry", "/t/thread/events/1", consumer="a", event=1)
    assert "a waits 1 attempt" not in words(client, 1)
    assert went(thread, 1)[1] == ("a", "waits")


def test_what_is_tried_again_is_not_dead(thread: eventq.Thread) -> None:
    """Though its dead letter is still there after a replay; who pops has done what it acked."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.subscribe("pops", "true")
    thread.push_many([("self", "note", "x")] * 2)
    thread.settle(dead=thread.claim("w"))
    thread.ack("pops", 1)
    assert went(thread, 1) == [("w", "dead"), ("pops", "finished")]
    assert went(thread, 2) == [("w", "waits"), ("pops", "waits")]
    thread.ack("w", 0, replay=True)
    thread.claim("w")
    assert [one.event_id for one in thread.dead_letters("w")] == [1]
    assert went(thread, 1) == [("w", "held"), ("pops", "finished")]


def test_attempts_that_are_made_again(client: httpx.Client, thread: eventq.Thread) -> None:
    """When the next one comes, what stands behind another one of its group, and what stalled."""
    thread.subscribe("w", ordered_by="source", backoff=(60, 60))
    thread.subscribe("s", "false", each=True, max_attempts=1, on_failure="stall", concurrency=1)
    thread.push_many([("self", "note", "x")] * 2)
    thread.settle(retry=thread.claim("w"), error="later")
    thread.claim("w")
    assert "w waits 1 attempt, again" in words(client, 1)
    assert "later" in words(client, 1)
    assert "w waits behind an earlier event of its group" in words(client, 2)
    thread.settle(retry=thread.claim("s"), error="stop")
    assert "s stalled 1 attempt stop" in words(client, 1)


def test_a_filter_that_cannot_be_judged(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides no other; nothing is said of an event that it may match."""
    thread.subscribe("w", filter="type = 'note'")
    thread.subscribe("all")
    thread.push("self", "note", "x")
    monkeypatch.setattr(looking, "MATCH_SECONDS", -1.0)
    assert went(thread, 1) == [("all", "waits"), ("w", "unknown")]
    assert "w unknown its filter cannot be run, or takes too long" in words(client, 1)
    counts = fate_counts(thread, [*thread.peek()])
    assert counts == {1: [("waits", 1)]}
    assert fate_counts(thread, []) == {}


def test_no_consumer_of_a_page_is_left_out(thread: eventq.Thread) -> None:
    """Also where each of very many has a dead letter of each event."""
    thread.push_many([("self", "note", "x")] * 100)
    for n in range(60):
        thread.subscribe(f"c{n}", max_attempts=1, on_failure="dead")
        thread.settle(dead=thread.claim(f"c{n}", limit=100))
    counts = fate_counts(thread, [*thread.peek(limit=100)])
    assert [*counts.values()] == [[("dead", 60)]] * 100


def test_fates_of_many_are_those_of_each(thread: eventq.Thread) -> None:
    """Of a range, of some that were chosen, and of large ones."""
    thread.subscribe("w", "true", filter="type = 'note' AND length(content) < 9")
    for number in range(6):
        large = "large " * 50_000 if number == 4 else "small"
        thread.push("self", ("note", "other")[number % 2], large)
    events = [*thread.peek()]
    expected = {one.id: fate_counts(thread, [one])[one.id] for one in events}
    assert [len(found) for found in expected.values()] == [1, 0, 1, 0, 0, 0]
    for some in (events, events[:4], events[::2], events[1::2], events[::-1]):
        assert fate_counts(thread, some) == {one.id: expected[one.id] for one in some}


def test_fates_in_postgresql(postgres: str) -> None:
    """They are the same there."""
    import eventq

    with eventq.open(fresh(postgres)) as thread:
        thread.subscribe("a", filter="type = 'note'", max_attempts=1, on_failure="dead")
        thread.subscribe("b", filter="content LIKE '%y%'")
        thread.push_many([("self", "note", "x")] * 3)
        thread.settle(dead=thread.claim("a"))
        thread.settle(thread.claim("a"))
        assert [went(thread, n)[0] for n in (1, 2, 3)] == [
            ("a", "dead"), ("a", "finished"), ("a", "waits"),
        ]  # fmt: skip
        assert went(thread, 1)[1] == ("b", "not for it")


def test_what_led_to_it_and_came_of_it(client: httpx.Client, thread: eventq.Thread) -> None:
    """Each with what it says, as far as it is there."""
    first = thread.push("external:webhook:shop:shop:acme:acme", "order", "a lamp").id
    with thread.during(first):
        asked = thread.ask("Refund it?").question_id
        turn = thread.contexts.create("main").append("It was **sent**").turn_id
        for n in range(30):
            thread.push("self", "note", f"note {n}")
    page = words(client, first)
    assert "What came of it the first of each" in page
    assert f"question event {asked} Refund it?" in page
    assert f"turn turn {turn} It was **sent**" in page
    assert "note event 21 note 18" in page
    assert "What led to it order event 1 a lamp" in words(client, asked)
    assert "What led to it" not in page


def test_questions_and_answers_know_each_other(client: httpx.Client, thread: eventq.Thread) -> None:
    """A question says what was answered, an answer to what."""
    asked = thread.ask("Which name?", run=7).question_id
    assert "answer waits run 7" in words(client, asked)
    thread.answer(asked, "north")
    assert "answer north by" in words(client, asked)
    assert "answers event 1 : Which name?" in words(client, asked + 1)
    assert "key answer:1" in words(client, asked + 1)


def test_neighbours(client: httpx.Client, thread: eventq.Thread) -> None:
    """Those around it, and the next one on each side, at both ends of the log, too."""
    thread.push_many([("self", "note", f"it is {n}") for n in range(1, 21)])
    links = seen(client, "/t/thread/events/10").values("a", "href")
    around = [f"/t/thread/events/{n}" for n in range(14, 5, -1)]
    assert [one for one in links if one in around][2:] == around
    assert "‹ 9" in words(client, 10)
    assert "11 ›" in words(client, 10)
    assert "‹" not in words(client, 1)
    assert "›" not in words(client, 20)


def test_guests_are_not_told_errors(serve: Serve, path: str, thread: eventq.Thread) -> None:
    """And have no button."""
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.push("self", "note", "x")
    thread.settle(dead=thread.claim("w"), error="the secret is 7")
    guest = serve(path, write=False)
    del guest.headers["authorization"]
    page = guest.get("/t/thread/events/1").text
    assert "dead" in page
    assert "secret" not in page
    assert "<button" not in page
