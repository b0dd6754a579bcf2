"""Filters that work, filters that are refused at a character, and bombs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import FilterError
from eventq.log.filters import guards
from eventq.log.filters import sandbox as fence_module
from eventq.log.filters.advice import SPELLING, advice
from eventq.log.filters.grammar import COLUMNS, FUNCTIONS, MAX_TEXT, Words
from eventq.log.filters.sandbox import FilterSandbox
from eventq.records.event import Tally

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, source TEXT NOT NULL,
  type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL);
CREATE INDEX events_source ON events(source);
CREATE INDEX events_type ON events(type);
CREATE TABLE secret(word TEXT);
INSERT INTO secret VALUES ('hunter2');
"""
EVENTS = [
    ("2026-03-18T10:30:00.123Z", "self", "record", "decision", '{"k": 3, "a": {"b": [1, 2]}, "s": "text"}'),
    ("2026-03-18T11:30:00.123Z", "external:a:b:c:d:e", "message", None, "plain words"),
    ("2026-03-19T10:30:00.123Z", "internal:x:y:z", "record", "", "it's 100% \u00e9\u00e9 \U0001f600"),
    ("2026-04-01T00:00:00.000Z", "self", "message", "note", '{"k": 4'),
    ("2025-12-31T23:59:59.999Z", "SELF", "message", "note", "[1, 2, 3]"),
    ("2026-05-05T05:05:05.555Z", "self", "empty", None, ""),
]  # fmt: skip
NESTED = "json(" * 9 + "content" + ")" * 9 + " = ''"


def _store(path: Path, rows: list[tuple[Any, ...]]) -> Callable[[], apsw.Connection]:
    sql = "INSERT INTO events(created_at, source, type, subtype, content) VALUES (?,?,?,?,?)"
    with apsw.Connection(str(path)) as db:
        db.execute(SCHEMA).fetchall()
        db.executemany(sql, rows)
    return lambda: apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


Fenced = Callable[..., FilterSandbox]


@pytest.fixture
def fenced(tmp_path: Path) -> Iterator[Fenced]:
    """Return a maker of fences: around a store of the contents, or the rows, that are given."""
    made: list[FilterSandbox] = []

    def make(*contents: str, rows: list[Any] | None = None) -> FilterSandbox:
        rows = [(*EVENTS[0][:4], content) for content in contents] if rows is None else rows
        made.append(FilterSandbox(_store(tmp_path / f"events-{len(made)}.db", rows)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], apsw.Connection]:
    """Return the opener of a small store."""
    return _store(tmp_path_factory.mktemp("filters") / "events.db", EVENTS)


@pytest.fixture(scope="module")
def fence(connect: Callable[[], apsw.Connection]) -> Iterator[FilterSandbox]:
    """Return a fence around the small store."""
    fence = FilterSandbox(connect)
    yield fence
    fence.close()


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilterSandbox]:
    """Return a fence around a store with contents made to hurt."""
    contents = ["a" * (8 << 20), "ab" * 1000, "'" * 100_000, "[" * 100_000]
    rows = [(*EVENTS[0][:4], content) for content in contents]
    fence = FilterSandbox(_store(tmp_path_factory.mktemp("big") / "events.db", rows))
    yield fence
    fence.close()


def ids(fence: FilterSandbox, text: str) -> list[int]:
    """Return the ids that match."""
    fence.check(text)
    return [row[0] for row in fence.page(text, 0, 1 << 62, 1000)[0]]


def refused(fence: FilterSandbox, text: str) -> FilterError:
    """Return the error with which a filter is refused at once."""
    with pytest.raises(FilterError) as caught:
        fence.check(text)
    error = caught.value
    assert (error.exit_code, error.text) == (2, text)
    assert 0 <= error.at <= len(text)
    assert error.what
    assert error.fix
    return error


