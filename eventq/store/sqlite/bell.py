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
        os.stat(database)  # in a deleted thread nothing is made again
        disk.make_folder(os.path.dirname(path), database)
        fd = disk.create(path, os.O_WRONLY, database)
        try:
            os.pwrite(fd, b"\n", 0)
        finally:
            os.close(fd)
    except OSError:
        pass
