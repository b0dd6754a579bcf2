"""`consume`: the loop is the consumer, and coming back for the next event is the ack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import (
    ClosedError,
    ConsumerExistsError,
    ConsumerInUseError,
    FilterError,
    LeaseLostError,
)
from eventq.store.paths import is_shared
from eventq.store.postgres.connection import MINE
from eventq.system import clock
from tests.contract.test_consumers import acked
from tests.engines import sqlite

if TYPE_CHECKING:
    from tests.conftest import Until

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


@pytest.fixture
def full(thread: eventq.Thread) -> eventq.Thread:
    """Return a thread of ten events, every second of which is rare."""
    thread.push_many(("self", "rare" if n % 2 == 0 else "note", str(n)) for n in range(1, 11))
    return thread


def ids(thread: eventq.Thread, consumer: str = "w", **options: object) -> list[int]:
    """Return the ids of what there is to consume."""
    return [event.id for event in thread.consume(consumer, idle=0, **options)]  # type: ignore[arg-type]


def test_each_event_comes_once(full: eventq.Thread) -> None:
    """A consumer subscribes itself, and goes on where it was, in another loop too."""
    assert ids(full) == [*range(1, 11)]
    assert ids(full) == []
    full.push("self", "note", "more")
    assert ids(full) == [11]
    assert acked(full)[0] == 11
    (kept,) = full.subscriptions()
    assert (kept.kind, kept.handler_cmd, kept.filter) == ("pull", None, None)


def test_an_event_is_acked_when_the_loop_comes_back(full: eventq.Thread) -> None:
    """While the loop is at work on an event, only those before it are acked."""
    for event in full.consume("w", idle=0):
        assert acked(full)[0] == event.id - 1
    assert acked(full)[0] == 10


@pytest.mark.parametrize("ack_every", [1, 4])
def test_what_was_not_finished_comes_again(full: eventq.Thread, ack_every: int) -> None:
    """After a break, an exception and a close: the current event, and no other one."""
    for event in full.consume("w", ack_every=ack_every):
        if event.id == 3:
            break
    assert acked(full)[0] == 2
    with pytest.raises(ZeroDivisionError):
        for event in full.consume("w", ack_every=ack_every):
            event.id // (6 - event.id)
    assert acked(full)[0] == 5
    loop = full.consume("w", ack_every=ack_every)
    assert next(loop).id == 6
    loop.close()  # type: ignore[attr-defined]
    assert ids(full) == [6, 7, 8, 9, 10]


def test_many_are_acked_together(full: eventq.Thread) -> None:
    """With `ack_every` so many events share an ack; the rest is acked before it waits, or ends."""
    seen = [(event.id, acked(full)[0]) for event in full.consume("w", ack_every=4, idle=0)]
    assert seen == [(n, (n - 1) // 4 * 4) for n in range(1, 11)]
    assert acked(full)[0] == 10


def test_a_filter(full: eventq.Thread) -> None:
    """A filter is that of the subscription; another one is refused, none takes what there is."""
    assert ids(full, filter="type = 'rare'") == [2, 4, 6, 8, 10]
    full.push_many([("self", "rare", "x"), ("self", "note", "x")])
    assert ids(full) == [11]
    with pytest.raises(ConsumerExistsError):
        full.consume("w", filter="type = 'note'")
    with pytest.raises(FilterError):
        full.consume("other", filter="nonsense = 1")


def test_only_what_is_new(full: eventq.Thread) -> None:
    """`from_now` skips what is stored when the consumer is subscribed, and only then."""
    assert ids(full, from_now=True) == []
    full.push("self", "note", "x")
    assert ids(full, from_now=True) == [11]


@pytest.mark.engines("sqlite")
def test_a_replay_by_somebody_else(full: eventq.Thread) -> None:
    """Who moves the progress meanwhile is obeyed: the loop goes on from there."""
    seen: list[int] = []
    for event in full.consume("w", idle=0):
        seen.append(event.id)
        if len(seen) in (5, 7):
            sqlite(full.database).change("UPDATE consumer_progress SET last_acked_id = 1")
            if len(seen) == 7:
                sqlite(full.database).change("UPDATE consumer_progress SET last_acked_id = 8")
    assert seen == [1, 2, 3, 4, 5, 2, 3, 9, 10]
    assert acked(full)[0] == 10


def test_one_reader_at_a_time(full: eventq.Thread) -> None:
    """A second loop waits for the first one, or gets an error."""
    first = iter(full.consume("w"))
    assert next(first).id == 1
    with pytest.raises(ConsumerInUseError, match="'w' is in use: another process reads as it"):
        next(iter(full.consume("w", wait=0)))
    found: list[int] = []
    second = threading.Thread(target=lambda: found.extend(ids(full)))
    second.start()
    assert next(first).id == 2
    first.close()  # type: ignore[attr-defined]
    second.join()
    assert found == [*range(2, 11)]


@pytest.mark.engines("sqlite")
def test_a_reader_that_is_killed_leaves_its_place(full: eventq.Thread) -> None:
    """The next one begins with the event that it was at."""
    code = (
        "import os, sys, eventq\n"
        "for event in eventq.open(sys.argv[1]).consume('w'):\n"
        "    if event.id == 4: os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, full.path], timeout=120)
    assert done.returncode == -9
    assert ids(full, wait=0) == [*range(4, 11)]


@pytest.mark.parametrize("ack_every", [1, 100])
def test_a_reader_that_has_lost_its_lease_ends(
    ack_every: int, full: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was stopped for too long yields and acks nothing more beside the next reader."""
    monotonic = clock.monotonic
    first = iter(full.consume("w", ack_every=ack_every))
    assert [next(first).id for _ in range(3)] == [1, 2, 3]
    lose_lease(full, monkeypatch)
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 2)
    with eventq.open(full.path) as other:
        second = iter(other.consume("w", wait=60))
        again = next(second).id
        with pytest.raises(LeaseLostError, match="this reader of 'w' was stopped"):
            next(first)
        assert acked(full)[0] == again - 1
        second.close()  # type: ignore[attr-defined]
    assert ids(full, wait=60) == [*range(again, 11)]


