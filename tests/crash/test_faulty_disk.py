"""Each write, sync and truncate of SQLite fails, once or for good; no ack is lost."""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import apsw
import pytest

import eventq
from eventq.errors import DiskError, EventqError
from eventq.store import opening
from eventq.store.sqlite.database import Database
from tests.crash.support import REFUSALS, FaultyVFS, contents, copy, sound
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = [f"old {n}" for n in range(1, 6)]


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Return a thread with five events and a consumer that acked two, for copying."""
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        for text in OLD:
            thread.push("self", "test", text)
        thread.subscribe("worker", "true")
        thread.ack("worker", 2)
        thread.database.compact()  # everything is in the database: the WAL begins anew
    return path


class Outcome(NamedTuple):
    """What a scenario was promised and what it tried, as contents of events."""

    promised: list[str]
    tried: list[str]


Scenario = "Callable[[eventq.Thread, Outcome], None]"


# Of the steps after the first ones, which are all tried, some stand for the others.
STRIDE = pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.soak)])
SHORT_STRIDE = pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.soak)])


def push(thread: eventq.Thread, outcome: Outcome) -> None:
    """Push one event after another."""
    for text in ("a", "b" * 9000, "c"):
        outcome.tried.append(text)
        thread.push("self", "test", text)
        outcome.promised.append(text)


def keyed_push(thread: eventq.Thread, outcome: Outcome) -> None:
    """Push with keys."""
    for text in ("a", "b" * 9000, "c"):
        outcome.tried.append(text)
        thread.push("self", "test", text, key=text[0])
        outcome.promised.append(text)


def push_many(thread: eventq.Thread, outcome: Outcome) -> None:
    """Push a batch over several pages."""
    batch = [f"{n} " + "x" * 1000 for n in range(30)]
    outcome.tried.extend(batch)
    thread.push_many([("self", "test", text) for text in batch])
    outcome.promised.extend(batch)


def write_block(thread: eventq.Thread, outcome: Outcome) -> None:
    """Make several changes in one transaction, some of them nested."""
    outcome.tried.extend(["a", "b", "c" * 5000])
    with thread.write():
        thread.push("self", "test", "a")
        thread.ack("worker", 3)
        with thread.write():
            thread.push_many([("self", "test", "b"), ("self", "test", "c" * 5000)])
        thread.subscribe("second", "true")
    outcome.promised.extend(["a", "b", "c" * 5000])


def pop_and_ack(thread: eventq.Thread, outcome: Outcome) -> None:
    """Read on and ack; an ack that is lost only means a second delivery."""
    assert [event.id for event in thread.pop("worker", 3)] == [4, 5]
    thread.ack("worker", 5)


def subscribe(thread: eventq.Thread, outcome: Outcome) -> None:
    """Subscribe with everything there is, then unsubscribe another."""
    thread.subscribe("second", "cat", filter="id > 3", from_now=True, max_attempts=7, timeout=3)
    thread.unsubscribe("worker")


def resume(thread: eventq.Thread, outcome: Outcome) -> None:
    """Note attempts and a stall, as a supervisor does, and end it."""
    state = thread.consumers.known("worker")
    thread.consumers.note_attempts(state, 3)
    thread.consumers.stall(state, "no progress")
    thread.resume("worker")


SCENARIOS = [push, keyed_push, push_many, write_block, pop_and_ack, subscribe, resume]
ERRORS = [apsw.IOError, apsw.FullError]


def whole(path: str, outcome: Outcome, *, single: bool) -> None:
    """Check that all that was promised is there, and of the rest one whole step or nothing."""
    found = contents(path)
    assert found[:5] == OLD
    new = found[5:]
    assert new[: len(outcome.promised)] == outcome.promised
    rest = new[len(outcome.promised) :]
    left = outcome.tried[len(outcome.promised) :]
    assert rest in ([], left[:1] if single else left)


def consumers_are_whole(path: str) -> None:
    """Check that subscriptions, their state and their progress are each of one piece."""
    with eventq.open(path) as thread:
        infos = {info.consumer_id: info for info in thread.status().consumers}
        rows = set(
            sqlite(thread.database).connection.execute("SELECT consumer_id FROM subscription_state")
        )
    assert rows == {(name,) for name in infos}
    if "worker" in infos:
        assert infos["worker"].last_acked_id in (2, 3, 5)
        assert infos["worker"].attempts in (0, 3)
    if (second := infos.get("second")) and second.filter:
        assert (second.max_attempts, second.timeout, second.last_acked_id) == (7, 3, 5)


def attempt(
    path: str, vfs: FaultyVFS, scenario: Callable[[eventq.Thread, Outcome], None]
) -> tuple[Outcome, bool]:
    """Run a scenario on a failing disk; return what was promised, and whether it was refused."""
    outcome = Outcome([], [])
    thread = eventq.open(path)
    refusal: EventqError | None = None
    try:
        scenario(thread, outcome)
    except EventqError as error:
        refusal = error
    thread.close()
    assert refusal is None or (isinstance(refusal, DiskError) and vfs.failed), refusal
    return outcome, refusal is not None


@SHORT_STRIDE
@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_refused_change_loses_nothing_and_leaves_nothing_half(
    scenario: Callable[[eventq.Thread, Outcome], None],
    error: type[Exception],
    lasting: bool,
    stride: int,
    template: str,
    tmp_path: Path,
    vfs: FaultyVFS,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever change fails, promised events exist, the rest is whole or absent."""
    number = 0
    while True:
        number += 1 if number < 6 else stride
        assert number < 500
        path = copy(template, str(tmp_path / "thread"))
        with monkeypatch.context() as patch:
            patch.setattr(opening, "Database", functools.partial(Database, vfs="faulty"))
            vfs.arm(number, error, lasting=lasting)
            outcome, refused = attempt(path, vfs, scenario)
            vfs.disarm()
        assert refused or outcome.promised == outcome.tried
        # without its last write a transaction is not there; after a failed sync it may be
        if vfs.failed == "write":
            assert contents(path) == OLD + outcome.promised
        whole(path, outcome, single=scenario in (push, keyed_push))
        consumers_are_whole(path)
        sound(path)
        if not vfs.failed:
            break
    assert number > 3


