"""The database file: what is not ours is left alone; readers change nothing and see what comes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import DamagedError, ThreadExistsError
from tests.contract.support import listing
from tests.engines import sqlite

# It is tried as the older tool's consumers always were.
OLD_SUBSCRIPTION = eventq.Subscription("w", "true", "id > 0", 5, backoff=(0.5, 60))

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint(path: str) -> None:
    """Bring a thread into the form without a WAL."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute(
        "SELECT 1 FROM sqlite_schema"
    ).fetchall()  # until it reads, it knows of no WAL
    connection.close()  # the last one: its WAL goes into the file
    assert not os.path.exists(os.path.join(path, "events.db-wal"))


# --- files that are not what they should be -------------------------------------------------------


def test_an_empty_database_file(path: str) -> None:
    """An empty events.db is refused with the command that mends it, and that command does."""
    database = os.path.join(path, "events.db")
    os.truncate(database, 0)
    with pytest.raises(DamagedError, match=r"is empty - .* run 'eventq init'"):
        eventq.open(path)
    assert os.path.getsize(database) == 0
    eventq.init(path)
    with eventq.open(path) as thread:
        assert thread.check() == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_text_file_as_database(path: str, read_only: bool) -> None:
    """An events.db that is no database is refused and not touched."""
    with open(os.path.join(path, "events.db"), "w") as file:
        file.write("these are not the bytes you are looking for\n" * 100)
    before = listing(path)
    with pytest.raises(DamagedError, match="is not a database"):
        eventq.open(path, read_only=read_only)
    assert listing(path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_directory_as_database(path: str, read_only: bool) -> None:
    """An events.db that is a directory is refused by `open`, by `init` too."""
    os.unlink(os.path.join(path, "events.db"))
    os.mkdir(os.path.join(path, "events.db"))
    with pytest.raises(DamagedError, match="is a directory"):
        eventq.open(path, read_only=read_only)
    with pytest.raises(ThreadExistsError):
        eventq.init(path)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2, 99, -1])
def test_a_foreign_database(tmp_path: Path, version: int, read_only: bool) -> None:
    """The database of another program is refused and not changed, whatever its version."""
    database = str(tmp_path / "events.db")
    connection = apsw.Connection(database)
    connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, what TEXT)")
    connection.pragma("user_version", version)
    connection.close()
    before = listing(str(tmp_path))
    with pytest.raises(DamagedError, match="not one of eventq"):
        eventq.open(tmp_path, read_only=read_only)
    assert listing(str(tmp_path)) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema(path: str, raw: apsw.Connection, read_only: bool) -> None:
    """A database of a newer eventq is refused with the advice to upgrade."""
    raw.pragma("user_version", 1000)
    with pytest.raises(DamagedError, match=r"newer eventq \(schema 1000\) - upgrade eventq"):
        eventq.open(path, read_only=read_only)


def test_a_truncated_database(path: str) -> None:
    """A database that lost its tail is reported as damaged, not as a crash."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", "x" * 1000)] * 200)
    checkpoint(path)
    os.truncate(os.path.join(path, "events.db"), 8192)
    with pytest.raises(DamagedError, match="is damaged - restore a backup"):
        eventq.open(path)


def test_a_damaged_page(path: str) -> None:
    """Reading a page of rubbish says damaged, and `check` says it in sentences."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", "x" * 1000)] * 200)
    checkpoint(path)
    with open(os.path.join(path, "events.db"), "r+b") as file:
        file.seek(-3 * 4096, os.SEEK_END)
        file.write(b"\xff" * 4096)
    with eventq.open(path) as thread:
        with pytest.raises(DamagedError, match="is damaged - restore a backup"):
            list(thread.peek(limit=None))
        # By itself, and in comparison with its mirror.
        assert thread.check() == [f"'{path}/events.db' is damaged"] * 2


# --- a thread of the older tool -------------------------------------------------------------------


def test_a_thread_of_the_older_tool_opens_unchanged(original: str) -> None:
    """Its events, subscriptions and progress are there, and everything works on it."""
    with eventq.open(original) as thread:
        assert [(e.id, e.source, e.type, e.subtype, e.content) for e in thread.peek()] == [
            (1, "self", "record", "note", "one"),
            (2, "external:a:b:c:d:e", "message", None, "two"),
            (3, "self", "record", "", "3"),
        ]
        assert thread.subscriptions() == [OLD_SUBSCRIPTION]
        assert thread.status().consumers[0].last_acked_id == 1
        assert [event.id for event in thread.pop("w", 1)] == [2, 3]
        assert thread.push("self", "note", "four", key="k") == thread.push(
            "self", "note", "again", key="k"
        )
        thread.subscribe("v", "true", filter="type = 'note'")
        assert [event.id for event in thread.pop("v", 0)] == [4]
        assert thread.check() == []
    connection = apsw.Connection(os.path.join(original, "events.db"))
    names = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
    }
    connection.close()
    assert {"idx_events_source", "idx_events_type"} <= names


def test_a_thread_of_the_older_tool_may_be_read_as_it_is(original: str) -> None:
    """Reading it changes nothing at all, and gives the same."""
    before = listing(original)
    with eventq.open(original, read_only=True) as thread:
        assert [event.id for event in thread.peek(filter="type = 'record'")] == [1, 3]
        assert thread.subscriptions() == [OLD_SUBSCRIPTION]
        info = thread.status()
        assert (
            info.event_count,
            info.consumers[0].last_acked_id,
            info.consumers[0].pending,
        ) == (3, 1, 2)
        assert thread.check() == []
        assert listing(original) == before


