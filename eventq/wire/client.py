"""The client: the contexts and blobs of a thread that is served elsewhere, with the methods that they have at home.

`connect` gives a `Connection`. Its `contexts` and `blobs`, and what they give (contexts, views,
open turns, chains), have the methods of the local classes that `calls.CALLS` names, made from their
signatures: the same arguments, results and errors. What is iterated comes page by page, of a chain
without anything that is kept at the server; large payloads and files go out piece by piece ahead of
the call.

A connection is made anew when the server has closed it in between. When it breaks under a call, what only reads is
asked once more; what writes raises LogicError, as nobody can say whether it was done.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import update_wrapper

from eventq import system
from eventq.blobs import (
    PART_BYTES,
    check_hash,
    check_size,
    digest_of,
    digests_of,
    flat,
    read_block,
)
from eventq.dag.turns import PAGE_TURNS, Chain, Diff, encoded
from eventq.errors import ClosedError, EventqError, InputError, LogicError, UsageError
from eventq.records import NewTurn, Turn
from eventq.wire.address import host_and_port, unix_path
from eventq.wire.frames import (
    Call,
    Called,
    Failure,
    Frame,
    Hello,
    Malformed,
    Pairing,
    Reader,
    Type,
    Welcome,
    decode_reply,
    encode_request,
)
from eventq.wire.rpc import (
    CALLS,
    LOCAL,
    PAGE_BYTES,
    WRITE,
    Unpacked,
    is_id_of,
    pack,
    raised,
    signature_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, BinaryIO

    from eventq.blobs import Blobs
    from eventq.dag.contexts import Contexts
    from eventq.wire.frames import Bytes, Reply, Request
    from eventq.wire.rpc import Named

    MakeSocket = Callable[[], socket.socket]
    Address = tuple[str, int] | str  # host and port, or the path of a socket

CONNECT_SECONDS = 10
REPLY_SECONDS = 300
_MOST_READ = 1 << 20  # bytes at once
_DIAL_SECONDS = 0.02  # between two attempts at a server who has too many waiting
_SCHEME = "eventq://"
_FORM = "give eventq://HOST:PORT or unix:PATH"


def connect(
    url: str,
    *,
    token: str | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    reply_seconds: float = REPLY_SECONDS,
) -> Connection:
    """Give a connection to the server at `eventq://HOST:PORT` (an IPv6 host in brackets) or `unix:PATH`.

    The token is what the server was started with; unless told it is that of EVENTQ_TOKEN. No connection is waited for
    longer than `connect_seconds`, no reply longer than `reply_seconds`. Raises UsageError for what is no such URL,
    LogicError when nobody listens there.
    """
    address = parse(url)
    return Connection(
        url, lambda: _reach(url, address, connect_seconds), token=token, reply_seconds=reply_seconds
    )


def parse(url: str) -> Address:
    """Give host and port of a URL, or the path of its socket. Raises UsageError, which shows the form."""
    if isinstance(url, str) and url.isprintable():
        if path := unix_path(url):
            return path
        found = host_and_port(url.removeprefix(_SCHEME)) if url.startswith(_SCHEME) else None
        if found is not None and found[1]:
            return found
    raise UsageError(f"{url!r:.200} is not the address of a server", _FORM)


def _reach(url: str, address: Address, seconds: float) -> socket.socket:
    """Open a socket. Raises LogicError, with the next step."""
    made = None
    try:
        if isinstance(address, tuple):
            made = socket.create_connection(address, seconds)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(seconds)
        _dial(made, address, seconds)
    except (OSError, UnicodeError) as error:
        if made is not None:
            made.close()
        why = getattr(error, "strerror", None) or error
        raise LogicError(
            f"no server answers at {url} ({why})", "run 'eventq serve' there, or check the address"
        ) from error
    return made


def _dial(made: socket.socket, path: str, seconds: float) -> None:
    """Connect to a path; a server who has as many waiting as it lets wait is asked again until the time is over."""
    end = system.monotonic() + seconds
    while True:
        try:
            return made.connect(path)
        except BlockingIOError:  # unlike TCP it does not wait by itself, nor can it be waited for
            if system.monotonic() >= end:
                raise
            system.pause(_DIAL_SECONDS)


class Broken(Exception):  # noqa: N818 (never leaves this module)
    """The connection is of no use any more; `sent` says that the request was sent whole before."""

    def __init__(self, why: str, *, sent: bool, again: bool = True) -> None:
        super().__init__(why)
        self.sent = sent
        self.again = again


class _Link:
    """One socket: a request, then its reply, HELLO first."""

    session_id = 0

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._reader = Reader()
        self._pairing = Pairing()
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self._number = 0
        self._open = True
        self._closing = allocate_lock()

    def greet(self, token: str | None, reply_seconds: float) -> None:
        """Say hello. Raises what the server says to it, Broken."""
        meta = {"errors": "json"} | ({} if token is None else {"token": token})
        welcome = self.ask(Hello(1, "eventq", json.dumps(meta)))
        assert isinstance(welcome, Welcome)
        self.session_id = welcome.session_id
        self._socket.settimeout(reply_seconds)

    def close(self) -> None:
        with self._closing:
            self._open = False
            self._socket.close()

    def stop(self) -> None:
        """End the call under way in another thread, whose task it is to close the socket then."""
        if not self._closing.acquire(blocking=False):
            return  # it is just being closed
        try:
            if self._open:  # else the number of the socket may be another's by now
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        finally:
            self._closing.release()

    def farewell(self) -> str | None:
        """Give what the server said when it closed the connection since the last reply, None while it is open."""
        if self._open and not self._poll.poll(0):
            return None
        last = self._last_frame()
        return "the server closed the connection" if last is None else _words(last)

    def _last_frame(self) -> Frame | None:
        """Give what the server sent before it closed the connection."""
        try:
            while self._open and (frame := self._reader.next()) is None and self._poll.poll(0):
                self._fill()
        except (Broken, EventqError):
            return None
        return frame if self._open else None

    def ask(self, request: Request) -> Reply:
        """Send a request and give its reply. Raises the error that is its reply, Broken."""
        self._number += 1
        frame = encode_request(request, self._number)
        self._pairing.sent(self._number, request)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            last = self._last_frame()
            self.close()  # half a frame may be on its way
            if last is not None and last.req_id == self._number:
                raise raised(_failure(last)) from error  # it was refused before it had arrived
            words = _why(error) if last is None else _words(last)
            raise Broken(words, sent=False, again=not isinstance(error, TimeoutError)) from error
        reply = self._reply()
        if isinstance(reply, Failure):
            raise raised(reply)
        return reply

    def _reply(self) -> Reply:
        try:
            while (frame := self._reader.next()) is None:
                self._fill()
            if frame.type == Type.ERROR and not frame.req_id:
                raise Broken(_words(frame), sent=True)
            kind, _ = self._pairing.matched(frame)
            return decode_reply(frame, kind)
        except EventqError as error:
            raise Broken(str(error), sent=True, again=False) from error

    def _fill(self) -> None:
        """Read what comes next, no more than a frame."""
        try:
            data = self._socket.recv(min(self._reader.needs(), _MOST_READ))
        except TimeoutError as error:
            seconds = self._socket.gettimeout()
            raise Broken(
                f"no reply came within {seconds:g} seconds", sent=True, again=False
            ) from error
        except OSError as error:
            raise Broken(_why(error), sent=True) from error
        if not data:
            raise Broken("the server closed the connection", sent=True)
        self._reader.feed(data)


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _failure(frame: Frame) -> Failure:
    """Give the failure in an ERROR. Raises Malformed for any other frame."""
    found = decode_reply(frame, Type.ERROR)
    assert isinstance(found, Failure)
    return found


def _words(frame: Frame) -> str:
    """Give what the server said last."""
    try:
        return raised(_failure(frame)).what
    except EventqError:
        return "the server sent what nobody had asked for"


class Connection:
    """A thread that is served elsewhere; a context manager, safe to share between threads, not across a fork.

    `contexts` and `blobs` are typed as the local classes, `Contexts` and `Blobs`, because they have their methods; they
    are no instances of them.
    """

    contexts: Contexts
    blobs: Blobs

    def __init__(
        self,
        url: str,
        make_socket: MakeSocket,
        *,
        token: str | None = None,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        """Use the sockets that a function opens, one now and another when one breaks; see `connect`."""
        self.url = self.path = url  # as `path` it stands where that of a thread does
        self._make_socket = make_socket
        self._token = system.env("EVENTQ_TOKEN") or None if token is None else token
        self._reply_seconds = reply_seconds
        self._pid = os.getpid()
        self._lock = allocate_lock()
        self._closed = False
        self._left: deque[tuple[_Link, str, int]] = (
            deque()
        )  # cursors and uploads that nobody will ask for again
        self._newest: _Link | None = None  # it may have to say hello yet
        self._link: _Link | None = self._open()
        self.contexts = REMOTE["contexts"](self, None)  # type: ignore[assignment]
        self.blobs = REMOTE["blobs"](self, None)  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Name the connection."""
        return f"<eventq.Connection {self.url}>"

    def __enter__(self) -> Connection:
        """Give the connection."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    @property
    def session_id(self) -> int:
        """The number that the server gave to the newest socket of this connection, 0 when there is none."""
        return self._link.session_id if self._link else 0

    def close(self) -> None:
        """Close the socket; closing twice is fine, using the connection afterwards raises ClosedError.

        So does a call that is under way in another thread: its reply is not waited for.
        """
        if self._pid != os.getpid():
            return  # it is the opener's
        self._closed = True
        if self._newest is not None:
            self._newest.stop()
        self._end()

    def _end(self) -> None:
        """Let go of the socket, unless a call has it, which then does so itself after it has given the lock back."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # --- one call -------------------------------------------------------------------------------------------------

    def ask(self, call: Call, how: str, only: _Link | None = None) -> tuple[Called, _Link]:
        """Give the answer to a call, and the link it came over. With `only` no other link is taken.

        Raises what the server raises, ClosedError, and LogicError when the connection is lost.
        """
        self._check()
        try:
            with self._lock:
                return self._ask_again(call, how, only)
        finally:
            if self._closed:  # meanwhile
                self._end()

    def _ask_again(self, call: Call, how: str, only: _Link | None) -> tuple[Called, _Link]:
        """Ask, and once more where that does no harm."""
        try:
            return self._ask(call, only)
        except Broken as error:
            self._drop()
            self._excuse(error, how, only)
        try:
            return self._ask(call, None)
        except Broken as error:
            self._drop()
            self._excuse(error, how, None)
            raise _lost(f"the connection to {self.url} broke twice: {error}") from error

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(
                "the connection was made before this process was forked",
                "connect again after the fork",
            )
        if self._closed:
            raise ClosedError("the connection is closed", "connect again with eventq.connect")

    def _ask(self, call: Call, only: _Link | None) -> tuple[Called, _Link]:
        link = self._ready(only)
        try:
            while self._left:
                self._forget(*self._left.popleft())
            reply = link.ask(call)
        except (Broken, EventqError):
            raise
        except (
            BaseException
        ):  # an interrupt, say: the reply is still to come, and would be taken for another's
            self._drop()
            raise
        assert isinstance(reply, Called)
        return reply, link

    def _ready(self, only: _Link | None) -> _Link:
        """Give a link that was open a moment ago."""
        self._check()
        said = None
        if self._link is not None and (said := self._link.farewell()) is not None:
            self._drop()
            self._check()  # it may have been our own `close`
        if only is not None and only is not self._link:
            raise self._lost_with(said or "the server closed the connection")
        if self._link is None:
            try:
                self._link = self._open()
            except LogicError as error:
                self._check()
                if said is not None:
                    error.what += f"; before, the server had said: {said}"
                raise
        return self._link

    def _open(self) -> _Link:
        link = self._newest = _Link(self._make_socket())
        try:
            self._check()  # `close` may have come before it could find this link
            link.greet(self._token, self._reply_seconds)
        except BaseException as error:
            link.close()
            if not isinstance(error, Broken):
                raise
            raise _lost(f"the server at {self.url} did not say hello: {error}") from error
        return link

    def _excuse(self, error: Broken, how: str, only: _Link | None) -> None:
        """Raise what there is to say of a broken connection, unless the call can be made again."""
        self._check()
        if only is not None:
            raise self._lost_with(str(error)) from error
        if error.sent and how == WRITE:
            raise _lost(
                f"the connection to {self.url} broke, and whether the call was done is not known:"
                f" {error}",
                "look at the head, or make the same call with the same key again",
            ) from error
        if not error.again:
            raise _lost(f"the connection to {self.url} broke: {error}") from error

    def _lost_with(self, why: str) -> LogicError:
        return _lost(
            f"the connection to {self.url} broke, and with it what was begun on it: {why}",
            "begin it again",
        )

    def _forget(self, link: _Link, kind: str, number: int) -> None:
        """Let go of a cursor or an upload at the server."""
        if link is not self._link:
            return
        try:
            link.ask(
                Call(json.dumps([kind, number, "close" if kind == "pages" else "drop", [], {}]))
            )
        except Broken as error:
            raise Broken(str(error), sent=False) from error  # the call that is to come was not
        except EventqError:
            pass  # of no concern to that call

    def leave(self, link: _Link, kind: str, number: int) -> None:
        """Have a cursor or an upload dropped with the next call: this may come at any moment, from any thread."""
        self._left.append((link, kind, number))

    # --- values ---------------------------------------------------------------------------------------------------

    def call(
        self,
        kind: str,
        which: object,
        method: str,
        arguments: dict[str, Any],
        only: _Link | None = None,
    ) -> Any:
        """Call a method of something at the server, and give what it gives."""
        parts: list[Bytes] = []
        place = pack(which, parts, self._named)
        named = {name: pack(value, parts, self._named) for name, value in arguments.items()}
        call = Call(_told([kind, place, method, [], named]), tuple(parts))
        called, link = self.ask(call, CALLS[kind][method], only)
        found = Unpacked(
            called.message, called.parts, lambda tag, inside: self._made(link, tag, inside)
        )
        return found.value(found.message)

    def _named(self, value: object) -> Named | None:
        if isinstance(value, _Upload):
            return "upload", value.number
        return value.named(self) if isinstance(value, Remote) else None

    def _made(self, link: _Link, tag: str, inside: Any) -> object:
        """Give what stands for something at the server."""
        if tag in REMOTE and is_id_of(tag, inside):
            return REMOTE[tag](self, inside)
        if type(inside) is list and tag == "diff" and len(inside) == 3:
            return Diff(*inside)
        if type(inside) is list and tag == "pages" and len(inside) == 2 and type(inside[1]) is list:
            number, items = inside
            if number is None or is_id_of("pages", number):
                return Pages(self, link, number, items)
        raise Malformed(
            f"CALL: the answer holds a {tag!r:.100}", "use a client as new as the server"
        )

    # --- uploads --------------------------------------------------------------------------------------------------

    def upload(self, pieces: Iterator[Bytes]) -> _Upload:
        """Send bytes ahead of the call that takes them."""
        made: _Upload | None = None
        try:
            for piece in pieces:
                number = None if made is None else made.number
                parts: list[Bytes] = []
                told = json.dumps(
                    [
                        "upload",
                        number,
                        "append",
                        [],
                        {"data": pack(bytes(piece), parts, self._named)},
                    ]
                )
                called, link = self.ask(
                    Call(told, tuple(parts)), WRITE, None if made is None else made.link
                )
                made = made or _Upload(_number(called), link)
        except BaseException:
            if made is not None:
                self.leave(made.link, "upload", made.number)
            raise
        assert made is not None
        return made


