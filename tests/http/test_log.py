"""The log over HTTP: events, questions, consumers, claims and dead letters."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http import connections
from eventq.serving import event_pages
from eventq.system.environment import user_name
from tests.http.conftest import of_server, problem

if TYPE_CHECKING:
    from tests.http.conftest import Serve


def test_events_are_pushed_and_read(client: httpx.Client, thread: eventq.Thread) -> None:
    """One as an object, many as a list or as lines; a page has where to go on."""
    first = client.post("events", json={"content": "one"})
    assert (first.status_code, first.json()) == (201, thread.last(1)[0]._asdict())
    assert (first.json()["source"], first.json()["type"]) == ("self", "message")
    many = client.post("events", json=[{"content": "two", "type": "note"}, {"content": "three"}])
    assert (many.status_code, many.json()) == (201, {"count": 2, "first_id": 2, "last_id": 3})
    lines = b'{"content": "four"}\n\n{"content": "five", "subtype": "x", "source": "self"}\n'
    assert (
        client.post(
            "events", content=lines, headers={"content-type": "application/x-ndjson"}
        ).json()["count"]
        == 2
    )
    page = client.get("events", params={"limit": 2}).json()
    assert ([one["content"] for one in page["events"]], page["next"]) == (["one", "two"], 2)
    page = client.get("events", params={"after": 2}).json()
    assert ([one["id"] for one in page["events"]], page["next"]) == ([3, 4, 5], 5)
    page = client.get("events", params={"last": 2}).json()
    assert [one["content"] for one in page["events"]] == ["four", "five"]
    page = client.get("events", params={"filter": "type = 'note'"}).json()
    assert ([one["id"] for one in page["events"]], page["next"]) == ([2], 5)
    assert client.get("events/5").json()["subtype"] == "x"
    assert problem(client.get("events/6")) == (
        404, "there is no event 6 - look at the newest ones for their ids",
    )  # fmt: skip


def test_what_came_of_an_event(client: httpx.Client, thread: eventq.Thread) -> None:
    """The events that it has caused, by page and filter, and its turns; and what led to one."""
    thread.push_many([("self", "note", "x")] * 2)
    with thread.during(1):
        thread.push_many([("self", "note", "y")] * 3)
        turn = thread.contexts.create("main").append("said").turn_id
    cause = {"event_id": 1, "thread": None}

    def found(**more: Any) -> tuple[list[int], int]:
        page = client.get("events", params={"cause": 1, **more}).json()
        return [one["id"] for one in page["events"]], page["next"]

    assert found() == ([3, 4, 5], 5)
    assert (found(limit=2), found(after=4), found(last=1)) == (([3, 4], 4), ([5], 5), ([5], 5))
    assert found(filter="id <> 4", cause=1) == ([3, 5], 5)
    assert found(cause=2) == found(cause=99, wait=9) == ([], 5)
    assert client.get("events/1/causes").json() == {
        "causes": [], "events": [3, 4, 5], "turns": [turn], "is_all": True,
    }  # fmt: skip
    assert client.get("events/1/causes", params={"limit": 2}).json()["is_all"] is False
    assert client.get("events/4/causes").json()["causes"] == [cause]
    assert client.get(f"turns/{turn}/causes").json() == {"causes": [cause]}
    assert client.get("events/9/causes").status_code == 404
    assert client.get("turns/9/causes").status_code == 404


def test_a_key_stores_once(client: httpx.Client, thread: eventq.Thread) -> None:
    """Again, it returns the event that is there, and says so by its status."""
    for status in (201, 200):
        found = client.post("events", json={"content": "x", "key": "k"})
        assert (found.status_code, found.json()["id"]) == (status, 1)
    assert client.post("events", json=[{"content": "y", "key": "k"}]).json()["count"] == 0
    assert thread.last_id() == 1


def test_the_header_of_a_key_is_the_key(client: httpx.Client, thread: eventq.Thread) -> None:
    """Plain or in quotes; of a question, a claim, a turn and a step as well."""
    for key, status in (("k 1", 201), ('"k 1"', 200), ('"k \\"2\\""', 201)):
        found = client.post("events", json={"content": "x"}, headers={"idempotency-key": key})
        assert found.status_code == status
    assert thread.push("self", "message", "x", key='k "2"').id == 2
    header = {"idempotency-key": "k 1"}
    one = {"content": "x", "key": "k 1"}
    assert client.post("events", json=one, headers=header).status_code == 200
    assert problem(client.post("events", json=one | {"key": "y"}, headers=header))[0] == 400
    assert problem(client.post("events", json=[one], headers=header))[0] == 400
    client.put("consumers/pool", json={})
    taken = client.post("consumers/pool/claim", json={"limit": 1}, headers=header).json()
    assert client.post("consumers/pool/claim", json={"nonce": "k 1"}).json() == taken
    for status in (201, 200):
        asked = client.post("questions", json={"text": "?"}, headers={"idempotency-key": "q"})
        assert (asked.status_code, asked.json()["question_id"]) == (status, 3)
    thread.contexts.create("main")
    thread.runs.start("w", "task", system={"a": "A"}, label="r")
    for place, body in (("contexts/main/turns", {"payload": "x"}), ("runs/r/steps", {"role": "a"})):
        made = [client.post(place, json=body, headers=header) for _ in range(2)]
        assert [one.status_code for one in made] == [201, 200]
        assert made[0].json() == made[1].json()


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "Content-Type", "Last-Event-ID", "X-CSRF-Token", "Mcp-Session-Id"]
)
def test_a_header_that_decides_is_sent_once(
    client: httpx.Client, thread: eventq.Thread, name: str
) -> None:
    """Two of it are refused: whoever stands between might have taken the other one."""
    event = {"source": "self", "type": "note", "content": "x"}
    headers = [(name, "1"), (name, "2"), ("authorization", client.headers["authorization"])]
    body = json.dumps(event).encode()
    with httpx.Client(base_url=client.base_url) as other:
        status, detail = problem(other.post("events", content=body, headers=headers))
    assert (status, detail) == (400, f"{name.lower()} stands there twice - send it once")
    assert thread.last_id() == 0


def test_a_content_that_is_json_is_stored_as_it_is_written(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Alone, in a list and in lines; the last member of a name counts, as in `push --batch`."""
    texts = ['{ "a": 1.0, "b":[1e400, {}] }', "12", "[]", "false", '{"\\u00e4": "\\/"}']
    for text in texts:
        body = f' {{"content": null, "content" : {text} , "type": "odd"}} '
        assert client.post("events", content=body).status_code == 201
    many = "[" + ", ".join(f'{{"content":{text}}}' for text in [*texts, '"plain"']) + "]"
    assert client.post("events", content=many).json()["count"] == 6
    lines = "\n\n".join(f'{{"content":{text}}}' for text in texts)
    head = {"content-type": "application/x-ndjson"}
    assert client.post("events", content=lines, headers=head).json()["count"] == 5
    found = [event.content for event in thread.peek(0)]
    assert found == [*texts, *texts, "plain", *texts]
    again = client.post("events", json=[{"content": {}, "key": "k"}])
    assert again.status_code == 201
    assert client.post("events", json=[{"content": {}, "key": "k"}]).status_code == 200


