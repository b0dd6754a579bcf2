"""The tables of eventq in a database, and the threads in them.

The owner of the schema makes the tables, with `init`; whoever opens a thread changes none of them.
"""

from __future__ import annotations

import os
from random import SystemRandom

import psycopg
from psycopg import errors

from eventq.errors import (
    DamagedError,
    InputError,
    NotAThreadError,
    StoreError,
    ThreadExistsError,
)
from eventq.record import Record
from eventq.store.migrations import files
from eventq.store.postgres import failures, questions
from eventq.store.postgres.connection import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from eventq.store.address import Address

    T = TypeVar("T")

# ruff: noqa: S608 (the names of tables are constants)

SCHEMA = 7  # the number of the newest migration: a test compares it with the files
# True, and refused once the tables are of another schema: of a row that every change touches.
IS_CURRENT = f"schema_{SCHEMA} IS NULL"
_DERIVED = 4  # the first whose open questions have been derived from the events
MAX_NAME = 1_000  # bytes of the name of a thread or a consumer: an index has room for no more

_HAS_TABLES = "SELECT to_regclass('eventq.migrations') IS NOT NULL"
_NUMBER = "SELECT coalesce(max(number), 0) FROM eventq.migrations"
_APPLIED = "INSERT INTO eventq.migrations (number, name) VALUES (%(number)s, %(name)s)"
_FIND = """
SELECT m.number, m.first, t.thread_id,
    (SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('eventq.turns'))
FROM (
    SELECT max(number) AS number, extract(epoch FROM min(applied_at))::text AS first
    FROM eventq.migrations
) m
    LEFT JOIN eventq.threads t ON t.bucket = %(b)s AND t.tenant = 0 AND t.name = %(name)s
"""
_MAKE = """
INSERT INTO eventq.threads (bucket, thread_id, name)
VALUES (%(b)s, %(t)s, %(name)s)
ON CONFLICT DO NOTHING
RETURNING 1
"""
_COUNT = "INSERT INTO eventq.counters (bucket, thread_id) VALUES (%(b)s, %(t)s)"
_LIST = """
SELECT name
FROM eventq.threads
WHERE tenant = 0
ORDER BY name
"""
# Threads with an open question, a dead letter, or a consumer that stands still.
_NEEDING = """
SELECT name
FROM eventq.threads t
WHERE tenant = 0
    AND (
        EXISTS (
            SELECT 1
            FROM eventq.open_questions q
            WHERE q.bucket = t.bucket AND q.thread_id = t.thread_id
        )
        OR EXISTS (
            SELECT 1
            FROM eventq.dead_letters d
            WHERE d.bucket = t.bucket AND d.thread_id = t.thread_id
        )
        OR EXISTS (
            SELECT 1
            FROM eventq.consumers c
            WHERE c.bucket = t.bucket
                AND c.thread_id = t.thread_id
                AND position IS NOT NULL
                AND (blocked_at IS NOT NULL
                    OR (stalled IS NOT NULL AND stalled_at = coalesce(acked, 0)))
        )
    )
"""
# Somebody else was quicker, or a write had one of the tables and waited for another.
_OVERTAKEN = (
    errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema, errors.DeadlockDetected,
)  # fmt: skip
# What refers to another stands before it.
TABLES = (
    "threads", "counters", "events", "event_keys", "event_blob_refs", "consumers", "unfinished",
    "dead_letters", "claim_nonces", "queue_counts", "open_questions", "event_causes",
    "usage_read", "usage", "settings", "erased_blobs", "erasures", "session_tips", "session_lines",
    "sessions", "files",
    "agent_outputs", "artifact_chunks", "removed_artifacts", "artifacts", "scope_counters",
    "scopes", "run_attempts", "runs", "run_changes", "open_pieces", "open_turns", "turn_keys",
    "context_log", "contexts", "turn_causes", "turn_roots", "turn_patches", "turns",
    "blob_names", "pins", "blob_refs", "blob_parts", "blob_bytes", "blobs",
)  # fmt: skip


class Found(Record):
    """A thread in a database; `identity` tells it from all others there ever were.

    `parted` says whether the tables are in partitions by bucket.
    """

    bucket: int
    thread_id: int
    identity: str
    parted: bool


def find(link: Link, address: Address) -> Found:
    """Return the thread at an address. Raises NotAThreadError, and errors about the tables."""
    bucket = address.bucket
    try:
        ((number, first, thread_id, parted),) = link.run(_FIND, {"b": bucket, "name": address.name})
    except errors.UndefinedTable as error:
        raise _no_tables(address) from error
    _check(number or 0, address)
    if thread_id is None:
        raise NotAThreadError(address.shown)
    return Found(bucket, thread_id, f"{first}:{thread_id}", bool(parted))


def _no_tables(address: Address) -> StoreError:
    place = address.database
    return StoreError(
        f"there are no tables of eventq in '{place}'", f"run {failures.makes_tables(place)} first"
    )


