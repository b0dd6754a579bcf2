"""A filter means the same on the table, in a transaction, in a snapshot, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import FilterError
from eventq.log.filters import sandbox
from eventq.records.event import NewEvent, Tally
from eventq.store.opening import in_memory

if TYPE_CHECKING:
    from eventq.store.protocol import Database, Events

EVENTS: list[tuple[Any, ...]] = [
    ("self", "note", "10"),
    ("self", "note", "9", "sub"),
    ("agent://1", "record", '{"n": 2, "s": "two"}', ""),
    ("agent://2", "Note", "Größe 💡", "10"),
    ("9", "10", '{"n": "2"}', "note"),
    ("self", "record", "not json", None),
    ("self", "note", "x" * 200_000),
    ("self", "note", "1e1", "9"),
]
FILTERS = [
    "1", "0", "NULL", "id = 3", "id > '3'", "id < content", "content = 10", "content = '10'",
    "content < 9", "content > '9'", "content + 0 = 10", "source = 9", "source = '9'", "type = 10",
    "type = 'note'", "type LIKE 'NOTE'", "type GLOB 'n*'", "subtype IS NULL", "subtype = ''",
    "subtype = 10", "subtype IN (9, 10)", "subtype IN ('9', '10')", "id IN ('1', 2.0)",
    "content BETWEEN 1 AND 10", "content BETWEEN '1' AND '2'", "length(content) > 1000",
    "json_extract(content, '$.n') = 2", "content ->> '$.n' = '2'", "content -> '$.n' = '2'",
    "typeof(id) = 'integer'", "typeof(content) = 'text'", "created_at > '2020'", "created_at > 2020",
    "instr(content, 'two')", "replace(content, 'x', '') = ''", "hex(content) = '39'",
    "coalesce(subtype, type) = type", "CASE subtype WHEN 9 THEN 1 ELSE 0 END", "-id < -6",
    "substr(content, 1, 1) = '1'", "lower(type) = 'note' AND NOT id = 1", "id % 2", "abs(id - 4) < 2",
    "content || subtype = '9sub'", "trim(content, '{}') <> content", "id = 1 OR id = 8",
    "upper(source) = 'SELF' AND content COLLATE NOCASE < 'O'", "id IS NOT 2", "content IS 10",
]  # fmt: skip


def asked(events: Events, text: str) -> tuple[Any, ...]:
    """Return all that can be asked of a filter, or how it fails."""
    try:
        accepted = events.accept(text)
        page = events.page(accepted, 0, 99, 99)
        lines = events.lines(accepted, 0, 99, 99)
        newest = events.newest(accepted, 99, 2)
        first, count = events.first_match(accepted, 0, 99), events.tally(accepted, 0, 99, 100).count
    except FilterError as error:
        return (str(error),)
    assert [event.id for event in newest] == [event.id for event in page.events][-2:]
    return page, lines, newest, first, count


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_means_the_same_everywhere(opened: eventq.Thread, text: str) -> None:
    """What matches in the table matches in a transaction and at a moment."""
    database: Database = opened.database
    opened.push_many(EVENTS)
    on_table = asked(database.events, text)
    with database.write():
        assert asked(database.events, text) == on_table
    with database.read() as moment:
        assert asked(moment.events, text) == on_table


BLIND = {  # what sees no further than the first NUL, and the events that it finds
    "content LIKE '%after%'": [2, 4],
    "content LIKE 'before'": [1, 3],
    "content GLOB '*after*'": [2, 4],
    "like('%after%', content)": [2, 4],
    "length(content) = 6": [1, 3],
    "substr(content, 8, 5) = 'after'": [2],
    "substring(content, -6) = 'before'": [1, 3],
    "json_extract(content, '$.a') = 'b'": [4],
    "content ->> '$.c' LIKE '%after%'": [],
}
SEEING = {  # what sees all
    "instr(content, char(0))": [1, 3, 4],
    "instr(content, 'after')": [1, 2, 3, 4],
    "content = 'before' || char(0) || 'after'": [1],
    "content IN ('before', 'before after')": [2],
    "content > 'before' AND content < 'before '": [1, 3],
    "replace(content, char(0), ' ') LIKE '%after%'": [1, 2, 3, 4],
    "replace(content, char(0), ' ') = 'before after'": [1, 2],
    "hex(content) = '6265666F7265006166746572'": [1],
    "octet_length(content) = 12": [1, 2],
    "instr(content ->> '$.c', char(0))": [4],
}


@pytest.mark.parametrize("text", [*BLIND, *SEEING])
def test_what_a_filter_sees_of_a_text_with_a_nul(opened: eventq.Thread, text: str) -> None:
    """LIKE and its like see it up to there, comparisons and instr() see all of it."""
    large = "before\0after" + "x" * 200_000  # tested on its own
    for content in ("before\0after", "before after", large, '{"a":"b","c":"\\u0000after"}\0'):
        opened.push("self", "note", content)
    found = [event.id for event in opened.peek(0, limit=9, filter=text)]
    assert found == (BLIND | SEEING)[text]
    opened.subscribe("w", filter=text)
    assert [event.id for event in opened.pop("w", limit=9)] == found


def test_a_filter_sees_what_its_transaction_did(opened: eventq.Thread, database: Database) -> None:
    """What was stored shows, what was deleted does not; others see neither."""
    opened.push_many([("self", "note", str(n)) for n in range(1, 11)])
    opened.subscribe("w", filter="content > '4' AND type = 'note'")
    events = database.events
    with database.write():
        opened.push("self", "note", "5 more")
        opened.push("self", "other", "6 more")
        opened.prune(before_id=6, force=True)
        assert [event.id for event in opened.pop("w", 0)] == [6, 7, 8, 9, 11]
        assert [event.id for event in opened.pop("w", 0, limit=2)] == [6, 7]
        assert len(opened.pop_lines("w", 7)) == 3
        assert [event.id for event in opened.last(2, filter="type = 'note'")] == [10, 11]
        assert events.first_match("content = '5 more'", 0, 12) == 11
        assert events.first_match("content = '5'", 0, 12) is None
        assert events.tally("type = 'note'", 0, 12, 100).count == 6
        assert events.tally("type = 'other'", 0, 12, 1, 0.1).count == 1
        assert events.tally("type = 'none'", 0, 12, 1, 9.0) == Tally()
        with database.read() as moment:
            assert moment.events.tally("type = 'note'", 0, 12, 100).count == 10
    assert events.tally("type = 'note'", 0, 12, 100).count == 6


def test_a_filter_that_takes_too_long_is_refused_inside(
    opened: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox's limits hold for a single event as well, and the block goes on."""
    monkeypatch.setattr(sandbox, "EVENT_SECONDS", -1.0)
    with opened.write():
        opened.push("self", "note", "x" * 2_000_000)
        with pytest.raises(FilterError, match="takes too long on event 1"):
            list(opened.peek(filter="length(replace(content, 'x', 'xy')) > 1"))
        opened.push("self", "note", "the block goes on")
    assert opened.last_id() == 2


def test_a_filter_in_memory() -> None:
    """A database without a file has one connection, which a filter runs beside."""
    database = in_memory()
    database.events.append([NewEvent("self", "note", str(n)) for n in range(5)])
    assert database.events.tally("content > '2'", 0, 9, 9).count == 2
    database.close()
