"""Handlers that are run for each event: claimed, started, watched, and settled by their exit code.

Exit 0 finishes the event, 75 asks for another attempt that does not count, 65 makes a dead letter
of it (the last two as in sysexits.h: EX_TEMPFAIL and EX_DATAERR). Everything else is a failed
attempt. The claim is extended for as long as the handler runs.
"""

from __future__ import annotations

import os

from eventq.errors import EventqError
from eventq.log.claims import without_orphans
from eventq.running.handlers import Job
from eventq.store.queue_rows import Verdict, Worker
from eventq.store.rules import ending
from eventq.system import clock
from eventq.system.processes import LATE, STOPPED, Group, end_orphan, identity, is_lost, late, me

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.log.consumers import Subscriptions
    from eventq.log.journal import Journal
    from eventq.records.consumer import ConsumerState
    from eventq.running.handlers import Handlers, Output
    from eventq.store.protocol import Claims
    from eventq.store.queue_rows import ClaimRow, Taken

DEAD, AGAIN = 65, 75
_SOON = 0.01  # seconds between two looks at handlers of lost workers that were killed
_LOST = "its worker was lost"


class Run:
    """One handler at work on the events of one claim."""

    def __init__(self, taken: Taken, state: ConsumerState, begun: float) -> None:
        """Take what was claimed after a time of `clock.monotonic`; the process is started next."""
        self.taken = taken
        self.events = [claimed.event for claimed in taken.claims]
        self.revived = taken.claims[0].revived
        self.output: Output | None = None  # what it has written, once it is started
        self.span = state.settings.lease
        self.timeout = state.timeout
        self.renew(begun)
        self.group = Group(0, None)  # of the process, once there is one
        self.lost = False  # the lease has ended: the result does not count

    def renew(self, begun: float) -> None:
        """Note that its claim was made or extended, after a time of `clock.monotonic`."""
        self.renew_at, self.ends_at = begun + self.span / 3000, begun + self.span / 1000

    def verdict(self, consumer: str, what: str, span: int | None = None) -> Verdict:
        """Return a verdict on all its events."""
        ids = tuple(event.id for event in self.events)
        return Verdict(consumer, self.taken.token, ids, self.revived, what, span)

    def returned(self, consumer: str) -> Verdict:
        """Return a verdict that gives its events back: the attempt does not count."""
        return self.verdict(consumer, "retry", 0)._replace(counts=False)


