"""A `Thread` from open to close: in threads, over forks, and while its directory goes away."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ClosedError, NotAThreadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunPython


def all_calls(thread: eventq.Thread) -> list[Callable[[], Any]]:
    """Return a call of every method that touches the store."""
    return [
        lambda: thread.push("self", "note", "x"), lambda: thread.push("self", "note", "x", key="k"),
        lambda: thread.push_many([("self", "note", "x")]), lambda: thread.write().__enter__(),
        lambda: list(thread.peek()), lambda: list(thread.peek(filter="id = 1")), thread.last,
        thread.last_id, thread.latest, lambda: next(thread.follow(0)),
        lambda: thread.subscribe("w", "true"), lambda: thread.unsubscribe("w"),
        thread.subscriptions, lambda: thread.pop("w", 0), lambda: thread.pop("w", 0, wait=120),
        lambda: thread.ack("w", 0), lambda: thread.resume("w"), thread.dispatch, thread.status,
        thread.check, lambda: thread.prune(keep_last=1), thread.rebuild_mirror,
    ]  # fmt: skip


def test_nothing_is_stored_in_a_thread_that_was_moved(path: str) -> None:
    """A write to a thread that was moved or replaced is refused before anything is stored."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        context.append("before")
        os.rename(path, path + ".moved")
        for _ in range(2):
            for call in (
                lambda: context.append("after"),
                lambda: thread.blobs.put(b"x"),
                thread.contexts.create,
            ):
                with pytest.raises(NotAThreadError):
                    call()
            if not os.path.exists(path):
                eventq.init(path)
    with eventq.open(path + ".moved") as thread:
        assert [turn.payload for turn in thread.contexts.get(1).replay()] == [b"before"]
        assert (len(list(thread.contexts)), len(thread.blobs)) == (1, 1)
    shutil.rmtree(path + ".moved")


def test_a_closed_thread_refuses_everything(path: str) -> None:
    """After `close` every call raises ClosedError with a hint; closing again is fine."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        lazy = thread.peek()
    thread.close()
    for call in [*all_calls(thread), lazy.__next__]:
        with pytest.raises(
            ClosedError, match=r"the thread is closed - open it again with eventq\.open"
        ):
            call()
    assert thread.path == path


def test_a_closed_thread_holds_nothing(path: str) -> None:
    """`close` releases every descriptor, even after failed calls and with an abandoned follower."""

    def use() -> None:
        thread = eventq.open(path)
        thread.push("self", "note", "x")
        list(thread.peek(filter="id = 1"))
        events = thread.follow(0)
        next(events)
        del events
        thread.rebuild_mirror()
        thread.close()
        for call in all_calls(thread):
            with pytest.raises(ClosedError):
                call()

    use()
    before = sorted(os.listdir("/dev/fd"))
    use()
    assert sorted(os.listdir("/dev/fd")) == before


def test_a_fork_refuses_the_parents_thread(path: str, run_python: RunPython) -> None:
    """In a forked child every call raises ClosedError; the parent keeps working."""
    code = """
