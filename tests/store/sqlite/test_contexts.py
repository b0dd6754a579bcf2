"""A head that somebody else moves just before a transaction begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ConflictError
from tests.contract.memory import grow
from tests.engines import sqlite

if TYPE_CHECKING:
    from eventq import Thread


def test_a_head_that_moves_at_the_last_moment(
    opened: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody does just before the transaction begins counts: the head is compared inside."""
    home = opened.contexts.create("main")
    grow(home, 4)
    begin = sqlite(opened.database).begin

    def late(**given: bool) -> None:
        if not sqlite(opened.database).depth:
            with eventq.open(opened.path) as other:
                other.contexts.get(1).move(2)
        begin(**given)

    for call in (
        lambda: home.move(3, expected_head=4),
        lambda: home.append(b"new", expected_head=4),
        lambda: home.fork(at=4),
    ):
        home.move(4)
        with monkeypatch.context() as patch:
            patch.setattr(opened.database, "begin", late)
            with pytest.raises(ConflictError) as caught:
                call()
        assert (caught.value.actual, home.head_id()) == (2, 2)
    home.move(4)
    monkeypatch.setattr(opened.database, "begin", late)
    assert home.append(b"new").parent_turn_id == 2
    assert home.fork().head_id() == 2
    moves = list(home.history())
    assert [move.new_turn_id for move in moves[:-1]] == [move.old_turn_id for move in moves[1:]]
