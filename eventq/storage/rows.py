"""Values that the domain and an engine exchange, in addition to the public records.

A digest is the 32 bytes of a BLAKE3 hash; 0 means "no turn"; times are milliseconds since 1970. The
records are in `eventq.records`.
"""

from __future__ import annotations

from eventq.errors import BusyError
from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.records.event import Event


# How the bytes of a blob are stored: as they are, as a zstd frame, as a list of parts. What was
# erased has none, or others in their place.
NONE, ZSTD, PARTS, GONE = range(4)


class BlobRow(Record):
    """A stored blob, without its bytes; `part` says that it is only a part of others."""

    digest: bytes
    size: int
    stored: int
    codec: int
    part: bool


class Piece(Record):
    """Bytes as they are stored, at most 1 MiB: cut, hashed and compressed by the domain."""

    digest: bytes
    size: int
    codec: int
    stored: bytes | bytearray | memoryview


class PreparedBlob(Record):
    """A blob that is one piece, or the list `parts`; `pieces` are those that are not stored yet.

    With neither it is a blob that was found stored, and verified.
    """

    digest: bytes
    size: int
    pieces: tuple[Piece, ...]
    parts: tuple[bytes, ...]
    refs: tuple[bytes, ...]


class Holder(Record):
    """What keeps a blob: a kind, a name, and the turn that it has to do with, 0 for none.

    The turn of an attempt is the one that it came after.
    """

    kind: str
    name: str
    turn: int


class TurnRow(Record):
    """A turn as it is read; `digest`, `size` and `codec` are None, 0 and 0 for a tombstone."""

    turn: int
    parent: int
    depth: int
    type_id: str
    type_version: int
    encoding: int
    flags: int
    at: int
    canonical: str | None
    patch: int
    digest: bytes | None
    size: int
    codec: int


class Link(Record):
    """The position of a turn in the graph; `parent` is 0 for a root."""

    parent: int
    depth: int


class PreparedTurn(Record):
    """A turn that can be appended: checked and hashed by the domain."""

    blob: PreparedBlob
    type_id: str
    type_version: int
    encoding: int
    flags: int
    canonical: str | None


class AppendTo(Record):
    """Where a turn goes, under which conditions, and what changes with it.

    `key_digest` identifies the payload of the `key`. An event from `source` reports the turn.
    The open turn `seals`, if it is as long as the payload, becomes this one. It gets the `root`
    of a file tree, which is a stored blob unless it is a `foreign_root`.
    """

    parent: int | None = None
    expected_head: int | None = None
    key: str | None = None
    key_digest: bytes = b""
    source: str | None = None
    seals: int | None = None
    root: bytes | None = None
    foreign_root: bool = False


class RunChoice(Record):
    """The runs to list: of a group or all; with `active` those that are active or suspended.

    With a `day` (UTC) they are those completed on it, and `active` is not looked at.
    """

    group: str | None = None
    active: bool = False
    day: str | None = None


class RunState(Record):
    """The state of a run: its head (0 for none) and the digest of the head's payload.

    `tried` grows with each attempt after the head, 0 for none; `keyed` is the turn that has the
    requested key, 0 for none.
    """

    status: str
    head: int
    start: int
    digest: bytes
    tried: int
    keyed: int


class PreparedRun(Record):
    """A run that can be started: `texts` are the blobs that its first turn names.

    Events from `source` report its changes; None leaves that to the setting `runs.emit`.
    """

    name: str
    group: str
    label: str | None
    texts: tuple[PreparedBlob, ...]
    first: PreparedTurn
    source: str | None
    to: AppendTo


class PreparedAttempt(Record):
    """A step that failed after the head of `after`; `blobs` are stored ahead of its node."""

    after: RunState
    blobs: tuple[PreparedBlob, ...]
    node: PreparedBlob


class PreparedStep(Record):
    """A step that can be taken if the state of the run is still `after`.

    `blobs` are stored ahead of it, `attempts` beside the chain. With `replaces` it replaces the
    last step, which becomes an attempt. The run's status changes to `becomes`, or stays. It is
    reported as `op`.
    """

    turn: PreparedTurn
    to: AppendTo
    after: RunState
    blobs: tuple[PreparedBlob, ...]
    attempts: tuple[PreparedBlob, ...]
    op: str
    becomes: str | None = None
    replaces: bool = False


class StreamPiece(Record):
    """Some bytes of a stream, at most 1 MiB, as they are stored.

    `position` counts from 0; None lets the engine choose the next one, or join the bytes to the
    last piece while that is small. `newlines` counts those before it, where lines are counted.
    """

    position: int | None
    newlines: int
    stored: bytes | bytearray | memoryview


class Growth(Record):
    """What a stream grows by: `size` bytes, up to `lines` lines (0: not counted), in `pieces`."""

    size: int
    lines: int
    pieces: tuple[StreamPiece, ...]


class Ending(Record):
    """How a stream ends: `sealed` or `failed`; `discarded` for an open turn only."""

    status: str
    digest: bytes | None = None
    error: str | None = None


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


