"""A durable inbox and memory for agents: one directory, no server.

`eventq.open(path)` returns a `Thread`. `records` defines what its methods return, `errors.py` what
they raise. The names below are imported on first use, as start-up time is a feature. `__all__` has
those that most programs need; every other exception can be imported from here, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.aio import AsyncThread
    from eventq.errors import (
        AckError as AckError,
        AlreadyAckedError as AlreadyAckedError,
        AnsweredError as AnsweredError,
        BusyError,
        ClosedError as ClosedError,
        ConflictError,
        ConsumerExistsError as ConsumerExistsError,
        ConsumerInUseError as ConsumerInUseError,
        DamagedBlobError as DamagedBlobError,
        DamagedError as DamagedError,
        DiskError as DiskError,
        ErasedError as ErasedError,
        EventqError,
        FencedError as FencedError,
        FilterError as FilterError,
        ForbiddenError as ForbiddenError,
        InputError as InputError,
        KeyConflictError as KeyConflictError,
        LeaseLostError,
        LogicError,
        LostError as LostError,
        MomentLostError as MomentLostError,
        NotAThreadError,
        PlatformError as PlatformError,
        PositionError as PositionError,
        ReadOnlyError as ReadOnlyError,
        StoreError,
        ThreadExistsError as ThreadExistsError,
        TooLargeError as TooLargeError,
        UnknownArtifactError as UnknownArtifactError,
        UnknownBlobError as UnknownBlobError,
        UnknownConsumerError as UnknownConsumerError,
        UnknownContextError as UnknownContextError,
        UnknownDeadLetterError as UnknownDeadLetterError,
        UnknownEventError as UnknownEventError,
        UnknownOutcomeError as UnknownOutcomeError,
        UnknownOutputError as UnknownOutputError,
        UnknownQuestionError as UnknownQuestionError,
        UnknownRunError as UnknownRunError,
        UnknownSessionError as UnknownSessionError,
        UnknownTurnError as UnknownTurnError,
        UnsupportedError as UnsupportedError,
        UsageError,
    )
    from eventq.log.claims import Claim
    from eventq.memory.contexts import Context
    from eventq.output.capture import CannotStartError as CannotStartError
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
    "AsyncThread",
    "Batch",
    "Blob",
    "BusyError",
    "Captured",
    "Claim",
    "ClaimInfo",
    "ConflictError",
    "ConsumerStatus",
    "Content",
    "Context",
    "Dead",
    "DeadLetter",
    "Event",
    "EventqError",
    "LeaseLostError",
    "LogicError",
    "NewEvent",
    "NewRun",
    "NewStep",
    "NewTurn",
    "NotAThreadError",
    "OutputSink",
    "Question",
    "Retry",
    "Source",
    "StoreError",
    "Subscription",
    "Thread",
    "ThreadStatus",
    "Turn",
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
    """Import a public name, or any exception, on first use (PEP 562)."""
    homes = (home for home, names in _HOMES.items() if name in names)
    if home := next(homes, "eventq.errors" if name.endswith("Error") else ""):
        # Imported here, as `from eventq import store` calls this function for each module.
        from importlib import import_module

        found: object = getattr(
            import_module(home), "open_thread" if name == "open" else name, None
        )
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module 'eventq' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
