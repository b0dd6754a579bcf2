"""A pooler between a program and a server, which loses what a test tells it to lose.

It passes messages on, and takes those of the server apart: at an answer by which a transaction is
over (ReadyForQuery, idle), it can keep it, and end the connection in one of several ways instead.
It can also cut the connection at any of a client's messages, before or after the server acts on it.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    Ending = Callable[["Pair"], None]

_OVER = b"Z\x00\x00\x00\x05I"
_ANSWERED = (b"Z", b"G")  # a step of a transaction, or of a COPY: the client goes on


def said(code: str, text: str, severity: str = "FATAL", *, is_server: bool = True) -> bytes:
    """Return an ErrorResponse; poolers leave out the field that is never translated."""
    fields = [f"S{severity}", f"C{code}", f"M{text}"]
    if is_server:
        fields.insert(1, f"V{severity}")
    body = b"".join(field.encode() + b"\0" for field in fields) + b"\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


class Pair:
    """A client, and the server's connection that it has to itself."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        """Begin with the client's first message."""
        self.client = client
        self.server = server
        self.is_in = False  # the server has let it in
        self.is_over = False
        self.is_cut = False  # its next answer is that of the message at which it is cut
        self.begun = b""  # the server's message that is not whole yet
        self.kept = b""  # whole ones, not passed on yet

    def pass_on(self, last: bytes = b"") -> None:
        """Send to the client what was kept, or something else."""
        with suppress(OSError):
            self.client.sendall(last or self.kept)
        self.kept = b""

    def end(self, last: bytes = b"") -> None:
        """Say something to the client, maybe, and close both connections."""
        self.is_over = True
        if last:
            self.pass_on(last)
        self.client.close()
        self.server.close()

    def reset(self) -> None:
        """Close so that the client gets a TCP reset."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end()

    def half_close(self) -> None:
        """Send no more to the client, and go on listening to it."""
        self.is_over = True
        self.client.shutdown(socket.SHUT_WR)
        self.server.close()


class Pooler:
    """Listens on a port of this machine until it is closed, in an OS thread of its own."""

    def __init__(self, url: str) -> None:
        """Start before the server at a URL whose host is a folder."""
        (folder,) = parse_qs(urlsplit(url).query)["host"]
        self._place = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        plain = "sslmode=disable&gssencmode=disable"
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?{plain}"
        self._pairs: list[Pair] = []
        self._ending: Ending | None = None
        self._is_early = False
        self.lost = 0  # how many answers
        self._left = 0  # messages of clients until one at which the connection is cut
        self._is_done = False  # whether the server gets that one
        self._orders: list[tuple[Callable[[], None], threading.Event]] = []
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._is_closed = False
        self._selector.register(self._woken, selectors.EVENT_READ, self._obey)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._runner = threading.Thread(target=self._run, daemon=True)
        self._runner.start()

    # --- what a test orders -----------------------------------------------------------------------

    def lose(self, ending: Ending) -> None:
        """Keep the next answer by which a transaction is over, and end its connection instead."""
        self._ending, self._is_early = ending, False

    def refuse(self, ending: Ending) -> None:
        """Keep the next message of a client from the server, and end its connection instead."""
        self._ending, self._is_early = ending, True

    def cut(self, number: int, *, is_done: bool) -> None:
        """End the connection at the n-th message of a client from now on.

        The server does not get it, or it `is_done` and its answer is lost.
        """
        self._left, self._is_done = number, is_done

    @property
    def left(self) -> int:
        """How many messages are left until the one at which a connection is cut."""
        return self._left

    def dismiss(self, ending: Ending) -> None:
        """End all connections now."""

        def end() -> None:
            for pair in self._pairs:
                if not pair.is_over:
                    ending(pair)

        self._order(end)

    def stop_listening(self) -> None:
        """Take no more connections."""

        def stop() -> None:
            self._selector.unregister(self._listener)
            self._listener.close()

        self._order(stop)

    def close(self) -> None:
        """End everything."""

        def stop() -> None:
            self._is_closed = True

        self._order(stop)
        self._runner.join()
        for pair in self._pairs:
            pair.end()
        for key in [*self._selector.get_map().values()]:
            key.fileobj.close()  # type: ignore[union-attr]
        for one in (self._listener, self._wake, self._woken):
            one.close()
        self._selector.close()

    def _order(self, order: Callable[[], None]) -> None:
        """Let the other thread do something, and wait until it has."""
        done = threading.Event()
        self._orders.append((order, done))
        self._wake.send(b"x")
        assert done.wait(60)

    # --- the OS thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                key.data()

    def _obey(self) -> None:
        self._woken.recv(1)
        order, done = self._orders.pop(0)
        order()
        self._forget()
        done.set()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._place)
        pair = Pair(client, server)
        self._pairs.append(pair)
        for one, call in ((client, self._hear), (server, self._answer)):
            self._selector.register(one, selectors.EVENT_READ, lambda call=call: call(pair))

    def _forget(self) -> None:
        """Wait no longer for what was closed."""
        for key in [*self._selector.get_map().values()]:
            if key.fileobj.fileno() < 0:  # type: ignore[union-attr]
                self._selector.unregister(key.fileobj)

    def _read(self, one: socket.socket) -> bytes:
        try:
            return one.recv(1 << 16)
        except OSError:
            return b""

    def _hear(self, pair: Pair) -> None:
        """Pass on what a client says."""
        data = self._read(pair.client) if pair.client.fileno() >= 0 else b""
        if not data:
            pair.end()
        elif not pair.is_over:
            if pair.is_in and self._is_early and self._ending is not None:
                self._end(pair)
            elif self._cuts(pair) and not self._is_done:
                pair.end()
            else:
                pair.server.sendall(data)
        self._forget()

    def _cuts(self, pair: Pair) -> bool:
        """Return whether this message is the one; it is counted."""
        if not pair.is_in or not self._left:
            return False
        self._left -= 1
        pair.is_cut = not self._left
        return pair.is_cut

    def _answer(self, pair: Pair) -> None:
        """Pass on what the server answers, message by message, or keep it until its end."""
        data = self._read(pair.server) if pair.server.fileno() >= 0 else b""
        pair.begun += data
        while not pair.is_over and len(pair.begun) > 4:
            size = 1 + int.from_bytes(pair.begun[1:5])
            if len(pair.begun) < size:
                break
            pair.kept += pair.begun[:size]
            message, pair.begun = pair.begun[:size], pair.begun[size:]
            is_losing = pair.is_in and self._ending is not None and not self._is_early
            if pair.is_cut:
                pair.kept = b""
                if message[:1] in _ANSWERED:
                    pair.end()
            elif message == _OVER and is_losing:
                self._end(pair)
            elif not is_losing or message[:1] in _ANSWERED:
                pair.pass_on()
            pair.is_in |= message == _OVER
        if not data and not pair.is_over:
            pair.end(pair.kept)
        self._forget()

    def _end(self, pair: Pair) -> None:
        ending, self._ending = self._ending, None
        self.lost += 1
        assert ending is not None
        ending(pair)
        pair.kept = b""


