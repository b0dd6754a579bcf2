"""Processes that look after all threads of a database: what they take of the server.

The kind: a thread costs a server something although nobody does anything with it. Members: a
connection (or four) for each thread of `work`, `ui`, `serve` and MCP; a statement each second for
each thread that is watched; a commit for each hold that is refreshed, and for each note that
somebody waits; an OS thread for each; a start that opens all of them first. And what becomes of the
few connections: one of many OS threads that wait for one goes without it for 30 seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import psycopg
import pytest

import eventq
from eventq.errors import BusyError
from eventq.serving.served import for_each
from eventq.store import opening
from eventq.store.address import parse
from eventq.store.postgres.pool import Pool
from eventq.system import clock
from eventq.thread import init_schema
from tests.doors.support import run
from tests.store.postgres.machines import Server, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.store.protocol import Watchers

THREADS = 60
MOST = 8  # connections of a process
NOTE = ("self", "note", "x")
# Once a look has found all threads asleep, the next ones are a second apart; then it is quiet.
QUIET = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'eventq'"


@pytest.fixture
def server(postgres: str) -> Iterator[Server]:
    """Return a server with many threads, which has fewer connections than those."""
    made = Server()
    try:
        made.start()
        init_schema(made.url)
        opening.share_connections()
        for number in range(THREADS):
            eventq.init(at(made, number))
        opening.unshare_connections()
        yield made
    finally:
        made.close()


def at(server: Server, number: int) -> str:
    """Return the URL of a thread."""
    return f"{server.url}&thread=t{number}"


def connections(server: Server) -> int:
    """Return how many connections of eventq a server has."""
    return int(server.run(QUIET)[0][0])


def is_quiet(watchers: Watchers) -> bool:
    """Return whether nothing changes, and the next look is far."""
    return not watchers.wait(0.1) and watchers.look_at > clock.monotonic() + 2


def started(folder: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Start a command, whose log is in a file."""
    with open(folder / f"log-{uuid4().hex}", "w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "eventq", *words],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), **more},
        )  # fmt: skip


def test_a_worker_of_a_database(server: Server, tmp_path: Path) -> None:
    """It works for all threads over a few connections, also after a restart of the server."""
    allowed = tmp_path / "allowed"
    allowed.write_text("**\n")
    for number in (0, THREADS - 1):
        with eventq.open(at(server, number)) as thread:
            thread.subscribe("w", f"echo {number} >> {tmp_path}/done", each=True)
    worker = started(tmp_path, "work", "--all", server.url, "--allow", str(allowed))
    done = tmp_path / "done"
    try:
        for number in (0, THREADS - 1, 0):
            before = done.read_text() if done.exists() else ""
            with eventq.open(at(server, number)) as thread:
                thread.push(*NOTE)
            until(lambda before=before: done.exists() and done.read_text() != before, "it ran")  # type: ignore[misc]
            assert connections(server) <= MOST
        server.restart()
        with eventq.open(at(server, 0)) as thread:
            thread.push(*NOTE)
        until(lambda: done.read_text().split() == ["0", str(THREADS - 1), "0", "0"], "it goes on")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert worker.returncode == 0


@pytest.mark.soak
def test_a_thread_that_comes_later(server: Server, tmp_path: Path) -> None:
    """A worker of its database finds it within half a minute."""
    allowed, done = tmp_path / "allowed", tmp_path / "done"
    allowed.write_text("**\n")
    with eventq.open(at(server, 0)) as thread:
        thread.subscribe("w", f"echo first >> {done}", each=True)
        thread.push(*NOTE)
    worker = started(tmp_path, "work", "--all", server.url, "--allow", str(allowed))
    try:
        until(done.exists, "the worker works")
        with eventq.open(eventq.init(at(server, THREADS))) as thread:
            thread.subscribe("w", f"echo later >> {done}", each=True)
            thread.push(*NOTE)
        until(lambda: "later" in done.read_text(), "a new thread is found")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)


def test_a_watcher_of_many_threads(server: Server) -> None:
    """A look is one statement, whatever their number; where all is quiet there is one in ten s."""
    opening.share_connections()
    watchers = opening.watchers(parse(server.url))
    names = {f"t{number}" for number in range(THREADS)}
    try:
        for name in names:
            watchers.add(name)
        assert watchers.wait(0) == names
        until(partial(is_quiet, watchers), "quiet")
        until(lambda: connections(server) == 2, "one listens, and one looks")
        with eventq.open(at(server, 7)) as thread:
            thread.push(*NOTE)
            assert watchers.wait(60) == {"t7"}
            eventq.destroy(at(server, 8))
            assert watchers.wait(60) - {"t7"} == {"t8"}
    finally:
        watchers.close()
        opening.unshare_connections()
    until(lambda: connections(server) == 0, "all are closed")


