"""`claim` and `settle` of a thread: what a worker in Python has in hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import InputError, LeaseLostError, UsageError
from eventq.log.claims import MOST_ERROR
from eventq.store.sqlite.database import Database
from eventq.system.clock import SLOW_LOOK
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


@pytest.fixture
def full(thread: eventq.Thread, clock: Clock) -> eventq.Thread:
    """Return a thread of four events and a consumer."""
    thread.subscribe("w", max_attempts=3, backoff=(10, 10))
    thread.push_many(("self", "note", str(n)) for n in range(1, 5))
    return thread


def ids(claims: list[eventq.Claim]) -> list[int]:
    """Return the events of claims."""
    return [claim.event.id for claim in claims]


def last_error(thread: eventq.Thread) -> str | None:
    """Return why an event failed or died last."""
    sql = (
        "SELECT error FROM unfinished WHERE error IS NOT NULL UNION ALL"
        " SELECT error FROM dead_letters"
    )
    found: str | None = sqlite(thread.database).one(sql)
    return found


# --- one claim ------------------------------------------------------------------------------------


def test_a_claim_tells_what_it_is(full: eventq.Thread, clock: Clock) -> None:
    """The event, which attempt it is, until when, and a name for other processes."""
    (claim,) = full.claim("w", lease=7)
    assert (claim.event.content, claim.attempt, claim.consumer) == ("1", 1, "w")
    assert claim.deadline == pytest.approx(clock.at + 7, abs=0.001)
    assert repr(claim) == "<eventq.Claim w: event 1, attempt 1>"
    secret, event, consumer = claim.token.split(".")
    assert (len(bytes.fromhex(secret)), event, consumer) == (16, "1", "w")


def test_an_extension_counts_from_now(full: eventq.Thread, clock: Clock) -> None:
    """Whatever was left of the lease before."""
    (claim,) = full.claim("w", lease=7)
    clock.move(5)
    claim.extend(9)
    assert claim.deadline == pytest.approx(clock.at + 9, abs=0.001)
    clock.move(8.9)
    assert full.claim("w", 1)[0].event.id == 2
    claim.done()


@pytest.mark.parametrize(
    "verb",
    [
        lambda claim: claim.done(),
        lambda claim: claim.retry(),
        lambda claim: claim.dead("bad"),
        lambda claim: claim.extend(5),
    ],
)
def test_what_ends_a_lease_is_refused_after_it(
    verb: Callable[[eventq.Claim], None], full: eventq.Thread, clock: Clock
) -> None:
    """The error names the event; nothing is changed, and in a change all of it is undone."""
    (claim,) = full.claim("w")
    clock.move(31)
    with pytest.raises(LeaseLostError, match="event 1 is not leased") as caught:
        verb(claim)
    assert caught.value.event_id == 1
    with pytest.raises(LeaseLostError), full.write():
        full.push("self", "result", "of a lost lease")
        verb(claim)
    assert full.last_id() == 4
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)][-3:] == [(2, 1), (3, 1), (4, 1)]


@pytest.mark.engines("sqlite")
def test_a_retry_waits_as_it_is_told(full: eventq.Thread, clock: Clock) -> None:
    """For a delay or the back-off of the consumer, and as a failed attempt or not."""
    first, second, third = full.claim("w", 3)
    first.retry(delay=4, error="busy")
    assert last_error(full) == "busy"
    second.retry()
    third.retry(delay=0, count=False)
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)] == [(3, 1), (4, 1)]
    clock.move(4)
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)] == [(1, 2)]
    clock.move(9)
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)] == [(2, 2)]


@pytest.mark.engines("sqlite")
def test_a_death_has_a_reason(full: eventq.Thread) -> None:
    """Of a long one, its end is kept, as text that can be stored."""
    (claim,) = full.claim("w")
    claim.dead("long\0" + "x" * MOST_ERROR + "\udc80")
    assert last_error(full) == "x" * (MOST_ERROR - 1) + "?"
    (claim,) = full.claim("w")
    claim.retry(error="\0")
    assert last_error(full) == "\ufffd"


def test_a_new_subscription_applies_to_what_waits(full: eventq.Thread) -> None:
    """Its filter and order; a back-off ends, and attempts count from the first one again."""
    full.settle(retry=full.claim("w", 4), delay=60)
    full.subscribe("w", filter="id <> 2", ordered_by="type", max_attempts=3, replace=True)
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)] == [(1, 1)]
    full.subscribe("w", filter="id <> 3", max_attempts=3, replace=True)
    assert [(c.event.id, c.attempt) for c in full.claim("w", 9)] == [(4, 1)]


def test_half_a_character_orders_as_well_as_any_text(full: eventq.Thread) -> None:
    """Others may push it, escaped; its group is its own, also beside the text of the escape."""
    full.subscribe("o", ordered_by="$.k")
    for key in (r"\ud800", r"\ud800", r"\\xed\\xa0\\x80", "x"):
        full.push("self", "note", f'{{"k": "{key}"}}')
    assert ids(full.claim("o", 9)) == [1, 2, 3, 4, 5, 7, 8]


# --- many -----------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite")
def test_many_are_settled_as_one(full: eventq.Thread, clock: Clock) -> None:
    """By claim or token; those that were lost are returned as they were given."""
    claims = full.claim("w", 4)
    clock.move(20)
    assert full.extend([claims[0], claims[1].token], 30) == []
    clock.move(20)
    given: list[eventq.Claim | str] = [claims[3].token, claims[0]]
    assert full.settle(given, retry=[claims[2]], dead=[claims[1]], error="bad") == [
        claims[2],
        claims[3].token,
    ]
    assert [row.event for row in full.database.claims.dead("w", ("", 0), 9)] == [2]
    assert last_error(full) == "bad"
    assert full.extend([claims[3], claims[0].token], 30) == [claims[0].token, claims[3]]
    assert sorted((c.event.id, c.attempt) for c in full.claim("w", 9)) == [(3, 2), (4, 2)]


def test_many_retries_share_a_delay(full: eventq.Thread, clock: Clock) -> None:
    """All of them wait for as long."""
    assert full.settle(retry=full.claim("w", 4), delay=60) == []
    clock.move(59)
    assert full.claim("w", 9) == []
    clock.move(1)
    assert ids(full.claim("w", 9)) == [1, 2, 3, 4]


def test_an_event_is_settled_once(full: eventq.Thread) -> None:
    """The same claim given twice is a mistake, also by its token, and changes nothing."""
    (claim,) = full.claim("w")
    with pytest.raises(UsageError, match="event 1 is settled twice"):
        full.settle([claim], dead=[claim.token])
    claim.done()


NO_TOKENS: list[Any] = [
    "", "a.b.c", "00.1.w", "0" * 31 + ".1.w", "0" * 34 + ".1.w", "x" * 32 + ".1.w",
    "0" * 32 + ".x.w", "0" * 32 + ".1", "0" * 32 + ".-1.w", "0" * 32 + ".1rr.w",
    "0" * 32 + "." + "9" * 20 + ".w", f"{'0' * 32}.{1 << 63}.w", 7,
    "0" * 32 + ".1.w ", "0" * 32 + ".1.w\n", "0" * 32 + ".1. w", "0" * 32 + '.1."w',
    "0" * 32 + '.1."w"', "0" * 32 + '.1."',
]  # fmt: skip


def test_text_that_is_no_token_is_refused(full: eventq.Thread) -> None:
    """Whatever is wrong with it."""
    for token in NO_TOKENS:
        with pytest.raises(InputError, match="is not the token of a claim"):
            full.settle([token])
        with pytest.raises(InputError, match="is not the token of a claim"):
            full.settle(retry=[token])
        with pytest.raises(InputError, match="is not the token of a claim"):
            full.extend([token])


@pytest.mark.parametrize(
    "spell",
    [
        lambda secret, event: (secret.upper(), event),
        lambda secret, event: (secret[1:], event),
        lambda secret, event: (f" {secret[:-1]}", event),
        lambda secret, event: (f"{secret[:2]} {secret[2:]}", event),
        lambda secret, event: (secret, f"0{event}"),
        lambda secret, event: (secret, f"+{event}"),
    ],
    ids=["upper case", "short", "moved", "blanks", "zero", "sign"],
)
def test_a_token_has_one_spelling(
    spell: Callable[[str, str], tuple[str, str]],
    full: eventq.Thread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another spelling of its numbers is no token, and the claim stays as it is."""
    monkeypatch.setattr(os, "urandom", lambda size: b"\x0a" * size)
    (claim,) = full.claim("w")
    secret, event, consumer = claim.token.split(".")
    other = ".".join((*spell(secret, event), consumer))
    with pytest.raises(InputError, match="is not the token of a claim - give one that"):
        full.settle([other])
    assert full.settle([claim.token]) == []


