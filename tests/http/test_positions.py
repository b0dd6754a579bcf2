"""Positions over HTTP: above the newest id that ever was, and before a gap that a prune has left.

The kind is that of tests/contract/test_positions.py; here: a page, a long poll, a stream as SSE and
as lines, `after` and Last-Event-ID, with a filter and without, and a log that is replaced by an
older one while somebody follows.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.http.conftest import problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    import eventq

LINES = {"accept": "application/x-ndjson"}
ABOVE = [11, (1 << 63) - 1]


def messages(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any], int | None]]:
    """Yield name, data and id of each message of a stream."""
    name, number, data = "message", None, {}
    for line in response.iter_lines():
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "id":
            number = int(value)
        elif kind == "data":
            data = json.loads(value)
        elif not line and data:
            yield name, data, number
            name, number, data = "message", None, {}


@pytest.fixture
def filled(thread: eventq.Thread) -> eventq.Thread:
    """Return a thread of ten events, of which the first five were pruned."""
    thread.push_many([("self", "note", "x")] * 10)
    thread.prune(before_id=6, force=True)
    return thread


@pytest.mark.parametrize("after", ABOVE)
@pytest.mark.parametrize("more", [{}, {"wait": "300"}, {"filter": "type = 'note'"}])
def test_a_page_above_the_newest(
    client: httpx.Client, filled: eventq.Thread, after: int, more: dict[str, str]
) -> None:
    """It is a 409 at once, which names the newest."""
    status, detail = problem(client.get("events", params={"after": after, **more}))
    assert (status, "the newest is 10" in detail) == (409, True)
    assert client.get("events", params={"after": 10}).json() == {"events": [], "next": 10}
    assert filled.last_id() == 10


@pytest.mark.parametrize("after", ABOVE)
@pytest.mark.parametrize("where", [{}, {"filter": "type = 'note'"}])
def test_a_stream_above_the_newest(
    client: httpx.Client, filled: eventq.Thread, after: int, where: dict[str, str]
) -> None:
    """It begins with `reset`, whose id is the newest, and goes on there; lines have a 409."""
    given: dict[str, Any] = {"params": {**where, "after": after}}
    kept: dict[str, Any] = {"params": where, "headers": {"last-event-id": str(after)}}
    with (
        client.stream("GET", "events/stream", **kept) as one,
        client.stream("GET", "events/stream", **given) as other,
    ):
        both = messages(one), messages(other)
        for every in both:
            assert next(every) == ("reset", {"after": after, "newest": 10}, 10)
        filled.push("self", "note", "next")
        for every in both:
            assert next(every)[::2] == ("message", 11)
    refused = client.get("events/stream", params={**where, "after": 1 << 40}, headers=LINES)
    assert problem(refused)[0] == 409


@pytest.mark.parametrize("where", [{}, {"filter": "type = 'note'"}])
def test_a_gap_is_told(client: httpx.Client, filled: eventq.Thread, where: dict[str, str]) -> None:
    """A page and a stream name the ids in a header; SSE has them in `gap`, before what follows."""
    assert filled.last_id() == 10
    for after, gap in ((0, None), (2, "3-5"), (4, "5-5"), (5, None)):
        params = {**where, "after": str(after)}
        found = client.get("events", params=params)
        assert found.headers.get("eventq-gap") == gap
        with client.stream("GET", "events/stream", params=params) as stream:
            assert stream.headers.get("eventq-gap") == gap
            every = messages(stream)
            if gap is not None:
                numbers = {"from": after + 1, "to": 5}
                assert next(every) == ("gap", numbers, None)
            assert next(every)[::2] == ("message", 6)


def test_a_log_that_is_replaced_while_it_is_followed(
    client: httpx.Client, filled: eventq.Thread
) -> None:
    """Whoever follows gets `reset` then, and what comes after."""
    with client.stream("GET", "events/stream", params={"after": 5}) as found:
        every = messages(found)
        assert [next(every)[2] for _ in range(5)] == [6, 7, 8, 9, 10]
        # As an older copy of the thread has it.
        with filled.write():
            filled.database.connection.execute("DELETE FROM events WHERE id > 7")  # type: ignore[attr-defined]
            filled.database.connection.execute("UPDATE sqlite_sequence SET seq = 7")  # type: ignore[attr-defined]
        assert next(every) == ("reset", {"after": 10, "newest": 7}, 7)
    os.remove(os.path.join(filled.path, "events.jsonl"))  # it has what the log has lost
