"""Copies of whole threads that are killed: what is there is sound, and the next one completes it.

The kind of fault: a part of a thread that others see, or a thread that cannot be copied to any
more. A kill may come among blobs, artifacts, events or consumers, at the commit, and after it,
before the lines of `events.jsonl`; the destination is a directory, or on a server, which has to
notice that the program is gone.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.contract.support import mirror_lines
from tests.servers import fresh

if TYPE_CHECKING:
    from pathlib import Path

# What kills the program when it is called for the n-th time, the commit once there are events; and
# whether the log is there then.
POINTS = {
    "eventq.memory.blobs.Blobs.prepare 3": False,
    "eventq.output.artifacts.Artifacts.take 1": False,
    "eventq.transfer.log_import.LogImport.add_consumers 1": False,
    "eventq.transfer.log_import.LogImport.add_dead_letters 1": False,
    "DATABASE._commit": False,
    "eventq.log.mirror.Mirror.settle 1": True,
}
COPY = """
import importlib, os, signal, sys
import eventq
source, there, point = sys.argv[1:]
path, _, count = point.partition(" ")
owner, _, name = path.rpartition(".")
with eventq.open(source, read_only=True) as thread, eventq.open(there) as other:
    kind, calls = type(other.database), 0
    if owner != "DATABASE":
        module, _, of = owner.rpartition(".")
        kind = getattr(importlib.import_module(module), of)
    real = getattr(kind, name)

    def killing(self, *given, **named):
        global calls
        calls += 1
        if calls == int(count) if count else other.database.events.last():
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *given, **named)

    setattr(kind, name, killing)
    thread.copy_to(other, log=True)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Return a thread with some of everything."""
    path = eventq.init(tmp_path / "source")
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for number in range(5):
            main.append(f"turn {number}")
        thread.artifacts.put(b"an artifact")
        thread.subscribe("w", max_attempts=1)
        thread.push_many(("self", "note", str(number)) for number in range(20))
        first, *_ = thread.claim("w", 5)
        first.dead("bad")
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty thread of either engine."""
    if request.param == "postgres":
        return fresh(request.getfixturevalue("postgres"))
    return eventq.init(tmp_path / "destination")


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_copy_is_started_again(source: str, destination: str, point: str) -> None:
    """No event, consumer or context is there before the commit, and all are after another copy."""
    command = [sys.executable, "-c", COPY, source, destination, point]
    done = subprocess.run(command, timeout=120, check=False)
    is_shared = destination.startswith("postgresql:")
    assert done.returncode == (0 if is_shared and "Mirror" in point else -signal.SIGKILL)
    with eventq.open(source) as thread, eventq.open(destination) as other:
        is_there = other.last_id(), len(other.subscriptions()), len([*other.contexts])
        assert is_there == ((20, 1, 1) if POINTS[point] else (0, 0, 0))
        assert is_shared or POINTS[point] or other.check() == []
        thread.copy_to(other, log=True)
        assert other.check() == []
        assert [*other.peek()] == [*thread.peek()]
        assert [one.event_id for one in other.dead_letters()] == [1]
        assert [turn.payload for turn in other.contexts.get("main").replay()] == [
            b"turn %d" % number for number in range(5)
        ]
        assert is_shared or len(mirror_lines(destination)) == 20
        assert thread.copy_to(other, log=True).events == 0
