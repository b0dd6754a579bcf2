"""The tokens of models: each response counts once, where it was written first, on every engine."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import UnknownContextError, UnknownRunError, UsageError
from eventq.records.run import NewStep
from eventq.records.spent import HourUsage, ModelUsage, UsageSum
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

Entry = dict[str, Any]
pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


# --- sessions, as each tool writes them -----------------------------------------------------------


def claude(number: int, response: str, out: int, *, parent: int | None = -1, **more: Any) -> Entry:
    """Return a line of a response of Claude Code, which has the usage of the whole so far."""
    usage = {
        "input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 400,
        "output_tokens": out, "cache_creation": {"ephemeral_5m_input_tokens": 20},
    }  # fmt: skip
    above = number - 1 if parent == -1 else parent
    message = {
        "id": response, "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "text", "text": f"text {number}"}], "usage": usage,
    }  # fmt: skip
    return {
        "parentUuid": None if above is None else f"u{above}", "isSidechain": False,
        "sessionId": "s", "type": "assistant", "uuid": f"u{number}", "message": message,
        "timestamp": f"2026-03-01T10:{number:02}:00.000Z", **more,
    }  # fmt: skip


def asked(number: int, text: str = "go", *, parent: int | None = -1, **more: Any) -> Entry:
    """Return a prompt of a person in Claude Code."""
    above = number - 1 if parent == -1 else parent
    return {
        "parentUuid": None if above is None or above < 0 else f"u{above}", "isSidechain": False,
        "sessionId": "s", "type": "user", "uuid": f"u{number}",
        "message": {"role": "user", "content": text},
        "timestamp": f"2026-03-01T10:{number:02}:00.000Z", **more,
    }  # fmt: skip


CLAUDE = [
    asked(0), claude(1, "r1", 1), claude(2, "r1", 1), claude(3, "r1", 30),
    asked(4, "more"), claude(5, "r2", 7), asked(6, "another way", parent=3), claude(7, "r3", 9),
]  # fmt: skip


def pi(number: int, role: str = "assistant", **more: Any) -> Entry:
    """Return an entry of Pi, whose responses have no id."""
    told: Entry = {"role": role, "content": [{"type": "text", "text": f"{number}"}]}
    if role == "assistant":
        cost = {"input": 0.1, "output": 0.2, "cacheRead": 0, "cacheWrite": 0, "total": 0.3}
        told |= {
            "api": "x", "provider": "y", "model": "pi-x", "stopReason": "stop",
            "usage": {"input": 5, "output": 6, "cacheRead": 70, "cacheWrite": 8, "cost": cost},
            "timestamp": 1_772_359_200_000 + number,
        }  # fmt: skip
    return {
        "type": "message", "id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None,
        "timestamp": f"2026-03-01T10:{number:02}:00.000Z", "message": told, **more,
    }  # fmt: skip


PI = [
    {"type": "session", "version": 3, "id": "p", "timestamp": "2026-03-01T09:00:00Z", "cwd": "/"},
    pi(0, "user"), pi(1), pi(2, "toolResult"), pi(3),
    {"type": "compaction", "id": "00000004", "parentId": "00000003", "summary": "s",
     "firstKeptEntryId": "00000003", "tokensBefore": 99, "timestamp": "2026-03-01T10:04:00Z"},
]  # fmt: skip
OMP = [
    {"type": "title", "v": 1, "title": "t", "updatedAt": "2026-03-01T09:00:00Z", "pad": ""},
    *PI[:-1],
    {"type": "model_change", "id": "00000004", "parentId": "00000003", "model": "a/b", "role": "c"},
]  # fmt: skip


def codex(kind: str, **payload: Any) -> Entry:
    """Return a line of a rollout of Codex."""
    return {"timestamp": "2026-03-01T10:00:00.000Z", "type": kind, "payload": payload}


def tokens(total: int, last: int) -> Entry:
    """Return an event that counts tokens: those of the session, and those of the last response."""

    def of(count: int) -> Entry:
        return {
            "input_tokens": 10 * count, "cached_input_tokens": 6 * count, "output_tokens": count,
            "reasoning_output_tokens": count // 2, "total_tokens": 11 * count,
        }  # fmt: skip

    info = {"total_token_usage": of(total), "last_token_usage": of(last)}
    return codex("event_msg", type="token_count", info=info, rate_limits=None)


def item(text: str, role: str = "assistant") -> Entry:
    """Return a message of Codex."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return codex("response_item", type="message", role=role, content=content)


