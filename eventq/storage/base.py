"""The interface between the domain and its engines: no SQL, no engine.

Imported by type checkers and tests only; at run time the domain gets an object and calls it.

Every operation joins the `write()` of its OS thread if there is one, reads what that wrote, and is
otherwise a transaction of its own. Blobs are named by their digests, never by the keys of an
engine. The domain hashes, cuts, compresses, canonicalises and validates; engines store opaque
pieces of at most 1 MiB. Durations cross the seam, never deadlines: an engine has a clock of its
own. Pages are lists: nothing stays open when an operation has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eventq.event import (
        Appended,
        Bounds,
        Commit,
        ConsumerState,
        Event,
        EventPage,
        LinePage,
        NewEvent,
        Popped,
    )
    from eventq.records import ContextInfo, Move, OpenInfo, RunInfo
    from eventq.storage.rows import BlobRow, HeadState, Piece, PreparedBlob, TurnRow


class Events(Protocol):
    """The log: numbered from 1 without gaps, in the order of the commits."""

    def add(self, new: NewEvent) -> Event:
        """Store one event that has no key and names no blob."""

    def append(
        self,
        new: Sequence[NewEvent],
        refs: Mapping[int, Collection[bytes]] | None = None,
        at: str | None = None,
    ) -> Appended:
        """Store events in order, but for those whose key was used before.

        `refs` are the blobs that events name, by their place in `new`; `at` is the time of an
        earlier part of the same batch, as that was told.
        """

    def get(self, number: int) -> Event | None:
        """Return one event, or None."""

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run, "" for all. Raises FilterError."""

    def page(self, text: str, after: int, upto: int, limit: int) -> EventPage:
        """Return the next events with `after` < id <= `upto` that match an accepted filter.

        There may be fewer than `limit`, or none, though the search has not got to `upto` yet.
        """

    def lines(self, text: str, after: int, upto: int, limit: int) -> LinePage:
        """Return what `page` returns as lines of JSON."""

    def newest(self, text: str, upto: int, limit: int) -> list[Event]:
        """Return the newest events with id <= `upto` that match, oldest first."""

    def blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Yield the events of a range as NDJSON in blocks of bounded size."""

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Return the lowest id of a range that matches, or None."""

    def could_match(self, text: str, after: int, upto: int, seconds: float) -> bool:
        """Return whether an id of a range may match, as far as so much processor time tells."""

    def count(self, text: str, after: int, upto: int) -> int:
        """Count the ids of a range that match."""

    def latest(self, by: str) -> list[Event]:
        """Return the newest event of each `source` or `type`."""

    def first(self) -> int:
        """Return the id of the oldest stored event, 0 for none."""

    def last(self) -> int:
        """Return the id of the newest event there ever was, 0 for none. Asked often."""

    def from_end(self, count: int) -> int:
        """Return the id of the `count`-th newest event, or of the oldest; 0 for none."""

    def bounds(self) -> Bounds:
        """Return the ids of the oldest and the newest event, and how many are stored."""

    def prune(self, before: int) -> int:
        """Delete the events below an id; return their number."""


class Consumers(Protocol):
    """Subscriptions, and how far each has got."""

    def get(self, consumer: str) -> ConsumerState | None:
        """Return the state of one consumer, or None."""

    def all(self) -> list[ConsumerState]:
        """Return the state of every consumer, oldest subscription first."""

    def any(self) -> bool:
        """Return whether there is a subscription. Asked by every push."""

    def put(
        self, consumer: str, handler: str, filter: str | None, attempts: int, timeout: float | None
    ) -> bool:
        """Store a subscription; return False when there is one of that name."""

    def delete(self, consumer: str) -> bool:
        """Delete a subscription, keeping its progress; return False when there is none."""

    def pop(self, consumer: str, acked: int, limit: int, *, lines: bool = False) -> Popped:
        """Ack up to an id, and return the next page of matching events.

        A filter that fails leaves the ack where it was. Raises UnknownConsumerError, AckError,
        FilterError.
        """

    def read_on(
        self, consumer: str, after: int, limit: int, *, lines: bool = False
    ) -> EventPage | LinePage:
        """Return the next page of matching events without an ack."""

    def ack(self, consumer: str, acked: int) -> Popped:
        """Ack up to an id; a lower one than before asks for a replay."""

    def start_at(self, consumer: str, acked: int) -> None:
        """Note that a new consumer wants what comes after an event."""

    def note_scanned(self, state: ConsumerState, upto: int) -> None:
        """Note that no event after the acked one up to `upto` matches."""

    def note_attempts(self, state: ConsumerState, attempts: int) -> None:
        """Note how many runs in a row made no progress."""

    def stall(self, state: ConsumerState, reason: str) -> None:
        """Note why no handler is started any more, until an ack."""

    def end_stall(self, consumer: str) -> None:
        """End a stall and forget the attempts."""


