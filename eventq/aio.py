"""The asyncio API: the methods of `Thread`, each run in an OS thread.

It is a thin adapter: the synchronous implementation is the only one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from eventq.errors import ClosedError
from eventq.event import Batch, Event
from eventq.thread import Thread, open_thread

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from eventq.records import Content, Subscription, ThreadInfo

P = ParamSpec("P")
R = TypeVar("R")


class _Left(Exception):  # noqa: N818 (not an error)
    """The last follower has left."""


class AsyncThread:
    """A thread for asyncio; `async with await AsyncThread.open(path) as thread:`."""

    def __init__(self, thread: Thread) -> None:
        """Take ownership of an open thread: `close` closes it."""
        self._thread = thread
        self._executor = ThreadPoolExecutor(1, "eventq")
        self._closed = False

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> AsyncThread:
        """Open the thread at `path`; see `eventq.open`."""
        call = partial(open_thread, path, create=create, read_only=read_only)
        return cls(await asyncio.get_running_loop().run_in_executor(None, call))

    @property
    def path(self) -> str:
        """The absolute path of the thread's directory."""
        return self._thread.path

    async def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._closed:
            raise ClosedError("the thread is closed", "open it again with AsyncThread.open")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    async def push(
        self,
        source: str,
        type: str,
        content: str,
        subtype: str | None = None,
        key: str | None = None,
        *,
        key_strict: bool = False,
    ) -> Event:
        """Store an event; see `Thread.push`."""
        return await self._call(
            self._thread.push, source, type, content, subtype, key, key_strict=key_strict
        )

    async def push_many(
        self,
        events: Iterable[Mapping[str, Any] | Sequence[str | None]],
        *,
        key_strict: bool = False,
    ) -> Batch:
        """Store events in one transaction; see `Thread.push_many`."""
        return await self._call(self._thread.push_many, events, key_strict=key_strict)

    async def peek(
        self, last_event_id: int = 0, *, limit: int = 100, filter: str | None = None
    ) -> list[Event]:
        """Return the matching events after an id; see `Thread.peek`."""
        return await self._call(
            lambda: list(self._thread.peek(last_event_id, limit=limit, filter=filter))
        )

    async def last(self, count: int = 10, *, filter: str | None = None) -> list[Event]:
        """Return the newest matching events; see `Thread.last`."""
        return await self._call(self._thread.last, count, filter=filter)

    async def last_id(self) -> int:
        """Return the id of the newest event."""
        return await self._call(self._thread.last_id)

    async def latest(self, by: str = "source") -> dict[str, Event]:
        """Return the newest event of each source or type."""
        return await self._call(self._thread.latest, by)

    async def subscribe(
        self,
        consumer: str,
        handler: str,
        *,
        filter: str | None = None,
        from_now: bool = False,
        max_attempts: int = 5,
        timeout: float | None = None,  # noqa: ASYNC109 (the handler's, not this call's)
        warn: Callable[[str], object] | None = None,
    ) -> Subscription:
        """Store a subscription; see `Thread.subscribe`."""
        return await self._call(
            self._thread.subscribe,
            consumer,
            handler,
            filter=filter,
            from_now=from_now,
            max_attempts=max_attempts,
            timeout=timeout,
            warn=warn,
        )

    async def unsubscribe(self, consumer: str) -> None:
        """Delete a subscription."""
        await self._call(self._thread.unsubscribe, consumer)

    async def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions."""
        return await self._call(self._thread.subscriptions)

    async def pop(
        self, consumer: str, last_event_id: int, *, limit: int = 100, wait: float = 0
    ) -> list[Event]:
        """Ack and return the next events; see `Thread.pop`. Waiting does not block other calls."""
        events = await self._call(self._thread.pop, consumer, last_event_id, limit=limit)
        if events or wait <= 0:
            return events
        try:
            async with asyncio.timeout(wait):
                return await self._pop_next(consumer, last_event_id, limit)
        except TimeoutError:
            return []

    async def _pop_next(self, consumer: str, acked: int, limit: int) -> list[Event]:
        follower = self._follow(acked, None)
        try:
            async for _ in follower:
                if events := await self._call(self._thread.pop, consumer, acked, limit=limit):
                    return events
        finally:
            await follower.aclose()
        return []

    async def ack(self, consumer: str, last_event_id: int) -> None:
        """Mark all events up to an id as done."""
        await self._call(self._thread.ack, consumer, last_event_id)

    async def resume(self, consumer: str) -> None:
        """End the stall of a consumer."""
        await self._call(self._thread.resume, consumer)

    async def dispatch(self) -> None:
        """Start a detached dispatch."""
        await self._call(self._thread.dispatch)

    async def follow(
        self,
        last_event_id: int | None = None,
        *,
        filter: str | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the matching events after an id, and wait for more; see `Thread.follow`."""
        follower = self._follow(last_event_id, filter)
        try:
            async for rows in follower:
                for row in rows:
                    yield Event._make(row)
        finally:
            await follower.aclose()

    async def _follow(self, after: int | None, filter: str | None) -> Any:
        """Yield pages from a separate OS thread, which ends within a second of the last reader."""
        left = False

        def tick() -> None:
            if left:
                raise _Left

        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, "eventq-follow")
        pages = await self._call(self._thread.follow_pages, after, filter, tick=tick)
        try:
            while True:
                yield await loop.run_in_executor(executor, next, pages)
        finally:
            left = True
            executor.shutdown(wait=False)

    async def read(self, url: str, offset: int | None = None, limit: int | None = None) -> Content:
        """Read what a URL names; see `Thread.read`."""
        return await self._call(self._thread.read, url, offset, limit)

    async def info(self) -> ThreadInfo:
        """Return counts, sizes, and the status of each consumer."""
        return await self._call(self._thread.info)

    async def check(self) -> list[str]:
        """Check all invariants; return one sentence per broken one."""
        return await self._call(self._thread.check)

    async def prune(
        self, *, keep_last: int | None = None, before_id: int | None = None, force: bool = False
    ) -> int:
        """Delete old events; see `Thread.prune`."""
        return await self._call(
            self._thread.prune, keep_last=keep_last, before_id=before_id, force=force
        )

    async def run(self, call: Callable[[Thread], R]) -> R:
        """Return `call(thread)`: for `blobs`, `contexts`, `artifacts`, `gc`, whole transactions.

        `await thread.run(lambda t: t.contexts.get("main").append("hello"))`. Consume iterators
        inside `call`.
        """
        return await self._call(call, self._thread)

    async def close(self) -> None:
        """Close the thread after the running call has ended."""
        if not self._closed:
            await self._call(self._thread.close)
            self._closed = True
            self._executor.shutdown(wait=False)

    async def __aenter__(self) -> AsyncThread:
        """Return the thread."""
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the thread."""
        await self.close()