def _told(call: list[Any]) -> str:
    """Give a call as JSON: names are told as they are, as what a call tells has its limit in characters."""
    told = json.dumps(call, ensure_ascii=False, separators=(",", ":"))
    try:
        told.encode()
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(call)
    return told


def _lost(what: str, fix: str = "see whether the server runs, then try again") -> LogicError:
    return LogicError(what, fix)


def _number(called: Called) -> int:
    """Give the number of an upload that has begun."""
    number = Unpacked(called.message, (), lambda _, __: None).message
    if number is None or not is_id_of("upload", number):
        raise Malformed(
            "CALL: the answer is no number of an upload", "use a client as new as the server"
        )
    return int(number)


class _Upload:
    """Bytes that the server has, for one call over the same link."""

    def __init__(self, number: int, link: _Link) -> None:
        self.number = number
        self.link = link


class Pages:
    """An iterator that comes page by page; `close` it, or let go of it, to stop."""

    def __init__(
        self, connection: Connection, link: _Link, number: int | None, items: list[Any]
    ) -> None:
        """Begin with a page; `number` is the cursor that has more, None when that was all."""
        self._connection = connection
        self._link = link
        self._number = number
        self._items = iter(items)

    def __iter__(self) -> Pages:
        """Give the iterator."""
        return self

    def __next__(self) -> Any:
        """Give the next item."""
        while True:
            for item in self._items:
                return item
            if self._number is None:
                raise StopIteration
            number, self._number = self._number, None  # whatever goes wrong ends it
            more = self._connection.call("pages", number, "next", {}, self._link)
            if not isinstance(more, Pages):
                raise Malformed(
                    "CALL: the answer to 'next' is no page", "use a client as new as the server"
                )
            self._number, self._items = more.moved()

    def moved(self) -> tuple[int | None, Iterator[Any]]:
        """Return the cursor and the items that are left, to an iterator that goes on with them."""
        number, self._number = self._number, None
        return number, self._items

    def close(self) -> None:
        """Stop; the server forgets the iteration with the next call."""
        number, self._number, self._items = self._number, None, iter(())
        if number is not None:
            self._connection.leave(self._link, "pages", number)

    def __del__(self) -> None:
        """Stop."""
        if getattr(self, "_number", None) is not None:
            self.close()


