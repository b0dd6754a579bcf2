"""The command line: a skin over the library.

A quick parser recognises plain words and `--name value` pairs, from the tables that click's
commands are built from. The rest (help, errors, completion, anything unusual) is left to click,
whose import alone costs more than a push. A test ensures that the quick parser either declines or
agrees with click.
"""

from __future__ import annotations

import gc
import os
import sys

from eventq.cli.groups import find
from eventq.cli.show import keep_streams
from eventq.cli.table import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command that `sys.argv` names and exit with its status."""
    gc.set_threshold(50_000, 50)  # imports create many objects that stay; scanning them takes 2 ms
    keep_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    os._exit(code)  # nothing is left to clean up, and the interpreter's shutdown takes time


def run(argv: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    if not any(name.startswith(("_EVENTQ_COMPLETE", "_THREAD_COMPLETE")) for name in os.environ):
        found = find(argv)
        raw = parse(*found) if found else None
        if found and raw is not None:
            from eventq.cli.execute import execute

            return execute(found[0], raw)
    from eventq.cli.app import run_click

    return run_click(list(argv))
