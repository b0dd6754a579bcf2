"""A connection: calls return the same as locally, even after lost connections."""

from __future__ import annotations

import gc
import inspect
import io
import json
import os
import random
import socket
import struct
import threading
import tracemalloc
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import InputError, LogicError, Turn, UsageError
from eventq.errors import ClosedError, ConflictError, DamagedBlobError, EventqError, TooLargeError
from eventq.memory.blobs import Blobs
from eventq.memory.turns import Diff, Turns
from eventq.records.turn import NewTurn, Page
from eventq.storage.sqlite.turns import Turns as TurnTable
from eventq.wire import client, remote
from eventq.wire.client import Connection, connect, parse
from eventq.wire.frames import (
    Call,
    Called,
    Frame,
    Hello,
    Malformed,
    Reader,
    Type,
    Welcome,
    decode_request,
    encode_reply,
)
from eventq.wire.remote import Pages, Remote
from eventq.wire.rpc import CALLS, LOCAL, WRITE, Calls, failure
from tests.wire.support import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import apsw

    from eventq import Thread
    from tests.conftest import Clock

MIB = 1 << 20
NAMES: list[Any] = ["", "x" * 65536, "x" * 65537, "a\nb", "\ud800", 5, None]
ODD: list[Any] = [
    None, True, 0, -1, 1 << 63, 1 << 64, 0.5, "", "x", "\ud800", b"", b"x" * 32, [], [1], (), "a" * 64,
]  # fmt: skip
NOISE = random.Random(1).randbytes(MIB)
MISSING = "blob:blake3:" + "0" * 64


@pytest.fixture
def connection(serve: Callable[..., Served]) -> Iterator[Connection]:
    """Return a connection to a server of a fresh thread."""
    with connect(serve().url) as made:
        yield made


# The same as at home.


def plain(value: Any) -> Any:
    """Return what can be compared: kinds and ids of objects, the items of iterators."""
    name = type(value).__name__.removeprefix("Remote")
    if isinstance(value, Diff):
        return [value.ancestor, plain(value.mine), plain(value.theirs)]
    if name == "Chain":
        return [len(value), plain(iter(value)), plain(iter(value))]
    if name == "View":
        return [name, value.head_id()]
    if name in ("Context", "OpenTurn"):
        return [name, value.id]
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return [type(value), *map(plain, value)]
    return everything(value) if hasattr(value, "__next__") else [type(value), value]


def everything(items: Iterator[Any]) -> list[Any]:
    """Return what an iterator gives, and the error that it ends with."""
    found: list[Any] = []
    try:
        found.extend(plain(item) for item in items)
    except EventqError as error:
        found.append(told(error))
    return found


def told(error: EventqError) -> Any:
    """Return all there is to an error but its `args`, which may be older than what it says."""
    return [type(error), str(error), vars(error), error.exit_code, error.wire_code]


