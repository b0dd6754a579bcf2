"""The generated statements of the memory: up to date, taken by a server, tied to their thread."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from eventq.store.postgres.statements import STATEMENTS
from scripts import sqlgen

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = sqlgen.tables()


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    """Return a connection to a server with the tables."""
    with psycopg.connect(postgres, autocommit=True) as made:
        yield made


def test_they_are_those_of_the_areas() -> None:
    """The file is what the generator writes now."""
    assert Path(sqlgen.TARGET).read_text(encoding="utf-8") == sqlgen.generated()


@pytest.mark.parametrize("key", STATEMENTS)
def test_the_server_takes_each(server: psycopg.Connection[Any], key: str) -> None:
    """Each can be prepared, with types that follow from it, also for many rows."""
    name = f"s{key}"
    for text in filter(None, STATEMENTS[key][2:]):
        server.execute(f"PREPARE {name} AS {text}")
        server.execute(f"DEALLOCATE {name}")
