"""The table of transitions of an event is what changes of a queue do to its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eventq.store.queue_rules import ROW_STATES, TRANSITIONS
from tests.engines import sqlite

if TYPE_CHECKING:
    from eventq import Thread

pytestmark = pytest.mark.usefixtures("quick")

NOTED = """
    CREATE TEMP TABLE moves (old, new);
    CREATE TEMP TRIGGER made AFTER INSERT ON main.unfinished
    BEGIN
        INSERT INTO moves VALUES (NULL, NEW.state);
    END;
    CREATE TEMP TRIGGER moved AFTER UPDATE OF state ON main.unfinished
    BEGIN
        INSERT INTO moves VALUES (OLD.state, NEW.state);
    END;
    CREATE TEMP TRIGGER ended AFTER DELETE ON main.unfinished
    BEGIN
        INSERT INTO moves VALUES (OLD.state, NULL);
    END;
"""


class Play:
    """A thread, and what its consumers are asked to do."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread

    def begin(self, consumer: str, *kinds: str, **more: Any) -> None:
        """Subscribe a consumer, or do so again, and store events for it."""
        terms: dict[str, Any] = {"backoff": (0, 0), "max_attempts": 1, "on_failure": "stall"}
        terms |= {} if more.get("replace") else {"from_now": True}
        self.thread.subscribe(consumer, **{**terms, **more})
        for kind in kinds:
            self.thread.push("self", kind, "x")

    def settle(self) -> None:
        """Events with an order are done, tried again, stalled, resumed and dead."""
        thread = self.thread
        self.begin("order", "a", "a", "b", ordered_by="type")
        first, other = thread.claim("order", 9)
        other.done()
        first.retry(0, count=False)
        thread.claim("order")[0].retry(0)
        thread.resume("order")
        thread.claim("order")[0].done()
        last = thread.claim("order")[0]
        last.dead()
        # It is tried again, and leased when somebody goes back to what came later.
        assert thread.retry_dead(None, "order") == 1
        thread.claim("order")
        thread.push("self", "a", "x")
        thread.ack("order", last.event.id + 1, replay=True)
        thread.claim("order")

    def filter(self) -> None:
        """Another filter ends what waits, is held, or has stalled."""
        thread = self.thread
        self.begin("filter", "a", "a", "b", "c", "d", ordered_by="type")
        first, second, *_ = thread.claim("filter", 4)
        first.retry(0)
        second.retry(60, count=False)
        self.begin("filter", replace=True, ordered_by="type", filter="type = 'e'")

    def order(self) -> None:
        """Another order holds what waits, what is given back, and what has stalled."""
        thread = self.thread
        self.begin("late", "a", "a", "a", "a")
        _, second, third, fourth = thread.claim("late", 4)
        second.retry(0, count=False)
        self.begin("late", replace=True, ordered_by="type")
        third.retry(0, count=False)
        fourth.retry(0)
        thread.resume("late")
        self.begin("late", replace=True)

    def go_back(self) -> None:
        """A replay forgets what was begun, whatever its state."""
        thread = self.thread
        self.begin("back", "a", "a", "b", "c", "d", ordered_by="type")
        start = thread.last_id() - 5
        _, second, third, _ = thread.claim("back", 4)
        second.retry(0)
        third.retry(60, count=False)
        thread.ack("back", start, replay=True)
        assert len(thread.claim("back", 1)) == 1

    def end(self) -> None:
        """Deleted events end when their turn comes, and leases with the subscription."""
        thread = self.thread
        self.begin("gone", "a", "b")
        (claim,) = thread.claim("gone")
        claim.retry(0, count=False)
        thread.prune(before_id=thread.last_id(), force=True)
        thread.claim("gone")
        thread.unsubscribe("gone")

    def ack(self) -> None:
        """The original tool acks whatever is out."""
        thread = self.thread
        self.begin("ack", "a", "a", "b", "c", "d", ordered_by="type")
        _, second, third, _ = thread.claim("ack", 4)
        second.retry(0)
        third.retry(60, count=False)
        sql = "UPDATE consumer_progress SET last_acked_id = ? WHERE consumer_id = 'ack'"
        sqlite(thread.database).change(sql, (thread.last_id(),))
        thread.claim("ack")


def test_rows_move_as_the_table_says(opened: Thread) -> None:
    """Each arrow between two rows, or a row and none, is taken, and no other one is."""
    database = sqlite(opened.database)
    database.connection.execute(NOTED).fetchall()
    play = Play(opened)
    for act in (play.settle, play.filter, play.order, play.go_back, play.ack, play.end):
        act()
    name = ROW_STATES.get  # None is no row
    moves = {(name(old), name(new)) for old, new in database.run("SELECT old, new FROM moves")}
    rows = {*ROW_STATES.values()}
    table = {
        (old if old in rows else None, new if new in rows else None)
        for old, events in TRANSITIONS.items()
        for new in events.values()
    }
    assert {(old, new) for old, new in moves if old != new} == table - {(None, None)}
