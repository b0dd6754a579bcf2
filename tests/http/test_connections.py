"""Connections that send too little, too much, or nothing are closed, and keep nobody waiting.

Members of the kind: no byte at all, half a head, a head byte by byte, blank lines after a reply,
half a body of who may send one and of who may not, a body that was refused and goes on, many
requests at once on one connection, more connections than there may be, half a body when the
server ends.
"""

from __future__ import annotations

import gc
import select
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from eventq.http import connections, site
from eventq.mcp.mounting import Mount
from tests.http.conftest import TOKEN, problem

if TYPE_CHECKING:
    import eventq
    from tests.http.conftest import Serve

EVENTS = "/api/threads/thread/events"
HOST = "host: localhost\r\n"
KNOWN = f"{HOST}authorization: Bearer {TOKEN}\r\n"
POLL = f"GET {EVENTS}?after=0&wait=60 HTTP/1.1\r\n{HOST}\r\n".encode()
LENGTH = "content-length: 100\r\n\r\nhalf"


def connected(client: httpx.Client, data: bytes = b"") -> socket.socket:
    """Return a connection that has sent something."""
    raw = socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30)
    raw.sendall(data)
    return raw


def rest_of(raw: socket.socket) -> bytes:
    """Return what comes until the server closes a connection."""
    data = b""
    with suppress(ConnectionError):
        while more := raw.recv(65_536):
            data += more
    return data


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times."""
    for name in ("HEAD", "BODY", "STILL", "KEPT"):
        monkeypatch.setattr(connections, f"{name}_SECONDS", 0.1)
    monkeypatch.setattr("eventq.http.site.SWEEP_SECONDS", 0.05)


@pytest.mark.parametrize("at", [EVENTS, "/login", "/v1/contexts", "/mcp"])
def test_half_a_body_at_the_end(
    serve: Serve,
    path: str,
    at: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its caller is told that the server ends, which prints no traceback."""
    monkeypatch.setattr(site, "END_SECONDS", 0)
    client = serve(path, mcp=Mount)
    head = f"POST {at} HTTP/1.1\r\n{KNOWN}expect: 100-continue\r\n{LENGTH}"
    with connected(client, head.encode()) as raw:
        assert raw.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"  # it reads the body now
        client.running.stop()  # type: ignore[attr-defined]
        assert rest_of(raw).startswith(b"HTTP/1.1 503 ")
    assert [one for one in caplog.records if one.exc_info] == []


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ("", ""),
        ("GET / HT", "HTTP/1.1 408 "),
        (f"GET / HTTP/1.1\r\n{HOST}", "HTTP/1.1 408 "),
        (f"GET /api/health HTTP/1.1\r\n{HOST}\r\n", "HTTP/1.1 200 "),
        (f"GET /api/health HTTP/1.1\r\n{HOST}\r\n\r\n", "HTTP/1.1 200 "),
        (f"GET /api/health HTTP/1.1\r\n{HOST}\r\nGET", "HTTP/1.1 200 "),
        (f"POST /login HTTP/1.1\r\n{HOST}{LENGTH}", "HTTP/1.1 408 "),
        (f"POST /login HTTP/1.1\r\n{HOST}transfer-encoding: chunked\r\n\r\n5\r\nha", "HTTP/1.1 408 "),
        (f"POST {EVENTS} HTTP/1.1\r\n{HOST}{LENGTH}", "HTTP/1.1 401 "),
        (f"POST {EVENTS} HTTP/1.1\r\n{KNOWN}{LENGTH}", "HTTP/1.1 408 "),
        (f"POST /t/thread/do/pause HTTP/1.1\r\n{KNOWN}{LENGTH}", "HTTP/1.1 408 "),
        (f"GET {EVENTS} HTTP/1.1\r\n{HOST}{LENGTH}", "HTTP/1.1 200 "),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_closed(serve: Serve, path: str, sent: str, says: str) -> None:
    """Whatever is missing; a request that is known by then is told so."""
    with connected(serve(path), sent.encode()) as raw:
        assert rest_of(raw).startswith(says.encode())


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    "start", [f"GET / HTTP/1.1\r\n{HOST}x-slow: ", f"POST /login HTTP/1.1\r\n{HOST}{LENGTH}"]
)
def test_what_comes_byte_by_byte_is_closed(serve: Serve, path: str, start: str) -> None:
    """Each byte does not begin the time anew, without a token."""
    with connected(serve(path), start.encode()) as raw:
        with suppress(OSError):
            while not select.select([raw], [], [], 0.02)[0]:
                raw.sendall(b"x")
        assert rest_of(raw).startswith(b"HTTP/1.1 408 ")


def cycles() -> int:
    """Return how many requests are looked after, of all servers of this process."""
    gc.collect()
    return sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())


