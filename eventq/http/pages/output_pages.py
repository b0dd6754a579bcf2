"""The pages of what was produced: a list, one artifact by lines, one published output."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eventq.errors import ErasedError, EventqError
from eventq.http.pages import ansi
from eventq.http.pages.output_kinds import (
    BINARY,
    DOCUMENT,
    FIRST,
    HEAD,
    IMAGE,
    JSON,
    TEXT,
    Kind,
    dump,
    is_failed,
    kind_of,
    shown,
    text_of,
)
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.version_changes import changes
from eventq.http.pages.wording import json_words
from eventq.said.media import HEAD as MEDIA
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from markupsafe import Markup

    from eventq.http.pages.page_request import Ask
    from eventq.output.artifacts import Artifact
    from eventq.output.output_store import OutputStore
    from eventq.records.artifact import ArtifactInfo, OutputInfo
    from eventq.thread import Thread

    Values = dict[str, Any]

EXCERPT = 300  # characters of a line that was found
SHOWN = 100_000  # characters of a line
LINES = 500  # of an artifact
LISTED = 100
SCOPES = 200
FOUND = 200  # lines
TEXTS = (DOCUMENT, JSON, TEXT)
PUBLISHED = 100_000  # bytes of an output that are shown
LAST = (1 << 63) - 1
SEARCH_SECONDS = 1.0
SEARCH_BYTES = 1 << 20  # of a look


def output(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List artifacts and outputs: those of the thread, or of a session, and name the sessions."""
    session = ask.query.get("context") or None
    found = thread.scope(session)
    before = whole_in(ask.query, "before", 0)
    if before:
        page = found.artifacts.page(max(-1, before - LISTED - 1), LISTED)
        artifacts = [one for one in page if int(one.artifact_id) < before]
    else:
        artifacts = [*found.artifacts.newest(LISTED)]
    lowest = int(artifacts[0].artifact_id) if artifacts else max(0, before - LISTED)
    after = ask.query.get("after", "")
    outputs = found.outputs.newest(after, LISTED + 1) if not before else ()
    return "output.html", {
        "session": session,
        "artifacts": [(one, _kind(found, one)) for one in reversed(artifacts if not after else [])],
        "outputs": [(one, _published(thread, one)) for one in outputs[:LISTED]],
        "query": f"?{urlencode({'context': session})}" if session else "",
        "sessions": [one.session for one in islice(thread.produced.all_scopes(), SCOPES)][1:],
        "before": lowest if not after else 0,
        "after": outputs[LISTED - 1].output_id if len(outputs) > LISTED else None,
    }  # fmt: skip


def _kind(found: OutputStore, info: ArtifactInfo) -> Kind:
    """Return the kind of an artifact; of one that cannot be read, why."""
    try:
        head = found.artifacts.open(info.artifact_id).part(0, HEAD)
    except EventqError as error:
        return Kind("damaged", str(error))
    return kind_of(head, info.size)


def _published(thread: Thread, info: OutputInfo) -> Kind:
    """Return the kind of a published output; of one that cannot be read, why."""
    try:
        return kind_of(thread.blobs.part(info.hash, 0, HEAD), info.size, published=True)
    except EventqError as error:
        return Kind("damaged", str(error))


