"""Pure functions for the rules that every engine applies while it changes data.

They cover the link of a turn to its ancestors, the event that reports a turn, the errors of heads
and keys, and how attempts end.
"""

from __future__ import annotations

import os

from eventq.errors import ConflictError, ErasedError, LogicError
from eventq.system.clock import stamp
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eventq.records.event import Event
    from eventq.records.info import Erasure
    from eventq.records.run import RunInfo
    from eventq.store.turn_rows import TurnRow

U32 = (1 << 32) - 1
MOST_UNFINISHED = 10_000  # events of a consumer; with so many, a claim examines no new event
LEASE_ENDED = "its lease ended"  # the error of an attempt
_MOST_CAUSE = 200  # characters of what was said of an attempt
KEY_MS = 24 * 3600 * 1000  # for which the idempotency key of an append is honoured
ANY_MOUNT = "any_mount"  # the setting of a thread that may be on any file system
HOOKS_SESSIONS = "hooks.sessions"  # the setting that says whether hooks import session files
RUNS_EMIT = "runs.emit"  # the setting that says who reports the changes of runs


def link(parent: int, above: Sequence[Any]) -> tuple[int, int | None, int | None]:
    """Return a child's depth, jump and jump's depth.

    `above` is the parent's depth and jump depth, then jump and jump depth of where it jumps to.
    Skew-binary: a jump goes over two equal jumps where there are two, else to the parent (Myers,
    1983).
    """
    if not parent:
        return 0, None, None
    depth, jump_depth, far, far_depth = above
    if depth >= U32:
        raise LogicError(
            f"turn {parent} is at the greatest depth there is, {U32}", "fork at a turn above it"
        )
    if far is not None and depth - jump_depth == jump_depth - far_depth:
        return depth + 1, far, far_depth
    return depth + 1, parent, depth


def event_of(context_id: int, turn: TurnRow) -> str:
    """Return the content of the event that reports a turn; it names the payload's blob."""
    content = {
        "context_id": context_id,
        "turn_id": turn.turn,
        "parent_turn_id": turn.parent,
        "depth": turn.depth,
        "type_id": turn.type_id,
        "type_version": turn.type_version,
        "encoding": turn.encoding,
        "size": turn.size,
        "payload": f"blob:blake3:{(turn.digest or b'').hex()}",
    }
    return writer()(content)


def event_of_run(op: str, info: RunInfo) -> str:
    """Return the content of the event that reports a change of a run."""
    content = {
        "op": op,
        "run_id": info.run_id,
        "name": info.name,
        "group": info.group,
        "status": info.status,
        "step": info.depth,
        "head": info.head,
        "start": info.start,
    }
    return writer()(content)


def backoff(attempt: int, base: int, most: int) -> int:
    """Return the ms after a failed attempt: doubled with each, less up to half of it as jitter.

    What failed together is then not tried together.
    """
    whole = min(most, base << min(attempt - 1, 40))
    return whole - whole * os.urandom(1)[0] // 512


def stall(event: int, attempts: int | None, code: int | None, error: str | None) -> str:
    """Return why a consumer stalled at an event."""
    times = f", {attempts} times" if attempts and attempts > 1 else ""
    if code is None:
        return f"event {event} failed{times}: {cause(None, error)}"
    return f"the handler {cause(code, error)} at event {event}{times}"


def cause(code: int | None, error: str | None, worker: str | None = None) -> str:
    """Return how an attempt ended: by exit code, signal, time limit, lease, or in other words.

    `code` is that of a handler, negative for a signal, and of the error the last line counts.
    `worker` is who had the lease, if that ended.
    """
    said = (error or "").strip().rpartition("\n")[2].strip()
    said = said if len(said) <= _MOST_CAUSE else f"{said[:_MOST_CAUSE]}…"
    if said == LEASE_ENDED and worker:
        return f"the lease of {worker} ended"
    if code is None:
        return said or "its worker asked for that"
    return f"{ending(code)} ({said})" if said else ending(code)


