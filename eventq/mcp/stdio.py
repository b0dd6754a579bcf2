"""MCP on standard input and output, for the program that started this one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.server.stdio import stdio_server

from eventq.mcp.thread_server import ROOM, ThreadServer
from eventq.serving.parameters import MOST_BODY
from eventq.serving.served import ServedThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

END_SECONDS = 5.0  # for calls under way at the end, and for a client that does not read
LINES = 8  # that wait to be taken
_CHUNK = 1 << 16
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair, or both halves of one


class Input:
    """The lines of standard input, until it is closed or `end` is called.

    An OS thread reads them, as a file and a pipe that is never closed can be read in no other way,
    and waits for each to be taken. A line that is too long is cut, so that it is no message.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(LINES)
        self._ended = self._loop.create_future()
        threading.Thread(target=self._read, name="eventq-stdin", daemon=True).start()

    def end(self) -> None:
        """Stop, as if it had been closed."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def lines(self) -> AsyncIterator[str]:
        """Yield the lines."""
        while True:
            waits = asyncio.ensure_future(self._lines.get())
            await asyncio.wait((waits, self._ended), return_when=asyncio.FIRST_COMPLETED)
            line = waits.result() if waits.done() else None
            if line is None:
                waits.cancel()
                return
            self._room.release()
            yield _message(line)

    def _read(self) -> None:
        rest: list[bytes] = []
        size = 0
        with suppress(OSError, RuntimeError):  # the loop has ended
            while data := os.read(0, _CHUNK):
                *lines, last = data.split(b"\n")
                for line in lines:
                    self._put(b"".join([*rest, line]))
                    rest, size = [], 0
                if size < MOST_BODY:
                    rest.append(last)
                    size += len(last)
            if size:
                self._put(b"".join(rest))
            self._put(None)

    def _put(self, line: bytes | None) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _message(line: bytes) -> str:
    """Return a line as text. Half a character, which the SDK does not read, is replaced."""
    text = line.decode(errors="replace")
    if _HALF.search(text) is None:
        return text
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return (
            json.dumps(value, ensure_ascii=False)
            .encode("utf-16", "surrogatepass")
            .decode("utf-16", "replace")
        )
    return text


class Session:
    """What the SDK reads lines from: after the last one, what is under way is finished first."""

    def __init__(self, served: ServedThread, server: ThreadServer) -> None:
        self._served = served
        self.server = server
        self.input = Input()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines, then let calls end: the SDK cancels those that it finds then."""
        async for line in self.input.lines():
            yield line
            await self.server.has_room()
        last = threading.Timer(3 * END_SECONDS, os._exit, (1,))  # for a client that does not read
        last.daemon = True
        last.start()
        self._served.feed.close()  # calls that wait return what they have
        await self.server.close(END_SECONDS)


async def serve_stdio(path: str, *, write: bool, room: int = ROOM) -> int:
    """Serve a thread until standard input is closed, or a signal; return the exit status.

    Raises NotAThreadError.
    """
    served = ServedThread("thread", path)
    session = Session(served, ThreadServer(served, write=write, room=room))
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        session.input.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        await _speak(session)
    except* (BrokenPipeError, ConnectionError):  # the client has gone
        pass
    finally:
        await asyncio.to_thread(served.close, END_SECONDS)
    return 130 if signals[:1] == [signal.SIGINT] else 0


async def _speak(session: Session) -> None:
    """Serve; what anybody else writes to standard output meanwhile goes to standard error."""
    private = os.dup(1)
    os.dup2(2, 1)
    output = TextIOWrapper(os.fdopen(private, "wb"), encoding="utf-8", errors="replace")
    sdk, lines = session.server.sdk, cast("Any", session)
    async with stdio_server(stdin=lines, stdout=anyio.wrap_file(output)) as (incoming, outgoing):
        await sdk.run(incoming, outgoing, sdk.create_initialization_options())
