"""Workers: Python functions as the handlers of consumers."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import DamagedError, LogicError, StoreError, UnknownConsumerError, UsageError
from eventq.running.worker import Backoff
from tests.claiming import leased
from tests.contract.test_consumers import acked
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from eventq.log.claims import Claim

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]
SECONDS = 60.0  # that a test waits for what must come
AT_ONCE = (0.0, 0.0)  # a back-off


class Unusual(BaseException):
    """What some libraries raise to end a call."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers notice soon that they are to stop."""
    monkeypatch.setattr("eventq.running.worker.LOOK_SECONDS", 0.05)


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def running(worker: eventq.Worker) -> Iterator[list[BaseException]]:
    """Run a worker in an OS thread meanwhile; what it raised is in the list at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        worker.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def letters(thread: eventq.Thread) -> list[tuple[int, int, str]]:
    """Return event, attempts and the last line of the error of the dead letters."""
    rows = thread.database.claims.dead(None, ("", 0), 100)
    return [(row.event, row.attempts, (row.error or "-").splitlines()[-1]) for row in rows]


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return how bad is what the worker has logged."""
    return [record.levelname for record in caplog.records if record.name == "eventq.worker"]


def done(thread: eventq.Thread) -> bool:
    """Return whether the consumer has finished all events."""
    subscribed = any(one.consumer_id == "w" for one in thread.subscriptions())
    return subscribed and acked(thread)[0] == thread.last_id()


