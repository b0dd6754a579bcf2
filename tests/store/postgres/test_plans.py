"""How a server walks the tables: along indexes, whatever its statistics say.

The kinds of statistics that mislead: none at all, those of empty tables and of another thread alone
before one grows, and those of many small threads beside a large one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import eventq
from eventq.records.run import NewStep
from eventq.store.postgres.statements import STATEMENTS
from eventq.system import clock
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 400
VISITED = 500  # rows that a step, its check and its collection may visit
ROWS = 20  # of each table that small threads have


@pytest.fixture(params=["none", "of empty tables", "of another thread", "of small threads"])
def database(request: pytest.FixtureRequest, postgres: str) -> Iterator[str]:
    """Return the URL of a database of its own, whose statistics are misleading."""
    name = f"plans_{uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = postgres.replace("/postgres?", f"/{name}?")
    eventq.init_schema(url)
    with psycopg.connect(url, autocommit=True) as connection:
        for table in tables(connection):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        if request.param == "of small threads":
            fill(connection)
        if request.param == "of another thread":
            with eventq.open(eventq.init(f"{url}&thread=another")) as another:
                grow(another, 20)
        if request.param != "none":
            connection.execute("ANALYZE")
    yield url
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the names of eventq's tables."""
    sql = """
        SELECT oid::regclass::text
        FROM pg_class
        WHERE relnamespace = 'eventq'::regnamespace AND relkind = 'r'
    """
    return [row[0] for row in connection.execute(sql)]


def fill(connection: psycopg.Connection[Any]) -> None:
    """Let 500 threads have a run, and blobs that refer to each other."""
    connection.execute("SET session_replication_role = replica")  # nothing is checked
    some, each = "generate_series(1, 500) t", f"generate_series(1, {ROWS}) b"
    for table, values, source in (
        ("contexts (created_at_ms, updated_at_ms, context_id", "0, 0, 1", some),
        ("runs (start_id, name, grouped, context_id", "1, 'plan', '', 1", some),
        (
            "blobs (raw_len, stored_len, codec, touched_at_ms, hash, blob_id",
            "1, 1, 0, 0, sha256(b::text::bytea), b",
            f"{some}, {each}",
        ),
        ("blob_refs (ref_id, blob_id", "b % 7 + 1, b", f"{some}, {each}"),
    ):
        connection.execute(
            f"INSERT INTO eventq.{table}, bucket, thread_id) SELECT {values}, 1, t FROM {source}"
        )


def grow(thread: eventq.Thread, count: int) -> None:
    """Let a new run of a thread make some steps."""
    run = thread.runs.start("plan", uuid4().hex, system={"coder": "x"})
    for number in range(count):
        run.step(NewStep("coder", {"x": 1}, f"{run.id} {number} " * 100))


def visited(thread: eventq.Thread, url: str) -> int:
    """Return how many rows its connection has read from tables and indexes."""
    sql = """
        SELECT sum(n)::bigint
        FROM (
            SELECT seq_tup_read FROM pg_stat_user_tables
            UNION ALL
            SELECT idx_tup_read FROM pg_stat_user_indexes
        ) q(n)
    """
    thread.database.rows("SELECT pg_stat_force_next_flush()")  # type: ignore[attr-defined]
    with psycopg.connect(url) as connection:
        return int(connection.execute(sql).fetchone()[0])  # type: ignore[index]


def test_rows_that_are_read_grow_with_what_is_asked_for(database: str) -> None:
    """A step, a check and a collection visit each row a few times, not each for each other."""
    url = eventq.init(f"{database}&thread=t")
    with eventq.open(url) as thread:
        grow(thread, STEPS)
    with eventq.open(url) as thread:
        begun = visited(thread, database)
        grow(thread, STEPS // 4)
        assert thread.check() == []
        thread.gc()
        assert visited(thread, database) - begun < VISITED * STEPS


def test_plans_of_empty_tables_do_not_last(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that has seen a thread grow makes its plans anew."""
    monkeypatch.setattr("eventq.store.postgres.pool.FIRST_PLANS_SECONDS", 0.1)
    with eventq.open(eventq.init(f"{database}&thread=t")) as thread:
        grow(thread, STEPS)
        now = clock.monotonic
        monkeypatch.setattr("eventq.system.clock.monotonic", lambda: now() + 11)
        begun = visited(thread, database)
        grow(thread, STEPS // 4)
        assert visited(thread, database) - begun < VISITED * STEPS // 4


@pytest.mark.parametrize("form", ["session", "pooled"])
def test_every_statement_is_planned_so(postgres: str, form: str) -> None:
    """One that reads by itself, in a transaction, or of a moment; also behind a pooler."""
    settings = "enable_hashjoin", "enable_mergejoin", "enable_seqscan", "plan_cache_mode"
    sql = "SELECT " + ", ".join(f"current_setting('{name}')" for name in settings)

    def found(database: Any) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = database.reading(lambda link: link.numbered(sql, [])[0])
        return rows

    url = fresh(f"{postgres}&pooled=1" if form == "pooled" else postgres)
    expected = [("off", "off", "off", "force_generic_plan")]
    with eventq.open(url) as thread:
        database: Any = thread.database
        assert found(database) == expected
        with thread.write():
            assert found(database) == expected
        with database.read() as moment:
            assert found(moment) == expected
        with eventq.open(url, read_only=True) as reader:
            assert found(reader.database) == expected
        if form == "pooled":  # nothing is left to others who get the connection
            assert database.rows(sql) != expected


def test_joins_are_lookups(database: str) -> None:
    """No statement reads a table as a whole, or compares all rows of two tables."""
    with psycopg.connect(database, autocommit=True) as connection:
        for setting in ("enable_hashjoin", "enable_mergejoin", "enable_seqscan"):
            connection.execute(f"SET {setting} = off")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for text in (text for _, _, *texts in STATEMENTS.values() for text in texts):
            if not text or "eventq.unfinished" in text:  # the log's, and by hand
                continue
            plan = explained(connection, re.sub(r"\w+\.bucket\s+=\s+\$1\s+AND", "", text))
            assert not re.search("Seq Scan|Join Filter|Hash Join|Merge Join", plan), plan


def explained(connection: psycopg.Connection[Any], text: str) -> str:
    """Return the plan of a statement for values that the server does not know."""
    connection.execute(f"PREPARE one (smallint, bigint) AS {text}")
    sql = "SELECT parameter_types FROM pg_prepared_statements WHERE name = 'one'"
    types = connection.execute(sql).fetchone()[0]  # type: ignore[index]
    nothing = ", ".join("NULL" for _ in types)
    rows = connection.execute(f"EXPLAIN EXECUTE one ({nothing})").fetchall()
    connection.execute("DEALLOCATE one")
    return "\n".join(row[0] for row in rows)
