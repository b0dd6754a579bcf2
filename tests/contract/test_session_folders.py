"""Importing all session files in a folder.

The kind: one file of many keeps others from being imported, is imported where it does not belong,
or is left out without a word. Members: a file that may not be read, of another session of the same
name, in a folder that may not be read; a file that is no session, of JSON lines or not, empty; the
folder of a session, and one whose session is gone; a link in a circle; the thread itself; a folder
in a folder; files that were imported before and have grown, or are the same; a thread that fails.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from eventq.errors import LogicError, StoreError
from eventq.sessions.imports import Import
from eventq.system import zstd
from tests.sessions.support import answers, call, entry, header, says

if TYPE_CHECKING:
    import eventq

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


def write(path: Path, *entries: Any) -> str:
    """Write a session file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    return str(path)


def taken(thread: eventq.Thread, folder: Path) -> dict[str, Any]:
    """Import a folder; return for each file whether it was new, or the error."""
    return {
        os.path.relpath(one.path, folder): one.error.what if one.error else one.is_new
        for one in thread.sessions.import_folder(str(folder))
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for files."""
    return tmp_path / "files"


def test_each_session_below_is_imported(thread: eventq.Thread, folder: Path) -> None:
    """Those of subagents come with their session, others stay out, and a second time adds nothing."""
    task = answers("y", "x", call("t1", "Task", prompt="go"))
    write(folder / "p" / "one.jsonl", says("x", None), task)
    side = says("s1", None, "go", isSidechain=True, agentId="k")
    write(folder / "p" / "one" / "subagents" / "agent-k.jsonl", side)
    write(folder / "gone" / "subagents" / "agent-l.jsonl", side)
    write(folder / "q" / "r" / "two.jsonl", header(), entry("a", None))
    write(folder / "q" / "history.jsonl", {"display": "x", "project": "/a"})
    (folder / "q" / "notes.txt").write_text("{}")
    (folder / "q" / "empty.jsonl").touch()
    (folder / "q" / "circle").symlink_to(folder)
    found = taken(thread, folder)
    assert found == {"p/one.jsonl": True, "q/r/two.jsonl": True}
    assert {one.name for one in thread.contexts} == {"one", "one/agent-k", header()["id"]}
    assert set(taken(thread, folder).values()) == {False}
    write(
        folder / "p" / "one" / "subagents" / "agent-k.jsonl",
        side,
        says("s2", "s1", isSidechain=True, agentId="k"),
    )
    write(folder / "q" / "r" / "two.jsonl", header(), entry("a", None), entry("b", "a"))
    assert taken(thread, folder) == {"p/one.jsonl": True, "q/r/two.jsonl": True}


def test_what_codex_has_compressed(thread: eventq.Thread, folder: Path) -> None:
    """It is a session as well, unless the file that it was made of is there too."""
    meta = {"type": "session_meta", "payload": {"id": "c1", "cwd": "/a"}}
    path = write(folder / "rollout-c1.jsonl", meta, {"type": "event_msg", "payload": {}})
    (folder / "rollout-c1.jsonl.zst").write_bytes(zstandard.compress(b"{}\n"))
    assert taken(thread, folder) == {"rollout-c1.jsonl": True}
    (folder / "rollout-c1.jsonl.zst").write_bytes(zstandard.compress(Path(path).read_bytes()))
    os.unlink(path)
    assert taken(thread, folder) == {"rollout-c1.jsonl.zst": False}


def test_a_compressed_file_is_expanded_once(
    thread: eventq.Thread, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is looked at only, as it is no session."""
    expanded, real = [], zstd.ZstdDecompressor

    def counted(**limits: Any) -> Any:
        expanded.append(limits)
        return real(**limits)

    monkeypatch.setattr(zstd, "ZstdDecompressor", counted)
    folder.mkdir()
    data = json.dumps(says("a", None)).encode() + b"\n"
    (folder / "s.jsonl.zst").write_bytes(zstandard.compress(data))
    (folder / "t.jsonl.zst").write_bytes(zstandard.compress(b"{}\n"))
    assert taken(thread, folder) == {"s.jsonl.zst": True}
    assert len(expanded) == 2


def test_names_that_begin_alike(thread: eventq.Thread, folder: Path) -> None:
    """Long names of files are cut, and each session has its own nevertheless."""
    for end in "ab":
        write(folder / f"{'n' * 140}-{end}.jsonl", says(end, None))
    assert [*taken(thread, folder).values()] == [True, True]
    assert [*taken(thread, folder).values()] == [False, False]
    names = {one.name: one.generation for one in thread.sessions.views.all()}
    assert [*names.values()] == [1, 1]
    assert {len(name) for name in names} == {110}


def test_a_file_that_fails_is_named_and_the_rest_goes_on(
    thread: eventq.Thread, folder: Path
) -> None:
    """That is one of another session of its name, and what may not be read."""
    write(folder / "a" / "s.jsonl", says("x", None))
    write(folder / "b" / "s.jsonl", says("y", None))
    write(folder / "c.jsonl", says("z", None))
    found = taken(thread, folder)
    assert (found["a/s.jsonl"], found["c.jsonl"]) == (True, True)
    assert "is another one here: its file was" in found["b/s.jsonl"]
    if os.geteuid():
        os.chmod(folder / "a", 0)
        assert "could not be read" in taken(thread, folder)["a"]
        os.chmod(folder / "a", 0o700)


def test_a_thread_is_not_imported_into_itself(thread: eventq.Thread, folder: Path) -> None:
    """A folder in it is refused, as is that of a session; the thread in a folder is passed over."""
    write(folder / "s.jsonl", says("x", None))
    (folder / "s").mkdir()
    with pytest.raises(LogicError, match=r"is the folder of a session - give '.*s\.jsonl'"):
        taken(thread, folder / "s")
    if os.path.exists(os.path.join(thread.path, "events.db")):
        with pytest.raises(LogicError, match="is inside the thread"):
            taken(thread, type(folder)(thread.path))


def test_a_thread_that_fails_ends_the_import(
    thread: eventq.Thread, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the thread would be wrong with each file."""
    write(folder / "s.jsonl", says("x", None))

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is gone", "look for it")

    monkeypatch.setattr(Import, "read", fail)
    with pytest.raises(StoreError, match="the disk is gone"):
        taken(thread, folder)


@pytest.mark.engines("sqlite")
def test_a_file_without_anything_new_writes_nothing(thread: eventq.Thread, folder: Path) -> None:
    """The database and its WAL stay as they are, and each file is read as a whole once."""
    for name in "abc":
        write(
            folder / f"{name}.jsonl", *(says(f"{n}", str(n - 1) if n else None) for n in range(50))
        )
    taken(thread, folder)

    def state() -> list[tuple[int, int]]:
        names = ("events.db", "events.db-wal")
        found = (os.stat(os.path.join(thread.path, name)) for name in names)
        return [(one.st_size, one.st_mtime_ns) for one in found]

    was = state()
    assert set(taken(thread, folder).values()) == {False}
    assert state() == was
