"""The contract of `eventq.storage.base.Turns`, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from eventq.errors import (
    ConflictError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.storage.turn_rows import AppendTo, GoneError, Link, PreparedTurn
from tests.storage.test_blobs import UNKNOWN, long, small

if TYPE_CHECKING:
    from eventq.storage.base import Turns
    from eventq.storage.sqlite.database import Database
    from eventq.storage.turn_rows import TurnRow


pytestmark = pytest.mark.engines("sqlite")  # the others hold events only


def new(data: bytes, *refs: bytes, **more: Any) -> PreparedTurn:
    """Return a turn of some bytes."""
    made = PreparedTurn(small(data, *refs), "t", 1, 0, 0, None)
    return made._replace(**more)


@pytest.fixture
def turns(database: Database) -> Turns:
    """Return the turns of two contexts: 1 is a chain of 40 turns, 2 branches off at 9.

    Turn n is at depth n - 1; the branch goes on with turns 41 to 50.
    """
    one = database.contexts.create("one", None, None)
    for number in range(1, 41):
        database.turns.append(one, new(b"%d" % number, flags=number), AppendTo())
    two = database.contexts.create("two", 9, one)
    for number in range(41, 51):
        database.turns.append(two, new(b"%d" % number), AppendTo())
    return database.turns


def ids(rows: list[TurnRow]) -> list[int]:
    """Return the ids of rows."""
    return [row.turn for row in rows]


def test_an_append_is_one_change(database: Database) -> None:
    """Turn, blob, refs, head, move, key and event are stored together; the row is what is read."""
    context = database.contexts.create(None, None, None)
    leaf = database.blobs.put(small(b"leaf"))[0].digest
    prepared = new(b"one", leaf, type_version=2, encoding=3, flags=4, canonical="rule")
    row = database.turns.append(context, prepared, AppendTo(key="k", key_digest=b"d", source="me"))
    assert row[:7] == (1, 0, 0, "t", 2, 3, 4)
    assert row[8:] == ("rule", 0, blake3(b"one").digest(), 3, 0)
    assert database.turns.chain(1, 9, None) == [row]
    assert database.contexts.head(context) == 1
    assert [move.op for move in database.contexts.history(context, -1, 9)] == ["append"]
    assert database.blobs.refs([prepared.blob.digest]) == {prepared.blob.digest: [leaf]}
    event = database.events.get(1)
    assert event is not None
    assert (event.source, event.subtype, '"turn_id":1' in event.content) == ("me", "turn", True)


def test_a_key_that_was_used(database: Database) -> None:
    """A key is the first turn's, and stores nothing but refs; for other bytes it is a conflict."""
    context = database.contexts.create(None, None, None)
    to = AppendTo(key="k", key_digest=b"d", source="me")
    row = database.turns.append(context, new(b"one"), to)
    leaf = database.blobs.put(small(b"leaf"))[0].digest
    assert database.turns.append(context, new(b"one", leaf), to._replace(expected_head=9)) == row
    assert database.blobs.refs([row.digest or b""]) == {row.digest: [leaf]}
    with pytest.raises(ConflictError) as caught:
        database.turns.append(context, new(b"two"), to._replace(key_digest=b"e"))
    assert caught.value.actual == 1
    assert (database.copies.last_ids().turn, database.events.last()) == (1, 1)


REFUSALS: list[tuple[AppendTo, PreparedTurn, type[Exception]]] = [
    (AppendTo(parent=99), new(b"x"), UnknownTurnError),
    (AppendTo(expected_head=39), new(b"x"), ConflictError),
    (AppendTo(seals=1), new(b"x"), ConflictError),
    (AppendTo(), new(b"x", UNKNOWN), UnknownBlobError),
    (AppendTo(), new(b"", blob=long([b"a", b"b"], [b"a"])), GoneError),
]


