"""A collection deletes what is no longer reachable, all of it and nothing else."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import UsageError
from eventq.errors import BusyError, DiskError, InputError, UnknownBlobError, UnknownTurnError
from eventq.records.turn import NewTurn
from tests.conftest import ROOT
from tests.contract.memory import DAY, MIB, MISSING, hash_of, ref_of, said
from tests.contract.runs import content_ref, full
from tests.contract.support import HOUR, collect

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Context, Thread
    from tests.conftest import Clock
    from tests.contract.memory import Stored

NOISE = random.Random(11).randbytes(3 * MIB)
_LINES = random.Random(12)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _LINES.randrange(10**9)) for n in range(20_000))

pytestmark = pytest.mark.usefixtures("quick")


def hashes(*data: bytes) -> tuple[str, ...]:
    """Return the names of bytes, sorted."""
    return tuple(sorted(map(hash_of, data)))


def turn_ids(stored: Stored) -> list[int]:
    """Return the ids of all turns."""
    return sorted(row[0] for row in stored()["turns"])


def files(path: str) -> dict[str, str]:
    """Return a hash of every file of a thread but the shared memory, which holds locks."""
    found = {}
    for folder, _, names in os.walk(path):
        for place in (os.path.join(folder, name) for name in names if not name.endswith("-shm")):
            with open(place, "rb") as file:
                found[place] = hashlib.sha256(file.read()).hexdigest()
    return found


# --- turns ----------------------------------------------------------------------------------------


def test_a_move_stays_for_the_grace_period(thread: Thread, clock: Clock, stored: Stored) -> None:
    """What a head has left, and where it has been between, stays for the grace period."""
    context = thread.contexts.create()
    for payload, parent in ((b"one", 0), (b"two", 0), (b"three", 1)):
        context.append(payload, parent=parent)
    clock.move(2 * DAY)
    context.move(2)  # leaves 3
    context.move(1)  # was at 2
    for seconds, left in ((HOUR - 1, 3), (1, 3), (1, 1)):
        clock.move(seconds)
        thread.gc(apply=True)
        assert len(turn_ids(stored)) == left
    assert [move.new_turn_id for move in context.history()][-1] == 1
    with pytest.raises(UnknownTurnError):
        context.move(3)


def test_a_move_stays_when_the_clock_goes_back(
    thread: Thread, clock: Clock, stored: Stored
) -> None:
    """A turn that a head was moved to lately stays, also if it left it by an earlier clock."""
    context = thread.contexts.create()
    context.append(b"one")
    context.append(b"two", parent=1)
    for to, seconds in ((1, 2 * DAY), (2, 2 * DAY), (1, -DAY)):
        clock.move(seconds)
        context.move(to)
    clock.move(DAY)
    assert collect(thread).turns == 0
    clock.move(HOUR + 1)
    assert (collect(thread).turns, turn_ids(stored)) == (1, [1])


def test_a_collection_drops_expired_keys(thread: Thread, clock: Clock, stored: Stored) -> None:
    """A collection leaves no key that nobody can use any more, also of turns that stay."""
    context, gone = thread.contexts.create(), thread.contexts.create()
    for number in range(5):
        context.append(b"%d" % number, key=f"k{number}")
    gone.append(b"once", key="k")
    gone.delete()
    clock.move(DAY)
    assert (collect(thread, 0).turns, len(stored()["turn_keys"])) == (0, 6)
    clock.move(0.001)
    assert (collect(thread, 0).turns, stored()["turn_keys"]) == (1, [])


# --- what given roots keep ------------------------------------------------------------------------


def test_what_a_blob_reaches(thread: Thread) -> None:
    """A blob reaches itself and what it refers to, to the end, round in a circle too; sorted."""
    leaf, aside = thread.blobs.put(b"leaf"), thread.blobs.put(b"aside")
    one = thread.blobs.put(b"one", refs=[leaf.ref])
    two = thread.blobs.put(b"two", refs=[one.ref])
    thread.blobs.put(b"one", refs=[two.ref])
    thread.blobs.put(b"above", refs=[two.ref])
    three = sorted([leaf.ref, one.ref, two.ref])
    for root in (two.ref, two.hash, bytes.fromhex(two.hash), one.ref):
        assert thread.reachable([root]) == three
    assert thread.reachable(iter([leaf.ref, leaf.hash])) == [leaf.ref]
    assert thread.reachable([aside.ref, two.ref]) == sorted([*three, aside.ref])
    assert thread.reachable([]) == []


def test_parts_are_no_blobs_that_are_reached(thread: Thread) -> None:
    """A blob in parts reaches no part, unless that was put by itself, too: then it is kept."""
    big = thread.blobs.put(NOISE)
    assert thread.reachable([big.ref]) == [big.ref]
    part = thread.blobs.put(NOISE[:MIB])
    assert thread.reachable([big.ref]) == sorted([big.ref, part.ref])
    assert thread.reachable([part.ref]) == [part.ref]


def test_what_a_turn_reaches(thread: Thread) -> None:
    """A turn reaches the payloads of its chain, their patches and file trees, and what these name."""
    leaf, aside = thread.blobs.put(b"leaf"), thread.blobs.put(b"aside")
    tree = thread.blobs.put(b"tree", refs=[leaf.ref])
    main = thread.contexts.create()
    for data in (b"one", b"two", b"three", b"one"):
        main.append(data)
    fork = main.fork(at=2)
    fork.append(NewTurn(b"of the fork", refs=[aside.ref]))
    main.patch(1, b"patched")
    main.patch(1, b"again")
    main.tombstone(2)
    thread.contexts.attach(1, tree.ref)
    thread.contexts.attach(2, bytes(32))  # of no stored blob
    one, two = hashes(b"one", b"patched", b"again", b"tree", b"leaf"), hashes(b"two")

    def found(*turns: int) -> list[str]:
        refs = thread.reachable([f"turn:{turn_id}" for turn_id in turns])
        return [ref.removeprefix("blob:blake3:") for ref in refs]

    assert found(1) == list(one)
    assert found(2) == sorted(one + two)
    assert found(3) == found(4) == sorted([*one, *two, *hashes(b"three")])
    assert found(5) == sorted([*one, *two, *hashes(b"of the fork", b"aside")])
    assert found(4, 5) == sorted({*found(4), *found(5)})


def test_roots_that_are_not_there(thread: Thread) -> None:
    """Unknown and malformed roots, and mere parts, are errors, whatever else is asked for."""
    ref = thread.blobs.put(b"here").ref
    thread.blobs.put(NOISE)
    part = hash_of(NOISE[:MIB])
    for root in (MISSING, MISSING[12:], bytes(32), part):
        with pytest.raises(UnknownBlobError, match="missing blob blob:blake3:"):
            thread.reachable([ref, root])
    for root in ("turn:0", "turn:1", "turn:" + "9" * 18):
        with pytest.raises(UnknownTurnError, match="there is no turn"):
            thread.reachable([ref, root])
    wrong: list[Any] = ["", "x", "turn:", "turn:x", "turn:-1", ref[:-1], b"1" * 31, 1, None]
    for root in wrong:
        with pytest.raises(InputError, match="names no blob and no turn"):
            thread.reachable([ref, root])
    for roots in (ref, b"1" * 32, 5):
        with pytest.raises(InputError, match="roots are several names"):
            thread.reachable(roots)  # type: ignore[arg-type]


def test_a_collection_keeps_what_is_reachable(thread: Thread, clock: Clock) -> None:
    """What heads and pins reach is what a collection leaves; asking for it writes nothing."""
    litter(thread, clock)
    kept = full(thread)
    kept.end()
    clock.move(9 * DAY)
    thread.prune(keep_last=0, force=True)
    collect(thread, 0)
    left = [blob.ref for blob in thread.blobs]
    heads = [f"turn:{info.head_turn_id}" for info in thread.contexts]
    before = files(thread.path)
    roots = [*heads, *(digest for _, digest in thread.blobs.pins())]
    assert thread.reachable(roots) == sorted(left)
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.reachable(roots) == sorted(left)
    assert files(thread.path) == before
    mine = thread.reachable([f"turn:{kept.info().head_turn_id}"])
    assert {*mine} < {*left}
    of_attempts = [ref_of(b"full artifact 2"), ref_of(b"full artifact 3")]
    assert {*of_attempts, content_ref("full failed at the head")} <= {*mine}


# --- blobs ----------------------------------------------------------------------------------------


def test_refs_are_followed_to_the_end(thread: Thread, clock: Clock) -> None:
    """Refs are followed through any number of blobs; all go together with the turn."""
    ref = thread.blobs.put(b"leaf").ref
    for number in range(50):
        ref = thread.blobs.put(b"node %d" % number, refs=[ref]).ref
    big = thread.blobs.put(NOISE, refs=[ref])
    context = thread.contexts.create()
    context.append(NewTurn(b"turn", refs=[big.ref]))
    clock.move(DAY)
    assert collect(thread, 0).blobs == 0
    context.move(0)
    clock.move(DAY)
    assert collect(thread, 0).blobs == 53


def test_a_put_of_equal_bytes_renews_their_grace(thread: Thread, clock: Clock) -> None:
    """Whoever put them last is about to name them, whatever way they are stored."""
    datas = (b"hello", TEXT, NOISE)
    for data in datas:
        thread.blobs.put(data)
    for again in datas:
        clock.move(HOUR)
        assert collect(thread).blobs == 0
        for data in datas:
            thread.blobs.put(io.BytesIO(data) if data is again else data)
    clock.move(HOUR + 1)
    assert collect(thread).hashes == hashes(*datas)


def test_a_grace_of_nothing(thread: Thread, clock: Clock) -> None:
    """With grace=0 this very millisecond goes too; what comes from a later clock stays."""
    thread.blobs.put(b"now")
    context = thread.contexts.create()
    context.append(b"turn")
    context.delete()
    clock.move(1)
    later = thread.blobs.put(b"later")
    clock.move(-1)
    assert collect(thread, 0.0015).blobs == 0
    assert collect(thread, 0).turns == 1
    assert [blob.hash for blob in thread.blobs] == [later.hash]


@pytest.mark.parametrize(("grace", "left"), [(10, 1), (9.999, 1), (9.998, 0), (1e11, 1)])
def test_the_grace_is_the_callers(thread: Thread, clock: Clock, grace: float, left: int) -> None:
    """`grace` is in seconds, to the millisecond."""
    thread.blobs.put(b"hello")
    clock.move(9.999)
    thread.gc(apply=True, grace=grace)
    assert len(thread.blobs) == left


@pytest.mark.parametrize(
    "grace", [-1, -0.001, float("nan"), float("inf"), 1 << 40, "1", None, True]
)
@pytest.mark.parametrize("apply", [False, True])
def test_a_grace_that_is_none(thread: Thread, grace: Any, apply: bool) -> None:
    """A grace that is negative, no number or without end is refused, and nothing is deleted."""
    thread.blobs.put(b"hello")
    with pytest.raises(UsageError, match="grace must be a number of seconds"):
        thread.gc(apply=apply, grace=grace)
    assert len(thread.blobs) == 1


def test_an_open_turn_is_no_blob_yet(thread: Thread, clock: Clock) -> None:
    """What is written of an open turn stays until it is sealed or discarded."""
    context = thread.contexts.create()
    opened, dropped = context.open_turn(), context.open_turn()
    opened.append_delta(TEXT)
    dropped.append_delta(b"dropped")
    clock.move(9 * DAY)
    assert collect(thread, 0).blobs == 0
    dropped.discard()
    opened.seal()
    clock.move(9 * DAY)
    assert collect(thread, 0).blobs == 0
    assert said(context.last()) == [TEXT]


# --- what it reports and writes -------------------------------------------------------------------


def litter(thread: Thread, clock: Clock) -> tuple[str, ...]:
    """Leave 3 turns and 4 blobs of garbage, and something to keep; return the garbage's hashes."""
    context = thread.contexts.create("kept")
    context.append(NewTurn(b"kept", refs=[thread.blobs.put(b"kept by a ref").ref]))
    fork = context.fork()
    for data in (b"gone", TEXT, NOISE[: 2 * MIB]):
        fork.append(data)
    fork.delete()
    thread.blobs.put(b"put")
    thread.push("self", "note", thread.blobs.put(b"kept by an event").ref)
    clock.move(9 * DAY)
    return hashes(b"gone", TEXT, NOISE[: 2 * MIB], b"put")