def ending(code: int) -> str:
    """Return how a process ended; a negative code is a signal."""
    if code >= 0:
        return f"exited with code {code}"
    import signal  # takes 2 ms, for what is rare

    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def event_of_death(consumer: str, event: Event, attempts: int, error: str | None) -> str:
    """Return the content of the event that reports a dead letter."""
    content = {
        "consumer": consumer,
        "event_id": event.id,
        "source": event.source,
        "type": event.type,
        "subtype": event.subtype,
        "attempts": attempts,
        "error": error,
    }
    return writer()(content)


def erased(erasure: Erasure) -> ErasedError:
    """Return the error for what was erased."""
    why = f" ({erasure.reason})" if erasure.reason else ""
    when = stamp((erasure.at_ms + 0.5) / 1000)
    what = f"{thing(erasure)} was erased on {when}{why}"
    return ErasedError(what, "nothing of it is left to read")


def erased_blob(digest: bytes, erasure: Erasure | None) -> ErasedError:
    """Return the error for a blob whose bytes were erased, perhaps with something that has them."""
    ref = f"blob:blake3:{digest.hex()}"
    if erasure is None or erasure.kind == "blob":
        found = erased(erasure) if erasure else ErasedError(f"{ref} was erased", "")
        return ErasedError(found.what, "nothing of it is left to read")
    said = erased(erasure)
    return ErasedError(f"{ref} is gone: {said.what}", said.fix)


def thing(erasure: Erasure) -> str:
    """Return what was erased, as people call it."""
    if erasure.kind == "blob":
        return f"blob:blake3:{erasure.name}"
    scope, _, number = erasure.name.rpartition("/")
    return f"{erasure.kind} {number}" + (f" of scope {scope}" if scope not in ("", "0") else "")


def head_conflict(context_id: int, head: int, expected: int) -> ConflictError:
    """Return the error for a head that is not where its mover expects it."""
    return ConflictError(
        f"the head of context {context_id} is turn {head}, not {expected}",
        "read what is new, then try again",
        head,
    )


def chain_conflict(turn_id: int, head: int) -> ConflictError:
    """Return the error for a turn that is not on the chain that ends at another."""
    return ConflictError(
        f"turn {turn_id} is not on the chain that ends at turn {head}",
        "give a turn that was read from it",
        head,
    )


def key_conflict(key: str, turn_id: int) -> ConflictError:
    """Return the error for a key that names another payload."""
    return ConflictError(
        f"key '{key}' was used for another payload: turn {turn_id}",
        "use a new key for a new turn",
        turn_id,
    )


def run_conflict(context_id: int) -> ConflictError:
    """Return the error for a change of a context that only its run may make."""
    return ConflictError(
        f"context {context_id} is that of a run, whose turns are steps",
        "use 'eventq run step' or 'run fork'",
        context_id,
    )


def name_conflict(name: str, owner: int) -> ConflictError:
    """Return the error for a name that another context has."""
    return ConflictError(
        f"the name '{name}' is taken by context {owner}", "choose another name", owner
    )


def open_conflict(open_id: int, *, growing: bool) -> ConflictError:
    """Return the error for an open turn that has ended, or that is still `growing`."""
    if growing:
        return ConflictError(
            f"somebody is still writing to open turn {open_id}", "seal it again", open_id
        )
    return ConflictError(
        f"there is no open turn {open_id}",
        "see 'eventq turn opened': it was perhaps sealed or discarded",
        open_id,
    )


def status_conflict(run_id: int, status: str, turn: int) -> ConflictError:
    """Return the error for a run that takes no step, or has nothing to resume from.

    `turn` is its head; without a `status`, where the head was taken away, its start.
    """
    if not status:
        return ConflictError(
            f"the head of run {run_id} was taken away", f"move it back to turn {turn} or after", 0
        )
    fix = "there is nothing to resume" if status == "active" else "resume it first"
    return ConflictError(f"run {run_id} is {status}", fix, turn)


def no_more_ids(table: str) -> LogicError:
    """Return the error for a next id where the last one that there is was given."""
    return LogicError(
        f"the store has given the last id that there is in {table}, 2^63-1",
        "export what is needed",
    )
