"""What a server refuses: the error has a class, a next step, and never a password."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import EventqError, InputError
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
from eventq.errors import EventqError, InputError
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


def of_session(thread: eventq.Thread, bad: str) -> list[bytes]:
    """Import a session whose ids have a text, and return what comes out."""
    ids = {"id": f"e{bad}", "parentId": None, "message": {"role": "user", "content": bad}}
    entry = {"type": "message", "timestamp": "2026-01-01T00:00:00Z", **ids}
    then = {**entry, "id": "e2", "parentId": ids["id"]}
    file = "".join(json.dumps(one) + "\n" for one in ({"type": "session"}, entry, then)).encode()
    path = f"{thread.layout.directory}.jsonl"
    with open(path, "wb") as written:
        written.write(file)
    thread.sessions.import_file(path, name="s")
    assert b"".join(thread.sessions.lines("s")) == file
    return [turn.payload or b"" for turn in thread.contexts.get("s").replay()]


def in_groups(thread: eventq.Thread, bad: str) -> list[int]:
    """Claim events that are ordered by a text, of which only the first of a group comes."""
    thread.subscribe("o", ordered_by="$.k")
    for key in (bad, bad, json.dumps(bad)[1:-1].replace("\\", "\\\\"), "x"):
        thread.push("self", "note", json.dumps({"k": key}))
    return [claim.event.id for claim in thread.claim("o", limit=9)]


# Each with a text that has a NUL, or half a character.
CALLS: dict[str, Callable[[eventq.Thread, str], object]] = {
    "source": lambda thread, bad: thread.push(bad, "note", "x"),
    "type": lambda thread, bad: thread.push("self", bad, "x"),
    "subtype": lambda thread, bad: thread.push("self", "note", "x", bad),
    "content": lambda thread, bad: thread.push("self", "note", bad),
    "key": lambda thread, bad: thread.push("self", "note", "x", key=bad),
    "key of many": lambda thread, bad: thread.push_many([("self", "note", "x", None, bad)]),
    "consumer": lambda thread, bad: thread.subscribe(bad),
    "handler": lambda thread, bad: thread.subscribe("w", bad),
    "filter": lambda thread, bad: thread.subscribe("w", filter=f"type = '{bad}'"),
    "order": lambda thread, bad: thread.subscribe("w", "true", each=True, ordered_by=f"$.{bad}"),
    "directory": lambda thread, bad: thread.subscribe("w", "true", directory=bad),
    "label": lambda thread, bad: thread.subscribe("w", "true", each=True, label=bad),
    "consumer of a claim": lambda thread, bad: thread.claim(bad),
    "nonce": lambda thread, bad: thread.claim("v", nonce=bad),
    "worker": lambda thread, bad: thread.claim("v", worker=bad),
    "reason": lambda thread, bad: thread.claim("v")[0].dead(bad),
    "filter of peek": lambda thread, bad: [*thread.peek(filter=f"type = '{bad}'")],
    "groups": in_groups,
    "question": lambda thread, bad: thread.ask(bad, [bad, "b"]).options,
    "context": lambda thread, bad: thread.contexts.create(bad),
    "turn": lambda thread, bad: thread.contexts.create("c").append(bad).turn_id,
    "key of a turn": lambda thread, bad: thread.contexts.create("c").append("x", key=bad),
    "run": lambda thread, bad: thread.runs.start(bad, "x"),
    "prompt": lambda thread, bad: thread.runs.start("r", bad).id,
    "label of a run": lambda thread, bad: thread.runs.start("r", "x", label=bad),
    "role": lambda thread, bad: thread.runs.start("r", "x").step(eventq.NewStep(bad)),
    "summary": lambda thread, bad: thread.runs.start("r", "x").end(0, bad).number,
    "tool": lambda thread, bad: thread.artifacts.put(b"x", tool=bad).tool,
    "output": lambda thread, bad: thread.outputs.publish(bad, b"x"),
    "pin": lambda thread, bad: thread.blobs.pin(thread.blobs.put(b"x").ref, bad),
    "setting": lambda thread, bad: thread.settings.set("runs.emit", bad),
    "why": lambda thread, bad: thread.erasures.event(1, reason=bad),
    "session": of_session,
    "name of a session": lambda thread, bad: thread.sessions.import_file("/none", name=bad),
}
LOOKS: dict[str, Callable[[eventq.Thread, str], object]] = {
    "context": lambda thread, bad: thread.contexts.get(bad),
    "run": lambda thread, bad: thread.runs.get(bad),
    "session": lambda thread, bad: [*thread.sessions.lines(bad)],
    "scope": lambda thread, bad: thread.scope(bad),
    "URL": lambda thread, bad: thread.read(f"agent://{bad}"),
    "group": lambda thread, bad: [*thread.runs.list(group=bad)],
}
HALVES = {"nul": "a\0b", "half": "a\ud800b"}


# In the suite each call gets one of the two; the same two places look at both in any text.
BOTH = [
    pytest.param(name, bad, id=f"{name}-{how}", marks=[pytest.mark.soak] * (at != number % 2))
    for number, name in enumerate(CALLS)
    for at, (how, bad) in enumerate(HALVES.items())
]


@pytest.mark.parametrize(("name", "bad"), BOTH)
def test_text_that_postgresql_cannot_store(
    thread: eventq.Thread, postgres: str, name: str, bad: str
) -> None:
    """It is refused, or taken, as in a directory."""
    found: list[tuple[str, object, object]] = []
    with eventq.open(fresh(postgres)) as shared:
        for place in (thread, shared):
            place.subscribe("v")
            place.push("self", "note", "x")
            try:
                got = CALLS[name](place, bad)
                plain = got if isinstance(got, (str, int, list, tuple)) else None
                last = [*place.peek()][-1]._replace(created_at="")
                found.append(("", None if isinstance(got, eventq.Event) else plain, last))
            except EventqError as error:
                found.append((type(error).__name__, str(error), None))
        assert shared.check() == []
    assert found[0] == found[1]


@pytest.mark.parametrize("bad", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("name", LOOKS)
def test_a_name_that_postgresql_cannot_look_for(postgres: str, name: str, bad: str) -> None:
    """It is refused with a next step, and a transaction around it is as good as before."""
    with eventq.open(fresh(postgres)) as shared:
        shared.outputs.publish("0-a", b"x")
        with pytest.raises(InputError, match=r"leave it out|give whole Unicode characters"):
            LOOKS[name](shared, bad)
        with shared.write():
            shared.push("self", "note", "before")
            with pytest.raises(InputError), shared.write():
                LOOKS[name](shared, bad)
            shared.push("self", "note", "after")
        assert [event.content for event in shared.peek()] == ["before", "after"]
