"""Artifacts of tools, outputs of agents, and what is read of them."""

from __future__ import annotations

from eventq.record import Record


class ArtifactInfo(Record):
    """A numbered output of a tool, with its size in bytes and lines so far.

    `status` is `open` while it is written, `sealed` when it is whole, `failed` when its writer gave
    up, for the reason in `error`, and `partial` when its writer died. `hash` is the BLAKE3-256 of
    all its bytes once it is sealed. `session` names the scope that it is numbered in, None for the
    thread.
    """

    artifact_id: str
    tool: str
    status: str
    size: int
    lines: int
    hash: str | None
    error: str | None
    created_at_ms: int
    ended_at_ms: int | None
    session: str | None = None

    @property
    def url(self) -> str:
        """The address that others read it by."""
        return f"artifact://{self.artifact_id}{_query(self.session)}"


class OutputInfo(Record):
    """One version of a named output of an agent; its address names the first.

    `session` names the scope of the output, None for the thread.
    """

    output_id: str
    version: int
    hash: str
    size: int
    created_at_ms: int
    session: str | None = None

    @property
    def url(self) -> str:
        """The address that others read it by."""
        return f"agent://{self.output_id}{_query(self.session, self.version)}"


def _query(session: str | None, version: int = 1) -> str:
    """Return the part of an address that names a version, and the session it is of."""
    parts = [f"version={version}"] if version > 1 else []
    if session is not None:
        from urllib.parse import quote

        parts.append(f"session={quote(session)}")
    return f"?{'&'.join(parts)}" if parts else ""


class Captured(Record):
    """The visible part of a stream, and the place of the whole; sizes are bytes of UTF-8.

    `truncated` is true if the stream did not fit into the window; `capped` counts the bytes that
    were cut from lines that are too long, or were written over. `artifact_id` names the artifact
    that holds all of it, in the scope of a `session` or of the thread (None); `error` says why
    there is none.
    """

    text: str
    truncated: bool
    capped: int
    total_bytes: int
    total_lines: int
    artifact_id: str | None
    error: str | None
    session: str | None = None

    @property
    def url(self) -> str | None:
        """The address of the artifact that holds all of it, None when there is none."""
        number = self.artifact_id
        return None if number is None else f"artifact://{number}{_query(self.session)}"


class Content(Record):
    """The content of a URL: all of it, or `limit` lines from line `offset` on.

    `next_offset` is the line to continue at, None at the end; `complete` is false for an artifact
    that is not sealed.
    """

    url: str
    content_type: str
    data: bytes
    next_offset: int | None = None
    complete: bool = True

    @property
    def text(self) -> str:
        """The bytes as text; invalid UTF-8 is replaced."""
        return self.data.decode(errors="replace")
