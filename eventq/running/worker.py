"""Workers: Python functions that handle the events of consumers, in threads or in asyncio.

worker = eventq.Worker("./inbox")

@worker.consumer("mailer", filter="type = 'mail'", concurrency=4)
def send(event): ...

worker.run()
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from eventq.errors import (
    DamagedError,
    EventqError,
    LeaseLostError,
    LogicError,
    StoreError,
    UsageError,
)
from eventq.log.claims import milliseconds
from eventq.records.checks import check_name, check_positive
from eventq.store import causing
from eventq.system import clock, environment, processes
from eventq.system.counts import count
from eventq.thread import open_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType
    from typing import Unpack

    from eventq.log.claims import Claim
    from eventq.records.consumer import Terms
    from eventq.store.protocol import Hold
    from eventq.thread import Path, Thread

    Function = Callable[..., Any]

GRACE_SECONDS = 30.0  # for functions to end after SIGTERM
LOOK_SECONDS = 1.0  # between two looks whether to stop
_HOLD_SECONDS = 5.0  # between two notes that it works for its consumers
PAUSE_SECONDS = 1.0  # after an error that may pass; each further one doubles it
_MOST_PAUSE = 60.0
_CHILD_STATUS = 70  # of a process that a function forked and that returned from it
_VARIABLE = "EVENTQ_THREAD"
_T = TypeVar("_T")
_F = TypeVar("_F", bound="Function")  # a decorated function stays what it is
_LOG = logging.getLogger("eventq.worker")


class Retry(Exception):  # noqa: N818 (a request, not an error)
    """Raised by a function: try the event again, after `delay` seconds (None: the back-off).

    It is a failed attempt only with `count`. Raises UsageError for a delay that is no time.
    """

    def __init__(
        self, delay: float | None = None, reason: str | None = None, *, count: bool = False
    ) -> None:
        super().__init__(reason or "")
        if delay is not None:
            milliseconds(delay, "the delay")
        self.delay = delay
        self.reason = None if reason is None else str(reason)
        self.count = count

    __reduce__ = EventqError.__reduce__


class Dead(Exception):  # noqa: N818 (a request, not an error)
    """Raised by a function: give the event up; it becomes a dead letter."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = None if reason is None else str(reason)


@dataclass(frozen=True)
class _Consumer:
    """A function, and how it is called with events."""

    name: str
    function: Function
    concurrency: int
    terms: Terms
    takes_claim: bool
    is_async: bool

    @property
    def lease(self) -> float:
        return self.terms.get("lease", 30.0)

    @property
    def timeout(self) -> float | None:
        return self.terms.get("timeout")

    def call(self, claim: Claim) -> Any:
        """Call the function. What it forked does not come back from it."""
        caller = os.getpid()
        try:
            with claim.during():
                return self._begin(claim)
        finally:
            self.end_child(caller)

    async def await_call(self, claim: Claim) -> None:
        """Await the function, as above."""
        caller = os.getpid()
        try:
            with claim.during():
                await self._begin(claim)
        finally:
            self.end_child(caller)

    def _begin(self, claim: Claim) -> Any:
        return self.function(claim.event, *([claim] if self.takes_claim else []))

    def end_child(self, caller: int) -> None:
        """End this process if it is not the caller, but a copy without its OS threads.

        Only the descriptor of stderr is used: logs may have locks, and open connections.
        """
        if os.getpid() == caller:
            return
        what = f"a function of consumer '{self.name}' forked it, and it returned from that"
        line = f"eventq: process {os.getpid()} is ended: {what}; end it with os._exit there\n"
        with suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
        os._exit(_CHILD_STATUS)

    def late(self) -> TimeoutError:
        """Return the error for a call that has taken too long."""
        return TimeoutError(f"timed out after {count(self.timeout or 0, 'second')}")


