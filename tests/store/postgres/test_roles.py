"""The roles of the guide: its statements are run as printed, and are enough, and no more.

The kind: something needs a right that the document does not name. Members: pushes of each form (a
COPY too), consumers, claims, dead letters, questions, pruning, workers' leases and holds, waiters,
new threads and their end; for a role that reads, everything that shows something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import eventq
from eventq.thread import init_schema, threads
from tests.docs.support import blocks, read
from tests.doors.support import run
from tests.store.postgres.machines import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTE = ("self", "note", "x")


@pytest.fixture
def server(postgres: str) -> Iterator[Server]:
    """Return a server with the tables, where two roles have what the guide grants them."""
    (statements,) = blocks("sql", read("docs/guides/postgresql.md"))
    made = Server()
    try:
        made.start()
        init_schema(made.url)
        made.run("CREATE ROLE app LOGIN; CREATE ROLE viewer LOGIN")
        made.run(statements)
        yield made
    finally:
        made.close()


def as_role(server: Server, role: str) -> str:
    """Return the URL of a thread for a role."""
    return f"{server.url.replace('postgres@', f'{role}@', 1)}&thread=t"


def test_a_role_that_writes(server: Server) -> None:
    """It does everything that a program or a worker does, and leaves the tables alone."""
    url = as_role(server, "app")
    eventq.init(url)
    with eventq.open(url) as thread:
        thread.push(*NOTE)
        thread.push(*NOTE, key="k")
        thread.push_many([NOTE] * 20)
        thread.push_many([NOTE] * 600)
        thread.subscribe("c")
        thread.subscribe("each", "true", each=True)
        thread.ack("c", thread.pop("c")[0].id)
        done, again, dead = thread.claim("c", limit=3)
        done.extend(60)
        done.done()
        again.retry(0, "later")
        dead.dead("never")
        thread.pause("c")
        thread.resume("c")
        assert len([*thread.dead_letters("c")]) == 1
        assert thread.retry_dead(None, "c") == 1
        thread.answer(thread.ask("really?").question_id, "yes")
        with thread.write():
            thread.push(*NOTE)
        with thread.database.watch() as watcher:
            thread.push(*NOTE)
            assert watcher.wait(60)
        thread.database.hold("each").renew()
        lease = thread.database.lease("each")
        assert lease is not None
        lease.note(1)
        lease.release()
        lease.forget()
        thread.prune(keep_last=3, force=True)
        thread.unsubscribe("c")
        assert thread.check() == []
    with psycopg.connect(url.replace("&thread=t", "")) as connection:
        for statement in ("DELETE FROM eventq.migrations", "CREATE TABLE eventq.more ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
    eventq.destroy(url)


READS = [
    ("peek",), ("tail",), ("info",), ("info", "--json"), ("check",), ("claims", "ls", "--consumer", "c"),
    ("dead", "ls", "--consumer", "c"), ("questions",), ("doctor",),
]  # fmt: skip


def test_a_role_that_reads(server: Server) -> None:
    """It sees everything, waits for news, and changes nothing."""
    with eventq.open(as_role(server, "app"), create=True) as thread:
        thread.subscribe("c")
        thread.push(*NOTE)
        url = as_role(server, "viewer")
        for words in READS:
            assert run(*words, "--thread", url).code == 0, words
        assert [*threads(url.replace("&thread=t", ""))] == [url]
        with eventq.open(url, read_only=True) as reader:
            following = reader.follow(1)
            pushed = thread.push(*NOTE)
            assert next(following) == pushed
        assert run("push", "--content", "x", "--thread", url).code == 1
        assert run("subscribe", "--consumer", "d", "--thread", url).code == 1
        assert thread.last_id() == pushed.id
