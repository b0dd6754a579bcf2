"""The pages of the memory: branches as lanes, contexts, turns, runs, and what was produced."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eventq import said
from eventq.errors import EventqError
from eventq.http import ansi
from eventq.http.lanes import ROW, STEP, WIDE, dots_of, lanes_of, line_of
from eventq.http.markdown import html
from eventq.http.page_request import whole_in
from eventq.http.talk import messages, shown
from eventq.memory.turns import View
from eventq.records.turn import ContextInfo
from eventq.said.media import IMAGES, of_bytes, type_of
from eventq.said.values import dump
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.http.page_request import Ask
    from eventq.records.run import Step
    from eventq.records.turn import Turn
    from eventq.thread import Thread

    Values = dict[str, Any]

LANES = 200  # contexts that are drawn
PAGE = 200  # turns or steps of a page
EXCERPT = 300  # characters of a payload in a list
SHOWN = 100_000  # characters of a payload by itself
LINES = 500  # of an artifact
LISTED = 200
WAYS = 20  # that go on from one turn, and are listed
SEARCH_SECONDS = 1.0
SEARCH_BYTES = 1 << 20  # of a look


# --- branches -------------------------------------------------------------------------------------


def branches(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Draw the contexts that changed last, as lanes that leave each other."""
    found = [ContextInfo._make(row) for row in thread.database.memory.overview(LANES).contexts]
    turns = thread.contexts.turns
    lanes = lanes_of(turns, found)
    deepest = max((one.end for one in lanes), default=0)
    first = whole_in(ask.query, "from", max(0, deepest - WIDE + 1))
    kinds, dots, left = dots_of(turns, lanes, first)
    return "branches.html", {
        "lanes": lanes, "kinds": kinds, "dots": dots, "left": left, "first": first,
        "before": max(0, first - WIDE) if first else None,
        "after": first + WIDE if deepest >= first + WIDE else None,
        "width": (min(deepest - first, WIDE) + 3) * STEP, "height": (len(lanes) + 1) * ROW,
        "lines": [line_of(one, first) for one in lanes], "step": STEP, "row": ROW, "wide": WIDE,
        "sessions": [*islice(thread.sessions.views.all(), LISTED)],
        "runs": [*islice(thread.runs.active(), LISTED)],
    }  # fmt: skip


# --- turns ----------------------------------------------------------------------------------------


