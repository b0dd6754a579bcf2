"""A thread that is served over HTTP: events, claims, reads, and a thousand followers.

The clients speak over plain sockets in this process, so that what is measured is the server.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import eventq
from bench.contestants import KIND, PAYLOAD, SOURCE
from bench.disk import slow_disk
from bench.report import Row, Sample, alone, percentile
from bench.rounds import p50
from bench.scale import busy_thread
from bench.served import SERVE_HTTP, Served, serve_slowed
from bench.turn_stores import RawTurns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rounds import Plan

CONNECTIONS = 16
DISK = 700  # commits a second
FOLLOWERS = 1_000
_SPARE_FILES = 200
_RECEIVE = 1 << 18


def run(plan: Plan) -> Iterator[Row]:
    """Measure pushes of many connections, reads, claims, and followers."""
    for part in (_posts, _reads, _claims, _followers):
        with ExitStack() as stack:
            yield from part(plan, stack)
        plan.clear()


class Line:
    """One connection that is kept."""

    def __init__(self, served: Served, headers: str = "") -> None:
        """Connect; the lines of headers are sent with each request."""
        self._headers = headers
        self.socket = socket.create_connection(served.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{self._headers}"
        self.socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def receive(self) -> bytes | None:
        """Wait for bytes, and give the body of a reply that is whole by then."""
        self._data += self.socket.recv(_RECEIVE)
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return None
        assert head[9:10] == b"2", head
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < size:
            return None
        self._data = rest[size:]
        return rest[:size]

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request, and return the body of its reply."""
        self.send(method, path, body)
        while (found := self.receive()) is None:
            pass
        return found

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


# --- events ---------------------------------------------------------------------------------------


def _posts(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    disk = stack.enter_context(slow_disk())
    with closing(RawTurns(plan.place("bare"), "full")) as bare:
        disk.slow_to(DISK, bare, plan.size(80, 20))
    program = serve_slowed(disk.sync, http=True)
    served = stack.enter_context(Served(plan.place("thread"), "full", program))
    lines = [stack.enter_context(closing(Line(served))) for _ in range(CONNECTIONS)]
    count = plan.size(4_000, 200)
    found = plan.take({"post": lambda: post_rate(lines, count)})
    what = f"a disk of {DISK} commits/s, FULL: POST of one event, {CONNECTIONS} connections"
    yield alone(what, Sample(found["post"], "/s"), least=2_000)


def post_rate(lines: list[Line], count: int) -> float:
    """Push so many events over all connections, and return how many a second that were."""
    body = json.dumps({"source": SOURCE, "type": KIND, "content": PAYLOAD}).encode()
    path = "/api/threads/thread/events"
    with selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line.socket, selectors.EVENT_READ, line)
        start = time.perf_counter()
        left, to_send = count, count
        for line in lines:
            line.send("POST", path, body)
            to_send -= 1
        while left:
            for key, _ in selector.select():
                if key.data.receive() is not None:
                    left -= 1
                    if to_send:
                        key.data.send("POST", path, body)
                        to_send -= 1
        return count / (time.perf_counter() - start)


def _reads(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    size = plan.size(1_000_000, 20_000)
    with busy_thread(plan, size) as thread:
        path = thread.path
    served = stack.enter_context(Served(path, "full", SERVE_HTTP))
    line = stack.enter_context(closing(Line(served)))
    count = plan.size(200, 20)
    at = "/api/threads/thread"
    after = f"{at}/events?limit=100&after={size // 2}"
    found = plan.take({
        "events": p50(lambda: line.ask("GET", after), count),
        "status": p50(lambda: line.ask("GET", f"{at}/status"), count),
    })  # fmt: skip
    what = f"of {size:,} events"
    yield alone(f"GET of 100 {what}, p50", Sample(found["events"], "ms"), most=3)
    yield alone(
        f"GET of the status {what} and 100 consumers, p50", Sample(found["status"], "ms"), most=10
    )


def _claims(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    path, count = plan.place("thread"), plan.size(10_000, 1_000)
    with eventq.open(path, create=True) as thread:
        thread.subscribe("worker")
    served = stack.enter_context(Served(path, "full", SERVE_HTTP))
    line = stack.enter_context(closing(Line(served)))

    def task() -> float:
        with eventq.open(path) as thread:
            thread.push_many([(SOURCE, KIND, PAYLOAD)] * count)
        at, done = "/api/threads/thread", 0
        start = time.perf_counter()
        while done < count:
            found = json.loads(line.ask("POST", f"{at}/consumers/worker/claim", b'{"limit": 100}'))
            tokens = [one["token"] for one in found["claims"]]
            line.ask("POST", f"{at}/settle", json.dumps({"done": tokens}).encode())
            done += len(tokens)
        return count / (time.perf_counter() - start)

    found = plan.take({"claims": task})
    yield alone(
        "claim and settle of 100 events over HTTP, FULL", Sample(found["claims"], "/s"),
        least=30_000,
    )  # fmt: skip


# --- followers ------------------------------------------------------------------------------------


def _followers(plan: Plan, stack: ExitStack) -> Iterator[Row]:
    count = plan.size(FOLLOWERS, 50)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * count + _SPARE_FILES), most))
    path = plan.place("thread")
    thread = stack.enter_context(eventq.open(path, create=True))
    served = stack.enter_context(Served(path, "full", SERVE_HTTP))
    selector = stack.enter_context(selectors.DefaultSelector())
    for _ in range(count):
        one = stack.enter_context(closing(socket.create_connection(served.address)))
        one.sendall(b"GET /api/threads/thread/events/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = b""
        while b": connected" not in head:
            head += one.recv(_RECEIVE)
        selector.register(one, selectors.EVENT_READ, one)

    def task() -> list[float]:
        taken = []
        for _ in range(plan.size(20, 3)):
            time.sleep(0.05)
            start = time.perf_counter()
            mark = f"id: {thread.push(SOURCE, KIND, PAYLOAD).id}\n".encode()
            left = count
            while left:
                for key, _ in selector.select():
                    if mark in key.data.recv(_RECEIVE):
                        taken.append((time.perf_counter() - start) * 1_000)
                        left -= 1
        return taken

    found = plan.take({"push": task})
    what = f"{count:,} followers of server-sent events"
    yield alone(
        f"{what}: resident size of the server", Sample([served.resident_mb()], "MB"), most=150
    )
    for share, most_ms in ((0.5, 0.0), (0.99, 250.0)):
        sample = Sample([percentile(one, share) for one in found["push"]], "ms")
        yield alone(f"{what}: push to all of them, p{share * 100:.0f}", sample, most=most_ms)
