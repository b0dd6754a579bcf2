"""info, prune, and a check of the mirror: what is known about a thread, and what keeps it sound."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import ConsumerStatus, LogicError, UsageError
from eventq.errors import ReadOnlyError, UnknownConsumerError
from eventq.log import status
from eventq.system.locks import ConsumerLock
from tests.contract.support import fill, found, mirror_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from tests.conftest import Clock

    Lines = list[str]


def ids(thread: Thread) -> list[int]:
    """Return the ids of events."""
    return [event.id for event in thread.peek(limit=None)]


def push(thread: Thread, count: int) -> None:
    """Push so many events."""
    thread.push_many([("self", "note", "x")] * count)


# --- info -----------------------------------------------------------------------------------------


def test_info_of_an_empty_thread(thread: Thread) -> None:
    """An empty thread has no events, no consumers, and a database."""
    info = thread.status()
    assert (info.path, info.event_count, info.last_id) == (thread.path, 0, 0)
    assert (info.consumers, info.mirror_bytes, info.db_bytes > 0) == ((), 0, True)


def test_info_says_where_each_consumer_stands(thread: Thread, clock: Clock) -> None:
    """Counts, sizes and, in the order of subscription, every consumer's progress."""
    thread.push_many([("self", "odd" if n % 2 else "even", "x") for n in range(10)])
    thread.subscribe("w", "echo hi", filter="type = 'odd'", max_attempts=3, timeout=2.5)
    thread.subscribe("a", "true")
    thread.ack("w", 4)
    thread.prune(before_id=3, force=True)
    info = thread.status()
    assert (info.event_count, info.last_id) == (8, 10)
    assert info.mirror_bytes == os.path.getsize(os.path.join(thread.path, "events.jsonl"))
    assert info.db_bytes == os.path.getsize(os.path.join(thread.path, "events.db"))
    stamp = "2026-03-18T10:30:00.123Z"
    next_step: Any = {
        "waits_for": "a handler, and nobody runs it",
        "advice": f"eventq dispatch --thread {thread.path}",
    }
    assert info.consumers == (
        ConsumerStatus(
            "w",
            "echo hi",
            "type = 'odd'",
            4,
            stamp,
            3,
            False,
            0,
            None,
            3,
            2.5,
            waiting_id=6,
            lag=0,
            unexamined=3,
            **next_step,
        ),
        ConsumerStatus(
            "a",
            "true",
            None,
            0,
            None,
            8,
            False,
            0,
            None,
            21,
            None,
            waiting_id=3,
            lag=0,
            unexamined=8,
            **next_step,
        ),
    )


def test_info_says_what_claims_have_left(thread: Thread, clock: Clock) -> None:
    """Leased, unfinished and dead events, how long the first one has waited, and what was done."""
    thread.subscribe("w", backoff=(60, 60))
    push(thread, 6)
    clock.move(90)
    done, bad, later, _ = thread.claim("w", 4)
    done.done()
    bad.dead("no")
    later.retry()
    (info,) = thread.status().consumers
    assert (info.handler_cmd, info.kind, info.waiting_id, info.lag) == (None, "pull", 3, 90)
    assert (info.unfinished, info.leased, info.dead, info.pending) == (2, 1, 1, 4)
    assert (info.done, info.failed, info.buried) == (1, 2, 1)
    clock.move(24 * 3600 + 60)
    (info,) = thread.status().consumers
    assert (info.leased, info.done, info.failed, info.buried) == (0, 0, 0, 0)


@pytest.mark.parametrize("filter", [None, "type = 'note'"])
def test_info_tells_what_was_begun_from_what_nobody_looked_at(
    thread: Thread, filter: str | None
) -> None:
    """Pending are the unfinished events, which were claimed or parked, and the unexamined ones."""
    thread.subscribe("w", filter=filter, ordered_by="source", backoff=(60, 60))
    thread.push_many([("self", "note", "x")] * 2 + [("other", "note", "x")] * 99)
    (first,), (second,) = thread.claim("w"), thread.claim("w")
    assert (first.event.id, second.event.id) == (1, 3)
    second.retry()
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.leased, info.parked) == (101, 3, 1, 1)
    assert info.unexamined == 98
    first.done()
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.leased, info.parked) == (100, 2, 0, 0)
    thread.ack("w", 99)
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.parked, info.unexamined) == (2, 0, 0, 2)


