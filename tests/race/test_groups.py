"""A handler is a process group: nothing of an attempt runs beside the next one, whoever was killed."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from eventq.log.notifier import quote
from eventq.running.handlers import Handlers, Job
from eventq.system import processes
from tests.race.support import ALONE, DEADLINE, until
from tests.race.test_work import Worker, workers

if TYPE_CHECKING:
    from tests.race.support import Box

__all__ = ["workers"]  # a fixture

# What the shell of a handler starts. The first one of a consumer waits at the gate.
COMMAND = (
    ALONE
    + """
def wait():
    gate = os.open(f"{folder}/gate", os.O_RDONLY)
    os.read(gate, 1)
def clean(*_):
    note("asked")
    wait()
    note("cleaned")
    os._exit(1)
if mode == "clean":
    signal.signal(signal.SIGTERM, clean)
first = not os.path.exists(f"{folder}/first-{consumer}")
open(f"{folder}/first-{consumer}", "w").close()
note(f"start {event} {os.getppid()}")
if mode == "chain" and first and os.fork():
    sys.exit(3)
while mode == "chain" and first:
    if os.fork():
        os._exit(0)
if mode == "clean" or (mode == "hang" and first):
    wait()
if event == "all":
    import eventq
    with eventq.open(os.environ["EVENTQ_THREAD"]) as thread:
        at = None
        while events := thread.pop(consumer, at):
            for event in events:
                note(f"end {event.id}")
            at = events[-1].id
else:
    note(f"end {event}")
"""
)


def command(box: Box, mode: str) -> str:
    """Return a handler whose shell waits for the command that it starts."""
    program = os.path.join(box.folder, "command.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(COMMAND)
    words = (sys.executable, program, box.folder, mode)
    return " ".join(map(quote, words)) + "; exit $?"


def subscribe(box: Box, kind: str, mode: str) -> None:
    """Subscribe a consumer whose handler is run for each event, or pops."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    quick: dict[str, Any] = {"each": kind == "each", "backoff": (0.01, 0.01)}
    box.thread.subscribe("w", command(box, mode), max_attempts=20, **quick)


def begun(box: Box) -> tuple[int, int, int]:
    """Wait for the command; return its pid, its shell's, and that of the supervisor."""
    until(lambda: box.trace("start"), "the command runs")
    words = box.trace("start")[0].split()
    (shell,) = {int(words[4])}
    rows = box.thread.database.claims.out("w", ("", 0), 9)
    supervisors = [int((row.process or "").split()[2]) for row in rows] or box.supervisors()
    return int(words[1]), shell, supervisors[0]


@pytest.mark.parametrize("kind", ["each", "pops"])
@pytest.mark.parametrize(
    "signals",
    [
        [("shell", signal.SIGKILL)],
        [("supervisor", signal.SIGKILL), ("shell", signal.SIGKILL)],
        [("shell", signal.SIGSTOP), ("supervisor", signal.SIGKILL), ("shell", signal.SIGKILL)],
        [("supervisor", signal.SIGSTOP), ("shell", signal.SIGKILL), ("supervisor", signal.SIGKILL)],
        [("supervisor", signal.SIGSTOP), ("shell", signal.SIGKILL), ("supervisor", signal.SIGCONT)],
        [("command", signal.SIGSTOP), ("supervisor", signal.SIGKILL), ("shell", signal.SIGKILL)],
    ],
    ids=["shell", "both", "stopped shell", "stopped supervisor", "continued", "stopped command"],
)
def test_an_attempt_waits_for_what_is_left_of_the_one_before(
    kind: str, signals: list[tuple[str, int]], box: Box
) -> None:
    """A command whose shell was killed is ended before the next attempt starts."""
    subscribe(box, kind, "hang")
    box.thread.push("self", "test", "x")
    pids = dict(zip(("command", "shell", "supervisor"), begun(box), strict=True))
    for name, number in signals:
        os.kill(pids[name], number)
    lost = ("supervisor", signal.SIGKILL) in signals
    if lost:
        until(lambda: not box.held(), "the lock is free")
        box.thread.dispatch()
    until(box.all_handled, "the event is handled")
    assert pids["command"] not in box.alive()
    box.settle()
    assert len(box.trace("start")) == 2
    assert len(box.trace("end")) == 1


