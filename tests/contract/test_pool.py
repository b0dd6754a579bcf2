"""The handlers of one consumer that is run for each event, without any process."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import StoreError
from eventq.log.notifier import Notifier
from eventq.running.pool import Pool
from eventq.store.queue_rows import Verdict, Worker
from eventq.system import processes
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

    import eventq
    from eventq.running.handlers import Job
    from tests.conftest import Clock

pytestmark = pytest.mark.usefixtures("quick")


class Handlers:
    """Stands in for processes: they end when `codes` has what they exit with."""

    def __init__(self, thread: eventq.Thread, patch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.clock = clock
        self.started: list[list[int]] = []  # the events of each
        self.attempts: list[int] = []
        self.codes: dict[int, int] = {}  # by the first event
        self.pids: dict[int, int] = {}
        self.orphans: list[str] = []
        self.deaf: set[str] = set()  # those of them that are not killed
        self.left: dict[int, list[int]] = {}  # the processes in the group of each, by the event
        self.signals: list[tuple[int, int]] = []  # the first event, and what its handler got
        self.warnings: list[str] = []
        self.error: Exception | None = None  # what a start raises
        thread.journal.listener = self.warnings.append
        patch.setattr("eventq.system.clock.monotonic", clock)
        patch.setattr(Notifier, "committed", lambda *_: None)
        patch.setattr(Notifier, "wake_one", lambda _: None)
        patch.setattr(processes, "reap", lambda pid: self.codes.pop(self.pids[pid], None))
        patch.setattr(processes, "kill_group", self.kill)
        patch.setattr(processes, "group", lambda pid: self.left.get(self.pids[pid], []))
        patch.setattr(processes, "has_group", lambda pid: self.pids[pid] in self.left)
        for module in ("system.processes", "running.pool"):
            patch.setattr(f"eventq.{module}.end_orphan", self.end_orphan)
        self.pool = Pool("w", thread.consumers, self, thread.journal)  # type: ignore[arg-type]

    def start(self, job: Job, note: Callable[[int], object]) -> Handlers:
        """Start one; what it has written is here, too."""
        if self.error is not None:
            raise self.error
        numbers = [event.id for event in job.events]
        self.started.append(numbers)
        self.attempts.append(job.attempt)
        pid = 1_000_000_000 + len(self.started)
        self.pids[pid] = numbers[0]
        note(pid)
        return self

    def end_orphan(self, process: str, *_: float) -> bool:
        """Note a handler of another worker, and whether it is gone."""
        self.orphans.append(process)
        return process not in self.deaf

    def kill(self, pid: int, number: int) -> None:
        """Note a signal."""
        self.signals.append((self.pids[pid], number))

    def tail(self) -> str:
        """Return what one has written."""
        return "output"

    def close(self) -> None:
        """Close the log of one."""

    def ended(self, *_: Any) -> None:
        """Take note of an end."""

    def advance(self) -> float | None:
        """Let the pool do what it can; return in how many seconds it wants to look again."""
        at = self.pool.advance()
        return None if at is None else round(at - self.clock.at, 3)

    def end(self, event: int, code: int) -> None:
        """Let the handler of an event end."""
        self.codes[event] = code
        self.advance()


@pytest.fixture
def handlers(thread: eventq.Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Handlers:
    """Return the handlers of a consumer that waits for its first event."""
    return Handlers(thread, monkeypatch, clock)


def fill(thread: eventq.Thread, count: int = 5, **terms: Any) -> None:
    """Subscribe the consumer, and push some events."""
    thread.subscribe("w", "command", each=True, **terms)
    thread.push_many(("self", "note", str(n)) for n in range(count))


def unfinished(thread: eventq.Thread) -> list[tuple[int, int, int, str | None]]:
    """Return id, state, attempts and error of what is not finished."""
    rows = sqlite(thread.database).run("SELECT event_id, state, attempts, error FROM unfinished")
    return [(event, state, attempts, error) for event, state, attempts, error in rows]


def leased_for(thread: eventq.Thread, clock: Clock) -> list[int]:
    """Return for how many seconds events are still leased."""
    rows = thread.database.claims.out("w", ("", 0), 9)
    return [round(row.until / 1000 - clock.at) for row in rows]


@pytest.mark.parametrize("concurrency", [0, 1, 2, 3])
def test_as_many_run_as_may(concurrency: int, handlers: Handlers, thread: eventq.Thread) -> None:
    """Another one begins when one has ended."""
    fill(thread, concurrency=concurrency)
    first = max(1, concurrency)
    handlers.advance()
    assert handlers.started == [[n] for n in range(1, first + 1)]
    assert not handlers.pool.has_room
    handlers.advance()
    assert len(handlers.started) == first
    handlers.end(1, 0)
    assert handlers.started[first:] == [[first + 1]]
    for event in range(2, 6):
        handlers.end(event, 0)
    assert handlers.pool.has_room


@pytest.mark.parametrize("error", [OSError("no more processes"), StoreError("full", "wait")])
def test_a_handler_that_cannot_be_started_has_not_failed(
    error: Exception, handlers: Handlers, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event goes back, uncounted, as soon as the store takes that: nothing was tried."""
    fill(thread, concurrency=1)
    handlers.error = error
    with pytest.raises(type(error)):
        handlers.advance()
    with monkeypatch.context() as patch:
        patch.setattr(type(thread.database.claims), "settle", refusing(error))
        with pytest.raises(type(error)):
            handlers.advance()
    handlers.error = None
    handlers.advance()
    assert (handlers.started, handlers.attempts) == ([[1]], [1])


