"""What is known of a thread: its status, its size, its settings, what was erased."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.consumer import ConsumerInfo


class Stats(Record):
    """Bytes of a database, of its log of changes, and of what deleted rows have left in it."""

    database: int
    wal: int
    free: int


class ThreadInfo(Record):
    """A summary of a thread; sizes are bytes."""

    path: str
    event_count: int
    subscriptions: tuple[ConsumerInfo, ...]
    last_id: int
    db_bytes: int
    wal_bytes: int
    mirror_bytes: int


class Erasure(Record):
    """What was erased: a `turn`, `event`, `artifact` or `blob`, by name, and when and why.

    It is not `finished` while its bytes may be left in some file of the thread, after an erasure
    that was interrupted: it must be erased again.
    """

    kind: str
    name: str
    reason: str | None
    at_ms: int
    finished: bool


class Setting(Record):
    """A setting of a thread; `default` is its value until it is changed."""

    name: str
    value: str
    default: str
