"""Read URLs (`artifact://3`, `agent://0-Scout`, `blob:blake3:…`): all, some lines, or a JSON part.

SCHEMES maps each scheme to a function that opens a `Resource`, which yields its bytes in pieces.
"""

from __future__ import annotations

import json

from eventq.errors import (
    InputError,
    LogicError,
    UnknownArtifactError,
    UnknownBlobError,
    UsageError,
)
from eventq.memory.blobs import parse_ref
from eventq.output import query
from eventq.output.artifacts import check_lines
from eventq.records.artifact import Content
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from eventq.output.artifacts import Artifacts
    from eventq.output.output_store import OutputStore


class Resource:
    """The open content of a URL. It yields its bytes once, and then sets `next_offset`."""

    def __init__(
        self,
        content_type: str,
        pieces: Iterable[bytes],
        *,
        offset: int | None = None,
        limit: int | None = None,
        skip: int = 0,
        incomplete: str | None = None,
        lines: int | None = None,
    ) -> None:
        """Prepare to yield `limit` lines of `pieces` after the first `skip`, of `lines` in all.

        `incomplete` is the reason why bytes are missing, or None if none are.
        """
        self.content_type = content_type
        self.incomplete = incomplete
        self.next_offset: int | None = None
        self.lines = lines
        self._pieces = pieces
        self._offset = offset or 1
        self._limit = limit
        self._skip = skip

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in pieces."""
        left = self._limit
        for piece in self._after_skip():
            if left is None:
                yield piece
                continue
            found = piece.count(b"\n")
            if found < left:
                left -= found
                yield piece
                continue
            rest = piece.split(b"\n", left)[-1] if left else piece
            if len(rest) < len(piece):
                yield piece[: len(piece) - len(rest)]
            left = 0
            if rest:
                self.next_offset = self._offset + (self._limit or 0)
                return

    def _after_skip(self) -> Iterator[bytes]:
        left, last, some = self._skip, b"\n", not self._skip
        for piece in self._pieces:
            rest = piece
            if left:
                found = piece.count(b"\n")
                last = piece[-1:] or last
                if found < left:
                    left -= found
                    continue
                rest = piece.split(b"\n", left)[-1]
                left = 0
            if rest:
                some = True
                yield rest
        if not some:
            raise beyond(self._offset, self._skip - left + (left > 0 and last != b"\n"))


def beyond(offset: int, lines: int) -> LogicError:
    """Return the error for a line beyond the last."""
    return LogicError(
        f"there is no line {offset}: it has {count(lines, 'line')}", "give a smaller offset"
    )


def open_url(
    url: str, produced: OutputStore | None, offset: int | None = None, limit: int | None = None
) -> Resource:
    """Open the content of a URL, or `limit` lines from line `offset` on, counted from 1.

    `produced` is None without a thread. Raises UsageError for an invalid URL, LogicError if there
    is nothing at it.
    """
    check_lines(offset, limit)
    if not isinstance(url, str):
        raise UsageError(
            f"a URL is text, not {type(url).__name__}", "give one such as artifact://0"
        )
    scheme, colon, rest = url.partition(":")
    opener = SCHEMES.get(scheme.lower() + colon)
    if opener is None:
        raise UsageError(
            f"'{url}' is not a URL that eventq can read",
            "give artifact://ID, agent://ID or blob:blake3:HASH",
        )
    return opener(url, rest, produced, offset, limit)


def read(
    url: str, produced: OutputStore | None, offset: int | None = None, limit: int | None = None
) -> Content:
    """Read the content of a URL into memory; see `open_url`."""
    found = open_url(url, produced, offset, limit)
    data = b"".join(found)
    return Content(url, found.content_type, data, found.next_offset, found.incomplete is None)


# --- artifacts ------------------------------------------------------------------------------------


def _artifact(
    url: str, rest: str, produced: OutputStore | None, offset: int | None, limit: int | None
) -> Resource:
    name, options = _number(_authority(url, rest))
    if not name:
        raise UsageError(
            "artifact:// URL requires a numeric ID: artifact://0",
            "give the number that was printed",
        )
    if not name.isascii() or not name.isdigit():
        raise UsageError(
            f"artifact:// ID must be numeric, got: {name}", "give the number that was printed"
        )
    if produced is None:
        raise LogicError("No session - artifacts unavailable", "read it from a thread")
    produced = _in_session(produced, options)
    try:
        artifact = produced.artifacts.open(name)
    except UnknownArtifactError:
        produced.check_any()
        raise
    info = artifact.info
    reason = f" ({info.error})" if info.error else ""
    why = None if info.status == "sealed" else f"{info.url} is {info.status}{reason}"
    if offset is None or offset == 1:
        pieces = artifact.stream() if limit is None else artifact.lines_from(1)
    elif offset > info.lines:
        raise beyond(offset, info.lines)
    else:
        pieces = artifact.lines_from(offset)
    return Resource(
        "text/plain", pieces, offset=offset, limit=limit, incomplete=why, lines=info.lines
    )


def artifacts_at(place: str, produced: OutputStore) -> tuple[Artifacts, str]:
    """Return the artifacts that an address without its scheme is one of, and its number."""
    name, options = _number(place)
    return _in_session(produced, options).artifacts, name


def _number(place: str) -> tuple[str, dict[str, str]]:
    """Return the number of an artifact's address, and its options: nothing but a session."""
    number, _, asked = place.partition("?")
    options = _options(asked) if asked else {}
    return (number.removesuffix("/"), options) if options.keys() <= {"session"} else (place, {})


