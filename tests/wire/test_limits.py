"""Limits of a server: connections, bytes, time, tokens, addresses, and its end."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.errors import LogicError, NotAThreadError, UsageError
from eventq.memory.blobs import Blobs
from eventq.memory.contexts import Contexts
from eventq.serving import workers
from eventq.serving.budget import MemoryBudget
from eventq.wire import server
from eventq.wire.frames import (
    MAX_FRAME,
    Appended,
    BlobBytes,
    BlobPut,
    CreateContext,
    Failure,
    GetBlob,
    GetHead,
    GetLast,
    GetRange,
    Head,
    Hello,
    PutBlob,
    Reader,
    Turns,
    Type,
    Welcome,
    encode_reply,
)
from eventq.wire.server import (
    HELLO_BYTES,
    LEAST_READ,
    MOST_READ,
    READ_AHEAD,
    ROOM_SECONDS,
    SMALL,
    STALL_SECONDS,
    Limits,
    Server,
)
from tests.doors.support import run
from tests.wire.support import DEADLINE, Gate, Peer, Process, Served, append, connected, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq.wire.frames import Reply
    from tests.conftest import RunPython, Until
    from tests.wire.support import Message

    Serve = Callable[..., Served]

BIG = random.Random(7).randbytes(4 << 20)
BIG_HASH = blake3(BIG).digest()


def code(reply: object) -> int:
    """Return the code of a failure, 0 for anything else."""
    return reply.code if isinstance(reply, Failure) else 0


def too_long(peer: Peer) -> int:
    """Return the number of the request that is refused as too long."""
    (told,) = peer.rest()
    assert (told.type, bytes(told.payload[:4])) == (Type.ERROR, struct.pack("<I", 413))
    return told.req_id


def sender(peer: Peer, *data: bytes) -> threading.Thread:
    """Send bytes in a thread, as long as the peer is connected."""

    def send() -> None:
        with suppress(OSError):
            for some in data:
                peer.socket.sendall(some)

    made = threading.Thread(target=send)
    made.start()
    return made


def reset(peer: Peer) -> None:
    """Hang up without a word, and without what is still under way."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


