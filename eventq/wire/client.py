"""The client: contexts and blobs of a served thread.

`connect` returns a `Connection`, whose `contexts` and `blobs` have the methods of a local thread
(see `eventq.wire.remote`).

If the server has closed the connection between two calls, the client reconnects. If the connection
breaks during a call, a read is repeated; a write raises LogicError, as it may or may not have been
executed.
"""

from __future__ import annotations

import json
import os
import select
import socket
from _thread import allocate_lock
from collections import deque
from contextlib import suppress

from eventq.errors import ClosedError, EventqError, LogicError, UsageError
from eventq.memory.turns import Diff
from eventq.system import clock, environment
from eventq.wire.endpoint import host_and_port, unix_path
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
from eventq.wire.remote import REMOTE, Pages, Remote, RemoteBlobs, RemoteContexts, Upload
from eventq.wire.rpc import CALLS, WRITE, Unpacked, is_id_of, pack, raised

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any

    from eventq.wire.frames import Bytes, Reply, Request
    from eventq.wire.rpc import Named

    MakeSocket = Callable[[], socket.socket]
    Address = tuple[str, int] | str  # host and port, or the path of a socket

CONNECT_SECONDS = 10
REPLY_SECONDS = 300
_MOST_READ = 1 << 20  # bytes at once
_DIAL_SECONDS = 0.02  # between two attempts at a server whose queue is full
_SCHEME = "eventq://"
_FORM = "give eventq://HOST:PORT or unix:PATH"


def connect(
    url: str,
    *,
    token: str | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    reply_seconds: float = REPLY_SECONDS,
) -> Connection:
    """Connect to the server at `eventq://HOST:PORT` (an IPv6 host in brackets) or `unix:PATH`.

    `token` is the token of the server (default: EVENTQ_TOKEN). Connecting takes at most
    `connect_seconds`, a reply at most `reply_seconds`. Raises UsageError for another URL,
    LogicError when nobody listens there.
    """
    address = parse(url)
    return Connection(
        url, lambda: _reach(url, address, connect_seconds), token=token, reply_seconds=reply_seconds
    )


def parse(url: str) -> Address:
    """Return host and port of a URL, or the path of its socket. Raises UsageError."""
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
    """Connect to a path; while the server's queue is full, retry until the timeout."""
    end = clock.monotonic() + seconds
    while True:
        try:
            return made.connect(path)
        except BlockingIOError:  # unlike TCP it does not wait, nor can it be waited for
            if clock.monotonic() >= end:
                raise
            clock.pause(_DIAL_SECONDS)


class Broken(Exception):  # noqa: N818 (never leaves this module)
    """The connection cannot be used any more; `sent` says whether the request was sent whole."""

    def __init__(self, why: str, *, sent: bool, again: bool = True) -> None:
        super().__init__(why)
        self.sent = sent
        self.again = again


class Link:
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
        """Send HELLO. Raises the error that is its reply, Broken."""
        meta = {"errors": "json"} | ({} if token is None else {"token": token})
        welcome = self.ask(Hello(1, "eventq", json.dumps(meta)))
        assert isinstance(welcome, Welcome)
        self.session_id = welcome.session_id
        self._socket.settimeout(reply_seconds)

    def close(self) -> None:
        """Close the socket."""
        with self._closing:
            self._open = False
            self._socket.close()

    def stop(self) -> None:
        """End the call under way in another OS thread, which closes the socket then."""
        if not self._closing.acquire(blocking=False):
            return  # it is being closed
        try:
            if self._open:  # or the number of the socket may be another's by now
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        finally:
            self._closing.release()

    def farewell(self) -> str | None:
        """Return why the server closed the connection after the last reply, None if it is open."""
        if self._open and not self._poll.poll(0):
            return None
        last = self._last_frame()
        return "the server closed the connection" if last is None else _words(last)

    def _last_frame(self) -> Frame | None:
        """Return the last frame before the server closed the connection, or None."""
        try:
            while self._open and (frame := self._reader.next()) is None and self._poll.poll(0):
                self._fill()
        except (Broken, EventqError):
            return None
        return frame if self._open else None

    def ask(self, request: Request) -> Reply:
        """Send a request and return its reply. Raises the error that is its reply, Broken."""
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
        """Read the next bytes, at most one frame."""
        try:
            data = self._socket.recv(min(self._reader.needs(), _MOST_READ))
        except TimeoutError as error:
            seconds = self._socket.gettimeout()
            why = f"no reply came within {seconds:g} seconds"
            raise Broken(why, sent=True, again=False) from error
        except OSError as error:
            raise Broken(_why(error), sent=True) from error
        if not data:
            raise Broken("the server closed the connection", sent=True)
        self._reader.feed(data)


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _failure(frame: Frame) -> Failure:
    """Return the failure in an ERROR. Raises Malformed for any other frame."""
    found = decode_reply(frame, Type.ERROR)
    assert isinstance(found, Failure)
    return found


