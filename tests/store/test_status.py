"""The status of a thread, on both engines: what it holds, what goes on, and who is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log import status
from eventq.records.claim import WorkerStatus
from eventq.records.consumer import Settings

if TYPE_CHECKING:
    from eventq import Thread
    from tests.conftest import Clock

MANY = 3_000


def fill(thread: Thread, count: int = MANY) -> None:
    """Push events, every other one odd."""
    thread.push_many([("self", "odd" if n % 2 else "even", "x") for n in range(count)])


def test_a_count_ends_at_a_thousand_where_a_filter_is_run(
    opened: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says that there are more; without a filter, ids tell how many there are."""
    monkeypatch.setattr(status, "COUNTING_SECONDS", 60.0)
    fill(opened)
    filters = ["type = 'odd'", None, "type = 'odd' AND id <= 2000", "type = 'odd' AND id < 100"]
    for number, where in enumerate(filters):
        opened.subscribe(f"c{number}", filter=where)
    found = [(one.pending, one.pending_is_least) for one in opened.status().consumers]
    assert found == [(1_000, True), (MANY, False), (1_000, False), (49, False)]
    assert [one.waiting_id for one in opened.status().consumers] == [2, 1, 2, 2]


@pytest.mark.engines("sqlite")
def test_a_count_that_takes_too_long_ends_early(
    opened: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a filter that nothing matches, it says that some may wait; it does not look on."""
    monkeypatch.setattr(status, "COUNTING_SECONDS", 0.0)
    opened.subscribe("never", filter="content LIKE '%never%' OR content LIKE '%at all%'")
    for number in range(20):
        opened.subscribe(f"c{number}", filter=f"type = 'odd' AND id > {number}")
    for _ in range(20):
        fill(opened, 5_000)
    first, *others = opened.status().consumers
    assert (first.pending, first.pending_is_least, first.waiting_id) == (0, True, None)
    assert first.waits_for == "an event, if its filter matches none of those that are stored"
    assert all(one.pending and one.pending_is_least for one in others), "each gets its share"
    assert [one.waiting_id for one in others][:4] == [2, 2, 4, 4]


def test_a_broken_filter_is_said(opened: Thread) -> None:
    """Its events cannot be counted; those of others are."""
    fill(opened, 4)
    opened.subscribe("good", filter="type = 'odd'")
    opened.subscribe("bad", filter="type = 'odd'")
    opened.database.consumers.change("bad", ":", "nonsense(", 5, None, Settings(kind="pull"))
    good, bad = opened.status().consumers
    assert (good.pending, bad.pending, bad.pending_is_least) == (2, None, False)
    assert bad.waits_for == "another filter: this one is refused (see 'eventq check')"


def test_who_works_is_named(opened: Thread, clock: Clock) -> None:
    """With how many claims, since when, and until when; not once the leases have ended."""
    opened.subscribe("w", lease=30)
    fill(opened, 5)
    now = opened.database.milliseconds()
    opened.claim("w", 2, worker="ada")
    clock.move(10)
    opened.claim("w", worker="ada")
    opened.claim("w", worker="bob", lease=60)
    (found,) = opened.status().consumers
    assert found.workers == (
        WorkerStatus("ada", 3, now, now + 30_000),
        WorkerStatus("bob", 1, now + 10_000, now + 70_000),
    )
    clock.move(31)
    assert [one.worker for one in opened.status().consumers[0].workers] == ["bob"]
    opened.ack("w", 0, replay=True)
    assert opened.status().consumers[0].workers == ()


def test_the_newest_event_is_told(opened: Thread, clock: Clock) -> None:
    """Its id and its time, also when it was pruned; how many are stored is counted by ids."""
    empty = opened.status()
    assert (empty.event_count, empty.last_id, empty.last_at) == (0, 0, None)
    fill(opened, 9)
    full = opened.status()
    assert (full.event_count, full.last_id) == (9, 9)
    assert full.last_at == opened.last(1)[0].created_at
    opened.prune(before_id=4, force=True)
    assert opened.status().event_count == 6
    opened.prune(keep_last=0, force=True)
    assert opened.status()[1:4] == (0, 9, None)


def test_a_status_is_of_one_moment(opened: Thread) -> None:
    """It shows nothing of a transaction of its own thread that is not committed, but inside it."""
    fill(opened, 2)
    with opened.write():
        opened.push("self", "note", "x")
        opened.ask("Well?")
        inside = opened.status()
        assert (inside.event_count, inside.question_count) == (4, 1)
    assert opened.status().event_count == 4


@pytest.mark.engines("sqlite")
def test_memory_and_output_are_told(opened: Thread, clock: Clock) -> None:
    """Contexts, the last to change first; runs by their status; artifacts that are written."""
    first = opened.contexts.create("first")
    clock.move(1)
    second = opened.contexts.create("second")
    clock.move(1)
    first.append("hello")
    run = opened.runs.start(eventq.NewRun("w", "p"))
    opened.runs.start(eventq.NewRun("w", "p")).suspend()
    writer = opened.scope("second").artifacts.allocate("log")
    writer.write(b"x" * 70_000)
    opened.artifacts.put(b"done")
    found = opened.status()
    assert (found.context_count, found.runs) == (4, {"active": 1, "suspended": 1})
    assert [one.context_id for one in found.contexts][2:] == [first.id, second.id]
    assert found.contexts[2] == first.info()
    (artifact,) = found.artifacts
    assert (artifact.tool, artifact.status, artifact.session) == ("log", "open", "second")
    writer.seal()
    run.cancel()
    assert (opened.status().artifacts, opened.status().runs["cancelled"]) == ((), 1)


@pytest.mark.engines("postgres")
def test_a_shared_thread_has_a_log_only(opened: Thread) -> None:
    """It has no contexts, runs or artifacts."""
    found = opened.status()
    assert (found.contexts, found.context_count, found.runs, found.artifacts) == ((), 0, {}, ())
