"""New files that go on from a session that is kept here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ConflictError, DiskError, InputError, LogicError
from eventq.records.turn import NewTurn
from eventq.sessions.omp import slot
from eventq.system import disk
from tests.contract.test_session_agents import CALLED, side, write
from tests.contract.test_session_branches import REWOUND, Entry, export, load, shown, spell
from tests.sessions.support import SESSION, answers, entry, header, says

if TYPE_CHECKING:
    from eventq.records.session import SessionForked

pytestmark = pytest.mark.usefixtures("quick")

ID = "99999999-2222-4333-8444-555555555555"
PIXELS = random.Random(5).randbytes(3_000)
IMAGE = {"type": "image", "data": base64.b64encode(PIXELS).decode(), "mimeType": "image/png"}
PI = [
    header(), entry("aa1", None), entry("aa2", "aa1", message={"role": "assistant", "content": [IMAGE], "cost": 5e-06}),
    entry("l1", "aa2", "label", targetId="aa1", label="here"), entry("b1", "l1"), entry("c1", "aa2"),
]  # fmt: skip
OMP = [slot("title", "2026-01-01T00:00:00Z", None), header(title="t"), *PI[1:]]


def fork(thread: eventq.Thread, out: Path, name: str = "s", **more: Any) -> SessionForked:
    """Write a fork; check that nothing here is changed."""
    before = (shown(thread), export(thread), len(thread.blobs), thread.check())
    made = thread.sessions.fork(name, str(out), **more)
    assert (shown(thread), export(thread), len(thread.blobs), thread.check()) == before
    data = Path(made.output).read_bytes()
    assert (made.size, made.lines) == (len(data), data.count(b"\n"))
    assert stat.S_IMODE(os.stat(made.output).st_mode) == 0o600
    return made


def read(made: SessionForked) -> list[Entry]:
    """Return the entries of a file."""
    with open(made.output, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ids(entries: list[Entry]) -> str:
    """Return the ids of entries."""
    return " ".join(str(one.get("uuid") or one.get("id")) for one in entries)


def test_a_fork_of_pi(thread: eventq.Thread, tmp_path: Path) -> None:
    """A header with a new id and the path of the source, the path, its labels at the end, the very numbers."""
    load(thread, *(spell(one).rstrip().replace(b"5e-06", b"0.0000050") for one in PI))
    made = fork(thread, tmp_path, at="b1")
    head, *rest = read(made)
    assert (head["id"], head["type"], head["version"]) == (made.session_id, "session", 3)
    assert head["parentSession"] == os.path.realpath(f"{thread.path}.files/session.jsonl")
    assert Path(made.output).name.endswith(f"_{made.session_id}.jsonl")
    assert ids(rest[:-1]) == "aa1 aa2 b1"
    assert [one["parentId"] for one in rest] == [None, "aa1", "aa2", "b1"]
    assert (rest[-1]["targetId"], rest[-1]["label"]) == ("aa1", "here")
    assert rest[1]["message"]["content"] == [IMAGE]
    assert b'"cost":0.0000050}' in Path(made.output).read_bytes()
    assert (made.tool, made.notes) == ("pi", ())


def test_a_fork_of_oh_my_pi(thread: eventq.Thread, tmp_path: Path) -> None:
    """The line of the title, a header that names the source, the entries as they are, the folder."""
    place = tmp_path / "files" / "s.jsonl"
    (tmp_path / "files").mkdir()
    write(
        place,
        *OMP,
        beside={"0.bash.log": b"output", "Scout.md": b"found", "Scout.jsonl": [header(title="x")]},
    )
    thread.sessions.import_file(str(place), name="s")
    made = fork(thread, tmp_path / f"2026_{ID}.jsonl", title="another")
    first, head, *rest = read(made)
    assert made.session_id == head["id"] == ID
    assert (first["title"], head["title"], head["parentSession"]) == ("another", "another", "old")
    assert len(Path(made.output).read_bytes().split(b"\n")[0]) == 255
    assert rest[:-1] == [OMP[2], OMP[3], OMP[6]]
    assert (rest[-1]["targetId"], rest[-1]["label"], rest[-1]["parentId"]) == ("aa1", "here", "c1")
    folder = tmp_path / f"2026_{ID}"
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == {
        "0.bash.log": b"output", "Scout.md": b"found", "Scout.jsonl": spell(header(title="x")),
    }  # fmt: skip


def test_a_fork_of_claude_code(thread: eventq.Thread, tmp_path: Path) -> None:
    """New ids everywhere, a chain, a title; its subagents stay with the source, outputs come along."""
    place = tmp_path / "files" / "s.jsonl"
    (tmp_path / "files").mkdir()
    answered = [says("u", None), answers("a", "u"), says("n", "a")]
    write(place, *answered, beside={
        "subagents/agent-x1.jsonl": [side("s1", None)], "subagents/agent-x1.meta.json": {}, "tool-results/t.txt": b"x",
    })  # fmt: skip
    thread.sessions.import_file(str(place), name="s")
    made = fork(thread, tmp_path, cwd="/elsewhere")
    *entries, title = read(made)
    assert Path(made.output).name == f"{made.session_id}.jsonl"
    assert [one["forkedFrom"] for one in entries] == [
        {"sessionId": SESSION, "messageUuid": own} for own in "uan"
    ]
    assert {one["sessionId"] for one in (*entries, title)} == {made.session_id}
    assert {one["cwd"] for one in entries} == {"/elsewhere"}
    assert title["customTitle"] == "hello (fork)"
    folder = tmp_path / made.session_id
    assert [str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()] == [
        "tool-results/t.txt"
    ]


@pytest.mark.parametrize("entries", [PI, REWOUND], ids=["pi", "claude"])
def test_a_fork_for_a_directory_that_is_relative(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: Any
) -> None:
    """Tools compare whole paths: `.` is where the fork was made."""
    load(thread, *entries)
    monkeypatch.chdir(tmp_path)
    made = fork(thread, tmp_path, cwd=".")
    assert {one["cwd"] for one in read(made) if "cwd" in one} == {os.getcwd()}


def test_a_name_that_its_tool_does_not_find(thread: eventq.Thread, tmp_path: Path) -> None:
    """The file is written, and a note says what it is to be called."""
    load(thread, *REWOUND)
    made = fork(thread, tmp_path / "any.jsonl")
    (note,) = made.notes
    assert note.endswith(f"in a file of the name '{made.session_id}.jsonl'")
    assert fork(thread, tmp_path / f"{ID}.jsonl").notes == ()


def test_a_fork_of_a_subagent(thread: eventq.Thread, tmp_path: Path) -> None:
    """It is a session with the subagent's own entries, from its file or inside its parent's."""
    place = tmp_path / "files" / "s.jsonl"
    (tmp_path / "files").mkdir()
    inner = says("i1", None, "go", isSidechain=True, agentId="x2")
    write(
        place,
        *CALLED,
        inner,
        beside={"subagents/agent-x1.jsonl": [side("s1", None), side("s2", "s1")]},
    )
    thread.sessions.import_file(str(place), name="s")
    found = [
        [one["forkedFrom"]["messageUuid"] for one in read(fork(thread, tmp_path, f"s/agent-{own}"))[:-1]]
        for own in ("x1", "x2")
    ]  # fmt: skip
    assert found == [["s1", "s2"], ["i1"]]


def test_a_fork_of_an_unknown_tool(thread: eventq.Thread, tmp_path: Path) -> None:
    """None is written that no tool finds; an export of a context forked here has the path."""
    entries = [
        {"id": "a", "parent_id": None},
        {"id": "b", "parent_id": "a"},
        {"id": "c", "parent_id": "a"},
    ]
    load(thread, *entries)
    with pytest.raises(LogicError, match="the tool of this session is not known"):
        fork(thread, tmp_path / "out.jsonl", at="b")
    assert not (tmp_path / "out.jsonl").exists()
    turn = thread.contexts.get("s").replay()
    thread.contexts.create("mine", base=next(iter(turn)).turn_id)
    assert [json.loads(one) for one in thread.sessions.lines("mine")] == entries[:1]


@pytest.mark.parametrize("at", ["a2-is-long-too", "a2-is", "turn:4"])
def test_where_a_fork_goes_on(thread: eventq.Thread, tmp_path: Path, at: str) -> None:
    """At any entry of the session, by its id, the beginning of it, or its turn."""
    load(thread, *REWOUND)
    made = read(fork(thread, tmp_path, at=at))
    assert [one["forkedFrom"]["messageUuid"] for one in made[:-1]] == [
        "u1", "a1", "u2-is-long-enough", "a2-is-long-too",
    ]  # fmt: skip


def test_a_fork_goes_on_from_what_others_added(thread: eventq.Thread, tmp_path: Path) -> None:
    """A turn of the branch is a place of it, though no line of the session became it."""
    load(thread, *REWOUND)
    own = thread.contexts.get("s").append('{"id": "x"}').turn_id
    made = fork(thread, tmp_path, at=f"turn:{own}")
    assert [one["forkedFrom"]["messageUuid"] for one in read(made)[:-1]] == ["u1", "a1", "u3", "a3"]
    (note,) = made.notes
    assert f"turn {own} is no entry of a session" in note


def test_where_no_fork_goes_on(thread: eventq.Thread, tmp_path: Path) -> None:
    """What names no entry, or several, a context of no session, and a file that exists."""
    load(thread, *PI)
    for at, why in (
        ("zz", "has no entry 'zz'"),
        ("aa", "several entries of session 's' begin with 'aa'"),
    ):
        with pytest.raises(LogicError, match=why):
            fork(thread, tmp_path, at=at)
    with pytest.raises(InputError, match="'turn:x' names no turn"):
        fork(thread, tmp_path, at="turn:x")
    with pytest.raises(LogicError, match="99"):
        fork(thread, tmp_path, at="turn:99")
    thread.contexts.create("mine").append('{"id": "x"}')
    with pytest.raises(LogicError, match="context 'mine' is of no session"):
        fork(thread, tmp_path, name="mine")
    with pytest.raises(LogicError, match="is of another session"):
        fork(thread, tmp_path, at=f"turn:{thread.contexts.head('mine')}")
    (tmp_path / "there.jsonl").write_text("kept")
    with pytest.raises(ConflictError, match="exists"):
        fork(thread, tmp_path / "there.jsonl")
    assert (tmp_path / "there.jsonl").read_text() == "kept"
    with pytest.raises(
        LogicError, match=r"no/folder.jsonl', or the folder .* could not be written"
    ):
        fork(thread, tmp_path / "no" / "folder.jsonl")


def test_a_fork_never_has_the_id_of_its_source(thread: eventq.Thread, tmp_path: Path) -> None:
    """Not that in the name of the source's file, nor its name here."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"{ID}.jsonl").write_bytes(spell(*REWOUND))
    for name in (None, "s"):
        thread.sessions.import_file(str(tmp_path / "in" / f"{ID}.jsonl"), name=name)
        with pytest.raises(LogicError, match="has the id of the source"):
            thread.sessions.fork(name or ID, str(tmp_path / f"{ID}.jsonl"))


