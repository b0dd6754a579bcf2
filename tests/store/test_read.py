"""The contract of `Database.read`, `identity` and `interrupt` of the interface, by engine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ClosedError, NotAThreadError
from tests.servers import delete

if TYPE_CHECKING:
    from eventq.store.protocol import Database


def test_a_moment_does_not_change(opened: eventq.Thread, database: Database) -> None:
    """What is committed after a block has begun does not show in it, and shows after it."""
    opened.push("a", "note", "1")
    with database.read() as moment:
        opened.push("a", "note", "2")
        assert moment.events.last() == 1
        assert database.events.last() == 2
    with database.read() as moment:
        assert moment.events.last() == 2


@pytest.mark.engines("sqlite")
def test_a_moment_of_the_memory(opened: eventq.Thread, database: Database) -> None:
    """It shows the contexts of then."""
    memory = database.memory
    with memory.read() as moment:
        opened.contexts.create("later")
        assert moment.contexts.named("later") is None
    with memory.read() as moment:
        assert moment.contexts.named("later") is not None


def test_a_moment_shows_nothing_of_a_transaction_under_way(
    opened: eventq.Thread, database: Database
) -> None:
    """What is not committed yet is not in it, though the same thread of the system writes it."""
    with database.write():
        opened.push("a", "note", "1")
        with database.read() as moment:
            assert moment.events.last() == 0


def test_moments_are_apart(opened: eventq.Thread, database: Database) -> None:
    """Each of two blocks has the moment that it began at."""
    with database.read() as one:
        opened.push("a", "note", "1")
        with database.read() as other:
            assert (one.events.last(), other.events.last()) == (0, 1)


def test_a_moment_of_another_thread_is_none(opened: eventq.Thread, database: Database) -> None:
    """A thread that was deleted, and made anew at its place, is not read for the one before."""
    delete(opened.path)
    eventq.init(opened.path)
    with pytest.raises(NotAThreadError), database.read():
        pytest.fail("it was read")


def test_identity(opened: eventq.Thread, database: Database, second: Database) -> None:
    """Whoever opens a thread gives it the same identity; one made anew at its place has another."""
    assert database.identity == second.identity
    delete(opened.path)
    with eventq.open(opened.path, create=True) as anew:
        assert anew.database.identity != database.identity


def test_interrupt_ends_what_another_thread_runs(opened: eventq.Thread, database: Database) -> None:
    """A long reading ends at once, with what to do next; later calls work."""
    began, ended = threading.Event(), threading.Event()

    def stop() -> None:
        began.wait()
        while not ended.is_set():
            database.interrupt()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with pytest.raises(eventq.StoreError, match="was interrupted - nothing was stored; call"):
            while True:
                began.set()
                database.events.tally("", 0, 1, 1)
    finally:
        ended.set()
        thread.join()
    opened.push("a", "note", "1")
    assert database.events.last() == 1


def test_what_is_closed_is_not_interrupted(opened: eventq.Thread, database: Database) -> None:
    """There is nothing to end any more."""
    opened.close()
    with pytest.raises(ClosedError):
        database.interrupt()
