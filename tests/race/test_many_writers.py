"""Many write into contexts and runs of one thread at once; those who follow miss nothing.

The kind: a reader remembers the last id that it has seen, and something with a lower id is committed
later. Members: the events that report turns (`follow`), turns by their ids, changes of runs (a
`watch`, and by their numbers), artifacts. Writers are OS threads with one handle, and processes.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.system import clock
from tests.race.support import together
from tests.servers import ENGINES, fresh
from tests.store.postgres.pooler import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("quick")

WRITERS, EACH = 16, 12
WRITE = """
import eventq
def write(thread, name, each):
    context = thread.contexts.create(f"c{name}")
    run = thread.runs.start("w", "go", label=f"r{name}")
    for n in range(each):
        if n % 3 == 2:
            with thread.write():
                context.append(f"{name} {n}", source="self")
                run.step("a", n, f"{name} {n}")
                thread.artifacts.put(f"{name} {n}".encode())
        else:
            context.append(f"{name} {n}", source="self", key=f"{name} {n}")
    run.end()
"""
# Four OS threads in each of four processes, which begin together.
PROGRAM = (
    WRITE
    + """
import sys, threading
with eventq.open(sys.argv[1]) as thread:
    sys.stdin.read()
    names = range(int(sys.argv[2]) * 4, int(sys.argv[2]) * 4 + 4)
    runners = [threading.Thread(target=write, args=(thread, name, int(sys.argv[3]))) for name in names]
    for runner in runners: runner.start()
    for runner in runners: runner.join()
"""
)


class Followers:
    """OS threads that follow a thread, each with a handle of its own, until all is written."""

    def __init__(self, path: str) -> None:
        self.events: list[eventq.Event] = []
        self.turns: list[int] = []
        self.runs: list[Any] = []
        self.changes: list[int] = []
        self.artifacts: list[int] = []
        self.is_over = self.has_given_up = False
        self._path = path
        self._pool = ThreadPoolExecutor(5)
        self._begun = threading.Barrier(6)
        looks: list[Callable[[eventq.Thread], None]] = [
            self._follow, self._read_turns, self._watch, self._read_changes, self._read_artifacts,
        ]  # fmt: skip
        self._running = [self._pool.submit(self._look, look) for look in looks]
        self._begun.wait(60)

    def _look(self, look: Callable[[eventq.Thread], None]) -> None:
        with eventq.open(self._path, read_only=True) as thread:
            self._begun.wait(60)
            look(thread)

    def _follow(self, thread: eventq.Thread) -> None:
        for page in thread.follow_pages(0, None, tick=self._check):
            self.events += page
            if len(self.events) == WRITERS * EACH:
                return

    def _check(self) -> None:
        assert not self.has_given_up, "something was missed"

    def _watch(self, thread: eventq.Thread) -> None:
        ended: set[int] = set()
        for page in thread.runs.watch_pages(tick=self._check):
            self.runs += page
            ended |= {one.run_id for one in page if one.run and one.run.status == "completed"}
            if len(ended) == WRITERS:
                return

    def _until_over(self, read: Callable[[], object]) -> None:
        """Read again and again, and once more when all is written."""
        is_last = False
        while not is_last:
            is_last = self.is_over
            while read():
                pass
            clock.pause(0.001)

    def _read_turns(self, thread: eventq.Thread) -> None:
        turns = thread.contexts.turns.database.turns
        types = ["message", "eventq.state", "eventq.start"]

        def read() -> bool:
            found = turns.page(self.turns[-1] if self.turns else 0, 7, types)
            self.turns += [row.turn for row in found]
            return bool(found)

        self._until_over(read)

    def _read_changes(self, thread: eventq.Thread) -> None:
        def read() -> bool:
            found = thread.runs.changes(self.changes[-1] if self.changes else 0, 5)
            self.changes += [number for number, _ in found]
            return bool(found)

        self._until_over(read)

    def _read_artifacts(self, thread: eventq.Thread) -> None:
        def read() -> bool:
            found = thread.artifacts.page(self.artifacts[-1] if self.artifacts else -1, 7)
            self.artifacts += [int(info.artifact_id) for info in found]
            return bool(found)

        self._until_over(read)

    def end(self) -> None:
        """Wait until they have seen everything."""
        self.is_over = True
        wait(self._running, 60)
        self.has_given_up = True
        self._pool.shutdown()
        for one in self._running:
            one.result()


def in_threads(path: str) -> None:
    """Write by OS threads that share a handle."""
    space: dict[str, Any] = {}
    exec(WRITE, space)
    with eventq.open(path) as thread, ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(space["write"], thread, name, EACH) for name in range(WRITERS)]:
            done.result(120)


def in_processes(path: str) -> None:
    """Write by several processes."""
    together(path, [PROGRAM] * (WRITERS // 4), str(EACH))


WAYS = {"threads": in_threads, "processes": in_processes}


def followed(path: str, write: Callable[[str], None]) -> None:
    """Write while others follow, and check what is there and what they have seen."""
    followers = Followers(path)
    try:
        write(path)
    finally:
        followers.end()
    with eventq.open(path) as thread:
        turns: dict[str, list[int]] = {}
        for name in range(WRITERS):
            found = [*thread.contexts.get(f"c{name}").replay()]
            assert [turn.payload for turn in found] == [b"%d %d" % (name, n) for n in range(EACH)]
            steps = [*thread.runs.get(f"r{name}").replay()]
            assert [step.meta for step in steps[:-1]] == [n for n in range(EACH) if n % 3 == 2]
            turns[f"{name}"] = [turn.turn_id for turn in found]
        last = thread.contexts.turns.database.copies.last_ids().turn
        assert last == WRITERS * (EACH + EACH // 3 + 2)
        assert followers.turns == [*range(1, last + 1)]
        assert [event.id for event in followers.events] == [*range(1, WRITERS * EACH + 1)]
        reported = [json.loads(event.content)["turn_id"] for event in followers.events]
        assert reported == sorted(number for ids in turns.values() for number in ids)
        newest: dict[int, Any] = {change.run_id: change.run for change in followers.runs}
        assert [newest[info.run_id] for info in thread.runs] == [*thread.runs]
        assert followers.changes == sorted({*followers.changes})
        assert followers.changes[-1] == thread.runs.last_change()
        assert followers.artifacts == [*range(WRITERS * EACH // 3)]
        assert thread.check() == []


@pytest.mark.engines(*ENGINES)
@pytest.mark.parametrize("way", WAYS)
def test_followers_miss_nothing(path: str, way: str) -> None:
    """Ids are those of commits, in their order and without gaps, for all who read on from one."""
    followed(path, WAYS[way])


@pytest.fixture
def pooled(postgres: str) -> Iterator[str]:
    """Return the URL of a thread behind a pooler that lends connections by the transaction."""
    pooler = Transactions(postgres)
    yield fresh(pooler.url)
    pooler.close()


def test_behind_a_pooler(pooled: str) -> None:
    """So it is where writers and followers share three connections."""
    followed(pooled, in_threads)