def test_a_dry_run_is_the_default_and_writes_nothing(thread: Thread, clock: Clock) -> None:
    """Without `apply` nothing is deleted, and no byte of any file changes."""
    expected = litter(thread, clock)
    before = files(thread.path)
    for grace in (HOUR, 0):
        found = thread.gc(grace=grace)
        assert (found.applied, found.turns, found.hashes) == (False, 3, expected)
    with eventq.open(thread.path, read_only=True) as reader:
        assert thread.gc().hashes == reader.gc().hashes == expected
    assert files(thread.path) == before


def test_what_was_listed_is_what_goes(thread: Thread, clock: Clock, stored: Stored) -> None:
    """Apply deletes what the dry run listed; counts, bytes, hashes and the log's line are right."""
    expected = litter(thread, clock)
    stats = [thread.blobs.stat(name) for name in expected]

    def kept() -> int:
        return sum(len(data) for _, data in stored()["blob_bytes"])

    before, names = kept(), {blob.hash for blob in thread.blobs}
    found = collect(thread)
    assert (found.turns, found.blobs, found.hashes) == (3, 4, expected)
    assert found.size == sum(blob.size for blob in stats)
    assert found.stored == sum(blob.stored for blob in stats) == before - kept()
    assert {blob.hash for blob in thread.blobs} == names - set(expected)
    assert said(thread.contexts.get("kept").replay()) == [b"kept"]
    after = stored()
    left = {row[0] for row in after["blobs"]}
    for table in ("blob_bytes", "blob_parts", "blob_refs"):
        assert {row[0] for row in after[table]} <= left
    with open(os.path.join(thread.path, "logs", "thread.log"), encoding="utf-8") as file:
        assert f"gc: turns=3 blobs=4 bytes={found.stored}" in file.read()


