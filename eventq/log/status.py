"""The status of a thread (`info`) and the faults of its log (`check`)."""

from __future__ import annotations

import os

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
        path=layout.directory,
        event_count=db.events.bounds().stored,
        subscriptions=tuple(
            _consumer(state, leases, subscriptions) for state in subscriptions.states()
        ),
        last_id=db.events.last(),
        db_bytes=sizes.database,
        wal_bytes=sizes.wal,
        mirror_bytes=_size(layout.mirror),
    )


def _consumer(state: ConsumerState, leases: Leases, subscriptions: Subscriptions) -> ConsumerInfo:
    return ConsumerInfo(
        consumer_id=state.consumer,
        handler_cmd=state.handler,
        filter=state.filter,
        last_acked_id=state.acked,
        updated_at=state.updated_at,
        pending=subscriptions.pending(state),
        running=leases.is_held(state.consumer),
        attempts=state.attempts,
        stalled=state.stalled,
        max_attempts=state.max_attempts,
        timeout=state.timeout,
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def check(
    db: Database, layout: Layout, mirror: Mirror, subscriptions: Subscriptions
) -> Iterator[str]:
    """Yield one sentence per broken invariant; nothing for a sound thread."""
    for faults in (db.faults(), mirror.faults(), _filter_faults(db, subscriptions)):
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
