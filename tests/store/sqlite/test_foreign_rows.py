"""What other tools have put into the file, and what was changed there: read, refused, checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq import FilterError
from eventq.errors import DamagedError
from tests.contract.support import fill, found, mirror_lines
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT = "INSERT INTO events (created_at, source, type, content) VALUES ('', 's', 't', {})"
SUBSCRIBE = "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES ({}, {})"
FILTER = "INSERT INTO subscriptions VALUES ('v', 'true', {})"
ACK = f"{FILTER.format('NULL')}; INSERT INTO consumer_progress VALUES ({{}})"
STATE = f"{FILTER.format('NULL')}; INSERT INTO subscription_state ({{}}) VALUES ({{}})"
BAD_TEXT = ["x'61ff'", "CAST(x'61ff' AS TEXT)"]
TIMED = "created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 seconds')"


@pytest.fixture
def filled(path: str) -> str:
    """Return the path of a thread with five events, keys and a consumer, which is sound."""
    return fill(path)


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", BAD_TEXT)
def test_content_that_is_not_utf8(path: str, raw: apsw.Connection, value: str) -> None:
    """Reading it is a DamagedError, pushes go on, the mirror is whole, and a check names it."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "one")
        raw.execute(EVENT.format(value))
        assert thread.push("self", "note", "three").id == 3
        reads: list[Callable[[], Any]] = [
            thread.last,
            lambda: list(thread.peek()),
            lambda: list(thread.peek(filter="id > 0")),
        ]
        for read in reads:
            with pytest.raises(DamagedError, match="not UTF-8"):
                read()
        faults = thread.check()
        assert any(fault.startswith("event 2 ") for fault in faults)
        assert not any("events.jsonl" in fault for fault in faults)
        assert thread.rebuild_mirror() == 3
    assert "a\ufffd" in "".join(mirror_lines(path))
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "four").id == 4


@pytest.mark.parametrize("value", BAD_TEXT)
def test_a_mirror_that_ends_in_bad_text(path: str, raw: apsw.Connection, value: str) -> None:
    """A push goes on after the line of an event that is not UTF-8."""
    raw.execute(EVENT.format(value))
    with eventq.open(path) as thread:
        thread.rebuild_mirror()
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 2


def test_a_blob_that_is_text_is_read_as_text(path: str, raw: apsw.Connection) -> None:
    """Content that another tool stored as a BLOB is read as text, and a check names it."""
    raw.execute(EVENT.format("CAST('h\u00e9' AS BLOB)"))
    with eventq.open(path) as thread:
        events = [*thread.last(), *thread.peek(filter="id > 0")]
        assert [event.content for event in events] == ["h\u00e9"] * 2
        assert "event 1 has content that is not text" in thread.check()


def test_time_makes_an_event_match(path: str, raw: apsw.Connection) -> None:
    """A filter that looks at the clock leaves no watermark: what matches later is found later."""
    raw.execute(EVENT.format("'x'"))
    raw.execute("UPDATE events SET created_at = '2999-01-01'")
    with eventq.open(path) as thread:
        thread.subscribe("w", "true", filter=TIMED)
        assert not thread.consumers.due(thread.consumers.known("w"))
        assert thread.consumers.known("w").scanned == 0
        raw.execute("UPDATE events SET created_at = '2000-01-01'")
        assert thread.consumers.due(thread.consumers.known("w"))