def test_requests_of_a_connection_are_read_one_at_a_time(
    serve: Serve, path: str, thread: eventq.Thread
) -> None:
    """However many are sent at once; each is answered, in order."""
    client = serve(path)
    count, sent = 3_000, f"GET /api/health HTTP/1.1\r\n{HOST}\r\n"
    before = cycles()
    with connected(client, POLL + sent.encode() * (count - 1)) as raw:
        last = f"POST {EVENTS} HTTP/1.1\r\n{KNOWN}content-length: 15\r\n\r\n" + '{"content":"x"}'
        raw.sendall(f"{sent}{last}GET /nowhere HTTP/1.0\r\n{HOST}\r\n".encode())
        for _ in range(20):
            assert client.get("/api/health").status_code == 200
        assert not select.select([raw], [], [], 0)[0], raw.recv(1000)
        assert cycles() - before < 100
        thread.push("self", "note", "x")
        found = rest_of(raw)
    assert [found.count(b"HTTP/1.1 %d " % one) for one in (200, 201, 404)] == [count + 1, 1, 1]
    assert found.index(b'"content":"x"') < found.index(b"HTTP/1.1 201 ") < found.index(b" 404 ")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_request_behind_a_body_is_read_after_it(serve: Serve, path: str, is_known: bool) -> None:
    """With a length and in chunks, taken or refused."""
    first = f"POST {EVENTS} HTTP/1.1\r\n{KNOWN if is_known else HOST}"
    body = '{"content":"\\r\\n"}' + "\r\n\r\n" * 500
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    sent = f"{first}content-length: {len(body)}\r\n\r\n{body}" * 3
    sent += f"{first}transfer-encoding: chunked\r\n\r\n{chunked}" * 3
    with connected(serve(path), f"{sent}GET /nowhere HTTP/1.0\r\n{HOST}\r\n".encode()) as raw:
        found = rest_of(raw)
    assert found.count(b"HTTP/1.1 201 " if is_known else b"HTTP/1.1 401 ") == 6
    assert found.count(b"HTTP/1.1 404 ") == 1


def test_what_waits_without_a_token_is_bounded(
    serve: Serve, path: str, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much is closed; whoever has a token is served meanwhile."""
    monkeypatch.setattr(connections, "MOST_UNREAD", 200_000)
    client = serve(path)
    with ExitStack() as stack:
        many = [stack.enter_context(connected(client)) for _ in range(12)]
        for raw in many:
            with suppress(ConnectionError):
                raw.sendall(POLL + b"GET / HTTP/1.1\r\n" * 3_000)
        while not (closed := select.select(many, [], [], 1)[0]):
            assert client.get("/api/health").status_code == 200
        assert {rest_of(raw) for raw in closed} == {b""}
        big = {"content": "x" * 1_000_000}
        assert client.post(EVENTS, json=big).status_code == 201


def test_who_waits_longest_gives_way(serve: Serve, path: str) -> None:
    """Without a head first, then who was answered; nobody who was asked to wait."""
    client = serve(path, connections=3)
    with ExitStack() as stack:
        follow = f"GET {EVENTS}/stream HTTP/1.1\r\n{HOST}\r\n".encode()
        follower = stack.enter_context(connected(client, follow))
        assert b"200" in follower.recv(100)
        silent = [stack.enter_context(connected(client, b"GET")) for _ in range(5)]
        assert client.get("/api/health").status_code == 200
        assert [rest_of(raw) for raw in silent[:4]] == [b""] * 4
        follow = f"GET {EVENTS}/stream HTTP/1.1\r\n{KNOWN}\r\n".encode()
        others = []
        for _ in range(2):  # the next one comes when the head of this one was read
            others.append(stack.enter_context(connected(client, follow)))
            assert b"200" in others[-1].recv(100)
        for at, kind in (("/", "text/html"), ("/v1/contexts", "application/json")):
            found = client.get(at)
            assert (found.status_code, found.headers["connection"]) == (503, "close")
            assert found.headers["content-type"].startswith(kind)
        assert problem(client.post(EVENTS, json={"content": "x"}))[0] == 503


def test_what_is_no_http_is_a_problem(serve: Serve, path: str) -> None:
    """Also a head that is too long."""
    client = serve(path)
    for sent, says in ((b"nonsense\r\n\r\n", b"400"), (b"GET /" + b"x" * 400_000, b"431")):
        with connected(client) as raw:
            with suppress(ConnectionError):
                raw.sendall(sent)
            found = rest_of(raw)
            if found:  # a system may forget it when the sender goes on
                assert found.startswith(b"HTTP/1.1 " + says)
                assert b"application/problem+json" in found


def test_followers_that_do_not_read_hold_little(
    serve: Serve, path: str, thread: eventq.Thread
) -> None:
    """What they hold counts, and is far less than what there is to follow."""
    thread.push_many([("self", "note", "x" * 16_000)] * 2_000)
    client = serve(path)
    unknown = client.running.server.config.app.unknown  # type: ignore[attr-defined]
    follow = f"GET {EVENTS}/stream?after=0 HTTP/1.1\r\n{HOST}\r\n".encode()
    with ExitStack() as stack:
        for _ in range(5):
            raw = stack.enter_context(connected(client, follow))
            assert b"200" in raw.recv(100)
        while not unknown.held:
            assert client.get("/api/health").status_code == 200
        for _ in range(50):
            assert client.get("/api/health").status_code == 200
            assert unknown.held < 5 << 20
    while unknown.held or unknown.requests:  # all of it is given back
        assert client.get("/api/health").status_code == 200
