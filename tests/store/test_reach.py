"""What is reachable is found by few statements, in little memory, and in pages that join.

The kind of fault: a page of ids that costs, or loses, what one statement over a table would not.
Its members: a chain that takes a statement a turn, of turns and of blobs; forks that walk the same
turns again and again; ways that split and meet; one id that leads to more than a page; ids that are
far apart; rows whose order goes across pages; pages that are deleted one after the other, and refer
to each other; pages that are read of different moments.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.store import collect, copies, reach
from eventq.store.copy_rows import AttemptCopy, ContextCopy, PatchCopy, TurnCopy
from eventq.store.reach import Ids, Reach
from tests.store.test_copies import AT, digest, turn

if TYPE_CHECKING:
    from eventq.store.engine import Engine, Row
    from eventq.store.protocol import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
LAST = (1 << 62) - 1


@pytest.fixture
def db(opened: eventq.Thread, database: Database) -> Engine:
    """Return the memory of a thread that has a blob and nothing else."""
    opened.blobs.put(b"a")
    return database.memory


class Counted:
    """An engine that counts the statements it runs, and their rows."""

    def __init__(self, db: Engine) -> None:
        self._db = db
        self.statements = self.rows = self.most = 0

    def run(self, sql: str, bindings: Row = ()) -> list[Row]:
        """Run a statement."""
        rows = self._db.run(sql, bindings)
        self.statements += 1
        self.rows += len(rows)
        self.most = max(self.most, len(rows))
        return rows


def reached(db: Engine, turns: Any = (), blobs: Any = ()) -> tuple[Reach, Counted]:
    """Return what some turns and blobs lead to, and how it was read."""
    counted: Any = Counted(db)
    found = Reach(counted, parts=True)
    found.add_turns(turns)
    found.add_blobs(blobs)
    return found, counted


def blob_ids(db: Engine, count: int) -> list[int]:
    """Store some blobs more; return the ids of these, in order."""
    with db.write():
        for number in range(count):
            db.run(
                "INSERT INTO blobs (hash, raw_len, stored_len, codec, touched_at_ms)"
                " VALUES (?, 0, 0, 0, 0)",
                (digest(b"blob %d" % number),),
            )
    return [one for (one,) in db.run("SELECT blob_id FROM blobs ORDER BY blob_id")][-count:]


def refer(db: Engine, links: list[tuple[int, int]]) -> None:
    """Let blobs refer to others."""
    with db.write():
        db.many("INSERT OR IGNORE INTO blob_refs (blob_id, ref_id) VALUES (?, ?)", links)


# --- sets of ids ----------------------------------------------------------------------------------


def test_a_set_of_ids() -> None:
    """A set has what was added, once, in order, and tells what follows one another."""
    ids = Ids()
    assert [*ids] == [*ids.spans()] == []
    assert ids.add([5, 1, 5, LAST, 0, 512, 511]) == [5, 1, LAST, 0, 512, 511]
    assert ids.add([6, 5, 513, LAST]) == [6, 513]
    assert [*ids] == [0, 1, 5, 6, 511, 512, 513, LAST]
    assert [*ids.spans()] == [(0, 1), (5, 6), (511, 513), (LAST, LAST)]
    assert [one in ids for one in (0, 2, 511, 514, LAST, LAST - 1, -1)] == [
        True, False, True, False, True, False, False,
    ]  # fmt: skip


def test_a_set_of_ids_is_small() -> None:
    """Ids that are dense take less than a byte, and those that are far apart some hundred."""

    def size(ids: Ids) -> int:
        words = ids._words  # noqa: SLF001 (how large it is)
        return sys.getsizeof(words) + sum(map(sys.getsizeof, [*words, *words.values()]))

    dense, sparse = Ids(), Ids()
    dense.add(range(1, 1_000_001))
    sparse.add(range(0, LAST, LAST // 1_000))
    assert size(dense) < 1_000_000
    assert size(sparse) < 400_000


# --- ways -----------------------------------------------------------------------------------------


def test_a_chain_takes_few_statements(db: Engine) -> None:
    """A chain is walked many turns a statement; no statement gives very many rows."""
    count = 20_000
    db.copies.restore([turn(number, number - 1) for number in range(1, count + 1)])
    found, counted = reached(db, [count])
    assert [*found.turns] == [*range(1, count + 1)]
    assert counted.statements < 120
    assert counted.most <= reach.ROWS


def test_forks_walk_a_chain_once(db: Engine) -> None:
    """Heads all along a chain cost what it is, not a walk each."""
    count = 5_000
    turns = [turn(number, number - 1) for number in range(1, count + 1)]
    forks = [turn(count + number, number) for number in range(1, count + 1)]
    db.copies.restore([*turns, *forks])
    for heads in (range(count + 1, 2 * count + 1), range(2 * count, count, -1)):
        found, counted = reached(db, heads)
        assert len([*found.turns]) == 2 * count
        assert counted.statements < 100
        assert counted.rows < 10 * count


def test_blobs_in_a_chain_take_few_statements(db: Engine) -> None:
    """Blobs that refer to one another in a chain, or in a circle, do not take a statement each."""
    ids = blob_ids(db, 5_000)
    refer(db, [*itertools.pairwise(ids), (ids[-1], ids[0])])
    found, counted = reached(db, blobs=ids[:1])
    assert [*found.blobs] == ids
    assert counted.statements < 60


def test_ways_that_split_and_meet(db: Engine) -> None:
    """Where there are more ways than can be counted, the work is that of the blobs."""
    ids = blob_ids(db, 400)
    layers = [ids[at : at + 4] for at in range(0, 400, 4)]
    refer(db, [(one, to) for a, b in itertools.pairwise(layers) for one in a for to in b])
    found, counted = reached(db, blobs=ids[:1])
    assert [*found.blobs] == [ids[0], *ids[4:]]
    assert counted.rows < 40_000


def test_one_that_leads_to_more_than_a_page(db: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a single blob or turn leads to comes whole, however much that is."""
    monkeypatch.setattr(reach, "ROWS", 20)
    ids = blob_ids(db, 300)
    refer(db, [(ids[0], to) for to in ids[1:200]] + [(ids[at], ids[at + 100]) for at in range(200)])
    found, _ = reached(db, blobs=ids[:1])
    assert [*found.blobs] == ids
    db.copies.restore([turn(1), *(turn(number, 1) for number in range(2, 60))])
    hashes = [digest(b"blob %d" % number) for number in range(300)]
    db.copies.restore([PatchCopy(1, one, 0, AT) for one in hashes[:150]])
    db.copies.restore([AttemptCopy(2 + at % 50, one, AT) for at, one in enumerate(hashes[150:])])
    found, _ = reached(db, range(1, 60))
    assert {*ids} < {*found.blobs}


