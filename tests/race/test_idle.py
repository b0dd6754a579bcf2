"""Consumers for which a dispatch would do nothing: no process is started until one could.

A push looks at each consumer before it starts a dispatch. These states make a dispatch useless:

- no consumer, or all have acked the event: `test_processes`;
- no handler, a pause, a stall (of a handler that pops, or at an event of `--each`), a filter that
  matches nothing new, a supervisor, a worker: IDLE, below;
- a filter that is refused, of a consumer that has no handler or is paused: it stalls when it can be
  run. In a consumer that may run, the dispatch stalls it at once: that is work.

These look alike and need the dispatch: a lost supervisor or worker (`test_lost_supervisors`), a
filter that takes long, a group that has stopped (the new event is examined, and parked), and an
event that another worker has claimed before the look, as nobody else waits for the end of its
lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eventq.log import notifier
from eventq.system import processes
from eventq.system.locks import ConsumerLock, Hold
from tests.engines import sqlite
from tests.race.support import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.race.support import Box

ONCE = "exit 0"  # a handler of `--each`


class Wakes:
    """The dispatches that this process starts: counted, and really started."""

    def __init__(self, box: Box) -> None:
        self.count = 0
        self._spawn = processes.spawn
        box.patch.setattr(processes, "spawn", self._counted)

    def _counted(self, argv: list[str], **options: Any) -> int:
        self.count += notifier.QUEUE_FD in options.get("environ", {})
        return self._spawn(argv, **options)


def no_handler(box: Box) -> Callable[[], object]:
    """It is for programs that claim or pop."""
    box.thread.subscribe("w")
    return lambda: box.thread.subscribe("w", box.handler(), replace=True)


def no_handler_but_failures(box: Box) -> Callable[[], object]:
    """It is for programs, and an event waits for another attempt."""
    box.thread.subscribe("w", backoff=(0, 0))
    box.thread.push("self", "test", "fails")
    box.thread.claim("w")[0].retry()
    return lambda: box.thread.subscribe("w", ONCE, each=True, replace=True)


def paused(box: Box) -> Callable[[], object]:
    """It is paused, and pops."""
    box.thread.subscribe("w", box.handler())
    box.thread.pause("w")
    return lambda: box.thread.resume("w")


def paused_each(box: Box) -> Callable[[], object]:
    """It is paused, and is run for each event."""
    box.thread.subscribe("w", ONCE, each=True)
    box.thread.pause("w")
    return lambda: box.thread.resume("w")


def stalled(box: Box) -> Callable[[], object]:
    """It has stalled."""
    box.thread.subscribe("w", box.handler())
    box.thread.consumers.stall(box.thread.consumers.known("w"), "a test")
    return lambda: box.thread.resume("w")


def stalled_until_an_ack(box: Box) -> Callable[[], object]:
    """It has stalled, which an ack ends too."""
    stalled(box)
    return lambda: box.thread.ack("w", 1)


def halted(box: Box) -> Callable[[], object]:
    """It is run for each event, and stopped at one that failed."""
    box.thread.subscribe("w", ONCE, each=True, max_attempts=1)
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.push("self", "test", "fails")
    box.patch.setenv("EVENTQ_NOTIFIER", "builtin")
    box.thread.claim("w")[0].retry()
    return lambda: box.thread.resume("w")


def halted_until_an_ack(box: Box) -> Callable[[], object]:
    """It stopped at an event, which somebody then acks by hand."""
    halted(box)
    return lambda: box.thread.ack("w", 1)


def halted_until_a_replay(box: Box) -> Callable[[], object]:
    """It stopped at an event, and somebody goes back to the begin."""
    halted(box)
    return lambda: box.thread.ack("w", 0, replay=True)


def no_match(box: Box) -> Callable[[], object]:
    """Its filter matches none of the events."""
    box.thread.subscribe("w", box.handler(), filter="type = 'other'")
    return lambda: box.thread.push("self", "other", "matches")


def supervised(box: Box) -> Callable[[], object]:
    """A supervisor has it."""
    box.thread.subscribe("w", box.handler())
    lock = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert lock is not None

    def end() -> None:
        lock.release()
        lock.forget()
        box.thread.push("self", "test", "nobody holds it now")

    return end


def worked(box: Box) -> Callable[[], object]:
    """A worker has it."""
    box.thread.subscribe("w", box.handler())
    hold = Hold(box.path, "w")

    def end() -> None:
        hold.release()
        box.thread.push("self", "test", "nobody works for it now")

    return end


# What makes a consumer idle; each returns what ends that.
IDLE = [
    no_handler, no_handler_but_failures, paused, paused_each, stalled, stalled_until_an_ack, halted,
    halted_until_an_ack, halted_until_a_replay, no_match, supervised, worked,
]  # fmt: skip


@pytest.mark.parametrize(
    ("idle", "external"),
    [*((one, None) for one in IDLE), *((one, "/no/such/notifier") for one in IDLE[::5])],
)
def test_a_push_starts_a_dispatch_only_once_it_has_something_to_do(
    idle: Callable[[Box], Callable[[], object]], external: str | None, box: Box
) -> None:
    """None is started by pushes while a consumer is idle, and one by what ends that.

    So it is when the external notifier fails, and the built-in one takes its place.
    """
    wakes = Wakes(box)
    end = idle(box)
    if external is not None:
        box.patch.setenv("EVENTQ_NOTIFIER", external)
    box.thread.push("self", "test", "x")
    box.thread.push_many([("self", "test", "y")] * 2)
    assert wakes.count == 0
    end()
    assert wakes.count == 1
    until(box.all_handled, "all is handled")


@pytest.mark.parametrize("idle", [no_handler, paused])
def test_a_change_starts_a_dispatch_only_for_a_handler_that_may_run(
    idle: Callable[[Box], Callable[[], object]], box: Box
) -> None:
    """A subscription, a replay, a retry of a dead letter or a `resume` starts none without one."""
    wakes = Wakes(box)
    if idle is no_handler:
        box.thread.push_many([("self", "test", "before")] * 3)
    end = idle(box)
    box.thread.push_many([("self", "test", "x")] * 3)
    box.thread.ack("w", 2)
    box.thread.ack("w", 0, replay=True)
    if idle is no_handler:
        box.thread.claim("w")[0].dead("a test")
        box.thread.retry_dead(None)
        box.thread.resume("w")
    assert wakes.count == 0
    end()
    until(box.all_handled, "all is handled")
    assert wakes.count == 1


@pytest.mark.parametrize("rest", ["subscribe", "pause"])
def test_a_refused_filter_of_an_idle_consumer_starts_nothing(rest: str, box: Box) -> None:
    """Somebody else stored it; it stalls its consumer once a handler might run."""
    wakes = Wakes(box)
    box.thread.subscribe("w", box.handler() if rest == "pause" else None)
    if rest == "pause":
        box.thread.pause("w")
    with box.thread.write():
        sqlite(box.thread.database).run("UPDATE subscriptions SET filter = 'no_such_column'", ())
    box.thread.push("self", "test", "x")
    assert wakes.count == 0
    if rest == "pause":
        box.thread.resume("w")
        assert box.consumer().stalled is not None
    box.thread.unsubscribe("w")
