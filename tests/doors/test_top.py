"""`eventq top`: who needs a person, in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGV = [sys.executable, "-m", "eventq", "top"]


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread."""
    with eventq.open(path) as thread:
        yield thread


def test_it_is_written_once_without_a_terminal(thread: eventq.Thread, path: str) -> None:
    """Who needs a person first, then consumers and contexts; control characters are escaped."""
    thread.ask("Deploy?", options=("yes", "no"), approval=True)
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.settle(dead=[one.token for one in thread.claim("w")], error="broken")
    thread.push("self", "note", "x")
    said = {"role": "assistant", "content": [{"type": "text", "text": "All is well."}]}
    thread.contexts.create("main").append(json.dumps(said))
    thread.ask("\x1b[31mRed?")
    done = subprocess.run(
        [*ARGV, "--thread", path], capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "120"}, check=True,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    assert "APPROVAL Deploy? (yes / no) - eventq answer 1" in done.stdout
    assert re.search(r"QUESTION .*31mRed\?", done.stdout)
    assert "DEAD     w: 1 event failed for good" in done.stdout
    assert re.search(
        r"^ *w +.*2 events wait +\d+s ago +0 done, 0 failed, 1 dead", done.stdout, re.MULTILINE
    )
    assert re.search(r"^ *main +1 +\d+s ago +All is well\.", done.stdout, re.MULTILINE)


def test_calm(thread: eventq.Thread, path: str) -> None:
    """And since when."""
    event = thread.push("self", "note", "x")
    done = subprocess.run([*ARGV, "--thread", path], capture_output=True, text=True, check=True)
    assert f"Nobody needs you: the last event came at {event.created_at}" in done.stdout


def test_threads_of_a_folder(tmp_path: os.PathLike[str]) -> None:
    """Each with its name; none is an error."""
    empty = subprocess.run([*ARGV, "--all", tmp_path], capture_output=True, text=True, check=False)
    assert (empty.returncode, "there is no thread below" in empty.stderr) == (1, True)
    for name in ("a", "b"):
        with eventq.open(os.path.join(tmp_path, name), create=True) as thread:
            thread.ask(f"{name}?")
    done = subprocess.run([*ARGV, "--all", tmp_path], capture_output=True, text=True, check=True)
    assert "a: QUESTION a?" in done.stdout
    assert "b: QUESTION b?" in done.stdout


def test_it_is_drawn_again_in_a_terminal(thread: eventq.Thread, path: str) -> None:
    """When something changes; Ctrl-C ends it, and the screen is as before."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        [*ARGV, "--thread", path], stdin=follower, stdout=follower, stderr=follower, env=env
    ) as process:
        os.close(follower)
        shown = b""
        while b"Nobody needs you" not in shown:
            shown += os.read(leader, 65_536)
        thread.ask("Which one?")
        while b"QUESTION Which one?" not in shown:
            shown += os.read(leader, 65_536)
        process.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in shown:  # the screen of before
            shown += os.read(leader, 65_536)
        assert process.wait(60) == 0
    os.close(leader)
