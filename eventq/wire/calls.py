"""Calls: what contexts and blobs can do, over one message; the table of it, its values, its errors, a server's side.

A call is told as JSON, `[kind, which, method, [arguments], {named arguments}]`: `kind` and `method`
stand in CALLS, and `which` is the id of a context, of an open turn and so on. What is told, there
and in the answer, is made of

    null, true, 1, 1.5, "text", [...]    themselves; text may hold lone surrogates
    {"bytes": 0}                         the first part of the message; each is named once, in order
    {"tuple": [...]}
    {"Turn": [...]}                      a record of RECORDS, its fields in order
    {"context": 1}  {"view": 5}  {"open": 3}  {"chain": [head, start, end, payload, as_of]}
    {"diff": [ancestor, chain, chain]}   as an answer only
    {"upload": 1}                        bytes that were sent ahead, in an argument only: a binary file to the method
    {"pages": [7, [...]]}                an iterator, as an answer only: how it begins, and what `next` goes on with,
                                         null when that was all

and of nothing else: no other object comes out of a message, whoever sent it. A chain is iterated without one: `page`
answers [as_of, [turns]] with those that it begins with, and is asked again of the rest of the chain as of that seq.
"""

from __future__ import annotations

import json
from _thread import allocate_lock
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature

from eventq import errors, system
from eventq.blobs import LARGEST, PART_BYTES, Blobs
from eventq.dag.contexts import Context, Contexts, OpenTurn
from eventq.dag.turns import PAGE_TURNS, Chain, Diff, Turns, View
from eventq.errors import (
    DiskError,
    EventqError,
    LogicError,
    TooLargeError,
    UnknownBlobError,
    UsageError,
)
from eventq.event import check_natural, check_positive
from eventq.records import Blob, ContextInfo, Move, NewTurn, OpenInfo, Page, Turn
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
    Handle = Callable[[object], Named | None]
    Made = Callable[[str, Any], object]
    Instead = Callable[[Any, str, BoundArguments], object]

    class Thread(Protocol):
        """What calls need of a thread."""

        @property
        def contexts(self) -> Contexts:
            """What was said."""

        @property
        def blobs(self) -> Blobs:
            """The bytes that are kept by their hash."""


# A scan is a reading that may take as long as the store is large. What is quick takes a few steps
# and few bytes: it has a reader of its own, and never stands behind long replies.
QUICK, READ, WRITE, SCAN = "quick", "read", "write", "scan"
_VIEW = {
    **dict.fromkeys(("head_id", "at", "ancestor", "has", "common_ancestor"), QUICK),
    **dict.fromkeys(("last", "before", "range", "replay", "diff"), READ),
}
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
    "chain": {"page": READ},  # no method of it: the turns it begins with, see `_chain`
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
}  # what may be called, on what, and whether it changes the thread; `next` is as what it goes on with
RECORDS: dict[str, type] = {
    one.__name__: one for one in (Blob, ContextInfo, Move, NewTurn, OpenInfo, Page, Turn)
}
MOST_CURSORS = (
    16  # of a connection; each may hold a page of rows, or of what is kept, while nobody asks
)
MOST_UPLOADS = 8
MOST_ITEMS = 1 << 16  # of a list that is given whole
PAGE_ITEMS = 512  # of an iterator that are given at once
PAGE_BYTES = 4 << 20
LARGE = 1 << 20  # bytes of a call from which on its writing shares no transaction with others
# Characters of what a call tells: they are read in the loop that serves everybody, and JSON takes
# ten times that as objects. Two names of 65,536 characters have room in it, each character as
# \\uXXXX.
MAX_TOLD = 1 << 20
ROOM = MAX_FRAME - (
    1 << 20
)  # bytes of payloads in one answer; the rest is for what is told of them
DEEPEST = 16  # lists within one another
_TURN_TOLD = 512  # characters that a turn is told in, but for its type, at most
_PLAIN = frozenset((type(None), bool, int, float, str))
_SENDABLE = "give numbers, text, bytes, or lists of them"


