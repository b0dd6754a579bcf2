"""Any bytes over a connection.

The claim of `feed`: for any bytes that peers send, in any pieces, the server gives replies, ERROR frames or a closed
connection, never an exception and never unbounded memory. Neither a socket nor a thread nor a real clock takes part.

The input is a tape that is read from its beginning; what it lacks is zero. It says what peers do, one thing after the
other: send bytes as they stand on the tape, or a frame that is right or nearly so, stop reading, let time pass, hang up.

`python -m tests.hostile.fuzz_wire CORPUS -runs=100000` has atheris look for inputs that break the claim, and
`python -m tests.hostile.fuzz_wire FILE` shows what one of them does.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

import zstandard
from blake3 import blake3

import eventq
from eventq.errors import EventqError
from eventq.serving import budget, plans, workers
from eventq.serving.budget import MemoryBudget
from eventq.wire import frames, requests, server
from eventq.wire.frames import Failure, Frame, Type
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Given = TypeVar("Given")

FRAME, IN_FLIGHT = 64 << 10, 129 << 10  # the limits of the server
# The server's constants, so small that an input of 4 KiB reaches them.
SMALL, AHEAD, AHEAD_BYTES = 4 << 10, 16, 160 << 10
LEAST_READ = 1 << 10  # likewise
CHUNK = 256 << 10  # bytes that asyncio reads at once, at most
REFUSALS = 3  # of a connection, that there is no room for
PIECES = 100  # that are small, at most: then all comes that there is
HIGH = 64 << 10  # bytes that are not read yet when asyncio says so
REPLIES = 1 << 20  # bytes of the longest reply that there can be here
CODES = frozenset((400, 404, 409, 413, 422, 500))
OURS = ("the server holds ",)  # how the text of a 500 begins that is no fault of ours
LAST_WORDS = (
    "the connection ended within a frame",
    "a token did not come in time",
    "the rest of a frame did not come in time",
    "the connection was silent for ",
)
TOKEN = "s3cret"
HEADER = struct.Struct("<IHHQ")
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 64, 255, 65536, (1 << 31) - 1, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
STORED = tuple(blake3(one).digest() for one in (b"one", b"two", b"three", b"other", b"kept"))
HASHES = (*STORED, bytes(32), b"\xff" * 32)


class Tape:
    """An input, read from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        """Return whether it goes on."""
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        """Return the next bytes, as far as there are any."""
        self._at += count
        return self._data[self._at - count : self._at]

    def below(self, count: int) -> int:
        """Return a number from 0 on, of one byte."""
        return (self.take(1) or b"\0")[0] % count

    def one(self, of: Sequence[Given]) -> Given:
        """Return one of several."""
        return of[self.below(len(of))]

    def often(self, usual: int = 8) -> bool:
        """Return False once in so many calls, else True; always True at the end of the tape."""
        return self.below(usual) != usual - 1

    def number(self) -> int:
        """Return a number of up to 64 bits."""
        if self.often(4):
            return self.below(6)
        return self.one(NUMBERS) if self.often() else int.from_bytes(self.take(8), "little")

    def data(self) -> bytes:
        """Return bytes, of which a few may have become many."""
        some = self.take(self.below(48))
        return some if self.often() else (some or b"\0") * self.one((100, 1000, 3000))


# What a peer sends.


def _append(tape: Tape) -> frames.Request:
    data = tape.data()
    sent, size = data, len(data)
    compression = tape.below(2)
    if compression:
        sent = zstandard.compress(data) if tape.often() else tape.data()
    if not tape.often(16):
        size = tape.number() & 0xFFFFFFFF
    digest = blake3(data).digest() if tape.often(16) else tape.one(HASHES)
    return frames.AppendTurn(
        tape.number(), 0 if tape.often(3) else tape.number(), tape.one(("t", "", "x" * 300, "é")), 1, 0, compression, size,
        digest, sent, b"" if tape.often(3) else tape.data(), None if tape.often(3) else tape.one(HASHES),
    )  # fmt: skip


