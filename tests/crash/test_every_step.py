"""A process is killed at every step: before each call that may change a file."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.log import adoption, journal, mirror
from tests.conftest import write_as_original
from tests.crash.support import copy, mirror_lines, sound
from tests.running import is_killed

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("quick")


# What changes nothing that outlives a process: to be killed before one of these is to be killed
# before the next call.
IDLE = {
    "access", "cpu_count", "fspath", "fstat", "get_autocommit", "getenv", "getpid", "getppid", "last_insert_rowid",
    "listdir", "lseek", "lstat", "pread", "read", "readlink", "sched_yield", "set_busy_handler", "set_busy_timeout",
    "set_progress_handler", "stat", "total_changes", "urandom", "_path_normpath", "changes", "config", "cursor", "limit",
}  # fmt: skip


def touches(event: str, function: Any) -> bool:
    """Return whether a call may change a file: one of the system, of files, or of SQLite."""
    if event != "c_call" or function.__name__ in IDLE:
        return False
    owner = function.__module__ or type(function.__self__).__module__
    return owner in ("posix", "fcntl", "_io", "apsw")


def fell(number: int, work: Callable[[], object], *, every: bool = False) -> bool:
    """Do the work in a fork that is killed before its n-th call that may change a file, or at any n-th call.

    Return whether the work is that long.
    """
    left = [number]

    def count(_: Any, event: str, function: Any) -> None:
        if every or touches(event, function):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted() -> None:
        sys.setprofile(count)
        work()
        sys.setprofile(None)

    return is_killed(counted)


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
    """Return a thread with seven events whose mirror is in three files, for copying."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
    monkeypatch.setattr(journal, "ROTATE_LINES", 6)
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        for number in range(7):
            thread.push("self", "test", f"old {number}")
        thread.database.compact()
    assert len([name for name in os.listdir(path) if name.startswith("events-")]) == 2
    return path


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("work", [push, push_many, rebuild, prune, subscribe])
def test_a_process_may_be_killed_at_any_step(
    work: Callable[[str], None], every: bool, template: str, tmp_path: Path
) -> None:
    """After a kill anywhere, old events exist, new ones are whole or absent, a push repairs."""
    path = str(tmp_path / "thread")
    number, going = 0, True
    old, new = [f"old {n}" for n in range(7)], [f"new {n}" for n in range(3)]
    whole: dict[Any, tuple[list[str], ...]] = {
        prune: (old, old[3:]),
        push_many: (old, old + new),
        push: (old, old + new[:1], old + new[:2]),
    }
    while going:
        number += 1 if every else 13
        copy(template, path)
        going = fell(number, lambda: work(path), every=every)
        found = sound(path, before=work is not rebuild)
        assert found in whole.get(work, (old,))
        if not going or work is not prune:
            assert len(mirror_lines(path)) == len(found) + 1
    assert number > (300 if every else 15)


@pytest.fixture
def originals_template(originals_mirror: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread of the older tool with seven events and two mirror files, for copying."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
    monkeypatch.setattr(adoption, "ROTATE_LINES", 2)
    path = originals_mirror
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute(
        "INSERT INTO events (source, type, content) VALUES ('a', 'b', '4'), ('a', 'b', '5')"
    ).fetchall()
    connection.close()
    write_as_original(path, "events.jsonl", 4, 5)
    with eventq.open(path) as thread:  # migrations are killed elsewhere
        thread.database.compact()
    return path


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("work", [push, rebuild])
def test_taking_over_a_mirror_may_be_killed_at_every_step(
    work: Callable[[str], None], every: bool, originals_template: str, tmp_path: Path
) -> None:
    """No byte of the old files is lost, `check` is clean, and the next push completes it."""
    template, path = originals_template, str(tmp_path / "thread")
    names = ("events-20250101-000000.jsonl", "events.jsonl")
    old = {name: (Path(template) / name).read_bytes() for name in names}
    number = 0
    going = True
    while going:
        number += 1 if every else 17
        copy(template, path)
        going = fell(number, lambda: work(path), every=every)
        there = [found.read_bytes() for found in Path(path).rglob("*.jsonl") if found.is_file()]
        assert all(content in there for content in old.values())
        found = sound(path)
        assert found[:5] == ["one", "two", "3", "4", "5"]
        assert len(mirror_lines(path)) == len(found) + 1
        kept = (Path(path) / "original-mirror").iterdir()
        assert {found.name: found.read_bytes() for found in kept} == old
        left = [name for name in os.listdir(path) if "adopt" in name]
        assert (left, os.path.exists(f"{path}/original-mirror-2")) == ([], False)
    assert number > 20


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_an_init_may_be_killed_at_every_step(every: bool, tmp_path: Path) -> None:
    """Wherever an init is killed, there is a whole thread or the next init makes one."""
    number = 0
    going = True
    while going:
        number += 1 if every else 7
        path = str(tmp_path / f"thread-{number}")
        going = fell(number, lambda: eventq.init(path), every=every)  # noqa: B023
        if not eventq.exists(path):
            assert going
            eventq.init(path)
        assert sound(path) == []
    assert number > 15
