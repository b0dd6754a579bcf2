"""The server of a thread: one event loop, one writer, a few readers.

A connection costs no OS thread. The requests of one connection are done in order, those of several
side by side. Writes go to the one writer, which takes all that wait at the time into one
transaction (group commit) and answers once it is durable. Reads go to readers, each with its own
connection to the database. A read does not wait for the writer, except for what its own connection
wrote before it.

    peer ── frames ──> Connection ──> jobs ──> Writer (one transaction a group) ──┐
                           ▲     └──────────> Readers ────────────────────────────┤
                           └───────────────── replies, in the order of requests <─┘

`Server(path, …).run(ready)` blocks until `stop` is called, from any OS thread or signal handler.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from eventq.errors import BusyError, EventqError, LogicError, StoreError, UsageError
from eventq.serving.budget import MemoryBudget
from eventq.serving.endpoint import Address, raise_file_limit, tell_of_full
from eventq.serving.workers import Service, Waits
from eventq.store.paths import is_url
from eventq.thread import open_thread
from eventq.wire.frames import (
    MAX_FRAME,
    MAX_META,
    MAX_TAG,
    Hello,
    Reader,
    Session,
    TooLong,
    Type,
    Welcome,
    decode_request,
    encode_reply,
)
from eventq.wire.requests import KEY_RULES, Handlers, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.serving import workers
    from eventq.serving.plans import Plan
    from eventq.wire.frames import Frame, Request

DEFAULT = "127.0.0.1:9009"
# Bytes that are taken from a peer that has not shown the token yet.
HELLO_BYTES = 2 + 2 + MAX_TAG + 4 + MAX_META
SMALL = 1 << 16  # bytes: what is longer cannot get a quarter of the memory
AHEAD_BYTES = 8 << 20  # of one connection's waiting requests, before it is read no further
AHEAD = 256  # requests, likewise
# Likewise, if the last one is a read: more would make none faster, and keep the loop from others.
READ_AHEAD = 16
MOST_READ = 256 << 10  # bytes that are read at once, where there is memory for them, and …
LEAST_READ = 4 << 10  # … where there is none; each connection may hold these beyond the limit
STALL_SECONDS = 30  # for a frame, for reading a reply, and for the token; …
SLOWEST = 64 << 10  # … for each so many bytes of it another second
ROOM_SECONDS = 10  # that a long reply waits for memory before it is refused
LINGER_SECONDS = 2  # that the last words of a connection have to arrive
DRAIN_SECONDS = 10  # to finish what was begun when the server is asked to stop
COST = 512  # bytes that a waiting request takes beside its payload
_FRAME_BYTES = 64  # what a frame and its fields take beside what is counted, at most


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server allows: connections, seconds of silence, bytes of a frame, bytes held."""

    connections: int = 4096
    idle: float = 3600
    frame: int = MAX_FRAME
    in_flight: int = 256 << 20

    def check(self) -> None:
        """Raise UsageError for limits that no server can work with."""
        if self.connections < 1:
            what = f"a server with {self.connections} connections serves nobody"
            raise UsageError(what, "allow 1 or more")
        if self.idle <= 0:
            raise UsageError(f"no peer can be silent for {self.idle} seconds", "allow more than 0")
        if not 1024 <= self.frame <= MAX_FRAME:
            what = f"a frame cannot be limited to {self.frame} bytes"
            raise UsageError(what, f"allow 1024 to {MAX_FRAME}")
        least = 2 * (self.frame + COST)
        if self.in_flight < least:
            what = f"{self.in_flight} bytes in flight are too few for frames of {self.frame}"
            raise UsageError(what, f"allow {least} or more")


# Connections.


