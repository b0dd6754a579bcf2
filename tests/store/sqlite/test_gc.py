"""A collection in a file: damage of any kind stops it, and the space comes back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import DamagedError, StoreError
from tests.contract.memory import DAY, hash_of
from tests.contract.support import HOUR, collect, dump
from tests.contract.test_gc import NOISE, litter
from tests.engines import sqlite

if TYPE_CHECKING:
    from eventq import Thread
    from tests.conftest import Clock

pytestmark = pytest.mark.usefixtures("quick")


def of(data: bytes) -> str:
    """Return SQL for the row of a blob."""
    return f"(SELECT blob_id FROM blobs WHERE hash = x'{hash_of(data)}')"


FAULTS = {
    "bytes of what lives": f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = {of(b'kept')}",
    "bytes of what is dead": f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = {of(b'put')}",
    "a list without a part": "DELETE FROM blob_parts WHERE position = 0",
    "a ref to nothing": "INSERT INTO blob_refs SELECT blob_id, 9999 FROM blobs LIMIT 1",
    "a head that is nothing": "UPDATE contexts SET head_id = 9999",
    "a key of nothing": "INSERT INTO turn_keys VALUES (1, 1, 'k', 9999, x'00', 1e15)",
    "a head that was not logged": "UPDATE contexts SET version = 7",
    "a filter that is refused": "INSERT INTO subscriptions VALUES ('w', 'true', 'no such column')",
    "an open turn": "INSERT INTO open_turns VALUES (1, 1, 'x', 1, 0, 99, 0, 0)",
}


@pytest.mark.parametrize("name", FAULTS)
def test_any_fault_and_nothing_is_deleted(
    opened: Thread, clock: Clock, raw: apsw.Connection, name: str
) -> None:
    """Damage of any kind is named, and neither the dry run nor the collection goes on."""
    litter(opened, clock)
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute(FAULTS[name])
    assert raw.changes() > 0
    before = dump(raw)
    with eventq.open(opened.path) as fresh:
        first = fresh.check()[0]
        for apply in (False, True):
            with pytest.raises(DamagedError, match="nothing was deleted") as caught:
                fresh.gc(apply=apply, grace=0)
            assert first in caught.value.what
            assert "eventq check" in caught.value.fix
    assert dump(raw) == before


def test_several_faults_are_counted(opened: Thread, raw: apsw.Connection) -> None:
    """The refusal names the first fault, and how many more there are."""
    for number in range(3):
        opened.blobs.put(b"blob %d" % number)
    raw.execute("UPDATE blob_bytes SET bytes = x'00'")
    with pytest.raises(DamagedError, match=r"is damaged: .* \(and 2 more\) - "):
        opened.gc()


def test_a_broken_database_is_not_collected(path: str, clock: Clock) -> None:
    """A database with a broken page is an error, for the dry run too, and never an empty one."""
    with eventq.open(path) as thread:
        expected = litter(thread, clock)
        thread.database.compact()
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'turns_by_blob'"
        page = sqlite(thread.database).one(sql)
        assert thread.gc().hashes == expected
    place = os.path.join(path, "events.db")
    with open(place, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
        file.seek(0)
        before = file.read()
    for apply in (False, True):
        with eventq.open(path) as thread, pytest.raises(StoreError):
            thread.gc(apply=apply, grace=0)
    with open(place, "rb") as file:
        assert file.read() == before


def test_an_error_in_the_middle_deletes_nothing(
    opened: Thread, clock: Clock, raw: apsw.Connection
) -> None:
    """A deletion that is refused half-way is undone as a whole."""
    litter(opened, clock)
    before = dump(raw)
    fails = "BEGIN SELECT RAISE(ABORT, 'no'); END"
    raw.execute(f"CREATE TRIGGER no BEFORE DELETE ON blob_parts {fails}")
    with pytest.raises(StoreError):
        opened.gc(apply=True)
    raw.execute("DROP TRIGGER no")
    assert dump(raw) == before
    assert collect(opened).turns == 3


def test_a_young_turn_stays(opened: Thread, clock: Clock, raw: apsw.Connection) -> None:
    """A turn that no head leads to stays for the grace period by its own age, with all above it."""
    context = opened.contexts.create()
    context.append(b"root")
    clock.move(2 * DAY)
    context.append(b"child")
    context.move(0)
    clock.move(HOUR)
    raw.execute("UPDATE context_log SET at_ms = 0")  # so that only the turn's own age counts
    assert collect(opened).turns == 0
    clock.move(1)
    assert collect(opened).turns == 2


def test_times_before_1970(opened: Thread, raw: apsw.Connection) -> None:
    """What is kept or goes does not change where a clock was set back for years."""
    context = opened.contexts.create()
    context.append(b"kept")
    opened.blobs.put(b"gone")
    raw.execute("UPDATE blobs SET touched_at_ms = -1000; UPDATE context_log SET at_ms = -1000")
    assert opened.gc(apply=True).hashes == (hash_of(b"gone"),)
    assert context.last().turns[0].payload == b"kept"


@pytest.mark.parametrize("auto", [True, False])
def test_the_space_comes_back(path: str, raw: apsw.Connection, auto: bool) -> None:
    """After a collection the files are small again, also of a database without auto_vacuum."""
    if not auto:
        raw.execute("PRAGMA auto_vacuum = 0").fetchall()
        raw.execute("VACUUM").fetchall()
        assert raw.pragma("auto_vacuum") == 0

    def size() -> int:
        places = [os.path.join(path, name) for name in ("events.db", "events.db-wal")]
        return sum(os.path.getsize(place) for place in places if os.path.exists(place))

    with eventq.open(path) as thread:
        context = thread.contexts.create()
        context.append(b"kept" * 1000)
        fork = context.fork()
        for number in range(200):
            fork.append(NOISE[number * 1000 :][:10_000])
        thread.blobs.put(NOISE)
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert size() > 5_000_000
        fork.move(0)
        thread.gc(apply=True, grace=0)
        assert (size() < 500_000, thread.database.stats().free, thread.check()) == (
            True,
            0,
            [],
        )
        assert context.last().turns[0].payload == b"kept" * 1000
    fresh = apsw.Connection(os.path.join(path, "events.db"))
    assert fresh.pragma("auto_vacuum") == 2
    fresh.close()
