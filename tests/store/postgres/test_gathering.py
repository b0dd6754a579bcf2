"""Group commit: pushes of several OS threads are one change, and none waits in vain."""

from __future__ import annotations

import gc
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from eventq.records.event import Event, NewEvent
from eventq.store.postgres import gathering
from tests.store.sqlite.test_interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conftest import Until


class RefusedError(Exception):
    """One event of several is refused."""


class LostError(Exception):
    """Nobody knows."""


class Disk:
    """What events are stored on: all of a batch, or none of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.batches: list[list[str]] = []  # the contents of each, the refused ones too
        self.last = 0
        # Called once, before somebody waits for the lock, and before a batch is stored.
        self.at_lock: Callable[[], object] = lambda: None
        self.before: Callable[[], object] = lambda: None
        self.pushes = gathering.Gathering(
            self,
            self.store,
            lambda error: isinstance(error, RefusedError),
            LostError,
        )

    def __enter__(self) -> None:
        """Take the lock."""
        at_lock, self.at_lock = self.at_lock, lambda: None
        at_lock()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self.lock.release()

    def store(self, rows: Sequence[NewEvent]) -> list[Event]:
        """Store a batch, unless one of its events is bad."""
        self.batches.append([row.content for row in rows])
        before, self.before = self.before, lambda: None
        before()
        if any(row.content == "bad" for row in rows):
            raise RefusedError
        first, self.last = self.last + 1, self.last + len(rows)
        return [
            Event(number, "now", row.source, row.type, None, row.content)
            for number, row in enumerate(rows, first)
        ]

    def push(self, content: str) -> Event:
        """Store one event, alone or with others."""
        return self.pushes.push(NewEvent("self", "note", content))


class Pushers:
    """OS threads that push, each one event, and what each of them gets."""

    def __init__(self, disk: Disk, until: Until) -> None:
        self.results: dict[str, int | type[BaseException]] = {}
        self._disk = disk
        self._until = until
        self._runners: list[threading.Thread] = []

    def start(self, *contents: str) -> None:
        """Let each wait before the next one starts: the lock is held."""
        for content in contents:
            known = self._disk.pushes.waiting
            runner = threading.Thread(target=self._push, args=(content,), daemon=True)
            runner.start()
            self._runners.append(runner)
            self._until(lambda: self._disk.pushes.waiting > known, "waits")  # noqa: B023

    def _push(self, content: str) -> None:
        try:
            self.results[content] = self._disk.push(content).id
        except BaseException as error:
            self.results[content] = type(error)

    def end(self) -> dict[str, int | type[BaseException]]:
        """Return the ids and the errors, once all have theirs."""
        for runner in self._runners:
            runner.join(60)
            assert not runner.is_alive(), "it waits in vain"
        assert not self._disk.pushes.waiting
        return self.results


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Return a disk that still works at the end."""
    made = Disk()
    yield made
    last = made.last
    assert (made.push("after").id, made.batches[-1]) == (last + 1, ["after"])


@pytest.fixture
def pushers(disk: Disk, until: Until) -> Pushers:
    """Return what starts OS threads that push."""
    return Pushers(disk, until)


def test_what_waits_is_one_change(disk: Disk, pushers: Pushers) -> None:
    """Each gets its own event, in the order in which they came."""
    with disk.lock:
        pushers.start(*"abcd")
    assert pushers.end() == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert disk.batches == [[*"abcd"]]


def test_what_comes_meanwhile_is_the_next_change(disk: Disk, pushers: Pushers) -> None:
    """Its first one leads it, and takes the others with it."""
    disk.before = lambda: pushers.start(*"bcd")
    assert disk.push("a").id == 1
    assert pushers.end() == {"b": 2, "c": 3, "d": 4}
    assert disk.batches == [["a"], [*"bcd"]]


def test_a_push_leaves_nothing_to_collect(disk: Disk) -> None:
    """No cycle keeps its content until the next collection."""
    gc.collect()
    disk.push("a")
    assert gc.collect() == 0


