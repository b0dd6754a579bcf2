"""Every value that eventq returns or stores: the glossary in code. Read this module first.

All of them are immutable. `Event` and `Batch` have a module of their own to save start-up time.
"""

from __future__ import annotations

from eventq.errors import InputError
from eventq.event import Batch, Event
from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypedDict

    class Terms(TypedDict, total=False):
        """What `Thread.subscribe` takes beside its own parameters; see `Subscription`."""

        from_now: bool
        max_attempts: int
        timeout: float | None
        batch: int
        concurrency: int
        ordered_by: str | None
        on_failure: str | None
        backoff: tuple[float, float]
        lease: float
        emit_dead: bool
        directory: str | None


__all__ = [
    "ArtifactInfo",
    "Batch",
    "Blob",
    "Captured",
    "ClaimInfo",
    "Collected",
    "ConsumerInfo",
    "Content",
    "ContextInfo",
    "DeadLetter",
    "EntryInfo",
    "Erasure",
    "Event",
    "Imported",
    "Move",
    "NewRun",
    "NewStep",
    "NewTurn",
    "OpenInfo",
    "OutputInfo",
    "Page",
    "RunChange",
    "RunInfo",
    "RunText",
    "SessionBranch",
    "SessionDifference",
    "SessionForked",
    "SessionImported",
    "SessionInfo",
    "Setting",
    "Source",
    "Step",
    "Subscription",
    "ThreadInfo",
    "Turn",
]

_PARTS = {"external": 5, "internal": 3, "self": 0}


class Subscription(Record):
    """A consumer's subscription.

    `handler_cmd` runs while matching events are not acked; with `kind` "each", once for each event
    (`batch`: for so many); of "pull", it is None, and nothing runs. With `concurrency` 0 events
    come in order; else so many handlers run at once, and events alike in `ordered_by` in order.
    After `max_attempts` the consumer stalls or the event is dead, as `on_failure` says. `backoff`
    are the least and the most seconds before another attempt, `lease` those of a claim.
    """

    consumer_id: str
    handler_cmd: str | None
    filter: str | None
    max_attempts: int = 21
    timeout: float | None = None
    kind: str = "loop"
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str | None = None
    backoff: tuple[float, float] = (1.0, 300.0)
    lease: float = 30.0
    emit_dead: bool = False
    directory: str | None = None


class ConsumerInfo(Record):
    """A subscription and the state of its consumer.

    `handler_cmd` is None for one that runs nothing. `pending` counts matching events that are not
    finished (None when the filter cannot be run); `attempts` counts runs without progress since the
    last ack; `stalled` says why no handler is started any more, or is None. `waiting_id` is the
    first event that is not finished, `lag` its age in seconds, and `exit_code` the last one of a
    handler for it alone. `done`, `failed` and `buried` count attempts of the last 24 hours, and
    `dead` dead letters. `log` is the file with what handlers print.

    `batch`, `concurrency`, `ordered_by`, `on_failure` ("stall" or "dead"), `backoff` and `lease`
    are those of the subscription. `waits_for` says what has to happen next, and `advice` is the
    command to run for that, or None where nobody has to do anything. `worked` says whether a worker
    looks after the consumer: `eventq work`, or a `Worker`.

    Of the pending events, claims have looked at the `unfinished` ones: `leased` are claimed now,
    `parked` wait for an earlier event of their group, `halted` have stopped their group or the
    consumer after their last attempt, and the others wait for another attempt. Nobody has looked at
    the `unexamined` ones (None as for `pending`), which follow them. A handler that pops counts all
    of them as unexamined, whatever was claimed.
    """

    consumer_id: str
    handler_cmd: str | None
    filter: str | None
    last_acked_id: int
    updated_at: str | None
    pending: int | None
    running: bool
    attempts: int
    stalled: str | None
    max_attempts: int
    timeout: float | None
    kind: str = "loop"
    paused: bool = False
    waiting_id: int | None = None
    lag: float | None = None
    exit_code: int | None = None
    unfinished: int = 0
    leased: int = 0
    parked: int = 0
    unexamined: int | None = None
    dead: int = 0
    done: int = 0
    failed: int = 0
    buried: int = 0
    log: str | None = None
    batch: int = 1
    concurrency: int = 0
    ordered_by: str | None = None
    on_failure: str = "stall"
    backoff: tuple[float, float] = (1.0, 300.0)
    lease: float = 30.0
    waits_for: str | None = None
    advice: str | None = None
    halted: int = 0
    worked: bool = False