def test_the_columns_are_those_of_the_older_tool(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """The three tables have the columns that other tools use, and such a tool's event counts."""
    columns = {
        table: [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
        for table in ("events", "subscriptions", "consumer_progress")
    }
    assert columns == {
        "events": ["id", "created_at", "source", "type", "subtype", "content"],
        "subscriptions": ["consumer_id", "handler_cmd", "filter"],
        "consumer_progress": ["consumer_id", "last_acked_id", "updated_at"],
    }
    raw.execute(
        "INSERT INTO events (source, type, content) VALUES ('tool', 'note', 'from outside')"
    )
    assert thread.last(1)[0][2:] == ("tool", "note", None, "from outside")
    assert thread.push("self", "note", "x").id == 2  # and the mirror catches up with both


# --- with a WAL and without -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ein Tréad ☃", "a?b#c%41&mode=rw", "line\nbreak", "-dash", "'quoted'"]
)
@pytest.mark.parametrize("wal", [True, False])
def test_any_file_name_will_do(tmp_path: Path, name: str, wal: bool) -> None:
    """A directory's name may hold what a URI, a shell or SQL would read as its own."""
    path = tmp_path / name
    with eventq.open(path, create=True) as thread:
        thread.push("self", "note", "x")
        thread.push("self", "other", "y")
    if not wal:
        checkpoint(str(path))
    with eventq.open(path, read_only=True) as thread:
        assert [event.id for event in thread.peek(filter="type = 'note'")] == [1]
        assert thread.check() == []


@pytest.mark.parametrize("wal", [True, False])
def test_reading_never_creates_or_changes_a_file(path: str, wal: bool) -> None:
    """With `read_only` files, bytes and times stay as they are, whatever is read."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", str(number)) for number in range(10)])
        thread.subscribe("w", "true", filter="content > '3'")
        thread.pop("w", 2)
    if not wal:
        checkpoint(path)
    before = listing(path)
    with eventq.open(path, read_only=True) as thread:
        assert len(list(thread.peek())) == 10
        assert [event.id for event in thread.last(2, filter="type = 'note'")] == [9, 10]
        assert thread.last_id() == 10
        assert thread.latest()["self"].id == 10
        assert thread.status().consumers[0].pending == 6
        assert thread.subscriptions()[0].consumer_id == "w"
        assert thread.check() == []
        assert listing(path) == before
    assert listing(path) == before


@pytest.mark.parametrize("wal", [True, False])
def test_a_reader_sees_what_is_written_meanwhile(path: str, wal: bool) -> None:
    """A thread open for reading gives new events, also when the WAL began after it was opened."""
    if not wal:
        checkpoint(path)
        for name in ("events.db-wal", "events.db-shm"):
            assert not os.path.exists(os.path.join(path, name))
    with eventq.open(path) as writer:
        if wal:
            writer.push("self", "note", "first")
        with eventq.open(path, read_only=True) as reader:
            before = reader.last_id()
            writer.push("self", "note", "x")
            writer.push("self", "other", "y")
            assert reader.last_id() == before + 2
            assert [e.content for e in reader.peek(before)] == ["x", "y"]
            assert [e.content for e in reader.peek(before, filter="type = 'other'")] == ["y"]


def test_a_long_wal_is_cut_at_close(thread: eventq.Thread) -> None:
    """A thread leaves no long WAL behind for the next one to read."""
    wal = os.path.join(thread.path, "events.db-wal")
    with eventq.open(thread.path) as writer:
        writer.push_many(("self", "note", "x" * 10_000) for _ in range(300))
        assert os.path.getsize(wal) > 1 << 20
    assert os.path.getsize(wal) == 0
    assert thread.status().wal_bytes == 0


def test_a_log_that_a_crash_left_with_a_bare_header_can_be_read(tmp_path: Path) -> None:
    """Whatever a killed writer left of the WAL, readers without rights can read."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        thread.push_many([("self", "record", str(n)) for n in range(5)])
        sqlite(thread.database).connection.wal_checkpoint()
    for size in (4151, 4000, 33, 32, 31, 0):
        os.truncate(f"{path}/events.db-wal", size)
        with eventq.open(path, read_only=True) as thread:
            assert thread.last_id() == 5
            assert thread.check() == []


def test_a_reader_gets_past_a_bare_header_that_comes_later(tmp_path: Path) -> None:
    """An open reader notices that the WAL was begun anew and left with its header only."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        thread.push_many([("self", "record", str(n)) for n in range(5)])
        sqlite(thread.database).connection.wal_checkpoint()
    with open(f"{path}/events.db-wal", "rb") as file:
        header = file.read(32)
    with eventq.open(path, read_only=True) as thread:
        assert thread.last_id() == 5
        os.truncate(f"{path}/events.db-wal", 0)
        assert thread.last_id() == 5
        with open(f"{path}/events.db-wal", "wb") as file:
            file.write(header)
        assert [e.id for e in thread.peek(3)] == [4, 5]
        assert [e.id for e in thread.peek(3, filter="type = 'record'")] == [4, 5]
