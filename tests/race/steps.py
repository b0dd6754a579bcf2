"""Interleavings made to order: the real dispatcher, supervisor, notifier and locks, one step at a time, in one process.

Every actor (a pusher, a dispatch, a supervisor, a handler, somebody who looks) runs in a thread of its own, but only the one that
has the baton moves. At each step boundary the schedule may hand the baton to another one. The locks are the real ones: the
system takes two descriptors of one process for two holders. Forks, children, the clock and waiting are played by the stage.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import random
import select as real_select
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import eventq
from eventq import Event, Thread
from eventq.errors import AlreadyAckedError
from eventq.log import notifier
from eventq.log.consumers import Subscriptions
from eventq.log.journal import Journal
from eventq.running import dispatch, handlers, supervisor
from eventq.running.dispatch import Dispatch
from eventq.store.paths import Layout
from eventq.store.sqlite.database import Database
from eventq.store.sqlite.events import Events
from eventq.system import clock, locks, processes
from eventq.system.locks import ConsumerLock
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_DEADLINE = 120.0
_MOST_STEPS = 5_000


class Actor:
    """An actor; `ready` is whether it can move now, `wake_at` when at the latest."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.work = work
        self.baton = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.wake_at: float | None = None
        self.done = False
        self.code = 0
        self.thread: threading.Thread | None = None


class Abandoned(BaseException):
    """The play is over; every actor goes home."""


class Stage:
    """The scheduler: runs actors by a schedule, `{step: other}`, and records its choices."""

    def __init__(self, schedule: dict[int, int]) -> None:
        self.schedule = schedule
        self.others: list[int] = []  # how many other actors could have moved at each step
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.opening: Actor | None = None  # who begins; else the youngest
        self.now = 1000.0
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self.quiet = 0  # inside it no baton changes hands
        self._closing = False
        self.trace: list[str] = []

    def add(self, name: str, work: Callable[[], object]) -> Actor:
        """Let an actor join."""
        actor = Actor(f"{name}{len(self.actors)}", work)
        self.actors.append(actor)
        return actor

    def run(self) -> None:
        """Play until nobody is left; raise what an actor raised."""
        self._hand_on(self.opening or self._next(None))
        assert self.over.wait(_DEADLINE), "the play hangs: " + " ".join(self.trace[-40:])
        self._closing = True
        for actor in self.actors:
            if actor.thread is not None:
                actor.baton.release()
                actor.thread.join(_DEADLINE)
        if self.failure is not None:
            raise self.failure

    def step(self, what: str = "", *, give_way: bool = False) -> None:
        """Mark a boundary between two steps of the current actor: another one may be let in here.

        One that found a lock taken gives way: it may be about to try again and again.
        """
        actor = self.current
        if actor is None or self.quiet or threading.current_thread() is not actor.thread:
            return
        self.trace.append(f"{actor.name}:{what}")
        if len(self.trace) > _MOST_STEPS:
            raise AssertionError(f"never quiet: {self.trace[-20:]}")
        self._pass(actor, self._next(actor, give_way=give_way))

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> None:
        """Let the current actor wait."""
        actor = self.current
        assert actor is not None
        actor.ready = ready
        actor.wake_at = None if seconds is None else self.now + seconds
        self._pass(actor, self._next(None if not ready() else actor))
        actor.ready = lambda: True
        actor.wake_at = None

    def _pass(self, actor: Actor, to: Actor | None) -> None:
        if to is actor:
            return
        self._hand_on(to)
        actor.baton.acquire()
        if self._closing:
            raise Abandoned

    def _hand_on(self, to: Actor | None) -> None:
        self.current = to
        if to is None:
            self.over.set()
        elif to.thread is None:
            to.thread = threading.Thread(target=self._main, args=(to,), daemon=True)
            to.thread.start()
        else:
            to.baton.release()

    def _main(self, actor: Actor) -> None:
        try:
            actor.work()
        except Abandoned:
            return
        except BaseException as error:  # of any kind: it fails the test
            self.failure = self.failure or error
            self.over.set()
            return
        actor.done = True
        if not self._closing:
            self._hand_on(self._next(None))

    def _next(self, current: Actor | None, *, give_way: bool = False) -> Actor | None:
        """Choose who moves: the current one, unless the schedule says otherwise or it cannot; then the youngest.

        So what somebody has set off runs to its end before the next one begins, and a single cut puts that one anywhere.
        """
        able = [
            a
            for a in self.actors[::-1]
            if not a.done and a is not current and (a.ready() or self._due(a))
        ]
        here = [current] if current is not None else []
        choices = here + able
        if give_way:  # to anybody: two who both try again and again would else meet for ever
            random.Random(len(self.trace)).shuffle(choices)
        if not choices:
            return self._next_in_time()
        number = len(self.others)
        self.others.append(len(choices))
        return choices[self.schedule.get(number, 0) % len(choices)]

    def _due(self, actor: Actor) -> bool:
        return actor.wake_at is not None and actor.wake_at <= self.now

    def _next_in_time(self) -> Actor | None:
        waiting = [a for a in self.actors if not a.done]
        timed = [a for a in waiting if a.wake_at is not None]
        if timed:
            first = min(timed, key=lambda a: a.wake_at or 0)
            self.now = max(self.now, first.wake_at or 0)
            return first
        if waiting:
            self.failure = self.failure or AssertionError(f"stuck: {[a.name for a in waiting]}")
        return None


