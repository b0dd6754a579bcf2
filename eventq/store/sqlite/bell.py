"""`run/bell`, which is touched after each commit that can make anybody due, and so wakes watchers.

After events it is a byte that is written again. To set the time of the file instead costs a push
five microseconds, and dirties an inode that the next sync writes out; a message to each waiter
would need to know of them.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from eventq.system import disk

BELL = "run/bell"


def make_bell(directory: str) -> None:
    """Make and touch the bell, in a thread of the original tool, or after somebody has removed it.

    A failure is harmless: whoever waits also looks by himself now and then.
    """
    path, database = f"{directory}/{BELL}", f"{directory}/events.db"
    try:
        os.stat(database)  # in a deleted thread nothing is made again
        disk.make_folder(os.path.dirname(path), database)
        fd = disk.create(path, os.O_WRONLY, database)
        try:
            os.pwrite(fd, b"\n", 0)
        finally:
            os.close(fd)
    except OSError:
        pass


class Bell:
    """The bell of one thread, as a writer rings it."""

    def __init__(self, directory: str) -> None:
        """Take the thread's directory; nothing is opened yet."""
        self._directory = directory
        self._path = f"{directory}/{BELL}"
        self._fd = -1
        self._lock = allocate_lock()

    def ring_for_events(self) -> None:
        """Wake who waits for something to do, at a fifth of the cost of `ring`.

        A bell that was removed and made again since does not hear it: then the mirror wakes them.
        """
        try:
            with self._lock:  # or a number that was closed might be that of another file
                if self._fd < 0:
                    self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                os.pwrite(self._fd, b"\n", 0)
                # Not `fstat`: it reads the time, after which each write has to store another one.
                if os.access(self._path, os.F_OK):
                    return
        except OSError:
            pass
        self.close()
        make_bell(self._directory)

    def close(self) -> None:
        """Close what is open; the next ring opens it again."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def ring(self) -> None:
        """Wake who waits for something to do."""
        try:
            os.utime(self._path)
        except OSError:
            make_bell(self._directory)

    def wake(self) -> None:
        """Wake who watches the bell, and leave its time, which only those need who cannot watch.

        The next commit would have to write the time, too: a step of a run took 8 % longer.
        """
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            make_bell(self._directory)
