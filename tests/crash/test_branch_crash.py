"""After a kill or a disk error at any step, a session's branches are completed by the next import."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import DiskError
from eventq.sessions import imports
from tests.crash.support import FaultyVFS, copy
from tests.crash.test_every_step import fell
from tests.engines import sqlite
from tests.sessions.support import answers, call, says

if TYPE_CHECKING:
    from eventq import Thread

Entry = dict[str, Any]
OLD = [
    says("u1", None), answers("a1", "u1", call("t1", "Task", prompt="go")), says("u2", "a1"), answers("a2", "u2"),
]  # fmt: skip
GROWN = [
    *OLD, says("u3", "a1"), answers("a3", "u3"), says("late", "not-yet"), answers("a3", "u3", more=1),
    says("not-yet", "u1"), answers("a4", "a3"),
]  # fmt: skip
REWRITTEN = [says("u1", None, "shorter"), *GROWN[1:]]
AGENT = [
    says("s1", None, "go", isSidechain=True, agentId="k"),
    answers("s2", "s1", isSidechain=True, agentId="k"),
]
WANTED = {
    "s": "u1 a1 u3 a3 a4", "s/a2": "u1 a1 u2 a2", "s/late": "u1 not-yet late", "s/agent-k": "u1 a1 s1 s2",
}  # fmt: skip


def spell(entries: list[Entry]) -> bytes:
    """Return a session file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs, as no power is cut here, and use small transactions."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(imports, "BATCH_LINES", 3)
    monkeypatch.setattr(imports, "BATCH_TURNS", 2)


@pytest.fixture(params=["grown", "rewritten"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Return a folder with a session that has grown, or was rewritten, since it was imported."""
    (tmp_path / "s.jsonl").write_bytes(spell(OLD))
    with eventq.open(eventq.init(tmp_path / "template")) as thread:
        thread.sessions.import_file(str(tmp_path / "s.jsonl"), name="s")
    (tmp_path / "s.jsonl").write_bytes(spell(GROWN if request.param == "grown" else REWRITTEN))
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    (tmp_path / "s" / "subagents" / "agent-k.jsonl").write_bytes(spell(AGENT))
    (tmp_path / "s" / "tool-results").mkdir()
    (tmp_path / "s" / "tool-results" / "t1.txt").write_bytes(b"output")
    return str(tmp_path)


def work(thread: Thread, place: str) -> None:
    """Import."""
    thread.sessions.import_file(f"{place}/s.jsonl", name="s")


def shown(thread: Thread) -> dict[str, str]:
    """Return the ids of the entries of each context."""
    return {
        one.name or "": " ".join(
            json.loads(turn.payload or b"{}")["uuid"]
            for turn in thread.contexts.get(one.context_id).replay()
        )
        for one in thread.contexts
    }  # fmt: skip


def after(place: str, path: str, *, collected: bool) -> tuple[int, int]:
    """Check what an import left, and that repeating it completes it; return what was left."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        before = shown(thread)
        assert before["s"] in ("u1 a1 u2 a2", WANTED["s"])
        left = len(before), int(sqlite(thread.database).run("SELECT count(*) FROM turns")[0][0])
        if collected:
            thread.gc(apply=True, grace=0)
            assert shown(thread) == before
        work(thread, place)
        assert shown(thread) == WANTED
        assert b"".join(thread.sessions.lines("s")) == Path(place, "s.jsonl").read_bytes()
        agent = b"".join(thread.sessions.lines("s/agent-k"))
        assert agent == spell(AGENT)
        twice = """
            SELECT count(*) FROM (
                SELECT 1 FROM turns GROUP BY coalesce(parent_id, 0), blob_id HAVING count(*) > 1
            )
        """
        assert sqlite(thread.database).run(twice) == [(0,)]
        assert thread.check() == []
    return left


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_a_disk_that_refuses(lasting: bool, stride: int, place: str, vfs: FaultyVFS) -> None:
    """After any failed change, importing again adds what is missing, and no turn twice."""
    template, path = f"{place}/template", f"{place}/thread"
    count = vfs.steps_of(copy(template, path), lambda thread: work(thread, place))
    assert count > 20
    left = set()
    for number in range(1, count + 1, stride):
        with (
            vfs.opened(copy(template, path), number, apsw.FullError, lasting=lasting) as thread,
            suppress(DiskError),
        ):
            work(thread, place)
        left.add(after(place, path, collected=number % 4 == 1))
    assert len(left) > 3


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.soak)])
def test_a_process_that_is_killed(place: str, stride: int) -> None:
    """After a kill at any step, importing again adds what is missing, and no turn twice."""
    path = f"{place}/thread"

    def imported() -> None:
        with eventq.open(path) as thread:
            work(thread, place)

    left: list[tuple[int, int]] = []
    number, going = 0, True
    while going:
        number += stride
        copy(f"{place}/template", path)
        going = fell(number, imported)
        left.append(after(place, path, collected=len(left) % 4 == 0))
    assert len(left) > 10
