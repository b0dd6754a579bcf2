"""Where files lie is told to those with a token only.

Members of the kind: the directory of a thread, what is below and above it, other files that an
error names, URLs of databases with their users and hosts; spelled as they are, quoted for a shell,
escaped as JSON, `repr` or HTML have it, with blanks, quotes, brackets, line breaks and other
scripts. They stand in errors of every place (API, pages, CXDB's, streams under way;
tests/mcp/test_servers.py has MCP's), in what
a check finds, in why a consumer has stalled, in what a handler printed, and in commands to run.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.errors import (
    BusyError,
    DamagedError,
    DiskError,
    PlatformError,
    ReadOnlyError,
    StoreError,
    UnknownOutcomeError,
)
from eventq.http.app import OPERATIONS
from eventq.serving.principal import Principal
from eventq.serving.served import ServedThread
from tests.http.conftest import problem

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.errors import EventqError
    from tests.http.conftest import Serve

API = "/api/threads/thread"
SECRET = '/srv/a secret/it\'s (b) [c] {d}/\u043a\u043e\u0434 "q"\nx'
PAGES = ("", "live", "consumers", "consumers/h", "health", "branches", "contexts/1", "turns/1",
         "diff?a=1&b=2", "runs", "runs/1", "output", "output/0")  # fmt: skip
PLACES = [
    *(f"/t/thread/{page}" for page in PAGES),
    *(
        one.path.format(**dict.fromkeys(("consumer", "context", "run", "artifact", "output", "id"),
                                        "1"), thread="thread", hash="0" * 64)
        for one in OPERATIONS
        if one.method == "GET"
    ),
    "/", "/api/threads", "/api/health", "/api/openapi.json", "/metrics", "/v1/contexts",
    "/v1/contexts/1", "/v1/contexts/1/turns", "/v1/contexts/search?q=x", "/v1/metrics",
    "/v1/registry/bundles/x", "/health",
]  # fmt: skip


def stranger(client: httpx.Client) -> httpx.Client:
    """Return a client of the same server without a token."""
    return httpx.Client(base_url=client.base_url, timeout=60, verify=False)


@pytest.mark.parametrize(
    "error",
    [
        StoreError(f"'{SECRET}/events.db' is odd", f"restore {SECRET}"),
        DamagedError(f"{SECRET!r} is damaged", f"run 'eventq mirror recover --thread {SECRET}'"),
        DiskError(f"'{SECRET}' is full", "free some space"),
        ReadOnlyError(f"the server of postgresql://secret@{SECRET}/x refused", "look"),
        BusyError(f"another writer held '{SECRET}'", "try again"),
        PlatformError(f"'{SECRET}' is on NFS", "move it"),
        UnknownOutcomeError("postgresql://me@secret.example/x"),
    ],
)
def test_an_error_of_a_store_is_told_by_its_kind(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch, error: EventqError
) -> None:
    """With its status and in the form of its place; holders of a token read all of it."""
    client = serve(path, shutil.copytree(path, f"{path}-2"))

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(ServedThread, "glance", fail)
    failed = 0
    with stranger(client) as other:
        for place in PLACES:
            with client.stream("GET", place) as shown, other.stream("GET", place) as hidden:
                assert shown.status_code == hidden.status_code, place
                if hidden.status_code != error.wire_code and place != "/":  # which shows both
                    continue
                failed += 1
                told = "".join(shown.iter_text())
                untold = "".join(hidden.iter_text())
            kind = shown.headers["content-type"]
            assert kind == hidden.headers["content-type"]
            assert "secret" in told, place
            assert ("secret" in untold, "srv" in untold) == (False, False), place
            assert "send a token to read more" in untold, place
    assert failed > 40


ODD = ("it's", 'q"q', "(b) [c] {d}", "line\nbreak", "\u0442\u0440\u0435\u0434", "~", "$x;y")


@pytest.mark.parametrize(
    "name", ["a b", " ".join(ODD), *(pytest.param(one, marks=pytest.mark.soak) for one in ODD)]
)
def test_the_place_of_a_thread_is_not_told(
    serve: Serve, path: str, tmp_path: Path, name: str
) -> None:
    """By no reply, whatever its directory and those above it are called."""
    place = tmp_path / f"secret {name}" / "thread"
    place.parent.mkdir()
    shutil.copytree(path, place)
    with eventq.open(str(place)) as thread:
        thread.subscribe("h", "true", each=True)
        thread.push("self", "note", "x")
        thread.pause("h")
        thread.contexts.create("c").append("x")
        thread.artifacts.put(b"x")
    shutil.rmtree(place / "logs", ignore_errors=True)
    (place / "logs").write_text("")  # a fault, which names it
    client = serve(str(place))
    client.get(f"{API}/check")
    with stranger(client) as other:
        assert other.get("/api/threads").json()["threads"] == [{"name": "thread"}]
        assert client.get("/api/threads").json()["threads"] == [
            {"name": "thread", "path": str(place)}
        ]
        assert [*map(bool, other.get(f"{API}/check").json().values())] == [False, True, True]
        shown = [one for one in PLACES if not one.endswith("/stream")]
        told = {one for one in shown if "secret" in client.get(one).text}
        assert told >= {"/api/threads", f"{API}/check", "/t/thread/health", "/t/thread/consumers/h"}
        assert [one for one in shown if "secret" in other.get(one).text] == []
        shutil.rmtree(place)
        for one in shown:
            assert "secret" not in other.get(one).text, one


def test_what_a_handler_printed_is_not_told(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name any file of the machine."""
    with eventq.open(path) as thread:
        thread.subscribe("h", "true", each=True)
    for place in ("eventq.http.pages.queue_pages.tail", "eventq.serving.attention.tail"):
        monkeypatch.setattr(place, lambda _: f"cannot open '{SECRET}/x'")
    more: dict[str, Any] = {"stalled": "it failed", "log": "x", "advice": f"run {SECRET}"}
    status = eventq.Thread.status

    def stall(thread: eventq.Thread) -> Any:
        found = status(thread)
        return found._replace(consumers=tuple(one._replace(**more) for one in found.consumers))

    monkeypatch.setattr(eventq.Thread, "status", stall)
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        (claim,) = thread.claim("h")
        claim.dead(SECRET)
    client = serve(path)
    letters = "/api/threads/thread/dead-letters"
    with stranger(client) as other:
        assert client.get(letters).json()[0]["error"] == SECRET
        assert other.get(letters).json()[0]["error"] == "(told to whoever comes with a token)"
        for at in ("/t/thread/consumers/h", "/t/thread/"):
            shown, hidden = client.get(at).text, other.get(at).text
            assert ("secret" in shown, "it failed" in shown) == (True, True), at
            assert ("secret" in hidden, "it failed" in hidden) == (False, True), at
            assert "Last output" in hidden


