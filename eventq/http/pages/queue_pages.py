"""The pages of the queue: its consumers, one of them, and its dead letters."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq.errors import FilterError, UnknownConsumerError
from eventq.http.pages.acts import chosen_in
from eventq.http.pages.live_page import MOST_READ, told
from eventq.http.pages.wording import rate
from eventq.serving.attention import (
    STATES,
    died_by,
    doing,
    first_dead,
    reasons,
    state,
    tail,
    telling,
    troubles,
    waiting,
)
from eventq.serving.letters import LOOKED, letters
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.records.consumer import ConsumerStatus
    from eventq.serving.attention import Trouble
    from eventq.store.queue_rows import DeadRow
    from eventq.thread import Thread

    Values = dict[str, Any]
    Rates = tuple[float | None, float | None]

SHOWN = 100  # dead letters
CLAIMS = 1_000  # that are looked at
EXCERPT = 160  # characters of an event
MINUTES = 60
ORDERS = {"trouble": "by trouble", "name": "by name", "waiting": "by waiting"}


def consumers(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List the consumers, those in trouble first, with why, and what they did in the last hour."""
    status, history, now = thread.status(), ask.served.history, clock.now()
    claims = [*islice(thread.claims(), CLAIMS)] if any(c.leased for c in status.consumers) else []
    found = troubles(status, claims, history.earlier(), now)
    why = {one.consumer: one for one in found}
    dead: dict[str, list[DeadRow]] = {}
    for row in first_dead(thread, status):
        dead.setdefault(row.consumer, []).append(row)
    done = _done(thread, now - history.window())
    rows = [
        _row(
            one, why.get(one.consumer_id), dead.get(one.consumer_id, ()),
            history.rates(one, status.last_id, done[one.consumer_id]),
        )
        for one in status.consumers
    ]  # fmt: skip
    by = ask.query.get("by", "")
    by = by if by in ORDERS else "trouble"
    return "consumers.html", {
        "rows": sorted(rows, key=lambda row: _rank(row["one"], by)), "history": history,
        "summary": _summary(status.consumers), "orders": ORDERS, "by": by,
    }  # fmt: skip


def _rank(one: ConsumerStatus, by: str) -> tuple[Any, ...]:
    if by == "name":
        return (one.consumer_id.casefold(), one.consumer_id)
    if by == "waiting":
        return (-(one.pending or 0), one.consumer_id)
    return (STATES.index(state(one)), -(one.lag or 0), one.consumer_id)


def _row(
    one: ConsumerStatus, trouble: Trouble | None, dead: Sequence[DeadRow], rates: Rates
) -> Values:
    """Return what the list shows of a consumer."""
    return {
        "one": one, "why": [*_why(one, trouble, rates)], "rates": rates,
        "reasons": reasons(row.error for row in dead),
        "died_by": died_by([row.at for row in dead], one.dead),
    }  # fmt: skip


def _why(one: ConsumerStatus, trouble: Trouble | None, rates: Rates) -> Iterator[str]:
    """Yield why a consumer is in its state, without what its state and its numbers say."""
    known = {waiting(one), f"{count(one.dead, 'event')} failed for good"}
    yield from (each for each in (trouble.why if trouble is not None else ()) if each not in known)
    if one.pending is None and one.filter:
        yield one.filter[:EXCERPT]
    if not one.pending or one.paused or one.stalled is not None:
        return
    came, done = rates
    if came is not None and done is not None and state(one) == "overdue":
        yield f"{rate(came)} come a minute, {rate(done)} are done"
    if one.running or one.workers:
        yield doing(one)
    elif one.waits_for:
        yield f"waits for {one.waits_for}"


def _summary(found: Sequence[ConsumerStatus]) -> str:
    """Return how many consumers are in which state, and how many events wait."""
    states = Counter(map(state, found))
    stopped = states["stalled"]
    troubled = states["refused"] + states["dead"] + states["overdue"]
    waits, is_least = sum(one.pending or 0 for one in found), any(o.pending_is_least for o in found)
    parts = [
        f"{stopped:,} {'stands' if stopped == 1 else 'stand'} still" if stopped else "",
        f"{troubled:,} in trouble" if troubled else "",
        f"{states['paused']:,} paused" if states["paused"] else "",
    ]
    told = ", ".join(filter(None, parts)) or "all is well"
    verb = "waits" if waits == 1 else "wait"
    return f"{len(found):,}: {told}; {count(waits, 'event')}{' or more' * is_least} {verb}"


def _done(thread: Thread, since: float) -> Counter[str]:
    """Return how many attempts of each consumer were done since a time, as far as is kept."""
    found: Counter[str] = Counter()
    if thread.database.has_queues():
        for one in thread.database.claims.minutes(None, int(since // 60)):
            found[one.consumer] += one.done
    return found


def consumer(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one consumer: what waits, what it did in the last hour, and its dead letters."""
    name, reason = ask.names["consumer"], ask.query.get("reason", "")
    one = _known(thread, name)
    found = letters(thread, name, one.dead, reason)
    done, failed = _minutes(thread, name)
    now = clock.now()
    return "consumer.html", {
        "one": one, "history": ask.served.history, "output": tail(one.log) if one.log else "",
        "letters": found, "rows": _shown(thread, found.rows[::-1][:SHOWN]), "done": done,
        "failed": failed, "start": now - 60 * MINUTES, "end": now, "problem": _mistake(thread, one),
        "looked": LOOKED, "most": SHOWN,
        "total": one.dead if not reason else len(found.rows),
    }  # fmt: skip


def confirm(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the dead letters that were chosen, before they are dropped."""
    name, chosen = ask.names["consumer"], chosen_in(ask.query)
    one = _known(thread, name)
    has_any = bool(chosen) and thread.database.has_queues()
    rows = thread.database.claims.dead(name, ("", 0), SHOWN, chosen) if has_any else []
    return "drop.html", {
        "one": one, "rows": _shown(thread, rows[::-1]),
        "died_by": max((row.at for row in rows), default=0),
    }  # fmt: skip


def _known(thread: Thread, name: str) -> ConsumerStatus:
    """Return the status of a consumer. Raises UnknownConsumerError."""
    found = next((one for one in thread.status().consumers if one.consumer_id == name), None)
    if found is None:
        raise UnknownConsumerError(name)
    return found


def _minutes(thread: Thread, name: str) -> tuple[list[int], list[int]]:
    """Return how many attempts were done, and failed, in each minute of the last hour."""
    done, failed = [0] * MINUTES, [0] * MINUTES
    if thread.database.has_queues():
        first = int(clock.now() // 60) - MINUTES
        for one in thread.database.claims.minutes(name, first):
            place = min(MINUTES, one.minute - first) - 1  # the clock may have been set back
            done[place] += one.done
            failed[place] += one.failed
    return done, failed


def _shown(thread: Thread, rows: Sequence[DeadRow]) -> list[Values]:
    """Return dead letters with what their events say, as many as a page may hold."""
    events = [row.event for row in rows]
    found = thread.database.events.among(events)[0] if events else {}
    return [
        {
            "letter": row, "telling": telling(row.error),
            "words": told(found[row.event], MOST_READ).line(EXCERPT) if row.event in found else "",
        }
        for row in rows
    ]  # fmt: skip


def _mistake(thread: Thread, one: ConsumerStatus) -> str:
    """Return what is wrong with the filter of a consumer, with a caret under it."""
    try:
        thread.database.events.accept(one.filter)
    except FilterError as error:
        return f"{error.what} - {error.fix}\n{error.caret()}"
    return ""
