"""A consumer whose supervisor was killed: whatever is pushed next, its events are handled."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from eventq.log.notifier import Notifier
from eventq.system import locks
from eventq.system.locks import ConsumerLock
from tests.race.support import until

if TYPE_CHECKING:
    from tests.race.support import Box


def kill_all(box: Box, *consumers: str) -> None:
    """Kill the supervisor and the handlers of some consumers."""
    pids = {*box.supervisors(), *(box.handler_pid(name) for name in consumers)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(box.held, consumers)), "the locks died with their holders")
    box.settle()


def open_gate(box: Box) -> None:
    """Let the handlers that hang go on, also those that are still to come."""
    path = os.path.join(box.folder, "gate")
    os.rename(path, path + "-was")
    with open(path, "w", encoding="utf-8") as file:
        file.write("!")


def hang(box: Box, *consumers: str) -> None:
    """Make a handler of each consumer hang with an event of type `m`."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    for name in consumers:
        box.thread.subscribe(name, box.handler("hang"), filter="type = 'm'")
    box.thread.push("self", "m", "x")
    until(
        lambda: {line.split()[0] for line in box.trace("start")} == {*consumers},
        "the handlers run",
    )


def test_a_push_of_another_type_wakes_a_consumer_that_lost_its_supervisor(box: Box) -> None:
    """An event of a consumer whose supervisor died is handled after any other push."""
    hang(box, "w")
    kill_all(box, "w")
    open_gate(box)
    box.thread.push("self", "other", "y")
    until(lambda: box.trace("end"), "the event is handled")
    box.settle()
    assert [line.split()[2:] for line in box.trace("got")] == [["got", "1"]]


def test_all_that_a_supervisor_looked_after_are_woken(box: Box) -> None:
    """Lost supervisors are detected by the command line too; unneeded guards are removed."""
    hang(box, "v", "w")
    box.thread.subscribe("idle", box.handler(), filter="type = 'never'")
    kill_all(box, "v", "w")
    open_gate(box)
    box.thread.ack("v", 1)
    box.push()  # of another type
    until(lambda: len(box.trace("end")) == 1, "the event is handled")
    box.settle()
    assert [line.split()[0] for line in box.trace("end")] == ["w"]
    assert locks.guards(box.thread.layout.guards) == []


def test_a_handler_that_outlived_its_supervisor_is_waited_for(box: Box) -> None:
    """A push of another type gives the consumer a supervisor again, which waits for the handler."""
    hang(box, "w")
    orphan = box.handler_pid()
    os.kill(box.supervisors()[0], signal.SIGKILL)
    until(lambda: not box.held(), "the lock died with its holder")
    box.thread.push("self", "other", "y")
    waits = f"waits for pid={orphan} of a lost supervisor"
    until(lambda: box.journal(waits), "the next supervisor waits")
    assert len(box.trace("start")) == 1
    box.open_gate()
    until(lambda: box.trace("end"), "the handler goes on")
    box.settle()
    assert len(box.trace("start")) == 1


def test_a_dispatch_that_is_killed_with_a_lock_leaves_a_name(box: Box) -> None:
    """A guard names the holder from the moment a lock is taken, so its death is noticed."""
    lock = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert lock is not None
    assert locks.guards(box.thread.layout.guards) == ["w"]
    assert not locks.lost(box.thread.layout.consumer("w"))
    lock.close()
    assert locks.lost(box.thread.layout.consumer("w"))


def test_a_released_lock_is_lost_until_the_last_look(box: Box) -> None:
    """Whoever is killed between the release and the last look has left work behind, perhaps."""
    lock = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert lock is not None
    lock.release()
    assert locks.lost(box.thread.layout.consumer("w"))
    lock.forget()
    assert not locks.lost(box.thread.layout.consumer("w"))


def test_forgetting_leaves_the_next_holder_alone(box: Box) -> None:
    """A lock that somebody else has taken since goes on naming him."""
    first = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert first is not None
    first.release()
    second = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert second is not None
    first.forget()
    assert locks.held(box.thread.layout.consumer("w"))
    assert locks.guards(box.thread.layout.guards) == ["w"]
    second.release()
    second.forget()
    assert locks.guards(box.thread.layout.guards) == []


def test_nothing_is_started_for_a_consumer_that_is_well(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last supervisor ended normally or still runs, other pushes start no dispatch."""
    box.thread.subscribe("w", box.handler(), filter="type = 'm'")
    box.thread.push("self", "m", "x")
    until(box.all_handled, "it is handled")
    box.settle()
    started: list[str] = []
    monkeypatch.setattr(Notifier, "start", lambda _: started.append("dispatch"))
    box.thread.push("self", "other", "y")
    lock = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert lock is not None
    box.thread.push("self", "other", "y")
    assert started == []
    lock.close()
    box.thread.push("self", "other", "y")
    assert len(started) == 1
