"""Connections: when each is closed, and how much of what it sends is kept until somebody asks.

Requests are read one at a time. What a connection sends before its caller is known to be admitted
counts against a budget of its own, so that it never keeps those waiting who are.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    Waiting = dict["Protocol", float]  # since when, the oldest first

MOST_HEAD = 64 << 10  # bytes of the head of a request
HEAD_SECONDS = 10.0  # until it is whole
BODY_SECONDS = 30.0  # until the body is whole of a caller who is not admitted
STILL_SECONDS = 30.0  # that a body may stand still
KEPT_SECONDS = 75  # until the next request begins
STUCK_SECONDS = 60.0  # until a reader must have taken what is sent, 64 KiB or more
SWEEP_SECONDS = 1.0  # between two looks at all of them
MOST_UNREAD = 32 << 20  # bytes that have come of callers who are not admitted, together
_READ = 64 << 10  # bytes that are read at once
_SLICE = 512  # of a body whose length is not said: what comes after it is not read with it
_END = b"\r\n\r\n"


class Connections:
    """The connections of a server, and those of them that wait for their callers."""

    def __init__(self, most: int) -> None:
        """Take how many there may be."""
        self.most = most
        self.heads: Waiting = {}  # whose head is not whole
        self.bodies: Waiting = {}  # whose head is
        self.kept: Waiting = {}  # that were answered
        self.unread = 0  # bytes that have come, and that nobody has asked for

    def give_way(self) -> None:
        """Close the connection that has waited longest: first without a head, then answered.

        Those that have sent a request are served.
        """
        oldest = next(chain(self.heads, self.kept), None)
        if oldest is not None:
            self.forget(oldest)
            oldest.transport.close()  # once the end of its last reply is sent

    def forget(self, one: Protocol) -> None:
        """Wait no more for a connection that ends."""
        one.connections.discard(one)
        for waiting in (self.heads, self.bodies, self.kept):
            waiting.pop(one, None)

    def sweep(self, now: float) -> None:
        """Close those whose time is up."""
        for one, since in [*self.heads.items()]:
            if now - since < HEAD_SECONDS:
                break
            one.refuse(408, f"the head of a request comes within {HEAD_SECONDS:g}s")
        for one, since in [*self.kept.items()]:
            if now - since < KEPT_SECONDS:
                break
            one.transport.close()
        for one, since in [*self.bodies.items()]:
            if one.flow.read_paused:  # it is not the caller who stands still
                one.moved_at = now
            if now - one.moved_at >= STILL_SECONDS:
                one.refuse(408, f"a body stands still for {STILL_SECONDS:g}s at most")
            elif not one.is_admitted and now - since >= BODY_SECONDS:
                one.refuse(408, f"a body without a token comes within {BODY_SECONDS:g}s")


class _Flow(FlowControl):
    """Reading that is not resumed while a connection has sent more than its request."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, in bounds, one request of a connection after the other."""

    flow: _Flow
    is_admitted = False  # whoever sent the request that is read
    is_surplus = False  # it came when there were too many
    moved_at = 0.0  # when something came

    _stuck: asyncio.TimerHandle | None = None
    _is_in_body = False
    _left: int | None = None  # bytes of the body, if its length is known
    _head = 0  # bytes of a head that is not whole
    _unread = b""
    _at = 0  # what is read of that
    _counted = 0

    def __init__(self, among: Connections, **given: Any) -> None:
        """Take the others beside what uvicorn gives."""
        super().__init__(**given)
        self._among = among

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head; whoever has waited longest for theirs goes if there are too many."""
        super().connection_made(transport)
        transport.max_size = _READ  # type: ignore[attr-defined]
        self.flow = _Flow(transport)
        if len(self.connections) > self._among.most:
            self._among.give_way()
        self._among.heads[self] = self.moved_at = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._let_go()
        self._among.forget(self)
        self._unread = b""
        self._count(0)

    # --- requests ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take bytes: those of the request that is due, and keep the rest for later."""
        self.moved_at = self.loop.time()
        self._unread = self._unread[self._at :] + data
        self._at = 0
        if self._among.kept.pop(self, None) is not None:
            self._among.heads[self] = self.moved_at
        self._read()

    def _read(self) -> None:
        while self._at < len(self._unread) and self._is_due() and not self.transport.is_closing():
            piece = self._next()
            self._at += len(piece)
            if not self._is_in_body:
                self._head += len(piece)
            if self._head > MOST_HEAD:
                self.refuse(431, f"the head of a request has at most {MOST_HEAD >> 10} KiB")
                return
            super().data_received(piece)
        if self._at >= len(self._unread):
            self._unread, self._at = b"", 0
            self.flow.let_go()
        else:
            self.flow.hold()
        self._count_unread()

    def _is_due(self) -> bool:
        """Return whether what comes next can be read: it is of this request, or this has ended."""
        return self._is_in_body or self.cycle is None or self.cycle.response_complete

    def _next(self) -> bytes:
        """Return bytes with the end of one head or one body at most."""
        if not self._is_in_body:
            found = self._unread.find(_END, self._at)
            end = len(self._unread) if found < 0 else found + len(_END)
        else:
            end = self._at + (_SLICE if self._left is None else self._left)
        return self._unread[self._at : end]

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header without the blanks around it: they are none of it (RFC 9110, 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Wait for the body, if there is one."""
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        self._left = int(length) if length.isdigit() else None
        self._is_in_body, self._head, self.is_admitted = True, 0, False
        self._among.heads.pop(self, None)
        self._among.bodies[self] = self.moved_at
        self.is_surplus = len(self.connections) > self._among.most
        super().on_headers_complete()
        if self.is_surplus and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._left is not None:
            self._left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing more until the reply is sent."""
        self._is_in_body = False
        self._among.bodies.pop(self, None)
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._among.kept[self] = self.moved_at

    def on_response_complete(self) -> None:
        """Go on with what has come meanwhile, or wait for the next request."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if not self._is_in_body:
            self._among.kept[self] = self.loop.time()
        if self._unread and self._among.kept.pop(self, None) is not None:
            self._among.heads[self] = self.loop.time()
        self._read()

    def admit(self) -> None:
        """Let the caller take their time, and what they send count as that of a request."""
        self.is_admitted = True
        self._count_unread()

    def may_give_way(self) -> None:
        """Let others have the place of this connection, though it waits for a reply."""
        self._among.kept[self] = self.loop.time()

    @property
    def has_gone(self) -> bool:
        """Whether nobody waits for the reply any more."""
        return self.cycle is None or self.cycle.disconnected

    def _count_unread(self) -> None:
        """Count what is kept of a caller who is not admitted; close what is too much of all."""
        if self.is_admitted:
            self._count(0)
            return
        body = 0 if self.cycle is None else len(self.cycle.body)
        self._count(len(self._unread) + body)
        if self._among.unread > MOST_UNREAD and self._counted > _READ // 4:
            self.loop.call_soon(self._drop)  # once the application has seen who asks

    def _drop(self) -> None:
        if not self.is_admitted:
            self.transport.abort()

    def _count(self, size: int) -> None:
        self._among.unread += size - self._counted
        self._counted = size

    # --- replies ----------------------------------------------------------------------------------

    def refuse(self, status: int, what: str) -> None:
        """Answer what is no request, and close the connection: silently if there is none at all."""
        self._among.forget(self)
        has_reply = self.cycle is not None and self.cycle.response_started
        is_silent = not self._head and not self._is_in_body
        if (has_reply and not self.cycle.response_complete) or (status == 408 and is_silent):
            self.transport.abort()
            return
        title = HTTPStatus(status).phrase
        value = {"type": "about:blank", "title": title, "status": status, "detail": what}
        body = json.dumps(value).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
            b"x-content-type-options: nosniff\r\ncontent-length: %d\r\n\r\n%s"
            % (status, title.encode(), len(body), body)
        )
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.refuse(400, f"{msg.rstrip('.')} - send HTTP/1.1")

    def pause_writing(self) -> None:
        """Wait for a reader that is slow, but not for ever."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._let_go()

    def _let_go(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
