"""The part of a filter that PostgreSQL can apply with the same result.

It is a conjunction of comparisons of a text column with a literal, or of the id with a whole
number. Everything else is left to SQLite: its types, its LIKE and its functions differ.
"""

from __future__ import annotations

from eventq.log.filters.grammar import tokens
from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Token = tuple[str, str, int]

_TEXTS = ("source", "type", "subtype", "created_at")
_SIGNS = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Words that make an AND something else than the end of a comparison, or the whole no conjunction.
_OTHERS = frozenset(("OR", "NOT", "BETWEEN", "CASE", "COLLATE", "ESCAPE"))
_MOST = (1 << 63) - 1


class Pushed(Record):
    """Conditions in SQL, with their values by name; `is_whole` says that they are the filter."""

    sql: str
    values: dict[str, object]
    is_whole: bool


NOTHING = Pushed("", {}, is_whole=False)


def push_down(text: str) -> Pushed:
    """Return what an accepted filter certainly demands; no condition if nothing is certain."""
    words = tokens(text)
    values: dict[str, object] = {}
    conditions = []
    left = 0
    for part in _parts(words):
        condition = _comparison(part, values) or _list(part, values)
        if condition:
            conditions.append(condition)
        else:
            left += 1
    is_whole = bool(conditions) and not left
    return Pushed("".join(f" AND {one}" for one in conditions), values, is_whole)


def _parts(words: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens between the ANDs outside of parentheses; all, if it is no conjunction."""
    depth = 0
    part: list[Token] = []
    parts: list[list[Token]] = []
    for token in words:
        kind, word, _ = token
        depth += (kind == "(") - (kind == ")")
        name = word.upper() if kind == "word" else ""
        if not depth and name in _OTHERS:
            yield words
            return
        if not depth and name == "AND":
            parts.append(part)
            part = []
        else:
            part.append(token)
    yield from [*parts, part]


def _comparison(part: list[Token], values: dict[str, object]) -> str:
    """Return the condition for a column, a sign and a literal, in either order, "" for others."""
    if len(part) != 3:
        return ""
    (left, sign, right) = part
    operator = _SIGNS.get(sign[0])
    if operator is None:
        return ""
    if left[0] != "word":
        left, right, operator = right, left, _FLIPPED[operator]
    return _compared(left, operator, right, values)


def _compared(left: Token, operator: str, right: Token, values: dict[str, object]) -> str:
    column = left[1].lower() if left[0] == "word" else ""
    if column in _TEXTS and right[0] == "text":
        return _bound(f"{column} {operator}", _text(right), values)
    digits = right[1]
    if column == "id" and right[0] == "number" and digits.isdigit() and int(digits) <= _MOST:
        return _bound(f"id {operator}", int(digits), values, "::bigint")
    return ""


def _list(part: list[Token], values: dict[str, object]) -> str:
    """Return the condition for a text column in a list of literals, "" for others."""
    if len(part) < 5 or part[0][0] != "word" or part[0][1].lower() not in _TEXTS:
        return ""
    if part[1][0] != "word" or part[1][1].upper() != "IN":
        return ""
    if part[2][0] != "(" or part[-1][0] != ")":
        return ""
    inside = part[3:-1]
    are_texts = all(token[0] == "text" for token in inside[::2])
    if not are_texts or len(inside) % 2 == 0 or any(token[0] != "," for token in inside[1::2]):
        return ""
    texts = [_text(token) for token in inside[::2]]
    if any("\0" in text for text in texts):
        return ""
    name = f"f{len(values)}"
    values[name] = texts
    return f"{part[0][1].lower()} = ANY(%({name})s)"


def _bound(left: str, value: object, values: dict[str, object], cast: str = "") -> str:
    if isinstance(value, str) and "\0" in value:
        return ""
    name = f"f{len(values)}"
    values[name] = value
    return f"{left} %({name})s{cast}"


def _text(token: Token) -> str:
    return token[1][1:-1].replace("''", "'")