def _hello(tape: Tape) -> frames.Request:
    meta: Any = {"token": TOKEN, "keys": False}
    if tape.below(2):
        meta = tape.one(
            (
                {},
                {"token": "wrong"},
                {"token": 5},
                {"token": "\ud800"},
                [],
                5,
                {"token": TOKEN},
            )
        )
    text = json.dumps(meta) if tape.often() else tape.one(("", "{", "[" * 60_000, "\0"))
    return frames.Hello(tape.one((1, 0, 65535)), tape.one(("", TOKEN, "x" * 60_000)), text)


def _put(tape: Tape) -> frames.Request:
    data = tape.data()
    return frames.PutBlob(blake3(data).digest() if tape.often() else tape.one(HASHES), data)


def _small(tape: Tape) -> int:
    return tape.number() & 0xFFFFFFFF


def _page(tape: Tape, kind: type) -> frames.Request:
    at = {frames.GetLast: [], frames.GetBefore: [tape.number()], frames.GetRange: [_small(tape)]}[
        kind
    ]
    return kind(tape.number(), *at, _small(tape), bool(tape.below(2)))  # type: ignore[no-any-return]


MAKERS: tuple[Callable[[Tape], frames.Request], ...] = (
    _append, _append, _append, _put, _put, _hello,
    lambda tape: frames.GetHead(tape.number()),
    lambda tape: frames.CreateContext(tape.number()),
    lambda tape: frames.ForkContext(tape.number()),
    lambda tape: frames.GetBlob(tape.one(HASHES)),
    lambda tape: frames.AttachFs(tape.number(), tape.one(HASHES)),
    lambda tape: _page(tape, frames.GetLast),
    lambda tape: _page(tape, frames.GetBefore),
    lambda tape: _page(tape, frames.GetRange),
)  # fmt: skip


def _frame(tape: Tape, req_id: int) -> bytes:
    """Return the bytes of a frame, right or nearly so."""
    try:
        data = bytearray(frames.encode_request(tape.one(MAKERS)(tape), req_id))
    except EventqError:  # a value that nobody can send
        return HEADER.pack(0, tape.below(256), 0, req_id)
    if not tape.often(20):
        _spoil(tape, data)
    return bytes(data)


def _spoil(tape: Tape, data: bytearray) -> None:
    match tape.below(5):
        case 0:
            data[int.from_bytes(tape.take(2), "little") % len(data)] ^= 1 + tape.below(255)
        case 1:
            HEADER.pack_into(data, 0, tape.number() & 0xFFFFFFFF, *HEADER.unpack_from(data)[1:])
        case 2:
            data[4 + tape.below(4)] = tape.below(256)
        case 3:
            del data[len(data) - tape.below(len(data)) :]
        case _:
            data += tape.take(tape.below(16))


# The world around the server: a transport, the threads, the clock.


