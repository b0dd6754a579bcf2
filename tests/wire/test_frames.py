"""The protocol without a socket: exact bytes, hostile ones, and states."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import struct
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventq.errors import InputError, TooLargeError
from eventq.wire import frames
from eventq.wire.frames import (
    MAX_FRAME,
    MAX_KEY,
    MAX_META,
    MAX_TAG,
    MAX_TEXT,
    MAX_TYPE_ID,
    REPLIES,
    REQUESTS,
    SERVER,
    TURNS_HEAD,
    Appended,
    AppendTurn,
    AttachFs,
    BlobBytes,
    BlobPut,
    CreateContext,
    Failure,
    ForkContext,
    Frame,
    FsAttached,
    GetBefore,
    GetBlob,
    GetHead,
    GetLast,
    GetRange,
    Head,
    Hello,
    Malformed,
    PutBlob,
    Reader,
    Refused,
    Reply,
    Request,
    Session,
    TooLong,
    Turns,
    Type,
    Unsupported,
    Welcome,
    WireTurn,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    turn_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    One = TypeVar("One", bound=Request | Reply)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(os.path.dirname(ROOT), "shared", "wire-fixtures")
MOST64, MOST32, MOST16 = (1 << 64) - 1, (1 << 32) - 1, (1 << 16) - 1
A, B = b"\xaa" * 32, bytes(range(32))
AS, BS = "aa" * 32, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
ONES = "ff" * 8
_NUMBERS = "03000000 01000000 01000000 0a000000"

# By hand, from the table of the protocol: type, flags, message, payload.
ASKED: list[tuple[int, int, Request, str]] = [
    (1, 0, Hello(), "0100 0000 00000000"),
    (1, 0, Hello(1, "test-client", ""), "0100 0b00 746573742d636c69656e74 00000000"),
    (1, 0, Hello(MOST16, "é", '{"a":1}'), "ffff 0200 c3a9 07000000 7b2261223a317d"),
    (2, 0, CreateContext(0), "0000000000000000"),
    (2, 0, CreateContext(MOST64), ONES),
    (3, 0, ForkContext(123), "7b00000000000000"),
    (3, 0, ForkContext(0x0102030405060708), "0807060504030201"),
    (4, 0, GetHead(42), "2a00000000000000"),
    (4, 0, GetHead(MOST64), ONES),
    (
        5, 0, AppendTurn(1, 0, "", 0, 0, 0, 0, A, b""),
        f"0100000000000000 0000000000000000 00000000 00000000 00000000 00000000 00000000 {AS} 00000000 00000000",
    ),
    (
        5, 0, AppendTurn(1, 7, "é/1", 3, 1, 1, 10, B, b"xyz", b"\xff\x00"),
        f"0100000000000000 0700000000000000 04000000 c3a92f31 {_NUMBERS} {BS} 03000000 78797a 02000000 ff00",
    ),
    (
        5, 1, AppendTurn(MOST64, MOST64, "t", MOST32, MOST32, 1, MOST32, A, b"\x00", b"", B),
        f"{ONES} {ONES} 01000000 74 ffffffff ffffffff 01000000 ffffffff {AS} 01000000 00 00000000 {BS}",
    ),
    (6, 0, GetLast(1, 10, include_payload=False), "0100000000000000 0a000000 00000000"),
    (6, 0, GetLast(MOST64, MOST32, include_payload=True), f"{ONES} ffffffff 01000000"),
    (7, 0, GetBefore(1, 2, 3, include_payload=True), "0100000000000000 0200000000000000 03000000 01000000"),
    (7, 0, GetBefore(MOST64, MOST64, MOST32, include_payload=False), f"{ONES} {ONES} ffffffff 00000000"),
    (8, 0, GetRange(1, 2, 3, include_payload=True), "0100000000000000 02000000 03000000 01000000"),
    (8, 0, GetRange(MOST64, MOST32, MOST32, include_payload=False), f"{ONES} ffffffff ffffffff 00000000"),
    (9, 0, GetBlob(A), AS),
    (9, 0, GetBlob(B), BS),
    (10, 0, AttachFs(99, A), f"6300000000000000 {AS}"),
    (10, 0, AttachFs(MOST64, B), f"{ONES} {BS}"),
    (11, 0, PutBlob(B, b""), f"{BS} 00000000"),
    (11, 0, PutBlob(A, b"hello"), f"{AS} 05000000 68656c6c6f"),
]  # fmt: skip
_BARE = f"0100000000000000 0000000000000000 00000000 01000000 74 02000000 03000000 01000000 05000000 {AS}"
_FULL = f"{ONES} {ONES} ffffffff 00000000 ffffffff ffffffff 00000000 ffffffff {BS} 00000000"
_MORE = f"0200000000000000 0100000000000000 01000000 01000000 74 00000000 00000000 00000000 02000000 {AS} 02000000 6869"
BARE = WireTurn(1, 0, 0, "t", 2, 3, 1, 5, A)
FULL = WireTurn(MOST64, MOST64, MOST32, "", MOST32, MOST32, 0, MOST32, B, b"")
MORE = WireTurn(2, 1, 1, "t", 0, 0, 0, 2, A, b"hi")
# Likewise: type of the request, whether it asked for payloads, type of the reply, message, payload.
ANSWERED: list[tuple[int, bool, int, Reply, str]] = [
    (1, False, 1, Welcome(7), "0700000000000000 0100"),
    (1, False, 1, Welcome(MOST64, MOST16), f"{ONES} ffff"),
    (2, False, 2, Head(1, 0, 0), "0100000000000000 0000000000000000 00000000"),
    (2, False, 2, Head(MOST64, MOST64, MOST32), f"{ONES} {ONES} ffffffff"),
    (3, False, 3, Head(2, 123, 4), "0200000000000000 7b00000000000000 04000000"),
    (3, False, 3, Head(0, 0, 0), "0000000000000000 0000000000000000 00000000"),
    (4, False, 4, Head(42, 0x0102030405060708, 0x01020304), "2a00000000000000 0807060504030201 04030201"),
    (4, False, 4, Head(MOST64, 0, MOST32), f"{ONES} 0000000000000000 ffffffff"),
    (5, False, 5, Appended(1, 2, 3, A), f"0100000000000000 0200000000000000 03000000 {AS}"),
    (5, False, 5, Appended(MOST64, MOST64, MOST32, B), f"{ONES} {ONES} ffffffff {BS}"),
    (6, False, 6, Turns(()), "00000000"),
    (6, True, 6, Turns(()), "00000000"),
    (6, False, 6, Turns((BARE, BARE)), f"02000000 {_BARE} {_BARE}"),
    (6, True, 6, Turns((MORE, FULL)), f"02000000 {_MORE} {_FULL}"),
    (7, False, 7, Turns((BARE,)), f"01000000 {_BARE}"),
    (7, True, 7, Turns((FULL,)), f"01000000 {_FULL}"),
    (8, False, 8, Turns((), 0), "00000000 00000000"),
    (8, True, 8, Turns((MORE,), MOST32), f"ffffffff 01000000 {_MORE}"),
    (8, False, 8, Turns((BARE,), 9), f"09000000 01000000 {_BARE}"),
    (9, False, 9, BlobBytes(b""), "00000000"),
    (9, False, 9, BlobBytes(b"hello"), "05000000 68656c6c6f"),
    (10, False, 10, FsAttached(99, A), f"6300000000000000 {AS}"),
    (10, False, 10, FsAttached(MOST64, B), f"{ONES} {BS}"),
    (11, False, 11, BlobPut(A, new=True), f"{AS} 01"),
    (11, False, 11, BlobPut(B, new=False), f"{BS} 00"),
    (5, False, 255, Failure(404, "é"), "94010000 02000000 c3a9"),
    (6, True, 255, Failure(0, ""), "00000000 00000000"),
    (8, False, 255, Failure(MOST32, "no"), "ffffffff 02000000 6e6f"),
]  # fmt: skip
# Of the replies that the table gives in bytes.
SIZES = {1: 10, 2: 20, 3: 20, 4: 20, 5: 52, 10: 40, 11: 33}

KINDS = tuple(range(1, 12))  # of requests
U16, U32, U64 = st.integers(0, MOST16), st.integers(0, MOST32), st.integers(0, MOST64)
HASH = st.binary(min_size=32, max_size=32)
BYTES = st.binary(max_size=300)
ZIPPED = st.sampled_from([0, 1])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
YES = st.booleans()
REQUEST: st.SearchStrategy[Request] = st.one_of(
    st.builds(Hello, U16, TEXT, TEXT),
    st.builds(CreateContext, U64),
    st.builds(ForkContext, U64),
    st.builds(GetHead, U64),
    st.builds(
        AppendTurn, U64, U64, TEXT, U32, U32, ZIPPED, U32, HASH, BYTES, BYTES, st.none() | HASH
    ),
    st.builds(GetLast, U64, U32, YES),
    st.builds(GetBefore, U64, U64, U32, YES),
    st.builds(GetRange, U64, U32, U32, YES),
    st.builds(GetBlob, HASH),
    st.builds(AttachFs, U64, HASH),
    st.builds(PutBlob, HASH, BYTES),
)
_ABOUT = U64, U64, U32, TEXT, U32, U32
BARES = st.lists(st.builds(WireTurn, *_ABOUT, ZIPPED, U32, HASH), max_size=4)
FULLS = st.lists(st.builds(WireTurn, *_ABOUT, st.just(0), U32, HASH, BYTES), max_size=4)
FAILURE = st.builds(Failure, U32, TEXT)
ONE: dict[type, st.SearchStrategy[Reply]] = {
    Welcome: st.builds(Welcome, U64, U16),
    Head: st.builds(Head, U64, U64, U32),
    Appended: st.builds(Appended, U64, U64, U32, HASH),
    BlobBytes: st.builds(BlobBytes, BYTES),
    FsAttached: st.builds(FsAttached, U64, HASH),
    BlobPut: st.builds(BlobPut, HASH, YES),
}


@st.composite
def answers(draw: st.DrawFn, request: Request) -> Reply:
    """Return something that answers a request."""
    kind = REPLIES[type_of(request)]
    if draw(st.integers(0, 9)) == 0:
        return draw(FAILURE)
    if kind is not Turns:
        return draw(ONE[kind])
    turns = draw(FULLS if getattr(request, "include_payload", False) else BARES)
    return Turns(tuple(turns), draw(U32) if isinstance(request, GetRange) else None)


EXCHANGE = REQUEST.flatmap(lambda request: st.tuples(st.just(request), answers(request)))


def type_of(request: Request) -> int:
    """Return the type of a request, found another way than the code does."""
    return next(number for number, kind in REQUESTS.items() if kind is type(request))


def raw(type: int, flags: int, req_id: int, payload: bytes) -> bytes:
    """Return a frame, made without the code under test."""
    return struct.pack("<IHHQ", len(payload), type, flags, req_id) + payload


def frame_of(data: bytes) -> Frame:
    """Return the one frame that some bytes are."""
    reader = Reader()
    reader.feed(data)
    (found,) = reader.frames()
    assert reader.pending == 0
    return found


def settled(message: One) -> One:
    """Return a message whose views are bytes."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, memoryview):
            assert value.readonly
            changes[field.name] = bytes(value)
        if field.name == "parts":
            assert all(part.readonly for part in value)
            changes["parts"] = tuple(map(bytes, value))
        if field.name == "turns":
            changes["turns"] = tuple(map(settled, value))
    return dataclasses.replace(message, **changes)


