"""What this machine keeps of a thread in a database that others share: handler logs, a journal.

It is in the directory that names the thread, or else below the user's state directory. Nothing of
the thread is lost with it.
"""

from __future__ import annotations

import os

from blake3 import blake3

from eventq.errors import UsageError, reason
from eventq.store.address import parse
from eventq.store.paths import LINK, Layout, is_shared, is_url, resolve
from eventq.system import environment

_MOST = 64 << 10  # bytes of it that are read


class SharedLayout(Layout):
    """The paths of a machine's own files about a shared thread."""

    def __init__(self, url: str, directory: str | None = None) -> None:
        """Take the URL, and the directory that names it, if there is one."""
        self.address = parse(url)
        shown = self.address.at(self.address.name)
        super().__init__(directory or _state_of(shown))
        self.thread = directory or shown
        self.environ = self.address.environ if directory is None else {}

    def exists(self) -> bool:
        """Return True: whether the thread is there, the server knows."""
        return True

    def create(self, path: str, flags: int) -> int:
        """Open a file to write; one that is missing is this user's."""
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def make_folder(self, path: str) -> None:
        """Make a folder that is missing, and those above it."""
        os.makedirs(path, 0o700, exist_ok=True)


def _state_of(shown: str) -> str:
    """Return the folder for what this machine keeps of a thread."""
    return f"{environment.state()}/{blake3(shown.encode()).hexdigest()[:16]}"


def url_of(path: str) -> str | None:
    """Return the URL of a thread in PostgreSQL, also of one that a directory names; else None.

    Raises UsageError for a file that holds none.
    """
    if not is_shared(path):
        return None
    return path if is_url(path) else url_in(f"{resolve(path)}/{LINK}")


def url_in(path: str) -> str:
    """Return the URL in a file. Raises UsageError for what is none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"'{path}' cannot be read: {reason(error)}", "check it") from error
    if not is_url(text):
        raise UsageError(
            f"'{path}' holds no URL of a thread", "write postgresql://…?thread=NAME into it"
        )
    return text
