"""Remote calls of contexts and blobs: the methods, values and errors, and the server side.

A call is JSON, `[kind, which, method, [arguments], {named arguments}]`: `kind` and `method` stand
in CALLS, `which` is the id of a context, of an open turn and so on. Arguments and results are

    null, true, 1, 1.5, "text", [...]    themselves; text may hold unpaired surrogates
    {"bytes": 0}                         the first part of the message; each is named once, in order
    {"tuple": [...]}
    {"Turn": [...]}                      a record of RECORDS, its fields in order
    {"context": 1}  {"view": 5}  {"open": 3}  {"chain": [head, start, end, payload, as_of]}
    {"diff": [ancestor, chain, chain]}   in a result only
    {"upload": 1}                        bytes that were sent ahead, in an argument only: the method
                                         gets a binary file
    {"pages": [7, [...]]}                an iterator, as a result only: its first items, and the
                                         number for `next`, null when that was all

and nothing else: no other object comes out of a message, whoever sent it. Iterating a chain keeps
nothing at the server: `page` returns [as_of, [turns]] with its first turns, and the client asks for
the rest of the chain as of that patch.
"""

from __future__ import annotations

import json
from _thread import allocate_lock
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import signature

from eventq import errors
from eventq.errors import (
    ConflictError,
    DiskError,
    EventqError,
    LogicError,
    TooLargeError,
    UnknownBlobError,
    UsageError,
)
from eventq.memory.blobs import LARGEST, PART_BYTES, Blobs
from eventq.memory.contexts import Context, Contexts, OpenTurn
from eventq.memory.turns import PAGE_TURNS, Chain, Diff, Turns, View
from eventq.records.checks import check_natural, check_positive
from eventq.records.turn import Blob, ContextInfo, Move, NewTurn, OpenInfo, Page, Turn
from eventq.system import disk
from eventq.wire.frames import (
    MAX_FRAME,
    MAX_TEXT,
    Called,
    Failure,
    Malformed,
    Refused,
    TooLong,
    Unsupported,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from inspect import BoundArguments, Signature
    from typing import Any, BinaryIO, Protocol

    from eventq.wire.frames import Bytes, Call, Reply

    Need = Callable[[int], object]  # holds memory for so many bytes, or raises
    Named = tuple[str, Any]  # a kind of handle, and which of them
    Name = Callable[[object], Named | None]
    Make = Callable[[str, Any], object]
    Instead = Callable[[Any, str, BoundArguments], object]

    class Thread(Protocol):
        """What calls need of a thread."""

        @property
        def contexts(self) -> Contexts:
            """The branches of turns."""

        @property
        def blobs(self) -> Blobs:
            """The bytes that are stored by their hash."""


# A scan is a read that may take as long as the store is large. A quick read takes a few steps and
# few bytes: it has a worker of its own, and never waits behind long replies.
QUICK, READ, WRITE, SCAN = "quick", "read", "write", "scan"
_VIEW = {
    **dict.fromkeys(("head_id", "at", "ancestor", "has", "common_ancestor"), QUICK),
    **dict.fromkeys(("last", "before", "range", "replay", "diff"), READ),
}
# For each kind, its methods and how each runs; `next` runs like the call that began the iteration.
CALLS: dict[str, dict[str, str]] = {
    "contexts": {
        **dict.fromkeys(("get", "head", "at"), QUICK),
        **dict.fromkeys(("list", "__iter__", "history", "turn", "children", "root"), READ),
        **dict.fromkeys(("open_turns", "open_turn"), READ),
        **dict.fromkeys(
            ("create", "fork", "compare_and_set", "delete", "patch", "tombstone", "attach"), WRITE
        ),
    },
    "turns": dict.fromkeys(("common", "depth", "ancestor"), QUICK),
    "context": {
        **_VIEW,
        "info": QUICK,
        **dict.fromkeys(("history", "open_turns"), READ),
        **dict.fromkeys(
            ("append", "patch", "tombstone", "fork", "move", "delete", "open_turn"), WRITE
        ),
    },
    "view": _VIEW,
    "chain": {"page": READ},  # no method of the class: the first turns, see `_chain`
    "open": {
        **dict.fromkeys(("info", "read"), READ),
        **dict.fromkeys(("append_delta", "seal", "discard"), WRITE),
    },
    "blobs": {
        **dict.fromkeys(("has", "stat"), QUICK),
        **dict.fromkeys(("get", "stream", "__iter__", "__len__", "refs", "holders", "pins"), READ),
        **dict.fromkeys(("verify", "faults"), SCAN),
        **dict.fromkeys(("put", "pin", "unpin"), WRITE),
    },
    "pages": {"next": READ, "close": READ},
    "upload": {"append": READ, "drop": READ},
}
RECORDS: dict[str, type] = {
    one.__name__: one for one in (Blob, ContextInfo, Move, NewTurn, OpenInfo, Page, Turn)
}
# Of a connection: each may hold a page of rows or payloads while nobody asks.
MOST_CURSORS = 16
MOST_UPLOADS = 8
MOST_ITEMS = 1 << 16  # of a list that is returned whole
PAGE_ITEMS = 512  # of an iterator that are sent at once
PAGE_BYTES = 4 << 20
LARGE = 1 << 20  # bytes of a call from which on its write shares no transaction with others
# Characters of a call's JSON: it is parsed in the loop that serves everybody, and its objects take
# ten times the memory. Two names of 65,536 characters fit, each character as \uXXXX.
MAX_MESSAGE = 1 << 20
ANSWER_BYTES = MAX_FRAME - (1 << 20)  # of payloads in one result; the rest is for its JSON
DEEPEST = 16  # lists within one another
_TURN_CHARACTERS = 512  # of a turn's JSON without its type, at most
_PLAIN = frozenset((type(None), bool, int, float, str))
_SENDABLE = "send numbers, text, bytes, or lists of them"


# Values.


def pack(value: object, parts: list[Bytes], name: Name, depth: int = 0) -> Any:
    """Return a value as JSON can hold it; append bytes to `parts`. Raises InputError for others.

    `name` returns kind and id of an object that represents one at the other end, None for others.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > DEEPEST:
        raise errors.InputError("the value is nested too deeply to be sent", _SENDABLE)
    if kind is bytes:
        parts.append(value)  # type: ignore[arg-type]
        return {"bytes": len(parts) - 1}
    if RECORDS.get(kind.__name__) is kind:
        fields = [getattr(value, field) for field in kind.__match_args__]  # type: ignore[attr-defined]
        return {kind.__name__: pack(fields, parts, name, depth + 1)}
    if isinstance(value, (list, tuple)):
        packed = [
            one if type(one) in _PLAIN else pack(one, parts, name, depth + 1) for one in value
        ]
        return packed if isinstance(value, list) else {"tuple": packed}
    named = name(value)
    if named is None:
        raise errors.InputError(f"a {kind.__name__} cannot be sent over a connection", _SENDABLE)
    return {named[0]: pack(named[1], parts, name, depth + 1)}


class Unpacked:
    """The values of a message; `make` returns the object of a kind and id, or raises Malformed."""

    def __init__(
        self, text: str, parts: tuple[Bytes, ...], make: Make, records: Collection[str] = RECORDS
    ) -> None:
        """Parse the JSON. Raises Malformed."""
        self._parts = parts
        self._make = make
        self._records = records
        self._used = 0
        try:
            self.message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"its message is not JSON ({type(error).__name__})") from None

    def value(self, packed: Any, depth: int = 0) -> Any:
        """Return the value of a piece of the message; ask for each piece once, in order."""
        if type(packed) in _PLAIN:
            return packed
        if depth > DEEPEST:
            raise _malformed("it is nested too deeply")
        if type(packed) is list:
            return [one if type(one) in _PLAIN else self.value(one, depth + 1) for one in packed]
        if len(packed) != 1:
            raise _malformed("it holds an object of several keys")
        ((tag, inside),) = packed.items()
        if tag == "bytes":
            return self._bytes(inside)
        inside = self.value(inside, depth + 1)
        if tag == "tuple" or tag in self._records:
            return self._record(tag, inside)
        return self._make(tag, inside)

    def _bytes(self, number: object) -> bytes:
        """Return the next part. If parts could repeat, a little JSON could take any memory."""
        if type(number) is not int or number != self._used or number >= len(self._parts):
            next_part = f"{self._used} of {len(self._parts)}"
            raise _malformed(f"it names part {number!r} where {next_part} is next")
        self._used += 1
        return bytes(self._parts[number])

    def _record(self, tag: str, fields: object) -> object:
        if type(fields) is not list:
            raise _malformed(f"its {tag} is no list")
        try:
            return tuple(fields) if tag == "tuple" else RECORDS[tag](*fields)
        except TypeError:
            raise _malformed(f"its {tag} has {len(fields)} fields") from None

    def end(self) -> None:
        """Raise Malformed if parts are left that nothing named."""
        if self._used != len(self._parts):
            raise _malformed(f"it names {self._used} of its {len(self._parts)} parts")


def _malformed(what: str) -> Malformed:
    return Malformed(f"CALL: {what}", "send what eventq.wire.rpc describes")


# Errors.

# The errors that a message may name.
ERRORS: dict[str, type[EventqError]] = {
    one.__name__: one
    for one in (*vars(errors).values(), Malformed, Unsupported, Refused, TooLong)
    if isinstance(one, type) and issubclass(one, EventqError)
}
# What errors have besides `what` and `fix`.
ATTRIBUTES = {
    "acked": int,
    "actual": int,
    "at": int,
    "command": str,
    "event_id": int,
    "last_id": int,
    "ref": str,
    "req_id": int,
    "text": str,
    "type": int,
}
_ON_THE_WIRE = frozenset((400, 404, 409, 413, 422, 500))
_NEAREST: dict[int, type[EventqError]] = {
    400: UsageError,
    413: TooLargeError,
    422: errors.InputError,
    500: errors.StoreError,
}
_SHORT = 1000  # characters of each text in an error that is too long as a whole


def failure(error: EventqError, *, as_json: bool) -> Failure:
    """Return the reply for an error: a sentence, or JSON that `raised` turns into the error."""
    code = error.wire_code if error.wire_code in _ON_THE_WIRE else 500
    if not as_json:
        return Failure(code, str(error))
    fields = {"error": _name_of(error), "what": error.what, "fix": error.fix}
    fields |= {
        name: getattr(error, name)
        for name, kind in ATTRIBUTES.items()
        if type(getattr(error, name, None)) is kind
    }
    text = json.dumps(fields)
    if len(text) > MAX_TEXT:
        text = json.dumps(
            {name: one[:_SHORT] if isinstance(one, str) else one for name, one in fields.items()}
        )
    return Failure(code, text)


def _name_of(error: EventqError) -> str:
    """Return the name of the nearest class that the other end knows."""
    return next(kind.__name__ for kind in type(error).__mro__ if ERRORS.get(kind.__name__) is kind)


def raised(failure: Failure) -> EventqError:
    """Return the error in a reply: of the same class, with the same words and attributes.

    A plain sentence becomes an error of the nearest class, by its code.
    """
    nearest = _NEAREST.get(failure.code, LogicError)
    fields = _parsed(failure.text)
    if fields is None:
        what, _, fix = failure.text.partition(" - ")
        return _error(nearest, what, fix or "ask whoever runs the server")
    error = _error(ERRORS.get(fields["error"]) or nearest, fields["what"], fields["fix"])
    if isinstance(error, errors.FilterError):
        error.text, error.at = "", 0  # its `str` needs them
    for name, wanted in ATTRIBUTES.items():
        if type(fields.get(name)) is wanted:
            setattr(error, name, fields[name])
    return error


def _parsed(text: str) -> dict[str, Any] | None:
    """Return the fields of an error, None for a plain sentence."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    texts = isinstance(found, dict) and [type(found.get(name)) for name in ("error", "what", "fix")]
    return found if texts == [str, str, str] else None


def _error(kind: type[EventqError], what: str, fix: str) -> EventqError:
    """Make an error without its own constructor, whose arguments are in the sentence already."""
    error = kind.__new__(kind)
    EventqError.__init__(error, what, fix)
    return error


# A server's side.


class _Handle:
    """An object that a call names, before there is a thread to find it in."""

    __slots__ = ("kind", "which")

    def __init__(self, kind: str, which: Any) -> None:
        self.kind = kind
        self.which = which
        if not is_id_of(kind, which):
            raise _malformed(f"no {kind} is {which!r:.100}")


def is_id_of(kind: str, which: object) -> bool:
    """Return whether there could be an object of a kind with such an id."""
    return kind in _WHICH and _WHICH[kind](which)


def _is_id(which: object) -> bool:
    return type(which) is int and 0 <= which < 1 << 63


def _is_chain(which: object) -> bool:
    return type(which) is list and len(which) == 5 and all(map(_is_id, which[:3]))


_WHICH: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("contexts", "turns", "blobs"), lambda which: which is None),
    **dict.fromkeys(("context", "view", "open", "pages"), _is_id),
    "chain": _is_chain,
    "upload": lambda which: which is None or _is_id(which),
}
_MADE: dict[str, Callable[[Thread, Any], object]] = {
    "contexts": lambda thread, _: thread.contexts,
    "turns": lambda thread, _: thread.contexts.turns,
    "blobs": lambda thread, _: thread.blobs,
    "context": lambda thread, which: Context(thread.contexts.turns, which),
    "view": lambda thread, which: View(thread.contexts.turns, which),
    "open": lambda thread, which: OpenTurn(thread.contexts.turns, which),
    "chain": lambda thread, which: Chain(
        thread.contexts.turns, *which[:3], payload=bool(which[3]), as_of=which[4]
    ),
}
_NAMED: dict[type, Callable[[Any], Named]] = {
    Context: lambda one: ("context", one.id),
    View: lambda one: ("view", one.head_id()),
    OpenTurn: lambda one: ("open", one.id),
    Chain: lambda one: ("chain", [one.head, one.start, one.end, bool(one.payload), one.as_of]),
    Diff: lambda one: ("diff", [one.ancestor, one.mine, one.theirs]),
}
_ARGUMENTS = frozenset(("context", "view", "upload"))


