"""What readers say of entries and files."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq.sessions.links import (
    CALLS,
    ENDS,
    FOLLOWS,
    GOES,
    MESSAGE,
    META,
    RESULT,
    Beside,
    Link,
    Spawn,
    Start,
    Title,
)
from eventq.sessions.omp import slot
from eventq.sessions.plain import Plain
from eventq.sessions.reading import READERS, reader_of
from eventq.sessions.tree import build
from tests.sessions.support import NOW, answers, call, entry, fresh, header, line, result, says

CLAUDE, PI, OMP = READERS["claude"], READERS["pi"], READERS["omp"]

# --- which reader ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("claude", [says("u", None)]),
        ("claude", [{"type": "summary", "summary": "x", "leafUuid": "u"}]),
        ("claude", [{"type": "file-history-snapshot", "snapshot": {"a": 1}}]),
        ("claude", [{"type": "unheard-of"}, {"type": "mode", "sessionId": "s"}]),
        ("pi", [header()]),
        ("pi", [{"type": "session", "id": "x"}, {"type": "message"}]),
        ("omp", [slot("t", NOW, None), header()]),
        ("omp", [header(titleSource="auto")]),
        ("omp", [header(), entry("a", None, "model_change", model="p/m")]),
        ("omp", [header(), entry("a", None, "session_init")]),
        ("plain", []),
        ("codex", [{"type": "session_meta", "payload": {"id": "x"}}]),
        ("codex", [{"timestamp": "t"}, {"record_type": "state"}]),
        ("codex", [{"type": "message", "role": "user", "content": [{"type": "input_text"}]}]),
        ("plain", [{"type": "message", "role": "user", "content": "no item"}]),
        (
            "copilot",
            [{"type": "session.start", "data": {"sessionId": "s"}, "id": "a", "parentId": None}],
        ),
        ("gemini", [{"sessionId": "s", "projectHash": "h", "startTime": "t"}]),
        ("qwen", [{"type": "user", "uuid": "u", "parentUuid": None, "message": {"parts": []}}]),
        ("qwen", [{"type": "system", "uuid": "u", "parentUuid": None, "systemPayload": {"a": 1}}]),
        ("opencode", [says("u", None, agentSlug="opencode")]),
        ("gptme", [{"role": "system", "content": "x", "pinned": True}]),
        ("plain", [{"role": "system", "content": "x"}]),
        ("plain", [{"type": "world_state", "payload": {"a": 1}}]),
        ("plain", [{"type": "user", "sessionId": "s"}]),
    ],
)
def test_a_reader_is_chosen_by_the_first_entries(name: str, first: list[Any]) -> None:
    """A title's line or a header decides, or a line as Claude Code writes it."""
    assert reader_of(first).name == name


# --- links ----------------------------------------------------------------------------------------


def test_claude_names_messages_calls_and_results() -> None:
    """A response is named by its message, or by its line if that has no id."""
    assert CLAUDE.link(says("u", None)) == Link("u", None, MESSAGE)
    assert CLAUDE.link(says("u", "p", isMeta=True)) == Link("u", "p", MESSAGE | META)
    assert CLAUDE.link(answers("a", "u", call("t"), response="m")) == (
        Link("a", "u", MESSAGE | CALLS, "m")
    )
    assert CLAUDE.link(line("assistant", "a", "u")) == Link("a", "u", MESSAGE, "a")
    assert CLAUDE.link(result("r", "a", "t")) == Link("r", "a", MESSAGE | RESULT)
    assert CLAUDE.link(line("progress", "x", "a")) == Link("x", "a")
    assert CLAUDE.link(line("yet-unknown", "x", "a")) == Link("x", "a")


def test_claude_says_where_it_goes_on() -> None:
    """At the last prompt; a boundary ends that, and the way up, whatever it names."""
    told = {"type": "last-prompt", "lastPrompt": "hello", "leafUuid": "a", "sessionId": "s"}
    assert CLAUDE.link(told) == Link(None, "a", GOES)
    boundary = line("system", "cb", "a", subtype="compact_boundary")
    assert CLAUDE.link(boundary) == Link("cb", None, GOES)
    assert CLAUDE.link(line("attachment", "x", "a")) == Link("x", "a", ENDS)


def test_claude_marks_sidechains() -> None:
    """By the id of the agent, or by an empty name in older files."""
    side = says("u", None, isSidechain=True)
    assert CLAUDE.link(side) == Link("u", None, MESSAGE, None, "")
    assert CLAUDE.link(side | {"agentId": "x"}) == Link("u", None, MESSAGE, None, "x")