def test_a_stream_under_way_tells_no_place(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head was sent before anything failed."""
    client = serve(path)
    with stranger(client) as other:
        for one, is_told in ((client, True), (other, False)):
            with monkeypatch.context() as patched, one.stream("GET", f"{API}/events/stream") as got:
                lines = got.iter_lines()
                assert next(lines) == ": connected"

                async def fail(*_: object, **__: object) -> None:
                    raise DiskError(f"'{SECRET}' is full", "free some space")

                patched.setattr(ServedThread, "glance", fail)
                with eventq.open(path) as thread:
                    thread.push("self", "note", "x")
                said = "\n".join(lines)
            assert ("event: error" in said, "secret" in said) == (True, is_told)


def test_a_place_that_is_wrong_is_no_fault_of_a_caller(serve: Serve, path: str) -> None:
    """A link to a database that cannot be read any more is a 500, and not told."""
    client = serve(path)
    os.rename(f"{path}/events.db", f"{path}/events.gone")
    with open(f"{path}/thread.url", "w", encoding="utf-8") as file:
        file.write("nonsense")
    with stranger(client) as other:
        status, what = problem(other.get(f"{API}/events"))
        assert (status in (404, 500), path in what) == (True, False)


def test_a_sentence_is_told_or_not() -> None:
    """No part of it is looked for."""
    known = Principal("ada", frozenset(), is_told=True)
    assert known.told(SECRET) == SECRET
    assert Principal("", frozenset()).told(SECRET) == "(told to whoever comes with a token)"
