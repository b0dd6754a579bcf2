"""Watch many threads of a database: by one connection that listens, and one statement a look.

Notices are sent while the row of a thread says that somebody waits for them; a look finds whose
does not say so for long enough. It is a second until the next one where notices may fail to come,
or where somebody works for a consumer and may be lost; where all is quiet, it is ten.
"""

from __future__ import annotations

import os
import select

import psycopg

from eventq.errors import EventqError
from eventq.store.address import bucket_of
from eventq.store.postgres import failures
from eventq.store.postgres.connection import NOW, Link
from eventq.store.postgres.leases import HOLD_MS
from eventq.store.postgres.watcher import AWAKE_MS
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any, TypeVar

    from eventq.store.address import Address

    T = TypeVar("T")

# ruff: noqa: S608 (the parts are constants)

LOOK = 1.0  # seconds
QUIET_LOOK = 10.0
# Several workers see that a consumer is left to them, or was lost, without being told.
_LOOK = f"""
SELECT t.name, t.thread_id, n.last_event, sum(c.revision)::bigint, count(c.owner),
    count(*) FILTER (WHERE c.owner IS NOT NULL AND c.owned_until <= {NOW}),
    n.last_ids, n.awake_until > {NOW} + {AWAKE_MS // 2}
FROM unnest(%(buckets)s::smallint[], %(names)s::text[]) AS w (bucket, name)
    JOIN eventq.threads t ON t.bucket = w.bucket AND t.tenant = 0 AND t.name = w.name
    JOIN eventq.counters n ON n.bucket = t.bucket AND n.thread_id = t.thread_id
    LEFT JOIN eventq.consumers c ON c.bucket = n.bucket AND c.thread_id = n.thread_id
GROUP BY t.name, t.thread_id, n.last_event, n.last_ids, n.awake_until
"""
# Both pass over rows that somebody has locked, who would keep the others from theirs meanwhile.
_SAY = f"""
WITH waits AS (
    SELECT n.bucket, n.thread_id
    FROM unnest(%(buckets)s::smallint[], %(ids)s::bigint[]) AS w (bucket, thread_id)
        JOIN eventq.counters n ON n.bucket = w.bucket AND n.thread_id = w.thread_id
    FOR NO KEY UPDATE OF n SKIP LOCKED
)
UPDATE eventq.counters n
SET awake_until = {NOW} + {AWAKE_MS}
FROM waits w
WHERE n.bucket = w.bucket AND n.thread_id = w.thread_id
"""
_HOLD = f"""
WITH held AS (
    SELECT c.bucket, c.thread_id, c.consumer
    FROM unnest(%(buckets)s::smallint[], %(names)s::text[], %(consumers)s::text[])
            AS w (bucket, name, consumer)
        JOIN eventq.threads t ON t.bucket = w.bucket AND t.tenant = 0 AND t.name = w.name
        JOIN eventq.consumers c ON c.bucket = t.bucket AND c.thread_id = t.thread_id
            AND c.consumer = w.consumer
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE eventq.consumers c
SET worked_until = {NOW} + {HOLD_MS}
FROM held h
WHERE c.bucket = h.bucket AND c.thread_id = h.thread_id AND c.consumer = h.consumer
"""


