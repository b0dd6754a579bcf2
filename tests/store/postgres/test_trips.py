"""How often what callers do in loops asks the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.store.postgres.database import Database
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def warm(postgres: str) -> Iterator[eventq.Thread]:
    """Return a thread of 200 events with three consumers that have popped and claimed."""
    with eventq.open(fresh(postgres)) as thread:
        thread.push_many(("self", "note", str(n)) for n in range(200))
        for name, text in (
            ("all", None),
            ("notes", "type = 'note'"),
            ("even", "content LIKE '%0'"),
        ):
            thread.subscribe(name, filter=text)
            thread.pop(name, limit=1)
            thread.subscribe(f"{name} claimed", filter=text)
            thread.settle(thread.claim(f"{name} claimed"))
        yield thread
        assert thread.check() == []


CALLS: dict[str, tuple[Callable[[eventq.Thread], object], int]] = {
    "push": (lambda thread: thread.push("self", "note", "x"), 1),
    "push with a key": (lambda thread: thread.push("self", "note", "x", key="new"), 1),
    "pop": (lambda thread: thread.pop("all", limit=9), 1),
    "pop with an ack": (lambda thread: thread.pop("all", 1, limit=9), 1),
    "pop of a filter that is pushed down": (lambda thread: thread.pop("notes", 1, limit=9), 1),
    "pop of another filter": (lambda thread: thread.pop("even", 1, limit=2), 3),
    "claim": (lambda thread: thread.claim("all claimed", 9), 2),
    "claim of a filter that is pushed down": (lambda thread: thread.claim("notes claimed", 9), 2),
    "settle": (lambda thread: thread.settle(thread.claim("all claimed", 9)), 3),
    "push_many": (lambda thread: thread.push_many([("self", "note", "x")] * 250), 3),
    "large push_many": (lambda thread: thread.push_many([("self", "note", "x")] * 10_000), 4),
}


@pytest.mark.parametrize("name", CALLS)
def test_round_trips(warm: eventq.Thread, name: str) -> None:
    """A push, a keyed push and a pop are one, a claim is two."""
    call, most = CALLS[name]
    database: Any = warm.database
    link = database.link
    before = link.trips
    call(warm)
    assert link.trips - before <= most


def test_round_trips_of_the_memory(warm: eventq.Thread) -> None:
    """An append is three, a step five; a key costs one more, and a blob that is there two."""
    context = warm.contexts.create("main")
    run = warm.runs.start("plan", "do it", system={"coder": "x"})
    run.step("coder", content="begun")
    database: Any = warm.database
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "append": (lambda: context.append("said"), 3),
        "append of what is there": (lambda: context.append("said"), 5),
        "append with a key": (lambda: context.append("keyed", key="k"), 4),
        "step": (lambda: run.step("coder", {"x": 1}, "done"), 5),
        "failed attempt": (lambda: run.attempt("coder", content="failed"), 7),
        "last turns": (lambda: context.last(64), 3),
    }
    for name, (call, most) in calls.items():
        before = database.link.trips
        call()
        assert (name, database.link.trips - before) <= (name, most)


def test_the_short_way_gives_what_the_long_way_gives(warm: eventq.Thread) -> None:
    """Pops and claims, one after the other, with it, and in a transaction, where it is not taken."""
    for name in ("all", "notes"):
        warm.subscribe(f"long {name}", filter=None if name == "all" else "type = 'note'")
        short, long = [], []
        last = None
        while events := warm.pop(name, last, limit=30):
            short.append([event.id for event in events])
            last = events[-1].id
        with warm.write():
            last = None
            while events := warm.pop(f"long {name}", last, limit=30):
                long.append([event.id for event in events])
                last = event_id = events[-1].id
                assert event_id
        assert short == long
        taken = warm.claim(f"{name} claimed", 40)
        with warm.write():
            assert warm.settle(taken) == []
            more = warm.claim(f"{name} claimed", 40)
        assert warm.settle(more) == []
        assert [claim.event.id for claim in taken + more] == [*range(2, 82)]
        found = {one.consumer_id: one for one in warm.status().consumers}[f"{name} claimed"]
        assert (found.last_acked_id, found.unfinished, found.done) == (81, 0, 81)


def test_a_copy_goes_to_the_server_a_few_times(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each turn, blob, event or dead letter, the first time nor when most is there; nor does it back."""
    with (
        eventq.open(tmp_path / "one", create=True) as thread,
        eventq.open(fresh(postgres)) as other,
        eventq.open(tmp_path / "two", create=True) as back,
    ):
        database: Any = other.database
        main = thread.contexts.create("main")
        thread.subscribe("w")
        for count in (1_000, 5):
            thread.push_many(("self", "note", str(number)) for number in range(count))
            with thread.write():
                for number in range(count):
                    main.append(f"{count} {number}")
            thread.settle(dead=thread.claim("w", 1_000))
            before = database.link.trips
            found = thread.copy_to(other, log=True)
            assert (found.turns, found.blobs, found.events) == (count, count, count)
            assert database.link.trips - before < 200
            assert [*other.dead_letters()] == [*thread.dead_letters()] != []
        moments = []

        def reopened(self: Database) -> Database:
            moments.append(real(self))
            return moments[-1]

        real = Database.reopened
        monkeypatch.setattr(Database, "reopened", reopened)
        other.copy_to(back, log=True)
        assert 0 < sum(moment.link.trips for moment in moments) < 200


def test_the_size_of_a_thread_follows_from_its_newest_events(postgres: str) -> None:
    """Nobody reads all of a long log to say how large it is; it is counted while it is short."""
    with eventq.open(fresh(postgres)) as thread:
        thread.push_many([("self", "note", "x" * 1_000)] * 1_000)
        short = thread.status().db_bytes
        thread.push_many([("self", "note", "x" * 1_000)] * 500)
        assert 1_000_000 < short < 1_200_000
        assert thread.status().db_bytes == pytest.approx(short * 1.5, rel=0.01)
        thread.push_many([("self", "note", "")] * 1_000)
        assert thread.status().db_bytes < short


def test_what_reads_a_moment_gives_its_connection_back(
    shared_connections: None, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that shows a thread again and again connects once, and plans nothing anew."""
    made = []

    def connect(*place: Any, **how: Any) -> Any:
        made.append(real(*place, **how))
        return made[-1]

    real = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", connect)
    with eventq.open(fresh(postgres)) as thread:
        thread.contexts.create("main").append("said")
        calls = thread.status, thread.check, lambda: thread.gc(apply=True)
        for call in calls * 3:
            call()
        with pytest.raises(ZeroDivisionError), thread.database.memory.read():
            1 / 0  # noqa: B018
        thread.status()
    assert len(made) <= 3
    assert {one.info.transaction_status.name for one in made} == {"IDLE"}


def test_statements_stay_planned(warm: eventq.Thread) -> None:
    """A connection keeps the plans of all statements, of which the memory alone has hundreds."""
    link: Any = warm.database.link  # type: ignore[attr-defined]
    for number in [*range(400)] * 2:
        link.run(f"SELECT {number}", {})
    assert link.run("SELECT count(*) FROM pg_prepared_statements", {}) >= [(400,)]
