"""What is erased or pruned is not shown by whoever has read it ahead, a second later at the latest.

Who reads pages of events and yields them one by one: `consume`, and with it workers; `follow`,
`peek` and their asyncio forms; `tail`. Servers are tried in `tests/http/test_erased.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq import AsyncThread, Event, Thread
from eventq.cli import log as commands
from eventq.cli import show
from eventq.log import events
from eventq.records.checks import ERASED
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("quick")
SECRET = "the password is hunter2-hunter2"


@pytest.fixture
def filled(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> Thread:
    """Return a thread with events of which some are erased, as if each took more than a second."""
    monkeypatch.setattr(events, "SLOW_LOOK", 0.0)
    for number in range(1, 11):
        assert thread.push("self", "note", SECRET if number in (2, 3, 9) else "other").id == number
    thread.subscribe("c")
    return thread


def consume(thread: Thread) -> Iterator[Event]:
    """Yield what a consumer reads."""
    return thread.consume("c", idle=0)


def follow(thread: Thread) -> Iterator[Event]:
    """Yield what a follower reads."""
    return thread.follow(0)


def peek(thread: Thread) -> Iterator[Event]:
    """Yield what is stored."""
    return thread.peek(0, limit=None)


def erase(path: str) -> None:
    """Erase two of three in another process's place."""
    with eventq.open(path) as other:
        for number in (3, 9):
            other.erasures.event(number)


@pytest.mark.parametrize("read", [consume, follow, peek])
def test_who_takes_his_time_with_a_page(
    filled: Thread, read: Callable[[Thread], Iterator[Event]]
) -> None:
    """What was erased since the page was read comes erased; what was pruned does not come."""
    found: dict[int, str] = {}
    for event in read(filled):
        found[event.id] = event.content
        if event.id == 2:
            erase(filled.path)
        if event.id == 5:
            filled.prune(before_id=8, force=True)
        if event.id == 10:
            break
    assert [*found] == [1, 2, 3, 4, 5, 8, 9, 10]
    assert [found[number] for number in (2, 3, 9)] == [SECRET, ERASED, ERASED]


def test_who_follows_in_asyncio(filled: Thread) -> None:
    """It is read again in another OS thread."""
    found: dict[int, str] = {}

    async def run() -> None:
        async with await AsyncThread.open(filled.path) as thread:
            follower = thread.follow(0)
            async for event in follower:
                found[event.id] = event.content
                if event.id == 2:
                    await asyncio.to_thread(erase, filled.path)
                if event.id == 10:
                    break
            await follower.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
    assert [found[number] for number in (2, 3, 9)] == [SECRET, ERASED, ERASED]


def test_a_terminal_that_stands_still(filled: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tail` waits in the middle of its lines, and goes on with what is stored then."""
    shown: list[str] = []

    def say(text: str) -> None:
        shown.append(text)
        if len(shown) == 2:
            erase(filled.path)

    monkeypatch.setattr(show, "say", say)
    wanted: commands.Wanted = {
        "filter": None, "since": None, "until": None, "type": [], "source": [],
    }  # fmt: skip
    commands.tail(filled, lines=10, follow=False, wanted=wanted, json=False)
    assert len(shown) == 10
    assert [SECRET in shown[1], SECRET in shown[2], ERASED in shown[8]] == [True, False, True]


def test_a_page_that_was_just_read_is_shown_as_it_is(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read twice within a second: a loop over a million events costs what it did."""
    thread.push_many([("self", "note", "x")] * 50)
    monkeypatch.setattr(clock, "monotonic", lambda: 1.0)
    monkeypatch.setattr(thread.database.events, "get", None)
    assert len([*thread.peek(0)]) == 50
