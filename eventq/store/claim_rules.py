"""Claims of workers on every engine: what is leased, settled and tried again, and in which order.

`queue_rules` has the rules of one change. Here each begins and ends its transaction. An engine
reads a queue, locks it, and may spare itself transactions where nothing else follows from a claim.
"""

from __future__ import annotations

from eventq.errors import UnknownConsumerError
from eventq.store.queue_rows import Claimed, Settled, Taken
from eventq.store.queue_rules import NEVER, Ahead, Change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from eventq.records.event import Event
    from eventq.store.queue_rows import Verdict, Worker
    from eventq.store.queue_rules import Queue, QueueDatabase

    class ClaimDatabase(QueueDatabase, Protocol):
        """What claims need of a database, beside what a change does."""

        def joined(self) -> AbstractContextManager[Any]:
            """Begin a transaction, or go on in the one under way."""

        def ring_on_commit(self) -> None:
            """Wake who waits."""


DAY_MS = 24 * 3600 * 1000  # that nonces of claims are kept for


class Claiming:
    """Leases events of a thread's consumers, and settles them."""

    if TYPE_CHECKING:
        _db: ClaimDatabase
        still_leased: str  # the statement for the rest of a claim, by queue, time and token

        def look(self, consumer: str) -> Queue:
            """Return what claims need to know of a consumer, subscribed or not."""

        def lock(self, consumer: str) -> Queue:
            """Do the same inside a transaction, in which nobody else changes it."""

        def accept(self, text: str | None) -> str:
            """Return a filter as it is run; raise FilterError also for one that reads the clock."""

        def known(self, number: Any, nonce: str, since: int) -> list[tuple[bytes]]:
            """Return the token of a claim with a nonce, if there was one since a time."""

        def keep(self, change: Change, nonce: str | None, taken: Taken) -> None:
            """Remember a claim and its nonce, as durable as claims are."""

        def next_end(self, queue: Queue) -> int | None:
            """Return when the first lease ends."""

        def settling(self, verdicts: Sequence[Verdict]) -> AbstractContextManager[Any]:
            """Begin the transaction for verdicts, or go on in the one under way."""

    def take(
        self,
        consumer: str,
        limit: int,
        span: int | None,
        worker: Worker,
        token: bytes,
        *,
        nonce: str | None = None,
    ) -> Taken:
        """Lease the next events to a worker; see `store.protocol`."""
        db = self._db
        queue = self.look(consumer)
        if not queue.subscribed:
            raise UnknownConsumerError(consumer)
        now = db.milliseconds()
        if not self._token(queue.number, nonce, now) and not queue.may_have(now):
            return Taken([], token, 0, 0)
        goal = queue.last
        while True:
            # Filters run before the lock is taken: others write meanwhile, or claim what matches.
            ahead = self._look_ahead(queue, limit)
            with db.joined():
                queue = self.lock(consumer)
                if not queue.subscribed:
                    raise UnknownConsumerError(consumer)
                change = Change(db, consumer, queue)
                length = queue.lease if span is None else span
                taken = self._repeated(change, nonce)
                if taken is None:
                    claims = change.claim(limit, length, worker, token, ahead)
                    taken = Taken(claims, token, change.now + length, length)
                    if claims:
                        self.keep(change, nonce, taken)
                change.store()
            if taken.claims or taken.token != token or not change.may_examine(goal):
                return taken
            queue = self.look(consumer)

    def _look_ahead(self, queue: Queue, limit: int) -> Ahead:
        """Return the next events that match the filter; raise FilterError for one of no use."""
        text, after = queue.filter, queue.start()
        if text is None:
            return Ahead(None, after, [], after)
        page = self._db.events.page(self.accept(text), after, queue.last, limit)
        return Ahead(text, after, *page)

    def _token(self, number: Any, nonce: str | None, now: int) -> bytes | None:
        """Return the token of the claim with a nonce, if there was one in the last 24 hours."""
        found = [] if nonce is None else self.known(number, nonce, now - DAY_MS)
        return found[0][0] if found else None

    def _repeated(self, change: Change, nonce: str | None) -> Taken | None:
        """Return what is left of an earlier claim with a nonce, or None when there was none."""
        token = self._token(change.number, nonce, change.now)
        if token is None:
            return None
        rows = self._db.run(self.still_leased, (change.number, change.now, token))
        events: dict[int, Event] = {}
        left = [row[0] for row in rows]
        while left:
            found, upto = self._db.events.among(left)
            events.update(found)
            left = [event for event in left if event > upto]
        claims = [
            Claimed(events[event], attempt, bool(revived), None)
            for event, attempt, revived, _, _ in rows
            if event in events
        ]
        until, span = min(((row[3], row[4]) for row in rows), default=(change.now, 0))
        return Taken(claims, token, until, span)

    def settle(self, verdicts: Sequence[Verdict]) -> Settled:
        """Apply verdicts of workers as one change; see `store.protocol`."""
        lost: set[tuple[bytes, int]] = set()
        freed = False
        with self.settling(verdicts):
            for consumer in sorted({verdict.consumer for verdict in verdicts}):
                mine = [verdict for verdict in verdicts if verdict.consumer == consumer]
                queue = self.lock(consumer)
                if queue.number:
                    change = Change(self._db, consumer, queue)
                    for verdict in mine:
                        lost.update(change.settle(verdict))
                    change.store()
                    freed |= change.freed
                else:  # it never claimed anything
                    lost.update((v.token, event) for v in mine for event in v.events)
            if freed:
                self._db.ring_on_commit()
        return Settled(lost, freed)

    def _change(self, consumer: str, do: Callable[[Change], object], *, rings: bool = True) -> None:
        """Change a queue in a transaction; nothing happens without one."""
        with self._db.joined():
            queue = self.lock(consumer)
            if queue.number:
                change = Change(self._db, consumer, queue)
                do(change)
                change.store()
                if rings:
                    self._db.ring_on_commit()

    def resume(self, consumer: str) -> None:
        """End a stall and all waits after failures; nothing happens without a queue."""
        self._change(consumer, Change.resume)

    def revive(self, consumer: str, events: Iterable[int]) -> set[int]:
        """Let dead letters be tried again; see `store.protocol`."""
        revived: set[int] = set()
        self._change(consumer, lambda change: revived.update(change.revive(events)))
        return revived

    def refilter(self, consumer: str) -> None:
        """Apply a changed filter or order to what is unfinished; see `store.protocol`."""
        self._change(consumer, Change.refilter, rings=False)

    def next_due(self, consumer: str) -> int | None:
        """Return the ms until an event may be due that was claimed before, or None for never."""
        queue = self.look(consumer)
        if queue.unfinished and queue.is_behind:
            return 0  # an ack or a replay may have freed what waited behind an event
        ends = queue.expires_at
        if ends is not None and ends < (queue.due_at or NEVER):  # it is a bound, perhaps an old one
            ends = self.next_end(queue)
        times = [at for at in (queue.due_at, ends) if at is not None]
        return max(0, min(times) - self._db.milliseconds()) if times else None
