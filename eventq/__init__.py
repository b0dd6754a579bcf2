"""A durable inbox and memory for agents: one directory, no server.

`eventq.open(path)` returns a `Thread`. `records` defines what its methods return, `errors.py` what
they raise. The names below are imported on first use, as start-up time is a feature.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.aio import AsyncThread
    from eventq.errors import (
        AckError,
        AlreadyAckedError,
        AnsweredError,
        BusyError,
        ClosedError,
        ConflictError,
        ConsumerExistsError,
        ConsumerInUseError,
        DamagedBlobError,
        DamagedError,
        DiskError,
        ErasedError,
        EventqError,
        FencedError,
        FilterError,
        ForbiddenError,
        InputError,
        KeyConflictError,
        LeaseLostError,
        LogicError,
        LostError,
        MomentLostError,
        NotAThreadError,
        PlatformError,
        PositionError,
        ReadOnlyError,
        StoreError,
        ThreadExistsError,
        TooLargeError,
        UnknownArtifactError,
        UnknownBlobError,
        UnknownConsumerError,
        UnknownContextError,
        UnknownDeadLetterError,
        UnknownEventError,
        UnknownOutcomeError,
        UnknownOutputError,
        UnknownQuestionError,
        UnknownRunError,
        UnknownTurnError,
        UnsupportedError,
        UsageError,
    )
    from eventq.log.claims import Claim
    from eventq.memory.contexts import Context
    from eventq.output.capture import CannotStartError
    from eventq.output.sink import OutputSink
    from eventq.records.artifact import Captured, Content
    from eventq.records.claim import ClaimInfo, DeadLetter
    from eventq.records.consumer import ConsumerStatus, Subscription
    from eventq.records.event import Batch, Event, NewEvent
    from eventq.records.info import ThreadStatus
    from eventq.records.question import Question
    from eventq.records.run import NewRun, NewStep
    from eventq.records.source import Source
    from eventq.records.turn import Blob, NewTurn, Turn
    from eventq.running.worker import Dead, Retry, Worker
    from eventq.thread import Thread, destroy, exists, init, init_schema, recover, threads
    from eventq.thread import open_thread as open  # noqa: A004 (eventq.open reads best)

__version__ = "0.1.0"

__all__ = [
    "AckError",
    "AlreadyAckedError",
    "AnsweredError",
    "AsyncThread",
    "Batch",
    "Blob",
    "BusyError",
    "CannotStartError",
    "Captured",
    "Claim",
    "ClaimInfo",
    "ClosedError",
    "ConflictError",
    "ConsumerExistsError",
    "ConsumerInUseError",
    "ConsumerStatus",
    "Content",
    "Context",
    "DamagedBlobError",
    "DamagedError",
    "Dead",
    "DeadLetter",
    "DiskError",
    "ErasedError",
    "Event",
    "EventqError",
    "FencedError",
    "FilterError",
    "ForbiddenError",
    "InputError",
    "KeyConflictError",
    "LeaseLostError",
    "LogicError",
    "LostError",
    "MomentLostError",
    "NewEvent",
    "NewRun",
    "NewStep",
    "NewTurn",
    "NotAThreadError",
    "OutputSink",
    "PlatformError",
    "PositionError",
    "Question",
    "ReadOnlyError",
    "Retry",
    "Source",
    "StoreError",
    "Subscription",
    "Thread",
    "ThreadExistsError",
    "ThreadStatus",
    "TooLargeError",
    "Turn",
    "UnknownArtifactError",
    "UnknownBlobError",
    "UnknownConsumerError",
    "UnknownContextError",
    "UnknownDeadLetterError",
    "UnknownEventError",
    "UnknownOutcomeError",
    "UnknownOutputError",
    "UnknownQuestionError",
    "UnknownRunError",
    "UnknownTurnError",
    "UnsupportedError",
    "UsageError",
    "Worker",
    "destroy",
    "exists",
    "init",
    "init_schema",
    "open",
    "recover",
    "threads",
]

_HOMES = {
    "eventq.aio": ("AsyncThread",),
    "eventq.memory.contexts": ("Context",),
    "eventq.errors": (
        "AckError",
        "AlreadyAckedError",
        "AnsweredError",
        "BusyError",
        "ClosedError",
        "ConflictError",
        "ConsumerExistsError",
        "ConsumerInUseError",
        "DamagedBlobError",
        "DamagedError",
        "DiskError",
        "ErasedError",
        "EventqError",
        "FencedError",
        "ForbiddenError",
        "FilterError",
        "InputError",
        "KeyConflictError",
        "LeaseLostError",
        "LogicError",
        "LostError",
        "MomentLostError",
        "NotAThreadError",
        "PlatformError",
        "PositionError",
        "ReadOnlyError",
        "StoreError",
        "ThreadExistsError",
        "TooLargeError",
        "UnknownArtifactError",
        "UnknownBlobError",
        "UnknownConsumerError",
        "UnknownContextError",
        "UnknownDeadLetterError",
        "UnknownEventError",
        "UnknownOutcomeError",
        "UnknownOutputError",
        "UnknownQuestionError",
        "UnknownRunError",
        "UnknownTurnError",
        "UnsupportedError",
        "UsageError",
    ),
    "eventq.log.claims": ("Claim",),
    "eventq.output.capture": ("CannotStartError",),
    "eventq.output.sink": ("OutputSink",),
    "eventq.records.artifact": ("Captured", "Content"),
    "eventq.records.claim": ("ClaimInfo", "DeadLetter"),
    "eventq.records.consumer": ("ConsumerStatus", "Subscription"),
    "eventq.records.event": ("Batch", "Event", "NewEvent"),
    "eventq.records.info": ("ThreadStatus",),
    "eventq.records.question": ("Question",),
    "eventq.records.run": ("NewRun", "NewStep"),
    "eventq.records.source": ("Source",),
    "eventq.records.turn": ("Blob", "NewTurn", "Turn"),
    "eventq.thread": (
        "Thread",
        "destroy",
        "exists",
        "init",
        "init_schema",
        "open",
        "recover",
        "threads",
    ),
    "eventq.running.worker": ("Dead", "Retry", "Worker"),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            # Imported here, as `from eventq import storage` calls this function for each module.
            from importlib import import_module

            found = getattr(import_module(home), "open_thread" if name == "open" else name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'eventq' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