WORKS = {
    "": [1, 2, 3, 4, 5, 6],
    " \t\r\n ": [1, 2, 3, 4, 5, 6],
    "id = 3": [3],
    "id <> 3 AND id != 4 and not id == 5": [1, 2, 6],
    "id >= 0x2 AND id < 1e1 AND id<=3.5": [2, 3],
    "type = 'record' OR (source = 'self' AND type = 'message')": [1, 3, 4],
    "NOT type = 'record'": [2, 4, 5, 6],
    "source LIKE 'external:%'": [2],
    "source NOT LIKE 'self'": [2, 3],
    "content LIKE '%100\\%%' ESCAPE '\\'": [3],
    "like('%words', content)": [2],
    "NOT like('%words', content) AND NOT glob('plain*', content)": [1, 3, 4, 5, 6],
    "NOT like('%words', content) || ''": [1, 3, 4, 5, 6],
    "NOT " * 61 + "like('%words', content)": [1, 3, 4, 5, 6],
    "glob('plain*', content)": [2],
    "source GLOB 'internal:*:y:?'": [3],
    "created_at GLOB '[0-9][0-9][0-9][0-9]-0[34]-[0-9][0-9]T*-*' OR created_at GLOB '*[0-9][0-9]:05:[0-9][0-9].*'": [
        6
    ],
    "content LIKE '----------------------------------%'": [],
    "content NOT GLOB '*[a-z]*'": [5, 6],
    "type IN ('record', 'empty')": [1, 3, 6],
    "type NOT IN ('record')": [2, 4, 5, 6],
    "type IN ()": [],
    "id BETWEEN 2 AND 4": [2, 3, 4],
    "id NOT BETWEEN 2 AND 4": [1, 5, 6],
    "subtype IS NULL": [2, 6],
    "subtype ISNULL": [2, 6],
    "subtype NOTNULL AND subtype NOT NULL": [1, 3, 4, 5],
    "subtype IS NOT NULL": [1, 3, 4, 5],
    "subtype = ''": [3],
    "subtype IS DISTINCT FROM 'note'": [1, 2, 3, 6],
    "CASE type WHEN 'record' THEN id = 1 ELSE 0 END": [1],
    "CASE WHEN type = 'record' THEN 1 END": [1, 3],
    "created_at > '2026-03-18T23' AND created_at < date('2026-03-31')": [3],
    "created_at < datetime('now', '-1 day') OR created_at > '2000'": [1, 2, 3, 4, 5, 6],
    "strftime('%Y', created_at) = '2025'": [5],
    "julianday(created_at) < julianday(CURRENT_TIMESTAMP) + 1e9 AND id = 1": [1],
    "json_extract(content,'$.k') = 3": [1],
    "json_extract(content,'$.k') IS NULL": [2, 3, 4, 5, 6],
    "json_extract(content,'$.k', '$.s') = '[3,\"text\"]'": [1],
    "content ->> '$.k' = 3": [1],
    "content->>'k'=3": [1],
    "content -> 'a' -> 'b' ->> 1 = 2": [1],
    "content ->> 's' ->> 'x' IS NULL AND id = 1": [1],
    "json_extract(json_extract(content, '$.s'), '$.x') IS NULL": [1, 2, 3, 4, 5, 6],
    "json_extract(substr(content, 1), '$.k') = 3": [1],
    "json_extract(CASE WHEN 1 THEN content END, '$.k') = 3": [1],
    "CASE WHEN 1 THEN content END ->> 'k' = 3": [1],
    "(content) ->> 'k' = 3": [1],
    "'' || content ->> 'k' = 3": [1],
    "id + content ->> 'k' IS NULL AND id > 1": [2, 3, 4, 5, 6],
    "json_type(content, '$.a') = 'object'": [1],
    "json_valid(content)": [1, 5],
    "json_array_length(content) = 3": [5],
    "json(content) = '[1,2,3]'": [5],
    "lower(source) = 'self' AND upper(type) = 'MESSAGE'": [4, 5],
    "source = 'self' COLLATE NOCASE": [1, 4, 5, 6],
    "length(content) = 0": [6],
    "instr(content, 'words') = 7": [2],
    "instr(subtype, 'x') IS NULL": [2, 6],
    "instr(content, '\u00e9')": [3],
    "replace(content, 'plain', 'no') = 'no words'": [2],
    "typeof(replace(id, '', 'x')) = 'text' AND id = 1": [1],
    "replace(content, '', 'x') = content": [1, 2, 3, 4, 5, 6],
    "substr(content, 1, 5) = 'plain' OR trim(content, 'p') = 'lain words'": [2],
    "hex(type) = '656D707479'": [6],
    "hex(subtype) = '' AND id = 2": [2],
    "coalesce(subtype, 'none') = 'none' OR ifnull(nullif(subtype, ''), '-') = '-'": [2, 3, 6],
    "iif(id > 3, 1, 0)": [4, 5, 6],
    "typeof(id) = 'integer' AND CAST(id AS TEXT) = '2'": [2],
    "abs(-id) = 2 AND max(id, 1) = 2 AND min(id, 9) = 2 AND round(1.5) = 2": [2],
    "unicode(char(65)) = 65 AND id % 2 = 0 AND id << 1 > 4 AND ~id < 0 AND id / 2 * 2 - 0 = id": [
        4,
        6,
    ],
    "(type, id) = ('record', 1)": [1],
    "content = 'it''s 100% \u00e9\u00e9 \U0001f600'": [3],
    "content LIKE '%--%' OR content = '/* ; ? */'": [],
    "/* ; */ type /**/ = 'empty' /* ' */ or /*?*/ content /**/ ->> 'k' = 3 /* ' */": [1, 6],
    "Events.ID = 1 OR events . type = 'empty'": [1, 6],
    "\"type\" = 'empty' OR [id] = 1 OR `id` = 2": [1, 2, 6],
    "TYPE = 'empty' or iD = 1": [1, 6],
    "x'65' IS NOT NULL AND id = 1": [1],
    "TRUE AND NOT FALSE AND NULL IS NULL": [1, 2, 3, 4, 5, 6],
    "id = - - 1 AND id = +1": [1],
    "type = 'record'\nAND id = 1": [1],
    "type = 0 OR content = 0": [],
    "json_extract(lower(content) COLLATE NOCASE, '$.s') = 'TEXT'": [1],
    "json_extract(lower(content), '$.s') = 'TEXT'": [],
    "json_type(upper(content)) = 'array' AND '' || content NOT LIKE '{%' AND content = 1 LIKE '0'": [
        5
    ],
    "type = subtype || 'x' LIKE 'n%' OR id BETWEEN 1 AND content LIKE '1%'": [1, 2, 3, 4, 5, 6],
}


