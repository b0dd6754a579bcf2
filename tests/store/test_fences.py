"""The contract of fences in `eventq.store.protocol.Consumers` on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import FencedError, UnknownConsumerError
from eventq.records.event import NewEvent
from eventq.store.queue_rows import QueueStatus, Worker
from tests.store.looking import changing

if TYPE_CHECKING:
    import eventq
    from eventq.store.protocol import Consumers, Database


@pytest.fixture
def consumers(database: Database) -> Consumers:
    """Return the consumers of a thread of five events, of which `w` has acked two."""
    database.events.append([NewEvent("self", "note", str(n)) for n in range(5)])
    for name in ("w", "v"):
        database.consumers.put(name, ":", None, 5, None)
    database.consumers.pop("w", 2, 0)
    return database.consumers


def acked(consumers: Consumers, consumer: str = "w") -> int:
    """Return the progress of a consumer."""
    state = consumers.get(consumer)
    assert state is not None
    return state.acked


def claimed(database: Database) -> list[int]:
    """Return what a claim of everything gets."""
    taken = database.claims.take("w", 9, 30_000, Worker("me"), b"t" * 16)
    return [one.event.id for one in taken.claims]


def test_each_supervisor_has_a_greater_fence(database: Database, second: Database) -> None:
    """Of each consumer, whoever raises it, subscribed or not."""
    for consumers, expected in ((database.consumers, 1), (second.consumers, 2)):
        assert consumers.raise_fence("w") == expected
    assert database.consumers.raise_fence("v") == 1
    assert second.consumers.raise_fence("w") == 3


@pytest.mark.parametrize(
    ("id", "limit", "replay"),
    [(None, 9, False), (3, 9, False), (3, 0, False), (1, 0, False), (1, 9, True), (1, 0, True)],
)
def test_a_smaller_fence_changes_nothing(
    consumers: Consumers, id: int | None, limit: int, replay: bool
) -> None:
    """What reads on, acks or goes back is refused, unless it has the newest fence or none."""
    for _ in range(2):
        consumers.raise_fence("w")
    for fence in (0, 1):
        with pytest.raises(FencedError, match="a newer supervisor runs consumer 'w'") as caught:
            consumers.pop("w", id, limit, replay=replay, fence=fence)
        assert (caught.value.exit_code, caught.value.event_id) == (4, id or 0)
        assert acked(consumers) == 2
        with pytest.raises(FencedError):
            consumers.read_on("w", 2, 9, replay=replay, fence=fence)
    for good in (2, 3, None):
        consumers.pop("w", id, limit, replay=replay, fence=good)
        consumers.read_on("w", 2, 9, fence=good)
    assert acked(consumers) == (id if replay else max(id or 0, 2))
    consumers.pop("v", 5, 0, fence=0)
    assert acked(consumers, "v") == 5


@pytest.mark.parametrize("replay", [False, True])
def test_a_fence_that_rises_while_events_are_read_counts(
    consumers: Consumers,
    database: Any,
    second: Database,
    monkeypatch: pytest.MonkeyPatch,
    replay: bool,
) -> None:
    """The ack itself looks at the fence: no supervisor begins between the look and the ack."""
    fence = consumers.raise_fence("w")
    change = getattr(database, changing(database))

    def late(*words: Any, **more: Any) -> Any:
        second.consumers.raise_fence("w")
        return change(*words, **more)

    monkeypatch.setattr(database, changing(database), late)
    with pytest.raises(FencedError):
        consumers.pop("w", 1 if replay else 3, 9, replay=replay, fence=fence)
    assert acked(consumers) == 2


def test_a_fence_moves_no_place(database: Database, consumers: Consumers) -> None:
    """Claims begin where the consumer is, as if no supervisor had been there."""
    consumers.raise_fence("w")
    assert acked(consumers) == 2
    assert database.claims.statuses().get("w", QueueStatus()).unfinished == 0
    consumers.pop("w", 3, 0)
    assert claimed(database) == [4, 5]
    assert consumers.raise_fence("w") == 2
    assert database.claims.statuses()["w"].leased == 2


def test_a_fence_hides_no_replay(database: Database, consumers: Consumers) -> None:
    """A consumer that goes back after its first supervisor gets what it has acked again."""
    consumers.pop("w", 5, 0)
    fence = consumers.raise_fence("w")
    consumers.pop("w", 1, 0, replay=True, fence=fence)
    state = consumers.get("w")
    assert state is not None
    assert max(state.scanned, state.frontier) == 1
    assert claimed(database) == [2, 3, 4, 5]


def test_a_fence_is_kept_without_a_subscription(consumers: Consumers) -> None:
    """A later subscription of that name does not count from the beginning."""
    consumers.raise_fence("w")
    consumers.delete("w")
    with pytest.raises(UnknownConsumerError):
        consumers.pop("w", None, 9, fence=1)
    consumers.put("w", ":", None, 5, None)
    assert consumers.raise_fence("w") == 2


def test_a_fence_is_of_the_transaction(opened: eventq.Thread, consumers: Consumers) -> None:
    """A refused ack undoes what was stored with it."""
    consumers.raise_fence("w")
    with pytest.raises(FencedError), opened.write():
        opened.push("self", "note", "more")
        consumers.pop("w", 3, 0, fence=0)
    assert (opened.last_id(), acked(consumers)) == (5, 2)
