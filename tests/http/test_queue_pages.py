"""Consumers without a script: worst first with why, their rates; one, with dead letters by reason."""

from __future__ import annotations

import re
import threading
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http.pages import health_page
from eventq.serving import letters as shown_letters
from eventq.serving.history import History
from tests.http.test_pages import EVIL, client, seen, send
from tests.servers import fresh

if TYPE_CHECKING:
    from tests.conftest import Clock
    from tests.http.conftest import Serve

__all__ = ["client"]
LIST = "/t/thread/consumers"
ONE = "/t/thread/consumers/mailer"
TRACE = 'Traceback (most recent call last):\n  File "mail.py", line {0}\nOSError: refused {0}\n'


def words(client: httpx.Client, at: str) -> str:
    """Return the text of a page on one line."""
    found = client.get(at)
    assert found.status_code == 200, found.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found.text)).split())


def names(client: httpx.Client, at: str = LIST) -> list[str]:
    """Return the consumers of the list, in its order."""
    links = [one or "" for one in seen(client, at).values("a", "href")]
    return [one.rpartition("/")[2] for one in links if one.startswith(f"{LIST}/")]


def bury(thread: eventq.Thread, number: int, error: str) -> None:
    """Let the next events of a consumer fail for good."""
    for claim in thread.claim("mailer", number):
        thread.settle(dead=[claim], error=error.format(claim.event.id))


def dead(thread: eventq.Thread) -> list[int]:
    """Return which events are dead letters."""
    return [one.event_id for one in thread.dead_letters("mailer")]


@pytest.fixture
def mailer(clock: Clock, thread: eventq.Thread) -> eventq.Thread:
    """Return a thread whose consumer has dead letters of two reasons."""
    thread.subscribe("mailer", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "order", f"order {n}") for n in range(1, 9)])
    bury(thread, 4, TRACE)
    bury(thread, 2, "no such user {}")
    return thread


def test_the_worst_come_first_with_why(
    client: httpx.Client, thread: eventq.Thread, clock: Clock
) -> None:
    """Or by name, or by what waits; the head counts them."""
    for name in ("idle", "mailer", "stalled", "paused", "late"):
        where = "type = 'none'" if name == "idle" else None
        thread.subscribe(name, "false" if name == "stalled" else None, filter=where,
                         max_attempts=1, on_failure=None if name == "stalled" else "dead")  # fmt: skip
    thread.push("self", "note", "x")
    bury(thread, 1, "broken pipe 7")
    thread.pause("paused")
    state = thread.database.consumers.get("stalled")
    assert state is not None
    thread.database.consumers.note_run(state, stalled="it cannot log in")
    clock.move(90)
    assert names(client) == ["stalled", "mailer", "late", "paused", "idle"]
    page = words(client, LIST)
    assert "5: 1 stands still, 2 in trouble, 1 paused; 3 events wait" in page
    assert "stalled it cannot log in" in page
    assert "1 dead 1 × broken pipe …" in page
    assert "behind waits for a program that claims or pops its events; none is known" in page
    assert names(client, f"{LIST}?by=name") == ["idle", "late", "mailer", "paused", "stalled"]
    assert names(client, f"{LIST}?by=waiting")[-2:] == ["idle", "mailer"]
    assert names(client, f"{LIST}?by=no+such")[0] == "stalled"
    send(client, "resume", LIST, consumer="paused")
    assert "paused" not in words(client, LIST).split("5: ")[1].split(";")[0]


def test_nobody_has_subscribed(client: httpx.Client) -> None:
    """The page says how somebody does."""
    assert "Nobody has subscribed yet." in words(client, LIST)
    assert "eventq subscribe --thread" in words(client, LIST)
    assert client.get(ONE).status_code == 404
    assert client.get(f"{ONE}/drop").status_code == 404


