"""A newer eventq migrates a thread that older programs have open: they say so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import DamagedError, FilterError
from eventq.store.sqlite import migrate
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAYS = r"was brought up to date by a newer eventq - open it again"

# What each migration does.
NEWER = f"DROP VIEW schema_{migrate.SCHEMA}; CREATE VIEW schema_{migrate.SCHEMA + 1} AS SELECT 1"


def upgrade(path: str, sql: str = "", version: int = migrate.SCHEMA + 1) -> None:
    """Do what a newer eventq might: change tables and note the version, in one transaction."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.set_busy_timeout(30_000)
    if version > migrate.SCHEMA:
        sql = f"{sql}; {NEWER}"
    connection.execute(f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {version}; COMMIT")
    connection.close()


@pytest.fixture
def held(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[eventq.Thread]:
    """Yield an open, used thread with an event, a consumer, a turn and a blob."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")  # no power is cut here
    with eventq.open(path) as thread:
        thread.push("self", "note", "x", key="k")
        thread.subscribe("w", "true", filter="type = 'note'")
        thread.contexts.create("c").append("hello")
        thread.blobs.put(b"bytes")
        list(thread.peek(filter="type = 'note'"))
        yield thread


TABLE = "ALTER TABLE {0} RENAME TO {0}_of_tomorrow"
COLUMN = "ALTER TABLE {} RENAME COLUMN {} TO other"


@pytest.mark.parametrize(
    ("sql", "call"),
    [
        (TABLE.format("events"), lambda thread: thread.push("self", "note", "y")),
        (TABLE.format("events"), lambda thread: thread.push_many([("self", "note", "y")])),
        (TABLE.format("events"), lambda thread: list(thread.peek())),
        (TABLE.format("events"), lambda thread: list(thread.peek(filter="type = 'note'"))),
        (TABLE.format("events"), lambda thread: thread.pop("w", 0)),
        (TABLE.format("events"), lambda thread: next(thread.follow(0))),
        (TABLE.format("events"), lambda thread: thread.warnings()),
        (COLUMN.format("events", "content"), lambda thread: thread.push("self", "note", "y")),
        (COLUMN.format("events", "content"), lambda thread: thread.push_many([("self", "note", "y")])),
        (COLUMN.format("events", "content"), lambda thread: list(thread.peek())),
        (COLUMN.format("events", "content"), lambda thread: list(thread.peek(filter="content = 'x'"))),
        (
            f"{TABLE.format('events')}; CREATE VIEW events AS SELECT * FROM events_of_tomorrow",
            lambda thread: list(thread.peek(filter="content = 'x'")),
        ),
        (TABLE.format("event_keys"), lambda thread: thread.push("self", "note", "y", key="l")),
        (COLUMN.format("event_keys", "key"), lambda thread: thread.push("self", "note", "y", key="l")),
        (TABLE.format("subscriptions"), lambda thread: thread.subscriptions()),
        (TABLE.format("subscriptions"), lambda thread: thread.subscribe("v", "true")),
        (COLUMN.format("subscriptions", "handler_cmd"), lambda thread: thread.subscribe("v", "true")),
        ("ALTER TABLE subscriptions ADD COLUMN owner TEXT NOT NULL DEFAULT 'x'; DROP TABLE consumer_progress",
         lambda thread: thread.ack("w", 1)),
        (TABLE.format("subscription_state"), lambda thread: thread.resume("w")),
        (TABLE.format("contexts"), lambda thread: thread.contexts.get("c")),
        (TABLE.format("turns"), lambda thread: thread.contexts.get("c").append("more")),
        (COLUMN.format("turns", "type_id"), lambda thread: thread.contexts.get("c").append("more")),
        (TABLE.format("blob_bytes"), lambda thread: thread.blobs.put(b"others")),
        (TABLE.format("artifacts"), lambda thread: thread.artifacts.put(b"x", "tool")),
    ],
)  # fmt: skip
def test_a_thread_that_was_brought_up_to_date_says_so(
    held: eventq.Thread, sql: str, call: Callable[[eventq.Thread], object]
) -> None:
    """A table or column that a newer eventq has moved: the thread is to be opened again, and nobody moves it away.

    Every time it is in the journal as well, for whoever looks after a push whose exit status nobody saw.
    """
    upgrade(held.path, sql)
    for times in (1, 2):
        with pytest.raises(DamagedError, match=SAYS) as caught:
            call(held)
        assert "not one of eventq" not in str(caught.value)
        with open(os.path.join(held.path, "logs", "thread.log")) as file:
            noted = [
                line.partition("[ERROR] ")[2].rstrip("\n") for line in file if "[ERROR]" in line
            ]
        assert set(noted) == {f"database: {caught.value}"}
        assert len(noted) >= times


@pytest.mark.parametrize("shared", [True, False])
def test_a_reader_says_so_too(held: eventq.Thread, shared: bool) -> None:
    """A read-only thread says the same, with or without shared memory."""
    if not shared:
        sqlite(held.database).connection.wal_checkpoint()
        held.close()
        for suffix in ("-wal", "-shm"):
            os.unlink(os.path.join(held.path, "events.db" + suffix))
    with eventq.open(held.path, read_only=True) as reader:
        reader.last()
        reader.last(filter="content = 'x'")
        upgrade(held.path, COLUMN.format("events", "content"))
        for text in (None, "content = 'x'"):
            with pytest.raises(DamagedError, match=SAYS):
                reader.last(filter=text)


def in_a_transaction(thread: eventq.Thread) -> None:
    """Push inside `write`, which begins before."""
    with thread.write():
        thread.push("self", "note", "y")


WRITES: dict[str, Callable[[eventq.Thread], object]] = {
    "push": lambda thread: thread.push("self", "note", "y"),
    "push with a key": lambda thread: thread.push("self", "note", "y", key="l"),
    "batch": lambda thread: thread.push_many([("self", "note", "y")]),
    "question": lambda thread: thread.ask("Well?"),
    "subscribe": lambda thread: thread.subscribe("v", "true"),
    "unsubscribe": lambda thread: thread.unsubscribe("w"),
    "pause": lambda thread: thread.pause("w"),
    "ack": lambda thread: thread.ack("w", 1),
    "pop with an ack": lambda thread: thread.pop("w", 1),
    "replay": lambda thread: thread.ack("w", 0, replay=True),
    "fence": lambda thread: thread.database.consumers.raise_fence("w"),
    "advance": lambda thread: thread.database.consumers.advance("w", 0, 1, 0),
    "scanned": lambda thread: thread.database.consumers.note_scanned(
        thread.database.consumers.all()[0], 1
    ),
    "claim": lambda thread: thread.claim("p"),
    "settle": lambda thread: thread.settle(thread.claim("p")),
    "append": lambda thread: thread.contexts.get("c").append("more"),
    "put": lambda thread: thread.blobs.put(b"others"),
    "open turn": lambda thread: thread.contexts.get("c").open_turn(),
    "discard": lambda thread: thread.contexts.open_turn(1).discard(),
    "artifact": lambda thread: thread.artifacts.put(b"x", "tool"),
    "setting": lambda thread: thread.settings.set("runs.emit", "self"),
    "prune": lambda thread: thread.prune(before_id=2),
    "erase": lambda thread: thread.erasures.event(1),
    "transaction": in_a_transaction,
}


@pytest.fixture
def busy(held: eventq.Thread) -> eventq.Thread:
    """Return the thread with a queue and an open turn, too."""
    held.subscribe("p")
    held.contexts.get("c").open_turn()
    held.pop("w", 0)
    return held


def content(path: str) -> list[tuple[object, ...]]:
    """Return every row of every table."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    found = [row for (name,) in names for row in connection.execute(f"SELECT * FROM {name}")]
    connection.close()
    return found


@pytest.mark.parametrize("name", WRITES)
def test_the_next_write_is_refused(busy: eventq.Thread, name: str) -> None:
    """A migration that only adds stops each open program before it writes by its old rules."""
    upgrade(busy.path, "CREATE TABLE tomorrow (x); ALTER TABLE events ADD COLUMN more TEXT")
    before = content(busy.path)
    for _ in range(2):
        with pytest.raises(DamagedError, match=SAYS):
            WRITES[name](busy)
    assert content(busy.path) == before
    other = apsw.Connection(os.path.join(busy.path, "events.db"))
    other.execute("BEGIN IMMEDIATE; ROLLBACK")  # it holds no lock
    other.close()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_waits_for_a_migration_is_refused(
    busy: eventq.Thread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins while a newer eventq migrates sees the new schema before it writes anything."""
    other = apsw.Connection(os.path.join(busy.path, "events.db"))
    other.execute(f"BEGIN IMMEDIATE; {NEWER}; PRAGMA user_version = {migrate.SCHEMA + 1}")
    waited: list[int] = []

    def commit(_: float) -> None:
        if not waited:
            other.execute("COMMIT")
        waited.append(1)

    monkeypatch.setattr("eventq.system.clock.pause", commit)
    before = content(busy.path)
    with pytest.raises(DamagedError, match=SAYS):
        WRITES[name](busy)
    assert waited
    assert content(busy.path) == before
    other.close()


def test_reads_go_on(held: eventq.Thread) -> None:
    """What still reads goes on, and a check says who has changed the thread."""
    upgrade(held.path, "CREATE TABLE tomorrow (x); ALTER TABLE events ADD COLUMN more TEXT")
    assert [event.content for event in held.pop("w")] == ["x"]
    assert [event.content for event in held.peek(filter="type = 'note'")] == ["x"]
    assert held.contexts.get("c").last()[0].payload == b"hello"
    assert [text.partition(".db' ")[2] for text in held.check()] == [
        f"was written by a newer eventq (schema {migrate.SCHEMA + 1})"
    ]


@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize(
    "text", ["colour = 'red'", '"content2" = 1', "abs(content, 2) = 1", "id = "]
)
def test_the_fault_of_a_filter_is_still_the_filters(
    held: eventq.Thread, text: str, upgraded: bool
) -> None:
    """A filter with an unknown column, or another fault, is refused as a filter."""
    if upgraded:
        upgrade(held.path)
    with pytest.raises(FilterError):
        list(held.peek(filter=text))


def test_a_subscription_that_was_stored_raises_nothing(held: eventq.Thread) -> None:
    """A failure after the commit is a line in the journal: the subscription is stored."""
    newer = f"{COLUMN.format('events', 'content')}; PRAGMA user_version = {migrate.SCHEMA + 1}"
    other = apsw.Connection(os.path.join(held.path, "events.db"))
    other.execute(f"BEGIN IMMEDIATE; {newer}; COMMIT")
    other.close()
    held.subscribe("v", "true", filter="content = 'x'")
    assert [known.consumer_id for known in held.subscriptions()] == ["w", "v"]
    with open(os.path.join(held.path, "logs", "thread.log")) as file:
        assert "[WARN] wake: consumer=v could not be checked ('" in file.read()


def test_a_table_that_somebody_removed_is_no_upgrade(held: eventq.Thread) -> None:
    """With an unchanged version, a missing table is damage, and named."""
    upgrade(held.path, "DROP TABLE subscriptions", migrate.SCHEMA)
    with pytest.raises(
        DamagedError, match=r"lacks a table or a column \(no such table: subscriptions\) - restore"
    ):
        held.subscriptions()


@pytest.mark.parametrize("read_only", [False, True])
def test_opening_what_a_newer_eventq_wrote(path: str, read_only: bool) -> None:
    """Opened again by an old program, the thread asks for a newer one, and does not change."""
    upgrade(path, TABLE.format("subscriptions"))
    with pytest.raises(
        DamagedError, match=rf"a newer eventq \(schema {migrate.SCHEMA + 1}\) - upgrade eventq"
    ):
        eventq.open(path, read_only=read_only)


def test_an_upgrade_while_an_older_program_migrates(
    original: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two programs that migrate at once, the older does not mistake the newer's work."""
    apply = migrate.apply

    def overtaken(*given: object, **more: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "apply", apply)
            eventq.open(original).close()
        upgrade(original)
        apply(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(migrate, "apply", overtaken)
    with pytest.raises(DamagedError, match="a newer eventq"):
        eventq.open(original)
