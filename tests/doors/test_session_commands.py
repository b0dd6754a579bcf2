"""Commands that read the sessions of a thread."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.records.session import SessionBranch, SessionInfo
from tests.doors.support import objects, ok, raw_run, refused, run
from tests.sessions.support import answers, call, entry, header, says

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = {"type": "image", "data": base64.b64encode(bytes(range(256)) * 8).decode()}
PI = [
    header(), entry("a1", None), {"type": "session_info", "id": "n1", "parentId": "a1", "name": "A title"},
    entry("b1", "n1", message={"role": "assistant", "content": [{"type": "text", "text": "one\x1b[31m\ntwo"}, IMAGE]}),
    entry("c1", "a1"), entry("c2", "c1"),
]  # fmt: skip


def spell(entries: list[Any]) -> bytes:
    """Return a session file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


def noted(words: str, box: str) -> tuple[bytes, str]:
    """Run a command, which must succeed; return its bytes and what it notes beside them."""
    done = raw_run(*words.split(), "--thread", box)
    assert done.returncode == 0
    return done.stdout, done.stderr.decode()


@pytest.fixture
def box(tmp_path: Path) -> str:
    """Return a thread with two sessions, one of them with a subagent and two generations."""
    (tmp_path / "t").mkdir()
    with eventq.open(eventq.init(tmp_path / "box")) as thread:
        (tmp_path / "p.jsonl").write_bytes(spell(PI))
        thread.sessions.import_file(str(tmp_path / "p.jsonl"), name="p")
        task = answers("y", "x", call("t1", "Task", prompt="go"))
        for first in ("other", "hello"):
            (tmp_path / "t.jsonl").write_bytes(spell([says("x", None, first), task]))
            thread.sessions.import_file(str(tmp_path / "t.jsonl"), name="t")
        (tmp_path / "t" / "subagents").mkdir()
        side = says("s1", None, "go", isSidechain=True, agentId="k")
        (tmp_path / "t" / "subagents" / "agent-k.jsonl").write_bytes(spell([side]))
        thread.sessions.import_file(str(tmp_path / "t.jsonl"), name="t")
        thread.contexts.create("main").append("x")
    return str(tmp_path / "box")


def test_sessions_are_listed(box: str, tmp_path: Path) -> None:
    """One line each, what was used last first; objects with all that is known."""
    ends = '2026-03-01T00:00:00.000Z  /a  "hello"'
    newest = f"t  claude  2 lines  2 turns  1 branch  1 subagent  generation 2  {ends}"
    other = 'p  pi  6 lines  3 turns  2 branches  2026-01-02T00:00:00.000Z  /a  "A title"'
    assert ok("session ls --thread", box).splitlines() == [newest, other]
    assert ok("session ls --project /a --tool pi --thread", box).splitlines() == [other]
    assert ok("session ls --since 2026-02-01 --thread", box).splitlines() == [newest]
    assert ok("session ls --project /b --thread", box) == ""
    assert run("session ls --tool vi --thread", box).code == 2
    made = objects("session ls --thread", box)
    assert [list(one) for one in made] == [list(SessionInfo._fields)] * 2
    assert (made[1]["file"], made[1]["size"]) == (str(tmp_path / "p.jsonl"), len(spell(PI)))
    assert (made[1]["title"], made[1]["prompt"], made[1]["cwd"]) == ("A title", "hello", "/a")


def test_a_session_is_shown(box: str, tmp_path: Path) -> None:
    """Its title, file, generations, and each branch with where it ends and leaves the active one."""
    told = ok("session show p --thread", box).splitlines()
    assert told[:5] == [
        "Session: p", "Title: A title", "Tool: pi", f"File: {tmp_path}/p.jsonl",
        f"Size: {len(spell(PI)):,} bytes, 6 lines",
    ]  # fmt: skip
    assert told[6:] == [
        "* p  3 entries  ends at c2", "  p/b1  3 entries  ends at b1  leaves at a1",
    ]  # fmt: skip
    told = ok("session show t/agent-k --thread", box).splitlines()
    assert told[0] == "Session: t/agent-k"
    told = ok("session show t --thread", box).splitlines()
    assert told[5].startswith("Generation 1: 2 lines  20")
    assert told[7:] == [
        "* t  2 entries  ends at y", "* t/agent-k  3 entries  ends at s1  started by y",
    ]  # fmt: skip
    (made,) = objects("session show p --thread", box)
    assert (made["title"], len(made["generations"])) == ("A title", 1)
    assert [list(one) for one in made["branches"]] == [list(SessionBranch._fields)] * 2


def test_notes_are_shown(box: str, tmp_path: Path) -> None:
    """What is missing in a file, or was found in it, is printed with its line, and in JSON."""
    begins = "line 2 begins a branch: its parent is not in the file"
    found = "line 3 is not one JSON object: the 2 entries in it were found"
    glued = spell([entry("c", "b"), entry("d", "c")]).replace(b"\n", b"", 1)
    (tmp_path / "g.jsonl").write_bytes(spell([header(), entry("b", "gone")]) + glued)
    assert noted(f"session import {tmp_path}/g.jsonl --as g", box)[1].splitlines() == [
        found, begins
    ]  # fmt: skip
    told = ok("session show g --thread", box).splitlines()
    assert told[6:] == [f"Note: {found}", f"Note: {begins}", "* g  3 entries  ends at d"]
    (made,) = objects("session show g --json --thread", box)
    assert made["notes"] == [found, begins]
    assert noted(f"session fork g --out {tmp_path}/f.jsonl", box)[1].splitlines() == [
        found, begins
    ]  # fmt: skip


