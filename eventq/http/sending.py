"""Requests and replies as bytes.

What is long is sent as it is read: whole, a range of it, or as it is written.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from eventq.errors import TooLargeError, UsageError
from eventq.http.operations import Reply
from eventq.serving.parameters import MOST_BODY
from eventq.serving.plans import READ
from eventq.system.clock import SLOW_LOOK
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from eventq.http.operations import Content
    from eventq.serving.served import Feed, ServedThread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

LEAST_PACKED = 1_000  # bytes from which on a reply is compressed, if the caller takes that
STEP = 1 << 20  # bytes that are read and sent at once
_encode = writer()
_JSON = ("application/json", "application/problem+json")
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
# A page may show what others wrote, and nothing in it may run.
_SAFE = [(b"content-security-policy", b"default-src 'none'; sandbox")]


async def send_content(
    served: ServedThread,
    content: Content,
    headers: Mapping[str, str],
    receive: Receive,
    send: Send,
    *,
    only_head: bool = False,
) -> None:
    """Send content, for as long as the caller reads. Raises what the first read does.

    What goes wrong after the first piece ends the connection, so that the caller sees it.
    """
    first, last = _asked(content, headers)
    if first > last and content.size:
        more = [(b"content-range", b"bytes */%d" % content.size)]
        await _start(send, 416, [*more, (b"content-length", b"0")])
        await send({"type": "http.response.body", "body": b""})
        return
    tag = f'"{content.tag}"' if content.tag else ""
    more = [(b"content-type", content.type.encode()), (b"cache-control", b"no-cache"), *_SAFE]
    more += [(b"etag", tag.encode())] if tag else []
    if tag and matches(headers.get("if-none-match", ""), tag):
        await _start(send, 304, more)
        await send({"type": "http.response.body", "body": b""})
        return
    status = 200
    if not content.grows:
        more += [(b"accept-ranges", b"bytes"), (b"content-length", b"%d" % (last + 1 - first))]
        if last + 1 - first < content.size:
            status = 206
            more.append((b"content-range", b"bytes %d-%d/%d" % (first, last, content.size)))
    if only_head:
        await _start(send, status, more)
        await send({"type": "http.response.body", "body": b""})
        return
    async with Caller(receive, served.feed if content.grows else None) as caller:
        pieces = _Pieces(served, content, first, last)
        piece = b"" if content.grows else await pieces.next(caller)  # an error is still a reply
        await _start(send, status, more)
        if content.grows:  # its writer may take long
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            piece = await pieces.next(caller)
        while piece and not caller.has_gone:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await pieces.next(caller)
        await send({"type": "http.response.body", "body": b""})


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


def _asked(content: Content, headers: Mapping[str, str]) -> tuple[int, int]:
    """Return the first and the last byte that are asked for: of one range, or of all."""
    found = None if content.grows else _RANGE.fullmatch(headers.get("range", "").strip())
    condition = headers.get("if-range")
    if condition is not None and condition != f'"{content.tag}"':
        found = None
    if found is None or not content.size or found[0] == "bytes=-":
        return 0, content.size - 1
    last = content.size - 1
    if not found[1]:  # the last so many bytes
        return (max(0, content.size - int(found[2])), last) if int(found[2]) else (1, 0)
    if found[2] and int(found[2]) < int(found[1]):  # this is no range: it is ignored
        return 0, last
    return int(found[1]), min(last, int(found[2])) if found[2] else last


def matches(names: str, tag: str) -> bool:
    """Return whether a list of tags, such as that of If-None-Match, has one."""
    return names.strip() == "*" or tag.removeprefix("W/") in [
        one.strip().removeprefix("W/") for one in names.split(",")
    ]


class _Pieces:
    """The pieces of content, each read in a worker, from one byte to another."""

    def __init__(self, served: ServedThread, content: Content, first: int, last: int) -> None:
        self._served = served
        self._content = content
        self._at = first
        self._end = last + 1

    async def next(self, caller: Caller) -> bytes:
        """Return the next bytes, b"" at the end; wait for them while more may be written."""
        feed = self._served.feed
        while True:
            count = STEP if self._content.grows else min(STEP, self._end - self._at)
            if count <= 0 or caller.has_gone:
                return b""
            changed = feed.changed
            data, is_open = await self._read(count)
            self._at += len(data)
            if data or not (is_open and self._content.grows) or feed.is_closed:
                return data
            await caller.wait(SLOW_LOOK, changed)

    async def _read(self, count: int) -> tuple[bytes, bool]:
        at, read = self._at, self._content.read
        return await self._served.do(lambda thread: read(thread, at, count), READ)


class Caller:
    """Who sent a request, while a block answers it: whether they are there, and what they await.

    Feeds look often for a change of any kind as long as they are watched by somebody.
    """

    def __init__(self, receive: Receive, *watched: Feed | None) -> None:
        self._receive = receive
        self._watched = [feed for feed in watched if feed is not None]

    async def __aenter__(self) -> Caller:
        """Begin to look whether the caller closes the connection."""
        self._gone = asyncio.ensure_future(self._leave())
        for feed in self._watched:
            feed.watchers += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        for feed in self._watched:
            feed.watchers -= 1
        self._gone.cancel()
        with suppress(asyncio.CancelledError):
            await self._gone

    async def _leave(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def has_gone(self) -> bool:
        """Whether the caller has closed the connection."""
        return self._gone.done()

    async def is_gone(self) -> bool:
        """Return whether the caller has closed the connection by now."""
        await asyncio.sleep(0)  # what has come in since the loop was busy is known then
        return self.has_gone

    async def wait(self, seconds: float, *changed: asyncio.Future[None]) -> bool:
        """Wait for a change, the caller's end or so many seconds; return False if time is up."""
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait((self._gone, *changed), timeout=seconds, return_when=first)
        return bool(done)


