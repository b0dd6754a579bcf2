"""The JSON of an event is made in three places, and is the same text in all of them."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq import Event
from eventq.log.mirror_lines import line
from tests.engines import sqlite

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
HARD_TEXT = st.text(
    st.sampled_from(
        "\0\x01\x08\t\n\x0b\x0c\r\x1f\x7f\x80\x9f\"\\/\u2028\u2029\ufeff\uffff\U0001f600é{}[]'"
    )
)
TEXT = ANY_TEXT | HARD_TEXT
EVENTS = st.builds(
    Event,
    id=st.integers(1, (1 << 63) - 1),
    created_at=st.just("2026-03-18T10:30:00.123Z"),
    source=TEXT,
    type=TEXT,
    subtype=st.none() | TEXT,
    content=TEXT,
)


@settings(
    max_examples=250, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(EVENTS)
@example(Event(1, "2026-03-18T10:30:00.123Z", "self", "note", "", "".join(map(chr, range(0x3000)))))
def test_three_ways_to_one_text(thread: eventq.Thread, event: Event) -> None:
    """The line of the mirror, of SQLite and of `json` are equal for any text."""
    text = line(event)
    with suppress(LookupError), thread.write():
        sqlite(thread.database).run("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", tuple(event))
        assert [*thread.database.events.blocks(event.id - 1, event.id)] == [f"{text}\n".encode()]
        raise LookupError  # so that nothing is stored
    assert text == json.dumps(event._asdict(), ensure_ascii=False, separators=(",", ":"))
    assert Event(**json.loads(text)) == event