def test_claude_has_lines_without_place() -> None:
    """A line without an id, and a title with one, are no nodes; a message without key is a root."""
    assert CLAUDE.link({"type": "custom-title", "uuid": "x", "customTitle": "t"}) is None
    assert CLAUDE.link({"type": "user", "message": {}}) is None
    assert CLAUDE.link({"type": "user", "uuid": "", "parentUuid": ""}) is None
    assert CLAUDE.link({"type": "user", "uuid": "u", "parentUuid": ""}) == Link("u", None, MESSAGE)
    assert CLAUDE.link({"type": "user", "uuid": "u"}) == Link("u", None, MESSAGE)
    assert CLAUDE.link({"type": "system", "uuid": "u"}) == Link("u", None, ENDS)
    assert CLAUDE.link({"type": "last-prompt", "lastPrompt": "hello"}) is None


def test_pi_names_messages_calls_and_results() -> None:
    """What the model gets is a message; labels and changes are nodes, headers are not."""
    calls = {"role": "assistant", "content": [{"type": "toolCall", "id": "t"}]}
    assert PI.link(header()) is None
    assert PI.link(entry("a", None)) == Link("a", None, MESSAGE)
    assert PI.link(entry("a", "b", message=calls)) == Link("a", "b", MESSAGE | CALLS)
    assert PI.link(entry("a", "b", message={"role": "toolResult"})) == (
        Link("a", "b", MESSAGE | RESULT)
    )
    assert PI.link(entry("a", "b", "compaction")) == Link("a", "b", MESSAGE)
    assert PI.link(entry("a", "b", "label")) == Link("a", "b")
    assert PI.link(entry("a", "b", "leaf", targetId="c")) == Link("a", "c")
    assert PI.link({"type": "message"}) == Link(None, None, MESSAGE | FOLLOWS)
    assert OMP.link(slot("t", NOW, None)) is None


def test_plain_entries_follow_each_other_unless_they_name_a_parent() -> None:
    """The names of the known tools count for unknown ones."""
    plain = Plain()
    assert plain.link({"id": "a", "parentId": "b"}) == Link("a", "b", MESSAGE)
    assert plain.link({"id": "a", "parent_id": None}) == Link("a", None, MESSAGE)
    assert plain.link({"uuid": "a", "parentUuid": "b", "id": "c"}) == Link("a", "b", MESSAGE)
    assert plain.link({"id": "a"}) == Link("a", None, MESSAGE | FOLLOWS)
    assert plain.link({}) == Link(None, None, MESSAGE | FOLLOWS)


# --- ids and titles -------------------------------------------------------------------------------


def test_the_id_of_a_session_is_in_its_header_or_lines() -> None:
    """A title's line and other entries do not have it."""
    assert CLAUDE.session_id({"sessionId": "s"}) == "s"
    assert PI.session_id(header()) == "old"
    assert OMP.session_id(slot("t", NOW, None) | {"id": "x"}) is None
    assert PI.session_id(entry("a", None)) is None


def test_titles_have_ranks() -> None:
    """A title by the user is above one that was made; an empty one takes it away."""
    assert CLAUDE.title({"type": "custom-title", "customTitle": "a"}) == Title("a", 2)
    assert CLAUDE.title({"type": "ai-title", "aiTitle": "a"}) == Title("a", 1)
    assert CLAUDE.title({"type": "summary", "summary": "a"}) == Title("a", 0)
    assert CLAUDE.title({"type": "user", "summary": "a"}) is None
    assert PI.title(entry("a", None, "session_info", name=" b ")) == Title("b", 1)
    assert PI.title(entry("a", None, "session_info")) == Title("", 1)
    assert OMP.title(slot("now", NOW, "user")) == Title("now", 3)
    assert OMP.title(entry("a", None, "title_change", title="then")) == Title("then", 2)
    assert OMP.title(header(title="first")) == Title("first", 0)
    assert OMP.title(header()) is None


# --- subagents ------------------------------------------------------------------------------------


def test_claude_says_what_it_starts() -> None:
    """Calls know the prompt, results the agent, or the run of a workflow."""
    calls = answers("a", "u", call("t1", "Task", prompt="go"), call("t2"), call("t3", "Workflow"))
    assert CLAUDE.spawns(calls) == [Spawn("t1", None, "go"), Spawn("t3", None, None)]
    ended = result("r", "a", "t1", toolUseResult={"agentId": "x", "prompt": "go"})
    assert CLAUDE.spawns(ended) == [Spawn("t1", "x", "go")]
    assert CLAUDE.spawns(result("r", "a", "t3", toolUseResult={"runId": "w"})) == [Spawn("t3", "w")]
    assert CLAUDE.spawns(says("u", None)) == []