@pytest.mark.parametrize("kind", ["each", "pops"])
def test_processes_that_live_too_shortly_to_be_seen_are_ended_too(kind: str, box: Box) -> None:
    """Each forks another one and ends: none is there for as long as it takes to list all."""
    subscribe(box, kind, "chain")
    box.thread.push("self", "test", "x")
    until(box.all_handled, "the event is handled")
    box.settle()
    assert len(box.trace("start")) == 2


def test_a_group_in_which_nobody_is_seen_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed again and again; where only ended processes are seen, it is killed once more."""
    seen: list[dict[int, bool]] = [{}, {}, {8: True, 9: False}, {8: True}, {8: True}]
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(processes, "has_group", lambda _: True)
    monkeypatch.setattr(processes, "members", lambda _: (seen.pop(0) if seen else {}).items())
    monkeypatch.setattr(processes, "kill_group", lambda *what: killed.append(what))
    assert processes.group(7) == [9]
    group = processes.Group(7, None)
    assert not group.is_gone()
    group.code = 3
    assert group.is_gone()
    assert killed == [(7, signal.SIGKILL)]
    assert processes.group(7) == [7]
    assert not group.is_gone()


def test_a_process_whose_environment_is_not_there_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a moment of each exec a process has none, as one that was started without any."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True, env={}) as bare:
        assert processes.environ_of(bare.pid) == b""
        assert not processes.group_has(bare.pid, "a=1")
        seen = [b"", b"", b"\0a=1\0"]
        monkeypatch.setattr(processes, "environ_of", lambda _: seen.pop(0))
        assert processes.group_has(bare.pid, "a=1")


@pytest.mark.parametrize("kind", ["each", "pops"])
def test_a_command_has_the_grace_period_though_its_shell_has_ended(
    kind: str, box: Box, workers: list[Worker]
) -> None:
    """SIGTERM ends the shell at once; what it started may clean up before it is killed."""
    subscribe(box, kind, "clean")
    worker = Worker(box.folder, "--thread", box.path, "--grace", "0", "--no-dispatch")
    workers.append(worker)
    worker.wait_for("works for consumer 'w'")
    box.thread.push("self", "test", "x")
    _, shell, _ = begun(box)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: box.trace("asked"), "it is asked to end")
    until(lambda: processes.birth(shell) is None, "its shell has ended")
    box.open_gate()
    assert worker.end() == 0
    assert len(box.trace("cleaned")) == 1
    assert len(box.trace("start")) == 1


def test_a_group_that_has_taken_the_number_of_another_is_left_alone() -> None:
    """A number is used again once its group has ended: only marked processes are a handler's."""
    names = []
    for marked in (True, False):
        environ = {**os.environ, processes.MARK: ""}
        shell = subprocess.Popen(
            ["sh", "-c", f"read mark; exec env {processes.MARK}=$mark sh -c 'sleep 1000 & echo'"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=environ,
        )  # fmt: skip
        name = processes.identity(shell.pid)
        assert processes.group_of(name) == shell.pid
        assert processes.group_of(f"{shell.pid} 1") is None
        said = processes.mark_of(name) if marked else "another:1"
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"{said}\n".encode())
        shell.stdin.close()
        assert shell.stdout.readline() == b"\n"
        shell.wait()
        shell.stdout.close()
        names.append(name)
        assert processes.group_of(name) == (shell.pid if marked else None)
        assert len(processes.group(shell.pid)) == 1
        processes.kill_group(shell.pid, signal.SIGKILL)
        until(lambda: not processes.group(shell.pid), "it is gone")  # noqa: B023
        assert processes.group_of(name) is None


