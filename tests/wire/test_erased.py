"""What was erased in a served thread: clients of either kind get a tombstone, and are told why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.errors import ErasedError
from eventq.wire import rpc
from eventq.wire.frames import GetBlob, GetLast, Turns
from eventq.wire.requests import Handlers
from tests.erasing import secret

if TYPE_CHECKING:
    from tests.wire.conftest import Serve


def test_a_served_thread_says_that_it_was_erased(path: str, serve: Serve) -> None:
    """A client reads a tombstone with its hash, and the error says when and why."""
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        for text in ("first", secret(1), "third"):
            context.append(text)
        served = serve()
        with eventq.connect(f"eventq://{served.address}") as client:
            before = client.contexts.get("main").last().turns
            assert before[1].payload == secret(1).encode()
            thread.erasures.turn(2, reason="a password")
            after = client.contexts.get("main").last().turns
            assert [(one.tombstone, one.payload) for one in after] == [
                (False, b"first"),
                (True, None),
                (False, b"third"),
            ]
            assert after[1].hash == before[1].hash
            with pytest.raises(ErasedError, match=r"turn 2 was erased on \S+Z \(a password\)"):
                client.blobs.get(after[1].ref)


def test_a_client_of_the_protocol_gets_an_empty_payload(path: str) -> None:
    """As for a tombstone: its size and hash are those of no bytes, and the frame is whole."""
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        context.append("first")
        turn = context.append(secret(1))
        thread.erasures.turn(turn.turn_id)
        handlers = Handlers(rpc.Calls(thread.layout.run))
        for payload in (True, False):
            found = handlers.plan(GetLast(1, 9, include_payload=payload)).run(thread)
            assert isinstance(found, Turns)
            one = found.turns[1]
            assert (one.uncompressed_len, one.payload) == (0, b"" if payload else None)
            assert one.hash == blake3(b"").digest()
        with pytest.raises(ErasedError):
            handlers.plan(GetBlob(bytes.fromhex(turn.hash))).run(thread)