def _named(value: object) -> Named | None:
    found = _NAMED.get(type(value))
    return found(value) if found else None


def _argument(kind: str, which: Any) -> _Handle:
    if kind not in _ARGUMENTS:
        raise _malformed(f"an argument is of the kind {kind!r:.100}")
    return _Handle(kind, which)


@dataclass(frozen=True, slots=True)
class Sized:
    """A long result that is not read yet: its size in bytes, and what reads it."""

    size: int
    read: Callable[[], Any]


def read_once_it_fits(found: Any, need: Need) -> Any:
    """Read what is Sized once there is memory for it; return anything else. Raises as `need`."""
    if not isinstance(found, Sized):
        return found
    need(found.size)
    return found.read()


def need_nothing(_: int) -> None:
    """Reserve no memory, as there is enough for everything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to handle a request: QUICK, READ, WRITE or SCAN, and the function that returns the reply.

    A write is all or nothing by itself. It may share a transaction with others unless it brings
    LARGE bytes.
    """

    how: str
    run: Callable[[Any], Reply]  # of a thread
    large: bool = False


class _Cursor:
    """An iterator that is sent page by page; an `error` comes after the items before it."""

    def __init__(self, items: Iterator[Any], how: str, size: int) -> None:
        self.items = items
        self.how = how  # the call that began it was done
        self.size = size  # bytes that a page may have, 0 for few
        self.error: EventqError | None = None
        self.ended = False
        self._held: Any = None  # the item that was too large for the page before

    def page(self) -> tuple[list[str], list[Bytes]]:
        """Return the next items, each as JSON, and their parts."""
        items: list[str] = []
        parts: list[Bytes] = []
        size = 0
        while len(items) < PAGE_ITEMS and (item := self._next()) is not None:
            used = len(parts)
            text = json.dumps(pack(item, parts, _named))
            size += len(text) + sum(map(len, parts[used:]))
            if items and size > PAGE_BYTES:
                self._held = item
                del parts[used:]
                break
            items.append(text)
        return items, parts

    def _next(self) -> Any:
        item, self._held = self._held, None
        try:
            item = next(self.items, None) if item is None else item
        except EventqError as error:
            self.error = error
            return None
        self.ended = item is None
        return item

    def close(self) -> None:
        """Close the iterator."""
        if hasattr(self.items, "close"):
            self.items.close()


