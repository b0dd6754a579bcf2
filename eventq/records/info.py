"""What is known of a thread: its status, its size, its settings, what was erased."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from eventq.records.artifact import ArtifactInfo
    from eventq.records.consumer import ConsumerStatus
    from eventq.records.question import Question
    from eventq.records.turn import ContextInfo


class Stats(Record):
    """Bytes of a database, of its log of changes, and of what deleted rows have left in it."""

    database: int
    wal: int
    free: int


class Overview(Record):
    """What goes on in a memory: rows of contexts, the last to change first, and their number.

    `runs` counts runs by status; `artifacts` are rows of those that are being written, the newest
    first, each after its scope and the name of that.
    """

    contexts: Sequence[tuple[Any, ...]]
    context_count: int
    runs: Mapping[str, int]
    artifacts: Sequence[tuple[Any, ...]]


class ThreadStatus(Record):
    """What a thread holds and what goes on in it, at one moment; sizes are bytes.

    `last_at` is the time of the newest event, None before the first. `questions` are those that
    nobody has answered, the oldest 1,000 of `question_count`; `contexts` the 100 that changed last,
    of `context_count`. `runs` counts runs by their status, without what there is none of, and
    `artifacts` are those that are being written, the newest 100, or were left by their writers.
    """

    path: str
    event_count: int
    last_id: int
    last_at: str | None
    db_bytes: int
    wal_bytes: int
    mirror_bytes: int
    consumers: tuple[ConsumerStatus, ...]
    questions: tuple[Question, ...]
    question_count: int
    contexts: tuple[ContextInfo, ...]
    context_count: int
    runs: Mapping[str, int]
    artifacts: tuple[ArtifactInfo, ...]


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