def test_a_function_gets_each_event(thread: eventq.Thread) -> None:
    """What was stored before and what comes while it waits, in order; a filter is kept."""
    worker, got = eventq.Worker(thread.path), []
    thread.push_many([("self", "note", "one"), ("self", "other", "x"), ("self", "note", "two")])

    @worker.consumer("w", filter="type = 'note'")
    def note(event: eventq.Event) -> None:
        got.append(event.content)

    with running(worker):
        until(lambda: got == ["one", "two"])
        thread.push("self", "note", "three")
        until(lambda: done(thread))
    assert got == ["one", "two", "three"]
    assert note(thread.peek(0).__next__()) is None, "the function is as it was"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_function_raises(
    thread: eventq.Thread, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`Dead` gives the event up, `Retry` is no failure, and anything else is one."""
    worker, got = eventq.Worker(thread.path), []
    thread.push_many(("self", "note", name) for name in ("fine", "dead", "again", "wrong"))

    def handle(event: eventq.Event, claim: Claim) -> None:
        got.append((event.id, claim.attempt))
        if event.content == "dead":
            raise eventq.Dead("no such user")
        if event.content == "again" and got.count((event.id, 1)) < 3:
            raise eventq.Retry(0)
        if event.content == "wrong":
            raise ValueError("what is this")

    async def handle_async(event: eventq.Event, claim: Claim) -> None:
        await asyncio.sleep(0)
        handle(event, claim)

    function: Any = handle if kind == "sync" else handle_async
    worker.consumer("w", max_attempts=2, backoff=AT_ONCE)(function)
    with running(worker):
        until(lambda: done(thread))
    assert sorted(got) == [(1, 1), (2, 1), (3, 1), (3, 1), (3, 1), (4, 1), (4, 2)]
    assert letters(thread) == [(2, 1, "no such user"), (4, 2, "ValueError: what is this")]
    lines = [r.getMessage() for r in caplog.records if r.name == "eventq.worker"]
    assert [line.partition(" event=")[2][:13] for line in lines if " event=" in line] == [
        "2 attempt=1/2", "4 attempt=1/2", "4 attempt=2/2"
    ]  # fmt: skip
    assert len([line for line in lines if line.endswith(" failed")]) == 2


def _noted() -> ValueError:
    error = ValueError("one\ntwo")
    error.add_note("a note")
    return error


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (ValueError("no"), "ValueError: no"),
        (_noted(), "ValueError: one"),
        (
            ExceptionGroup("both", [ValueError("a"), OSError("b")]),
            "ExceptionGroup: both (2 sub-exceptions)",
        ),
        (KeyError(), "KeyError"),
    ],
    ids=["plain", "noted", "group", "empty"],
)
def test_the_last_line_of_an_error_says_what_it_is(
    thread: eventq.Thread, error: Exception, last: str
) -> None:
    """It is what `dead ls` and the line in the journal show."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1)
    def fail(_: eventq.Event) -> None:
        raise error

    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, last)]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_several_at_once(thread: eventq.Thread, kind: str) -> None:
    """As many calls run at once as the concurrency says, and no more."""
    worker, gate = eventq.Worker(thread.path), threading.Event()
    lock, now, most = threading.Lock(), [0], [0]

    def enter(by: int) -> None:
        with lock:
            now[0] += by
            most[0] = max(most[0], now[0])

    def handle(event: eventq.Event) -> None:
        enter(1)
        assert gate.wait(SECONDS)
        enter(-1)

    async def handle_async(event: eventq.Event) -> None:
        enter(1)
        assert await asyncio.to_thread(gate.wait, SECONDS)
        enter(-1)

    function: Any = handle if kind == "sync" else handle_async
    worker.consumer("w", concurrency=3)(function)
    thread.push_many([("self", "note", "x")] * 7)
    with running(worker):
        until(lambda: now[0] == 3)
        gate.set()
        until(lambda: done(thread))
    assert most == [3]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_that_takes_too_long_has_failed(
    thread: eventq.Thread, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An async one is cancelled; the result of another one comes too late to count."""
    worker, gate, ended = eventq.Worker(thread.path), threading.Event(), []

    def handle(event: eventq.Event) -> None:
        gate.wait(SECONDS)
        ended.append("returned")

    async def handle_async(event: eventq.Event) -> None:
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    function: Any = handle if kind == "sync" else handle_async
    worker.consumer("w", timeout=0.2, max_attempts=1)(function)
    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
        gate.set()
        until(lambda: ended)
    assert ended == ["returned" if kind == "sync" else "cancelled"]
    assert letters(thread) == [(1, 1, "TimeoutError: timed out after 0.2 seconds")]
    assert levels(caplog) == ["ERROR", "WARNING"], "it is settled once"


@pytest.mark.engines("sqlite")
def test_a_retry_waits_as_the_function_says(thread: eventq.Thread) -> None:
    """Not for the back-off of the consumer, nor not at all."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", backoff=AT_ONCE)
    def handle(event: eventq.Event) -> None:
        raise eventq.Retry(3600)

    thread.push("self", "note", "x")
    with running(worker):
        waits = "SELECT span_ms FROM unfinished WHERE state = 1"
        until(lambda: sqlite(thread.database).one(waits) == 3_600_000)


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_timeout_of_the_function_itself_is_told_as_it_is(
    thread: eventq.Thread, timeout: float | None
) -> None:
    """It was not the time limit of the call: something that it called has one too."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1, timeout=timeout)
    async def handle(event: eventq.Event) -> None:
        raise TimeoutError("no answer")

    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, "TimeoutError: no answer")]


def test_async_functions_may_end_when_the_worker_stops(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are waited for, as those that run in OS threads."""
    worker, begun = eventq.Worker(thread.path, grace=47), threading.Event()
    gate, real = threading.Event(), asyncio.wait

    async def wait(tasks: Any, **named: Any) -> Any:
        if named["timeout"] == 47:
            gate.set()
        return await real(tasks, **named)

    monkeypatch.setattr(asyncio, "wait", wait)

    @worker.consumer("w", concurrency=2)
    async def handle(event: eventq.Event) -> None:
        begun.set()
        assert await asyncio.to_thread(gate.wait, 5)

    thread.push("self", "note", "x")
    with running(worker):
        assert begun.wait(SECONDS)
    assert acked(thread)[0] == 1