class Play:
    """A thread whose dispatches, supervisors and handlers are played on a stage."""

    def __init__(self, path: str, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.stage = Stage({})
        self.pushed: list[int] = []
        self.got: list[int] = []
        self.running: set[str] = set()
        self.starts = 0
        self.most_waiting = 0
        self.spawned = 0
        self.failing = 0  # so many runs end without doing anything
        self.page = 100
        self.removing = False  # whether handlers remove their lock file at their end
        self._stores: list[eventq.Thread] = []
        self._children: dict[int, Actor] = {}
        self.held: dict[Actor | None, list[ConsumerLock]] = {}  # that an actor has open
        self._pid = 100_000
        self._patch(patch)

    def reset(self, schedule: dict[int, int]) -> Stage:
        """Begin anew with a schedule."""
        self.stage = Stage(schedule)
        self.pushed, self.got, self.running, self.starts, self.spawned = [], [], set(), 0, 0
        self.failing, self.page, self.removing = 0, 100, False
        self._children.clear()
        self.held.clear()
        return self.stage

    # --- what takes the place of the system -------------------------------------------------------

    def _patch_system_locks(self, patch: pytest.MonkeyPatch) -> None:
        real_flock, real_lock = fcntl.flock, locks.lock_whole

        def locking(how: int, lock: Callable[[], object]) -> None:
            self.stage.step(f"flock{how}")
            try:
                lock()
            except BlockingIOError:
                self.stage.step(f"taken{how}", give_way=True)
                raise
            self.stage.step(f"flocked{how}")

        def flock(fd: int, how: int) -> None:
            locking(how, lambda: real_flock(fd, how))

        def lock_whole(fd: int, *, wait: bool) -> None:
            how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
            locking(how, lambda: real_lock(fd, wait=wait))

        patch.setattr(locks, "flock", flock)
        patch.setattr(locks, "lock_whole", lock_whole)

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        real_close, real_release = ConsumerLock.close, ConsumerLock.release
        real_forget, real_keep = ConsumerLock.forget, ConsumerLock.renew
        real_take, real_change = ConsumerLock.take, Database.change
        play = self

        def take(files: locks.ConsumerFiles) -> ConsumerLock | None:
            lock = real_take(files)
            if lock is not None:
                play.held.setdefault(play.stage.current, []).append(lock)
            return lock

        stepping = self._stepping(real_change, "ack")

        def change(db: Database, sql: str, *args: Any, **named: Any) -> Any:
            call = stepping if "INTO consumer_progress" in sql else real_change
            return call(db, sql, *args, **named)

        def close(lock: ConsumerLock) -> None:
            play.stage.step("letting go")
            real_close(lock)
            play.held[play.stage.current].remove(lock)
            play.stage.step("let go")

        def release(lock: ConsumerLock) -> None:
            play.stage.step("releasing")
            real_release(lock)
            play.stage.step("released")

        def forget(lock: ConsumerLock) -> None:
            play.stage.step("forgetting")
            real_forget(lock)
            play.stage.step("forgotten")

        def keep(lock: ConsumerLock) -> bool:
            play.stage.step("keeping")
            kept = real_keep(lock)
            play.stage.step("kept")
            return kept

        patch.setattr(ConsumerLock, "release", release)
        patch.setattr(ConsumerLock, "forget", forget)
        patch.setattr(ConsumerLock, "renew", keep)
        self._patch_system_locks(patch)
        patch.setattr(ConsumerLock, "take", take)
        patch.setattr(ConsumerLock, "close", close)
        patch.setattr(Database, "change", change)
        for owner, name in (
            (Subscriptions, "due"),
            (Subscriptions, "states"),
            (Subscriptions, "state"),
            (Events, "add"),
        ):
            patch.setattr(owner, name, self._stepping(getattr(owner, name), name))
        patch.setattr(notifier, "queue", self._stepping(locks.queue, "queue"))
        patch.setattr(locks.Leases, "is_held", self._stepping(locks.Leases.is_held, "held"))
        for name, fake in (
            ("spawn", self._spawn), ("fork", self._fork), ("fork_leader", self._fork),
            ("reap", self._reap), ("birth", self._birth),
            ("pause", lambda _: self.stage.step("pause")), ("monotonic", lambda: self.stage.now),
            ("kill_group", lambda *_: None), ("group", lambda _: []), ("has_group", lambda _: False),
            ("group_has", lambda *_: False),
        ):  # fmt: skip
            patch.setattr(clock if name in ("pause", "monotonic") else processes, name, fake)
        patch.setattr(dispatch, "detach", lambda _: None)
        patch.setattr(supervisor, "supervise", self._supervise)
        patch.setattr(handlers, "become_handler", self._become_handler)
        signals = SimpleNamespace(
            SIGCHLD=17,
            SIGKILL=9,
            SIGTERM=15,
            SIGINT=2,
            SIGHUP=1,
            SIG_IGN=1,
            getsignal=lambda _: 0,
            signal=lambda *_: None,
            set_wakeup_fd=lambda *_, **__: None,
        )
        patch.setattr(processes, "signals", signals)
        patch.setattr(
            supervisor,
            "select",
            SimpleNamespace(poll=lambda: Poll(self), POLLIN=real_select.POLLIN),
        )
        patch.setenv("EVENTQ_NOTIFIER", "builtin")
        patch.setenv("EVENTQ_SYNCHRONOUS", "normal")  # no power is cut here
        patch.setenv("EVENTQ_BACKOFF", "0.01")

    def _stepping(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.stage.step(f"{name}?")
            found = real(*args, **named)
            self.stage.step(f"{name}!")
            return found

        return call

    def _child(self, name: str, work: Callable[[], object]) -> int:
        self._pid += 1
        self._children[self._pid] = self.stage.add(name, work)
        return self._pid

    def _spawn(self, argv: list[str], *, keep: list[int], environ: dict[str, str]) -> int:
        assert argv[-3:] == ["dispatch", "--thread", self.path]
        fd = os.dup(keep[0])  # the same lock, as after a real spawn
        assert environ[notifier.QUEUE_FD] == str(keep[0])
        assert notifier.DELAY not in environ
        self.spawned += 1

        def work() -> None:
            left = [fd]

            def leave() -> None:
                self.stage.step("leave?")
                os.close(left.pop())
                self.stage.step("leave!")

            self.dispatch(leave)

        return self._child("dispatch", work)

    def _fork(self, child: Callable[[], Any]) -> int:
        before = self._pid
        child()  # adds an actor, or is one that ends at once
        if self._pid == before:
            self._child("nothing", lambda: None)
        pid = self._pid  # now: others may fork before it is returned
        self.stage.step("forked")
        return pid

    def _reap(self, pid: int) -> int | None:
        actor = self._children.get(pid)
        return 0 if actor is None or actor.done else None

    def _birth(self, pid: int) -> str | None:
        actor = self._children.get(pid)
        return None if actor is None or actor.done else "born"

    def ended(self) -> int:
        """Return the number of children that have ended."""
        return sum(actor.done for actor in self._children.values())

    # --- the actors -------------------------------------------------------------------------------

    def open(self) -> eventq.Thread:
        """Return an open thread that is free now; opening takes longer than a play."""
        return self._stores.pop() if self._stores else eventq.open(self.path)

    def give_back(self, thread: eventq.Thread) -> None:
        """Take it back."""
        self._stores.append(thread)

    def close(self) -> None:
        """Close all."""
        for thread in self._stores:
            thread.close()

    def push(self, kind: str = "test") -> None:
        """Push one event, and wake whom it is for."""
        thread = self.open()
        event = thread.push("self", kind, "x")
        self.pushed.append(event.id)
        self.give_back(thread)

    def store(self) -> None:
        """Store an event before the play begins, and wake nobody."""
        thread = self.open()
        with thread.write():
            sql = "INSERT INTO events (created_at, source, type, content) VALUES (?, 'self', 'test', 'x') RETURNING id"
            number = sqlite(thread.database).one(sql, ("2026-03-18T10:30:00.123Z",))
        self.pushed.append(number)
        self.give_back(thread)

    def start(self) -> None:
        """Start a dispatch in the background, though nobody may be due."""
        thread = self.open()
        thread.dispatch()
        self.give_back(thread)

    def dispatch(self, leave: Callable[[], None] | None = None) -> None:
        """Do what the dispatch command does."""
        thread = self.open()
        if leave is not None:
            leave()
        found = Dispatch(thread.consumers, thread.layout, thread.journal).scan()
        if found:
            dispatch.start_supervisor(self.path, found)
        self.give_back(thread)

    def look(self) -> None:
        """Probe the locks, as `info` does."""
        thread = self.open()
        for state in thread.consumers.states():
            self.stage.step("probe")
            locks.held(thread.layout.consumer(state.consumer))
        self.give_back(thread)

    def _supervise(self, _: str, taken: dict[str, ConsumerLock]) -> None:
        mine = {name: inherit(lock) for name, lock in taken.items()}

        def work() -> None:
            thread = self.open()
            journal = Journal(thread.layout)
            self.held[self.stage.current] = [*mine.values()]
            supervisor.Supervisor(thread.layout, thread.consumers, journal, mine).run()
            journal.close()
            self.give_back(thread)

        self._child("supervisor", work)

    def _become_handler(
        self, _: object, fds: tuple[int, int, int, int], environ: dict[str, str]
    ) -> None:
        inherited = [os.dup(fd) for lock in self.held[self.stage.current] for fd in lock.fds]
        fd = os.dup(fds[0])
        poll = real_select.poll()
        poll.register(fd, real_select.POLLIN | real_select.POLLHUP)

        def work() -> None:
            go = os.read(fd, 1)
            actor.ready = lambda: True  # the number of the descriptor may be another file's soon
            self.stage.step("exec")
            for number in (fd, *inherited):
                os.close(number)
            self.stage.step("executed")
            if go:
                self._handle(environ["EVENTQ_CONSUMER"], int(environ["EVENTQ_LAST_ACKED_ID"]))

        self._child("handler", work)
        actor = self.stage.actors[-1]
        actor.ready = lambda: bool(poll.poll(0))

    def _pop(self, thread: Thread, consumer: str, at: int) -> list[Event]:
        try:
            return thread.pop(consumer, at, limit=self.page)
        except AlreadyAckedError as error:
            raise AssertionError(f"two handlers of {consumer}: {error}") from error

    def _handle(self, consumer: str, at: int) -> None:
        """Handle what there is: the smallest handler that does its duty."""
        self.starts += 1
        assert consumer not in self.running, f"two handlers of {consumer} at once"
        self.running.add(consumer)
        self.stage.step("started")
        if self.failing:
            self.failing -= 1
        else:
            thread = self.open()
            while events := self._pop(thread, consumer, at):
                self.got += [event.id for event in events]
                at = events[-1].id
                self.stage.step("handled")
                if self.page == 1:
                    thread.ack(consumer, at)
                    break  # it does one, and leaves the rest to its next run
            self.give_back(thread)
        if self.removing:
            self.remove(consumer)
        self.stage.step("ending")
        self.running.discard(consumer)

    def older(self, consumer: str) -> None:
        """Dispatch, supervise and handle as an eventq does that knows of the lock file only."""
        thread = self.open()

        def waiting() -> Any:
            state = thread.consumers.state(consumer)
            return state if state is not None and thread.consumers.due(state) else None

        files = thread.layout.consumer(consumer)
        files.guard = f"{self.path}/unknown"
        while waiting() and (lock := ConsumerLock.take(files)) is not None:
            while state := waiting():
                self._handle(consumer, state.acked)
            lock.release()
            lock.close()
        self.give_back(thread)

    def remove(self, consumer: str) -> None:
        """Remove a consumer's lock file, as handlers for the `thread` command do."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(Layout(self.path).consumer(consumer).lock)
        self.stage.step("removed")


def inherit(lock: ConsumerLock) -> ConsumerLock:
    """Return a lock as a forked process has it: the same locks, through descriptors of its own."""
    mine = copy.copy(lock)
    mine.guard, mine.fd = map(os.dup, lock.fds)
    return mine


class Poll:
    """What the supervisor waits with: it wakes when a child ends, or when the time is up."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.actor = play.stage.current
        self._seen = play.ended()

    def register(self, *_: object) -> None:
        """Take any descriptor."""

    def wakes(self) -> bool:
        """Return whether a child has ended."""
        return self.play.ended() != self._seen

    def poll(self, milliseconds: int | None) -> list[object]:
        """Wait."""
        seconds = None if milliseconds is None else milliseconds / 1000
        self.play.stage.wait(self.wakes, seconds)
        self._seen = self.play.ended()
        return []


def explore(play: Callable[[dict[int, int]], list[int]], count: int, seed: int) -> int:
    """Play all schedules with one cut, then those with two and more, until `count` different ones were played.

    `play` gives for each step how many could have moved. Gives the number of plays.
    """
    chance = random.Random(seed)
    base = play({})
    first = [{step: pick} for step, able in enumerate(base) for pick in range(1, able)]
    chance.shuffle(first)
    seen: dict[tuple[tuple[int, int], ...], list[int]] = {(): base}
    done: list[dict[int, int]] = [{}]
    while len(seen) < count:
        if first:
            schedule = first.pop()
        else:
            parent = chance.choice(done)
            able = seen[tuple(sorted(parent.items()))]
            start = max(parent, default=-1) + 1
            if start >= len(able):
                continue
            step = chance.randrange(start, len(able))
            if able[step] < 2:
                continue
            schedule = {**parent, step: chance.randrange(1, able[step])}
        key = tuple(sorted(schedule.items()))
        if key in seen:
            continue
        seen[key] = play(schedule)
        if len(schedule) < 5:
            done.append(schedule)
    return len(seen)
