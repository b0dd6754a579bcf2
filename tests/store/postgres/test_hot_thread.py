"""Many OS threads push to one thread through one `Thread`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import eventq
from eventq.errors import ClosedError, UnknownOutcomeError
from eventq.thread import init_schema
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.records.event import Commit
    from tests.conftest import RunPython, Until

    Result = eventq.Event | BaseException


@pytest.fixture
def shared(postgres: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread."""
    path = fresh(postgres)
    with eventq.open(path) as thread:
        yield thread
    with eventq.open(path) as again:
        assert again.check() == []


class Callers:
    """OS threads that push, and what each of them gets."""

    def __init__(self, thread: Any, until: Until) -> None:
        self.results: dict[str, Result] = {}
        self._thread = thread
        self._until = until
        self._runners: list[threading.Thread] = []

    def start(self, *contents: str) -> None:
        """Let each wait for the connection before the next one starts: somebody has it."""
        gathering = self._thread.database.events.gathering
        for content in contents:
            known = gathering.waiting
            self.run(content)
            self._until(lambda: gathering.waiting > known, "waits")  # noqa: B023

    def run(self, content: str, key: str | None = None) -> None:
        """Start one."""
        runner = threading.Thread(target=self._push, args=(content, key), daemon=True)
        runner.start()
        self._runners.append(runner)

    def _push(self, content: str, key: str | None) -> None:
        try:
            self.results[content] = self._thread.push("self", "note", content, key=key)
        except BaseException as error:
            self.results[content] = error

    def end(self) -> dict[str, Result]:
        """Return the events and errors, once all have theirs."""
        for runner in self._runners:
            runner.join(60)
            assert not runner.is_alive(), "it waits in vain"
        return self.results


@pytest.fixture
def callers(shared: eventq.Thread, until: Until) -> Callers:
    """Return what starts OS threads that push."""
    return Callers(shared, until)


def ids(results: dict[str, Result]) -> dict[str, Any]:
    """Return ids, and the kinds of errors."""
    return {
        content: result.id if isinstance(result, eventq.Event) else type(result)
        for content, result in results.items()
    }


def trips(thread: Any) -> int:
    """Return how many round trips there were."""
    return int(thread.database.link.trips)


def test_pushes_of_many_threads_are_few_changes(shared: eventq.Thread, until: Until) -> None:
    """Each gets its own event; ids have no gap, ascend for each, and so do those of commits."""
    commits: list[Commit] = []
    shared.database.subscribe("all", commits.append)
    events: dict[int, list[eventq.Event]] = {}

    def push(number: int) -> None:
        events[number] = [shared.push(f"s{number}", "note", str(n)) for n in range(50)]

    database: Any = shared.database
    before = trips(shared)
    pushers = [threading.Thread(target=push, args=(number,)) for number in range(32)]
    with database.lock:
        for one in pushers:
            one.start()
        until(lambda: database.events.gathering.waiting == 32, "all wait")
    for one in pushers:
        one.join()
    assert trips(shared) - before < 32 * 50
    for number, mine in events.items():
        assert [(event.source, event.content) for event in mine] == [
            (f"s{number}", str(n)) for n in range(50)
        ]
        assert [event.id for event in mine] == sorted(event.id for event in mine)
    stored = [*shared.peek(0, limit=2_000)]
    assert [event.id for event in stored] == [*range(1, 1601)]
    returned = [event for mine in events.values() for event in mine]
    assert sorted(returned, key=lambda event: event.id) == stored
    told = [number for one in commits for number in range(one.first, one.last + 1)]
    assert told == [*range(1, 1601)]


def test_what_waits_is_one_round_trip(shared: eventq.Thread, callers: Callers) -> None:
    """And one commit for those who look at commits."""
    commits: list[Commit] = []
    shared.database.subscribe("all", commits.append)
    database: Any = shared.database
    with database.lock:
        before = trips(shared)
        callers.start(*"abc")
    assert ids(callers.end()) == {"a": 1, "b": 2, "c": 3}
    assert trips(shared) - before == 1
    (commit,) = commits
    ((first, count, _, rows),) = commit.parts
    assert (commit.first, commit.last, first, count) == (1, 3, 1, 3)
    assert [row.content for row in rows] == [*"abc"]


