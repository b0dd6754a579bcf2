"""New events as they come: server-sent events, or lines of JSON."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError
from eventq.http.log_api import in_bounds, next_lines
from eventq.http.operations import AT, Operation, Part, Reply
from eventq.http.sending import said, until_gone
from eventq.serving.plans import READ
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from eventq.http.served import ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

HEARTBEAT = 15.0  # seconds of silence after which a comment, or an empty line, is sent
PAGE = 500  # lines that are sent at once
PAGE_BYTES = 1 << 20  # of them, but for the last


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
    gone = asyncio.ensure_future(until_gone(receive))
    served.feed.followers += 1
    try:
        pages = Pages(served, given["filter"])
        after = await pages.start(after)
        found: tuple[list[int], list[bytes], int] | None
        found = await pages.after(after)  # what is wrong with a filter is a reply of its own
        kind = b"application/x-ndjson" if is_lines else b"text/event-stream"
        start = [
            (b"content-type", kind),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await _send(send, b"" if is_lines else b": connected\n\n")
        spoke = clock.monotonic()
        while not gone.done() and not served.feed.is_closed:
            changed = served.feed.changed
            before = after
            try:
                numbers, lines, after = found or await pages.after(after)
            except EventqError as error:
                if not is_lines:
                    await _send(send, _as_event("error", said(error)[1]))
                break
            found = None
            if not lines and after != before:
                continue
            if lines:
                frames = (
                    b"".join([b"%s\n" % line for line in lines])
                    if is_lines
                    else b"".join([b"id: %d\ndata: %s\n\n" % one for one in zip(numbers, lines)])  # noqa: B905
                )
                await _send(send, frames)
                spoke = clock.monotonic()
                continue
            silence = clock.monotonic() - spoke
            if silence >= HEARTBEAT:
                await _send(send, b"\n" if is_lines else b":\n\n")
                spoke = clock.monotonic()
                silence = 0.0
            waits = asyncio.ensure_future(served.feed.wait(changed, HEARTBEAT - silence))
            await asyncio.wait((gone, waits), return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
        await send({"type": "http.response.body", "body": b""})
    finally:
        served.feed.followers -= 1
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


def _as_event(name: str, text: str) -> bytes:
    """Return a message of server-sent events that is no event of the thread."""
    lines = "\n".join(f"data: {line}" for line in text.splitlines())
    return f"event: {name}\n{lines}\n\n".encode("utf-8", "replace")


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _some(lines: list[bytes]) -> list[bytes]:
    """Return the first lines, as many as are sent at once."""
    size = 0
    for count, line in enumerate(lines[:PAGE], 1):
        size += len(line)
        if size > PAGE_BYTES:
            return lines[:count]
    return lines[:PAGE]


class Pages:
    """What follows an id: from the lines that the feed keeps, or from the log."""

    def __init__(self, served: ServedThread, where: str | None) -> None:
        self._served = served
        self._where = where

    async def start(self, after: int | None) -> int:
        """Return where to begin, by default after the newest event. Raises FilterError."""
        found: list[int] = []

        def run(thread: Thread) -> Reply:
            thread.database.events.accept(self._where)
            found.append(thread.last_id() if after is None else after)
            return Reply(b"")

        await self._served.do(run, READ)
        return found[0]

    async def after(self, after: int) -> tuple[list[int], list[bytes], int]:
        """Return the ids and lines of the next events, and the id that was reached."""
        if not self._where:
            kept = self._served.feed.after(after)
            if kept is not None:
                kept = _some(kept)
                return [*range(after + 1, after + 1 + len(kept))], kept, after + len(kept)
        found: list[tuple[list[int], list[bytes], int]] = []

        def run(thread: Thread) -> Reply:
            def look() -> tuple[list[str], int, bool]:
                return next_lines(thread.database.events, self._where, after, PAGE)

            lines, reached, _ = in_bounds(thread, self._where, look)
            numbers = [int(one[len('{"id":') : one.index(",")]) for one in lines]
            found.append((numbers, [one.encode("utf-8", "replace") for one in lines], reached))
            return Reply(b"")

        await self._served.do(run, READ)
        return found[0]
