"""The frames of the protocol: encoding, decoding, and the states of a connection.

Nothing here touches a socket. A frame is a header of 16 bytes (`u32 length, u16 type, u16 flags,
u64 req_id`, little-endian) and a payload of `length` bytes. `Reader` cuts a stream into frames.
`decode_request` and `decode_reply` make messages of frames; `encode_request` and `encode_reply`
make one bytes object of a message, so that a frame is one send. A server asks its `Session` whether
a request may come.

What can be wrong, and what a server does about it:

    Malformed       400  a payload that breaks the format; answered, the connection lives on
    Unsupported     422  a type or an option that this version does not know; likewise
    TooLargeError   413  a text or a key beyond its own limit; likewise
    Refused         409  a request that may not come now; likewise
    TooLong         413  a frame beyond the limit: its payload is not read; answered, closed

The long parts of a decoded message (`payload` of a turn, `data` of a blob) are read-only views into
the memory of its frame, not copies. That memory belongs to the frame alone and is never written
again, so a view may be kept; it keeps the whole frame alive. Copy a small part of a large reply
that is to be kept for long.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter

from eventq.errors import InputError, LogicError, TooLargeError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Bytes = bytes | bytearray | memoryview
    Parts = list[bytes | memoryview]

MAX_FRAME = 64 << 20  # bytes of a payload; the header is not counted
MAX_TYPE_ID = 1 << 18  # bytes of a type id: the 65,536 characters that a store takes
MAX_KEY = 1 << 16  # bytes of an idempotency key
MAX_TAG = (1 << 16) - 1  # bytes of a HELLO's tag: its length is a u16
MAX_META = 1 << 16  # bytes of a HELLO's meta_json, which is read before anybody is known
MAX_TEXT = 1 << 16  # bytes of an ERROR's text; what is longer is cut
TURNS_HEAD = 8  # bytes before the turns of a reply, at most
SERVER = {
    # The initial state if a token is required.
    "locked": {"hello": "ready", "too long": "closing"},
    # The initial state otherwise.
    "new": {"hello": "ready", "request": "new", "too long": "closing"},
    "ready": {"hello": "ready", "request": "ready", "too long": "closing"},
    "closing": {},
}
_U16, _U32 = struct.Struct("<H"), struct.Struct("<I")
_ANY = (1 << 32) - 1  # bytes: the frame is the limit
_HASH = "32s"
_ROOTED = 1  # the flag of an APPEND_TURN that ends with an fs_root; other flags mean nothing
_BY_THE_TABLE = "send what the table of the protocol says"


class Type(IntEnum):
    """The number of a message; a reply carries that of its request, or ERROR."""

    HELLO = 1
    CTX_CREATE = 2
    CTX_FORK = 3
    GET_HEAD = 4
    APPEND_TURN = 5
    GET_LAST = 6
    GET_BEFORE = 7
    GET_RANGE_BY_DEPTH = 8
    GET_BLOB = 9
    ATTACH_FS = 10
    PUT_BLOB = 11
    ERROR = 255


class Malformed(UsageError):  # noqa: N818 (it describes the bytes)
    """The bytes break the format of the protocol; the message names the field."""


class Unsupported(InputError):  # noqa: N818
    """This version does not know a type or an option of a payload; the message names it."""


class Refused(LogicError):  # noqa: N818
    """A request may not come in this state of the connection."""


class TooLong(TooLargeError):  # noqa: N818
    """A frame is beyond the limit; the reply needs its `type` and `req_id`."""

    def __init__(self, size: int, limit: int, type: int, req_id: int) -> None:
        super().__init__(size, limit, f"payload of {_name(type)}", "send or ask for less at once")
        self.type = type
        self.req_id = req_id


def _name(type: int) -> str:
    return Type(type).name if type in _NUMBERS else f"message type {type}"


_NUMBERS = frozenset(Type)
_HELLO = int(Type.HELLO)


# Requests.


@dataclass(frozen=True, slots=True)
class Hello:
    """Introduce a client: its protocol `version`, a `tag` to name it, and `meta`, a JSON text."""

    version: int = 1
    tag: str = ""
    meta: str = ""


@dataclass(frozen=True, slots=True)
class CreateContext:
    """Create a context whose head is a turn; 0 for none. Answered by Head."""

    base_turn_id: int


@dataclass(frozen=True, slots=True)
class ForkContext:
    """Create another context at a turn; 0 for an empty one. Answered by Head."""

    base_turn_id: int


@dataclass(frozen=True, slots=True)
class GetHead:
    """Ask for the head of a context. Answered by Head."""

    context_id: int


@dataclass(frozen=True, slots=True)
class AppendTurn:
    """Append a turn after `parent_turn_id`, 0 for the head. Answered by Appended.

    `hash` is the BLAKE3-256 of the uncompressed payload, and `uncompressed_len` its length;
    `compression` is 0 for none, 1 for zstd. An `idempotency_key` is any bytes, none if empty.
    `fs_root` is a hash.
    """

    context_id: int
    parent_turn_id: int
    type_id: str
    type_version: int
    encoding: int
    compression: int
    uncompressed_len: int
    hash: bytes
    payload: Bytes
    idempotency_key: bytes = b""
    fs_root: bytes | None = None


@dataclass(frozen=True, slots=True)
class GetLast:
    """Ask for the last `limit` turns of a context. Answered by Turns."""

    context_id: int
    limit: int
    include_payload: bool


@dataclass(frozen=True, slots=True)
class GetBefore:
    """Ask for the last `limit` turns before one on the chain of a context. Answered by Turns."""

    context_id: int
    before_turn_id: int
    limit: int
    include_payload: bool


@dataclass(frozen=True, slots=True)
class GetRange:
    """Ask for `limit` turns of a context from a depth on. Answered by Turns with a head depth."""

    context_id: int
    start_depth: int
    limit: int
    include_payload: bool


@dataclass(frozen=True, slots=True)
class GetBlob:
    """Ask for the bytes of a hash. Answered by BlobBytes."""

    hash: bytes


@dataclass(frozen=True, slots=True)
class AttachFs:
    """Attach the root of a file tree to a turn. Answered by FsAttached."""

    turn_id: int
    root: bytes


@dataclass(frozen=True, slots=True)
class PutBlob:
    """Store bytes under their hash. Answered by BlobPut."""

    hash: bytes
    data: Bytes


# Replies.


@dataclass(frozen=True, slots=True)
class Welcome:
    """The number of the session, and the protocol version of the server."""

    session_id: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a context; the turn is 0 when it is empty."""

    context_id: int
    head_turn_id: int
    head_depth: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The turn that was appended, now or before with the same key."""

    context_id: int
    turn_id: int
    depth: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class WireTurn:
    """One turn of a reply; `payload` is None when it was not asked for.

    `compression` says how the payload was stored; 0 when it comes along, as it comes uncompressed.
    """

    turn_id: int
    parent_turn_id: int
    depth: int
    type_id: str
    type_version: int
    encoding: int
    compression: int
    uncompressed_len: int
    hash: bytes
    payload: Bytes | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """Some turns, oldest first; only the answer to GetRange has a `head_depth`."""

    turns: tuple[WireTurn, ...]
    head_depth: int | None = None


@dataclass(frozen=True, slots=True)
class BlobBytes:
    """The bytes that were asked for."""

    data: Bytes


@dataclass(frozen=True, slots=True)
class FsAttached:
    """The turn, and its root now."""

    turn_id: int
    root: bytes


@dataclass(frozen=True, slots=True)
class BlobPut:
    """The hash of the bytes, and whether they are new to the store."""

    hash: bytes
    new: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: 400, 404, 409, 413, 422 or 500, and a sentence."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it arrived, of any type; it owns the memory of `payload`."""

    type: int
    flags: int
    req_id: int
    payload: Bytes


