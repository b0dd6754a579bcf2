"""Import the log of another thread: its events under their ids, and its consumers."""

from __future__ import annotations

from itertools import zip_longest

from eventq.errors import ConflictError, DamagedError
from eventq.records.event import NewEvent
from eventq.store import consumer_copies
from eventq.store.names import short
from eventq.store.rules import RUNS_EMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.records.event import Event
    from eventq.store.consumer_copies import ConsumerCopy
    from eventq.store.engine import Engine
    from eventq.transfer.job import Job

_PAGE = 1_000
_ANOTHER = "copy into a thread that is new"


class LogImport:
    """The log of one source, of which the target has the beginning or nothing."""

    def __init__(self, job: Job, source: Engine, *, shared: bool) -> None:
        """Import from a database, at one moment, into a thread that machines share or not."""
        self._here = job.database
        self._there = source
        self._notes = job.notes
        self._shared = shared
        self.events = 0
        self.consumers = 0

    def check(self) -> None:
        """Raise ConflictError unless the log here is a beginning of the source's."""
        last, most = self._here.events.last(), self._there.events.last()
        if last > most:
            raise _conflict(f"event {most + 1} is in the destination, and not in the source", last)
        self._compare_events(last)
        acked = {one.consumer: one.acked for one in self._consumers(self._there)}
        for one in self._consumers(self._here):
            if one.consumer not in acked:
                self._notes.remark(f"consumer '{one.consumer}' is not in the source: it stays")
            elif one.acked > acked[one.consumer]:
                raise _conflict(
                    f"consumer '{one.consumer}' has acked {one.acked} in the destination, and"
                    f" {acked[one.consumer]} in the source",
                    one.acked,
                )

    def run(self, runs: dict[int, int]) -> None:
        """Store what is missing, and compare all of it with the source, inside `write`.

        `runs` are the ids of the source's contexts here.
        """
        self.add_events()
        self._compare_events(self._there.events.last())
        self.add_consumers()
        self.add_dead_letters()
        emit = self._there.settings.get(RUNS_EMIT)
        if emit is not None and self._here.settings.get(RUNS_EMIT) is None:
            self._here.settings.put(RUNS_EMIT, emit)
        self._here.copies.set_sources(
            [(runs[run], source) for run, source in self._there.copies.sources() if run in runs]
        )

    # --- events -----------------------------------------------------------------------------------

    def add_events(self) -> None:
        """Store the events that are not here yet, inside the transaction of the import."""
        here, there = self._here, self._there
        at, most = here.events.last(), there.events.last()
        while at < most:
            page = there.events.page("", at, most, _PAGE)
            keys = there.events.keys(at, page.next)
            here.restore([
                (one.id, one.created_at, _new(one, keys.get(one.id))) for one in page.events
            ])  # fmt: skip
            here.causes.restore(events=there.causes.of_events(at, page.next))
            self.events += len(page.events)
            at = page.next
        if here.events.last() < most:
            here.reserve("events", most)

    def _compare_events(self, upto: int) -> None:
        """Compare the events up to an id, but for those that one of the two has pruned."""
        firsts = [db.events.bounds().first or upto + 1 for db in (self._here, self._there)]
        both = [_events(db, max(firsts) - 1, upto) for db in (self._here, self._there)]
        for ours, theirs in zip_longest(*both):
            if ours != theirs:
                number = min(one[0].id for one in (ours, theirs) if one)
                what = f"event {number} is another one in the destination than in the source"
                raise _conflict(what, number)

    # --- consumers --------------------------------------------------------------------------------

    def _consumers(self, db: Engine) -> Iterator[ConsumerCopy]:
        """Yield the consumers of a thread, as the target may have them.

        A handler in a shared thread runs where its worker does, and only there has a label.
        """
        for one in consumer_copies.consumers(db):
            how = one.settings
            how = how._replace(directory=None) if self._shared else how._replace(label=None)
            yield one._replace(settings=how)

    def add_consumers(self) -> None:
        """Store the consumers with how far they are. Raises DamagedError if one did not arrive."""
        known = {one.consumer: one for one in self._consumers(self._here)}
        wanted = {one.consumer: one for one in self._consumers(self._there)}
        for name, one in wanted.items():
            if not consumer_copies.are_alike(known.get(name), one):
                consumer_copies.restore(self._here, one)
                self.consumers += 1
        now = {one.consumer: one for one in self._consumers(self._here)}
        for name, one in wanted.items():
            if not consumer_copies.are_alike(now.get(name), one):
                raise _lost(f"consumer '{name}'")

    def add_dead_letters(self) -> None:
        """Take over the dead letters, unless they are the same. Raises DamagedError."""
        if self._has_the_same_dead_letters():
            return
        consumer_copies.restore_dead(self._here, self._there)
        if not self._has_the_same_dead_letters():
            raise _lost("a dead letter")

    def _has_the_same_dead_letters(self) -> bool:
        both = (consumer_copies.dead_letters(db) for db in (self._here, self._there))
        return all(ours == theirs for ours, theirs in zip_longest(*both))


def _new(event: Event, key: str | None) -> NewEvent:
    return NewEvent(event.source, event.type, event.content, event.subtype, key)


def _events(db: Engine, after: int, upto: int) -> Iterator[tuple[Event, str | None]]:
    """Yield the events of a range, each with its key, or what stands for it in PostgreSQL."""
    while after < upto:
        page = db.events.page("", after, upto, _PAGE)
        keys = {number: short(key) for number, key in db.events.keys(after, page.next).items()}
        yield from ((one, keys.get(one.id)) for one in page.events)
        after = page.next


def _conflict(what: str, actual: int) -> ConflictError:
    return ConflictError(f"{what}, so no event was copied", _ANOTHER, actual)


def _lost(what: str) -> DamagedError:
    return DamagedError(
        f"{what} did not arrive as it is in the source, so nothing of the log was copied",
        "run 'eventq check' on both threads",
    )
