"""Contexts: heads over turns that move, fork and are deleted, and open turns that are still being written."""

from __future__ import annotations

from eventq import system
from eventq.blobs import LARGEST, PART_BYTES, digest_of, flat
from eventq.dag.turns import Turns, View, check_head, check_u32, encoded, run_conflict
from eventq.errors import ConflictError, InputError, TooLargeError, UnknownContextError, UnknownTurnError
from eventq.event import check_name, check_natural, check_positive
from eventq.records import ContextInfo, Move, OpenInfo, Turn
from eventq.storage.sqlite.roots import RootTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.blobs import Name
    from eventq.storage.sqlite.turns import TurnTable

    Which = int | str  # a context's id, or its name
    Ids = list[int]

PIECE_BYTES = 4096  # up to here deltas fill one row: a page is written for each anyway
_PAGE = 500
_LONGEST_NAME = 200


class Contexts:
    """The contexts of one thread."""

    def __init__(self, turns: Turns) -> None:
        """Use the turns of a thread."""
        self.turns = turns

    def create(self, name: str | None = None, *, base: int = 0) -> Context:
        """Make a context that is empty, or whose head is any turn there is, and give it.

        A name is unique, and no number. Raises ConflictError for one that is taken, UnknownTurnError.
        """
        return self._add(name, base, None)

    def fork(self, context: Context | Which, *, at: int | None = None, name: str | None = None) -> Context:
        """Make a context at the head of another one or at a turn of its chain, and give it: one row, nothing copied."""
        return self._handle(context).fork(at=at, name=name)

    def _add(self, name: str | None, base: int, fork_of: int | None) -> Context:
        if name is not None:
            check_context_name(name)
        check_natural(base, "base")
        table = self.turns.table
        with self.turns.database.write():
            if base and table.link(base) is None:
                raise UnknownTurnError(base)
            if name is not None and (owner := table.named(name)) is not None:
                raise ConflictError(f"the name '{name}' is taken by context {owner}", "choose another name", owner)
            return Context(self.turns, table.add_context(name, base or None, fork_of, system.milliseconds()))

    def get(self, context: Which) -> Context:
        """Give the context of an id or a name. Raises UnknownContextError."""
        found = self.turns.table.named(context) if isinstance(context, str) else context
        if found is None and isinstance(context, str) and context.isascii() and context.isdigit() and len(context) < 19:
            found = int(context)
        if found is None or self.turns.table.head(check_natural(found, "context")) is None:
            raise UnknownContextError(context)
        return Context(self.turns, found)

    def _handle(self, context: Context | Which) -> Context:
        return context if isinstance(context, Context) else self.get(context)

    def list(self, after: int = 0) -> Iterator[ContextInfo]:
        """Give all contexts after an id, by id, lazily."""
        return self._list(check_natural(after, "after"))

    def _list(self, after: int) -> Iterator[ContextInfo]:
        while rows := self.turns.table.contexts(after, _PAGE):
            yield from (ContextInfo(*row) for row in rows)
            after = rows[-1][0]

    def __iter__(self) -> Iterator[ContextInfo]:
        """Give all contexts, by id."""
        return self.list()

    def head(self, context: Context | Which) -> int:
        """Give the id of the newest turn of a context, 0 for none. Raises UnknownContextError."""
        return self._handle(context).head_id()

    def compare_and_set(self, context: Context | Which, to: int, *, expected_head: int) -> ContextInfo:
        """Move a head if it is where it is expected. Raises ConflictError, with the actual head."""
        return self._handle(context).move(to, expected_head=expected_head)

    def delete(self, context: Context | Which) -> None:
        """Delete a context; see `Context.delete`."""
        self._handle(context).delete()

    def history(self, context: Context | Which) -> Iterator[Move]:
        """Give the moves of a head, oldest first; those of a deleted context are found by its id."""
        if isinstance(context, str):
            context = self.get(context)
        elif not isinstance(context, Context):
            context = Context(self.turns, check_natural(context, "context"))
        return context.history()

    def turn(self, turn_id: int, *, payload: bool = True, as_of: int | None = None) -> Turn:
        """Give any turn. Raises UnknownTurnError."""
        return self.turns.turn(turn_id, payload=payload, as_of=as_of)

    def at(self, turn_id: int) -> View:
        """Give the chain from its root to any turn. Raises UnknownTurnError."""
        self.turns.depth(check_natural(turn_id, "turn"))
        return View(self.turns, turn_id)

    def children(self, turn_id: int, limit: int = 100) -> Ids:
        """Give the ids of the turns whose parent is this one, of whatever context."""
        return self.turns.table.children(check_natural(turn_id, "turn"), check_positive(limit, "limit"))

    def patch(
        self,
        turn_id: int,
        payload: object,
        *,
        canonical: str | None = None,
        refs: Iterable[Name] = (),
        flags: int = 0,
        expect_hash: Name | None = None,
        expect_size: int | None = None,
    ) -> int:
        """Lay another payload over a turn's, wherever it is read, and give the overlay's seq; see `View.last`.

        Both payloads are kept. Raises UnknownTurnError.
        """
        turns = self.turns
        new = turns.prepare(
            payload, canonical=canonical, refs=refs, flags=flags, expect_hash=expect_hash, expect_size=expect_size
        )
        with turns.database.write():
            turns.depth(check_natural(turn_id, "turn"))
            blob_id, _ = turns.blobs.hold(new.ready)
            turns.blobs.add_refs(blob_id, new.refs)
            return turns.table.add_patch(turn_id, blob_id, flags, system.milliseconds())

    def tombstone(self, turn_id: int, *, flags: int = 0) -> int:
        """Hide a turn's payload wherever it is read, and give the overlay's seq. Raises UnknownTurnError."""
        check_u32(flags, "flags")
        with self.turns.database.write():
            self.turns.depth(check_natural(turn_id, "turn"))
            return self.turns.table.add_patch(turn_id, None, flags, system.milliseconds())

    def attach(self, turn_id: int, root: Name) -> None:
        """Give a turn the root of a file tree, by hash, in place of its own if it has one.

        What follows the turn has it too, down to the next turn with one of its own. A blob of that hash is kept as
        long as the turn is; it need not be stored. Raises UnknownTurnError, InputError.
        """
        digest = digest_of(root)
        with self.turns.database.write():
            self.turns.depth(check_natural(turn_id, "turn"))
            RootTable(self.turns.database).set(turn_id, digest)

    def root(self, turn_id: int) -> bytes | None:
        """Give the root of a turn, or of its nearest ancestor with one, 32 bytes, or None. Raises UnknownTurnError."""
        self.turns.depth(check_natural(turn_id, "turn"))
        return RootTable(self.turns.database).find(turn_id)

    def open_turns(self) -> Iterator[OpenInfo]:
        """Give the turns of all contexts that are still being written."""
        return (OpenInfo(*row) for row in self.turns.table.opened())

    def open_turn(self, open_id: int) -> OpenTurn:
        """Give a turn that is still being written, to go on with it or to seal it. Raises ConflictError for none."""
        opened = OpenTurn(self.turns, check_natural(open_id, "open turn"))
        opened.info()
        return opened


