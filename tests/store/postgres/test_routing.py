"""Tables that are partitioned by bucket: every statement about a thread touches one partition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.records.event import NewEvent
from eventq.store.migrations import files
from eventq.store.postgres import claims, consumers, events, leases, queues, watcher
from eventq.store.postgres.connection import Link
from eventq.store.postgres.statements import STATEMENTS
from eventq.thread import init_schema, threads
from tests.claiming import push, settle, subscribe, take
from tests.servers import fresh, use_our_clock
from tests.store.postgres.test_differential import LogSide, history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.conftest import Clock

PARTS = 4
HISTORIES = (*range(14), 27)  # they run each statement that is not run below
TABLE = re.compile(r"CREATE TABLE eventq\.(\w+) \((.*?)\n\)[^;]*;", re.DOTALL)
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def partitioned(script: str) -> str:
    """Return DDL with all tables of threads in partitions, which allow no storage parameters."""

    def change(found: re.Match[str]) -> str:
        name, body = found.groups()
        if "bucket" not in body:
            return found[0]
        parts = [
            f"CREATE TABLE eventq.{name}_part{n} PARTITION OF eventq.{name}"
            f" FOR VALUES FROM ({n * 256 // PARTS}) TO ({(n + 1) * 256 // PARTS});"
            for n in range(PARTS)
        ]
        return "\n".join(
            [f"CREATE TABLE eventq.{name} ({body}\n) PARTITION BY RANGE (bucket);", *parts]
        )

    return TABLE.sub(change, script)


class Routes:
    """The statements that were run, and which partitions each of them touches."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self.url = url
        self.ran: dict[str, Mapping[str, Any]] = {}
        run, together, script = Link.run, Link.together, Link.script

        def note_run(link: Link, sql: str, values: Mapping[str, Any]) -> Any:
            self.ran.setdefault(sql, values)
            return run(link, sql, values)

        def note_together(link: Link, steps: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
            for sql, values in steps:
                self.ran.setdefault(sql, values)
            return together(link, steps)

        def note_script(link: Link, *texts: str) -> Any:
            for text in texts:
                for sql in text.split(";"):
                    self.ran.setdefault(sql, {})
            return script(link, *texts)

        patch.setattr(Link, "run", note_run)
        patch.setattr(Link, "together", note_together)
        patch.setattr(Link, "script", note_script)

    def statements(self) -> Iterator[tuple[str, set[str]]]:
        """Yield each statement that reads or writes a table, with the partitions it touches."""
        with psycopg.connect(self.url, autocommit=True) as server:
            for sql, values in self.ran.items():
                if sql.split(None, 1)[:1] and sql.split(None, 1)[0].upper() in VERBS:
                    yield sql, self.touched(server, sql, values)

    def touched(
        self, server: psycopg.Connection[Any], sql: str, values: Mapping[str, Any]
    ) -> set[str]:
        """Return the names of the partitions in the plan of a statement, without their tables."""
        plan = str(server.execute(f"EXPLAIN (VERBOSE, FORMAT JSON) {sql}", values).fetchone())
        return set(re.findall(r"'Relation Name': '\w+(_part\d)'", plan))


@pytest.fixture
def routes(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Routes:
    """Return what notes statements, in a database whose tables are partitioned."""
    changed = []
    for number, path in files("postgres"):
        made = tmp_path / f"{number}.sql"
        with open(path, encoding="utf-8") as file:
            made.write_text(partitioned(file.read()), encoding="utf-8")
        changed.append((number, str(made)))
    monkeypatch.setattr("eventq.store.postgres.schema.files", lambda _: changed)
    init_schema(empty)
    return Routes(empty, monkeypatch)


def do_all(base: str, clock: Clock) -> None:
    """Do what the interface of the log can do, in many threads: their buckets differ."""
    for seed in HISTORIES:
        side = LogSide(fresh(base), "")
        for name, given in history(seed):
            if name == "move":
                clock.move(**given)
            else:
                side.told(name, given)
        side.close()
    with eventq.open(fresh(base)) as thread:
        use_our_clock(thread.database)
        db: Any = thread.database
        do_the_rest(db)
        assert [event.id for event in thread.consume("loop", idle=0)] == [1, 2, 3, 4, 5, 6]
        thread.push_many([("self", "note", "x")] * 300)
        thread.erasures.event(1)
        assert thread.check() == []
        with eventq.open(fresh(base)) as other:
            use_our_clock(other.database)
            assert thread.copy_to(other, log=True).events == 306
            eventq.destroy(other.path)
        eventq.destroy(thread.path)


def do_the_rest(db: Any) -> None:
    """Do what few histories do, or none."""
    subscribe(db, ordered_by="source")
    push(db, 5)
    db.events.append([NewEvent("self", "note", "x")], {0: [bytes(32)]})
    taken = take(db, 2)
    db.claims.note("w", taken.token, [1], "process")
    settle(db, taken, "dead")  # others of its group wait for it
    db.claims.drop("w", [1])
    db.claims.revive("w", [2])
    subscribe(db, "plain")
    settle(db, take(db, consumer="plain"), consumer="plain")
    take(db, 2, consumer="plain")
    db.consumers.pop("plain", 1, 0, replay=True)
    subscribe(db, "some", filter="type = 'never'")
    state = db.consumers.get("some")
    assert state is not None
    db.consumers.note_scanned(state, 5)
    db.claims.next_due("w")
    db.claims.standings([1, 2], 10)
    db.claims.minutes("w", 0)
    db.claims.totals(0, 60)
    db.events.kinds(0, 9)
    db.events.answers(9, 9)
    with db.watch() as watcher:
        watcher.wait(0)
    with db.read() as moment:
        moment.events.bounds()
    db.alive()
    db.hold("w")
    db.leases().wake("w")
    lease = db.lease("w")
    lease.renew_every = 0
    assert lease.renew()
    lease.note(1)
    lease.release()
    lease.forget()


def not_run(ran: Iterable[str]) -> list[str]:
    """Return the names of the engine's statements that were not run."""
    return [
        f"{module.__name__}.{name}"
        for module in (claims, consumers, events, leases, queues, watcher)
        for name, sql in vars(module).items()
        if isinstance(sql, str) and sql.split(None, 1)[:1] and sql.split(None, 1)[0] in VERBS
        if "{" not in sql and not any(sql.strip() in one for one in ran)
    ]


def test_every_statement_touches_one_partition(routes: Routes, clock: Clock) -> None:
    """Of a thread, all is in one place; only a list of threads looks into every one."""
    do_all(routes.url, clock)
    left = not_run(routes.ran)
    assert not left, left
    found = dict(routes.statements())
    assert {sql: parts for sql, parts in found.items() if len(parts) > 1} == {}
    assert len({part for parts in found.values() for part in parts}) == PARTS
    assert [*threads(routes.url)]
    (listed,) = (parts for sql, parts in routes.statements() if sql not in found)
    assert len(listed) == PARTS


SAMPLES = {
    "smallint": "1",
    "integer": "1",
    "bigint": "1",
    "text": "'1'",
    "bytea": "'\\x00'",
    "json": "'[1]'",
    "bigint[]": "'{1}'",
    "text[]": "'{1}'",
    "bytea[]": "'{\\\\x00}'",
}


def test_every_statement_of_the_memory_touches_one_partition(routes: Routes) -> None:
    """With values, as the plan for all values is made for every partition."""
    parts: set[str] = set()
    with psycopg.connect(routes.url, autocommit=True) as server:
        server.execute("SET plan_cache_mode = force_custom_plan")
        for text in (text for _, _, *texts in STATEMENTS.values() for text in filter(None, texts)):
            server.execute(f"PREPARE one AS {text}")
            (types,) = server.execute(
                "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'one'"
            ).fetchone() or ([],)
            values = ", ".join(SAMPLES[one] for one in types)
            found = routes.touched(
                server, f"EXECUTE one({values})" if values else "EXECUTE one", {}
            )
            server.execute("DEALLOCATE one")
            assert len(found) <= 1, text
            parts |= found
    assert len(parts) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM eventq.events WHERE thread_id = %(t)s",
        """SELECT 1 FROM eventq.counters n JOIN eventq.consumers c ON c.thread_id = n.thread_id
        WHERE n.bucket = %(b)s AND n.thread_id = %(t)s""",
    ],
)
def test_a_statement_without_a_bucket_is_found(routes: Routes, sql: str) -> None:
    """It would be sent to every partition."""
    routes.ran = {sql: {"b": 1, "t": 1}}
    ((_, parts),) = routes.statements()
    assert len(parts) == PARTS