# --- copies ---------------------------------------------------------------------------------------


def test_an_order_goes_across_pages(db: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches and attempts come oldest first, whichever turns they are of, chosen or all."""
    monkeypatch.setattr(reach, "PAGE", 3)
    db.copies.restore([turn(number, number - 1) for number in range(1, 21)])
    db.copies.restore([ContextCopy(1, 20, 0, 0, AT)])
    order = [7, 20, 1, 13, 2, 19, 3, 8, 7, 1]
    db.copies.restore([PatchCopy(at, digest(b"a"), 0, AT) for at in order])
    db.copies.restore([AttemptCopy(at, digest(b"a"), AT) for at in order])
    for chosen in (None, [1]):
        some = copies.Selection(db, chosen)
        assert [one.turn for one in some.records(PatchCopy)] == order
        assert [one.parent for one in some.records(AttemptCopy)] == order
        assert [one.turn for one in some.turns()] == [*range(1, 21)]


def test_ids_that_are_far_apart(db: Engine, opened: eventq.Thread) -> None:
    """Turns and contexts with the largest ids there are come along, and are collected."""
    db.copies.restore([turn(1), TurnCopy(*turn(LAST, 1)[:-1]), turn(LAST // 2, 1)])
    db.copies.restore([ContextCopy(LAST, LAST, 0, 0, AT, "far")])
    for which in ("far", LAST, f"00{LAST}"):
        chosen = copies.Selection(db, [which])
        assert [one.turn for one in chosen.turns()] == [1, LAST]
        assert [one.context for one in chosen.records(ContextCopy)] == [LAST]
    assert opened.gc(apply=True, grace=0).turns == 1
    assert db.turns.link(LAST) is not None


# --- collections ----------------------------------------------------------------------------------


def test_pages_that_refer_to_each_other_are_deleted(
    opened: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain of dead turns, and dead blobs that refer both ways, go whatever page they are on."""
    monkeypatch.setattr(reach, "PAGE", 5)
    monkeypatch.setattr(collect, "PAGE", 5)
    context = opened.contexts.create()
    named = [opened.blobs.put(b"%d" % number).ref for number in range(30)]
    for number in range(30):
        context.append(b"turn %d" % number)
        opened.blobs.put(b"%d" % number, refs=[named[(number * 7 + 3) % 30]])
    opened.blobs.put(bytes(3 << 20) + b"in parts", refs=named)
    context.delete()
    assert opened.gc(grace=0).turns == 30
    done = opened.gc(apply=True, grace=0)
    assert (done.turns, done.blobs, len(opened.blobs), opened.check()) == (30, 61, 0, [])


def test_a_dry_run_reads_one_moment(
    opened: eventq.Thread, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed while a dry run looks is not taken for dead."""
    context = opened.contexts.create()
    dead = opened.blobs.put(b"dead")

    def late(run: Any, sql: str, *given: Any) -> Any:
        if sql == collect._BLOBS:  # noqa: SLF001 (the moment after what lives was found)
            with eventq.open(path) as other:
                other.contexts.get(context.id).append(b"late")
        return reach.pages(run, sql, *given)

    monkeypatch.setattr(collect, "pages", late)
    found = opened.gc(grace=0)
    assert (found.turns, found.hashes) == (0, (dead.hash,))