def test_oh_my_pi_says_what_it_starts() -> None:
    """One call may start several agents; the result has their ids."""
    tasks = [{"name": "A", "task": "go"}, {"id": "B", "assignment": "run"}]
    block = {"type": "toolCall", "id": "t", "name": "task", "arguments": {"tasks": tasks}}
    calls = entry("a", None, message={"role": "assistant", "content": [block]})
    assert OMP.spawns(calls) == [Spawn("t", "A", "go"), Spawn("t", "B", "run")]
    single = block | {"arguments": {"name": "A", "task": "go"}}
    calls["message"]["content"] = [single]
    assert OMP.spawns(calls) == [Spawn("t", "A", "go")]
    details = {"results": [{"id": "0-A", "task": "go"}]}
    ended = {"role": "toolResult", "toolName": "task", "toolCallId": "t", "details": details}
    assert OMP.spawns(entry("b", "a", message=ended)) == [Spawn("t", "0-A", "go")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("subagents/agent-a1.jsonl", Beside("session", "a1")),
        ("subagents/workflows/wf_1/agent-a1.jsonl", Beside("session", "a1", "wf_1")),
        ("subagents/agent-a1.meta.json", Beside("sidecar", "a1")),
        ("tool-results/toolu_1.txt", Beside("output", "toolu_1")),
        ("subagents/other.jsonl", Beside("other")),
        ("agent-a1.jsonl", Beside("other")),
    ],
)
def test_the_folder_of_a_claude_session(path: str, expected: Beside) -> None:
    """It holds subagents, also of workflows, their sidecars, and large outputs."""
    assert CLAUDE.folder(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Scout.jsonl", Beside("session", "Scout")),
        ("Scout/Deep.jsonl", Beside("session", "Deep", "Scout")),
        ("Scout.md", Beside("output", "Scout")),
        ("Scout/Deep.md", Beside("output", "Deep", "Scout")),
        ("12.bash.log", Beside("artifact", "12")),
        ("Scout/3.read.log", Beside("artifact", "3", "Scout")),
        ("bash.log", Beside("other")),
        ("draft.txt", Beside("other")),
        (".artifact-1.json", Beside("other")),
        ("", Beside("other")),
    ],
)
def test_the_folder_of_an_oh_my_pi_session(path: str, expected: Beside) -> None:
    """It holds subagents and their outputs, those of a subagent one deeper, and artifacts."""
    assert OMP.folder(path) == expected


def test_a_sidecar_names_the_call() -> None:
    """And the agent that made it, if that is not the session itself."""
    assert CLAUDE.sidecar({"toolUseId": "t", "agentType": "x"}) == Start("t", None)
    assert CLAUDE.sidecar({"toolUseId": "t", "parentAgentId": "a"}) == Start("t", "a")
    assert CLAUDE.sidecar([1]) == Start(None, None)


# --- any shape ------------------------------------------------------------------------------------

NAMES = """
    type id uuid parentId parentUuid parent_id message content role name text title v pad source
    toolUseResult agentId runId prompt tool_use_id input data isSidechain isMeta teamName details
    results arguments tasks toolName toolCallId targetId label customTitle aiTitle summary
    snapshot sessionId leafUuid replacements timestamp logicalParentUuid requestId version
"""
KINDS = """
    user assistant system progress attachment session message label leaf title tool_use task Task
    tool_result toolResult toolCall thinking custom-title content-replacement summary a b
"""
KEYS, WORDS = st.sampled_from(NAMES.split()), st.sampled_from(KINDS.split())
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.one_of(KEYS, KEYS, st.text(max_size=3)), VALUES, max_size=9)


@given(st.lists(OBJECTS, max_size=6), VALUES, st.text())
def test_no_json_object_makes_a_reader_raise(
    entries: list[dict[str, Any]], value: Any, path: str
) -> None:
    """Each function takes any objects, returns what it says, and leaves them unchanged."""
    before = deepcopy(entries)
    assert reader_of(entries).name in READERS
    for reader in READERS.values():
        links = [reader.link(one) for one in entries]
        for one, link in zip(entries, links, strict=True):
            assert link is None or not reader.is_header(one)
            assert type(reader.session_id(one)) in (str, type(None))
            assert all(isinstance(spawn, Spawn) for spawn in reader.spawns(one))
            title = reader.title(one)
            assert title is None or isinstance(title.text, str)
            assert reader.carried(one) in (True, False)
        build(links, last_is_leaf=reader.last_is_leaf)
        assert reader.folder(path).kind
        assert isinstance(reader.sidecar(value), Start)
        assert all(isinstance(one, dict) for one in reader.fork(entries, entries, fresh()))
    assert repr(entries) == repr(before)
