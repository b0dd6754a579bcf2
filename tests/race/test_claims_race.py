"""Workers in processes that are killed at random, and one that outlives its lease."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.claiming import dead, progress, push, subscribe
from tests.conftest import Clock
from tests.engines import sqlite
from tests.race.support import DEADLINE, ROOT, until

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.store.sqlite.database import Database

LEASE = 0.3  # seconds

# Notes what it does, one write a line, with the monotonic times before and after each claim and
# settle: those of all processes compare. It goes on until the consumer has finished all, or it
# is killed. What it chooses depends on its seed.
WORKER = """
import os, random, signal, sys, time, eventq
path, trace, last, lease, seed = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6])
out = os.open(trace, os.O_WRONLY | os.O_APPEND)
chance = random.Random(seed)
def note(what, claim, since):
    line = f"{what} {claim.event.id} {claim.attempt} {os.getpid()} {since} {time.monotonic()}"
    os.write(out, f"\\n{line} {claim.event.content} .".encode())
def settle(what, claims):
    since = time.monotonic()
    for claim in claims:
        note("try-" + what, claim, since)
    done, retry = (claims, []) if what == "done" else ([], claims)
    if what == "back":
        lost = []
        for claim in claims:
            try:
                claim.retry(delay=0, count=False)
            except eventq.LeaseLostError:
                lost.append(claim)
    else:
        lost = thread.settle(done, retry=retry, delay=0)
    for claim in claims:
        note("lost" if claim in lost else what, claim, since)
with eventq.open(path) as thread:
    while thread.database.consumers.get("w").acked < last:
        since = time.monotonic()
        claims = thread.claim("w", limit=chance.choice((1, 1, 3, 10)), lease=lease, wait=0.05)
        for claim in claims:
            note("has", claim, since)
        size = chance.choice((1, 10))
        while claims:
            settle(chance.choices(("done", "retry", "back"), (16, 2, 1))[0], claims[:size])
            del claims[:size]
