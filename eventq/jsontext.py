"""Read and write JSON with the C functions that the `json` package is made of.

The package itself imports `re` and takes as long as a whole push; it is used for error messages,
and by an interpreter without the C module. Options have the names that they have there.
"""

from __future__ import annotations

try:
    from _json import encode_basestring, make_encoder, make_scanner, scanstring
except ImportError:  # pragma: no cover (an interpreter without the C module)
    make_encoder = make_scanner = None  # type: ignore[assignment, misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLANKS = " \t\n\r"


def writer(*, sort_keys: bool = False, allow_nan: bool = True) -> Callable[[object], str]:
    """Return a function that writes a value as JSON: no blanks, Unicode as it is, no check for circles."""
    if make_encoder is None:  # pragma: no cover
        return _package_writer(sort_keys=sort_keys, allow_nan=allow_nan)
    encode = make_encoder(None, _refuse, encode_basestring, None, ":", ",", sort_keys, False, allow_nan)
    return lambda value: "".join(encode(value, 0))


def _package_writer(*, sort_keys: bool, allow_nan: bool) -> Callable[[object], str]:
    from json import JSONEncoder

    separators = (",", ":")
    return JSONEncoder(
        ensure_ascii=False,
        check_circular=False,
        allow_nan=allow_nan,
        sort_keys=sort_keys,
        separators=separators,
    ).encode


def _refuse(value: object) -> None:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


class Reader:
    """Reads JSON texts; the options say what becomes of numbers, constants and objects."""

    strict = True
    object_hook = None

    def __init__(self, **options: Callable[[Any], Any] | None) -> None:
        """Take `parse_float`, `parse_int`, `parse_constant` and `object_pairs_hook`."""
        self._options = options
        self.object_pairs_hook = options.get("object_pairs_hook")
        self.parse_float = options.get("parse_float") or float
        self.parse_int = options.get("parse_int") or int
        self.parse_constant = options.get("parse_constant") or _CONSTANTS.__getitem__
        if make_scanner is not None:
            self.memo: dict[str, str] = {}
            self.parse_string = scanstring
            self._scan = make_scanner(self)  # type: ignore[arg-type]  # it asks for attributes

    def decode(self, text: str) -> Any:
        """Return the value of a text; raise json.JSONDecodeError, as the package does, for another text."""
        if make_scanner is not None:
            try:
                value, end = self._scan(text, len(text) - len(text.lstrip(_BLANKS)))
            except (StopIteration, SystemError):  # SystemError: its own error has no class yet
                pass
            else:
                if not text[end:].strip(_BLANKS):
                    return value
        from json import JSONDecoder

        return JSONDecoder(**self._options).decode(text)  # type: ignore[arg-type]


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
