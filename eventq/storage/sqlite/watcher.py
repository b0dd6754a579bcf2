"""Wait for the log to grow, by watching the mirror.

`events.jsonl` changes after the commit; a waiter then reads the database. Watching the WAL would
wake it before the commit is visible. A slow poll of the database is the safety net, and the only
way to wait on systems without inotify.

A process has one inotify instance for all waiters, as a user may have only 128. One waiter reads it
and wakes the others; when it leaves, another takes over. A separate OS thread for that lost: a
program that forks must not contain an OS thread that it did not start.
"""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock

from eventq import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from inotify_simple import INotify

    from eventq.storage.sqlite.database import Database

_NAME = "events.jsonl"
_FAST_LOOK = 0.01  # seconds between two looks where there is no inotify


class Watcher:
    """A watcher for one waiter, created before its first read, so that it misses nothing."""

    def __init__(self, db: Database) -> None:
        """Begin to watch."""
        db.check_process()  # before the lock of a thread that a fork has not inherited
        self._db = db
        self._watch: _Watch | None = None
        try:
            self._watch = _Watch(db.directory)
        except (ImportError, OSError):
            self._version = db.data_version()

    def wait(self, seconds: float) -> bool:
        """Wait until the log may have grown; return False after a timeout.

        Raises NotAThreadError then for a thread that was deleted or replaced.
        """
        self._db.check_process()  # what a fork has inherited is not its own
        if self._watch is None:
            return self._poll(seconds)
        woken = self._watch.wait(seconds)
        if not woken:
            self._db.alive()
        return woken

    def _poll(self, seconds: float) -> bool:
        deadline = system.monotonic() + seconds
        while (version := self._db.data_version()) in (None, self._version):
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
            self._watch = None

    def __enter__(self) -> Watcher:
        """Return the watcher."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Stop watching."""
        self.close()


class _Watch:
    """A watch of the mirror file, renewed when the folder gets another one."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, _NAME)
        self._notify = notify = _Notify.shared()
        self.bell = allocate_lock()  # locked until it rings
        self.bell.acquire()
        self.rang = False
        self._file = -1
        with notify.lock:
            self._folder = notify.add(self, directory, folder=True)
            self._add_file()

    def _add_file(self) -> None:
        """Watch the file that has the name now, in place of the one before it."""
        before, self._file = self._file, -1
        try:
            self._file = self._notify.add(self, self._path, folder=False)
        except OSError:
            pass  # missing, or not for us to read: the watch of the folder and the slow look remain
        if before >= 0 and before != self._file:
            self._notify.remove(self, before)

    def note(self, number: int, name: str) -> None:
        """Wake the waiter if the file or its name has changed; the instance is locked."""
        if number != self._folder:
            self.ring()
        elif name == _NAME:
            self._add_file()
            self.ring()

    def ring(self) -> None:
        """Wake the waiter, now or when it begins to wait; the instance is locked."""
        self.rang = True
        self.nudge()

    def nudge(self) -> None:
        """Wake the waiter, perhaps to read the instance, which is locked."""
        if self.bell.locked():
            self.bell.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the file or its name to change."""
        return self._notify.wait(self, system.monotonic() + seconds)

    def close(self) -> None:
        """Stop watching."""
        with self._notify.lock:
            for number in {self._folder, self._file} - {-1}:
                self._notify.remove(self, number)


class _Notify:
    """The inotify instance of this process, while somebody watches."""

    _one: _Notify | None = None

    def __init__(self) -> None:
        from inotify_simple import INotify, flags

        self._folder_flags = flags.CREATE | flags.MOVED_TO | flags.ONLYDIR
        self._file_flags = flags.MODIFY
        self._make = INotify
        self._instance: INotify | None = None
        self._watches: dict[int, list[_Watch]] = {}  # by the number of what they watch
        self._waiting: list[_Watch] = []
        self._reader: _Watch | None = None  # whose waiter reads the instance now
        self.lock = RLock()

    @classmethod
    def shared(cls) -> _Notify:
        """Return the one of this process: a fork begins anew."""
        if cls._one is None:
            cls._one = cls()
        return cls._one

    @classmethod
    def forget(cls) -> None:
        """Drop the instance without closing it: it belongs to the parent of a fork."""
        cls._one = None

    def add(self, watch: _Watch, path: str, *, folder: bool) -> int:
        """Watch a file or a folder; return its number, which others that watch it have too."""
        if self._instance is None:
            self._instance = self._make()
        try:
            number: int = self._instance.add_watch(
                path, self._folder_flags if folder else self._file_flags
            )
        except OSError:
            self._close_unused()
            raise
        watches = self._watches.setdefault(number, [])
        if watch not in watches:
            watches.append(watch)
        return number

    def remove(self, watch: _Watch, number: int) -> None:
        """Stop watching; the last watcher closes the instance."""
        watches = self._watches.get(number, [])
        if watch in watches:
            watches.remove(watch)
        if not watches and self._watches.pop(number, None) is not None and self._instance:
            try:
                self._instance.rm_watch(number)
            except OSError:
                pass  # the file is gone, and its watch with it
        self._close_unused()

    def _close_unused(self) -> None:
        if self._instance is not None and not self._watches and self._reader is None:
            self._instance.close()
            self._instance = None

    def wait(self, watch: _Watch, deadline: float) -> bool:
        """Wait until a watch rings; return False when the time is up."""
        left = 1.0
        try:
            self._waiting.append(watch)
            while not watch.rang and left > 0:
                left = deadline - system.monotonic()
                if (instance := self._begin_to_read(watch)) is not None:
                    self._read(instance, left)
                elif left > 0:
                    watch.bell.acquire(timeout=left)
            rang, watch.rang = watch.rang, False
            return rang
        finally:
            self._leave(watch)

    def _begin_to_read(self, watch: _Watch) -> INotify | None:
        """Return the instance if this waiter is the one that reads it, else None."""
        with self.lock:
            if self._reader is None and self._instance is not None:
                self._reader = watch
                return self._instance
        return None

    def _read(self, instance: INotify, seconds: float) -> None:
        """Read what has changed, and ring for those who watch it."""
        events = instance.read(timeout=max(0, int(seconds * 1000)))
        with self.lock:
            self._reader = None
            for event in events:
                for watch in self._watches_of(event.wd):
                    watch.note(event.wd, event.name)
            self._close_unused()

    def _watches_of(self, number: int) -> list[_Watch]:
        """Return the watches of a number; all of them if the system has dropped events."""
        if number < 0:
            return [watch for watches in self._watches.values() for watch in watches]
        return list(self._watches.get(number, ()))

    def _leave(self, watch: _Watch) -> None:
        """Stop waiting, even after an interrupt; another waiter reads from now on."""
        with self.lock:
            if watch in self._waiting:
                self._waiting.remove(watch)
            if self._reader is watch:
                self._reader = None
            if self._waiting and self._reader is None:
                self._waiting[0].nudge()
            self._close_unused()


os.register_at_fork(after_in_child=_Notify.forget)
