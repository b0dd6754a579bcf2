"""A command's streams: results on stdout, errors on stderr, input from stdin."""

from __future__ import annotations

import errno
import os
import sys

from eventq.errors import LogicError, TooLargeError
from eventq.system import disk, processes
from eventq.system.disk import write_all
from eventq.system.jsontext import quote, writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.records.question import Answerer

_BLOCK = 1 << 16
_now = {"place": ""}  # of the command that is running
_closed: set[int] = set()  # streams that were closed when the program began


class Closed(Exception):  # noqa: N818 (not an error)
    """The reader of stdout is gone."""


def out(data: bytes) -> None:
    """Write to stdout, bypassing Python's buffer.

    Raises Closed if its reader is gone, and LogicError if it cannot be written.
    """
    try:
        write_all(1, data)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise Closed from error
        raise unwritten(error) from error


def unwritten(error: OSError) -> LogicError:
    """Return the error for a result that was not written."""
    what = f"stdout could not be written: {error.strerror}"
    return LogicError(what, "check where it goes, and that it is open")


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


program = processes.called


def called(hint: str) -> str:
    """Return a hint with its command under the name that the program was called by.

    The library's errors say `eventq`. Only the first occurrence is replaced, as the rest may quote
    the caller.
    """
    at = min((at for quote in "'\"" if (at := hint.find(f"{quote}eventq ")) >= 0), default=None)
    return hint if at is None else hint[: at + 1] + program() + hint[at + 7 :]


def note(line: str) -> None:
    """Write a line about a result to stderr."""
    tell(readable(line) + "\n")


def tell(text: str) -> None:
    """Write text to stderr as it is."""
    try:
        write_all(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # there is nowhere to report it; the exit status does


disk.tell = note  # of the library's warnings, which come without a place in its code


def readable(text: str) -> str:
    """Return text as one line, with control characters escaped."""
    from eventq.log.journal import printable

    return printable(text)


def check_stdout() -> None:
    """Raise what `out` would raise, as far as can be told without writing."""
    import select

    if 1 in _closed:
        raise unwritten(OSError(errno.EBADF, os.strerror(errno.EBADF)))
    poll = select.poll()
    poll.register(1, 0)
    if any(happened & (select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0)):
        raise Closed


def keep_streams() -> None:
    """Occupy the descriptors of closed streams; files of the thread would take them otherwise.

    Reading such a stdin and writing to such a stdout or stderr still fails.
    """
    for fd, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            _closed.add(os.open(os.devnull, flags))  # the lowest that is free
    if 1 in _closed:
        # Python has none then, and click prints nothing without an error.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (it stays open)


def begin(place: str) -> None:
    """Record the value of --thread."""
    if "://" in place:
        from eventq.store.paths import shown

        place = shown(place)
    _now["place"] = place


def place() -> str:
    """Return the value of --thread, for hints."""
    return _now["place"]


def stdin() -> int:
    """Return the descriptor of stdin; raise LogicError if it was closed."""
    if 0 in _closed:
        raise LogicError("stdin is closed", "give the input on stdin")
    return 0


def has_stdin() -> bool:
    """Return whether stdin is open, and not a terminal, at which a person would have to type."""
    return 0 not in _closed and not os.isatty(0)


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return 1 not in _closed and os.isatty(1)


def answerer() -> Answerer:
    """Return who answers a question by this command: a person, if stdin is a terminal."""
    from eventq.records.question import Answerer
    from eventq.system.environment import user_name

    is_person = 0 not in _closed and os.isatty(0)
    return Answerer("terminal" if is_person else "shell", user_name(), is_person)


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
