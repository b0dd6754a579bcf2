"""The work of a claim and a settle: it is the same at any backlog, and behind a stuck head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.claiming import ids, settle, subscribe, take
from tests.plans.support import instructions
from tests.plans.test_steps import driver_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    import eventq
    from eventq.store.queue_rows import Taken

FILL = """
INSERT INTO events (created_at, source, type, content)
SELECT '2026-03-18T10:30:00.123Z', 'self', 'type ' || (value % 997), 'x'
FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?)
SELECT value FROM n)
"""
WAYS: dict[str, dict[str, str]] = {
    "plain": {},
    "with a filter": {"filter": "type <> 'type 3'"},
    "with groups": {"ordered_by": "type"},
}
pytestmark = pytest.mark.usefixtures("quick")


def fill(raw: apsw.Connection, count: int) -> None:
    """Store so many events in one statement."""
    raw.execute(FILL, (count,)).fetchall()


def cost(thread: eventq.Thread, call: Callable[[], object]) -> int:
    """Return the instructions of SQLite that a call takes, on the connection of the thread."""
    return instructions(thread, call, 1)


def claim_and_settle(thread: eventq.Thread) -> tuple[int, int]:
    """Return what a claim costs after some others, and its settle."""
    db = thread.database
    for _ in range(5):
        settle(db, take(db, 10))
    claims = []
    claimed = cost(thread, lambda: claims.append(take(db, 10)))
    assert ids(claims[0])
    return claimed, cost(thread, lambda: settle(db, claims[0]))


def within(one: int, other: int) -> bool:
    """Return whether two numbers differ by 1 % at most."""
    return abs(one - other) <= max(one, other) // 100


@pytest.mark.parametrize("backlog", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", WAYS)
def test_a_claim_costs_the_same_at_any_backlog(
    thread: eventq.Thread, raw: apsw.Connection, way: str, backlog: int
) -> None:
    """With 1,000 events waiting and with so many."""
    subscribe(thread.database, **WAYS[way])  # type: ignore[arg-type]
    fill(raw, 1_000)
    few = claim_and_settle(thread)
    fill(raw, backlog)
    many = claim_and_settle(thread)
    assert few[0] > 100
    assert all(map(within, few, many)), (few, many)


def test_a_claim_costs_the_same_behind_a_stuck_head(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """The first event is leased; 20,000 after it were finished."""
    db = thread.database
    subscribe(db)
    fill(raw, 21_000)
    head = take(db)
    before = claim_and_settle(thread)
    while ids(claim := take(db, 1_000)) and ids(claim)[-1] < 20_000:
        settle(db, claim)
    settle(db, claim)
    after = claim_and_settle(thread)
    assert all(map(within, before, after)), (before, after)
    settle(db, head)


def test_a_settle_costs_the_same_however_long_its_group_is(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """With a hundred events of one group waiting, and with thousands."""
    db = thread.database
    subscribe(db, ordered_by="source")
    found = []
    for count in (100, 5_000):
        fill(raw, count)
        settle(db, take(db, 10_000))  # which examines all
        found.append(claim_and_settle(thread))
    assert all(map(within, *found)), found


def test_an_empty_claim_costs_the_same_however_much_is_out(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """With one event out and with a thousand."""
    db = thread.database
    subscribe(db)
    fill(raw, 1)
    take(db)
    take(db)
    few = cost(thread, lambda: take(db))
    fill(raw, 1_000)
    take(db, 2_000)
    take(db)
    assert within(few, cost(thread, lambda: take(db)))


def test_the_calls_into_the_driver(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A claim and a settle are a few statements each, however many events they are about."""
    db = thread.database
    subscribe(db)
    fill(raw, 500)
    settle(db, take(db, 10))
    found = []
    for count in (1, 100):
        claims: list[Taken] = []
        found.append(driver_calls(lambda n=count, c=claims: c.append(take(db, n))))  # type: ignore[misc]
        found.append(driver_calls(lambda c=claims: settle(db, c[0])))  # type: ignore[misc]
    assert found[:2] == found[2:]
    assert found[0] <= 9
    assert found[1] <= 9
    settle(db, take(db, 1_000))
    assert driver_calls(lambda: take(db)) == 1
