"""Additional read-only connections, for filters and for reads during a transaction.

A process keeps a few of them open; opening one more closes the least recently used. Keeping all of
them lost: a hundred open threads with a filter each would hold two hundred more descriptors.
Closing each after its use lost as well: opening one and compiling the filter again takes ten times
as long as reading a page of events.
"""

from __future__ import annotations

import os
from _thread import RLock
from _weakref import ref
from itertools import count

import apsw

from eventq.system.locks import within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.log.filters.sandbox import FilterSandbox

KEPT = 16  # connections that stay open in a process


class Reader:
    """A read-only connection that opens on use, for one caller at a time: inside `with lock`.

    Whoever is inside takes no other lock: a transaction may wait for this one. The lock itself is
    what `with` is given: an interrupt would strike inside methods of this class.
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        """Prepare; nothing is opened yet."""
        self._connect = connect
        self._open: apsw.Connection | None = None
        self._sandbox: FilterSandbox | None = None
        self.lock = RLock()
        self.used = 0  # when it was used last, by a clock of its own

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._open is not None

    @property
    def connection(self) -> apsw.Connection:
        """The connection, which opens now unless it is open."""
        self.used = next(_clock)
        if self._open is None:
            self._open = self._connect()
            _keep(self)
        return self._open

    @property
    def sandbox(self) -> FilterSandbox:
        """Where filters run, made with the first one: its modules take 1 ms."""
        self.used = next(_clock)
        if self._sandbox is None:
            from eventq.log.filters.sandbox import FilterSandbox

            self._sandbox = FilterSandbox(lambda: self.connection)
        return self._sandbox

    def interrupt(self) -> None:
        """End the statement that somebody runs here, if there is one."""
        connection = self._open
        if connection is not None:
            try:
                connection.interrupt()
            except apsw.ConnectionClosedError:
                pass  # just now: nothing runs there

    def close(self, *, wait: bool = True) -> None:
        """Close the connection once nobody is inside; a later use opens another one.

        Without `wait` nothing is done while somebody is.
        """
        within(self.lock, -1 if wait else 0, self._close)

    def _close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        connection, self._open = self._open, None  # first: a closed one would be used again
        if connection is not None:
            connection.close()
            _forget(self)


_clock = count(1)
_lock = RLock()
_open: list[ref[Reader]] = []  # those with an open connection


def _keep(reader: Reader) -> None:
    """Note that a reader has opened its connection, and close the one used longest ago."""
    with _lock:
        _open[:] = [one for one in _open if one() is not None]
        _open.append(ref(reader))
        found = sorted(filter(None, (one() for one in _open)), key=lambda one: one.used)[:-KEPT]
    for one in found:
        # Without waiting: whoever is inside another reader may be about to close this one.
        if one is not reader:
            one.close(wait=False)


def _forget(reader: Reader) -> None:
    with _lock:
        _open[:] = [one for one in _open if one() not in (reader, None)]


def _begin_anew() -> None:
    """Leave the readers of the process that this one was forked from alone."""
    global _lock  # noqa: PLW0603
    _lock = RLock()
    _open.clear()


os.register_at_fork(after_in_child=_begin_anew)
