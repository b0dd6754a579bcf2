"""The records that a copy reads from one thread and stores in another.

They are apart from `rows`, which every command imports, because only exports and imports need them.
A digest is 32 bytes, 0 means "no turn", times are milliseconds since 1970.
"""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.output_rows import FileRow


class TurnCopy(Record):
    """A turn without its patches; `size` is that of its payload, and 0 where it is not known.

    `type_tag` is a signed number of 64 bits, None where it follows from the type.
    """

    turn: int
    parent: int
    depth: int
    type_id: str
    type_version: int
    type_tag: int | None
    encoding: int
    flags: int
    at: int
    canonical: str | None
    digest: bytes
    size: int = 0


class ContextCopy(Record):
    """A context; `depth` is that of its head, `scope` that of what is produced in it."""

    context: int
    head: int
    depth: int
    flags: int
    at: int
    name: str | None = None
    fork_of: int | None = None
    scope: int = 0


class ErasedCopy(Record):
    """A blob that was erased: its size, what is shown in its place, why, and when."""

    digest: bytes
    size: int
    shown: bytes
    reason: str | None
    at: int


class OutputCopy(Record):
    """A version of an agent's output."""

    scope: int
    output: str
    version: int
    digest: bytes
    at: int


class FileCopy(Record):
    """A file that was imported into a scope."""

    scope: int
    file: FileRow


class SessionCopy(Record):
    """A generation of a session file."""

    session: int
    name: str
    generation: int
    tool: str
    size: int
    digest: bytes
    owner: str | None = None
    path: str | None = None
    started_by: str | None = None


class LineCopy(Record):
    """A line of a session file; `turn` is 0 where it is none."""

    session: int
    position: int
    digest: bytes  # of its blob
    form: int
    before: bytes
    after: bytes
    is_node: int
    entry: str | None
    parent: str | None
    kind: int
    response: str | None
    agent: str | None
    turn: int


class TipCopy(Record):
    """A context that is the tip of a branch of a session, and where an import has left it."""

    context: int
    session: int
    turn: int


class ContextLabel(Record):
    """What a context is called, and which one it was forked from; None changes nothing."""

    context: int
    name: str | None
    fork_of: int | None


class LastIds(Record):
    """The ids of the newest turn and context there ever were, 0 for none."""

    turn: int
    context: int


class PatchCopy(Record):
    """A patch on a turn; `digest` is None for a tombstone."""

    turn: int
    digest: bytes | None
    flags: int
    at: int


class RootCopy(Record):
    """The root of a file tree that a turn has of its own."""

    turn: int
    root: bytes


class RefCopy(Record):
    """A blob that names another."""

    digest: bytes
    named: bytes


class RunCopy(Record):
    """What makes a context a run; `start` is its first turn."""

    context: int
    name: str
    group: str
    status: str
    start: int
    completed_at: int | None


class AttemptCopy(Record):
    """A step that was tried after a turn and is not on the chain."""

    parent: int
    digest: bytes
    at: int


class PinCopy(Record):
    """An owner that keeps a blob."""

    owner: str
    digest: bytes


class AliasCopy(Record):
    """A blob and the SHA-256 by which other tools name it."""

    digest: bytes
    sha256: bytes


Restorable = TurnCopy | ContextCopy | ContextLabel | PatchCopy | RunCopy | AttemptCopy
