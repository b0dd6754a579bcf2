"""The engines that the contract of `eventq.storage.base` is tested on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.storage.sqlite.database import Database


@pytest.fixture(params=["sqlite"])
def opened(path: str, quick: None) -> Iterator[eventq.Thread]:
    """Return a fresh thread on each engine, to make what other areas hold."""
    with eventq.open(path) as thread:
        yield thread


@pytest.fixture
def database(opened: eventq.Thread) -> Database:
    """Return the database of a fresh thread on each engine."""
    return opened.database


@pytest.fixture
def second(opened: eventq.Thread) -> Iterator[Database]:
    """Return the same database, opened by somebody else."""
    with eventq.open(opened.path) as thread:
        yield thread.database