@pytest.mark.parametrize("text", WORKS)
def test_works(fence: FilterSandbox, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promised filter selects the right events, also if all values count as large."""
    assert ids(fence, text) == WORKS[text]
    monkeypatch.setattr(fence_module, "LARGE", -1)
    assert ids(fence, text) == WORKS[text]


@pytest.mark.parametrize("text", WORKS)
def test_works_with_jumps(fenced: Fenced, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of many steps, which is compiled with jumps, selects the same."""
    monkeypatch.setattr(guards, "MAX_STEPS", -1)
    assert ids(fenced(rows=EVENTS), text) == WORKS[text]


# The caret is the mark ^ in the text: it stands before the character at fault.
REFUSED = [
    "id = 1^; DROP TABLE events",
    "1=1^) OR (1=1",
    "1=1) ^--",
    "1=1 ^-- swallowed",
    "1=1 ^/* swallowed",
    "id = 1^--1",
    "^(id = 1",
    "id IN ^(1, 2",
    "lower^(type = 'x'",
    "(1) AND ^((id = 1)",
    "id = 1 UNION ^SELECT 1",
    "id IN (^SELECT word FROM secret)",
    "(^select 1)",
    "EXISTS (^SELECT 1)",
    "id = (^WITH RECURSIVE x(n) AS (SELECT 1) SELECT n FROM x)",
    "id IN (^VALUES (1))",
    "id IN ^secret",
    "id IN^",
    "^secret.word = 'hunter2'",
    "^word = 'hunter2'",
    "^main.events.id = 1",
    "^events.word = 1",
    "^events.events.id = 1",
    "^events = 1",
    "^rowid = 1",
    "PRAGMA ^user_version",
    "ATTACH 'x' AS ^y",
    "^load_extension('x')",
    "type = 'x' OR ^readfile('/etc/passwd') = ''",
    "^randomblob(1e9) = ''",
    "^zeroblob(1000000000) = ''",
    "^printf('%1000000000d', 1) = ''",
    "^random() = 1",
    "^lowr(type) = 'x'",
    "^secret()",
    "^[randomblob](9) = 1",
    "^pragma_table_info('secret')",
    "^json_each(content)",
    "^count(*) > 1",
    "^sqlite_version() > ''",
    "type ^MATCH 'x'",
    "type ^REGEXP 'x'",
    "^min(id) OVER () = 1",
    "^max(id, 1) OVER () = 1",
    "^max(id, 1) FILTER (WHERE 1)",
    "^RAISE(ABORT, 'x')",
    "id = ^?",
    "id = ^?1",
    "id = ^:name",
    "id = ^@name",
    "id = ^$name",
    "id = ^#name",
    'type = ^"record"',
    "type = ^record",
    "type = ^'record",
    "type = ^'record''",
    'type = ^"record',
    "type = ^[record",
    "type = x^'0",
    "type = ^x'0g'",
    "type = ^x'012'",
    "id = ^1a",
    "id = ^0x",
    "id = 1.5^.5",
    "id = 1 ^! 2",
    "id = ^\\1",
    "id = ^\u00a01",
    "id ^\u2260 1",
    "CASE WHEN 1 THEN 2^",
    "(CASE WHEN 1 THEN 2^)",
    "id = 1 ^END",
    "CAST(id AS ^VARCHAR) = '1'",
    "type = 'a' COLLATE ^german",
    "content LIKE ^'%a%a%a%a%a%a%a%a%a%a%a%b'",
    "content LIKE ^'%" + "a" * 60 + "b%'",
    "content LIKE ^'%" + "ab" * 100 + "%'",
    "content LIKE ^'%a" + "_" * 60 + "b%'",
    "content GLOB ^'*" + "[ab]" * 20 + "*'",
    "content GLOB ^'*" + "?a" * 20 + "*'",
    "like(^'%" + "a" * 60 + "b%', content)",
    "id > 0 AND NOT like(^'%" + "a" * 60 + "b%', content)",
    "type = '\u00e9\u00e9' AND ^foo = 1",
    # out through the guards that are written around JSON
    "json_extract(content) THEN 1 END^) OR (1",
    "json_extract(content, 6) ^THEN 1 END",
    "json_extract(content, 6) THEN 1 ELSE (2), '$'^)",
    "(CASE WHEN 1 THEN content^) ->> 'k' END",
    "json_extract(^SELECT, '$')",
    # SQLite's own opinion, at its place
    "id = 1 AND^",
    "id ^id",
    "id = 1 , ^, 2",
    "id BETWEEN ^AND 3",
    "type = '\u00e9\U0001f600' AND id BETWEEN ^AND 3",
    "json_extract(content, '$.\u00e9') = 1 AND content ->> 'k' = 3 AND id BETWEEN ^AND 3",
    "json_extract(json_extract(content, '$.a') BETWEEN ^AND 3, '$') = 1",
    "^max(id) = 1",
    "json_type(^max(1)) = 1",
    "unhex(content, ^'" + "x" * 65 + "') = 1",
    "unhex(content, ^content) = 1",
    "id = 1 OR ^json_extract(content" + ", '$.a'" * 17 + ") = ''",
    "id = 1 AND ^round(1, 2, 3, 4)",
    "json_extract(content, ^'k') = 1",
]


@pytest.mark.parametrize("marked", REFUSED)
def test_refused_at_its_place(fence: FilterSandbox, marked: str) -> None:
    """What must be refused is refused when it is given, with the caret under the fault."""
    at = marked.index("^")
    error = refused(fence, marked[:at] + marked[at + 1 :])
    assert error.at == at, str(error)
    assert str(error).splitlines()[-1].rstrip().endswith("^")


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("id = 1\0 OR 1", 6, ""),
        ("id = '\ud800'", 6, ""),
        ("1" * (MAX_TEXT + 1), MAX_TEXT, ""),
        ("lower(" * 3000 + "type" + ")" * 3000, None, ""),
        ("json(" * 3000 + "type" + ")" * 3000, None, ""),
        ("content" + " ->> 'a'" * 4000, None, ""),
        ("1" + " OR id = 7" * 6000, None, ""),
        ("NOT " * 15_000 + "1", None, ""),
        ("- " * 15_000 + "1", None, ""),
        ("lowr(type)", 0, "lower()"),
        ('type = "x"', 7, "single quotes"),
        *(("foo = 1", 0, column) for column in COLUMNS),
    ],
    ids=range(11 + len(COLUMNS)),
)
def test_a_refusal_says_where_and_what_next(
    fence: FilterSandbox, text: str, at: int | None, said: str
) -> None:
    """NUL, surrogates, and too long or deep filters are refused, with a hint."""
    error = refused(fence, text)
    assert at is None or error.at == at
    assert said in error.what + error.fix


def test_an_accepted_filter_is_kept_as_it_was_written(fence: FilterSandbox) -> None:
    """So accepting it again changes nothing; nothing but blanks is kept as nothing."""
    for text in WORKS:
        kept = fence.check(text)
        assert kept == (text if text.strip() else "")
        assert fence.check(kept) == kept
    assert fence.check(None) == ""


