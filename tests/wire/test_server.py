"""The reply of the server to each message, over a real socket, in order."""

from __future__ import annotations

import random
import struct
import threading
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import zstandard
from blake3 import blake3
from hypothesis import example, given
from hypothesis import strategies as st

import eventq
from eventq.errors import BusyError, DamagedError, DiskError, TooLargeError
from eventq.memory.blobs import Blobs
from eventq.memory.contexts import Contexts
from eventq.memory.turns import Turns as TurnStore
from eventq.records.checks import check_name
from eventq.records.turn import NewTurn
from eventq.serving import workers
from eventq.store.sqlite.database import Database
from eventq.wire import requests
from eventq.wire.frames import (
    MAX_FRAME,
    MAX_KEY,
    Appended,
    AppendTurn,
    AttachFs,
    BlobBytes,
    BlobPut,
    CreateContext,
    Failure,
    ForkContext,
    FsAttached,
    GetBefore,
    GetBlob,
    GetHead,
    GetLast,
    GetRange,
    Head,
    Hello,
    PutBlob,
    Turns,
    Type,
    Welcome,
    WireTurn,
    turn_size,
)
from eventq.wire.requests import Handlers, key_text
from tests.servers import ENGINES
from tests.wire.support import Gate, Peer, Served, append, frame, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.wire.frames import Reply
    from tests.conftest import Until
    from tests.contract.support import Tables
    from tests.wire.support import Message

    Serve = Callable[..., Served]

pytestmark = pytest.mark.engines("sqlite", soaked=["postgres"])

FAR = (99, 1 << 63, (1 << 64) - 1)  # ids that nothing has
FARTHEST = FAR[-1]
A, B = b"\xaa" * 32, b"\xbb" * 32
ONE, TWO, SIDE = b"one", b"two " * 100, b"aside"


@pytest.fixture
def peer(serve: Serve) -> Peer:
    """Return a client of a server of the fresh thread."""
    return serve().peer()


@pytest.fixture
def told(peer: Peer) -> Peer:
    """Return a client: turns 1 and 2 in context 1, and turn 3, after 1, in context 2."""
    head = Head(1, 0, 0)
    assert peer.talk([CreateContext(0), append(1, ONE), append(1, TWO), ForkContext(1), append(2, SIDE)]) == [
        head, Appended(1, 1, 0, hashed(ONE)), Appended(1, 2, 1, hashed(TWO)), Head(2, 1, 0),
        Appended(2, 3, 1, hashed(SIDE)),
    ]  # fmt: skip
    return peer


def hashed(data: bytes) -> bytes:
    """Return the hash of bytes."""
    return blake3(data).digest()


def turn(
    number: int, parent: int, depth: int, payload: bytes, *, included: bool = True
) -> WireTurn:
    """Return a turn as it is read."""
    return WireTurn(
        number, parent, depth, "t", 1, 0, 0, len(payload), hashed(payload), payload if included else None
    )  # fmt: skip


def last(peer: Peer, context_id: int = 1, limit: int = 100) -> list[Any]:
    """Return the payloads of a context."""
    reply = peer.ask(GetLast(context_id, limit, include_payload=True))
    assert isinstance(reply, Turns), reply
    return [bytes(one.payload or b"") for one in reply.turns]


def zstd(data: bytes, level: int = 3) -> bytes:
    """Return bytes as one zstd frame."""
    return zstandard.ZstdCompressor(level=level).compress(data)


def compressed(data: bytes, packed: bytes | None = None) -> AppendTurn:
    """Return an append to context 1 of bytes that come as a zstd frame."""
    about: dict[str, Any] = {"hash": hashed(data), "uncompressed_len": len(data), "compression": 1}
    return append(1, zstd(data) if packed is None else packed, **about)


def counts(tables: Tables) -> dict[str, int]:
    """Return how many rows each table has."""
    return {name: len(rows) for name, rows in tables.items()}


# --- what is answered -----------------------------------------------------------------------------


def test_a_hello_opens_a_numbered_session(serve: Serve) -> None:
    """Each HELLO returns another session id, and the version; its payload may be empty."""
    served = serve()
    first, second = served.peer(), served.peer()
    assert first.ask(Hello()) == Welcome(1, 1)
    assert second.ask((1, b"")) == Welcome(2, 1)
    assert isinstance(first.ask(CreateContext(0)), Head)
    assert first.ask(Hello(7, "tag", "no json")) == Welcome(3, 1)


@pytest.mark.parametrize(
    "meta", ["", "{", "[]", "null", '"x"', "7", '{"keys": 1}', "[" * 60_000, '{"token": 1}']
)
def test_what_a_hello_says_of_its_sender_is_free(meta: str, peer: Peer) -> None:
    """Whatever stands in meta_json, JSON or not, the peer is welcome."""
    assert peer.ask(Hello(1, "t", meta)) == Welcome(1, 1)
    peer.lives()


def test_contexts_are_numbered_and_begin_where_they_are_told(told: Peer) -> None:
    """CTX_CREATE and CTX_FORK return id, head and depth."""
    asked: dict[Message, Head] = {
        CreateContext(0): Head(3, 0, 0),
        ForkContext(0): Head(4, 0, 0),
        CreateContext(2): Head(5, 2, 1),
        ForkContext(3): Head(6, 3, 1),
        GetHead(3): Head(3, 0, 0),
        GetHead(5): Head(5, 2, 1),
    }
    assert told.talk(asked) == list(asked.values())


def test_turns_count_from_one_and_roots_have_depth_nought(told: Peer) -> None:
    """Ids are 1, 2, 3 … over all contexts; the head moves with each append."""
    assert told.talk([GetHead(1), GetHead(2)]) == [Head(1, 2, 1), Head(2, 3, 1)]
    replies = [Head(3, 0, 0), Appended(3, 4, 0, hashed(b""))]
    assert told.talk([CreateContext(0), append(3, b"")]) == replies


@pytest.mark.engines(*ENGINES)
def test_an_explicit_parent_moves_the_head(told: Peer) -> None:
    """A turn follows the given parent, and becomes the head."""
    assert told.ask(append(1, b"after one", 1)) == Appended(1, 4, 1, hashed(b"after one"))
    assert told.ask(GetHead(1)) == Head(1, 4, 1)
    assert last(told) == [ONE, b"after one"]
    assert told.ask(append(1, b"after aside", 3)) == Appended(1, 5, 2, hashed(b"after aside"))
    assert last(told) == [ONE, SIDE, b"after aside"]
    assert last(told, 2) == [ONE, SIDE]


@pytest.mark.engines(*ENGINES)
def test_what_is_said_of_a_turn_is_kept(peer: Peer) -> None:
    """Type, version, encoding, length and hash are returned as sent, even at extremes."""
    most = (1 << 32) - 1
    peer.ask(CreateContext(0))
    peer.ask(append(1, b"x", type_id="é/Ü", type_version=most, encoding=most))
    peer.ask(append(1, b"\0" * 5000, type_id="", type_version=0))
    for payloads in (False, True):
        x, zeros = (b"x", b"\0" * 5000) if payloads else (None, None)
        assert peer.ask(GetLast(1, 9, include_payload=payloads)) == Turns((
            WireTurn(1, 0, 0, "é/Ü", most, most, 0, 1, hashed(b"x"), x),
            WireTurn(2, 1, 1, "", 0, 0, 0, 5000, hashed(b"\0" * 5000), zeros),
        ))  # fmt: skip


