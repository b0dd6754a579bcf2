"""A turn without bytes is appended when it was asked for, and not because stdin was empty."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

import eventq
from tests.doors.support import EVENTQ, environ, run

APPEND = ["turn", "append", "main"]
EVERY = pytest.mark.parametrize(
    "words",
    [
        APPEND, [*APPEND, "--file", "-"], [*APPEND, "--stream"], ["turn", "patch", "1"],
        ["turn", "patch", "1", "--file", "-"],
    ],
    ids=" ".join,
)  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> str:
    """A thread with a context of one turn."""
    path = eventq.init(tmp_path / "memory")
    with eventq.open(path) as thread:
        thread.contexts.create("main").append("first")
    return path


def payloads(path: str) -> list[bytes | None]:
    """Return all turns' payloads of a thread, which must check out without open turns."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        assert list(thread.contexts.open_turns()) == []
        return [turn.payload for turn in thread.contexts.get("main").last()]


@EVERY
def test_nothing_on_stdin_is_refused(memory: str, words: list[str]) -> None:
    """An empty stdin, as under cron or after a failed program, appends nothing, with a hint."""
    said = "stdin is empty - give --content or --file, or --allow-empty for a turn without bytes"
    for given in ("", None):
        done = run(*words, "--thread", memory, given=given)
        assert (done.code, done.out, done.err) == (2, "", f"Error: {said}\n")
    done = run(*words, "--thread", memory, "--json", given="")
    assert (done.code, json.loads(done.err)["error"]) == (2, "stdin is empty")
    assert payloads(memory) == [b"first"]


@EVERY
def test_allow_empty_takes_what_came(memory: str, words: list[str]) -> None:
    """With --allow-empty an empty stdin is a turn without bytes, and any other stdin what it is."""
    patched = words[1] == "patch"
    assert run(*words, "--allow-empty", "--thread", memory, given="").code == 0
    assert payloads(memory) == ([b""] if patched else [b"first", b""])
    assert run(*words, "--allow-empty", "--thread", memory, given="more").code == 0
    assert payloads(memory)[-1] == b"more"


def test_what_is_empty_and_named_is_taken(memory: str, tmp_path: Path) -> None:
    """An empty --content and an empty file are turns without bytes: somebody named them."""
    (tmp_path / "empty").touch()
    assert run(*APPEND, "--content", "", "--thread", memory).code == 0
    assert run(*APPEND, "--file", str(tmp_path / "empty"), "--thread", memory).code == 0
    assert payloads(memory) == [b"first", b"", b""]


@EVERY
def test_the_first_block_is_not_lost(memory: str, words: list[str]) -> None:
    """Looking whether something comes takes nothing away, however it comes."""
    data = os.urandom(3 << 20)
    with subprocess.Popen(
        [EVENTQ, *words, "--thread", memory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environ(),
    ) as process:
        assert process.stdin is not None
        for piece in (data[:1], data[1:70_000], data[70_000:]):
            process.stdin.write(piece)
            process.stdin.flush()
        process.stdin.close()
        assert process.wait(120) == 0
    assert payloads(memory)[-1] == data


def test_an_empty_terminal_appends_nothing(memory: str) -> None:
    """^D at once, at a terminal, is not an empty turn either."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [EVENTQ, *APPEND, "--thread", memory],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(),
    ) as process:
        os.write(ours, b"\x04")
        out, err = process.communicate(timeout=120)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"Error: stdin is empty")
    assert payloads(memory) == [b"first"]


def test_allow_empty_is_of_no_use_beside_content(memory: str) -> None:
    """It says how stdin is taken, so --content, and a tombstone, exclude it."""
    for words in ([*APPEND, "--content", "x"], ["turn", "patch", "1", "--tombstone"]):
        done = run(*words, "--allow-empty", "--thread", memory)
        assert (done.code, done.out) == (2, "")
        assert "exclude each other" in done.err
    assert payloads(memory) == [b"first"]