class Socket:
    """The duplicate of a socket, which takes as much as the peer lets it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        transport.duplicates += 1

    def send(self, data: bytes) -> int:
        """Take some of the bytes, or refuse."""
        assert not self.transport.buffered, "two writers at once"
        if self.transport.peer.stubborn or self.transport.gone:
            raise BlockingIOError
        taken = data[: self.transport.peer.gulp or len(data)]
        self.transport.peer.got += taken
        return len(taken)

    def close(self) -> None:
        """Let go of it."""
        self.transport.duplicates -= 1


class Transport(asyncio.Transport):
    """What asyncio puts between a connection and a socket, done by hand."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer
        self.buffered = 0
        self.buffer: list[bytes] = []
        self.duplicates = 0
        self.reading = True
        self.wrote_eof = self.closing = self.gone = self.aborted = self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a socket that can be duplicated."""
        assert (name, default) == ("socket", None)
        return self

    def dup(self) -> Socket:
        """Return the duplicate."""
        return Socket(self)

    def write(self, data: Any) -> None:
        """Take a reply."""
        assert not self.wrote_eof, "written after the end"
        assert not self.gone, "written to a lost connection"
        self.buffer.append(bytes(data))
        self.buffered += len(data)
        self.flush()
        if self.buffered > HIGH and not self.paused:
            self.paused = True
            self.peer.connection.pause_writing()

    def flush(self) -> None:
        """Let the peer read, if it does."""
        if self.peer.stubborn or self.gone:
            return
        self.peer.got += b"".join(self.buffer)
        self.buffer.clear()
        self.buffered = 0
        if self.paused:
            self.paused = False
            self.peer.connection.resume_writing()
        if self.closing:
            self._end()

    def get_write_buffer_size(self) -> int:
        """Return how much waits."""
        return self.buffered

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closing

    def pause_reading(self) -> None:
        """Read no more."""
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        """Read on."""
        assert not self.reading or self.closing
        self.reading = not self.closing

    def write_eof(self) -> None:
        """Send no more after what is there."""
        self.wrote_eof = True

    def close(self) -> None:
        """Close, once the peer has read everything."""
        self.closing = True
        self.reading = False
        if not self.buffered:
            self._end()

    def abort(self) -> None:
        """Close at once."""
        self.aborted = self.aborted or bool(self.buffered)
        self.closing = True
        self.reading = False
        self.buffer.clear()
        self.buffered = 0
        self._end()

    def _end(self) -> None:
        if not self.gone:
            self.gone = True
            self.peer.world.soon.append(lambda: self.peer.connection.connection_lost(None))


class Hand(workers.Writer):
    """The writer or the readers, without an OS thread: nothing is done before `work`."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, "hand")
        self.due = 0

    def submit(self, job: workers.Job) -> None:
        """Queue a job."""
        self.due += 1
        super().submit(job)

    def work(self, thread: eventq.Thread) -> workers.Done:
        """Do what the next transaction holds; give the replies."""
        done: workers.Done = []
        while not done and self.due:  # a job that waits for memory comes again
            group = self.next_group()
            self.due -= len(group)
            done = self.do(thread, group)
        assert sqlite(thread.database).depth == 1, "a transaction was left open"
        return [(job, job.send_now(job.settle(reply))) for job, reply in done]


class Hands:
    """The service of a thread, of which all is done by hand."""

    def __init__(self, path: str) -> None:
        self.writer, self.readers, self.quick = (Hand(path) for _ in range(3))

    def submit(self, job: workers.Job) -> None:
        """Queue a job."""
        hand = {plans.QUICK: self.quick, plans.WRITE: self.writer}.get(job.plan.how, self.readers)
        hand.submit(job)


class Undone(Exception):  # noqa: N818 (no error)
    """Ends a transaction that nobody wants."""


