"""The contract of `Database.write`, `on_commit`, `subscribe` and reads, by engine."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ClosedError, LogicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.records.event import Commit
    from eventq.store.protocol import Database

SECONDS = 20.0  # what nobody waits for in vain


class OopsError(Exception):
    """Somebody's error."""


@contextmanager
def elsewhere(database: Database, change: Callable[[], object]) -> Iterator[None]:
    """Keep another OS thread inside `write`, after a change, which is undone at the end."""
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with pytest.raises(OopsError), database.write():
            change()
            inside.set()
            done.wait(SECONDS)
            raise OopsError

    runner = threading.Thread(target=work)
    runner.start()
    assert inside.wait(SECONDS)
    try:
        yield
    finally:
        done.set()
        runner.join()


@pytest.mark.engines("sqlite")
def test_a_transaction_reads_its_own_writes(opened: eventq.Thread, database: Database) -> None:
    """What it stores shows inside at once, and for others when it has committed."""
    with eventq.open(opened.path) as other, database.write():
        opened.push("self", "note", "1")
        context = opened.contexts.create("main")
        digest = bytes.fromhex(opened.blobs.put(b"bytes").hash)
        assert (database.events.last(), database.memory.blobs.count()) == (1, 1)
        assert database.memory.contexts.named("main") == context.id
        assert other.database.events.last() == other.database.memory.blobs.count() == 0
        assert other.database.memory.contexts.named("main") is None
    with database.memory.read() as moment:
        assert moment.blobs.row(digest) is not None


def test_effects_run_after_the_outermost_commit(database: Database) -> None:
    """Each effect runs once, in order, with nothing locked; those of what is undone never run."""
    ran: list[str] = []
    with database.write():
        database.on_commit(lambda: ran.append("a"))
        with pytest.raises(OopsError), database.write():
            database.on_commit(lambda: ran.append("undone"))
            raise OopsError
        with database.write():
            database.on_commit(lambda: ran.append("b"))
        assert ran == []
    assert ran == ["a", "b"]
    database.on_commit(lambda: ran.append("at once"))
    assert ran == ["a", "b", "at once"]


def test_subscribers_get_one_commit(opened: eventq.Thread, database: Database) -> None:
    """A transaction is one `Commit`, delivered after it; a failed or empty one is none."""
    commits: list[tuple[int, int, str, int]] = []

    def note(commit: Commit) -> None:
        runner = threading.Thread(target=lambda: database.write().__enter__())
        runner.start()
        runner.join(SECONDS)
        assert not runner.is_alive()  # nothing is locked
        stored = sum(len(part[3]) for part in commit.parts)
        commits.append((commit.first, commit.last, commit.source, stored))

    database.subscribe("test", note)
    with database.write():
        opened.push("a", "note", "1")
        opened.push_many([("b", "note", "2"), ("c", "note", "3")])
    opened.push("d", "note", "4")
    if database.has_memory():
        opened.contexts.create()
    with pytest.raises(OopsError), database.write():
        opened.push("e", "note", "5")
        raise OopsError
    assert commits == [(1, 3, "c", 3), (4, 4, "d", 1)]


def test_a_large_commit_comes_without_its_events(opened: eventq.Thread, database: Database) -> None:
    """Above 4 MiB a subscriber reads the events again."""
    kept: list[int] = []
    database.subscribe("test", lambda commit: kept.append(sum(len(p[3]) for p in commit.parts)))
    opened.push_many([("self", "note", "x" * (1 << 20))] * 3)
    opened.push_many([("self", "note", "x" * (1 << 20))] * 5)
    assert kept == [3, 0]


def test_a_subscriber_that_fails_is_logged(opened: eventq.Thread, database: Database) -> None:
    """A failing subscriber loses no event, and the next subscribers are called."""
    heard: list[int] = []

    def fail(_: Commit) -> None:
        raise OopsError("a broken subscriber")

    database.subscribe("broken", fail)
    database.subscribe("next", lambda commit: heard.append(commit.last))
    assert opened.push("self", "note", "1").id == 1
    assert heard == [1]
    with open(opened.layout.journal, encoding="utf-8") as file:
        assert "broken: a broken subscriber; the event is stored" in file.read()


def test_a_relaxed_block_holds_no_durable_one(database: Database) -> None:
    """The outermost block decides: it would promise what the commit around it does not hold."""
    with pytest.raises(LogicError), database.write(relaxed=True), database.write():
        pytest.fail("it began")
    with database.write(), database.write(relaxed=True):
        pass


def test_reads_beside_a_transaction(opened: eventq.Thread, database: Database) -> None:
    """While another OS thread is inside `write`, all that is read is what is committed, at once."""
    opened.push_many([("self", "note", str(n)) for n in range(1, 4)])
    opened.subscribe("w", filter="type = 'note'")
    if database.has_memory():
        opened.contexts.create("main").append("hello")
        opened.blobs.put(b"bytes")
    events = database.events
    with elsewhere(database, lambda: opened.prune(before_id=4, force=True)):
        assert (events.last(), events.bounds().first, events.bounds().stored) == (3, 1, 3)
        assert [event.id for event in opened.peek()] == [1, 2, 3]
        assert [event.id for event in opened.peek(filter="type = 'note'")] == [1, 2, 3]
        assert [event.id for event in opened.last(2)] == [2, 3]
        assert database.consumers.all()[0].acked == 0
        assert opened.status().event_count == 3
        if database.has_memory():
            assert [turn.payload for turn in opened.contexts.get("main").replay()] == [b"hello"]
            assert database.memory.blobs.count() == 2
        with database.read() as moment:
            assert moment.events.bounds().stored == 3
    assert events.bounds().stored == 3


def test_changes_wait_for_a_transaction(opened: eventq.Thread, database: Database) -> None:
    """What another OS thread changes comes after it."""
    pushed = threading.Event()

    def push() -> None:
        opened.push("other", "note", "2")
        pushed.set()

    runner = threading.Thread(target=push)
    with elsewhere(database, lambda: opened.push("self", "note", "undone")):
        runner.start()
        assert not pushed.wait(0.05)
    runner.join()
    assert [(event.id, event.source) for event in opened.peek()] == [(1, "other")]


def test_what_is_closed_is_not_read_beside(opened: eventq.Thread, database: Database) -> None:
    """A database that was closed inside a block refuses the others as well."""
    opened.push("self", "note", "1")
    with pytest.raises(ClosedError), database.write():
        opened.close()
        with pytest.raises(ClosedError):
            database.events.last()
    with pytest.raises(ClosedError):
        database.events.last()
