"""New events as they come: server-sent events, or lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError
from eventq.http.operations import AT, Operation, Reply
from eventq.http.sending import Caller
from eventq.serving.event_pages import in_bounds, next_lines
from eventq.serving.parameters import Part, fitting
from eventq.serving.plans import READ
from eventq.serving.served import said
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from eventq.serving.served import Feed, ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Page = tuple[list[int], list[bytes], int]  # ids, their lines, and the id that was reached

HEARTBEAT = 15.0  # seconds of silence after which a comment, or an empty line, is sent
PAGE = 500  # lines that are sent at once
PAGE_BYTES = 1 << 20  # of them, unless one alone has more


def follow(_: Thread, __: dict[str, Any]) -> Reply:
    """Follow the events from now on, or after an id, for as long as the connection lasts."""
    raise NotImplementedError  # it has no reply; see `stream`


STREAM = Operation(
    "streamEvents", "GET", f"{AT}/events/stream", READ, follow, "Stream",
    (
        Part("after", "integer", "Only those above this id; the header Last-Event-ID wins."),
        Part("filter", "string", "A SQL condition over the columns of events."),
    ),
)  # fmt: skip


async def stream(
    served: ServedThread,
    given: dict[str, Any],
    headers: Mapping[str, str],
    receive: Receive,
    send: Send,
) -> None:
    """Send events until the caller or the server goes: as SSE, or NDJSON if that is accepted."""
    is_lines = "ndjson" in headers.get("accept", "")
    last = headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else given["after"]
    served.feed.followers += 1
    try:
        async with Caller(receive) as caller:
            pages = Pages(served, given["filter"])
            after = await pages.start(after)
            found = await pages.after(after)  # what is wrong with a filter is a reply of its own
            kind = b"application/x-ndjson" if is_lines else b"text/event-stream"
            start = [
                (b"content-type", kind),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": start})
            await _send(send, b"" if is_lines else b": connected\n\n")
            try:
                await _follow(served.feed, pages, found, caller, send, is_lines=is_lines)
            except EventqError as error:
                if not is_lines:
                    await _send(send, _as_event("error", said(error)[1]))
            await send({"type": "http.response.body", "body": b""})
    finally:
        served.feed.followers -= 1


async def _follow(
    feed: Feed, pages: Pages, found: Page, caller: Caller, send: Send, *, is_lines: bool
) -> None:
    """Send what is found and all after it, until the caller or the server goes."""
    spoke = clock.monotonic()
    while not caller.has_gone and not feed.is_closed:
        numbers, lines, after = found
        if lines:
            frames = (
                b"".join([b"%s\n" % line for line in lines])
                if is_lines
                else b"".join([b"id: %d\ndata: %s\n\n" % one for one in zip(numbers, lines)])  # noqa: B905
            )
            await _send(send, frames)
            spoke = clock.monotonic()
        changed = feed.changed
        found = await pages.after(after)
        if found[1] or found[2] != after:
            continue
        silence = clock.monotonic() - spoke
        if silence >= HEARTBEAT:
            await _send(send, b"\n" if is_lines else b":\n\n")
            spoke = clock.monotonic()
            silence = 0.0
        await caller.wait(HEARTBEAT - silence, changed)


def _as_event(name: str, text: str) -> bytes:
    """Return a message of server-sent events that is no event of the thread."""
    lines = "\n".join(f"data: {line}" for line in text.splitlines())
    return f"event: {name}\n{lines}\n\n".encode("utf-8", "replace")


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


class Pages:
    """What follows an id: from the lines that the feed keeps, or from the log."""

    def __init__(self, served: ServedThread, where: str | None) -> None:
        self._served = served
        self._where = where

    async def start(self, after: int | None) -> int:
        """Return where to begin, by default after the newest event. Raises FilterError."""

        def run(thread: Thread) -> int:
            thread.database.events.accept(self._where)
            return thread.last_id() if after is None else after

        return await self._served.do(run, READ)

    async def after(self, after: int) -> Page:
        """Return the ids and lines of the next events, and the id that was reached."""
        if not self._where:
            kept = self._served.feed.after(after)
            if kept is not None:
                kept = fitting(kept[:PAGE], PAGE_BYTES, len)
                return [*range(after + 1, after + 1 + len(kept))], kept, after + len(kept)

        def run(thread: Thread) -> Page:
            def look() -> tuple[list[str], int, bool]:
                return next_lines(thread.database.events, self._where, after, PAGE)

            lines, reached, _ = in_bounds(thread, self._where, look)
            numbers = [int(one[len('{"id":') : one.index(",")]) for one in lines]
            return numbers, [one.encode("utf-8", "replace") for one in lines], reached

        return await self._served.do(run, READ)
