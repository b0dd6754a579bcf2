"""Look for a text in events, turns, runs, artifacts and outputs, as far as one call may take.

Each kind is a generator of steps after a place: the place to go on from, and what was found there,
with the text around it, or None. So a search ends anywhere, and a cursor, which is a kind and a
place, goes on there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eventq.errors import ErasedError, UnknownArtifactError, UsageError
from eventq.mcp.excerpts import FRAME, NAME, cut, size
from eventq.records.artifact import OutputInfo
from eventq.records.turn import ContextInfo
from eventq.serving.event_pages import ROOM
from eventq.serving.parameters import MOST
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eventq.output.output_store import OutputStore
    from eventq.records.artifact import ArtifactInfo
    from eventq.serving.parameters import Given
    from eventq.thread import Thread

    Object = dict[str, Any]
    Place = tuple[Any, ...]
    Look = Iterator[tuple[Place, Object | None, str]]

PAGE = 256  # of a kind that are read at once
PIECE = 1 << 18  # bytes of an artifact or an output that are searched at once
EXCERPT = 120  # bytes on both sides of what was found
LONGEST = 1_000  # bytes that are looked for
CONTEXTS = 100  # that a turn is looked for in
_ESCAPES = (('\\"', '"'), ("\\/", "/"), ("\\b", "\b"), ("\\f", "\f"), ("\\r", "\r"), ("\\t", "\t"))
_BACKSLASH = "\uffff"  # one that was spelled; no character, so no text has it
_NO_ESCAPE = re.compile(r"\\(?!u[0-9a-fA-F]{4})")
_PLAIN = re.compile(rb"[0-9a-z]+")  # what JSON spells by itself or by its code, as in the next one
_BY_CODE = re.compile(rb"\\u00(?:3[0-9]|[46][1-9a-f]|[57][0-9a])")
_SPELLED = 6  # bytes of JSON that may stand for one
_KINDS = ("events", "turns", "artifacts", "outputs")  # in the order of a search
_NUMBER = "[0-9]{1,18}"
_CURSOR = re.compile(
    rf"(?P<kind>events|turns):(?P<before>{_NUMBER})"
    rf"|(?P<stored>artifacts|outputs):(?P<numbers>{_NUMBER}(?:/{_NUMBER}){{3}})/(?P<name>[^/]*)"
)
_BEGINS: dict[str, Place] = {
    **dict.fromkeys(_KINDS[:2], (MOST,)), **dict.fromkeys(_KINDS[2:], (0, 0, 0, 0, "")),
}  # fmt: skip


def found_in(thread: Thread, given: Given, room: int, seconds: float) -> Object:
    """Return what contains a text, as much as fits, and where to go on. Raises UsageError."""
    wanted = given["text"].encode("utf-8", "replace").lower()
    if not 0 < len(wanted) <= LONGEST:
        raise UsageError(f"the text has 1 to {LONGEST:,} bytes", "look for a part of it")
    deadline = clock.monotonic() + seconds
    start, at = _place_of(given["cursor"])
    room -= FRAME
    most = room // 2  # of one text: control characters take six bytes each
    found: list[Object] = []
    for kind in _KINDS[_KINDS.index(start) :]:
        at = at or _BEGINS[kind]
        for after, item, text in _LOOKS[kind](thread, at, wanted):
            if item is not None:
                item["text"] = cut(text, most)
                room -= size(item) + 1
                if found and room < 0:
                    return _found(found, kind, at)
                found.append(item)
            at = after
            if len(found) == given["limit"] or clock.monotonic() > deadline:
                return _found(found, kind, at)
        at = ()
    return _found(found)


def _found(found: list[Object], kind: str = "", at: Place = ()) -> Object:
    following = {"cursor": f"{kind}:{'/'.join(map(str, at))}"} if at else {}
    return {"found": found, "next": following, "more": bool(at)}


def _place_of(cursor: str | None) -> tuple[str, Place]:
    if cursor is None:
        return _KINDS[0], ()
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UsageError("this is no cursor of a search", "use the one in `next` of a result")
    if match["stored"]:
        return match["stored"], (*map(int, match["numbers"].split("/")), match["name"])
    return match["kind"], (int(match["before"]),)


# --- the kinds ------------------------------------------------------------------------------------


def _events(thread: Thread, at: Place, wanted: bytes) -> Look:
    """Yield the events before an id, newest first."""
    (before,) = at
    events = thread.database.events
    while page := events.newest("", min(before - 1, events.last()), PAGE, ROOM):
        for one in reversed(page):
            data = one.content.encode("utf-8", "replace")
            text, _ = _sought(data, wanted, is_spelled=_is_json(data))
            item = {"event": one.id, "type": cut(one.type, NAME), "at": one.created_at}
            yield (one.id,), None if text is None else item, text or ""
        before = page[0].id


def _turns(thread: Thread, at: Place, wanted: bytes) -> Look:
    """Yield the turns before an id, newest first; with what the node of a run's turn names."""
    turns, runs = thread.contexts.turns, thread.runs
    (before,) = at
    is_whole = True
    while is_whole:
        is_whole = False
        for number, one in enumerate(turns.newest(before, PAGE), 1):
            before, is_whole = one.turn_id, number == PAGE
            data = turns.shown(one) or b""
            text, _ = _sought(data, wanted, is_spelled=_is_json(data))
            url = None
            for ref, said in runs.texts(one) if text is None else ():
                text, _ = _sought(said, wanted, is_spelled=_is_json(said))
                if text is not None:
                    url = ref
                    break
            if text is None:
                yield (before,), None, ""
                continue
            at_time = clock.stamp(one.created_at_ms / 1000)
            item = {"turn": before, "type": cut(one.type_id, NAME), "at": at_time}
            item |= _where(thread, before) | ({"url": url} if url else {})
            yield (before,), item, text


