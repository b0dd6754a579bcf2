"""The memory that the connections of a server share, as a ledger."""

from __future__ import annotations

from _thread import allocate_lock


class Room:
    """How many bytes are held for all peers; safe to ask from any thread.

    What is longer than `small` is large, and may take three quarters: small requests find room whatever large ones and
    slow readers hold. Nothing is held on the word of a peer: what counts is what has come, and what waits to be sent.
    """

    def __init__(self, limit: int, small: int) -> None:
        self.limit = limit
        self.small = small
        self._lock = allocate_lock()
        self._held_small = 0
        self._held_large = 0

    @property
    def held(self) -> int:
        """How many bytes are held."""
        return self._held_small + self._held_large

    def fits(self, size: int) -> bool:
        """Say whether so many bytes more may be held."""
        if size > self.small:
            return self._held_large + size <= self.limit * 3 // 4 and self.held + size <= self.limit
        return self.held + size <= self.limit or self._held_small + size <= self.limit // 4

    def take(self, size: int, *, force: bool = False) -> bool:
        """Hold so many bytes more, if they fit or must; say whether they are held."""
        with self._lock:
            if not force and not self.fits(size):
                return False
            self._add(size, 1)
        return True

    def give(self, size: int) -> None:
        """Hold bytes no more, as many as were taken at once."""
        with self._lock:
            self._add(size, -1)

    def _add(self, size: int, sign: int) -> None:
        if size > self.small:
            self._held_large += sign * size
        else:
            self._held_small += sign * size
