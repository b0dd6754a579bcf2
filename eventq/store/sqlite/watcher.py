"""Wait for something to do, by watching two files of a thread.

`run/bell` is touched after each commit that can make anybody due, and opened and closed after each
change of a run; `events.jsonl` changes after each push, also by programs that know of no bell. A
waiter then reads the database. Watching the WAL would wake it before the commit is visible. A slow
poll of the database is the safety net, and the only way to wait on systems without inotify.

A process has one inotify instance for all waiters, as a user may have only 128. One waiter reads it
and wakes the others; when it leaves, another takes over. A separate OS thread for that lost: a
program that forks must not contain an OS thread that it did not start.
"""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock

from eventq.store.sqlite.bell import BELL
from eventq.system import clock
from eventq.system.locks import supervised

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from inotify_simple import INotify

    from eventq.store.sqlite.database import Database

_MIRROR = "events.jsonl"
_NEW = (_MIRROR, "run")  # names in a thread's folder that lead to another file to watch
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

        Raises NotAThreadError for a thread that was deleted or replaced.
        """
        self._db.check_process()  # what a fork has inherited is not its own
        if self._watch is None:
            return self._poll(seconds)
        woken = self._watch.wait(seconds)
        self._db.alive()
        return woken

    def fileno(self) -> int:
        """Return a descriptor that can be read when `wait(0)` may return True; -1 for none."""
        return -1 if self._watch is None else self._watch.fileno()

    def nudge(self) -> None:
        """Let `wait` return soon: the bell wakes it, if there is one; see `store.protocol`."""
        try:
            os.utime(os.path.join(self._db.directory, BELL))
        except OSError:
            pass

    def _poll(self, seconds: float) -> bool:
        deadline = clock.monotonic() + seconds
        while (version := self._db.data_version()) in (None, self._version):
            left = deadline - clock.monotonic()
            if left <= 0:
                self._db.alive()
                return False
            clock.pause(min(_FAST_LOOK, left))
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
    """A watch of the bell and the mirror of a thread, renewed when there are other files."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._notify = notify = _Notify.shared()
        self.bell = allocate_lock()  # locked until it rings
        self.bell.acquire()
        self.rang = False
        self._files = {_MIRROR: -1, BELL: -1}
        with notify.lock:
            self._folder = notify.add(self, directory, notify.folder_flags)
            self._add_files()

    def _add_files(self) -> None:
        """Watch the files that have the names now, in place of those before them."""
        for name, before in self._files.items():
            self._files[name] = now = self._add(name)
            if before >= 0 and before != now:
                self._notify.remove(self, before)

    def _add(self, name: str) -> int:
        """Watch a file; return -1 if that fails: the watch of the folder and slow looks remain."""
        path = os.path.join(self._directory, name)
        flags = self._notify.bell_flags if name == BELL else self._notify.file_flags
        try:
            return self._notify.add(self, path, flags)
        except FileNotFoundError:
            if name != BELL:
                return -1
        except OSError:
            return -1  # not for us to read
        return self._add_bell(path)

    def _add_bell(self, path: str) -> int:
        """Watch the folder of a bell that is missing, until somebody rings.

        Who waits makes none: a thread that is being deleted would get it back.
        """
        folder = -1
        try:
            folder = self._notify.add(self, os.path.dirname(path), self._notify.folder_flags)
            bell = self._notify.add(self, path, self._notify.bell_flags)
        except OSError:
            return folder
        self._notify.remove(self, folder)
        return bell

    def note(self, number: int, name: str) -> None:
        """Wake the waiter if a file or its name has changed; the instance is locked."""
        if number == self._folder and name not in _NEW:
            return
        if number != self._files[_MIRROR]:  # the bell may have been removed
            self._add_files()
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
        return self._notify.wait(self, clock.monotonic() + seconds)

    def fileno(self) -> int:
        """Return the descriptor of the instance, which all waiters share."""
        return self._notify.fileno()

    def close(self) -> None:
        """Stop watching."""
        with self._notify.lock:
            for number in {self._folder, *self._files.values()} - {-1}:
                self._notify.remove(self, number)


class _Listed(_Watch):
    """A watch whose changes are noted in a set."""

    def __init__(self, directory: str, rang: set[str]) -> None:
        self._rang = rang
        super().__init__(directory)

    def ring(self) -> None:
        """Note the thread."""
        self._rang.add(self._directory)


class _Folder:
    """A watch of a folder that may get subfolders and threads."""

    def __init__(self, path: str, changed: set[str]) -> None:
        self._path = path
        self._changed = changed
        self._notify = _Notify.shared()
        self._number = self._notify.add(self, path, self._notify.folder_flags)

    def note(self, _: int, __: str) -> None:
        """Note the folder."""
        self._changed.add(self._path)

    def nudge(self) -> None:
        """Do nothing: nobody waits."""

    def close(self) -> None:
        """Stop watching."""
        self._notify.remove(self, self._number)