def test_a_fork_of_nothing(thread: eventq.Thread, tmp_path: Path) -> None:
    """Where the rules of the tool leave no entry, no file is written."""
    load(thread, answers("a", None, {"type": "thinking", "thinking": "hm"}))
    with pytest.raises(LogicError, match="nothing that a session could go on from"):
        fork(thread, tmp_path / f"{ID}.jsonl")
    assert not (tmp_path / f"{ID}.jsonl").exists()


def test_a_fork_is_a_session_of_its_own(thread: eventq.Thread, tmp_path: Path) -> None:
    """Imported, it never adds to its source; a fork of it goes on."""
    load(thread, *PI)
    first = fork(thread, tmp_path, at="aa2")
    thread.sessions.import_file(first.output)
    assert export(thread) == spell(*PI)
    found = shown(thread)
    assert found[first.session_id].startswith("aa1 aa2")
    second = fork(thread, tmp_path, first.session_id, at="aa1")
    assert ids(read(second)[1:2]) == "aa1"
    assert read(second)[0]["parentSession"] == os.path.realpath(first.output)


@pytest.mark.parametrize("entries", [PI, OMP, REWOUND], ids=["pi", "omp", "claude"])
def test_a_forked_context_has_an_id_of_its_own(
    thread: eventq.Thread, tmp_path: Path, entries: list[Entry]
) -> None:
    """An export of it is a new session, the same one each time; an import of that another context."""
    load(thread, *entries)
    thread.contexts.fork("s", name="mine")
    data = export(thread, "mine")
    assert data == export(thread, "mine") != spell(*entries)
    path = tmp_path / "of-mine.jsonl"
    path.write_bytes(data)
    before = shown(thread)
    made = thread.sessions.import_file(str(path))
    assert export(thread) == spell(*entries)
    assert {name: found for name, found in shown(thread).items() if name in before} == before
    assert made.context_id not in {one.context_id for one in thread.contexts if one.name in before}
    with pytest.raises(LogicError, match="no generation 2 of session 'mine'"):
        export(thread, "mine", generation=2)


