"""What the tests of the protocol share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventq.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _signatures() -> Iterator[None]:
    """Forget the signatures of methods that a test has replaced."""
    yield
    calls.signature_of.cache_clear()
