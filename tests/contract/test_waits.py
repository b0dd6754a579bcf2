"""What `info` says each consumer waits for, and which consumers `check` warns of."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log.notifier import quote
from tests.engines import sqlite

if TYPE_CHECKING:
    from eventq.records.consumer import ConsumerStatus
    from tests.conftest import Clock, Until

pytestmark = pytest.mark.usefixtures("quick")


def consumer(thread: eventq.Thread) -> ConsumerStatus:
    """Return what is known of the only consumer."""
    (found,) = thread.status().consumers
    return found


def waits(thread: eventq.Thread) -> tuple[str | None, str | None]:
    """Return what it waits for, and the command to run."""
    found = consumer(thread)
    return found.waits_for, found.advice


def place(thread: eventq.Thread) -> str:
    """Return how commands name the consumer."""
    return f"--thread {quote(thread.path)} --consumer w"


def test_info_tells_how_a_consumer_is_run(thread: eventq.Thread) -> None:
    """All that its subscription says of handlers, attempts and failure."""
    thread.subscribe(
        "w", "command", each=True, batch=3, concurrency=4, ordered_by="type", max_attempts=7,
        backoff=(2, 60), timeout=9, lease=5,
    )  # fmt: skip
    found = consumer(thread)
    assert (found.kind, found.batch, found.concurrency, found.ordered_by) == ("each", 3, 4, "type")
    assert (found.max_attempts, found.backoff, found.timeout) == (7, (2, 60), 9)
    assert (found.lease, found.on_failure) == (5, "dead")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"handler": "x"}, "stall"),
        ({"handler": "x", "each": True}, "stall"),
        ({"handler": "x", "each": True, "concurrency": 1}, "dead"),
        ({"handler": "x", "each": True, "on_failure": "dead"}, "dead"),
        ({}, "dead"),
    ],
)
def test_info_tells_what_follows_the_last_attempt(
    thread: eventq.Thread, terms: dict[str, object], expected: str
) -> None:
    """Even where the subscription leaves it to the default, which is what then happens."""
    thread.subscribe("w", **terms)  # type: ignore[arg-type]
    assert consumer(thread).on_failure == expected


@pytest.mark.parametrize("each", [False, True])
def test_events_that_no_handler_is_run_for_need_a_dispatch(
    thread: eventq.Thread, clock: Clock, each: bool
) -> None:
    """`check` warns of them once nothing can be on its way any more."""
    thread.subscribe("w", "command", each=each)
    assert waits(thread) == ("an event", None)
    clock.move(0)
    thread.push("self", "note", "x")
    expected = "a handler, and nobody runs it", f"eventq dispatch --thread {thread.path}"
    assert waits(thread) == expected
    assert thread.warnings() == []
    clock.move(20)
    (warning,) = thread.warnings()
    assert warning == (
        "event 1 has waited 20s for consumer 'w', and nobody works for it;"
        f" run: eventq dispatch --thread {thread.path}"
    )
    with_hold = thread.database.hold("w")
    assert waits(thread) == ("its handler", None)
    assert thread.warnings() == []
    with_hold.release()
    assert thread.warnings() == [warning]


def test_a_pull_consumer_without_a_worker_needs_one(thread: eventq.Thread, clock: Clock) -> None:
    """Unless its events are claimed, or wait for another attempt."""
    thread.subscribe("w", backoff=(40, 40))
    clock.move(0)
    thread.push("self", "note", "x")
    clock.move(20)
    assert waits(thread) == ("a program that claims or pops its events; none is known", None)
    (warning,) = thread.warnings()
    assert warning == (
        "event 1 has waited 20s for consumer 'w', and nobody works for it; start its program"
    )
    (claim,) = thread.claim("w", lease=2)
    assert waits(thread) == ("the end of 1 claim", None)
    claim.retry(600)  # which is longer than the lease was
    assert waits(thread) == ("another attempt in 10m (at once after 'eventq resume')", None)
    clock.move(20)
    assert waits(thread) == ("another attempt in 9.67m (at once after 'eventq resume')", None)
    assert thread.warnings() == []


def test_a_filter_that_is_refused_is_waited_for(thread: eventq.Thread) -> None:
    """Nothing else would help; `check` says what is wrong with it."""
    thread.subscribe("w")
    thread.push("self", "note", "x")
    sqlite(thread.database).change("UPDATE subscriptions SET filter = 'nonsense('")
    assert waits(thread) == ("another filter: this one is refused (see 'eventq check')", None)
    thread.unsubscribe("w")


@pytest.mark.parametrize("halt", ["stalled", "paused"])
def test_what_is_halted_waits_for_a_resume(thread: eventq.Thread, halt: str) -> None:
    """Whatever else it could wait for."""
    thread.subscribe("w", "command", each=True)
    if halt == "paused":
        thread.pause("w")
    else:
        thread.consumers.stall(thread.consumers.known("w"), "a test")
    assert waits(thread) == (f"'eventq resume': it is {halt}", f"eventq resume {place(thread)}")
    assert len(thread.warnings()) == 1


def test_a_python_worker_can_be_seen_from_outside(thread: eventq.Thread, until: Until) -> None:
    """While it runs, and no longer."""
    worker = eventq.Worker(thread.path)
    worker.consumer("w", filter="type = 'none'")(lambda _: None)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        until(lambda: thread.database.leases().is_worked("w"), "it is seen")
    finally:
        worker.stop()
        running.join()
    assert not thread.database.leases().is_worked("w")
    assert not thread.database.leases().is_lost("w")


@pytest.mark.engines("sqlite", "postgres")
def test_a_group_that_has_stopped_is_seen(thread: eventq.Thread, clock: Clock) -> None:
    """It is no stall of the consumer, whose other groups go on; `check` warns of it all the same."""
    thread.subscribe("w", ordered_by="type", max_attempts=1, on_failure="stall")
    clock.move(0)
    thread.push_many([("self", "a", "x"), ("self", "a", "y"), ("self", "b", "z")])
    thread.claim("w", 1)[0].retry(error="no")
    found = consumer(thread)
    assert (found.stalled, found.halted, found.unfinished) == (None, 1, 1)
    assert waits(thread) == (
        "'eventq resume': event 1 has stopped its group", f"eventq resume {place(thread)}"
    )  # fmt: skip
    step = f"fix it, then run: eventq resume {place(thread)}"
    assert thread.warnings() == [f"consumer 'w' has stopped the group of event 1; {step}"]
    assert [*thread.consumers.halted()] == [], "the consumer goes on"
    assert [claim.event.id for claim in thread.claim("w", 3)] == [3]
    thread.resume("w")
    assert consumer(thread).halted == 0
    assert thread.warnings() == []


@pytest.mark.engines("sqlite", "postgres")
def test_nothing_is_waited_for_once_the_last_lease_was_settled(
    thread: eventq.Thread, clock: Clock
) -> None:
    """A supervisor would stay for as long as the lease was, and a worker leave something behind."""
    thread.subscribe("w", ordered_by="type", max_attempts=1, on_failure="stall", lease=40)
    clock.move(0)
    thread.push("self", "a", "x")
    (claim,) = thread.claim("w")
    assert thread.consumers.next_due("w") == 40_000
    claim.retry(error="no")
    assert thread.consumers.next_due("w") is None
