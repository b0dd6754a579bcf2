"""Pushes of those who have a token, alone and beside a crowd of callers who have none and mean harm.

`python -m bench.crowd HOST PORT` is the crowd, in a process of its own.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from typing import TYPE_CHECKING

import eventq
from bench.contestants import KIND, SOURCE
from bench.disk import slow_disk
from bench.http import CONNECTIONS, DISK, Line, post_rate
from bench.machine import PYTHON, Child
from bench.report import Row, Sample, alone, versus
from bench.served import SERVE_TOKEN, Served
from bench.turn_stores import RawTurns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rounds import Plan

TOKEN = SERVE_TOKEN[SERVE_TOKEN.index("--token") + 1]
SILENT = 1_000
SLOW_HEADS = 100
STALLED = 100
FOLLOWERS = 120
REQUESTS = 200  # a second, each on a connection of its own
EVENTS = 2_000  # of 16 kB, which followers ask for and do not read
STEP = 0.05
SLOW = 20  # steps between two bytes of a slow head
SETTLE = 60  # steps until followers have what is sent to those who do not read
_AT = "/api/threads/thread/events"
_HOST = b" HTTP/1.1\r\nhost: localhost\r\n"
_STALLED = b"POST /login" + _HOST + b"content-length: 60000\r\n\r\ntoken="
_FOLLOW = b"GET %s/stream?after=0%s\r\n" % (_AT.encode(), _HOST)
_PIPELINED = (b"GET /" + _HOST + b"\r\n") * 1_000
_LARGE = b"content-length: 67108864\r\n\r\n" + b"a=1&" * 15_000
_HOSTILE = (
    b"POST /login" + _HOST + _LARGE,
    b"POST /t/thread/do/answer" + _HOST + _LARGE,
    b"POST %s" % _AT.encode() + _HOST + _LARGE,
    b"GET /api/health" + _HOST + b"authorization: Bearer wrong\r\n\r\n",
    b"GET /" + _HOST + b"sec-fetch-site: cross-site\r\n\r\n",
    b"POST /mcp" + _HOST + b"content-type: application/json\r\ncontent-length: 60001\r\n\r\n["
    + b"[],[]," * 10_000,
    b"nonsense\r\n\r\n",
)  # fmt: skip


def run(plan: Plan) -> Iterator[Row]:
    """Measure pushes alone and beside the crowd, and what the server holds then."""
    with ExitStack() as stack:
        disk = stack.enter_context(slow_disk())
        with closing(RawTurns(plan.place("bare"), "full")) as bare:
            disk.slow_to(DISK, bare, plan.size(80, 20))
        path = plan.place("thread")
        with eventq.open(path, create=True) as thread:
            thread.push_many([(SOURCE, KIND, "x" * 16_000)] * EVENTS)
        program = ("bench.disk", str(disk.sync), *SERVE_TOKEN[1:])
        served = stack.enter_context(Served(path, "full", program))
        lines = [
            stack.enter_context(closing(Line(served, f"authorization: Bearer {TOKEN}\r\n")))
            for _ in range(CONNECTIONS)
        ]
        count = plan.size(4_000, 500)
        held: list[float] = []

        def beside() -> float:
            host, port = served.address
            with Child([PYTHON, "-m", "bench.crowd", host, str(port)]) as crowd:
                assert crowd.hear().strip() == "there"
                found = post_rate(lines, count)
                held.append(served.resident_mb())
            return found

        found = plan.take({"alone": lambda: post_rate(lines, count), "beside": beside})
    what = (
        f"POST of one event, {CONNECTIONS} connections with a token, beside {SILENT:,} silent ones,"
        f" {SLOW_HEADS} slow heads, {STALLED} stalled bodies, a pipeliner, {FOLLOWERS} followers"
        f" that do not read, {REQUESTS} hostile requests/s"
    )
    measured, raw = Sample(found["beside"], "/s"), Sample(found["alone"], "/s")
    yield versus(what, measured, raw, least=0.8)
    yield alone("the same: resident size of the server", Sample(held, "MB"), most=250)
    plan.clear()


class Crowd:
    """Connections that mean harm; each that the server closes comes again."""

    def __init__(self, host: str, port: int) -> None:
        """Take the address of the server."""
        self._address = host, port
        self._selector = selectors.DefaultSelector()
        self._slow: dict[socket.socket, None] = {}
        self._hostile = cycle(_HOSTILE)
        self._short: list[socket.socket] = []
        self._steps = 0

    def _add(self, data: bytes, *, reads: bool = True) -> socket.socket | None:
        one = socket.socket()
        one.settimeout(STEP)
        with suppress(OSError):
            one.connect(self._address)
            one.setblocking(False)
            if data:
                one.send(data)
            if reads:
                self._selector.register(one, selectors.EVENT_READ, data)
            return one
        one.close()
        return None

    def begin(self) -> None:
        """Connect all."""
        for _ in range(SILENT):
            self._add(b"")
        for _ in range(SLOW_HEADS):
            self._add_slow()
        for _ in range(STALLED):
            self._add(_STALLED)
        self._deaf = [self._add(_FOLLOW, reads=False) for _ in range(FOLLOWERS)]
        self._pipeliner = self._add(_PIPELINED, reads=False)

    def _add_slow(self) -> None:
        one = self._add(b"GET /")
        if one is not None:
            self._slow[one] = None

    def go_on(self) -> None:
        """Do what is due in so short a time; come again where the server has closed."""
        for key, _ in self._selector.select(0):
            data = b""
            with suppress(OSError):
                data = key.fileobj.recv(65_536)  # type: ignore[union-attr]
            if not data:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                if self._slow.pop(key.fileobj, 0) is None:  # type: ignore[call-overload]
                    self._add_slow()
                elif key.data is not None:
                    self._add(key.data)
        self._steps += 1
        for one in self._slow if self._steps % SLOW == 0 else ():
            with suppress(OSError):
                one.send(b"x")
        self._pipeline()
        for one in self._short:
            one.close()
        found = [self._add(next(self._hostile), reads=False) for _ in range(int(REQUESTS * STEP))]
        self._short = [one for one in found if one is not None]

    def _pipeline(self) -> None:
        """Send and read as fast as the server does, for so short a time."""
        try:
            assert self._pipeliner is not None
            with suppress(BlockingIOError):
                while self._pipeliner.recv(65_536):
                    pass
            with suppress(BlockingIOError):
                while True:
                    self._pipeliner.send(_PIPELINED)
        except (OSError, AssertionError):
            self._pipeliner = self._add(_PIPELINED, reads=False)


def main() -> None:
    """Be the crowd until somebody ends this process."""
    crowd = Crowd(sys.argv[1], int(sys.argv[2]))
    crowd.begin()
    for _ in range(SETTLE):
        crowd.go_on()
        time.sleep(STEP)
    print("there", flush=True)
    while True:
        crowd.go_on()
        time.sleep(STEP)


if __name__ == "__main__":
    main()