def _options(asked: str) -> dict[str, str]:
    """Return what follows the ? of a URL; the first of each name counts."""
    from urllib.parse import parse_qs

    return {name: values[0] for name, values in parse_qs(asked, keep_blank_values=True).items()}


def _in_session(produced: OutputStore, options: dict[str, str]) -> OutputStore:
    """Return what was produced in the session that a URL names, if it does."""
    return produced.of_session(options["session"]) if "session" in options else produced


def _authority(url: str, rest: str) -> str:
    if not rest.startswith("//"):
        scheme = url.partition(":")[0]
        raise UsageError(f"'{url}' has no //", f"write {scheme}://ID")
    return rest[2:]


# --- outputs of agents ----------------------------------------------------------------------------


def _agent(
    url: str, rest: str, produced: OutputStore | None, offset: int | None, limit: int | None
) -> Resource:
    name, path, options = _split(url, rest)
    asked, version = options.get("q", ""), _version(options)
    if not name:
        raise UsageError(
            "agent:// URL requires an output ID: agent://<id>",
            "give a name that was printed or listed",
        )
    tokens = query.path(path)
    if tokens and asked:
        raise UsageError("agent:// URL cannot combine path extraction with ?q=", "use one of them")
    if asked:
        tokens = query.parse(asked)
    extracts = bool(tokens or asked)
    if extracts and (offset is not None or limit is not None):
        raise UsageError(
            "offset and limit cannot be combined with extraction",
            "leave them out, or read it whole",
        )
    if produced is None:
        raise LogicError("No session - agent outputs unavailable", "read it from a thread")
    produced = _in_session(produced, options)
    produced.check_any()
    pieces = produced.outputs.stream(produced.outputs.get(name, version))
    if not extracts:
        return Resource("text/markdown", pieces, offset=offset, limit=limit, skip=(offset or 1) - 1)
    found = query.extract(_json(name, b"".join(pieces)), tokens)
    text = json.dumps(found, ensure_ascii=False, indent=2)
    return Resource("application/json", [text.encode("utf-8", "backslashreplace")])


def _split(url: str, rest: str) -> tuple[str, str, dict[str, str]]:
    """Return the id, the path and the options of an agent's URL."""
    from urllib.parse import unquote

    place, _, asked = _authority(url, rest).partition("#")[0].partition("?")
    name, slash, path = place.partition("/")
    return unquote(name), slash + path, _options(asked)


def _version(options: dict[str, str]) -> int:
    version = options.get("version", "1")
    if not version.isascii() or not version.isdigit() or len(version) > 18 or not int(version):
        raise UsageError(
            f"version must be a whole number from 1 on, not '{version}'", "see 'eventq output ls'"
        )
    return int(version)


def _json(name: str, data: bytes) -> Any:
    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not JSON")

    def finite(text: str) -> object:
        return float(text) if float(text) - float(text) == 0 else refuse(text)

    try:
        return json.loads(data, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise LogicError(
            f"Output {name} is not valid JSON: {error}", "read it whole, without extraction"
        ) from error


# --- blobs ----------------------------------------------------------------------------------------


def _blob(
    url: str, rest: str, produced: OutputStore | None, offset: int | None, limit: int | None
) -> Resource:
    kind, _, digits = rest.partition(":")
    if kind not in ("blake3", "sha256") or ":" in digits or parse_ref(digits) is None:
        raise InputError(f"'{url}' names no blob", "give blob:blake3:<64 lower-case hex digits>")
    if produced is None:
        raise LogicError("No session - blobs unavailable", "read it from a thread")
    name = produced.blob_hash(f"blob:{rest}")
    if name is None:
        raise UnknownBlobError(f"blob:{rest}")
    pieces = produced.blobs.stream(name)
    return Resource(
        "application/octet-stream", pieces, offset=offset, limit=limit, skip=(offset or 1) - 1
    )


SCHEMES: dict[str, Callable[[str, str, OutputStore | None, int | None, int | None], Resource]] = {
    "artifact:": _artifact,
    "agent:": _agent,
    "blob:": _blob,
}
