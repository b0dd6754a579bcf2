"""`thread.sql` runs one SELECT of somebody's and nothing else, beside writers, within bounds.

The kind: a statement does more than read, takes more than its share, or shows what is not so. Its
members, each tried here: changes of rows, tables, files, pragmas and transactions; a second
statement behind a comment, a NUL or a limit; extensions; a result, a value or a recursion without
an end; text that is not UTF-8 or has no encoding; names of columns that occur twice, and thousands
of them; values that do not fit; a handle that may only read, with and without a WAL; a commit in
the middle; `write`; another SQLite in the process; a closed thread and a fork.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import (
    ClosedError,
    DamagedBlobError,
    DamagedError,
    InputError,
    LogicError,
    TooLargeError,
    UnsupportedError,
    UsageError,
)
from eventq.system import clock
from tests.running import is_killed

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from tests.conftest import RunPython

pytestmark = pytest.mark.usefixtures("quick")

VIEWS = [
    "v_artifacts", "v_claims", "v_consumers", "v_contexts", "v_dead_letters", "v_outputs", "v_runs",
    "v_turns",
]  # fmt: skip
ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "


def files(path: str) -> dict[str, tuple[int, bytes]]:
    """Return time and bytes of all files below a folder, but for the shared memory."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            if not name.endswith("-shm"):
                file = Path(folder, name)
                found[str(file)] = (file.stat().st_mtime_ns, file.read_bytes())
    return found


def test_rows_are_dictionaries(thread: eventq.Thread) -> None:
    """Rows are a list of dictionaries by column; there are columns without rows, too."""
    thread.push_many([("self", "note", "one"), ("self", "record", "two")])
    rows = thread.sql("SELECT id, content FROM events ORDER BY id")
    assert rows == [{"id": 1, "content": "one"}, {"id": 2, "content": "two"}]
    assert (rows.columns, rows.more) == (("id", "content"), False)
    assert thread.sql("SELECT id FROM events WHERE 0").columns == ("id",)
    assert thread.sql("VALUES (1, NULL)") == [{"column1": 1, "column2": None}]
    assert thread.sql("SELECT 1.5 AS a, x'00ff' AS b, 'ä' || char(0) AS c") == [
        {"a": 1.5, "b": b"\x00\xff", "c": "ä\0"}
    ]
    assert "events" in thread.sql("EXPLAIN QUERY PLAN SELECT * FROM events")[0]["detail"]  # type: ignore[operator]
    assert thread.sql("/* a */ WITH a AS (SELECT 1 AS n) SELECT n FROM a; -- ;\n ;") == [{"n": 1}]


def test_values_are_bound(thread: eventq.Thread) -> None:
    """Values stand for `?` in order, or for names; what is in them is never SQL."""
    thread.push("self", "note", "' OR 1 --")
    assert thread.sql("SELECT id FROM events WHERE content = ?", ["' OR 1 --"]) == [{"id": 1}]
    named: dict[str, Any] = {"least": 0, "type": "note", "unused": 1}
    assert thread.sql("SELECT id FROM events WHERE id > :least AND type = @type", named)
    assert thread.sql("SELECT ? AS a, ? AS b, ? AS c", (None, b"\0", 2**63 - 1)) == [
        {"a": None, "b": b"\0", "c": 2**63 - 1}
    ]