@pytest.mark.parametrize("each", [True, False])
def test_info_of_a_consumer_that_waits_at_one_event(thread: Thread, each: bool) -> None:
    """A hundred events behind an unfinished one are not counted as begun."""
    thread.subscribe("w", "true" if each else None, each=each)
    push(thread, 101)
    thread.claim("w")
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.leased, info.unexamined) == (101, 1, 1, 100)


def test_info_counts_what_an_ack_or_a_replay_has_left(thread: Thread) -> None:
    """Also before a claim has noticed it."""
    thread.subscribe("w")
    push(thread, 6)
    claims = thread.claim("w", 4)
    thread.settle(claims[2:3], retry=claims[3:], delay=60)
    thread.ack("w", 0, replay=True)
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.leased, info.waiting_id) == (6, 0, 0, 1)
    thread.settle(retry=thread.claim("w", 3), delay=60)
    thread.ack("w", 2)
    (info,) = thread.status().consumers
    assert (info.pending, info.unfinished, info.leased, info.waiting_id) == (4, 1, 0, 3)


def test_nothing_is_claimed_of_a_paused_consumer(thread: Thread) -> None:
    """Nor read by `consume`; what is claimed may be settled, and `resume` lets it go on."""
    thread.subscribe("w")
    thread.subscribe("r")
    push(thread, 3)
    (claim,) = thread.claim("w")
    for name in "wr":
        thread.pause(name)
        thread.pause(name)
    run = f"run: eventq resume --thread {thread.path} --consumer"
    assert thread.warnings() == [f"consumer '{name}' is paused; {run} {name}" for name in "wr"]
    assert thread.claim("w") == []
    claim.done()
    assert [*thread.consume("r", idle=0)] == []
    assert thread.pop("r")
    for name in "wr":
        thread.resume(name)
    assert thread.warnings() == []
    assert [one.event.id for one in thread.claim("w", 9)] == [2, 3]
    assert [event.id for event in thread.consume("r", idle=0)] == [1, 2, 3]
    with pytest.raises(UnknownConsumerError):
        thread.pause("nobody")


def test_info_says_who_is_running(thread: Thread) -> None:
    """A consumer runs while its lock is held; a lock file alone means nothing."""
    thread.subscribe("w", "true")
    lock = ConsumerLock.take(thread.layout.consumer("w"))
    assert lock is not None
    assert thread.status().consumers[0].running
    lock.close()
    assert os.path.exists(thread.layout.consumer("w").lock)
    assert not thread.status().consumers[0].running