def refusing(error: Exception) -> Callable[..., object]:
    """Return a function that raises an error."""

    def refuse(*_: object) -> object:
        raise error

    return refuse


def test_a_group_that_was_not_looked_at_for_long_is_known_by_its_mark(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its supervisor was stopped it may have ended, and somebody else have its number."""
    marks = ["EVENTQ_HANDLER=5:8"]
    begun = clock.at
    monkeypatch.setattr("eventq.system.clock.monotonic", clock)
    monkeypatch.setattr(processes, "birth", lambda _: "8" if clock.at == begun else None)
    monkeypatch.setattr(processes, "has_group", lambda _: True)
    monkeypatch.setattr(processes, "group", lambda _: [7])
    monkeypatch.setattr(processes, "group_has", lambda _, mark: mark == marks[0])
    group = processes.Group(5, None)
    group.code = 1
    for step in (0.9, 0.9, 60):
        clock.move(step)
        assert not group.is_gone()
    marks[0] = "EVENTQ_HANDLER=5:9"
    clock.move(0.9)
    assert not group.is_gone(), "nobody can have its number so soon"
    clock.move(1.1)
    assert group.is_gone()


def test_who_takes_over_kills_the_handler_that_has_the_event(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """Its worker was stopped for longer than its lease, but the handler may still run."""
    fill(thread, 1, concurrency=2)
    claims = thread.database.claims
    taken = claims.take("w", 1, 30_000, Worker("other"), os.urandom(16))
    claims.note("w", taken.token, [1], "of the other")
    handlers.advance()
    assert (handlers.started, handlers.orphans) == ([], [])
    clock.move(31)
    handlers.advance()
    assert (handlers.started, handlers.orphans) == ([[1]], ["of the other"])


def test_a_paused_consumer_is_not_looked_at_again_and_again(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """What is due then waits for the end of the pause, which wakes the pool."""
    fill(thread, 1, concurrency=2)
    (claim,) = thread.claim("w")
    claim.retry(delay=0)
    thread.pause("w")
    assert handlers.advance() is None
    assert handlers.started == []
    thread.resume("w")
    assert handlers.advance() is not None
    assert handlers.started == [[1]]


@pytest.mark.parametrize("code", [0, 65, 75])
def test_a_handler_that_ends_after_its_time_has_failed(
    code: int, handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """Asked to end, it may do so with any exit code: nobody knows what it has left undone."""
    fill(thread, 1, timeout=5, concurrency=1)
    handlers.advance()
    clock.move(6)
    handlers.advance()
    handlers.end(1, code)
    assert unfinished(thread) == [(1, 1, 1, "output\ntimed out after 5 seconds")]
    assert handlers.signals == [(1, signal.SIGTERM)]
    (line,) = handlers.warnings
    assert line.startswith("retry: consumer=w event=1 attempt=1/21: timed out after 5 seconds; ")


def test_a_handler_that_does_not_end_is_killed(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """It is asked at its timeout, and killed 5 seconds later; until it is gone, again."""
    fill(thread, 1, timeout=5, lease=300, concurrency=1)
    assert handlers.advance() == 5
    clock.move(5)
    assert handlers.advance() == 5
    assert handlers.signals == [(1, signal.SIGTERM)]
    clock.move(4)
    assert handlers.advance() == 1
    clock.move(1)
    assert handlers.advance() == 5
    clock.move(5)
    handlers.advance()
    assert handlers.signals == [(1, signal.SIGTERM), *[(1, signal.SIGKILL)] * 2]
    assert handlers.warnings == []  # its outcome is reported once it is gone


def test_a_claim_is_extended_at_a_third_of_its_lease(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """From then on it lasts as long as at first."""
    fill(thread, 1, lease=30, concurrency=1)
    assert handlers.advance() == 10
    for _ in range(2):
        clock.move(9)
        assert handlers.advance() == 1
        assert leased_for(thread, clock) == [21]
        clock.move(1)
        assert handlers.advance() == 10
        assert leased_for(thread, clock) == [30]


def test_a_handler_whose_claim_is_lost_is_killed(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """Nothing is said of its result, and nothing more is tried than to end it."""
    fill(thread, 1, lease=30, concurrency=1)
    handlers.advance()
    sql = "INSERT INTO consumer_progress VALUES ('w', 1, '2026-01-01T00:00:00.000Z')"
    sqlite(thread.database).change(sql)
    clock.move(10)
    assert handlers.advance() == 5
    assert handlers.signals == [(1, signal.SIGKILL)]
    for _ in range(3):
        clock.move(10)
        handlers.advance()
    assert {*handlers.signals} == {(1, signal.SIGKILL)}
    assert len(handlers.signals) == 4
    handlers.end(1, -9)
    assert handlers.pool.runs == []
    assert [line.rpartition(": ")[2] for line in handlers.warnings] == ["its handler is killed"]


def test_a_result_after_the_lease_does_not_count(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """Nobody could extend it, as the machine slept: the event is handled again."""
    fill(thread, 1, lease=30, concurrency=1)
    handlers.advance()
    clock.move(31)
    handlers.end(1, 0)
    assert (handlers.started, handlers.attempts) == ([[1], [1]], [1, 2])
    first, second = handlers.warnings
    assert first.endswith("event=1 ended after its lease: the result does not count")
    assert re.match(r"retry: consumer=w event=1 attempt=1/21: the lease of .+ ended; ", second)


@pytest.mark.parametrize("code", [0, -15])
def test_what_is_ended_as_the_worker_stops_has_not_failed(
    code: int, handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """Nothing more is started; what runs at the end of the time is ended, and goes back."""
    fill(thread, 3, lease=300, max_attempts=1, concurrency=2)
    handlers.advance()
    handlers.pool.stop(clock.at + 10)
    assert handlers.advance() == 10
    handlers.end(1, 0)
    assert handlers.started == [[1], [2]]
    clock.move(10)
    handlers.advance()
    assert handlers.signals == [(2, signal.SIGTERM)]
    handlers.codes[2] = code
    assert handlers.advance() is None
    assert unfinished(thread) == [(2, 1, 0, None)]
    assert handlers.warnings == ["dispatch: consumer=w event=2 is stopped"]


def test_the_events_of_a_failed_batch_are_run_singly(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """The batch counts for none of them; after them, batches are run again."""
    fill(thread, 5, batch=3, max_attempts=1)
    handlers.advance()
    handlers.end(1, 3)
    for event in (1, 2, 3):
        handlers.end(event, 0)
    assert handlers.started == [[1, 2, 3], [1], [2], [3], [4, 5]]
    assert handlers.attempts == [1, 1, 1, 1, 1]


def test_nobody_looks_at_events_behind_one_that_waits(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """In order, its batch was put back, so they could run at once, but it is not their turn."""
    fill(thread, 3, batch=3, backoff=(60, 60))
    handlers.advance()
    handlers.end(1, 3)
    handlers.codes[1] = 3
    wait = handlers.advance()
    assert wait is not None
    assert 30 <= wait <= 60
    assert not thread.consumers.due(thread.consumers.known("w"))


def test_events_behind_one_that_has_died_are_run_at_once(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """In order, its end makes it their turn, also when it died as its lease ended."""
    fill(thread, 4, max_attempts=1, on_failure="dead")
    thread.settle(retry=thread.claim("w", 4)[1:], delay=0, count=False)
    clock.move(31)
    handlers.advance()
    assert handlers.started == [[2]]
    (state,) = thread.database.claims.out("w", ("", 0), 9)
    end = Verdict("w", state.token, (2,), False, "done")
    assert thread.database.claims.settle([end]).freed


def test_dead_letters_that_are_retried_run_singly_and_beside_the_order(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """Also while the first event waits for another attempt; the order goes on where it was."""
    fill(thread, 6, batch=2, backoff=(60, 60), max_attempts=2, on_failure="dead")
    handlers.advance()
    handlers.end(1, 65)
    handlers.end(1, 65)
    handlers.end(2, 65)
    handlers.codes[3] = 0
    handlers.advance()
    thread.retry_dead([1, 2])
    handlers.end(5, 3)
    handlers.end(5, 3)
    assert handlers.started == [[1, 2], [1], [2], [3, 4], [5, 6], [5], [1]]
    handlers.end(1, 0)
    handlers.end(2, 0)
    assert handlers.started[7:] == [[2]]
    assert handlers.attempts == [1] * 8
    assert [(event, attempts) for event, _, attempts, _ in unfinished(thread)] == [(5, 1), (6, 0)]


def test_dead_letters_that_were_claimed_together_wait_for_none(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """All but the one that is run are given back, and nobody has them meanwhile."""
    fill(thread, 2, batch=2, concurrency=1)
    handlers.advance()
    for event in (1, 1, 2):
        handlers.end(event, 65)
    thread.retry_dead([1, 2])
    handlers.advance()
    assert [row.event for row in thread.database.claims.out("w", ("", 0), 9)] == [1]
    handlers.end(1, 0)
    assert handlers.started == [[1, 2], [1], [2], [1], [2]]
    assert handlers.attempts == [1] * 5


def test_an_attempt_that_does_not_count_is_made_again_after_a_wait(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """With exit code 75, as often as the handler asks for it; the wait is doubled each time."""
    fill(thread, 1, max_attempts=1, concurrency=1, backoff=(10, 60))
    handlers.advance()
    for runs, wait in ((2, 10), (3, 20), (4, 40), (5, 60)):
        handlers.end(1, 75)
        assert len(handlers.started) == runs - 1
        clock.move(wait / 2 - 0.1)
        handlers.advance()
        assert len(handlers.started) == runs - 1
        clock.move(wait / 2 + 0.1)
        handlers.advance()
        assert (handlers.started, handlers.attempts) == ([[1]] * runs, [1] * runs)


def test_a_result_that_cannot_be_stored_is_kept(
    handlers: Handlers, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is waited for once: its exit code is stored as soon as that is possible."""
    fill(thread, 1, concurrency=1)
    handlers.advance()
    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(type(thread.database.claims), "settle", fail)
        handlers.end(1, 0)
    handlers.advance()
    assert (handlers.pool.runs, unfinished(thread)) == ([], [])


def fail(*_: Any) -> None:
    """Fail as a database does that others keep."""
    raise StoreError("the database is busy", "try again")


# --- what lost workers left -----------------------------------------------------------------------

HERE = " ".join(processes.me().split()[:2])  # this machine and its pid namespace
GONE = "999999999 7"  # a process and its birth


def begun_by(thread: eventq.Thread, process: str | None, count: int = 1) -> None:
    """Let a worker claim events."""
    worker = Worker("other", process)
    taken = thread.database.claims.take("w", count, 30_000, worker, os.urandom(16))
    assert len(taken.claims) == count


def test_events_of_a_lost_worker_are_tried_again(handlers: Handlers, thread: eventq.Thread) -> None:
    """Those of others stay with them, and nobody looks for lost ones a second time."""
    fill(thread, 5, concurrency=2)
    for process in (None, f"{HERE} {GONE} 5 5", processes.me(), f"elsewhere 1 {GONE}"):
        begun_by(thread, process)
    handlers.advance()
    assert (handlers.started, handlers.attempts) == ([[2], [5]], [2, 1])
    assert {*handlers.orphans} == {f"{HERE} {GONE} 5 5"}
    errors = "SELECT error FROM unfinished WHERE error IS NOT NULL"
    assert sqlite(thread.database).run(errors) == [("its worker was lost",)]
    handlers.end(5, 0)
    thread.push("self", "note", "x")
    begun_by(thread, f"{HERE} {GONE}")
    handlers.advance()
    assert handlers.started == [[2], [5]]


def test_all_handlers_of_a_lost_worker_are_killed(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """However many it had, and if nobody tries their events again."""
    fill(thread, 1_100, concurrency=1, max_attempts=1)
    begun_by(thread, f"{HERE} {GONE}", 1_100)
    handlers.advance()
    assert (handlers.started, len(handlers.orphans)) == ([], 1_100)
    assert unfinished(thread) == []


@pytest.mark.parametrize(
    ("process", "is_gone"),
    [
        (processes.me(), False),
        (f"{HERE} {GONE}", True),
        (f"{HERE} {os.getpid()} 7", True),  # its pid is used again
        (f"elsewhere 1 {GONE}", False),
        (f"{processes.machine()} another {GONE}", False),
        (f"{HERE} pid 7", False),
        (HERE, False),
        ("", False),
    ],
    ids=["we", "gone", "another of its pid", "elsewhere", "another boot", "no pid", "half", "none"],
)
def test_a_worker_is_lost_that_is_gone_from_this_machine(process: str, is_gone: bool) -> None:
    """Of one that may run elsewhere nobody knows."""
    assert processes.is_lost(process) == is_gone


@pytest.mark.parametrize(
    ("process", "kills"),
    [
        (f"{HERE} 1 1 999 8 this", 3),
        (f"{HERE} 1 1 999 8 another", 0),  # of which ours is a copy
        (f"{HERE} 1 1 999 8", 0),
        (f"{HERE} 1 1 999 7 this", 0),  # its pid is used again
        ("elsewhere 1 1 1 999 8 this", 0),
        (f"{HERE} 1 1 handler 8 this", 0),
        (f"{HERE} 1 1", 0),
        ("", 0),
    ],
)
def test_the_handler_of_a_lost_worker_is_killed(
    process: str, kills: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is gone, and nobody else is."""
    killed: list[tuple[int, int]] = []
    births = {999: "8"}
    monkeypatch.setattr("eventq.system.clock.monotonic", clock)
    monkeypatch.setattr(
        "eventq.system.clock.pause", lambda _: births.pop(999) if len(killed) == 3 else None
    )
    monkeypatch.setattr(processes, "birth", births.get)
    monkeypatch.setattr(processes, "kill_group", lambda *what: killed.append(what))
    assert processes.end_orphan(process, "this")
    assert killed == [(999, signal.SIGKILL)] * kills


def test_nobody_waits_for_ever_for_a_handler_to_die(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hang in the kernel."""
    monkeypatch.setattr("eventq.system.clock.monotonic", clock)
    monkeypatch.setattr("eventq.system.clock.pause", lambda _: clock.move(1))
    monkeypatch.setattr(processes, "birth", lambda _: "8")
    monkeypatch.setattr(processes, "kill_group", lambda *_: None)
    before = clock.at
    assert not processes.end_orphan(f"{HERE} 1 1 999 8 this", "this")
    assert clock.at == before + 5


@pytest.mark.parametrize(("code", "dead"), [(3, 0), (65, 1), (75, 0), (-15, 0), (-9, 0)])
def test_what_a_failed_run_has_left_is_ended_before_the_next_one(
    code: int, dead: int, handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """However its leading process ended, the others have the grace period, and keep the claim."""
    fill(thread, 1, concurrency=1, lease=3, backoff=(0, 0))
    handlers.advance()
    handlers.left[1] = [7]
    handlers.end(1, code)
    for _ in range(4):
        clock.move(1)
        assert handlers.advance() == 0.05
        assert leased_for(thread, clock) == [3]
    assert (handlers.started, handlers.signals) == ([[1]], [(1, signal.SIGTERM)])
    clock.move(1)
    handlers.advance()
    assert (handlers.started, handlers.signals[1:]) == ([[1]], [(1, signal.SIGKILL)])
    del handlers.left[1]
    handlers.advance()
    assert len(list(thread.dead_letters())) == dead
    assert handlers.started == [[1]] * (2 - dead)
    left, how = handlers.warnings
    assert left == "dispatch: consumer=w event=1 has left processes, which are ended"
    assert how.startswith(("retry: consumer=w event=1 ", "dead: consumer=w event=1 "))


def test_what_a_run_that_succeeded_has_left_goes_on(
    handlers: Handlers, thread: eventq.Thread
) -> None:
    """Its event is finished, and the next one is begun beside it."""
    fill(thread, 2, concurrency=1)
    handlers.advance()
    handlers.left[1] = [7]
    handlers.end(1, 0)
    assert (handlers.started, handlers.signals) == ([[1], [2]], [])


@pytest.mark.parametrize("code", [-15, 0])
def test_the_grace_period_is_that_of_the_group(
    code: int, handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """A shell ends at once, and the command that it started cleans up."""
    fill(thread, 1, timeout=5, concurrency=1)
    handlers.advance()
    handlers.left[1] = [7]
    clock.move(5)
    handlers.advance()
    handlers.end(1, code)
    clock.move(4.9)
    handlers.advance()
    assert handlers.signals == [(1, signal.SIGTERM)]
    del handlers.left[1]
    handlers.advance()
    assert unfinished(thread) == [(1, 1, 1, "output\ntimed out after 5 seconds")]
    assert handlers.signals == [(1, signal.SIGTERM)]


def test_an_event_waits_for_a_handler_that_cannot_be_killed(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """A process that hangs in the kernel keeps its event, whether its worker is lost or late."""
    fill(thread, 1, concurrency=2)
    handlers.deaf = {f"{HERE} {GONE} 5 5", "of the other"}
    begun_by(thread, f"{HERE} {GONE} 5 5")
    assert handlers.advance() == 0.01
    assert (handlers.started, len(handlers.orphans)) == ([], 1)
    handlers.deaf.remove(f"{HERE} {GONE} 5 5")
    handlers.advance()
    assert handlers.started == [[1]]
    handlers.end(1, 0)
    thread.push("self", "note", "x")
    taken = thread.database.claims.take("w", 1, 30_000, Worker("other"), os.urandom(16))
    thread.database.claims.note("w", taken.token, [2], "of the other")
    clock.move(31)
    assert handlers.advance() == 1
    assert (handlers.started, handlers.attempts) == ([[1]], [2])


def test_whoever_claims_an_event_kills_the_handler_that_has_it(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """A program that claims is like a supervisor: the one that had the event may be stopped."""
    fill(thread, 3, concurrency=3)
    handlers.deaf = {"deaf"}
    for process in ("of the other", "deaf"):
        taken = thread.database.claims.take("w", 1, 30_000, Worker("other"), os.urandom(16))
        ids = [claimed.event.id for claimed in taken.claims]
        thread.database.claims.note("w", taken.token, ids, process)
    clock.move(31)
    assert [claim.event.id for claim in thread.claim("w", 3)] == [1, 3]
    assert handlers.orphans == ["of the other", "deaf"]


def test_a_consumer_whose_events_are_all_leased_is_not_due(
    handlers: Handlers, thread: eventq.Thread, clock: Clock
) -> None:
    """It is once more when a lease has ended, or another event is there."""
    fill(thread, 2, concurrency=2)
    state = thread.consumers.known("w")
    assert thread.consumers.due(state)
    thread.claim("w", 2)
    state = thread.consumers.known("w")
    assert not thread.consumers.due(state)
    thread.push("self", "note", "more")
    assert thread.consumers.due(state)
    (claim,) = thread.claim("w")
    claim.done()
    clock.move(31)
    assert thread.consumers.due(thread.consumers.known("w"))
