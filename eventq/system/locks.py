"""File locks: one for a directory, and one per consumer.

The process that holds a consumer's lock supervises the consumer, and no other process runs its
handler. The lock consists of two operating-system locks, which end with their holder. The one on
`run/<consumer>.lock` is visible to people and other programs. Handlers may remove that file, so
another lock decides: the *guard*, on a file that handlers do not know. A lock on a removed file
excludes nobody. So a process that locks compares its file with the one at the path, and starts
again if they differ; a holder creates a removed file again.

The guard contains the identity of its holder until the holder's last look for events. A guard that
nobody holds belongs to a consumer that lost its supervisor, and identifies the handler that may
have survived it.

`portalocker` takes the locks of consumers, and those of rare operations. It calls `flock`, so its
locks exclude bare calls. Push makes bare calls only, as its queue slot, the mirror's lock and looks
at who holds a lock need no import, and even the part of `portalocker` that locks takes 13 ms.
Releases are bare calls too: releases of `portalocker` before 3.2 accept no descriptors.
"""

from __future__ import annotations

import os
from _struct import Struct
from _thread import RLock
from errno import EBADF
from fcntl import F_SETLK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, fcntl, flock

from eventq.system import clock, disk, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

# How long a push waits for the mirror's lock: its event is stored, and the next push catches up.
LOCK_SECONDS = 5.0
_FLOCK = Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_GET_LOCK = getattr(__import__("fcntl"), "F_OFD_GETLK", None)  # Linux has it
_GUARDS = ".guards"
_HOLD = "@"  # follows a consumer in the name of a worker's file; `encode` never gives it
FRESH_SECONDS = 10.0  # after which a worker that has not refreshed its time counts as stuck
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
_LOOK_SECONDS = 5.0  # no look takes that long: a shared lock that lasts counts as held


def within(lock: RLock, seconds: float, step: Callable[[], object]) -> bool:
    """Run a step with a lock of this process; return False if that is not free in time.

    Nothing is waited for in 0 seconds, and everything in -1. An interrupt may come when the lock
    was taken, before that is known: the release knows it.
    """
    try:
        if not lock.acquire(timeout=seconds):
            return False
        step()
        return True
    finally:
        try:
            lock.release()
        except RuntimeError:
            pass  # it was not taken


