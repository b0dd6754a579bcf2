"""`eventq capture`: a command's output, bounded on stdout, whole in an artifact."""

from __future__ import annotations

import select

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, THREAD
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.records import Captured
    from eventq.thread import Thread

    class View(TypedDict):
        """What is shown, and when all is kept."""

        keep: bool
        spill: int
        head: int
        columns: int
        sanitize: bool


def capture(thread: Thread, *, cmd: list[str], tool: str | None, view: View, json: bool) -> int:
    """Run a command, show part of its output, and exit as it does.

    All of the output is kept as an artifact when that is not all.
    """
    shown = _Shown(quiet=json)
    code, captured = thread.capture(cmd, tool=tool, show=shown, **view)
    if captured.error is not None:
        what = f"not all of the output was kept: {captured.error}"
        show.error(what, "mend that, and run the command again", as_json=json)
    try:
        if json:
            fields = render.fields(captured)
            number = fields.pop("artifact_id")
            url, error = number and f"artifact://{number}", fields.pop("error")
            show.dump({"exit_code": code, **fields, "artifact": url, "error": error})
        else:
            shown.rest(captured)
    except show.Closed:
        pass
    return code


_PIECE = 4096  # bytes: what a pipe that takes something takes at once


class _Shown:
    """What was written to stdout; a reader who has gone or does not read holds nothing up."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._size = 0
        self._waiting = b""

    def __call__(self, data: bytes) -> None:
        """Write what comes next, as far as it is taken at once: only the head of a view can wait."""
        self._waiting += data
        while self._waiting and not self._quiet and _takes():
            self._write(self._waiting[:_PIECE])
            self._waiting = self._waiting[_PIECE:]

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        try:
            show.out(data)
        except show.Closed:
            self._quiet = True
        except LogicError as failure:
            self._quiet = True
            show.error(failure.what, failure.fix, as_json=False)

    def rest(self, captured: Captured) -> None:
        """Write what was not written yet, and where all of it is."""
        text = captured.text.encode()
        if captured.artifact_id is not None:
            text += b"" if not text or text.endswith(b"\n") else b"\n"
            text += f"[raw output: artifact://{captured.artifact_id}]\n".encode()
        if not self._quiet:
            self._write(text[self._size :])


def _takes() -> bool:
    """Return whether stdout takes a piece without waiting."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return bool(poll.poll(0))


COMMANDS = {
    "capture": Command(
        capture,
        [
            Argument("CMD…", kinds.verbatim),
            Option("tool NAME", "What made it (default: the name of the command)."),
            *together(
                "view",
                Option("keep", "Keep an artifact even when all of the output is shown."),
                Option(
                    "spill BYTES", "Show all of it up to this size.", kinds.WHOLE, default="51200"
                ),
                Option(
                    "head BYTES",
                    "Of longer output, show this much of its beginning.",
                    kinds.WHOLE,
                    default="20480",
                ),
                Option(
                    "columns BYTES",
                    "Show at most this much of a line; 0 for all.",
                    kinds.WHOLE,
                    default="768",
                ),
                Option(
                    "raw",
                    "Keep escape sequences and control characters.",
                    kinds.OFF,
                    parameter="sanitize",
                ),
            ),
            THREAD,
            JSON,
        ],
        "eventq capture --thread ./inbox -- make test",
    )
}