@dataclass(frozen=True, slots=True)
class _Checked:
    """A call whose arguments were checked."""

    target: _Handle
    method: str
    inputs: BoundArguments
    how: str
    need: Need


class Calls:
    """The server side of one connection: its cursors and uploads; for one call at a time."""

    def __init__(self, spool_folder: str) -> None:
        """Keep uploads in unnamed files in a folder."""
        self._folder = spool_folder
        self._lock = allocate_lock()
        self._closed = False
        self._number = 0
        self._cursors: dict[int, _Cursor] = {}
        self._uploads: dict[int, BinaryIO] = {}

    def plan(self, call: Call, need: Need = need_nothing) -> Plan:
        """Return the plan for a call, once the earlier ones have been answered.

        Nothing is read or stored yet; `need` is asked for memory before a long result is read, and
        may raise. Raises Malformed, Unsupported, TooLargeError, UsageError.
        """
        size = len(call.message)
        if size > MAX_MESSAGE:
            raise TooLargeError(size, MAX_MESSAGE, "call", "give fewer refs, or shorter names")
        read = Unpacked(call.message, call.parts, _argument, records=(NewTurn.__name__,))
        kind, which, method, args, named = _form(read.message)
        how = CALLS.get(kind, {}).get(method)
        if how is None:
            what = f"CALL: nobody answers {kind:.60}.{method:.60}"
            raise Unsupported(what, "use what the table of calls says")
        target = _Handle(kind, read.value(which))
        positional = read.value(args)
        keywords = {name: read.value(one) for name, one in named.items()}
        inputs = _bound(kind, method, positional, keywords)
        read.end()
        if target.kind == "pages" and (cursor := self._cursors.get(target.which)) is not None:
            how = cursor.how if method == "next" else how
        large = sum(map(len, call.parts)) >= LARGE or any(
            map(_is_upload, inputs.arguments.values())
        )
        checked = _Checked(target, method, inputs, how, need)
        return Plan(how, lambda thread: self._run(thread, checked), large)

    def _run(self, thread: Thread, call: _Checked) -> Called:
        target, method, inputs, need = call.target, call.method, call.inputs, call.need
        used: list[BinaryIO] = []
        try:
            with self._lock:
                if self._closed:
                    raise errors.ClosedError("the connection is closed", "connect again")
                if target.kind == "pages":
                    return self._go_on(target.which, method, need)
                if target.kind == "upload":
                    return _answer(self._upload(target.which, method, **inputs.arguments))
                self._resolve(thread, inputs.arguments, used)
                one = _MADE[target.kind](thread, target.which)
                name = target.kind, method
                found = read_once_it_fits(_INSTEAD.get(name, _plainly)(one, method, inputs), need)
                if not hasattr(found, "__next__"):
                    return _answer(found)
                return self._begin(
                    _Cursor(found, call.how, PAGE_BYTES if name == _STREAM else 0), need
                )
        finally:
            for file in used:
                file.close()
            if self._closed:  # meanwhile
                self.close()

    def _resolve(self, thread: Thread, arguments: dict[str, Any], used: list[BinaryIO]) -> None:
        """Replace handles by the objects that they name."""
        for name, value in arguments.items():
            if type(value) is NewTurn:
                if _is_upload(value):
                    used.append(self._take(value.payload.which))
                    arguments[name] = value._replace(payload=_payload_of(value, used[-1]))
            elif _is_upload(value):
                used.append(self._take(value.which))
                arguments[name] = used[-1]
            elif isinstance(value, _Handle):
                arguments[name] = _MADE[value.kind](thread, value.which)

    def close(self) -> None:
        """Drop cursors and uploads, now or when the call under way ends; no call may follow."""
        self._closed = True
        if not self._lock.acquire(blocking=False):
            return
        try:
            while self._cursors:
                self._cursors.popitem()[1].close()
            while self._uploads:
                self._uploads.popitem()[1].close()
        finally:
            self._lock.release()

    # --- cursors ----------------------------------------------------------------------------------

    def _begin(self, cursor: _Cursor, need: Need) -> Called:
        self._number += 1
        return self._page(self._number, cursor, need)

    def _page(self, number: int, cursor: _Cursor, need: Need) -> Called:
        need(cursor.size)
        items, parts = cursor.page()
        if cursor.ended:
            self._cursors.pop(number, None)
        elif number not in self._cursors:
            self._keep(number, cursor)
        shown = "null" if cursor.ended else number
        return _fitting(f'{{"pages":[{shown},[{",".join(items)}]]}}', parts)

    def _keep(self, number: int, cursor: _Cursor) -> None:
        if len(self._cursors) >= MOST_CURSORS:
            cursor.close()
            what = f"{MOST_CURSORS} iterations are under way on this connection"
            raise LogicError(what, "end or close one of them first")
        self._cursors[number] = cursor

    def _go_on(self, number: int, method: str, need: Need) -> Called:
        cursor = self._cursors.get(number)
        if method == "close":
            if cursor is not None:
                self._cursors.pop(number).close()
            return _answer(None)
        if cursor is None:
            what = f"no iteration {number} is under way on this connection"
            raise LogicError(what, "begin it again")
        if cursor.error is not None:
            del self._cursors[number]
            raise cursor.error
        return self._page(number, cursor, need)

    # --- uploads ----------------------------------------------------------------------------------

    def _upload(self, number: int | None, method: str, data: bytes = b"") -> int | None:
        if method == "drop":
            if number in self._uploads:
                self._uploads.pop(number).close()
            return None
        if number is None:
            number = self._new_upload()
        file = self._uploads.get(number)
        if file is None:
            raise _no_upload(number)
        try:
            size = file.tell() + len(data)
            if size > LARGEST:
                raise TooLargeError(size, LARGEST, "blob", "store it in several blobs")
            disk.write_all(file.fileno(), data)
        except (OSError, TooLargeError) as error:
            self._take(number).close()
            raise _refused(error) if isinstance(error, OSError) else error from error
        return number

    def _new_upload(self) -> int:
        from tempfile import TemporaryFile

        if len(self._uploads) >= MOST_UPLOADS:
            what = f"{MOST_UPLOADS} uploads are under way on this connection"
            raise LogicError(what, "use or drop one of them first")
        self._number += 1
        try:
            file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _refused(error) from error
        self._uploads[self._number] = file
        return self._number

    def _take(self, number: int | None) -> BinaryIO:
        """Return an upload from its beginning, to be used once."""
        file = self._uploads.pop(number, None) if number is not None else None
        if file is None:
            raise _no_upload(number)
        file.seek(0)
        return file


