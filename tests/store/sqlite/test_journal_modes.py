"""The first write of a process gives a database its WAL back.

A copy by VACUUM INTO, which is how backups are made, has none, and neither has one that another
program has set to one of SQLite's other modes. Members of the kind: each mode that is kept in the
file, a reader beside the writer, a handle that only reads, and several processes at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import eventq

ROOT = Path(__file__).parents[3]
PUSH = "import sys, eventq\nwith eventq.open(sys.argv[1]) as t: t.push('a', 'b', 'c')"


def mode(path: str) -> str:
    """Return the mode of the journal that a database has by its file."""
    connection = apsw.Connection(os.path.join(path, "events.db"), apsw.SQLITE_OPEN_READWRITE)
    try:
        return str(connection.pragma("journal_mode"))
    finally:
        connection.close()


@pytest.fixture
def restored(path: str, tmp_path: Path) -> str:
    """Return the path of a thread that was restored from a backup by VACUUM INTO."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "before")
    copy = tmp_path / "restored"
    copy.mkdir()
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute("VACUUM INTO ?", (str(copy / "events.db"),))
    connection.close()
    assert mode(str(copy)) == "delete"
    return str(copy)


def test_a_thread_that_was_restored(restored: str) -> None:
    """The first write makes the journal a WAL; reading does not, and nothing is lost."""
    with eventq.open(restored, read_only=True) as reader:
        assert [event.content for event in reader.last()] == ["before"]
        assert mode(restored) == "delete"
        with eventq.open(restored) as thread:
            thread.push("self", "note", "after")
            thread.push("self", "note", "later")
            assert thread.check() == []
        assert [event.content for event in reader.last(3)] == ["before", "after", "later"]
    assert mode(restored) == "wal"


@pytest.mark.parametrize("other", ["truncate", "persist", "delete"])
def test_a_mode_that_somebody_has_set(path: str, other: str) -> None:
    """A mode that another program has chosen lasts until the next process writes."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.pragma("journal_mode", other)
    connection.close()
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
    assert mode(path) == "wal"


def test_somebody_who_goes_on_reading(restored: str) -> None:
    """A write beside a reader that keeps its lock is stored, in whichever mode."""
    reader = apsw.Connection(os.path.join(restored, "events.db"))
    rows = reader.execute("SELECT * FROM events")
    next(rows)
    rows.close()
    with eventq.open(restored) as thread:
        thread.push("self", "note", "after")
        assert [event.content for event in thread.last(2)] == ["before", "after"]
    reader.close()
    assert mode(restored) == "wal"


def test_many_first_writers(restored: str) -> None:
    """Processes that write first at the same time all store their events."""
    command = [sys.executable, "-c", PUSH, restored]
    started = [subprocess.Popen(command, cwd=ROOT) for _ in range(8)]
    assert [one.wait(120) for one in started] == [0] * 8
    with eventq.open(restored, read_only=True) as thread:
        assert thread.last_id() == 9
        assert thread.check() == []
    assert mode(restored) == "wal"
