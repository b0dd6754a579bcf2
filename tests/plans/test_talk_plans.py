"""What the page of a conversation asks of sessions is found by indexes, however long they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from tests.plans.support import scans

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plans.test_plans import Traced

TABLES = {"turns", "session_lines", "blobs"}  # sessions are few, their table may be read
LINES = (
    '{{"uuid":"u{n}","parentUuid":{above},"type":"user","sessionId":"s","isSidechain":{side},'
    '"message":{{"role":"user","content":"{n}"}}}}\n'
)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a thread with sessions that have subagents among their lines, for copying."""
    folder: Path = tmp_path_factory.mktemp("talk")
    path = str(folder / "thread")
    with eventq.open(path, create=True) as thread:
        for name in ("one", "two"):
            file = folder / f"{name}.jsonl"
            file.write_text("".join(
                LINES.format(n=n, above=f'"u{n - 1}"' if n else "null",
                             side="true" if n > 40 else "false")
                for n in range(60)
            ))  # fmt: skip
            thread.sessions.import_file(str(file), name=name)
    return path


def test_subagents_are_found_by_indexes(traced: Traced) -> None:
    """Those below some turns, where each begins, and which turns are a session's own."""
    views = traced.thread.sessions.views
    contexts = traced.thread.contexts
    (first,) = views.subagents([*range(1, 61)])
    assert (first.below, first.first) == (41, 42)
    head = contexts.get(first.context_id)
    steps = traced.of(lambda: (views.subagents([*range(1, 61)]), views.subagent(head)))
    assert steps
    assert [one for one in steps if scans(TABLES, *one)] == []
