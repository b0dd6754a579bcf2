"""Queries on a JSON value: `.findings[0]['file name']`, or a path, `/findings/0/file%20name`.

A query is a sequence of keys and indexes. A key is `[A-Za-z0-9_-]+` after an optional `.`, or any
text in brackets: `[raw]` up to the next `]`, or `['quoted']`, with either kind of quote. A quoted
key may contain `]`, and a backslash escapes itself and both quotes. Digits in brackets are an index
of an array. Blanks around the query and just inside brackets are ignored.
"""

from __future__ import annotations

from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST = 18  # digits of an index; no array is longer, and Python refuses to parse thousands
_BEYOND = 10**_LONGEST


def parse(query: str) -> list[str | int]:
    """Return the keys (str) and indexes (int) of a query; [] for `` and `.`. Raises UsageError."""
    tokens: list[str | int] = []
    text = query.strip()
    at = 0
    while at < len(text):
        if text[at] == ".":
            at += 1
        elif text[at] == "[":
            token, at = _bracket(text, at + 1, query)
            tokens.append(token)
        elif text[at] in _NAME:
            end = _end_of_name(text, at)
            tokens.append(text[at:end])
            at = end
        else:
            raise _unexpected(text[at], query)
    return tokens


def path(path: str) -> list[str | int]:
    """Return the keys and indexes of the path of a URL: `/a/0` is `.a[0]`.

    Parts are percent-decoded, empty ones (as after a trailing slash) are ignored, and digits are an
    index.
    """
    parts = [part for part in path.split("/") if part]
    if "%" in path:
        from urllib.parse import unquote

        parts = [unquote(part) for part in parts]
    return [_number(part) if _is_number(part) else part for part in parts]


def extract(value: Any, tokens: list[str | int]) -> Any:
    """Return the part of a JSON value at a path of tokens, or None.

    An index selects from arrays only, a key from objects; a key of digits (`.0`) also selects from
    an array.
    """
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token)  # its keys are text, so an index is never found
        elif isinstance(value, list):
            at = _index(token)
            value = value[at] if at < len(value) else None
        else:
            return None
    return value


def _index(token: str | int) -> int:
    """Return a token as an index of an array; for a key, one beyond every array."""
    if isinstance(token, str):
        return _number(token) if _is_number(token) else _BEYOND
    return token if token >= 0 else _BEYOND


def _bracket(text: str, at: int, query: str) -> tuple[str | int, int]:
    """Return the token in brackets that starts at `at`, and the position after the brackets."""
    start = _past_blanks(text, at)
    if text[start : start + 1] in ("'", '"'):
        return _quoted(text, start, query)
    end = text.find("]", at)
    if end < 0:
        raise UsageError(f"Invalid query: missing ] in {query}", "close the bracket")
    raw = text[at:end].strip()
    if not raw:
        raise UsageError(
            f"Invalid query: empty [] in {query}", "write an index or a key in the brackets"
        )
    return _number(raw) if _is_number(raw) else raw, end + 1


def _quoted(text: str, at: int, query: str) -> tuple[str, int]:
    """Return the key whose opening quote is at `at`, and the position after its bracket."""
    quote = text[at]
    key = []
    at += 1
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and text[at + 1 : at + 2] in ("\\", "'", '"'):
            at += 1
        key.append(text[at])
        at += 1
    end = _past_blanks(text, at + 1)
    if end >= len(text):
        raise UsageError(f"Invalid query: missing ] in {query}", "close the quote and the bracket")
    if text[end] != "]":
        raise _unexpected(text[end], query)
    return "".join(key), end + 1


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _end_of_name(text: str, at: int) -> int:
    while at < len(text) and text[at] in _NAME:
        at += 1
    return at


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # the digits of other scripts are text


def _number(digits: str) -> int:
    """Return the index that digits spell; if they are too many, one beyond every array."""
    if len(digits) > _LONGEST:
        digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _LONGEST else _BEYOND


def _unexpected(found: str, query: str) -> UsageError:
    return UsageError(
        f"Invalid query: unexpected token '{found}' in {query}",
        "write keys as .name or ['any text'], indexes as [0]",
    )
