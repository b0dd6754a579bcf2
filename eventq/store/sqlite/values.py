"""Values that other tools may have stored: text that is a BLOB, or not UTF-8."""

from __future__ import annotations


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text(data: bytes | None, kind: str) -> bool:
    """Return whether a value, read as bytes and with its type, is text that can be shown."""
    return data is not None and kind == "text" and is_utf8(data)


def name_of(data: bytes | None, kind: str) -> str:
    """Return a name for a sentence: an SQL literal where it is not text."""
    if data is None:
        return "NULL"
    return data.decode() if is_text(data, kind) else f"x'{data.hex()}'"