# The objects that stand for those at the server.


class Remote:
    """Something at the server, with the methods that CALLS has for its kind."""

    _kind: str

    def __init__(self, connection: Connection, which: Any) -> None:
        """Stand for one of a kind; nothing is asked yet."""
        self._connection = connection
        self._which = which

    def named(self, connection: Connection) -> Named:
        """Return kind and id; raise InputError unless the connection is its own."""
        if self._connection is not connection:
            raise InputError(
                f"{self!r} is of another connection", "give one that was got over this connection"
            )
        return self._kind, self._which

    def __repr__(self) -> str:
        """Name what it stands for."""
        shown = "" if self._which is None else f" {self._which}"
        return f"<eventq.{LOCAL[self._kind].__name__}{shown} at {self._connection.url}>"


def _method(kind: str, name: str) -> Callable[..., Any]:
    """Give a method that is called as the local one and runs at the server."""
    form = signature_of(kind, name)
    prepare = _PREPARE.get((kind, name))
    fits = _GIVES.get(name)

    def call(self: Remote, *args: Any, **named: Any) -> Any:
        arguments = form.bind(self, *args, **named).arguments
        del arguments["self"]
        only = prepare(self._connection, arguments) if prepare else None
        found = self._connection.call(kind, self._which, name, arguments, only)
        if fits is not None and not fits(found):
            raise _nonsense(name)
        return found

    return update_wrapper(call, getattr(LOCAL[kind], name))


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value <= sys.maxsize


