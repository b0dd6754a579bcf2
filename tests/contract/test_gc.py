"""A collection deletes what nothing leads to any more, all of it and nothing else, and only in a sound thread."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq import UsageError
from eventq.errors import DamagedError, DiskError, StoreError, UnknownTurnError
from eventq.records import NewTurn
from tests.conftest import ROOT
from tests.contract.support import ask, collect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Clock

HOUR, DAY, MIB = 3600, 24 * 3600, 1 << 20
NOISE = random.Random(11).randbytes(3 * MIB)
_LINES = random.Random(12)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _LINES.randrange(10**9)) for n in range(20_000))


pytestmark = pytest.mark.usefixtures("quick")


def name_of(data: bytes) -> str:
    """Give the hash of bytes."""
    return blake3(data).hexdigest()


def turn_ids(raw: apsw.Connection) -> list[int]:
    """Give the ids of all turns."""
    return [row[0] for row in ask(raw, "SELECT turn_id FROM turns ORDER BY 1")]


def everything(raw: apsw.Connection) -> dict[str, list[Any]]:
    """Give all rows of all tables."""
    tables = [
        row[0] for row in ask(raw, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
    ]
    return {table: ask(raw, f"SELECT * FROM {table}") for table in tables}


def files(path: str) -> dict[str, str]:
    """Give a hash of every file of a thread but the shared memory, which holds locks and no data."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            place = os.path.join(folder, name)
            if not name.endswith("-shm"):
                with open(place, "rb") as file:
                    found[place] = hashlib.sha256(file.read()).hexdigest()
    return found


# --- roots ------------------------------------------------------------------------------------------------------------


