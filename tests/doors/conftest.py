"""What the tests of the command line share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inbox(tmp_path: Path) -> str:
    """A thread."""
    return eventq.init(tmp_path / "inbox")
