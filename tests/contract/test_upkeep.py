"""info, prune and check: what is said about a thread, and what is done to keep it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq import LogicError, UsageError
from eventq.locks import ConsumerLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock


def ids(thread: eventq.Thread) -> list[int]:
    """Give the ids of events."""
    return [event.id for event in thread.peek(limit=None)]


def push(thread: eventq.Thread, count: int) -> None:
    """Push so many events."""
    thread.push_many([("self", "note", "x")] * count)


# --- info ---


def test_info_of_an_empty_thread(thread: eventq.Thread) -> None:
    """An empty thread has no events, no consumers, and a database."""
    info = thread.info()
    assert (info.path, info.event_count, info.subscriptions, info.last_id) == (
        thread.path,
        0,
        (),
        0,
    )
    assert info.db_bytes > 0
    assert info.mirror_bytes == 0


def test_info_says_where_each_consumer_stands(thread: eventq.Thread, clock: Clock) -> None:
    """Counts, sizes and, in the order of subscription, every consumer's progress."""
    thread.push_many([("self", "odd" if n % 2 else "even", "x") for n in range(10)])
    thread.subscribe("w", "echo hi", filter="type = 'odd'", max_attempts=3, timeout=2.5)
    thread.subscribe("a", "true")
    thread.ack("w", 4)
    thread.prune(before_id=3, force=True)
    info = thread.info()
    assert (info.event_count, info.last_id) == (8, 10)
    assert info.mirror_bytes == os.path.getsize(os.path.join(thread.path, "events.jsonl"))
    assert info.db_bytes == os.path.getsize(os.path.join(thread.path, "events.db"))
    stamp = "2026-03-18T10:30:00.123Z"
    assert info.subscriptions == (
        eventq.ConsumerInfo("w", "echo hi", "type = 'odd'", 4, stamp, 3, False, 0, None, 3, 2.5),
        eventq.ConsumerInfo("a", "true", None, 0, None, 8, False, 0, None, 5, None),
    )


def test_info_says_who_is_running(thread: eventq.Thread) -> None:
    """A consumer runs while its lock is held; a lock file alone means nothing."""
    thread.subscribe("w", "true")
    lock = ConsumerLock.take(thread.layout.consumer("w"))
    assert lock is not None
    assert thread.info().subscriptions[0].running
    lock.close()
    assert os.path.exists(thread.layout.consumer("w").lock)
    assert not thread.info().subscriptions[0].running


def test_pending_of_a_large_thread(thread: eventq.Thread) -> None:
    """Pending counts every match, over many pages and above what was pruned."""
    thread.push_many([("self", "odd" if n % 2 else "even", "x") for n in range(4_000)])
    thread.subscribe("w", "true", filter="type = 'odd'")
    thread.subscribe("v", "true")
    assert [c.pending for c in thread.info().subscriptions] == [2_000, 4_000]
    thread.prune(before_id=2_001, force=True)
    assert [c.pending for c in thread.info().subscriptions] == [1_000, 2_000]


# --- prune ---


@pytest.mark.parametrize(
    ("keep", "left"), [(0, []), (1, [10]), (4, [7, 8, 9, 10]), (10, None), (99, None)]
)
def test_prune_keeps_the_newest(thread: eventq.Thread, keep: int, left: list[int] | None) -> None:
    """`keep_last` deletes all but the newest, and gives the number of the deleted."""
    push(thread, 10)
    expected = list(range(1, 11)) if left is None else left
    assert thread.prune(keep_last=keep) == 10 - len(expected)
    assert ids(thread) == expected
    assert thread.prune(keep_last=keep) == 0


