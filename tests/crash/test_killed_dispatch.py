"""After kills, the next dispatch continues, and no handler runs twice at once."""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from tests.race.support import until

if TYPE_CHECKING:
    from tests.race.support import Box


def kill(pid: int) -> None:
    """Kill a process; one that has just ended is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_the_handler_of_a_killed_supervisor_is_waited_for_and_never_doubled(box: Box) -> None:
    """The orphan goes on; the next dispatch waits for its end, then hands on what is left."""
    box.hang()
    orphan = box.handler_pid()
    kill(box.supervisors()[0])
    until(lambda: not box.held(), "the lock died with its holder")
    for number in range(3):
        box.thread.push("self", "test", str(number))
    waits = f"waits for pid={orphan} of a lost supervisor"
    until(lambda: box.journal(waits), "the next supervisor waits")
    assert box.held()
    assert len(box.trace("start")) == 1
    box.open_gate()
    until(box.all_handled, "all is handled")
    box.settle()
    assert box.trace("overlap") == []


def test_a_killed_handler_is_a_run_without_progress(box: Box) -> None:
    """A handler killed by a signal is started again after the back-off; no event is lost."""
    box.hang()
    kill(box.handler_pid())
    until(lambda: len(box.trace("start")) == 2, "it runs again")
    assert len(box.journal("killed signal=9")) == 1
    assert box.consumer().attempts == 1
    box.open_gate()
    until(box.all_handled, "all is handled")


def test_a_handler_and_its_supervisor_killed_at_once_leave_work_for_the_next(box: Box) -> None:
    """Nothing is left but a lock file that nobody holds; the next dispatch runs the handler."""
    box.hang()
    handler, boss = box.handler_pid(), box.supervisors()[0]
    kill(boss)
    kill(handler)
    box.settle()
    assert os.path.exists(box.thread.layout.consumer("w").lock)
    assert not box.held()
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    until(lambda: len(box.trace("start")) == 2, "it runs again")
    box.open_gate()
    until(box.all_handled, "all is handled")


def test_a_reused_pid_is_not_taken_for_an_orphan(box: Box) -> None:
    """After a reboot, a lock file may name another program's pid: nobody waits for it."""
    box.thread.subscribe("w", box.handler())
    with open(box.thread.layout.consumer("w").lock, "w", encoding="utf-8") as file:
        file.write(f"supervisor 1\nhandler {os.getpid()} 12345\n")
    box.thread.push("self", "test", "x")
    until(box.all_handled, "it is handled")
    assert box.journal("lost supervisor") == []


@pytest.mark.parametrize(
    "note",
    ["", "handler\n", "supervisor x\nhandler x y\n", "\0\0\0", "handler 99999999999999999999 1\n"],
)
def test_rubbish_in_a_lock_file_holds_nobody_up(note: str, box: Box) -> None:
    """What the lock file says is only a hint: the system's lock is what counts."""
    box.thread.subscribe("w", box.handler())
    with open(box.thread.layout.consumer("w").lock, "w", encoding="utf-8") as file:
        file.write(note)
    box.thread.push("self", "test", "x")
    until(box.all_handled, "it is handled")


MANY = [pytest.param(120, seed, marks=pytest.mark.soak) for seed in range(6)]


@pytest.mark.parametrize(("rounds", "seed"), [(15, 5), *MANY])
def test_whoever_is_killed_the_next_dispatch_carries_on(rounds: int, seed: int, box: Box) -> None:
    """Dispatchers, supervisors and handlers die at chosen moments; no event is lost."""
    chance = random.Random(seed)
    box.thread.subscribe("w", box.handler("one"), max_attempts=1000)
    for number in range(rounds):
        for _ in range(chance.randrange(1, 4)):
            box.thread.push("self", "test", str(number))
        wanted = len(box.trace("start")) + chance.randrange(2)
        until(lambda: len(box.trace("start")) >= wanted or box.quiet(), "something runs")  # noqa: B023
        alive = box.alive()
        chance.shuffle(alive)
        for pid in alive[: chance.randrange(1, 4)]:
            kill(pid)
    until(lambda: box.quiet() or box.all_handled(), "what is left ends")
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    until(box.all_handled, "all is handled")
    box.settle()
    assert box.trace("overlap") == []
    got = {int(line.split()[3]) for line in box.trace("got")}
    assert got == set(range(1, box.thread.last_id() + 1))
