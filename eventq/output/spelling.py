"""JSON whose numbers keep their text, so that what was parsed can be written again byte for byte.

JavaScript writes `0.000005` where Python writes `5e-06`; others write `1E5`, `0.10`, `-0`, `1e400`,
or integers of more digits than Python reads. A number that Python would write as it stood is an int
or a float, any other one a `Number`.
"""

from __future__ import annotations

from json import JSONEncoder, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIGHT = JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # how session files are written
ASCII = JSONEncoder()
_LONGEST = 24  # characters of a float that Python writes
_PLAIN = 18  # characters of an integer worth converting: of others only the text is ever wanted


class Number:
    """A number as it was written; nothing calculates with it, which is how one of any size can be carried."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        """Return the text."""
        return f"Number({self.text!r})"


def parse(data: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, and RecursionError for too many levels."""
    return loads(data, parse_float=_float, parse_int=_int, parse_constant=Number)


def spell(value: Any, encoder: JSONEncoder = TIGHT) -> str:
    """Return a value as JSON, each Number as it was written. Raises what the encoder raises."""
    try:
        return encoder.encode(value)
    except (
        TypeError
    ):  # there is a Number, which Python's own writer, several times as fast, refuses
        return "".join(_pieces(value, encoder))


def _pieces(value: Any, encoder: JSONEncoder) -> list[str]:
    """Return the tokens of a value, in order; not by recursion, as entries may be nested deeply."""
    found: list[str] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Number):
            found.append(one.text)
        elif isinstance(one, (dict, list)) and one:
            todo += reversed(_inside(one, encoder))
        else:
            found.append(encoder.encode(one))
    return found


def _inside(box: dict[str, Any] | list[Any], encoder: JSONEncoder) -> list[Any]:
    """Return what a box is written as: its values, and between them text, each piece a Number too."""
    comma, colon = Number(encoder.item_separator), encoder.key_separator
    if isinstance(box, dict):
        parts = [
            part
            for key, one in box.items()
            for part in (comma, Number(encoder.encode(key) + colon), one)
        ]
        return [Number("{"), *parts[1:], Number("}")]
    parts = [part for one in box for part in (comma, one)]
    return [Number("["), *parts[1:], Number("]")]


def _float(text: str) -> float | Number:
    value = float(text) if len(text) <= _LONGEST else None
    return Number(text) if value is None or repr(value) != text else value


def _int(text: str) -> int | Number:
    return int(text) if len(text) <= _PLAIN and text != "-0" else Number(text)
