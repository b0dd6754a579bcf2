"""Addresses of servers: `HOST:PORT`, with an IPv6 host in brackets, or `unix:PATH`."""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress

from eventq.errors import NO_DESCRIPTORS, LogicError, UsageError, no_descriptors
from eventq.system import clock
from eventq.system.locks import lock_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import Any

    Make = Callable[[], asyncio.BaseProtocol]

BACKLOG = 1024  # connections that may wait to be accepted
LOCK_SECONDS = 5.0  # no server takes that long to start: a longer lock is another program's
_SPARE_FILES = 64
_SAY_SECONDS = 60.0  # between two lines about connections that cannot be accepted
_UNIX = "unix:"
_NOT_IN_A_HOST = frozenset("/@[]?# ")


def unix_path(text: str) -> str | None:
    """Return the path of `unix:PATH`, None for anything else."""
    return text.removeprefix(_UNIX) if text.startswith(_UNIX) else None


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return host and port of `HOST:PORT`, None for anything else."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host.replace(":", "/")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 1 << 16
    return None if not bare or _NOT_IN_A_HOST & set(bare) or number >= 1 << 16 else (bare, number)


class Address:
    """An address to listen on: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`, or UsageError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.unix = unix_path(text)
        self.host, self.port = "", 0
        self._mark: tuple[int, int, int] | None = None
        if self.unix is None:
            found = host_and_port(text)
            if found is None:
                fix = "give HOST:PORT, for example 127.0.0.1:9009, or unix:PATH"
                raise UsageError(f"'{text}' is no address to listen on", fix)
            self.host, self.port = found
        elif not self.unix or "\0" in self.unix:
            raise UsageError(f"'{text}' names no socket", "give unix:PATH")

    def is_local(self) -> bool:
        """Return whether only this machine can reach it. Raises LogicError for an unknown host."""
        import ipaddress

        if self.unix is not None:
            return True
        try:
            found = {
                info[4][0]
                for info in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            }
            return all(ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found)
        except (OSError, UnicodeError) as error:  # the latter of a name that can be none
            why = getattr(error, "strerror", None) or error
            what = f"'{self.host:.100}' is no host: {why}"
            raise LogicError(what, "give an address of this machine") from error

    async def listen(self, loop: asyncio.AbstractEventLoop, make: Make) -> asyncio.AbstractServer:
        """Start to listen. Raises LogicError."""
        try:
            if self.unix is None:
                return await loop.create_server(make, self.host, self.port, backlog=BACKLOG)
            return await self._listen_unix(loop, make, self.unix)
        except OSError as error:
            what = f"cannot listen on {self.text}: {_reason(error)}"
            raise LogicError(what, "choose another address, or stop who is there") from error

    async def _listen_unix(
        self, loop: asyncio.AbstractEventLoop, make: Make, path: str
    ) -> asyncio.AbstractServer:
        """Listen on a socket that only its owner may use, replacing that of a dead server.

        asyncio gets a socket that is bound already: given a path, it would remove any socket there,
        even that of a server which started a moment earlier.
        """
        with _lock(path):
            _remove_dead(path)
            listener = _bound(path)
            self._mark = _mark(path)
        # `unlink` cleans up.
        kept: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        try:
            return await loop.create_unix_server(make, sock=listener, backlog=BACKLOG, **kept)
        except BaseException:
            listener.close()
            self.unlink()
            raise

    def with_port(self, listener: asyncio.AbstractServer) -> str:
        """Return the address with the port that was picked."""
        if self.unix is not None:
            return self.text
        sockets = listener.sockets  # type: ignore[attr-defined]
        port = sockets[0].getsockname()[1]
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def unlink(self) -> None:
        """Remove the socket, unless another server has replaced it."""
        if self.unix is not None and self._mark:
            with suppress(OSError, LogicError), _lock(self.unix):
                if _mark(self.unix) == self._mark:
                    os.unlink(self.unix)


def _reason(error: OSError) -> str:
    """Return the system's words for an error: asyncio's repeat the address."""
    if error.errno is None or isinstance(error, socket.gaierror):  # its number is no errno
        return error.strerror or str(error)
    return os.strerror(error.errno)


@contextmanager
def _lock(path: str) -> Iterator[None]:
    """Lock the folder of a socket against servers that start or stop. Raises OSError, LogicError.

    It polls instead of blocking: anyone who can read the folder can hold the lock for ever.
    """
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = clock.monotonic() + LOCK_SECONDS
        while not _locked(fd):
            if clock.monotonic() >= deadline:
                what = f"another program holds the folder of '{path}' locked"
                raise LogicError(what, "choose another folder")
            clock.pause(0.002)
        yield
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        lock_whole(fd, wait=False)
    except BlockingIOError:
        return False
    return True


def _mark(path: str) -> tuple[int, int, int]:
    """Return what identifies a socket; a later one at its path may have the same inode."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _bound(path: str) -> socket.socket:
    """Return a new socket that listens at a path, with mode 0600 from the start."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(path)
        made.listen(BACKLOG)  # under the lock: until it listens, it looks dead
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def _remove_dead(path: str) -> None:
    """Remove a dead server's socket. Raises LogicError for a live one, and for another file."""
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise LogicError(f"'{path}' is there, and is no socket", "choose another path")
    if _is_dead(path):
        os.unlink(path)
        return
    raise LogicError(f"another server listens on '{path}'", "choose another path, or stop it")


def _is_dead(path: str) -> bool:
    """Return whether no server listens on a socket, without waiting for one with a full queue."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except BlockingIOError:
            pass
    return False


def raise_file_limit(connections: int) -> int:
    """Raise the limit of open files for so many connections; return how many it permits.

    A connection takes two files: its socket, and a duplicate once something was written for it.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(1, (soft - _SPARE_FILES) // 2))


def tell_of_full(loop: asyncio.AbstractEventLoop) -> None:
    """Log a line when no connection can be accepted, for want of descriptors.

    asyncio logs a traceback for each place in the backlog, and tries again every second.
    """
    from logging import getLogger

    again = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal again
        error = context.get("exception")
        if again and isinstance(error, ValueError) and "_start_serving" in context["message"]:
            return  # the server has ended before asyncio tried again
        if not isinstance(error, OSError) or error.errno not in NO_DESCRIPTORS:
            loop.default_exception_handler(context)
        elif clock.monotonic() >= again:
            again = clock.monotonic() + _SAY_SECONDS
            getLogger("eventq.serve").error("no connection can be accepted: %s", no_descriptors())

    loop.set_exception_handler(handle)
