"""Turns and contexts beside plain lists, driven side by side; and the jump pointers, at length."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import eventq
from eventq.errors import ConflictError, UnknownContextError, UnknownTurnError
from eventq.memory import turns as turns_module
from eventq.store.copy_rows import TurnCopy
from tests.engines import sqlite
from tests.model.support import Beside, bounded, drive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq import Context, Thread, Turn
    from eventq.memory.turns import View

SHARES = st.floats(0, 1, exclude_max=True)  # which of those there are
PAYLOADS = st.sampled_from([b"", b"a", b"b", b"\0\xff" * 40])
DEEP = 100_000
MOST_HOPS = 40

Shown = tuple[int, int, int, int, bytes | None]  # turn, parent, depth, overlay, payload


@dataclass
class Model:
    """What turns and contexts are, in plain Python."""

    parents: dict[int, int] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)
    # The position, from 1, is the seq.
    overlays: list[tuple[int, bytes | None]] = field(default_factory=list)
    heads: dict[int, int] = field(default_factory=dict)
    moves: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    forks: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    newest: int = 0  # context

    def chain(self, head: int) -> list[int]:
        found = []
        while head:
            found.append(head)
            head = self.parents[head]
        return found[::-1]

    def shown(self, turn: int, as_of: int | None = None) -> Shown:
        """Return what a reading shows of a turn."""
        payload: bytes | None = self.payloads[turn]
        applied = 0
        for seq, (which, over) in enumerate(self.overlays[:as_of], 1):
            if which == turn:
                payload, applied = over, seq
        return turn, self.parents[turn], len(self.chain(turn)) - 1, applied, payload

    def create(self, base: int, fork_of: int | None) -> int:
        self.newest += 1
        self.heads[self.newest] = base
        self.moves[self.newest] = [("create", 0, base)]
        self.forks[self.newest] = (fork_of, base)
        return self.newest

    def move(self, context: int, op: str, to: int) -> None:
        self.moves[context].append((op, self.heads[context], to))
        self.heads[context] = to

    def append(self, context: int, parent: int, payload: bytes) -> int:
        turn = len(self.parents) + 1
        self.parents[turn] = parent or self.heads[context]
        self.payloads[turn] = payload
        self.move(context, "append", turn)
        return turn

    def delete(self, context: int) -> None:
        self.move(context, "delete", 0)
        del self.heads[context]
        self.forks = {
            c: (None if of == context else of, base) for c, (of, base) in self.forks.items()
        }


def seen(turn: Turn) -> Shown:
    """Return what a turn shows."""
    assert turn.tombstone == (turn.payload is None)
    return turn.turn_id, turn.parent_turn_id, turn.depth, turn.patch, turn.payload


class Machine(Beside):
    """The rules: one for each thing that may happen to turns and contexts."""

    @initialize()
    def begin(self) -> None:
        self.make_thread()
        self.contexts = self.thread.contexts
        self.model = Model()
        self.create(0.0)

    def some_turn(self, share: float) -> int:
        """Return one of the turns that there are, or 0."""
        return int(share * (len(self.model.parents) + 1))

    def some_context(self, share: float) -> int:
        """Return one of the contexts that there ever were; 0 is none."""
        return int(share * (self.model.newest + 1))

    def handle(self, context: int) -> Context | None:
        """Return the handle of a context; None, once it was refused, where there is none."""
        if context in self.model.heads:
            return self.contexts.get(context)
        with pytest.raises(UnknownContextError):
            self.contexts.get(context)
        return None

    # --- writing ----------------------------------------------------------------------------------

    @rule(base=SHARES)
    def create(self, base: float) -> None:
        turn = self.some_turn(base)
        assert self.contexts.create(base=turn).id == self.model.create(turn, None)

    @rule(context=SHARES, at=st.none() | SHARES)
    def fork(self, context: float, at: float | None) -> None:
        number = self.some_context(context)
        if (handle := self.handle(number)) is None:
            return
        head = self.model.heads[number]
        chain = [0, *self.model.chain(head)]
        turn = None if at is None else chain[int(at * len(chain))]
        base = head if turn is None else turn
        assert handle.fork(at=turn).id == self.model.create(base, number)

    @rule(context=SHARES, parent=st.none() | SHARES, payload=PAYLOADS, expected=st.none() | SHARES)
    def append(
        self, context: float, parent: float | None, payload: bytes, expected: float | None
    ) -> None:
        number = self.some_context(context)
        if (handle := self.handle(number)) is None:
            return
        after = None if parent is None else self.some_turn(parent)
        head = None if expected is None else self.some_turn(expected)
        if head is not None and head != self.model.heads[number]:
            with pytest.raises(ConflictError) as caught:
                handle.append(payload, parent=after, expected_head=head)
            assert caught.value.actual == self.model.heads[number]
            return
        turn = handle.append(payload, parent=after, expected_head=head)
        made = self.model.append(number, after or 0, payload)
        assert (turn.turn_id, turn.parent_turn_id) == (made, self.model.parents[made])

    @rule(context=SHARES, count=st.integers(2, 12))
    def append_many(self, context: float, count: int) -> None:
        """Append many: without them no jump goes far."""
        number = self.some_context(context)
        if (handle := self.handle(number)) is None:
            return
        with self.thread.write():
            for n in range(count):
                assert handle.append(bytes([n])).turn_id == self.model.append(number, 0, bytes([n]))

    @rule(context=SHARES)
    def undone(self, context: float) -> None:
        if (handle := self.handle(self.some_context(context))) is None:
            return
        with pytest.raises(ZeroDivisionError), self.thread.write():
            handle.append(b"gone")
            handle.fork()
            handle.move(0)
            handle.delete()
            raise ZeroDivisionError

    @rule(context=SHARES, to=SHARES)
    def move(self, context: float, to: float) -> None:
        number, turn = self.some_context(context), self.some_turn(to)
        if (handle := self.handle(number)) is None:
            return
        assert handle.move(turn).head_turn_id == turn
        self.model.move(number, "move", turn)

    @rule(turn=SHARES, payload=st.none() | PAYLOADS)
    def patch(self, turn: float, payload: bytes | None) -> None:
        """Patch a turn, or hide it."""
        number = self.some_turn(turn)
        contexts = self.contexts
        if not number:
            with pytest.raises(UnknownTurnError):
                contexts.tombstone(number)
            return
        seq = contexts.tombstone(number) if payload is None else contexts.patch(number, payload)
        self.model.overlays.append((number, payload))
        assert seq == len(self.model.overlays)

    @rule(context=SHARES, turn=SHARES)
    def patch_on_chain(self, context: float, turn: float) -> None:
        number, which = self.some_context(context), self.some_turn(turn)
        if which == 0 or (handle := self.handle(number)) is None:
            return
        if which in self.model.chain(self.model.heads[number]):
            handle.patch(which, b"on the chain")
            self.model.overlays.append((which, b"on the chain"))
        else:
            with pytest.raises(ConflictError):
                handle.patch(which, b"off the chain")

    @rule(context=SHARES)
    def delete(self, context: float) -> None:
        number = self.some_context(context)
        if (handle := self.handle(number)) is not None:
            handle.delete()
            self.model.delete(number)

    @rule()
    def reopen(self) -> None:
        self.open_again()
        self.contexts = self.thread.contexts

    # --- reading ----------------------------------------------------------------------------------

    @rule(context=SHARES, other=SHARES, turn=SHARES, limit=st.integers(1, 9), as_of=SHARES)
    def read(self, context: float, other: float, turn: float, limit: int, as_of: float) -> None:
        """Read somewhere, at some seq, in every way."""
        model = self.model
        seq = int(as_of * (len(model.overlays) + 2))
        which = self.some_turn(turn)
        first, second = self.some_context(context), self.some_context(other)
        handles = self.handle(first), self.handle(second)
        if handles[0] is None or handles[1] is None:
            return
        chain = model.chain(model.heads[first])
        self.reads(handles[0], chain, limit, seq)
        if which in chain:
            self.reads(handles[0].at(which), chain[: chain.index(which) + 1], limit, seq)
        elif which:
            with pytest.raises(ConflictError):
                handles[0].before(which)
        self.differ(handles[0], handles[1], chain, model.chain(model.heads[second]), seq)

    def reads(self, view: View, chain: list[int], limit: int, seq: int | None) -> None:
        """Compare all ways of reading a chain."""
        shown = [self.model.shown(turn, seq) for turn in chain]
        page = view.last(limit, as_of=seq)
        assert [seen(turn) for turn in page] == shown[-limit:]
        found = [seen(turn) for turn in page]
        while page.next_cursor is not None:
            page = view.before(page.next_cursor, limit, as_of=seq)
            found = [*map(seen, page), *found]
        assert found == shown
        found = []
        cursor: int | None = 0
        while cursor is not None:
            page = view.range(cursor, limit, as_of=seq)
            found += map(seen, page)
            cursor = page.next_cursor
        assert found == shown
        assert [seen(turn) for turn in view.replay(as_of=seq)] == shown
        assert [seen(turn) for turn in view.replay(as_of=seq, start_depth=limit)] == shown[limit:]
        assert [view.ancestor(depth) for depth in range(len(chain) + 1)] == [*chain, 0]

    def differ(self, one: View, other: View, mine: list[int], theirs: list[int], seq: int) -> None:
        """Compare two chains."""
        shared = sum(1 for a, b in zip(mine, theirs, strict=False) if a == b)
        ancestor = mine[shared - 1] if shared else 0
        assert one.common_ancestor(other) == ancestor
        diff = one.diff(other, as_of=seq)
        assert diff.ancestor == ancestor
        for found, turns in ((diff.mine, mine[shared:]), (diff.theirs, theirs[shared:])):
            assert len(found) == len(turns)
            assert [seen(turn) for turn in found] == [self.model.shown(turn, seq) for turn in turns]

    # --- after every step -------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        found = list(self.contexts)
        heads = [(info.context_id, info.head_turn_id) for info in found]
        assert heads == sorted(model.heads.items())
        for info in found:
            number = info.context_id
            chain = model.chain(info.head_turn_id)
            assert info.head_depth == max(0, len(chain) - 1)
            assert (info.fork_of, info.base_turn_id) == model.forks[number]
            assert info.version == len(model.moves[number]) - 1
            last = self.contexts.get(number).last(1000)
            assert [seen(turn) for turn in last] == [*map(model.shown, chain)]
        assert self.thread.database.memory.copies.last_ids().turn == len(model.parents)
        assert self.thread.database.memory.turns.last_patch() == len(model.overlays)

    @rule(context=SHARES)
    def history(self, context: float) -> None:
        number = self.some_context(context)
        if number:
            moves = self.contexts.history(number)
            found = [(move.op, move.old_turn_id, move.new_turn_id) for move in moves]
            assert found == self.model.moves[number]


def test_turns_are_their_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done to contexts, every reading is what plain lists say."""
    monkeypatch.setattr(turns_module, "PAGE_TURNS", 7)
    drive(Machine, monkeypatch, 40, 35)


