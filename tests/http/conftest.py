"""A server for HTTP in this process, and clients of it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import eventq
from eventq.http import guesses, sharing
from eventq.http.site import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Serve = Callable[..., httpx.Client]

TOKEN = "a token"


class _Hasty:
    """The module `asyncio` as uvicorn sees it, whose loop looks for its end ten times a second."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        """Sleep for a short while."""
        await asyncio.sleep(seconds / 20)


class Running:
    """A server that runs in a thread of its own until the end of a test."""

    def __init__(self, paths: list[str], listen: str, options: dict[str, Any]) -> None:
        mcp = options.pop("mcp", None)
        self.server = Server(paths, listen, **options)
        self.server.mcp = mcp
        self.url = ""
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(60)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self.server.serve(self._begin))
        except BaseException as error:
            self._error = error
            self._ready.set()

    def _begin(self, url: str) -> None:
        self.url = url
        self._ready.set()

    def stop(self) -> None:
        """End it, and wait for that."""
        self.server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that serves threads and returns a client with the token.

    Nobody waits: for the answer to a wrong token, for a turn without a token, for a server to end.
    """
    monkeypatch.setattr(guesses, "LEAST_SECONDS", 0)
    monkeypatch.setattr(guesses, "TURN_SECONDS", 0)
    monkeypatch.setattr(sharing, "BUSY_SECONDS", 0)
    monkeypatch.setattr("uvicorn.server.asyncio", _Hasty())
    with ExitStack() as stack:

        def serve(*paths: str, listen: str = "127.0.0.1:0", **options: Any) -> httpx.Client:
            given = {"token": TOKEN, "write": True, "insecure": False, **options}
            running = Running([*paths], listen, given)
            stack.callback(running.stop)
            shown = f"Bearer {given['token']}".encode()
            headers = {b"authorization": shown} if given["token"] else {}
            # Nothing is encrypted here, and to read the certificates takes longer than many a test.
            client = httpx.Client(base_url=running.url, headers=headers, timeout=60, verify=False)
            client.running = running  # type: ignore[attr-defined]
            return stack.enter_context(client)

        yield serve
    for one in threading.enumerate():
        if one.name == "eventq-feed":  # it ends with its server, or soon after
            one.join(60)
            assert not one.is_alive()


@pytest.fixture
def path(_pristine: str, tmp_path: Any) -> str:
    """Return the path of a fresh thread."""
    import shutil

    return str(shutil.copytree(_pristine, tmp_path / "thread"))


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a client of a server of one thread, below whose address it asks."""
    client = serve(path)
    client.base_url = httpx.URL(f"{client.base_url}/api/threads/thread/")
    return client


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:
    """Return the same thread, opened by this process; it must check out in the end."""
    with eventq.open(path) as thread:
        yield thread
        assert thread.check() == []


def of_server(client: httpx.Client, path: str) -> httpx.Response:
    """Return the reply to what is about the server, of a client that asks below a thread."""
    return client.get(str(client.base_url.copy_with(path=path)))


def problem(response: httpx.Response) -> tuple[int, str]:
    """Return status and sentence of an error."""
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == response.status_code
    return found["status"], found["detail"]
