"""What each engine does for the log: events, consumers, claims, leases. It contains no SQL.

Only type checkers and tests import this module; at run time the domain gets an object and calls it.

Every operation joins the `write()` of its OS thread if there is one, and sees what that wrote;
otherwise it is a transaction of its own. Durations are passed, never deadlines, as an engine has
its own clock. Pages are lists, so nothing stays open after an operation has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from eventq.errors import EventqError
    from eventq.records.claim import WorkerStatus
    from eventq.records.consumer import ConsumerState, Popped, Settings
    from eventq.records.event import (
        Appended,
        Bounds,
        Commit,
        Event,
        EventPage,
        LinePage,
        NewEvent,
        Tally,
    )
    from eventq.records.info import Stats
    from eventq.store.engine import Engine
    from eventq.store.queue_rows import (
        ClaimRow,
        DeadRow,
        Minute,
        Outcome,
        QueueStatus,
        Settled,
        Standing,
        Taken,
        Unfinished,
        Verdict,
        Worker,
    )
    from eventq.store.queue_rules import Queue

Area = Literal["log", "turns", "open turns", "roots", "blobs", "runs", "outputs"]


class Events(Protocol):
    """The log: numbered from 1 without gaps, in the order of the commits."""

    most_rows: int  # of a batch that `append` is best called with

    def add(self, new: NewEvent) -> Event:
        """Store one event that has no key, names no blob and asks nothing."""

    def append(
        self,
        new: Sequence[NewEvent],
        refs: Mapping[int, Collection[bytes]] | None = None,
        at: str | None = None,
        causes: Sequence[tuple[str, int]] | None = None,
    ) -> Appended:
        """Store events in order, but for those whose key was used before.

        `refs` are the blobs that events name, by their place in `new`; `at` is the time of an
        earlier part of the same batch, as that was told. `causes` are what caused them (None: what
        is stated). Questions among them are open from then
        on, and those that they answer closed. Before anything is stored, answers are refused as
        `question_rules.check_answers` does.
        """

    def announce(self, source: str, content: str, subtype: str, cause: int = 0) -> None:
        """Store the event of another change inside `write`, with the refs it names.

        It is caused by an event, or with 0 by what is stated.
        """

    def get(self, number: int) -> Event | None:
        """Return one event, or None."""

    def among(self, numbers: Sequence[int]) -> tuple[dict[int, Event], int]:
        """Return those of some events that are stored, and up to which id they were sought."""

    def matching(self, text: str, events: list[Event]) -> set[int]:
        """Return the ids of those events that an accepted filter matches."""

    def keyed(self, key: str) -> Event | None:
        """Return the event that was stored under a key, or None."""

    def keys(self, after: int, upto: int) -> dict[int, str]:
        """Return the keys of the events of a range, by id."""

    def times(self, numbers: Collection[int]) -> dict[int, str]:
        """Return when some events were stored, by id, of those that are there."""

    def kinds(self, after: int, upto: int) -> list[tuple[str, str, int]]:
        """Return each pair of a type and a source in a range, and how many events have it.

        Every event of the range is looked at: the caller bounds it.
        """

    def questions(self, limit: int) -> list[Event]:
        """Return the oldest questions that are open."""

    def answers(self, before: int, limit: int) -> tuple[list[int], int]:
        """Return the ids of the newest answers before an event, and where to look on.

        That is an id for the next call, 0 at the end. A bounded number of keys is looked at.
        """

    def question_count(self) -> int:
        """Return how many questions are open."""

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run, "" for all. Raises FilterError."""

    def page(self, text: str, after: int, upto: int, limit: int) -> EventPage:
        """Return the next events with `after` < id <= `upto` that match an accepted filter.

        There may be fewer than `limit`, or none, though the search has not got to `upto` yet.
        """

    def lines(self, text: str, after: int, upto: int, limit: int) -> LinePage:
        """Return what `page` returns as lines of JSON."""

    def newest(
        self, text: str, upto: int, limit: int, room: int | None = None, *, after: int = 0
    ) -> list[Event]:
        """Return the newest events with `after` < id <= `upto` that match, oldest first.

        There are fewer once they have so many characters as there is `room` for, a page more or
        less.
        """

    def blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Yield the events of a range as NDJSON in blocks of bounded size."""

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Return the lowest id of a range that matches, or None."""

    def tally(
        self, text: str, after: int, upto: int, most: int, seconds: float | None = None
    ) -> Tally:
        """Return how many ids of a range match a filter, or that there are at least so many.

        The filter need not be accepted before; FilterError is raised for one that is refused. The
        search may end after `most` matches, and with a limit of time also earlier: in SQLite after
        `seconds` of processor time, and before an event of many bytes.
        """

    def latest(self, by: str) -> list[Event]:
        """Return the newest event of each `source` or `type`."""

    def last(self) -> int:
        """Return the highest id that an event ever had, 0 for none. Called often."""

    def from_end(self, count: int) -> int:
        """Return the id of the `count`-th newest event, or of the oldest; 0 for none."""

    def bounds(self) -> Bounds:
        """Return the ids of the oldest and the newest event, and how many are stored."""

    def prune(self, before: int) -> int:
        """Delete the events below an id; return their number."""

    def rewrite(self, number: int, content: str) -> None:
        """Let an event say something else, inside `write`."""