@pytest.mark.parametrize(
    ("text", "values", "says"),
    [
        ("SELECT ?", (), "uses 1 and there are 0"),
        ("SELECT ?", (1, 2), "uses 1 and there are 2"),
        ("SELECT :id", {}, "there is no value for :id"),
        ("SELECT ?", {"id": 1}, "has no name"),
        ("SELECT ?", [object()], "type object"),
        ("SELECT ?", [1 << 63], "too big"),
        ("SELECT ?", ["\ud800"], "unpaired surrogate"),
        ("SELECT '\ud800'", (), "unpaired surrogate"),
    ],
)
def test_values_that_do_not_fit(thread: eventq.Thread, text: str, values: Any, says: str) -> None:
    """Missing, surplus and strange values are refused, and say which statement they are for."""
    with pytest.raises(InputError, match=says):
        thread.sql(text, values)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO events (source, type, content) VALUES ('a', 'b', 'c')",
        "INSERT INTO events (source, type, content) VALUES ('a', 'b', 'c') RETURNING id",
        "WITH a AS (SELECT 1) DELETE FROM events",
        "UPDATE events SET content = ''",
        "REPLACE INTO consumer_progress VALUES ('a', 9, '')",
        "EXPLAIN DELETE FROM events",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE TEMP VIEW t AS SELECT 1",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "DROP TABLE events",
        "DROP VIEW v_turns",
        "ALTER TABLE events ADD COLUMN more",
        "ATTACH 'other.db' AS other",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO 'other.db'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s0",
        "RELEASE s0",
        "PRAGMA user_version = 9",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA query_only = 0",
        "PRAGMA trusted_schema = 1",
        "PRAGMA writable_schema = 1",
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA temp_store_directory = '.'",
        "PRAGMA optimize",
        "PRAGMA incremental_vacuum(1)",
        "SELECT load_extension('other.so')",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM events",
        "SELECT 1 +",
        "SELECT json('{')",
        "nonsense",
        "SELECT 1; SELECT 2",
        "SELECT 1; nonsense",
        "SELECT 1; DELETE FROM events",
        "SELECT 1; /* */ -- \n DELETE FROM events",
        "SELECT 1\0; DELETE FROM events",
        "-- nothing",
        " ; ; ",
    ],
)
def test_what_only_reads_is_run(path: str, text: str, tmp_path: Path) -> None:
    """Anything else is a usage error with SQLite's words or a reason, and changes no file."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "kept")
    before = files(str(tmp_path))
    with eventq.open(path) as thread:
        for limit in (None, 1):
            with pytest.raises(UsageError) as caught:
                thread.sql(text, limit=limit)
            assert len(str(caught.value).splitlines()) == 1
            assert " - " in str(caught.value)
        assert files(str(tmp_path)) == before
        assert [event.content for event in thread.peek(0)] == ["kept"]
    assert not os.path.exists("other.db")


def test_pragmas_that_only_tell(thread: eventq.Thread) -> None:
    """What describes tables may be asked for, as a pragma or as a table."""
    assert thread.sql("PRAGMA table_info(events)")[0]["name"] == "id"
    assert thread.sql("SELECT count(*) AS n FROM pragma_index_list('turns')")[0]["n"]
    assert thread.sql("PRAGMA journal_mode") == [{"journal_mode": "wal"}]
    assert thread.sql("PRAGMA quick_check") == [{"quick_check": "ok"}]


def test_a_limit_says_that_there_is_more(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit ends an endless result; without one, too large a result is refused, not cut."""
    rows = thread.sql(ENDLESS + "x FROM c", limit=3)
    assert ([row["x"] for row in rows], rows.more) == ([1, 2, 3], True)
    assert not thread.sql("VALUES (1), (2)", limit=2).more
    monkeypatch.setattr("eventq.store.sqlite.queries.ROOM", 10_000)
    rows = thread.sql(ENDLESS + "x, zeroblob(3000) FROM c", limit=100)
    assert (len(rows), rows.more) == (3, True)
    assert len(thread.sql("SELECT zeroblob(90000)", limit=1)) == 1  # a row is never too large
    with pytest.raises(TooLargeError, match="the result is too large"):
        thread.sql(ENDLESS + "x FROM c")
    with pytest.raises(InputError, match="substr"):
        thread.sql("SELECT zeroblob(1000000000)")


@pytest.mark.parametrize(
    "what", ["max(x) FROM c", "x FROM c ORDER BY x DESC", "x FROM c WHERE x < 0"]
)
def test_a_statement_that_never_ends(thread: eventq.Thread, what: str) -> None:
    """It is ended after the timeout, and the thread goes on."""
    with pytest.raises(LogicError, match=r"took longer than 0\.05 s"):
        thread.sql(ENDLESS + what, timeout=0.05)
    assert thread.push("self", "note", "on").id == 1


