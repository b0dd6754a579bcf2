"""Erase what an entry of a session file says, and keep what links it with others.

The line that is left can be read by the tool that wrote the file: the fields by which entries are
found, ordered and told apart keep their values, but not in what a tool got or gave; every other
text is `[erased]`, every other number 0. Names of fields are kept, unless they look like data.
"""

from __future__ import annotations

import json
import re

from eventq.records.checks import ERASED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LINKS = frozenset([
    "agentId", "customType", "firstKeptEntryId", "fromId", "id", "isSidechain", "leafUuid",
    "logicalParentUuid", "messageId", "parentId", "parentToolUseID", "parentUuid", "requestId",
    "role", "sessionId", "sourceToolAssistantUUID", "stopReason", "stop_reason", "subtype",
    "targetId", "timestamp", "toolCallId", "toolUseID", "tool_call_id", "tool_use_id", "type",
    "uuid", "version",
])  # fmt: skip
_INSIDE = frozenset(["message", "content"])  # what has links of its own, at any depth
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}\Z")
_MOST = 1 << 18  # bytes of what is left of an entry; of a larger one only the links at its top are
_LONGEST = 200  # characters of a value that links: a longer one is a text


def redacted(text: bytes) -> bytes:
    """Return the JSON text of an entry without what it says; `[erased]` for what is no JSON."""
    try:
        value = json.loads(text.decode(), parse_int=_whole)
    except (ValueError, RecursionError):
        return ERASED.encode()
    if not isinstance(value, dict):
        return ERASED.encode()
    left = _spelled(_without(value))
    if len(left) <= _MOST:
        return left
    return _spelled({key: one for key, one in value.items() if _links(key, one)})


def sayings(text: str) -> list[str]:
    """Return what a text says to people: the texts of a message or an object, or all of itself.

    The rest of an entry, such as its ids, stands in many others.
    """
    try:
        value = json.loads(text)
        content = value["message"]["content"] if "message" in value else value["text"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return [text]
    blocks = content if isinstance(content, list) else [{"text": content}]
    found = [one.get("text") for one in blocks if isinstance(one, dict)]
    return [one for one in found if isinstance(one, str)] or [text]


def leaves(value: Any) -> list[str]:
    """Return the texts in a value of JSON."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [text for one in value for text in leaves(one)]
    return [value] if isinstance(value, str) else []


def _whole(digits: str) -> float:
    """Return a number; Python refuses to make integers of more than some 4,000 digits."""
    return int(digits) if len(digits) < _LONGEST else float(digits)


def _spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _without(value: Any, *, linked: bool = True) -> Any:
    """Return a value without what it says; links are kept where a tool looks for them."""
    if isinstance(value, dict):
        return {
            key if _NAME.match(key) else ERASED: one
            if linked and _links(key, one)
            else _without(one, linked=linked and key in _INSIDE)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_without(one, linked=linked) for one in value]
    if isinstance(value, str):
        return ERASED
    return 0 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _links(key: str, value: Any) -> bool:
    """Return whether a field is one by which entries are linked, with a value that can do that."""
    if isinstance(value, str):
        return key in _LINKS and len(value) <= _LONGEST
    return key in _LINKS and (value is None or isinstance(value, (bool, int, float)))
