"""Contexts, which are heads that move over turns and fork, and open turns."""

from __future__ import annotations

from eventq.errors import ConflictError, InputError, TooLargeError, UnknownContextError
from eventq.memory.blobs import LARGEST, PART_BYTES, digest_of, flat
from eventq.memory.streams import first_bytes, pieces_from
from eventq.memory.turns import Turns, View, check_u32, encoded, new_turn
from eventq.records.checks import check_name, check_natural, check_positive
from eventq.records.turn import ContextInfo, Move, NewTurn, OpenInfo, Turn
from eventq.store.rules import open_conflict, run_conflict
from eventq.store.turn_rows import AppendTo, Ending, GoneError, Growth, StreamPiece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, BinaryIO

    from eventq.memory.blobs import Bytes, Name
    from eventq.store.streams import OpenTurns

    Payload = Bytes | str | BinaryIO | dict[str, Any] | list[Any] | NewTurn
    Which = int | str  # a context's id, or its name
    Ids = list[int]

_PAGE = 500
_LONGEST_NAME = 200


class Contexts:
    """The contexts of one thread."""

    def __init__(self, turns: Turns) -> None:
        """Use the turns of a thread."""
        self.turns = turns
        self._engine = turns.database.contexts

    def create(self, name: str | None = None, *, base: int = 0) -> Context:
        """Make a context that is empty, or whose head is any turn there is, and return it.

        A name is unique and not a number. Raises ConflictError for one that is taken,
        UnknownTurnError.
        """
        if name is not None:
            check_context_name(name)
        return Context(self.turns, self._engine.create(name, check_natural(base, "base"), None))

    def fork(
        self, context: Context | Which, *, at: int | None = None, name: str | None = None
    ) -> Context:
        """Make a context at the head of another or at a turn of its chain, and return it."""
        return self._handle(context).fork(at=at, name=name)

    def get(self, context: Which) -> Context:
        """Return the context of an id or a name. Raises UnknownContextError."""
        which: int | str = context
        if isinstance(which, str):
            if (found := self._engine.named(which)) is not None:
                return Context(self.turns, found)
            if not _is_number(which):
                raise UnknownContextError(context)
            which = int(which)
        if self._engine.head(check_natural(which, "context")) is None:
            raise UnknownContextError(context)
        return Context(self.turns, which)

    def _handle(self, context: Context | Which) -> Context:
        if isinstance(context, Context):
            return context
        which: Any = context  # one of another memory is refused
        return self.get(which)

    def list(self, after: int = 0) -> Iterator[ContextInfo]:
        """Yield all contexts after an id, by id, lazily."""
        return self._list(check_natural(after, "after"))

    def _list(self, after: int) -> Iterator[ContextInfo]:
        while page := self._engine.page(after, _PAGE):
            yield from page
            after = page[-1].context_id

    def __iter__(self) -> Iterator[ContextInfo]:
        """Yield all contexts, by id."""
        return self.list()

    def head(self, context: Context | Which) -> int:
        """Return the newest turn of a context, 0 for none. Raises UnknownContextError."""
        return self._handle(context).head_id()

    def compare_and_set(
        self, context: Context | Which, to: int, *, expected_head: int
    ) -> ContextInfo:
        """Move a head if it is at the expected turn. Raises ConflictError, with the actual head."""
        return self._handle(context).move(to, expected_head=expected_head)

    def delete(self, context: Context | Which) -> None:
        """Delete a context; see `Context.delete`."""
        self._handle(context).delete()

    def history(self, context: Context | Which) -> Iterator[Move]:
        """Yield the moves of a head, oldest first; those of a deleted context by its id."""
        if isinstance(context, (Context, str)):
            return self._handle(context).history()
        number: Any = context  # also of a context that was deleted
        return Context(self.turns, check_natural(number, "context")).history()

    def turn(self, turn_id: int, *, payload: bool = True, as_of: int | None = None) -> Turn:
        """Return any turn. Raises UnknownTurnError."""
        return self.turns.turn(turn_id, payload=payload, as_of=as_of)

    def at(self, turn_id: int) -> View:
        """Return the chain from its root to any turn. Raises UnknownTurnError."""
        self.turns.depth(check_natural(turn_id, "turn"))
        return View(self.turns, turn_id)

    def children(self, turn_id: int, limit: int = 100) -> Ids:
        """Return the turns whose parent is this one, of whatever context."""
        check_natural(turn_id, "turn")
        return self.turns.database.turns.children(turn_id, check_positive(limit, "limit"))

    def patch(self, turn_id: int, payload: Payload) -> int:
        """Patch a turn with another payload, wherever it is read; return the patch's number.

        Both payloads are kept; see `View.last`. A turn keeps its type: that of a `NewTurn` is
        ignored. Raises UnknownTurnError.
        """
        turns, new = self.turns, new_turn(payload)
        prepared, ready = turns.prepare(new)
        check_natural(turn_id, "turn")
        try:
            return turns.database.turns.patch(turn_id, prepared.blob, new.flags)
        except GoneError as gone:
            blob = turns.blobs.again(ready, gone)
            return turns.database.turns.patch(turn_id, blob, new.flags)

    def tombstone(self, turn_id: int, *, flags: int = 0) -> int:
        """Hide a turn's payload wherever it is read; return the patch's number.

        Raises UnknownTurnError.
        """
        check_u32(flags, "flags")
        return self.turns.database.turns.patch(check_natural(turn_id, "turn"), None, flags)

    def attach(self, turn_id: int, root: Name) -> None:
        """Set the root of a file tree on a turn, by hash, in place of an earlier one.

        Its descendants inherit the root, down to the next turn with one of its own. A blob of that
        hash need not be stored; if it is, it is kept as long as the turn. Raises UnknownTurnError,
        InputError.
        """
        digest = digest_of(root)
        self.turns.database.turns.attach(check_natural(turn_id, "turn"), digest)

    def root(self, turn_id: int) -> bytes | None:
        """Return the root of a turn, or of its nearest ancestor with one; None for none.

        Raises UnknownTurnError.
        """
        return self.turns.database.turns.root(check_natural(turn_id, "turn"))

    def open_turns(self) -> Iterator[OpenInfo]:
        """Yield the turns of all contexts that are still being written."""
        return _open_turns(self.turns.database.open_turns, None)

    def open_turn(self, open_id: int) -> OpenTurn:
        """Return a turn that is still being written, to continue or to seal it.

        Raises ConflictError for none.
        """
        opened = OpenTurn(self.turns, check_natural(open_id, "open turn"))
        opened.info()
        return opened


