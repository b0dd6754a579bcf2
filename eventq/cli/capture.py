"""`eventq capture`: a command's output, bounded on stdout, whole in an artifact."""

from __future__ import annotations

import select

from eventq.cli import show
from eventq.cli.log import open_thread
from eventq.cli.options import number, text
from eventq.errors import LogicError
from eventq.output.sink import COLUMNS, HEAD, SPILL

_PIECE = 4096  # bytes: what a pipe that takes something takes at once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.options import Raw
    from eventq.records import Captured


def capture(raw: Raw) -> int:
    """Run a command and exit as it does."""
    words: Any = raw["CMD"]
    shown = _Shown(quiet=bool(raw["json"]))
    with open_thread(raw) as thread:
        code, captured = thread.capture(
            words, tool=text(raw, "tool"), show=shown,
            spill=number(raw, "spill", SPILL), head=number(raw, "head", HEAD),
            columns=number(raw, "columns", COLUMNS), sanitize=not raw["raw"], keep=bool(raw["keep"]),
        )  # fmt: skip
    if captured.error is not None:
        what = f"not all of the output was kept: {captured.error}"
        show.error(what, "mend that, and run the command again", as_json=bool(raw["json"]))
    try:
        if raw["json"]:
            show.dump({"exit_code": code, **_fields(captured)})
        else:
            shown.rest(captured)
    except show.Closed:
        pass
    return code


class _Shown:
    """What was written to stdout; a reader who has gone, or does not read, does not hold the command up."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._size = 0
        self._waiting = b""

    def __call__(self, data: bytes) -> None:
        """Write what comes next, as far as it is taken at once: the head of a view is all that can wait."""
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
    """Say whether stdout takes a piece without waiting."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return bool(poll.poll(0))


def _fields(captured: Captured) -> dict[str, object]:
    return {
        "text": captured.text,
        "truncated": captured.truncated,
        "capped": captured.capped,
        "total_bytes": captured.total_bytes,
        "total_lines": captured.total_lines,
        "artifact": captured.artifact_id and f"artifact://{captured.artifact_id}",
        "error": captured.error,
    }
