"""Who may do what over HTTP, and that pages of other hosts may do nothing."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from eventq.errors import LogicError, UsageError
from eventq.http import guesses
from eventq.http.site import Server
from tests.http.conftest import TOKEN, problem

if TYPE_CHECKING:
    from tests.http.conftest import Serve

EVENTS = "/api/threads/thread/events"
NEW = {"content": "x"}


def alone(client: httpx.Client, **headers: str) -> httpx.Client:
    """Return a client of the same server with these headers only."""
    return httpx.Client(base_url=client.base_url, headers=headers, timeout=60, verify=False)


def test_without_a_token_everybody_here_may_read(serve: Serve, path: str) -> None:
    """And nobody may change anything; where a thread lies is not said."""
    client = serve(path, token="", write=False)
    assert client.get(EVENTS).status_code == 200
    assert client.get("/api/threads").json() == {"threads": [{"name": "thread"}], "write": False}
    assert problem(client.post(EVENTS, json=NEW)) == (
        403, "this server only reads - start it with --write",
    )  # fmt: skip


def test_with_a_token_its_holder_may_write(serve: Serve, path: str) -> None:
    """Others of this machine may still read; a wrong token gets nothing."""
    client = serve(path)
    assert client.post(EVENTS, json=NEW).status_code == 201
    with alone(client) as other:
        assert other.get(EVENTS).status_code == 200
        found = other.post(EVENTS, json=NEW)
        assert (problem(found)[0], found.headers["www-authenticate"]) == (401, "Bearer")
    with alone(client, authorization=f"bearer {TOKEN}") as other:  # of any case
        assert other.post(EVENTS, json=NEW).status_code == 201
        refused = other.get("/v1/contexts", headers={"origin": "https://evil.example"})
        assert refused.json()["error"]["code"] == 403  # as those clients know it
    for wrong in ("Bearer x", "Bearer", TOKEN + "x", f"Basic {TOKEN}", TOKEN):
        with alone(client, authorization=wrong) as other:
            assert problem(other.get(EVENTS)) == (
                401, "the token is wrong - send one that the server was given",
            )  # fmt: skip


def test_wrong_tokens_wait(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a header, a form and a link; the log has a line, and whoever has the token is answered.

    When there are too many connections, those that wait for this give way.
    """
    monkeypatch.setattr(guesses, "LEAST_SECONDS", 60)
    client = serve(path, connections=30)
    host, port = client.base_url.host, client.base_url.port or 80
    form = "POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\ntoken=x"
    link = "GET /open?key=x HTTP/1.1\r\nhost: localhost\r\n\r\n"
    header = f"GET {EVENTS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n"
    with ExitStack() as stack:
        many = []
        for sent in (form, link, header) * 8:
            many.append(stack.enter_context(socket.create_connection((host, port), timeout=60)))
            many[-1].sendall(sent.encode())
        assert client.post(EVENTS, json=NEW).status_code == 201
        assert not select.select(many, [], [], 0)[0]
        others = [stack.enter_context(alone(client)) for _ in range(20)]
        assert {one.get(EVENTS).status_code for one in others} == {200}
        assert client.post(EVENTS, json=NEW).status_code == 201
    assert [one.getMessage() for one in caplog.records if "wrong" in one.getMessage()] == [
        "wrong tokens: 1, the last one from 127.0.0.1"
    ]


def test_a_token_alone_does_not_write(serve: Serve, path: str) -> None:
    """That needs --write as well."""
    client = serve(path, write=False)
    assert client.get(EVENTS).status_code == 200
    assert problem(client.post(EVENTS, json=NEW))[0] == 403


def test_clients_that_can_send_no_token(serve: Serve, path: str) -> None:
    """--insecure-local lets all of this machine write."""
    client = serve(path, token="", write=False, insecure=True)
    assert client.post(EVENTS, json=NEW).status_code == 201


