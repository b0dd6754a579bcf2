"""What ends a call at a server, or keeps a program from it: the error says which of them it was.

The kind: one cause is taken for another, because the words or the code of both are alike. Members:
statement_timeout (the code of an interrupt), idle_in_transaction_session_timeout and PostgreSQL
17's transaction_timeout (a connection that is lost), lock_timeout of the server (not our 30
seconds), a pooler that refuses our options (a server that cannot be reached) or loses prepared
statements, root certificates or a key that cannot be read ("does not exist", as a role), a name
that the certificate does not have, a server without TLS, pg_hba.conf (a password).
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

import eventq
from eventq.errors import BusyError, EventqError, StoreError, UsageError
from eventq.store.address import parse
from eventq.store.postgres.failures import unreachable
from eventq.thread import init_schema
from tests.servers import fresh
from tests.store.postgres.machines import Server
from tests.store.postgres.pooler import Pooler, said

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(postgres: str) -> Iterator[Server]:
    """Return a server of the test's own, with the tables."""
    made = Server()
    try:
        made.start()
        init_schema(made.url)
        yield made
    finally:
        made.close()


def locked(server: Server) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection that holds the rows which every change locks."""
    holder = psycopg.connect(server.url)
    holder.execute("SELECT 1 FROM eventq.counters FOR UPDATE")
    return holder


@pytest.mark.parametrize("form", ["", "&pooled=1"])
def test_a_statement_that_takes_too_long(server: Server, form: str) -> None:
    """It is no interrupt, nothing was stored, and the setting is named."""
    url = fresh(server.url) + form
    server.run("ALTER ROLE postgres SET statement_timeout = '100ms'")
    with eventq.open(url) as thread:
        with locked(server), pytest.raises(StoreError, match="statement timeout") as caught:
            thread.push("self", "note", "x")
        assert "SET statement_timeout" in caught.value.fix
        thread.push("self", "note", "y")
        assert [event.content for event in thread.peek()] == ["y"]


def test_an_interrupt_is_still_one(server: Server) -> None:
    """A statement that somebody cancels is reported as that."""
    with eventq.open(fresh(server.url)) as thread, locked(server):
        waits = """
            SELECT pg_cancel_backend(pid)
            FROM pg_stat_activity
            WHERE application_name = 'eventq' AND wait_event_type = 'Lock'
        """
        is_over = threading.Event()

        def cancel() -> None:
            while not is_over.is_set() and not server.run(waits):
                pass

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(StoreError, match="was interrupted"):
            thread.push("self", "note", "x")
        is_over.set()
        canceller.join()


def test_a_transaction_in_which_nothing_is_done(server: Server) -> None:
    """To do all of it again, as after a lost connection, would end the same way."""
    url = fresh(server.url)
    server.run("ALTER ROLE postgres SET idle_in_transaction_session_timeout = '50ms'")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'eventq'"
    with eventq.open(url) as thread:
        with pytest.raises(StoreError, match="idle-in-transaction") as caught, thread.write():
            thread.push("self", "note", "x")
            while server.run(count) != [(0,)]:
                pass
            thread.push("self", "note", "y")
        assert "SET idle_in_transaction_session_timeout" in caught.value.fix
        assert thread.last_id() == 0


def test_the_transaction_timeout_of_a_newer_server(server: Server) -> None:
    """A transaction that it ends is known not to be stored."""
    name = fresh(server.url).rpartition("thread=")[2]
    pooler = Pooler(server.url)
    try:
        with eventq.open(f"{pooler.url}&thread={name}&pooled=1") as thread:
            text = said("25P04", "terminating connection due to transaction timeout")
            with (
                pytest.raises(StoreError, match="transaction timeout") as caught,
                thread.write(),
            ):
                pooler.refuse(lambda pair: pair.end(text))
                thread.push("self", "note", "x")
            assert "SET transaction_timeout" in caught.value.fix
            assert type(caught.value) is StoreError
            assert thread.last_id() == 0
    finally:
        pooler.close()


def test_the_lock_timeout_of_the_server(server: Server) -> None:
    """Behind a pooler it counts, and may be shorter than ours."""
    url = fresh(server.url)
    server.run("ALTER ROLE postgres SET lock_timeout = '50ms'")
    with (
        eventq.open(f"{url}&pooled=1") as thread,
        locked(server),
        pytest.raises(BusyError, match="the server's lock_timeout"),
    ):
        thread.push("self", "note", "x")


WORDS = {
    "FATAL:  unsupported startup parameter: options": "add pooled=1 to the URL",
    'root certificate file "/nosuch/root.crt" does not exist': "sslrootcert=FILE",
    'could not read root certificate file "/f": no certificate or crl found': "sslrootcert=FILE",
    'could not open certificate file "/c": No such file or directory': "sslcert=FILE",
    'certificate present, but not private key file "/k"': "sslkey=FILE",
    'private key file "/k" has group or world access': "others may not read the key",
    'server certificate for "db" does not match host name "db2"': "as the server's certificate",
    "SSL error: certificate verify failed": "sslrootcert=FILE",
    "server does not support SSL, but SSL was required": "turn on ssl there",
    'FATAL:  no pg_hba.conf entry for host "h", user "u", no encryption': "pg_hba.conf",
    'FATAL:  password authentication failed for user "u"': "~/.pgpass",
    'FATAL:  role "u" does not exist': "the names in the URL",
    "Connection refused": "check that it runs",
}


@pytest.mark.parametrize("words", WORDS)
def test_what_is_said_of_a_connection(words: str) -> None:
    """Each cause has the step that mends it: libpq tells them apart by words alone."""
    text = f'connection failed: connection to server at "127.0.0.1", port 1 failed: {words}'
    found = unreachable(psycopg.OperationalError(text), parse("postgresql://u@db/d"))
    assert (words in found.what, WORDS[words] in found.fix) == (True, True), found


@pytest.mark.parametrize(
    ("words", "code"),
    [("Connection refused", 503), ("server closed the connection unexpectedly", 503),
     ("FATAL:  the database system is starting up", 503), ('FATAL:  role "u" does not exist', 500)],
)  # fmt: skip
def test_a_server_that_may_be_restarting_is_unavailable(words: str, code: int) -> None:
    """Over HTTP that is 503: clients and proxies try such a request again, but none of 500."""
    found = unreachable(psycopg.OperationalError(words), parse("postgresql://u@db/d"))
    assert found.wire_code == code


@pytest.mark.parametrize("words", ['weak sslmode "require" may not be used', "invalid sslmode"])
def test_a_url_that_libpq_refuses(words: str) -> None:
    """What stands wrong in a URL is a fault of the call."""
    found = unreachable(psycopg.OperationalError(words), parse("postgresql://u@db/d"))
    assert isinstance(found, UsageError)


@pytest.mark.parametrize(
    ("answer", "more", "fix"),
    [
        (b"S", "sslrootcert=/nosuch/root.crt", "sslrootcert=FILE"),
        (b"S", "sslrootcert=/dev/null", "sslrootcert=FILE"),
        (b"S", "sslrootcert=system&sslcert=/dev/null", "sslcert=FILE"),
        (b"N", "sslrootcert=system", "turn on ssl there"),
    ],
)
def test_libpq_s_own_words(answer: bytes, more: str, fix: str) -> None:
    """The words above are those of the library that is installed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(8)
                peer.sendall(answer)
                peer.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        url = f"postgresql://u@127.0.0.1:{port}/d?thread=t&gssencmode=disable&sslmode=verify-full"
        with pytest.raises(EventqError) as caught:
            eventq.open(f"{url}&{more}")
    assert fix in caught.value.fix, caught.value
