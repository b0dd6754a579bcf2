"""The roles of the guide: its statements are run as printed, and are enough, and no more.

The kind: something needs a right that the document does not name. Members: pushes of each form (a
COPY too), consumers, claims, dead letters, questions, pruning, workers' leases and holds, waiters,
new threads and their end, all areas of the memory; for a role that reads, everything that shows
something, also over HTTP; and each change says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import eventq
from eventq.thread import init_schema, threads
from tests.contract.runs import full
from tests.contract.support import rows_of
from tests.docs.support import blocks, read
from tests.doors.support import run
from tests.store.postgres.machines import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def remember(thread: eventq.Thread) -> None:
    """Change each area of the memory."""
    full(thread)
    context = thread.contexts.create("main")
    turn = context.append("said")
    thread.contexts.fork(context).move(0)
    thread.erasures.turn(context.append("a secret").turn_id)
    context.open_turn().append_delta("open")
    context.patch(turn.turn_id, "patched")
    thread.blobs.pin(thread.blobs.put(b"kept").ref, "me")
    thread.artifacts.put(b"an artifact")
    thread.outputs.publish("0-a", b"an output")
    thread.settings.set("runs.emit", "on")
    thread.gc(grace=0, apply=True)


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
        remember(thread)
        assert thread.check() == []
    with psycopg.connect(url.replace("&thread=t", "")) as connection:
        for statement in ("DELETE FROM eventq.migrations", "CREATE TABLE eventq.more ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
    eventq.destroy(url)


READS = [
    "peek", "tail", "info", "info --json", "check", "claims ls --consumer c", "questions", "doctor",
    "dead ls --consumer c", "pop --consumer c", "context ls --graph", "context show main", "top",
    "context log main", "turn last main", "turn before main --turn 10", "turn range main --from 0",
    "turn replay main", "turn show 1", "turn diff main --with fork", "turn opened", "run ls --all",
    "run show 2", "run messages 2 --role a", "blob ls", "blob verify", "artifact ls", "output ls",
    "artifact cat 0", "cat agent://0-a", "session ls", "gc", "gc --reachable turn:1", "config",
    "erasures", "prune --keep-last 9 --dry-run", "artifact export out", "pack export pack",
]  # fmt: skip
CHANGES = [
    "push x", "push x --key k", "subscribe --consumer d", "unsubscribe --consumer c", "ask x",
    "pause --consumer c", "ack --consumer c --last-event-id 1", "claim --consumer c",
    "context create", "context fork main", "context move main --to 1", "context rm fork",
    "turn append main --content x", "turn patch 1 --content x", "turn erase 1", "turn discard 1",
    "run start --name r --prompt x", "run step 2 --role a --content x", "run cancel 2", "run rm 2",
    "blob put /etc/hosts", "artifact put /etc/hosts", "artifact rm 0", "artifact erase 0",
    "output put a --content x", "gc --apply", "prune --keep-last 0 --force", "event erase 1",
    "config runs.emit on", "pack import pack", "artifact import out",
]  # fmt: skip


def test_a_role_that_reads(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees everything, waits for news, and changes nothing."""
    monkeypatch.chdir(tmp_path)
    with eventq.open(as_role(server, "app"), create=True) as thread:
        thread.subscribe("c")
        thread.push(*NOTE)
        full(thread)
        context = thread.contexts.create("main")
        assert context.append("said").turn_id == 10
        thread.contexts.fork(context, name="fork")
        context.open_turn().append_delta("open")
        thread.artifacts.put(b"an artifact")
        thread.outputs.publish("0-a", b"an output")
        url = as_role(server, "viewer")
        for words in READS:
            done = run(*words.split(), "--thread", url)
            assert (done.code, "Error" in done.err) == (0, False), (words, done.err)
        before = rows_of(thread.database)
        for words in CHANGES:
            done = run(*words.split(), "--thread", url)
            assert (done.code, done.err.count("\n")) == (1, 1), (words, done)
            assert "the role may not do this" in done.err, (words, done.err)
            assert "let the owner of the schema grant it" in done.err
        assert rows_of(thread.database) == before
        assert [*threads(url.replace("&thread=t", ""))] == [url]
        with eventq.open(url, read_only=True) as reader:
            following = reader.follow(1)
            pushed = thread.push(*NOTE)
            assert next(following) == pushed
        assert thread.last_id() == pushed.id


def test_what_roles_may_copy(server: Server, tmp_path: Path) -> None:
    """Who reads copies a whole thread from there, and into it nothing; who writes copies both ways."""
    here, back = str(tmp_path / "here"), str(tmp_path / "back")
    with eventq.open(here, create=True) as thread:
        thread.contexts.create("main").append("text")
        thread.push(*NOTE)
        thread.subscribe("c")
    url, read_url = as_role(server, "app"), as_role(server, "viewer")
    for is_there in (False, True):
        done = run("thread", "copy", "--all", here, read_url)
        assert (done.code, done.out) == (1, "")
        assert "the role may not do this" in done.err
        assert "let the owner of the schema grant it" in done.err
        assert eventq.exists(url) is is_there
        assert run("thread", "copy", "--all", here, url).code == 0
    assert run("thread", "copy", "--all", read_url, back).code == 0
    with eventq.open(back) as copy, eventq.open(here) as thread:
        assert [*copy.peek()] == [*thread.peek()]
        assert copy.check() == []