Request = (
    Hello | CreateContext | ForkContext | GetHead | AppendTurn | GetLast | GetBefore | GetRange
    | GetBlob | AttachFs | PutBlob
)  # fmt: skip
Reply = Welcome | Head | Appended | Turns | BlobBytes | FsAttached | BlobPut | Failure
# The message of each type.
REQUESTS: dict[int, type[Request]] = {
    Type.HELLO: Hello,
    Type.CTX_CREATE: CreateContext,
    Type.CTX_FORK: ForkContext,
    Type.GET_HEAD: GetHead,
    Type.APPEND_TURN: AppendTurn,
    Type.GET_LAST: GetLast,
    Type.GET_BEFORE: GetBefore,
    Type.GET_RANGE_BY_DEPTH: GetRange,
    Type.GET_BLOB: GetBlob,
    Type.ATTACH_FS: AttachFs,
    Type.PUT_BLOB: PutBlob,
}
REPLIES: dict[int, type[Reply]] = {
    Type.HELLO: Welcome,
    Type.CTX_CREATE: Head,
    Type.CTX_FORK: Head,
    Type.GET_HEAD: Head,
    Type.APPEND_TURN: Appended,
    Type.GET_LAST: Turns,
    Type.GET_BEFORE: Turns,
    Type.GET_RANGE_BY_DEPTH: Turns,
    Type.GET_BLOB: BlobBytes,
    Type.ATTACH_FS: FsAttached,
    Type.PUT_BLOB: BlobPut,
    Type.ERROR: Failure,
}
_TYPES = {message: kind for kind, message in REQUESTS.items()}


