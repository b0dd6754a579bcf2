"""The schema: numbered files, applied once each, with the same result from any start."""

from __future__ import annotations

import os
import threading

import apsw
import pytest

import eventq
from eventq.store.sqlite import migrate


def schema(path: str) -> set[tuple[str, str, str]]:
    """Return kind, name and the words of every table and index but the older tool's indexes."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    connection.close()
    return {
        (
            kind,
            name,
            " ".join(sql.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()),
        )
        for kind, name, sql in (map(str, row) for row in rows)
        if name not in ("idx_events_source", "idx_events_type", "sqlite_stat1")
    }


def header(path: str) -> tuple[int, int]:
    """Return what the header of the database says."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    found = connection.pragma("user_version"), connection.pragma("application_id")
    connection.close()
    return found


def records(path: str) -> list[tuple[int, str]]:
    """Return the migrations that a database records."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    found = [
        (int(row[0]), str(row[1]))
        for row in connection.execute("SELECT number, name FROM migrations ORDER BY number")
    ]
    connection.close()
    return found


def test_no_number_is_used_twice() -> None:
    """The newest file is SCHEMA; what follows the first three begins above all that ever were."""
    numbers = [number for number, _ in migrate.files()]
    assert numbers == [1, 2, 3, *range(13, migrate.SCHEMA + 1)]


def test_a_fresh_thread_has_every_migration(path: str) -> None:
    """A fresh thread records each file, and has version and mark in its header."""
    assert records(path) == [(number, os.path.basename(name)) for number, name in migrate.files()]
    assert header(path) == (migrate.SCHEMA, migrate.APPLICATION_ID)


def test_a_migrated_thread_has_the_schema_of_a_fresh_one(path: str, original: str) -> None:
    """A thread of the older tool, once opened, has the schema and header of a fresh one."""
    eventq.open(original).close()
    assert schema(original) == schema(path)
    assert records(original) == records(path)
    assert header(original) == header(path)


@pytest.mark.parametrize("version", [0, *(number for number, _ in migrate.files()[:-1])])
def test_every_older_version_is_brought_up(
    path: str, original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each version that there was, opening leads to the schema of today."""
    older = [one for one in migrate.files() if one[0] <= version]
    connection = apsw.Connection(os.path.join(original, "events.db"))
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "files", lambda: older)
        migrate.apply(connection, "then")
    assert connection.pragma("user_version") == version
    connection.close()
    with eventq.open(original) as thread:
        assert thread.check() == []
    assert (schema(original), records(original)) == (schema(path), records(path))


def test_a_thread_of_an_earlier_eventq_is_read_as_it_is(
    original: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the table of questions there are none; everything else is there."""
    older = migrate.files()[: migrate.QUESTIONS - 1]
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "files", lambda: older)
        connection = apsw.Connection(os.path.join(original, "events.db"))
        migrate.apply(connection, "then")
        connection.close()
    with eventq.open(original, read_only=True) as reader:
        status = reader.status()
        assert (status.event_count, status.questions, status.question_count) == (3, (), 0)
        assert (status.context_count, status.runs, status.artifacts) == (0, {}, ())
        assert (reader.questions(), reader.check(), header(original)[0]) == ([], [], 2)
    with eventq.open(original) as thread:
        assert thread.ask("Well?") in thread.questions()
    assert header(original)[0] == migrate.SCHEMA


def test_opening_again_changes_nothing(path: str) -> None:
    """A migration runs once."""
    before = records(path), schema(path)
    for _ in range(3):
        eventq.open(path).close()
    assert (records(path), schema(path)) == before


def test_several_migrate_at_once(original: str) -> None:
    """Of several programs that open an old thread at once one migrates it, and all of them work."""
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def use() -> None:
        start.wait()
        try:
            with eventq.open(original) as thread:
                thread.push("self", "note", "x")
        except BaseException as error:
            errors.append(error)

    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert errors == []
    assert records(original) == [
        (number, os.path.basename(name)) for number, name in migrate.files()
    ]
    with eventq.open(original) as thread:
        assert (thread.last_id(), thread.check()) == (7, [])


def test_others_wait_for_a_migration(original: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens the thread while another OS thread migrates it leaves the connection to that."""
    before = apsw.Connection(os.path.join(original, "events.db"))
    before.pragma("journal_mode", "delete")
    before.close()
    real, opened = migrate.apply, []

    def apply(connection: apsw.Connection, stamp: str, start: int) -> None:
        monkeypatch.setattr(migrate, "apply", real)
        connection.pragma("journal_mode", "wal")
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")  # makes the WAL
        other = threading.Thread(target=lambda: opened.append(eventq.open(original)))
        other.start()
        other.join(0.3)  # it would have closed the connection by then
        real(connection, stamp, start)
        threads.append(other)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(migrate, "apply", apply)
    with eventq.open(original) as thread:
        threads[0].join()
        assert (thread.push("self", "note", "x").id, thread.check()) == (4, [])
        opened[0].close()


def test_a_migration_that_fails_leaves_the_thread_as_it_was(
    original: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration commits with its record or not at all."""
    before = schema(original)

    def limit(connection: apsw.Connection) -> None:
        connection.pragma("max_page_count", 20)

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, limit])
    with pytest.raises(eventq.StoreError, match="is full"):
        eventq.open(original)
    monkeypatch.undo()
    assert {name for _, name, _ in schema(original) - before} == {"migrations"}
    assert [number for number, _ in records(original)] == [1], "the first changes nothing else"
    with eventq.open(original) as thread:
        assert thread.last_id() == 3
