"""A worker's look at a thread costs little for each consumer that an event does not concern.

Members of the kind: files of guards and holds (each was compared with each, and each own lock was
tried), statements for queues that have nothing left, a filter that is accepted anew for each look,
a watermark that is written for each event, and the newest id that is asked for again and again.
What is remembered must not outlive a new filter, a replay, or an event that an attempt waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.running.thread_runner import ThreadRunner
from eventq.store.sqlite import database
from eventq.system import locks

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 60


def count(patch: pytest.MonkeyPatch, place: Any, name: str) -> list[object]:
    """Count the calls of a function."""
    real: Callable[..., object] = getattr(place, name)
    calls: list[object] = []

    def called(*given: Any, **more: Any) -> object:
        calls.append(given)
        return real(*given, **more)

    patch.setattr(place, name, called)
    return calls


def test_a_look_at_many_consumers(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event for nobody takes no lock and few statements, however many consumers there are."""
    for number in range(MANY):
        thread.subscribe(f"w{number}", "true", each=True, filter=f"type = 't{number}'")
    runner = ThreadRunner(thread.path, (), lambda _: None)
    try:
        thread.push("self", "other", "x")
        runner.look()
        thread.push("self", "other", "y")
        locked = count(monkeypatch, locks, "_is_locked")
        statements = count(monkeypatch, database.Database, "run")
        changes = count(monkeypatch, database.Database, "change")
        runner.look()
        assert not runner.advance()
        assert (locked, changes) == ([], [])
        assert len(statements) < MANY / 4
    finally:
        runner.release()
        runner.close()


def test_what_is_remembered_of_a_filter(thread: eventq.Thread) -> None:
    """A new filter, a replay and an event that waits for an attempt are seen by the next look."""
    consumers = thread.consumers

    def waits() -> bool:
        return consumers.is_waiting(consumers.known("w"))

    thread.subscribe("w", "true", each=True, filter="type = 'a'", backoff=(60, 60))
    thread.push("self", "b", "x")
    assert not waits()
    thread.push("self", "b", "y")
    assert not waits()
    thread.subscribe("w", "true", each=True, filter="type = 'b'", backoff=(60, 60), replace=True)
    assert waits()
    (claim,) = thread.claim("w")
    claim.retry()
    assert waits()  # for the time of the next attempt
    thread.ack("w", 2)
    assert thread.claim("w") == []  # which takes the ack up
    assert not waits()
    thread.ack("w", 0, replay=True)
    assert waits()
