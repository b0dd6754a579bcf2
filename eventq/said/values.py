"""Access to JSON values of any shape: a missing key and a value of the wrong type are the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice

from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Entry = dict[str, Any]

_PAIRS = 12  # of an object, that stand on a line
_PARSED = 100_000  # characters of an object that may stand on a line
_VALUE = 100  # characters of a value there
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


def string(entry: Any, *keys: str) -> str:
    """Return the first text under one of some keys; "" if there is none."""
    if isinstance(entry, dict):
        for key in keys:  # a generator takes twice the time, and this is most of reading a session
            value = entry.get(key)
            if isinstance(value, str) and value:
                return value
    return ""


def mapping(entry: Any, key: str) -> Entry:
    """Return the object under a key; an empty one if there is none."""
    value = entry.get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, dict) else {}


def objects(entry: Any, key: str) -> list[Entry]:
    """Return the objects of the list under a key."""
    value = entry.get(key) if isinstance(entry, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def number(entry: Any, *keys: str) -> int:
    """Return the first whole number under one of some keys, 0 if there is none."""
    if isinstance(entry, dict):
        for key in keys:
            value = entry.get(key)
            if type(value) is int and 0 < value < 1 << 53:
                return value
    return 0


def time_of(entry: Any, key: str = "timestamp") -> int | None:
    """Return when an entry says that it was written, in milliseconds."""
    value: Any = entry.get(key) if isinstance(entry, dict) else None
    if type(value) in (int, float) and 0 < value < 1e15:
        return int(value if value > 1e11 else value * 1_000)
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if time is None:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def dump(value: Any) -> str:
    """Return a JSON value as text, indented if it is an object or a list with anything in it."""
    return json.dumps(
        value, indent=1 if isinstance(value, (dict, list)) else None, ensure_ascii=False
    )


def pairs(text: str) -> str:
    """Return an object of JSON on a line, "order 99060 · total 450.0"; "" for any other text."""
    if text[:1] != "{" or len(text) > _PARSED:
        return ""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return ""
    some = islice(value.items(), _PAIRS) if isinstance(value, dict) else ()
    shown = " · ".join(f"{key} {_words(one)}" for key, one in some)
    return f"{shown} · …" if shown and len(value) > _PAIRS else shown


def _words(value: Any) -> str:
    """Return a value of an object on a line: of another object or a list, how much it has."""
    if isinstance(value, dict):
        return count(len(value), "field")
    if isinstance(value, list):
        return count(len(value), "item")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"
