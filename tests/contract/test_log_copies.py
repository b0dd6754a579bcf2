"""Copies of whole threads: the log goes on in the other one where it was, whichever engine has it.

The kind of fault: something of a log that its copy lacks, or has differently. Its members are ids,
times, keys and open questions of events, what was pruned, the last id; order, terms, pauses and
stalls of subscriptions; progress, also of who is not subscribed any more; of queues what is leased,
waits, is held, stopped its group, was revived, is dead, and a replay or an ack that no claim has
applied; the settings, the sources of runs; and `events.jsonl`. Each is tried here.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ConflictError, ReadOnlyError, UsageError
from eventq.records.consumer import Subscription
from eventq.store import consumer_copies
from eventq.store.paths import is_url
from eventq.transfer.log_import import LogImport
from tests.contract.support import mirror_lines
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.records.turn import Imported
    from tests.conftest import Clock

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into(*ENGINES),
]
PROGRESS = (
    "consumer_id", "last_acked_id", "updated_at", "pending", "attempts", "stalled", "paused",
    "waiting_id", "exit_code", "unfinished", "parked", "unexamined", "dead", "halted", "kind",
)  # fmt: skip


def added(found: Imported) -> tuple[int, int]:
    """Return how many events and consumers came."""
    return found.events, found.consumers


def terms(thread: eventq.Thread) -> list[Subscription]:
    """Return the subscriptions, without where their handlers run."""
    return [one._replace(directory=None, label=None) for one in thread.subscriptions()]


def log(thread: eventq.Thread) -> tuple[Any, ...]:
    """Return what a user sees of a log."""
    now = thread.status()
    return (
        [*thread.peek()], thread.last_id(), terms(thread), [*thread.dead_letters()],
        thread.questions(), thread.settings.get("runs.emit"),
        [[getattr(one, name) for name in PROGRESS] for one in now.consumers],
    )  # fmt: skip


def fill(thread: eventq.Thread, clock: Clock) -> None:
    """Store a log that has some of everything."""
    clock.move(0)
    thread.settings.set("runs.emit", "planner")
    thread.runs.start("w", "prompt", label="run", source="own")
    thread.subscribe("each", "true", each=True, filter="type = 'page'", concurrency=2, timeout=3.5)
    thread.subscribe("loop", "true", max_attempts=3)
    for name in ("each", "loop"):
        thread.pause(name)
    thread.subscribe("held", ordered_by="source", max_attempts=1, on_failure="stall")
    thread.subscribe("work", backoff=(1, 2), lease=5.5, max_attempts=2)
    thread.subscribe("gone")
    thread.subscribe("fresh")
    ref = thread.blobs.put(b"named by events only").ref
    for number in range(12):
        source = f"internal:a:b:{number % 2}"
        key = f"key {number}" if number % 3 == 0 else None
        thread.push(source, "page" if number % 2 else "note", f"{number} {ref}", key=key)
        clock.move(1)
    thread.ask("What now?")
    thread.push("own", "note", "behind the first event, of the run")
    thread.ack("loop", 4)
    thread.ack("gone", 7)
    thread.unsubscribe("gone")
    done, waits, dies, revives, *_ = thread.claim("work", 6)
    done.done()
    waits.retry(3600, "bad")
    dies.dead("worse")
    revives.dead("once")
    thread.retry_dead([revives.event.id])
    thread.claim("held", 5)[0].retry(error="the last attempt")


@pytest.mark.into(*ENGINES, alike=True)
def test_everything_of_a_log(thread: eventq.Thread, other: eventq.Thread, clock: Clock) -> None:
    """Events keep ids, times and keys; consumers their terms, order and progress."""
    fill(thread, clock)
    found = thread.copy_to(other, log=True)
    assert added(found) == (thread.last_id(), 6)
    assert log(other) == log(thread)
    assert other.push("self", "note", "again", key="key 3") == thread.push(
        "self", "note", "again", key="key 3"
    )
    assert other.gc(apply=True, grace=0).blobs == 0
    assert not is_url(other.path) or other.status().mirror_bytes == 0
    if not is_url(other.path):
        assert len(mirror_lines(other.path)) == thread.last_id()
    assert thread.copy_to(other, log=True)[:4] == (0, 0, 0, 0)
    assert added(thread.copy_to(other, log=True)) == (0, 0)
    other.subscribe("gone")
    assert next(iter(other.pop("gone"))).id == 8
    other.runs.get("run").step("a")
    thread.runs.get("run").step("a")
    assert [other.last()[-1].source, thread.last()[-1].source] == ["own", "own"]
    other.runs.start("w", "p")
    assert other.last()[-1].source == "planner"


def test_what_is_leased_is_due_in_the_copy(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """The claims of the source are no claims of the copy, which has their attempts."""
    fill(thread, clock)
    leased = [one.event_id for one in thread.claims("work")]
    thread.copy_to(other, log=True)
    assert (len(leased), [*other.claims()]) == (2, [])
    again = other.claim("work", 9)
    assert [one.event.id for one in again][:3] == [*leased, 4]  # the dead one that was revived
    assert [one.attempt for one in again][:3] == [2, 2, 1]
    assert [one.event_id for one in thread.claims("work")] == leased


def test_a_group_that_stopped_stays_so(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """What is held behind it goes on when somebody resumes the copy."""
    fill(thread, clock)
    thread.copy_to(other, log=True)
    clock.move(60)
    for one in (thread, other):
        assert "own" not in {claim.event.source for claim in one.claim("held", 20)}
    other.resume("held")
    assert [claim.event.id for claim in other.claim("held", 20)] == [1]


@pytest.mark.parametrize("what", ["ack", "replay"])
def test_what_no_claim_has_applied_yet(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock, what: str
) -> None:
    """An ack or a replay is applied by the next claim of the copy, as by that of the source."""
    clock.move(0)
    thread.subscribe("work")
    thread.push_many(("self", "note", str(number)) for number in range(9))
    for claim in thread.claim("work", 5):
        claim.done()
    if what == "ack":
        thread.ack("work", 8)
    else:
        thread.ack("work", 2, replay=True)
    thread.copy_to(other, log=True)
    assert [one.event.id for one in other.claim("work", 9)] == (
        [9] if what == "ack" else [3, 4, 5, 6, 7, 8, 9]
    )
    assert log(other)[-1][0][:2] == log(thread)[-1][0][:2]


def test_a_copy_goes_on_where_the_last_one_ended(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """What the source has done since comes, and nothing twice."""
    fill(thread, clock)
    thread.copy_to(other, log=True)
    clock.move(7200)
    thread.push("self", "note", "late", key="late")
    thread.ack("loop", 9)
    thread.resume("each")
    thread.drop_dead([3])
    for claim in thread.claim("work", 20):
        claim.done()
    thread.subscribe("new")
    thread.unsubscribe("fresh")
    found = thread.copy_to(other, log=True)
    assert (found.events, found.notes) == (1, ("consumer 'fresh' is not in the source: it stays",))
    other.unsubscribe("fresh")
    assert log(other) == log(thread)
    assert added(thread.copy_to(other, log=True)) == (0, 0)


def test_what_was_pruned_stays_so(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """Ids go on after those that were pruned, on either side, and also if nothing is left."""
    clock.move(0)
    thread.push_many(("self", "note", str(number)) for number in range(9))
    thread.prune(before_id=5, force=True)
    assert added(thread.copy_to(other, log=True)) == (5, 0)
    assert [one.id for one in other.peek()] == [5, 6, 7, 8, 9]
    other.prune(before_id=7, force=True)
    thread.push("self", "note", "late")
    assert added(thread.copy_to(other, log=True)) == (1, 0)
    assert [one.id for one in other.peek()] == [7, 8, 9, 10]
    thread.prune(before_id=11, force=True)
    other.prune(before_id=11, force=True)
    assert added(thread.copy_to(other, log=True)) == (0, 0)
    assert other.push("self", "note", "next").id == 11


def refused(thread: eventq.Thread, other: eventq.Thread, what: str) -> None:
    """Expect a copy to be refused, and to leave log and memory as they were."""
    thread.contexts.create("main").append("of the source")
    before = log(other), [*other.contexts], [*other.blobs]
    with pytest.raises(ConflictError, match=what) as raised:
        thread.copy_to(other, log=True)
    assert raised.value.fix == "copy into a thread that is new"
    assert (log(other), [*other.contexts], [*other.blobs]) == before


@pytest.mark.parametrize("what", ["other events", "more events", "more acked", "another key"])
def test_a_destination_that_went_on_by_itself(
    thread: eventq.Thread, other: eventq.Thread, what: str
) -> None:
    """It is refused, and nothing is copied, not even of the memory."""
    for one in (thread, other):
        one.subscribe("w")
    thread.push_many(("self", "note", str(number)) for number in range(3))
    if what == "other events":
        other.push("self", "note", "mine")
        refused(thread, other, "event 1 is another one in the destination than in the source")
        return
    thread.copy_to(other, log=True)
    if what == "more events":
        other.push("self", "note", "mine")
        refused(thread, other, "event 4 is in the destination, and not in the source")
    elif what == "more acked":
        other.ack("w", 2)
        refused(thread, other, "'w' has acked 2 in the destination, and 0 in the source")
    else:
        event = thread.push("self", "note", "keyed", key="ours")
        other.push(event.source, event.type, event.content, key="mine")
        refused(thread, other, "event 4 is another one")


def test_a_memory_that_was_copied_before(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """The log comes later, into a thread that has the memory already."""
    fill(thread, clock)
    assert added(thread.copy_to(other)) == (0, 0)
    assert ([*other.peek()], other.subscriptions()) == ([], [])
    found = thread.copy_to(other, log=True)
    assert (found.turns, found.blobs, added(found)) == (0, 0, (thread.last_id(), 6))


def test_some_contexts_have_no_log(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A selection of contexts with the log is refused."""
    with pytest.raises(UsageError, match="leave one of the two out"):
        thread.copy_to(other, [], log=True)


