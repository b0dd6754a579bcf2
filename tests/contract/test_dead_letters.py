"""Events that failed for good: found, shown, tried again and dropped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import LogicError, UnknownDeadLetterError, UsageError
from eventq.log import dead_letters

if TYPE_CHECKING:
    from tests.conftest import Clock

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


@pytest.fixture
def full(thread: eventq.Thread, clock: Clock) -> eventq.Thread:
    """Return a thread of six events and two consumers, whose events die at once."""
    clock.move(0)
    for consumer in ("w", "x"):
        thread.subscribe(consumer, max_attempts=1)
    thread.push_many(("self", "note", str(n)) for n in range(1, 7))
    return thread


def bury(thread: eventq.Thread, limit: int = 1, consumer: str = "w") -> None:
    """Claim events and give them up."""
    thread.settle(dead=thread.claim(consumer, limit), error="a bad day")


def dead(thread: eventq.Thread, consumer: str | None = None) -> list[tuple[str, int]]:
    """Return which events are dead letters, of which consumer."""
    return [(letter.consumer_id, letter.event_id) for letter in thread.dead_letters(consumer)]


def claimed(thread: eventq.Thread, limit: int = 10) -> list[int]:
    """Return the events that a claim gets."""
    return [claim.event.id for claim in thread.claim("w", limit)]


def acked(thread: eventq.Thread) -> int:
    """Return the last acked id of the consumer."""
    return next(one for one in thread.status().consumers if one.consumer_id == "w").last_acked_id


def test_a_dead_letter_tells_what_failed_and_how(full: eventq.Thread, clock: Clock) -> None:
    """The event, how often it was tried, what was said of it, and when."""
    bury(full)
    (letter,) = full.dead_letters("w")
    assert (letter.consumer_id, letter.event_id, letter.attempts) == ("w", 1, 1)
    assert letter.event == full.last(6)[0]
    assert (letter.exit_code, letter.error) == (None, "a bad day")
    assert letter.died_at_ms == int(clock.at * 1000)


def test_dead_letters_are_listed_by_consumer_and_event(
    full: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page, of one consumer or of some events, too."""
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    bury(full, 3, "x")
    bury(full, 2)
    assert dead(full) == [("w", 1), ("w", 2), ("x", 1), ("x", 2), ("x", 3)]
    assert dead(full, "w") == [("w", 1), ("w", 2)]
    assert [one.consumer_id for one in full.dead_letters(events=[2])] == ["w", "x"]
    assert [*full.dead_letters("w", [3])] == []


def test_a_retried_dead_letter_is_claimed_with_new_attempts(full: eventq.Thread) -> None:
    """It is settled as any other, and dies as any other."""
    bury(full, 3)
    assert full.retry_dead([2]) == 1
    assert dead(full) == [("w", 1), ("w", 3)]
    (claim,) = full.claim("w")
    assert (claim.event.id, claim.attempt) == (2, 1)
    claim.retry()  # its last attempt
    assert dead(full) == [("w", 1), ("w", 2), ("w", 3)]
    full.retry_dead([2])
    full.claim("w")[0].done()
    assert dead(full) == [("w", 1), ("w", 3)]
    assert claimed(full) == [4, 5, 6]


def test_the_progress_does_not_go_back_to_a_retried_event(full: eventq.Thread) -> None:
    """And none is waited for: others are finished meanwhile."""
    bury(full, 2)
    assert acked(full) == 2
    full.retry_dead([1])
    assert acked(full) == 2
    claims = full.claim("w", 2)
    assert [claim.event.id for claim in claims] == [1, 3]
    claims[1].done()
    assert acked(full) == 3
    claims[0].done()
    assert (acked(full), full.check()) == (3, [])


def test_a_retried_event_is_outside_the_order_of_its_group(full: eventq.Thread) -> None:
    """All events are alike here: those after it do not wait for it, nor it for them."""
    full.subscribe("w", max_attempts=1, ordered_by="source", replace=True)
    bury(full)
    (second,) = full.claim("w", 5)
    full.retry_dead([1])
    (first,) = full.claim("w", 5)
    assert (first.event.id, second.event.id) == (1, 2)
    second.done()
    assert claimed(full, 5) == [3]
    assert full.check() == []


