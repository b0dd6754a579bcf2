"""What a payload says to a person, whichever tool wrote it.

The kind: something is shown as raw JSON, under the wrong speaker, twice or not at all. Members:
messages of both APIs with each kind of block, entries of each agent, hooks, questions, nodes of
runs, text, other JSON, bytes of files, bytes that are cut, deep or endless nesting, wrong types.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq import said
from eventq.memory.nodes import ContentNode, StartNode, StateNode
from eventq.said import media
from eventq.said.blocks import Call, Data, Media, Result, Text, Thinking, Usage
from tests.sessions.support import (
    answers,
    call,
    codex_call,
    codex_output,
    entry,
    event,
    header,
    item,
    line,
    meta,
    prompt,
    reply,
    result,
    rollout,
    says,
)

BASE = {"type": "base64", "media_type": "image/png", "data": "blob:blake3:" + "0" * 64}
ASKED = {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"path":"/a"}'}}
PI_CALL = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "/a"}}
REF = "blob:blake3:" + "1" * 64

# What a value says: its role, its kind, and the line that stands for it.
LINES: list[tuple[Any, str, str, str]] = [
    ({"role": "user", "content": "hi\n there"}, "user", "", "hi there"),
    ({"role": "human", "content": "hi"}, "user", "", "hi"),
    ({"role": "developer", "content": "rules"}, "system", "", "rules"),
    ({"role": "assistant", "content": [{"type": "text", "text": "a"}]}, "assistant", "", "a"),
    ({"role": "assistant", "content": None, "tool_calls": [ASKED]}, "assistant", "", "f /a"),
    ({"role": "tool", "tool_call_id": "c", "content": "done"}, "tool", "", "done"),
    ({"role": "model", "parts": [{"text": "a"}]}, "assistant", "", "a"),
    ({"role": "user", "content": [{"type": "image", "source": BASE}]}, "user", "", "[PNG]"),
    ([{"type": "text", "text": "of a content"}], "", "", "of a content"),
    ("a string", "", "", '"a string"'),
    (says("u", None), "user", "", "hello"),
    (says("u", None, "<system-reminder>no</system-reminder>\nyes"), "user", "", "yes"),
    (says("u", None, "<local-command-stdout>out</local-command-stdout>"), "system", "", "out"),
    (
        says("u", None, "<command-name>/x</command-name>\n<command-args>y</command-args>"),
        "user", "command", "/x y",
    ),
    (says("u", None, isMeta=True), "system", "", "hello"),
    (says("u", None, isCompactSummary=True), "system", "summary", "hello"),
    (answers("a", "u"), "assistant", "", "well"),
    (answers("a", "u", call("t", command="ls\n-l")), "assistant", "", "Bash ls -l"),
    (answers("a", "u", {"type": "thinking", "thinking": "hm"}), "assistant", "", "hm"),
    (result("r", "a", "t"), "tool", "", "done"),
    (line("system", "b", None, subtype="compact_boundary", content="C"), "system", "compaction", "C"),
    (line("system", "s", "a", subtype="turn_duration"), "system", "turn duration", "turn duration"),
    ({"type": "summary", "summary": "S", "leafUuid": "x"}, "", "summary", "S"),
    ({"type": "custom-title", "customTitle": "T", "sessionId": "s"}, "", "custom title", "T"),
    (entry("e", None), "user", "", "hello"),
    (
        entry("e", None, message={"role": "assistant", "content": [PI_CALL]}),
        "assistant", "", "read /a",
    ),
    (
        entry("e", None, message={"role": "toolResult", "toolCallId": "c", "content": "ok"}),
        "tool", "", "ok",
    ),
    (
        entry("e", None, message={"role": "assistant", "content": [], "errorMessage": "broke"}),
        "assistant", "error", "broke",
    ),
    (
        entry("e", None, message={"role": "bashExecution", "command": "ls", "output": "a"}),
        "user", "", "bash ls",
    ),
    (entry("e", None, "compaction", summary="S"), "system", "compaction", "S"),
    (entry("e", None, "branch_summary", summary="S"), "system", "branch summary", "S"),
    (entry("e", None, "model_change", provider="p", modelId="m"), "", "model change", "p m"),
    (header(), "", "session", "/a"),
    (prompt("p"), "user", "", "p"),
    (prompt("<environment_context>\nx</environment_context>"), "system", "", "<environment_context> x</environment_context>"),
    (reply("r"), "assistant", "", "r"),
    (codex_call("c"), "assistant", "", "shell"),
    (item("function_call", name="shell", arguments='{"command":["bash","-lc","ls -l"]}'), "assistant", "", "shell ls -l"),
    (item("web_search_call", action={"query": "q"}), "assistant", "", "web search q"),
    (codex_output("c"), "tool", "", "done"),
    (item("reasoning", summary=[{"type": "summary_text", "text": "t"}]), "assistant", "", "t"),
    (rollout("compacted", message="S"), "system", "compaction", "S"),
    (event("agent_message", message="m"), "", "agent message", "m"),
    (meta(), "", "session meta", "/a"),
    ({"type": "user.message", "data": {"content": "c"}, "id": "1"}, "user", "", "c"),
    (
        {"type": "assistant.message", "data": {"content": "", "toolRequests": [{"toolCallId": "c", "name": "bash", "arguments": {"command": "ls"}}]}},
        "assistant", "", "bash ls",
    ),
    ({"type": "gemini", "content": "g", "thoughts": [{"description": "d"}]}, "assistant", "", "g"),
    ({"hook_event_name": "UserPromptSubmit", "prompt": "p"}, "user", "prompt", "p"),
    (
        {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}},
        "assistant", "PreToolUse", "Bash ls",
    ),
    ({"hook_event_name": "Notification", "message": "m"}, "system", "Notification", "m"),
    ({"hook_event_name": "Stop", "last_assistant_message": "m"}, "assistant", "Stop", "m"),
    ({"hook_event_name": "SessionEnd"}, "system", "SessionEnd", "SessionEnd"),
    ({"n": 1}, "", "", "n 1"),
    ([1, 2], "", "", "[1,2]"),
    (7, "", "", "7"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "role", "kind", "shown"), LINES)
def test_each_shape_is_known(value: Any, role: str, kind: str, shown: str) -> None:
    """Who speaks, what it is if it is no plain message, and what stands for it on one line."""
    found = said.read(json.dumps(value, separators=(",", ":")).encode())
    assert (found.role, found.kind, found.line(80)) == (role, kind, shown)


def one(value: Any) -> said.Block:
    """Return the only block of a value."""
    (block,) = said.of(value).blocks
    return block


def test_a_call_says_what_it_does() -> None:
    """The argument that tells most comes first; all of them are kept."""
    given: dict[str, Any] = {"description": "d", "command": "ls"}
    assert one(answers("a", "u", call("t", **given))) == Call("t", "Bash", "ls", given)
    assert one({"role": "assistant", "tool_calls": [ASKED]}) == Call("c", "f", "/a", {"path": "/a"})
    todos = [{"content": "x"}, {"content": "y"}]
    assert one(answers("a", "u", call("t", "TodoWrite", todos=todos))).argument == "2 items"  # type: ignore[union-attr]
    odd = item("custom_tool_call", name="apply", input="*** Begin\n+x", call_id="c")
    assert one(odd) == Call("c", "apply", "*** Begin +x", "*** Begin\n+x")
    assert one(answers("a", "u", call("t", "X", n=1))).argument == '{"n": 1}'  # type: ignore[union-attr]


def test_a_result_says_whether_it_failed() -> None:
    """Its texts and images are blocks of it; what the tool adds for itself is left out."""
    content = [
        {"type": "text", "text": "a\nagentId: af31 (for resuming)\n<usage>9</usage>"},
        {"type": "image", "source": BASE},
    ]
    block = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": content}
    found = one(line("user", "r", "a", message={"role": "user", "content": [block]}))
    image = Media("PNG", "image/png", BASE["data"])
    assert found == Result("t", (Text("a"), image), failed=True)
    told = entry(
        "e",
        None,
        message={
            "role": "toolResult",
            "toolCallId": "c",
            "toolName": "read",
            "isError": True,
            "content": "no",
        },
    )
    assert one(told) == Result("c", (Text("no"),), failed=True, name="read")


def test_tokens_are_those_of_the_response() -> None:
    """What came from a cache is apart, in the words of any API."""
    counts = [
        {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 2, "output_tokens": 7},
        {"prompt_tokens": 45, "prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens": 7},
        {"input": 5, "cacheRead": 40, "output": 7},
        {"promptTokenCount": 45, "cachedContentTokenCount": 40, "candidatesTokenCount": 7},
    ]  # fmt: skip
    for usage in counts:
        found = said.of(
            {"role": "assistant", "model": "m", "id": "r", "content": "x", "usage": usage}
        )
        assert (found.usage, found.model, found.response) == (Usage(7, 5, 40), "m", "r")
    info = {"last_token_usage": {"input_tokens": 45, "cached_input_tokens": 40, "output_tokens": 7}}
    assert said.of(event("token_count", info=info)).usage == Usage(7, 5, 40)
    assert said.of({"role": "assistant", "content": "x"}).usage is None


def test_questions_and_answers_are_known_by_their_type() -> None:
    """A question says what may be answered, and an answer who gave it."""
    asked = json.dumps({"text": "Deploy?", "options": ["yes", "no"]}).encode()
    found = said.read(asked, "approval")
    assert (found.kind, found.text) == ("question", "Deploy?\n(yes / no)")
    for odd in (b"5", b"true", b'"yes"', b'{"a":1}'):
        assert said.read(b'{"text":"Deploy?","options":%b}' % odd, "question").text == "Deploy?"
    found = said.read(b'{"question":1,"text":"yes","by":"ann"}', "answer")
    assert (found.role, found.kind, found.name, found.text) == ("user", "answer", "ann", "yes")
    assert said.read(b'{"question":1}', "answer").blocks == (
        Data("JSON, 14 bytes", '{"question":1}'),
    )


def test_nodes_of_runs_say_their_role() -> None:
    """The text of a step stands in a node of its own."""
    start = StartNode("solve", REF).encode()
    step = StateNode("coder", {"ok": True}, REF, REF, (), 7).encode()
    assert [(s.kind, s.name) for s in map(said.read, (start, step))] == [
        ("start", "solve"),
        ("step", "coder"),
    ]
    assert said.read(ContentNode("done").encode()).text == "done"


def png(width: int, height: int) -> bytes:
    """Return the first bytes of a PNG."""
    head = struct.pack(">II", width, height) + bytes([8, 2, 0, 0, 0])
    chunk = b"IHDR" + head
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF" + b"\0" * 10 + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 600, 800) + b"\x03" * 9
)  # fmt: skip
WEBP = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + bytes([31, 3, 0]) + bytes([87, 2, 0])


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (png(800, 600) + b"\0" * 40_000, "PNG 800 × 600, 40 kB"),
        (JPEG, "JPEG 800 × 600, 38 bytes"),
        (b"GIF89a" + struct.pack("<HH", 800, 600), "GIF 800 × 600, 10 bytes"),
        (WEBP, "WEBP 800 × 600, 30 bytes"),
        (b"\x89PNG\r\n\x1a\n\xff", "PNG, 9 bytes"),
        (b"%PDF-1.7\n\xff", "PDF, 10 bytes"),
        (b"SQLite format 3\0\xff", "SQLite database, 17 bytes"),
        (b"\xff", "binary, 1 byte"),
        (b"\xff" * 1_500_000, "binary, 1.5 MB"),
    ],
)
def test_bytes_say_what_file_they_are(data: bytes, what: str) -> None:
    """Its kind, the pixels of an image, and its size."""
    assert said.read(data).blocks == (Data(what, ""),)
    assert media.of_bytes(data[: media.HEAD], len(data)) == what


@pytest.mark.parametrize(
    ("size", "what"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1_000, "1.0 kB"), (9_949, "9.9 kB"), (9_950, "10 kB"),
     (999_499, "999 kB"), (999_500, "1.0 MB"), (999_499_999, "999 MB"), (2_000_000_000, "2.0 GB")],
)  # fmt: skip
def test_sizes_are_short(size: int, what: str) -> None:
    """At most three digits."""
    assert media.amount(size) == what


def test_what_a_file_says_of_images() -> None:
    """A blob, base64, a data URL, and one elsewhere, which is named and never fetched."""
    found = [
        one({"role": "user", "content": [block]})
        for block in (
            {"type": "image", "data": REF, "mimeType": "image/jpeg"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64," + "A" * 4000}},
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 40}, "title": "t"},
            {"type": "input_image", "image_url": {}},
        )
    ]  # fmt: skip
    assert found == [
        Media("JPEG", "image/jpeg", REF), Media("GIF, 3.0 kB", "image/gif", None),
        Media("image at https://x.example/a.png", "image/", None),
        Media("PDF, 30 bytes", "application/pdf", None, "t"), Media("image", "image/", None),
    ]  # fmt: skip


def test_a_beginning_is_no_whole() -> None:
    """JSON that is cut is not parsed, and a character that is cut is left out."""
    assert (
        said.read(b'{"role":"user","content":"a', whole=False).text == '{"role":"user","content":"a'
    )
    assert said.read("aé".encode()[:-1], whole=False).text == "a"
    assert said.read("aé".encode()[:-1]).blocks == (Data("binary, 2 bytes", ""),)
    assert said.read(b"").blocks == ()
    assert said.read(b"{no json").text == "{no json"


def test_an_entry_with_a_bad_byte_is_read_nevertheless() -> None:
    """As an import reads it."""
    data = json.dumps(says("u", None)).encode().replace(b"hello", b"h\xffllo\x02")
    assert (said.read(data).role, said.read(data).text) == ("user", "h�llo\x02")


@pytest.mark.parametrize("depth", [50, 1_000, 200_000])
def test_deep_values_are_read(depth: int) -> None:
    """Results in results are data from some depth on; what cannot be parsed is text."""
    for before, after in (
        (b"[", b"]"),
        (b'{"role":"user","content":[{"type":"tool_result","content":[', b"]}]}"),
    ):
        found = said.read(before * depth + after * depth)
        assert len(found.line(80)) <= 80


@pytest.mark.parametrize("tag", ["usage", "system-reminder", "bash-input", "command-name"])
def test_endless_tags_take_no_time(tag: str) -> None:
    """Neither those that are never closed, nor those that are closed at once."""
    for text in (f"<{tag}>" * 200_000, f"<{tag}></{tag}>" * 100_000, "agentId: " * 200_000):
        said.of(says("u", None, text))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from([value for value, *_ in LINES]), st.data())
def test_any_value_under_any_key_is_read(value: Any, data: st.DataObject) -> None:
    """No type where another one was expected is an error, and each line is one, and short."""

    def changed(one: Any) -> Any:
        if isinstance(one, dict) and one:
            key = data.draw(st.sampled_from(sorted(one)))
            return {**one, key: changed(one[key])}
        if isinstance(one, list) and one:
            return [changed(one[0]), *one[1:]]
        return data.draw(VALUES)

    found = said.of(changed(value))
    assert found.role in ("user", "assistant", "tool", "system", "")
    assert len(found.line(40)) <= 40
    assert "\n" not in found.line(40)
    assert isinstance(found.text, str)
    assert all(
        isinstance(block, (Text, Thinking, Call, Result, Media, Data)) for block in found.blocks
    )
