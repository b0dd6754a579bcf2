"""Numbers of schemas are never used twice, so a thread says truly which version wrote it.

Others of the kind: threads that each unreleased version left (SQLite 1 to 12 under other names, one
of them half migrated by a later one), threads of the newest numbering that are to be brought up to
date (1 to 3), what such a migration has to fill (questions of before it, questions that a program
of the old rules asked or answered meanwhile, rows of other tools), and programs that have a thread
open meanwhile (test_upgraded.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import DamagedError
from eventq.records.cause import Effects
from eventq.store.sqlite import migrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The names under which unreleased versions recorded their schemas; some had two.
UNRELEASED = [
    "0001_log.sql", "0002_memory.sql", "0003_runs.sql", "0004_output.sql", "0005_wire.sql",
    "0006_queue.sql", "0007_attempts.sql", "0008_scopes.sql", "0009_sessions.sql",
    "0010_settings.sql", "0011_run_changes.sql", "0012_erasures.sql",
]  # fmt: skip
OTHERS = {7: "0007_uncounted.sql", 11: "0011_erasures.sql"}


def database(path: str) -> apsw.Connection:
    """Return a plain connection to a thread's database."""
    return apsw.Connection(os.path.join(path, "events.db"))


def unreleased(path: str, names: list[str]) -> None:
    """Turn a thread of the original tool into what an unreleased version left of it.

    All of them had its tables, that of the keys, and the record of migrations.
    """
    connection = database(path)
    connection.execute("""
        CREATE TABLE event_keys (
            key      TEXT NOT NULL PRIMARY KEY,
            event_id INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE migrations (
            number     INTEGER PRIMARY KEY,
            name       TEXT NOT NULL,
            applied_at TEXT NOT NULL
        );
    """)
    sql = "INSERT INTO migrations VALUES (?, ?, '2026-11-25T00:00:00.000Z')"
    connection.executemany(sql, enumerate(names, 1))
    connection.pragma("user_version", len(names))
    connection.pragma("application_id", migrate.APPLICATION_ID)
    connection.close()


def as_of(path: str, version: int) -> None:
    """Take back what came to a thread after one of the first three schemas of this numbering."""
    connection = database(path)
    connection.execute(f"DROP VIEW {migrate.CURRENT}")
    connection.execute("DROP TABLE event_causes; DROP TABLE turn_causes")
    connection.execute("DROP TABLE usage; DROP TABLE usage_read")
    if version < migrate.QUESTIONS:
        connection.execute("DROP TABLE open_questions; DROP INDEX artifacts_open")
    connection.execute("DELETE FROM migrations WHERE number > ?", (version,))
    connection.pragma("user_version", version)
    connection.close()


def stored(path: str) -> list[bytes]:
    """Return what is in the files of a database."""
    found = []
    for suffix in ("", "-wal"):
        with (
            contextlib.suppress(FileNotFoundError),
            open(f"{path}/events.db{suffix}", "rb") as file,
        ):
            found.append(file.read())
    return [*filter(None, found)]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("number", range(1, 13))
def test_a_thread_of_an_unreleased_version(original: str, number: int, read_only: bool) -> None:
    """It is refused with what wrote it and what to do; it is neither newer nor changed."""
    names = UNRELEASED[:number]
    if number in OTHERS:
        names[-1] = OTHERS[number]
    unreleased(original, names)
    before = stored(original)
    with pytest.raises(DamagedError, match=rf"unreleased version .* \(its schema {number}\)") as it:
        eventq.open(original, read_only=read_only)
    assert "newer" not in str(it.value)
    assert stored(original) == before


def test_a_later_version_had_gone_on_with_it(original: str) -> None:
    """The first names count as well: a schema of this numbering may have followed another one."""
    unreleased(original, ["0001_log.sql", "0002_eventq.sql", "0003_questions.sql"])
    with pytest.raises(DamagedError, match="unreleased version"):
        eventq.open(original)


