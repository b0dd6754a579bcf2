"""Blocks of the content of a message, in any of the shapes that chat APIs and agents write."""

from __future__ import annotations

import json

from eventq.said import media
from eventq.said.blocks import Call, Data, Media, Result, Text, Thinking, one_line
from eventq.said.values import dump, mapping, objects, string
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.said.blocks import Block
    from eventq.said.values import Entry

ARGUMENT = 500  # characters of an argument
_DEEPEST = 3  # results in results
_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_CALLS = (
    "tool_use", "toolCall", "function_call", "custom_tool_call", "local_shell_call",
    "tool_search_call", "web_search_call", "image_generation_call", "server_tool_use",
    "mcp_tool_use", "tool_call", "functionCall",
)  # fmt: skip
_RESULTS = (
    "tool_result", "function_call_output", "custom_tool_call_output", "tool_search_output",
    "web_search_tool_result", "mcp_tool_result",
)  # fmt: skip
_FILES = ("image", "input_image", "image_url", "document", "input_file", "file", "input_audio")
_IDS = ("call_id", "tool_use_id", "toolCallId", "tool_call_id", "id")
# The argument that tells most of a call, the first one that is there.
_TELLING = (
    "command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "queries", "url",
    "skill", "subject", "description", "prompt", "question", "taskId", "text", "input", "title",
)  # fmt: skip


def blocks(content: Any, level: int = 0) -> tuple[Block, ...]:
    """Return the blocks of a content: a text, a list of texts and objects, or an object."""
    if isinstance(content, str):
        return (Text(content),) if content.strip() else ()
    if isinstance(content, dict):
        return tuple(_of_object(content, level))
    if not isinstance(content, list):
        return () if content is None else (data(content),)
    return tuple(block for one in content for block in blocks(one, level))


def data(value: Any, text: str | None = None) -> Data:
    """Return a JSON value as what it is; `text` is how it is spelled, if that is to be shown."""
    text = dump(value) if text is None else text
    return Data(f"JSON, {media.amount(len(text.encode('utf-8', 'replace')))}", text)


def _of_object(one: Entry, level: int) -> Iterator[Block]:
    kind = string(one, "type")
    if kind in _THOUGHTS:
        yield Thinking(_thought(one))
    elif kind in _CALLS:
        yield call(one)
    elif kind in _RESULTS:
        yield result(one, level)
    elif kind in _FILES:
        yield file(one)
    elif kind == "tool_reference":
        yield Text(f"[{string(one, 'tool_name', 'name')}]")
    elif isinstance(one.get("functionCall"), dict):
        yield call(one["functionCall"])
    elif isinstance(one.get("functionResponse"), dict):
        yield result(one["functionResponse"], level)
    elif isinstance(one.get("inlineData"), dict):
        yield file(one["inlineData"])
    elif text := string(one, "text", "refusal"):
        yield Thinking(text) if one.get("thought") is True else Text(text)
    elif kind not in _TEXTS:
        yield data(one)


def _thought(one: Entry) -> str:
    """Return what was thought: in one text, or in parts and summaries of it."""
    parts = [string(part, "text") for key in ("summary", "content") for part in objects(one, key)]
    return string(one, "thinking", "text") or "\n\n".join(filter(None, parts))


def call(one: Entry) -> Call:
    """Return the tool call that an object is."""
    function = mapping(one, "function")
    given = next(
        (
            found[key]
            for found in (one, function)
            for key in ("input", "arguments", "args", "action", "parameters")
            if found.get(key) is not None
        ),
        None,
    )
    if isinstance(given, str):
        given = _parsed(given)
    name = string(one, "name") or string(function, "name") or string(one, "tool_name", "toolName")
    kind = string(one, "type").removesuffix("_call").replace("_", " ")
    return Call(string(one, *_IDS), name or kind or "call", _argument(given), given)


def _parsed(text: str) -> Any:
    """Return what arguments as text are, or the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _argument(given: Any) -> str:
    """Return the argument that tells most of a call, on one line."""
    if not isinstance(given, dict):
        return one_line(given, ARGUMENT) if isinstance(given, str) else ""
    found = (given[key] for key in (*_TELLING, *given) if key in given)
    texts = (_words(one) if isinstance(one, list) else one for one in found)
    text = next((one for one in texts if isinstance(one, str) and one.strip()), None)
    return one_line(text if text is not None else json.dumps(given) if given else "", ARGUMENT)


def _words(given: list[Any]) -> str:
    """Return a command that is a list, or other words, as a text; that of a shell alone."""
    words = [one for one in given if isinstance(one, str)]
    if given and not words:
        return count(len(given), "item")
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)


def result(one: Entry, level: int = 0) -> Result:
    """Return the result of a tool call that an object is."""
    given = next(
        (one[key] for key in ("content", "output", "response", "result") if key in one), None
    )
    inner = mapping(one, "output")
    if inner and "content" in inner:
        given = inner["content"]
    failed = one.get("is_error") is True or one.get("isError") is True
    failed = failed or inner.get("success") is False or string(one, "status") in ("failed", "error")
    found = blocks(given, level + 1) if level < _DEEPEST else (data(given),)
    return Result(string(one, *_IDS), plain(found), failed, string(one, "name", "toolName"))


def plain(found: Iterable[Block]) -> tuple[Text | Media | Data, ...]:
    """Return the blocks that a result may have."""
    return tuple(block for block in found if isinstance(block, (Text, Media, Data)))


def file(one: Entry) -> Media:
    """Return the image or other file that a block has, or says where it is."""
    source = mapping(one, "source") or mapping(one, "file") or mapping(one, "input_audio") or one
    kind = string(source, "media_type", "mimeType", "mime_type", "format")
    url = mapping(one, "image_url")
    ref = string(url, "url") or string(one, "image_url") or string(
        source, "data", "file_data", "url", "file_id", "path"
    )  # fmt: skip
    name = string(one, "title", "filename", "name") or string(source, "filename")
    is_image = "image" in string(one, "type")
    return media.at(ref, kind or ("image/" if is_image else ""), name)
