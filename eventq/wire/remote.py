"""Contexts, turns and blobs of a served thread: local methods that run on the server.

A remote method has the signature of the local one, so arguments, results and errors are the same;
type checkers take them from the local methods. Iterators are fetched page by page. Long payloads
and files are sent in pieces before the call.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from inspect import signature

from eventq.errors import InputError
from eventq.memory.blobs import (
    PART_BYTES,
    Blobs,
    check_hash,
    check_size,
    digest_of,
    digests_of,
    flat,
    read_block,
)
from eventq.memory.contexts import Context, Contexts, OpenTurn
from eventq.memory.turns import PAGE_TURNS, Turns, View, encoded
from eventq.records.turn import NewTurn, Turn
from eventq.wire.frames import Malformed
from eventq.wire.rpc import PAGE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, Concatenate, ParamSpec, Protocol, TypeVar

    from eventq.wire.client import Connection, Link
    from eventq.wire.frames import Bytes
    from eventq.wire.rpc import Named

    P = ParamSpec("P")
    R = TypeVar("R")
    Inputs = dict[str, Any]  # the arguments of a call by name

    class Prepare(Protocol):
        """Change arguments as they are sent; return the link over which bytes went ahead."""

        def __call__(self, connection: Connection, inputs: Inputs, /) -> Link | None:
            """Do so."""


def unfit(method: str) -> Malformed:
    """Return the error for a result that cannot be one of a method."""
    return Malformed(f"CALL: the answer to {method!r} is none", "use a client as new as the server")


# Bytes that are sent.


class Upload:
    """Bytes that the server has, for one call over the same link."""

    def __init__(self, number: int, link: Link) -> None:
        self.number = number
        self.link = link


def _payload(connection: Connection, inputs: Inputs) -> Link | None:
    """Make bytes of a payload as a local thread does, also inside a `NewTurn`."""
    new = inputs["payload"]
    if type(new) is not NewTurn:
        inputs["payload"] = encoded(new, None)
        return _bytes(connection, inputs, "payload", "payload")
    parts = {name: getattr(new, name) for name in ("refs", "expect_hash", "expect_size")}
    parts["payload"] = encoded(new.payload, new.canonical)
    link = _bytes(connection, parts, "payload", "payload")
    inputs["payload"] = new._replace(payload=parts["payload"], refs=parts["refs"])
    return link


def _data(connection: Connection, inputs: Inputs) -> Link | None:
    return _bytes(connection, inputs, "data", "blob")


def _delta(connection: Connection, inputs: Inputs) -> Link | None:
    data = encoded(inputs["data"], None, "the delta")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(f"a delta is bytes or text, not {type(data).__name__}", "encode it")
    inputs["data"] = data
    return _bytes(connection, inputs, "data", "delta")


def _refs(_: Connection, inputs: Inputs) -> None:
    """Make a list of refs, which may be any iterable; the server refuses what is none."""
    refs = inputs.get("refs")
    if hasattr(refs, "__iter__") and not isinstance(refs, (str, bytes, list, tuple)):
        inputs["refs"] = [*refs]  # type: ignore[misc]  # it can be iterated


def _bytes(connection: Connection, inputs: Inputs, name: str, what: str) -> Link | None:
    """Replace bytes or a binary file by bytes, or by an upload, whose link is returned."""
    _refs(connection, inputs)
    data: Any = inputs[name]
    pieces: Iterator[Bytes] | None = None
    if hasattr(data, "read"):
        file, data = data, read_block(data, PART_BYTES + 1)  # `put` makes a stream from here on too
        if len(data) > PART_BYTES:
            pieces = _blocks(data, file)
    elif not isinstance(data, (bytes, bytearray, memoryview)):
        wrong = f"a {what} is bytes, not {type(data).__name__}"
        raise InputError(wrong, "encode it, or give a binary file")
    elif (view := flat(data)).nbytes > PAGE_BYTES:
        _check_expected(view, inputs)
        pieces = (view[at : at + PART_BYTES] for at in range(0, len(view), PART_BYTES))
    if pieces is None:
        inputs[name] = data if isinstance(data, bytes) else bytes(flat(data))
        return None
    inputs[name] = upload = connection.upload(pieces)
    return upload.link


def _blocks(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = read_block(file, PART_BYTES)


def _check_expected(view: memoryview, inputs: Inputs) -> None:
    """Raise the errors of `put` for bytes that are not as expected, before they are sent."""
    from blake3 import blake3

    digests_of(inputs.get("refs", ()))
    expected = inputs.get("expect_hash")
    wanted = None if expected is None else digest_of(expected)
    check_size(len(view), inputs.get("expect_size"))
    if wanted is not None:
        check_hash(blake3(view).digest(), wanted)


# Results that come page by page.


class Pages:
    """An iterator that comes page by page; it ends when it is closed or deleted."""

    def __init__(
        self, connection: Connection, link: Link, number: int | None, items: list[Any]
    ) -> None:
        """Begin with a page; `number` is the cursor that has more, None when that was all."""
        self._connection = connection
        self._link = link
        self._number = number
        self._items = iter(items)

    def __iter__(self) -> Pages:
        """Return the iterator."""
        return self

    def __next__(self) -> Any:
        """Return the next item."""
        while True:
            for item in self._items:
                return item
            if self._number is None:
                raise StopIteration
            number, self._number = self._number, None  # any error ends it
            more = self._connection.call("pages", number, "next", {}, self._link)
            if not isinstance(more, Pages):
                what = "CALL: the answer to 'next' is no page"
                raise Malformed(what, "use a client as new as the server")
            self._number, self._items = more.moved()

    def moved(self) -> tuple[int | None, Iterator[Any]]:
        """Return the cursor and the items that are left, to an iterator that goes on with them."""
        number, self._number = self._number, None
        return number, self._items

    def close(self) -> None:
        """Stop; the server drops the cursor with the next call."""
        number, self._number, self._items = self._number, None, iter(())
        if number is not None:
            self._connection.leave(self._link, "pages", number)

    def __del__(self) -> None:
        """Stop."""
        if getattr(self, "_number", None) is not None:
            self.close()


# The classes.


class Remote:
    """An object at the server."""

    kind = ""  # of rpc.CALLS

    def __init__(self, connection: Connection, which: Any) -> None:
        """Represent the object with an id; sends nothing yet."""
        self._connection = connection
        self._which = which

    def named(self, connection: Connection) -> Named:
        """Return kind and id; raise InputError for another connection than its own."""
        if self._connection is not connection:
            what = f"{self!r} is of another connection"
            raise InputError(what, "give one that was got over this connection")
        return self.kind, self._which

    def call(self, method: str, inputs: Inputs, prepare: Prepare | None = None) -> Any:
        """Call a method at the server; see `Connection.call`."""
        only = prepare(self._connection, inputs) if prepare else None
        return self._connection.call(self.kind, self._which, method, inputs, only)

    def __repr__(self) -> str:
        """Name the object and its place."""
        name = type(self).__name__.removeprefix("Remote")
        shown = "" if self._which is None else f" {self._which}"
        return f"<eventq.{name}{shown} at {self._connection.url}>"


def served(
    local: Callable[Concatenate[Any, P], R], prepare: Prepare | None = None
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that has the signature of a local one and runs at the server."""
    name, form = local.__name__, signature(local)
    fits = _FITS.get(name)

    def method(self: Any, /, *args: Any, **named: Any) -> Any:
        inputs = form.bind(self, *args, **named).arguments
        del inputs["self"]
        found = self.call(name, inputs, prepare)
        if fits is not None and not fits(found):
            raise unfit(name)
        return found

    return update_wrapper(method, local)