@pytest.mark.parametrize(
    ("what", "result"),
    [
        ("instr(a, substr(a, 1, 15000000) || 'b')", 0),
        ("length(replace(a, substr(a, 1, 15000000) || 'b', ''))", 30_000_000),
        ("length(trim(a, substr(a, 1, 9000000) || 'b'))", 0),
        ("hex(NULL)", ""),
        ("replace('abc', 'b', NULL)", None),
    ],
)
def test_one_function_that_never_ends(thread: eventq.Thread, what: str, result: object) -> None:
    """What takes the square of the time in SQLite does not here, as no timeout would end it."""
    sql = f"WITH t AS MATERIALIZED (SELECT printf('%.*c', 30000000, 'a') AS a) SELECT {what} AS r"
    assert thread.sql(f"{sql} FROM t") == [{"r": result}]


def test_patterns_without_an_end(thread: eventq.Thread) -> None:
    """A long pattern of LIKE is refused; what people write is not."""
    sql = "SELECT printf('%.*c', 3000000, 'a') LIKE ? AS r"
    assert thread.sql(sql, ["%" + "a" * 400]) == [{"r": 1}]
    with pytest.raises(UsageError, match="pattern too complex"):
        thread.sql(sql, ["%" + "_a%" * 200 + "b"])


def test_columns_have_names_of_their_own(thread: eventq.Thread) -> None:
    """A name that occurs again is numbered, and there may be thousands of columns."""
    assert thread.sql("SELECT 1 AS a, 2 AS a, 3 AS a") == [{"a": 1, "a:1": 2, "a:2": 3}]
    wide = thread.sql("SELECT " + ", ".join(f"{n} AS c{n}" for n in range(2_000)))
    assert len(wide[0]) == 2_000
    with pytest.raises(UsageError, match="too many columns"):
        thread.sql("SELECT " + ", ".join(["1"] * 3_000))


def test_text_that_is_not_utf8(path: str, raw: apsw.Connection) -> None:
    """It says how to read it, and that works."""
    raw.execute(
        "INSERT INTO events (source, type, content) VALUES ('a', 'b', CAST(x'61ff' AS TEXT))"
    )
    with eventq.open(path, read_only=True) as thread:
        with pytest.raises(DamagedError, match="CAST"):
            thread.sql("SELECT content FROM events")
        assert thread.sql("SELECT CAST(content AS BLOB) AS c FROM events") == [{"c": b"a\xff"}]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.sql(b"SELECT 1"),
        lambda t: t.sql("SELECT ?", "text"),
        lambda t: t.sql("SELECT 1", limit=0),
        lambda t: t.sql("SELECT 1", limit="5"),
        lambda t: t.sql("SELECT 1", timeout=0),
        lambda t: t.sql("SELECT 1", timeout=math.nan),
        lambda t: t.sql("SELECT 1", timeout=None),
        lambda t: t.sql("SELECT ?", 5),
    ],
)
def test_calls_that_are_wrong(thread: eventq.Thread, call: Callable[[Any], object]) -> None:
    """A statement is text, values are several, bounds are positive."""
    with pytest.raises(UsageError):
        call(thread)


# --- what is there to be read ---------------------------------------------------------------------


def test_the_tables_are_listed(thread: eventq.Thread) -> None:
    """Without a statement: the tables that anybody looks for first, views, and all others."""
    found = thread.sql()
    assert [row["name"] for row in found][:11] == [
        "consumer_progress", "events", "subscriptions", *VIEWS,
    ]  # fmt: skip
    assert found[1] == {
        "name": "events",
        "type": "table",
        "columns": "id, created_at, source, type, subtype, content",
    }
    tables = {row["name"] for row in thread.sql("SELECT name FROM sqlite_schema")}
    assert {row["name"] for row in found if row["type"] == "table"} <= tables


