"""New turns as clients of CXDB follow them: server-sent events, with ids that are text."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventq.errors import EventqError, UnknownTurnError
from eventq.http.cxdb_about import Abouts
from eventq.http.registry import CONTEXT
from eventq.http.sending import Caller
from eventq.records.turn import ContextInfo
from eventq.serving.parameters import MOST
from eventq.serving.plans import READ
from eventq.system import clock
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from eventq.records.turn import Turn
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Object = dict[str, Any]

HEARTBEAT = 20.0  # seconds of silence of a stream, after which a comment is sent
_encode = writer()


class Changes:
    """What is new in the contexts of a thread since the last look."""

    def __init__(self, thread: Thread, abouts: Abouts) -> None:
        self._abouts = abouts
        self._begun = False
        self._at_ms, self._turn, self._context = 0, 0, 0
        for row in thread.database.memory.turns.newest(MOST, 1):  # it may be above all heads
            self._turn = row.turn
        for _ in self._look(thread):
            pass  # what was there before

    def _look(self, thread: Thread) -> Iterator[tuple[ContextInfo, list[Turn]]]:
        """Yield the contexts that changed, the first to change first, with their new turns."""
        changed = []
        newest = 0
        limit = 256
        while True:
            rows = thread.database.memory.overview(limit).contexts
            infos = [ContextInfo._make(row) for row in rows]
            changed = [one for one in infos if one.updated_at_ms >= self._at_ms]
            if len(changed) < limit or not self._begun:
                break
            limit *= 8
        # An empty thread has no time of a last change: what comes next is new all the same.
        top, first, self._begun = self._turn, not self._begun, True
        for info in reversed(changed):
            newest = max(newest, info.updated_at_ms)
            self._context = max(self._context, info.context_id) if first else self._context
            top = max(top, info.head_turn_id)
            turns = [] if first else self._new_turns(thread, info)
            top = max([top, *(one.turn_id for one in turns)])
            if not first and info.name != CONTEXT:
                yield info, turns
        self._at_ms, self._turn = max(self._at_ms, newest), top

    def _new_turns(self, thread: Thread, info: ContextInfo) -> list[Turn]:
        """Return the turns of a context that are newer than the last look, oldest first."""
        found: list[Turn] = []
        head = info.head_turn_id
        while head > max(self._turn, info.base_turn_id):
            page = thread.contexts.turns.chain(head, 256, None, payload=False)
            new = [one for one in page if one.turn_id > max(self._turn, info.base_turn_id)]
            found = new + found
            if len(new) < len(page) or not page:
                break
            head = page[0].parent_turn_id
        # An append after another parent leaves the turn before it on no head's chain.
        aside = self._appended(thread, info) - {one.turn_id for one in found}
        for number in aside:
            with suppress(UnknownTurnError):  # collected meanwhile
                found.append(thread.contexts.turn(number, payload=False))
        return sorted(found, key=lambda one: one.turn_id) if aside else found

    def _appended(self, thread: Thread, info: ContextInfo) -> set[int]:
        """Return the turns that the log of a head has appends of since the last look."""
        found: set[int] = set()
        upto, is_old = info.version, False
        while upto > 0 and not is_old:
            after = max(0, upto - 256)
            moves = thread.database.memory.contexts.history(info.context_id, after, upto - after)
            new = {one.new_turn_id for one in moves if one.op == "append"}
            found |= {number for number in new if number > self._turn}
            upto, is_old = after, any(one.at_ms < self._at_ms for one in moves)
        return found

    def look(self, thread: Thread) -> list[tuple[str, Object]]:
        """Return the events since the last look: their names, and what they say."""
        events: list[tuple[str, Object]] = []
        seen = self._context
        for info, turns in self._look(thread):
            known = self._abouts.of(thread, info)
            number = str(info.context_id)
            if info.context_id > seen:
                self._context = max(self._context, info.context_id)
                events.append(("context_created", {
                    "context_id": number, "session_id": "http", "client_tag": known.client_tag,
                    "created_at": info.created_at_ms,
                }))  # fmt: skip
                if info.fork_of is not None:
                    events.append(("context_linked", {
                        "child_context_id": number, "parent_context_id": str(info.fork_of),
                    }))  # fmt: skip
            for turn in turns:
                events.append(("turn_appended", {
                    "context_id": number, "turn_id": str(turn.turn_id),
                    "parent_turn_id": str(turn.parent_turn_id), "depth": turn.depth,
                    "declared_type_id": turn.type_id, "declared_type_version": turn.type_version,
                }))  # fmt: skip
                if turn.depth == 0 and (known.client_tag or known.title or known.labels):
                    events.append(("context_metadata_updated", {
                        "context_id": number, "has_provenance": known.provenance is not None,
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
