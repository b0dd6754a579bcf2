"""Readers beside writers, copies without shared memory, forks beside a write, and pages."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import ClosedError, ReadOnlyError
from eventq.store.sqlite import migrate
from eventq.system import processes
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq import Thread


def readonly_recovery() -> apsw.ReadOnlyError:
    """Return the error of a reader that came while a writer made the index of the WAL."""
    error = apsw.ReadOnlyError("ReadOnlyError: attempt to write a readonly database")
    error.extendedresult = apsw.SQLITE_READONLY_RECOVERY  # type: ignore[attr-defined]
    return error


def test_a_reader_outlasts_a_recovery(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """READONLY_RECOVERY passes: the database and its sandbox try again, then work."""
    thread.push("self", "note", "x")
    left = [20]

    def disturbed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **words: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                raise readonly_recovery()
            return call(*values, **words)

        return run

    monkeypatch.setattr(migrate, "version", disturbed(migrate.version))
    with eventq.open(thread.path, read_only=True) as reader:
        assert left[0] < 0
        sandbox = sqlite(reader.database).sandbox
        monkeypatch.setattr(sandbox, "page", disturbed(sandbox.page))
        left[0] = 20
        assert [event.content for event in reader.peek(filter="id = 1")] == ["x"]
        assert left[0] < 0


def test_a_recovery_that_never_ends_is_an_error(thread: Thread) -> None:
    """A reader gives up after a while."""
    tries = []

    def never(_: object) -> None:
        tries.append(1)
        raise readonly_recovery()

    with eventq.open(thread.path, read_only=True) as reader:
        with pytest.raises(ReadOnlyError):
            sqlite(reader.database).steady(never)
        assert len(tries) > 1


def test_a_copy_without_shared_memory_is_read(thread: Thread, tmp_path: Path) -> None:
    """A copy with a WAL and without -shm is read whole; no file is made; a writer is seen."""
    thread.push("self", "note", "x")
    copy = str(tmp_path / "copy")
    shutil.copytree(thread.path, copy)
    os.unlink(os.path.join(copy, "events.db-shm"))
    before = sorted(os.listdir(copy))
    with eventq.open(copy, read_only=True) as reader:
        assert [event.content for event in reader.peek(filter="id > 0")] == ["x"]
        assert (reader.status().event_count, sorted(os.listdir(copy))) == (1, before)
        with eventq.open(copy) as writer:
            writer.push("self", "note", "y")
            assert reader.last_id() == 2


def test_a_fork_beside_a_write_is_refused(thread: Thread) -> None:
    """A child that was forked while another thread wrote gets ClosedError and does not wait."""
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with thread.write():
            inside.set()
            done.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    database = thread.database
    calls: list[Callable[[], object]] = [
        lambda: thread.push("self", "note", "x"),
        thread.last_id,
        lambda: thread.write().__enter__(),
        thread.last,
        lambda: database.on_commit(lambda: None),
        lambda: database.write(relaxed=True).__enter__(),
        database.consumers.version,
    ]
    try:
        assert inside.wait(120)
        assert [processes.wait(forked(call), 60) for call in calls] == [7] * len(calls)
    finally:
        done.set()
        holder.join()


def forked(call: Callable[[], Any]) -> int:
    """Call something in a child that ends with 7 for ClosedError; return its pid."""
    pid = os.fork()
    if not pid:
        try:
            call()
        except ClosedError:
            os._exit(7)
        finally:
            os._exit(1)
    return pid


def test_check_beside_a_push_and_an_ack(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was pushed and acked after a check looked up the newest id is no fault."""
    thread.subscribe("w", "true")
    thread.push("self", "note", "x")
    thread.ack("w", 1)
    monkeypatch.setattr(thread.database.events, "last", lambda: 0)
    assert list(thread.database.faults()) == []


def test_the_newest_events_are_read_in_pages(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`last` fetches large events page by page, and returns all of them in order."""
    monkeypatch.setattr("eventq.store.sqlite.events.PAGE_BYTES", 100)
    thread.push_many([("self", "note", str(n) * 60) for n in range(9)])
    database = sqlite(thread.database)
    pages, steady = [], database.steady

    def counted(call: Callable[[apsw.Connection], Any]) -> Any:
        pages.append(steady(call))
        return pages[-1]

    monkeypatch.setattr(database, "steady", counted)
    assert [event.id for event in thread.last(7)] == [3, 4, 5, 6, 7, 8, 9]
    assert [len(page[0]) for page in pages if isinstance(page, tuple)] == [2, 2, 2, 1]
