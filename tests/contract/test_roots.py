"""Roots of file trees: a turn has its own or its nearest ancestor's, and keeps its blob."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from eventq import InputError, UsageError
from eventq.errors import UnknownTurnError
from tests.servers import ENGINES

if TYPE_CHECKING:
    from eventq import Context, Thread
    from tests.contract.memory import Stored

A, B, C = (bytes(blake3(data).digest()) for data in (b"tree a", b"tree b", b"tree c"))

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


@pytest.fixture
def main(thread: Thread) -> Context:
    """Return a context with two turns, at home and by way of a server."""
    made = thread.contexts.create("main")
    made.append("one")
    made.append("two")
    return made


def roots(stored: Stored) -> dict[int, bytes]:
    """Return the roots that turns have of their own."""
    return dict(stored()["turn_roots"])


def test_a_turn_has_its_own_root_or_the_nearest_above(thread: Thread, main: Context) -> None:
    """A root is handed down the chain to the next turn with one, along forks too."""
    for number in range(4):
        main.append(f"turn {number}")
    fork = main.fork(at=3)
    for number in range(3):
        fork.append(f"fork {number}")
    root, attach = thread.contexts.root, thread.contexts.attach
    assert [root(turn) for turn in range(1, 10)] == [None] * 9
    for turn, name in ((2, A), (5, B), (8, C)):
        attach(turn, name)
    assert [root(turn) for turn in range(1, 10)] == [None, A, A, A, B, B, A, C, C]
    attach(3, C)
    assert [root(turn) for turn in range(1, 10)] == [None, A, C, C, B, B, C, C, C]


def test_a_root_is_replaced(thread: Thread, main: Context, stored: Stored) -> None:
    """The last root that a turn was given counts; the turn itself does not change."""
    before = thread.contexts.turn(1)
    for root in (A, B, B, C):
        thread.contexts.attach(1, root)
        assert [thread.contexts.root(1), thread.contexts.root(2)] == [root, root]
    assert (roots(stored), thread.contexts.turn(1)) == ({1: C}, before)


@pytest.mark.parametrize("name", [A, A.hex(), f"blob:blake3:{A.hex()}"])
def test_how_a_root_is_given(thread: Thread, main: Context, name: Any) -> None:
    """A root is 32 bytes, or a blob's name; it comes back as bytes, stored or not."""
    thread.contexts.attach(1, name)
    assert (thread.contexts.root(1), thread.blobs.has(A)) == (A, False)


ODD: list[tuple[Any, Any, type[Exception]]] = [
    *((1, name, InputError) for name in (b"", A[:31], A + b"x", A.hex().upper(), A.hex()[:62])),
    *((1, name, InputError) for name in ("", None, 7, bytearray(A))),
    *((turn, A, UnknownTurnError) for turn in (0, 3, 1 << 62)),
    *((turn, A, UsageError) for turn in (-1, "1", 1.0, True, None)),
]


@pytest.mark.parametrize(("turn", "name", "error"), ODD)
def test_what_is_no_root_or_no_turn(
    thread: Thread, main: Context, stored: Stored, turn: Any, name: Any, error: type[Exception]
) -> None:
    """What is no hash, no id or no turn is refused, and nothing is stored."""
    with pytest.raises(error):
        thread.contexts.attach(turn, name)
    if error is not InputError:
        with pytest.raises(error):
            thread.contexts.root(turn)
    assert roots(stored) == {}


def test_inside_a_block_that_is_undone(thread: Thread, stored: Stored) -> None:
    """A root commits with what is around it, or not at all."""
    main = thread.contexts.create()
    main.append("one")
    thread.contexts.attach(1, A)
    with pytest.raises(ZeroDivisionError), thread.write():
        turn = main.append("two").turn_id
        thread.contexts.attach(turn, B)
        thread.contexts.attach(1, C)
        assert [thread.contexts.root(1), thread.contexts.root(turn)] == [C, B]
        raise ZeroDivisionError
    assert roots(stored) == {1: A}


@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_root_of_any_tree(thread: Thread, seed: int) -> None:
    """In trees of all shapes, the root of each turn is what a walk up finds."""
    chance = random.Random(seed)
    parents, given = [0], {}
    context = thread.contexts.create()
    bushy, often = chance.choice([0.02, 0.2, 0.7]), chance.choice([0.01, 0.1, 0.5])
    with thread.write():
        for turn in range(1, 400):
            parent = chance.randrange(1, turn) if turn > 1 and chance.random() < bushy else turn - 1
            parents.append(parent)
            assert context.append(b"x", parent=parent or None).turn_id == turn
        for turn in range(1, 400):
            if chance.random() < often:
                given[turn] = chance.randbytes(32)
                thread.contexts.attach(turn, given[turn])
    for turn in range(1, 400):
        at = turn
        while at and at not in given:
            at = parents[at]
        assert thread.contexts.root(turn) == given.get(at)


def test_a_root_holds_its_blob(thread: Thread, main: Context) -> None:
    """`holders` names the turns whose own root a blob is, not those that inherit it."""
    blob = thread.blobs.put(b"tree a")
    for number in range(2):
        main.append(f"turn {number}")
    for turn in (2, 4):
        thread.contexts.attach(turn, A)
    assert thread.blobs.holders(blob.ref) == ["root 2", "root 4"]
    assert thread.blobs.holders(blob.ref, 1) == ["root 2"]
    thread.contexts.attach(4, B)
    assert thread.blobs.holders(blob.ref) == ["root 2"]
