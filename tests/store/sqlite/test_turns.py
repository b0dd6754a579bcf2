"""What the tables of turns refuse, the last ids, and an append that fails half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

from eventq.errors import DamagedError, LogicError, StoreError
from tests.contract.memory import LARGEST_ID, U32, grow
from tests.contract.support import dump, ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Context, Thread

COLUMNS = (
    "turn_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag, encoding,"
    " canonical, blob_id, flags, created_at_ms"
)
INSERT = f"INSERT INTO turns ({COLUMNS}) VALUES (?, ?, ?, ?, ?, 'x', 1, NULL, 0, NULL, 1, 0, 0)"


@pytest.fixture
def home(opened: Thread) -> Context:
    """Return a context with two turns."""
    made = opened.contexts.create("main")
    grow(made, 2)
    return made


@pytest.mark.parametrize("column", COLUMNS.split(", "))
def test_turns_are_immutable(home: Context, raw: apsw.Connection, column: str) -> None:
    """An UPDATE of any column of a turn is refused by the database itself."""
    before = dump(raw)
    with pytest.raises(apsw.ConstraintError, match="a turn is immutable"):
        raw.execute(f"UPDATE turns SET {column} = {column}")
    assert dump(raw) == before


@pytest.mark.parametrize(
    "row",
    [
        (9, 9, 1, 1, 0), (9, 10, 1, 1, 0), (9, None, 1, 1, 0), (9, 2, 0, None, None),
        (9, 2, 2, None, None), (9, 2, 2, 1, None), (9, 2, -1, 1, 0), (9, 2, 1 << 32, 1, 0),
    ],
)  # fmt: skip
def test_a_parent_is_earlier_than_its_child(
    home: Context, raw: apsw.Connection, row: tuple[int | None, ...]
) -> None:
    """The database refuses a parent that is no earlier turn, and a depth that does not fit it."""
    before = dump(raw)
    with pytest.raises(apsw.ConstraintError, match="CHECK constraint failed"):
        raw.execute(INSERT, row)
    assert dump(raw) == before


def test_the_greatest_depth(home: Context, raw: apsw.Connection) -> None:
    """After a turn at depth 2^32-1 no other can come; a sentence says so, and nothing changes."""
    raw.execute(INSERT, (3, 1, U32 - 1, 1, 0))
    raw.execute(INSERT, (4, 1, U32, 1, 0))
    assert home.append(b"the last", parent=3).depth == U32
    before = dump(raw)
    for parent in (None, 4):
        with pytest.raises(LogicError, match=r"is at the greatest depth there is, 4294967295"):
            home.append(b"new", parent=parent)
    assert dump(raw) == before
    assert home.append(b"new", parent=1).depth == 1


def test_the_last_turn_id(home: Context, raw: apsw.Connection) -> None:
    """The largest id is given; nothing changes after it."""
    raw.execute(f"UPDATE sqlite_sequence SET seq = {LARGEST_ID - 1} WHERE name = 'turns'")
    assert home.append(b"the last").turn_id == LARGEST_ID
    assert ids(home.last()) == [1, 2, LARGEST_ID]


CALLS: dict[str, Callable[[Context], object]] = {
    "turns": lambda context: context.append(b"new", key="k", source="self"),
    "turn_patches": lambda context: context.patch(1, b"x"),
    "contexts": lambda context: context.fork(),
    "open_turns": lambda context: context.open_turn(),
}


@pytest.mark.parametrize("table", CALLS)
def test_ids_that_are_all_given(home: Context, raw: apsw.Connection, table: str) -> None:
    """When all ids are given, that is said, and not that the disk is full; nothing changes."""
    home.tombstone(1)
    home.open_turn()
    raw.execute(f"UPDATE sqlite_sequence SET seq = {LARGEST_ID} WHERE name = '{table}'")
    before = dump(raw)
    with pytest.raises(
        LogicError, match=f"has given the last id that there is in {table}, "
    ) as caught:
        CALLS[table](home)
    assert type(caught.value) is LogicError
    assert dump(raw) == before


@pytest.mark.parametrize(
    "table", ["turns", "context_log", "contexts", "blobs", "blob_bytes", "turn_keys", "events"]
)
def test_an_append_is_atomic(
    opened: Thread, home: Context, raw: apsw.Connection, table: str
) -> None:
    """When a blob, turn, head, move, key or event cannot be written, none of the others is."""
    before = dump(raw)
    what = "UPDATE" if table == "contexts" else "INSERT"
    fails = "BEGIN SELECT RAISE(ABORT, 'broken'); END"
    raw.execute(f"CREATE TRIGGER broken AFTER {what} ON {table} {fails}")
    with pytest.raises(StoreError, match="broken"):
        home.append(b"new", key="k", source="self")
    with opened.write(), pytest.raises(StoreError, match="broken"):
        home.append(b"new", key="k", source="self")
    raw.execute("DROP TRIGGER broken")
    assert dump(raw) == before
    assert home.append(b"new", key="k", source="self").turn_id == 3


def test_a_lost_payload_is_said(home: Context, raw: apsw.Connection) -> None:
    """A turn whose payload's row is gone is damage that is named, never a tombstone."""
    raw.execute("DELETE FROM blobs")
    with pytest.raises(DamagedError, match=r"turn \d \(depth \d\) has lost its payload's row"):
        home.last()
