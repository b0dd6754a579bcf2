"""An interrupt (Ctrl-C) at any moment leaves no transaction and no lock behind."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.log import reader
from eventq.store import transactions
from eventq.store.opening import in_memory
from eventq.store.sqlite import database, memory
from eventq.system import locks
from eventq.system.locks import FolderLock
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from eventq.store.sqlite.memory import MemoryDatabase


SHARED = transactions.__file__  # what every engine does


@pytest.fixture(name="thread")
def _thread(tmp_path: Path) -> Iterator[eventq.Thread]:
    with eventq.open(tmp_path / "t", create=True) as thread:
        thread.push("self", "note", "x")
        yield thread


class Interrupts:
    """A trace function that interrupts the n-th call in some modules: by default, a database's."""

    def __init__(self, number: int, *files: str) -> None:
        """Count from one."""
        self.left = number
        self.files = files or (database.__file__, SHARED)
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Raise KeyboardInterrupt where Python itself would: when a function begins.

        In `__del__` Python drops it.
        """
        code = frame.f_code
        if code.co_filename in self.files and event == "call" and code.co_name != "__del__":
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


class Interrupted:
    """A connection that does what it is told, and is interrupted as one statement ends, once."""

    def __init__(self, real: Any, at: str) -> None:
        """Wrap a connection; `at` is the name of the method that is interrupted."""
        self._real = real
        self._at = at

    def __getattr__(self, name: str) -> Any:
        """Do what the connection does; then raise KeyboardInterrupt, the first time."""
        found = getattr(self._real, name)
        if name != self._at:
            return found

        def interrupted(*words: Any) -> Any:
            found(*words)
            self._at = ""
            raise KeyboardInterrupt

        return interrupted


def test_an_interrupt_as_a_transaction_begins_keeps_nobody_waiting(thread: eventq.Thread) -> None:
    """SQLite's lock is not held until this process writes again: others write at once."""
    db = sqlite(thread.database)
    thread.push("self", "note", "x")
    real = db.open_connection
    assert real is not None
    db.open_connection = Interrupted(real, "execute")  # type: ignore[assignment]
    try:
        with pytest.raises(KeyboardInterrupt), thread.write():
            pass
    finally:
        db.open_connection = real
    assert real.get_autocommit()
    assert pushes_elsewhere(thread)


def test_an_interrupt_as_the_level_changes_is_on_the_safe_side(thread: eventq.Thread) -> None:
    """What a commit waits for is never less than the handle believes."""
    db = sqlite(thread.database)
    for relaxed in (True, False):
        for before in (relaxed, not relaxed):
            with db.write(relaxed=before):
                pass
        real = db.open_connection
        assert real is not None
        db.open_connection = Interrupted(real, "pragma")  # type: ignore[assignment]
        try:
            with pytest.raises(KeyboardInterrupt), db.write(relaxed=relaxed):
                pass
        finally:
            db.open_connection = real
        assert db.is_relaxed or real.pragma("synchronous") == 2
        with db.write():
            assert real.pragma("synchronous") == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
@pytest.mark.parametrize("how", ["push", "prune"])
def test_an_interrupt_after_a_line_was_written(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], how: str
) -> None:
    """A line whose writing was not noted is not written twice: the next push looks."""
    write, errors = os.write, [error]

    def interrupted(fd: int, data: bytes) -> int:
        is_line = bytes(data[:6]) == b'{"id":'
        if is_line and errors == [error, OSError]:  # nothing is written the first time
            raise errors.pop()
        done = write(fd, data)
        if is_line and errors:
            raise errors.pop()
        return done

    monkeypatch.setattr("os.write", interrupted)
    if how == "prune":  # which writes what the mirror lacks
        errors.append(OSError)
        thread.push("self", "note", "not written")
    with suppress(KeyboardInterrupt, MemoryError, OSError):
        if how == "push":
            thread.push("self", "note", "x")
        else:
            thread.prune(before_id=1, force=True)
    assert not errors
    thread.push("self", "note", "y")
    assert thread.check() == []


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
    lock: Any = sqlite(db).lock
    for call in (
        sqlite(db).begin,
        lambda: sqlite(db).run("SELECT 1"),
        lambda: sqlite(db).steady(str),
    ):
        sqlite(db).lock = InterruptedLock(lock)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            call()
        sqlite(db).lock = lock
        assert pushes_elsewhere(thread)


def test_an_interrupt_leaves_no_lock_of_a_database_in_memory() -> None:
    """Other OS threads can read after an interrupt, as the block begins or as it ends."""
    db = in_memory()
    lock: Any = db.lock
    db.lock = InterruptedLock(lock)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), db.read():
        pass
    db.lock = lock
    assert can_take(lock)
    number, where, seen = 1, read_interrupted(db, 1), []
    while where:
        assert can_take(lock), where
        seen.append(where)
        number += 1
        where = read_interrupted(db, number)
    assert seen == ["read", "__enter__", "leave", "undo"]


def read_interrupted(db: MemoryDatabase, number: int) -> str:
    """Interrupt a read at a call in the module of `db`; return its name, "" after the last one."""
    interrupts, before = Interrupts(number, memory.__file__), sys.gettrace()
    sys.settrace(interrupts)
    try:
        with db.read():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupts.where