class ClaimInfo(Record):
    """A claim that is out: which worker has which event, since when, and until when, in ms.

    One whose `deadline_ms` has passed is nobody's, and goes to the next worker that claims.
    """

    consumer_id: str
    event_id: int
    attempt: int
    worker: str
    token: str
    claimed_at_ms: int
    deadline_ms: int


class DeadLetter(Record):
    """An event that failed for good.

    `event` is None if it was deleted since. `exit_code` is that of its handler, if it had one, and
    `error` what was said of the last attempt: of a handler, the end of what it printed.
    """

    consumer_id: str
    event_id: int
    event: Event | None
    attempts: int
    exit_code: int | None
    error: str | None
    died_at_ms: int


class ThreadInfo(Record):
    """A summary of a thread; sizes are bytes."""

    path: str
    event_count: int
    subscriptions: tuple[ConsumerInfo, ...]
    last_id: int
    db_bytes: int
    wal_bytes: int
    mirror_bytes: int


class Erasure(Record):
    """What was erased: a `turn`, `event`, `artifact` or `blob`, by name, and when and why.

    It is not `finished` while its bytes may be left in some file of the thread, after an erasure
    that was interrupted: it must be erased again.
    """

    kind: str
    name: str
    reason: str | None
    at_ms: int
    finished: bool


class Setting(Record):
    """A setting of a thread; `default` is its value until it is changed."""

    name: str
    value: str
    default: str


class Source(Record):
    """A structured source address: `external:` with 6 parts, `internal:` with 4, or `self`.

    Parts are lower case, not empty and hold no colon and no control character.
    """

    kind: str
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError for an address of another form."""
        wanted = _PARTS.get(self.kind)
        good = wanted == len(self.parts) and all(
            p and p == p.lower() and p.isprintable() and ":" not in p for p in self.parts
        )
        if not good:
            raise InputError(
                f"'{self}' is not a source address",
                "write external:<channel_type>:<channel_id>:<session_type>:<session_id>:<peer_id>, "
                "internal:<session_type>:<session_id>:<agent_id> or self, in lower case",
            )

    def __str__(self) -> str:
        """Return the address as it is stored."""
        return ":".join((self.kind, *self.parts))

    @classmethod
    def parse(cls, text: str) -> Source:
        """Return the address of a text. Raises InputError."""
        kind, *parts = text.split(":")
        return cls(kind, tuple(parts))

    @classmethod
    def external(
        cls, channel_type: str, channel_id: str, session_type: str, session_id: str, peer_id: str
    ) -> Source:
        """Return the address of an outside peer, reached through a channel."""
        return cls("external", (channel_type, channel_id, session_type, session_id, peer_id))

    @classmethod
    def internal(cls, session_type: str, session_id: str, agent_id: str) -> Source:
        """Return the address of another agent."""
        return cls("internal", (session_type, session_id, agent_id))

    @classmethod
    def own(cls) -> Source:
        """Return the address of the agent itself, `self`."""
        return cls("self")


class Blob(Record):
    """Stored bytes, named by their hash.

    `hash` is BLAKE3-256 in 64 lower-case hex digits. `size` counts the bytes, `stored` those on the
    disk. `codec` is `none`, `zstd` or `parts`. `new` is false if a put found the bytes stored.
    """

    hash: str
    size: int
    stored: int
    codec: str
    new: bool = False

    @property
    def ref(self) -> str:
        """The name that others refer to it by."""
        return f"blob:blake3:{self.hash}"


class Turn(Record):
    """One immutable node of a conversation, as it is read.

    `turn_id` counts 1, 2, 3 …; `parent_turn_id` is 0 for a root, whose `depth` is 0. `type_id`,
    `type_version`, `encoding` and `flags` are application-defined. `hash` and `size` are those of
    the payload as it is read; `payload` is None if it was not requested, and for a tombstone. One
    with a hash was erased: its bytes are gone for good.
    `patch` is the `seq` of the patch that was applied, 0 for none. `canonical` names the rule that
    made the payload's bytes, or is None.
    """

    turn_id: int
    parent_turn_id: int
    depth: int
    type_id: str
    type_version: int
    encoding: int
    hash: str
    size: int
    flags: int
    created_at_ms: int
    canonical: str | None = None
    patch: int = 0
    tombstone: bool = False
    payload: bytes | None = None

    @property
    def ref(self) -> str:
        """The name of the payload's blob."""
        return f"blob:blake3:{self.hash}"


