"""Running the command line as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

BIN = os.path.dirname(sys.executable)
EVENTQ = os.path.join(BIN, "eventq")


@dataclass
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str


def environ(**more: str) -> dict[str, str]:
    """Give an environment in which nobody is woken, unless told."""
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "EVENTQ_NOTIFIER": "none", **more}


def run(*words: str, given: str | bytes | None = None, program: str = EVENTQ, **more: str) -> Done:
    """Run eventq with these words."""
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [program, *words], input=data, stdin=None if data is not None else subprocess.DEVNULL, capture_output=True,
        env=environ(**more), timeout=300,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
