"""What was erased in a served thread: clients get a tombstone, and are told why."""

from __future__ import annotations

import pytest
from blake3 import blake3

import eventq
from eventq.errors import ErasedError
from eventq.wire.frames import GetBlob, GetLast, Turns
from eventq.wire.requests import Handlers
from tests.erasing import secret


def test_a_client_of_the_protocol_gets_an_empty_payload(path: str) -> None:
    """As for a tombstone: its size and hash are those of no bytes, and the frame is whole."""
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        context.append("first")
        turn = context.append(secret(1))
        thread.erasures.turn(turn.turn_id, reason="a password")
        handlers = Handlers()
        for payload in (True, False):
            found = handlers.plan(GetLast(1, 9, include_payload=payload)).run(thread)
            assert isinstance(found, Turns)
            one = found.turns[1]
            assert (one.uncompressed_len, one.payload) == (0, b"" if payload else None)
            assert one.hash == blake3(b"").digest()
        with pytest.raises(ErasedError, match=r"turn 2 was erased on \S+Z \(a password\)"):
            handlers.plan(GetBlob(bytes.fromhex(turn.hash))).run(thread)
