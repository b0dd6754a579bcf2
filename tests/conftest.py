"""Fixtures of all tests: a fresh thread that must check out, a manual clock, a bounded wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Protocol

import apsw
import pytest

import eventq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest_plugins = ["tests.running", "tests.results", "tests.servers"]
pytest.register_assert_rewrite(
    "tests.contract.support", "tests.doors.support", "tests.wire.support"
)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# What the older `thread` command makes: three tables and two indexes, and no record of any
# migration.
ORIGINAL_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  source TEXT NOT NULL,
  type TEXT NOT NULL,
  subtype TEXT,
  content TEXT NOT NULL
);
CREATE INDEX idx_events_source ON events(source);
CREATE INDEX idx_events_type ON events(type);
CREATE TABLE subscriptions (
  consumer_id TEXT NOT NULL,
  handler_cmd TEXT NOT NULL,
  filter TEXT,
  PRIMARY KEY (consumer_id)
);
CREATE TABLE consumer_progress (
  consumer_id TEXT NOT NULL PRIMARY KEY,
  last_acked_id INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL
);
"""


class Until(Protocol):
    """Wait for a condition; see the fixture `until`."""

    def __call__(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        """Wait."""


class RunPython(Protocol):
    """Run a program; see the fixture `run_python`."""

    def __call__(self, code: str, *words: str) -> str:
        """Run it and give what it printed."""


class Clock:
    """The clock that eventq reads, moved by hand."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        """Return the time."""
        return self.at

    def move(self, seconds: float) -> None:
        """Move the clock on, or back."""
        self.at += seconds


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test from starting handlers, and from the settings of whoever runs it."""
    monkeypatch.setenv("EVENTQ_NOTIFIER", "none")
    for name in (
        "EVENTQ_SYNCHRONOUS",
        "EVENTQ_MAX_EVENT_BYTES",
        "EVENTQ_BLOB_CACHE",
        "EVENTQ_BACKOFF",
        "EVENTQ_STRICT_SOURCE",
        "EVENTQ_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without syncs: no power is cut here."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")


@pytest.fixture
def without_inotify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system have no watches left."""

    def refuse(*_: object) -> None:
        raise OSError(28, "no more watches")

    monkeypatch.setattr("inotify_simple.INotify.add_watch", refuse)


@pytest.fixture(scope="session")
def _pristine(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create the thread that fresh ones are copied from: `init` syncs dozens of times."""
    return eventq.init(tmp_path_factory.mktemp("pristine") / "thread")


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread; it must check out when the test is over."""
    with eventq.open(path) as opened:
        yield opened
    with eventq.open(path) as again:
        assert again.check() == []


@pytest.fixture
def raw(path: str) -> Iterator[apsw.Connection]:
    """Return a plain connection to the fresh thread's database, to read and break things."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.set_busy_timeout(30_000)
    yield connection
    connection.close()


@pytest.fixture
def original(tmp_path: Path) -> str:
    """Return a thread of the older tool, with three events and a consumer that acked one."""
    path = str(tmp_path / "original")
    os.makedirs(os.path.join(path, "run"))
    os.makedirs(os.path.join(path, "logs"))
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute(
        ORIGINAL_SCHEMA
    ).fetchall()  # the pragma gives a row: without the fetch nothing after it runs
    connection.executemany(
        "INSERT INTO events (source, type, subtype, content) VALUES (?, ?, ?, ?)",
        [
            ("self", "record", "note", "one"),
            ("external:a:b:c:d:e", "message", None, "two"),
            ("self", "record", "", "3"),
        ],
    )
    connection.execute("INSERT INTO subscriptions VALUES ('w', 'true', 'id > 0')")
    connection.execute("INSERT INTO consumer_progress VALUES ('w', 1, '2026-03-18T10:30:00.123Z')")
    connection.close()
    return path


@pytest.fixture
def originals_mirror(original: str) -> str:
    """Return a thread of the older tool with its mirror: one rotated file and a current one."""
    write_as_original(original, "events-20250101-000000.jsonl", 1, 2)
    write_as_original(original, "events.jsonl", 3, 3)
    return original


def write_as_original(path: str, name: str, first: int, last: int, version: int = 2) -> None:
    """Write the lines of some events as a version of the older tool does.

    Version 2 writes what it was given, then what it has added. The time in a line is its own.
    """
    connection = apsw.Connection(os.path.join(path, "events.db"))
    rows = connection.execute(
        "SELECT id, strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0.003 seconds'),"
        " source, type, subtype, content FROM events WHERE id BETWEEN ? AND ?",
        (first, last),
    )
    with open(os.path.join(path, name), "a", encoding="utf-8") as file:
        for number, time_of_line, source, kind, subtype, content in rows:
            added = {"id": number, "created_at": time_of_line}
            given = {"source": source, "type": kind}
            if version == 1:
                found = {**added, **given, "subtype": subtype, "content": content}
            else:
                given |= (
                    {"content": content}
                    if subtype is None
                    else {"content": content, "subtype": subtype}
                )
                found = {**given, **added, "subtype": subtype}
            file.write(json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n")
    connection.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock for eventq that stays at 2026-03-18T10:30:00.123Z until it is moved."""
    made = Clock(1773829800.1234)
    monkeypatch.setattr("eventq.system.clock.now", made)
    return made


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """Return a named pipe for a command to wait at: `read x <gate`."""
    made = str(tmp_path / "gate")
    os.mkfifo(made)
    return made


@pytest.fixture(scope="session")
def until() -> Until:
    """Return the one way to wait: for a condition, with a generous deadline."""

    def wait(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} seconds"
            time.sleep(0.005)

    return wait


@pytest.fixture
def run_python() -> RunPython:
    """Return a function that runs a program in a new Python and returns its output."""

    def run(code: str, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def open_gate(gate: str) -> None:
    """Let the command at the gate go on; wait until it is there.

    The gate is another pipe from then on: a command that comes back to this one at once would find us still there, and
    go through unasked.
    """
    with open(gate, "wb") as file:
        os.unlink(gate)
        os.mkfifo(gate)
        file.write(b"\n")
