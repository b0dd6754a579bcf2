"""The pages of what was produced: a list, and the lines of one artifact."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eventq.http.pages import ansi
from eventq.http.pages.page_request import whole_in
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread

    Values = dict[str, Any]

EXCERPT = 300  # characters of a line that was found
SHOWN = 100_000  # characters of a line
LINES = 500  # of an artifact
LISTED = 200
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
    return "output.html", {
        "session": session, "artifacts": [*reversed(artifacts)],
        "outputs": [*islice(found.outputs, LISTED)],
        "query": f"?{urlencode({'context': session})}" if session else "",
        "sessions": [one.session for one in islice(thread.produced.all_scopes(), LISTED)][1:],
        "before": lowest,
    }  # fmt: skip


def artifact(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show some lines of an artifact, or those with a text."""
    query, name = ask.query, ask.names["artifact"]
    session = query.get("context") or None
    artifacts = thread.scope(session).artifacts
    info = artifacts.get(name)
    first, text = max(1, whole_in(query, "offset", 1)), query.get("text", "")
    values: Values = {
        "info": info, "first": first, "text": text, "found": [], "more": None, "shown": [],
        "query": urlencode({"context": session}) if session else "", "last": None,
    }  # fmt: skip
    if text:
        values["found"], values["more"] = _search(artifacts.open(name), text, first)
    elif first <= info.lines:
        data = b""
        for piece in artifacts.open(name).lines_from(first):
            data += piece
            if data.count(b"\n") > LINES or len(data) > SEARCH_BYTES:
                break
        shown = data.decode(errors="replace").removesuffix("\n").split("\n")[:LINES]
        values["shown"] = [*enumerate(ansi.lines(one[:SHOWN] for one in shown), first)]
        values["more"] = first + len(shown) if info.lines >= first + len(shown) else None
    values["last"] = max(1, info.lines - LINES + 1) if info.lines > LINES else None
    return "artifact.html", values


def _search(found: Any, text: str, first: int) -> tuple[list[tuple[int, str]], int | None]:
    """Return the next lines with a text, and the line to go on at if that took long."""
    deadline = clock.monotonic() + SEARCH_SECONDS
    lines: list[tuple[int, str]] = []
    for number, start, is_match in _lines(found.lines_from(first), first, text.encode()):
        if is_match:
            lines.append((number, start[:EXCERPT].decode(errors="replace")))
        if len(lines) >= LISTED or (not number % 1_000 and clock.monotonic() > deadline):
            return lines, number + 1
    return lines, None


def _lines(
    pieces: Iterator[bytes], number: int, wanted: bytes
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number and start of each line, and whether a text is in it; one may be very long."""
    rest, start, is_match = b"", b"", False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield number, start or line, is_match or wanted in line
            number, start, is_match = number + 1, b"", False
        if len(rest) > SEARCH_BYTES:
            start, is_match = start or rest[:EXCERPT], is_match or wanted in rest
            rest = rest[-len(wanted) :]
    if rest or start:
        yield number, start or rest, is_match or wanted in rest