def test_a_long_poll_ends_with_the_event_that_it_waits_for(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """By any process; without one it ends empty when the time is up."""
    empty = client.get("events", params={"wait": "0.01s"}).json()
    assert empty == {"events": [], "next": 0}
    found: list[Any] = []
    asks: dict[str, str | int] = {"after": 0, "wait": 60, "filter": "type = 'late'"}
    waits = threading.Thread(target=lambda: found.append(client.get("events", params=asks)))
    waits.start()
    thread.push("self", "note", "not this one")
    thread.push("self", "late", "this one")
    waits.join(60)
    assert [one["content"] for one in found[0].json()["events"]] == ["this one"]


def test_a_worker_without_python(client: httpx.Client, thread: eventq.Thread) -> None:
    """Subscribe, claim, settle and extend: what a worker in any language does."""
    made = client.put("consumers/w", json={"filter": "type = 'job'", "max_attempts": 1})
    assert (made.status_code, made.json()["filter"]) == (201, "type = 'job'")
    assert (
        client.put("consumers/w", json={"filter": "type = 'job'", "max_attempts": 1}).status_code
        == 200
    )
    assert problem(client.put("consumers/w", json={"filter": "id > 1"}))[0] == 409
    client.post("events", json=[{"content": f"{n}", "type": "job"} for n in range(4)])
    asked = {"limit": 3, "worker": "ada", "lease": 60}
    claims = client.post("consumers/w/claim", json=asked).json()["claims"]
    assert [(one["attempt"], one["event"]["content"]) for one in claims] == [
        (1, "0"),
        (1, "1"),
        (1, "2"),
    ]
    (out, *_) = client.get("claims", params={"consumer": "w"}).json()
    assert (out["worker"], out["event_id"], "token" in out) == ("ada", 1, False)
    tokens = [one["token"] for one in claims]
    assert client.post("extend", json={"tokens": tokens, "lease": 90}).json() == {
        "extended": 3,
        "lost": [],
    }
    settled = client.post(
        "settle", json={"done": tokens[:1], "dead": tokens[1:], "error": "no"}
    ).json()
    assert settled == {"settled": 3, "lost": []}
    assert client.post("settle", json={"done": tokens[:1]}).json() == {
        "settled": 0,
        "lost": tokens[:1],
    }
    dead = client.get("dead-letters").json()
    assert [(one["event_id"], one["error"], one["event"]["content"]) for one in dead] == [
        (2, "no", "1"), (3, "no", "2"),
    ]  # fmt: skip
    assert client.post("dead-letters/retry", json={"events": [2], "consumer": "w"}).json() == {
        "count": 1
    }
    assert client.post("dead-letters/drop", json={}).json() == {"count": 1}
    claims = client.post("consumers/w/claim", params={"wait": 0}, json={"limit": 9}).json()[
        "claims"
    ]
    client.post("settle", json={"done": [one["token"] for one in claims]})
    assert client.post("consumers/w/pause", json={}).status_code == 204
    assert client.get("consumers/w").json()["paused"] is True
    assert client.post("consumers/w/resume").status_code == 204
    thread.ack("w", 4)
    assert client.delete("consumers/w").status_code == 204
    assert problem(client.get("consumers/w"))[0] == 404


def test_a_reader_pops_and_acks(client: httpx.Client, thread: eventq.Thread) -> None:
    """As `pop` and `ack` do; a name may hold whatever a name may hold."""
    name = "consumers/a%2Fb%20c"
    client.put(name, json={})
    client.post("events", json=[{"content": f"{n}"} for n in range(4)])
    page = client.post(f"{name}/pop", json={"limit": 2}).json()["events"]
    assert [one["id"] for one in page] == [1, 2]
    page = client.post(f"{name}/pop", json={"ack": 2}).json()["events"]
    assert ([one["id"] for one in page], thread.status().consumers[0].last_acked_id) == ([3, 4], 2)
    assert problem(client.post(f"{name}/pop", json={"ack": 1}))[0] == 409
    assert client.post(f"{name}/ack", json={"ack": 4}).status_code == 204
    found: list[Any] = []
    waits = threading.Thread(
        target=lambda: found.append(
            client.post(f"{name}/pop", params={"wait": 60}, json={"ack": 4})
        )
    )
    waits.start()
    thread.push("self", "note", "late")
    waits.join(60)
    assert [one["content"] for one in found[0].json()["events"]] == ["late"]
    assert thread.subscriptions()[0].consumer_id == "a/b c"


def test_a_handler_is_no_business_of_others(client: httpx.Client, thread: eventq.Thread) -> None:
    """Its command is not shown, and cannot be set, replaced or removed."""
    thread.subscribe("h", "echo secret", each=True)
    assert "secret" not in client.get("consumers").text + client.get("status").text
    assert problem(client.put("consumers/h", json={"replace": True}))[0] == 400
    assert problem(client.delete("consumers/h"))[0] == 400
    members = "filter, from_now, replace, max_attempts, ordered_by, on_failure, lease, emit_dead"
    assert problem(client.put("consumers/x", json={"handler": "true"})) == (
        422, f"there is no member 'handler' - there are {members}",
    )  # fmt: skip
    assert [one.handler_cmd for one in thread.subscriptions()] == ["echo secret"]


def test_questions_are_asked_and_answered(client: httpx.Client, thread: eventq.Thread) -> None:
    """A long poll waits for the answer."""
    body = {"text": "Deploy?", "approval": True, "key": "k", "context": "main", "run": 7}
    asked = client.post("questions", json=body)
    assert (asked.status_code, asked.json()["options"]) == (201, ["approve", "deny"])
    assert (asked.json()["context"], asked.json()["run"]) == ("main", 7)
    assert client.get("questions").json() == [asked.json()] == [client.get("questions/1").json()]
    assert client.get("questions/1", params={"wait": "0.01s"}).json()["answer"] is None
    assert problem(client.post("questions/1/answer", json={"text": "maybe"}))[0] == 422
    found: list[Any] = []
    waits = threading.Thread(
        target=lambda: found.append(client.get("questions/1", params={"wait": 60}))
    )
    waits.start()
    thread.answer(1, "deny", source="ada")
    waits.join(60)
    shown = found[0].json()
    assert (shown["answer"], shown["answered_by"], shown["answered_via"]) == (
        "deny", user_name(), "program",
    )  # fmt: skip
    assert problem(client.post("questions/1/answer", json={"text": "approve"}))[0] == 409


def test_an_answer_is_what_answers(client: httpx.Client, thread: eventq.Thread) -> None:
    """Pushed alone or with others, it needs its question, and the server says whose it is."""
    thread.ask("Deploy?", approval=True, by_person=True)
    good = {"type": "answer", "content": '{"question":1,"text":"deny"}', "key": "answer:1"}
    bad: list[tuple[int, dict[str, Any]]] = [
        (422, {"content": '{"question":1,"text":"nonsense"}'}),
        (422, {"content": '{"question":1,"text":"deny","by":"ada"}'}),
        (422, {"type": "note"}),
        (404, {"key": "answer:2", "content": '{"question":2,"text":"x"}'}),
    ]
    for status, more in bad:
        assert problem(client.post("events", json={**good, **more}))[0] == status
        assert (
            problem(client.post("events", json=[{"content": "x"}, {**good, **more}]))[0] == status
        )
    assert thread.last_id() == 1
    first = client.post("events", json=good)
    assert (first.status_code, json.loads(first.json()["content"])["via"]) == (201, "http")
    again = client.post("events", json={**good, "source": "x"})
    assert (again.status_code, again.json()) == (200, first.json())
    found = client.post("questions/1/answer", json={"text": "deny", "source": "ada"}).json()
    assert (found["answered_by"], found["answered_via"]) == ("token:default", "http")
    other = {**good, "content": '{"question":1,"text":"approve"}'}
    assert problem(client.post("events", json=other))[0] == 409
    asked = client.post("questions", json={"text": "x", "approval": True, "by_person": True})
    assert asked.json()["by_person"]


def test_the_status_is_that_of_the_library(client: httpx.Client, thread: eventq.Thread) -> None:
    """But for paths and commands; and a check says what is wrong."""
    thread.push("self", "note", "x")
    thread.subscribe("w")
    found = client.get("status").json()
    assert (found["event_count"], found["consumers"][0]["pending"], "path" in found) == (
        1,
        1,
        False,
    )
    assert client.get("check").json() == {"ok": True, "faults": [], "warnings": []}


@pytest.mark.parametrize(
    ("method", "place", "body", "status", "says"),
    [
        ("POST", "events", b"{", 422, "the body is no JSON"),
        ("POST", "events", b'"x"', 422, "the body is no event - send an object"),
        ("POST", "events", b"{}", 400, "content is missing - it is for: The payload"),
        ("POST", "events", b'{"content": null}', 400, "content is missing"),
        ("POST", "events", b'{"content": NaN}', 422, "NaN is not JSON"),
        ("POST", "events", b'{"content": "x", "type": 1}', 400, "type must be text"),
        ("POST", "events", b'{"content": "x", "more": 1}', 422, "there is no member 'more'"),
        ("POST", "events", b'{"content": "\\ud800"}', 422, "unpaired surrogate"),
        ("POST", "events", b'[{"content": "x"}, 1]', 422, "the body is no JSON object"),
        ("POST", "events", b"[" * 100_000, 422, "the body is no JSON"),
        ("GET", "events?limit=0", b"", 400, "limit must be a whole number, 1 to 1,000"),
        ("GET", "events?limit=x", b"", 400, "limit must be a whole number"),
        ("GET", "events?after=-1", b"", 400, "after must be a whole number, 0 or more"),
        ("GET", "events?after=1&after=2", b"", 400, "'after' stands there twice"),
        ("GET", "events?wait=soon", b"", 400, "wait must be a duration"),
        ("GET", "events?wait=1h", b"", 400, "wait must be a number of seconds, 0 to 300"),
        ("GET", "events?nonsense=1", b"", 400, "there is no parameter 'nonsense'"),
        ("GET", "events?filter=nonsense(", b"", 422, "a parenthesis is not closed"),
        ("GET", "events/x", b"", 400, "id must be a whole number"),
        ("POST", "consumers/nobody/claim", b"{}", 404, "consumer 'nobody' is not subscribed"),
        ("POST", "consumers/w/claim", b'{"limit": true}', 400, "limit must be a whole number"),
        ("POST", "settle", b'{"done": ["x"]}', 422, "is not the token of a claim"),
        ("POST", "settle", b'{"done": [1]}', 400, "done must be a list of strings"),
        ("GET", "nonsense", b"", 404, "see /api/openapi.json"),
        ("DELETE", "events", b"", 405, "DELETE is not for this path - use GET, HEAD, POST"),
        ("OPTIONS", "events", b"", 405, "OPTIONS is not for this path"),
    ],
)
def test_what_is_wrong_is_said(
    client: httpx.Client, method: str, place: str, body: bytes, status: int, says: str
) -> None:
    """As RFC 9457 has it: a sentence with the next step; nothing is stored."""
    found = problem(client.request(method, place, content=body))
    assert (found[0], says in found[1]) == (status, True), found
    assert client.get("status").json()["last_id"] == 0


def test_a_body_is_bounded(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than an event may be is refused before it is read."""
    monkeypatch.setenv("EVENTQ_MAX_EVENT_BYTES", str(4 << 20))
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80)) as raw:
        head = f"POST {url.path}events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {1 << 40}\r\n"
        raw.sendall(f"{head}authorization: {client.headers['authorization']}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    large = client.post("events", json={"content": "x" * (4 << 20)})
    assert large.status_code == 201
    assert problem(client.post("events", json={"content": "x" * ((4 << 20) + 1)}))[0] == 413


def test_a_head_that_does_not_end_is_refused(client: httpx.Client) -> None:
    """Before it has taken much memory; what fits is answered."""
    url = client.base_url
    for size, status in ((30_000, b"200"), (400_000, b"431"), (10_000_000, b"431")):
        with socket.create_connection((url.host, url.port or 80)) as raw:
            head = f"GET {url.path}status HTTP/1.1\r\nhost: localhost\r\nx-long: "
            with suppress(OSError):  # it is closed while this is sent
                raw.sendall(head.encode() + b"x" * size + b"\r\n\r\n" * (size < 100_000))
            with suppress(ConnectionResetError):
                assert raw.recv(100).startswith(b"HTTP/1.1 " + status)


def test_a_long_body_before_another_head(client: httpx.Client, thread: eventq.Thread) -> None:
    """What came before a head does not count for it."""
    url = client.base_url
    body = b'{"content":"' + b"a" * 100_000 + b'"}'
    to = f"host: localhost\r\nauthorization: {client.headers['authorization']}\r\n"
    with socket.create_connection((url.host, url.port or 80)) as raw:
        head = f"POST {url.path}events HTTP/1.1\r\n{to}content-length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body + b"GET /api/health HTTP/1.1\r\nhost")
        assert raw.recv(100).startswith(b"HTTP/1.1 201 ")
        raw.sendall(b": localhost\r\nconnection: close\r\n\r\n")
        rest = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert b"HTTP/1.1 200 OK" in rest


def test_lines_end_at_a_line_feed_alone(client: httpx.Client, thread: eventq.Thread) -> None:
    """Not at what else a text may hold."""
    content = "a\u2028b\u2029c\x85d"
    line = json.dumps({"content": content}, ensure_ascii=False) + "\r\n"
    headers = {"content-type": "application/x-ndjson"}
    assert client.post("events", content=line.encode(), headers=headers).json()["count"] == 1
    assert thread.last(1)[0].content == content


def test_nothing_is_claimed_for_a_caller_that_has_gone(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """The next event is for one that is there."""
    thread.subscribe("w")
    url = client.base_url
    feed = next(iter(client.running.server.threads.values())).feed  # type: ignore[attr-defined]
    with socket.create_connection((url.host, url.port or 80)) as raw:
        head = f"POST {url.path}consumers/w/claim?wait=60 HTTP/1.1\r\nhost: localhost\r\n"
        more = f"authorization: {client.headers['authorization']}\r\ncontent-length: 0\r\n\r\n"
        raw.sendall((head + more).encode())
        while not feed.polls:
            client.get("status")
    while feed.polls:
        client.get("status")
    thread.push("self", "note", "x")
    found = client.post("consumers/w/claim", params={"wait": 60}, json={}).json()
    assert [one["attempt"] for one in found["claims"]] == [1]


def test_what_is_under_way_is_bounded(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and replies together; what is too much is to be asked for later."""
    budget = client.running.server.config.app.budget  # type: ignore[attr-defined]
    monkeypatch.setattr(budget, "most", 1_000_000)
    for _ in range(3):
        assert client.post("events", json={"content": "x" * 900_000}).status_code == 201
        assert client.get("events", params={"last": 1}).status_code == 200
    for found in (
        client.post("events", json={"content": "x" * 1_100_000}),
        client.get("events", headers={"accept-encoding": "identity"}),
    ):
        status, says = problem(found)
        assert (status, "try again later" in says) == (503, True)


def test_readers_that_do_not_read_are_left(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; what they were sent is forgotten, and others are answered meanwhile."""
    monkeypatch.setattr(connections, "STUCK_SECONDS", 0.2)
    thread.push("self", "note", "x" * 30_000_000)
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80)) as raw:
        raw.sendall(f"GET {url.path}events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        budget = client.running.server.config.app.unknown  # type: ignore[attr-defined]
        while not budget.held:
            client.get("status")
        while budget.held:
            client.get("status")
    assert client.get("status").json()["last_id"] == 1


def test_an_answer_that_is_known_is_not_sent_again(client: httpx.Client) -> None:
    """By its tag; HEAD has the headers alone."""
    client.post("events", json={"content": "x"})
    first = client.get("events/1")
    again = client.get("events/1", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("events/1", headers={"if-none-match": "*"}).status_code == 304
    head = client.head("events/1")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == first.headers["content-length"]


def test_a_page_of_long_events_ends_early(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one goes on there; of the newest, the newest are shown."""
    monkeypatch.setattr(event_pages, "ROOM", 5 << 20)
    thread.push_many([("self", "note", f"{n}" * (2 << 20)) for n in range(8)])
    found: list[int] = []
    while True:
        page = client.get("events", params={"after": found[-1] if found else 0}).json()
        if not page["events"]:
            break
        assert len(page["events"]) < 8
        found += [one["id"] for one in page["events"]]
    assert found == [*range(1, 9)]
    for where in ({}, {"filter": "type = 'note'"}):
        newest = client.get("events", params={"last": 8, **where}).json()["events"]
        assert 0 < len(newest) < 8
        assert newest[-1]["id"] == 8


def test_a_filter_that_takes_long_is_refused(client: httpx.Client, thread: eventq.Thread) -> None:
    """The caller is told; others are served meanwhile."""
    thread.push("self", "note", "a" * 32_000_000)
    slow = " AND ".join(["content LIKE '%aaaaaaaaaaaaaaaab%'"] * 400)
    found = problem(client.get("events", params={"filter": slow}))
    assert (found[0], "the filter takes more than 0.25s" in found[1]) == (422, True)
    found = problem(client.get("events", params={"filter": slow, "last": 1}))
    assert (found[0], "the filter takes more than 0.25s" in found[1]) == (422, True)
    assert client.get("events/1").status_code == 200


def test_a_filter_that_takes_much_memory_is_refused(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much time it has."""
    monkeypatch.setattr(event_pages, "FILTER_SECONDS", 60)
    thread.push("self", "note", "a" * 30_000_000)
    large = " AND ".join([f"upper(content) || lower(content) != '{n}'" for n in range(20)])
    found = problem(client.get("events", params={"filter": large}))
    assert (found[0], "the filter takes more than 64 MiB" in found[1]) == (422, True), found
    assert client.get("events/1").status_code == 200


def test_threads_have_the_names_of_their_folders(serve: Serve, path: str, tmp_path: Any) -> None:
    """A second one of a name gets a number; one that is gone is said to be."""
    for folder in ("a", "b"):
        eventq.open(tmp_path / folder / "inbox", create=True).close()
    client = serve(str(tmp_path / "a" / "inbox"), str(tmp_path / "b" / "inbox"))
    names = [one["name"] for one in client.get("/api/threads").json()["threads"]]
    assert names == ["inbox", "inbox-2"]
    client.post("/api/threads/inbox-2/events", json={"content": "x"})
    with eventq.open(tmp_path / "b" / "inbox") as thread:
        assert thread.last_id() == 1
    import shutil

    shutil.rmtree(tmp_path / "a" / "inbox")
    assert problem(client.get("/api/threads/inbox/events"))[0] == 404
    assert client.get("/api/threads/inbox-2/events").status_code == 200
    assert problem(client.get("/api/threads/other/events"))[0] == 404
    with pytest.raises(eventq.NotAThreadError):
        serve(str(tmp_path / "nowhere"))


def test_metrics_are_what_prometheus_reads(client: httpx.Client, thread: eventq.Thread) -> None:
    """The state of each thread and consumer."""
    thread.subscribe('w"', filter="type = 'x'")
    thread.push("self", "x", "x")
    thread.ask("Well?")
    found = of_server(client, "/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    lines = found.text.splitlines()
    assert 'eventq_last_event_id{thread="thread"} 2' in lines
    assert 'eventq_questions{thread="thread"} 1' in lines
    assert 'eventq_consumer_pending{thread="thread",consumer="w\\""} 1' in lines


def test_health_and_metrics_say_what_is_damaged(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """What a check has found, and a thread that cannot be read; others stay in the metrics."""

    def told() -> tuple[str, list[str], bool]:
        health = of_server(client, "/api/health").json()
        lines = of_server(client, "/metrics").text.splitlines()
        return health["status"], health["damaged"], 'eventq_sound{thread="thread"} 1' in lines

    thread.push("self", "note", "x")
    assert told() == ("ok", [], True)
    mirror = os.path.join(thread.path, "events.jsonl")
    with open(mirror, "rb+") as file:
        line = file.read()
        file.seek(0)
        file.write(line.replace(b'"note"', b'"nope"'))
    assert not client.get("check").json()["ok"]
    assert told() == ("damaged", ["thread"], False)
    with open(mirror, "rb+") as file:
        file.write(line)
    assert client.get("check").json()["ok"]
    assert told() == ("ok", [], True)
    os.rename(thread.path, thread.path + "-away")
    try:
        assert told() == ("damaged", ["thread"], False)
    finally:
        os.rename(thread.path + "-away", thread.path)


def test_claims_of_a_caller_that_has_gone_are_given_back(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No attempt counts; with a nonce they stay, for the same call again."""
    thread.subscribe("w")
    thread.push("self", "note", "x")
    url = client.base_url
    begun, gone = threading.Event(), threading.Event()
    real = eventq.Thread.claim

    def claim(*given: Any, **more: Any) -> Any:
        found = real(*given, **more)
        begun.set()
        assert gone.wait(60)
        return found

    for nonce in ("", '{"nonce": "n"}', ""):
        monkeypatch.setattr(eventq.Thread, "claim", claim)
        begun.clear()
        gone.clear()
        with socket.create_connection((url.host, url.port or 80)) as raw:
            head = f"POST {url.path}consumers/w/claim HTTP/1.1\r\nhost: localhost\r\n"
            length = f"content-length: {len(nonce)}\r\n\r\n{nonce}"
            token = f"authorization: {client.headers['authorization']}\r\n"
            raw.sendall((head + token + length).encode())
            assert begun.wait(60)
        client.get("/api/health")  # the loop has seen the end by then
        gone.set()
        monkeypatch.undo()
        while len(client.get("claims").json()) != bool(nonce):
            pass
        if nonce:
            again = client.post("consumers/w/claim", content=nonce).json()["claims"]
            assert [one["attempt"] for one in again] == [1]
            client.post("settle", json={"retry": [again[0]["token"]], "delay": 0})
    found = client.post("consumers/w/claim", json={}).json()["claims"]
    assert [one["attempt"] for one in found] == [2]


@pytest.mark.parametrize(
    ("body", "of_lines"),
    [
        (b'{"content": {"a": 1}}', False),
        (b'[{"content": {"a": 1}}]', False),
        (b'{"content": {"a": 1}}\n', True),
    ],
)
def test_a_byte_order_mark(
    client: httpx.Client, thread: eventq.Thread, body: bytes, of_lines: bool
) -> None:
    """A body may begin with a mark, which is in no content."""
    headers = {"content-type": "application/x-ndjson"} if of_lines else {}
    found = client.post("events", content=b"\xef\xbb\xbf" + body, headers=headers)
    assert found.status_code == 201, found.text
    assert [one.content for one in thread.peek()] == ['{"a": 1}']
