"""A command's streams: results on stdout, errors on stderr, input from stdin."""

from __future__ import annotations

import errno
import os
import sys

from eventq.errors import LogicError, TooLargeError
from eventq.jsontext import quote, writer
from eventq.system import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK = 1 << 16
_now = {"stdin": "open", "place": ""}  # of the command that is running


class Closed(Exception):  # noqa: N818 (not an error)
    """The reader of stdout is gone."""


def out(data: bytes) -> None:
    """Write to stdout, bypassing Python's buffer; raise Closed if its reader is gone."""
    try:
        write_all(1, data)
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EBADF):
            raise Closed from error
        raise LogicError(
            f"stdout could not be written: {error.strerror}", "check where it goes"
        ) from error


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


def result(value: object, text: str, *, json: bool) -> None:
    """Write a result as one line of JSON, or as readable text."""
    if json:
        dump(value)
    else:
        say(text)


def error(what: str, fix: str, caret: str = "", *, as_json: bool, lines: int = 1) -> None:
    """Write an error to stderr, as text or JSON; `caret` points at a position in a filter.

    `what` keeps its last line breaks, up to `lines` lines; others are escaped.
    """
    caret = caret and "\n" + caret
    what, fix = "\n".join(map(readable, what.rsplit("\n", lines - 1))), readable(called(fix))
    if as_json:
        text = f'{{"error":{quote(what + caret)},"suggestion":{quote(fix)}}}\n'
    else:
        text = f"Error: {what} - {fix}{caret}\n"
    tell(text)


def program() -> str:
    """Return the name under which the program was called."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name if name in ("eventq", "thread") else "eventq"


def called(hint: str) -> str:
    """Return a hint with its command under the name that the program was called by.

    The library's errors say `eventq`. Only the first occurrence is replaced, as the rest may quote
    the caller.
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
        pass  # there is nowhere to report it; the exit status does


def readable(text: str) -> str:
    """Return text as one line, with control characters escaped."""
    from eventq.workspace.journal import printable

    return printable(text)


def stdout_closed() -> bool:
    """Return whether the reader of stdout is gone."""
    import select

    poll = select.poll()
    poll.register(1, 0)
    return any(happened & (select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0))


def begin(place: str) -> None:
    """Record the value of --thread, and whether stdin is open.

    This has to happen before the thread is opened, whose files would take descriptor 0.
    """
    try:
        os.fstat(0)
    except OSError:
        _now["stdin"] = ""
    else:
        _now["stdin"] = "open"
    if "://" in place:
        from eventq.workspace.layout import shown

        place = shown(place)
    _now["place"] = place


def place() -> str:
    """Return the value of --thread, for hints."""
    return _now["place"]


def stdin() -> int:
    """Return the descriptor of stdin; raise LogicError if it was closed."""
    if not _now["stdin"]:
        raise LogicError("stdin is closed", "give the input on stdin")
    return 0


def read(fd: int) -> bytes:
    """Return the next bytes of a descriptor: what has arrived in a pipe, b"" at the end."""
    while True:
        try:
            return os.read(fd, _BLOCK)
        except BlockingIOError:
            wait_for(fd)


def wait_for(fd: int) -> None:
    """Wait until a non-blocking descriptor can be read."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll()


def read_all(more: Callable[[], bytes], most: int) -> bytearray:
    """Return all blocks that `more` returns; raise TooLargeError beyond `most` bytes."""
    found = bytearray()  # grows in place: joining blocks would hold everything twice
    while block := more():
        found += block
        if len(found) > most:
            raise TooLargeError(None, most)
    return found
