"""The lock of a consumer: its holder supervises that consumer, and nobody else runs its handler.

Two locks of the operating system, gone with their holder. The one on `run/<consumer>.lock` is there to be seen, by
people and other programs. Handlers may remove that file, so the one that decides is the *guard*, on a file that no
handler knows of. A lock on a removed file excludes nobody: whoever locks compares the file with the one at the path and
begins again when they differ, and a holder makes a removed file again.

The guard names its holder, and is there until that has looked for the last time. A guard that nobody holds belongs to a
consumer that lost its supervisor, and says which handler may have outlived it. `flock` is used as it is: it costs
a microsecond and no import, and a lock library on the same file would be a second opinion.
"""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock

from eventq import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.log.layout import Layout


_LOOK_SECONDS = 5.0  # no look takes that long: a shared lock that lasts counts as held


class ConsumerLock:
    """A lock that is held, until `release`."""

    def __init__(self, layout: Layout, consumer: str, guard: int, fd: int) -> None:
        """Wrap the locked descriptors of the guard and of the lock file."""
        self._layout = layout
        self._consumer = consumer
        self._database = _inode(layout.database)
        self.guard = guard
        self.fd = fd
        self._noted = b""  # what the guard says, as far as we know

    @classmethod
    def take(cls, layout: Layout, consumer: str) -> ConsumerLock | None:
        """Take the lock, or return None when another process holds it.

        Raises OSError when one of the files cannot be made.
        """
        deadline = system.monotonic() + _LOOK_SECONDS
        while (guard := _take(layout, layout.guard(consumer))) is not None:
            try:
                fd = _take(layout, layout.lock(consumer))
            except BaseException:
                os.close(guard)
                raise
            if fd is not None:
                lock = cls(layout, consumer, guard, fd)
                lock._begin()
                return lock
            flock(guard, LOCK_UN)
            os.close(guard)
            # An eventq without guards holds the file. Whoever met our guard meanwhile has left its event to us, so
            # look again: a holder that is still there has its own last look before it.
            if _is_locked(layout.lock(consumer)) or system.monotonic() >= deadline:
                return None
        return None

    def _begin(self) -> None:
        """Name a holder in the guard, but keep what it says of a handler that may have outlived its supervisor."""
        self._noted = _read(self.guard)
        if self._noted:
            return
        old = _read(self.fd)  # by an eventq without guards
        try:
            self._write(old if b"handler " in old else self._note(), self.guard)
        except OSError:
            pass  # a disk that is full; no handler is started before `note` succeeds

    @property
    def fds(self) -> tuple[int, int]:
        """The descriptors that hold the lock."""
        return self.guard, self.fd

    def note(self, handler: int | None = None) -> None:
        """Write down who holds the lock: this process, and the handler that it runs."""
        self.keep()
        self._write(self._note(handler), *self.fds)

    def _note(self, handler: int | None = None) -> bytes:
        text = f"supervisor {os.getpid()}\n"
        if handler is not None:
            text += f"handler {handler} {system.birth(handler)}\nthread {self._number()}\n"
        return text.encode()

    def _number(self) -> int:
        """Return what tells this thread from a copy of its directory, whose locks name our handlers as well."""
        return self._database[1] if self._database is not None else 0

    def _write(self, data: bytes, *fds: int) -> None:
        for fd in fds:
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))
        self._noted = data

    def keep(self) -> None:
        """Make a file of the lock again that was removed, unless somebody was quicker or the thread has gone."""
        self.guard = self._kept(self.guard, self._layout.guard(self._consumer))
        self.fd = self._kept(self.fd, self._layout.lock(self._consumer))

    def _kept(self, fd: int, path: str) -> int:
        """Return a locked descriptor of the file at the path: the present one, or that of a new file."""
        if _is_at(fd, path) or not self._is_our_thread():
            return fd
        try:
            fresh = _take(self._layout, path)
        except OSError:
            return fd  # tried again at the next look
        if fresh is None:
            return fd
        if not self._is_our_thread():
            os.close(fresh)
            return fd
        os.pwrite(fresh, self._noted, 0)
        os.close(fd)
        return fresh

    def _is_our_thread(self) -> bool:
        """Return whether the thread was not deleted and made anew, whose locks are not ours."""
        return self._database is not None and self._database == _inode(self._layout.database)

    def orphan(self) -> int | None:
        """Return the pid of a handler that the last holder left running, or None.

        The last holder may have been an eventq without guards, which has left its note in the lock file only.
        """
        for fd in self.fds:
            lines = [line.split(None, 2) for line in _read(fd).decode("ascii", "replace").splitlines()]
            if any(words[0] == "thread" and words[1:] != [str(self._number())] for words in lines if words):
                continue  # copied with the directory: that handler is at work in another thread
            for words in lines:
                if len(words) == 3 and words[0] == "handler" and words[1].isdigit():
                    pid = int(words[1])
                    if system.birth(pid) == words[2]:
                        return pid
        return None

    def release(self) -> None:
        """Let the lock go for everybody who has inherited it; `forget` or `close` follows.

        Closing is not enough: the dispatch that forked us, or a handler of another consumer that is not yet more than a
        fork of us, may have the descriptors for a moment longer, and the lock would look held though nobody looks
        again. The guard goes on naming us: if we are killed before the last look, the consumer has lost its supervisor.
        """
        flock(self.fd, LOCK_UN)
        flock(self.guard, LOCK_UN)

    def forget(self) -> None:
        """Remove the guard of a released lock after the last look, unless somebody has taken it since.

        A shared lock keeps new holders out meanwhile and does not count as held: nobody leaves us an event.
        """
        path = self._layout.guard(self._consumer)
        try:
            flock(self.guard, LOCK_SH | LOCK_NB)
            if _is_at(self.guard, path) and _read(self.guard) == self._noted:
                os.unlink(path)
            flock(self.guard, LOCK_UN)
        except OSError:
            pass  # taken, or a disk that fails: then the next push looks after the consumer
        self.close()

    def close(self) -> None:
        """Close the descriptors; a lock that is held is left to the process that inherited it."""
        os.close(self.fd)
        os.close(self.guard)


