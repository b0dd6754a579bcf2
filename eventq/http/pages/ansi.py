"""What programs print for a terminal, as HTML: colours as classes, everything else escaped.

Codes that move a cursor are left out, and of a line that a carriage return begins anew the last
writing is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from rich.ansi import AnsiDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.style import Style

_TITLES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")  # of a window, and links
LONGEST = 100_000  # characters of a line whose codes are read


def lines(given: Iterable[str]) -> Iterator[Markup]:
    """Yield lines as HTML; a colour goes on in the next line until it ends."""
    decoder = AnsiDecoder()
    for line in given:
        if ("\x1b" not in line and "\r" not in line) or len(line) > LONGEST:
            yield escape(line)
            continue
        text = decoder.decode_line(_TITLES.sub("", line))
        made, at = Markup(), 0
        for span in text.spans:
            names = "" if isinstance(span.style, str) else _classes(span.style)
            made += escape(text.plain[at : span.start])
            inside = text.plain[span.start : span.end]
            made += Markup('<span class="{}">{}</span>').format(names, inside) if names else inside
            at = span.end
        yield made + escape(text.plain[at:])


def text(given: str) -> Markup:
    """Return a text of several lines as HTML."""
    return Markup("\n").join(lines(given.split("\n")))


def _classes(style: Style) -> str:
    """Return the classes of a style: bold, and one of sixteen colours."""
    number = style.color.number if style.color is not None else None
    names = ["bold"] * bool(style.bold)
    names += [f"c{number % 8}"] if number is not None and number < 16 else []
    return " ".join(names)
