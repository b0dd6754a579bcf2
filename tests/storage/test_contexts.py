"""The contract of `eventq.storage.base.Contexts`, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventq.errors import ConflictError, UnknownContextError, UnknownTurnError
from eventq.storage.turn_rows import AppendTo
from tests.storage.test_turns import new

if TYPE_CHECKING:
    from eventq.storage.base import Contexts
    from eventq.storage.sqlite.database import Database


pytestmark = pytest.mark.engines("sqlite")  # the others hold events only


@pytest.fixture
def contexts(database: Database) -> Contexts:
    """Return contexts 1, with the turns 1 to 4, and 2, a fork at turn 2 with the turn 5."""
    database.contexts.create("one", None, None)
    for number in range(4):
        database.turns.append(1, new(b"%d" % number), AppendTo())
    database.contexts.create(None, 2, 1)
    database.turns.append(2, new(b"x"), AppendTo())
    return database.contexts


def test_a_context_is_read(contexts: Contexts) -> None:
    """A context is found by id and by name, with its head, its depth and its origin."""
    one, two = contexts.get(1), contexts.get(2)
    assert one is not None
    assert two is not None
    assert one[:8] == (1, "one", 4, 3, 0, None, 4, 0)
    assert two[:8] == (2, None, 5, 2, 2, 1, 1, 0)
    assert (contexts.named("one"), contexts.named("two")) == (1, None)
    assert [contexts.head(number) for number in (1, 2, 3)] == [4, 5, None]
    assert contexts.get(3) is None
    assert (contexts.page(0, 9), contexts.page(1, 9), contexts.page(0, 1)) == (
        [one, two],
        [two],
        [one],
    )


def test_where_a_context_begins(contexts: Contexts) -> None:
    """A context begins at any turn, or nowhere; a fork at a turn of the chain, or at its head."""
    assert [contexts.create(*where) for where in (
        ("empty", 0, None), ("any", 5, None), ("head", None, 2), ("none", 0, 2), ("above", 1, 2),
    )] == [3, 4, 5, 6, 7]  # fmt: skip
    assert [contexts.head(number) for number in range(3, 8)] == [0, 5, 5, 0, 1]
    origins = [(info.base_turn_id, info.fork_of) for info in contexts.page(2, 9)]
    assert origins == [(0, None), (5, None), (5, 2), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("name", "base", "origin", "error"),
    [
        ("one", None, None, ConflictError),
        (None, 99, None, UnknownTurnError),
        (None, 3, 2, ConflictError),
        (None, 99, 2, UnknownTurnError),
        (None, None, 9, UnknownContextError),
    ],
)
def test_what_cannot_be_created(
    contexts: Contexts,
    name: str | None,
    base: int | None,
    origin: int | None,
    error: type[Exception],
) -> None:
    """A name is taken once, a base is a turn that is stored, and a fork's is on the chain."""
    with pytest.raises(error):
        contexts.create(name, base, origin)
    assert len(contexts.page(0, 9)) == 2


def test_moves(contexts: Contexts) -> None:
    """A head moves to any turn or to none, from where it is expected, and each move is logged."""
    info = contexts.move(1, 5, "move", expected=4)
    assert (info.head_turn_id, info.head_depth, info.version) == (5, 2, 5)
    assert contexts.get(1) == info
    assert contexts.move(1, 0, "leave").head_turn_id == 0
    with pytest.raises(ConflictError) as caught:
        contexts.move(1, 4, "move", expected=5)
    assert caught.value.actual == 0
    for context, to, error in ((1, 99, UnknownTurnError), (9, 1, UnknownContextError)):
        with pytest.raises(error):
            contexts.move(context, to, "move")
    moves = [
        (move.version, move.op, move.old_turn_id, move.new_turn_id)
        for move in contexts.history(1, 3, 9)
    ]
    assert moves == [(4, "append", 3, 4), (5, "move", 4, 5), (6, "leave", 5, 0)]
    assert [move.version for move in contexts.history(1, 0, 2)] == [1, 2]


def test_a_deletion(database: Database, contexts: Contexts) -> None:
    """A deleted context leaves its turns and its moves; its forks go on; no id comes again."""
    number = database.open_turns.create(1, "t", 1, 0)
    assert number is not None
    with pytest.raises(ConflictError) as caught:
        contexts.delete(1)
    assert caught.value.actual == number
    database.turns.append(1, new(b""), AppendTo(seals=number))
    contexts.delete(1)
    with pytest.raises(UnknownContextError):
        contexts.delete(1)
    last = contexts.history(1, -1, 99)[-1]
    assert (last.op, last.old_turn_id, last.new_turn_id) == ("delete", 6, 0)
    assert (contexts.get(1), contexts.named("one"), contexts.head(1)) == (None, None, None)
    fork = contexts.get(2)
    assert fork is not None
    assert (fork.fork_of, fork.base_turn_id, len(database.turns.chain(4, 9, None))) == (None, 2, 4)
    contexts.delete(2)
    assert contexts.create("one", None, None) == 3


def test_an_undone_transaction_takes_all_along(database: Database, contexts: Contexts) -> None:
    """What a `write` did to contexts is seen inside it, and is undone with it."""
    before = contexts.page(0, 9)
    with pytest.raises(ZeroDivisionError), database.write():
        contexts.create("new", None, 1)
        contexts.move(1, 0, "move")
        contexts.delete(2)
        assert [(info.context_id, info.head_turn_id) for info in contexts.page(0, 9)] == [
            (1, 0),
            (3, 4),
        ]
        raise ZeroDivisionError
    assert contexts.page(0, 9) == before
    assert (len(contexts.history(1, 0, 99)), list(database.faults("turns"))) == (4, [])
