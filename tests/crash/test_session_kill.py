"""A process is killed while it imports a folder of sessions, or deletes one, at any step.

The kind: something is left that the next run does not put right. Members: the first transaction of
a session and each later one; a session that has grown, one that was rewritten, and one that is read
otherwise now; branches; a subagent and other files beside it; a compressed file; a deletion.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import eventq
from eventq.sessions import imports
from tests.crash.support import copy
from tests.crash.test_every_step import fell
from tests.engines import sqlite
from tests.sessions.support import answers, call, entry, header, result, says

if TYPE_CHECKING:
    from pathlib import Path

TREE = [header(id="tree"), *(entry(f"a{n}", f"a{n - 1}" if n else None) for n in range(9))]
BRANCHES = [entry("b1", "a3"), entry("b2", "b1"), entry("c1", "a5")]
TASK = [
    says("u1", None),
    answers("x", "u1", call("t1", "Task", prompt="go")),
    result("r", "x", "t1"),
    says("u2", "r"),
]
SIDE = [says("s1", None, "go", isSidechain=True, agentId="k"), says("s2", "s1", isSidechain=True)]
OLD = [header(id="rewritten"), entry("o1", None), entry("o2", "o1")]
NEW = [header(id="rewritten"), entry("n1", None), *(entry(f"n{n}", "n1") for n in range(2, 6))]
NOTED = [{"type": "note", "timestamp": "t"}, says("v1", None), says("v2", "v1"), says("v3", "v1")]
PACKED = [header(id="packed"), entry("p1", None), entry("p2", "p1")]


def written(entries: list[Any]) -> bytes:
    """Return a file."""
    return "".join(json.dumps(one) + "\n" for one in entries).encode()


FILES = {
    "noted": written(NOTED),
    "packed": written(PACKED),
    "rewritten": written(NEW),
    "task": written(TASK),
    "task/agent-k": written(SIDE),
    "tree": written([*TREE, *BRANCHES]),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs, as no power is cut here, and use small transactions."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(imports, "BATCH_LINES", 4)
    monkeypatch.setattr(imports, "BATCH_TURNS", 4)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a folder of sessions, and a thread with an earlier state of some."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "tree.jsonl").write_bytes(written(TREE[:4]))
    (folder / "rewritten.jsonl").write_bytes(written(OLD))
    (folder / "noted.jsonl").write_bytes(written(NOTED[:1]))  # whose tool does not show yet
    with eventq.open(eventq.init(tmp_path / "template")) as thread:
        assert all(one.error is None for one in thread.sessions.import_folder(str(folder)))
    for name in ("noted", "rewritten", "task", "tree"):
        (folder / f"{name}.jsonl").write_bytes(FILES[name])
    (folder / "packed.jsonl.zst").write_bytes(zstandard.compress(FILES["packed"]))
    (folder / "task" / "subagents").mkdir(parents=True)
    (folder / "task" / "subagents" / "agent-k.jsonl").write_bytes(FILES["task/agent-k"])
    (folder / "task" / "tool-results").mkdir()
    (folder / "task" / "tool-results" / "t.txt").write_bytes(b"a result")
    return tmp_path


def bring(path: str, place: Path) -> None:
    """Import the folder."""
    with eventq.open(path) as thread:
        made = [*thread.sessions.import_folder(str(place / "in"))]
        assert [one.error for one in made] == [None] * 5


def shown(thread: eventq.Thread) -> dict[str, Any]:
    """Return the lines of each session, its subagents', and the turns of each context."""
    heads = {str(one.name): thread.contexts.get(str(one.name)) for one in thread.contexts}
    names = {*thread.sessions.views.names(), *(one for one in heads if "/agent-" in one)}
    lines = {one: b"".join(thread.sessions.lines(one)) for one in names}
    return {
        name: (lines.get(name), [one.payload for one in found.replay()])
        for name, found in heads.items()
    }


def counts(thread: eventq.Thread) -> list[Any]:
    """Return how many turns and lines there are."""
    sql = "SELECT (SELECT count(*) FROM turns), count(*) FROM session_lines"
    return [*sqlite(thread.database).run(sql)]


def beside(thread: eventq.Thread, place: Path) -> dict[str, bytes]:
    """Return the files that an export writes beside a session."""
    folder = place / f"out-{len([*place.iterdir()])}"
    thread.sessions.export_folder("task", f"{folder}.jsonl", print)
    return {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def look(thread: eventq.Thread) -> None:
    """Look at each session in every way; each has lines, and these begin its file."""
    views = thread.sessions.views
    for one in views.found():
        assert one.lines > 0
        assert FILES[one.name].startswith(b"".join(thread.sessions.lines(one.name))) or (
            one.name == "rewritten" and one.generation == 1
        )
        assert [len([*thread.sessions.lines(one.name, generation=1)])] > [0]
        assert len(views.generations(one.name)) == one.generation
        views.branches(one.name), views.notes(one.name), views.title(one.name)
        for tip in views.branches(one.name):
            assert [*views.entries(tip.context_id, print)]


@pytest.mark.parametrize("stride", [37, pytest.param(1, marks=pytest.mark.soak)])
def test_an_import_of_a_folder_that_is_killed(place: Path, stride: int) -> None:
    """The thread is sound, no session is without lines; the next run leaves what one alone does."""
    path = str(place / "thread")
    bring(copy(str(place / "template"), path), place)
    with eventq.open(path) as thread:
        wanted, files, total = shown(thread), beside(thread, place), counts(thread)
    assert {name: lines for name, (lines, _) in wanted.items() if lines} == FILES
    assert files == {"agent-k.jsonl": FILES["task/agent-k"], "t.txt": b"a result"}
    number, going, rounds = 0, True, 0
    while going:
        number += stride
        rounds += 1
        copy(str(place / "template"), path)
        going = fell(number, lambda: bring(path, place))
        with eventq.open(path) as thread:
            assert thread.check() == []
            look(thread)
            if rounds % 3 == 0:
                thread.gc(apply=True, grace=0)
                look(thread)
        bring(path, place)
        with eventq.open(path) as thread:
            assert thread.check() == []
            thread.gc(apply=True, grace=0)
            assert (shown(thread), beside(thread, place), counts(thread)) == (wanted, files, total)
    assert rounds > 10


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["tree", "rewritten", "task"])
def test_a_deletion_that_is_killed(place: Path, name: str, stride: int) -> None:
    """The session is there whole, or gone; the others are as they were, and again deletes it."""
    path, template = str(place / "thread"), str(place / "full")
    bring(copy(str(place / "template"), template), place)
    with eventq.open(template) as thread:
        whole = shown(thread)
    rest = {one: told for one, told in whole.items() if one.partition("/")[0] != name}

    def remove() -> None:
        with eventq.open(path) as thread:
            thread.sessions.remove(name)

    number, going, seen = 0, True, []
    while going:
        number += stride
        copy(template, path)
        going = fell(number, remove)
        with eventq.open(path) as thread:
            assert thread.check() == []
            seen.append(shown(thread) == whole)
            assert seen[-1] or shown(thread) == rest
            if seen[-1]:
                thread.sessions.remove(name)
            thread.gc(apply=True, grace=0)
            assert shown(thread) == rest
            assert thread.check() == []
        bring(path, place)  # it comes again
        with eventq.open(path) as thread:
            assert shown(thread)[name] == whole[name]
    assert seen[0]
    assert not seen[-1]