class Watchers:
    """A watcher of all threads of a database that were added to it, by their names."""

    def __init__(self, address: Address, *, memory: bool = False) -> None:
        """Take the database, with or without a thread. Nothing is opened yet.

        With `memory`, changes of turns, runs and what else the memory has count as well.
        """
        self._address = address
        self._memory = memory
        self._link = Link(self._address, shared=False)  # listens
        self._link.listens = True
        self._other = Link(self._address)
        self._names: set[str] = set()
        self._seen: dict[str, tuple[Any, ...] | None] = {}  # None was not there
        self._channels: dict[str, str] = {}  # the names of the threads that it listens for
        self.look_at = 0.0  # when it looks by itself: a time of `clock.monotonic`
        self._in, self._out = os.pipe()
        for fd in (self._in, self._out):
            os.set_blocking(fd, False)

    def add(self, name: str) -> None:
        """Watch a thread, which is among those that have changed at first."""
        self._names.add(name)
        self.look_at = 0.0

    def remove(self, name: str) -> None:
        """Watch a thread no longer."""
        self._names.discard(name)
        self._seen.pop(name, None)

    def fileno(self) -> int:
        """Return the descriptor on which notices come; -1 for none."""
        try:
            return self._link.fileno() if self._channels else -1
        except (psycopg.Error, EventqError):
            return -1  # it is lost: the next look finds out

    def nudge(self) -> None:
        """End the wait of another OS thread."""
        try:
            os.write(self._out, b"x")
        except BlockingIOError:
            pass  # it was nudged already

    def wait(self, seconds: float) -> set[str]:
        """Wait until threads may have changed, and return their names; none after a timeout.

        Raises what the server says at a look. It looks by itself when it is time.
        """
        changed = self._hear()
        if not changed and clock.monotonic() < self.look_at:
            poll = select.poll()
            for fd in {self.fileno(), self._in} - {-1}:
                poll.register(fd, select.POLLIN)
            left = max(0.0, min(seconds, self.look_at - clock.monotonic()))
            for fd, _ in poll.poll(left * 1000):
                if fd == self._in:
                    os.read(fd, 4096)
            changed = self._hear()
        if clock.monotonic() >= self.look_at:
            changed |= self._look()
        return changed

    def _hear(self) -> set[str]:
        """Return the names of threads that sent a notice; all of them when notices were lost."""
        if not self._channels:
            return set()
        notices = self._link.notices()
        if notices is None:
            self._channels.clear()
            self._seen.clear()
            self.look_at = 0.0
            return set()
        return {self._channels[one] for one in notices if one in self._channels}

    def _look(self) -> set[str]:
        """Look at all threads; return the names of those that differ from the last look."""
        self.look_at = clock.monotonic() + LOOK
        names = [*self._names]
        buckets = [bucket_of(name) for name in names]
        rows = self._do(lambda link: link.run(_LOOK, _values(buckets=buckets, names=names)), names)
        found: dict[str, tuple[Any, ...]] = {row[0]: row[1:] for row in rows}
        before = self._channels.keys()
        channels = {f"eventq_{row[1]}": row[0] for row in rows}
        if self._memory:
            channels |= {f"eventq_{row[1]}_memory": row[0] for row in rows}
        listens = self._listen(channels)
        asleep = [row for row in rows if not row[-1]] if listens else rows
        if asleep and listens:
            self._say([bucket_of(row[0]) for row in asleep], [row[1] for row in asleep])
        compared = -1 if self._memory else -2
        seen = {name: found[name][:compared] if name in found else None for name in names}
        changed = {
            name for name in names if name not in self._seen or self._seen[name] != seen[name]
        }
        self._seen = seen
        # A notice that comes while the channels change may be lost.
        is_quiet = listens and before == self._channels.keys() and not asleep
        if is_quiet and not any(row[4] for row in rows):
            self.look_at = clock.monotonic() + QUIET_LOOK
        return changed & self._names

    def _listen(self, channels: dict[str, str]) -> bool:
        """Listen for these threads and no others; return False if that cannot be."""
        if self._address.pooled:
            return False
        new, old = channels.keys() - self._channels.keys(), self._channels.keys() - channels.keys()
        words = [f"UNLISTEN {one}" for one in old] + [f"LISTEN {one}" for one in new]
        try:
            if words:
                self._link.script("; ".join(words))
        except (psycopg.Error, EventqError):
            self._link.close()
            channels = {}
        self._channels = channels
        return bool(channels)

    def _say(self, buckets: list[int], ids: list[int]) -> None:
        """Note that somebody waits, so that notices are sent."""
        try:
            self._do(lambda link: link.relaxed((_SAY, _values(buckets=buckets, ids=ids))), ids)
        except EventqError:
            return  # of a role that only reads: the next look must do

    def hold(self, consumers: Collection[tuple[str, str]]) -> None:
        """Refresh the notes that this process works for consumers, by their threads' names."""
        given = _values(
            buckets=[bucket_of(name) for name, _ in consumers],
            names=[name for name, _ in consumers],
            consumers=[consumer for _, consumer in consumers],
        )
        self._do(lambda link: link.relaxed((_HOLD, given)), consumers)

    def _do(self, call: Callable[[Link], list[T]], about: Iterable[object]) -> list[T]:
        """Make round trips, if there is anything that they are about. Raises EventqError."""
        if not about:
            return []
        try:
            return self._other.tried(call)
        except psycopg.Error as error:
            raise failures.translate(error, self._address) from error

    def close(self) -> None:
        """Stop watching."""
        self._link.close()
        self._other.close()
        for fd in (self._in, self._out):
            os.close(fd)


def _values(**given: Any) -> dict[str, Any]:
    return {**given, "now": None}
