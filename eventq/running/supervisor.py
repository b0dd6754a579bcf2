"""The supervisor: a detached process that holds consumers' locks and runs their handlers.

Each consumer moves through the states of TRANSITIONS, below, from `look` to `gone`. The lock is
released only when nothing is due, and the supervisor looks once more after the release. So it
always sees an event that was committed before another process failed to take the lock.
"""

from __future__ import annotations

import os
import select
from functools import partial

from eventq.errors import DamagedError, NotAThreadError
from eventq.log.consumers import Subscriptions
from eventq.log.journal import Journal
from eventq.log.notifier import Notifier
from eventq.log.outcomes import report
from eventq.running.handlers import Handlers, Job
from eventq.running.pool import Pool
from eventq.store.opening import open_database
from eventq.store.paths import Layout
from eventq.store.queue_rows import Outcome
from eventq.store.rules import backoff, ending
from eventq.system import clock, environment, processes
from eventq.system.processes import LATE, LOOK_SECONDS, STOPPED, Group, late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eventq.records.consumer import ConsumerState
    from eventq.store.protocol import Lease, Watcher

TRANSITIONS = {
    "look": {
        "due": "running",
        "each": "pool",
        "orphan": "orphan",
        "idle": "released",
        "stopping": "released",
        "stalled": "released",
        "failed": "gone",
        "lost": "gone",
    },
    "running": {
        "progress": "look",
        "no progress": "backoff",
        "gave up": "released",
        "lost": "gone",
    },
    "pool": {"idle": "released", "worked": "released", "changed": "look", "lost": "gone"},
    "orphan": {"ended": "look", "stopping": "released", "lost": "gone"},
    "backoff": {"time": "look", "resumed": "look", "lost": "gone"},
    "released": {"due": "look", "idle": "gone", "taken": "gone"},
    "gone": {},
}
MOST_IDLE = 5  # runs in a row that exit with 0 and ack nothing: more of them would not help
_RETRY_SECONDS = 0.5  # after an error of the store or the system; doubled for each further one
_RETRY_MOST = 60.0
_TICK = 1.0  # seconds between polls for what sends no signal: a removed lock file, a `resume`


class Watched:
    """One consumer under supervision."""

    def __init__(self, consumer: str, lock: Lease) -> None:
        """Start with the lock held and no handler running."""
        self.consumer = consumer
        self.lock: Lease | None = lock
        self.fence = 0  # of this holder of the lock; 0 until a handler is to be started
        self.state = "look"
        self.group: Group | None = None  # of the handler that runs
        self.acked = 0  # the acked id at the time the handler was started
        self.attempts = 0  # counted here too: a full disk must not make retries endless
        self.noted = 0  # how many of the attempts the store has recorded
        self.backs_off_until = 0.0
        self.wake_at: float | None = None  # when to act even if no child exits
        self.stopped = False  # the run that is over was ended because we stop
        self.endings: set[str] = set()  # how the runs of these attempts ended
        self.code: int | None = None  # of the last one, unless it took too long
        self.late: str | None = None  # that it took too long
        self.idle = 0  # how many of the last ones exited with 0
        self.errors = 0  # consecutive errors of the store or the system
        self.paused_until = 0.0  # after such an error
        self.pool: Pool | None = None  # of a consumer that is run for each event
        self.makes_way = False  # it is released for a worker, though an event waits for its time

    def move(self, event: str) -> None:
        """Follow one arrow of TRANSITIONS."""
        self.state = TRANSITIONS[self.state][event]

    def attempts_void(self, state: ConsumerState | None) -> bool:
        """Return whether an ack, a `resume` or a new subscription has reset the attempts."""
        return state is None or state.acked != self.acked or state.attempts < self.noted

    def reset_attempts(self) -> None:
        """Start counting attempts from zero."""
        self.attempts = self.noted = self.idle = 0
        self.endings.clear()


def supervise(directory: str, locks: Mapping[str, Lease]) -> None:
    """Supervise the locked consumers until none is due."""
    layout = Layout(directory)
    journal = Journal(layout)
    db = open_database(directory)
    db.on_outcomes = partial(report, journal)
    try:
        subscriptions = Subscriptions(db, journal, Notifier(db, layout, journal))
        Supervisor(layout, subscriptions, journal, locks, yields=True).run()
    finally:
        db.close()
        journal.close()


