"""The records of the hot path, in a module of their own: `push`, `pop` and `peek` need no others.

The checks of names and numbers follow them.
"""

from __future__ import annotations

from eventq.errors import InputError, UsageError
from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REF = "blob:blake3:"  # 64 lower-case hex digits follow
ERASED = "[erased]"  # what is read in place of a text that was erased
MAX_NAME = 1 << 16  # characters of a source, type, subtype, key or consumer id


class Event(Record):
    """One immutable entry of the log.

    `id` counts 1, 2, 3 … and is never used again. `created_at` is UTC, ISO 8601 with milliseconds
    and a `Z`. `source` is the sender, `type` and `subtype` (may be None) classify the event.
    `content` is text that eventq never looks into.
    """

    id: int
    created_at: str
    source: str
    type: str
    subtype: str | None
    content: str


class Batch(Record):
    """What `push_many` stored: how many events, and the first and last id (None for no event)."""

    count: int  # type: ignore[assignment]
    first_id: int | None
    last_id: int | None


class NewEvent(Record):
    """An event that is to be stored; see `Event`.

    The same `key` again returns the event that was stored with it first.
    """

    source: str
    type: str
    content: str
    subtype: str | None = None
    key: str | None = None


class Appended(Record):
    """What an append stored: the ids `first` to `last`, both 0 for none.

    `found` has the index in the list and the event id of each key that was used before.
    """

    first: int
    last: int
    created_at: str
    found: Sequence[tuple[int, int]]


class Commit(Record):
    """What subscribers get for a transaction that stored the events `first` to `last`.

    There is a part for each push and each batch: the first id, how many, the time, and the events,
    which are left out of all parts where they are large. `source` is the last one's.
    """

    first: int
    last: int
    source: str
    parts: Sequence[tuple[int, int, str, Sequence[NewEvent]]]


class EventPage(Record):
    """Some matching events, and the id that the search has reached."""

    events: list[Event]
    next: int


class LinePage(Record):
    """Some matching events as JSON, the id that the search has reached, the last line's id or 0."""

    lines: list[str]
    next: int
    last_id: int


class Bounds(Record):
    """The oldest stored event (0: none), the newest there ever was, and how many are stored."""

    first: int
    last: int
    stored: int


class Stats(Record):
    """Bytes of a database, of its log of changes, and of what deleted rows have left in it."""

    database: int
    wal: int
    free: int


class Settings(Record):
    """How a consumer is run; times are in ms.

    A `loop` handler pops and acks by itself, `each` runs `command` for up to `batch` events, `pull`
    runs nothing. With `concurrency` 0 events come in order, otherwise so many are claimed at once,
    and those alike in `ordered_by` come in order. After the last attempt the consumer stalls or the
    event is dead (`on_failure`; None: stall in order, dead with claims).
    """

    kind: str = "loop"
    command: str | None = None
    directory: str | None = None
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str | None = None
    backoff: int = 1_000
    backoff_most: int = 300_000
    lease: int = 30_000
    emit_dead: bool = False

    @property
    def failure(self) -> str:
        """What follows the last attempt: the consumer stalls, or the event is dead."""
        return self.on_failure or ("stall" if self.kind == "loop" or self.in_order else "dead")

    @property
    def in_order(self) -> bool:
        """Whether no event is claimed while one before it is unfinished."""
        return self.kind == "each" and not self.concurrency


# A subscription without settings: the tool that `thread` replaces made it.
ORIGINAL = Settings(backoff=500, backoff_most=60_000)


class ConsumerState(Record):
    """A subscription and the state of its consumer.

    `attempts` counts runs without progress since the last ack, `stalled` says why no handler is
    started, and no event after `acked` and `frontier` up to `scanned` matches. Claims have examined
    all events up to `frontier`, which is 0 for a handler that pops.
    """

    consumer: str
    handler: str
    filter: str | None
    acked: int
    updated_at: str | None
    max_attempts: int
    timeout: float | None
    attempts: int
    stalled: str | None
    scanned: int
    settings: Settings = ORIGINAL
    paused: bool = False
    frontier: int = 0


class Popped(Record):
    """The result of an ack: the next page, and whether the consumer may be due without new events.

    `page` is None for an ack alone. `woke` says that the ack ended a stall or asked for a replay.
    """

    page: EventPage | LinePage | None
    woke: bool


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise InputError for an invalid source, type, subtype, key or consumer id."""
    if not isinstance(value, str):
        raise InputError(
            f"{what} must be text, not {type(value).__name__}", f"give the {what} as a string"
        )
    if not value and not empty:
        raise InputError(f"{what} is empty", f"give a {what}")
    if len(value) > MAX_NAME:
        raise InputError(
            f"{what} is too long ({len(value)} characters, the limit is {MAX_NAME})",
            f"shorten the {what}",
        )
    if not value.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise InputError(f"{what} holds a control character", f"leave it out of the {what}")
    if not value.isascii():
        check_whole(value, what)


def check_whole(value: str, what: str) -> None:
    """Raise InputError for text with an unpaired surrogate: it cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} holds an unpaired surrogate", "give whole Unicode characters"
        ) from error


def check_natural(value: int, name: str) -> int:
    """Return an id, a depth or a seq; raise UsageError for an invalid one."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 0 to 2^63-1, not {value!r}",
            "give 0 or more: of ids and depths, one that was read",
        )
    return value


def check_positive(value: int, name: str) -> int:
    """Return a count of at least 1; raise UsageError for anything else."""
    if type(value) is not int or not 1 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 1 to 2^63-1, not {value!r}", "give 1 or more"
        )
    return value


def refs_in(text: str) -> set[bytes]:
    """Return the hashes of all blobs that a text names."""
    found = set()
    at = text.find(REF)
    while at >= 0:
        digits = text[at + len(REF) : at + len(REF) + 64]
        if len(digits) == 64 and not digits.strip("0123456789abcdef"):
            found.add(bytes.fromhex(digits))
        at = text.find(REF, at + 1)
    return found
