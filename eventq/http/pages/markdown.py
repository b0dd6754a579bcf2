"""Markdown as HTML: headings, lists, fences, code, emphasis, links, quotes and tables, no more.

Everything else is escaped: a text can neither bring markup of its own, nor a link that runs, nor a
request to another host. So images stay the words that stand for them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

LONGEST = 10_000  # characters that are parsed; a longer text is shown as it is
_LINK = re.compile(r"https?://", re.IGNORECASE)


def html(text: str, *, breaks: bool = False) -> Markup:
    """Return a text as HTML; with `breaks`, the lines of a paragraph stay lines."""
    if len(text) > LONGEST:
        return Markup('<p class="said">{}</p>').format(text)
    found: str = _parser(breaks=breaks).render(text)
    return Markup(found)  # noqa: S704 (the parser escapes what it is given)


def inline(text: str) -> Markup:
    """Return a text of one line as HTML without a paragraph: emphasis, code and links."""
    found: str = _parser(breaks=False).renderInline(text[:LONGEST])
    return Markup(found)  # noqa: S704 (the parser escapes what it is given)


@cache
def _parser(*, breaks: bool) -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": breaks, "linkify": False})
    made.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    made.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign]
    made.add_render_rule("link_open", _link)
    made.add_render_rule("heading_open", _heading)
    made.add_render_rule("heading_close", _heading)
    return made


def _link(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return f'<a href="{escape(tokens[at].attrGet("href") or "")}" rel="noreferrer nofollow">'


def _heading(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """Return the tag of a heading: those of the page are above all that is said on it."""
    return "<h4>" if tokens[at].nesting > 0 else "</h4>\n"
