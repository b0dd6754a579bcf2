"""The sessions of subagents in the folder beside a session's file: contexts under what started them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ConflictError, LogicError
from tests.contract.test_session_branches import REWOUND, export, shown, spell, turns
from tests.servers import ENGINES
from tests.sessions.support import answers, call, entry, header, result, says

if TYPE_CHECKING:
    from eventq.records.session import SessionImported

Entry = dict[str, Any]

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the path of a session's file."""
    (tmp_path / "files" / "s").mkdir(parents=True)
    return tmp_path / "files" / "s.jsonl"


def write(place: Path, *entries: Any, beside: dict[str, Any] | None = None) -> None:
    """Write a session's file and files in its folder, of entries, bytes, or a value."""
    place.write_bytes(spell(*entries))
    for path, content in (beside or {}).items():
        file = place.with_suffix("") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = spell(*content)  # noqa: PLW2901
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def load(thread: eventq.Thread, place: Path) -> SessionImported:
    """Import the session."""
    return thread.sessions.import_file(str(place), name="s")


def written(thread: eventq.Thread, folder: Path, name: str = "s") -> dict[str, bytes]:
    """Return the files that an export of a session writes."""
    folder.mkdir()
    target = folder / "s.jsonl"
    target.write_bytes(export(thread, name))
    thread.sessions.export_folder(name, str(target), pytest.fail)
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


def files(place: Path) -> dict[str, bytes]:
    """Return the files of a session."""
    top = place.parent
    return {str(one.relative_to(top)): one.read_bytes() for one in top.rglob("*") if one.is_file()}


def side(uuid: str, parent: str | None, text: str = "go", **more: Any) -> Entry:
    """Return a prompt to a subagent, as its file has it."""
    return says(uuid, parent, text, isSidechain=True, agentId="x1", **more)


CALLED = [says("u", None), answers("a", "u", call("t1", "Task", prompt="go")), says("n", "a")]


