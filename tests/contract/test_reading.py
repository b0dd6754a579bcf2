"""Reading: peek, last, latest and follow are lazy, ordered, and wake up for new events."""

from __future__ import annotations

import os
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import FilterError, InputError, UsageError
from eventq.errors import NotAThreadError
from tests.servers import delete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.conftest import RunPython


pytestmark = pytest.mark.engines("sqlite", "postgres")


def fill(thread: eventq.Thread, count: int = 10) -> None:
    """Push events whose content is their id and whose types take turns."""
    thread.push_many(("self", "odd" if n % 2 else "even", str(n)) for n in range(1, count + 1))


def ids(events: Iterable[eventq.Event]) -> list[int]:
    """Return the ids of events."""
    return [event.id for event in events]


@pytest.mark.parametrize("after", [0, 3, 9, 10])
@pytest.mark.parametrize("limit", [1, 4, 100, None])
def test_peek_gives_what_comes_after(thread: eventq.Thread, after: int, limit: int | None) -> None:
    """`peek` gives the events after an id in order, at most `limit`."""
    fill(thread)
    assert ids(thread.peek(after, limit=limit)) == list(range(after + 1, 11))[:limit]
    expected = [n for n in range(after + 1, 11) if n % 2][:limit]
    assert ids(thread.peek(after, limit=limit, filter="type = 'odd'")) == expected


def test_peek_gives_a_hundred_by_default(thread: eventq.Thread) -> None:
    """By default a peek ends after 100 events; `limit=None` returns all, in pages."""
    fill(thread, 2_500)
    assert ids(thread.peek()) == list(range(1, 101))
    assert ids(thread.peek(limit=None)) == list(range(1, 2_501))
    assert ids(thread.peek(100, limit=1_700)) == list(range(101, 1_801))
    assert len(ids(thread.peek(limit=None, filter="type = 'odd'"))) == 1_250


def test_peek_is_lazy(thread: eventq.Thread) -> None:
    """A peek over forty megabytes holds a page of them, and may be left half way."""
    body = "x" * 100_000
    thread.push_many(("self", "note", body) for _ in range(400))
    for text in (None, "type = 'note'"):
        tracemalloc.start()
        try:
            seen = 0
            for event in thread.peek(limit=None, filter=text):
                seen += len(event.content)
            assert seen == 400 * len(body)
            assert tracemalloc.get_traced_memory()[1] < 30 << 20
        finally:
            tracemalloc.stop()
    left = thread.peek(limit=None)
    assert next(left).id == 1
    assert thread.push("self", "note", "a reader in the middle is no obstacle").id == 401


def test_peek_looks_when_it_is_read(thread: eventq.Thread) -> None:
    """What is stored between the call and the reading is given; what comes while reading is not."""
    reading = thread.peek(limit=None)
    fill(thread, 3)
    assert next(reading).id == 1
    thread.push("self", "note", "later")
    assert ids(reading) == [2, 3]


@pytest.mark.parametrize("call", ["peek", "last", "follow", "subscribe"])
@pytest.mark.parametrize("text", ["nonsense", "1=1) OR (1=1", "id = ?", "1; DROP TABLE events"])
def test_a_bad_filter_is_refused_at_the_call(
    thread: eventq.Thread, call: str, text: str, handler: str | None
) -> None:
    """A filter is checked when it is given, not when the events are read."""
    calls: dict[str, Callable[[], Any]] = {
        "peek": lambda: thread.peek(filter=text),
        "last": lambda: thread.last(filter=text),
        "follow": lambda: thread.follow(filter=text),
        "subscribe": lambda: thread.subscribe("w", handler, filter=text),
    }
    with pytest.raises(FilterError) as caught:
        calls[call]()
    assert str(caught.value).endswith("^")
    assert thread.subscriptions() == []


@pytest.mark.parametrize("text", ["", " ", "\n\t ", None])
def test_an_empty_filter_means_all(
    thread: eventq.Thread, text: str | None, handler: str | None
) -> None:
    """No filter, an empty one and blanks match every event, everywhere."""
    fill(thread, 3)
    assert ids(thread.peek(filter=text)) == ids(thread.last(filter=text)) == [1, 2, 3]
    thread.subscribe("w", handler, filter=text)
    assert ids(thread.pop("w", 0)) == [1, 2, 3]
    assert thread.status().consumers[0].pending == 3


