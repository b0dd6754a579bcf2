"""What is noted and summed of tokens is found by indexes, however much of it there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from tests.contract.test_usage import CLAUDE, CODEX, claude, codex, item, load, said, tokens
from tests.plans.support import scans

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plans.test_plans import Traced

# Sessions are few: their table may be read.
TABLES = {"turns", "session_lines", "blobs", "usage", "context_log", "contexts", "run_attempts"}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a thread with sessions, chats and runs, for copying."""
    folder: Path = tmp_path_factory.mktemp("usage")
    path = str(folder / "thread")
    with eventq.open(path, create=True) as thread:
        load(thread, folder, CLAUDE)
        load(thread, folder, CODEX, "c")
        for n in range(30):
            thread.contexts.create(f"chat-{n}").append(said(n + 1, "r"))
            thread.runs.start("w", "p").step("a", {"usage": {"output_tokens": n + 1}}, "x")
    return path


def test_sums_are_found_by_indexes(traced: Traced) -> None:
    """Of a session, a chat, runs, a time, and its hours."""
    thread = traced.thread
    runs = [one.run_id for one in thread.runs.list()]
    steps = traced.of(lambda: [
        thread.usage(context="s"), thread.usage(context="chat-7"), thread.usage(run=runs[3]),
        thread.usage_of_runs(runs), thread.usage(since=1, until=2), thread.usage_by_hour(1, 2),
        thread.usage_of_sessions(["s", "c"]),
    ])  # fmt: skip
    assert steps
    assert [one for one in steps if scans(TABLES, *one)] == []


def test_sums_of_a_time_read_an_index_alone(traced: Traced) -> None:
    """The rows of a day lie apart where sessions of other days came in between."""
    thread = traced.thread
    steps = traced.of(lambda: [thread.usage(since=1, until=2), thread.usage_by_hour(1, 2)])
    found = [step for sql, step in steps if "FROM usage" in sql and "usage" in step]
    assert len(found) == 2
    assert all("COVERING INDEX usage_by_time" in step for step in found), found


def test_what_is_noted_looks_by_indexes_only(traced: Traced, tmp_path: Path) -> None:
    """At a response of before, and at turns that another session has."""
    thread = traced.thread
    more = [*CODEX, codex("turn_context", cwd="/", model="m"), item("x"), tokens(14, 3)]
    run = thread.runs.start("w", "p")

    def work() -> None:
        load(thread, tmp_path, [*CLAUDE, claude(8, "r3", 90)])
        load(thread, tmp_path, more, "c")
        chat = thread.contexts.get("chat-7")
        chat.append(said(40, "r"))
        run.attempt("a", {"usage": {"output_tokens": 5}}, "x")
        run.step("a", {"usage": {"output_tokens": 5}}, "x")
        run.poke({"usage": {"output_tokens": 6}}, "x")
        thread.database.memory.usage.appended((3, 0), 99, 10)

    steps = [one for one in traced.of(work) if "usage" in one[0] or "context_log" in one[0]]
    assert steps
    assert [one for one in steps if scans(TABLES, *one)] == []
    whole = "INDEX usage_by_context (context_id=?)"  # all responses of a chat
    assert [one for one in steps if one[1].endswith(whole)] == []
