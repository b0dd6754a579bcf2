"""The tokens that a response of a model took, as entries, messages and steps of runs state them."""

from __future__ import annotations

import json

from eventq.records.spent import Spent
from eventq.said.chats import ROLES, usage
from eventq.said.values import mapping, number, string, time_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.said.values import Entry

LONGEST = 8 << 20  # bytes that are parsed
MOST = 1 << 40  # tokens of one response
_LONGEST_NAME = 200  # characters of the name of a model
_TOTAL = ("input_tokens", "cached_input_tokens", "output_tokens")
_LONG = ("_tokens", "TokenCount", "_details")
_WHOLE = ("choices", "output")  # of a response that is no message


def of(one: Entry) -> Spent | None:
    """Return what the response took that an entry or a message is a part of; None if unstated."""
    kind = one.get("type")
    if kind == "event_msg":
        return _beside(one)
    told = one.get("message")
    if type(told) is not dict:
        told = one
    role = told.get("role")
    if role is None:
        if kind != "gemini" and not any(key in one for key in _WHOLE):
            return None
    elif type(role) is not str or ROLES.get(role) != "assistant":
        return None
    counted = _counted(told.get("usage") or one.get("usageMetadata") or one.get("tokens"))
    if counted is None:
        return None
    at = _time_of(one)
    return Spent(
        *counted, model_of(told) or model_of(one),
        _time_of(told) if at is None else at, "" if kind == "gemini" else string(told, "id"),
    )  # fmt: skip


def _time_of(one: Entry) -> int | None:
    """Return the time that is stated; None before 1970, as for a time that nobody has set."""
    at = time_of(one)
    return None if at is None or at < 0 else at


def _beside(one: Entry) -> Spent | None:
    """Return what an event of Codex counts; it is repeated, with the same sum of the session."""
    event = mapping(one, "payload")
    if event.get("type") != "token_count":
        return None
    info = mapping(event, "info")
    counted, total = _counted(info.get("last_token_usage")), mapping(info, "total_token_usage")
    if counted is None:
        return None
    response = "/".join(str(number(total, key)) for key in _TOTAL) if total else ""
    return Spent(*counted, "", _time_of(one), response, beside=True)


def of_payload(payload: bytes) -> Spent | None:
    """Return what the response took that a turn's payload is a part of."""
    if len(payload) > LONGEST:
        return None
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return of(value) if isinstance(value, dict) else None


def of_meta(meta: Any) -> Spent | None:
    """Return what a step of a run took, by its metadata.

    That is an object `usage` or `tokens` in the words of any API, or the long ones of these words
    as they stand.
    """
    if not isinstance(meta, dict):
        return None
    words = {key: value for key, value in meta.items() if key.endswith(_LONG)}
    every = (meta.get("usage"), meta.get("tokens"), words)
    counted = next(filter(None, map(_counted, every)), None)
    return None if counted is None else Spent(*counted, model_of(meta))


def _counted(stated: Any) -> tuple[int, int, int] | None:
    """Return out, fresh and cached; no sum of what files may state is more than engines take."""
    found = usage(stated) if isinstance(stated, dict) else None
    if found is None or max(found) <= MOST:
        return found
    return min(found.out, MOST), min(found.fresh, MOST), min(found.cached, MOST)


def model_of(one: Any) -> str:
    """Return the name of the model as every engine stores it: what is no text is escaped."""
    text = string(one, "model")[:_LONGEST_NAME].replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