@pytest.mark.parametrize(
    ("before", "first"), [(0, 1), (1, 1), (5, 5), (10, 10), (11, None), ((1 << 63) - 1, None)]
)
def test_prune_deletes_what_is_before(
    thread: eventq.Thread, before: int, first: int | None
) -> None:
    """`before_id` deletes the events with smaller ids, and leaves ids and newest id alone."""
    push(thread, 10)
    thread.prune(before_id=before)
    assert ids(thread) == (list(range(first, 11)) if first else [])
    assert thread.last_id() == 10
    assert thread.push("self", "note", "x").id == 11


def test_prune_takes_one_of_the_two(thread: eventq.Thread) -> None:
    """Without a number, or with both, there is nothing to go by."""
    wrongs: list[dict[str, Any]] = [{}, {"keep_last": 1, "before_id": 1}]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="either --keep-last or --before-id"):
            thread.prune(**wrong)


def test_prune_waits_for_every_consumer(thread: eventq.Thread) -> None:
    """What a consumer has not acked is not deleted, whatever its filter; `force` deletes it."""
    push(thread, 10)
    thread.subscribe("w", "true", filter="type = 'never'")
    thread.subscribe("v", "true")
    thread.ack("v", 10)
    with pytest.raises(LogicError, match=r"consumer 'w' has acked only up to 0, .* - .*--force"):
        thread.prune(keep_last=5)
    assert ids(thread) == list(range(1, 11))
    thread.ack("w", 5)
    assert thread.prune(keep_last=5) == 5
    with pytest.raises(LogicError, match="'w' has acked only up to 5"):
        thread.prune(keep_last=4)
    assert thread.prune(keep_last=4, force=True) == 1
    thread.unsubscribe("w")
    assert thread.prune(keep_last=0) == 4


def test_prune_does_not_ask_about_what_is_gone(thread: eventq.Thread) -> None:
    """A consumer that never read what was pruned by force is no obstacle to pruning as far again."""
    push(thread, 10)
    thread.subscribe("w", "true")
    assert thread.prune(before_id=6, force=True) == 5
    assert thread.prune(before_id=6) == 0
    assert [event.id for event in thread.pop("w", 0)] == [6, 7, 8, 9, 10]


def test_prune_gives_the_space_back(thread: eventq.Thread) -> None:
    """The files are small again afterwards."""
    thread.push_many(("self", "note", "x" * 10_000) for _ in range(500))
    thread.prune(keep_last=1)
    info = thread.info()
    assert info.db_bytes + info.wal_bytes < 300_000
    assert ids(thread) == [500]


# --- check ---


def faults(path: str) -> list[str]:
    """Give what `check` says."""
    with eventq.open(path) as thread:
        return thread.check()


@pytest.fixture
def filled(path: str) -> str:
    """Give the path of a thread with five events, keys and a consumer, which is sound."""
    with eventq.open(path) as thread:
        for number in range(1, 6):
            thread.push("self", "note", str(number), key=f"k{number}")
        thread.subscribe("w", "true", filter="type = 'note'")
        thread.ack("w", 2)
    assert faults(path) == []
    return path


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("INSERT INTO events VALUES (0, '', 's', 't', NULL, '')", "event 0 has an id below 1"),
        ("INSERT INTO events VALUES (-7, '', 's', 't', NULL, '')", "event -7 has an id below 1"),
        (
            "INSERT INTO events VALUES (6, '', 's', 't', NULL, x'00')",
            "event 6 has content that is not text",
        ),
        ("INSERT INTO events VALUES (6, '', '', 't', NULL, '')", "event 6 has no source"),
        ("INSERT INTO events VALUES (6, '', x'00', 't', NULL, '')", "event 6 has no source"),
        ("INSERT INTO events VALUES (6, '', 's', '', NULL, '')", "event 6 has no type"),
        ("INSERT INTO events VALUES (6, '', 's', x'00', NULL, '')", "event 6 has no type"),
        ("INSERT INTO events VALUES (6, x'00', 's', 't', NULL, '')", "event 6 has no time"),
        (
            "UPDATE consumer_progress SET last_acked_id = 6",
            "consumer 'w' has acked 6, but the newest event is 5",
        ),
        (
            "UPDATE consumer_progress SET last_acked_id = -1",
            "consumer 'w' has acked -1, but the newest event is 5",
        ),
        ("DELETE FROM events WHERE id = 1", "key 'k1' names event 1, which is not stored"),
        ("INSERT INTO event_keys VALUES ('x', 99)", "key 'x' names event 99, which is not stored"),
        (
            "INSERT INTO event_keys VALUES (x'41ff', 99)",
            "key 'x'41ff'' names event 99, which is not stored",
        ),
        (
            "UPDATE subscription_state SET scanned_after = 2, scanned_id = 4, scanned_filter = 'type = ''note'''",
            "consumer 'w' would skip event 3: its watermark is 4",
        ),
        (
            "UPDATE subscriptions SET filter = 'nonsense = 1'",
            "the filter of consumer 'w' is refused: 'nonsense' is not a column",
        ),
    ],
)
def test_check_says_what_is_wrong_in_the_database(
    filled: str, raw: apsw.Connection, sql: str, sentence: str
) -> None:
    """Each broken invariant of the database has its one sentence."""
    raw.execute(sql)
    assert faults(filled) == [sentence]