CODEX = [
    codex("session_meta", id="c", timestamp="2026-03-01T10:00:00.000Z", cwd="/", cli_version="1"),
    codex("event_msg", type="token_count", info=None, rate_limits={}),
    codex("turn_context", cwd="/", model="gpt-a"), item("go", "user"), item("one"), tokens(4, 4),
    tokens(4, 4), item("two"), tokens(9, 5), codex("turn_context", cwd="/", model="gpt-b"),
    item("more", "user"), item("three"), tokens(11, 2), tokens(11, 2),
]  # fmt: skip
GEMINI: list[Entry] = [
    {"id": "g1", "timestamp": "2026-03-01T10:00:00.000Z", "type": "user", "content": "go"},
    {"id": "g2", "timestamp": "2026-03-01T10:01:00.000Z", "type": "gemini", "content": "ok",
     "model": "gemini-x", "tokens": {"input": 50, "output": 8, "cached": 40, "thoughts": 2,
                                     "tool": 0, "total": 60}},
]  # fmt: skip
QWEN: list[Entry] = [
    {"uuid": "q1", "parentUuid": None, "sessionId": "q", "timestamp": "2026-03-01T10:00:00.000Z",
     "type": "user", "message": {"role": "user", "parts": [{"text": "go"}]}},
    {"uuid": "q2", "parentUuid": "q1", "sessionId": "q", "timestamp": "2026-03-01T10:01:00.000Z",
     "type": "assistant", "model": "qwen-x", "message": {"role": "model", "parts": [{"text": "a"}]},
     "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4,
                       "cachedContentTokenCount": 5, "totalTokenCount": 16}},
]  # fmt: skip

# Model, out, fresh, cached and responses, counted by hand.
SHAPES: dict[str, tuple[list[Entry], list[tuple[str, int, int, int, int]]]] = {
    "claude": (CLAUDE, [("claude-x", 46, 69, 1_200, 3)]),
    "pi": (PI, [("pi-x", 12, 26, 140, 2)]),
    "omp": (OMP, [("pi-x", 12, 26, 140, 2)]),
    "codex": (CODEX, [("gpt-a", 9, 36, 54, 2), ("gpt-b", 2, 8, 12, 1)]),
    "gemini": (GEMINI, [("gemini-x", 10, 10, 40, 1)]),
    "qwen": (QWEN, [("qwen-x", 4, 7, 5, 1)]),
}  # fmt: skip


