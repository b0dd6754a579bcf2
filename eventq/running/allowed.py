"""Which commands this machine runs for threads in PostgreSQL, where others write subscriptions.

A file says so, a command a line, read anew whenever it has changed. In a line, `*` is any text and
`?` any character, but none that a shell acts upon: who may subscribe must not be able to add
another command to an allowed one. The line `**` allows all. Empty lines and those that begin with
`#` say nothing.
"""

from __future__ import annotations

import os
import re

from eventq.errors import UsageError, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_PLAIN = r"[^;&|<>()$`\\\n]"  # what `*` and `?` stand for


class Allowed:
    """The commands of a file; nothing is allowed while it cannot be read.

    They are run for consumers with one of the `labels`: None stands for those without.
    """

    def __init__(self, path: str, labels: Collection[str] = ()) -> None:
        """Read the file; without labels, those of consumers without are meant.

        Raises UsageError.
        """
        self.path = os.path.abspath(path)
        self.labels: Collection[str | None] = labels or (None,)
        self._stamp: object = None
        self._lines: list[str] = []
        self._allowed: re.Pattern[str] | None = None
        try:
            self._read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"'{path}' cannot be read: {reason(error)}", "give a file with the allowed commands"
            ) from error

    def __call__(self, command: str) -> bool:
        """Return whether this machine runs a command."""
        try:
            self._read()
        except (OSError, UnicodeDecodeError):
            return False
        if "**" in self._lines or command in self._lines:
            return True
        return self._allowed is not None and self._allowed.fullmatch(command) is not None

    def version(self) -> object:
        """Return what changes with the file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> None:
        """Read the file if it has changed."""
        stamp = self.version()
        if stamp is not None and stamp == self._stamp:
            return
        self._stamp = None
        with open(self.path, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
        self._lines = [line for line in lines if line and not line.startswith("#")]
        globs = [_pattern(line) for line in self._lines if "*" in line or "?" in line]
        self._allowed = re.compile("|".join(globs)) if globs else None
        self._stamp = stamp


def _pattern(line: str) -> str:
    """Return a line as a regular expression.

    What stands before the last `*` matches as early as it can, and is not tried again: another try
    could not succeed, and all of them together would take hours for a long command.
    """
    first, *parts = (re.escape(part).replace(r"\?", _PLAIN) for part in line.split("*"))
    early = [f"(?>{_PLAIN}*?{part})" for part in parts[:-1]]
    return "".join([first, *early, *(f"{_PLAIN}*{part}" for part in parts[-1:])])