def test_notices_of_the_memory(server: Server) -> None:
    """Who watches that gets them, and no look is needed; who works for consumers is left alone."""
    made = [opening.watchers(parse(server.url), memory=memory) for memory in (False, True)]
    works, watches = made
    try:
        for one in made:
            one.add("t7")
            until(partial(is_quiet, one), "quiet")
            one.look_at = clock.monotonic() + 3600
        with eventq.open(at(server, 7)) as thread:
            turn = thread.contexts.create("main").append("x")
            assert watches.wait(60) == {"t7"}
            until(lambda: not watches.wait(0.1), "all is heard")
            thread.contexts.get("main").move(0)
            assert watches.wait(60) == {"t7"}
            assert works.wait(0) == set()
            thread.push(*NOTE)
            assert works.wait(60) == watches.wait(60) == {"t7"}
            assert turn.turn_id == 1
    finally:
        for one in made:
            one.close()


def test_os_threads_that_need_several_connections(server: Server) -> None:
    """Those who hold one get another, however many wait for their first."""
    opening.share_connections()
    opened = [eventq.open(at(server, number)) for number in range(20)]
    barrier = threading.Barrier(len(opened))

    def work(thread: eventq.Thread) -> None:
        barrier.wait(60)
        for _ in range(5):
            with thread.write():
                thread.push(*NOTE)
                lease = thread.database.lease("w")  # beside the transaction
                assert lease is not None
                lease.release()
                lease.forget()
            assert thread.last_id()

    try:
        with ThreadPoolExecutor(len(opened)) as workers:
            for done in [workers.submit(work, thread) for thread in opened]:
                done.result(timeout=60)
        assert [thread.last_id() for thread in opened] == [5] * len(opened)
        assert 0 < connections(server) < MOST
    finally:
        for thread in opened:
            thread.close()
        opening.unshare_connections()
    until(lambda: connections(server) == 0, "all are closed")


def test_a_shared_connection_that_was_ended(server: Server) -> None:
    """Those that wait in the pool are tried before they are used; no call fails."""
    opening.share_connections()
    try:
        with eventq.open(at(server, 1)) as one, eventq.open(at(server, 2)) as two:
            with one.write():
                two.push(*NOTE)
            until(lambda: connections(server) == 2, "both use one")
            end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            server.run(f"{end} WHERE application_name = 'eventq'")
            with one.write():
                one.push(*NOTE)
                two.push(*NOTE)
            assert (one.last_id(), two.last_id()) == (1, 2)
    finally:
        opening.unshare_connections()


def test_a_server_of_a_database(server: Server, tmp_path: Path) -> None:
    """It listens at once, and opens threads when they are asked for, over a few connections."""
    token = "a token"
    held = psycopg.connect(server.url)
    held.execute("LOCK TABLE eventq.migrations")  # nobody can open a thread
    served = started(
        tmp_path, "ui", "--all", server.url, "--http", "127.0.0.1:0", "--no-browser", "--json",
        EVENTQ_TOKEN=token,
    )  # fmt: skip
    try:
        assert served.stdout is not None
        place = json.loads(served.stdout.readline())["listening"]
        held.close()
        until(lambda: connections(server) <= 2, "none is opened before it is asked for")
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=place, headers=headers, timeout=60) as client:
            assert len(client.get("/api/threads").json()["threads"]) == THREADS
            numbers = range(THREADS)
            with ThreadPoolExecutor(20) as workers:
                posted = [
                    workers.submit(
                        client.post, f"/api/threads/t{number}/events", json={"content": "x"}
                    )
                    for number in numbers
                ]
                assert {one.result().status_code for one in posted} == {201}
                for path in ("/", "/metrics", "/api/health"):
                    assert client.get(path).status_code == 200
                    assert connections(server) <= MOST
            at_end = {
                number: client.get(f"/api/threads/t{number}/events").json() for number in numbers
            }
            assert at_end
            with ExitStack() as stack:
                for number in numbers:
                    path = f"/api/threads/t{number}/events/stream?after=1"
                    stack.enter_context(client.stream("GET", path))
                waiting = stack.enter_context(
                    client.stream("GET", "/api/threads/t7/events/stream?after=1")
                )
                lines = waiting.iter_lines()
                assert next(lines) == ": connected"
                with eventq.open(at(server, 7)) as thread:
                    thread.push("self", "note", "news")
                assert any("news" in line for line in lines)
                assert connections(server) <= MOST
    finally:
        held.close()
        served.send_signal(signal.SIGTERM)
        served.communicate(timeout=60)
    assert served.returncode == 0


