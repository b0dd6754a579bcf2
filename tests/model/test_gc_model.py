"""What a collection deletes is what a plain model of reachability says is dead."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from eventq.errors import ConflictError
from eventq.memory.chunking import cut
from eventq.records.turn import NewTurn, Turn
from eventq.system import clock
from tests.contract.memory import hash_of
from tests.model.support import Beside, drive

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY = 24 * 3600 * 1000
_LINES = random.Random(5)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _LINES.randrange(10**9)) for n in range(6_000))
LISTS = [TEXT[:80_000], TEXT[:110_000]]  # stored in parts, most of which they share
PARTS = {data: [bytes(chunk) for chunk in cut(data)] for data in LISTS}


class Payload(bytes):
    """Bytes that a report shows in short."""

    def __repr__(self) -> str:
        """Return the beginning and the length."""
        return f"<{self[:8]!r}, {len(self)} bytes>"


PAYLOADS = [
    Payload(data)
    for data in (b"", b"a", b"b", b"c", b"d", *LISTS, PARTS[LISTS[0]][0], PARTS[LISTS[1]][-1])
]
GRACES = [0, 0.001, 1, 3600, 86_400]
STEPS = [0, 1, 1_000, 1_001, 3_600_000, 3_600_001, 43_200_000, DAY, DAY + 1, DAY + 1, DAY + 1]

PAYLOAD = st.sampled_from(PAYLOADS)
SOME = st.lists(st.sampled_from(PAYLOADS), max_size=2)
PICK = st.integers(0, 1 << 20)
REFS = st.lists(PICK, max_size=2)


@dataclass
class Kept:
    """A blob of the model: what it leads to, when it was touched, whether it is a part only."""

    touched: int
    part: bool
    refs: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)


@dataclass
class Said:
    """A turn of the model."""

    parent: int
    payload: str
    at: int
    patches: list[str] = field(default_factory=list)
    root: str = ""


@dataclass
class Model:
    """What there is, and what leads to what."""

    now: int = 1_700_000_000_000
    blobs: dict[str, Kept] = field(default_factory=dict)
    turns: dict[int, Said] = field(default_factory=dict)
    newest: int = 0
    heads: dict[int, int] = field(default_factory=dict)
    contexts: int = 0
    log: list[tuple[int, int, int]] = field(default_factory=list)  # when, from, to
    # Turn, time and payload of each key.
    keys: dict[tuple[int, str], tuple[int, int, str]] = field(default_factory=dict)
    pins: set[tuple[str, str]] = field(default_factory=set)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    events: dict[int, set[str]] = field(default_factory=dict)
    last_event: int = 0

    def visible(self, digest: str) -> bool:
        return digest in self.blobs and not self.blobs[digest].part

    def hold(self, data: bytes) -> str:
        """Store bytes."""
        digest = hash_of(data)
        found = self.blobs.get(digest)
        if found is None:
            parts = PARTS.get(data, [])
            for part in parts:
                self.blobs.setdefault(hash_of(part), Kept(self.now, part=True))
            self.blobs[digest] = Kept(self.now, part=False, parts=set(map(hash_of, parts)))
        elif found.part:
            found.touched, found.part = self.now, False
        return digest

    def ancestors(self, turn: int) -> Iterable[int]:
        while turn in self.turns:  # the log may name what is gone
            yield turn
            turn = self.turns[turn].parent

    def alive(self, grace: float) -> tuple[set[int], set[str]]:
        """Return the turns and the blobs that something leads to."""
        since = self.now - int(grace * 1000) + (grace == 0)
        roots = {head for head in self.heads.values() if head}
        for at, old, new in self.log:
            if at >= since:
                roots |= {old, new} - {0}
        roots |= {turn for turn, at, _ in self.keys.values() if at >= self.now - DAY}
        roots |= {turn for turn, said in self.turns.items() if said.at >= since}
        turns = {above for root in roots for above in self.ancestors(root)}
        todo = [self.turns[turn].payload for turn in turns]
        todo += [patch for turn in turns for patch in self.turns[turn].patches]
        todo += [self.turns[turn].root for turn in turns if self.turns[turn].root in self.blobs]
        todo += [digest for _, digest in self.pins]
        todo += [digest for versions in self.outputs.values() for digest in versions]
        todo += [
            digest for named in self.events.values() for digest in named if digest in self.blobs
        ]
        todo += [digest for digest, kept in self.blobs.items() if kept.touched >= since]
        blobs: set[str] = set()
        while todo:
            digest = todo.pop()
            if digest not in blobs:
                blobs.add(digest)
                todo += [*self.blobs[digest].refs, *self.blobs[digest].parts]
        return turns, blobs

    def delete(self, turns: set[int], blobs: set[str]) -> None:
        """Forget all but what is alive."""
        self.turns = {turn: said for turn, said in self.turns.items() if turn in turns}
        self.blobs = {digest: kept for digest, kept in self.blobs.items() if digest in blobs}
        self.keys = {key: one for key, one in self.keys.items() if one[1] >= self.now - DAY}


class _UndoError(Exception):
    """Ends a block that is to be undone."""


class Machine(Beside):
    """The rules: one for each thing that may happen between collections."""

    @initialize()
    def begin(self) -> None:
        self.make_thread()
        self.model = Model()
        clock.now = lambda: self.model.now / 1000 + 0.0005

    def refs(self, picks: list[int]) -> list[str]:
        """Return the hashes of some blobs that can be seen."""
        seen = sorted(digest for digest in self.model.blobs if self.model.visible(digest))
        return [seen[pick % len(seen)] for pick in picks if seen]

    def turn(self, pick: int) -> int:
        """Return some turn, 0 for none."""
        turns = [0, *self.model.turns]
        return turns[pick % len(turns)]

    def context(self, pick: int) -> int:
        """Return some context, making the first."""
        if not self.model.heads:
            self.create(0)
        heads = list(self.model.heads)
        return heads[pick % len(heads)]

    # --- blobs ------------------------------------------------------------------------------------

    @rule(data=PAYLOAD, refs=REFS)
    def put(self, data: bytes, refs: list[int]) -> None:
        named = self.refs(refs)
        new = not self.model.visible(hash_of(data))
        assert self.thread.blobs.put(data, refs=named).new == new
        kept = self.model.blobs[self.model.hold(data)]
        kept.touched = self.model.now
        kept.refs |= set(named)

    @rule(data=PAYLOAD, leaf=PAYLOAD, owner=st.sampled_from("xy"))
    def pin_with_a_ref(self, data: bytes, leaf: bytes, owner: str) -> None:
        for payload, named in ((leaf, []), (data, [hash_of(leaf)])):
            self.thread.blobs.put(payload, refs=named)
            kept = self.model.blobs[self.model.hold(payload)]
            kept.touched = self.model.now
            kept.refs |= set(named)
        self.pin(data, owner)

    @rule(data=PAYLOAD, owner=st.sampled_from("xy"))
    def pin(self, data: bytes, owner: str) -> None:
        if self.model.visible(hash_of(data)):
            self.thread.blobs.pin(hash_of(data), owner)
            self.model.pins.add((owner, hash_of(data)))

    @rule(data=PAYLOAD, owner=st.sampled_from("xy"))
    def unpin(self, data: bytes, owner: str) -> None:
        if self.model.visible(hash_of(data)):
            assert self.thread.blobs.unpin(hash_of(data), owner) == (
                (owner, hash_of(data)) in self.model.pins
            )
            self.model.pins.discard((owner, hash_of(data)))

    # --- outputs ----------------------------------------------------------------------------------

    @rule(data=PAYLOAD, output=st.sampled_from(["0-A", "0-A.0-B"]))
    def publish(self, data: bytes, output: str) -> None:
        versions = self.model.outputs.setdefault(output, [])
        assert self.thread.outputs.publish(output, data).version == len(versions) + 1
        versions.append(self.model.hold(data))

    @rule(data=PAYLOAD)
    def name_it(self, data: bytes) -> None:
        if self.model.visible(hash_of(data)):
            assert self.thread.produced.name_blob(hash_of(data), sha256(data).digest())

    # --- turns ------------------------------------------------------------------------------------

    @rule(
        pick=PICK,
        data=PAYLOAD,
        refs=REFS,
        key=st.sampled_from([None, None, "k", "l"]),
        parent=st.none() | PICK,
    )
    def append(
        self, pick: int, data: bytes, refs: list[int], key: str | None, parent: int | None
    ) -> None:
        model = self.model
        context = self.context(pick)
        named = self.refs(refs)
        above = (self.turn(parent) if parent is not None else 0) or None

        def call() -> Turn:
            return self.thread.contexts.get(context).append(
                NewTurn(data, refs=named), key=key, parent=above
            )

        first = model.keys.get((context, key or ""))
        if first is not None and first[1] >= model.now - DAY:
            if first[2] == hash_of(data):
                assert call().turn_id == first[0]
            else:
                with pytest.raises(ConflictError):
                    call()
            return
        old = model.heads[context]
        turn = call()
        model.newest += 1
        assert turn.turn_id == model.newest
        digest = model.hold(data)
        model.blobs[digest].refs |= set(named)
        model.turns[turn.turn_id] = Said(above or old, digest, model.now)
        model.heads[context] = turn.turn_id
        model.log.append((model.now, old, turn.turn_id))
        if key is not None:
            model.keys[context, key] = turn.turn_id, model.now, digest

    @rule(pick=PICK, data=st.none() | PAYLOAD)
    def patch(self, pick: int, data: bytes | None) -> None:
        turn = self.turn(pick)
        if not turn:
            return
        if data is None:
            self.thread.contexts.tombstone(turn)
        else:
            self.thread.contexts.patch(turn, data)
            self.model.turns[turn].patches.append(self.model.hold(data))

    @rule(pick=PICK, data=PAYLOAD)
    def attach(self, pick: int, data: bytes) -> None:
        if turn := self.turn(pick):
            self.thread.contexts.attach(turn, hash_of(data))
            self.model.turns[turn].root = hash_of(data)

    @rule(pick=PICK)
    def create(self, pick: int) -> None:
        base = self.turn(pick)
        self.model.contexts += 1
        assert self.thread.contexts.create(base=base).id == self.model.contexts
        self.model.heads[self.model.contexts] = base

    @rule(pick=PICK, at=PICK)
    def fork(self, pick: int, at: int) -> None:
        context = self.context(pick)
        chain = list(self.model.ancestors(self.model.heads[context]))
        turn = chain[at % len(chain)] if chain else 0
        self.model.contexts += 1
        assert self.thread.contexts.fork(context, at=turn).id == self.model.contexts
        self.model.heads[self.model.contexts] = turn

    @rule(pick=PICK, to=PICK)
    def move(self, pick: int, to: int) -> None:
        context, turn = self.context(pick), self.turn(to)
        self.thread.contexts.get(context).move(turn)
        self.model.log.append((self.model.now, self.model.heads[context], turn))
        self.model.heads[context] = turn

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        context = self.context(pick)
        self.thread.contexts.delete(context)
        self.model.log.append((self.model.now, self.model.heads.pop(context), 0))

    # --- events -----------------------------------------------------------------------------------

    @rule(named=SOME, many=st.booleans())
    def push(self, named: list[bytes], many: bool) -> None:
        content = " ".join(f"blob:blake3:{hash_of(data)}" for data in named)
        if many:
            self.thread.push_many([("self", "note", content)])
        else:
            self.thread.push("self", "note", content)
        self.model.last_event += 1
        self.model.events[self.model.last_event] = {hash_of(data) for data in named}

    @rule(before=PICK)
    def prune(self, before: int) -> None:
        upto = before % (self.model.last_event + 2)
        self.thread.prune(before_id=upto)
        self.model.events = {
            number: named for number, named in self.model.events.items() if number >= upto
        }

    # --- time, trouble and collections ------------------------------------------------------------

    @rule(step=st.sampled_from(STEPS))
    def wait(self, step: int) -> None:
        self.model.now += step

    @rule(data=PAYLOAD, grace=st.sampled_from(GRACES))
    def undo(self, data: bytes, grace: float) -> None:
        try:
            with self.thread.write():
                self.thread.blobs.put(data)
                self.thread.outputs.put("C", data)
                self.thread.contexts.create().append(data)
                self.thread.push("self", "note", f"blob:blake3:{hash_of(data)}")
                self.thread.gc(apply=True, grace=grace)
                raise _UndoError
        except _UndoError:
            pass

    @rule(
        pick=PICK,
        to=PICK,
        drop=st.booleans(),
        grace=st.sampled_from(GRACES),
        step=st.sampled_from(STEPS),
    )
    def leave(self, pick: int, to: int, drop: bool, grace: float, step: int) -> None:
        """Leave old turns, by a move or for good, and collect soon after."""
        self.context(pick)
        self.model.now += DAY + 1
        if drop:
            self.delete(pick)
        else:
            self.move(pick, to)
        self.collect(grace, step)

    @rule()
    def reopen(self) -> None:
        self.open_again()

    @rule(grace=st.sampled_from(GRACES), step=st.sampled_from(STEPS))
    def collect(self, grace: float, step: int) -> None:
        self.model.now += step
        turns, blobs = self.model.alive(grace)
        dead = {digest for digest in self.model.blobs if digest not in blobs}
        hashes = tuple(sorted(digest for digest in dead if not self.model.blobs[digest].part))
        expected = len(self.model.turns) - len(turns), hashes
        dry = self.thread.gc(grace=grace)
        assert (dry.turns, dry.hashes) == expected
        done = self.thread.gc(apply=True, grace=grace)
        assert (done.turns, done.hashes) == expected
        assert (done.size, done.stored) == (dry.size, dry.stored)
        self.model.delete(turns, blobs)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        database = self.thread.database
        rows, _ = database.memory.blobs.scan(None, 1 << 30)
        blobs = {row.digest.hex(): row.part for row, _ in rows}
        assert blobs == {digest: kept.part for digest, kept in self.model.blobs.items()}
        turns = [row.turn for row in database.memory.turns.page(0, 1 << 30, ["message"])]
        assert turns == sorted(self.model.turns)
        for turn in turns:
            roots = (self.model.turns[above].root for above in self.model.ancestors(turn))
            root = next(filter(None, roots), None)
            assert self.thread.contexts.root(turn) == (root and bytes.fromhex(root))


@pytest.mark.parametrize(
    ("examples", "steps"), [(8, 40), pytest.param(1_000, 60, marks=pytest.mark.soak)]
)
def test_the_dead_are_those_of_the_model(
    monkeypatch: pytest.MonkeyPatch, examples: int, steps: int
) -> None:
    """Whatever was done before, a collection deletes exactly what is dead."""
    monkeypatch.setattr("eventq.system.clock.now", clock.now)  # which the machine replaces
    drive(Machine, monkeypatch, examples, steps)
