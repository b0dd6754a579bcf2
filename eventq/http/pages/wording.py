"""How pages show values: numbers, sizes, times, charts, states."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from eventq.http.pages import ansi
from eventq.log.notifier import quote as quoted
from eventq.records.source import sender_of
from eventq.said import media
from eventq.serving.attention import doing, state, waiting
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eventq.records.consumer import ConsumerStatus
    from eventq.records.turn import ContextInfo

LONGEST = 4_000  # characters of an event
GOING = ("active", "suspended")  # states of a run that is under way
FRESH = 300  # seconds after its last change for which somebody works
_KEY = re.compile(r'^ *("(?:[^"\\\n]|\\.)*+":)', re.MULTILINE)  # at the start of a line


def _iso(at: float | str) -> str:
    return at if isinstance(at, str) else clock.stamp(at)


def _points(values: Sequence[int]) -> str:
    """Return the points of a line through values, in a box of 100 by 100."""
    most, step = max(*values, 1), 100 / (len(values) - 1)
    return " ".join(
        f"{n * step:.2f},{100 - 100 * value / most:.1f}" for n, value in enumerate(values)
    )


def pretty(content: str, longest: int = LONGEST) -> str:
    """Return what an event says: JSON with indents, and at most so many characters."""
    shown = content
    if content[:1] in "{[" and len(content) <= longest:
        with suppress(ValueError, RecursionError):
            shown = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    left = len(shown) - longest
    return shown if left <= 0 else f"{shown[:longest]}\n… {count(left, 'more character')}"


def json_words(text: str) -> list[tuple[bool, str]]:
    """Return pieces of JSON with indents, and whether each is a key with its colon."""
    pieces, end = [], 0
    for key in _KEY.finditer(text):
        pieces += [(False, text[end : key.start(1)]), (True, key[1])]
        end = key.end(1)
    return [*pieces, (False, text[end:])]


def _mark(one: ConsumerStatus) -> str:
    """Return the class of the mark that a consumer's state has."""
    if one.stalled is not None or one.pending is None:
        return "bad"
    return "off" if one.paused else "good" if one.running or one.workers else "off"


def _bars(values: Sequence[int]) -> Iterator[tuple[str, str, str, str]]:
    """Yield left edge, top, width and height of the bars of counts, in a box of 100 by 100."""
    most, step = max(*values, 1), 100 / len(values)
    for n, value in enumerate(values):
        if value:
            high = 100 * value / most
            yield f"{n * step:.2f}", f"{100 - high:.1f}", f"{0.86 * step:.2f}", f"{high:.1f}"


def _most(values: Sequence[int], bad: Sequence[int] = ()) -> int:
    """Return the highest of the sums of counts."""
    return max((one + more for one, more in zip_longest(values, bad, fillvalue=0)), default=0)


def _stacked(
    values: Sequence[int], bad: Sequence[int] = ()
) -> Iterator[tuple[float, float, float, float]]:
    """Yield left edge, width, and the heights of both parts of the bars, in a box of 100 by 100."""
    most, step = max(1, _most(values, bad)), 100 / max(1, len(values))
    for n, (one, more) in enumerate(zip_longest(values, bad, fillvalue=0)):
        if one or more:
            parts = (n * step, 0.86 * step, 100 * one / most, 100 * more / most)
            yield tuple(round(part, 2) for part in parts)  # type: ignore[misc]


def _since(one: ConsumerStatus) -> float | None:
    return None if one.lag is None else clock.now() - one.lag


def rate(number: float | None) -> str:
    """Return a number a minute: 0, 0.4, 12; a dash where it is not known."""
    if number is None:
        return "\u2013"
    return f"{number:,.0f}" if number >= 10 or not number else f"{number:.1f}"


_STATE_WORDS = {  # by the states of `attention`
    "stalled": ("stalled", "bad"), "refused": ("its filter cannot be run", "bad"),
    "dead": ("dead", "warn"), "overdue": ("behind", "warn"), "behind": ("waits", "off"),
    "paused": ("paused", "off"), "running": ("works", "good"), "idle": ("idle", "off"),
}  # fmt: skip