def test_its_events_can_be_taken_over(originals_mirror: str, tmp_path: Path) -> None:
    """What the error advises works: the events are pushed into a new thread, in order."""
    unreleased(originals_mirror, UNRELEASED)
    with pytest.raises(DamagedError) as caught:
        eventq.open(originals_mirror)
    assert "eventq push --batch --thread NEW < FILE" in caught.value.fix
    made = eventq.init(tmp_path / "NEW")
    for name in ("events-20250101-000000.jsonl", "events.jsonl"):
        with open(os.path.join(originals_mirror, name), "rb") as lines:
            words = [sys.executable, "-m", "eventq", "push", "--batch", "--thread", made]
            subprocess.run(words, stdin=lines, check=True, capture_output=True)
    with eventq.open(made) as thread:
        assert [event.content for event in thread.peek()] == ["one", "two", "3"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_thread_of_this_numbering_is_read_as_it_is(path: str, version: int) -> None:
    """The first three schemas open read-only without a change, and up to date for writing."""
    with eventq.open(path) as thread:
        thread.push("self", "question", '{"text": "Well?"}')
    as_of(path, version) if version > 1 else None
    before = stored(path)
    with eventq.open(path, read_only=True) as reader:
        assert reader.last_id() == 1
        assert (reader.causes_of(event=1), [*reader.peek(cause=1)]) == ([], [])
        assert reader.caused_by(1) == Effects((), ())
    assert stored(path) == before
    with eventq.open(path) as thread:
        assert ([one.question_id for one in thread.questions()], thread.check()) == ([1], [])
        with thread.during(1):
            thread.push("self", "note", "x")
        assert thread.caused_by(1) == Effects((2,), ())


# --- questions ------------------------------------------------------------------------------------

ASKED = '{"text": "Well?"}'
CHOICE = '{"text": "Well?", "options": ["approve"]}'


def old_rules(path: str, *rows: tuple[str, str, str | None]) -> None:
    """Store events as programs do that know no questions."""
    connection = database(path)
    for kind, content, key in rows:
        sql = "INSERT INTO events (source, type, content) VALUES ('self', ?, ?)"
        connection.execute(sql, (kind, content))
        if key is not None:
            sql = "INSERT INTO event_keys (key, event_id) VALUES (?, last_insert_rowid())"
            connection.execute(sql, (key,))
    connection.close()


ROWS: list[tuple[str, str, str | None]] = [
    ("question", ASKED, None), ("note", ASKED, None), ("approval", CHOICE, "k"),
    ("answer", '{"question": 1, "text": "yes"}', "answer:1"), ("question", "no question", None),
    ("answer", '{"question": 3, "text": "no"}', "another key"),
]  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
def test_a_migration_fills_what_it_adds(path: str, version: int) -> None:
    """Questions of before the list are listed, those that were answered are not."""
    as_of(path, version)
    old_rules(path, *ROWS)
    if version == 3:
        database(path).execute("INSERT INTO open_questions VALUES (1)")  # before its answer
    with eventq.open(path) as thread:
        assert [one.question_id for one in thread.questions()] == [3]
        thread.answer(3, "approve")
        assert (thread.questions(), thread.check()) == ([], [])


def test_a_thread_of_the_original_tool_may_have_asked(original: str) -> None:
    """Its events are questions as well if they have the form, unless their text is not UTF-8."""
    database(original).execute("""
        INSERT INTO events (source, type, content)
        VALUES ('self', 'question', '{"text": "Well?"}'),
            ('self', 'question', CAST(x'7b227465787422203a2022ff227d' AS TEXT)),
            (CAST(x'ff' AS TEXT), 'question', '{"text": "Well?"}'),
            ('self', 'question', x'00'), (x'00', 'question', CAST('{"text": "Well?"}' AS BLOB))
    """)
    with eventq.open(original) as thread:
        assert [one.question_id for one in thread.questions()] == [4, 8]
        assert not [text for text in thread.check() if "question" in text]


def test_check_compares_the_list_with_the_events(path: str) -> None:
    """A question that a program of the old rules asked, answered or dropped is found."""
    with eventq.open(path) as thread:
        thread.ask("One?")
        old_rules(
            path,
            ("question", ASKED, None),
            ("answer", '{"question": 1, "text": "x"}', "answer:1"),
        )
        database(path).execute("INSERT INTO open_questions VALUES (77)")
        assert [text for text in thread.check() if "mirror" not in text] == [
            "question 2 is open and not listed: 'eventq answer 2 TEXT' closes it",
            "event 1 is listed as an open question, and is none",
            "event 77 is listed as an open question, and is not stored",
        ]
        thread.answer(2, "yes")
        assert "question 2" not in "".join(thread.check())


CONTENTS = st.one_of(
    st.sampled_from([
        ASKED, '{"text": "a", "options": ["b"]}', '{"text": "a", "options": "b"}', "[]", "{", "",
        '{"text": " \\u00a0"}', '{"text": 1}', '{"text": "\\ud800"}', '{"te\\u0078t": "x"}',
        '{"text": "a", "text": 1}', '{"text": 1, "text": "a"}', '{"text": "a"} b', "[erased]",
        '{"text": NaN}', '\ufeff{"text": "a"}', "\x00" + ASKED, "[" * 2_000,
    ]),
    st.builds('{{"question": {}, "text": "yes"}}'.format, st.integers(-1, 12)),
    st.builds('{{"question": {}}}'.format, st.sampled_from(["1.0", "1e0", "true", '"1"', 10**30])),
)  # fmt: skip
EVENTS = st.tuples(
    st.just("self"),
    st.sampled_from(["question", "approval", "answer", "answer", "note"]),
    CONTENTS,
    st.none(),
    st.one_of(
        st.none(),
        st.builds("answer:{}".format, st.integers(0, 12)),
        st.sampled_from(["answer:", "answer:01", "answer:\u0663", f"answer:{10**30}", "k"]),
    ),
)


class Step:
    """What somebody does to a thread."""

    @staticmethod
    def push(thread: eventq.Thread, rows: list[Any]) -> None:
        """Push events one by one; what answers nothing is refused."""
        for source, kind, content, subtype, key in rows:
            with suppress(eventq.EventqError):
                thread.push(source, kind, content, subtype=subtype, key=key)

    @staticmethod
    def batch(thread: eventq.Thread, rows: list[Any]) -> None:
        """Push them at once, or none."""
        with suppress(eventq.EventqError):
            thread.push_many(rows)

    @staticmethod
    def prune(thread: eventq.Thread, rows: list[Any]) -> None:
        """Prune some of the oldest events."""
        thread.prune(before_id=max(1, min(len(rows), thread.last_id())))

    @staticmethod
    def answer(thread: eventq.Thread, _: list[Any]) -> None:
        """Answer the oldest question that can be answered."""
        for one in thread.questions():
            try:
                thread.answer(one.question_id, (*one.options, "yes")[0])
            except (
                eventq.LogicError,
                eventq.InputError,
            ):  # its key is another's; it has no options
                continue
            break

    @staticmethod
    def erase(thread: eventq.Thread, rows: list[Any]) -> None:
        """Erase an event of the middle."""
        events = [event for event in thread.peek() if event.content != "[erased]"]
        if events:
            thread.erasures.event(events[len(rows) % len(events)].id)


STEPS = [Step.push, Step.batch, Step.batch, Step.prune, Step.answer, Step.erase]


@pytest.mark.usefixtures("quick")
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.lists(EVENTS, min_size=1, max_size=6)), max_size=8
    )
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_list_is_what_the_events_say(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Callable[[eventq.Thread, list[Any]], None], list[Any]]],
) -> None:
    """After any history it is in order, and a migration of the same events makes the same list."""
    made = eventq.init(tmp_path_factory.mktemp("history") / "thread")
    with eventq.open(made) as thread:
        for step, rows in steps:
            step(thread, rows)
        listed = thread.questions()
        assert thread.check() == []
        assert all(thread.question(one.question_id).answer is None for one in listed)
        assert len(listed) == thread.status().question_count
    for version in (2, 3):
        as_of(made, version)
        with eventq.open(made) as thread:
            assert (thread.questions(), thread.check()) == (listed, [])