class NewTurn(Record):
    """A turn that is to be appended.

    `payload` is bytes, text or a binary file; or a value, of which `canonical` names the rule that
    makes bytes (`eventq-json-1`). `refs` are the blobs that it names. `type_id`, `type_version`,
    `encoding` and `flags` are application-defined. A payload that is not that of `expect_hash` and
    `expect_size` is refused.
    """

    payload: Any
    type_id: str = "message"
    type_version: int = 1
    encoding: int = 0
    flags: int = 0
    canonical: str | None = None
    refs: Iterable[str | bytes] = ()
    expect_hash: str | bytes | None = None
    expect_size: int | None = None


class Page(tuple[Turn, ...]):  # noqa: SLOT001 (a tuple can have none)
    """Some turns of a chain, oldest first; `next_cursor` is None at the end of the chain."""

    next_cursor: int | None
    __match_args__ = ("turns", "next_cursor")

    def __new__(cls, turns: Iterable[Turn], next_cursor: int | None = None) -> Page:
        """Return a page of these turns."""
        page = super().__new__(cls, turns)
        page.next_cursor = next_cursor
        return page

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns as a plain tuple."""
        return tuple(self)

    def __getnewargs__(self) -> tuple[tuple[Turn, ...], int | None]:
        """Return what copies and pickles are made of."""
        return self.turns, self.next_cursor

    def __repr__(self) -> str:
        """Show the turns and the cursor."""
        return f"Page(turns={self.turns!r}, next_cursor={self.next_cursor!r})"


class ContextInfo(Record):
    """A context at one moment: a head over turns, and its origin.

    `head_turn_id` is 0 while it is empty; `base_turn_id` is the turn it began at; `fork_of` the
    context it was forked from, None for none or a deleted one; `version` counts the moves of the
    head.
    """

    context_id: int
    name: str | None
    head_turn_id: int
    head_depth: int
    base_turn_id: int
    fork_of: int | None
    version: int
    flags: int
    created_at_ms: int
    updated_at_ms: int


class Move(Record):
    """One move of a head; turn ids are 0 for none.

    `op` is `create`, `append`, `move`, `import` or `delete`.
    """

    version: int
    op: str
    old_turn_id: int
    new_turn_id: int
    at_ms: int


class OpenInfo(Record):
    """A turn that is still being written; `size` counts the bytes stored so far."""

    open_id: int
    context_id: int
    type_id: str
    type_version: int
    encoding: int
    size: int
    created_at_ms: int
    updated_at_ms: int


class Collected(Record):
    """What a collection deleted, or would delete if it was not `applied`.

    `hashes` are those of the blobs, sorted; `size` counts their bytes, `stored` those on the disk.
    """

    applied: bool
    turns: int
    blobs: int
    size: int
    stored: int
    hashes: tuple[str, ...]


class Imported(Record):
    """What an import added; `notes` has a sentence for each thing that was dropped or missing."""

    blobs: int
    turns: int
    contexts: int
    moved: int
    notes: tuple[str, ...]
    artifacts: int = 0
    outputs: int = 0


class RunInfo(Record):
    """A run of a workflow at one moment; `head` and `start` are the refs of its nodes.

    `status` is `active`, `suspended`, `completed` or `cancelled`; `completed_at_ms` is None unless
    it is completed. `label` is the name of the run's context, None for none.
    """

    run_id: int
    name: str
    group: str
    status: str
    head_turn_id: int
    depth: int
    head: str
    start: str
    fork_of: int | None
    updated_at_ms: int
    completed_at_ms: int | None
    label: str | None


class RunChange(Record):
    """The last change of a run, and the run as it is now; None for one that was removed.

    `op` is `start`, `step`, `attempt`, `poke`, `compact`, `suspend`, `resume`, `end`, `fork`,
    `import`, or `remove`; it is `active` for a run that was under way when somebody began to watch.
    """

    op: str
    run_id: int
    run: RunInfo | None


class NewRun(Record):
    """A run that is to be started.

    `name` is that of the workflow, `prompt` its task. `system` maps each role to its system text;
    when it has any, only these roles and those that took a step have messages. `group` is what the
    workflow was made of (a hash of its bundle), `parent_state` the step of a calling run.
    `summary_cap` bounds the characters of one step in a summary, 0 for no bound. With
    `task_in_system` the system texts state the task: the messages do not add it to them (default:
    they do). `answer` is the form of a step's output in messages: its `text`, its `meta` as JSON
    (each stands in for the other where that is missing), or `json` with both.
    """

    name: str
    prompt: str
    system: Mapping[str, str] | None = None
    group: str = ""
    max_rounds: int = 0
    depth: int = 0
    parent_state: str | bytes | None = None
    summary_cap: int = 2_000
    task_in_system: bool = False
    answer: str = "text"


class Step(Record):
    """One step of a run: `number` counts from the start of the run, `ref` names its node.

    `meta` is the structured part of the role's output and `content` its text, which the node that
    `content_ref` names holds; `artifacts` are refs. A turn of a type that this version does not
    know has no role, and its type as `meta`.
    """

    number: int
    turn_id: int
    ref: str
    role: str
    meta: Any
    content: str
    artifacts: tuple[str, ...]
    edge_prompt: str
    agent: str
    timestamp: int
    ancestors: tuple[str, ...]
    compact: str | None
    attempts: tuple[str, ...]
    child: str | None
    content_ref: str | None


class NewStep(Record):
    """A step that is to be taken, or an attempt at one: the output of a role.

    `meta` is the structured part, any JSON value; `content` the text, and `refs` the blobs it made;
    or `extracted` is the three at once, `{"meta", "contentPayload", "refs"}`. `edge_prompt` is what
    the role was asked, verbatim. `attempts` are failed ones that came before. `compact` is a
    summary of all steps before this one. `child` is the end of a run that this one called.
    """

    role: str
    meta: Any = None
    content: str = ""
    refs: Iterable[str | bytes] = ()
    edge_prompt: str = ""
    agent: str = ""
    compact: str | None = None
    child: str | bytes | None = None
    attempts: Iterable[NewStep] = ()
    extracted: Mapping[str, Any] | None = None


class RunText(Record):
    """The newest steps of a run as text; `omitted` counts the steps that did not fit."""

    text: str
    steps: int
    omitted: int


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
    were cut from lines that are too long. `artifact_id` names the artifact that holds all of it,
    in the scope of a `session` or of the thread (None); `error` says why there is none.
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


class SessionImported(Record):
    """The result of a session import: `added` of the file's `entries`, and blobs of its images.

    `raw` counts the added lines that are stored as text: they are not JSON objects. `files` counts
    those of the folder beside it that are new or changed, `agents` the sessions of subagents there
    with new lines. A file that was rewritten is the next `generation` of its session.
    """

    context_id: int
    entries: int
    added: int
    blobs: int
    notes: tuple[str, ...]
    raw: int = 0
    files: int = 0
    agents: int = 0
    generation: int = 1


class SessionInfo(Record):
    """A session file that a thread keeps, as it was when it was last imported.

    `generation` is its newest one, or the one asked for, `lines` and `size` in bytes are those of
    the file, `file` is where it was. `branches` and `agents` count the branches and the subagents'
    sessions of all generations.
    """

    name: str
    tool: str
    generation: int
    lines: int
    size: int
    branches: int
    agents: int
    file: str | None
    updated_at_ms: int


class SessionBranch(Record):
    """A branch of a session: a context that ends at an `entry`, after so many `entries`.

    `session` is the session's name, or that of a subagent, which an entry has `started_by`.
    `leaves_at` is the last entry that it shares with the active branch, which has none.
    """

    context_id: int
    name: str | None
    session: str
    entry: str | None
    entries: int
    leaves_at: str | None
    started_by: str | None


class EntryInfo(Record):
    """An entry of a session, or any other turn: its id, kind and the start of its text."""

    turn_id: int
    entry: str | None
    kind: str | None
    text: str | None


class SessionDifference(Record):
    """The last entry that two branches share, and what each has after it."""

    shared: EntryInfo
    mine: tuple[EntryInfo, ...]
    theirs: tuple[EntryInfo, ...]


class SessionForked(Record):
    """A new session file, of `lines`, that a tool can resume from; `session_id` is its own id."""

    session_id: str
    output: str
    tool: str
    lines: int
    size: int
    notes: tuple[str, ...]
