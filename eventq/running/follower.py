"""Follow a thread in PostgreSQL: a copy of its log as `events.jsonl`, in a folder of this machine.

The folder names the thread in `thread.url`, so that commands take it for the thread. Another
follower, later or at the same time, goes on where the files end.
"""

from __future__ import annotations

import os
import signal

from eventq.errors import LogicError, NotAThreadError, StoreError
from eventq.log.mirror import Mirror
from eventq.store.address import parse
from eventq.store.paths import LINK, Layout
from eventq.store.shared_paths import SharedLayout, url_in
from eventq.system import clock, disk, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.thread import Thread

_OF = ".mirror-of"  # holds the identity of the thread: one that is made anew has other events
_LOOK_SECONDS = 1.0


class Follower:
    """The mirror of a shared thread in a folder."""

    def __init__(self, thread: Thread, folder: str, say: Callable[[str], object]) -> None:
        """Take the folder, which is made if it is missing; `say` gets a line for people.

        Raises LogicError for a thread that has a mirror of its own, and for a folder of another.
        """
        if not isinstance(thread.layout, SharedLayout):
            raise LogicError(
                f"'{thread.path}' has its mirror in its own directory",
                f"follow '{thread.path}/events.jsonl'",
            )
        self._thread, self._say = thread, say
        self._folder = os.path.abspath(folder)
        self._shown = thread.layout.address.shown
        self._claim()
        layout = SharedLayout(self._shown, self._folder)
        self._mirror = Mirror(_Source(thread, self._folder), layout, thread.journal)
        self._complaint = ""

    def _claim(self) -> None:
        """Note in the folder whose events it has. Raises LogicError if they are of another."""
        identity = self._thread.database.identity
        os.makedirs(self._folder, 0o700, exist_ok=True)
        link, of = f"{self._folder}/{LINK}", f"{self._folder}/{_OF}"
        is_ours = not os.path.exists(link) or parse(url_in(link)).shown == self._shown
        known = _read(of)
        files = Layout(self._folder)
        others = os.path.lexists(files.mirror) or os.path.exists(files.database)
        if not is_ours or (others if known is None else known != identity):
            raise LogicError(
                f"'{self._folder}' has files of another thread", "give a folder of its own"
            )
        for path, text in ((of, identity), (link, self._shown)):
            if not os.path.exists(path):
                disk.save(path, [f"{text}\n".encode()], mode=0o600)

    def run(self) -> int:
        """Follow until SIGTERM, SIGINT or SIGHUP; return the signal.

        An error that may pass is told, and tried again. Raises NotAThreadError once the thread is
        deleted.
        """
        ended: list[int] = []
        before = {
            n: signal.signal(n, lambda number, _: ended.append(number)) for n in processes.ends()
        }
        try:
            with self._thread.database.watch() as watcher:
                self._say(f"follows {self._shown} in {self._folder}")
                while not ended:
                    if self.step():
                        watcher.wait(_LOOK_SECONDS)
                    else:
                        clock.pause(_LOOK_SECONDS)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return ended[0]

    def step(self) -> bool:
        """Write what the files lack; return False when that failed for now."""
        try:
            self._mirror.extend()
        except NotAThreadError:
            raise
        except (StoreError, OSError) as error:
            if str(error) != self._complaint:
                self._say(f"{error}; it is tried again")
            self._complaint = str(error)
            return False
        self._complaint = ""
        return True


class _Source:
    """A shared thread as a mirror sees one: what its files are is known by the folder here."""

    def __init__(self, thread: Thread, folder: str) -> None:
        self._db, self._folder = thread.database, folder
        self.events, self.exclusive = thread.database.events, thread.database.exclusive

    def alive(self) -> int:
        """Return the time of change of the folder. Raises NotAThreadError."""
        self._db.alive()
        return os.stat(self._folder).st_mtime_ns


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None
