"""Which shape a payload has, and what it says."""

from __future__ import annotations

import json

from eventq.said import agents, chats, media
from eventq.said.blocks import Data, Said, Text
from eventq.said.content import data
from eventq.said.values import string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 8 << 20  # bytes that are parsed
_SHAPES = (chats.hook, agents.claude, agents.codex, agents.pi, agents.copilot, chats.node,
           chats.chat)  # fmt: skip
_TYPED = {"question": chats.question, "approval": chats.question, "answer": chats.answer}


def read(payload: bytes, kind: str = "", *, whole: bool = True) -> Said:
    """Return what the bytes of a turn or an event say, whose type may tell more.

    Without `whole` they are only the beginning, and not parsed. Neither is what is very long.
    """
    is_short = whole and len(payload) <= LONGEST
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(payload) - 3:
            return _odd(payload, whole=whole)
        text = payload[: error.start].decode()
    if media.type_of(payload[:12]):
        return _odd(payload, whole=whole)
    start = text.lstrip()[:1]
    if start not in ("{", "[") or not is_short:
        if start == "{":
            size = media.amount(len(payload))
            return Said("", (Data(f"JSON, {size}{'' if whole else ' and more'}", text),))
        return Said("", (Text(text),) if text else ())
    value = _value(text)
    if value is None:
        return Said("", (Text(text),))
    return _typed(value, kind) or of(value, text)


def _typed(value: Any, kind: str) -> Said | None:
    shape = _TYPED.get(kind)
    return shape(value) if shape is not None and string(value, "text") else None


def of(value: Any, text: str | None = None) -> Said:
    """Return what a JSON value says; `text` is how it is spelled, if that is to be shown."""
    if isinstance(value, dict):
        for shape in _SHAPES:
            if (found := shape(value)) is not None:
                return found
    elif isinstance(value, str):
        return Said("", (Text(value),))
    elif isinstance(value, list) and value and chats.are_blocks(value):
        return chats.of_content(value)
    return Said("", (data(value, text),))


def _value(text: str) -> Any:
    """Return the value that a text is; None for none. Control characters are let pass."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _odd(payload: bytes, *, whole: bool) -> Said:
    """Return what bytes say that are no UTF-8: an entry with a bad byte, or a file."""
    if whole and payload.lstrip()[:1] == b"{":
        value = _value(payload.decode(errors="replace"))
        if isinstance(value, dict):
            return of(value, payload.decode(errors="replace"))
    return Said("", (Data(media.of_bytes(payload, len(payload)), ""),))
