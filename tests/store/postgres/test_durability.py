"""What waits for the server's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.thread import init_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# It runs in the transaction that has changed a lease, when that commits.
LOOK = """CREATE TABLE levels (level text);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO levels VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER look AFTER INSERT OR UPDATE ON eventq.unfinished
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look();
CREATE CONSTRAINT TRIGGER look AFTER UPDATE OF fence ON eventq.consumers
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()"""


@pytest.fixture
def levels(empty: str) -> Iterator[Callable[[], set[str]]]:
    """Return a function that returns how the leases made since its last call were committed."""
    init_schema(empty)
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute(LOOK)
        yield lambda: {level for (level,) in server.execute("DELETE FROM levels RETURNING level")}


@pytest.mark.parametrize("setting", ["full", "normal"])
def test_a_claim_is_on_disk_before_its_events_are_handed_out(
    setting: str,
    empty: str,
    levels: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every way to claim commits synchronously, also where the server or the program does not."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", setting)
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        database: Any = thread.database
        assert database.link.run("SHOW synchronous_commit", {}) == [("off",)]  # in other changes
        thread.push_many([("self", "note", "x")] * 9)
        thread.subscribe("w")
        (first,) = thread.claim("w")
        assert levels() == {"on"}
        trips = database.link.trips
        assert thread.claim("w")
        assert (database.link.trips - trips, levels()) == (2, {"on"})  # the short way
        with thread.write():
            assert thread.claim("w")
            thread.push("self", "note", "x")
        assert levels() == {"on"}
        first.retry(0)
        levels()
        (again,) = thread.claim("w")
        assert (again.event.id, levels()) == (first.event.id, {"on"})


def test_the_right_to_read_as_a_consumer_is_on_disk_before_it_is_used(
    empty: str, levels: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that crashes gives nobody else the same number."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        thread.subscribe("w")
        lease = thread.consumers.lease("w")
        assert lease is not None
        lease.release()
        lease.forget()
        levels()
        lease = thread.consumers.lease("w")
        assert levels() == {"on"}
        thread.consumers.raise_fence("w")
        assert levels() == {"on"}
        assert lease is not None
        lease.release()
        lease.forget()
