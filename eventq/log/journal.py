"""`logs/thread.log`: what happened to a thread, one fact per line, for people.

Each line is one `write` to a file opened for appending, so lines stay whole however many processes
write. A journal that cannot be written never makes a command fail.
"""

from __future__ import annotations

import os
from _thread import RLock

from eventq.store.paths import ROTATE_LINES, Layout, rotate_log
from eventq.system import clock
from eventq.system.locks import alone_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.records.event import Commit

_LOOK_AGAIN = 1.0  # seconds after which a writer checks that its file is still the one at the path
# Bytes of the shortest line. Lines are not counted in a file below ROTATE_LINES times that.
_SHORTEST = 40


class Journal:
    """The log of one thread."""

    def __init__(self, layout: Layout) -> None:
        """Prepare; the file is opened with the first line."""
        self._layout = layout
        self._fd = -1
        self._looked = 0.0
        self._lines = 0
        self.listener: Callable[[str], object] | None = None  # also gets problems and failures
        # No OS thread may write to a descriptor that another one has just closed.
        self._turn = RLock()

    @property
    def thread(self) -> str:
        """What the thread is known by."""
        return self._layout.thread

    def committed(self, commit: Commit) -> None:
        """Log the pushed events."""
        for first, count, stamp, rows in commit[3]:
            if count > 1 or not rows:
                self.write("INFO", f"push batch: count={count} last_id={first + count - 1}")
                continue
            ((source, kind, _, subtype, _),) = rows
            sub = f" subtype={subtype}" if subtype is not None else ""
            self.write("INFO", f"push: source={source} type={kind}{sub} id={first}", stamp)

    def info(self, text: str) -> None:
        """Log a fact."""
        self.write("INFO", text)

    def warn(self, text: str) -> None:
        """Log a problem that may need attention."""
        self._pass_on("WARN", text)

    def error(self, text: str) -> None:
        """Log a failure."""
        self._pass_on("ERROR", text)

    def _pass_on(self, level: str, text: str) -> None:
        self.write(level, text)
        if self.listener is not None:
            self.listener(text)

    def write(self, level: str, text: str, stamp: str = "") -> None:
        """Append one line; control characters are escaped, and failure is silent."""
        now = clock.now()
        if not text.isprintable():
            text = printable(text)
        line = f"[{stamp or clock.stamp(now)}] [{level}] {text}\n".encode(
            "utf-8", "backslashreplace"
        )
        with self._turn:
            try:
                if (
                    self._fd < 0
                    or not 0 <= now - self._looked < _LOOK_AGAIN
                    or self._lines > ROTATE_LINES
                ):
                    self._look(now)
                written = os.write(self._fd, line)
                if written < len(line):
                    self._take_back(written)
                self._lines += 1
            except OSError:
                self.close()

    def _take_back(self, written: int) -> None:
        """Remove what a full disk has cut: it would begin the next line."""
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        if end == os.fstat(self._fd).st_size:  # nobody has written since
            os.ftruncate(self._fd, end - written)

    def _look(self, now: float) -> None:
        """Open the file that is at the path now, and begin a new one when it is full."""
        self.close()
        self._open()
        if self._lines > ROTATE_LINES:
            alone_in(self._layout.logs, self._rotate)
        self._looked = now

    def _open(self) -> None:
        # A link would have lines appended to a file that is not the thread's.
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW
        try:
            self._fd = self._layout.create(self._layout.journal, flags)
        except FileNotFoundError:
            # The journal must not create the directory of a deleted thread again.
            if not self._layout.exists():
                raise
            self._layout.make_folder(self._layout.logs)
            self._fd = self._layout.create(self._layout.journal, flags)
        self._lines = self._count()

    def _count(self) -> int:
        size = os.lseek(self._fd, 0, os.SEEK_END)
        if size < _SHORTEST * ROTATE_LINES:
            return 0
        lines = at = 0
        while block := os.pread(self._fd, 1 << 20, at):
            lines += block.count(b"\n")
            at += len(block)
        return lines

    def _rotate(self) -> None:
        """Begin a new file, under the lock of the folder."""
        self.close()
        self._open()  # somebody else may have been quicker
        if self._lines > ROTATE_LINES:
            rotate_log(self._layout.journal)
            self.close()
            self._open()

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            # First: an interrupt would leave the number, which may be another file's by then.
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


def printable(text: str) -> str:
    """Return text on one line, with unprintable characters escaped."""
    return text if text.isprintable() else text.translate(_Escapes())


class _Escapes(dict[int, str]):
    """What `str.translate` asks for each character, found once for each that occurs."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = (
            character if character.isprintable() else character.encode("unicode_escape").decode()
        )
        return self[code]
