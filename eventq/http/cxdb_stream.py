"""New turns as clients of CXDB follow them: server-sent events, with ids that are text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError, PositionError
from eventq.http.cxdb_about import About, Abouts
from eventq.http.registry import CONTEXT
from eventq.http.sending import Caller
from eventq.serving.plans import READ
from eventq.system import clock
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eventq.records.turn import ContextInfo
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Object = dict[str, Any]

HEARTBEAT = 20.0  # seconds of silence of a stream, after which a comment is sent
PAGE = 2_000  # turns, or contexts, that one look tells of
_WHATS = ("a turn", "a context")
_encode = writer()


class Changes:
    """What is new in the contexts of a thread since the last look."""

    def __init__(self, thread: Thread, abouts: Abouts) -> None:
        self._abouts = abouts
        self._turn, self._context = thread.database.memory.copies.last_ids()

    def look(self, thread: Thread) -> list[tuple[str, Object]]:
        """Return the next events since the last look: their names, and what they say.

        Raises PositionError for a thread that an older state has replaced.
        """
        memory = thread.database.memory
        newest = memory.copies.last_ids()
        for at, last, what in zip((self._turn, self._context), newest, _WHATS, strict=True):
            if at > last:
                raise PositionError(at, last, what)
        events: list[tuple[str, Object]] = []
        is_last = False
        while not events and not is_last:  # what a page has may be nobody's
            # In this order: whatever the turns belong to is among the contexts.
            turns = memory.contexts.appended(self._turn, PAGE)
            contexts = memory.contexts.born(self._context, PAGE)
            is_last = max(len(turns), len(contexts)) < PAGE
            events = self._created(thread, contexts)
            if len(contexts) < PAGE:
                events += self._appended(thread, turns)
        return events

    def _created(self, thread: Thread, contexts: list[ContextInfo]) -> list[tuple[str, Object]]:
        events: list[tuple[str, Object]] = []
        for info in contexts:
            self._context = info.context_id
            if info.name == CONTEXT:
                continue
            number = str(info.context_id)
            events.append(("context_created", {
                "context_id": number, "session_id": "http",
                "client_tag": self._abouts.of(thread, info).client_tag,
                "created_at": info.created_at_ms,
            }))  # fmt: skip
            if info.fork_of is not None:
                events.append(("context_linked", {
                    "child_context_id": number, "parent_context_id": str(info.fork_of),
                }))  # fmt: skip
        return events

    def _appended(self, thread: Thread, turns: list[tuple[int, int]]) -> list[tuple[str, Object]]:
        events: list[tuple[str, Object]] = []
        if not turns:
            return events
        self._turn = turns[-1][0]
        memory, came = thread.database.memory, dict(turns)
        registry = memory.contexts.named(CONTEXT)
        for turn in reversed(memory.turns.newest(self._turn + 1, len(turns))):
            context = came.get(turn.turn, 0)
            if context in (0, registry):
                continue
            events.append(("turn_appended", {
                "context_id": str(context), "turn_id": str(turn.turn),
                "parent_turn_id": str(turn.parent), "depth": turn.depth,
                "declared_type_id": turn.type_id, "declared_type_version": turn.type_version,
            }))  # fmt: skip
            known = About() if turn.depth else self._abouts.at(thread, turn.turn)
            if known.client_tag or known.title or known.labels:
                events.append(("context_metadata_updated", {
                    "context_id": str(context), "has_provenance": known.provenance is not None,
                    "client_tag": known.client_tag, "title": known.title,
                    "labels": [*known.labels],
                }))  # fmt: skip
        return events


async def follow(served: ServedThread, receive: Receive, send: Send) -> None:
    """Send what is new in contexts as server-sent events, until the caller or the server goes."""
    changes: list[Changes] = []

    def look(thread: Thread) -> bytes:
        if not changes:
            changes.append(Changes(thread, Abouts()))
        frames = [
            f"event: {name}\ndata: {_encode(value)}\n\n" for name, value in changes[0].look(thread)
        ]
        return "".join(frames).encode("utf-8", "replace")

    async with Caller(receive, served.feed) as caller:
        await served.do(look, READ)
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frames = b"event: connected\ndata: {}\n\n"
        while not caller.has_gone and not served.feed.is_closed:
            await send({"type": "http.response.body", "body": frames, "more_body": True})
            try:
                frames = await _next(served, look, caller)
            except EventqError:  # it is gone: whoever asks again is told so
                break
        await send({"type": "http.response.body", "body": b""})


async def _next(served: ServedThread, look: Callable[[Thread], bytes], caller: Caller) -> bytes:
    """Return what is new once there is something, or a comment after a while."""
    deadline = clock.monotonic() + HEARTBEAT
    while (left := deadline - clock.monotonic()) > 0:
        changed = served.feed.changed
        found = await served.do(look, READ)
        if found or caller.has_gone or served.feed.is_closed:
            return found
        await caller.wait(left, changed)
    return b":heartbeat\n\n"
