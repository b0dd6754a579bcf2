"""What is read at one moment is read again when a writer comes, and is then of one moment too.

A reader without a writer beside it holds no lock. The kind: a reader that gives up then. Members:
`status` and `sql`, which begin again; a copy to another thread, of all or of a context, and the
export of a pack, which ended with "another program took the database over".
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.transfer.sources import ThreadSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

WRITE = """
import os, sys, eventq
thread = eventq.open(sys.argv[1])
thread.contexts.get("main").append("late")
os._exit(0)  # as if it went on: the WAL stays
"""


@pytest.fixture
def path(tmp_path: Path, run_python: RunPython) -> str:
    """Return a thread with turns and an artifact, which nobody has open and which has no WAL."""
    with eventq.open(tmp_path / "t", create=True) as thread:
        context = thread.contexts.create("main")
        for number in range(3):
            context.append(f"turn {number}")
        thread.artifacts.put(b"x" * 1000, "tool")
    # As a backup is copied, or as another SQLite leaves it.
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('VACUUM'); c.close()"
    run_python(code, os.fspath(tmp_path / "t" / "events.db"))
    assert not (tmp_path / "t" / "events.db-wal").exists()
    return os.fspath(tmp_path / "t")


@pytest.fixture(params=["turns", "lines", "heads"])
def interrupted(
    request: pytest.FixtureRequest, path: str, run_python: RunPython,
    monkeypatch: pytest.MonkeyPatch,
) -> list[int]:  # fmt: skip
    """Let a writer come just before something is read; return a list with an item for each read."""
    read: Callable[[ThreadSource], Any] = getattr(ThreadSource, request.param)
    seen: list[int] = []

    def reading(source: ThreadSource) -> Any:
        seen.append(1)
        if len(seen) == 1:
            run_python(WRITE, path)
        return read(source)

    monkeypatch.setattr(ThreadSource, request.param, reading)
    return seen


@pytest.mark.parametrize("contexts", [None, ["main"]])
def test_a_copy(
    path: str, tmp_path: Path, interrupted: list[int], contexts: list[int | str] | None
) -> None:
    """A copy begins again; it has what the writer wrote, and counts what came before as well."""
    with (
        eventq.open(path, read_only=True) as thread,
        eventq.open(tmp_path / "other", create=True) as other,
    ):
        made = thread.copy_to(other, iter(contexts) if contexts else None)
        last = other.contexts.get("main").last(100)
        payloads = [turn.payload for turn in last.turns]
        assert payloads == [b"turn 0", b"turn 1", b"turn 2", b"late"]
        assert (made.blobs, made.turns, made.contexts) == (4, 4, 1)
        assert made.artifacts == (contexts is None)
        assert other.check() == []
    assert len(interrupted) > 1


def test_a_pack(path: str, tmp_path: Path, interrupted: list[int]) -> None:
    """So does an export, which leaves nothing of its first attempt."""
    with eventq.open(path, read_only=True) as thread:
        thread.export_pack(tmp_path / "pack")
    assert len(interrupted) > 1
    with eventq.open(tmp_path / "other", create=True) as other:
        made = other.import_pack(tmp_path / "pack")
        assert (made.turns, made.contexts, made.notes) == (4, 1, ())
        assert other.check() == []
