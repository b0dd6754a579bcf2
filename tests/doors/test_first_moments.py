"""A command that is interrupted before it has begun ends quietly, with the status of an interrupt.

Members of the kind: SIGINT at each import of a command, which reads its modules as it needs them;
of one that click parses, of help, of one that fails; `python -m eventq` and both scripts; SIGTERM,
which ends a program at once. `hook` is silent and exits with 0 once it has begun.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import eventq

ROOT = Path(__file__).parents[2]
# Sends itself a signal when a module is looked for, at the place that is given.
PROGRAM = """
import os, runpy, signal, sys
number, at, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sys.argv[:4] = [path]
class Finder:
    seen = 0
    def find_spec(self, name, *_):
        if name.startswith("eventq"):
            Finder.seen += 1
            if Finder.seen == at:
                os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
if path == "-m":
    runpy.run_module("eventq", run_name="__main__", alter_sys=True)
else:
    runpy.run_path(path, run_name="__main__")
"""


def interrupted(number: int, at: int, path: str, *words: str) -> tuple[int, str]:
    """Return the exit status and stderr of a command that gets a signal at an import."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number), str(at), path, *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("at", [2, 3, 5, 8, 13, 18])
@pytest.mark.parametrize("words", [("info",), ("--help",), ("nonsense",)])
def test_sigint(tmp_path: Path, at: int, words: tuple[str, ...]) -> None:
    """SIGINT at an import ends a command with 130 and without a word."""
    with eventq.open(tmp_path / "t", create=True):
        pass
    more = ["--thread", os.fspath(tmp_path / "t")] if words == ("info",) else []
    assert interrupted(2, at, "scripts/eventq", *words, *more) == (130, "")


@pytest.mark.parametrize("path", ["-m", "scripts/thread"])
def test_other_ways_in(path: str) -> None:
    """So does the module, and the program under its other name."""
    assert interrupted(2, 6, path, "--help") == (130, "")


def test_sigterm() -> None:
    """SIGTERM ends the process as the system does, without a word."""
    assert interrupted(15, 6, "scripts/eventq", "--help") == (-15, "")
