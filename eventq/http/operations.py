"""Operations: what HTTP offers of a thread, as data.

One table has the routes, the checks of what is given, and the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable

from eventq.record import Record
from eventq.serving.parameters import Given, Part
from eventq.system.jsontext import writer
from eventq.thread import Thread

AT = "/api/threads/{thread}"
_encode = writer()


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

    In place of a body there may be `content`.
    """

    body: bytes
    is_empty: bool = False
    type: str = "application/json"
    status: int = 200
    content: Content | None = None
    more: tuple[tuple[bytes, bytes], ...] = ()  # headers


def of_json(value: object, *, is_empty: bool = False, status: int = 200) -> Reply:
    """Return a value as a reply."""
    return Reply(_encode(value).encode("utf-8", "replace"), is_empty, status=status)


class Operation(Record):
    """One method of one path; `how` is a plan's, and `run` gives the reply.

    With `alone`, a write shares no transaction with others. `body` has the members of a JSON
    object, unless it is None; `many` says that it may also be a list of such objects, or lines.
    With `raw` the body is any bytes. `made` says that the reply may be a 201. `again` is what a
    long poll looks with after the first time.
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
    many: bool = False
    raw: bool = False
    made: bool = False
    again: Callable[[Given], Given] | None = None

    @property
    def about(self) -> str:
        """What it does: the docstring of its function."""
        return self.run.__doc__ or ""