def test_a_fork_that_was_talked_to(thread: eventq.Thread, tmp_path: Path) -> None:
    """Turns that are no entries are left out, with a note."""
    load(thread, *PI)
    mine = thread.contexts.fork("s", name="mine")
    mine.append('{"id": "a remark"}')
    made = fork(thread, tmp_path, "mine")
    assert ids(read(made)[1:3]) == "aa1 aa2"
    (note,) = made.notes
    assert note.endswith("is no entry of a session: it was left out")


def test_a_fork_whose_session_was_collected(thread: eventq.Thread) -> None:
    """Its turns are there, and still it never comes out under the source's id."""
    load(thread, *PI)
    thread.contexts.fork("s", name="mine")
    for name in list(shown(thread)):
        if name != "mine":
            thread.contexts.delete(name)
    thread.gc(apply=True, grace=0)
    first, *rest = [json.loads(line) for line in export(thread, "mine").splitlines()]
    assert first["id"] != "old" if first.get("type") == "session" else rest
    assert thread.check() == []


def test_a_fork_of_what_an_older_version_imported(thread: eventq.Thread) -> None:
    """The context itself comes out as it was, a fork of it under an id of its own."""
    abc = thread.contexts.create("abc")
    for one in PI:
        abc.append(NewTurn(json.dumps(one, separators=(",", ":")), type_id="session/entry"))
    abc.fork(name="mine")
    assert [json.loads(line) for line in export(thread, "abc").splitlines()] == PI
    head, *rest = [json.loads(line) for line in export(thread, "mine").splitlines()]
    assert (head["type"], head["id"] != "old") == ("session", True)
    assert rest[0]["id"] == "aa1"


