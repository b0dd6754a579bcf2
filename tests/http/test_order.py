"""Who asks comes first: place, head, caller, and only then a body that is bounded.

Members of the kind: forms (`/login`, `/t/…/do/…`), changes over the API, under CXDB's `/v1`, and
over MCP; bodies of a GET, which none takes; callers without a token, with a wrong one, with a
cookie and no word of a page, from another place; requests that a browser sends for another site's
page without an `Origin`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from eventq.mcp.mounting import Mount
from tests.http.conftest import TOKEN, problem

if TYPE_CHECKING:
    from tests.http.conftest import Serve

EVENTS = "/api/threads/thread/events"
API = "/api/threads/thread"
LENGTH = 60 << 20
WRITES = [EVENTS, f"{API}/artifacts", "/v1/contexts/create", "/t/thread/do/pause"]


def answer_to_head(client: httpx.Client, start: str, *headers: str) -> bytes:
    """Return what a server says to a head alone, whose body of 60 MiB is not sent."""
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=20) as raw:
        lines = [f"{start} HTTP/1.1", f"content-length: {LENGTH}", *headers]
        if not any(line.startswith("host:") for line in headers):
            lines.append("host: localhost")
        raw.sendall("\r\n".join([*lines, "", ""]).encode())
        return raw.recv(65_536)


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a client with the token, of a server that speaks MCP too."""
    return serve(path, mcp=Mount)


@pytest.mark.parametrize("header", ["authorization: Bearer wrong", "accept: */*"])
def test_a_body_waits_for_who_asks(client: httpx.Client, header: str) -> None:
    """Whoever has no token, or a wrong one, is refused at the head."""
    for at in (*WRITES, "/api/nowhere", "/t/thread/do/nothing"):
        assert answer_to_head(client, f"POST {at}", header)[9:12] in (b"401", b"403"), at


@pytest.mark.parametrize(
    "header", ["host: evil.example", "origin: http://evil.example", "sec-fetch-site: cross-site"]
)
def test_a_body_waits_for_the_place(client: httpx.Client, header: str) -> None:
    """Whoever comes from elsewhere is refused at the head, a holder of the token too."""
    known = f"authorization: Bearer {TOKEN}"
    for at in (*WRITES, "/login", "/mcp"):
        assert answer_to_head(client, f"POST {at}", header, known)[9:12] in (b"421", b"403"), at


@pytest.mark.parametrize("at", ["/t/thread/do/pause", "/login"])
def test_a_form_is_short(client: httpx.Client, at: str) -> None:
    """One of more than 64 KiB is refused, whether its length is said or not."""
    known = f"authorization: Bearer {TOKEN}"
    assert answer_to_head(client, f"POST {at}", known)[9:12] == b"413"
    found = client.post(at, content=iter([b"a=1&" * 10_000] * 3))
    assert (found.status_code, found.headers["content-type"][:9]) == (413, "text/html")
    found = client.post(at, data={"csrf": "x" * 60_000})
    assert found.status_code in (401, 403)  # it was read


@pytest.mark.parametrize("at", ["/", f"{EVENTS}", "/v1/contexts", "/login", "/static/page.js"])
def test_a_get_has_no_body(client: httpx.Client, at: str) -> None:
    """One that comes with it is not waited for."""
    assert answer_to_head(client, f"GET {at}")[9:12] in (b"200", b"303")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_another_sites_page_is_refused(client: httpx.Client, site: str) -> None:
    """Also without an Origin; but a link to here may be followed."""
    for at in (EVENTS, "/", "/v1/contexts", "/static/page.js", "/changes"):
        sent = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
        with client.stream("GET", at, headers=sent) as found:
            assert found.status_code == 403, at
        sent |= {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        with client.stream("GET", at, headers=sent) as found:
            assert found.status_code in (200, 303), at
    assert client.post("/login", headers=sent).status_code == 403
    framed = sent | {"sec-fetch-dest": "iframe"}
    assert client.get("/", headers=framed).status_code == 403
    for own in ("same-origin", "none"):
        sent = {"sec-fetch-site": own, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
        assert client.get(EVENTS, headers=sent).status_code == 200


def test_a_refusal_has_the_form_of_its_place(client: httpx.Client) -> None:
    """A page for pages, CXDB's under /v1, and a problem elsewhere."""
    sent = {"host": "evil.example"}
    for path in ("/", "/login", "/open?key=x", "/static/page.js", "/t/thread/live", "/changes"):
        found = client.get(path, headers=sent)
        assert (found.status_code, found.headers["content-type"][:9]) == (421, "text/html")
    assert client.get("/v1/contexts", headers=sent).json()["error"]["code"] == 421
    for path in (EVENTS, "/metrics", "/mcp", "/nowhere"):
        assert problem(client.get(path, headers=sent))[0] == 421
