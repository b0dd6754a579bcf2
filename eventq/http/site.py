"""The server: uvicorn around the application, with an end that waits for nobody for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from eventq.errors import EventqError, LogicError
from eventq.http.access import Access
from eventq.http.app import App
from eventq.serving.endpoint import BACKLOG, Address, raise_file_limit
from eventq.serving.served import ServedThread
from eventq.storage.layout import is_url
from eventq.thread import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventq.serving.workers import Service

_log = logging.getLogger("eventq.http")
LOOK_SECONDS = 5.0  # between two looks for new threads
MOST_HEAD = 64 << 10  # bytes of the head of a request, beside what comes with its end
STUCK_SECONDS = 60.0  # until a reader must have taken what is sent, 64 KiB or more
END_SECONDS = 5.0  # for requests that are under way at the end


class Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, with bounds for the head of a request, and for slow readers."""

    _stuck: asyncio.TimerHandle | None = None

    _head = 0  # bytes of the head that has not ended, but for those of the chunk it began in
    _is_in_head = False
    _has_begun = False  # in this chunk

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._head, self._is_in_head, self._has_begun = 0, True, True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header without the blanks around it: they are none of it (RFC 9110, 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """End to count."""
        self._is_in_head = False
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait for a reader that is slow, but not for ever."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._let_go()

    def _let_go(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; refuse a head that does not end."""
        self._has_begun = False
        super().data_received(data)
        if not self._has_begun:
            self._head += len(data)
        if self._is_in_head and self._head > MOST_HEAD and self.transport is not None:
            what = f"the head of a request has at most {MOST_HEAD >> 10} KiB\n".encode()
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: text/plain\r\ncontent-length: %d\r\n\r\n%s" % (len(what), what)
            )
            self.transport.close()


class Server(uvicorn.Server):
    """Serves some threads at an address, `HOST:PORT`, until `stop`.

    `place` is a folder or a database, whose threads are served as well, new ones too.
    """

    def __init__(
        self, paths: Sequence[str], listen: str, *, token: str, write: bool, insecure: bool,
        place: str | None = None, connections: int = 4096,
    ) -> None:  # fmt: skip
        """Check what is asked for. Raises UsageError, LogicError, NotAThreadError."""
        self.address = Address(listen)
        self._access = Access(
            listen, is_local=self.address.is_local(), token=token, write=write, insecure=insecure
        )
        self._paths = paths
        self._place = place
        self.mcp: Callable[[], Any] | None = None  # makes what answers requests to /mcp
        self._mcp: Any = None
        self._connections = connections
        self._refused: set[str] = set()  # threads of the place that cannot be served
        self._loop: asyncio.AbstractEventLoop | None = None
        self.threads: dict[str, ServedThread] = {}

    @property
    def service(self) -> Service:
        """The workers of the first thread."""
        return next(iter(self.threads.values())).service

    def link(self) -> str:
        """Return a path that lets in a browser, once."""
        return self._access.link()

    async def serve(self, ready: Callable[[str], object]) -> None:  # type: ignore[override]
        """Serve in the loop that runs, until `stop`; call `ready` with the URL once it listens.

        Raises LogicError, NotAThreadError.
        """
        listener = self._listen()
        self._loop = asyncio.get_running_loop()
        looks = None
        try:
            for path in self._paths:
                self._add(path)
            if self._place is not None:
                await self._look(self._place)
                looks = self._loop.create_task(self._keep_looking(self._place))
            self._mcp = self.mcp() if self.mcp is not None else None
            config = uvicorn.Config(
                App(self.threads, self._access, self._mcp),
                http=Protocol, loop="asyncio", lifespan="off", log_config=None,
                access_log=False,
                ws="none", server_header=False, timeout_graceful_shutdown=int(END_SECONDS),
                timeout_keep_alive=75,
                limit_concurrency=raise_file_limit(self._connections), backlog=BACKLOG,
            )  # fmt: skip
            super().__init__(config)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            ready(f"http://{shown}:{port}")
            await self._serve(sockets=[listener])
            for connection in [*self.server_state.connections]:  # of those who do not read
                connection.transport.abort()
            await asyncio.sleep(0)  # asyncio calls `connection_lost` of each
        finally:
            listener.close()
            if looks is not None:
                looks.cancel()
            if self._mcp is not None:
                self._mcp.close()
                await self._mcp.wait_closed()
            for served in self.threads.values():
                await asyncio.to_thread(served.close, END_SECONDS)

    def _add(self, path: str) -> None:
        name = _free(_name(path), self.threads)
        self.threads[name] = ServedThread(name, path)

    async def _look(self, place: str) -> None:
        """Serve the threads of a place that are not served yet."""
        found = await asyncio.to_thread(lambda: [*threads(place)])
        known = {served.path for served in self.threads.values()}
        for path in found:
            if path not in known and path not in self._refused:
                try:
                    self._add(path)
                except (EventqError, OSError, ValueError) as error:
                    self._refused.add(path)
                    what = f"'{path}' is left out: {error}"
                    logging.getLogger("eventq.http").warning(
                        "%s", os.fsencode(what).decode("utf-8", "replace")
                    )

    async def _keep_looking(self, place: str) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(EventqError, OSError):
                await self._look(place)

    def _listen(self) -> socket.socket:
        """Return a socket that listens. Raises LogicError."""
        host, port = self.address.host, self.address.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            listener = socket.create_server(found[0][4][:2], family=found[0][0], backlog=BACKLOG)
            # Connections have it from here: asyncio does not set it for those of such a socket, and
            # a body would wait 40 ms until its head is acknowledged.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except (OSError, UnicodeError) as error:  # the latter of a name that can be none
            why = getattr(error, "strerror", None) or error
            what = f"cannot listen on {self.address.text}: {why}"
            raise LogicError(what, "choose another address, or stop who is there") from error

    def stop(self) -> None:
        """End: requests under way are answered, streams are closed. Safe in any OS thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.should_exit = True
        for served in self.threads.values():
            served.feed.close()
        if self._mcp is not None:
            self._mcp.close()

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002
        """End at a signal."""
        self._end()


def _name(path: str) -> str:
    """Return the name of a thread in URLs: that of its folder, or in its database."""
    if is_url(path):
        from eventq.storage.address import parse

        return parse(path).name
    name = os.fsencode(os.path.basename(os.path.realpath(path)))
    return name.decode("utf-8", "replace") or "thread"


def _free(name: str, taken: dict[str, ServedThread]) -> str:
    """Return a name that no other thread has: the second of a name ends in -2."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
