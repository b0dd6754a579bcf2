"""The JSON of an event is made in three places, and is the same text in all of them."""

from __future__ import annotations

import json

import apsw
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventq import Event
from eventq.log.mirror import line
from eventq.storage.sqlite.events import _LINE

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
DB = apsw.Connection(":memory:")
SQL = f"SELECT {_LINE} FROM (SELECT ? AS id, ? AS created_at, ? AS source, ? AS type, ? AS subtype, ? AS content)"


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(EVENTS)
@example(Event(1, "2026-03-18T10:30:00.123Z", "self", "note", "", "".join(map(chr, range(0x3000)))))
def test_three_ways_to_one_text(event: Event) -> None:
    """The line of the mirror, of SQLite and of `json` are equal for any text."""
    text = line(event)
    assert text == DB.execute(SQL, tuple(event)).fetchall()[0][0]
    assert text == json.dumps(event._asdict(), ensure_ascii=False, separators=(",", ":"))
    assert Event(**json.loads(text)) == event