class Supervisor:
    """The loop over the consumers of one thread whose locks this process holds."""

    def __init__(
        self,
        layout: Layout,
        subscriptions: Subscriptions,
        journal: Journal,
        locks: Mapping[str, Lease],
        *,
        yields: bool = False,
        is_ours: Callable[[ConsumerState], bool] = lambda _: True,
        guard: Callable[[str, float | None], object] = lambda _, __: None,
    ) -> None:
        """Take over the locks. One that `yields` leaves consumers to workers that come later.

        Only what `is_ours` is run. `guard` is told when a handler has to be dead at the latest,
        whatever becomes of this process, and None once it has ended.
        """
        self._layout = layout
        self._subscriptions = subscriptions
        self._journal = journal
        self._watched = [Watched(consumer, lock) for consumer, lock in locks.items()]
        self._backoff_base = self._first_backoff()
        self._handlers = Handlers(layout, journal, self._guard)
        self._yields = yields
        self._is_ours = is_ours
        self._tell_guard = guard
        self._guarded: dict[str, float] = {}  # when handlers have to be dead, by their names
        self._watcher: Watcher | None = None
        self._ends_at: float | None = None  # when handlers that still run are ended
        self._hand_over: Callable[[], object] | None = None

    def _first_backoff(self) -> int | None:
        """Return the first back-off in ms where the environment has one; warn of an invalid one.

        An error would start no handler.
        """
        found = environment.env_seconds("EVENTQ_BACKOFF", -1.0)
        if found >= 0:
            return round(found * 1000)
        if text := environment.env("EVENTQ_BACKOFF"):
            what = f"EVENTQ_BACKOFF is {text!r:.100}, which is no number of seconds"
            self._journal.warn(f"supervisor: {what}; that of the consumer is used")
        return None

    def run(self) -> None:
        """Supervise consumers until none is due."""
        poll = select.poll()
        waker = Waker(poll)
        try:
            while self.advance():
                self._watch(poll)
                poll.poll(milliseconds_to(self.wake_at))
                waker.drain()
        finally:
            if self._watcher is not None:
                self._watcher.close()
            waker.close()

    def advance(self) -> bool:
        """Move all consumers on as far as is possible without waiting; return whether any is left.

        Nothing happens before `wake_at` unless a child ends or a watcher wakes.
        """
        for watched in self._watched:
            if self._keep(watched) and watched.paused_until <= clock.monotonic():
                self._advance(watched)
        self._watched = [w for w in self._watched if w.state != "gone"]
        self._guard_all()
        return bool(self._watched)

    def has(self, consumer: str) -> bool:
        """Return whether a consumer is under supervision."""
        return any(watched.consumer == consumer for watched in self._watched)

    def adopt(self, consumer: str, lock: Lease) -> None:
        """Supervise one more consumer, whose lock this process holds by now."""
        self._watched.append(Watched(consumer, lock))

    def stop(self, ends_at: float, hand_over: Callable[[], object] | None) -> None:
        """Start no more handlers, and end those that still run at a time of `clock.monotonic`.

        The locks are released as ever; but then `hand_over` is called for a consumer that is due,
        or will be: somebody else has to take it.
        """
        self._ends_at, self._hand_over = ends_at, hand_over
        for watched in self._watched:
            watched.wake_at = watched.paused_until = clock.monotonic()
            if watched.pool is not None:
                watched.pool.stop(ends_at)

    @property
    def running(self) -> int:
        """The number of handlers that run."""
        pools = [w.pool for w in self._watched if w.pool is not None]
        return sum(w.group is not None for w in self._watched) + sum(
            len(pool.runs) for pool in pools
        )

    def _watch(self, poll: select.poll) -> None:
        """Watch the log while a pool could run more handlers than it does: nobody else starts one.

        Watching begins late, as it takes some ms, so whoever begins to watch looks once more.
        """
        if self._watcher is None:
            if not any(w.pool is not None and w.pool.has_room for w in self._watched):
                return
            self._watcher = self._subscriptions.watch()
            if self._watcher.fileno() >= 0:
                poll.register(self._watcher.fileno(), select.POLLIN)
            for watched in self._watched:
                watched.wake_at = clock.monotonic()
        self._watcher.wait(0)

    @property
    def wake_at(self) -> float:
        """When to look even if nothing wakes us."""
        times = [w.wake_at for w in self._watched if w.wake_at is not None]
        return min([*times, clock.monotonic() + _TICK])

    # --- the lease of a consumer ------------------------------------------------------------------

    def _keep(self, watched: Watched) -> bool:
        """Renew the lease of a consumer, unless it was released; return False when it is lost.

        In a directory, this recreates a lock file that a handler has removed.
        """
        lock = watched.lock
        if lock is None or watched.state == "released":
            return True
        try:
            if lock.renew() or lock.deadline is None:
                return True
        except Exception as error:  # noqa: BLE001 (one consumer must not end it for all)
            self._try_later(watched, error)
            return False
        self._journal.warn(
            f"dispatch: consumer={watched.consumer} lost its lease: what runs for it is killed"
        )
        if watched.group is not None:
            watched.group.end()
        if watched.pool is not None:
            watched.pool.abandon()
        lock.close()
        watched.lock = None
        watched.move("lost")
        return False

    def _guard(self, handler: str, deadline: float | None) -> None:
        """Have a handler killed at its deadline, if it has one, whatever becomes of us."""
        if deadline is not None:
            self._guarded[handler] = deadline
            self._tell_guard(handler, deadline)

    def _guard_all(self) -> None:
        """Say until when handlers may run by now, and which have ended."""
        lasting: dict[str, float] = {}
        for watched in self._watched:
            end = None if watched.lock is None else watched.lock.deadline
            if end is not None and watched.group is not None:
                lasting[watched.group.name] = end
            if end is not None and watched.pool is not None:
                lasting |= {run.group.name: min(end, run.ends_at) for run in watched.pool.runs}
        for handler in self._guarded.keys() - lasting.keys():
            del self._guarded[handler]
            self._tell_guard(handler, None)
        for handler, deadline in lasting.items():
            if self._guarded.get(handler) != deadline:
                self._guard(handler, deadline)

    def _advance(self, watched: Watched) -> None:
        """Move one consumer on as far as is possible without waiting."""
        steps = {
            "look": self._look,
            "running": self._running,
            "pool": self._pool,
            "orphan": self._orphan,
            "backoff": self._backoff,
            "released": self._released,
        }
        before = ""
        while watched.state not in (before, "gone"):
            before = watched.state
            try:
                steps[before](watched)
                watched.errors = 0
            except (NotAThreadError, DamagedError) as error:
                self._journal.error(f"dispatch: consumer={watched.consumer} given up ({error})")
                self._drop(watched)
            except Exception as error:  # noqa: BLE001 (one consumer must not end it for all)
                self._try_later(watched, error)
                return

    def _try_later(self, watched: Watched, error: Exception) -> None:
        """Stay in the same state for a while: a busy or full store may recover."""
        delay = min(_RETRY_SECONDS * 2 ** min(watched.errors, 30), _RETRY_MOST)
        watched.errors += 1
        watched.wake_at = watched.paused_until = clock.monotonic() + delay
        self._journal.error(
            f"dispatch: consumer={watched.consumer} failed, retried in {delay:g}s ({error})"
        )

    def _drop(self, watched: Watched) -> None:
        if watched.lock is not None:
            watched.lock.release()
            watched.lock.close()
            watched.lock = None
        watched.state = "gone"

    # --- one method per state ---------------------------------------------------------------------

    def _look(self, watched: Watched) -> None:
        """Start the handler if there is work, after any that outlived its supervisor has ended."""
        watched.wake_at = None
        if self._ends_at is not None:
            watched.move("stopping")
            return
        orphan = None if watched.lock is None or watched.group else watched.lock.orphan()
        if orphan is not None:
            self._journal.info(
                f"dispatch: consumer={watched.consumer} waits for pid={orphan} of a lost supervisor"
            )
            state = self._subscriptions.state(watched.consumer)
            watched.group = Group(orphan, state.timeout if state is not None else None)
            watched.move("orphan")
            return
        state = self._subscriptions.state(watched.consumer)
        if state is None or not self._is_ours(state):
            watched.move("idle")
            return
        if state.settings.kind == "each":
            watched.move("each")
            return
        if not self._subscriptions.ready(state):
            watched.move("idle")
            return
        self._start(watched, state)
        watched.move("due")

    def _pool(self, watched: Watched) -> None:
        """Run the handlers of a consumer that is run for each event."""
        if watched.pool is None:
            parts = self._subscriptions, self._handlers, self._journal
            watched.pool = Pool(watched.consumer, *parts, self._is_ours)
            if self._ends_at is not None:
                watched.pool.stop(self._ends_at)
        watched.pool.fence = self._fence(watched)
        watched.pool.deadline = None if watched.lock is None else watched.lock.deadline
        watched.wake_at = watched.pool.advance()
        # Its next time is in the store. That of a handler that pops is here only: a worker would
        # start it at once, and use up its attempts.
        if watched.wake_at is not None and not watched.pool.runs and self._is_worked(watched):
            watched.makes_way = True
            watched.move("worked")
        elif watched.wake_at is None:
            watched.move("idle" if watched.pool.is_each else "changed")

    def _running(self, watched: Watched) -> None:
        """Check whether the run is over, or has taken too long."""
        if (group := watched.group) is not None:
            if group.reap():
                self._note_end(watched, group)
            if not (group.is_gone() or self._is_done(watched, group)):
                self._hurry(watched, group)
                return
            watched.stopped, watched.group = group.why == STOPPED, None
        watched.wake_at = None
        if watched.lock is not None:
            watched.lock.note()
        self._judge(watched)

    def _note_end(self, watched: Watched, group: Group) -> None:
        code, seconds = group.code or 0, clock.monotonic() - group.since
        self._handlers.ended(watched.consumer, None, code, seconds)
        watched.late = late(group.timeout or 0) if group.why == LATE else None
        watched.code = None if watched.late else code
        watched.idle = 0 if code or watched.late else watched.idle + 1
        watched.endings.add(watched.late or ending(code))

    def _is_done(self, watched: Watched, group: Group) -> bool:
        """Return whether a run has succeeded: what it has left behind may go on."""
        if not group.exited_well:
            return False
        state = self._subscriptions.state(watched.consumer)
        return state is None or self._has_progressed(watched, state)

    def _hurry(self, watched: Watched, group: Group) -> None:
        """Ask a handler to end whose time is up, and kill what is left after the grace period."""
        if why := group.hurry(self._ends_at):
            log = self._journal.info if group.why == LATE else self._journal.warn
            log(f"dispatch: consumer={watched.consumer} {why}")
        watched.wake_at = group.look_at(self._ends_at)

    def _orphan(self, watched: Watched) -> None:
        """Wait for a handler that is not our child; end what is left after its leading process."""
        group, lock = watched.group, watched.lock
        if self._ends_at is not None:
            watched.group = None
            watched.move("stopping")
            return
        if group is not None and lock is not None and lock.orphan() == group.pid:
            if processes.birth(group.pid) is None:
                group.code = processes.UNKNOWN
            self._hurry(watched, group)
            watched.wake_at = clock.monotonic() + LOOK_SECONDS
            return
        watched.group = None
        watched.wake_at = None
        if lock is not None:
            lock.note()
        watched.move("ended")

    def _backoff(self, watched: Watched) -> None:
        """Wait before the next attempt, unless the attempts were reset meanwhile."""
        if watched.attempts_void(self._subscriptions.state(watched.consumer)):
            watched.reset_attempts()
            watched.move("resumed")
        elif self._ends_at is not None or clock.monotonic() >= watched.backs_off_until:
            watched.move("time")
        else:
            watched.wake_at = watched.backs_off_until

    def _released(self, watched: Watched) -> None:
        """Release the lock, then look once more: a push that found it held relies on us."""
        lock = watched.lock
        if lock is not None:
            lock.release()
        state = self._subscriptions.state(watched.consumer)
        due = state is not None and self._is_ours(state) and self._is_wanted(watched, state)
        orphan = lock is not None and self._ends_at is not None and lock.orphan() is not None
        is_worked = self._is_worked(watched)
        watched.lock, watched.makes_way = None, False
        if lock is not None:
            lock.close() if due or orphan or is_worked else lock.forget()
        if self._ends_at is not None:
            if (due or orphan) and self._hand_over is not None:
                self._hand_over()
            watched.move("taken")
        elif is_worked:
            self._subscriptions.ring()
            watched.move("taken")
        elif due:
            watched.lock, watched.fence = self._subscriptions.lease(watched.consumer), 0
            watched.move("due" if watched.lock is not None else "taken")
        else:
            watched.move("idle")

    def _is_worked(self, watched: Watched) -> bool:
        """Return whether a worker has come for a consumer: it runs the handlers, and says so."""
        return self._yields and self._subscriptions.leases().is_worked(watched.consumer)

    def _is_wanted(self, watched: Watched, state: ConsumerState) -> bool:
        """Return whether a consumer is due; where others are to take it, also whether it will be.

        The worker that we make way for may have ended since.
        """
        if self._ends_at is not None or watched.makes_way:
            return self._subscriptions.is_waiting(state)
        return self._subscriptions.ready(state)

    # --- handlers ---------------------------------------------------------------------------------

    def _fence(self, watched: Watched) -> int:
        """Return the fence of our handlers, above those of all supervisors before us.

        It is raised late, when no handler is known to be left from before: what one of a lost
        supervisor acks while we wait for it counts, or its events would be handled twice.
        """
        if not watched.fence:
            lease = 0 if watched.lock is None else watched.lock.fence
            watched.fence = lease or self._subscriptions.raise_fence(watched.consumer)
        return watched.fence

    def _start(self, watched: Watched, state: ConsumerState) -> None:
        """Start the handler once its pid is recorded.

        Otherwise a supervisor killed in between would leave a handler that nobody knows of.
        """
        if watched.attempts_void(state):
            watched.reset_attempts()
        where, fence = state.settings.directory, self._fence(watched)
        end = None if watched.lock is None else watched.lock.deadline
        job = Job(watched.consumer, state.handler, where, state.acked, fence=fence, deadline=end)

        pids: list[int] = []

        def note(pid: int) -> None:
            pids.append(pid)
            if watched.lock is not None:
                watched.lock.note(pid)

        self._handlers.start(job, note).close()
        watched.group, watched.acked = Group(pids[0], state.timeout), state.acked
        watched.wake_at = watched.group.look_at(self._ends_at)
        self._journal.info(
            f'dispatch: consumer={watched.consumer} spawned handler_cmd="{state.handler}"'
            f" pid={pids[0]}"
        )

    def _why(self, watched: Watched, state: ConsumerState) -> tuple[str, str]:
        """Return why a consumer stalls, and what to do about it."""
        event = self._subscriptions.first_waiting(state)
        if watched.idle >= min(watched.attempts, MOST_IDLE):
            acks = "ack what is done, or subscribe with --each"
            times = _in_a_row(watched.idle)
            return f"{times}its handler exited with code 0 without acking event {event}", acks
        how = " or ".join(sorted(watched.endings)) or "made no progress"
        return f"{_in_a_row(watched.attempts)}its handler {how} at event {event}", "fix it"

    def _has_progressed(self, watched: Watched, state: ConsumerState) -> bool:
        """Return whether a run has acked, or nothing waits for the consumer any more."""
        return state.acked != watched.acked or not self._subscriptions.ready(state)

    def _judge(self, watched: Watched) -> None:
        """Decide what follows a run: another look, a delayed retry, or a stall."""
        state = self._subscriptions.state(watched.consumer)
        stopped, watched.stopped = watched.stopped, False
        if state is None or self._has_progressed(watched, state):
            watched.reset_attempts()
            if state is not None and state.attempts:
                self._subscriptions.note_attempts(state, 0)
            watched.move("progress")
            return
        if watched.attempts_void(state):
            watched.reset_attempts()
        if stopped:
            watched.move("progress")
            return
        watched.attempts = max(watched.attempts, state.attempts) + 1
        self._subscriptions.note_attempts(state, watched.attempts)
        watched.noted = watched.attempts
        if watched.attempts >= state.max_attempts or watched.idle >= MOST_IDLE:
            watched.move("gave up")
            self._subscriptions.stall(state, *self._why(watched, state))
            return
        self._back_off(watched, state)
        watched.move("no progress")

    def _back_off(self, watched: Watched, state: ConsumerState) -> None:
        """Set when the next attempt is made, and report that."""
        base, most = state.settings.backoff, state.settings.backoff_most
        base = base if self._backoff_base is None else self._backoff_base
        wait = backoff(watched.attempts, base, most)
        watched.wake_at = watched.backs_off_until = clock.monotonic() + wait / 1000
        event = self._subscriptions.first_waiting(state)
        said = watched.late or (None if watched.code else f"it acked nothing of event {event}")
        most = state.max_attempts
        if watched.idle:
            most = min(most, watched.attempts - watched.idle + MOST_IDLE)
        how = Outcome(
            watched.consumer, event, watched.attempts, most, "retry", wait,
            code=watched.code, error=said,
        )  # fmt: skip
        report(self._journal, [how])


class Waker:
    """Wakes a poll when a child ends or another signal comes; one per process."""

    def __init__(self, poll: select.poll) -> None:
        """Begin."""
        self._in, self._out = _pipe()
        processes.signals.signal(processes.signals.SIGCHLD, lambda *_: None)
        processes.signals.set_wakeup_fd(self._out, warn_on_full_buffer=False)
        poll.register(self._in, select.POLLIN)

    def drain(self) -> bool:
        """Forget the signals that have come; return whether there were any."""
        return _drain(self._in)

    def close(self) -> None:
        """End."""
        processes.signals.set_wakeup_fd(-1)
        os.close(self._in)
        os.close(self._out)


def milliseconds_to(at: float) -> int:
    """Return the ms until a time of `clock.monotonic`, for a poll."""
    return max(0, int((at - clock.monotonic()) * 1000) + 1)


def _in_a_row(times: int) -> str:
    return f"{times:,} times in a row " * (times > 1)


def _pipe() -> tuple[int, int]:
    if hasattr(os, "pipe2"):
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def _drain(fd: int) -> bool:
    found = False
    try:
        while os.read(fd, 4096):
            found = True
    except BlockingIOError:
        pass
    return found