@pytest.mark.parametrize("timeout", [None, 0.2])
def test_calls_that_hang_in_os_threads_keep_no_worker_from_its_own(
    thread: eventq.Thread, timeout: float | None
) -> None:
    """It claims and settles in OS threads of its own, though functions have filled the loop's.

    Nor do they keep it from ending after the grace period.
    """
    worker, gate, got = eventq.Worker(thread.path, grace=0.1), threading.Event(), []

    @worker.consumer("w", concurrency=3, timeout=timeout, max_attempts=1)
    async def handle(event: eventq.Event) -> None:
        got.append(event.id)
        if event.content == "hangs":
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            await asyncio.to_thread(gate.wait)

    thread.push_many([("self", "note", "x"), ("self", "note", "hangs"), ("self", "note", "x")])
    try:
        with running(worker) as errors:
            until(lambda: {*got} == {1, 2, 3})
            thread.push("self", "note", "x")
            until(lambda: 4 in got)
            left = [] if timeout else [2]
            until(lambda: leased(thread.database) == left)
        assert not gate.is_set()
        assert errors == []
        assert [event for event, *_ in letters(thread)] == ([2] if timeout else [])
    finally:
        gate.set()


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("how", ["return", "raise SystemExit(3)"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_forked_child_does_not_go_on_as_the_worker(
    thread: eventq.Thread, kind: str, how: str
) -> None:
    """It is ended where its function returns or raises; the worker settles, and goes on."""
    code = (
        "import os, sys, eventq\n"
        "worker = eventq.Worker(sys.argv[1])\n"
        "@worker.consumer('w')\n"
        f"{kind} handle(event):\n"
        "    if event.id == 2:\n"
        "        worker.stop()\n"
        "    elif child := os.fork():\n"
        "        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
        f"    else: {how}\n"
        "worker.run()\n"
        "print('end')\n"
    )
    thread.push_many([("self", "note", "x")] * 2)
    words = [sys.executable, "-W", "ignore", "-c", code, thread.path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "70\nend\n")
    line = r"eventq: process \d+ is ended: a function of consumer 'w' .*\n"
    assert re.fullmatch(line, done.stderr)
    assert acked(thread)[0] == 2


@pytest.mark.parametrize("place", ["own", "environment"])
def test_a_worker_without_a_path_uses_that_of_the_environment(
    thread: eventq.Thread, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commands do; its own path comes first, and without either it says what to do."""
    monkeypatch.setenv("EVENTQ_THREAD", "/nowhere" if place == "own" else thread.path)
    worker, got = eventq.Worker(thread.path if place == "own" else None), []

    @worker.consumer("w")
    def handle(event: eventq.Event) -> None:
        got.append(event.id)
        worker.stop()

    thread.push("self", "note", "x")
    worker.run()
    assert got == [1]
    monkeypatch.delenv("EVENTQ_THREAD")
    if place == "environment":
        with pytest.raises(UsageError, match="EVENTQ_THREAD is not set"):
            worker.run()


def test_a_call_that_catches_its_cancellation_has_failed(thread: eventq.Thread) -> None:
    """Its time was up, whatever it returns then."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1, timeout=0.05)
    async def handle(event: eventq.Event) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(SECONDS)

    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, "TimeoutError: timed out after 0.05 seconds")]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, Unusual, SystemExit])
@pytest.mark.parametrize("timeout", [None, 60, "not async"])
def test_what_is_no_exception_is_a_failed_attempt_too(
    thread: eventq.Thread, kind: type[BaseException], timeout: Any
) -> None:
    """Otherwise the event would stay leased for as long as the worker runs, or the worker end."""
    worker = eventq.Worker(thread.path)

    def handle(event: eventq.Event) -> None:
        raise kind("no more")

    async def handle_async(event: eventq.Event) -> None:
        handle(event)

    is_async = timeout != "not async"
    terms: Any = {"max_attempts": 1} | ({"timeout": timeout} if is_async else {})
    worker.consumer("w", **terms)(handle_async if is_async else handle)
    thread.push_many([("self", "note", "x")] * 2)
    with running(worker):
        until(lambda: done(thread))
    assert [(event, attempts) for event, attempts, _ in letters(thread)] == [(1, 1), (2, 1)]
    assert all(error.endswith(f"{kind.__name__}: no more") for *_, error in letters(thread))


def hidden(event: eventq.Event) -> object:
    """Return a coroutine, as decorators do that know of no async functions."""

    async def handle() -> None:
        raise AssertionError("nobody awaits it")

    return handle()


def generator(event: eventq.Event) -> Iterator[int]:
    """Do nothing, as a function with a yield does when it is called."""
    yield event.id


async def async_generator(event: eventq.Event) -> AsyncIterator[int]:
    """Do nothing, as above."""
    yield event.id