def spell(entries: list[Entry]) -> bytes:
    """Return a session file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


def load(thread: eventq.Thread, folder: Path, entries: list[Entry], name: str = "s") -> None:
    """Import a session of some entries."""
    file = folder / f"{name}.jsonl"
    file.write_bytes(spell(entries))
    thread.sessions.import_file(str(file), name=name)


def models(found: UsageSum) -> list[tuple[str, int, int, int, int]]:
    """Return a sum by model; the sum of these must be the whole."""
    assert found.is_all
    for name in ("out", "fresh", "cached", "responses"):
        assert getattr(found, name) == sum(getattr(one, name) for one in found.models)
    return [(one.model, one.out, one.fresh, one.cached, one.responses) for one in found.models]


@pytest.mark.parametrize("tool", SHAPES)
def test_each_response_of_a_session_counts_once(
    thread: eventq.Thread, tmp_path: Path, tool: str
) -> None:
    """Also of several lines, on another branch, or counted again and again."""
    entries, expected = SHAPES[tool]
    load(thread, tmp_path, entries)
    assert models(thread.usage(context="s")) == expected
    assert thread.usage(context="s").subagents == UsageSum()
    assert models(thread.usage()) == expected


@pytest.mark.parametrize("tool", SHAPES)
def test_a_session_that_grows_line_by_line(
    thread: eventq.Thread, tmp_path: Path, tool: str
) -> None:
    """Each import counts what is new: the sum is that of the whole file."""
    entries, expected = SHAPES[tool]
    for count in range(1, len(entries) + 1):
        load(thread, tmp_path, entries[:count])
    assert models(thread.usage(context="s")) == expected
    assert models(thread.usage()) == expected


@pytest.mark.parametrize("tool", SHAPES)
def test_a_session_that_is_imported_again(thread: eventq.Thread, tmp_path: Path, tool: str) -> None:
    """Nothing counts twice: not the same file, nor one that was written anew."""
    entries, expected = SHAPES[tool]
    load(thread, tmp_path, entries)
    load(thread, tmp_path, entries)
    head = {**entries[0], "more": "said"}
    load(thread, tmp_path, [head, *entries[1:]])
    assert models(thread.usage(context="s")) == expected
    assert models(thread.usage()) == expected


def test_a_copy_of_a_session_counts_in_the_first(thread: eventq.Thread, tmp_path: Path) -> None:
    """A fork that the tool has written begins with the same responses."""
    load(thread, tmp_path, CLAUDE)
    fork = [{**one, "sessionId": "t"} for one in CLAUDE]
    load(thread, tmp_path, [*fork, claude(8, "r4", 100)], "t")
    assert models(thread.usage(context="s")) == SHAPES["claude"][1]
    assert models(thread.usage(context="t")) == [("claude-x", 100, 23, 400, 1)]
    assert thread.usage().responses == 4


def test_a_fork_of_codex_counts_in_its_source(thread: eventq.Thread, tmp_path: Path) -> None:
    """Its copy has the same turns, whose counts have other times."""
    load(thread, tmp_path, CODEX, "c")
    times = [{**one, "timestamp": "2026-03-02T10:00:00.000Z"} for one in CODEX[1:]]
    head = codex("session_meta", id="d", forked_from_id="c", cwd="/", cli_version="1")
    load(thread, tmp_path, [head, *times, item("four"), tokens(14, 3)], "d")
    assert models(thread.usage(context="d")) == [("gpt-b", 3, 12, 18, 1)]
    assert thread.usage().responses == 4


def test_a_fork_of_codex_that_came_first(thread: eventq.Thread, tmp_path: Path) -> None:
    """What it shares counts in its source, once that is here, and in the fork until then."""
    times = [{**one, "timestamp": "2026-03-02T10:00:00.000Z"} for one in CODEX[1:]]
    head = codex("session_meta", id="d", forked_from_id="c", cwd="/", cli_version="1")
    load(thread, tmp_path, [head, *times, item("four"), tokens(14, 3)], "d")
    assert thread.usage(context="d").responses == 4
    load(thread, tmp_path, CODEX, "c")
    assert models(thread.usage(context="c")) == SHAPES["codex"][1]
    assert models(thread.usage(context="d")) == [("gpt-b", 3, 12, 18, 1)]
    assert thread.usage().responses == 4


def test_subagents_count_beside_their_session(thread: eventq.Thread, tmp_path: Path) -> None:
    """Those in its file, and those in files of the folder beside it."""
    inside = [
        asked(8, "look", parent=None, isSidechain=True, agentId="x"),
        claude(9, "r8", 200, isSidechain=True, agentId="x"),
    ]
    beside = tmp_path / "s" / "subagents"
    beside.mkdir(parents=True)
    (beside / "agent-y.jsonl").write_bytes(spell([
        asked(20, "find", parent=None, isSidechain=True, agentId="y"),
        claude(21, "r9", 3_000, isSidechain=True, agentId="y"),
    ]))  # fmt: skip
    load(thread, tmp_path, [*CLAUDE, *inside])
    found = thread.usage(context="s")
    assert models(found) == SHAPES["claude"][1]
    assert found.subagents is not None
    assert (found.subagents.out, found.subagents.responses) == (3_200, 2)
    own = [one.name for one in thread.contexts if one.name and "agent-y" in one.name]
    assert thread.usage(context=own[0]).out == 3_000
    assert thread.usage().out == 3_246


def test_sums_of_sessions(thread: eventq.Thread, tmp_path: Path) -> None:
    """Each is that of its context: with subagents, and with what was appended by hand."""
    fill(thread, tmp_path)
    for name, entries in (("p", PI), ("c", CODEX)):
        load(thread, tmp_path, entries, name)
    thread.contexts.get("s").append(said(50, "own"))
    beside = tmp_path / "b" / "subagents"
    beside.mkdir(parents=True)
    agent = claude(21, "r9", 3_000, isSidechain=True, agentId="y", parent=None)
    (beside / "agent-y.jsonl").write_bytes(spell([agent]))
    load(thread, tmp_path, [{**one, "uuid": f"b{n}"} for n, one in enumerate(CLAUDE[:1])], "b")
    names = ["s", "p", "c", "b"]
    found = thread.usage_of_sessions(names)
    assert found == {name: thread.usage(context=name) for name in names}
    assert [found["b"].out, found["b"].subagents and found["b"].subagents.out] == [0, 3_000]
    assert thread.usage_of_sessions([]) == {}


def test_a_branch_has_the_sum_of_its_session(thread: eventq.Thread, tmp_path: Path) -> None:
    """All of them have it; what is appended to one by hand counts too."""
    load(thread, tmp_path, CLAUDE)
    names = [one.name for one in thread.contexts]
    assert len(names) == 2
    thread.contexts.get("s").append(said(50, "own"))
    for name in names:
        assert thread.usage(context=name).out == 96
    fork = thread.contexts.fork("s")
    fork.append(said(9, "fork"))
    assert (thread.usage(context=fork.id).out, thread.usage(context="s").out) == (9, 96)


@pytest.mark.parametrize("tool", SHAPES)
def test_sessions_as_an_independent_count_has_them(
    thread: eventq.Thread, tmp_path: Path, tool: str
) -> None:
    """By other means: the last line of each response in the file."""
    entries, _ = SHAPES[tool]
    load(thread, tmp_path, entries)
    found = thread.usage()
    assert (found.out, found.read, found.responses) == counted(entries)


def counted(entries: list[Entry]) -> tuple[int, int, int]:
    """Return tokens out and in, and responses, of raw lines of any tool."""
    last: dict[object, Counter[str]] = {}
    for n, one in enumerate(entries):
        payload, message = one.get("payload") or {}, one.get("message") or {}
        if payload.get("type") == "token_count" and payload["info"]:
            told = payload["info"]["last_token_usage"]
            key: object = json.dumps(payload["info"]["total_token_usage"])
        else:
            told = message.get("usage") or one.get("usageMetadata") or one.get("tokens") or {}
            key = message.get("id") or n
        out = ("output_tokens", "output", "candidatesTokenCount", "thoughts")
        read = (
            "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "input",
            "cacheRead", "cacheWrite", "promptTokenCount",
        )  # fmt: skip
        if told:
            last[key] = Counter(
                out=sum(told.get(name, 0) for name in out),
                read=sum(told.get(name, 0) for name in read),
            )
    total = sum(last.values(), Counter())
    return total["out"], total["read"], len(last)


# --- chats and runs -------------------------------------------------------------------------------


def said(out: int, response: str = "", **more: Any) -> Entry:
    """Return a message of a chat API."""
    usage = {"input_tokens": 10, "output_tokens": out}
    return {
        "role": "assistant", "model": "m", "content": f"text {out}", "usage": usage,
        **({"id": response} if response else {}), **more,
    }  # fmt: skip


def test_messages_that_are_appended(thread: eventq.Thread) -> None:
    """Those of any API; several of one response count once, with the most that is said of it."""
    chat = thread.contexts.create("chat")
    chat.append({"role": "user", "content": "go"})
    chat.append(said(5, "r"))
    chat.append(said(20, "r"))
    chat.append(said(4))
    details = {"cached_tokens": 60}
    chat.append({
        "role": "assistant", "content": "x", "model": "o",
        "usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": details},
    })  # fmt: skip
    chat.append({
        "id": "resp_1", "object": "response", "model": "o", "output": [],
        "usage": {"input_tokens": 100, "output_tokens": 8, "input_tokens_details": details},
    })  # fmt: skip
    chat.append(json.dumps(said(3)))
    assert models(thread.usage(context="chat")) == [("m", 27, 30, 0, 3), ("o", 15, 80, 120, 2)]
    other = thread.contexts.create("other")
    other.append(said(6, "r"))  # ids of a chat are its own
    assert thread.usage(context=other.id).out == 6
    assert thread.usage().out == 48


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"usage", b'{"usage', b'{"usage": 3}', b'{"role": ["assistant"], "usage": {"output": 3}}',
        b'{"role": "user", "usage": {"output_tokens": 3}}', b'["usage"]', b'{"usage": {"output": 3}}',
        b'{"role": "assistant", "usage": {"output_tokens": "9"}}', b"\xff usage \x00",
        b'{"role": "assistant", "usage": [1]}', b'{"message": 3, "usage": {"output": 3}}',
        b'{"role": "assistant", "usage": {"output_tokens": -4, "input_tokens": true}}',
        b"[" * 100_000 + b"usage",
    ],
)  # fmt: skip
def test_what_states_nothing_counts_nothing(thread: eventq.Thread, payload: bytes) -> None:
    """A payload may be anything."""
    thread.contexts.create("c").append(payload)
    assert thread.usage() == UsageSum()


def test_what_a_message_states_fits_every_engine(thread: eventq.Thread) -> None:
    """No name, id or number that JSON takes makes an append or a sum fail."""
    chat = thread.contexts.create("c")
    most = (1 << 53) - 1
    usage = {"input_tokens": most, "output_tokens": most, "cache_read_input_tokens": most}
    for n in range(4):
        chat.append(json.dumps({
            "role": "assistant", "content": n, "model": "a\0b\ud800" + "x" * 999, "id": "\ud800",
            "usage": usage, "timestamp": 9e14,
        }))  # fmt: skip
    (found,) = thread.usage(context="c").models
    assert found == ModelUsage("a\\x00b\\ud800" + "x" * 196, 1 << 40, 1 << 40, 1 << 40, 1)


def test_steps_of_a_run(thread: eventq.Thread) -> None:
    """Their metadata say it; attempts and steps that were replaced were paid for as well."""
    run = thread.runs.start("work", "do it")
    run.step("a", {"model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}, "one")
    tried = NewStep("b", {"tokens": {"in": 10, "out": 20}, "model": "m"}, "bad")
    run.step(NewStep("b", {"input_tokens": 10, "output_tokens": 300}, "two", attempts=(tried,)))
    run.attempt("c", {"usage": {"prompt_tokens": 10, "completion_tokens": 4_000}}, "worse")
    run.poke({"usage": {"output_tokens": 50_000}}, "better")
    run.step("c", {"verdict": "fine", "out": 7}, "three")
    run.end()
    assert models(thread.usage(run=run.id)) == [("", 54_300, 20, 0, 3), ("m", 21, 20, 0, 2)]
    assert thread.usage(context=run.id) == thread.usage(run=run.id)
    thread.gc(apply=True, grace=0)
    assert thread.usage(run=run.id).out == 54_321


def test_a_fork_of_a_run_counts_its_own_steps(thread: eventq.Thread) -> None:
    """Those before the fork count in the source, also when the fork replaces the last of them."""
    run = thread.runs.start("work", "do it")
    run.step("a", {"usage": {"output_tokens": 1}}, "one")
    fork = run.fork(1)
    fork.poke({"usage": {"output_tokens": 20}}, "other")
    fork.step("b", {"usage": {"output_tokens": 300}}, "two")
    assert (thread.usage(run=run.id).out, thread.usage(run=fork.id).out) == (1, 320)
    empty = thread.runs.start("work", "nothing").id
    assert thread.usage_of_runs([fork.id, empty, run.id]) == {
        one: thread.usage(run=one) for one in (run.id, fork.id, empty)
    }
    assert thread.usage_of_runs([]) == {}


def test_a_key_counts_once(thread: eventq.Thread) -> None:
    """What is appended again with its key stores nothing."""
    chat = thread.contexts.create("c")
    for _ in range(2):
        chat.append(said(5), key="k")
    assert thread.usage().responses == 1


# --- times ----------------------------------------------------------------------------------------


def test_times_and_hours(thread: eventq.Thread, tmp_path: Path) -> None:
    """A response has the time that it states, or that of its turn."""
    load(thread, tmp_path, CLAUDE)
    hour = 1_772_359_200_000  # 2026-03-01T10:00:00Z
    assert thread.usage(since=hour + 300_000).out == 16
    assert thread.usage(until=hour + 300_000).out == 30
    assert thread.usage(context="s", since=hour + 300_000, until=hour + 400_000).out == 7
    turn = thread.contexts.create("c").append(said(5))
    later = turn.created_at_ms
    assert thread.usage(since=later, until=later + 1).out == 5
    assert thread.usage_by_hour(0) == [
        HourUsage(hour, 46, 69, 1_200, 3),
        HourUsage(later // 3_600_000 * 3_600_000, 5, 10, 0, 1),
    ]
    assert thread.usage_by_hour(hour + 3_600_000, later) == []


@pytest.mark.into(*ENGINES)
def test_a_time_that_nobody_has_set(thread: eventq.Thread, other: eventq.Thread) -> None:
    """One before 1970 is none: what it says of tokens counts, and can be copied."""
    chat = thread.contexts.create("c")
    turn = chat.append(said(5, timestamp="0001-01-01T00:00:00Z"))
    assert thread.usage(since=turn.created_at_ms).out == 5
    assert thread.usage(context="c").out == 5
    assert thread.copy_to(other).notes == ()
    assert other.usage(context="c").out == 5


def test_what_may_be_asked(thread: eventq.Thread) -> None:
    """Of a context or a run that is there, and one of the two."""
    chat = thread.contexts.create("c")
    assert thread.usage(context="c") == UsageSum()
    with pytest.raises(UnknownContextError):
        thread.usage(context="x")
    with pytest.raises(UnknownRunError):
        thread.usage(run=chat.id)
    with pytest.raises(UsageError, match="of a context or of a run"):
        thread.usage(context="c", run=1)
    with pytest.raises(UsageError):
        thread.usage(since=-1)


# --- copies, erasures, collections ----------------------------------------------------------------


def fill(thread: eventq.Thread, folder: Path) -> None:
    """Store a session with subagents, a chat, its fork, and a run."""
    inside = [
        asked(8, "look", parent=None, isSidechain=True, agentId="x"),
        claude(9, "r8", 200, isSidechain=True, agentId="x"),
    ]
    load(thread, folder, [*CLAUDE, *inside])
    chat = thread.contexts.create("chat")
    chat.append(said(5, "r"))
    thread.contexts.fork("chat", name="fork").append(said(20))
    run = thread.runs.start("work", "do it", label="run")
    run.attempt("a", {"usage": {"output_tokens": 4}}, "bad")
    run.step("a", {"usage": {"output_tokens": 300}}, "one")


def sums(thread: eventq.Thread) -> list[UsageSum]:
    """Return all sums."""
    names = ("s", "chat", "fork", "run")
    return [*(thread.usage(context=name) for name in names), thread.usage()]


@pytest.mark.into(*ENGINES)
@pytest.mark.parametrize("log", [True, False])
def test_a_copy_has_the_sums(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, log: bool
) -> None:
    """Of the thread and of each part, however often it is made, and of what has grown since."""
    if not log:  # other ids
        other.contexts.create("own").append(said(7_000))
        other.runs.start("own", "task").step("a", {}, "x")
    fill(thread, tmp_path)
    for more in (True, False):
        thread.copy_to(other, log=log)
        found = sums(other)
        assert found[:-1] == sums(thread)[:-1]
        assert found[-1].out - thread.usage().out == (0 if log else 7_000)
        if more:
            load(thread, tmp_path, [*CLAUDE, claude(8, "r3", 90)])
            thread.contexts.get("chat").append(said(60, "r"))
            thread.runs.get("run").step("b", {"tokens": {"out": 5}}, "two")
    load(other, tmp_path, [*CLAUDE, claude(8, "r3", 90), claude(9, "r4", 1_000)])
    assert other.usage(context="s").out == thread.usage(context="s").out + 1_000


@pytest.mark.into(*ENGINES)
def test_a_copy_of_a_context_has_its_sum(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """What it shares with others that did not come counts in the thread alone."""
    fill(thread, tmp_path)
    thread.copy_to(other, ["fork", "s"])
    assert other.usage(context="s") == thread.usage(context="s")
    assert (other.usage(context="fork").out, other.usage().out) == (20, 46 + 200 + 25)


@pytest.mark.into(*ENGINES)
def test_what_came_with_a_part_counts_for_the_rest_that_follows(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Forks bring turns of a chat and a session, which come themselves later."""
    fill(thread, tmp_path)
    thread.contexts.fork("s", name="copy")
    thread.copy_to(other, ["fork", "copy"])
    load(other, tmp_path, CLAUDE)
    assert models(other.usage(context="s")) == SHAPES["claude"][1]
    thread.copy_to(other, ["chat", "run"])
    assert other.usage(context="chat") == thread.usage(context="chat")
    assert other.usage().out == thread.usage().out - 200