def test_an_ack_of_a_reader_is_refused_once_another_one_has_begun(full: eventq.Thread) -> None:
    """Whatever it knows of its lease: the ack has the number of the reader."""
    first = iter(full.consume("w"))
    assert next(first).id == 1
    full.consumers.raise_fence("w")
    with pytest.raises(LeaseLostError):
        next(first)
    assert acked(full)[0] == 0


@pytest.mark.engines("postgres")
def test_a_lease_is_renewed_while_the_body_of_the_loop_runs(
    full: eventq.Thread, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event may take longer than a lease, which ends by itself here."""
    monkeypatch.setattr("eventq.store.postgres.leases.Lease.renew_every", 0.01)
    first = iter(full.consume("w"))
    next(first)
    database: Any = full.database

    def end() -> int:
        return int(database.one(f"SELECT owned_until FROM eventq.consumers WHERE {MINE}"))

    before = end()
    until(lambda: end() > before, "the lease is renewed")
    first.close()  # type: ignore[attr-defined]
    assert not [one for one in threading.enumerate() if one.name == "eventq-lease"]


def lose_lease(thread: eventq.Thread, patch: pytest.MonkeyPatch) -> None:
    """Do to the reader of a consumer what happens while its process is stopped for long."""
    database: Any = thread.database
    if is_shared(thread.path):
        patch.setattr("eventq.store.postgres.leases.Lease.renew_every", 0.0)
        database.run(f"UPDATE eventq.consumers SET owned_until = 0 WHERE {MINE}")
    else:  # there, the locks of a stopped process last, unless somebody removes them
        shutil.rmtree(thread.layout.guards)
        shutil.rmtree(thread.layout.run)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "raise ValueError", "continue"])
def test_a_child_that_the_body_forks_takes_no_lease_away(end: str, full: eventq.Thread) -> None:
    """However it ends: the parent goes on as the only reader."""
    code = (
        "import os, sys, eventq\n"
        "for event in eventq.open(sys.argv[1]).consume('w', idle=0):\n"
        "    if event.id == 4 and not os.fork():\n"
        f"        {end}\n"
        "    if event.id == 4:\n"
        "        os.wait()\n"
        "        with eventq.open(sys.argv[1]) as other:\n"
        "            try: next(iter(other.consume('w', wait=0)))\n"
        "            except eventq.ConsumerInUseError: print('alone')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, full.path], timeout=120, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "alone\n")
    assert acked(full)[0] == 10


@pytest.mark.engines("sqlite")
def test_a_child_that_outlives_a_killed_reader_holds_nothing(full: eventq.Thread) -> None:
    """The next reader does not wait for it."""
    code = (
        "import os, sys, time, eventq\n"
        "for event in eventq.open(sys.argv[1]).consume('w'):\n"
        "    if event.id == 4:\n"
        "        if not os.fork(): time.sleep(1000)\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, full.path], timeout=120).returncode == -9
    assert ids(full, wait=60) == [*range(4, 11)]


def test_it_waits_for_more(full: eventq.Thread) -> None:
    """The loop goes on with what others push while it waits."""
    code = (
        "import sys, eventq\n"
        "for event in eventq.open(sys.argv[1]).consume('w'):\n"
        "    print(event.id, flush=True)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, full.path], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert [int(other.stdout.readline()) for _ in range(10)] == [*range(1, 11)]
        full.push("self", "note", "x")
        assert int(other.stdout.readline()) == 11
    finally:
        other.kill()
        other.communicate(timeout=60)


def test_large_events_are_read_a_few_at_a_time(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page holds at most some megabytes, however many events it might have."""
    thread.push_many([("self", "note", "x" * 3_000_000)] * 6)
    sizes = []
    real = thread.database.events.page

    def page(*args: object) -> object:
        assert args[-1] == 1_000
        found = real(*args)  # type: ignore[arg-type]
        sizes.append(len(found.events))
        return found

    monkeypatch.setattr(thread.database.events, "page", page)
    assert ids(thread) == [1, 2, 3, 4, 5, 6]
    assert max(sizes) <= 2


def test_nothing_is_open_between_two_events(full: eventq.Thread) -> None:
    """Others write while the loop is at work, and so does the loop."""
    for event in full.consume("w", idle=0):
        if event.id <= 10:
            full.push("self", "note", f"about {event.id}")
            with full.write():
                full.push("self", "note", "together")
    assert acked(full)[0] == 30


@pytest.mark.engines("sqlite")
def test_a_closed_thread(full: eventq.Thread) -> None:
    """The loop ends with an error, and the lock is free."""
    loop = iter(full.consume("w"))
    next(loop)
    path = full.path
    full.close()
    with pytest.raises(ClosedError):
        next(loop)
    with eventq.open(path) as again:
        assert next(iter(again.consume("w", wait=0))).id == 1
    assert os.path.exists(path)
