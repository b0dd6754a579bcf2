"""The external notifier: its command line, its exit codes, and no lost wake-up."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.log import notifier
from eventq.log.notifier import dispatch_command, quote
from eventq.system import locks, processes
from eventq.system.locks import ConsumerLock
from tests.race.support import DEADLINE, Box, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def install(box: Box, body: str) -> str:
    """Make an external notifier that notes its words, one a line, and ends as told."""
    path = os.path.join(box.folder, "my notifier")
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'#!/bin/sh\nfor word; do echo "$word"; done >> {quote(box.folder)}/words\n{body}\n'
        )
    os.chmod(path, 0o700)
    box.patch.setenv("EVENTQ_NOTIFIER", path)
    return path


def words(box: Box) -> list[str]:
    """Return what the notifier was called with."""
    with open(os.path.join(box.folder, "words"), encoding="utf-8") as file:
        return file.read().splitlines()


def subscribe(box: Box) -> None:
    """Subscribe before there is anything to do."""
    box.thread.subscribe("w", box.handler())


def test_a_task_that_is_queued_and_done_is_all_there_is_to_do(box: Box) -> None:
    """Exit 0: the queued command dispatches when it runs; a later look finds nothing."""
    subscribe(box)
    install(box, "exit 0")
    box.thread.push("external:a:b:c:d:e", "test", "x")
    called = words(box)
    assert called[:5] == ["task", "add", "--author", "external:a:b:c:d:e", "--task-id"]
    assert called[5] == f"dispatch-{notifier.slug(box.path)}"
    assert called[6] == "--command"
    subprocess.run(["sh", "-c", "\n".join(called[7:])], check=True, timeout=120)
    until(box.all_handled, "the queued command has dispatched")
    box.settle()
    assert len(box.trace("start")) == 1
    assert (
        len(box.journal(f"[INFO] notifier: {box.folder}/my notifier has queued {called[5]}")) == 1
    )


LOST = {
    "a notifier without a daemon": "exit 0",
    "a daemon that does not find our command": 'env PATH=/nonexistent /bin/sh -c "eventq dispatch --thread ." & exit 0',
    "a daemon that reads half a task": 'printf %s "$8" | head -c 9 | sh & exit 0',
    "some other program of that name": "echo nothing to notify; exec sleep 0",
}


@pytest.mark.parametrize("body", LOST.values(), ids=LOST)
def test_a_task_that_is_queued_and_never_done_costs_no_wake_up(body: str, box: Box) -> None:
    """Exit 0 is not trusted: a lone push is handled after a while, and the journal says why."""
    subscribe(box)
    install(box, body)
    box.patch.setenv("PATH", "/usr/bin:/bin")
    box.push()
    until(box.all_handled, "the deferred dispatch has run")
    box.settle()
    assert len(box.trace("start")) == 1
    assert len(box.journal("has queued dispatch-")) == 1
    assert (
        len(box.journal("dispatch: consumer=w still due 2s after the notifier took the task")) == 1
    )


def deferrals(box: Box) -> list[list[str]]:
    """Return the deferred dispatches spawned from now on; none is really started."""
    spawned: list[list[str]] = []
    real = processes.spawn

    def spawn(argv: list[str], **options: Any) -> int:
        if notifier.DELAY in options.get("environ", {}):
            spawned.append(argv)
            argv = ["true"]
        return real(argv, **options)

    box.patch.setattr(processes, "spawn", spawn)
    return spawned


def test_nothing_is_deferred_when_nobody_could_be_due(box: Box) -> None:
    """Without consumers, without a match, or with a supervisor, the notifier is not called."""
    install(box, "exit 0")
    spawned = deferrals(box)
    box.thread.push("self", "m", "x")
    box.thread.subscribe("w", "true", filter="type = 'm'", from_now=True)
    box.thread.push("self", "other", "x")
    box.thread.push_many([("self", "other", "x"), ("self", "other", "y")])
    lock = ConsumerLock.take(box.thread.layout.consumer("w"))
    assert lock is not None
    box.thread.push("self", "m", "x")
    assert spawned == []
    lock.release()
    lock.forget()
    box.thread.push("self", "m", "x")
    assert len(spawned) == 1


def test_at_most_one_dispatch_of_a_thread_is_deferred(box: Box) -> None:
    """A process that finds the slot taken leaves its event to that dispatch."""
    subscribe(box)
    install(box, "exit 0")
    spawned = deferrals(box)
    place = locks.queue(box.thread.layout.deferred, box.thread.layout.database)
    assert place is not None
    for _ in range(5):
        box.thread.push("self", "test", "x")
    assert spawned == []
    os.close(place)
    box.thread.push("self", "test", "x")
    assert len(spawned) == 1


def test_a_deferred_dispatch_is_nobodys_child_and_keeps_nothing_open(box: Box) -> None:
    """No zombie of ours comes of it, and a pipe of ours ends though the dispatch still waits."""
    subscribe(box)
    install(box, "exit 0")
    box.patch.setattr(notifier, "DEFERRED_SECONDS", 60)
    before = _zombies()
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    box.thread.push("self", "test", "x")
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert _zombies() <= before
    place = box.thread.layout.deferred
    assert _is_taken(box, place)
    until(lambda: _killed(box) and not _is_taken(box, place), "it ends")


def _is_taken(box: Box, place: str) -> bool:
    """Return whether a dispatch is in a place of the queue."""
    if (fd := locks.queue(place, box.thread.layout.database)) is not None:
        os.close(fd)
    return fd is None


def _zombies() -> set[int]:
    """Return our children that have ended and that nobody has waited for."""
    listed = subprocess.run(
        ["ps", "-axo", "ppid=,pid=,stat="], stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    mine = str(os.getpid())
    return {int(pid) for parent, pid, state in rows if parent == mine and state.startswith("Z")}


def _killed(box: Box) -> bool:
    for pid in box.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


# A deferred dispatch whose waiting is something that happens, not a time: tells what it saw then,
# and when it looked.
DEFERRED = """
import json, os, sys
import eventq
from eventq import cli
from eventq.system import locks, processes, clock
from eventq.log import notifier
from eventq.running.dispatch import Dispatch
path, done = sys.argv[1:]
with eventq.open(path) as thread:
    layout = thread.layout
