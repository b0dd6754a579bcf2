"""The command that sums tokens, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import eventq
from eventq.sessions.sums import count_rest
from eventq.system import clock
from tests.contract.test_usage import CLAUDE, claude, load, said
from tests.contract.test_usage_beside import uncount
from tests.doors.support import objects, ok, refused, run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.conftest import Until


def test_tokens_are_shown_by_model(path: str, tmp_path: Path) -> None:
    """As a table, with subagents beside a session, or as JSON; of a part, or of a time."""
    with eventq.open(path) as thread:
        agent = claude(9, "r9", 2_000, isSidechain=True, agentId="x")
        load(thread, tmp_path, [*CLAUDE, agent])
        thread.contexts.create("chat").append(json.dumps(said(5)))
        thread.runs.start("w", "p", label="build").step(
            "a", {"usage": {"output_tokens": 30}, "model": "a\x1bb"}, "x"
        )
    assert ok("usage --context s", path) == (
        "model                written   read  from a cache  responses\n"
        "claude-x                  46  1,269         1,200          3\n"
        "subagents beside it    2,000    423           400          1\n"
    )
    lines = [line.split() for line in ok("usage", path).splitlines()]
    assert [line[0] for line in lines] == ["model", "claude-x", "a\\x1bb", "m", "all"]
    assert lines[-1] == ["all", "2,081", "1,702", "1,600", "6"]
    assert ok("usage --run build", path).splitlines()[1].split()[1:] == ["30", "0", "0", "1"]
    (found,) = objects("usage --since 2026-03-01T10:05Z --until 2026-03-01T10:06Z --json", path)
    assert (found["out"], found["responses"], found["is_all"]) == (7, 1, True)
    assert ok("usage --since 2020-01-01 --until 2020-01-02", path).splitlines()[1].split() == [
        "all", "0", "0", "0", "0",
    ]  # fmt: skip


def test_lists_say_it_where_there_is_any(path: str, tmp_path: Path) -> None:
    """A session has those of its subagents as well; JSON has what it had."""
    with eventq.open(path) as thread:
        agent = claude(9, "r9", 2_000, isSidechain=True, agentId="x")
        load(thread, tmp_path, [*CLAUDE, agent])
        load(thread, tmp_path, CLAUDE[:1], "none")
        for label, meta in (
            ("build", {"usage": {"output_tokens": 1, "input_tokens": 1_234}}),
            ("rest", {}),
        ):
            thread.runs.start("w", "p", label=label).step("a", meta, "x")
    lines = {line.split()[0]: line for line in ok("session ls --thread", path).splitlines()}
    assert "  2,046 tokens written  " in lines["s"]
    assert "token" not in lines["none"]
    assert all("usage" not in one for one in objects("session ls --json --thread", path))
    assert "Tokens: 1 token written, 1,234 read" in ok("run show build --thread", path).splitlines()
    assert "Tokens" not in ok("run show rest --thread", path)
    with eventq.open(path) as thread:
        uncount(thread)
        thread.runs.get("build").step("b", {"usage": {"output_tokens": 5}}, "y")
    assert (
        "Tokens: at least 5 tokens written, 0 read"
        in ok("run show build --thread", path).splitlines()
    )
    assert "token" not in ok("session ls --thread", path)


def test_what_may_be_asked(path: str) -> None:
    """One of the two, which has to be there."""
    refused(2, "exclude each other", run("usage", "--context", "a", "--run", "b", path))
    refused(1, "context", run("usage", "--context", "a", path))
    refused(1, "run", run("usage", "--run", "b", path))


BARRED = """
import sys
from eventq.cli import main
from eventq.errors import ReadOnlyError
from eventq.store import opening
real = opening.open_database
def barred(directory, *, write=True, patience=None):
    if write:
        raise ReadOnlyError("it cannot be written", "mount it for writing")
    return real(directory, write=False)
opening.open_database = barred
main()
"""


def test_the_command_waits_for_who_writes(
    path: str, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """It is no page: it counts what is left when the other is done."""
    with eventq.open(path) as thread, eventq.open(path) as other:
        thread.contexts.create("chat").append(json.dumps(said(5)))
        uncount(thread)
        waits: list[float] = []
        pause = clock.pause

        def count(seconds: float) -> None:
            waits.append(seconds)
            pause(seconds)

        monkeypatch.setattr(clock, "pause", count)
        counts = threading.Thread(target=count_rest, args=(thread.database.memory, thread.blobs))
        with other.write():
            counts.start()
            until(lambda: sum(waits) > 0.1 or not counts.is_alive(), "it waits")
        counts.join()
        assert not thread.database.memory.usage.is_behind()


def test_what_is_not_counted_yet_is_said(path: str) -> None:
    """Where an older version has stored it and the thread cannot be written; else it is counted."""
    with eventq.open(path) as thread:
        thread.contexts.create("chat").append(json.dumps(said(5)))
        uncount(thread)

    def read(*more: str) -> str:
        words = [sys.executable, "-c", BARRED, "usage", "--thread", path, *more]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout

    assert (
        read().splitlines()[-1]
        == "not all: what an older version stored is counted once the thread can be written"
    )
    assert json.loads(read("--json"))["is_all"] is False
    assert ok("usage", path).splitlines()[1].split() == ["m", "5", "10", "0", "1"]