class FolderLock:
    """The lock of a folder, on the folder itself: it cannot be deleted, and ends with its holder.

    OS threads that share one take turns first: to the system, one descriptor is one holder.
    """

    def __init__(self, path: str) -> None:
        """Prepare; nothing is opened yet."""
        self._path = path
        self._fd = -1

    def run(self, step: Callable[[], T]) -> T:
        """Run a step with the lock.

        No block of `with`, as an interrupt may keep its end from being run. Raises TimeoutError
        when another process keeps the lock for LOCK_SECONDS.
        """
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                flock(self._fd, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                self._wait()
            return step()
        finally:
            flock(self._fd, LOCK_UN)

    def _wait(self) -> None:
        """Take the lock; raise TimeoutError when somebody keeps it for LOCK_SECONDS."""
        deadline = clock.monotonic() + LOCK_SECONDS
        while True:
            clock.pause(0.00005 + os.urandom(1)[0] * 0.0002 / 255)
            try:
                flock(self._fd, LOCK_EX | LOCK_NB)
                return
            except BlockingIOError:
                if clock.monotonic() > deadline:
                    raise TimeoutError(f"another process keeps the lock of {self._path}") from None

    def close(self) -> None:
        """Close the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def alone_in(path: str, step: Callable[[], T]) -> T:
    """Run a step with the lock of a folder, which is used for nothing else."""
    lock = FolderLock(path)
    try:
        return lock.run(step)
    finally:
        lock.close()


def descriptor_of(path: str) -> int:
    """Return a descriptor of this process for a file, -1 where none is known."""
    path = os.path.realpath(path)
    try:
        for number in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{number}") == path:
                    return int(number)
            except OSError:
                pass  # closed meanwhile
    except OSError:
        pass  # not Linux
    return -1


class ByteLock:
    """The lock of one byte of a file, to write, that this process has with `fcntl`."""

    __slots__ = ("_asked", "_had")

    def __init__(self, byte: int) -> None:
        """Prepare to ask for the lock of a byte."""
        self._asked = _FLOCK.pack(F_WRLCK, os.SEEK_SET, byte, 1, 0)
        self._had = _FLOCK.pack(F_WRLCK, os.SEEK_SET, byte, 1, os.getpid())

    def is_held(self, fd: int) -> bool:
        """Return whether this process has it; True where that cannot be asked.

        To the system, whoever asks for a lock of an open file is not the process, and so it names
        the process.
        """
        if fd < 0 or _GET_LOCK is None:
            return True
        try:
            found = fcntl(fd, _GET_LOCK, self._asked)
        except OSError as error:
            return error.errno != EBADF
        if found == self._had:
            return True
        kind, _, _, _, pid = _FLOCK.unpack(found)  # locks of bytes side by side are one
        return bool(kind == F_WRLCK and pid == os.getpid())

    def take(self, fd: int) -> bool:
        """Take it; return False if another process has it."""
        if fd < 0:
            return False
        try:
            fcntl(fd, F_SETLK, self._asked)
        except OSError:
            return False
        return True


def lock_whole(fd: int, *, wait: bool) -> None:
    """Lock a file or a folder for as long as the descriptor is open.

    Raises BlockingIOError when somebody holds it, unless that is waited for, and OSError where the
    file system has no locks.
    """
    from eventq.system.flock import AlreadyLocked, LockException, LockFlags, lock

    flags = LockFlags.EXCLUSIVE
    try:
        lock(fd, flags if wait else flags | LockFlags.NON_BLOCKING)
    except LockException as error:
        kind = BlockingIOError if isinstance(error, AlreadyLocked) else OSError
        raise kind(*(error.__cause__ or error).args) from error


class ConsumerFiles:
    """The paths of one consumer's lock: the guard, which decides, and the file that people see.

    `database` tells the thread from another one that came to its place.
    """

    __slots__ = ("database", "guard", "lock")

    def __init__(self, guard: str, lock: str, database: str) -> None:
        """Take the three paths."""
        self.guard = guard
        self.lock = lock
        self.database = database


def files_of(directory: str, consumer: str) -> ConsumerFiles:
    """Return the files of a consumer's lock in a thread's directory.

    The guard lies apart from `run`, where handlers remove files.
    """
    name = encode(consumer)
    return ConsumerFiles(
        f"{directory}/{_GUARDS}/{name}", f"{directory}/run/{name}.lock", f"{directory}/events.db"
    )


def encode(consumer: str) -> str:
    """Return the file name of a consumer id: readable, never a path, no two alike in any case.

    Lower-case letters, digits, `_`, `-` and inner dots stay; a capital is `+` and its lower case;
    every other character is `%` and two hexadecimal digits a byte. A long name ends in `~` and a
    hash of the whole id.
    """
    name = consumer if _PLAIN.issuperset(consumer) else "".join(map(_encode, consumer))
    if name.startswith("."):
        name = "%2e" + name[1:]
    if len(name) <= 120:
        return name
    from hashlib import sha256

    return f"{name[:60]}~{sha256(os.fsencode(consumer)).hexdigest()}"


def _encode(character: str) -> str:
    if character in _PLAIN:
        return character
    if "A" <= character <= "Z":
        return "+" + character.lower()
    return "".join(f"%{byte:02x}" for byte in os.fsencode(character))


class ConsumerLock:
    """The lease of a consumer, held until `release`; see `eventq.store.protocol.Lease`."""

    fence = 0  # the locks of the system exclude everybody else as long as they are held
    renew_every: float | None = None
    deadline: float | None = None

    def __init__(self, files: ConsumerFiles, guard: int, fd: int) -> None:
        """Wrap the locked descriptors of the guard and of the lock file."""
        self._files = files
        self._database = _inode(files.database)
        self.guard = guard
        self.fd = fd
        self._noted = b""  # what the guard says, as far as we know

    @classmethod
    def take(cls, files: ConsumerFiles) -> ConsumerLock | None:
        """Take the lock, or return None when another process holds it.

        Raises OSError when one of the files cannot be made.
        """
        deadline = clock.monotonic() + _LOOK_SECONDS
        while (guard := _take(files.guard, files.database)) is not None:
            fd = None
            try:
                fd = _take(files.lock, files.database)
                if fd is not None:
                    lock = cls(files, guard, fd)
                    lock._begin()
                    return lock
                flock(guard, LOCK_UN)
            except BaseException:  # an interrupt as well
                if fd is not None:
                    os.close(fd)
                os.close(guard)
                raise
            os.close(guard)
            # An eventq without guards holds the file. Whoever met our guard meanwhile has left its
            # event to us, so look again: a holder that is still there has its own last look before
            # it.
            if _is_locked(files.lock) or clock.monotonic() >= deadline:
                return None
        return None

    def _begin(self) -> None:
        """Write the holder into the guard, unless that names a handler that may still run."""
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
        """Record the holder of the lock: this process, and the handler that it runs."""
        self.renew()
        self._write(self._note(handler), *self.fds)

    def _note(self, handler: int | None = None) -> bytes:
        text = f"supervisor {os.getpid()}\n"
        if handler is not None:
            from eventq.system.processes import identity

            text += f"handler {identity(handler)}\nthread {self._number()}\n"
        return text.encode()

    def _number(self) -> int:
        """Return the database's inode: locks in a copy of the directory name our handlers too."""
        return self._database[1] if self._database is not None else 0

    def _write(self, data: bytes, *fds: int) -> None:
        for fd in fds:
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))
        self._noted = data

    def renew(self) -> bool:
        """Create a removed lock file again; return False if the lock is lost.

        It is lost when somebody was quicker, or the thread is gone.
        """
        before, self.guard = self.guard, self._kept(self.guard, self._files.guard)
        if before != self.guard:
            os.close(before)
        before, self.fd = self.fd, self._kept(self.fd, self._files.lock)
        if before != self.fd:
            os.close(before)
        return _is_at(self.guard, self._files.guard)

    def _kept(self, fd: int, path: str) -> int:
        """Return a locked descriptor of the file at the path, making the file if it was removed."""
        if _is_at(fd, path) or not self._is_our_thread():
            return fd
        try:
            fresh = _take(path, self._files.database)
        except OSError:
            return fd  # tried again at the next look
        if fresh is None:
            return fd
        if not self._is_our_thread():
            os.close(fresh)
            return fd
        os.pwrite(fresh, self._noted, 0)
        return fresh

    def _is_our_thread(self) -> bool:
        """Return whether the thread is still the same one, not one created again at its path."""
        return self._database is not None and self._database == _inode(self._files.database)

    def orphan(self) -> int | None:
        """Return the process group of a handler that the last holder left running, or None.

        An eventq without guards has left its note in the lock file only.
        """
        from eventq.system.processes import group_of

        for fd in self.fds:
            notes = [
                line.partition(" ")[::2]
                for line in _read(fd).decode("ascii", "replace").splitlines()
            ]
            if any(word == "thread" and number != str(self._number()) for word, number in notes):
                continue  # copied with the directory: that handler is at work in another thread
            for word, handler in notes:
                if word == "handler" and (group := group_of(handler)) is not None:
                    return group
        return None

    def release(self) -> None:
        """Release the lock for everybody who has inherited it; `forget` or `close` follows.

        Closing is not enough: the dispatch that forked us, or a fork of us that is yet to become a
        handler, may have the descriptors for a moment longer. The lock would look held though
        nobody looks again. The guard goes on naming us: if we are killed before the last look, the
        consumer has lost its supervisor.
        """
        flock(self.fd, LOCK_UN)
        flock(self.guard, LOCK_UN)

    def forget(self) -> None:
        """Remove the guard of a released lock after the last look, unless it was taken since.

        A shared lock keeps new holders out meanwhile. It does not count as held, so nobody leaves
        an event to us.
        """
        path = self._files.guard
        try:
            flock(self.guard, LOCK_SH | LOCK_NB)
            if _is_at(self.guard, path) and _read(self.guard) == self._noted:
                os.unlink(path)
        except OSError:
            pass  # taken, or a disk that fails: then the next push looks after the consumer
        finally:
            flock(self.guard, LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close the descriptors; a lock that is held is left to the process that inherited it."""
        os.close(self.fd)
        os.close(self.guard)


def _take(path: str, database: str) -> int | None:
    """Lock the file at a path and return its descriptor, or None when another process holds it.

    A file that was removed before it was locked is another file than that at the path: begin again.
    """
    while True:
        fd = _open(path, database)
        is_ours = False
        try:
            is_ours = _locks(fd)
            if is_ours and _is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if not is_ours:
            return None


def _locks(fd: int) -> bool:
    """Lock a file, and return whether that succeeded.

    Whoever only looks (`held`) has a shared lock for an instant. That must not count as held, or a
    wake-up would be lost: somebody holds the lock only when a shared lock fails too.
    """
    deadline = clock.monotonic() + _LOOK_SECONDS
    while clock.monotonic() < deadline:
        try:
            lock_whole(fd, wait=False)
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


def held(files: ConsumerFiles) -> bool:
    """Return whether somebody holds the lock of a consumer; a file that is missing is not held."""
    return _is_locked(files.guard) or _is_locked(files.lock)


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


def guards(folder: str) -> list[str]:
    """Return the names of all guards, encoded; one that is not held is lost, or about to go."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def supervised(directory: str) -> bool:
    """Return whether any consumer of a thread has a supervisor, or has lost one."""
    return any(_HOLD not in name for name in guards(f"{directory}/{_GUARDS}"))


def wake_holder(files: ConsumerFiles) -> None:
    """Wake the supervisor of a consumer, if there is one.

    SIGCHLD does no harm to a process that took its pid. In another container it looks by itself.
    """
    try:
        with open(files.guard, "rb") as file:
            words = file.read(4096).split(None, 2)
    except OSError:
        return
    if (
        len(words) > 1
        and words[0] == b"supervisor"
        and words[1].isdigit()
        and _is_locked(files.guard)
    ):
        processes.wake(int(words[1]))


def lost(files: ConsumerFiles) -> bool:
    """Return whether a consumer lost its supervisor."""
    return os.path.exists(files.guard) and not held(files)


class Hold:
    """A worker's note that it looks after a consumer: a locked file whose time it refreshes.

    Whoever finds one that is locked and fresh leaves the consumer's events to that worker. It is
    taken before the worker looks for events, and the worker looks again after the release. Each
    worker has a file of its own: with a shared lock on one file, two who look at once would take
    each other for workers.
    """

    def __init__(self, directory: str, consumer: str) -> None:
        """Take it. Raises OSError when the file cannot be made."""
        self._database = f"{directory}/events.db"
        self.name = f"{encode(consumer)}{_HOLD}{os.getpid()}-{os.urandom(4).hex()}"
        self._path = f"{directory}/{_GUARDS}/{self.name}"
        self._fd = -1
        self.renew()

    def renew(self) -> None:
        """Refresh the time, and make the file again if somebody removed it. Raises OSError."""
        if self._fd < 0 or not _is_at(self._fd, self._path):
            fresh = _take(self._path, self._database)
            if fresh is None:
                return  # somebody looks for what lost workers have left; the next time then
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = fresh
        now = int(clock.now() * 1e9)
        os.utime(self._fd, ns=(now, now))

    def release(self) -> None:
        """Let pushes start handlers from now on."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # the thread is gone, or will be cleaned by the next supervisor
            # Not only closed: a fork that is yet to become a handler may have the descriptor.
            flock(fd, LOCK_UN)
            os.close(fd)


def _is_worker(path: str) -> bool:
    """Return whether a worker is at work: its file is locked, and its time was refreshed lately."""
    try:
        age = clock.now() - os.stat(path).st_mtime
    except OSError:
        return False
    return abs(age) < FRESH_SECONDS and _is_locked(path)


def _remove_lost_hold(path: str) -> None:
    """Remove what a killed worker has left."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        lock_whole(fd, wait=False)
        os.unlink(path)
    except OSError:
        pass  # a worker has it
    finally:
        os.close(fd)


class Leases:
    """Who supervises the consumers of a thread; see `eventq.store.protocol.Leases`."""

    def __init__(self, directory: str) -> None:
        """List the guards; the rest is looked up when it is asked for."""
        self._directory = directory
        self._by_name: dict[str, list[str]] = {}  # guards and holds, by what they begin with
        for name in guards(f"{directory}/{_GUARDS}"):
            self._by_name.setdefault(name.partition(_HOLD)[0], []).append(name)

    def _holds(self, consumer: str) -> list[str]:
        """Return the files of the workers that look after a consumer, or did."""
        if not self._by_name:
            return []
        folder, name = f"{self._directory}/{_GUARDS}", encode(consumer)
        return [f"{folder}/{one}" for one in self._by_name.get(name, ()) if one != name]

    def leave_out(self, name: str) -> None:
        """Take a hold of this process for none: it is not lost, and its lock need not be tried."""
        names = self._by_name.get(name.partition(_HOLD)[0], [])
        if name in names:
            names.remove(name)

    def _has_lost_worker(self, consumer: str) -> bool:
        return any(not _is_locked(path) for path in self._holds(consumer))

    def is_noted(self, consumer: str) -> bool:
        """Return whether there was a holder when this object was created, or a worker was lost."""
        if not self._by_name:
            return False
        name = encode(consumer)
        return name in self._by_name.get(name, ()) or self._has_lost_worker(consumer)

    def is_held(self, consumer: str) -> bool:
        """Return whether somebody holds the lease of a consumer."""
        return held(files_of(self._directory, consumer))

    def is_worked(self, consumer: str) -> bool:
        """Return whether a worker was there when this object was created, and still is."""
        return any(map(_is_worker, self._holds(consumer)))

    def is_lost(self, consumer: str) -> bool:
        """Return whether a consumer lost its supervisor or its worker."""
        if not (names := self._by_name.get(name := encode(consumer))):
            return False
        is_lost = name in names and lost(files_of(self._directory, consumer))
        return is_lost or self._has_lost_worker(consumer)

    def forget_lost(self, consumer: str) -> None:
        """Remove what lost workers have left; the caller has looked for events since."""
        for path in self._holds(consumer):
            _remove_lost_hold(path)

    def wake(self, consumer: str) -> None:
        """Wake the supervisor of a consumer, if there is one."""
        wake_holder(files_of(self._directory, consumer))


def queue(place: str, database: str) -> int | None:
    """Take the slot for a waiting dispatch; return its descriptor, or None.

    None means that a dispatch is yet to begin its scan, which sees everything committed before.
    There is a place for one that begins at once, and one for a deferred one.
    """
    fd = _open(place, database)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _open(path: str, database: str) -> int:
    try:
        return disk.create(path, os.O_RDWR, database)
    except FileNotFoundError:
        os.stat(database)  # a thread that was deleted is not made again for a lock
        disk.make_folder(os.path.dirname(path), database)
        return disk.create(path, os.O_RDWR, database)
