"""What the tests of plans share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.support import copy
from tests.plans.test_plans import Traced, opened

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["plain", "analysed"])
def traced(
    request: pytest.FixtureRequest, path: str, full: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Traced]:
    """Return a traced thread with all that `full` has, with and without what ANALYZE finds out."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    copy(full, path)
    made = opened(path, analysed=request.param == "analysed")
    assert made.plain.execute("SELECT count(*) FROM blobs").get
    yield made
    made.close()
