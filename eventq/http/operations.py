"""Operations: what HTTP offers of a thread, as data.

One table has the routes, the checks of what is given, and the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from eventq.record import Record
from eventq.serving.parameters import Given, Part
from eventq.serving.served import ServedThread
from eventq.system.jsontext import writer
from eventq.thread import Thread

AT = "/api/threads/{thread}"
_encode = writer()
T = TypeVar("T")


class Content(Record):
    """Bytes that are sent as they are read: an artifact, an output, a blob.

    `read` gets a position and a number of bytes, and returns what stands there, and whether more
    may be written after all that is. `tag` names the bytes, None while they grow; with `grows` the
    reply goes on for as long as more may be written.
    """

    read: Callable[[Thread, int, int], tuple[bytes, bool]]
    size: int
    type: str
    tag: str | None
    grows: bool = False


class Reply(Record):
    """What an operation came to: the bytes of the body, and whether a long poll goes on waiting.

    In place of a body there may be `content`. `undo` is done if the caller has gone by then.
    """

    body: bytes
    is_empty: bool = False
    type: str = "application/json"
    status: int = 200
    content: Content | None = None
    more: tuple[tuple[bytes, bytes], ...] = ()  # headers
    undo: Callable[[Thread], object] | None = None


def of_json(value: object, *, is_empty: bool = False, status: int = 200) -> Reply:
    """Return a value as a reply."""
    return Reply(_encode(value).encode("utf-8", "replace"), is_empty, status=status)


def gap_header(gap: tuple[int, int] | None) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that names the ids that a prune has deleted after where a reader was."""
    return () if gap is None else ((b"eventq-gap", b"%d-%d" % gap),)


class Followed(Protocol):
    """What a stream sends, page by page: ids, lines, the position that was reached, and a gap."""

    async def start(self, after: int | None) -> int:
        """Return where to begin; None is the default. Raises EventqError."""

    async def after(self, after: int) -> tuple[list[int], list[bytes], int, tuple[int, int] | None]:
        """Return what comes after a position; the gap is of ids that were pruned.

        Raises PositionError.
        """

    def watch(self, count: int) -> None:
        """Let the feed of the thread look for such changes, or no more with -1."""


def once(
    thread: Thread,
    key: str | None,
    newest: Callable[[], int],
    store: Callable[[], T],
    number: Callable[[T], int],
) -> tuple[T, int]:
    """Store something, once with a key; return it and its status: 200 if it was there already.

    With a key nobody else stores meanwhile, so that what is above the newest number is new.
    """
    if key is None:
        return store(), 201
    with thread.write():
        before = newest()
        found = store()
    return found, 201 if number(found) > before else 200


class Operation(Record):
    """One method of one path; `how` is a plan's, and `run` gives the reply.

    With `alone`, a write shares no transaction with others. With `watched`, what its reply says is
    undone if the caller does not wait for it. `body` has the members of a JSON
    object, unless it is None; `many` says that it may also be a list of such objects, or lines.
    With `by_caller` what is given has `who`, the Principal, as the reply depends on them.
    With `raw` the body is any bytes. `made` says that the reply may be a 201. `again` is what a
    long poll looks with after the first time. `follows` makes the pages of a stream, which has no
    reply.
    """

    name: str
    method: str
    path: str
    how: str
    run: Callable[[Thread, Given], Reply]
    reply: str
    query: tuple[Part, ...] = ()
    body: tuple[Part, ...] | None = None
    alone: bool = False
    watched: bool = False
    many: bool = False
    by_caller: bool = False
    raw: bool = False
    made: bool = False
    again: Callable[[Given], Given] | None = None
    follows: Callable[[ServedThread, Given], Followed] | None = None
    right: str = "all"  # that a token needs for it, where the method changes something

    @property
    def about(self) -> str:
        """What it does: the docstring of its function."""
        return self.run.__doc__ or ""