os.environ |= {notifier.QUEUE_FD: str(locks.queue(layout.deferred, layout.database)), notifier.DELAY: "30"}
pause, scan, seen = clock.pause, Dispatch.scan, []
def is_taken():
    fd = locks.queue(layout.deferred, layout.database)
    if fd is not None:
        os.close(fd)
    return fd is None
def waits(seconds):
    if seconds != 30:
        return pause(seconds)
    seen.append(["waits", is_taken()])
    if done:
        with eventq.open(path) as thread:
            thread.ack("w", 1)
def looks(self):
    seen.append(["looks", is_taken()])
    print(json.dumps(seen), flush=True)
    return scan(self)
clock.pause, Dispatch.scan = waits, looks
sys.argv[1:] = ["dispatch", "--thread", path]
cli.main()
"""


@pytest.mark.parametrize("done", ["", "done"])
def test_a_deferred_dispatch_has_its_place_until_it_looks(done: str, box: Box) -> None:
    """It looks once it has waited, not at what was due before, and says so only of who is due then.

    What is pushed while it waits needs no other one; what is pushed while it looks does.
    """
    subscribe(box)
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.push("self", "test", "x")
    child = box.start(DEFERRED, done)
    out, err = child.communicate(timeout=DEADLINE)
    assert (child.returncode, err, json.loads(out)) == (0, "", [["waits", True], ["looks", False]])
    box.settle()
    assert len(box.trace("start")) == (0 if done else 1)
    said = [line.partition("] [")[2] for line in box.journal("dispatch: ")]
    due = "INFO] dispatch: consumer=w still due 30s after the notifier took the task"
    assert [line for line in said if "still due" in line] == ([] if done else [due])
    assert not done or said == []


def test_a_handler_of_a_deferred_dispatch_is_like_any_other(box: Box) -> None:
    """It ignores no signal, and finds no variable of ours that is for a dispatch."""
    found = os.path.join(box.folder, "found")
    words = ("ack", "--thread", box.path, "--consumer", "w", "--last-event-id", "1")
    ack = " ".join(map(quote, processes.python(*words)))
    box.thread.subscribe("w", f"env > {quote(found)}; kill -s INT $$; echo deaf >> {quote(found)}")
    install(box, "exit 0")
    box.patch.setattr(notifier, "DEFERRED_SECONDS", 0.01)
    box.patch.setenv("EVENTQ_BACKOFF", "1000")
    box.thread.push("self", "test", "x")
    until(lambda: box.journal("retry: consumer=w event=1 attempt=1/21: "), "the handler has run")
    with open(found, encoding="utf-8") as file:
        text = file.read()
    assert "EVENTQ_CONSUMER=w" in text
    assert "EVENTQ_DISPATCH" not in text
    assert "deaf" not in text
    assert box.journal("killed signal=2")
    subprocess.run(["sh", "-c", ack], check=True, timeout=120)


def test_a_deferred_dispatch_of_a_deleted_thread_makes_nothing(box: Box) -> None:
    """It goes in silence."""
    subscribe(box)
    install(box, "exit 0")
    box.thread.push("self", "test", "x")
    box.thread.close()
    shutil.rmtree(box.path)
    box.settle()
    assert not os.path.exists(box.path)


@pytest.mark.parametrize("code", [1, 10, 126, 127])
def test_any_other_exit_starts_the_built_in_dispatch_too(code: int, box: Box) -> None:
    """Exit 1 means queued already, perhaps too early; anything else is one warning."""
    subscribe(box)
    install(box, f"exit {code}")
    box.thread.push("self", "test", "x")
    until(box.all_handled, "the built-in dispatch has run")
    assert len(box.journal("[WARN] notifier:")) == (0 if code == 1 else 1)
    assert len(box.journal("[INFO] notifier:")) == (1 if code == 1 else 0)
    assert not box.journal("still due")  # that is said of a dispatch that has waited


@pytest.mark.parametrize("place", ["queue", "deferred"])
def test_a_dispatch_that_cannot_be_started_is_said(place: str, box: Box) -> None:
    """The push succeeds, the journal has the next step, and the slot is free again."""
    subscribe(box)
    if place == "deferred":
        install(box, "exit 0")
    real = processes.spawn

    def spawn(argv: list[str], **options: Any) -> int:
        if notifier.QUEUE_FD in options.get("environ", {}):
            raise BlockingIOError(11, "no more processes")
        return real(argv, **options)

    with box.patch.context() as patch:
        patch.setattr(processes, "spawn", spawn)
        assert box.thread.push("self", "test", "x").id == 1
    assert not _is_taken(box, getattr(box.thread.layout, place))
    (line,) = box.journal("[WARN]")
    assert line.endswith(
        "notifier: a dispatch could not be started ([Errno 11] no more processes); run 'eventq dispatch'"
    )
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    until(box.all_handled, "the dispatch has run")


def test_a_notifier_that_is_killed_starts_the_built_in_dispatch(box: Box) -> None:
    """One that dies of a signal is a failure like any other."""
    subscribe(box)
    install(box, "kill -9 $$")
    box.thread.push("self", "test", "x")
    until(box.all_handled, "the built-in dispatch has run")
    assert len(box.journal("failed with code -9")) == 1


@pytest.mark.parametrize(
    "command", ["/no/such/notifier", "no-such-notifier --flag", "unbalanced 'quote"]
)
def test_a_missing_notifier_starts_the_built_in_dispatch(command: str, box: Box) -> None:
    """A command that is not there is one warning, and the push succeeds."""
    subscribe(box)
    box.patch.setenv("EVENTQ_NOTIFIER", command)
    box.push()
    until(box.all_handled, "the built-in dispatch has run")
    assert len(box.journal("[WARN] notifier:")) == 1


def test_a_notifier_that_hangs_is_ended_with_all_that_it_started(box: Box) -> None:
    """A slow notifier and its children are ended: the push returns, the built-in runs."""
    subscribe(box)
    pipe = quote(os.path.join(box.folder, "pipe"))
    install(box, f"mkfifo {pipe}; (read x < {pipe}) & read x < {pipe}")
    box.patch.setattr(notifier, "SECONDS", 0.3)
    box.thread.push("self", "test", "x")
    until(box.all_handled, "the built-in dispatch has run")
    box.settle()
    assert len(box.journal("took more than 0.3 seconds")) == 1


def test_a_grandchild_that_keeps_a_pipe_open_does_not_hold_the_push(box: Box) -> None:
    """A process that the notifier left behind is not waited for."""
    subscribe(box)
    pipe = os.path.join(box.folder, "pipe")
    os.mkfifo(pipe)
    install(box, f"(read x < {quote(pipe)}; echo noise) & echo noise; exit 0")
    box.push()
    assert not box.quiet()
    os.close(os.open(pipe, os.O_WRONLY))
    box.settle()
    box.thread.dispatch()
    until(box.all_handled, "a dispatch by hand has run")


def test_a_batch_calls_it_once_for_the_last_source(box: Box) -> None:
    """One call for a batch, whose author is the source of its last event."""
    install(box, "exit 0")
    box.thread.push_many([("first", "t", "x"), ("last", "t", "y")])
    assert words(box).count("task") == 1
    assert words(box)[3] == "last"


def test_a_failed_write_calls_nobody(box: Box) -> None:
    """Nobody hears of what was rolled back."""
    install(box, "exit 0")
    with pytest.raises(ZeroDivisionError), box.thread.write():
        box.thread.push("self", "test", "x")
        raise ZeroDivisionError
    assert not os.path.exists(os.path.join(box.folder, "words"))


def test_none_starts_nothing(box: Box) -> None:
    """EVENTQ_NOTIFIER=none: nobody is woken until somebody dispatches."""
    subscribe(box)
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.push("self", "test", "x")
    assert box.quiet()
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    until(box.all_handled, "the dispatch has run")


ODD = [
    "a b", "x;touch pwned", 'it\'s "quoted"', "$(touch pwned)", "`touch pwned`", "-n", "ü\nline", "*&|<>",
]  # fmt: skip


@pytest.fixture(params=ODD)
def odd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    """Return a box whose thread has a path that a shell could misread."""
    made = Box(str(tmp_path), request.param, monkeypatch)
    yield made
    made.settle()
    made.close()


def test_a_path_is_never_read_by_the_shell(odd: Box) -> None:
    """The dispatch command quotes the path: the shell runs nothing else."""
    command = dispatch_command(odd.path)
    assert shlex.split(command)[-3:] == ["dispatch", "--thread", odd.path]
    odd.patch.setenv("EVENTQ_NOTIFIER", "none")
    odd.thread.subscribe("w", odd.handler())
    odd.thread.push("self", "test", "x")
    subprocess.run(["sh", "-c", command], check=True, timeout=120, cwd=odd.folder)
    until(odd.all_handled, "the dispatch has run")
    odd.patch.setenv("EVENTQ_NOTIFIER", "builtin")
    odd.thread.push("self", "test", "y")
    until(odd.all_handled, "the built-in dispatch has run")
    odd.settle()
    assert not os.path.exists(os.path.join(odd.folder, "pwned"))
    with eventq.open(odd.path) as thread:
        assert thread.check() == []


def test_the_command_names_a_program_that_every_shell_finds(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no installed script is known, the very interpreter is called with its full path."""
    monkeypatch.setattr(sys, "argv", ["somewhere/pytest"])
    first = shlex.split(dispatch_command(box.path))[0]
    assert os.path.isabs(first) or first in ("eventq", "thread")
