"""The status of consumers, and the faults and warnings of the log (`check`)."""

from __future__ import annotations

import os
from datetime import datetime
from time import thread_time

from eventq.errors import FilterError, StoreError
from eventq.log.notifier import quote
from eventq.log.outcomes import in_words
from eventq.record import Record
from eventq.records.consumer import ConsumerStatus
from eventq.store.queue_rows import QueueStatus
from eventq.system import clock, disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eventq.log.consumers import Subscriptions
    from eventq.log.mirror import Mirror
    from eventq.records.claim import WorkerStatus
    from eventq.records.consumer import ConsumerState
    from eventq.records.event import Tally
    from eventq.store.paths import Layout
    from eventq.store.protocol import Database, Log

_UNSERVED_SECONDS = 15.0  # after which an event that nobody works on is worth a warning
_COUNTED = 1_000  # events of a consumer that are counted, where that takes more than one look
COUNTING_SECONDS = 0.001  # of processor time, for the counts of all consumers together
_AT_ONCE = " (at once after 'eventq resume')"


class Wait(Record):
    """What has to happen next for a consumer, and the command for it, or None.

    `is_unserved` says that events wait, and nobody is there who would handle them.
    """

    what: str
    advice: str | None = None
    is_unserved: bool = False


class _Consumer(Record):
    """What is known of a consumer, before it is said: its events are the `tally`.

    `tally` is None when its filter is refused, and `first` the first event that is not finished.
    """

    state: ConsumerState
    queue: QueueStatus
    tally: Tally | None
    first: int | None
    running: bool
    worked: bool


def consumers(
    db: Database, moment: Log, layout: Layout, subscriptions: Subscriptions
) -> tuple[ConsumerStatus, ...]:
    """Return the status of each consumer as of a moment, in a fixed number of statements.

    Only to count what a filter matches takes one more for each, and not more than a few ms for all.
    """
    found = _look(db, moment, _COUNTED + 1, COUNTING_SECONDS)
    workers: dict[str, list[WorkerStatus]] = {}
    for name, worker in moment.claims.workers() if db.has_queues() else ():
        workers.setdefault(name, []).append(worker)
    times = moment.events.times([one.first for one in found if one.first is not None])
    return tuple(
        _status(one, layout, subscriptions, times, workers.get(one.state.consumer, ()))
        for one in found
    )


def _look(db: Database, moment: Log, most: int, seconds: float | None) -> list[_Consumer]:
    """Look at all consumers; without a limit of time, the first events that wait are certain."""
    leases, states, last = db.leases(), moment.consumers.all(), moment.events.last()
    queues = moment.claims.statuses() if db.has_queues() else {}
    found, end = [], None if seconds is None else thread_time() + seconds
    for number, state in enumerate(states):
        name, is_loop = state.consumer, state.settings.kind == "loop"
        # What one consumer does not need of its share is for those after it.
        share = None if end is None else max(0.0, end - thread_time()) / (len(states) - number)
        queue, start = queues.get(name, QueueStatus()), max(state.scanned, state.frontier)
        try:
            tally = db.events.tally(state.filter or "", start, last, most, share)
        except FilterError:
            tally = None
        first = None if is_loop or tally is None else queue.first
        if first is None and tally is not None:
            first = tally.first
        held, worked = leases.is_held(name), leases.is_worked(name)
        found.append(_Consumer(state, queue, tally, first, held, worked))
    return found


def _status(
    of: _Consumer,
    layout: Layout,
    subscriptions: Subscriptions,
    times: Mapping[int, str],
    workers: Sequence[WorkerStatus],
) -> ConsumerStatus:
    state, queue, tally = of.state, of.queue, of.tally
    settings, kind, first = state.settings, state.settings.kind, of.first
    log, wait = layout.handler_log(state.consumer), _wait(of, layout, subscriptions)
    begun = 0 if kind == "loop" else queue.unfinished  # a handler that pops sees all of them
    is_least = tally is not None and (
        not tally.whole or (bool(state.filter) and tally.count > _COUNTED)
    )
    unexamined = None if tally is None else min(tally.count, _COUNTED) if is_least else tally.count
    return ConsumerStatus(
        consumer_id=state.consumer,
        handler_cmd=state.handler if kind == "loop" else settings.command,
        filter=state.filter,
        last_acked_id=state.acked,
        updated_at=state.updated_at,
        pending=None if unexamined is None else begun + unexamined,
        running=of.running,
        attempts=state.attempts,
        stalled=state.stalled,
        max_attempts=state.max_attempts,
        timeout=state.timeout,
        kind=kind,
        paused=state.paused,
        waiting_id=first,
        lag=None if first is None else _age(times.get(first)),
        exit_code=queue.code,
        unfinished=queue.unfinished,
        leased=queue.leased,
        parked=queue.parked,
        unexamined=unexamined,
        dead=queue.dead,
        done=queue.done,
        failed=queue.failed,
        buried=queue.buried,
        log=log if os.path.exists(log) else None,
        batch=settings.batch,
        concurrency=settings.concurrency,
        ordered_by=settings.ordered_by,
        on_failure=settings.failure,
        backoff=(settings.backoff / 1000, settings.backoff_most / 1000),
        lease=settings.lease / 1000,
        waits_for=wait.what,
        advice=wait.advice,
        halted=0 if kind == "loop" else queue.halted,
        worked=of.worked,
        label=settings.label,
        pending_is_least=is_least,
        workers=tuple(workers),
    )