def _where(thread: Thread, turn: int) -> Object:
    """Return the context that changed last of those that have a turn, and where it stands there."""
    turns = thread.contexts.turns
    depth = turns.depth(turn)
    for row in thread.database.memory.overview(CONTEXTS).contexts:
        info = ContextInfo._make(row)
        if info.head_turn_id and turns.ancestor(info.head_turn_id, depth) == turn:
            return {"context": name_of(info), "depth": depth}
    return {"depth": depth}


def name_of(info: ContextInfo) -> str | int:
    """Return what a context is called by."""
    return info.name or info.context_id


def _artifacts(thread: Thread, at: Place, wanted: bytes) -> Look:
    """Yield the pieces of artifacts, from a scope, number, byte and line on."""

    def page(produced: OutputStore, number: int, _: str) -> Sequence[ArtifactInfo]:
        return produced.artifacts.page(number - 1, PAGE)

    def part(produced: OutputStore, info: ArtifactInfo, start: int, count: int) -> bytes:
        return produced.artifacts.open(info.artifact_id).part(start, count)

    return _stored(thread, at, wanted, page, part)


def _outputs(thread: Thread, at: Place, wanted: bytes) -> Look:
    """Yield the pieces of outputs in the same way, by version and name."""

    def page(produced: OutputStore, version: int, name: str) -> Sequence[OutputInfo]:
        return produced.outputs.page(name, max(0, version - 1), PAGE)

    def part(produced: OutputStore, info: OutputInfo, start: int, count: int) -> bytes:
        return produced.blobs.part(info.hash, start, count)

    return _stored(thread, at, wanted, page, part)


