"""The types of the public face, as a user's type checker sees them; mypy reads this file as well."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import eventq
from eventq.dag.contexts import Contexts
from eventq.dag.turns import Chain
from eventq.records import Page
from eventq.wire.client import Connection
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


def test_a_connection_is_typed_as_what_it_stands_for(tmp_path: Path) -> None:
    """What is served elsewhere has the types that it has at home; at run time, what is given back has them too."""
    server = Server(eventq.init(tmp_path / "t"), f"unix:{tmp_path}/s")
    ready = threading.Event()
    runner = threading.Thread(target=server.run, args=(lambda _: ready.set(),))
    runner.start()
    assert ready.wait(60)
    try:
        with eventq.connect(f"unix:{tmp_path}/s") as connection:
            assert_type(connection, Connection)
            assert_type(connection.contexts, Contexts)
            context = assert_type(connection.contexts.create("x"), eventq.Context)
            turn = assert_type(context.append("hello"), eventq.Turn)
            page = assert_type(context.last(), Page)
            blob = assert_type(connection.blobs.put(b"x"), eventq.Blob)
            assert_type(connection.blobs.stream(blob.ref), Iterator[bytes])
            assert_type(context.replay(), Chain)
    finally:
        server.stop()
        runner.join(60)
    assert (type(turn), type(page), type(blob)) == (eventq.Turn, Page, eventq.Blob)