# The exact bytes.


@pytest.mark.parametrize(("type", "flags", "message", "payload"), ASKED)
def test_a_request_is_these_bytes(type: int, flags: int, message: Request, payload: str) -> None:
    """A request is encoded to what the table says, byte for byte, and decoded from it."""
    body = bytes.fromhex(payload)
    assert encode_request(message, 0x0102030405060708) == raw(type, flags, 0x0102030405060708, body)
    assert settled(decode_request(Frame(type, flags, 9, body))) == message


@pytest.mark.parametrize(("of_type", "payloads", "type", "message", "payload"), ANSWERED)
def test_a_reply_is_these_bytes(
    of_type: int, payloads: bool, type: int, message: Reply, payload: str
) -> None:
    """A reply is encoded to what the table says, byte for byte, and decoded from it."""
    body = bytes.fromhex(payload)
    assert encode_reply(message, MOST64, of_type) == raw(type, 0, MOST64, body)
    assert settled(decode_reply(Frame(type, 0, 9, body), of_type, payloads)) == message
    assert type in (of_type, 255)
    assert len(body) == SIZES.get(type, len(body))


def test_every_message_has_its_vectors() -> None:
    """The table has eleven requests and eventq's own; each has a vector above."""
    assert [int(kind) for kind in Type] == [*range(1, 12), 255]
    assert sorted(REQUESTS) == [*range(1, 12)]
    assert sorted(REPLIES) == [*range(1, 12), 255]
    for kind, message in REQUESTS.items():
        assert sum(v[0] == kind and type(v[2]) is message for v in ASKED) >= 2
    for kind, answer in REPLIES.items():
        assert sum(v[2] == kind and type(v[3]) is answer for v in ANSWERED) >= 2


