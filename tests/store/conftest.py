"""The engines that the contract of `eventq.store.protocol` is tested on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from tests.servers import ENGINES, fresh, use_our_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.protocol import Database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each engine, or on those that its marker names."""
    if "opened" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("engines")
        own = metafunc.definition.path.parent.name  # of a folder of one engine's own tests
        named = (own,) if own in ENGINES else ENGINES
        metafunc.parametrize("opened", marker.args if marker else named, indirect=True)


@pytest.fixture
def opened(request: pytest.FixtureRequest, quick: None) -> Iterator[eventq.Thread]:
    """Return a fresh thread on each engine, to make what other areas hold."""
    if request.param == "postgres":
        path = fresh(request.getfixturevalue("postgres"))
    else:
        path = request.getfixturevalue("path")
    with eventq.open(path) as thread:
        use_our_clock(thread.database)
        yield thread


@pytest.fixture
def database(opened: eventq.Thread) -> Database:
    """Return the database of a fresh thread on each engine."""
    return opened.database


@pytest.fixture
def second(opened: eventq.Thread) -> Iterator[Database]:
    """Return the same database, opened by somebody else."""
    with eventq.open(opened.path) as thread:
        use_our_clock(thread.database)
        yield thread.database