def held_writer(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Block the writers of servers, and return what releases them."""
    return Gate(monkeypatch, workers.Writer, "do")


def is_read(connection: Any) -> bool:
    """Tell whether the server still takes what a peer sends."""
    return bool(connection.transport.is_reading())


def is_blocked(connection: Any) -> bool:
    """Tell whether so much of the replies is unread that no more are made."""
    return bool(connection.transport.get_write_buffer_size() > SMALL)


def ahead(connection: Any) -> int:
    """Return how many requests of a peer are not answered."""
    return len(connection.waiting) + len(connection.running)


def not_reading(served: Served, until: Until, *asked: Message) -> tuple[Peer, Any]:
    """Return a peer that requests several blobs and does not read, and its connection."""
    peer = served.peer(SO_RCVBUF=4096)
    assert isinstance(peer.ask(PutBlob(BIG_HASH, BIG)), BlobPut)
    peer.send(*asked)
    connection = served.connection()
    until(lambda: is_blocked(connection), "the peer does not read")
    return peer, connection


@contextmanager
def filled(served: Served, pieces: int) -> Iterator[None]:
    """Hold memory as so many small requests do."""
    for _ in range(pieces):
        served.server.budget.take(SMALL, force=True)
    yield
    for _ in range(pieces):
        served.server.budget.release(SMALL)


def short_of(data: bytes, bytes_kept: int) -> bytes:
    """Return the beginning of the frame of a PUT_BLOB, with the header of the whole."""
    return frame(11, blake3(data).digest() + struct.pack("<I", len(data)) + data, 1)[:bytes_kept]


# --- a frame --------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"", b"x" * 5000, frame(4, bytes(8)) * 100])
@pytest.mark.parametrize("kind", [11, 99])
def test_a_frame_beyond_the_limit_is_answered_and_ends_the_connection(
    kind: int, more: bytes, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier requests are answered, one at the limit too, then 413 with its id; nothing later."""
    monkeypatch.setattr(server, "LINGER_SECONDS", 2 * DEADLINE)
    peer, most = serve(frame=2000).peer(), b"x" * (2000 - 36)
    peer.send(CreateContext(0), PutBlob(blake3(most).digest(), most))
    peer.socket.sendall(frame(kind, b"", 77, length=2001) + more)
    assert peer.reply() == Head(1, 0, 0)
    assert isinstance(peer.reply(), BlobPut)
    assert too_long(peer) == 77


@pytest.mark.parametrize("length", [MAX_FRAME + 1, (1 << 32) - 1])
def test_the_error_arrives_though_the_peer_goes_on_sending(length: int, serve: Serve) -> None:
    """Megabytes that are still under way do not take it back."""
    served = serve()
    peer = served.peer(SO_SNDBUF=1 << 16)

    sending = sender(peer, frame(5, b"", 9, length=length), *[BIG] * 32)
    try:
        (told,) = peer.rest()
        assert (told.type, told.req_id) == (Type.ERROR, 9)
    finally:
        peer.socket.shutdown(socket.SHUT_RDWR)
        sending.join()


def test_a_peer_that_never_hangs_up_is_cut_off(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last words a connection lingers for a moment, and no longer."""
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.05)
    served = serve()
    peer = served.peer()
    peer.socket.sendall(frame(5, b"", 9, length=MAX_FRAME + 1))
    assert len(peer.rest()) == 1
    until(lambda: not served.server.connections, "it is cut off")


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 60])
def test_a_peer_that_ends_within_a_frame_is_told(cut: int, serve: Serve) -> None:
    """Half a frame before the end: earlier requests are answered, then an error."""
    peer = serve().peer()
    peer.send(CreateContext(0))
    peer.socket.sendall(short_of(b"x" * 1000, cut))
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.reply() == Head(1, 0, 0)
    assert "within a frame" in peer.last_words().text


@pytest.mark.parametrize("cut", [3, 16, 200, SMALL + 100])
def test_half_a_frame_is_not_waited_for_forever(cut: int, serve: Serve, until: Until) -> None:
    """A frame that stops arriving ends with an error; only received bytes count."""
    served = serve()
    peer = served.peer()
    whole = BIG[: 4 * SMALL]
    peer.socket.sendall(short_of(whole, cut))
    until(lambda: served.server.budget.held == cut, "it has come, and nothing else is held")
    served.pass_time(STALL_SECONDS - 1)
    assert peer.hears_nothing()
    served.pass_time(2)
    assert "the rest of a frame" in peer.last_words().text


def test_a_frame_that_trickles_has_its_end(serve: Serve, until: Until) -> None:
    """However often some of it comes: it has so long, and a second more for each 64 KiB."""
    served = serve()
    peer = served.peer()
    data = short_of(BIG, 1000)
    for number in range(9):
        peer.socket.sendall(data[number * 100 : number * 100 + 100])
        until(lambda: served.server.budget.held == number * 100 + 100, "more has come")  # noqa: B023
        served.pass_time((STALL_SECONDS + len(BIG) / server.SLOWEST) / 9 - 0.1)
    assert peer.hears_nothing()
    peer.socket.sendall(data[900:])
    until(lambda: served.server.budget.held == 1000, "more has come")
    served.pass_time(5)
    assert "the rest of a frame" in peer.last_words().text


def test_headers_hold_nothing(serve: Serve, until: Until) -> None:
    """Announced frames that do not arrive take no memory."""
    served = serve()
    for _ in range(20):
        served.peer().socket.sendall(frame(5, b"", length=MAX_FRAME))
    until(lambda: len(served.server.connections) == 20, "all are there")
    peer = served.peer()
    assert isinstance(peer.ask(PutBlob(BIG_HASH, BIG)), BlobPut)
    assert served.server.budget.held < 20 * 100


def test_large_requests_leave_room_for_small_ones(serve: Serve) -> None:
    """With slow readers at the limit, small requests and HELLO are still answered."""
    served = serve()
    limit = served.server.limits.in_flight
    served.server.budget.take(2 * limit, force=True)
    peer = served.peer()
    asked: list[Message] = [Hello(), CreateContext(0), append(1, b"x"), PutBlob(BIG_HASH, BIG)]
    assert [code(one) for one in peer.talk(asked)] == [0, 0, 0, 500]
    served.server.budget.release(2 * limit)
    assert isinstance(peer.ask(PutBlob(BIG_HASH, BIG)), BlobPut)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the long replies that the server makes, as it makes them."""
    lengths: list[int] = []

    def encode(reply: Reply, req_id: int, type: int = Type.ERROR) -> bytes:
        data = encode_reply(reply, req_id, type)
        if len(data) > SMALL:
            lengths.append(len(data))
        return data

    monkeypatch.setattr(server, "encode_reply", encode)
    return lengths


def waiting(served: Served) -> int:
    """Return how many readings wait for memory."""
    return len(served.server.budget.waiting)


def furnish(peer: Peer) -> None:
    """Store a blob of 4 MiB, and a context with a chain of four turns that are as long together."""
    peer.talk([PutBlob(BIG_HASH, BIG), CreateContext(0)])
    peer.talk([append(1, BIG[n << 20 : (n + 1) << 20]) for n in range(4)])


def flood(served: Served, until: Until, asked: Message) -> list[Peer]:
    """Return a dozen peers that request three times 4 MiB and read nothing."""
    peers = [served.peer(SO_RCVBUF=1 << 16) for _ in range(12)]
    for peer in peers:
        peer.send(*[asked] * 3)
    until(lambda: served.count(is_blocked) + waiting(served) == len(peers), "all of them stand")
    return peers


LONG: dict[str, Message] = {
    "blob": GetBlob(BIG_HASH),
    "last": GetLast(1, 4, include_payload=True),
    "range": GetRange(1, 0, 4, include_payload=True),
}


@pytest.mark.parametrize("asked", LONG.values(), ids=LONG)
def test_a_long_reply_waits_for_memory_before_it_is_read(
    asked: Message, serve: Serve, until: Until, made: list[int]
) -> None:
    """Peers that do not read cause no wasted work; each reply is built once."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    other = served.peer()
    furnish(other)
    others = served.server.budget.most - (5 << 20)
    served.server.budget.take(others)
    peers = flood(served, until, asked)
    assert waiting(served)
    assert len(made) <= 3 * 12 - 2 * waiting(served)
    for _ in range(200):  # what is on its way moves from one account to the other
        assert served.server.budget.held <= served.server.limits.in_flight
        time.sleep(0.001)
    assert other.ask(GetHead(1)) == Head(1, 4, 3)
    served.server.budget.release(others)
    with ThreadPoolExecutor(len(peers)) as pool:  # each waits for the others to read
        codes = pool.map(lambda peer: [code(peer.reply()) for _ in range(3)], peers)
        assert list(codes) == [[0] * 3] * len(peers)
    assert len(made) == 3 * len(peers)


def test_a_reply_that_finds_no_memory_in_time_is_refused(
    serve: Serve, until: Until, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for so long, and then the peer is told, without the reply having been read; later it works.

    A short reply is in no queue behind it.
    """
    served = serve(frame=5 << 20, in_flight=12 << 20)
    other, third = served.peer(), served.peer()
    furnish(other)
    short = BIG[: SMALL // 2]
    assert isinstance(third.ask(PutBlob(blake3(short).digest(), short)), BlobPut)
    read = Gate(monkeypatch, Blobs, "get", is_open=True)
    limit = served.server.budget.most
    served.server.budget.take(limit)
    other.send(GetBlob(BIG_HASH), GetHead(1))
    until(lambda: waiting(served) == 1, "it waits")
    assert third.ask(GetBlob(blake3(short).digest())) == BlobBytes(short)
    served.pass_time(ROOM_SECONDS - 1)
    assert waiting(served) == 1
    served.pass_time(2)
    assert waiting(served) == 0
    refused = other.reply()
    assert isinstance(refused, Failure)
    assert (refused.code, "has no room for" in refused.text) == (500, True)
    assert (made, len(read.calls)) == ([], 1)
    assert other.reply() == Head(1, 4, 3)
    other.send(GetBlob(BIG_HASH))
    until(lambda: waiting(served) == 1, "it waits again")
    served.server.budget.release(limit)
    assert other.reply() == BlobBytes(BIG)


def test_who_hung_up_before_it_asks_for_memory_waits_for_none(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running read is not queued for memory after its peer leaves."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    other, peer = served.peer(), served.peer()
    furnish(other)
    limit = served.server.budget.most
    served.server.budget.take(limit)
    stat = Gate(monkeypatch, Blobs, "stat")
    peer.send(GetBlob(BIG_HASH))
    until(lambda: stat.calls, "it is read")
    connections = served.call(lambda: list(served.server.connections))
    (connection,) = (one for one in connections if one.running)
    reset(peer)
    until(lambda: len(served.server.connections) == 1, "it has gone")
    stat.open()
    until(lambda: not connection.running, "it is over")
    assert waiting(served) == 0
    served.server.budget.release(limit)
    assert other.ask(GetBlob(BIG_HASH)) == BlobBytes(BIG)


def test_who_hangs_up_waits_for_no_memory(serve: Serve, until: Until, made: list[int]) -> None:
    """Waiting reads are served in order, and skipped if their peer has left."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    first, second, third = (served.peer() for _ in range(3))
    furnish(third)
    limit = served.server.budget.most
    served.server.budget.take(limit)
    for count, peer in enumerate((first, second, third), 1):
        peer.send(GetBlob(BIG_HASH))
        until(lambda: waiting(served) == count, "it waits")  # noqa: B023
    reset(second)
    until(lambda: len(served.server.connections) == 2, "it has gone")
    assert waiting(served) == 2
    served.server.budget.release(limit)
    assert [first.reply(), third.reply()] == [BlobBytes(BIG)] * 2
    assert len(made) == 2


def test_a_reply_beyond_what_there_is_at_all_is_refused_at_once(
    serve: Serve, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for memory that there will never be."""
    reserve = Gate(monkeypatch, MemoryBudget, "reserve", is_open=True)
    served = serve(frame=5 << 20, in_flight=12 << 20)
    peer = served.peer()
    furnish(peer)
    peer.talk([append(1, BIG), append(1, BIG), append(1, BIG)])
    assert code(peer.ask(GetLast(1, 3, include_payload=True))) == 500
    assert (made, reserve.calls) == ([], [])  # or it would have been refused in time, not at once
    assert isinstance(peer.ask(GetLast(1, 1, include_payload=True)), Turns)
    assert [call[1] > len(BIG) for call in reserve.calls] == [True]


def test_small_requests_do_not_stand_behind_long_ones(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all readers are busy with long replies, short requests are answered."""
    served = serve()
    other = served.peer()
    furnish(other)
    get = Gate(monkeypatch, Blobs, "get")
    peers = [served.peer() for _ in range(2 * workers.READERS)]
    for peer in peers:
        peer.send(GetBlob(BIG_HASH))
    until(lambda: len(get.calls) == workers.READERS, "all of them read")
    assert other.ask(GetHead(1)) == Head(1, 4, 3)
    assert isinstance(other.ask(append(1, b"x")), Appended)
    assert other.ask(GetHead(1)) == Head(1, 5, 4)
    get.open()
    assert [peer.reply() for peer in peers] == [BlobBytes(BIG)] * len(peers)


def test_what_reads_is_taken_a_few_at_a_time(serve: Serve, until: Until) -> None:
    """Reads of one peer run one after the other."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    peer = served.peer()
    furnish(peer)
    limit = served.server.budget.most
    served.server.budget.take(limit)
    peer.send(GetBlob(BIG_HASH), *[GetHead(1)] * 1000)
    connection = served.connection()
    until(lambda: not is_read(connection), "it is read no further")
    assert ahead(connection) == READ_AHEAD
    served.server.budget.release(limit)
    assert [type(peer.reply()) for _ in range(1001)] == [BlobBytes, *[Head] * 1000]


def test_memory_is_given_in_the_order_of_asking() -> None:
    """Who waits for much is not passed by who waits for little; who waits no longer makes way."""
    room, served = MemoryBudget(100, 1), []  # large ones may have 75
    for size in (40, 10):
        assert room.reserve(size, lambda: served.append(0))
    for number, size in enumerate((60, 20, 20), 1):
        assert not room.reserve(size, partial(served.append, number))
    assert served == []
    room.release(10)
    assert (served, room.held) == ([], 40)  # those behind would fit, and wait for the first
    room.release(40)
    assert (served, room.held) == ([1], 60)
    keys = [then for _, then in room.waiting]
    assert room.cancel(keys[0])
    assert not room.cancel(keys[0])
    assert served == [1]
    room.release(60)
    assert (served, room.held) == ([1, 3], 20)
    assert not room.reserve(60, first := partial(served.append, 4))
    assert not room.reserve(20, partial(served.append, 5))
    assert room.cancel(first)
    assert (served, room.held) == ([1, 3, 5], 40)  # at once, though nobody let go of anything
    assert room.reserve(20, lambda: None)


def test_memory_that_is_still_in_use_is_not_given_away() -> None:
    """What grows or shrinks is held throughout, so nobody who waits gets it in between."""
    room, served = MemoryBudget(100, 1), []  # large ones may have 75
    assert room.take(40)
    assert not room.reserve(50, lambda: served.append(0))
    assert room.resize(40, 45)
    assert not room.resize(45, 80)  # there all the same
    assert (served, room.held) == ([], 80)
    assert room.resize(80, 20)
    assert (served, room.held) == ([0], 70)


def test_a_frame_that_comes_slowly_is_taken(serve: Serve, until: Until) -> None:
    """Each frame has its own time: what is in order never runs out of it."""
    served = serve()
    peer = served.peer()
    for number in range(1, 4):
        data = short_of(b"%d" % number * 1000, 2000)
        peer.socket.sendall(data[:500])
        until(lambda: served.server.budget.held == 500, "half of it has come")
        served.pass_time(STALL_SECONDS - 5)
        peer.due.append((1, 11, False))
        peer.socket.sendall(data[500:])
        assert isinstance(peer.reply(), BlobPut)
    served.pass_time(STALL_SECONDS * 9)
    peer.lives()


# --- how much -------------------------------------------------------------------------------------


def test_a_frame_that_has_no_room_is_refused_and_skipped(serve: Serve, until: Until) -> None:
    """A read without memory is refused with 500; later requests work."""
    served = serve(frame=5 << 20, in_flight=10 << 20 | 1024)
    holder, peer = served.peer(), served.peer()
    holder.socket.sendall(short_of(BIG, len(BIG)))
    until(lambda: served.server.budget.held == len(BIG), "there is little room")
    held = served.server.budget.held
    put = PutBlob(BIG_HASH, BIG)
    found = peer.talk([CreateContext(0), put, append(1, b"x"), put, GetHead(1)])
    assert [code(reply) for reply in found] == [0, 500, 0, 500, 0]
    assert found[4] == Head(1, 1, 0)
    assert "has no room" in getattr(found[1], "text", "")
    until(lambda: served.server.budget.held == held, "nothing else is held")
    holder.close()
    until(lambda: len(served.server.connections) == 1, "it has gone")
    until(lambda: served.server.budget.held == 0, "its memory is free")
    assert isinstance(peer.ask(PutBlob(BIG_HASH, BIG)), BlobPut)


def test_a_frame_that_was_skipped_is_over(serve: Serve, until: Until) -> None:
    """A dropped frame is waited for only until it has arrived."""
    served = serve(frame=5 << 20, in_flight=10 << 20 | 1024)
    holder = served.peer()
    holder.socket.sendall(short_of(BIG, len(BIG)))
    until(lambda: served.server.budget.held == len(BIG), "there is little room")
    peer, slow = served.peer(), served.peer()
    assert [code(one) for one in peer.talk([PutBlob(BIG_HASH, BIG), GetHead(1)])] == [500, 404]
    slow.socket.sendall(short_of(BIG, 100_000))
    slow.due.append((1, 11, False))
    assert code(slow.reply()) == 500
    slow.socket.sendall(BIG[:50_000])
    left = len(BIG) + 36 - (100_000 - 16) - 50_000
    until(lambda: served.count(lambda one: one.reader.dropping) == left, "it goes on")
    served.pass_time(STALL_SECONDS + len(BIG) / server.SLOWEST + 5)
    assert "the rest of a frame" in holder.last_words().text
    assert "the rest of a frame" in slow.last_words().text
    peer.lives()


def test_small_requests_find_no_room_either(serve: Serve, until: Until) -> None:
    """A refused read leaves the connection open."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    peer = served.peer()
    with filled(served, 191):
        with filled(served, 1):
            assert code(peer.ask(PutBlob(BIG_HASH, b"x" * 2000))) == 500
        assert code(peer.ask(GetHead(1))) == 404


def test_what_is_behind_requests_that_wait_is_held_within_the_limit(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excess requests wait at their peers, and are served in turn."""
    served = serve(frame=64 << 10, in_flight=2 << 20)
    served.peer().ask(CreateContext(0))
    get = Gate(monkeypatch, Contexts, "get")
    room, short = served.server.budget, BIG[:10_000]
    peers = [served.peer() for _ in range(60)]
    until(lambda: len(served.server.connections) == 61, "all are there")
    all_sent = threading.Event()
    # or it would read a little of one after the other
    served.loop.call_soon_threadsafe(all_sent.wait, 60)
    read = GetLast(1, 1, include_payload=False)
    for peer in peers:
        peer.send(*[read] * READ_AHEAD, *[PutBlob(blake3(short).digest(), short)] * 10)
    all_sent.set()
    until(lambda: served.count(is_read) == 1, "all are read no further")
    assert room.limit // 2 < room.held < room.most + 60 * LEAST_READ
    assert room.fits(SMALL + 1)
    assert isinstance(served.peer().ask(CreateContext(0)), Head)
    get.open()
    assert {code(peer.reply()) for peer in peers for _ in range(READ_AHEAD + 10)} == {0, 500}


def test_little_is_read_where_half_of_the_memory_is_held(serve: Serve, until: Until) -> None:
    """A frame that is let in, or dropped, is read at full speed."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    peer = served.peer()
    connection, data = served.connection(), frame(11, BIG_HASH + struct.pack("<I", len(BIG)) + BIG)

    def room() -> int:
        return served.call(lambda: len(connection.get_buffer(-1)))

    def read(more: bytes) -> int:
        held = served.server.budget.held
        peer.socket.sendall(more)
        until(lambda: served.server.budget.held == held + len(more), "it has come")
        return room()

    assert room() == MOST_READ
    with filled(served, 96):
        assert room() == LEAST_READ
        assert read(data[:5000]) == MOST_READ
        assert read(data[5000:-5000]) == 5000
        peer.socket.sendall(data[-5000:])
        assert peer.raw().type == Type.PUT_BLOB
    with filled(served, 192):
        peer.socket.sendall(data[:5000])
        assert peer.raw().type == Type.ERROR
        until(lambda: room() == MOST_READ, "what has come is dropped")
        peer.socket.sendall(data[5000:])
    peer.lives()


def test_a_refusal_that_finds_no_room_is_the_last_for_now(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory, a peer is not read while a refusal waits."""
    gate = held_writer(monkeypatch)
    served = serve(frame=5 << 20, in_flight=12 << 20)
    room = served.server.budget
    peer = served.peer()
    peer.send(CreateContext(0))
    connection = served.connection()
    until(lambda: connection.running, "it is under way")
    with filled(served, 192):
        before = room.held
        peer.send(*[(5, b"")] * 100)
        until(lambda: not is_read(connection), "it is read no further")
        assert len(connection.waiting) == 1
        assert room.held <= before + LEAST_READ + 512
    gate.open()
    assert [code(peer.reply()) for _ in range(101)] == [0, 500, *[400] * 99]


def test_a_short_reply_that_finds_no_room_is_refused(serve: Serve, until: Until) -> None:
    """A request whose reply finds no memory is refused; later it works."""
    served = serve(frame=5 << 20, in_flight=12 << 20)
    peer, short = served.peer(), BIG[: SMALL // 2]
    assert isinstance(peer.ask(PutBlob(blake3(short).digest(), short)), BlobPut)
    until(lambda: served.server.budget.held == 0, "nothing is held")
    full, rest = divmod(served.server.budget.limit - 10_000, SMALL)
    for size in (*[SMALL] * full, rest):
        served.server.budget.take(size, force=True)
    refused = peer.ask(GetBlob(blake3(short).digest()))
    assert isinstance(refused, Failure)
    assert (refused.code, "has no room for" in refused.text) == (500, True)
    for size in (*[SMALL] * full, rest):
        served.server.budget.release(size)
    assert peer.ask(GetBlob(blake3(short).digest())) == BlobBytes(short)


def test_a_peer_that_never_reads_is_dropped(serve: Serve, until: Until) -> None:
    """A peer that does not read is cut off in time, and its memory freed."""
    served = serve()
    not_reading(served, until, *[GetBlob(BIG_HASH)] * 20)
    held = served.server.budget.held
    assert 0 < held < 3 * len(BIG)  # the other replies are not even made
    served.pass_time(STALL_SECONDS - 5)
    assert served.server.connections
    served.pass_time(10)
    until(lambda: not served.server.connections, "it was dropped")
    until(lambda: served.server.budget.held == 0, "its memory is free")


def test_a_peer_that_reads_late_gets_all(serve: Serve, until: Until) -> None:
    """Replies that had to wait come whole and in order once they are read."""
    served = serve()
    get = GetBlob(BIG_HASH)
    asked: list[Message] = [get, CreateContext(0), get, GetHead(1), (77, b""), GetHead(1)]
    peer, _ = not_reading(served, until, *asked)
    head = Head(1, 0, 0)
    assert [peer.reply() for _ in range(4)] == [BlobBytes(BIG), head, BlobBytes(BIG), head]
    assert code(peer.reply()) == 422
    assert peer.reply() == head
    until(lambda: served.server.budget.held == 0, "nothing is held")
    served.pass_time(STALL_SECONDS * 9)
    peer.lives()


def unsent(connection: Any) -> int:
    """Return how much of the replies the system has not taken yet."""
    return int(connection.transport.get_write_buffer_size())


def half_read(served: Served, until: Until, patch: pytest.MonkeyPatch) -> tuple[Peer, Any]:
    """Return a peer with unread replies below the limit, and its connection."""
    peer = served.peer(SO_RCVBUF=4096)
    connection = served.connection()
    mine = connection.transport.get_extra_info("socket")
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = BIG[:30_000]
    assert isinstance(peer.ask(PutBlob(blake3(data).digest(), data)), BlobPut)
    until(lambda: not served.count(ahead), "it is done")
    done = Gate(patch, server.Connection, "done", is_open=True)
    while not served.count(unsent):
        peer.send(GetBlob(blake3(data).digest()))
        until(lambda: len(done.calls) == len(peer.due), "it is answered")
    assert not is_blocked(connection)
    return peer, connection


def room(peer: Peer, other: socket.socket) -> bool:
    """Read on until the other end could send more; say whether it could."""
    readable, writable, _ = select.select([peer.socket], [other], [], 0)
    if readable and not writable:
        peer.reader.feed(peer.socket.recv(1 << 16))
    return bool(writable)


@pytest.mark.parametrize("count", [1, 2])
def test_replies_keep_their_order_whoever_sends_them(
    count: int, serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply sent by its own thread overtakes no queued part of another."""
    served = serve()
    peer, connection = half_read(served, until, monkeypatch)
    blobs = len(peer.due)
    writer, busy, go = held_writer(monkeypatch), threading.Event(), threading.Event()
    sent = server.Connection.send_now
    made: list[object] = []

    def noted(connection: Any, job: Any, reply: bytes) -> bytes:
        rest = sent(connection, job, reply)
        if job.type == Type.CTX_CREATE:  # a late blob may come in between
            made.append(job)
        return rest

    def block() -> None:
        busy.set()
        go.wait(60)

    monkeypatch.setattr(server.Connection, "send_now", noted)
    peer.send(CreateContext(0))
    until(lambda: writer.calls, "it is begun alone: a group is sent by the loop")
    if count == 2:  # the first began while replies were unsent, the second one when all was sent
        for _ in range(blobs):
            assert isinstance(peer.reply(), BlobBytes)
        until(lambda: not served.count(unsent), "all is sent")
        peer.send(CreateContext(0))
        until(lambda: len(connection.running) == 2, "both wait for the writer")
    loop = threading.Thread(target=served.call, args=(block,))
    loop.start()
    try:
        assert busy.wait(DEADLINE)
        mine = connection.transport.get_extra_info("socket")
        until(lambda: room(peer, mine), "there is room again")
        writer.open()
        until(lambda: len(made) == count, "the replies are made")
    finally:
        writer.open()
        go.set()
        loop.join()
    kinds = [type(peer.reply()) for _ in range(len(peer.due))]
    assert kinds == ([BlobBytes] * blobs + [Head] if count == 1 else [Head] * 2)


def test_a_peer_that_ended_and_never_reads_is_dropped_too(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is left that it does not read: a connection that ends has its time as well."""
    served = serve()
    peer, connection = half_read(served, until, monkeypatch)
    peer.socket.shutdown(socket.SHUT_WR)
    until(lambda: connection.ending, "it has ended")
    assert served.server.connections
    served.pass_time(1)
    assert served.server.connections
    served.pass_time(STALL_SECONDS + 5)
    until(lambda: not served.server.connections, "it was dropped")


@pytest.mark.parametrize("message", [(77, b""), GetHead(1)], ids=["answered at once", "read"])
def test_a_peer_that_is_far_ahead_is_read_no_further(
    message: Message, serve: Serve, until: Until
) -> None:
    """While replies are unread the server stops reading; then it continues."""
    served = serve()
    peer, connection = not_reading(served, until, CreateContext(0), GetBlob(BIG_HASH))
    count = 100_000
    data = b"".join(peer.framed(message) for _ in range(count))
    sending = sender(peer, data)
    until(lambda: not is_read(connection), "it is read no further")
    assert connection.reader.pending < 1 << 20
    assert served.server.budget.held < len(BIG) + 300_000
    assert isinstance(peer.reply(), Head)
    assert isinstance(peer.reply(), BlobBytes)
    for _ in range(count if message == (77, b"") else 3000):
        peer.reply()
    if message != (77, b""):
        peer.socket.shutdown(socket.SHUT_RDWR)
        peer.due.clear()
    sending.join(DEADLINE)
    assert not sending.is_alive()


def test_requests_that_are_refused_are_not_kept(serve: Serve, until: Until) -> None:
    """Refused requests take next to no memory, whatever their length."""
    served = serve()
    peer, connection = not_reading(served, until, GetBlob(BIG_HASH))
    before = served.server.budget.held
    peer.send(*[(4, bytes(50_000))] * 10)
    until(lambda: len(connection.waiting) == 10, "all wait")
    assert served.server.budget.held < before + 10 * 1000
    assert isinstance(peer.reply(), BlobBytes)
    assert [code(peer.reply()) for _ in range(10)] == [400] * 10


@pytest.mark.parametrize(
    "skipped", [False, True], ids=["a frame that is taken", "a frame that is skipped"]
)
def test_the_time_that_a_server_does_not_read_is_no_fault_of_the_peer(
    skipped: bool, serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of half a frame starts again when the server reads again."""
    monkeypatch.setattr(server, "AHEAD", 2 if skipped else 1)
    gate = held_writer(monkeypatch)
    served = serve(frame=1 << 20, in_flight=3 << 20)
    peer = served.peer()
    if skipped:
        served.server.budget.take(3 << 20, force=True)
    asked: list[Message] = [CreateContext(0), GetHead(1), append(1, BIG[:100_000])]
    first, second, third = map(peer.framed, asked)
    peer.socket.sendall(first + second + third[:500])
    connection = served.connection()
    until(lambda: not is_read(connection), "it is read no further")
    served.pass_time(STALL_SECONDS * 3)
    assert not connection.ending
    gate.open()
    assert [peer.reply(), peer.reply()] == [Head(1, 0, 0)] * 2
    until(lambda: is_read(connection), "it is read on")
    served.pass_time(STALL_SECONDS - 5)
    peer.socket.sendall(third[500:])
    assert code(peer.reply()) == (500 if skipped else 0)
    peer.lives()
    if skipped:
        served.server.budget.release(3 << 20)


# --- how many, and how long -----------------------------------------------------------------------


def test_connections_beyond_the_limit_are_told_so(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is told with an error and closed; when another has gone there is room again."""
    served = serve(connections=3)
    peers = [served.peer() for _ in range(3)]
    for peer in peers:
        peer.lives()
    fed = Gate(monkeypatch, Reader, "feed", is_open=True)
    more = Peer(served.address)
    more.socket.sendall(bytes(5000))
    failure = more.last_words()
    more.close()
    until(lambda: len(served.server.connections) == 3, "it has gone")
    assert (
        sum(len(data) for _, data in fed.calls) < 5000
    )  # the error, by the client; of such a peer the server keeps nothing
    assert (failure.code, "has 3 connections, its limit" in failure.text) == (500, True)
    peers[0].close()
    until(lambda: len(served.server.connections) == 2, "it has gone")
    served.peer().lives()
    for peer in peers[1:]:
        peer.lives()


def test_a_silent_connection_is_closed(serve: Serve, until: Until) -> None:
    """After so much silence, not before; each request starts the time anew, each reply too.

    Without words: a peer would take them for the reply to its next request.
    """
    served = serve(idle=50)
    peer, other = served.peer(), served.peer()
    for each in ([peer, other], [peer]):
        for one in each:
            one.lives()
        until(lambda: not served.count(ahead), "all is noted")
        served.pass_time(45)
    peer.lives()
    assert other.rest() == []
    until(lambda: not served.count(ahead), "all is noted")
    served.pass_time(51)
    assert peer.rest() == []


def test_a_connection_that_waits_for_its_reply_is_not_silent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """However long a write takes, whoever waits for it is not cut off."""
    gate = held_writer(monkeypatch)
    served = serve(idle=50)
    peer = served.peer()
    peer.send(CreateContext(0))
    until(lambda: served.count(ahead), "it waits")
    served.pass_time(500)
    gate.open()
    assert peer.reply() == Head(1, 0, 0)
    served.pass_time(49)
    peer.lives()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_idle_peers_cost_no_thread_and_busy_ones_are_served(path: str) -> None:
    """250 connections, 50 of them active, are served by the usual number of threads."""
    with Process(path) as process, ExitStack() as stack:
        first = stack.enter_context(process.peer())
        first.ask(CreateContext(0))
        assert isinstance(first.ask(append(1, b"x")), Appended)
        first.ask(GetHead(1))

        def threads() -> int:
            with open(f"/proc/{process.process.pid}/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))

        before = threads()
        idle = [stack.enter_context(process.peer()) for _ in range(200)]
        busy = [stack.enter_context(process.peer()) for _ in range(50)]
        for _ in range(3):
            for peer in busy:
                peer.send(append(1, b"y"), GetHead(1), GetLast(1, 3, include_payload=True))
            for peer in busy:
                kinds = [type(peer.reply()) for _ in range(3)]
                assert kinds == [Appended, Head, Turns]
        assert before <= threads() < 12
        for peer in idle:
            peer.lives()
        found = first.ask(GetHead(1))
        assert isinstance(found, Head)
        assert found.head_depth == 150
        assert process.end()[0] == 0


# --- tokens ---------------------------------------------------------------------------------------


def test_nothing_is_answered_before_the_token(serve: Serve) -> None:
    """Without the right token everything is 409; with it the connection works."""
    served = serve(token="sesame")
    peer = served.peer()
    for message in (GetHead(1), CreateContext(0), (77, b""), (4, b""), Hello(), (1, b""), Hello(1, "open"),
                    Hello(1, "", '{"token": "Sesame"}'), Hello(1, "sesame", '{"token": ""}'),
                    Hello(1, "sesame", '{"token": 7}'), Hello(1, "sesame", '{"token": null}'),
                    Hello(1, "sesame ", "{"), Hello(1, "", '["sesame"]'), Hello(1, "é\u2028")):  # fmt: skip
        assert code(peer.ask(message)) == 409, message
    assert peer.ask(Hello(1, "", '{"token": "sesame"}')) == Welcome(1, 1)
    assert peer.ask(CreateContext(0)) == Head(1, 0, 0)


@pytest.mark.parametrize("token", ["sesame", "é ü", "x" * 1000])
@pytest.mark.parametrize("where", ["meta", "tag"])
def test_a_token_stands_in_meta_or_in_the_tag(token: str, where: str, serve: Serve) -> None:
    """HELLO and requests may share a send; a later HELLO needs the token again."""
    peer = serve(token=token).peer()
    right = Hello(1, token) if where == "tag" else Hello(1, "me", json.dumps({"token": token}))
    assert peer.talk([right, CreateContext(0)]) == [Welcome(1, 1), Head(1, 0, 0)]
    assert code(peer.ask(Hello(1, "wrong"))) == 409
    assert peer.ask(GetHead(1)) == Head(1, 0, 0)


def test_little_is_read_before_the_token(serve: Serve) -> None:
    """Before the token, a frame longer than a HELLO ends the connection."""
    served = serve(token="sesame")
    stranger, peer = served.peer(), served.peer()
    stranger.socket.sendall(frame(11, b"", 5, length=HELLO_BYTES + 1))
    assert too_long(stranger) == 5
    peer.ask(Hello(1, "sesame"))
    assert isinstance(peer.ask(PutBlob(BIG_HASH, BIG)), BlobPut)


@pytest.mark.parametrize(
    "sent", [b"", frame(4, bytes(8)), frame(1, b"x" * 70_000)[:-1]], ids=["none", "4", "half"]
)
def test_a_token_that_does_not_come_is_not_waited_for(
    sent: bytes, serve: Serve, until: Until
) -> None:
    """Whatever else a stranger sends, the time for the token goes on."""
    served = serve(token="sesame")
    peer = served.peer()
    served.connection()
    served.pass_time(STALL_SECONDS - 3)
    peer.socket.sendall(sent)
    if len(sent) == 24:
        assert peer.raw().type == Type.ERROR
    else:
        until(lambda: served.server.budget.held == len(sent), "it came")
    assert peer.hears_nothing()
    served.pass_time(4)
    assert "a token did not come in time" in bytes(peer.rest()[-1].payload).decode(errors="replace")


def test_a_peer_that_showed_the_token_has_all_the_time(serve: Serve) -> None:
    """The time for the token is over with it."""
    served = serve(token="sesame")
    peer = served.peer()
    peer.ask(Hello(1, "sesame"))
    served.pass_time(STALL_SECONDS * 10)
    peer.lives()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.7:0"])
def test_a_token_is_required_where_other_machines_reach(listen: str, path: str) -> None:
    """A public address without a token is refused with a hint; a local one is not."""
    why = "can be reached from other machines - set EVENTQ_TOKEN or give --token, or listen"
    with pytest.raises(UsageError, match=why):
        Server(path, listen)
    assert Server(path, listen, token="t").token == "t"
    for local in ("127.0.0.1:0", "localhost:0", "[::1]:0", "127.9.9.9:0", "unix:x"):
        assert Server(path, local).token == ""


# --- where it listens -----------------------------------------------------------------------------


def test_a_unix_socket_is_its_owners_and_goes_with_the_server(serve: Serve, tmp_path: Path) -> None:
    """Mode 0600 from the first moment, whatever the umask; the file is gone after the end."""
    place = tmp_path / "s.sock"
    before = os.umask(0)
    try:
        served = serve(f"unix:{place}")
    finally:
        assert os.umask(before) == 0
    assert served.address == f"unix:{place}"
    found = os.stat(place)
    assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
    peer = served.peer()
    assert peer.ask(CreateContext(0)) == Head(1, 0, 0)
    peer.close()
    served.stop()
    assert not place.exists()


def test_the_socket_of_a_living_server_is_left_alone(
    serve: Serve, path: str, tmp_path: Path
) -> None:
    """The second server is refused with the next step, and the first goes on."""
    first = serve(f"unix:{tmp_path / 's.sock'}")
    why = r"another server listens on .* - choose another path, or stop it"
    with pytest.raises(LogicError, match=why):
        Served(path, first.address)
    first.peer().lives()


OTHERS: dict[str, Callable[[Path], object]] = {
    "file": lambda place: place.write_text("precious"),
    "folder": os.mkdir,
    "link": lambda place: place.symlink_to(place.parent / "nowhere"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_file_is_left_alone(kind: str, path: str, tmp_path: Path) -> None:
    """What is no socket is never deleted."""
    place = tmp_path / "s.sock"
    OTHERS[kind](place)
    with pytest.raises(LogicError, match="is no socket - choose another path"):
        Served(path, f"unix:{place}")
    assert os.path.lexists(place)
    assert kind != "file" or place.read_text() == "precious"


def test_a_host_that_is_none_is_an_error(path: str) -> None:
    """A name that nothing has is told as such, before anything begins."""
    with pytest.raises(LogicError, match=r"'no\.such\.host\.invalid' is no host"):
        Server(path, "no.such.host.invalid:1")


@pytest.mark.parametrize(
    "listen",
    ["", "9009", ":9009", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:٣",
     "::1:9009", "[]:1", "unix:", "unix:a\0b", "127.0.0.1: 1"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(listen: str, path: str) -> None:
    """Each malformed address is a UsageError that shows a good one."""
    why = r"give (HOST:PORT, for example 127\.0\.0\.1:9009, or )?unix:PATH"
    with pytest.raises(UsageError, match=why):
        Server(path, listen)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_ipv6_is_served_and_told_in_brackets(serve: Serve, path: str) -> None:
    """The printed address can be connected to; without IPv6 the error says so."""
    if not _has_ipv6():
        with pytest.raises(LogicError, match=r"cannot listen on|is no host"):
            Server(path, "[::1]:0").run()
        return
    served = serve("[::1]:0")
    assert served.address.startswith("[::1]:")
    served.peer().lives()


def test_each_reply_goes_out_at_once(serve: Serve) -> None:
    """TCP_NODELAY is set on the server's side: a reply does not wait for an acknowledgement."""
    served = serve()
    served.peer().lives()
    mine = served.connection().transport.get_extra_info("socket")
    assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# --- how it ends ----------------------------------------------------------------------------------


def test_a_server_that_stops_answers_what_was_begun(
    serve: Serve, path: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end pending appends are answered, idle peers closed, new ones refused."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    gate = held_writer(monkeypatch)
    served = serve()
    peers = [served.peer() for _ in range(5)]
    idle = served.peer()
    until(lambda: len(served.server.connections) == 6, "all are connected")
    for number, peer in enumerate(peers):
        peer.send(*[append(1, b"%d %d" % (number, each)) for each in range(20)], GetHead(1))

    until(lambda: served.count(ahead) == 105, "all wait")
    served.server.stop()
    assert idle.rest() == []
    with pytest.raises(OSError, match=r"refused|reset"):
        connected(served.address)
    gate.open()
    for peer in peers:
        assert [type(peer.reply()) for _ in range(21)] == [Appended] * 20 + [Head]
        assert peer.rest() == []
    for peer in (*peers, idle):
        peer.close()
    served.stop()
    with eventq.open(path) as thread:
        assert len(list(thread.contexts.get(1).replay())) == 100


@pytest.mark.parametrize("more", [b"", frame(77, b"") * 100_000], ids=["none", "many"])
def test_a_server_that_stops_takes_no_reply_back(more: bytes, serve: Serve, until: Until) -> None:
    """Earlier requests are answered in full, even if the peer has sent more."""
    served = serve()
    peer, connection = not_reading(served, until, GetBlob(BIG_HASH))
    sending = sender(peer, more)
    try:
        until(lambda: not (more and is_read(connection)), "it is read no further")
        served.server.stop()
        until(lambda: connection.ending, "it ends")
        assert peer.reply() == BlobBytes(BIG)
    finally:
        with suppress(OSError):
            peer.socket.shutdown(socket.SHUT_RDWR)
        sending.join()


def test_a_server_that_stops_waits_so_long_and_no_longer(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that does not read its replies keeps a server from ending for a while only."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.1)
    served = serve()
    not_reading(served, until, *[GetBlob(BIG_HASH)] * 5)
    served.stop()
    assert (served.server.connections, served.server.budget.held) == (set(), 0)


@pytest.mark.parametrize(("number", "wanted"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_signal_ends_a_server_under_load(
    number: int, wanted: int, unix: bool, path: str, tmp_path: Path
) -> None:
    """Acknowledged data is stored, the exit code names the signal, the socket is removed."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    place = tmp_path / "s.sock"
    acked: list[set[int]] = [set() for _ in range(4)]
    under_way = threading.Event()

    def load(process: Process, mine: set[int]) -> None:
        with suppress(OSError, AssertionError), process.peer() as peer:  # it may come too late
            while True:
                peer.send(*[append(1, b"x" * 100)] * 10)
                for _ in range(10):
                    reply = peer.reply()
                    mine.add(getattr(reply, "turn_id", 0))
                    if len(mine) > 30:
                        under_way.set()

    with Process(path, listen=f"unix:{place}" if unix else "127.0.0.1:0") as process:
        loads = [threading.Thread(target=load, args=(process, mine)) for mine in acked]
        for one in loads:
            one.start()
        assert under_way.wait(DEADLINE)
        assert process.end(number) == (wanted, "", "")
        for one in loads:
            one.join()
    assert not place.exists()
    with eventq.open(path) as thread:
        there = {turn.turn_id for turn in thread.contexts.get(1).replay(payload=False)}
        assert set.union(*acked) <= there
        assert thread.check() == []


def test_a_server_says_where_it_listens(path: str) -> None:
    """On stderr as a line, with --json on stdout too; the port is the one that was picked."""
    with Process(path, "--keys", "strict") as process:
        assert process.keys.startswith("keys of APPEND_TURN: strict (")
        assert process.end() == (0, "", "")
    with Process(path, "--json") as process:
        host, _, port = process.address.rpartition(":")
        assert process.said == f"listening on 127.0.0.1:{port}\n"
        assert process.keys.startswith("keys of APPEND_TURN: matching (")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        with process.peer() as peer:
            peer.lives()
        code_, out, err = process.end()
        assert (code_, json.loads(out), err) == (0, {"listening": process.address}, "")


def test_the_command_passes_on_what_it_was_told(path: str) -> None:
    """Limits, token and keys on the command line; the token from the environment, too."""
    with Process(path, "--keys", "ignore", "--frame", "2000", "--in-flight", "8000", "--connections", "2", "--idle", "60.5",
                 EVENTQ_TOKEN="sesame") as process, process.peer() as peer:  # fmt: skip
        assert code(peer.ask(CreateContext(0))) == 409
        keyed = append(1, b"x", 1, idempotency_key=b"k")
        found = peer.talk([Hello(1, "sesame"), CreateContext(0), append(1, b""), keyed, keyed])
        assert [getattr(one, "turn_id", 0) for one in found] == [0, 0, 1, 2, 3]
        assert process.keys == "keys of APPEND_TURN: ignore (every turn is appended)\n"
        with process.peer(), process.peer() as third:
            assert "has 2 connections" in third.last_words().text
        peer.socket.sendall(frame(11, b"", length=2001))
        assert len(peer.rest()) == 1
    other = Process(path, "--token", "other", EVENTQ_TOKEN="sesame")
    with other as process, process.peer() as peer:
        assert [code(one) for one in peer.talk([Hello(1, "sesame"), Hello(1, "other")])] == [409, 0]


# --- what is no server ----------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"connections": 0}, "0 connections serves nobody"),
    ({"connections": -1}, "-1 connections serves nobody"),
    ({"idle": 0}, "silent for 0 seconds"),
    ({"idle": -0.5}, "silent for -0.5 seconds"),
    ({"frame": 1023}, "limited to 1023 bytes"),
    ({"frame": MAX_FRAME + 1}, f"limited to {MAX_FRAME + 1} bytes"),
    (
        {"frame": 2000, "in_flight": 5023},
        "5023 bytes in flight .* frames of 2000 - allow 5024 or more",
    ),
    ({"in_flight": 1 << 20}, "are too few for frames"),
]


@pytest.mark.parametrize(("limits", "told"), WRONG, ids=str)
def test_limits_that_make_no_server_are_refused(
    limits: dict[str, Any], told: str, path: str
) -> None:
    """Each with a sentence and the next step; the extremes that make one are taken."""
    with pytest.raises(UsageError, match=told):
        Server(path, limits=Limits(**limits))
    Limits(connections=1, idle=0.001, frame=1024, in_flight=3072).check()
    Limits(frame=MAX_FRAME, in_flight=2 * MAX_FRAME + 1024).check()


def test_an_unknown_rule_for_keys_is_refused(path: str) -> None:
    """The error names those that there are."""
    with pytest.raises(UsageError, match="named 'often' - name matching, strict, ignore"):
        Server(path, keys="often")


def test_a_server_of_no_thread_is_refused(tmp_path: Path) -> None:
    """Before it listens anywhere."""
    with pytest.raises(NotAThreadError):
        Server(str(tmp_path))


@pytest.mark.parametrize(
    ("words", "wanted", "told"),
    [
        (["--connections", "x"], 2, "--connections"),
        (["--idle", "soon"], 2, "--idle must be a duration"),
        (["--frame", "1000"], 2, "1024 to"),
        (["--listen", "0.0.0.0:0"], 2, "give --token"),
        (["--listen", "unix:/"], 1, "is no socket"),
    ],
)
def test_a_command_that_makes_no_server_says_why(
    words: list[str], wanted: int, told: str, path: str
) -> None:
    """Exit code 2 for wrong words, 1 for what the system refuses, and the reason on stderr."""
    done = run("serve", "--thread", path, *words)
    assert (done.code, done.out, told in done.err) == (wanted, "", True), done.err


def test_a_command_for_no_thread_says_so(tmp_path: Path) -> None:
    """Exit code 1, and how to make one."""
    done = run("serve", "--thread", str(tmp_path))
    assert (done.code, "is not a thread" in done.err) == (1, True)


def test_many_files_may_be_open(path: str, run_python: RunPython) -> None:
    """The limit of open files is raised as needed, as far as the system allows."""
    code_ = (
        "import sys\nfrom resource import RLIMIT_NOFILE as FILES, getrlimit, setrlimit\n"
        "from eventq.wire.server import Limits, Server\n"
        "def serve(connections):\n"
        " s = Server(sys.argv[1], '127.0.0.1:0', limits=Limits(connections))\n"
        " s.run(lambda _: s.stop())\n print(s.most, getrlimit(FILES)[0])\n"
        "setrlimit(FILES, (100, getrlimit(FILES)[1]))\nfor n in (18, 200, 10): serve(n)\n"
        "setrlimit(FILES, (264, 264))\nfor n in (99, 101): serve(n)\n"
    )
    found = ["18 100", "200 464", "10 464", "99 264", "100 264"]
    assert run_python(code_, path).splitlines() == found


def test_a_server_that_stops_does_not_wait_for_a_lock(
    serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocked writer does not delay the end; its requests are not answered."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.2)
    served = serve()
    peer = served.peer()
    assert isinstance(peer.ask(CreateContext(0)), Head)
    other = apsw.Connection(os.path.join(path, "events.db"))
    other.execute("BEGIN IMMEDIATE")
    peer.send(*[append(1, BIG[: 1 << 20])] * 3)
    connection = served.connection()
    until(lambda: len(connection.running) == 3, "they wait")
    served.stop()
    other.execute("ROLLBACK")
    other.close()
    for worker in threading.enumerate():
        if worker.name.startswith("eventq-writer"):
            worker.join(60)
    with eventq.open(path) as thread:
        assert thread.contexts.get(1).head_id() <= 1  # the one that had begun, perhaps
    # what was not done is held to the end, and so is its socket
    served.server.budget = MemoryBudget(1, 1)
    connection.running.clear()
    connection.connection_lost(None)


def test_a_thread_that_is_moved_is_served_where_it_was(serve: Serve, path: str) -> None:
    """With its directory gone all is refused; a new thread there is served."""
    served = serve()
    peer = served.peer()
    asked: list[Message] = [CreateContext(0), append(1, b"x"), GetHead(1)]
    assert [code(one) for one in peer.talk(asked)] == [0, 0, 0]
    os.rename(path, path + ".moved")
    assert [code(one) for one in peer.talk(asked)] == [404, 404, 404]
    eventq.init(path)
    assert peer.talk([GetHead(1), CreateContext(0), append(1, b"y"), GetHead(1)])[1:] == [
        Head(1, 0, 0), Appended(1, 1, 0, blake3(b"y").digest()), Head(1, 1, 0),
    ]  # fmt: skip
    with eventq.open(path + ".moved") as thread:
        assert [turn.payload for turn in thread.contexts.get(1).replay()] == [b"x"]
    shutil.rmtree(path + ".moved")


def test_what_is_under_way_counts_as_ahead(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer has a limited number of pending requests."""
    gate = held_writer(monkeypatch)
    served = serve()
    peer = served.peer()
    peer.send(*[CreateContext(0)] * 1000)
    connection = served.connection()
    until(lambda: not is_read(connection), "it is read no further")
    assert ahead(connection) <= server.AHEAD
    gate.open()
    assert [code(peer.reply()) for _ in range(1000)] == [0] * 1000


def test_what_nobody_waits_for_is_not_read(
    serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading whose peer has hung up is left out; what it asked to be written is written."""
    monkeypatch.setattr(workers, "READERS", 1)
    get = Gate(monkeypatch, Contexts, "get")
    served = serve()
    peers = first, second, third = [served.peer() for _ in range(3)]
    for number, peer in enumerate(peers, 1):
        peer.send(GetLast(number, 1, include_payload=False))
        until(lambda: served.count(ahead) == number, "it waits")  # noqa: B023
    reset(second)  # or it would only have ended
    until(lambda: len(served.server.connections) == 2, "it has gone")
    get.open()
    assert [code(first.reply()), code(third.reply())] == [404, 404]
    assert [context_id for _, context_id in get.calls] == [1, 3]


def test_stopping_twice_or_too_early_or_too_late_is_harmless(serve: Serve, path: str) -> None:
    """`stop` may be called at any time."""
    Server(path).stop()
    served = serve()
    served.server.stop()
    served.stop()
    served.server.stop()
