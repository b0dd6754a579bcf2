"""Calls without a socket: every value survives, and only listed methods run."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import threading
import tracemalloc
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq import InputError, LogicError, UsageError, errors
from eventq.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    DiskError,
    EventqError,
    TooLargeError,
    UnknownTurnError,
)
from eventq.memory.blobs import Blobs
from eventq.memory.contexts import Context, Contexts, OpenTurn
from eventq.memory.turns import Chain, Turns, View
from eventq.records.turn import Blob, ContextInfo, Move, NewTurn, OpenInfo, Page, Turn
from eventq.wire import rpc
from eventq.wire.frames import (
    MAX_FRAME,
    MAX_TEXT,
    Call,
    Called,
    Failure,
    Malformed,
    TooLong,
    Unsupported,
)
from eventq.wire.rpc import (
    ATTRIBUTES,
    CALLS,
    ERRORS,
    LOCAL,
    MOST_CURSORS,
    MOST_UPLOADS,
    READ,
    RECORDS,
    SCAN,
    WRITE,
    Calls,
    Unpacked,
    failure,
    pack,
    raised,
    signature_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq import Thread

REASONS = {
    "contexts": {},
    "context": {},
    "view": {},
    "chain": {"__len__": "is told by start and end", "__iter__": "is asked for page by page"},
    "open": {},
    "blobs": {
        "prepare": "gives what only the same process can store",
        "store": "takes what only the same process has prepared",
        "again": "takes what only the same process has prepared",
        "add_refs": "is a part of put",
        "shown": "is for nodes, which only the store reads",
        "shown_many": "has no bound, and is for exports",
        "load": "takes rows",
        "kept": "has no bound, and is for exports",
        "size_of": "is a part of stat",
    },
}  # why a public method is not called from afar
HASH = "a" * 64
MIB = 1 << 20
TURN = Turn(7, 6, 5, "t", 1, 0, HASH, 3, 0, 99)
RECORD = [
    Blob(HASH, 3, 2, "none", new=True),
    ContextInfo(1, None, 0, 0, 0, None, 0, 0, 9, 9),
    Move(1, "append", 0, 1, 9),
    OpenInfo(1, 2, "t", 3, 4, 5, 6, 7),
    NewTurn(b"abc", "t", 2, 3, 4, "eventq-json-1", [HASH], HASH, 3),
    Page((TURN, TURN._replace(payload=b"abc")), 5),
    TURN,
]


@pytest.fixture
def server(thread: Thread) -> Iterator[Server]:
    """Return a server's side of a connection to a fresh thread."""
    made = Server(thread)
    yield made
    made.calls.close()


class Server:
    """What answers the calls of one connection."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.calls = Calls(thread.layout.run)

    def call(self, call: Call) -> Any:
        """Answer a call; what stands for something is given as kind and id."""
        plan = self.calls.plan(call)
        if plan.how == WRITE:
            with self.thread.write():
                called = plan.run(self.thread)
        else:
            called = plan.run(self.thread)
        assert isinstance(called, Called)
        found = Unpacked(called.message, called.parts, lambda kind, which: (kind, which))
        value = found.value(found.message)
        found.end()
        return value

    def told(self, told: object, *parts: bytes) -> Any:
        """Answer a call as it is told."""
        return self.call(Call(told if isinstance(told, str) else json.dumps(told), parts))

    def ask(self, kind: str, which: object, method: str, /, *args: object, **named: object) -> Any:
        """Answer a call of these arguments."""
        parts: list[Any] = []
        told = [kind, which, method, [pack(one, parts, stand_in) for one in args]]
        return self.told(
            [*told, {name: pack(one, parts, stand_in) for name, one in named.items()}], *parts
        )

    def upload(self, *pieces: bytes) -> Stand:
        """Send bytes ahead."""
        number = self.ask("upload", None, "append", pieces[0])
        for piece in pieces[1:]:
            assert self.ask("upload", number, "append", piece) == number
        return Stand("upload", number)


@dataclasses.dataclass(frozen=True)
class Stand:
    """What stands for something at the server."""

    kind: str
    which: object


def stand_in(value: object) -> tuple[str, Any] | None:
    """Return what a value stands for."""
    return (value.kind, value.which) if isinstance(value, Stand) else None


# The table.


def public(kind: str) -> set[str]:
    """Return the names of the public methods of a local class."""
    methods = {name for name, one in vars(LOCAL[kind]).items() if callable(one)}
    found = {name for name in methods if not name.startswith("_")}
    if LOCAL[kind] is Context:
        found |= public("view")
    return found | {name for name in ("__iter__", "__len__") if hasattr(LOCAL[kind], name)}


def test_every_public_method_is_called_or_has_its_reason() -> None:
    """Every method of contexts and blobs is served, or has a reason why not."""
    assert {kind: LOCAL[kind] for kind in REASONS} == {
        "contexts": Contexts, "context": Context, "view": View, "chain": Chain, "open": OpenTurn, "blobs": Blobs,
    }  # fmt: skip
    for kind, reasons in REASONS.items():
        answered = set(CALLS[kind]) - ({"page"} if kind == "chain" else set())
        assert public(kind) - set(reasons) == answered
        assert set(reasons) <= public(kind)
    assert set(CALLS["turns"]) == {"common", "depth", "ancestor"}
    assert set(CALLS) == {*LOCAL, "pages", "upload"}


WRITING = {
    "contexts": "create fork compare_and_set delete patch tombstone attach",
    "context": "append patch tombstone fork move delete open_turn",
    "open": "append_delta seal discard",
    "blobs": "put pin unpin",
}


def test_what_writes_is_said_to_write() -> None:
    """Exactly the methods that change something run on the writer."""
    found = {
        (kind, name, how)
        for kind, methods in CALLS.items()
        for name, how in methods.items()
        if how in (WRITE, SCAN)
    }
    writing = {(kind, name, WRITE) for kind, names in WRITING.items() for name in names.split()}
    assert found == {*writing, ("blobs", "verify", SCAN), ("blobs", "faults", SCAN)}


PLANS: list[tuple[str, tuple[bytes, ...], str, bool]] = [
    ('["contexts",null,"create",[],{}]', (), WRITE, False),
    ('["contexts",null,"list",[],{}]', (), READ, False),
    ('["upload",null,"append",[{"bytes":0}],{}]', (b"",), READ, False),
    ('["upload",null,"append",[{"bytes":0}],{}]', (bytes(MIB),), READ, True),
    ('["blobs",null,"verify",[],{}]', (), SCAN, False),
    ('["blobs",null,"faults",[],{}]', (), SCAN, False),
    ('["blobs",null,"put",[{"bytes":0}],{}]', (bytes(MIB - 1),), WRITE, False),
    ('["blobs",null,"put",[{"bytes":0}],{}]', (bytes(MIB),), WRITE, True),
    (
        '["blobs",null,"put",[{"bytes":0}],{"refs":[{"bytes":1}]}]',
        (bytes(MIB), bytes(32)),
        WRITE,
        True,
    ),
    ('["blobs",null,"put",[{"upload":1}],{}]', (), WRITE, True),
    ('["blobs",null,"put",[{"\\u0075pload":1}],{}]', (), WRITE, True),
    ('["blobs",null,"put",[],{"data":{"u\\u0070load":null}}]', (), WRITE, True),
    ('["context",1,"append",["\\"upload\\""],{}]', (), WRITE, False),
    ('["pages",5,"next",[],{}]', (), READ, False),
]


@pytest.mark.parametrize(("told", "parts", "how", "large"), PLANS)
def test_what_a_call_comes_to(
    server: Server, told: str, parts: tuple[bytes, ...], how: str, large: bool
) -> None:
    """A plan says who is to do the call, and whether it is large, however that is spelt."""
    plan = server.calls.plan(Call(told, parts))
    assert (plan.how, plan.large) == (how, large)


def test_a_scan_goes_on_as_one(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of an iteration over the whole store are scans; other pages are not."""
    with server.thread.write():
        for _ in range(600):
            server.thread.contexts.create()
    monkeypatch.setattr(Blobs, "faults", lambda self: map(str, range(1000)))
    for method, how in (("faults", SCAN), ("__iter__", READ)):
        kind = "blobs" if how == SCAN else "contexts"
        number = server.ask(kind, None, method)[1][0]
        assert server.calls.plan(Call(json.dumps(["pages", number, "next", [], {}]))).how == how
        assert server.calls.plan(Call(json.dumps(["pages", number, "close", [], {}]))).how == READ
        server.ask("pages", number, "next")
        # it has ended
        assert server.calls.plan(Call(json.dumps(["pages", number, "next", [], {}]))).how == READ
    monkeypatch.undo()  # the thread is checked at the end