def _take(layout: Layout, path: str) -> int | None:
    """Lock the file at a path and return its descriptor, or None when another process holds it.

    A file that was removed before it was locked is another file than that at the path: begin again.
    """
    while True:
        fd = _open(layout, path)
        try:
            if not _locks(fd):
                os.close(fd)
                return None
            if _is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _locks(fd: int) -> bool:
    """Lock a file, and return whether that succeeded.

    Somebody who only looks (`held`) has a shared lock for an instant. That must not count as held, or the wake-up would
    be lost: only when a shared lock fails too does somebody really hold it.
    """
    deadline = system.monotonic() + _LOOK_SECONDS
    while system.monotonic() < deadline:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return True
        try:
            flock(fd, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            break
        flock(fd, LOCK_UN)
    return False


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read(fd: int) -> bytes:
    return os.pread(fd, 4096, 0)


def held(layout: Layout, consumer: str) -> bool:
    """Return whether somebody holds the lock of a consumer; a file that is missing is not held."""
    return _is_locked(layout.guard(consumer)) or _is_locked(layout.lock(consumer))


def _is_locked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        flock(fd, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def guards(layout: Layout) -> list[str]:
    """Return the names of all guards, encoded; who does not hold his has been killed, or is about to look."""
    try:
        return os.listdir(layout.guards)
    except OSError:
        return []


def wake_holder(layout: Layout, consumer: str) -> None:
    """Have the supervisor of a consumer, if there is one, look at what has changed.

    SIGCHLD does no harm to a process that took its pid. A supervisor in another container looks by itself.
    """
    try:
        with open(layout.guard(consumer), "rb") as file:
            words = file.read(4096).split(None, 2)
    except OSError:
        return
    if len(words) > 1 and words[0] == b"supervisor" and words[1].isdigit() and _is_locked(layout.guard(consumer)):
        system.wake(int(words[1]))


def lost(layout: Layout, consumer: str) -> bool:
    """Return whether a consumer lost its supervisor."""
    return os.path.exists(layout.guard(consumer)) and not held(layout, consumer)


def queue(layout: Layout, place: str) -> int | None:
    """Take the place of the one dispatch that may be waiting to begin; give its descriptor, or None when it is taken.

    Whoever finds it taken knows that a dispatch is yet to begin its scan, which will see everything committed before.
    There is a place for one that begins at once, `layout.queue`, and one for `layout.deferred`.
    """
    fd = _open(layout, place)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _open(layout: Layout, path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, layout.file_mode())
    except FileNotFoundError:
        os.stat(layout.database)  # a thread that was deleted is not made again for a lock
        layout.make_folder(os.path.dirname(path))
        return os.open(path, flags, layout.file_mode())
