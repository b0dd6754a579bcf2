"""How far one call of the library goes through its modules: calls, files, and changes from one file to another."""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.records import NewStep

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = os.path.dirname(str(eventq.__file__)) + os.sep


def traced(call: Callable[[], object]) -> list[str]:
    """Return the file of each call of a function of the package, in order."""
    files: list[str] = []

    def note(frame: Any, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return files


@pytest.mark.parametrize(
    ("name", "most_calls", "most_files", "most_changes"),
    [("append", 45, 6, 14), ("step", 90, 9, 34)],
)
def test_a_call_goes_through_few_functions(
    path: str, name: str, most_calls: int, most_files: int, most_changes: int
) -> None:
    """A warm append and a warm step stay within a few functions and files."""
    with eventq.open(path) as thread:
        main = thread.contexts.create()
        run = thread.runs.start("plan", "prompt", system={"coder": "text"})
        numbers = itertools.count()  # what is there already takes another way
        work: dict[str, Callable[[], object]] = {
            "append": lambda: main.append(f"hello {next(numbers)}"),
            "step": lambda: run.step(
                NewStep("coder", {"x": 1}, f"text {next(numbers)}", edge_prompt="do it")
            ),
        }
        for _ in range(30):  # a record is made quickly from the twentieth on
            work[name]()
        files = traced(work[name])
    changes = sum(one != other for one, other in itertools.pairwise(files))
    assert (len(files) <= most_calls, len(set(files)) <= most_files, changes <= most_changes) == (
        True,
    ) * 3, files
