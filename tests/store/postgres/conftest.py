"""Fixtures of PostgreSQL's own tests."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from eventq.store import opening
from tests.store.postgres.pooler import Pooler

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pooler(postgres: str) -> Iterator[Pooler]:
    """Return a pooler before the server."""
    made = Pooler(postgres)
    yield made
    made.close()


@pytest.fixture
def shared_connections() -> Iterator[None]:
    """Let what is opened share its connections, as in a server."""
    opening.share_connections()
    yield
    opening.unshare_connections()


@pytest.fixture
def empty(postgres: str) -> Iterator[str]:
    """Return the URL of a database without tables."""
    name = f"d{uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        yield postgres.replace("/postgres?", f"/{name}?")
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(autouse=True)
def _lasting_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no plan grow old: making it anew is one message more for those who count them."""
    monkeypatch.setattr("eventq.store.postgres.pool.FIRST_PLANS_SECONDS", 3600)
