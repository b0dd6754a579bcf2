"""A served thread, and a plain client: a blocking socket and frames."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from blake3 import blake3

import eventq
from eventq.wire import frames
from eventq.wire.frames import (
    AppendTurn,
    Failure,
    Frame,
    GetHead,
    Head,
    Reader,
    Reply,
    Request,
    Type,
)
from eventq.wire.server import Limits, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

    from tests.conftest import Until

    Given = TypeVar("Given")
    Message = Request | tuple[int, bytes]  # a request, or a type and a payload of whatever kind

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE = 120.0
HEADER = struct.Struct("<IHHQ")
KINDS = {message: kind for kind, message in frames.REQUESTS.items()}


def append(context_id: int, payload: bytes, parent: int = 0, **more: Any) -> AppendTurn:
    """Return an append that is right, but for what is told otherwise."""
    told: dict[str, Any] = {
        "type_id": "t", "type_version": 1, "encoding": 0, "compression": 0,
        "uncompressed_len": len(payload), "hash": blake3(payload).digest(), "payload": payload,
    } | more  # fmt: skip
    return AppendTurn(context_id, parent, **told)


def frame(
    kind: int, payload: bytes, req_id: int = 0, flags: int = 0, length: int | None = None
) -> bytes:
    """Return the bytes of a frame, right or wrong."""
    return HEADER.pack(len(payload) if length is None else length, kind, flags, req_id) + payload


def connected(address: str, **more: Any) -> socket.socket:
    """Return a socket that is connected to a server."""
    unix = address.startswith("unix:")
    host, _, port = address.removeprefix("unix:").rpartition(":")
    made = socket.socket(
        socket.AF_UNIX if unix else socket.AF_INET6 if "[" in host else socket.AF_INET
    )
    try:
        made.settimeout(DEADLINE)
        for option, value in more.items():
            made.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        made.connect(address.removeprefix("unix:") if unix else (host.strip("[]"), int(port)))
        if not unix:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        made.close()
        raise
    return made


class Gate:
    """A function of the package that notes its calls, and waits until the gate is opened."""

    def __init__(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, *, is_open: bool = False
    ) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._open, real = threading.Event(), getattr(owner, name)
        if is_open:
            self.open()

        def held(*args: Any, **more: Any) -> Any:
            self.calls.append(args)
            assert self._open.wait(60)
            return real(*args, **more)

        patch.setattr(owner, name, held)

    def open(self) -> None:
        """Let those that wait go on, and those that come."""
        self._open.set()


class Peer:
    """One connection. Each reply must answer the request whose turn it is, and be of its type."""

    def __init__(self, address: str, **more: Any) -> None:
        self.socket = connected(address, **more)
        self.reader = Reader()
        self.due: deque[tuple[int, int, bool]] = deque()  # req_id, type, include_payload
        self.next_id = 1

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def framed(self, message: Message, flags: int | None = None) -> bytes:
        """Return the frame of a message, and remember that a reply is due."""
        req_id = self.next_id
        self.next_id += 1
        if isinstance(message, tuple):
            kind, payload = message
            self.due.append((req_id, kind, kind in (6, 7, 8) and payload[-4:] == b"\1\0\0\0"))
            return frame(kind, payload, req_id, flags or 0)
        self.due.append((req_id, KINDS[type(message)], getattr(message, "include_payload", False)))
        data = bytearray(frames.encode_request(message, req_id))
        if flags is not None:
            data[6:8] = flags.to_bytes(2, "little")
        return bytes(data)

    def send(self, *messages: Message) -> None:
        """Send requests in one go."""
        self.socket.sendall(b"".join(self.framed(message) for message in messages))

    def raw(self) -> Frame:
        """Return the next frame that comes."""
        while (found := self.reader.next()) is None:
            data = self.socket.recv(1 << 20)
            assert data, "the server has hung up"
            self.reader.feed(data)
        return found

    def matched(self, found: Frame) -> Reply:
        """Return the reply in a frame, which must answer the request that is next."""
        req_id, kind, payloads = self.due.popleft()
        assert (found.req_id, found.flags) == (req_id, 0)
        return frames.decode_reply(found, kind, payloads)

    def reply(self) -> Reply:
        """Return the next reply."""
        return self.matched(self.raw())

    def ask(self, message: Message, flags: int | None = None) -> Reply:
        """Send a request; give its reply."""
        self.socket.sendall(self.framed(message, flags))
        return self.reply()

    def talk(self, messages: Iterable[Message], *, step: int = 0) -> list[Reply]:
        """Send requests while their replies are read; with a `step`, so many bytes at once."""
        return self.exchange(b"".join(self.framed(message) for message in messages), step=step)

    def exchange(self, data: bytes, *, step: int = 0) -> list[Reply]:
        """Send bytes while replies are read, until none is due any more."""
        view, at, replies = memoryview(data), 0, []
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while at < len(view) or self.due:
                ready = selector.select(DEADLINE)
                assert ready, f"{len(self.due)} replies did not come"
                if ready[0][1] & selectors.EVENT_WRITE:
                    end = at + step if step else len(view)
                    at += self.socket.send(view[at:end], socket.MSG_DONTWAIT)
                    if at == len(view):
                        selector.modify(self.socket, selectors.EVENT_READ)
                if ready[0][1] & selectors.EVENT_READ:
                    got = self.socket.recv(1 << 20)
                    assert got, "the server has hung up"
                    self.reader.feed(got)
                    replies += [self.matched(found) for found in self.reader.frames()]
        return replies

    def refused(self, message: Message, flags: int | None = None) -> int:
        """Send a request that is refused; check that the connection lives; return the code."""
        reply = self.ask(message, flags)
        assert isinstance(reply, Failure), reply
        assert " - " in reply.text or len(reply.text) > 65_000  # what is wrong, and what to do
        self.lives()
        return reply.code

    def lives(self) -> None:
        """Check that the next request is answered."""
        assert isinstance(self.ask(GetHead(1)), (Head, Failure))

    def rest(self) -> list[Frame]:
        """Return the frames that still come until the server hangs up."""
        while data := self.socket.recv(1 << 20):
            self.reader.feed(data)
        found = list(self.reader.frames())
        assert self.reader.pending == 0
        return found

    def hears_nothing(self) -> bool:
        """Return whether nothing has come that was not read."""
        return not select.select([self.socket], [], [], 0)[0]

    def last_words(self) -> Failure:
        """Return the error that ends the connection, and belongs to no request."""
        (told,) = self.rest()
        assert (told.type, told.req_id) == (Type.ERROR, 0)
        reply = frames.decode_reply(told, Type.ERROR)
        assert isinstance(reply, Failure)
        return reply


class Served:
    """A server in a thread of this process, with a clock that can be moved on."""

    def __init__(self, path: str, listen: str = "127.0.0.1:0", **more: Any) -> None:
        limits = {
            name: more.pop(name)
            for name in ("connections", "idle", "frame", "in_flight")
            if name in more
        }
        self.server = Server(path, listen, limits=Limits(**limits), **more)
        self.path = path
        self.address = ""
        self._moved = 0.0
        self._peers: list[Peer] = []
        self._error: list[BaseException] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        if self._error:
            self._thread.join()
            raise self._error[0]
        real = self.server.now
        self.server.now = lambda: real() + self._moved  # type: ignore[method-assign]

    def _run(self) -> None:
        try:
            self.server.run(self._begun)
        except BaseException as error:
            self._error.append(error)
        self._ready.set()

    def _begun(self, address: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = address
        self._ready.set()

    def peer(self, **more: Any) -> Peer:
        """Return another client; it is closed at the end."""
        made = Peer(self.address, **more)
        self._peers.append(made)
        return made

    def call(self, do: Callable[[], Given]) -> Given:
        """Do something in the thread of the server's loop."""
        done: list[Given] = []
        event = threading.Event()

        def run() -> None:
            with suppress(asyncio.CancelledError):
                done.append(do())
            event.set()

        self.loop.call_soon_threadsafe(run)
        assert event.wait(DEADLINE)
        return done[0]

    def pass_time(self, seconds: float) -> None:
        """Move the clock on, and have the server look at its connections."""

        def look() -> None:
            self._moved += seconds
            for connection in list(self.server.connections):
                connection.look(self.server.now())

        self.call(look)

    def connection(self) -> Any:
        """Return the only connection there is, or is about to be."""
        limit = time.monotonic() + DEADLINE
        while not (found := self.call(lambda: list(self.server.connections))):
            assert time.monotonic() < limit, "nobody has connected"
        (one,) = found
        return one

    def all(self, condition: Callable[[Any], object]) -> bool:
        """Return whether something holds of all connections, in the thread of the loop."""
        return self.call(lambda: all(map(condition, self.server.connections)))

    def count(self, number: Callable[[Any], int]) -> int:
        """Return the sum of a number of each connection."""
        return self.call(lambda: sum(map(number, self.server.connections)))

    def hang_up(self) -> None:
        """Close all clients."""
        for peer in self._peers:
            peer.close()

    def stop(self) -> None:
        """Stop the server, and wait for it."""
        self.server.stop()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error[0]