@pytest.mark.parametrize("consumer", ["w ", " w", '"w "', '"', '""', "a.b c", "\u3000"])
def test_the_token_of_any_consumer_is_its_own(consumer: str, full: eventq.Thread) -> None:
    """One whose id has blanks at its ends, or quotes, is settled by the token of its claim only."""
    for name in {consumer, consumer.strip(), consumer.strip('"'), f'"{consumer}"'} - {"", "w"}:
        full.subscribe(name, None)
    (claim,) = full.claim(consumer)
    for wrong in (f"{claim.token} ", f"{claim.token}\n", claim.token.replace(".", ". ")):
        with pytest.raises(InputError, match="is not the token of a claim"):
            full.settle([wrong])
    assert full.settle([claim.token]) == []
    assert full.settle([claim.token]) == [claim.token]


def test_a_token_nobody_gave_is_lost(full: eventq.Thread) -> None:
    """It may be a good one of another time, or of a dead letter that was tried again."""
    (claim,) = full.claim("w")
    secret, event, consumer = claim.token.split(".", 2)
    others = [f"{'0' * 32}.1.w", f"{secret}.2.w", f"{secret}.{event}.other", f"{secret}.1r.w"]
    for token in others:
        assert full.settle([token]) == [token]
    assert full.settle([f"{secret}.{event}.{consumer}"]) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda thread: thread.claim("w", lease=0), "lease must be above zero"),
        (lambda thread: thread.claim("w", lease=-1), "lease must be seconds"),
        (lambda thread: thread.claim("w", lease=1e9), "lease must be seconds"),
        (lambda thread: thread.claim("w", lease=True), "lease must be seconds"),
        (lambda thread: thread.claim("w", lease="1"), "lease must be seconds"),
        (lambda thread: thread.claim("w", lease=float("nan")), "lease must be seconds"),
        (lambda thread: thread.claim("w", 0), "limit"),
        (lambda thread: thread.claim("w")[0].extend(0), "extension must be above zero"),
        (lambda thread: thread.extend(thread.claim("w"), 0), "extension must be above zero"),
        (lambda thread: thread.claim("w")[0].retry(delay=-1), "delay must be seconds"),
        (lambda thread: thread.settle(retry=thread.claim("w"), delay=1e9), "delay must be"),
    ],
)
def test_times_that_make_no_sense_are_refused(
    call: Callable[[Any], object], message: str, full: eventq.Thread
) -> None:
    """A lease has a length; a delay may be nothing."""
    with pytest.raises(UsageError, match=message):
        call(full)