def test_many_mentions_are_compared_like_columns(fence: FilterSandbox) -> None:
    """Many mentions of columns are wrapped, with the same affinity, NULLs and positions."""
    many = " OR ".join(["type = 5", "subtype = 5", "content = 5"] * 5)
    assert ids(fence, f"({many}) OR events.id = 2") == [2]
    assert ids(fence, f"({many}) OR subtype IS NULL") == [2, 6]
    assert ids(fence, f"({many}) OR content ->> 'k' = 3") == [1]
    assert refused(fence, f"{many} AND id BETWEEN AND 3").at == len(many) + 16


# --- the fence, without the accepting in front of it ----------------------------------------------


@pytest.fixture
def unread(fenced: Fenced, monkeypatch: pytest.MonkeyPatch) -> FilterSandbox:
    """Return a fence whose filters nobody has looked at, as if accepting had a hole."""
    monkeypatch.setattr(fence_module, "accept", lambda _: None)
    return fenced(rows=EVENTS)


HOLES = [
    "id IN (SELECT word FROM secret)",
    "1) UNION SELECT 1, 2, 3, 4, 5, word FROM secret WHERE (1",
    "1); SELECT word FROM secret WHERE (1",
    "EXISTS (SELECT * FROM sqlite_schema)",
    "EXISTS (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n)",
    "EXISTS (SELECT 1 FROM pragma_table_info('secret'))",
    "EXISTS (SELECT 1 FROM json_each('[1]'))",
    "randomblob(9) = 1",
    "load_extension('x')",
    "readfile('/etc/passwd')",
    "rowid IN secret",
    "secret = 1",
]


@pytest.mark.parametrize("text", HOLES)
def test_fence_holds_alone(unread: FilterSandbox, text: str) -> None:
    """Were a filter accepted that should not be, the connection itself still refuses it."""
    with pytest.raises((FilterError, apsw.Error)):
        unread.page(text, 0, 100, 10)