class Bells:
    """Watches many threads, and folders that may get more, for a process with one OS thread.

    What cannot be watched, as the system has no inotify or no watch left, is looked at by `take`.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._rang: set[str] = set()
        self._changed: set[str] = set()
        self._threads: dict[str, _Listed] = {}
        self._folders: dict[str, _Folder] = {}
        self._polled: dict[str, object] = {}  # threads, with the times of their files

    @property
    def polls(self) -> bool:
        """Whether there are threads that only `take` looks at."""
        return bool(self._polled)

    def fileno(self) -> int:
        """Return a descriptor that can be read when `take` may return anything; -1 for none."""
        watched = self._threads or self._folders
        return _Notify.shared().fileno() if watched else -1

    def add(self, directory: str) -> None:
        """Watch a thread from now on."""
        if directory in self._threads or directory in self._polled:
            return
        try:
            self._threads[directory] = _Listed(directory, self._rang)
        except (ImportError, OSError):
            self._polled[directory] = _times(directory, BELL, _MIRROR)

    def remove(self, directory: str) -> None:
        """Stop watching a thread."""
        if watch := self._threads.pop(directory, None):
            watch.close()
        self._polled.pop(directory, None)
        self._rang.discard(directory)

    def add_folder(self, path: str) -> None:
        """Watch a folder, as far as the system can."""
        if path not in self._folders:
            try:
                self._folders[path] = _Folder(path, self._changed)
            except (ImportError, OSError):
                pass

    def take(self) -> tuple[set[str], set[str]]:
        """Return the threads and the folders that have changed since the last call."""
        if self.fileno() >= 0:
            _Notify.shared().read_now()
        for directory, before in self._polled.items():
            if (times := _times(directory, BELL, _MIRROR)) != before:
                self._polled[directory] = times
                self._rang.add(directory)
        rang, changed = set(self._rang), set(self._changed)
        self._rang.clear()
        self._changed.clear()
        return rang, changed

    def close(self) -> None:
        """Stop watching."""
        for watch in self._threads.values():
            watch.close()
        for folder in self._folders.values():
            folder.close()
        self._threads.clear()
        self._folders.clear()


def trace(directory: str) -> object:
    """Return what changes with every commit, without opening the database.

    It is never the same twice while somebody supervises consumers, who may be lost at any time.
    """
    times = _times(directory, "events.db", "events.db-wal")
    return [*times, object()] if supervised(directory) else times


def _times(directory: str, *names: str) -> list[object]:
    """Return what changes with the files of a thread."""
    found: list[object] = []
    for name in names:
        try:
            stat = os.stat(os.path.join(directory, name))
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append((0, 0, 0))
    return found


class _Notify:
    """The inotify instance of this process, while somebody watches."""

    _one: _Notify | None = None

    def __init__(self) -> None:
        from inotify_simple import INotify, flags

        self.folder_flags = flags.CREATE | flags.MOVED_TO | flags.ONLYDIR
        self.file_flags = flags.MODIFY | flags.ATTRIB
        self.bell_flags = self.file_flags | flags.CLOSE_NOWRITE  # a ring may leave its time alone
        self._make = INotify
        self._instance: INotify | None = None
        self._watches: dict[int, list[_Watch | _Folder]] = {}  # by the number of what they watch
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

    def fileno(self) -> int:
        """Return the descriptor of the instance, -1 while nobody watches."""
        return -1 if self._instance is None else int(self._instance.fileno())

    def add(self, watch: _Watch | _Folder, path: str, flags: int) -> int:
        """Watch a file or a folder; return its number, which others that watch it have too."""
        if self._instance is None:
            self._instance = self._make()
        try:
            number: int = self._instance.add_watch(path, flags)
        except OSError:
            self._close_unused()
            raise
        watches = self._watches.setdefault(number, [])
        if watch not in watches:
            watches.append(watch)
        return number

    def remove(self, watch: _Watch | _Folder, number: int) -> None:
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
            # In this order: an interrupt would leave a closed one to the next watcher.
            instance, self._instance = self._instance, None
            instance.close()

    def wait(self, watch: _Watch, deadline: float) -> bool:
        """Wait until a watch rings; return False when the time is up."""
        left = 1.0
        try:
            self._waiting.append(watch)
            while not watch.rang and left > 0:
                left = deadline - clock.monotonic()
                if (instance := self._begin_to_read(watch)) is not None:
                    self._read(instance, left)
                elif left > 0:
                    watch.bell.acquire(timeout=left)
            rang, watch.rang = watch.rang, False
            return rang
        finally:
            with self.lock:  # nothing is called first: an interrupt would leave others unread
                if self._reader is watch:
                    self._reader = None
                self._leave(watch)

    def _begin_to_read(self, watch: _Watch) -> INotify | None:
        """Return the instance if this waiter is the one that reads it, else None."""
        with self.lock:
            if self._reader is None and self._instance is not None:
                self._reader = watch
                return self._instance
        return None

    def read_now(self) -> None:
        """Read what has changed, without waiting."""
        with self.lock:
            if self._instance is not None and self._reader is None:
                self._read(self._instance, 0)

    def _read(self, instance: INotify, seconds: float) -> None:
        """Read what has changed, and ring for those who watch it."""
        events = instance.read(timeout=max(0, int(seconds * 1000)))
        with self.lock:
            self._reader = None
            for event in events:
                for watch in self._watches_of(event.wd):
                    watch.note(event.wd, event.name)
            self._close_unused()

    def _watches_of(self, number: int) -> list[_Watch | _Folder]:
        """Return the watches of a number; all of them if the system has dropped events."""
        if number < 0:
            return [watch for watches in self._watches.values() for watch in watches]
        return list(self._watches.get(number, ()))

    def _leave(self, watch: _Watch) -> None:
        """Stop waiting, even after an interrupt; another waiter reads from now on."""
        if watch in self._waiting:
            self._waiting.remove(watch)
        if self._waiting and self._reader is None:
            self._waiting[0].nudge()
        self._close_unused()


os.register_at_fork(after_in_child=_Notify.forget)
