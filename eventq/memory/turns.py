"""Turns: append them, read chains of them, and navigate the graph."""

from __future__ import annotations

from itertools import chain

from eventq.errors import (
    DamagedBlobError,
    DamagedError,
    EventqError,
    InputError,
    StoreError,
    UnknownTurnError,
    UsageError,
)
from eventq.memory.blobs import parse_ref
from eventq.records.checks import check_name, check_natural, check_positive, check_whole
from eventq.records.turn import NewTurn, Page, Turn
from eventq.store.rules import U32, chain_conflict
from eventq.store.turn_rows import GONE, AppendTo, GoneError, PreparedTurn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eventq.memory.blobs import Blobs, Prepared
    from eventq.records.spent import Spent
    from eventq.said import Block, Said
    from eventq.store.engine import Engine
    from eventq.store.turn_rows import TurnRow

    CheckSource = Callable[[str], None]

PAGE_TURNS = 256
PAGE_BYTES = 4 << 20  # payloads that are held at once while a chain is replayed
SHORT_BYTES = 16 << 10  # of a payload that is fetched with others
SAID_BYTES = 1 << 20  # of a payload that are read to say what it says
_TURN = "turn:"
_KNOWN = 1_000  # type ids that are cached


class Turns:
    """The turns of one thread; `check_source` refuses what cannot be the source of an event."""

    def __init__(self, db: Engine, blobs: Blobs, check_source: CheckSource) -> None:
        """Use a database and its blobs."""
        self.database = db
        self.blobs = blobs
        self._engine = db.turns
        self.check_source = check_source
        self._types: set[str] = set()  # accepted before

    # --- appending --------------------------------------------------------------------------------

    def prepare(self, new: NewTurn) -> tuple[PreparedTurn, Prepared]:
        """Check and hash a turn that is to be appended; nothing visible is stored."""
        self.database.check_writable()
        self._check(new)
        payload = new.payload
        if new.canonical is not None or type(payload) is not bytes:
            payload = encoded(payload, new.canonical)
        ready = self.blobs.prepare(
            payload, new.refs, new.expect_hash, new.expect_size, what="payload"
        )
        turn = PreparedTurn(
            ready.blob, new.type_id, new.type_version, new.encoding, new.flags, new.canonical,
            _spent(ready.data),
        )  # fmt: skip
        return turn, ready

    def _check(self, new: NewTurn) -> None:
        type_id = new.type_id
        if type(type_id) is not str or type_id not in self._types:
            check_name(type_id, "type_id", empty=True)
            if len(self._types) >= _KNOWN:
                self._types.clear()
            self._types.add(type_id)
        for name in ("type_version", "encoding", "flags"):
            value = getattr(new, name)
            if type(value) is not int or not 0 <= value <= U32:
                check_u32(value, name)
        if new.expect_size is not None and type(new.expect_size) is not int:
            raise UsageError("expect_size must be a whole number", "give a number of bytes")

    def append(self, context_id: int, new: NewTurn, to: AppendTo) -> Turn:
        """Store a turn and move the head to it, all or nothing."""
        return self.store(context_id, *self.prepare(new), to)

    def store(self, context_id: int, turn: PreparedTurn, ready: Prepared, to: AppendTo) -> Turn:
        """Store a prepared turn, as `append` does."""
        if to.key is not None:
            check_name(to.key, "key")
            to = to._replace(key_digest=digest_of_key(turn))
        if to.source is not None:
            self.check_source(to.source)
        for name in ("parent", "expected_head"):
            value = getattr(to, name)
            if value is not None:
                check_natural(value, name)
        try:
            row = self._engine.append(context_id, turn, to)
        except GoneError as gone:
            turn = turn._replace(blob=self.blobs.again(ready, gone))
            row = self._engine.append(context_id, turn, to)
        return _turn(row, {})

    def made(self, row: TurnRow) -> Turn:
        """Return the turn of a row that was just stored, without its payload."""
        return _turn(row, {})

    # --- reading ----------------------------------------------------------------------------------

    def turn(self, turn_id: int, *, payload: bool = True, as_of: int | None = None) -> Turn:
        """Return one turn. Raises UnknownTurnError."""
        found = self.chain(check_natural(turn_id, "turn"), 1, as_of, payload=payload)
        if not found:
            raise UnknownTurnError(turn_id)
        return found[0]

    def chain(self, turn_id: int, count: int, as_of: int | None, *, payload: bool) -> list[Turn]:
        """Return a turn and those above it, `count` in all, oldest first."""
        rows = self.rows(turn_id, count, as_of)
        found = self._load(rows) if payload else {}
        return [_turn(row, found) for row in rows]

    def rows(self, turn_id: int, count: int, as_of: int | None) -> list[TurnRow]:
        """Return the rows of a turn and those above it, `count` in all, oldest first."""
        if as_of is not None:
            check_natural(as_of, "as_of")
        rows = self._engine.chain(turn_id, count, as_of)
        rows.reverse()
        if rows and len(rows) < count and rows[0].parent:
            raise DamagedError(
                f"turn {rows[0].parent} (depth {rows[0].depth - 1}) is missing",
                "run 'eventq check', or restore a backup",
            )
        return rows

    def newest(self, before: int, limit: int) -> Iterator[Turn]:
        """Yield the turns before an id, of whatever context, newest first."""
        return self.payloads(self._engine.newest(before, limit), payload=True)

    def payloads(
        self, rows: list[TurnRow], *, payload: bool, limit: int = PAGE_BYTES
    ) -> Iterator[Turn]:
        """Yield the turns of rows; payloads are fetched together, up to `limit` bytes at once."""
        start = 0
        while start < len(rows):
            end, size = start, 0
            while end < len(rows) and (size < limit or not payload):
                size += rows[end].size
                end += 1
            part = rows[start:end]
            found = self._load(part) if payload else {}
            for row in part:
                yield _turn(row, found)
            start = end

    def _load(self, rows: list[TurnRow]) -> dict[bytes, bytes]:
        """Return the payloads of rows; an error names the turn."""
        try:
            return self.blobs.load(rows)
        except DamagedBlobError as error:
            at = next((row for row in rows if _has(row, error.ref)), None)
            if at is not None:
                error.what = f"turn {at.turn} (depth {at.depth}): {error.what}"
            raise

    def shown(self, turn: Turn) -> bytes | None:
        """Return the payload that a turn was read with, or what is shown in place of an erased one.

        None if it is hidden, was not requested, or nothing is shown.
        """
        if turn.payload is None and turn.tombstone and turn.hash:
            return self.blobs.shown(turn.hash) or None
        return turn.payload

    def said(self, turn: Turn, most: int = SAID_BYTES) -> Said:
        """Return what a turn says to a person; of a longer payload its beginning, unparsed."""
        from eventq import said
        from eventq.memory.nodes import STATE_TYPE

        if turn.tombstone:
            data = self.shown(turn) or (b"(erased)" if turn.hash else b"(hidden)")
            return said.read(data, turn.type_id)._replace(kind="erased" if turn.hash else "hidden")
        data = self.blobs.part(turn.hash, 0, most) if turn.payload is None else turn.payload
        found = said.read(data, turn.type_id, whole=len(data) == turn.size)
        if turn.type_id != STATE_TYPE:
            return found
        return found._replace(blocks=(*self._text_of_step(data), *found.blocks))

    def spoken(
        self, rows: list[TurnRow], likely: Callable[[bytes], bool] | None = None
    ) -> Iterator[tuple[Turn, Said]]:
        """Yield the turns of rows, and what each says; short payloads are fetched together.

        A short payload that is not `likely` is left out without being parsed, but for a step of a
        run, which says what another node holds. One that is damaged says so, as with `told`.
        """
        from eventq.memory.nodes import STATE_TYPE

        short = [row for row in rows if row.size <= SHORT_BYTES]
        try:
            found = {turn.turn_id: turn for turn in self.payloads(short, payload=True)}
        except DamagedBlobError:  # each is read by itself, which tells them apart
            found = {}
        for row in rows:
            turn = found.get(row.turn) or _turn(row, {})
            payload = None if turn.type_id == STATE_TYPE else turn.payload
            if likely is None or payload is None or likely(payload):
                yield turn, self.told(turn)

    def told(self, turn: Turn) -> Said:
        """Return what a turn says, or why that cannot be read, whose kind is `damaged`."""
        from eventq import said

        try:
            return self.said(turn)
        except EventqError as error:
            return said.Said("", (said.Text(unread(error)),), "damaged")

    def _text_of_step(self, data: bytes) -> tuple[Block, ...]:
        """Return the text of a step, which stands in a node of its own."""
        from eventq import said
        from eventq.memory.nodes import StateNode, decode

        try:
            node = decode(data, "")
        except DamagedError:
            return ()
        content = self.blobs.shown(node.content) if isinstance(node, StateNode) else None
        return said.read(content).blocks if content else ()

    def last_patch(self) -> int:
        """Return the number of the newest patch ever stored."""
        return self._engine.last_patch()

    # --- the graph --------------------------------------------------------------------------------

    def depth(self, turn_id: int) -> int:
        """Return the depth of a turn. Raises UnknownTurnError."""
        link = self._engine.link(turn_id)
        if link is None:
            raise UnknownTurnError(turn_id)
        return link.depth

    def parent(self, turn_id: int) -> int:
        """Return the turn above another, 0 for none."""
        link = self._engine.link(turn_id)
        return link.parent if link else 0

    def ancestor(self, turn_id: int, depth: int) -> int:
        """Return the turn at a depth at or above a turn, 0 if the chain is not so long."""
        return self._engine.ancestor(turn_id, depth)

    def forks(self, turns: Sequence[int], limit: int = 1_000) -> dict[int, list[int]]:
        """Return the turns right below each of some turns that has several."""
        found: dict[int, list[int]] = {}
        for parent, turn in self._engine.forks(turns, limit) if turns else ():
            found.setdefault(parent, []).append(turn)
        return found

    def nearest(self, turn_id: int, flag: int) -> tuple[int, int] | None:
        """Return id and depth of the nearest turn at or above another with a flag, or None."""
        return self._engine.nearest(turn_id, flag)

    def is_above(self, turn_id: int, below: int) -> bool:
        """Return whether a turn is `below` or an ancestor of it. Raises UnknownTurnError."""
        return self.ancestor(below, self.depth(turn_id)) == turn_id

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two turns, 0 for none."""
        if not one or not other:
            return 0
        return self._engine.common(one, other)

    def continued(self, turn_id: int) -> int:
        """Return the turn that a root goes on from as the file of its session states, or 0.

        A turn below the root is none: some files state that.
        """
        found = self._engine.continued(turn_id)
        return 0 if found and self.ancestor(found, 0) == turn_id else found

    def way(self, head: int) -> dict[int, int]:
        """Return the ends of the chains on the way up from a head, each by its root.

        The root of each goes on from the end of the next. One that comes again ends the way.
        """
        ends: dict[int, int] = {}
        while head and (root := self.ancestor(head, 0)) not in ends:
            ends[root] = head
            head = self.continued(root)
        return ends

    def shared(self, one: int, other: int) -> int:
        """Return the nearest turn that is on the ways up from two turns, 0 for none."""
        mine, theirs = self.way(one), self.way(other)
        root = next((root for root in mine if root in theirs), None)
        return 0 if root is None else self.common(mine[root], theirs[root])


class Chain:
    """The turns of one chain with `start` <= depth < `end`, read page by page when iterated."""

    def __init__(
        self, turns: Turns, head: int, start: int, end: int, *, payload: bool, as_of: int | None
    ) -> None:
        """Note where the turns are; nothing is read yet."""
        self.turns = turns
        self.head = head
        self.start = start
        self.end = end
        self.payload = payload
        self.as_of = as_of

    def __len__(self) -> int:
        """Return the number of turns."""
        return max(0, self.end - self.start)

    def __iter__(self) -> Iterator[Turn]:
        """Yield the turns, oldest first, in bounded memory; patches made meanwhile do not show."""
        turns = self.turns
        as_of = turns.last_patch() if self.as_of is None else self.as_of
        start = self.start
        while start < self.end:
            end = min(start + PAGE_TURNS, self.end)
            rows = turns.rows(turns.ancestor(self.head, end - 1), end - start, as_of)
            if len(rows) < end - start:
                raise DamagedError(
                    f"the chain of turn {self.head} has no turn at depth {end - 1}",
                    "run 'eventq check', or restore a backup",
                )
            yield from turns.payloads(rows, payload=self.payload)
            start = end


class Chains:
    """Chains one after the other, as one."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        """Note the chains, the oldest first."""
        self._chains = chains

    def __len__(self) -> int:
        """Return the number of turns."""
        return sum(map(len, self._chains))

    def __iter__(self) -> Iterator[Turn]:
        """Yield the turns of each, as it does."""
        return chain.from_iterable(self._chains)


class Diff:
    """The difference of two branches: `ancestor` is the last turn they share, 0 for none.

    `mine` and `theirs` come after it. Both are lazy and have a length.
    """

    def __init__(self, ancestor: int, mine: Chains, theirs: Chains) -> None:
        """Store the three."""
        self.ancestor = ancestor
        self.mine = mine
        self.theirs = theirs


class View:
    """A chain from its root to a fixed head; every read returns turns oldest first."""

    def __init__(self, turns: Turns, head: int) -> None:
        """Represent the chain that ends at a turn, 0 for the empty one."""
        self.turns = turns
        self._fixed = head

    def head_id(self) -> int:
        """Return the id of the newest turn, 0 for none."""
        return self._fixed

    def last(self, limit: int = 64, *, payload: bool = True, as_of: int | None = None) -> Page:
        """Return the newest turns; pass `next_cursor` to `before` for those above them.

        `as_of` is the seq of a patch: later ones are not applied; with 0 none is.
        """
        return self._page(self.head_id(), limit, payload=payload, as_of=as_of)

    def before(
        self, turn_id: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None
    ) -> Page:
        """Return the turns above one of this chain.

        Raises UnknownTurnError, and ConflictError for a turn that is not on the chain.
        """
        self._check_on(turn_id)
        above = self.turns.parent(turn_id)
        return self._page(above, limit, payload=payload, as_of=as_of)

    def _page(self, turn_id: int, limit: int, *, payload: bool, as_of: int | None) -> Page:
        check_positive(limit, "limit")
        if as_of is not None:
            check_natural(as_of, "as_of")
        found = self.turns.chain(turn_id, limit, as_of, payload=payload) if turn_id else []
        more = found and found[0].parent_turn_id
        return Page(tuple(found), found[0].turn_id if more else None)

    def range(
        self, start_depth: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None
    ) -> Page:
        """Return the turns from a depth on (0: the root); `next_cursor` is the next depth."""
        check_natural(start_depth, "start_depth")
        check_positive(limit, "limit")
        head = self.head_id()
        end = min(start_depth + limit, self._length(head))
        if start_depth >= end:
            return Page(())
        last = self.turns.ancestor(head, end - 1)
        found = self.turns.chain(last, end - start_depth, as_of, payload=payload)
        return Page(tuple(found), end if last != head else None)

    def replay(
        self, *, payload: bool = True, as_of: int | None = None, start_depth: int = 0
    ) -> Chain:
        """Return the whole chain, from the root or a depth on, lazily and in bounded memory."""
        head = self.head_id()
        start = check_natural(start_depth, "start_depth")
        return Chain(self.turns, head, start, self._length(head), payload=payload, as_of=as_of)

    def _length(self, head: int) -> int:
        return self.turns.depth(head) + 1 if head else 0

    def at(self, turn_id: int) -> View:
        """Return the chain up to a turn of this one.

        Raises UnknownTurnError, and ConflictError for a turn that is not on the chain.
        """
        self._check_on(turn_id)
        return View(self.turns, turn_id)

    def ancestor(self, depth: int) -> int:
        """Return the id of the turn at a depth of this chain, 0 for none."""
        head = self.head_id()
        return self.turns.ancestor(head, check_natural(depth, "depth")) if head else 0

    def has(self, turn_id: int) -> bool:
        """Return whether a turn is on this chain. Raises UnknownTurnError for an unknown id."""
        return self.turns.is_above(check_natural(turn_id, "turn"), self.head_id())

    def _check_on(self, turn_id: int) -> None:
        if not self.has(turn_id):
            raise chain_conflict(turn_id, self.head_id())

    def common_ancestor(self, other: View) -> int:
        """Return the id of the last turn that two chains share, 0 for none; see `diff`."""
        return self.turns.shared(self.head_id(), other.head_id())

    def diff(self, other: View, *, payload: bool = True, as_of: int | None = None) -> Diff:
        """Return what each of two chains has after the last turn that they share.

        A chain goes on above its root where the file of its session states what that continues.
        """
        mine, theirs = self.head_id(), other.head_id()
        shared = self.turns.shared(mine, theirs)
        root = self.turns.ancestor(shared, 0) if shared else 0

        def after(head: int) -> Chains:
            found = []
            for begin, end in self.turns.way(head).items():
                start = self._length(shared) if begin == root else 0
                length = self._length(end)
                found.append(Chain(self.turns, end, start, length, payload=payload, as_of=as_of))
                if begin == root:
                    break
            return Chains(found[::-1])

        return Diff(shared, after(mine), after(theirs))


def unread(error: EventqError) -> str:
    """Return why a turn cannot be read, as anybody may read it: a store may name its files."""
    if isinstance(error, StoreError) and not isinstance(error, DamagedBlobError):
        return "the store cannot be read here - see 'eventq check'"
    return str(error)


def blob_or_turn(name: object) -> bytes | int | None:
    """Return the digest of a blob's name (a ref, its digits, 32 bytes), or the id of `turn:ID`.

    None for anything else.
    """
    if isinstance(name, str) and name.startswith(_TURN):
        digits = name[len(_TURN) :]
        is_id = digits.isascii() and digits.isdigit() and len(digits) < 19
        return int(digits) if is_id else None
    return name if isinstance(name, bytes) and len(name) == 32 else parse_ref(name)


def new_turn(payload: object) -> NewTurn:
    """Return a `NewTurn`, or one of a payload alone; a dict or a list is stored by a rule."""
    new = payload if type(payload) is NewTurn else NewTurn(payload)
    if new.canonical is None and isinstance(new.payload, (dict, list)):
        from eventq.memory.canonical import EVENTQ_JSON_1

        return new._replace(canonical=EVENTQ_JSON_1)
    return new


def encoded(payload: object, canonical: str | None, what: str = "the payload") -> object:
    """Return a payload as bytes or a binary file: text as UTF-8, a value by a canonical rule."""
    if canonical is not None:
        from eventq.memory.canonical import apply

        return apply(canonical, payload)
    if isinstance(payload, str):
        try:
            return payload.encode()
        except UnicodeEncodeError:
            check_whole(payload, what)
    return payload


def _spent(data: bytes | memoryview | None) -> Spent | None:
    """Return what a model took for a payload that says so; most are not even parsed."""
    payload = bytes(data or b"")
    if not (b"usage" in payload or b'"tokens"' in payload):
        return None
    from eventq.said.spending import of_payload

    return of_payload(payload)


def digest_of_key(turn: PreparedTurn) -> bytes:
    """Return the digest that an idempotency key is bound to: that of the bytes and the type."""
    from blake3 import blake3

    of_type = f"{turn.type_version}\n{turn.encoding}\n{turn.flags}\n{turn.type_id}"
    return bytes(blake3(turn.blob.digest + of_type.encode()).digest())


def _has(row: TurnRow, ref: str) -> bool:
    return row.digest is not None and row.digest.hex() == ref[-64:]


def _turn(row: TurnRow, found: dict[bytes, bytes]) -> Turn:
    """Return the turn of a row."""
    (
        turn_id, parent, depth, type_id, version, encoding, flags, created, canonical, patch,
        digest, size, codec,
    ) = row  # fmt: skip
    if digest is None and not patch:
        raise DamagedError(
            f"turn {turn_id} (depth {depth}) has lost its payload's row",
            "run 'eventq check' on the thread",
        )
    return Turn(
        turn_id, parent, depth, type_id, version, encoding, digest.hex() if digest else "", size,
        flags, created, canonical, patch, digest is None or codec == GONE,
        found.get(digest) if digest else None,
    )  # fmt: skip


def check_u32(value: object, name: str) -> None:
    """Raise InputError unless a value is an unsigned 32-bit integer."""
    if type(value) is not int or not 0 <= value <= U32:
        raise InputError(
            f"{name} must be a whole number from 0 to 2^32-1, not {value!r}",
            "give a number in that range",
        )