# Values.

TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20)
LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=20),
)
VALUE = st.recursive(
    LEAF | st.sampled_from(RECORD) | st.builds(Stand, st.just("context"), st.integers(0, 99)),
    lambda inside: st.lists(inside, max_size=4) | st.lists(inside, max_size=4).map(tuple),
    max_leaves=12,
)


def kinds_of(value: object) -> object:
    """Return the types in a value, level by level: True equals 1, and 1 equals 1.0."""
    inside = value if isinstance(value, (list, tuple)) else ()
    return type(value), [kinds_of(one) for one in inside]


@settings(deadline=None, max_examples=300)
@given(VALUE)
@example([1.5, float("inf"), b"", [b"a", (b"a",)], True, "\ud800", "é"])
def test_a_value_survives(value: object) -> None:
    """Packed values are unpacked unchanged, with their types, through any encoding."""
    parts: list[Any] = []
    told = json.dumps(pack(value, parts, stand_in))
    assert told.isascii()
    found = Unpacked(told, tuple(map(memoryview, parts)), Stand)
    again = found.value(found.message)
    found.end()
    assert (again, kinds_of(again)) == (value, kinds_of(value))


def test_every_record_is_known() -> None:
    """Each record that a call can give goes through as it is; NaN too, which equals nothing."""
    assert {type(one).__name__ for one in RECORD} == set(RECORDS)
    found = Unpacked(json.dumps(pack(math.nan, [], stand_in)), (), Stand)
    assert math.isnan(found.value(found.message))


class Number(int):
    """A number that is none of ours."""


UNSENT = [
    {}, {"a": 1}, {1}, object(), bytearray(b"x"), memoryview(b"x"), Number(1), eventq.Source.own(), Context,
]  # fmt: skip


@pytest.mark.parametrize("value", UNSENT)
def test_what_cannot_be_sent(value: object) -> None:
    """Anything else is refused by its type, wherever it stands."""
    why = f"a {type(value).__name__} cannot be sent over a connection"
    for one in (value, [value], ((value,),)):
        with pytest.raises(InputError, match=why):
            pack(one, [], stand_in)


