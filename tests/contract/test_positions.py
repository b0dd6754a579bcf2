"""Where a reader goes on is an id of this log, or an error that names the newest.

The kind: a position that no log of today can have given out, taken for "nothing new" for ever. Its
members: the newest id plus one and the largest integer, before the first event, after all were
pruned, of `peek` and `follow`, when the first page is read and while a follower waits; and a gap
that a prune has left, of one event and of many.
"""

from __future__ import annotations

import pytest

import eventq
from eventq.errors import PositionError

pytestmark = pytest.mark.engines("sqlite", "postgres")


@pytest.mark.parametrize("count", [0, 10])
@pytest.mark.parametrize("above", [1, (1 << 63) - 11])
def test_a_position_above_the_newest_is_an_error(
    thread: eventq.Thread, count: int, above: int
) -> None:
    """It is raised by the call, before anything is read, and names the newest."""
    thread.push_many([("self", "note", "x")] * count)
    for read in (thread.peek, thread.follow):
        with pytest.raises(PositionError, match=f"the newest is {count}, so the log") as caught:
            read(count + above)
        assert (caught.value.last_id, caught.value.exit_code) == (count, 1)
        assert caught.value.wire_code == 409
    assert [event.id for event in thread.peek(count)] == []


def test_the_newest_that_ever_was_counts(thread: eventq.Thread) -> None:
    """A prune of everything makes no position wrong."""
    thread.push_many([("self", "note", "x")] * 5)
    thread.prune(before_id=6, force=True)
    assert list(thread.peek(5)) == []
    with pytest.raises(PositionError, match="the newest is 5"):
        thread.peek(6)


def test_a_log_that_becomes_shorter_while_it_is_followed(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower hears of it with its next look."""
    thread.push_many([("self", "note", "x")] * 5)
    found = thread.follow(0)
    assert [next(found).id for _ in range(5)] == [1, 2, 3, 4, 5]
    monkeypatch.setattr(thread.database.events, "last", lambda: 3)
    with pytest.raises(PositionError, match="the newest is 3"):
        next(found)


def test_gaps(thread: eventq.Thread) -> None:
    """A gap has the ids that a prune has deleted after a position above 0."""
    thread.push_many([("self", "note", "x")] * 10)
    gaps = thread.log.gap_after
    assert [gaps(after) for after in (0, 1, 10)] == [None] * 3
    thread.prune(before_id=6, force=True)
    assert [gaps(after) for after in (0, 1, 4, 5, 10)] == [None, (2, 5), (5, 5), None, None]
    thread.prune(before_id=11, force=True)
    assert [gaps(after) for after in (0, 1, 9, 10)] == [None, (2, 10), (10, 10), None]
    with pytest.raises(PositionError):
        gaps(11)