# Values.


def pack(value: object, parts: list[Bytes], handle: Handle, depth: int = 0) -> Any:
    """Give a value as JSON can tell it; what is bytes goes to `parts`. Raises InputError for what cannot be told.

    `handle` says kind and id of an object that stands for something at the other end, or None for any other.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > DEEPEST:
        raise errors.InputError("the value is nested too deeply to be sent", _SENDABLE)
    if kind is bytes:
        parts.append(value)  # type: ignore[arg-type]
        return {"bytes": len(parts) - 1}
    if isinstance(value, (list, tuple)):
        told = [
            one if type(one) in _PLAIN else pack(one, parts, handle, depth + 1) for one in value
        ]
        return told if isinstance(value, list) else {"tuple": told}
    if RECORDS.get(kind.__name__) is kind:
        fields = [getattr(value, name) for name in kind.__slots__]  # type: ignore[attr-defined]
        return {kind.__name__: pack(fields, parts, handle, depth + 1)}
    named = handle(value)
    if named is None:
        raise errors.InputError(f"a {kind.__name__} cannot be sent over a connection", _SENDABLE)
    return {named[0]: pack(named[1], parts, handle, depth + 1)}


class Unpacked:
    """The values of a message, from what it tells; `made` gives the object of a kind and an id, or raises Malformed."""

    def __init__(
        self, told: str, parts: tuple[Bytes, ...], made: Made, records: Collection[str] = RECORDS
    ) -> None:
        """Read the JSON. Raises Malformed for what is none."""
        self._parts = parts
        self._made = made
        self._records = records
        self._used = 0
        try:
            self.told = json.loads(told)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"what it tells is not JSON ({type(error).__name__})") from None

    def value(self, told: Any, depth: int = 0) -> Any:
        """Give the value of a piece of what was told; each piece is to be asked for once, in order."""
        if type(told) in _PLAIN:
            return told
        if depth > DEEPEST:
            raise _malformed("it is nested too deeply")
        if type(told) is list:
            return [one if type(one) in _PLAIN else self.value(one, depth + 1) for one in told]
        if len(told) != 1:
            raise _malformed("it holds an object of several keys")
        ((tag, inside),) = told.items()
        if tag == "bytes":
            return self._bytes(inside)
        inside = self.value(inside, depth + 1)
        if tag == "tuple" or tag in self._records:
            return self._record(tag, inside)
        return self._made(tag, inside)

    def _bytes(self, number: object) -> bytes:
        """Give the next part; named more than once, a few bytes of JSON could take any memory."""
        if type(number) is not int or number != self._used or number >= len(self._parts):
            raise _malformed(
                f"it names part {number!r} where {self._used} of {len(self._parts)} is next"
            )
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
        """Refuse parts that nothing named."""
        if self._used != len(self._parts):
            raise _malformed(f"it names {self._used} of its {len(self._parts)} parts")


def _malformed(what: str) -> Malformed:
    return Malformed(f"CALL: {what}", "tell it as eventq.wire.calls says")


# Errors.

ERRORS: dict[str, type[EventqError]] = {
    one.__name__: one
    for one in (*vars(errors).values(), Malformed, Unsupported, Refused, TooLong)
    if isinstance(one, type) and issubclass(one, EventqError)
}  # those that a message may name
# What they have besides `what` and `fix`.
ATTRIBUTES = {
    "actual": int,
    "at": int,
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
    """Give an error as the reply that tells it: as a sentence, or as JSON that `raised` makes the same error of."""
    code = error.wire_code if error.wire_code in _ON_THE_WIRE else 500
    if not as_json:
        return Failure(code, str(error))
    told = {"error": _name_of(error), "what": error.what, "fix": error.fix}
    told |= {
        name: getattr(error, name)
        for name, kind in ATTRIBUTES.items()
        if type(getattr(error, name, None)) is kind
    }
    text = json.dumps(told)
    if len(text) > MAX_TEXT:
        text = json.dumps(
            {name: one[:_SHORT] if isinstance(one, str) else one for name, one in told.items()}
        )
    return Failure(code, text)


def _name_of(error: EventqError) -> str:
    """Give the name of the nearest class that the other end knows."""
    return next(kind.__name__ for kind in type(error).__mro__ if ERRORS.get(kind.__name__) is kind)


def raised(failure: Failure) -> EventqError:
    """Give the error that a reply tells: of the same class, with the same words and attributes.

    A plain sentence becomes an error of the nearest class, by its code.
    """
    told = _told(failure.text)
    if told is None:
        what, _, fix = failure.text.partition(" - ")
        return _error(
            _NEAREST.get(failure.code, LogicError), what, fix or "ask whoever runs the server"
        )
    kind = ERRORS.get(told["error"]) or _NEAREST.get(failure.code, LogicError)
    error = _error(kind, told["what"], told["fix"])
    if isinstance(error, errors.FilterError):
        error.text, error.at = "", 0  # its `str` asks for them
    for name, wanted in ATTRIBUTES.items():
        if type(told.get(name)) is wanted:
            setattr(error, name, told[name])
    return error


def _told(text: str) -> dict[str, Any] | None:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    texts = isinstance(told, dict) and [type(told.get(name)) for name in ("error", "what", "fix")]
    return told if texts == [str, str, str] else None


def _error(kind: type[EventqError], what: str, fix: str) -> EventqError:
    """Make an error without its own constructor: what that would ask for is in the sentence already."""
    error = kind.__new__(kind)
    EventqError.__init__(error, what, fix)
    return error


# A server's side.


class _Handle:
    """What an argument or a call stands for, before there is a thread to find it in."""

    __slots__ = ("kind", "which")

    def __init__(self, kind: str, which: Any) -> None:
        self.kind = kind
        self.which = which
        if not stands_for(kind, which):
            raise _malformed(f"no {kind} is {which!r:.100}")


def stands_for(kind: str, which: object) -> bool:
    """Say whether there could be one of a kind with such an id."""
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
}  # fmt: skip
_NAMED: dict[type, Callable[[Any], Named]] = {
    Context: lambda one: ("context", one.id),
    View: lambda one: ("view", one.head_id()),
    OpenTurn: lambda one: ("open", one.id),
    Chain: lambda one: ("chain", [one._head, one._start, one._end, bool(one._payload), one._as_of]),
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
    """Something that is long once it is read: how many bytes, and what reads it."""

    size: int
    read: Callable[[], Any]


def read_once_it_fits(found: Any, need: Need) -> Any:
    """Read what is Sized when there is memory for it; give anything else as it is. Raises what `need` raises."""
    if not isinstance(found, Sized):
        return found
    need(found.size)
    return found.read()


def need_nothing(_: int) -> None:
    """Have memory for everything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request comes to: QUICK, READ, WRITE or SCAN, what gives the reply, and whether it brings LARGE bytes.

    What writes is all or nothing by itself, and may be done inside a transaction with others unless it is `large`.
    """

    how: str
    run: Callable[[Any], Reply]  # of a thread
    large: bool = False


class _Cursor:
    """An iterator that is given page by page; `error` is what it ended with, after what it gave before."""

    def __init__(self, items: Iterator[Any], how: str, size: int) -> None:
        self.items = items
        self.how = how  # it was begun
        self.size = size  # bytes that a page may have, 0 for few
        self.error: EventqError | None = None
        self.ended = False
        self._held: Any = None  # the item that was too large for the page before

    def page(self) -> tuple[list[str], list[Bytes]]:
        """Give the next items, each as JSON, and their parts."""
        told: list[str] = []
        parts: list[Bytes] = []
        size = 0
        while len(told) < PAGE_ITEMS and (item := self._next()) is not None:
            used = len(parts)
            text = json.dumps(pack(item, parts, _named))
            size += len(text) + sum(map(len, parts[used:]))
            if told and size > PAGE_BYTES:
                self._held = item
                del parts[used:]
                break
            told.append(text)
        return told, parts

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
        """Let go of what the iterator holds."""
        if hasattr(self.items, "close"):
            self.items.close()


class Calls:
    """A server's side of the calls of one connection: its cursors and its uploads; made for one call at a time."""

    def __init__(self, spool_folder: str) -> None:
        """Keep uploads in nameless files in a folder."""
        self._folder = spool_folder
        self._lock = allocate_lock()
        self._closed = False
        self._number = 0
        self._cursors: dict[int, _Cursor] = {}
        self._uploads: dict[int, BinaryIO] = {}

    def plan(self, call: Call, need: Need = need_nothing) -> Plan:
        """Say what a call comes to, when those before it have been answered.

        Nothing is read or stored yet; `need` is asked for memory before a long answer is read, and may raise. Raises
        Malformed, Unsupported, TooLargeError, UsageError.
        """
        if len(call.told) > MAX_TOLD:
            raise TooLargeError(
                len(call.told), MAX_TOLD, "call", "give fewer refs, or shorter names"
            )
        read = Unpacked(call.told, call.parts, _argument, records=(NewTurn.__name__,))
        kind, which, method, args, named = _form(read.told)
        how = CALLS.get(kind, {}).get(method)
        if how is None:
            raise Unsupported(
                f"CALL: nobody answers {kind:.60}.{method:.60}", "use what the table of calls says"
            )
        target = _Handle(kind, read.value(which))
        given = _bound(
            kind, method, read.value(args), {name: read.value(one) for name, one in named.items()}
        )
        read.end()
        if target.kind == "pages" and (cursor := self._cursors.get(target.which)) is not None:
            how = cursor.how if method == "next" else how
        large = sum(map(len, call.parts)) >= LARGE or any(map(_is_upload, given.arguments.values()))
        return Plan(how, lambda thread: self._run(thread, target, method, given, how, need), large)

    def _run(
        self,
        thread: Thread,
        target: _Handle,
        method: str,
        given: BoundArguments,
        how: str,
        need: Need,
    ) -> Called:
        used: list[BinaryIO] = []
        try:
            with self._lock:
                if self._closed:
                    raise errors.ClosedError("the connection is closed", "connect again")
                if target.kind == "pages":
                    return self._go_on(target.which, method, need)
                if target.kind == "upload":
                    return _answer(self._upload(target.which, method, **given.arguments))
                self._resolve(thread, given.arguments, used)
                one = _MADE[target.kind](thread, target.which)
                name = target.kind, method
                found = read_once_it_fits(_INSTEAD.get(name, _plainly)(one, method, given), need)
                if not hasattr(found, "__next__"):
                    return _answer(found)
                return self._begin(_Cursor(found, how, PAGE_BYTES if name == _STREAM else 0), need)
        finally:
            for file in used:
                file.close()
            if self._closed:  # meanwhile
                self.close()

    def _resolve(self, thread: Thread, arguments: dict[str, Any], used: list[BinaryIO]) -> None:
        """Put what they stand for in the place of handles."""
        for name, value in arguments.items():
            if type(value) is NewTurn:
                if _is_upload(value):
                    used.append(self._take(value.payload.which))
                    arguments[name] = replace(value, payload=_payload_of(value, used[-1]))
            elif _is_upload(value):
                used.append(self._take(value.which))
                arguments[name] = used[-1]
            elif isinstance(value, _Handle):
                arguments[name] = _MADE[value.kind](thread, value.which)

    def close(self) -> None:
        """Let go of cursors and uploads, at once or when the call under way has ended; no call may follow."""
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

    # --- cursors --------------------------------------------------------------------------------------------------

    def _begin(self, cursor: _Cursor, need: Need) -> Called:
        self._number += 1
        return self._page(self._number, cursor, need)

    def _page(self, number: int, cursor: _Cursor, need: Need) -> Called:
        need(cursor.size)
        told, parts = cursor.page()
        if cursor.ended:
            self._cursors.pop(number, None)
        elif number not in self._cursors:
            self._keep(number, cursor)
        shown = "null" if cursor.ended else number
        return _fitting(f'{{"pages":[{shown},[{",".join(told)}]]}}', parts)

    def _keep(self, number: int, cursor: _Cursor) -> None:
        if len(self._cursors) >= MOST_CURSORS:
            cursor.close()
            raise LogicError(
                f"{MOST_CURSORS} iterations are under way on this connection",
                "end or close one of them first",
            )
        self._cursors[number] = cursor

    def _go_on(self, number: int, method: str, need: Need) -> Called:
        cursor = self._cursors.get(number)
        if method == "close":
            if cursor is not None:
                self._cursors.pop(number).close()
            return _answer(None)
        if cursor is None:
            raise LogicError(
                f"no iteration {number} is under way on this connection", "begin it again"
            )
        if cursor.error is not None:
            del self._cursors[number]
            raise cursor.error
        return self._page(number, cursor, need)

    # --- uploads --------------------------------------------------------------------------------------------------

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
            system.write_all(file.fileno(), data)
        except (OSError, TooLargeError) as error:
            self._take(number).close()
            raise _refused(error) if isinstance(error, OSError) else error from error
        return number

    def _new_upload(self) -> int:
        from tempfile import TemporaryFile

        if len(self._uploads) >= MOST_UPLOADS:
            raise LogicError(
                f"{MOST_UPLOADS} uploads are under way on this connection",
                "use or drop one of them first",
            )
        self._number += 1
        try:
            self._uploads[self._number] = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _refused(error) from error
        return self._number

    def _take(self, number: int | None) -> BinaryIO:
        """Give an upload from its beginning, to be used once."""
        file = self._uploads.pop(number, None) if number is not None else None
        if file is None:
            raise _no_upload(number)
        file.seek(0)
        return file