def test_a_collection_of_nothing(thread: Thread) -> None:
    """An empty thread has nothing to collect."""
    found = collect(thread, 0)
    assert (found.turns, found.blobs, found.size, found.stored, found.hashes) == (0, 0, 0, 0, ())


@pytest.mark.parametrize("nested", [False, True])
def test_inside_a_block_that_is_rolled_back(
    thread: Thread, clock: Clock, stored: Stored, nested: bool
) -> None:
    """A collection inside `write` is part of it: undone with it, or committed with it."""
    expected = litter(thread, clock)
    before = stored()
    with pytest.raises(ZeroDivisionError), thread.write():
        if nested:
            with thread.write():
                found = thread.gc(apply=True)
        else:
            found = thread.gc(apply=True)
        assert (found.hashes, thread.gc().blobs) == (expected, 0)
        raise ZeroDivisionError
    assert stored() == before
    assert thread.blobs.get(hash_of(TEXT)) == TEXT
    with thread.write():
        new = thread.blobs.put(b"new")
        assert thread.gc(apply=True).hashes == expected
    assert (thread.blobs.has(new.ref), thread.gc(apply=True).blobs) == (True, 0)


def test_a_full_disk_after_the_deletion(
    thread: Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after the deletion is an error; the next collection frees the space."""
    expected = litter(thread, clock)

    def full() -> None:
        raise DiskError("the disk is full", "free some")

    with monkeypatch.context() as patch:
        patch.setattr(thread.database, "compact", full)
        with pytest.raises(DiskError, match="3 turns and 4 blobs were deleted, but their space"):
            thread.gc(apply=True)
    assert not any(thread.blobs.has(name) for name in expected)
    assert thread.database.stats().free > 0
    assert thread.gc(apply=True).blobs == 0
    assert thread.database.stats().free == 0


# --- ids ------------------------------------------------------------------------------------------


def test_turn_ids_are_never_used_again(thread: Thread, clock: Clock) -> None:
    """After a collection of the newest turns, or of all, the next turn has a new id."""
    context = thread.contexts.create()
    context.append(b"kept")
    for _ in range(3):
        newest = context.append(b"gone").turn_id
        context.move(1)
        clock.move(DAY)
        assert collect(thread, 0).turns >= 1
        assert context.append(b"next").turn_id == newest + 1
        context.move(1)
    context.move(0)
    clock.move(DAY)
    collect(thread, 0)
    with eventq.open(thread.path) as other:
        turn = other.contexts.get(context.id).append(b"first")
        assert (turn.turn_id, turn.depth, turn.parent_turn_id) == (8, 0, 0)


def program(code: str, *words: str) -> subprocess.Popen[str]:
    """Start a Python program."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- beside others --------------------------------------------------------------------------------

COLLECT = """
import select, sys, eventq
with eventq.open(sys.argv[1]) as thread:
    print("ready", flush=True)
    rounds = deleted = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        found = thread.gc(apply=True, grace=float(sys.argv[2]))
        rounds, deleted = rounds + 1, deleted + found.blobs
print(rounds, deleted)
"""


def fill(thread: Thread, context: Context) -> list[bytes]:
    """Append to a context, beside forks that go again and blobs of events; return its payloads."""
    expected = []
    for number in range(250):
        leaf = b"leaf %d" % (number % 7)
        payload = (b"%d " % number) + TEXT[: (number % 5) * 20_000]
        with thread.write():  # what is put and named in one change is never alone
            context.append(NewTurn(payload, refs=[thread.blobs.put(leaf).ref]))
        context.append(leaf)  # old bytes, which a collection may just delete
        expected += [payload, leaf]
        fork = context.fork()
        fork.append(b"fork %d" % (number % 3) + NOISE[:100_000])
        fork.delete()
        thread.push("self", "note", thread.blobs.put(b"event %d" % number).ref)
        if number % 25 == 0:
            thread.contexts.create().append(NOISE[: MIB + number])
            assert said(context.last(50)) == expected[-50:]
    return expected


@pytest.mark.parametrize("grace", [0, 60])
def test_a_collector_beside_a_writer(thread: Thread, grace: float) -> None:
    """While another process collects in a loop no append is lost, and no payload is missing."""
    with program(COLLECT, thread.path, str(grace)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        expected = fill(thread, thread.contexts.create("main"))
        told, complaint = process.communicate("stop\n", timeout=120)
    assert (process.returncode, complaint) == (0, "")
    rounds, deleted = map(int, told.split())
    assert (rounds > 0, deleted > 0) == (True, grace == 0)
    with eventq.open(thread.path) as fresh:
        assert said(fresh.contexts.get("main").replay()) == expected


class Waits(io.BytesIO):
    """A file during whose last read something happens."""

    def __init__(self, data: bytes, work: Callable[[], object]) -> None:
        super().__init__(data)
        self._work = work

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        found = super().read(size)
        if not found:
            self._work()
        return found


@pytest.mark.parametrize("data", [b"few", TEXT, NOISE[: 2 * MIB]], ids=["few", "text", "parts"])
@pytest.mark.parametrize("end", [None, b"", b"another end"], ids=["new", "the same", "alike"])
def test_a_collection_while_bytes_come_in(
    thread: Thread, clock: Clock, data: bytes, end: bytes | None
) -> None:
    """A long put, during which another collects with grace, stores all of its bytes."""
    if end is not None:  # what is old, and met again, is safe for the grace period from then on
        thread.blobs.put(io.BytesIO(data + end))
        clock.move(DAY)
    with eventq.open(thread.path) as other:
        blob = thread.blobs.put(Waits(data, lambda: other.gc(apply=True)))
        assert (blob.size, other.blobs.get(blob.ref)) == (len(data), data)


def test_a_stream_without_any_grace(thread: Thread) -> None:
    """A collection without grace takes parts that come in: that is an error, nothing is half."""
    with eventq.open(thread.path) as other:
        file = Waits(NOISE, lambda: other.gc(apply=True, grace=0))
        with pytest.raises(BusyError, match="a collection deleted parts of the stream"):
            thread.blobs.put(file)
        assert len(thread.blobs) == 0
        assert thread.blobs.put(io.BytesIO(NOISE)).size == len(NOISE)


@pytest.mark.parametrize("data", [b"few", TEXT, NOISE], ids=["few", "text", "parts"])
def test_bytes_without_any_grace(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Bytes in memory are stored whole even if a collection deletes their parts meanwhile."""
    thread.blobs.put(data)  # so that there is something to meet, and to lose
    prepare = thread.blobs.prepare
    with eventq.open(thread.path) as other:

        def prepared(*given: Any, **named: Any) -> Any:
            ready = prepare(*given, **named)
            other.gc(apply=True, grace=0)
            return ready

        monkeypatch.setattr(thread.blobs, "prepare", prepared)
        blob = thread.blobs.put(data)
        assert other.blobs.get(blob.ref) == data
        new = thread.contexts.create().append(data + b"!")
        assert other.contexts.turn(new.turn_id).payload == data + b"!"