@SHORT_STRIDE
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("scenario", [push, keyed_push, push_many, write_block])
def test_the_same_thread_goes_on_after_a_refusal(
    scenario: Callable[[eventq.Thread, Outcome], None],
    error: type[Exception],
    stride: int,
    template: str,
    tmp_path: Path,
    vfs: FaultyVFS,
) -> None:
    """A process works again with its open thread once the disk accepts writes."""
    number, failed = 0, "?"
    while failed:
        number += 1 if number < 6 else stride
        outcome = Outcome([], [])
        path = copy(template, str(tmp_path / "thread"))
        with vfs.opened(path, number, error) as thread:
            with suppress(DiskError):
                scenario(thread, outcome)
            failed = vfs.failed
            vfs.disarm()
            # the connection that failed does not see what it gave up
            before = [event.content for event in thread.peek(limit=None)]
            assert before == OLD + outcome.promised
            later = thread.push("self", "test", "later")
            assert thread.check() == []
            assert [event.content for event in thread.peek(limit=None)] == [*before, "later"]
            assert later.id == len(before) + 1
        assert sound(path) == [*before, "later"]
    assert number > 3


@pytest.mark.parametrize("error", ERRORS)
def test_a_key_is_used_once_however_often_its_push_is_repeated(
    error: type[Exception], template: str, tmp_path: Path, vfs: FaultyVFS
) -> None:
    """A keyed push that failed may be repeated blindly: there is one event in the end."""
    number, failed = 0, "?"
    while failed:
        number += 1
        path = copy(template, str(tmp_path / "thread"))
        with vfs.opened(path, number, error) as thread:
            thread.push("self", "test", "once", key="k")
        failed = vfs.failed
        with eventq.open(path) as thread:
            event = thread.push("self", "test", "once", key="k")
            assert thread.push("self", "test", "once", key="k") == event
        assert contents(path) == [*OLD, "once"]
        sound(path)


def test_a_batch_larger_than_the_cache_is_there_or_not(
    template: str, tmp_path: Path, vfs: FaultyVFS
) -> None:
    """A batch that spills into the WAL leaves nothing if a write fails."""
    batch = [("self", "test", f"{n} " + "x" * 8000) for n in range(600)]
    number, failed = 1, "?"
    while failed:
        path = copy(template, str(tmp_path / "thread"))
        stored = 0
        with vfs.opened(path, 1 << 30, apsw.FullError) as thread:
            # apsw raises what a callback raised even where SQLite goes on regardless, as it does in
            # a checkpoint
            sqlite(thread.database).connection.wal_autocheckpoint(0)
            vfs.arm(number, apsw.FullError, lasting=True)
            with suppress(DiskError):
                stored = thread.push_many(batch).count
            failed = vfs.failed
            vfs.disarm()
            assert thread.status().event_count == 5 + stored
        found = sound(path)
        assert found[:5] == OLD
        assert len(found) == 5 + stored
        number += 601
    assert number > 2_400


@STRIDE
@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
def test_a_refused_prune_deletes_all_it_should_or_nothing(
    error: type[Exception], lasting: bool, stride: int, template: str, tmp_path: Path, vfs: FaultyVFS
) -> None:  # fmt: skip
    """A prune that fails removes all or nothing, and can be repeated."""
    number, failed = 0, "?"
    with eventq.open(template) as thread:
        thread.push_many([("self", "test", f"{n} " + "x" * 1000) for n in range(30)])
        thread.ack("worker", 30)
        thread.database.compact()
    before = contents(template)
    while failed:
        number += 1 if number < 12 else stride
        assert number < 500
        path = copy(template, str(tmp_path / "thread"))
        with vfs.opened(path, number, error, lasting=lasting) as thread:
            assert thread.prune(before_id=21) == 20
        failed = vfs.failed
        found = sound(path)
        assert found in (before, before[20:])
        with eventq.open(path) as thread:
            thread.prune(before_id=21)
            assert sqlite(thread.database).connection.pragma("freelist_count") == 0
            assert thread.check() == []
        assert contents(path)[:-1] == before[20:]
    assert number > 10


@STRIDE
@pytest.mark.parametrize("error", ERRORS)
def test_a_refused_init_leaves_nothing_that_the_next_one_does_not_finish(
    error: type[Exception], stride: int, tmp_path: Path
) -> None:
    """Init may fail at any change: there is a whole thread or none, and the next init makes it."""
    vfs = FaultyVFS("faulty-default", default=True)
    try:
        number, failed = 0, "?"
        while failed:
            number += 1 if number < 12 else stride
            path = str(tmp_path / f"thread-{number}")
            vfs.arm(number, error, lasting=False)
            try:
                eventq.init(path)
            except DiskError:
                assert vfs.failed
                assert not eventq.exists(path)
                vfs.disarm()
                eventq.init(path)
            failed = vfs.failed
            vfs.disarm()
            assert sound(path) == []
            files = ["events.db", "events.db-shm", "events.db-wal", "events.jsonl", "logs", "run"]
            assert sorted(os.listdir(path)) == files
        assert number > 5
    finally:
        vfs.unregister()
