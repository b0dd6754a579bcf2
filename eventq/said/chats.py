"""What is the same whoever wrote it: messages of chat APIs, hooks, questions, nodes of runs."""

from __future__ import annotations

from eventq.said.blocks import Result, Said, Text, Thinking, Usage
from eventq.said.content import blocks, call, data, plain
from eventq.said.values import mapping, number, objects, string, time_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.said.blocks import Block
    from eventq.said.values import Entry

ROLES = {
    "user": "user", "human": "user", "assistant": "assistant", "model": "assistant",
    "ai": "assistant", "tool": "tool", "function": "tool", "toolResult": "tool",
    "system": "system", "developer": "system",
}  # fmt: skip
_NODE = {"type", "payload", "refs"}


def message(one: Entry, *, kind: str = "", at: int | None = None) -> Said | None:
    """Return what a message of a role says; None if it has no known role."""
    role = ROLES.get(string(one, "role"))
    if role is None:
        return None
    content = one["parts"] if "parts" in one and "content" not in one else one.get("content")
    found: list[Block] = []
    if thought := string(one, "reasoning_content", "reasoning"):
        found.append(Thinking(thought))
    found += blocks(content)
    found += map(call, objects(one, "tool_calls"))
    told = string(one, "tool_call_id", "toolCallId")
    if told or string(one, "role") == "toolResult":
        failed = one.get("isError") is True or one.get("is_error") is True
        found = [Result(told, plain(found), failed, string(one, "toolName", "name"))]
    if found and all(isinstance(block, Result) for block in found):
        role = "tool"
    return Said(
        role, tuple(found), kind, string(one, "name") if role != "tool" else "",
        time_of(one) if at is None else at, string(one, "model"), usage(mapping(one, "usage")),
        string(one, "id"),
    )  # fmt: skip


def usage(one: Entry) -> Usage | None:
    """Return the tokens of a response, in the words of any API; None if none are stated."""
    if not one:
        return None
    out = number(one, "output_tokens", "output", "completion_tokens", "candidatesTokenCount", "out")
    every = number(one, "input_tokens", "input", "prompt_tokens", "promptTokenCount", "in")
    cached = number(one, "cache_read_input_tokens", "cacheRead")
    if not cached:  # or they are among those
        cached = number(one, "cached_input_tokens", "cached", "cachedContentTokenCount") or number(
            one.get("prompt_tokens_details") or one.get("input_tokens_details"), "cached_tokens"
        )
        every = max(0, every - cached)
    fresh = every + number(one, "cache_creation_input_tokens", "cacheWrite")
    if "thoughts" in one or "thoughtsTokenCount" in one:
        out += number(one, "thoughts", "thoughtsTokenCount")
    return Usage(out, fresh, cached) if out or fresh or cached else None


def chat(one: Entry) -> Said | None:
    """Return what a message of a chat API says: a role, and a content, calls or parts."""
    known = one.keys() & {"content", "tool_calls", "parts"}
    return message(one) if known and isinstance(one.get("role"), str) else None


def are_blocks(value: list[Any]) -> bool:
    """Return whether a list is the content of a message: each object says its type."""
    return all(isinstance(one, dict) and string(one, "type") for one in value)


def of_content(value: list[Any]) -> Said:
    """Return what the content of a message says without its message."""
    return Said("", blocks(value))


def hook(one: Entry) -> Said | None:
    """Return what a hook of a coding agent reports, by the name of its event."""
    event = string(one, "hook_event_name")
    if not event:
        return None
    name, used = string(one, "tool_name"), string(one, "tool_use_id")
    if event == "UserPromptSubmit":
        return Said("user", blocks(string(one, "prompt")), "prompt")
    if name:
        told = [
            call({"type": "tool_use", "id": used, "name": name, "input": one.get("tool_input")})
        ]
        if "tool_response" in one:
            return Said("tool", (*told, _response(used, name, one["tool_response"])), event)
        return Said("assistant", tuple(told), event)
    text = string(one, "last_assistant_message")
    said = blocks(text or string(one, "message", "reason", "source", "trigger", "cwd"))
    return Said("assistant" if text else "system", said, event)


def _response(used: str, name: str, given: Any) -> Result:
    """Return what came of a tool; of a command what it wrote."""
    texts = [string(given, key) for key in ("stdout", "stderr")]
    told = given if isinstance(given, dict) else {}
    failed = told.get("is_error") is True or told.get("success") is False
    if any(texts):
        return Result(used, tuple(Text(text) for text in texts if text), failed, name)
    content = given.get("content", given) if isinstance(given, dict) else given
    found = (data(content),) if isinstance(content, dict) and "type" not in content else (
        blocks(content)
    )  # fmt: skip
    return Result(used, plain(found), failed, name)


def question(one: Entry) -> Said:
    """Return what is asked, and what may be answered."""
    given = one.get("options")
    some = given if isinstance(given, list) else ()
    options = [option for option in some if isinstance(option, str)]
    text = string(one, "text") + (f"\n({' / '.join(options)})" if options else "")
    return Said("assistant", (Text(text),), "question")


def answer(one: Entry) -> Said:
    """Return what was answered, what was noted beside it, and by whom."""
    texts = filter(None, (string(one, "text"), string(one, "note")))
    return Said("user", tuple(map(Text, texts)), "answer", string(one, "by"))


def node(one: Entry) -> Said | None:
    """Return what a node of a run says: the start, a step, or the text of a step."""
    payload, kind = one.get("payload"), string(one, "type")
    if one.keys() != _NODE:
        return None
    if kind == "content" and isinstance(payload, str):
        return Said("assistant", blocks(payload), "step")
    if not isinstance(payload, dict):
        return None
    if kind == "state":
        meta = payload.get("meta")
        said = (data(meta),) if meta not in (None, {}, []) else ()
        at = time_of(payload)
        return Said("assistant", said, "step", string(payload, "role"), at)
    return Said("user", (), "start", string(payload, "name")) if kind == "start" else None
