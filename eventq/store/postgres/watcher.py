"""Wait for something to do: a notice from the server, or the next look.

Who waits says so in the thread's row, for a minute; only then are notices sent. A notice is a hint:
whoever waits looks each second anyway. Connections that listen are kept for the next waiter.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import psycopg

from eventq.errors import EventqError
from eventq.store.postgres.connection import MINE, NOW, Link
from eventq.system import clock

if TYPE_CHECKING:
    from types import TracebackType

    from eventq.store.postgres.database import Database

# ruff: noqa: S608 (the parts are constants)

AWAKE_MS = 60_000  # for which a waiter says that it waits
_SAY_AGAIN = 20.0  # seconds after which it says so again
_SAY = f"""
UPDATE eventq.counters
SET awake_until = {NOW} + {AWAKE_MS}
WHERE {MINE} AND awake_until < {NOW} + {AWAKE_MS // 2}
"""


class Watcher:
    """A watcher for one waiter, created before its first read, so that it misses nothing."""

    def __init__(self, db: Database) -> None:
        """Begin to watch. A server that hands out connections by the transaction sends nothing."""
        db.check_process()
        self._db = db
        self._said_at = -_SAY_AGAIN
        self._link: Link | None = None
        self._poll = select.poll()
        self._listen()
        self._say()

    def _listen(self) -> None:
        """Take a connection that listens, or make one; without any, the next look must do."""
        db = self._db
        if db.address.pooled:
            return
        ears = db.take_ears()
        try:
            ears.listen(db.channel)
            self._poll.register(ears.fileno(), select.POLLIN)
        except (psycopg.Error, EventqError):
            ears.close()
            return
        self._link = ears

    def _say(self) -> None:
        """Note that somebody waits, so that notices are sent."""
        now = clock.monotonic()
        if self._link is None or now < self._said_at + _SAY_AGAIN or not self._db.writable:
            return
        given = self._db.bound(None)
        try:
            self._db.aside(lambda link: link.relaxed((_SAY, given)))
        except EventqError:
            return  # the next look must do
        self._said_at = now

    def wait(self, seconds: float) -> bool:
        """Wait until the log may have grown; return False after a timeout.

        Raises NotAThreadError then for a thread that was deleted.
        """
        self._db.check_process()
        self._say()
        if self._link is None:
            clock.pause(seconds)
            self._listen()
        elif self._poll.poll(max(0.0, seconds) * 1000):
            if self._link.heard():
                return True
            self._forget()
            return True  # the connection is lost: look, and listen anew
        if seconds:
            self._db.alive()
        return False

    def _forget(self) -> None:
        self.close()
        self._poll = select.poll()
        self._said_at = -_SAY_AGAIN
        self._listen()

    def nudge(self) -> None:
        """Do nothing: a notice to all who wait would need a connection; see `store.protocol`."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when `wait(0)` may return True; -1 for none."""
        try:
            return -1 if self._link is None else self._link.fileno()
        except (psycopg.Error, EventqError):
            return -1  # it is lost: the next look finds out

    def close(self) -> None:
        """Stop watching."""
        link, self._link = self._link, None
        if link is not None:
            self._db.give_ears(link)

    def __enter__(self) -> Watcher:
        """Return the watcher."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Stop watching."""
        self.close()
