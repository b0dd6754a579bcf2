"""A process is killed at every single step of what it does: each call that Python makes is one."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.log import journal, mirror
from tests.crash.support import copy, mirror_lines, sound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fell(number: int, work: Callable[[], object]) -> bool:
    """Do the work in a fork that is killed at its n-th call; say whether it came so far. A failure is one of the test."""
    pid = os.fork()
    if not pid:
        left = [number]

        def count(*_: Any) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            work()
            sys.setprofile(None)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def push(path: str) -> None:
    """Push into a mirror that is to begin anew, as the journal is."""
    with eventq.open(path) as thread:
        thread.push("self", "test", "new 0")
        thread.push("self", "test", "new 1", key="k")


def push_many(path: str) -> None:
    """Push a batch."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "test", f"new {n}") for n in range(3)])


def rebuild(path: str) -> None:
    """Rebuild a mirror that lies in several files."""
    with eventq.open(path) as thread:
        thread.rebuild_mirror()


def prune(path: str) -> None:
    """Delete the oldest events."""
    with eventq.open(path) as thread:
        thread.prune(before_id=4)


def subscribe(path: str) -> None:
    """Subscribe, ack and unsubscribe."""
    with eventq.open(path) as thread:
        thread.subscribe("w", "true", filter="id > 2", from_now=True)
        thread.ack("w", 2)
        thread.unsubscribe("w")


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a thread with seven events whose mirror is in three files, for copying."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
    monkeypatch.setattr(journal, "ROTATE_LINES", 6)
    monkeypatch.setattr(journal, "_SHORTEST", 1)
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        for number in range(7):
            thread.push("self", "test", f"old {number}")
        thread.store.vacuum()
    assert len([name for name in os.listdir(path) if name.startswith("events-")]) == 2
    return path


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without syncs: no power is cut here."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")


@pytest.mark.parametrize(("work", "stride"), [(push, 5), (push_many, 5), (rebuild, 3), (prune, 3), (subscribe, 11)])
def test_a_process_may_be_killed_at_any_step(
    work: Callable[[str], None], stride: int, template: str, tmp_path: Path
) -> None:
    """Wherever it is killed: the old events are there, the new ones whole or absent, and the next push makes all whole."""
    sweep(work, stride, template, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("work", [push, push_many, rebuild, prune, subscribe])
def test_a_process_may_be_killed_at_every_step(work: Callable[[str], None], template: str, tmp_path: Path) -> None:
    """The same, and no step is left out."""
    sweep(work, 1, template, tmp_path)


def sweep(work: Callable[[str], None], stride: int, template: str, tmp_path: Path) -> None:
    """Kill a piece of work at one step after another, each time on a fresh copy."""
    path = str(tmp_path / "thread")
    number = 0
    going = True
    while going:
        number += stride
        copy(template, path)
        going = fell(number, lambda: work(path))
        found = sound(path, before=work is not rebuild)
        old, new = [f"old {n}" for n in range(7)], [f"new {n}" for n in range(3)]
        if work is prune:
            assert found in (old, old[3:])
        elif work is push_many:
            assert found in (old, old + new)
        elif work is push:
            assert found in (old, [*old, new[0]], old + new[:2])
        else:
            assert found == old
        if not going or work is not prune:
            assert len(mirror_lines(path)) == len(found) + 1 + 3 * (work is prune)
    assert number > 50


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_an_init_may_be_killed_at_every_step(stride: int, tmp_path: Path) -> None:
    """Wherever an init is killed, there is a whole thread or the next init makes one."""
    number = 0
    going = True
    while going:
        number += stride
        path = str(tmp_path / f"thread-{number}")
        going = fell(number, lambda: eventq.init(path))  # noqa: B023
        if not eventq.exists(path):
            assert going
            eventq.init(path)
        assert sound(path) == []
    assert number > 30
