"""The log on SQLite: syncs, its own rollbacks, rows of another tool, locks that are held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq import FilterError
from eventq.errors import ClosedError, DiskError, LogicError
from eventq.store.sqlite.database import Database
from tests.contract.test_write import contents, mirrored
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "level"), [("", 2), ("full", 2), ("normal", 1), ("NORMAL", 1)])
def test_synchronous(path: str, monkeypatch: pytest.MonkeyPatch, setting: str, level: int) -> None:
    """A push is on the disk when it returns; the setting `normal` and acks give that up."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", setting)
    with eventq.open(path) as thread:
        connection, levels = sqlite(thread.database).connection, []
        thread.database.subscribe("test", lambda _: levels.append(connection.pragma("synchronous")))
        thread.push("self", "note", "x")
        thread.subscribe("w", "true")
        thread.pop("w", 1)
        assert connection.pragma("synchronous") == 1
        thread.push("self", "note", "x")
        thread.ack("w", 2)
        thread.push("self", "note", "x", key="k")
        assert levels == [level] * 3
        assert sqlite(thread.database).connection.pragma("journal_mode") == "wal"
        assert sqlite(thread.database).connection.pragma("foreign_keys") == 1


def test_a_full_busy_timeout_is_an_error(
    path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that waits longer than the busy timeout raises BusyError, and nothing was stored."""
    monkeypatch.setattr("eventq.store.sqlite.database.BUSY_SECONDS", 0.05)
    with eventq.open(path) as thread:
        raw.execute("BEGIN IMMEDIATE")
        for push in (
            lambda: thread.push("self", "note", "x"),
            lambda: thread.push_many([("self", "note", "x")]),
        ):
            with pytest.raises(
                eventq.StoreError, match=r"another writer held .* - nothing was stored; try again"
            ):
                push()
        raw.execute("ROLLBACK")
        assert thread.push("self", "note", "x").id == 1


def test_a_failed_commit_stores_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the database refuses the commit, the block is undone, and the thread works on."""
    with eventq.open(path) as thread:
        refused = True
        sqlite(thread.database).connection.set_commit_hook(lambda: refused)
        with pytest.raises(eventq.StoreError), thread.write():
            thread.push("self", "note", "lost")
        refused = False
        assert (thread.last_id(), mirrored(thread)) == (0, 0)
        assert thread.push("self", "note", "kept").id == 1
        assert (mirrored(thread), thread.check()) == (1, [])


def test_nothing_is_stored_after_the_disk_refused(path: str) -> None:
    """When SQLite has undone the transaction by itself, the rest of the block is an error."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "before")
        with pytest.raises(DiskError, match="the transaction was undone"), thread.write():
            thread.push("self", "note", "first")
            sqlite(thread.database).connection.execute("ROLLBACK")  # as it does for a full disk
            calls: list[Callable[[], object]] = [
                lambda: thread.push("self", "note", "second"),
                lambda: thread.push_many([("self", "note", "second")]),
                thread.contexts.create,
                thread.write().__enter__,
            ]
            for call in calls:
                with pytest.raises(DiskError, match="nothing of it is stored"):
                    call()
        assert [event.content for event in thread.peek()] == ["before"]
        assert thread.push("self", "note", "after").id == 2
        assert thread.check() == []


def test_a_block_that_is_never_left_is_undone(path: str) -> None:
    """A block that is never left is undone with its last reference: no lock stays held."""
    with eventq.open(path) as thread, eventq.open(path) as other:
        outer, inner = thread.write(), thread.write()
        outer.__enter__()
        thread.push("self", "note", "lost")
        inner.__enter__()
        assert sqlite(thread.database).depth == 2
        del outer, inner
        assert (
            sqlite(thread.database).depth,
            sqlite(thread.database).connection.get_autocommit(),
        ) == (0, True)
        assert other.push("self", "note", "kept").id == 1
        # An interrupt struck before the transaction was recorded.
        sqlite(thread.database).connection.execute("BEGIN IMMEDIATE")
        assert thread.push("self", "note", "kept too").id == 2
        assert [event.content for event in other.peek()] == ["kept", "kept too"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_push_that_fails_half_way_is_not_committed_by_who_caught_it(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    """An event without its key is no commit: the block around it is undone, an inner one alone."""
    real = Database.many

    def fail(db: Database, sql: str, rows: Any) -> None:
        if "event_keys" in sql:
            raise DiskError("the disk is full", "free some space")
        real(db, sql, rows)

    def half() -> None:
        with monkeypatch.context() as patch, pytest.raises(DiskError, match="is full"):
            patch.setattr(Database, "many", fail)
            thread.push("self", "note", "half", key="k")

    def block() -> None:
        with pytest.raises(DiskError, match="an earlier step"), thread.write():
            thread.push("self", "note", "undone")
            half()

    if nested:
        with thread.write():
            thread.push("self", "note", "kept")
            block()
    else:
        block()
    thread.push("self", "note", "after", key="k")
    assert contents(thread) == ["kept"] * nested + ["after"]
    assert mirrored(thread) == 1 + nested


def test_a_durable_block_inside_a_relaxed_one_is_refused(thread: eventq.Thread) -> None:
    """A durable block inside a relaxed one is refused; the other way round the outer decides."""
    with (
        pytest.raises(LogicError, match="inside a relaxed one"),
        thread.database.write(relaxed=True),
        thread.write(),
    ):
        pass
    with thread.write(), thread.database.write(relaxed=True):
        thread.push("self", "note", "x")
        assert not sqlite(thread.database).is_relaxed
    assert contents(thread) == ["x"]


def test_a_block_after_close_leaves_no_lock(path: str) -> None:
    """A call that is refused after `close` does not keep other threads waiting."""
    thread = eventq.open(path)
    thread.close()
    for block in (sqlite(thread.database).joined(), thread.write()):
        with pytest.raises(ClosedError):
            block.__enter__()
    free: list[bool] = []
    runner = threading.Thread(
        target=lambda: free.append(sqlite(thread.database).lock.acquire(blocking=False))
    )
    runner.start()
    runner.join()
    assert free == [True]


# --- rows of another tool -------------------------------------------------------------------------


def test_events_that_others_stored_are_caught_up(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """What another tool stored without mirroring is mirrored by the next push."""
    thread.push("self", "note", "x")
    raw.execute(
        "INSERT INTO events (source, type, content)"
        " VALUES ('tool', 'note', 'a'), ('tool', 'note', 'b')"
    )
    thread.push("self", "note", "x")
    assert mirrored(thread) == 4
    assert thread.check() == []


@pytest.mark.parametrize(
    "broken", ["nonsense = 1", "json_extract(content, 'no path') = 1", "1=1) OR (1=1"]
)
def test_a_filter_that_another_tool_broke_leaves_the_ack(
    thread: eventq.Thread, raw: apsw.Connection, broken: str
) -> None:
    """When a stored filter cannot be run, a pop fails without its ack; an ack alone works."""
    thread.push_many([("self", "note", str(n)) for n in range(1, 11)])
    thread.subscribe("w", "true")
    thread.ack("w", 3)
    raw.execute("UPDATE subscriptions SET filter = ?", (broken,))
    with pytest.raises(FilterError):
        thread.pop("w", 5)
    found = thread.status().consumers[0]
    assert (found.last_acked_id, found.pending, found.unexamined) == (3, None, None)
    thread.ack("w", 6)
    raw.execute("UPDATE subscriptions SET filter = NULL")
    assert [event.id for event in thread.pop("w", 6)] == [7, 8, 9, 10]


def test_a_watermark_follows_the_ack_back(thread: eventq.Thread) -> None:
    """What holds no match is not searched again, until the ack goes back or the filter changes."""
    thread.push_many([("self", "rare", "x")] + [("self", "note", "x")] * 2_000)
    thread.subscribe("w", "true", filter="type = 'rare'")
    thread.ack("w", 1)
    assert not thread.consumers.due(thread.consumers.known("w"))
    assert thread.consumers.known("w").scanned == 2_001
    assert thread.check() == []
    thread.push("self", "rare", "y")
    assert thread.consumers.due(thread.consumers.known("w"))
    thread.ack("w", 0, replay=True)
    assert thread.consumers.known("w").scanned == 0
    assert [event.id for event in thread.pop("w", 0)] == [1, 2_002]


def test_a_watermark_of_another_filter_is_not_believed(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """When another tool changes a filter, the old watermark hides no match of the new one."""
    thread.push_many([("self", "note", "x")] * 5)
    thread.subscribe("w", "true", filter="type = 'rare'")
    assert not thread.consumers.due(thread.consumers.known("w"))
    raw.execute("UPDATE subscriptions SET filter = 'type = ''note'''")
    assert thread.consumers.due(thread.consumers.known("w"))
    assert thread.status().consumers[0].pending == 5
