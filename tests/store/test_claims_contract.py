"""What the interface promises of claims, sentence by sentence, on each engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import FilterError, UnknownConsumerError
from eventq.records.event import NewEvent
from eventq.store import rules
from eventq.store.queue_rows import Verdict
from tests.claiming import (
    SPAN,
    attempts,
    dead,
    ids,
    is_lost,
    leased,
    progress,
    push,
    settle,
    subscribe,
    take,
    verdict,
)
from tests.store.looking import of, page_module, rows_of, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.store.sqlite.database import Database
    from tests.conftest import Clock

FULL = 10_000  # unfinished events, with which a claim examines nothing new
pytestmark = pytest.mark.usefixtures("clock")


# --- claiming -------------------------------------------------------------------------------------


def test_events_are_claimed_in_order_once(database: Database, second: Database) -> None:
    """Two claims get different events, in order; nobody gets one that is out."""
    subscribe(database)
    push(database, 5)
    assert ids(take(database, 2)) == [1, 2]
    assert ids(take(second, 2)) == [3, 4]
    assert ids(take(database, 2)) == [5]
    assert ids(take(second, 2)) == []
    assert leased(database) == [1, 2, 3, 4, 5]
    assert progress(database) == 0


def test_a_lease_ends_at_its_deadline(database: Database, clock: Clock) -> None:
    """At that very moment it is lost, and somebody else gets the event."""
    subscribe(database)
    push(database)
    claim = take(database)
    clock.at = claim.until / 1000
    assert is_lost(database, claim)
    assert attempts(take(database)) == {1: 2}


def test_a_short_lease_ends_before_a_longer_one(database: Database, clock: Clock) -> None:
    """Whichever began first: the end of one says nothing about the other."""
    subscribe(database)
    push(database, 3)
    for span in (90_000, 5_000, 60_000):
        take(database, span=span)
    clock.move(6)
    assert attempts(take(database, 9)) == {2: 2}


def test_the_process_of_a_lost_lease_is_not_noted(database: Database, clock: Clock) -> None:
    """Whoever has the event now would take it for its own handler, and kill it."""
    subscribe(database)
    push(database)
    lost = take(database)
    clock.move(31)
    held = take(database)
    database.claims.note("w", held.token, [1], "mine")
    database.claims.note("w", lost.token, [1], "of the lost one")
    assert [row.process for row in database.claims.out("w", ("", 0), 9)] == ["mine"]


def test_a_stuck_head_holds_up_progress_and_nothing_else(database: Database) -> None:
    """Behind an event that takes long, others are claimed and finished."""
    subscribe(database)
    push(database, 300)
    head = take(database)
    while ids(claim := take(database, 100)):
        assert not is_lost(database, claim)
    assert progress(database) == 0
    assert of(database, "unfinished") == 1
    assert not is_lost(database, head)
    assert progress(database) == 300


def test_progress_ends_before_the_first_unfinished_event(database: Database) -> None:
    """Finished events count up to the first that is not, in whatever order they finish."""
    subscribe(database)
    push(database, 4)
    claims = [take(database) for _ in range(4)]
    found = []
    for place in (1, 0, 3, 2):
        settle(database, claims[place])
        found.append(progress(database))
    assert found == [0, 2, 2, 4]


def test_progress_has_the_time_of_its_claim(database: Database) -> None:
    """To the millisecond, also where an event does not match, or is done at once."""
    subscribe(database, filter="type = 'rare'")
    subscribe(database, "v")
    push(database, 2)
    take(database)
    settle(database, take(database, consumer="v"), consumer="v")
    for consumer in ("w", "v"):
        state = database.consumers.get(consumer)
        assert state is not None
        assert state.updated_at == "2026-03-18T10:30:00.123Z"


def test_a_replay_before_the_first_claim_is_none_of_its_business(database: Database) -> None:
    """There is nothing to forget: while the consumer is paused, not even its filter is looked at."""
    subscribe(database, filter="datetime(created_at) < datetime('now')")
    push(database, 2)
    for acked in (1, 0):
        database.consumers.pop("w", acked, 0, replay=not acked)
    database.consumers.pause("w", paused=True)
    assert ids(take(database)) == []


def test_events_that_do_not_match_are_finished(database: Database) -> None:
    """With a filter, progress passes what does not match, once that was examined."""
    subscribe(database, filter="type = 'rare'")
    push(database, 9)
    push(database, type="rare")
    push(database, 4)
    claim = take(database, 5)
    assert ids(claim) == [10]
    assert progress(database) == 9
    settle(database, claim)
    assert progress(database) == 14
    assert ids(take(database)) == []


def test_an_empty_claim_writes_nothing(database: Database, second: Database) -> None:
    """A claim that finds nothing changes nothing, with a nonce or without."""
    subscribe(database)
    push(database, 2)
    claim = take(database, 2)
    before, seen = written(database), written(second)
    for nonce in (None, "new"):
        assert ids(take(database, nonce=nonce)) == []
    assert (written(database), written(second)) == (before, seen)
    settle(database, claim)
    assert written(second) != seen
    before, seen = written(database), written(second)
    for nonce in (None, "new"):
        assert ids(take(database, nonce=nonce)) == []
    assert (written(database), written(second)) == (before, seen)


def pause(db: Database, _: Clock) -> None:
    """Pause the consumer."""
    db.consumers.pause("w", paused=True)


def stall(db: Database, _: Clock) -> None:
    """Let the first event fail twice."""
    settle(db, take(db), "retry")
    settle(db, take(db), "retry")


def move(*seconds: float) -> Callable[[Database, Clock], None]:
    """Return a function that claims all, and moves the clock before each further claim of all."""

    def claim(db: Database, clock: Clock) -> None:
        take(db, 9)
        for more in seconds[:-1]:
            clock.move(more)
            assert ids(take(db, 9)) == [1, 2, 3]
        clock.move(seconds[-1])

    return claim


@pytest.mark.parametrize("before", [pause, stall, move(-0.9), move(-3600, 0), move(31, 0)])
def test_a_claim_that_may_have_nothing_writes_nothing(
    before: Callable[[Database, Clock], None], database: Database, clock: Clock
) -> None:
    """While its consumer rests, and after leases have ended: not again and again."""
    subscribe(database, attempts=2, on_failure="stall")
    push(database, 3)
    before(database, clock)
    before_it = written(database)
    assert ids(take(database)) == []
    assert written(database) == before_it


def test_a_consumer_that_is_not_subscribed_claims_nothing(database: Database) -> None:
    """The error is that of a pop."""
    push(database)
    with pytest.raises(UnknownConsumerError):
        take(database)


def test_a_filter_that_reads_the_clock_is_refused(database: Database) -> None:
    """Whether an event below the frontier is finished must not depend on the time."""
    subscribe(database, filter="created_at > datetime('now', '-1 hour')")
    push(database)
    with pytest.raises(FilterError, match="clock"):
        take(database)


def test_a_paused_consumer_gets_nothing_and_may_settle(database: Database) -> None:
    """A pause keeps leases."""
    subscribe(database)
    push(database, 3)
    claim = take(database)
    database.consumers.pause("w", paused=True)
    assert ids(take(database)) == []
    assert not is_lost(database, claim)
    database.consumers.pause("w", paused=False)
    assert ids(take(database)) == [2]


def test_with_many_unfinished_events_a_claim_examines_nothing_new(database: Database) -> None:
    """The rows of a queue are bounded; each that is finished makes room for a new event."""
    subscribe(database)
    push(database, FULL + 5)
    first = take(database)
    others = take(database, FULL)
    while of(database, "unfinished") < FULL:
        take(database, FULL)
    assert (of(database, "unfinished"), of(database, "frontier")) == (FULL, FULL)
    before_it = written(database)
    assert ids(take(database, 10)) == []
    assert written(database) == before_it
    settle(database, first)
    assert ids(take(database, 10)) == [FULL + 1]
    settle(database, others, "retry", ids(others)[:2])
    assert ids(take(database, 10)) == ids(others)[:2]
    assert of(database, "unfinished") == FULL


@pytest.mark.parametrize("filter", [None, "id > 0"])
def test_a_claim_ends_where_the_queue_is_full(
    filter: str | None, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets what there is room for, with a filter and without; the rest is examined later."""
    monkeypatch.setattr(rules, "MOST_UNFINISHED", 4)
    subscribe(database, filter=filter)
    push(database, 9)
    head, claim = take(database, 3), take(database, 3)
    assert (ids(head), ids(claim), ids(take(database, 3))) == ([1, 2, 3], [4], [])
    settle(database, claim)
    assert ids(take(database, 3)) == [5]
    assert of(database, "frontier") == 5


