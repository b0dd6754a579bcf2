"""The status of a thread (`info`) and the faults of its log (`check`)."""

from __future__ import annotations

import os
from datetime import datetime

from eventq import system
from eventq.errors import FilterError, StoreError
from eventq.records import ConsumerInfo, ThreadInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.event import ConsumerState
    from eventq.log.subscriptions import Subscriptions
    from eventq.storage.base import Database, Leases
    from eventq.workspace.layout import Layout
    from eventq.workspace.mirror import Mirror


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
    )


def _age(db: Database, event: int) -> float | None:
    """Return for how many seconds an event has been stored, or None when it is deleted."""
    found = db.events.page("", event - 1, event, 1).events
    if not found:
        return None
    try:
        then = datetime.fromisoformat(found[0].created_at).timestamp()
    except ValueError:
        return None
    return max(0.0, round(system.now() - then, 3))


def warnings(subscriptions: Subscriptions) -> Iterator[str]:
    """Yield a sentence for each consumer that is stalled or paused."""
    for consumer, why in subscriptions.halted():
        yield f"consumer '{consumer}' {why}"


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