def _wait(of: _Consumer, layout: Layout, subscriptions: Subscriptions) -> Wait:
    """Return what has to happen next for a consumer."""
    state, queue, tally, kind = of.state, of.queue, of.tally, of.state.settings.kind
    thread, name = quote(layout.thread), quote(state.consumer)
    place = f"--thread {thread} --consumer {name}"
    if state.stalled is not None or state.paused:
        how = "paused" if state.stalled is None else "stalled"
        return Wait(f"'eventq resume': it is {how}", f"eventq resume {place}")
    if tally is None:
        return Wait("another filter: this one is refused (see 'eventq check')")
    works = of.running or of.worked
    if of.first is None and tally.whole:
        return Wait("an event")
    if of.first is None and not works:
        return Wait("an event, if its filter matches none of those that are stored")
    if queue.halted and kind != "loop":
        what = f"'eventq resume': event {queue.halted_at} has stopped its group"
        return Wait(what, f"eventq resume {place}")
    if queue.leased and (works or kind == "pull"):  # those of a worker that is gone are nobody's
        return Wait(f"the end of {queue.leased} {'claim' if queue.leased == 1 else 'claims'}")
    again = 0 if kind == "loop" or queue.due_at is None else queue.due_at / 1000 - clock.now()
    rests = state.settings.in_order or (tally.whole and not tally.count)
    if again > 0 and rests and (works or kind == "pull"):
        return Wait(f"another attempt in {in_words(again)}{_AT_ONCE}")
    if works:
        if state.attempts and kind == "loop":
            return Wait(f"another attempt{_AT_ONCE}")
        return Wait("its worker" if kind == "pull" else "its handler")
    if kind == "pull":
        return Wait("a program that claims or pops its events; none is known", is_unserved=True)
    return Wait("a handler, and nobody runs it", subscriptions.command(state), True)


def _age(at: str | None) -> float | None:
    """Return the seconds since the time of an event, or None when it is deleted."""
    try:
        then = None if at is None else datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None
    return None if then is None else max(0.0, round(clock.now() - then, 3))


def warnings(db: Database, layout: Layout, subscriptions: Subscriptions) -> Iterator[str]:
    """Yield a sentence for each consumer that is stalled or paused, or that nobody serves."""
    for consumer, why in (*subscriptions.halted(), *subscriptions.stopped_groups()):
        yield f"consumer '{consumer}' {why}"
    names = [state.consumer for state in subscriptions.states()]
    is_foreign = disk.is_foreign(layout.mirror, layout.database)
    for path in (*[layout.mirror] * is_foreign, *layout.foreign(*names)):
        yield disk.foreign(path, layout.database)
    found = _look(db, db, 1, None)
    times = db.events.times([one.first for one in found if one.first is not None])
    for of in found:
        wait = _wait(of, layout, subscriptions)
        age = _age(times.get(of.first or 0)) if wait.is_unserved else None
        if age is not None and age >= _UNSERVED_SECONDS:
            name = of.state.consumer
            what = f"has waited {age:.0f}s for consumer '{name}', and nobody works for it"
            step = "start its program" if wait.advice is None else f"run: {wait.advice}"
            yield f"event {of.first} {what}; {step}"


def size_of(path: str) -> int:
    """Return the bytes of a file, 0 for none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def check(
    db: Database, layout: Layout, mirror: Mirror | None, subscriptions: Subscriptions
) -> Iterator[str]:
    """Yield one sentence per broken invariant; nothing for a sound thread."""
    of_mirror = mirror.faults() if mirror is not None else ()
    for faults in (db.faults(), of_mirror, _filter_faults(db, subscriptions)):
        try:
            yield from faults
        except StoreError as error:  # too damaged to be checked
            yield error.what
    for path in (layout.run, layout.logs):
        if os.path.exists(path) and not os.path.isdir(path):
            yield f"'{path}' is not a directory"


def _filter_faults(db: Database, subscriptions: Subscriptions) -> Iterator[str]:
    for state in subscriptions.states():
        try:
            db.events.accept(state.filter)
        except FilterError as error:
            yield f"the filter of consumer '{state.consumer}' is refused: {error.what}"
