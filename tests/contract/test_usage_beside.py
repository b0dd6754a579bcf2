"""What an older version has stored is counted beside others who write, and no question fails for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import DiskError
from eventq.sessions import sums
from eventq.store.usage import LOOKED
from tests.contract.test_usage import fill
from tests.contract.test_usage import sums as sums_of
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


def uncount(thread: eventq.Thread) -> None:
    """Leave out what was counted, as an older version did."""
    database = thread.database.memory
    last = database.last_id("turns")
    with thread.write():
        for turn in range(1, last + 1):
            database.usage.forget(turn)
        for row in database.sessions.page(0, 100):
            database.usage.again(row.session, 0)
        database.settings.put(LOOKED, f"0 -1 {last}")


@pytest.fixture
def backlog(thread: eventq.Thread, tmp_path: Path) -> list[object]:
    """Fill a thread whose tokens were not counted; return its sums."""
    fill(thread, tmp_path)
    expected = [*sums_of(thread)]
    uncount(thread)
    return [*expected]


def test_a_question_does_not_wait_for_a_writer(
    thread: eventq.Thread, backlog: list[object]
) -> None:
    """It is answered with what is counted, which is said not to be all; the next one goes on."""
    refused: list[object] = []
    thread.database.on_refusal = refused.append
    with eventq.open(thread.path) as other:
        with other.write():
            other.push("self", "note", "a change that goes on")
            for one in sums_of(thread):
                assert (one.out, one.is_all) == (0, False)
        assert sums_of(thread) == backlog
    assert refused == []  # nothing that a log should have


def test_a_question_does_not_wait_for_another_os_thread(
    thread: eventq.Thread, backlog: list[object]
) -> None:
    """One that writes through the same object."""
    begun, over = threading.Event(), threading.Event()

    def write() -> None:
        with thread.write():
            begun.set()
            over.wait()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    try:
        assert (thread.usage().out, thread.usage().is_all) == (0, False)
    finally:
        over.set()
        writer.join()
    assert sums_of(thread) == backlog


def test_a_question_inside_a_change_counts_in_it(
    thread: eventq.Thread, backlog: list[object]
) -> None:
    """It waits for nobody: it is the writer."""
    with thread.write():
        assert sums_of(thread) == backlog


def test_a_thread_that_is_only_read_says_what_it_lacks(
    thread: eventq.Thread, backlog: list[object]
) -> None:
    """Until somebody has counted it."""
    with eventq.open(thread.path, read_only=True) as reader:
        assert (reader.usage().out, reader.usage().is_all) == (0, False)
        assert sums_of(thread) == backlog
        assert sums_of(reader) == backlog


def test_a_disk_that_refuses_keeps_no_question_from_its_answer(
    thread: eventq.Thread, backlog: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, or may not be written."""

    def refuse(*_: object) -> None:
        raise DiskError("the disk is full", "free some space")

    with monkeypatch.context() as patch:
        patch.setattr(sums, "catch_up", refuse)
        assert (thread.usage().out, thread.usage().is_all) == (0, False)
    assert sums_of(thread) == backlog