@pytest.mark.into(*ENGINES)
def test_a_copy_of_another_version_of_a_session_counts_once(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """It stays out, but the turns of its branches come: what both have is known."""
    load(other, tmp_path, [{**CLAUDE[0], "more": "said"}, *CLAUDE[1:5]])
    load(thread, tmp_path, CLAUDE)
    thread.copy_to(other)
    assert other.usage(context="s").out == 30
    assert models(other.usage()) == SHAPES["claude"][1]


@pytest.mark.into(*ENGINES)
def test_a_copy_brings_back_nothing_that_was_erased(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Another thread may have it still."""
    fill(thread, tmp_path)
    thread.copy_to(other)
    thread.erasures.turn(thread.contexts.get("chat").head_id())
    other.copy_to(thread)
    assert thread.usage(context="chat") == UsageSum()
    assert other.usage(context="chat").out == 5


@pytest.mark.into(*ENGINES)
def test_a_pack_has_the_sums(thread: eventq.Thread, other: eventq.Thread, tmp_path: Path) -> None:
    """Also where it comes to what is there already."""
    fill(thread, tmp_path)
    thread.export_pack(tmp_path / "pack")
    for _ in range(2):
        assert other.import_pack(tmp_path / "pack").notes == ()
        assert sums(other) == sums(thread)


def test_a_pack_of_before_has_its_sessions_counted(
    thread: eventq.Thread, fresh: Any, tmp_path: Path
) -> None:
    """Their lines say it; those of chats and runs are not looked at."""
    fill(thread, tmp_path)
    thread.export_pack(tmp_path / "pack")
    beside = tmp_path / "pack" / "eventq.ndjson"
    lines = [json.loads(line) for line in beside.read_text().splitlines()]
    old = [
        {key: value for key, value in line.items() if key != "counted"}
        for line in lines
        if "usage" not in line
    ]
    beside.write_text("".join(json.dumps(line) + "\n" for line in old))
    other = fresh()
    other.import_pack(tmp_path / "pack")
    assert other.usage(context="s") == thread.usage(context="s")
    assert other.usage(context="chat") == UsageSum()


@pytest.mark.parametrize(
    "wrong",
    [
        {"out": -1}, {"out": 1 << 60}, {"cached": "1"}, {"agent": 2}, {"response": -1},
        {"response": 1 << 64}, {"at_ms": -1}, {"of_session": [1]}, {"of_context": "1"},
        {"usage": 99}, {"model": 3},
    ],
)  # fmt: skip
def test_a_pack_is_not_trusted(
    thread: eventq.Thread, fresh: Any, tmp_path: Path, wrong: Entry
) -> None:
    """What could be no row is left out, and said so."""
    thread.contexts.create("chat").append(said(5))
    thread.export_pack(tmp_path / "pack")
    beside = tmp_path / "pack" / "eventq.ndjson"
    lines = [json.loads(line) for line in beside.read_text().splitlines()]
    lines = [{**line, **(wrong if "usage" in line else {})} for line in lines]
    beside.write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = fresh()
    assert "1 line left out" in other.import_pack(tmp_path / "pack").notes[-1]
    assert other.usage() == UsageSum()


def test_an_erased_turn_counts_no_more(thread: eventq.Thread, tmp_path: Path) -> None:
    """What it took was in its payload, and goes with that; the others stay."""
    fill(thread, tmp_path)
    chat = thread.contexts.get("chat").head_id()
    session = thread.contexts.get("s").last(1).turns[-1].turn_id
    before = thread.usage().out
    thread.erasures.turn(chat)
    assert thread.usage(context="chat") == UsageSum()
    thread.erasures.turn(session)
    assert thread.usage(context="s").out == 46 - 9
    assert thread.usage().out == before - 5 - 9
    load(thread, tmp_path, CLAUDE)
    assert thread.usage(context="s").out >= 46 - 9


def test_what_is_collected_counts_no_more(thread: eventq.Thread, tmp_path: Path) -> None:
    """A session that is removed goes with its lines; a deleted context with its turns."""
    fill(thread, tmp_path)
    before = thread.usage().out
    thread.contexts.delete("chat")  # its turn is the fork's, too
    thread.sessions.remove("s")
    assert thread.usage().out == before - 246
    thread.gc(apply=True, grace=0)
    assert thread.usage().out == before - 246
    thread.contexts.delete("fork")
    thread.gc(apply=True, grace=0)
    assert thread.usage().out == before - 246 - 25
    load(thread, tmp_path, CLAUDE)
    assert thread.usage(context="s").out == 46


# --- what is interrupted --------------------------------------------------------------------------


@pytest.mark.parametrize("tool", SHAPES)
def test_an_import_that_is_interrupted_is_counted_by_the_next(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Its lines were stored, and no turns: whatever the next import adds, all of them count."""
    entries, expected = SHAPES[tool]

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    half = max(2, len(entries) // 2)
    load(thread, tmp_path, entries[: half - 1])
    with monkeypatch.context() as patch:
        patch.setattr(type(thread.database.memory.sessions), "place", fail)
        with pytest.raises(KeyboardInterrupt):
            load(thread, tmp_path, entries[: half + 1])
    load(thread, tmp_path, entries)
    assert models(thread.usage(context="s")) == expected


@pytest.mark.parametrize("tool", SHAPES)
def test_what_is_asked_before_an_import_is_completed_loses_nothing(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Lines without turns cannot count yet: they do when they have them."""
    entries, expected = SHAPES[tool]

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    for end in (max(2, len(entries) // 2), len(entries)):
        with monkeypatch.context() as patch:
            patch.setattr(type(thread.database.memory.sessions), "place", fail)
            with pytest.raises(KeyboardInterrupt):
                load(thread, tmp_path, entries[:end])
        assert thread.usage().is_all
    load(thread, tmp_path, entries)
    assert models(thread.usage(context="s")) == expected


def test_a_turn_is_stored_with_what_it_took_or_not_at_all(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one change: of an import, an append and a step."""
    chat, run = thread.contexts.create("chat"), thread.runs.start("work", "do it")
    turns = thread.database.memory.last_id("turns")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("of_turn", "of_session"):
        monkeypatch.setattr(type(thread.database.memory.usage), name, fail)
    with pytest.raises(KeyboardInterrupt):
        chat.append(said(5))
    with pytest.raises(KeyboardInterrupt):
        run.step("a", {"usage": {"output_tokens": 4}}, "one")
    with pytest.raises(KeyboardInterrupt):
        load(thread, tmp_path, CLAUDE)
    assert thread.database.memory.last_id("turns") == turns
