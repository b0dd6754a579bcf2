"""Artifacts, scopes and files as the domain and an engine exchange them."""

from __future__ import annotations

from eventq.record import Record


class ArtifactRow(Record):
    """An artifact as it is stored; `owner` names the writer of an open one, who may be dead."""

    number: int
    tool: str
    status: str
    owner: str | None
    size: int
    lines: int
    digest: bytes | None
    error: str | None
    created_at: int
    ended_at: int | None


class ScopeRow(Record):
    """What artifacts and outputs are numbered in; it began with the context of its number."""

    scope: int
    name: str | None
    created_at: int


class FileRow(Record):
    """A file of a folder, by its path in it: an artifact, a version of an output, or a blob."""

    path: str
    number: int | None = None
    output: str | None = None
    version: int | None = None
    digest: bytes | None = None
