"""What `eventq.store.copies` promises beyond what copies of threads show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.errors import StoreError, UnknownBlobError, UnknownTurnError
from eventq.store.copy_rows import (
    AttemptCopy,
    ContextCopy,
    PatchCopy,
    TurnCopy,
)

if TYPE_CHECKING:
    from eventq.store.copies import Copies
    from eventq.store.copy_rows import Restorable
    from eventq.store.protocol import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
AT = 1_773_829_800_000


def digest(data: bytes) -> bytes:
    """Return the name of a blob."""
    return bytes(blake3(data).digest())


def turn(number: int, parent: int = 0, data: bytes = b"a", **more: Any) -> TurnCopy:
    """Return a turn to be restored."""
    made = TurnCopy(number, parent, 0, "message", 1, None, 0, 0, AT, None, digest(data))
    return made._replace(**more)


@pytest.fixture
def copies(opened: eventq.Thread, database: Database) -> Copies:
    """Return the area of a thread that has some blobs and nothing else."""
    for data in (b"a", b"b", b"c"):
        opened.blobs.put(data)
    return database.memory.copies


def test_more_than_a_page(copies: Copies, database: Database) -> None:
    """What comes in several pages comes whole, once and in order."""
    count = 2_500
    copies.restore([turn(number) for number in range(1, count + 1)])
    copies.restore([ContextCopy(number, number, 0, 0, AT) for number in range(1, count + 1)])
    copies.restore([PatchCopy(1, None, 0, number) for number in range(count)])
    with database.memory.read() as moment:
        chosen = moment.copies.select(None)
        assert [one.turn for one in chosen.turns()] == [*range(1, count + 1)]
        assert [one.context for one in chosen.records(ContextCopy)] == [*range(1, count + 1)]
        assert [one.at for one in chosen.records(PatchCopy)] == [*range(count)]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (turn(2, 77), UnknownTurnError),
        (turn(2, data=b"nowhere"), UnknownBlobError),
        (PatchCopy(1, digest(b"nowhere"), 0, 0), UnknownBlobError),
        (PatchCopy(77, None, 0, 0), StoreError),
        (AttemptCopy(1, digest(b"nowhere"), 0), UnknownBlobError),
        (ContextCopy(1, 77, 0, 0, AT), StoreError),
        (turn(1), StoreError),
    ],
)
def test_all_or_nothing(
    record: Restorable, error: type[Exception], copies: Copies, database: Database
) -> None:
    """A record that names what is not there, or has an id that is taken, undoes those before it."""
    copies.restore([turn(1)])
    with pytest.raises(error):
        copies.restore([turn(9), PatchCopy(1, None, 0, 0), record])
    assert (database.memory.turns.link(9), copies.beside(1, PatchCopy)) == (None, [])


def test_candidates_for_a_turn(copies: Copies) -> None:
    """Those of one parent and one payload, oldest first, whatever else they are."""
    twins = [turn(3, 1, b"b"), turn(4, 1, b"b", flags=5, at=9), turn(5, 1, b"b", type_tag=8)]
    copies.restore([turn(1), turn(2), *twins, turn(6, 1, b"c"), turn(7, 2, b"b")])
    assert copies.alike(1, digest(b"b")) == [one._replace(depth=1) for one in twins]
    assert [one.turn for one in copies.alike(1, digest(b"b"), 2)] == [3, 4]
    assert [one.turn for one in copies.alike(0, digest(b"a"))] == [1, 2]
    assert copies.alike(1, digest(b"nowhere")) == copies.alike(77, digest(b"a")) == []