def test_what_a_head_reaches_stays(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 48: every turn and payload from any head up to its root stays for ever, whatever the head's age."""
    context, other = thread.contexts.create("a"), thread.contexts.create()
    turns = [context.append(b"turn %d" % n) for n in range(300)]
    other.append(TEXT)
    clock.move(1000 * DAY)
    found = collect(thread, 0)
    assert (found.turns, found.blobs) == (0, 0)
    assert [turn.payload for turn in context.replay()] == [b"turn %d" % n for n in range(300)]
    assert turn_ids(raw) == [*(turn.turn_id for turn in turns), 301]


def test_the_tip_of_a_deleted_fork_goes(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 49: of a fork that was deleted its own turns and payloads go, and what it shared with another stays."""
    main = thread.contexts.create("main")
    shared = [main.append(b"shared %d" % n) for n in range(3)]
    fork = main.fork(at=shared[1].turn_id)
    mine = [fork.append(b"mine"), fork.append(b"shared 0"), fork.append(TEXT)]
    below = fork.fork(name="below")
    last = below.append(b"below")
    fork.delete()
    clock.move(2 * DAY)
    assert collect(thread).turns == 0  # the fork of the fork still needs them
    below.delete()
    clock.move(HOUR + 1)
    found = collect(thread)
    assert (found.turns, found.blobs) == (4, 3)
    assert found.hashes == tuple(sorted(map(name_of, (b"mine", TEXT, b"below"))))
    assert turn_ids(raw) == [turn.turn_id for turn in shared]
    assert [turn.payload for turn in main.replay()] == [b"shared 0", b"shared 1", b"shared 2"]
    for turn in (*mine, last):
        with pytest.raises(UnknownTurnError):
            thread.contexts.turn(turn.turn_id)
    assert thread.blobs.get(name_of(b"shared 0")) == b"shared 0"


def test_the_parent_of_a_fork_may_go(thread: eventq.Thread, clock: Clock) -> None:
    """Row 42: a fork lives on when what it was forked from is deleted, and its base may go when it has moved away."""
    main = thread.contexts.create()
    first = main.append(b"first")
    fork = main.fork()
    main.delete()
    clock.move(2 * DAY)
    assert collect(thread, 0).turns == 0
    assert (fork.info().fork_of, fork.info().base_turn_id) == (None, first.turn_id)
    other = thread.contexts.create().append(b"other")
    fork.move(other.turn_id)
    clock.move(2 * DAY)
    assert collect(thread, 0).hashes == (name_of(b"first"),)
    assert (fork.info().base_turn_id, fork.info().head_turn_id) == (0, other.turn_id)


def test_a_move_stays_for_the_time_of_grace(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 53: what a head has left, and where it has been between, stays for the time of grace after each move."""
    context = thread.contexts.create()
    one = context.append(b"one")
    two = context.append(b"two")
    three = context.append(b"three", parent=one.turn_id)
    clock.move(2 * DAY)
    context.move(two.turn_id)  # leaves three
    context.move(one.turn_id)  # was at two
    for seconds, left in ((HOUR - 1, 3), (1, 3), (1, 1)):
        clock.move(seconds)
        thread.gc(apply=True)
        assert len(turn_ids(raw)) == left
    assert [move.new_turn_id for move in context.history()][-1] == one.turn_id
    with pytest.raises(UnknownTurnError):
        context.move(three.turn_id)


def test_a_move_stays_when_the_clock_goes_back(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 53: a turn that a head was moved to within the time of grace stays, also if it left it by an earlier clock."""
    context = thread.contexts.create()
    one = context.append(b"one")
    context.append(b"two", parent=one.turn_id)
    clock.move(2 * DAY)
    context.move(one.turn_id)
    clock.move(2 * DAY)
    context.move(2)
    clock.move(-DAY)
    context.move(one.turn_id)
    clock.move(DAY)
    assert collect(thread).turns == 0
    clock.move(HOUR + 1)
    assert collect(thread).turns == 1
    assert turn_ids(raw) == [1]


def test_a_deleted_context_is_a_move(thread: eventq.Thread, clock: Clock) -> None:
    """Row 29: deleting a context deletes no turn; its head is found in the log, and stays for the time of grace."""
    context = thread.contexts.create()
    context.append(b"one")
    head = context.append(b"two")
    clock.move(2 * DAY)
    context.delete()
    clock.move(HOUR)
    assert collect(thread).turns == 0
    (*_, last) = thread.contexts.history(context.id)
    found = thread.contexts.create(base=last.old_turn_id)
    assert [turn.payload for turn in found.replay()] == [b"one", b"two"]
    found.delete()
    clock.move(HOUR + 1)
    assert collect(thread).turns == 2
    with pytest.raises(UnknownTurnError):
        thread.contexts.create(base=head.turn_id)


def test_a_young_turn_stays(thread: eventq.Thread, clock: Clock) -> None:
    """A turn that no head leads to stays, with all above it, until it is as old as the time of grace."""
    context = thread.contexts.create()
    context.append(b"root")
    clock.move(2 * DAY)
    context.append(b"child")
    context.move(0)
    clock.move(HOUR)
    thread.database.connection.execute(
        "UPDATE context_log SET at_ms = 0"
    )  # so that only the turn's own age counts
    assert collect(thread).turns == 0
    clock.move(1)
    assert collect(thread).turns == 2


def test_a_key_stays_for_24_hours(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """A turn with an idempotency key is there for a repetition for 24 hours, whatever the grace; then it and the key go."""
    context = thread.contexts.create()
    turn = context.append(b"once", key="k")
    context.append(b"twice")
    context.move(0)
    clock.move(DAY)
    found = collect(thread, 0)
    assert (found.turns, found.hashes) == (1, (name_of(b"twice"),))
    assert context.append(b"once", key="k").turn_id == turn.turn_id
    clock.move(0.001)
    assert collect(thread, 0).turns == 1
    assert ask(raw, "SELECT count(*) FROM turn_keys") == [(0,)]
    again = context.append(b"once", key="k")
    assert again.turn_id > turn.turn_id


def test_a_collection_drops_expired_keys(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """A collection leaves no key behind that nobody can use any more, also of turns that stay."""
    context = thread.contexts.create()
    for number in range(5):
        context.append(b"%d" % number, key=f"k{number}")
    clock.move(DAY)
    collect(thread)
    assert ask(raw, "SELECT count(*) FROM turn_keys") == [(5,)]
    clock.move(0.001)
    assert collect(thread).turns == 0
    assert ask(raw, "SELECT count(*) FROM turn_keys") == [(0,)]


def test_a_key_of_a_deleted_context(thread: eventq.Thread, clock: Clock) -> None:
    """The turns of a deleted context with young keys stay, and nothing is left of the keys when they go."""
    context = thread.contexts.create()
    context.append(b"once", key="k")
    context.delete()
    clock.move(DAY - 1)
    assert collect(thread, 0).turns == 0
    clock.move(2)
    assert collect(thread, 0).turns == 1


def test_overlays_keep_both_payloads(thread: eventq.Thread, clock: Clock) -> None:
    """Row 37: what an overlay shows and what it hides both stay, older overlays too, as long as their turn does."""
    context = thread.contexts.create()
    turn = context.append(b"old")
    ref = thread.blobs.put(b"named by a patch")
    seqs = [
        context.patch(turn.turn_id, NewTurn(b"new 1", refs=[ref.ref])),
        context.patch(turn.turn_id, TEXT),
    ]
    context.tombstone(turn.turn_id)
    clock.move(9 * DAY)
    assert collect(thread, 0).blobs == 0
    found = [thread.contexts.turn(turn.turn_id, as_of=seq).payload for seq in (0, *seqs)]
    assert found == [b"old", b"new 1", TEXT]
    context.move(0)
    clock.move(9 * DAY)
    done = collect(thread, 0)
    assert (done.turns, done.blobs) == (1, 4)
    assert thread.contexts.create().append(b"x").turn_id == 2


def test_a_root_keeps_what_it_names(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """The blob of a root, and what that names, stay as long as the turn; then the root goes with it."""
    leaf = thread.blobs.put(TEXT)
    tree, other = thread.blobs.put(b"tree", refs=[leaf.ref]), thread.blobs.put(b"other")
    main, side = thread.contexts.create("main"), thread.contexts.create("side")
    main.append(b"one")
    main.append(b"two")
    side.append(b"three")
    thread.contexts.attach(1, tree.ref)
    thread.contexts.attach(3, other.ref)
    thread.contexts.attach(2, bytes(32))
    clock.move(2 * DAY)
    assert collect(thread, 0).blobs == 0
    side.delete()
    clock.move(1)
    assert collect(thread, 0).hashes == tuple(sorted(map(name_of, (b"three", b"other"))))
    assert ask(raw, "SELECT turn_id FROM turn_roots ORDER BY 1") == [(1,), (2,)]
    thread.contexts.attach(1, bytes(32))
    found = collect(thread, 0)
    assert (found.turns, found.hashes) == (0, tuple(sorted((tree.hash, leaf.hash))))
    main.delete()
    clock.move(1)
    collect(thread, 0)
    assert ask(raw, "SELECT * FROM turn_roots") == []


def test_a_pin_keeps(thread: eventq.Thread, clock: Clock) -> None:
    """Row 51: a pinned blob stays with all that it names until its last owner lets go."""
    leaf = thread.blobs.put(b"leaf")
    blob = thread.blobs.put(TEXT, refs=[leaf.ref])
    thread.blobs.pin(blob.ref, "a")
    thread.blobs.pin(blob.ref, "b")
    clock.move(DAY)
    assert collect(thread, 0).blobs == 0
    thread.blobs.unpin(blob.ref, "a")
    assert collect(thread, 0).blobs == 0
    thread.blobs.unpin(blob.ref, "b")
    assert collect(thread, 0).hashes == tuple(sorted([leaf.hash, blob.hash]))


def test_refs_are_followed_to_the_end(thread: eventq.Thread, clock: Clock) -> None:
    """Row 50: refs are followed through any number of blobs from a turn, and all go together when the turn goes."""
    chain = [thread.blobs.put(b"leaf")]
    for number in range(50):
        chain.append(thread.blobs.put(b"node %d" % number, refs=[chain[-1].ref]))
    big = thread.blobs.put(NOISE, refs=[chain[-1].ref])
    context = thread.contexts.create()
    context.append(NewTurn(b"turn", refs=[big.ref]))
    clock.move(DAY)
    assert collect(thread, 0).blobs == 0
    assert thread.blobs.get(chain[0].ref) == b"leaf"
    context.move(0)
    clock.move(DAY)
    assert collect(thread, 0).blobs == 53


def test_blobs_that_name_each_other(thread: eventq.Thread, clock: Clock) -> None:
    """Row 56: refs that go round in a circle stop no collection, and keep nothing by themselves."""
    one = thread.blobs.put(b"one")
    two = thread.blobs.put(b"two", refs=[one.ref])
    thread.blobs.put(b"one", refs=[two.ref])
    self_named = thread.blobs.put(b"self")
    thread.blobs.put(b"self", refs=[self_named.ref])
    thread.blobs.pin(two.ref, "me")
    clock.move(DAY)
    assert collect(thread, 0).hashes == (self_named.hash,)
    thread.blobs.unpin(two.ref, "me")
    assert collect(thread, 0).hashes == tuple(sorted([one.hash, two.hash]))


def test_an_event_keeps_what_it_names(thread: eventq.Thread, clock: Clock) -> None:
    """Rows 53, 84, 110: a blob that an event's text mentions stays until the event is pruned."""
    blob = thread.blobs.put(b"hello")
    other = thread.blobs.put(b"other")
    thread.push("self", "note", f"plain text that mentions {blob.ref}")
    thread.push("self", "note", f"BLOB:{other.hash}")
    clock.move(DAY)
    assert collect(thread, 0).hashes == (other.hash,)
    thread.prune(keep_last=0)
    assert collect(thread, 0).hashes == (blob.hash,)


def test_an_event_that_came_too_late(thread: eventq.Thread, clock: Clock) -> None:
    """Row 110: an event may name what is not stored (any more): it keeps the bytes when they are put."""
    blob = thread.blobs.put(b"hello")
    clock.move(DAY)
    collect(thread, 0)
    thread.push("self", "note", blob.ref)
    thread.blobs.put(b"hello")
    clock.move(DAY)
    assert collect(thread, 0).blobs == 0


def test_parts_stay_with_what_they_are_parts_of(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """The parts of a blob stay while any blob has them, and those that none has any more go with the last."""
    one = thread.blobs.put(NOISE)
    two = thread.blobs.put(NOISE[: 2 * MIB] + b"x" * MIB)
    thread.blobs.pin(one.ref, "me")
    clock.move(DAY)
    found = collect(thread, 0)
    assert (found.hashes, found.size, found.stored) == ((two.hash,), 3 * MIB, two.stored - 2 * MIB)
    assert b"".join(thread.blobs.stream(one.ref)) == NOISE
    thread.blobs.put(NOISE[:MIB])
    thread.blobs.unpin(one.ref, "me")
    assert collect(thread).hashes == (one.hash,)  # and the part that was put by itself stays
    assert [blob.hash for blob in thread.blobs] == [name_of(NOISE[:MIB])]
    assert ask(raw, "SELECT count(*) FROM blobs") == [(1,)]
    assert thread.blobs.get(name_of(NOISE[:MIB])) == NOISE[:MIB]


def test_a_put_is_safe_for_the_time_of_grace(thread: eventq.Thread, clock: Clock) -> None:
    """Row 51: what was put and is not linked yet survives for the grace time; putting equal bytes renews it."""
    made = [thread.blobs.put(data) for data in (b"hello", TEXT, NOISE)]
    clock.move(HOUR)
    assert collect(thread).blobs == 0
    thread.blobs.put(TEXT)
    thread.blobs.put(io.BytesIO(b"hello"))
    clock.move(1)
    assert collect(thread).hashes == (made[2].hash,)
    clock.move(HOUR - 1)
    assert collect(thread).blobs == 0
    clock.move(1)
    assert collect(thread).hashes == tuple(sorted([made[0].hash, made[1].hash]))


def test_a_grace_of_nothing(thread: eventq.Thread, clock: Clock) -> None:
    """With grace=0 what was stored in this very millisecond goes too, and what comes from a later clock stays."""
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
def test_the_grace_is_the_callers(
    thread: eventq.Thread, clock: Clock, grace: float, left: int
) -> None:
    """`grace` is in seconds, to the millisecond."""
    thread.blobs.put(b"hello")
    clock.move(9.999)
    thread.gc(apply=True, grace=grace)
    assert len(thread.blobs) == left


@pytest.mark.parametrize(
    "grace", [-1, -0.001, float("nan"), float("inf"), 1 << 40, "1", None, True]
)
def test_a_grace_that_is_none(thread: eventq.Thread, grace: Any) -> None:
    """A grace that is negative, no number or without end is refused, and nothing is deleted."""
    thread.blobs.put(b"hello")
    for apply in (False, True):
        with pytest.raises(UsageError, match="grace must be a number of seconds"):
            thread.gc(apply=apply, grace=grace)
    assert len(thread.blobs) == 1


def test_an_open_turn_is_no_blob_yet(thread: eventq.Thread, clock: Clock) -> None:
    """What is written of an open turn stays through any collection until it is sealed or discarded."""
    context = thread.contexts.create()
    opened, dropped = context.open_turn(), context.open_turn()
    opened.append_delta(TEXT)
    dropped.append_delta(b"dropped")
    clock.move(9 * DAY)
    assert collect(thread, 0).blobs == 0
    dropped.discard()
    turn = opened.seal()
    clock.move(9 * DAY)
    assert collect(thread, 0).blobs == 0
    assert thread.contexts.turn(turn.turn_id).payload == TEXT


# --- what it says and writes ------------------------------------------------------------------------------------------


def litter(thread: eventq.Thread, clock: Clock) -> tuple[str, ...]:
    """Leave some garbage of each kind, and something to keep; give the hashes that are garbage, sorted."""
    context = thread.contexts.create("kept")
    context.append(NewTurn(b"kept", refs=[thread.blobs.put(b"kept by a ref").ref]))
    fork = context.fork()
    for data in (b"gone", TEXT, NOISE[: 2 * MIB]):
        fork.append(data)
    fork.delete()
    thread.blobs.put(b"put")
    thread.push("self", "note", thread.blobs.put(b"kept by an event").ref)
    clock.move(9 * DAY)
    return tuple(sorted(map(name_of, (b"gone", TEXT, NOISE[: 2 * MIB], b"put"))))


def test_a_dry_run_is_the_default_and_writes_nothing(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 54: without `apply` nothing is deleted, and no byte of any file changes."""
    expected = litter(thread, clock)
    before, rows = files(thread.path), everything(raw)
    for grace in (HOUR, 0):
        found = thread.gc(grace=grace)
        assert (found.applied, found.turns, found.hashes) == (False, 3, expected)
    assert thread.gc().hashes == expected
    assert (files(thread.path), everything(raw)) == (before, rows)
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.gc().hashes == expected
    assert (files(thread.path), everything(raw)) == (before, rows)


def test_what_was_listed_is_what_goes(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Rows 54, 57: apply deletes exactly what the dry run listed, and counts, bytes and sorted hashes are right."""
    expected = litter(thread, clock)
    stats = [thread.blobs.stat(name) for name in expected]
    kept = int(ask(raw, "SELECT sum(octet_length(bytes)) FROM blob_bytes")[0][0])
    names = {blob.hash for blob in thread.blobs}
    found = collect(thread)
    assert (found.turns, found.blobs, found.hashes) == (3, 4, expected)
    assert found.size == sum(blob.size for blob in stats)
    assert found.stored == sum(blob.stored for blob in stats)
    assert {blob.hash for blob in thread.blobs} == names - set(expected)
    assert (
        kept - int(ask(raw, "SELECT sum(octet_length(bytes)) FROM blob_bytes")[0][0])
        == found.stored
    )
    assert [turn.payload for turn in thread.contexts.get("kept").replay()] == [b"kept"]
    for table in ("blob_bytes", "blob_parts", "blob_refs"):
        assert ask(
            raw, f"SELECT count(*) FROM {table} WHERE blob_id NOT IN (SELECT blob_id FROM blobs)"
        ) == [(0,)]
    with open(os.path.join(thread.path, "logs", "thread.log"), encoding="utf-8") as file:
        assert f"gc: turns=3 blobs=4 bytes={found.stored}" in file.read()


def test_a_collection_of_nothing(thread: eventq.Thread) -> None:
    """An empty thread has nothing to collect, and says so."""
    found = collect(thread, 0)
    assert (found.turns, found.blobs, found.size, found.stored, found.hashes) == (0, 0, 0, 0, ())


def test_inside_a_block_that_is_rolled_back(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """A collection inside `write` is part of it: rolled back, nothing was deleted; committed, all was."""
    expected = litter(thread, clock)
    rows = everything(raw)
    for nested in (False, True):
        with pytest.raises(ZeroDivisionError), thread.write():
            if nested:
                with thread.write():
                    found = thread.gc(apply=True)
            else:
                found = thread.gc(apply=True)
            assert found.hashes == expected
            assert thread.gc().blobs == 0
            raise ZeroDivisionError
        assert everything(raw) == rows
        assert thread.blobs.get(name_of(TEXT)) == TEXT
    with thread.write():
        new = thread.blobs.put(b"new")
        assert thread.gc(apply=True).hashes == expected
    assert thread.blobs.has(new.ref)
    assert thread.gc(apply=True).blobs == 0


# --- faults -----------------------------------------------------------------------------------------------------------

FAULTS = {
    "bytes of what lives": f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = x'{name_of(b'kept')}')",
    "bytes of what is dead": f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = x'{name_of(b'put')}')",
    "bytes of a part": f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = x'{name_of(NOISE[:MIB])}')",
    "no bytes": f"DELETE FROM blob_bytes WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = x'{name_of(b'kept')}')",
    "a list without a part": "DELETE FROM blob_parts WHERE position = 0",
    "a ref to nothing": "INSERT INTO blob_refs SELECT blob_id, 9999 FROM blobs LIMIT 1",
    "a part that is gone": "UPDATE blob_parts SET part_id = 9999 WHERE position = 0",
    "a pin of nothing": "INSERT INTO pins VALUES ('me', 9999, 0)",
    "a head that is nothing": "UPDATE contexts SET head_id = 9999",
    "a payload that is nothing": f"DELETE FROM blobs WHERE hash = x'{name_of(b'kept')}'",
    "a patch of nothing": "INSERT INTO turn_patches VALUES (1, 9999, NULL, 0, 0)",
    "a root of nothing": "INSERT INTO turn_roots VALUES (9999, zeroblob(32))",
    "a key of nothing": "INSERT INTO turn_keys VALUES (1, 1, 'k', 9999, x'00', 1e15)",
    "a head that was not logged": "UPDATE contexts SET version = 7",
    "a log that was lost": "DELETE FROM context_log WHERE context_id = 1",
    "a filter that is refused": "INSERT INTO subscriptions VALUES ('w', 'true', 'no such column')",
    "an event without a source": "UPDATE events SET source = ''",
    "an open turn": "INSERT INTO open_turns VALUES (1, 1, 'x', 1, 0, 99, 0, 0)",
}


@pytest.mark.parametrize("name", FAULTS)
def test_any_fault_and_nothing_is_deleted(
    path: str, clock: Clock, raw: apsw.Connection, name: str
) -> None:
    """Rows 25, 55, 56: damage of any kind, anywhere, is named, and neither the dry run nor the collection goes on."""
    with eventq.open(path) as thread:
        litter(thread, clock)
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute(FAULTS[name])
        assert raw.changes() > 0
        before = everything(raw)
        with eventq.open(path) as fresh:
            faults = fresh.check()
            assert faults != []
            for apply in (False, True):
                with pytest.raises(
                    DamagedError, match="nothing was deleted, as the thread does not check out"
                ) as caught:
                    fresh.gc(apply=apply, grace=0)
                assert faults[0] in caught.value.what
                assert "eventq check" in caught.value.fix
        assert everything(raw) == before


def test_several_faults_are_counted(path: str, raw: apsw.Connection) -> None:
    """The refusal names the first fault and says how many more there are."""
    with eventq.open(path) as thread:
        for number in range(3):
            thread.blobs.put(b"blob %d" % number)
        raw.execute("UPDATE blob_bytes SET bytes = x'00'")
        with pytest.raises(DamagedError, match=r"is damaged: .* \(and 2 more\) - "):
            thread.gc()


def test_a_broken_database_is_not_collected(path: str, clock: Clock) -> None:
    """Row 25: a database with a broken page is an error, for the dry run too, and never an empty one."""
    with eventq.open(path) as thread:
        expected = litter(thread, clock)
        thread.database.compact()
        page = thread.database.one(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'turns_by_blob'"
        )
        assert thread.gc().hashes == expected
    with open(os.path.join(path, "events.db"), "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    before = files(path)
    for apply in (False, True):
        with eventq.open(path) as thread, pytest.raises(StoreError):
            thread.gc(apply=apply, grace=0)
    assert {p: h for p, h in files(path).items() if p.endswith("events.db")} == {
        p: h for p, h in before.items() if p.endswith("events.db")
    }


def test_an_error_in_the_middle_deletes_nothing(
    thread: eventq.Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """Row 55: a deletion that is refused half way is undone as a whole."""
    litter(thread, clock)
    rows = everything(raw)
    raw.execute(
        "CREATE TRIGGER no BEFORE DELETE ON blob_parts BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(StoreError):
        thread.gc(apply=True)
    raw.execute("DROP TRIGGER no")
    assert everything(raw) == rows
    assert collect(thread).turns == 3


def test_what_is_deleted_stays_so_when_the_space_cannot_be_given_back(
    thread: eventq.Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after the deletion is an error that says so; the next collection gives the space back."""
    expected = litter(thread, clock)

    def full() -> None:
        raise DiskError("the disk is full", "free some")

    with monkeypatch.context() as patch:
        patch.setattr(thread.database, "compact", full)
        with pytest.raises(
            DiskError,
            match=r"3 turns and 4 blobs were deleted, but their space could not be given back",
        ):
            thread.gc(apply=True)
    assert not any(thread.blobs.has(name) for name in expected)
    assert thread.database.free_bytes() > 0
    assert thread.gc(apply=True).blobs == 0
    assert thread.database.free_bytes() == 0


# --- ids --------------------------------------------------------------------------------------------------------------


def test_turn_ids_are_never_used_again(thread: eventq.Thread, clock: Clock) -> None:
    """Row 35: after a collection of the newest turns, or of all, the next turn has a new id, for others too."""
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


CRASH = """
import os, sys, eventq
thread = eventq.open(sys.argv[1])
context = thread.contexts.get(1)
turn = context.append(b"newest")
context.move(0)
found = thread.gc(apply=True, grace=0)
print(turn.turn_id, found.turns, flush=True)
os.kill(os.getpid(), 9)
"""


def test_turn_ids_are_not_used_again_after_a_crash(thread: eventq.Thread) -> None:
    """Row 35: a process that is killed right after a collection of the newest turns takes their ids with it."""
    context = thread.contexts.create()
    for number in range(1, 4):
        done = subprocess.run(
            [sys.executable, "-c", CRASH, thread.path],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout.split(), done.stderr) == (-9, [str(number), "1"], "")
    assert context.append(b"x").turn_id == 4


# --- space ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
def test_the_space_comes_back(path: str, auto: bool) -> None:
    """After a collection the files are about as small as before, also of a database made without auto_vacuum."""
    if not auto:
        connection = apsw.Connection(os.path.join(path, "events.db"))
        connection.execute("PRAGMA auto_vacuum = 0; VACUUM").fetchall()
        connection.execute("VACUUM").fetchall()
        assert connection.pragma("auto_vacuum") == 0
        connection.close()

    def size() -> int:
        names = ("events.db", "events.db-wal")
        places = [os.path.join(path, name) for name in names]
        return sum(os.path.getsize(place) for place in places if os.path.exists(place))

    with eventq.open(path) as thread:
        context = thread.contexts.create()
        context.append(b"kept" * 1000)
        fork = context.fork()
        for number in range(200):
            fork.append(NOISE[number * 1000 : number * 1000 + 10_000])
        thread.blobs.put(NOISE)
        thread.database.run("PRAGMA wal_checkpoint(TRUNCATE)")
        before = size()
        assert before > 5_000_000
        fork.move(0)
        thread.gc(apply=True, grace=0)
        assert size() < 400_000
        assert thread.database.free_bytes() == 0
        assert thread.check() == []
        assert [turn.payload for turn in context.replay()] == [b"kept" * 1000]
        thread.database.connection.execute("PRAGMA auto_vacuum").fetchall()
        assert thread.database.one("PRAGMA auto_vacuum") == 2


# --- beside others ----------------------------------------------------------------------------------------------------

COLLECT = """
import sys, eventq
with eventq.open(sys.argv[1]) as thread:
    print("ready", flush=True)
    rounds = deleted = 0
    while sys.argv[2] != "until told" or not __import__("select").select([sys.stdin], [], [], 0)[0]:
        found = thread.gc(apply=True, grace=float(sys.argv[3]))
        rounds, deleted = rounds + 1, deleted + found.blobs
print(rounds, deleted)
"""


@pytest.mark.parametrize("grace", [0, 60])
def test_a_collector_beside_a_writer(thread: eventq.Thread, grace: float) -> None:
    """Row 52: while another process collects in a loop, no append is lost, and no turn ever misses its payload."""
    with subprocess.Popen(
        [sys.executable, "-c", COLLECT, thread.path, "until told", str(grace)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        context = thread.contexts.create("main")
        expected = []
        for number in range(250):
            leaf = b"leaf %d" % (number % 7)
            with thread.write():  # what is put and named in one change is never alone
                ref = thread.blobs.put(leaf)
                payload = (b"%d " % number) + TEXT[: (number % 5) * 20_000]
                context.append(NewTurn(payload, refs=[ref.ref]))
            expected.append(payload)
            context.append(leaf)  # old bytes, which a collection may just delete
            expected.append(leaf)
            fork = context.fork()
            fork.append(b"fork %d" % (number % 3) + NOISE[:100_000])
            fork.delete()
            thread.push("self", "note", thread.blobs.put(b"event %d" % number).ref)
            if number % 25 == 0:
                thread.contexts.create().append(NOISE[: MIB + number])
                assert [turn.payload for turn in context.last(50)] == expected[-50:]
        told, complaint = program.communicate("stop\n", timeout=120)
    assert (program.returncode, complaint) == (0, "")
    rounds, deleted = map(int, told.split())
    assert rounds > 3
    assert (deleted > 0) == (grace == 0)
    with eventq.open(thread.path) as fresh:
        assert [turn.payload for turn in fresh.contexts.get("main").replay()] == expected
        assert fresh.check() == []
        for number in range(1, 251, 25):
            assert [turn.size for turn in fresh.contexts.get(1).range(number)] != []


class Waits(io.BytesIO):
    """A file during whose last read something happens."""

    def __init__(self, data: bytes, work: Callable[[], object]) -> None:
        super().__init__(data)
        self._work = work

    def read(self, size: int | None = -1) -> bytes:
        """Give the next bytes."""
        found = super().read(size)
        if not found:
            self._work()
        return found


@pytest.mark.parametrize("data", [b"few", TEXT, NOISE[: 2 * MIB]], ids=["few", "text", "parts"])
@pytest.mark.parametrize("there", [False, True])
def test_a_collection_while_bytes_come_in(
    thread: eventq.Thread, clock: Clock, data: bytes, there: bool
) -> None:
    """Row 51: a put that takes long, during which another collects with grace, stores all of its bytes."""
    if there:
        thread.blobs.put(data)
        clock.move(DAY)
    with eventq.open(thread.path) as other:
        blob = thread.blobs.put(Waits(data, lambda: other.gc(apply=True)))
        assert (blob.size, other.blobs.get(blob.ref)) == (len(data), data)


def test_a_part_that_is_met_again_is_renewed(thread: eventq.Thread, clock: Clock) -> None:
    """Row 51: old parts that a stream has in common with what is dead are safe for the time of grace from then on."""
    thread.blobs.put(io.BytesIO(NOISE))
    clock.move(DAY)
    with eventq.open(thread.path) as other:
        blob = thread.blobs.put(
            Waits(NOISE[: 2 * MIB] + b"another end", lambda: other.gc(apply=True))
        )
        assert other.blobs.get(blob.ref) == NOISE[: 2 * MIB] + b"another end"


def test_a_stream_without_any_grace(thread: eventq.Thread) -> None:
    """A collection without grace takes the parts of a stream that is coming in: an error says so, and nothing is half."""
    with eventq.open(thread.path) as other:
        file = Waits(NOISE, lambda: other.gc(apply=True, grace=0))
        with pytest.raises(
            eventq.errors.BusyError, match="a collection deleted parts of the stream"
        ):
            thread.blobs.put(file)
        assert len(thread.blobs) == 0
        assert thread.blobs.put(io.BytesIO(NOISE)).size == len(NOISE)


def test_bytes_without_any_grace(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes in memory are stored whole whenever a collection without grace comes between their parts and their name."""
    with eventq.open(thread.path) as other:
        for data in (b"few", TEXT, NOISE):
            thread.blobs.put(data)  # so that there is something to meet, and to lose
            prepare = thread.blobs.prepare

            def prepared(*given: Any, prepare: Any = prepare, **named: Any) -> Any:
                ready = prepare(*given, **named)
                other.gc(apply=True, grace=0)
                return ready

            with monkeypatch.context() as patch:
                patch.setattr(thread.blobs, "prepare", prepared)
                blob = thread.blobs.put(data)
                assert other.blobs.get(blob.ref) == data
                new = thread.contexts.create().append(data + b"!")
                assert other.contexts.turn(new.turn_id).payload == data + b"!"


def test_a_head_that_is_moved_back_in_time(thread: eventq.Thread, tmp_path: Path) -> None:
    """A thread whose clock was set back for years keeps what is reached, and forgets the rest in the end."""
    context = thread.contexts.create()
    context.append(b"kept")
    thread.blobs.put(b"gone")
    thread.database.connection.execute("UPDATE blobs SET touched_at_ms = -1000")
    thread.database.connection.execute("UPDATE context_log SET at_ms = -1000")
    assert thread.gc(apply=True).hashes == (name_of(b"gone"),)
    assert [turn.payload for turn in context.replay()] == [b"kept"]
