"""What programs print for a terminal, as HTML: colours as classes, everything else escaped.

Codes that move a cursor and other controls are left out, and of a line that a carriage return
begins anew the last writing is kept. A colour of more than sixteen is shown as the nearest of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.style import Style

_TITLES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")  # of a window, and links
_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])")  # of colours, and others
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_STRAY = re.compile(r"\x1b(?!\[[\d;]*m)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INNER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # but for the escape
_SPAN = Markup('<span class="{}">{}</span>')
LONGEST = 100_000  # characters of a line whose codes are read


def lines(given: Iterable[str]) -> Iterator[Markup]:
    """Yield lines as HTML; a colour goes on in the next line until it ends."""
    decoder = AnsiDecoder()
    for line in given:
        kept = _last(line)
        if "\x1b" not in kept or len(kept) > LONGEST:
            yield escape(_CONTROLS.sub("", kept))
            continue
        text = decoder.decode_line(_bare(kept))
        plain, pieces, at = text.plain, [], 0
        for span in text.spans:
            names = "" if isinstance(span.style, str) else _classes(span.style)
            pieces.append(escape(plain[at : span.start]))
            inside = escape(plain[span.start : span.end])
            pieces.append(_SPAN.format(names, inside) if names else inside)
            at = span.end
        yield Markup().join([*pieces, escape(plain[at:])])


def text(given: str) -> Markup:
    """Return a text of several lines as HTML."""
    return Markup("\n").join(lines(given.split("\n")))


def plain(line: str) -> str:
    """Return a line without its codes, as it is read."""
    return _CONTROLS.sub("", _CODES.sub("", _TITLES.sub("", _last(line)[:LONGEST])))


def _last(line: str) -> str:
    """Return the last writing of a line; what ends it is none."""
    return next((one for one in reversed(line.split("\r")) if one), "")


def _bare(line: str) -> str:
    """Return a line with codes of colours alone: those of links take `rich` very long."""
    found = _CODES.sub(_colour, _TITLES.sub("", line))
    return _INNER.sub("", _STRAY.sub("", found))


def _colour(code: re.Match[str]) -> str:
    """Return a code of a colour, "" for any other."""
    return code[0] if _COLOUR.fullmatch(code[0]) else ""


def _classes(style: Style) -> str:
    """Return the classes of a style: bold, and one of sixteen colours."""
    color = style.color and style.color.downgrade(ColorSystem.STANDARD)
    number = color.number if color is not None else None
    names = ["bold"] * bool(style.bold)
    names += [f"c{number % 8}"] if number is not None and number < 16 else []
    return " ".join(names)