def _no_upload(number: int | None) -> LogicError:
    return LogicError(f"there is no upload {number} on this connection", "send its bytes again")


def _refused(error: OSError) -> DiskError:
    what = f"the server could not keep an upload: {error.strerror or error}"
    return DiskError(what, "check its disk and its folder")


def _form(message: Any) -> tuple[str, Any, str, list[Any], dict[str, Any]]:
    """Return the five members of a call."""
    types = [type(one) for one in message] if type(message) is list else []
    if len(types) != 5 or [types[0], *types[2:]] != [str, str, list, dict]:
        raise _malformed("it is not [kind, which, method, [...], {...}]")
    return message[0], message[1], message[2], message[3], message[4]


# The class of each kind.
LOCAL: dict[str, type] = {
    "contexts": Contexts,
    "turns": Turns,
    "context": Context,
    "view": View,
    "chain": Chain,
    "open": OpenTurn,
    "blobs": Blobs,
}


def _append(self: Calls, data: bytes) -> None:
    """Show the arguments that sending a piece of an upload has."""


def _nothing(self: Calls) -> None:
    """Show that there are no arguments."""


@cache
def signature_of(kind: str, method: str) -> Signature:
    """Return the signature of a method, `self` included."""
    if kind in LOCAL and kind != "chain":
        return signature(getattr(LOCAL[kind], method))
    return signature(_append if method == "append" else _nothing)


