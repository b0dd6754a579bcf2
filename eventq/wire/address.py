"""Where servers listen and clients connect: `HOST:PORT`, an IPv6 host in brackets, or `unix:PATH`."""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import suppress

from eventq.errors import LogicError, PlatformError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    Make = Callable[[], asyncio.Protocol]

_UNIX = "unix:"
_NOT_IN_A_HOST = frozenset("/@[]?# ")


def unix_path(text: str) -> str | None:
    """Give the path of `unix:PATH`, None for anything else."""
    return text.removeprefix(_UNIX) if text.startswith(_UNIX) else None


def host_and_port(text: str) -> tuple[str, int] | None:
    """Give host and port of `HOST:PORT`, None for anything else."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host.replace(":", "/")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 1 << 16
    return None if not bare or _NOT_IN_A_HOST & set(bare) or number >= 1 << 16 else (bare, number)


class Address:
    """A place to listen at: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; raises UsageError for anything else."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.unix = unix_path(text)
        self.host, self.port = "", 0
        self._inode: tuple[int, int] | None = None
        if self.unix is None:
            found = host_and_port(text)
            if found is None:
                raise UsageError(
                    f"'{text}' is no address to listen on", "give HOST:PORT, for example 127.0.0.1:9009, or unix:PATH"
                )
            self.host, self.port = found
        elif not self.unix or "\0" in self.unix:
            raise UsageError(f"'{text}' names no socket", "give unix:PATH")

    def is_local(self) -> bool:
        """Say whether only this machine can reach it."""
        import ipaddress

        if self.unix is not None:
            return True
        try:
            found = {info[4][0] for info in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)}
            return all(ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found)
        except OSError as error:
            raise LogicError(
                f"'{self.host}' is no host: {error.strerror}", "give an address of this machine"
            ) from error

    async def listen(self, loop: asyncio.AbstractEventLoop, make: Make) -> asyncio.AbstractServer:
        """Begin to listen. Raises LogicError with the next step."""
        try:
            if self.unix is None:
                return await loop.create_server(make, self.host, self.port, backlog=1024)
            return await self._listen_unix(loop, make, self.unix)
        except OSError as error:
            raise LogicError(
                f"cannot listen on {self.text}: {error.strerror or error}",
                "choose another address, or stop who is there",
            ) from error

    async def _listen_unix(self, loop: asyncio.AbstractEventLoop, make: Make, path: str) -> asyncio.AbstractServer:
        """Listen on a socket that only its owner may use, in the place of one that a dead server left."""
        if sys.platform == "win32":
            raise PlatformError("there are no UNIX sockets here", "listen on 127.0.0.1")
        _remove_dead(path)
        before = os.umask(0o177)
        try:
            listener = await loop.create_unix_server(make, path, backlog=1024)
        finally:
            os.umask(before)
        found = os.stat(path)
        self._inode = found.st_dev, found.st_ino
        return listener

    def told(self, listener: asyncio.AbstractServer) -> str:
        """Give the address with the port that was picked."""
        if self.unix is not None:
            return self.text
        sockets = listener.sockets  # type: ignore[attr-defined]
        port = sockets[0].getsockname()[1]
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def unlink(self) -> None:
        """Remove the socket, if it is still ours."""
        if self.unix is not None and self._inode:
            with suppress(OSError):
                found = os.stat(self.unix)
                if (found.st_dev, found.st_ino) == self._inode:
                    os.unlink(self.unix)


def _remove_dead(path: str) -> None:
    """Remove a socket that nobody listens on any more; raise LogicError for one that somebody does, or another file."""
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise LogicError(f"'{path}' is there, and is no socket", "choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise LogicError(f"another server listens on '{path}'", "choose another path, or stop it")