class Job:
    """One request in progress: its frame, its plan, and the memory that it holds."""

    __slots__ = (
        "alone", "held", "keys", "owner", "plan", "reply", "req_id", "request", "reserved",
        "server", "size", "type",
    )  # fmt: skip
    plan: Plan

    def __init__(self, owner: Connection, type: int, req_id: int, size: int) -> None:
        self.owner = owner
        self.server: workers.Server = owner.server
        self.type = type
        self.req_id = req_id
        self.size = size
        self.held = 0  # bytes, of the request and then of the reply
        self.reserved = 0  # bytes, for a reply that is being read
        self.keys = owner.keys  # a later HELLO changes nothing for this job
        self.request: Request | None = None
        self.reply: bytes | None = None  # when there is nothing to do
        self.alone = False  # no other job of its connection is under way

    def is_wanted(self) -> bool:
        """Return whether its peer is there."""
        return not self.owner.gone

    def need(self, size: int) -> None:
        """Hold memory for a reply of so many bytes before it is read. Raises Waits, BusyError."""
        if not self.owner.reserve(self, size + _FRAME_BYTES):
            raise Waits

    def answer(self, reply: Any) -> bytes:
        """Return the frame of its reply; one that is too long becomes an error."""
        try:
            return encode_reply(reply, self.req_id, self.type)
        except EventqError as error:
            return self.refusal(error)

    def refusal(self, error: BaseException) -> bytes:
        """Return the frame that reports an error."""
        if not isinstance(error, EventqError):
            what = f"the server failed: {type(error).__name__}: {error}"
            error = StoreError(what, "see its journal, logs/thread.log")
        return encode_reply(failure(error), self.req_id)

    def settle(self, reply: bytes) -> bytes:
        """Replace the request by its reply in the memory budget; return what is sent."""
        return self.owner.settle(self, reply)

    def send_now(self, reply: bytes) -> bytes:
        """Send what can be sent of a reply, and return the rest."""
        return self.owner.send_now(self, reply)


