"""A push while a handler ends, in thousands of interleavings: no wake-up is lost."""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.running import dispatch
from eventq.system import locks
from tests.race.steps import Play, explore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Return a play about a fresh thread with one consumer, or what the test adds."""
    made = Play(eventq.init(tmp_path / "thread"), monkeypatch)
    yield made
    made.close()


@dataclass(frozen=True)
class Case:
    """Who acts: `opening` begins, and meets the others; what the handlers are like."""

    actors: str  # separated by blanks
    opening: str = ""
    stored: bool = False  # an event waits from the start
    page: int = 100  # events that a handler does in one run
    failing: int = 0  # runs without progress
    removing: bool = False  # handlers remove their lock file, and go on for a while

    def begin(self, play: Play) -> None:
        """Bring the actors in."""
        acts: dict[str, Callable[[], None]] = {
            "push": play.push, "push-other": lambda: play.push("only 1"), "dispatch": play.dispatch,
            "start": play.start, "look": play.look, "remove": lambda: play.remove("w0"), "older": lambda: play.older("w0"),
        }  # fmt: skip
        play.page, play.failing, play.removing = self.page, self.failing, self.removing
        if self.stored:
            play.store()
        if self.opening:
            play.stage.opening = play.stage.add(self.opening, acts[self.opening])
        for name in self.actors.split():
            play.stage.add(name, acts[name])


CASES = {
    "a handler finishes while somebody pushes": Case("push push"),
    "three pushes meet": Case("push push push"),
    "somebody dispatches by hand": Case("push dispatch push"),
    "a dispatch is started though nobody is due": Case("push", opening="start"),
    "the dispatch is slower than all that follows": Case("push", opening="dispatch", stored=True),
    "somebody looks at the lock": Case("push look push look"),
    "the handler does one event a run": Case("push push push", page=1),
    "the first run makes no progress": Case("push push", failing=1),
    "handlers remove their lock file": Case("push push push", removing=True),
    "somebody removes the lock file": Case("push remove push dispatch"),
    "a supervisor of an older eventq runs": Case("push push", opening="older", stored=True),
}


def perform(play: Play, case: Case, consumers: int = 1) -> Callable[[dict[int, int]], list[int]]:
    """Return a function that plays a case by a schedule, and checks the result."""
    with eventq.open(play.path) as thread:
        for number in range(consumers):
            where = None if number == 0 else f"type = 'only {number}'"
            thread.subscribe(f"w{number}", "handler", filter=where)

    def once(schedule: dict[int, int]) -> list[int]:
        stage = play.reset(schedule)
        case.begin(play)
        stage.run()
        thread = play.open()
        last = thread.last_id()
        for state in thread.consumers.states():
            assert not thread.consumers.due(state), f"{state.consumer} was not woken: {schedule}"
            assert not locks.held(thread.layout.consumer(state.consumer))
            if case.opening != "older":  # whoever meets it may leave a guard to the next push
                assert locks.guards(thread.layout.guards) == []
            assert state.stalled is None
            if state.filter is None:
                assert state.acked == last == max(play.pushed)
        play.give_back(thread)
        if consumers == 1:
            assert sorted(play.got) == sorted(play.pushed), "an event was handled twice"
        return stage.others

    return once


MANY = [pytest.param(1500, seed, marks=pytest.mark.soak) for seed in range(2, 5)]


@pytest.mark.parametrize(("count", "seed"), [(30, 1), *MANY])
@pytest.mark.parametrize("case", CASES)
def test_no_wake_up_is_lost_and_no_handler_runs_twice(
    case: str, count: int, seed: int, play: Play
) -> None:
    """For any interleaving, every event is handled once, and handlers never overlap."""
    assert explore(perform(play, CASES[case]), count, seed) == count


@pytest.mark.parametrize("count", [25, pytest.param(4000, marks=pytest.mark.soak)])
def test_consumers_of_one_supervisor_do_not_cost_each_other_a_wake_up(
    count: int, play: Play
) -> None:
    """A consumer's handler never hides an event from another one of the same supervisor."""
    case = Case("push-other push push-other")
    assert explore(perform(play, case, 2), count, 1) == count