class Blobs(Protocol):
    """Bytes by their digest: small ones in one piece, long ones as a list of parts."""

    def find(self, digests: Sequence[bytes]) -> dict[bytes, BlobRow]:
        """Return the rows of those that are stored, parts included."""

    def parts(self, digest: bytes) -> list[bytes]:
        """Return the digests of a blob's parts, in order; [] for one in one piece."""

    def read(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the pieces of those that have one, as they are kept; at most 8 MiB a call."""

    def put(self, blob: PreparedBlob, *, heal: bool = False) -> tuple[BlobRow, bool]:
        """Store a blob and its refs; return its row, and whether it was not there before.

        With `heal` the stored bytes are replaced. Raises UnknownBlobError for a ref to a blob that
        is not stored, BusyError for a part that is not.
        """

    def put_parts(self, pieces: Sequence[Piece], *, heal: bool = False) -> set[bytes]:
        """Store parts ahead of the blob that will list them; return the digests that were there."""

    def add_refs(self, digest: bytes, refs: Sequence[bytes]) -> None:
        """Note that a blob names others. Raises UnknownBlobError."""

    def page(self, after: bytes, limit: int) -> list[BlobRow]:
        """Return the next blobs in the order of their digests, parts left out."""

    def scan(self, cursor: object, room: int) -> tuple[list[tuple[BlobRow, bytes | None]], object]:
        """Return the next blobs, parts included, in the order they lie, each with its piece.

        None begins, and comes back at the end; in between the cursor is the engine's business.
        """

    def count(self) -> int:
        """Return the number of blobs, parts left out."""

    def refs(self, digests: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return the digests that each of some blobs names, sorted."""

    def holders(self, digest: bytes, limit: int) -> list[tuple[str, str]]:
        """Return kind and name of what keeps a blob, at most `limit` of a kind."""

    def pin(self, owner: str, digest: bytes, *, keep: bool) -> bool:
        """Pin or unpin a blob; return whether that changed anything."""

    def pins(self) -> list[tuple[str, bytes]]:
        """Return owner and digest of every pin, sorted."""


class Turns(Protocol):
    """The graph of turns, their patches and roots."""

    def append(self, context: int, new: PreparedTurn) -> tuple[TurnRow, bool]:
        """Store a turn after the head, or after `new.parent`, and move the head to it.

        Blob, turn, head, move, key, the end of the open turn that it seals and the event that
        tells of it are one change. Return the turn, and whether its blob was stored just now; with
        a key that was used before, the first turn. Raises ConflictError, UnknownContextError,
        UnknownTurnError, UnknownBlobError.
        """

    def chain(self, turn: int, count: int, as_of: int | None) -> list[TurnRow]:
        """Return a turn and those above it, newest first, with patches up to `as_of` (None: all)."""

    def ancestor(self, turn: int, depth: int) -> int:
        """Return the turn at a depth at or above another, 0 when there is none."""

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two turns, 0 for none."""

    def nearest(self, turn: int, flag: int) -> tuple[int, int] | None:
        """Return id and depth of the nearest turn at or above another with a flag, or None."""

    def children(self, turn: int, limit: int) -> list[int]:
        """Return the first turns whose parent is this one."""

    def patch(self, turn: int, blob: PreparedBlob | None, flags: int) -> int:
        """Lay a payload, or None for a tombstone, over a turn's; return the patch's number."""

    def last_patch(self) -> int:
        """Return the number of the newest patch there ever was."""

    def attach(self, turn: int, root: bytes) -> None:
        """Give a turn the root of a file tree."""

    def root(self, turn: int) -> bytes | None:
        """Return the root of a turn or of its nearest ancestor with one."""


class PreparedTurn(Protocol):
    """What `Turns.append` stores; see `eventq.dag.turns`."""

    blob: PreparedBlob
    type_id: str
    type_version: int
    encoding: int
    flags: int
    canonical: str | None
    parent: int | None
    expected_head: int | None
    key: str | None
    key_digest: bytes
    source: str | None  # of the event that tells of the turn, or None
    seals: int | None  # the open turn that becomes this one
    seals_size: int


class Contexts(Protocol):
    """Heads that move over turns."""

    def create(self, name: str | None, base: int | None, fork_of: int | None) -> ContextInfo:
        """Store a context. Raises ConflictError for a name that is taken."""

    def get(self, which: int | str) -> ContextInfo | None:
        """Return a context by its id or name."""

    def head(self, context: int) -> HeadState | None:
        """Return where a context stands."""

    def page(self, after: int, limit: int) -> list[ContextInfo]:
        """Return the next contexts by id."""

    def move(self, context: int, to: int, op: str, *, expected: int | None) -> ContextInfo:
        """Move a head and log it. Raises ConflictError, UnknownTurnError."""

    def history(self, context: int, after: int, limit: int) -> list[Move]:
        """Return the next moves of a head."""

    def delete(self, context: int) -> None:
        """Delete a context; its turns and moves stay. Raises ConflictError while turns are open."""

    def key(self, context: int, key: str) -> tuple[int, bytes] | None:
        """Return turn and digest of an append with a key in the last 24 hours."""


class Streams(Protocol):
    """Bytes that grow: open turns and artifacts."""

    def opened(self, context: int | None) -> list[OpenInfo]:
        """Return the turns that are still being written, of a context or all."""


class Runs(Protocol):
    """The workflow runs on contexts."""

    def get(self, context: int) -> RunInfo | None:
        """Return a run, or None for a context that is none."""

    def page(self, after: int, limit: int, *, group: str | None, active: bool) -> list[RunInfo]:
        """Return the next runs by id."""


class Log(Protocol):
    """The events of a thread and their consumers."""

    events: Events
    consumers: Consumers


class Memory(Protocol):
    """What was said."""

    blobs: Blobs
    turns: Turns
    contexts: Contexts
    streams: Streams
    runs: Runs


class Database(Log, Protocol):
    """One thread in one engine: owns connections, migration and the translation of errors."""

    identity: str  # tells this thread from a later one at the same place
    writable: bool

    def write(self, *, relaxed: bool = False) -> AbstractContextManager[object]:
        """Return a context manager that makes everything inside it one change."""

    def subscribe(self, name: str, subscriber: Callable[[Commit], object]) -> None:
        """Have a subscriber learn of each transaction that stores events, once it has committed."""

    def on_commit(self, effect: Callable[[], None]) -> None:
        """Run an effect after the outermost commit, or now outside `write`."""

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is broken."""

    def compact(self) -> None:
        """Give the space of deleted rows back."""

    def free_bytes(self) -> int:
        """Return the space that deleted rows have left."""

    def close(self) -> None:
        """Close the connections."""
