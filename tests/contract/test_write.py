"""`write()` makes one change of many: all of it or nothing, and nobody hears of it before it is there."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ClosedError, ConsumerExistsError, DiskError, InputError, LogicError

if TYPE_CHECKING:
    from collections.abc import Callable


class OopsError(Exception):
    """Somebody's error."""


@pytest.fixture
def wakes(thread: eventq.Thread) -> list[tuple[str, int, int]]:
    """Return the list in which the commits that subscribers learn of are noted."""
    noted: list[tuple[str, int, int]] = []
    thread.database.subscribe(
        "test", lambda commit: noted.append((commit.source, commit.first, commit.last))
    )
    return noted


def mirrored(thread: eventq.Thread) -> int:
    """Give the number of lines of the mirror."""
    with open(os.path.join(thread.path, "events.jsonl"), "rb") as file:
        return file.read().count(b"\n")


def contents(thread: eventq.Thread) -> list[str]:
    """Give the contents of all events."""
    return [event.content for event in thread.peek(limit=None)]


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a thread of its own."""
    runner = threading.Thread(target=call)
    runner.start()
    return runner


def test_everything_inside_commits_together(thread: eventq.Thread) -> None:
    """Events, a subscription and an ack of one block are there together afterwards, and not before for others."""
    with eventq.open(thread.path) as other:
        with thread.write():
            thread.push("self", "note", "a")
            thread.push_many([("self", "note", "b"), ("self", "note", "c")])
            thread.subscribe("w", "true")
            thread.ack("w", 2)
            assert contents(thread) == ["a", "b", "c"]
            assert (other.last_id(), other.subscriptions()) == (0, [])
        assert contents(other) == ["a", "b", "c"]
        assert other.info().subscriptions[0].last_acked_id == 2


def test_an_exception_undoes_everything(thread: eventq.Thread) -> None:
    """What is raised comes through, and the thread is as it was."""
    thread.push("self", "note", "before")
    with pytest.raises(OopsError), thread.write():
        thread.push("self", "note", "a")
        thread.push_many([("self", "note", "b")])
        thread.subscribe("w", "true")
        raise OopsError
    assert (contents(thread), thread.subscriptions()) == (["before"], [])
    assert thread.push("self", "note", "after").id == 2


def test_after_effects_come_after_the_outermost_commit(
    thread: eventq.Thread, wakes: list[tuple[str, int, int]]
) -> None:
    """Mirror, journal and wake-ups happen once everything is committed, in order."""
    with thread.write():
        thread.push("a", "note", "1")
        with thread.write():
            thread.push("b", "note", "2")
            with thread.write():
                thread.push_many([("c", "note", "3"), ("d", "note", "4")])
        assert (mirrored(thread), wakes) == (0, [])
    assert (mirrored(thread), wakes) == (4, [("d", 1, 4)])
    with open(os.path.join(thread.path, "logs", "thread.log")) as file:
        assert [line.split("] ", 2)[2].strip() for line in file] == [
            "push: source=a type=note id=1",
            "push: source=b type=note id=2",
            "push batch: count=2 last_id=4",
        ]


def test_nothing_follows_a_rollback(
    thread: eventq.Thread, wakes: list[tuple[str, int, int]]
) -> None:
    """What was undone is neither mirrored nor noted, and wakes nobody."""
    with pytest.raises(OopsError), thread.write():
        with thread.write():
            thread.push("a", "note", "1")
        raise OopsError
    thread.push("b", "note", "2")
    assert (mirrored(thread), wakes) == (1, [("b", 1, 1)])


def test_an_inner_block_may_fail_alone(
    thread: eventq.Thread, wakes: list[tuple[str, int, int]]
) -> None:
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
            thread.subscribe("w", "true")
        thread.push("self", "note", "f")
    assert contents(thread) == ["a", "d", "f"]
    assert wakes == [("self", 1, 3)]
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


def test_an_effect_may_write(thread: eventq.Thread) -> None:
    """What runs after a commit stands outside of it, and may begin the next one."""

    def more() -> None:
        thread.push("self", "note", "2")

    with thread.write():
        thread.push("self", "note", "1")
        thread.database.on_commit(more)
        assert thread.last_id() == 1
    assert (contents(thread), mirrored(thread)) == (["1", "2"], 2)


def test_other_threads_wait(thread: eventq.Thread) -> None:
    """While one thread is inside a block, calls of another one wait; a rollback does not take them along."""
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


def test_an_effect_belongs_to_its_own_thread(thread: eventq.Thread) -> None:
    """What one thread asks for after its commit is not lost when another thread's block is undone."""
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait()
        thread.database.on_commit(done.set)

    runner = in_thread(other)
    with pytest.raises(OopsError), thread.write():
        inside.set()
        runner.join(0.05)
        raise OopsError
    runner.join()
    assert done.is_set()


def test_prune_inside_a_block(thread: eventq.Thread) -> None:
    """A prune inside a block is undone with it."""
    thread.push_many([("self", "note", "x")] * 5)
    with pytest.raises(OopsError), thread.write():
        assert thread.prune(keep_last=2) == 3
        raise OopsError
    assert thread.info().event_count == 5
    with thread.write():
        assert thread.prune(keep_last=2) == 3
        thread.push("self", "note", "x")
    assert [event.id for event in thread.peek()] == [4, 5, 6]


