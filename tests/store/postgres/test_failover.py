"""A primary that is lost under load: its standby has all that was acknowledged, and takes over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import BusyError, StoreError, UnknownOutcomeError
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
        assert self.standby.run("SELECT pg_promote()") == [(True,)]
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
            number = 0
            while not self.is_over:
                content = f"{self.name} {number}"
                key = content if self._keyed else None
                try:
                    self.acked[content] = thread.push("self", "note", content, key=key).id
                except UnknownOutcomeError:
                    self.unknown.add(content)
                    number += not self._keyed
                except (BusyError, StoreError):
                    pass  # nothing of it is stored
                else:
                    number += 1


@pytest.fixture
def pair(postgres: str) -> Iterator[Pair]:
    """Return a pair with the tables."""
    made = Pair()
    try:
        init_schema(made.url)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("failovers", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_what_was_acknowledged_outlives_the_primary(pair: Pair, failovers: int) -> None:
    """Nothing of it is lost, or under another id; what has a key is there once, and ids have no gaps."""
    place = eventq.init(f"{pair.url}&thread=x")
    writers = [Writer(place, f"w{n}", keyed=n % 2 == 0) for n in range(WRITERS)]

    def go_on(count: int) -> None:
        """Wait until each writer has pushed so often since now."""
        goals = [(writer, len(writer.acked) + count) for writer in writers]
        until(lambda: all(len(writer.acked) >= goal for writer, goal in goals), "all push")

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
    with eventq.open(place) as thread:
        stored = [*thread.peek(limit=None)]
        assert thread.check() == []
    assert [event.id for event in stored] == [*range(1, len(stored) + 1)]
    ids = {event.content: event.id for event in stored}
    assert len(ids) == len(stored)  # nothing is there twice, with a key or without
    acked = {content: number for writer in writers for content, number in writer.acked.items()}
    assert acked.items() <= ids.items()
    assert ids.keys() - acked.keys() <= {one for writer in writers for one in writer.unknown}
