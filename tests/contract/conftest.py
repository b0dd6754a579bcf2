"""Fixtures of the library's tests: a context, a folder, a second thread, a moving clock."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.output import entries
from eventq.store.paths import is_shared
from eventq.store.postgres.database import Database
from eventq.system import clock
from tests.contract.support import dump, rows_of
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq import Context, Thread
    from tests.conftest import Clock
    from tests.contract.support import Tables


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each engine that its marker names; what looks into the file, on SQLite.

    On those that `soaked` names it runs in the soak only.
    """
    marker = metafunc.definition.get_closest_marker("engines")
    if marker and "path" in metafunc.fixturenames and "raw" not in metafunc.fixturenames:
        soaked = marker.kwargs.get("soaked", ())
        later = [pytest.param(engine, marks=pytest.mark.soak) for engine in soaked]
        metafunc.parametrize("path", [*marker.args, *later], indirect=True)


@pytest.fixture
def path(
    request: pytest.FixtureRequest, _pristine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the path of a fresh thread that nobody has opened, or its URL."""
    if getattr(request, "param", "sqlite") == "postgres":
        monkeypatch.setattr(Database, "clock", lambda _: int(clock.now() * 1000))
        monkeypatch.chdir(tmp_path)  # where a test writes files "beside" a thread that is a URL
        request.getfixturevalue("crowd")
        url = fresh(request.getfixturevalue("postgres"))
        os.makedirs(url)
        return url
    return str(shutil.copytree(_pristine, tmp_path / "thread"))


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread; it must check out when the test is over."""
    with eventq.open(path) as opened:
        yield opened
    with eventq.open(path) as again:
        assert again.check() == []


@pytest.fixture
def handler(path: str) -> str | None:
    """Return a handler that does nothing, or None where no handler runs."""
    return None if is_shared(path) else "true"


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Let every look at the clock find it a millisecond later, so that nothing is a twin."""

    def tick() -> float:
        clock.move(0.001)
        return clock.at

    monkeypatch.setattr("eventq.system.clock.now", tick)


@pytest.fixture
def other(_pristine: str, tmp_path: Path) -> Iterator[eventq.Thread]:
    """Return a second fresh thread; it must check out when the test is over."""
    with eventq.open(shutil.copytree(_pristine, tmp_path / "other")) as opened:
        yield opened
        assert opened.check() == []


@pytest.fixture
def context(thread: Thread) -> Context:
    """Return an empty context of a thread that must check out."""
    return thread.contexts.create("main")


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


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return an empty folder."""
    made = tmp_path / "folder"
    made.mkdir()
    return str(made)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits for text and base64 to a few characters, for random values."""
    monkeypatch.setattr(entries, "MAX_CHARS", 80)  # a ref has 76
    monkeypatch.setattr(entries, "NOTICE", "\n[cut]")
    monkeypatch.setattr(entries, "THRESHOLD", 8)