class World:
    """A thread, a server of it, the loop that it runs in, and the time."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="eventq-fuzz-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = eventq.init(os.path.join(folder, "thread"))
        self.thread = eventq.open(self.path)
        _furnish(self.thread)
        self.server = server.Server(
            self.path,
            "unix:nowhere",
            limits=server.Limits(frame=FRAME, in_flight=IN_FLIGHT, idle=600),
        )
        self.server.now = lambda: self.time  # type: ignore[method-assign]
        self.server.linger = self._linger  # type: ignore[method-assign]
        self.fresh()

    def fresh(self, token: str = "") -> None:
        """Begin anew."""
        self.time = 1000.0
        self.soon: list[Callable[[], None]] = []
        self.lingering: list[tuple[float, Transport]] = []
        self.server.token = token
        self.server.budget = MemoryBudget(IN_FLIGHT, SMALL)
        self.server.connections.clear()
        service = Hands(self.path)
        self.server.service = service  # type: ignore[assignment]
        self.writer, self.readers, self.quick = service.writer, service.readers, service.quick

    def _linger(self, transport: Any) -> None:
        self.lingering.append((self.time + server.LINGER_SECONDS, transport))

    def run(self) -> None:
        """Do what the loop has to do."""
        while self.soon:
            self.soon.pop(0)()
            self.check()

    def work(self, *whom: Hand) -> bool:
        """Run jobs and send their replies; return whether there were any."""
        done = [one.work(self.thread) for one in whom]
        for group in filter(None, done):
            self.soon.append(lambda group=group: server.hand_out(group))  # type: ignore[misc]
        self.run()
        return any(done)

    def settle(self) -> None:
        """Do all that there is to do."""
        self.run()
        while self.work(self.writer, self.readers, self.quick):
            pass

    def pass_time(self, seconds: float) -> None:
        """Move the clock on, and have the server look at its connections."""
        self.time += seconds
        for connection in list(self.server.connections):
            connection.look(self.time)
        for due, transport in self.lingering:
            if due < self.time and not transport.gone:
                transport.abort()
        self.run()

    def check(self) -> None:
        """Check that memory is bounded, and accounted for."""
        held = 0
        for connection in self.server.connections:
            jobs = [*connection.waiting, *connection.running]
            for job in jobs:
                request = job.request
                sent = getattr(request, "payload", None) or getattr(request, "data", None) or b""
                assert job.size >= len(sent), "a job holds more than it says"
            assert connection.reader.pending <= CHUNK + HEADER.size + FRAME
            assert len(connection.waiting) <= server.AHEAD + 1
            held += sum(job.held for job in jobs) + connection.reader.pending + connection.unsent
        assert self.server.budget.held >= 0
        assert not self.server.connections or held <= self.server.budget.held
        unread = sum(connection.unsent for connection in self.server.connections)
        # Of each connection, whatever is held for others.
        beyond = server.LEAST_READ + REFUSALS * server.COST
        assert self.server.budget.held - unread <= IN_FLIGHT + 2 * beyond, (
            f"{self.server.budget.held} bytes are held"
        )
        assert unread <= 2 * (HIGH + REPLIES)


def _furnish(thread: eventq.Thread) -> None:
    """Store two contexts of turns, a blob, patches and an open turn in a thread."""
    main = thread.contexts.create("main")
    for text in ("one", "two", "three"):
        main.append(text)
    main.fork(at=2, name="retry").append("other")
    thread.blobs.put(b"kept")
    thread.blobs.pin("blob:blake3:" + STORED[4].hex(), "me")
    main.patch(2, "second")
    main.tombstone(3)
    main.open_turn().append_delta(b"begun")


class Peer:
    """One that talks to the server: all that it sent, and all that it got."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stubborn = False  # it does not read
        self.gulp = 0  # bytes that the socket takes at once, 0 for all
        self.hung_up = False
        self.pieces = 0
        self.on_the_way = bytearray()
        self.eof = False
        self.sent = bytearray()  # what the server was given
        self.got = bytearray()
        self.ids = 0
        self.connection = server.Connection(world.server)
        self.transport = Transport(self)
        self.connection.connection_made(self.transport)

    def deliver(self, most: int = CHUNK) -> bool:
        """Let the server read a piece; say whether it took something."""
        if not self.transport.reading or self.transport.gone:
            return False
        if self.on_the_way:
            self.pieces += 1
            place = self.connection.get_buffer(-1)
            piece = bytes(
                self.on_the_way[: min(most if self.pieces < PIECES else CHUNK, len(place))]
            )
            place[: len(piece)] = piece
            del self.on_the_way[: len(piece)]
            if not self.connection.ending:
                self.sent += piece
            self.connection.buffer_updated(len(piece))
            self.world.check()
            return True
        if self.eof and not self.hung_up:
            self.hung_up = True
            if not self.connection.eof_received():
                self.transport.close()
            return True
        return False

    def lose(self) -> None:
        """End the connection as a reset does."""
        self.transport.aborted = True
        self.transport.abort()

    def read(self) -> None:
        """Read on."""
        self.stubborn = False
        self.transport.flush()

    # --- what it got ------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every reply is complete, has a known code, and answers the right request."""
        asked = list(_parsed(bytes(self.sent)))
        got, rest = _cut(bytes(self.got))
        assert not rest or self.transport.aborted, "half a frame"
        said = self._last_words(got)
        assert len(got) <= len(asked), "a reply to nothing"
        locked = bool(self.world.server.token)
        for reply, request in zip(got, asked, strict=False):
            _check_reply(reply, request)
            locked = locked and (reply.type == Type.ERROR or not _has_token(request.request))
            assert not locked or reply.type == Type.ERROR, "an answer without a token"
        # A skipped request may be answered early.
        answered = len(got) >= len([one for one in asked if one.whole])
        assert answered or said or self.transport.aborted or self.refused(got), (
            "a request without a reply"
        )

    def _last_words(self, got: list[Frame]) -> bool:
        """Take the words away that belong to no request."""
        failure = (
            _failure(got[-1]) if got and (got[-1].type, got[-1].req_id) == (Type.ERROR, 0) else None
        )
        if failure is None or not failure.text.startswith(LAST_WORDS):
            return False
        del got[-1]
        return True

    def refused(self, got: list[Frame]) -> bool:
        """Return whether the connection ended with a frame that is too long."""
        failure = _failure(got[-1]) if got and got[-1].type == Type.ERROR else None
        return failure is not None and failure.code == 413


