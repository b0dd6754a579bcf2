"""What a URL names: `artifact://3`, `agent://0-Scout`, `blob:blake3:…`, read whole, by lines, or a part of its JSON.

One table of schemes leads to one function each; all of them give a `Resource`, whose bytes come in pieces.
"""

from __future__ import annotations

import json

from eventq.blobs import digest_of, parse_ref
from eventq.errors import InputError, LogicError, UnknownBlobError, UsageError
from eventq.event import REF, refs_in
from eventq.output import query
from eventq.output.artifacts import check_lines
from eventq.records import Content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from eventq.blobs import Blobs
    from eventq.output.agents import Outputs
    from eventq.output.artifacts import Artifacts
    from eventq.records import Blob

SHA256 = "blob:sha256:"  # the refs of other tools


class Sources:
    """Where URLs lead to, in one thread."""

    def __init__(self, blobs: Blobs, artifacts: Artifacts, outputs: Outputs) -> None:
        """Hold the three."""
        self.blobs = blobs
        self.artifacts = artifacts
        self.outputs = outputs

    def check_any(self) -> None:
        """Raise LogicError when nothing was ever produced here."""
        if not len(self.artifacts) and not len(self.outputs):
            raise LogicError("No artifacts directory found", "nothing was stored yet: see 'eventq artifact put'")

    def blob_hash(self, ref: str) -> str | None:
        """Give the hash of the blob that a ref names, also one of another tool's; None when it is not here."""
        if ref.startswith(SHA256):
            sha256 = parse_ref(ref.removeprefix(SHA256))
            digest = None if sha256 is None else self.artifacts.table.named(sha256)
            return None if digest is None else digest.hex()
        digest = parse_ref(ref)
        return digest.hex() if digest is not None and self.blobs.has(digest) else None

    def put(self, data: bytes) -> Blob:
        """Store bytes as a blob that keeps the blobs whose refs are in it as text."""
        named = refs_in(data.decode(errors="replace")) if REF.encode() in data else ()
        return self.blobs.put(data, refs=[digest for digest in sorted(named) if self.blobs.has(digest)])

    def get(self, ref: str) -> bytes | None:
        """Give the bytes that a ref names, also one of another tool's; None when they are not here."""
        name = self.blob_hash(ref)
        return None if name is None else self.blobs.get(name)

    def name_blob(self, name: str | bytes, sha256: bytes) -> bool:
        """Note the SHA-256 that other tools name a blob by; give False, and note nothing, when it is not that."""
        from hashlib import sha256 as hasher

        found = hasher()
        for piece in self.blobs.stream(name):
            found.update(piece)
        if found.digest() == sha256:
            self.artifacts.table.name_blob(sha256, self.blobs.blob_id(digest_of(name)))
        return found.digest() == sha256