import os, sys, eventq
from eventq.errors import ClosedError
thread = eventq.open(sys.argv[1])
thread.push("self", "note", "parent")
thread.subscribe("w", "true")
pid = os.fork()
if not pid:
    code = 0
    for call in (lambda: thread.push("self", "note", "x"), thread.last_id, thread.status, thread.check, thread.dispatch,
                 lambda: list(thread.peek()), lambda: thread.pop("w", 0), lambda: thread.write().__enter__(),  # noqa: PLW0108 (made when it is called)
                 lambda: list(thread.peek(filter="id = 1")), thread.rebuild_mirror, lambda: next(thread.follow(0))):
        try:
            call()
            code = 1
        except ClosedError as error:
            code = code or 2 * (str(error) != "the thread was opened before this process was forked - open it again after the fork")
    thread.close()
    with eventq.open(sys.argv[1]) as own:
        own.push("self", "note", "child")
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread.push("self", "note", "parent again")
print([event.content for event in thread.peek()], thread.check())
thread.close()
"""
    assert run_python(code, path) == "0\n['parent', 'child', 'parent again'] []\n"


def test_threads_share_a_thread(thread: eventq.Thread) -> None:
    """Simultaneous calls of many threads lose and mix nothing, and keep the mirror right."""
    thread.subscribe("w", "true")
    errors: list[BaseException] = []
    start = threading.Barrier(6)

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def push() -> None:
        name = threading.current_thread().name
        for number in range(150):
            event = thread.push(name, "note", str(number))
            assert (event.source, event.content) == (name, str(number))

    def batch() -> None:
        for number in range(30):
            found = thread.push_many([("batch", "note", f"{number}.{n}") for n in range(5)])
            assert (found.count, found.last_id) == (5, (found.first_id or 0) + 4)

    def read() -> None:
        at = 0
        while at < 750:
            for event in thread.pop("w", at, limit=50):
                assert event.id == at + 1
                at = event.id
            list(thread.peek(at, filter="type = 'note'"))

    runners = [
        threading.Thread(target=run, args=(work,)) for work in (push, push, push, push, batch, read)
    ]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert errors == []
    by_source: dict[str, list[str]] = {}
    for event in thread.peek(limit=None):
        by_source.setdefault(event.source, []).append(event.content)
    batches = by_source.pop("batch")
    assert batches == [f"{number}.{n}" for number in range(30) for n in range(5)]
    assert list(by_source.values()) == [[str(number) for number in range(150)]] * 4
    with open(os.path.join(thread.path, "logs", "thread.log")) as file:
        assert (
            sum(
                " push" in line and line.startswith("[2") and line.count("\n") == 1 for line in file
            )
            == 630
        )


def test_processes_share_a_thread(thread: eventq.Thread, run_python: RunPython) -> None:
    """Pushes of several processes at once are all there, in one order, in the mirror too."""
    code = (
        "import sys, eventq\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    for n in range(100): thread.push(sys.argv[2], 'note', str(n))\n"
    )
    runners = [
        threading.Thread(target=run_python, args=(code, thread.path, str(n))) for n in range(3)
    ]
    for runner in runners:
        runner.start()
    for number in range(100):
        thread.push("own", "note", str(number))
    for runner in runners:
        runner.join()
    events = list(thread.peek(limit=None))
    assert [event.id for event in events] == list(range(1, 401))
    for source in ("own", "0", "1", "2"):
        assert [event.content for event in events if event.source == source] == [
            str(n) for n in range(100)
        ]


# --- the directory goes away ----------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("call", [
    lambda thread: thread.push("self", "note", "x"),
    lambda thread: thread.push("self", "note", "x", key="k"),
    lambda thread: thread.push_many([("self", "note", "x")]), lambda thread: thread.ack("w", 1),
    lambda thread: thread.pop("w", 1), lambda thread: thread.subscribe("v", "true"),
    lambda thread: thread.unsubscribe("w"), lambda thread: thread.rebuild_mirror(),
])  # fmt: skip
def test_writing_to_a_thread_that_was_deleted(
    path: str, call: Callable[[eventq.Thread], object], again: bool
) -> None:
    """A write to a deleted or replaced thread raises NotAThreadError and changes nothing."""
    thread = eventq.open(path)
    thread.push("self", "note", "x")
    thread.subscribe("w", "true")
    shutil.rmtree(path)
    if again:
        eventq.init(path)
        with eventq.open(path) as other:
            other.push("other", "note", "mine")
    with pytest.raises(NotAThreadError):
        call(thread)
    thread.close()
    assert os.path.exists(path) == again
    if again:
        with eventq.open(path) as other:
            assert [event.source for event in other.peek()] == ["other"]
            assert other.subscriptions() == []
            assert other.check() == []


def test_a_thread_moved_away_and_back(path: str) -> None:
    """A directory that is moved away is no thread any more; moved back, it is the same one."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        os.rename(path, path + ".away")
        with pytest.raises(NotAThreadError):
            thread.push_many([("self", "note", "y")])
        os.rename(path + ".away", path)
        thread.push("self", "note", "z")
        assert thread.check() == []
        assert [event.content for event in thread.peek()] == ["x", "z"]


@pytest.mark.parametrize("name", ["run", "logs", "events.jsonl"])
def test_folders_that_go_missing_come_back(thread: eventq.Thread, name: str) -> None:
    """Files next to the database may be deleted while a thread is open; a push recreates them."""
    thread.subscribe("w", "true")
    thread.push("self", "note", "x")
    gone = os.path.join(thread.path, name)
    if os.path.isdir(gone):
        shutil.rmtree(gone)
    else:
        os.unlink(gone)
    with eventq.open(thread.path) as other:
        other.push("self", "note", "y")
    thread.push("self", "note", "z")
    assert thread.check() == []
    assert os.path.exists(gone)
