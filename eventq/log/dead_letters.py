"""Dead letters: events that failed for good, until they are tried again or dropped."""

from __future__ import annotations

from itertools import groupby

from eventq.errors import LogicError, UnknownDeadLetterError
from eventq.log.claims import PAGE
from eventq.records.checks import check_name, check_positive
from eventq.records.claim import DeadLetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.log.consumers import Subscriptions
    from eventq.log.journal import Journal
    from eventq.store.protocol import Database
    from eventq.store.queue_rows import DeadRow


class DeadLetters:
    """The dead letters of one thread. Without a consumer, a call is about those of all."""

    def __init__(self, db: Database, consumers: Subscriptions, journal: Journal) -> None:
        """Take the database, the consumers and the journal of the thread."""
        self._db = db
        self._consumers = consumers
        self._journal = journal

    def find(self, consumer: str | None, events: Iterable[int] | None) -> Iterator[DeadLetter]:
        """Yield the dead letters, perhaps only of some events, by consumer and event."""
        for page in self._pages(consumer, events):
            for name, event, attempts, code, error, at in page:
                yield DeadLetter(name, event, self._db.events.get(event), attempts, code, error, at)

    def retry(
        self, consumer: str | None, events: Iterable[int] | None, died_by_ms: int | None = None
    ) -> int:
        """Let dead letters be tried again at once; return how many.

        Of events that are named, all are or none is. Without names, those whose event was deleted
        stay, and those that died after a time.
        """
        return self._change(consumer, events, died_by_ms, "retried", self._db.claims.revive)

    def drop(
        self, consumer: str | None, events: Iterable[int] | None, died_by_ms: int | None = None
    ) -> int:
        """Delete dead letters, but not their events; return how many."""
        return self._change(consumer, events, died_by_ms, "dropped", self._db.claims.drop)

    def _change(
        self,
        consumer: str | None,
        events: Iterable[int] | None,
        died_by_ms: int | None,
        what: str,
        change: Callable[[str, Iterable[int]], set[int]],
    ) -> int:
        if events is None:
            most = float("inf") if died_by_ms is None else died_by_ms
            pages = (
                [row for row in page if row.at <= most] for page in self._pages(consumer, None)
            )
            return sum(len(self._apply(page, what, change)) for page in pages)
        wanted = {*events}
        with self._db.write():
            found = [row for page in self._pages(consumer, wanted) for row in page]
            if missing := wanted - {row.event for row in found}:
                raise UnknownDeadLetterError(min(missing), consumer)
            changed = self._apply(found, what, change)
            if lost := [row.event for row in found if (row.consumer, row.event) not in changed]:
                raise LogicError(
                    f"event {lost[0]} was deleted: it cannot be tried again",
                    "drop its dead letter with 'eventq dead drop'",
                )
        return len(changed)

    def _apply(
        self,
        rows: Iterable[DeadRow],
        what: str,
        change: Callable[[str, Iterable[int]], set[int]],
    ) -> set[tuple[str, int]]:
        changed: set[tuple[str, int]] = set()
        with self._db.write():
            for consumer, group in groupby(rows, lambda row: row.consumer):
                events = change(consumer, [row.event for row in group])
                changed.update((consumer, event) for event in events)
                if events:
                    self._note(consumer, what, len(events))
        return changed

    def _note(self, consumer: str, what: str, count: int) -> None:
        def after() -> None:
            self._journal.info(f"dead: consumer={consumer} {what}={count}")
            if what == "retried":
                self._consumers.wake(consumer)

        self._db.on_commit(after)

    def _pages(self, consumer: str | None, events: Iterable[int] | None) -> Iterator[list[DeadRow]]:
        if consumer is not None:
            check_name(consumer, "consumer")
        wanted = None if events is None else [check_positive(one, "an event") for one in events]
        after = ("", 0)
        while rows := self._db.claims.dead(consumer, after, PAGE, wanted):
            yield rows
            after = (rows[-1].consumer, rows[-1].event)