def test_one_group_may_fill_the_queue_and_hold_up_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events behind their group count as unfinished too."""
    monkeypatch.setattr(rules, "MOST_UNFINISHED", 40)
    subscribe(database, ordered_by="type")
    push(database, 45, type="a")
    push(database, type="b")
    assert ids(take(database, 5)) == [1]
    assert of(database, "unfinished") == 40
    assert ids(take(database, 5)) == []


# --- nonces ---------------------------------------------------------------------------------------


def test_a_claim_repeated_with_its_nonce_returns_the_same_claims(database: Database) -> None:
    """It has the same token, attempts and end; another nonce gets others."""
    subscribe(database)
    push(database, 5)
    claim = take(database, 2, nonce="n")
    assert take(database, 5, nonce="n", worker="other") == claim
    assert ids(take(database, 1, nonce="m")) == [3]
    assert not is_lost(database, claim, events=[1])
    assert ids(take(database, 2, nonce="n")) == [2]


def test_a_nonce_returns_no_lease_that_has_ended(database: Database, clock: Clock) -> None:
    """What somebody else may have by now is not returned again."""
    subscribe(database)
    push(database)
    take(database, nonce="n")
    clock.move(31)
    assert ids(take(database, nonce="n")) == []
    assert attempts(take(database)) == {1: 2}


def test_a_repeated_claim_says_when_the_first_of_its_leases_ends(
    database: Database, clock: Clock
) -> None:
    """A worker that goes by its end extends all of them in time."""
    subscribe(database)
    push(database, 2)
    claim = take(database, 2, nonce="n")
    clock.move(5)
    settle(database, claim, "extend", [2], span=60_000)
    again = take(database, 2, nonce="n")
    assert (ids(again), again.until, again.span) == ([1, 2], claim.until, SPAN)


@pytest.mark.parametrize("filter", [None, "type = 'rare'"])
def test_a_nonce_that_got_nothing_is_not_kept(database: Database, filter: str | None) -> None:
    """Also where a filter had to look for events: what comes later is claimed under it."""
    subscribe(database, filter=filter)
    if filter:
        push(database, 3)
    assert ids(take(database, nonce="n")) == []
    (event,) = push(database, type="rare")
    assert ids(take(database, nonce="n")) == [event]


def test_a_nonce_is_forgotten_after_a_day(database: Database, clock: Clock) -> None:
    """Their number is bounded."""
    subscribe(database)
    push(database, 3)
    settle(database, take(database, nonce="old"))
    clock.move(24 * 3600 - 1)
    take(database, nonce="new")
    assert rows_of(database, "claim_nonces", "nonce") == [("new",), ("old",)]
    clock.move(2)
    take(database, nonce="newer")
    assert rows_of(database, "claim_nonces", "nonce") == [("new",), ("newer",)]


def test_a_nonce_holds_for_a_day_and_no_longer(database: Database, clock: Clock) -> None:
    """Then it is a new claim, also when nothing else was stored meanwhile."""
    subscribe(database)
    push(database, 3)
    settle(database, take(database, nonce="n"))
    clock.move(24 * 3600)
    assert ids(take(database, nonce="n")) == []
    clock.move(3600)
    claim = take(database, nonce="n")
    assert ids(claim) == [2]
    assert take(database, nonce="n") == claim


def test_a_nonce_with_large_events_returns_all_of_them(database: Database) -> None:
    """However many bytes a claim has got, its repetition returns as many."""
    subscribe(database)
    push(database, 4, content="x" * (3 << 20))
    retried = take(database, 2)
    settle(database, retried, "retry")
    claim = take(database, 4, nonce="n")
    assert len(ids(claim)) > 2
    assert sorted(ids(take(database, 4, nonce="n"))) == sorted(ids(claim))


# --- leases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["done", "retry", "dead", "extend"])
def test_a_lease_that_has_ended_is_nobodys(database: Database, clock: Clock, what: str) -> None:
    """Its worker may do nothing with it, though nobody else has the event yet."""
    subscribe(database)
    push(database)
    claim = take(database)
    clock.move(29.9)
    assert not is_lost(database, claim, "extend", span=SPAN)
    clock.move(30.0)
    assert is_lost(database, claim, what, span=SPAN)
    assert attempts(take(database)) == {1: 2}
    assert is_lost(database, claim, what, span=SPAN)


def test_a_lease_of_an_hour_ends_when_the_clock_is_set_back(
    database: Database, clock: Clock
) -> None:
    """An end that is further away than the lease is long counts as past."""
    subscribe(database)
    push(database, 3)
    claims = [take(database), take(database)]
    clock.move(-3600)
    assert is_lost(database, claims[0])
    assert attempts(take(database, 5)) == {1: 2, 2: 2, 3: 1}


def test_a_clock_that_is_set_back_bit_by_bit_ends_leases_too(
    database: Database, clock: Clock
) -> None:
    """A lease that its worker has lost can be claimed by others at once."""
    subscribe(database)
    push(database, 9)
    claim = take(database)
    again: list[int] = []
    for _ in range(3):
        clock.move(-0.6)
        again += ids(take(database, 2))
    assert is_lost(database, claim)
    assert again == [2, 3, 1, 4, 2, 3]


def test_a_wait_ends_when_the_clock_is_set_back(database: Database, clock: Clock) -> None:
    """A retry in ten seconds is not one in an hour and ten seconds."""
    subscribe(database)
    push(database)
    settle(database, take(database), "retry", span=10_000)
    clock.move(-3600)
    assert ids(take(database)) == [1]


def test_an_expired_last_attempt_is_dead_at_the_next_claim(
    database: Database, clock: Clock
) -> None:
    """Nobody has said why, so the letter does."""
    subscribe(database, attempts=1)
    push(database, 2)
    take(database)
    clock.move(31)
    assert ids(take(database)) == [2]
    (letter,) = database.claims.dead("w", ("", 0), 9)
    assert (letter.event, letter.attempts, letter.error) == (1, 1, "its lease ended")
    assert progress(database) == 1


# --- settling -------------------------------------------------------------------------------------


def test_nothing_is_due_when_nothing_is_left(database: Database, clock: Clock) -> None:
    """A lease that was settled has no end that anybody would wait for."""
    subscribe(database)
    push(database)
    claim = take(database)
    assert database.claims.next_due("w") == SPAN
    settle(database, claim)
    assert database.claims.next_due("w") is None
    settle(database, claim)  # lost
    clock.move(31)
    assert database.claims.next_due("w") is None


def test_a_retry_waits_for_its_delay(database: Database, clock: Clock) -> None:
    """Others are claimed meanwhile."""
    subscribe(database)
    push(database, 2)
    assert not is_lost(database, take(database), "retry", span=5_000)
    assert ids(take(database)) == [2]
    assert database.claims.next_due("w") == 5_000
    clock.move(4.9)
    assert ids(take(database)) == []
    clock.move(0.2)
    assert attempts(take(database)) == {1: 2}


def test_a_retry_without_a_delay_backs_off(database: Database, clock: Clock) -> None:
    """It waits for the back-off less a half at most."""
    subscribe(database, backoff=10_000, backoff_most=60_000)
    push(database)
    settle(database, take(database), "retry", span=None)
    assert 5_000 <= (database.claims.next_due("w") or 0) <= 10_000
    clock.move(10)
    settle(database, take(database), "retry", span=None)
    assert 10_000 <= (database.claims.next_due("w") or 0) <= 20_000


def test_a_retry_that_does_not_count_gives_the_attempt_back(database: Database) -> None:
    """However often that is, the event does not die of it."""
    subscribe(database, attempts=2)
    push(database)
    for _ in range(9):
        claim = take(database)
        assert attempts(claim) == {1: 1}
        assert not is_lost(database, claim, "retry", counts=False)
    settle(database, take(database), "retry")
    assert dead(database) == []
    settle(database, take(database), "retry", code=3, error="why")
    (letter,) = database.claims.dead("w", ("", 0), 9)
    assert letter[:5] == ("w", 1, 2, 3, "why")


def test_many_are_settled_as_one_and_the_lost_are_reported(
    database: Database, clock: Clock
) -> None:
    """Those that hold are settled, whatever became of the others."""
    subscribe(database)
    subscribe(database, "v")
    push(database, 3)
    early = take(database, span=1_000)
    late = take(database, 2)
    other = take(database, 3, consumer="v")
    clock.move(2)
    verdicts = [verdict(early), verdict(late), verdict(other, "dead", consumer="v")]
    assert database.claims.settle(verdicts).lost == {(early.token, 1)}
    assert (progress(database), progress(database, "v")) == (0, 3)
    assert leased(database) == [1]
    assert database.claims.settle([verdict(late, consumer="nobody")]).lost


def test_an_ended_lease_is_lost_beside_the_one_that_followed_it(
    database: Database, clock: Clock
) -> None:
    """Two tokens of one event in one settle: only that of the lease that holds is accepted."""
    subscribe(database)
    push(database)
    ended = take(database)
    clock.move(31)
    held = take(database)
    verdicts = [verdict(ended), verdict(held)]
    assert database.claims.settle(verdicts).lost == {(ended.token, 1)}
    assert progress(database) == 1


def test_a_settle_tells_whether_it_has_freed_an_event_of_any_consumer(database: Database) -> None:
    """Whoever waits is woken then, and else not."""
    for name in ("v", "w"):
        subscribe(database, name)
    push(database)
    first, second = take(database, consumer="v"), take(database)
    put_back = verdict(first, "retry", consumer="v")
    assert database.claims.settle([put_back, verdict(second)]).freed
    assert not settle(database, take(database, consumer="v"), consumer="v").freed


def test_a_worker_is_not_told_a_later_deadline_than_is_stored(
    opened: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long an extension waits for the database, the worker knows when it ends."""
    times = iter(range(1_800_000_000, 1_900_000_000))  # each look at the clock is a second later
    monkeypatch.setattr("eventq.system.clock.now", lambda: float(next(times)))
    subscribe(opened.database)
    opened.push("self", "note", "x")
    (claim,) = opened.claim("w", lease=1000)
    claim.extend(2000)
    (row,) = opened.database.claims.out(None, ("", 0), 9)
    assert claim.deadline <= row.until / 1000


