"""The application: it finds the operation of a request, checks who asks, and answers in JSON."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from blake3 import blake3

from eventq.errors import (
    ClosedError,
    EventqError,
    NotAThreadError,
    TooLargeError,
    UsageError,
)
from eventq.http.access import RefusedError
from eventq.http.following import STREAM, stream
from eventq.http.log_api import OPERATIONS, load
from eventq.http.metrics import exposition
from eventq.http.openapi import document
from eventq.http.operations import MOST, Operation, Part, Reply, of_object, of_words
from eventq.serving.plans import QUICK
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from eventq.http.access import Access
    from eventq.http.house import House
    from eventq.records.info import ThreadStatus
    from eventq.thread import Thread

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

MOST_BODY = 68 << 20  # bytes: an event of 64 MiB, and its JSON
_NUMBER = Part("id", "integer", "The id.", most=MOST)
_encode = writer()


class Tree:
    """The paths of operations, by their segments; a segment in braces takes any text."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._paths: list[tuple[list[str], dict[str, Operation]]] = []
        by_path: dict[str, dict[str, Operation]] = {}
        for one in operations:
            by_path.setdefault(one.path, {})[one.method] = one
        for path, methods in sorted(by_path.items(), key=lambda one: one[0].count("{")):
            self._paths.append((path.strip("/").split("/"), methods))

    def find(self, path: bytes) -> tuple[dict[str, Operation], dict[str, str]] | None:
        """Return the operations of a path, by method, and what stands for its braces.

        Segments are decoded one by one, so that a name may hold a slash.
        """
        words = [unquote(part) for part in path.decode("ascii", "replace").strip("/").split("/")]
        for parts, methods in self._paths:
            if len(parts) == len(words):
                pairs = [*zip(parts, words, strict=True)]
                if all(part == word or part[0] == "{" for part, word in pairs):
                    return methods, {part[1:-1]: word for part, word in pairs if part[0] == "{"}
        return None


