"""Eight processes that push at once."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.contestants import enter
from bench.machine import worker
from bench.peers import installed
from bench.report import Row, Sample, percentile, versus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

PROCESSES = 8
_SETTLE = 0.2  # seconds between the last `ready` and the start


@dataclass(frozen=True, slots=True)
class Race:
    """One round of one contestant."""

    rate: float
    share: float  # what the slowest process stored, against an equal share
    p99: float  # of the process that fared worst
    worst: float
    failed: int


def run(plan: Plan) -> Iterator[Row]:
    """Measure eventq, bare apsw and the peers, all at FULL."""
    faults = installed(plan.place)
    seconds = plan.size(25, 10) / 10
    names = ["raw", "eventq", *(name for name, fault in faults.items() if not fault)]
    races = plan.take({name: _racer(plan, name, seconds) for name in names})
    what = f"{PROCESSES} processes push, FULL"
    raw = races.pop("raw")
    for name, found in races.items():
        mine = Sample([race.rate for race in found], "/s")
        yield versus(
            f"{what}: {name}",
            mine,
            Sample([r.rate for r in raw], "/s"),
            least=0.8 if name == "eventq" else 0,
        )
        yield from _details(f"{what}: {name}", found, raw)
    for name, fault in faults.items():
        if fault:
            yield Row(f"{what}: {name}", fault)


def _details(what: str, found: list[Race], raw: list[Race]) -> Iterator[Row]:
    shares, limit = (Sample([race.share * 100 for race in races], "%") for races in (found, raw))
    yield Row(f"{what}, the slowest process's share", shares, limit)
    p99, limit = (Sample([race.p99 for race in races], "ms") for races in (found, raw))
    yield versus(f"{what}, p99 of the worst-off process", p99, limit)
    worst, limit = (Sample([race.worst for race in races], "ms") for races in (found, raw))
    yield versus(f"{what}, the slowest push", worst, limit)
    if failed := sum(race.failed for race in found):
        yield Row(f"{what}, pushes that failed", str(failed))


def _racer(plan: Plan, name: str, seconds: float) -> Callable[[], Race]:
    directory = plan.place(name.replace("-", ""))
    enter(name, directory, "full").close()
    return lambda: race(name, directory, seconds)


def race(name: str, directory: str, seconds: float, processes: int = PROCESSES) -> Race:
    """Let several processes of one contestant push or append to one directory for some time."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(worker("push", name, directory, "full", synchronous="full"))
            for _ in range(processes)
        ]
        for child in children:
            child.hear()
        start = time.monotonic() + _SETTLE
        for child in children:
            child.tell(f"{start} {start + seconds}")
        answers = [json.loads(child.hear()) for child in children]
    counts = [len(answer["taken"]) for answer in answers]
    taken = [ms for answer in answers for ms in answer["taken"]]
    return Race(
        rate=len(taken) / seconds,
        share=min(counts) * processes / len(taken),
        p99=max(percentile(answer["taken"], 0.99) for answer in answers if answer["taken"]),
        worst=max(taken),
        failed=sum(answer["failed"] for answer in answers),
    )
