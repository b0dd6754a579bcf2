"""What the tests of the command line share."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inbox(_pristine: str, tmp_path: Path) -> str:
    """A thread."""
    return str(shutil.copytree(_pristine, tmp_path / "inbox"))
