"""What a lost connection does: what was not stored is stored, and what nobody knows is said."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.errors import BusyError, UnknownOutcomeError
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def shared(postgres: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread."""
    with eventq.open(fresh(postgres)) as thread:
        thread.push("self", "note", "1")
        yield thread
        assert thread.check() == []


@pytest.fixture
def cut(postgres: str) -> Iterator[Callable[[eventq.Thread], None]]:
    """Return a function that ends the connection of a thread on the server, and waits for that."""
    with psycopg.connect(postgres, autocommit=True) as server:

        def end(thread: Any) -> None:
            pid = thread.database.link.connection().info.backend_pid
            server.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))

        yield end


def test_a_connection_that_was_idle(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """It is made anew, before anything is sent."""
    for number in range(2, 5):
        cut(shared)
        assert shared.push("self", "note", "x").id == number
        cut(shared)
        assert shared.last_id() == number
        cut(shared)
        with shared.write():
            assert shared.last_id() == number


def test_a_connection_in_a_transaction(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """Nothing of it is stored, whatever follows in it, and what comes after it works."""
    with pytest.raises(BusyError, match="nothing of it is stored"), shared.write():
        shared.push("self", "note", "2")
        cut(shared)
        shared.push("self", "note", "3")
    with pytest.raises(eventq.StoreError), shared.write():
        shared.push("self", "note", "2")
        cut(shared)
        with pytest.raises(BusyError):
            shared.push("self", "note", "3")
    assert (shared.last_id(), shared.push("self", "note", "2").id) == (1, 2)


def test_a_commit_whose_answer_is_lost(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """Nobody knows: that is said, and a key makes it safe."""
    with pytest.raises(UnknownOutcomeError, match="a push with a key"), shared.write():
        shared.push("self", "note", "2", key="k")
        cut(shared)
    assert shared.push("self", "note", "2", key="k").id == 2
    assert shared.push("self", "note", "2", key="k").id == 2


def lose_answers(thread: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the connection break once, after the server has done what it was asked for."""
    link = thread.database.link
    real = getattr(link, name)

    def lossy(*words: Any) -> Any:
        real(*words)
        monkeypatch.setattr(link, name, real)
        raise psycopg.OperationalError("the connection is gone")

    monkeypatch.setattr(link, name, lossy)


def test_an_answer_that_is_lost(shared: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key the event may be there or not; with one it is there once."""
    lose_answers(shared, monkeypatch, "run")
    with pytest.raises(UnknownOutcomeError):
        shared.push("self", "note", "2")
    assert shared.last_id() == 2  # this time it was
    lose_answers(shared, monkeypatch, "together")
    assert shared.push("self", "note", "3", key="k").id == 3
    assert shared.last_id() == 3


def test_pushes_of_many_threads_are_few_commits(shared: eventq.Thread) -> None:
    """What waits for the connection is stored by one statement; each gets its own event."""
    database: Any = shared.database
    events: dict[int, list[eventq.Event]] = {}
    trips = database.link.trips

    def push(number: int) -> None:
        events[number] = [shared.push(f"s{number}", "note", str(n)) for n in range(20)]

    pushers = [threading.Thread(target=push, args=(number,)) for number in range(16)]
    with database.lock:
        for one in pushers:
            one.start()
        while len(database.events._pushes) < 16:
            pass
    for one in pushers:
        one.join()
    assert database.link.trips - trips < 16 * 20
    for number, mine in events.items():
        assert [(event.source, event.content) for event in mine] == [
            (f"s{number}", str(n)) for n in range(20)
        ]
        assert [shared.log._db.events.get(event.id) for event in mine] == mine
    assert sorted(event.id for mine in events.values() for event in mine) == [*range(2, 322)]


def test_bytes_and_names(shared: eventq.Thread) -> None:
    """Content may hold NUL; keys may be as long as ever."""
    event = shared.push("self", "note", "a\0b")
    assert [*shared.peek(1)] == [event]
    key = "ä" * 40_000
    assert shared.push("self", "note", "x", key=key) == shared.push("self", "note", "x", key=key)
    assert shared.push("self", "note", "y", key=key[1:]).content == "y"
