"""The types of the public API, as a user's type checker sees them; mypy checks this file."""

from __future__ import annotations

import io
import pickle
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import eventq
from eventq import Blob, Turn
from eventq.memory.contexts import Contexts, OpenTurn
from eventq.memory.turns import Chain, Diff
from eventq.records.turn import Page


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
        assert_type(thread.status(), eventq.ThreadStatus)
        assert_type(thread.check(), "list[str]")
        assert_type(thread.latest(), "dict[str, eventq.Event]")
    assert isinstance(event, eventq.Event)
    assert isinstance(batch, eventq.Batch)
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert batch._asdict() == {"count": 1, "first_id": 2, "last_id": 2}
    assert repr(batch) == "Batch(count=1, first_id=2, last_id=2)"


def test_the_memory_is_typed(tmp_path: Path) -> None:
    """Contexts, turns and blobs give what is promised."""
    with eventq.open(tmp_path / "t", create=True) as thread:
        assert_type(thread.contexts, Contexts)
        context = assert_type(thread.contexts.create("main"), eventq.Context)
        turn = assert_type(context.append("hello"), Turn)
        context.append({"role": "user"})
        context.append(["text", 1])
        context.append(io.BytesIO(b"bytes"))
        with pytest.raises(eventq.InputError, match="a payload is bytes"):
            context.append(7)  # type: ignore[arg-type]
        other = assert_type(thread.contexts.fork(context), eventq.Context)
        assert_type(other.last(), Page)
        assert_type(context.diff(other), Diff)
        assert_type(context.replay(), Chain)
        assert_type(context.open_turn(), OpenTurn)
        assert_type(thread.contexts.turns.depth(turn.turn_id), int)
        blob = assert_type(thread.blobs.put(b"x"), Blob)
        assert_type(thread.blobs.stream(blob.ref), Iterator[bytes])
        assert_type(thread.path, str)
    assert type(turn) is Turn


def test_a_decorated_function_keeps_its_type(tmp_path: Path) -> None:
    """A consumer of a worker can be called, and is checked, as it was written."""
    worker = eventq.Worker(str(tmp_path))

    @worker.consumer("a", concurrency=2)
    def handle(event: eventq.Event, *, loud: bool = False) -> str:
        return event.content.upper() if loud else event.content

    @worker.consumer("b")
    async def wait(event: eventq.Event, claim: eventq.Claim) -> None: ...

    class Handler:
        """Called by a worker, as a function is."""

        def __call__(self, event: eventq.Event) -> int:
            return event.id

    handler = assert_type(worker.consumer("c")(Handler()), Handler)
    event = eventq.Event(7, "2026-03-18T10:30:00.123Z", "self", "note", None, "x")
    assert assert_type(handle(event, loud=True), str) == "X"
    assert assert_type(handler(event), int) == 7
    if TYPE_CHECKING:
        _ = assert_type(wait(event, eventq.Claim()), Coroutine[Any, Any, None])  # type: ignore[call-arg]
        handle("no event")  # type: ignore[arg-type]
