"""Callers without a token take a small share of the time that a server has for those with one.

Members of the kind: what the loop does before a request is refused, for a reply, for each part of a
stream, for the body of a request to MCP; requests whose callers have gone before their turn.
"""

from __future__ import annotations

import asyncio
import select
import threading
from typing import TYPE_CHECKING, Any

import pytest

from eventq.http import sharing
from eventq.http.pages.frame import Pages
from eventq.http.sharing import Share
from eventq.mcp.mounting import Mount
from tests.http.test_connections import EVENTS, HOST, connected, rest_of

if TYPE_CHECKING:
    import httpx

    import eventq
    from tests.http.conftest import Serve

CALLS = {
    "a page": f"GET / HTTP/1.1\r\n{HOST}\r\n",
    "another site": f"GET /api/health HTTP/1.1\r\n{HOST}origin: http://other\r\n\r\n",
    "a wrong place": f"GET /nowhere HTTP/1.1\r\n{HOST}\r\n",
    "no right": f"POST /api/threads/thread/events HTTP/1.1\r\n{HOST}content-length: 0\r\n\r\n",
    "MCP": f"POST /mcp HTTP/1.1\r\n{HOST}content-length: 4\r\n\r\n[[]]",
}


def push(client: httpx.Client) -> None:
    """Push an event, with the token."""
    assert client.post(EVENTS, json={"content": "x"}).status_code == 201


class Clock:
    """A clock that stands still but for what is done."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr("eventq.system.clock.monotonic", lambda: self.now)
        patch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    async def work(self, seconds: float) -> None:
        """Take time of the loop, in two steps between which it is free."""
        self.now += seconds / 2
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._idle, future)
        await future
        self.now += seconds / 2

    def _idle(self, future: asyncio.Future[None]) -> None:
        self.now += 5.0
        future.set_result(None)


def test_a_tenth_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody is served, each waits nine times as long as the steps before it took."""

    async def run() -> None:
        clock, mine = Clock(monkeypatch), Share()
        await mine.run(clock.work(0.04))
        before = clock.now
        await mine.wait()
        assert clock.now == before  # nobody else is there
        mine.give_way()
        await mine.wait()
        assert clock.now == pytest.approx(before + 9 * 0.02)
        await mine.run(clock.work(60.0))
        mine.give_way()
        before = clock.now
        await mine.wait()
        assert clock.now == pytest.approx(before + sharing.MOST_SECONDS)

    asyncio.run(run())


def test_work_ends_as_it_would_alone() -> None:
    """What it raises is raised, and what ends it reaches it."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("mine")

    async def last() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    ended: list[int] = []

    async def run() -> None:
        mine = Share()
        with pytest.raises(KeyError, match="mine"):
            await mine.run(fail())
        task = asyncio.ensure_future(mine.run(last()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [1]

    asyncio.run(run())


@pytest.fixture
def _long(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one call without a token be the last one, as long as somebody with one is served."""
    for name in ("TIMES", "MOST_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(sharing, name, 1e9)
    monkeypatch.setattr("eventq.http.site.END_SECONDS", 0)  # they would be waited for at the end


@pytest.mark.usefixtures("_long")
@pytest.mark.parametrize("what", CALLS)
def test_others_are_served_meanwhile(serve: Serve, path: str, what: str) -> None:
    """Whatever the others ask for, and however often."""
    client = serve(path, mcp=Mount)
    with connected(client, CALLS[what].encode()) as raw:
        assert raw.recv(1 << 16).startswith(b"HTTP/1.1 ")
        push(client)
        with connected(client, CALLS[what].encode() * 2) as other:
            for _ in range(10):
                push(client)
            assert not select.select([other], [], [], 0)[0]


@pytest.mark.usefixtures("_long")
def test_parts_of_a_stream_take_turns(serve: Serve, path: str, thread: eventq.Thread) -> None:
    """A follower is told later of what comes while others are served."""
    client = serve(path)
    sent = f"GET /api/threads/thread/events/stream?after=0 HTTP/1.1\r\n{HOST}\r\n"
    with connected(client, sent.encode()) as raw:
        while b": connected" not in raw.recv(1 << 16):
            pass
        for _ in range(10):
            push(client)
        assert thread.last_id() == 10
        assert not select.select([raw], [], [], 0)[0]


def test_who_has_gone_is_not_served(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is done for them when it is their turn."""
    is_open, asked = threading.Event(), []
    answer = Pages.answer

    async def wait(_: Share) -> None:
        while not is_open.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def note(self: Pages, *given: Any) -> None:
        asked.append(given)
        await answer(self, *given)

    monkeypatch.setattr(Share, "wait", wait)
    monkeypatch.setattr(Pages, "answer", note)
    client = serve(path)
    for _ in range(20):
        connected(client, CALLS["a page"].encode()).close()
    for _ in range(3):  # by then the server has seen that they have gone
        assert client.get("/api/health").status_code == 200
    is_open.set()
    with connected(client, f"GET / HTTP/1.0\r\n{HOST}\r\n".encode()) as raw:
        assert rest_of(raw).startswith(b"HTTP/1.1 ")
    assert len(asked) == 1


def test_a_body_behind_a_wrong_token_holds_nothing(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is passed over while the caller waits for the refusal, however long it is."""
    monkeypatch.setattr("eventq.http.app.MOST_UNKNOWN", 1_000)
    body = f"content-length: 200000\r\nconnection: close\r\n\r\n{'x' * 200_000}"
    head = f"POST {EVENTS} HTTP/1.1\r\n{HOST}authorization: Bearer wrong\r\n"
    with connected(serve(path), f"{head}{body}".encode()) as raw:
        assert rest_of(raw).startswith(b"HTTP/1.1 401 ")
