"""Session files of coding agents, their branches and entries."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.errors import EventqError


AGENT = "/agent-"  # between the name of a session and that of its subagent


class SessionImported(Record):
    """The result of a session import: `added` of the file's `entries`, and blobs of its images.

    A line without an entry is counted as one. `raw` counts the added lines of which anything is
    stored as text: they are not JSON objects, or have more than the entries on them. `files` counts
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


class SessionFile(Record):
    """A session file in a folder that was imported, or the error why it was not."""

    path: str
    imported: SessionImported | None
    error: EventqError | None

    @property
    def is_new(self) -> bool:
        """Whether anything of it was not stored before."""
        made = self.imported
        return made is not None and bool(made.added or made.files or made.agents)


class SessionInfo(Record):
    """A session file that a thread keeps, as it was when it was last imported.

    `generation` is its newest one, or the one asked for, `lines` and `size` in bytes are those of
    the file, `file` is where it was. `branches` and `agents` count the branches and the subagents'
    sessions of all generations, `turns` those of the active branch.

    `title` is the tool's own, `prompt` the first words of a person, `cwd` the directory that the
    tool worked in: as far as the first and last lines of the file have them. `active_at_ms` is when
    its last entry was written, or that of the import where no entry says so.
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
    title: str | None = None
    prompt: str | None = None
    cwd: str | None = None
    active_at_ms: int = 0
    turns: int = 0


class SessionBranch(Record):
    """A branch of a session: a context that ends at an `entry`, after so many `entries`.

    `session` is the session's name, or that of a subagent, which an entry has `started_by`.
    `leaves_at` is the last entry that it shares with the active branch, which has none. Its first
    entry `continues` another one, if it begins with a compaction of which the file states that.
    """

    context_id: int
    name: str | None
    session: str
    entry: str | None
    entries: int
    leaves_at: str | None
    started_by: str | None
    continues: str | None


class Subagent(Record):
    """A subagent as it begins: at its turn `first`, below the turn with the call that started it.

    `below` is 0 if that call is not known; then `session` may be the one that has it. `name` is
    that of its context, `nickname` what the tool calls it.
    """

    below: int
    first: int
    context_id: int
    name: str
    session: str | None = None
    nickname: str = ""

    @property
    def label(self) -> str:
        """What it is called, or its id."""
        return self.nickname or self.name.partition(AGENT)[2] or self.name


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


class SessionRemoved(Record):
    """A session that was deleted, with the `lines` of its generations and subagents."""

    name: str
    lines: int
    contexts: tuple[str, ...]  # their names, or ids
    agents: int