class Pool:
    """The runs of one consumer: one at a time in order, or as many as its settings say."""

    def __init__(
        self,
        consumer: str,
        subscriptions: Subscriptions,
        handlers: Handlers,
        journal: Journal,
        is_ours: Callable[[ConsumerState], bool] = lambda _: True,
    ) -> None:
        """Start with no handler running."""
        self.consumer = consumer
        self.is_each = True  # whether the consumer is still run for each event, and by us
        self.fence = 0  # of the supervisor, by now
        self.deadline: float | None = None  # of its lease, by now
        self._is_ours = is_ours
        self.has_room = False  # whether an event that comes now could be handled at once
        self.runs: list[Run] = []
        self._subscriptions = subscriptions
        self._handlers = handlers
        self._journal = journal
        self._thread = subscriptions.database.identity
        self._single = 0  # the last event of a batch that failed: up to it, events run singly
        self._lost: list[ClaimRow] | None = None  # what lost workers have left, once we have looked
        self._ends_at: float | None = None  # when the runs are ended, as we stop
        self._worker = Worker(f"{os.uname().nodename}:{os.getpid()}", me())

    @property
    def _claims(self) -> Claims:
        return self._subscriptions.database.claims

    def advance(self) -> float | None:
        """Do what can be done without waiting; return when to look again, or None for idle."""
        for run in [*self.runs]:
            self._follow(run)
        state = self._subscriptions.state(self.consumer)
        self.is_each = state is not None and state.settings.kind == "each" and self._is_ours(state)
        if state is not None and self.is_each and self._ends_at is None:
            self._end_lost()
            slots = max(1, state.settings.concurrency)
            while len(self.runs) < slots and self._begin(state):
                pass
            self.has_room = len(self.runs) < slots
        if self.runs:
            return min(self._look_at(run) for run in self.runs)
        if self._ends_at is not None:
            return None
        if self._lost:
            return clock.monotonic() + _SOON
        if state is None or not self.is_each or not state.may_run:
            return None
        wait = self._subscriptions.next_due(self.consumer)
        return None if wait is None else clock.monotonic() + wait / 1000

    def _look_at(self, run: Run) -> float:
        """Return when to look at a run even if it does not end."""
        look_at = run.group.look_at(self._ends_at)
        return run.renew_at if look_at is None else min(look_at, run.renew_at)

    # --- starting ---------------------------------------------------------------------------------

    def _begin(self, state: ConsumerState) -> bool:
        """Claim events and start a handler for them; return False when there are none."""
        if not self._subscriptions.ready(state):
            return False
        settings = state.settings
        single = settings.batch == 1 or state.acked < self._single
        limit = 1 if single else settings.batch
        token, begun = os.urandom(16), clock.monotonic()
        taken = self._claims.take(self.consumer, limit, settings.lease, self._worker, token)
        if not taken.claims:
            return False
        if taken.claims[0].revived:
            taken = self._only_first(taken)
        taken = without_orphans(self._subscriptions.database, self._journal, self.consumer, taken)
        if not taken.claims:
            return False
        run = Run(taken, state, begun)
        self.runs.append(run)  # also if it cannot be started: its claim is given back later then
        self._start(run, state)
        return True

    def _only_first(self, taken: Taken) -> Taken:
        """Put back all but the first event: dead letters run singly."""
        rest = [claimed.event.id for claimed in taken.claims[1:]]
        if rest:
            back = Verdict(self.consumer, taken.token, rest, True, "retry", 0, counts=False)
            self._claims.settle([back])
        return taken._replace(claims=taken.claims[:1])

    def _start(self, run: Run, state: ConsumerState) -> None:
        command = state.settings.command or ":"
        first = run.taken.claims[0]
        end = None if self.deadline is None else min(self.deadline, run.ends_at)
        job = Job(
            self.consumer, command, state.settings.directory, state.acked, run.events,
            first.attempt, self.fence, end,
        )  # fmt: skip

        def note(pid: int) -> None:
            run.group = Group(pid, run.timeout)
            self._claims.note(
                self.consumer,
                run.taken.token,
                [event.id for event in run.events],
                f"{self._worker.process} {identity(pid)} {self._thread}",
            )

        run.output = self._handlers.start(job, note)
        self._journal.info(
            f"dispatch: consumer={self.consumer} spawned {_named(run)} attempt={first.attempt}"
            f" pid={run.group.pid}"
        )

    # --- a run ------------------------------------------------------------------------------------

    def _follow(self, run: Run) -> None:
        """Settle a run that is over; extend its claim, or end it when its time is up."""
        if run.output is None:  # it was not started
            self._claims.settle([run.returned(self.consumer)])
            self.runs.remove(run)
            return
        group = run.group
        if group.reap():
            seconds = clock.monotonic() - group.since
            self._handlers.ended(self.consumer, _named(run), group.code or 0, seconds)
        if group.exited_well or group.is_gone():
            self._settle(run, run.output)
            self.runs.remove(run)
            run.output.close()
            return
        if why := group.hurry(self._ends_at):
            # Of one that took too long, the outcome is reported once it has ended.
            log = self._journal.info if group.why == LATE else self._journal.warn
            log(f"dispatch: consumer={self.consumer} {_named(run)} {why}")
        if clock.monotonic() >= run.renew_at and not run.lost:
            self._extend(run)

    def _say(self, run: Run, what: str) -> None:
        self._journal.warn(f"dispatch: consumer={self.consumer} {_named(run)} {what}")

    def _extend(self, run: Run) -> None:
        """Extend the claim; kill the handler if it is lost, as somebody else may have the event."""
        run.renew_at = (begun := clock.monotonic()) + run.span / 3000
        lost = self._claims.settle([run.verdict(self.consumer, "extend", run.span)]).lost
        if lost:
            self._say(run, "was acked, replayed or given to another worker: its handler is killed")
            run.lost = True
            run.group.kill()
        else:
            run.renew(begun)

    def abandon(self) -> None:
        """Kill all that runs, at once, and give its events back: the consumer is not ours."""
        for run in self.runs:
            run.group.end()
            if run.output is not None:
                run.output.close()
        for run in self.runs:
            try:
                self._claims.settle([run.returned(self.consumer)])
            except EventqError as error:
                self._say(run, f"was not given back ({error}): its claim ends by itself")
        self.runs.clear()

    def _settle(self, run: Run, output: Output) -> None:
        """Settle what a handler was started for, as its exit code says."""
        if not run.lost and self._claims.settle([self._judge(run, output)]).lost:
            self._say(run, "ended after its lease: the result does not count")

    def _judge(self, run: Run, output: Output) -> Verdict:
        """Return the verdict on a run that is over."""
        group = run.group
        if group.why == STOPPED:
            return run.returned(self.consumer)
        if group.exited_well:
            return run.verdict(self.consumer, "done")
        if len(run.events) > 1:  # which of them it was, nobody knows
            self._single = run.events[-1].id
            how = late(group.timeout or 0) if group.why == LATE else ending(group.code or 0)
            self._say(run, f"{how}: its events run singly")
            return run.returned(self.consumer)
        error, code = output.tail(), group.code
        if group.why == LATE:
            error = f"{error}\n{late(group.timeout or 0)}".lstrip()
            code = None  # we have ended it: its own says nothing
        what = "dead" if code == DEAD else "retry"
        verdict = run.verdict(self.consumer, what)
        return verdict._replace(code=code, error=error, counts=code != AGAIN)

    # --- what others left -------------------------------------------------------------------------

    def _end_lost(self) -> None:
        """End the claims of workers of this machine that are gone, after the handlers they left."""
        if self._lost is None:
            self._lost = self._find_lost()
        self._lost = [row for row in self._lost if not self._end(row)]

    def _find_lost(self) -> list[ClaimRow]:
        found: list[ClaimRow] = []
        after = ("", 0)
        while rows := self._claims.out(self.consumer, after, 1_000):
            after = rows[-1].consumer, rows[-1].event
            found += (row for row in rows if row.process is not None and is_lost(row.process))
        return found

    def _end(self, row: ClaimRow) -> bool:
        """Kill the handler that has an event, and settle that once nothing of it runs."""
        if not end_orphan(row.process or "", self._thread, 0):
            return False
        end = Verdict(self.consumer, row.token, (row.event,), row.revived, "retry", 0)
        self._claims.settle([end._replace(error=_LOST)])
        return True

    def stop(self, ends_at: float) -> None:
        """Start no more handlers. Those that run at `ends_at` are ended, and did not count."""
        self._ends_at = ends_at


def _named(run: Run) -> str:
    first, last = run.events[0].id, run.events[-1].id
    return f"event={first}" if first == last else f"events={first}-{last}"