class Process:
    """A server in a process of its own."""

    def __init__(self, path: str, *words: str, listen: str = "127.0.0.1:0", **environ: str) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eventq", "serve", "--thread", path, "--listen", listen, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        self.said = line
        self.keys = self.process.stderr.readline().decode()
        self.address = line.strip().rpartition(" ")[2]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE)

    def peer(self) -> Peer:
        """Return a client."""
        return Peer(self.address)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit code, stdout, and stderr after its first two lines."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out.decode(), err.decode()


@contextmanager
def serving(path: str, until: Until) -> Iterator[Callable[..., Served]]:
    """Return a function that serves a thread.

    In the end all clients hang up: then no server holds anything for them, each stops, and the thread checks out.
    """
    made: list[Served] = []

    def begin(listen: str = "127.0.0.1:0", **more: Any) -> Served:
        made.append(Served(path, listen, **more))
        return made[-1]

    try:
        yield begin
        for served in made:
            served.hang_up()
            until(lambda served=served: not served.server.connections, "all are gone")  # type: ignore[misc]
            until(lambda served=served: not served.server.budget.held, "nothing is held")  # type: ignore[misc]
    finally:
        for served in made:
            served.hang_up()
            served.stop()
    with eventq.open(path) as thread:
        assert thread.check() == []