@pytest.mark.parametrize("function", [hidden, generator, async_generator])
def test_a_function_that_did_not_run_has_not_finished_its_event(
    thread: eventq.Thread, function: Callable[[eventq.Event], object]
) -> None:
    """It returned what somebody would have to run: the event is not lost."""
    worker = eventq.Worker(thread.path)
    worker.consumer("w", max_attempts=1)(function)
    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    ((event, _, error),) = letters(thread)
    assert event == 1
    assert "has done nothing yet" in error


def test_an_object_with_an_async_call_is_awaited(thread: eventq.Thread) -> None:
    """It is as good as an async function."""
    worker, got = eventq.Worker(thread.path), []

    class Handler:
        async def __call__(self, event: eventq.Event) -> None:
            got.append(event.id)

    worker.consumer("w")(Handler())
    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    assert got == [1]


def test_a_reason_may_be_an_exception(thread: eventq.Thread) -> None:
    """As in `except ValueError as error: raise Dead(error)`."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1)
    def handle(event: eventq.Event) -> None:
        reason: Any = ValueError("no such user")
        raise eventq.Dead(reason) if event.id == 1 else eventq.Retry(0, reason, count=True)

    thread.push_many([("self", "note", "x")] * 2)
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, "no such user"), (2, 1, "no such user")]


def test_a_retry_after_no_time_is_a_failed_attempt(thread: eventq.Thread) -> None:
    """The mistake is told at once: nobody waits until the lease has ended."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1)
    def handle(event: eventq.Event) -> None:
        raise eventq.Retry(-1)

    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    ((_, _, error),) = letters(thread)
    assert "the delay must be seconds" in error


def test_an_exit_is_a_failed_attempt(thread: eventq.Thread) -> None:
    """A function may call what ends programs: the worker goes on."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1)
    def handle(event: eventq.Event) -> None:
        sys.exit("no more")

    thread.push_many([("self", "note", "x")] * 2)
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, "SystemExit: no more"), (2, 1, "SystemExit: no more")]


def test_only_a_parameter_for_it_gets_the_claim(thread: eventq.Thread) -> None:
    """That is a second one called `claim`, or without a default: others keep theirs."""
    worker, got = eventq.Worker(thread.path), []

    @worker.consumer("own")
    def own(event: eventq.Event, tries: int = 3) -> None:
        got.append(("own", tries))

    @worker.consumer("named")
    def named(event: eventq.Event, claim: Claim | None = None) -> None:
        got.append(("named", claim.attempt if claim else 0))
        worker.stop()

    thread.push("self", "note", "x")
    while len(got) < 2:
        worker.run()
    assert sorted(got) == [("named", 1), ("own", 3)]


@pytest.mark.parametrize("how", ["done", "settle"])
def test_a_function_may_settle_its_claim_itself(
    thread: eventq.Thread, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """There is nothing left to do for the worker, and nothing to complain of."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", filter="type = 'note'")
    def handle(event: eventq.Event, claim: Claim) -> None:
        if how == "done":
            claim.done()
            return
        with eventq.open(thread.path) as mine, mine.write():
            mine.push("self", "result", event.content)
            assert mine.settle([claim]) == []

    thread.push_many([("self", "note", "x")] * 2)
    with running(worker):
        until(lambda: [one.pending for one in thread.status().consumers] == [0])
    assert levels(caplog) == []


