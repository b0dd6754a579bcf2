"""The contract of `Database.lease`, `leases` and `stats` on every engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import eventq
    from eventq.store.protocol import Database, Lease


def taken(database: Database, consumer: str = "w") -> Lease:
    """Take a lease that is free."""
    lease = database.lease(consumer)
    assert lease is not None
    return lease


def seen(database: Database, consumer: str = "w") -> tuple[bool, bool, bool]:
    """Return whether a holder is noted, whether it holds the lease, and whether it was lost."""
    leases = database.leases()
    return leases.is_noted(consumer), leases.is_held(consumer), leases.is_lost(consumer)


def test_one_holds_a_lease(database: Database, second: Database) -> None:
    """A held lease cannot be taken in any way; another consumer's is free."""
    assert seen(database) == (False, False, False)
    lease = taken(database)
    assert database.lease("w") is second.lease("w") is None
    assert seen(database) == seen(second) == (True, True, False)
    other = taken(second, "W")
    assert seen(database, "W") == (True, True, False)
    for one in (lease, other):
        one.release()
        one.forget()
    assert seen(second) == seen(second, "W") == (False, False, False)
    again = taken(second)
    assert again.fence >= lease.fence
    again.release()
    again.forget()


def test_a_lease_outlives_the_database(opened: eventq.Thread, second: Database) -> None:
    """A dispatch closes the thread before it hands the lease over."""
    lease = taken(opened.database)
    opened.close()
    assert lease.renew()
    assert second.lease("w") is None
    lease.release()
    lease.forget()


def test_a_holder_that_is_gone_is_lost(database: Database, second: Database) -> None:
    """One that never looked for the last time is noted still; whoever takes it next goes on."""
    lease = taken(database)
    lease.release()
    assert seen(second) == (True, False, True)
    lease.close()
    assert seen(second) == (True, False, True)
    lease = taken(second)
    assert seen(database) == (True, True, False)
    lease.release()
    lease.forget()
    assert seen(database) == (False, False, False)


def test_who_leaves_late_takes_nothing_from_the_next(database: Database, second: Database) -> None:
    """To forget a lease that somebody has taken since changes nothing."""
    first = taken(database)
    first.release()
    next_one = taken(second)
    next_one.note()
    first.forget()
    assert seen(database) == (True, True, False)
    assert next_one.renew()
    next_one.release()
    next_one.forget()


def test_a_lease_names_the_handler(database: Database, second: Database) -> None:
    """Whoever takes over a lost lease learns of a handler that is alive still."""
    lease = taken(database)
    assert lease.orphan() is None
    lease.note(os.getpid())
    lease.release()
    lease.close()
    lease = taken(second)
    assert lease.orphan() == os.getpid()
    lease.note()
    assert lease.orphan() is None
    lease.release()
    lease.forget()


@pytest.mark.engines("sqlite")
def test_stats_count_what_is_stored(opened: eventq.Thread, database: Database) -> None:
    """What is stored takes space, what was deleted leaves some, and `compact` gives that back."""
    opened.push_many([("self", "note", "x" * 1000)] * 1000)
    full = database.stats()
    assert full.database + full.wal > 1_000_000
    with database.write():
        assert database.events.prune(1000) == 999
    assert database.stats().free > 900_000
    database.compact()
    assert database.stats().free == 0