def served_as(
    kind: Callable[[], type[R]], local: Callable[Concatenate[Any, P], object]
) -> Callable[Concatenate[Any, P], R]:
    """Return what `served` returns, for a method whose result is a remote object of a class."""
    method = served(local)

    def checked(*args: Any, **named: Any) -> Any:
        found = method(*args, **named)
        if not isinstance(found, kind()):
            raise unfit(local.__name__)
        return found

    return update_wrapper(checked, local)


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value <= sys.maxsize


# What Python itself would refuse otherwise, in words of its own.
_FITS: dict[str, Callable[[object], bool]] = {
    "__len__": _is_length,
    "__iter__": lambda value: isinstance(value, Pages),
}


class RemoteChain(Remote):
    """A `Chain` at the server, which keeps nothing while it is iterated."""

    kind = "chain"

    def __len__(self) -> int:
        """Return the number of turns."""
        _, start, end, *_ = self._which
        return int(max(0, end - start))

    def __iter__(self) -> Iterator[Turn]:
        """Yield the turns, oldest first, in bounded memory; patches made meanwhile do not show."""
        # In the pages of a local chain: damage shows at the same turn.
        head, start, end, payload, as_of = self._which
        upto = start
        while True:
            upto = min(start + PAGE_TURNS, end) if start == upto else upto
            part = RemoteChain(self._connection, [head, start, upto, payload, as_of])
            as_of, turns = _checked_page(part.call("page", {}), upto - start)
            yield from turns
            start += len(turns)
            if start >= end:
                return