# --- death ----------------------------------------------------------------------------------------


def test_a_death_is_announced_and_that_of_an_announcement_is_not(database: Database) -> None:
    """With `emit_dead`, the log says what died; nothing says that this died."""
    subscribe(database, emit_dead=True)
    push(database, type="note")
    why = "no 'ü' at blob:blake3:" + "0" * 64
    settle(database, take(database), "dead", error=why)
    event = database.events.get(2)
    assert event is not None
    assert (event.type, event.subtype) == ("record", "dead-letter")
    content = json.loads(event.content)
    assert (content["consumer"], content["event_id"], content["error"]) == ("w", 1, why)
    settle(database, take(database), "dead")
    assert dead(database) == [1, 2]
    assert database.events.last() == 2


@pytest.mark.parametrize(
    ("type", "subtype"), [("record", None), ("record", "x"), ("x", "dead-letter")]
)
def test_only_what_says_that_an_event_died_may_die_in_silence(
    type: str, subtype: str | None, database: Database
) -> None:
    """Other records are events as any."""
    subscribe(database, emit_dead=True)
    database.events.append([NewEvent("self", type, "x", subtype)])
    settle(database, take(database), "dead")
    event = database.events.get(2)
    assert event is not None
    assert event.subtype == "dead-letter"


def test_a_dead_letter_tells_of_the_last_death(database: Database) -> None:
    """An event that is replayed and dies again has one dead letter, the newer one."""
    subscribe(database)
    push(database)
    for why in ("first", "second"):
        settle(database, take(database), "dead", error=why)
        database.consumers.pop("w", 0, 0, replay=True)
    assert [row.error for row in database.claims.dead("w", ("", 0), 9)] == ["second"]