def seen(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or raises."""
    try:
        return plain(call())
    except EventqError as error:
        return told(error)
    except TypeError:
        return TypeError


def of_contexts(memory: Any) -> Iterator[Any]:
    """Make, find, fork, move and delete contexts."""
    contexts = memory.contexts
    for name in (None, "main", "main", "", "7", "x" * 201, "a\nb", "\ud800", "😀", 7, b"a"):
        yield lambda name=name: contexts.create(name)
    main = contexts.get("main")
    for number in range(5):
        yield lambda number=number: main.append(NewTurn(f"turn {number}", type_id=f"t{number}"))
    some: list[Any] = [2, "2", "main", 99, "nobody", "9" * 30, "\ud800", -1, None, 1.5, [], b"main"]
    for which in some:
        yield lambda which=which: contexts.get(which)
        yield lambda which=which: contexts.head(which)
        yield lambda which=which: contexts.fork(which)
        yield lambda which=which: contexts.history(which)
    yield lambda: contexts.head(main)
    for at in (0, 3, 99, -1, "x", None):
        yield lambda at=at: contexts.fork("main", at=at)
        yield lambda at=at: contexts.fork(main, at=at, name=f"at {at}")
        yield lambda at=at: main.fork(at=at)
        yield lambda at=at: contexts.create(base=at)
    for to, expected in ((3, 5), (3, 4), (99, 5), (0, 3), (5, 0), (-1, 5), (5, "x")):
        yield partial(contexts.compare_and_set, "main", to, expected_head=expected)
        yield partial(main.move, to, expected_head=expected)
    yield lambda: main.move(5)
    for after in ODD:
        yield lambda after=after: contexts.list(after)
    yield lambda: iter(contexts)
    yield lambda: [main.info() in contexts, 5 in contexts]
    yield lambda: contexts.children(3)
    yield lambda: contexts.children(3, limit=1)
    for odd in ODD:
        yield lambda odd=odd: contexts.children(odd)
        yield lambda odd=odd: contexts.children(1, odd)
        yield lambda odd=odd: contexts.turn(odd)
        yield lambda odd=odd: contexts.turn(1, as_of=odd)
        yield lambda odd=odd: contexts.at(odd)
    gone = contexts.create("gone", base=3)
    gone.append("last words")
    yield gone.delete
    for method in ("delete", "info", "head_id", "history", "last", "replay", "open_turns"):
        yield getattr(gone, method)
    yield lambda: gone.append("x")
    yield lambda: contexts.history(gone.id)
    yield lambda: contexts.delete("main")
    yield lambda: contexts.delete("main")
    for wrong in ({}, {"nonsense": 1}, {"context": 1, "at": 2, "who": 3}):
        yield lambda wrong=wrong: contexts.fork(**wrong)
    yield lambda: contexts.turns.common(3, 5)
    turns = contexts.turns
    yield lambda: [turns.depth(5), turns.ancestor(5, 1), turns.ancestor(5, 9)]
    yield lambda: turns.depth(99)


def of_appending(memory: Any) -> Iterator[Any]:
    """Append payloads of every kind, with every promise that can be broken."""
    context = memory.contexts.create("main")
    refs = [memory.blobs.put(bytes([n])).ref for n in range(3)]
    payloads: list[Any] = [
        "text", "", "é☃😀", "half \ud800", b"", b"\x00\xff", bytearray(b"abc"), memoryview(b"abcd").cast("H"), memoryview(b"a-b-")[::2],
        memoryview(b""), None, 5, {"a": 1}, ["x"], object,
    ]  # fmt: skip
    for payload in payloads:
        yield lambda payload=payload: context.append(payload)
        yield lambda payload=payload: context.patch(1, payload)
        yield lambda payload=payload: memory.contexts.patch(2, payload)
        yield lambda: context.last(1)
    values: list[Any] = [
        {"b": 1, "a": [1, 2.5, None, True]}, b'{"z": 1, "y": 2}', "text", b"{", {1: 2}, float("nan"), object(), 10**5000,
        "\ud800", [[]] * 9,
    ]  # fmt: skip
    for value in values:
        yield lambda value=value: context.append(NewTurn(value, canonical="eventq-json-1"))
        yield lambda value=value: context.patch(1, NewTurn(value, canonical="eventq-json-1"))
        yield lambda: context.last(1)
    yield lambda: context.append(NewTurn("x", canonical="nonsense"))
    yield lambda: context.append(NewTurn("x", canonical=""))
    for data in (b"", b"short", NOISE, b"compressible " * 200_000):
        yield lambda data=data: context.append(io.BytesIO(data))
        yield lambda: context.last(1)
    yield lambda: context.append(io.StringIO("text"))
    several: list[Any] = [
        refs, tuple(refs), set(refs), iter(refs), (ref for ref in refs), dict.fromkeys(refs), [],
        [bytes.fromhex(refs[0][-64:])], refs[0], b"x", 5, None, [MISSING], ["x"], [5], [refs[0], None], [[]],
    ]  # fmt: skip
    for given in several:
        yield lambda given=given: context.append(NewTurn("with refs", refs=given))
    for odd in ODD:
        for name in ("flags", "encoding", "type_version"):
            yield lambda odd=odd, name=name: context.append(NewTurn("x", **{name: odd}))
    for odd in (*NAMES, b"x"):
        yield lambda odd=odd: context.append(NewTurn("x", type_id=odd))
        yield lambda odd=odd: context.append("x", key=odd)
        yield lambda odd=odd: context.append("x", source=odd)
    yield lambda: context.append("keyed", key="k")
    yield lambda: context.append("keyed", key="k")
    yield lambda: context.append("other", key="k")
    head = context.head_id()
    for at in (head, head - 1, 0, 999, -1, "x"):
        yield lambda at=at: context.append("x", expected_head=at)
        yield lambda at=at: context.append("x", parent=at)
    for expected in (refs[0], refs[0][-64:], "nonsense", 5, MISSING, b"x"):
        yield lambda expected=expected: context.append(NewTurn(b"\x00", expect_hash=expected))
    for size in (1, 2, -1):
        yield lambda size=size: context.append(NewTurn(b"\x00", expect_size=size))
    yield context.append
    yield lambda: context.append("x", "y")
    yield lambda: context.append("x", nonsense=1)
    yield lambda: memory.contexts.tombstone(1)
    yield lambda: context.tombstone(2)
    yield lambda: memory.contexts.tombstone(1, flags=-1)
    yield lambda: memory.contexts.tombstone(999)
    yield lambda: memory.contexts.create().patch(1, "x")
    yield lambda: memory.contexts.attach(1, refs[0])
    yield lambda: memory.contexts.attach(999, refs[0])
    yield lambda: memory.contexts.attach(1, "x")
    yield lambda: [memory.contexts.root(1), memory.contexts.root(2)]
    yield lambda: memory.contexts.root(999)
    yield context.replay
    yield context.history


def of_reading(memory: Any) -> Iterator[Any]:
    """Read chains in every way, with every argument."""
    main = memory.contexts.create("main")
    for number in range(12):
        main.append(f"turn {number}")
    other = main.fork(at=5)
    for number in range(4):
        other.append(f"other {number}")
    main.patch(3, "changed")
    main.tombstone(4)
    empty, view = memory.contexts.create(), memory.contexts.at(7)
    for chain in (main, other, empty, view, memory.contexts.at(16)):
        yield chain.head_id
        for payload in (True, False):
            for as_of in (None, 0, 1, 2, 99):
                named = {"payload": payload, "as_of": as_of}
                yield partial(chain.last, 3, **named)
                yield partial(chain.before, 5, **named)
                yield partial(chain.range, 2, 2, **named)
                yield partial(chain.replay, **named)
                yield partial(memory.contexts.turn, 3, **named)
        for odd in ODD:
            for method in ("last", "before", "range", "ancestor", "has", "at"):
                yield partial(getattr(chain, method), odd)
            yield partial(chain.last, as_of=odd)
            yield partial(chain.before, 3, odd)
            yield partial(chain.range, 1, odd)
            yield partial(chain.replay, start_depth=odd)
            yield partial(chain.replay, as_of=odd)
        for against in (main, other, empty, view):
            yield partial(chain.common_ancestor, against)
            yield partial(chain.diff, against)
            yield partial(chain.diff, against, payload=False, as_of=0)
        yield lambda chain=chain: chain.last(1 << 62)
        yield lambda chain=chain: [chain.at(5), chain.at(5).has(6), chain.ancestor(2), chain.has(2)]
        yield lambda chain=chain: chain.replay(start_depth=4)
        yield lambda chain=chain: list(chain.last(3))
        yield lambda chain=chain: len(chain.range(0))


def of_open_turns(memory: Any) -> Iterator[Any]:
    """Write turns bit by bit, seal and discard them."""
    context = memory.contexts.create("main")
    for odd in (5, "x" * 65537, "a\nb"):
        yield lambda odd=odd: context.open_turn(type_id=odd)
    yield lambda: context.open_turn(type_version=-1)
    one, two = context.open_turn(type_id="t"), context.open_turn()
    deltas: list[Any] = [
        "text", b"bytes", bytearray(b"x"), memoryview(b"a-b-")[::2], "", b"", "\ud800", None, 5, [b"x"], io.BytesIO(b"x"),
        b"y" * (3 * MIB),
    ]  # fmt: skip
    for delta in deltas:
        yield lambda delta=delta: one.append_delta(delta)
    yield one.info
    yield one.read
    yield context.open_turns
    yield memory.contexts.open_turns
    yield context.delete
    yield lambda: memory.contexts.open_turn(one.id).info()
    for odd in (0, 99, -1, "x"):
        yield lambda odd=odd: memory.contexts.open_turn(odd)
    yield lambda: one.seal(expected_head=7)
    yield lambda: one.seal(refs=iter([MISSING]))
    yield lambda: one.seal(key="k", flags=3, source="self")
    yield lambda: two.seal(key="k")
    yield context.last
    yield two.discard
    for opened in (one, two):
        yield from (opened.info, opened.read, opened.seal, opened.discard)
        yield lambda opened=opened: opened.append_delta("x")
    yield context.history


def of_blobs(memory: Any) -> Iterator[Any]:
    """Put, get, hold and check blobs."""
    blobs = memory.blobs
    given: list[Any] = [
        b"", b"a", b"a", bytearray(b"b"), memoryview(b"a-b-")[::2], b"text " * 300_000, io.BytesIO(b"file"), "text", None, 5,
        io.StringIO("x"),
    ]  # fmt: skip
    for data in given:
        yield lambda data=data: blobs.put(data)
    yield lambda: len(blobs)
    yield lambda: bool(blobs)
    one, two = blobs.put(b"one"), blobs.put(b"two")
    names: list[Any] = [one.ref, one.hash, bytes.fromhex(one.hash), MISSING, one.hash.upper()]
    for name in [*names, (one.ref,), *ODD]:
        for method in ("get", "has", "stat", "stream", "refs", "holders", "verify"):
            yield lambda method=method, name=name: getattr(blobs, method)(name)
        yield lambda name=name: blobs.pin(name, "me")
        yield lambda name=name: blobs.unpin(name, "you")
    yield lambda: blobs.put(b"all", refs=(blob.ref for blob in (one, two)))
    yield lambda: blobs.refs(blobs.put(b"all").ref)
    yield lambda: blobs.holders(one.ref, 1)
    yield lambda: blobs.put(b"none", refs=[MISSING])
    yield lambda: blobs.put(b"none", refs=one.ref)
    yield lambda: blobs.put(b"some", expect_size=5)
    yield lambda: blobs.put(b"some", expect_hash=one.hash)
    yield lambda: blobs.put(b"some", expect_hash="x")
    for owner in NAMES:
        yield lambda owner=owner: blobs.pin(one.ref, owner)
    yield lambda: blobs.unpin(one.ref, "me")
    yield lambda: blobs.unpin(one.ref, "me")
    yield blobs.pins
    yield lambda: iter(blobs)
    yield lambda: [one in blobs, "x" in blobs]
    yield blobs.verify
    yield blobs.faults
    yield blobs.put
    yield lambda: blobs.get(one.ref, 2)


def of_large_bytes(memory: Any) -> Iterator[Any]:
    """Return bytes and files that no single message holds, and promises that they break."""
    context, blobs = memory.contexts.create("main"), memory.blobs
    data = bytes(range(256)) * (20 << 10) + b"the end"  # 5 MiB
    yield lambda: blobs.put(data)
    short = data[: 2 * MIB]
    for given in (lambda: memoryview(data), partial(io.BytesIO, data), partial(io.BytesIO, short)):
        yield lambda given=given: blobs.put(given())
        yield lambda given=given: context.append(given())
        yield lambda given=given: context.patch(1, given())
        for size in (len(data), 5):
            yield lambda given=given, size=size: blobs.put(given(), expect_size=size)
        for name in (blobs.put(data).hash, MISSING):
            yield lambda given=given, name=name: blobs.put(given(), expect_hash=name)
            yield lambda given=given, name=name: context.append(NewTurn(given(), refs=[name]))
    opened = context.open_turn()
    yield lambda: opened.append_delta(data)
    yield lambda: opened.append_delta("é" * (3 * MIB))
    yield opened.seal
    yield lambda: context.append(NewTurn(["x" * (5 * MIB)], canonical="eventq-json-1"))
    yield context.replay
    yield lambda: b"".join(blobs.stream(blobs.put(data).ref)) == data
    yield lambda: blobs.get(blobs.put(data).ref) == data


BODIES = [of_contexts, of_appending, of_reading, of_open_turns, of_blobs, of_large_bytes]


@pytest.mark.parametrize("body", BODIES)
def test_the_same_as_at_home(
    body: Callable[[Any], Iterator[Any]], clock: Clock, tmp_path: Any
) -> None:
    """Every call returns the same as locally: values, types and errors."""
    found: list[list[Any]] = []
    for place in ("home", "away"):
        path = eventq.init(tmp_path / place)
        if place == "home":
            with eventq.open(path) as thread:
                found.append([seen(call) for call in body(thread)])
        else:
            served = Served(path)
            try:
                with connect(served.url) as connection:
                    found.append([seen(call) for call in body(connection)])
            finally:
                served.stop()
        with eventq.open(path) as thread:
            assert thread.check() == []
            found.append([list(thread.blobs), list(thread.contexts), list(thread.peek(limit=None))])
    home, home_after, away, away_after = found
    for number, (one, other) in enumerate(zip(home, away, strict=True)):
        assert repr(one) == repr(other), number
    assert home_after == away_after
    assert len(home) > 20


def test_damage_is_told_where_it_is(
    path: str, serve: Callable[..., Served], raw: apsw.Connection
) -> None:
    """A damaged payload is the same error, after the same turns, and so is `verify`."""
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        hashes = [context.append(f"turn {number}").hash for number in range(600)]
    bad = hashes[550]
    sql = f"UPDATE blobs SET raw_len = raw_len + ? WHERE hash = x'{bad}'"
    raw.execute(sql, (1,))
    calls: list[Callable[[Any], Any]] = [
        lambda memory: memory.contexts.get("main").replay(),
        lambda memory: memory.contexts.get("main").last(100),
        lambda memory: memory.blobs.get(bad),
        lambda memory: memory.blobs.stream(bad),
        lambda memory: memory.blobs.verify(),
        lambda memory: memory.blobs.verify(bad),
        lambda memory: memory.blobs.faults(),
    ]
    try:
        with eventq.open(path) as thread, connect(serve().url) as connection:
            for call in calls:
                home = seen(partial(call, thread))
                assert seen(partial(call, connection)) == home
                assert bad in repr(home)
    finally:
        raw.execute(sql, (-1,))


def test_methods_look_like_those_at_home(connection: Connection) -> None:
    """Each method has the local one's name, docstring and signature."""
    for kind, methods in CALLS.items():
        for name in ("__iter__",) if kind == "chain" else methods if kind in LOCAL else ():
            mine, local = getattr(remote.REMOTE[kind], name), getattr(LOCAL[kind], name)
            assert (mine.__name__, mine.__doc__) == (name, local.__doc__)
            assert inspect.signature(mine) == inspect.signature(local)
    for name in ("_add", "move_inside", "load", "prepare"):
        assert not hasattr(connection.contexts, name)
        assert not hasattr(connection.blobs, name)


def test_what_it_is_called(connection: Connection) -> None:
    """A connection and what it gives are named with the place."""
    assert repr(connection) == f"<eventq.Connection {connection.url}>"
    assert connection.path == connection.url
    context = connection.contexts.create("x")
    assert (repr(context), context.id) == (f"<eventq.Context 1 at {connection.url}>", 1)
    assert repr(connection.blobs) == f"<eventq.Blobs at {connection.url}>"
    assert connection.session_id == 1


def test_what_is_of_another_connection(
    connection: Connection, serve: Callable[..., Served], path: str
) -> None:
    """A context of another connection or of a thread is refused."""
    mine = connection.contexts.create("x")
    with connect(serve().url) as other, eventq.open(path) as thread:
        assert other.contexts.head(1) == 0
        with pytest.raises(InputError, match="is of another connection"):
            other.contexts.head(mine)
        with pytest.raises(InputError, match="a Context cannot be sent"):
            other.contexts.head(thread.contexts.get("x"))


def test_long_names(connection: Connection) -> None:
    """The longest names fit into a call; anything longer is refused clearly."""
    context = connection.contexts.create("x")
    for letter in ("x", "é", "😀"):
        new = NewTurn("y", type_id=letter * 65_536)
        turn = context.append(new, key=new.type_id, source=new.type_id)
        assert turn.type_id == new.type_id
        assert context.append(new, key=new.type_id).turn_id == turn.turn_id
        assert list(connection.contexts.get("x").replay())[-1].type_id == new.type_id
    lone = "\ud800" * 65_536
    with pytest.raises(InputError, match="type_id"):
        context.append(NewTurn("y", type_id=lone), key=lone)
    why = r"the call is too large .* the limit is 1048576\) - give fewer refs"
    with pytest.raises(TooLargeError, match=why):
        connection.blobs.put(b"x", refs=[MISSING] * 20_000)
    one = connection.blobs.put(b"one")
    blob = connection.blobs.put(b"x", refs=[one.ref] * 13_000)
    assert connection.blobs.refs(blob.ref) == [one.ref]


# Where it goes.


ADDRESSES = {
    "eventq://127.0.0.1:9009": ("127.0.0.1", 9009),
    "eventq://host.example:1": ("host.example", 1),
    "eventq://[::1]:65535": ("::1", 65535),
    "unix:/run/eventq.sock": "/run/eventq.sock",
    "unix:x": "x",
    "unix:/a b:c": "/a b:c",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address(url: str) -> None:
    """A URL is host and port, or the path of a socket."""
    assert parse(url) == ADDRESSES[url]


@pytest.mark.parametrize(
    "url",
    [
        "", "eventq://", "eventq://h", "eventq://h:", "eventq://:1", "eventq://h:0", "eventq://h:65536", "eventq://h:x", "eventq://h:-1",
        "eventq://h:1/", "eventq://h:1/x", "eventq://u@h:1", "eventq://h/x:1", "eventq://::1:1", "eventq://[::1]", "eventq://[]:1", "h:1",
        "http://h:1", "EVENTQ://h:1", "eventq:h:1", "unix:", "unix:\0", "unix:a\nb", "eventq://h h:1", "eventq://h:１",
        "eventq://eventq://h:1", " eventq://h:1", "eventq://h:1 ", "eventq://\ud800:1", None, 5, b"eventq://h:1",
    ],
)  # fmt: skip
def test_what_is_no_address(url: Any) -> None:
    """Anything else is refused, with the form."""
    why = "is not the address of a server - give eventq://HOST:PORT or unix:PATH"
    with pytest.raises(UsageError, match=why):
        connect(url)


def test_nobody_is_there(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens, the error says where, why and what to run; no socket is left behind."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"eventq://127.0.0.1:{one.getsockname()[1]}"
        for place in (url, f"unix:{tmp_path}/nothing", f"unix:{tmp_path}/{'x' * 200}"):
            why = f"no server answers at {place} .* - run 'eventq serve'"
            with pytest.raises(LogicError, match=why):
                connect(place)

    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    why = r"no server answers at eventq://nowhere:1 \(Name or service not known\)"
    with pytest.raises(LogicError, match=why):
        connect("eventq://nowhere:1")


def test_a_socket_with_a_path(serve: Callable[..., Served], tmp_path: Any) -> None:
    """A server on a socket in the file system is connected to by its path."""
    served = serve(f"unix:{tmp_path}/s")
    with connect(f"unix:{tmp_path}/s") as connection:
        assert connection.contexts.create("x").id == 1
    assert served.url == connection.url


def test_a_server_who_has_too_many_waiting(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A UNIX socket with a full queue is retried until there is room, or a timeout."""
    address = f"{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as stack:
        server.bind(address)
        server.listen(0)

        def fill() -> None:
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                try:
                    waiting.connect(address)
                except BlockingIOError:
                    return

        fill()
        with pytest.raises(LogicError, match=r"no server answers at unix:.* - run 'eventq serve'"):
            connect(f"unix:{address}", connect_seconds=0.01)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                stack.enter_context(server.accept()[0])

        monkeypatch.setattr("eventq.system.clock.pause", pause)
        stack.enter_context(client._reach(f"unix:{address}", address, 60))
        assert len(pauses) == 3
        assert max(pauses) <= 0.1


def test_the_token(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants a token gets the one that is given, or else that of the environment."""
    url = serve(token="s3cret").url
    for wrong in (None, "wrong", ""):
        with pytest.raises(EventqError, match="token"):
            connect(url, token=wrong)
    with connect(url, token="s3cret") as connection:
        assert list(connection.contexts) == []
    monkeypatch.setenv("EVENTQ_TOKEN", "s3cret")
    with connect(url) as connection:
        assert list(connection.contexts) == []
    for wrong in ("wrong", ""):
        with pytest.raises(EventqError, match="token"):
            connect(url, token=wrong)


# When something breaks.


class Peer:
    """A server in a few lines, which answers calls with a real thread and breaks where it is told to.

    `faults` maps the number of a request, over all connections and hellos included, to what is done instead of
    answering it: a function of the socket and the frame. What comes after that on the socket is not read.
    """

    def __init__(
        self,
        thread: Thread,
        faults: dict[int, Callable[[socket.socket, Frame], object]] | None = None,
    ) -> None:
        self.thread = thread
        self.faults = faults or {}
        self.count = 0
        self.hellos: list[Hello] = []
        self.asked: list[str] = []
        self.calls: list[Calls] = []
        self._runners: list[threading.Thread] = []
        self.sockets: list[socket.socket] = []

    def reach(self) -> socket.socket:
        """Return the client's end of a new connection."""
        mine, theirs = socket.socketpair()
        self.sockets.append(mine)
        self._runners.append(threading.Thread(target=self._serve, args=(mine,)))
        self._runners[-1].start()
        return theirs

    def connect(self, **options: Any) -> Connection:
        """Return a connection to it."""
        return Connection("eventq://peer:1", self.reach, **options)

    def cut(self) -> None:
        """Close the newest connection, and wait until that is done."""
        self.sockets[-1].shutdown(socket.SHUT_RDWR)
        self.ended()

    def ended(self) -> None:
        """Wait until the newest connection is closed."""
        self._runners[-1].join(60)
        assert not self._runners[-1].is_alive()

    def close(self) -> None:
        """Wait until nobody is connected."""
        for one in self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for runner in self._runners:
            runner.join(60)
            assert not runner.is_alive()

    def _serve(self, mine: socket.socket) -> None:
        reader, answers = Reader(), Calls(self.thread.layout.run)
        self.calls.append(answers)
        with mine, suppress(OSError):
            while data := mine.recv(1 << 16):
                reader.feed(data)
                for frame in reader.frames():
                    self.count += 1
                    if self.count in self.faults:
                        self.faults[self.count](mine, frame)
                        answers.close()
                        return
                    mine.sendall(self._answer(answers, frame))
        answers.close()

    def _answer(self, answers: Calls, frame: Frame) -> bytes:
        request = decode_request(frame)
        if isinstance(request, Hello):
            self.hellos.append(request)
            return encode_reply(Welcome(len(self.hellos)), frame.req_id, frame.type)
        assert isinstance(request, Call)
        self.asked.append(
            ".".join([json.loads(request.message)[0], json.loads(request.message)[2]])
        )
        try:
            plan = answers.plan(request)
            if plan.how != WRITE:
                return encode_reply(plan.run(self.thread), frame.req_id, frame.type)
            with self.thread.write():
                reply = plan.run(self.thread)
            return encode_reply(reply, frame.req_id, frame.type)
        except EventqError as error:
            return encode_reply(failure(error, as_json=True), frame.req_id)


def silently(_: socket.socket, __: Frame) -> None:
    """Close the connection without a word."""


def saying(text: str, req_id: int | None = 0) -> Callable[[socket.socket, Frame], None]:
    """Close it with these words, for a request or for all."""
    return lambda mine, frame: mine.sendall(
        encode_reply(
            failure(LogicError(text, "wait"), as_json=True),
            frame.req_id if req_id is None else req_id,
        )
    )


def sending(data: bytes) -> Callable[[socket.socket, Frame], None]:
    """Send some bytes, and close it."""
    return lambda mine, _: mine.sendall(data)


def with_contexts(thread: Thread, count: int, *, turns: int = 0) -> None:
    """Store contexts, more than one page of them holds, and turns in the first."""
    with thread.write():
        for _ in range(count):
            thread.contexts.create()
        for number in range(turns):
            thread.contexts.get("main").append(str(number))


@pytest.fixture
def peer(thread: Thread) -> Iterator[Peer]:
    """Return a peer with a fresh thread that has a context."""
    thread.contexts.create("main")
    made = Peer(thread)
    yield made
    made.close()


def test_the_first_words(peer: Peer) -> None:
    """HELLO asks for errors as JSON, and holds a token if there is one."""
    peer.connect().close()
    peer.connect(token="\ud800é").close()
    assert [(hello.version, hello.tag, json.loads(hello.meta)) for hello in peer.hellos] == [
        (1, "eventq", {"errors": "json"}), (1, "eventq", {"errors": "json", "token": "\ud800é"}),
    ]  # fmt: skip


def test_a_connection_that_was_closed_in_between(peer: Peer) -> None:
    """A call after the server closed the connection uses a new one, even a write."""
    with peer.connect() as connection:
        context = connection.contexts.get("main")
        assert connection.session_id == 1
        peer.cut()
        context.append("x")
        peer.cut()
        assert context.head_id() == 1
        assert connection.session_id == 3
    assert [turn.payload for turn in peer.thread.contexts.get("main").last()] == [b"x"]


class File(io.BytesIO):
    """A file in whose middle something happens."""

    def __init__(self, size: int, middle: Callable[[], object]) -> None:
        super().__init__(os.urandom(size))
        self._half, self._middle = size // 2, middle

    def read(self, size: int | None = -1) -> bytes:
        """Read on."""
        if self.tell() > self._half:
            self._middle()
        return super().read(size)


def test_what_was_begun_on_a_lost_connection(peer: Peer) -> None:
    """An iteration and an upload end with their connection, with a clear error."""
    with_contexts(peer.thread, 600)
    with peer.connect() as connection:
        items = iter(connection.contexts)
        again = iter(connection.contexts)
        assert [next(items).context_id for _ in range(512)] == list(range(1, 513))
        peer.cut()
        assert connection.contexts.head(1) == 0
        others = iter(connection.contexts)
        why = r"broke, and with it what was begun on it: .* - begin it again"
        with pytest.raises(LogicError, match=why):
            next(items)
        assert list(items) == []
        assert len(list(others)) == 601
        del again
        connection.contexts.head(1)
        assert "pages.close" not in peer.asked  # that number is another's now
        assert connection.session_id == 2
        for call in (connection.blobs.put, lambda file: connection.contexts.get(1).append(file)):
            with pytest.raises(LogicError, match="and with it what was begun on it"):
                call(File(4 * MIB, peer.cut))
    assert not list(peer.thread.blobs)


@pytest.mark.parametrize(
    "fault", [silently, saying("the server is stopping"), sending(b"\x01\x02")]
)
def test_a_connection_that_breaks_under_a_call(
    peer: Peer, fault: Callable[[socket.socket, Frame], object]
) -> None:
    """A read is repeated; a write is not, and its error leaves the outcome open."""
    peer.faults = dict.fromkeys((2, 5, 7, 9), fault)
    with peer.connect() as connection:
        context = connection.contexts.get("main")  # the second request and, again, the fourth
        assert context.id == 1
        why = r"whether the call was done is not known: .* - look at the head, or .* same key"
        with pytest.raises(LogicError, match=why):
            context.append("x")
        assert peer.thread.contexts.get("main").head_id() == 0
        with pytest.raises(LogicError, match="broke twice"):
            context.head_id()
        assert context.append("y").turn_id == 1


def test_the_last_words_are_told(peer: Peer) -> None:
    """What the server says for all, rather than in reply, stands in the error."""
    peer.faults = {2: saying("the server is stopping"), 3: saying("still stopping")}
    connection = peer.connect()
    with pytest.raises(
        LogicError, match="the server at eventq://peer:1 did not say hello: still stopping"
    ):
        connection.contexts.get("main")
    peer.faults = {6: saying("no longer")}
    context = connection.contexts.get("main")
    with pytest.raises(LogicError, match="not known: no longer"):
        context.append("x")
    connection.close()
    peer.faults = {peer.count + 1: saying("too many connections")}
    with pytest.raises(LogicError, match="did not say hello: too many connections"):
        peer.connect()


def test_the_words_before_nobody_answered(peer: Peer) -> None:
    """When a connection was closed with some words, and another cannot be made, both are told."""
    connection = peer.connect()
    peer.sockets[-1].sendall(
        encode_reply(failure(LogicError("it was silent for 5 seconds", "x"), as_json=True), 0)
    )
    peer.cut()

    def nobody() -> socket.socket:
        raise LogicError("no server answers", "run it")

    connection._make_socket = nobody
    with pytest.raises(
        LogicError,
        match="no server answers; before, the server had said: it was silent for 5 seconds - run it",
    ):
        connection.contexts.get("main")
    with pytest.raises(LogicError, match=r"^no server answers - run it"):
        connection.contexts.get("main")
    connection._make_socket = peer.reach
    assert connection.contexts.get("main").id == 1
    connection.close()


def test_a_refused_frame(peer: Peer) -> None:
    """A request that is refused as its frame arrives is that refusal, not a broken connection."""
    peer.faults = {2: saying("the payload is too large", None)}
    with peer.connect() as connection:
        with pytest.raises(LogicError, match=r"^the payload is too large - wait"):
            connection.blobs.put(b"x")
        peer.ended()
        assert connection.blobs.put(b"x").size == 1


@pytest.mark.parametrize("refused", [True, False])
def test_a_frame_that_does_not_arrive(peer: Peer, refused: bool) -> None:
    """The server's message about an unread frame is raised; without one, the call is repeated."""
    ends: list[socket.socket] = []

    def refuse() -> None:
        with ends[1]:
            req_id = struct.unpack_from("<Q", ends[1].recv(1 << 16), 8)[0]
            ends[1].sendall(encode_reply(Welcome(9), req_id, Type.HELLO))
            req_id = struct.unpack_from("<Q", ends[1].recv(16, socket.MSG_WAITALL), 8)[0]
            error = TooLargeError(4 << 20, 1 << 20, "frame", "send less at once")
            if refused:
                ends[1].sendall(encode_reply(failure(error, as_json=True), req_id))

    def reach() -> socket.socket:
        if ends:
            return peer.reach()
        ends.extend(socket.socketpair())
        runner.start()
        return ends[0]

    runner = threading.Thread(target=refuse)
    with Connection("eventq://peer:1", reach) as connection:
        if refused:
            with pytest.raises(TooLargeError, match=r"the frame is too large .* - send less"):
                connection.blobs.put(NOISE * 3)
        else:
            assert connection.blobs.put(NOISE * 3).size == 3 * MIB
        runner.join(60)
        assert connection.blobs.put(b"x").size == 1


def raw(type: int, req_id: int, payload: bytes) -> bytes:
    """Return a frame."""
    return struct.pack("<IHHQ", len(payload), type, 0, req_id) + payload


def reply(told: str, *parts: bytes) -> Callable[[socket.socket, Frame], None]:
    """Answer the request with this, and close the connection."""
    return lambda mine, frame: mine.sendall(
        encode_reply(Called(told, parts), frame.req_id, Type.CALL)
    )


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda mine, frame: mine.sendall(raw(64, frame.req_id + 1, bytes(8))), "came as a reply where one to CALL 2 was due"),
        (lambda mine, frame: mine.sendall(raw(9, frame.req_id, bytes(4))), "came as a reply where one to CALL 2 was due"),
        (lambda mine, frame: mine.sendall(raw(64, frame.req_id, bytes(9))), "1 bytes follow its last field"),
        (lambda mine, _: mine.sendall(struct.pack("<IHHQ", (64 << 20) + 1, 64, 0, 2)), "the payload of CALL is too large"),
        (reply("nonsense"), "not JSON"),
        (reply('{"bytes":0}'), "names part 0"),
        (reply('{"thread":0}'), "the answer holds a 'thread'"),
        (reply('{"context":"x"}'), "the answer holds a 'context'"),
        (reply('{"pages":[1,5]}'), "the answer holds a 'pages'"),
        (reply('{"pages":["x",[]]}'), "the answer holds a 'pages'"),
        (reply('{"diff":[]}'), "the answer holds a 'diff'"),
        (reply("{}"), "an object of several keys"),
        (reply('{"Turn":[]}'), "its Turn has 0 fields"),
        (reply('{"__import__":["os"]}'), "the answer holds a '__import__'"),
    ],
)  # fmt: skip
def test_a_server_that_talks_nonsense(
    peer: Peer, fault: Callable[[socket.socket, Frame], object], text: str
) -> None:
    """A reply that is none is an error of ours; the next call goes over a new connection."""
    peer.faults = {2: fault}
    with peer.connect() as connection:
        with pytest.raises(EventqError, match=text):
            connection.contexts.get("main")
        assert connection.contexts.get("main").id == 1
        assert connection.session_id == 2


TURN = '{"Turn":[1,0,0,"t",1,0,"",0,0,0]}'
CHAIN = [3, 0, 3, True, None]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        *((lambda to: len(to.blobs), told) for told in ("null", "-1", "1.5", '"1"', "true", "[]", str(1 << 63), '{"context":1}')),
        *((lambda to: iter(to.blobs), told) for told in ("5", "null", "[]", '{"context":1}')),
        *((lambda to: iter(to.contexts), told) for told in ("5", '{"blobs":null}')),
        *(
            (lambda to: list(remote.REMOTE["chain"](to, CHAIN)), told)  # type: ignore[call-overload]
            for told in (
                "5", "[]", "[0]", "[0,5]", "[0,[]]", "[0,[5]]", '{"tuple":[0,[]]}', '{"pages":[null,[]]}', f"[0,[{TURN},5]]",
                f"[0,[{','.join([TURN] * 4)}]]", f"[0,[{TURN}],1]",
            )
        ),
        (lambda to: list(remote.REMOTE["chain"](to, [3, 3, 3, True, None])), f"[0,[{TURN}]]"),  # type: ignore[call-overload]
    ],
)  # fmt: skip
def test_an_answer_of_the_wrong_type(peer: Peer, call: Callable[[Any], object], told: str) -> None:
    """A result of the wrong type is malformed where Python or a loop depends on it."""
    peer.faults = {2: reply(told)}
    with peer.connect() as connection, pytest.raises(Malformed):
        call(connection)
    assert peer.count == 2


