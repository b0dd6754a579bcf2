"""`eventq capture`: show part of a command's output, and store all of it as an artifact."""

from __future__ import annotations

import select

from eventq.cli import kinds, render, show
from eventq.cli.options import IN_CONTEXT, JSON, THREAD
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.records.artifact import Captured
    from eventq.thread import Thread

    class View(TypedDict):
        """How much is shown, and when an artifact is stored."""

        keep: bool
        spill: int
        head: int
        columns: int
        sanitize: bool
        images: bool


def capture(
    thread: Thread,
    *,
    cmd: list[str],
    tool: str | None,
    context: int | str | None,
    view: View,
    json: bool,
) -> int:
    """Run a command, and show part of its output.

    If the output is too long to show, all of it is stored as an artifact. The exit status is the
    command's.
    """
    shown = _Shown(quiet=json)
    code, captured = thread.capture(cmd, tool=tool, show=shown, context=context, **view)
    if captured.error is not None:
        what = f"not all of the output was stored: {captured.error}"
        show.error(what, "fix that, then run the command again", as_json=json)
    try:
        if json:
            fields = render.fields(captured)
            error = fields.pop("error")
            del fields["artifact_id"], fields["session"]
            show.dump({"exit_code": code, **fields, "artifact": captured.url, "error": error})
        else:
            shown.rest(captured)
    except show.Closed:
        pass
    return code


_PIECE = 4096  # bytes that a writable pipe accepts at once


class _Shown:
    """The view on stdout. A reader that is gone or does not read never blocks the command."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._size = 0
        self._waiting = b""

    def __call__(self, data: bytes) -> None:
        """Write as much as stdout accepts without blocking; only the head of a view can wait."""
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
        """Write the rest of the view, and the URL of the artifact."""
        text = captured.text.encode()
        if captured.url is not None:
            text += b"" if not text or text.endswith(b"\n") else b"\n"
            text += f"[raw output: {captured.url}]\n".encode()
        if not self._quiet:
            self._write(text[self._size :])


def _takes() -> bool:
    """Return whether stdout accepts a piece without blocking."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return bool(poll.poll(0))


COMMANDS = {
    "capture": Command(
        capture,
        [
            Argument("-- CMD…", kinds.as_is),
            Option("tool NAME", "The tool's name (default: the command's name)."),
            IN_CONTEXT,
            *together(
                "view",
                Option("keep", "Store an artifact even if all of the output is shown."),
                Option(
                    "spill BYTES",
                    "Show output of up to this size in full.",
                    kinds.WHOLE,
                    default="51200",
                ),
                Option(
                    "head BYTES",
                    "Show this much of the start of longer output.",
                    kinds.WHOLE,
                    default="20480",
                ),
                Option(
                    "columns BYTES",
                    "Show at most this much of each line; 0 for all.",
                    kinds.WHOLE,
                    default="768",
                ),
                Option(
                    "raw",
                    "Keep escape sequences and control characters.",
                    kinds.OFF,
                    parameter="sanitize",
                ),
                Option("images", "Keep images for terminals (sixel) in the artifact."),
            ),
            THREAD,
            JSON,
        ],
        "eventq capture --thread ./inbox -- make test",
        "eventq capture --context s-1 --thread ./inbox -- make test",
    )
}
