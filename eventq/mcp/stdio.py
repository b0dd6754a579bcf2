"""MCP on standard input and output, for the program that started this one."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from mcp.server.stdio import stdio_server
from pydantic_core import from_json

from eventq.mcp.jsonrpc import BATCHED, Batch, encode, is_request, read, taken_id
from eventq.mcp.thread_server import ROOM, ThreadServer
from eventq.serving.parameters import MOST_BODY
from eventq.serving.served import ServedThread
from eventq.system import processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

END_SECONDS = 5.0  # for calls under way at the end, and for a client that does not read
LINES = 8  # that wait to be taken
_CHUNK = 1 << 16
_PARENT_SECONDS = 1.0  # between two looks at whether the parent is still there


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

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines."""
        while True:
            waits = asyncio.ensure_future(self._lines.get())
            await asyncio.wait((waits, self._ended), return_when=asyncio.FIRST_COMPLETED)
            line = waits.result() if waits.done() else None
            if line is None:
                waits.cancel()
                return
            self._room.release()
            yield line

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


class Output:
    """Standard output, a message a line; the replies to a batch are one line once all are there."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb")
        self._turn = asyncio.Lock()
        # By the ids of the requests that wait for a reply, the batch of each, None for none.
        self.waiting: dict[Any, Batch | None] = {}
        self.beginning: set[Any] = set()  # the ids of what agrees on a revision
        self.is_batched = False  # arrays are messages in the revision that was agreed on

    async def write(self, text: str) -> None:
        """Write a message of the SDK, with its newline, or keep it for its batch."""
        value = from_json(text)
        number = None if "method" in value else value.get("id")
        batch = self.waiting.pop(number, None)
        if batch is not None:
            batch.add(value)
            await self.send(batch.replies())
            return
        if number in self.beginning:
            self.beginning.remove(number)
            if "result" in value:  # else what was agreed on before holds
                self.is_batched = value["result"].get("protocolVersion") == BATCHED
        await self.send(text[:-1].encode("utf-8", "replace"))

    async def send(self, message: bytes | None) -> None:
        """Write a message, if it is one."""
        if message is not None:
            async with self._turn:
                await asyncio.to_thread(self._write, message + b"\n")

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    async def flush(self) -> None:
        """Do nothing: each message is written at once."""


class Session:
    """What the SDK reads lines from: after the last one, what is under way is finished first."""

    def __init__(self, served: ServedThread, server: ThreadServer) -> None:
        self._served = served
        self.server = server
        self.input = Input()
        self.output: Output

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the messages, then let calls end: the SDK cancels those that it finds then."""
        async for line in self.input.lines():
            if line.strip():
                for message in await self._messages(line):
                    yield message
            await self.server.has_room()
        last = threading.Timer(3 * END_SECONDS, os._exit, (1,))  # for a client that does not read
        last.daemon = True
        last.start()
        self._served.feed.close()  # calls that wait return what they have
        await self.server.close(END_SECONDS)

    async def _messages(self, line: bytes) -> list[str]:
        """Return the messages of a line; what is none is answered."""
        value, wrong = read(line, batched=self.output.is_batched)
        waiting = self.output.waiting
        if wrong is None and not isinstance(value, list) and is_request(value):
            wrong = taken_id(value["id"]) if value["id"] in waiting else None
        if wrong is not None:
            await self.output.send(encode(wrong))
            return []
        if isinstance(value, list):
            batch = Batch(value, waiting)
            waiting |= dict.fromkeys(batch.waits, batch)
            await self.output.send(batch.replies())
            value = batch.messages
        elif is_request(value):
            waiting[value["id"]] = None
            if value["method"] == "initialize":
                self.output.beginning.add(value["id"])
        messages = value if isinstance(value, list) else [value]
        return [encode(one).decode() for one in messages if not self._cancels(one)]

    def _cancels(self, message: Any) -> bool:
        """Return whether a message ends a call of a batch, whose reply its other calls wait for."""
        if message.get("method") != "notifications/cancelled":
            return False
        number = (message.get("params") or {}).get("requestId")
        if type(number) not in (str, int):
            return False
        if self.output.waiting.get(number) is None:
            self.output.waiting.pop(number, None)  # it gets no reply
            return False
        return True


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

    for number in processes.ends():
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    watch = asyncio.create_task(_end_with_parent(session.input))
    try:
        await _speak(session)
    except* (BrokenPipeError, ConnectionError):  # the client has gone
        pass
    finally:
        watch.cancel()
        await asyncio.to_thread(served.close, END_SECONDS)
    return 130 if signals[:1] == [signal.SIGINT] else 0


async def _end_with_parent(input: Input) -> None:
    """End once the process that started this one has: others may hold the pipe open.

    PR_SET_PDEATHSIG would do so on Linux alone, and when the OS thread that started it ends.
    """
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 (nothing tells of it on all systems)
        await asyncio.sleep(_PARENT_SECONDS)
    input.end()


async def _speak(session: Session) -> None:
    """Serve; what anybody else writes to standard output meanwhile goes to standard error."""
    private = os.dup(1)
    os.dup2(2, 1)
    session.output = Output(private)
    sdk, lines, output = session.server.sdk, cast("Any", session), cast("Any", session.output)
    async with stdio_server(stdin=lines, stdout=output) as (incoming, outgoing):
        await sdk.run(incoming, outgoing, sdk.create_initialization_options())
