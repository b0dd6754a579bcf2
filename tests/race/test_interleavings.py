"""A push while a handler finishes, in thousands of interleavings: no wake-up is lost, and no handler runs twice at once."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import locks
from eventq.log import dispatch, notifier
from eventq.log.supervisor import Supervisor
from tests.race.steps import Play, explore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Give a play about a fresh thread with one consumer, or what the test adds."""
    made = Play(eventq.init(tmp_path / "thread"), monkeypatch)
    yield made
    made.close()


def finishing(play: Play) -> None:
    """A handler finishes while somebody pushes."""
    play.stage.add("push", play.push)
    play.stage.add("push", play.push)


def two_pushers(play: Play) -> None:
    """Three pushes meet."""
    for _ in range(3):
        play.stage.add("push", play.push)


def with_a_dispatch(play: Play) -> None:
    """Somebody runs dispatch by hand meanwhile."""
    play.stage.add("push", play.push)
    play.stage.add("dispatch", play.dispatch)
    play.stage.add("push", play.push)


def with_one_too_many(play: Play) -> None:
    """A dispatch is started in the background though nobody is due."""
    play.stage.opening = play.stage.add("start", play.start)
    play.stage.add("push", play.push)


def with_a_slow_dispatch(play: Play) -> None:
    """The dispatch that starts a supervisor may be slower than all that follows."""
    play.store()
    play.stage.opening = play.stage.add("dispatch", play.dispatch)
    play.stage.add("push", play.push)


def with_a_look(play: Play) -> None:
    """Somebody looks at the lock meanwhile."""
    play.stage.add("push", play.push)
    play.stage.add("look", play.look)
    play.stage.add("push", play.push)
    play.stage.add("look", play.look)


def one_at_a_time(play: Play) -> None:
    """The handler does one event a run."""
    play.page = 1
    for _ in range(3):
        play.stage.add("push", play.push)


def with_a_failure(play: Play) -> None:
    """The first run of the handler makes no progress."""
    play.failing = 1
    play.stage.add("push", play.push)
    play.stage.add("push", play.push)


def with_removed_locks(play: Play) -> None:
    """The handlers remove their lock file when they have done their work, and go on for a while."""
    play.removing = True
    for _ in range(3):
        play.stage.add("push", play.push)


def with_a_tidy_mind(play: Play) -> None:
    """Somebody removes the lock file, whoever holds it."""
    play.stage.add("push", play.push)
    play.stage.add("remove", lambda: play.remove("w0"))
    play.stage.add("push", play.push)
    play.stage.add("dispatch", play.dispatch)


def with_an_older_eventq(play: Play) -> None:
    """A supervisor of an eventq that knows of no guards runs the handler."""
    play.store()
    play.stage.opening = play.stage.add("older", lambda: play.older("w0"))
    play.stage.add("push", play.push)
    play.stage.add("push", play.push)


CASES = [
    finishing, two_pushers, with_a_dispatch, with_one_too_many, with_a_slow_dispatch, with_a_look, one_at_a_time,
    with_a_failure, with_removed_locks, with_a_tidy_mind, with_an_older_eventq,
]  # fmt: skip


def perform(
    play: Play, case: Callable[[Play], None], consumers: int = 1
) -> Callable[[dict[int, int]], list[int]]:
    """Give a function that plays a case by a schedule and holds what must hold when all is quiet."""
    with eventq.open(play.path) as thread:
        for number in range(consumers):
            thread.subscribe(
                f"w{number}", "handler", filter=None if number == 0 else f"type = 'only {number}'"
            )

    def once(schedule: dict[int, int]) -> list[int]:
        stage = play.reset(schedule)
        case(play)
        stage.run()
        thread = play.open()
        last = thread.last_id()
        for state in thread.consumers.states():
            assert not thread.consumers.due(state), f"{state.consumer} was not woken: {schedule}"
            assert not locks.held(thread.layout.consumer(state.consumer))
            if (
                case is not with_an_older_eventq
            ):  # whoever meets that one may leave a guard to the next push
                assert locks.guards(thread.layout.guards) == []
            assert state.stalled is None
            if state.filter is None:
                assert state.acked == last == max(play.pushed)
        play.give_back(thread)
        if consumers == 1:
            assert sorted(play.got) == sorted(play.pushed), "an event was handled twice"
        return stage.others

    return once


@pytest.mark.parametrize("case", CASES)
def test_no_wake_up_is_lost_and_no_handler_runs_twice(
    case: Callable[[Play], None], play: Play
) -> None:
    """Wherever one actor cuts in on another, every event is handled, once, and handlers never overlap."""
    assert explore(perform(play, case), 400, 1) == 400


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("case", CASES)
def test_no_wake_up_is_lost_in_tens_of_thousands_of_interleavings(
    case: Callable[[Play], None], seed: int, play: Play
) -> None:
    """The same, with many more cuts."""
    assert explore(perform(play, case), 1500, seed) == 1500


def two_consumers(play: Play) -> None:
    """One supervisor looks after two consumers, one of which is released while the other's handler is started."""
    play.stage.add("push", lambda: play.push("only 1"))
    play.stage.add("push", play.push)
    play.stage.add("push", lambda: play.push("only 1"))


@pytest.mark.parametrize("count", [400, pytest.param(4000, marks=pytest.mark.soak)])
def test_consumers_of_one_supervisor_do_not_cost_each_other_a_wake_up(
    count: int, play: Play
) -> None:
    """What one consumer's handler does never hides an event from another consumer of the same supervisor."""
    assert explore(perform(play, two_consumers, 2), count, 1) == count


# --- the tests have teeth: each of these mistakes is found ------------------------------------------------------------


def no_last_look(patch: pytest.MonkeyPatch) -> None:
    """The supervisor goes without looking once more after it has let the lock go."""

    def released(self: Any, watched: Any) -> None:
        watched.lock.release()
        watched.lock.forget()
        watched.lock = None
        watched.move("idle")

    patch.setattr(Supervisor, "_released", released)


def a_look_counts_as_held(patch: pytest.MonkeyPatch) -> None:
    """A dispatch takes somebody who only looks for somebody who holds the lock."""

    def locked(fd: int) -> bool:
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    patch.setattr(locks, "_locks", locked)


def only_closed(patch: pytest.MonkeyPatch) -> None:
    """The supervisor closes its descriptor, but a process that is a fork of it still has it."""

    def forget(lock: locks.ConsumerLock) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock._files.guard)
        lock.close()

    patch.setattr(locks.ConsumerLock, "release", lambda _: None)
    patch.setattr(locks.ConsumerLock, "forget", forget)


def no_lock(patch: pytest.MonkeyPatch) -> None:
    """Two supervisors believe that they hold the lock."""
    patch.setattr(locks, "_locks", lambda _: True)
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
    patch.setattr(notifier, "held", lambda _, consumer: seen[consumer])


MISTAKES = [
    (no_last_look, finishing), (a_look_counts_as_held, with_a_look), (no_lock, with_a_dispatch),
    (only_closed, with_a_slow_dispatch), (a_late_leave, with_one_too_many), (a_look_before_the_commit, finishing),
    (no_guard, with_removed_locks),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "case"), MISTAKES)
def test_the_plays_find_the_mistakes_that_they_are_made_for(
    mistake: Callable[[pytest.MonkeyPatch], None],
    case: Callable[[Play], None],
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a mistake in the protocol, some interleaving loses a wake-up or runs two handlers at once."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=r"was not woken|two handlers|handled twice"):
        explore(perform(play, case), 2000, 1)