class Asked:
    """A request as it was sent: `whole` if all of it was, and what it is if it is right."""

    def __init__(self, kind: int, flags: int, req_id: int, payload: bytes, *, whole: bool) -> None:
        self.kind = kind
        self.req_id = req_id
        self.whole = whole
        self.request: frames.Request | None = None
        self.error: EventqError | None = None
        if whole:
            try:
                self.request = frames.decode_request(Frame(kind, flags, req_id, payload))
            except EventqError as error:
                self.error = error


def _parsed(data: bytes) -> Iterator[Asked]:
    """Return the requests in a stream, by the table of the protocol and nothing else."""
    at = 0
    while len(data) - at >= HEADER.size:
        length, kind, flags, req_id = HEADER.unpack_from(data, at)
        at += HEADER.size
        yield Asked(kind, flags, req_id, data[at : at + length], whole=at + length <= len(data))
        at += length


def _cut(data: bytes) -> tuple[list[Frame], int]:
    reader = frames.Reader()
    reader.feed(data)
    return list(reader.frames()), reader.pending


def _has_token(request: frames.Request | None) -> bool:
    meta: Any = None
    if isinstance(request, frames.Hello):
        with suppress(ValueError, RecursionError):
            meta = json.loads(request.meta or "{}")
    shown = meta.get("token") if isinstance(meta, dict) else None
    return isinstance(request, frames.Hello) and TOKEN in (request.tag, shown)


def _failure(frame: Frame) -> Failure:
    failure = frames.decode_reply(frame, Type.ERROR)
    assert isinstance(failure, Failure)
    return failure


def _check_reply(reply: Frame, asked: Asked) -> None:
    assert (reply.req_id, reply.flags) == (asked.req_id, 0), "out of order"
    if reply.type == Type.ERROR:
        _check_failure(_failure(reply), asked)
        return
    assert asked.request is not None, f"{asked.error} was answered with {reply.type}"
    frames.decode_reply(reply, asked.kind, getattr(asked.request, "include_payload", False))


def _check_failure(failure: Failure, asked: Asked) -> None:
    what, _, fix = failure.text.partition(" - ")
    assert what
    assert fix
    assert failure.code in CODES
    assert failure.code != 500 or what.startswith(OURS), failure
    # 409 comes before a token, 500 without memory.
    if asked.error is not None and failure.code not in (409, 500):
        assert failure.code in (asked.error.wire_code, 413), (failure, asked.error)


def _strict(job: server.Job, error: BaseException) -> bytes:
    """Let out what the server would answer as a fault of its own."""
    if not isinstance(error, EventqError):
        raise error
    return REFUSAL(job, error)


REFUSAL = server.Job.refusal
_world: list[World] = []


def feed(data: bytes) -> None:
    """Run peers against a server as an input says, and check its behaviour."""
    if not _world:
        _world.append(World())
    world, tape = _world[0], Tape(data)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(server, SMALL=SMALL, LEAST_READ=LEAST_READ))
        stack.enter_context(mock.patch.multiple(server, AHEAD=AHEAD, AHEAD_BYTES=AHEAD_BYTES))
        stack.enter_context(mock.patch.object(server.Job, "refusal", _strict))
        stack.enter_context(mock.patch.object(requests, "MAX_FRAME", REPLIES))
        try:
            with world.thread.write():
                _play(world, tape)
                raise Undone
        except Undone:
            pass


