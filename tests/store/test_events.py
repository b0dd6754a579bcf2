"""The contract of `eventq.store.protocol.Events` on every engine."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import FilterError, InputError, ReadOnlyError
from eventq.records.event import Appended, Bounds, Commit, NewEvent, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.store.protocol import Database, Events

BIG = 1 << 62


@pytest.fixture
def events(database: Database) -> Events:
    """Return the log of a fresh thread."""
    return database.events


def new(content: object = "x", key: str | None = None, kind: str = "note") -> NewEvent:
    """Return an event that is to be stored."""
    return NewEvent("self", kind, str(content), None, key)


def fill(events: Events, count: int) -> None:
    """Store events of two types, of which every tenth is rare."""
    events.append([new(n, kind="note" if n % 10 else "rare") for n in range(1, count + 1)])


def numbers(found: Sequence[Any]) -> list[int]:
    """Return the ids of events."""
    return [one.id for one in found]


# --- storing --------------------------------------------------------------------------------------


def test_an_event_is_stored_as_it_is_given(events: Events, second: Database) -> None:
    """One event, or several, get the next ids and a time, and are read back as they are."""
    one = events.add(NewEvent("a:b", "note", "é\0\n", ""))
    assert one[:1] + one[2:] == (1, "a:b", "note", "", "é\0\n")
    stored = events.append([new("2"), new("3")], None)
    assert stored == Appended(2, 3, stored.created_at, [])
    assert stored.created_at.endswith("Z")
    assert second.events.get(1) == one
    assert [second.events.get(n) is None for n in range(5)] == [True, False, False, False, True]
    assert events.append([])[:2] == (0, 0)


def test_a_part_of_a_batch_has_the_time_of_the_first(events: Events) -> None:
    """The time of an earlier part is that of a later one."""
    stored = events.append([new()], None, "2026-01-02T03:04:05.678Z")
    assert stored.created_at == "2026-01-02T03:04:05.678Z"
    found = events.get(1)
    assert found is not None
    assert found.created_at == stored.created_at


def test_a_key_is_used_once(events: Events, second: Database) -> None:
    """An event whose key was used, before or in the same call, is found and not stored."""
    assert events.append([new(1, "a"), new(2), new(3, "b")])[:2] == (1, 3)
    stored = second.events.append([new(4, "b"), new(5, "c"), new(6), new(7, "c"), new(8, "a")])
    assert (stored.first, stored.last) == (4, 5)
    assert [*stored.found] == [(0, 3), (3, 4), (4, 1)]
    assert [*events.append([new(9, "a")]).found] == [(0, 1)]
    assert [one.content for one in events.page("", 0, BIG, 9).events] == ["1", "2", "3", "5", "6"]


def test_a_large_batch(events: Events, second: Database) -> None:
    """It is stored as a small one is: names, NUL, keys, and what was stored before."""
    rows = [
        NewEvent(f"s{n}", "note", f"é\0{n}", (None, "", "sub")[n % 3], None if n % 5 else f"k{n}")
        for n in range(600)
    ]
    stored = events.append(rows)
    assert (stored.first, stored.last, stored.found) == (1, 600, [])
    found = second.events.page("", 0, BIG, 1_000).events
    assert [tuple(one) for one in found] == [
        (n, stored.created_at, row.source, "note", row.subtype, row.content)
        for n, row in enumerate(rows, 1)
    ]
    again = second.events.append(rows, None, stored.created_at)
    assert (again.first, again.last, again.created_at) == (601, 1_080, stored.created_at)
    assert [*again.found] == [(n, n + 1) for n in range(0, 600, 5)]


@pytest.mark.engines("sqlite")
def test_refs_hold_blobs_as_long_as_the_event(opened: eventq.Thread, database: Database) -> None:
    """A blob that an event names is kept, and no longer when the event is pruned."""
    blob = bytes.fromhex(opened.blobs.put(b"named").hash)
    events = database.events
    events.append([new(1, "a"), new(2)], {1: [blob]})
    assert events.append([new(3, "a")], {0: [blob]}).first == 0  # found, so it names nothing
    assert [tuple(one) for one in database.memory.blobs.holders(blob, 9)] == [("event", "2", 0)]
    events.prune(3)
    assert [*database.memory.blobs.holders(blob, 9)] == []


def test_ids_are_without_gaps_and_never_used_again(events: Events, database: Database) -> None:
    """What is undone leaves no gap; what is pruned leaves no id free."""
    fill(events, 3)
    with pytest.raises(ZeroDivisionError), database.write():
        events.add(new())
        events.append([new(4, "k")])
        raise ZeroDivisionError
    assert events.append([new(4, "k")])[:2] == (4, 4)
    assert (events.prune(5), events.last(), events.bounds().first) == (4, 4, 0)
    assert events.append([new(5, "k")])[:2] == (5, 5)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "after", "upto", "limit", "expected"), [
    ("", 0, BIG, 3, [1, 2, 3]), ("", 7, 9, 100, [8, 9]), ("", 12, BIG, 5, []), ("", 3, 3, 5, []),
    ("type = 'rare'", 0, BIG, 9, [10]), ("type = 'rare'", 10, BIG, 9, []),
    ("content = '7'", 0, 6, 9, []), ("content = '7'", 0, 7, 9, [7]),
])  # fmt: skip
def test_pages(
    events: Events, text: str, after: int, upto: int, limit: int, expected: list[int]
) -> None:
    """A page holds what matches in a range, in order; lines are the same as JSON."""
    fill(events, 12)
    accepted = events.accept(text)
    page = events.page(accepted, after, upto, limit)
    assert numbers(page.events) == expected
    assert page.next >= (expected[-1] if expected else after)
    lines = events.lines(accepted, after, upto, limit)
    assert [json.loads(line)["id"] for line in lines.lines] == expected
    assert lines.last_id == (expected[-1] if expected else 0)
    assert events.first_match(accepted, after, upto) == (expected[0] if expected else None)
    matches = numbers(events.page(accepted, 0, upto, 99).events)
    assert numbers(events.newest(accepted, min(upto, 12), 1)) == matches[-1:]


def test_pages_lead_through_all(events: Events) -> None:
    """Pages that begin where the one before got to give each match once, however large they are."""
    fill(events, 3_000)
    for text, count in (("", 3_000), ("type = 'rare'", 300)):
        found: list[int] = []
        after, accepted = 0, events.accept(text)
        while after < 3_000:
            page = events.page(accepted, after, 3_000, 7_000)
            found += numbers(page.events)
            after = page.next
        assert len(found) == len(set(found)) == count == events.tally(accepted, 0, BIG, BIG).count
        assert found == sorted(found)
    assert b"".join(events.blocks(10, 2_990)).count(b"\n") == 2_980


def test_a_tally_is_whole_or_says_that_it_is_not(events: Events) -> None:
    """It ends after the most that were asked for; without a filter, ids tell all of it."""
    fill(events, 20)
    for seconds in (None, 60.0):
        assert events.tally("type = 'rare'", 0, 20, 9, seconds) == Tally(10, 2, whole=True)
        assert events.tally("type = 'rare'", 0, 20, 1, seconds) == Tally(10, 1, whole=False)
        assert events.tally("type = 'none'", 0, 20, 1, seconds) == Tally()
        assert events.tally("type = 'rare'", 10, 19, 1, seconds) == Tally()
        assert events.tally("", 4, 19, 1, seconds) == Tally(5, 15)
        assert events.tally("", 20, 99, 1, seconds) == events.tally("", 9, 4, 1) == Tally()
        with pytest.raises(FilterError):
            events.tally("nonsense(", 0, 20, 1, seconds)


def test_the_newest(events: Events) -> None:
    """The newest matches come oldest first; the newest of each source or type, by id."""
    fill(events, 25)
    events.add(NewEvent("other", "note", "x"))
    assert numbers(events.newest("", 26, 3)) == [24, 25, 26]
    assert numbers(events.newest(events.accept("type = 'rare'"), 26, 9)) == [10, 20]
    assert numbers(events.newest("", 5, 2)) == [4, 5]
    assert numbers(events.latest("source")) == [25, 26]
    assert numbers(events.latest("type")) == [20, 26]
    with pytest.raises(InputError):
        events.latest("content")


def test_bounds(events: Events) -> None:
    """Oldest, newest and count are those of what is stored; the newest is remembered."""
    assert (events.bounds(), events.last()) == (Bounds(0, 0, 0), 0)
    fill(events, 9)
    assert events.bounds() == Bounds(1, 9, 9)
    assert [events.from_end(n) for n in (1, 4, 9, 99)] == [9, 6, 1, 1]
    assert events.prune(4) == 3
    assert events.bounds() == Bounds(4, 9, 6)
    assert events.prune(100) == 6
    assert (events.bounds(), events.from_end(1)) == (Bounds(0, 9, 0), 0)


# --- transactions ---------------------------------------------------------------------------------


def test_inside_a_transaction_own_writes_are_read(database: Database, second: Database) -> None:
    """Whoever writes reads what it wrote; others read it after the commit."""
    events = database.events
    with database.write():
        fill(events, 20)
        events.prune(11)
        assert (events.last(), second.events.last()) == (20, 0)
        assert numbers(events.page("", 0, 20, 3).events) == [11, 12, 13]
        assert (events.first_match("", 0, 20), events.tally("", 0, 20, 1).count) == (11, 10)
        assert second.events.bounds() == Bounds(0, 0, 0)
    assert second.events.bounds() == Bounds(11, 20, 10)


def test_a_commit_has_a_part_for_each_call(database: Database) -> None:
    """What subscribers learn holds the events of each call that stored some, and no others."""
    commits: list[Commit] = []
    database.subscribe("test", commits.append)
    with database.write():
        database.events.append([new(1), new(2, "k")])
        database.events.append([new(3, "k")])
        database.events.add(new(4))
    (commit,) = commits
    assert [part[:2] for part in commit.parts] == [(1, 2), (3, 1)]
    assert [[one.content for one in part[3]] for part in commit.parts] == [["1", "2"], ["4"]]


def test_a_reader_stores_nothing(opened: eventq.Thread) -> None:
    """A database that was opened to read refuses every change of the log."""
    with eventq.open(opened.path, read_only=True) as reader:
        assert not reader.database.writable
        for call in (
            lambda: reader.database.events.add(new()),
            lambda: reader.database.events.append([new()]),
            lambda: reader.database.events.prune(1),
            reader.database.write().__enter__,
        ):
            with pytest.raises(ReadOnlyError):
                call()


def test_an_effect_may_write(database: Database) -> None:
    """An effect stands outside of the commit that it follows, and may begin the next one."""

    def effect() -> None:
        database.events.add(new(2))

    with database.write():
        database.events.add(new(1))
        database.on_commit(effect)
        assert database.events.last() == 1
    assert database.events.last() == 2


def test_an_effect_belongs_to_its_own_thread(database: Database) -> None:
    """What one thread asks for after its commit is not lost when another's block is undone."""
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait()
        database.on_commit(done.set)

    runner = threading.Thread(target=other)
    runner.start()
    with pytest.raises(ZeroDivisionError), database.write():
        inside.set()
        runner.join(0.05)
        raise ZeroDivisionError
    runner.join()
    assert done.is_set()


def test_what_a_prune_would_delete_is_known_before(opened: eventq.Thread) -> None:
    """The ids, or the error that it would raise; a reader may ask."""
    opened.push_many([("self", "note", "x")] * 9)
    assert opened.prunable(keep_last=2) == range(1, 8)
    assert opened.prune(before_id=4) == 3
    opened.subscribe("w")
    opened.ack("w", 6)
    with eventq.open(opened.path, read_only=True) as reader:
        assert reader.prunable(before_id=7) == range(4, 7)
        assert not reader.prunable(before_id=2)
        assert reader.prunable(keep_last=0, force=True) == range(4, 10)
        with pytest.raises(eventq.LogicError, match="consumer 'w' has acked only up to 6"):
            reader.prunable(keep_last=0)
