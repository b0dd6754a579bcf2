"""The interface that the domain uses and storage engines implement. It contains no SQL.

Only type checkers and tests import this module; at run time the domain gets an object and calls it.

Every operation joins the `write()` of its OS thread if there is one, and sees what that wrote;
otherwise it is a transaction of its own. Blobs are named by their digests, never by an engine's
keys. The domain hashes, cuts, compresses, canonicalises and validates; engines store opaque pieces
of at most 1 MiB. The interface passes durations, never deadlines, as an engine has its own clock.
Pages are lists, so nothing stays open after an operation has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from eventq.errors import EventqError
    from eventq.records.artifact import OutputInfo
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
    from eventq.records.info import Erasure, Overview, Stats
    from eventq.records.rows import Rows, Values
    from eventq.records.run import RunChange, RunInfo
    from eventq.records.turn import ContextInfo, Move, OpenInfo
    from eventq.store.copied import (
        AliasCopy,
        AttemptCopy,
        ContextCopy,
        ErasedCopy,
        FileCopy,
        LastIds,
        LineCopy,
        OutputCopy,
        PatchCopy,
        PinCopy,
        RefCopy,
        Restorable,
        RootCopy,
        RunCopy,
        SessionCopy,
        TipCopy,
        TurnCopy,
    )
    from eventq.store.output_rows import ArtifactRow, FileRow, ScopeRow
    from eventq.store.queue_rows import (
        ClaimRow,
        DeadRow,
        Outcome,
        QueueStatus,
        Settled,
        Taken,
        Verdict,
        Worker,
    )
    from eventq.store.run_rows import (
        PreparedAttempt,
        PreparedRun,
        PreparedStep,
        RunChoice,
        RunState,
    )
    from eventq.store.session_rows import LineLink, NewLine, SessionRow, StoredLine, Tip
    from eventq.store.turn_rows import (
        AppendTo,
        BlobRow,
        Ending,
        Growth,
        Holder,
        Link,
        Piece,
        PreparedBlob,
        PreparedTurn,
        StreamPiece,
        TurnRow,
    )

Area = Literal["log", "turns", "open turns", "roots", "blobs", "runs", "outputs"]
Row_co = TypeVar("Row_co", covariant=True)
Beside = TypeVar("Beside", "PatchCopy", "AttemptCopy")
Copied = TypeVar(
    "Copied",
    "ContextCopy",
    "ErasedCopy",
    "PatchCopy",
    "RootCopy",
    "RefCopy",
    "RunCopy",
    "AttemptCopy",
    "PinCopy",
    "AliasCopy",
    "OutputCopy",
    "SessionCopy",
    "LineCopy",
    "TipCopy",
    "ScopeRow",
    "FileCopy",
)


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
    ) -> Appended:
        """Store events in order, but for those whose key was used before.

        `refs` are the blobs that events name, by their place in `new`; `at` is the time of an
        earlier part of the same batch, as that was told. Questions among them are open from then
        on, and those that they answer closed. Before anything is stored, answers are refused as
        `asking.check_answers` does.
        """

    def announce(self, source: str, content: str, subtype: str) -> None:
        """Store the event of another change inside `write`, with the refs it names."""

    def get(self, number: int) -> Event | None:
        """Return one event, or None."""

    def keyed(self, key: str) -> Event | None:
        """Return the event that was stored under a key, or None."""

    def times(self, numbers: Collection[int]) -> dict[int, str]:
        """Return when some events were stored, by id, of those that are there."""

    def questions(self, limit: int) -> list[Event]:
        """Return the oldest questions that are open."""

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


class Consumers(Protocol):
    """Subscriptions, and the progress of their consumers."""

    def get(self, consumer: str) -> ConsumerState | None:
        """Return the state of one consumer, or None."""

    def all(self) -> list[ConsumerState]:
        """Return the state of every consumer, oldest subscription first."""

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


class Blobs(Protocol):
    """Bytes by their digest: small ones in one piece, long ones as a list of parts."""

    def find(self, digests: Sequence[bytes]) -> dict[bytes, BlobRow]:
        """Return the rows of those that are stored, parts included."""

    def row(self, digest: bytes) -> BlobRow | None:
        """Return the row of a blob, or None; a mere part is not a blob."""

    def parts(self, digest: bytes) -> list[bytes]:
        """Return the digests of a blob's parts, in order; [] for one in one piece."""

    def read(self, digests: Sequence[bytes]) -> dict[bytes, Piece]:
        """Return the pieces of those that are stored, as they are kept.

        One that is a list, or has lost its bytes, is left out. The caller bounds what it asks for
        at once.
        """

    def put(self, blob: PreparedBlob) -> tuple[BlobRow, bool]:
        """Store a blob and its refs; return its row, and whether it was new.

        New is also what was only a part of others. Stored bytes that differ from the prepared ones
        are replaced, which heals a damaged blob; a sound one is noted as put again. Raises
        UnknownBlobError for a ref to a blob that is not stored, GoneError for a part, or a blob
        that comes without bytes, that is not.
        """

    def put_parts(self, pieces: Sequence[Piece]) -> None:
        """Store parts ahead of the blob that will list them; damaged ones are replaced."""

    def add_refs(self, digest: bytes, refs: Sequence[bytes]) -> None:
        """Note that a blob names others. Raises UnknownBlobError."""

    def page(self, after: bytes, limit: int) -> list[BlobRow]:
        """Return the next blobs in the order of their digests, parts left out."""

    def scan(self, cursor: object, room: int) -> tuple[list[tuple[BlobRow, bytes | None]], object]:
        """Return the next blobs, parts included, in the order they lie, each with its piece.

        At most `room` bytes of pieces, or one blob. None begins, and comes back at the end; in
        between the cursor is the engine's business.
        """

    def count(self) -> int:
        """Return the number of blobs, parts left out."""

    def refs(self, digests: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return the digests that each of some blobs names, sorted; [] for what is not stored."""

    def holders(self, digest: bytes, limit: int) -> list[Holder]:
        """Return what keeps a blob, at most `limit` of a kind."""

    def wholes(self, digest: bytes) -> list[bytes]:
        """Return the digests of all blobs that consist of a part, among others."""

    def pin(self, owner: str, digest: bytes, *, keep: bool) -> bool:
        """Pin or unpin a blob; return whether that changed anything. Raises UnknownBlobError."""

    def pins(self) -> list[tuple[str, bytes]]:
        """Return owner and digest of every pin, sorted."""

    def texts(
        self, cursor: object, limit: int, types: Sequence[str]
    ) -> tuple[list[BlobRow], object]:
        """Return the next blobs whose text may name others, and where to go on, as `scan` does.

        They are payloads, patches, attempts and outputs, and what turns of some types and attempts
        refer to.
        """

    def unnoted(self, digest: bytes, mentions: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the stored blobs that a text mentions and that are no refs of it.

        It mentions each by its digest, or by its SHA-256.
        """

    def sweep(
        self, grace: int, spared: Sequence[bytes], *, apply: bool
    ) -> tuple[int, list[BlobRow]]:
        """Return how many turns are unreachable, and the unreachable blobs by digest.

        Blobs that are `spared`, and what is younger than `grace` milliseconds, count as reachable.
        With `apply` the others are deleted.
        """

    def reachable(self, turns: Sequence[int], digests: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the blobs that some turns and blobs keep, themselves included.

        Sorted, without parts; what is not stored is left out. `sweep` follows the same links.
        """


class Turns(Protocol):
    """The graph of turns, their patches and roots."""

    def append(self, context_id: int, new: PreparedTurn, to: AppendTo) -> TurnRow:
        """Store a turn after the head, or after `to.parent`, and move the head to it; return it.

        Blob, turn, head, move, key, the end of the open turn that it seals and the event that tells
        of it are one change. With a key that was used before, return the first turn and store only
        refs. Raises ConflictError, UnknownContextError, UnknownTurnError, UnknownBlobError,
        GoneError.
        """

    def chain(self, turn_id: int, count: int, as_of: int | None) -> list[TurnRow]:
        """Return a turn and those above it, newest first, patched up to `as_of` (None: all)."""

    def newest(self, before: int, limit: int) -> list[TurnRow]:
        """Return the turns before an id, of whatever context, newest first, with all patches."""

    def page(self, after: int, limit: int, types: Sequence[str]) -> list[TurnRow]:
        """Return the next turns of some types by id, without patches."""

    def link(self, turn_id: int) -> Link | None:
        """Return the link of a turn to its ancestors, or None."""

    def ancestor(self, turn_id: int, depth: int) -> int:
        """Return the turn at a depth at or above another, 0 when there is none."""

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two turns, 0 for none; raise UnknownTurnError."""

    def nearest(self, turn_id: int, flag: int) -> tuple[int, int] | None:
        """Return id and depth of the nearest turn at or above another with a flag, or None."""

    def children(self, turn_id: int, limit: int) -> list[int]:
        """Return the first turns whose parent is this one."""

    def depths(self, digest: bytes) -> list[tuple[int, int]]:
        """Return the depths at which turns have this payload, unpatched, and the first turn."""

    def patch(self, turn_id: int, blob: PreparedBlob | None, flags: int) -> int:
        """Replace a turn's payload, or hide it for None; return the patch's number.

        Raises UnknownTurnError, UnknownBlobError, GoneError.
        """

    def last_patch(self) -> int:
        """Return the number of the newest patch there ever was, 0 when there was none."""

    def attach(self, turn_id: int, root: bytes, *, only_new: bool = False) -> bytes:
        """Set the root of a turn's file tree; with `only_new` a turn keeps one that it has.

        Return the root that it has then. Raises UnknownTurnError.
        """

    def root(self, turn_id: int) -> bytes | None:
        """Return the root of a turn or of its nearest ancestor with one; raise UnknownTurnError."""


class Contexts(Protocol):
    """Heads that move over turns."""

    def create(self, name: str | None, base: int | None, fork_of: int | None) -> int:
        """Store a context at a turn, 0 for none; return its id.

        A fork begins at a turn of the other's chain, or with None at its head. Raises ConflictError
        for a name that is taken and a turn that is not on the chain, UnknownTurnError,
        UnknownContextError.
        """

    def get(self, context_id: int) -> ContextInfo | None:
        """Return a context, or None."""

    def head(self, context_id: int) -> int | None:
        """Return the newest turn of a context, 0 for none; None when there is no context."""

    def named(self, name: str) -> int | None:
        """Return the id of the context of a name, or None."""

    def page(self, after: int, limit: int) -> list[ContextInfo]:
        """Return the next contexts by id."""

    def born(self, after: int, limit: int) -> list[ContextInfo]:
        """Return the next contexts by id, deleted ones too, with the head that they had last.

        A deleted context has neither name nor origin any more.
        """

    def appended(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Return the next turns by id, and the context that each came to, 0 for none.

        That is the context it was appended to, deleted or not; else the first one whose head came
        to it, as that of an import does.
        """

    def move(
        self, context_id: int, to: int, op: str, *, expected: int | None = None, run: bool = False
    ) -> ContextInfo:
        """Move a head and log it; return the new state of the context.

        The head of a run moves only with `run`. Raises ConflictError, with the actual head where
        it is not the `expected` one, UnknownContextError, UnknownTurnError.
        """

    def history(self, context_id: int, after: int, limit: int) -> list[Move]:
        """Return the next moves of a head, of a deleted context too."""

    def delete(self, context_id: int) -> None:
        """Delete a context; its turns stay, and its moves are kept.

        Raises ConflictError while turns of it are open, UnknownContextError.
        """


class Runs(Protocol):
    """Workflow runs: contexts with a status, whose turns are steps.

    Each change of a run is noted under a number of its own, which is higher than all before it. It
    stores an event in the same transaction, if the run has a source, or the setting `runs.emit`
    names one.
    """

    def start(self, new: PreparedRun) -> int:
        """Store a run, its context, its texts and its first turn; return its id.

        Raises ConflictError for a label that is taken, UnknownBlobError, GoneError.
        """

    def fork(self, run_id: int, at: int, label: str | None) -> int:
        """Store a run that goes on from a turn of another, and has its source; return its id.

        Raises ConflictError for a label that is taken, UnknownRunError.
        """

    def step(self, run_id: int, new: PreparedStep) -> TurnRow | None:
        """Store a step: its blobs, its attempts, its turn and the run's status, as one change.

        None, and nothing is stored, when the run does not stand where `new.after` says. Raises
        ConflictError for a head that is not the expected one, UnknownRunError, UnknownBlobError,
        GoneError.
        """

    def attempt(self, run_id: int, new: PreparedAttempt) -> bool:
        """Store a failed step outside the chain; return False where `step` returns None."""

    def set_status(self, run_id: int, status: str, op: str) -> RunInfo:
        """Suspend or resume a run, and log it; return its new state.

        Raises ConflictError when it is not active, or is already; UnknownRunError.
        """

    def state(self, run_id: int, key: str | None = None) -> RunState:
        """Return the state of a run, and what was stored with a key; raise UnknownRunError."""

    def has(self, context_id: int) -> bool:
        """Return whether a context is that of a run."""

    def get(self, run_id: int) -> RunInfo | None:
        """Return a run, or None for a context that is none."""

    def page(self, after: int, limit: int, choice: RunChoice) -> list[RunInfo]:
        """Return the next runs of a choice by id."""

    def last_change(self) -> int:
        """Return the number of the newest change of a run, 0 for none."""

    def changes(
        self, after: int, upto: int, limit: int, group: str | None
    ) -> list[tuple[int, RunChange]]:
        """Return number and run of the next changes after one and up to another, of a group or all.

        Each run is there at most once: with its last change, and as it is at this moment.
        """

    def attempts(self, parent: int) -> list[bytes]:
        """Return the digests of the attempts after a turn, oldest first."""

    def attempted(self, digest: bytes, limit: int) -> list[int]:
        """Return the first turns that an attempt of this digest comes after."""

    def all_attempts(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return number and digest of the next attempts of all runs."""

    def starts(self) -> set[int]:
        """Return the turns that runs start at."""

    def started(self, start: int, limit: int) -> list[int]:
        """Return the first runs that start at a turn."""


class Erasures(Protocol):
    """What was erased, when and why."""

    def get(self, kind: str, name: str) -> Erasure | None:
        """Return an erasure, or None."""

    def page(self, after: int, limit: int) -> list[tuple[int, Erasure]]:
        """Return the next erasures and their numbers, in the order in which they began."""

    def begin(self, kind: str, name: str, reason: str | None) -> int:
        """Note that something is being erased, inside `write`; return the erasure's number.

        One that is done again without a reason keeps the reason of before.
        """

    def of_blob(self, digest: bytes) -> Erasure | None:
        """Return the erasure that took the bytes of a blob, or None."""

    def blobs(self, number: int, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """Erase the bytes of blobs with an erasure, inside `write`.

        Each is a digest and what is shown in its place. Parts that no other blob has go too.
        """

    def patches(self, turn: int) -> list[bytes]:
        """Return the digest of each patch on a turn that is no tombstone."""

    def keep(self, blob: ErasedCopy) -> bool:
        """Store a blob that was erased elsewhere; return False if its hash is here already."""

    def finish(self, kind: str, name: str) -> None:
        """Note that nothing is left of what was erased."""

    def forget(self, kind: str, names: Iterable[str]) -> None:
        """Forget the erasures of some things of a kind."""

    def texts(self) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
        """Yield what tables hold as text, a few MiB at a time: the table, and rows.

        A row begins with its name, which holds no text; b"" is a value that is missing.
        """

    def pieces(self) -> Iterator[tuple[str, list[tuple[int, int, int, bytes]]]]:
        """Yield what is stored in pieces, a few MiB at a time: the kind, and rows.

        A row is a number, the position of a piece, its codec and its bytes; pieces of one number
        follow one another. The kinds are `blob`, `long blob`, `artifact` and `open turn`.
        """

    def place(self, kind: str, number: int) -> tuple[str, bytes] | None:
        """Return the name of what a number of `pieces` stands for, and its digest if it is a blob.

        That of an artifact is its scope, its number and its status. None if it is gone.
        """

    def said(self, number: int) -> None:
        """Erase what was said of attempts at an event, and leave the event."""

    def event(self, number: int, reason: str | None) -> list[int]:
        """Erase the content of an event; return the events whose content has changed.

        What was said of attempts at it goes too, also in the events that report its death. Raises
        ConflictError while a worker has leased it.
        """


class ThreadSettings(Protocol):
    """The settings of a thread that were changed."""

    def get(self, name: str) -> str | None:
        """Return the value of a setting; None for one that was not changed."""

    def put(self, name: str, value: str | None) -> None:
        """Change a setting; None forgets its value."""


class Streams(Protocol[Row_co]):
    """Growing byte sequences: the operations that open turns and artifacts share.

    A stream is open until it ends. Its pieces are durable once `append` has returned outside of
    `write`. An open stream can be read by others, and one whose writer has died is still there.
    """

    def get(self, number: int) -> Row_co | None:
        """Return the state of a stream, or None."""

    def append(
        self,
        number: int,
        growth: Growth,
        *,
        owner: str | None = None,
        was: int | None = None,
        most: int | None = None,
    ) -> int | None:
        """Add pieces to an open stream; return its size.

        Changes nothing and returns None for a stream that is not there, is not open, has another
        owner, had another size than `was`, or would have more than `most` bytes.
        """

    def read(self, number: int, position: int, room: int) -> list[StreamPiece]:
        """Return the piece at a position, and those after it as long as all hold `room` bytes.

        They follow one another without a gap; [] where there is none.
        """

    def find_line(self, number: int, newline: int) -> tuple[int, int]:
        """Return a position from which the n-th newline is found, and the newlines before it.

        It is the nearest one where lines are counted, else the beginning.
        """

    def end(
        self,
        number: int,
        ending: Ending,
        growth: Growth | None = None,
        *,
        owner: str | None = None,
        was: int | None = None,
    ) -> Row_co | None:
        """End an open stream, after a last growth, as one change; return its row.

        Changes nothing and returns None where `append` would.
        """


class OpenTurns(Streams["OpenInfo"], Protocol):
    """Open turns, which are still being written. Any caller that has the number can continue one.

    Their pieces are the bytes themselves. Ending one drops it: its payload is a blob by then.
    """

    def create(self, context: int, type_id: str, type_version: int, encoding: int) -> int | None:
        """Begin an open turn and return its number; None where there is no context, or a run's."""

    def page(self, after: int, limit: int, *, context: int | None = None) -> list[OpenInfo]:
        """Return the next open turns by number, of a context or all."""


class Artifacts(Streams["ArtifactRow"], Protocol):
    """Numbered outputs of tools; each is written by its owner only, and stays when it has ended.

    A piece that is appended at the last position replaces that one, which was not full. All are
    those of one scope, which is the thread's unless `of` was called.
    """

    def of(self, scope: int) -> Artifacts:
        """Return the artifacts of another scope."""

    def create(
        self, tool: str, owner: str, *, number: int | None = None, at: int | None = None
    ) -> int:
        """Begin an artifact and return its number: the next one, unless it is given.

        No number is given twice. `at` is the time that it began at, unless that is now.
        """

    def page(self, after: int, limit: int, *, status: str | None = None) -> list[ArtifactRow]:
        """Return the next artifacts by number, with a status or all; -1 begins."""

    def count(self, *, status: str | None = None) -> int:
        """Return the number of artifacts, with a status or all."""

    def alike(self, tool: str, size: int, digest: bytes) -> list[ArtifactRow]:
        """Return the artifacts of a tool and size that have a digest, or none yet, by number."""

    def is_unused(self, number: int) -> bool:
        """Return whether a number was never given."""

    def reserve(self, number: int) -> None:
        """Reserve all numbers up to this one."""

    def remove(self, number: int) -> bool:
        """Delete an artifact; its number is not given again. Return False when there is none."""


class Scopes(Protocol):
    """What artifacts and outputs are numbered in: 0 is the thread, others begin with a context."""

    def of_context(self, context: int) -> int | None:
        """Return the scope of a context; None when there is no such context."""

    def get(self, scope: int) -> ScopeRow | None:
        """Return a scope that something was produced in, or None."""

    def named(self, name: str) -> int | None:
        """Return the scope of a name, or None."""

    def page(self, after: int, limit: int) -> list[ScopeRow]:
        """Return the next scopes by number, but for the thread's; 0 begins."""

    def born_at(self, times: Iterable[int]) -> list[ScopeRow]:
        """Return the scopes of some times, and the contexts of these that may begin one."""

    def add(self, row: ScopeRow) -> None:
        """Store a scope unless it is there; without its name where that is another one's."""

    def assign(self, context: int, scope: int | None) -> None:
        """Set the scope of a context; None for one of its own."""

    def separate(self, context: int) -> None:
        """Move a context of the thread's scope, and its forks, to a scope of their own."""

    def put_file(self, scope: int, file: FileRow) -> None:
        """Store what a file is, in place of what its path was, or one above or below it.

        No path is a file and a folder. Raises UnknownBlobError.
        """

    def file(self, scope: int, path: str) -> FileRow | None:
        """Return what a file is, or None."""

    def files(self, scope: int, after: str, limit: int) -> list[FileRow]:
        """Return the next files of a scope, by path; "" begins."""


class Sessions(Protocol):
    """Session files, line by line, the turns of their entries, and the tips of their branches."""

    def find(self, name: str, generation: int | None = None) -> SessionRow | None:
        """Return a session by its name: a generation, or the newest."""

    def of_context(self, context: int) -> SessionRow | None:
        """Return the session that a context is a tip of, the newest generation, or None."""

    def page(self, after: int, limit: int) -> list[SessionRow]:
        """Return the next sessions, by id; 0 begins."""

    def newest(self, after: str, limit: int) -> list[str]:
        """Return the names of the next sessions, but for those of subagents; "" begins."""

    def generations(self, name: str) -> list[int]:
        """Return the numbers of a session's generations, the oldest first."""

    def updated_at(self, session: int) -> int:
        """Return when a session was last changed, in milliseconds."""

    def of_turn(self, turn: int) -> SessionRow | None:
        """Return the newest generation of a session that has a turn, or None."""

    def beside(self, owner: str) -> list[SessionRow]:
        """Return the sessions of the subagents in the folder of a session, the newest of each."""

    def create(
        self, name: str, generation: int, tool: str, place: str | None, digest: bytes
    ) -> SessionRow | None:
        """Store a generation of a session, without lines; None if it is there."""

    def move(self, session: int, place: str) -> None:
        """Note where the file of a session is now."""

    def begin_again(self, session: int, tool: str, digest: bytes) -> None:
        """Forget how far a session was read, and with which reader; its lines stay until then.

        `digest` is that of no bytes.
        """

    def keep_beside(self, session: int, owner: str, path: str, started_by: str | None) -> None:
        """Note that a session is that of a subagent; see `SessionRow`."""

    def grow(
        self, was: SessionRow, first: int, new: Sequence[NewLine], size: int, digest: bytes
    ) -> tuple[SessionRow, int] | None:
        """Store lines and their images, from a position on, in place of the lines that are there.

        Return the session as it is now, and how many images are new. `size` and `digest` are those
        of the file up to its last newline. Changes nothing and returns None when the session is not
        as it `was`.
        """

    def settle(self, session: int, position: int | None, missing: str) -> None:
        """Note from where on the tree has to be built when the file has grown; see `SessionRow`."""

    def links(self, session: int, first: int = 0) -> Iterator[LineLink]:
        """Yield how each line is linked, with its turn and that turn's parent, in order."""

    def has_any(self, session: int, before: int, ids: Iterable[str]) -> bool:
        """Return whether a line before a position has one of these ids."""

    def entry_of(self, session: int, turn: int) -> str | None:
        """Return the id of the entry that became a turn."""

    def has_turn(self, session: int, turn: int) -> bool:
        """Return whether a line of a session became a turn."""

    def turns_like(self, session: int, begin: str, limit: int) -> list[int]:
        """Return the turns of entries whose ids begin with a text, one for each id."""

    def turn_of(self, session: int, entry: str) -> int | None:
        """Return the turn of the last line with an id."""

    def lines(self, session: int, after: int, limit: int, *, without: int = 0) -> list[StoredLine]:
        """Return the next lines, by position; -1 begins. None has a flag of its kind `without`."""

    def place(
        self,
        session: int,
        nodes: Sequence[tuple[int, int, int | None]],
        *,
        base: int,
        known: bool,
    ) -> list[int]:
        """Make a turn of each line, under that of another line, which has one by then.

        A line below none, -1, is put under the turn `base`, 0 for none. Return the turns. A line
        that has another turn than the one given keeps it: somebody else was quicker. With `known`,
        a turn that is there with this parent and payload is taken. Raises UnknownTurnError for a
        line that is not there, or has none above it.
        """

    def restore(self, new: SessionCopy, lines: Sequence[LineCopy], over: int | None) -> int:
        """Store a session with lines whose blobs and turns are here; return its id.

        It comes in place of the session `over`, of the same name and generation, if there is one.
        """

    def tips(self, name: str) -> list[Tip]:
        """Return the tips of a session, of all generations."""

    def set_tip(self, context: int, session: int, turn: int | None = None) -> None:
        """Note that an import has left a context at a turn, by default at its head.

        It is the tip of a branch of a session.
        """


class Outputs(Protocol):
    """The versions of agents' outputs, the counters of their numbers, and other names of blobs.

    All but the names of blobs are those of one scope, which is the thread's unless `of` was called.
    """

    def of(self, scope: int) -> Outputs:
        """Return the outputs of another scope."""

    def next_number(self, counter: str) -> int:
        """Return a counter's value, from 0, and increment it."""

    def reserve(self, numbers: Sequence[tuple[str, int]]) -> None:
        """Reserve all numbers up to these."""

    def counters(self) -> dict[str, int]:
        """Return the next number of each counter."""

    def add(self, output: str, digest: bytes, *, at: int | None = None) -> OutputInfo:
        """Store a blob as the next version of an output; return it. Raises UnknownBlobError."""

    def versions(self, output: str, version: int | None = None) -> list[OutputInfo]:
        """Return all versions of an output, or one; [] for what is not there."""

    def page(self, after: tuple[str, int], limit: int) -> list[OutputInfo]:
        """Return the next versions, by output and version; ("", 0) begins."""

    def names(self, after: str, limit: int) -> list[str]:
        """Return the next names of outputs, sorted; "" begins."""

    def count(self) -> int:
        """Return the number of outputs, versions not counted."""

    def has_any(self) -> bool:
        """Return whether there is an artifact or an output."""

    def add_alias(self, sha256: bytes, digest: bytes) -> None:
        """Note the SHA-256 of a blob's bytes. Raises UnknownBlobError."""

    def find_alias(self, sha256: bytes) -> bytes | None:
        """Return the digest of the blob with a SHA-256, or None."""

    def aliases(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the next pairs of SHA-256 and digest, sorted; b"" begins."""


class Copies(Protocol):
    """The operations of exports and imports."""

    def select(self, contexts: Iterable[int | str] | None) -> Selection:
        """Select contexts, by id or name, and what is reachable from them; None selects everything.

        Contexts lead to their chains, to the starts of their runs, and to the blobs of both:
        payloads, patches, attempts, roots, and what these name; and to all that was produced in
        their scopes, but for the thread's. Called inside `read`, where one
        selection replaces the one before. Raises UnknownContextError.
        """

    def alike(self, parent: int, digest: bytes, limit: int | None = None) -> list[TurnCopy]:
        """Return the turns of a parent, 0 for none, and a payload, oldest first."""

    def beside(self, turn: int, kind: type[Beside]) -> list[Beside]:
        """Return the patches on a turn, or the attempts after it, in no order."""

    def is_reached(self, turn: int) -> bool:
        """Return whether a context has a turn on its chain."""

    def last_ids(self) -> LastIds:
        """Return the ids of the newest turn and context there ever were, 0 for none."""

    def restore(self, records: Sequence[Restorable]) -> None:
        """Store records in order under the ids that they have, as one change.

        What a record names is stored, or stands before it. Depths and sizes are not read: they
        follow from what a record names. A context begins at its head. A run that is there gets the
        new status. No event tells of anything. New ids are above all that were restored. Raises
        UnknownTurnError, UnknownBlobError.
        """

    def reserve(self, *, turn: int = 0, context: int = 0) -> None:
        """Reserve all ids of turns and contexts up to these."""


class Selection(Protocol):
    """The objects to be copied. All are read in pages, in the snapshot of one `read`."""

    def add_artifact(self, scope: int, number: int) -> bool:
        """Select an artifact; return False if it was selected before, or is missing."""

    def add_output(self, scope: int, output: str) -> list[bytes]:
        """Select all versions of an output; return the blobs that were not selected before.

        These are those of the versions and what they name, without parts; [] for no such output.
        """

    def blobs(self) -> Iterator[bytes]:
        """Yield the digest of every blob that is no part only, in the order they came."""

    def turns(self, *, canonical: bool = False) -> Iterator[TurnCopy]:
        """Yield every turn, or those with a canonical rule, by id: no turn before its parent."""

    def records(self, kind: type[Copied]) -> Iterator[Copied]:
        """Yield every record of a kind.

        Contexts and runs come by id, patches and attempts oldest first, roots by turn; pins,
        aliases, scopes, files and versions of outputs are sorted. A blob that names others
        comes once with each.
        """

    def artifacts(self) -> Iterator[tuple[int, int]]:
        """Yield scope and number of every artifact, in order."""


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

    Every engine keeps the log. What else a thread may hold is behind `memory`.
    """

    on_refusal: Callable[[EventqError], object] | None  # called with what the engine refuses
    on_failure: Callable[[str, Exception], object] | None  # with a subscriber and its error
    on_outcomes: Callable[[Sequence[Outcome]], object] | None  # with attempts that did not succeed

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""

    @property
    def memory(self) -> Memory:
        """The same database, with the areas beside the log.

        Raises UnsupportedError for an engine that has the log only.
        """

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

    def trace(self) -> object:
        """Return what changes whenever a consumer may become due, or has lost its supervisor."""

    def has_memory(self) -> bool:
        """Return whether there are turns and outputs: a thread of the original tool has none."""

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


class Snapshot(Log, Protocol):
    """All areas: of one moment inside `read`, else of what is stored."""

    @property
    def blobs(self) -> Blobs:
        """The bytes."""

    @property
    def turns(self) -> Turns:
        """The graph."""

    @property
    def contexts(self) -> Contexts:
        """The heads."""

    @property
    def open_turns(self) -> OpenTurns:
        """The turns that are still being written."""

    @property
    def runs(self) -> Runs:
        """The runs."""

    @property
    def erasures(self) -> Erasures:
        """What was erased."""

    @property
    def copies(self) -> Copies:
        """What is copied from thread to thread."""

    @property
    def artifacts(self) -> Artifacts:
        """The outputs of tools."""

    @property
    def outputs(self) -> Outputs:
        """The outputs of agents."""

    @property
    def sessions(self) -> Sessions:
        """Session files of coding agents."""

    @property
    def scopes(self) -> Scopes:
        """What artifacts and outputs are numbered in."""

    @property
    def settings(self) -> ThreadSettings:
        """The settings."""

    def query(
        self,
        text: str,
        values: Values,
        limit: int | None,
        seconds: float,
        payload: Callable[[Any], str | bytes | None],
    ) -> Rows:
        """Run one statement of the engine that only reads, inside `read`, and nothing after it.

        "" lists tables and views. `payload` is the SQL function of that name. Raises UsageError for
        a statement that is refused, InputError for its values, LogicError after `seconds`, and
        without a `limit` TooLargeError for a result that takes too much memory.
        """

    def overview(self, limit: int) -> Overview:
        """Return what goes on in the memory, with so many contexts and artifacts at most."""

    def faults(self, area: Area = "log") -> Iterable[str]:
        """Return a sentence for each fault of the rows of an area, at most 20 of a kind."""

    def write(self) -> AbstractContextManager[object]:
        """Return a context manager that makes everything inside it one change."""


class Memory(Snapshot, Database, Protocol):
    """A database with all areas: blobs, turns, contexts, runs, outputs, sessions, settings."""

    on_first_write: Callable[[], object] | None  # called before it, once the files were opened

    refuses_links: bool  # whether it takes no write to a file with several names

    def restore(self, rows: Sequence[tuple[int, str, NewEvent]]) -> None:
        """Store events again, inside `write`, with the ids and times that they had.

        What their contents say of blobs and questions is noted as when they were pushed.
        """

    def read(self) -> AbstractContextManager[Snapshot]:
        """Return a context manager for what is committed when its block begins."""

    def write(self, *, relaxed: bool = False) -> AbstractContextManager[object]:
        """Return a context manager that makes everything inside it one change."""

    def scrub(self) -> None:
        """Leave nothing in the files of this engine of what was deleted; outside of `write`.

        Readers that still see it are waited for. Raises BusyError with the name of one that goes
        on.
        """
