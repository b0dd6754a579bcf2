"""`eventq work` against pushes and dispatches, in thousands of interleavings: no event waits."""

from __future__ import annotations

import select as real_select
import signal
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.running import work
from eventq.running.thread_runner import ThreadRunner
from eventq.running.work import Work
from eventq.store.sqlite.bell import Bell
from eventq.store.sqlite.database import Database
from eventq.system import locks
from tests.engines import sqlite
from tests.race.steps import Play, Poll, explore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.race.steps import Actor, Stage


class WorkPlay(Play):
    """A play with workers, which hear a bell that rings in this process."""

    def __init__(self, path: str, patch: pytest.MonkeyPatch) -> None:
        super().__init__(path, patch)
        self.rings = 0
        self.notes: dict[Actor | None, Any] = {}  # the workers, and what a signal calls
        self.signals: Counter[Actor | None] = Counter()
        self.busy: set[Actor | None] = set()  # the workers that supervise a consumer
        self.bells: dict[Actor | None, _Bells] = {}
        real_advance = ThreadRunner.advance
        play = self

        def ring(_: Database) -> None:
            play.stage.step("ring?")
            play.rings += 1
            play.stage.step("rung")

        def listen(number: int, handler: Any) -> None:
            if number == signal.SIGTERM:
                play.notes.setdefault(play.stage.current, handler)

        def advance(runner: ThreadRunner) -> bool:
            play.busy.add(play.stage.current)
            if is_busy := real_advance(runner):
                return is_busy
            play.busy.remove(play.stage.current)
            return False

        patch.setattr(Database, "ring", ring)
        patch.setattr(Bell, "ring_for_events", ring)
        patch.setattr(ThreadRunner, "advance", advance)
        for owner, name in (
            (locks.Hold, "renew"),
            (locks.Hold, "release"),
            (locks.Leases, "is_worked"),
            (locks.Leases, "is_lost"),
        ):
            patch.setattr(owner, name, self._stepping(getattr(owner, name), name))
        numbers = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
        patch.setattr(work, "signal", SimpleNamespace(**numbers, signal=listen))
        poll = SimpleNamespace(poll=lambda: _Poll(self), POLLIN=real_select.POLLIN)
        patch.setattr(work, "select", poll)
        patch.setattr(
            work, "bells", lambda: self.bells.setdefault(self.stage.current, _Bells(self))
        )
        patch.setattr(work, "Watchdog", lambda *_, **__: _Nobody())

    def reset(self, schedule: dict[int, int]) -> Stage:
        """Begin anew with a schedule."""
        self.rings = 0
        for found in (self.notes, self.signals, self.busy, self.bells):
            found.clear()
        return super().reset(schedule)

    @property
    def wanted(self) -> set[int]:
        """The events that are for the consumer."""
        thread = self.open()
        found = {event.id for event in thread.peek(limit=None, filter="type = 'test'")}
        self.give_back(thread)
        return found & {*self.pushed}

    def work(self) -> None:
        """Work until somebody stops it."""
        Work([self.path], say=lambda _: None).run()

    def stop(self) -> None:
        """Stop all workers."""
        for actor, note in self.notes.items():
            note(signal.SIGTERM, None)
            self.signals[actor] += 1
        self.stage.step("stopped")

    def stop_late(self) -> None:
        """Stop them when nothing moves any more; nothing may wait then."""
        me = self.stage.current

        def is_quiet() -> bool:
            return all(a.done or a is me or self._rests(a) for a in self.stage.actors)

        self.stage.wait(is_quiet)
        self.check_nothing_waits()
        self.stop()

    def _rests(self, actor: Actor) -> bool:
        """Return whether an actor is a worker that waits, and has no consumer to supervise."""
        return actor in self.notes and actor not in self.busy and not actor.ready()

    def check_nothing_waits(self) -> None:
        """Raise AssertionError if a consumer is due."""
        self.stage.quiet += 1
        thread = self.open()
        for state in thread.consumers.states():
            assert not thread.consumers.due(state), f"{state.consumer} was not woken"
        self.give_back(thread)
        self.stage.quiet -= 1


class _Nobody:
    """Watches over nothing."""

    has_ended = False

    def add(self, _: str) -> None:
        pass

    remove = add

    def beat(self) -> None:
        pass

    def close(self, *, farewell: bool) -> None:
        pass


class _Bells:
    """Hears each ring from the moment that it listens."""

    polls = False

    def __init__(self, play: WorkPlay) -> None:
        self._play = play
        self._heard: int | None = None

    def fileno(self) -> int:
        return -1

    def add(self, _: str) -> None:
        self._heard = self._play.rings

    def remove(self, _: str) -> None:
        self._heard = None

    def take(self) -> tuple[set[str], set[str]]:
        before, self._heard = self._heard, self._play.rings
        return ({self._play.path} if before != self._play.rings else set()), set()

    def has_rung(self) -> bool:
        return self._heard is not None and self._heard != self._play.rings

    def close(self) -> None:
        pass


class _Poll(Poll):
    """What a worker waits with: a child, a ring, a signal, or the end of the time."""

    play: WorkPlay
    _signals = 0

    def wakes(self) -> bool:
        is_stopped = self.play.signals[self.actor] != self._signals
        return super().wakes() or self.play.bells[self.actor].has_rung() or is_stopped

    def poll(self, milliseconds: int | None) -> list[object]:
        super().poll(milliseconds)
        self._signals = self.play.signals[self.actor]
        return []


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkPlay]:
    """Return a play about a fresh thread with one consumer."""
    made = WorkPlay(eventq.init(tmp_path / "thread"), monkeypatch)
    yield made
    made.close()