class Context(View):
    """A branch: a head that moves over turns. It stays usable while others move it; each reading asks for its head."""

    def __init__(self, turns: Turns, context_id: int) -> None:
        """Stand for the context of an id; nothing is read."""
        super().__init__(turns, 0)
        self.id = context_id

    def __repr__(self) -> str:
        """Name the context."""
        return f"<eventq.Context {self.id}>"

    @property
    def _table(self) -> TurnTable:
        return self.turns.table

    def head_id(self) -> int:
        """Give the id of the newest turn, 0 for none. Raises UnknownContextError once it is deleted."""
        return self._spot()[0]

    def _spot(self) -> tuple[int, int]:
        found = self._table.head(self.id)
        if found is None:
            raise UnknownContextError(self.id)
        return found

    def info(self) -> ContextInfo:
        """Give name, head, depth and lineage. Raises UnknownContextError."""
        row = self._table.context(self.id)
        if row is None:
            raise UnknownContextError(self.id)
        return ContextInfo(*row)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(
        self,
        payload: object,
        *,
        type_id: str = "message",
        type_version: int = 1,
        encoding: int = 0,
        flags: int = 0,
        canonical: str | None = None,
        refs: Iterable[Name] = (),
        parent: int | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        expect_hash: Name | None = None,
        expect_size: int | None = None,
        emit: bool = False,
        source: str = "self",
    ) -> Turn:
        """Store a turn after the head, durably, and move the head to it; give the turn, without its payload.

        The payload is bytes, text or a binary file; or a value, of which `canonical` names the rule that makes bytes
        (`eventq-json-1`). `refs` are the blobs that it names. It goes after `parent` instead of the head if one is
        given. With `expected_head` it is appended only if the head is there. With a `key` that was used in the last 24
        hours the first turn is given and nothing is stored. `emit` pushes an event of type `record`, subtype `turn` in
        the same transaction. Raises ConflictError, UnknownTurnError, UnknownBlobError, InputError, TooLargeError.
        """
        new = self.turns.prepare(
            payload, type_id=type_id, type_version=type_version, encoding=encoding, flags=flags, canonical=canonical,
            refs=refs, expect_hash=expect_hash, expect_size=expect_size,
        )  # fmt: skip
        return self.turns.append(
            self.id, new, parent=parent, expected_head=expected_head, key=key, source=source if emit else None
        )

    def patch(self, turn_id: int, payload: object, *, canonical: str | None = None, refs: Iterable[Name] = ()) -> int:
        """Lay another payload over that of a turn of this chain; see `Contexts.patch`."""
        self._check_on(turn_id)
        return Contexts(self.turns).patch(turn_id, payload, canonical=canonical, refs=refs)

    def tombstone(self, turn_id: int) -> int:
        """Hide the payload of a turn of this chain; see `Contexts.tombstone`."""
        self._check_on(turn_id)
        return Contexts(self.turns).tombstone(turn_id)

    def fork(self, *, at: int | None = None, name: str | None = None) -> Context:
        """Make a context at the head or at a turn of this chain, and give it: one row, nothing is copied."""
        with self.turns.database.write():
            head = self.head_id()
            if at:
                self._check_on(at)
            return Contexts(self.turns)._add(name, head if at is None else at, self.id)

    def move(self, to: int, *, expected_head: int | None = None) -> ContextInfo:
        """Move the head to any turn, 0 for none, and log it; with `expected_head` only if it is there now.

        The head of a run is not moved: fork the run. Raises ConflictError with the actual head, UnknownTurnError.
        """
        check_natural(to, "turn")
        with self.turns.database.write():
            if self._table.is_run(self.id):
                raise run_conflict(self.id)
            return self.move_inside(to, expected_head=expected_head)

    def move_inside(self, to: int, *, expected_head: int | None = None) -> ContextInfo:
        """Do what `move` does, also for a run."""
        with self.turns.database.write():
            head, version = self._spot()
            check_head(self.id, head, expected_head)
            if to and self._table.link(to) is None:
                raise UnknownTurnError(to)
            self._table.move(self.id, version + 1, "move", head, to, system.milliseconds())
            return self.info()

    def history(self) -> Iterator[Move]:
        """Give the moves of the head, oldest first, and of a deleted context too: a lost head is found here."""
        row = self._table.context(self.id)
        if row is not None:
            info = ContextInfo(*row)
            yield Move(0, "create", 0, info.base_turn_id, info.created_at_ms)
        after = -1
        while rows := self._table.moves(self.id, after, _PAGE):
            yield from (Move(*row) for row in rows)
            after = rows[-1][0]
        if row is None and after < 0:
            raise UnknownContextError(self.id)

    def delete(self) -> None:
        """Delete the context; its turns stay until a collection, and forks of it do not notice.

        Raises ConflictError while turns of it are open, UnknownContextError.
        """
        with self.turns.database.write():
            head, version = self._spot()
            if opened := self._table.opened(self.id):
                raise ConflictError(
                    f"context {self.id} has turns that are still open ({len(opened)})",
                    "seal or discard them first",
                    opened[0][0],
                )
            info = self.info()
            self._table.log(self.id, 0, "create", 0, info.base_turn_id, info.created_at_ms)
            self._table.log(self.id, version + 1, "delete", head, 0, system.milliseconds())
            self._table.drop_context(self.id)

    # --- open turns -----------------------------------------------------------------------------------------------

    def open_turn(self, *, type_id: str = "message", type_version: int = 1, encoding: int = 0) -> OpenTurn:
        """Begin a turn that is written bit by bit: each bit is durable, all of it becomes a turn when it is sealed."""
        check_name(type_id, "type_id", empty=True)
        check_u32(type_version, "type_version")
        check_u32(encoding, "encoding")
        with self.turns.database.write():
            self._spot()
            if self._table.is_run(self.id):
                raise run_conflict(self.id)
            open_id = self._table.open(self.id, type_id, type_version, encoding, system.milliseconds())
        return OpenTurn(self.turns, open_id)

    def open_turns(self) -> list[OpenInfo]:
        """Give the turns of this context that are still being written, also by a process that has crashed."""
        return [OpenInfo(*row) for row in self._table.opened(self.id)]


