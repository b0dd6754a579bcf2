"""What wakes the feeds of all threads of a database: one OS thread, one connection that listens."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from eventq.errors import EventqError
from eventq.store.address import parse
from eventq.store.opening import watchers
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK

if TYPE_CHECKING:
    from eventq.serving.served import Feed
    from eventq.store.address import Address
    from eventq.store.protocol import Watchers

_WAIT = 10.0  # seconds between two looks for feeds that nobody wants any more


class Hub:
    """Wakes feeds when their threads may have changed; its OS thread lives while there are any."""

    def __init__(self, address: Address) -> None:
        """Begin with no feed, and no connection."""
        self._address = address
        self._lock = threading.Lock()
        self._feeds: dict[Feed, str] = {}  # with the names of their threads
        self._watchers: Watchers | None = None
        self._runs = False
        self._thread: threading.Thread | None = None  # the last one

    def add(self, url: str, feed: Feed) -> None:
        """Wake a feed from now on, at once to begin with."""
        if feed in self._feeds:
            return
        with self._lock:
            self._feeds[feed] = parse(url).name
            if not self._runs:
                self._runs = True
                self._thread = threading.Thread(target=self._run, name="eventq-feed", daemon=True)
                self._thread.start()
            self._nudge()

    def remove(self, feed: Feed) -> None:
        """Wake a feed no longer."""
        with self._lock:
            if self._feeds.pop(feed, None) is not None:
                self._nudge()

    def wait_closed(self, seconds: float) -> None:
        """Wait until the OS thread has ended, if there is no feed any more."""
        thread = self._thread
        if thread is not None and not self._feeds:
            thread.join(seconds)

    def _nudge(self) -> None:
        if self._watchers is not None:
            self._watchers.nudge()

    def _run(self) -> None:
        made = watchers(self._address, memory=True)
        with self._lock:
            self._watchers = made
        known: dict[Feed, str] = {}
        while feeds := self._wanted():
            for name in {*known.values()} - {*feeds.values()}:
                made.remove(name)
            for feed in feeds.keys() - known.keys():
                made.add(feeds[feed])
                feed.wake()
            known = feeds
            if any(feed.watchers for feed in feeds):  # not all that they see sends notices
                made.look_at = min(made.look_at, clock.monotonic() + SLOW_LOOK)
            try:
                changed = made.wait(_WAIT)
            except (EventqError, OSError):  # whoever asks is told so
                changed = {*feeds.values()}
                clock.pause(SLOW_LOOK)
            for feed, name in feeds.items():
                if name in changed:
                    feed.wake()
        made.close()

    def _wanted(self) -> dict[Feed, str]:
        """Return the feeds that somebody wants; without any, this OS thread is to end."""
        with self._lock:
            self._feeds = {one: name for one, name in self._feeds.items() if one.is_wanted()}
            if not self._feeds:
                self._watchers, self._runs = None, False
            return dict(self._feeds)


_hubs: dict[str, Hub] = {}


def hub_of(url: str) -> Hub:
    """Return the hub of the database in which a thread is."""
    address = parse(url)
    return _hubs.setdefault(f"{address.pooled} {address.conninfo}", Hub(address))
