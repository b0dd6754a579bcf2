"""A hook whose event cannot be stored at once leaves it to a process that outlives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from tests.doors.support import environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Until

# The command with its waits and its spawning replaced.
_PATCHED = """
import sys
from eventq.cli import hook, main
from eventq.store.sqlite import database
from eventq.system import processes
hook.PATIENCE_SECONDS = database.BUSY_SECONDS = 0.05
{}
main()
"""


@pytest.fixture
def left(opened: eventq.Thread) -> Callable[[], list[int]]:
    """Return a function that finds the processes that hooks of this thread have left."""

    def find() -> list[int]:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            ours = f"EVENTQ_THREAD={opened.path}".encode()
            if ours in words and any(word.startswith(b"EVENTQ_HOOK_KEY=") for word in words):
                found.append(int(name))
        return found

    return find


def hook(path: str, **given: str) -> None:
    """Run a hook that is less patient; it must succeed in silence."""
    with patched(path, "", json.dumps(given), "--source", "an agent") as process:
        assert process.stdout is not None
        assert process.stdout.read() == ""


@contextmanager
def patched(
    path: str, patches: str, given: str = "{}", *words: str, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Begin a hook with some of its parts replaced; it must succeed."""
    with subprocess.Popen(
        [sys.executable, "-c", _PATCHED.format(patches), "hook", "--thread", path, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environ(**more),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        yield process
    assert process.returncode == 0


def test_a_hook_ends_while_another_writer_is_in_the_way(
    opened: eventq.Thread, left: Callable[[], list[int]], until: Until
) -> None:
    """Its event is stored once the other one is done, once and whole, however large it is."""
    text = "x" * 1_000_000
    with opened.write():
        hook(opened.path, hook_event_name="Stop", text=text)
        (pid,) = left()
        assert os.getsid(pid) == pid  # it survives the agent's session
        assert opened.last_id() == 0
    until(lambda: not left(), "the process has ended")
    (event,) = opened.peek()
    assert event[2:5] == ("an agent", "record", "Stop")
    assert json.loads(event.content)["text"] == text


def test_hooks_that_wait_together(
    opened: eventq.Thread, left: Callable[[], list[int]], until: Until
) -> None:
    """Each event is stored, but for one of the same use of a tool."""
    with opened.write():
        for use in ("1", "2", "1"):
            hook(opened.path, hook_event_name="PreToolUse", tool_use_id=use)
        hook(opened.path)
        hook(opened.path)
        assert len(left()) == 5
    until(lambda: not left(), "the processes have ended")
    found = sorted(json.loads(event.content).get("tool_use_id", "") for event in opened.peek())
    assert found == ["", "", "1", "2"]


@pytest.mark.engines("sqlite")
def test_an_event_is_given_up_in_the_journal(opened: eventq.Thread) -> None:
    """Nobody waits for ever, and what was not stored is named."""
    more = {"EVENTQ_HOOK_KEY": "k"}
    with opened.write(), patched(opened.path, "hook.LATE_SECONDS = -1", **more):
        pass
    with open(f"{opened.path}/logs/thread.log", encoding="utf-8") as file:
        assert "[ERROR] hook: an event is given up: another writer held" in file.read()
    assert opened.last_id() == 0


@pytest.mark.engines("sqlite")
def test_a_hook_that_cannot_leave_its_event_waits(opened: eventq.Thread) -> None:
    """Where no process can be started, the agent has to wait, and nothing is lost."""
    refuse = """
def refuse(*_, **__):
    print("waits", flush=True)
    database.BUSY_SECONDS = 120
    raise OSError
processes.spawn = refuse
"""
    other = apsw.Connection(f"{opened.path}/events.db")
    other.execute("BEGIN IMMEDIATE")
    with patched(opened.path, refuse) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        other.execute("ROLLBACK")
        other.close()
    assert [event.content for event in opened.peek()] == ["{}"]
