"""Who supervises a consumer of a shared thread: a lease that ends by the clock of the server.

It is taken in one statement, which raises the fence. Its holder renews it at a third of its time.
When that fails, it ends the handler by its own clock, which began to run before the server's.
"""

from __future__ import annotations

import os

import psycopg

from eventq.errors import BusyError, EventqError, StoreError
from eventq.store.names import check_short
from eventq.store.postgres.connection import DURABLE, MINE, NOW, Link
from eventq.store.postgres.failures import translate
from eventq.store.postgres.schema import IS_CURRENT
from eventq.system import clock
from eventq.system.processes import identity, me, orphan_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.store.postgres.connection import Rows
    from eventq.store.postgres.database import Database

# ruff: noqa: S608 (the parts are constants)

LEASE_MS = 15_000
HOLD_MS = 10_000
_OF = f"{MINE} AND consumer = %(consumer)s"
_TAKE = f"""
INSERT INTO eventq.consumers (bucket, thread_id, consumer, fence, owner, process, owned_until)
VALUES (%(b)s, %(t)s, %(consumer)s, 1, %(owner)s, %(process)s, {NOW} + {LEASE_MS})
ON CONFLICT (bucket, thread_id, consumer) DO UPDATE SET
    fence = consumers.fence + 1,
    owner = excluded.owner,
    process = excluded.process,
    owned_until = excluded.owned_until
WHERE consumers.{IS_CURRENT}
    AND (
        consumers.owner IS NULL
        OR consumers.owned_until <= {NOW}
        OR consumers.owned_until > {NOW} + {LEASE_MS}
    )
RETURNING fence, {DURABLE}
"""
_LAST = f"SELECT process FROM eventq.consumers WHERE {_OF}"
_RENEW = f"""
UPDATE eventq.consumers
SET owned_until = {NOW} + {LEASE_MS}
WHERE {_OF} AND owner = %(owner)s AND owned_until > {NOW}
RETURNING 1
"""
_NOTE = f"""
UPDATE eventq.consumers
SET process = %(process)s
WHERE {_OF} AND owner = %(owner)s
RETURNING 1
"""
_RELEASE = f"UPDATE eventq.consumers SET owned_until = 0 WHERE {_OF} AND owner = %(owner)s"
_FORGET = f"""
UPDATE eventq.consumers
SET owner = NULL, process = NULL
WHERE {_OF} AND owner = %(owner)s
"""
_HOLD = f"""
UPDATE eventq.consumers
SET worked_until = {NOW} + {HOLD_MS}
WHERE {_OF} AND worked_until < {NOW} + {HOLD_MS * 3 // 4}
"""
_ALL = f"""
SELECT consumer, owner IS NOT NULL, owned_until > {NOW}, worked_until > {NOW}
FROM eventq.consumers
WHERE {MINE} AND (owner IS NOT NULL OR worked_until > 0)
"""
_WAKE = f"UPDATE eventq.consumers SET revision = revision + 1 WHERE {_OF}"