@pytest.mark.parametrize(("to", "turn", "error"), REFUSALS)
@pytest.mark.parametrize("nested", [False, True])
def test_a_refused_append_changes_nothing(
    database: Database, turns: Turns, to: AppendTo, turn: PreparedTurn, error: type[Exception],
    nested: bool,
) -> None:  # fmt: skip
    """What cannot be appended leaves no blob, no move and no key, inside `write` neither."""
    before = database.blobs.count(), database.contexts.get(1)
    to = to._replace(key="k", key_digest=b"d", source="me")
    if nested:
        with database.write(), pytest.raises(error):
            turns.append(1, turn, to)
    else:
        with pytest.raises(error):
            turns.append(1, turn, to)
    with pytest.raises(UnknownContextError):
        turns.append(9, turn, to)
    assert (database.blobs.count(), database.contexts.get(1)) == before
    assert (database.copies.last_ids().turn, database.events.last()) == (50, 0)
    assert turns.append(1, new(b"x"), AppendTo(key="k", key_digest=b"e")).turn == 51


def test_an_append_elsewhere(database: Database, turns: Turns) -> None:
    """A turn goes after the given parent, of any branch, and the head moves there."""
    row = turns.append(1, new(b"x"), AppendTo(parent=45, expected_head=40))
    assert (row.turn, row.parent, row.depth) == (51, 45, 14)
    assert (database.contexts.head(1), database.contexts.head(2)) == (51, 50)


def test_a_seal(database: Database, turns: Turns) -> None:
    """An append ends the open turn that it seals, if that is as long as the payload."""
    number = database.open_turns.create(1, "t", 1, 0)
    assert number is not None
    with pytest.raises(ConflictError):
        turns.append(1, new(b"x"), AppendTo(seals=number))
    turns.append(1, new(b""), AppendTo(seals=number))
    assert database.open_turns.get(number) is None


def test_a_chain(turns: Turns) -> None:
    """A chain goes up from a turn, at most so many turns, and knows nothing of what is unknown."""
    assert ids(turns.chain(50, 12, None)) == [*range(50, 40, -1), 9, 8]
    assert ids(turns.chain(3, 1 << 40, None)) == [3, 2, 1]
    assert (turns.chain(99, 1, None), turns.link(99)) == ([], None)
    assert (turns.link(41), turns.link(1)) == (Link(9, 9), Link(0, 0))


def test_patches(database: Database, turns: Turns) -> None:
    """A chain shows the newest patch up to a number; the latest patch counts, of every turn."""
    assert turns.last_patch() == 0
    assert turns.patch(3, small(b"new"), 0) == 1
    assert turns.patch(3, None, 7) == turns.last_patch() == 2
    shown = [turns.chain(3, 1, as_of)[0] for as_of in (0, 1, 2, None)]
    digests = [blake3(b"3").digest(), blake3(b"new").digest(), None, None]
    assert [row.digest for row in shown] == digests
    assert [(row.patch, row.size, row.flags) for row in shown] == [
        (0, 1, 3),
        (1, 3, 3),
        *[(2, 0, 3)] * 2,
    ]
    for turn_id, blob, error in (
        (99, small(b"y"), UnknownTurnError),
        (1, small(b"y", UNKNOWN), UnknownBlobError),
        (1, long([b"a", b"b"], []), GoneError),
    ):
        with pytest.raises(error):
            turns.patch(turn_id, blob, 0)
    assert database.blobs.find([blake3(b"y").digest()]) == {}
    assert turns.last_patch() == 2


def test_ancestors(turns: Turns) -> None:
    """The ancestor at each depth, and the nearest common one, as a plain walk finds them."""
    trunk, branch = list(range(1, 41)), [*range(1, 10), *range(41, 51)]
    for chain in (trunk, branch):
        for at, turn_id in enumerate(chain):
            assert [turns.ancestor(turn_id, depth) for depth in range(at + 2)] == [
                *chain[: at + 1],
                0,
            ]
    for depth, (one, other) in enumerate(zip(trunk, branch, strict=False)):
        assert turns.common(one, other) == (one if depth < 9 else 9)
    assert [turns.common(40, 41), turns.common(5, 50), turns.common(50, 50)] == [9, 5, 50]
    assert turns.ancestor(99, 0) == 0
    for pair in ((99, 1), (1, 99)):
        with pytest.raises(UnknownTurnError):
            turns.common(*pair)


def test_no_common_ancestor(database: Database, turns: Turns) -> None:
    """Two roots have no common ancestor."""
    other = database.contexts.create(None, None, None)
    root = turns.append(other, new(b"x"), AppendTo()).turn
    assert turns.common(root, 1) == 0


