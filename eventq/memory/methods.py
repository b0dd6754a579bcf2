"""The methods that a local `Thread` and a client of a served one share: contexts, turns, blobs.

Annotate code that accepts either with `Memory`. These protocols are for type checkers: no program
imports this module. The methods are documented in the classes of a local thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import BinaryIO, Self

    from eventq.records.turn import Blob, ContextInfo, Move, OpenInfo, Page, Turn

    Name = str | bytes  # of a blob: its ref, the hex digits of its hash, or the hash
    Which = int | str  # a context's id, or its name
    Ids = list[int]
    Data = bytes | bytearray | memoryview | BinaryIO


class MemoryChain(Protocol):
    """Some turns of one chain, oldest first, read page by page when iterated."""

    def __len__(self) -> int:
        """Return the number of turns."""

    def __iter__(self) -> Iterator[Turn]:
        """Yield the turns."""


class MemoryDiff(Protocol):
    """The difference of two chains: `ancestor` is the last turn that they share, 0 for none."""

    @property
    def ancestor(self) -> int:
        """The last turn that both have, 0 for none."""

    @property
    def mine(self) -> MemoryChain:
        """The turns that only the first has."""

    @property
    def theirs(self) -> MemoryChain:
        """The turns that only the second has."""


class MemoryView(Protocol):
    """A chain from its root to a head."""

    def head_id(self) -> int:
        """Return the newest turn, 0 for none."""

    def last(self, limit: int = 64, *, payload: bool = True, as_of: int | None = None) -> Page:
        """Return the newest turns."""

    def before(
        self, turn_id: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None
    ) -> Page:
        """Return the turns above one of this chain."""

    def range(
        self, start_depth: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None
    ) -> Page:
        """Return the turns from a depth on."""

    def replay(
        self, *, payload: bool = True, as_of: int | None = None, start_depth: int = 0
    ) -> MemoryChain:
        """Return the whole chain, from the root or a depth on."""

    def at(self, turn_id: int) -> MemoryView:
        """Return the chain up to a turn of this one."""

    def ancestor(self, depth: int) -> int:
        """Return the turn at a depth, 0 for none."""

    def has(self, turn_id: int) -> bool:
        """Return whether a turn is on this chain."""

    def common_ancestor(self, other: MemoryView) -> int:
        """Return the last turn that two chains of one memory share, 0 for none."""

    def diff(
        self, other: MemoryView, *, payload: bool = True, as_of: int | None = None
    ) -> MemoryDiff:
        """Compare two chains of one memory after the last turn that they share."""


class MemoryOpenTurn(Protocol):
    """A turn that is still being written."""

    @property
    def id(self) -> int:
        """Its number."""

    def info(self) -> OpenInfo:
        """Return its state."""

    def append_delta(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append bytes or text, and return how many bytes there are now."""

    def read(self) -> Iterator[bytes]:
        """Yield the bytes so far."""

    def seal(
        self,
        *,
        flags: int = 0,
        refs: Iterable[Name] = (),
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
    ) -> Turn:
        """Append what was written as one turn, and return the turn."""

    def discard(self) -> None:
        """Drop what was written."""


class MemoryContext(MemoryView, Protocol):
    """A branch: a head that moves over turns."""

    @property
    def id(self) -> int:
        """Its number."""

    def info(self) -> ContextInfo:
        """Return name, head, depth and lineage."""

    def append(
        self,
        payload: object,
        *,
        parent: int | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
    ) -> Turn:
        """Store a turn after the head, and return it without its payload."""

    def patch(self, turn_id: int, payload: object) -> int:
        """Replace a turn's payload for all readers; return the patch's number."""

    def tombstone(self, turn_id: int) -> int:
        """Hide a turn's payload; return the patch's number."""

    def fork(self, *, at: int | None = None, name: str | None = None) -> MemoryContext:
        """Create a context at the head or at a turn of this chain, and return it."""

    def move(self, to: int, *, expected_head: int | None = None) -> ContextInfo:
        """Move the head to any turn, 0 for none."""

    def history(self) -> Iterator[Move]:
        """Yield the moves of the head, oldest first."""

    def delete(self) -> None:
        """Delete the context."""

    def open_turn(
        self, *, type_id: str = "message", type_version: int = 1, encoding: int = 0
    ) -> MemoryOpenTurn:
        """Begin a turn that is written delta by delta."""

    def open_turns(self) -> list[OpenInfo]:
        """Return the turns of this context that are open."""