# --- jump pointers --------------------------------------------------------------------------------


def plant(thread: Thread, parents: Iterator[int]) -> list[int]:
    """Store turns without appends, and return the depth of each; turn n is the n-th."""
    depths = [0]
    with thread.write():
        first = thread.contexts.create().append(b"x")
        thread.contexts.get(1).move(0)
        sqlite(thread.database).run("DELETE FROM turns")
        digest = bytes.fromhex(first.hash)
        new = []
        for turn, parent in enumerate(parents, 1):
            depths.append(depths[parent] + 1 if parent else 0)
            new.append(TurnCopy(turn, parent, depths[turn], "x", 1, None, 0, 0, 0, None, digest))
        thread.database.memory.copies.restore(new)
    return depths


def hops(thread: Thread, turn_id: int, depth: int) -> tuple[int, int]:
    """Walk to a depth by jumps and parents; return where that ends, and how many rows were read."""
    sql = "SELECT parent_id, depth, jump_id, jump_depth FROM turns WHERE turn_id = ?"
    read = 0
    while True:
        parent, at, jump, jump_depth = sqlite(thread.database).run(sql, (turn_id,))[0]
        read += 1
        if at <= depth:
            return turn_id if at == depth else 0, read
        turn_id = jump if jump_depth >= depth else parent