def _checked_page(found: Any, most: int) -> tuple[object, list[Turn]]:
    """Return the patch and the turns of a page; without turns, or with too many, it never ends."""
    if type(found) is list and len(found) == 2 and type(found[1]) is list:
        as_of, turns = found
        enough = bool(turns) or most <= 0
        if enough and len(turns) <= max(0, most) and all(type(turn) is Turn for turn in turns):
            return as_of, turns
    raise unfit("page")


class RemoteView(Remote):
    """A `View` at the server."""

    kind = "view"

    head_id = served(View.head_id)
    last = served(View.last)
    before = served(View.before)
    range = served(View.range)
    replay = served_as(lambda: RemoteChain, View.replay)
    at = served_as(lambda: RemoteView, View.at)
    ancestor = served(View.ancestor)
    has = served(View.has)
    common_ancestor = served(View.common_ancestor)
    diff = served(View.diff)


class RemoteOpenTurn(Remote):
    """An `OpenTurn` at the server."""

    kind = "open"

    @property
    def id(self) -> int:
        """The number of the open turn."""
        number: int = self._which
        return number

    info = served(OpenTurn.info)
    append_delta = served(OpenTurn.append_delta, _delta)
    read = served(OpenTurn.read)
    seal = served(OpenTurn.seal, _refs)
    discard = served(OpenTurn.discard)


class RemoteContext(RemoteView):
    """A `Context` at the server."""

    kind = "context"

    @property
    def id(self) -> int:
        """The number of the context."""
        number: int = self._which
        return number

    head_id = served(Context.head_id)
    info = served(Context.info)
    append = served(Context.append, _payload)
    patch = served(Context.patch, _payload)
    tombstone = served(Context.tombstone)
    fork = served_as(lambda: RemoteContext, Context.fork)
    move = served(Context.move)
    history = served(Context.history)
    delete = served(Context.delete)
    open_turn = served_as(lambda: RemoteOpenTurn, Context.open_turn)
    open_turns = served(Context.open_turns)


class RemoteTurns(Remote):
    """The `Turns` at the server."""

    kind = "turns"

    common = served(Turns.common)
    depth = served(Turns.depth)
    ancestor = served(Turns.ancestor)


class RemoteContexts(Remote):
    """The `Contexts` at the server."""

    kind = "contexts"

    @property
    def turns(self) -> RemoteTurns:
        """The graph of the turns."""
        return RemoteTurns(self._connection, None)

    create = served_as(lambda: RemoteContext, Contexts.create)
    fork = served_as(lambda: RemoteContext, Contexts.fork)
    get = served_as(lambda: RemoteContext, Contexts.get)
    list = served(Contexts.list)
    __iter__ = served(Contexts.__iter__)
    head = served(Contexts.head)
    compare_and_set = served(Contexts.compare_and_set)
    delete = served(Contexts.delete)
    history = served(Contexts.history)
    turn = served(Contexts.turn)
    at = served_as(lambda: RemoteView, Contexts.at)
    children = served(Contexts.children)
    patch = served(Contexts.patch, _payload)
    tombstone = served(Contexts.tombstone)
    attach = served(Contexts.attach)
    root = served(Contexts.root)
    open_turns = served(Contexts.open_turns)
    open_turn = served_as(lambda: RemoteOpenTurn, Contexts.open_turn)


class RemoteBlobs(Remote):
    """The `Blobs` at the server."""

    kind = "blobs"

    put = served(Blobs.put, _data)
    get = served(Blobs.get)
    stream = served(Blobs.stream)
    has = served(Blobs.has)
    stat = served(Blobs.stat)
    __iter__ = served(Blobs.__iter__)
    __len__ = served(Blobs.__len__)
    refs = served(Blobs.refs)
    holders = served(Blobs.holders)
    verify = served(Blobs.verify)
    faults = served(Blobs.faults)
    pins = served(Blobs.pins)
    pin = served(Blobs.pin)
    unpin = served(Blobs.unpin)


REMOTE: dict[str, type[Remote]] = {
    one.kind: one
    for one in (
        RemoteContexts, RemoteTurns, RemoteContext, RemoteView, RemoteChain, RemoteOpenTurn,
        RemoteBlobs,
    )
}  # fmt: skip