@pytest.mark.parametrize(
    "header",
    ["forwarded", "via", "x-forwarded-for", "X-Forwarded-Host", "x-forwarded-proto", "x-real-ip"],
)
def test_who_comes_through_a_proxy_is_not_of_this_machine(
    serve: Serve, path: str, header: str
) -> None:
    """What a proxy or tunnel on this machine passes on needs a token, whichever server it is for.

    Members of the kind: each header of proxies; the API, pages, CXDB's `/v1`; reading, and the
    changes of --insecure-local; a server with a token and one without.
    """
    passed = {header: "192.0.2.7"}
    what = "a proxy has passed this on from elsewhere, and this server has no token"
    read = (EVENTS, "/api/threads", "/", "/t/thread", "/v1/contexts")
    for options in ({}, {"token": "", "write": False}, {"insecure": True}):
        client = serve(path, **options)
        with alone(client, **passed) as other:
            assert [other.get(at).status_code for at in read] == [401] * len(read)
            assert other.post(EVENTS, json=NEW).status_code in (401, 403)
        with alone(client) as here:
            assert here.get(EVENTS).status_code == 200
        if "token" not in options:
            assert client.post(EVENTS, json=NEW, headers=passed).status_code == 201
        else:
            assert problem(client.get(EVENTS, headers=passed)) == (
                401, f"{what} - start it with EVENTQ_TOKEN",
            )  # fmt: skip


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_a_name_that_leads_here_is_refused(serve: Serve, path: str, host: str) -> None:
    """A page that was made to lead here asks for its own name."""
    client = serve(path, insecure=True)
    assert problem(client.get(EVENTS, headers={"host": host}))[0] == 421
    port = client.base_url.port
    for good in ("localhost", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert client.get(EVENTS, headers={"host": good}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", ""])
def test_a_page_of_another_host_is_refused(serve: Serve, path: str, origin: str) -> None:
    """Whatever it asks for; a page of this server may ask."""
    client = serve(path, insecure=True)
    assert problem(client.post(EVENTS, json=NEW, headers={"origin": origin}))[0] == 403
    assert problem(client.get(EVENTS, headers={"origin": origin}))[0] == 403
    own = str(client.base_url).rstrip("/")
    assert client.post(EVENTS, json=NEW, headers={"origin": own}).status_code == 201


@pytest.mark.parametrize(
    ("listen", "options", "says"),
    [
        ("0.0.0.0:0", {"token": ""}, "can be reached from other machines - set EVENTQ_TOKEN"),
        ("0.0.0.0:0", {"insecure": True}, "can be reached from other machines"),
        ("127.0.0.1:0", {"token": ""}, "--write needs a token"),
        ("nonsense", {}, "is no address to listen on"),
        ("127.0.0.1:65536", {}, "is no address to listen on"),
    ],
)
def test_a_server_that_would_let_anybody_in_does_not_start(
    path: str, listen: str, options: dict[str, Any], says: str
) -> None:
    """It says what is missing."""
    with pytest.raises(UsageError, match=says):
        Server([path], listen, **{"token": TOKEN, "write": True, "insecure": False, **options})


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "nohost.invalid"])
def test_a_name_that_is_none_is_said(path: str, host: str) -> None:
    """Also one that cannot be looked up."""
    options = {"token": TOKEN, "write": True, "insecure": False}
    with pytest.raises(LogicError, match=r"is no host: .* - give an address of this machine"):
        Server([path], f"{host}:0", **options)  # type: ignore[arg-type]


def test_a_port_in_use_is_said(serve: Serve, path: str) -> None:
    """With the address, and what to do."""
    client = serve(path)
    with pytest.raises(LogicError, match=r"cannot listen on 127.0.0.1:\d+: .* - choose another"):
        serve(path, listen=f"127.0.0.1:{client.base_url.port}")


def raw(client: httpx.Client, *lines: str) -> str:
    """Send a head as it is, and return the reply."""
    at = (client.base_url.host, client.base_url.port or 80)
    with socket.create_connection(at, timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode())
        return connection.makefile(newline="").read()


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
def test_what_decides_stands_there_once(serve: Serve, path: str, name: str) -> None:
    """Two of them are refused, also equal ones: the next reader might take the other."""
    client = serve(path)
    host = f"127.0.0.1:{client.base_url.port}"
    value = {"Host": host, "Origin": f"http://{host}", "Authorization": f"Bearer {TOKEN}"}[name]
    more = [f"{name}: {value}"] * (1 if name == "Host" else 2)
    for place in (EVENTS, "/t/thread/", "/v1/contexts", "/mcp"):
        found = raw(client, f"GET {place} HTTP/1.1", f"Host: {host}", *more)
        assert found.startswith("HTTP/1.1 400 ")
        assert "send it once" in found


def test_no_reply_is_taken_for_what_it_is_not(serve: Serve, path: str) -> None:
    """Whatever its type and status; also what the library below refuses, and a stream."""
    client = serve(path, connections=5)
    client.post(EVENTS, json=NEW)
    for place in (EVENTS, "/", "/t/thread/", "/static/page.js", "/none", "/v1/contexts", "/metrics",
                  "/api/openapi.json", "/login", "/open?key=x", "/mcp"):  # fmt: skip
        assert client.get(place).headers["x-content-type-options"] == "nosniff", place
    with client.stream("GET", f"{EVENTS}/stream") as found:
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "x-content-type-options: nosniff" in raw(client, "nonsense")