def _no_upload(number: int | None) -> LogicError:
    return LogicError(f"there is no upload {number} on this connection", "send its bytes again")


def _refused(error: OSError) -> DiskError:
    return DiskError(
        f"the server could not keep an upload: {error.strerror or error}",
        "check its disk and its folder",
    )


def _form(told: Any) -> tuple[str, Any, str, list[Any], dict[str, Any]]:
    """Give the five members of a call."""
    if type(told) is not list or [type(told[n]) for n in (0, 2, 3, 4) if len(told) == 5] != [
        str,
        str,
        list,
        dict,
    ]:
        raise _malformed("it is not [kind, which, method, [...], {...}]")
    return told[0], told[1], told[2], told[3], told[4]


LOCAL: dict[str, type] = {
    "contexts": Contexts,
    "turns": Turns,
    "context": Context,
    "view": View,
    "chain": Chain,
    "open": OpenTurn,
    "blobs": Blobs,
}  # where the methods of a kind are


def _append(self: Calls, data: bytes) -> None:
    """Stand for the arguments of a piece of an upload."""


def _nothing(self: Calls) -> None:
    """Stand for no arguments; of a chain, too."""


@cache
def signature_of(kind: str, method: str) -> Signature:
    """Give the signature of a method that is called, `self` included."""
    if kind in LOCAL and kind != "chain":
        return signature(getattr(LOCAL[kind], method))
    return signature(_append if method == "append" else _nothing)


