"""Events and runs as they come: server-sent events, or lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError, PositionError
from eventq.http.operations import AT, Followed, Operation, Reply, gap_header
from eventq.http.sending import Caller
from eventq.records.run import RunChange
from eventq.serving.event_pages import in_bounds, next_lines
from eventq.serving.parameters import MOST, Given, Part, fitting
from eventq.serving.plans import READ
from eventq.system import clock
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from eventq.serving.principal import Principal
    from eventq.serving.served import Feed, ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    # Ids, their lines, the id that was reached, and which ids before them were pruned.
    Page = tuple[list[int], list[bytes], int, tuple[int, int] | None]

_encode = writer()
HEARTBEAT = 15.0  # seconds of silence after which a comment, or an empty line, is sent
PAGE = 500  # lines that are sent at once
FIRST = 32  # that are asked for before their size is known
PAGE_BYTES = 1 << 17  # of them, unless one alone has more


async def stream(
    feed: Feed,
    pages: Followed,
    after: int | None,
    headers: Mapping[str, str],
    who: Principal,
    receive: Receive,
    send: Send,
) -> None:
    """Send pages until the caller or the server goes: as SSE, or NDJSON if that is accepted.

    They begin after a position, or after the one in the header Last-Event-ID.
    """
    is_lines = "ndjson" in headers.get("accept", "")
    last = headers.get("last-event-id", "")
    if last.isascii() and last.isdigit() and len(last) < 20:
        after = min(int(last), MOST)
    pages.watch(1)
    try:
        async with Caller(receive) as caller:
            begin, reset = await pages.start(after), b""
            try:
                found = await pages.after(begin)  # what is wrong with it is a reply of its own
            except PositionError as error:
                if is_lines:
                    raise
                reset, found = _reset(begin, error), ([], [], error.last_id, None)
            kind = b"application/x-ndjson" if is_lines else b"text/event-stream"
            start = [
                (b"content-type", kind),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
                *gap_header(found[3]),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": start})
            await _send(send, b"" if is_lines else b": connected\n\n" + reset)
            try:
                await _follow(feed, pages, found, caller, send, is_lines=is_lines)
            except EventqError as error:
                if not is_lines:
                    await _send(send, _as_event("error", who.said(error)[1]))
            await send({"type": "http.response.body", "body": b""})
    finally:
        pages.watch(-1)


async def _follow(
    feed: Feed, pages: Followed, found: Page, caller: Caller, send: Send, *, is_lines: bool
) -> None:
    """Send what is found and all after it, until the caller or the server goes."""
    spoke = clock.monotonic()
    while not caller.has_gone and not feed.is_closed:
        numbers, lines, after, gap = found
        del found  # whoever does not read keeps the server from nothing but what is sent
        if gap is not None and not is_lines:
            await _send(send, _as_event("gap", _encode({"from": gap[0], "to": gap[1]})))
        if lines:
            frames = (
                b"".join([b"%s\n" % line for line in lines])
                if is_lines
                else b"".join([b"id: %d\ndata: %s\n\n" % one for one in zip(numbers, lines)])  # noqa: B905
            )
            del lines
            await _send(send, frames)
            del frames
            spoke = clock.monotonic()
        changed = feed.changed
        try:
            found = await pages.after(after)
        except PositionError as error:  # the log was replaced by an older one
            if is_lines:
                raise
            await _send(send, _reset(after, error))
            found = [], [], error.last_id, None
        if found[1] or found[2] != after:
            continue
        silence = clock.monotonic() - spoke
        if silence >= HEARTBEAT:
            await _send(send, b"\n" if is_lines else b":\n\n")
            spoke = clock.monotonic()
            silence = 0.0
        await caller.wait(HEARTBEAT - silence, changed)


def _reset(after: int, error: PositionError) -> bytes:
    """Return the message that a position is none of this log; its id is where to go on."""
    told = _as_event("reset", _encode({"after": after, "newest": error.last_id}))
    return b"id: %d\n%s" % (error.last_id, told)


def _as_event(name: str, text: str) -> bytes:
    """Return a message of server-sent events that is no event of the thread."""
    lines = "\n".join(f"data: {line}" for line in text.splitlines())
    return f"event: {name}\n{lines}\n\n".encode("utf-8", "replace")


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


class Pages:
    """What follows an id in the log; followers without a filter share what is being read."""

    def __init__(self, served: ServedThread, given: Given) -> None:
        """Take a filter, or None for all events."""
        self._served = served
        self._where: str | None = given["filter"]
        self._is_first = True
        self._count = FIRST  # lines that are asked for: twice as many as have fit before

    def watch(self, count: int) -> None:
        """Count one follower more, or one less."""
        self._served.feed.followers += count

    async def start(self, after: int | None) -> int:
        """Return where to begin, by default after the newest event. Raises FilterError."""

        def run(thread: Thread) -> int:
            thread.database.events.accept(self._where)
            return thread.last_id() if after is None else after

        return await self._served.do(run, READ)

    async def after(self, after: int) -> Page:
        """Return the ids and lines of the next events, the id that was reached, and a gap.

        What a follower reads first is not shared: a read in progress may be older than an erasure
        that ended before the follower came.
        """
        if self._is_first or self._where:
            self._is_first = False
            return await self._read(after)
        return await self._served.feed.shared(after, lambda: self._read(after))

    async def _read(self, after: int) -> Page:
        def run(thread: Thread) -> Page:
            def look() -> tuple[list[str], int, bool]:
                events = thread.database.events
                return next_lines(events, self._where, after, self._count, room=PAGE_BYTES)

            found, reached, _ = in_bounds(thread, self._where, look)
            gap = thread.log.gap_after(after)  # then, as a prune may come meanwhile
            lines = fitting([one.encode("utf-8", "replace") for one in found], PAGE_BYTES, len)
            numbers = [int(one[len('{"id":') : one.index(b",")]) for one in lines]
            if len(lines) < len(found):
                reached = numbers[-1]
            self._count = min(PAGE, max(FIRST, 2 * len(lines)))
            return numbers, lines, reached, gap

        return await self._served.do(run, READ)


class RunPages:
    """The runs under way, then each run when it has changed, with the number of the change."""

    def __init__(self, served: ServedThread, given: Given) -> None:
        """Take a group, or None for all runs."""
        self._served = served
        self._group: str | None = given["group"]
        self._first: list[bytes] = []  # the runs under way, which are not sent yet

    def watch(self, count: int) -> None:
        """Let the feed look for what is no event for one more, or one less."""
        self._served.feed.watchers += count

    async def start(self, after: int | None) -> int:
        """Return the change to go on after: by default the newest, with the runs before it."""

        def run(thread: Thread) -> tuple[int, list[bytes]]:
            newest = thread.runs.last_change()
            if after is not None:
                return after, []
            found = thread.runs.active(self._group)
            return newest, [_run_line(RunChange("active", one.run_id, one)) for one in found]

        reached, self._first = await self._served.do(run, READ)
        return reached

    async def after(self, after: int) -> Page:
        """Return the numbers and lines of the next changes, and the number that was reached."""
        if self._first:
            lines, self._first = self._first[:PAGE], self._first[PAGE:]
            return [after] * len(lines), lines, after, None

        def run(thread: Thread) -> Sequence[tuple[int, RunChange]]:
            if after > (newest := thread.runs.last_change()):
                raise PositionError(after, newest, "a change of a run")
            return thread.runs.changes(after, PAGE, self._group)

        found = await self._served.do(run, READ)
        lines = [_run_line(change) for _, change in found]
        numbers = [number for number, _ in found]
        return numbers, lines, numbers[-1] if numbers else after, None


def _run_line(change: RunChange) -> bytes:
    run = None if change.run is None else change.run._asdict()
    return _encode({**change._asdict(), "run": run}).encode("utf-8", "replace")


def follow(_: Thread, __: Given) -> Reply:
    """Follow the events from now on, or after an id, for as long as the connection lasts."""
    raise NotImplementedError  # it has no reply; see `stream`


def follow_runs(_: Thread, __: Given) -> Reply:
    """Follow the runs: those under way, then each when it has changed, null when it was removed."""
    raise NotImplementedError  # it has no reply; see `stream`


STREAMS = (
    Operation(
        "streamEvents", "GET", f"{AT}/events/stream", READ, follow, "Stream", follows=Pages,
        query=(
            Part("after", "integer", "Only those above this id; the header Last-Event-ID wins."),
            Part("filter", "string", "A SQL condition over the columns of events."),
        ),
    ),
    Operation(
        "streamRuns", "GET", f"{AT}/runs/stream", READ, follow_runs, "Stream", follows=RunPages,
        query=(
            Part("after", "integer", "Only changes above this number, and no runs before them."),
            Part("group", "string", "Only runs of this group."),
        ),
    ),
)  # fmt: skip