# The parts of a payload.


class _Payload:
    """The rest of a payload that is being read; every length is checked before it is used."""

    __slots__ = ("at", "size", "type", "view")

    def __init__(self, frame: Frame) -> None:
        self.view = memoryview(frame.payload)
        self.size = len(self.view)
        self.at = 0
        self.type = frame.type

    def wrong(self, what: str) -> Malformed:
        return Malformed(f"{_name(self.type)}: {what}", _BY_THE_TABLE)

    def field(self, name: str, most: int = _ANY, length: struct.Struct = _U32) -> memoryview:
        """Return the bytes of a field that begins with its length."""
        start = self.at + length.size
        if start > self.size:
            raise self.wrong(f"the payload ends within the length of {name}")
        (size,) = length.unpack_from(self.view, self.at)
        if size > self.size - start:
            left = self.size - start
            raise self.wrong(f"{name} is said to be {size} bytes long, and {left} are left")
        if size > most:
            raise TooLargeError(size, most, name, f"shorten the {name}")
        self.at = start + size
        return self.view[start : self.at]

    def text(self, name: str, most: int = _ANY, length: struct.Struct = _U32) -> str:
        """Return the text of a field that begins with its length."""
        try:
            return str(self.field(name, most, length), "utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong(f"{name} is not UTF-8 from byte {error.start} on") from None

    def end(self) -> None:
        """Raise Malformed if bytes are left."""
        if self.at != self.size:
            raise self.wrong(f"{self.size - self.at} bytes follow its last field")


class _Group:
    """Fields of fixed size in a row, by name; with `flag` the last one is a boolean."""

    def __init__(self, *, flag: bool = False, **formats: str) -> None:
        codes = list(formats.values())
        self.names = tuple(formats)
        self.values = _getter(self.names)
        self.flag = flag
        self.layout = struct.Struct("<" + "".join(codes))
        self.bits = [0 if code == _HASH else 8 * struct.calcsize(f"<{code}") for code in codes]
        self.ends = [
            struct.calcsize("<" + "".join(codes[: number + 1])) for number in range(len(codes))
        ]
        self.hashes = [number for number, code in enumerate(codes) if code == _HASH]

    def pack(self, *values: object) -> bytes:
        """Return the bytes of the fields; raise InputError for a value that does not fit."""
        for number in self.hashes:
            _check_hash(self.names[number], values[number])
        if self.flag and not isinstance(values[-1], bool):
            what = f"{self.names[-1]} is {type(values[-1]).__name__}"
            raise InputError(what, "give True or False")
        try:
            return self.layout.pack(*values)
        except struct.error:
            raise self._misfit(values) from None

    def _misfit(self, values: tuple[object, ...]) -> InputError:
        """Return the error for the number that does not fit; hashes were checked before."""
        known = zip(self.names, self.bits, values, strict=True)
        name, bits, value = next(one for one in known if one[1] and not _fits(one[2], one[1]))
        shown = (
            f"a number of {value.bit_length()} bits"
            if isinstance(value, int)
            else type(value).__name__
        )
        return InputError(f"{name} is {shown}", f"give a whole number of 0 to {(1 << bits) - 1}")

    def take(self, payload: _Payload) -> tuple[Any, ...]:
        """Return the values of the fields, which come next in a payload."""
        end = payload.at + self.layout.size
        if end > payload.size:
            raise self._cut(payload)
        values = self.layout.unpack_from(payload.view, payload.at)
        payload.at = end
        return (*values[:-1], bool(values[-1])) if self.flag else values

    def _cut(self, payload: _Payload) -> Malformed:
        left = payload.size - payload.at
        name = next(name for name, end in zip(self.names, self.ends, strict=True) if end > left)
        return payload.wrong(f"the payload ends before the end of {name}")


def _getter(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """Return what reads attributes of an object, several or one, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: (getattr(message, names[0]),)


def _fits(value: object, bits: int) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << bits


def _check_hash(name: str, value: object) -> None:
    if not isinstance(value, bytes) or len(value) != 32:
        raise InputError(f"{name} is not a hash of 32 bytes", "give the BLAKE3-256 digest")


def _check_compression(compression: int) -> None:
    if compression not in (0, 1):
        raise Unsupported(f"compression is {compression}", "use 0 for none or 1 for zstd")


def _flat(name: str, data: object) -> bytes | memoryview:
    """Return bytes of any shape as a flat row of bytes, without a copy where possible."""
    if type(data) is bytes:
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InputError(f"{name} is {type(data).__name__}", "give bytes")
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else view.tobytes()


def _utf8(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise InputError(f"{name} is {type(text).__name__}", "give text")
    try:
        return text.encode()
    except UnicodeEncodeError:
        what = f"{name} holds an unpaired surrogate (half a character)"
        raise InputError(what, "give whole characters") from None


def _long(name: str, data: bytes | memoryview, most: int = _ANY, bits: int = 32) -> Parts:
    """Return the parts of a field that begins with its length."""
    if len(data) > most:
        raise TooLargeError(len(data), most, name, f"shorten the {name}")
    return [len(data).to_bytes(bits // 8, "little"), data]


# The payload of each message: names and order are those of the fields of its class.

_FIXED: dict[type, _Group] = {
    CreateContext: _Group(base_turn_id="Q"),
    ForkContext: _Group(base_turn_id="Q"),
    GetHead: _Group(context_id="Q"),
    GetLast: _Group(context_id="Q", limit="I", include_payload="I", flag=True),
    GetBefore: _Group(
        context_id="Q", before_turn_id="Q", limit="I", include_payload="I", flag=True
    ),
    GetRange: _Group(context_id="Q", start_depth="I", limit="I", include_payload="I", flag=True),
    GetBlob: _Group(hash=_HASH),
    AttachFs: _Group(turn_id="Q", root=_HASH),
    Welcome: _Group(session_id="Q", version="H"),
    Head: _Group(context_id="Q", head_turn_id="Q", head_depth="I"),
    Appended: _Group(context_id="Q", turn_id="Q", depth="I", hash=_HASH),
    FsAttached: _Group(turn_id="Q", root=_HASH),
    BlobPut: _Group(hash=_HASH, new="B", flag=True),
}
_HEADER = _Group(length="I", type="H", flags="H", req_id="Q")
_VERSION = _Group(version="H")
_PLACE = _Group(context_id="Q", parent_turn_id="Q")
_TURN = _Group(turn_id="Q", parent_turn_id="Q", depth="I")
_ABOUT = _Group(type_version="I", encoding="I", compression="I", uncompressed_len="I", hash=_HASH)
_ROOT = _Group(fs_root=_HASH)
_BLOB = _Group(hash=_HASH)
_COUNT = _Group(count="I")
_DEPTH = _Group(head_depth="I")
_CODE = _Group(code="I")
_LEAST_TURN = _TURN.layout.size + 4 + _ABOUT.layout.size  # with an empty type id and no payload


def _put_fixed(message: Any) -> Parts:
    group = _FIXED[type(message)]
    return [group.pack(*group.values(message))]


def _put_hello(hello: Hello) -> Parts:
    tag = _long("tag", _utf8("tag", hello.tag), MAX_TAG, bits=16)
    return [
        _VERSION.pack(hello.version),
        *tag,
        *_long("meta_json", _utf8("meta_json", hello.meta), MAX_META),
    ]


def _take_hello(payload: _Payload) -> Hello:
    if not payload.size:
        return Hello()
    (version,) = _VERSION.take(payload)
    return Hello(version, payload.text("tag", MAX_TAG, _U16), payload.text("meta_json", MAX_META))


def _put_append(turn: AppendTurn) -> Parts:
    _check_compression(turn.compression)
    return [
        _PLACE.pack(turn.context_id, turn.parent_turn_id),
        *_long("type_id", _utf8("type_id", turn.type_id), MAX_TYPE_ID),
        _ABOUT.pack(
            turn.type_version, turn.encoding, turn.compression, turn.uncompressed_len, turn.hash
        ),
        *_long("payload", _flat("payload", turn.payload)),
        *_long("idempotency_key", _flat("idempotency_key", turn.idempotency_key), MAX_KEY),
        b"" if turn.fs_root is None else _ROOT.pack(turn.fs_root),
    ]


def _take_append(payload: _Payload, *, rooted: bool) -> AppendTurn:
    context_id, parent = _PLACE.take(payload)
    type_id = payload.text("type_id", MAX_TYPE_ID)
    version, encoding, compression, length, digest = _ABOUT.take(payload)
    _check_compression(compression)
    data = payload.field("payload")
    key = bytes(payload.field("idempotency_key", MAX_KEY))
    root = _ROOT.take(payload)[0] if rooted else None
    return AppendTurn(
        context_id, parent, type_id, version, encoding, compression, length, digest, data, key, root
    )  # fmt: skip


def _put_put_blob(blob: PutBlob) -> Parts:
    return [_BLOB.pack(blob.hash), *_long("data", _flat("data", blob.data))]


def _put_turns(reply: Turns) -> Parts:
    parts: Parts = [] if reply.head_depth is None else [_DEPTH.pack(reply.head_depth)]
    parts.append(_COUNT.pack(len(reply.turns)))
    if len({turn.payload is None for turn in reply.turns}) > 1:
        what = "some of the turns have a payload and some have none"
        raise InputError(what, "give all of them, or none")
    for turn in reply.turns:
        parts += _put_turn(turn)
    return parts


def _put_turn(turn: WireTurn) -> Parts:
    _check_compression(turn.compression)
    if turn.payload is not None and turn.compression:
        what = "a payload comes along, compressed"
        raise InputError(what, "decompress it, and give compression 0")
    return [
        _TURN.pack(turn.turn_id, turn.parent_turn_id, turn.depth),
        *_long("type_id", _utf8("type_id", turn.type_id), MAX_TYPE_ID),
        _ABOUT.pack(
            turn.type_version, turn.encoding, turn.compression, turn.uncompressed_len, turn.hash
        ),
        *([] if turn.payload is None else _long("payload", _flat("payload", turn.payload))),
    ]


def _take_turns(payload: _Payload, *, ranged: bool, payloads: bool) -> Turns:
    depth = _DEPTH.take(payload)[0] if ranged else None
    (count,) = _COUNT.take(payload)
    least = _LEAST_TURN + (4 if payloads else 0)
    if count * least > payload.size - payload.at:
        raise payload.wrong(f"count is {count}, and {payload.size - payload.at} bytes are left")
    return Turns(tuple([_take_turn(payload, payloads) for _ in range(count)]), depth)


def _take_turn(payload: _Payload, payloads: bool) -> WireTurn:  # noqa: FBT001 (once per turn)
    turn_id, parent, depth = _TURN.take(payload)
    type_id = payload.text("type_id", MAX_TYPE_ID)
    version, encoding, compression, length, digest = _ABOUT.take(payload)
    _check_compression(compression)
    if payloads and compression:
        raise payload.wrong("compression is 1 though the payload comes along")
    data = payload.field("payload") if payloads else None
    return WireTurn(
        turn_id, parent, depth, type_id, version, encoding, compression, length, digest, data
    )


def _put_failure(failure: Failure) -> Parts:
    """Return the parts of a failure, whatever its text holds: it must always be encodable."""
    text = failure.text.encode(errors="backslashreplace")
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT].decode(errors="ignore").encode()
    return [_CODE.pack(failure.code), *_long("text", text)]


_PUT: dict[type, Callable[[Any], Parts]] = {
    **dict.fromkeys(_FIXED, _put_fixed),
    Hello: _put_hello,
    AppendTurn: _put_append,
    PutBlob: _put_put_blob,
    Turns: _put_turns,
    BlobBytes: lambda reply: _long("data", _flat("data", reply.data)),
    Failure: _put_failure,
}
# The other messages are in _FIXED, or cannot be decoded from their bytes alone.
_TAKE: dict[type, Callable[[_Payload], Any]] = {
    Hello: _take_hello,
    PutBlob: lambda payload: PutBlob(_BLOB.take(payload)[0], payload.field("data")),
    BlobBytes: lambda payload: BlobBytes(payload.field("data")),
    Failure: lambda payload: Failure(_CODE.take(payload)[0], payload.text("text")),
}


def _take(message: type, payload: _Payload) -> Any:
    return message(*_FIXED[message].take(payload)) if message in _FIXED else _TAKE[message](payload)


# Frames.


def encode_request(message: Request, req_id: int) -> bytes:
    """Return the frame of a request. Raises InputError for a bad value, TooLargeError."""
    kind = _TYPES.get(type(message))
    if kind is None:
        raise InputError(f"{type(message).__name__} is no request", "give one of those in REQUESTS")
    flags = _ROOTED if isinstance(message, AppendTurn) and message.fs_root is not None else 0
    return _frame(kind, flags, req_id, _PUT[type(message)](message))


def encode_reply(message: Reply, req_id: int, type: int = Type.ERROR) -> bytes:
    """Return the frame of the reply to a request of a type; a Failure becomes an ERROR.

    Raises TooLong for a reply beyond MAX_FRAME (see `turn_size`), InputError for what is no answer
    to `type`.
    """
    kind = Type.ERROR if isinstance(message, Failure) else type
    fits = message.__class__ is REPLIES.get(kind)
    if fits and isinstance(message, Turns):
        fits = (message.head_depth is not None) == (kind == Type.GET_RANGE_BY_DEPTH)
    if not fits:
        what = f"{message.__class__.__name__} does not answer {_name(kind)}"
        raise InputError(what, "give what REPLIES says")
    return _frame(kind, 0, req_id, _PUT[message.__class__](message))


def _frame(type: int, flags: int, req_id: int, parts: Parts) -> bytes:
    size = sum(map(len, parts))
    if size > MAX_FRAME:
        raise TooLong(size, MAX_FRAME, type, req_id)
    return b"".join([_HEADER.pack(size, type, flags, req_id), *parts])


def decode_request(frame: Frame) -> Request:
    """Return the request in a frame. Raises Malformed, Unsupported, TooLargeError."""
    message = REQUESTS.get(frame.type)
    if message is None:
        raise Unsupported(f"{_name(frame.type)} is no request", "use one of those of the protocol")
    payload = _Payload(frame)
    found: Request = (
        _take_append(payload, rooted=bool(frame.flags & _ROOTED))
        if message is AppendTurn
        else _take(message, payload)
    )
    payload.end()
    return found


def decode_reply(
    frame: Frame,
    of_type: int,
    payloads: bool = False,  # noqa: FBT001, FBT002 (see Pairing)
) -> Reply:
    """Return the reply in a frame to a request of a type, which had `payloads` included or not.

    `Pairing.matched` returns both; the bytes do not say whether the turns have payloads. Raises
    Malformed, Unsupported, TooLargeError.
    """
    payload = _Payload(frame)
    message = REPLIES.get(frame.type)
    if message is None or frame.type not in (of_type, Type.ERROR):
        raise payload.wrong(f"this does not answer {_name(of_type)}")
    if frame.flags:
        raise payload.wrong(f"flags are {frame.flags:#x}")
    if message is Turns:
        found: Reply = _take_turns(
            payload, ranged=of_type == Type.GET_RANGE_BY_DEPTH, payloads=payloads
        )
    else:
        found = _take(message, payload)
    payload.end()
    return found


def turn_size(type_id: str, payload_len: int | None = None) -> int:
    """Return the bytes that a turn takes in a reply; `payload_len` is None without its payload.

    A reply of turns fits if TURNS_HEAD and these make MAX_FRAME at most. A server adds them up
    before it reads the payloads, and answers with a 413 where they do not fit.
    """
    size = _LEAST_TURN + len(_utf8("type_id", type_id))
    return size if payload_len is None else size + 4 + payload_len


class Reader:
    """Frames out of a stream that comes in pieces of any size.

    It holds the bytes of frames that are not whole, and allocates nothing on the word of a header.
    `limit` (bytes of a payload) may be changed at any time, for example raised for a known peer.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self.pending = 0  # bytes that are in no frame yet; at the end of a stream, of a cut frame
        self.dropping = 0  # bytes that are still to come of a frame that was skipped
        self._buffer = bytearray()
        self._broken: tuple[int, int, int, int] | None = None

    def feed(self, data: Bytes) -> None:
        """Copy the next bytes of the stream. After a frame that is too long they are dropped."""
        if self.dropping:
            dropped = min(self.dropping, len(data))
            self.dropping -= dropped
            data = memoryview(data)[dropped:]
        if self._broken is None:
            self._buffer += data
            self.pending = len(self._buffer)

    def begun(self) -> tuple[int, int, int] | None:
        """Return length, type and req_id of the next frame, as soon as its header is there."""
        if len(self._buffer) < _HEADER.layout.size:
            return None
        length, kind, _, req_id = _HEADER.layout.unpack_from(self._buffer)
        return length, kind, req_id

    def skip(self) -> None:
        """Drop the frame that has begun, also its bytes that are still to come."""
        begun = self.begun()
        if begun is not None:
            end = _HEADER.layout.size + begun[0]
            self.dropping = max(0, end - len(self._buffer))
            del self._buffer[:end]
            self.pending = len(self._buffer)

    def needs(self) -> int:
        """Return how many bytes the next header lacks, or the frame whose header is there.

        It is 0 when `next` returns a frame or raises.
        """
        size = _HEADER.layout.size
        if self._broken is None and self.pending >= size:
            length = _HEADER.layout.unpack_from(self._buffer)[0]
            size = 0 if length > self.limit else size + length
        return 0 if self._broken else max(0, size - self.pending)

    def next(self) -> Frame | None:
        """Return the next frame, or None until it is whole. Raises TooLong, then at each call."""
        if self._broken:
            raise TooLong(*self._broken)
        if len(self._buffer) < _HEADER.layout.size:
            return None
        length, kind, flags, req_id = _HEADER.layout.unpack_from(self._buffer)
        if length > self.limit:
            self._broken = length, self.limit, kind, req_id
            self._buffer = bytearray()
            self.pending = 0
            raise TooLong(*self._broken)
        end = _HEADER.layout.size + length
        return Frame(kind, flags, req_id, self._cut(end)) if end <= len(self._buffer) else None

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that are whole. Raises TooLong, after the frames before it."""
        while (frame := self.next()) is not None:
            yield frame

    def _cut(self, end: int) -> memoryview:
        """Take a frame out of the buffer, by copy only if more follows; return its payload."""
        if end == len(self._buffer):
            whole, self._buffer = self._buffer, bytearray()
        else:
            whole = self._buffer[:end]
            del self._buffer[:end]  # costs nothing: a bytearray moves its beginning, not its bytes
        self.pending = len(self._buffer)
        return memoryview(whole)[_HEADER.layout.size :].toreadonly()


# Who may send what when.


class Session:
    """A server's side: which request may come; `state` is one of SERVER.

    A server calls `allow` before it decodes, and `received` once it has decoded the request and
    accepted the token of a HELLO: a HELLO that is refused opens nothing. An unknown type counts as
    a request; decoding refuses it.
    """

    def __init__(self, *, token_required: bool = False) -> None:
        self.state = "locked" if token_required else "new"

    def allow(self, type: int) -> None:
        """Raise Refused unless a request of the type may come now."""
        if self.state == "closing":
            raise Refused(f"{_name(type)} came on a connection that is closing", "open another one")
        if type != _HELLO and "request" not in SERVER[self.state]:
            raise Refused(f"{_name(type)} came before a token", "send HELLO with the token first")

    def received(self, type: int) -> None:
        """Note that a request of the type was accepted. Raises Refused as `allow` does."""
        event = "hello" if type == _HELLO else "request"
        state = SERVER[self.state].get(event)
        if state is None:
            self.allow(type)
        self.state = state or self.state

    def too_long(self) -> None:
        """Note that a frame was too long: nothing may follow it."""
        self.state = SERVER[self.state].get("too long", self.state)
