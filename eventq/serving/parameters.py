"""Parameters of operations as data: what is checked, and shown as a JSON schema.

Also what the replies of all doors share: how much of a list fits, and what is an image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from eventq.errors import InputError, UsageError
from eventq.record import Record
from eventq.records.checks import duration

T = TypeVar("T")
MOST = (1 << 63) - 1  # of an integer
MOST_BODY = 68 << 20  # bytes: an event of 64 MiB, and its JSON
MOST_WAIT = 300.0  # seconds of a long poll: proxies cut longer ones
_DIGITS = re.compile(r"-?[0-9]{1,19}")


Given = dict[str, Any]


class Kind(Record):
    """A type of values: of Python, of JSON, and how a query has it (None: it does not).

    `item` is the type of the items of a list.
    """

    type: Any
    called: str
    json: Given
    read: Callable[[str, str], Any] | None = None
    item: type | None = None


def _whole(word: str, _: str) -> int:
    if not _DIGITS.fullmatch(word):
        raise ValueError(word)
    return int(word)


def _truth(word: str, _: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[word]


_ID = {"type": "integer", "minimum": 0, "maximum": MOST}
_KINDS = {
    "integer": Kind(int, "a whole number", {"type": "integer"}, _whole),
    "seconds": Kind((int, float), "a number of seconds", {"type": "number"}, duration),
    "string": Kind(str, "text", {"type": "string"}, lambda word, _: word),
    "boolean": Kind(bool, "true or false", {"type": "boolean"}, _truth),
    "strings": Kind(list, "a list of strings", {"type": "array", "items": {"type": "string"}},
                    item=str),
    "integers": Kind(list, "a list of integers", {"type": "array", "items": _ID}, item=int),
    "object": Kind(dict, "an object", {"type": "object"}),
    "json": Kind(object, "a JSON value", {}),
}  # fmt: skip
_NUMBERS = ("integer", "seconds")


class Part(Record):
    """A parameter of a path or a query, or a member of a body.

    `type` is one of the kinds above; `seconds` in a query are any duration. `least` and `most`
    bound a number, `most` also the items of a list. Null stands for what is left out.
    """

    name: str
    type: str
    about: str
    default: Any = None
    required: bool = False
    least: int = 0
    most: float = MOST
    choices: tuple[str, ...] = ()

    @property
    def _kind(self) -> Kind:
        return _KINDS[self.type]

    def of_query(self, word: str) -> Any:
        """Return the value of a word of a query. Raises UsageError."""
        read = self._kind.read
        assert read is not None  # the others stand in bodies
        try:
            return self.checked(read(word, self.name))
        except (ValueError, KeyError) as error:
            what = f"{self.name} must be {self._wanted()}, not '{word:.100}'"
            raise UsageError(what, "correct it") from error

    def checked(self, value: Any) -> Any:
        """Return a value that is right. Raises UsageError."""
        kind = self._kind
        good = isinstance(value, kind.type)
        if self.type in _NUMBERS:
            good = good and not isinstance(value, bool) and self.least <= value <= self.most
        if kind.item is not None:
            good = good and len(value) <= self.most
            good = good and all(type(one) is kind.item for one in value)
        if self.choices:
            good = good and value in self.choices
        if not good:
            raise UsageError(f"{self.name} must be {self._wanted()}", f"it is for: {self.about}")
        return value

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.type in _NUMBERS:
            bound = f" to {self.most:,}" if self.most < MOST else " or more"
            return f"{self._kind.called}, {self.least}{bound}"
        return self._kind.called

    @property
    def schema(self) -> Given:
        """The JSON schema."""
        found = dict(self._kind.json)
        if self.type in _NUMBERS:
            found |= {"minimum": self.least, "maximum": self.most}
        elif self._kind.item is not None and self.most < MOST:
            found["maxItems"] = self.most
        if self.choices:
            found["enum"] = [*self.choices]
        if self.default is not None:
            found["default"] = self.default
        return found


def fitting(found: Iterable[T], room: int, size: Callable[[T], int]) -> list[T]:
    """Return as many of the first as there is room for: at least one, if there is any."""
    kept: list[T] = []
    for one in found:
        room -= size(one)
        if kept and room < 0:
            break
        kept.append(one)
    return kept


def of_words(parts: tuple[Part, ...], words: list[tuple[str, str]]) -> Given:
    """Return the values of a query. Raises UsageError for what is wrong, unknown or missing."""
    known = {part.name: part for part in parts}
    found: Given = {part.name: part.default for part in parts}
    seen = set()
    for name, word in words:
        if name not in known:
            fix = f"there are {', '.join(known)}" if known else "there is none"
            raise UsageError(f"there is no parameter '{name:.100}'", fix)
        if name in seen:
            raise UsageError(f"'{name}' stands there twice", "give it once")
        seen.add(name)
        found[name] = known[name].of_query(word)
    _check_all(parts, found)
    return found


def of_object(parts: tuple[Part, ...], value: Any) -> Given:
    """Return the members of an object. Raises InputError for what is wrong, unknown or missing."""
    if not isinstance(value, dict):
        raise InputError("the body is no JSON object", "send an object such as {}")
    known = {part.name: part for part in parts}
    found: Given = {part.name: part.default for part in parts}
    for name, one in value.items():
        if name not in known:
            fix = f"there are {', '.join(known)}" if known else "send {}"
            raise InputError(f"there is no member '{name:.100}'", fix)
        if one is not None:
            found[name] = known[name].checked(one)
    _check_all(parts, found)
    return found


def _check_all(parts: tuple[Part, ...], found: Given) -> None:
    for part in parts:
        if part.required and found[part.name] is None:
            raise UsageError(f"{part.name} is missing", f"it is for: {part.about}")


def with_key(given: Given, key: str | None) -> Given:
    """Return parameters with the key that was sent beside them, for what is done once.

    Raises UsageError if they have another one.
    """
    for name in ("key", "nonce"):
        if key is not None and name in given:
            if given[name] not in (None, key):
                what = f"the header Idempotency-Key is not the {name} in the body"
                raise UsageError(what, "send one of the two")
            given[name] = key
    return given


def lines_of(body: bytes) -> list[str]:
    """Return the lines of a body that are not blank."""
    return [one for one in body.decode().split("\n") if one.strip()]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def load(body: bytes, *, lines: bool) -> Any:
    """Return the value of a JSON body, or with `lines` the list of its lines. Raises InputError."""
    try:
        if lines:
            return [json.loads(one, parse_constant=_no_constant) for one in lines_of(body)]
        return json.loads(body.decode() or "{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}", "send JSON in UTF-8") from error
