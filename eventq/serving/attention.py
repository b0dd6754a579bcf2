"""Who needs a person, which consumers are in trouble, and what everybody does.

It is the model of pages and terminals, made of a status, of the claims that are out, and of the
first dead letters of each consumer.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from eventq.log.notifier import quote
from eventq.record import Record
from eventq.records.source import sender_of
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eventq.records.claim import ClaimInfo
    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus
    from eventq.records.source import Sender
    from eventq.store.queue_rows import DeadRow
    from eventq.thread import Thread

LATE = 60.0  # seconds that an event may wait
LONG = 300.0  # seconds between the two lags that are compared
TAIL = 4096  # bytes of a log that are looked at
LINES = 10  # of them, that are shown
LETTERS = 200  # dead letters of a consumer that are looked at
ALL_LETTERS = 2_000  # of all consumers of a thread
REASONS = 5  # of them, that are shown
REASON = 120  # characters
STATES = ("stalled", "refused", "dead", "overdue", "behind", "paused", "running", "idle")
ASKED, STALL, DEAD = ("question", "approval"), "stall", "dead"
_RANKS = {kind: rank for rank, kinds in enumerate((ASKED, (STALL,), (DEAD,))) for kind in kinds}
# A word with a digit, from its beginning on: else each letter of a long word would be tried.
_ID = re.compile(r"(?<![\w-])[\w-]*\d[\w-]*(?:[.:,][\w-]*\d[\w-]*)*")


class Need(Record):
    """Something that waits for a person.

    `kind` is `question`, `approval`, `stall` or `dead`. `what` is a sentence, and `since` when it
    began, in seconds since 1970, None if that is not known. A question has its event as `number`,
    its answers as `options`, its `sender`, and perhaps the `context` and `run` in which it was
    asked; the others a `consumer`, and the command that helps as `advice`. `output` is the end of
    what a handler printed; `letters` is how many events of a consumer are dead, all of them by
    `died_by`, in ms, and `reasons` say how many died of what, the most frequent first. A consumer
    that stands still does so at an `event`, and `waits` says how many wait for it. `until` is when
    the last of the dead letters died, if all were looked at.
    """

    kind: str
    what: str
    since: float | None = None
    consumer: str | None = None
    number: int | None = None
    options: tuple[str, ...] = ()
    output: str = ""
    advice: str | None = None
    sender: Sender | None = None
    context: str | None = None
    run: int | None = None
    reasons: tuple[tuple[int, str], ...] = ()
    letters: int = 0
    died_by: int = 0
    event: int | None = None
    waits: str = ""
    until: float | None = None

    @property
    def who(self) -> str:
        """Who needs a person, in a word."""
        return self.consumer or (self.sender.name if self.sender is not None else "")

    @property
    def where(self) -> str:
        """Where a question was asked, "" if that is not known."""
        parts = [f"run {self.run}" if self.run else "", self.context or ""]
        return ", ".join(filter(None, parts))

    @property
    def urgency(self) -> tuple[int, float, int]:
        """What needs are sorted by: who asks, what stands still, what gave up; the oldest first."""
        since = float("inf") if self.since is None else self.since
        return _RANKS[self.kind], since, self.number or 0


class Trouble(Record):
    """A consumer in trouble: its state, one of `STATES`, and why, in a few words each.

    `since` is the time of its oldest event, in seconds since 1970, and `advice` the command that
    helps; None where there is none. `dead` is how many dead letters it has.
    """

    consumer: str
    state: str
    why: tuple[str, ...]
    since: float | None
    advice: str | None
    dead: int = 0

    @property
    def rank(self) -> tuple[int, float]:
        """What troubles are sorted by: the worst state first, then the longest wait."""
        return STATES.index(self.state), float("inf") if self.since is None else self.since


def needs(status: ThreadStatus, dead: Iterable[DeadRow] = ()) -> list[Need]:
    """Return what waits for a person, in the order of `Need.urgency`.

    Nothing that nobody can act on is among it. `dead` are dead letters, as of `first_dead`.
    """
    letters: dict[str, list[DeadRow]] = {}
    for row in dead:
        letters.setdefault(row.consumer, []).append(row)
    found = [
        Need(
            one.type, one.text, _seconds(one.asked_at), number=one.question_id,
            options=one.options, sender=sender_of(one.source), context=one.context, run=one.run,
        )
        for one in status.questions
    ]  # fmt: skip
    for one in status.consumers:
        if one.stalled is not None or one.halted:
            found.append(_stall(one))
        if one.dead:
            found.append(_dead(one, status.path, letters.get(one.consumer_id, ())))
    return sorted(found, key=lambda need: need.urgency)


def needed(status: ThreadStatus) -> int:
    """Return how many things wait for a person, also questions beyond those that are listed."""
    stopped = sum(one.stalled is not None or one.halted > 0 for one in status.consumers)
    return status.question_count + stopped + sum(one.dead > 0 for one in status.consumers)


def first_dead(thread: Thread, status: ThreadStatus) -> Iterator[DeadRow]:
    """Yield the first dead letters of each consumer, without their events, of all not too many."""
    names = [one.consumer_id for one in status.consumers if one.dead]
    read = thread.database.claims.dead
    found = (row for name in names for row in read(name, ("", 0), LETTERS))
    return islice(found, ALL_LETTERS)


def _stall(one: ConsumerStatus) -> Need:
    output = tail(one.log) if one.log is not None else ""
    at = one.waiting_id if one.stalled is not None else None  # a halted group has one of its own
    return Need(
        STALL, _stopped(one), _seconds(one.updated_at), one.consumer_id, output=output,
        advice=one.advice, event=at, waits=waiting(one),
    )  # fmt: skip


def _dead(one: ConsumerStatus, path: str, letters: Sequence[DeadRow]) -> Need:
    times = [row.at for row in letters]
    since = min(times, default=None)
    advice = f"eventq dead retry --all --consumer {quote(one.consumer_id)} --thread {quote(path)}"
    return Need(
        DEAD, _failed(one), None if since is None else since / 1000, one.consumer_id, advice=advice,
        reasons=reasons(row.error for row in letters), letters=one.dead,
        died_by=died_by(times, one.dead),
        until=max(times) / 1000 if times and len(times) == one.dead else None,
    )  # fmt: skip


def died_by(times: Sequence[int], dead: int) -> int:
    """Return a time, in ms, by which dead letters died; `times` are those of some or all of them.

    Of all it is that of the last, so that a page that is made again is the same.
    """
    return max(times, default=0) if len(times) == dead else int(clock.now() * 1000)


def reasons(errors: Iterable[str | None]) -> tuple[tuple[int, str], ...]:
    """Return how many errors say the same, the most frequent first.

    They are told apart by their first line without its numbers and ids. Beyond `REASONS` kinds, the
    last pair counts all others.
    """
    counts: Counter[str] = Counter()
    for error, number in Counter(errors).items():  # most say the same to the letter
        counts[reason(error)] += number
    found = counts.most_common()
    shown = [(number, text) for text, number in found[:REASONS]]
    if rest := sum(number for _, number in found[REASONS:]):
        shown.append((rest, "others"))
    return tuple(shown)


def telling(error: str | None) -> str:
    """Return the line of an error that tells most: of a traceback the last, of others the first.

    A traceback begins with the same line whatever went wrong.
    """
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    line = lines[-1] if lines[0].startswith("Traceback ") else lines[0]
    return " ".join(line[: 2 * REASON].split())


def reason(error: str | None) -> str:
    """Return what an error says without what differs each time: numbers, and ids."""
    found = _ID.sub("…", telling(error))
    return found if len(found) <= REASON else f"{found[: REASON - 1]}…"


def troubles(
    status: ThreadStatus, claims: Iterable[ClaimInfo], earlier: Mapping[str, float], now: float
) -> list[Trouble]:
    """Return the consumers that are in trouble, the worst first.

    They stand still, have dead letters or a filter that cannot be run, fall behind, or a claim of
    theirs is about to end. `earlier` has the lags of five minutes ago, without those of consumers
    that nobody knew then, and `now` is in seconds since 1970.
    """
    ends: dict[str, list[str]] = {}
    for name, what in _ending(claims, now):
        ends.setdefault(name, []).append(what)
    found = []
    for one in status.consumers:
        late = _is_late(one, earlier.get(one.consumer_id))
        if why := [*_why(one, late=late), *ends.get(one.consumer_id, ())[:REASONS]]:
            since = None if one.lag is None else now - one.lag
            found.append(
                Trouble(one.consumer_id, state(one), tuple(why), since, one.advice, one.dead)
            )
    return sorted(found, key=lambda one: one.rank)


def _why(one: ConsumerStatus, *, late: bool) -> Iterator[str]:
    if one.stalled is not None or one.halted:
        yield _stopped(one)
    if one.dead:
        yield _failed(one)
    if late or one.pending is None:
        yield waiting(one)


def _stopped(one: ConsumerStatus) -> str:
    return one.stalled or f"waits for {one.waits_for}"


def _failed(one: ConsumerStatus) -> str:
    return f"{count(one.dead, 'event')} failed for good"


def _seconds(at: str | None) -> float | None:
    """Return the time of an event in seconds since 1970."""
    with suppress(ValueError):
        return None if at is None else datetime.fromisoformat(at).timestamp()
    return None


def tail(path: str) -> str:
    """Return the last lines of a file, "" if it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        lines = file.read(TAIL).decode(errors="replace").splitlines()
        return "\n".join(lines[-LINES:])
    return ""


def _is_late(one: ConsumerStatus, earlier: float | None) -> bool:
    """Return whether a consumer falls behind: it is late, and was less so before."""
    if one.lag is None or one.stalled is not None or one.paused or one.lag <= LATE:
        return False
    return one.lag > (LONG if earlier is None else earlier)


def _ending(claims: Iterable[ClaimInfo], now: float) -> Iterator[tuple[str, str]]:
    """Yield the consumers of claims of which less than a third of the time is left, and why."""
    for one in claims:
        left, whole = one.deadline_ms - now * 1000, one.deadline_ms - one.claimed_at_ms
        if one.lost or left < whole / 3:
            ends = "has ended" if one.lost or left < 0 else f"ends in {left / 1000:.0f}s"
            what = f"the claim of {one.worker or 'a worker'} on event {one.event_id} {ends}"
            yield one.consumer_id, what


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
