"""What a server refuses: the error has a class, a next step, and never a password."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import EventqError
from eventq.thread import init_schema
from tests.servers import fresh
from tests.store.postgres.machines import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RunPython

SECRET, WRONG = "s3cr3t", "wr0ng"
TRY = """
import json, sys
import eventq
from eventq.errors import EventqError
said = []
for url in sys.argv[1:]:
    try:
        with eventq.open(url) as thread:
            thread.push("self", "note", "x")
        said.append(["", "", ""])
    except EventqError as error:
        said.append([type(error).__name__, error.what, error.fix])
print(json.dumps(said))
"""


@pytest.fixture
def server(postgres: str) -> Iterator[Server]:
    """Return a server where `bob` has a password, `carol` no rights, and `dave` only reads."""
    made = Server()
    made.write("pg_hba.conf", "local all bob scram-sha-256\nlocal all all trust\n", "w")
    try:
        made.start()
        init_schema(made.url)
        made.run(f"CREATE ROLE bob LOGIN SUPERUSER PASSWORD '{SECRET}'")
        made.run("CREATE ROLE carol LOGIN")
        made.run("CREATE ROLE dave LOGIN")
        made.run("GRANT USAGE ON SCHEMA eventq TO dave")
        made.run("GRANT SELECT ON ALL TABLES IN SCHEMA eventq TO dave")
        yield made
    finally:
        made.close()


CASES = {
    "postgres:s3cr3t@/postgres?host=/nowhere": ("StoreError", "cannot be reached", "check that it"),
    "bob:s3cr3t@/postgres?host={}": ("", "", ""),
    "bob:wr0ng@/postgres?host={}": ("ReadOnlyError", "refused the login", "check the user, and"),
    "bob@/postgres?password=wr0ng&host={}": ("ReadOnlyError", "refused the login", "~/.pgpass"),
    "bob@/postgres?host={}": ("ReadOnlyError", "no password supplied", "~/.pgpass"),
    "nobody:s3cr3t@/postgres?host={}": ("StoreError", "does not exist", "check the names"),
    "postgres:s3cr3t@/nosuch?host={}": ("StoreError", "does not exist", "check the names"),
    "carol:s3cr3t@/postgres?host={}": ("ReadOnlyError", "may not do this", "grant it"),
    "dave:s3cr3t@/postgres?host={}": ("ReadOnlyError", "may not do this", "grant it"),
}


def test_what_is_refused(server: Server, run_python: RunPython) -> None:
    """A program is told what to do, without the password; the driver writes nothing to stderr."""
    name = fresh(server.url).rpartition("thread=")[2]
    urls = [f"postgresql://{case.format(server.folder)}&thread={name}" for case in CASES]
    said = run_python(TRY, *urls)
    assert SECRET not in said
    assert WRONG not in said
    for (case, (error, what, fix)), found in zip(CASES.items(), json.loads(said), strict=True):
        assert (found[0], what in found[1], fix in found[2]) == (error, True, True), (case, found)


CALLS: dict[str, Callable[[eventq.Thread], object]] = {
    "source": lambda thread: thread.push("a\0b", "note", "x"),
    "type": lambda thread: thread.push("self", "a\0b", "x"),
    "subtype": lambda thread: thread.push("self", "note", "x", "a\0b"),
    "key": lambda thread: thread.push("self", "note", "x", key="a\0b"),
    "key of many": lambda thread: thread.push_many([("self", "note", "x", None, "a\0b")]),
    "consumer": lambda thread: thread.subscribe("a\0b"),
    "handler": lambda thread: thread.subscribe("w", "a\0b"),
    "filter": lambda thread: thread.subscribe("w", filter="type = 'a\0b'"),
    "order": lambda thread: thread.subscribe("w", "true", each=True, ordered_by="$.a\0b"),
    "directory": lambda thread: thread.subscribe("w", "true", directory="a\0b"),
    "consumer of a claim": lambda thread: thread.claim("a\0b"),
    "nonce": lambda thread: thread.claim("v", nonce="a\0b"),
    "worker": lambda thread: thread.claim("v", worker="a\0b"),
    "reason": lambda thread: thread.claim("v")[0].dead("a\0b"),
    "filter of peek": lambda thread: [*thread.peek(filter="type = 'a\0b'")],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_nul_that_postgresql_cannot_store(
    thread: eventq.Thread, postgres: str, name: str
) -> None:
    """Text with one is refused, or taken, as in a directory."""
    found: list[tuple[str, object]] = []
    with eventq.open(fresh(postgres)) as shared:
        for place in (thread, shared):
            place.subscribe("v")
            place.push("self", "note", "x")
            try:
                CALLS[name](place)
                found.append(("", [*place.peek()][-1]._replace(created_at="")))
            except EventqError as error:
                found.append((type(error).__name__, str(error)))
        assert shared.check() == []
    assert found[0] == found[1]
