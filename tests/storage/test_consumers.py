"""The contract of `eventq.storage.base.Consumers` on every engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import AckError, FilterError, UnknownConsumerError
from eventq.event import ConsumerState, EventPage, LinePage, NewEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    import eventq
    from eventq.storage.base import Consumers, Database


@pytest.fixture
def consumers(database: Database) -> Consumers:
    """Return the consumers of a thread of twenty events, every fifth of which is rare."""
    database.events.append(
        [NewEvent("self", "note" if n % 5 else "rare", str(n)) for n in range(1, 21)]
    )
    return database.consumers


def state(consumers: Consumers, consumer: str = "w") -> ConsumerState:
    """Return what is known of a consumer that there is."""
    found = consumers.get(consumer)
    assert found is not None
    return found


def end_stall(consumers: Consumers) -> None:
    """End the stall of a consumer and forget its attempts."""
    consumers.note_run(state(consumers), attempts=0, stalled="")


def page(consumers: Consumers, acked: int, limit: int = 100, consumer: str = "w") -> list[int]:
    """Pop, and return the ids of the events."""
    found = consumers.pop(consumer, acked, limit).page
    assert isinstance(found, EventPage)
    return [event.id for event in found.events]


def test_subscriptions(consumers: Consumers, second: Database) -> None:
    """A name is taken once, oldest first, with a clean state; others see it."""
    assert (consumers.any(), consumers.all(), consumers.get("w")) == (False, [], None)
    assert consumers.put("w", "run", None, 5, None)
    assert not consumers.put("w", "other", "id > 3", 1, 2.5)
    assert consumers.put("a", "run\n'it'", "id > 0", 2, 1.5)
    expected = [
        ConsumerState("w", "run", None, 0, None, 5, None, 0, None, 0),
        ConsumerState("a", "run\n'it'", "id > 0", 0, None, 2, 1.5, 0, None, 0),
    ]
    assert second.consumers.all() == expected
    assert second.consumers.get("a") == expected[1]
    assert second.consumers.any()


def test_what_is_deleted_keeps_its_progress(consumers: Consumers) -> None:
    """A later subscription of the same name goes on where the one before was, without its state."""
    consumers.put("w", "run", None, 5, None)
    consumers.pop("w", 7, 0)
    consumers.note_run(state(consumers), attempts=3)
    consumers.note_run(state(consumers), stalled="why")
    assert (consumers.delete("w"), consumers.delete("w"), consumers.any()) == (True, False, False)
    consumers.put("w", "run", "id > 0", 5, None)
    found = state(consumers)
    assert (found.acked, found.attempts, found.stalled, found.scanned) == (7, 0, None, 7)


def test_a_pop_acks_and_reads_on(consumers: Consumers) -> None:
    """A pop notes the ack and returns what matches after it, as events or as lines."""
    consumers.put("w", "run", "type = 'rare'", 5, None)
    assert page(consumers, 0, 2) == [5, 10]
    assert page(consumers, 10) == [15, 20]
    assert state(consumers).acked == 10
    lines = consumers.pop("w", 12, 1, lines=True).page
    assert isinstance(lines, LinePage)
    assert [json.loads(line)["id"] for line in lines.lines] == [lines.last_id] == [15]
    more = consumers.read_on("w", 15, 9)
    assert [event.id for event in more[0] if not isinstance(event, str)] == [20]
    assert state(consumers).acked == 12


@pytest.mark.parametrize("how", ["pop", "ack"])
def test_acks(consumers: Consumers, how: str) -> None:
    """An ack moves on or back; one of what is to come is refused; only one that goes back wakes."""
    act: Callable[[str, int], Any] = {
        "pop": lambda name, upto: consumers.pop(name, upto, 1),
        "ack": lambda name, upto: consumers.pop(name, upto, 0),
    }[how]
    consumers.put("w", "run", None, 5, None)
    assert [act("w", upto).woke for upto in (5, 5, 20, 3)] == [False, False, False, True]
    before = state(consumers)
    assert (before.acked, before.updated_at is None) == (3, False)
    with pytest.raises(AckError) as caught:
        act("w", 21)
    assert caught.value.last_id == 20
    assert state(consumers) == before
    with pytest.raises(UnknownConsumerError):
        act("nobody", 99)


def test_an_ack_that_is_repeated_changes_nothing(consumers: Consumers, database: Database) -> None:
    """The same ack keeps its time; one of what was pruned since is fine."""
    consumers.put("w", "run", None, 5, None)
    consumers.pop("w", 20, 0)
    before = state(consumers)
    database.events.prune(21)
    consumers.pop("w", 20, 0)
    assert page(consumers, 20) == []
    assert state(consumers) == before


def test_a_filter_that_fails_leaves_the_ack(consumers: Consumers) -> None:
    """Events are read before the ack is made; an ack alone reads nothing."""
    consumers.put("w", "run", "nonsense = 1", 5, None)
    consumers.pop("w", 3, 0)
    with pytest.raises(FilterError):
        consumers.pop("w", 5, 1)
    assert state(consumers).acked == 3


def test_a_new_consumer_may_start_later(consumers: Consumers, database: Database) -> None:
    """All events so far count as acked."""
    consumers.put("w", "run", None, 5, None, from_now=True)
    database.events.append([NewEvent("self", "note", "21")])
    assert page(consumers, state(consumers).acked) == [21]


def test_attempts_and_stalls_hold_for_one_ack(consumers: Consumers) -> None:
    """They are of the acked event that they were noted at; an ack, or an end, undoes them."""
    consumers.put("w", "run", None, 5, None)
    for end in (lambda: consumers.pop("w", 1, 0), lambda: end_stall(consumers)):
        consumers.note_run(state(consumers), attempts=5)
        consumers.note_run(state(consumers), stalled="five runs")
        found = state(consumers)
        assert (found.attempts, found.stalled) == (5, "five runs")
        end()
        found = state(consumers)
        assert (found.attempts, found.stalled) == (0, None)
    consumers.note_run(state(consumers), stalled="again")
    assert consumers.pop("w", 2, 0).woke  # it ended a stall
    assert not consumers.pop("w", 3, 0).woke


def test_a_watermark_belongs_to_ack_and_filter(consumers: Consumers) -> None:
    """What holds no match is noted for an ack; one that goes back forgets it."""
    consumers.put("w", "run", "type = 'none'", 5, None)
    consumers.put("all", "run", None, 5, None)
    consumers.put("timed", "run", "created_at < datetime('now')", 5, None)
    for name in ("w", "all", "timed"):
        consumers.pop(name, 4, 0)
        consumers.note_scanned(state(consumers, name), 15)
    found = [state(consumers, name).scanned for name in ("w", "all", "timed")]
    assert found == [15, 4, 4]
    consumers.pop("w", 10, 0)
    assert state(consumers).scanned == 15
    consumers.pop("w", 17, 0)
    assert state(consumers).scanned == 17
    consumers.pop("w", 2, 0)
    assert state(consumers).scanned == 2


def test_consumers_are_apart(consumers: Consumers) -> None:
    """What is noted of one is nothing to another, and nothing for who is not subscribed."""
    consumers.put("w", "run", None, 5, None)
    consumers.put("v", "run", None, 5, None)
    other = state(consumers, "v")
    consumers.pop("w", 9, 0)
    consumers.note_run(state(consumers), stalled="why")
    assert state(consumers, "v") == other
    gone = state(consumers)
    consumers.delete("w")
    consumers.note_run(gone, stalled="late")
    consumers.note_run(gone, attempts=2)
    consumers.note_run(gone, attempts=0, stalled="")
    assert [one.consumer for one in consumers.all()] == ["v"]


def test_what_is_undone_was_not(consumers: Consumers, database: Database) -> None:
    """Subscriptions and acks of a transaction that fails have not been."""
    consumers.put("w", "run", None, 5, None)
    before = state(consumers)
    with pytest.raises(ZeroDivisionError), database.write():
        consumers.pop("w", 9, 0)
        consumers.put("v", "run", None, 5, None)
        assert (state(consumers).acked, consumers.get("v") is None) == (9, False)
        raise ZeroDivisionError
    assert consumers.all() == [before]


def test_a_thread_resumes_what_has_stalled(opened: eventq.Thread, consumers: Consumers) -> None:
    """`info` shows a stall with its attempts; `resume` ends it, and does no harm a second time."""
    opened.subscribe("w", "true")
    consumers.note_run(state(consumers), attempts=5)
    consumers.note_run(state(consumers), stalled="five runs")
    found = opened.info().subscriptions[0]
    assert (found.attempts, found.stalled) == (5, "five runs")
    for _ in range(2):
        opened.resume("w")
        found = opened.info().subscriptions[0]
        assert (found.attempts, found.stalled) == (0, None)
