"""What is compared: bare apsw on the same tables, eventq, and the other queues, behind one small face."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

import eventq

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE, KIND = "internal:main:s1:agent1", "record"
PAYLOAD = "x" * 200
BATCH = 1_000  # events a commit
PAGE = 100  # events a read
BUSY_SECONDS = 30.0
STAMP = "2026-01-02T03:04:05.678Z"
INSERT = "INSERT INTO events (created_at, source, type, subtype, content) VALUES (?, ?, ?, ?, ?)"
SCHEMA = Path(__file__).resolve().parent.parent / "migrations" / "sqlite" / "0001_thread.sql"


class Contestant:
    """One store in one directory at one setting of `synchronous`."""

    batches = True  # it can store many events in one commit

    def push(self, count: int) -> None:
        """Store events, one a commit."""
        raise NotImplementedError

    def push_batches(self, count: int) -> None:
        """Store events, BATCH a commit."""
        raise NotImplementedError

    def consume(self, count: int) -> None:
        """Read events and acknowledge them, in the largest steps on offer up to PAGE."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the store."""

    def fill(self, count: int) -> None:
        """Store at least so many events, the fastest way."""
        if self.batches:
            self.push_batches(-(-count // BATCH))
        else:
            self.push(count)


class Busy:
    """The busy handler of the raw limit: short random waits."""

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        """Wait a moment; give False when the time is up."""
        if tries == 0:
            self._until = time.monotonic() + BUSY_SECONDS
        time.sleep(0.0002 + os.urandom(1)[0] * 0.0008 / 255)
        return time.monotonic() < self._until


class Raw(Contestant):
    """Bare apsw on the tables of the migration: one prepared statement, nothing around it."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the store; make it when there is none."""
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, "raw.db")
        fresh = not os.path.exists(path)
        self.connection = apsw.Connection(path)
        self.connection.set_busy_handler(Busy())
        if fresh:
            self.connection.pragma("journal_mode", "wal")
            self.connection.execute(SCHEMA.read_text(encoding="utf-8"))
        self.connection.pragma("synchronous", synchronous)
        self._cursor = self.connection.cursor()
        self._read = 0

    def send(self, content: str) -> None:
        """Store one event."""
        self._cursor.execute(INSERT, (STAMP, SOURCE, KIND, None, content))

    def push(self, count: int) -> None:
        execute = self._cursor.execute
        for _ in range(count):
            execute(INSERT, (STAMP, SOURCE, KIND, None, PAYLOAD))

    def push_batches(self, count: int) -> None:
        for _ in range(count):
            self.insert([(STAMP, SOURCE, KIND, None, PAYLOAD)] * BATCH)

    def insert_one(self, row: tuple[Any, ...]) -> None:
        """Store one row, in its own transaction."""
        self._cursor.execute(INSERT, row)

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Store rows in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self._cursor.executemany(INSERT, rows)
        self.connection.execute("COMMIT")

    def consume(self, count: int) -> None:
        run = self.connection.execute
        for _ in range(count // PAGE):
            run("BEGIN IMMEDIATE")
            rows: list[Any] = run(
                "SELECT id, created_at, source, type, subtype, content FROM events WHERE id > ?"
                " ORDER BY id LIMIT ?",
                (self._read, PAGE),
            ).fetchall()
            assert len(rows) == PAGE
            self._read = rows[-1][0]
            run(
                "INSERT OR REPLACE INTO consumer_progress VALUES ('reader', ?, ?)",
                (self._read, STAMP),
            )
            run("COMMIT")

    def close(self) -> None:
        self.connection.close()


class Eventq(Contestant):
    """eventq through its library, as it comes (`notifier=""`) or with EVENTQ_NOTIFIER set."""

    def __init__(self, directory: str, synchronous: str, notifier: str = "") -> None:
        """Open the thread; make it when there is none."""
        os.environ["EVENTQ_SYNCHRONOUS"] = synchronous
        try:
            self.thread = eventq.open(directory, create=True)
        finally:
            del os.environ["EVENTQ_SYNCHRONOUS"]
        # A real notifier would start a process a push: that is not what is measured here.
        self._notifier = notifier or ("builtin" if shutil.which("notifier") else "")
        self._read = 0

    def _choose(self) -> None:
        if os.environ.get("EVENTQ_NOTIFIER", "") != self._notifier:
            os.environ["EVENTQ_NOTIFIER"] = self._notifier

    def send(self, content: str) -> None:
        """Store one event."""
        self.thread.push(SOURCE, KIND, content)

    def push(self, count: int) -> None:
        self._choose()
        push = self.thread.push
        for _ in range(count):
            push(SOURCE, KIND, PAYLOAD)

    def push_batches(self, count: int) -> None:
        self._choose()
        for _ in range(count):
            self.thread.push_many([(SOURCE, KIND, PAYLOAD)] * BATCH)

    def subscribe(self) -> None:
        """Make the consumer that `consume` reads as."""
        self._choose()
        self.thread.subscribe("reader", "true")

    def consume(self, count: int) -> None:
        for _ in range(count // PAGE):
            events = self.thread.pop("reader", self._read, limit=PAGE)
            assert len(events) == PAGE
            self._read = events[-1].id

    def close(self) -> None:
        self.thread.close()


def enter(name: str, directory: str, synchronous: str) -> Contestant:
    """Open a contestant by name; raise ImportError for a peer that is not installed."""
    from bench.peers import PEERS
    from bench.postgres import STORES as IN_POSTGRES
    from bench.queue import QUEUES
    from bench.remote import STORES as REMOTE
    from bench.turn_stores import STORES

    for stores in (STORES, QUEUES, IN_POSTGRES, REMOTE):
        if name in stores:
            return stores[name](directory, synchronous)
    if name == "raw":
        return Raw(directory, synchronous)
    if name == "eventq":
        return Eventq(directory, synchronous)
    return PEERS[name](directory, synchronous)