@pytest.mark.parametrize("count", [1, 3, 10, 99])
@pytest.mark.parametrize("text", [None, "type = 'odd'", "content = 'nothing'"])
def test_last_gives_the_newest_oldest_first(
    thread: eventq.Thread, count: int, text: str | None
) -> None:
    """`last` gives the newest matches in the order they were pushed."""
    fill(thread)
    all_of_them = {
        None: range(1, 11),
        "type = 'odd'": range(1, 11, 2),
        "content = 'nothing'": range(0),
    }[text]
    assert ids(thread.last(count, filter=text)) == list(all_of_them)[-count:]


def test_last_finds_old_matches(thread: eventq.Thread) -> None:
    """`last` looks back as far as it must, over many pages and pruned ids."""
    fill(thread, 12_000)
    assert ids(thread.last(2, filter="id < 3")) == [1, 2]
    thread.prune(before_id=11_000)
    assert ids(thread.last(3, filter="id < 11003")) == [11_000, 11_001, 11_002]
    assert ids(thread.last(2_000))[0] == 11_000


@pytest.mark.parametrize("value", [-1, 1 << 63, 1.0, "1", None, True])
def test_numbers_that_are_refused(thread: eventq.Thread, value: Any, handler: str | None) -> None:
    """An id is a whole number from 0 to 2^63-1, and a count one from 1."""
    thread.subscribe("w", handler)
    calls: list[Callable[[], object]] = [
        lambda: thread.peek(value), lambda: thread.ack("w", value), lambda: thread.last(value),
        lambda: thread.pop("w", 0, limit=value),
    ]  # fmt: skip
    if value is not None:
        calls += [
            lambda: thread.pop("w", value),
            lambda: thread.peek(limit=value),
            lambda: thread.follow(value),
            lambda: thread.prune(keep_last=value),
        ]
    for call in calls:
        with pytest.raises(UsageError, match="must be a whole number from"):
            call()
    calls = [
        lambda: thread.peek(limit=0),
        lambda: thread.last(0),
        lambda: thread.pop("w", 0, limit=0),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="from 1 to"):
            call()


def test_latest_gives_the_newest_of_each(thread: eventq.Thread) -> None:
    """`latest` returns the newest event of each source, or of each type."""
    assert thread.latest() == {}
    thread.push_many([("a", "x", "1"), ("b", "y", "2"), ("a", "y", "3"), ("c", "x", "4")])
    expected = {"b": (2, "2"), "a": (3, "3"), "c": (4, "4")}
    assert {k: (e.id, e.content) for k, e in thread.latest().items()} == expected
    assert {k: e.id for k, e in thread.latest(by="type").items()} == {"y": 3, "x": 4}
    with pytest.raises(InputError, match="use 'source' or 'type'"):
        thread.latest(by="content")


# --- follow ---------------------------------------------------------------------------------------

PUSH = "import sys, eventq\nwith eventq.open(sys.argv[1]) as t: t.push('other process', sys.argv[2], 'x')\n"


def take(events: Iterator[eventq.Event], count: int) -> list[int]:
    """Return the ids of the next events."""
    return [next(events).id for _ in range(count)]


def test_follow_gives_what_is_there_and_what_comes(
    thread: eventq.Thread, run_python: RunPython
) -> None:
    """`follow` starts after an id, then wakes up for pushes of any process, in order."""
    fill(thread, 3)
    events = thread.follow(1)
    assert take(events, 2) == [2, 3]
    thread.push("self", "note", "x")
    assert take(events, 1) == [4]
    pusher = threading.Thread(target=run_python, args=(PUSH, thread.path, "note"))
    pusher.start()
    assert next(events).source == "other process"
    pusher.join()


def test_follow_from_now_on(thread: eventq.Thread) -> None:
    """Without an id, `follow` starts at the call, not at the first `next`."""
    fill(thread, 3)
    events = thread.follow()
    thread.push("self", "note", "x")
    assert take(events, 1) == [4]


