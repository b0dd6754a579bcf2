"""Wait for the log to grow, by watching the mirror.

`events.jsonl` changes after the commit; whoever waits then reads the database. Watching the WAL
would wake it before the commit is visible. A slow poll of the database is the safety net, and the
only way where there is no inotify.
"""

from __future__ import annotations

import os

from eventq import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from eventq.storage.base import Database
    from eventq.workspace.layout import Layout

SLOW_LOOK = 1.0  # seconds between two looks when nothing has changed
_FAST_LOOK = 0.01  # the same where there is no inotify


class Watcher:
    """A watcher for one waiter; made before the first look, so that nothing is missed in between."""

    def __init__(self, db: Database, layout: Layout) -> None:
        """Begin to watch."""
        self._db = db
        self._layout = layout
        self._watch: _Watch | None = None
        try:
            self._watch = _Watch(layout)
        except (ImportError, OSError):
            self._version = db.data_version()

    def wait(self, seconds: float) -> bool:
        """Wait for a ring, at most so long; give False when there was none. A ring may be a false one."""
        if self._watch is not None:
            rang = self._watch.wait(seconds)
            if not rang:
                self._db.alive()
            return rang
        deadline = system.monotonic() + seconds
        while (version := self._db.data_version()) == self._version:
            left = deadline - system.monotonic()
            if left <= 0:
                self._db.alive()
                return False
            system.pause(min(_FAST_LOOK, left))
        self._version = version
        return True

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Watcher:
        """Return the watcher."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Stop watching."""
        self.close()


class _Watch:
    """An inotify watch of the mirror file, renewed when the folder gets another one."""

    def __init__(self, layout: Layout) -> None:
        from inotify_simple import INotify, flags

        self._notify = INotify()
        self._flags = flags
        self._path = layout.mirror
        try:
            self._folder = self._notify.add_watch(
                layout.directory, flags.CREATE | flags.MOVED_TO | flags.ONLYDIR
            )
        except OSError:
            self._notify.close()
            raise
        self._add_file()

    def _add_file(self) -> None:
        try:
            self._notify.add_watch(self._path, self._flags.MODIFY)
        except OSError:
            pass  # missing, or not for us to read: the watch of the folder and the slow look remain

    def wait(self, seconds: float) -> bool:
        """Wait for the file or its name to change."""
        rang = False
        name = os.path.basename(self._path)
        for event in self._notify.read(timeout=max(0, int(seconds * 1000))):
            if event.wd == self._folder:
                if event.name == name:
                    self._add_file()
                    rang = True
            else:
                rang = True
        return rang

    def close(self) -> None:
        """Close the descriptor."""
        self._notify.close()
