"""An interrupt (Ctrl-C) at any moment leaves no transaction and no lock behind."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.locks import FolderLock
from eventq.storage.sqlite import database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@pytest.fixture(name="thread")
def _thread(tmp_path: Path) -> Iterator[eventq.Thread]:
    with eventq.open(tmp_path / "t", create=True) as thread:
        thread.push("self", "note", "x")
        yield thread


class Interrupts:
    """A trace function that interrupts the n-th call in the module of the database."""

    def __init__(self, number: int) -> None:
        """Count from one."""
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Raise KeyboardInterrupt where Python itself would: when a function begins.

        In `__del__` Python drops it.
        """
        code = frame.f_code
        if (code.co_filename, event) == (database.__file__, "call") and code.co_name != "__del__":
            self.left -= 1
            if not self.left:
                self.where = code.co_name
                raise KeyboardInterrupt


def interrupted(thread: eventq.Thread, number: int) -> str:
    """Interrupt nested transactions at a call; return its name, "" after the last one."""
    interrupts, before = Interrupts(number), sys.gettrace()
    sys.settrace(interrupts)
    try:
        with thread.write():
            thread.push("self", "note", "y")
            with thread.write():
                thread.push("self", "note", "z")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupts.where


def test_an_interrupt_leaves_no_transaction_open(thread: eventq.Thread) -> None:
    """What is pushed after an interrupt, by any OS thread, is stored."""
    number = 1
    while where := interrupted(thread, number):
        event = thread.push("self", "note", "after")
        with eventq.open(thread.path, read_only=True) as other:
            assert other.last_id() == event.id, where
        assert pushes_elsewhere(thread), where
        number += 1
    assert number > 10


class InterruptedLock:
    """A lock that is taken, and then an interrupt strikes, once."""

    def __init__(self, lock: Any) -> None:
        """Wrap a lock."""
        self._lock = lock
        self._is_due = True

    def acquire(self, *args: Any, **options: Any) -> bool:
        """Take the lock; raise KeyboardInterrupt the first time."""
        taken: bool = self._lock.acquire(*args, **options)
        if self._is_due:
            self._is_due = False
            raise KeyboardInterrupt
        return taken

    def __getattr__(self, name: str) -> Any:
        """Do the rest as the lock does it."""
        return getattr(self._lock, name)


def test_an_interrupt_leaves_no_lock_of_the_database(thread: eventq.Thread) -> None:
    """An interrupt right after the lock was taken gives it back, in reads and in transactions."""
    db = thread.database
    lock: Any = db.lock
    for call in (db.begin, db.join, lambda: db.run("SELECT 1"), lambda: db.steady(str)):
        db.lock = InterruptedLock(lock)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            call()
        db.lock = lock
        assert pushes_elsewhere(thread)


def test_an_interrupt_leaves_no_lock_of_a_folder(tmp_path: Path) -> None:
    """Another OS thread, and another program, can lock a folder after an interrupt."""
    lock = FolderLock(str(tmp_path))
    turn: Any = lock.turn
    lock.turn = InterruptedLock(turn)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    lock.turn = turn
    taken: list[bool] = []
    runner = threading.Thread(target=lambda: taken.append(turn.acquire(timeout=1)))
    runner.start()
    runner.join()
    lock.close()
    assert taken == [True]


def pushes_elsewhere(thread: eventq.Thread) -> bool:
    """Return whether another OS thread can push."""
    runner = threading.Thread(target=thread.push, args=("self", "note", "w"), daemon=True)
    runner.start()
    runner.join(5)
    return not runner.is_alive()