class OpenTurn:
    """A turn that is still being written; other processes see its bytes, and may go on with it."""

    def __init__(self, turns: Turns, open_id: int) -> None:
        """Stand for the open turn of an id; nothing is read."""
        self.turns = turns
        self.id = open_id

    def info(self) -> OpenInfo:
        """Give what is stored of it. Raises ConflictError when it was sealed or discarded."""
        row = self.turns.table.open_row(self.id)
        if row is None:
            raise self._gone()
        return OpenInfo(*row)

    def _gone(self) -> ConflictError:
        return ConflictError(
            f"there is no open turn {self.id}", "see 'eventq turn opened': it was perhaps sealed or discarded", self.id
        )

    def append_delta(self, data: bytes | bytearray | memoryview | str) -> int:
        """Append bytes, or text as UTF-8, durably, and give how many there are now.

        Raises TooLargeError, and stores nothing, when they would be more than a payload may have.
        """
        delta = encoded(data, None, "the delta")
        if not isinstance(delta, (bytes, bytearray, memoryview)):
            raise InputError(f"a delta is bytes or text, not {type(data).__name__}", "encode it")
        view = flat(delta)
        size = 0
        with self.turns.database.write():
            now = system.milliseconds()
            for start in range(0, len(view) or 1, PART_BYTES):
                found = self.turns.table.add_delta(self.id, view[start : start + PART_BYTES], now, PIECE_BYTES)
                if found is None:
                    raise self._gone()
                size = found
            if size > LARGEST:
                raise TooLargeError(size, LARGEST, "payload", "seal what there is, and go on in another turn")
        return size

    def read(self) -> Iterator[bytes]:
        """Give the bytes so far, in pieces of at most a MiB."""
        self.info()
        position = 0
        while (piece := self.turns.table.piece(self.id, position)) is not None:
            yield piece
            position += 1

    def seal(
        self,
        *,
        flags: int = 0,
        refs: Iterable[Name] = (),
        expected_head: int | None = None,
        key: str | None = None,
        emit: bool = False,
        source: str = "self",
    ) -> Turn:
        """Append what was written as one turn, whose payload is one blob, and forget the pieces; give the turn.

        Raises ConflictError, also when somebody is still writing to it.
        """
        info = self.info()
        new = self.turns.prepare(
            _Pieces(self.read()), type_id=info.type_id, type_version=info.type_version, encoding=info.encoding,
            flags=flags, refs=refs,
        )  # fmt: skip

        def close() -> None:
            if self.info().size != new.ready.size:
                raise ConflictError(f"somebody is still writing to open turn {self.id}", "seal it again", self.id)
            self.turns.table.close(self.id)

        return self.turns.append(
            info.context_id, new, expected_head=expected_head, key=key, source=source if emit else None, also=close
        )

    def discard(self) -> None:
        """Forget what was written. Raises ConflictError when it was sealed or discarded already."""
        with self.turns.database.write():
            if not self.turns.table.close(self.id):
                raise self._gone()


class _Pieces:
    """The pieces of an open turn as a binary file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _: int) -> bytes:
        """Give the next piece, of whatever length; nothing at the end."""
        return next(self._pieces, b"")


def check_context_name(name: str) -> None:
    """Raise InputError for what cannot name a context."""
    check_name(name, "name")
    if len(name) > _LONGEST_NAME:
        raise InputError(f"the name is longer than {_LONGEST_NAME} characters", "shorten it")
    if name.isascii() and name.isdigit():
        raise InputError(f"'{name}' is a number, not a name", "give a name with a letter in it: ids are numbers")