def test_a_hole_runs_out_of_time(unread: FilterSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even an endless join of events with themselves stops, and is the filter's fault."""
    monkeypatch.setattr(fence_module, "WINDOW_SECONDS", 0.1)
    monkeypatch.setattr(fence_module, "EVENT_SECONDS", 0.3)
    names = [f"e{i}" for i in range(13)]
    tables = ", ".join(f"events {name}" for name in names)
    text = f"EXISTS (SELECT 1 FROM {tables} WHERE {'.id + '.join(names)}.id < 0)"
    with pytest.raises(FilterError, match="too long"):
        unread.page(text, 0, 2, 10)


# --- bombs ----------------------------------------------------------------------------------------

BOMBS = [
    "replace(replace(replace(content,'a','aaaaaaaaaa'),'a','aaaaaaaaaa'),'a','aaaaaaaaaaaaaaaa') = ''",
    f"replace('{'a' * 30_000}','a','{'b' * 30_000}') = ''",
    " OR ".join(f"replace(replace('{'a' * 1000}','a','{'b' * 300}'),'b','{'c' * 300}') = {i}" for i in range(30)),
    "||".join(["content"] * 100) + " = ''",
    f"trim(content, '{''.join(chr(0x4E00 + i) for i in range(10_000))}a') = 'x'",
]  # fmt: skip


@pytest.mark.parametrize("text", BOMBS, ids=[text[:30] for text in BOMBS])
def test_bombs_are_stopped(big: FilterSandbox, text: str) -> None:
    """Unbounded filters are refused within seconds."""
    with pytest.raises(FilterError):
        ids(big, text)


def most(*values: str) -> str:
    """Return the largest of values, compared with one that none is."""
    return f"max({', '.join(values)}) = 5"


def array() -> str:
    """Return the text of a long array."""
    return "[" + "1," * (8 << 20) + "1]"


LAST = "bcdefghijkl"
# What one event of 16 MiB would have kept busy within a single step of SQLite, or between two looks
# at the clock.
LONG_STEPS: dict[str, tuple[Callable[[], str], str]] = {
    "json in json": (array, NESTED),
    "arrows": (array, "content" + " -> '$'" * 300 + " = 1"),
    "paths": (
        lambda: "{" + '"\\u0061":1,' * (3 << 19) + '"b":1}',
        "json_extract(content, " + ", ".join(f"'$.k{i}'" for i in range(16)) + ") = ''",
    ),
    "many LIKE in max()": (lambda: "a" * (16 << 20), most(*["content LIKE '%aaaaaaaaaaaaaaab%'"] * 100)),
    "sets": (lambda: "a" * (4 << 20), most(*(f"content GLOB '*{'[a]' * 15}{c}*'" for c in LAST))),
    "computed patterns": (
        lambda: "a" * (32 << 20), " OR ".join(f"like('%' || '{'a' * 60}{c}', content)" for c in LAST),
    ),
    "deep": (array, "json(" * 45 + "content" + ")" * 45 + " = ''"),
    "joined": (lambda: "a" * (32 << 20), "content" + " || ''" * 400 + " = 'x'"),
    "upper in max()": (lambda: "a" * (16 << 20), most(*["upper(content)"] * 400)),
}  # fmt: skip


class Ticks:
    """A clock that goes on by a millisecond whenever it is looked at: what is slow looks often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return self.count / 1000


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """Make the filters use such a clock."""
    clock = Ticks()
    monkeypatch.setattr(fence_module, "thread_time", clock)
    return clock


@pytest.mark.parametrize("name", LONG_STEPS)
def test_a_large_event_takes_no_more_than_the_budget(
    fenced: Fenced, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds of an event, and what one function takes on some MiB: whatever a filter is made of."""
    monkeypatch.setattr(fence_module, "EVENT_SECONDS", 0.3)
    content, text = LONG_STEPS[name]
    fence = fenced(content())
    began = time.thread_time()
    try:
        assert ids(fence, text) == []
    except FilterError as error:
        assert "takes too long on event 1" in error.what  # noqa: PT017  or it is refused
    assert time.thread_time() - began < fence_module.EVENT_SECONDS + 3


@pytest.mark.parametrize("size", [1_000, 100_000, 8 << 20])
def test_a_computed_pattern_may_be_long_on_most_events(fenced: Fenced, size: int) -> None:
    """It has 64 bytes on events up to 16 MiB, also where the event is tested on its own."""
    text = f"content LIKE '%' || '{'b' * 63}'"
    assert ids(fenced("a" * size + "b" * 63, "a" * size), text) == [1]


@pytest.mark.parametrize("size", [500_000, 2_000_000])
def test_json_functions_compute_their_argument_once(fenced: Fenced, size: int) -> None:
    """Nine nested functions parse nine times, not 2^9 times."""
    fence = fenced("[" + "1," * size + "1]")
    assert ids(fence, NESTED) == []
    assert ids(fence, NESTED.replace("= ''", "LIKE '[1,1,%'")) == [1]


def test_each_json_guard_writes_its_argument_once() -> None:
    """The form that is compiled grows with the filter, not with two to the power of its depth."""
    texts = ["json(" * n + "lower(content)" + ")" * n for n in range(4, 10)]
    sizes = [len(guards.Guarded(Words(text)).sql) for text in texts]
    steps = {sizes[n + 1] - sizes[n] for n in range(5)}
    assert len(steps) == 1


def walked(
    fence: FilterSandbox, text: str, last: int, limit: int, room: int
) -> tuple[list[int], list[int]]:
    """Return the ids that pages have, upwards and, as lines, downwards."""
    up, at = [], 0
    while at < last:
        page, at = fence.page(text, at, last, limit, max_bytes=room)
        up += [row[0] for row in page]
    down, at = [], last
    while at > 0:
        page, at = fence.page(text, 0, at, limit, newest=True, lines=True, max_bytes=room)
        down += [json.loads(line)["id"] for _, line in page]
    return up, down


def test_large_events_among_small_ones_are_found_in_both_directions(fenced: Fenced) -> None:
    """Large events keep their order: no gap and no repeat at any page boundary."""
    large = "x" * (fence_module.LARGE + 1)
    kinds = ("even", "odd")
    rows = [("t", "self", kinds[i % 2], None, "x" if i % 5 else large) for i in range(1, 101)]
    fence = fenced(rows=rows)
    text = "lower(type) = 'even' AND content LIKE '%x'"
    wanted = list(range(2, 101, 2))
    for limit, room in ((1, 1 << 30), (7, 1 << 30), (1000, 1), (1000, 200_000), (1000, 1 << 30)):
        assert walked(fence, text, 100, limit, room) == (wanted, wanted[::-1])
    assert fence.tally(text, 0, 100, 99, None).count == 50
    assert fence.first(text, 8, 100) == 10


def test_whether_one_could_match_costs_little_on_anything(fenced: Fenced, ticks: Ticks) -> None:
    """A push's look at other filters ends at a large event, and after a time limit."""
    fence = fenced("[1]", array(), "a" * 60_000)
    assert fence.tally(NESTED, 0, 1, 1, 10) == Tally()
    assert fence.tally("json(content) = '[1]'", 0, 1, 1, 10).first == 1
    assert fence.tally("type = 'other'", 0, 3, 1, 10) == Tally()
    assert fence.tally("", 0, 3, 1, 10).first == 1
    assert fence.tally(NESTED, 1, 2, 1, 10) == Tally(whole=False)
    assert ticks.count < 20
    repeated = most(*["content LIKE '%aaaaaaaaaaaaaaab%'"] * 900)
    assert fence.tally(repeated, 2, 3, 1, 0.003) == Tally(whole=False)
    assert ticks.count < 40


def test_a_filter_of_others_delays_no_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: Ticks
) -> None:
    """A push is fast whatever the number of slow filters and the size of the event."""
    content = "[" + "1," * (4 << 20) + "1]"
    with eventq.open(tmp_path / "thread", create=True) as thread:
        for number in range(20):
            thread.subscribe(f"c{number}", "true", filter=f"{NESTED} AND id <> {number + 100}")
        started: list[int] = []
        monkeypatch.setattr(thread.notifier, "start", lambda: started.append(1))
        monkeypatch.setenv("EVENTQ_NOTIFIER", "builtin")
        ticks.count = 0
        thread.push("self", "note", content)
        assert ticks.count < 20  # not one a function of each filter
        assert started == [1]
        thread.push("self", "note", "[1]")
        assert started == [1]  # what is small is looked at


HARMLESS = [
    " OR ".join(f"length({'hex(' * 8}'{'a' * 1000}{i}'{')' * 8}) = 1" for i in range(50)),
    "length(" + "hex(" * 9 + "'" + "a" * 60_000 + "'" + ")" * 9 + ") = 1",
    "instr(content, content || 'b')",
    "instr(content, substr(content, 1, 4000000) || 'b')",
    "replace(content, substr(content, 1, 4000000) || 'b', '') = ''",
    "content LIKE '%a%a%a%a%a%a%a%b'",
    "content LIKE '%_a%_a%_a%_a%_a%b'",
    "content GLOB '*a*?*[b-z]*[^a]'",
    "content LIKE '%aaaaaaaaaaaaaaab%'",
    "json_extract(content, '$.a') = 1",
    " OR ".join(f"content LIKE '%{i}x%'" for i in range(200)),
]