def test_a_failure_is_known_until_the_next_one(database: Database) -> None:
    """Who gives an event back without a word leaves what is known of it."""
    subscribe(database)
    push(database)
    settle(database, take(database), "retry", code=3, error="no disk")
    settle(database, take(database), "retry", counts=False)
    assert rows_of(database, "unfinished", "code, error") == [(3, "no disk")]
    assert database.claims.statuses("w")["w"].code == 3


def test_a_stall_without_groups_stops_all_claims(database: Database) -> None:
    """What runs may finish; nothing new is leased, until the event is acked."""
    subscribe(database, attempts=1, on_failure="stall")
    push(database, 5)
    bad, good, worse = take(database), take(database), take(database)
    settle(database, bad, "retry")
    assert ids(take(database)) == []
    assert of(database, "stalled_at") == 1
    assert not is_lost(database, good)
    settle(database, worse, "retry")
    assert (ids(take(database)), of(database, "stalled_at")) == ([], 1)
    database.consumers.pop("w", 1, 0)
    assert ids(take(database)) == []  # for event 3 has stopped it too
    assert of(database, "stalled_at") == 3
    database.consumers.pop("w", 3, 0)
    assert ids(take(database)) == [4]
    assert of(database, "stalled_at") is None
    assert dead(database) == []


