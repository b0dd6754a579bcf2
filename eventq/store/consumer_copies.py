"""Consumers as another thread takes them over: subscription, progress, queue and dead letters."""

from __future__ import annotations

from eventq.record import Record
from eventq.records.consumer import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.engine import Engine
    from eventq.store.queue_rows import DeadRow, Unfinished

_PAGE = 500  # dead letters that are read at once


class QueueCopy(Record):
    """What claims have left of a consumer's events; `begun` is false before the first claim."""

    begun: bool
    frontier: int
    finished: int
    replay_from: int | None
    unfinished: int
    seen_at: int
    stalled_at: int | None
    rows: tuple[Unfinished, ...]


class ConsumerCopy(Record):
    """A consumer without its leases and its supervisor; `subscribed` is false after that ended."""

    consumer: str
    subscribed: bool
    handler: str
    filter: str | None
    max_attempts: int
    timeout: float | None
    settings: Settings
    paused: bool
    attempts: int
    stalled: str | None
    acked: int
    updated_at: str | None
    queue: QueueCopy


def consumers(db: Engine) -> Iterator[ConsumerCopy]:
    """Yield every consumer: subscriptions in their order, then those that only have progress."""
    for one in db.consumers.all():
        queue = _queue_of(db, one.consumer)
        stalled = one.stalled if queue.stalled_at is None else None  # or the queue says why
        yield ConsumerCopy(
            one.consumer, True, one.handler, one.filter, one.max_attempts, one.timeout,
            one.settings, one.paused, one.attempts, stalled, one.acked, one.updated_at, queue,
        )  # fmt: skip
    for name, acked, updated_at in db.consumers.former():
        yield ConsumerCopy(
            name, False, ":", None, 5, None, Settings(), False, 0, None, acked, updated_at,
            _queue_of(db, name),
        )  # fmt: skip


def _queue_of(db: Engine, consumer: str) -> QueueCopy:
    found, rows = db.claims.look(consumer), db.claims.unfinished(consumer)
    return QueueCopy(
        bool(found.number), found.frontier, found.acked, found.replay_from, found.unfinished,
        found.seen_at, found.stalled_at, tuple(rows),
    )  # fmt: skip


def are_alike(one: ConsumerCopy | None, other: ConsumerCopy) -> bool:
    """Return whether two say the same; a queue that was not begun is like an empty one."""
    return one is not None and other == one._replace(
        queue=one.queue._replace(begun=other.queue.begun)
    )


def restore(db: Engine, copy: ConsumerCopy) -> None:
    """Store a consumer in place of the one of its name, inside `write`."""
    name, store = copy.consumer, db.consumers
    terms = name, copy.handler, copy.filter, copy.max_attempts, copy.timeout
    if not store.put(*terms, settings=copy.settings):
        store.change(*terms, copy.settings)
    if copy.acked or copy.updated_at:
        sql = db.queue_statements.SET_ACKED
        db.run(sql, (name, copy.acked, copy.updated_at or db.stamp()))
    _restore_queue(db, name, copy.queue)
    state = store.get(name)
    if state is not None and (copy.attempts or copy.stalled):
        store.note_run(state, attempts=copy.attempts, stalled=copy.stalled)
    if state is not None and copy.paused != state.paused:
        store.pause(name, paused=copy.paused)
    if not copy.subscribed:
        store.delete(name)


def _restore_queue(db: Engine, consumer: str, queue: QueueCopy) -> None:
    sql, number = db.queue_statements, db.claims.look(consumer).number
    if queue.begun or number:
        number = number or db.run(sql.BEGIN, (consumer, queue.frontier))[0][0]
        db.run(sql.FORGET, (number, 0))
        db.many(sql.PUT, [(number, *row) for row in queue.rows])
        db.run(sql.PUT_QUEUE, (number, *queue[1:-1]))


def dead_letters(db: Engine) -> Iterator[DeadRow]:
    """Yield the dead letters of all consumers, by consumer and event."""
    for page in _dead_pages(db):
        yield from page


def _dead_pages(db: Engine) -> Iterator[list[DeadRow]]:
    after = "", 0
    while page := db.claims.dead(None, after, _PAGE):
        yield page
        after = page[-1].consumer, page[-1].event


def restore_dead(db: Engine, source: Engine) -> None:
    """Replace the dead letters by those of another thread, inside `write`."""
    while page := db.claims.dead(None, ("", 0), _PAGE):
        for consumer in {row.consumer for row in page}:
            db.claims.drop(consumer, [row.event for row in page if row.consumer == consumer])
    for page in _dead_pages(source):
        numbers = {name: db.claims.look(name).number for name in {row.consumer for row in page}}
        rows = [
            (numbers[row.consumer], row.event, row.attempts, row.code, row.error, row.at)
            for row in page
        ]
        db.many(db.queue_statements.BURY, rows)