class _Running:
    """The claims that functions are at work on: they are extended until the functions end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[Claim, tuple[_Consumer, float]] = {}

    def add(self, claim: Claim, consumer: _Consumer) -> None:
        """Note that a function begins."""
        with self._lock:
            self._since[claim] = consumer, clock.monotonic()

    def remove(self, claim: Claim) -> bool:
        """Note that a function has ended; return False if its claim was settled before."""
        with self._lock:
            return self._since.pop(claim, None) is not None

    def all(self) -> list[tuple[Claim, _Consumer, float]]:
        """Return claims, consumers, and for how many seconds each function has run."""
        now = clock.monotonic()
        with self._lock:
            return [(claim, one, now - since) for claim, (one, since) in self._since.items()]


class Backoff:
    """Attempts at what may fail for a while: the waits in between are doubled, up to a minute."""

    def __init__(self, stopping: threading.Event) -> None:
        """Take what ends the waits."""
        self._stopping = stopping
        self._pause = PAUSE_SECONDS

    def attempt(self, what: str, call: Callable[..., _T], *args: Any) -> _T | None:
        """Call a function; after an error that may pass, log it, wait, and return None.

        Raises an error of eventq that does not pass: one of its users, or damage.
        """
        try:
            result = call(*args)
        except Exception as error:
            is_ours = isinstance(error, EventqError)
            if is_ours and (isinstance(error, DamagedError) or not isinstance(error, StoreError)):
                raise
            _LOG.error("%s: %s", what, _said(error), exc_info=None if is_ours else error)
            self._stopping.wait(self._pause)
            self._pause = min(2 * self._pause, _MOST_PAUSE)
            return None
        self._pause = PAUSE_SECONDS
        return result

    def insist(self, what: str, call: Callable[..., _T], *args: Any) -> _T | None:
        """Attempt a call until it succeeds; return None if the worker stops before."""
        while not self._stopping.is_set():
            if (result := self.attempt(what, call, *args)) is not None:
                return result
        return None


class Worker:
    """Functions that handle the events of one thread's consumers, until `stop` or SIGTERM."""

    def __init__(self, path: Path | None = None, *, grace: float = GRACE_SECONDS) -> None:
        """Take the path of a thread; `run` opens it.

        Without one it is that of `eventq work --thread`, or else of EVENTQ_THREAD.
        After `stop`, functions have `grace` seconds to end; then their events are given back.
        """
        self.path = path
        self.has_run = False  # whether `run` was called, and has opened the thread
        self.signal: int | None = None  # the one that has ended the last run
        self._grace = grace
        self._consumers: list[_Consumer] = []
        self._filters: dict[str, str | None] = {}
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._running = _Running()
        self._failure: BaseException | None = None

    def consumer(
        self,
        name: str,
        *,
        filter: str | None = None,
        **terms: Unpack[Terms],
    ) -> Callable[[_F], _F]:
        """Return a decorator: the function is called with each event of a consumer.

        It may be async. It gets the claim too if it has a second parameter that is called `claim`
        or has no default. When it returns, the event is done; it may raise `Retry` or `Dead`, and
        anything else is a failed attempt. `terms` are those of `Thread.subscribe`: `timeout`,
        `max_attempts`, `backoff`, `lease`, `ordered_by` and others. Up to `concurrency` calls run
        at once (default: 1). A call that takes longer than `timeout` seconds has failed: an async
        one is cancelled, and the result of another one does not count. A process that the function
        forks must not return from it: it is ended, with exit status 70.
        """
        check_name(name, "consumer")
        concurrency = check_positive(terms.pop("concurrency", 1), "concurrency")
        if name in self._filters:
            raise UsageError(f"consumer '{name}' has a function already", "choose another name")
        self._filters[name] = filter

        def add(function: _F) -> _F:
            wants_claim = _takes_claim(function)
            is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
            made = _Consumer(name, function, concurrency, terms, wants_claim, is_async)
            self._consumers.append(made)
            return function

        return add

    def stop(self) -> None:
        """Make `run` return once the running functions have ended."""
        self._stopping.set()

    def _signalled(self, number: int) -> None:
        self.signal = number
        self.stop()

    def run(self) -> None:
        """Handle events until `stop`, SIGTERM, SIGINT or SIGHUP.

        Raises what opening a thread raises, and what ends the work for a consumer: a thread that is
        gone or damaged, a subscription that was ended, or what nobody has foreseen. All else that
        fails is logged, and tried again. Each attempt that does not finish its event is logged too,
        with what follows. The logger is `eventq.worker`; where logging is not set up, it writes to
        stderr, with times, what went wrong.
        """
        path = self.path or environment.env(_VARIABLE)
        if not path:
            raise UsageError(
                f"the worker has no thread, and {_VARIABLE} is not set",
                "give its path, or run 'eventq work --thread PATH MODULE:NAME'",
            )
        if not self._consumers:
            raise UsageError("the worker has no consumer", "decorate a function with it")
        causing.disown()
        self.signal = self._failure = None
        self._stopping.clear()
        self._ended.clear()
        signals = _Signals(self._signalled)
        # The second connection extends claims even while a function keeps the first one.
        with logging_to_stderr(), open_thread(path) as thread, open_thread(path) as other, signals:
            self.has_run = True
            thread.journal.listener = _LOG.warning
            for consumer in self._consumers:
                self._subscribe(thread, consumer)
                many = f", up to {consumer.concurrency} at once" * (consumer.concurrency > 1)
                _LOG.info("works for consumer '%s' of %s%s", consumer.name, thread.path, many)
            renewals = self._start(self._renew, other)  # before anything is claimed
            loops = [
                self._start(loop, thread, consumer)
                for consumer in self._consumers
                for loop in self._loops(consumer)
            ]
            self._stopping.wait()
            _LOG.info("stops once its functions have ended, in %g seconds at most", self._grace)
            self._end([loop for loop in loops if loop is not None])
            if renewals is not None:
                renewals.join()
            _LOG.info("has stopped")
        if self._failure is not None:
            raise self._failure

    def _loops(self, consumer: _Consumer) -> list[Callable[[Thread, _Consumer], None]]:
        """Return what the OS threads of a consumer do: one for each call, or one for a loop."""
        return [self._serve_async] if consumer.is_async else [self._serve] * consumer.concurrency

    def _start(self, loop: Callable[..., None], *args: Any) -> threading.Thread | None:
        """Start an OS thread; return None if the worker stops before the system allows one."""

        def start() -> threading.Thread:
            made = threading.Thread(target=self._guard, args=(loop, *args), daemon=True)
            made.start()
            return made

        return self._backoff().insist("the worker could not start an OS thread", start)

    def _backoff(self) -> Backoff:
        return Backoff(self._stopping)

    def _guard(self, loop: Callable[..., None], *args: Any) -> None:
        """Run a loop; what ends it before its time ends the worker."""
        try:
            loop(*args)
        except BaseException as error:  # noqa: BLE001 (`run` raises it)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop, and have `run` raise an error."""
        if self._failure is None:
            self._failure = error
            if not isinstance(error, EventqError):
                _LOG.error("the worker ends", exc_info=error)
        self.stop()

    def _end(self, loops: list[threading.Thread]) -> None:
        """Wait for the functions that run, then give back the events of those that stay."""
        deadline = clock.monotonic() + self._grace
        for loop in loops:
            loop.join(max(0.0, deadline - clock.monotonic()))
        self._ended.set()
        for claim, _, _ in self._running.all():
            _LOG.warning("%r did not end within %g seconds", claim, self._grace)
            self._settle(claim, claim.retry, 0, count=False)

    def _subscribe(self, thread: Thread, consumer: _Consumer) -> None:
        """Subscribe a consumer, or change its terms; one with a handler is somebody else's."""
        for other in thread.subscriptions():
            if other.consumer_id == consumer.name and other.kind != "pull":
                raise LogicError(
                    f"consumer '{consumer.name}' has a handler: {other.handler_cmd}",
                    "choose another name, or run 'eventq unsubscribe' first",
                )
        where = self._filters[consumer.name]
        thread.subscribe(consumer.name, filter=where, replace=True, **consumer.terms)

    # --- calls ------------------------------------------------------------------------------------

    def _claim(
        self, backoff: Backoff, thread: Thread, consumer: _Consumer, limit: int
    ) -> list[Claim]:
        """Claim events, or return [] after a while, and after an error that may pass."""
        what = f"consumer '{consumer.name}' could not claim"
        how = (consumer.name, limit, consumer.lease, LOOK_SECONDS)
        claims = backoff.attempt(what, thread.claim, *how) or []
        for claim in claims:
            self._running.add(claim, consumer)
        return claims

    def _serve(self, thread: Thread, consumer: _Consumer) -> None:
        """Claim and call, one event after the other."""
        backoff = self._backoff()
        while not self._stopping.is_set():
            for claim in self._claim(backoff, thread, consumer, 1):
                try:
                    _check_result(consumer.call(claim))
                except BaseException as error:  # noqa: BLE001 (whatever a function raises)
                    self._settle_call(claim, error)
                else:
                    self._settle_call(claim)

    def _serve_async(self, thread: Thread, consumer: _Consumer) -> None:
        """Run a loop. Claims, which wait, and settles have an OS thread each.

        The loop's own executor is for the functions, which may fill it with calls that hang.
        """
        backoff = self._backoff()
        what = f"consumer '{consumer.name}' could not start an OS thread"
        with ThreadPoolExecutor(1) as claims, ThreadPoolExecutor(1) as settles:
            # Now: a claim that got no OS thread would stay in the queue, and be made unnoticed.
            if all(backoff.insist(what, one.submit, int) for one in (claims, settles)):
                asyncio.run(self._pump(thread, consumer, claims, settles))

    async def _pump(
        self,
        thread: Thread,
        consumer: _Consumer,
        claims: ThreadPoolExecutor,
        settles: ThreadPoolExecutor,
    ) -> None:
        """Claim and call in tasks, as many at once as may be."""
        loop, backoff, caller = asyncio.get_running_loop(), self._backoff(), os.getpid()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping.is_set():
                if free := consumer.concurrency - len(tasks):
                    take = partial(self._claim, backoff, thread, consumer, free)
                    for claim in await loop.run_in_executor(claims, take):
                        tasks.add(asyncio.create_task(self._await(claim, consumer, settles)))
                else:
                    await asyncio.wait(
                        tasks, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                consumer.end_child(caller)
                for task in [task for task in tasks if task.done()]:
                    tasks.remove(task)
                    task.result()
        except BaseException as error:  # noqa: BLE001 (now: a loop waits for calls when it ends)
            self._fail(error)
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace)

    async def _await(self, claim: Claim, consumer: _Consumer, settles: ThreadPoolExecutor) -> None:
        """Await a call. It runs in this task: in one of its own, an exit would end the loop."""
        limit, failure = asyncio.timeout(consumer.timeout), None
        try:
            async with limit:
                await consumer.await_call(claim)
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._stopping.is_set():
                raise  # its event is given back
            failure = error
        if limit.expired():  # even if the function has caught that it was cancelled
            failure = consumer.late()
        settle = partial(self._settle_call, claim, failure)
        await asyncio.get_running_loop().run_in_executor(settles, settle)

    def _settle_call(self, claim: Claim, error: BaseException | None = None) -> None:
        """Settle a claim as its function has ended: it returned, or raised an error."""
        if error is None:
            self._settle(claim, claim.done)
        elif isinstance(error, Retry):
            self._settle(claim, claim.retry, error.delay, error.reason, count=error.count)
        elif isinstance(error, Dead):
            self._settle(claim, claim.dead, error.reason)
        else:
            _LOG.error("%r failed", claim, exc_info=error)
            self._settle(claim, claim.retry, None, _traceback(error))

    def _settle(self, claim: Claim, verb: Callable[..., None], *args: Any, **named: Any) -> None:
        """Settle a claim, once; an error is logged, and the event comes again.

        A claim that its function has settled is tried too: that may have been undone.
        """
        if not self._running.remove(claim):
            return
        was_settled = claim.is_settled
        try:
            verb(*args, **named)
        except LeaseLostError as error:
            if not was_settled:
                _LOG.warning("%s", error)
        except Exception as error:  # noqa: BLE001 (its lease ends, whatever that was)
            _LOG.error("%r was not settled: %s", claim, _said(error))

    # --- renewals ---------------------------------------------------------------------------------

    def _renew(self, other: Thread) -> None:
        """Extend the claims at a third of their leases; end those whose time is up."""
        presence = _Presence(other, [consumer.name for consumer in self._consumers])
        try:
            self._extend_all(other, presence)
        finally:
            presence.release()

    def _extend_all(self, other: Thread, presence: _Presence) -> None:
        times = [_HOLD_SECONDS, *(consumer.lease / 3 for consumer in self._consumers)]
        times += [(consumer.timeout or 3600) / 10 for consumer in self._consumers]
        extended: dict[Claim, float] = {}
        presence.renew()
        while not self._ended.wait(min(times)):
            presence.renew()
            now = clock.monotonic()
            running = self._running.all()
            extended = {claim: extended.get(claim, now - age) for claim, _, age in running}
            for claim, consumer, age in running:
                if consumer.timeout is not None and age >= consumer.timeout:
                    if not consumer.is_async:
                        self._settle_call(claim, consumer.late())
                elif now - extended[claim] >= consumer.lease / 3:
                    extended[claim] = now
                    _extend(other, claim, consumer.lease)


