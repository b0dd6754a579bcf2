"""The steps of a run as rows of a time axis, and all that one of them has: made without a clock."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.http.pages.markdown import html
from eventq.http.pages.talk import shown
from eventq.memory.nodes import COMPACT, END
from eventq.record import Record
from eventq.said.spending import of_meta
from eventq.said.values import dump, string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eventq.records.run import Step
    from eventq.records.spent import Spent

    Values = dict[str, Any]

WIDE = 1000  # of the axis, in units of the drawing
TEXT = 20_000  # characters of a text
LINE = 200  # of what stands for it in its row
PAIRS = 40  # of meta
COLOURS = 6  # of roles; from the seventh on they repeat
ROLES = 20  # that are listed
TICKS = 3  # parts of the axis
SHORT = 10_000  # ms, within which ticks may have tenths of a second


class Try(Record):
    """A try that failed before a step was taken, or that another one took the place of."""

    at: int  # when it was recorded, in ms
    ref: str
    meta: Any
    text: str

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The structured part as names and values."""
        return pairs_of(self.meta)


class Row(Record):
    """A step in the list: when it began, the state in words, and the bars on the axis."""

    step: Step
    kind: str  # "step", "compaction", "end", "other"
    colour: int
    words: str
    began: int
    state: tuple[str, str]  # class of the mark, word
    tries: tuple[Try, ...]
    bars: tuple[tuple[str, str, bool], ...]  # left edge, width, whether it failed
    usage: Spent | None

    @property
    def took(self) -> int:
        """How long it took, in ms, with the tries before."""
        return max(0, self.step.timestamp - self.began)


def colours_of(roles: Iterable[str]) -> dict[str, int]:
    """Return the colours of roles, in the order of their first steps."""
    names = dict.fromkeys(role for role in roles if role not in (COMPACT, END, ""))
    return {name: n % COLOURS + 1 for n, name in enumerate(names)}


def rows_of(
    steps: Sequence[Step], before: int, colours: Mapping[str, int], tries: Mapping[int, list[Try]]
) -> list[Row]:
    """Return steps as rows; `before` is when the one ahead of them was taken, in ms.

    A step began when the one before it was taken, unless its meta says how long it took.
    """
    begins, last = [], before
    for one in steps:
        took = _took(one)
        begins.append(last if took is None else one.timestamp - took)
        last = max(last, one.timestamp)
    start, end = min([before, *begins]), max([before, *(one.timestamp for one in steps)])
    return [
        _row(one, began, colours.get(one.role, 0), tries.get(one.number, []), start, end)
        for one, began in zip(steps, begins, strict=True)
    ]


def _took(one: Step) -> int | None:
    """Return how long a step took as its meta says, in ms."""
    found = one.meta.get("duration_ms") if isinstance(one.meta, dict) else None
    is_time = isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 1e12
    return int(found) if found is not None and is_time else None


def _row(
    one: Step, began: int, colour: int, tries: list[Try], start: int, end: int
) -> Row:  # fmt: skip
    kinds = {COMPACT: "compaction", END: "end", "": "other"}
    inside = [began, *(min(max(began, each.at), one.timestamp) for each in tries), one.timestamp]
    bars = tuple(
        (_x(left, start, end), _x(right - left, 0, end - start), n < len(tries))
        for n, (left, right) in enumerate(pairwise(inside))
    )
    return Row(
        one, kinds.get(one.role, "step"), colour, _words(one), began,
        _state(one, len(one.attempts)), tuple(tries), bars, of_meta(one.meta),
    )  # fmt: skip


def _words(one: Step) -> str:
    """Return what a step says, or else its meta as names and values; of an end its summary."""
    if words := said.one_line(one.content, LINE):
        return words
    if one.role == END and isinstance(one.meta, dict):
        return said.one_line(string(one.meta, "summary"), LINE)  # its state says the rest
    return said.one_line(" · ".join(f"{name} {value}" for name, value in pairs_of(one.meta)), LINE)


def _x(at: float, start: float, end: float) -> str:
    """Return where a time is on the axis."""
    return f"{WIDE * (at - start) / max(1, end - start):.1f}"


def _state(one: Step, tries: int) -> tuple[str, str]:
    if one.role == END:
        return ending(one.meta)
    return ("warn", f"{tries + 1} tries") if tries else ("good", "done")


def ending(meta: Any) -> tuple[str, str]:
    """Return mark and words of how a run ended, by what its end node says."""
    code = meta.get("returnCode") if isinstance(meta, dict) else None
    if type(code) is not int:
        return "off", "ended"
    if code == 0:
        return "off", "done"
    return "bad", "cancelled" if code == 130 else f"gave up, exit code {code}"


def ticks_of(rows: Sequence[Row], start: int) -> list[str]:
    """Return what stands at the ticks of the axis: the times since the run began."""
    if not rows:
        return []
    first = min(one.began for one in rows)
    wide = max(one.step.timestamp for one in rows) - first
    at = [max(0, first - start) + wide * n // TICKS for n in range(TICKS + 1)]
    shown = [_clock(one) for one in at]
    if at[-1] < SHORT and len({*shown}) < len(shown):
        return [f"{one / 1000:.1f} s" if one else "0" for one in at]
    return shown


def _clock(milliseconds: int) -> str:
    """Return a time on the axis: 0, 10:20, 1:51:00, 3 d."""
    seconds = round(milliseconds / 1000)
    hours, minutes, left = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours >= 48:
        return f"{hours // 24} d"
    shown = f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
    return shown if seconds else "0"


def roles_in(rows: Iterable[Row]) -> list[Values]:
    """Return what each role did: steps, time and tokens, those with the most time first."""
    found: dict[str, Values] = {}
    for one in rows:
        if one.kind != "step":
            continue
        made = found.setdefault(
            one.step.role,
            {"role": one.step.role, "colour": one.colour, "steps": 0, "took": 0, "out": 0},
        )
        made["steps"] += 1
        made["took"] += one.took
        made["out"] += one.usage.out if one.usage else 0
    return sorted(found.values(), key=lambda each: -each["took"])[:ROLES]


def opened(row: Row) -> Values:
    """Return what is shown of a step that is opened: what was asked, the answer, meta, tries."""
    one = row.step
    counted = ("usage", "tokens") if row.usage is not None else ()  # they stand by themselves
    return {
        "asked": html(one.edge_prompt[:TEXT], breaks=True) if one.edge_prompt.strip() else "",
        "answer": blocks_of(one.content),
        "meta": [(name, value) for name, value in pairs_of(one.meta) if name not in counted],
        "model": string(one.meta, "model"),
    }  # fmt: skip


def blocks_of(text: str) -> list[Values]:
    """Return the blocks that a text of a step says."""
    blocks = [shown(one) for one in said.read(text.encode("utf-8", "replace")).blocks]
    for block in blocks:
        if block["shape"] == "text":
            block["html"] = html(block["text"])
    return blocks


def pairs_of(meta: Any) -> list[tuple[str, str]]:
    """Return the structured part of a step as names and values, the first of them."""
    if meta in (None, {}, [], ""):
        return []
    items = [*meta.items()][:PAIRS] if isinstance(meta, dict) else [("", meta)]
    pairs = [
        (
            str(name)[:LINE],
            said.one_line(value if isinstance(value, str) else dump(value), 2 * LINE),
        )
        for name, value in items
    ]
    more = len(meta) - PAIRS if isinstance(meta, dict) else 0
    return [*pairs, ("…", f"{more:,} more")] if more > 0 else pairs