# --- the tests have teeth: each of these mistakes is found ----------------------------------------


def no_last_look(patch: pytest.MonkeyPatch) -> None:
    """The supervisor goes without looking once more after it has let the lock go."""
    real_release, real_forget = locks.ConsumerLock.release, locks.ConsumerLock.forget

    def forget(lock: locks.ConsumerLock) -> None:
        real_release(lock)
        real_forget(lock)

    patch.setattr(locks.ConsumerLock, "release", lambda _: None)
    patch.setattr(locks.ConsumerLock, "forget", forget)


def a_look_counts_as_held(patch: pytest.MonkeyPatch) -> None:
    """A dispatch gives up when it meets somebody who only looks."""
    real = locks.lock_whole

    def lock_whole(fd: int, *, wait: bool) -> None:
        try:
            real(fd, wait=wait)
        except BlockingIOError:
            raise TimeoutError from None

    patch.setattr(locks, "lock_whole", lock_whole)


def only_closed(patch: pytest.MonkeyPatch) -> None:
    """The supervisor closes its descriptor, but a process that is a fork of it still has it."""
    real, guards = locks.ConsumerLock.take, [""]

    def take(files: locks.ConsumerFiles) -> locks.ConsumerLock | None:
        guards[0] = files.guard
        return real(files)

    def forget(lock: locks.ConsumerLock) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(guards[0])
        lock.close()

    patch.setattr(locks.ConsumerLock, "take", take)
    patch.setattr(locks.ConsumerLock, "release", lambda _: None)
    patch.setattr(locks.ConsumerLock, "forget", forget)


def no_lock(patch: pytest.MonkeyPatch) -> None:
    """Two supervisors believe that they hold the lock."""
    patch.setattr(locks, "lock_whole", lambda *_, **__: None)
    patch.setattr(locks.ConsumerLock, "orphan", lambda _: None)


def no_guard(patch: pytest.MonkeyPatch) -> None:
    """The lock file is all there is."""
    patch.setattr(
        locks.ConsumerFiles,
        "guard",
        property(lambda files: files.lock + uuid.uuid4().hex, lambda *_: None),
    )
    patch.setattr(locks.ConsumerLock, "orphan", lambda _: None)


def a_late_leave(patch: pytest.MonkeyPatch) -> None:
    """A dispatch keeps its place in the queue until it has looked."""
    real = dispatch.Dispatch.scan

    def play_dispatch(self: Play, leave: Callable[[], None] | None = None) -> None:
        thread = self.open()
        found = real(dispatch.Dispatch(thread.consumers, thread.layout, thread.journal))
        if leave is not None:
            leave()
        if found:
            dispatch.start_supervisor(self.path, found)
        self.give_back(thread)

    patch.setattr(Play, "dispatch", play_dispatch)


def a_look_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A pusher asks who holds the lock before it stores."""
    real_push, real_held = Play.push, locks.held
    seen: dict[str, bool] = {}

    def push(self: Play, kind: str = "test") -> None:
        thread = self.open()
        answer = real_held(thread.layout.consumer("w0"))
        self.give_back(thread)
        seen["w0"] = answer
        real_push(self, kind)

    patch.setattr(Play, "push", push)
    patch.setattr(locks.Leases, "is_held", lambda _, consumer: seen[consumer])


MISTAKES = [
    (no_last_look, "a handler finishes while somebody pushes"),
    (a_look_counts_as_held, "somebody looks at the lock"),
    (no_lock, "somebody dispatches by hand"),
    (only_closed, "the dispatch is slower than all that follows"),
    (a_late_leave, "a dispatch is started though nobody is due"),
    (a_look_before_the_commit, "a handler finishes while somebody pushes"),
    (no_guard, "handlers remove their lock file"),
]


@pytest.mark.parametrize(("mistake", "case"), MISTAKES)
def test_the_plays_find_the_mistakes_that_they_are_made_for(
    mistake: Callable[[pytest.MonkeyPatch], None], case: str, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """With a mistake in the protocol, some interleaving loses a wake-up or doubles a handler."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=r"was not woken|two handlers|handled twice"):
        explore(perform(play, CASES[case]), 2000, 1)