def _bound(kind: str, method: str, args: list[Any], named: dict[str, Any]) -> BoundArguments:
    """Return the arguments by name. Raises UsageError for missing, surplus and bad ones."""
    try:
        inputs = signature_of(kind, method).bind(None, *args, **named)
    except TypeError as error:
        raise UsageError(f"{kind}.{method}: {error}", "give what its documentation says") from None
    inputs.apply_defaults()
    del inputs.arguments["self"]
    for name, value in inputs.arguments.items():
        fits, wanted = _WANTED.get((kind, name), _ANYTHING)
        if not fits(value):
            raise UsageError(f"{kind}.{method}: {name} is {type(value).__name__}", wanted)
    return inputs


def _is_upload(value: object) -> bool:
    """Return whether an argument is an upload, or a turn whose payload is one."""
    found = value.payload if type(value) is NewTurn else value
    return isinstance(found, _Handle) and found.kind == "upload"


def _payload_of(new: NewTurn, file: BinaryIO) -> object:
    """Return an upload; as bytes if a canonical rule is applied to it."""
    return file if new.canonical is None else _whole(file)


def _is_chain_of_turns(value: object) -> bool:
    return isinstance(value, _Handle) and not _is_upload(value)


def _is_size(value: object) -> bool:
    return value is None or type(value) is int