def test_ancestors_in_any_tree(quick: None) -> None:
    """In any tree the ancestor at every depth, and every common ancestor, is what a walk finds."""

    @bounded(25)
    @given(
        st.lists(SHARES, min_size=1, max_size=300),
        st.sampled_from([0.0, 0.5, 0.9, 0.99]),
        st.lists(SHARES, min_size=8, max_size=8),
    )
    def one(shares: list[float], long: float, picks: list[float]) -> None:
        # A share below `long` goes on at the newest turn: a tree of chance alone is never deep.
        parents = [0]
        for n, share in enumerate(shares, 1):
            parents.append(n - 1 if share < long else int((share - long) / (1 - long) * n))
        with (
            tempfile.TemporaryDirectory() as folder,
            eventq.open(eventq.init(os.path.join(folder, "t"))) as thread,
        ):
            depths = plant(thread, iter(parents[1:]))
            assert thread.check() == []
            turns = thread.contexts.turns
            chosen = sorted(
                {1 + int(pick * len(shares)) for pick in picks} | {depths.index(max(depths), 1)}
            )
            above = {}
            for turn in chosen:
                walk, at = [], turn
                while at:
                    walk.append(at)
                    at = parents[at]
                above[turn] = walk[::-1]
                depths_above = range(len(walk) + 1)
                assert [turns.ancestor(turn, at) for at in depths_above] == [*walk[::-1], 0]
                for depth in range(len(walk)):
                    assert hops(thread, turn, depth)[0] == walk[-1 - depth]
            for turn in chosen:
                for other in chosen:
                    shared = [a for a, b in zip(above[turn], above[other], strict=False) if a == b]
                    assert turns.common(turn, other) == (shared[-1] if shared else 0)

    one()