def test_a_url_with_a_password(server: Server, tmp_path: Path) -> None:
    """The threads that a database lists are opened with it, and nothing shows it."""
    server.run("CREATE ROLE bob LOGIN SUPERUSER PASSWORD 's3cr3t'")
    server.write("pg_hba.conf", "local all bob scram-sha-256\nlocal all all trust\n", "w")
    server.run("SELECT pg_reload_conf()")
    url = server.url.replace("postgres@", "bob:s3cr3t@", 1)
    allowed, done = tmp_path / "allowed", tmp_path / "done"
    allowed.write_text("**\n")
    with eventq.open(at(server, 3)) as thread:
        thread.subscribe("w", f"echo it ran >> {done}", each=True)
        thread.push(*NOTE)
    worker = started(tmp_path, "work", "--all", url, "--allow", str(allowed))
    words = ("ui", "--all", url, "--http", "127.0.0.1:0", "--no-browser", "--json")
    served = started(tmp_path, *words, EVENTQ_TOKEN="a token")
    try:
        until(done.exists, "the handler ran")
        assert served.stdout is not None
        place = json.loads(served.stdout.readline())["listening"]
        headers = {"authorization": "Bearer a token"}
        with httpx.Client(base_url=place, headers=headers, timeout=60) as client:
            listed = client.get("/api/threads").text
            assert client.get("/api/threads/t3/events").json()["events"][0]["content"] == "x"
        said = listed + "".join(log.read_text() for log in tmp_path.glob("log-*"))
        assert "s3cr3t" not in said
        assert "bob@" in said
    finally:
        for process in (worker, served):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def test_a_look_at_a_database(server: Server) -> None:
    """`top` shows more threads than a server has connections."""
    with eventq.open(at(server, 59)) as thread:
        thread.ask("really?")
    shown = run("top", "--all", server.url)
    assert (shown.code, "t59: " in shown.out) == (0, True), shown


def test_connections_are_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives one back and wants it again passes those who wait already, but not for long."""
    monkeypatch.setattr("eventq.store.postgres.pool.MOST", 3)  # two are for who holds some
    shared, me, taken = Pool("'db'"), threading.get_ident(), list[str]()

    def other() -> None:
        shared.take()
        taken.append("other")
        shared.give(None, threading.get_ident())

    for _ in range(20):
        shared.take()
        waiter = threading.Thread(target=other)
        waiter.start()
        until(partial(_is_waiting, waiter), "it waits")
        for _ in range(17):
            shared.give(None, me)
            shared.take()
            taken.append("me")
        assert taken.pop(taken.index("other")) == "other"
        shared.give(None, me)
        waiter.join()
    assert shared.out == 0


def _is_waiting(waiter: threading.Thread) -> bool:
    frame = sys._current_frames().get(waiter.ident or 0)  # noqa: SLF001 (the only view of it)
    return frame is not None and frame.f_code.co_name == "wait"


def test_who_waited_too_long_is_in_nobody_s_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and the next one is served; so is one who holds a connection and needs another."""
    monkeypatch.setattr("eventq.store.postgres.pool.MOST", 3)
    monkeypatch.setattr("eventq.store.postgres.pool.WAIT_SECONDS", 0)
    shared, me = Pool("'db'"), threading.get_ident()
    shared.take()
    with ThreadPoolExecutor(1) as others:
        with pytest.raises(BusyError, match="3 connections to 'db' were in use"):
            others.submit(shared.take).result()
        shared.take()
        shared.give(None, me)
        shared.give(None, me)
        assert others.submit(shared.take).result() is None


def test_a_few_of_many_threads_are_looked_at_at_once() -> None:
    """A page of all, the metrics and the health let nobody wait long for one of few connections."""
    under_way, most = 0, 0

    async def look(number: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    for is_url, least, largest in ((True, 3, 32), (False, 1, 2)):
        under_way = most = 0
        threads: Any = [SimpleNamespace(is_url=is_url) for _ in range(1000)]
        assert asyncio.run(for_each(look, threads)) == threads
        assert least <= most <= largest