_GIVES: dict[str, Callable[[object], bool]] = {
    "__len__": _is_length,
    "__iter__": lambda value: isinstance(value, Pages),
}  # what Python itself would refuse otherwise, in words of its own


def _nonsense(method: str) -> Malformed:
    return Malformed(f"CALL: the answer to {method!r} is none", "use a client as new as the server")


def _payload(
    connection: Connection, arguments: dict[str, Any], what: str = "payload"
) -> _Link | None:
    """Make bytes of a payload as it is done at home, also inside a `NewTurn`."""
    new = arguments["payload"]
    if type(new) is not NewTurn:
        arguments["payload"] = encoded(new, None)
        return _bytes(connection, arguments, "payload", what)
    parts = {name: getattr(new, name) for name in ("refs", "expect_hash", "expect_size")}
    parts["payload"] = encoded(new.payload, new.canonical)
    link = _bytes(connection, parts, "payload", what)
    arguments["payload"] = replace(new, payload=parts["payload"], refs=parts["refs"])
    return link


def _data(connection: Connection, arguments: dict[str, Any]) -> _Link | None:
    return _bytes(connection, arguments, "data", "blob")


def _delta(connection: Connection, arguments: dict[str, Any]) -> _Link | None:
    data = encoded(arguments["data"], None, "the delta")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(f"a delta is bytes or text, not {type(data).__name__}", "encode it")
    arguments["data"] = data
    return _bytes(connection, arguments, "data", "delta")