def _takes_claim(function: Function) -> bool:
    """Return whether a function has a second parameter that is for the claim."""
    places = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return any(one.name == "claim" or one.default is one.empty for one in places[1:2])


def _check_result(result: object) -> None:
    """Raise TypeError for what a function has returned in place of running: nobody would run it."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        what = f"the function returned a {type(result).__name__}, and has done nothing yet"
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"{what}: give the worker the 'async def' itself, without 'yield'")


def _extend(other: Thread, claim: Claim, seconds: float) -> None:
    """Extend a claim, on another connection than the functions have."""
    try:
        other.extend([claim], seconds)
    except Exception as error:  # noqa: BLE001 (the other claims are to be extended)
        _LOG.error("%r was not extended: %s", claim, _said(error))


class _Presence:
    """The notes by which others see that this worker looks after its consumers."""

    def __init__(self, thread: Thread, names: list[str]) -> None:
        """Note nothing yet."""
        self._thread = thread
        self._names = names
        self._holds: dict[str, Hold] = {}
        self._renew_at = 0.0
        self._failing: set[str] = set()  # what was said once is not said again

    def renew(self) -> None:
        """Refresh the notes if it is time; remove those of workers that were killed."""
        if clock.monotonic() < self._renew_at:
            return
        self._renew_at = clock.monotonic() + _HOLD_SECONDS
        for name in self._names:
            try:
                if name in self._holds:
                    self._holds[name].renew()
                else:
                    self._holds[name] = self._thread.database.hold(name)
                self._thread.database.leases().forget_lost(name)
            except (EventqError, OSError) as error:
                if name not in self._failing:
                    self._failing.add(name)
                    _LOG.warning("'eventq info' may not see this worker of '%s': %s", name, error)

    def release(self) -> None:
        """Remove the notes."""
        while self._holds:
            self._holds.popitem()[1].release()


@contextmanager
def logging_to_stderr(level: int = logging.WARNING) -> Iterator[None]:
    """Write workers' logs to stderr, with times, where the program has not set up logging."""
    _LOG.disabled = False  # as `logging.config` leaves loggers that were there before
    if _LOG.hasHandlers():
        yield
        return
    form = logging.Formatter("[%(asctime)s] [%(levelname)s] %(name)s: %(message)s")
    form.default_time_format, form.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    form.converter = time.gmtime
    handler, before = logging.StreamHandler(), _LOG.level
    handler.setFormatter(form)
    _LOG.addHandler(handler)
    _LOG.setLevel(level)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(before)


def _traceback(error: BaseException) -> str:
    """Return a traceback whose last line is the error, also of one with notes, or of a group."""
    text = "".join(traceback.format_exception(error)).rstrip()
    said = str(error).partition("\n")[0]
    last = f"{type(error).__name__}: {said}".removesuffix(": ")
    return text if text.endswith(last) else f"{text}\n{last}"


def _said(error: Exception) -> str:
    """Return an error for a log: those of eventq say all by themselves."""
    return str(error) if isinstance(error, EventqError) else f"{type(error).__name__}: {error}"


class _Signals:
    """What ends a command calls a function, in the main thread; elsewhere it stays as it is."""

    def __init__(self, stop: Callable[[int], None]) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in processes.ends():
                self._before[number] = signal.signal(number, self._stopped)

    def _stopped(self, number: int, _: FrameType | None) -> None:
        self._stop(number)

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