def test_children_and_flags(turns: Turns) -> None:
    """Children come by id, up to a limit; the nearest turn with a flag is at or above another."""
    assert (turns.children(9, 9), turns.children(9, 1), turns.children(50, 9)) == (
        [10, 41],
        [10],
        [],
    )
    assert [turns.nearest(turn_id, 8) for turn_id in (15, 16, 24, 50)] == [
        (15, 14), (15, 14), (24, 23), (9, 8),
    ]  # fmt: skip
    assert (turns.nearest(40, 64), turns.nearest(7, 8)) == (None, None)


def test_depths(database: Database, turns: Turns) -> None:
    """The turns of a payload are found by its hash: depths, and the first turn at each."""
    third, two = database.contexts.create("three", None, None), 2
    for data in (b"7", b"45", b"7", b"7"):
        turns.append(third, new(data), AppendTo())
    turns.append(two, new(b"new"), AppendTo())
    turns.patch(7, small(b"8"), 0)
    assert sorted(turns.depths(blake3(b"7").digest())) == [(0, 51), (2, 53), (3, 54), (6, 7)]
    assert turns.depths(blake3(b"8").digest()) == [(7, 8)]
    assert sorted(turns.depths(blake3(b"45").digest())) == [(1, 52), (13, 45)]
    assert turns.depths(UNKNOWN) == []


def test_pages(database: Database, turns: Turns) -> None:
    """Turns of some types come by id, without their patches."""
    turns.append(1, new(b"u", type_id="u"), AppendTo())
    turns.patch(2, None, 0)
    assert ids(turns.page(1, 3, ["t", "v"])) == [2, 3, 4]
    assert turns.page(0, 99, ["u"]) == turns.chain(51, 1, None)
    assert turns.page(1, 1, ["t"])[0].digest == blake3(b"2").digest()


def test_roots(database: Database, turns: Turns) -> None:
    """A turn has its own root, or that of its nearest ancestor with one; None above all."""
    one, two = b"\1" * 32, b"\2" * 32
    assert turns.attach(5, one) == one
    assert turns.attach(5, two, only_new=True) == one
    assert turns.attach(7, two, only_new=True) == two
    assert [turns.root(turn_id) for turn_id in (4, 5, 6, 7, 50)] == [None, one, one, two, two]
    assert turns.attach(7, one) == turns.root(50) == one
    with pytest.raises(UnknownTurnError):
        turns.attach(99, one)
    with pytest.raises(UnknownTurnError):
        turns.root(99)
    assert list(database.faults("roots")) == []


def test_what_is_reachable(database: Database) -> None:
    """Blobs keep what they name, turns what their chain has; parts and what is not there are out."""
    blobs = database.blobs
    leaf, lost = (blobs.put(small(data))[0].digest for data in (b"leaf", b"lost"))
    node = blobs.put(small(b"node", leaf))[0].digest
    whole = blobs.put(long([b"1", b"2"]))[0].digest
    context = database.contexts.create(None, None, None)
    one = database.turns.append(context, new(b"one", whole), AppendTo())
    two = database.turns.append(context, new(b"two"), AppendTo())
    third = database.turns.append(context, new(b"three", lost), AppendTo())
    payloads = [row.digest or b"" for row in (one, two, third)]
    assert blobs.reachable([], [node]) == sorted([node, leaf])
    assert blobs.reachable([2], []) == sorted([*payloads[:2], whole])
    assert blobs.reachable([3, 1], [leaf, UNKNOWN]) == sorted([*payloads, whole, lost, leaf])
    assert blobs.reachable([9], [UNKNOWN, blake3(b"1").digest()]) == []


def test_ids_go_on(database: Database, turns: Turns) -> None:
    """Ids leave no gap where a `write` failed, and none is given again after a sweep."""
    with pytest.raises(ZeroDivisionError), database.write():
        assert turns.append(1, new(b"gone"), AppendTo()).turn == 51
        assert ids(turns.chain(51, 1, None)) == [51]
        raise ZeroDivisionError
    assert turns.append(2, new(b"kept"), AppendTo()).turn == 51
    database.contexts.move(2, 9, "move")
    assert database.blobs.sweep(-1, apply=True)[0] == 11
    assert (database.copies.last_ids().turn, turns.append(2, new(b"next"), AppendTo()).turn) == (
        51,
        52,
    )
    assert list(database.faults("turns")) == []
