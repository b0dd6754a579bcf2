"""What the requests of the protocol mean to a thread: each becomes work, for a reader or for the writer."""

from __future__ import annotations

import zstandard
from blake3 import blake3

from eventq.errors import (
    DamagedError,
    EventqError,
    InputError,
    TooLargeError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.event import MAX_NAME, REF, check_name
from eventq.records import NewTurn
from eventq.storage.rows import AppendTo
from eventq.wire import frames
from eventq.wire.calls import (
    LARGE,
    QUICK,
    READ,
    WRITE,
    Plan,
    Sized,
    need_nothing,
    read_once_it_fits,
)
from eventq.wire.frames import (
    MAX_FRAME,
    AppendTurn,
    AttachFs,
    BlobBytes,
    BlobPut,
    Call,
    CreateContext,
    ForkContext,
    FsAttached,
    GetBefore,
    GetBlob,
    GetHead,
    GetLast,
    GetRange,
    Head,
    PutBlob,
    Turns,
    WireTurn,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.dag.contexts import Context
    from eventq.dag.turns import Turns as TurnStore
    from eventq.thread import Thread
    from eventq.wire.calls import Calls, Need
    from eventq.wire.frames import Bytes, Reply, Request

    CheckRoot = Callable[[Thread, bytes], None]

MOST_TURNS = 1 << 16  # in a reply: what is known of each is in memory before the first is sent
STEP = 256  # turns whose rows are read at once
OWNER = "wire"  # who pins what PUT_BLOB stores
_I64 = 1 << 63
_EMPTY = blake3(b"").digest()


class Requests:
    """The requests of one connection; without `foreign_roots` a turn takes no root that is no stored blob."""

    def __init__(self, calls: Calls, *, foreign_roots: bool = False) -> None:
        self.calls = calls
        self._check_root = (lambda *_: None) if foreign_roots else _check_root

    def plan(self, request: Request, *, keys: bool = True, need: Need = need_nothing) -> Plan:
        """Say what a request comes to, with idempotency keys honoured or not. Raises what is wrong with it alone.

        `need` is asked for memory before a long reply is read; it may raise, and the plan be run again later.
        """
        if isinstance(request, Call):
            return self.calls.plan(request, need)
        if isinstance(request, AppendTurn):
            size = request.uncompressed_len if request.compression else len(request.payload)
            return Plan(WRITE, _append(request, self._check_root, keys=keys), size >= LARGE)
        if isinstance(request, PutBlob):
            return Plan(WRITE, lambda thread: _put(thread, request), len(request.data) >= LARGE)
        if isinstance(request, AttachFs):
            return Plan(WRITE, lambda thread: _attach(thread, request, self._check_root))
        how, do = _PLAIN[type(request)]
        return Plan(how, lambda thread: read_once_it_fits(do(thread, request), need))


# Contexts.


def _context(thread: Thread, context_id: int) -> Context:
    if context_id >= _I64:
        raise UnknownContextError(context_id)
    return thread.contexts.get(context_id)


def _turn(turn_id: int) -> int:
    """Give the id of a turn; one beyond what is ever given is that of no turn."""
    if turn_id >= _I64:
        raise UnknownTurnError(turn_id)
    return turn_id


def _create(thread: Thread, request: CreateContext | ForkContext) -> Head:
    return _head(thread.contexts.create(base=_turn(request.base_turn_id)))


def _get_head(thread: Thread, request: GetHead) -> Head:
    return _head(_context(thread, request.context_id))


def _head(context: Context) -> Head:
    info = context.info()
    return Head(info.context_id, info.head_turn_id, info.head_depth or 0)


# Turns.


def _append(request: AppendTurn, check_root: CheckRoot, *, keys: bool) -> Callable[[Thread], Reply]:
    key = key_text(request.idempotency_key) if keys and request.idempotency_key else None

    def append(thread: Thread) -> Reply:
        payload = inflated(request) if request.compression else request.payload
        turns = thread.contexts.turns
        context_id, parent = request.context_id, _turn(request.parent_turn_id) or None
        if context_id >= _I64:
            raise UnknownContextError(context_id)
        if (
            len(payload) >= LARGE
        ):  # it is stored in parts, ahead of the transaction: not for nothing
            _context(thread, context_id)
            if parent:
                turns.depth(parent)
            if request.fs_root not in (None, request.hash):
                check_root(thread, request.fs_root)
        new = NewTurn(
            payload, request.type_id, request.type_version, request.encoding,
            expect_hash=request.hash, expect_size=request.uncompressed_len,
        )  # fmt: skip
        to = AppendTo(parent, key=key)
        prepared = turns.prepare(new)
        if request.fs_root is None:
            turn = turns.store(context_id, *prepared, to)
        else:
            with thread.write():
                turn = turns.store(context_id, *prepared, to)
                check_root(thread, request.fs_root)  # it may be the payload itself
                thread.database.turns.attach(turn.turn_id, request.fs_root, only_new=True)
        return frames.Appended(context_id, turn.turn_id, turn.depth, request.hash)

    return append


def key_text(key: bytes) -> str:
    """Give an idempotency key as text, another one for each: as it is if it can be, else in hex, or hashed if long."""
    try:
        text = key.decode()
        check_name(text, "key")
    except (UnicodeDecodeError, EventqError):
        text = ""
    if text and not text.startswith(("hex:", "blake3:")):
        return text
    return (
        f"hex:{key.hex()}" if 2 * len(key) + 4 <= MAX_NAME else f"blake3:{blake3(key).hexdigest()}"
    )


def inflated(request: AppendTurn) -> bytes:
    """Give the bytes of a payload that came as one zstd frame, never more than were declared."""
    size = request.uncompressed_len
    if size > MAX_FRAME:
        raise TooLargeError(size, MAX_FRAME, "payload", "send less at once")
    reader = zstandard.ZstdDecompressor(max_window_size=MAX_FRAME).stream_reader(request.payload)
    try:
        found = reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise InputError(
            f"the payload is no zstd frame ({error})", "compress it again, or send it as it is"
        ) from error
    if len(found) > size:
        raise InputError(
            f"the payload has more than the {size} bytes that were declared", "send it again"
        )
    return found


def _last(thread: Thread, request: GetLast) -> Turns | Sized:
    context = _context(thread, request.context_id)
    return _turns(context, context.head_id(), request.limit, payloads=request.include_payload)


def _before(thread: Thread, request: GetBefore) -> Turns | Sized:
    context = _context(thread, request.context_id)
    above = context.before(_turn(request.before_turn_id), 1, payload=False).turns
    return _turns(
        context, above[0].turn_id if above else 0, request.limit, payloads=request.include_payload
    )


def _range(thread: Thread, request: GetRange) -> Turns | Sized:
    """Give turns from a depth on. All of it is read of one head, whoever moves it meanwhile."""
    context = _context(thread, request.context_id)
    turns, head = context.turns, context.head_id()
    depth = turns.depth(head) if head else 0
    count = min(request.limit, depth + 1 - request.start_depth) if head else 0
    last = turns.ancestor(head, request.start_depth + count - 1) if count > 0 else 0
    return _turns(context, last, count, payloads=request.include_payload, head_depth=depth)


def _turns(
    context: Context, end: int, limit: int, *, payloads: bool, head_depth: int | None = None
) -> Turns | Sized:
    """Give a turn and those above it, oldest first; what does not fit into a reply is refused before it is read."""
    turns = context.turns
    count = min(limit, turns.depth(end) + 1) if end else 0
    if count <= 0:
        return Turns((), head_depth)
    if count > MOST_TURNS:
        raise TooLargeError(count, MOST_TURNS, "reply", "ask for fewer turns at once", unit="turns")
    rows, size = _rows(turns, end, count, payloads=payloads)

    def read() -> Turns:
        found = turns.payloads(rows, payload=payloads, limit=_I64)
        return Turns(tuple([_wired(turn, payloads=payloads) for turn in found]), head_depth)

    return Sized(size, read)


def _rows(turns: TurnStore, end: int, count: int, *, payloads: bool) -> tuple[list[Any], int]:
    """Give the rows of a turn and those above it, oldest first, and the bytes of a reply with them.

    Raises TooLargeError where a reply has no room for them.

    They are read in steps: type ids may be long, and all of them are too much before anybody knows their size. All
    steps show the overlays of one moment, whoever patches meanwhile.
    """
    as_of, size, steps = turns.last_patch(), 0, []
    while count > 0 and end:
        rows = turns.rows(end, min(count, STEP), as_of)
        if not rows:
            raise DamagedError(
                f"turn {end} is not there", "run 'eventq check', or restore a backup"
            )
        size += sum(frames.turn_size(row.type_id, row.size if payloads else None) for row in rows)
        if size > MAX_FRAME - frames.TURNS_HEAD:
            raise TooLargeError(
                size,
                MAX_FRAME,
                "reply",
                "ask for fewer turns at once, or for their blobs one by one",
            )
        steps.append(rows)
        count -= len(rows)
        end = rows[0].parent
    return [row for rows in reversed(steps) for row in rows], size


def _wired(turn: Any, *, payloads: bool) -> WireTurn:
    """Give a turn as the protocol has it; what was hidden is empty, for there is no other way to say so."""
    digest = bytes.fromhex(turn.hash) if turn.hash else _EMPTY
    return WireTurn(
        turn.turn_id, turn.parent_turn_id, turn.depth, turn.type_id, turn.type_version, turn.encoding, 0, turn.size,
        digest, (turn.payload or b"") if payloads else None,
    )  # fmt: skip


def _attach(thread: Thread, request: AttachFs, check_root: CheckRoot) -> FsAttached:
    with thread.write():
        thread.contexts.attach(_turn(request.turn_id), request.root)
        check_root(thread, request.root)
    return FsAttached(request.turn_id, request.root)


def _check_root(thread: Thread, root: bytes) -> None:
    """Raise UnknownBlobError for the root of a file tree that is kept elsewhere."""
    if not thread.blobs.has(root):
        error = UnknownBlobError(REF + root.hex())
        error.fix = "put the tree first, or serve with --foreign-roots"
        raise error


# Blobs.


def _get_blob(thread: Thread, request: GetBlob) -> Sized:
    size = thread.blobs.stat(request.hash).size
    if size > MAX_FRAME - 4:
        raise TooLargeError(
            size, MAX_FRAME - 4, "blob", "use a client of eventq, which reads it in pieces"
        )

    def read() -> BlobBytes:
        data = thread.blobs.get(request.hash)
        if data is None:  # collected meanwhile
            raise UnknownBlobError(REF + request.hash.hex())
        return BlobBytes(data)

    return Sized(size, read)


def _put(thread: Thread, request: PutBlob) -> BlobPut:
    """Store a blob and pin it: these clients have no other way to say what refers to what."""
    data: Bytes = request.data
    with thread.write():
        made = thread.blobs.put(data, expect_hash=request.hash)
        thread.blobs.pin(request.hash, OWNER)
    return BlobPut(request.hash, made.new)


_PLAIN: dict[type, tuple[str, Callable[[Thread, Any], Reply | Sized]]] = {
    CreateContext: (WRITE, _create),
    ForkContext: (WRITE, _create),
    GetHead: (QUICK, _get_head),
    GetLast: (READ, _last),
    GetBefore: (READ, _before),
    GetRange: (READ, _range),
    GetBlob: (READ, _get_blob),
}
