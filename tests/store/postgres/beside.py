"""The engines beside each other: histories that are run on both, and the first difference.

A history is a list of steps, each the name of a method of a `Side` with its values. Both sides read
a clock that a step moves. What a step gives, or the error that it raises, must be equal.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import eventq
from eventq.errors import EventqError
from tests.servers import fresh, use_our_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.conftest import Clock

Step = tuple[str, dict[str, Any]]  # a method of a thread, or of a side, and its values


class _UndoError(Exception):
    """Ends a block that is to be undone."""


class Side:
    """A thread in one engine, open once or twice."""

    def __init__(self, path: str, folder: str) -> None:
        """Open the thread; `folder` is for what steps write outside of it."""
        self.path = path
        self.folder = folder
        self.open: list[eventq.Thread] = []
        self.done: Counter[str] = Counter()  # the steps that were not refused
        self.open_one()

    @property
    def thread(self) -> eventq.Thread:
        """The handle of the thread in use."""
        return self.open[0]

    def open_one(self) -> None:
        """Open the thread, once more."""
        self.open.append(eventq.open(self.path))
        use_our_clock(self.open[-1].database)

    def close(self) -> None:
        """Close what is open, and delete the folder."""
        for thread in self.open:
            thread.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def told(self, name: str, given: dict[str, Any]) -> object:
        """Return what a step gives, or the error that it raises."""
        try:
            return self.plain(self.call(name, given))
        except EventqError as error:
            said = str(error).replace(self.path, "PATH").replace(self.folder, "FOLDER")
            return type(error).__name__, said

    def call(self, name: str, given: dict[str, Any]) -> Any:
        """Do a step."""
        found = getattr(self if hasattr(self, name) else self.thread, name)(**given)
        self.done[name] += 1
        return found

    def plain(self, value: Any) -> Any:
        """Return an answer without what is random, or the engine's own."""
        if isinstance(value, (str, bytes, dict, tuple)) or not hasattr(value, "__iter__"):
            return value
        return [self.plain(one) for one in value]

    def check(self) -> list[str]:
        """Return what a check finds, and where: that both find the same is no agreement."""
        found = self.thread.check()
        return found and [self.path, *found]

    def swap(self) -> None:
        """Go on with another handle, as another process would."""
        if len(self.open) == 1:
            self.open_one()
        self.open.reverse()

    def block(self, steps: list[Step], undo: bool) -> tuple[object, ...]:
        """Do some steps as one change, or none of them when one fails."""
        found: tuple[object, ...] = ()
        with suppress(_UndoError), self.thread.write():
            found = tuple([self.plain(self.call(*step)) for step in steps])
            if undo:
                raise _UndoError
        return found


class Sides:
    """Both engines, and the clock that both read."""

    def __init__(
        self,
        side: type[Side],
        history: Callable[[int], list[Step]],
        pristine: str,
        folder: Path,
        postgres: str,
        clock: Clock,
    ) -> None:
        """Compare the histories of a kind of side."""
        self._side, self._history = side, history
        self._pristine, self._folder, self._postgres = pristine, folder, postgres
        self._clock, self._began = clock, clock.at
        self.done: Counter[str] = Counter()  # the steps that were not refused

    def _made(self, path: str) -> Side:
        folder = self._folder / uuid4().hex
        folder.mkdir()
        return self._side(path, str(folder))

    def difference(self, steps: Sequence[Step]) -> str | None:
        """Return the first step of a history that the engines answer differently, and how."""
        self._clock.at = self._began
        path = shutil.copytree(self._pristine, self._folder / uuid4().hex)
        sides = [self._made(str(path)), self._made(fresh(self._postgres))]
        try:
            for name, given in steps:
                if name == "move":
                    self._clock.move(**given)
                    self.done[name] += 1
                    continue
                ours, theirs = (side.told(name, given) for side in sides)
                if ours != theirs:
                    return f"{name} {given}\n SQLite:     {ours}\n PostgreSQL: {theirs}"
            return None
        finally:
            self.done += sides[0].done
            for side in sides:
                side.close()
            shutil.rmtree(path)

    def first_difference(self, seeds: Iterable[int]) -> str | None:
        """Return the first difference in some histories, with the least history that has one."""
        for seed in seeds:
            steps = self._history(seed)
            if self.difference(steps) is None:
                continue
            for place in reversed(range(len(steps))):
                fewer = steps[:place] + steps[place + 1 :]
                if self.difference(fewer) is not None:
                    steps = fewer
            told = "\n".join(f"  {name} {given}" for name, given in steps)
            return f"seed {seed}:\n{told}\nthe last answer: {self.difference(steps)}"
        return None


def fill(folder: str, files: dict[str, bytes]) -> str:
    """Write files to a folder, in place of those that are there, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    return folder