def test_a_retried_event_that_fails_again_is_dead_where_others_stall(full: eventq.Thread) -> None:
    """It is not one that the consumer stops for."""
    full.subscribe("w", max_attempts=1, on_failure="stall", replace=True)
    bury(full)
    full.retry_dead([1])
    full.claim("w")[0].retry()
    assert dead(full) == [("w", 1)]
    assert claimed(full, 1) == [2]


def test_an_event_that_waits_anyway_is_claimed_once(full: eventq.Thread) -> None:
    """After a replay it comes again, and a retry of its letter does not lead to a second one."""
    bury(full, 2)
    full.ack("w", 0, replay=True)
    assert dead(full) == [("w", 1), ("w", 2)]
    (first,) = full.claim("w")
    assert full.retry_dead(None, "w") == 2
    assert dead(full) == []
    assert claimed(full, 9) == [2, 3, 4, 5, 6]
    first.done()
    assert full.check() == []


def test_a_replay_ends_the_lease_of_a_retried_event(full: eventq.Thread) -> None:
    """Then it comes in its turn."""
    bury(full, 2)
    full.retry_dead([2])
    (claim,) = full.claim("w")
    full.ack("w", 1, replay=True)
    with pytest.raises(eventq.LeaseLostError):
        claim.done()
    assert claimed(full, 2) == [2, 3]


def test_an_ack_leaves_dead_letters_and_retried_events(full: eventq.Thread) -> None:
    """They were behind the progress before."""
    bury(full, 2)
    full.retry_dead([1])
    full.ack("w", 5)
    assert dead(full) == [("w", 2)]
    assert claimed(full) == [1, 6]


def test_of_named_events_all_are_retried_or_none(full: eventq.Thread) -> None:
    """One that is no dead letter, or whose event is gone, is named."""
    bury(full, 2)
    for change in (full.retry_dead, full.drop_dead):
        with pytest.raises(UnknownDeadLetterError, match="event 3 is no dead letter of consumer"):
            change([1, 3], "w")
        with pytest.raises(UnknownDeadLetterError, match="event 1 is no dead letter of consumer"):
            change([1], "x")
        with pytest.raises(UsageError, match="an event must be a whole number"):
            change([0])
    full.prune(keep_last=5, force=True)
    with pytest.raises(LogicError, match="event 1 was deleted: it cannot be tried again"):
        full.retry_dead([1, 2])
    assert dead(full) == [("w", 1), ("w", 2)]
    assert full.retry_dead(None) == 1
    assert dead(full) == [("w", 1)]
    assert next(full.dead_letters()).event is None
    assert full.drop_dead([1]) == 1


