"""The application: it finds the operation of a request, checks who asks, and answers in JSON."""

from __future__ import annotations

import asyncio
import json
import logging
from codecs import BOM_UTF8
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from eventq.errors import BusyError, EventqError
from eventq.http import log_api, memory_api, output_api
from eventq.http.access import SAFE, RefusedError, WrongTokenError
from eventq.http.cxdb import Cxdb, refusal
from eventq.http.exchange import MOST_HELD, MOST_UNKNOWN, Budget, Exchange
from eventq.http.following import STREAMS, stream
from eventq.http.guesses import Guesses
from eventq.http.metrics import exposition
from eventq.http.openapi import document
from eventq.http.operations import Operation, Reply, of_json
from eventq.http.pages.frame import Pages
from eventq.http.routes import Routes
from eventq.http.sending import (
    Caller,
    body_of,
    prefers_page,
    send_content,
    send_problem,
    send_reply,
)
from eventq.http.sharing import Share
from eventq.serving.parameters import MOST, Part, load, of_object, of_words, with_key
from eventq.serving.plans import QUICK
from eventq.serving.principal import NONE, PRINCIPAL, Principal
from eventq.serving.served import for_each
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from eventq.http.access import Access
    from eventq.records.info import ThreadStatus
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_NUMBER = Part("id", "integer", "The id.", most=MOST)
_encode = writer()
# Headers that decide who asks, for whom, and what is done.
_ONCE = (
    b"host", b"origin", b"authorization", b"x-csrf-token", b"sec-fetch-site", b"sec-fetch-mode",
    b"sec-fetch-dest", b"content-type", b"idempotency-key", b"last-event-id", b"mcp-session-id",
    b"mcp-protocol-version",
)  # fmt: skip
_STRANGER = Principal("", NONE)  # until it is known who asks
MCP = b"/mcp"  # and that of a thread by its name: /mcp/NAME


OPERATIONS: Sequence[Operation] = (
    *log_api.OPERATIONS,
    *STREAMS,
    *memory_api.OPERATIONS,
    *output_api.OPERATIONS,
)


