"""Who sends a request, and what they may do and read; made once for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from eventq.errors import (
    BusyError,
    ClosedError,
    DamagedBlobError,
    DamagedError,
    DiskError,
    EventqError,
    ForbiddenError,
    LostError,
    NotAThreadError,
    PlatformError,
    ReadOnlyError,
    StoreError,
    UnknownOutcomeError,
    UnsupportedError,
)
from eventq.record import Record
from eventq.records.question import Answerer

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.thread import Thread

T = TypeVar("T")
RIGHTS = frozenset({"read", "push", "work", "all", "answer"})
READING = frozenset({"read"})
NONE = frozenset[str]()
PRINCIPAL = "eventq.principal"  # in the scope of a request over HTTP
_KINDS: dict[type[EventqError], str] = {  # what may be told of errors that may name files
    PlatformError: "the system of the server lacks what this needs",
    StoreError: "the database of the thread cannot be used as it should",
    UnsupportedError: "the engine that keeps the thread does not hold what was asked for",
    DamagedError: "the database of the thread is damaged, or not one that this program can read",
    LostError: "what was stored is not in the database of the thread any more",
    DamagedBlobError: "what is stored here is damaged, and cannot be shown",
    BusyError: "too much is under way, or another program has written for too long",
    UnknownOutcomeError: "the connection was lost: the change may be stored, or not",
    ReadOnlyError: "the database of the thread cannot be written",
    DiskError: "the disk is full, or cannot be read or written",
}
_UNTOLD = "(told to whoever comes with a token)"


class Principal(Record):
    """The sender of a request, as a server knows them.

    `name` is `answered_by` of what they answer, and `rights` has all that they may do here. With
    `is_told` they may read where files lie. `is_person` says whether they can answer what asks for
    a person, `is_known` whether the server is for them, and `by_cookie` whether a browser sends for
    them.
    """

    name: str
    rights: frozenset[str]
    is_told: bool = False
    is_person: bool = False
    is_known: bool = False
    by_cookie: bool = False

    @property
    def may_write(self) -> bool:
        """Whether they may change anything."""
        return bool(self.rights - READING)

    def told(self, what: str) -> str:
        """Return a sentence or an output that may name files, as they may read it.

        It is told or it is not: to look for what may be a path in a text misses some.
        """
        return what if self.is_told else _UNTOLD

    def said(self, error: EventqError) -> tuple[int, str]:
        """Return status and sentence of an error; of a store only its kind, as `told` has it."""
        if isinstance(error, (NotAThreadError, ClosedError)):
            return 404, "the thread is gone - put it back to its place, or serve another one"
        if self.is_told or not isinstance(error, (StoreError, PlatformError)):
            return error.wire_code, str(error)
        kind = next(_KINDS[each] for each in type(error).__mro__ if each in _KINDS)
        return error.wire_code, f"{kind} - send a token to read more, or try again later"

    def acting(self, via: str, run: Callable[[Thread], T]) -> Callable[[Thread], T]:
        """Return a call that answers questions as this sender; `via` is `answered_via`."""

        def answerer() -> Answerer:
            if "answer" not in self.rights:
                raise ForbiddenError("answer")
            return Answerer(via, self.name, self.is_person)

        def call(thread: Thread) -> T:
            before, thread.log.answerer = thread.log.answerer, answerer
            try:
                return run(thread)
            finally:
                thread.log.answerer = before

        return call