def test_pending_of_a_large_thread(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending counts matches up to a thousand, and above what was pruned."""
    monkeypatch.setattr(status, "COUNTING_SECONDS", 60.0)
    thread.push_many([("self", "odd" if n % 2 else "even", "x") for n in range(4_000)])
    thread.subscribe("w", "true", filter="type = 'odd'")
    thread.subscribe("v", "true")
    assert [consumer.pending for consumer in thread.status().consumers] == [1_000, 4_000]
    thread.prune(before_id=3_001, force=True)
    assert [consumer.pending for consumer in thread.status().consumers] == [500, 1_000]


# --- prune ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "left"), [(0, 0), (1, 1), (4, 4), (10, 10), (99, 10)])
def test_prune_keeps_the_newest(thread: Thread, keep: int, left: int) -> None:
    """`keep_last` deletes all but the newest, and returns the number of the deleted."""
    push(thread, 10)
    assert thread.prune(keep_last=keep) == 10 - left
    assert ids(thread) == list(range(11 - left, 11))
    assert thread.prune(keep_last=keep) == 0


@pytest.mark.parametrize(
    ("before", "first"), [(0, 1), (1, 1), (5, 5), (10, 10), (11, 11), ((1 << 63) - 1, 11)]
)
def test_prune_deletes_what_is_before(thread: Thread, before: int, first: int) -> None:
    """`before_id` deletes the events with smaller ids, and leaves ids and newest id alone."""
    push(thread, 10)
    thread.prune(before_id=before)
    assert (ids(thread), thread.last_id()) == (list(range(first, 11)), 10)
    assert thread.push("self", "note", "x").id == 11


@pytest.mark.parametrize("words", [{}, {"keep_last": 1, "before_id": 1}])
def test_prune_takes_one_of_the_two(thread: Thread, words: Any) -> None:
    """Without a number, or with both, there is nothing to go by."""
    with pytest.raises(UsageError, match="either --keep-last or --before-id"):
        thread.prune(**words)


def test_prune_waits_for_every_consumer(thread: Thread) -> None:
    """What a consumer has not acked is not deleted, whatever its filter; `force` deletes it."""
    push(thread, 10)
    thread.subscribe("w", "true", filter="type = 'never'")
    thread.subscribe("v", "true")
    thread.ack("v", 10)
    with pytest.raises(LogicError, match=r"consumer 'w' has acked only up to 0, .* - .*--force"):
        thread.prune(keep_last=5)
    assert ids(thread) == list(range(1, 11))
    thread.ack("w", 5)
    assert thread.prune(keep_last=5) == 5
    with pytest.raises(LogicError, match="'w' has acked only up to 5"):
        thread.prune(keep_last=4)
    assert thread.prune(keep_last=4, force=True) == 1
    thread.unsubscribe("w")
    assert thread.prune(keep_last=0) == 4


def test_prune_does_not_ask_about_what_is_gone(thread: Thread) -> None:
    """A consumer that never read what was pruned by force does not stop pruning as far again."""
    push(thread, 10)
    thread.subscribe("w", "true")
    assert thread.prune(before_id=6, force=True) == 5
    assert thread.prune(before_id=6) == 0
    assert [event.id for event in thread.pop("w", 0)] == [6, 7, 8, 9, 10]


def test_prune_gives_the_space_back(thread: Thread) -> None:
    """The files are small again afterwards."""
    thread.push_many(("self", "note", "x" * 10_000) for _ in range(500))
    thread.prune(keep_last=1)
    info = thread.status()
    assert info.db_bytes + info.wal_bytes < 500_000
    assert ids(thread) == [500]


# --- a reader, and wrong arguments ----------------------------------------------------------------


def test_a_read_only_thread_changes_nothing(thread: Thread) -> None:
    """Every method that would change something raises ReadOnlyError, and no file is changed."""
    thread.push("self", "note", "x")
    thread.subscribe("w", "true")
    with eventq.open(thread.path, read_only=True) as reader:
        before = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(thread.path)}
        calls: list[Callable[[], object]] = [
            reader.rebuild_mirror,
            reader.dispatch,
            reader.write,
            lambda: reader.prune(keep_last=0),
            lambda: reader.resume("w"),
            lambda: reader.subscribe("v", "true"),
            lambda: reader.unsubscribe("w"),
        ]
        for call in calls:
            with pytest.raises(ReadOnlyError):
                call()
        after = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(thread.path)}
    assert after == before


def test_arguments_of_the_wrong_kind(thread: Thread) -> None:
    """What is no path, number or text is the caller's mistake."""
    anything: Any = thread
    calls: list[Callable[[], Any]] = [
        lambda: eventq.open(os.fsencode(thread.path)),  # type: ignore[arg-type]
        lambda: eventq.init(b"x"),  # type: ignore[arg-type]
        lambda: anything.subscribe("w", "true", max_attempts=1.5),
        lambda: anything.subscribe("w", "true", timeout="1"),
        lambda: anything.subscribe("w", b"true"),
        lambda: anything.subscribe("w", "true", filter=3),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()


# --- a check of the mirror and the folders --------------------------------------------------------


@pytest.fixture
def filled(path: str) -> str:
    """Return the path of a thread with five events that is sound."""
    return fill(path)


def write_lines(path: str, lines: Lines, name: str = "events.jsonl") -> None:
    """Write the lines of a mirror file."""
    with open(os.path.join(path, name), "w", encoding="utf-8") as file:
        file.writelines(lines)


SPOILT: list[tuple[Callable[[Lines], Lines], str]] = [
    (lambda t: [*t[:2], "hello\n", *t[2:]], "line 3 is not an event"),
    (lambda t: [*t[:2], t[1], *t[2:]], "line 3 repeats event 2"),
    (lambda t: [*t[:2], *t[3:]], "lacks event 3, before line 3"),
    (lambda t: [t[0], t[2], t[1], *t[3:]], "lacks event 2, before line 2"),
    (lambda t: [*t[:2], t[2].replace('"3"', '"?"'), *t[3:]], "line 3 differs from event 3"),
]


@pytest.mark.parametrize(("spoil", "sentence"), SPOILT)
def test_check_says_what_is_wrong_in_the_mirror(
    filled: str, spoil: Callable[[Lines], Lines], sentence: str
) -> None:
    """Each way in which the mirror differs from the log has its sentence; a rebuild mends it."""
    write_lines(filled, spoil(mirror_lines(filled)))
    assert found(filled) == [f"events.jsonl {sentence}; run 'eventq mirror rebuild'"]
    with eventq.open(filled) as thread:
        assert thread.rebuild_mirror() == 5
        assert thread.check() == []


def test_check_says_that_the_log_ends_before_the_mirror(filled: str) -> None:
    """What follows is the log's, and a rebuild gives it back first."""
    lines = mirror_lines(filled)
    write_lines(filled, [*lines, lines[4].replace('"id":5', '"id":6')])
    what = "line 6 holds event 6, which does not exist; the next push takes back what the log lost"
    assert found(filled) == [f"events.jsonl {what}"]
    with eventq.open(filled) as thread:
        assert thread.rebuild_mirror() == 6
        assert thread.check() == []


def test_check_looks_at_rotated_files_too(filled: str) -> None:
    """A rotated file may not end in a torn line; the newest may, as the next push heals it."""
    lines, rotated = mirror_lines(filled), "events-20260318-103000.jsonl"
    write_lines(filled, ["".join(lines[:3])[:-5]], rotated)
    write_lines(filled, [*lines[3:], "{torn"])
    assert found(filled) == [
        f"{rotated} ends in a torn line, 3; run 'eventq mirror rebuild'",
        "events.jsonl lacks event 3, before line 1; run 'eventq mirror rebuild'",
    ]
    write_lines(filled, lines[:3], rotated)
    assert found(filled) == []


@pytest.mark.parametrize("name", ["run", "logs"])
def test_check_says_when_a_folder_is_none(filled: str, name: str) -> None:
    """A file in the place of a folder is named; a missing folder is made when it is needed."""
    folder = os.path.join(filled, name)
    shutil.rmtree(folder)
    assert found(filled) == []
    open(folder, "w").close()
    assert found(filled) == [f"'{folder}' is not a directory"]


def test_check_accepts_a_mirror_that_lags(filled: str) -> None:
    """A mirror that is behind the log, empty or missing is no fault: it is a prefix."""
    mirror = os.path.join(filled, "events.jsonl")
    write_lines(filled, mirror_lines(filled)[:4])
    assert found(filled) == []
    os.truncate(mirror, 0)
    assert found(filled) == []
    os.unlink(mirror)
    assert found(filled) == []
    assert not os.path.exists(mirror)


def test_check_counts_what_was_pruned(filled: str) -> None:
    """Lines of pruned events, as older versions left them, are expected to follow each other."""
    lines = mirror_lines(filled)
    with eventq.open(filled) as thread:
        thread.prune(keep_last=1, force=True)
        assert thread.check() == []
        write_lines(filled, lines)
        assert thread.check() == []
    write_lines(filled, [*lines[:2], *lines[3:]])
    sentence = "events.jsonl lacks event 3, before line 3; run 'eventq mirror rebuild'"
    assert found(filled) == [sentence]