def test_every_view_shows_what_the_library_does(thread: eventq.Thread) -> None:
    """Turns with patches and erasures, contexts, runs, queues, artifacts and outputs."""
    context = thread.contexts.create("main")
    turns = [context.append(f"turn {number}") for number in range(3)]
    binary = context.append(b"\xff\x00")
    thread.contexts.patch(turns[1].turn_id, b"patched")
    thread.contexts.tombstone(turns[2].turn_id)
    shown = thread.sql("SELECT * FROM v_turns ORDER BY turn_id")
    assert [row["payload"] for row in shown] == ["turn 0", "patched", None, b"\xff\x00"]
    assert [row["patched"] for row in shown] == [0, 1, 1, 0]
    for row, turn in zip(shown, [*turns, binary], strict=True):
        assert row["created_at"] == clock.stamp((turn.created_at_ms + 0.5) / 1000)
        assert (row["type"], row["depth"]) == (turn.type_id, turn.depth)
    assert [(r["name"], r["turns"]) for r in thread.sql("SELECT * FROM v_contexts")] == [
        ("main", 4)
    ]
    thread.erasures.turn(turns[0].turn_id)
    (gone,) = thread.sql("SELECT payload FROM v_turns WHERE turn_id = ?", [turns[0].turn_id])
    assert "turn 0" not in str(gone["payload"])
    long = b"long line\n" * 300_000
    assert thread.sql("SELECT payload(?) AS p", [thread.blobs.put(long).ref]) == [
        {"p": long.decode()}
    ]
    run = thread.runs.start("job", "self", label="one")
    run.end()
    (row,) = thread.sql("SELECT * FROM v_runs")
    info = run.info()
    assert (row["run_id"], row["name"], row["label"], row["status"], row["depth"], row["group"]) == (
        info.run_id, info.name, info.label, "completed", info.depth, info.group,
    )  # fmt: skip
    thread.artifacts.put(b"out", tool="sh")
    thread.outputs.publish("0-Scout", "found")
    assert thread.sql("SELECT url, tool, size FROM v_artifacts") == [
        {"url": "artifact://0", "tool": "sh", "size": 3}
    ]
    assert thread.sql("SELECT url, payload FROM v_outputs") == [
        {"url": "agent://0-Scout", "payload": "found"}
    ]


