"""A primary that is lost under load: its standby has all that was acknowledged, and takes over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import BusyError, StoreError, UnknownOutcomeError
from eventq.records.run import NewStep
from eventq.thread import init_schema
from tests.store.postgres.machines import Server, until, url

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITERS = 4
ENOUGH = 15  # pushes of each writer before and after a failover


class Pair:
    """A primary and its synchronous standby; both keep their folders, whatever becomes of them."""

    def __init__(self) -> None:
        self.primary = Server()
        self.primary.start()
        self.standby = Server(self.primary)
        self.url = url(self.primary, self.standby)
        self.attach()

    def attach(self) -> None:
        """Start the standby; from then on, the primary acknowledges what both have."""
        self.standby.start()
        self.primary.set("synchronous_standby_names = '*'")
        found = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: self.primary.run(found), "the standby follows")

    def fail_over(self) -> None:
        """Lose the primary, and promote the standby."""
        self.primary.kill()
        # To wait in the server could be cancelled: it holds what the primary has removed last.
        self.standby.run("SELECT pg_promote(false)")
        ended = "SELECT NOT pg_is_in_recovery()"
        until(lambda: self.standby.run(ended) == [(True,)], "the standby is promoted")
        self.standby.set("synchronous_standby_names = ''")  # nobody follows it yet

    def replace(self) -> None:
        """Make the lost primary the standby of the new one."""
        self.primary, self.standby = self.standby, self.primary
        self.standby.make(self.primary)
        self.attach()

    def close(self) -> None:
        """End both."""
        self.standby.close()
        self.primary.close()


class Writer(threading.Thread):
    """A client that pushes, with keys or without, and notes what it was told."""

    def __init__(self, url: str, name: str, *, keyed: bool) -> None:
        super().__init__(name=name)
        self.acked: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.is_over = False
        self._url = url
        self._keyed = keyed

    def run(self) -> None:
        """Push until it is over; what has a key is pushed again after every error."""
        with eventq.open(self._url) as thread:
            self.begin(thread)
            number = 0
            while not self.is_over:
                content = f"{self.name} {number}"
                key = content if self._keyed else None
                try:
                    self.acked[content] = self.write(thread, content, key)
                except UnknownOutcomeError:
                    self.unknown.add(content)
                    number += not self._keyed
                except (BusyError, StoreError):
                    pass  # nothing of it is stored
                else:
                    number += 1

    def begin(self, thread: eventq.Thread) -> None:
        """Make what it writes to."""

    def write(self, thread: eventq.Thread, content: str, key: str | None) -> int:
        """Store a content, and return its id."""
        return thread.push("self", "note", content, key=key).id


class Speaker(Writer):
    """One that appends turns to a context of its own, which events report."""

    def begin(self, thread: eventq.Thread) -> None:
        thread.contexts.create(self.name)

    def write(self, thread: eventq.Thread, content: str, key: str | None) -> int:
        context = thread.contexts.get(self.name)
        return context.append(content, key=key, source="self").turn_id


class Stepper(Writer):
    """One that takes steps of a run of its own, each with an attempt and a blob."""

    def begin(self, thread: eventq.Thread) -> None:
        thread.runs.start("w", "go", label=self.name)

    def write(self, thread: eventq.Thread, content: str, key: str | None) -> int:
        tried, thing = [NewStep("b", content="tried")], thread.blobs.put(content.encode()).ref
        step = NewStep("a", content=content, refs=[thing], attempts=tried)
        return thread.runs.get(self.name).step(step, key=key).turn_id


class Maker(Writer):
    """One that writes artifacts, each in two changes, and what it is for as a third one."""

    def write(self, thread: eventq.Thread, content: str, key: str | None) -> int:
        with thread.artifacts.allocate(content.replace(" ", "_")) as writer:
            writer.write(content.encode() * 10_000)
        return int(writer.artifact_id)


@pytest.fixture
def pair(postgres: str) -> Iterator[Pair]:
    """Return a pair with the tables."""
    made = Pair()
    try:
        init_schema(made.url)
        yield made
    finally:
        made.close()


def fail_over_under(pair: Pair, writers: list[Writer], failovers: int) -> None:
    """Let writers write while the primary is lost so often, and replaced."""

    def go_on(count: int) -> None:
        """Wait until each writer has written so often since now."""
        goals = [(writer, len(writer.acked) + count) for writer in writers]
        until(lambda: all(len(writer.acked) >= goal for writer, goal in goals), "all write")

    for writer in writers:
        writer.start()
    try:
        for _ in range(failovers):
            go_on(ENOUGH)
            pair.fail_over()
            go_on(ENOUGH)
            pair.replace()
        go_on(ENOUGH)
    finally:
        for writer in writers:
            writer.is_over = True
        for writer in writers:
            writer.join()


def check_told(writers: list[Writer], stored: list[tuple[str, int]]) -> None:
    """Check that what was acknowledged is stored, nothing is twice, and nothing without a cause."""
    ids = dict(stored)
    assert len(ids) == len(stored)  # with a key or without
    acked = {content: number for writer in writers for content, number in writer.acked.items()}
    assert acked.items() <= ids.items()
    assert ids.keys() - acked.keys() <= {one for writer in writers for one in writer.unknown}


@pytest.mark.parametrize("failovers", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_what_was_acknowledged_outlives_the_primary(pair: Pair, failovers: int) -> None:
    """Nothing of it is lost, or under another id; what has a key is there once, and ids have no gaps."""
    place = eventq.init(f"{pair.url}&thread=x")
    writers = [Writer(place, f"w{n}", keyed=n % 2 == 0) for n in range(WRITERS)]
    fail_over_under(pair, writers, failovers)
    with eventq.open(place) as thread:
        stored = [*thread.peek(limit=None)]
        assert thread.check() == []
    assert [event.id for event in stored] == [*range(1, len(stored) + 1)]
    check_told(writers, [(event.content, event.id) for event in stored])


@pytest.mark.parametrize("failovers", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_a_memory_outlives_the_primary(pair: Pair, failovers: int) -> None:
    """Turns, steps and artifacts as well; heads point to turns, and artifacts are whole or said not to be."""
    place = eventq.init(f"{pair.url}&thread=x")
    kinds: list[type[Writer]] = [Speaker, Speaker, Stepper, Stepper, Maker]
    writers = [kind(place, f"w{n}", keyed=n % 2 == 0) for n, kind in enumerate(kinds)]
    fail_over_under(pair, writers, failovers)
    with eventq.open(place) as thread:
        assert thread.check() == []
        turns = [
            (turn.payload.decode(), turn.turn_id)
            for writer in writers[:2]
            for turn in thread.contexts.get(writer.name).replay()
            if turn.payload is not None
        ]
        check_told(writers[:2], turns)
        assert thread.last_id() == len(turns)  # an event reports each
        steps = [step for writer in writers[2:4] for step in thread.runs.get(writer.name).replay()]
        check_told(writers[2:4], [(step.content, step.turn_id) for step in steps])
        assert {len(step.attempts) for step in steps} == {1}
        heads = {info.head_turn_id for info in thread.contexts}
        assert all(thread.contexts.turn(head) for head in heads)
        sealed = {}
        for info in thread.artifacts:
            content = info.tool.replace("_", " ")
            data, whole = thread.artifacts.open(info.artifact_id).read(), content.encode() * 10_000
            assert data == whole if info.status == "sealed" else whole.startswith(data)
            if info.status == "sealed":
                sealed[int(info.artifact_id)] = content
        assert {
            number: content for content, number in writers[4].acked.items()
        }.items() <= sealed.items()
