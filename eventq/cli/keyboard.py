"""A terminal that a command has for itself: the keys, the screen, and what it was before.

It is put back however the command ends, and while it is stopped.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventq.record import Record
from eventq.system.disk import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

ESCAPE_SECONDS = 0.05  # after which an escape is the key, and not the beginning of another one
MOST_PASTED = 1 << 16  # characters
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"  # without cursor and wrapping
_LEAVE = "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<=>]{0,16}[ -/]{0,4}[@-~]|O[@-~])")
_BEGUN = re.compile(r"\x1b(?:\[[0-9;?<=>]{0,16}[ -/]{0,4}|O)?")
_NAMES = {
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x15": "clear",
    "\x0e": "down", "\x10": "up",
    **{f"\x1b{mode}{letter}": name for mode in "[O" for letter, name in
       {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}.items()},
    "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[1~": "home", "\x1b[4~": "end",
}  # fmt: skip
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Key(Record):
    """A key, by its name, or text, which was typed or, with `name` paste, pasted."""

    name: str
    text: str = ""


class Keys:
    """The keys in the bytes that a terminal sends, which may be split anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._pasted: str | None = None
        self._whole = ""  # what was pasted last

    @property
    def waits(self) -> bool:
        """Whether what came may be the beginning of a key: `flush` says it was none."""
        return bool(self._rest) and self._pasted is None

    def feed(self, data: bytes) -> Iterator[Key]:
        """Yield the keys that are complete."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        while text:
            if self._pasted is not None:
                text = self._paste(text)
                if self._pasted is None:
                    yield Key("paste", self._whole)
            elif text[0] != "\x1b":
                if name := _NAMES.get(text[0]):
                    yield Key(name)
                elif text[0].isprintable():
                    yield Key("text", text[0])
                text = text[1:]
            elif found := _SEQUENCE.match(text):
                text = text[found.end() :]
                if found[0] == _PASTE:
                    self._pasted = ""
                elif name := _NAMES.get(found[0]):
                    yield Key(name)
            elif (begun := _BEGUN.match(text)) and begun.end() == len(text):
                self._rest, text = text, ""
            else:
                yield Key("escape")
                text = text[1:]

    def _paste(self, text: str) -> str:
        """Take what is pasted; return what follows it."""
        before, end, after = text.partition(_PASTED)
        if not end:  # a part of the mark may be at the end
            before, self._rest = text[: -len(_PASTED)], text[-len(_PASTED) :]
        whole = (self._pasted or "") + before
        self._pasted = whole[:MOST_PASTED]
        if end:
            self._whole, self._pasted = self._pasted, None
        return after

    def flush(self) -> Iterator[Key]:
        """Yield the key that was taken for the beginning of another one."""
        if self.waits:
            self._rest = ""
            yield Key("escape")


class Ended(BaseException):
    """A signal ends the command, once the terminal is as before."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """The whole terminal, while it is open: stdin, if that is one, and stdout."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._fd = 0 if os.isatty(0) else None
        self._saved: list[Any] | None = None
        self._before: dict[int, Any] = {}
        self._shown: list[str] = []
        self._size = (0, 0)
        self._pipe: tuple[int, int] | None = None

    def __enter__(self) -> Screen:
        """Take the terminal. Signals that end the command raise Ended."""
        if self._fd is not None:
            self._saved = termios.tcgetattr(self._fd)
        self._pipe = os.pipe()
        for fd in self._pipe:
            os.set_blocking(fd, False)
        try:
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            handlers = dict.fromkeys(_ENDS, _end) | {
                signal.SIGTSTP: self._stop, signal.SIGCONT: self._resume,
                signal.SIGWINCH: lambda *_: None,  # it wakes `wait`
            }  # fmt: skip
            for number, handler in handlers.items():
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, handler)
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Put the terminal back."""
        self._leave()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        for fd in self._pipe or ():
            os.close(fd)

    def _take(self) -> None:
        if self._fd is not None and self._saved is not None:
            mode = [*self._saved[:6], [*self._saved[6]]]
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        self._shown = []
        write_all(1, _ENTER.encode())

    def _leave(self) -> None:
        with suppress(OSError):  # it may be gone
            write_all(1, _LEAVE.encode())
        if self._fd is not None and self._saved is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)

    def _stop(self, *_: object) -> None:
        """Stop as every program does, with the terminal as it was."""
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._take()

    def _resume(self, *_: object) -> None:
        """Take the terminal again after a stop that could not be caught."""
        self._take()

    def size(self, default: tuple[int, int]) -> tuple[int, int]:
        """Return columns and rows, `default` where the terminal has none."""
        try:
            found = os.get_terminal_size(1)
        except OSError:
            return default
        return (found.columns, found.lines) if found.columns and found.lines else default

    def draw(self, rows: Sequence[tuple[str, int]], size: tuple[int, int]) -> None:
        """Show rows, each with how many lines it takes; what is shown already is not sent again.

        A row of more than one line wraps in the terminal, so that it is copied as one.
        """
        if size != self._size:
            self._size, self._shown = size, []
        lines: list[str] = []
        for row, height in rows:
            lines += [f"\x1b[?7h{row}\x1b[?7l" if height > 1 else row, *[""] * (height - 1)]
        lines = (lines + [""] * size[1])[: size[1]]
        first = not self._shown
        parts = ["\x1b[2J"] * first
        wraps = [height > 1 for _, height in rows]
        changed = [at for at, line in enumerate(lines) if first or self._shown[at] != line]
        if any(wraps) and changed:
            changed = [*range(size[1])]  # a line that another one wraps into cannot stay
        parts += [f"\x1b[{at + 1};1H\x1b[0m\x1b[2K" for at in changed]
        parts += [f"\x1b[{at + 1};1H{lines[at]}" for at in changed if lines[at]]
        self._shown = lines
        if parts:
            write_all(1, "".join(parts).encode("utf-8", "backslashreplace"))

    def wait(self, watched: int, seconds: float) -> tuple[list[Key], bool]:
        """Return the keys, and whether `watched` can be read, after a time at the latest.

        Raises EOFError when the terminal is gone.
        """
        poll = select.poll()
        for fd in (self._fd, watched, self._pipe[0] if self._pipe else None):
            if fd is not None and fd >= 0:
                poll.register(fd, select.POLLIN)
        if self._keys.waits:
            seconds = min(seconds, ESCAPE_SECONDS)
        ready = {fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)}
        if self._pipe and self._pipe[0] in ready:
            with suppress(BlockingIOError):
                os.read(self._pipe[0], 4096)
        if self._fd not in ready:
            return ([] if watched in ready else [*self._keys.flush()]), watched in ready
        try:
            data = os.read(0, 4096)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        return [*self._keys.feed(data)], watched in ready


def _end(number: int, _: FrameType | None) -> None:
    raise Ended(number)


def end_by(number: int) -> None:
    """End this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