NEW = "INSERT INTO subscriptions VALUES ('v', 'true', NULL);"
ODD_ROWS = {
    "a BLOB as id": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES (x'41ff', 'true')", ("x'41ff'", "true", None, 0),
        ["consumer 'x'41ff'' has an id that is not text: delete its row"],
    ),
    "a BLOB that reads like another id": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES (x'77', 'true')", ("x'77'", "true", None, 0),
        ["consumer 'x'77'' has an id that is not text: delete its row"],
    ),
    "an id that is not UTF-8": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES (CAST(x'41ff' AS TEXT), 'true')",
        ("x'41ff'", "true", None, 0), ["consumer 'x'41ff'' has an id that is not text: delete its row"],
    ),
    "an empty id": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES ('', 'true')", ("", "true", None, 0),
        ["consumer '' has an empty id: delete its row"],
    ),
    "an integer as id": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES (5, 'true')", ("5", "true", None, 0), [],
    ),
    "a BLOB as handler": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES ('v', x'74ff')", ("v", "t\ufffd", None, 0),
        ["consumer 'v' has a handler that is not text: unsubscribe it"],
    ),
    "a handler that is not UTF-8": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES ('v', CAST(x'74ff' AS TEXT))",
        ("v", "t\ufffd", None, 0), ["consumer 'v' has a handler that is not text: unsubscribe it"],
    ),
    "an integer as handler": (
        "INSERT INTO subscriptions (consumer_id, handler_cmd) VALUES ('v', 7)", ("v", "7", None, 0), [],
    ),
    "a BLOB as filter": (
        "INSERT INTO subscriptions VALUES ('v', 'true', x'31ff')", ("v", "true", "1\ufffd", 0),
        ["the filter of consumer 'v' is refused: the filter is not text"],
    ),
    "a filter that is not UTF-8": (
        "INSERT INTO subscriptions VALUES ('v', 'true', CAST(x'31ff' AS TEXT))", ("v", "true", "1\ufffd", 0),
        ["the filter of consumer 'v' is refused: the filter is not text"],
    ),
    "an ack that is no number": (
        f"{NEW} INSERT INTO consumer_progress VALUES ('v', 'abc', '2026')", ("v", "true", None, 0),
        ["consumer 'v' has acked what is no number: ack again"],
    ),
    "an ack that is a BLOB": (
        f"{NEW} INSERT INTO consumer_progress VALUES ('v', x'33', '2026')", ("v", "true", None, 3),
        ["consumer 'v' has acked what is no number: ack again"],
    ),
    "an ack at a time that is not text": (
        f"{NEW} INSERT INTO consumer_progress VALUES ('v', 3, x'ff')", ("v", "true", None, 3),
        ["consumer 'v' has a time of its last ack that is not text: ack again"],
    ),
    "progress of a BLOB": (
        f"{NEW} INSERT INTO consumer_progress VALUES (x'ff', 3, '2026')", ("v", "true", None, 0),
        ["consumer 'x'ff'' has progress, but no id that is text: delete its row"],
    ),
    "an ack of a BLOB that is too high": (
        f"{NEW} INSERT INTO consumer_progress VALUES (x'41ff', 99, '2026')", ("v", "true", None, 0),
        ["consumer 'x'41ff'' has progress, but no id that is text: delete its row",
         "consumer 'x'41ff'' has acked 99, but the newest event is 5"],
    ),
    "a watermark that is no number": (
        f"{NEW} INSERT INTO subscription_state (consumer_id, scanned_id, scanned_filter) VALUES ('v', 'y', '')",
        ("v", "true", None, 0), ["consumer 'v' has a state that eventq does not write: subscribe it again"],
    ),
    "a state of a BLOB": (
        f"{NEW} INSERT INTO subscription_state (consumer_id, attempts) VALUES (x'41ff', 1)",
        ("v", "true", None, 0), ["consumer 'x'41ff'' has a state that eventq does not write: subscribe it again"],
    ),
    "a state that is no number": (
        f"{NEW} INSERT INTO subscription_state (consumer_id, attempts, scanned_id) VALUES ('v', 'x', 'y')",
        ("v", "true", None, 0), ["consumer 'v' has a state that eventq does not write: subscribe it again"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD_ROWS)
def test_rows_of_other_tools_are_shown_and_named(
    filled: str, raw: apsw.Connection, what: str
) -> None:
    """`info` shows what other tools may have stored, `check` has a sentence for it, and all others go on."""
    sql, shown, sentences = ODD_ROWS[what]
    raw.execute(sql)
    for read_only in (True, False):
        with eventq.open(filled, read_only=read_only) as thread:
            first, other = thread.info().subscriptions
            assert (first.consumer_id, first.last_acked_id) == ("w", 2)
            assert (
                other.consumer_id,
                other.handler_cmd,
                other.filter,
                other.last_acked_id,
            ) == shown
            assert (other.attempts, other.max_attempts, other.timeout) == (0, 5, None)
            assert (other.stalled == "its consumer id is not text") == (
                "id that is not text: delete" in str(sentences)
            )
            assert (other.stalled == "its consumer id is empty") == (other.consumer_id == "")
            assert [known.consumer_id for known in thread.subscriptions()] == ["w", shown[0]]
            assert thread.check() == sentences
    with eventq.open(filled) as thread:
        thread.push("self", "note", "x")
        assert [event.id for event in thread.pop("w", 2)] == [3, 4, 5, 6]


@pytest.mark.parametrize("far", [10**6, 9 * 10**18])
def test_ids_that_another_tool_left_out_cost_nothing(
    filled: str, raw: apsw.Connection, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far on an event is that another tool has stored, a push, a rebuilt mirror and `check` step over the gap."""
    raw.execute(
        "INSERT INTO events VALUES (?, '2026-01-01T00:00:00.000Z', 's', 't', NULL, 'far')", (far,)
    )
    with eventq.open(filled) as thread:
        steps = []
        one = thread.database.one

        def counted(sql: str, *given: Any) -> Any:
            steps.append(sql)
            return one(sql, *given)

        monkeypatch.setattr(thread.database, "one", counted)
        assert thread.push("self", "note", "x").id == far + 1
        for _ in range(2):
            assert thread.check() == []
            found = [line.split(",")[0] for line in lines(filled)]
            assert found == [f'{{"id":{number}' for number in (1, 2, 3, 4, 5, far, far + 1)]
            assert thread.rebuild_mirror() == 7
        assert len(steps) < 100


OBJECTS = {
    "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END": "trigger 't' on 'events'",
    "CREATE VIEW v AS SELECT 1": "view 'v'",
    "CREATE VIEW v AS SELECT * FROM nowhere": "view 'v'",
    "CREATE TABLE mine (x UNIQUE)": "table 'mine'",
    "CREATE INDEX i ON events (type)": "index 'i' on 'events'",
    "CREATE INDEX idx_events_type ON subscriptions (handler_cmd)": "index 'idx_events_type' on 'subscriptions'",
    "CREATE VIRTUAL TABLE r USING rtree (id, a, b)": None,
}


@pytest.mark.parametrize("sql", OBJECTS)
@pytest.mark.parametrize("made_by", ["eventq", "the older tool"])
def test_check_names_what_others_have_put_into_the_file(
    filled: str, original: str, made_by: str, sql: str
) -> None:
    """A trigger, view, table or index that is not eventq's has its sentence, also in a thread of the older tool."""
    path = filled if made_by == "eventq" else original
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("DROP INDEX IF EXISTS idx_events_type")
    raw.execute(sql)
    raw.close()
    with eventq.open(path, read_only=True) as thread:
        found = [text for text in thread.check() if "mirror" not in text and "event " not in text]
    names = (
        [OBJECTS[sql]]
        if OBJECTS[sql]
        else [f"table '{name}'" for name in ("r", "r_node", "r_parent", "r_rowid")]
    )
    assert sorted(found) == [
        f"the database has a {name} that is not eventq's: drop it" for name in names
    ]


def test_check_accepts_what_sqlite_and_the_older_tool_make(original: str) -> None:
    """Statistics, counters, the indexes of constraints and the older tool's two indexes are no faults."""
    raw = apsw.Connection(os.path.join(original, "events.db"))
    raw.execute("ANALYZE")
    raw.close()
    for read_only in (True, False):
        with eventq.open(original, read_only=read_only) as thread:
            assert thread.check() == []


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "DROP TRIGGER turns_are_immutable",
            "the database lacks its trigger 'turns_are_immutable': restore a backup",
        ),
        (
            "DROP INDEX turns_by_blob",
            "the database lacks its index 'turns_by_blob': restore a backup",
        ),
        (
            "DROP INDEX turns_by_blob; CREATE INDEX turns_by_blob ON turns (flags)",
            "the index 'turns_by_blob' is not the one that eventq made: restore a backup",
        ),
        ("ALTER TABLE pins ADD COLUMN x", "the table 'pins' has a column 'x' that is not eventq's"),
        (
            "ALTER TABLE pins ADD COLUMN x AS (1)",
            "the table 'pins' has a column 'x' that is not eventq's",
        ),
        ("DELETE FROM sqlite_sequence", "the newest event is 5, but the counter of ids is at None"),
        (
            "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'events'; DELETE FROM consumer_progress",
            "the newest event is 5, but the counter of ids is at 2",
        ),
    ],
)
def test_check_names_what_was_changed_or_lost(
    filled: str, raw: apsw.Connection, sql: str, sentence: str
) -> None:
    """What eventq made and is not there any more, or is another one, has its sentence."""
    raw.execute(sql)
    assert sentence in faults(filled)