def test_a_fork_of_lines_that_an_older_version_imported(thread: eventq.Thread) -> None:
    """Where the session was said to go on stays out: it is no entry."""
    told = {"type": "last-prompt", "leafUuid": "a1", "sessionId": SESSION}
    abc = thread.contexts.create("abc")
    for one in (says("u1", None), answers("a1", "u1"), told, says("u2", "a1")):
        abc.append(NewTurn(json.dumps(one), type_id="session/entry"))
    abc.fork(name="mine")
    made = [json.loads(line) for line in export(thread, "mine").splitlines()]
    assert [one["forkedFrom"]["messageUuid"] for one in made[:-1]] == ["u1", "a1", "u2"]


def test_blobs_come_along(thread: eventq.Thread, tmp_path: Path) -> None:
    """What entries name by SHA-256 is written where it is asked for."""
    digits = hashlib.sha256(PIXELS).hexdigest()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / digits).write_bytes(PIXELS)
    missing = f"blob:sha256:{'0' * 64}"
    content = [{**IMAGE, "data": ref} for ref in (f"blob:sha256:{digits}", missing)]
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        spell(header(), entry("a", None, message={"role": "user", "content": content}))
    )
    thread.sessions.import_file(str(path), name="s", blobs=str(tmp_path / "blobs"))
    made = fork(thread, tmp_path, blobs=str(tmp_path / "out"))
    assert made.notes == (f"{missing} was not written: it is not here",)
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == {digits: PIXELS}


def test_a_fork_that_is_refused_leaves_no_file(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the file nor the folder beside it, whatever step it fails at."""
    source = tmp_path / "in" / "s.jsonl"
    source.parent.mkdir()
    source.write_bytes(b"".join(map(spell, PI)))
    beside = source.with_suffix("")
    beside.mkdir()
    (beside / "0.bash.log").write_bytes(b"said")
    thread.sessions.import_file(str(source))
    name = next(iter(thread.sessions.views.all())).name
    out = tmp_path / "out"
    out.mkdir()

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "save", full)
        with pytest.raises(DiskError, match="could not be written"):
            thread.sessions.fork(name, str(out / "new.jsonl"))
    assert [*out.iterdir()] == []
    with monkeypatch.context() as patched:
        patched.setattr(type(thread.sessions), "export_blobs", full)
        with pytest.raises(OSError, match="No space left"):
            thread.sessions.fork(name, str(out / "new.jsonl"), blobs=str(tmp_path / "blobs"))
    assert [*out.iterdir()] == []
    thread.sessions.fork(name, str(out / "new.jsonl"))
    assert sorted(one.name for one in out.rglob("*")) == ["0.bash.log", "new", "new.jsonl"]
