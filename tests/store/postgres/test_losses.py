"""What a lost connection does: what was not stored is stored, and what nobody knows is said."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.errors import BusyError, InputError, ReadOnlyError, UnknownOutcomeError, UsageError
from eventq.records.event import NewEvent
from eventq.store.postgres import database
from eventq.thread import init_schema
from tests.servers import fresh
from tests.store.postgres.pooler import Pair, Pooler
from tests.store.sqlite.test_interrupts import SHARED, Interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def shared(postgres: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread."""
    with eventq.open(fresh(postgres)) as thread:
        thread.push("self", "note", "1")
        yield thread
        assert thread.check() == []


@pytest.fixture
def cut(postgres: str) -> Iterator[Callable[[eventq.Thread], None]]:
    """Return a function that ends the connection of a thread on the server, and waits for that."""
    with psycopg.connect(postgres, autocommit=True) as server:

        def end(thread: Any) -> None:
            pid = thread.database.link.connection().info.backend_pid
            server.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))

        yield end


def test_a_connection_that_was_idle(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """It is made anew, before anything is sent."""
    for number in range(2, 5):
        cut(shared)
        assert shared.push("self", "note", "x").id == number
        cut(shared)
        assert shared.last_id() == number
        cut(shared)
        with shared.write():
            assert shared.last_id() == number


def test_a_connection_in_a_transaction(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """Nothing of it is stored, whatever follows in it, and what comes after it works."""
    with pytest.raises(BusyError, match="nothing of it is stored"), shared.write():
        shared.push("self", "note", "2")
        cut(shared)
        shared.push("self", "note", "3")
    with pytest.raises(eventq.StoreError), shared.write():
        shared.push("self", "note", "2")
        cut(shared)
        with pytest.raises(BusyError):
            shared.push("self", "note", "3")
    with pytest.raises(eventq.StoreError, match="an earlier step"), shared.write():
        with pytest.raises(BusyError), shared.write():
            cut(shared)
            shared.push("self", "note", "2")
        shared.push("self", "note", "3")
    assert (shared.last_id(), shared.push("self", "note", "2").id) == (1, 2)


def test_an_interrupt_as_a_pipeline_ends(
    shared: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is given up, and with it the transaction: nothing of that is stored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupted(call: Callable[[], object]) -> None:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(psycopg.Pipeline, "__exit__", interrupt)
            call()

    interrupted(lambda: shared.push("self", "note", "x", key="k"))
    with shared.write():
        shared.push("self", "note", "x", key="k")
    known = shared.last_id()
    with pytest.raises(eventq.StoreError, match="an earlier step"), shared.write():
        shared.push("self", "note", "y")
        interrupted(lambda: shared.prune(before_id=1))
        shared.push("self", "note", "z")
    assert shared.push("self", "note", "after").id == known + 1


def interrupted(thread: eventq.Thread, number: int) -> str:
    """Interrupt nested transactions at a call; return its name, "" after the last one."""
    interrupts, before = Interrupts(number, database.__file__, SHARED), sys.gettrace()
    sys.settrace(interrupts)
    try:
        with thread.write():
            thread.push("self", "note", "y")
            with thread.write():
                thread.push("self", "note", "z")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupts.where


def test_an_interrupt_leaves_no_transaction_open(shared: eventq.Thread) -> None:
    """What is pushed after an interrupt, by any OS thread, is stored."""
    number = 1
    while where := interrupted(shared, number):
        last = shared.last_id()
        runner = threading.Thread(target=shared.push, args=("self", "note", "w"), daemon=True)
        runner.start()
        runner.join(60)
        assert not runner.is_alive(), where
        assert shared.last_id() == last + 1, where
        number += 1
    assert number > 10


def test_several_statements_are_never_prepared(shared: eventq.Thread) -> None:
    """The driver knows that they cannot be only until an interrupt keeps it from noting that."""
    opened: Any = shared.database
    opened.link.connection().prepare_threshold = 0
    with shared.write():
        shared.push("self", "note", "2")
    assert shared.last_id() == 2


LARGE = [("self", "note", "x")] * 300


def test_a_large_batch_that_is_not_whole(empty: str, shared: eventq.Thread) -> None:
    """Nothing of it is stored, whoever stops it, and the connection serves the next one."""

    def stopped() -> Iterator[tuple[str, str, str]]:
        yield from LARGE
        raise KeyboardInterrupt

    database: Any = shared.database
    rows = [NewEvent(*row) for row in LARGE]
    with pytest.raises(KeyboardInterrupt):
        shared.push_many(stopped())
    with pytest.raises(InputError):  # in the middle of the COPY
        database.events.append([*rows, NewEvent("self", "note", "\ud800")])
    assert shared.push_many(LARGE).first_id == 2
    init_schema(empty)
    with psycopg.connect(empty) as server:
        server.execute("ALTER TABLE eventq.events ADD CHECK (content <> 'bad')")
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        with pytest.raises(eventq.StoreError, match="refused"):
            thread.push_many([*LARGE, ("self", "note", "bad")])
        assert thread.push_many(LARGE).first_id == 1


def test_a_large_batch_whose_connection_is_lost(
    shared: eventq.Thread, cut: Callable[..., None]
) -> None:
    """Nothing of it is stored."""
    with pytest.raises(BusyError, match="nothing of it is stored"), shared.write():
        shared.push_many(LARGE)
        cut(shared)
        shared.push_many(LARGE)
    assert shared.push_many(LARGE).first_id == 2


def test_a_commit_whose_answer_is_lost(shared: eventq.Thread, cut: Callable[..., None]) -> None:
    """Nobody knows: that is said, and a key makes it safe."""
    with pytest.raises(UnknownOutcomeError, match="a push with a key"), shared.write():
        shared.push("self", "note", "2", key="k")
        cut(shared)
    assert shared.push("self", "note", "2", key="k").id == 2
    assert shared.push("self", "note", "2", key="k").id == 2


def test_an_answer_that_is_lost_with_the_server(postgres: str) -> None:
    """Nobody knows what became of a push with a key, and a read was in vain."""
    url = fresh(postgres)
    name = url.rpartition("thread=")[2]
    for is_push in (True, False):
        pooler = Pooler(postgres)
        with eventq.open(f"{pooler.url}&thread={name}") as thread:
            thread.last_id()
            pooler.stop_listening()
            pooler.lose(Pair.end)
            if is_push:
                with pytest.raises(UnknownOutcomeError, match="a push with a key"):
                    thread.push("self", "note", "1", key="k")
            else:
                with pytest.raises(eventq.StoreError, match="cannot be reached"):
                    thread.last_id()
        pooler.close()
    with eventq.open(url) as thread:
        assert thread.last_id() == 1  # this time it was stored


LOSE = """
import sys
import eventq, psycopg
with eventq.open(sys.argv[1]) as thread, eventq.open(sys.argv[1]) as other:
    thread.database.link.script("BEGIN")
    pid = thread.database.link.connection().info.backend_pid
    other.database.link.run("SELECT pg_terminate_backend(%(pid)s, 10000)", {"pid": pid})
    try:
        thread.database.link.together([("SELECT 1", {})] * 2_000)
    except psycopg.Error:
        print("lost")
"""


def test_nothing_but_our_error_says_that_a_connection_was_lost(postgres: str) -> None:
    """A program that has set up no logging gets no lines of the driver on its stderr."""
    words = [sys.executable, "-c", LOSE, fresh(postgres)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "lost\n", "")


# --- servers that take no writes ------------------------------------------------------------------


@pytest.fixture
def frozen(empty: str) -> Iterator[tuple[str, Callable[..., None]]]:
    """Return the URL of a thread, and a function that sets its database's read-only mode."""
    init_schema(empty)
    name = empty.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(empty, autocommit=True) as server:

        def freeze(*, on: bool = True) -> None:
            mode = "on" if on else "off"
            server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {mode}')

        yield eventq.init(f"{empty}&thread=x"), freeze


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for more than a second in all."""
    asked: list[float] = []

    def pause(seconds: float) -> None:
        asked.append(seconds)
        assert sum(asked) < 1, "it waits"

    monkeypatch.setattr("eventq.system.clock.pause", pause)


@pytest.mark.usefixtures("impatient")
def test_a_server_in_read_only_mode(frozen: tuple[str, Callable[..., None]]) -> None:
    """That is said at once, to those who open a thread and to those who have."""
    url, freeze = frozen
    with eventq.open(url) as thread:
        thread.push("self", "note", "1")
        database: Any = thread.database
        database.link.run("SET default_transaction_read_only = on", {})
        freeze()
        for call in (
            lambda: eventq.open(url),
            lambda: thread.push("self", "note", "2"),
            lambda: thread.push("self", "note", "2", key="k"),
            lambda: thread.subscribe("w"),
        ):
            with pytest.raises(ReadOnlyError, match=r"is read-only: .* - end its read-only mode"):
                call()
        freeze(on=False)
        assert thread.push("self", "note", "2").id == 2


def test_a_server_that_refuses_a_write_may_have_a_successor(
    frozen: tuple[str, Callable[..., None]],
) -> None:
    """What one connection refused is sent on a new one, which leads to the server in charge."""
    url, _ = frozen
    with eventq.open(url) as thread:
        database: Any = thread.database
        for number, key in ((1, None), (2, "k")):
            database.link.run("SET default_transaction_read_only = on", {})
            assert thread.push("self", "note", "x", key=key).id == number


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("foo=1", 'invalid URI query parameter: "foo"'),
        ("sslmode=zzz", 'invalid sslmode value: "zzz"'),
        ("options=-c%20nosuch%3D1", 'unrecognized configuration parameter "nosuch"'),
    ],
)
def test_a_url_with_an_unknown_parameter(postgres: str, wrong: str, said: str) -> None:
    """It is the URL that is wrong, not the server."""
    url = postgres.replace("postgres@", "postgres:s3cr3t@")
    with pytest.raises(UsageError, match=f"cannot be used: .*{said} - correct it") as caught:
        eventq.open(f"{url}&thread=x&{wrong}")
    assert "s3cr3t" not in str(caught.value)


def test_bytes_and_names(shared: eventq.Thread) -> None:
    """Content may hold NUL; keys may be as long as ever."""
    event = shared.push("self", "note", "a\0b")
    assert [*shared.peek(1)] == [event]
    key = "ä" * 40_000
    assert shared.push("self", "note", "x", key=key) == shared.push("self", "note", "x", key=key)
    assert shared.push("self", "note", "y", key=key[1:]).content == "y"