def _play(world: World, tape: Tape) -> None:
    flags = tape.below(256)
    world.fresh(TOKEN if flags & 1 else "")
    peers = [Peer(world)]
    most = (CHUNK, 1, 17, 1000)[flags >> 1 & 3]
    if flags & 8:
        peers[0].on_the_way += frames.encode_request(frames.Hello(1, TOKEN), 0)
    if flags & 0x90 == 0x90:
        peers[0].on_the_way += tape.take(1 << 20)  # nothing but bytes
    if flags & 32:
        peers.append(Peer(world))
    peers[0].gulp = (0, 5)[flags >> 6 & 1]
    while tape.more():
        _act(world, tape, tape.one(peers), most)
    _end(world, tape, peers, most)


def _act(world: World, tape: Tape, peer: Peer, most: int) -> None:
    """Do one thing."""
    act = tape.below(32)
    if act < 20:
        peer.ids += 1
        peer.on_the_way += _frame(tape, peer.ids)
        if act < 12:
            return
    match act:
        case 20 if not tape.often():
            peer.on_the_way += tape.take(tape.below(64))
        case 21:
            peer.stubborn = True
        case 22:
            peer.read()
        case 23:
            world.pass_time(tape.one((0.5, 0.5, 3, 3, 20, 20, 31, 700)))
        case 24:
            peer.eof = tape.below(8) == 7
        case 25 if tape.below(8) == 7:
            peer.lose()
        case 26 | 27:
            world.work(world.writer)
        case 28:
            world.work(world.readers, world.quick)
        case 29:
            world.settle()
        case _:
            while peer.deliver(most):
                pass
    world.run()


def _end(world: World, tape: Tape, peers: list[Peer], most: int) -> None:
    """Let everything be answered, hang up, and check what is left."""
    for peer in peers:
        peer.read()
        peer.eof = True
    busy = True
    while busy:
        world.settle()
        busy = sum(peer.deliver(most) for peer in peers) > 0  # each of them, not the first that can
        # The parked read is refused, and what follows is read.
        if not busy and world.server.budget.waiting:
            world.pass_time(server.ROOM_SECONDS + 1)
            busy = True
    world.pass_time(100_000)
    world.settle()
    for peer in peers:
        assert peer.transport.gone, "the connection stays open"
        peer.check()
        assert peer.transport.duplicates == 0, "a socket stays open"
    assert not world.server.connections
    assert world.server.budget.held == 0, f"{world.server.budget.held} bytes stay held"


def main() -> None:
    """Run atheris, or feed the server the files that are named."""
    os.environ["EVENTQ_NOTIFIER"] = "none"
    import atheris

    for module in (frames, plans, workers, budget, requests, server):
        for value in list(vars(module).values()):
            _instrument(atheris, value, module.__name__)
    atheris.Setup(sys.argv, feed)
    tempfile.tempdir = tempfile.mkdtemp(prefix="eventq-fuzz-")
    with _removed_in_the_end(tempfile.tempdir):
        atheris.Fuzz()


def _removed_in_the_end(folder: str) -> subprocess.Popen[bytes]:
    """Remove a folder however this process ends: atheris exits abruptly, or is killed."""
    # Its stdin ends when this process does.
    remove = ["sh", "-c", 'cat > /dev/null; rm -rf "$0"', folder]
    return subprocess.Popen(remove, stdin=subprocess.PIPE, start_new_session=True)


def _instrument(atheris: Any, value: Any, module: str) -> None:
    """Instrument a function, or the methods of a class, for atheris."""
    functions = vars(value).values() if isinstance(value, type) else [value]
    for one in [getattr(function, "fget", function) for function in functions]:
        if getattr(one, "__module__", None) == module and hasattr(one, "__code__"):
            atheris.instrument_func(one)


if __name__ == "__main__":
    main()