def _stored(
    thread: Thread, at: Place, wanted: bytes, page: Callable[..., Any], part: Callable[..., bytes]
) -> Look:
    """Yield pieces of what is stored in scopes; each is found once, and read on after that."""
    scope, number, start, line, name = at
    produced = thread.produced.of(scope)
    begun = number, name
    while True:
        while infos := page(produced, number, name):
            for info in infos:
                is_output = isinstance(info, OutputInfo)
                name = info.output_id if is_output else ""
                number = info.version if is_output else int(info.artifact_id)
                if (number, name) != begun:
                    start = line = 0
                while start < info.size:
                    try:
                        piece = part(produced, info, start, PIECE + _SPELLED * (len(wanted) + 2))
                    except (ErasedError, UnknownArtifactError):  # gone, maybe just now
                        break
                    text, lines = _sought(piece, wanted, is_spelled=True)
                    if text is not None:
                        tool = {} if is_output else {"tool": cut(info.tool, NAME)}
                        made_at = clock.stamp(info.created_at_ms / 1000)
                        item = {"url": info.url, "line": line + lines + 1, **tool, "at": made_at}
                        yield (scope, number + 1, 0, 0, name), item, text
                        break
                    start += PIECE
                    line += piece.count(b"\n", 0, PIECE)
                    yield (scope, number, start, line, name), None, ""
                number, start, line, begun = number + 1, 0, 0, (0, "")
                yield (scope, number, 0, 0, name), None, ""
        rows = produced.database.scopes.page(scope, 1)
        if not rows:
            return
        scope, number, name = rows[0].scope, 0, ""
        produced = thread.produced.of(scope)
        yield (scope, 0, 0, 0, ""), None, ""


_LOOKS: dict[str, Callable[[Thread, Place, bytes], Look]] = dict(
    zip(_KINDS, (_events, _turns, _artifacts, _outputs), strict=True)
)

# --- texts ----------------------------------------------------------------------------------------


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] in (b"{", b"[", b'"')


def _sought(data: bytes, wanted: bytes, *, is_spelled: bool) -> tuple[str | None, int]:
    """Return what stands around a text, and the lines before it; None if it stands nowhere.

    It is looked for in the bytes, and in what they spell as JSON with escapes.
    """
    folded = data.lower()
    at, lines = folded.find(wanted), data
    if at < 0 and is_spelled and b"\\" in data and _may_spell(folded, wanted):
        raw, data = data, _unescaped(data)
        at = data.lower().find(wanted)
        if at >= 0:
            lines = _unescaped(raw, " ")  # newlines that were spelled begin no line
    if at < 0:
        return None, 0
    return _around(data, at, len(wanted)), lines.count(b"\n", 0, at)


def _may_spell(folded: bytes, wanted: bytes) -> bool:
    """Return whether letters and digits of a text are there: most pieces are passed over."""
    if all(part in folded for part in _PLAIN.findall(wanted)):
        return True
    return _BY_CODE.search(folded) is not None


def _unescaped(data: bytes, newline: str = "\n") -> bytes:
    """Return what bytes spell as JSON, with `newline` for each spelled one.

    Each step goes through all of it in C: one call an escape takes 1 µs, or 2 s for a MiB of them.
    """
    text = data.decode("utf-8", "replace").replace("\\\\", _BACKSLASH)
    for spelled, meant in (("\\n", newline), *_ESCAPES):
        text = text.replace(spelled, meant)
    if "\\u" in text:
        text = text.replace("\\u000a", newline).replace("\\u000A", newline)
        has_pairs = "\\ud" in text or "\\uD" in text
        try:
            text = _by_code(text.replace("\\U", f"{_BACKSLASH}U"))
        except UnicodeDecodeError:  # `\u` without digits
            text = _by_code(_NO_ESCAPE.sub(_BACKSLASH, text))
        if has_pairs:  # of surrogates
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace(_BACKSLASH, "\\").encode("utf-8", "replace")


def _by_code(text: str) -> str:
    """Return a text with the characters that are spelled by their codes."""
    return text.encode("raw_unicode_escape").decode("raw_unicode_escape")


def _around(data: bytes, at: int, length: int) -> str:
    """Return what stands around a text, on both sides."""
    start, end = max(0, at - EXCERPT), at + length + EXCERPT
    return "…" * (start > 0) + data[start:end].decode(errors="ignore") + "…" * (end < len(data))