@pytest.mark.parametrize(("name", "most"), [("MOST", 2), ("MOST_CHARACTERS", 9)])
def test_a_change_is_bounded(
    disk: Disk, pushers: Pushers, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """In its number of events and in their size; a larger one goes alone."""
    monkeypatch.setattr(gathering, name, most)
    with disk.lock:
        pushers.start("a" * 20, "bbbb", "cccc", "dddd")
    assert sorted(pushers.end().values()) == [1, 2, 3, 4]  # type: ignore[type-var]
    assert [len(batch) for batch in disk.batches] == ([2, 2] if name == "MOST" else [1, 2, 1])


def test_a_refused_one_harms_no_other(disk: Disk, pushers: Pushers) -> None:
    """They are stored one by one, without a gap."""
    with disk.lock:
        pushers.start("a", "bad", "c")
    assert pushers.end() == {"a": 1, "bad": RefusedError, "c": 2}
    assert disk.batches == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


def test_any_other_error_is_everybodys(disk: Disk, pushers: Pushers) -> None:
    """It would meet each of them: nothing is sent again."""

    def fail() -> None:
        raise LostError

    disk.before = fail
    with disk.lock:
        pushers.start(*"abc")
    assert set(pushers.end().values()) == {LostError}
    assert disk.batches == [[*"abc"]]


def test_a_leader_that_is_interrupted_as_it_stores(disk: Disk, pushers: Pushers) -> None:
    """Nobody knows what became of those that it had taken; the next one stores the rest."""

    def interrupt() -> None:
        pushers.start(*"cd")
        raise KeyboardInterrupt

    disk.before = interrupt
    with disk.lock:
        pushers.start(*"ab")
    assert pushers.end() == {"a": KeyboardInterrupt, "b": LostError, "c": 1, "d": 2}


def test_a_leader_that_is_interrupted_as_it_waits(disk: Disk, pushers: Pushers) -> None:
    """Its event is not stored, and the next one leads."""

    def interrupt() -> None:
        pushers.start(*"bc")
        raise KeyboardInterrupt

    disk.at_lock = interrupt
    with pytest.raises(KeyboardInterrupt):
        disk.push("a")
    assert pushers.end() == {"b": 1, "c": 2}
    assert disk.batches == [[*"bc"]]


class InterruptedGate:
    """A gate at which an interrupt strikes, while somebody waits or as it has opened."""

    def __init__(self, *, opens: bool) -> None:
        self._lock = threading.Lock()
        self._opens = opens

    def acquire(self) -> None:
        """Close it, then wait at it."""
        if self._lock.acquire(blocking=False):
            return
        if self._opens:
            self._lock.acquire()
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        """Do the rest as the lock does it."""
        return getattr(self._lock, name)


def test_a_follower_that_is_interrupted(
    disk: Disk, pushers: Pushers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not sent yet is not sent any more."""
    with disk.lock:
        pushers.start("a")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(gathering, "allocate_lock", lambda: InterruptedGate(opens=False))
            disk.push("b")
        pushers.start("c")
    assert pushers.end() == {"a": 1, "c": 2}
    assert disk.batches == [[*"ac"]]


def test_a_follower_that_is_interrupted_as_it_is_to_lead(
    disk: Disk, pushers: Pushers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one after it leads."""

    def meanwhile() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(gathering, "allocate_lock", lambda: InterruptedGate(opens=True))
            pushers.start("b")
        pushers.start(*"cd")

    disk.before = meanwhile
    assert disk.push("a").id == 1
    assert pushers.end() == {"b": KeyboardInterrupt, "c": 2, "d": 3}


def interrupted(number: int, until: Until) -> str:
    """Interrupt a leader at a call; return its name, "" after the last one."""
    disk = Disk()
    pushers = Pushers(disk, until)
    disk.before = lambda: pushers.start(*"bc")
    interrupts, before = Interrupts(number, gathering.__file__), sys.gettrace()
    sys.settrace(interrupts)
    try:
        disk.push("a")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    results = pushers.end()
    assert all(isinstance(result, int) for result in results.values()), interrupts.where
    assert disk.push("after").id == disk.last
    return interrupts.where


def test_an_interrupt_at_any_call_leaves_nobody_waiting(until: Until) -> None:
    """Those that come while the interrupted one stores have their own results."""
    number, seen = 1, set()
    while where := interrupted(number, until):
        seen.add(where)
        number += 1
    assert {"push", "__init__", "_lead", "_fitting", "_send", "_leave"} <= seen
