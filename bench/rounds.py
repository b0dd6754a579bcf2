"""Rounds in turns: everything that is compared runs once a round, in an order that is reversed each time."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from bench.report import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


@dataclass
class Plan:
    """How large a run is, and the folder that holds whatever it writes."""

    quick: bool = False
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="eventq-bench-"))

    @property
    def rounds(self) -> int:
        """The number of rounds that count; one before them does not."""
        return 2 if self.quick else 5

    def size(self, full: int, quick: int) -> int:
        """Choose between the size of a full run and that of a quick one."""
        return quick if self.quick else full

    def place(self, name: str) -> str:
        """Return the path of a new directory, which is not made."""
        return os.path.join(tempfile.mkdtemp(dir=self.folder), name)

    def clear(self) -> None:
        """Delete what a part has left."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def take(
        self, tasks: Mapping[str, Callable[[], T]], *, rounds: int = 0, warm: bool = True
    ) -> dict[str, list[T]]:
        """Run all tasks once a round and give their results by name, without those of a first round that warms up."""
        found: dict[str, list[T]] = {name: [] for name in tasks}
        names = list(tasks)
        for number in range((rounds or self.rounds) + warm):
            for name in names if number % 2 else reversed(names):
                result = tasks[name]()
                if number or not warm:
                    found[name].append(result)
        return found


def rate(call: Callable[[int], object], count: int, events: int = 0) -> Callable[[], float]:
    """Return a task that calls `call(count)` and returns the events per second."""

    def task() -> float:
        start = time.perf_counter()
        call(count)
        return (events or count) / (time.perf_counter() - start)

    return task


def p50(call: Callable[[], object], count: int) -> Callable[[], float]:
    """Return a task that calls some times and gives the time in the middle, in ms."""

    def task() -> float:
        taken = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1_000)
        return percentile(taken, 0.5)

    return task