def test_the_last_turns_come_oldest_first(told: Peer) -> None:
    """GET_LAST returns as many turns as requested and available."""
    both = (turn(1, 0, 0, ONE), turn(2, 1, 1, TWO))
    told.ask(CreateContext(0))
    asked = [(1, 2), (1, 1), (1, (1 << 32) - 1), (1, 0), (3, 5), (3, 0)]
    wanted = [Turns(both), Turns(both[1:]), Turns(both), Turns(()), Turns(()), Turns(())]
    assert told.talk([GetLast(*one, include_payload=True) for one in asked]) == wanted


def test_turns_before_one_come_oldest_first(told: Peer) -> None:
    """GET_BEFORE gives those above a turn of the chain, nearest last; none above a root."""
    told.ask(append(1, b"three"))
    one, two = turn(1, 0, 0, ONE, included=False), turn(2, 1, 1, TWO, included=False)
    before = {
        (4, 1): (two,), (4, 2): (one, two), (4, 9): (one, two), (2, 1): (one,), (1, 5): (), (4, 0): (),
    }  # fmt: skip
    found = told.talk([GetBefore(1, *each, include_payload=False) for each in before])
    assert found == [Turns(each) for each in before.values()]
    assert told.ask(GetBefore(1, 2, 1, include_payload=True)) == Turns((turn(1, 0, 0, ONE),))


@pytest.mark.engines(*ENGINES)
def test_turns_from_a_depth_come_with_the_heads_depth(told: Peer) -> None:
    """GET_RANGE_BY_DEPTH gives the window that there is, and always how deep the head is."""
    one, two = turn(1, 0, 0, ONE), turn(2, 1, 1, TWO)
    told.ask(CreateContext(0))
    most = (1 << 32) - 1
    windows: dict[tuple[int, int, int], tuple[WireTurn, ...]] = {
        (1, 0, 1): (one,), (1, 1, 1): (two,), (1, 0, most): (one, two), (1, 1, most): (two,), (1, 2, 1): (),
        (1, most, most): (), (1, 0, 0): (), (1, 5, 0): (), (3, 0, 9): (),
    }  # fmt: skip
    found = told.talk([GetRange(*each, include_payload=True) for each in windows])
    assert found == [Turns(window, int(each[0] == 1)) for each, window in windows.items()]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pages_make_the_whole_chain(size: int, peer: Peer) -> None:
    """GET_BEFORE and GET_RANGE_BY_DEPTH page without a gap or a repeat."""
    peer.ask(CreateContext(0))
    peer.talk([append(1, b"%d" % number) for number in range(11)])
    peer.ask(ForkContext(7))
    peer.talk([append(2, b"fork %d" % number) for number in range(9)])
    whole = peer.ask(GetLast(2, 100, include_payload=True))
    assert isinstance(whole, Turns)
    data = [*(b"%d" % n for n in range(7)), *(b"fork %d" % n for n in range(9))]
    assert [one.payload for one in whole.turns] == data
    back = peer.ask(GetLast(2, size, include_payload=True))
    found: tuple[WireTurn, ...] = ()
    while isinstance(back, Turns) and back.turns:
        found = back.turns + found
        back = peer.ask(GetBefore(2, found[0].turn_id, size, include_payload=True))
    assert found == whole.turns
    found, page = (), whole
    while page.turns:
        asked = GetRange(2, len(found), size, include_payload=True)
        page = peer.ask(asked)  # type: ignore[assignment]
        assert page.head_depth == 15
        found += page.turns
    assert found == whole.turns


@pytest.mark.engines(*ENGINES)
def test_blobs_are_put_once_and_read_as_they_are(told: Peer) -> None:
    """PUT_BLOB reports whether the bytes are new; GET_BLOB returns any blob."""
    long = b"x" * 100_000
    for data, new in ((b"", True), (b"", False), (long, True), (long, False), (TWO, False)):
        assert told.ask(PutBlob(hashed(data), data)) == BlobPut(hashed(data), new)
        assert told.ask(GetBlob(hashed(data))) == BlobBytes(data)
    assert told.ask(GetBlob(hashed(ONE))) == BlobBytes(ONE)


def test_blobs_that_were_put_stay(peer: Peer, path: str) -> None:
    """A collection keeps wire blobs: the pin `wire` exists once."""
    digest = hashed(b"kept")
    peer.talk([PutBlob(digest, b"kept"), PutBlob(digest, b"kept")])
    with eventq.open(path) as thread:
        assert thread.blobs.pins() == [("wire", digest.hex())]
        thread.blobs.put(b"not kept")
        thread.gc(apply=True, grace=0)
        assert thread.blobs.has(digest)
        assert not thread.blobs.has(hashed(b"not kept"))
    assert peer.ask(GetBlob(digest)) == BlobBytes(b"kept")


@pytest.mark.engines(*ENGINES)
def test_patched_and_hidden_turns_are_read_as_they_are_now(told: Peer, path: str) -> None:
    """A patch has its own length and hash; a hidden payload is empty."""
    with eventq.open(path) as thread:
        thread.contexts.patch(1, b"mended")
        thread.contexts.tombstone(2)
    wanted = Turns((turn(1, 0, 0, b"mended"), turn(2, 1, 1, b"")))
    bare = Turns((turn(1, 0, 0, b"mended", included=False), turn(2, 1, 1, b"", included=False)))
    assert told.ask(GetLast(1, 9, include_payload=True)) == wanted
    assert told.ask(GetLast(1, 9, include_payload=False)) == bare
    assert told.ask(GetRange(1, 0, 9, include_payload=True)) == Turns(wanted.turns, 1)


# --- what is refused ------------------------------------------------------------------------------


def _bare(
    payload: bytes, *, compression: int, length: int = 3, digest: bytes = b""
) -> tuple[int, bytes]:
    """Return an APPEND_TURN to context 1 that need not be right."""
    fixed = struct.pack("<QQI1sIIII", 1, 0, 1, b"t", 1, 0, compression, length)
    length_of = len(payload).to_bytes(4, "little")
    return 5, fixed + (digest or hashed(ONE)) + length_of + payload + bytes(4)


