"""Claims, settles and changes of a consumer, in all interleavings of their transactions."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import (
    ConsumerInUseError,
    LeaseLostError,
    StoreError,
    UnknownConsumerError,
    UnknownDeadLetterError,
)
from eventq.log.consumers import Subscriptions
from eventq.store import queue_rules
from eventq.store.sqlite import claims as store
from eventq.store.sqlite import queues
from eventq.store.sqlite.claims import Claims
from eventq.store.sqlite.database import Database
from tests.claiming import SPAN, dead, progress
from tests.conftest import Clock
from tests.engines import sqlite
from tests.race.steps import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq import Claim

EVENTS = 6
LEASE = SPAN / 1000
FILTER = "type = 'even'"
MATCHES: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True,
    FILTER: lambda number: number % 2 == 0,
    "id <> 3": lambda number: number != 3,
    "id > 0": lambda _: True,
}
TABLES = ("unfinished", "dead_letters", "queue_counts", "claim_nonces", "queues")


@dataclass
class Held:
    """What a worker has: until `end`, unless somebody ends it before."""

    token: str
    end: float


class Workers:
    """A thread, opened once for each actor, and what is known of its events."""

    def __init__(self, path: str, patch: pytest.MonkeyPatch) -> None:
        self.stage = Stage({})
        self.clock = Clock(1773829800.0)
        self.threads = [eventq.open(path) for _ in range(5)]
        patch.setattr("eventq.system.clock.now", self.clock)
        # Looks ahead, transactions and acks.
        for owner, name in ((Claims, "accept"), (Database, "begin"), (Database, "change")):
            patch.setattr(owner, name, self._stepping(getattr(owner, name), name))

    def _stepping(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(db: Any, *args: Any, **named: Any) -> Any:
            if not getattr(db, "depth", 0):  # inside a transaction SQLite lets nobody else in
                self.stage.step(name)
            return real(db, *args, **named)

        return call

    def reset(self, schedule: dict[int, int], case: Case) -> None:
        """Begin anew: one claim is out, and ends in half a minute; perhaps an event has died."""
        self.stage = Stage(schedule)
        self.case = case
        self.free = [*self.threads]
        self.held: dict[int, Held] = {}
        self.attempts: dict[int, int] = {}
        self.finished: list[int] = []  # done or dead, once for each time
        self.filter = case.filter
        self.answers: list[list[str]] = []  # the tokens that a nonce gave
        self.died = {1} if case.has_died else set()
        self.dropped: set[int] = set()
        self.is_subscribed = True
        self.is_replayed = self.is_anew = self.is_paused = False
        thread = self.threads[0]
        db = thread.database
        with db.write():
            for table in (*TABLES, "consumer_progress", "subscriptions", "events"):
                sqlite(db).run(f"DELETE FROM {table}")
            sqlite(db).run("DELETE FROM sqlite_sequence WHERE name = 'events'")
            subscribe(thread, case)
        push(thread, EVENTS)
        for claim in thread.claim("w", len(self.died)) if self.died else ():
            claim.dead()
        self.first = self.take(thread, 1)[0]

    def take(self, thread: eventq.Thread, limit: int, nonce: str | None = None) -> list[Claim]:
        """Claim events. Nobody else may have them, and their groups must have come to them."""
        given = thread.claim("w", limit, LEASE, nonce=nonce)
        assert not given or not self.is_paused, "it was leased to another one in a pause"
        assert not given or self.is_subscribed, "it was leased to another one, who has gone"
        for claim in given:
            event = claim.event.id
            held = self.held.get(event)
            if held is None or held.token != claim.token:
                assert held is None or held.end <= self.clock.at, f"{event} has two workers"
                self.check_order(event)
                self.check_attempt(claim)
                fits = MATCHES[self.filter](event) or claim.attempt > 1 or event in self.died
                assert fits, f"{event} does not match"
                self.held[event] = Held(claim.token, claim.deadline)
        return given

    def check_order(self, event: int) -> None:
        """Check that all before an event in its group are finished."""
        if self.case.ordered_by:
            before = range(event - 2, 0, -2)
            over = {*self.finished, *dead(self.threads[0].database), *self.died}
            left = [n for n in before if MATCHES[self.case.filter](n) and n not in over]
            assert not left, f"{event} does not match the order"

    def check_attempt(self, claim: Claim) -> None:
        """Check the number of an attempt."""
        event = claim.event.id
        self.attempts[event] = self.attempts.get(event, 0) + 1
        assert self.is_anew or claim.attempt == self.attempts[event], "an attempt is lost"

    def settle(self, verb: Callable[[], None], *, ends: bool = True) -> bool:
        """Settle the first claim; return whether it could be."""
        try:
            verb()
        except LeaseLostError:
            assert not self.is_mine(), "a lease was lost that held"
            return False
        assert self.is_mine(), "it was leased to another, or to nobody"
        if ends:
            del self.held[self.first.event.id]
        return True

    def is_mine(self) -> bool:
        """Return whether the first claim holds."""
        held = self.held.get(self.first.event.id)
        return held is not None and held.token == self.first.token and held.end > self.clock.at

    def end_leases(self, upto: int = 1_000) -> None:
        """Note that all leases have ended, up to an event."""
        self.held = {event: held for event, held in self.held.items() if event > upto}

    def act(self, work: Callable[[Workers, eventq.Thread], object]) -> Callable[[], None]:
        """Return an actor."""

        def acting() -> None:
            thread = self.free.pop()
            work(self, thread)
            self.free.append(thread)

        return acting


def subscribe(thread: eventq.Thread, case: Case, **more: Any) -> None:
    """Subscribe the consumer."""
    terms = {"filter": case.filter, "ordered_by": case.ordered_by, "on_failure": case.on_failure}
    thread.subscribe("w", max_attempts=case.attempts, **{**terms, **more})


def push(thread: eventq.Thread, count: int) -> None:
    """Push events, an odd one and an even one in turn."""
    thread.push_many(("self", "even" if n % 2 else "odd", "x") for n in range(count))


# --- what actors do -------------------------------------------------------------------------------


def claim(workers: Workers, thread: eventq.Thread) -> None:
    """Claim two events, if the consumer is subscribed."""
    with suppress(UnknownConsumerError):
        workers.take(thread, 2)


def ask(workers: Workers, thread: eventq.Thread) -> None:
    """Claim with a nonce, as a worker does whose first request got no answer."""
    workers.answers.append([claim.token for claim in workers.take(thread, 2, "n")])


def done(workers: Workers, _: eventq.Thread) -> None:
    """Finish the first claim."""
    if workers.settle(workers.first.done):
        workers.finished.append(workers.first.event.id)


def die(workers: Workers, _: eventq.Thread) -> None:
    """Give the first event up."""
    if workers.settle(workers.first.dead):
        workers.finished.append(workers.first.event.id)


def retry(workers: Workers, _: eventq.Thread) -> None:
    """Put the first claim back; after its last attempt it is dead, or stops the consumer."""
    if workers.settle(lambda: workers.first.retry(delay=0)):
        case = workers.case
        if case.attempts == 1 and case.on_failure == "dead":
            workers.finished.append(workers.first.event.id)


def extend(workers: Workers, _: eventq.Thread) -> None:
    """Extend the first claim by a minute."""
    if workers.settle(lambda: workers.first.extend(2 * LEASE), ends=False):
        workers.held[workers.first.event.id].end = workers.clock.at + 2 * LEASE


def expire(workers: Workers, _: eventq.Thread) -> None:
    """Let half a minute pass."""
    workers.stage.step("time")
    workers.clock.move(LEASE + 1)
    workers.stage.step("time")


def work(workers: Workers, thread: eventq.Thread) -> None:
    """Claim an event and finish it, if the consumer is subscribed."""
    try:
        given = workers.take(thread, 1)
    except UnknownConsumerError:
        return
    for claim in given:
        event = claim.event.id
        try:
            claim.done()
        except LeaseLostError:
            held = workers.held.get(event)
            is_mine = held is not None and held.token == claim.token
            assert held is None or not is_mine or held.end <= workers.clock.at, "it was lost"
        else:
            workers.held.pop(event, None)
            workers.finished.append(event)


def revive(workers: Workers, thread: eventq.Thread) -> None:
    """Try the dead event again, if it is still dead; the progress stays where it is."""
    with suppress(UnknownDeadLetterError), thread.write():
        acked = "SELECT coalesce(sum(last_acked_id), 0) FROM consumer_progress"
        before = sqlite(thread.database).one(acked)
        assert thread.retry_dead([1], "w") == 1
        assert sqlite(thread.database).one(acked) >= before, "the progress was lost"
        workers.attempts.pop(1, None)


def drop(workers: Workers, thread: eventq.Thread) -> None:
    """Forget the dead event, if it is still dead."""
    with suppress(UnknownDeadLetterError), thread.write():
        assert thread.drop_dead([1], "w") == 1
        workers.dropped.add(1)


def replay(workers: Workers, thread: eventq.Thread) -> None:
    """Go on to the middle, and back to the beginning."""
    thread.ack("w", EVENTS // 2, replay=True)
    workers.end_leases(EVENTS // 2)
    workers.finished += range(1, EVENTS // 2 + 1)
    workers.stage.step("acked")
    thread.ack("w", 0, replay=True)
    workers.is_replayed = workers.is_anew = True
    workers.end_leases()
    workers.finished.clear()  # all is to be done again
    workers.stage.step("replayed")


def ack(workers: Workers, thread: eventq.Thread) -> None:
    """Finish the first events without a claim, which is refused while somebody has one."""
    with suppress(ConsumerInUseError):
        thread.ack("w", EVENTS // 2)
        live = [event for event, held in workers.held.items() if held.end > workers.clock.at]
        assert not live, f"{live} was leased to another"
        upto = {*range(1, EVENTS // 2 + 1)}
        workers.finished += upto - {*workers.finished} - workers.died


def pause(workers: Workers, thread: eventq.Thread) -> None:
    """Pause, and go on."""
    thread.pause("w")
    workers.is_paused = True
    workers.stage.step("paused")
    workers.is_anew = True
    with thread.write():
        thread.resume("w")
        workers.is_paused = False


def replace(workers: Workers, thread: eventq.Thread) -> None:
    """Choose another filter."""
    workers.is_anew = True
    subscribe(thread, workers.case, filter=FILTER, replace=True)
    workers.filter = FILTER


def unsubscribe(workers: Workers, thread: eventq.Thread) -> None:
    """Unsubscribe, and subscribe again: the place stays, and the leases have ended."""
    with thread.write():
        thread.unsubscribe("w")
        workers.is_subscribed = False
    workers.end_leases()
    workers.stage.step("unsubscribed")
    workers.is_subscribed = True
    subscribe(thread, workers.case)


def push_more(_: Workers, thread: eventq.Thread) -> None:
    """Push two more events."""
    push(thread, 2)


@dataclass(frozen=True)
class Case:
    """Who meets, and how the consumer is subscribed."""

    acts: tuple[Callable[[Workers, eventq.Thread], None], ...]
    filter: str | None = None
    ordered_by: str | None = None
    attempts: int = 5
    on_failure: str = "dead"
    has_died: bool = False  # whether the first event is dead at the beginning


CASES = {
    "claim against claim": Case((claim, claim, claim)),
    "filtered claim against claim": Case((claim, claim), FILTER),
    "filtered claim against two": Case((claim, claim, claim), "id > 0"),
    "claim against expiry": Case((claim, expire, claim)),
    "claim against the last expiry": Case((claim, expire, claim), attempts=1),
    "claim against a nonce": Case((ask, claim, ask)),
    "nonce against expiry": Case((ask, expire, ask, claim)),
    "done against expiry": Case((done, expire, claim)),
    "death against expiry": Case((die, expire, claim)),
    "death against done": Case((die, done, claim)),
    "extend against expiry": Case((extend, expire, claim, done)),
    "extend against replay": Case((extend, replay, done)),
    "retry against claim": Case((retry, claim, claim)),
    "retry against done": Case((retry, done, claim)),
    "retry against expiry": Case((retry, expire, claim)),
    "the last retry against expiry": Case((retry, expire, claim), attempts=1),
    "a stall against claims": Case((retry, claim, claim), attempts=1, on_failure="stall"),
    "a stall against expiry": Case((retry, expire, claim), attempts=1, on_failure="stall"),
    "a stall against a pause": Case((retry, pause, claim), attempts=1, on_failure="stall"),
    "groups against done": Case((done, claim, claim), ordered_by="type"),
    "groups against death": Case((die, claim, claim), ordered_by="type", attempts=1),
    "groups against expiry": Case((expire, claim, claim, done), ordered_by="type"),
    "groups against the last expiry": Case((expire, claim, claim), ordered_by="type", attempts=1),
    "filtered groups against retry": Case((retry, claim, claim), "id <> 3", "type"),
    "groups against replay": Case((replay, claim, done), ordered_by="type"),
    "replay against claims": Case((replay, claim, retry)),
    "replay against filtered claims": Case((replay, claim, done), "id > 0"),
    "ack against claim": Case((done, ack, claim)),
    "ack against expiry": Case((expire, ack, claim)),
    "ack against replay": Case((replay, ack, claim)),
    "pause against claim": Case((pause, claim, done)),
    "pause against expiry": Case((pause, expire, claim)),
    "pause against retry": Case((pause, retry, claim)),
    "replace against claim": Case((replace, claim, claim)),
    "replace against filtered claim": Case((replace, claim, claim), "id <> 3"),
    "replace against expiry": Case((replace, expire, claim)),
    "replace against retry": Case((replace, retry, claim)),
    "replace against replay": Case((replace, replay, claim)),
    "replace against groups": Case((replace, claim, done), ordered_by="type"),
    "unsubscribe against done": Case((unsubscribe, done, claim)),
    "unsubscribe against claim": Case((unsubscribe, claim, claim)),
    "unsubscribe against expiry": Case((unsubscribe, expire, claim)),
    "push against claim": Case((push_more, claim, done)),
    "push against filtered claim": Case((push_more, claim, claim), FILTER),
    "push against groups": Case((push_more, claim, done), ordered_by="type"),
    "revival against claims": Case((revive, claim, work), has_died=True),
    "revival against itself": Case((revive, revive, work, claim), has_died=True),
    "revival against drop": Case((revive, drop, claim), has_died=True),
    "revival against expiry": Case((revive, claim, expire, work), has_died=True),
    "revival against the last expiry": Case(
        (revive, claim, expire, revive), attempts=1, has_died=True
    ),
    "revival against filtered claims": Case((revive, claim, claim), "id > 0", has_died=True),
    "revival against groups": Case((revive, claim, done), ordered_by="type", has_died=True),
    "revival against a stall": Case(
        (revive, retry, claim), attempts=1, on_failure="stall", has_died=True
    ),
    "revival against ack": Case((revive, expire, ack, work), has_died=True),
    "revival against replay": Case((revive, replay, claim), has_died=True),
    "revival against replace": Case((revive, replace, claim), has_died=True),
    "revival against unsubscribe": Case((revive, unsubscribe, work), has_died=True),
    "revival against a pause": Case((revive, pause, work), has_died=True),
}


# --- playing --------------------------------------------------------------------------------------


def perform(workers: Workers, case: Case) -> Callable[[dict[int, int]], list[int]]:
    """Return a function that plays a case by a schedule, and checks the result."""

    def once(schedule: dict[int, int]) -> list[int]:
        workers.reset(schedule, case)
        for act in case.acts:
            workers.stage.add(act.__name__, workers.act(act))
        workers.stage.run()
        check(workers)
        return workers.stage.others

    return once


def explore(play: Callable[[dict[int, int]], list[int]], most: int) -> int:
    """Play all schedules, those with few cuts first, or `most`; return how many there were."""
    waiting: deque[dict[int, int]] = deque([{}])
    count = 0
    while waiting and count < most:
        schedule = waiting.popleft()
        others = play(schedule)
        count += 1
        start = max(schedule, default=-1) + 1
        for step, able in enumerate(others[start:], start):
            waiting += [{**schedule, step: pick} for pick in range(1, able)]
    return count


def check(workers: Workers) -> None:
    """Finish everything: each matching event is finished once, by who has it."""
    thread = workers.threads[0]
    db = sqlite(thread.database)
    assert list(db.claims.faults()) == []
    check_leases(workers)
    check_nonces(workers)
    workers.clock.move(1000)
    for _ in range(2 * EVENTS):
        thread.resume("w")
        given = thread.claim("w", 9)
        if not given and progress(db) == db.events.last():
            break
        assert thread.settle(given) == []
        workers.finished += [claim.event.id for claim in given]
    found = [*workers.finished]
    found += {*dead(db)} - {*found}  # those whose lease ended after the last attempt
    state = db.consumers.get("w")
    assert state is not None
    numbers, before, now = range(1, db.events.last() + 1), workers.case.filter, state.filter
    wanted = {n for n in numbers if MATCHES[now](n)} - workers.dropped
    extra = {n for n in found if not MATCHES[now](n) and not MATCHES[before](n)}
    assert wanted <= {*found}, f"lost: {found}"
    assert workers.is_replayed or len(found) == len({*found}), f"done twice: {found}"
    assert not extra, f"they do not match: {extra}"
    assert progress(db) == numbers[-1]


def check_leases(workers: Workers) -> None:
    """Check that the leases that hold are those that workers know of."""
    now = workers.clock.at
    found = {
        f"{token.hex()}.{number}{'r' * revived}.w"
        for number, revived, token, due in sqlite(workers.threads[0].database).run(
            "SELECT event_id, revived, token, due_at FROM unfinished JOIN queues USING (queue_id)"
            " WHERE state = 0 AND replay_from IS NULL AND (revived = 1 OR event_id > (SELECT"
            " coalesce(sum(last_acked_id), 0) FROM consumer_progress))"
        )
        if due / 1000 > now
    }
    known = {held.token for held in workers.held.values() if held.end > now}
    assert found == known, "an event has two workers, or one that does not know of it"


def check_nonces(workers: Workers) -> None:
    """Check that a nonce gave the same again, or what was left of it."""
    most = {*max(workers.answers, key=len, default=[])}
    for tokens in workers.answers:
        assert {*tokens} <= most, "a nonce gave two answers: an event has two workers"


@pytest.fixture
def workers(path: str, monkeypatch: pytest.MonkeyPatch, quick: None) -> Iterator[Workers]:
    """Return workers of a fresh thread."""
    made = Workers(path, monkeypatch)
    yield made
    for thread in made.threads:
        thread.close()


@pytest.mark.parametrize("most", [12, pytest.param(3_500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("case", CASES)
def test_no_event_is_lost_or_leased_twice(case: str, most: int, workers: Workers) -> None:
    """In any interleaving, an event has one worker, and is finished."""
    assert explore(perform(workers, CASES[case]), most) > 5


# --- the plays have teeth: each of these mistakes is found ----------------------------------------


def looked_ahead(remake: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a mistake: what a claim found ahead is taken for something else."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        real = queue_rules.Change.claim

        def claim(change: Any, *args: Any) -> Any:
            return real(*(change, *args[:-1], remake(change, args[-1])))

        patch.setattr(queue_rules.Change, "claim", claim)

    return mistake


def back(change: Any, ahead: Any) -> Any:
    """Go back to where a claim looked ahead, although others have gone on since."""
    change.frontier = min(change.frontier, ahead.upto)
    return ahead


any_filter_fits = looked_ahead(lambda change, ahead: ahead._replace(filter=change.queue.filter))
any_page_fits = looked_ahead(  # also one from before a replay
    lambda change, ahead: ahead._replace(filter=change.queue.filter, after=-1)
)
an_end_that_was_not_read = looked_ahead(  # that of what was pushed since
    lambda change, ahead: ahead._replace(upto=change.queue.last)
)
a_way_back = looked_ahead(back)


def a_look_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """A claim goes by what it read before it took the lock."""
    real_look, real_take = store.Claims.look, Claims.take
    seen: dict[int, Any] = {}  # by the OS threads of the actors

    def look(claims: Any, consumer: str) -> Any:
        if (me := get_ident()) not in seen:
            return real_look(claims, consumer)
        seen[me] = seen[me] or real_look(claims, consumer)
        return seen[me]

    def take(*args: Any, **named: Any) -> Any:
        seen[get_ident()] = None
        try:
            return real_take(*args, **named)
        finally:
            del seen[get_ident()]

    patch.setattr(store.Claims, "look", look)
    patch.setattr(Claims, "take", take)


def a_pause_read_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """A claim asks only before it takes the lock whether the consumer is paused."""
    real = queue_rules.Change.claim

    def claim(change: Any, *args: Any) -> Any:
        change.queue = change.queue._replace(paused=0)
        return real(change, *args)

    patch.setattr(queue_rules.Change, "claim", claim)


def a_subscription_read_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """A claim asks only before it takes the lock whether the consumer is subscribed."""
    real = store.Claims.look

    def look(claims: Any, consumer: str) -> Any:
        return real(claims, consumer)._replace(subscribed=1)

    patch.setattr(store.Claims, "look", look)


def reworded(name: str, reword: Callable[[str], str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a mistake: statements say something else, those of `run` inside a transaction."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        real = getattr(Database, name)

        def run(db: Database, sql: str, *args: Any, **named: Any) -> Any:
            is_meant = name == "change" or db.depth
            return real(db, reword(sql) if is_meant else sql, *args, **named)

        patch.setattr(Database, name, run)

    return mistake


def without_a_second_look(sql: str) -> str:
    """Let an ack store after it has looked for leases, without another look."""
    start, both, rest = sql.partition("AND NOT EXISTS")
    if not both or "?5" not in rest:
        return sql
    return f"{start} AND ?2 AND (?5 IS NULL OR ?5 >= 0) {rest[rest.index('ON CONFLICT') :]}"


def without_nonces(sql: str) -> str:
    """Let a claim look for its nonce before the lock only."""
    sql = sql.replace("FROM claim_nonces WHERE", "FROM claim_nonces WHERE 0 AND")
    return sql.replace("INSERT INTO claim_nonces", "INSERT OR IGNORE INTO claim_nonces")


an_ack_that_looked_before = reworded("change", without_a_second_look)
nonces_known_before = reworded("run", without_nonces)


def leases_outlive_an_unsubscribe(patch: pytest.MonkeyPatch) -> None:
    """Whoever had a lease has it again when the consumer is back."""
    real = Subscriptions.unsubscribe
    leased = "SELECT token, due_at, event_id FROM unfinished WHERE state = 0"
    again = "UPDATE unfinished SET state = 0, token = ?, due_at = ? WHERE event_id = ?"

    def unsubscribe(subscriptions: Subscriptions, consumer: str) -> None:
        db = sqlite(subscriptions.database)
        with db.write():
            rows = db.run(leased)
            real(subscriptions, consumer)
            for row in rows:
                db.run(again, row)

    patch.setattr(Subscriptions, "unsubscribe", unsubscribe)


def revivals_that_stay_dead(patch: pytest.MonkeyPatch) -> None:
    """The dead letter of an event that is tried again is kept."""
    sql = queues.RISE.replace("DELETE", "SELECT event_id").replace("RETURNING event_id", "")
    patch.setattr(queues, "RISE", sql)


def worse(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a mistake: one statement says something else."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        sql = getattr(queues, name)
        assert old in sql
        patch.setattr(queues, name, sql.replace(old, new))

    return mistake


any_token = worse("DONE", "token = ?4", "?4 IS NOT NULL")
done_without_a_lease = worse("DONE", queues.LIVE, "?2 IS NOT NULL")
retry_without_a_lease = worse("FIND", queues.LIVE, "?2 IS NOT NULL")
extended_without_a_lease = worse("EXTEND", queues.LIVE, "?2 IS NOT NULL")
leases_that_end_early = worse("ENDED", "due_at <= ?2", "due_at <= ?2 + 100000")
a_replay_taken_for_an_ack = worse("READ", "replay_from,", "NULL,")
an_end_without_a_failure = worse("LEASE", "attempts + 1", "max(attempts, 1)")
groups_that_run_together = worse("HELD_GROUPS", "WHERE EXISTS", "WHERE 0 AND EXISTS")
groups_freed_as_one = worse("FREE", "SELECT min(event_id)", "SELECT max(event_id)")
a_resume_that_ends_leases = worse("RESUME", "(1, 3)", "(0, 1, 3)")
acks_that_finish_the_dead = worse("FINISH", "AND revived = 0 ", "")
revivals_not_yet_examined = worse("REVIVE", "AND event_id <= ?3", "AND ?3 >= 0")
revivals_that_have_a_group = worse(
    "REVIVE", "SELECT queue_id, 1, event_id, 1", "SELECT queue_id, 1, event_id, 2"
)
deaths_without_a_trace = worse(
    "BURY", "VALUES (?, ?, ?, ?, ?, ?)", "SELECT ?, ?, ?, ?, ?, ? WHERE 0"
)

MISTAKES = [
    (any_page_fits, "replay against filtered claims"),
    (any_filter_fits, "replace against filtered claim"),
    (an_end_that_was_not_read, "push against filtered claim"),
    (a_way_back, "filtered claim against two"),
    (a_look_before_the_lock, "claim against claim"),
    (a_look_before_the_lock, "push against groups"),
    (a_pause_read_before_the_lock, "pause against claim"),
    (an_ack_that_looked_before, "ack against claim"),
    (nonces_known_before, "claim against a nonce"),
    (a_subscription_read_before_the_lock, "unsubscribe against claim"),
    (leases_outlive_an_unsubscribe, "unsubscribe against done"),
    (any_token, "done against expiry"),
    (done_without_a_lease, "done against expiry"),
    (retry_without_a_lease, "retry against expiry"),
    (retry_without_a_lease, "death against expiry"),
    (extended_without_a_lease, "extend against expiry"),
    (leases_that_end_early, "extend against expiry"),
    (a_replay_taken_for_an_ack, "replay against claims"),
    (an_end_without_a_failure, "claim against expiry"),
    (groups_that_run_together, "groups against done"),
    (groups_freed_as_one, "groups against done"),
    (a_resume_that_ends_leases, "pause against claim"),
    (deaths_without_a_trace, "claim against the last expiry"),
    (acks_that_finish_the_dead, "revival against ack"),
    (revivals_that_stay_dead, "revival against itself"),
    (revivals_not_yet_examined, "revival against replay"),
    (revivals_that_have_a_group, "revival against claims"),
    (deaths_without_a_trace, "revival against the last expiry"),
]
COMPLAINTS = (
    r"lost|two workers|another|twice|not match|attempt|of its group|UNIQUE|unfinished|examined"
)


@pytest.mark.parametrize(("mistake", "case"), MISTAKES)
def test_the_plays_find_the_mistakes_that_they_are_made_for(
    mistake: Callable[[pytest.MonkeyPatch], None],
    case: str,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a mistake in the claims, some interleaving loses an event or gives it to two."""
    mistake(monkeypatch)
    with pytest.raises((AssertionError, StoreError), match=COMPLAINTS):
        explore(perform(workers, CASES[case]), 400)
