"""A database in memory, for data that the program does not keep."""

from __future__ import annotations

import apsw

from eventq.store.sqlite import migrate
from eventq.store.sqlite.connecting import configure
from eventq.store.sqlite.database import Database
from eventq.store.sqlite.readers import Reader
from eventq.store.transactions import Read
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MemoryRead(Read):
    """The one connection there is: other threads wait until the block ends."""

    _is_inside = False

    def __enter__(self) -> Any:
        """Lock the database and return it."""
        try:
            self._db.lock.acquire()
            self._is_inside = True
        except BaseException:
            self._db.let_go()
            raise
        return self._db

    def leave(self, *_: object) -> None:
        """Release the lock."""
        self.undo()

    def undo(self, *_: object) -> None:
        """Release the lock, if that is left to do."""
        if self._is_inside:
            self._is_inside = False  # first: an interrupt strikes after the call
            self._db.lock.release()
        self._guard = None


class MemoryDatabase(Database):
    """A database in memory, with all tables: one connection, which nobody else can open."""

    def __init__(self) -> None:
        """Make it."""
        super().__init__(":memory:")
        self.is_alone, self._reads_beside = True, False

    def _look(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:")
        configure(connection)
        migrate.apply(connection, clock.stamp(clock.now()))
        return connection

    def alive(self, *, thorough: bool = False) -> int:  # noqa: ARG002 (the same as that of others)
        """Return 0: nobody can take it away."""
        return 0

    def ring(self) -> None:
        """Do nothing: nobody else can wait for it."""

    wake = ring

    def read(self) -> MemoryRead:
        """Return a context manager that keeps other threads out."""
        return MemoryRead(self)

    def _new_reader(self) -> Reader:
        """Return a reader for filters, which judge rows that are read elsewhere."""
        return Reader(lambda: apsw.Connection(":memory:"))