class Connection(asyncio.BufferedProtocol):
    """One peer: its frames become jobs, and their replies go out in the same order.

    From the memory budget it takes the requests that are not answered yet and the replies that the
    peer has not read.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.keys = server.keys
        self.gone = False  # the peer has left
        self.ending = False  # no request is taken any more; what remains is to answer and close
        self.reader = Reader(HELLO_BYTES if server.token else server.limits.frame)
        self.waiting: deque[Job] = deque()  # to be begun, or to be answered in their turn
        self.running: deque[Job] = deque()
        self.transport: asyncio.Transport | None = None
        self.unsent = 0  # bytes of replies that the budget knows of
        self._session = Session(token_required=bool(server.token))
        self._handlers = Handlers(foreign_roots=server.foreign_roots)
        self._socket: socket.socket | None = None
        self._budget = server.budget
        self._pending = 0  # bytes of the incoming frame that the budget knows of
        self._queued = 0
        self._begun = False  # the header of the incoming frame has arrived
        self._paused = False
        self._blocked = False  # the peer does not read
        self._ended = False  # the peer sends no more
        self._closed = False
        self._lingers = False  # there are last words, which must not be lost
        # A read that waits for memory.
        self._parked: tuple[Job, Callable[[], None], int, float] | None = None
        self._heard = self._fed = self._read = server.now()
        self._deadline: float | None = None  # for a frame, a token, or the last words
        self._read_deadline: float | None = None
        if server.token:
            self._deadline = self._heard + STALL_SECONDS

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a new peer, or send it the reason why not."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.add(self)
        if self.server.stopping:
            self.end(LogicError("the server is stopping", "connect again in a moment"))
        elif len(self.server.connections) > self.server.most:
            what = f"the server has {self.server.most} connections, its limit"
            self.end(BusyError(what, "try again later, or raise --connections"))

    def connection_lost(self, _: Exception | None) -> None:
        """Drop the peer; requests in progress are still completed."""
        self.transport = None
        self.gone = True
        self._unpark(b"")
        for size in (self._pending, self.unsent, *[job.held for job in self.waiting]):
            self._budget.release(size)
        self._pending = self.unsent = 0
        self.waiting.clear()
        self._drop_socket()
        self.server.lost(self)

    def get_buffer(self, _: int) -> memoryview:
        """Return the buffer for the next read: as much as there is memory for, but always a little.

        What was read cannot be refused any more, as it may follow requests that come first. If each
        peer could send as much as it likes, all together would hold far more than the limit. The
        rest of a frame that was accepted follows nothing.
        """
        inbox = self.server.inbox
        fits = self._budget.ahead
        if self.ending or fits >= len(inbox):
            return inbox
        return inbox[: max(fits, self.reader.needs(), self.reader.dropping, LEAST_READ)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self.ending:
            return  # nothing may follow; the peer's last words would otherwise cut off ours
        self._fed = self.server.now()
        self.reader.feed(self.server.inbox[:nbytes])
        self._take()

    def eof_received(self) -> bool:
        """Answer the pending requests, although the peer has stopped sending."""
        self._ended = True
        if self.reader.pending:
            self.end(LogicError("the connection ended within a frame", "send whole frames"))
        self.ending = True
        return self._busy

    def pause_writing(self) -> None:
        """Start no more requests until the peer has read."""
        self._blocked = True
        self._read_deadline = self.server.now() + _patience(self._size_unsent())

    def resume_writing(self) -> None:
        """Begin again."""
        self._blocked = False
        self._read_deadline = None
        self._account()
        self._take()

    # --- in ---------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return bool(self.waiting or self.running)

    def _take(self) -> None:
        """Turn complete frames into jobs and start them, within the limits of reading ahead."""
        again = True
        while again:
            was_full = self._take_frames()
            if self.reader.pending != self._pending:
                self._weigh()
            self._advance()
            full = self._full()
            again = was_full and not full  # what was answered at once has made room
        self._gauge(full=full)

    def _take_frames(self) -> bool:
        """Turn complete frames into jobs; return whether a limit of reading ahead is reached."""
        while not self.ending:
            if self._full():
                return True
            try:
                frame = self.reader.next() if self.reader.pending else None
            except TooLong as error:
                self._session.too_long()
                self._refuse(error.type, error.req_id, error)
                self.ending = self._lingers = True
                break
            if frame is None:
                self._expect()
                break
            self._take_frame(frame)
        return False

    def _full(self) -> bool:
        ahead = len(self.waiting) + len(self.running)
        if self.waiting:
            last = self.waiting[-1]
            if ahead >= READ_AHEAD and last.type not in _ALONGSIDE:
                return True
            if last.reply is not None and not self._budget.fits(COST):
                return True  # it is held all the same: many peers could send any number of these
        return ahead >= AHEAD or self._queued >= AHEAD_BYTES

    def _gauge(self, *, full: bool) -> None:
        """Pause or resume reading: TCP makes a peer that is far ahead wait."""
        if full is self._paused or self.transport is None or self.ending:
            return
        self._paused = full
        if full:
            self.transport.pause_reading()
            return
        self.transport.resume_reading()
        self._fed = self.server.now()
        if self._deadline is not None:  # it could not go on with its frame
            self._deadline = self._fed + _patience((self.reader.begun() or (0,))[0])

    def _expect(self) -> None:
        """Check memory and time for a frame that has begun."""
        if not self.reader.pending:
            self._begun = False
            if not self.reader.dropping and self._session.state != "locked":
                self._deadline = None
            return
        begun = self.reader.begun()
        length = begun[0] if begun else 0
        if self._deadline is None:
            self._deadline = self.server.now() + _patience(length)
        fits = self._weigh() and (self._begun or self._budget.fits(max(0, length - self._pending)))
        if begun and not fits:
            self.reader.skip()
            self._refuse(begun[1], begun[2], self.server.no_memory(length))
        elif begun and not self._begun and self._session.state != "locked":
            # Without a token all frames together have the time of one.
            self._deadline = self.server.now() + _patience(length)
        self._begun = begun is not None and fits

    def _weigh(self) -> bool:
        """Update the budget to the bytes that are not taken yet; return whether they fit."""
        before, self._pending = self._pending, self.reader.pending
        return self._budget.resize(before, self._pending)

    def _take_frame(self, frame: Frame) -> None:
        self._heard = self.server.now()
        if self._session.state != "locked":
            self._deadline = None
        self._begun = False
        if self._pending:
            self._weigh()
        size = len(frame.payload) + COST
        job = Job(self, frame.type, frame.req_id, size)
        try:
            self._session.allow(frame.type)
            if not self._budget.take(size):
                raise self.server.no_memory(size)
            job.held = size
            job.request = decode_request(frame)
            if isinstance(job.request, Hello):
                job.reply = job.answer(self._welcome(job.request))
            self._session.received(frame.type)
        except EventqError as error:
            job.request = None
            job.reply = job.refusal(error)
            job.size = COST
            self._budget.release(job.held)
            job.held = 0
        self._add(job)

    def _add(self, job: Job) -> None:
        self.waiting.append(job)
        self._queued += job.size
        if not job.held:
            job.held = job.size
            self._budget.take(job.held, force=True)

    def _refuse(self, kind: int, req_id: int, error: EventqError) -> None:
        """Queue the answer to a request that was not read."""
        job = Job(self, kind, req_id, COST)
        job.reply = job.refusal(error)
        self._add(job)

    def _welcome(self, hello: Hello) -> Welcome:
        meta = _meta(hello.meta)
        if self.server.token and not _same(self.server.token, meta.get("token", hello.tag)):
            raise LogicError(
                "the token is wrong, or missing",
                'set EVENTQ_TOKEN, or send HELLO with meta_json {"token": "…"}',
            )
        self.keys = "ignore" if meta.get("keys") is False else self.server.keys
        self.reader.limit = self.server.limits.frame
        self._deadline = None
        return Welcome(self.server.next_session())

    # --- out --------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start jobs that may start: replies keep their order, and a read sees earlier writes."""
        while self.waiting and not self._blocked:
            job = self.waiting[0]
            if job.reply is not None:
                if self.running:
                    return
                self.waiting.popleft()
                self._finish(job, job.reply)
            elif not self._begin(job):
                return
        if self.ending and not self._busy:
            self._close()

    def _begin(self, job: Job) -> bool:
        """Submit a job if it may run in parallel with the current ones, as writes may."""
        if self.running and (job.type not in _ALONGSIDE or self.running[-1].type not in _ALONGSIDE):
            return False
        try:
            assert job.request is not None
            job.plan = self._handlers.plan(job.request, keys=job.keys, need=job.need)
        except Exception as error:  # noqa: BLE001 (a fault of ours is answered like any other)
            job.reply = job.refusal(error)
            return True
        self.waiting.popleft()
        job.alone = not self.running and self._has_socket()
        self.running.append(job)
        self.server.service.submit(job)
        return True

    def _has_socket(self) -> bool:
        """Return whether a reply may be sent past the transport; make the socket for it."""
        transport = self.transport
        if transport is None or self.ending or transport.get_write_buffer_size():
            return False
        if self._socket is None:
            with suppress(OSError):  # too many files
                self._socket = transport.get_extra_info("socket").dup()
        return self._socket is not None

    def _drop_socket(self) -> None:
        """Close the duplicate, once nobody may write to it any more."""
        if self._socket is not None and not self.running:
            self._socket.close()
            self._socket = None

    def reserve(self, job: Job, size: int) -> bool:
        """Hold memory for a long reply before it is read; return False for a job that has to wait.

        A short reply takes its memory when it is there. Only reads ask, and those of a connection
        are done one after the other, so at most one of them waits. Raises BusyError for what would
        wait in vain.
        """
        if size <= job.reserved or size <= self._budget.small:
            return True
        self._release(job)
        if size > self._budget.most:
            raise self.server.no_memory(size)
        again = partial(self._go_on_with, job, size)
        self._parked = job, again, size, self.server.now() + ROOM_SECONDS
        if self._budget.reserve(size, again):
            self._parked = None
            job.reserved = size
            return True
        if self.gone and self._budget.cancel(again):  # meanwhile, so `look` does not see it
            self._parked = None
            raise self.server.no_memory(size)
        return False

    def _go_on_with(self, job: Job, size: int) -> None:
        """Submit a job whose reply has memory now; called by whoever released memory."""
        self._parked = None
        job.reserved = size
        self.server.service.submit(job)

    def _release(self, job: Job) -> None:
        if job.reserved:
            self._budget.release(job.reserved)
            job.reserved = 0

    def _unpark(self, reply: bytes | None = None) -> None:
        """Answer a read that waits for memory, unless it goes on just now."""
        parked = self._parked  # other OS threads change it
        if parked is None:
            return
        job, again, size, _ = parked
        if self._budget.cancel(again):
            self._parked = None
            if reply is None:
                reply = job.refusal(self.server.no_memory(size))
            self.done(job, self.settle(job, reply))
            self.go_on()

    def settle(self, job: Job, reply: bytes) -> bytes:
        """Replace a job's request by its reply in the budget; return a refusal if it does not fit.

        This comes before the reply is sent, or the peer's next request would find no memory.
        """
        self._budget.release(job.held)
        if len(reply) <= job.reserved:
            self._budget.resize(job.reserved, len(reply))
            job.reserved = 0
        elif not self._budget.take(len(reply)):
            reply = job.refusal(self.server.no_memory(len(reply)))
            self._budget.take(len(reply), force=True)
        job.held = len(reply)
        if job.reserved:
            self._release(job)
        return reply

    def send_now(self, job: Job, reply: bytes) -> bytes:
        """Send what can be sent of a reply from the OS thread that made it; return the rest.

        That saves waking the loop, a tenth of an append. It is done only for a job that ran alone
        while nothing was unsent: nobody else writes then. The socket is a duplicate: its number
        cannot become that of another peer.
        """
        if not job.alone or self._socket is None:
            return reply
        try:
            return reply[self._socket.send(reply) :]
        except OSError:
            return reply  # it is full, or gone: the loop finds out

    def done(self, job: Job, rest: bytes) -> None:
        """Take the rest of a reply; the jobs of a connection end in the order they began in."""
        first = self.running.popleft()
        assert first is job
        self._finish(job, rest)
        if self.transport is None:
            self._drop_socket()

    def _finish(self, job: Job, reply: bytes) -> None:
        self._queued -= job.size
        if self.transport is None or self.transport.is_closing():
            self._budget.release(job.held)
            return
        self._heard = self.server.now()
        if reply:
            self.transport.write(reply)
        self._account(job.held)

    def go_on(self) -> None:
        """Start the requests that waited for the replies."""
        if self.transport is not None and (
            self.waiting or self.reader.pending or self._paused or self.ending
        ):
            self._take()

    def _size_unsent(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport else 0

    def _account(self, sent: int = 0) -> None:
        """Update the budget to the bytes of replies that were not read yet.

        `sent` is what was held for a reply that is on its way now.
        """
        size = self._size_unsent()
        if size < self.unsent or not self.unsent:
            self._read = self.server.now()
        if size or self.unsent:
            self._budget.resize(self.unsent, size, also=sent)
        elif sent:
            self._budget.release(sent)
        self.unsent = size

    # --- the end ----------------------------------------------------------------------------------

    def end(self, error: EventqError | None = None) -> None:
        """Accept no more requests, answer the pending ones, send the reason, and close."""
        if self.transport is None or self.ending:
            return
        if error:
            self._refuse(Type.ERROR, 0, error)
        self._lingers = self._busy
        self.ending = True
        self._advance()

    def _close(self) -> None:
        """Close; after last words only once the peer has had time to read them.

        A socket that is closed while bytes come in takes back what it has sent, so those are read
        and dropped.
        """
        if self.transport is None or self._closed:
            return
        self._closed = True
        if self._ended or not self._lingers:
            self.transport.close()
            return
        if self._paused:
            self.transport.resume_reading()
        with suppress(OSError, NotImplementedError):
            self.transport.write_eof()
        self.server.linger(self.transport)

    def look(self, now: float) -> None:
        """End requests and connections that take too long; called once a second."""
        self._account()
        if not self.unsent:  # the peer has read everything
            self._read_deadline = None
        if (parked := self._parked) is not None and now > parked[3]:
            self._unpark()
        stands = self.unsent and now - self._read > STALL_SECONDS
        if stands or (self._read_deadline is not None and now > self._read_deadline):
            self.abort()  # the peer does not read: words would not reach it
        elif self.ending:
            if self.unsent and self._read_deadline is None:
                self._read_deadline = now + _patience(self.unsent)
        elif self._is_late(now):
            what = "a token" if self._session.state == "locked" else "the rest of a frame"
            fix = "connect again, and send whole frames at once"
            self.end(LogicError(f"{what} did not come in time", fix))
        elif (
            not self._busy
            and self._deadline is None
            and now - self._heard > self.server.limits.idle
        ):
            self.end()  # without words: a peer takes an ERROR for the answer to its next request

    def _is_late(self, now: float) -> bool:
        """Return whether a frame or a token should have arrived by now."""
        if self._deadline is None or self._paused:
            return False
        return now > min(self._deadline, self._fed + STALL_SECONDS)

    def abort(self) -> None:
        """Close immediately; unsent data is lost."""
        if self.transport:
            self.transport.abort()


_ALONGSIDE = frozenset(
    {Type.CTX_CREATE, Type.CTX_FORK, Type.APPEND_TURN, Type.ATTACH_FS, Type.PUT_BLOB}
)


def _patience(size: int) -> float:
    """Return the seconds that a peer has for so many bytes."""
    return STALL_SECONDS + size / SLOWEST


def _meta(text: str) -> dict[str, Any]:
    """Return the metadata of a HELLO; other programs may send anything, or nothing."""
    try:
        found = json.loads(text.removeprefix("\ufeff") or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _same(token: str, shown: object) -> bool:
    """Compare two tokens in a time that reveals nothing about them."""
    text = shown if isinstance(shown, str) else ""
    return hmac.compare_digest(
        token.encode(errors="surrogatepass"), text.encode(errors="surrogatepass")
    )


# The whole.


class Server:
    """A thread, served at one address: `HOST:PORT` (port 0 picks one), or `unix:PATH`.

    `token` is what every peer must show; an address that other machines can reach needs one.
    `keys` names the rule for the keys of APPEND_TURN: `matching`, `strict` or `ignore`.
    `foreign_roots=True` accepts the roots of file trees that are kept elsewhere. Raises
    NotAThreadError, UsageError.
    """

    def __init__(
        self,
        path: str,
        listen: str = DEFAULT,
        *,
        token: str = "",
        limits: Limits | None = None,
        keys: str = "matching",
        foreign_roots: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self.limits.check()
        self.address = Address(listen)
        if not token and not self.address.is_local():
            what = f"'{listen}' can be reached from other machines"
            fix = "set EVENTQ_TOKEN or give --token, or listen on 127.0.0.1 or unix:PATH"
            raise UsageError(what, fix)
        if keys not in KEY_RULES:
            raise UsageError(f"no rule for keys is named '{keys}'", f"name {', '.join(KEY_RULES)}")
        self.token = token
        self.keys = keys
        self.foreign_roots = foreign_roots
        self.budget = MemoryBudget(self.limits.in_flight, SMALL)
        self.inbox = memoryview(bytearray(MOST_READ))  # each connection reads into it in turn
        self.most = self.limits.connections
        self.stopping = False
        self.connections: set[Connection] = set()
        with open_thread(path) as thread:
            self.path = path if is_url(path) else thread.path  # of a URL, only it has the password
        self._sessions = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._empty: asyncio.Event | None = None

    # --- what connections ask ---------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of the loop, in seconds."""
        assert self._loop
        return self._loop.time()

    def next_session(self) -> int:
        """Return the number of a new session."""
        self._sessions += 1
        return self._sessions

    def no_memory(self, size: int) -> EventqError:
        """Return the error for a request that there is no memory for now."""
        return BusyError(
            f"the server holds {self.budget.held} bytes of requests and replies, and has no room"
            f" for {size} more",
            "try again in a moment, or raise --in-flight",
        )

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        if not self.connections and self._empty:
            self._empty.set()

    def linger(self, transport: asyncio.Transport) -> None:
        """Close a connection if its peer does not, once it has had time to read what was sent."""
        assert self._loop
        unsent = transport.get_write_buffer_size()
        self._loop.call_later(_patience(unsent) if unsent else LINGER_SECONDS, transport.abort)

    # --- its life ---------------------------------------------------------------------------------

    def run(self, ready: Callable[[str], object] = lambda _: None) -> None:
        """Serve until `stop`; call `ready` with the address once it listens. Raises LogicError."""
        asyncio.run(self.serve(ready))

    def stop(self) -> None:
        """Accept no more requests, finish the pending ones, and let `run` return.

        Safe in any OS thread and in a signal handler.
        """
        loop, stop = self._loop, self._stop
        if loop and stop:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(stop.set)

    async def serve(self, ready: Callable[[str], object], service: Service | None = None) -> None:
        """Serve in the loop that runs, until `stop`; by the workers of another server, if given."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.most = raise_file_limit(self.limits.connections)
        tell_of_full(self._loop)
        if self.most < self.limits.connections:
            self._note(f"serve: {self.most} connections at most, as no more files may be open")
        listener = await self.address.listen(self._loop, lambda: Connection(self))
        self.service = service or Service(self.path)
        sweeper = asyncio.create_task(self._sweep())
        end = self.now()
        try:
            address = self.address.with_port(listener)
            self._note(f"serve: listening on {address}")
            ready(address)
            await self._stop.wait()
            end = self.now() + DRAIN_SECONDS
            await self._drain(listener)
        finally:
            sweeper.cancel()
            listener.close()
            self.address.unlink()
            if service is None:
                await asyncio.to_thread(self.service.stop, end - self.now())
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)  # asyncio calls `connection_lost` of each
            self._note("serve: stopped")

    def _note(self, what: str) -> None:
        """Write a line into the journal of the thread, if it is still there."""
        with suppress(EventqError), open_thread(self.path) as thread:
            thread.journal.info(what)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = self.now()
            for connection in list(self.connections):
                connection.look(now)

    async def _drain(self, listener: asyncio.AbstractServer) -> None:
        """Finish the requests that came, and wait until every peer has its replies."""
        self.stopping = True
        self._empty = asyncio.Event()
        listener.close()
        for connection in list(self.connections):
            connection.end()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), DRAIN_SECONDS)

    def deliver(self, done: workers.Done) -> None:
        """Hand what was not sent to the loop; called by the OS threads that made the replies."""
        assert self._loop
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(hand_out, done)


def hand_out(done: workers.Done) -> None:
    """Pass replies to their connections, and let those go on; called in the loop."""
    owners = {}
    for job, reply in done:
        assert isinstance(job, Job)  # none of another server
        job.owner.done(job, reply)
        owners[id(job.owner)] = job.owner
    for owner in owners.values():
        owner.go_on()