def test_the_shortest_lease_is_a_millisecond(full: eventq.Thread, clock: Clock) -> None:
    """Less than that is not nothing."""
    (claim,) = full.claim("w", lease=0.0001)
    claim.done()
    (claim,) = full.claim("w", lease=0.0001)
    clock.move(0.002)
    with pytest.raises(LeaseLostError):
        claim.done()


# --- waiting --------------------------------------------------------------------------------------


class Watcher:
    """What a claim waits with: it takes note, lets the time pass, and does what is to happen."""

    def __init__(self, clock: Clock, patch: pytest.MonkeyPatch) -> None:
        self.waits: list[float] = []
        self.happens: list[Callable[[], object]] = []
        self.clock = clock
        patch.setattr("eventq.system.clock.monotonic", clock)
        patch.setattr(Database, "watch", lambda _: self)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> None:
        """Let the time pass, or somebody do something."""
        self.waits.append(round(seconds, 3))
        if self.happens:
            self.happens.pop(0)()
        else:
            self.clock.move(seconds)


@pytest.fixture
def watcher(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """Return what claims wait with."""
    return Watcher(clock, monkeypatch)


@pytest.mark.engines("sqlite")
def test_a_claim_waits_for_an_event(full: eventq.Thread, watcher: Watcher) -> None:
    """As long as it was told, or forever; one that finds something does not wait."""
    claims = full.claim("w", 4, wait=9)
    assert (ids(claims), watcher.waits) == ([1, 2, 3, 4], [])
    assert full.settle(claims) == []
    watcher.happens = [lambda: None, lambda: full.push("self", "note", "more")]
    assert ids(full.claim("w", wait=None)) == [5]
    assert len(watcher.waits) == 2


@pytest.mark.engines("sqlite")
def test_a_claim_waits_no_longer_than_it_was_told(full: eventq.Thread, watcher: Watcher) -> None:
    """Nor much longer than that for somebody who forgets to wake it."""
    full.subscribe("idle", filter="0")
    began = watcher.clock.at
    assert full.claim("idle", wait=2.5 * SLOW_LOOK) == []
    assert watcher.clock.at - began == pytest.approx(2.5 * SLOW_LOOK)
    assert max(watcher.waits) == SLOW_LOOK
    assert len(watcher.waits) == 3


@pytest.mark.engines("sqlite")
def test_a_claim_waits_for_the_end_of_another_one(full: eventq.Thread, watcher: Watcher) -> None:
    """And for the end of a retry's delay: it looks just then, though nobody wakes it."""
    (first, *_, last) = full.claim("w", 4, lease=SLOW_LOOK / 4)
    last.retry(delay=SLOW_LOOK / 8)
    (again,) = full.claim("w", wait=None, lease=60)
    assert (again.event.id, again.attempt) == (4, 2)
    (again,) = full.claim("w", wait=None, lease=60)
    assert (again.event.id, again.attempt) == (first.event.id, 2)
    assert sum(watcher.waits) == pytest.approx(SLOW_LOOK / 4, abs=0.01)
