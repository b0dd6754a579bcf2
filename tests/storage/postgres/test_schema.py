"""The tables in a database, and the threads in them."""

from __future__ import annotations

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
from eventq.storage.address import parse
from eventq.storage.migrations import files
from eventq.storage.postgres import schema
from eventq.storage.postgres.link import Link
from eventq.thread import init_schema, threads
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_newest_migration_is_known() -> None:
    """A program knows the tables that it was written for."""
    assert [number for number, _ in files("postgres")] == [*range(1, schema.SCHEMA + 1)]


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
        assert "run 'eventq init --schema" in caught.value.fix
        assert "s3cr3t" not in str(caught.value)


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
