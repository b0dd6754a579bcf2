"""`run watch`: what it prints of the changes that other processes make, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from tests.doors.support import EVENTQ, environ, objects, ok, refused, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq import Thread


@pytest.fixture
def box(tmp_path: Path) -> str:
    """Return a thread with the run `build` (1) of group `g`, and one (2) of none."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        thread.runs.start(eventq.NewRun("solve", "p", group="g"), label="build")
        thread.runs.start("other", "p").suspend()
    return path


@pytest.fixture
def thread(box: str) -> Iterator[Thread]:
    """Return that thread, opened in this process."""
    with eventq.open(box) as opened:
        yield opened


@pytest.fixture
def watching(box: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts the command in a process of its own."""
    started = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [EVENTQ, "run", "watch", "--thread", box, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ(),
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def next_of(process: subprocess.Popen[str]) -> Any:
    """Return the next line of a process as an object."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_changes_come_as_objects(
    box: str, thread: Thread, watching: Callable[..., subprocess.Popen[str]]
) -> None:
    """Each is what `run ls --json` prints of the run, with `op`; ^C ends it silently."""
    process = watching("--json")

    def listed(op: str, number: int) -> dict[str, Any]:
        (info,) = [one for one in objects("run ls --all --thread", box) if one["run_id"] == number]
        return {"op": op, **info}

    assert [next_of(process), next_of(process)] == [listed("active", 1), listed("active", 2)]
    assert list(listed("x", 1))[:3] == ["op", "run_id", "name"]
    thread.runs.get(1).step("a")
    assert next_of(process) == listed("step", 1)
    thread.runs.get(2).resume()
    assert next_of(process) == listed("resume", 2)
    thread.runs.get(2).cancel()
    assert next_of(process) == listed("end", 2)
    ok("context rm build --thread", box)
    assert next_of(process) == {"op": "remove", "run_id": 1}
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_changes_are_drawn_for_a_person(
    box: str, thread: Thread, watching: Callable[..., subprocess.Popen[str]]
) -> None:
    """Each is a line of `run ls` after the last change; of one group only what is of it."""
    process = watching("--group", "g")
    assert process.stdout is not None
    assert process.stdout.readline() == f"active  {ok('run ls --group g --thread', box)}"
    thread.runs.get(2).resume()
    thread.runs.get("build").end()
    line = process.stdout.readline()
    assert line.startswith("end  1 build  solve  completed  1 step  2")
    assert line == f"end  {ok('run ls --all --group g --thread', box)}"
    thread.contexts.delete("build")
    assert process.stdout.readline() == "remove  1\n"


@pytest.mark.parametrize("words", ["", "--json", "--group g"])
def test_a_closed_pipe_ends_it_quietly(box: str, words: str) -> None:
    """`| head` is no error, though nothing more is to be printed."""
    script = f"{EVENTQ} run watch --thread {box} {words} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
    )
    first, status = done.stdout.splitlines()
    assert ("active" in first, status, done.stderr) == (True, "0", "")


def test_a_thread_of_the_original_tool_is_refused(original: str) -> None:
    """The command only reads, so it does not bring the thread up to date, and says what does."""
    refused(1, "holds no turns or blobs", run("run watch --thread", original))