def test_a_server_that_does_not_answer(peer: Peer) -> None:
    """A late reply is not waited for, nor repeated, nor taken for another."""
    go_on = threading.Event()
    late = lambda mine, frame: (go_on.wait(60), saying("late", None)(mine, frame))  # noqa: E731
    peer.faults = {2: late, 4: late}
    connection = peer.connect(reply_seconds=0.02)
    with pytest.raises(LogicError, match=r"broke: no reply came within 0.02 seconds"):
        connection.contexts.get("main")
    assert peer.count == 2
    with pytest.raises(LogicError, match="not known: no reply came within"):
        connection.blobs.put(b"x")
    go_on.set()
    connection._reply_seconds = 60
    assert connection.contexts.get("main").id == 1
    connection.close()


def closed_under(
    connection: Connection, call: Callable[[], object], reached: threading.Event
) -> list[BaseException]:
    """Close a connection during another thread's call; return what the call raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    assert reached.wait(60)
    connection.close()
    caller.join(20)
    assert not caller.is_alive()
    return errors


CLOSED = "the connection is closed - connect again with eventq.connect"


class Silent:
    """A fault: a request is not answered before the connection has gone."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def __call__(self, mine: socket.socket, _: Frame) -> None:
        """Wait for the end."""
        self.reached.set()
        mine.recv(1)


