"""The types of the public API, as a user's type checker sees them; mypy checks this file."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import eventq
from eventq import Blob, Turn
from eventq.memory.methods import (
    Memory,
    MemoryChain,
    MemoryContext,
    MemoryContexts,
    MemoryDiff,
    MemoryOpenTurn,
)
from eventq.records.turn import Page
from eventq.wire.client import Connection
from eventq.wire.remote import RemoteChain, RemoteContext, RemoteContexts
from eventq.wire.server import Server


def test_the_public_face_is_typed(tmp_path: Path) -> None:
    """What the calls give has the types that are promised, at run time too."""
    with eventq.open(tmp_path / "t", create=True) as thread:
        assert_type(thread, eventq.Thread)
        event = assert_type(thread.push("self", "record", "x"), eventq.Event)
        assert_type(event.id, int)
        assert_type(event.subtype, "str | None")
        batch = assert_type(thread.push_many([("self", "record", "y")]), eventq.Batch)
        assert_type(batch.first_id, "int | None")
        assert_type(thread.peek(), Iterator[eventq.Event])
        assert_type(thread.last(), "list[eventq.Event]")
        assert_type(thread.info(), eventq.ThreadInfo)
        assert_type(thread.check(), "list[str]")
        assert_type(thread.latest(), "dict[str, eventq.Event]")
    assert isinstance(event, eventq.Event)
    assert isinstance(batch, eventq.Batch)
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert batch._asdict() == {"count": 1, "first_id": 2, "last_id": 2}
    assert repr(batch) == "Batch(count=1, first_id=2, last_id=2)"


def used(memory: Memory, name: str) -> Turn:
    """Use a memory, whether it is here or elsewhere."""
    with memory:
        assert_type(memory.contexts, MemoryContexts)
        context = assert_type(memory.contexts.create(name), MemoryContext)
        turn = assert_type(context.append("hello"), Turn)
        other = assert_type(memory.contexts.fork(context), MemoryContext)
        assert_type(other.last(), Page)
        diff = assert_type(context.diff(other), MemoryDiff)
        assert_type(diff.mine, MemoryChain)
        assert_type(context.replay(), MemoryChain)
        assert_type(context.open_turn(), MemoryOpenTurn)
        assert_type(memory.contexts.turns.depth(turn.turn_id), int)
        blob = assert_type(memory.blobs.put(b"x"), Blob)
        assert_type(memory.blobs.stream(blob.ref), Iterator[bytes])
        assert memory.path
    return turn


def test_a_thread_and_a_connection_are_memories(tmp_path: Path) -> None:
    """Both satisfy the protocol, with results of the same types at run time too."""
    path = eventq.init(tmp_path / "t")
    server = Server(path, f"unix:{tmp_path}/s")
    ready = threading.Event()
    runner = threading.Thread(target=server.run, args=(lambda _: ready.set(),))
    runner.start()
    assert ready.wait(60)
    try:
        connection = eventq.connect(f"unix:{tmp_path}/s")
        assert_type(connection, Connection)
        assert_type(connection.contexts, RemoteContexts)
        context = assert_type(connection.contexts.create("x"), RemoteContext)
        assert_type(context.replay(), RemoteChain)
        turns = [used(connection, "there"), used(eventq.open(path), "here")]
    finally:
        server.stop()
        runner.join(60)
    assert [type(turn) for turn in turns] == [Turn, Turn]
