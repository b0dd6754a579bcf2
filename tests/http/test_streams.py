"""Events as they come: server-sent events, lines, slow readers, and the end of a server."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http import following

if TYPE_CHECKING:
    from collections.abc import Iterator


LINES = {"accept": "application/x-ndjson"}


def events(response: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield id and event of each message of a stream."""
    number = 0
    for line in response.iter_lines():
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            yield number, json.loads(line[6:])


def test_a_stream_has_what_is_there_and_what_comes(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """In order, each with its id; without `after` what comes from now on."""
    thread.push("self", "note", "one\ntwo")
    with (
        client.stream("GET", "events/stream", params={"after": 0}) as all_,
        client.stream("GET", "events/stream") as new,
    ):
        assert all_.headers["content-type"] == "text/event-stream"
        every = events(all_)
        assert next(every) == (1, thread.last(1)[0]._asdict())
        thread.push_many([("self", "note", f"{n}") for n in range(1_500)])
        assert [next(every)[0] for _ in range(1_500)] == [*range(2, 1_502)]
        assert next(events(new))[0] == 2


def test_a_stream_goes_on_where_it_was_cut(client: httpx.Client, thread: eventq.Thread) -> None:
    """A browser says which was its last; it counts more than the address."""
    thread.push_many([("self", "note", f"{n}") for n in range(5)])
    headers = {"last-event-id": "3"}
    with client.stream("GET", "events/stream", params={"after": 0}, headers=headers) as cut:
        assert next(events(cut))[0] == 4


def test_what_came_while_nobody_followed_is_there_at_once(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Whoever comes back gets it without waiting for another event."""
    thread.push("self", "note", "one")
    feed = next(iter(client.running.server.threads.values())).feed  # type: ignore[attr-defined]
    with client.stream("GET", "events/stream") as first:
        thread.push("self", "note", "two")
        assert next(events(first))[0] == 2
    while feed.followers:  # until the server has seen that it left
        client.get("status")
    thread.push_many([("self", "note", "later")] * 3)
    with client.stream("GET", "events/stream", headers={"last-event-id": "2"}) as back:
        found = events(back)
        assert [next(found)[0] for _ in range(3)] == [3, 4, 5]


def test_lines_with_a_filter(client: httpx.Client, thread: eventq.Thread) -> None:
    """For programs: an event a line, of those that match."""
    with client.stream(
        "GET", "events/stream", params={"filter": "type = 'odd'"}, headers=LINES
    ) as found:
        thread.push_many([("self", "odd" if n % 2 else "even", f"{n}") for n in range(2_000)])
        lines = (json.loads(line) for line in found.iter_lines() if line)
        assert [next(lines)["id"] for _ in range(1_000)] == [*range(2, 2_001, 2)]
    assert client.get("events/stream", params={"filter": "nonsense("}).status_code == 422


def test_a_follower_that_is_far_behind_misses_nothing(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a page after the other, each within a bound in bytes."""
    monkeypatch.setattr(following, "PAGE", 10)
    monkeypatch.setattr(following, "PAGE_BYTES", 5_000)
    with client.stream("GET", "events/stream", headers=LINES) as found:
        lines = (json.loads(line) for line in found.iter_lines() if line)
        for n in range(40):
            thread.push_many([("self", "note", "x" * 40 * n)] * 25)
        assert [next(lines)["id"] for _ in range(1_000)] == [*range(1, 1_001)]


def test_a_filter_that_takes_long_is_said(client: httpx.Client, thread: eventq.Thread) -> None:
    """By a status at the beginning, by a message later."""
    slow = " AND ".join(["content LIKE '%aaaaaaaaaaaaaaaab%'"] * 400)
    asked: dict[str, str | int] = {"filter": slow, "after": 0}
    with client.stream("GET", "events/stream", params=asked) as found:
        lines = (one for one in found.iter_lines() if one)
        assert next(lines) == ": connected"
        lines = (one for one in lines if not one.startswith(":"))  # that the server is there
        thread.push("self", "note", "a" * 32_000_000)
        assert next(lines) == "event: error"
        assert next(lines).startswith("data: the filter takes more than ")
    assert client.get("events/stream", params=asked).status_code == 422


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers wait for less long at their end."""
    monkeypatch.setattr("eventq.http.site.END_SECONDS", 1.0)


def test_readers_that_never_read_cost_little(
    hasty: None, client: httpx.Client, thread: eventq.Thread
) -> None:
    """Others go on, and the server ends without them."""
    url = client.base_url
    stuck = []
    for _ in range(20):
        one = socket.create_connection((url.host, url.port or 80))
        one.sendall(
            f"GET {url.path}events/stream?after=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        )
        stuck.append(one)
    with client.stream("GET", "events/stream", params={"after": 0}, headers=LINES) as found:
        lines = (json.loads(line) for line in found.iter_lines() if line)
        for _ in range(30):
            thread.push_many([("self", "note", "x" * 10_000)] * 20)
        assert [next(lines)["id"] for _ in range(600)] == [*range(1, 601)]
    client.running.stop()  # type: ignore[attr-defined]
    for one in stuck:
        one.close()


def test_a_server_ends_streams_and_long_polls(client: httpx.Client, thread: eventq.Thread) -> None:
    """At once, and each with a proper end."""
    ended: list[Any] = []

    def follow() -> None:
        with client.stream("GET", "events/stream", headers=LINES) as found:
            ready.release()
            ended.append([line for line in found.iter_lines() if line])

    ready = threading.Semaphore(0)
    users = [
        threading.Thread(target=follow),
        threading.Thread(
            target=lambda: ended.append(client.get("events?wait=5m").json()["events"])
        ),
    ]
    for user in users:
        user.start()
    ready.acquire()
    client.get("status")
    client.running.stop()  # type: ignore[attr-defined]
    for user in users:
        user.join(60)
    assert ended == [[], []]


def test_runs_are_followed(client: httpx.Client, thread: eventq.Thread) -> None:
    """Those under way come first, then each change; a stream that was cut goes on after its last."""
    thread.runs.start("w", "task", system={"a": "A"}, label="one")
    with client.stream("GET", "runs/stream") as found:
        changes = events(found)
        number, first = next(changes)
        assert (first["op"], first["run"]["label"]) == ("active", "one")
        thread.runs.get("one").step("a", content="x")
        assert next(changes)[1]["run"]["depth"] == 1
        thread.runs.get("one").suspend()
        assert next(changes)[1]["run"]["status"] == "suspended"
        thread.runs.delete("one")
        last, change = next(changes)
        assert (change["run_id"], change["run"], last > number) == (1, None, True)
    thread.runs.start("w", "task", label="two", system={})
    with client.stream("GET", "runs/stream", headers={"last-event-id": str(last)}) as back:
        assert next(events(back))[1]["run"]["label"] == "two"
    with client.stream("GET", "runs/stream", params={"group": "none"}, headers=LINES) as lines:
        thread.runs.start(eventq.NewRun("w", "task", group="none"))
        assert json.loads(next(lines.iter_lines()))["run"]["group"] == "none"
