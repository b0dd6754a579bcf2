"""The server: uvicorn around the application, with an end that waits for nobody for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from eventq.errors import EventqError, LogicError, reason
from eventq.http.access import Access
from eventq.http.app import App
from eventq.http.connections import KEPT_SECONDS, SWEEP_SECONDS, Connections, Protocol
from eventq.serving.endpoint import BACKLOG, Address, raise_file_limit, tell_of_full
from eventq.serving.served import ServedThread
from eventq.store.opening import needing
from eventq.store.paths import is_url, shown
from eventq.thread import openable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventq.http.tokens import Token
    from eventq.serving.workers import Service

_log = logging.getLogger("eventq.http")
LOOK_SECONDS = 5.0  # between two looks for new threads
END_SECONDS = 5.0  # for requests that are under way at the end


class Server(uvicorn.Server):
    """Serves some threads at an address, `HOST:PORT`, until `stop`.

    `place` is a folder or a database, whose threads are served as well, new ones too.
    """

    def __init__(  # noqa: PLR0913 (each is an option of the command)
        self, paths: Sequence[str], listen: str, *, token: str, write: bool, insecure: bool,
        place: str | None = None, connections: int = 4096, tokens: Sequence[Token] = (),
    ) -> None:  # fmt: skip
        """Check what is asked for. Raises UsageError, LogicError, NotAThreadError."""
        self.address = Address(listen)
        self._access = Access(
            listen,
            is_local=self.address.is_local(),
            token=token,
            write=write,
            insecure=insecure,
            tokens=tokens,
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
        tasks: list[asyncio.Task[None]] = []
        try:
            for path in self._paths:
                self._add(path)
            if self._place is not None:
                await self._look(self._place)
                tasks.append(self._loop.create_task(self._keep_looking(self._place)))
            self._mcp = self.mcp() if self.mcp is not None else None
            among = Connections(raise_file_limit(self._connections))
            tell_of_full(self._loop)
            tasks.append(self._loop.create_task(_keep_sweeping(among)))
            config = uvicorn.Config(
                App(self.threads, self._access, self._mcp, unknown=among.most * 3 // 4),
                http=partial(Protocol, among),  # type: ignore[arg-type]
                loop="asyncio", lifespan="off", log_config=None, access_log=False,
                proxy_headers=False,  # a header says nothing of a peer
                log_level="error",  # of uvicorn: it warns of each caller that speaks no HTTP
                ws="none", server_header=False, timeout_graceful_shutdown=int(END_SECONDS),
                timeout_keep_alive=KEPT_SECONDS, backlog=BACKLOG,
                headers=[("x-content-type-options", "nosniff")],  # also of what uvicorn refuses
            )  # fmt: skip
            super().__init__(config)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            ready(f"http://{shown}:{port}")
            await self._serve(sockets=[listener])
            await asyncio.sleep(0)  # whoever was too slow is told that the server has ended
            for connection in [*self.server_state.connections]:  # of those who do not read
                connection.transport.abort()
            await asyncio.sleep(0)  # asyncio calls `connection_lost` of each
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            if self._mcp is not None:
                self._mcp.close()
                await self._mcp.wait_closed()
            for served in self.threads.values():
                await asyncio.to_thread(served.close, END_SECONDS)

    def _add(self, path: str, *, is_known: bool = False) -> None:
        name = _free(_name(path), self.threads)
        self.threads[name] = ServedThread(name, path, is_known=is_known)

    async def _look(self, place: str) -> None:
        """Serve the threads of a place that are not served yet."""
        found = await asyncio.to_thread(lambda: [*openable(place)])
        known = {served.path for served in self.threads.values()}
        for path in found:
            if shown(path) not in known and path not in self._refused:
                try:
                    self._add(path, is_known=is_url(path))
                except (EventqError, OSError, ValueError) as error:
                    self._refused.add(path)
                    what = f"'{shown(path)}' is left out: {error}"
                    logging.getLogger("eventq.http").warning(
                        "%s", os.fsencode(what).decode("utf-8", "replace")
                    )

        if is_url(place):  # nobody opens its threads before they are asked for
            with suppress(EventqError, OSError):  # the threads are served all the same
                needy = await asyncio.to_thread(needing, place)
                for served in self.threads.values():
                    if bool(served.needed) != (served.path in needy):
                        served.needed = int(served.path in needy)

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
            why = reason(error)
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


async def _keep_sweeping(among: Connections) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        among.sweep(loop.time())


def _name(path: str) -> str:
    """Return the name of a thread in URLs: that of its folder, or in its database."""
    if is_url(path):
        from eventq.store.address import parse

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
