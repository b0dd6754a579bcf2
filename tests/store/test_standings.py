"""What pages read of the log and its queues, on each engine: ranges of it, and how events went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventq.records.event import NewEvent
from eventq.store import DEAD, HELD, LEASED, STALLED, WAITING
from tests.claiming import push, settle, subscribe, take

if TYPE_CHECKING:
    from eventq.store.protocol import Database
    from tests.conftest import Clock

pytestmark = pytest.mark.usefixtures("clock")


def states(database: Database, *events: int) -> list[tuple[str, int, int]]:
    """Return consumer, event and state of some events."""
    return sorted(row[:3] for row in database.claims.standings(events, 100))


def test_types_and_sources_of_a_range_are_counted(database: Database) -> None:
    """Each pair once, and only what is in the range."""
    rows = [("a", "note"), ("a", "note"), ("b", "note"), ("b", "task"), ("a", "note")]
    database.events.append([NewEvent(source, kind, "x") for source, kind in rows])
    assert sorted(database.events.kinds(0, 5)) == [
        ("note", "a", 3), ("note", "b", 1), ("task", "b", 1),
    ]  # fmt: skip
    assert sorted(database.events.kinds(1, 3)) == [("note", "a", 1), ("note", "b", 1)]
    assert database.events.kinds(5, 9) == []


def test_how_events_stand_with_queues(database: Database, clock: Clock) -> None:
    """Leased, waiting for another attempt, dead; what is finished, or not examined, has no row."""
    subscribe(database)
    subscribe(database, "other")
    push(database, 5)
    first, second, third = (take(database) for _ in range(3))
    settle(database, second, "retry", span=60_000)
    settle(database, third, "dead", error="it broke", code=3)
    done = take(database)
    settle(database, done, "done")
    assert states(database, 1, 2, 3, 4, 5) == [("w", 1, LEASED), ("w", 2, WAITING), ("w", 3, DEAD)]
    (dead,) = database.claims.standings([3], 9)
    assert (dead.attempts, dead.code, dead.error, dead.worker) == (1, 3, "it broke", None)
    (lease,) = database.claims.standings([1], 9)
    assert (lease.at, lease.worker) == (first.until, "one")
    assert len(database.claims.standings([1, 2, 3], 2)) == 2
    clock.move(120)
    assert states(database, 1) == [("w", 1, WAITING)]  # a lease that has ended is nobody's


def test_how_events_stand_that_stop_others(database: Database) -> None:
    """One that stalled its consumer, and one behind another one of its group."""
    subscribe(database, ordered_by="source", on_failure="stall", attempts=1)
    push(database, 2)
    settle(database, take(database), "retry")
    take(database, 9)
    assert states(database, 1, 2) == [("w", 1, STALLED), ("w", 2, HELD)]


def test_an_ack_or_a_replay_ends_what_stood(database: Database) -> None:
    """Before any claim notices it."""
    subscribe(database)
    push(database, 3)
    take(database, 3)
    database.consumers.pop("w", 2, 0, replay=True)
    assert states(database, 1, 2, 3) == [("w", 3, LEASED)]
    database.consumers.pop("w", 0, 0, replay=True)
    assert states(database, 1, 2, 3) == []


def test_minutes_of_attempts(database: Database, clock: Clock) -> None:
    """Of one consumer or all, after a minute; one without attempts is left out."""
    subscribe(database)
    subscribe(database, "other")
    push(database, 4)
    clock.at = 600_000.0
    settle(database, take(database, 2), "done")
    settle(database, take(database, consumer="other"), "dead", consumer="other")
    clock.move(120)
    settle(database, take(database), "retry", span=0)
    rows = [("other", 10_000, 0, 1, 1), ("w", 10_000, 2, 0, 0), ("w", 10_002, 0, 1, 0)]
    assert [*map(tuple, database.claims.minutes(None, 9_999))] == rows
    assert [*map(tuple, database.claims.minutes("w", 10_000))] == rows[2:]
