"""The asyncio API: the methods of `Thread`, each run in an OS thread.

It is a thin adapter: the synchronous implementation is the only one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from eventq.errors import ClosedError, EventqError
from eventq.log.events import stale_at
from eventq.records.event import Batch, Event
from eventq.store.causing import During
from eventq.system import clock
from eventq.thread import Thread, open_thread

if TYPE_CHECKING:
    import os
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from types import TracebackType

    from eventq.log.claims import Claim
    from eventq.records.question import Question
    from eventq.records.rows import Rows, Values
    from eventq.records.run import RunChange

P = ParamSpec("P")
R = TypeVar("R")


_WAIT_SECONDS = 1.0  # of one look for events to claim: a claim that was cancelled ends after it


class _Left(Exception):  # noqa: N818 (not an error)
    """The last follower has left."""


def _passed(
    method: Callable[Concatenate[Thread, P], R],
) -> Callable[Concatenate[AsyncThread, P], Coroutine[Any, Any, R]]:
    """Return a method of `Thread` as one of `AsyncThread`, with its parameters and docstring."""

    async def call(self: AsyncThread, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._call(method, self._thread, *args, **kwargs)

    return update_wrapper(call, method)


def _listed(
    method: Callable[Concatenate[Thread, P], Iterator[R]],
) -> Callable[Concatenate[AsyncThread, P], Coroutine[Any, Any, list[R]]]:
    """Do the same with one that yields: here it returns a list."""

    async def call(self: AsyncThread, /, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return await self._call(lambda: [*method(self._thread, *args, **kwargs)])

    return update_wrapper(call, method)


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

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the thread is closed", "open it again with AsyncThread.open")

    async def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_open()
        loop = asyncio.get_running_loop()
        call = partial(copy_context().run, function, *args, **kwargs)  # it knows what causes it
        return await loop.run_in_executor(self._executor, call)

    # Methods of `Thread` that only pass on, each run in the OS thread of this one.
    push = _passed(Thread.push)
    last = _passed(Thread.last)
    last_id = _passed(Thread.last_id)
    latest = _passed(Thread.latest)
    caused_by = _passed(Thread.caused_by)
    causes_of = _passed(Thread.causes_of)
    usage = _passed(Thread.usage)
    usage_of_runs = _passed(Thread.usage_of_runs)
    usage_of_sessions = _passed(Thread.usage_of_sessions)
    usage_by_hour = _passed(Thread.usage_by_hour)
    recover = _passed(Thread.recover)
    subscribe = _passed(Thread.subscribe)
    unsubscribe = _passed(Thread.unsubscribe)
    subscriptions = _passed(Thread.subscriptions)
    ack = _passed(Thread.ack)
    settle = _passed(Thread.settle)
    extend = _passed(Thread.extend)
    questions = _passed(Thread.questions)
    answer = _passed(Thread.answer)
    retry_dead = _passed(Thread.retry_dead)
    drop_dead = _passed(Thread.drop_dead)
    pause = _passed(Thread.pause)
    resume = _passed(Thread.resume)
    dispatch = _passed(Thread.dispatch)
    read = _passed(Thread.read)
    status = _passed(Thread.status)
    warnings = _passed(Thread.warnings)
    check = _passed(Thread.check)
    prune = _passed(Thread.prune)
    prunable = _passed(Thread.prunable)
    peek = _listed(Thread.peek)
    claims = _listed(Thread.claims)
    dead_letters = _listed(Thread.dead_letters)

    async def push_many(
        self,
        events: Iterable[Mapping[str, Any] | Sequence[str | None]],
        *,
        key_strict: bool = False,
    ) -> Batch:
        """Store events in one transaction; see `Thread.push_many`.

        An iterator is read in another OS thread: a slow one does not block other calls.
        """
        push = partial(self._thread.push_many, events, key_strict=key_strict)
        if isinstance(events, (list, tuple)):
            return await self._call(push)
        self._check_open()
        executor = ThreadPoolExecutor(1, "eventq-push")
        try:
            return await asyncio.get_running_loop().run_in_executor(
                executor, copy_context().run, push
            )
        finally:
            executor.shutdown(wait=False)

    def during(self, *events: int) -> During:
        """Return a context manager for a task; see `Thread.during`."""
        return self._thread.during(*events)

    async def pop(
        self,
        consumer: str,
        last_event_id: int | None = None,
        *,
        limit: int = 100,
        wait: float = 0,
        replay: bool = False,
    ) -> list[Event]:
        """Ack and return the next events; see `Thread.pop`. Waiting does not block other calls."""
        after = await self._call(self._thread.last_id) if wait > 0 else 0
        pop = partial(self._thread.pop, consumer, limit=limit, replay=replay)
        events = await self._call(pop, last_event_id)
        if events or wait <= 0:
            return events
        try:
            async with asyncio.timeout(wait):
                return await self._pop_next(pop, after)
        except TimeoutError:
            return []

    async def _pop_next(self, pop: Callable[[], list[Event]], after: int) -> list[Event]:
        """Read on after each event that is stored after an id, until one matches."""
        follower = self._follow(after, None)
        try:
            async for _ in follower:
                if events := await self._call(pop):
                    return events
        finally:
            await follower.aclose()
        return []

    async def consume(
        self,
        consumer: str,
        *,
        filter: str | None = None,
        ack_every: int = 1,
        wait: float | None = None,
        idle: float | None = None,
        from_now: bool = False,
    ) -> AsyncIterator[Event]:
        """Yield the events of `consumer` one by one, and wait for more; see `Thread.consume`.

        An event is acked when the loop comes back for the next one. Leave the loop through
        `contextlib.aclosing`, or the consumer is in use until Python has closed the iterator.
        """
        left = False

        def tick() -> None:
            if left:
                raise _Left

        reader = await self._call(
            self._thread.reader,
            consumer,
            filter=filter,
            ack_every=ack_every,
            from_now=from_now,
            tick=tick,
        )
        events: Any = reader.events(wait, idle)
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, "eventq-consume")
        try:
            while (event := await loop.run_in_executor(executor, next, events, None)) is not None:
                with During(self._thread.database.place, (event.id,)):
                    yield event
        finally:
            left = True
            closed = executor.submit(events.close)  # after `next`, if that is still waiting
            executor.shutdown(wait=False)
            await asyncio.wrap_future(closed)

    async def claim(
        self,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float | None = 0,
        nonce: str | None = None,
        *,
        worker: str | None = None,
    ) -> list[Claim]:
        """Lease the next events to this worker; see `Thread.claim`.

        Waiting does not block other calls. When the task is cancelled, what was claimed for it is
        given back. Settle the claims with `settle`, which reports those that were lost; the methods
        of a claim would block the loop.
        """
        claim = partial(self._thread.claim, consumer, limit, lease, nonce=nonce, worker=worker)
        found = await self._claim(self._executor, partial(claim, 0))
        if found or wait == 0:
            return found
        deadline = float("inf") if wait is None else clock.monotonic() + wait
        executor = ThreadPoolExecutor(1, "eventq-claim")
        try:
            while not found and (left := deadline - clock.monotonic()) > 0:
                look = partial(claim, min(left, _WAIT_SECONDS))
                found = await self._claim(executor, look)
        finally:
            executor.shutdown(wait=False)
        return found

    async def _claim(
        self, executor: ThreadPoolExecutor, claim: Callable[[], list[Claim]]
    ) -> list[Claim]:
        """Claim in an OS thread; give the claims back if nobody waits for them any more."""
        self._check_open()
        job = executor.submit(claim)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            job.add_done_callback(_give_back)
            raise

    async def ask(  # noqa: PLR0913 (each is a part of a question)
        self,
        text: str,
        options: Sequence[str] = (),
        *,
        approval: bool = False,
        by_person: bool = False,
        source: str = "self",
        key: str | None = None,
        context: str | None = None,
        run: int | None = None,
        wait: float | None = 0,
    ) -> Question:
        """Ask something; see `Thread.ask`. Waiting does not block other calls."""
        ask = partial(
            self._thread.ask, text, options, approval=approval, by_person=by_person, source=source,
            key=key, context=context, run=run,
        )  # fmt: skip
        return await self.question((await self._call(ask)).question_id, wait=wait)

    async def question(self, question_id: int, *, wait: float | None = 0) -> Question:
        """Return a question, once it is answered or after a time; see `Thread.question`."""
        look = partial(self._thread.question, question_id)
        found = await self._call(look)
        if found.answer is not None or wait == 0:
            return found
        deadline = float("inf") if wait is None else clock.monotonic() + wait
        executor = ThreadPoolExecutor(1, "eventq-question")
        try:
            while found.answer is None and (left := deadline - clock.monotonic()) > 0:
                job = partial(look, wait=min(left, _WAIT_SECONDS))
                found = await asyncio.get_running_loop().run_in_executor(executor, job)
        finally:
            executor.shutdown(wait=False)
        return found

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
                until = stale_at(self._thread.database)
                for row in rows:
                    event: Event | None = Event._make(row)
                    if clock.monotonic() >= until:
                        event = await self._call(self._thread.database.events.get, row[0])
                    if event is not None:
                        yield event
        finally:
            await follower.aclose()

    async def watch_runs(self, group: str | None = None) -> AsyncIterator[RunChange]:
        """Yield what runs are under way, then each that has changed; see `Runs.watch`."""
        watcher = self._pages(lambda tick: self._thread.runs.watch_pages(group, tick=tick))
        try:
            async for page in watcher:
                for change in page:
                    yield change
        finally:
            await watcher.aclose()

    def _follow(self, after: int | None, filter: str | None) -> Any:
        """Yield the pages of `Thread.follow_pages`."""
        return self._pages(lambda tick: self._thread.follow_pages(after, filter, tick=tick))

    async def _pages(self, begin: Callable[[Callable[[], None]], Iterator[Sequence[Any]]]) -> Any:
        """Yield pages from a separate OS thread, which ends within a second of the last reader."""
        left = False

        def tick() -> None:
            if left:
                raise _Left

        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, "eventq-follow")
        pages = await self._call(begin, tick)
        try:
            while True:
                yield await loop.run_in_executor(executor, next, pages)
        finally:
            left = True
            executor.shutdown(wait=False)

    async def sql(
        self,
        text: str = "",
        values: Values = (),
        *,
        limit: int | None = None,
        timeout: float = 30,  # noqa: ASYNC109 (it ends the statement, not only the wait)
    ) -> Rows:
        """Run one SELECT; see `Thread.sql`. It does not block other calls."""
        self._check_open()
        call = partial(self._thread.sql, text, values, limit=limit, timeout=timeout)
        return await asyncio.get_running_loop().run_in_executor(None, call)

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


def _give_back(job: Future[list[Claim]]) -> None:
    """Return what was claimed to the queue: the task that asked for it was cancelled."""
    try:
        for claim in [] if job.cancelled() else job.result():
            claim.retry(0, count=False)
    except EventqError:
        pass  # then the leases end by themselves