def test_a_deep_chain_is_short_to_cross(quick: None, thread: Thread) -> None:
    """On 100,000 turns any depth, and where two branches part, is found in at most 40 rows."""
    plant(thread, iter([*range(DEEP), DEEP // 2, *range(DEEP + 1, DEEP + DEEP // 2)]))
    turns = thread.contexts.turns
    steps = [
        *range(0, DEEP, 997),
        *range(64),
        *range(DEEP - 64, DEEP),
        *(1 << n for n in range(17)),
        65534,
        65535,
    ]
    most = 0
    for depth in steps:
        found, read = hops(thread, DEEP, depth)
        assert found == turns.ancestor(DEEP, depth) == depth + 1
        most = max(most, read)
    assert most <= MOST_HOPS
    assert turns.ancestor(DEEP, DEEP) == 0
    statements: list[str] = []
    connection = sqlite(thread.database).connection
    connection.exec_trace = lambda _, sql, __: not statements.append(sql)  # type: ignore[func-returns-value]
    tip = DEEP + DEEP // 2
    assert turns.common(DEEP, tip) == DEEP // 2
    assert turns.common(tip, DEEP - 3) == DEEP // 2
    connection.exec_trace = None
    assert len(statements) <= 4 * MOST_HOPS
    view = thread.contexts.at(tip)
    ids = [turn.turn_id for turn in view.range(DEEP // 2 - 2, 4)]
    assert ids == [DEEP // 2 - 1, DEEP // 2, DEEP + 1, DEEP + 2]
    assert view.has(1)
    assert not view.has(DEEP)


def test_the_library_reads_no_more(quick: None, thread: Thread) -> None:
    """The engine takes no more steps for an ancestor on 100,000 turns than those rows need."""
    plant(thread, iter(range(DEEP)))
    depths = (0, 1, 2, 3, DEEP // 3, DEEP // 2, DEEP - 2, *range(7, DEEP, 9973))
    assert max(work(thread, DEEP, depth) for depth in depths) <= MOST_HOPS * 40
    # One hop each, to its parent and by its jump, the root; a step or two is for the choice.
    assert work(thread, 65_536, 0) <= work(thread, 65_536, 65_534) + 2


def work(thread: Thread, turn_id: int, depth: int) -> int:
    """Return the number of steps that SQLite's machine takes to find an ancestor."""
    steps = [0]

    def count() -> bool:
        steps[0] += 1
        return False

    turns, connection = thread.contexts.turns, sqlite(thread.database).connection
    connection.set_progress_handler(count, 1)
    try:
        assert turns.ancestor(turn_id, depth) == depth + 1
    finally:
        connection.set_progress_handler(None)
    return steps[0]
