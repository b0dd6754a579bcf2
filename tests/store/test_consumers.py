"""The contract of `eventq.store.protocol.Consumers` on every engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import (
    AlreadyAckedError,
    ConsumerInUseError,
    FilterError,
    UnknownConsumerError,
)
from eventq.records.consumer import ConsumerState, Settings
from eventq.records.event import EventPage, NewEvent
from eventq.store.queue_rows import Verdict, Worker
from tests.claiming import ids, push, settle, take
from tests.store.looking import changing

if TYPE_CHECKING:
    from collections.abc import Callable

    import eventq
    from eventq.store.protocol import Consumers, Database
    from tests.conftest import Clock


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


def page(
    consumers: Consumers,
    acked: int,
    limit: int = 100,
    consumer: str = "w",
    *,
    replay: bool = False,
) -> list[int]:
    """Pop, and return the ids of the events."""
    found = consumers.pop(consumer, acked, limit, replay=replay).page
    assert isinstance(found, EventPage)
    return [event.id for event in found.events]


def test_subscriptions(consumers: Consumers, second: Database) -> None:
    """A name is taken once, oldest first, with a clean state; others see it."""
    assert (consumers.all(), consumers.get("w")) == ([], None)
    assert consumers.put("w", "run", None, 5, None)
    assert not consumers.put("w", "other", "id > 3", 1, 2.5)
    assert consumers.put("a", "run\n'it'", "id > 0", 2, 1.5)
    expected = [
        ConsumerState("w", "run", None, 0, None, 5, None, 0, None, 0),
        ConsumerState("a", "run\n'it'", "id > 0", 0, None, 2, 1.5, 0, None, 0),
    ]
    assert second.consumers.all() == expected
    assert second.consumers.get("a") == expected[1]


def test_the_version_differs_once_a_consumer_may_have_changed(
    consumers: Consumers, second: Database
) -> None:
    """By this database or another one; a push looks at consumers only then."""
    others = second.consumers
    steps: list[Callable[[], object]] = [
        lambda: consumers.put("w", "run", None, 5, None),
        lambda: others.put("a", "run", "id > 3", 5, None),
        lambda: consumers.pop("w", 3, 0),
        lambda: others.pop("w", 4, 0),
        lambda: consumers.note_run(state(consumers), stalled="why"),
        lambda: others.note_run(state(others), attempts=0, stalled=""),
        lambda: others.pause("a", paused=True),
        lambda: consumers.delete("w"),
        lambda: others.delete("a"),
    ]
    seen = [consumers.version()]
    for step in steps:
        step()
        seen.append(consumers.version())
        assert seen[-1] not in seen[:-1]


@pytest.mark.engines("sqlite")
def test_a_push_of_ones_own_leaves_the_version(database: Database) -> None:
    """Or each push of a program would look at all consumers again."""
    database.consumers.put("w", "run", None, 5, None)
    before = database.consumers.version()
    database.events.add(NewEvent("self", "note", "x"))
    assert database.consumers.version() == before


def test_what_is_deleted_keeps_its_progress(consumers: Consumers) -> None:
    """A later subscription of the same name goes on where the one before was, without its state."""
    consumers.put("w", "run", None, 5, None)
    consumers.pop("w", 7, 0)
    consumers.note_run(state(consumers), attempts=3)
    consumers.note_run(state(consumers), stalled="why")
    assert (consumers.delete("w"), consumers.delete("w"), consumers.all()) == (True, False, [])
    consumers.put("w", "run", "id > 0", 5, None)
    found = state(consumers)
    assert (found.acked, found.attempts, found.stalled, found.scanned) == (7, 0, None, 7)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("replay", [False, True])
def test_nobody_acks_for_a_consumer_that_was_unsubscribed(
    consumers: Consumers, is_known: bool, replay: bool
) -> None:
    """Also whoever has just read as it is refused, and its progress stays."""
    consumers.put("w", ":", None, 5, None)
    consumers.pop("w", 7, 0)
    if is_known:
        consumers.pop("w", None, 9)
    consumers.delete("w")
    for limit in (0, 9):
        with pytest.raises(UnknownConsumerError):
            consumers.pop("w", 9, limit, replay=replay)
    consumers.put("w", ":", None, 5, None)
    assert state(consumers).acked == 7


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("where", [None, "", "type = 'rare'"])
@pytest.mark.parametrize("limit", [0, 1])
def test_a_first_ack_of_nothing_is_recorded(
    consumers: Consumers, where: str | None, limit: int, replay: bool
) -> None:
    """Nothing acked yet and 0 acked differ: the first ack has a time even where it acks nothing."""
    consumers.put("w", "run", where, 5, None)
    consumers.pop("w", None, limit)
    assert state(consumers).updated_at is None
    consumers.pop("w", 0, limit, replay=replay)
    first = state(consumers)
    assert (first.acked, first.updated_at is None) == (0, False)
    consumers.pop("w", 0, limit, replay=replay)
    assert state(consumers) == first


def test_a_first_replay_of_all_ends_claims(consumers: Consumers, database: Database) -> None:
    """Acking 0 as a replay also forgets what claims have examined, if nothing was acked before."""
    consumers.put("w", "run", None, 5, None)
    token = claim(database)
    assert page(consumers, 0, 1, replay=True) == [1]
    assert state(consumers).updated_at is not None
    verdict = Verdict("w", token, (1,), revived=False, what="done")
    assert database.claims.settle([verdict]).lost == {(token, 1)}


@pytest.mark.parametrize("limit", [0, 5])
def test_an_ack_that_somebody_else_overtakes(
    consumers: Consumers,
    database: Any,
    second: Database,
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever acks more between the look and the ack of another one is not undone by that."""
    consumers.put("w", "run", None, 5, None)
    name = changing(database)
    change = getattr(database, name)

    def faster(*words: Any, **more: Any) -> Any:
        monkeypatch.setattr(database, name, change)
        second.consumers.pop("w", 9, 0)
        return change(*words, **more)

    monkeypatch.setattr(database, name, faster)
    if limit:
        with pytest.raises(AlreadyAckedError):
            consumers.pop("w", 3, limit)
    else:
        assert not consumers.pop("w", 3, limit).woke
    assert state(consumers).acked == 9