"""


def start(path: str, trace: str, last: int, seed: int) -> subprocess.Popen[str]:
    """Start a worker."""
    words = [sys.executable, "-c", WORKER, path, trace, str(last), str(LEASE), str(seed)]
    environ = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(words, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)


def lines(trace: str) -> list[list[str]]:
    """Return what the workers have noted, in the order of their writes.

    A worker that is killed at the border of a page leaves half a line, without the last word.
    """
    with open(trace, encoding="utf-8") as file:
        words = [line.split() for line in file.read().splitlines()]
    return [line[:-1] for line in words if line[-1:] == ["."]]


@dataclass
class Line:
    """What a worker has noted: of one event, between two moments."""

    what: str
    event: int
    attempt: int
    worker: int
    since: float
    until: float
    group: str

    @classmethod
    def read(cls, words: list[str]) -> Line:
        """Return a line of the trace."""
        what, event, attempt, worker, since, until, content = words
        group = json.loads(content)["g"] or ""
        return cls(what, int(event), int(attempt), int(worker), float(since), float(until), group)


@dataclass
class Lease:
    """One lease of an event: it held for certain from `held` to `end`, as far as is known."""

    line: Line
    end: float
    fate: str = "killed"

    @property
    def held(self) -> float:
        """Return when the worker knew that it had the event."""
        return self.line.until


def leases_of(found: list[Line]) -> dict[int, list[Lease]]:
    """Return the leases of each event, in the order in which they were given."""
    leases: dict[int, list[Lease]] = defaultdict(list)
    newest: dict[tuple[int, int], Lease] = {}
    for line in found:
        if line.what == "has":
            lease = Lease(line, line.since + LEASE - 0.005)
            leases[line.event].append(lease)
            newest[line.event, line.worker] = lease
        else:
            lease = newest[line.event, line.worker]
            lease.end = min(lease.end, line.since)  # it may be settled from there on
            lease.fate = line.what
    for given in leases.values():
        given.sort(key=lambda lease: (lease.line.attempt, lease.held))  # a note may be late
    return leases


def check_trace(found: list[Line], events: int) -> None:
    """Check what workers have noted: of a killed one, what it tried last may be stored or not."""
    leases = leases_of(found)
    assert sorted(leases) == [*range(1, events + 1)], "an event was lost"
    for number, given in leases.items():
        assert given[-1].fate in ("done", "try-done"), f"event {number} was not done"
        for lease, after in pairwise(given):
            assert after.held >= lease.end, f"event {number} had two workers at once"
            assert lease.fate != "done", f"event {number} was done, and given again"
            step = after.line.attempt - lease.line.attempt
            assert step > 0 or lease.fate.endswith("back"), f"attempt of {number} not counted"
    check_order(leases)


def check_order(leases: dict[int, list[Lease]]) -> None:
    """Check that no event was given before the one before it in its group was finished."""
    last: dict[str, Lease] = {}
    for number, given in sorted(leases.items()):
        group = given[0].line.group
        if group:
            before = last.get(group)
            assert before is None or given[0].held >= before.end, f"event {number} is too early"
            last[group] = given[-1]


@pytest.mark.parametrize(
    ("events", "workers", "kills"),
    [(300, 3, 5), pytest.param(10_000, 8, 60, marks=pytest.mark.soak)],
)
def test_workers_that_are_killed_lose_nothing(
    events: int, workers: int, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event is done, by one worker at a time, in the order of its group."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    path, trace = eventq.init(tmp_path / "thread"), str(tmp_path / "trace")
    with open(trace, "w", encoding="utf-8"):
        pass
    with eventq.open(path) as thread:
        subscribe(thread.database, ordered_by="$.g", attempts=1_000)
        groups = [None if n % 3 == 0 else f"g{n % 17}" for n in range(events)]
        thread.push_many(
            ("self", "t", json.dumps({"g": group}, separators=(",", ":"))) for group in groups
        )
        work_and_kill(thread, trace, events, workers, kills)
        assert thread.check() == []
        assert (progress(thread.database), dead(thread.database)) == (events, [])
        found = [Line.read(words) for words in lines(trace)]
        check_trace(found, events)
        check_counts(sqlite(thread.database), found, events)


def work_and_kill(thread: eventq.Thread, trace: str, events: int, workers: int, kills: int) -> None:
    """Let workers do everything, and kill one of them each time that they have got on a bit."""
    chance = random.Random(7)
    running = [start(thread.path, trace, events, seed) for seed in range(workers)]
    try:
        for kill in range(1, kills + 1):
            goal = events * kill // (kills + 2)
            until(lambda: count_done(sqlite(thread.database)) >= goal, "the workers get on")  # noqa: B023
            victim = running.pop(chance.randrange(len(running)))
            victim.kill()
            victim.communicate(timeout=DEADLINE)
            running.append(start(thread.path, trace, events, workers + kill))
        for worker in running:
            assert (worker.communicate(timeout=DEADLINE)[1], worker.returncode) == ("", 0)
    finally:
        for worker in running:
            worker.kill()
            worker.communicate()


def count_done(db: Database) -> int:
    """Return how many events were finished by a worker."""
    return int(db.run("SELECT coalesce(sum(done), 0) FROM queue_counts")[0][0])


def check_counts(db: Database, found: list[Line], events: int) -> None:
    """Check the counters: each event is done once, and each attempt but its last has failed."""
    last = {number: given[-1].line.attempt for number, given in leases_of(found).items()}
    failed = sum(last.values()) - events
    assert db.run("SELECT sum(done), sum(failed), sum(dead) FROM queue_counts") == [
        (events, failed, 0)
    ]
    assert db.run("SELECT unfinished, expires_at, frontier, acked FROM queues") == [
        (0, None, events, events)
    ]
    assert db.run("SELECT * FROM unfinished") == []


@pytest.mark.parametrize(
    ("trace", "complaint"),
    [
        ("has 1 1 7 1 1 ; has 1 2 8 1 1.1 ; done 1 2 8 2 3 ; lost 1 1 7 9 9", "two workers"),
        ("has 1 1 7 0 1 ; done 1 1 7 1 2 ; has 1 2 8 2 3 ; done 1 2 8 3 4", "given again"),
        ("has 1 1 7 0 1 ; retry 1 1 7 1 2", "not done"),
        ("has 1 1 7 0 1 ; retry 1 1 7 1 2 ; has 1 1 8 2 3 ; done 1 1 8 3 4", "not counted"),
        ("has 1 1 7 1 1 ; has 2 1 8 1 1.1 ; done 2 1 8 1.1 2 ; done 1 1 7 1.2 2", "too early"),
        ("has 2 1 7 0 1 ; done 2 1 7 1 2", "lost"),
    ],
)
def test_the_check_finds_what_it_is_made_for(trace: str, complaint: str) -> None:
    """A trace of two leases at once, of a lost or early event, or of a wrong attempt fails."""
    parts = (part.split() for part in trace.split(" ; "))
    found = [Line.read([*words, '{"g":"a"}']) for words in parts]
    with pytest.raises(AssertionError, match=complaint):
        check_trace(found, max(line.event for line in found))


def test_a_worker_that_was_stopped_beyond_its_lease_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on as if nothing had happened; somebody else has the event by then."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    path, trace = eventq.init(tmp_path / "thread"), str(tmp_path / "trace")
    code = WORKER.replace(
        'note("has", claim, since)',
        'note("has", claim, since); os.kill(os.getpid(), signal.SIGSTOP)',
    ).replace("(16, 2, 1)", "(1, 0, 0)")
    with open(trace, "w", encoding="utf-8"):
        pass
    with eventq.open(path) as thread:
        subscribe(thread.database)
        push(thread.database)
        words = [sys.executable, "-c", code, path, trace, "1", "0.05", "1"]
        environ = {**os.environ, "PYTHONPATH": ROOT}
        with subprocess.Popen(words, cwd=ROOT, env=environ) as worker:
            try:
                os.waitpid(worker.pid, os.WUNTRACED)
                (claim,) = thread.claim("w", wait=DEADLINE)
                assert claim.attempt == 2
                os.kill(worker.pid, signal.SIGCONT)
                until(lambda: len(lines(trace)) == 3, "the worker goes on")
                assert [line[:3] for line in lines(trace)] == [
                    ["has", "1", "1"],
                    ["try-done", "1", "1"],
                    ["lost", "1", "1"],
                ]
                claim.done()
                assert worker.wait(DEADLINE) == 0
            finally:
                worker.kill()


def test_a_clock_that_is_set_back_ends_leases_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    """An hour back, what was leased or waits is due at once, and to one worker only."""
    clock = Clock(1773829800.0)
    monkeypatch.setattr("eventq.system.clock.now", clock)
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as one, eventq.open(path) as two:
        subscribe(one.database)
        one.push_many(("self", "t", str(n)) for n in range(4))
        out = one.claim("w", limit=3)
        out[2].retry(delay=60)
        clock.move(-3600)
        again = two.claim("w", limit=9)
        given = sorted((claim.event.id, claim.attempt) for claim in again)
        assert given == [(1, 2), (2, 2), (3, 2), (4, 1)]
        assert one.claim("w", limit=9) == []
        for claim in out[:2]:
            with pytest.raises(eventq.LeaseLostError):
                claim.done()
        clock.move(3600)  # the clock is right again: the leases of an hour ago have ended
        last = one.claim("w", limit=9)
        assert sorted(claim.event.id for claim in last) == [1, 2, 3, 4]
        assert len(two.settle(again)) == 4
        assert one.settle(last) == []
        assert (progress(one.database), one.check()) == (4, [])