def test_a_stall_with_groups_stops_its_group(database: Database) -> None:
    """The events of others go on."""
    subscribe(database, attempts=1, on_failure="stall", ordered_by="type")
    for kind in "abab":
        push(database, type=kind)
    claim = take(database, 2)
    settle(database, claim, "retry", [1])
    settle(database, claim, "done", [2])
    assert ids(take(database, 5)) == [4]
    assert of(database, "stalled_at") is None
    push(database, type="c")
    with database.write():  # it stops no other group either when the subscription changes
        subscribe(database, attempts=1, on_failure="stall", ordered_by="type", replace=True)
        database.claims.refilter("w")
    assert ids(take(database, 5)) == [5]


# --- groups ---------------------------------------------------------------------------------------


def test_events_of_a_group_come_one_after_another(database: Database) -> None:
    """A retry holds its group, a death lets it go on, and so does an end."""
    subscribe(database, ordered_by="type")
    for kind in "aaab":
        push(database, type=kind)
    claim = take(database, 9)
    assert ids(claim) == [1, 4]
    settle(database, claim, "retry", [1], span=5_000)
    assert ids(take(database, 9)) == []
    database.consumers.pop("w", 1, 0, replay=True)
    claim = take(database, 9)
    assert ids(claim) == [2]
    settle(database, claim, "dead")
    assert ids(take(database, 9)) == [3]


def test_the_next_of_a_group_is_claimed_at_once(database: Database) -> None:
    """Nobody waits for the end of a lease that was settled."""
    subscribe(database, ordered_by="type")
    push(database, 2, type="a")
    assert settle(database, take(database, 2)).freed
    assert database.claims.next_due("w") == 0
    assert ids(take(database)) == [2]
    assert not settle(database, take(database)).freed


@pytest.mark.parametrize("filter", [None, "id > 0"])
def test_a_claim_looks_past_a_group_that_is_busy(filter: str | None, database: Database) -> None:
    """However many of its events come first: others can be leased now."""
    subscribe(database, filter=filter, ordered_by="type")
    for kind in "aaaab":
        push(database, type=kind)
    assert ids(take(database)) == [1]
    assert ids(take(database)) == [5]


def test_a_death_by_the_end_of_a_lease_lets_its_group_go_on(
    database: Database, clock: Clock
) -> None:
    """The claim that notices it gets the next of the group."""
    subscribe(database, ordered_by="type", attempts=1)
    push(database, 2, type="a")
    take(database, 2)
    clock.move(31)
    assert ids(take(database)) == [2]


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        (['{"k": 1}', '{"k": 1}'], [1]),
        (['{"k": 1}', '{"k": "1"}'], [1, 2]),
        (['{"k": null}', '{"k": null}'], [1, 2]),
        (["{}", "{}", "no JSON", "", "[]"], [1, 2, 3, 4, 5]),
        (['{"k": {"a": 1}}', '{"k":{"a":1}}'], [1]),
        (['{"k": ""}', '{"k": ""}'], [1]),
    ],
)
def test_groups_by_a_path(database: Database, contents: list[str], found: list[int]) -> None:
    """Equal values are a group; what is missing, null or no JSON is in none."""
    subscribe(database, ordered_by="$.k")
    database.events.append([NewEvent("self", "note", content) for content in contents])
    assert ids(take(database, 9)) == found


