"""What an older version has stored is counted beside others who write, and no question fails for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import DiskError
from eventq.memory.blobs import Blobs
from eventq.records.spent import UsageSum
from eventq.sessions import sums
from eventq.store.sessions import Sessions
from eventq.store.usage import LOOKED, TokenUsage
from tests.contract.test_usage import CLAUDE, claude, fill, load, said
from tests.contract.test_usage import sums as sums_of
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
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
def backlog(thread: eventq.Thread, tmp_path: Path) -> list[UsageSum]:
    """Fill a thread whose tokens were not counted; return its sums."""
    fill(thread, tmp_path)
    expected = sums_of(thread)
    uncount(thread)
    return expected


def test_a_question_does_not_wait_for_a_writer(
    thread: eventq.Thread, backlog: list[UsageSum]
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
    thread: eventq.Thread, backlog: list[UsageSum]
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
    thread: eventq.Thread, backlog: list[UsageSum]
) -> None:
    """It waits for nobody: it is the writer."""
    with thread.write():
        assert sums_of(thread) == backlog


def test_a_thread_that_is_only_read_says_what_it_lacks(
    thread: eventq.Thread, backlog: list[UsageSum]
) -> None:
    """Until somebody has counted it."""
    with eventq.open(thread.path, read_only=True) as reader:
        assert (reader.usage().out, reader.usage().is_all) == (0, False)
        assert sums_of(thread) == backlog
        assert sums_of(reader) == backlog


def test_a_disk_that_refuses_keeps_no_question_from_its_answer(
    thread: eventq.Thread, backlog: list[UsageSum], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, or may not be written."""

    def refuse(*_: object) -> None:
        raise DiskError("the disk is full", "free some space")

    with monkeypatch.context() as patch:
        patch.setattr(sums, "catch_up", refuse)
        assert (thread.usage().out, thread.usage().is_all) == (0, False)
    assert sums_of(thread) == backlog


@pytest.mark.into(*ENGINES)
def test_a_copy_counts_what_its_source_has_not(
    thread: eventq.Thread, other: eventq.Thread, backlog: list[UsageSum], tmp_path: Path
) -> None:
    """Into any engine, and nothing is changed in the source; what it has appended since counts."""
    thread.contexts.get("chat").append(said(60, "r"))
    with eventq.open(thread.path, read_only=True) as source:
        for _ in range(2):
            source.copy_to(other)
            assert (source.usage().out, source.usage().is_all) == (60, False)
            found = sums_of(other)
            assert [found[0], *found[2:4]] == [backlog[0], *backlog[2:4]]
            assert (found[1].out, found[1].responses) == (60, 1)
            assert found[4].out == backlog[4].out + 55
    assert sums_of(thread) == sums_of(other)


# --- what changes while it is counted -------------------------------------------------------------


def collect(thread: eventq.Thread, name: str) -> None:
    """Delete a chat, and its turns that nothing leads to."""
    thread.contexts.delete(name)
    thread.contexts.delete("fork")
    thread.gc(apply=True, grace=0)


def begin_again(thread: eventq.Thread, folder: Path, out: int = 9) -> None:
    """Remove a session, and import it anew, or another one of as many lines."""
    thread.sessions.remove("s")
    thread.gc(apply=True, grace=0)
    file = folder / "s.jsonl"
    file.write_text(file.read_text().replace('"output_tokens": 9', f'"output_tokens": {out}'))
    thread.sessions.import_file(str(file), name="s")


def last_of(thread: eventq.Thread, name: str) -> int:
    """Return the newest turn of a context."""
    return thread.contexts.get(name).head_id()


ACTS: dict[str, Callable[[eventq.Thread, Path], object]] = {
    "a chat is collected": lambda thread, _: collect(thread, "chat"),
    "a run is collected": lambda thread, _: collect(thread, "run"),
    "a session is collected": lambda thread, _: (thread.sessions.remove("s"), thread.gc(apply=True, grace=0)),
    "a session is imported anew": begin_again,
    "another has its name": lambda thread, folder: begin_again(thread, folder, 2),
    "a session goes on": lambda thread, folder: load(thread, folder, [*CLAUDE, claude(8, "r3", 90)]),
    "a session is another": lambda thread, folder: load(
        thread, folder, [*CLAUDE[:-1], claude(7, "r3", 800)]
    ),
    "a turn is erased": lambda thread, _: thread.erasures.turn(last_of(thread, "chat")),
    "a turn of a session is erased": lambda thread, _: thread.erasures.turn(last_of(thread, "s")),
    "a chat goes on": lambda thread, _: thread.contexts.get("chat").append(said(700, "r")),
    "all is counted": lambda thread, _: thread.usage(),
}  # fmt: skip
STEPS: dict[str, tuple[type, str, int]] = {
    "a session was found": (TokenUsage, "behind", 1), "it was read": (Sessions, "page", 1),
    "its lines were read": (Sessions, "lines", 1), "its links were read": (Sessions, "links", 1),
    "its payloads were read": (Blobs, "shown_many", 1),
    "turns were found": (TokenUsage, "appended", 1),
    "their payloads were read": (Blobs, "shown_many", 2),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", ACTS)
def test_what_changes_meanwhile_fails_no_question(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, step: str
) -> None:
    """Whatever another process does after a step of a count: what comes of it is right."""
    fill(thread, tmp_path)
    uncount(thread)
    refused: list[object] = []
    thread.database.on_refusal = refused.append
    kind, name, left = STEPS[step]
    real = getattr(kind, name)

    def stepped(*given: object) -> object:
        nonlocal left
        found = real(*given)
        if not thread.database.in_write():  # where nobody else can change anything
            left -= 1
            if left == 0:
                with eventq.open(thread.path) as other:
                    ACTS[act](other, tmp_path)
        return found

    monkeypatch.setattr(kind, name, stepped)
    while not thread.usage().is_all:
        pass
    assert left <= 0
    found = thread.usage()
    uncount(thread)
    assert found == thread.usage()
    assert refused == []
