"""Outcomes in words: each stall, death and retry is one line of the journal.

A line says whose attempt at which event ended how, what happens next and when, and the command that
helps.
"""

from __future__ import annotations

from eventq.log.notifier import quote
from eventq.storage.queueing import LEASE_ENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.storage.rows import Outcome
    from eventq.workspace.journal import Journal

TIMED_OUT = "timed out after"  # begins the last line of the error of a run that took too long
_MOST_CAUSE = 200  # characters of what was said of an attempt


def report(journal: Journal, outcomes: Iterable[Outcome]) -> None:
    """Write a line for each outcome to the journal, which passes it on to its listener."""
    for one in outcomes:
        text = sentence(one, journal.thread)
        if one.what == "dead":
            journal.error(text)
        else:
            journal.warn(text)


def sentence(one: Outcome, thread: str) -> str:
    """Return the line about an outcome in a thread."""
    event = "" if one.event is None else f" event={one.event}"
    attempt = f"attempt={one.attempt}/{one.most}{'' if one.counts else ' (not counted)'}"
    who = f"{one.what}: consumer={one.consumer}{event} {attempt}"
    return f"{who}: {cause(one)}; {_next(one, thread)}"


def cause(one: Outcome) -> str:
    """Return how an attempt ended: by exit code, signal, time limit, lease, or in other words."""
    said = (one.error or "").strip().rpartition("\n")[2].strip()
    said = said if len(said) <= _MOST_CAUSE else f"{said[:_MOST_CAUSE]}…"
    if said == LEASE_ENDED and one.worker:
        return f"the lease of {one.worker} ended"
    if one.code is None or said.startswith(TIMED_OUT):
        return said or "its worker asked for that"
    how = ending(one.code)
    return f"{how} ({said})" if said else how


def ending(code: int) -> str:
    """Return how a process ended; a negative code is a signal."""
    return f"exited with code {code}" if code >= 0 else f"was killed by {_signal(-code)}"


def _signal(number: int) -> str:
    import signal  # takes 2 ms, for what is rare

    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _next(one: Outcome, thread: str) -> str:
    """Return what follows, and the command that helps."""
    place = f"--thread {quote(thread)} --consumer {quote(one.consumer)}"
    if one.what == "dead":
        return f"it is a dead letter; to try it again: eventq dead retry {place} {one.event}"
    if one.what == "stall":
        return f"nothing follows; once that is mended: eventq resume {place}"
    if one.wait:
        return f"next attempt in {one.wait / 1000:.3g}s; to try at once: eventq resume {place}"
    return f"next attempt at once; to see who has it: eventq claims ls {place}"