STEPS = ("add_events", "add_consumers", "add_dead_letters")


@pytest.mark.parametrize("step", STEPS)
def test_a_copy_that_is_broken_off(
    thread: eventq.Thread,
    other: eventq.Thread,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Nothing of the log is there, nor a context; doing it again completes it."""
    fill(thread, clock)
    real: Callable[[LogImport], None] = getattr(LogImport, step)

    def broken(self: LogImport) -> None:
        real(self)
        raise LookupError

    with monkeypatch.context() as patch:
        patch.setattr(LogImport, step, broken)
        with pytest.raises(LookupError):
            thread.copy_to(other, log=True)
    assert ([*other.peek()], other.last_id(), other.subscriptions()) == ([], 0, [])
    assert [*other.contexts] == []
    assert other.check() == []
    assert added(thread.copy_to(other, log=True)) == (thread.last_id(), 6)
    assert log(other) == log(thread)


def test_a_long_key(thread: eventq.Thread, other: eventq.Thread) -> None:
    """It comes along, also where the engine keeps its hash in its place."""
    key = "k" * 1_500
    thread.push("self", "note", "x", key=key)
    assert added(thread.copy_to(other, log=True)) == (1, 0)
    assert added(thread.copy_to(other, log=True)) == (0, 0)
    if other.is_shared or not thread.is_shared:
        assert other.push("self", "note", "x", key=key).id == 1


def test_a_copy_in_a_transaction_that_is_undone(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock
) -> None:
    """It is a part of that; no line of `events.jsonl` says what was not committed."""
    fill(thread, clock)
    with pytest.raises(LookupError), other.write():
        thread.copy_to(other, log=True)
        raise LookupError
    assert (other.last_id(), other.subscriptions()) == (0, [])
    with other.write():
        thread.copy_to(other, log=True)
        assert is_url(other.path) or other.status().mirror_bytes == 0
    assert log(other) == log(thread)
    assert is_url(other.path) or len(mirror_lines(other.path)) == thread.last_id()


@pytest.mark.into("postgres")
def test_a_copy_that_loses_the_server(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is ended in the middle takes all of the log with it, and says so."""
    fill(thread, clock)
    real = LogImport.add_consumers

    def lost(self: LogImport) -> None:
        database: Any = other.database
        with pytest.raises(eventq.errors.EventqError):
            database.rows("SELECT pg_terminate_backend(pg_backend_pid())")
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(LogImport, "add_consumers", lost)
        with pytest.raises(eventq.errors.EventqError, match="nothing of it is stored"):
            thread.copy_to(other, log=True)
    assert (other.last_id(), other.subscriptions(), [*other.contexts]) == (0, [], [])
    assert added(thread.copy_to(other, log=True)) == (thread.last_id(), 6)


def test_what_did_not_arrive_is_named(
    thread: eventq.Thread, other: eventq.Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is compared before the commit: a copy that lost something stores nothing."""
    fill(thread, clock)
    kind: Any = type(other.database)
    restore = kind.restore
    with monkeypatch.context() as patch:
        patch.setattr(kind, "restore", lambda self, rows: restore(self, rows[:-1]))
        with pytest.raises(ConflictError, match=f"event {thread.last_id()} is another one"):
            thread.copy_to(other, log=True)
    for name, what in (("restore", "consumer '.*' did"), ("restore_dead", "a dead letter did")):
        with monkeypatch.context() as patch:
            patch.setattr(consumer_copies, name, lambda *_: None)
            with pytest.raises(eventq.errors.DamagedError, match=what):
                thread.copy_to(other, log=True)
    assert (other.last_id(), other.subscriptions(), [*other.contexts]) == (0, [], [])


def test_who_follows_the_destination_sees_what_comes(
    thread: eventq.Thread, other: eventq.Thread
) -> None:
    """A watcher that waits before the copy is woken by it."""
    thread.push("self", "note", "hello")
    with other.database.watch() as watcher, eventq.open(other.path) as again:
        thread.copy_to(again, log=True)
        assert watcher.wait(60)
    assert [event.content for event in other.peek()] == ["hello"]


@pytest.mark.into(*ENGINES, alike=True)
def test_only_a_shared_thread_has_labels_and_only_a_directory_directories(
    thread: eventq.Thread, other: eventq.Thread
) -> None:
    """Where a handler runs is left out where it makes no sense."""
    thread.subscribe("w", "true", directory="/", label="gpu" if thread.is_shared else None)
    thread.copy_to(other, log=True)
    (one,) = other.subscriptions()
    assert one.label == ("gpu" if thread.is_shared and other.is_shared else None)
    assert one.directory == (None if other.is_shared else "/")
    assert added(thread.copy_to(other, log=True)) == (0, 0)


def test_a_destination_that_is_only_read(thread: eventq.Thread, other: eventq.Thread) -> None:
    """It is refused before anything is read."""
    thread.push("self", "note", "hello")
    with eventq.open(other.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        thread.copy_to(reader, log=True)


def test_many_events(thread: eventq.Thread, other: eventq.Thread) -> None:
    """More than a page of them, some large, come in order."""
    kinds = [*product(("a", "b"), ("x" * 5000, "y"))]
    thread.push_many(("self", *kinds[number % 4]) for number in range(2_500))
    assert added(thread.copy_to(other, log=True)) == (2_500, 0)
    assert [*other.peek()] == [*thread.peek()]
