"""Handlers of requests: each request becomes a plan for a reader or the writer."""

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
from eventq.records.checks import MAX_NAME, REF, check_name
from eventq.records.turn import NewTurn
from eventq.serving.plans import (
    LARGE,
    QUICK,
    READ,
    WRITE,
    Plan,
    Sized,
    need_nothing,
    read_once_it_fits,
)
from eventq.store.turn_rows import GONE, AppendTo
from eventq.wire import frames
from eventq.wire.frames import (
    MAX_FRAME,
    AppendTurn,
    AttachFs,
    BlobBytes,
    BlobPut,
    CreateContext,
    Failure,
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

    from eventq.memory.contexts import Context
    from eventq.memory.turns import Turns as TurnStore
    from eventq.serving.plans import Need
    from eventq.store.turn_rows import TurnRow
    from eventq.thread import Thread
    from eventq.wire.frames import Bytes, Reply, Request

MOST_TURNS = 1 << 16  # in a reply: the rows of all are in memory before the first is sent
STEP = 256  # turns whose rows are read at once
OWNER = "wire"  # who pins what PUT_BLOB stores
_I64 = 1 << 63
_EMPTY = blake3(b"").digest()


_ON_THE_WIRE = frozenset((400, 404, 409, 413, 422, 500))


def failure(error: EventqError) -> Failure:
    """Return the reply for an error: its code, and a sentence."""
    return Failure(error.wire_code if error.wire_code in _ON_THE_WIRE else 500, str(error))


class Handlers:
    """The handlers of one connection.

    Without `foreign_roots` the root of a file tree must be a stored blob.
    """

    def __init__(self, *, foreign_roots: bool = False) -> None:
        self._foreign_roots = foreign_roots

    def plan(self, request: Request, *, keys: str = "matching", need: Need = need_nothing) -> Plan:
        """Return the plan for a request; `keys` names one of the `KEY_RULES`.

        Raises the errors that the request alone causes. `need` is asked for memory before a long
        reply is read; it may raise, and the plan be run again later.
        """
        if isinstance(request, AppendTurn):
            size = request.uncompressed_len if request.compression else len(request.payload)
            return Plan(WRITE, self._append(request, keys=keys), size >= LARGE)
        if isinstance(request, PutBlob):
            return Plan(WRITE, lambda thread: _put(thread, request), len(request.data) >= LARGE)
        if isinstance(request, AttachFs):
            return Plan(WRITE, lambda thread: self._attach(thread, request))
        how, do = _PLAIN[type(request)]
        return Plan(how, lambda thread: read_once_it_fits(do(thread, request), need))

    def _append(self, request: AppendTurn, *, keys: str) -> Callable[[Thread], Reply]:
        """Return a function that appends a turn; its key is checked now."""
        key = KEY_RULES[keys](request) if request.idempotency_key else None
        parent = request.parent_turn_id or None
        to = AppendTo(parent, key=key, root=request.fs_root, foreign_root=self._foreign_roots)

        def append(thread: Thread) -> Reply:
            payload = inflated(request) if request.compression else request.payload
            _check_ids(request.context_id, request.parent_turn_id)
            if len(payload) >= LARGE:
                self._check_append(thread, request)
            new = NewTurn(
                payload, request.type_id, request.type_version, request.encoding,
                expect_hash=request.hash, expect_size=request.uncompressed_len,
            )  # fmt: skip
            try:
                turn = thread.contexts.turns.append(request.context_id, new, to)
            except UnknownBlobError as error:
                raise _name_the_option(error) from None
            return frames.Appended(request.context_id, turn.turn_id, turn.depth, request.hash)

        return append

    def _check_append(self, thread: Thread, request: AppendTurn) -> None:
        """Raise the error that would refuse an append, before its payload is stored in parts."""
        _context(thread, request.context_id)
        if request.parent_turn_id:
            thread.contexts.turns.depth(request.parent_turn_id)
        if request.fs_root not in (None, request.hash):
            self._check_root(thread, request.fs_root)

    def _attach(self, thread: Thread, request: AttachFs) -> FsAttached:
        with thread.write():
            thread.contexts.attach(_turn(request.turn_id), request.root)
            self._check_root(thread, request.root)
        return FsAttached(request.turn_id, request.root)

    def _check_root(self, thread: Thread, root: bytes) -> None:
        """Raise UnknownBlobError for the root of a file tree that is kept elsewhere."""
        if not self._foreign_roots and not thread.blobs.has(root):
            raise _name_the_option(UnknownBlobError(REF + root.hex()))


def _name_the_option(error: UnknownBlobError) -> UnknownBlobError:
    """Add the next step to the error for a root that is not a stored blob."""
    error.fix = "put the tree first, or serve with --foreign-roots"
    return error


# Contexts.


def _check_ids(context_id: int, turn_id: int) -> None:
    """Raise the error for an id that no context and no turn ever has: ids have 63 bits."""
    if turn_id >= _I64:
        raise UnknownTurnError(turn_id)
    if context_id >= _I64:
        raise UnknownContextError(context_id)


def _context(thread: Thread, context_id: int) -> Context:
    if context_id >= _I64:
        raise UnknownContextError(context_id)
    return thread.contexts.get(context_id)


def _turn(turn_id: int) -> int:
    """Return the id of a turn; raise UnknownTurnError for one beyond all that are ever given."""
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


def matching_key(request: AppendTurn) -> str | None:
    """Return a text that only the same key for the same turn on the same parent has.

    None without a parent: then an equal turn may be another one, which nothing tells from a retry.
    Keys that do not match have nothing in common, so none is refused, and none replaces another:
    each append can be repeated. The thread checks the hash against the payload.
    """
    if not request.parent_turn_id:
        return None
    numbers = request.parent_turn_id, request.type_version, request.encoding
    about = "\n".join((*map(str, numbers), request.type_id, "")).encode()
    return f"blake3:{blake3(about + request.hash + request.idempotency_key).hexdigest()}"


def key_text(key: bytes) -> str:
    """Return an idempotency key as text, a different one for each key.

    It is the key itself where that is a name, else its hex digits, or its hash if these are long.
    """
    try:
        text = key.decode()
        check_name(text, "key")
    except (UnicodeDecodeError, EventqError):
        text = ""
    if text and not text.startswith(("hex:", "blake3:")):
        return text
    if 2 * len(key) + 4 <= MAX_NAME:
        return f"hex:{key.hex()}"
    return f"blake3:{blake3(key).hexdigest()}"


KEY_RULES: dict[str, Callable[[AppendTurn], str | None]] = {
    "matching": matching_key,
    "strict": lambda request: key_text(request.idempotency_key),
    "ignore": lambda _: None,
}
"""What the key of an APPEND_TURN is stored as, by the name of the rule."""


def inflated(request: AppendTurn) -> bytes:
    """Return the bytes of a zstd payload, never more than were declared."""
    size = request.uncompressed_len
    if size > MAX_FRAME:
        raise TooLargeError(size, MAX_FRAME, "payload", "send less at once")
    reader = zstandard.ZstdDecompressor(max_window_size=MAX_FRAME).stream_reader(request.payload)
    try:
        found = reader.read(size + 1)
    except zstandard.ZstdError as error:
        what = f"the payload is no zstd frame ({error})"
        raise InputError(what, "compress it again, or send it as it is") from error
    if len(found) > size:
        what = f"the payload has more than the {size} bytes that were declared"
        raise InputError(what, "send it again")
    return found


def _last(thread: Thread, request: GetLast) -> Turns | Sized:
    context = _context(thread, request.context_id)
    return _turns(context, context.head_id(), request.limit, payloads=request.include_payload)


def _before(thread: Thread, request: GetBefore) -> Turns | Sized:
    context = _context(thread, request.context_id)
    above = context.before(_turn(request.before_turn_id), 1, payload=False).turns
    end = above[0].turn_id if above else 0
    return _turns(context, end, request.limit, payloads=request.include_payload)


def _range(thread: Thread, request: GetRange) -> Turns | Sized:
    """Return turns from a depth on. All are read from one head, even if it moves meanwhile."""
    context = _context(thread, request.context_id)
    turns, head = context.turns, context.head_id()
    depth = turns.depth(head) if head else 0
    count = min(request.limit, depth + 1 - request.start_depth) if head else 0
    last = turns.ancestor(head, request.start_depth + count - 1) if count > 0 else 0
    return _turns(context, last, count, payloads=request.include_payload, head_depth=depth)


def _turns(
    context: Context, end: int, limit: int, *, payloads: bool, head_depth: int | None = None
) -> Turns | Sized:
    """Return a turn and those above it, oldest first.

    Raises TooLargeError, before payloads are read, for what does not fit into a reply.
    """
    turns = context.turns
    count = min(limit, turns.depth(end) + 1) if end else 0
    if count <= 0:
        return Turns((), head_depth)
    if count > MOST_TURNS:
        raise TooLargeError(count, MOST_TURNS, "reply", "ask for fewer turns at once", unit="turns")
    rows, size = _rows(turns, end, count, payloads=payloads)

    def read() -> Turns:
        found = turns.payloads(rows, payload=payloads, limit=_I64)
        return Turns(tuple([_wire_turn(turn, payloads=payloads) for turn in found]), head_depth)

    return Sized(size, read)


def _rows(turns: TurnStore, end: int, count: int, *, payloads: bool) -> tuple[list[TurnRow], int]:
    """Return the rows of a turn and those above it, oldest first, and the size of their reply.

    Raises TooLargeError when it does not fit into a frame. Rows are read in steps, as type ids may
    be long; reading all before the size is known could take too much memory. All steps show the
    patches of one moment.
    """
    as_of, size, steps = turns.last_patch(), 0, []
    while count > 0 and end:
        rows = turns.rows(end, min(count, STEP), as_of)
        if not rows:
            what = f"turn {end} is not there"
            raise DamagedError(what, "run 'eventq check', or restore a backup")
        shown = [0 if row.codec == GONE else row.size for row in rows]
        sizes = shown if payloads else [None] * len(rows)
        size += sum(map(frames.turn_size, [row.type_id for row in rows], sizes))
        if size > MAX_FRAME - frames.TURNS_HEAD:
            fix = "ask for fewer turns at once, or for their blobs one by one"
            raise TooLargeError(size, MAX_FRAME, "reply", fix)
        steps.append(rows)
        count -= len(rows)
        end = rows[0].parent
    return [row for rows in reversed(steps) for row in rows], size


def _wire_turn(turn: Any, *, payloads: bool) -> WireTurn:
    """Return a turn as the protocol has it; a hidden payload is empty: there is no other way."""
    digest = _EMPTY if turn.tombstone else bytes.fromhex(turn.hash)
    return WireTurn(
        turn.turn_id, turn.parent_turn_id, turn.depth, turn.type_id, turn.type_version,
        turn.encoding, 0, 0 if turn.tombstone else turn.size, digest,
        (turn.payload or b"") if payloads else None,
    )  # fmt: skip


# Blobs.


def _get_blob(thread: Thread, request: GetBlob) -> Sized:
    size = thread.blobs.stat(request.hash).size
    if size > MAX_FRAME - 4:
        fix = "run 'eventq blob get' on the machine of the thread"
        raise TooLargeError(size, MAX_FRAME - 4, "blob", fix)

    def read() -> BlobBytes:
        data = thread.blobs.get(request.hash)
        if data is None:  # collected meanwhile
            raise UnknownBlobError(REF + request.hash.hex())
        return BlobBytes(data)

    return Sized(size, read)


def _put(thread: Thread, request: PutBlob) -> BlobPut:
    """Store a blob and pin it: these clients cannot say what refers to it."""
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