def test_the_fixtures_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    """A stock client's frames are decoded, and encoded to the same bytes."""
    cases = [(str(v[2]), v[0], v[1], bytes.fromhex(v[3])) for v in ASKED]
    if os.path.isdir(FIXTURES):
        names = sorted(name for name in os.listdir(FIXTURES) if name.endswith(".json"))
        assert names
        for name in names:
            with open(os.path.join(FIXTURES, name), encoding="utf-8") as file:
                found = json.load(file)
            body = bytes.fromhex(found["payload_hex"])
            cases.append((found["name"], found["msg_type"], found["flags"], body))
    else:
        with capsys.disabled():
            print(f"\n{FIXTURES} is not there: only the vectors of this file were compared")
    for name, kind, flags, payload in cases:
        message = decode_request(Frame(kind, flags, 5, payload))
        assert encode_request(message, 5) == raw(kind, flags, 5, payload), name


def test_a_fixture_is_read_as_it_was_meant() -> None:
    """The fields of an append with a root, as a stock client sends it, have their names."""
    payload = bytes.fromhex(
        "0100000000000000 0000000000000000 15000000 637864622e436f6e766572736174696f6e4974656d 03000000 01000000"
        f"00000000 02000000 {BS} 02000000 9104 06000000 6964656d2d31 {AS}"
    )
    found = decode_request(Frame(5, 1, 1, payload))
    assert found == AppendTurn(
        context_id=1, parent_turn_id=0, type_id="cxdb.ConversationItem", type_version=3, encoding=1, compression=0,
        uncompressed_len=2, hash=B, payload=b"\x91\x04", idempotency_key=b"idem-1", fs_root=A,
    )  # fmt: skip


def test_an_empty_hello_is_a_hello() -> None:
    """HELLO without a payload has the defaults; what it is encoded to has them written out."""
    assert decode_request(Frame(1, 0, 1, b"")) == Hello(1, "", "") == Hello()


@settings(deadline=None)
@given(REQUEST, U64)
def test_a_request_survives(message: Request, req_id: int) -> None:
    """What is encoded is decoded to the same request, and its frame carries its number."""
    data = encode_request(message, req_id)
    frame = frame_of(data)
    assert (frame.type, frame.req_id) == (type_of(message), req_id)
    assert settled(decode_request(frame)) == message
    assert encode_request(decode_request(frame), req_id) == data


@settings(deadline=None)
@given(EXCHANGE, U64)
def test_a_reply_survives(exchange: tuple[Request, Reply], req_id: int) -> None:
    """An encoded reply is decoded unchanged; its frame has the request's type or ERROR."""
    request, reply = exchange
    kind = type_of(request)
    data = encode_reply(reply, req_id, kind)
    frame = frame_of(data)
    assert frame.type == (255 if isinstance(reply, Failure) else kind)
    assert (frame.flags, frame.req_id) == (0, req_id)
    found = decode_reply(frame, kind, getattr(request, "include_payload", False))
    assert settled(found) == reply
    assert encode_reply(found, req_id, kind) == data


SHAPES = [
    bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"abcd").cast("H"), memoryview(b"a-b-c-d-")[::2],
]  # fmt: skip


@pytest.mark.parametrize("data", SHAPES)
def test_bytes_of_any_shape_are_sent(data: bytearray | memoryview) -> None:
    """A payload may be a bytearray or a view, also one of wider items or with gaps."""
    body = struct.pack("<I", 4) + b"abcd"
    assert encode_reply(BlobBytes(data), 1, 9) == raw(9, 0, 1, body)
    assert encode_request(PutBlob(A, data), 1) == raw(11, 0, 1, A + body)
    turn = AppendTurn(1, 0, "", 0, 0, 0, 4, A, data, data)  # type: ignore[arg-type]
    assert encode_request(turn, 1).endswith(body + body)
    assert encode_reply(Turns((dataclasses.replace(MORE, payload=data),)), 1, 6).endswith(body)


# What does not fit is not sent.


@contextmanager
def malformed(why: str) -> Iterator[None]:
    """Expect bytes to be malformed, and nothing to be allocated for what they say."""
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match=why):
            yield
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Hello(MOST16 + 1), "version"),
        (Hello(1, "\ud800"), "tag"),
        (Hello(1, "", "\udfff"), "meta_json"),
        (Hello(1, b""), "tag"),  # type: ignore[arg-type]
        (CreateContext(-1), "base_turn_id"),
        (ForkContext(MOST64 + 1), "base_turn_id"),
        (GetHead(1.0), "context_id"),  # type: ignore[arg-type]
        (GetHead(None), "context_id"),  # type: ignore[arg-type]
        (GetLast(1, MOST32 + 1, include_payload=True), "limit"),
        (GetLast(1, 1, include_payload=1), "include_payload"),  # type: ignore[arg-type]
        (GetBefore(1, 1 << 9999, 1, include_payload=True), "before_turn_id"),
        (GetRange(1, -5, 1, include_payload=True), "start_depth"),
        (GetBlob(A[1:]), "hash"),
        (GetBlob(A + b"x"), "hash"),
        (GetBlob("a" * 32), "hash"),  # type: ignore[arg-type]
        (AttachFs(b"x", A), "turn_id"),  # type: ignore[arg-type]
        (AttachFs(1, b""), "root"),
        (PutBlob(A, "text"), "data"),  # type: ignore[arg-type]
        (PutBlob(b"", b""), "hash"),
        (AppendTurn(1, 0, "\ud800", 0, 0, 0, 0, A, b""), "type_id"),
        (AppendTurn(1, 0, "", MOST32 + 1, 0, 0, 0, A, b""), "type_version"),
        (AppendTurn(1, 0, "", 0, -1, 0, 0, A, b""), "encoding"),
        (AppendTurn(1, 0, "", 0, 0, 2, 0, A, b""), "compression"),
        (AppendTurn(1, 0, "", 0, 0, 0, MOST32 + 1, A, b""), "uncompressed_len"),
        (AppendTurn(1, 0, "", 0, 0, 0, 0, A, 5), "payload"),  # type: ignore[arg-type]
        (AppendTurn(1, 0, "", 0, 0, 0, 0, A, b"", "key"), "idempotency_key"),  # type: ignore[arg-type]
        (AppendTurn(1, 0, "", 0, 0, 0, 0, A, b"", b"", b""), "fs_root"),
        (Welcome(1), "Welcome"),
    ],
)
def test_a_request_that_does_not_fit(message: Request, name: str) -> None:
    """A value that its field cannot hold is refused by name, and nothing is encoded."""
    with pytest.raises(InputError, match=rf"^{name} "):
        encode_request(message, 1)


