"""Tokens and their rights, as a file names them: one JSON object a line."""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from typing import TYPE_CHECKING

from eventq.errors import LogicError, UsageError, reason
from eventq.record import Record
from eventq.serving.principal import READING, RIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What comes with a right, and with no other: `answer` with itself alone.
_MEANT = {"read": READING, "push": {"push"}, "work": {"work", "read"}, "all": RIGHTS - {"answer"},
          "answer": {"answer"}}  # fmt: skip
DEFAULT, NOBODY = "default", "none"  # the names of the one token, and of who has none
_MOST_NAME = 100
_MOST_VALUE = 1024  # characters
_FIX = 'write a line such as {"name": "ci", "value": "SECRET", "right": ["push", "answer"]}'


class Token(Record):
    """A token; `rights` has what its holder may do: read, push, work, all, answer."""

    name: str
    value: str
    rights: frozenset[str]


def read_tokens(path: str) -> list[Token]:
    """Return the tokens of a file that only this user can read. Raises UsageError, LogicError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            state = os.fstat(file.fileno())
            if state.st_uid not in (0, os.geteuid()):
                raise LogicError(f"'{path}' is another user's", "give a file of your own")
            if stat.S_IMODE(state.st_mode) & 0o077:
                raise LogicError(f"others can read or write '{path}'", f"run 'chmod 600 {path}'")
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LogicError(f"'{path}' cannot be read: {reason(error)}", "check --tokens") from error
    found = [
        _token(line, f"line {n} of '{path}'") for n, line in enumerate(lines, 1) if line.strip()
    ]
    if not found:
        raise UsageError(f"'{path}' has no token", _FIX)
    names, values = {_folded(one.name) for one in found}, {one.value for one in found}
    for what, different in (("name", names), ("value", values)):
        if len(different) < len(found):
            raise UsageError(f"two tokens of '{path}' have one {what}", "give each its own")
    return found


def by_token(name: str) -> str:
    """Return as whom the holder of a token answers: no system user has a name with a colon."""
    return f"token:{name}"


def _folded(name: str) -> str:
    """Return a name without what a reader may not see: two that look alike would be one."""
    return unicodedata.normalize("NFKC", name).casefold()


def _token(line: str, where: str) -> Token:
    try:
        value = json.loads(line, object_pairs_hook=_once)
        problem = next(_problems(value), None)
    except _TwiceError as twice:
        problem = f"{twice} stands there twice"
    except (ValueError, RecursionError):
        problem = "no JSON"
    if problem is not None:
        raise UsageError(f"{where}: {problem}", _FIX)
    right = value["right"]
    rights = [right] if isinstance(right, str) else right
    return Token(value["name"], value["value"], frozenset[str]().union(*map(_MEANT.get, rights)))  # type: ignore[arg-type]


class _TwiceError(ValueError):
    """A member stands in an object twice; readers of JSON do not agree which one counts."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _TwiceError(f"'{name:.100}'")
    return dict(pairs)


def _problems(value: Any) -> Iterator[str]:
    """Yield what is wrong with a line; its value is never shown."""
    if not isinstance(value, dict) or value.keys() != {"name", "value", "right"}:
        yield "a token has name, value and right"
        return
    name, secret, right = value["name"], value["value"], value["right"]
    is_text = isinstance(name, str) and name.isprintable() and name.strip() == name
    if not is_text or not 0 < len(name) <= _MOST_NAME:
        yield f"a name has 1 to {_MOST_NAME} printable characters, and no blank around them"
    elif _folded(name) in (DEFAULT, NOBODY):
        yield f"no token may have the name '{name}'"
    if not isinstance(secret, str) or not 0 < len(secret) <= _MOST_VALUE or not secret.isascii():
        yield f"a value has 1 to {_MOST_VALUE} characters of ASCII"
    elif not secret.isprintable() or " " in secret:
        yield "a value has no blanks and no control characters"
    rights = [right] if isinstance(right, str) else right
    if not isinstance(rights, list) or not rights or any(
        not isinstance(one, str) or one not in _MEANT for one in rights
    ):  # fmt: skip
        yield f"a right is one of {', '.join(_MEANT)}, or a list of them"
