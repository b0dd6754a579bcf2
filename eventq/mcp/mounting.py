"""MCP over streamable HTTP, inside a server that has checked who asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import ClientDisconnect

from eventq.errors import BusyError
from eventq.mcp.thread_server import MAY_WRITE, ROOM, ThreadServer
from eventq.serving.parameters import MOST_BODY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eventq.serving.served import ServedThread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

END_SECONDS = 2.0  # for calls that are under way at the end
SESSIONS = 4_000  # of a thread, at once
IDLE_SECONDS = 600.0  # after which a session ends, of a client that listens to nothing


class Mount:
    """The MCP servers of the threads of one HTTP server; each begins with its first request.

    Create it, and call it, in the loop of that server.
    """

    def __init__(self, *, room: int = ROOM) -> None:
        self._room = room
        self._servers: dict[ServedThread, tuple[asyncio.Future[Any], asyncio.Task[None]]] = {}
        self._ended = asyncio.Event()

    async def answer(
        self,
        served: ServedThread,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        *,
        may_write: bool,
    ) -> None:
        """Answer a request to the server of a thread. Raises BusyError once all end."""
        if self._ended.is_set():
            raise BusyError("the server is about to end", "try again later")
        scope[MAY_WRITE] = may_write
        if served not in self._servers:
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._servers[served] = ready, asyncio.create_task(self._serve(served, ready))
        manager = await asyncio.shield(self._servers[served][0])
        with suppress(ClientDisconnect):  # there is nobody to tell
            await manager.handle_request(scope, receive, send)

    async def _serve(self, served: ServedThread, ready: asyncio.Future[Any]) -> None:
        server = ThreadServer(served, write=True, room=self._room)
        manager = StreamableHTTPSessionManager(
            server.sdk, max_request_body_size=MOST_BODY, max_sessions=SESSIONS,
            session_idle_timeout=IDLE_SECONDS,
        )  # fmt: skip
        # It is entered and left in one task, as its task group demands.
        async with manager.run():
            ready.set_result(manager)
            await self._ended.wait()
            await server.close(END_SECONDS)

    def close(self) -> None:
        """End what clients listen to, then all sessions."""
        self._ended.set()

    async def wait_closed(self) -> None:
        """Wait until all have ended."""
        for _, task in self._servers.values():
            with suppress(asyncio.CancelledError):
                await task
