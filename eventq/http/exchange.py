"""One request and its reply, with a bound for what all of them hold in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Message = dict[str, Any]

MOST_HELD = 256 << 20  # bytes of requests and replies under way, together
PIECE = 1 << 18  # bytes of a reply that are given to the connection at once


class Budget:
    """The bytes that requests and replies under way hold."""

    def __init__(self) -> None:
        self.held = 0


class Exchange:
    """What is received of a request, and sent as its reply."""

    def __init__(
        self,
        budget: Budget,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._budget = budget
        self._receive = receive
        self._send = send
        self._held = 0
        self._start: Message | None = None
        self.has_begun = False  # to send a reply

    async def receive(self) -> Message:
        """Return what comes next of the request. Raises BusyError when it is too much now."""
        message = await self._receive()
        self._hold(len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the reply; a long one piece by piece, as the caller reads it.

        Raises BusyError, before anything is sent, when there is no memory for the first part.
        """
        if message["type"] == "http.response.start":
            # That of a stream goes at once: its first part may take long.
            if any(name == b"content-length" for name, _ in message["headers"]):
                self._start = message
            else:
                self.has_begun = True
                await self._send(message)
            return
        body = message.get("body", b"")
        is_long = len(body) > PIECE
        if is_long and not self.has_begun:
            self._hold(len(body))
        if self._start is not None:
            start, self._start = self._start, None
            self.has_begun = True
            await self._send(start)
        if not is_long:
            await self._send(message)
            return
        for at in range(0, len(body), PIECE):
            more = message.get("more_body", False) or at + PIECE < len(body)
            await self._send({**message, "body": body[at : at + PIECE], "more_body": more})

    def _hold(self, size: int) -> None:
        if size and self._budget.held + size > MOST_HELD:
            what = f"requests and replies under way have {self._budget.held >> 20} MiB"
            raise BusyError(what, "try again later")
        self._budget.held += size
        self._held += size

    def end(self) -> None:
        """Free what was held."""
        self._budget.held -= self._held
        self._held = 0
