"""Operations: what HTTP offers of a thread, as data.

One table has the routes, the checks of what is given, and the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from eventq.errors import InputError, UsageError
from eventq.record import Record
from eventq.records.checks import duration
from eventq.thread import Thread

MOST = (1 << 63) - 1  # of an integer
MOST_WAIT = 300.0  # seconds of a long poll: proxies cut longer ones
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_TYPES = {
    "integer": int, "number": (int, float), "string": str, "boolean": bool, "strings": list,
    "integers": list, "seconds": (int, float),
}  # fmt: skip

Given = dict[str, Any]


class Part(Record):
    """A parameter of a path or a query, or a member of a body.

    `type` is `integer`, `number`, `string`, `boolean`, `seconds`, which in a query is any duration,
    or `strings` or `integers`, which are lists. `least` and `most` bound a number, `most` also the
    items of a list. Null stands for what is left out.
    """

    name: str
    type: str
    about: str
    default: Any = None
    required: bool = False
    least: int = 0
    most: float = MOST
    choices: tuple[str, ...] = ()

    def of_query(self, word: str) -> Any:
        """Return the value of a word of a query. Raises UsageError."""
        if self.type == "seconds":
            return self.checked(duration(word, self.name))
        if self.type == "boolean" and word in ("true", "false", "1", "0"):
            return word in ("true", "1")
        if self.type == "integer" and _DIGITS.fullmatch(word):
            return self.checked(int(word))
        if self.type == "string":
            return self.checked(word)
        raise UsageError(f"{self.name} must be {self._wanted()}, not '{word:.100}'", "correct it")

    def checked(self, value: Any) -> Any:
        """Return a value that is right. Raises UsageError."""
        right: Any = _TYPES[self.type]
        good = isinstance(value, right) and isinstance(value, bool) == (self.type == "boolean")
        if self.type in ("strings", "integers"):
            item = str if self.type == "strings" else int
            good = good and all(type(one) is item for one in value) and len(value) <= self.most
        elif good and self.type in ("integer", "number", "seconds"):
            good = self.least <= value <= self.most
        if self.choices:
            good = good and value in self.choices
        if not good:
            raise UsageError(f"{self.name} must be {self._wanted()}", f"it is for: {self.about}")
        return value

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.type in ("strings", "integers"):
            return f"a list of {self.type}"
        if self.type in ("integer", "number", "seconds"):
            kind = "a whole number" if self.type == "integer" else "a number of seconds"
            bound = f" to {self.most:,}" if self.most < MOST else " or more"
            return f"{kind}, {self.least}{bound}"
        return {"boolean": "true or false", "string": "text"}[self.type]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema."""
        if self.type in ("strings", "integers"):
            number = {"type": "integer", "minimum": 0, "maximum": MOST}
            items = number if self.type == "integers" else {"type": "string"}
            found: dict[str, Any] = {"type": "array", "items": items}
            if self.most < MOST:
                found["maxItems"] = self.most
        elif self.type in ("integer", "number", "seconds"):
            kind = "integer" if self.type == "integer" else "number"
            found = {"type": kind, "minimum": self.least, "maximum": self.most}
        else:
            found = {"type": self.type}
        if self.choices:
            found["enum"] = [*self.choices]
        if self.default is not None:
            found["default"] = self.default
        return found


class Reply(Record):
    """What an operation came to: the bytes of the body, and whether a long poll goes on waiting."""

    body: bytes
    is_empty: bool = False
    type: str = "application/json"
    status: int = 200


class Operation(Record):
    """One method of one path; `how` is a plan's, and `run` gives the reply.

    With `alone`, a write shares no transaction with others. `body` has the members of a JSON
    object, unless it is None; `many` says that it may also be a list of such objects, or lines.
    `again` is what a long poll looks with after the first time.
    """

    name: str
    method: str
    path: str
    how: str
    run: Callable[[Thread, Given], Reply]
    reply: str
    query: tuple[Part, ...] = ()
    body: tuple[Part, ...] | None = None
    alone: bool = False
    many: bool = False
    again: Callable[[Given], Given] | None = None

    @property
    def about(self) -> str:
        """What it does: the docstring of its function."""
        return self.run.__doc__ or ""


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