def can_take(lock: Any) -> bool:
    """Return whether another OS thread can take a lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(timeout=1))
        if taken[0]:
            lock.release()

    runner = threading.Thread(target=take)
    runner.start()
    runner.join()
    return taken == [True]


def test_an_interrupt_leaves_no_lock_of_a_folder(tmp_path: Path) -> None:
    """Another holder can lock a folder at once after an interrupt, whenever that strikes."""
    lock, other = FolderLock(str(tmp_path)), FolderLock(str(tmp_path))
    number = 1
    while True:
        interrupts, before = Interrupts(number, locks.__file__), sys.gettrace()
        sys.settrace(interrupts)
        try:
            lock.run(lambda: None)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if not interrupts.where:
            break
        assert other.run(lambda: True), interrupts.where
        number += 1
    assert number > 1


def test_an_interrupt_of_a_step_leaves_no_lock_of_this_process() -> None:
    """A lock that was taken as the interrupt came is released; one that was not is left alone."""
    lock: Any = threading.RLock()
    with pytest.raises(KeyboardInterrupt):
        locks.within(InterruptedLock(lock), 1, lambda: None)  # type: ignore[arg-type]
    assert can_take(lock)
    with lock:
        assert locks.within(lock, 0, lambda: None)
        taken: list[bool] = []
        other = threading.Thread(target=lambda: taken.append(locks.within(lock, 0, taken.clear)))
        other.start()
        other.join()
        assert (taken, can_take(lock)) == ([False], False)
    assert can_take(lock)


KEPT: list[BaseException] = []


@pytest.mark.parametrize("how", ["write", "read", "joined"])
@pytest.mark.parametrize("failed", [False, True])
def test_an_interrupt_as_a_block_ends_undoes_it_though_its_traceback_is_kept(
    thread: eventq.Thread, how: str, failed: bool
) -> None:
    """As a REPL keeps it: what comes next joins nothing that was interrupted, and is stored."""
    db, number = sqlite(thread.database), 1
    blocks: dict[str, Any] = {"write": db.write, "read": db.read, "joined": db.joined}
    while True:
        interrupts, before = Interrupts(number), sys.gettrace()
        try:
            sys.settrace(interrupts)
            with blocks[how]():
                if how != "read":
                    thread.push("self", "note", "y")
                if failed:
                    raise LookupError
        except (KeyboardInterrupt, LookupError) as error:
            sys.settrace(before)
            KEPT[:] = [error]  # with its traceback, and all frames in that
            event = thread.push("self", "note", "after")
            assert not db.depth
            with eventq.open(thread.path, read_only=True) as other:
                assert other.last_id() == event.id, interrupts.where
            assert pushes_elsewhere(thread), interrupts.where
            db.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # nobody reads
        finally:
            sys.settrace(before)
        if not interrupts.where:
            break
        number += 1
    KEPT.clear()
    assert number > 3


def test_an_interrupt_as_a_joined_part_ends_spoils_the_transaction(thread: eventq.Thread) -> None:
    """A part that failed half-way is not committed, if its end was interrupted as well."""
    db = sqlite(thread.database)
    before = thread.last_id()

    def part() -> None:
        with db.joined():
            thread.push("self", "note", "half")
            sys.settrace(Interrupts(1))
            raise LookupError

    trace = sys.gettrace()
    with pytest.raises(eventq.DiskError), db.write():
        try:
            part()
        except KeyboardInterrupt as error:
            sys.settrace(trace)
            KEPT.append(error)
    KEPT.clear()
    assert thread.last_id() == before


def test_an_interrupt_as_a_file_closes_leaves_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed file is not used again: by then it may be another file's."""
    close, number = os.close, 0
    closed: list[int] = []

    def interrupted(fd: int) -> None:
        close(fd)
        closed.append(fd)
        if len(closed) == number:
            raise KeyboardInterrupt

    while len(closed) == number:
        closed, number = [], number + 1
        thread = eventq.open(tmp_path / f"t{number}", create=True)
        thread.push("self", "note", "x")
        monkeypatch.setattr("os.close", interrupted)
        with suppress(KeyboardInterrupt):
            thread.close()
        monkeypatch.undo()
        others: list[int] = []
        while closed and closed[-1] not in others:
            others.append(os.open(tmp_path, os.O_RDONLY))
        thread.close()
        for fd in others:
            close(fd)  # raises if somebody else has done so
    assert number > 2


@pytest.mark.parametrize("file", [locks.__file__, reader.__file__])
def test_an_interrupt_leaves_no_lease_of_a_reader(thread: eventq.Thread, file: str) -> None:
    """The next loop of the process reads as the consumer at once, whenever an interrupt came."""
    thread.subscribe("reader")
    thread.push("self", "note", "y")
    number = 1
    while True:
        interrupts, before = Interrupts(number, file), sys.gettrace()
        sys.settrace(interrupts)
        try:
            for _ in thread.consume("reader", wait=0, idle=0):
                pass
        except KeyboardInterrupt as error:
            sys.settrace(before)
            KEPT[:] = [error]
            thread.push("self", "note", "z")
            found = [event.content for event in thread.consume("reader", wait=0, idle=0)]
            assert found[-1:] == ["z"], interrupts.where
        finally:
            sys.settrace(before)
        if not interrupts.where:
            break
        number += 1
    KEPT.clear()
    assert number > 5


def pushes_elsewhere(thread: eventq.Thread) -> bool:
    """Return whether another OS thread can push."""
    runner = threading.Thread(target=thread.push, args=("self", "note", "w"), daemon=True)
    runner.start()
    runner.join(5)
    return not runner.is_alive()
