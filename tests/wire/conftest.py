"""What the tests of the protocol share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire.support import Served, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Until

    Serve = Callable[..., Served]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without syncs: no power is cut here."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")


@pytest.fixture
def serve(path: str, until: Until) -> Iterator[Serve]:
    """Return a function that serves the fresh thread, and checks it at the end."""
    with serving(path, until) as begin:
        yield begin