def test_check_says_what_sqlite_says(filled: str, raw: apsw.Connection) -> None:
    """What SQLite's own check finds is passed on."""
    raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    raw.execute("PRAGMA writable_schema = ON").fetchall()
    raw.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, 'subtype TEXT', 'subtype TEXT NOT NULL') WHERE name = 'events'"
    )
    raw.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, 'subtype    TEXT', 'subtype TEXT NOT NULL') WHERE name = 'events'"
    )
    raw.pragma("schema_version", raw.pragma("schema_version") + 1)
    found = faults(filled)
    assert found == ["the database is damaged: NULL value in events.subtype"] * 5


def lines(path: str) -> list[str]:
    """Give the lines of a file of the thread."""
    with open(os.path.join(path, "events.jsonl")) as file:
        return file.readlines()


def drop_line(texts: list[str]) -> list[str]:
    """Take the third line out."""
    return [*texts[:2], *texts[3:]]


def swap(texts: list[str]) -> list[str]:
    """Change the second and the third line."""
    return [texts[0], texts[2], texts[1], *texts[3:]]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda t: [*t[:2], "hello\n", *t[2:]], "line 3 is not an event"),
        (lambda t: [*t[:2], t[1], *t[2:]], "line 3 repeats event 2"),
        (drop_line, "lacks event 3, before line 3"),
        (swap, "lacks event 2, before line 2"),
        (lambda t: [*t[:2], t[2].replace('"3"', '"?"'), *t[3:]], "line 3 differs from event 3"),
        (
            lambda t: [*t, t[4].replace('"id":5', '"id":6')],
            "line 6 holds event 6, which does not exist",
        ),
    ],
)
def test_check_says_what_is_wrong_in_the_mirror(
    filled: str, spoil: Callable[[list[str]], list[str]], sentence: str
) -> None:
    """Each way in which the mirror differs from the log has its sentence, and a rebuild mends it."""
    spoilt = spoil(lines(filled))
    with open(os.path.join(filled, "events.jsonl"), "w") as file:
        file.writelines(spoilt)
    assert faults(filled) == [f"events.jsonl {sentence}; run 'eventq mirror rebuild'"]
    with eventq.open(filled) as thread:
        assert thread.rebuild_mirror() == 5
        assert thread.check() == []