@pytest.mark.parametrize(
    ("message", "type", "name"),
    [
        (Welcome(1), 2, "Welcome does not answer CTX_CREATE"),
        (Head(1, 1, 1), 1, "Head does not answer HELLO"),
        (BlobPut(A, new=True), 255, "BlobPut does not answer ERROR"),
        (BlobPut(A, new=True), 99, "BlobPut does not answer message type 99"),
        (Hello(), 1, "Hello does not answer HELLO"),
        (Turns(()), 8, "Turns does not answer GET_RANGE_BY_DEPTH"),
        (Turns((), 0), 6, "Turns does not answer GET_LAST"),
        (Turns((), 1), 7, "Turns does not answer GET_BEFORE"),
        (Turns((BARE, FULL)), 6, "some of the turns"),
        (
            Turns((dataclasses.replace(FULL, compression=1),)),
            6,
            "a payload comes along, compressed",
        ),
        (Turns((dataclasses.replace(BARE, compression=2),)), 6, "compression is 2"),
        (Turns((dataclasses.replace(BARE, depth=MOST32 + 1),)), 6, "depth is a number of 33 bits"),
        (Turns((), -1), 8, "head_depth is"),
        (Failure(MOST32 + 1, ""), 1, "code is"),
        (BlobPut(A, new=1), 11, "new is int"),  # type: ignore[arg-type]
        (
            Welcome(MOST64 + 1),
            1,
            f"session_id is a number of 65 bits - give a whole number of 0 to {MOST64}",
        ),
        (FsAttached(1, bytearray(32)), 10, "root is not"),  # type: ignore[arg-type]
    ],
)
def test_a_reply_that_does_not_fit(message: Reply, type: int, name: str) -> None:
    """A reply of the wrong kind, or with a value that its field cannot hold, is refused."""
    with pytest.raises(InputError, match=f"^{name}"):
        encode_reply(message, 1, type)


def test_the_number_of_a_request_is_a_u64() -> None:
    """A `req_id` beyond 64 bits is refused by name."""
    with pytest.raises(InputError, match=r"^req_id is a number of 65 bits"):
        encode_request(Hello(), MOST64 + 1)
    with pytest.raises(InputError, match=r"^req_id is a number of 1 bits"):
        encode_reply(Welcome(1), -1, 1)


