"""How far one call goes through the modules: calls, files, and changes from one file to another."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.records.run import NewStep
from eventq.wire.frames import Appended, CreateContext
from tests.plans.support import called, is_ours
from tests.wire.support import append, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Until


@pytest.mark.parametrize(
    ("name", "most_calls", "most_files", "most_changes"),
    [("append", 45, 9, 20), ("step", 94, 12, 43)],
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
        os.utime(path, (0, 0))  # a folder that has changed just now is looked at again
        for _ in range(30):  # the first ones import, prepare and open
            work[name]()
        files = called(work[name])
    changes = sum(one != other for one, other in itertools.pairwise(files))
    assert (len(files) <= most_calls, len(set(files)) <= most_files, changes <= most_changes) == (
        True,
    ) * 3, files


class Served:
    """What the OS threads of a server call; each of them begins after `made` does."""

    def __init__(self) -> None:
        self.calls: dict[int, list[tuple[str, str]]] = {}

    def note(self, frame: Any, what: str, _: object) -> None:
        """Note the file and the function of each call of a function of the package."""
        code = frame.f_code
        if what == "call" and is_ours(code.co_filename):
            mine = self.calls.setdefault(threading.get_ident(), [])
            mine.append((code.co_filename, code.co_name))

    def is_done(self) -> bool:
        """Return whether both the loop and the writer have done what a frame makes them do."""
        ends = {functions[-1][1] for functions in list(self.calls.values())}
        return ends == {"go_on", "next_group"}


def test_a_frame_goes_through_few_functions(
    path: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm APPEND_TURN takes few function calls and files, from first byte to reply."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(seconds * 1000))  # no sweeps
    served = Served()
    threading.setprofile(served.note)
    try:
        with serving(path, until) as serve:
            peer = serve().peer()
            peer.ask(CreateContext(0))
            os.utime(path, (0, 0))  # as above
            for number in range(30):
                served.calls.clear()
                assert isinstance(peer.ask(append(1, b"hello %d" % number)), Appended)
                until(served.is_done, "all is done")
            traces = [[file for file, _ in one] for one in served.calls.values()]
    finally:
        threading.setprofile(None)
    changes = sum(one != other for files in traces for one, other in itertools.pairwise(files))
    calls = sum(map(len, traces))
    files = {file for trace in traces for file in trace}
    assert (calls <= 120, len(files) <= 13, changes <= 49) == (True,) * 3, traces
