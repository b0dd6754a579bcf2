"""Driver calls of each operation of the memory: each would be a round trip on a link."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.wire.requests import Handlers
from tests.engines import sqlite
from tests.wire.support import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.store.engine import Engine

WORDS = [f"w{number}" for number in range(5_000)]
TEXT = " ".join(random.Random(5).choices(WORDS, k=250_000)).encode()[:1_000_000]


class Calls:
    """A thread whose calls of the driver are counted, BEGIN and COMMIT too."""

    def __init__(self, thread: eventq.Thread, patch: pytest.MonkeyPatch) -> None:
        self.thread = thread
        self.made: list[str] = []
        made = self.made

        class Counting(apsw.Cursor):
            def execute(self, sql: str, *more: Any, **named: Any) -> Any:  # type: ignore[override]
                made.append(sql)
                return super().execute(sql, *more, **named)

            def executemany(self, sql: str, *more: Any, **named: Any) -> Any:  # type: ignore[override]
                made.append(sql)
                return super().executemany(sql, *more, **named)

        connection = sqlite(thread.database).connection
        connection.cursor_factory = Counting
        patch.setattr(thread.database, "cursor", connection.cursor())

    def of(self, call: Callable[[], object]) -> list[str]:
        """Return the statements that a call runs, those of its transactions too."""
        self.made.clear()
        call()
        return list(self.made)


@pytest.fixture
def calls(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Return a thread with a context and a run, whose calls are counted."""
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for number in range(5):
            main.append(f"hello {number}", key=f"k{number}")
        run = thread.runs.start("plan", "prompt", system={"coder": "text"}, label="run")
        run.step("coder", 1, "first")
        yield Calls(thread, monkeypatch)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("append", 8), ("append with key and event", 12), ("append of what is there", 9), ("put", 5), ("put again", 6),
        ("text of 1 MB", 10), ("text of 1 MB again", 10), ("step", 13), ("fork", 6), ("move", 8), ("last", 3),
        ("start", 19), ("APPEND_TURN", 8), ("APPEND_TURN with a root", 10),
    ],
)  # fmt: skip
def test_calls_of_the_driver(calls: Calls, name: str, most: int) -> None:
    """An append, a put and a step are a few calls of the driver, however long the bytes are."""
    thread = calls.thread
    main, run = thread.contexts.get("main"), thread.runs.get("run")
    root = bytes.fromhex(thread.blobs.put(b"there").hash)
    handlers = Handlers()
    if name.endswith("MB again"):
        thread.blobs.put(TEXT)
    work: dict[str, Callable[[], object]] = {
        "append": lambda: main.append("one more"),
        "append with key and event": lambda: main.append("one more", key="new", source="self"),
        "append of what is there": lambda: main.append("hello 3"),
        "put": lambda: thread.blobs.put(b"new"),
        "put again": lambda: thread.blobs.put(b"there"),
        "text of 1 MB": lambda: thread.blobs.put(TEXT),
        "text of 1 MB again": lambda: thread.blobs.put(TEXT),
        "step": lambda: run.step("coder", 2, "second"),
        "fork": main.fork,
        "move": lambda: main.move(2),
        "last": lambda: main.last(3),
        "start": lambda: thread.runs.start(
            "plan", "other", system={"coder": "text", "tester": "more"}
        ),
        "APPEND_TURN": lambda: handlers.plan(append(1, b"one more")).run(thread),
        "APPEND_TURN with a root": lambda: handlers.plan(append(1, b"one more", fs_root=root)).run(
            thread
        ),
    }
    found = calls.of(work[name])
    # What follows the commit wakes consumers.
    inside = found[: found.index("COMMIT") + 1] if "COMMIT" in found else found
    assert len(inside) <= most, inside
    assert found.count("COMMIT") <= 1
    if "APPEND" in name.upper():
        assert not any(sql.startswith("SAVEPOINT") for sql in found)  # nothing is nested


def test_the_sqlite_engine_is_a_memory(path: str) -> None:
    """The type checker finds each operation of the interface in the engine."""
    with eventq.open(path) as thread:
        memory: Engine = thread.database.memory
        assert memory.blobs.count() == 0