def _refs(_: Connection, arguments: dict[str, Any]) -> None:
    """Make a list of refs, which may be any iterable; what is none is refused at the server."""
    refs = arguments.get("refs")
    if hasattr(refs, "__iter__") and not isinstance(refs, (str, bytes, list, tuple)):
        arguments["refs"] = list(refs)  # type: ignore[arg-type]


def _bytes(connection: Connection, arguments: dict[str, Any], name: str, what: str) -> _Link | None:
    """Have bytes sent, or what a binary file gives: with the call, or ahead of it over the link that is given back."""
    _refs(connection, arguments)
    data: Any = arguments[name]
    pieces: Iterator[Bytes] | None = None
    if hasattr(data, "read"):
        file, data = data, read_block(data, PART_BYTES + 1)  # where `put` makes the difference too
        if len(data) > PART_BYTES:
            pieces = _blocks(data, file)
    elif not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(
            f"a {what} is bytes, not {type(data).__name__}", "encode it, or give a binary file"
        )
    elif (view := flat(data)).nbytes > PAGE_BYTES:
        _check_expected(view, arguments)
        pieces = (view[at : at + PART_BYTES] for at in range(0, len(view), PART_BYTES))
    if pieces is None:
        arguments[name] = data if isinstance(data, bytes) else bytes(flat(data))
        return None
    arguments[name] = upload = connection.upload(pieces)
    return upload.link


