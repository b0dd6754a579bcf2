"""The first view, of one thread or of all: who needs a person, what is at work, what came to pass.

Each thread is looked at by itself; what is shown is chosen among all of them, and only of that the
rest is read: last words, failures in each minute.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.errors import EventqError
from eventq.http.pages.page_request import path_of, whole_in
from eventq.http.pages.wording import GOING, activity
from eventq.log.questions import answered
from eventq.memory.turns import View, unread
from eventq.record import Record
from eventq.serving.attention import Need, Trouble, first_dead, needed, needs, troubles
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.http.pages.visits import Visit
    from eventq.records.info import ThreadStatus
    from eventq.records.question import Question
    from eventq.records.run import RunInfo
    from eventq.records.turn import ContextInfo
    from eventq.serving.served import ServedThread
    from eventq.store.session_rows import SessionRow
    from eventq.store.usage import Sums
    from eventq.thread import Thread

    Values = dict[str, Any]

CLAIMS = 1_000  # that are looked at
NEEDS = 50  # that are shown: as one is answered, the next comes
WORK = 20
TROUBLES = 8
ANSWERS = 5
ANSWERS_LISTED = 100  # on the page of them
CHANGED = 40  # contexts that are looked at, those that changed last
ENDED = 200  # runs whose end is looked at
WRITTEN = 5  # artifacts of a thread that are being written
BACK = 6  # turns that are looked at for the last words
WORDS = 300  # characters
SUMMED = 20_000  # lines of a session whose tokens are summed for the list
HOUR = 3600
EVER = (1 << 63) - 1  # ms


class Looked(Record):
    """What was seen of a thread; `problem` says why nothing could be."""

    name: str
    at: str
    problem: str = ""
    status: ThreadStatus | None = None
    needs: Sequence[Need] = ()
    needed: int = 0
    troubles: Sequence[Trouble] = ()
    work: Sequence[tuple[ContextInfo, RunInfo | None]] = ()
    changed: int = 0  # contexts and runs that changed in the last hour, of those looked at
    hours: Sequence[tuple[int, int, int, int]] = ()  # attempts done, failed, dead
    ended: tuple[int, int] = (0, 0)  # runs that ended well, and otherwise
    answers: Sequence[Question] = ()
    tokens: tuple[int, int] = (0, 0)  # those that models wrote and read, and read from caches
    runs: Mapping[int, RunInfo] = MappingProxyType({})  # in which something is asked


def look(thread: Thread, served: ServedThread, visit: Visit) -> Looked:
    """Look at one thread."""
    status = thread.status()
    claims = [*islice(thread.claims(), CLAIMS)] if any(c.leased for c in status.consumers) else []
    found = needs(status, first_dead(thread, status))
    served.needed = needed(status)
    work = _work(thread, status)
    is_counted = thread.database.has_queues()
    return Looked(
        served.name, path_of(served), "", status, found[:NEEDS], served.needed,
        troubles(status, claims, served.history.earlier(), clock.now())[:TROUBLES],
        work[:WORK],
        sum(1 for one, _ in work if one.updated_at_ms / 1000 > clock.now() - HOUR),
        thread.database.claims.totals(int(visit.since // 60), 60) if is_counted else (),
        _ended(thread, visit.since) if status.runs.get("completed") else (0, 0),
        answered(thread.database, None, ANSWERS)[0] if status.last_id else (),
        _tokens(thread, visit.since) if status.context_count else (0, 0),
        _runs(thread, {one.run for one in found[:NEEDS] if one.run}) if status.runs else {},
    )  # fmt: skip


def _work(thread: Thread, status: ThreadStatus) -> list[tuple[ContextInfo, RunInfo | None]]:
    """Return the contexts that changed last, with the runs they are; no run that has ended."""
    changed = status.contexts[:CHANGED]
    runs = _runs(thread, {one.context_id for one in changed}) if status.runs else {}
    return [
        (one, run) for one in changed
        if (run := runs.get(one.context_id)) is None or run.status in GOING
    ]  # fmt: skip


def _runs(thread: Thread, contexts: set[int]) -> dict[int, RunInfo]:
    """Return the runs among some contexts, by id."""
    found = thread.database.memory.runs.among(contexts) if contexts else ()
    return {one.run_id: one for one in found}


def _tokens(thread: Thread, since: float) -> tuple[int, int]:
    """Return the tokens that models took since a time: written and read, and read from caches."""
    hours = thread.usage_by_hour(int(since * 1000))
    return sum(one.out + one.fresh for one in hours), sum(one.cached for one in hours)


def _ended(thread: Thread, since: float) -> tuple[int, int]:
    """Return how many runs ended since a time well, with an exit code of 0, and otherwise."""
    ended = thread.database.memory.runs.ended(int(since * 1000), ENDED)
    well = sum(_code(thread, one) == 0 for one in ended)
    return well, len(ended) - well


def _code(thread: Thread, run: RunInfo) -> object:
    """Return the exit code of a run that has ended, None if it cannot be read."""
    try:
        end = thread.runs.node(bytes.fromhex(run.head.rpartition(":")[2]))
    except (EventqError, ValueError):
        return None
    meta = getattr(end, "meta", None)
    return meta.get("returnCode") if isinstance(meta, dict) else None


# --- what is chosen among all threads -------------------------------------------------------------


class Chosen(Record):
    """What of many threads is shown; `needed` counts also the needs that are not."""

    needs: Sequence[tuple[Looked, Need]]
    needed: int
    work: Sequence[tuple[Looked, ContextInfo, RunInfo | None]]
    troubles: Sequence[tuple[Looked, Trouble]]
    answers: Sequence[tuple[Looked, Question]]

    def of(self, one: Looked) -> Wanted:
        """Return what is to be read of a thread."""
        dead = [(where, each) for where, each in self.troubles if each.state == "dead"]
        return Wanted(
            [context for where, context, _ in self.work if where is one],
            [each.consumer for where, each in dead if where is one],
        )


class Wanted(Record):
    """Contexts whose last words are shown, and consumers whose failures are drawn."""

    contexts: Sequence[ContextInfo]
    consumers: Sequence[str]


class Details(Record):
    """Of contexts by id: the tool of a session, last words, tokens, those of its session.

    Of consumers by name: failures in each minute.
    """

    tools: dict[int, str]
    words: dict[int, str]
    tokens: dict[int, int]
    failures: dict[str, list[int]]


def choose(threads: Iterable[Looked]) -> Chosen:
    """Choose what is shown of some threads: the longest waits, the newest words."""
    looked = [one for one in threads if one.status is not None]
    asked = sorted(((o, n) for o in looked for n in o.needs), key=lambda pair: pair[1].urgency)
    work = [(one, *pair) for one in looked for pair in one.work]
    trouble = [(one, each) for one in looked for each in one.troubles]
    answers = [(one, each) for one in looked for each in one.answers]
    return Chosen(
        asked[:NEEDS],
        sum(one.needed for one in looked),
        nlargest(WORK, work, key=lambda row: row[1].updated_at_ms),
        sorted(trouble, key=lambda pair: pair[1].rank)[:TROUBLES],
        nlargest(ANSWERS, answers, key=lambda pair: pair[1].answered_at or ""),
    )


def details(thread: Thread, wanted: Wanted) -> Details:
    """Read what is shown of a thread beside what `look` has seen."""
    rows: dict[int, SessionRow] = {}
    for one in wanted.contexts:
        if (row := thread.database.memory.sessions.of_context(one.context_id)) is not None:
            rows[one.context_id] = row
    return Details(
        {number: row.tool for number, row in rows.items()},
        {one.context_id: newest_words(thread, one.head_turn_id) for one in wanted.contexts},
        _spent(thread, wanted, rows) if wanted.contexts else {},
        {name: _failures(thread, name) for name in wanted.consumers},
    )


def _spent(thread: Thread, wanted: Wanted, rows: Mapping[int, SessionRow]) -> dict[int, int]:
    """Return the tokens of contexts, or of their sessions; those of a huge session are left out."""
    usage = thread.database.memory.usage
    own = usage.by_context([one.context_id for one in wanted.contexts])
    found = {number: _outside_caches(sums) for number, sums in own.items()}
    names = {number: row.name for number, row in rows.items() if row.lines <= SUMMED}
    of_sessions = {
        name: sum(map(_outside_caches, usage.session(name, 0, EVER)[:2]))
        for name in {*names.values()}
    }
    for number, name in names.items():
        found[number] = found.get(number, 0) + of_sessions[name]
    return {number: tokens for number, tokens in found.items() if tokens}


def _outside_caches(sums: Sums) -> int:
    """Return the tokens out and in, without those of caches."""
    return sum(out + fresh for _, out, fresh, *_ in sums)


def _failures(thread: Thread, consumer: str) -> list[int]:
    """Return how many attempts of a consumer failed in each minute of the last hour."""
    now = int(clock.now() // 60)
    found = {one.minute: one.failed for one in thread.database.claims.minutes(consumer, now - 60)}
    return [found.get(minute, 0) for minute in range(now - 59, now + 1)]


def newest_words(thread: Thread, head: int) -> str:
    """Return what was said last up to a turn, on one line: texts, or else what was done last.

    "" where there is no turn, and why it cannot be read where that is so.
    """
    if not head:
        return ""
    done = ""
    try:
        turns = View(thread.contexts.turns, head).last(BACK, payload=False)
        for turn in reversed(turns):
            one = thread.contexts.turns.said(turn)
            if any(isinstance(block, said.Text) and block.text.strip() for block in one.blocks):
                return one.line(WORDS)
            done = done or one.line(WORDS)
    except EventqError as error:
        return done or unread(error)
    return done


# --- how it is shown ------------------------------------------------------------------------------


def shown(
    threads: Sequence[Looked], chosen: Chosen, found: Mapping[str, Details], visit: Visit
) -> Values:
    """Return the values of the page."""
    return {
        "threads": threads, "chosen": chosen, "details": found, "visit": visit, "now": clock.now(),
        "morning": _morning(threads, visit), "work": [_row(*one, found) for one in chosen.work],
        "context_count": sum(one.status.context_count for one in threads if one.status),
        "changed": sum(one.changed for one in threads), "written": _written(threads),
        "needing": sum(1 for one in threads if one.needed), "needed": chosen.needed,
        "last_at": max((one.status.last_at or "" for one in threads if one.status), default=""),
    }  # fmt: skip


def _morning(threads: Sequence[Looked], visit: Visit) -> Values:
    """Return the sums since a visit, and the counts of each hour since, for the chart."""
    done: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    dead = 0
    for one in threads:
        for hour, *counts in one.hours:
            done[hour] += counts[0]
            failed[hour] += counts[1]
            dead += counts[2]
    well, badly = (sum(one.ended[n] for one in threads) for n in (0, 1))
    hours = range(int(visit.since // HOUR), int(clock.now() // HOUR) + 1)
    return {
        "done": done.total(), "failed": failed.total(), "dead": dead,
        "ended": well + badly, "well": well, "badly": badly,
        "tokens": sum(one.tokens[0] for one in threads),
        "cached": sum(one.tokens[1] for one in threads),
        "is_least": any(sum(one.ended) >= ENDED for one in threads),
        "by_hour": [done[hour] for hour in hours], "bad": [failed[hour] for hour in hours],
    }  # fmt: skip


def _row(
    one: Looked, context: ContextInfo, run: RunInfo | None, found: Mapping[str, Details]
) -> Values:
    """Return a row of what is at work."""
    is_asked = run is not None and any(need.run == run.run_id for need in one.needs)
    status = run.status if run else "active"
    mark, word = activity(context.updated_at_ms, status, is_asked=is_asked)
    known = found.get(one.name)
    return {
        "at": f"{one.at}/runs/{run.run_id}" if run else f"{one.at}/contexts/{context.context_id}",
        "name": context.name or (f"run {run.run_id}" if run else f"context {context.context_id}"),
        "thread": one.name, "mark": mark, "word": word, "run": run,
        "tool": known.tools.get(context.context_id, "") if known else "",
        "words": known.words.get(context.context_id, "") if known else "",
        "tokens": known.tokens.get(context.context_id, 0) if known else 0,
        "turns": context.head_depth + 1 if context.head_turn_id else 0,
        "since": context.updated_at_ms / 1000,
    }  # fmt: skip


def _written(threads: Sequence[Looked]) -> list[Values]:
    """Return the artifacts that are being written, some of each thread."""
    return [
        {"at": one.at, "thread": one.name, "info": info}
        for one in threads if one.status for info in one.status.artifacts[:WRITTEN]
    ]  # fmt: skip


def answers(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List what was answered, the newest first, or what was before an event."""
    before = whole_in(ask.query, "before", 0)
    found, older = answered(thread.database, before or None, ANSWERS_LISTED)
    return "answers.html", {"answers": found, "older": older}
