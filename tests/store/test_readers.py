"""The second connections of a database on SQLite: few stay open, and none is in anybody's way."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ClosedError
from eventq.store.sqlite import readers
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunPython

COUNT = 8
FILTER = "type = 'note'"


@pytest.fixture
def threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> Iterator[list[eventq.Thread]]:
    """Return some open threads with one event each, of which three may keep a reader."""
    monkeypatch.setattr(readers, "KEPT", 3)
    made = [eventq.open(tmp_path / str(number), create=True) for number in range(COUNT)]
    for thread in made:
        thread.push("self", "note", "x")
    yield made
    for thread in made:
        thread.close()


def is_open(thread: eventq.Thread) -> bool:
    """Return whether the reader of a thread's filters has a connection."""
    return sqlite(thread.database).filters.is_open


def test_readers_used_longest_ago_are_closed(threads: list[eventq.Thread]) -> None:
    """Of many threads with a filter a few keep a connection; the others open one again."""
    for _ in range(2):
        for thread in threads:
            assert [event.id for event in thread.peek(filter=FILTER)] == [1]
        assert [is_open(thread) for thread in threads] == [False] * (COUNT - 3) + [True] * 3


def test_a_reader_at_work_is_not_closed(threads: list[eventq.Thread]) -> None:
    """One that somebody is inside stays open, however long ago it was used."""
    busy, *others = threads
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        reader = sqlite(busy.database).filters
        with reader.lock:
            assert reader.sandbox.check(FILTER) == FILTER
            inside.set()
            done.wait()

    runner = threading.Thread(target=work)
    runner.start()
    inside.wait()
    for thread in others:
        assert len(list(thread.peek(filter=FILTER))) == 1
    assert is_open(busy)
    done.set()
    runner.join()


def test_a_thread_that_nobody_closed_is_not_kept(tmp_path: Path) -> None:
    """A reader is no reason to keep the database of a thread that is used no more."""
    thread = eventq.open(tmp_path / "t", create=True)
    list(thread.peek(filter=FILTER))
    left = weakref.ref(thread.database)
    del thread
    gc.collect()
    assert left() is None


def test_a_closed_thread_opens_no_reader(threads: list[eventq.Thread]) -> None:
    """A filter is refused after `close`, and leaves no connection behind."""
    thread = threads[0]
    list(thread.peek(filter=FILTER))
    thread.close()
    with pytest.raises(ClosedError):
        list(thread.peek(filter=FILTER))
    assert not is_open(thread)


def test_a_filter_keeps_no_writer_waiting(threads: list[eventq.Thread]) -> None:
    """Who pushes does not wait for a filter that another thread of the system runs."""
    thread = threads[0]
    with sqlite(thread.database).filters.lock:
        runner = threading.Thread(target=thread.push, args=("self", "note", "y"))
        runner.start()
        runner.join(10)
        assert not runner.is_alive()
    assert thread.last_id() == 2


def test_a_fork_leaves_the_readers_of_its_parent_alone(path: str, run_python: RunPython) -> None:
    """The child may open more than are kept, and closes its copies; the parent's stay usable."""
    code = """
import os, sys, eventq
from eventq.store.sqlite import readers
readers.KEPT = 1
thread = eventq.open(sys.argv[1])
thread.push("self", "note", "x")
assert len(list(thread.peek(filter="id = 1"))) == 1
pid = os.fork()
if not pid:
    for _ in range(2):
        with eventq.open(sys.argv[1]) as own:
            assert len(list(own.peek(filter="id = 1"))) == 1
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert thread.database.filters.is_open
print(code, len(list(thread.peek(filter="id = 1"))))
"""
    assert run_python(code, path) == "0 1\n"