def test_a_session_is_drawn(box: str) -> None:
    """A line for each entry where branches part or end: its text, how long, and the contexts."""
    assert ok("session show p --tree --thread", box).splitlines() == [
        'a1  user  "hello"',
        '├─ c2  user  "hello"  2 entries  [1 p]',
        '└─ b1  assistant  "one\\x1b[31m two"  2 entries  [2 p/b1]',
    ]
    assert ok("session show t --tree --thread", box).splitlines() == [
        'x  user  "hello"',
        '└─ y  assistant  "Task go"  [3 t]',
        '   └─ s1  user  "go"  [4 t/agent-k]',
    ]
    done = run("session show p --tree --json --thread", box)
    assert (done.code, "--tree and --json exclude each other" in done.err) == (2, True)


def test_a_drawing_of_many_branches_is_bounded(box: str) -> None:
    """The active branch and the newest others are drawn, and it says how many are not."""
    with eventq.open(box) as thread:
        path = thread.path + ".jsonl"
        with open(path, "wb") as file:
            ends = [entry(f"e{n}", "a1") for n in range(202)]
            file.write(spell([header(), entry("a1", None), *ends]))
        thread.sessions.import_file(path, name="many")
    lines = ok("session show many --tree --thread", box).splitlines()
    names = [line.split()[-1] for line in lines[1:-1]]
    assert sorted(names) == sorted(["many]", *(f"many/e{n}]" for n in range(2, 201))])
    assert lines[-1] == "… (2 more branches; eventq session show many)"


def test_a_branch_is_written(box: str) -> None:
    """Its entries with their images, of forks too; turns that are no entries are noted."""
    data, note = noted("session cat p/b1", box)
    assert [json.loads(line) for line in data.splitlines()] == PI[1:4]
    assert note == ""
    with eventq.open(box) as thread:
        thread.contexts.fork("p/b1", name="mine").append("a remark")
    assert noted("session cat mine ", box) == (
        data, "1 turn is no entry of a session, and left out\n"
    )  # fmt: skip
    assert noted("session cat main", box)[0] == b""


def test_branches_are_compared(box: str) -> None:
    """The last entry that both have, then those of one and of the other."""
    assert ok("session diff p p/b1 --thread", box).splitlines() == [
        '  a1  user  "hello"', '- c1  user  "hello"', '- c2  user  "hello"', '+ n1  session info  "A title"',
        '+ b1  assistant  "one\\x1b[31m two"',
    ]  # fmt: skip
    (made,) = objects("session diff p p/b1 --thread", box)
    assert [one["entry"] for one in (made["shared"], *made["mine"])] == ["a1", "c1", "c2"]
    assert ok("session diff p p --thread", box).splitlines() == ['  c2  user  "hello"']
    refused(1, "'p' and 't' have no entry in common", run("session diff p t --thread", box))


def test_what_is_no_session(box: str) -> None:
    """Other contexts, and none, are errors that name the command to look at."""
    for word in ("show main", "show main --tree"):
        refused(1, "context 'main' is of no session", run(f"session {word} --thread", box))
    for word, what in (("show", "session"), ("cat", "context"), ("diff p", "context")):
        refused(1, f"there is no {what} 'nobody'", run(f"session {word} nobody --thread", box))


def test_a_folder_is_imported(box: str, tmp_path: Path) -> None:
    """A line for each session with anything new, and a sum; failures come last, with status 1."""
    files = tmp_path / "files"
    for name in ("a/s", "b/s", "c"):
        path = files / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(spell([says(f"x{name}", None)]))
    done = run("session import", str(files), "--thread", box)
    assert done.code == 1
    first, second, total = done.out.splitlines()
    assert first.startswith(f"{files}/a/s.jsonl: Imported 1 of 1 entry into context 's' (")
    assert second.startswith(f"{files}/c.jsonl: Imported 1 of 1 entry into context 'c' (")
    assert total == "Imported 2 sessions: 2 new or grown, 0 unchanged, 1 failed"
    assert done.err.startswith(f"{files}/b/s.jsonl: session 's' is another one here")
    (files / "b" / "s.jsonl").unlink()
    told = ok("session import", str(files), "--thread", box)
    assert told == "Imported 2 sessions: 0 new or grown, 2 unchanged\n"
    made = objects("session import", str(files), "--thread", box)
    assert [(one["path"], one["added"], one["error"]) for one in made] == [
        (f"{files}/a/s.jsonl", 0, None), (f"{files}/c.jsonl", 0, None),
    ]  # fmt: skip
    assert run("session import", str(files), "--as", "x", "--thread", box).code == 2


def test_a_session_is_deleted(box: str) -> None:
    """The command says what goes, and what frees it; a branch alone is refused with a way."""
    done = run("session rm p/b1 --thread", box)
    refused(
        1, "delete the whole: 'eventq session rm p', or only this branch: 'eventq context", done
    )
    assert ok("session rm t --thread", box) == (
        "Deleted session 't': 5 lines, 2 contexts, 1 subagent; 'eventq gc --apply' frees what no fork"
        " needs\n"
    )
    (made,) = objects("session rm p --thread", box)
    assert (made["name"], made["lines"], made["contexts"]) == ("p", 6, ["p", "p/b1"])
    refused(1, "there is no session 'p'", run("session rm p --thread", box))
    assert ok("session ls --thread", box) == ""


def test_an_output_is_deleted(box: str) -> None:
    """By its name or URL, with all versions."""
    assert ok("output put Scout --content x --thread", box) == "agent://0-Scout\n"
    ok("output put --id 0-Scout --content y --thread", box)
    assert ok("output rm agent://0-Scout --thread", box) == "Deleted agent://0-Scout, 2 versions\n"
    done = run("output rm 0-Scout --thread", box)
    assert (done.code, done.err.splitlines()[0]) == (1, "Error: Not found: 0-Scout")