def context(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the turns of a context, the newest first, or those before one."""
    found = thread.contexts.get(ask.names["context"])
    view = View(found.turns, found.head_id())
    before = whole_in(ask.query, "before", 0)
    if ask.query.get("depth"):  # around a turn of the drawing
        first = max(0, whole_in(ask.query, "depth") - PAGE // 2)
        page = view.range(first, PAGE, payload=False)
        older = page[0].turn_id if page and first else None
    else:
        page = (
            view.before(before, PAGE, payload=False) if before else view.last(PAGE, payload=False)
        )
        older = page.next_cursor
    root = view.ancestor(0) if page and not page[0].depth else 0
    session = thread.database.memory.sessions.of_context(found.id)
    return "context.html", {
        "notes": thread.sessions.views.notes_of(session, found.head_id()) if session else [],
        "info": found.info(), "talk": messages(thread, page, others=_others(thread, view, page)),
        "older": older, "continues": root and found.turns.continued(root),
        "others": [*islice(thread.contexts.list(), LISTED)],
        "moves": [*islice(found.history(), LISTED)][-10:][::-1],
    }  # fmt: skip


def _others(thread: Thread, view: View, page: Iterable[Turn]) -> dict[int, list[Values]]:
    """Return the other ways that go on from turns: the first turn of each, and what it says."""
    turns = [*page]
    way = {one.turn_id for one in turns}
    if turns:
        way.add(view.ancestor(turns[-1].depth + 1))
    return {
        parent: [
            {"turn": below, "words": last_words(thread, below)} for below in found
            if below not in way
        ][:WAYS]
        for parent, found in view.turns.forks([one.turn_id for one in turns]).items()
    }  # fmt: skip


def last_words(thread: Thread, turn_id: int) -> str:
    """Return what a turn says on one line, or why that cannot be read; "" for none."""
    if not turn_id:
        return ""
    try:
        found = thread.contexts.turns.said(thread.contexts.turn(turn_id, payload=False))
    except EventqError as error:
        return str(error)
    return found.line(EXCERPT)


def turn(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one turn, where it stands, and what follows it."""
    found = thread.contexts.turn(whole_in(ask.names, "turn"), payload=False)
    is_image = not found.tombstone and type_of(thread.blobs.part(found.hash, 0, 12)) in IMAGES
    talk = messages(thread, [found], text=SHOWN)
    what, text = payload_of(thread, found)
    is_told = talk[0]["role"] or talk[0]["kind"] if talk else False
    heads = [
        one for one in map(ContextInfo._make, thread.database.memory.overview(LANES).contexts)
        if one.head_turn_id and thread.contexts.turns.is_above(found.turn_id, one.head_turn_id)
    ]  # fmt: skip
    return "turn.html", {
        "turn": found, "talk": talk if is_told else [], "what": what, "text": text,
        "is_image": is_image, "contexts": heads,
        "children": thread.contexts.children(found.turn_id, PAGE),
        "causes": thread.causes_of(turn=found.turn_id),
    }  # fmt: skip


def payload_of(thread: Thread, turn: Turn) -> tuple[str, str | None]:
    """Return what the payload of a turn is, and the beginning of its text, None for bytes."""
    if turn.tombstone:
        return "payload", "(erased)" if turn.hash else "(hidden)"
    start = thread.blobs.part(turn.hash, 0, 4 * SHOWN)
    text = _text(start, is_cut=turn.size > len(start))
    if text is None:
        return of_bytes(start, turn.size), of_bytes(start, turn.size)
    end = "…" if turn.size > len(start) or len(text) > SHOWN else ""
    return f"payload, {count(turn.size, 'byte')}", text[:SHOWN] + end


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text, None for what is none; the last character may be cut."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode() if is_cut and error.start >= len(data) - 3 else None


def diff(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what each of two contexts has after the last turn that they share."""
    pair = [thread.contexts.get(ask.query.get(name, "")) for name in ("a", "b")]
    found = pair[0].diff(pair[1], payload=False)
    sides = [
        (one.info(), messages(thread, islice(side, PAGE)), len(side))
        for one, side in zip(pair, (found.mine, found.theirs), strict=True)
    ]
    return "diff.html", {"ancestor": found.ancestor, "sides": sides, "shown": PAGE}


def runs(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List all runs by id, whatever their status."""
    found = [*islice(thread.runs.list(after=whole_in(ask.query, "after", 0)), LISTED + 1)]
    more = found[LISTED - 1].run_id if len(found) > LISTED else None
    return "runs.html", {"runs": found[:LISTED], "more": more}


def run(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show a run: its task, and its steps from one on."""
    found = thread.runs.get(ask.names["run"])
    info, first = found.info(), whole_in(ask.query, "from", 1)
    steps = [*islice(found.replay(first), PAGE + 1)]
    return "run.html", {
        "info": info, "prompt": found.prompt()[:SHOWN], "steps": [*map(_step, steps[:PAGE])],
        "more": steps[PAGE].number if len(steps) > PAGE else None, "first": first,
    }  # fmt: skip


def _step(one: Step) -> tuple[Step, list[Values], str]:
    """Return a step with the blocks of its text, and its meta as text."""
    blocks = [shown(block) for block in said.read(one.content.encode("utf-8", "replace")).blocks]
    for block in blocks:
        if block["shape"] == "text":
            block["html"] = html(block["text"])
    meta = one.meta if isinstance(one.meta, str) else dump(one.meta) if one.meta else ""
    return one, blocks, meta[:SHOWN]


# --- what was produced ----------------------------------------------------------------------------


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