@pytest.mark.parametrize("text", HARMLESS, ids=[text[:30] for text in HARMLESS])
def test_hard_work_is_done(big: FilterSandbox, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be quadratic, or asks much, is done in bounded time and gives its answer."""
    for name in ("WINDOW_SECONDS", "EVENT_SECONDS"):
        monkeypatch.setattr(fence_module, name, 60.0)  # of a machine that has other work, too
    assert ids(big, text) in ([], [2])


def test_what_a_slow_window_has_found_comes_once(
    fenced: Fenced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smaller windows find it again."""
    monkeypatch.setattr(fence_module, "WINDOW_SECONDS", -1.0)
    fence = fenced(rows=EVENTS[:1] * 300)
    assert [row[0] for row in fence.page("id > 1", 0, 300, 999)[0]] == [*range(2, 301)]


def test_slow_is_not_refused(fenced: Fenced, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow window is retried in smaller ones; only a single slow event refuses."""
    monkeypatch.setattr(fence_module, "STEPS", 1)
    monkeypatch.setattr(fence_module, "WINDOW_SECONDS", -1.0)
    fence = fenced(rows=EVENTS)
    assert [row[0] for row in fence.page("id > 1", 0, 6, 10)[0]] == [2, 3, 4, 5, 6]
    monkeypatch.setattr(fence_module, "EVENT_SECONDS", -1.0)
    with pytest.raises(FilterError, match="takes too long on event 1"):
        fence.page("CASE WHEN id THEN type > '' END", 0, 6, 10)


def test_computed_patterns_are_short(fence: FilterSandbox) -> None:
    """A computed pattern works while it is short, and is an error when it is long."""
    short = "source LIKE '%' || 'xy' || '%' OR source LIKE type || '%' OR source LIKE ('sel%')"
    assert ids(fence, short) == [1, 4, 5, 6]
    with pytest.raises(FilterError, match="too complex"):
        ids(fence, "content LIKE replace(hex(content), '7', '%')")
    long = "content LIKE '%abcdefgh ijklmnopqrstuvwxyz0123456789 and a long phrase to find%'"
    assert ids(fence, long) == []


def test_errors_of_the_store_pass(tmp_path: Path) -> None:
    """What is not the filter's fault is not reported as such."""

    def at(name: str) -> FilterSandbox:
        path = str(tmp_path / name)
        return FilterSandbox(lambda: apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))

    with apsw.Connection(str(tmp_path / "events.db")) as db:
        db.execute("CREATE TABLE other(x)")
    fence = at("events.db")
    assert fence.check("id = 1") == "id = 1"
    with pytest.raises(apsw.SQLError, match="no such table"):
        fence.page("id = 1", 0, 10, 10)
    fence.close()
    with pytest.raises(apsw.CantOpenError):
        at("none.db").check("id = 1")


# --- pages ----------------------------------------------------------------------------------------


def test_pages(tmp_path: Path, fenced: Fenced) -> None:
    """Pages follow each other in both directions without a gap or a repeat, whatever cuts them."""
    last = 4_000_000_000_000_000_000
    rows = [("t", "self", ("even", "odd")[i % 2], None, "x" * 100) for i in range(1, 25_001)]
    fence = fenced(rows=rows)
    with apsw.Connection(str(tmp_path / "events-0.db")) as db:
        db.execute("DELETE FROM events WHERE id BETWEEN 5000 AND 22000")
        db.execute("INSERT INTO events VALUES (?, 't', 'self', 'even', NULL, 'far')", (last,))
    wanted = [*range(2, 5000, 2), *range(22_002, 25_001, 2), last]
    assert walked(fence, "type = 'even'", last, 700, 50_000) == (wanted, wanted[::-1])
    assert fence.first("type = 'even'", 5000, last) == 22_002
    assert fence.first("type = 'even'", 25_000, last) == last
    assert fence.first("type = 'none'", 0, last) is None
    assert fence.page("type = 'none'", 0, last, 10) == ([], last)
    assert fence.page("type = 'none'", 7, last, 10, newest=True) == ([], 7)
    assert len(fence.page("", 0, last, 10, max_bytes=1)[0]) == 1


def test_lines(fence: FilterSandbox) -> None:
    """A line is the event's JSON with its six keys in order."""
    told = {"id": 3, **dict(zip(COLUMNS[1:], EVENTS[2], strict=True))}
    line = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    assert fence.page("id = 3", 0, 6, 10, lines=True) == ([(3, line)], 6)


def test_nothing_stays_open(tmp_path: Path, fenced: Fenced) -> None:
    """Between two calls no read transaction is open: a writer can truncate the log of writes."""
    fence = fenced(rows=EVENTS)
    writer = apsw.Connection(str(tmp_path / "events-0.db"))
    writer.pragma("journal_mode", "wal")
    sql = "INSERT INTO events(created_at, source, type, content) VALUES ('t', 's', 'record', 'c')"
    for limit, room in ((1, 1 << 20), (10, 1), (10, 1 << 20)):
        fence.page("type = 'record'", 0, 6, limit, max_bytes=room)
        fence.first("type = 'record'", 0, 6)
        fence.check("type = 'record'")
        writer.execute(sql)
        assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    writer.close()


def test_64_mib_is_read(fenced: Fenced) -> None:
    """An event of the largest size is filtered and read, as a row and as a line."""
    content = "\x01" * (64 << 20)
    fence = fenced(content)
    text = "content NOT LIKE '%x%' AND json_extract(content, '$.k') IS NULL"
    rows, _ = fence.page(text, 0, 1, 10)
    assert rows[0][5] == content
    lines, _ = fence.page(text, 0, 1, 10, lines=True)
    assert len(lines[0][1]) > 6 * len(content)


# --- random texts ---------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *COLUMNS, *sorted(FUNCTIONS), "events", ".", "(", ")", "(", ")", ",", "'a'", "'$.k'", "'%'", "1", "0x1f", "1e3",
        "=", "<", "||", "->", "->>", "-", "~", "AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "GLOB", "ESCAPE",
        "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "AS", "TEXT", "COLLATE", "NOCASE", "DISTINCT", "FROM", "SELECT",
        "word", "secret", "VALUES", "WITH", "UNION", ";", "--", "/*", "*/", "?", '"', "'", "[", "]", "`", "x'00'", "\0",
        "\ud800", "\u00e9", "json_each", "EXISTS", "ORDER BY", "LIMIT", "FILTER", "*", "CURRENT_DATE", "TRUE", "\n", "{}",
        "{", "}", "%s", "{0}",
    ]
)  # fmt: skip
SOUP = (
    st.lists(WORDS, max_size=25).map(" ".join)
    | st.lists(WORDS, max_size=8).map("".join)
    | st.text(max_size=40)
)
RELAXED = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@RELAXED
@given(SOUP)
def test_soup(fence: FilterSandbox, text: str) -> None:
    """Any text is a working filter or refused with a position, and sees no other table."""
    try:
        assert fence.check(text) == (text if text.strip(" \t\n\r\f") else "")
        rows, _ = fence.page(text, 0, 6, 10)
    except FilterError as error:
        assert 0 <= error.at <= len(text)  # noqa: PT017
        assert "hunter2" not in str(error)  # noqa: PT017
    else:
        assert all(row[1:] == EVENTS[row[0] - 1] for row in rows)