def test_follow_a_filter(thread: eventq.Thread, run_python: RunPython) -> None:
    """With a filter only matches come, and the others do not end the wait."""
    events = thread.follow(0, filter="type = 'odd'")
    fill(thread, 4)
    assert take(events, 2) == [1, 3]
    pusher = threading.Thread(
        target=lambda: [run_python(PUSH, thread.path, kind) for kind in ("even", "odd")]
    )
    pusher.start()
    assert take(events, 1) == [6]
    pusher.join()


@pytest.mark.engines("sqlite")
def test_follow_across_rotations(thread: eventq.Thread, run_python: RunPython) -> None:
    """A follower misses nothing while the mirror is rotated, deleted and rebuilt."""
    events = thread.follow(0)
    fill(thread, 10_001)
    assert take(events, 10_001) == list(range(1, 10_002))
    for step in ("rotate", "delete", "rebuild"):
        if step == "delete":
            os.unlink(os.path.join(thread.path, "events.jsonl"))
        if step == "rebuild":
            thread.rebuild_mirror()
        before = thread.last_id()
        pusher = threading.Thread(target=run_python, args=(PUSH, thread.path, "note"))
        pusher.start()
        assert take(events, 1) == [before + 1]
        pusher.join()


def test_several_followers(thread: eventq.Thread) -> None:
    """Each follower gets every event, in threads of their own."""
    got: list[list[int]] = []
    ready = threading.Barrier(4)

    def follow() -> None:
        events = thread.follow(0)
        ready.wait()
        got.append(take(events, 60))

    followers = [threading.Thread(target=follow) for _ in range(3)]
    for each in followers:
        each.start()
    ready.wait()
    for number in range(60):
        thread.push("self", "note", str(number))
    for each in followers:
        each.join()
    assert got == [list(range(1, 61))] * 3


def test_follow_a_thread_that_is_deleted(path: str) -> None:
    """A follower of a thread that is deleted is told so."""
    with eventq.open(path) as thread:
        events = thread.follow(0)
        thread.push("self", "note", "x")
        assert take(events, 1) == [1]
        delete(path)
        with pytest.raises(NotAThreadError):
            next(events)


def test_follow_without_a_bell(
    thread: eventq.Thread, without_inotify: None, run_python: RunPython
) -> None:
    """Where the system has no inotify a follower looks often instead, and misses nothing either."""
    events = thread.follow(0)
    thread.push("self", "note", "x")
    assert take(events, 1) == [1]
    pusher = threading.Thread(target=run_python, args=(PUSH, thread.path, "note"))
    pusher.start()
    assert take(events, 1) == [2]
    pusher.join()


def test_a_reader_only_follows_too(thread: eventq.Thread) -> None:
    """A thread that was opened to read follows a writer."""
    with eventq.open(thread.path, read_only=True) as reader:
        events = reader.follow(0)
        fill(thread, 3)
        assert take(events, 3) == [1, 2, 3]
        thread.push("self", "note", "x")
        assert take(events, 1) == [4]


def test_a_writer_opens_beside_older_readers(thread: eventq.Thread) -> None:
    """A process that reads a thread may open it for writing later, and both see what is pushed."""
    fill(thread)
    path = thread.path
    thread.close()
    with eventq.open(path, read_only=True) as reader, eventq.open(path, read_only=True) as other:
        assert ids(reader.peek(0)) == ids(other.peek(0, filter="id > 0")) == [*range(1, 11)]
        for last in (11, 12):
            with eventq.open(path) as writer:
                writer.push("self", "note", "x")
                assert ids(reader.peek(last - 1)) == ids(other.peek(last - 1)) == [last]


def test_writers_and_readers_open_in_any_order(thread: eventq.Thread) -> None:
    """Threads of one process open it to read and to write at once; each write is stored."""
    fill(thread)
    path = thread.path
    thread.close()
    failures: list[BaseException] = []

    def work(*, write: bool) -> None:
        try:
            for _ in range(30):
                with eventq.open(path, read_only=not write) as own:
                    if write:
                        own.push("self", "note", "x")
                    assert len(ids(own.peek(0, limit=10))) == 10
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, kwargs={"write": n % 2 == 0}) for n in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not failures
    with eventq.open(path, read_only=True) as reader:
        assert len(ids(reader.peek(0))) == 100