def _bound(kind: str, method: str, args: list[Any], named: dict[str, Any]) -> BoundArguments:
    """Give the arguments by name. Raises UsageError for those that are missing, too many or of no use."""
    try:
        given = signature_of(kind, method).bind(None, *args, **named)
    except TypeError as error:
        raise UsageError(f"{kind}.{method}: {error}", "give what its documentation says") from None
    given.apply_defaults()
    del given.arguments["self"]
    for name, value in given.arguments.items():
        fits, wanted = _WANTED.get((kind, name), _ANYTHING)
        if not fits(value):
            raise UsageError(f"{kind}.{method}: {name} is {type(value).__name__}", wanted)
    return given


def _is_upload(value: object) -> bool:
    """Tell whether an argument is an upload, or a turn whose payload is one."""
    found = value.payload if type(value) is NewTurn else value
    return isinstance(found, _Handle) and found.kind == "upload"


def _payload_of(new: NewTurn, file: BinaryIO) -> object:
    """Return an upload; in memory if a value is made of it."""
    return file if new.canonical is None else _whole(file)


def _is_chain_of_turns(value: object) -> bool:
    return isinstance(value, _Handle) and not _is_upload(value)


def _is_size(value: object) -> bool:
    return value is None or type(value) is int


_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda _: True, "")
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
}  # of arguments that a method of ours takes as they are


