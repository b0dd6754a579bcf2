"""Connections that the threads of a database share, in a process that serves many of them.

A link borrows one for a round trip, or from the begin of a transaction to its end; what it sets
lasts no longer than that. An OS thread that holds one may need another beside it, and a third. So
the last ones are kept for those who hold some already: whoever waits, waits for one who goes on.
The others take turns: one who gave a connection back and wants it again is faster than one who is
only waking up, and would always win. Some times it may, as each turn costs a switch of OS threads.
"""

from __future__ import annotations

import select
from _thread import get_ident
from collections import deque
from threading import Condition, RLock

from eventq.errors import BusyError
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from psycopg import Connection

    from eventq.store.address import Address

MOST = 7  # connections to a database, beside the one that listens
WAIT_SECONDS = 30  # for one
FIRST_PLANS_SECONDS = 0.1  # that the first plans of a connection last: tables may be empty yet
_PASSES = 16  # how often those who wait may be passed by others before one of them has its turn
_DEEPEST = 2  # that an OS thread may hold when it needs one more


class Wire:
    """A connection, whose answer to a notice may still be to read, and its borrower's OS thread."""

    def __init__(self, connection: Connection[Any]) -> None:
        """Take a connection that was just made."""
        self.connection = connection
        self.is_new = True  # nothing was sent on it
        self.is_telling = False
        self.planned_at, self.plans_last = clock.monotonic(), FIRST_PLANS_SECONDS
        self.borrower = get_ident()
        self.poll = select.poll()
        self.poll.register(connection.fileno(), select.POLLIN)


class Pool:
    """The connections to one database."""

    def __init__(self, place: str) -> None:
        """Begin without any; `place` is what errors name."""
        self._place = place
        self._lock = RLock()  # a link may be collected inside of it
        self._turns: deque[Condition] = (
            deque()
        )  # at which those wait who hold none, each at its own
        self._passed = 0  # how often the one whose turn is next was passed
        self._more = Condition(self._lock)
        self._idle: list[Wire] = []
        self._held: dict[int, int] = {}  # how many each OS thread has
        self.out = 0
        self._is_closed = False

    def take(self) -> Wire | None:
        """Return a connection, or None when the caller is to make one. Raises BusyError."""
        me, deadline = get_ident(), clock.monotonic() + WAIT_SECONDS
        with self._lock:
            depth = self._held.get(me, 0)
            most = MOST - max(0, _DEEPEST - depth)
            if not depth and self._turns and self._passed < _PASSES and self.out < most:
                self._passed += 1
            elif not depth and (self._turns or self.out >= most):
                self._wait_in_turn(most, deadline)
            while self.out >= most:
                self._wait(self._more, deadline)
            self.out += 1
            self._held[me] = depth + 1
            if not self._idle:
                return None
            wire = self._idle.pop()
            wire.borrower = me
            return wire

    def _wait_in_turn(self, most: int, deadline: float) -> None:
        turn = Condition(self._lock)
        self._turns.append(turn)
        try:
            while self._turns[0] is not turn or self.out >= most:
                self._wait(turn, deadline)
        finally:
            self._turns.remove(turn)
            self._passed = 0
            self._call_next()

    def _wait(self, condition: Condition, deadline: float) -> None:
        left = deadline - clock.monotonic()
        if left <= 0 or not condition.wait(left):
            raise BusyError(
                f"the {MOST} connections to {self._place} were in use for {WAIT_SECONDS} seconds",
                "nothing was stored; try again",
            )

    def _call_next(self) -> None:
        """Let the next one look whether there is a connection for it now."""
        if self._turns:
            self._turns[0].notify()

    def give(self, wire: Wire | None, borrower: int) -> None:
        """Take back a connection, or None for one that was closed, or never made."""
        with self._lock:
            self.out -= 1
            self._held[borrower] -= 1
            if not self._held[borrower]:
                del self._held[borrower]
            if wire is not None and self._is_closed:
                wire.connection.close()
            elif wire is not None:
                self._idle.append(wire)
            self._more.notify_all()
            self._call_next()

    def close(self) -> None:
        """Close what is here, and what comes back."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._idle.pop().connection.close()


_pools: dict[str, Pool] = {}
_sharers = 0


def share() -> None:
    """Let what this process opens share the connections to each database, until `unshare`."""
    global _sharers  # noqa: PLW0603 (a process is a server, or it is none)
    _sharers += 1


def unshare() -> None:
    """End what `share` began; the last one closes the connections."""
    global _sharers  # noqa: PLW0603
    _sharers -= 1
    while not _sharers and _pools:
        _pools.popitem()[1].close()


def pool_of(address: Address) -> Pool | None:
    """Return the pool of a database, or None where connections are not shared."""
    if not _sharers:
        return None
    made = Pool(f"'{address.database}'")
    return _pools.setdefault(f"{address.pooled} {address.conninfo}", made)
