"""An iterator that `push_many` takes may be slow: nobody waits for it, on any engine.

Of what a call reads from its caller while it works, only this one was read inside a transaction.
Tried as well, and fine: `settle`, `extend` and `retry_dead` of iterators; payloads, blobs, artifacts
and outputs from streams, which are stored in pieces.
"""

from __future__ import annotations

import enum
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import DiskError, InputError
from eventq.records.event import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIB = 1 << 20
MANY = 30 * MIB // 10_000  # events of 10,000 bytes, more than stay in memory
LIMIT = 120  # seconds, of what takes none


class Slow:
    """An iterator that yields an event, and the next one when it may go on."""

    def __init__(self, before: int = 0) -> None:
        self.is_read, self.may_end = threading.Event(), threading.Event()
        self._before = before

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        yield from (("self", "note", "x" * 10_000) for _ in range(self._before))
        yield "self", "slow", "first"
        self.is_read.set()
        assert self.may_end.wait(LIMIT)
        yield "self", "slow", "last"


@pytest.mark.parametrize("before", [0, MANY])
@pytest.mark.parametrize("whose", ["its own", "another"])
def test_nobody_waits_for_an_iterator(opened: eventq.Thread, before: int, whose: str) -> None:
    """While it has not ended others push, with the same `Thread` too; then all of it is stored."""
    slow = Slow(before)
    with ThreadPoolExecutor(1) as pool, eventq.open(opened.path) as other:
        job = pool.submit(opened.push_many, iter(slow))
        try:
            assert slow.is_read.wait(LIMIT)
            pusher = opened if whose == "its own" else other
            assert pusher.push("self", "note", "meanwhile").id == 1
            assert not job.done()
        finally:
            slow.may_end.set()
        assert job.result(LIMIT) == Batch(before + 2, 2, before + 3)
    assert [event.content for event in opened.last(2)] == ["first", "last"]
    assert opened.check() == []


def test_events_come_back_as_they_were(opened: eventq.Thread) -> None:
    """What was kept in a file is stored in order, byte for byte."""
    texts = [f"{n} é\0😀\n" + "x" * 10_000 for n in range(MANY)]
    opened.push_many(("self", "t", text, "" if n % 2 else None) for n, text in enumerate(texts))
    found = list(opened.peek(limit=None))
    assert [event.content for event in found] == texts
    assert {event.subtype for event in found} == {"", None}


def test_names_of_a_subclass_of_text(opened: eventq.Thread) -> None:
    """A StrEnum is a name like any other, as a key too."""

    class Kind(enum.StrEnum):
        A = "a"

    new = (Kind.A, Kind.A, "x", Kind.A, Kind.A)
    assert opened.push_many(iter([new])).count == 1
    assert opened.push_many([new]).count == 0
    (event,) = opened.last(1)
    assert (event.source, event.type, event.subtype) == ("a", "a", "a")


@pytest.mark.parametrize("good", [0, 300, MANY])
def test_one_that_is_refused_is_named(opened: eventq.Thread, good: int) -> None:
    """The error has the number of the event, and nothing is stored."""
    events: list[tuple[str | None, ...]] = [("self", "note", "x" * 10_000)] * good
    with pytest.raises(InputError, match=f"^event {good + 1}: type is empty"):
        opened.push_many(iter([*events, ("self", "", "x"), ("self", "note", "x")]))
    assert opened.last_id() == 0


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_a_conflict_is_named(opened: eventq.Thread, kind: type[Iterable[object]]) -> None:
    """Whatever was read after it, however large a part is that is stored at once."""
    opened.push("self", "note", "x", key="k700")
    events = [("self", "note", "y", None, f"k{n}") for n in range(1, 2_000)]
    with pytest.raises(eventq.KeyConflictError, match=r"^event 700: key 'k700'"):
        opened.push_many(kind(events), key_strict=True)  # type: ignore[call-arg, arg-type]
    assert opened.last_id() == 1


def test_inside_write_it_is_read_as_it_is_stored(opened: eventq.Thread) -> None:
    """Who is in `write` has the lock already, so nothing is kept."""
    count = 3 * opened.database.events.most_rows
    seen = set()

    def events() -> Iterator[tuple[str, str, str]]:
        for _ in range(count):
            seen.add(opened.last_id())
            yield "self", "note", "x"

    with opened.write():
        assert opened.push_many(events()).count == count
    assert len(seen) == 3


def test_a_thread_that_is_only_read_reads_no_input(opened: eventq.Thread) -> None:
    """What cannot be stored is not read first."""
    with (
        eventq.open(opened.path, read_only=True) as reader,
        pytest.raises(eventq.ReadOnlyError),
    ):
        reader.push_many(iter(lambda: pytest.fail("it was read"), None))


def test_no_room_for_the_input(opened: eventq.Thread) -> None:
    """The error says what to do, nothing is stored, and the next push is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, before[1]))
    try:
        with pytest.raises(DiskError, match=r"no room to read the input.* - nothing was stored"):
            opened.push_many(("self", "note", "x" * 10_000) for _ in range(MANY))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert opened.push("self", "note", "x").id == 1