class App:
    """The application of a server: some threads, and who may use them."""

    def __init__(self, houses: Mapping[str, House], access: Access) -> None:
        self.houses = houses
        self._access = access
        self._tree = Tree([*OPERATIONS, STREAM])
        self._document: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except RefusedError as error:
            await send_problem(send, error.status, error.what)
        except EventqError as error:
            gone = isinstance(error, (NotAThreadError, ClosedError))
            await send_problem(send, 404 if gone else error.wire_code, str(error))
        except Exception as error:  # noqa: BLE001 (a fault of ours is answered like any other)
            what = f"the server has a fault: {type(error).__name__}"
            await send_problem(send, 500, f"{what} - see logs/thread.log of the thread")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        method = scope["method"]
        self._access.check(method, headers)
        found = await self._of_server(scope["path"])
        if found is not None:
            if not await self._allow(method, ("GET",), send):
                await _send(send, found, headers, method)
            return
        path = scope.get("raw_path") or scope["path"].encode()
        place = self._tree.find(path)
        if place is None:
            await send_problem(
                send, 404, f"there is no {scope['path']:.200} - see /api/openapi.json"
            )
            return
        methods, names = place
        if await self._allow(method, tuple(methods), send, is_stream=STREAM in methods.values()):
            return
        house = self.houses.get(names.pop("thread"))
        if house is None:
            await send_problem(send, 404, "there is no such thread - see /api/threads")
            return
        operation = methods["GET" if method == "HEAD" else method]
        words = parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        given = of_words(operation.query, words)
        if "id" in names:
            given["id"] = _NUMBER.of_query(names.pop("id"))
        given.update(names)
        if operation is STREAM:
            await stream(house, given, headers, receive, send)
            return
        body = await _body(receive, headers) if operation.body is not None else b""
        reply = await self._do(house, operation, given, body, headers)
        await _send(send, reply, headers, method)

    async def _of_server(self, path: str) -> Reply | None:
        """Return the reply of the paths that are about the server, None for others."""
        if path == "/api/health":
            return _json({"status": "ok", "threads": len(self.houses)})
        if path == "/api/threads":
            shown = [
                {"name": house.name} | ({"path": house.path} if self._access.write else {})
                for house in self.houses.values()
            ]
            return _json({"threads": shown, "write": self._access.write})
        if path == "/metrics":
            return Reply(await self._metrics(), type="text/plain; version=0.0.4; charset=utf-8")
        if path == "/api/openapi.json":
            self._document = self._document or _encode(document([*OPERATIONS, STREAM])).encode()
            return Reply(self._document)
        return None

    async def _metrics(self) -> bytes:
        """Return the metrics of the threads that are there."""
        found: dict[str, ThreadStatus] = {}

        async def look(house: House) -> None:
            def run(thread: Thread) -> Reply:
                found[house.name] = thread.status()
                return Reply(b"")

            with suppress(EventqError):
                await house.do(run, QUICK)

        await asyncio.gather(*map(look, self.houses.values()))
        ordered = {name: found[name] for name in self.houses if name in found}
        return exposition(ordered).encode()

    async def _allow(
        self, method: str, methods: tuple[str, ...], send: Send, *, is_stream: bool = False
    ) -> bool:
        """Answer a method that a path does not have; return whether it was one."""
        allowed = {*methods} | ({"HEAD"} if "GET" in methods and not is_stream else set())
        if method in allowed:
            return False
        names = ", ".join(sorted(allowed))
        more = [(b"allow", names.encode())]
        await send_problem(send, 405, f"{method:.20} is not for this path - use {names}", more)
        return True

    async def _do(
        self, house: House, operation: Operation, given: dict[str, Any], body: bytes,
        headers: Mapping[str, str],
    ) -> Reply:  # fmt: skip
        """Do an operation; wait and look again while there is nothing, if that was asked for."""
        wait = given.pop("wait", 0) or 0
        deadline = clock.monotonic() + wait
        lines = "ndjson" in headers.get("content-type", "")

        def run(thread: Thread) -> Reply:
            values = dict(given)
            if operation.body is not None:
                value = load(body, lines=lines and operation.many)
                values |= {"body": value} if operation.many else of_object(operation.body, value)
            if again and operation.again is not None:
                values = operation.again(values)
            return operation.run(thread, values)

        again = False
        while True:
            changed = house.feed.changed
            reply = await house.do(run, operation.how, len(body), alone=operation.alone)
            left = deadline - clock.monotonic()
            if not reply.is_empty or left <= 0 or house.feed.is_closed:
                return reply
            again = True
            await house.feed.wait(changed, min(left, SLOW_LOOK))


def _json(value: object) -> Reply:
    return Reply(_encode(value).encode())


async def _body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """Read a body. Raises TooLargeError, UsageError."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > MOST_BODY:
        raise _too_large(int(length))
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UsageError("the body is not whole", "send it again")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise _too_large(None)
        if not message.get("more_body"):
            return b"".join(parts)


def _too_large(size: int | None) -> TooLargeError:
    return TooLargeError(size, MOST_BODY, "body", "send less at once")


async def _send(send: Send, reply: Reply, headers: Mapping[str, str], method: str) -> None:
    """Send a reply with its tag; nothing but that if the caller has it already."""
    more = [(b"content-type", reply.type.encode())] if reply.status != 204 else []
    status, body = reply.status, reply.body
    if method in ("GET", "HEAD"):
        tag = f'"{blake3(body).hexdigest()[:32]}"'
        more += [(b"etag", tag.encode()), (b"cache-control", b"no-cache")]
        if tag in [
            one.strip().removeprefix("W/") for one in headers.get("if-none-match", "").split(",")
        ]:
            status, body = 304, b""
    if status not in (204, 304):
        more.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


async def send_problem(
    send: Send, status: int, detail: str, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Send an error as RFC 9457 has it: its detail is a sentence, and the next step."""
    value = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body = _encode({**value, "detail": detail}).encode("utf-8", "replace")
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
