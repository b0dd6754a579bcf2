"""The tables in a database, and the threads in them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.errors import (
    DamagedError,
    InputError,
    NotAThreadError,
    StoreError,
    ThreadExistsError,
)
from eventq.store.address import parse
from eventq.store.migrations import files
from eventq.store.postgres import schema
from eventq.store.postgres.connection import Link
from eventq.thread import init_schema, threads
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Until


def test_the_newest_migration_is_known() -> None:
    """A program knows the tables that it was written for."""
    assert [number for number, _ in files("postgres")] == [*range(1, schema.SCHEMA + 1)]


# The schemas that there were before: their migrations, and what the tables of unreleased versions,
# which had other migrations under the same numbers, lacked.
OLDER = {
    "unreleased 1": (["0001_log.sql"], "ALTER TABLE eventq.unfinished DROP COLUMN uncounted"),
    "unreleased 2": (["0001_log.sql", "0002_attempts.sql"], ""),
    "1": (["0001_log.sql"], ""),
    "2": (["0001_log.sql", "0002_labels.sql"], ""),
    "3": (["0001_log.sql", "0002_labels.sql", "0003_questions.sql"], ""),
}
ASKED = b'{"text": "Well?"}'
PUSH = """
INSERT INTO eventq.events (bucket, thread_id, id, created_at, source, type, content)
SELECT bucket, thread_id, %s, '2026-11-25T00:00:00.000Z', 'self', %s, %s FROM eventq.threads
"""
KEY = """
INSERT INTO eventq.event_keys (bucket, thread_id, key, event_id)
SELECT bucket, thread_id, 'answer:1', 3 FROM eventq.threads
"""


def columns(url: str) -> list[tuple[Any, ...]]:
    """Return what the tables have."""
    with psycopg.connect(url) as server:
        return server.execute("""
            SELECT table_name, column_name, data_type, is_nullable, column_default
            FROM information_schema.columns
            WHERE table_schema = 'eventq'
            ORDER BY 1, 2
        """).fetchall()


@pytest.mark.parametrize("name", OLDER)
def test_older_tables_are_brought_up_to_date(empty: str, name: str) -> None:
    """Whatever wrote them: they have what new tables have, and list the questions that are open."""
    names, lacks = OLDER[name]
    known = {os.path.basename(path): path for _, path in files("postgres")}
    init_schema(empty)
    wanted = columns(empty)
    url = parse(f"{empty}&thread=x")
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute("DROP SCHEMA eventq CASCADE")
        for number, one in enumerate(names, 1):
            if one in known:
                with open(known[one]) as file:
                    server.execute(file.read().encode())
            server.execute("INSERT INTO eventq.migrations VALUES (%s, %s)", (number, one))
        server.execute(lacks.encode() or b"SELECT 1")
        sql = "INSERT INTO eventq.threads (bucket, thread_id, name) VALUES (%s, 7, 'x')"
        server.execute(sql, (url.bucket,))
        sql = "INSERT INTO eventq.counters (bucket, thread_id, last_event) VALUES (%s, 7, 3)"
        server.execute(sql, (url.bucket,))
        rows = [("question", ASKED), ("approval", ASKED), ("answer", b'{"question": 1}')]
        for place, (kind, content) in enumerate(rows, 1):
            server.execute(PUSH, (place, kind, content))
        server.execute(KEY)
    with pytest.raises(StoreError, match="of an older eventq"):
        eventq.open(f"{empty}&thread=x")
    assert init_schema(empty) == schema.SCHEMA
    assert columns(empty) == wanted
    with eventq.open(f"{empty}&thread=x") as thread:
        assert ([one.question_id for one in thread.questions()], thread.check()) == ([2], [])
        thread.subscribe("w")
        thread.settle(thread.claim("w"))


def test_check_compares_the_list_with_the_events(empty: str) -> None:
    """A question that a program of the old rules asked, answered or dropped is found."""
    init_schema(empty)
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        thread.ask("One?")
        thread.push_many([("self", "note", "x")] * 2)
        with psycopg.connect(empty, autocommit=True) as server:
            server.execute(
                "UPDATE eventq.events SET type = 'question', content = %s WHERE id = 2", (ASKED,)
            )
            content = b'{"question": 1, "text": "x"}'
            server.execute(
                "UPDATE eventq.events SET type = 'answer', content = %s WHERE id = 3", (content,)
            )
            server.execute(KEY)
            server.execute(
                "INSERT INTO eventq.open_questions SELECT bucket, thread_id, 77 FROM eventq.threads"
            )
        assert thread.check() == [
            "question 2 is open and not listed: 'eventq answer 2 TEXT' closes it",
            "event 1 is listed as an open question, and is none",
            "event 77 is listed as an open question, and is not stored",
        ]


# --- an upgrade while a thread is open ------------------------------------------------------------

NEWER = "".join(
    f"ALTER TABLE eventq.{table} RENAME COLUMN schema_{schema.SCHEMA} TO schema_of_tomorrow;"
    for table in ("counters", "consumers")
)
SAYS = "were changed by another version of eventq - open the thread again"


def in_a_transaction(thread: eventq.Thread) -> None:
    """Push inside `write`, which begins before."""
    with thread.write():
        thread.push("self", "note", "y")


WRITES: dict[str, Callable[[eventq.Thread], object]] = {
    "push": lambda thread: thread.push("self", "note", "y"),
    "push with a key": lambda thread: thread.push("self", "note", "y", key="l"),
    "batch": lambda thread: thread.push_many([("self", "note", "y")] * 300),
    "question": lambda thread: thread.ask("Well?"),
    "transaction": in_a_transaction,
    "subscribe": lambda thread: thread.subscribe("v"),
    "unsubscribe": lambda thread: thread.unsubscribe("w"),
    "pause": lambda thread: thread.pause("w"),
    "resume": lambda thread: thread.resume("w"),
    "ack": lambda thread: thread.ack("w", 2),
    "pop with an ack": lambda thread: thread.pop("w", 2),
    "replay": lambda thread: thread.ack("w", 0, replay=True),
    "fence": lambda thread: thread.database.consumers.raise_fence("w"),
    "advance": lambda thread: thread.database.consumers.advance("w", 1, 2, 9),
    "lease": lambda thread: thread.database.lease("w"),
    "claim": lambda thread: thread.claim("p"),
    "claim with a nonce": lambda thread: thread.claim("p", nonce="n"),
    "settle": lambda thread: thread.settle(HELD.pop()),
    "drop": lambda thread: thread.drop_dead([1], "p"),
    "prune": lambda thread: thread.prune(before_id=2),
}
HELD: list[Any] = []


@pytest.fixture
def used(empty: str) -> Iterator[eventq.Thread]:
    """Yield a thread on which all has been done before, so that its statements are prepared."""
    init_schema(empty)
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        thread.subscribe("w")
        thread.subscribe("p")
        thread.push_many([("self", "note", "x")] * 4)
        for _ in range(3):
            thread.push("self", "note", "x")
            thread.push("self", "note", "x", key=f"k{thread.last_id()}")
            thread.settle(thread.claim("p"))
            thread.pop("w", 1)
        HELD[:] = [thread.claim("p")]
        yield thread


def content(url: str) -> list[Any]:
    """Return every row of every table."""
    with psycopg.connect(url) as server:
        tables = sorted({str(row[0]) for row in columns(url)})
        return [server.execute(f"SELECT * FROM eventq.{table}").fetchall() for table in tables]


@pytest.mark.parametrize("name", WRITES)
def test_the_next_write_is_refused(empty: str, used: eventq.Thread, name: str) -> None:
    """Tables that were brought up to date stop each open program before it writes by its rules."""
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute(NEWER)
    before = content(empty)
    with pytest.raises(DamagedError, match=SAYS):
        WRITES[name](used)
    assert content(empty) == before
    assert used.last(1)[0].content == "x"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_waits_for_a_migration_is_refused(
    empty: str, used: eventq.Thread, name: str, until: Until
) -> None:
    """What begins while the tables are brought up to date sees that before it writes anything."""
    before = content(empty)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            WRITES[name](used)
        except BaseException as error:
            errors.append(error)

    with psycopg.connect(empty) as server, psycopg.connect(empty, autocommit=True) as other:
        server.execute(NEWER)
        writer = threading.Thread(target=write)
        writer.start()
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
        until(lambda: other.execute(waits).fetchall(), "the write waits")
        server.commit()
        writer.join()
    assert [type(error) for error in errors] == [DamagedError]
    assert SAYS in str(errors[0])
    assert content(empty) == before


def test_many_make_the_tables_at_once(empty: str) -> None:
    """One of them does, and the others find them."""
    found: list[int] = []
    makers = [threading.Thread(target=lambda: found.append(init_schema(empty))) for _ in range(6)]
    for one in makers:
        one.start()
    for one in makers:
        one.join()
    assert found == [schema.SCHEMA] * 6
    assert init_schema(empty) == schema.SCHEMA
    assert [*threads(empty)] == []


def test_a_database_without_tables(empty: str) -> None:
    """Whoever opens or makes a thread is told to make them first, without the password."""
    url = empty.replace("postgres@", "postgres:s3cr3t@") + "&thread=x"
    for call in (eventq.open, eventq.init, lambda url: [*threads(url)]):
        with pytest.raises(StoreError, match="there are no tables of eventq") as caught:
            call(url)
        assert "eventq init --schema '" in caught.value.fix
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding(empty: str, postgres: str, encoding: str) -> None:
    """No tables are made where names could not be stored, or not be compared as characters."""
    name = psycopg.conninfo.conninfo_to_dict(empty)["dbname"]
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'DROP DATABASE "{name}"')
        how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        server.execute(f'CREATE DATABASE "{name}" {how}')
    with pytest.raises(StoreError, match=f"keeps text as {encoding}.* ENCODING 'UTF8' TEMPLATE"):
        init_schema(empty)
    with pytest.raises(StoreError, match="there are no tables of eventq"):
        eventq.init(f"{empty}&thread=x")


@pytest.mark.parametrize(
    ("change", "error", "fix"),
    [
        ("DELETE FROM eventq.migrations", StoreError, "eventq init --schema"),
        ("INSERT INTO eventq.migrations VALUES (99, 'x')", DamagedError, "upgrade eventq"),
    ],
)
def test_tables_of_another_version(
    empty: str, change: str, error: type[StoreError], fix: str
) -> None:
    """Older ones are for their owner to bring up to date, newer ones for a newer program."""
    init_schema(empty)
    url = eventq.init(f"{empty}&thread=x")
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute(change)
    with pytest.raises(error, match=fix):
        eventq.open(url)
    with pytest.raises(StoreError, match=fix):
        eventq.init(f"{empty}&thread=y")
    assert [*threads(empty)] == [url]


def test_threads_come_and_go(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed by name, and one that is made anew is another one."""
    init_schema(empty)
    urls = [eventq.init(f"{empty}&thread={name}") for name in ("b", "ä", "a")]
    assert [*threads(empty)] == [urls[2], urls[0], urls[1]]
    with pytest.raises(ThreadExistsError):
        eventq.init(urls[0])
    with eventq.open(urls[0]) as before:
        before.push("self", "note", "x", key="k")
        before.subscribe("w")
        eventq.destroy(urls[0])
        for call in (before.last_id, lambda: before.push("a", "b", "c")):
            with pytest.raises(NotAThreadError):
                call()
        with pytest.raises(NotAThreadError), before.write():
            pass
        with eventq.open(urls[0], create=True) as anew:
            assert (anew.last_id(), anew.subscriptions()) == (0, [])
            assert anew.push("self", "note", "y", key="k").id == 1
            assert anew.database.identity != before.database.identity
    with pytest.raises(NotAThreadError):
        eventq.destroy(f"{empty}&thread=nobody")
    run, said = Link.run, []

    def note(link: Link, sql: str, values: Any) -> list[Any]:
        said.append(sql)
        return run(link, sql, values)

    monkeypatch.setattr(Link, "run", note)
    eventq.destroy(urls[1])
    with psycopg.connect(empty) as server:
        for (table,) in server.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'eventq'"
        ).fetchall():
            emptied = any(sql.startswith(f"DELETE FROM eventq.{table} ") for sql in said)
            assert emptied is (table != "migrations")


