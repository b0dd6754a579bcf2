"""What was produced, as a page shows it: its kind, a document in parts, lines that failed.

Nothing here reads a thread.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventq.http.pages import markdown
from eventq.record import Record
from eventq.said.media import IMAGES, amount, of_bytes, type_of
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    Values = dict[str, Any]

TEXT, DOCUMENT, JSON, IMAGE, BINARY = "text", "document", "JSON", "image", "binary"
FIRST = 96  # bytes of what is no text
HEAD = 4_096  # bytes by which a kind is known
PARTS = 500  # of a document
INDENTED = 400_000  # characters of JSON with indents
_ROW = 16
_ODD = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")  # that no text has
_MARKDOWN = re.compile(
    r"^(?:#{1,6} |[-*+] |\d{1,3}[.)] |> |```|~~~|\|.*\|)|\*\*\S|\]\(https?:", re.MULTILINE
)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_FAILED = re.compile(
    r"\b(?:FAILED|FAIL|ERROR|FATAL|PANIC)\b|(?:[Ee]rror|\bfatal|\bpanic)(?:\[\w+\])?:"
    r"|^Traceback \(most recent call last\)|^\s*[✗✘✖]\s"
)


class Kind(Record):
    """The kind of what was produced, and what it is in more words."""

    name: str
    what: str


def kind_of(head: bytes, size: int, *, published: bool = False) -> Kind:
    """Return what bytes are that begin so, of a tool or published by an agent."""
    media = type_of(head[:12])
    if media in IMAGES:
        return Kind(IMAGE, of_bytes(head, size))
    text = None if media else text_of(head, is_cut=size > len(head))
    if text is None:
        return Kind(BINARY, of_bytes(head, size) if media else amount(size))
    if published and text.lstrip()[:1] in ("{", "["):
        return Kind(JSON, amount(size))
    if published and _MARKDOWN.search(text):
        return Kind(DOCUMENT, amount(size))
    return Kind(TEXT, amount(size))


def text_of(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text, None for what is none; the last character may be cut."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    return None if _ODD.search(text) else text


def is_failed(line: str) -> bool:
    """Return whether a line without codes says that something failed."""
    return _FAILED.search(line[:2_000]) is not None


def dump(data: bytes) -> str:
    """Return bytes as hexadecimal digits, sixteen a line, each after its place."""
    rows = range(0, len(data), _ROW)
    return "\n".join(f"{at:08x}  {_row(data[at : at + _ROW])}".rstrip() for at in rows)


def _row(data: bytes) -> str:
    return f"{data[:8].hex(' ')}  {data[8:].hex(' ')}"


class Part(Record):
    """A part of a document: its heading, if it has one, and what stands below that."""

    level: int  # 0 for none
    heading: Markup
    body: Markup | str

    @property
    def title(self) -> str:
        """The heading as plain text."""
        return self.heading.striptags()


def document(text: str) -> list[Part]:
    """Return the parts of a document in Markdown, by its headings."""
    return [
        Part(level, markdown.inline(heading), markdown.html(body) if body.strip() else "")
        for level, heading, body in _parts(text)
    ]


def _parts(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield level, heading and text of each part; a fence has none. The last takes the rest."""
    fence, level, heading, number = "", 0, "", 1
    lines: list[str] = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        found = None if fence or mark or number >= PARTS else _HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        if level or any(map(str.strip, lines)):
            yield level, heading, "\n".join(lines)
            number += 1
        level, heading, lines = len(found[1]), found[2].rstrip(" \t#"), []
    yield level, heading, "\n".join(lines)


def shown(text: str, kind: str, *, left: int) -> Values:
    """Return how a published text is shown: a document, JSON with indents, or lines."""
    end = f"\n… {count(left, 'more byte')}" if left > 0 else ""
    if kind == DOCUMENT:
        parts = document(text + end)
        outline = [(n, one.level, one.title) for n, one in enumerate(parts) if one.level]
        return {"parts": parts, "outline": outline, "text": ""}
    shown = _indented(text) if kind == JSON and left <= 0 else text
    return {"parts": [], "outline": [], "text": shown + end}


def _indented(text: str) -> str:
    """Return JSON with indents, at most so much; as it is, if it cannot be read."""
    pieces, size = [], 0
    with suppress(ValueError, RecursionError):
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            pieces.append(piece)
            size += len(piece)
            if size > INDENTED:
                return "".join([*pieces, "\n…"])
        return "".join(pieces)
    return text
