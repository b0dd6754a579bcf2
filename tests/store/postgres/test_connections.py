"""Which errors end a connection, and what becomes of the change whose answer went with it.

How a connection ends (`ENDINGS`): a server that is shut down (57P01), crashes (57P02), starts
(57P03), deletes the database (57P04), or ends an idle session (57P05) or an idle transaction
(25P03); a pooler whose server is gone (08P01 "server conn crashed?", and in the middle of an
answer), which has waited too long for a server (`query_wait_timeout`), has no more patience with a
client (`client_idle_timeout`), is ended by its administrator, calls it an ERROR (08006, 08003), or
says FATAL and goes on; a close without a word, a reset, a half close.

What goes with it (`CALLS`): a push, a batch, a large batch, a push with a key, a transaction, a
claim, both ways to settle, an ack, a pop, a read, a subscription, a prune, a new thread, a waiter.

What leaves a connection alive, so that the outcome is known: a statement that takes too long, one
that is cancelled, a constraint, a lock that is held, two transactions in each other's way. Some of
them leave a connection that can no longer be used, after a pipeline.
"""

from __future__ import annotations

import select
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import eventq
from eventq.errors import EventqError, StoreError, UnknownOutcomeError
from eventq.thread import init_schema
from tests.servers import fresh
from tests.store.postgres.machines import until
from tests.store.postgres.pooler import Pair, Pooler, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.store.postgres.pooler import Ending


@pytest.fixture
def direct(postgres: str) -> str:
    """Return the URL of a fresh thread, on the server itself."""
    return fresh(postgres)


@pytest.fixture(params=["session", "pooled"])
def through(request: pytest.FixtureRequest, pooler: Pooler, direct: str) -> Iterator[eventq.Thread]:
    """Return the thread, opened through the pooler, with work for what is called."""
    name = direct.rpartition("thread=")[2]
    more = "&pooled=1" if request.param == "pooled" else ""
    with eventq.open(f"{pooler.url}&thread={name}{more}") as thread:
        thread.push_many(("self", "note", str(n)) for n in range(10))
        thread.subscribe("acked")
        thread.subscribe("claimed")
        thread.pop("acked", limit=2)
        thread.settle(thread.claim("claimed", 2))
        thread.push("self", "note", "first", key="first")
        yield thread
        assert thread.check() == []


def farewell(code: str, text: str, **how: Any) -> Ending:
    """Return an ending of which the client is told."""
    return lambda pair: pair.end(said(code, text, **how))


def truncate(pair: Pair) -> None:
    """Pass on the answer up to the word that all is over, as a pooler does that looks at none."""
    pair.end(pair.kept[:-6] + said("08P01", "server conn crashed?", is_server=False))


def go_on(pair: Pair) -> None:
    """Say that it is over, and serve the client on."""
    pair.pass_on(said("58000", "server is gone", is_server=False) + b"Z\0\0\0\5I")


NEW = ("self", "note", "new")
ENDINGS: dict[str, Ending] = {
    "57P01": farewell("57P01", "terminating connection due to administrator command"),
    "57P02": farewell("57P02", "terminating connection because of crash of another process"),
    "57P03": farewell("57P03", "the database system is shutting down"),
    "57P04": farewell("57P04", "terminating connection because the database was dropped"),
    "57P05": farewell("57P05", "terminating connection due to idle-session timeout"),
    "25P03": farewell("25P03", "terminating connection due to idle-in-transaction timeout"),
    "server conn crashed": farewell("08P01", "server conn crashed?", is_server=False),
    "in an answer": truncate,
    "query_wait_timeout": farewell("08P01", "query_wait_timeout", is_server=False),
    "client_idle_timeout": farewell("08P01", "client_idle_timeout", is_server=False),
    "admin": farewell("08P01", "admin forced disconnect", is_server=False),
    "08006": farewell("08006", "server closed", severity="ERROR", is_server=False),
    "08003": farewell("08003", "no server", severity="ERROR", is_server=False),
    "unknown code": farewell("XX000", "cannot read", severity="ERROR", is_server=False),
    "goes on": go_on,
    "close": Pair.end,
    "reset": Pair.reset,
    "half close": Pair.half_close,
}


def commit(thread: eventq.Thread) -> None:
    """Store an event in a transaction."""
    with thread.write():
        thread.push("self", "note", "new")


def take(thread: eventq.Thread) -> list[eventq.Claim]:
    """Return a claim of the next event."""
    return thread.claim("claimed")


def nothing(_: eventq.Thread) -> None:
    """Prepare nothing."""


def warm_up(thread: eventq.Thread) -> None:
    """Let the statement of a push be prepared, which is a round trip of its own."""
    for _ in range(2):
        thread.push("self", "note", "warm")