def test_check_looks_at_rotated_files_too(filled: str) -> None:
    """A rotated file is compared as well, and may not end in a torn line; the newest may, as the next push heals it."""
    texts = lines(filled)
    with open(os.path.join(filled, "events-20260318-103000.jsonl"), "w") as file:
        file.write("".join(texts[:3])[:-5])
    with open(os.path.join(filled, "events.jsonl"), "w") as file:
        file.writelines([*texts[3:], "{torn"])
    assert faults(filled) == [
        "events-20260318-103000.jsonl ends in a torn line, 3; run 'eventq mirror rebuild'",
        "events.jsonl lacks event 3, before line 1; run 'eventq mirror rebuild'",
    ]
    with open(os.path.join(filled, "events-20260318-103000.jsonl"), "w") as file:
        file.write("".join(texts[:3]))
    assert faults(filled) == []


@pytest.mark.parametrize("name", ["run", "logs"])
def test_check_says_when_a_folder_is_none(filled: str, name: str) -> None:
    """A file in the place of a folder is named; a missing folder is made when it is needed."""
    folder = os.path.join(filled, name)
    shutil.rmtree(folder)
    assert faults(filled) == []
    open(folder, "w").close()
    assert faults(filled) == [f"'{folder}' is not a directory"]


def test_check_accepts_a_mirror_that_lags(filled: str, raw: apsw.Connection) -> None:
    """A mirror that is missing, empty or behind the log is no fault: it is a prefix."""
    raw.execute("INSERT INTO events (source, type, content) VALUES ('tool', 'note', 'x')")
    assert faults(filled) == []
    os.truncate(os.path.join(filled, "events.jsonl"), 0)
    assert faults(filled) == []
    os.unlink(os.path.join(filled, "events.jsonl"))
    assert faults(filled) == []
    assert not os.path.exists(os.path.join(filled, "events.jsonl"))


def test_check_counts_what_was_pruned(filled: str) -> None:
    """Lines of pruned events are still expected to follow each other."""
    with eventq.open(filled) as thread:
        thread.prune(keep_last=1, force=True)
        assert thread.check() == []
    texts = lines(filled)
    with open(os.path.join(filled, "events.jsonl"), "w") as file:
        file.writelines(drop_line(texts))
    assert faults(filled) == [
        "events.jsonl lacks event 3, before line 3; run 'eventq mirror rebuild'"
    ]