def test_a_subagent_hangs_under_its_call(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """Its file is a session of its own, found by what its sidecar says, and comes out again."""
    write(place, *CALLED, beside={
        "subagents/agent-x1.jsonl": [side("s1", None, "anything"), side("s2", "s1"), side("s3", "s1")],
        "subagents/agent-x1.meta.json": {"toolUseId": "t1", "agentType": "explore"},
        "tool-results/t9.txt": b"long output",
    })  # fmt: skip
    made = load(thread, place)
    assert (made.agents, made.files, made.notes) == (1, 2, ())
    assert shown(thread) == {"s": "u a n", "s/agent-x1": "u a s1 s3", "s/agent-x1/s2": "u a s1 s2"}
    assert written(thread, tmp_path / "out") == files(place)
    assert export(thread, "s/agent-x1") == files(place)["s/subagents/agent-x1.jsonl"]
    again = load(thread, place)
    assert (again.agents, again.files, again.added) == (0, 0, 0)
    assert turns(thread) == 6
    assert thread.check() == []


@pytest.mark.parametrize(
    ("entries", "meta"),
    [
        (CALLED, {}),
        ([says("u", None), answers("a", "u", call("t1", "Task")), result("r", "a", "t1", toolUseResult={"agentId": "x1"})], {}),
    ],
    ids=["prompt", "result"],
)  # fmt: skip
def test_a_subagent_is_found_by_what_is_known(
    thread: eventq.Thread, place: Path, entries: list[Entry], meta: Entry
) -> None:
    """By its prompt, or by the result that names it, without a sidecar."""
    write(place, *entries, beside={"subagents/agent-x1.jsonl": [side("s1", None)]})
    load(thread, place)
    assert shown(thread)["s/agent-x1"] == "u a s1"


def test_a_subagent_that_nothing_names(thread: eventq.Thread, place: Path) -> None:
    """It has a root of its own, until something names it."""
    write(place, *CALLED[:1], beside={"subagents/agent-x1.jsonl": [side("s1", None)]})
    load(thread, place)
    assert shown(thread) == {"s": "u", "s/agent-x1": "s1"}
    write(place, *CALLED)
    load(thread, place)
    assert shown(thread) == {"s": "u a n", "s/agent-x1": "u a s1"}


def test_a_subagent_of_a_subagent(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Its sidecar names the one that called it; one of a workflow hangs under what ran it."""
    inner = [
        says("s1", None, "go", isSidechain=True, agentId="zz"),
        answers("s2", "s1", call("t2", "Task", prompt="deeper"), isSidechain=True, agentId="zz"),
    ]  # fmt: skip
    ran = result("r", "a", "t1", toolUseResult={"runId": "run-7"})
    write(place, *CALLED[:2], ran, beside={
        "subagents/agent-zz.jsonl": inner,
        "subagents/agent-zz.meta.json": {"toolUseId": "t1"},
        "subagents/agent-aa.jsonl": [says("d1", None, "deeper", isSidechain=True, agentId="aa")],
        "subagents/agent-aa.meta.json": {"toolUseId": "t2", "parentAgentId": "zz"},
        "subagents/workflows/run-7/agent-w1.jsonl": [says("w1", None, "work", isSidechain=True, agentId="w1")],
    })  # fmt: skip
    assert load(thread, place).agents == 3
    assert shown(thread) == {
        "s": "u a r", "s/agent-zz": "u a s1 s2", "s/agent-aa": "u a s1 s2 d1", "s/agent-w1": "u a w1",
    }  # fmt: skip
    assert written(thread, tmp_path / "out") == files(place)


def test_subagents_two_deep(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Their own are in a folder of their name; equal names are told apart."""

    def task(own: str, parent: str | None, name: str) -> Entry:
        block = {
            "type": "toolCall",
            "id": f"c{own}",
            "name": "task",
            "arguments": {"tasks": [{"name": name}]},
        }
        return entry(own, parent, message={"role": "assistant", "content": [block]})

    write(place, header(title="x"), entry("a", None), task("b", "a", "Scout"), beside={
        "Scout.jsonl": [header(title="x"), entry("p", None), task("q", "p", "Scout")],
        "Scout/Scout.jsonl": [header(title="x"), entry("d", None)],
        "Scout.md": b"found it", "0.bash.log": b"output", "Scout/0.bash.log": b"inner", "draft.txt": b"d",
    })  # fmt: skip
    made = load(thread, place)
    assert (made.agents, made.files) == (2, 4)
    assert shown(thread) == {
        "s": "a b", "s/agent-Scout": "a b p q", "s/agent-Scout~2": "a b p q d",
    }  # fmt: skip
    assert thread.read("agent://Scout", context="s/agent-Scout").data == b"found it"
    assert written(thread, tmp_path / "out") == files(place)
    assert written(thread, tmp_path / "again", "s/agent-Scout")["s/Scout.jsonl"]


def test_a_subagent_grows_and_is_rewritten(thread: eventq.Thread, place: Path) -> None:
    """As any session does, from a folder that was moved too."""
    path = "subagents/agent-x1.jsonl"
    write(place, *CALLED, beside={path: [side("s1", None)]})
    load(thread, place)
    write(place, *CALLED, says("m", "n"), beside={path: [side("s1", None), side("s2", "s1")]})
    assert load(thread, place).agents == 1
    assert shown(thread) == {"s": "u a n m", "s/agent-x1": "u a s1 s2"}
    moved = place.parent.parent / "moved" / "s.jsonl"
    moved.parent.mkdir()
    write(moved, *CALLED, says("m", "n"), beside={path: [side("s0", None)]})
    load(thread, moved)
    assert shown(thread)["s/agent-x1"] == "u a s0"
    assert export(thread, "s/agent-x1", generation=1) == spell(side("s1", None), side("s2", "s1"))
    assert turns(thread) == 7


def test_a_subagent_that_was_rewritten_comes_out_as_it_is(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """Its first generation stays, and is not what is exported."""
    for text in ("go", "stay"):
        write(place, *CALLED, beside={"subagents/agent-x1.jsonl": [side("s1", None, text)]})
        load(thread, place)
    assert written(thread, tmp_path / "out") == files(place)


def test_a_subagent_moves_with_its_call(thread: eventq.Thread, place: Path) -> None:
    """When the entry that started it is stored again under another one, it is too."""
    write(
        place,
        *CALLED[1:],
        beside={"subagents/agent-x1.jsonl": [side("s1", None), side("s2", "s1")]},
    )
    load(thread, place)
    assert shown(thread)["s/agent-x1"] == "a s1 s2"
    write(place, *CALLED[1:], CALLED[0])
    load(thread, place)
    assert shown(thread)["s/agent-x1"] == "u a s1 s2"


def test_what_is_no_session_stays_a_file(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """An empty file of a subagent, or one of noise, comes along as it is, and may become one."""
    path = "subagents/agent-x1.jsonl"
    write(
        place,
        *CALLED,
        beside={path: b"", "subagents/agent-x2.jsonl": b"no JSON\n", "other.jsonl": b"{}\n"},
    )
    made = load(thread, place)
    assert (made.agents, made.files) == (0, 3)
    assert written(thread, tmp_path / "out") == files(place)
    write(place, *CALLED, beside={path: [side("s1", None)]})
    assert load(thread, place).agents == 1
    assert written(thread, tmp_path / "then") == files(place)


@pytest.mark.parametrize("other", ["subagents/agent-x1.jsonl/t.txt", "subagents"])
def test_what_has_the_place_of_a_subagent(
    thread: eventq.Thread, place: Path, tmp_path: Path, other: str
) -> None:
    """The folder can be written still, without what cannot stand beside the rest."""
    path = "subagents/agent-x1.jsonl"
    write(place, *CALLED, beside={path: [side("s1", None)], "tool-results/t.txt": b"t"})
    load(thread, place)
    (place.with_suffix("") / path).unlink()
    (place.with_suffix("") / "subagents").rmdir()
    write(place, *CALLED, beside={other: b"x"})
    load(thread, place)
    notes: list[str] = []
    target = tmp_path / "out" / "s.jsonl"
    target.parent.mkdir()
    target.write_bytes(export(thread, "s"))
    thread.sessions.export_folder("s", str(target), notes.append)
    assert notes == [f"'{path}' was not written: another file of the session has its place"]
    kept = {"s/tool-results/t.txt": b"t"}
    assert files(target) == files(place) | kept


def test_an_agent_inside_the_file_and_beside_it(thread: eventq.Thread, place: Path) -> None:
    """Both are there, under two names."""
    path = "subagents/agent-x1.jsonl"
    write(place, *CALLED, side("i1", None), beside={path: [side("s1", None)]})
    load(thread, place)
    assert shown(thread) == {"s": "u a n", "s/agent-x1": "u a i1", "s/agent-x1~2": "u a s1"}
    load(thread, place)
    assert len(shown(thread)) == 3


@pytest.mark.parametrize("how", ["copy", "pack", "chosen"])
def test_subagents_are_copied(thread: eventq.Thread, place: Path, tmp_path: Path, how: str) -> None:
    """With their session, and go on there."""
    path = "subagents/agent-x1.jsonl"
    write(place, *CALLED, beside={path: [side("s1", None)]})
    load(thread, place)
    with eventq.open(tmp_path / "other", create=True) as other:
        if how == "pack":
            thread.export_pack(tmp_path / "pack")
            other.import_pack(tmp_path / "pack")
        else:
            thread.copy_to(other, [thread.contexts.get("s").id] if how == "chosen" else None)
        assert written(other, tmp_path / "out") == files(place)
        write(place, *CALLED, beside={path: [side("s1", None), side("s2", "s1")]})
        assert load(other, place).agents == 1
        assert shown(other) == {"s": "u a n", "s/agent-x1": "u a s1 s2"}
        assert other.check() == []


def test_subagents_live_with_their_session(thread: eventq.Thread, place: Path) -> None:
    """As long as one context of all is there, nothing is collected."""
    write(place, *CALLED, beside={"subagents/agent-x1.jsonl": [side("s1", None)]})
    load(thread, place)
    thread.contexts.delete("s/agent-x1")
    assert thread.gc(apply=True, grace=0).turns == 0
    assert load(thread, place).added == 0
    assert shown(thread)["s/agent-x1"] == "u a s1"
    for name in list(shown(thread)):
        thread.contexts.delete(name)
    assert thread.gc(apply=True, grace=0).turns == 4


def test_a_subagent_whose_name_is_anothers(thread: eventq.Thread, place: Path) -> None:
    """It gets another name, and is found under it again; its file alone is refused under that."""
    thread.contexts.create("s/agent-x1").append('{"id": "mine"}')
    write(place, *REWOUND[:1], beside={"subagents/agent-x1.jsonl": [side("s1", None)]})
    for _ in range(2):
        load(thread, place)
        assert shown(thread) == {"s": "u1", "s/agent-x1": "mine", "s/agent-x1~2": "s1"}
    path = str(place.with_suffix("") / "subagents" / "agent-x1.jsonl")
    with pytest.raises(ConflictError, match="is that of a subagent of 's'"):
        thread.sessions.import_file(path, name="s/agent-x1~2")


def test_a_subagent_whose_context_was_moved(thread: eventq.Thread, place: Path) -> None:
    """It stays there, with a note, and the rest of the folder is brought."""
    paths = [f"subagents/agent-x{n}.jsonl" for n in (1, 2)]
    write(place, *CALLED, beside={path: [side("s1", None)] for path in paths})
    load(thread, place)
    thread.contexts.get("s/agent-x1").append('{"id": "mine"}')
    grown = [side("s1", None), side("s2", "s1")]
    write(place, *CALLED, beside=dict.fromkeys(paths, grown) | {"tool-results/t.txt": b"x"})
    made = load(thread, place)
    (note,) = made.notes
    assert note.startswith(f"{paths[0]}: somebody else has moved context 's/agent-x1'")
    assert (made.agents, made.files) == (1, 1)
    assert shown(thread)["s/agent-x1"].endswith(" s1 mine")
    assert shown(thread)["s/agent-x2"].endswith(" s1 s2")
    assert export(thread, "s/agent-x1") == spell(*grown)


def test_a_folder_without_its_session(thread: eventq.Thread, place: Path) -> None:
    """The error says what is there, and what is missing; so does the one for the folder itself."""
    write(place, *CALLED, beside={"subagents/agent-x1.jsonl": [side("s1", None)]})
    with pytest.raises(LogicError, match=r"is the folder of a session - give '.*s.jsonl'"):
        load(thread, place.with_suffix(""))
    place.unlink()
    with pytest.raises(LogicError, match="is not there, only the folder that belongs to it"):
        load(thread, place)
    assert shown(thread) == {}
