"""`write()` makes several changes one: all or nothing, and invisible until the commit."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ClosedError, ConsumerExistsError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.engines("sqlite", "postgres")


class OopsError(Exception):
    """Somebody's error."""


def mirrored(thread: eventq.Thread) -> int:
    """Return the number of lines of the mirror."""
    with open(os.path.join(thread.path, "events.jsonl"), "rb") as file:
        return file.read().count(b"\n")


def contents(thread: eventq.Thread) -> list[str]:
    """Return the contents of all events."""
    return [event.content for event in thread.peek(limit=None)]


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a thread of its own."""
    runner = threading.Thread(target=call)
    runner.start()
    return runner


def test_everything_inside_commits_together(thread: eventq.Thread, handler: str | None) -> None:
    """Events, a subscription and an ack of one block are visible together, after it."""
    with eventq.open(thread.path) as other:
        with thread.write():
            thread.push("self", "note", "a")
            thread.push_many([("self", "note", "b"), ("self", "note", "c")])
            thread.subscribe("w", handler)
            thread.ack("w", 2)
            assert contents(thread) == ["a", "b", "c"]
            assert (other.last_id(), other.subscriptions()) == (0, [])
        assert contents(other) == ["a", "b", "c"]
        assert other.status().consumers[0].last_acked_id == 2


def test_an_exception_undoes_everything(thread: eventq.Thread, handler: str | None) -> None:
    """What is raised comes through, and the thread is as it was."""
    thread.push("self", "note", "before")
    with pytest.raises(OopsError), thread.write():
        thread.push("self", "note", "a")
        thread.push_many([("self", "note", "b")])
        thread.subscribe("w", handler)
        raise OopsError
    assert (contents(thread), thread.subscriptions()) == (["before"], [])
    assert thread.push("self", "note", "after").id == 2


@pytest.mark.engines("sqlite")
def test_after_effects_come_after_the_outermost_commit(thread: eventq.Thread) -> None:
    """Mirror and journal are written once everything is committed, in order."""
    with thread.write():
        thread.push("a", "note", "1")
        with thread.write():
            thread.push("b", "note", "2")
            with thread.write():
                thread.push_many([("c", "note", "3"), ("d", "note", "4")])
        assert mirrored(thread) == 0
    assert mirrored(thread) == 4
    with open(os.path.join(thread.path, "logs", "thread.log")) as file:
        assert [line.split("] ", 2)[2].strip() for line in file] == [
            "push: source=a type=note id=1",
            "push: source=b type=note id=2",
            "push batch: count=2 last_id=4",
        ]


@pytest.mark.engines("sqlite")
def test_nothing_follows_a_rollback(thread: eventq.Thread) -> None:
    """What was undone is not mirrored."""
    with pytest.raises(OopsError), thread.write():
        with thread.write():
            thread.push("a", "note", "1")
        raise OopsError
    thread.push("b", "note", "2")
    assert mirrored(thread) == 1


@pytest.mark.engines("sqlite")
def test_an_inner_block_may_fail_alone(thread: eventq.Thread) -> None:
    """An inner block that is undone takes its own work with it, and the outer one goes on."""
    with thread.write():
        thread.push("self", "note", "a")
        with pytest.raises(OopsError), thread.write():
            thread.push("self", "note", "b")
            with thread.write():
                thread.push("self", "note", "c", key="k")
            raise OopsError
        thread.push("self", "note", "d", key="k")
        with pytest.raises(InputError):
            thread.push_many([("self", "note", "e"), ("self", "", "bad")])
        thread.subscribe("w", "true")
        with pytest.raises(ConsumerExistsError):
            thread.subscribe("w", "false")
        thread.push("self", "note", "f")
    assert contents(thread) == ["a", "d", "f"]
    assert mirrored(thread) == 3


def test_blocks_one_after_the_other(thread: eventq.Thread) -> None:
    """Siblings inside a block do not disturb each other."""
    with thread.write():
        for number in range(5):
            if number % 2:
                with pytest.raises(OopsError), thread.write():
                    thread.push("self", "note", str(number))
                    raise OopsError
            else:
                with thread.write():
                    thread.push("self", "note", str(number))
    assert contents(thread) == ["0", "2", "4"]


@pytest.mark.engines("sqlite")
def test_other_threads_wait(thread: eventq.Thread) -> None:
    """Calls of other threads wait for a block, and are not rolled back with it."""
    inside = threading.Event()
    pushed = threading.Event()

    def other() -> None:
        inside.wait()
        thread.push("other", "note", "kept")
        pushed.set()

    runner = in_thread(other)
    with pytest.raises(OopsError), thread.write():
        thread.push("self", "note", "undone")
        inside.set()
        assert not pushed.wait(0.05)
        raise OopsError
    runner.join()
    assert [(event.id, event.source) for event in thread.peek()] == [(1, "other")]
    assert mirrored(thread) == 1


def test_prune_inside_a_block(thread: eventq.Thread) -> None:
    """A prune inside a block is undone with it."""
    thread.push_many([("self", "note", "x")] * 5)
    with pytest.raises(OopsError), thread.write():
        assert thread.prune(keep_last=2) == 3
        raise OopsError
    assert thread.status().event_count == 5
    with thread.write():
        assert thread.prune(keep_last=2) == 3
        thread.push("self", "note", "x")
    assert [event.id for event in thread.peek()] == [4, 5, 6]


def test_closing_inside_a_block_undoes_it(path: str) -> None:
    """A thread closed inside a block stores nothing of it, and raises an error at the end."""
    thread = eventq.open(path)
    with pytest.raises(ClosedError), thread.write():
        thread.push("self", "note", "x")
        thread.close()
    with eventq.open(path) as again:
        assert (again.last_id(), again.check()) == (0, [])


@pytest.mark.engines("sqlite")
def test_many_threads_share_one(path: str) -> None:
    """Blocks and pushes of several threads take turns: none is lost, none hangs."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()

        def work() -> None:
            for number in range(100):
                with thread.write():
                    thread.push("self", "note", "both")
                    context.append("both")
                thread.push(
                    "self", "note", "keyed", key=f"{threading.current_thread().name} {number}"
                )
                with pytest.raises(ZeroDivisionError), thread.write():
                    thread.push("self", "note", "neither")
                    raise ZeroDivisionError

        threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        assert [one.is_alive() for one in threads] == [False] * 6
        assert (thread.last_id(), len(context.replay())) == (1200, 600)
        assert thread.check() == []
