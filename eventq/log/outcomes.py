"""Outcomes in words: each stall, death and retry is one line of the journal.

A line says whose attempt at which event ended how, what happens next and when, and the command that
helps.
"""

from __future__ import annotations

from eventq.log.notifier import quote
from eventq.store.rules import cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.log.journal import Journal
    from eventq.store.queue_rows import Outcome


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
    return f"{who}: {cause(one.code, one.error, one.worker)}; {_next(one, thread)}"


def _next(one: Outcome, thread: str) -> str:
    """Return what follows, and the command that helps."""
    place = f"--thread {quote(thread)} --consumer {quote(one.consumer)}"
    if one.what == "dead":
        return f"it is a dead letter; to try it again: eventq dead retry {place} {one.event}"
    if one.what == "stall":
        return f"nothing follows; once that is mended: eventq resume {place}"
    if one.wait is None:
        return f"its consumer rests; to let it go on: eventq resume {place}"
    if one.wait:
        wait = in_words(one.wait / 1000)
        return f"next attempt in {wait}; to try at once: eventq resume {place}"
    return f"next attempt at once; to see who has it: eventq claims ls {place}"


def in_words(seconds: float) -> str:
    """Return a wait, such as 0.657s, 14s or 32m."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds:.3g}s"