@dataclass(frozen=True)
class Case:
    """Who acts: `opening` begins, and meets the others."""

    actors: str
    opening: str = "work"
    stored: bool = False
    page: int = 100
    failing: int = 0

    def begin(self, play: WorkPlay) -> None:
        """Bring the actors in."""
        acts: dict[str, Callable[[], None]] = {
            "work": play.work, "push": play.push, "dispatch": play.dispatch, "look": play.look,
            "push-other": lambda: play.push("other"), "stop": play.stop, "late": play.stop_late,
        }  # fmt: skip
        play.page, play.failing = self.page, self.failing
        if self.stored:
            play.store()
        play.stage.opening = play.stage.add(self.opening, acts[self.opening])
        for name in self.actors.split():
            play.stage.add(name, acts[name])


CASES = {
    "somebody pushes while a worker begins": Case("late push"),
    "two push while a worker begins": Case("late push push", stored=True),
    "a supervisor runs when a worker begins": Case("late work push", opening="push"),
    "somebody dispatches by hand": Case("late push dispatch"),
    "somebody looks at the lock": Case("late push look push"),
    "the handler does one event a run": Case("late push push", page=1),
    "the first run makes no progress": Case("late push", failing=1),
    "a push is not for the consumer": Case("late push-other push"),
    "a worker ends": Case("push stop"),
    "a worker ends with an event": Case("push stop push", stored=True),
    "a worker takes over from another one": Case("late work push stop"),
    "two workers meet": Case("late work push push"),
}


def perform(play: WorkPlay, case: Case) -> Callable[[dict[int, int]], list[int]]:
    """Return a function that plays a case by a schedule, and checks the result."""
    with eventq.open(play.path) as thread:
        thread.subscribe("w0", "handler", filter="type = 'test'")

    def once(schedule: dict[int, int]) -> list[int]:
        stage = play.reset(schedule)
        case.begin(play)
        stage.run()
        play.check_nothing_waits()
        thread = play.open()
        assert not locks.held(thread.layout.consumer("w0"))
        assert locks.guards(thread.layout.guards) == []
        play.give_back(thread)
        assert sorted(play.got) == sorted(play.wanted), "an event was handled twice"
        return stage.others

    return once


MANY = [pytest.param(1500, seed, marks=pytest.mark.soak) for seed in range(2, 5)]


@pytest.mark.parametrize(("count", "seed"), [(15, 1), *MANY])
@pytest.mark.parametrize("case", CASES)
def test_no_event_is_left_waiting(case: str, count: int, seed: int, play: WorkPlay) -> None:
    """For any interleaving with a worker, every event is handled once, and soon."""
    assert explore(perform(play, CASES[case]), count, seed) == count


# --- the tests have teeth: each of these mistakes is found ----------------------------------------


def a_late_ear(patch: pytest.MonkeyPatch) -> None:
    """A worker listens for the bell only after its first look."""
    real_look, real_add = ThreadRunner.look, _Bells.add

    def look(self: ThreadRunner) -> None:
        real_look(self)
        for bells in late:
            real_add(bells, "")
        late.clear()

    late: list[_Bells] = []
    patch.setattr(_Bells, "add", lambda self, _: late.append(self))
    patch.setattr(ThreadRunner, "look", look)


def no_bell(patch: pytest.MonkeyPatch) -> None:
    """A push does not ring."""
    patch.setattr(Database, "ring", lambda _: None)
    patch.setattr(Bell, "ring_for_events", lambda _: None)


def no_last_look(patch: pytest.MonkeyPatch) -> None:
    """A worker goes without looking once more after it has let go."""
    patch.setattr(ThreadRunner, "look_again", lambda _: None)


def a_look_before_the_release(patch: pytest.MonkeyPatch) -> None:
    """A worker looks for the last time, and only then lets pushes start handlers."""
    real_stop, real_again = ThreadRunner.stop, ThreadRunner.look_again

    def stop(self: ThreadRunner, ends_at: float, *, hands_over: bool) -> None:
        real_release = self.release
        self.release = lambda: None  # type: ignore[method-assign]
        real_stop(self, ends_at, hands_over=hands_over)
        self.release = real_release  # type: ignore[method-assign]

    def again(self: ThreadRunner) -> None:
        real_again(self)
        self.release()

    patch.setattr(ThreadRunner, "stop", stop)
    patch.setattr(ThreadRunner, "look_again", again)


def a_hold_seen_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A pusher asks for workers before it stores."""
    real_push, real_worked = Play.push, locks.Leases.is_worked
    seen: dict[int, bool] = {}

    def push(self: Play, kind: str = "test") -> None:
        thread = self.open()
        seen[0] = real_worked(sqlite(thread.database).leases(), "w0")
        self.give_back(thread)
        real_push(self, kind)

    patch.setattr(WorkPlay, "push", push)
    patch.setattr(locks.Leases, "is_worked", lambda *_: seen.get(0, False))


MISTAKES = [
    (a_late_ear, "somebody pushes while a worker begins"),
    (no_bell, "somebody pushes while a worker begins"),
    (no_last_look, "a worker ends"),
    (a_look_before_the_release, "a worker ends"),
    (a_hold_seen_before_the_commit, "a worker ends"),
]


@pytest.mark.parametrize(("mistake", "case"), MISTAKES)
def test_the_plays_find_the_mistakes_that_they_are_made_for(
    mistake: Callable[[pytest.MonkeyPatch], None],
    case: str,
    play: WorkPlay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a mistake in the protocol, some interleaving leaves an event waiting."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="was not woken"):
        explore(perform(play, CASES[case]), 2000, 1)
