"""The status of a thread (`info`), and the faults and warnings of its log (`check`)."""

from __future__ import annotations

import os
from datetime import datetime

from eventq.errors import FilterError, StoreError
from eventq.log.notifier import quote
from eventq.log.outcomes import in_words
from eventq.record import Record
from eventq.records.consumer import ConsumerInfo
from eventq.records.info import ThreadInfo
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.log.consumers import Subscriptions
    from eventq.log.mirror import Mirror
    from eventq.records.consumer import ConsumerState
    from eventq.storage.base import Database, Leases
    from eventq.storage.layout import Layout

_UNSERVED_SECONDS = 15.0  # after which an event that nobody works on is worth a warning
_AT_ONCE = " (at once after 'eventq resume')"


class Wait(Record):
    """What has to happen next for a consumer, and the command for it, or None.

    `is_unserved` says that events wait, and nobody is there who would handle them.
    """

    what: str
    advice: str | None = None
    is_unserved: bool = False


def info(db: Database, layout: Layout, subscriptions: Subscriptions) -> ThreadInfo:
    """Return the counts, sizes and consumers of a thread."""
    sizes, leases = db.stats(), db.leases()
    return ThreadInfo(
        path=layout.thread,
        event_count=db.events.bounds().stored,
        subscriptions=tuple(
            _consumer(db, state, layout, leases, subscriptions) for state in subscriptions.states()
        ),
        last_id=db.events.last(),
        db_bytes=sizes.database,
        wal_bytes=sizes.wal,
        mirror_bytes=_size(layout.mirror),
    )


def _consumer(
    db: Database,
    state: ConsumerState,
    layout: Layout,
    leases: Leases,
    subscriptions: Subscriptions,
) -> ConsumerInfo:
    kind, command = state.settings.kind, state.settings.command
    queue, log = subscriptions.queue(state.consumer), layout.handler_log(state.consumer)
    waiting, unexamined = subscriptions.first_waiting(state), subscriptions.unexamined(state)
    settings, wait = state.settings, _wait(state, waiting, layout, leases, subscriptions)
    begun = 0 if kind == "loop" else queue.unfinished  # a handler that pops sees all of them
    return ConsumerInfo(
        consumer_id=state.consumer,
        handler_cmd=state.handler if kind == "loop" else command,
        filter=state.filter,
        last_acked_id=state.acked,
        updated_at=state.updated_at,
        pending=None if unexamined is None else begun + unexamined,
        running=leases.is_held(state.consumer),
        attempts=state.attempts,
        stalled=state.stalled,
        max_attempts=state.max_attempts,
        timeout=state.timeout,
        kind=kind,
        paused=state.paused,
        waiting_id=waiting,
        lag=None if waiting is None else _age(db, waiting),
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
        worked=leases.is_worked(state.consumer),
        label=settings.label,
    )


def _wait(
    state: ConsumerState,
    waiting: int | None,
    layout: Layout,
    leases: Leases,
    subscriptions: Subscriptions,
) -> Wait:
    """Return what has to happen next for a consumer whose first unfinished event is given."""
    thread, name = quote(layout.thread), quote(state.consumer)
    place = f"--thread {thread} --consumer {name}"
    if state.stalled is not None or state.paused:
        how = "paused" if state.stalled is None else "stalled"
        return Wait(f"'eventq resume': it is {how}", f"eventq resume {place}")
    if waiting is None and subscriptions.unexamined(state) is None:
        return Wait("another filter: this one is refused (see 'eventq check')")
    if waiting is None:
        return Wait("an event")
    queue, kind = subscriptions.queue(state.consumer), state.settings.kind
    if queue.halted and kind != "loop":
        what = f"'eventq resume': event {queue.halted_at} has stopped its group"
        return Wait(what, f"eventq resume {place}")
    if queue.leased and kind != "loop":
        return Wait(f"the end of {queue.leased} {'claim' if queue.leased == 1 else 'claims'}")
    works = leases.is_held(state.consumer) or leases.is_worked(state.consumer)
    again = 0 if kind == "loop" or queue.due_at is None else queue.due_at / 1000 - clock.now()
    rests = state.settings.in_order or not subscriptions.unexamined(state)
    if again > 0 and rests and (works or kind == "pull"):
        return Wait(f"another attempt in {in_words(again)}{_AT_ONCE}")
    if works:
        if state.attempts and kind == "loop":
            return Wait(f"another attempt{_AT_ONCE}")
        return Wait("its worker" if kind == "pull" else "its handler")
    if kind == "pull":
        return Wait("a program that claims or pops its events; none is known", is_unserved=True)
    return Wait("a handler, and nobody runs it", subscriptions.command(state), True)


def _age(db: Database, event: int) -> float | None:
    """Return for how many seconds an event has been stored, or None when it is deleted."""
    found = db.events.page("", event - 1, event, 1).events
    if not found:
        return None
    try:
        then = datetime.fromisoformat(found[0].created_at).timestamp()
    except ValueError:
        return None
    return max(0.0, round(clock.now() - then, 3))


def warnings(db: Database, layout: Layout, subscriptions: Subscriptions) -> Iterator[str]:
    """Yield a sentence for each consumer that is stalled or paused, or that nobody serves."""
    for consumer, why in (*subscriptions.halted(), *subscriptions.stopped_groups()):
        yield f"consumer '{consumer}' {why}"
    leases = db.leases()
    for state in subscriptions.states():
        first = subscriptions.first_waiting(state)
        wait = _wait(state, first, layout, leases, subscriptions)
        age = _age(db, first) if first is not None and wait.is_unserved else None
        if age is not None and age >= _UNSERVED_SECONDS:
            what = f"has waited {age:.0f}s for consumer '{state.consumer}', and nobody works for it"
            step = "start its program" if wait.advice is None else f"run: {wait.advice}"
            yield f"event {first} {what}; {step}"


def _size(path: str) -> int:
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
