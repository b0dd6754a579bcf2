"""Acts on what a page has shown: they leave alone what came since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from tests.http.test_pages import Text, seen

if TYPE_CHECKING:
    from tests.conftest import Clock
    from tests.http.conftest import Serve

AT = "/t/thread/"


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a browser that came in through a link."""
    client = serve(path)
    del client.headers["authorization"]
    client.get(client.running.server.link())  # type: ignore[attr-defined]
    return client


def bury(thread: eventq.Thread, number: int) -> None:
    """Let some more events of a consumer fail for good."""
    thread.push_many([("self", "order", f"{n}") for n in range(number)])
    thread.settle(dead=[one.token for one in thread.claim("mailer", number)], error="refused")


@pytest.fixture
def mailer(clock: Clock, thread: eventq.Thread) -> eventq.Thread:
    """Return a thread whose consumer has three dead letters."""
    thread.subscribe("mailer", max_attempts=1, on_failure="dead")
    bury(thread, 3)
    return thread


def forms(page: Text) -> dict[str, dict[str, Any]]:
    """Return the fields of the first form of each action on a page."""
    found: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    for tag, values in page.tags:
        if tag == "form":
            fields = {}
            found.setdefault((values["action"] or "").rpartition("/")[2], fields)
        elif tag in ("input", "button") and values.get("name"):
            fields.setdefault(values["name"], values.get("value"))  # type: ignore[arg-type]
    return found


def send(client: httpx.Client, act: str, form: dict[str, Any]) -> httpx.Response:
    """Send a form as a page had it."""
    headers = {"referer": str(client.base_url).rstrip("/") + AT}
    return client.post(f"{AT}do/{act}", data=form, headers=headers)


def dead(thread: eventq.Thread) -> list[int]:
    """Return which events are dead letters."""
    return [one.event_id for one in thread.dead_letters("mailer")]


@pytest.mark.parametrize("at", [AT, f"{AT}consumers/mailer"])
@pytest.mark.parametrize("act", ["drop", "retry"])
def test_what_came_since_is_left_alone(
    client: httpx.Client, mailer: eventq.Thread, clock: Clock, at: str, act: str
) -> None:
    """To drop three dead letters drops these three, and not a fourth."""
    form = forms(seen(client, at))[act]
    clock.move(1)
    bury(mailer, 1)
    assert send(client, act, form).status_code == 303
    assert dead(mailer) == [4]


def test_more_than_were_shown_at_one_moment(client: httpx.Client, mailer: eventq.Thread) -> None:
    """Times do not tell them apart: nothing is done, and the page says why."""
    form = forms(seen(client, AT))["drop"] | {"letters": "2"}
    found = send(client, "drop", form)
    assert "mailer has more dead letters by now than the 2 that were shown" in found.text
    assert dead(mailer) == [1, 2, 3]


def test_fewer_than_were_shown(client: httpx.Client, mailer: eventq.Thread) -> None:
    """Somebody else was there first: the rest is dropped."""
    form = forms(seen(client, AT))["drop"]
    mailer.drop_dead([2])
    assert send(client, "drop", form).status_code == 303
    assert dead(mailer) == []
    assert "2 dead letters of mailer dropped" in seen(client, AT).text


def test_an_answer_with_a_note(client: httpx.Client, thread: eventq.Thread) -> None:
    """The choice is what was asked for; the note stands beside it, at every door."""
    number = thread.ask("Deploy?", approval=True).question_id
    form = forms(seen(client, AT))["answer"] | {"text": "approve", "note": " after <i>six</i> "}
    assert send(client, "answer", form).status_code == 303
    found = thread.question(number)
    assert (found.answer, found.note) == ("approve", "after <i>six</i>")
    page = client.get(AT).text
    assert "approve, with the note: after &lt;i&gt;six&lt;/i&gt;" in page
    assert client.get(f"/api/threads/thread/questions/{number}").json()["note"] == found.note
    asked = thread.ask("Which?", options=("a", "b")).question_id
    send(client, "answer", forms(seen(client, AT))["answer"] | {"text": "b", "note": "  "})
    assert (thread.question(asked).answer, thread.question(asked).note) == ("b", None)