class Consumers(Protocol):
    """Subscriptions, and the progress of their consumers."""

    def get(self, consumer: str) -> ConsumerState | None:
        """Return the state of one consumer, or None."""

    def all(self) -> list[ConsumerState]:
        """Return the state of every consumer, oldest subscription first."""

    def former(self) -> list[tuple[str, int, str | None]]:
        """Return who is not subscribed any more, how far each has got, and when that was."""

    def version(self) -> object:
        """Return a value that differs once a consumer may have changed; outside of `write`.

        It is asked for by every push, which looks at consumers only if it does.
        """

    def put(
        self,
        consumer: str,
        handler: str,
        filter: str | None,
        attempts: int,
        timeout: float | None,
        *,
        settings: Settings | None = None,
        from_now: bool = False,
    ) -> bool:
        """Store a subscription; return False when there is one of that name.

        With `from_now` all events so far count as acked.
        """

    def change(
        self,
        consumer: str,
        handler: str,
        filter: str | None,
        attempts: int,
        timeout: float | None,
        settings: Settings,
    ) -> bool:
        """Change a subscription, which keeps its progress and its pause; return False for none."""

    def pause(self, consumer: str, *, paused: bool) -> None:
        """Let a consumer rest, or go on."""

    def delete(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; return False when there is none."""

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
        """Ack up to an id, and return the next page of matching events; with limit 0 none.

        Without an id nothing is acked, and the page is what follows the progress. With `replay` an
        id below the progress goes back to it, and claims that are out do not matter; without,
        reading from there is refused, and an ack alone changes nothing. A filter that fails leaves
        the ack where it was. A `fence` below the consumer's changes nothing either, whenever that
        was raised. Raises UnknownConsumerError, FencedError, ConsumerInUseError, AckError,
        AlreadyAckedError, FilterError.
        """

    def raise_fence(self, consumer: str) -> int:
        """Return the fence of a new supervisor, from 1: what has a smaller one is refused."""

    def advance(self, consumer: str, before: int, acked: int, fence: int) -> bool:
        """Ack events that were read; return False when the progress is not what it was before.

        Then somebody else has acked or asked for a replay, and nothing changes. So it is while a
        claim is out, and when somebody has a greater fence.
        """

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
        """Return the next page of matching events without an ack.

        Raises UnknownConsumerError, FencedError as `pop` does and, unless it is part of a replay,
        ConsumerInUseError.
        """

    def note_scanned(self, state: ConsumerState, upto: int) -> None:
        """Note that no event after the acked one, and after the frontier, up to `upto` matches."""

    def note_run(
        self, state: ConsumerState, *, attempts: int | None = None, stalled: str | None = None
    ) -> None:
        """Record the number of consecutive runs without progress, and why no handler is started.

        Both hold until the next ack. None keeps what was recorded before; "" ends a stall.
        """


class Claims(Protocol):
    """Consumers as queues: which worker has which event, until when, and what failed for good.

    A lease that has ended is nobody's. So is one whose end is further away than it is long: the
    clock was set back. An ack finishes the events up to it, a replay forgets what was done with
    those above it and ends all leases; both are noticed whoever wrote them. `span` is in ms.
    """

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
        """Lease events that are tried again, and then the next ones, to a worker.

        Without a span, the lease is as long as the subscription says.

        A consumer that is run for each event in order gets new ones only when all before are
        finished. What the last claim with the same nonce got, and still holds, is returned again.
        While the consumer is paused or stalled, nothing is leased. Raises UnknownConsumerError, and
        FilterError also for a filter that reads the clock.
        """

    def look(self, consumer: str) -> Queue:
        """Return what claims know of a consumer, subscribed or not."""

    def unfinished(self, consumer: str) -> list[Unfinished]:
        """Return the events that claims have examined and not finished."""

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run; raise FilterError also for one that reads the clock."""

    def settle(self, verdicts: Sequence[Verdict]) -> Settled:
        """Apply verdicts of workers, as one change."""

    def resume(self, consumer: str) -> None:
        """End a stall by a failed event and all waits after failures; attempts count anew."""

    def revive(self, consumer: str, events: Iterable[int]) -> set[int]:
        """Let dead letters be tried again, with new attempts; return those that were there.

        They are outside the order of their groups, and the progress does not go back to them. One
        whose event was deleted stays a dead letter. The consumer may be subscribed or not.
        """

    def drop(self, consumer: str, events: Iterable[int]) -> set[int]:
        """Delete dead letters, of a consumer subscribed or not; return those that were there."""

    def note(self, consumer: str, token: bytes, events: Sequence[int], process: str) -> None:
        """Record the process that works on some events of a claim."""

    def refilter(self, consumer: str) -> None:
        """Apply a changed filter or order to what is unfinished.

        Called in the transaction that changes the subscription, or makes it anew. What waits and
        does not match any more is finished. Live leases may be settled; what they put back is tried
        again. What was examined before is not examined again.
        """

    def next_due(self, consumer: str) -> int | None:
        """Return the ms until an event may be due that was claimed before, or None for never."""

    def out(self, consumer: str | None, after: tuple[str, int], limit: int) -> list[ClaimRow]:
        """Return the next leases, by consumer and event; ("", 0) begins."""

    def statuses(self, consumer: str | None = None) -> dict[str, QueueStatus]:
        """Return what each queue has leased, has not finished, and has given up, by consumer.

        With a name, of one consumer; those that never claimed are left out.
        """

    def standings(self, events: Iterable[int], limit: int) -> list[Standing]:
        """Return what queues hold of some events, at most `limit` rows.

        A consumer that has finished an event, or not examined it, has no row.
        """

    def totals(self, since: int, span: int) -> list[tuple[int, int, int, int]]:
        """Return what attempts of all queues came to after a minute, by spans of so many minutes.

        A row is the number of a span since 1970, and how many attempts were done, failed and dead.
        """

    def minutes(self, consumer: str | None, since: int) -> list[Minute]:
        """Return what attempts came to in each minute after one, of one consumer or all.

        They are kept for 24 hours; a minute without attempts is left out.
        """

    def workers(self) -> list[tuple[str, WorkerStatus]]:
        """Return who holds leases now, with the consumer of each."""

    def dead(
        self,
        consumer: str | None,
        after: tuple[str, int],
        limit: int,
        events: Iterable[int] | None = None,
    ) -> list[DeadRow]:
        """Return the next dead letters, by consumer and event; ("", 0) begins.

        None stands for all consumers, or all events.
        """


class Log(Protocol):
    """The events of a thread and their consumers."""

    @property
    def events(self) -> Events:
        """The log."""

    @property
    def consumers(self) -> Consumers:
        """Subscriptions, and the progress of their consumers."""

    @property
    def claims(self) -> Claims:
        """The queues of consumers."""

    def check_writable(self) -> None:
        """Raise ReadOnlyError when the database was opened to read."""

    def milliseconds(self) -> int:
        """Return the time of the engine, in milliseconds since 1970."""

    def watch(self) -> Watcher:
        """Return a watcher for one waiter; what is committed from now on wakes it."""

    def data_version(self) -> int | None:
        """Return a number that changes when another connection has committed anything.

        None if that is not known now, or never for an engine.
        """


class Watcher(Protocol):
    """Waits for the log to grow: a hint, which may come late, twice, or for nothing.

    Whoever waits makes one, looks, and only then waits; and looks again when the time is up.
    """

    def wait(self, seconds: float) -> bool:
        """Wait until the log may have grown; return False after a timeout.

        Raises NotAThreadError then for a thread that is gone.
        """

    def fileno(self) -> int:
        """Return a descriptor that can be read when `wait(0)` may return True; -1 for none."""

    def nudge(self) -> None:
        """Let `wait` return soon, if the engine can; another OS thread calls it, at any time."""

    def close(self) -> None:
        """Stop watching."""

    def __enter__(self) -> Watcher:
        """Return the watcher."""

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Stop watching."""


class Watchers(Protocol):
    """A watcher of many threads of a shared database, by their names."""

    look_at: float  # when it looks by itself: a time of `clock.monotonic`

    def add(self, name: str) -> None:
        """Watch a thread, which is among those that have changed at first."""

    def remove(self, name: str) -> None:
        """Watch a thread no longer."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when `wait(0)` may return names; -1 for none."""

    def nudge(self) -> None:
        """End the wait of another OS thread."""

    def wait(self, seconds: float) -> set[str]:
        """Return the names of threads that may have changed; none after a timeout."""

    def hold(self, consumers: Collection[tuple[str, str]]) -> None:
        """Refresh the notes that this process works for consumers, by their threads' names."""

    def close(self) -> None:
        """Stop watching."""


class Lease(Protocol):
    """The right to supervise one consumer. While it is held, no other process runs its handler.

    It survives `close` and is handed over to a fork, which keeps `fds` open.
    """

    @property
    def fence(self) -> int:
        """A number that rises with each holder, 0 where the holder cannot lose it unawares."""

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors that hold it, if any."""

    @property
    def renew_every(self) -> float | None:
        """After how many seconds it has to be renewed; None if it lasts as long as its process."""

    @property
    def deadline(self) -> float | None:
        """When it ends unless it is renewed, as `clock.monotonic` says; None as above."""

    def renew(self) -> bool:
        """Hold it for longer; return False when it is lost."""

    def note(self, handler: int | None = None) -> None:
        """Write down who holds it: this process, and the handler that it runs.

        Raises BusyError when it is lost.
        """

    def orphan(self) -> int | None:
        """Return the pid of a handler that the last holder left running here, or None."""

    def release(self) -> None:
        """Let others take it; `forget` or `close` follows."""

    def forget(self) -> None:
        """Note that this holder has looked for the last time, unless there is another by now."""

    def close(self) -> None:
        """Leave it to the process that inherited it."""


class Hold(Protocol):
    """A worker's note that it looks after a consumer: while it is fresh, pushes start nothing.

    `Leases` know it by its `name`.
    """

    name: str

    def renew(self) -> None:
        """Refresh its time: it is fresh for ten seconds. Raises OSError."""

    def release(self) -> None:
        """Let pushes start handlers again; the worker looks for events after that."""


class Leases(Protocol):
    """Who supervises the consumers of a thread."""

    def is_noted(self, consumer: str) -> bool:
        """Return whether there was a holder when this object was created, or a worker was lost."""

    def leave_out(self, name: str) -> None:
        """Take a hold of this process for none: it is neither lost nor another worker's."""

    def is_held(self, consumer: str) -> bool:
        """Return whether somebody holds the lease of a consumer, by now."""

    def is_worked(self, consumer: str) -> bool:
        """Return whether a worker's fresh hold was there when this was created, and still is."""

    def is_lost(self, consumer: str) -> bool:
        """Return whether a consumer lost its supervisor or its worker: noted, and not held."""

    def forget_lost(self, consumer: str) -> None:
        """Remove what lost workers have left; the caller has the lease, and looks for events."""

    def wake(self, consumer: str) -> None:
        """Wake the supervisor of a consumer, if there is one."""


class Mirrored(Protocol):
    """What a mirror needs of a thread."""

    @property
    def events(self) -> Events:
        """The events."""

    @property
    def exclusive(self) -> AbstractContextManager[object]:
        """As that of a database."""

    def alive(self) -> int:
        """As that of a database."""


class Database(Log, Protocol):
    """One thread in one engine: owns connections, migration and the translation of errors.

    The areas of the memory are behind `memory`.
    """

    place: str  # the path or the URL that errors name
    on_refusal: Callable[[EventqError], object] | None  # called with what the engine refuses
    on_failure: Callable[[str, Exception], object] | None  # with a subscriber and its error
    on_outcomes: Callable[[Sequence[Outcome]], object] | None  # with attempts that did not succeed

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""

    @property
    def memory(self) -> Engine:
        """The same database, with the areas beside the log."""

    def faults(self) -> Iterable[str]:
        """Return a sentence for each fault of the log, at most 20 of a kind.

        What the engine finds wrong with itself is among them.
        """

    def in_write(self) -> bool:
        """Return whether this OS thread is inside `write`."""

    @property
    def identity(self) -> str:
        """What tells this thread from a later one at its place; the same however it is opened."""

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that opened it."""

    @property
    def exclusive(self) -> AbstractContextManager[object]:
        """Excludes this process's other threads; taken before a lock that is held while reading."""

    def check_open(self) -> None:
        """Raise ClosedError after `close`, and in a forked process."""

    def alive(self, *, thorough: bool = False) -> int:
        """Return a number that changes with the files of the thread's directory.

        It looks at all of them about once a second, or if it is `thorough`. Raises NotAThreadError
        when the thread was deleted or replaced.
        """

    def has_memory(self) -> bool:
        """Return whether there are turns and outputs: a thread of the original tool has none."""

    def has_causes(self) -> bool:
        """Return whether causes are noted: a thread of an older eventq that is read has none."""

    def has_usage(self) -> bool:
        """Return whether usage is noted: a thread of an older eventq that is read has none."""

    def stated_causes(self) -> Sequence[tuple[str, int]]:
        """Return the events that cause what is written now: where each is, and its id."""

    def has_queues(self) -> bool:
        """Return whether there are claims; in a thread of the original tool there are none."""

    def write(self, *, relaxed: bool = False) -> AbstractContextManager[object]:
        """Return a context manager that makes everything inside it one change."""

    def read(self) -> AbstractContextManager[Log]:
        """Return a context manager for what is committed when its block begins.

        What is read through it is of that one moment, whatever is committed meanwhile; of a
        transaction under way it shows nothing. Nothing is stored through it.
        """

    def lease(self, consumer: str) -> Lease | None:
        """Take the lease of a consumer; return None while somebody else holds it."""

    def hold(self, consumer: str) -> Hold:
        """Note that this process works for a consumer. Raises OSError when that fails."""

    def leases(self) -> Leases:
        """Return who holds which leases."""

    def ring(self) -> None:
        """Wake all watchers of the thread, in every process."""

    def interrupt(self) -> None:
        """End the statement that another thread runs, if there is one. Raises ClosedError."""

    def subscribe(self, name: str, subscriber: Callable[[Commit], object]) -> None:
        """Call a subscriber with each transaction that stores events, once it has committed."""

    def on_commit(self, effect: Callable[[], None]) -> None:
        """Run an effect after the outermost commit, or now outside `write`."""

    def compact(self) -> None:
        """Return the space of deleted rows to the system."""

    def stats(self) -> Stats:
        """Return the sizes of what is stored."""

    def close(self) -> None:
        """Close the connections."""
