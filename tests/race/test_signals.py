"""Real signals, whose handler raises, at random moments of all that a thread is used for.

The other kinds of interrupts are in `tests/store/sqlite/test_interrupts.py`, at each call.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.soak)])
def test_signals_lose_nothing_and_hold_nothing(tmp_path: Path, count: int) -> None:
    """Nothing acknowledged is lost, no lock stays held, and the mirror is the log again."""
    seed = str(int.from_bytes(os.urandom(3), "big"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.race.signals", str(tmp_path / "t"), str(count), seed],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode, "sound" in done.stdout) == (0, True), f"seed {seed}: {done.stdout}"