def test_closing_inside_a_block_undoes_it(path: str) -> None:
    """A thread that is closed in the middle of a block stores nothing of it, and says so at the end."""
    thread = eventq.open(path)
    with pytest.raises(ClosedError), thread.write():
        thread.push("self", "note", "x")
        thread.close()
    with eventq.open(path) as again:
        assert (again.last_id(), again.check()) == (0, [])


def test_a_failed_commit_stores_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the database refuses the commit, the block is undone, its effects are dropped, and the thread works on."""
    with eventq.open(path) as thread:
        refused = True
        thread.database.connection.set_commit_hook(lambda: refused)
        with pytest.raises(eventq.StoreError), thread.write():
            thread.push("self", "note", "lost")
        refused = False
        assert (thread.last_id(), mirrored(thread)) == (0, 0)
        assert thread.push("self", "note", "kept").id == 1
        assert (mirrored(thread), thread.check()) == (1, [])


def test_subscribers_learn_of_a_transaction_once(
    thread: eventq.Thread, wakes: list[tuple[str, int, int]]
) -> None:
    """However much is pushed inside `write()`, each learns of it once, with the last source."""
    with thread.write():
        thread.push("a", "t", "1")
        with pytest.raises(ValueError, match="undone"), thread.write():
            thread.push("b", "t", "undone")
            raise ValueError("undone")
        thread.push_many([("c", "t", "2"), ("c", "t", "3")])
        with thread.write():
            thread.push("d", "t", "4", key="k")
    assert wakes == [("d", 1, 4)]
    thread.push("e", "t", "5")
    assert wakes[1:] == [("e", 5, 5)]


def test_nothing_is_stored_after_the_disk_refused(path: str) -> None:
    """When SQLite has undone the transaction by itself, everything up to the end of the block is an error, and so is it."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "before")
        with pytest.raises(DiskError, match="the transaction was undone"), thread.write():
            thread.push("self", "note", "first")
            thread.database.connection.execute("ROLLBACK")  # as it does for a full disk
            calls: list[Callable[[], object]] = [
                lambda: thread.push("self", "note", "second"),
                lambda: thread.push_many([("self", "note", "second")]),
                thread.contexts.create,
                thread.write().__enter__,
            ]
            for call in calls:
                with pytest.raises(DiskError, match="nothing of it is stored"):
                    call()
        assert [event.content for event in thread.peek()] == ["before"]
        assert thread.push("self", "note", "after").id == 2
        assert thread.check() == []


def test_a_block_that_is_never_left_is_undone(path: str) -> None:
    """A block that an interrupt keeps from being left is undone with its last reference: no lock stays held."""
    with eventq.open(path) as thread, eventq.open(path) as other:
        outer, inner = thread.write(), thread.write()
        outer.__enter__()
        thread.push("self", "note", "lost")
        inner.__enter__()
        assert thread.database.depth == 2
        del outer, inner
        assert (thread.database.depth, thread.database.connection.get_autocommit()) == (0, True)
        assert other.push("self", "note", "kept").id == 1
        thread.database.connection.execute(
            "BEGIN IMMEDIATE"
        )  # an interrupt struck before anybody knew of it
        assert thread.push("self", "note", "kept too").id == 2
        assert [event.content for event in other.peek()] == ["kept", "kept too"]


def test_many_threads_share_one(path: str) -> None:
    """Blocks of several threads, kept and undone, with pushes between them, take turns: none is lost, none hangs."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()

        def work() -> None:
            for number in range(100):
                with thread.write():
                    thread.push("self", "note", "both")
                    context.append("both")
                thread.push("self", "note", "keyed", key=f"{threading.get_ident()} {number}")
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


@pytest.mark.parametrize("nested", [False, True])
def test_a_push_that_fails_half_way_is_not_committed_by_who_caught_it(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    """Its event is stored and its key is not: the block around it is undone, and an inner block alone."""

    def fail(*_: object) -> None:
        raise DiskError("the disk is full", "free some space")

    def half() -> None:
        with monkeypatch.context() as patch, pytest.raises(DiskError, match="is full"):
            patch.setattr(thread.database.events, "_set_keys", fail)
            thread.push("self", "note", "half", key="k")

    def block() -> None:
        with pytest.raises(DiskError, match="an earlier step"), thread.write():
            thread.push("self", "note", "undone")
            half()

    if nested:
        with thread.write():
            thread.push("self", "note", "kept")
            block()
    else:
        block()
    thread.push("self", "note", "after", key="k")
    assert contents(thread) == ["kept"] * nested + ["after"]
    assert mirrored(thread) == 1 + nested


def test_a_durable_block_inside_a_relaxed_one_is_refused(thread: eventq.Thread) -> None:
    """It would promise what the commit around it does not hold; the other way round the outer one decides."""
    with (
        pytest.raises(LogicError, match="inside a relaxed one"),
        thread.database.write(relaxed=True),
        thread.write(),
    ):
        pass
    with thread.write(), thread.database.write(relaxed=True):
        thread.push("self", "note", "x")
        assert not thread.database.is_relaxed
    assert contents(thread) == ["x"]