@pytest.mark.parametrize(
    ("number", "call"),
    [
        (2, lambda to: to.contexts.get("main")),
        (2, lambda to: to.contexts.create("made")),
        (2, lambda to: to.blobs.verify()),
        (3, lambda to: to.blobs.put(io.BytesIO(NOISE * 3))),
        (3, lambda to: list(to.contexts)),
        (3, lambda to: list(remote.REMOTE["chain"](to, [300, 0, 300, True, None]))),  # type: ignore[call-overload]
    ],
)
def test_closing_under_a_call(peer: Peer, number: int, call: Callable[[Any], object]) -> None:
    """A call interrupted by `close` ends at once, with ClosedError, and never reconnects."""
    with_contexts(peer.thread, 600, turns=600)
    silent = Silent()
    peer.faults = {number: silent}
    connection = peer.connect()
    (error,) = closed_under(connection, lambda: call(connection), silent.reached)
    assert isinstance(error, ClosedError)
    assert str(error) == CLOSED
    assert peer.count == number
    assert connection.session_id == 0
    assert connection._newest is not None
    assert connection._newest._socket.fileno() == -1


@pytest.mark.parametrize("within", [True, False])
def test_closing_while_connecting(
    peer: Peer, within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is reconnecting ends as well."""
    silent = Silent()
    peer.faults = {2: silent} if within else {}
    connection = peer.connect()
    peer.cut()
    make, closed = connection._make_socket, threading.Event()

    def slowly() -> socket.socket:
        silent.reached.set()
        assert closed.wait(60)
        return make()

    if not within:
        monkeypatch.setattr(connection, "_make_socket", slowly)
        end = connection._end

        def told_end() -> None:
            closed.set()
            end()

        monkeypatch.setattr(connection, "_end", told_end)
    (error,) = closed_under(connection, lambda: connection.contexts.get("main"), silent.reached)
    assert isinstance(error, ClosedError)
    assert len(peer.hellos) == 1
    assert connection._newest is not None
    assert connection._newest._socket.fileno() == -1


@pytest.mark.parametrize("place", ["farewell", "next", "_make_socket"])
def test_closing_at_the_beginning_of_a_call(
    peer: Peer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed just before a look is closed, without another error."""
    with_contexts(peer.thread, 600)
    connection = peer.connect()
    items = iter(connection.contexts)
    farewell = client.Link.farewell

    def closed(link: Any) -> Any:
        connection.close()
        return farewell(link)

    def nobody() -> socket.socket:
        connection.close()
        raise LogicError("no server answers", "run it")

    if place != "_make_socket":
        monkeypatch.setattr(client.Link, "farewell", closed)
    else:
        peer.cut()
        monkeypatch.setattr(connection, "_make_socket", nobody)
    with pytest.raises(ClosedError) as caught:
        list(items) if place == "next" else connection.contexts.get("main")
    assert str(caught.value) == CLOSED
    assert len(peer.sockets) == 1


def test_an_interrupt_ends_the_calls_of_other_threads(peer: Peer) -> None:
    """What leaves the `with` of a connection does not wait for what other threads have asked."""
    silent = Silent()
    peer.faults = {2: silent}
    errors: list[EventqError] = []
    connection = peer.connect()

    def ask() -> None:
        try:
            connection.contexts.get("main")
        except EventqError as error:
            errors.append(error)

    caller = threading.Thread(target=ask, daemon=True)
    with pytest.raises(KeyboardInterrupt), connection:
        caller.start()
        assert silent.reached.wait(60)
        raise KeyboardInterrupt
    caller.join(20)
    assert [type(error) for error in errors] == [ClosedError]


def test_a_call_that_ends_as_its_connection_is_closed(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that has come is given, and the socket is closed by whoever is the last to use it."""
    connection = peer.connect()
    ask = client.Link.ask

    def asked(link: Any, request: Any) -> Any:
        found = ask(link, request)
        connection.close()  # as another thread, or a signal, might
        return found

    monkeypatch.setattr(client.Link, "ask", asked)
    assert connection.contexts.get("main").id == 1
    assert connection._link is None
    peer.ended()


def test_an_interrupt(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt in the middle of a call, its reply is not taken for that of the next."""
    with peer.connect() as connection:
        fill = client.Link._fill

        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(client.Link, "_fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.contexts.get("nobody")
        monkeypatch.setattr(client.Link, "_fill", fill)
        assert connection.contexts.get("main").id == 1
        assert connection.session_id == 2


# Uploads and iterations.


def fail() -> None:
    """Fail as a disk does."""
    raise OSError(5, "Input/output error")


def test_a_file_that_fails(peer: Peer) -> None:
    """A file that fails half-way leaves nothing on the server, and raises its own error."""
    with peer.connect() as connection:
        for call in (connection.blobs.put, connection.contexts.get("main").append):
            with pytest.raises(OSError, match="Input/output error"):
                call(File(5 * MIB, fail))
        assert len(peer.calls[0]._uploads) == 1
        assert len(connection.blobs) == 0
        assert not peer.calls[0]._uploads
        for _ in range(20):  # more than may be under way
            with pytest.raises(OSError, match="Input/output error"):
                connection.blobs.put(File(5 * MIB, fail))
    assert list(peer.thread.blobs) == []


def test_large_bytes_go_ahead(peer: Peer) -> None:
    """Bytes up to 4 MiB go with their call, more of them in pieces of a MiB ahead of it."""
    with peer.connect() as connection:
        connection.blobs.put(bytes(4 * MIB))
        connection.blobs.put(bytes(4 * MIB + 1))
    assert peer.asked == ["blobs.put", *["upload.append"] * 5, "blobs.put"]


@pytest.mark.parametrize("size", [1, 4 * MIB, 4 * MIB + 1])
@pytest.mark.parametrize("by", [1, -1, -(1 << 40)])
def test_large_bytes_of_another_size_than_was_declared(peer: Peer, size: int, by: int) -> None:
    """For any transfer and any wrong number, the error is the local one; nothing is stored."""
    with peer.connect() as connection:
        context = connection.contexts.create()
        for give in (bytes, lambda n: io.BytesIO(bytes(n))):
            for call in (
                lambda data: connection.blobs.put(data, expect_size=size + by),
                lambda data: context.append(NewTurn(data, expect_size=size + by)),
            ):
                with pytest.raises(InputError, match=f"has [0-9]+ bytes, not the {size + by} that"):
                    call(give(size))
    assert list(peer.thread.blobs) == []


def test_an_iteration_that_breaks_under_a_call(peer: Peer) -> None:
    """An iteration is not continued on another connection."""
    with_contexts(peer.thread, 600)
    peer.faults = {3: silently}
    with peer.connect() as connection:
        why = r"with it what was begun on it: the server closed .* - begin it again"
        with pytest.raises(LogicError, match=why):
            list(connection.contexts)
        assert peer.count == 3


def test_memory_is_bounded(peer: Peer) -> None:
    """A file of 32 MiB is put and streamed in a few MiB on both sides together."""

    class File:
        """A long file that is not in memory."""

        left = 32 * MIB

        def read(self, size: int) -> bytes:
            """Return the next MiB, or less."""
            size = min(size, MIB, self.left)
            self.left -= size
            return os.urandom(size)

    with peer.connect() as connection:
        tracemalloc.start()
        blob = connection.blobs.put(File())  # type: ignore[arg-type]
        assert sum(map(len, connection.blobs.stream(blob.ref))) == blob.size == 32 * MIB
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
        tracemalloc.stop()


def test_an_iteration_that_is_dropped(peer: Peer) -> None:
    """A closed or dropped iterator is dropped on the server with the next call."""
    with_contexts(peer.thread, 1100)
    with peer.connect() as connection:
        for drop in range(3):
            items: Any = iter(connection.contexts)
            assert isinstance(items, Pages)
            if drop:
                next(items)
            if drop == 2:
                items.close()
                items.close()
                assert list(items) == []
            assert len(peer.calls[0]._cursors) == 1
            del items
            gc.collect()
            connection.contexts.head(1)
            assert not peer.calls[0]._cursors
        assert sum(1 for _ in connection.contexts) == 1101
        connection.contexts.head(1)
        assert peer.asked.count("pages.close") == 3


def test_what_is_dropped_takes_no_call_with_it(peer: Peer) -> None:
    """A connection that breaks while an iterator is dropped has not sent the next call."""
    with_contexts(peer.thread, 1100)
    peer.faults = {3: silently}
    with peer.connect() as connection:
        items: Any = iter(connection.contexts)
        items.close()
        assert connection.contexts.create("made").id == 1102
    assert peer.asked.count("contexts.create") == 1


def test_a_second_connection_that_breaks_under_a_call(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsent write is sent again; if that breaks too, the outcome is unknown."""
    ask, broken = client.Link.ask, iter([True])

    def asked(link: Any, request: Any) -> Any:
        if next(broken, False):
            raise client.Broken("it is full", sent=False)
        return ask(link, request)

    with peer.connect() as connection:
        peer.faults = {3: silently}  # after a second hello
        monkeypatch.setattr(client.Link, "ask", asked)
        with pytest.raises(LogicError, match="whether the call was done is not known"):
            connection.contexts.create("made")


def test_an_error_ends_an_iteration(peer: Peer) -> None:
    """After its error an iterator is over, as a generator is."""
    with peer.connect() as connection:
        items = connection.contexts.history(99)
        with pytest.raises(EventqError, match="there is no context"):
            next(items)
        assert list(items) == []


@pytest.mark.parametrize(
    "sizes",
    [
        [10] * 700,
        [MIB // 200] * 600,
        [MIB // 32] * 40,
        [MIB // 16 + 1, 10, 5 * MIB // 16, 10, 3 * MIB // 16, MIB // 8, 10] * 3,
    ],
)
def test_damage_in_a_chain(peer: Peer, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With damage anywhere, a chain yields as much as locally before the error."""
    monkeypatch.setattr("eventq.wire.rpc.PAGE_BYTES", MIB // 4)  # a sixteenth, of the sizes as well
    monkeypatch.setitem(Turns.payloads.__kwdefaults__, "limit", MIB // 4)  # type: ignore[arg-type]
    context = peer.thread.contexts.get("main")
    with peer.thread.write():
        for number, size in enumerate(sizes):
            context.append(number.to_bytes(10, "big") + bytes(size))
    hashes = [turn.hash for turn in context.replay(payload=False)]
    load, chain = Blobs.load, TurnTable.chain
    bad: list[Any] = [b"", 0]

    def damaged(self: Blobs, wanted: Any) -> Any:
        rows = list(wanted)
        if bad[0] in [row.digest for row in rows]:
            raise DamagedBlobError("blob:blake3:" + bad[0].hex())
        return load(self, rows)

    def lost(self: TurnTable, turn_id: int, count: int, as_of: Any) -> list[Any]:
        rows = chain(self, turn_id, count, as_of)
        return next((rows[:at] for at, row in enumerate(rows) if row[0] == bad[1]), rows)

    with peer.connect() as connection, monkeypatch.context() as patch:
        patch.setattr(Blobs, "load", damaged)
        patch.setattr(TurnTable, "chain", lost)
        for at in range(0, len(sizes), max(1, len(sizes) // 10)):
            for start in (0, 3):
                for bad[:] in ([bytes.fromhex(hashes[at]), 0], [b"", at + 1]):
                    away, home = (
                        repr(seen(partial(memory.contexts.get("main").replay, start_depth=start)))
                        for memory in (connection, peer.thread)
                    )
                    assert away == home


def test_a_chain_whose_connection_breaks(peer: Peer) -> None:
    """A chain has no state on the server: it continues on another connection."""
    context = peer.thread.contexts.get("main")
    with_contexts(peer.thread, 0, turns=700)
    home = list(context.replay())
    peer.faults = {5: silently}
    with peer.connect() as connection:
        chain = connection.contexts.get("main").replay()
        turns = iter(chain)
        found = [next(turns)]
        context.tombstone(700)
        context.append("new")
        assert [*found, *turns] == home
        assert list(chain)[-1].tombstone
        peer.cut()
        assert len(list(chain)) == 700
    assert not any(calls._cursors for calls in peer.calls)
    assert set(peer.asked) == {"contexts.get", "context.replay", "chain.page"}


def test_a_scan_is_asked_again(peer: Peer) -> None:
    """A scan of the whole store is a read, and repeated when the connection breaks."""
    peer.faults = {2: silently}
    with peer.connect() as connection:
        assert connection.blobs.verify() == []
    assert peer.asked == ["blobs.verify"]


# Its life.


def test_after_close(peer: Peer) -> None:
    """A closed connection says so; closing twice is fine."""
    connection = peer.connect()
    context, items = connection.contexts.get("main"), iter(connection.contexts)
    connection.close()
    connection.close()
    assert connection.session_id == 0
    calls: list[Callable[[], object]] = [
        context.head_id, lambda: list(connection.contexts), lambda: connection.blobs.put(b"x"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ClosedError, match=CLOSED):
            call()
    assert len(list(items)) == 1  # which had come already
    with pytest.raises(ZeroDivisionError), peer.connect() as connection:
        1 // 0  # noqa: B018
    with pytest.raises(ClosedError):
        connection.contexts.head(1)


def test_after_a_fork(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a forked process a connection is refused; the parent keeps using it."""
    connection = peer.connect()
    context = connection.contexts.get("main")
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    why = "was made before this process was forked - connect again after the fork"
    with connection._lock:
        with pytest.raises(ClosedError, match=why):
            context.head_id()
        connection.close()
    monkeypatch.undo()
    assert context.head_id() == 0
    connection.close()


def test_several_threads(connection: Connection) -> None:
    """Threads may share a connection: each gets the replies to what it asked."""
    contexts = [connection.contexts.create(f"c{number}") for number in range(4)]
    found: list[list[bytes | None]] = [[] for _ in contexts]

    def work(number: int) -> None:
        for at in range(25):
            contexts[number].append(f"{number}: {at}")
            found[number].append(contexts[number].last(1).turns[0].payload)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert found == [[f"{number}: {at}".encode() for at in range(25)] for number in range(4)]


def test_two_connections_see_each_other(
    connection: Connection, serve: Callable[..., Served]
) -> None:
    """One connection reads what another stored; a moved head is a conflict."""
    mine = connection.contexts.create("x")
    with connect(connection.url) as other:
        theirs = other.contexts.get("x")
        turn = theirs.append("theirs", expected_head=0)
        assert isinstance(turn, Turn)
        with pytest.raises(ConflictError) as caught:
            mine.append("mine", expected_head=0)
        assert caught.value.actual == turn.turn_id
        assert isinstance(mine.last(), Page)
        assert isinstance(mine, Remote)