def _words(frame: Frame) -> str:
    """Return the message of the last frame."""
    try:
        return raised(_failure(frame)).what
    except EventqError:
        return "the server sent what nobody had asked for"


class Connection:
    """A thread that is served elsewhere, to be used as a context manager.

    It may be shared by the OS threads of a process, but not used across a fork.
    """

    def __init__(
        self,
        url: str,
        make_socket: MakeSocket,
        *,
        token: str | None = None,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        """Open a socket now, and another when it breaks; see `connect`."""
        self.url = self.path = url  # `path` is what a thread calls its place
        self._make_socket = make_socket
        self._token = environment.env("EVENTQ_TOKEN") or None if token is None else token
        self._reply_seconds = reply_seconds
        self._pid = os.getpid()
        self._lock = allocate_lock()
        self._closed = False
        # Cursors and uploads that are not used any more.
        self._left: deque[tuple[Link, str, int]] = deque()
        self._newest: Link | None = None  # it may have sent no HELLO yet
        self._link: Link | None = self._open()
        self.contexts = RemoteContexts(self, None)
        self.blobs = RemoteBlobs(self, None)

    def __repr__(self) -> str:
        """Name the connection."""
        return f"<eventq.Connection {self.url}>"

    def __enter__(self) -> Connection:
        """Return the connection."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    @property
    def session_id(self) -> int:
        """The number of the session that the server began for the newest socket, 0 for none."""
        return self._link.session_id if self._link else 0

    def close(self) -> None:
        """Close the socket; closing twice is fine, later calls raise ClosedError.

        So does a call that is under way in another OS thread: its reply is not waited for.
        """
        if self._pid != os.getpid():
            return  # it is the opener's
        self._closed = True
        if self._newest is not None:
            self._newest.stop()
        self._end()

    def _end(self) -> None:
        """Drop the socket, unless a call uses it, which then does so after it released the lock."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # --- one call ---------------------------------------------------------------------------------

    def ask(self, call: Call, how: str, only: Link | None = None) -> tuple[Called, Link]:
        """Return the result of a call and the link it came over; with `only` use no other link.

        Raises what the server raises, ClosedError, and LogicError when the connection is lost.
        """
        self._check()
        try:
            with self._lock:
                return self._ask_again(call, how, only)
        finally:
            if self._closed:  # meanwhile
                self._end()

    def _ask_again(self, call: Call, how: str, only: Link | None) -> tuple[Called, Link]:
        """Send a request, and repeat it if that is safe."""
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
            what = "the connection was made before this process was forked"
            raise ClosedError(what, "connect again after the fork")
        if self._closed:
            raise ClosedError("the connection is closed", "connect again with eventq.connect")

    def _ask(self, call: Call, only: Link | None) -> tuple[Called, Link]:
        link = self._ready(only)
        try:
            while self._left:
                self._forget(*self._left.popleft())
            reply = link.ask(call)
        except (Broken, EventqError):
            raise
        except BaseException:
            # After an interrupt the reply is still to come, and would answer the next call.
            self._drop()
            raise
        assert isinstance(reply, Called)
        return reply, link

    def _ready(self, only: Link | None) -> Link:
        """Return a link that was open a moment ago."""
        self._check()
        said = None
        if self._link is not None and (said := self._link.farewell()) is not None:
            self._drop()
            self._check()  # this client may have closed it
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

    def _open(self) -> Link:
        link = self._newest = Link(self._make_socket())
        try:
            self._check()  # `close` may have come before it could find this link
            link.greet(self._token, self._reply_seconds)
        except BaseException as error:
            link.close()
            if not isinstance(error, Broken):
                raise
            raise _lost(f"the server at {self.url} did not say hello: {error}") from error
        return link

    def _excuse(self, error: Broken, how: str, only: Link | None) -> None:
        """Raise the error for a broken connection, unless the call can be made again."""
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

    def _forget(self, link: Link, kind: str, number: int) -> None:
        """Drop a cursor or an upload at the server."""
        if link is not self._link:
            return
        method = "close" if kind == "pages" else "drop"
        try:
            link.ask(Call(json.dumps([kind, number, method, [], {}])))
        except Broken as error:
            raise Broken(str(error), sent=False) from error  # the next call was not sent
        except EventqError:
            pass  # of no concern to the next call

    def leave(self, link: Link, kind: str, number: int) -> None:
        """Drop a cursor or an upload with the next call; safe at any moment, from any OS thread."""
        self._left.append((link, kind, number))

    # --- values -----------------------------------------------------------------------------------

    def call(
        self,
        kind: str,
        which: object,
        method: str,
        inputs: dict[str, Any],
        only: Link | None = None,
    ) -> Any:
        """Call a method of an object at the server, and return its result."""
        parts: list[Bytes] = []
        packed_id = pack(which, parts, self._named)
        named = {name: pack(value, parts, self._named) for name, value in inputs.items()}
        call = Call(_message([kind, packed_id, method, [], named]), tuple(parts))
        called, link = self.ask(call, CALLS[kind][method], only)
        found = Unpacked(
            called.message, called.parts, lambda tag, inside: self._made(link, tag, inside)
        )
        return found.value(found.message)

    def _named(self, value: object) -> Named | None:
        if isinstance(value, Upload):
            return "upload", value.number
        return value.named(self) if isinstance(value, Remote) else None

    def _made(self, link: Link, tag: str, inside: Any) -> object:
        """Return the object that represents one at the server."""
        if tag in REMOTE and is_id_of(tag, inside):
            return REMOTE[tag](self, inside)
        if type(inside) is list and tag == "diff" and len(inside) == 3:
            return Diff(*inside)
        if type(inside) is list and tag == "pages" and len(inside) == 2 and type(inside[1]) is list:
            number, items = inside
            if number is None or is_id_of("pages", number):
                return Pages(self, link, number, items)
        what = f"CALL: the answer holds a {tag!r:.100}"
        raise Malformed(what, "use a client as new as the server")

    # --- uploads ----------------------------------------------------------------------------------

    def upload(self, pieces: Iterator[Bytes]) -> Upload:
        """Send bytes ahead of the call that takes them."""
        made: Upload | None = None
        try:
            for piece in pieces:
                number, only = (made.number, made.link) if made else (None, None)
                message = json.dumps(["upload", number, "append", [], {"data": {"bytes": 0}}])
                called, link = self.ask(Call(message, (bytes(piece),)), WRITE, only)
                made = made or Upload(_number(called), link)
        except BaseException:
            if made is not None:
                self.leave(made.link, "upload", made.number)
            raise
        assert made is not None
        return made


def _message(call: list[Any]) -> str:
    """Return a call as JSON, with names unescaped: its limit counts characters."""
    text = json.dumps(call, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # unpaired surrogates
        return json.dumps(call)
    return text


def _lost(what: str, fix: str = "see whether the server runs, then try again") -> LogicError:
    return LogicError(what, fix)


def _number(called: Called) -> int:
    """Return the number of an upload that has begun."""
    number = Unpacked(called.message, (), lambda _, __: None).message
    if number is None or not is_id_of("upload", number):
        what = "CALL: the answer is no number of an upload"
        raise Malformed(what, "use a client as new as the server")
    return int(number)
