"""Change members of a JSON text in place, and leave every other byte as somebody wrote it.

Each function takes a valid text, whose root is an object, and returns the changed text. A path is a
sequence of names and positions, () for the root; of equal names the last one counts, as in `json`.
"""

from __future__ import annotations

import json

from eventq.record import Record
from eventq.system.jsontext import Reader, skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Path = Sequence[str | int]

_json = Reader(parse_float=len, parse_int=len)  # values are skipped: `len` accepts any number


class Member(Record):
    """A member of an object or a list, by indexes into the text: the name begins at `start`."""

    key: str | int
    start: int
    value: int
    end: int


def find(text: str, path: Path) -> int | None:
    """Return the index of the value at a path, or None."""
    at = _begin(text)
    for key in path:
        found = [one.value for one in _members(text, at) if one.key == key]
        if not found:
            return None
        at = found[-1]
    return at


def add(text: str, path: Path, key: str | None, value: object) -> str:
    """Add a member at the end of an object, or of a list (`key` is None), indented as the text."""
    at = _at(text, path)
    held = _members(text, at)
    unit, newline = _style(text)
    inner = "" if unit is None else newline + unit * (len(path) + 1)
    item = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", inner)
    if key is not None:
        item = f"{json.dumps(key, ensure_ascii=False)}: {item}"
    if held:
        end = held[-1].end
        return f"{text[:end]},{inner or ' '}{item}{text[end:]}"
    outer = "" if unit is None else newline + unit * len(path)
    return f"{text[: at + 1]}{inner}{item}{outer}{text[skip(text, at + 1) :]}"


def put(text: str, path: Path, value: object) -> str:
    """Replace a value."""
    at = _at(text, path)
    written = json.dumps(value, ensure_ascii=False)
    return f"{text[:at]}{written}{text[_json.scan(text, at)[1] :]}"


def drop(text: str, path: Path, key: str | int) -> str:
    """Remove a member, with the comma and the blanks that `add` puts before it."""
    at = _at(text, path)
    held = _members(text, at)
    (*_, number) = (n for n, one in enumerate(held) if one.key == key)
    if number:
        start, end = held[number - 1].end, held[number].end
    elif len(held) > 1:
        start, end = held[0].start, held[1].start
    else:
        start, end = at + 1, skip(text, held[0].end)
    return text[:start] + text[end:]


def is_empty(text: str, path: Path) -> bool:
    """Return whether the object or the list at a path has no members."""
    return not _members(text, _at(text, path))


def _begin(text: str) -> int:
    """Return the index of the root, which a byte order mark may stand before."""
    return skip(text, text.startswith("\ufeff"))


def _at(text: str, path: Path) -> int:
    at = find(text, path)
    assert at is not None, path
    return at


def _members(text: str, at: int) -> list[Member]:
    is_object, found = text[at] == "{", list[Member]()
    at = skip(text, at + 1)
    while text[at] not in "]}":
        start = at
        key: str | int = len(found)
        if is_object:
            key, at = _json.parse_string(text, at + 1, True)
            at = skip(text, skip(text, at) + 1)
        end = _json.scan(text, at)[1]
        found.append(Member(key, start, at, end))
        at = skip(text, end)
        at = skip(text, at + 1) if text[at] == "," else at
    return found


def _style(text: str) -> tuple[str | None, str]:
    """Return the indentation of the root's first member, None on one line; and the newline."""
    at = _begin(text)
    held = _members(text, at)
    blanks = text[at + 1 : held[0].start] if held else "\n  "
    unit = blanks.rpartition("\n")[2] if "\n" in blanks else None
    return unit, "\r\n" if "\r\n" in text else "\n"
