"""MCP over streamable HTTP, inside a server that has checked who asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from eventq.errors import BusyError
from eventq.mcp.jsonrpc import BATCHED, Batch, Object, encode, error, is_request, read, taken_id
from eventq.mcp.thread_server import ROOM, ThreadServer
from eventq.serving.parameters import MOST_BODY
from eventq.serving.principal import PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eventq.serving.principal import Principal
    from eventq.serving.served import ServedThread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Handle = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

END_SECONDS = 2.0  # for calls that are under way at the end
SESSIONS = 4_000  # of a thread, at once
UNKNOWN_SESSIONS = 32  # of them, of callers without a token
UNKNOWN_BODY = 64 << 10  # bytes of a request of theirs
IDLE_SECONDS = 600.0  # after which a session ends, of a client that listens to nothing


class Mount:
    """The MCP servers of the threads of one HTTP server; each begins with its first request.

    Create it, and call it, in the loop of that server.
    """

    def __init__(self, *, room: int = ROOM) -> None:
        self._room = room
        self._servers: dict[
            tuple[ServedThread, bool], tuple[asyncio.Future[Any], asyncio.Task[None]]
        ] = {}
        self._ended = asyncio.Event()
        self._under_way: set[tuple[bytes, str]] = set()  # sessions and ids of requests

    async def answer(
        self, served: ServedThread, scope: dict[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer a request, whose scope has its principal. Raises BusyError once all end.

        Callers who are not known have sessions of their own, so that they take no other's; and so
        does the holder of each token, by its name.
        """
        if self._ended.is_set():
            raise BusyError("the server is about to end", "try again later")
        who: Principal = scope[PRINCIPAL]
        is_known = who.is_known
        if who.is_told:  # the SDK gives a session to whoever began it
            token = AccessToken(token="", client_id=who.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        key = served, is_known
        if key not in self._servers:
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._serve(served, ready, is_known=is_known))
            self._servers[key] = ready, task
        manager = await asyncio.shield(self._servers[key][0])
        with suppress(ClientDisconnect):  # there is nobody to tell
            if scope["method"] == "POST":
                most = MOST_BODY if is_known else UNKNOWN_BODY
                await self._post(manager.handle_request, most, scope, receive, send)
            else:
                await manager.handle_request(scope, receive, send)

    async def _post(
        self, handle: Handle, most: int, scope: dict[str, Any], receive: Receive, send: Send
    ) -> None:
        """Let a message be handled, or those of an array; answer what is no message."""
        body = await _body(receive, most)
        if body is None:
            await _reply(send, 413, encode(error(INVALID_REQUEST, "the body is too long - cut it")))
            return
        headers = dict(scope["headers"])
        session = headers.get(b"mcp-session-id", b"")
        # Only since a later revision do clients name theirs.
        batched = headers.get(b"mcp-protocol-version", BATCHED.encode()) == BATCHED.encode()
        value, wrong = read(body, batched=batched)
        taken = {number for found, number in self._under_way if found == session}
        batch = Batch(value, taken) if isinstance(value, list) else None
        ids = {str(one) for one in batch.waits} if batch else set()
        if wrong is None and batch is None and session and is_request(value):
            ids = {str(value["id"])}
            if ids & taken:  # both would have one stream, and the first would wait for ever
                wrong = taken_id(value["id"])
        if wrong is not None:
            await _reply(send, 400, encode(wrong))
            return
        noted = {(session, number) for number in ids}
        self._under_way |= noted

        async def end(part: dict[str, Any]) -> None:
            if part["type"] == "http.response.body" and not part.get("more_body"):
                self._under_way.difference_update(noted)  # before the caller can use it again
            await send(part)

        try:
            if batch is None:
                await handle(scope, _replay(body, receive), end)
            else:
                await _batch(handle, scope, receive, end, batch)
        finally:
            self._under_way -= noted

    async def _serve(
        self, served: ServedThread, ready: asyncio.Future[Any], *, is_known: bool
    ) -> None:
        server = ThreadServer(served, write=True, room=self._room)
        manager = StreamableHTTPSessionManager(
            server.sdk, max_request_body_size=MOST_BODY if is_known else UNKNOWN_BODY,
            max_sessions=SESSIONS if is_known else UNKNOWN_SESSIONS,
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


async def _batch(
    handle: Handle, scope: dict[str, Any], receive: Receive, send: Send, batch: Batch
) -> None:
    """Handle the messages of an array at once, and send the replies to them."""
    gone = asyncio.ensure_future(_gone(receive))

    async def listen() -> dict[str, Any]:
        return await asyncio.shield(gone)

    async def one(message: Object) -> None:
        parts: list[bytes] = []

        async def keep(part: dict[str, Any]) -> None:
            parts.append(part.get("body", b""))

        await handle(dict(scope), _replay(encode(message), listen), keep)
        if is_request(message):
            batch.add(_reply_in(b"".join(parts), message["id"]))

    try:
        await asyncio.gather(*map(one, batch.messages))
    finally:
        gone.cancel()
    replies = batch.replies()
    await _reply(send, 202 if replies is None else 200, replies or b"")


def _reply_in(body: bytes, number: Any) -> Object:
    """Return the reply to a request: the last message of a stream, or the only one."""
    lines = [line.removeprefix(b"data:") for line in body.splitlines() if line[:1] in (b"d", b"{")]
    for line in reversed(lines):
        with suppress(ValueError):
            found: Object = from_json(line)
            return {**found, "id": number}  # the SDK answers some errors without
    return error(INTERNAL_ERROR, "the session ended - begin a new one", number)


async def _body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request, None if it is too long. Raises ClientDisconnect."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body, then all that comes after it."""
    bodies = [body]

    async def replay() -> dict[str, Any]:
        return {"type": "http.request", "body": bodies.pop()} if bodies else await receive()

    return replay


async def _gone(receive: Receive) -> dict[str, Any]:
    """Return the message that says that the caller has gone."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