CALLS: dict[str, Callable[[eventq.Thread], object]] = {
    "claim": lambda thread: thread.claim("w"),
    "claim of a waiter": lambda thread: thread.claim("w", wait=60),
    "pop": lambda thread: thread.pop("w"),
    "pop with an ack": lambda thread: thread.pop("w", 1),
    "pop of a waiter": lambda thread: thread.pop("w", wait=60),
    "ack": lambda thread: thread.ack("w", 1),
    "pause": lambda thread: thread.pause("w"),
    "resume": lambda thread: thread.resume("w"),
    "subscriptions": lambda thread: thread.subscriptions(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_thread_that_was_deleted_meanwhile(postgres: str, name: str, is_warm: bool) -> None:
    """Whoever uses it is told that, and not that a consumer is missing."""
    with eventq.open(fresh(postgres)) as thread:
        thread.push_many([("self", "note", "x")] * 2)
        thread.subscribe("w")
        if is_warm:  # then the next pop and claim know the filter
            thread.settle(thread.claim("w"))
            thread.pop("w")
        eventq.destroy(thread.path)
        with pytest.raises(NotAThreadError):
            CALLS[name](thread)


def test_a_name_that_no_index_takes(postgres: str) -> None:
    """It is refused before anything is made."""
    with pytest.raises(InputError, match="1002 bytes, the limit is 1000"):
        eventq.init(f"{postgres}&thread={'ä' * 501}")


def test_a_directory_that_names_a_thread(postgres: str, tmp_path: object) -> None:
    """It is used like any other, and keeps what this machine has of it."""
    from pathlib import Path

    folder = Path(str(tmp_path)) / "inbox"
    folder.mkdir()
    (folder / "thread.url").write_text(fresh(postgres) + "\n")
    with eventq.open(folder) as thread:
        thread.push("self", "note", "x")
        assert (thread.path, thread.last_id(), thread.check()) == (str(folder), 1, [])
        assert thread.status().event_count == 1
    assert [*threads(tmp_path)] == [str(folder)]  # type: ignore[arg-type]
    assert parse((folder / "thread.url").read_text().strip()).name