REFUSED: list[tuple[str, Message, int]] = [
    *((f"create at {far}", CreateContext(far), 404) for far in FAR),
    ("fork at what is nowhere", ForkContext(FARTHEST), 404),
    *((f"head of {far}", GetHead(far), 404) for far in (0, *FAR)),
    *((f"append to {far}", append(far, b"new"), 404) for far in (0, *FAR)),
    ("append after what is nowhere", append(1, b"new", FARTHEST), 404),
    ("append after what is nowhere with a root", append(1, b"new", FARTHEST, fs_root=hashed(ONE)), 404),
    ("last of what is nowhere", GetLast(FARTHEST, 1, include_payload=True), 404),
    ("before, of what is nowhere", GetBefore(FARTHEST, 1, 1, include_payload=True), 404),
    *((f"before {far}", GetBefore(1, far, 1, include_payload=True), 404) for far in (0, FARTHEST)),
    ("range of what is nowhere", GetRange(FARTHEST, 0, 1, include_payload=True), 404),
    *((f"attach to {far}", AttachFs(far, hashed(ONE)), 404) for far in (0, *FAR)),
    ("attach what is no blob", AttachFs(1, A), 404),
    ("append with a root that is no blob", append(1, b"new", fs_root=A), 404),
    ("append much with a root that is no blob", append(1, b"new" * 400_000, fs_root=A), 404),
    ("before a turn of another chain", GetBefore(1, 3, 1, include_payload=True), 409),
    ("before a turn, of an empty context", GetBefore(3, 1, 1, include_payload=True), 409),
    ("an unknown blob", GetBlob(A), 404),
    ("a blob of another hash", PutBlob(A, b"new"), 422),
    ("a large blob of another hash", PutBlob(A, random.Random(1).randbytes(2 << 20)), 422),
    ("a payload of another hash", append(1, b"new", hash=A), 422),
    ("a payload that is longer", append(1, b"new", uncompressed_len=2), 422),
    ("a payload that is shorter", append(1, b"new", uncompressed_len=4), 422),
    ("a payload said to take 4 GiB", append(1, b"new", uncompressed_len=(1 << 32) - 1), 422),
    ("a control character in the type", append(1, b"new", type_id="a\nb"), 422),
    ("too long a type", append(1, b"new", type_id="x" * 65_537), 422),
    ("no zstd", append(1, ONE, compression=1), 422),
    ("half a zstd frame", _bare(zstd(ONE)[:-1], compression=1), 422),
    ("zstd of other bytes", _bare(zstd(b"two"), compression=1), 422),
    ("zstd of more", _bare(zstd(ONE), compression=1, length=2), 422),
    ("zstd of more, the beginning of which is right", _bare(zstd(ONE + b"!"), compression=1), 422),
    ("zstd of less", _bare(zstd(ONE), compression=1, length=4), 422),
    ("zstd of less, said to be much", _bare(zstd(ONE), compression=1, length=MAX_FRAME), 422),
    ("a bomb", _bare(zstd(bytes(32 << 20)), compression=1, length=3), 422),
    ("a bomb that admits it", _bare(zstd(ONE), compression=1, length=(1 << 32) - 1), 413),
    ("a little too much", _bare(zstd(ONE), compression=1, length=MAX_FRAME + 1), 413),
    ("compression 2", _bare(ONE, compression=2), 422),
    *((f"{len(data)} bytes of a head", (4, data), 400) for data in (b"", bytes(7), bytes(9))),
    ("an append that is cut", (5, _bare(ONE, compression=0)[1][:-1]), 400),
    ("a type that is not UTF-8", (5, struct.pack("<QQI1s", 1, 0, 1, b"\xff") + bytes(56)), 400),
    ("too long a key", (5, _bare(ONE, compression=0)[1][:-4] + struct.pack("<I", MAX_KEY + 1) + bytes(MAX_KEY + 1)), 413),
    *((f"type {kind}", (kind, b""), 422) for kind in (0, 12, 63, 65, 254, 255, 65_535)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "code"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    message: Message, code: int, told: Peer, stored: Callable[[], Tables]
) -> None:
    """The documented code, then the connection goes on; every table has as many rows as before."""
    told.ask(CreateContext(0))
    before = counts(stored())
    assert told.refused(message) == code
    assert told.ask(GetHead(1)) == Head(1, 2, 1)
    assert counts(stored()) == before


@pytest.mark.parametrize("flags", [1, 2, 3, 0x8000])
def test_flags_mean_nothing_but_a_root(flags: int, told: Peer) -> None:
    """A flag that the table does not know is ignored; that of a root counts on an append alone."""
    assert told.ask(GetHead(1), flags) == Head(1, 2, 1)
    if flags & 1:  # a root follows, and none does
        assert told.refused(append(1, ONE), flags) == 400
    else:
        assert told.ask(append(1, ONE), flags) == Appended(1, 4, 2, hashed(ONE))


@pytest.mark.engines(*ENGINES)
def test_a_run_is_not_appended_to(told: Peer, path: str) -> None:
    """The context of a run has steps: an append is 409; a fork of it is free."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "prompt")
        head = run.info().head_turn_id
    assert told.refused(append(run.id, b"x")) == 409
    found = told.ask(ForkContext(head))
    assert isinstance(found, Head)
    assert isinstance(told.ask(append(found.context_id, b"x")), Appended)


@pytest.mark.engines(*ENGINES)
def test_a_large_append_that_is_refused_leaves_nothing_for_long(
    told: Peer, stored: Callable[[], Tables]
) -> None:
    """A large payload to an unknown context or turn stores nothing."""
    data = random.Random(2).randbytes(3 << 20)
    before = counts(stored())
    for message in (append(99, data), append(1 << 63, data), append(1, data, 99)):
        assert told.refused(message) == 404
    after = counts(stored())
    assert (after["turns"], after["blobs"]) == (before["turns"], before["blobs"])
    assert told.ask(GetHead(1)) == Head(1, 2, 1)


@pytest.mark.engines(*ENGINES)
def test_a_fault_of_ours_is_500_and_told_in_the_journal(
    told: Peer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody thought of is answered too, and the connection goes on."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("thought of by nobody")

    monkeypatch.setattr(Blobs, "stat", broken)
    monkeypatch.setattr(Contexts, "create", broken)
    assert told.refused(GetBlob(A)) == 500
    assert told.refused(CreateContext(0)) == 500
    with eventq.open(path) as thread, open(thread.layout.journal, encoding="utf-8") as file:
        assert file.read().count("thought of by nobody") == 2


def test_a_reply_that_is_too_long_is_refused_before_it_is_read(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payloads beyond a frame are 413, and not loaded; fewer turns work."""
    monkeypatch.setattr(requests, "MAX_FRAME", frame_size := 10_000)
    peer.ask(CreateContext(0))
    peer.talk([append(1, b"%04d" % number * 100) for number in range(30)])
    fits = (frame_size - 8) // turn_size("t", 400)
    loaded = Gate(monkeypatch, TurnStore, "payloads", is_open=True).calls
    head = 30
    for message in (GetLast(1, fits + 1, include_payload=True), GetBefore(1, head, fits + 1, include_payload=True),
                    GetRange(1, 0, fits + 1, include_payload=True)):  # fmt: skip
        assert peer.refused(message) == 413
    assert loaded == []
    found = peer.ask(GetLast(1, fits, include_payload=True))
    assert isinstance(found, Turns)
    assert len(found.turns) == fits == len(loaded[0][1])
    assert isinstance(peer.ask(GetLast(1, 30, include_payload=False)), Turns)


def test_turns_are_the_same_in_however_many_steps(
    peer: Peer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows at and around step boundaries are complete, in order, and patched."""
    monkeypatch.setattr(requests, "STEP", 7)
    peer.ask(CreateContext(0))
    data = [b"%d" % number for number in range(30)]
    peer.talk([append(1, one) for one in data])
    with eventq.open(path) as thread:
        thread.contexts.patch(3, b"mended")
    data[2] = b"mended"
    turns = tuple(turn(number + 1, number, number, one) for number, one in enumerate(data))
    for count in (1, 6, 7, 8, 13, 14, 15, 28, 29):
        assert peer.ask(GetLast(1, count, include_payload=True)) == Turns(turns[-count:])
        before, ranged = Turns(turns[-count - 1 : -1]), Turns(turns[1 : count + 1], 29)
        assert peer.ask(GetBefore(1, 30, count, include_payload=True)) == before
        assert peer.ask(GetRange(1, 1, count, include_payload=True)) == ranged
    assert peer.ask(GetLast(1, 99, include_payload=True)) == Turns(turns)


def test_turns_that_do_not_fit_take_no_memory(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 24 MB of type ids beyond a frame of 1 MiB no more than a frame and a step is ever read."""
    monkeypatch.setattr(requests, "MAX_FRAME", 1 << 20)
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        with thread.write():
            for number in range(3000):
                context.append(NewTurn(b"", type_id=f"{number:08000}"))
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError, match="the reply is too large"):
                Handlers().plan(GetLast(1, 3000, include_payload=False)).run(thread)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 5 << 20


@pytest.mark.parametrize("missing", [4, 5, 6])
def test_a_turn_that_is_not_there_is_damage(
    missing: int, path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a step and between two: never a shorter reply."""
    monkeypatch.setattr(requests, "STEP", 5)
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        for _ in range(10):
            context.append(b"x")
    raw.execute(f"PRAGMA foreign_keys = OFF; DELETE FROM turns WHERE turn_id = {missing}")
    with (
        eventq.open(path) as thread,
        pytest.raises(DamagedError, match=f"turn {missing} .*(is missing|is not there)"),
    ):
        Handlers().plan(GetLast(1, 10, include_payload=False)).run(thread)


def test_turns_and_blobs_beyond_a_frame_are_refused_as_they_are(peer: Peer) -> None:
    """Two turns of 40 MiB do not fit into one reply, each alone does."""
    peer.ask(CreateContext(0))
    for number in range(2):
        assert isinstance(peer.ask(compressed(b"%d" % number * (40 << 20))), Appended)
    assert peer.refused(GetLast(1, 2, include_payload=True)) == 413
    (whole,) = last(peer, limit=1)
    assert whole == b"1" * (40 << 20)
    found = peer.ask(GetLast(1, 2, include_payload=False))
    assert isinstance(found, Turns)
    assert [one.uncompressed_len for one in found.turns] == [40 << 20] * 2


def test_a_blob_beyond_a_frame_is_refused(peer: Peer, path: str) -> None:
    """A blob that others have stored may be too long for a reply: 413; one that just fits comes."""
    with eventq.open(path) as thread:
        long, fits = bytes(MAX_FRAME - 3), bytes(MAX_FRAME - 4)
        thread.blobs.put(long)
        thread.blobs.put(fits)
    assert peer.refused(GetBlob(hashed(long))) == 413
    assert peer.ask(GetBlob(hashed(fits))) == BlobBytes(fits)


def test_too_many_turns_are_refused(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 65,536 turns a reply is refused, whatever it holds; up to there it comes."""
    assert requests.MOST_TURNS == 1 << 16
    monkeypatch.setattr(requests, "MOST_TURNS", 20)
    peer.ask(CreateContext(0))
    peer.talk([append(1, b"x") for _ in range(22)])
    for limit, code in ((19, 0), (20, 0), (21, 413), ((1 << 32) - 1, 413)):
        for message in (GetLast(1, limit, include_payload=False), GetBefore(1, 22, limit, include_payload=False),
                        GetRange(1, 0, limit, include_payload=False)):  # fmt: skip
            found = peer.ask(message)
            assert (found.code if isinstance(found, Failure) else 0) == code


# --- what comes compressed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"x", b"text " * 1000, random.Random(3).randbytes(3 << 20), bytes(8 << 20)]
)
def test_a_payload_may_come_as_zstd(data: bytes, peer: Peer) -> None:
    """An incompressible payload is stored and returned uncompressed."""
    peer.ask(CreateContext(0))
    sizeless = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(data)
    for number, packed in enumerate((zstd(data), sizeless, zstd(data, 19))):
        reply = peer.ask(compressed(data, packed))
        assert reply == Appended(1, number + 1, number, hashed(data))
    found = peer.ask(GetLast(1, 1, include_payload=True))
    assert found == Turns((turn(3, 2, 2, data),))
    assert peer.ask(GetBlob(hashed(data))) == BlobBytes(data)


# --- idempotency keys -----------------------------------------------------------------------------

KEYS = [
    b"k", b"\0", b"\xff\xfe", b"a\nb", "é".encode(), b"hex:6b", b"blake3:", b"x" * MAX_KEY, b"\xff" * MAX_KEY,
]  # fmt: skip


def ids(replies: list[Reply]) -> list[int]:
    """Return the turns of replies to appends."""
    assert all(isinstance(one, Appended) for one in replies), replies
    return [getattr(one, "turn_id", 0) for one in replies]


def test_one_key_for_several_events_loses_none(told: Peer) -> None:
    """A stock client may send one key with every append: all are appended, and none is refused."""
    keyed: list[Message] = [
        append(1, b"x", idempotency_key=b"k"),
        append(1, b"x", idempotency_key=b"k"),
        append(1, b"y", idempotency_key=b"k"),
        append(1, b"x", idempotency_key=b"k", type_id="u"),
    ]
    assert ids(told.talk(keyed)) == [4, 5, 6, 7]
    assert last(told) == [ONE, TWO, b"x", b"x", b"y", b"x"]


OTHERS: list[AppendTurn] = [
    append(1, b"other", 2, idempotency_key=b"k"),
    append(1, b"keyed", 2, idempotency_key=b"k", type_id="u"),
    append(1, b"keyed", 2, idempotency_key=b"k", type_version=2),
    append(1, b"keyed", 2, idempotency_key=b"k", encoding=1),
    append(1, b"keyed", 1, idempotency_key=b"k"),
    append(1, b"keyed", 2, idempotency_key=b"k!"),
    append(2, b"keyed", 2, idempotency_key=b"k"),
    append(1, b"keyed", 2),
]


@pytest.mark.engines(*ENGINES)
def test_a_key_counts_for_the_same_turn_on_the_same_parent(told: Peer) -> None:
    """Then the first turn comes back and nothing changes; whatever differs is another turn."""
    asked = [append(1, b"keyed", 2, idempotency_key=b"k"), *OTHERS]
    appended = told.talk([*asked, append(1, b"between")])
    assert ids(appended) == [*range(4, 14)]
    *keyed, unkeyed = range(len(asked))
    assert [told.ask(asked[number]) for number in keyed] == [appended[number] for number in keyed]
    assert told.ask(GetHead(1)) == Head(1, 13, 3)
    assert ids([told.ask(asked[unkeyed])]) == [14]


def test_a_retry_may_be_compressed_differently(told: Peer) -> None:
    """What counts is the bytes of the payload, not how they come."""
    data = b"keyed" * 100
    plain = append(1, data, 2, idempotency_key=b"k")
    packed = replace(plain, compression=1, payload=zstd(data))
    assert ids(told.talk([plain, packed])) == [4, 4]


def test_a_wrong_hash_is_refused_though_its_key_is_known(told: Peer) -> None:
    """The key goes by the hash that was sent, and the thread checks that."""
    right = append(1, b"keyed", 2, idempotency_key=b"k")
    assert ids([told.ask(right)]) == [4]
    assert told.refused(replace(right, payload=b"KEYED")) == 422


def test_keys_of_clients_and_of_the_library_do_not_meet(told: Peer, path: str) -> None:
    """A client of the protocol cannot take the key of a program, nor be refused for one."""
    with eventq.open(path) as thread:
        context = thread.contexts.get(1)
        assert context.append(NewTurn(b"mine"), key="k").turn_id == 4
        assert ids([told.ask(append(1, b"keyed", 2, idempotency_key=b"k"))]) == [5]
        assert context.append(NewTurn(b"mine"), key="k").turn_id == 4


@pytest.mark.parametrize("servers", [1, 2])
def test_a_request_and_its_retry_at_once_are_one_turn(
    servers: int, serve: Serve, path: str
) -> None:
    """Over two connections, to one server or to two of the same thread."""
    served = [serve() for _ in range(servers)]
    one, other = served[0].peer(), served[-1].peer()
    one.talk([CreateContext(0), append(1, ONE)])
    parent = 1
    for number in range(20):
        message = append(1, b"%d" % number, parent, idempotency_key=b"k")
        one.send(message)
        other.send(message)
        first, second = one.reply(), other.reply()
        assert first == second
        (parent,) = ids([first])
    assert parent == 21
    assert one.ask(GetHead(1)) == Head(1, 21, 20)


@pytest.mark.engines(*ENGINES)
def test_a_group_takes_a_retry_for_what_it_is(
    serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one transaction, too: of forty equal requests of forty peers one is stored."""
    with eventq.open(path) as thread:
        thread.contexts.create().append(NewTurn(b"root"))
    held, served = Commits(monkeypatch), serve()
    message = append(1, b"keyed", 1, idempotency_key=b"k")
    peers = gather(served, held, until, *[message] * 40)
    assert ids([peer.reply() for peer in peers]) == [2] * 40
    assert held.groups == [1, 40]


def test_a_key_is_forgotten_after_a_day(serve: Serve, path: str, raw: apsw.Connection) -> None:
    """As keys are under every rule."""
    peer = serve().peer()
    message = append(1, b"x", 1, idempotency_key=b"k")
    assert ids(peer.talk([CreateContext(0), append(1, ONE), message, message])[1:]) == [1, 2, 2]
    raw.execute("UPDATE turn_keys SET created_at_ms = created_at_ms - 24 * 3600 * 1000 - 1")
    assert ids([peer.ask(message)]) == [3]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:8]))
def test_any_bytes_may_be_a_key(key: bytes, told: Peer) -> None:
    """Also those that are no text, and very long ones."""
    message = append(1, b"keyed", 2, idempotency_key=key)
    longer = replace(message, idempotency_key=key + b"!" if len(key) < MAX_KEY else key[1:])
    assert ids(told.talk([message, longer, message, longer])) == [4, 5, 4, 5]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:8]))
def test_a_strict_key_stands_for_one_turn(key: bytes, serve: Serve) -> None:
    """With `--keys strict` a repeated key returns the first turn, or 409 if the turn differs."""
    told = serve(keys="strict").peer()
    told.talk([CreateContext(0), append(1, ONE), append(1, TWO), ForkContext(1)])
    first = Appended(1, 3, 2, hashed(b"keyed"))
    assert told.ask(append(1, b"keyed", idempotency_key=key)) == first
    told.ask(append(1, b"between"))
    assert told.ask(append(1, b"keyed", idempotency_key=key)) == first
    assert told.ask(append(1, b"keyed", 1, idempotency_key=key)) == first
    assert told.ask(GetHead(1)) == Head(1, 4, 3)
    assert told.refused(append(1, b"other", idempotency_key=key)) == 409
    others: list[dict[str, Any]] = [{"type_version": 2}, {"type_id": "u"}, {"encoding": 1}]
    for other in others:
        assert told.refused(append(1, b"keyed", idempotency_key=key, **other)) == 409
    assert told.ask(append(2, b"keyed", idempotency_key=key)) == Appended(2, 5, 1, hashed(b"keyed"))
    key = key + b"!" if len(key) < MAX_KEY else key[1:]
    assert told.ask(append(1, b"keyed", idempotency_key=key)) == Appended(1, 6, 4, hashed(b"keyed"))


def test_no_key_is_no_key(peer: Peer) -> None:
    """Turns without a key stay two, however equal they are."""
    peer.ask(CreateContext(0))
    assert [getattr(one, "turn_id", 0) for one in peer.talk([append(1, b"x")] * 3)] == [1, 2, 3]


@pytest.mark.parametrize("rule", ["matching", "strict"])
def test_a_key_outlives_connection_and_server(rule: str, serve: Serve) -> None:
    """A client that comes again after a break gets its first turn."""
    message = append(1, b"x", 1, idempotency_key=b"k")
    first = serve(keys=rule)
    peer = first.peer()
    peer.talk([CreateContext(0), append(1, ONE)])
    assert peer.ask(message) == Appended(1, 2, 1, hashed(b"x"))
    peer.close()
    first.stop()
    assert serve(keys=rule).peer().ask(message) == Appended(1, 2, 1, hashed(b"x"))


@pytest.mark.parametrize("rule", ["matching", "strict"])
def test_keys_may_be_ignored(rule: str, serve: Serve) -> None:
    """Keys are ignored by the server's option, or by a connection's HELLO."""
    ignored, off = append(1, b"x", 1, idempotency_key=b"k"), Hello(meta='{"keys": false}')
    served = serve(keys="ignore")
    peer = served.peer()
    peer.talk([CreateContext(0), append(1, ONE)])
    assert ids([peer.ask(ignored), peer.ask(ignored)]) == [2, 3]
    peer.ask(Hello(meta='{"keys": true}'))
    assert ids([peer.ask(ignored)]) == [4]
    peer.close()
    served.stop()
    served = serve(keys=rule)
    peer, other = served.peer(), served.peer()
    peer.ask(off)
    assert ids(peer.talk([ignored, ignored])) == [5, 6]
    assert ids(other.talk([ignored, ignored])) == [7, 7]
    peer.ask(Hello())
    assert ids([peer.ask(ignored)]) == [7]


@given(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=300))
@example(b"\xff", b"hex:ff")
@example(b"\xff", b"hex:ff".hex().encode())
@example(b"\n", b"hex:0a")
@example(b"hex:0a", b"hex:6865783a3061")
@example(b"blake3:" + blake3(b"\xff" * MAX_KEY).hexdigest().encode(), b"\xff" * MAX_KEY)
@example("é".encode(), b"hex:c3a9")
@example(b"x" * MAX_KEY, b"x" * (MAX_KEY - 1))
@example(b"\xff" * 32_766, b"\xff" * 32_767)
@example("é".encode(), "e\u0301".encode())
def test_keys_that_differ_stay_different_as_text(one: bytes, other: bytes) -> None:
    """Each key of bytes has a text of its own that a thread takes, and always the same."""
    assert (key_text(one) == key_text(other)) == (one == other)
    for key in (one, other):
        check_name(key_text(key), "key")


# --- fs roots -------------------------------------------------------------------------------------


def test_a_turn_takes_a_root_when_it_is_appended_or_later(told: Peer, path: str) -> None:
    """Flag 0 and ATTACH_FS give a root, which what follows inherits; ATTACH_FS replaces it."""
    a, b = hashed(ONE), hashed(b"5")
    # a payload may be the root
    told.talk([append(1, b"3", fs_root=a), append(1, b"4"), append(1, b"5", fs_root=b)])
    with eventq.open(path) as thread:
        assert [thread.contexts.root(n) for n in range(1, 7)] == [None, None, None, a, a, b]
        assert told.ask(AttachFs(1, b)) == FsAttached(1, b)
        assert told.ask(AttachFs(4, b)) == FsAttached(4, b)
        assert [thread.contexts.root(n) for n in range(1, 7)] == [b, b, b, b, b, b]
        assert told.ask(AttachFs(4, a)) == FsAttached(4, a)
        assert [thread.contexts.root(n) for n in range(1, 7)] == [b, b, b, a, a, b]


@pytest.mark.engines(*ENGINES)
def test_a_root_must_be_a_blob_unless_they_are_kept_elsewhere(serve: Serve, path: str) -> None:
    """A root that nobody stored is 404 and changes nothing; a server that was told so takes it."""
    strict, foreign = serve().peer(), serve(foreign_roots=True).peer()
    strict.talk([CreateContext(0), append(1, ONE)])
    for message in (AttachFs(1, A), append(1, TWO, fs_root=A)):
        refused = strict.ask(message)
        assert isinstance(refused, Failure)
        assert (refused.code, refused.text) == (
            404, f"missing blob blob:blake3:{A.hex()} - put the tree first, or serve with --foreign-roots"
        )  # fmt: skip
    with eventq.open(path) as thread:
        assert (thread.contexts.root(1), thread.contexts.head(1)) == (None, 1)
        assert not thread.blobs.has(hashed(TWO))
        assert foreign.ask(AttachFs(1, A)) == FsAttached(1, A)
        assert foreign.ask(append(1, TWO, fs_root=B)) == Appended(1, 2, 1, hashed(TWO))
        assert [thread.contexts.root(n) for n in (1, 2)] == [A, B]


def test_an_append_again_keeps_the_root_of_the_first(told: Peer, path: str) -> None:
    """With the same key a turn comes back as it was, also when its root was replaced meanwhile."""
    message = append(1, b"3", 2, fs_root=hashed(ONE), idempotency_key=b"k")
    first = told.ask(message)
    assert told.ask(message) == first == Appended(1, 4, 2, hashed(b"3"))
    told.ask(AttachFs(4, hashed(TWO)))
    assert told.ask(message) == first
    with eventq.open(path) as thread:
        assert thread.contexts.root(4) == hashed(TWO)


# --- order ----------------------------------------------------------------------------------------


def conversation(chance: random.Random, length: int) -> list[Message]:
    """Return good and bad requests of all kinds, on existing contexts and turns."""
    contexts, turns = 1, 0
    asked: list[Message] = [CreateContext(0)]
    while len(asked) < length:
        kind = chance.randrange(14)
        context, which = chance.randrange(1, contexts + 2), chance.randrange(turns + 2)
        if kind < 5:
            data = chance.choice([b"", b"x" * chance.randrange(3000), chance.randbytes(20)])
            if context <= contexts:
                turns += 1
            asked.append(append(context, data))
        elif kind == 5:
            asked.append(CreateContext(which) if chance.random() < 0.5 else ForkContext(which))
            contexts += which <= turns
        elif kind == 6:
            included = chance.random() < 0.5
            asked.append(GetLast(context, chance.randrange(20), include_payload=included))
        elif kind == 7:
            asked.append(GetBefore(context, which, 5, include_payload=True))
        elif kind == 8:
            asked.append(GetRange(context, chance.randrange(20), 5, include_payload=True))
        elif kind == 9:
            put: list[Message] = [
                PutBlob(hashed(b"p"), b"p"),
                PutBlob(A, b"p"),
                GetBlob(hashed(b"")),
            ]
            asked.append(chance.choice(put))
        elif kind == 10:
            asked.append(AttachFs(which, A))
        elif kind == 11:
            asked.append(chance.choice([(4, b"\0"), (77, b""), (5, bytes(40)), (6, bytes(17))]))
        elif kind == 12:
            key = chance.choice([b"a", b"b"])
            parent = chance.choice([0, 1])
            asked.append(append(1 + contexts, b"", parent, idempotency_key=key))
        else:
            hello = Hello(meta=chance.choice(["", "{}", "{"]))
            asked.append(hello if chance.random() < 0.5 else GetHead(context))
    return asked


@pytest.mark.parametrize("seed", range(3))
def test_replies_come_in_order_however_the_requests_come(
    seed: int, serve: Serve, tmp_path: Any, until: Until
) -> None:
    """All in one send, in small pieces, and one by one: the same replies, each to its request."""
    asked = conversation(random.Random(seed), 900)
    together = serve().peer().talk(asked)
    for number, step in enumerate((1, 7, 4097, 0)):
        with serving(eventq.init(tmp_path / f"{number}"), until) as begin:
            peer = begin().peer()
            some = asked if step > 1 else asked[:150]
            found = peer.talk(some, step=step) if step else [peer.ask(one) for one in asked]
            assert found == together[: len(found)]
    assert len(together) == 900


def test_a_hello_changes_nothing_that_came_before_it(peer: Peer) -> None:
    """A HELLO about keys affects only the appends after it, even in one send."""
    peer.talk([CreateContext(0), append(1, ONE)])
    one, off = append(1, b"x", 1, idempotency_key=b"k"), Hello(meta='{"keys": false}')
    found = peer.talk([one, GetHead(1), one, off, one, GetHead(1), Hello(), one])
    turns = [getattr(reply, "turn_id", None) for reply in found]
    assert turns == [2, None, 2, None, 3, None, None, 2]


@pytest.mark.engines(*ENGINES)
def test_a_reading_sees_what_was_written_before_it(peer: Peer) -> None:
    """On one connection, a read sees exactly the appends sent before it."""
    peer.ask(CreateContext(0))
    asked: list[Message] = []
    for number in range(100):
        asked += [append(1, b"%d" % number), GetLast(1, 1, include_payload=True)]
    found = peer.talk(asked)
    for number in range(100):
        reply = found[2 * number + 1]
        assert isinstance(reply, Turns)
        assert [one.payload for one in reply.turns] == [b"%d" % number]


@pytest.mark.parametrize(
    "message", [(77, b""), (4, b""), Hello(), GetHead(1), append(1, b"x")], ids=repr
)
def test_no_number_of_requests_in_one_send_is_too_large(message: Message, peer: Peer) -> None:
    """Thousands of requests of one kind are all answered."""
    peer.ask(CreateContext(0))
    assert len(peer.talk([message] * 2000)) == 2000


@pytest.mark.parametrize("message", [(77, b""), append(1, b"x")], ids=repr)
def test_all_that_came_before_the_end_is_answered(message: Message, peer: Peer) -> None:
    """A peer that sends all and then no more gets all its replies, and then the end."""
    peer.ask(CreateContext(0))
    peer.send(*[message] * 2000)
    peer.socket.shutdown(1)
    for _ in range(2000):
        peer.reply()
    assert peer.rest() == []


# --- the fixtures of the contract -----------------------------------------------------------------


def said(number: int, parent: int = 0, **more: Any) -> AppendTurn:
    """Return an append as the fixtures have them."""
    data = bytes([0x91, number])
    return AppendTurn(1, parent, "cxdb.ConversationItem", 3, 1, 0, 2, hashed(data), data, **more)


# What a stock client sends.
LIKE_THEM: dict[str, Message] = {
    "append_idempotent": said(3, idempotency_key=b"key-1"), "append_parent0": said(1), "append_parent7": said(2, 7),
    "append_with_fs": said(4, fs_root=B), "attach_fs": AttachFs(99, A), "ctx_create_base0": CreateContext(0),
    "ctx_fork_base123": ForkContext(123), "get_blob": GetBlob(b"\xcc" * 32), "get_head_ctx42": GetHead(42),
    "get_last_default": GetLast(1, 10, include_payload=False), "get_last_payload": GetLast(1, 5, include_payload=True),
    "hello_empty": Hello(), "hello_tag": Hello(1, "test-client"), "put_blob": PutBlob(hashed(b"hello blob"), b"hello blob"),
}  # fmt: skip


@pytest.mark.engines(*ENGINES)
def test_the_fixtures_are_answered(serve: Serve) -> None:
    """Each request, sent to two threads, gets the documented reply."""
    asked = LIKE_THEM
    peer = serve(foreign_roots=True).peer()
    fresh = {
        "append_idempotent": 404, "append_parent0": 404, "append_parent7": 404, "append_with_fs": 404, "attach_fs": 404,
        "ctx_fork_base123": 404, "get_blob": 404, "get_head_ctx42": 404, "get_last_default": 404,
        "get_last_payload": 404, "ctx_create_base0": Head(1, 0, 0), "hello_empty": Welcome(1), "hello_tag": Welcome(2),
        "put_blob": BlobPut(hashed(b"hello blob"), new=True),
    }  # fmt: skip
    for name in sorted(asked, key=lambda name: (not name.startswith(("append", "get_last")), name)):
        reply = peer.ask(asked[name])
        assert (reply.code if isinstance(reply, Failure) else reply) == fresh[name], name
    peer.talk([append(1, b"%d" % number) for number in range(123)])
    peer.talk([CreateContext(number) for number in range(2, 43)])
    found: dict[str, Reply] = {name: peer.ask(asked[name]) for name in sorted(asked)}
    appended = {"idempotent": (123, 3), "parent0": (124, 1), "parent7": (7, 2), "with_fs": (8, 4)}
    for number, (name, (depth, last_byte)) in enumerate(appended.items()):
        digest = hashed(bytes([0x91, last_byte]))
        assert found.pop(f"append_{name}") == Appended(1, 124 + number, depth, digest), name
    for name, limit, payloads in (("get_last_default", 10, False), ("get_last_payload", 5, True)):
        reply = found.pop(name)
        assert isinstance(reply, Turns)
        assert [one.depth for one in reply.turns] == list(range(8, -1, -1))[:limit][::-1]
        assert all((one.payload is not None) == payloads for one in reply.turns)
        assert reply.turns[-1].type_id == "cxdb.ConversationItem"
    assert found.pop("get_blob") == peer.ask(GetBlob(b"\xcc" * 32))
    assert found == {
        "attach_fs": FsAttached(99, A), "ctx_create_base0": Head(43, 0, 0), "ctx_fork_base123": Head(44, 123, 122),
        "get_head_ctx42": Head(42, 42, 41), "hello_empty": Welcome(3), "hello_tag": Welcome(4),
        "put_blob": BlobPut(hashed(b"hello blob"), new=False),
    }  # fmt: skip


# --- group commit ---------------------------------------------------------------------------------


class Commits:
    """The writer of a server, held at a gate; `groups` are the sizes of what it did at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = Gate(monkeypatch, workers.Writer, "do")

    @property
    def groups(self) -> list[int]:
        """The sizes of what was begun."""
        return [len(group) for *_, group in self.gate.calls]


def gather(served: Served, held: Commits, until: Until, *messages: Message) -> list[Peer]:
    """Block the writer, send other peers' requests one by one, then unblock it."""
    peers: list[Peer] = []

    def all_wait() -> bool:
        running = served.count(lambda one: len(one.running))
        return running == len(peers) and bool(held.gate.calls)

    for message in [PutBlob(hashed(b"first"), b"first"), *messages]:
        peers.append(served.peer())
        peers[-1].send(message)
        until(all_wait, "it waits, and the first is begun")
    held.gate.open()
    assert isinstance(peers[0].reply(), BlobPut)
    return peers[1:]


@pytest.mark.engines(*ENGINES)
def test_what_waits_at_once_is_committed_at_once(
    serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting appends of forty peers share a transaction; a failed one is undone alone."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    held, served = Commits(monkeypatch), serve()
    messages = [append(99 if n % 10 == 7 else 1, b"%d" % n) for n in range(40)]
    replies = [peer.reply() for peer in gather(served, held, until, *messages)]
    assert held.groups == [1, 40]
    failed = {number: one.code for number, one in enumerate(replies) if isinstance(one, Failure)}
    assert failed == {7: 404, 17: 404, 27: 404, 37: 404}
    assert sorted(one.turn_id for one in replies if isinstance(one, Appended)) == list(range(1, 37))
    assert sorted(last(served.peer())) == sorted(b"%d" % n for n in range(40) if n % 10 != 7)
    with eventq.open(path) as thread:
        assert not thread.blobs.has(hashed(b"7"))


def test_a_group_is_one_commit_of_the_database(
    serve: Serve, until: Until, path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty appends change the database once, as others see it: they see none of them or all."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    held, served = Commits(monkeypatch), serve()
    seen: set[int] = set()

    def looked(*fields: Any) -> Appended:
        seen.add(raw.execute("SELECT count(*) FROM turns").get)
        return Appended(*fields)

    monkeypatch.setattr("eventq.wire.requests.frames.Appended", looked)
    for peer in gather(served, held, until, *[append(1, b"%d" % number) for number in range(40)]):
        assert isinstance(peer.reply(), Appended)
    assert seen == {0}
    assert raw.execute("SELECT count(*) FROM turns").get == 40


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError, RuntimeError])
@pytest.mark.engines("sqlite")  # whose transactions they break
def test_a_commit_that_fails_refuses_all_of_its_group(
    error: type[Exception], serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told that it was done, nothing of it is there, and the next writes work."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    held, served = Commits(monkeypatch), serve()
    commit = Database.commit
    left = [1]

    def refused(store: Any, number: int) -> None:
        if store.depth == 1 and len(held.groups) == 2 and left:
            left.pop()
            store.rollback(number)
            ours = issubclass(error, apsw.Error)
            raise store.explain(error("refused by the test")) if ours else error("refused")
        commit(store, number)

    monkeypatch.setattr(Database, "commit", refused)
    messages = [append(1, b"%d" % number) for number in range(10)]
    peers = gather(served, held, until, *messages)
    replies = [peer.reply() for peer in peers]
    assert [one.code for one in replies if isinstance(one, Failure)] == [500] * 10
    assert left == []
    reader = served.peer()
    assert last(reader) == []
    for peer, message in zip(peers, messages, strict=True):
        assert isinstance(peer.ask(message), Appended)
    assert sorted(last(reader)) == sorted(b"%d" % number for number in range(10))


@pytest.mark.engines("sqlite")  # whose transactions they break
def test_a_step_that_the_disk_refuses_refuses_all_of_its_group(
    serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a full disk undoes a transaction, its whole group is refused."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    held, served = Commits(monkeypatch), serve()
    insert = Database.insert
    calls = [0]

    def refused(db: Database, sql: str, bindings: tuple[Any, ...] = ()) -> int | None:
        is_turn = "INTO turns " in sql
        calls[0] += is_turn
        if is_turn and calls[0] == 5:
            db.connection.execute("ROLLBACK")
            raise DiskError("the disk is full", "free some space")
        return insert(db, sql, bindings)

    monkeypatch.setattr(Database, "insert", refused)
    peers = gather(served, held, until, *[append(1, b"%d" % number) for number in range(10)])
    replies = [peer.reply() for peer in peers]
    assert [one.code for one in replies if isinstance(one, Failure)] == [500] * 10
    assert last(served.peer()) == []
    assert isinstance(peers[0].ask(append(1, b"again")), Appended)


def test_a_large_request_has_a_transaction_of_its_own(
    serve: Serve, until: Until, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a MiB on, of bytes or of what they inflate to; the small ones around it share theirs."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    held, served = Commits(monkeypatch), serve()
    large, zeros = random.Random(4).randbytes(1 << 20), bytes(1 << 20)
    small: Message = PutBlob(hashed(b"s"), b"s")
    under, put = append(1, large[:-1]), PutBlob(hashed(large), large)
    asked = [small, under, small, append(1, large), small, small, put, compressed(zeros), small]
    peers = gather(served, held, until, *asked)
    assert not any(isinstance(peer.reply(), Failure) for peer in peers)
    assert held.groups == [1, 3, 1, 2, 1, 1, 1]


@pytest.mark.parametrize(("name", "most"), [("GROUP", 5), ("GROUP_BYTES", 3000)])
def test_a_group_is_bounded(
    name: str, most: int, serve: Serve, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is limited in requests and bytes; the rest is the next one."""
    monkeypatch.setattr(workers, name, most)
    held, served = Commits(monkeypatch), serve()
    data = [b"%d" % number * 200 for number in range(12)]
    for peer in gather(served, held, until, *[PutBlob(hashed(one), one) for one in data]):
        assert isinstance(peer.reply(), BlobPut)
    assert sum(held.groups) == 13
    assert max(held.groups) == 5 if name == "GROUP" else 1 < max(held.groups) < 12


@pytest.mark.engines(*ENGINES)
def test_another_process_may_write_meanwhile(
    serve: Serve, path: str, run_python: Callable[..., str]
) -> None:
    """Events that another process pushes and turns that peers append are all there."""
    code = "import sys, eventq\nwith eventq.open(sys.argv[1]) as t:\n [t.push('self', 'x', str(n)) for n in range(200)]"
    other = threading.Thread(target=run_python, args=(code, path))
    served = serve()
    peers = [served.peer() for _ in range(4)]
    for peer in peers:
        peer.ask(CreateContext(0))
    other.start()
    rounds = 0
    while other.is_alive() or rounds < 5:
        rounds += 1
        for context_id, peer in enumerate(peers, 1):
            peer.send(*[append(context_id, b"%d" % rounds)] * 10)
        for peer in peers:
            assert all(isinstance(peer.reply(), Appended) for _ in range(10))
    other.join()
    with eventq.open(path) as thread:
        assert thread.last_id() == 200
        assert [one.head_depth for one in thread.contexts] == [10 * rounds - 1] * 4


# --- reading beside a writer ----------------------------------------------------------------------


def test_readings_do_not_wait_for_writers(
    told: Peer, serve: Serve, raw: apsw.Connection, until: Until
) -> None:
    """While the database is locked and an append waits, other connections read."""
    served = serve()
    reader, writer = served.peer(), served.peer()
    raw.execute("BEGIN IMMEDIATE")
    writer.send(append(1, b"late"))
    until(lambda: served.count(lambda one: len(one.running)), "the append waits")
    for peer in (reader, served.peer()):
        for _ in range(5):
            assert last(peer) == [ONE, TWO]
            assert peer.ask(GetHead(1)) == Head(1, 2, 1)
            assert peer.ask(GetBlob(hashed(ONE))) == BlobBytes(ONE)
    writer.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        writer.socket.recv(1)
    writer.socket.settimeout(60)
    raw.execute("COMMIT")
    assert writer.reply() == Appended(1, 4, 2, hashed(b"late"))


def test_a_store_that_is_busy_for_too_long_is_500(
    told: Peer, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown codes become 500; nothing is stored, and the next append works."""
    monkeypatch.setattr("eventq.store.sqlite.connecting.Busy.__call__", lambda *_: False)
    raw.execute("BEGIN IMMEDIATE")
    assert told.refused(append(1, b"x")) == BusyError.wire_code // 100 * 100
    raw.execute("COMMIT")
    assert told.ask(append(1, b"x")) == Appended(1, 4, 2, hashed(b"x"))


def test_frames_of_our_own_helper_are_right() -> None:
    """The helper of these tests writes what the table says, or all of the above means little."""
    head = bytes.fromhex("08000000 0400 0000 0900000000000000")
    assert frame(4, b"12345678", 9) == head + b"12345678"
    assert int(Type.GET_HEAD) == 4


def test_a_server_says_that_a_newer_eventq_has_changed_its_thread(
    path: str, serve: Serve, raw: apsw.Connection
) -> None:
    """A server that is too old for its thread says so, and does not advise to move it away."""
    with eventq.open(path) as thread:
        thread.contexts.create()
    peer = serve().peer()
    assert isinstance(peer.ask(append(1, b"before")), Appended)
    change = "BEGIN IMMEDIATE; ALTER TABLE {} RENAME TO {}; PRAGMA user_version = {}; COMMIT"
    version = raw.pragma("user_version")
    raw.execute(change.format("turns", "nodes", 1000))
    written = peer.ask(append(1, b"after"))
    # perhaps by a reader that opens the thread only now
    read = peer.ask(GetLast(1, 10, include_payload=True))
    raw.execute(change.format("nodes", "turns", version))  # as it was: the thread must check out
    assert isinstance(written, Failure)
    assert "was brought up to date by a newer eventq - open it again" in written.text
    assert isinstance(read, Failure)
    assert "by a newer eventq" in read.text
    assert (written.code, read.code) == (500, 500)
    assert last(peer) == [b"before"]
