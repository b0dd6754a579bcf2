"""Turns: appending one, reading chains of them, and finding one's way through the graph by jump pointers."""

from __future__ import annotations

from eventq import system
from eventq.blobs import digests_of
from eventq.errors import (
    ConflictError,
    DamagedBlobError,
    DamagedError,
    InputError,
    LogicError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.event import check_name, check_natural, check_positive, check_whole
from eventq.records import Page, Turn
from eventq.storage.sqlite.turns import TurnTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.blobs import Blobs, Name, Prepared
    from eventq.storage.sqlite.database import Database

    Push = Callable[[str, str, str, str], object]  # source, type, content, subtype

LATEST = (1 << 63) - 1  # as an overlay's seq: all there are
U32 = (1 << 32) - 1
KEY_MS = 24 * 3600 * 1000  # that an idempotency key is honoured for
PAGE_TURNS = 256
PAGE_BYTES = 4 << 20  # payloads that are held at once while a chain is replayed


class NewTurn:
    """What is to be appended: checked and hashed, ahead of the transaction."""

    __slots__ = ("canonical", "encoding", "flags", "ready", "refs", "type_id", "type_version")

    def __init__(
        self,
        ready: Prepared,
        type_id: str,
        type_version: int,
        encoding: int,
        flags: int,
        canonical: str | None,
        refs: list[bytes],
    ) -> None:
        self.ready = ready
        self.type_id = type_id
        self.type_version = type_version
        self.encoding = encoding
        self.flags = flags
        self.canonical = canonical
        self.refs = refs

    def digest(self) -> bytes:
        """Give what an idempotency key stands for: the same bytes of the same type."""
        from blake3 import blake3

        told = f"{self.type_version}\n{self.encoding}\n{self.flags}\n{self.type_id}".encode()
        return bytes(blake3(self.ready.digest + told).digest())


class Turns:
    """The turns of one thread; `push` stores an event, for those who want to hear of a turn."""

    def __init__(self, db: Database, blobs: Blobs, push: Push) -> None:
        """Bring the parts together."""
        self.database = db
        self.table = TurnTable(db)
        self.blobs = blobs
        self._push = push

    # --- appending ------------------------------------------------------------------------------------------------

    def prepare(
        self,
        payload: object,
        *,
        type_id: str = "message",
        type_version: int = 1,
        encoding: int = 0,
        flags: int = 0,
        canonical: str | None = None,
        refs: Iterable[Name] = (),
        expect_hash: Name | None = None,
        expect_size: int | None = None,
        new: bool = False,
    ) -> NewTurn:
        """Check and hash what is to be appended; nothing that can be seen is stored. For `new` see `Blobs.prepare`."""
        self.database.check_writable()
        check_name(type_id, "type_id", empty=True)
        for name, value in (("type_version", type_version), ("encoding", encoding), ("flags", flags)):
            check_u32(value, name)
        data = encoded(payload, canonical)
        ready = self.blobs.prepare(data, expect_hash, expect_size, what="payload", new=new)
        return NewTurn(ready, type_id, type_version, encoding, flags, canonical, digests_of(refs))

    def append(
        self,
        context_id: int,
        new: NewTurn,
        *,
        parent: int | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
        also: Callable[[], None] | None = None,
    ) -> Turn:
        """Store a turn and move the head to it, all or nothing; `also` is done in the same transaction.

        With a `source` an event tells of it, from that source.
        """
        if key is not None:
            check_name(key, "key")
        if parent is not None:
            check_natural(parent, "parent")
        with self.database.write():
            return self.append_inside(
                context_id, new, parent=parent, expected_head=expected_head, key=key, source=source, also=also
            )

    def append_inside(
        self,
        context_id: int,
        new: NewTurn,
        *,
        parent: int | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
        also: Callable[[], None] | None = None,
        node: bool = False,
        spot: tuple[Any, ...] | None = None,
    ) -> Turn:
        """Do what `append` does, inside `write`: what fails leaves the undoing to it.

        `node` is for steps of a run; `spot` is what `TurnTable.spot_of_context` gives, if it was asked already.
        """
        now = system.milliseconds()
        spot = spot or self.table.spot_of_context(context_id)
        if spot is None:
            raise UnknownContextError(context_id)
        head, version, is_run, *above = spot
        if is_run and not node:
            raise run_conflict(context_id)
        if key is not None and (first := self._first(context_id, key, new, now)):
            if also is not None:
                also()
            return first
        check_head(context_id, head, expected_head)
        if parent and parent != head:
            above = self._above(parent)
        turn = self._store(new, parent or head, above, now)
        self.table.move(context_id, version + 1, "append", head, turn.turn_id, now)
        if key is not None:
            self.table.set_key(context_id, key, turn.turn_id, new.digest(), now, now - KEY_MS)
        if also is not None:
            also()
        if source is not None:
            self._push(source, "record", _as_event(context_id, turn), "turn")
        return turn

    def _store(self, new: NewTurn, parent: int, above: list[Any], now: int) -> Turn:
        spot = place(parent, above)
        ready = new.ready
        blob_id, _ = self.blobs.hold(ready)
        self.blobs.add_refs(blob_id, new.refs)
        turn_id = self.table.add(
            parent or None, *spot, new.type_id, new.type_version, None, new.encoding, new.canonical, blob_id,
            new.flags, now,
        )  # fmt: skip
        return Turn(
            turn_id, parent, spot[0], new.type_id, new.type_version, new.encoding, ready.digest.hex(), ready.size,
            new.flags, now, new.canonical,
        )  # fmt: skip

    def _first(self, context_id: int, key: str, new: NewTurn, now: int) -> Turn | None:
        """Give the turn that was appended with a key before; raise ConflictError when it was another."""
        found = self.table.key(context_id, key, now - KEY_MS)
        if found is None:
            return None
        turn_id, digest = found
        if digest != new.digest():
            raise ConflictError(
                f"key '{key}' was used for another payload: turn {turn_id}", "use a new key for a new turn", turn_id
            )
        if new.refs:  # a retry may know more of them
            self.blobs.add_refs(self.blobs.blob_id(new.ready.digest), new.refs)
        return self.turn(turn_id, payload=False, as_of=0)

    def _above(self, parent: int) -> list[Any]:
        spot = self.table.spot(parent)
        if spot is None:
            raise UnknownTurnError(parent)
        return list(spot)

    # --- reading --------------------------------------------------------------------------------------------------

    def turn(self, turn_id: int, *, payload: bool = True, as_of: int | None = None) -> Turn:
        """Give one turn. Raises UnknownTurnError."""
        found = self.chain(check_natural(turn_id, "turn"), 1, as_of, payload=payload)
        if not found:
            raise UnknownTurnError(turn_id)
        return found[0]

    def chain(self, turn_id: int, count: int, as_of: int | None, *, payload: bool) -> list[Turn]:
        """Give a turn and those above it, `count` in all, oldest first."""
        return list(self.payloads(self.rows(turn_id, count, as_of), payload=payload, limit=1 << 62))

    def rows(self, turn_id: int, count: int, as_of: int | None) -> list[Any]:
        """Give the rows of a turn and those above it, `count` in all, oldest first."""
        rows = self.table.chain(
            turn_id, min(count, 1 << 32), LATEST if as_of is None else check_natural(as_of, "as_of")
        )
        rows.reverse()
        if rows and len(rows) < count and rows[0][1]:
            raise DamagedError(
                f"turn {rows[0][1]} (depth {rows[0][2] - 1}) is not there", "run 'eventq check', or restore a backup"
            )
        return rows

    def payloads(self, rows: list[Any], *, payload: bool, limit: int = PAGE_BYTES) -> Iterator[Turn]:
        """Make turns of rows, their payloads fetched together, within a number of bytes at once."""
        start = 0
        while start < len(rows):
            end, size = start, 0
            while end < len(rows) and (size < limit or not payload):
                size += rows[end][12] or 0
                end += 1
            part = rows[start:end]
            found = self._load(part) if payload else {}
            for row in part:
                yield _turn(row, found)
            start = end

    def _load(self, rows: list[Any]) -> dict[bytes, bytes]:
        """Give the payloads of rows; an error says at which turn."""
        try:
            return self.blobs.load(row[10:14] for row in rows if row[10] is not None)
        except DamagedBlobError as error:
            at = next((row for row in rows if row[11] and row[11].hex() == error.ref[-64:]), None)
            if at is not None:
                error.what = f"turn {at[0]} (depth {at[2]}): {error.what}"
            raise

    # --- the graph ------------------------------------------------------------------------------------------------

    def depth(self, turn_id: int) -> int:
        """Give the depth of a turn. Raises UnknownTurnError."""
        link = self.table.link(turn_id)
        if link is None:
            raise UnknownTurnError(turn_id)
        return link[2]

    def ancestor(self, turn_id: int, depth: int) -> int:
        """Give the turn at a depth at or above a turn, 0 when it does not reach so deep."""
        return self.table.ancestor(turn_id, depth) or 0

    def is_above(self, turn_id: int, below: int) -> bool:
        """Say whether a turn is another or an ancestor of it. Raises UnknownTurnError for the first."""
        return self.ancestor(below, self.depth(turn_id)) == turn_id

    def common(self, one: int, other: int) -> int:
        """Give the nearest common ancestor of two turns, 0 for none; in steps that grow with the logarithm."""
        if not one or not other:
            return 0
        depth = min(self.depth(one), self.depth(other))
        one, other = self.ancestor(one, depth), self.ancestor(other, depth)
        while one != other:  # at one depth both jump to one depth
            parent, jump, _ = self.table.link(one) or (0, 0, 0)
            parent2, jump2, _ = self.table.link(other) or (0, 0, 0)
            if not parent or not parent2:
                return 0
            one, other = (jump or 0, jump2 or 0) if jump != jump2 else (parent, parent2)
        return one


class Chain:
    """Some turns of one chain, read page by page whenever it is iterated: those with `start` <= depth < `end`."""

    def __init__(self, turns: Turns, head: int, start: int, end: int, *, payload: bool, as_of: int | None) -> None:
        """Remember where the turns are; nothing is read yet."""
        self.turns = turns
        self._head = head
        self._start = start
        self._end = end
        self._payload = payload
        self._as_of = as_of

    def __len__(self) -> int:
        """Give the number of turns."""
        return max(0, self._end - self._start)

    def __iter__(self) -> Iterator[Turn]:
        """Give the turns, oldest first, in bounded memory; overlays that come meanwhile do not show."""
        turns = self.turns
        as_of = turns.table.last_seq() if self._as_of is None else self._as_of
        start = self._start
        while start < self._end:
            end = min(start + PAGE_TURNS, self._end)
            rows = turns.rows(turns.ancestor(self._head, end - 1), end - start, as_of)
            if len(rows) < end - start:
                raise DamagedError(
                    f"the chain of turn {self._head} has no turn at depth {end - 1}",
                    "run 'eventq check', or restore a backup",
                )
            yield from turns.payloads(rows, payload=self._payload)
            start = end


class Diff:
    """How two branches differ: `ancestor` is the turn they share last, 0 for none; `mine` and `theirs` come after it.

    Both are lazy and know their length.
    """

    def __init__(self, ancestor: int, mine: Chain, theirs: Chain) -> None:
        """Hold the three."""
        self.ancestor = ancestor
        self.mine = mine
        self.theirs = theirs


class View:
    """A chain from its root to a head that stands still; every reading gives turns oldest first."""

    def __init__(self, turns: Turns, head: int) -> None:
        """Read the chain that ends at a turn, 0 for the empty one."""
        self.turns = turns
        self._fixed = head

    def head_id(self) -> int:
        """Give the id of the newest turn, 0 for none."""
        return self._fixed

    def last(self, limit: int = 64, *, payload: bool = True, as_of: int | None = None) -> Page:
        """Give the newest turns; `next_cursor` goes to `before` for those above them.

        `as_of` is the seq of an overlay: later ones do not show; 0 shows every turn as it was appended.
        """
        return self._page(self.head_id(), limit, payload=payload, as_of=as_of)

    def before(self, turn_id: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None) -> Page:
        """Give the turns above one of this chain. Raises UnknownTurnError, ConflictError for one that is not on it."""
        self._check_on(turn_id)
        link = self.turns.table.link(turn_id)
        return self._page(link[0] if link else 0, limit, payload=payload, as_of=as_of)

    def _page(self, turn_id: int, limit: int, *, payload: bool, as_of: int | None) -> Page:
        check_positive(limit, "limit")
        if as_of is not None:
            check_natural(as_of, "as_of")
        found = self.turns.chain(turn_id, limit, as_of, payload=payload) if turn_id else []
        more = found and found[0].parent_turn_id
        return Page(tuple(found), found[0].turn_id if more else None)

    def range(self, start_depth: int, limit: int = 64, *, payload: bool = True, as_of: int | None = None) -> Page:
        """Give the turns from a depth on, the root's is 0; `next_cursor` is the depth to go on at."""
        check_natural(start_depth, "start_depth")
        check_positive(limit, "limit")
        head = self.head_id()
        end = min(start_depth + limit, self._length(head))
        if start_depth >= end:
            return Page(())
        last = self.turns.ancestor(head, end - 1)
        found = self.turns.chain(last, end - start_depth, as_of, payload=payload)
        return Page(tuple(found), end if last != head else None)

    def replay(self, *, payload: bool = True, as_of: int | None = None, start_depth: int = 0) -> Chain:
        """Give the whole chain, from the root or a depth on, lazily and in bounded memory."""
        head = self.head_id()
        start = check_natural(start_depth, "start_depth")
        return Chain(self.turns, head, start, self._length(head), payload=payload, as_of=as_of)

    def _length(self, head: int) -> int:
        return self.turns.depth(head) + 1 if head else 0

    def at(self, turn_id: int) -> View:
        """Give the chain up to a turn of this one. Raises UnknownTurnError, ConflictError for one not on it."""
        self._check_on(turn_id)
        return View(self.turns, turn_id)

    def ancestor(self, depth: int) -> int:
        """Give the id of the turn at a depth of this chain, 0 where there is none."""
        head = self.head_id()
        return self.turns.ancestor(head, check_natural(depth, "depth")) if head else 0

    def has(self, turn_id: int) -> bool:
        """Say whether a turn is on this chain. Raises UnknownTurnError when there is none of that id."""
        return self.turns.is_above(check_natural(turn_id, "turn"), self.head_id())

    def _check_on(self, turn_id: int) -> None:
        if not self.has(turn_id):
            head = self.head_id()
            raise ConflictError(
                f"turn {turn_id} is not on the chain that ends at turn {head}",
                "give a turn that was read from it",
                head,
            )

    def common_ancestor(self, other: View) -> int:
        """Give the id of the last turn that two chains share, 0 for none."""
        return self.turns.common(self.head_id(), other.head_id())

    def diff(self, other: View, *, payload: bool = True, as_of: int | None = None) -> Diff:
        """Say what each of two chains has after the turn they share last."""
        mine, theirs = self.head_id(), other.head_id()
        shared = self.turns.common(mine, theirs)
        start = self._length(shared)
        chains = [
            Chain(self.turns, head, start, self._length(head), payload=payload, as_of=as_of) for head in (mine, theirs)
        ]
        return Diff(shared, *chains)


def encoded(payload: object, canonical: str | None, what: str = "the payload") -> object:
    """Give a payload as bytes or a binary file: text as UTF-8, a value through the rule that was named."""
    if canonical is not None:
        from eventq.dag.canonical import apply

        return apply(canonical, payload)
    if isinstance(payload, str):
        check_whole(payload, what)
        return payload.encode()
    return payload


def place(parent: int, above: Sequence[Any]) -> tuple[int, int | None, int | None]:
    """Give a child's depth, jump and jump's depth; `above` is what `TurnTable.spot` says of the parent.

    Skew-binary: a jump goes over two equal jumps where there are two, else to the parent (Myers, 1983).
    """
    if not parent:
        return 0, None, None
    depth, jump_depth, far, far_depth = above
    if depth >= U32:
        raise LogicError(f"turn {parent} is at the greatest depth there is, {U32}", "fork at a turn above it")
    if far is not None and depth - jump_depth == jump_depth - far_depth:
        return depth + 1, far, far_depth
    return depth + 1, parent, depth


def run_conflict(context_id: int) -> ConflictError:
    """Give the error for what only a run does with its context."""
    return ConflictError(
        f"context {context_id} is that of a run, whose turns are steps",
        "use 'eventq run step' or 'run fork'",
        context_id,
    )


def check_head(context_id: int, head: int, expected: int | None) -> None:
    """Raise ConflictError, with the actual head, when a head is not where its mover thinks; None thinks nothing."""
    if expected is not None and check_natural(expected, "expected_head") != head:
        raise ConflictError(
            f"the head of context {context_id} is turn {head}, not {expected}", "read what is new, then try again", head
        )


def _turn(row: Any, found: dict[bytes, bytes]) -> Turn:
    """Make a turn of a row as `TurnTable.chain` gives it."""
    turn_id, parent, depth, type_id, version, encoding, flags, created, canonical, seq, blob_id, digest, size, _ = row
    if blob_id is None:
        if not seq:
            raise DamagedError(
                f"turn {turn_id} (depth {depth}) has lost its payload's row", "run 'eventq check' on the thread"
            )
        digest, size = b"", 0
    return Turn(
        turn_id, parent, depth, type_id, version, encoding, digest.hex(), size, flags, created, canonical, seq,
        blob_id is None, found.get(digest),
    )  # fmt: skip


def _as_event(context_id: int, turn: Turn) -> str:
    """Give the content of the event that tells of a turn."""
    import json

    told = {
        "context_id": context_id,
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "depth": turn.depth,
        "type_id": turn.type_id,
        "type_version": turn.type_version,
        "encoding": turn.encoding,
        "size": turn.size,
        "payload": turn.ref,
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def check_u32(value: object, name: str) -> None:
    """Raise InputError for what is no unsigned number of 32 bits."""
    if type(value) is not int or not 0 <= value <= U32:
        raise InputError(
            f"{name} must be a whole number from 0 to 2^32-1, not {value!r}", "give a number in that range"
        )