class App:
    """The application of a server: some threads, and who may use them."""

    def __init__(
        self, threads: Mapping[str, ServedThread], access: Access, mcp: Any = None, *,
        unknown: int | None = None,
    ) -> None:  # fmt: skip
        """Take how many requests of callers without a token may be under way."""
        self.threads = threads
        self._mcp = mcp
        self._access = access
        self._routes = Routes((one.method, one.path, one) for one in OPERATIONS)
        self._cxdb = Cxdb()
        self._pages = Pages(threads, access)
        self._document: bytes | None = None
        self._guesses = Guesses()
        self._share = Share()
        self.budget = Budget(MOST_HELD)
        self.unknown = Budget(MOST_UNKNOWN, unknown)  # of callers without a token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(self.unknown, self._share, receive, send)
        work = self._serve(scope, exchange, self._refused(scope, exchange), receive, send)
        try:
            await (work if exchange.is_admitted else self._share.run(work))
        finally:
            exchange.end()

    def _refused(self, scope: Scope, exchange: Exchange) -> Exception | None:
        """Look where a request comes from and who asks; return why it is refused at once."""
        try:
            _check_once(scope)
            self._admit(scope, exchange)
        except Exception as error:  # noqa: BLE001 (a fault of ours is answered like any other)
            return error
        return None

    async def _serve(
        self, scope: Scope, exchange: Exchange, refused: Exception | None, receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        """Answer one request when it is its turn."""
        connection = scope["state"]["connection"]
        if refused is not None:
            connection.may_give_way()
        try:
            try:
                await exchange.wait()
                if connection.has_gone:
                    return
                if refused is not None:
                    raise refused
                await self._answer(scope, exchange)
                return
            except Exception as error:  # (a fault of ours is answered like any other)
                if exchange.has_begun:  # uvicorn ends the connection: half a reply is known as such
                    raise
                if isinstance(error, WrongTokenError):
                    await self._guesses.wait(scope, receive)
                why = error
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            if exchange.has_begun:
                return
            what = "the server ended before this was answered"
            why = BusyError(what, "see whether it was done, then send it again")
        await self._refuse(scope, *_problem(why, scope.get(PRINCIPAL, _STRANGER)), send)

    async def _refuse(self, scope: Scope, status: int, what: str, send: Send) -> None:
        """Answer an error in the form of its place."""
        path = scope.get("raw_path") or scope["path"].encode()
        if self._pages.has(path):
            who = scope.get(PRINCIPAL, _STRANGER)
            reply = self._pages.refusal(path, who, status, what)
            await send_reply(send, reply, {}, scope["method"])
        elif Cxdb.has(path):
            await send_reply(send, refusal(status, what), {}, scope["method"])
        else:
            await send_problem(send, status, what)

    async def _answer(self, scope: Scope, exchange: Exchange) -> None:
        """Answer a request in the form of its place, which looks at its body last."""
        receive, send = exchange.receive, exchange.send
        headers, method = _headers_of(scope), scope["method"]
        path = scope.get("raw_path") or scope["path"].encode()
        who: Principal = scope[PRINCIPAL]
        if self._pages.has(path):
            await self._pages.answer(scope, headers, who, receive, send)
            return
        if _is_mcp(scope):
            await self._answer_mcp(scope, who, receive, send)
            return
        self._access.check_method(who, method, headers)
        found = await self._of_server(scope["path"], who)
        if found is not None:
            if not await self._allow(method, ("GET",), send):
                await send_reply(send, found, headers, method)
            return
        if self._cxdb.has(path):
            await self._answer_cxdb(scope, headers, who, receive, send)
            return
        await self._operate(scope, path, headers, who, receive, send)

    async def _operate(
        self, scope: Scope, path: bytes, headers: Mapping[str, str], who: Principal,
        receive: Receive, send: Send,
    ) -> None:  # fmt: skip
        """Do an operation of a thread."""
        method = scope["method"]
        place = self._routes.find(path)
        if place is None:
            if prefers_page(headers) and not path.startswith(b"/api"):
                reply = self._pages.refusal(path, who, 404, "there is no such page")
                await send_reply(send, reply, {}, method)
                return
            raise RefusedError(404, f"there is no {scope['path']:.200} - see /api/openapi.json")
        methods, names = place
        is_stream = any(one.follows is not None for one in methods.values())
        if await self._allow(method, tuple(methods), send, is_stream=is_stream):
            return
        served = self.threads.get(names.pop("thread"))
        if served is None:
            raise RefusedError(404, "there is no such thread - see /api/threads")
        operation = methods["GET" if method == "HEAD" else method]
        if method not in SAFE:
            self._access.check(who, operation.right)
        words = parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        given = of_words(operation.query, words)
        if "id" in names:
            given["id"] = _NUMBER.of_query(names.pop("id"))
        given.update(names)
        if operation.follows is not None:
            pages = operation.follows(served, given)
            await stream(served.feed, pages, given["after"], headers, who, receive, send)
            return
        has_body = operation.raw or operation.body is not None
        body = await body_of(receive, headers) if has_body else b""
        wait = given.pop("wait", 0) or 0
        if operation.by_caller:
            given["who"] = who
        run = who.acting("http", _call_of(operation, given, body, headers))
        if wait or operation.watched:
            async with Caller(receive) as caller:
                reply = await _poll(served, operation, run, wait, caller)
                if reply.undo is not None and await caller.is_gone():
                    await served.do(reply.undo, operation.how, alone=operation.alone)
        else:
            reply = await served.do(run, operation.how, len(body), alone=operation.alone)
        if operation.run is log_api.check:
            checked = json.loads(reply.body)
            served.checked = {"at": clock.now(), **checked}  # for whoever asks
            told = {name: [*map(who.told, checked[name])] for name in ("faults", "warnings")}
            reply = of_json(checked | told)
        if reply.content is not None:
            only_head = method == "HEAD"
            await send_content(served, reply.content, headers, receive, send, only_head=only_head)
        else:
            await send_reply(send, reply, headers, method)

    def _admit(self, scope: Scope, exchange: Exchange) -> None:
        """Look where a request comes from and who asks, whose budget it then counts against.

        A cookie is nothing to MCP: a page that sends it cannot be told from a client.
        """
        connection, headers = scope["state"]["connection"], _headers_of(scope)
        if connection.is_surplus:
            raise BusyError("the server has as many connections as it takes", "try again later")
        self._access.check_place(scope["method"], headers)
        who = scope[PRINCIPAL] = self._access.principal(headers, cookies=not _is_mcp(scope))
        if who.is_known:
            exchange.admit(self.budget)
            connection.admit()
        exchange.begin()

    async def _answer_cxdb(
        self, scope: Scope, headers: Mapping[str, str], who: Principal, receive: Receive, send: Send
    ) -> None:
        """Let the first thread answer a client of CXDB."""
        if scope["method"] not in SAFE:
            self._access.check(who, "all")
        first = next(iter(self.threads.values()), None)
        if first is None:
            raise RefusedError(404, "this server has no thread")
        await self._cxdb.answer(first, scope, headers, receive, send)

    async def _answer_mcp(self, scope: Scope, who: Principal, receive: Receive, send: Send) -> None:
        """Let the thread's MCP server answer; what a caller may do there is its business."""
        self._access.check(who, "read")  # whoever speaks MCP may
        name = scope["path"][len(MCP) + 1 :]
        served = self.threads.get(name) if name else next(iter(self.threads.values()), None)
        if self._mcp is None:
            raise RefusedError(404, "this server speaks no MCP - start it with --mcp")
        if served is None:
            raise RefusedError(404, "there is no such thread - see /api/threads")
        began = clock.monotonic()
        await self._mcp.answer(served, scope, receive, send)
        if not who.is_known and scope["method"] == "POST":  # most is done in tasks of the SDK
            self._share.took(clock.monotonic() - began)

    async def _of_server(self, path: str, who: Principal) -> Reply | None:
        """Return the reply of the paths that are about the server, None for others."""
        if path == "/api/health":
            bad = [name for name, is_sound in (await self._sound()).items() if not is_sound]
            status = "damaged" if bad else "ok"
            return of_json({"status": status, "threads": len(self.threads), "damaged": bad})
        if path == "/api/threads":
            shown = [
                {"name": served.name} | ({"path": served.path} if who.is_told else {})
                for served in self.threads.values()
            ]
            return of_json({"threads": shown, "write": self._access.write})
        if path == "/metrics":
            return Reply(await self._metrics(), type="text/plain; version=0.0.4; charset=utf-8")
        if path == "/api/openapi.json":
            self._document = self._document or _encode(document(OPERATIONS)).encode()
            return Reply(self._document)
        return None

    async def _sound(self) -> dict[str, bool]:
        """Return for each thread whether it can be read, and the last check found no fault."""

        async def look(served: ServedThread) -> bool:
            try:
                await served.glance(lambda thread: thread.last(1), QUICK)
            except EventqError:
                return False
            return not (served.checked or {}).get("faults")

        looks = await for_each(look, self.threads.values())
        return dict(zip(self.threads, looks, strict=True))

    async def _metrics(self) -> bytes:
        """Return the metrics of the threads, and which of them are sound."""
        found: dict[str, ThreadStatus] = {}

        async def look(served: ServedThread) -> None:
            with suppress(EventqError):
                found[served.name] = await served.glance(lambda thread: thread.status(), QUICK)

        await for_each(look, self.threads.values())
        ordered = {name: found[name] for name in self.threads if name in found}
        sound = await self._sound()
        return exposition(ordered, {name: sound[name] and name in found for name in sound}).encode()

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


def _is_mcp(scope: Scope) -> bool:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path == MCP or path.startswith(MCP + b"/")


def _check_once(scope: Scope) -> None:
    """Refuse two headers of which one decides: whoever reads them next might take the other."""
    names = [name for name, _ in scope["headers"]]
    for name in _ONCE:
        if names.count(name) > 1:
            raise RefusedError(400, f"{name.decode()} stands there twice - send it once")


def _headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _call_of(
    operation: Operation, given: dict[str, Any], body: bytes, headers: Mapping[str, str]
) -> Callable[[Thread], Reply]:
    """Return what a worker does for a request; if it does that again, what `again` changes."""
    lines = "ndjson" in headers.get("content-type", "")
    key = _key_of(headers)
    tries = count()

    def run(thread: Thread) -> Reply:
        values = dict(given)
        if operation.raw:
            values["body"] = body
        elif operation.body is not None:
            text = body.removeprefix(BOM_UTF8)
            value = load(text, lines=lines and operation.many)
            if operation.many:
                values |= {"body": value, "text": text, "is_lines": lines, "key": key}
            else:
                values |= with_key(of_object(operation.body, value), key)
        if next(tries) and operation.again is not None:
            values = operation.again(values)
        return operation.run(thread, values)

    return run


def _key_of(headers: Mapping[str, str]) -> str | None:
    """Return the key that Idempotency-Key gives: a text, or a string in quotes (RFC 8941)."""
    key = headers.get("idempotency-key")
    if key is not None and len(key) > 1 and key[0] == key[-1] == '"':
        return key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return key


async def _poll(
    served: ServedThread,
    operation: Operation,
    run: Callable[[Thread], Reply],
    seconds: float,
    caller: Caller,
) -> Reply:
    """Look again while there is nothing; once the caller has gone, nothing is claimed for them."""
    deadline = clock.monotonic() + seconds
    while True:
        changed = served.feed.changed
        reply = await served.do(run, operation.how, alone=operation.alone)
        left = deadline - clock.monotonic()
        if not reply.is_empty or left <= 0 or served.feed.is_closed or caller.has_gone:
            return reply
        served.feed.polls += 1
        await caller.wait(min(left, SLOW_LOOK), changed)
        served.feed.polls -= 1
        if caller.has_gone:
            return reply


def _problem(error: Exception, who: Principal) -> tuple[int, str]:
    """Return status and sentence of an error, as the caller may read it."""
    if isinstance(error, RefusedError):
        return error.status, error.what
    if isinstance(error, EventqError):
        return who.said(error)
    logging.getLogger("eventq.http").error("a request failed", exc_info=error)
    what = f"the server has a fault: {type(error).__name__}"
    return 500, f"{what} - see what it printed, and logs/thread.log of the thread"