def test_a_value_that_holds_itself() -> None:
    """What is nested without end is refused, at both ends."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InputError, match="nested too deeply"):
        pack(value, [], stand_in)
    for depth in (rpc.DEEPEST + 2, 500, 100_000):
        with pytest.raises(Malformed, match=r"nested too deeply|not JSON"):
            found = Unpacked("[" * depth + "]" * depth, (), Stand)
            found.value(found.message)


# Calls that nobody should make.

BAD = [
    ("", (), "not JSON"),
    ("{", (), "not JSON"),
    ("null", (), "it is not"),
    ("5", (), "it is not"),
    ("{}", (), "it is not"),
    ("[]", (), "it is not"),
    ('["blobs",null,"__len__",[]]', (), "it is not"),
    ('["blobs",null,"__len__",[],{},1]', (), "it is not"),
    ('["blobs",null,"__len__",{},[]]', (), "it is not"),
    ('[["blobs"],null,"__len__",[],{}]', (), "it is not"),
    ('["blobs",null,7,[],{}]', (), "it is not"),
    ('["blobs",1,"__len__",[],{}]', (), "no blobs is 1"),
    ('["contexts",[],"get",[1],{}]', (), "no contexts is"),
    ('["context",null,"info",[],{}]', (), "no context is None"),
    ('["context",true,"info",[],{}]', (), "no context is True"),
    ('["context","x","info",[],{}]', (), "no context is 'x'"),
    ('["context",-1,"info",[],{}]', (), "no context is -1"),
    ('["view",9223372036854775808,"last",[],{}]', (), "no view is"),
    ('["view",1.0,"last",[],{}]', (), "no view is"),
    (f'["view",{"9" * 5000},"last",[],{{}}]', (), "not JSON"),
    ('["chain",[1,0,1,true],"page",[],{}]', (), "no chain is"),
    ('["chain",[1,0,"1",true,null],"page",[],{}]', (), "no chain is"),
    ('["chain",1,"page",[],{}]', (), "no chain is"),
    ('["pages",null,"next",[],{}]', (), "no pages is None"),
    ('["upload","x","append",[{"bytes":0}],{}]', (b"",), "no upload is 'x'"),
    ('["blobs",null,"has",[{"bytes":0}],{}]', (), "names part 0 where 0 of 0 is next"),
    ('["blobs",null,"has",[{"bytes":-1}],{}]', (b"",), "names part -1"),
    ('["blobs",null,"has",[{"bytes":false}],{}]', (b"",), "names part False"),
    ('["blobs",null,"has",[{"bytes":"0"}],{}]', (b"",), "names part '0'"),
    ('["blobs",null,"has",[{"bytes":[]}],{}]', (b"",), "names part"),
    ('["blobs",null,"has",[[{"bytes":0},{"bytes":0}]],{}]', (b"",), "names part 0 where 1 of 1 is next"),
    ('["blobs",null,"has",[[{"bytes":1},{"bytes":0}]],{}]', (b"", b""), "names part 1 where 0 of 2 is next"),
    ('["blobs",null,"has",["x"],{}]', (b"",), "names 0 of its 1 parts"),
    ('["blobs",null,"has",[{}],{}]', (), "an object of several keys"),
    ('["blobs",null,"has",[{"bytes":0,"tuple":[]}],{}]', (b"",), "an object of several keys"),
    ('["blobs",null,"has",[{"tuple":1}],{}]', (), "its tuple is no list"),
    ('["blobs",null,"has",[{"Turn":[1]}],{}]', (), "of the kind 'Turn'"),
    ('["blobs",null,"has",[{"object":[]}],{}]', (), "of the kind 'object'"),
    ('["blobs",null,"has",[{"__class__":[]}],{}]', (), "of the kind '__class__'"),
    ('["blobs",null,"has",[{"pages":1}],{}]', (), "of the kind 'pages'"),
    ('["blobs",null,"has",[{"contexts":null}],{}]', (), "of the kind 'contexts'"),
    ('["contexts",null,"fork",[{"context":"1"}],{}]', (), "no context is '1'"),
    ('["contexts",null,"fork",[{"context":{"bytes":0}}],{}]', (b"1",), "no context is b'1'"),
    ("[" * 100_000, (), "not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "parts", "text"), BAD)
def test_a_call_of_no_form(server: Server, told: str, parts: tuple[bytes, ...], text: str) -> None:
    """What is not told as it should be is malformed, before anything is done."""
    with pytest.raises(Malformed, match=text):
        server.calls.plan(Call(told, parts))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("", ""), ("thread", "write"), ("store", "run"), ("contexts", "_add"), ("contexts", "__init__"), ("contexts", "turns"),
        ("chain", "__iter__"), ("contexts", "__class__"), ("contexts", "__getattribute__"), ("turns", "append"), ("turns", "store"), ("turns", "chain"),
        ("context", "move_inside"), ("context", "turns"), ("context", "_spot"), ("blobs", "load"), ("blobs", "_store"),
        ("blobs", "faults.__globals__"), ("pages", "__next__"), ("upload", "read"), ("CONTEXTS", "get"), ("contexts", "Get"),
        ("contexts", "get "), ("record", "Turn"), ("diff", "mine"), ("view", "append"), ("\ud800", "\ud800"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_table(server: Server, kind: str, method: str) -> None:
    """A method that is not in the table is not there, whatever the object has."""
    with pytest.raises(Unsupported, match="nobody answers"):
        server.calls.plan(Call(json.dumps([kind, None, method, [], {}])))


@pytest.mark.parametrize(
    ("kind", "method", "args", "named", "text"),
    [
        ("contexts", "get", [], {}, "contexts.get: missing a required argument: 'context'"),
        ("contexts", "get", [1, 2], {}, "contexts.get: too many positional arguments"),
        ("contexts", "get", [1], {"x": 1}, "got an unexpected keyword argument 'x'"),
        ("contexts", "get", [1], {"self": 1}, "multiple values for argument 'self'"),
        ("contexts", "turn", [1, True], {}, "too many positional arguments"),
        ("blobs", "__len__", [1], {}, "too many positional"),
        ("pages", "next", [1], {}, "too many positional"),
        ("upload", "append", [], {}, "missing a required argument: 'data'"),
        ("view", "diff", [5], {}, "view.diff: other is int - give a context"),
        ("view", "common_ancestor", ["x"], {}, "view.common_ancestor: other is str"),
        ("blobs", "put", ["x"], {"expect_size": "1"}, "blobs.put: expect_size is str"),
        ("upload", "append", ["x"], {}, "upload.append: data is str"),
    ],
)
def test_arguments_that_do_not_fit(
    server: Server, kind: str, method: str, args: list[Any], named: dict[str, Any], text: str
) -> None:
    """Arguments that a method does not have are a usage error that names it."""
    which = None if kind in ("contexts", "blobs", "upload") else 1
    with pytest.raises(UsageError, match=text) as caught:
        server.calls.plan(Call(json.dumps([kind, which, method, args, named])))
    assert type(caught.value) is UsageError


def test_a_call_has_its_limit(server: Server) -> None:
    """What a call tells beyond 1 MiB is not even read as JSON."""
    with pytest.raises(TooLargeError, match="the call is too large"):
        server.calls.plan(Call("[" * (rpc.MAX_MESSAGE + 1)))
    with pytest.raises(Malformed):
        server.calls.plan(Call("[" * rpc.MAX_MESSAGE))


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, 0, 1, 2, 3, -1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 80, 0.5, math.nan, "", "1", "main", "x" * 300,
        "\ud800", "\x00", "eventq-json-1", HASH, "blob:blake3:" + HASH, b"", b"{}", b"x" * 32, [], [1], [HASH], [b"x"], ["main"],
        (), (1,), TURN, Page((), None), Stand("context", 1), Stand("context", 99), Stand("view", 2), Stand("view", 77), Stand("view", 0),
        [Stand("view", 1)], Stand("upload", 5),
    ]
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, object, str, dict[str, Any]]:
    """Return a call of some method of the table, with arguments of its names and of any kind."""
    kind = draw(st.sampled_from(sorted(CALLS)))
    method = draw(st.sampled_from(sorted(CALLS[kind])))
    some = draw(st.sampled_from([0, 1, 2, 5, 99, (1 << 63) - 1]))
    chain = [draw(st.sampled_from([0, 1, 2, 3, 4, 99, (1 << 63) - 1])) for _ in range(3)]
    which: object = {
        "contexts": None, "turns": None, "blobs": None, "chain": [*chain, draw(ODD), draw(ODD)], "upload": draw(st.sampled_from([None, 1])),
    }.get(kind, some)  # fmt: skip
    if kind == "chain":
        ends = (
            draw(st.sampled_from([True, 0, None])),
            draw(st.sampled_from([None, 0, 1, -1, "x", [1]])),
        )
        which = [*chain, *ends]
    named = {}
    for name, one in signature_of(kind, method).parameters.items():
        if name != "self" and (one.default is one.empty or draw(st.booleans())):
            named[name] = draw(ODD)
    return kind, which, method, named


@settings(deadline=None, max_examples=600, suppress_health_check=list(HealthCheck))
@given(requests())
def test_whatever_is_asked_is_answered_or_refused(
    server: Server, request: tuple[str, object, str, dict[str, Any]]
) -> None:
    """Any arguments to any method cause a result or an eventq error."""
    contexts = server.thread.contexts
    if not list(contexts):
        main = contexts.create("main")
        main.append("a")
        main.append("b")
        main.open_turn().append_delta("d")
    kind, which, method, named = request
    try:
        server.ask(kind, which, method, **named)
    except EventqError:
        pass


# Cursors.


def pages(server: Server, answer: tuple[str, list[Any]]) -> list[list[Any]]:
    """Return all pages of an iteration that has begun."""
    found = []
    while True:
        kind, (number, items) = answer
        assert kind == "pages"
        found.append(items)
        if number is None:
            return found
        answer = server.ask("pages", number, "next")


def test_pages_of_512_items(server: Server) -> None:
    """An iterator comes in pages of 512, in order, and what has ended is kept no longer."""
    with server.thread.write():
        for _ in range(1100):
            server.thread.contexts.create()
    found = pages(server, server.ask("contexts", None, "list"))
    assert [len(page) for page in found] == [512, 512, 76]
    assert [one.context_id for page in found for one in page] == list(range(1, 1101))
    assert pages(server, server.ask("contexts", None, "list", 1100)) == [[]]
    assert not server.calls._cursors


def chain_pages(server: Server, chain: list[Any]) -> list[list[Turn]]:
    """Return all pages of a chain, asked for one after the other."""
    found = []
    head, start, end, payload, as_of = chain
    while True:
        as_of, turns = server.ask("chain", [head, start, end, payload, as_of], "page")
        found.append(turns)
        start += len(turns)
        if start >= end:
            return found
        assert turns


def test_pages_of_4_mib(server: Server) -> None:
    """A page of a chain ends with the payload that completes 4 MiB, as locally."""
    data = [os.urandom(size << 20) for size in (1, 1, 1, 3, 9, 1)]
    context = server.thread.contexts.create()
    for one in data:
        context.append(one)
    found = chain_pages(server, [6, 0, 6, True, None])
    assert [turn.payload for page in found for turn in page] == data
    assert [len(page) for page in found] == [4, 1, 1]
    assert [len(page) for page in chain_pages(server, [6, 0, 6, False, None])] == [6]
    assert not server.calls._cursors


def test_pages_of_an_iteration_of_4_mib(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pages end before 4 MiB, unless one item is longer; nothing is lost."""
    data = [bytes([size]) * (size << 20) for size in (1, 1, 1, 3, 9, 1)]
    monkeypatch.setattr(Blobs, "stream", lambda self, name: iter(data))
    found = pages(server, server.ask("blobs", None, "stream", HASH))
    assert [len(page) for page in found] == [3, 1, 1, 1]
    assert [piece for page in found for piece in page] == data


