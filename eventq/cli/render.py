"""Render turns, contexts, blobs and other records as JSON objects or readable lines."""

from __future__ import annotations

from itertools import islice

from eventq.cli import show
from eventq.system import clock, counts
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.records.artifact import ArtifactInfo, OutputInfo
    from eventq.records.turn import Blob, ContextInfo, Imported, Move, OpenInfo, Turn
    from eventq.said import Said

LINES = 20  # of a payload, in readable output
CHARACTERS = 2000
EXCERPT = 60  # characters of a payload on one line
count = counts.count
_BLOCK = 1 << 16


def fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record by their names."""
    return {name: getattr(record, name) for name in record._fields}


def blob(one: Blob) -> dict[str, Any]:
    """Return a blob as an object."""
    return {
        "ref": one.ref,
        "hash": one.hash,
        "size": one.size,
        "stored": one.stored,
        "codec": one.codec,
    }


def produced(one: ArtifactInfo | OutputInfo | Blob) -> dict[str, Any]:
    """Return an artifact, an output or the blob of a file as an object."""
    return {**fields(one), "url": url(one)}


def url(one: ArtifactInfo | OutputInfo | Blob) -> str:
    """Return the address that others read something by."""
    return getattr(one, "ref", None) or one.url  # type: ignore[union-attr]


def folder(counts: dict[str, int]) -> str:
    """Return how many artifacts, outputs and other files a folder has."""
    parts = [count(counts["artifacts"], "artifact"), count(counts["outputs"], "output")]
    if counts["files"]:
        parts.append(count(counts["files"], "other file"))
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def tokens(number: int, how: str, *, is_all: bool) -> str:
    """Return a number of tokens, which may be more."""
    return f"{'' if is_all else 'at least '}{count(number, 'token')} {how}"


def dump_all(objects: Iterable[object]) -> None:
    """Write objects as JSON lines, block by block."""
    encode = writer()
    say_all(_encoded(one, encode) for one in objects)


def _encoded(one: object, encode: Callable[[object], str]) -> str:
    try:
        return encode(one)
    except ValueError:  # an integer with more digits than Python prints; here keys are sorted
        from eventq.memory import canonical

        return canonical.dump(one).decode()


def show_all(
    records: Iterable[Any],
    as_object: Callable[[Any], object],
    as_line: Callable[[Any], str],
    *,
    json: bool,
) -> None:
    """Write records, one line each, as JSON objects or readable text."""
    if json:
        dump_all(map(as_object, records))
    else:
        say_all(map(as_line, records))


def say_all(lines: Iterable[str]) -> None:
    """Write lines, block by block."""
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size > _BLOCK:
            show.say("\n".join(block))
            block, size = [], 0
    if block:
        show.say("\n".join(block))


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of cells as lines, their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def stamp(at_ms: int) -> str:
    """Return a time in milliseconds as text; half a millisecond more keeps the last digit."""
    return clock.stamp((at_ms + 0.5) / 1000)


def duration(seconds: float) -> str:
    """Return a time for people, such as 42s or 3h."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def head(one: Turn) -> str:
    """Return the line that describes a turn."""
    gone = " [erased]" if one.hash else " [tombstone]"  # a tombstone alone hides the hash, too
    marks = gone if one.tombstone else " [patched]" if one.patch else ""
    kind = show.readable(one.type_id) or "(no type)"
    return (
        f"#{one.turn_id} depth {one.depth} {kind} v{one.type_version} {count(one.size, 'byte')}"
        f" {stamp(one.created_at_ms)}{marks}"
    )


