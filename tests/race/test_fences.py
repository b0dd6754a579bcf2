"""Handlers of supervisors that were killed or stopped, beside those of newer ones."""

from __future__ import annotations

import os
import shutil
import signal
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from eventq.running.supervisor import Supervisor
from eventq.system import processes
from eventq.system.locks import ConsumerLock
from tests.race.support import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.race.support import Box

# The first run leaves a process at work, in a session of its own, so that nobody ends it. It acks
# once it may and writes how that ended. Each later run waits at a gate of its own, then acks too.
ACK = """
read go < $1-gate
{eventq} ack --last-event-id 1 2>> errors
echo "${{EVENTQ_FENCE%% *}} $?" > part; mv part "$1"
"""
HANDLER = """
cd {folder}
if mkdir first 2>/dev/null; then
    setsid sh ack.sh old &
    touch worker; wait
else
    touch second; sh ack.sh new
fi
"""


def begin(box: Box) -> None:
    """Start a handler that waits at its gate."""
    for gate in ("old-gate", "new-gate"):
        os.mkfifo(os.path.join(box.folder, gate))
    with open(os.path.join(box.folder, "ack.sh"), "w", encoding="utf-8") as file:
        file.write(ACK.format(eventq=" ".join(map(quote, processes.python()))))
    box.thread.subscribe("w", HANDLER.format(folder=quote(box.folder)))
    box.thread.push("self", "test", "x")
    until(lambda: exists(box, "worker"), "the first handler runs")


def exists(box: Box, name: str) -> bool:
    """Return whether a handler has got so far."""
    return os.path.exists(os.path.join(box.folder, name))


def result(box: Box, which: str) -> str:
    """Let one of the handlers ack; return its fence and the exit status of that."""
    os.close(os.open(os.path.join(box.folder, f"{which}-gate"), os.O_WRONLY))
    until(lambda: exists(box, which), f"the {which} handler has acked")
    with open(os.path.join(box.folder, which), encoding="utf-8") as file:
        return file.read().strip()


def kill(box: Box, supervisor: int) -> None:
    """Kill the supervisor and the shell that it started, whose child lives on."""
    for pid in (supervisor, box.handler_pid()):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not box.held(), "the lock died with its holder")


def stop(box: Box, supervisor: int) -> None:
    """Stop the supervisor, and take its locks away from it."""
    os.kill(supervisor, signal.SIGSTOP)
    for folder in (box.thread.layout.run, box.thread.layout.guards):
        shutil.move(folder, os.path.join(box.folder, f"was-{os.path.basename(folder)}"))


@pytest.mark.parametrize("lose", [kill, stop])
def test_a_handler_of_a_lost_supervisor_moves_nothing(
    box: Box, lose: Callable[[Box, int], None]
) -> None:
    """Its ack is refused with 4 while another handler runs, whose own ack counts."""
    begin(box)
    supervisor = box.supervisors()[0]
    lose(box, supervisor)
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    until(lambda: exists(box, "second"), "another handler runs")
    assert result(box, "old") == "1 4"
    assert box.consumer().last_acked_id == 0
    with open(os.path.join(box.folder, "errors"), encoding="utf-8") as file:
        assert file.read().startswith("Error: a newer supervisor runs consumer 'w' - ")
    assert result(box, "new") == "2 0"
    assert box.consumer().last_acked_id == 1
    if lose is stop:
        os.kill(supervisor, signal.SIGKILL)


def test_a_handler_that_is_waited_for_may_ack(box: Box) -> None:
    """A supervisor whose predecessor was killed starts nothing, so nothing is done twice."""
    begin(box)
    handler = box.handler_pid()
    os.kill(box.supervisors()[0], signal.SIGKILL)
    until(lambda: not box.held(), "the lock died with its holder")
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    waits = f"waits for pid={handler} of a lost supervisor"
    until(lambda: box.journal(waits), "the next supervisor waits")
    assert result(box, "old") == "1 0"
    assert box.consumer().last_acked_id == 1


def test_each_supervisor_has_a_number_of_its_own(box: Box) -> None:
    """All handlers that one starts have the same, in a pool too."""
    trace = os.path.join(box.folder, "fences")
    box.thread.subscribe("w", f'echo "${{EVENTQ_FENCE%% *}}" >> {quote(trace)}', each=True)
    for _ in range(2):
        with box.thread.write():
            box.thread.push("self", "test", "x")
            box.thread.push("self", "test", "y")
        until(box.all_handled, "both are handled")
        box.settle()
    with open(trace, encoding="utf-8") as file:
        assert file.read().split() == ["1", "1", "2", "2"]


def test_a_lock_that_is_taken_again_brings_a_new_number(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have been the supervisor between the release and the next lease."""
    consumers, trace = box.thread.consumers, os.path.join(box.folder, "fences")
    monkeypatch.setenv("EVENTQ_NOTIFIER", "none")
    monkeypatch.setenv("EVENTQ_BACKOFF", "1000")
    box.thread.subscribe("w", f'echo "${{EVENTQ_FENCE%% *}}" >> {quote(trace)}')
    box.thread.push("self", "test", "x")
    lock, release = ConsumerLock.take(box.thread.layout.consumer("w")), ConsumerLock.release
    assert lock is not None
    made = Supervisor(box.thread.layout, consumers, box.thread.journal, {"w": lock})

    def meanwhile(lock: ConsumerLock) -> None:
        release(lock)
        monkeypatch.setattr(ConsumerLock, "release", release)
        consumers.raise_fence("w")
        box.thread.push("self", "test", "y")

    monkeypatch.setattr(ConsumerLock, "release", meanwhile)

    def ran() -> list[str]:
        made.advance()
        with open(trace, encoding="utf-8") as file:
            return file.read().split()

    open(trace, "x").close()
    until(ran, "the first handler runs")
    box.thread.ack("w", 1)
    until(lambda: len(ran()) == 2, "the next one runs")
    box.thread.ack("w", 2)
    until(lambda: not made.advance(), "the supervisor ends")
    assert ran() == ["1", "3"]
