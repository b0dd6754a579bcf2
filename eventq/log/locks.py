"""The lock of a consumer: while it is held, one supervisor looks after that consumer and nobody else runs its handler.

An operating system's lock on `run/<consumer>.lock`, gone with its holder; the file stays and names the last holder, so
that a handler that outlived a killed supervisor is recognised and waited for. `flock` is used as it is: it costs a
microsecond and no import, and a lock library on the same file would be a second opinion.
"""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock

from eventq import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.log.layout import Layout


_LOOK_SECONDS = 5.0  # no look takes that long: a shared lock that lasts is somebody else's, and counts as held


class ConsumerLock:
    """A lock that is held; `release` lets it go."""

    def __init__(self, fd: int) -> None:
        """Take the descriptor that holds it."""
        self.fd = fd

    @classmethod
    def take(cls, layout: Layout, path: str) -> ConsumerLock | None:
        """Take the lock, or give None when another process holds it.

        Somebody who only looks (`held`) has a shared lock for an instant. That must not count as held, or the wake-up
        would be lost: only when a shared lock fails too does somebody really hold it.
        """
        fd = _open(layout, path)
        deadline = system.monotonic() + _LOOK_SECONDS
        while system.monotonic() < deadline:
            try:
                flock(fd, LOCK_EX | LOCK_NB)
                return cls(fd)
            except BlockingIOError:
                pass
            try:
                flock(fd, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                break
            flock(fd, LOCK_UN)
        os.close(fd)
        return None

    def note(self, handler: int | None = None) -> None:
        """Write down who holds it: this process, and the handler that it runs."""
        text = f"supervisor {os.getpid()}\n"
        if handler is not None:
            text += f"handler {handler} {system.birth(handler)}\n"
        data = text.encode()
        os.pwrite(self.fd, data, 0)
        os.ftruncate(self.fd, len(data))

    def orphan(self) -> int | None:
        """Give the pid of a handler that the last holder left running, or None."""
        for words in (
            line.split(None, 2) for line in os.pread(self.fd, 4096, 0).decode("ascii", "replace").splitlines()
        ):
            if len(words) == 3 and words[0] == "handler" and words[1].isdigit():
                return int(words[1]) if system.birth(int(words[1])) == words[2] else None
        return None

    def release(self) -> None:
        """Let the lock go for everybody who has inherited it: from here on nobody looks after the consumer.

        Closing is not enough: the dispatch that forked us, or a handler of another consumer that is not yet more than a
        fork of us, may have the descriptor for a moment longer, and the lock would look held though nobody looks again.
        """
        flock(self.fd, LOCK_UN)
        os.close(self.fd)

    def close(self) -> None:
        """Leave the lock to the process that inherited it."""
        os.close(self.fd)


def held(path: str) -> bool:
    """Say whether somebody holds the lock of a path; a file that is missing is not held."""
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


def queue(layout: Layout) -> int | None:
    """Take the place of the one dispatch that may be waiting to begin; give its descriptor, or None when it is taken.

    Whoever finds it taken knows that a dispatch is yet to begin its scan, which will see everything committed before.
    """
    fd = _open(layout, layout.queue)
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
        layout.make_folder(layout.run)
        return os.open(path, flags, layout.file_mode())
