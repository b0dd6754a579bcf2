"""A slower disk: SQLite's own file layer, whose syncs take as long as they are told to.

`python -m bench.disk SECONDS WORD...` is the command line of eventq on one where a sync takes so long.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from statistics import mean
from typing import TYPE_CHECKING, Any

import apsw

from eventq.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.turn_stores import TurnStore


class _File(apsw.VFSFile):
    def __init__(self, disk: SlowDisk, name: Any, flags: list[int]) -> None:
        super().__init__(disk.base, name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802
        end = time.perf_counter() + self._disk.sync
        super().xSync(flags)
        if (left := end - time.perf_counter()) > 0:
            time.sleep(left)


class SlowDisk(apsw.VFS):
    """What every connection that is opened from now on lies on: each sync takes `sync` seconds, or longer by itself.

    A pause of one length after each would leave in the rates what other programs do to the disk beneath.
    """

    def __init__(self, sync: float = 0.0) -> None:
        """Take the place of SQLite's file layer."""
        self.sync = sync
        self.base = apsw.vfs_names()[0]
        super().__init__("slow-disk", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(self, name, flags)

    def slow_to(self, rate: float, store: TurnStore, count: int) -> None:
        """Choose the time with which the store, which lies on it, appends about so many turns a second, if it can."""
        self.sync = 1 / rate
        for _ in range(2):  # the second time is for what the first has left
            # The minimum, as other programs only add to it.
            taken = min(mean(store.times(count)) for _ in range(5)) / 1_000
            self.sync = max(0.0, self.sync + 1 / rate - taken)


@contextmanager
def slow_disk() -> Iterator[SlowDisk]:
    """Put such a disk under this process; files opened on it must be closed before the end."""
    disk = SlowDisk()
    try:
        yield disk
    finally:
        disk.unregister()


if __name__ == "__main__":
    _ = SlowDisk(float(sys.argv.pop(1)))
    main()