def _answer(value: object) -> Called:
    parts: list[Bytes] = []
    return _fitting(json.dumps(pack(value, parts, _named)), parts)


def _fitting(told: str, parts: list[Bytes]) -> Called:
    """Give an answer that fits into a frame; raise TooLargeError otherwise."""
    size = len(told) + 8 + sum(4 + len(part) for part in parts)
    if size > MAX_FRAME:
        raise TooLargeError(size, MAX_FRAME, "answer", "ask for less at once")
    return Called(told, tuple(parts))


# What is done instead of the method itself, so that nothing without bounds is read.


def _plainly(target: Any, method: str, given: BoundArguments) -> object:
    """Call the method."""
    positional, named = _split(given)
    return getattr(target, method)(*positional, **named)


def _split(given: BoundArguments) -> tuple[list[Any], dict[str, Any]]:
    kinds = given.signature.parameters
    keyword = {name for name in given.arguments if kinds[name].kind is kinds[name].KEYWORD_ONLY}
    positional = [value for name, value in given.arguments.items() if name not in keyword]
    return positional, {name: given.arguments[name] for name in keyword}


def _page(view: View, method: str, given: BoundArguments) -> object:
    limit = given.arguments["limit"]
    if not given.arguments["payload"] and not (type(limit) is int and limit > PAGE_TURNS):
        return _plainly(view, method, given)
    return Sized(_measure(view, method, **given.arguments), lambda: _plainly(view, method, given))


