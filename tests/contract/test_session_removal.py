"""Deleting a session, and an output.

The kind: something of what was deleted stays and is in the way, or something goes that others need.
Members: generations, branches, subagents; a fork of a branch, and its export; a context that somebody
has moved; a name of a branch, of a subagent, of nothing; a file that is imported again; a folder that
is imported or exported again; an output of several versions, with others below it; a collection, and
`check` after it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import ConflictError, LogicError, UnknownOutputError, UnknownSessionError
from tests.sessions.support import answers, call, entry, header, says

if TYPE_CHECKING:
    from pathlib import Path

    import eventq

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


def load(thread: eventq.Thread, folder: Path, name: str, *entries: Any) -> str:
    """Import a file of these entries; return its path."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    thread.sessions.import_file(str(path), name=name)
    return str(path)


def test_all_of_a_session_goes(thread: eventq.Thread, tmp_path: Path) -> None:
    """Generations, branches, subagents; a collection frees the rest, and it can come again."""
    task = answers("y", "x", call("t1", "Task", prompt="go"))
    load(thread, tmp_path, "s", says("old", None))
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    side = says("s1", None, "go", isSidechain=True, agentId="k")
    (tmp_path / "s" / "subagents" / "agent-k.jsonl").write_text(json.dumps(side) + "\n")
    path = load(thread, tmp_path, "s", says("x", None), task, says("z", "x"))
    load(thread, tmp_path, "t", header(), entry("a", None))
    made = thread.sessions.remove("s")
    assert (made.lines, made.agents) == (5, 1)
    assert {"s", "s/agent-k"} < {*made.contexts}
    assert [one.name for one in thread.contexts] == ["t"]
    assert [*thread.sessions.views.names()] == ["t"]
    assert thread.gc(apply=True, grace=0).turns == 5
    assert thread.check() == []
    again = thread.sessions.import_file(path, name="s")
    assert (again.added, again.generation) == (3, 1)


def test_a_fork_stays(thread: eventq.Thread, tmp_path: Path) -> None:
    """It has its turns and can be exported after a collection."""
    load(thread, tmp_path, "s", header(), entry("a", None), entry("b", "a"), entry("c", "a"))
    thread.contexts.fork("s/b", name="mine").append(json.dumps({"x": 1}))
    thread.sessions.remove("s")
    thread.gc(apply=True, grace=0)
    assert [turn.depth for turn in thread.contexts.get("mine").replay()] == [0, 1, 2]
    assert b'"b"' in b"".join(thread.sessions.lines("mine"))
    assert thread.check() == []


def test_what_is_no_whole_session_is_refused(thread: eventq.Thread, tmp_path: Path) -> None:
    """A branch, what somebody has moved, and an unknown name: nothing is deleted."""
    load(thread, tmp_path, "s", header(), entry("a", None), entry("b", "a"), entry("c", "a"))
    with pytest.raises(LogicError, match="a part of session 's' - delete the whole"):
        thread.sessions.remove("s/b")
    with pytest.raises(UnknownSessionError):
        thread.sessions.remove("nobody")
    thread.contexts.get("s/b").append("mine")
    with pytest.raises(ConflictError, match="context 's/b' has moved on from the session - keep"):
        thread.sessions.remove("s")
    assert {one.name for one in thread.contexts} == {"s", "s/b"}
    assert thread.sessions.views.info("s").lines == 4


def test_an_output_goes_with_its_versions(thread: eventq.Thread) -> None:
    """Those below it stay, its number is not assigned again, and its bytes are collected."""
    made = thread.outputs.put("Scout", "one")
    thread.outputs.publish(made.output_id, "two")
    below = thread.outputs.put("Helper", "three", made.output_id)
    assert thread.outputs.remove(made.output_id) == 2
    assert [one.output_id for one in thread.outputs] == [below.output_id]
    for name in (made.output_id, "9-Nobody", "../x"):
        with pytest.raises(UnknownOutputError):
            thread.outputs.remove(name)
    assert thread.gc(apply=True, grace=0).blobs == 2
    assert thread.outputs.put("Scout", "again").output_id == "1-Scout"
    assert thread.check() == []


def test_an_output_that_was_a_file_can_come_back(thread: eventq.Thread, tmp_path: Path) -> None:
    """An export leaves it out, and importing its folder again brings it."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "0-Scout.md").write_text("found")
    path = load(thread, tmp_path, "s", header(), entry("a", None))
    outputs = thread.scope("s").outputs
    assert outputs.remove("0-Scout") == 1
    assert thread.check() == []
    thread.sessions.export_folder("s", str(tmp_path / "out.jsonl"), pytest.fail)
    assert not (tmp_path / "out" / "0-Scout.md").exists()
    assert thread.sessions.import_file(path, name="s").files == 1
    assert outputs.read("0-Scout") == b"found"
