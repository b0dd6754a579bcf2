"""Entries of the session files of coding agents; see `docs/spec/sessions.md` for the formats."""

from __future__ import annotations

import re

from eventq.said.blocks import Result, Said, Text, Thinking
from eventq.said.chats import message, usage
from eventq.said.content import blocks, call, data, plain, result
from eventq.said.tidy import tidy
from eventq.said.values import mapping, number, objects, string, time_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.said.blocks import Block
    from eventq.said.values import Entry

# What a tool says in the name of a person is wrapped as a whole.
_WRAPPED = re.compile(r"\s*<([a-z][\w-]*)>.*</\1>\s*", re.DOTALL)
_RULES = (
    "# AGENTS.md instructions", "Caveat: The messages below", "[Request interrupted by user",
)  # fmt: skip
_COMMANDS = ("<command-name>", "<bash-input>")
_COMPACTED = "compaction"
_ITEMS = frozenset({"response_item", "compacted", "inter_agent_communication"})
_BARE = frozenset({"reasoning", "function_call", "function_call_output"})


# --- Claude Code, and Qwen Code, which writes alike -----------------------------------------------


def claude(one: Entry) -> Said | None:
    """Return what an entry of Claude Code says; None for one of another tool."""
    if "uuid" not in one and "sessionId" not in one and string(one, "type") != "summary":
        return None
    kind, at = string(one, "type"), time_of(one)
    name = string(one, "agentName", "agentId") if one.get("isSidechain") else ""
    told = mapping(one, "message")
    if kind in ("user", "assistant") and told:
        return _claude_message(one, told, at, name)
    subtype = string(one, "subtype")
    if subtype == "compact_boundary":
        return Said("system", blocks(string(one, "content")), _COMPACTED, at=at)
    shown = one.get("content") if "content" in one else None
    text = string(one, "summary", "customTitle", "aiTitle", "agentName", "lastPrompt", "tag")
    if shown is None and text:
        return Said("", blocks(text), _spaced(kind), at=at)
    if kind in ("attachment", "progress"):
        inside = mapping(one, kind if kind == "attachment" else "data")
        what = string(inside, "type")
        return Said("system", (data(inside),), _spaced(f"{kind} {what}".strip()), name, at)
    found = _tidied(blocks(shown)) if shown is not None else ()
    return Said("system", found or (data(one),), _spaced(subtype or kind), name, at)


def _claude_message(one: Entry, told: Entry, at: int | None, name: str) -> Said | None:
    found = message(told, at=at)
    if found is None:
        role = string(one, "type")
        found = Said(role, blocks(told.get("content", told.get("parts"))), at=at)
    texts = _tidied(found.blocks)
    role, kind = found.role, ""
    if one.get("isCompactSummary"):
        role, kind = "system", "summary"
    elif one.get("isMeta") or (role == "user" and _is_wrapped(found.blocks)):
        role = "system"
    elif role == "user" and any(map(_is_command, found.blocks)):
        kind = "command"
    counted = found.usage or usage(mapping(one, "usageMetadata"))
    return found._replace(
        role=role, blocks=texts, kind=kind, name=name or found.name, usage=counted,
        model=found.model or string(one, "model"),
    )  # fmt: skip