def test_rates_are_of_the_last_ten_minutes(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came and what was done a minute; a dash where nobody can know."""
    at = [0.0]
    monkeypatch.setattr("eventq.system.clock.monotonic", lambda: at[0])
    thread.subscribe("all")
    thread.subscribe("some", filter="type = 'note'")
    thread.subscribe("loop", "true")
    thread.subscribe("pops", "true", filter="type = 'note'")
    history = History()
    assert history.window() == 0

    def rates(done: int = 0) -> dict[str, Any]:
        found = thread.status()
        return {one.consumer_id: history.rates(one, found.last_id, done) for one in found.consumers}

    assert {*rates().values()} == {(None, None)}
    history.add(thread.status())
    assert {*rates().values()} == {(None, None)}
    thread.push_many([("self", "note", "x")] * 6 + [("self", "order", "x")] * 6)
    thread.ack("loop", 3)
    at[0] = 120.0
    assert rates(4) == {
        "all": (6.0, 2.0), "some": (5.0, 2.0), "loop": (6.0, 1.5), "pops": (None, None),
    }  # fmt: skip
    history.add(thread.status())
    at[0] = 700.0
    assert history.window() == 580.0
    assert history.ages("all") == [0, pytest.approx(history.ages("all")[1])]
    thread.subscribe("new")
    assert rates()["new"] == (None, None)


def test_looks_are_noted_while_pages_read_them(mailer: eventq.Thread) -> None:
    """One of an OS thread is added while another reads them all."""
    history, status, is_over = History(), mailer.status(), threading.Event()
    history.add(status)

    def note() -> None:
        while not is_over.is_set():
            history.add(status)

    noting = threading.Thread(target=note)
    noting.start()
    try:
        for _ in range(2_000):
            history.waiting("mailer")
            history.earlier()
    finally:
        is_over.set()
        noting.join()


def test_a_consumer_with_its_hour(
    client: httpx.Client, mailer: eventq.Thread, clock: Clock
) -> None:
    """What waits, what was done and failed in each minute, how it is set up, who works."""
    mailer.settle(mailer.claim("mailer"))
    mailer.claim("mailer", worker="build-02")
    page = words(client, ONE)
    assert "6 dead acked up to event 7" in page
    assert "Waiting 1 event waits" in page
    assert "Done a minute 1 in this hour" in page
    assert "attempts at most 1, then a dead letter; 1 s between two, doubling up to 300 s" in page
    assert "build-02: 1 event" in page
    svg = seen(client, ONE).values("svg", "aria-label")
    assert "Attempts: 7, at most 7 at a time, 6 of them failed" in svg
    clock.move(3_700)
    assert "Done a minute 0 in this hour" in words(client, ONE)


def test_a_filter_that_cannot_be_run_has_its_caret(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """On the page of its consumer."""
    import apsw

    thread.subscribe("mailer", filter="type = 'x'")
    with apsw.Connection(f"{thread.path}/events.db") as db:
        db.execute("UPDATE subscriptions SET filter = 'type = oops'")
    assert "  type = oops\n         ^" in seen(client, ONE).text
    assert "its filter cannot be run type = oops" in words(client, LIST)
    thread.subscribe("mailer", replace=True)


def test_reasons_are_chips_that_filter(client: httpx.Client, mailer: eventq.Thread) -> None:
    """With the rows and the counts of one; the last that died is the first."""
    page = words(client, ONE)
    assert "6 dead letters all 6 OSError: refused … 4 no such user … 2" in page
    assert page.index("order 6") < page.index("order 1")
    chosen = f"{ONE}?{httpx.QueryParams({'reason': 'no such user …'})}"
    assert chosen.replace("+", "%20") in [
        (one or "").replace("+", "%20") for one in seen(client, ONE).values("a", "href")
    ]
    found = words(client, chosen)
    assert "order 5" in found
    assert "order 4" not in found
    assert "Retry all 2" in found
    assert "None of them died of this any more." in words(client, f"{ONE}?reason=x")


def test_all_that_a_chip_shows_are_tried_again(
    client: httpx.Client, mailer: eventq.Thread, clock: Clock
) -> None:
    """And no others: neither of another reason, nor what died since."""
    chosen = f"{ONE}?{httpx.QueryParams({'reason': 'OSError: refused …'})}"
    form = fields(client, chosen, "retry")
    assert form["letters"] == "4"
    clock.move(1)
    bury(mailer, 2, TRACE)
    assert post(client, "retry", form).status_code == 303
    assert dead(mailer) == [5, 6, 7, 8]
    gone = post(client, "retry", form)
    assert "somebody else was first" in gone.text


def test_all_of_a_reason_are_dropped(client: httpx.Client, mailer: eventq.Thread) -> None:
    """More than the page showed are not, as after a step of the clock."""
    chosen = f"{ONE}?{httpx.QueryParams({'reason': 'no such user …'})}"
    form = fields(client, chosen, "drop")
    assert "more dead letters by now" in post(client, "drop", form | {"letters": "1"}).text
    assert len(dead(mailer)) == 6
    post(client, "drop", form)
    assert dead(mailer) == [1, 2, 3, 4]


def test_chosen_ones_are_tried_again(
    client: httpx.Client, mailer: eventq.Thread, clock: Clock
) -> None:
    """Those that are still there, and none where none was chosen."""
    form = fields(client, ONE, "chosen")
    died_by = form["died_by"]
    given = {"csrf": csrf(client), "consumer": "mailer", "died_by": died_by}
    none = post(client, "retry", given)
    assert "no dead letter was chosen" in none.text
    assert len(dead(mailer)) == 6
    mailer.drop_dead([2], "mailer")
    post(client, "retry", given | {"event-1": "on", "event-2": "on", "event-6": "on"})
    assert dead(mailer) == [3, 4, 5]
    mailer.settle(mailer.claim("mailer", 9))
    clock.move(1)
    mailer.retry_dead([3], "mailer")
    bury(mailer, 1, "again")
    assert dead(mailer) == [3, 4, 5]
    assert "somebody else" in post(client, "retry", given | {"event-3": "on"}).text


def test_chosen_ones_are_dropped_after_a_second_look(
    client: httpx.Client, mailer: eventq.Thread
) -> None:
    """The page names them, and how many; it keeps the token out of its address."""
    at = f"{ONE}/drop?event-1=on&event-6=on&event-99=on&died_by=1&consumer=mailer"
    page = words(client, at)
    assert "Drop 2 dead letters of mailer?" in page
    assert "order 1" in page
    assert "order 6" in page
    form = fields(client, at, "drop")
    assert {"event-1", "event-6"} <= form.keys()
    assert "event-99" not in form
    done = post(client, "drop", form)
    assert (done.status_code, done.headers["location"]) == (303, ONE)
    assert dead(mailer) == [2, 3, 4, 5]
    assert "2 dead letters of mailer dropped. The events stay in the log." in words(client, ONE)
    assert "No dead letter was chosen" in words(client, at)
    assert "csrf" not in fields(client, ONE, "chosen")
    assert client.get(f"{ONE}/drop?event-x=on").status_code == 400


def test_many_dead_letters_are_looked_at_in_bounds(
    client: httpx.Client, mailer: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chips count those that were looked at, and all of one is no more than that."""
    monkeypatch.setattr(shown_letters, "LOOKED", 3)
    page = words(client, ONE)
    assert "all 6 OSError: refused … 3" in page
    form = fields(client, f"{ONE}?{httpx.QueryParams({'reason': 'OSError: refused …'})}", "drop")
    assert (form["letters"], form["upto"]) == ("3", "3")
    post(client, "drop", form)
    assert dead(mailer) == [4, 5, 6]


def test_hostile_letters(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whatever an error says is text, and deleted or huge events have a row."""
    thread.subscribe("mailer", max_attempts=1, on_failure="dead")
    thread.push_many([("self", "order", "x"), ("self", "order", "x" * 1_000_000)])
    bury(thread, 1, EVIL.replace("{", "{{").replace("}", "}}"))
    bury(thread, 1, "\x1b[31mred\x1b[0m\n" + "y" * 3_000)
    thread.prune(before_id=2, force=True)
    page = seen(client, ONE)
    assert "the event was deleted, or is empty" in page.text
    assert [src for src in page.values("script", "src") if src] == ["/static/page.js"]
    assert page.values("img", "src") == []
    assert len(client.get(ONE).text) < 60_000
    assert "Drop 2 dead letters" in words(client, f"{ONE}/drop?event-1=on&event-2=on")


def test_guests_see_no_reasons_and_no_acts(serve: Serve, path: str, mailer: eventq.Thread) -> None:
    """The number of dead letters, and what they were."""
    guest = serve(path, write=False)
    del guest.headers["authorization"]
    for at in (LIST, ONE, f"{ONE}?reason=OSError%3A+refused+%E2%80%A6", f"{ONE}/drop?event-1=on"):
        page = guest.get(at).text
        assert "refused" not in page.replace("reason=OSError", "")
        assert "<button" not in page
        assert "checkbox" not in page
    assert "6 dead letters" in guest.get(ONE).text


def fields(client: httpx.Client, at: str, name: str) -> dict[str, str]:
    """Return the fields of the first form of a page with an act or an id."""
    found = client.get(at).text
    forms = re.findall(r"<form ([^>]*)>(.*?)</form>", found, re.DOTALL)
    inside = next(body for head, body in forms if f'/do/{name}"' in head or f'id="{name}"' in head)
    pairs = re.findall(r'name="([^"]*)" value="([^"]*)"', inside)
    return {key: unescape(value) for key, value in pairs}


def csrf(client: httpx.Client) -> str:
    """Return the token of forms."""
    return fields(client, ONE, "retry")["csrf"]


def post(client: httpx.Client, act: str, form: dict[str, str]) -> httpx.Response:
    """Send a form."""
    return client.post(f"/t/thread/do/{act}", data=form)


def test_health_says_what_is_wrong_and_what_helps(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers in trouble, faults of the last check, a log that is not taken over; or nothing."""
    at = "/t/thread/health"
    assert "nothing is known to be wrong" in words(client, at)
    assert "nothing was checked yet" in words(client, at)
    thread.subscribe("stalled", "false", max_attempts=1)
    state = thread.database.consumers.get("stalled")
    assert state is not None
    thread.database.consumers.note_run(state, stalled="it cannot log in")
    page = words(client, at)
    assert "stalled stalled : it cannot log in Next: eventq resume --thread" in page
    assert "not since the server started" in page
    send(client, "check", at)
    assert "no fault, 1 warning" in words(client, at)
    assert "1 stream" not in words(client, at)
    server = client.running.server  # type: ignore[attr-defined]
    server.threads["thread"].checked |= {"faults": [f"event {n} has no type" for n in range(99)]}
    page = words(client, at)
    assert "99 faults" in page
    assert "event 49 has no type and 49 more Next: eventq doctor --thread" in page
    monkeypatch.setattr(health_page, "LARGE_LOG", -1)
    assert "a program that reads for long" in words(client, at)


def test_health_of_a_thread_without_files(serve: Serve, postgres: str) -> None:
    """There are no sizes of what a database on a server does not have."""
    with eventq.open(fresh(postgres)) as thread:
        found = serve(thread.path)
        (name,) = (one["name"] for one in found.get("/api/threads").json()["threads"])
        page = found.get(f"/t/{name}/health").text
    assert "events.jsonl" not in page
    assert "log of changes" not in page


def test_a_thread_of_the_older_tool(serve: Serve, original: str) -> None:
    """It has events and consumers, and no queues, keys or causes; nothing is changed."""
    client = serve(original, write=False)
    for view in (
        "live", "live?type=message", "events/2", "consumers", "consumers/w",
        "consumers/w/drop?event-1=on", "health",
    ):  # fmt: skip
        found = client.get(f"/t/original/{view}")
        assert found.status_code == 200, (view, found.text)
    assert "1 finished" in client.get("/t/original/events/1").text
    assert "1 waits" in client.get("/t/original/events/2").text
