"""Read and write JSON with the C functions that the `json` package is made of.

The package itself imports `re` and takes as long as a whole push; it is used only for error
messages, and by interpreters without the C module. Options have the same names as in `json`.
"""

from __future__ import annotations

try:
    from _json import encode_basestring, make_encoder, make_scanner, scanstring
except ImportError:  # pragma: no cover (an interpreter without the C module)
    from json.decoder import scanstring  # type: ignore[attr-defined, no-redef]
    from json.encoder import encode_basestring
    from json.scanner import make_scanner

    make_encoder = None  # type: ignore[assignment, misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BLANKS = " \t\r\n"
quote = encode_basestring  # returns a text as a JSON string
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def writer(*, sort_keys: bool = False, allow_nan: bool = True) -> Callable[[object], str]:
    """Return a function that writes a value as JSON, without blanks or a check for cycles."""
    if make_encoder is None:  # pragma: no cover
        return _package_writer(sort_keys=sort_keys, allow_nan=allow_nan)
    encode = make_encoder(
        None, _refuse, encode_basestring, None, ":", ",", sort_keys, False, allow_nan
    )
    return lambda value: "".join(encode(value, 0))


def _package_writer(**options: Any) -> Callable[[object], str]:
    from json import JSONEncoder

    return JSONEncoder(
        ensure_ascii=False, check_circular=False, separators=(",", ":"), **options
    ).encode


def _refuse(value: object) -> None:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


class Reader:
    """Reads JSON texts; the options say what becomes of numbers, constants and objects."""

    strict = True
    object_hook = None
    parse_string = staticmethod(scanstring)

    def __init__(self, **options: Callable[[Any], Any] | None) -> None:
        """Take `parse_float`, `parse_int`, `parse_constant` and `object_pairs_hook`."""
        self._options = options
        self.memo: dict[str, str] = {}
        self.object_pairs_hook = options.get("object_pairs_hook")
        self.parse_float = options.get("parse_float") or float
        self.parse_int = options.get("parse_int") or int
        self.parse_constant = options.get("parse_constant") or _CONSTANTS.__getitem__
        self._scan = make_scanner(self)  # type: ignore[arg-type]  # it asks for these attributes

    def scan(self, text: str, at: int) -> tuple[Any, int]:
        """Return the value that begins at an index, and its end; raise StopIteration for none."""
        try:
            return self._scan(text, at)
        except SystemError:  # up to Python 3.12 the scanner needs its error's module to be imported
            import json.decoder  # noqa: F401

            return self._scan(text, at)

    def decode(self, text: str) -> Any:
        """Return the value of a text; raise json.JSONDecodeError as the package does."""
        try:
            value, end = self.scan(text, skip(text, 0))
        except StopIteration:
            end = -1
        if end < 0 or skip(text, end) < len(text):
            from json import JSONDecoder

            return JSONDecoder(**self._options).decode(text)  # type: ignore[arg-type]  # it raises
        return value


def skip(text: str, at: int) -> int:
    """Return the index of the first character at or after `at` that is not blank."""
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers are never used: `len` in place of a conversion is fast, and accepts any length.
BARE = Reader(parse_float=len, parse_int=len, parse_constant=_no_constant)


def as_written(text: str, name: str) -> str:
    """Return the JSON text of a member of a valid object; the last of several."""
    found = ""
    at = skip(text, skip(text, 0) + 1)
    while text[at] != "}":
        key, at = BARE.parse_string(text, at + 1, True)
        start = skip(text, skip(text, at) + 1)
        at = BARE.scan(text, start)[1]
        if key == name:
            found = text[start:at]
        at = skip(text, at)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found


def items_as_written(text: str) -> list[str]:
    """Return the JSON texts of the items of a valid list."""
    found = []
    at = skip(text, skip(text, 0) + 1)
    while text[at] != "]":
        end = BARE.scan(text, at)[1]
        found.append(text[at:end])
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found
