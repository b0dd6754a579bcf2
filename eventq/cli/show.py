"""A command's streams: results on stdout, errors on stderr, the status that follows, and what stdin gives."""

from __future__ import annotations

import errno
import os
import sys

from eventq.errors import EventqError, FilterError, LogicError, TooLargeError, UnknownOutputError
from eventq.jsontext import writer
from eventq.system import write_all
from eventq.workspace.mirror import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.cli.options import Command, Raw

_BLOCK = 1 << 16


class Closed(Exception):  # noqa: N818 (not an error)
    """Nobody reads stdout any more."""


def out(data: bytes) -> None:
    """Write to stdout, past Python's buffer; raise Closed when its reader has gone."""
    try:
        write_all(1, data)
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EBADF):
            raise Closed from error
        raise LogicError(f"stdout could not be written: {error.strerror}", "check where it goes") from error


def say(line: str) -> None:
    """Write a line to stdout."""
    out(line.encode("utf-8", "backslashreplace") + b"\n")


def lines(page: list[str]) -> None:
    """Write the JSON lines of a page of events."""
    if page:
        out(("\n".join(page) + "\n").encode("utf-8", "replace"))


def dump(value: object) -> None:
    """Write a value as one line of JSON."""
    say(writer()(value))


def error(what: str, fix: str, caret: str = "", *, as_json: bool, lines: int = 1) -> None:
    """Write an error to stderr in the form that was asked for; `caret` shows the place in a filter.

    `what` stands on so many `lines`; any other line break in it is escaped.
    """
    caret = caret and "\n" + caret
    what, fix = "\n".join(map(readable, what.rsplit("\n", lines - 1))), readable(called(fix))
    if as_json:
        text = f'{{"error":{quote(what + caret)},"suggestion":{quote(fix)}}}\n'
    else:
        text = f"Error: {what} - {fix}{caret}\n"
    tell(text)


def program() -> str:
    """Return the name that the program was called by."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name if name in ("eventq", "thread") else "eventq"


def called(hint: str) -> str:
    """Return a hint with its command under the name that the program was called by.

    The library's errors say `eventq`. Only the first place counts: what follows may be the caller's own words.
    """
    return hint.replace("'eventq ", f"'{program()} ", 1)


def note(line: str) -> None:
    """Write a line about a result to stderr."""
    tell(readable(line) + "\n")


def tell(text: str) -> None:
    """Write text to stderr as it is."""
    try:
        write_all(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # nowhere to say it; the exit status does


def execute(command: Command, raw: Raw) -> int:
    """Run a command's function and give its exit status; everything that can go wrong becomes a sentence."""
    as_json = bool(raw.get("json"))
    try:
        return _function(command)(raw) or 0
    except Closed:
        return 0
    except EventqError as failure:
        caret = failure.caret() if isinstance(failure, FilterError) else ""
        lines = 2 if isinstance(failure, UnknownOutputError) else 1  # what was asked for, and what there is
        error(failure.what, failure.fix, caret, as_json=as_json, lines=lines)
        return failure.exit_code
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        error("not enough memory", "give less at once", as_json=as_json)
    except OSError as failure:
        error(f"the system refused: {failure}", "check the path, its permissions and the disk", as_json=as_json)
    return 1


def _function(command: Command):  # type: ignore[no-untyped-def]  # noqa: ANN202 (a command's function: Raw -> int | None)
    module = f"eventq.cli.{command.module}"
    __import__(module)
    return getattr(sys.modules[module], command.function)


def readable(text: str) -> str:
    """Give text on one line, control characters escaped."""
    from eventq.workspace.journal import printable

    return printable(text)


def stdout_closed() -> bool:
    """Say whether the reader of stdout has gone."""
    import select

    poll = select.poll()
    poll.register(1, 0)
    return any(happened & (select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0))


def stdin_is_open() -> bool:
    """Say whether there is a stdin; asked before the store is opened, which would put something else in its place."""
    try:
        os.fstat(0)
    except OSError:
        return False
    return True


def stdin(*, is_open: bool) -> int:
    """Give the descriptor of stdin; raise LogicError when it was closed."""
    if not is_open:
        raise LogicError("stdin is closed", "give the input on stdin")
    return 0


def read(fd: int) -> bytes:
    """Return the next bytes of a descriptor, what has come so far of a pipe, nothing at the end."""
    while True:
        try:
            return os.read(fd, _BLOCK)
        except BlockingIOError:
            wait_for(fd)


def wait_for(fd: int) -> None:
    """Wait until a descriptor can be read that its other end has made non-blocking."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll()


def read_all(more: Callable[[], bytes], most: int) -> bytearray:
    """Return all that `more` gives, block by block; raise TooLargeError once it is beyond `most` bytes."""
    found = bytearray()  # grows in place: joining blocks would hold everything twice
    while block := more():
        found += block
        if len(found) > most:
            raise TooLargeError(None, most)
    return found