class Resource:
    """What a URL names, open: iterated once, it gives the bytes; `next_offset` is known when they are used up."""

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
        """Give `limit` lines of `pieces`, after `skip` that are not wanted; `lines` says how many there are.

        `incomplete` says why they are not all that they should be, None when they are.
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
        """Give the bytes in pieces."""
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
        skip = self._skip
        for piece in self._pieces:
            if not skip:
                yield piece
                continue
            found = piece.count(b"\n")
            if found < skip:
                skip -= found
                continue
            rest = piece.split(b"\n", skip)[-1]
            skip = 0
            if rest:
                yield rest
        if skip:
            raise beyond(self._offset, self._offset - skip)


def beyond(offset: int, lines: int) -> LogicError:
    """Give the error for a line that is not there."""
    return LogicError(f"there is no line {offset}: it has {lines} lines", "give a smaller offset")


def open_url(url: str, sources: Sources | None, offset: int | None = None, limit: int | None = None) -> Resource:
    """Give what a URL names, `limit` lines from line `offset` on, counted from 1; all of it unless told.

    `sources` is None for somebody who has no thread. Raises UsageError for what is no URL, LogicError for what is not
    there.
    """
    check_lines(offset, limit)
    if not isinstance(url, str):
        raise UsageError(f"a URL is text, not {type(url).__name__}", "give one such as artifact://0")
    scheme, colon, rest = url.partition(":")
    opener = SCHEMES.get(scheme.lower() + colon)
    if opener is None:
        raise UsageError(f"'{url}' is no URL that eventq knows", "give artifact://ID, agent://ID or blob:blake3:HASH")
    return opener(url, rest, sources, offset, limit)


def read(url: str, sources: Sources | None, offset: int | None = None, limit: int | None = None) -> Content:
    """Give what a URL names, in memory; see `open_url`."""
    found = open_url(url, sources, offset, limit)
    data = b"".join(found)
    return Content(url, found.content_type, data, found.next_offset, found.incomplete is None)


# --- artifacts --------------------------------------------------------------------------------------------------------


def _artifact(url: str, rest: str, sources: Sources | None, offset: int | None, limit: int | None) -> Resource:
    name = _authority(url, rest).removesuffix("/")
    if not name:
        raise UsageError("artifact:// URL requires a numeric ID: artifact://0", "give the number that was printed")
    if not name.isascii() or not name.isdigit():
        raise UsageError(f"artifact:// ID must be numeric, got: {name}", "give the number that was printed")
    if sources is None:
        raise LogicError("No session - artifacts unavailable", "read it from a thread")
    sources.check_any()
    artifact = sources.artifacts.open(name)
    info = artifact.info
    reason = f" ({info.error})" if info.error else ""
    why = None if info.status == "sealed" else f"{info.url} is {info.status}{reason}"
    if offset is None or offset == 1:
        pieces = artifact.stream() if limit is None else artifact.lines_from(1)
    elif offset > info.lines:
        raise beyond(offset, info.lines)
    else:
        pieces = artifact.lines_from(offset)
    return Resource("text/plain", pieces, offset=offset, limit=limit, incomplete=why, lines=info.lines)


def _authority(url: str, rest: str) -> str:
    if not rest.startswith("//"):
        scheme = url.partition(":")[0]
        raise UsageError(f"'{url}' has no //", f"write {scheme}://ID")
    return rest[2:]


# --- outputs of agents ------------------------------------------------------------------------------------------------


def _agent(url: str, rest: str, sources: Sources | None, offset: int | None, limit: int | None) -> Resource:
    name, path, asked, version = _split(_authority(url, rest))
    if not name:
        raise UsageError("agent:// URL requires an output ID: agent://<id>", "give a name that was printed or listed")
    tokens = query.path(path)
    if tokens and asked:
        raise UsageError("agent:// URL cannot combine path extraction with ?q=", "use one of them")
    if asked:
        tokens = query.parse(asked)
    extracts = bool(tokens or asked)
    if extracts and (offset is not None or limit is not None):
        raise UsageError("offset and limit cannot be combined with extraction", "leave them out, or read it whole")
    if sources is None:
        raise LogicError("No session - agent outputs unavailable", "read it from a thread")
    sources.check_any()
    pieces = sources.outputs.stream(sources.outputs.get(name, version))
    if not extracts:
        return Resource("text/markdown", pieces, offset=offset, limit=limit, skip=(offset or 1) - 1)
    found = query.extract(_json(name, b"".join(pieces)), tokens)
    text = json.dumps(found, ensure_ascii=False, indent=2)
    return Resource("application/json", [text.encode("utf-8", "backslashreplace")])


def _split(rest: str) -> tuple[str, str, str, int]:
    """Give the id, the path, the query of `?q=` and the version that an agent's URL names."""
    from urllib.parse import parse_qs, unquote

    place, _, asked = rest.partition("#")[0].partition("?")
    name, slash, path = place.partition("/")
    told = parse_qs(asked, keep_blank_values=True)
    version = told.get("version", ["1"])[0]
    if not version.isascii() or not version.isdigit() or len(version) > 18 or not int(version):
        raise UsageError(f"version must be a whole number from 1 on, not '{version}'", "see 'eventq output ls'")
    return unquote(name), slash + path, told.get("q", [""])[0], int(version)


def _json(name: str, data: bytes) -> Any:
    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise LogicError(f"Output {name} is not valid JSON: {error}", "read it whole, without extraction") from error


# --- blobs ------------------------------------------------------------------------------------------------------------


def _blob(url: str, _: str, sources: Sources | None, offset: int | None, limit: int | None) -> Resource:
    kind = url[5:].partition(":")[0]
    if kind not in ("blake3", "sha256") or parse_ref(url[5:].partition(":")[2]) is None:
        raise InputError(f"'{url}' names no blob", "give blob:blake3:<64 lower-case hex digits>")
    if sources is None:
        raise LogicError("No session - blobs unavailable", "read it from a thread")
    name = sources.blob_hash(url)
    if name is None:
        raise UnknownBlobError(url)
    pieces = sources.blobs.stream(name)
    return Resource("application/octet-stream", pieces, offset=offset, limit=limit, skip=(offset or 1) - 1)


SCHEMES: dict[str, Callable[[str, str, Sources | None, int | None, int | None], Resource]] = {
    "artifact:": _artifact,
    "agent:": _agent,
    "blob:": _blob,
}