def _stated(one: ConsumerStatus) -> tuple[str, str]:
    """Return the state of a consumer in a word or two, and the class of its mark."""
    word, mark = _STATE_WORDS[state(one)]
    return f"{one.dead:,} dead" if word == "dead" else word, mark


def activity(
    changed: int, status: str = "active", *, is_asked: bool = False
) -> tuple[str, str]:  # fmt: skip
    """Return mark and words of what a context does, or a run under way; `changed` is in ms."""
    if is_asked:
        return "warn", "waits for you"
    if status == "suspended":
        return "off", "suspended"
    return ("good", "works") if changed / 1000 > clock.now() - FRESH else ("off", "quiet")


def run_counts(runs: Mapping[str, int]) -> tuple[int, int]:
    """Return how many runs are under way, and how many ended, of the counts of their states."""
    going = sum(runs.get(state, 0) for state in GOING)
    return going, sum(runs.values()) - going


_FATE_MARKS = {
    "dead": "bad", "stalled": "bad", "held": "warn", "waits": "off", "finished": "good",
    "not for it": "off", "unknown": "off",
}  # fmt: skip


def took(milliseconds: float) -> str:
    """Return a time that something took in the two largest units: 41 s, 13 min 22 s, 1 h 51 min."""
    seconds = max(0, round(milliseconds / 1000))
    parts = (seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min")
    said = [(number, unit) for number, unit in (*parts, (seconds % 60, "s"))]
    first = next((n for n, (number, _) in enumerate(said) if number), len(said) - 1)
    shown = [f"{number} {unit}" for number, unit in said[first : first + 2] if number]
    return " ".join(shown) or f"{max(0.0, milliseconds):.0f} ms"


def amount(number: int) -> str:
    """Return a number of tokens: 206, 2.2 k, 33 k, 1.24 M."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.1f} k" if number < 9_950 else f"{number / 1_000:.0f} k"
    return f"{number / 1_000_000:.2f} M"


def in_scope(session: str | None, version: int = 1) -> str:
    """Return the query that names a session and, of a published output, a later version."""
    values = {"context": session} if session else {}
    return f"?{urlencode(values | ({'version': str(version)} if version > 1 else {}))}".rstrip("?")


def lead(text: str, most: int = 280) -> str:
    """Return the beginning of a text: two lines at most, "…" where more follows."""
    text = text.strip()
    start = "\n".join(text[: most + 1].split("\n")[:2])
    if len(start) == len(text):
        return text
    return f"{start[: most - 1].rstrip()}…"


def _extent(text: str) -> str:
    """Return how long a text is, in lines, or in characters where it has few."""
    lines = text.strip().count("\n") + 1
    return count(lines, "line") if lines > 2 else count(len(text), "character")


def _local(shape: str) -> Callable[[float], str]:
    return lambda at: datetime.fromtimestamp(at).astimezone().strftime(shape)


def named(one: ContextInfo) -> str:
    """Return the name of a context, or which one it is."""
    return one.name or f"context {one.context_id}"


FILTERS = {
    "iso": _iso, "points": _points, "bytes": media.amount, "mark": _mark,
    "bars": _bars, "ansi": ansi.text,
    "most": _most, "stacked": _stacked, "fate": _FATE_MARKS.__getitem__,
    "rate": rate, "stated": _stated, "state_words": _STATE_WORDS.__getitem__,
    "hash": lambda ref: ref.rpartition(":")[2],
    "count": count, "waiting": waiting, "since": _since, "doing": doing,
    "took": took, "amount": amount, "in_scope": in_scope,
    "lead": lead, "named": named, "extent": _extent, "quoted": quoted, "number": "{:,}".format,
    "run_counts": run_counts, "activity": activity,
    "day": _local("%a %H:%M"), "today": _local("%A %-d %B, %H:%M"),
    "sender": lambda source: sender_of(source).name,
    "segment": lambda text: quote(str(text), safe=""),
}  # fmt: skip