class Lease:
    """The right to supervise one consumer, for a while."""

    fds: tuple[int, ...] = ()  # it is handed over to no fork
    renew_every: float | None = LEASE_MS / 3000

    def __init__(self, db: Database, consumer: str, owner: str, begun: float) -> None:
        """Take what was leased at a time of `clock.monotonic`, or just after."""
        self._db = db
        self._consumer = consumer
        self._owner = owner
        self._begun = begun
        self._left: str | None = None  # the process of the last holder
        self._is_held = True
        self._link: Link | None = None  # once the database is closed
        self.fence = 0

    @classmethod
    def take(cls, db: Database, consumer: str) -> Lease | None:
        """Take the lease of a consumer; return None while somebody else holds it."""
        check_short(consumer, "consumer")
        made = cls(db, consumer, os.urandom(16).hex(), clock.monotonic())
        made._left = db.value(_LAST, {"consumer": consumer})
        rows = made._run(_TAKE, process=made._process(None))
        if not rows:
            return None
        made.fence = rows[0][0]
        return made

    def _run(self, sql: str, **more: Any) -> Rows:
        values = {"consumer": self._consumer, "owner": self._owner, **more}
        given = self._db.bound(values)
        if not self._db.is_closed:
            return self._db.aside(lambda link: link.run(sql, given))
        if self._link is None:
            self._link = Link(self._db.address)
        try:
            return self._link.tried(lambda link: link.run(sql, given))
        except psycopg.Error as error:
            raise translate(error, self._db.address) from error

    def _process(self, handler: int | None) -> str:
        return f"{me()} {identity(handler)}" if handler else me()

    @property
    def deadline(self) -> float:
        """When it ends at the latest, unless it is renewed: a time of `clock.monotonic`."""
        return self._begun + LEASE_MS / 1000

    def renew(self) -> bool:
        """Hold it for longer; return False when it is lost."""
        now = clock.monotonic()
        if not self._is_held or now >= self.deadline:
            return False
        if now < self._begun + (self.renew_every or 0.0):
            return True
        try:
            self._is_held = bool(self._run(_RENEW))
        except StoreError:
            return True  # until its time is up
        self._begun = now
        return self._is_held

    def note(self, handler: int | None = None) -> None:
        """Write down the handler that this process runs."""
        self._left = None
        if not self._run(_NOTE, process=self._process(handler)):
            self._is_held = False
            raise BusyError(
                f"the lease of consumer '{self._consumer}' has ended",
                "leave the consumer to the worker that has it now",
            )

    def orphan(self) -> int | None:
        """Return the pid of a handler that the last holder left running here, or None."""
        return None if self._left is None else orphan_of(self._left)

    def release(self) -> None:
        """Let others take it; `forget` or `close` follows."""
        self._is_held = False
        self._run(_RELEASE)

    def forget(self) -> None:
        """Note that this holder has looked for the last time, unless there is another by now."""
        self._run(_FORGET)
        self.close()

    def close(self) -> None:
        """Leave it: it is noted that somebody held it."""
        self._is_held = False
        if self._link is not None:
            self._link.close()


class Hold:
    """A worker's note that it looks after a consumer."""

    name = ""

    def __init__(self, db: Database, consumer: str) -> None:
        """Take the database and the consumer."""
        self._db = db
        self._consumer = consumer
        self.renew()

    def renew(self) -> None:
        """Refresh its time. Raises OSError when that fails."""
        given = self._db.bound({"consumer": self._consumer})
        try:
            self._db.aside(lambda link: link.relaxed((_HOLD, given)))
        except EventqError as error:
            raise OSError(str(error)) from error

    def release(self) -> None:
        """Leave it to end: other workers may look after the consumer too."""


class Leases:
    """Who supervises the consumers of a thread, as they were when this was created."""

    def __init__(self, db: Database) -> None:
        """Read them."""
        self._db = db
        self._found: dict[str, tuple[bool, bool, bool]] = {row[0]: row[1:] for row in db.rows(_ALL)}

    def _of(self, consumer: str) -> tuple[bool, bool, bool]:
        return self._found.get(consumer, (False, False, False))

    def leave_out(self, name: str) -> None:
        """Do nothing: a hold costs nothing to look at, and is not lost."""

    def is_noted(self, consumer: str) -> bool:
        """Return whether there was a holder."""
        return self._of(consumer)[0]

    def is_held(self, consumer: str) -> bool:
        """Return whether somebody holds the lease of a consumer."""
        noted, held, _ = self._of(consumer)
        return noted and held

    def is_worked(self, consumer: str) -> bool:
        """Return whether a worker looks after a consumer."""
        return self._of(consumer)[2]

    def is_lost(self, consumer: str) -> bool:
        """Return whether a consumer lost its supervisor: noted, and not held."""
        noted, held, _ = self._of(consumer)
        return noted and not held

    def forget_lost(self, consumer: str) -> None:
        """Do nothing: the lease that the caller has is in the place of the lost one."""

    def wake(self, consumer: str) -> None:
        """Wake the supervisor of a consumer, if there is one."""
        given = self._db.bound({"consumer": consumer})
        self._db.aside(lambda link: link.run(_WAKE, given))
        self._db.ring()