def _measure(
    view: View, method: str, *, limit: int, payload: bool, as_of: int | None, **start: int
) -> int:
    """Give the bytes that a page takes, from its turns without their payloads.

    Raises TooLargeError when they are too many or too long.
    """
    at, size, count = [*start.values()], 0, 0
    while limit:
        step = (
            min(limit, PAGE_TURNS) if type(limit) is int else limit
        )  # what is no number is refused by the method
        page: Page = getattr(view, method)(*at, step, payload=False, as_of=as_of)
        size += sum(_TURN_TOLD + len(turn.type_id) + (turn.size if payload else 0) for turn in page)
        count += len(page)
        if count > MOST_ITEMS:
            raise _too_many("turns", "ask for fewer at once")
        if size > ROOM:
            raise TooLargeError(
                size,
                ROOM,
                "page",
                "ask for fewer turns at once, or without payloads, and stream those as blobs",
            )
        if page.next_cursor is None:
            break
        at, limit = [page.next_cursor], limit - len(page)
        method = "range" if method == "range" else "before"
    return size


def _too_many(what: str, fix: str) -> TooLargeError:
    error = TooLargeError(0, 0)
    error.what, error.fix = f"there are more than {MOST_ITEMS} {what}", fix
    return error


def _turn(contexts: Contexts, method: str, given: BoundArguments) -> object:
    told = given.arguments
    if not told["payload"]:
        return _plainly(contexts, method, given)
    size = _fitting_size(contexts.turn(told["turn_id"], payload=False, as_of=told["as_of"]).size)
    return Sized(size, lambda: _plainly(contexts, method, given))


