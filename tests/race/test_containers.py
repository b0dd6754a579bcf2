"""Long commands as the first process of a container, and in a terminal that closes.

Members of the kind: `work`, `work MODULE:NAME`, `serve` by both protocols, `ui` and `mirror follow`
as PID 1; SIGTERM, SIGINT, SIGHUP and signals of users passed on; the exit status of the child; and
SIGHUP to each long command, once, twice, and ignored as `nohup` has it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from eventq.system import processes
from tests.race.support import DEADLINE, Box, until

if TYPE_CHECKING:
    from collections.abc import Iterator

_PID_1 = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
CAN = sys.platform == "linux" and not subprocess.run([*_PID_1, "true"], check=False).returncode


class Command:
    """A command that runs, perhaps as PID 1."""

    def __init__(self, *words: str, first: bool = False, ready: str = "") -> None:
        command = [*_PID_1 * first, *processes.python(*words)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        while ready not in "".join(self.said):
            assert self.process.stderr is not None
            self.said.append(self.process.stderr.readline())
            assert self.said[-1], self.said
        self.pid = children(self.process.pid)[0] if first else self.process.pid

    def end(self, *numbers: int) -> int:
        """Send signals, and return the exit status."""
        for number in numbers:
            os.kill(self.pid, number)
        self.process.communicate(timeout=DEADLINE)
        return self.process.returncode


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def zombies(pid: int) -> list[int]:
    """Return the descendants of a process that have ended, and that nobody has reaped."""

    def below(of: int) -> Iterator[int]:
        for child in children(of):
            yield child
            yield from below(child)

    return [one for one in below(pid) if processes.birth(one) is None]


@pytest.mark.skipif(not CAN, reason="this machine makes no pid namespace")
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.soak)],
)
def test_work_as_the_first_process(box: Box, number: int) -> None:
    """As PID 1 `work` leaves no zombie of what its handlers leave, and hears signals."""
    box.thread.subscribe("w", "(exit 0) & (sleep 0.01 &) ; exit 0", each=True)
    command = Command("work", "--thread", box.path, first=True, ready="works for")
    for _ in range(10):
        box.push()
    until(box.all_handled, "all are handled")
    until(lambda: not zombies(command.pid), "zombies are reaped")
    assert command.end(number) == (130 if number == signal.SIGINT else 0)


@pytest.mark.skipif(not CAN, reason="this machine makes no pid namespace")
@pytest.mark.parametrize("protocol", ["--http", "--listen"])
def test_serve_as_the_first_process(box: Box, protocol: str) -> None:
    """As PID 1 `serve` leaves no zombie of the dispatches that it starts."""
    box.thread.subscribe("w", "(exit 0) & (sleep 0.01 &) ; exit 0", each=True)
    more = ["--insecure-local", "--write"] if protocol == "--http" else []
    words = ["serve", protocol, "127.0.0.1:0", *more, "--thread", box.path]
    command = Command(*words, first=True, ready="listening on")
    if protocol == "--http":
        place = command.said[-1].split()[-1]
        body = json.dumps({"source": "a", "type": "b", "content": "c"}).encode()
        head = {"content-type": "application/json"}
        name = os.path.basename(box.path)
        for _ in range(10):
            request = urllib.request.Request(f"{place}/api/threads/{name}/events", body, head)
            with urllib.request.urlopen(request, timeout=DEADLINE):
                pass
        until(box.all_handled, "all are handled")
    until(lambda: not zombies(command.pid), "zombies are reaped")
    assert command.end(signal.SIGTERM) == 0


@pytest.mark.skipif(not CAN, reason="this machine makes no pid namespace")
def test_a_killed_child_of_the_first_process() -> None:
    """PID 1 ends as the program that it stands for: 128 and the signal, if that was killed."""
    code = (
        "import os, signal; from eventq.system import processes; processes.serve_long()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([*_PID_1, sys.executable, "-c", code], check=False, timeout=DEADLINE)
    assert done.returncode == 128 + signal.SIGKILL


def test_a_terminal_that_closes(box: Box) -> None:
    """SIGHUP, even two of them, ends `work` as SIGTERM does: no attempt is used up."""
    gate, begun = (os.path.join(box.folder, name) for name in ("gate", "begun"))
    os.mkfifo(gate)
    box.thread.subscribe("w", f"touch {begun}; exec cat {gate}", each=True)
    command = Command("work", "--thread", box.path, "--grace", "60", ready="works for")
    box.push()
    until(lambda: os.path.exists(begun), "the handler runs")
    for number in (signal.SIGHUP, signal.SIGHUP):
        os.kill(command.pid, number)
    assert command.process.stderr is not None
    while "waits up to" not in command.process.stderr.readline():
        pass
    box.open_gate()
    assert command.end() == 0
    assert box.consumer().attempts == 0
    assert box.all_handled()


@pytest.mark.parametrize(
    "words", [("serve", "--http", "127.0.0.1:0"), ("serve", "--listen", "127.0.0.1:0")]
)
def test_servers_in_a_terminal_that_closes(box: Box, words: tuple[str, ...]) -> None:
    """SIGHUP ends a server as SIGTERM does."""
    command = Command(*words, "--thread", box.path, ready="listening on")
    assert command.end(signal.SIGHUP, signal.SIGHUP) == 0


def test_a_signal_that_nohup_ignores(box: Box) -> None:
    """Under `nohup` SIGHUP stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        command = Command("work", "--thread", box.path, ready="consumer")
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(command.pid, signal.SIGHUP)
    assert command.end(signal.SIGTERM) == 0
    assert "SIGHUP" not in "".join(command.said)
