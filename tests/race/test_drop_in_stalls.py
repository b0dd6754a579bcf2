"""Under the name `thread` a stall lasts until the next push or dispatch, as with the original tool.

Members of the kind: one push, a batch, a dispatch that somebody asks for, and one that a notifier
runs; not a push under the name `eventq`, not a consumer that is paused or run for each event, and
no dispatch that starts by itself, or a stall would never last. The journal names `thread` commands,
also those lines that a detached supervisor writes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.race.support import Box, until

BIN = os.path.dirname(sys.executable)
PUSH = ("push", "--source", "self", "--type", "t", "--content", "x")
LINE = '{"source":"self","type":"t","content":"x"}\n'


def command(box: Box, program: str, *words: str, text: str = "") -> None:
    """Run a command under a name."""
    done = subprocess.run(
        [os.path.join(BIN, program), *words, "--thread", box.path],
        input=text, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""


def stalled(box: Box) -> None:
    """Have a consumer that fails until a file is there, and has stalled."""
    handler = f"test -e {box.folder}/good || exit 3; {box.handler()}"
    box.thread.subscribe("w", handler, max_attempts=2)
    command(box, "thread", *PUSH)
    until(lambda: box.consumer().stalled, "it stalls")
    until(lambda: not box.held(), "its supervisor has ended")
    with open(f"{box.folder}/good", "w", encoding="utf-8"):
        pass


@pytest.mark.parametrize("words", [PUSH, ("push", "--batch"), ("dispatch",)])
def test_a_stall_under_the_name_thread(box: Box, words: tuple[str, ...]) -> None:
    """The next push, batch or dispatch under the name `thread` starts a stalled consumer again."""
    stalled(box)
    (line,) = box.journal("is stalled")
    assert f"then: thread resume --thread {box.path} --consumer w" in line
    command(box, "thread", *words, text=LINE * (words[-1] == "--batch"))
    until(box.all_handled, "all is handled")
    assert not box.consumer().stalled


def test_a_stall_under_the_name_eventq(box: Box) -> None:
    """A push or a dispatch under the name `eventq` leaves a stall, and so does one of its own."""
    stalled(box)
    command(box, "eventq", *PUSH)
    box.run("dispatch", "--thread", box.path)
    box.settle()
    assert box.consumer().stalled


def test_what_a_push_leaves_alone(box: Box) -> None:
    """A consumer that is paused too, or is run for each event, stays stalled."""
    stalled(box)
    box.thread.pause("w")
    box.thread.subscribe("each", "exit 3", each=True, max_attempts=1, on_failure="stall")
    until(lambda: box.consumer("each").stalled, "it stalls")
    command(box, "thread", *PUSH)
    box.settle()
    assert box.consumer("w").stalled
    assert box.consumer("each").stalled