def test_the_views_of_queues(thread: eventq.Thread) -> None:
    """Consumers, what is leased to whom, and what failed for good with its event."""
    thread.push_many([("self", "note", f"n{number}") for number in range(3)])
    thread.subscribe("jobs", filter="type = 'note'", max_attempts=1)
    thread.subscribe("loop", "true")
    one, two = thread.claim("jobs", 2, worker="me")
    one.dead("why")
    assert thread.sql("SELECT consumer_id, event_id, state, worker FROM v_claims") == [
        {"consumer_id": "jobs", "event_id": two.event.id, "state": "leased", "worker": "me"}
    ]
    assert thread.sql("SELECT consumer_id, event_id, error, content FROM v_dead_letters") == [
        {"consumer_id": "jobs", "event_id": 1, "error": "why", "content": "n0"}
    ]
    sql = "SELECT consumer_id, kind, handler, filter, dead FROM v_consumers ORDER BY consumer_id"
    assert [tuple(row.values()) for row in thread.sql(sql)] == [
        ("jobs", "pull", None, "type = 'note'", 1),
        ("loop", "loop", "true", None, 0),
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_empty_at_first(thread: eventq.Thread, view: str) -> None:
    """Each view can be read where there is nothing to be seen."""
    assert thread.sql(f"SELECT * FROM {view}") == []


def test_payload_of_what_is_no_blob(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """NULL and a hash of nothing are NULL; what is no hash is refused; damage is said."""
    sql = "SELECT payload(?) AS p"
    assert thread.sql(sql, [None]) == thread.sql(sql, [bytes(32)]) == [{"p": None}]
    with pytest.raises(InputError, match="names no blob"):
        thread.sql(sql, ["x"])
    blob = thread.blobs.put(b"sound")
    assert thread.sql(sql, [blob.hash]) == [{"p": "sound"}]
    raw.execute("UPDATE blob_bytes SET bytes = x'00'")
    with pytest.raises(DamagedBlobError):
        thread.sql(sql, [blob.ref])
    thread.blobs.put(b"sound")  # which heals it


def test_payloads_beyond_a_bound(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob that is larger than a statement may hold is refused before it is read."""
    monkeypatch.setattr("eventq.memory.payloads.MOST", 4)
    ref = thread.blobs.put(b"12345").ref
    with pytest.raises(TooLargeError, match="5 bytes"):
        thread.sql("SELECT payload(?)", [ref])


# --- beside others --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["closed", "beside a writer", "a WAL alone", "original"])
def test_who_may_only_read(path: str, original: str, state: str, tmp_path: Path) -> None:
    """A read-only handle reads in every state of the files, and makes and changes none."""
    place = path
    with eventq.open(path) as writer:
        writer.push("self", "note", "one")
        if state == "original":
            place = original
        elif state == "a WAL alone":
            place = str(shutil.copytree(path, tmp_path / "copy"))
            os.unlink(f"{place}/events.db-shm")
        elif state == "closed":
            writer.close()
        before = files(place)
        with eventq.open(place, read_only=True) as thread:
            assert thread.sql("SELECT count(*) AS n FROM events")[0]["n"] == len([*thread.peek(0)])
            assert "events" in {row["name"] for row in thread.sql()}
            with pytest.raises(UsageError):
                thread.sql("DELETE FROM events")
        assert files(place) == before


def test_a_commit_in_the_middle(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers do not wait for a statement, which goes on to see what was there when it began."""

    def push(_: object) -> int:
        return thread.push("self", "note", "meanwhile").id

    monkeypatch.setattr("eventq.memory.payloads.payload_of", lambda _: push)
    sql = "SELECT payload(value) AS id, (SELECT count(*) FROM events) AS n FROM json_each('[1, 2]')"
    assert thread.sql(sql) == [{"id": 1, "n": 0}, {"id": 2, "n": 0}]
    assert thread.last_id() == 2


def test_inside_write(thread: eventq.Thread) -> None:
    """Inside `write`, a statement sees what is committed, and the transaction goes on."""
    thread.push("self", "note", "before")
    with thread.write():
        thread.push("self", "note", "inside")
        assert thread.sql("SELECT count(*) AS n FROM events") == [{"n": 1}]
        thread.push("self", "note", "inside")
    assert thread.sql("SELECT count(*) AS n FROM events") == [{"n": 3}]


def test_no_lock_is_released(thread: eventq.Thread, run_python: RunPython) -> None:
    """What is pushed after a statement is seen by others, whatever they do to the WAL meanwhile."""
    look = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/events.db")
print(db.execute("SELECT count(*) FROM events").fetchone()[0])
db.close()
"""
    for number in range(1, 4):
        thread.push("self", "note", "x")
        assert thread.sql("SELECT count(*) AS n FROM events") == [{"n": number}]
        wal = os.stat(f"{thread.path}/events.db-wal").st_ino
        assert int(run_python(look, thread.path)) == number
        assert os.stat(f"{thread.path}/events.db-wal").st_ino == wal


def test_after_another_sqlite_in_the_process(thread: eventq.Thread) -> None:
    """A statement goes on with the files at the path, as pushes do."""
    for number in range(1, 4):
        thread.push("self", "note", "x")
        db = sqlite3.connect(f"{thread.path}/events.db")
        db.execute("SELECT count(*) FROM events").fetchone()
        db.close()
        assert thread.sql("SELECT count(*) AS n FROM events") == [{"n": number}]


def test_after_close_and_in_a_fork(thread: eventq.Thread, path: str) -> None:
    """A closed thread and one that a fork has inherited are refused, each in its own words."""
    closed = eventq.open(path)
    closed.close()
    with pytest.raises(ClosedError, match="the thread is closed"):
        closed.sql("SELECT 1")

    def ask() -> None:
        with pytest.raises(ClosedError):
            thread.sql("SELECT 1")

    assert not is_killed(ask)
    assert thread.sql("SELECT 1 AS a") == [{"a": 1}]


@pytest.mark.engines("postgres")
def test_a_thread_in_postgresql(thread: eventq.Thread) -> None:
    """Its tables are for psql, which the error names."""
    with pytest.raises(UnsupportedError, match="psql"):
        thread.sql("SELECT 1")