# SQLite's three-valued logic on small expressions, in Python.
TEXTS = ["self", "record", "message", "note", "", "it's", "a%b"]
LEAVES = st.tuples(
    st.sampled_from(COLUMNS),
    st.sampled_from(["=", "<>", "<", ">=", "IS", "IS NOT"]),
    st.integers(0, 7) | st.sampled_from(TEXTS),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=12,
)


def _write(tree: Any) -> str:
    if tree[0] == "not":
        return f"NOT ({_write(tree[1])})"
    if tree[0] in ("and", "or"):
        return f"({_write(tree[1])}) {tree[0]} ({_write(tree[2])})"
    value = str(tree[2]) if isinstance(tree[2], int) else "'" + tree[2].replace("'", "''") + "'"
    return f"{tree[0]} {tree[1]} {value}"


def _truth(tree: Any, row: dict[str, Any]) -> bool | None:
    if tree[0] == "not":
        inner = _truth(tree[1], row)
        return None if inner is None else not inner
    if tree[0] in ("and", "or"):
        both = {_truth(tree[1], row), _truth(tree[2], row)}
        decisive = tree[0] == "or"
        return decisive if decisive in both else None if None in both else not decisive
    return _compare(row[tree[0]], tree[1], tree[2], numeric=tree[0] == "id")


def _compare(left: Any, sign: str, right: Any, *, numeric: bool) -> bool | None:
    if left is None:
        return sign == "IS NOT" if sign.startswith("IS") else None
    # the column's affinity: a number becomes text beside a text column; a text that is no number is
    # above all numbers
    one, other = (
        (left, right if isinstance(right, int) else float("inf")) if numeric else (left, str(right))
    )
    if sign in ("<", ">="):
        return bool(one < other) == (sign == "<")
    return bool(one == other) == (sign in ("=", "IS"))


@RELAXED
@given(TREES)
def test_random_comparisons(fence: FilterSandbox, tree: Any) -> None:
    """Any tree of comparisons matches the events that a model in Python says it matches."""
    rows = [dict(zip(COLUMNS, (i, *event), strict=True)) for i, event in enumerate(EVENTS, 1)]
    assert ids(fence, _write(tree)) == [row["id"] for row in rows if _truth(tree, row)]


ATOMS = st.sampled_from(
    [
        *COLUMNS, *COLUMNS, "events.content", "'$.a'", "'k'", "'a'", "''", "'[1,2]'", "NULL", "'$'", "0", "1", "1.5", "x'61'",
    ]
)  # fmt: skip
UNARY = ["{}", "({})", "-{}", "NOT {}", "{} IS NULL", "{} COLLATE NOCASE", "lower({})", "hex({})", "trim({})", "length({})",
         "json({})", "json_type({})", "json_array_length({})", "CASE WHEN {} THEN content END", "typeof({})",
         "CAST({} AS TEXT)"]  # fmt: skip
BINARY = ["{} -> {}", "{} ->> {}", "{} || {}", "{} = {}", "{} < {}", "{} + {}", "{} AND {}", "{} OR {}", "{} LIKE {}",
          "{} IN ({}, 1)", "json_extract({}, {})", "instr({}, {})", "replace({}, {}, 'x')", "trim({}, {})", "ltrim({}, {})",
          "rtrim({}, {})", "coalesce({}, {})", "CASE {} WHEN {} THEN 1 ELSE content END", "max({}, {})"]  # fmt: skip
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds(lambda form, one: form.format(one), st.sampled_from(UNARY), inner)
        | st.builds(
            lambda form, one, two: form.format(one, two), st.sampled_from(BINARY), inner, inner
        )
    ),
    max_leaves=14,
)


