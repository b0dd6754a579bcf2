"""A server killed under load: acknowledged data exists, the rest is whole or absent."""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.wire.frames import (
    Appended,
    BlobPut,
    CreateContext,
    Failure,
    GetHead,
    GetLast,
    Head,
    PutBlob,
    Turns,
)
from tests.crash.support import numbers
from tests.race.support import until
from tests.wire.support import DEADLINE, Process, append

if TYPE_CHECKING:
    from pathlib import Path

    from tests.wire.support import Message

PEERS = 8
DEPTH = 12  # requests that a peer sends ahead


class Load:
    """A peer with its own context: what it was promised, and what it has requested."""

    def __init__(self, process: Process, context_id: int, seed: int) -> None:
        self.process = process
        self.context_id = context_id
        self.chance = random.Random(seed)
        self.acked: list[tuple[int, bytes]] = []  # turn and payload, in order
        self.asked: list[bytes] = []
        self.blobs: list[bytes] = []  # of which it was said that they are stored
        self.wrong: list[object] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _message(self) -> tuple[Message, bytes]:
        size = self.chance.choice([0, 20, 3000, 60_000] * 20 + [1_200_000])
        data = self.chance.randbytes(8) + self.chance.randbytes(size)
        if self.chance.random() < 0.2:
            return PutBlob(blake3(data).digest(), data), data
        self.asked.append(data)
        return append(self.context_id, data, fs_root=blake3(data).digest()), data

    def _run(self) -> None:
        with suppress(OSError), self.process.peer() as peer:
            while True:
                batch = [self._message() for _ in range(self.chance.randrange(1, DEPTH))]
                peer.send(*[message for message, _ in batch])
                for _, data in batch:
                    try:
                        reply = peer.reply()
                    except AssertionError:  # it has hung up
                        return
                    self._note(reply, data)

    def _note(self, reply: object, data: bytes) -> None:
        if isinstance(reply, Appended):
            self.acked.append((reply.turn_id, data))
        elif isinstance(reply, BlobPut):
            self.blobs.append(data)
        else:
            self.wrong.append(reply)


def verify(path: str, loads: list[Load]) -> None:
    """Check that all promised turns exist, in order, and no others but requested ones."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        for load in loads:
            assert load.wrong == []
            turns = list(thread.contexts.get(load.context_id).replay())
            assert [(turn.turn_id, turn.payload) for turn in turns[: len(load.acked)]] == load.acked
            assert [turn.payload for turn in turns] == load.asked[: len(turns)]
            parents = [turn.parent_turn_id for turn in turns]
            assert parents == [0, *(turn.turn_id for turn in turns)][: len(turns)]
            for turn in turns:
                assert thread.contexts.root(turn.turn_id) == bytes.fromhex(turn.hash)
            pinned = {digest for name, digest in thread.blobs.pins() if name == "wire"}
            for data in load.blobs:
                assert thread.blobs.get(blake3(data).hexdigest()) == data
                assert blake3(data).hexdigest() in pinned


MANY = [pytest.param(25, seed, "full", marks=pytest.mark.soak) for seed in range(2, 8)]


@pytest.mark.parametrize(("rounds", "seed", "syncs"), [(4, 1, "normal"), *MANY])
def test_what_a_killed_server_has_acknowledged_is_there(
    rounds: int, seed: int, syncs: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight pipelining peers and random kills on one thread; then a server continues."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", syncs)  # no power is cut here
    for round_, count in enumerate(numbers(seed, rounds, 1, 500)):
        with Process(path) as process:
            with process.peer() as peer:
                heads = peer.talk([CreateContext(0)] * PEERS)
            contexts = [head.context_id for head in heads if isinstance(head, Head)]
            assert len(contexts) == PEERS
            first = seed * 1000 + round_ * 100
            loads = [Load(process, context, first + context) for context in contexts]

            def acked(loads: list[Load] = loads) -> int:
                return sum(len(load.acked) for load in loads)

            try:
                until(lambda: all(load.acked for load in loads), "each has a turn")  # noqa: B023
                until(lambda: acked() >= count, "so many turns are stored")  # noqa: B023
            finally:
                process.process.kill()
                for load in loads:
                    load.thread.join(DEADLINE)
            assert not any(load.thread.is_alive() for load in loads)
        verify(path, loads)
    with Process(path) as process, process.peer() as peer:
        before = peer.ask(GetHead(1))
        assert isinstance(before, Head)
        found = peer.ask(GetLast(1, 1, include_payload=True))
        assert isinstance(found, Turns)
        assert [turn.turn_id for turn in found.turns] == [before.head_turn_id]
        after = peer.ask(append(1, b"again"))
        assert isinstance(after, Appended)
        assert after.depth == before.head_depth + 1
        assert process.end()[0] == 0
    with eventq.open(path) as thread:
        assert thread.check() == []
        newest = max(int(one.head_turn_id) for one in thread.contexts)
        assert thread.contexts.head(1) == after.turn_id == newest


def test_a_killed_server_leaves_its_socket_to_the_next(path: str, tmp_path: Path) -> None:
    """A dead server's socket is replaced, and a repeated key returns its turn."""
    place = tmp_path / "s.sock"
    message = append(1, b"x", 1, idempotency_key=b"k")
    with Process(path, listen=f"unix:{place}") as process, process.peer() as peer:
        first = peer.talk([CreateContext(0), append(1, b"root"), message])[2]
        process.process.kill()
        assert peer.rest() == []
    assert os.path.exists(place)
    with Process(path, listen=f"unix:{place}") as process, process.peer() as peer:
        assert not isinstance(first, Failure)
        assert peer.ask(message) == first
        assert process.end()[0] == 0
    assert not os.path.exists(place)