def test_a_handler_can_be_killed_from_the_start(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a group as soon as its start returns, though its process comes to run late."""
    setsid = os.setsid
    late, on = os.pipe()

    def late_setsid() -> None:
        select.select([late], [], [], 1)  # until the kill, if that does not wait for the group
        setsid()

    monkeypatch.setattr(os, "setsid", late_setsid)
    pids: list[int] = []
    handlers = Handlers(box.thread.layout, box.thread.journal, lambda *_: None)
    output = handlers.start(Job("w", "exec sleep 600", None, 0), pids.append)
    name = processes.identity(pids[0])
    assert processes.group_of(name) == pids[0]
    processes.kill_group(pids[0], signal.SIGKILL)
    os.write(on, b"x")
    assert processes.wait(pids[0], DEADLINE) == -signal.SIGKILL
    output.close()
    os.close(late)
    os.close(on)


@pytest.mark.parametrize(
    "name", ["", "0 1", "1 1", "x 1", "-1 1", "99999999999999999999 1", "²2 1"]
)
def test_rubbish_names_no_group(name: str) -> None:
    """Neither does the group of this process, or that of all processes."""
    assert processes.group_of(name) is None


class Storm:
    """Signals to whatever came of a box: shells, commands, supervisors and workers."""

    def __init__(self, box: Box, workers: list[Worker], seed: int) -> None:
        self._box = box
        self._workers = workers
        self._chance = random.Random(seed)
        self._stopped: list[int] = []
        self.hits: set[str] = set()  # what was hit

    def blow(self, count: int) -> None:
        """Send so many signals, each while a handler runs; start anew what they have ended."""
        for number in range(count):
            self._restart(number)
            until(lambda: self._handlers_run() or handled(self._box), "a handler runs")
            kinds: dict[str, list[int]] = {}
            for pid in self._victims():
                kinds.setdefault(_kind(pid), []).append(pid)
            if not kinds:
                continue
            kind = self._chance.choice(sorted(kinds))
            pid = self._chance.choice(kinds[kind])
            how = self._chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            self.hits.add(kind)
            if how == signal.SIGSTOP:
                self._stopped.append(pid)
            _signal(pid, how)
            if len(self._stopped) > 2:
                _signal(self._stopped.pop(0), signal.SIGCONT)
        for pid in self._stopped:
            _signal(pid, signal.SIGCONT)

    def _victims(self) -> list[int]:
        return [pid for pid in self._box.alive() if pid not in self._stopped]

    def _handlers_run(self) -> bool:
        """Return whether a handler runs; otherwise, let go on what may keep it from that."""
        if {"shell", "command"} & {*map(_kind, self._victims())}:
            return True
        if self._stopped:
            _signal(self._stopped.pop(0), signal.SIGCONT)
        elif self._box.quiet():
            self._box.thread.dispatch()
        return False

    def _restart(self, number: int) -> None:
        """Keep a worker, and now and then a dispatch beside it."""
        for worker in [*self._workers]:
            if worker.process.poll() is not None:
                self._workers.remove(worker)
        if not self._workers and number % 3 == 0:
            self._workers.append(Worker(self._box.folder, "--thread", self._box.path))
        self._box.thread.dispatch()


def handled(box: Box) -> bool:
    """Return whether the three consumers of a storm have acked everything."""
    return all(box.all_handled(name) for name in ("ordered", "many", "pops"))


def _kind(pid: int) -> str:
    """Return what a process is: a shell, a command, or one of eventq."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read()
    except OSError:
        return "gone"
    if words.startswith(b"sh\0"):
        return "shell"
    return "command" if b"command.py" in words else "eventq"


def _signal(pid: int, number: int) -> None:
    """Send a signal; a process that has just ended is fine."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


MANY = [pytest.param(250, 200, seed, marks=pytest.mark.soak) for seed in range(3)]


@pytest.mark.parametrize(("count", "signals", "seed"), [(12, 12, 7), *MANY])
def test_a_storm_of_signals_loses_no_event_and_starts_none_beside_itself(
    count: int, signals: int, seed: int, box: Box, workers: list[Worker]
) -> None:
    """Whoever is killed or stopped, in whichever order, each event is handled, and never twice at once."""
    runs: dict[str, Any] = {"each": True, "backoff": (0.01, 0.1), "lease": 2}
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.subscribe("ordered", command(box, "all"), max_attempts=10_000, **runs)
    box.thread.subscribe("many", command(box, "many"), max_attempts=10_000, concurrency=3, **runs)
    box.thread.subscribe("pops", command(box, "all"), max_attempts=10_000)
    box.thread.push_many(("self", "test", str(n)) for n in range(count))
    box.patch.setenv("EVENTQ_NOTIFIER", "builtin")
    storm = Storm(box, workers, seed)
    storm.blow(signals)
    if signals > 100:
        assert storm.hits >= {"shell", "command", "eventq"}

    def is_done() -> bool:
        if box.quiet():
            box.thread.dispatch()
        return handled(box)

    until(is_done, "all is handled")
    for worker in workers:
        worker.end()
    box.settle()
    assert box.trace("overlap") == []
    for name in ("ordered", "many", "pops"):
        ended = {int(line.split()[3]) for line in box.trace("end") if line.split()[0] == name}
        assert ended == set(range(1, count + 1))
    assert list(box.thread.dead_letters()) == []
