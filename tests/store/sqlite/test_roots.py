"""How many steps a search for a root takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_roots import A, B, C
from tests.engines import sqlite

if TYPE_CHECKING:
    from eventq import Thread

pytestmark = pytest.mark.usefixtures("quick")


def opcodes(thread: Thread, turn_id: int) -> int:
    """Return about how many instructions SQLite runs to find the root of a turn."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 10
        return False

    connection = sqlite(thread.database).connection
    connection.set_progress_handler(tick, 10)
    thread.contexts.root(turn_id)
    connection.set_progress_handler(None)
    return count


def test_a_long_way_takes_few_steps(opened: Thread) -> None:
    """The way up a long chain goes over jumps, also beside roots of other branches."""
    main, fork, attach = (
        opened.contexts.create("main"),
        opened.contexts.create(),
        opened.contexts.attach,
    )
    with opened.write():
        fork.append(b"x")
        others = [fork.append(b"x").turn_id for _ in range(2)]
        turns = [main.append(b"x").turn_id for _ in range(3_000)]
        others += [fork.append(b"x").turn_id for _ in range(200)]
        tip = main.append(b"x").turn_id
    walk = 3_000 * 15  # no step takes fewer
    assert opcodes(opened, tip) < 200
    with opened.write():
        for other in others:
            attach(other, A)
    assert opcodes(opened, tip) < walk / 10
    attach(turns[0], B)
    assert opcodes(opened, tip) < walk / 10
    assert opened.contexts.root(tip) == B
    attach(tip, C)
    assert opcodes(opened, tip) < 200
    with opened.write():
        for turn in turns:
            attach(turn, A)
    assert opcodes(opened, opened.contexts.create(base=turns[-1]).append(b"x").turn_id) < 200