class Guest:
    """A client of `Transactions`."""

    def __init__(self, client: socket.socket) -> None:
        """Begin with its first message."""
        self.client = client
        self.host: Host | None = None
        self.is_in = False
        self.said = b""  # what was not passed on yet
        self.asked = 0  # how many answers that end with ReadyForQuery it waits for


class Host:
    """A connection to the server, lent to one client after the other."""

    def __init__(self, server: socket.socket, guest: Guest | None) -> None:
        """Begin with the client that logs in over it."""
        self.server = server
        self.guest = guest
        self.begun = b""


class Transactions(Pooler):
    """A pooler that lends connections by the transaction, each time the one that waited longest."""

    MOST = 3

    def __init__(self, url: str) -> None:
        """Start before the server at a URL whose host is a folder."""
        self._free: deque[Host] = deque()
        self._waiting: deque[Guest] = deque()
        self._count = 0  # of connections
        self._login = b""  # what clients begin with
        self.lent = 0  # how often
        super().__init__(url)
        self.url += "&pooled=1"

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        guest = Guest(client)
        guest.host = self._connect(guest)
        self._selector.register(client, selectors.EVENT_READ, lambda: self._from_guest(guest))

    def _connect(self, guest: Guest | None) -> Host:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._place)
        host = Host(server, guest)
        self._selector.register(server, selectors.EVENT_READ, lambda: self._from_host(host))
        self._count += 1
        return host

    def _from_guest(self, guest: Guest) -> None:
        data = self._read(guest.client)
        if not data:
            self._leave(guest)
        elif guest.is_in:
            guest.said += data
            self._serve(guest)
        elif guest.host is not None:
            self._login = data
            guest.host.server.sendall(data)

    def _serve(self, guest: Guest) -> None:
        """Pass on the whole messages of a client, over a connection that is free."""
        if guest.host is None and not self._free:
            self._waiting.append(guest)
            if self._count < self.MOST:  # clients have left in the middle of a transaction
                self._connect(None).server.sendall(self._login)
            return
        if guest.host is None:
            guest.host = self._free.popleft()
            guest.host.guest = guest
            self.lent += 1
        at = 0
        while len(guest.said) >= at + 5:
            end = at + 1 + int.from_bytes(guest.said[at + 1 : at + 5])
            if len(guest.said) < end or guest.said[at : at + 1] == b"X":
                break
            guest.asked += guest.said[at : at + 1] in (b"Q", b"S")
            at = end
        guest.host.server.sendall(guest.said[:at])
        guest.said = guest.said[at:]
        if guest.said[:1] == b"X":
            self._leave(guest)

    def _from_host(self, host: Host) -> None:
        data = self._read(host.server)
        if not data:
            self._end_host(host)
            return
        host.begun += data
        at = 0
        while len(host.begun) >= at + 5:
            end = at + 1 + int.from_bytes(host.begun[at + 1 : at + 5])
            if len(host.begun) < end:
                break
            self._tell(host, host.begun[at:end])
            at = end
        host.begun = host.begun[at:]

    def _tell(self, host: Host, message: bytes) -> None:
        """Pass a message on to the client that has a connection; after the last one it is free."""
        guest = host.guest
        if guest is None:
            if message == _OVER:
                self._give_back(host)
            return
        with suppress(OSError):
            guest.client.sendall(message)
        if message[:1] == b"Z":
            guest.asked -= guest.is_in
            guest.is_in = True
            if message == _OVER and not guest.asked:
                guest.host = host.guest = None
                self._give_back(host)

    def _give_back(self, host: Host) -> None:
        self._free.append(host)
        if len(self._free) > self.MOST:
            self._end_host(self._free.popleft())
        while self._free and self._waiting:
            guest = self._waiting.popleft()
            if guest.said:  # or it was served since, or is gone
                self._serve(guest)

    def _leave(self, guest: Guest) -> None:
        """Forget a client; what it has not finished is undone."""
        guest.client.close()
        guest.said = b""
        if guest.host is not None:
            guest.host.guest, host = None, guest.host
            self._end_host(host)
        self._forget()

    def _end_host(self, host: Host) -> None:
        if host.guest is not None:
            host.guest.client.close()
        if host in self._free:
            self._free.remove(host)
        host.server.close()
        self._count -= 1
        self._forget()