def _tidied(found: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return blocks whose texts are without what the tool adds."""
    kept: list[Block] = []
    for block in found:
        if isinstance(block, Text):
            kept += [Text(text)] if (text := tidy(block.text)).strip() else []
        elif isinstance(block, Result):
            kept.append(block._replace(blocks=plain(_tidied(block.blocks))))
        else:
            kept.append(block)
    return tuple(kept)


def _is_wrapped(found: tuple[Block, ...]) -> bool:
    """Return whether all that is said was written by a tool; a command that was typed was not."""
    texts = [block.text for block in found if isinstance(block, Text)]
    return bool(texts) and len(texts) == len(found) and all(map(_by_a_tool, texts))


def _is_command(block: Block) -> bool:
    """Return whether a block is a command that a person gave to the tool itself."""
    return isinstance(block, Text) and (
        "<command-name>" in block.text or "<bash-input>" in block.text
    )


def _by_a_tool(text: str) -> bool:
    if _is_command(Text(text)):
        return False
    return text.lstrip().startswith(_RULES) or _WRAPPED.fullmatch(text[: 1 << 20]) is not None


def _spaced(kind: str) -> str:
    return kind.replace("_", " ").replace("-", " ").strip()


# --- Pi and Oh My Pi ------------------------------------------------------------------------------


def pi(one: Entry) -> Said | None:
    """Return what an entry of Pi or Oh My Pi says; None for one of another tool."""
    kind, at = string(one, "type"), time_of(one)
    told = mapping(one, "message")
    if kind == "message" and told:
        return _pi_message(told, at)
    if kind in ("compaction", "branch_summary"):
        what = _COMPACTED if kind == "compaction" else _spaced(kind)
        return Said("system", blocks(string(one, "summary")), what, at=at)
    if kind == "custom_message":
        return Said("system", blocks(one.get("content")), string(one, "customType") or kind, at=at)
    if kind in _PI:
        text = " ".join(filter(None, (string(one, key) for key in _PI[kind])))
        return Said("", blocks(text), _spaced(kind), at=at)
    return None


_PI = {
    "session": ("cwd",), "model_change": ("provider", "modelId", "model"),
    "thinking_level_change": ("thinkingLevel",), "session_info": ("name",), "label": ("label",),
    "title": ("title",), "title_change": ("title",), "mode_change": ("mode",),
    "service_tier_change": ("serviceTier",),
}  # fmt: skip


def _pi_message(told: Entry, at: int | None) -> Said:
    if string(told, "role") == "bashExecution":
        ran = call({"name": "bash", "input": {"command": string(told, "command")}})
        shown = Result("", plain(blocks(string(told, "output"))), number(told, "exitCode") > 0)
        return Said("user", (ran, shown), at=at)
    found = message(told, at=at) or Said("", blocks(told.get("content")), at=at)
    if problem := string(told, "errorMessage"):
        return found._replace(blocks=(*found.blocks, Text(problem)), kind="error")
    return found


# --- Codex ----------------------------------------------------------------------------------------


def codex(one: Entry) -> Said | None:
    """Return what a line of a rollout of Codex says; None for one of another tool."""
    kind, at = string(one, "type"), time_of(one)
    item = mapping(one, "payload")
    if kind in _ITEMS and item:
        return _item(item, at, kind)
    if kind == "event_msg" and item:
        return _event(item, at)
    if kind in ("session_meta", "turn_context", "world_state") and item:
        text = string(item, "cwd", "model")
        return Said("", blocks(text), _spaced(kind), at=at, model=string(item, "model"))
    if kind in _BARE and ("call_id" in one or "summary" in one):
        return _item(one, at, kind)
    if kind == "message" and isinstance(one.get("content"), list) and "parentId" not in one:
        return _item(one, at, kind)
    return None


def _item(item: Entry, at: int | None, line: str) -> Said:
    """Return what an item of the conversation says."""
    kind = string(item, "type") or line
    if kind == "message":
        found = message(item, at=at) or Said("", blocks(item.get("content")), at=at)
        is_wrapped = found.role == "user" and _is_wrapped(found.blocks)
        return found._replace(role="system" if is_wrapped else found.role, response="")
    if line == "compacted" or kind == "compaction":
        return Said("system", blocks(string(item, "message")), _COMPACTED, at=at)
    if kind == "reasoning":
        thoughts = blocks(item)
        return Said("assistant", tuple(t for t in thoughts if isinstance(t, Thinking)), at=at)
    if kind.endswith("_output"):
        return Said("tool", (result(item),), at=at)
    if kind.endswith("_call"):
        return Said("assistant", (call(item),), at=at)
    if "content" in item:
        role = "user" if kind == "agent_message" else "system"
        author = string(item, "author", "sender")
        return Said(role, blocks(item["content"]), _spaced(kind), author, at)
    return Said("system", (data(item),), _spaced(kind), at=at)


def _event(event: Entry, at: int | None) -> Said:
    """Return what an event says: most repeat items for the screen."""
    kind = _spaced(string(event, "type"))
    counted = mapping(mapping(event, "info"), "last_token_usage")
    text = string(event, "message", "text", "thread_name", "last_agent_message", "reason")
    return Said("", blocks(text) or (data(event),), kind, at=at, usage=usage(counted))


# --- Copilot CLI and Gemini CLI -------------------------------------------------------------------


def copilot(one: Entry) -> Said | None:
    """Return what an event of Copilot CLI or a message of Gemini CLI says; None for any other."""
    kind, at, inside = string(one, "type"), time_of(one), mapping(one, "data")
    if kind == "gemini":
        return _gemini(one, at)
    if kind == "user" and "content" in one and "message" not in one:
        return Said("user", blocks(one["content"]), at=at)
    first, _, second = kind.partition(".")
    if not inside or not second:
        return None
    if second == "message" and first in ("user", "assistant", "system"):
        calls = tuple(map(call, objects(inside, "toolRequests")))
        found = (*blocks(string(inside, "content")), *calls)
        return Said(first, found, at=at, model=string(inside, "model"))
    if kind == "tool.execution_complete":
        made = mapping(inside, "result") or {"content": string(inside, "error")}
        told = result({"id": string(inside, "toolCallId"), "content": string(made, "content")})
        failed = inside.get("success") is False
        return Said("tool", (told._replace(failed=failed),), at=at)
    if kind == "assistant.reasoning":
        return Said("assistant", (Thinking(string(inside, "content")),), at=at)
    text = string(inside, "message", "content", "reason", "newModel", "sessionId")
    return Said("system", blocks(text) or (data(inside),), _spaced(kind.replace(".", " ")), at=at)


def _gemini(one: Entry, at: int | None) -> Said:
    thoughts = [Thinking(string(t, "description", "subject")) for t in objects(one, "thoughts")]
    found: list[Block] = [*thoughts, *blocks(one.get("content"))]
    for made in objects(one, "toolCalls"):
        found.append(call(made))
        if "result" in made:
            came = result({"id": string(made, "id"), "content": made["result"]})
            found.append(came._replace(failed=string(made, "status") == "error"))
    counted = usage(mapping(one, "tokens"))
    return Said("assistant", tuple(found), at=at, model=string(one, "model"), usage=counted)