_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda _: True, "")
# Arguments that the methods themselves do not check.
_WANTED: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    **{
        (kind, "other"): (_is_chain_of_turns, "give a context, or a view of one")
        for kind in ("view", "context")
    },
    **{
        (kind, "expect_size"): (_is_size, "give a number of bytes")
        for kind in ("contexts", "context", "blobs")
    },
    ("upload", "data"): (lambda value: type(value) is bytes, "give bytes"),
}


def _answer(value: object) -> Called:
    parts: list[Bytes] = []
    return _fitting(json.dumps(pack(value, parts, _named)), parts)


def _fitting(text: str, parts: list[Bytes]) -> Called:
    """Return a result that fits into a frame; raise TooLargeError for a longer one."""
    size = len(text) + 8 + sum(4 + len(part) for part in parts)
    if size > MAX_FRAME:
        raise TooLargeError(size, MAX_FRAME, "answer", "ask for less at once")
    return Called(text, tuple(parts))


# What is done instead of calling the method, so that no read is unbounded.


def _plainly(target: Any, method: str, inputs: BoundArguments) -> object:
    """Call the method."""
    positional, named = _split(inputs)
    return getattr(target, method)(*positional, **named)


def _split(inputs: BoundArguments) -> tuple[list[Any], dict[str, Any]]:
    kinds = inputs.signature.parameters
    keyword = {name for name in inputs.arguments if kinds[name].kind is kinds[name].KEYWORD_ONLY}
    positional = [value for name, value in inputs.arguments.items() if name not in keyword]
    return positional, {name: inputs.arguments[name] for name in keyword}