def artifact(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show some lines of an artifact, or those with a text, or an image, or what bytes they are."""
    query, name = ask.query, ask.names["artifact"]
    session = query.get("context") or None
    artifacts = thread.scope(session).artifacts
    found = artifacts.open(name)
    info = found.info
    first, text = max(1, whole_in(query, "offset", 1)), query.get("text", "")
    failed = query.get("lines") == "failed" and not text
    head = found.part(0, MEDIA)
    kind = kind_of(head, info.size)
    values: Values = {
        "info": info, "kind": kind, "first": first, "text": text, "failed": failed, "found": None,
        "more": None, "shown": [], "bytes": "", "last": None, "lines": LINES,
        "query": urlencode({"context": session}) if session else "",
    }  # fmt: skip
    if kind.name == BINARY:
        values["bytes"] = dump(head[:FIRST])
    elif kind.name == IMAGE:
        pass
    elif text or failed:
        wanted = text.encode()
        is_match = _says_failed if failed else lambda line: wanted in line
        values["found"], values["more"] = _search(found, is_match, len(wanted) or 1, first)
    elif first <= info.lines:
        values["shown"] = _some(found, first)
        count = len(values["shown"])
        values["more"] = first + count if info.lines >= first + count else None
    values["last"] = max(1, info.lines - LINES + 1) if info.lines > LINES else None
    return "artifact.html", values


def _some(found: Artifact, first: int) -> list[tuple[int, Markup, bool]]:
    """Return the lines from one on: number, HTML, and whether it says that something failed."""
    data = b""
    for piece in found.lines_from(first):
        data += piece
        if data.count(b"\n") > LINES or len(data) > SEARCH_BYTES:
            break
    lines = data.decode(errors="replace").removesuffix("\n").split("\n")[:LINES]
    made = ansi.lines(one[:SHOWN] for one in lines)
    return [
        (first + n, html, is_failed(ansi.plain(line)))
        for n, (line, html) in enumerate(zip(lines, made, strict=True))
    ]


def _says_failed(line: bytes) -> bool:
    return is_failed(ansi.plain(line[:SHOWN].decode(errors="replace")))


def published(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show a version of a published output: a document, JSON, text, an image, or what it is."""
    name, session = ask.names["output"], ask.query.get("context") or None
    outputs = thread.scope(session).outputs
    info = outputs.get(name, whole_in(ask.query, "version", 1))
    head = thread.blobs.part(info.hash, 0, MEDIA)
    kind = kind_of(head, info.size, published=True)
    values: Values = {"parts": [], "outline": [], "text": "", "words": [], "bytes": ""}
    before = next(iter(outputs.older(name, info.version, 1)), None)
    shown_as = ask.query.get("as", "")
    if kind.name in TEXTS and shown_as == "changes" and before is not None:
        values |= _changes(thread, before, info)
    elif kind.name in TEXTS:
        text, left = _text(thread, info)
        wanted = TEXT if shown_as == "source" else kind.name
        values |= shown(text, wanted, left=left)
        values["words"] = json_words(values["text"]) if wanted == JSON else []
    elif kind.name == BINARY:
        values["bytes"] = dump(head[:FIRST])
    newest = outputs.older(name, LAST, 1)[0].version
    around = min(newest, info.version + LISTED // 2) + 1
    versions = outputs.older(name, max(2, whole_in(ask.query, "before", around)), LISTED)
    return "published.html", values | {
        "info": info, "kind": kind, "session": session, "versions": versions,
        "newest": newest, "shown_as": shown_as, "is_text": kind.name in TEXTS, "before": before,
    }  # fmt: skip


def _text(thread: Thread, info: OutputInfo) -> tuple[str, int]:
    """Return the text of a published output, and how many bytes are left out at its end."""
    data = thread.blobs.part(info.hash, 0, PUBLISHED)
    text = text_of(data, is_cut=info.size > len(data)) or data.decode(errors="replace")
    return text, info.size - len(data)


def _changes(thread: Thread, before: OutputInfo, after: OutputInfo) -> Values:
    """Return what changed from a version to another, that of JSON by its members.

    None of one that is no text, or was erased.
    """
    texts, is_whole = [], True
    for one in (before, after):
        try:
            kind = kind_of(thread.blobs.part(one.hash, 0, MEDIA), one.size, published=True)
            if kind.name not in TEXTS:
                return {"lines": None}
            text, left = _text(thread, one)
        except ErasedError:
            return {"lines": None}
        texts.append(shown(text, JSON if kind.name == JSON else TEXT, left=left)["text"])
        is_whole = is_whole and not left
    lines, is_all = changes(*texts)
    return {"lines": lines, "is_all": is_all and is_whole}


def _search(
    found: Artifact, is_match: Callable[[bytes], bool], kept: int, first: int
) -> tuple[list[tuple[int, str]], int | None]:
    """Return the next lines that match, and the line to go on at if that took long.

    `kept` are the bytes at the end of a piece of a long line that the next piece begins with.
    """
    deadline = clock.monotonic() + SEARCH_SECONDS
    lines: list[tuple[int, str]] = []
    for number, start, matched in _lines(found.lines_from(first), first, is_match, kept):
        if matched:
            lines.append((number, ansi.plain(start[:EXCERPT].decode(errors="replace"))))
        if len(lines) >= FOUND or (not number % 100 and clock.monotonic() > deadline):
            return lines, number + 1
    return lines, None


def _lines(
    pieces: Iterator[bytes], number: int, is_match: Callable[[bytes], bool], kept: int
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number and start of each line, and whether it matches; one may be very long."""
    rest, start, matched = b"", b"", False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield number, start or line, matched or is_match(line)
            number, start, matched = number + 1, b"", False
        if len(rest) > SEARCH_BYTES:
            start, matched = start or rest[:EXCERPT], matched or is_match(rest)
            rest = rest[-kept:]
    if rest or start:
        yield number, start or rest, matched or is_match(rest)
