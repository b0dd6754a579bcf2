"""Who needs a person, and what everybody does: the model of pages and terminals.

It is made of a status and of the claims that are out; nothing is read twice.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from eventq.record import Record
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eventq.records.claim import ClaimInfo
    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus

LATE = 60.0  # seconds that an event may wait
LONG = 300.0  # seconds between the two lags that are compared
TAIL = 4096  # bytes of a log that are looked at
LINES = 10  # of them, that are shown
STATES = ("stalled", "refused", "dead", "overdue", "behind", "paused", "running", "idle")


class Need(Record):
    """Something that waits for a person.

    `kind` is `question`, `approval`, `stall`, `dead`, `lag` or `lease`. `what` is a sentence, and
    `since` when it began, in seconds since 1970 or as an event has it; None if that is not known.
    `number` is the event of a question, and `options` are its answers. `output` is the end of what
    a handler printed, and `advice` the command that helps.
    """

    kind: str
    what: str
    since: float | str | None = None
    consumer: str | None = None
    number: int | None = None
    options: tuple[str, ...] = ()
    output: str = ""
    advice: str | None = None


def needs(
    status: ThreadStatus, claims: Iterable[ClaimInfo], earlier: Mapping[str, float], now: float
) -> list[Need]:
    """Return what waits for a person, the most urgent first.

    `earlier` has the lags of five minutes ago, without those of consumers that nobody knew then,
    and `now` is in seconds since 1970.
    """
    found = [
        Need(one.type, one.text, one.asked_at, number=one.question_id, options=one.options)
        for one in status.questions
    ]
    found += [need for one in status.consumers if (need := _stall(one)) is not None]
    found += [
        Need("dead", f"{count(one.dead, 'event')} failed for good", consumer=one.consumer_id)
        for one in status.consumers
        if one.dead
    ]
    found += [
        need
        for one in status.consumers
        if (need := _lag(one, earlier.get(one.consumer_id), now)) is not None
    ]
    return [*found, *_leases(claims, now)]


def _stall(one: ConsumerStatus) -> Need | None:
    if one.stalled is None:
        return None
    output = tail(one.log) if one.log is not None else ""
    return Need("stall", one.stalled, one.updated_at, one.consumer_id, output=output,
                advice=one.advice)  # fmt: skip


def tail(path: str) -> str:
    """Return the last lines of a file, "" if it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        lines = file.read(TAIL).decode(errors="replace").splitlines()
        return "\n".join(lines[-LINES:])
    return ""


def _lag(one: ConsumerStatus, earlier: float | None, now: float) -> Need | None:
    """Return the lag of a consumer that does not get less: it is late, and was less so before."""
    if one.lag is None or one.stalled is not None or one.paused or one.lag <= LATE:
        return None
    if one.lag <= (LONG if earlier is None else earlier):
        return None
    what, since = waiting(one), now - one.lag
    return Need("lag", what, since, one.consumer_id, one.waiting_id, advice=one.advice)


def _leases(claims: Iterable[ClaimInfo], now: float) -> Iterator[Need]:
    """Yield the claims of which less than a third of the time is left."""
    for one in claims:
        left, whole = one.deadline_ms - now * 1000, one.deadline_ms - one.claimed_at_ms
        if one.lost or left < whole / 3:
            ends = "has ended" if one.lost or left < 0 else f"ends in {left / 1000:.0f}s"
            what = f"the claim of {one.worker or 'a worker'} on event {one.event_id} {ends}"
            yield Need("lease", what, one.claimed_at_ms / 1000, one.consumer_id, one.event_id)


def doing(one: ConsumerStatus) -> str:
    """Return what a consumer does now, in a few words."""
    if one.stalled is not None:
        return "stalled"
    if one.paused:
        return "paused"
    if one.workers:
        names = ", ".join(worker.worker or "a worker" for worker in one.workers[:3])
        return f"{count(sum(worker.claims for worker in one.workers), 'event')} with {names}"
    if one.running:
        return "its handler runs"
    if one.pending:
        return f"waits for {one.waits_for}" if one.waits_for else "has events to do"
    return "idle"


def state(one: ConsumerStatus) -> str:
    """Return the state of a consumer, one of `STATES`: the worst that can be said of it."""
    if one.stalled is not None or one.halted:
        return "stalled"
    if one.pending is None:
        return "refused"
    if one.dead:
        return "dead"
    if one.lag is not None and one.lag > LATE and not one.paused:
        return "overdue"
    busy = bool(one.running or one.workers)
    if one.pending and not busy and not one.paused:
        return "behind"
    return "paused" if one.paused else "running" if one.pending and busy else "idle"


def waiting(one: ConsumerStatus) -> str:
    """Return how many events wait for a consumer, in a few words."""
    if one.pending is None:
        return "its filter cannot be run"
    verb = "event waits" if one.pending == 1 else "events wait"
    return f"{one.pending:,}{'+' * one.pending_is_least} {verb}"