def _check(number: int, address: Address) -> None:
    """Raise an error for tables that are older or newer than this program."""
    place = address.database
    if number > SCHEMA:
        raise DamagedError(
            f"'{place}' was set up by a newer eventq (schema {number})",
            "upgrade eventq to open it",
        )
    if number < SCHEMA:
        raise StoreError(
            f"the tables in '{place}' are of an older eventq (schema {number})",
            f"let their owner run {failures.makes_tables(place)}",
        )


def _linked(
    address: Address, call: Callable[[Link], T], *, again: bool = False, changes: bool = True
) -> T:
    """Call a function with a connection of its own; see `Link.tried`."""
    link = Link(address)
    try:
        return link.tried(call, again=again, changes=changes)
    except psycopg.Error as error:
        raise failures.translate(error, address) from error
    finally:
        link.close()


def init(address: Address) -> int:
    """Make the tables, or bring them up to date; return the number of the newest migration.

    Several at once get in each other's way: all but one wait, or begin again.
    """
    return _linked(address, lambda link: _migrate(link, address), again=True)


def _check_encoding(link: Link, address: Address) -> None:
    """Raise StoreError for a database that cannot hold every text, or not as what it is."""
    encoding = link.run("SHOW server_encoding", {})[0][0]
    if encoding != "UTF8":
        raise StoreError(
            f"'{address.database}' keeps text as {encoding}, and eventq needs UTF8",
            "give another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


def _migrate(link: Link, address: Address) -> int:
    _check_encoding(link, address)
    number = _number(link)
    _check(max(number, SCHEMA), address)  # newer than this program
    for number, path in files("postgres"):
        with open(path, encoding="utf-8") as file:
            script = file.read()
        while _number(link) < number:
            try:
                _apply(link, number, os.path.basename(path), script)
            except _OVERTAKEN:
                link.script("ROLLBACK")
    return _number(link)


def _number(link: Link) -> int:
    if not link.run(_HAS_TABLES, {})[0][0]:
        return 0
    return int(link.run(_NUMBER, {})[0][0])


def _apply(link: Link, number: int, name: str, script: str) -> None:
    link.script("BEGIN")
    if number > 1:
        link.script("LOCK TABLE eventq.migrations IN EXCLUSIVE MODE")
    if _number(link) < number:
        link.script(script)
        if number == _DERIVED:
            questions.derive(link)
        link.run(_APPLIED, {"number": number, "name": name})
    link.script("COMMIT")


def create(address: Address) -> bool:
    """Make a thread; return False when there is one of its name."""
    size = len(address.name.encode())
    if size > MAX_NAME:
        raise InputError(
            f"the name of the thread is too long ({size} bytes, the limit is {MAX_NAME})",
            "choose a shorter one",
        )
    return _linked(address, lambda link: _create(link, address))


def _create(link: Link, address: Address) -> bool:
    while True:
        values = {"b": address.bucket, "t": SystemRandom().getrandbits(31), "name": address.name}
        try:
            return _made(link, address, values)
        except errors.UniqueViolation:
            link.script("ROLLBACK")  # a number that was given before


def _made(link: Link, address: Address, values: dict[str, object]) -> bool:
    link.script("BEGIN")
    number = _number(link)
    if not number:
        raise _no_tables(address)
    _check(number, address)
    is_new = bool(link.run(_MAKE, values))
    if is_new:
        link.run(_COUNT, values)
    link.script("COMMIT")
    return is_new


def init_thread(address: Address) -> None:
    """Make a thread. Raises ThreadExistsError when there is one of its name."""
    if not create(address):
        raise ThreadExistsError(address.shown)


def names(address: Address, *, needing: bool = False) -> list[str]:
    """Return the names of all threads in a database, sorted; perhaps of those that need a person.

    The latter are found by a few looks at indexes, and come in any order.
    """

    def read(link: Link) -> list[str]:
        try:
            return [name for (name,) in link.run(_NEEDING if needing else _LIST, {})]
        except errors.UndefinedTable as error:
            raise _no_tables(address) from error

    return _linked(address, read, again=True, changes=False)


def destroy(address: Address) -> None:
    """Delete a thread and everything in it. Raises NotAThreadError."""
    _linked(address, lambda link: _destroy(link, address))


def _destroy(link: Link, address: Address) -> None:
    found = find(link, address)
    keys = {"b": found.bucket, "t": found.thread_id}
    where = "WHERE bucket = %(b)s AND thread_id = %(t)s"
    link.script("BEGIN")
    # First, so that all who have it open notice at once, and no write is under way.
    link.run(f"DELETE FROM eventq.counters {where}", keys)
    for table in TABLES:
        link.run(f"DELETE FROM eventq.{table} {where}", keys)
    link.script(f"NOTIFY eventq_{found.thread_id}; COMMIT")