def test_pages_of_long_types(server: Server) -> None:
    """The JSON of a page is bounded however it is escaped, without reading payloads."""
    context = server.thread.contexts.create()
    for _ in range(30):
        context.append(NewTurn("x", type_id="\U0001f600" * 65_536))
    for payload in (True, False):
        found = chain_pages(server, [30, 0, 30, payload, None])
        assert [turn for page in found for turn in page] == list(context.replay(payload=payload))
        assert [len(page) for page in found] == [5] * 6


def test_a_page_fits_into_a_frame(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the turns before a long one would leave no room for it, it comes alone."""
    monkeypatch.setattr(rpc, "ANSWER_BYTES", 3 * MIB)
    context = server.thread.contexts.create()
    for size in (2, 2, 1, 3):
        context.append(os.urandom(size * MIB - 1024))
    found = chain_pages(server, [4, 0, 4, True, None])
    assert [len(page) for page in found] == [1, 2, 1]
    assert [turn for page in found for turn in page] == list(context.replay())


def test_a_page_of_a_chain_keeps_nothing(server: Server) -> None:
    """The server keeps nothing of unfinished chains, however large their turns."""
    context = server.thread.contexts.create()
    for _ in range(12):
        context.append(os.urandom(3 * MIB))
    server.ask("chain", [12, 0, 12, True, None], "page")
    tracemalloc.start()
    for start in range(MOST_CURSORS // 2):
        assert server.ask("chain", [12, start % 4, 12, True, None], "page")[1]
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] < 14 * MIB  # the cache of blobs has its 8
    tracemalloc.stop()
    assert not server.calls._cursors


def test_a_suspended_iteration_holds_a_page_at_most(server: Server) -> None:
    """An abandoned iteration of open turns keeps only their numbers."""
    context = server.thread.contexts.create()
    with server.thread.write():
        for number in range(60):
            context.open_turn(type_id="\U0001f600" * 65_536).append_delta(str(number))
    home = list(server.thread.contexts.open_turns())
    tracemalloc.start()
    numbers = [server.ask("contexts", None, "open_turns")[1][0] for _ in range(8)]
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] < 8 * MIB
    tracemalloc.stop()
    for number in numbers:
        server.ask("pages", number, "close")
    assert [*chain.from_iterable(pages(server, server.ask("contexts", None, "open_turns")))] == home
    number, first = server.ask("contexts", None, "open_turns")[1]
    server.thread.contexts.open_turn(home[-1].open_id).discard()
    rest = chain.from_iterable(pages(server, server.ask("pages", number, "next")))
    assert [*first, *rest] == home[:-1]


def test_an_error_comes_at_its_place(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an iterator gave before it failed is given, then the error, once; then it is over."""
    error = DamagedError("the third is broken", "mend it")

    def listed(self: Contexts, after: int = 0) -> Iterator[str]:
        yield "one"
        yield "two"
        raise error

    monkeypatch.setattr(Contexts, "list", listed)
    _, (number, items) = server.ask("contexts", None, "list")
    assert items == ["one", "two"]
    with pytest.raises(DamagedError) as caught:
        server.ask("pages", number, "next")
    assert caught.value is error
    why = "no iteration 1 is under way on this connection - begin it again"
    with pytest.raises(LogicError, match=why):
        server.ask("pages", number, "next")
    monkeypatch.setattr(Contexts, "list", lambda self, after=0: (1 // one for one in [0]))
    with pytest.raises(ZeroDivisionError):  # a fault in the program is nobody's answer
        server.ask("contexts", None, "list")


def many(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return an iterator of a thousand items that records when it is closed."""
    closed: list[int] = []

    def listed(self: Contexts, after: int = 0) -> Iterator[str]:
        try:
            yield from map(str, range(1000))
        finally:
            closed.append(1)

    monkeypatch.setattr(Contexts, "list", listed)
    return closed


def test_no_more_than_16_cursors(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 17th iteration is refused with a hint; an ended or closed one makes room."""
    closed = many(server, monkeypatch)
    numbers = [server.ask("contexts", None, "list")[1][0] for _ in range(MOST_CURSORS)]
    why = "16 iterations are under way on this connection - end or close one of them"
    with pytest.raises(LogicError, match=why):
        server.ask("contexts", None, "list")
    assert len(closed) == 1
    assert server.ask("contexts", None, "open_turns")[1] == [None, []]  # it is over at once
    assert server.ask("pages", numbers[0], "close") is None
    assert server.ask("pages", numbers[0], "close") is None
    assert len(closed) == 2
    assert server.ask("contexts", None, "list")[1][0]
    pages(server, server.ask("pages", numbers[1], "next"))
    assert server.ask("contexts", None, "list")[1][0]
    server.calls.close()
    assert len(closed) == 2 + 1 + MOST_CURSORS
    with pytest.raises(ClosedError):
        server.ask("contexts", None, "list")


def test_closing_during_a_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a connection does not wait for a running call, which then cleans up."""
    closed = many(server, monkeypatch)
    server.ask("contexts", None, "list")
    within, go_on = threading.Event(), threading.Event()

    def has(self: Blobs, name: str) -> None:
        within.set()
        assert go_on.wait(60)

    monkeypatch.setattr(Blobs, "has", has)
    caller = threading.Thread(target=lambda: server.ask("blobs", None, "has", HASH))
    caller.start()
    assert within.wait(60)
    server.calls.close()  # while it waits for us
    assert not closed
    go_on.set()
    caller.join(60)
    assert closed == [1]


# Uploads.


def files(server: Server) -> int:
    """Return the number of files that this process has open and nobody can find."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one of the listing itself
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    run = server.thread.layout.run
    return sum(link.startswith(run) and link.endswith("(deleted)") for link in links)


NO_PROC = not os.path.isdir("/proc/self/fd")
linux = pytest.mark.skipif(NO_PROC, reason="needs /proc to see nameless files")


@linux
def test_an_upload_is_used_once(server: Server) -> None:
    """Uploaded bytes are used by one call, and dropped whether it succeeds or not."""
    here = os.listdir(server.thread.layout.run)
    blob = server.ask("blobs", None, "put", server.upload(b"abc", b"", b"def"))
    assert server.thread.blobs.get(blob.hash) == b"abcdef"
    upload = server.upload(b"xyz")
    assert files(server) == 1
    assert os.listdir(server.thread.layout.run) == here
    with pytest.raises(InputError, match="the payload has 3 bytes, not the 9"):
        server.ask("blobs", None, "put", upload, expect_size=9)
    assert files(server) == 0
    why = r"there is no upload 2 on this connection - send its bytes again"
    with pytest.raises(LogicError, match=why):
        server.ask("blobs", None, "put", upload)
    with pytest.raises(LogicError, match="there is no upload 2"):
        server.ask("upload", 2, "append", b"more")


@linux
def test_no_more_than_8_uploads(server: Server) -> None:
    """The ninth upload is refused with a hint; dropping or using one makes room."""
    uploads = [server.upload(b"x") for _ in range(MOST_UPLOADS)]
    why = "8 uploads are under way on this connection - use or drop one of them first"
    with pytest.raises(LogicError, match=why):
        server.upload(b"x")
    for _ in range(2):
        assert server.ask("upload", uploads[0].which, "drop") is None
    server.upload(b"x")
    server.ask("blobs", None, "put", uploads[1])
    server.upload(b"x")
    assert files(server) == 8
    server.calls.close()
    assert files(server) == 0


@linux
def test_an_upload_has_the_limit_of_a_blob(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that grows beyond what a blob may be is refused and dropped."""
    monkeypatch.setattr(rpc, "LARGEST", 5)
    upload = server.upload(b"abc", b"de")
    with pytest.raises(TooLargeError, match=r"the blob is too large \(6 bytes, the limit is 5\)"):
        server.ask("upload", upload.which, "append", b"f")
    assert files(server) == 0
    with pytest.raises(LogicError, match="there is no upload"):
        server.ask("blobs", None, "put", upload)


def test_a_disk_that_takes_no_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk refuses is an error of the disk, and the upload is dropped."""
    upload = server.upload(b"abc")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eventq.system.disk.write_all", full)
    with pytest.raises(DiskError, match="could not keep an upload: No space left on device"):
        server.ask("upload", upload.which, "append", b"d")
    assert not server.calls._uploads
    gone = Server(server.thread)
    gone.calls = Calls(os.path.join(server.thread.path, "nowhere"))
    with pytest.raises(DiskError, match="could not keep an upload: No such file"):
        gone.upload(b"x")


def test_a_payload_from_an_upload(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn, an overlay and a delta take uploads; a value takes one that fits into memory."""
    server.ask("contexts", None, "create", "x")
    one = server.ask("context", 1, "append", server.upload(b"one"))
    server.ask("context", 1, "patch", one.turn_id, server.upload(b"two"))
    assert server.thread.contexts.turn(1).payload == b"two"
    new = NewTurn(server.upload(b'{"b": 1, ', b'"a": 2}'), canonical="eventq-json-1")
    value = server.ask("context", 1, "append", new)
    assert server.thread.contexts.turn(value.turn_id).payload == b'{"a":2,"b":1}'
    kind, number = server.ask("context", 1, "open_turn")
    assert kind == "open"
    data = os.urandom(5 << 19)
    assert server.ask("open", number, "append_delta", b"x") == 1
    assert server.ask("open", number, "append_delta", server.upload(data)) == len(data) + 1
    assert b"".join(server.thread.contexts.open_turn(number).read()) == b"x" + data
    with pytest.raises(ConflictError, match="there is no open turn 9"):
        server.ask("open", 9, "append_delta", server.upload(data))
    monkeypatch.setattr(rpc, "MAX_FRAME", 10)
    new = NewTurn(server.upload(b'"123456789"'), canonical="eventq-json-1")
    with pytest.raises(TooLargeError, match="the value is too large"):
        server.ask("context", 1, "append", new)


# What would be too large is refused before it is read.


@pytest.fixture
def small(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server with replies up to 10,000 bytes, and a chain of turns around that."""
    context = server.thread.contexts.create("x")
    for size in (1, 3000, 3000, 20_000, 2):
        context.append(os.urandom(size))
    monkeypatch.setattr(rpc, "ANSWER_BYTES", 10_000)
    return server


@pytest.fixture
def unread(small: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return such a server, on which reading a long payload is a fault."""
    load = Blobs.load

    def guarded(self: Blobs, wanted: Any) -> Any:
        rows = list(wanted)
        assert all(row[2] < 10_000 for row in rows)
        return load(self, rows)

    monkeypatch.setattr(Blobs, "load", guarded)
    return small


def test_pages_that_fit(unread: Server) -> None:
    """Pages of turns that fit together are given as they are at home."""
    view = unread.thread.contexts.get("x")
    assert unread.ask("context", 1, "last", 1) == view.last(1)
    assert unread.ask("context", 1, "before", 4, 100) == view.before(4, 100)
    assert unread.ask("view", 3, "last") == view.at(3).last()
    assert unread.ask("context", 1, "range", 0, 3) == view.range(0, 3)
    for method, args in (("last", []), ("before", [5]), ("range", [0, 1 << 62])):
        home = getattr(view, method)(*args, payload=False)
        assert unread.ask("context", 1, method, *args, payload=False) == home


LARGE_PAGES: list[tuple[Any, ...]] = [
    ("context", 1, "last"), ("context", 1, "last", 2), ("context", 1, "last", 1 << 62), ("context", 1, "before", 5, 1),
    ("view", 4, "last", 1), ("context", 1, "range", 2), ("context", 1, "range", 3, 1), ("contexts", None, "turn", 4),
]  # fmt: skip


@pytest.mark.parametrize("call", LARGE_PAGES, ids=str)
def test_pages_that_do_not_fit(unread: Server, call: tuple[Any, ...]) -> None:
    """A page or turn that is too large is refused with a hint; payloads are not read."""
    why = r"the (page|payload) is too large .* - ask .* stream"
    with pytest.raises(TooLargeError, match=why) as caught:
        unread.ask(*call)
    assert caught.value.wire_code == 413


def test_many_turns(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has at most `limit` turns; a high limit alone is no error."""
    context = server.thread.contexts.create()
    with server.thread.write():
        for _ in range(700):
            context.append("x")
    monkeypatch.setattr(rpc, "MOST_ITEMS", 600)
    read: list[int] = []
    chain = Turns.chain

    def counted(
        self: Turns, turn_id: int, count: int, as_of: int | None, *, payload: bool
    ) -> list[Turn]:
        read.append(count)
        return chain(self, turn_id, count, as_of, payload=payload)

    monkeypatch.setattr(Turns, "chain", counted)
    for method, args in (("last", [1 << 62]), ("before", [700, 699]), ("range", [0, 601])):
        for payload in (True, False):
            with pytest.raises(TooLargeError, match="more than 600 turns - ask for fewer at once"):
                server.ask("context", 1, method, *args, payload=payload)
    assert max(read) <= 256
    assert len(server.ask("context", 1, "range", 100, 1 << 62)) == 600
    assert len(server.ask("view", 600, "last", 1 << 62)) == 600
    assert server.ask("context", 1, "before", 601, 700) == context.before(601, 700)
    listed = lambda self, turn_id, limit: list(range(min(limit, 1000)))  # noqa: E731
    monkeypatch.setattr(Contexts, "children", listed)
    with pytest.raises(TooLargeError, match="there are more than 600 children"):
        server.ask("contexts", None, "children", 1, 1 << 62)
    assert server.ask("contexts", None, "children", 1, 600) == list(range(600))
    monkeypatch.setattr(Blobs, "holders", lambda self, name, limit: ["x"] * min(limit, 1000))
    with pytest.raises(TooLargeError, match="there are more than 600 holders"):
        server.ask("blobs", None, "holders", HASH, limit=1 << 62)


@pytest.mark.parametrize("limit", [0, -1, 1 << 63, 1 << 80, "x", None, 1.5, True])
def test_limits_that_are_none(server: Server, limit: Any) -> None:
    """What is no limit is refused as such, for lists that have one."""
    blob = server.thread.blobs.put(b"x")
    server.thread.contexts.create().append("x")
    for kind, method, which in (("blobs", "holders", blob.ref), ("contexts", "children", 1)):
        with pytest.raises(UsageError, match="limit must be a whole number from 1"):
            server.ask(kind, None, method, which, limit)


def test_a_long_payload_in_a_chain(unread: Server) -> None:
    """A chain is returned up to a turn that is too large, which raises the error."""
    home = list(unread.thread.contexts.get("x").at(3).replay())
    assert unread.ask("chain", [5, 0, 5, True, None], "page") == [0, home]
    assert unread.ask("chain", [5, 1, 5, True, None], "page") == [0, home[1:]]
    with pytest.raises(TooLargeError, match="the payload is too large"):
        unread.ask("chain", [5, 3, 5, True, None], "page")
    assert len(unread.ask("chain", [5, 0, 5, False, None], "page")[1]) == 5
    assert len(unread.ask("chain", [5, 4, 5, True, None], "page")[1]) == 1
    assert unread.ask("chain", [5, 5, 5, True, None], "page") == [0, []]


def test_a_chain_stands_still(server: Server) -> None:
    """Overlays that come while a chain is given do not show, as at home."""
    context = server.thread.contexts.create()
    for number in range(600):
        context.append(str(number))
    context.tombstone(1)
    as_of, turns = server.ask("chain", [600, 0, 600, True, None], "page")
    assert (as_of, len(turns)) == (1, 256)
    context.tombstone(599)
    assert server.ask("chain", [600, 598, 600, True, as_of], "page")[1][0].payload == b"598"
    assert server.ask("chain", [600, 598, 600, True, None], "page")[0] == 2


def test_a_long_blob(unread: Server) -> None:
    """A blob that is too large for a reply is refused unread; it can be streamed."""
    blobs = unread.thread.blobs
    long = next(blob for blob in blobs if blob.size == 20_000)
    why = r"the blob is too large \(20000 bytes, the limit is 10000\) - use 'stream'"
    with pytest.raises(TooLargeError, match=why):
        unread.ask("blobs", None, "get", long.hash)
    assert unread.ask("blobs", None, "get", HASH) is None
    with pytest.raises(InputError, match="names no blob"):
        unread.ask("blobs", None, "get", "x")


def test_an_answer_fits_into_a_frame(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was overlooked is refused before it is sent."""
    refs = [server.thread.blobs.put(bytes([n])).ref for n in range(50)]
    holder = server.thread.blobs.put(b"all", refs=refs)
    monkeypatch.setattr(rpc, "MAX_FRAME", 1000)
    with pytest.raises(TooLargeError, match="the answer is too large"):
        server.ask("blobs", None, "refs", holder.ref)
    assert rpc.ANSWER_BYTES < MAX_FRAME


# Errors.


def made(kind: type[EventqError]) -> EventqError:
    """Return an error of a class."""
    known: dict[type, Callable[[], EventqError]] = {
        errors.FilterError: lambda: errors.FilterError("no", "a =\nb", 3),
        errors.AckError: lambda: errors.AckError(9, 4),
        errors.AlreadyAckedError: lambda: errors.AlreadyAckedError("w", 9, 4),
        errors.ConsumerInUseError: lambda: errors.ConsumerInUseError("w", "another process reads"),
        errors.LeaseLostError: lambda: errors.LeaseLostError("w", 9),
        errors.FencedError: lambda: errors.FencedError("w", 9),
        errors.UnknownDeadLetterError: lambda: errors.UnknownDeadLetterError(9, "w"),
        TooLargeError: lambda: TooLargeError(9, 8, "call", "do"),
        TooLong: lambda: TooLong(9, 8, 64, 77),
        ConflictError: lambda: ConflictError("a", "b", 12),
        errors.KeyConflictError: lambda: errors.KeyConflictError("k", 12, ["content"]),
        errors.UnknownArtifactError: lambda: errors.UnknownArtifactError("3", "1, 2"),
        errors.UnknownOutputError: lambda: errors.UnknownOutputError("x", "y"),
    }
    one_word = kind.__init__ is not EventqError.__init__
    return known[kind]() if kind in known else kind("x") if one_word else kind("a", "b")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_survives(name: str) -> None:
    """Every error class is restored with its text and attributes; the wire has six codes."""
    error = made(ERRORS[name])
    sent = failure(error, as_json=True)
    assert sent.code == (error.wire_code if error.wire_code in (400, 404, 409, 413, 422) else 500)
    again = raised(sent)
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert failure(error, as_json=False) == Failure(sent.code, str(error))


def test_every_class_is_known() -> None:
    """All of the tree can come back, and the four that frames add."""
    found, left = set(), [EventqError]
    while left:
        kind = left.pop()
        found.add(kind)
        ours = "eventq.errors", "eventq.wire.frames"
        left += [one for one in kind.__subclasses__() if one.__module__ in ours]
    assert set(ERRORS.values()) == found
    for kind in found:
        assert set(vars(made(kind))) <= {"what", "fix", *ATTRIBUTES}


def test_the_codes() -> None:
    """What a busy or full store or a read-only one says is a 500 to others, and itself to us."""
    for kind in (errors.BusyError, errors.DiskError, errors.ReadOnlyError):
        sent = failure(kind("a", "b"), as_json=True)
        assert (sent.code, type(raised(sent))) == (500, kind)

    class OtherError(UnknownTurnError):
        """One that the other end cannot know."""

    again = raised(failure(OtherError(5), as_json=True))
    assert (type(again), str(again)) == (UnknownTurnError, str(UnknownTurnError(5)))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, UsageError), (404, LogicError), (409, LogicError), (413, TooLargeError), (422, InputError), (500, errors.StoreError), (77, LogicError)],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["Unheard", "Exception", "SystemExit", "eventq.errors.LogicError", "__class__", ""]
)
def test_an_error_of_no_known_class(code: int, kind: type, name: str) -> None:
    """A plain sentence or an unknown class becomes the nearest class of its code."""
    again = raised(Failure(code, "it failed - do this"))
    assert (type(again), again.what, again.fix) == (kind, "it failed", "do this")
    assert str(again) == "it failed - do this"
    assert str(raised(Failure(code, "no"))) == "no - ask whoever runs the server"
    again = raised(Failure(code, json.dumps({"error": name, "what": "a", "fix": "b"})))
    assert (type(again), str(again)) == (kind, "a - b")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '"x"', "{}", '{"error":"LogicError"}', '{"error":1,"what":"a","fix":"b"}', "[" * 60_000,
        '{"error":"LogicError","what":["a"],"fix":"b"}', '{"error":[],"what":"a","fix":"b"}', "9" * 5000,
    ],
)  # fmt: skip
def test_a_failure_that_is_no_error(text: str) -> None:
    """Text that is not told as an error is its own sentence."""
    again = raised(Failure(409, text))
    assert type(again) is LogicError
    assert again.what == text.partition(" - ")[0]


def test_nothing_but_the_known_is_set() -> None:
    """A failure sets the attributes of the table, of their types, and no others."""
    told = {
        "error": "FilterError", "what": "a", "fix": "b", "at": "x", "text": 5, "exit_code": 0, "__class__": "x", "args": 1,
        "wire_code": 1, "ref": None, "actual": True, "with_traceback": 1,
    }  # fmt: skip
    again = raised(Failure(422, json.dumps(told)))
    assert vars(again) == {"what": "a", "fix": "b", "text": "", "at": 0}
    assert str(again).startswith("a - b\n")
    assert (again.exit_code, again.wire_code) == (2, 422)


def test_an_error_with_a_long_name_is_told_whole() -> None:
    """An overlong error is cut within its texts, and keeps its class."""
    for letter in ("x", "\ud800", "😀"):
        error = ConflictError(letter * 70_000, letter * 70_000, 5)
        sent = failure(error, as_json=True)
        assert len(sent.text) <= MAX_TEXT
        again = raised(sent)
        assert isinstance(again, ConflictError)
        assert (again.what, again.fix, again.actual) == (letter * 1000, letter * 1000, 5)


def test_memory_of_a_hostile_call(server: Server) -> None:
    """A call that tells of nothing but empty lists costs no more than some times its size."""
    body = json.dumps(["blobs", None, "has", [[[]] * 50_000], {}])
    tracemalloc.start()
    with pytest.raises(InputError, match="names no blob"):
        server.told(body)
    assert tracemalloc.get_traced_memory()[1] < 50 * len(body)
    tracemalloc.stop()
