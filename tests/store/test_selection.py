"""Which events a time, a type and a source select, on every engine.

A search among ids stands for an index on times. Its members: an empty log, one that was pruned, times
before the first event and after the last, many events of one millisecond, and clocks that were set
back, by less and by more than the search allows for.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import FilterError, UsageError
from eventq.log import selection
from eventq.log.selection import STEP, select
from eventq.records.event import Bounds, NewEvent
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.store.protocol import Database, Events

START = 1_790_000_000.0
ALL: dict[str, Any] = {"filter": None, "since": None, "until": None, "type": (), "source": ()}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all times of these tests be in the past."""
    monkeypatch.setattr(clock, "now", lambda: START + 10_000_000)


def fill(events: Events, times: Iterable[float]) -> list[str]:
    """Store an event at each of some times; return them as the log spells them."""
    stamps = [clock.stamp(one) for one in times]
    for at, same in itertools.groupby(stamps):
        events.append([NewEvent("self", "note", "x", None, None) for _ in same], None, at)
    return stamps


def ids(database: Database, **wanted: Any) -> list[int]:
    """Return the ids of the events that are selected."""
    events = database.events
    where, after, upto = select(events, **{**ALL, **wanted})
    found = events.newest(events.accept(where), upto, 1_000, after=after)
    return [one.id for one in found]


def wandering(seed: int) -> Sequence[float]:
    """Return times of a clock that is set back now and then, by less than `STEP` altogether."""
    chance = random.Random(seed)
    at, newest, found = START, START, []
    for _ in range(300):
        at = newest + chance.choice((0, 0.001, 1, 30))
        newest = max(newest, at)
        if chance.randrange(2):
            at -= chance.uniform(0, STEP)
        found.append(at)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_range_of_times_is_exact_though_clocks_are_set_back(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is what comparing each event with both times finds, if few are looked at."""
    monkeypatch.setattr(selection, "PROBES", 2)
    stamps = fill(database.events, wandering(seed))
    marks = [0.0, START, START + 0.0005, *(START + 177 * n for n in range(1, 12, 2)), START + 1e6]
    for since, until in itertools.combinations(marks, 2):
        first, end = clock.stamp(since), clock.stamp(until)
        expected = [n for n, at in enumerate(stamps, 1) if first <= at < end]
        assert ids(database, since=since, until=until) == expected
    database.events.prune(100)
    assert ids(database, since=0.0) == [*range(100, 301)]
    assert ids(database, until=START + 1e6) == [*range(100, 301)]


def test_an_empty_log_has_nothing(database: Database) -> None:
    """Neither before nor after any time."""
    assert ids(database, since=START) == ids(database, until=START) == []


def test_a_clock_that_was_set_back_by_days_hides_no_newer_event(database: Database) -> None:
    """Events with times of long ago, or of a far future, in the middle are left out, not others."""
    old, future = START - 1e6, START + 1e6
    times = [*(START + n for n in range(100)), *([old] * 20), *(START + n for n in range(100, 200))]
    fill(database.events, times)
    assert ids(database, since=START + 150) == [*range(171, 221)]
    assert ids(database, until=START + 50) == [*range(1, 51), *range(101, 121)]
    fill(database.events, [*([future] * 20), START + 200])
    assert ids(database, since=START + 150) == [*range(171, 242)]


def test_ten_million_events_are_searched_in_a_few_looks() -> None:
    """Each look asks for the times of a few events."""

    class Counted:
        looks = 0

        def accept(self, text: str | None) -> str:
            return text or ""

        def last(self) -> int:
            return 10_000_000

        def bounds(self) -> Bounds:
            return Bounds(1, 10_000_000, 10_000_000)

        def times(self, numbers: Sequence[int]) -> dict[int, str]:
            assert len(numbers) <= 64
            self.looks += 1
            return {one: clock.stamp(START + one) for one in numbers}

    counted: Any = Counted()
    found = select(counted, **{**ALL, "since": START + 5_000_000, "until": START + 6_000_000})
    assert found.after == 5_000_000 - STEP - 1
    assert found.upto == 6_000_000 + STEP - 1
    assert counted.looks <= 8


def test_types_sources_and_a_filter_are_all_to_match(database: Database) -> None:
    """Those of one kind are alternatives; quotes, and an OR in the filter, stay what they are."""
    rows = [("a", "x"), ("b", "x"), ("a", "it's"), ("b", "it's"), ("c", "y")]
    database.events.append([NewEvent(source, kind, "x", None, None) for source, kind in rows])
    assert ids(database, type=["it's"]) == [3, 4]
    assert ids(database, type=["x", "y"]) == [1, 2, 5]
    assert ids(database, type=["x", "y"], source=["b", "c"]) == [2, 5]
    assert ids(database, type=["x"], filter="source = 'a' OR source = 'c'") == [1]
    assert ids(database, type=["') OR ('1' = '1"]) == []


def test_a_refused_filter_is_shown_as_it_was_written(database: Database) -> None:
    """Without what is added to it."""
    with pytest.raises(FilterError) as caught:
        ids(database, type=["x"], filter="type = 'message') OR (1 = 1")
    assert caught.value.text == "type = 'message') OR (1 = 1"


def test_times_that_no_event_can_have_are_refused(database: Database) -> None:
    """A start in the future, and an end before the start."""
    with pytest.raises(UsageError, match="--since is yet to come"):
        ids(database, since=clock.now() + 1)
    with pytest.raises(UsageError, match="--until is not after --since"):
        ids(database, since=START, until=START)
