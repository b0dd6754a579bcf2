"""A shell completes the names that a thread has, through the script that `completion` prints.

The kind of fault: a value that only a look into the thread tells has to be typed from memory. Its
members, which are tried here: consumers, contexts, runs, sessions, artifacts, outputs, types,
questions and settings; of a thread by --thread, by a word, or by the variable; and no thread. The
commands that `help` explains are known without one.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.doors.support import environ

if TYPE_CHECKING:
    from pathlib import Path

# What bash does for TAB: it calls the function that is registered for the program.
TAB = """
eval "$(eventq completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*"
_eventq_completion eventq "${@: -1}" "${@: -2:1}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tab(*words: str, **more: str) -> list[str]:
    """Return what bash offers for the last of the words after `eventq`."""
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", "eventq", *words], env=environ(**more),
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line]


_MESSAGE = {
    "type": "message",
    "message": {"role": "user", "content": [{"type": "text", "text": "hello"}]},
}


@pytest.fixture
def full(inbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A thread with some of everything that has a name, in the current directory."""
    monkeypatch.chdir(tmp_path)
    lines = [{"type": "session", "version": 3, "id": "s", "cwd": "/x"}, _MESSAGE]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with eventq.open(inbox) as thread:
        thread.sessions.import_file("s.jsonl", name="talk")
        thread.subscribe("worker")
        thread.subscribe("mailer")
        thread.contexts.create("main")
        thread.runs.start("solve", "task", system={"coder": "c"}, label="build")
        thread.push("self", "note", "x")
        thread.ask("Why?")
        thread.outputs.put("report", "c")
        thread.artifacts.put(b"x", tool="sh")
    return os.path.basename(inbox)


@pytest.mark.parametrize(("words", "offered"), [
    ("pop --consumer w", ["worker"]), ("unsubscribe --consumer ", ["worker", "mailer"]),
    ("context show m", ["main"]), ("turn append b", ["build"]), ("run show ", ["build"]),
    ("artifact ls --context m", ["main"]), ("artifact cat ", ["0"]), ("push --type n", ["note"]),
    ("session show ", ["talk"]), ("questions ", ["2"]), ("config r", ["runs.emit"]),
    ("peek --type n", ["note"]), ("tail --type n", ["note"]), ("help pu", ["push"]),
    ("help context sh", ["show"]), ("help push ", []), ("cat a", ["agent://0-report", "artifact://0"]),
])  # fmt: skip
def test_names_are_completed(full: str, words: str, offered: list[str]) -> None:
    """Of the thread that the variable names, those that begin with what is typed."""
    assert tab(*words.split(" "), EVENTQ_THREAD=full) == offered


def test_the_thread_of_the_command_line_comes_first(full: str) -> None:
    """It is an option or a word, and wins over the variable."""
    other = {"EVENTQ_THREAD": eventq.init("other")}
    assert tab("pop", "--thread", full, "--consumer", "m", **other) == ["mailer"]
    assert tab("pop", full, "--consumer", "m", **other) == ["mailer"]
    assert tab("context", "show", full, "m", **other) == ["main"]
    assert tab("run", "show", "--thread", full, "b", **other) == ["build"]
    assert tab("pop", "--consumer", "m", **other) == []


def test_without_a_thread_nothing_goes_wrong(full: str) -> None:
    """One that is missing or no thread has no names, and nothing is printed beside them."""
    assert tab("pop", "--consumer", "m") == []
    assert tab("pop", "--thread", "nowhere", "--consumer", "m") == []
    assert not os.path.exists("nowhere")
    os.truncate(f"{full}/events.db", 100)
    assert tab("pop", "--thread", full, "--consumer", "m") == []
