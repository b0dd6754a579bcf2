"""JSON whose numbers keep their text, so that a value can be written again byte for byte.

JavaScript writes `0.000005` where Python writes `5e-06`; others write `1E5`, `0.10`, `-0`, `1e400`,
or integers with more digits than Python reads. A number is an int or a float if Python would write
it with the same text, otherwise a `Number`.
"""

from __future__ import annotations

from json import JSONEncoder, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIGHT = JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # how session files are written
ASCII = JSONEncoder()
_LONGEST = 24  # characters of a float that Python writes
_PLAIN = 18  # characters of an integer that is converted; longer ones keep their text


class Number:
    """A number as it was written, of any size. Nothing calculates with it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        """Return the text."""
        return f"Number({self.text!r})"


def parse(data: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, RecursionError for too many levels."""
    return loads(data, parse_float=_float, parse_int=_int, parse_constant=Number)


def parse_leniently(data: bytes) -> Any:
    """Return the value of a text that is JSON but for bad bytes, control characters, and NaN.

    NaN and Infinity are None. Raises as `parse` does.
    """
    return loads(
        data.decode(errors="replace"),
        strict=False, parse_float=_float, parse_int=_int, parse_constant=_null,
    )  # fmt: skip


def _null(_: str) -> None:
    return None


def spell(value: Any, encoder: JSONEncoder = TIGHT) -> str:
    """Return a value as JSON, each Number as it was written. Raises what the encoder raises."""
    try:
        return encoder.encode(value)
    except TypeError:  # there is a Number, which Python's encoder, several times as fast, refuses
        return "".join(_pieces(value, encoder))


def _pieces(value: Any, encoder: JSONEncoder) -> list[str]:
    """Return the tokens of a value in order. Not recursive, as entries may be nested deeply."""
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
    """Return the values of a container, with the text between them as Numbers."""
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
