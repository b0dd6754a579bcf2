"""Sharing: what callers without a token cost those who have one, however many they are.

While somebody with a token is served, the others take a tenth of the loop's time, in the order in
which they come. What each of their requests took of it is measured step by step.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

BUSY_SECONDS = 1.0  # so long after a request with a token the others still take turns
TIMES = 9  # as long as a step took, until the next one
MOST_SECONDS = 1.0  # between two of them


class Share:
    """The share of the callers without a token, who take turns."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._free_at = self._busy_until = 0.0

    def give_way(self) -> None:
        """Note that somebody with a token is served."""
        self._busy_until = clock.monotonic() + BUSY_SECONDS

    async def wait(self) -> None:
        """Wait for a turn, if somebody with a token is served meanwhile."""
        async with self._turn:
            while (now := clock.monotonic()) < (at := min(self._free_at, self._busy_until)):  # noqa: ASYNC110
                await asyncio.sleep(at - now)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of a caller without a token."""
        await _Timed(work, self)

    def took(self, seconds: float) -> None:
        """Note what a step of such work took of the loop's time."""
        now = clock.monotonic()
        self._free_at = min(max(self._free_at, now) + seconds * TIMES, now + MOST_SECONDS)


class _Timed:
    """A coroutine, each of whose steps is timed."""

    def __init__(self, work: Coroutine[Any, Any, None], share: Share) -> None:
        self._work = work
        self._share = share

    def __await__(self) -> Generator[Any, None, None]:
        step: Callable[[Any], Any] = self._work.send
        given: BaseException | None = None
        while True:
            began = clock.monotonic()
            try:
                waits_for = step(given)
            except StopIteration:
                return
            finally:
                self._share.took(clock.monotonic() - began)
            step, given = self._work.send, None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 (the work ends, or goes on, with it)
                step, given = self._work.throw, error
