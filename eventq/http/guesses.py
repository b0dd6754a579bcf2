"""Wrong tokens: each is answered late, and the log says how many there were."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from eventq.http.sending import Caller
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Receive = Callable[[], Awaitable[dict[str, Any]]]

LEAST_SECONDS = 0.2  # until a wrong token is answered
MOST_SECONDS = 5.0  # however many there are
TURN_SECONDS = 0.05  # between two answers, as long as none waits longer than that
LOG_SECONDS = 10.0  # between two lines of the log
_log = logging.getLogger("eventq.http")


class Guesses:
    """The wrong tokens of a server; whoever has the right one waits for none of them."""

    def __init__(self) -> None:
        self._turn = self._said = float("-inf")
        self._count = 0

    async def wait(self, scope: dict[str, Any], receive: Receive) -> None:
        """Wait until a wrong token may be answered, or its caller has gone."""
        now = clock.monotonic()
        self._note(now, scope)
        self._turn = min(max(self._turn + TURN_SECONDS, now + LEAST_SECONDS), now + MOST_SECONDS)
        async with Caller(receive) as caller:
            await caller.wait(max(LEAST_SECONDS, self._turn - now))

    def _note(self, now: float, scope: dict[str, Any]) -> None:
        self._count += 1
        if now - self._said >= LOG_SECONDS:
            host, _ = scope.get("client") or ("an unknown host", 0)
            _log.warning("wrong tokens: %d, the last one from %s", self._count, host)
            self._count, self._said = 0, now