def test_a_failure_can_always_be_sent() -> None:
    """The text of an ERROR is cut at a whole character, and half characters are spelled out."""
    texts = {
        "é" * MAX_TEXT + "!": "é" * (MAX_TEXT // 2),
        "x" + "é" * MAX_TEXT: "x" + "é" * (MAX_TEXT // 2 - 1),
        "y" * MAX_TEXT: "y" * MAX_TEXT,
        "a\ud800b": "a\\ud800b",
    }
    for text, sent in texts.items():
        frame = frame_of(encode_reply(Failure(500, text), 1))
        assert decode_reply(frame, 5) == Failure(500, sent)


# Limits.

_TURN = AppendTurn(1, 0, "", 0, 0, 0, 0, A, b"")
LIMITS: list[tuple[Callable[[int], Request], int, str]] = [
    (lambda n: Hello(1, "x" * n), MAX_TAG, "tag"),
    (lambda n: Hello(1, "", "x" * n), MAX_META, "meta_json"),
    (lambda n: dataclasses.replace(_TURN, type_id="x" * n), MAX_TYPE_ID, "type_id"),
    (lambda n: dataclasses.replace(_TURN, idempotency_key=b"x" * n), MAX_KEY, "idempotency_key"),
]


@pytest.mark.parametrize(("make", "most", "name"), LIMITS)
def test_a_field_has_its_limit(
    make: Callable[[int], Request], most: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text or key at its limit passes; one byte more is a 413 that names it."""
    largest = make(most)
    assert settled(decode_request(frame_of(encode_request(largest, 1)))) == largest
    why = rf"the {name} is too large \({most + 1} bytes"
    with pytest.raises(TooLargeError, match=why):
        encode_request(make(most + 1), 1)
    if name == "tag":
        return  # its length has no bits for more
    limit = {"meta_json": "MAX_META", "type_id": "MAX_TYPE_ID"}.get(name, "MAX_KEY")
    with monkeypatch.context() as patch:
        patch.setattr(frames, limit, most + 1)
        frame = frame_of(encode_request(make(most + 1), 1))
    with pytest.raises(TooLargeError, match=why) as caught:
        decode_request(frame)
    assert caught.value.wire_code == 413
    assert not isinstance(caught.value, TooLong)


def test_the_type_of_a_turn_in_a_reply_has_its_limit() -> None:
    """A type id beyond its limit is refused in replies too, at both ends."""
    long = Turns((dataclasses.replace(BARE, type_id="x" * (MAX_TYPE_ID + 1)),))
    with pytest.raises(TooLargeError):
        encode_reply(long, 1, 6)
    body = bytes.fromhex(f"01000000 {_BARE}")
    body = body[:24] + struct.pack("<I", MAX_TYPE_ID + 1) + b"x" * (MAX_TYPE_ID + 1) + body[29:]
    with pytest.raises(TooLargeError):
        decode_reply(Frame(6, 0, 1, body), 6)


def test_the_limits_are_these() -> None:
    """The limits are part of what others build on."""
    found = (MAX_FRAME, MAX_TYPE_ID, MAX_KEY, MAX_TAG, MAX_META, MAX_TEXT)
    assert found == (1 << 26, 1 << 18, 65536, 65535, 65536, 65536)


def test_no_frame_is_longer_than_the_limit() -> None:
    """A payload of 64 MiB passes; one byte more is refused, with number and type."""
    data = bytes(MAX_FRAME - 4)
    frame = frame_of(encode_reply(BlobBytes(data), 7, 9))
    assert len(frame.payload) == MAX_FRAME
    del frame
    why = rf"the payload of GET_BLOB is too large \({MAX_FRAME + 1} bytes"
    with pytest.raises(TooLong, match=why) as caught:
        encode_reply(BlobBytes(data + b"x"), 7, 9)
    assert (caught.value.type, caught.value.req_id, caught.value.wire_code) == (9, 7, 413)
    with pytest.raises(TooLong) as caught:
        encode_request(PutBlob(A, data), 8)
    assert (caught.value.type, caught.value.req_id) == (11, 8)


@settings(deadline=None)
@given(BARES, FULLS, st.none() | U32)
def test_the_size_of_turns_is_known_before(
    bares: list[WireTurn], fulls: list[WireTurn], depth: int | None
) -> None:
    """`turn_size` sums up to the payload of the reply, but for the bytes before the turns."""
    for turns in (bares, fulls):
        kind = Type.GET_LAST if depth is None else Type.GET_RANGE_BY_DEPTH
        frame = frame_of(encode_reply(Turns(tuple(turns), depth), 1, kind))
        sizes = [turn_size(t.type_id, None if t.payload is None else len(t.payload)) for t in turns]
        assert sum(sizes) + (4 if depth is None else 8) == len(frame.payload)
        assert sum(sizes) + TURNS_HEAD >= len(frame.payload)


def test_turns_that_just_fit() -> None:
    """Turns whose sizes and TURNS_HEAD make MAX_FRAME can be sent; one byte more cannot."""
    room = MAX_FRAME - TURNS_HEAD - turn_size("é", 0)
    turn = dataclasses.replace(FULL, type_id="é", payload=bytes(room))
    assert TURNS_HEAD + turn_size("é", room) == MAX_FRAME
    assert len(encode_reply(Turns((turn,), 1), 1, 8)) == 16 + MAX_FRAME
    with pytest.raises(TooLong):
        encode_reply(Turns((dataclasses.replace(turn, payload=bytes(room + 1)),), 1), 1, 8)


# Bytes that are wrong.


def test_the_errors_and_their_codes() -> None:
    """Each error has the code that the table gives to its kind."""
    assert Malformed("a", "b").wire_code == 400
    assert Unsupported("a", "b").wire_code == 422
    assert Refused("a", "b").wire_code == 409
    assert TooLong(9, 8, 5, 1).wire_code == TooLargeError(9, 8).wire_code == 413
    why = "the payload of message type 77 is too large (9 bytes, the limit is 8)"
    assert str(TooLong(9, 8, 77, 1)).startswith(why)


@pytest.mark.parametrize(("type", "flags", "message", "payload"), ASKED)
def test_a_request_that_is_cut(type: int, flags: int, message: Request, payload: str) -> None:
    """A request cut anywhere, or with a byte more, is malformed; but a HELLO may be empty."""
    body = bytes.fromhex(payload)
    for end in range(type == 1, len(body)):
        with pytest.raises(Malformed):
            decode_request(Frame(type, flags, 1, body[:end]))
    with pytest.raises(Malformed, match=": 1 bytes follow its last field"):
        decode_request(Frame(type, flags, 1, body + b"\0"))


@pytest.mark.parametrize(("of_type", "payloads", "type", "message", "payload"), ANSWERED)
def test_a_reply_that_is_cut(
    of_type: int, payloads: bool, type: int, message: Reply, payload: str
) -> None:
    """A reply cut anywhere, or with a byte more, is malformed."""
    body = bytes.fromhex(payload)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            decode_reply(Frame(type, 0, 1, body[:end]), of_type, payloads)
    with pytest.raises(Malformed, match=": 1 bytes follow its last field"):
        decode_reply(Frame(type, 0, 1, body + b"\0"), of_type, payloads)


def test_the_field_at_fault_is_named() -> None:
    """Wherever an append is cut, the message names the field that the cut is in."""
    data = bytes.fromhex(next(v[3] for v in ASKED if v[1] == 1))
    sizes = {
        "context_id": 8, "parent_turn_id": 8, "type_id": 5, "type_version": 4, "encoding": 4, "compression": 4,
        "uncompressed_len": 4, "hash": 32, "payload": 5, "idempotency_key": 4, "fs_root": 32,
    }  # fmt: skip
    names = [name for name, size in sizes.items() for _ in range(size)]
    assert len(names) == len(data)
    for end, name in enumerate(names):
        with pytest.raises(Malformed, match=rf"^APPEND_TURN: .*\b{name}\b"):
            decode_request(Frame(5, 1, 1, data[:end]))


@pytest.mark.parametrize(
    ("type", "payload", "at", "width"),
    [
        (1, "0100 0000 00000000", 2, 2),
        (1, "0100 0000 00000000", 4, 4),
        (5, ASKED[9][3], 16, 4),
        (5, ASKED[9][3], 68, 4),
        (5, ASKED[9][3], 72, 4),
        (11, f"{AS} 00000000", 32, 4),
    ],
)
@pytest.mark.parametrize("extra", [0, 1, 30])
def test_a_length_is_not_believed(type: int, payload: str, at: int, width: int, extra: int) -> None:
    """A length beyond the frame is malformed, and nothing is allocated for it."""
    body = bytearray(bytes.fromhex(payload)) + bytes(extra)
    left = len(body) - at - width
    for length in (left + 1, (1 << 8 * width) - 1):
        body[at : at + width] = length.to_bytes(width, "little")
        with malformed(f"is said to be {length} bytes long, and {left} are left"):
            decode_request(Frame(type, 0, 1, bytes(body)))


@pytest.mark.parametrize("payloads", [False, True])
@pytest.mark.parametrize("count", [1, 2, MOST32])
def test_a_count_is_not_believed(payloads: bool, count: int) -> None:
    """A reply with more turns than bytes is malformed, and nothing is allocated."""
    for kind, head in ((6, b""), (8, bytes(4))):
        least = 76 if payloads else 72
        left = min(count, 2) * least - 1
        body = head + struct.pack("<I", count) + bytes(left)
        with malformed(f"count is {count}, and {left} bytes are left"):
            decode_reply(Frame(kind, 0, 1, body), kind, payloads)


@pytest.mark.parametrize(
    ("decode", "name"),
    [
        (lambda: decode_request(Frame(1, 0, 1, bytes.fromhex("0100 0100 ff 00000000"))), "HELLO: tag"),
        (lambda: decode_request(Frame(1, 0, 1, bytes.fromhex("0100 0000 01000000 80"))), "HELLO: meta_json"),
        (lambda: decode_request(Frame(5, 0, 1, bytes(16) + b"\x02\0\0\0\xc3\x28" + bytes(56))), "APPEND_TURN: type_id"),
        (lambda: decode_request(Frame(5, 0, 1, bytes(16) + b"\x03\0\0\0\xed\xa0\x80" + bytes(56))), "APPEND_TURN: type_id"),
        (lambda: decode_reply(Frame(255, 0, 1, bytes(4) + b"\x01\0\0\0\xff"), 5), "ERROR: text"),
        (lambda: decode_reply(Frame(6, 0, 1, b"\x01\0\0\0" + bytes(20) + b"\x01\0\0\0\xff" + bytes(48)), 6), "GET_LAST: type_id"),
    ],
)  # fmt: skip
def test_text_is_utf8(decode: Callable[[], object], name: str) -> None:
    """Text that is not UTF-8, a surrogate included, is malformed; the field is named."""
    with pytest.raises(Malformed, match=f"^{name} is not UTF-8 from byte 0 on"):
        decode()


@pytest.mark.parametrize(("type", "flags", "message", "payload"), ASKED)
def test_flags_that_are_not_in_the_table(
    type: int, flags: int, message: Request, payload: str
) -> None:
    """Flags other than an append's root are ignored, each bit and all of them."""
    body = bytes.fromhex(payload)
    for bits in [1 << bit for bit in range(16)] + [MOST16]:
        if type != 5 or not bits & 1 or flags & 1:
            assert decode_request(Frame(type, flags | bits, 1, body)) == message
    if type == 5:  # then the root is missing, or in excess
        with pytest.raises(Malformed, match="fs_root" if flags == 0 else "32 bytes follow"):
            decode_request(Frame(type, flags ^ 1, 1, body))


def test_a_reply_has_no_flags() -> None:
    """A reply with any flag is malformed."""
    for kind, body in ((9, bytes(4)), (255, bytes(8))):
        for bit in range(16):
            with pytest.raises(Malformed, match="flags are 0x"):
                decode_reply(Frame(kind, 1 << bit, 1, body), 9)


@pytest.mark.parametrize("type", [0, 12, 63, 65, 255, MOST16])
def test_a_type_that_is_no_request(type: int) -> None:
    """A type that is no request, and a compression that is none, is a 422."""
    with pytest.raises(Unsupported):
        decode_request(Frame(type, 0, 1, bytes(8)))
    with pytest.raises(Unsupported):
        decode_request(Frame(5, 0, 1, bytes(28) + struct.pack("<I", 2) + bytes(44)))
    with pytest.raises(Unsupported):
        decode_reply(Frame(6, 0, 1, b"\1" + bytes(35) + b"\2" + bytes(39)), 6)


@pytest.mark.parametrize("number", [1, 2, 256, 1 << 31, MOST32])
def test_any_number_but_0_asks_for_payloads(number: int) -> None:
    """`include_payload` is 0 for no, and anything else for yes."""
    told = struct.pack("<I", number)
    for kind, fixed, message in (
        (6, 12, GetLast(0, 0, True)),
        (7, 20, GetBefore(0, 0, 0, True)),
        (8, 16, GetRange(0, 0, 0, True)),
    ):
        no = dataclasses.replace(message, include_payload=False)
        assert decode_request(Frame(kind, 0, 1, bytes(fixed) + told)) == message
        assert decode_request(Frame(kind, 0, 1, bytes(fixed) + bytes(4))) == no


def test_a_payload_does_not_come_compressed() -> None:
    """A payload marked as compressed is malformed; without a payload the mark is valid."""
    body = b"\1\0\0\0" + bytes(32) + b"\1" + bytes(39)
    with pytest.raises(Malformed, match="compression is 1 though the payload comes along"):
        decode_reply(Frame(6, 0, 1, body + bytes(4)), 6, payloads=True)
    found = decode_reply(Frame(6, 0, 1, body), 6)
    assert isinstance(found, Turns)
    assert found.turns[0].compression == 1


def test_every_reply_but_the_right_one() -> None:
    """A reply of another type than the request's, or of none, is malformed; ERROR answers each."""
    for kind in KINDS:
        assert decode_reply(Frame(255, 0, 1, bytes(8)), kind) == Failure(0, "")
        for other in (*range(13), 64, 254, MOST16):
            if other != kind:
                with pytest.raises(Malformed, match=f"does not answer {Type(kind).name}"):
                    decode_reply(Frame(other, 0, 1, b""), kind)


ANY_KIND = st.integers(0, 13) | st.sampled_from([64, 255]) | U16
VALID = [(v[0], v[1], bytes.fromhex(v[3])) for v in ASKED]
VALID += [(v[2], 0, bytes.fromhex(v[4])) for v in ANSWERED]


@st.composite
def mutants(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """Return a sound payload with some bytes changed, cut out or put in."""
    kind, flags, body = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        end = draw(st.integers(at, min(len(body), at + 4)))
        body = body[:at] + draw(st.binary(max_size=4)) + body[end:]
    return kind, flags, body


def _is_yes(kind: int, encoded: bytes, body: bytes) -> bool:
    """Return whether a payload ends with a yes that is spelled otherwise than we do."""
    size = {6: 4, 7: 4, 8: 4, 11: 1}.get(kind, 0)
    yes = (1).to_bytes(size, "little")
    spelled = bool(size) and body[-size:] not in (yes, bytes(size))
    return spelled and encoded == raw(kind, 0, 1, body[:-size] + yes)


@settings(deadline=None, max_examples=200)
@given(st.tuples(ANY_KIND, st.sampled_from([0, 1]) | U16, st.binary(max_size=200)) | mutants(), YES)
@example((1, 0, b""), False)
def test_any_bytes_give_a_message_or_a_known_error(
    given: tuple[int, int, bytes], payloads: bool
) -> None:
    """Any frame decodes to a message that encodes to the same bytes, or to a known error."""
    kind, flags, body = given
    try:
        request = decode_request(Frame(kind, flags, 1, body))
    except (Malformed, Unsupported, TooLargeError):
        pass
    else:
        again = encode_request(request, 1)
        known = flags & 1 if kind == 5 else 0
        same = again == raw(kind, known, 1, body)
        assert same or (kind, body) == (1, b"") or _is_yes(kind, again, body)
    for of_type in {kind, 6}:
        try:
            reply = decode_reply(Frame(kind, flags, 1, body), of_type, payloads)
        except (Malformed, Unsupported, TooLargeError):
            pass
        else:
            again = encode_reply(reply, 1, of_type)
            assert again == raw(kind, flags, 1, body) or _is_yes(kind, again, body)


# The reader.

WHOLE = [Frame(kind, flags, number, body) for number, (kind, flags, body) in enumerate(VALID)]
STREAM = b"".join(raw(one.type, one.flags, one.req_id, bytes(one.payload)) for one in WHOLE)


def test_one_byte_at_a_time_is_as_good_as_all() -> None:
    """Frames are the same whether the stream arrives whole or byte by byte."""
    reader = Reader()
    reader.feed(STREAM)
    assert list(reader.frames()) == WHOLE
    slow = Reader()
    found: list[Frame] = []
    seen: list[int] = []
    for at in range(len(STREAM)):
        slow.feed(STREAM[at : at + 1])
        new = list(slow.frames())
        found += new
        seen += [at + 1] * len(new)
    assert found == WHOLE
    ends = [sum(16 + len(frame.payload) for frame in WHOLE[: n + 1]) for n in range(len(WHOLE))]
    assert seen == ends
    assert reader.pending == slow.pending == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.lists(st.integers(0, 4), min_size=14))
def test_a_stream_cut_anywhere(cuts: list[int], takes: list[int]) -> None:
    """Frames are the same for any cuts of the stream; `pending` counts the rest."""
    places = [0, *sorted(cuts), len(STREAM)]
    reader = Reader()
    found: list[Frame] = []
    fed = 0
    for start, end, most in zip(places, places[1:], takes, strict=False):
        reader.feed(memoryview(STREAM)[start:end])
        fed += end - start
        for _ in range(most):
            frame = reader.next()
            assert (frame is None) == (reader.needs() > 0) or frame is not None
            if frame is not None:
                found.append(frame)
        assert reader.pending == fed - sum(16 + len(frame.payload) for frame in found)
    found += reader.frames()
    assert found == WHOLE
    assert (reader.pending, reader.needs()) == (0, 16)


def test_a_peer_that_reads_what_is_needed_reads_no_more() -> None:
    """`needs` is the rest of the header, then of the frame, then 0."""
    reader = Reader()
    at, asked = 0, []
    found: list[Frame] = []
    while at < len(STREAM):
        asked.append(reader.needs())
        reader.feed(STREAM[at : at + asked[-1]])
        at += asked[-1]
        if not reader.needs():
            found += reader.frames()
            assert reader.pending == 0
    assert found == WHOLE
    assert asked == [n for frame in WHOLE for n in (16, len(frame.payload)) if n]
    reader.feed(b"123")
    assert (reader.needs(), reader.pending, reader.next()) == (13, 3, None)
    half = Reader()
    half.feed(raw(9, 0, 1, A)[:-5])
    assert (half.needs(), half.pending, half.next()) == (5, 43, None)


def test_a_frame_that_is_too_long() -> None:
    """A header beyond the limit is refused at once; frames before it are returned."""
    good = raw(4, 0, 1, bytes(8))
    reader = Reader()
    reader.feed(good + struct.pack("<IHHQ", MAX_FRAME + 1, 11, 0, 77)[:-1])
    assert [frame.req_id for frame in reader.frames()] == [1]
    assert reader.needs() == 1
    reader.feed(b"\0")
    assert reader.needs() == 0
    why = f"payload of PUT_BLOB is too large .{MAX_FRAME + 1} bytes"
    for _ in range(2):
        with pytest.raises(TooLong, match=why) as caught:
            reader.next()
        assert (caught.value.type, caught.value.req_id, caught.value.wire_code) == (11, 77, 413)
        reader.feed(good * 9)
        assert (reader.pending, reader.needs()) == (0, 0)
    with pytest.raises(TooLong):
        list(reader.frames())


def test_the_limit_is_exact_and_can_be_moved() -> None:
    """The limit itself passes, one byte more does not; a raised limit holds from then on."""
    reader = Reader(limit=8)
    reader.feed(raw(4, 0, 1, bytes(8)))
    assert reader.next() == Frame(4, 0, 1, bytes(8))
    reader.feed(raw(4, 0, 2, bytes(9)))
    reader.limit = 9
    assert reader.next() == Frame(4, 0, 2, bytes(9))
    reader.feed(raw(4, 0, 3, bytes(10)))
    with pytest.raises(TooLong, match="10 bytes, the limit is 9"):
        reader.next()
    assert Reader().limit == MAX_FRAME


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 64))
@example([struct.pack("<IHHQ", MOST32, 5, 0, 1), b"x"], MAX_FRAME)
def test_any_bytes_give_frames_or_too_long(parts: list[bytes], limit: int) -> None:
    """For any bytes, the reader returns frames within the limit, waits, or raises TooLong."""
    reader = Reader(limit)
    data = b""
    for part in parts:
        reader.feed(part)
        data += part
        try:
            for frame in reader.frames():
                assert len(frame.payload) <= limit
                head = raw(frame.type, frame.flags, frame.req_id, bytes(frame.payload))
                assert data.startswith(head)
                data = data[len(head) :]
        except TooLong:
            assert struct.unpack_from("<I", data)[0] > limit
            return
        assert reader.pending == len(data)
        assert 0 < reader.needs() <= 16 + limit


def test_a_header_allocates_nothing() -> None:
    """A thousand peers that announce 64 MiB and send nothing cost next to nothing."""
    tracemalloc.start()
    readers = [Reader() for _ in range(1000)]
    for reader in readers:
        reader.feed(struct.pack("<IHHQ", MAX_FRAME, 5, 0, 1))
        assert reader.next() is None
        assert reader.needs() == MAX_FRAME
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_memory_is_that_of_one_frame() -> None:
    """A long frame in small pieces takes its own length and a growing buffer's spare room."""
    piece = bytes(1 << 16)
    tracemalloc.start()
    reader = Reader()
    reader.feed(struct.pack("<IHHQ", 128 << 16, 5, 0, 1))
    for _ in range(128):
        reader.feed(piece)
    (frame,) = reader.frames()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(frame.payload) == 8 << 20
    assert most < (8 << 20) * 1.3
    assert reader.pending == 0


def test_what_was_given_out_is_not_kept() -> None:
    """The reader lets go of what it gave out, also when the beginning of another frame stays."""
    reader = Reader()
    tracemalloc.start()
    reader.feed(raw(9, 0, 1, bytes(1000)) * 4000 + b"x")
    assert sum(1 for _ in reader.frames()) == 4000
    now = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert reader.pending == 1
    assert now < 100_000


def test_a_backlog_shrinks_as_it_is_worked_off() -> None:
    """Frames that were taken hold no more memory than frames that were not."""
    reader = Reader()
    tracemalloc.start()
    reader.feed(raw(9, 0, 1, bytes(984)) * 1000)
    for taken in range(1, 1000):
        assert reader.next()
        assert reader.pending == (1000 - taken) * 1000
        assert tracemalloc.get_traced_memory()[0] <= 2 * reader.pending + 10_000
    tracemalloc.stop()


def test_the_time_is_linear() -> None:
    """A backlog of 400,000 small frames is processed in linear time."""
    reader = Reader()
    reader.feed(raw(4, 0, 1, bytes(8)) * 400_000)
    assert sum(1 for _ in reader.frames()) == 400_000


def test_a_view_is_its_own_memory() -> None:
    """A payload is read-only, and unaffected by what follows it."""
    one, two = raw(11, 0, 1, A + b"\x03\0\0\0abc"), raw(11, 0, 2, B + b"\x03\0\0\0xyz")
    for data in (one, one + two, two + one):
        fed = bytearray(data)
        reader = Reader()
        reader.feed(fed)
        found = [decode_request(frame) for frame in reader.frames()]
        fed[:] = bytes(len(fed))
        reader.feed(data * 3)
        list(reader.frames())
        blobs = [blob for blob in found if isinstance(blob, PutBlob)]
        assert sorted(bytes(blob.data) for blob in blobs) == sorted({b"abc", b"xyz"})[: len(found)]
        for blob in blobs:
            assert isinstance(blob.data, memoryview)
            assert blob.data.readonly


# Who may send what when.

EVERY = [0, *range(1, 13), 254, 255, MOST16]
MAY = {"locked": {1}, "new": set(EVERY), "ready": set(EVERY), "closing": set()}
THEN = {"locked": {1: "ready"}, "new": {1: "ready"}, "ready": {}, "closing": {}}


def test_the_tables_are_exact() -> None:
    """The states and steps are exactly these, and consistent."""
    assert SERVER == {
        "locked": {"hello": "ready", "too long": "closing"},
        "new": {"hello": "ready", "request": "new", "too long": "closing"},
        "ready": {"hello": "ready", "request": "ready", "too long": "closing"},
        "closing": {},
    }
    assert {to for events in SERVER.values() for to in events.values()} <= set(SERVER)


@pytest.mark.parametrize("type", EVERY)
@pytest.mark.parametrize("state", sorted(MAY))
def test_every_request_in_every_state(state: str, type: int) -> None:
    """Each state allows exactly these requests; `allow` changes nothing."""
    session = Session()
    session.state = state
    if type in MAY[state]:
        session.allow(type)
        assert session.state == state
        session.received(type)
        assert session.state == THEN[state].get(type, state)
        return
    why = "came before a token" if state == "locked" else "that is closing"
    for call in (session.allow, session.received):
        with pytest.raises(Refused, match=why) as caught:
            call(type)
        assert (session.state, caught.value.wire_code) == (state, 409)


def test_where_a_session_starts_and_ends() -> None:
    """The initial state depends on the token; a frame that is too long closes for good."""
    assert Session().state == "new"
    assert Session(token_required=True).state == "locked"
    for state in SERVER:
        session = Session()
        session.state = state
        session.too_long()
        assert session.state == "closing"
        with pytest.raises(Refused, match="that is closing - open another one"):
            session.allow(1)


# Both sides.


def pump(data: bytes, sizes: list[int]) -> list[Frame]:
    """Return the frames of a stream that comes in pieces of these sizes, over and over."""
    reader = Reader()
    found: list[Frame] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
        found += reader.frames()
    assert reader.pending == 0
    return found


@settings(deadline=None)
@given(st.lists(EXCHANGE, max_size=6), st.lists(st.integers(1, 50), min_size=1, max_size=4), YES)
def test_two_peers_understand_each_other(
    exchanges: list[tuple[Request, Reply]], sizes: list[int], token_required: bool
) -> None:
    """Pipelined requests and replies arrive in order."""
    if token_required:
        exchanges = [(Hello(1, "t", '{"token":"x"}'), Welcome(1)), *exchanges]
    session = Session(token_required=token_required)
    sent = b"".join(encode_request(request, n) for n, (request, _) in enumerate(exchanges))
    answered = b""
    for frame, (request, reply) in zip(pump(sent, sizes), exchanges, strict=True):
        session.allow(frame.type)
        assert settled(decode_request(frame)) == request
        session.received(frame.type)
        answered += encode_reply(reply, frame.req_id, frame.type)
    for frame, (request, reply) in zip(pump(answered, sizes), exchanges, strict=True):
        payloads = getattr(request, "include_payload", False)
        assert settled(decode_reply(frame, frame.type, payloads)) == reply


def test_the_module_touches_nothing() -> None:
    """The protocol imports no socket, clock, thread or database."""
    with open(str(frames.__file__), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = {
        name
        for node in tree.body
        for name in (
            [str(node.module)] if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        )
    }  # fmt: skip
    assert found == {"__future__", "dataclasses", "enum", "eventq.errors", "operator", "struct"}
    inside = [
        node for one in tree.body if isinstance(one, ast.FunctionDef) for node in ast.walk(one)
    ]
    assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in inside)