@pytest.mark.parametrize("most", [guards.MAX_STEPS, -1])
@RELAXED
@given(text=EXPRESSIONS)
def test_rewriting_changes_errors_only(
    connect: Callable[[], apsw.Connection], most: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Where plain SQLite has a result, the rewritten filter agrees, with jumps and without."""
    monkeypatch.setattr(guards, "MAX_STEPS", most)
    fence = FilterSandbox(connect)
    sql = f"SELECT id FROM events WHERE id = ? AND (\n{text}\n)"
    db = connect()
    for number in range(1, len(EVENTS) + 1):
        try:
            wanted = db.execute(sql, (number,)).fetchall()
        except apsw.Error:
            continue
        try:
            found = fence.page(text, number - 1, number, 1)[0]
        except FilterError as error:
            assert any(text in error.what for text in ("pattern too complex", "bad JSON path"))  # noqa: PT017  computed
            continue
        assert [row[0] for row in found] == [row[0] for row in wanted]
    db.close()
    fence.close()


TIMED = {
    "created_at < strftime('%s', 'now', '-2 seconds')": True,
    "created_at < current_timestamp": True,
    "date() = date(created_at)": True,
    "unixepoch('subsec') > 3": True,
    "strftime('%s') > 3": True,
    "julianday('no' || 'w') > 3": True,
    "timediff(created_at, datetime('NOW')) > ''": True,
    "date(content) = '2026-01-01'": True,
    "date(created_at, '+1 day') > '2026-01-01'": False,
    "strftime('%H', created_at) = '10' AND content = 'now'": False,
    "timediff('2026-01-01', created_at) > ''": False,
    "type = 'now'": False,
}


@pytest.mark.parametrize("text", TIMED)
def test_filters_that_may_look_at_the_clock_are_known(fence: FilterSandbox, text: str) -> None:
    """A filter that depends on the current time is recognised as such."""
    assert fence.timed(text) is TIMED[text]


@pytest.mark.parametrize("value", [b"1", 1, 1.5, b""])
def test_a_filter_that_is_no_text_is_refused(fence: FilterSandbox, value: Any) -> None:
    """A BLOB or a number, as another tool may store it, is a FilterError."""
    with pytest.raises(FilterError, match="not text"):
        fence.page(value, 0, 6, 10)
    if value:
        with pytest.raises(FilterError, match="not text"):
            fence.check(value)


ODD_TIMES = [
    "created_at > datetime('now','-1 hour')",
    "datetime('now','-1 hour') < created_at",
    "(datetime('now')) < events.created_at",
    "created_at BETWEEN datetime('now','-2 hours') AND '2026'",
    "created_at NOT BETWEEN '2026' AND datetime('now')",
    "events.created_at >= (datetime('now'))",
    "type = 'x' AND \"created_at\" <= CURRENT_TIMESTAMP",
    "created_at > '2026-03-18 10:00:00'",
    "created_at > strftime('%Y-%m-%d %H:%M:%S','now')",
    "created_at > strftime('%s','now')",
    "created_at > unixepoch('now')",
    "created_at > julianday('now')",
    "NOT (created_at < datetime())",
    "created_at IS NOT datetime('now')",
    "CASE WHEN created_at < datetime('now') THEN 1 END",
]
EVEN_TIMES = [
    SPELLING + " < created_at",
    "created_at > strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour')",
    "created_at < strftime('%Y-%m-%dT%H:%M:%SZ','now')",
    "datetime(created_at) > datetime('now','-1 hour')",
    "julianday(created_at) < julianday('now')",
    "created_at > '2026-03-18T10:00:00.000Z'",
    "created_at >= '2026-03-18'",
    "created_at > date('now','-1 day')",
    "created_at LIKE '2026-03-18 %'",
    "created_at > replace(datetime('now','-1 hour'),' ','T')",
    "content > datetime('now')",
    "content > datetime('now') AND created_at > '2026'",
    "strftime('%Y', created_at) = '2025'",
    "substr(created_at,1,10) = date('now')",
    "replace(substr(created_at,1,19),'T',' ') > datetime('now')",
    "timediff(created_at, datetime('now')) > ''",
    "content || datetime('now') < created_at",
    "created_at IS NULL OR created_at NOT NULL",
    "id = 1",
    "",
]


@pytest.mark.parametrize("text", ODD_TIMES)
def test_a_time_in_another_spelling_is_warned_of(fence: FilterSandbox, text: str) -> None:
    """A comparison of created_at with SQLite's time format is accepted, with a hint."""
    fence.check(text)
    assert SPELLING in advice(text)


ALIKE = {
    "datetime('now')": "datetime(created_at)",
    "'2026-03-18 10:00'": "datetime(created_at)",
    "CURRENT_TIMESTAMP": "datetime(created_at)",
    "current_time": "time(created_at)",
    "time('now')": "time(created_at)",
    "julianday('now')": "julianday(created_at)",
    "unixepoch('now')": "unixepoch(created_at)",
    "strftime('%s','now')": "strftime('%s',created_at)",
    "strftime('%Y-%m-%d (%H)','now')": "strftime('%Y-%m-%d (%H)',created_at)",
}


@pytest.mark.parametrize("other", ALIKE)
def test_the_hint_compares_like_with_like(fence: FilterSandbox, other: str) -> None:
    """The other way out that the hint names is a filter, and nothing is to be said of it."""
    assert advice(f"created_at > {other}").endswith(f", or {ALIKE[other]} with it")
    fence.check(f"{ALIKE[other]} > {other}")
    assert advice(f"{ALIKE[other]} > {other}") == ""


@pytest.mark.parametrize("text", EVEN_TIMES)
def test_other_comparisons_are_not_warned_of(fence: FilterSandbox, text: str) -> None:
    """What compares like with like, or may be meant, is left alone."""
    fence.check(text)
    assert advice(text) == ""


def test_the_spelling_in_the_hint_is_that_of_events(tmp_path: Path) -> None:
    """An event of now is after an hour ago, and not after an hour from now, on whatever day."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        thread.push("self", "note", "x")
        assert len(list(thread.peek(filter=f"created_at > {SPELLING}"))) == 1
        assert list(thread.peek(filter=f"created_at > {SPELLING.replace('-1', '+1')}")) == []


@RELAXED
@given(SOUP)
def test_advice_on_soup(fence: FilterSandbox, text: str) -> None:
    """Whatever is accepted can be judged."""
    try:
        accepted = fence.check(text)
    except FilterError:
        return
    assert isinstance(advice(accepted), str)


def test_subscribing_warns_and_stores(tmp_path: Path) -> None:
    """The hint is a Python warning or a call of `warn`; raised, it prevents the subscription."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        with pytest.warns(UserWarning, match="spells times differently") as caught:
            thread.subscribe("a", "true", filter=ODD_TIMES[0])
        assert caught[0].filename == __file__
        told: list[str] = []
        thread.subscribe("b", "true", filter=ODD_TIMES[0], warn=told.append)
        assert len(told) == 1
        with pytest.raises(UserWarning):
            thread.subscribe("c", "true", filter=ODD_TIMES[0])
        thread.subscribe("d", "true", filter=EVEN_TIMES[0])
        assert [found.consumer_id for found in thread.subscriptions()] == ["a", "b", "d"]
