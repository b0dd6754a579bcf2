"""The types of the public face, as a user's type checker sees them; mypy reads this file as well."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import eventq


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
