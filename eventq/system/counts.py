"""How many of something, in words: the rules for singular and plural, and for what is left out."""

from __future__ import annotations


def count(number: float, noun: str) -> str:
    """Return a number with its noun: 1 event, 2,000 events, 0.5 seconds, 3 branches, 0 entries."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{shown} {noun if number == 1 else plural(noun)}"


def some(names: list[str], most: int = 10) -> str:
    """Return the first of some names, and how many others there are: a, b and 3 more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(noun: str) -> str:
    """Return the plural of a regular noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy", "uy")):
        return f"{noun[:-1]}ies"
    return f"{noun}s"