# What is prepared, the call, how many events it stores, and whether its outcome is unknown then.
CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], object], int, bool]] = {
    "push": (warm_up, lambda thread, _: thread.push("self", "note", "new"), 1, True),
    "batch": (nothing, lambda thread, _: thread.push_many([NEW] * 9), 9, True),
    "large batch": (nothing, lambda thread, _: thread.push_many([NEW] * 300), 300, True),
    "push with a key": (nothing, lambda thread, _: thread.push(*NEW, key=uuid4().hex), 1, False),
    "transaction": (nothing, lambda thread, _: commit(thread), 1, True),
    "claim": (nothing, lambda thread, _: take(thread), 0, True),
    "done": (take, lambda thread, claims: thread.settle(claims), 0, True),
    "dead": (take, lambda _, claims: claims[0].dead("no"), 0, True),
    "ack": (nothing, lambda thread, _: thread.ack("acked", 3), 0, False),
    "pop": (nothing, lambda thread, _: thread.pop("acked", 3, limit=2), 0, False),
    "read": (nothing, lambda thread, _: thread.last_id(), 0, False),
    "peek": (nothing, lambda thread, _: [*thread.peek()], 0, False),
    "prune": (nothing, lambda thread, _: thread.prune(before_id=2, force=True), 0, True),
}


def stored(url: str) -> int:
    """Return how many new events are stored, as the server says."""
    with eventq.open(url) as thread:
        return sum(event.content == "new" for event in thread.peek(limit=None))


def outcome(call: Callable[[Any, Any], object], thread: eventq.Thread, given: object) -> str:
    """Return the name of the error that a call raises, or nothing."""
    try:
        call(thread, given)
    except EventqError as error:
        return type(error).__name__
    return ""


# Each ending meets every sixth call in the suite: which error it becomes is no business of the call.
STEP = pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.soak)])


def endings(name: str, step: int) -> list[tuple[str, Ending]]:
    """Return the endings that a call meets."""
    return [*ENDINGS.items()][[*CALLS].index(name) % step :: step]


@STEP
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_that_is_lost(
    through: eventq.Thread, pooler: Pooler, direct: str, name: str, step: int
) -> None:
    """What may be done twice goes on by itself; for anything else, it is said that nobody knows."""
    prepare, call, count, is_unknown = CALLS[name]
    expected = "UnknownOutcomeError" if is_unknown else ""
    for number, (ending, end) in enumerate(endings(name, step), 1):
        given = prepare(through)
        through.last_id()  # nobody waits for the answer to a notice any more
        pooler.lose(end)
        assert outcome(call, through, given) == expected, ending
        assert (pooler.lost, stored(direct)) == (number, number * count), ending
        assert through.push("self", "note", "after").content == "after", ending
        assert through.push("self", "note", "after", key=ending).content == "after", ending


@STEP
@pytest.mark.parametrize("name", CALLS)
def test_an_idle_connection_that_is_ended(
    through: Any, pooler: Pooler, direct: str, name: str, step: int
) -> None:
    """Another one is used, before anything is sent: nothing fails."""
    prepare, call, count, _ = CALLS[name]
    for number, (ending, end) in enumerate(endings(name, step), 1):
        given = prepare(through)
        poll = select.poll()
        poll.register(through.database.link.fileno(), select.POLLIN)
        pooler.dismiss(end)
        assert poll.poll(60_000), ending
        assert outcome(call, through, given) == "", ending
        assert stored(direct) == number * count, ending
        assert through.push("self", "note", "after").content == "after", ending


def test_a_request_that_is_not_passed_on(
    through: eventq.Thread, pooler: Pooler, direct: str
) -> None:
    """It looks as if its answer were lost, and is treated alike; no transaction has begun."""
    expected = 0
    for name, (prepare, call, count, is_unknown) in CALLS.items():
        given = prepare(through)
        pooler.refuse(ENDINGS["query_wait_timeout"])
        found = outcome(call, through, given)
        assert found in ("", "UnknownOutcomeError" if is_unknown else ""), name
        expected += 0 if found else count
        assert stored(direct) == expected, name


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_thread_that_is_made(pooler: Pooler, direct: str, ending: str) -> None:
    """It is there or not: that is said."""
    name = direct.rpartition("thread=")[2]
    eventq.destroy(direct)
    pooler.lose(ENDINGS[ending])
    with pytest.raises(UnknownOutcomeError):
        eventq.init(f"{pooler.url}&thread={name}")
    eventq.open(direct).close()  # this time it is


def test_a_waiter(pooler: Pooler, direct: str) -> None:
    """It hears of what is pushed after its connections were ended."""
    name = direct.rpartition("thread=")[2]
    with eventq.open(f"{pooler.url}&thread={name}") as thread, eventq.open(direct) as other:
        following = thread.follow(0)
        for ending, end in ENDINGS.items():
            pushed = other.push("self", "note", ending)
            assert next(following) == pushed
            pooler.dismiss(end)
        pushed = other.push("self", "note", "last")
        assert next(following) == pushed


