"""A durable inbox and memory for agents: one directory, no server.

`eventq.open(path)` returns a `Thread`, and `eventq.connect(url)` the memory of a thread that is
served elsewhere. `records.py` defines what their methods return, `errors.py` what they raise. The
names below are imported on first use, as start-up time is a feature.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.aio import AsyncThread
    from eventq.dag.contexts import Context
    from eventq.errors import (
        EventqError,
        FilterError,
        InputError,
        KeyConflictError,
        LogicError,
        StoreError,
        UsageError,
    )
    from eventq.event import Batch, Event, NewEvent
    from eventq.output.sink import OutputSink
    from eventq.records import (
        Blob,
        Captured,
        ConsumerInfo,
        Content,
        NewRun,
        NewStep,
        NewTurn,
        Source,
        Subscription,
        ThreadInfo,
        Turn,
    )
    from eventq.thread import Thread, destroy, exists, init
    from eventq.thread import open_thread as open  # noqa: A004 (eventq.open reads best)
    from eventq.wire.client import connect

__version__ = "0.1.0"

__all__ = [
    "AsyncThread",
    "Batch",
    "Blob",
    "Captured",
    "ConsumerInfo",
    "Content",
    "Context",
    "Event",
    "EventqError",
    "FilterError",
    "InputError",
    "KeyConflictError",
    "LogicError",
    "NewEvent",
    "NewRun",
    "NewStep",
    "NewTurn",
    "OutputSink",
    "Source",
    "StoreError",
    "Subscription",
    "Thread",
    "ThreadInfo",
    "Turn",
    "UsageError",
    "connect",
    "destroy",
    "exists",
    "init",
    "open",
]

_HOMES = {
    "eventq.aio": ("AsyncThread",),
    "eventq.dag.contexts": ("Context",),
    "eventq.errors": (
        "EventqError",
        "FilterError",
        "InputError",
        "KeyConflictError",
        "LogicError",
        "StoreError",
        "UsageError",
    ),
    "eventq.event": ("Batch", "Event", "NewEvent"),
    "eventq.output.sink": ("OutputSink",),
    "eventq.records": (
        "Blob",
        "Captured",
        "ConsumerInfo",
        "Content",
        "NewRun",
        "NewStep",
        "NewTurn",
        "Source",
        "Subscription",
        "ThreadInfo",
        "Turn",
    ),
    "eventq.thread": ("Thread", "destroy", "exists", "init", "open"),
    "eventq.wire.client": ("connect",),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            # Imported here, as `from eventq import system` calls this function for each module.
            from importlib import import_module

            found = getattr(import_module(home), "open_thread" if name == "open" else name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'eventq' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