def test_a_transaction_of_another_os_thread(shared: eventq.Thread, callers: Callers) -> None:
    """Its own pushes are direct; others wait for its end, and then go together."""
    with shared.write():
        callers.start(*"abc")
        assert shared.push("self", "note", "inside").id == 1
        before = trips(shared)
    assert ids(callers.end()) == {"a": 2, "b": 3, "c": 4}
    assert trips(shared) - before == 2  # the commit, and theirs


def test_one_that_the_server_refuses(empty: str, until: Until) -> None:
    """The others are stored, without a gap."""
    init_schema(empty)
    with psycopg.connect(empty) as server:
        server.execute("ALTER TABLE eventq.events ADD CHECK (content <> 'bad')")
    with eventq.open(eventq.init(f"{empty}&thread=x")) as thread:
        callers = Callers(thread, until)
        database: Any = thread.database
        with database.lock:
            callers.start("a", "bad", "c")
        assert ids(callers.end()) == {"a": 1, "bad": eventq.StoreError, "c": 2}
        assert [event.content for event in thread.peek(0)] == ["a", "c"]


def test_an_answer_that_is_lost(
    shared: eventq.Thread, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what became of any of them, but a key makes it known; the next ones are stored."""
    database: Any = shared.database
    real = database.link.run

    def lossy(*words: Any) -> Any:
        real(*words)
        monkeypatch.setattr(database.link, "run", real)
        callers.start("d")
        return real("SELECT pg_terminate_backend(pg_backend_pid())", {})

    with database.lock:
        callers.start(*"abc")
        callers.run("k", "k")
        monkeypatch.setattr(database.link, "run", lossy)
    results = ids(callers.end())
    numbers = {results.pop("d"), results.pop("k")}
    assert numbers in ({4, 5}, {1, 5})
    assert results == dict.fromkeys("abc", UnknownOutcomeError)


def test_a_close_while_others_wait(postgres: str, until: Until) -> None:
    """Each of them is refused, and nothing is stored."""
    path = fresh(postgres)
    thread = eventq.open(path)
    callers = Callers(thread, until)
    database: Any = thread.database
    with database.lock:
        callers.start(*"abc")
        thread.close()
    assert ids(callers.end()) == dict.fromkeys("abc", ClosedError)
    with eventq.open(path) as again:
        assert again.last_id() == 0


FORK = """
import os, sys, threading
import eventq
with eventq.open(sys.argv[1]) as thread:
    lock = thread.database.lock
    with lock:
        pusher = threading.Thread(target=thread.push, args=("self", "note", "x"))
        pusher.start()
        while not thread.database.events.gathering.waiting:
            pass
        child = os.fork()
        if not child:
            try:
                thread.push("self", "note", "y")
            except eventq.ClosedError:
                os._exit(7)
            os._exit(8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    pusher.join()
    print(thread.last_id())
"""


def test_a_fork_while_others_wait(postgres: str, run_python: RunPython) -> None:
    """The child is refused at once; those who wait are not its own."""
    assert run_python(FORK, fresh(postgres)) == "7\n1\n"


def test_what_subscribers_push_is_told_after_it(shared: eventq.Thread) -> None:
    """Each subscriber sees the commits in order, also those of another one."""
    seen: list[tuple[str, int]] = []

    def answer(commit: Commit) -> None:
        seen.append(("first", commit.last))
        if commit.last < 3:
            shared.push("self", "note", "again", key=f"k{commit.last}")

    shared.database.on_failure = None
    shared.database.subscribe("first", answer)
    shared.database.subscribe("second", lambda commit: seen.append(("second", commit.last)))
    assert shared.push("self", "note", "x").id == 1
    assert seen == [(name, number) for number in (1, 2, 3) for name in ("first", "second")]


def test_nobody_waits_for_the_subscribers_that_another_calls(
    shared: eventq.Thread, callers: Callers
) -> None:
    """While one is called, others push; it is called again for each of theirs."""
    seen: list[int] = []

    def slow(commit: Commit) -> None:
        seen.append(commit.last)
        if commit.last == 1:
            callers.run("a")
            callers.run("b")
            callers.end()

    shared.database.subscribe("slow", slow)
    shared.push("self", "note", "x")
    assert sorted(ids(callers.results).values()) == [2, 3]
    assert seen[0] == 1
    assert seen[-1] == 3
    assert seen == sorted(seen)