@pytest.mark.parametrize("far", [10**6, 9 * 10**18])
def test_ids_that_another_tool_left_out_cost_nothing(
    filled: str, raw: apsw.Connection, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far on an event is, a push, a rebuilt mirror and a check step over the gap."""
    raw.execute(EVENT.format("'far'"))
    raw.execute("UPDATE events SET id = ?, created_at = '2026' WHERE id = 6", (far,))
    with eventq.open(filled) as thread:
        steps = []
        one = sqlite(thread.database).one

        def counted(sql: str, *given: Any) -> Any:
            steps.append(sql)
            return one(sql, *given)

        monkeypatch.setattr(thread.database, "one", counted)
        assert thread.push("self", "note", "x").id == far + 1
        for _ in range(2):
            assert thread.check() == []
            numbers = [line.split(",")[0] for line in mirror_lines(filled)]
            assert numbers == [f'{{"id":{number}' for number in (1, 2, 3, 4, 5, far, far + 1)]
            assert thread.rebuild_mirror() == 7
        assert len(steps) < 100


# --- consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["x'31'", "x'31ff'", "CAST(x'31ff' AS TEXT)", "CAST(x'2731ff27' AS TEXT)"]
)
def test_a_filter_that_is_not_text(path: str, raw: apsw.Connection, value: str) -> None:
    """A filter that is a BLOB or bad UTF-8 is refused, and harms no other consumer."""
    with eventq.open(path) as thread:
        thread.subscribe("good", "true")
        raw.execute(FILTER.format(value))
        thread.push("self", "note", "x")
        assert [one.consumer_id for one in thread.subscriptions()] == ["good", "v"]
        assert thread.consumers.due(thread.consumers.known("good"))
        with pytest.raises(FilterError):
            thread.consumers.due(thread.consumers.known("v"))
        for acked in (0, 1):
            with pytest.raises(FilterError):
                thread.pop("v", acked)
        good, bad = thread.status().consumers
        assert (good.pending, bad.pending, bad.updated_at) == (1, None, None)


def odd(who: str, what: str) -> list[str]:
    """Return the sentence that a check has for a consumer's row."""
    return [f"consumer '{who}' has {what}"]


NO_ID = "an id that is not text: delete its row"
NO_HANDLER = "a handler that is not text: unsubscribe it"
NO_NUMBER = "acked what is no number: ack again"
NO_FILTER = ["the filter of consumer 'v' is refused: the filter is not text"]
NOT_OURS = "a state that eventq does not write: subscribe it again"
NO_PROGRESS = "progress, but no id that is text: delete its row"
V = ("v", "true", None, 0)
# What was stored, what is shown of it (id, handler, filter, ack), and what a check says of it.
ODD_ROWS: dict[str, tuple[str, tuple[Any, ...], list[str]]] = {
    "a BLOB as id": (
        SUBSCRIBE.format("x'41ff'", "'true'"),
        ("x'41ff'", "true", None, 0),
        odd("x'41ff'", NO_ID),
    ),
    "a BLOB that reads like another id": (
        SUBSCRIBE.format("x'77'", "'true'"),
        ("x'77'", "true", None, 0),
        odd("x'77'", NO_ID),
    ),
    "an id that is not UTF-8": (
        SUBSCRIBE.format("CAST(x'41ff' AS TEXT)", "'true'"),
        ("x'41ff'", "true", None, 0),
        odd("x'41ff'", NO_ID),
    ),
    "an empty id": (
        SUBSCRIBE.format("''", "'true'"),
        ("", "true", None, 0),
        odd("", "an empty id: delete its row"),
    ),
    "an integer as id": (SUBSCRIBE.format("5", "'true'"), ("5", "true", None, 0), []),
    "a BLOB as handler": (
        SUBSCRIBE.format("'v'", "x'74ff'"),
        ("v", "t\ufffd", None, 0),
        odd("v", NO_HANDLER),
    ),
    "a handler that is not UTF-8": (
        SUBSCRIBE.format("'v'", "CAST(x'74ff' AS TEXT)"),
        ("v", "t\ufffd", None, 0),
        odd("v", NO_HANDLER),
    ),
    "an integer as handler": (SUBSCRIBE.format("'v'", "7"), ("v", "7", None, 0), []),
    "a BLOB as filter": (FILTER.format("x'31ff'"), ("v", "true", "1\ufffd", 0), NO_FILTER),
    "a filter that is not UTF-8": (
        FILTER.format("CAST(x'31ff' AS TEXT)"),
        ("v", "true", "1\ufffd", 0),
        NO_FILTER,
    ),
    "an ack that is no number": (ACK.format("'v', 'abc', '2026'"), V, odd("v", NO_NUMBER)),
    "an ack that is a BLOB": (
        ACK.format("'v', x'33', '2026'"),
        ("v", "true", None, 3),
        odd("v", NO_NUMBER),
    ),
    "an ack at a time that is not text": (
        ACK.format("'v', 3, x'ff'"),
        ("v", "true", None, 3),
        odd("v", "a time of its last ack that is not text: ack again"),
    ),
    "progress of a BLOB": (ACK.format("x'ff', 3, '2026'"), V, odd("x'ff'", NO_PROGRESS)),
    "an ack of a BLOB that is too high": (
        ACK.format("x'41ff', 99, '2026'"),
        V,
        [
            *odd("x'41ff'", NO_PROGRESS),
            *odd("x'41ff'", "acked 99, but the newest event is 5"),
        ],
    ),
    "a watermark that is no number": (
        STATE.format("consumer_id, scanned_id, scanned_filter", "'v', 'y', ''"),
        V,
        odd("v", NOT_OURS),
    ),
    "a state of a BLOB": (
        STATE.format("consumer_id, attempts", "x'41ff', 1"),
        V,
        odd("x'41ff'", NOT_OURS),
    ),
    "a state that is no number": (
        STATE.format("consumer_id, attempts, scanned_id", "'v', 'x', 'y'"),
        V,
        odd("v", NOT_OURS),
    ),
}


@pytest.mark.parametrize("what", ODD_ROWS)
def test_rows_of_other_tools_are_shown_and_named(
    filled: str, raw: apsw.Connection, what: str
) -> None:
    """`info` shows what other tools have stored, `check` names it, and all others go on."""
    sql, shown, sentences = ODD_ROWS[what]
    raw.execute(sql)
    stalled = {"": "its consumer id is empty"}.get(shown[0])
    if sentences and NO_ID in sentences[0]:
        stalled = "its consumer id is not text"
    for read_only in (True, False):
        with eventq.open(filled, read_only=read_only) as thread:
            first, other = thread.status().consumers
            assert (first.consumer_id, first.last_acked_id) == ("w", 2)
            row = (other.consumer_id, other.handler_cmd, other.filter, other.last_acked_id)
            assert row == shown
            assert (other.attempts, other.max_attempts, other.timeout) == (0, 5, None)
            if stalled or (other.stalled or "").startswith("its consumer id"):
                assert other.stalled == stalled
            assert [known.consumer_id for known in thread.subscriptions()] == ["w", shown[0]]
            assert thread.check() == sentences
    with eventq.open(filled) as thread:
        thread.push("self", "note", "x")
        assert [event.id for event in thread.pop("w", 2)] == [3, 4, 5, 6]


def test_a_note_after_an_unsubscribe_leaves_nothing(path: str, raw: apsw.Connection) -> None:
    """A supervisor that notes attempts or a stall of a consumer that has gone makes no row."""
    with eventq.open(path) as thread:
        thread.subscribe("w", "true")
        state = thread.consumers.known("w")
        thread.unsubscribe("w")
        thread.consumers.note_attempts(state, 1)
        thread.consumers.stall(state, "late")
    assert raw.execute("SELECT count(*) FROM subscription_state").fetchall() == [(0,)]


# --- what a check finds ---------------------------------------------------------------------------


def event(number: int, at: str, source: str, type_: str, content: str) -> str:
    """Return SQL that stores an event."""
    return f"INSERT INTO events VALUES ({number}, {at}, {source}, {type_}, NULL, {content})"


SCANNED = "UPDATE subscription_state SET scanned_after = 2, scanned_id = 4"
PROGRESS = "UPDATE consumer_progress SET last_acked_id = "
SESSION = (
    "INSERT INTO sessions (session_id, name, generation, tool, digest, lines, created_at_ms,"
    " updated_at_ms) VALUES (1, 's', 1, 'plain', x'00', 2, 0, 0)"
)
LEASED = (
    "INSERT INTO queues (queue_id, consumer_id, frontier, acked, unfinished, expires_at)"
    " VALUES (1, 'q', 1, 0, 1"
)
LEASE = (
    "INSERT INTO unfinished VALUES (1, 0, 1, 0, 1, 0, 7, 5, 2, x'00', 'w', NULL, NULL, NULL, NULL)"
)
FAULTS: list[tuple[str, str]] = [
    (event(0, "''", "'s'", "'t'", "''"), "event 0 has an id below 1"),
    (event(-7, "''", "'s'", "'t'", "''"), "event -7 has an id below 1"),
    (event(6, "''", "'s'", "'t'", "x'00'"), "event 6 has content that is not text"),
    (event(6, "''", "''", "'t'", "''"), "event 6 has no source"),
    (event(6, "''", "x'00'", "'t'", "''"), "event 6 has no source"),
    (event(6, "''", "'s'", "''", "''"), "event 6 has no type"),
    (event(6, "''", "'s'", "x'00'", "''"), "event 6 has no type"),
    (event(6, "x'00'", "'s'", "'t'", "''"), "event 6 has no time"),
    (f"{PROGRESS} 6", "consumer 'w' has acked 6, but the newest event is 5"),
    (f"{PROGRESS} -1", "consumer 'w' has acked -1, but the newest event is 5"),
    ("DELETE FROM events WHERE id = 1", "key 'k1' names event 1, which is not stored"),
    ("INSERT INTO event_keys VALUES ('x', 99)", "key 'x' names event 99, which is not stored"),
    (
        "INSERT INTO event_keys VALUES (x'41ff', 99)",
        "key 'x'41ff'' names event 99, which is not stored",
    ),
    (
        f"{SCANNED}, scanned_filter = 'type = ''note'''",
        "consumer 'w' would skip event 3: its watermark is 4",
    ),
    (
        "UPDATE subscriptions SET filter = 'nonsense = 1'",
        "the filter of consumer 'w' is refused: the filter does not work: no such column: nonsense",
    ),
    (
        "INSERT INTO event_blob_refs VALUES (99, zeroblob(32))",
        "event 99 keeps blobs, and is not stored",
    ),
    (
        f"{LEASED}, NULL); {LEASE}",
        "consumer 'q' would miss the end of the lease of event 1",
    ),
    (
        f"{LEASED}, 8); {LEASE}",
        "consumer 'q' would miss the end of the lease of event 1",
    ),
    (
        SESSION,
        "session s counts 2 lines, but has 0",
    ),
]


def test_the_key_of_an_event_that_others_deleted_is_free(path: str, raw: apsw.Connection) -> None:
    """There is nothing that a push could return for it."""
    with eventq.open(path) as opened:
        opened.push("self", "note", "x", key="k")
        raw.execute("DELETE FROM events")
        new = {"source": "self", "type": "note", "content": "y", "key": "k"}
        assert opened.push_many([new, new]) == (1, 2, 2)
        assert opened.check() == []


@pytest.mark.parametrize(("sql", "sentence"), FAULTS)
def test_each_fault_of_the_log_is_said(
    filled: str, raw: apsw.Connection, sql: str, sentence: str
) -> None:
    """Each broken invariant of the log has its one sentence."""
    raw.execute(sql)
    assert found(filled) == [sentence]


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END"
OBJECTS = {
    TRIGGER: ["trigger 't' on 'events'"],
    "CREATE VIEW v AS SELECT 1": ["view 'v'"],
    "CREATE VIEW v AS SELECT * FROM nowhere": ["view 'v'"],
    "CREATE TABLE mine (x UNIQUE)": ["table 'mine'"],
    "CREATE INDEX i ON events (type)": ["index 'i' on 'events'"],
    "CREATE INDEX idx_events_type ON subscriptions (handler_cmd)": [
        "index 'idx_events_type' on 'subscriptions'"
    ],
    "CREATE VIRTUAL TABLE r USING rtree (id, a, b)": [
        "table 'r'", "table 'r_node'", "table 'r_parent'", "table 'r_rowid'",
    ],
}  # fmt: skip


@pytest.mark.parametrize("sql", OBJECTS)
@pytest.mark.parametrize("made_by", ["eventq", "the older tool"])
def test_check_names_what_others_have_put_into_the_file(
    filled: str, original: str, made_by: str, sql: str
) -> None:
    """A trigger, view, table or index that is not eventq's has its sentence."""
    path = filled if made_by == "eventq" else original
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("DROP INDEX IF EXISTS idx_events_type")
    raw.execute(sql)
    raw.close()
    faults = found(path, read_only=True)
    assert sorted(text for text in faults if "mirror" not in text and "event " not in text) == [
        f"the database has a {name} that is not eventq's: drop it" for name in OBJECTS[sql]
    ]


def test_check_accepts_what_sqlite_and_the_older_tool_make(original: str) -> None:
    """Statistics, counters and the indexes of constraints and of the older tool are no faults."""
    raw = apsw.Connection(os.path.join(original, "events.db"))
    raw.execute("ANALYZE")
    raw.close()
    assert (found(original, read_only=True), found(original)) == ([], [])


NOT_OUR_COLUMN = "the table 'pins' has a column 'x' that is not eventq's"
CHANGES = {
    "DROP TRIGGER turns_are_immutable": (
        "the database lacks its trigger 'turns_are_immutable': restore a backup"
    ),
    "DROP INDEX turns_by_blob": ("the database lacks its index 'turns_by_blob': restore a backup"),
    "DROP INDEX turns_by_blob; CREATE INDEX turns_by_blob ON turns (flags)": (
        "the index 'turns_by_blob' is not the one that eventq made: restore a backup"
    ),
    "ALTER TABLE pins ADD COLUMN x": NOT_OUR_COLUMN,
    "ALTER TABLE pins ADD COLUMN x AS (1)": NOT_OUR_COLUMN,
    "DELETE FROM sqlite_sequence": "the newest event is 5, but the counter of ids is at None",
    "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'events'; DELETE FROM consumer_progress": (
        "the newest event is 5, but the counter of ids is at 2"
    ),
}


@pytest.mark.parametrize("sql", CHANGES)
def test_check_names_what_was_changed_or_lost(filled: str, raw: apsw.Connection, sql: str) -> None:
    """What eventq made and is not there any more, or is another one, has its sentence."""
    raw.execute(sql)
    assert CHANGES[sql] in found(filled)


def test_check_says_what_sqlite_says(filled: str, raw: apsw.Connection) -> None:
    """What SQLite's own check finds is passed on."""
    raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    raw.execute("PRAGMA writable_schema = ON").fetchall()
    for was in ("subtype TEXT", "subtype    TEXT"):
        raw.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, ?, 'subtype TEXT NOT NULL')"
            " WHERE name = 'events'",
            (was,),
        )
    raw.pragma("schema_version", raw.pragma("schema_version") + 1)
    assert found(filled) == ["the database is damaged: NULL value in events.subtype"] * 5
