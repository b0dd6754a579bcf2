"""What the tests of claims share: short words for subscribing, claiming and settling."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eventq.records.consumer import Settings
from eventq.records.event import NewEvent
from eventq.store.queue_rows import Taken, Verdict, Worker

if TYPE_CHECKING:
    from eventq.store.protocol import Database, Log
    from eventq.store.queue_rows import Settled

SPAN = 30_000  # ms of a lease


def subscribe(
    db: Database,
    consumer: str = "w",
    *,
    filter: str | None = None,
    attempts: int = 5,
    replace: bool = False,
    **settings: Any,
) -> None:
    """Subscribe a consumer without a handler, or replace its subscription."""
    made = Settings(kind="pull", backoff=1_000, backoff_most=1_000)._replace(**settings)
    if replace:
        assert db.consumers.change(consumer, ":", filter, attempts, None, made)
    else:
        assert db.consumers.put(consumer, ":", filter, attempts, None, settings=made)


def push(db: Log, count: int = 1, *, type: str = "note", content: str = "x") -> list[int]:
    """Store events and return their ids."""
    made = db.events.append([NewEvent("self", type, content)] * count)
    return [*range(made.first, made.last + 1)]


def take(
    db: Log,
    limit: int = 1,
    *,
    consumer: str = "w",
    span: int = SPAN,
    worker: str = "one",
    nonce: str | None = None,
) -> Taken:
    """Claim events."""
    return db.claims.take(consumer, limit, span, Worker(worker), os.urandom(16), nonce=nonce)


def ids(taken: Taken) -> list[int]:
    """Return the events of a claim."""
    return [claimed.event.id for claimed in taken.claims]


def attempts(taken: Taken) -> dict[int, int]:
    """Return the attempt of each event of a claim."""
    return {claimed.event.id: claimed.attempt for claimed in taken.claims}


def verdict(
    taken: Taken, what: str = "done", events: list[int] | None = None, **more: Any
) -> Verdict:
    """Return a verdict on all events of a claim, or on some."""
    given = {"consumer": "w", "span": 0 if what == "retry" else None, **more}
    chosen = tuple(ids(taken) if events is None else events)
    return Verdict(token=taken.token, events=chosen, revived=False, what=what, **given)


def settle(
    db: Log, taken: Taken, what: str = "done", events: list[int] | None = None, **more: Any
) -> Settled:
    """Settle all events of a claim, or some; a retry is due at once unless it has a `span`."""
    return db.claims.settle([verdict(taken, what, events, **more)])


def is_lost(
    db: Log, taken: Taken, what: str = "done", events: list[int] | None = None, **more: Any
) -> bool:
    """Settle events; return whether all of them were lost. Some lost and some not is a failure."""
    lost = settle(db, taken, what, events, **more).lost
    chosen = ids(taken) if events is None else events
    assert lost in (set(), {(taken.token, event) for event in chosen})
    return bool(lost)


def progress(db: Log, consumer: str = "w") -> int:
    """Return the id up to which everything is finished."""
    found = db.consumers.get(consumer)
    assert found is not None
    return found.acked


def leased(db: Log) -> list[int]:
    """Return the events that are leased, ended or not."""
    return [row.event for row in db.claims.out(None, ("", 0), 1_000_000)]


def dead(db: Log) -> list[int]:
    """Return the events that are dead."""
    return [row.event for row in db.claims.dead(None, ("", 0), 1_000_000)]
