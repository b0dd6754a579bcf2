"""From a push to whoever waits for it: a follower in another process, and a handler that has to be started."""

from __future__ import annotations

import json
import os
import random
import shlex
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import eventq
from bench.contestants import KIND, SOURCE, Eventq, Raw
from bench.machine import PYTHON, Child, time_process, worker
from bench.machine import eventq as command
from bench.report import Row, Sample, alone, percentile
from bench.worker import ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

_PATIENCE = 60.0  # seconds until a handler must have run


def run(plan: Plan) -> Iterator[Row]:
    """Measure the follower, its idle cost, then the handler."""
    yield from _following(plan)
    yield from _handler(plan)


# --- a follower -----------------------------------------------------------------------------------


def _following(plan: Plan) -> Iterator[Row]:
    count = plan.size(300, 60)
    with ExitStack() as stack:
        tasks = {}
        for synchronous in ("full", "normal"):
            tasks[synchronous] = _follower(plan, stack, synchronous, count)
            tasks[f"raw {synchronous}"] = _listener(plan, stack, synchronous, count)
        found = plan.take(tasks)
        for synchronous in ("full", "normal"):
            for share, most in ((0.50, 1.0), (0.99, 5.0)):
                mine, raw = (
                    Sample([percentile(taken, share) for taken in found[name]], "ms")
                    for name in (synchronous, f"raw {synchronous}")
                )
                what = f"push to a follower in another process, {synchronous.upper()}, p{share * 100:.0f}"
                yield alone(what, mine, f"{raw} (bare insert and a pipe)", most=most)
        yield _idle(plan, stack)


def _follower(
    plan: Plan, stack: ExitStack, synchronous: str, count: int
) -> Callable[[], list[float]]:
    store = Eventq(plan.place("thread"), synchronous, "none")
    stack.callback(store.close)
    child = stack.enter_context(worker("follow", store.thread.path))
    child.hear()
    return lambda: _latencies(store.send, child, count)


def _listener(
    plan: Plan, stack: ExitStack, synchronous: str, count: int
) -> Callable[[], list[float]]:
    directory = plan.place("raw")
    store = Raw(directory, synchronous)
    stack.callback(store.close)
    child = stack.enter_context(worker("listen", directory, synchronous))
    child.hear()

    def send(content: str) -> None:
        store.send(content)
        child.tell("")

    return lambda: _latencies(send, child, count)


def _latencies(send: Callable[[str], None], child: Child, count: int) -> list[float]:
    for _ in range(count):
        time.sleep(random.uniform(0.002, 0.005))
        send(str(time.monotonic_ns()))
    time.sleep(0.01)
    send(ANSWER)
    return [float(ms) for ms in json.loads(child.hear())]


def _idle(plan: Plan, stack: ExitStack) -> Row:
    """Measure what a follower costs while nothing is pushed."""
    seconds = plan.size(30, 10) / 10
    path = plan.place("thread")
    eventq.open(path, create=True).close()
    child = stack.enter_context(worker("follow", path))
    child.hear()
    time.sleep(1)
    shares = []
    for _ in range(plan.rounds):
        before, start = child.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        after = child.cpu_seconds()
        if before is None or after is None:
            return Row("an idle follower", "not measurable here")
        shares.append((after - before) / (time.monotonic() - start) * 100)
    return alone("an idle follower, of one core", Sample(shares, "%"), most=0.2)


# --- a handler ------------------------------------------------------------------------------------


def _handler(plan: Plan) -> Iterator[Row]:
    path, times, number = plan.place("thread"), plan.place("times"), plan.place("number")
    ack = shlex.join(command("ack", "--thread", path, "--consumer", "worker"))
    code = f"date +%s%N >> {shlex.quote(times)}; {ack} --last-event-id $(cat {shlex.quote(number)})"
    with eventq.open(path, create=True) as thread:
        thread.subscribe("worker", code)
        os.environ["EVENTQ_NOTIFIER"] = "builtin"
        try:
            tasks: dict[str, Callable[[], float]] = {
                "eventq": lambda: _started(thread, times, number),
                "raw": lambda: time_process(
                    [PYTHON, "-c", "import os; os.execvp('sh', ['sh', '-c', 'date +%s%N'])"]
                ),
            }
            found = plan.take(tasks, rounds=plan.size(40, 6))
        finally:
            os.environ["EVENTQ_NOTIFIER"] = "none"
    yield alone(
        "push to its handler started by the built-in notifier, p50",
        Sample(found["eventq"], "ms"),
        f"{Sample(found['raw'], 'ms')} (python, then `sh -c date`)",
        most=120,
    )


def _started(thread: eventq.Thread, times: str, number: str) -> float:
    """Push one event, wait until its handler has run and nobody is left running, and give the ms to the start."""
    wanted = thread.last_id() + 1
    with open(number, "w", encoding="utf-8") as file:
        file.write(str(wanted))
    start = time.time_ns()
    thread.push(SOURCE, KIND, "go")
    deadline = time.monotonic() + _PATIENCE
    while True:
        time.sleep(0.01)
        (consumer,) = thread.status().consumers
        if consumer.last_acked_id == wanted and not consumer.running:
            break
        if time.monotonic() > deadline:
            raise RuntimeError("the handler was not run")
    with open(times, encoding="utf-8") as file:
        lines = file.read().split()
    if len(lines) != wanted:
        raise RuntimeError(f"{len(lines)} runs of the handler for {wanted} events")
    return (int(lines[-1]) - start) / 1e6
