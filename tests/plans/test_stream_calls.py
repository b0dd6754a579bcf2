"""Driver calls of deltas, chunks and artifacts: each could be a round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.output.artifacts import CHUNK, COMMIT_BYTES
from eventq.output.sink import OutputSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
BLOCK = b"a line of sixteen\n" * (CHUNK // 18) + b"." * (CHUNK % 18)


class Driver:
    """A connection, or a cursor, that counts what it is asked to run."""

    def __init__(self, inner: Any, count: list[str]) -> None:
        self._inner = inner
        self._count = count

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, and note a call that runs something."""
        if name in ("execute", "executemany"):
            self._count.append(name)
        return getattr(self._inner, name)


class Calls:
    """A thread whose calls into the driver are counted, BEGIN and COMMIT among them."""

    def __init__(self, thread: eventq.Thread) -> None:
        self.thread = thread
        self._count: list[str] = []
        database: Any = thread.database
        database.open_connection = Driver(database.connection, self._count)
        database.cursor = Driver(database.cursor, self._count)

    def of(self, call: Callable[[], object]) -> int:
        """Count those of a call."""
        self._count.clear()
        call()
        return len(self._count)


@pytest.fixture
def calls(path: str, quick: None) -> Iterator[Calls]:
    """Return a thread that counts; all that is used once is there already."""
    with eventq.open(path) as thread:
        thread.artifacts.put(b"before")
        thread.outputs.put("before", "before")
        yield Calls(thread)


@pytest.fixture
def sink(calls: Calls) -> OutputSink:
    """Return a sink whose artifact has begun."""
    made = OutputSink(lambda: calls.thread.artifacts.allocate("bash"))
    for _ in range(3):
        made.push(BLOCK)
    return made


def test_a_delta(calls: Calls) -> None:
    """A delta takes five calls at any size of the turn; a large one takes one per MiB."""
    opened = calls.thread.contexts.create().open_turn()
    for there in (0, 1, 5_000, MIB):
        with calls.thread.write():
            opened.append_delta(b"x" * there)
        assert calls.of(lambda: opened.append_delta(b"twenty bytes of text")) <= 5
    assert calls.of(lambda: opened.append_delta(bytes(3 * MIB))) <= 7


def test_the_life_of_an_open_turn(calls: Calls) -> None:
    """To begin one takes four calls, to discard it one, and to read a MiB in small pieces seven."""
    context = calls.thread.contexts.create()
    assert calls.of(context.open_turn) <= 4
    opened = context.open_turn()
    with calls.thread.write():
        for _ in range(MIB // 1024):
            opened.append_delta(bytes(1024))
    assert calls.of(lambda: list(opened.read())) <= 9
    assert calls.of(opened.discard) == 1


def test_a_captured_chunk(calls: Calls, sink: OutputSink) -> None:
    """Chunks are collected up to COMMIT_BYTES, and then stored by four calls."""
    rounds = 3
    chunks = rounds * COMMIT_BYTES // CHUNK

    def push() -> None:
        for _ in range(chunks):
            sink.push(BLOCK)

    assert calls.of(push) <= 4 * rounds
    assert calls.of(sink.dump) <= 4


def test_artifacts(calls: Calls) -> None:
    """A short artifact takes ten calls, one of 10 MiB eight more; each is read by a few."""
    artifacts = calls.thread.artifacts
    large = BLOCK * (10 * MIB // CHUNK)
    assert calls.of(lambda: artifacts.allocate("bash")) <= 4
    assert calls.of(lambda: artifacts.put(b"short")) <= 10
    assert calls.of(lambda: artifacts.put(large)) <= 18
    assert calls.of(lambda: artifacts.get(1)) == 1
    assert calls.of(lambda: artifacts.open(2).read()) <= 3
    assert calls.of(lambda: artifacts.open(3).read()) <= 9
    assert calls.of(lambda: list(artifacts.open(3).lines_from(90_000))) <= 8
    assert calls.of(lambda: artifacts.remove(2)) <= 5


def test_outputs(calls: Calls) -> None:
    """An output takes nine calls, a version of one as many."""
    outputs = calls.thread.outputs
    assert calls.of(lambda: outputs.put("Scout", "text")) <= 9
    assert calls.of(lambda: outputs.publish("1-Scout", "other text")) <= 9
    assert calls.of(lambda: outputs.get("1-Scout", 2)) == 1