class SessionRow(Record):
    """A session file as it was last read: `size` and `digest` of its bytes to the last newline."""

    session: int
    name: str
    generation: int
    tool: str
    place: str | None  # the path of the file
    size: int
    digest: bytes
    lines: int
    settled: int | None = None  # the line from where on the tree has to be built when it has grown
    missing: str | None = None  # the parents that no line has, as JSON
    owner: str | None = None  # of a subagent's: the session in whose folder the file stands
    path: str | None = None  # where it stands there
    started_by: str | None = None  # the entry that started the subagent


class Tip(Record):
    """A context at the end of a branch of a session, at the turn where an import has left it."""

    context: int
    name: str | None
    session: int
    turn: int
    position: int | None  # of the line, if the session has it still


class NewLine(Record):
    """A line of a session file: `before`, the text that a blob holds in a form, and `after`."""

    blob: PreparedBlob
    form: int
    before: bytes
    after: bytes
    is_node: bool
    entry: str | None
    parent: str | None
    kind: int
    response: str | None
    agent: str | None
    images: Sequence[PreparedBlob]


class StoredLine(Record):
    """What the bytes of a line consist of, and its turn."""

    position: int
    form: int
    before: bytes
    after: bytes
    digest: bytes
    turn: int | None
    size: int  # of the blob


class LineLink(Record):
    """How a stored line is linked; `entry` and those after it are those of a `Link`."""

    position: int
    is_node: int
    entry: str | None
    parent: str | None
    kind: int
    response: str | None
    agent: str | None
    turn: int | None
    turn_parent: int  # 0 for none


class Worker(Record):
    """Who claims: a name to be shown, and the process, so that others can see that it is lost."""

    name: str
    process: str | None = None


class Claimed(Record):
    """An event that a worker has leased, for the `attempt`-th time from 1.

    `revived` says that it was a dead letter; `orphan` names the process that its last worker left
    it with, if that worker was lost.
    """

    event: Event
    attempt: int
    revived: bool
    orphan: str | None


class Taken(Record):
    """What a claim got, until when, and for how long, in ms.

    The token is an earlier one with an earlier nonce.
    """

    claims: list[Claimed]
    token: bytes
    until: int
    span: int


class Verdict(Record):
    """What a worker says of some events that one claim leased: done, extend, retry or dead.

    `span` is the length of the new lease, or of the wait before the next attempt, in ms; None is as
    long as the lease was, or waits as the consumer's settings say. `counts` says whether a retry is
    a failed attempt, `code` is an exit code.
    """

    consumer: str
    token: bytes
    events: Sequence[int]
    revived: bool
    what: str
    span: int | None = None
    counts: bool = True
    code: int | None = None
    error: str | None = None


class Outcome(Record):
    """An attempt that did not finish its event, and `what` follows: retry, dead or stall.

    A retry comes after `wait` ms, or with None once its consumer is resumed. `most` is the
    consumer's number of attempts; one that was not counted has `counts` false. `code` is the exit
    code of a handler, negative for a signal, `error` what was said of the attempt, and `worker` who
    lost its lease.
    """

    consumer: str
    event: int | None
    attempt: int
    most: int
    what: str
    wait: int | None = 0
    counts: bool = True
    code: int | None = None
    error: str | None = None
    worker: str | None = None


class Settled(Record):
    """The leases that were lost, as token and event; whether others can claim more than before."""

    lost: set[tuple[bytes, int]]
    freed: bool


class ClaimRow(Record):
    """A lease as it is stored: who has which event since when and until when, in ms.

    `process` is the worker's, and that of the handler which it started.
    """

    consumer: str
    event: int
    attempt: int
    worker: str
    since: int
    until: int
    token: bytes
    revived: bool
    process: str | None


class DeadRow(Record):
    """A dead letter, without its event; `at` is in ms."""

    consumer: str
    event: int
    attempts: int
    code: int | None
    error: str | None
    at: int


class QueueStatus(Record):
    """What a consumer's claims have left to do; `done`, `failed` and `buried` in 24 hours.

    Of the unfinished, the `parked` ones wait for an earlier event of their group. `first` is the
    first event that is not finished, and `code` the last exit code for it; `revived` is the first
    dead letter that is tried again. After a last attempt, `halted` events have stopped their groups
    or the queue, from `halted_at` on; `due_at` is when the next attempt is made, in ms.
    """

    unfinished: int = 0
    leased: int = 0
    parked: int = 0
    dead: int = 0
    first: int | None = None
    code: int | None = None
    done: int = 0
    failed: int = 0
    buried: int = 0
    revived: int | None = None
    halted: int = 0
    halted_at: int | None = None
    due_at: int | None = None


class GoneError(BusyError):
    """A collection deleted what was found or stored ahead of a transaction."""

    def __init__(self) -> None:
        super().__init__(
            "a collection deleted parts of what was being stored",
            "nothing was stored; give it again",
        )