def test_a_group_goes_on_after_its_consumer_was_subscribed_anew(database: Database) -> None:
    """What waited for its group is not forgotten when there are no groups any more."""
    subscribe(database, ordered_by="type")
    push(database, 3, type="a")
    take(database)
    database.consumers.delete("w")
    subscribe(database)
    found = []
    while ids(claim := take(database)):
        found += ids(claim)
        settle(database, claim)
    assert found == [1, 2, 3]
    assert progress(database) == 3


# --- events that are large ------------------------------------------------------------------------


def test_large_events_are_read_a_few_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is taken for a deleted one: not by a claim, nor by a new filter, nor under a nonce."""
    subscribe(database)
    push(database, 5, content="x" * 600)
    claim = take(database, 5, nonce="a")
    monkeypatch.setattr(f"{page_module(database)}.PAGE_BYTES", 1_000)
    assert ids(take(database, 5, nonce="a")) == [1, 2, 3, 4, 5]
    settle(database, claim, "retry")
    again = take(database, 5)
    assert 0 < len(ids(again)) < 5
    settle(database, again, "retry")
    with database.write():
        subscribe(database, filter="id <> 2", replace=True)
        database.claims.refilter("w")
    found = []
    while ids(claim := take(database, 5)):
        found += ids(claim)
        settle(database, claim)
    assert (found, progress(database)) == ([1, 3, 4, 5], 5)


# --- events that are deleted ----------------------------------------------------------------------


def test_deleted_events_are_finished(database: Database) -> None:
    """A claim passes over them, whether they were claimed before or not."""
    subscribe(database)
    push(database, 8)
    settle(database, take(database, 3), "retry")
    database.events.prune(6)
    assert ids(take(database, 2)) == [6, 7]
    assert progress(database) == 5


def test_a_deleted_event_lets_its_group_go_on(database: Database) -> None:
    """The claim that notices it gets the next of the group that is stored."""
    subscribe(database, ordered_by="type")
    push(database, 4, type="a")
    push(database, type="b")
    claim = take(database, 2)
    assert ids(claim) == [1, 5]
    settle(database, claim, "retry", [1])
    database.events.prune(4)
    assert ids(take(database)) == [4]


def test_a_lease_of_a_deleted_event_may_be_settled(database: Database, clock: Clock) -> None:
    """If it ends instead, the event is finished, and its group goes on."""
    subscribe(database, ordered_by="type")
    push(database, 3, type="a")
    claim = take(database, 2)
    database.events.prune(2)
    assert not is_lost(database, claim)
    claim = take(database)
    database.events.prune(3)
    clock.move(31)
    assert ids(take(database)) == [3]
    assert progress(database) == 2


# --- progress that others write -------------------------------------------------------------------

WRITES: dict[str, Callable[[Database, int], object]] = {
    "replay": lambda db, at: db.consumers.pop("w", at, 0, replay=True),
    "update": lambda db, at: db.change(
        "UPDATE consumer_progress SET last_acked_id = ? WHERE consumer_id = 'w'", (at,)
    ),
    "replace": lambda db, at: db.change(
        "INSERT OR REPLACE INTO consumer_progress (consumer_id, last_acked_id, updated_at)"
        " VALUES ('w', ?, '2026-03-18T10:30:00.123Z')",
        (at,),
    ),
}


@pytest.mark.parametrize("filter", [None, "id > 0"])
@pytest.mark.parametrize("ordered_by", [None, "type"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_replay(
    database: Database, filter: str | None, ordered_by: str | None, is_settled: bool
) -> None:
    """All tokens are invalid, what was done above it is forgotten, and dead letters stay."""
    check_replay(database, "replay", filter, ordered_by, is_settled)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("write", ["update", "replace"])
@pytest.mark.parametrize("filter", [None, "id > 0"])
@pytest.mark.parametrize("ordered_by", [None, "type"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_replay_by_another_program(
    database: Database, write: str, filter: str | None, ordered_by: str | None, is_settled: bool
) -> None:
    """It is seen by what it writes."""
    check_replay(database, write, filter, ordered_by, is_settled)


def check_replay(
    database: Database, write: str, filter: str | None, ordered_by: str | None, is_settled: bool
) -> None:
    """Let somebody go back, and claim again."""
    subscribe(database, filter=filter, ordered_by=ordered_by)
    for number in range(6):
        push(database, type=f"t{number}")
    claim = take(database, 5)
    settle(database, claim, "done", [1, 2])
    settle(database, claim, "dead", [3])
    assert progress(database) == 3
    WRITES[write](database, 1)
    if is_settled:
        assert is_lost(database, claim, events=[4, 5])
    assert attempts(take(database, 9)) == dict.fromkeys(range(2, 7), 1)
    assert is_lost(database, claim, events=[4, 5])
    assert dead(database) == [3]
    assert progress(database) == 1


def test_an_ack_finishes_all_up_to_it(database: Database) -> None:
    """Leases above it stay, those up to it are lost."""
    check_ack(database, "replay")


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("write", ["update", "replace"])
def test_an_ack_by_another_program(database: Database, write: str) -> None:
    """It is seen by what it writes."""
    check_ack(database, write)


def check_ack(database: Database, write: str) -> None:
    """Let somebody ack, and settle."""
    subscribe(database)
    database.consumers.pop("w", 0, 0)  # so that there is a row to change
    push(database, 6)
    take(database, 1)
    low, high = take(database, 2), take(database, 2)
    WRITES[write](database, 3)
    assert is_lost(database, low)
    assert not is_lost(database, high, events=[4])
    assert progress(database) == 4
    WRITES[write](database, 6)
    assert is_lost(database, high, events=[5])
    assert ids(take(database)) == []
    assert progress(database) == 6


def test_a_replay_is_seen_by_a_claim_that_is_repeated(database: Database) -> None:
    """Its nonce returns nothing that the replay took."""
    subscribe(database)
    push(database, 2)
    settle(database, take(database))
    take(database, nonce="n")
    database.consumers.pop("w", 0, 0, replay=True)
    assert ids(take(database, nonce="n")) == []
    assert of(database, "unfinished") == 0
    assert ids(take(database, 9)) == [1, 2]


# --- subscriptions that change --------------------------------------------------------------------


def test_unsubscribing_forgets_how_a_consumer_was_run(database: Database) -> None:
    """Who subscribes it anew, with an older program maybe, has what that says."""
    subscribe(database, ordered_by="type")
    database.consumers.delete("w")
    assert database.consumers.put("w", "command", None, 5, None)
    state = database.consumers.get("w")
    assert state is not None
    assert (state.settings.kind, state.settings.ordered_by) == ("loop", None)


def test_unsubscribing_ends_leases_and_keeps_the_rest(database: Database) -> None:
    """A later subscription goes on with what is unfinished."""
    subscribe(database)
    push(database, 4)
    claim = take(database, 3)
    settle(database, claim, "dead", [1])
    settle(database, claim, "done", [3])
    database.consumers.delete("w")
    assert is_lost(database, claim, events=[2])
    subscribe(database)
    assert ids(take(database, 9)) == [2, 4]
    assert dead(database) == [1]


def test_a_new_filter_finishes_what_waits_and_does_not_match(database: Database) -> None:
    """Leases may be settled, the frontier stays, and so do dead letters and what matches."""
    subscribe(database, attempts=2)
    for kind in "abababab":
        push(database, type=kind)
    claim = take(database, 6)
    settle(database, claim, "retry", [1, 2])
    settle(database, claim, "dead", [4])
    settle(database, claim, "done", [3])
    with database.write():
        subscribe(database, filter="type = 'b'", replace=True, attempts=2)
        database.claims.refilter("w")
    assert progress(database) == 1
    assert (of(database, "frontier"), of(database, "unfinished")) == (6, 3)
    assert not is_lost(database, claim, events=[5, 6])
    assert attempts(take(database, 9)) == {2: 2, 8: 1}
    assert dead(database) == [4]


def test_a_new_filter_lets_groups_go_on(database: Database) -> None:
    """The event behind one that is finished by it can be claimed; a stall that it takes ends."""
    subscribe(database, attempts=1, on_failure="stall")
    push(database, 2, type="a")
    push(database, 2, type="b")
    settle(database, take(database), "retry")
    with database.write():
        subscribe(database, filter="id > 1", ordered_by="type", replace=True)
        database.claims.refilter("w")
    assert of(database, "stalled_at") is None
    claim = take(database, 9)
    assert ids(claim) == [2, 3]
    settle(database, claim, "retry", [2], span=5_000)
    with database.write():
        subscribe(database, filter="id > 2", ordered_by="type", replace=True)
        database.claims.refilter("w")
    assert ids(take(database, 9)) == []
    settle(database, claim, "done", [3])
    assert ids(take(database, 9)) == [4]


def test_a_new_order_holds_for_what_waits(database: Database) -> None:
    """Events that were in different groups come one after another when they are in one."""
    subscribe(database, ordered_by="type")
    for kind in "abac":
        push(database, type=kind)
    claim = take(database, 9)
    assert ids(claim) == [1, 2, 4]
    settle(database, claim, "retry", [1, 2])
    with database.write():
        subscribe(database, ordered_by="source", replace=True)
        database.claims.refilter("w")
    again = take(database, 9)
    assert ids(again) == [1]
    settle(database, again)
    settle(database, claim, "retry", [4])
    for number in (2, 3, 4):
        again = take(database, 9)
        assert ids(again) == [number]
        settle(database, again)
    assert progress(database) == 4


@pytest.mark.parametrize("what", ["retry", "extend"])
def test_the_end_of_an_event_frees_no_earlier_one_of_its_group(
    what: str, database: Database
) -> None:
    """What was leased beside it before there was a group keeps its lease, or waits on."""
    subscribe(database)
    push(database, 3)
    claim = take(database, 2)
    with database.write():
        subscribe(database, ordered_by="type", replace=True)
        database.claims.refilter("w")
    settle(database, claim, what, [1], span=5_000)
    settle(database, claim, "done", [2])
    assert ids(take(database, 9)) == []


def test_a_stall_that_ends_waits_for_its_group(database: Database) -> None:
    """It was leased beside what is the first of its group now: the next lease has to wait."""
    subscribe(database, attempts=1, on_failure="stall")
    push(database, 2)
    claim = take(database, 2)
    with database.write():
        subscribe(database, attempts=1, on_failure="stall", ordered_by="type", replace=True)
        database.claims.refilter("w")
    settle(database, claim, "retry", [2])
    database.claims.resume("w")
    assert ids(take(database, 9)) == []
    settle(database, claim, "done", [1])
    assert attempts(take(database, 9)) == {2: 1}


def test_a_consumer_that_claimed_nothing_has_nothing_to_change(database: Database) -> None:
    """A new filter of one that has no queue is no change."""
    subscribe(database)
    database.claims.refilter("w")
    assert of(database, "count(*)") == 0


# --- lists ----------------------------------------------------------------------------------------


def test_claims_and_dead_letters_are_listed_page_by_page(database: Database) -> None:
    """By consumer and event, of all consumers or of one, each once."""
    push(database, 3)
    for name in ("b", "a"):
        subscribe(database, name)
        take(database, 3, consumer=name)
    everything = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    for read in (database.claims.out, database.claims.dead):
        for limit in (1, 2, 9):
            for consumer, wanted in ((None, everything), ("b", everything[3:])):
                found: list[tuple[str, int]] = []
                while rows := read(consumer, found[-1] if found else ("", 0), limit):
                    assert len(rows) <= limit
                    found += [(row.consumer, row.event) for row in rows]
                assert found == wanted
        for row in database.claims.out(None, ("", 0), 9):
            dying = Verdict(row.consumer, row.token, (row.event,), False, "dead")
            assert not database.claims.settle([dying]).lost


def test_the_status_tells_what_waits_for_its_group(database: Database) -> None:
    """Unfinished events are leased, parked behind one of their group, or wait for an attempt."""
    subscribe(database, ordered_by="type")
    push(database, 3, type="a")
    push(database, 2, type="b")
    take(database)
    second = take(database)
    settle(database, second, "retry", ids(second))
    status = database.claims.statuses("w")["w"]
    assert (status.unfinished, status.leased, status.parked) == (4, 1, 2)


def test_the_status_counts_a_day(database: Database, clock: Clock) -> None:
    """What ended before is not in it."""
    subscribe(database)
    push(database, 4)
    claim = take(database, 4, span=72 * 3600 * 1000)
    settle(database, claim, "done", [1, 2])
    settle(database, claim, "retry", [4])
    assert attempts(take(database, span=72 * 3600 * 1000)) == {4: 2}
    clock.move(23 * 3600)
    settle(database, claim, "dead", [3])
    status = database.claims.statuses("w")["w"]
    assert (status.done, status.failed, status.buried) == (2, 2, 1)
    clock.move(2 * 3600)
    status = database.claims.statuses("w")["w"]
    assert (status.done, status.failed, status.buried) == (0, 1, 1)
    assert (status.unfinished, status.leased, status.dead, status.first) == (1, 1, 1, 4)


# --- counts ---------------------------------------------------------------------------------------


def test_counts_are_kept_by_the_minute_for_a_day(database: Database, clock: Clock) -> None:
    """Each minute in which something ended has a row; those of yesterday go."""
    subscribe(database, attempts=2)
    push(database, 5)
    claim = take(database, 5)
    settle(database, claim, "done", [1, 2])
    settle(database, claim, "retry", [3])
    settle(database, claim, "dead", [4])
    settle(database, take(database), "retry")
    counts = ("queue_counts", "minute, done, failed, dead")
    minute = int(clock() // 60)
    assert rows_of(database, *counts) == [(minute, 2, 3, 2)]
    settle(database, claim, "extend", [5], span=48 * 3600 * 1000)
    clock.move(24 * 3600)
    settle(database, claim, "retry", [5], counts=False)
    assert [row[0] for row in rows_of(database, *counts)] == [minute]
    settle(database, take(database))
    assert [row[0] for row in rows_of(database, *counts)] == [minute, minute + 24 * 60]
    push(database)
    clock.move(60)
    settle(database, take(database))
    assert [row[0] for row in rows_of(database, *counts)] == [
        minute + 24 * 60,
        minute + 24 * 60 + 1,
    ]