class Context(View):
    """A branch: a head that moves over turns. Others may move it: each read looks the head up."""

    def __init__(self, turns: Turns, context_id: int) -> None:
        """Represent the context of an id; nothing is read."""
        super().__init__(turns, 0)
        self.id = context_id
        self._engine = turns.database.contexts

    def __repr__(self) -> str:
        """Return the context's id in brackets."""
        return f"<eventq.Context {self.id}>"

    def head_id(self) -> int:
        """Return the newest turn, 0 for none. Raises UnknownContextError once it is deleted."""
        head = self._engine.head(self.id)
        if head is None:
            raise UnknownContextError(self.id)
        return head

    def info(self) -> ContextInfo:
        """Return name, head, depth and lineage. Raises UnknownContextError."""
        info = self._engine.get(self.id)
        if info is None:
            raise UnknownContextError(self.id)
        return info

    # --- writing ----------------------------------------------------------------------------------

    def append(
        self,
        payload: Payload,
        *,
        parent: int | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
    ) -> Turn:
        """Store a turn after the head, durably, and move the head to it; return it without payload.

        The payload is bytes, text or a binary file, or a dict or list, which is stored as canonical
        JSON (`eventq-json-1`); a `NewTurn` has a type, refs and more with it.
        The turn goes after `parent` instead of the head if one is given. With `expected_head` it is
        appended only if the head is there. With a `key` that was used in the last 24 hours the
        first turn is returned and nothing is stored. With a `source` an event of type `record`,
        subtype `turn` reports it, in the same transaction. Raises ConflictError, UnknownTurnError,
        UnknownBlobError, InputError, TooLargeError.
        """
        to = AppendTo(parent, expected_head, key, b"", source)
        return self.turns.append(self.id, new_turn(payload), to)

    def patch(self, turn_id: int, payload: Payload) -> int:
        """Patch a turn of this chain with another payload; see `Contexts.patch`."""
        self._check_on(turn_id)
        return Contexts(self.turns).patch(turn_id, payload)

    def tombstone(self, turn_id: int) -> int:
        """Hide the payload of a turn of this chain; see `Contexts.tombstone`."""
        self._check_on(turn_id)
        return Contexts(self.turns).tombstone(turn_id)

    def fork(self, *, at: int | None = None, name: str | None = None) -> Context:
        """Make a context at the head or at a turn of this chain, and return it; copy nothing."""
        if at is not None:
            check_natural(at, "turn")
        if name is not None:
            check_context_name(name)
        return Context(self.turns, self._engine.create(name, at, self.id))

    def move(self, to: int, *, expected_head: int | None = None) -> ContextInfo:
        """Move the head to any turn, 0 for none, and log the move; return the context's new state.

        With `expected_head` only if it is there now. The head of a run is not moved: fork the run.
        Raises ConflictError with the actual head, UnknownTurnError.
        """
        check_natural(to, "turn")
        if expected_head is not None:
            check_natural(expected_head, "expected_head")
        return self._engine.move(self.id, to, "move", expected=expected_head)

    def history(self) -> Iterator[Move]:
        """Yield the moves of the head, oldest first, of a deleted context too."""
        info = self._engine.get(self.id)
        if info is not None:
            yield Move(0, "create", 0, info.base_turn_id, info.created_at_ms)
        after = -1
        while page := self._engine.history(self.id, after, _PAGE):
            yield from page
            after = page[-1].version
        if info is None and after < 0:
            raise UnknownContextError(self.id)

    def delete(self) -> None:
        """Delete the context; its turns stay until a collection, and its forks are not affected.

        Raises ConflictError while turns of it are open, UnknownContextError.
        """
        self._engine.delete(self.id)

    # --- open turns -------------------------------------------------------------------------------

    def open_turn(
        self, *, type_id: str = "message", type_version: int = 1, encoding: int = 0
    ) -> OpenTurn:
        """Start a turn that is written delta by delta and becomes a turn when it is sealed.

        Raises UnknownContextError, ConflictError for a context of a run.
        """
        check_name(type_id, "type_id", empty=True)
        check_u32(type_version, "type_version")
        check_u32(encoding, "encoding")
        streams = self.turns.database.open_turns
        open_id = streams.create(self.id, type_id, type_version, encoding)
        if open_id is None:
            self.head_id()  # raises, unless it is there
            raise run_conflict(self.id)
        return OpenTurn(self.turns, open_id)

    def open_turns(self) -> list[OpenInfo]:
        """Return the turns of this context that are open, those of a crashed process too."""
        return list(_open_turns(self.turns.database.open_turns, self.id))


