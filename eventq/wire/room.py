"""The memory that the connections of a server share, as a ledger."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Waiter = tuple[int, Callable[[], object]]


class Room:
    """How many bytes are held for all peers; safe to ask from any thread.

    What is longer than `small` is large, and may take three quarters: small requests find room whatever large ones and
    slow readers hold. Nothing is held on the word of a peer: what counts is what has come, what is read for a reply,
    and what waits to be sent.
    """

    def __init__(self, limit: int, small: int) -> None:
        self.limit = limit
        self.small = small
        self._lock = allocate_lock()
        self._held_small = 0
        self._held_large = 0
        self._waiting: deque[Waiter] = deque()

    @property
    def held(self) -> int:
        """How many bytes are held."""
        return self._held_small + self._held_large

    @property
    def most(self) -> int:
        """How many bytes a large one can have when nothing else is held."""
        return self.limit * 3 // 4

    @property
    def ahead(self) -> int:
        """How many bytes may be read before anybody knows what they are; below 0 when none may.

        It leaves half of all: what comes is not done before there is memory for the replies to what came before it.
        """
        return self.limit // 2 - self.held

    def fits(self, size: int) -> bool:
        """Say whether so many bytes more may be held."""
        if size > self.small:
            return self._held_large + size <= self.most and self.held + size <= self.limit
        return self.held + size <= self.limit or self._held_small + size <= self.limit // 4

    def take(self, size: int, *, force: bool = False) -> bool:
        """Hold so many bytes more, if they fit or must; say whether they are held."""
        with self._lock:
            if not force and not self.fits(size):
                return False
            self._add(size, 1)
        return True

    def reserve(self, size: int, then: Callable[[], object]) -> bool:
        """Hold so many bytes now and return True, or as soon as they fit, and call `then` from the thread that let go.

        Who asked first is served first: many small replies would otherwise keep a long one waiting for ever.
        """
        with self._lock:
            if self._waiting or not self.fits(size):
                self._waiting.append((size, then))
                return False
            self._add(size, 1)
        return True

    def cancel(self, then: Callable[[], object]) -> bool:
        """Have a reservation wait no longer; return False when it was served meanwhile, or never made."""
        with self._lock:
            left = [one for one in self._waiting if one[1] != then]
            found = len(left) < len(self._waiting)
            self._waiting = deque(left)
            served = self._served()
        _call(served)
        return found

    def give(self, size: int) -> None:
        """Hold bytes no more, as many as were taken at once."""
        with self._lock:
            self._add(size, -1)
            served = self._served() if self._waiting else ()
        _call(served)

    def resize(self, size: int, now: int) -> bool:
        """Hold `now` bytes instead of `size`, as they are there anyway; return whether they fit.

        To let go first and take anew would hand what is still in use to a reservation in between.
        """
        with self._lock:
            self._add(size, -1)
            fits = self.fits(now)
            self._add(now, 1)
            served = self._served() if self._waiting else ()
        _call(served)
        return fits

    def _served(self) -> list[Waiter]:
        """Hold what fits now of what waits, in order; return whom to tell."""
        served = []
        while self._waiting and self.fits(self._waiting[0][0]):
            served.append(self._waiting.popleft())
            self._add(served[-1][0], 1)
        return served

    def _add(self, size: int, sign: int) -> None:
        if size > self.small:
            self._held_large += sign * size
        else:
            self._held_small += sign * size


def _call(served: list[Waiter] | tuple[()]) -> None:
    for _, then in served:  # without the lock: they may ask for more
        then()
