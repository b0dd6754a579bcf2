"""The dead letters of a consumer as a page shows them, by reason, and those that an act is about.

A page may lie open while more events die: an act takes what was shown, and leaves alone the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.errors import LogicError
from eventq.record import Record
from eventq.serving.attention import died_by, reason, reasons

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from eventq.store.queue_rows import DeadRow
    from eventq.thread import Thread

LOOKED = 1_000  # dead letters of a consumer that are looked at, the first by event
_PAGE = 500


class Letters(Record):
    """The dead letters that were looked at, those of one `reason`, and how many died of what.

    `upto` is the last event that was looked at, and `died_by` when, in ms, all of them were dead.
    """

    rows: Sequence[DeadRow]
    reasons: tuple[tuple[int, str], ...]
    reason: str
    looked: int
    upto: int
    died_by: int


def letters(thread: Thread, consumer: str, dead: int, chosen: str = "") -> Letters:
    """Return the dead letters of a consumer that has so many, all or those of a reason."""
    rows = thread.database.claims.dead(consumer, ("", 0), LOOKED) if dead else []
    return Letters(
        [row for row in rows if not chosen or reason(row.error) == chosen],
        reasons(row.error for row in rows),
        chosen,
        len(rows),
        rows[-1].event if rows else 0,
        died_by([row.at for row in rows], dead),
    )


def shown(
    thread: Thread,
    consumer: str,
    died_by: int,
    *,
    events: Collection[int] | None = None,
    chosen: str = "",
    upto: int = 0,
    most: int = 0,
) -> list[int]:
    """Return the dead letters that a page has shown, of those that are still there.

    They are the ones of some `events`, or else those up to `upto`, perhaps of one reason. What died
    later is left out. Raises LogicError for none, and for more than `most` without events, as after
    a step of the clock.
    """
    found = [
        row.event
        for row in _rows(thread, consumer, events, upto)
        if row.at <= died_by and (not chosen or reason(row.error) == chosen)
    ]
    if not found:
        what = f"none of these dead letters of {consumer} is there any more"
        raise LogicError(what, "load the page again: somebody else was first")
    if events is None and len(found) > most:
        what = f"{consumer} has more dead letters by now than the {most} that were shown"
        raise LogicError(what, "load the page again, and look at them")
    return found


def _rows(
    thread: Thread, consumer: str, events: Collection[int] | None, upto: int
) -> Iterator[DeadRow]:
    """Yield the dead letters of some events, or up to one."""
    claims, after = thread.database.claims, ("", 0)
    while page := claims.dead(consumer, after, _PAGE, events):
        yield from (row for row in page if events is not None or row.event <= upto)
        after = (page[-1].consumer, page[-1].event)
        if events is None and page[-1].event >= upto:
            return