# --- connections that outlive an error ------------------------------------------------------------


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Lock the rows of a thread and its consumers, as another writer does."""
    base, _, name = url.partition("&thread=")
    with psycopg.connect(base) as server:
        server.execute(
            """
            SELECT 1
            FROM eventq.threads
                JOIN eventq.counters USING (bucket, thread_id)
                JOIN eventq.consumers USING (bucket, thread_id)
            WHERE name = %s
            FOR UPDATE OF counters, consumers
            """,
            (name,),
        )
        yield


def cancel(thread: Any) -> threading.Thread:
    """End the next statement that waits for a lock."""
    link = thread.database.link
    pid = link.connection().info.backend_pid

    def end() -> None:
        with psycopg.connect(thread.database.address.conninfo, autocommit=True) as server:
            waits = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
            until(lambda: server.execute(waits, (pid,)).rowcount, "it waits")
        link.interrupt()

    runner = threading.Thread(target=end)
    runner.start()
    return runner


def limit(setting: str) -> Callable[[Any], None]:
    """Return a function that sets a limit of time on a connection."""

    def begin(thread: Any) -> None:
        thread.database.link.script(f"SET {setting} = '20ms'")

    return begin


LIMITS: dict[str, Callable[[Any], threading.Thread | None]] = {
    "cancelled": cancel,
    "statement_timeout": limit("statement_timeout"),
    "lock_timeout": limit("lock_timeout"),
}
PIPELINES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "push": (nothing, lambda thread, _: thread.push(*NEW)),
    "push with a key": (nothing, lambda thread, _: thread.push(*NEW, key=uuid4().hex)),
    "transaction": (nothing, lambda thread, _: commit(thread)),
    "claim": (nothing, lambda thread, _: take(thread)),
    "done": (take, lambda thread, claims: thread.settle(claims)),
    "retry": (take, lambda _, claims: claims[0].retry()),
}


@pytest.mark.parametrize("reason", LIMITS)
@pytest.mark.parametrize("name", PIPELINES)
def test_what_fails_while_the_connection_lives(direct: str, name: str, reason: str) -> None:
    """Nothing is stored, that is said, and the next one is served: not only the first time."""
    prepare, call = PIPELINES[name]
    opened: Any
    with eventq.open(direct) as thread:
        opened = thread
        thread.subscribe("claimed")
        thread.push_many(("self", "note", str(n)) for n in range(30))
        for _ in range(4):
            call(thread, prepare(thread))  # psycopg prepares a statement at its second use
            given, last = prepare(thread), thread.last_id()
            with locked(direct):
                runner = LIMITS[reason](thread)
                found = outcome(call, thread, given)
                if runner is not None:
                    runner.join()
                else:  # what comes after may take as long as it needs
                    opened.database.link.script(f"RESET {reason}")
            assert found == ("BusyError" if reason == "lock_timeout" else "StoreError")
            assert thread.last_id() == last
            call(thread, given)
        assert thread.check() == []


LEVELS = (
    "read committed", pytest.param("repeatable read", marks=pytest.mark.soak), "serializable",
)  # fmt: skip


@pytest.mark.parametrize("more", ["", "&pooled=1"], ids=["session", "pooled"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_server_with_another_isolation(empty: str, level: str, more: str) -> None:
    """Writers who get in each other's way are served, whatever the server begins transactions as."""
    init_schema(empty)
    name = empty.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    url = eventq.init(f"{empty}&thread=x{more}")
    raised: list[EventqError] = []

    def write(thread: eventq.Thread, number: int) -> None:
        try:
            for n in range(10):
                thread.push("self", "note", "x", key=f"{number} {n}")
                with thread.write():
                    thread.push("self", "note", "y")
                thread.settle(thread.claim("w"))
        except EventqError as error:
            raised.append(error)

    threads = [eventq.open(url) for _ in range(3)]
    threads[0].subscribe("w")
    if not more:
        database: Any = threads[0].database
        assert database.link.run("SHOW transaction_isolation", {}) == [("read committed",)]
    runners = [threading.Thread(target=write, args=(thread, n)) for n, thread in enumerate(threads)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert raised == []
    assert threads[0].last_id() == 60
    assert threads[0].check() == []
    for thread in threads:
        thread.close()


def test_a_session_that_the_server_ends(empty: str) -> None:
    """A server that ends idle sessions makes no read and no push fail."""
    init_schema(empty)
    name = empty.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(empty, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '20ms'")
    opened: Any
    with eventq.open(eventq.init(f"{empty}&thread=x")) as opened:
        for number in range(1, 4):
            for call in (opened.last_id, lambda: opened.push("self", "note", "x")):
                poll = select.poll()
                poll.register(opened.database.link.fileno(), select.POLLIN)
                assert poll.poll(60_000)
                call()
            assert opened.last_id() == number


def test_a_statement_that_is_interrupted_in_a_transaction(direct: str) -> None:
    """Who goes on after that is refused: what was pushed before is not stored."""
    thread: Any
    with eventq.open(direct) as thread:
        with pytest.raises(StoreError, match="an earlier step"), thread.write():
            thread.push("self", "note", "1")
            with pytest.raises(KeyboardInterrupt):
                thread.database.changing(interrupted)
        with pytest.raises(StoreError, match="an earlier step"), thread.write():
            thread.push("self", "note", "1")
            with pytest.raises(KeyboardInterrupt):
                interrupted(thread.database.link)
        assert thread.last_id() == 0


def interrupted(link: Any) -> None:
    """Run a statement that fails, and is interrupted before anybody hears of that."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        link.run("SELECT 1 / 0", {})
    raise KeyboardInterrupt