def _page(view: View, method: str, inputs: BoundArguments) -> object:
    limit = inputs.arguments["limit"]
    if not inputs.arguments["payload"] and not (type(limit) is int and limit > PAGE_TURNS):
        return _plainly(view, method, inputs)
    return Sized(_measure(view, method, **inputs.arguments), lambda: _plainly(view, method, inputs))


def _measure(
    view: View, method: str, *, limit: int, payload: bool, as_of: int | None, **start: int
) -> int:
    """Return the bytes that a page takes, from its turns without their payloads.

    Raises TooLargeError when they are too many or too long.
    """
    at, size, count = [*start.values()], 0, 0
    while limit:
        # What is no number is refused by the method.
        step = min(limit, PAGE_TURNS) if type(limit) is int else limit
        page: Page = getattr(view, method)(*at, step, payload=False, as_of=as_of)
        size += sum(
            _TURN_CHARACTERS + len(turn.type_id) + (turn.size if payload else 0) for turn in page
        )
        count += len(page)
        if count > MOST_ITEMS:
            raise _too_many("turns", "ask for fewer at once")
        if size > ANSWER_BYTES:
            fix = "ask for fewer turns at once, or without payloads, and stream those as blobs"
            raise TooLargeError(size, ANSWER_BYTES, "page", fix)
        if page.next_cursor is None:
            break
        at, limit = [page.next_cursor], limit - len(page)
        method = "range" if method == "range" else "before"
    return size


def _too_many(what: str, fix: str) -> TooLargeError:
    error = TooLargeError(0, 0)
    error.what, error.fix = f"there are more than {MOST_ITEMS} {what}", fix
    return error


def _turn(contexts: Contexts, method: str, inputs: BoundArguments) -> object:
    wanted = inputs.arguments
    if not wanted["payload"]:
        return _plainly(contexts, method, inputs)
    turn = contexts.turn(wanted["turn_id"], payload=False, as_of=wanted["as_of"])
    return Sized(_fitting_size(turn.size), lambda: _plainly(contexts, method, inputs))


def _fitting_size(size: int) -> int:
    if size > ANSWER_BYTES:
        raise TooLargeError(
            size, ANSWER_BYTES, "payload", "ask without it, and stream it as a blob"
        )
    return size


def _blob(blobs: Blobs, method: str, inputs: BoundArguments) -> object:
    try:
        size = blobs.stat(inputs.arguments["name"]).size
    except UnknownBlobError:
        return None
    if size > ANSWER_BYTES:
        raise TooLargeError(size, ANSWER_BYTES, "blob", "use 'stream'")
    return Sized(size, lambda: _plainly(blobs, method, inputs))


