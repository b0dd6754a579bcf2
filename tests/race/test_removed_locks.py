"""Handlers may remove their lock file: still only one runs at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import portalocker
import pytest

import eventq
from eventq.log.notifier import quote
from eventq.system import locks
from eventq.system.locks import ConsumerLock
from tests.race.support import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.race.support import Box

REMOVALS = ["rm run/w.lock", "rm -f run/*.lock", "rm -rf run"]

# Notes its start, acks what there is, removes its lock file, and goes on until the test opens the
# gate.
HANDLER = """
import fcntl, os, subprocess, sys, eventq
folder, removal = sys.argv[1:]
def note(text):
    trace = os.open(f"{folder}/trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(trace, f"w {os.getpid()} {text}\\n".encode())
    os.close(trace)
alone = os.open(f"{folder}/alone", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlap")
note("start")
with eventq.open(os.environ["EVENTQ_THREAD"]) as thread:
    at = int(os.environ["EVENTQ_LAST_ACKED_ID"])
    while events := thread.pop("w", at):
        at = events[-1].id
subprocess.run(removal, shell=True, cwd=os.environ["EVENTQ_THREAD"], check=True)
note("removed")
os.read(os.open(f"{folder}/gate", os.O_RDONLY), 1)
note("end")
"""


def start(box: Box, removal: str) -> str:
    """Run the handler until it has removed its lock file, and give its gate."""
    gate = os.path.join(box.folder, "gate")
    os.mkfifo(gate)
    words = [sys.executable, "-c", HANDLER, box.folder, removal]
    box.thread.subscribe("w", "exec " + " ".join(map(quote, words)))
    box.thread.push("self", "test", "x")
    until(lambda: box.trace("removed"), "the handler has removed its lock file")
    return gate


def finish(box: Box, gate: str) -> None:
    """Let every handler go on until all is handled."""

    def done() -> bool:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass  # nobody waits at it
        return box.all_handled() and box.quiet()

    until(done, "all is handled")
    assert box.trace("overlap") == []


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_handler_that_removes_its_lock_file_is_alone_until_it_ends(
    removal: str, box: Box
) -> None:
    """Pushes and dispatches start no second handler; their events are handled afterwards."""
    gate = start(box, removal)
    box.thread.push("self", "test", "meanwhile")
    assert box.run("dispatch", "--thread", box.path).returncode == 0
    assert box.journal("consumer=w skipped (lock held)")
    assert box.consumer().running
    assert len(box.trace("start")) == 1
    finish(box, gate)
    assert len(box.trace("start")) == 2
    assert not box.consumer().running


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_holder_makes_a_removed_lock_file_again(removal: str, box: Box) -> None:
    """The file names the running handler, and is locked, for programs that know only it."""
    gate = start(box, removal)
    path = box.thread.layout.consumer("w").lock
    until(lambda: os.path.exists(path) and box.handler_pid(), "the file is there again")
    assert [line.split()[1] for line in box.trace("start")] == [str(box.handler_pid())]
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    finish(box, gate)


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_handler_that_removed_its_lock_file_and_lost_its_supervisor_is_waited_for(
    removal: str, box: Box
) -> None:
    """The next dispatch knows of the handler, though the file that named it has gone."""
    path = box.thread.layout.consumer("w").lock
    gate = start(box, "true")
    handler, supervisor = box.handler_pid(), box.supervisors()[0]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not box.held(), "the lock died with its holder")
    if removal == "rm -rf run":
        os.rename(os.path.dirname(path), os.path.join(box.folder, "run"))
    else:
        os.unlink(path)
    box.thread.push("self", "test", "meanwhile")
    waits = f"waits for pid={handler} of a lost supervisor"
    until(lambda: box.journal(waits), "the next supervisor waits")
    assert len(box.trace("start")) == 1
    finish(box, gate)


# --- the lock by itself ---------------------------------------------------------------------------


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[eventq.Thread]:
    """Return a thread whose locks are taken and removed in this process."""
    with eventq.open(tmp_path / "t", create=True) as made:
        yield made


def take(thread: eventq.Thread) -> ConsumerLock:
    """Take the lock of a consumer that nobody has."""
    lock = ConsumerLock.take(thread.layout.consumer("w"))
    assert lock is not None
    return lock


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that nobody finds any more is no lock: it is begun again, for both files."""
    take(thread).close()
    real, files = locks.lock_whole, thread.layout.consumer("w")
    paths = [files.guard, files.lock]

    def lock_whole(fd: int, *, wait: bool) -> None:
        if paths and os.path.samestat(os.fstat(fd), os.stat(paths[0])):
            os.unlink(paths.pop(0))
        real(fd, wait=wait)

    monkeypatch.setattr(locks, "lock_whole", lock_whole)
    lock = take(thread)
    assert paths == []
    assert os.path.samestat(os.fstat(lock.guard), os.stat(thread.layout.consumer("w").guard))
    assert os.path.samestat(os.fstat(lock.fd), os.stat(thread.layout.consumer("w").lock))
    assert ConsumerLock.take(thread.layout.consumer("w")) is None


REMOVED: dict[str, Callable[[eventq.Thread], object]] = {
    "the lock": lambda thread: os.unlink(thread.layout.consumer("w").lock),
    "the guard": lambda thread: os.unlink(thread.layout.consumer("w").guard),
    "all guards": lambda thread: shutil.rmtree(thread.layout.guards),
}


@pytest.mark.parametrize("what", REMOVED)
def test_a_held_lock_whose_file_was_removed_is_still_held(what: str, thread: eventq.Thread) -> None:
    """One file of the two is enough, until the holder has made the other one again."""
    lock = take(thread)
    lock.note(os.getpid())
    REMOVED[what](thread)
    assert locks.held(thread.layout.consumer("w"))
    assert ConsumerLock.take(thread.layout.consumer("w")) is None
    lock.renew()
    for path in (thread.layout.consumer("w").guard, thread.layout.consumer("w").lock):
        fd = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
    assert lock.orphan() == os.getpid()
    lock.release()
    assert not locks.held(thread.layout.consumer("w"))
    take(thread).close()


@pytest.mark.parametrize("again", [True, False])
def test_the_lock_file_of_a_deleted_thread_is_not_made_again(
    thread: eventq.Thread, again: bool
) -> None:
    """Nor is one made in a thread that takes its place: its locks are its own."""
    lock = take(thread)
    os.rename(thread.path, thread.path + "-moved")
    if again:
        eventq.init(thread.path)
    lock.renew()
    lock.note(os.getpid())
    assert os.path.exists(thread.path) is again
    if again:
        assert os.listdir(f"{thread.path}/run") == []
        assert not os.path.exists(thread.layout.guards)
    lock.release()
    lock.forget()


def test_a_lock_that_came_free_while_we_had_its_guard_is_tried_again(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that met our guard left its event to us; older holders have looked already."""
    fd = os.open(thread.layout.consumer("w").lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    holders = [fd]

    def flock(fd: int, how: int) -> None:
        if how == fcntl.LOCK_UN and holders:  # of the guard
            os.close(holders.pop())
        fcntl.flock(fd, how)

    monkeypatch.setattr(locks, "flock", flock)
    take(thread).close()
    assert holders == []


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o700), (True, 0o777)])
def test_guards_are_for_everybody_who_may_use_the_thread(
    shared: bool, mode: int, tmp_path: Path
) -> None:
    """Whoever may write a shared thread may dispatch it, whoever did so first."""
    before = os.umask(0)
    try:
        with eventq.open(eventq.init(tmp_path / "shared", shared=shared)) as thread:
            lock = take(thread)
            assert os.stat(thread.layout.guards).st_mode & 0o777 == mode
            assert os.stat(thread.layout.consumer("w").guard).st_mode & 0o777 == mode & 0o666
            lock.release()
            lock.forget()
    finally:
        os.umask(before)


def test_a_lock_that_an_older_eventq_holds_is_held(thread: eventq.Thread) -> None:
    """It knows of the lock file only."""
    fd = os.open(thread.layout.consumer("w").lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert locks.held(thread.layout.consumer("w"))
    assert ConsumerLock.take(thread.layout.consumer("w")) is None
    os.close(fd)
    take(thread).close()


@pytest.mark.parametrize("guarded", [False, True])
def test_a_handler_that_an_older_supervisor_left_is_known(
    thread: eventq.Thread, *, guarded: bool
) -> None:
    """The lock file's note counts if the guard has none, or one of an earlier supervisor."""
    from eventq.system import processes

    if guarded:
        take(thread).close()  # killed: its guard stays
    with open(thread.layout.consumer("w").lock, "w", encoding="utf-8") as file:
        file.write(f"supervisor 1\nhandler {os.getpid()} {processes.birth(os.getpid())}\n")
    lock = take(thread)
    assert lock.orphan() == os.getpid()
    lock.note()
    assert lock.orphan() is None
    lock.close()


def test_handlers_of_the_thread_that_a_directory_was_copied_from_are_not_waited_for(
    thread: eventq.Thread, tmp_path: Path
) -> None:
    """A copy made while a handler ran ignores the notes, and blocks nobody."""
    lock = take(thread)
    lock.note(os.getpid())
    shutil.copytree(thread.path, tmp_path / "copy", copy_function=shutil.copy2)
    with eventq.open(tmp_path / "copy") as copy:
        other = take(copy)
        assert other.orphan() is None
        other.close()
    lock.close()
    lock = take(thread)
    assert lock.orphan() == os.getpid()
    lock.close()


@pytest.mark.parametrize("first", ["system", "library"])
def test_a_lock_of_the_library_excludes_one_of_the_system(first: str, tmp_path: Path) -> None:
    """`flock` and portalocker exclude each other, on files and folders."""
    (tmp_path / "file").touch()

    def system_takes(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def library_takes(fd: int) -> None:
        locks.lock_whole(fd, wait=False)

    one, other = (system_takes, library_takes)[:: 1 if first == "system" else -1]
    for path in (tmp_path / "file", tmp_path):
        fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        one(fds[0])
        with pytest.raises(BlockingIOError):
            other(fds[1])
        os.close(fds[0])
        other(fds[1])
        os.close(fds[1])


def test_a_lock_that_fails_says_why(tmp_path: Path) -> None:
    """The error of the library has the number of the system's error."""
    (tmp_path / "file").touch()
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    os.close(fd)
    with pytest.raises(OSError, match="descriptor") as failed:
        locks.lock_whole(fd, wait=False)
    assert failed.value.errno == errno.EBADF


def test_the_library_takes_the_locks_of_consumers(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch, supervisor and worker leave every exclusive lock to portalocker."""

    def only_look(fd: int, flags: int) -> None:
        assert not flags & fcntl.LOCK_EX
        fcntl.flock(fd, flags)

    monkeypatch.setattr(locks, "flock", only_look)
    lock = take(thread)
    os.unlink(thread.layout.consumer("w").guard)
    os.unlink(thread.layout.consumer("w").lock)
    assert lock.renew()
    lock.release()
    lock.forget()
    hold = locks.Hold(thread.path, "w")
    assert locks.Leases(thread.path).is_worked("w")
    (name,) = locks.guards(thread.layout.guards)
    hold.release()
    Path(thread.layout.guards, name).touch()  # as if it was killed
    leases = locks.Leases(thread.path)
    assert leases.is_lost("w")
    leases.forget_lost("w")
    assert not locks.Leases(thread.path).is_lost("w")


@pytest.mark.parametrize("taker", [fcntl.flock, portalocker.lock], ids=["system", "library"])
@pytest.mark.parametrize("kind", ["guard", "lock"])
def test_a_lock_of_another_program_excludes_one_of_a_consumer(
    thread: eventq.Thread, kind: str, taker: Callable[[int, Any], object]
) -> None:
    """So it is the other way round, and pushes see either as held."""
    files = thread.layout.consumer("w")
    lock = take(thread)
    fd = os.open(getattr(files, kind), os.O_RDWR)
    flags = portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
    with pytest.raises((BlockingIOError, portalocker.AlreadyLocked)):
        taker(fd, flags)
    assert locks.held(files)
    lock.release()
    taker(fd, flags)
    assert locks.held(files)
    assert ConsumerLock.take(files) is None
    os.close(fd)
    lock.forget()
    assert not locks.held(files)


def test_dispatch_loads_the_part_of_the_library_that_locks(thread: eventq.Thread) -> None:
    """Only that part, and only once a consumer is due."""
    words = [sys.executable, "-X", "importtime", "-m", "eventq", "dispatch", "--thread"]

    def imported() -> set[str]:
        done = subprocess.run(
            [*words, thread.path], capture_output=True, text=True, timeout=300, check=True
        )
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}

    thread.subscribe("w", "true")
    part = {"eventq.system.flock", "eventq.system.flock.portalocker", "portalocker"}
    assert not imported() & part
    thread.push("self", "test", "x")
    assert imported() & part == {"eventq.system.flock", "eventq.system.flock.portalocker"}