# --- beside claims --------------------------------------------------------------------------------


def claim(database: Database, span: int = 30_000) -> bytes:
    """Claim an event as a worker, and return the token."""
    taken = database.claims.take("w", 1, span, Worker("me"), os.urandom(16))
    assert len(taken.claims) == 1
    return taken.token


def calls(consumers: Consumers) -> list[Callable[[], object]]:
    """Return what shares the progress of a consumer with its claims."""
    return [
        lambda: consumers.pop("w", None, 5),
        lambda: consumers.pop("w", 3, 5),
        lambda: consumers.pop("w", 3, 0),
        lambda: consumers.pop("w", 0, 0),
        lambda: consumers.read_on("w", 3, 5),
    ]


def test_while_a_claim_is_out(consumers: Consumers, database: Database, clock: Clock) -> None:
    """Nobody else reads or acks, until it is settled or its lease has ended."""
    consumers.put("w", "run", None, 5, None)
    for end in ("settle", "time", "clock"):
        token = claim(database)
        ((_, event, *_),) = database.claims.out("w", ("", 0), 10)
        for call in calls(consumers):
            with pytest.raises(ConsumerInUseError, match="'w' is in use: workers have claims"):
                call()
        before = state(consumers).acked
        assert not consumers.advance("w", before, 20, 0)
        assert state(consumers).acked == before
        if end == "settle":
            database.claims.settle([Verdict("w", token, (event,), revived=False, what="done")])
        else:
            clock.move(31 if end == "time" else -3600)
        consumers.pop("w", None, 5)
        assert consumers.advance("w", before + (end == "settle"), 1, 0)


def test_claims_of_another_consumer_do_not_matter(consumers: Consumers, database: Database) -> None:
    """A claim stands in the way of its own consumer only."""
    consumers.put("w", "run", None, 5, None)
    consumers.put("v", "run", None, 5, None)
    claim(database)
    assert page(consumers, 3, 1, consumer="v") == [4]


