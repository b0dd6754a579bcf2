"""The contract of `Database.watch` by engine, and how few descriptors it takes on SQLite."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import NotAThreadError
from tests.servers import delete

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.store.protocol import Database, Watcher
    from tests.conftest import RunPython

SECONDS = 20.0  # what nobody waits for in vain
SOON = 0.5  # a wake-up, on a busy machine: less than the look each second that does without


@pytest.fixture
def watcher(database: Database) -> Iterator[Watcher]:
    """Return a watcher that was made before anything was stored."""
    with database.watch() as made:
        yield made


def instances() -> int:
    """Return how many inotify instances this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
        except OSError:
            pass
    return found


def test_what_came_before_the_wait_is_not_missed(opened: eventq.Thread, watcher: Watcher) -> None:
    """A watcher is armed when it is made."""
    opened.push("self", "note", "1")
    assert watcher.wait(SECONDS)
    while watcher.wait(0):
        pass
    opened.push("self", "note", "2")
    assert watcher.wait(SECONDS)


def test_a_push_by_anybody_wakes(opened: eventq.Thread, second: Database, watcher: Watcher) -> None:
    """Whoever has the same thread open wakes the waiter, and what woke it is to be read."""
    timer = threading.Timer(0.1, lambda: second.events.add(("other", "note", "1", None, None)))  # type: ignore[arg-type]
    timer.start()
    begun = time.monotonic()
    assert watcher.wait(SECONDS)
    assert time.monotonic() - begun < SECONDS / 2
    assert opened.last_id() == 1
    timer.join()


def test_nothing_wakes_for_long(watcher: Watcher) -> None:
    """Without news a wait ends when its time is up."""
    begun = time.monotonic()
    assert not watcher.wait(0.05)
    assert 0.04 < time.monotonic() - begun < SECONDS


def test_a_thread_that_is_gone_ends_the_wait(opened: eventq.Thread, watcher: Watcher) -> None:
    """Nobody waits for ever for a thread that was deleted."""
    delete(opened.path)
    with pytest.raises(NotAThreadError):
        while True:
            watcher.wait(0.01)


def test_many_wait_at_one_instance(tmp_path: Path, quick: None) -> None:
    """A process has one inotify instance for any number of waiters, and none at the end."""
    before = instances()
    threads = [eventq.open(tmp_path / str(n % 5), create=True) for n in range(20)]
    watchers = [thread.database.watch() for thread in threads]
    assert instances() == before + 1
    woken: list[tuple[int, float]] = []
    ready = threading.Barrier(len(threads) + 1)

    def wait(number: int) -> None:
        ready.wait()
        if watchers[number].wait(SECONDS):
            woken.append((number, time.monotonic()))

    runners = [threading.Thread(target=wait, args=(n,)) for n in range(len(threads))]
    for runner in runners:
        runner.start()
    ready.wait()
    for n in (3, 1, 4, 0, 2):
        time.sleep(0.01)
        threads[n].push("self", "note", "x")
    pushed = time.monotonic()
    for runner in runners:
        runner.join(SECONDS)
    assert sorted(number for number, _ in woken) == list(range(20))
    assert max(at for _, at in woken) - pushed < SOON * 4
    for watcher, thread in zip(watchers, threads, strict=True):
        watcher.close()
        thread.close()
    assert instances() == before


def test_the_reader_hands_over(opened: eventq.Thread) -> None:
    """When the reading waiter leaves, the others still wake up."""
    watchers = [opened.database.watch() for _ in range(6)]
    woken: list[int] = []

    def follow(number: int) -> None:
        for _ in range(10):
            watchers[number].wait(0.001 * number)
        woken.append(watchers[number].wait(SECONDS))

    runners = [threading.Thread(target=follow, args=(n,)) for n in range(6)]
    for runner in runners:
        runner.start()
    time.sleep(0.2)
    begun = time.monotonic()
    opened.push("self", "note", "x")
    for runner in runners:
        runner.join(SECONDS)
    assert woken == [True] * 6
    assert time.monotonic() - begun < SECONDS / 2
    for watcher in watchers:
        watcher.close()


@pytest.mark.engines("sqlite")
def test_the_mirror_may_be_another_file(opened: eventq.Thread, watcher: Watcher) -> None:
    """A mirror that was rotated, removed or made anew is watched as the one before."""
    mirror = opened.layout.mirror
    for number in range(3):
        while watcher.wait(0):
            pass
        if number == 1:
            os.rename(mirror, mirror + ".old")
        if number == 2:
            opened.rebuild_mirror()
            assert watcher.wait(SECONDS)
        opened.push("self", "note", "x")
        assert watcher.wait(SECONDS)


def test_a_fork_does_not_wait_to_watch(path: str, run_python: RunPython) -> None:
    """A child is refused at once, also without inotify, and while a thread of its parent writes."""
    code = """
import os, signal, sys, threading, eventq
from eventq.store.sqlite import watcher

def refuse(*_, **__):
    raise OSError(24, "no more instances")

watcher._Watch.__init__ = refuse
thread = eventq.open(sys.argv[1])
inside, done = threading.Event(), threading.Event()

def write():
    with thread.write():
        inside.set()
        done.wait()

runner = threading.Thread(target=write)
runner.start()
inside.wait()
pid = os.fork()
if not pid:
    signal.alarm(10)
    try:
        next(thread.follow(0))
    except eventq.errors.ClosedError:
        os._exit(0)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done.set()
runner.join()
"""
    assert run_python(code, path) == "0\n"


@pytest.mark.engines("sqlite")
def test_a_waiter_without_inotify_does_not_wait_for_a_writer(
    opened: eventq.Thread, database: Database, without_inotify: None
) -> None:
    """It is made, and its wait ends in time, while another OS thread is inside `write`."""
    opened.push("self", "note", "1")
    inside, done, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        with opened.write():
            inside.set()
            done.wait(SECONDS)
        ended.set()

    threading.Thread(target=write, daemon=True).start()
    assert inside.wait(SECONDS)
    follower = opened.follow(0)
    try:
        assert next(follower).id == 1
        with database.watch() as waiter:
            assert not waiter.wait(0.05)
        assert not ended.is_set()
    finally:
        done.set()
    assert ended.wait(SECONDS)