def test_all_are_retried_page_by_page(full: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of all consumers, if none is named."""
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    bury(full, 5)
    bury(full, 1, "x")
    assert full.retry_dead(None) == 6
    assert dead(full) == []
    assert sorted(claimed(full, 5)) == [1, 2, 3, 4, 5]


def test_dropped_letters_are_forgotten_and_their_events_stay(full: eventq.Thread) -> None:
    """Also those of a consumer that is not subscribed any more."""
    bury(full, 3)
    full.unsubscribe("w")
    assert full.drop_dead([2]) == 1
    assert full.drop_dead(None, "w") == 2
    assert full.drop_dead(None, "w") == 0
    assert full.last_id() == 6


def test_a_letter_of_an_unsubscribed_consumer_waits_for_its_return(full: eventq.Thread) -> None:
    """What it has left stays, as its progress does."""
    bury(full)
    full.unsubscribe("w")
    assert full.retry_dead([1]) == 1
    full.subscribe("w")
    assert claimed(full, 2) == [1, 2]


def test_both_are_part_of_a_write(full: eventq.Thread) -> None:
    """What is undone with it was never retried."""
    bury(full, 2)
    with pytest.raises(ZeroDivisionError), full.write():
        full.retry_dead([1])
        full.drop_dead([2])
        raise ZeroDivisionError
    assert dead(full) == [("w", 1), ("w", 2)]


def test_claims_are_listed_with_their_workers(full: eventq.Thread, clock: Clock) -> None:
    """By consumer and event, those whose lease has ended too."""
    (claim,) = full.claim("w", lease=7, worker="one")
    full.claim("x", 2, worker="two")
    clock.move(8)
    listed = [*full.claims()]
    assert [(one.consumer_id, one.event_id, one.worker) for one in listed] == [
        ("w", 1, "one"), ("x", 1, "two"), ("x", 2, "two")
    ]  # fmt: skip
    first = listed[0]
    assert (first.token, first.attempt) == (claim.token, 1)
    assert first.deadline_ms - first.claimed_at_ms == 7000
    assert [*full.claims("w")] == [first]


def test_a_claim_lasts_as_the_subscription_says(full: eventq.Thread, clock: Clock) -> None:
    """Unless it says so itself; an extension is then as long as the claim."""
    full.subscribe("w", lease=90, max_attempts=1, replace=True)
    (first,), (second,) = full.claim("w"), full.claim("w", lease=5)
    assert first.deadline == pytest.approx(clock.at + 90, abs=0.001)
    assert second.deadline == pytest.approx(clock.at + 5, abs=0.001)
    clock.move(4)
    first.extend()
    second.extend()
    assert first.deadline == pytest.approx(clock.at + 90, abs=0.001)
    assert second.deadline == pytest.approx(clock.at + 5, abs=0.001)
    assert [one.deadline_ms for one in full.claims("w")] == [
        pytest.approx((clock.at + span) * 1000, abs=2) for span in (90, 5)
    ]
    clock.move(4)
    assert full.extend([first, second.token]) == []
    assert [one.deadline_ms for one in full.claims("w")] == [
        pytest.approx((clock.at + span) * 1000, abs=2) for span in (90, 5)
    ]


def test_many_go_back_without_counting(full: eventq.Thread) -> None:
    """As one claim does with `retry(count=False)`."""
    claims = full.claim("w", 2)
    assert full.settle(retry=claims, delay=0, count=False) == []
    assert [claim.attempt for claim in full.claim("w", 2)] == [1, 1]


def test_loops_have_the_same_calls(full: eventq.Thread) -> None:
    """Through the face for event loops."""
    bury(full, 2)
    path = full.path

    async def work() -> None:
        async with await eventq.AsyncThread.open(path) as thread:
            assert [one.event_id for one in await thread.dead_letters("w")] == [1, 2]
            assert await thread.retry_dead([1]) == 1
            assert await thread.drop_dead(None) == 1
            claims = await thread.claim("w", worker="loop")
            assert [one.worker for one in await thread.claims()] == ["loop"]
            assert await thread.extend(claims) == []
            assert await thread.settle(retry=claims, count=False) == []

    asyncio.run(work())
    assert full.claim("w")[0].attempt == 1


def test_a_dead_letter_that_is_tried_again_is_not_pruned(thread: eventq.Thread) -> None:
    """It is acked long ago, and yet it waits."""
    thread.push("self", "note", "x")
    thread.subscribe("w")
    (claim,) = thread.claim("w")
    claim.dead("no")
    thread.retry_dead([1])
    for _ in range(2):
        with pytest.raises(LogicError, match="'w' is yet to try event 1 again"):
            thread.prune(keep_last=0)
        found = thread.claim("w")
        assert [one.event.id for one in found] == [1]
        found[0].retry(0)
    assert thread.prune(keep_last=0, force=True) == 1


def test_only_those_that_died_by_a_time(full: eventq.Thread, clock: Clock) -> None:
    """What a person was shown is retried or dropped, and not what died since."""
    full.settle(dead=[full.claim("w")[0].token])
    by = next(full.dead_letters()).died_at_ms
    clock.move(1)
    full.settle(dead=[full.claim("w")[0].token])
    assert full.retry_dead(None, "w", died_by_ms=by - 1) == 0
    assert full.drop_dead(None, died_by_ms=by) == 1
    assert dead(full) == [("w", 2)]
    assert full.retry_dead(None, died_by_ms=by + 1_000) == 1