# --- what is in memory ----------------------------------------------------------------------------


async def body_of(receive: Receive, headers: Mapping[str, str], most: int = MOST_BODY) -> bytes:
    """Read a body of at most so many bytes. Raises TooLargeError, UsageError."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise TooLargeError(int(length), most, "body", "send less at once")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UsageError("the body is not whole", "send it again")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLargeError(None, most, "body", "send less at once")
        if not message.get("more_body"):
            return b"".join(parts)


async def send_reply(send: Send, reply: Reply, headers: Mapping[str, str], method: str) -> None:
    """Send a reply with its tag; nothing but that if the caller has it already."""
    more = [(b"content-type", reply.type.encode())] if reply.status != 204 else []
    more += reply.more
    status, body = reply.status, reply.body
    is_packed = len(body) >= LEAST_PACKED and _takes_gzip(headers)
    is_packed = is_packed and not reply.type.startswith("text/html")  # a page may hold a secret
    if method in ("GET", "HEAD"):
        tag = f'{"W/" * is_packed}"{blake3(body).hexdigest()}"'
        more += [(b"etag", tag.encode()), (b"cache-control", b"no-cache")]
        if matches(headers.get("if-none-match", ""), tag):
            status, body = 304, b""
    if len(reply.body) >= LEAST_PACKED:
        more.append((b"vary", b"accept-encoding"))
    if is_packed and body:
        body = await asyncio.to_thread(gzip.compress, body, 1, mtime=0)
        more.append((b"content-encoding", b"gzip"))
    if status not in (204, 304):
        more.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def prefers_page(headers: Mapping[str, str]) -> bool:
    """Return whether a caller takes HTML rather than JSON, as a browser says that it does."""
    weights: dict[str, float] = {}
    for one in headers.get("accept", "").replace(" ", "").lower().split(","):
        kind, _, weight = one.partition(";q=")
        with suppress(ValueError):
            weights[kind] = float(weight or 1)
    html, *others = (weights.get(kind, 0) for kind in ("text/html", *_JSON))
    return html > max(others)


def _takes_gzip(headers: Mapping[str, str]) -> bool:
    found = headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in found or any(one.startswith("gzip;q=") and one[7:8] == "1" for one in found)


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
