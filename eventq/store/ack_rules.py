"""How far consumers have got: what an ack changes, and what is read after it, on every engine."""

from __future__ import annotations

from eventq.errors import AckError, AlreadyAckedError
from eventq.record import Record
from eventq.records.consumer import Popped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from eventq.records.event import EventPage, LinePage
    from eventq.store.protocol import Events

    class Log(Protocol):
        """What is needed of a database."""

        @property
        def events(self) -> Events:
            """Its events."""

        def ring_on_commit(self) -> None:
            """Wake who waits."""


class Position(Record):
    """Where a consumer is; `before` is what it has acked, None for nothing.

    `stalled_at` is what it had acked when it stalled, or has acked while events of `--each` that
    were claimed are unfinished: an ack may free others that wait behind them. `leased` is whether
    claims of it are out, and `fence` that of its newest supervisor if the engine reads it along.
    """

    filter: str | None
    last: int
    before: int | None
    stalled_at: int | None
    leased: int = 0
    fence: int = 0


class Progress:
    """Moves consumers through the log. Each engine knows where one is, and stores that."""

    if TYPE_CHECKING:
        _db: Log

        def position(
            self, consumer: str, fence: int | None = None, acked: int = 0, *, replay: bool = False
        ) -> Position:
            """Return where a consumer is.

            Raises FencedError if a newer supervisor runs it, UnknownConsumerError, and
            ConsumerInUseError while claims are out, which do not matter to a replay.
            """

        def set_acked(self, consumer: str, acked: int, *, replay: bool, fence: int | None) -> bool:
            """Store how far a consumer has got; return False where somebody else was faster."""

        def replay_claims(self, consumer: str, acked: int, fence: int | None) -> bool:
            """Let what claims did after an ack be done again; return whether there was any."""

    def pop(
        self,
        consumer: str,
        acked: int | None,
        limit: int,
        *,
        lines: bool = False,
        replay: bool = False,
        fence: int | None = None,
    ) -> Popped:
        """Ack up to an id, and return the next page of matching events; see `store.protocol`.

        The events are read first: a filter that fails leaves the ack where it was, and an ack that
        fails returns no events. A crash may undo the ack: it only means a second delivery.
        """
        found = self.position(consumer, fence, acked or 0, replay=replay)
        before = found.before or 0
        goes_back = acked is not None and acked < before and not replay
        if acked is not None and acked > found.last and acked != found.before:
            raise AckError(acked, found.last)
        if goes_back and limit:
            raise AlreadyAckedError(consumer, before, acked or 0)
        after = before if acked is None else acked
        page = self._read(found.filter, after, found.last, limit, lines=lines) if limit else None
        if acked is not None and replay and acked == before:
            if found.before is None:
                self.set_acked(consumer, acked, replay=True, fence=fence)
            return Popped(page, woke=self.replay_claims(consumer, acked, fence))
        if acked is None or goes_back or acked == found.before:
            return Popped(page, woke=False)
        if not self.set_acked(consumer, acked, replay=replay, fence=fence):
            return self._overtaken(consumer, acked, page, fence)
        woke = acked < before or found.stalled_at == before
        if woke:
            self._db.ring_on_commit()
        return Popped(page, woke)

    def _overtaken(
        self, consumer: str, acked: int, page: EventPage | LinePage | None, fence: int | None
    ) -> Popped:
        """Raise what a pop gets that somebody else was faster than; an ack has nothing to do."""
        self.position(consumer, fence, acked, replay=True)
        before = self.position(consumer).before or 0
        if acked < before and page is not None:
            raise AlreadyAckedError(consumer, before, acked)
        return Popped(page, woke=False)

    def read_on(
        self,
        consumer: str,
        after: int,
        limit: int,
        *,
        lines: bool = False,
        replay: bool = False,
        fence: int | None = None,
    ) -> EventPage | LinePage:
        """Return the next page of events without an ack; see `store.protocol`."""
        found = self.position(consumer, fence, replay=replay)
        return self._read(found.filter, after, found.last, limit, lines=lines)

    def _read(
        self, text: str | None, after: int, upto: int, limit: int, *, lines: bool
    ) -> EventPage | LinePage:
        """Return the first events that match, all of `limit` if there are so many."""
        events = self._db.events
        accepted = events.accept(text)
        page: Any = (events.lines if lines else events.page)(accepted, after, upto, limit)
        return self.go_on(page, accepted, upto, limit, lines=lines)  # type: ignore[no-any-return]

    def go_on(self, page: Any, text: str, upto: int, limit: int, *, lines: bool) -> Any:
        """Return a page with what comes after it, until there is all of `limit`."""
        read: Any = self._db.events.lines if lines else self._db.events.page
        while page.next < upto and (left := limit - len(page[0])) > 0:
            more: Any = read(text, page.next, upto, left)
            page = (
                type(page)(page[0] + more[0], *more[1:])
                if more[0]
                else page._replace(next=more.next)
            )
        return page