def test_a_filter_that_fails_leaves_the_ack(consumers: Consumers) -> None:
    """Events are read before the ack is made; an ack alone reads nothing."""
    consumers.put("w", "run", "nonsense = 1", 5, None)
    consumers.pop("w", 3, 0)
    with pytest.raises(FilterError):
        consumers.pop("w", 5, 1)
    assert state(consumers).acked == 3


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
    consumers.pop("w", 2, 0, replay=True)
    assert state(consumers).scanned == 2


def test_a_watermark_skips_no_event_that_claims_have_left(
    database: Database, consumers: Consumers
) -> None:
    """It counts from the frontier, so that a replay to before that forgets it."""
    where = "type = 'note' AND id < 4"
    each = Settings(kind="each")
    consumers.put("w", ":", where, 5, None, settings=each)
    taken = take(database, 9)
    assert ids(taken) == [1, 2, 3]
    settle(database, taken, "done", [3])
    settle(database, taken, "retry", [1, 2], span=90_000)
    push(database, 5, type="rare")
    consumers.note_scanned(state(consumers), 25)
    found = state(consumers)
    assert (found.acked, found.frontier, found.scanned) == (0, 20, 25)
    assert list(database.faults()) == []
    consumers.pop("w", 0, 0, replay=True)
    found = state(consumers)
    assert (found.frontier, found.scanned) == (0, 0)


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


def test_a_thread_resumes_what_has_stalled(opened: eventq.Thread, consumers: Consumers) -> None:
    """`info` shows a stall with its attempts; `resume` ends it, and does no harm a second time."""
    consumers.put("w", "true", None, 5, None)
    consumers.note_run(state(consumers), attempts=5)
    consumers.note_run(state(consumers), stalled="five runs")
    found = opened.status().consumers[0]
    assert (found.attempts, found.stalled) == (5, "five runs")
    for _ in range(2):
        opened.resume("w")
        found = opened.status().consumers[0]
        assert (found.attempts, found.stalled) == (0, None)


IN_ORDER: dict[str, Any] = {}
AT_ONCE: dict[str, Any] = {"concurrency": 2, "on_failure": "stall"}
IN_GROUPS: dict[str, Any] = {"concurrency": 2, "on_failure": "stall", "ordered_by": "type"}
# What ends a stall at event 1, and the event that comes next.
ENDS = {"ack": 2, "ack by a pop": 2, "replay": 1, "resume": 1}


@pytest.mark.parametrize("terms", [IN_ORDER, AT_ONCE, IN_GROUPS], ids=["order", "once", "groups"])
@pytest.mark.parametrize("ends", ENDS)
def test_what_ends_a_stall_at_an_event_wakes_the_handler(
    opened: eventq.Thread, terms: dict[str, Any], ends: str
) -> None:
    """The next events wait for it at once, though no claim has applied an ack or a replay yet."""
    consumers, log = opened.consumers, opened.database.consumers
    opened.subscribe("w", "true", each=True, max_attempts=1, **terms)
    opened.push_many([("self", "note", "x")] * 3)
    opened.claim("w")[0].retry()
    assert opened.claim("w", 3) == []
    assert not consumers.is_waiting(consumers.known("w"))
    if ends == "resume":
        opened.resume("w")
    else:
        replays = ends == "replay"
        assert log.pop("w", 0 if replays else 1, int("pop" in ends), replay=replays).woke
    assert consumers.known("w").may_run
    assert consumers.is_waiting(consumers.known("w"))
    assert opened.claim("w")[0].event.id == ENDS[ends]


def test_an_ack_of_all_leaves_nothing_to_a_handler(opened: eventq.Thread) -> None:
    """It ends a stall at an event, and no event waits."""
    opened.subscribe("w", "true", each=True, max_attempts=1, **IN_GROUPS)
    opened.push_many([("self", "note", "x")] * 2)
    opened.claim("w")[0].retry()
    assert opened.claim("w") == []
    opened.ack("w", 2)
    assert opened.consumers.known("w").may_run
    assert opened.claim("w") == []
    assert not opened.consumers.is_waiting(opened.consumers.known("w"))