def test_what_a_function_settled_and_undid_is_settled_by_the_worker(
    thread: eventq.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises counts: the change that its claim was settled in was rolled back."""
    worker = eventq.Worker(thread.path)

    @worker.consumer("w", max_attempts=1)
    def handle(event: eventq.Event, claim: Claim) -> None:
        with eventq.open(thread.path) as mine, mine.write():
            mine.settle([claim])
            raise ValueError("no")

    thread.push("self", "note", "x")
    with running(worker):
        until(lambda: done(thread))
    assert letters(thread) == [(1, 1, "ValueError: no")]
    assert levels(caplog) == ["ERROR", "WARNING"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", ["claim", "done"])
@pytest.mark.parametrize(
    "error",
    [
        StoreError("the database is busy", "try again"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        ValueError("unforeseen"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_fails_for_a_while_ends_no_worker(
    thread: eventq.Thread,
    name: str,
    kind: str,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It logs that it could not claim or settle, and goes on; what is not settled comes again."""
    owner = type(thread) if name == "claim" else eventq.Claim
    real, times, got = getattr(owner, name), iter([1]), []
    monkeypatch.setattr("eventq.running.worker.PAUSE_SECONDS", 0.01)

    def call(*args: Any) -> Any:
        if next(times, None):
            raise error
        return real(*args)

    worker = eventq.Worker(thread.path)

    def handle(event: eventq.Event) -> None:
        got.append(event.id)

    async def handle_async(event: eventq.Event) -> None:
        handle(event)

    function: Any = handle if kind == "sync" else handle_async
    worker.consumer("w")(function)
    thread.push_many([("self", "note", "x")] * 2)
    monkeypatch.setattr(owner, name, call)
    with running(worker) as errors:
        until(lambda: len(got) == 2)
    assert (got, errors, levels(caplog)) == ([1, 2], [], ["ERROR"])
    assert str(error) in caplog.text
    assert isinstance(error, StoreError) or type(error).__name__ in caplog.text


@pytest.mark.engines("sqlite")
def test_the_waits_after_errors_are_doubled_up_to_a_minute() -> None:
    """And are as short as at first once it has succeeded."""
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return False

    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    backoff = Backoff(Stopping())
    for _ in range(8):
        backoff.attempt("it failed", fail)
    assert backoff.attempt("it failed", len, "x") == 1
    backoff.attempt("it failed", fail)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_os_thread_that_cannot_be_started_is_tried_again(
    thread: eventq.Thread,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No consumer is left without one, and nothing is claimed that nobody calls."""
    real, got = threading.Thread.start, []
    failing: set[tuple[int, bool]] = set()
    monkeypatch.setattr("eventq.running.worker.PAUSE_SECONDS", 0.01)

    def start(self: threading.Thread) -> None:
        starter = threading.current_thread()
        if starter is not threading.main_thread():  # which starts the worker
            failing.symmetric_difference_update({(starter.ident or 0, self.daemon)})
            if (starter.ident or 0, self.daemon) in failing:
                raise RuntimeError("can't start new thread")
        real(self)

    worker = eventq.Worker(thread.path)

    def handle(event: eventq.Event) -> None:
        got.append(event.id)

    async def handle_async(event: eventq.Event) -> None:
        handle(event)

    function: Any = handle if kind == "sync" else handle_async
    worker.consumer("w", concurrency=2)(function)
    thread.push_many([("self", "note", "x")] * 3)
    monkeypatch.setattr(threading.Thread, "start", start)
    with running(worker) as errors:
        until(lambda: done(thread))
        monkeypatch.undo()
    assert (sorted(got), errors) == ([1, 2, 3], [])
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_ends_one_loop_ends_the_worker(
    thread: eventq.Thread, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` raises it, though another consumer is served: it never returns as if all were well."""
    worker, real = eventq.Worker(thread.path), type(thread).claim

    def call(self: eventq.Thread, consumer: str, *args: Any) -> Any:
        if consumer == "w":
            raise Unusual("no more")
        return real(self, consumer, *args)

    async def handle(event: eventq.Event) -> None:
        raise AssertionError("nothing is claimed")

    function: Any = handle if kind == "async" else print
    worker.consumer("w")(function)
    worker.consumer("v")(print)
    monkeypatch.setattr(type(thread), "claim", call)
    with running(worker) as errors:
        until(lambda: errors)
    assert [type(error) for error in errors] == [Unusual]


@pytest.mark.parametrize("place", ["hangs", "ends"])
def test_what_ends_a_loop_is_raised_though_calls_hang(thread: eventq.Thread, place: str) -> None:
    """After the grace period: what their OS threads do then is nobody's business."""
    worker, gate, begun = eventq.Worker(thread.path, grace=0.1), threading.Event(), []

    @worker.consumer("w", concurrency=2)
    async def handle(event: eventq.Event) -> None:
        begun.append(event.id)
        if place == "hangs":
            await asyncio.to_thread(gate.wait)

    thread.push("self", "note", "x")
    try:
        with running(worker) as errors:
            until(lambda: begun)
            thread.unsubscribe("w")
            until(lambda: errors)
        assert [type(error) for error in errors] == [UnknownConsumerError]
    finally:
        gate.set()


def test_a_thread_that_is_gone_ends_its_worker(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is tried again and again."""
    worker = eventq.Worker(thread.path)
    worker.consumer("w")(print)

    def call(*_: Any) -> None:
        raise DamagedError("the database is damaged", "restore a copy")

    monkeypatch.setattr(type(thread), "claim", call)
    with running(worker) as errors:
        until(lambda: errors)
    assert [type(error) for error in errors] == [DamagedError]


def test_a_claim_is_extended_while_its_function_runs(thread: eventq.Thread) -> None:
    """A function may take longer than the lease, even one that keeps a transaction open."""
    worker, gate, got = eventq.Worker(thread.path), threading.Event(), []

    @worker.consumer("w", lease=1.0)
    def handle(event: eventq.Event) -> None:
        got.append(event.id)
        assert gate.wait(SECONDS)

    thread.push("self", "note", "x")

    def end() -> int:
        return thread.database.claims.out("w", ("", 0), 1)[0].until

    with running(worker):
        until(lambda: got)
        first = end()
        until(lambda: end() > first + 1_000)
        gate.set()
        until(lambda: done(thread))
    assert got == [1]


def test_stopping(thread: eventq.Thread) -> None:
    """Running functions may end; the event of one that does not is given back, uncounted."""
    worker, gate = eventq.Worker(thread.path, grace=0.1), threading.Event()
    begun = threading.Event()

    @worker.consumer("w")
    def handle(event: eventq.Event) -> None:
        begun.set()
        gate.wait(SECONDS)

    thread.push("self", "note", "x")
    with running(worker):
        assert begun.wait(SECONDS)
    try:
        (claim,) = thread.claim("w")
        assert (claim.event.id, claim.attempt) == (1, 1)
    finally:
        gate.set()


def test_sigterm_lets_functions_end(thread: eventq.Thread) -> None:
    """A worker that is told to end finishes what it has begun, and exits with 0."""
    code = (
        "import os, signal, sys, eventq\n"
        "worker = eventq.Worker(sys.argv[1])\n"
        "@worker.consumer('w')\n"
        "def handle(event):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(event.id, flush=True)\n"
        "worker.run()\n"
        "print('end')\n"
    )
    thread.push_many([("self", "note", "x")] * 2)
    done = subprocess.run(
        [sys.executable, "-c", code, thread.path], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "end"
    assert acked(thread)[0] == len(done.stdout.splitlines()) - 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_worker_that_is_killed_loses_nothing(thread: eventq.Thread) -> None:
    """Its event goes to another one when the lease has ended, as a second attempt."""
    code = (
        "import os, sys, eventq\n"
        "worker = eventq.Worker(sys.argv[1])\n"
        "@worker.consumer('w', lease=0.3)\n"
        "def handle(event):\n"
        "    os.kill(os.getpid(), 9)\n"
        "worker.run()\n"
    )
    thread.push("self", "note", "x")
    killed = subprocess.run([sys.executable, "-c", code, thread.path], timeout=120)
    assert killed.returncode == -9
    worker, got = eventq.Worker(thread.path), []

    @worker.consumer("w", lease=0.3)
    def handle(event: eventq.Event, claim: Claim) -> None:
        got.append((event.id, claim.attempt))

    with running(worker):
        until(lambda: done(thread))
    assert got == [(1, 2)]


@pytest.mark.engines("sqlite")
def test_what_is_refused(thread: eventq.Thread) -> None:
    """No function, two for one consumer, a consumer with a handler, and one that goes away."""
    worker = eventq.Worker(thread.path)
    with pytest.raises(UsageError, match="the worker has no consumer"):
        worker.run()
    worker.consumer("w")(print)
    with pytest.raises(UsageError, match="'w' has a function already"):
        worker.consumer("w")
    thread.subscribe("w", "./work.sh", each=True)
    with pytest.raises(LogicError, match=r"'w' has a handler: ./work\.sh"):
        worker.run()
    thread.unsubscribe("w")
    with running(worker) as errors:
        until(thread.subscriptions)
        thread.unsubscribe("w")
        until(lambda: errors)
    assert [type(error) for error in errors] == [UnknownConsumerError]
    assert os.path.exists(thread.path)
