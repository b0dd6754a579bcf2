"""Names in the indexes of PostgreSQL, which have room for 2,700 bytes."""

from __future__ import annotations

from blake3 import blake3

from eventq.errors import InputError

MOST = 1_000  # bytes of a name that is stored as it is
_MARK = "\x01"  # no name holds a control character


def short(name: str) -> str:
    """Return what stands for a key in an index: itself, or its hash if it is long."""
    if len(name) * 4 <= MOST or len(name.encode()) <= MOST:
        return name
    return f"{_MARK}{blake3(name.encode()).hexdigest()}"


def check_short(name: str, what: str) -> None:
    """Raise InputError for a name that an index has no room for."""
    if len(name) * 4 > MOST and (size := len(name.encode())) > MOST:
        raise InputError(
            f"the {what} is too long for PostgreSQL ({size} bytes, the limit is {MOST})",
            "choose a shorter one",
        )
