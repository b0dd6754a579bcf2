"""The memory that all peers of a server share."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Waiter = tuple[int, Callable[[], object]]  # bytes, and what is called once they are held


class MemoryBudget:
    """The memory held for all peers, in bytes; safe to use from any OS thread.

    What is longer than `small` is large. Large ones together get three quarters, so that small
    requests find memory whatever large ones and slow readers hold. Nothing is held on the word of a
    peer: what counts is what has arrived, what is read for a reply, and what waits to be sent.
    """

    def __init__(self, limit: int, small: int) -> None:
        self.limit = limit
        self.small = small
        self.most = limit * 3 // 4  # bytes that one large one gets when nothing else is held
        self.held = 0
        self._held_large = 0
        self._lock = allocate_lock()
        self.waiting: deque[Waiter] = deque()  # reservations that are not served yet, in order

    @property
    def ahead(self) -> int:
        """How many bytes may be read ahead of their use; below 0 for none.

        That leaves half: a request is done only when there is memory for the replies before it.
        """
        return self.limit // 2 - self.held

    def fits(self, size: int) -> bool:
        """Return whether so many more bytes fit."""
        if size > self.small:
            return self._held_large + size <= self.most and self.held + size <= self.limit
        if self.held + size <= self.limit:
            return True
        return self.held - self._held_large + size <= self.limit // 4

    def take(self, size: int, *, force: bool = False) -> bool:
        """Reserve so many bytes and return True, if they fit or `force` is set."""
        with self._lock:
            if not force and not self.fits(size):
                return False
            self.held += size
            if size > self.small:
                self._held_large += size
        return True

    def release(self, size: int) -> None:
        """Release bytes, as many as were reserved by one call."""
        with self._lock:
            self.held -= size
            if size > self.small:
                self._held_large -= size
            served = self._serve() if self.waiting else None
        if served:
            _call(served)

    def resize(self, before: int, now: int, *, also: int = 0) -> bool:
        """Hold `now` bytes instead of `before` and `also`, as they are there anyway.

        Returns whether they fit. Releasing first and taking again would hand what is in use to a
        reservation in between.
        """
        with self._lock:
            self._add(before, -1)
            self._add(also, -1)
            fits = self.fits(now)
            self._add(now, 1)
            served = self._serve()
        _call(served)
        return fits

    def reserve(self, size: int, then: Callable[[], object]) -> bool:
        """Reserve so many bytes now and return True, or reserve them later and call `then`.

        `then` is called in the OS thread that released memory. Reservations are served in order:
        many small replies would otherwise keep a long one waiting for ever.
        """
        with self._lock:
            if self.waiting or not self.fits(size):
                self.waiting.append((size, then))
                return False
            self._add(size, 1)
        return True

    def cancel(self, then: Callable[[], object]) -> bool:
        """Cancel a reservation; return False when it was served meanwhile, or never made."""
        with self._lock:
            left = [one for one in self.waiting if one[1] != then]
            found = len(left) < len(self.waiting)
            self.waiting = deque(left)
            served = self._serve()
        _call(served)
        return found

    def _serve(self) -> list[Waiter]:
        """Serve the waiting reservations that fit now, in order; return them."""
        served = []
        while self.waiting and self.fits(self.waiting[0][0]):
            served.append(self.waiting.popleft())
            self._add(served[-1][0], 1)
        return served

    def _add(self, size: int, sign: int) -> None:
        self.held += sign * size
        if size > self.small:
            self._held_large += sign * size


def _call(served: list[Waiter]) -> None:
    for _, then in served:  # without the lock: they may ask for more
        then()
