"""A thread that is served by a process of its own, and clients that speak stock frames over blocking sockets."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from blake3 import blake3

import eventq
from bench.machine import PYTHON, Child
from bench.turn_stores import TurnStore
from eventq.records.turn import NewTurn
from eventq.wire.frames import (
    Appended,
    AppendTurn,
    CreateContext,
    Failure,
    Head,
    Hello,
    Reader,
    Welcome,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)

if TYPE_CHECKING:
    from eventq.memory.contexts import Context
    from eventq.wire.frames import Reply, Request

    Address = tuple[str, int]
    Ready = tuple[bytes, bytes]  # a payload and its hash

T = TypeVar("T")
_RECEIVE = 1 << 18  # bytes at once

# Modules and their words; the last word, a directory, follows.
_SERVE = ("serve", "--json", "--listen", "127.0.0.1:0", "--thread")
_SERVE_HTTP = ("serve", "--json", "--insecure-local", "--http", "127.0.0.1:0", "--thread")
SERVE = ("eventq", *_SERVE)
SERVE_HTTP = ("eventq", *_SERVE_HTTP)
SERVE_TOKEN = (
    "eventq", "serve", "--json", "--write", "--token", "secret", "--mcp", "--http", "127.0.0.1:0",
    "--thread",
)  # fmt: skip
FLOOR = ("bench.served",)


def serve_slowed(sync: float, *, http: bool = False) -> tuple[str, ...]:
    """Return the server on a disk where a sync takes so many seconds."""
    return "bench.disk", str(sync), *(_SERVE_HTTP if http else _SERVE)


class Served:
    """A new thread behind a server on a free port of the loopback interface: `eventq serve`, or another program."""

    def __init__(self, directory: str, synchronous: str, program: tuple[str, ...] = SERVE) -> None:
        """Make the thread, and start the server."""
        eventq.open(directory, create=True).close()
        self._child = Child([PYTHON, "-m", *program, directory], EVENTQ_SYNCHRONOUS=synchronous)
        try:
            host, port = json.loads(self._child.hear())["listening"].rsplit(":", 1)
        except BaseException:
            self._child.__exit__(None, None, None)
            raise
        self.address: Address = host.removeprefix("http://"), int(port)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *what: object) -> None:
        """Kill it."""
        self._child.__exit__(None, None, None)

    def resident_mb(self) -> float:
        """Return what it holds in memory now."""
        lines = (
            Path(f"/proc/{self._child.process.pid}/status").read_text(encoding="utf-8").splitlines()
        )
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1_024


class Line:
    """One connection: a frame is one send, and TCP does not hold it back."""

    def __init__(self, address: Address) -> None:
        """Connect, and say hello."""
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader()
        self._due: deque[bool] = deque()  # whether a reply has payloads
        self._number = 0
        self.ask(Hello(1, "bench"), Welcome)

    def send(self, request: Request) -> None:
        """Send a request."""
        self._number += 1
        self._due.append(getattr(request, "include_payload", False))
        self.socket.sendall(encode_request(request, self._number))

    def receive(self) -> list[Reply]:
        """Wait for bytes, and give the replies that are whole by then, perhaps none; raise when one is an error."""
        data = self.socket.recv(_RECEIVE)
        if not data:
            raise RuntimeError("the server closed the connection")
        self._reader.feed(data)
        replies = [
            decode_reply(frame, frame.type, self._due.popleft()) for frame in self._reader.frames()
        ]
        for reply in replies:
            if isinstance(reply, Failure):
                raise RuntimeError(reply.text)
        return replies

    def ask(self, request: Request, kind: type[T]) -> T:
        """Send a request, wait for its reply, and give it."""
        self.send(request)
        while not (replies := self.receive()):
            pass
        (reply,) = replies
        assert isinstance(reply, kind)
        return reply

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def append_of(context_id: int, ready: Ready) -> AppendTurn:
    """Return the request that appends a payload, whose hash was made before."""
    payload, digest = ready
    return AppendTurn(context_id, 0, "message", 1, 0, 0, len(payload), digest, payload)


class WireTurns(TurnStore):
    """eventq through one connection to a server, of the frames alone.

    As in the other stores a payload is hashed once within the time of an append: here by the server, which checks it.
    """

    def __init__(self, address: Address) -> None:
        """Connect, and make a context."""
        super().__init__()
        self.line = Line(address)
        self.context_id = self.line.ask(CreateContext(0), Head).context_id

    def ready(self) -> Ready:
        """Return another payload and its hash."""
        payload = self._payloads.next()
        return payload, blake3(payload).digest()

    def times(self, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            ready = self.ready()
            start = time.perf_counter()
            self.line.ask(append_of(self.context_id, ready), Appended)
            taken.append((time.perf_counter() - start) * 1_000)
        return taken

    def append(self, payload: bytes) -> None:
        self.line.ask(append_of(self.context_id, (payload, blake3(payload).digest())), Appended)

    def close(self) -> None:
        self.line.close()


class Crowd:
    """Connections that append at once, each to its own context, each with `ahead` requests on their way.

    One loop over all of them in this process: threads would fight for the interpreter, and processes for the cores.
    """

    def __init__(self, address: Address, connections: int, ahead: int = 1) -> None:
        """Open them."""
        self._stores = [WireTurns(address) for _ in range(connections)]
        self._ahead = ahead
        self._selector = selectors.DefaultSelector()
        for store in self._stores:
            self._selector.register(store.line.socket, selectors.EVENT_READ, store)

    def rate(self, count: int) -> float:
        """Append so many turns and give how many a second that was."""
        first = self._stores[0]
        payloads = iter([first.ready() for _ in range(count)])
        start = time.perf_counter()
        for store in self._stores * self._ahead:
            if ready := next(payloads, None):
                store.line.send(append_of(store.context_id, ready))
        left = count
        while left:
            for key, _ in self._selector.select():
                store = key.data
                for _ in store.line.receive():
                    left -= 1
                    if ready := next(payloads, None):
                        store.line.send(append_of(store.context_id, ready))
        return count / (time.perf_counter() - start)

    def close(self) -> None:
        """Close them all."""
        self._selector.close()
        for store in self._stores:
            store.close()


# --- the least that a server can be ---------------------------------------------------------------


def serve_one(directory: str) -> None:
    """Serve one context to one connection, with one thread, until it is closed: frames and the library, no more."""
    with eventq.open(directory) as thread, socket.create_server(("127.0.0.1", 0)) as listener:
        print(json.dumps({"listening": f"127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
        context = thread.contexts.create()
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader()
        while data := peer.recv(_RECEIVE):
            reader.feed(data)
            for frame in reader.frames():
                reply = _answer(context, decode_request(frame))
                peer.sendall(encode_reply(reply, frame.req_id, frame.type))


def _answer(context: Context, request: Request) -> Reply:
    if isinstance(request, AppendTurn):
        turn = context.append(NewTurn(request.payload, expect_hash=request.hash))
        return Appended(context.id, turn.turn_id, turn.depth, request.hash)
    return Welcome(1) if isinstance(request, Hello) else Head(context.id, 0, 0)


if __name__ == "__main__":
    serve_one(sys.argv[1])