def readable(one: Turn, said: Said | None = None) -> Iterator[str]:
    """Yield a turn as readable lines, with the start of its payload, or of what it says."""
    yield head(one)
    if said is not None:
        text = "\n".join(islice(said.lines(), LINES + 1))
        lines = text[:CHARACTERS].split("\n")[:LINES]
        yield from (f"  {show.readable(line)}" for line in lines if text)
        if "\n".join(lines) != text:
            yield f"  … (all of it: {show.program()} blob get {one.ref})"
        return
    if not one.payload:
        return
    shown, more = beginning(one.payload)
    if shown is None:
        yield f"  (binary, {count(one.size, 'byte')})"
        return
    yield from (f"  {show.readable(line)}" for line in shown)
    if more:
        yield f"  … ({count(more, 'byte')} more; {show.program()} blob get {one.ref})"


def beginning(data: bytes) -> tuple[list[str] | None, int]:
    """Return the first lines of a text, or None for binary data, and the bytes left out."""
    text = _text(data, CHARACTERS)
    if text is None:
        return None, 0
    part = "\n".join(text.split("\n")[:LINES]).removesuffix("\n")
    left = len(data) - len(part.encode())
    return part.split("\n"), 0 if left == 1 and data.endswith(b"\n") else left


def _text(data: bytes, characters: int) -> str | None:
    """Return the first characters of UTF-8, or None for other bytes."""
    from codecs import utf_8_decode

    start = data[: 4 * characters]
    try:
        return utf_8_decode(start, "strict", len(start) == len(data))[0][:characters]
    except UnicodeDecodeError:
        return None


def excerpt(one: Turn) -> str:
    """Return a turn on one line, with the start of what it says."""
    from eventq.said import read

    said = read(one.payload, one.type_id) if one.payload else None
    return head(one) if said is None else f"{head(one)}  {show.readable(said.line(EXCERPT))}"


def context(one: ContextInfo) -> str:
    """Return the line that describes a context."""
    where = f"turn {one.head_turn_id} (depth {one.head_depth})" if one.head_turn_id else "(empty)"
    begun = f" at turn {one.base_turn_id}" if one.base_turn_id else ""
    came = (
        f"  fork of {one.fork_of}{begun}"
        if one.fork_of is not None
        else begun and f"  begun{begun}"
    )
    return f"{label(one)}  {where}{came}"


def label(one: ContextInfo) -> str:
    """Return id and name of a context."""
    return (
        f"{one.context_id}" if one.name is None else f"{one.context_id} {show.readable(one.name)}"
    )


def move(one: Move) -> str:
    """Return the line that describes a move."""
    return f"{stamp(one.at_ms)}  v{one.version}  {one.op}  {one.old_turn_id} -> {one.new_turn_id}"


def opened(one: OpenInfo) -> str:
    """Return the line that describes an open turn."""
    kind = show.readable(one.type_id) or "(no type)"
    return (
        f"{one.open_id}  context {one.context_id}  {kind} v{one.type_version}"
        f"  {count(one.size, 'byte')}  begun {stamp(one.created_at_ms)},"
        f" written to {stamp(one.updated_at_ms)}"
    )


def artifact(one: ArtifactInfo) -> str:
    """Return the line that describes an artifact."""
    return (
        f"{one.url}  {one.status}  {count(one.size, 'byte')}  {count(one.lines, 'line')}"
        f"  {one.tool}  {stamp(one.created_at_ms)}"
    )


def output(one: OutputInfo) -> str:
    """Return the line that describes a version of an output."""
    return f"{one.url}  {count(one.size, 'byte')}  {stamp(one.created_at_ms)}"


def added(one: Imported) -> str:
    """Return a sentence on what an import added: the memory, and others only if there are any."""
    shown = [(one.blobs, "blob"), (one.turns, "turn"), (one.contexts, "context")]
    shown += [
        (number, noun)
        for number, noun in (
            (one.artifacts, "artifact"),
            (one.outputs, "output"),
            (one.events, "event"),
            (one.consumers, "consumer"),
        )
        if number
    ]
    *first, last = (count(number, noun) for number, noun in shown)
    return f"{', '.join(first)} and {last}; {count(one.moved, 'head')} moved"