def _open_turns(streams: OpenTurns, context: int | None) -> Iterator[OpenInfo]:
    """Yield the open turns of a context, or of all, by id."""
    after = 0
    while page := streams.page(after, _PAGE, context=context):
        yield from page
        after = page[-1].open_id


class OpenTurn:
    """A turn that is still being written; other processes see its bytes, and may continue it."""

    def __init__(self, turns: Turns, open_id: int) -> None:
        """Represent the open turn of an id; nothing is read."""
        self.turns = turns
        self.id = open_id
        self._streams = turns.database.open_turns

    def info(self) -> OpenInfo:
        """Return its state. Raises ConflictError when it was sealed or discarded."""
        found = self._streams.get(self.id)
        if found is None:
            raise self._gone()
        return found

    def _gone(self) -> ConflictError:
        return open_conflict(self.id, growing=False)

    def append_delta(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append bytes, or text as UTF-8, durably, and return the size so far in bytes.

        Raises TooLargeError, and stores nothing, when they would be more than a payload may have.
        """
        delta = encoded(data, None, "the delta")
        if not isinstance(delta, (bytes, bytearray, memoryview)):
            raise InputError(f"a delta is bytes or text, not {type(data).__name__}", "encode it")
        growth = _growth(flat(delta))
        size = self._streams.append(self.id, growth, most=LARGEST)
        if size is None:
            size = self.info().size + growth.size
            raise TooLargeError(
                size, LARGEST, "payload", "seal what there is, and go on in another turn"
            )
        return size

    def read(self) -> Iterator[bytes]:
        """Yield the bytes so far, in pieces of at most a MiB."""
        size = self.info().size
        yield from first_bytes(
            (bytes(one.stored) for one in pieces_from(self._streams, self.id)), size
        )

    def seal(
        self,
        *,
        flags: int = 0,
        refs: Iterable[Name] = (),
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
    ) -> Turn:
        """Append what was written as one turn, whose payload is one blob; return the turn.

        Raises ConflictError, also when somebody is still writing to it.
        """
        info = self.info()
        pieces = _Pieces(self.read())
        new = NewTurn(pieces, info.type_id, info.type_version, info.encoding, flags, refs=refs)
        to = AppendTo(None, expected_head, key, b"", source, self.id)
        return self.turns.append(info.context_id, new, to)

    def discard(self) -> None:
        """Discard what was written. Raises ConflictError if it was sealed or discarded already."""
        if self._streams.end(self.id, Ending("discarded")) is None:
            raise self._gone()


def _growth(delta: memoryview) -> Growth:
    size = len(delta)
    if 0 < size <= PART_BYTES:
        return Growth(size, 0, (StreamPiece(None, 0, delta),))
    cuts = (delta[at : at + PART_BYTES] for at in range(0, size, PART_BYTES))
    return Growth(size, 0, tuple(StreamPiece(None, 0, cut) for cut in cuts))


class _Pieces:
    """Adapts pieces to a binary file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _: int) -> bytes:
        """Return the next piece, of whatever length; nothing at the end."""
        return next(self._pieces, b"")


def check_context_name(name: str) -> None:
    """Raise InputError for what cannot name a context."""
    check_name(name, "name")
    if len(name) > _LONGEST_NAME:
        raise InputError(f"the name is longer than {_LONGEST_NAME} characters", "shorten it")
    if name.isascii() and name.isdigit():
        raise InputError(
            f"'{name}' is a number, not a name", "give a name with a letter in it: ids are numbers"
        )


def is_context_name(name: str) -> bool:
    """Return whether a text can name a context."""
    try:
        check_context_name(name)
    except InputError:
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
