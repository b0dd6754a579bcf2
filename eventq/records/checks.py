"""Checks of names and numbers, and refs in texts."""

from __future__ import annotations

from eventq.errors import InputError, UsageError

REF = "blob:blake3:"  # 64 lower-case hex digits follow
SHA256 = "blob:sha256:"  # and here: the refs of other tools
ERASED = "[erased]"  # what is read in place of a text that was erased
_DURATION = "give seconds, or a number and s, m, h or d, such as 10m"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_NAME = 1 << 16  # characters of a source, type, subtype, key or consumer id


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise InputError for an invalid source, type, subtype, key or consumer id."""
    if not isinstance(value, str):
        raise InputError(
            f"{what} must be text, not {type(value).__name__}", f"give the {what} as a string"
        )
    if not value and not empty:
        raise InputError(f"{what} is empty", f"give a {what}")
    if len(value) > MAX_NAME:
        raise InputError(
            f"{what} is too long ({len(value)} characters, the limit is {MAX_NAME})",
            f"shorten the {what}",
        )
    if not value.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise InputError(f"{what} holds a control character", f"leave it out of the {what}")
    if not value.isascii():
        check_whole(value, what)


def check_whole(value: str, what: str) -> None:
    """Raise InputError for text with an unpaired surrogate: it cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} holds an unpaired surrogate", "give whole Unicode characters"
        ) from error


def check_natural(value: int, name: str) -> int:
    """Return an id, a depth or a seq; raise UsageError for an invalid one."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 0 to 2^63-1, not {value!r}",
            "give 0 or more: of ids and depths, one that was read",
        )
    return value


def check_positive(value: int, name: str) -> int:
    """Return a count of at least 1; raise UsageError for anything else."""
    if type(value) is not int or not 1 <= value < 1 << 63:
        raise UsageError(
            f"{name} must be a whole number from 1 to 2^63-1, not {value!r}", "give 1 or more"
        )
    return value


def refs_in(text: str, prefix: str = REF) -> set[bytes]:
    """Return the hashes of all blobs that a text names, or that it names in another way."""
    found = set()
    at = text.find(prefix)
    while at >= 0:
        digits = text[at + len(prefix) : at + len(prefix) + 64]
        if len(digits) == 64 and not digits.strip("0123456789abcdef"):
            found.add(bytes.fromhex(digits))
        at = text.find(prefix, at + 1)
    return found


def duration(word: str, name: str, fix: str = _DURATION) -> float:
    """Return the seconds of a duration such as 90, 90s, 10m, 2h or 7d. Raises UsageError."""
    digits = word.strip()
    unit = _UNITS.get(digits[-1:])
    found = decimal(digits[:-1] if unit else digits)
    if found is None:
        raise UsageError(f"{name} must be a duration, not '{word}'", fix)
    return found * (unit or 1)


def decimal(text: str) -> float | None:
    """Return a number in decimal digits, with an optional `+` and fraction, or None."""
    digits = text.removeprefix("+")
    plain = digits.isascii() and digits.replace(".", "", 1).isdigit()
    return float(digits) if plain and len(digits) <= 15 else None