def _blocks(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = read_block(file, PART_BYTES)


def _check_expected(view: memoryview, arguments: dict[str, Any]) -> None:
    """Refuse bytes that are not what their caller says, in the words of `put`, before they are sent."""
    from blake3 import blake3

    digests_of(arguments.get("refs", ()))
    expected = arguments.get("expect_hash")
    wanted = None if expected is None else digest_of(expected)
    check_size(len(view), arguments.get("expect_size"))
    if wanted is not None:
        check_hash(blake3(view).digest(), wanted)


_PREPARE: dict[tuple[str, str], Callable[[Connection, dict[str, Any]], _Link | None]] = {
    ("contexts", "patch"): _payload,
    ("context", "append"): _payload,
    ("context", "patch"): _payload,
    ("blobs", "put"): _data,
    ("open", "append_delta"): _delta,
    ("open", "seal"): _refs,
}  # what is done to the arguments before they are sent


def _remote(kind: str, **more: object) -> type[Remote]:
    """Make the class that stands for a local one."""
    local = LOCAL[kind]
    methods = {name: _method(kind, name) for name in CALLS[kind] if hasattr(local, name)}
    return type(
        local.__name__, (Remote,), {"__doc__": local.__doc__, "_kind": kind, **methods, **more}
    )


def _turns(self: Remote) -> Remote:
    return REMOTE["turns"](self._connection, None)


def _id(self: Remote) -> Any:
    return self._which


def _length(self: Remote) -> int:
    _, start, end, *_ = self._which
    return int(max(0, end - start))


def _turns_of_chain(self: Remote) -> Iterator[Turn]:
    """Ask for the turns, each time for those that the local chain reads together: damage shows where it does there."""
    head, start, end, payload, as_of = self._which
    upto = start
    while True:
        upto = min(start + PAGE_TURNS, end) if start == upto else upto
        found = self._connection.call("chain", [head, start, upto, payload, as_of], "page", {})
        as_of, turns = _checked_page(found, upto - start)
        yield from turns
        start += len(turns)
        if start >= end:
            return


def _checked_page(found: Any, most: int) -> tuple[object, list[Turn]]:
    """Give the overlay and the turns of a page of a chain; without a turn, or with too many, it would have no end."""
    if (
        type(found) is list
        and len(found) == 2
        and type(found[1]) is list
        and (found[1] or most <= 0)
    ):
        as_of, turns = found
        if len(turns) <= max(0, most) and all(type(turn) is Turn for turn in turns):
            return as_of, turns
    raise _nonsense("page")


REMOTE: dict[str, type[Remote]] = {
    "contexts": _remote("contexts", turns=property(_turns, doc="The graph of the turns.")),
    "turns": _remote("turns"),
    "context": _remote("context", id=property(_id, doc="The number of the context.")),
    "view": _remote("view"),
    "chain": _remote(
        "chain", __len__=_length, __iter__=update_wrapper(_turns_of_chain, Chain.__iter__)
    ),
    "open": _remote("open", id=property(_id, doc="The number of the open turn.")),
    "blobs": _remote("blobs"),
}  # by kind
