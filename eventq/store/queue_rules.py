"""One change of a consumer's queue: what a claim or a settle does in its transaction.

Events are claimed in the order of their ids. The frontier of a queue is the highest id that was
examined. At or below it, only events that are not finished have a row: so a claim costs the same
at any backlog, and however long the first event takes.

The rules are here; the statements are those of each engine. TRANSITIONS has the states of an event.
"""

from __future__ import annotations

from eventq.record import Record
from eventq.store import HELD, LEASED, SLACK_MS, STALLED, WAITING, rules
from eventq.store.queue_rows import Claimed, Outcome, Verdict
from eventq.store.rules import backoff, event_of_death
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from eventq.records.event import Event
    from eventq.store.protocol import Events
    from eventq.store.queue_rows import Worker

    class QueueStatements(Protocol):
        """The module of an engine that has the statements of changes."""

        ADD: str
        ADD_ONE: str
        BEGIN: str
        BURY: str
        COUNT: str
        DONE: str
        DROP: str
        DUE: str
        ENDED: str
        END_ALL: str
        EXTEND: str
        FIND: str
        FINISH: str
        FIRST: str
        FORGET: str
        FREE: str
        FREE_ALL: str
        HELD_GROUPS: str
        IS_BEHIND: str
        LEASE: str
        NEXT_END: str
        PUT: str
        PUT_BACK: str
        PUT_QUEUE: str
        REGROUP: str
        RESUME: str
        REVIVE: str
        RISE: str
        ROWS: str
        SET_ACKED: str
        SIZE: str
        STORE: str
        TRIM_COUNTS: str
        WAKE: str

    class QueueDatabase(Protocol):
        """What a change of a queue needs of its engine, inside a transaction."""

        @property
        def events(self) -> Events:
            """The log."""

        @property
        def queue_statements(self) -> QueueStatements:
            """The statements, with numbered parameters."""

        def run(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
            """Run a statement and return its rows."""

        def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> object:
            """Run a statement for each of some rows."""

        def on_commit(self, effect: Callable[[], None]) -> None:
            """Run `effect` after the transaction commits."""

        def report(self, outcomes: Sequence[Outcome]) -> None:
            """Report attempts that did not finish their events."""

        def milliseconds(self) -> int:
            """Return the time of the engine."""

        def stamp(self) -> str:
            """Return that time as text."""

        def groups(self, events: Sequence[Event], by: str) -> list[str | None]:
            """Return what events are ordered by; None is no group."""

    # Its end, its length, now, its token, its worker, and that one's process.
    Lease = tuple[int, int, int, bytes, str, str | None]

# What becomes of an event of one consumer. The states in the middle are those of its row, numbered
# as LEASED, WAITING, HELD and STALLED. Without a row an event at or below the frontier is finished,
# one above it unexamined, and a dead one is in the dead letters.
#
# Who moves it: a claim leases. Only a worker whose token has a live lease settles: done, retry and
# the rest. A lease that has ended is a retry, which whoever claims next writes down. Anybody may
# ack or replay: that writes the progress, and the next change of the queue applies it. `subscribe`
# with another filter or order refilters; `resume` and `dead` are for people.
#
# What always holds: with an order, at most the first event of a group is leased, waiting or
# stalled, and all others are held. Only a changed order, which leaves live leases alone, makes an
# exception, until a retry or the end of the lease. A stalled event stops its group, one without a
# group the queue. A revived event has no group, and no progress waits for it.
TRANSITIONS = {
    "unexamined": {
        "claim": "leased",
        "claim behind its group": "held",
        "no match": "finished",
        "ack": "finished",
    },
    "leased": {
        "done": "finished",
        "ack": "finished",
        "retry": "waiting",
        "unsubscribe": "waiting",
        "retry behind its group": "held",
        "last attempt, on failure stall": "stalled",
        "last attempt, on failure dead": "dead",
        "replay": "unexamined",
        "replay of later events": "waiting",
    },
    "waiting": {
        "claim": "leased",
        "refilter behind its group": "held",
        "no match": "finished",
        "event deleted": "finished",
        "ack": "finished",
        "replay": "unexamined",
    },
    "held": {
        "first of its group": "waiting",
        "no match": "finished",
        "ack": "finished",
        "replay": "unexamined",
    },
    "stalled": {
        "resume": "waiting",
        "resume behind its group": "held",
        "no match": "finished",
        "ack": "finished",
        "replay": "unexamined",
    },
    "dead": {"dead retry": "waiting", "dead drop": "finished"},
    "finished": {"replay": "unexamined"},
}
ROW_STATES = {LEASED: "leased", WAITING: "waiting", HELD: "held", STALLED: "stalled"}
NEVER = (1 << 63) - 1
_CHUNK = 500  # events that are read at once
_DAY = 24 * 60  # minutes for which counts and nonces are kept


class Queue(Record):
    """A consumer as its claims see it; `number` is false before the first one.

    It is what the engine's statements know the queue by.
    """

    number: Any
    frontier: int
    progress: int
    acked: int
    replay_from: int | None
    unfinished: int
    expires_at: int | None
    seen_at: int
    stalled_at: int | None
    counted_at: int
    last: int
    subscribed: int
    filter: str | None
    paused: int
    ordered_by: str | None
    max_attempts: int
    on_failure: str
    emit_dead: int
    backoff: int
    backoff_most: int
    due_at: int | None  # of the event that is tried again next: in order, the first, or a dead one
    lease: int  # ms
    in_order: int  # no event is claimed while one before it is unfinished

    @property
    def is_behind(self) -> bool:
        """Whether there is an ack or a replay that no claim has applied yet."""
        return self.replay_from is not None or self.progress != self.acked

    def may_have(self, now: int) -> bool:
        """Return whether a claim may find anything to do."""
        if self.is_behind:
            return True
        if self.paused or self.stalled_at is not None:
            return False
        return (
            (self.frontier < self.last and self.unfinished < rules.MOST_UNFINISHED)
            or self.is_set_back(now)
            or (self.due_at is not None and self.due_at <= now)
            or (self.expires_at is not None and self.expires_at <= now)
        )

    def start(self) -> int:
        """Return the id after which a claim examines new events, acks and replays applied."""
        begin = self.frontier if self.replay_from is None else self.replay_from
        return max(begin, self.progress)

    def is_set_back(self, now: int) -> bool:
        """Return whether the clock has been set back since the last claim."""
        return now + SLACK_MS < self.seen_at


class Attempt(Record):
    """A leased event whose attempt ends; `uncounted` attempts were made beside those that count.

    `worker` had the lease, if that has ended by itself.
    """

    revived: int
    event: int
    number: int
    group: str | None
    uncounted: int
    worker: str | None = None


class Ahead(Record):
    """The events after an id that match a filter, as they were found before the lock was taken.

    Without a filter there are none: then a claim reads them inside the lock.
    """

    filter: str | None
    after: int
    events: list[Event]
    upto: int


class Change:
    """A change of one queue, inside a transaction that `store` completes."""

    def __init__(self, db: QueueDatabase, consumer: str, queue: Queue) -> None:
        """Take the queue as it is now, make it if there is none, and apply acks and replays."""
        self._db = db
        self._sql = db.queue_statements
        self._run = db.run
        self._consumer = consumer
        self.now = db.milliseconds()
        self.queue = queue
        self.number = queue.number or self._run(self._sql.BEGIN, (consumer, queue.progress))[0][0]
        self.frontier = queue.frontier
        self.acked = queue.acked
        self.unfinished = queue.unfinished
        self.expires_at = queue.expires_at
        self.stalled_at = queue.stalled_at
        self._seen_at = queue.seen_at
        self.freed = False  # whether an event can be claimed that could not be before
        self._done = self._failed = self._dead = 0
        self._groups: set[str] = set()  # whose first event is finished
        self._outcomes: list[Outcome] = []
        if queue.is_behind:
            self._follow_progress()

    def _follow_progress(self) -> None:
        """Apply an ack or a replay that somebody wrote into the progress."""
        queue, number = self.queue, self.number
        if queue.replay_from is not None:
            self._run(self._sql.END_ALL, (number,))
            self._run(self._sql.FORGET, (number, queue.replay_from))
            self.frontier = queue.replay_from
        self.frontier = max(self.frontier, queue.progress)
        self.acked = queue.progress
        self._run(self._sql.FINISH, (number, queue.progress))
        self._run(self._sql.FREE_ALL, (number,))
        self.unfinished, self.stalled_at = self._run(self._sql.SIZE, (number,))[0]
        self.freed = True
        self.expires_at = self._run(self._sql.NEXT_END, (number,))[0][0]

    # --- claiming ---------------------------------------------------------------------------------

    def end_leases(self) -> None:
        """Take back the events whose lease has ended; a clock that was set back ends leases too."""
        now, number = self.now, self.number
        is_back = self.queue.is_set_back(now)
        if not is_back and (self.expires_at is None or now < self.expires_at):
            return
        ended = Verdict(self._consumer, b"", (), False, "retry", 0, error=rules.LEASE_ENDED)
        for row in self._run(self._sql.ENDED, (number, now)):
            self._fail(Attempt(*row), ended)
        self._free_groups()
        if is_back:
            self._run(self._sql.WAKE, (number, now))
            self.freed = True
            self._seen_at = now + SLACK_MS  # leases that are left may be as late as that
        self.expires_at = self._run(self._sql.NEXT_END, (number,))[0][0]

    def claim(
        self, limit: int, span: int, worker: Worker, token: bytes, ahead: Ahead
    ) -> list[Claimed]:
        """Lease events that wait for another attempt, then new ones, to a worker for `span` ms.

        What was found `ahead` is not used when the filter was changed or a replay began meanwhile.
        Where events come in order, new ones come only when all before them are finished.
        """
        self.end_leases()
        if self.queue.paused or self.stalled_at is not None:
            return []
        lease = (self.now + span, span, self.now, token, *worker)
        found = self._claim_due(limit, lease)
        if ahead.filter == self.queue.filter and self._is_next(found):
            if ahead.filter is None:
                self._claim_new(limit, lease, found)
            elif ahead.after <= self.frontier:
                self._claim_ahead(limit, lease, found, ahead)
        if found:
            self.expires_at = min(self.expires_at or lease[0], lease[0])
        return found

    def _is_next(self, found: list[Claimed]) -> bool:
        """Return whether it is the turn of events that were not examined yet."""
        if not self.queue.in_order:
            return True
        return not found and not self._run(self._sql.FIRST, (self.number, self.now, 1))

    def _due(self, limit: int) -> list[tuple[int, int, str | None, str | None]]:
        """Return what can be tried again; in order, the first events, or one dead letter."""
        due_at = self.queue.due_at
        if not self.freed and (due_at is None or due_at > self.now):
            return []
        if not self.queue.in_order:
            return self._run(self._sql.DUE, (self.number, self.now, 0, limit))
        first: list[tuple[int, int, str | None, str | None]] = []
        for *row, is_due in self._run(self._sql.FIRST, (self.number, self.now, limit)):
            if not is_due:
                break
            first.append(tuple(row))
        return first or self._run(self._sql.DUE, (self.number, self.now, 1, 1))

    def may_examine(self, upto: int) -> bool:
        """Return whether a claim may examine new events up to an id."""
        return (
            self.frontier < upto
            and self.unfinished < rules.MOST_UNFINISHED
            and not self.queue.paused
            and self.stalled_at is None
            and self._is_next([])
        )

    def _claim_due(self, limit: int, lease: Lease) -> list[Claimed]:
        """Lease events that are tried again, or whose group has come to them."""
        found: list[Claimed] = []
        while len(found) < limit:
            due = self._due(limit - len(found))
            events, upto = self._db.events.among([event for event, *_ in due]) if due else ({}, 0)
            was = self.unfinished
            for event, revived, handler, group in due:
                if event in events:
                    ((attempt,),) = self._run(
                        self._sql.LEASE, (*lease, self.number, revived, event)
                    )
                    found.append(Claimed(events[event], attempt, bool(revived), handler))
                elif event <= upto:  # it was deleted: nobody can do anything about it any more
                    self._drop(event, revived, group)
            if self.unfinished == was:
                break
            self._free_groups()  # then the successor of a deleted event is due
        return found

    def _claim_new(self, limit: int, lease: Lease, found: list[Claimed]) -> None:
        """Lease the next events above the frontier, and move that."""
        last = self.queue.last
        while (
            len(found) < limit and self.frontier < last and self.unfinished < rules.MOST_UNFINISHED
        ):
            most = min(limit - len(found), rules.MOST_UNFINISHED - self.unfinished)
            page = self._db.events.page("", self.frontier, last, most)
            self.frontier = page.next
            found += self._add(page.events, lease)

    def _claim_ahead(self, limit: int, lease: Lease, found: list[Claimed], ahead: Ahead) -> None:
        """Lease events that match the filter, unless others have got them meanwhile."""
        most = min(limit - len(found), rules.MOST_UNFINISHED - self.unfinished)
        if most <= 0 or ahead.upto <= self.frontier:
            return
        fresh = [event for event in ahead.events if event.id > self.frontier]
        self.frontier = ahead.upto if len(fresh) <= most else fresh[most - 1].id
        found += self._add(fresh[:most], lease)

    def _add(self, fresh: list[Event], lease: Lease) -> list[Claimed]:
        """Add events that were not examined before; return those that are leased."""
        self.unfinished += len(fresh)
        if self.queue.ordered_by is None:
            self._run(self._sql.ADD, (self.number, as_list(event.id for event in fresh), *lease))
        else:
            fresh = self._add_grouped(fresh, lease)
        return [Claimed(event, 1, False, None) for event in fresh]

    def _add_grouped(self, fresh: list[Event], lease: Lease) -> list[Event]:
        """Add events of which some wait for an earlier one of their group; return the others."""
        groups = self._groups_of(fresh)
        wanted = writer()([group for group in groups if group is not None])
        held = {group for (group,) in self._run(self._sql.HELD_GROUPS, (self.number, wanted))}
        rows: list[tuple[object, ...]] = []
        leased: list[Event] = []
        for event, group in zip(fresh, groups, strict=True):
            if group is not None and group in held:
                rows.append((self.number, event.id, HELD, 0, 0, 0, 0, None, None, None, group))
                continue
            rows.append((self.number, event.id, LEASED, 1, *lease, group))
            leased.append(event)
            if group is not None:
                held.add(group)
        self._db.many(self._sql.ADD_ONE, rows)
        return leased

    def _groups_of(self, events: list[Event]) -> list[str | None]:
        """Return what events are ordered by; None is no group."""
        by = self.queue.ordered_by
        return [None] * len(events) if by is None else self._db.groups(events, by)

    # --- settling ---------------------------------------------------------------------------------

    def settle(self, verdict: Verdict) -> Iterator[tuple[bytes, int]]:
        """Apply the verdict of a worker; yield token and event of each lease that it has lost.

        A worker has lost an event when its lease has ended, or when the event was acked or
        replayed by others.
        """
        token, events, revived, what, span = verdict[1:6]
        mine = (self.number, self.now, revived, token)
        if what == "done":
            had = self._finish(*mine, as_list(events))
        elif what == "extend":
            ends = dict(self._run(self._sql.EXTEND, (*mine, as_list(events), span)))
            had = {*ends}
            if had:
                self.expires_at = min([self.expires_at or NEVER, *ends.values()])
        else:
            had = set()
            for event in events:
                rows = self._run(self._sql.FIND, (*mine, event))
                if rows:
                    self._judge(Attempt(verdict.revived, event, *rows[0]), verdict)
                    had.add(event)
        if len(had) < len(events):
            yield from ((token, event) for event in events if event not in had)

    def _finish(self, *mine: Any) -> set[int]:
        rows = self._run(self._sql.DONE, mine)
        self.unfinished -= len(rows)
        self._done += len(rows)
        # Also without an order now: what waits may be older than that.
        self._groups.update([group for _, group in rows if group is not None])
        self._free_next()
        return {event for event, _ in rows}

    def _judge(self, attempt: Attempt, verdict: Verdict) -> None:
        """Put an event back, or make a dead letter of it."""
        if verdict.what == "dead":
            self._failed += 1
            self._bury(attempt, verdict)
        elif verdict.counts:
            self._fail(attempt, verdict)
        else:
            self._put_back(attempt, verdict)

    def _fail(self, attempt: Attempt, verdict: Verdict) -> None:
        """End an attempt; after the last one the event is dead, or stops its queue or group."""
        self._failed += 1
        if attempt.number < self.queue.max_attempts:
            self._put_back(attempt, verdict)
        elif self.queue.on_failure == "dead" or attempt.revived:
            self._bury(attempt, verdict)
        else:
            self._note(attempt, verdict, "stall")
            self._store_end(STALLED, attempt, verdict, 0)
            if attempt.group is None and self.stalled_at is None:
                self.stalled_at = attempt.event

    def _put_back(self, attempt: Attempt, verdict: Verdict) -> None:
        """Let an event wait for another attempt: for a time, or behind its group.

        It is behind its group only where the order was changed while it was leased. Waits grow with
        each attempt, counted or not.
        """
        span = verdict.span
        if span is None:
            tries = attempt.number + attempt.uncounted
            span = backoff(tries, self.queue.backoff, self.queue.backoff_most)
        self._note(attempt, verdict, "retry", span)
        if not verdict.counts:
            more = attempt.uncounted + (verdict.span is None)
            attempt = attempt._replace(number=attempt.number - 1, uncounted=more)
        is_behind = attempt.group is not None and self._run(
            self._sql.IS_BEHIND, (self.number, attempt.group, attempt.event)
        )
        self._store_end(HELD if is_behind else WAITING, attempt, verdict, span)
        self.freed |= not is_behind

    def _store_end(self, state: int, attempt: Attempt, verdict: Verdict, span: int) -> None:
        revived, event, number, _, uncounted, _ = attempt
        row = (
            state, number, self.now + span, span, verdict.code, verdict.error, uncounted,
            self.number, revived, event,
        )  # fmt: skip
        self._run(self._sql.PUT_BACK, row)

    def _bury(self, attempt: Attempt, verdict: Verdict) -> None:
        """Store a dead letter in place of an unfinished event."""
        revived, event, number, group, _, _ = attempt
        self._note(attempt, verdict, "dead")
        self._run(
            self._sql.BURY, (self.number, event, number, verdict.code, verdict.error, self.now)
        )
        self._dead += 1
        self._drop(event, revived, group)
        if self.queue.emit_dead:
            self._announce(event, number, verdict.error)

    def _note(self, attempt: Attempt, verdict: Verdict, what: str, wait: int = 0) -> None:
        """Note an attempt to be reported, unless its event was only given back."""
        code, error, counts = verdict.code, verdict.error, verdict.counts
        rests = self.queue.paused or (self.stalled_at is not None and not attempt.revived)
        if counts or wait or code is not None or error is not None:
            most, wait_for = self.queue.max_attempts, None if rests else wait
            how = (what, wait_for, counts, code, error, attempt.worker)
            one = Outcome(self._consumer, attempt.event, attempt.number, most, *how)
            self._outcomes.append(one)

    def _drop(self, event: int, revived: int, group: str | None) -> None:
        self._run(self._sql.DROP, (self.number, revived, event))
        self.unfinished -= 1
        if group is not None:
            self._groups.add(group)
        self._free_next()

    def _free_next(self) -> None:
        """Note where events come in order that it is the turn of those behind a finished one."""
        if self.queue.in_order and self._run(self._sql.FIRST, (self.number, self.now, 1)):
            self.freed = True

    def _announce(self, number: int, attempts: int, error: str | None) -> None:
        """Report a death in the log, unless what died was such a report."""
        event = self._db.events.get(number)
        if event is not None and (event.type, event.subtype) != ("record", "dead-letter"):
            content = event_of_death(self._consumer, event, attempts, error)
            self._db.events.announce(event.source, content, "dead-letter", number)

    # --- others -----------------------------------------------------------------------------------

    def resume(self) -> None:
        """Let the events that stopped the queue, or that wait after a failure, be tried at once."""
        self._run(self._sql.RESUME, (self.number,))
        self.stalled_at = None
        self.freed = True

    def revive(self, events: Iterable[int]) -> set[int]:
        """Let dead letters be tried again; return those that were there, and have their event.

        They are outside the order: they have no group, and no progress waits for them.
        """
        listed = as_list(events)
        self.unfinished += len(self._run(self._sql.REVIVE, (self.number, listed, self.frontier)))
        self.freed = True
        return {event for (event,) in self._run(self._sql.RISE, (self.number, listed))}

    # --- another subscription ---------------------------------------------------------------------

    def refilter(self) -> None:
        """Finish what waits and does not match the filter; apply the order to the rest.

        Live leases stay, even where their event does not match, or is not the first of its group.
        """
        self.end_leases()
        text = self._db.events.accept(self.queue.filter)
        rows = self._run(self._sql.ROWS, (self.number,))
        first: dict[str, int] = {}  # the first event of each group
        while rows:
            done = self._refilter_some(rows[:_CHUNK], text, first)
            del rows[:done]
        self.unfinished, self.stalled_at = self._run(self._sql.SIZE, (self.number,))[0]
        self.freed = True

    def _refilter_some(self, rows: list[tuple[int, int]], text: str, first: dict[str, int]) -> int:
        """Apply filter and order to some events, by id and state; return to how many."""
        events, upto = self._db.events.among([event for event, _ in rows])
        found = [*events.values()]
        matching = self._db.events.matching(text, found)
        groups = dict(zip(events, self._groups_of(found), strict=True))
        ends: list[tuple[object, ...]] = []
        kept: list[tuple[object, ...]] = []
        for event, state in rows:
            if event > upto:
                break
            if state != LEASED and event not in matching:
                ends.append((self.number, 0, event))
                continue
            group = groups.get(event)
            is_first = group is None or first.setdefault(group, event) == event
            kept.append((_ordered(state, is_first=is_first), group, self.number, event))
        self._db.many(self._sql.DROP, ends)
        self._db.many(self._sql.REGROUP, kept)
        return len(ends) + len(kept)

    # --- the end ----------------------------------------------------------------------------------

    def store(self) -> None:
        """Store what the change came to: the queue, its progress, its counts, and its report."""
        self._free_groups()
        if outcomes := self._outcomes:
            self._outcomes = []
            self._db.on_commit(lambda: self._db.report(outcomes))
        minute = self.now // 60_000
        if self._done or self._failed or self._dead:
            counts = (self.number, minute, self._done, self._failed, self._dead)
            self._run(self._sql.COUNT, counts)
            if minute != self.queue.counted_at:
                self._run(self._sql.TRIM_COUNTS, (self.number, minute - _DAY))
        else:
            minute = self.queue.counted_at
        if not self.unfinished:
            self.expires_at = None
        seen_at = max(self._seen_at, self.now)  # a clock that is set back is for a claim to notice
        row = (
            self.number, self.frontier, self.unfinished, self.expires_at, seen_at,
            self.stalled_at, minute, self.acked,
        )  # fmt: skip
        ((acked,),) = self._run(self._sql.STORE, row)
        if acked != self.queue.progress:
            self._run(self._sql.SET_ACKED, (self._consumer, acked, self._db.stamp()))

    def _free_groups(self) -> None:
        """Let the next event of each group be claimed whose first one is finished."""
        if self._groups:
            freed = self._run(self._sql.FREE, (self.number, writer()(sorted(self._groups))))
            self.freed |= bool(freed)
            self._groups.clear()


def _ordered(state: int, *, is_first: bool) -> int:
    """Return the state of an event by its place in its group."""
    if is_first:
        return WAITING if state == HELD else state
    return HELD if state == WAITING else state


def as_list(numbers: Iterable[int]) -> str:
    """Return numbers as the JSON of a list."""
    return "[" + ",".join(map(str, numbers)) + "]"