def _chain(chain: Chain, _: str, __: BoundArguments) -> object:
    """Return the newest patch that a chain shows, and its first turns; keep nothing for the rest.

    A payload that fits into no frame is refused when it comes first, before it is read.
    """
    turns, start = chain.turns, chain.start
    as_of = turns.last_patch() if chain.as_of is None else chain.as_of
    if start >= chain.end:
        return [as_of, []]
    if chain.end > turns.depth(chain.head) + 1:
        raise _malformed(f"the chain of turn {chain.head} has no turn at depth {chain.end - 1}")
    end = min(start + PAGE_TURNS, chain.end)
    rows = turns.rows(turns.ancestor(chain.head, end - 1), end - start, as_of)
    if len(rows) < end - start:
        missing = Chain(turns, chain.head, start, end, payload=False, as_of=as_of)
        return [as_of, list(missing)]  # raises the error for it
    rows = rows[: _count_fitting(rows, payload=chain.payload)]
    size = sum(_row_size(row, payload=chain.payload) for row in rows)
    return Sized(size, lambda: [as_of, list(turns.payloads(rows, payload=chain.payload))])


def _row_size(row: Any, *, payload: bool) -> int:
    return _TURN_CHARACTERS + len(row.type_id) + (row.size if payload else 0)


def _count_fitting(rows: list[Any], *, payload: bool) -> int:
    """Return how many rows make a page: up to the payload that completes 4 MiB, as `Chain` reads.

    So damage shows at the same turn as in a local chain, unless the rows before it fill a frame.
    """
    characters = size = 0
    for count, row in enumerate(rows):
        length = row.size if payload else 0
        characters += _TURN_CHARACTERS + len(json.dumps(row.type_id))
        if not count:
            _fitting_size(length)
        elif characters > PAGE_BYTES or size + characters + length > ANSWER_BYTES:
            return count
        size += length
        if size >= PAGE_BYTES:
            return count + 1
    return len(rows)


def _open_turns(contexts: Contexts, _: str, __: BoundArguments) -> Iterator[OpenInfo]:
    """Yield open turns, holding only their numbers; one that was sealed since is left out."""
    numbers = [opened.open_id for opened in contexts.open_turns()]
    for number in numbers:
        with suppress(ConflictError):
            yield OpenTurn(contexts.turns, number).info()


def _few(target: Any, method: str, inputs: BoundArguments) -> object:
    limit = inputs.arguments["limit"]
    if method == "holders":
        check_positive(limit, "limit")  # the method itself does not look at it
    if type(limit) is int and MOST_ITEMS < limit < 1 << 63:
        inputs.arguments["limit"] = MOST_ITEMS + 1
    found: Any = _plainly(target, method, inputs)
    if len(found) > MOST_ITEMS:
        raise _too_many(method, "give a smaller limit")
    return found


def _in_graph(turns: Turns, method: str, inputs: BoundArguments) -> object:
    for name, value in inputs.arguments.items():
        check_natural(value, name)  # the method itself does not look at them
    return _plainly(turns, method, inputs)


def _delta(opened: OpenTurn, method: str, inputs: BoundArguments) -> object:
    """Append an upload piece by piece: a local delta is bytes or text, not a file."""
    data = inputs.arguments["data"]
    if not hasattr(data, "read"):
        return _plainly(opened, method, inputs)
    size = 0
    with opened.turns.database.write():
        while piece := data.read(PART_BYTES):
            size = opened.append_delta(piece)
    return size


def _whole(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    if size > MAX_FRAME:
        raise TooLargeError(size, MAX_FRAME, "value", "store it as bytes, without a rule")
    file.seek(0)
    return file.read()


_STREAM = ("blobs", "stream")
_INSTEAD: dict[tuple[str, str], Instead] = {
    **{
        (kind, method): _page
        for kind in ("view", "context")
        for method in ("last", "before", "range")
    },
    **{("turns", method): _in_graph for method in CALLS["turns"]},
    ("contexts", "turn"): _turn,
    ("contexts", "children"): _few,
    ("contexts", "open_turns"): _open_turns,
    ("blobs", "get"): _blob,
    ("blobs", "holders"): _few,
    ("chain", "page"): _chain,
    ("open", "append_delta"): _delta,
}
