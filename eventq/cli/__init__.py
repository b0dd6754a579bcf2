"""The command line: a skin over the library.

Plain words and `--name value` pairs are recognised here, from the tables that click's commands are
built from; the rest (help, errors, completion, anything unusual) is left to click, whose import
alone costs more than a push. A test holds that the quick way either declines or agrees with click.
"""

from __future__ import annotations

import gc
import os
import sys

from eventq.cli.groups import find
from eventq.cli.table import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command that `sys.argv` names and exit with its status."""
    gc.set_threshold(50_000, 50)  # imports make many objects that stay; looking at them takes 2 ms
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    os._exit(code)  # nothing is left to tidy up, and the interpreter takes its time over it


def run(argv: Sequence[str]) -> int:
    """Run a command and give its exit status."""
    if not any(name.startswith(("_EVENTQ_COMPLETE", "_THREAD_COMPLETE")) for name in os.environ):
        found = find(argv)
        raw = parse(*found) if found else None
        if found and raw is not None:
            from eventq.cli.execute import execute

            return execute(found[0], raw)
    from eventq.cli.app import run_click

    return run_click(list(argv))