def _fitting_size(size: int) -> int:
    if size > ROOM:
        raise TooLargeError(size, ROOM, "payload", "ask without it, and stream it as a blob")
    return size


def _blob(blobs: Blobs, method: str, given: BoundArguments) -> object:
    try:
        size = blobs.stat(given.arguments["name"]).size
    except UnknownBlobError:
        return None
    if size > ROOM:
        raise TooLargeError(size, ROOM, "blob", "use 'stream'")
    return Sized(size, lambda: _plainly(blobs, method, given))


def _chain(chain: Chain, _: str, __: BoundArguments) -> object:
    """Give the overlay that is the newest for a chain, and its first turns; nothing is kept for those after them.

    A payload that fits into no frame is refused when it comes first, before it is read.
    """
    turns, start = chain.turns, chain._start
    as_of = turns.last_patch() if chain._as_of is None else chain._as_of
    if start >= chain._end:
        return [as_of, []]
    if chain._end > turns.depth(chain._head) + 1:
        raise _malformed(f"the chain of turn {chain._head} has no turn at depth {chain._end - 1}")
    end = min(start + PAGE_TURNS, chain._end)
    rows = turns.rows(turns.ancestor(chain._head, end - 1), end - start, as_of)
    if len(rows) < end - start:
        return [
            as_of,
            list(Chain(turns, chain._head, start, end, payload=False, as_of=as_of)),
        ]  # which says so
    rows = rows[: _count_fitting(rows, payload=chain._payload)]
    size = sum(_row_size(row, payload=chain._payload) for row in rows)
    return Sized(size, lambda: [as_of, list(turns.payloads(rows, payload=chain._payload))])


def _row_size(row: Any, *, payload: bool) -> int:
    return _TURN_TOLD + len(row.type_id) + (row.size if payload else 0)


def _count_fitting(rows: list[Any], *, payload: bool) -> int:
    """Give how many rows of turns make a page: up to the one whose payload completes 4 MiB, as they are read at home.

    So damage shows at the same turn as there, but for one next to which those before it have no room in a frame.
    """
    told = size = 0
    for count, row in enumerate(rows):
        length = row.size if payload else 0
        told += _TURN_TOLD + len(json.dumps(row.type_id))
        if not count:
            _fitting_size(length)
        elif told > PAGE_BYTES or size + told + length > ROOM:
            return count
        size += length
        if size >= PAGE_BYTES:
            return count + 1
    return len(rows)


def _open_turns(contexts: Contexts, _: str, __: BoundArguments) -> Iterator[OpenInfo]:
    """Give open turns, of which only the numbers are held meanwhile; one that was sealed since is left out."""
    get = contexts.turns.database.open_turns.get
    numbers = [opened.open_id for opened in contexts.open_turns()]
    return (info for number in numbers if (info := get(number)) is not None)


def _few(target: Any, method: str, given: BoundArguments) -> object:
    limit = given.arguments["limit"]
    if method == "holders":
        check_positive(limit, "limit")  # the method itself does not look at it
    if type(limit) is int and MOST_ITEMS < limit < 1 << 63:
        given.arguments["limit"] = MOST_ITEMS + 1
    found: Any = _plainly(target, method, given)
    if len(found) > MOST_ITEMS:
        raise _too_many(method, "give a smaller limit")
    return found


def _in_graph(turns: Turns, method: str, given: BoundArguments) -> object:
    for name, value in given.arguments.items():
        check_natural(value, name)  # the method itself does not look at them
    return _plainly(turns, method, given)


def _delta(opened: OpenTurn, method: str, given: BoundArguments) -> object:
    """Append an upload piece by piece: a delta is bytes or text, not a file."""
    data = given.arguments["data"]
    if not hasattr(data, "read"):
        return _plainly(opened, method, given)
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
