"""`run/bell`, which is touched after each commit that can make anybody due, and so wakes watchers.

After events it is a byte that is written again. To set the time of the file instead costs a push
five microseconds, and dirties an inode that the next sync writes out; a message to each waiter
would need to know of them.
"""

from __future__ import annotations

import os

from eventq.system import disk

BELL = "run/bell"


def make_bell(directory: str) -> None:
    """Make and touch the bell, in a thread of the original tool, or after somebody has removed it.

    A failure is harmless: whoever waits also looks by himself now and then.
    """
    path, database = f"{directory}/{BELL}", f"{directory}/events.db"
    try:
        mode = os.stat(database).st_mode & 0o666  # in a deleted thread nothing is made again
        disk.make_folder(os.path.dirname(path), database)
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, mode)
        try:
            os.pwrite(fd, b"\n", 0)
        finally:
            os.close(fd)
    except OSError:
        pass