class MemoryTurns(Protocol):
    """The graph of the turns."""

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two turns, 0 for none."""

    def depth(self, turn_id: int) -> int:
        """Return the depth of a turn."""

    def ancestor(self, turn_id: int, depth: int) -> int:
        """Return the turn at a depth at or above another, 0 for none."""


class MemoryContexts(Protocol):
    """The contexts of a memory."""

    @property
    def turns(self) -> MemoryTurns:
        """The graph of the turns."""

    def create(self, name: str | None = None, *, base: int = 0) -> MemoryContext:
        """Create a context that is empty, or whose head is any turn."""

    def fork(
        self, context: MemoryContext | Which, *, at: int | None = None, name: str | None = None
    ) -> MemoryContext:
        """Create a context at the head of another or at a turn of its chain."""

    def get(self, context: Which) -> MemoryContext:
        """Return the context of an id or a name."""

    def list(self, after: int = 0) -> Iterator[ContextInfo]:
        """Yield all contexts after an id, by id."""

    def __iter__(self) -> Iterator[ContextInfo]:
        """Yield all contexts, by id."""

    def head(self, context: MemoryContext | Which) -> int:
        """Return the newest turn of a context, 0 for none."""

    def compare_and_set(
        self, context: MemoryContext | Which, to: int, *, expected_head: int
    ) -> ContextInfo:
        """Move a head if it is at the expected turn."""

    def delete(self, context: MemoryContext | Which) -> None:
        """Delete a context."""

    def history(self, context: MemoryContext | Which) -> Iterator[Move]:
        """Yield the moves of a head, oldest first."""

    def turn(self, turn_id: int, *, payload: bool = True, as_of: int | None = None) -> Turn:
        """Return any turn."""

    def at(self, turn_id: int) -> MemoryView:
        """Return the chain from its root to any turn."""

    def children(self, turn_id: int, limit: int = 100) -> Ids:
        """Return the turns whose parent is this one."""

    def patch(self, turn_id: int, payload: object) -> int:
        """Replace a turn's payload for all readers; return the patch's number."""

    def tombstone(self, turn_id: int, *, flags: int = 0) -> int:
        """Hide a turn's payload; return the patch's number."""

    def attach(self, turn_id: int, root: Name) -> None:
        """Set the root of a turn's file tree."""

    def root(self, turn_id: int) -> bytes | None:
        """Return the root of a turn, or of its nearest ancestor with one."""

    def open_turns(self) -> Iterator[OpenInfo]:
        """Yield the open turns of all contexts."""

    def open_turn(self, open_id: int) -> MemoryOpenTurn:
        """Return an open turn, to continue or seal it."""


class MemoryBlobs(Protocol):
    """The blobs of a memory."""

    def put(
        self,
        data: Data,
        *,
        refs: Iterable[Name] = (),
        expect_hash: Name | None = None,
        expect_size: int | None = None,
    ) -> Blob:
        """Store bytes, or the content of a binary file."""

    def get(self, name: Name) -> bytes | None:
        """Return the bytes of a blob, or None."""

    def stream(self, name: Name) -> Iterator[bytes]:
        """Yield the bytes of a blob in pieces."""

    def has(self, name: Name) -> bool:
        """Return whether a blob is stored."""

    def stat(self, name: Name) -> Blob:
        """Return a blob's sizes without its bytes."""

    def __iter__(self) -> Iterator[Blob]:
        """Yield all blobs by hash."""

    def __len__(self) -> int:
        """Return the number of blobs."""

    def refs(self, name: Name) -> list[str]:
        """Return the refs that were stored with a blob."""

    def holders(self, name: Name, limit: int = 100) -> list[str]:
        """Return what keeps a blob from collection."""

    def verify(self, name: Name | None = None) -> list[str]:
        """Read a blob, or all, from the disk; return a sentence about each damaged one."""

    def faults(self) -> Iterator[str]:
        """Yield a sentence about each damaged blob."""

    def pins(self) -> list[tuple[str, str]]:
        """Return owner and hash of every pin, sorted."""

    def pin(self, name: Name, owner: str) -> None:
        """Keep a blob until it is unpinned by the same owner."""

    def unpin(self, name: Name, owner: str) -> bool:
        """Remove an owner's pin; return False when there was none."""


class Memory(Protocol):
    """The memory of a thread, which is open here or served elsewhere."""

    @property
    def path(self) -> str:
        """The directory of the thread, or the address of its server."""

    @property
    def contexts(self) -> MemoryContexts:
        """The contexts."""

    @property
    def blobs(self) -> MemoryBlobs:
        """The blobs."""

    def __enter__(self) -> Self:
        """Return the memory."""

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close it."""

    def close(self) -> None:
        """Close it; closing twice is fine."""
