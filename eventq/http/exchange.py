"""One request and its reply, with a bound for what all of them hold in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from eventq.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eventq.http.sharing import Share

    Message = dict[str, Any]

MOST_HELD = 256 << 20  # bytes of requests and replies under way, together
MOST_UNKNOWN = 64 << 20  # of callers without a token, where there is one
WAIT_SECONDS = 0.05  # between two looks for memory
PIECE = 1 << 18  # bytes of a reply that are given to the connection at once


class Budget:
    """The bytes that requests and replies under way hold, and how many those are."""

    def __init__(self, most: int, most_requests: int | None = None) -> None:
        self.most = most
        self.held = 0
        self.most_requests = most_requests
        self.requests = 0

    def fits(self, size: int) -> bool:
        """Return whether there is memory for so many more bytes."""
        return size <= 0 or self.held + size <= self.most


class Exchange:
    """What is received of a request, and sent as its reply: in turns, until it is admitted."""

    def __init__(
        self,
        budget: Budget,
        share: Share,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._budget = budget
        self._share = share
        self.is_admitted = False
        self._receive = receive
        self._send = send
        self._held = 0
        self._start: Message | None = None
        self._counts = False  # as a request
        self._is_open = False  # a reply whose length is not known
        self.has_begun = False  # to send a reply

    def admit(self, budget: Budget) -> None:
        """Hold what comes from here on of a budget for callers who are known."""
        self._budget = budget
        self.is_admitted = True
        self._share.give_way()

    def begin(self) -> None:
        """Count as a request under way. Raises BusyError when there are too many."""
        most = self._budget.most_requests
        if most is not None and self._budget.requests >= most:
            what = f"{most} requests without a token are under way"
            raise BusyError(what, "send the token, or try again later")
        self._budget.requests += 1
        self._counts = True

    async def wait(self) -> None:
        """Wait for a turn, unless the caller is admitted."""
        if not self.is_admitted:
            await self._share.wait()

    async def receive(self) -> Message:
        """Return what comes next of the request. Raises BusyError when it is too much now."""
        message = await self._receive()
        if body := message.get("body"):
            self._hold(len(body))
            await self.wait()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the reply; a long one piece by piece, as the caller reads it.

        Raises BusyError, before anything is sent, when there is no memory for the first part, and
        for a later one of a stream; what has a length waits for memory.
        """
        if message["type"] == "http.response.start":
            # That of a stream goes at once: its first part may take long.
            if any(name == b"content-length" for name, _ in message["headers"]):
                self._start = message
            else:
                self.has_begun = self._is_open = True
                await self._send(message)
            return
        await self.wait()
        body = message.get("body", b"")
        is_long = len(body) > PIECE
        is_part = self.has_begun  # of many, which are held while they are sent
        while is_part and not self._is_open and not self._budget.fits(len(body)):  # noqa: ASYNC110
            await asyncio.sleep(WAIT_SECONDS)
        if is_long or is_part:
            self._hold(len(body))
        if self._start is not None:
            start, self._start = self._start, None
            self.has_begun = True
            await self._send(start)
        if not is_long:
            await self._send(message)
        else:
            for at in range(0, len(body), PIECE):
                more = message.get("more_body", False) or at + PIECE < len(body)
                await self._send({**message, "body": body[at : at + PIECE], "more_body": more})
        if is_part:
            self._hold(-len(body))

    def _hold(self, size: int) -> None:
        if not self._budget.fits(size):
            what = f"requests and replies under way have {self._budget.held >> 20} MiB"
            raise BusyError(what, "try again later")
        self._budget.held += size
        self._held += size

    def end(self) -> None:
        """Free what was held."""
        self._budget.requests -= self._counts
        self._counts = False
        self._budget.held -= self._held
        self._held = 0
